/* rebuild_disks.c - what the disks say of extents and of each other (REBUILD-9, REBUILD-12,
 * REBUILD-14, REBUILD-16), and of their origins (REBUILD-13). */
#include <stdlib.h>
#include <string.h>

#include "attach/doors.h"
#include "attach/rebuild_inside.h"
#include "engine/base/identity.h"
#include "engine/base/list.h"

struct pair {        /* of disks with disputed blocks (REBUILD-14); what all these say together */
    size_t disk[2];  /* indices of r->vdis, the lower one first */
    bool against[2]; /* a block proves this one older: it holds what the other one wrote */
    bool right[2];   /* a block holds what this one wrote */
    bool reads[2];   /* it only reads them (struct plx_shared) */
};

struct asked {
    struct rebuild *r;
    bool *contradicted; /* of each extent, by whatever disk and whatever becomes of that */
    bool *wrong;        /* of each disk: a disputed block, of it and any disk, speaks against it */
    bool *unread;       /* of each disk: something that leads to its blocks cannot be read */
    struct pair *pairs;
    size_t count, capacity;
    bool again; /* not the first time */
    int error;
};

/* ---- What the checker says ---- */

static void contradicted(void *context, uint64_t extent)
{
    struct asked *asked = context;

    asked->contradicted[extent] = true;
}

static void found(void *context, const struct plx_finding *finding)
{
    const struct asked *asked = context;
    const struct plx_rebuilt *rebuilt = &asked->r->rebuilt;
    char id[PLX_UUID_TEXT];

    if ((rebuilt->first_back || rebuilt->further_back || rebuilt->newer_extents) && !asked->again &&
        strcmp(finding->kind, "vouched") == 0) /* REBUILD-12 */
        plx_rebuilding_tell_lost(asked->r, "%s", finding->text);
    if (finding->severity != PLX_FINDING_ERROR || !finding->id ||
        !plx_finding_leads_to_blocks(finding)) /* REBUILD-16 */
        return;
    plx_uuid_text(finding->id, id);
    for (size_t i = 0; i < asked->r->vdi_count; i++)
        if (strcmp(asked->r->vdis[i].id, id) == 0)
            asked->unread[i] = true;
}

/* r->vdi_count: there is none. */
static size_t live_in_slot(const struct rebuild *r, uint32_t slot)
{
    size_t i = 0;

    while (i < r->vdi_count && (r->vdis[i].slot != slot || r->vdis[i].deleted))
        i++;
    return i;
}

static bool is_refused(const struct rebuild *r, size_t disk)
{
    struct plx_vdi_info vdi;

    return plx_vdi_read_info(r->store, r->vdis[disk].slot, &vdi, NULL) == 0 &&
           plx_door_is_back(&r->vdis[disk], &vdi);
}

static bool leave_out(void *context, uint32_t slot)
{
    const struct rebuild *r = ((const struct asked *)context)->r;
    size_t disk = live_in_slot(r, slot);

    return disk < r->vdi_count && is_refused(r, disk);
}

/* NULL: out of memory, which asked->error says. */
static struct pair *pair_of(struct asked *asked, size_t lower, size_t upper)
{
    for (size_t i = 0; i < asked->count; i++)
        if (asked->pairs[i].disk[0] == lower && asked->pairs[i].disk[1] == upper)
            return &asked->pairs[i];
    if (!PLX_LIST_ROOM(asked->pairs, asked->count, asked->capacity, 16)) {
        asked->error = PLX_ERR_NOMEM;
        return NULL;
    }
    asked->pairs[asked->count] = (struct pair){.disk = {lower, upper}, .reads = {true, true}};
    return &asked->pairs[asked->count++];
}

static void shared(void *context, const struct plx_shared *shared)
{
    struct asked *asked = context;
    const struct rebuild *r = asked->r;
    size_t disk[2] = {live_in_slot(r, shared->slot[0]), live_in_slot(r, shared->slot[1])};
    bool swap = disk[0] > disk[1];
    struct pair *pair;

    if (disk[0] == r->vdi_count || disk[1] == r->vdi_count)
        return;
    pair = pair_of(asked, disk[swap], disk[!swap]);
    for (int i = 0; pair && i < 2; i++) {
        int at = swap ? !i : i; /* in the pair */

        asked->wrong[disk[i]] = asked->wrong[disk[i]] || shared->fits[i] < 0;
        pair->against[at] = pair->against[at] || (shared->fits[i] < 0 && shared->fits[!i] > 0);
        pair->right[at] = pair->right[at] || shared->fits[i] > 0;
        pair->reads[at] = pair->reads[at] && shared->reads[i];
    }
}

/* ---- REBUILD-14 ---- */

/* Without a word; the caller tells why. */
static int refuse(struct rebuild *r, size_t disk)
{
    struct plx_registry_vdi *row = &r->vdis[disk];
    int error;

    row->written = (struct plx_registry_written){row->epoch + 1, PLX_DOOR_USED_TWICE};
    r->rebuilt.older_records++;
    error = plx_rebuilding_registry_fault(r, r->file, plx_registry_import_vdis(r->file, row, 1));
    return error ? error : plx_rebuilding_keep_labels(r, row->id);
}

static int refuse_older(struct rebuild *r, size_t older, size_t newer, const char *why)
{
    if (is_refused(r, older))
        return 0;
    plx_rebuilding_tell_lost(
        r,
        "virtual disk %.120s: its record is older than what was written last: %s %.120s; it is "
        "refused until the store is restored, or 'parallax vdi delete STORE/%.80s --lost' gives "
        "it up",
        r->vdis[older].name, why, r->vdis[newer].name, r->vdis[older].name);
    return refuse(r, older);
}

static int refuse_both(struct rebuild *r, size_t one, size_t other)
{
    int error;

    plx_rebuilding_tell_lost(
        r,
        "virtual disks %.50s and %.50s: both have one block, and nothing tells which one has it "
        "no longer; both are refused until the store is restored, or 'parallax vdi delete "
        "STORE/%.50s --lost' gives that one up and 'parallax vdi accept-older STORE/%.50s' accepts "
        "the other, or the other way round",
        r->vdis[one].name, r->vdis[other].name, r->vdis[one].name, r->vdis[other].name);
    error = is_refused(r, one) ? 0 : refuse(r, one);
    return error || is_refused(r, other) ? error : refuse(r, other);
}

/* The number of the origin's snapshot that the clone descends from; 0: it does not. */
static uint64_t descends(const struct rebuild *r, size_t clone, size_t origin)
{
    size_t i = clone;

    for (size_t steps = 0; *r->vdis[i].parent && steps < r->vdi_count; steps++) {
        const struct plx_registry_vdi *row = &r->vdis[i];

        if (strcmp(row->parent, r->vdis[origin].id) == 0)
            return row->parent_seq;
        for (i = 0; i < r->vdi_count && strcmp(r->vdis[i].id, row->parent) != 0;)
            i++;
        if (i == r->vdi_count)
            return 0;
    }
    return 0;
}

/* Whether it is certain that the disk is as it was before its snapshot seq. What cannot be read, or
 * may be in a ring, is not. */
static bool is_before(const struct rebuild *r, size_t disk, uint64_t seq)
{
    uint32_t slot = r->vdis[disk].slot;
    struct plx_vdi_info info;
    struct plx_vdi *newest;

    if (plx_vdi_read_info(r->store, slot, &info, NULL) || plx_ring_is_marked(&info.mark) ||
        plx_snapshot_open(r->store, slot, 0, &newest, NULL))
        return false;
    plx_vdi_get_info(newest, &info);
    plx_vdi_close(newest);
    return info.snapshots < seq;
}

/* Row 2: whether the origin went back to before the snapshot that its clone descends from. It is
 * not enough that the origin has no such snapshot: its loss may have been accepted once, and then
 * the clone may be the one that went back, to blocks that the origin has got since. So the clone
 * only has what it got with the snapshot, and a block is proven to be what the clone wrote. Nor is
 * it enough that nothing speaks against the clone: what was overwritten in place has no checksum.
 */
static bool lacks_snapshot(const struct asked *asked, const struct pair *pair, int origin)
{
    const struct rebuild *r = asked->r;
    size_t clone = pair->disk[!origin];
    uint64_t seq = descends(r, clone, pair->disk[origin]);

    return seq && pair->reads[!origin] && pair->right[!origin] && !asked->wrong[clone] &&
           is_before(r, pair->disk[origin], seq);
}

/* The index in the pair of the disk that blocks prove to be older; -1: they do not tell, or speak
 * against both. */
static int find_older(const struct asked *asked, const struct pair *pair)
{
    for (int older = 0; older < 2; older++)
        if (pair->against[older] && !asked->wrong[pair->disk[!older]])
            return older;
    return -1;
}

static int settle(struct asked *asked, const struct pair *pair)
{
    struct rebuild *r = asked->r;
    size_t one = pair->disk[0], other = pair->disk[1];
    bool against = pair->against[0] || pair->against[1];
    int refused = is_refused(r, one) + is_refused(r, other);

    if (refused == 2 || (refused == 1 && !against))
        return 0;
    for (int origin = 0; origin < 2 && !against; origin++)
        if (lacks_snapshot(asked, pair, origin))
            return refuse_older(r, pair->disk[origin], pair->disk[!origin],
                                "it lacks a snapshot that has a clone,");
    return refuse_both(r, one, other);
}

/* What blocks tell comes first: a disk may be in a pair of which they tell and in one of which they
 * do not. */
static int settle_all(struct asked *asked)
{
    int error = 0;

    for (size_t i = 0; i < asked->count && !error; i++) {
        const struct pair *pair = &asked->pairs[i];
        int older = find_older(asked, pair);

        if (older >= 0)
            error = refuse_older(asked->r, pair->disk[older], pair->disk[!older],
                                 "a block that it names is by now one of");
    }
    for (size_t i = 0; i < asked->count && !error; i++)
        if (find_older(asked, &asked->pairs[i]) < 0)
            error = settle(asked, &asked->pairs[i]);
    return error;
}

/* ---- The whole ---- */

static int ask_once(struct asked *asked)
{
    struct rebuild *r = asked->r;
    const struct plx_check_options options = {.finding = found,
                                              .unguarded = contradicted,
                                              .shared = shared,
                                              .leave_out = leave_out,
                                              .context = asked,
                                              .watch = r->options->watch};
    struct plx_check_result result;
    int error;

    memset(asked->unread, 0, r->vdi_count * sizeof *asked->unread);
    memset(asked->wrong, 0, r->vdi_count * sizeof *asked->wrong);
    asked->count = 0;
    error = plx_store_check(r->store, &options, &result, r->fault);
    if (error == PLX_ERR_BUSY) /* interrupted: no lock is in the way */
        error = r->fault->code = PLX_ERR_SYSTEM;
    return error ? error : asked->error ? plx_rebuilding_no_memory(r) : 0;
}

/* REBUILD-16 */
static void tell_unread(const struct asked *asked)
{
    struct rebuild *r = asked->r;

    for (size_t i = 0; i < r->vdi_count; i++) {
        if (!asked->unread[i] || is_refused(r, i))
            continue;
        r->rebuilt.unread_disks++;
        plx_rebuilding_tell_lost(
            r,
            "virtual disk %.120s: not all that leads to its blocks can be read; 'parallax store "
            "check' says what, and 'parallax vdi export STORE/%.80s FILE --skip-errors' "
            "saves the rest",
            r->vdis[i].name, r->vdis[i].name);
    }
}

/* REBUILD-9. "store check" tells what else is found. */
int plx_rebuilding_ask_disks(struct rebuild *r)
{
    struct asked asked = {.r = r,
                          .contradicted = calloc(r->info.extents, sizeof(bool)),
                          .wrong = calloc(r->vdi_count + 1, sizeof(bool)),
                          .unread = calloc(r->vdi_count + 1, sizeof(bool))};
    int error = asked.contradicted && asked.wrong && asked.unread ? 0 : plx_rebuilding_no_memory(r);

    /* Each time there is one more that is refused. */
    for (size_t times = 0; !error && times <= r->vdi_count && (!times || asked.count); times++) {
        asked.again = times > 0;
        error = ask_once(&asked);
        if (!error)
            error = settle_all(&asked);
    }
    for (uint64_t no = 0; no < r->info.extents && !error; no++)
        if (asked.contradicted[no])
            error = plx_rebuilding_never_believe(
                r, no, "a disk has blocks in it that its bitmap calls free");
    if (!error)
        tell_unread(&asked);
    free(asked.contradicted);
    free(asked.wrong);
    free(asked.unread);
    free(asked.pairs);
    return error;
}

/* REBUILD-13 */
int plx_rebuilding_tell_strays(struct rebuild *r)
{
    struct plx_registry_vdi *list = NULL;
    char text[PLX_STRAY_TEXT];
    int error = plx_registry_vdi_strays(r->file, r->row, &list, &r->rebuilt.unknown_origins);

    if (error)
        return plx_rebuilding_registry_fault(r, r->file, error);
    for (size_t i = 0; i < r->rebuilt.unknown_origins; i++) {
        plx_door_tell_stray(&list[i], text);
        plx_rebuilding_tell_lost(r, "%s", text);
    }
    free(list);
    return 0;
}
