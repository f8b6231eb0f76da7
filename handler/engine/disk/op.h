/* op.h - inside disk/: operations, as the files of the data path share them.
 *
 * An operation is one request in progress: a task with a state. request.c admits a request, op.c
 * begins and ends its operation, steps.c moves it on. A read or write goes through its range in
 * windows of at most 256 blocks: window.c locks, looks up and reads a window, issue.c writes it,
 * room.c finds room for it, blocks.c knows where its bytes are in memory. Requests without windows,
 * such as a snapshot, are in lone.c. kinds.c has a row for each kind of request: how it differs
 * from the others.
 *
 * All functions run on the disk's loop and never block. "0, PLX_WAIT or ..." means: PLX_WAIT, the
 * operation's task is in a queue, and its step is called when what it waits for has happened.
 */
#ifndef PLX_OP_H
#define PLX_OP_H

#include "engine/disk/vdi.h"

/* Operations kept for requests that must not wait for others (REQUEST-1). */
#define PLX_OP_OWN 2u   /* a synchronous call and an automatic snapshot, one of each at most */
#define PLX_OP_AHEAD 2u /* requests that were submitted ahead */
#define PLX_OP_EDGE_LEAVES 2u /* leaves at the ends of a range, which it covers in part only */

/* What an operation waits for, or does next. steps.c has the life of a window. */
enum {
    OP_WINDOW,    /* does not wait: lays out the next window, or ends */
    OP_LOCK,      /* the window's range, or the compare buffer */
    OP_LOOKUP,    /* a node of the map */
    OP_READ,      /* a read's blocks, or the old contents that a write needs */
    OP_VOIDED,    /* its VOID record is logged */
    OP_VOID_WAIT, /* other operations' VOID records are logged */
    OP_ISSUE,     /* does not wait: submits data and log record */
    OP_WRITTEN,   /* data that is written in place, or what is left of data when the log is done */
    OP_LOGGED,    /* its log record is applied */
    OP_DURABLE,   /* a flush */
    OP_RETRY,     /* space: an extent, or a key frame that frees blocks; then it looks up again */
    OP_ROOM,      /* the same, for history to give way */
    OP_KEYFRAME,  /* a key frame that was requested */
    OP_ALONE,     /* it has no windows: its task's step is its state */
};

/* ---- Kinds (kinds.c) ---- */

/* What becomes of the contents of a disk. That decides which blocks of a window are read. */
enum plx_op_effect {
    PLX_READS,  /* nothing: reads all blocks */
    PLX_WRITES, /* overwrites them: reads the edges, which it covers in part */
    PLX_KEEPS,  /* nothing, but blocks may get new places (STEPS-1): reads those with action NEW */
};

/* How a kind of request differs from the others. The steps are the same for all kinds; where they
 * differ, they ask the operation's kind. A function that is NULL is left out. */
struct plx_op_kind {
    /* Counters that it raises: offsets in struct plx_counters; 0: none. */
    size_t requests, bytes, latency;
    bool (*valid)(const struct plx_vdi *vdi, const struct plx_request *request);
    bool within_disk;                           /* the range must lie within the disk */
    bool of_snapshots;                          /* allowed on an open snapshot */
    bool when_stopped;                          /* allowed on a stopped disk */
    bool without_ring;                          /* allowed while the disk's ring is away */
    void (*start)(struct plx_op *op);           /* the first step */
    void (*step)(struct plx_task *task);        /* called when the task becomes ready */
    void (*end)(struct plx_op *op, int result); /* before its locks and blocks are released */

    /* The members below are used only by operations with windows, in the order of their states. */
    enum plx_op_effect effect;
    bool zeroes;        /* no data comes with it: whole blocks are unmapped, edges get zeroes */
    bool uncut;         /* a window stays whole: read part by part, its new blocks adjacent */
    bool looks_again;   /* if a snapshot came in between, though nothing is written in place */
    bool durable;       /* its log record must be, as if it had `fua` */
    uint64_t addr_bits; /* of the addresses that it maps (SHARE-1) */
    const struct plx_op_kind *goes_on_as; /* it compares first; if all is equal, it becomes this */
    bool (*enough)(struct plx_op *op);    /* WINDOW: whether it ends before its range does */
    void (*lay_out)(struct plx_op *op);   /* WINDOW: lays out the next one */
    int (*lock)(struct plx_op *op);       /* LOCK: 0, PLX_WAIT or an error. NULL: no lock */
    bool (*plan)(struct plx_op *op);      /* LOOKUP: sets op->actions. false: nothing to do */
    void (*read_more)(struct plx_op *op); /* LOOKUP: what else is read than the window's blocks */
    int (*take)(struct plx_op *op);  /* READ: takes what was read; sets the state, if not ISSUE */
    int (*place)(struct plx_op *op); /* ISSUE: finds new blocks, makes op->pieces: 0, PLX_WAIT.. */
    void (*done)(struct plx_op *op); /* DURABLE: the window is done as planned */
};

extern const struct plx_op_kind plx_op_kinds[];

/* The counter, or the first of a histogram, at an offset that a kind has. */
static inline uint64_t *plx_op_counter(struct plx_counters *counters, size_t offset)
{
    return (uint64_t *)(void *)((char *)counters + offset);
}

/* A place in the memory of a request. */
struct plx_op_bytes {
    const struct iovec *iov;
    int left;
    size_t offset;
};

/* ---- What its window covers ---- */

/* Whether it is at the first part of a COMPARE_WRITE, which writes nothing yet. */
static inline bool plx_op_comparing(const struct plx_op *op)
{
    return op->kind->goes_on_as;
}

static inline bool plx_op_whole_unmap(const struct plx_op *op)
{
    return op->kind->zeroes && !op->head_skip && !op->tail_skip;
}

static inline bool plx_op_has_edges(const struct plx_op *op)
{
    return op->head_skip || op->tail_skip;
}

static inline bool plx_op_is_head(const struct plx_op *op, unsigned block)
{
    return block == 0 && (op->head_skip || (op->blocks == 1 && op->tail_skip));
}

/* For a block that is not the head. */
static inline bool plx_op_is_tail(const struct plx_op *op, unsigned block)
{
    return block == op->blocks - 1 && op->tail_skip;
}

/* The buffer of a partly covered block, or NULL for a block that lies wholly in the request. */
static inline uint8_t *plx_op_edge_of(const struct plx_op *op, unsigned block)
{
    if (plx_op_is_head(op, block))
        return op->edges;
    return plx_op_is_tail(op, block) ? op->edges + PLX_BLOCK_SIZE : NULL;
}

/* Where in the request's memory a block's first covered byte is. */
static inline uint64_t plx_op_data_offset(const struct plx_op *op, unsigned block)
{
    uint64_t in_window = block == 0 ? 0 : (uint64_t)block * PLX_BLOCK_SIZE - op->head_skip;

    return op->kind->effect == PLX_KEEPS ? in_window : op->data_skip + op->done_bytes + in_window;
}

/* ---- Bytes of the request ---- */

/* The request's memory from byte skip on. */
static inline struct plx_op_bytes plx_op_bytes_at(const struct plx_request *request, uint64_t skip)
{
    struct plx_op_bytes c = {request->iov, request->iovcnt, 0};

    while (c.left && skip >= c.iov->iov_len) {
        skip -= c.iov->iov_len;
        c.iov++;
        c.left--;
    }
    c.offset = (size_t)skip;
    return c;
}

/* Takes the next slice of at most `want` bytes. */
static inline struct iovec plx_op_bytes_take(struct plx_op_bytes *c, size_t want)
{
    struct iovec slice;

    while (c->left && c->offset == c->iov->iov_len) {
        c->iov++;
        c->left--;
        c->offset = 0;
    }
    PLX_ASSERT(c->left);
    slice.iov_base = (uint8_t *)c->iov->iov_base + c->offset;
    slice.iov_len = plx_min_u64(want, c->iov->iov_len - c->offset);
    c->offset += slice.iov_len;
    return slice;
}

/* A block's 4 KiB in memory, wherever they are: the compare buffer, an edge buffer or the request's
 * memory. flat: space for the answer. */
static inline struct plx_op_bytes plx_op_block_bytes(const struct plx_op *op, unsigned block,
                                                     struct iovec *flat)
{
    uint8_t *edge = plx_op_comparing(op) ? op->vdi->compare_buffer + (size_t)block * PLX_BLOCK_SIZE
                                         : plx_op_edge_of(op, block);

    if (!edge)
        return plx_op_bytes_at(op->request, plx_op_data_offset(op, block));
    *flat = (struct iovec){edge, PLX_BLOCK_SIZE};
    return (struct plx_op_bytes){flat, 1, 0};
}

/* Whether a block lies directly behind the one before it on the store, so that one transfer takes
 * both. A transfer never crosses the end of an extent, where a volume may end. A sound map has no
 * such neighbours, for an extent begins with its header; but the map may be damaged. */
static inline bool plx_op_adjoins(const struct plx_op *op, unsigned block)
{
    uint64_t addr = op->mappings[block].addr;

    return addr == op->mappings[block - 1].addr + 1 &&
           addr % op->vdi->store->info.extent_blocks != 0;
}

/* ---- What an operation holds ---- */

/* Begins a group of transfers. The join has a count of its own until all are submitted. */
static inline void plx_op_start_join(struct plx_op *op)
{
    op->join = (struct plx_join){.pending = 1};
    op->xfer_count = op->iov_count = 0;
}

/* All transfers are submitted. true: all have completed, or there were none. false: the operation's
 * task becomes ready when they have. */
static inline bool plx_op_end_join(struct plx_op *op)
{
    if (--op->join.pending == 0)
        return true;
    op->join.task = &op->task;
    return false;
}

static inline void plx_op_unlock(struct plx_op *op)
{
    if (!op->locks)
        return;
    op->locks = false;
    plx_queue_wake(op->vdi->store, &op->vdi->range_waiters, 0);
}

static inline void plx_op_release_compare(struct plx_op *op)
{
    if (!op->compares)
        return;
    op->compares = op->vdi->compare_busy = false;
    plx_queue_wake(op->vdi->store, &op->vdi->compare_waiters, 0);
}

/* The operation's write in place has completed: a snapshot that sees it need not wait for it any
 * more (LONE-1). */
static inline void plx_op_written_in_place(struct plx_op *op)
{
    if (op->seen_by)
        plx_log_data_done(&op->vdi->log, &op->seen_by->item, 0);
    op->seen_by = NULL;
}

/* Whether it brings a record of a ring (front.h). */
static inline bool plx_op_carries(const struct plx_op *op)
{
    return op->request->urgency == PLX_CARRIED;
}

/* It changes the disk's contents or size now. (Of a carried one the front has noted it.) */
static inline void plx_op_note_change(const struct plx_op *op)
{
    if (!plx_op_carries(op))
        plx_protect_note_change(op->vdi);
}

static inline bool plx_op_always_copies(const struct plx_vdi *vdi)
{
    return vdi->copy_always || plx_protect_copies(vdi);
}

/* The window is done: the next step goes on behind it. */
static inline int plx_op_pass_window(struct plx_op *op)
{
    op->done_bytes += op->window_bytes;
    op->state = OP_WINDOW;
    return 0;
}

/* The next step looks the window up from its beginning. */
static inline int plx_op_look_up_again(struct plx_op *op)
{
    op->looked_up = 0;
    op->state = OP_LOOKUP;
    return 0;
}

/* ---- op.c ---- */

/* Takes a free operation for a request. The caller knows that there is one. */
struct plx_op *plx_op_begin(struct plx_vdi *vdi, struct plx_request *request);
/* Completes a request: calls its done. Once for each request (OP-1). */
void plx_op_complete(struct plx_vdi *vdi, struct plx_request *request, int result);
/* Ends the operation: releases all that it holds and completes its request. */
void plx_op_finish(struct plx_op *op, int result);
/* Notes in the request's fault at which block of the window it failed. Returns the error. */
int plx_op_fail_at(struct plx_op *op, int error, unsigned block, const char *what);
/* Notes that a write in place can be read by now but may be in the device's cache only. */
void plx_op_in_cache_only(struct plx_vdi *vdi);

/* ---- blocks.c ---- */

/* Appends a block's memory to op->iovs; memory that adjoins an entry from first_iov on is joined to
 * it. false: there is no room for it, and nothing has changed. */
bool plx_op_add_block_iovs(struct plx_op *op, unsigned block, unsigned first_iov);
/* These work on a block of the window, wherever its bytes are (plx_op_block_bytes()). */
uint32_t plx_op_block_checksum(const struct plx_op *op, unsigned block);
bool plx_op_block_is_zero(const struct plx_op *op, unsigned block);
void plx_op_clear_block(const struct plx_op *op, unsigned block);
/* For kind->take. A read: copies the covered part of its edge blocks to the request, and passes the
 * window. A write: copies the covered part of its edge blocks from the request. */
int plx_op_deliver(struct plx_op *op);
int plx_op_merge(struct plx_op *op);

/* ---- window.c ---- */

/* The next window is `bytes` bytes from `offset` of the disk on. */
void plx_op_set_window(struct plx_op *op, uint64_t offset, uint64_t bytes);
/* Lays out the next window of a request that is not done yet; for an unmap. */
void plx_op_lay_out(struct plx_op *op);
void plx_op_lay_out_unmap(struct plx_op *op);
/* Cuts the window to its first blocks; the rest becomes the next window. */
void plx_op_cut_window(struct plx_op *op, unsigned blocks);
/* Stretches the window as far as nothing is mapped behind it: if the last lookup came to an empty
 * subtree, up to its end or to the next block in memory's changes. */
void plx_op_stretch_window(struct plx_op *op);
/* Locks the window's range (WINDOW-1): 0, PLX_WAIT or, for a move, share or vouch, NOSPACE. */
int plx_op_lock(struct plx_op *op);
/* Looks up the window's blocks from op->looked_up on. 0 or PLX_WAIT; if a node cannot be read,
 * the task's step gets the error. */
int plx_op_look_up(struct plx_op *op);
/* Prepares a transfer of adjacent blocks; the caller submits it. */
struct plx_xfer *plx_op_prepare_run(struct plx_op *op, enum plx_io_op io_op, unsigned first_iov,
                                    uint64_t addr, unsigned blocks);
/* Submits reads of the blocks that the operation needs, from op->blocks_read on. The window may be
 * cut for that; an `uncut` one may need another call. Starts a join, which the caller ends. */
int plx_op_submit_reads(struct plx_op *op);
/* Prepares a transfer as plx_op_prepare_run() does, and submits it. */
void plx_op_submit_run(struct plx_op *op, enum plx_io_op io_op, unsigned first_iov, uint64_t addr,
                       unsigned blocks);
/* Compares what was read with the checksums. 0; PLX_WAIT: the window must be looked up again
 * (WINDOW-3); or why the request fails. */
int plx_op_verify_reads(struct plx_op *op);

/* ---- room.c ---- */

/* Whether there is room for metadata beside the reserve (reserve.h, INV-8): 0, PLX_WAIT, NOSPACE or
 * NOMEM. Here for a window with new blocks. */
int plx_op_metadata_room(struct plx_op *op);
/* The same, for a change of `leaves` leaves that needs no new block. */
int plx_op_room_for_changes(struct plx_op *op, uint64_t leaves);
/* The same, for the window's VOID record. */
int plx_op_room_for_void(struct plx_op *op);
/* The window could not be issued, with this error. If it is for want of room, the operation waits
 * for some where it may: PLX_WAIT, and it looks up again afterwards. Else returns the error. */
int plx_op_wait_for_room(struct plx_op *op, int error);

/* ---- issue.c ---- */

/* Contents are kept: computes the checksums of the blocks that were read. */
void plx_op_checksum_kept(struct plx_op *op);
/* A write: decides what happens to each block (op->actions). *ret_void: the checksums of blocks
 * that will be overwritten in place must be voided first (ISSUE-1). */
void plx_op_classify(struct plx_op *op, bool *ret_void);
/* Logs the VOID record, the first time or again (op->void_again): 0, or why not. */
int plx_op_append_void(struct plx_op *op);
/* Frees the blocks of pieces that will never be mapped. */
void plx_op_release_pieces(struct plx_op *op);
/* Makes the log item of the pieces, and reserves the memory for applying it: 0 or NOMEM. */
int plx_op_make_item(struct plx_op *op);
/* Queues that item. */
void plx_op_append(struct plx_op *op);
/* For kind->place: new blocks wherever they are, as many as are adjacent in one piece; or all new
 * blocks in one row. */
int plx_op_place(struct plx_op *op);
int plx_op_place_adjacent(struct plx_op *op);
/* Allocates blocks and submits data and log record, all in one step (ISSUE-1). 0: they are in
 * flight. */
int plx_op_issue(struct plx_op *op);

/* ---- lone.c: requests without windows ---- */

void plx_op_start_snapshot(struct plx_op *op);
/* The snapshot's record was logged, or could not be. */
void plx_op_step_snapshot(struct plx_task *task);
void plx_op_start_label(struct plx_op *op);
void plx_op_start_resize(struct plx_op *op);
void plx_op_start_flush(struct plx_op *op);
void plx_op_step_flush(struct plx_task *task);
void plx_op_start_keyframe(struct plx_op *op);
/* What the task waited for was the last thing: the operation ends with its result. */
void plx_op_step_last(struct plx_task *task);

/* ---- steps.c: requests with windows ---- */

void plx_op_start_windows(struct plx_op *op);
void plx_op_step_windows(struct plx_task *task);

#endif
