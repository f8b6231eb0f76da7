/* vdi.h - inside the engine: an open virtual disk (VDI) and its operations in progress.
 *
 * A struct plx_vdi is a disk that is open for writing, or a snapshot that is open read-only
 * (`snapshot`). It belongs to its store, whose loop drives it: plx_vdi_pump() once a turn. Its
 * parts have headers of their own: map.h (where blocks lie), log.h (what makes changes durable),
 * keyframe.h (checkpoints of the map), protect.h (automatic snapshots), vouch.h (checksums that
 * come back), reserve.h (room for recovery), op.h (the data path).
 *
 * Public calls are in engine.h; here is what the other files of the engine use. Calls marked
 * synchronous run the loop while they wait; all others return at once.
 */
#ifndef PLX_VDI_H
#define PLX_VDI_H

#include "engine/disk/front.h"
#include "engine/disk/keyframe.h"
#include "engine/disk/protect.h"
#include "engine/disk/reserve.h"
#include "engine/disk/vouch.h"
#include "engine/log/log.h"
#include "engine/loop/gather.h"
#include "engine/loop/record.h"
#include "engine/map/map.h"

#define PLX_WINDOW_BLOCKS 256u /* a request is worked on in windows of at most 1 MiB */
#define PLX_OP_XFERS 64u       /* transfers and memory pieces that one window can have */
#define PLX_OP_IOVS 384u

/* What happens to a block of a window that is written (issue.c has the table). */
enum plx_action {
    PLX_ACTION_SKIP,  /* zeroes where nothing is mapped */
    PLX_ACTION_UNMAP, /* zeroes over something */
    PLX_ACTION_IN_PLACE,
    PLX_ACTION_NEW,
};

/* Blocks of one MAP or UNMAP record: adjacent on the disk and on the store. */
struct plx_piece {
    uint64_t vblock, addr; /* addr 0: UNMAP */
    uint32_t count;
};

/* Adjacent free blocks of the store that were allocated ahead. */
struct plx_run {
    uint64_t addr, count;
};

/* An operation: one request in progress (op.h). Allocated when the disk is opened. */
struct plx_op {
    struct plx_task task;
    struct plx_vdi *vdi;
    struct plx_request *request;
    const struct plx_op_kind *kind; /* the request's; what a COMPARE_WRITE goes on as */
    struct plx_op *next, *previous; /* of the active ones, oldest first; or the next free one */
    uint64_t ticket;                /* rises with each operation of the disk */
    int state;                      /* OP_... (op.h) */
    /* in_place: the window's writes in place are not known to be durable yet. locks: it holds its
     * window's range, or waits for it (WINDOW-1). */
    bool active, in_place, locks;
    uint64_t data_skip;  /* bytes of the request's memory that its data lies behind */
    uint64_t done_bytes; /* of the request, in windows that are done */
    /* The window: */
    uint64_t first_block;
    unsigned blocks, looked_up;
    uint32_t head_skip, tail_skip; /* bytes of the first and last block outside the request */
    size_t window_bytes;
    uint64_t gen;          /* the map's generation when the mappings were looked up */
    uint64_t base_changes; /* the map's base_changes then */
    unsigned blocks_read;  /* blocks of the window whose reads were submitted, or are not needed */
    /* edges_read: `edges` has the old contents of partly covered blocks. compares: it has the
     * disk's compare buffer. */
    bool edges_read, compares;
    bool labels; /* counted in labels_begun, not yet in labels_ended */
    /* The VOID record of the window (ISSUE-1). again: it is logged a second time. encoded: it was
     * formed, and the map has lost the checksums. covered: a second time is not needed. */
    bool void_again, void_encoded, void_covered;
    uint64_t flush_seq, cache_changes; /* PLX_FLUSH: what was applied when the flush began */
    struct plx_flush_mark flush_mark;  /* before the window's first write */
    unsigned retries;
    unsigned room_waits;               /* see plx_reserve_wait() */
    uint64_t windows_left, moves_left; /* PLX_MOVE: what it may still look at, and move */
    struct plx_walk walk;
    struct plx_mapping mappings[PLX_WINDOW_BLOCKS];
    uint8_t actions[PLX_WINDOW_BLOCKS];
    uint32_t checksums[PLX_WINDOW_BLOCKS];
    struct plx_piece pieces[PLX_WINDOW_BLOCKS / 2]; /* enough for a move of every second block */
    unsigned piece_count;
    uint64_t void_leaf;
    uint32_t void_count;
    struct plx_join join;
    struct plx_log_item item;
    struct plx_op *seen_by; /* the snapshot that waits for this write in place (LONE-1) */
    struct plx_xfer xfers[PLX_OP_XFERS];
    unsigned xfer_count;
    struct iovec iovs[PLX_OP_IOVS];
    unsigned iov_count;
    uint8_t *edges; /* two blocks: all of the first and last block, if the request covers a part */
};

/* What this room knows of all disks of a store. */
struct plx_disks {
    struct plx_reserve reserve;
    unsigned instants_opening; /* by calls under way; not yet in the list of disks */
    uint64_t clones_made;
    bool sharing;    /* between plx_share_begin() and its end */
    bool collecting; /* a collection runs in this instance; never both (SHARE-5) */
};
int plx_disks_init(struct plx_store *store);
void plx_disks_free(struct plx_store *store);

struct plx_vdi {
    struct plx_vdi *next;
    struct plx_store *store;
    struct plx_vdi_record record; /* as it is durable on the store */
    uint8_t record_slot;          /* the slot that holds it, 0 or 1 */
    bool snapshot;                /* this is a snapshot, open read-only */
    bool copy_always;             /* overwrite=copy: nothing is written in place */
    bool write_back;              /* as asked for: FRONT-5 */
    uint64_t cache_changes;       /* a flush that began before the last one leaves unflushed set */
    bool unflushed;               /* reads may show what only the device's cache has */
    struct plx_flush_mark flush_mark; /* when `unflushed` was set */
    bool closing;
    bool recovered;        /* by opening it here, and plx_vdi_use() was not called since */
    struct plx_past *past; /* what history keeps, in one piece; NULL: nothing yet */
    bool barrier;          /* submitted requests wait; only the engine's own begin */
    uint64_t labels_begun, labels_ended; /* how many PLX_LABEL requests have begun, and ended */
    uint64_t size_bytes;
    struct plx_map map;
    struct plx_log log;
    struct plx_keyframe_op keyframe;
    struct plx_op *ops, *free_ops; /* free_ops: the free ones among those that were ever used */
    unsigned free_op_count, ops_touched;
    uint8_t *op_edges;
    struct plx_op *oldest, *newest; /* active operations */
    uint64_t tickets;
    struct plx_request *waiting, *last_waiting; /* requests that wait for a free operation */
    /* Tasks that wait for a range, for VOID records, for older operations to end or to let go of
     * their addresses (plx_ops_ended_before()), and for the compare buffer. */
    struct plx_queue range_waiters, void_waiters, ticket_waiters, compare_waiters;
    unsigned voids_pending; /* VOID records that are being logged */
    uint8_t *compare_buffer;
    bool compare_busy;
    /* The next key frame writes it into the record (FRONT-2). */
    struct plx_ring_mark mark;
    struct plx_front *front;   /* NULL: none */
    bool changed;              /* since the last snapshot, or perhaps */
    uint64_t last_snapshot_ns; /* of the newest that was ordered */
    uint64_t gen_ns;           /* of snapshot map.gen: what a key frame says */
    struct plx_witness witness;
    struct plx_protect protect;
    struct plx_vouch vouch;
    struct plx_run run; /* new blocks are taken from it */
    uint64_t reserve;   /* the disk's part of store->disks->reserve.blocks */
    struct plx_gather gather;
    struct plx_counters counters;
    struct plx_fault fault;
};

/* Whether a ring may have what the disk lacks, and the ring is not there (FRONT-1). */
static inline bool plx_front_is_away(const struct plx_vdi *vdi)
{
    return !vdi->front && (plx_ring_is_marked(&vdi->mark) || plx_ring_is_marked(&vdi->record.mark));
}

/* request.c, op.c, room.c */
int plx_ops_init(struct plx_vdi *vdi);
void plx_ops_done(struct plx_vdi *vdi);
/* The disk's turn: starts waiting requests, key frames, automatic snapshots and vouches, submits
 * gathered writes, forms log batches. */
void plx_vdi_pump(struct plx_vdi *vdi);
/* Admits requests that wait, as far as operations are free. */
void plx_vdi_admit_waiting(struct plx_vdi *vdi);
/* Whether nothing is under way. Requests that a barrier holds back do not count. */
bool plx_vdi_idle(const struct plx_vdi *vdi);
/* Submits a request of the engine's own, which waits for no other request (REQUEST-1). */
void plx_vdi_submit_own(struct plx_vdi *vdi, struct plx_request *request);
/* Whether there is room for the metadata of a write to `blocks` new blocks, beside the reserve
 * (reserve.h, INV-8): 0, NOSPACE or NOMEM. */
int plx_vdi_metadata_room(struct plx_vdi *vdi, uint64_t blocks);
/* Waits for such room (of no blocks), as long as there is something to wait for. Synchronous. */
int plx_vdi_wait_metadata_room(struct plx_vdi *vdi);
/* Notes that what was or will be acknowledged may be in the device's cache only, until a flush has
 * ended. */
void plx_vdi_set_unflushed(struct plx_vdi *vdi);
/* Whether every operation with a ticket below `ticket` has ended, or holds no addresses that it
 * looked up (in_place_only: or does not write in place). If not, the task is queued and becomes
 * ready when that may have changed. */
bool plx_ops_ended_before(struct plx_vdi *vdi, uint64_t ticket, bool in_place_only,
                          struct plx_task *task);

/* logged.c */
extern const struct plx_log_disk plx_logged;
/* The time for a snapshot that is taken now. Each one is later than the one before. */
uint64_t plx_vdi_snapshot_time(struct plx_vdi *vdi);
/* Tells whoever keeps it that the witness has to be kept (disk_clock.c). */
void plx_vdi_tell_witness(struct plx_vdi *vdi);

/* vdi.c, instant.c, op.c, vdi_create.c, mapped.c */
/* Whether the disk in that slot is open here and is just letting this snapshot go. */
bool plx_vdi_lets_go(const struct plx_store *store, uint32_t slot, uint64_t seq);
/* Runs the loop until nothing of the disk is under way. Synchronous. */
void plx_vdi_drain(struct plx_vdi *vdi);
/* Fills in the fault for an error of a request; if the disk has stopped, with the cause of that.
 * Returns the error. */
int plx_vdi_fault(const struct plx_vdi *vdi, int error, struct plx_fault *fault);
/* Writes the map of an open snapshot out as a tree of its own, for a clone or a rewind. It has the
 * depth for a disk of size_bytes, and shares with the snapshot all nodes that it can; `made` are
 * the new ones. Synchronous. While it waits, what takes long asks `interrupted`, if that is not
 * NULL: true ends it (SYSTEM). */
struct plx_whole {
    uint64_t root;
    unsigned levels;
    uint64_t mapped, vouched;
    struct plx_deaths made;
    bool (*interrupted)(void *context); /* set by the caller, as context is */
    void *context;
};
int plx_vdi_write_whole(struct plx_vdi *instant, uint64_t size_bytes, struct plx_whole *ret_whole);
/* After a lookup of vblock with this walk has found nothing: the block up to which surely nothing
 * is mapped. */
uint64_t plx_vdi_absent_end(const struct plx_vdi *vdi, const struct plx_walk *walk,
                            uint64_t vblock);
/* Calls visit for each mapped block from *vblock on, with at most `lookups` lookups. Returns in
 * *vblock where to go on; UINT64_MAX: the end of the disk was reached. Synchronous. */
int plx_vdi_each_mapping(struct plx_vdi *vdi, unsigned lookups, uint64_t *vblock,
                         void (*visit)(void *context, uint64_t vblock,
                                       const struct plx_mapping *mapping),
                         void *context, struct plx_fault *fault);

#endif
