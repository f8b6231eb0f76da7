/* store.h - inside the engine: the store object, its loop, device I/O in store addresses, flushing,
 * open extents and allocation.
 *
 * Work on the loop is a task (struct plx_task): a step function that never blocks. The step starts
 * one thing, remembers in a state of its own what comes next, and returns. When that thing has
 * happened, the task becomes ready, and a turn of the loop calls the step again. The result is in
 * task->error, or in the join's error if the task waited for I/Os. A task waits for one thing at a
 * time: a join of I/Os, a flush, a node, space, or its turn in a queue. It stands in at most one
 * queue (TICK-1).
 *
 *     case WRITE:
 *         work->join = (struct plx_join){.task = task};
 *         mark = plx_flush_mark(store);                     before the first write
 *         plx_store_xfer(store, ..., &work->join);          the task is ready when it has completed
 *         work->state = FLUSH;
 *         return;
 *     case FLUSH:
 *         if (work->join.error)
 *             return give_up(work, work->join.error);
 *         plx_store_flush(store, task, mark);
 *         work->state = DONE;
 *         return;
 *     case DONE:
 *         return end(work, task->error);
 *
 * Synchronous calls (..._sync, ..._run) run the loop until they are done. They must not be made
 * from a step. Everything here belongs to the thread that runs the loop. Addresses are block
 * numbers of the store, offsets and sizes are bytes. Errors are 0 or PLX_ERR_*.
 */
#ifndef PLX_STORE_H
#define PLX_STORE_H

#include "engine/engine.h"
#include "engine/format/format.h"
#include "engine/loop/cache.h"

/* An instant, by how many flushes of the store had failed before it. Each of them may have lost
 * what had completed, but was not durable. So who wrote something takes a mark before the first
 * write, and trusts a later flush only if none has failed since (TICK-2). */
struct plx_flush_mark {
    uint64_t failures;
};

struct plx_task {
    void (*step)(struct plx_task *task);
    struct plx_task *next;
    bool queued;
    int error; /* result of what the task waited for */
};

struct plx_queue {
    struct plx_task *head, *tail;
};

void plx_queue_push(struct plx_queue *queue, struct plx_task *task);
struct plx_task *plx_queue_pop(struct plx_queue *queue);

#define PLX_CONTAINER(pointer, type, member)                                                       \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

/* Several I/Os that one task waits for. The task becomes ready when the last one has completed. */
struct plx_join {
    unsigned pending;
    int error;             /* of the first I/O that failed */
    struct plx_task *task; /* NULL: a synchronous call polls pending */
};

struct plx_xfer {
    struct plx_io io;
    struct plx_store *store;
    struct plx_join *join;
    unsigned volume;
};

struct plx_volume {
    struct plx_device *device;
    struct plx_superblock super;
    unsigned slot; /* the slot that holds super */
    /* Generation of a superblock whose write failed. It may be on the medium all the same. */
    uint64_t attempted;
    bool mirrored; /* the other slot is its mirror copy */
    bool behind;   /* super says more than both slots do (VOLUME-5) */
    unsigned under_way;
    bool dirty; /* a write has completed since the last flush began */
    struct plx_xfer flush;
};

/* ---- Open extents (extent.c, alloc.c) ---- */

struct plx_extent {
    struct plx_extent *next;
    uint64_t number, base; /* base: the address of its first block */
    enum plx_extent_type type;
    enum plx_extent_type asked_as; /* UNUSED: by its number, to free blocks in it */
    bool ready;                    /* header durable: blocks may be allocated */
    bool sealed;
    uint64_t free_blocks;
    uint64_t cursor; /* where to look for a free block next */
    uint64_t *bits;  /* 1: allocated */
    struct plx_extent_page_state {
        uint64_t generation;
        uint64_t durable; /* the newest generation that is durable */
        uint8_t slot;     /* the slot that holds generation */
        bool dirty;       /* the bitmap in memory is newer */
        bool unflushed;   /* maybe not durable: goes to the same slot again */
        bool unmirrored;  /* durable, and its mirror copy is to be written */
    } * pages;
    struct plx_xfer xfer; /* of the load */
    struct plx_join join;
    struct iovec iov;
    void *buffer;
    struct plx_task task;
    struct plx_store *store;
    int state; /* LOAD_* (extent_inside.h); -1: leaving, page 0 is written with owner 0 */
    bool fresh;
    bool unused;                      /* a page of its header was never used (EXTENT-3) */
    uint64_t expected;                /* states, as the grant says; 0: not known */
    uint64_t told;                    /* states that plx_store_extents_risen() told */
    bool again;                       /* the header is to be rewritten as it was read (EXTENT-2) */
    struct plx_flush_mark flush_mark; /* before that */
    uint64_t granted, collections;    /* store->grants, ->collections at the grant */
    /* Blocks that were handed out since a collection began. NULL: no collection looks at this
     * extent. */
    uint64_t *born;
};

/* The moment at which a block was known to be dead: taken before the record that says so is
 * written. ALLOC-6 compares it with later grants and collections. */
struct plx_since {
    uint64_t grants, collections;
};

#define PLX_BITMAP_ROUND 16u

struct plx_bitmap_sync {
    struct plx_task task;
    struct plx_join join;
    struct plx_queue joining, running; /* who waits for the next pass; for this one */
    int state, error;
    struct plx_flush_mark flush_mark; /* when the pass began */
    struct plx_extent *extent;        /* where the pass is */
    uint32_t page;
    unsigned count;
    uint8_t *buffer; /* PLX_BITMAP_ROUND blocks */
    struct plx_xfer xfers[PLX_BITMAP_ROUND];
    struct iovec iovs[PLX_BITMAP_ROUND];
    struct plx_extent_page_state *written[PLX_BITMAP_ROUND];
    bool mirroring;
};

struct plx_wanted {
    bool asked;
    uint64_t denied_at_ns; /* monotonic; 0: never */
    int denied;            /* with this error */
    unsigned refused;      /* grants in a row that could not be used */
};

struct plx_store {
    struct plx_env *env;
    struct plx_store_options options;
    struct plx_store_info info;
    struct plx_volume volumes[PLX_VOLUMES_MAX];
    struct plx_extent_range *ranges; /* where extents lie, by their numbers (volume.c) */
    unsigned range_count;
    uint64_t addr_limit; /* blocks of all volumes: addresses are below this */
    struct plx_queue ready;
    struct plx_queue flush_joining, flush_running;
    struct plx_join flush_join;
    struct plx_task flush_task;
    bool flushing;
    unsigned instants_opening; /* by calls under way; not yet in the list of disks */
    uint64_t clones_made;
    uint64_t flush_failures; /* counted: see struct plx_flush_mark */
    int flush_error;         /* of the last failed flush */
    bool fenced;             /* TICK-5: writes and flushes fail from now on */
    struct plx_io *refused;  /* those I/Os, by io->next; the next turn completes them */
    /* TICK-6: writes and flushes that wait, in the order in which they came. Of each,
     * device_private is the device, and device_word the time since when it waits. */
    struct plx_io *held, *held_last;
    bool stalled; /* TICK-7 */
    struct plx_cache *cache;
    struct plx_extent *extents;
    struct plx_extent *dropped; /* no longer owned; a bitmap pass may still use them */
    uint64_t free_blocks[PLX_EXTENT_META + 1]; /* ALLOC-4 */
    struct plx_bitmap_sync bitmap_sync;
    struct plx_foreign { /* freed blocks in extents that this instance does not own (yet) */
        uint64_t *addrs;
        size_t count, capacity;
        bool asked;
        uint64_t extent; /* the extent that was asked for */
    } foreign;
    uint64_t grants;             /* extents that this instance was given so far */
    uint64_t collections;        /* the number that plx_store_set_collections() told */
    struct plx_collect *collect; /* the one that runs in this instance */
    bool sharing;                /* between plx_share_begin() and its end */
    struct plx_held_back {       /* freed metadata that comes back later (ALLOC-7) */
        uint64_t *addrs;
        size_t count, capacity;
        bool on, broken; /* broken: some came back early, because room was wanted */
    } held_back;
    struct plx_wanted wanted[PLX_EXTENT_META + 1];
    uint64_t promised; /* ALLOC-8 */
    struct { /* metadata blocks that are free in memory and still allocated on the store */
        uint64_t blocks;
        uint64_t before;       /* those freed before the present bitmap pass began */
        uint64_t failed_at_ns; /* monotonic, when the last pass failed; 0: it did not */
    } freed;
    struct plx_reserve { /* metadata kept for recovery: reserve.h */
        uint64_t blocks;
        struct plx_task task;
        bool passing;           /* a bitmap pass runs to make freed blocks usable */
        struct plx_vdi *relief; /* the disk whose key frame is written to lower the need */
    } reserve;
    struct plx_queue space_waiters;
    struct plx_queue room_waiters; /* writes that wait until history gives way */
    struct plx_vdi *vdis;
    struct plx_counters counters;
    void (*pump)(struct plx_store *store); /* starts what waits; every round of a turn calls it */
    struct plx_loop_part *parts;
    size_t turn_bytes; /* bytes whose checksums this turn has computed */
    bool in_tick;
};

/* ---- The loop ---- */

/* Something else that the loop drives, with devices of its own: a ring. */
struct plx_loop_part {
    bool (*turn)(struct plx_loop_part *part); /* once a turn, never blocks; true: there is more */
    unsigned (*under_way)(const struct plx_loop_part *part); /* I/Os that have not completed */
    void (*wait)(struct plx_loop_part *part);                /* blocks until one of them has */
    /* Its devices, numbered from 0 on; NULL: there are no more. */
    struct plx_device *(*device)(const struct plx_loop_part *part, unsigned index);
    struct plx_loop_part *next; /* the loop's */
};
void plx_loop_join(struct plx_store *store, struct plx_loop_part *part);
void plx_loop_leave(struct plx_store *store, struct plx_loop_part *part);

void plx_task_ready(struct plx_store *store, struct plx_task *task);
/* Empties a queue: what its tasks waited for has happened, with this result. */
void plx_queue_wake(struct plx_store *store, struct plx_queue *queue, int error);
/* Runs the loop until *pending is 0. For synchronous calls only. */
void plx_store_run_until_zero(struct plx_store *store, const unsigned *pending);
void plx_store_run_until_true(struct plx_store *store, const bool *done);

/* How a long synchronous call lets other calls in. */
struct plx_turns {
    uint64_t rate; /* bytes read per second at most; 0: no limit */
    /* Called while the caller has nothing under way, so disks may be opened, closed, made and
     * deleted in it. It should sleep for a moment, because it is called again and again while the
     * caller is faster than `rate`. May be NULL. */
    void (*pause)(void *context);
    bool (*interrupted)(void *context); /* may be NULL */
    void *context;
};
/* To be called between two steps. bytes: read since begun_ns. False: the caller is to stop. */
bool plx_store_take_turns(struct plx_store *store, const struct plx_turns *turns, uint64_t begun_ns,
                          uint64_t bytes);

/* The task of a synchronous call that waits. */
struct plx_waiter {
    struct plx_task task;
    bool woken;
};

void plx_waiter_step(struct plx_task *task);
#define PLX_WAITER ((struct plx_waiter){.task.step = plx_waiter_step})
/* Runs the loop until the task has become ready once, and returns the task's error. The waiter may
 * be used again afterwards. */
int plx_waiter_wait(struct plx_store *store, struct plx_waiter *waiter);

/* ---- I/O ---- */

/* Fills in a transfer: `bytes` bytes, from byte `offset` of block addr on, within one volume. From
 * now on the transfer counts as under way and join->pending includes it, so it must be submitted.
 */
void plx_store_prepare(struct plx_store *store, struct plx_xfer *xfer, enum plx_io_op op,
                       enum plx_io_kind kind, uint64_t addr, uint64_t offset, size_t bytes,
                       const struct iovec *iov, int iovcnt, struct plx_join *join);
/* Hands a prepared I/O to a volume's device. */
void plx_store_submit(struct plx_store *store, unsigned volume, struct plx_io *io);
/* Prepares and submits. */
void plx_store_xfer(struct plx_store *store, struct plx_xfer *xfer, enum plx_io_op op,
                    enum plx_io_kind kind, uint64_t addr, uint64_t offset, size_t bytes,
                    const struct iovec *iov, int iovcnt, struct plx_join *join);
int plx_store_read_sync(struct plx_store *store, enum plx_io_kind kind, uint64_t addr, void *buffer,
                        size_t bytes);
int plx_store_write_sync(struct plx_store *store, enum plx_io_kind kind, uint64_t addr,
                         const void *buffer, size_t bytes);
/* Writes from byte `offset` of block addr on. */
int plx_store_write_at_sync(struct plx_store *store, enum plx_io_kind kind, uint64_t addr,
                            uint64_t offset, const void *buffer, size_t bytes);
static inline struct plx_flush_mark plx_flush_mark(const struct plx_store *of)
{
    return (struct plx_flush_mark){of->flush_failures};
}

static inline bool plx_flush_failed_since(const struct plx_store *of, struct plx_flush_mark mark)
{
    return mark.failures != of->flush_failures;
}

static inline struct plx_flush_mark plx_flush_mark_older(struct plx_flush_mark a,
                                                         struct plx_flush_mark b)
{
    return a.failures < b.failures ? a : b;
}

/* Makes durable what has completed so far. The task becomes ready then, with the flush's error.
 *
 * since: the mark from before the caller's first write. If a flush failed
 * after that, or fails before this one begins, the caller's writes may be gone, and this call
 * fails, too (TICK-2). */
void plx_store_flush(struct plx_store *store, struct plx_task *task, struct plx_flush_mark since);
int plx_store_flush_sync(struct plx_store *store, struct plx_flush_mark since);
/* The largest logical block of the store's volumes, to which log batches are padded. */
uint32_t plx_store_device_block(const struct plx_store *store);
void plx_store_event(struct plx_store *store, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- Extents and allocation ---- */

#define PLX_WAIT 1 /* not an error: the task stands in a queue and becomes ready later */

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
/* Asks for an extent in which freed blocks lie. Called once in every turn. */
void plx_alloc_foreign_pump(struct plx_store *store);
/* The environment has answered: the blocks are freed, or forgotten if the extent did not come. */
void plx_alloc_foreign_answered(struct plx_store *store, uint64_t extent);
/* Marks blocks as allocated, for replay. Skips extents that this instance does not own, because it
 * allocates nothing there. */
void plx_alloc_mark(struct plx_store *store, uint64_t addr, uint64_t count);
uint64_t plx_alloc_free_blocks(const struct plx_store *store, enum plx_extent_type type);
/* Queues the task until an extent arrives or space is freed (PLX_WAIT). If neither is to be
 * expected: NOSPACE, or the reason why the last extent did not come. */
int plx_alloc_wait(struct plx_store *store, enum plx_extent_type type, struct plx_task *task);
/* Whether a data or metadata extent has been asked for and not answered. */
bool plx_alloc_asks(const struct plx_store *store);
/* No extent came: the next one is asked for only after a while. */
void plx_alloc_denied(struct plx_store *store, enum plx_extent_type type, int error);
/* The extent that came was of no use. Asks for another one, unless there were too many such. */
void plx_alloc_refused(struct plx_store *store, enum plx_extent_type type, int error);
void plx_alloc_wake(struct plx_store *store);  /* space was freed: all waiters look again */
void plx_alloc_grown(struct plx_store *store); /* the store is larger: refusals are forgotten */
/* Asks for one more extent if fewer than `blocks` blocks are free and not promised (ALLOC-5). */
void plx_alloc_spare(struct plx_store *store, enum plx_extent_type type, uint64_t blocks);

struct plx_extent *plx_extent_find(const struct plx_store *store, uint64_t number);
void plx_extent_free_all(struct plx_store *store);
/* Makes blocks of the extent available, or no longer so. */
void plx_extent_set_ready(struct plx_extent *extent, bool ready);
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
void plx_bitmap_sync_init(struct plx_store *store);

uint64_t plx_log_segment_bytes(const struct plx_store *store);
uint32_t plx_vdi_slot_count(const struct plx_store *store);
/* Address of slot A of a VDI record. */
uint64_t plx_vdi_slot_addr(const struct plx_store *store, uint32_t slot);

#endif
