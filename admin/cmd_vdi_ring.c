/* cmd_vdi_ring.c - whether a virtual disk uses this host's write-back ring: the --ring of 'vdi
 * set', and what 'vdi info' says of it.
 *
 * CMD_VDI_RING-1  The setting is kept first, then whoever has the disk open is told. So a handler
 *     that opens the disk in between goes by the new setting.
 * CMD_VDI_RING-2  --ring off ends when the store has everything. An interrupt ends the waiting, and
 *     not the draining, if a handler has the disk open. If none has, the command drains by itself,
 *     and an interrupt ends that: the next opening of the disk goes on. A handler may be killed
 *     while it drains, or its disk may stop: so the disk's record has the last word.
 * CMD_VDI_RING-3  What needs all of a disk on the store drains its ring first, so that a handler is
 *     not silent, and deaf to other commands, while it does so. Whatever comes of it, the ring is
 *     used as the setting says again. If the command is killed, the store acknowledges until the
 *     disk is opened again, or its --ring is set.
 */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "attach/attach_ring.h"
#include "attach/doors.h"
#include "attach/host_ring.h"
#include "cmd.h"
#include "output.h"

#define LOOK_US 50000u
#define ALONE ", but the ring runs on one of two members"

/* ---- This host's ring, for a disk that nobody has open ---- */

struct own_ring {
    bool has;   /* this host knows a ring of the store, or cannot tell */
    bool alone; /* which runs on one of two members */
    char id[PLX_UUID_TEXT];
    struct plx_fault problem; /* code not 0: why it cannot be used */
    uint64_t aside; /* writes of this disk, which claims none, that are in the way of its use */
};

static uint64_t count_aside(const struct plx_host_ring *ring, const struct plx_vdi_info *info)
{
    const struct plx_ring_chain_options options = {
        .vdi = info->id, .epoch = info->epoch + 1, .position = info->position};
    struct plx_ring_look look;

    return !ring->ring || ring->in_use || plx_ring_is_marked(&info->mark) ||
                   plx_ring_chain_look(ring->ring, &options, &look, NULL)
               ? 0
               : look.aside;
}

static struct own_ring look_for_ring(struct plx_cli *cli, const struct plx_name *name,
                                     const struct plx_vdi_info *info)
{
    const struct plx_fault *problem;
    struct own_ring own = {.has = true};
    struct plx_known_ring entry;
    struct plx_host_ring ring;
    struct plx_fault why;
    int rc = plx_known_ring_find(cli->session.paths, name->store, &entry, &why);

    own.has = rc != PLX_ERR_NOT_FOUND;
    if (rc)
        return own;
    memcpy(own.id, entry.ring, sizeof own.id);
    plx_host_ring_look(cli->session.paths, &entry, &ring);
    own.alone = ring.ring && plx_ring_members_alone(&ring.members);
    problem = plx_host_ring_problem(&ring);
    if (problem && !own.alone)
        own.problem = *problem;
    own.aside = count_aside(&ring, info);
    plx_host_ring_close(&ring);
    return own;
}

/* ---- vdi set --ring ---- */

int plx_cmd_vdi_check_ring(struct plx_cli *cli, const struct plx_name *name,
                           enum plx_ring_setting use)
{
    struct plx_known_ring ring;
    int rc;

    if (use == PLX_RING_OFF)
        return 0;
    rc = plx_known_ring_find(cli->session.paths, name->store, &ring, &cli->fault);

    if (!rc)
        plx_known_ring_done(&ring);
    return rc;
}

static int let_go_on(struct plx_cli *cli, const struct plx_name *name)
{
    return plx_cli_fail(
        cli, PLX_ERR_INTERRUPTED,
        "the handler continues to drain the ring; 'parallax vdi info %s/%s' says how much is left",
        name->store, name->vdi);
}

/* CMD_VDI_RING-2. An interrupt ends it; rc is 0 then, too. */
static int wait_until_drained(struct plx_cli *cli, const struct plx_name *name, bool *ret_live)
{
    struct plx_progress progress = {.cli = cli};
    struct plx_session_ring ring = {.live = true, .info.turning = true};
    int rc = 0;

    while (!rc && ring.live && (ring.info.on || ring.info.turning) && !plx_session_stopped()) {
        rc = plx_session_vdi_ring(cli, name, &ring);
        if (rc)
            break;
        plx_progress_left(&progress, "draining the ring", ring.info.bytes);
        usleep(LOOK_US);
    }
    plx_progress_end(&progress);
    *ret_live = ring.live;
    return rc;
}

/* The setting is kept all the same (CMD_VDI_RING-1). */
static int left_on_ring(struct plx_cli *cli)
{
    const struct plx_fault why = cli->fault;

    return plx_cli_fail(cli, why.code,
                        "%.430s (the ring is turned off, and may still have the newest writes)",
                        why.text);
}

static int turn_off(struct plx_cli *cli, const struct plx_name *name)
{
    struct plx_vdi_info info = {0};
    struct plx_registry_vdi row;
    bool live;
    int rc = plx_session_vdi_ring_use(cli, name, PLX_RING_OFF, &live);

    if (!rc && live)
        rc = wait_until_drained(cli, name, &live);
    if (!rc && live && plx_session_stopped())
        rc = let_go_on(cli, name);
    if (!rc)
        rc = plx_session_vdi_row(cli, name, &row);
    if (!rc)
        rc = plx_door_read(plx_session_store(cli), &row, &info, &cli->fault);
    if (rc || !plx_ring_is_marked(&info.mark))
        return rc;
    if (live)
        return plx_cli_fail(
            cli, PLX_ERR_STICKY,
            "%s/%.120s has stopped, and the ring may hold writes that the store lacks; "
            "'parallax vdi info %s/%.120s' says more",
            name->store, name->vdi, name->store, name->vdi);
    rc = plx_session_vdi_open(cli, name); /* brings to the store what the ring has */
    return rc ? left_on_ring(cli) : plx_session_vdi_close(cli);
}

/* The setting counts for a disk that nobody has open as soon as somebody opens it. */
static int note_closed(struct plx_cli *cli, const struct plx_name *name, const char *when)
{
    struct plx_registry_vdi row;
    struct plx_vdi_info info;
    struct own_ring own;
    int rc;

    if ((rc = plx_session_vdi_row(cli, name, &row)) ||
        (rc = plx_door_read(plx_session_store(cli), &row, &info, &cli->fault)))
        return rc;
    own = look_for_ring(cli, name, &info);
    if (own.problem.code)
        plx_out_warning("%s/%s: this host's ring cannot be used (%s), so it does not acknowledge "
                        "writes until it can; 'parallax ring check %s' says more",
                        name->store, name->vdi, own.problem.text, name->store);
    else
        plx_out_note(cli,
                     "%s/%s: its writes are acknowledged by this host's ring%s, once a handler has "
                     "it open",
                     name->store, name->vdi, when);
    return 0;
}

static int turn_on(struct plx_cli *cli, const struct plx_name *name, enum plx_ring_setting use)
{
    const char *when = use == PLX_RING_AUTO ? " while the store is slower than usual" : "";
    bool live;
    int rc = plx_session_vdi_ring_use(cli, name, use, &live);

    if (rc)
        return rc;
    if (!live)
        return note_closed(cli, name, when);
    plx_out_note(cli, "%s/%s: its writes are acknowledged by this host's ring%s", name->store,
                 name->vdi, when);
    return 0;
}

int plx_cmd_vdi_set_ring(struct plx_cli *cli, const struct plx_name *name,
                         const struct plx_registry_vdi *row, enum plx_ring_setting use)
{
    int rc;

    /* CMD_VDI_RING-1 */
    if ((rc = plx_ring_setting_keep(cli->session.registry, row->id, use)) ||
        (rc = plx_registry_event_add(cli->session.registry, "vdi set ring", row->id,
                                     plx_ring_setting_words[use])))
        return plx_session_registry_fault(cli, rc);
    if (use != PLX_RING_OFF)
        return turn_on(cli, name, use);
    rc = turn_off(cli, name);
    if (!rc)
        plx_out_note(cli, "%s/%s: the store acknowledges its writes, and has all of them",
                     name->store, name->vdi);
    return rc;
}

/* ---- CMD_VDI_RING-3 ---- */

void plx_cmd_vdi_ring_resume(struct plx_cli *cli, const struct plx_name *name)
{
    const struct plx_fault said = cli->fault;
    struct plx_registry_vdi row;
    enum plx_ring_setting use;
    bool live;

    if (plx_session_vdi_row(cli, name, &row) == 0 &&
        plx_ring_setting_load(cli->session.registry, row.id, &use) == 0)
        plx_session_vdi_ring_use(cli, name, use, &live); /* who has closed it opens it so */
    cli->fault = said;
}

bool plx_cmd_vdi_ring_is_used(const struct plx_session_ring *ring)
{
    return ring->live && (ring->info.on || ring->info.records);
}

int plx_cmd_vdi_ring_pause(struct plx_cli *cli, const struct plx_name *name, const char *undone,
                           bool *ret_paused)
{
    struct plx_session_ring ring = {.live = false};
    int rc = plx_session_vdi_ring(cli, name, &ring);
    bool live;

    *ret_paused = false;
    if (rc || !plx_cmd_vdi_ring_is_used(&ring))
        return rc;
    rc = plx_session_vdi_ring_use(cli, name, PLX_RING_OFF, &live);
    if (!rc && live)
        rc = wait_until_drained(cli, name, &live);
    if (!rc && plx_session_stopped())
        rc = plx_cli_fail(cli, PLX_ERR_INTERRUPTED,
                          "interrupted while the ring was drained: %s/%.120s %s", name->store,
                          name->vdi, undone);
    if (rc)
        plx_cmd_vdi_ring_resume(cli, name);
    *ret_paused = !rc;
    return rc;
}

/* ---- vdi info ---- */

/* Of a disk that nobody has open and whose record names a ring. */
static json_t *needs_ring(const char *word, const struct plx_vdi_info *info,
                          const struct own_ring *own)
{
    char id[PLX_UUID_TEXT];

    plx_uuid_text(&info->mark.ring, id);
    if (!own->has || (own->id[0] && strcmp(id, own->id) != 0))
        return json_sprintf(
            "%s, and its newest writes may be on ring %s, which this host does not have", word, id);
    if (own->problem.code)
        return json_sprintf(
            "%s, and its newest writes may be on this host's ring, which cannot be used: %s", word,
            own->problem.text);
    return json_sprintf("%s, and a ring may have its newest writes%s", word,
                        own->alone ? ALONE : "");
}

static json_t *in_words(enum plx_ring_setting use, const struct plx_session_ring *ring,
                        const struct plx_vdi_info *info, const struct own_ring *own)
{
    const char *word = plx_ring_setting_words[use];
    const char *alone = own->alone ? ALONE : "";
    char left[16];

    if (ring->live && ring->info.records)
        return json_sprintf("%s, %s not on the store yet%s%s%s", word,
                            plx_text_size(ring->info.bytes, left),
                            ring->waits_for[0] ? ", waiting: " : "", ring->waits_for, alone);
    if (!ring->live && plx_ring_is_marked(&info->mark))
        return needs_ring(word, info, own);
    if (use != PLX_RING_OFF && !own->has && !(ring->live && ring->info.on))
        return json_sprintf("%s, but this host has no ring", word);
    if (use != PLX_RING_OFF && !ring->live && own->problem.code)
        return json_sprintf("%s, but this host's ring cannot be used: %s", word, own->problem.text);
    if (use != PLX_RING_OFF && !ring->live && own->aside)
        return json_sprintf("%s, but not used: %" PRIu64 " writes on the ring were set aside", word,
                            own->aside);
    if (ring->live && ring->info.automatic)
        return json_sprintf("%s, %s%s", word,
                            ring->info.on ? "acknowledges now" : "the store acknowledges now",
                            alone);
    return json_sprintf("%s%s", word, alone);
}

int plx_cmd_vdi_ring_describe(struct plx_cli *cli, const struct plx_name *name,
                              const struct plx_registry_vdi *row, const struct plx_vdi_info *info,
                              json_t *object)
{
    bool marked = plx_ring_is_marked(&info->mark);
    enum plx_ring_setting use;
    struct plx_session_ring ring = {.live = false};
    struct own_ring own = {.has = false};
    int rc = plx_ring_setting_load(cli->session.registry, row->id, &use);

    if (rc)
        return plx_session_registry_fault(cli, rc);
    if (row->owner && plx_session_vdi_ring(cli, name, &ring))
        ring.live = false; /* of a handler of another version, say */
    cli->fault.code = 0;
    if (use != PLX_RING_OFF || marked || (ring.live && (ring.info.on || ring.info.records)))
        own = look_for_ring(cli, name, info);
    json_object_set_new(object, "ring", in_words(use, &ring, info, &own));
    json_object_set_new(object, "ring_setting", json_string(plx_ring_setting_words[use]));
    json_object_set_new(object, "ring_needed", json_boolean(marked));
    json_object_set_new(object, "ring_alone", own.has ? json_boolean(own.alone) : json_null());
    if (ring.live) {
        json_object_set_new(object, "ring_acknowledges", json_boolean(ring.info.on));
        json_object_set_new(object, "ring_bytes", json_integer((json_int_t)ring.info.bytes));
        json_object_set_new(object, "ring_waited_ns",
                            json_integer((json_int_t)ring.info.waited_ns));
    }
    plx_out_keys(object, "ring_acknowledges", "ring_bytes", "ring_waited_ns", NULL);
    return 0;
}
