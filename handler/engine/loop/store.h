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

#define PLX_WAIT 1 /* not an error: the task stands in a queue and becomes ready later */

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

struct plx_store {
    struct plx_env *env;
    struct plx_store_options options;
    struct plx_store_info info;
    struct plx_volume volumes[PLX_VOLUMES_MAX];
    struct plx_extent_range *ranges; /* where extents lie, by their numbers (volume.c) */
    unsigned range_count;
    uint64_t addr_limit;     /* blocks of all volumes: addresses are below this */
    struct plx_tick *tick;   /* tick.c */
    uint64_t flush_failures; /* counted: see struct plx_flush_mark */
    int flush_error;         /* of the last failed flush */
    bool fenced;             /* TICK-5: writes and flushes fail from now on */
    struct plx_cache *cache;
    struct plx_allocator *allocator; /* extents and free blocks: space/ */
    struct plx_disks *disks;         /* what disk/ knows of all of them */
    struct plx_vdi *vdis;            /* those that are open here */
    struct plx_counters counters;
    void (*pump)(struct plx_store *store); /* starts what waits; every round of a turn calls it */
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
/* The loop's part of a store: NOMEM. */
int plx_tick_init(struct plx_store *store);
void plx_tick_free(struct plx_store *store);
/* The turn has computed the checksums of so many bytes (TICK-4). */
void plx_tick_computed(struct plx_store *store, size_t bytes);
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

uint64_t plx_log_segment_bytes(const struct plx_store *store);
uint32_t plx_vdi_slot_count(const struct plx_store *store);
/* Address of slot A of a VDI record. */
uint64_t plx_vdi_slot_addr(const struct plx_store *store, uint32_t slot);

#endif
