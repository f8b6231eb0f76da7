/* allocator.h - inside the engine: free blocks, and the extents that they come from.
 *
 * A caller allocates with plx_alloc_run() or one of its kind. If there is nothing, the call queues
 * the caller's task and returns PLX_WAIT; the task asks again when it is ready. What is allocated
 * is allocated in memory only, until a bitmap pass has written it (plx_bitmap_sync()). Blocks go
 * back by plx_alloc_free() or, if somebody else may own their extent, by plx_alloc_free_dead().
 *
 * Counts are in blocks, addresses are block numbers of the store. All of this belongs to the thread
 * that runs the store's loop. Errors are 0 or PLX_ERR_*. The rules (ALLOC-1 to ALLOC-8, EXTENT-1 to
 * EXTENT-6) are in alloc.c and extent.c, the room's own state in allocator_inside.h.
 */
#ifndef PLX_ALLOCATOR_H
#define PLX_ALLOCATOR_H

#include "engine/loop/store.h"

/* The moment at which a block was known to be dead: taken before the record that says so is
 * written. ALLOC-6 compares it with later grants and collections. */
struct plx_since {
    uint64_t grants, collections;
};

/* Allocates up to `want` adjacent blocks. Returns 0, an error, or PLX_WAIT after it has queued the
 * task. A NULL task never waits. */
int plx_alloc_run(struct plx_store *store, enum plx_extent_type type, uint64_t want,
                  struct plx_task *task, uint64_t *ret_addr, uint64_t *ret_count);
/* The same for data. promised: the caller holds a promise for these blocks, and gets at most
 * `want`. Otherwise it may get more, for later writes, but never blocks that are promised. */
int plx_alloc_data(struct plx_store *store, uint64_t want, bool promised, struct plx_task *task,
                   uint64_t *ret_addr, uint64_t *ret_count);
/* Promises data blocks (ALLOC-8). False: there are not as many now; an extent was asked for. */
bool plx_alloc_promise(struct plx_store *store, uint64_t blocks);
/* Whether as many could be promised now. If not, an extent was asked for. Wakes nobody. */
bool plx_alloc_has_unpromised(struct plx_store *store, uint64_t blocks);
/* Whether this many blocks could be promised now, or no further extent is to be expected; asks for
 * one if needed. */
bool plx_alloc_may_promise(struct plx_store *store, uint64_t blocks);
/* Promises the blocks even if they are not free: for writes that are acknowledged already. */
void plx_alloc_owe(struct plx_store *store, uint64_t blocks);
void plx_alloc_unpromise(struct plx_store *store, uint64_t blocks);
/* Allocates exactly `want` adjacent data blocks for data that could also stay where it is. So it
 * leaves a quarter of an extent free for writes, and without a task it asks for no extent. */
int plx_alloc_adjacent(struct plx_store *store, uint64_t want, struct plx_task *task,
                       uint64_t *ret_addr);
/* Allocates exactly one log segment. */
int plx_alloc_segment(struct plx_store *store, struct plx_task *task, uint64_t *ret_addr);
int plx_alloc_segment_sync(struct plx_store *store, uint64_t *ret_addr);
/* Frees blocks in extents that this instance has owned since the blocks were allocated. */
void plx_alloc_free(struct plx_store *store, uint64_t addr, uint64_t count);
/* Frees a dead block if ALLOC-6 allows it. If nobody owns the block's extent, this instance asks
 * for the extent first. All other dead blocks are left to a collection. */
void plx_alloc_free_dead(struct plx_store *store, uint64_t addr, const struct plx_since *since);
struct plx_since plx_store_since(const struct plx_store *store);
/* Begins and ends holding back (ALLOC-7): metadata that is freed in between stays allocated. False
 * at the end: some blocks came back early, because room was wanted. */
void plx_alloc_hold_back(struct plx_store *store);
bool plx_alloc_let_go(struct plx_store *store);
/* Room is wanted: the held back blocks come back now. True if there were any. */
bool plx_alloc_give_way(struct plx_store *store);
/* Calls visit for the lists of freed blocks that are not free yet: those of foreign extents and
 * those that are held back. Ends with the first error. */
int plx_alloc_each_pending(const struct plx_store *store,
                           int (*visit)(void *context, const uint64_t *addrs, size_t count),
                           void *context);
/* Metadata blocks that are free in memory and still allocated on the store. */
uint64_t plx_alloc_freed_blocks(const struct plx_store *store);
/* Whether there are such blocks, and no bitmap pass has failed within so many nanoseconds. */
bool plx_alloc_may_pass(const struct plx_store *store, uint64_t retry_ns);
/* Asks for an extent in which freed blocks lie. Called once in every turn. */
void plx_alloc_foreign_pump(struct plx_store *store);
/* Whether an extent is to be asked for, or was, to free blocks in it. */
bool plx_alloc_foreign_waits(const struct plx_store *store);
/* Marks blocks as allocated, for replay. Skips extents that this instance does not own, because it
 * allocates nothing there. */
void plx_alloc_mark(struct plx_store *store, uint64_t addr, uint64_t count);
uint64_t plx_alloc_free_blocks(const struct plx_store *store, enum plx_extent_type type);
/* Queues the task until space is freed (plx_alloc_wake()), or history has given way or will not
 * (plx_store_room_made()). */
void plx_alloc_wait_for_space(struct plx_store *store, struct plx_task *task);
void plx_alloc_wait_for_history(struct plx_store *store, struct plx_task *task);
/* Whether a task waits for history. */
bool plx_alloc_history_is_awaited(const struct plx_store *store);
/* Queues the task until an extent arrives or space is freed (PLX_WAIT). If neither is to be
 * expected: NOSPACE, or the reason why the last extent did not come. */
int plx_alloc_wait(struct plx_store *store, enum plx_extent_type type, struct plx_task *task);
/* Whether an extent has been asked for and not answered: of this type, of any. */
bool plx_alloc_asks_for(const struct plx_store *store, enum plx_extent_type type);
bool plx_alloc_asks(const struct plx_store *store);
void plx_alloc_wake(struct plx_store *store);  /* space was freed: all waiters look again */
void plx_alloc_grown(struct plx_store *store); /* the store is larger: refusals are forgotten */
/* Asks for one more extent if fewer than `blocks` blocks are free and not promised (ALLOC-5). */
void plx_alloc_spare(struct plx_store *store, enum plx_extent_type type, uint64_t blocks);

/* Begins or ends noting which blocks owned extents hand out. NOMEM. */
int plx_extent_note_born(struct plx_store *store);
void plx_extent_forget_born(struct plx_store *store);
/* Whether the block was handed out since then. True also where nothing was noted. */
bool plx_extent_used_again(const struct plx_store *store, uint64_t addr);
/* An extent's bitmap, from memory or from the store. ret_bits has room for one bit per block. */
int plx_extent_read_bits(struct plx_store *store, uint64_t number, uint64_t *ret_bits,
                         struct plx_fault *fault);
/* Joins the next bitmap pass, which writes every dirty page and flushes. The task becomes ready
 * with the pass's error. */
void plx_bitmap_sync(struct plx_store *store, struct plx_task *task);
int plx_bitmap_sync_run(struct plx_store *store);

/* The store's struct plx_allocator, of a store that has its options: NOMEM. */
int plx_allocator_init(struct plx_store *store);
void plx_allocator_free(struct plx_store *store);

#endif
