/* op.h - inside the engine's disk: operations, as the files of the data path share them.
 *
 * request.c admits a request, op.c has the operation that it becomes, steps.c takes its steps: a
 * window at a time (window.c reads, issue.c writes), or one log record (lone.c).
 */
#ifndef PLX_OP_H
#define PLX_OP_H

#include "engine/disk/vdi.h"

/* Kept for those who must not wait (REQUEST-1): */
#define PLX_OP_OWN 2u /* a synchronous call and an automatic snapshot, at most one of each */
#define PLX_OP_AHEAD 2u
#define PLX_OP_EDGE_LEAVES 2u /* of a run: those at its ends keep other blocks */

/* What an operation waits for, or does next (steps.c). */
enum {
    OP_WINDOW, /* lay out the next window */
    OP_LOCK,
    OP_LOOKUP,
    OP_READ, /* a read window's blocks, or old contents that a write needs */
    OP_VOIDED,
    OP_VOID_WAIT,
    OP_ISSUE,
    OP_WRITTEN, /* data in place has completed */
    OP_LOGGED,
    OP_DURABLE,
    OP_RETRY, /* space may have become free: look again */
    OP_ROOM,  /* the same, when history has given way */
    OP_SNAPSHOT_LOGGED,
    OP_SNAPSHOT_WAIT, /* nothing has changed since the last one */
    OP_ITEM,          /* a lone log record */
    OP_FLUSHED,
    OP_KEYFRAME,
};

/* A place in the memory of a request. */
struct plx_op_bytes {
    const struct iovec *iov;
    int left;
    size_t offset;
};

static inline void plx_op_wake_all(struct plx_store *store, struct plx_queue *queue)
{
    struct plx_task *task;

    while ((task = plx_queue_pop(queue)) != NULL)
        plx_task_ready(store, task);
}

/* ---- What kind of request it is, and what its window covers ---- */

static inline bool plx_op_moving(const struct plx_op *op)
{
    return op->request->op == PLX_MOVE;
}

static inline bool plx_op_sharing(const struct plx_op *op)
{
    return op->request->op == PLX_SHARE;
}

static inline bool plx_op_vouching(const struct plx_op *op)
{
    return op->request->op == PLX_VOUCH;
}

/* STEPS-1 */
static inline bool plx_op_keeps_contents(const struct plx_op *op)
{
    return plx_op_moving(op) || plx_op_sharing(op) || plx_op_vouching(op);
}

static inline bool plx_op_comparing(const struct plx_op *op)
{
    return op->request->op == PLX_COMPARE_WRITE && !op->compared;
}

static inline bool plx_op_whole_unmap(const struct plx_op *op)
{
    return op->request->op == PLX_UNMAP && !op->head_skip && !op->tail_skip;
}

static inline bool plx_op_has_edges(const struct plx_op *op)
{
    return op->head_skip || op->tail_skip;
}

static inline bool plx_op_is_head(const struct plx_op *op, unsigned block)
{
    return block == 0 && (op->head_skip || (op->blocks == 1 && op->tail_skip));
}

/* Of a block that is no head. */
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

/* Bytes from the start of the request's (write) data to a block's first covered byte. */
static inline uint64_t plx_op_data_offset(const struct plx_op *op, unsigned block)
{
    uint64_t in_window = block == 0 ? 0 : (uint64_t)block * PLX_BLOCK_SIZE - op->head_skip;
    uint64_t base = op->request->op == PLX_COMPARE_WRITE ? op->request->length : 0;

    return plx_op_moving(op) || plx_op_vouching(op) ? in_window : base + op->done_bytes + in_window;
}

/* ---- Bytes of the request ---- */

/* From byte skip on. */
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

/* A block's 4 KiB wherever they lie: in the compare buffer, an edge buffer or the request. */
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

/* Whether block lies behind the one before it on the store: one transfer takes both. It never
 * crosses the end of an extent, which may be that of a volume. No two blocks of ours adjoin there,
 * for an extent begins with its header; but a damaged map may say so. */
static inline bool plx_op_adjoins(const struct plx_op *op, unsigned block)
{
    uint64_t addr = op->mappings[block].addr;

    return addr == op->mappings[block - 1].addr + 1 &&
           addr % op->vdi->store->info.extent_blocks != 0;
}

/* ---- What it holds ---- */

static inline void plx_op_start_join(struct plx_op *op)
{
    op->join = (struct plx_join){.pending = 1}; /* held until all are submitted */
    op->xfer_count = op->iov_count = 0;
}

/* Releases the hold; true: all have completed (or there were none). */
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
    plx_op_wake_all(op->vdi->store, &op->vdi->range_waiters);
}

static inline void plx_op_release_compare(struct plx_op *op)
{
    if (!op->compare_held)
        return;
    op->compare_held = op->vdi->compare_busy = false;
    plx_op_wake_all(op->vdi->store, &op->vdi->compare_waiters);
}

/* The snapshot that sees what was written in place need not wait for it any more (LONE-1). */
static inline void plx_op_written_in_place(struct plx_op *op)
{
    if (op->seen_by)
        plx_log_data_done(&op->vdi->log, &op->seen_by->item, 0);
    op->seen_by = NULL;
}

static inline bool plx_op_always_copies(const struct plx_vdi *vdi)
{
    return vdi->copy_always || plx_protect_copies(vdi);
}

/* ---- op.c ---- */

/* Takes an operation, of which there is a free one, for a request. */
struct plx_op *plx_op_begin(struct plx_vdi *vdi, struct plx_request *request);
/* Tells the one who asked. Once for each request. */
void plx_op_complete(struct plx_vdi *vdi, struct plx_request *request, int result);
/* Ends the operation: gives back all that it holds and completes its request. */
void plx_op_finish(struct plx_op *op, int result);
/* Says in the request at which block of the window it failed. Returns the error. */
int plx_op_fail_at(struct plx_op *op, int error, unsigned block, const char *what);
/* What was written in place may be seen, and no flush has followed it. */
void plx_op_in_cache_only(struct plx_vdi *vdi);

/* ---- blocks.c ---- */

/* Appends a block's memory to op->iovs, joining what is adjacent since first_iov. false: no room,
 * nothing changed. */
bool plx_op_add_block_iovs(struct plx_op *op, unsigned block, unsigned first_iov);
/* Of a block of the window, wherever its bytes lie (plx_op_block_bytes()). */
uint32_t plx_op_block_checksum(const struct plx_op *op, unsigned block);
bool plx_op_block_is_zero(const struct plx_op *op, unsigned block);
void plx_op_clear_block(const struct plx_op *op, unsigned block);
/* What a read covers of its edge blocks goes to the request. */
void plx_op_deliver_edges(struct plx_op *op);
/* What a write covers of its edge blocks comes from the request. */
void plx_op_merge_edges(struct plx_op *op);

/* ---- window.c ---- */

/* The next window of a request that is not done. */
void plx_op_lay_out_window(struct plx_op *op);
/* To its first blocks; the rest makes a window of its own. */
void plx_op_cut_window(struct plx_op *op, unsigned blocks);
/* Takes the window's range (WINDOW-1): 0, PLX_WAIT or, to a move or a share, NOSPACE. */
int plx_op_lock(struct plx_op *op);
/* Looks up what is still missing. 0 or PLX_WAIT: that a node cannot be read the task is told. */
int plx_op_look_up(struct plx_op *op);
/* A transfer of adjacent blocks; the caller submits it. */
struct plx_xfer *plx_op_prepare_run(struct plx_op *op, enum plx_io_op io_op, unsigned first_iov,
                                    uint64_t addr, unsigned blocks);
/* Reads what is wanted of the window, which may be cut. Starts a join; the caller ends it. */
int plx_op_submit_reads(struct plx_op *op);
/* What a share's block is to be compared with. Behind plx_op_submit_reads(). */
void plx_op_submit_common_read(struct plx_op *op);
/* 0; PLX_WAIT: look up again (WINDOW-3); or why the request fails. */
int plx_op_verify_reads(struct plx_op *op);

/* ---- room.c ---- */

/* For the window's new blocks: 0, PLX_WAIT, NOSPACE or NOMEM (INV-8). */
int plx_op_metadata_room(struct plx_op *op);
/* The same, for what changes so many leaves and needs no block. */
int plx_op_room_for_changes(struct plx_op *op, uint64_t leaves);
/* The same, for the window's VOID record. */
int plx_op_room_for_void(struct plx_op *op);
/* What issuing came to: PLX_WAIT when the op will be ready again, and looks up anew. */
int plx_op_wait_for_room(struct plx_op *op, int error);

/* ---- issue.c ---- */

/* The checksums of what gets another place, whose contents are settled. */
void plx_op_checksum_kept(struct plx_op *op);
/* What happens to each block; *ret_void: some checksum has to be voided first. */
void plx_op_classify(struct plx_op *op, bool *ret_void);
/* Logs the VOID record, the first time or again: 0, or why not. */
int plx_op_append_void(struct plx_op *op);
/* Frees what was allocated for pieces that nobody will ever map. */
void plx_op_release_pieces(struct plx_op *op);
/* The item for the pieces, with the memory that applying it needs: 0 or NOMEM. */
int plx_op_make_item(struct plx_op *op);
/* Allocates, submits data and log in one step (ISSUE-1). 0: what was submitted is under way. */
int plx_op_issue(struct plx_op *op);

/* ---- lone.c ---- */

/* A snapshot failed; that data may still be under way. */
void plx_op_forget_in_place(const struct plx_op *op);
/* Logs the record of a request that is nothing else. */
void plx_op_append_lone(struct plx_op *op, enum plx_record_type type, int next_state);
/* Into the stream of writes, without draining it. */
void plx_op_begin_snapshot(struct plx_op *op);
/* A snapshot gets a label or loses one. */
void plx_op_begin_label(struct plx_op *op);

/* ---- steps.c ---- */

/* Begins its first step. It may have ended when this returns. */
void plx_op_start(struct plx_op *op);
/* The step of its task: goes on where it waited. */
void plx_op_step(struct plx_task *task);

#endif
