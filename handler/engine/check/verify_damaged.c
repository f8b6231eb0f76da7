/* verify_damaged.c - blocks whose contents are damaged, and all who have them (VERIFY-9).
 *
 * A block that several disks or snapshots have is compared with its checksum once, by whichever
 * comes first (verify_tree.c). So who else has a damaged block is found out at the end, in one more
 * walk of all disks. What this walk no longer finds is reported as it was seen first.
 *
 * Loop: the store's. Crash story: this file only reads.
 */
#include <stdlib.h>

#include "engine/check/verify.h"

/* Where the disk's newest state has the block; 0: nowhere. */
static uint64_t newest_place(struct plx_verify *v, const struct plx_history *behind,
                             uint64_t vblock)
{
    uint64_t addr = 0, entry = 0;
    uint32_t checksum;

    if (plx_history_tells(behind, vblock, &addr, &checksum))
        return plx_addr_block(addr);
    return plx_verify_look_up(v, v->record, vblock, &entry) ? 0
                                                            : plx_addr_block(plx_entry_addr(entry));
}

/* Behind the walk of a disk: all its uses are of data, which no walk calls a node. A use counts as
 * one of a snapshot's, unless the newest state has the block. */
static void note_newest(struct plx_verify *v, size_t from)
{
    struct plx_history behind = {0};

    v->mode = PLX_VERIFY_BEHIND;
    plx_verify_log(v, &behind);
    v->mode = PLX_VERIFY_GATHER;
    for (size_t i = from; i < v->use_count && !v->error; i++) {
        struct plx_use *use = &v->uses[i];

        use->snapshot =
            use->vblock == PLX_NO_VBLOCK || newest_place(v, &behind, use->vblock) != use->addr;
    }
    plx_history_free(&behind);
}

static int by_addr(const void *a, const void *b)
{
    const struct plx_damaged *x = a, *y = b;

    return plx_compare_u64(&x->addr, &y->addr);
}

static int by_disk(const void *a, const void *b)
{
    const struct plx_damaged *x = a, *y = b;
    uint64_t first = x->slot, second = y->slot;
    int order = plx_compare_u64(&first, &second);

    if (!order)
        order = plx_compare_u64(&x->vblock, &y->vblock);
    return order ? order : plx_compare_u64(&x->addr, &y->addr);
}

/* Makes each damaged block a suspect, once. What is left of the second look is not needed. */
static bool ask_for_users(struct plx_verify *v)
{
    struct plx_suspect *suspects = calloc(v->damaged_count, sizeof *suspects);

    if (!suspects) {
        v->error = PLX_ERR_NOMEM;
        return false;
    }
    free(v->suspects);
    v->suspects = suspects;
    v->suspect_count = 0;
    qsort(v->damaged, v->damaged_count, sizeof *v->damaged, by_addr);
    for (size_t i = 0; i < v->damaged_count; i++)
        if (!i || v->damaged[i].addr != v->damaged[i - 1].addr)
            v->suspects[v->suspect_count++].addr = v->damaged[i].addr;
    return true;
}

/* Both lists are sorted by address. */
static void add_users(struct plx_verify *v)
{
    size_t seen = v->damaged_count, at = 0;

    for (size_t i = 0; i < v->use_count && !v->error; i++) {
        const struct plx_use *use = &v->uses[i];

        while (at + 1 < seen && v->damaged[at].addr < use->addr)
            at++;
        if (use->vblock != PLX_NO_VBLOCK) {
            const struct plx_damaged damaged = {.addr = use->addr,
                                                .vblock = use->vblock,
                                                .slot = use->slot,
                                                .unreadable = v->damaged[at].unreadable,
                                                .newest = !use->snapshot};
            plx_verify_add_damaged(v, &damaged);
        }
    }
}

/* Each block of a disk once. */
static void drop_repeated(struct plx_verify *v)
{
    size_t kept = 0;

    qsort(v->damaged, v->damaged_count, sizeof *v->damaged, by_disk);
    for (size_t i = 0; i < v->damaged_count; i++)
        if (kept && by_disk(&v->damaged[i], &v->damaged[kept - 1]) == 0)
            v->damaged[kept - 1].newest |= v->damaged[i].newest;
        else
            v->damaged[kept++] = v->damaged[i];
    v->damaged_count = kept;
}

static void tell(struct plx_verify *v, const struct plx_damaged *first, uint64_t blocks)
{
    const char *where = first->newest ? "" : "; only snapshots have ", *it = first->newest ? ""
                                                                             : blocks == 1 ? "it"
                                                                                           : "them";
    unsigned long long from = first->vblock, last = first->vblock + blocks - 1;
    struct plx_vdi_record record;

    if (!plx_verify_read_record(v, first->slot, &record))
        return; /* which is reported */
    v->blocks = blocks;
    if (blocks == 1)
        plx_verify_find(v, PLX_FINDING_ERROR, "data", first->addr, first->vblock,
                        "virtual disk %s: block %llu %s%s%s", record.name, from,
                        first->unreadable ? "cannot be read" : "does not match its checksum", where,
                        it);
    else
        plx_verify_find(v, PLX_FINDING_ERROR, "data", first->addr, first->vblock,
                        "virtual disk %s: blocks %llu to %llu %s%s%s", record.name, from, last,
                        first->unreadable ? "cannot be read" : "do not match their checksums",
                        where, it);
    v->blocks = 0;
    v->record = NULL;
}

static bool goes_on(const struct plx_verify *v, const struct plx_damaged *one,
                    const struct plx_damaged *next)
{
    return next->slot == one->slot && next->vblock == one->vblock + 1 &&
           next->addr == one->addr + 1 && next->addr % v->store->info.extent_blocks &&
           next->unreadable == one->unreadable && next->newest == one->newest;
}

static void tell_each(struct plx_verify *v)
{
    size_t told = 0, end;

    for (size_t i = 0; i < v->damaged_count && !v->error; i = end) {
        for (end = i + 1;
             end < v->damaged_count && goes_on(v, &v->damaged[end - 1], &v->damaged[end]); end++)
            ;
        if (told++ < PLX_VERIFY_KEPT)
            tell(v, &v->damaged[i], end - i);
        else
            v->damaged_dropped += end - i;
    }
    if (v->damaged_dropped && !v->error)
        plx_verify_find(v, PLX_FINDING_ERROR, "more", 0, PLX_NO_VBLOCK,
                        "%llu further block%s of virtual disks %s damaged",
                        (unsigned long long)v->damaged_dropped, plx_plural(v->damaged_dropped),
                        plx_is_or_are(v->damaged_dropped));
}

void plx_verify_tell_damaged(struct plx_verify *v)
{
    if (!v->damaged_count || v->error || !ask_for_users(v))
        return;
    plx_verify_gather_uses(v, note_newest);
    add_users(v);
    drop_repeated(v);
    tell_each(v);
}
