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
#include "attach/known_rings.h"
#include "cmd.h"
#include "output.h"

#define LOOK_US 50000u

/* ---- vdi set --ring ---- */

static int check_ring(struct plx_cli *cli, const struct plx_name *name)
{
    struct plx_known_ring ring;
    int rc = plx_known_ring_find(cli->session.paths, name->store, &ring, &cli->fault);

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

static int turn_on(struct plx_cli *cli, const struct plx_name *name, enum plx_ring_setting use)
{
    bool live;
    int rc = plx_session_vdi_ring_use(cli, name, use, &live);

    if (!rc)
        plx_out_note(cli, "%s/%s: its writes are acknowledged by this host's ring%s%s", name->store,
                     name->vdi, use == PLX_RING_AUTO ? " while the store is slower than usual" : "",
                     live ? "" : ", once a handler has it open");
    return rc;
}

int plx_cmd_vdi_set_ring(struct plx_cli *cli, const struct plx_name *name,
                         const struct plx_registry_vdi *row, enum plx_ring_setting use)
{
    int rc = use == PLX_RING_OFF ? 0 : check_ring(cli, name);

    if (rc)
        return rc;
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

int plx_cmd_vdi_ring_pause(struct plx_cli *cli, const struct plx_name *name, const char *undone,
                           bool *ret_paused)
{
    struct plx_session_ring ring = {.live = false};
    int rc = plx_session_vdi_ring(cli, name, &ring);
    bool live;

    *ret_paused = false;
    if (rc || !ring.live || !(ring.info.on || ring.info.records))
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

/* Whether this host knows a ring of the store, or cannot tell. */
static bool has_ring(struct plx_cli *cli, const struct plx_name *name)
{
    struct plx_known_ring ring;
    struct plx_fault why;
    int rc = plx_known_ring_find(cli->session.paths, name->store, &ring, &why);

    if (!rc)
        plx_known_ring_done(&ring);
    return rc != PLX_ERR_NOT_FOUND;
}

static json_t *in_words(enum plx_ring_setting use, const struct plx_session_ring *ring, bool marked,
                        bool has_one)
{
    const char *word = plx_ring_setting_words[use];
    char left[16];

    if (ring->live && ring->info.records)
        return json_sprintf("%s, %s not on the store yet%s%s", word,
                            plx_text_size(ring->info.bytes, left),
                            ring->waits_for[0] ? ", waiting: " : "", ring->waits_for);
    if (!ring->live && marked)
        return json_sprintf("%s, and a ring may have its newest writes", word);
    if (use != PLX_RING_OFF && !has_one && !(ring->live && ring->info.on))
        return json_sprintf("%s, but this host has no ring", word);
    if (ring->live && ring->info.automatic)
        return json_sprintf("%s, %s", word,
                            ring->info.on ? "acknowledges now" : "the store acknowledges now");
    return json_string(word);
}

int plx_cmd_vdi_ring_describe(struct plx_cli *cli, const struct plx_name *name,
                              const struct plx_registry_vdi *row, const struct plx_vdi_info *info,
                              json_t *object)
{
    bool marked = plx_ring_is_marked(&info->mark);
    enum plx_ring_setting use;
    struct plx_session_ring ring = {.live = false};
    int rc = plx_ring_setting_load(cli->session.registry, row->id, &use);

    if (rc)
        return plx_session_registry_fault(cli, rc);
    if (row->owner && plx_session_vdi_ring(cli, name, &ring))
        ring.live = false; /* of a handler of another version, say */
    cli->fault.code = 0;
    json_object_set_new(object, "ring", in_words(use, &ring, marked, has_ring(cli, name)));
    json_object_set_new(object, "ring_setting", json_string(plx_ring_setting_words[use]));
    json_object_set_new(object, "ring_needed", json_boolean(marked));
    if (ring.live) {
        json_object_set_new(object, "ring_acknowledges", json_boolean(ring.info.on));
        json_object_set_new(object, "ring_bytes", json_integer((json_int_t)ring.info.bytes));
        json_object_set_new(object, "ring_waited_ns",
                            json_integer((json_int_t)ring.info.waited_ns));
    }
    plx_out_keys(object, "ring_acknowledges", "ring_bytes", "ring_waited_ns", NULL);
    return 0;
}
