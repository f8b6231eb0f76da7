/* attach_ring.c - virtual disks that use this host's write-back ring (ATTACH-18, ATTACH-20). See
 * attach_ring.h. Invariants, threads and crash story: attach.c.
 *
 * How a disk is opened whose record names a ring, or that is to use one:
 *
 *    step                                            if it fails
 *  1 the ring is opened, if no other disk has it     a disk whose record names a ring is recovered
 *                                                    without it, closed, and refused; any other
 *                                                    one goes on without, with an event; in an
 *                                                    epoch of its own
 *  2 the disk is opened with it (ringed_open.c)      likewise
 *  3 a handler: the ring is turned on, or drained    -
 *      in the background, by the disk's setting
 *    a command: it is drained, and turned off        the disk is closed as it is, and refused
 */
#include "attach/attach_ring.h"

#include <string.h>

#include "attach/attach_inside.h"
#include "attach/host_ring.h"

const char *const plx_ring_setting_words[] = {"off", "on", "auto", NULL};

int plx_ring_setting_load(struct plx_registry *registry, const char *vdi,
                          enum plx_ring_setting *ret_use)
{
    char text[PLX_POLICY_VALUE_MAX + 1];
    int error = plx_registry_policy_get(registry, vdi, PLX_POLICY_RING, text);

    *ret_use = PLX_RING_OFF;
    for (unsigned use = PLX_RING_OFF; !error && plx_ring_setting_words[use]; use++)
        if (strcmp(text, plx_ring_setting_words[use]) == 0)
            *ret_use = use;
    return error == PLX_ERR_NOT_FOUND ? 0 : error;
}

int plx_ring_setting_keep(struct plx_registry *registry, const char *vdi, enum plx_ring_setting use)
{
    const char *word = use == PLX_RING_OFF ? NULL : plx_ring_setting_words[use];
    int error = plx_registry_policy_set(registry, vdi, PLX_POLICY_RING, word);

    return error == PLX_ERR_NOT_FOUND && !word ? 0 : error;
}

/* ---- The ring ---- */

static int find_ring(struct plx_attach *a, struct plx_known_ring *ret_known,
                     struct plx_fault *fault)
{
    int error = plx_known_ring_get(&a->paths, a->known.identity, ret_known, fault);

    return error == PLX_ERR_NOT_FOUND
               ? plx_fault_set(fault, error,
                               "this host has no ring for store %s; 'parallax ring create %s PATH' "
                               "makes one",
                               a->known.name, a->known.name)
               : error;
}

/* Reports why a member cannot be opened instead of only that it is missing. Never advises to
 * discard writes that another member may have. needed: the disk's record names the ring. */
static int explain(struct plx_attach *a, const struct plx_ring_members *members, bool needed,
                   int error, struct plx_fault *fault)
{
    const struct plx_fault said = fault ? *fault : (struct plx_fault){0};
    const char *why = "";

    for (unsigned i = 0; i < members->count && !why[0]; i++)
        if (members->member[i].problem.code)
            why = members->member[i].problem.text;
    if (error == PLX_ERR_MISSING)
        return plx_fault_set(fault, error,
                             "one of its members is missing, bring it back (%.120s); if it lies "
                             "elsewhere now: 'parallax ring create %s NEW OTHER'; if it is lost "
                             "for good, 'parallax ring repair %s --i-checked-the-other-is-lost' "
                             "goes on with the other one",
                             why[0] ? why : said.text, a->known.name, a->known.name);
    if (!why[0])
        return error;
    return plx_fault_set(fault, error,
                         "%.150s; if it lies elsewhere now: 'parallax ring create %s PATH%s'; if "
                         "it is lost for good: 'parallax ring %s %s%s'%s",
                         why, a->known.name, members->count > 1 ? " PATH" : "",
                         needed ? "discard" : "delete", a->known.name, needed ? "/VDI" : " --force",
                         needed ? " discards its writes" : ", and make a new one");
}

static int open_ring(struct plx_attach *a, struct plx_attach_ring *ring, bool needed,
                     struct plx_fault *fault)
{
    const struct plx_ring_options options = {.env = &a->env};
    enum plx_ring_hold hold = a->options.brief ? PLX_RING_ALONE : PLX_RING_SERVE;
    int error = plx_ring_members_open(&ring->members, ring->known.member, ring->known.members, hold,
                                      0, a->options.patience, fault);

    if (error)
        return error;
    error = plx_host_ring_check(&ring->members, &a->paths, ring->known.ring, a->known.name, fault);
    if (error)
        return error;
    error = plx_ring_members_sound(&ring->members)
                ? plx_ring_members_load(&ring->members, &options, &ring->ring, fault)
                : ring->members.member[0].problem.code;
    return error ? explain(a, &ring->members, needed, error, fault) : 0;
}

/* The store's loop drives the ring, and what waits for devices waits for the ring's, too. */
static int join_ring(struct plx_attach *a, struct plx_attach_ring *ring, struct plx_fault *fault)
{
    int error;

    plx_attach_lock(a);
    error = plx_store_allows_ring(a->store) ? plx_ringed_host_new(a->store, ring->ring, &ring->host)
                                            : PLX_ERR_INVALID;
    if (!error && a->options.devices_changed)
        a->options.devices_changed(a->options.context);
    plx_attach_unlock(a);
    if (error == PLX_ERR_INVALID)
        return plx_fault_set(fault, error,
                             "store %s allows no ring, though this host has one for it; 'parallax "
                             "ring create' with the same paths settles that",
                             a->known.name);
    return error ? plx_fault_set(fault, error, "%s", plx_error_text(error)) : 0;
}

static void drop_ring(struct plx_attach_ring *ring)
{
    if (ring->ring)
        plx_ring_close(ring->ring);
    plx_ring_members_close(&ring->members);
    plx_known_ring_done(&ring->known);
    *ring = (struct plx_attach_ring){.host = NULL};
}

/* ATTACH-20. For one more disk. */
static int take_ring(struct plx_attach *a, bool needed, struct plx_fault *fault)
{
    struct plx_attach_ring *ring = &a->ring;
    int error = 0;

    if (!ring->host) {
        error = find_ring(a, &ring->known, fault);
        if (error)
            return error;
        error = open_ring(a, ring, needed, fault);
        if (!error)
            error = join_ring(a, ring, fault);
    }
    if (error)
        drop_ring(ring);
    else
        ring->disks++;
    return error;
}

static void leave_ring(struct plx_attach *a)
{
    struct plx_attach_ring *ring = &a->ring;

    if (--ring->disks)
        return;
    plx_attach_lock(a);
    plx_ringed_host_free(ring->host);
    ring->host = NULL;
    plx_attach_unlock(a);
    if (a->options.devices_gone)
        a->options.devices_gone(a->options.context);
    drop_ring(ring);
}

/* The disk's record names no ring, and no chain of it is open. Other disks get the room, and a
 * later chain meets nothing of this one (RINGED-6). */
static int forget(struct plx_attach *a, const struct plx_uuid *id)
{
    struct plx_fault why;
    int error;

    plx_attach_lock(a);
    error = plx_ring_forget(a->ring.ring, id, &why);
    plx_attach_unlock(a);
    if (error)
        plx_attach_env_event(&a->env, error, why.text);
    return error;
}

/* ---- Disks opened, closed ---- */

static int open_engine(struct plx_attach *a, const struct plx_vdi_open_options *open,
                       struct plx_vdi **ret_vdi, struct plx_fault *fault)
{
    int error;

    plx_attach_lock(a);
    error = plx_vdi_open(a->store, open, ret_vdi, fault);
    plx_attach_unlock(a);
    return error;
}

/* used_up: it was opened before with this epoch, and closed. */
static int open_without(struct plx_attach *a, struct plx_opened_vdi *opened,
                        const struct plx_vdi_open_options *open, bool used_up,
                        struct plx_vdi **ret_vdi, struct plx_fault *fault)
{
    const struct plx_registry_lock before = opened->lock;
    struct plx_vdi_open_options anew = *open;
    int error = 0;

    if (used_up)
        error = plx_registry_vdi_takeover(a->registry, &before, before.instance, &opened->lock);
    if (error)
        return plx_registry_fault(a->registry, error, fault);
    anew.epoch = opened->lock.epoch;
    return open_engine(a, &anew, ret_vdi, fault);
}

static int open_ringed(struct plx_attach *a, struct plx_opened_vdi *opened,
                       const struct plx_vdi_open_options *open, bool marked,
                       struct plx_vdi **ret_vdi, struct plx_fault *fault)
{
    int error = take_ring(a, marked, fault);

    if (error)
        return error;
    plx_attach_lock(a);
    error = plx_ringed_open(a->ring.host, open, ret_vdi, &opened->ringed, fault);
    plx_attach_unlock(a);
    if (error)
        leave_ring(a);
    return error;
}

static void tell_without(struct plx_attach *a, const char *name, const struct plx_fault *why)
{
    struct plx_fault text;

    plx_fault_set(&text, why->code, "virtual disk %.80s: continuing without its ring: %s", name,
                  why->text);
    plx_attach_env_event(&a->env, why->code, text.text);
}

static enum plx_ring_setting use_wanted(struct plx_attach *a, const char *id)
{
    enum plx_ring_setting use = PLX_RING_OFF;

    if (a->options.rings && plx_ring_setting_load(a->registry, id, &use))
        return PLX_RING_OFF;
    return use;
}

/* Begun; the loop goes on with it. */
static void begin_use(struct plx_attach *a, struct plx_opened_vdi *opened,
                      enum plx_ring_setting use)
{
    plx_attach_lock(a);
    if (use == PLX_RING_AUTO)
        plx_ringed_auto(opened->ringed);
    else
        plx_ringed_turn(opened->ringed, use == PLX_RING_ON);
    plx_attach_unlock(a);
}

/* Whether the disk was opened, which recovered it, and closed again, for the ring has not all that
 * the disk's record names. */
static bool was_opened(struct plx_attach *a, const struct plx_registry_vdi *row,
                       const struct plx_vdi_open_options *open)
{
    struct plx_vdi_info info;
    bool opened;

    plx_attach_lock(a);
    opened = !plx_vdi_read_info(a->store, row->slot, &info, NULL) && info.epoch == open->epoch;
    plx_attach_unlock(a);
    return opened;
}

int plx_attach_ring_vdi_open(struct plx_attach *a, const struct plx_registry_vdi *row,
                             struct plx_opened_vdi *opened, const struct plx_vdi_open_options *open,
                             bool marked, struct plx_vdi **ret_vdi, struct plx_fault *ret_without,
                             struct plx_fault *fault)
{
    enum plx_ring_setting use = use_wanted(a, row->id);
    bool used_up;
    int error;

    ret_without->code = 0;
    if (!marked && use == PLX_RING_OFF)
        return open_engine(a, open, ret_vdi, fault);
    error = open_ringed(a, opened, open, marked, ret_vdi, ret_without);
    if (!error) {
        ret_without->code = 0;
        begin_use(a, opened, use);
        return 0;
    }
    ret_without->code = error;
    used_up = was_opened(a, row, open);
    if (used_up && marked)
        return plx_fault_set(fault, error, "%s", ret_without->text);
    error = open_without(a, opened, open, used_up, ret_vdi, fault);
    if (!error && !marked)
        tell_without(a, row->name, ret_without);
    return error;
}

/* Whether this host's ring has writes to the disk that its mark does not claim: a newer state of
 * the store needs them, as long as nobody discards them, too. What cannot be read may be such. */
static bool ring_has_newer(struct plx_attach *a, const struct plx_vdi_info *info)
{
    const struct plx_ring_chain_options options = {
        .vdi = info->id, .epoch = info->epoch, .mark = info->mark, .position = info->position};
    uint64_t newer = 0;
    int error = take_ring(a, false, NULL);

    if (error)
        return true; /* nothing can be forgotten there, either */
    plx_attach_lock(a);
    error = plx_ring_count_newer(a->ring.ring, &options, &newer, NULL);
    plx_attach_unlock(a);
    leave_ring(a);
    return error || newer;
}

/* What this host's ring has of the disk, if it has a ring. */
static int forget_there(struct plx_attach *a, const struct plx_uuid *id, struct plx_fault *fault)
{
    struct plx_known_ring known;
    int error;

    if (plx_known_ring_get(&a->paths, a->known.identity, &known, NULL))
        return 0;
    plx_known_ring_done(&known);
    error = take_ring(a, false, fault);
    if (error)
        return error; /* 'ring info' shows what is left there of a disk that the store lacks */
    error = forget(a, id);
    leave_ring(a);
    return error ? plx_fault_set(fault, error, "%s", plx_error_text(error)) : 0;
}

/* ATTACH-21 */
int plx_attach_ring_discard(struct plx_attach *a, const struct plx_vdi_open_options *open,
                            bool marked, bool aside, struct plx_vdi **ret_vdi,
                            struct plx_fault *fault)
{
    struct plx_vdi_info info;
    struct plx_fault why;
    bool stay;
    int error = open_engine(a, open, ret_vdi, fault);

    if (error)
        return error;
    plx_attach_lock(a);
    plx_vdi_get_info(*ret_vdi, &info);
    plx_attach_unlock(a);
    stay = !aside && ring_has_newer(a, &info);
    plx_attach_lock(a);
    error = marked ? plx_ringed_discard(*ret_vdi, fault) : 0;
    plx_attach_unlock(a);
    if (!error && !stay && forget_there(a, &info.id, &why) && aside && !marked)
        error = plx_fault_set(fault, why.code, "%s", why.text); /* nothing else was asked for */
    if (!error)
        return 0;
    plx_attach_lock(a);
    plx_vdi_close(*ret_vdi); /* whether the mark is gone shows at the next opening */
    plx_attach_unlock(a);
    return error;
}

void plx_attach_ring_begin(struct plx_attach *a, const struct plx_registry_vdi *row,
                           struct plx_opened_vdi *opened)
{
    enum plx_ring_setting use = use_wanted(a, row->id);
    struct plx_fault why;

    if (use != PLX_RING_OFF && plx_attach_ring_use(a, opened->vdi, use, &why))
        tell_without(a, row->name, &why);
}

/* Who has the ring at its disposal drains as long as it takes: its disks are about to be closed. */
static int drain(struct plx_attach *a, struct plx_opened_vdi *opened, struct plx_fault *fault)
{
    const struct plx_ringed_watch watch = {a->options.rings ? NULL : a->options.draining,
                                           a->options.context};

    return plx_ringed_off_watched(opened->ringed, &watch, fault);
}

int plx_attach_ring_settle(struct plx_attach *a, struct plx_opened_vdi *opened,
                           struct plx_fault *fault)
{
    int error;

    if (!opened->ringed || a->options.rings)
        return 0;
    plx_attach_lock(a);
    error = drain(a, opened, fault);
    plx_attach_unlock(a);
    if (!error)
        plx_attach_ring_end(a, opened);
    return error;
}

void plx_attach_ring_end(struct plx_attach *a, struct plx_opened_vdi *opened)
{
    struct plx_fault what, why;
    struct plx_vdi_info info;
    int error;

    if (!opened->ringed)
        return;
    plx_attach_lock(a);
    error = drain(a, opened, &why);
    plx_vdi_get_info(opened->vdi, &info);
    plx_ringed_close(opened->ringed);
    plx_attach_unlock(a);
    opened->ringed = NULL;
    if (!error)
        forget(a, &info.id); /* its record names no ring (RINGED-4) */
    leave_ring(a);
    if (!error)
        return;
    plx_fault_set(&what, error,
                  "virtual disk %s: writes stay on this host's ring, for they cannot be brought to "
                  "the store: %.200s; the next opening on this host does that",
                  info.name, why.text);
    plx_attach_env_event(&a->env, error, what.text);
}

void plx_attach_ring_forget(struct plx_attach *a, const struct plx_uuid *id)
{
    forget_there(a, id, NULL);
}

bool plx_attach_ring_saw(struct plx_attach *a, const struct plx_registry_vdi *row, uint64_t granted,
                         struct plx_registry_written *ret_written)
{
    struct plx_ring_position newest = {.epoch = 0};
    struct plx_vdi_info info;
    int error;

    plx_attach_lock(a);
    error = plx_vdi_read_info(a->store, row->slot, &info, NULL);
    plx_attach_unlock(a);
    if (error || info.epoch >= granted || plx_ring_is_marked(&info.mark) ||
        take_ring(a, false, NULL))
        return false; /* nobody can tell where there is no ring */
    plx_attach_lock(a);
    error = plx_ring_newest(a->ring.ring, &info.id, &newest, NULL);
    plx_attach_unlock(a);
    leave_ring(a);
    if (error || newest.epoch <= info.epoch || newest.epoch > granted)
        return false;
    *ret_written = (struct plx_registry_written){.epoch = newest.epoch, .state = 1};
    return true;
}

/* ---- Turned on and off ---- */

static int begin_ringed(struct plx_attach *a, struct plx_opened_vdi *opened,
                        struct plx_fault *fault)
{
    int error = opened->unforgotten ? PLX_ERR_STICKY : take_ring(a, false, fault);

    if (opened->unforgotten)
        plx_fault_set(fault, error,
                      "the ring failed when it was turned off; it can be turned on "
                      "again after the virtual disk was closed");
    if (error)
        return error;
    plx_attach_lock(a);
    error = plx_ringed_new(a->ring.host, opened->vdi, &opened->ringed, fault);
    plx_attach_unlock(a);
    if (error)
        leave_ring(a);
    return error;
}

/* The store may have room when the ring has none. */
static void name_full_ring(struct plx_attach *a, int error, struct plx_fault *fault)
{
    struct plx_ring_info info;

    plx_ring_get_info(a->ring.ring, &info);
    if (error == PLX_ERR_NOSPACE && !info.free_segments)
        plx_fault_set(fault, error,
                      "this host's ring has no room; 'parallax ring info %s' shows which virtual "
                      "disks fill it, and 'parallax ring discard %s/VDI --also-set-aside' erases "
                      "what was set aside",
                      a->known.name, a->known.name);
}

int plx_attach_ring_use(struct plx_attach *a, struct plx_vdi *vdi, enum plx_ring_setting use,
                        struct plx_fault *fault)
{
    struct plx_opened_vdi *opened = plx_attach_opened(a, vdi);
    int error = 0;

    if (use == PLX_RING_OFF && !opened->ringed)
        return 0;
    if (!opened->ringed)
        error = begin_ringed(a, opened, fault);
    if (error)
        return error;
    begin_use(a, opened, use);
    if (use != PLX_RING_ON)
        return 0;
    plx_attach_lock(a);
    error = plx_ringed_on(opened->ringed, fault);
    if (error)
        name_full_ring(a, error, fault);
    plx_attach_unlock(a);
    return error;
}

void plx_attach_ring_let_go(struct plx_attach *a, struct plx_vdi *vdi)
{
    struct plx_opened_vdi *opened = plx_attach_opened(a, vdi);
    struct plx_ringed_info ringed;
    struct plx_vdi_info info;

    if (!plx_attach_ring_info(a, vdi, &ringed) || ringed.on || ringed.turning || ringed.automatic ||
        plx_vdi_health(vdi, NULL))
        return;
    plx_attach_lock(a);
    plx_vdi_get_info(vdi, &info);
    plx_ringed_close(opened->ringed);
    plx_attach_unlock(a);
    opened->ringed = NULL;
    opened->unforgotten = forget(a, &info.id) != 0;
    leave_ring(a);
}

bool plx_attach_ring_info(struct plx_attach *a, struct plx_vdi *vdi,
                          struct plx_ringed_info *ret_info)
{
    const struct plx_opened_vdi *opened = plx_attach_opened(a, vdi);

    *ret_info = (struct plx_ringed_info){.on = false};
    if (!opened->ringed)
        return false;
    plx_attach_lock(a);
    plx_ringed_get_info(opened->ringed, ret_info);
    plx_attach_unlock(a);
    return true;
}

int plx_attach_ring_pause(struct plx_attach *a, struct plx_opened_vdi *opened,
                          struct plx_fault *fault)
{
    int error;

    if (!opened->ringed)
        return 0;
    plx_attach_lock(a);
    error = plx_ringed_off(opened->ringed, fault);
    plx_attach_unlock(a);
    return error;
}

void plx_attach_ring_resume(struct plx_attach *a, struct plx_opened_vdi *opened)
{
    if (opened->ringed)
        begin_use(a, opened, use_wanted(a, opened->lock.vdi));
}

int plx_attach_ring_refuse(struct plx_attach *a, struct plx_fault *fault)
{
    struct plx_known_ring own;
    struct plx_slot_scan scan = {0};
    struct plx_vdi_info info;
    struct plx_uuid id = {0};
    int error = plx_known_ring_get(&a->paths, a->known.identity, &own, fault);

    if (error)
        return error == PLX_ERR_NOT_FOUND ? 0 : error;
    plx_uuid_parse(own.ring, &id);
    plx_known_ring_done(&own);
    for (uint32_t slot = 0; plx_vdi_next_slot(a->store, &scan, &slot) && !error; slot++)
        if (!plx_vdi_read_info(a->store, slot, &info, NULL) && info.state == PLX_VDI_LIVE &&
            plx_ring_is_marked(&info.mark) && plx_uuid_equal(&info.mark.ring, &id))
            error = plx_fault_set(
                fault, PLX_ERR_BUSY,
                "%s/%.120s: its newest writes lie in a write-back ring, and no other host could "
                "use it; 'parallax vdi set %s/%.120s --ring off' brings them to the store",
                a->known.name, info.name, a->known.name, info.name);
    return error;
}
