/* reserve.c - see reserve.h.
 *
 * RESERVE-1  reserve.blocks is the sum of what each disk that is open for writing would need if
 *     power failed now (need_of). Key frames and recovery take from it. A segment of log (log.c)
 *     and what adds to a key frame (room.c) are only given what is left beside it. Writes to new
 *     blocks leave two segments more, so that snapshots and unmaps go on when they are refused.
 * RESERVE-2  A block counts as free when it would be after a crash, too: what was freed since the
 *     last bitmap pass began is still allocated on the store, whoever recovers finds it so, and
 *     only a collection gives it back. When that is what is missing, a pass is made, but for a
 *     while none after one that failed.
 * RESERVE-3  A disk is opened only where its part is left, so that it can be closed. One that was
 *     not closed is recovered first, from the part that was left when it was opened, and then keeps
 *     its segments of log (keyframe.c, end_log): all are recovered before they are opened for use,
 *     and the first would take those of the last.
 * RESERVE-4  The reserve is not what fills a store. It grows by further extents up to a small share
 *     of the store, and by what no key frame makes less. Beyond that, and where there are none, the
 *     disk that needs most writes a key frame and needs little then. More is claimed only when no
 *     key frame would help.
 * RESERVE-5  Who waits, waits for something that ends: a pass, a key frame of a disk that has
 *     changes, an extent. Each uses up what made it worth waiting for, and nobody waits for ever:
 *     after WAITS_MAX of them he is refused. A key frame does not wait for who waits for it: near
 *     the end of a segment the disk's log may take the one that need_of counts for its
 *     announcement.
 * RESERVE-6  What a collection holds back (ALLOC-7) is wanted only when nothing else helps: it
 *     becomes free with a pass, and the collection reads the disk again. In a store where key
 *     frames make the room, somebody lacks it all the time, and no disk would ever be read whole.
 * Loop: the store's.
 * Crash story: memory only; who recovers counts anew.
 */
#include "engine/disk/reserve.h"

#include "engine/disk/vdi.h"

#define LEAF_SHIFT (PLX_BLOCK_SHIFT + PLX_NODE_SHIFT) /* of the bytes that a leaf maps */
#define LEAVES_OF_ITEM 2u /* of a window or an unmap that waits in the log, without a table's */
#define CLAIM_SHARE 64u   /* RESERVE-4 */
#define WAITS_MAX 100u
#define RETRY_NS 1000000000ull

/* Each changed leaf, and on each level above as many, but no more than the disk has; and of the
 * log's index the nodes on the way to where segments went and to where they came. */
uint64_t plx_reserve_nodes(const struct plx_vdi *vdi, uint64_t leaves)
{
    uint64_t nodes = (vdi->log.segment_count >> PLX_NODE_SHIFT) + 2 * PLX_INDEX_LEVELS;
    uint64_t all = vdi->size_bytes >> LEAF_SHIFT;

    for (; all; all >>= PLX_NODE_SHIFT)
        nodes += plx_min_u64(leaves, all + 1);
    return nodes + (leaves > 0);
}

/* Whether a key frame's announcement, of this one or of recovery, may need a further segment: what
 * was logged last may be lost. */
static bool needs_segment(const struct plx_log *log)
{
    uint64_t bytes = plx_log_segment_bytes(log->store), at = log->cursor.pos % bytes;

    return (at && bytes - at < PLX_BATCH_BYTES_MAX) ||
           plx_log_segment_of(log, log->applied.pos) != plx_log_segment_of(log, log->cursor.pos);
}

/* Twice: a key frame that is under way when power fails may leave its nodes allocated, and recovery
 * makes them all again. What is made already is not free any more. Then the disk is to be opened
 * once more, without changes. */
static uint64_t need_of(const struct plx_vdi *vdi, uint64_t leaves)
{
    const struct plx_map *map = &vdi->map;
    const struct plx_keyframe_op *op = &vdi->keyframe;
    uint64_t need = 2 * plx_reserve_nodes(vdi, 0), twice;

    if (vdi->snapshot)
        return 0;
    leaves += map->active.leaves + map->frozen.leaves + LEAVES_OF_ITEM * vdi->log.changing;
    if (!leaves && !op->running)
        return need;
    twice = 2 * plx_reserve_nodes(vdi, leaves);
    return need + twice - plx_min_u64(twice, op->made.count + op->tree.made.count) +
           (needs_segment(&vdi->log) ? vdi->store->info.segment_blocks : 0); /* RESERVE-5 */
}

static void count(struct plx_vdi *vdi, uint64_t leaves)
{
    uint64_t need = need_of(vdi, leaves);

    vdi->store->reserve.blocks += need - vdi->reserve;
    vdi->reserve = need;
}

void plx_reserve_count(struct plx_vdi *vdi)
{
    count(vdi, 0);
}

/* ---- What is left ---- */

static bool is_left(const struct plx_store *store, uint64_t blocks)
{
    return plx_alloc_free_blocks(store, PLX_EXTENT_META) >=
           store->reserve.blocks + store->freed.blocks + blocks; /* RESERVE-2 */
}

bool plx_reserve_room(struct plx_vdi *vdi, uint64_t leaves, uint64_t blocks)
{
    struct plx_store *store = vdi->store;

    count(vdi, leaves);
    if (is_left(store, blocks))
        return true;
    for (struct plx_vdi *v = store->vdis; v; v = v->next)
        if (v != vdi)
            count(v, 0); /* others need less by now, perhaps */
    return is_left(store, blocks);
}

/* ---- Making more ---- */

static struct plx_vdi *neediest(const struct plx_store *store)
{
    struct plx_vdi *most = NULL;

    for (struct plx_vdi *v = store->vdis; v; v = v->next)
        if (plx_keyframe_would_help(v) && (!most || v->reserve > most->reserve))
            most = v;
    return most;
}

static bool may_pass(const struct plx_store *store)
{
    return store->freed.blocks &&
           (!store->freed.failed_at_ns ||
            store->env->monotonic_ns(store->env) - store->freed.failed_at_ns > RETRY_NS);
}

/* A pass or a key frame, one at a time: whether one is under way. */
static bool relieve(struct plx_store *store)
{
    struct plx_reserve *reserve = &store->reserve;

    if (reserve->passing || reserve->relief)
        return true;
    if (may_pass(store)) {
        reserve->passing = true;
        plx_bitmap_sync(store, &reserve->task);
        return true;
    }
    reserve->relief = neediest(store);
    if (reserve->relief && !reserve->relief->keyframe.running)
        plx_keyframe_request(reserve->relief, NULL);
    return reserve->relief;
}

static void pass_ended(struct plx_task *task)
{
    struct plx_reserve *reserve = PLX_CONTAINER(task, struct plx_reserve, task);

    reserve->passing = false;
    task->error = 0; /* store->freed says what came of it */
    plx_alloc_wake(PLX_CONTAINER(reserve, struct plx_store, reserve));
}

void plx_reserve_keyframe_ended(struct plx_vdi *vdi)
{
    count(vdi, 0);
    if (vdi->store->reserve.relief == vdi)
        vdi->store->reserve.relief = NULL;
    plx_alloc_wake(vdi->store);
}

void plx_reserve_forget(struct plx_vdi *vdi)
{
    struct plx_reserve *reserve = &vdi->store->reserve;

    reserve->blocks -= vdi->reserve;
    vdi->reserve = 0;
    if (reserve->relief != vdi)
        return;
    reserve->relief = NULL;
    plx_alloc_wake(vdi->store);
}

/* RESERVE-4 */
static bool is_small(const struct plx_store *store)
{
    uint64_t limit = store->info.extents * store->info.extent_blocks / CLAIM_SHARE;

    for (const struct plx_vdi *v = store->vdis; v; v = v->next)
        limit += 2 * plx_reserve_nodes(v, 0) + store->info.segment_blocks;
    return store->reserve.blocks < limit;
}

void plx_reserve_ahead(struct plx_store *store)
{
    uint64_t segment = store->info.segment_blocks;
    bool small;

    if (is_left(store, store->reserve.blocks / 8 + 3 * segment))
        return;
    small = is_small(store);
    if (small)
        plx_alloc_spare(store, PLX_EXTENT_META, UINT64_MAX); /* RESERVE-4 */
    if (!small || !is_left(store, 2 * segment))
        relieve(store);
}

int plx_reserve_wait(struct plx_store *store, struct plx_task *task, unsigned *waits)
{
    bool relieved = ++*waits < WAITS_MAX && relieve(store);
    int error = 0;

    if (!relieved) {
        *waits = 0;
        error = plx_alloc_wait(store, PLX_EXTENT_META, task);
        relieved = error != PLX_WAIT && plx_alloc_give_way(store) && relieve(store); /* RESERVE-6 */
    }
    if (!relieved)
        return error;
    plx_queue_push(&store->space_waiters, task);
    return PLX_WAIT;
}

int plx_reserve_obtain(struct plx_vdi *vdi, uint64_t blocks)
{
    unsigned waits = 0;

    while (!plx_reserve_room(vdi, 0, blocks)) {
        struct plx_waiter waiter = PLX_WAITER;
        int error = plx_reserve_wait(vdi->store, &waiter.task, &waits);

        if (error != PLX_WAIT)
            return error;
        plx_waiter_wait(vdi->store, &waiter); /* then look again */
    }
    return 0;
}

void plx_reserve_init(struct plx_store *store)
{
    store->reserve.task.step = pass_ended;
}
