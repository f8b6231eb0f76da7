/* ring_check.c - see ring_check.h.
 *
 * RING_CHECK-1  Each batch that a disk's record claims is read whole, with its hash, from each
 *     member (scan.c). So damage to a write that the store lacks is found before the write is
 *     needed.
 * RING_CHECK-2  If a disk's record names another ring than this host's, that is told, whether this
 *     host has a ring or not: the disk can be used only where that ring is.
 * RING_CHECK-3  A ring that another process has open changes while it is read, so its records are
 *     not checked. That is told for each disk that may need them.
 * RING_CHECK-4  A ring of two that goes on with one member has all that was acknowledged. So that
 *     is no error, whatever has become of the other member. It is told, because nothing mirrors the
 *     ring any more.
 * RING_CHECK-5  Each member of a mirror is looked at by itself. A batch that only one member can
 *     give is damage of the other one, though nothing is lost yet: a mirror is made for the day on
 *     which a member goes, and that may be the good one. No damage is what a crash leaves on one
 *     member only, because nobody was told that it was done (SCAN_JUDGE-7).
 * RING_CHECK-6  A member that was left by the operator's word may lack the proof that the store
 *     names by now. So its records are compared by epoch and number. Let R be its newest record of
 *     a disk. The member has newer writes if neither the ring nor the store has come to R's epoch
 *     and number. It has them, too, if a later epoch on the ring begins at R's number or before:
 *     numbers go on from one epoch to the next, so that epoch was begun without R.
 * Threads: the caller's. Crash story: nothing is written here.
 */
#include "attach/ring_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "attach/attach_inside.h"
#include "attach/host_ring.h"

struct checking {
    struct plx_attach *attach;
    void (*found)(void *context, const struct plx_finding *finding);
    void *context;
    struct plx_ring_checked *checked;
};

static void find(struct checking *c, enum plx_finding_severity severity, const char *vdi,
                 const char *format, ...) __attribute__((format(printf, 4, 5)));

static void find(struct checking *c, enum plx_finding_severity severity, const char *vdi,
                 const char *format, ...)
{
    struct plx_finding finding = {
        .severity = severity, .kind = "ring", .vdi = vdi, .vblock = UINT64_MAX};
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    finding.text = text;
    c->found(c->context, &finding);
}

/* ---- The ring itself ---- */

/* What is missing is an error where a disk needs it. */
static void check_missing(struct checking *c, const struct plx_ring_members *members, bool needed,
                          const char *why)
{
    const char *store = c->attach->known.name;
    char advice[PLX_HOST_RING_ADVICE];

    if (needed || plx_ring_members_sound(members))
        find(c, needed ? PLX_FINDING_ERROR : PLX_FINDING_INFO, NULL, "this host's ring: %.150s%s",
             why, plx_host_ring_advise(members, store, advice));
    else
        find(c, PLX_FINDING_INFO, NULL,
             "this host's ring: %.300s; no virtual disk needs it, and 'parallax ring delete %s "
             "--force' forgets it",
             why, store);
}

/* Its index in the ring. */
static bool find_member(const struct plx_host_ring *ring, const struct plx_ring_member_seen *member,
                        unsigned *ret_index)
{
    const struct plx_device *device;

    for (unsigned m = 0; (device = plx_ring_device(ring->ring, m)) != NULL; m++)
        if (device == member->device) {
            *ret_index = m;
            return true;
        }
    return false;
}

void plx_ring_member_weigh(const struct plx_host_ring *ring, const struct plx_ring_disks *disks,
                           const struct plx_ring_member_seen *member,
                           struct plx_ring_member_state *ret_state)
{
    struct plx_ring_info info;
    unsigned m;

    *ret_state = (struct plx_ring_member_state){0};
    if (!ring->ring || !find_member(ring, member, &m))
        return;
    plx_ring_get_info(ring->ring, &info);
    ret_state->headers = info.bad_headers[m];
    for (size_t i = 0; i < disks->count; i++) {
        const struct plx_ring_look *look = &disks->disk[i].look;

        if (!disks->disk[i].marked || !disks->disk[i].looked)
            continue;
        ret_state->records += look->last + 1 - look->first;
        ret_state->damaged += look->damaged[m];
        ret_state->behind += look->behind[m];
    }
}

int plx_ring_member_damage(const struct plx_ring_member_state *state, const char *path,
                           struct plx_fault *fault)
{
    char headers[64] = "", writes[96] = "";

    if (!state->damaged && !state->headers)
        return 0;
    if (state->headers)
        snprintf(headers, sizeof headers, "the header%s of %u segment%s",
                 plx_plural(state->headers), state->headers, plx_plural(state->headers));
    if (state->damaged)
        snprintf(writes, sizeof writes, "%" PRIu64 " of %" PRIu64 " write%s%s", state->damaged,
                 plx_max_u64(state->damaged, state->records), plx_plural(state->records),
                 state->headers ? " and " : "");
    return plx_fault_set(fault, PLX_ERR_CORRUPT,
                         "%.140s: %s%s %s damaged on this member of the ring, or cannot be read "
                         "there; the other one has them",
                         path, writes, headers,
                         state->damaged + state->headers == 1 ? "is" : "are");
}

int plx_ring_member_explain(const struct plx_ring_member_state *state,
                            const struct plx_ring_member_state *other, const char *path,
                            const char *store, struct plx_fault *fault)
{
    char word[PLX_HOST_RING_WORD];
    struct plx_fault damage;

    if (!plx_ring_member_damage(state, path, &damage))
        return 0;
    return other->damaged || other->headers || other->behind
               ? plx_fault_set(fault, PLX_ERR_CORRUPT,
                               "%.300s, and lacks others itself; 'parallax vdi set %s/VDI --ring "
                               "off' for each virtual disk brings the writes to the store, from "
                               "both",
                               damage.text, store)
               : plx_fault_set(fault, PLX_ERR_CORRUPT,
                               "%.300s: 'parallax ring repair %s --with %s' makes it whole",
                               damage.text, store, plx_host_ring_word(path, word));
}

/* RING_CHECK-5 */
static void check_mirror(struct checking *c, const struct plx_host_ring *ring,
                         const struct plx_ring_disks *disks)
{
    struct plx_ring_member_state state[PLX_RING_MEMBERS] = {0};
    const char *store = c->attach->known.name;
    struct plx_fault damage;

    for (unsigned i = 0; i < ring->members.count; i++)
        plx_ring_member_weigh(ring, disks, &ring->members.member[i], &state[i]);
    for (unsigned i = 0; i < ring->members.count; i++) {
        const char *path = ring->members.member[i].path;

        if (state[i].behind)
            find(c, PLX_FINDING_INFO, NULL,
                 "this host's ring: %.200s lacks the newest %" PRIu64
                 " write%s, as a crash leaves writes of which nobody was told that they are done; "
                 "the next opening of their virtual disk writes them there, too",
                 path, state[i].behind, plx_plural(state[i].behind));
        if (plx_ring_member_explain(&state[i], &state[i ^ 1], path, store, &damage))
            find(c, PLX_FINDING_ERROR, NULL, "this host's ring: %s", damage.text);
    }
}

/* The text speaks of all members. */
static void check_away(struct checking *c, const struct plx_host_ring *ring, bool needed)
{
    if (needed)
        find(c, PLX_FINDING_ERROR, NULL, "this host's ring: %s", ring->problem.text);
    else
        find(c, PLX_FINDING_INFO, NULL,
             "this host's ring: no virtual disk needs it, and 'parallax ring delete %s' forgets "
             "it: %s",
             c->attach->known.name, ring->problem.text);
}

static void check_members(struct checking *c, const struct plx_host_ring *ring, bool needed)
{
    const enum plx_finding_severity severity = needed ? PLX_FINDING_ERROR : PLX_FINDING_INFO;
    const struct plx_ring_member_seen *alone =
        ring->ring ? plx_ring_members_alone(&ring->members) : NULL;
    struct plx_ring_info info;

    if (alone) /* RING_CHECK-4 */
        find(c, PLX_FINDING_INFO, NULL,
             "this host's ring runs on one of two members, %.150s; 'parallax ring repair %s --with "
             "PATH' makes it a mirror again",
             alone->path, c->attach->known.name);
    if (ring->away) {
        check_away(c, ring, needed);
        return;
    }
    for (unsigned i = 0; i < ring->members.count && !alone; i++)
        if (ring->members.member[i].problem.code)
            check_missing(c, &ring->members, needed, ring->members.member[i].problem.text);
    if (!ring->ring) {
        if (ring->problem.code && plx_ring_members_sound(&ring->members))
            find(c, severity, NULL, "this host's ring cannot be read: %.300s", ring->problem.text);
        return;
    }
    plx_ring_get_info(ring->ring, &info);
    if (info.bad_segments)
        find(c, PLX_FINDING_INFO, NULL,
             "this host's ring: the headers of %u segment%s are damaged, so these are not used; "
             "once no virtual disk needs the ring, delete it and make it anew",
             info.bad_segments, info.bad_segments == 1 ? "" : "s");
}

/* ---- Its disks ---- */

static void check_disk(struct checking *c, const struct plx_ring_disk *disk)
{
    const char *store = c->attach->known.name;
    char id[PLX_UUID_TEXT];
    const char *name = disk->name;

    plx_uuid_text(&disk->id, id);
    c->checked->disks++;
    if (disk->problem.code) {
        c->checked->untold = true;
        find(c, PLX_FINDING_ERROR, name,
             "virtual disk %.120s: its writes on the ring cannot be used: %.300s; the store may "
             "have them already, which the next opening tells; if it does not, and no better copy "
             "of the ring is left, nor a newer one of the store, 'parallax ring discard %s/%.120s' "
             "discards them",
             *name ? name : id, disk->problem.text, store, *name ? name : id);
        return;
    }
    if (!disk->looked) {
        c->checked->untold |= disk->marked;
        if (disk->marked && c->checked->in_use) /* RING_CHECK-3 */
            find(c, PLX_FINDING_INFO, name,
                 "virtual disk %s: its newest writes may lie on this host's ring, which a handler "
                 "or a command has open, so that they were not checked",
                 name);
        return;
    }
    c->checked->records += disk->look.last + 1 - disk->look.first;
    c->checked->bytes += disk->look.bytes;
    if (disk->marked && disk->look.last >= disk->look.first)
        find(c, PLX_FINDING_INFO, name,
             "virtual disk %s: up to %" PRIu64
             " writes are on this host's ring and not on the store yet; they are fewer than that "
             "if the store has got some of them, which the next opening of the disk tells",
             name, disk->look.last + 1 - disk->look.first);
    if (disk->look.aside)
        find(c, PLX_FINDING_INFO, name,
             "virtual disk %.120s: %" PRIu64
             " writes on this host's ring were set aside: " PLX_RING_WHY_ASIDE "; 'parallax "
             "ring discard %s/%.120s --also-set-aside' erases them",
             *name ? name : id, disk->look.aside, store, *name ? name : id);
}

/* RING_CHECK-2 */
static void check_elsewhere(struct checking *c, const struct plx_uuid *own)
{
    struct plx_slot_scan scan = {0};
    char id[PLX_UUID_TEXT];

    for (uint32_t slot = 0; plx_vdi_next_slot(c->attach->store, &scan, &slot); slot++) {
        struct plx_vdi_info info;

        if (plx_vdi_read_info(c->attach->store, slot, &info, NULL) || info.state != PLX_VDI_LIVE ||
            !plx_ring_is_marked(&info.mark) || plx_uuid_equal(&info.mark.ring, own))
            continue;
        plx_uuid_text(&info.mark.ring, id);
        find(c, PLX_FINDING_INFO, info.name,
             "virtual disk %.120s: its newest writes may lie on ring %s, which this host does not "
             "have; if it lies here, 'parallax ring create %s PATH' with its own paths makes it "
             "known again",
             info.name, id, c->attach->known.name);
    }
}

int plx_ring_check(struct plx_attach *attach,
                   void (*found)(void *context, const struct plx_finding *finding), void *context,
                   struct plx_ring_checked *ret_checked, struct plx_fault *fault)
{
    struct checking c = {attach, found, context, ret_checked};
    struct plx_ring_disks disks = {0};
    struct plx_known_ring known;
    struct plx_host_ring ring;
    struct plx_uuid id = {0};
    int error = plx_known_ring_get(&attach->paths, attach->known.identity, &known, fault);

    *ret_checked = (struct plx_ring_checked){0};
    if (error == PLX_ERR_NOT_FOUND) {
        check_elsewhere(&c, &id);
        return 0;
    }
    if (error)
        return error;
    plx_host_ring_look(&attach->paths, &known, &ring);
    plx_uuid_parse(ring.way.ring, &id);
    ret_checked->in_use = ring.in_use;
    /* RING_CHECK-1 */
    error = plx_ring_disks_look(&id, ring.ring, attach->store, ring.in_use, &disks, fault);
    if (!error) {
        check_members(&c, &ring, disks.marked != 0);
        if (!ring.in_use) /* RING_CHECK-3 */
            check_mirror(&c, &ring, &disks);
        for (size_t i = 0; i < disks.count; i++)
            check_disk(&c, &disks.disk[i]);
        check_elsewhere(&c, &id);
    }
    plx_ring_disks_done(&disks);
    plx_host_ring_close(&ring);
    plx_known_ring_done(&known);
    return error;
}

/* ---- A member that was left behind ---- */

/* RING_CHECK-6. The store, or the ring, has its newest record there, and not this one. */
static bool is_behind(const struct plx_ring_position *newest,
                      const struct plx_ring_position *record)
{
    return newest->epoch < record->epoch || newest->seq < record->seq;
}

/* NULL: none of this ring, or one that it uses, or none that was left, or is to be left now, by a
 * word. */
static struct plx_ring *open_left(const struct plx_host_ring *ring,
                                  const struct plx_ring_members *left, struct plx_env *env)
{
    const struct plx_ring_member_seen *member = plx_ring_members_sound(left);
    struct plx_ring_info info;
    struct plx_ring *opened;
    bool by_word, lacks;

    plx_ring_get_info(ring->ring, &info);
    lacks = info.members < info.super.members;
    by_word = (info.super.compatible & PLX_RING_LEFT_BY_WORD) || (lacks && !info.super.alone);
    if (!by_word || !member || member->super.joining ||
        !plx_uuid_equal(&member->super.ring, &info.super.ring) ||
        (member->super.set == info.super.set && !lacks))
        return NULL;
    plx_attach_init_env(env);
    return plx_ring_members_load(left, &(struct plx_ring_options){.env = env, .read_only = true},
                                 &opened, NULL)
               ? NULL
               : opened;
}

/* What cannot be read of the member that was left is nothing that it has. */
static int refuse_newer(const struct plx_host_ring *ring, struct plx_ring *left, const char *path,
                        const struct plx_ring_disk *disk, struct plx_fault *fault)
{
    struct plx_ring_position there, here;
    char id[PLX_UUID_TEXT];
    int error;

    if (plx_ring_newest(left, &disk->id, &there, NULL))
        return 0;
    error = plx_ring_newest(ring->ring, &disk->id, &here, fault);
    if (error || !there.seq ||
        ((!is_behind(&here, &there) || !is_behind(&disk->position, &there)) &&
         !plx_ring_went_on_without(ring->ring, &disk->id, &there)))
        return error;
    plx_uuid_text(&disk->id, id);
    return plx_fault_set(fault, PLX_ERR_EXISTS,
                         "%.150s has newer writes of %.120s than the ring and the store, up to "
                         "write %" PRIu64 ": they are lost if the ring is copied to it. If they "
                         "are not needed, add --force; to use it instead of %.150s: move that one "
                         "away, then 'parallax ring create %s %.150s "
                         "--i-checked-the-other-is-lost'",
                         path, disk->name[0] ? disk->name : id, there.seq,
                         plx_ring_members_sound(&ring->members)->path, ring->way.store, path);
}

int plx_ring_check_left(const struct plx_host_ring *ring, struct plx_store *store, const char *path,
                        struct plx_fault *fault)
{
    struct plx_ring_disks disks = {0};
    struct plx_ring_members members;
    struct plx_ring *left = NULL;
    struct plx_uuid id = {0};
    char *const paths[] = {(char *)path};
    struct plx_env env;
    int error = 0;

    if (!ring->ring || plx_ring_members_open(&members, paths, 1, PLX_RING_LOOK, 0, NULL, NULL))
        return 0;
    left = open_left(ring, &members, &env);
    plx_uuid_parse(ring->way.ring, &id);
    if (left)
        error = plx_ring_disks_look(&id, left, store, false, &disks, fault);
    for (size_t i = 0; i < disks.count && !error; i++)
        if (disks.disk[i].name[0] || !store) /* or it was deleted */
            error = refuse_newer(ring, left, path, &disks.disk[i], fault);
    plx_ring_disks_done(&disks);
    if (left)
        plx_ring_close(left);
    plx_ring_members_close(&members);
    return error;
}
