/* reserve.c - see reserve.h.
 *
 * I1  store->reserve is the sum of what each disk that is open for writing would need if power
 *     failed now (need_of). Key frames and recovery take from it; a segment of log (log.c) and what
 *     adds to a key frame (request.c) are only given what is left beside it. Writes to new blocks
 *     leave two segments more, so that snapshots and unmaps go on when they are refused.
 * I2  A block counts as free when it would be after a crash, too: what was freed since the last
 *     bitmap pass began is still allocated on the store, whoever recovers finds it so, and only a
 *     collection gives it back. When that is what is missing, a pass is made.
 * I3  A disk is opened only where its part is left, so that it can be closed. One that was not
 *     closed is recovered first, from the part that was left when it was opened, and then keeps its
 *     segments of log (keyframe.c, drop_log): all are recovered before they are opened for use, and
 *     the first would take those of the last.
 * Loop: the store's.
 */
#include "engine/reserve.h"

#include "engine/vdi.h"

#define LEAF_SHIFT (PLX_BLOCK_SHIFT + PLX_NODE_SHIFT) /* of the bytes that a leaf maps */

/* Nodes of a key frame at most: each change in a leaf of its own, and on each level above the nodes
 * on the way there, no more than the disk has; and of the log's index the nodes on the way to where
 * segments went and to where they came. */
static uint64_t nodes_of(const struct plx_vdi *vdi, uint64_t changes)
{
    uint64_t segment_bytes = plx_log_segment_bytes(vdi->store);
    uint64_t from = vdi->record.keyframe.pos, to = plx_max_u64(vdi->log.cursor.pos, from);
    uint64_t segments = to / segment_bytes - from / segment_bytes;
    uint64_t nodes = segments / PLX_NODE_ENTRIES + 2 * PLX_INDEX_LEVELS, all;
    unsigned shift = LEAF_SHIFT;

    do {
        all = (vdi->size_bytes >> shift) + 1;
        nodes += plx_min_u64(changes, all);
        shift += PLX_NODE_SHIFT;
    } while (all > 1);
    return nodes;
}

/* Twice: a key frame that is under way when power fails may leave its nodes allocated, and recovery
 * makes them all again. Then the disk is to be opened once more, without changes. */
static uint64_t need_of(const struct plx_vdi *vdi, uint64_t blocks)
{
    const struct plx_map *map = &vdi->map;
    uint64_t changes = map->active.count + map->active.reserved + map->frozen.count + blocks;

    return 2 * nodes_of(vdi, changes) + (changes ? 2 * nodes_of(vdi, 0) : 0);
}

void plx_reserve_note(struct plx_vdi *vdi, uint64_t blocks)
{
    uint64_t need = need_of(vdi, blocks);

    vdi->store->reserve += need - vdi->reserve;
    vdi->reserve = need;
}

void plx_reserve_forget(struct plx_vdi *vdi)
{
    vdi->store->reserve -= vdi->reserve;
    vdi->reserve = 0;
}

static bool leaves(const struct plx_store *store, uint64_t blocks)
{
    return plx_alloc_free_blocks(store, PLX_EXTENT_META) >=
           store->reserve + store->unsettled.freed + blocks; /* I2 */
}

static void settled(struct plx_task *task)
{
    struct plx_unsettled *unsettled = PLX_CONTAINER(task, struct plx_unsettled, task);
    struct plx_store *store = PLX_CONTAINER(unsettled, struct plx_store, unsettled);

    unsettled->settling = false;
    task->error = 0; /* freed says what came of it */
    plx_alloc_wake(store);
}

bool plx_reserve_leaves(struct plx_store *store, uint64_t blocks)
{
    struct plx_unsettled *unsettled = &store->unsettled;

    if (leaves(store, blocks) || (plx_alloc_give_way(store) && leaves(store, blocks)))
        return true;
    if (unsettled->freed && !unsettled->settling) {
        unsettled->settling = true;
        plx_bitmap_sync(store, &unsettled->task);
    }
    return false;
}

int plx_reserve_wait(struct plx_store *store, struct plx_task *task)
{
    if (!store->unsettled.settling)
        return plx_alloc_wait(store, PLX_EXTENT_META, task);
    plx_queue_push(&store->space_waiters, task);
    return PLX_WAIT;
}

int plx_reserve_obtain(struct plx_store *store, uint64_t blocks)
{
    while (!plx_reserve_leaves(store, blocks)) {
        struct plx_waiter waiter = PLX_WAITER;
        int error = plx_reserve_wait(store, &waiter.task);

        if (error != PLX_WAIT)
            return error;
        plx_waiter_wait(store, &waiter); /* then look again */
    }
    return 0;
}

void plx_reserve_init(struct plx_store *store)
{
    store->unsettled.task.step = settled;
}
