/* store.h - inside the engine: the loop, device I/O in store addresses, flushing, open extents.
 *
 * Work on the loop is a struct plx_task: a step function that runs without blocking and is called
 * again when what it waits for has happened. A task waits for one thing at a time: a join of I/Os,
 * a flush, a node, space, or its turn in a queue.
 */
#ifndef PLX_STORE_H
#define PLX_STORE_H

#include "engine/engine.h"
#include "engine/format/format.h"
#include "engine/loop/cache.h"

struct plx_task {
    void (*step)(struct plx_task *task);
    struct plx_task *next;
    bool queued;
    int error; /* set by what the task waited for */
};

struct plx_queue {
    struct plx_task *head, *tail;
};

void plx_queue_push(struct plx_queue *queue, struct plx_task *task);
struct plx_task *plx_queue_pop(struct plx_queue *queue);

#define PLX_CONTAINER(pointer, type, member)                                                       \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

/* Several I/Os, one task: the task becomes ready when the last has completed. */
struct plx_join {
    unsigned pending;
    int error;             /* the first one */
    struct plx_task *task; /* NULL: somebody polls pending */
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
    unsigned slot;      /* which holds it */
    uint64_t attempted; /* generation of a superblock that could not be written, but may be there */
    bool mirrored;      /* so does the other, in the generation before */
    bool behind;        /* neither says what super does (VOLUME-5) */
    unsigned under_way;
    bool dirty; /* a write completed since the last flush began */
    struct plx_xfer flush;
};

/* ---- Open extents (extent.c, alloc.c) ---- */

struct plx_extent {
    struct plx_extent *next;
    uint64_t number, base; /* base: address of its first block */
    enum plx_extent_type type;
    enum plx_extent_type asked_as; /* UNUSED: by number, to free blocks in it */
    bool ready;                    /* header durable: may be allocated from */
    bool sealed;
    uint64_t free_blocks;
    uint64_t cursor; /* block to look at next */
    uint64_t *bits;  /* 1: allocated */
    struct plx_extent_page_state {
        uint64_t generation;
        uint64_t durable; /* the newest generation that is known to be */
        uint8_t slot;     /* holds that generation */
        bool dirty;       /* the bitmap in memory is newer */
        bool unflushed;   /* written, not known to be durable: the same slot is written again */
        bool unmirrored;  /* durable in one slot only */
    } * pages;
    struct plx_xfer xfer; /* loading */
    struct plx_join join;
    struct iovec iov;
    void *buffer;
    struct plx_task task;
    struct plx_store *store;
    int state;
    bool fresh;
    bool unused;       /* a page of its header was never used (EXTENT-3) */
    uint64_t expected; /* states, by its grant; 0: not known */
    uint64_t told;     /* states, by plx_store_extents_risen() */
    /* what was read of its header is to be written again (EXTENT-2) */
    bool again;
    uint64_t flush_mark;           /* store->flush_failures before it was */
    uint64_t granted, collections; /* what store->grants and ->collections were then */
    uint64_t *born; /* handed out since a collection began; NULL: it looks elsewhere */
};

/* When something was known to be dead: before the record was written that says so. */
struct plx_since {
    uint64_t grants, collections;
};

#define PLX_BITMAP_ROUND 16u

struct plx_bitmap_sync {
    struct plx_task task;
    struct plx_join join;
    struct plx_queue joining, running; /* who waits for the next pass, for this one */
    int state, error;
    uint64_t flush_mark;       /* store->flush_failures when the pass began */
    struct plx_extent *extent; /* the pass's cursor */
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
    int denied;            /* why */
    unsigned refused;      /* grants in a row that could not be used */
};

struct plx_store {
    struct plx_env *env;
    struct plx_store_options options;
    struct plx_store_info info;
    struct plx_volume volumes[PLX_VOLUMES_MAX];
    struct plx_extent_range *ranges; /* where the extents lie, by their numbers (volume.c) */
    unsigned range_count;
    uint64_t addr_limit; /* blocks of all volumes */
    struct plx_queue ready;
    struct plx_queue flush_joining, flush_running;
    struct plx_join flush_join;
    struct plx_task flush_task;
    bool flushing;
    unsigned instants_opening; /* by calls under way: not in the list of disks yet */
    uint64_t clones_made;
    uint64_t flush_failures; /* each may have lost what had completed and was not yet flushed */
    int flush_error;         /* of the last one */
    bool fenced;             /* TICK-5: nothing is written any more */
    struct plx_io *refused;  /* for that; completed by the next turn. By io->next */
    struct plx_cache *cache;
    struct plx_extent *extents;
    struct plx_extent *dropped; /* no longer owned, but a bitmap pass may hold on to them */
    uint64_t free_blocks[PLX_EXTENT_META + 1]; /* in ready extents */
    struct plx_bitmap_sync bitmap_sync;
    struct plx_foreign { /* freed blocks in extents that this instance does not own (yet) */
        uint64_t *addrs;
        size_t count, capacity;
        bool asked;
        uint64_t extent; /* asked for */
    } foreign;
    uint64_t grants;             /* extents that this instance was given so far */
    uint64_t collections;        /* plx_store_set_collections() */
    struct plx_collect *collect; /* under way here */
    bool sharing;                /* plx_share_begin() */
    struct plx_held_back {       /* blocks that come back later (ALLOC-7) */
        uint64_t *addrs;
        size_t count, capacity;
        bool on, broken; /* broken: some had to come back all the same */
    } held_back;
    struct plx_wanted wanted[PLX_EXTENT_META + 1];
    struct { /* blocks of metadata that are free here, and still allocated on the store */
        uint64_t blocks;
        uint64_t before;       /* of these: before the bitmap pass that is under way began */
        uint64_t failed_at_ns; /* monotonic: the last pass; 0: it did not fail */
    } freed;
    struct plx_reserve { /* of metadata: reserve.h */
        uint64_t blocks;
        struct plx_task task;
        bool passing;           /* a bitmap pass is made to have what was freed */
        struct plx_vdi *relief; /* whose key frame is written to need less */
    } reserve;
    struct plx_queue space_waiters;
    struct plx_queue room_waiters; /* writes, for history to give way */
    struct plx_vdi *vdis;
    struct plx_counters counters;
    void (*pump)(struct plx_store *store); /* starts what waits, in each round of a turn */
    size_t turn_bytes;                     /* whose checksums were computed in this turn */
    bool in_tick;
};

/* ---- The loop ---- */

void plx_task_ready(struct plx_store *store, struct plx_task *task);
/* Runs the loop until *pending is 0. Synchronous calls only. */
void plx_store_run_until_zero(struct plx_store *store, const unsigned *pending);
void plx_store_run_until_true(struct plx_store *store, const bool *done);

/* How a synchronous call that reads much lets others come in. */
struct plx_turns {
    uint64_t rate; /* bytes read a second at most, 0: no limit */
    /* Nothing of the caller is under way when it is called: disks may be opened, closed, made and
     * deleted meanwhile. Takes a moment: it is called again and again while it goes faster than
     * `rate`. May be NULL. */
    void (*pause)(void *context);
    bool (*interrupted)(void *context); /* may be NULL */
    void *context;
};
/* Between two steps, so many bytes having been read since it began. false: interrupted. */
bool plx_store_take_turns(struct plx_store *store, const struct plx_turns *turns, uint64_t begun_ns,
                          uint64_t bytes);

/* What a synchronous call hands in as the task that waits. */
struct plx_waiter {
    struct plx_task task;
    bool woken;
};

void plx_waiter_step(struct plx_task *task);
#define PLX_WAITER ((struct plx_waiter){.task.step = plx_waiter_step})
/* Runs the loop until the task was ready once; returns its error. May be waited on again. */
int plx_waiter_wait(struct plx_store *store, struct plx_waiter *waiter);

/* ---- I/O ---- */

/* Says what a transfer is to do: bytes at byte `offset` from block addr. The range lies in one
 * volume. It counts as under way and join->pending is raised from now on: it must be submitted. */
void plx_store_prepare(struct plx_store *store, struct plx_xfer *xfer, enum plx_io_op op,
                       enum plx_io_kind kind, uint64_t addr, uint64_t offset, size_t bytes,
                       const struct iovec *iov, int iovcnt, struct plx_join *join);
/* Hands an I/O to a volume's device. */
void plx_store_submit(struct plx_store *store, unsigned volume, struct plx_io *io);
/* Both at once. */
void plx_store_xfer(struct plx_store *store, struct plx_xfer *xfer, enum plx_io_op op,
                    enum plx_io_kind kind, uint64_t addr, uint64_t offset, size_t bytes,
                    const struct iovec *iov, int iovcnt, struct plx_join *join);
int plx_store_read_sync(struct plx_store *store, enum plx_io_kind kind, uint64_t addr, void *buffer,
                        size_t bytes);
int plx_store_write_sync(struct plx_store *store, enum plx_io_kind kind, uint64_t addr,
                         const void *buffer, size_t bytes);
/* The same, at byte `offset` from block addr. */
int plx_store_write_at_sync(struct plx_store *store, enum plx_io_kind kind, uint64_t addr,
                            uint64_t offset, const void *buffer, size_t bytes);
/* Makes what has completed durable; the task becomes ready then, with its error. since: what
 * flush_failures was before the first write that is to be covered; if a flush has failed after that
 * or fails before this one has begun, the write may be gone, and this one fails as well. */
void plx_store_flush(struct plx_store *store, struct plx_task *task, uint64_t since);
int plx_store_flush_sync(struct plx_store *store, uint64_t since);
/* The largest device block of the store's volumes: log batches are padded to it. */
uint32_t plx_store_device_block(const struct plx_store *store);
void plx_store_event(struct plx_store *store, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- Extents and allocation ---- */

#define PLX_WAIT 1 /* not an error: the task was put into a queue and will be ready again */

/* Allocates up to want adjacent blocks. Returns 0, NOSPACE, or PLX_WAIT after having queued the
 * task (NULL: never waits). */
int plx_alloc_run(struct plx_store *store, enum plx_extent_type type, uint64_t want,
                  struct plx_task *task, uint64_t *ret_addr, uint64_t *ret_count);
/* Allocates exactly so many adjacent data blocks, for what could as well stay where it is: leaves a
 * reserve to writes, and asks for no extent without a task. */
int plx_alloc_adjacent(struct plx_store *store, uint64_t want, struct plx_task *task,
                       uint64_t *ret_addr);
/* Allocates exactly one log segment. */
int plx_alloc_segment(struct plx_store *store, struct plx_task *task, uint64_t *ret_addr);
int plx_alloc_segment_sync(struct plx_store *store, uint64_t *ret_addr);
/* Frees blocks in extents that have been this instance's since they were allocated. */
void plx_alloc_free(struct plx_store *store, uint64_t addr, uint64_t count);
/* Frees what has died. Extents of nobody are taken over for it; blocks in others', and what a
 * collection may have come across since, are left to the collector. */
void plx_alloc_free_dead(struct plx_store *store, uint64_t addr, const struct plx_since *since);
struct plx_since plx_store_since(const struct plx_store *store);
/* What metadata is freed from now on stays allocated until it is turned off; or comes back early,
 * when room is wanted, and the call that turns it off returns false. */
void plx_alloc_hold_back(struct plx_store *store);
bool plx_alloc_let_go(struct plx_store *store);
/* Some that are held back come back now: true, if there are any. */
bool plx_alloc_give_way(struct plx_store *store);
/* Asks for the extents that freed blocks lie in. Called once a turn. */
void plx_alloc_foreign_pump(struct plx_store *store);
/* The extent asked for is here (or will not come): frees its blocks (or forgets them). */
void plx_alloc_foreign_answered(struct plx_store *store, uint64_t extent);
/* Marks blocks as allocated (replay). Blocks in extents of others are sealed away already. */
void plx_alloc_mark(struct plx_store *store, uint64_t addr, uint64_t count);
uint64_t plx_alloc_free_blocks(const struct plx_store *store, enum plx_extent_type type);
/* Queues the task until an extent arrives or space is freed (PLX_WAIT), or why none will: NOSPACE,
 * or what went wrong with the last one asked for. */
int plx_alloc_wait(struct plx_store *store, enum plx_extent_type type, struct plx_task *task);
/* Whether the registry has been asked for one. */
bool plx_alloc_asks(const struct plx_store *store);
/* Nothing came of an extent asked for: it is not asked for again at once. */
void plx_alloc_denied(struct plx_store *store, enum plx_extent_type type, int error);
/* The extent that came was of no use: another one is asked for, unless it is one too many. */
void plx_alloc_refused(struct plx_store *store, enum plx_extent_type type, int error);
void plx_alloc_wake(struct plx_store *store);  /* after freeing: who waits for space looks again */
void plx_alloc_grown(struct plx_store *store); /* there is more of it: who was refused asks again */
/* Asks for one more extent when fewer blocks than this are free: ahead of need. */
void plx_alloc_spare(struct plx_store *store, enum plx_extent_type type, uint64_t blocks);

struct plx_extent *plx_extent_find(const struct plx_store *store, uint64_t number);
void plx_extent_free_all(struct plx_store *store);
/* Whether the extent may be allocated from. */
void plx_extent_set_ready(struct plx_extent *extent, bool ready);
/* From now on (or no longer) what is handed out in owned extents is noted. NOMEM. */
int plx_extent_note_born(struct plx_store *store);
void plx_extent_forget_born(struct plx_store *store);
/* Whether a block was handed out since then, or may have been. */
bool plx_extent_used_again(const struct plx_store *store, uint64_t addr);
/* An extent's bitmap, from memory or the store: room for one bit a block. */
int plx_extent_read_bits(struct plx_store *store, uint64_t number, uint64_t *ret_bits,
                         struct plx_fault *fault);
/* Writes every dirty bitmap page, then flushes; the task becomes ready with its error. */
void plx_bitmap_sync(struct plx_store *store, struct plx_task *task);
int plx_bitmap_sync_run(struct plx_store *store);
void plx_bitmap_sync_init(struct plx_store *store);

uint64_t plx_log_segment_bytes(const struct plx_store *store);
uint32_t plx_vdi_slot_count(const struct plx_store *store);
/* Address of slot A of a VDI record. */
uint64_t plx_vdi_slot_addr(const struct plx_store *store, uint32_t slot);

#endif
