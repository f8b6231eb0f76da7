/* mapped.c - which blocks of a disk or snapshot hold data: walks that skip what is surely empty.
 *
 * Loop: synchronous; the disk's loop runs while nodes are read.
 * Crash story: nothing is written here.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/disk/vdi_inside.h"

/* The first block of the first leaf that the sorted overlay changes, not before the leaf of
 * vblock. */
static uint64_t next_change(const struct plx_overlay *overlay, uint64_t vblock)
{
    size_t low = 0, high = overlay->count;
    uint64_t leaf = vblock >> PLX_NODE_SHIFT;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (plx_slot_leaf(&overlay->sorted[middle]) < leaf)
            low = middle + 1;
        else
            high = middle;
    }
    return low < overlay->count ? plx_slot_leaf(&overlay->sorted[low]) << PLX_NODE_SHIFT
                                : UINT64_MAX;
}

/* The end of the subtree at this level that contains vblock, or the next block that an overlay
 * changes, whichever comes first. */
static uint64_t subtree_end(const struct plx_vdi *vdi, unsigned level, uint64_t vblock)
{
    const struct plx_map *map = &vdi->map;
    unsigned shift = level * PLX_NODE_SHIFT;
    uint64_t end = ((vblock >> shift) + 1) << shift, change;

    if (vdi->snapshot)
        change = next_change(&map->frozen, vblock);
    else
        change = plx_min_u64(plx_overlay_next_block(&map->active, vblock + 1),
                             map->is_frozen ? plx_overlay_next_block(&map->frozen, vblock + 1)
                                            : UINT64_MAX);
    return change <= vblock ? vblock + 1 : plx_min_u64(end, change);
}

uint64_t plx_vdi_absent_end(const struct plx_vdi *vdi, const struct plx_walk *walk, uint64_t vblock)
{
    return walk->under_way || walk->vblock != vblock || walk->level == 0 ||
                   walk->base_changes != vdi->map.base_changes
               ? vblock + 1
               : subtree_end(vdi, walk->level, vblock);
}

/* After a lookup failed at an unreadable node: the end of that node's range. */
static uint64_t unreadable_end(const struct plx_vdi *vdi, const struct plx_walk *walk,
                               uint64_t vblock)
{
    return !walk->under_way || walk->vblock != vblock || walk->level == 0
               ? vblock + 1
               : subtree_end(vdi, walk->level, vblock);
}

/* Looks a block up, and waits for the nodes that this takes. */
static int look_up(struct plx_vdi *vdi, uint64_t vblock, struct plx_walk *walk,
                   struct plx_mapping *ret_mapping, struct plx_fault *fault)
{
    struct plx_waiter waiter = PLX_WAITER;
    int error;

    plx_walk_resume(walk);
    while ((error = plx_map_lookup(&vdi->map, vblock, walk, &waiter.task, ret_mapping)) ==
           PLX_WAIT) {
        error = plx_waiter_wait(vdi->store, &waiter);
        plx_walk_resume(walk);
        if (error)
            break;
    }
    return error ? plx_fault_set(fault, error, "virtual disk %s, block %llu: %s", vdi->record.name,
                                 (unsigned long long)vblock, plx_error_text(error))
                 : 0;
}

int plx_vdi_each_mapping(struct plx_vdi *vdi, unsigned lookups, uint64_t *vblock,
                         void (*visit)(void *context, uint64_t vblock,
                                       const struct plx_mapping *mapping),
                         void *context, struct plx_fault *fault)
{
    uint64_t end = vdi->size_bytes >> PLX_BLOCK_SHIFT;
    struct plx_walk walk = {0};

    for (; lookups > 0 && *vblock < end; lookups--) {
        struct plx_mapping mapping;
        int error = look_up(vdi, *vblock, &walk, &mapping, fault);

        if (error)
            return error;
        if (mapping.addr)
            visit(context, *vblock, &mapping);
        *vblock = mapping.addr ? *vblock + 1 : plx_vdi_absent_end(vdi, &walk, *vblock);
    }
    if (*vblock >= end)
        *vblock = UINT64_MAX;
    return 0;
}

struct run_visit {
    bool skips; /* report unreadable ranges through `visit` instead of failing */
    bool (*visit)(void *context, uint64_t offset, uint64_t length, enum plx_map_run run);
    bool (*visit_mapped)(void *context, uint64_t offset, uint64_t length, bool mapped);
    void *context;
};

static bool visit_run(const struct run_visit *v, uint64_t offset, uint64_t length,
                      enum plx_map_run run)
{
    return v->skips ? v->visit(v->context, offset, length, run)
                    : v->visit_mapped(v->context, offset, length, run == PLX_RUN_MAPPED);
}

/* If the front has newer contents at vblock, they take precedence over the disk's: sets *ret_run
 * and returns their end. Returns 0 if it has none; *ret_until is then the start of the front's next
 * contents. */
static uint64_t front_end(const struct plx_vdi *vdi, uint64_t vblock, enum plx_map_run *ret_run,
                          uint64_t *ret_until)
{
    bool mapped = false, covered;
    uint64_t end = UINT64_MAX;

    *ret_until = UINT64_MAX;
    if (!vdi->front || !vdi->front->covers)
        return 0;
    covered = vdi->front->covers(vdi->front, vblock, &end, &mapped);
    *ret_run = mapped ? PLX_RUN_MAPPED : PLX_RUN_ABSENT;
    if (!covered)
        *ret_until = end;
    return covered ? end : 0;
}

/* What the disk itself has at this block, and where that ends. */
static int run_at(struct plx_vdi *vdi, uint64_t vblock, bool skips, struct plx_walk *walk,
                  enum plx_map_run *ret_run, uint64_t *ret_next, struct plx_fault *fault)
{
    struct plx_mapping mapping = {0};
    int error = look_up(vdi, vblock, walk, &mapping, fault);

    if (error && !(skips && plx_error_is_unreadable(error)))
        return error;
    *ret_run = error ? PLX_RUN_UNREADABLE : mapping.addr ? PLX_RUN_MAPPED : PLX_RUN_ABSENT;
    *ret_next = *ret_run == PLX_RUN_MAPPED   ? vblock + 1
                : *ret_run == PLX_RUN_ABSENT ? plx_vdi_absent_end(vdi, walk, vblock)
                                             : unreadable_end(vdi, walk, vblock);
    return 0;
}

static int each_run(struct plx_vdi *vdi, uint64_t offset, uint64_t length,
                    const struct run_visit *v, struct plx_fault *fault)
{
    uint64_t end = offset + length, run_start = offset, at = offset;
    enum plx_map_run run = PLX_RUN_ABSENT, here = PLX_RUN_ABSENT;
    struct plx_walk walk = {0};

    if (end > vdi->size_bytes || end < offset)
        return plx_fault_set(fault, PLX_ERR_RANGE, "beyond the end of the disk");
    while (at < end) {
        uint64_t vblock = at >> PLX_BLOCK_SHIFT, until;
        uint64_t next = front_end(vdi, vblock, &here, &until);
        int error = next ? 0 : run_at(vdi, vblock, v->skips, &walk, &here, &next, fault);

        if (error)
            return error;
        next = plx_min_u64(next, until);
        if (here != run) {
            if (at > run_start && !visit_run(v, run_start, at - run_start, run))
                return 0;
            run_start = at;
            run = here;
        }
        at =
            plx_min_u64(end, plx_min_u64(next, plx_div_up(end, PLX_BLOCK_SIZE)) << PLX_BLOCK_SHIFT);
    }
    if (end > run_start)
        visit_run(v, run_start, end - run_start, run);
    return 0;
}

int plx_vdi_map_runs(struct plx_vdi *vdi, uint64_t offset, uint64_t length,
                     bool (*visit)(void *context, uint64_t offset, uint64_t length, bool mapped),
                     void *context, struct plx_fault *fault)
{
    const struct run_visit v = {.visit_mapped = visit, .context = context};

    return each_run(vdi, offset, length, &v, fault);
}

int plx_vdi_readable_runs(struct plx_vdi *vdi, uint64_t offset, uint64_t length,
                          bool (*visit)(void *context, uint64_t offset, uint64_t length,
                                        enum plx_map_run run),
                          void *context, struct plx_fault *fault)
{
    const struct run_visit v = {.skips = true, .visit = visit, .context = context};

    return each_run(vdi, offset, length, &v, fault);
}
