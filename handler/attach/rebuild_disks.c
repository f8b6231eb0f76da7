/* rebuild_disks.c - what the disks say of extents and of each other (REBUILD-9, REBUILD-12,
 * REBUILD-14), and of their origins (REBUILD-13). */
#include <stdlib.h>
#include <string.h>

#include "attach/doors.h"
#include "attach/rebuild_inside.h"
#include "engine/base/list.h"

struct pair { /* of disks that use one block; indices of r->vdis */
    size_t disk[2];
    int older; /* index in it; -1: the block does not tell */
};

struct asked {
    struct rebuild *r;
    bool *contradicted; /* of each extent */
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

/* REBUILD-12 */
static void not_vouched(void *context, const struct plx_finding *finding)
{
    const struct asked *asked = context;
    const struct plx_rebuilt *rebuilt = &asked->r->rebuilt;

    if ((rebuilt->first_back || rebuilt->further_back || rebuilt->newer_extents) && !asked->again &&
        strcmp(finding->kind, "vouched") == 0)
        plx_rebuilding_tell_lost(asked->r, "%s", finding->text);
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

static void shared(void *context, const struct plx_shared *shared)
{
    struct asked *asked = context;
    const struct rebuild *r = asked->r;
    const struct pair pair = {{live_in_slot(r, shared->slot[0]), live_in_slot(r, shared->slot[1])},
                              shared->older};

    if (pair.disk[0] == r->vdi_count || pair.disk[1] == r->vdi_count)
        return;
    for (size_t i = 0; i < asked->count; i++)
        if (memcmp(asked->pairs[i].disk, pair.disk, sizeof pair.disk) == 0 &&
            asked->pairs[i].older == pair.older)
            return;
    if (PLX_LIST_ROOM(asked->pairs, asked->count, asked->capacity, 16))
        asked->pairs[asked->count++] = pair;
    else
        asked->error = PLX_ERR_NOMEM;
}

/* ---- REBUILD-14 ---- */

/* Without a word; the caller tells why. */
static int refuse(struct rebuild *r, size_t disk)
{
    struct plx_registry_vdi *row = &r->vdis[disk];
    int error;

    row->written = (struct plx_registry_written){row->epoch + 1, 1};
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
    error = refuse(r, one);
    return error ? error : refuse(r, other);
}

static bool descends(const struct rebuild *r, size_t clone, size_t origin)
{
    const char *parent = r->vdis[clone].parent;

    for (size_t steps = 0; *parent && steps < r->vdi_count; steps++) {
        size_t i = 0;

        if (strcmp(parent, r->vdis[origin].id) == 0)
            return true;
        while (i < r->vdi_count && strcmp(r->vdis[i].id, parent) != 0)
            i++;
        if (i == r->vdi_count)
            return false;
        parent = r->vdis[i].parent;
    }
    return false;
}

/* Where the block did not tell. */
static int settle(struct rebuild *r, const struct pair *pair)
{
    size_t one = pair->disk[0], other = pair->disk[1];

    if (is_refused(r, one) || is_refused(r, other))
        return 0;
    if (descends(r, other, one))
        return refuse_older(r, one, other, "it lacks a snapshot that has a clone,");
    if (descends(r, one, other))
        return refuse_older(r, other, one, "it lacks a snapshot that has a clone,");
    return refuse_both(r, one, other);
}

/* What blocks tell comes first: a pair may have one that tells and one that does not. */
static int settle_all(struct asked *asked)
{
    int error = 0;

    for (size_t i = 0; i < asked->count && !error; i++) {
        const struct pair *pair = &asked->pairs[i];

        if (pair->older >= 0)
            error = refuse_older(asked->r, pair->disk[pair->older], pair->disk[!pair->older],
                                 "a block that it names is by now one of");
    }
    for (size_t i = 0; i < asked->count && !error; i++)
        if (asked->pairs[i].older < 0)
            error = settle(asked->r, &asked->pairs[i]);
    return error;
}

/* ---- The whole ---- */

static int ask_once(struct asked *asked)
{
    struct rebuild *r = asked->r;
    const struct plx_check_options options = {.finding = not_vouched,
                                              .unguarded = contradicted,
                                              .shared = shared,
                                              .leave_out = leave_out,
                                              .context = asked,
                                              .watch = r->options->watch};
    struct plx_check_result result;
    int error;

    memset(asked->contradicted, 0, r->info.extents * sizeof *asked->contradicted);
    asked->count = 0;
    error = plx_store_check(r->store, &options, &result, r->fault);
    if (error == PLX_ERR_BUSY) /* interrupted: no lock is in the way */
        error = r->fault->code = PLX_ERR_SYSTEM;
    return error ? error : asked->error ? plx_rebuilding_no_memory(r) : 0;
}

/* REBUILD-9. "store check" tells what else is found. */
int plx_rebuilding_ask_disks(struct rebuild *r)
{
    struct asked asked = {.r = r, .contradicted = calloc(r->info.extents, sizeof(bool))};
    int error = asked.contradicted ? 0 : plx_rebuilding_no_memory(r);

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
    free(asked.contradicted);
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
