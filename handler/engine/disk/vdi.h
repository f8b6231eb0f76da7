/* vdi.h - inside the engine: an open virtual disk and its operations in progress. */
#ifndef PLX_VDI_H
#define PLX_VDI_H

#include "engine/disk/keyframe.h"
#include "engine/disk/protect.h"
#include "engine/disk/vouch.h"
#include "engine/log/log.h"
#include "engine/loop/gather.h"
#include "engine/loop/record.h"
#include "engine/loop/store.h"
#include "engine/map/map.h"

#define PLX_WINDOW_BLOCKS 256u /* a request is worked on in windows of at most 1 MiB */
#define PLX_OP_XFERS 64u
#define PLX_OP_IOVS 384u

/* What happens to a block of a write window. */
enum plx_action {
    PLX_ACTION_SKIP,  /* zeroes where nothing is mapped */
    PLX_ACTION_UNMAP, /* zeroes over something */
    PLX_ACTION_IN_PLACE,
    PLX_ACTION_NEW,
};

/* Adjacent blocks in one log record. */
struct plx_piece {
    uint64_t vblock, addr; /* addr 0: UNMAP */
    uint32_t count;
};

/* Adjacent blocks of the store. */
struct plx_run {
    uint64_t addr, count;
};

/* One request in progress. Allocated when the VDI opens. */
struct plx_op {
    struct plx_task task;
    struct plx_vdi *vdi;
    struct plx_request *request;
    struct plx_op *next, *previous; /* of the active ones, oldest first; or the next free one */
    uint64_t ticket;
    int state;
    bool active, in_place, locks; /* in_place: such writes are under way; locks: a range */
    uint64_t done_bytes;
    /* The window: */
    uint64_t first_block;
    unsigned blocks, looked_up;
    uint32_t head_skip, tail_skip; /* bytes of the first and last block outside the request */
    size_t window_bytes;
    uint64_t gen;          /* for which the mappings were looked up */
    uint64_t base_changes; /* and in which base, of a PLX_VOUCH */
    bool edges_read, compared, compare_held;
    bool labels; /* counted in labels_begun, not yet in labels_ended */
    bool void_again, void_encoded, void_covered;
    uint64_t flush_seq, cache_changes; /* when a flush began */
    uint64_t flush_mark;               /* store->flush_failures before the window's first write */
    unsigned retries;
    unsigned room_waits;               /* plx_reserve_wait() */
    uint64_t windows_left, moves_left; /* of a move; and how much of this window has been read */
    unsigned moves_read;
    struct plx_walk walk;
    struct plx_mapping mappings[PLX_WINDOW_BLOCKS];
    uint8_t actions[PLX_WINDOW_BLOCKS];
    uint32_t checksums[PLX_WINDOW_BLOCKS];
    struct plx_piece pieces[PLX_WINDOW_BLOCKS / 2]; /* a move's lie between what stays */
    unsigned piece_count;
    uint64_t void_leaf;
    uint32_t void_count;
    struct plx_join join;
    struct plx_log_item item;
    struct plx_op *seen_by; /* a snapshot that sees what is being written in place (LONE-1) */
    struct plx_xfer xfers[PLX_OP_XFERS];
    unsigned xfer_count;
    struct iovec iovs[PLX_OP_IOVS];
    unsigned iov_count;
    uint8_t *edges; /* two blocks: whole contents of partly covered first and last block */
};

struct plx_vdi {
    struct plx_vdi *next;
    struct plx_store *store;
    struct plx_vdi_record record; /* as durable on the store */
    uint8_t record_slot;          /* which of the two holds it */
    bool snapshot;                /* read only */
    bool copy_always;
    uint64_t cache_changes; /* how often something other than a flush set unflushed */
    bool unflushed;         /* what can be read may lie in the device's cache only */
    uint64_t flush_mark;    /* store->flush_failures when it began to */
    bool closing;
    bool recovered;                      /* it was not closed before it was opened */
    bool thinning;                       /* plx_vdi_thin() is under way */
    struct plx_thrift *thrift;           /* thrift.c; NULL: no thrifty thinning yet */
    bool rewinding;                      /* plx_vdi_rewind() is */
    bool barrier;                        /* nothing that is submitted begins */
    uint64_t labels_begun, labels_ended; /* requests */
    uint64_t size_bytes;
    struct plx_map map;
    struct plx_log log;
    struct plx_keyframe_op keyframe;
    struct plx_op *ops, *free_ops; /* free_ops: of those that were used before */
    unsigned free_op_count, ops_touched;
    uint8_t *op_edges;
    struct plx_op *oldest, *newest; /* active */
    uint64_t tickets;
    struct plx_request *waiting, *last_waiting; /* for a free op */
    struct plx_queue range_waiters, void_waiters, ticket_waiters, compare_waiters;
    unsigned voids_pending;
    uint8_t *compare_buffer;
    bool compare_busy;
    bool changed; /* since the last snapshot */
    uint64_t last_snapshot_ns;
    struct plx_witness witness;
    struct plx_protect protect;
    struct plx_vouch vouch;
    struct plx_run run; /* to allocate from */
    uint64_t reserve;   /* its part of store->reserve.blocks */
    struct plx_gather gather;
    struct plx_counters counters;
    struct plx_fault fault;
};

/* request.c, op.c, room.c */
int plx_ops_init(struct plx_vdi *vdi);
void plx_ops_done(struct plx_vdi *vdi);
/* One turn: starts waiting requests, key frames, forms batches. */
void plx_vdi_pump(struct plx_vdi *vdi);
/* Nothing is under way; what a barrier holds back does not count. */
bool plx_vdi_idle(const struct plx_vdi *vdi);
/* The automatic snapshot, ahead of requests that wait (REQUEST-1). */
void plx_vdi_submit_own(struct plx_vdi *vdi, struct plx_request *request);
/* Room for a write to so many new blocks (INV-8, reserve.h): 0, NOSPACE or NOMEM. */
int plx_vdi_metadata_room(struct plx_vdi *vdi, uint64_t blocks);
/* Waits for it, as long as extents may come. Synchronous. */
int plx_vdi_wait_metadata_room(struct plx_vdi *vdi);
/* What was or will be acknowledged is in the device's cache only, until a flush has ended. */
void plx_vdi_set_unflushed(struct plx_vdi *vdi);
/* Whether every operation begun before `ticket` that uses what it looked up then has ended
 * (in_place_only: those writing in place); if not, the task is queued and will be ready when that
 * may have changed. */
bool plx_ops_ended_before(struct plx_vdi *vdi, uint64_t ticket, bool in_place_only,
                          struct plx_task *task);

/* logged.c */
extern const struct plx_log_disk plx_logged;
/* The time of a snapshot taken now: each is later than the one before. */
uint64_t plx_vdi_snapshot_time(struct plx_vdi *vdi);

/* vdi.c */
/* Whether a snapshot of a disk that is open here is just being let go. */
bool plx_vdi_lets_go(const struct plx_store *store, uint32_t slot, uint64_t seq);
/* Runs the loop until nothing is under way. Synchronous. */
void plx_vdi_drain(struct plx_vdi *vdi);
/* The fault of a request that ended with the error; where the disk has stopped, with the cause of
 * that. Returns the error. */
int plx_vdi_fault(const struct plx_vdi *vdi, int error, struct plx_fault *fault);
/* An instant's map, written out as a tree of its own that shares what it can with the snapshot;
 * `made` are its new nodes. Room for a disk of so many bytes. Synchronous. */
struct plx_whole {
    uint64_t root;
    unsigned levels;
    uint64_t mapped, vouched;
    struct plx_deaths made;
};
int plx_vdi_write_whole(struct plx_vdi *instant, uint64_t size_bytes, struct plx_whole *ret_whole);
/* After a lookup with this walk that found nothing: up to where surely nothing is mapped. */
uint64_t plx_vdi_absent_end(const struct plx_vdi *vdi, const struct plx_walk *walk,
                            uint64_t vblock);
/* Calls visit for what is mapped from *vblock on, at most so many. Comes back with where to go on;
 * UINT64_MAX: that was the last whole block. Synchronous. */
int plx_vdi_each_mapping(struct plx_vdi *vdi, unsigned lookups, uint64_t *vblock,
                         void (*visit)(void *context, uint64_t vblock,
                                       const struct plx_mapping *mapping),
                         void *context, struct plx_fault *fault);

#endif
