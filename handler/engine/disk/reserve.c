/* reserve.c - room for metadata that is left to recovery: counted, and made. See reserve.h.
 *
 *    who takes metadata blocks                   leaves free
 *    key frames, recovery                        nothing: the reserve is for them
 *    a log segment (log.c), a change that makes  the reserve
 *      a key frame larger (room.c)
 *    a write to new blocks (room.c)              the reserve and two segments, so snapshots and
 *                                                unmaps go on when such writes are refused
 *
 * RESERVE-1  reserve.blocks is the sum of what each disk that is open for writing would need
 *     if power failed now (need_of()). Nothing but key frames and recovery may use these blocks.
 * RESERVE-2  A block counts as free only if it would be free after a crash, too. A block that was
 *     freed since the last bitmap pass began is still allocated on the store: recovery finds it
 *     allocated, and only a collection would give it back. When just such blocks are missing, a
 *     bitmap pass is made. After one that failed none is made for a while.
 * RESERVE-3  A disk is opened only if its part of the reserve is free, so that it can be closed
 *     again. A disk that was not closed is recovered first, with the part that was left free for it
 *     when it was opened. A recovered disk keeps its log segments (keyframe_steps.c, end_log()).
 *     All disks are recovered before any is opened for use. If they gave their segments back, the
 *     first disks to be opened could take the room that the last ones need.
 * RESERVE-4  The reserve must not fill the store with extents of metadata. It grows by further
 *     extents only up to a small share of the store, plus what no key frame can make less. Beyond
 *     that, or without further extents, the disk that needs most writes a key frame, and needs
 *     little then. More extents are claimed only when no key frame would help.
 * RESERVE-5  A task that waits for room waits for something that ends: a bitmap pass, the key frame
 *     of a disk that has changes, or an extent. No task waits for them repeatedly without result:
 *     one pass leaves no freed blocks for a second pass, and one key frame leaves no changes for
 *     another. After WAITS_MAX passes and key frames a task asks for an extent, and is refused if
 *     none comes. A key frame never waits for a task that waits for it: near the end of a segment,
 *     the disk's log may take the segment that need_of() counts for the announcement (logged.c).
 * RESERVE-6  A collection holds freed metadata back while it reads a disk (ALLOC-7). These blocks
 *     are asked for only when nothing else helps, for then the collection has to read that disk
 *     again. In a store where key frames make the room, somebody lacks room all the time. If each
 *     asked, no disk would ever be read to its end.
 * Loop: the store's. plx_reserve_obtain() is synchronous; nothing else blocks.
 * Crash story: memory only; recovery counts again.
 */
#include "engine/disk/reserve.h"

#include "engine/disk/vdi.h"

#define LEAF_SHIFT (PLX_BLOCK_SHIFT + PLX_NODE_SHIFT) /* log2 of the bytes that a leaf maps */
/* Leaves that an item in the log changes at most: a window's, or those at the ends of an unmap. The
 * node above the leaves that an unmap drops whole is not counted. */
#define LEAVES_OF_ITEM 2u
#define CLAIM_SHARE 64u /* RESERVE-4 */
#define WAITS_MAX 100u
#define RETRY_NS 1000000000ull

/* The changed leaves, and on each level above as many nodes, but no more than the disk has. Also
 * the nodes of the log's index on the way to the entries of segments that went and that came. */
uint64_t plx_reserve_nodes(const struct plx_vdi *vdi, uint64_t leaves)
{
    uint64_t nodes = (vdi->log.segment_count >> PLX_NODE_SHIFT) + 2 * PLX_INDEX_LEVELS;
    uint64_t all = vdi->size_bytes >> LEAF_SHIFT;

    for (; all; all >>= PLX_NODE_SHIFT)
        nodes += plx_min_u64(leaves, all + 1);
    return nodes + (leaves > 0);
}

/* Whether announcing a key frame, now or in recovery, may need a further segment. Recovery may find
 * less of the log than was written, so the last applied position counts, too. */
static bool needs_segment(const struct plx_log *log)
{
    uint64_t bytes = plx_log_segment_bytes(log->store), at = log->cursor.pos % bytes;

    return (at && bytes - at < PLX_BATCH_BYTES_MAX) ||
           plx_log_segment_of(log, log->applied.pos) != plx_log_segment_of(log, log->cursor.pos);
}

/* What a disk needs (RESERVE-1), if `leaves` more leaves change than have changed by now:
 *   - the nodes of a key frame twice: one that is under way when power fails may leave its nodes
 *     allocated, and recovery makes them all again. Nodes that are made already are not counted,
 *     for they are not free any more;
 *   - a segment for the announcement, if one may be needed;
 *   - what it takes to open and close the disk once more, without changes. */
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

/* RESERVE-1 */
static void count(struct plx_vdi *vdi, uint64_t leaves)
{
    uint64_t need = need_of(vdi, leaves);

    vdi->store->disks->reserve.blocks += need - vdi->reserve;
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
           store->disks->reserve.blocks + plx_alloc_freed_blocks(store) + blocks; /* RESERVE-2 */
}

bool plx_reserve_room(struct plx_vdi *vdi, uint64_t leaves, uint64_t blocks)
{
    struct plx_store *store = vdi->store;

    count(vdi, leaves);
    if (is_left(store, blocks))
        return true;
    for (struct plx_vdi *v = store->vdis; v; v = v->next)
        if (v != vdi)
            count(v, 0); /* other disks may need less by now */
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

/* Begins a bitmap pass or a key frame, unless one is under way. false: neither would help. */
static bool relieve(struct plx_store *store)
{
    struct plx_reserve *reserve = &store->disks->reserve;

    if (reserve->passing || reserve->relief)
        return true;
    if (plx_alloc_may_pass(store, RETRY_NS)) {
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
    task->error = 0; /* plx_alloc_may_pass() says what came of it */
    plx_alloc_wake(reserve->store);
}

void plx_reserve_keyframe_ended(struct plx_vdi *vdi)
{
    count(vdi, 0);
    if (vdi->store->disks->reserve.relief == vdi)
        vdi->store->disks->reserve.relief = NULL;
    plx_alloc_wake(vdi->store);
}

void plx_reserve_forget(struct plx_vdi *vdi)
{
    struct plx_reserve *reserve = &vdi->store->disks->reserve;

    reserve->blocks -= vdi->reserve;
    vdi->reserve = 0;
    if (reserve->relief != vdi)
        return;
    reserve->relief = NULL;
    plx_alloc_wake(vdi->store);
}

/* RESERVE-4: whether the reserve is small enough to claim extents for it. */
static bool is_small(const struct plx_store *store)
{
    uint64_t limit = store->info.extents * store->info.extent_blocks / CLAIM_SHARE;

    for (const struct plx_vdi *v = store->vdis; v; v = v->next)
        limit += 2 * plx_reserve_nodes(v, 0) + store->info.segment_blocks;
    return store->disks->reserve.blocks < limit;
}

void plx_reserve_ahead(struct plx_store *store)
{
    uint64_t segment = store->info.segment_blocks;
    bool small;

    if (is_left(store, store->disks->reserve.blocks / 8 + 3 * segment))
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
    plx_alloc_wait_for_space(store, task);
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
    store->disks->reserve.store = store;
    store->disks->reserve.task.step = pass_ended;
}
