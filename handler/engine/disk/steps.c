/* steps.c - the steps of an operation: one state machine for all requests. See op.h.
 *
 * The life of a window of a write. (A read goes to READ and back to WINDOW, without a lock.)
 *
 *    state       the operation waits for             then
 *  1 WINDOW      nothing                             lays out the next window, or finishes
 *  2 LOCK        the window's range                  to LOOKUP
 *  3 LOOKUP      nodes of the map                    to READ for old contents, else to ISSUE
 *  4 READ        old contents, or a read's blocks    checks them; to ISSUE (a read: to WINDOW)
 *  5 ISSUE       nothing                             submits data and log record
 *    VOIDED      its VOID record in the log          back to LOOKUP (ISSUE-1)
 *    VOID_WAIT   other operations' VOID records      back to LOOKUP
 *    RETRY       space: an extent, or a key frame    back to LOOKUP
 *    ROOM        history to give way (REQUEST-1)     back to LOOKUP
 *  6 LOGGED      the log record to be applied        to WRITTEN; skipped if all is in place
 *  7 WRITTEN     data in flight                      to DURABLE
 *  8 DURABLE     a flush, if one is needed           back to WINDOW
 *
 * An error in any state ends the operation.
 *
 * STEPS-1  Some operations change no contents of the disk. They work under the range lock of a
 *     write:
 *       move    gives blocks another place, a window at a time
 *       share   makes one block common, or maps it to a common block (share.c)
 *       vouch   may write a block again as it is, and notes its checksum (vouch.c)
 *     A move or a vouch looks its window up again if a snapshot comes in between, for blocks that
 *     the snapshot sees stay where they are. None of the three asks for a key frame or for history
 *     to give way: they wait for a further extent at most, and end with NOSPACE otherwise.
 * Loop: the disk's; never blocks.
 * Crash story: that of issue.c and lone.c; nothing else is written.
 */
#include "engine/disk/move.h"
#include "engine/disk/op.h"
#include "engine/disk/share.h"

/* A requested flush has ended: what was applied when it began is durable now. */
static void note_flushed(struct plx_op *op)
{
    struct plx_vdi *vdi = op->vdi;

    vdi->log.durable_seq = plx_max_u64(vdi->log.durable_seq, op->flush_seq);
    if (op->flush_seq == vdi->log.applied.seq - 1)
        vdi->log.undurable = false;
    if (!vdi->log.write_back && op->cache_changes == vdi->cache_changes)
        vdi->unflushed = false;
}

/* Whether a flush must come before the window is acknowledged (INV-1): for what it wrote in place,
 * or for earlier writes that it found done. What went through the log is durable already. */
static bool must_flush(const struct plx_op *op)
{
    bool durable = (!op->vdi->log.write_back && !plx_op_vouching(op)) || op->request->fua;

    return durable && !op->piece_count && (op->in_place || op->vdi->unflushed);
}

static void end_move(struct plx_op *op)
{
    op->done_bytes +=
        plx_min_u64(plx_move_end(op) << PLX_BLOCK_SHIFT, op->request->length - op->done_bytes);
}

/* ---- Steps of a window. 0: the next step follows. PLX_WAIT: it waits, or the operation has ended.
 * Else why it fails. ---- */

static int next_window(struct plx_op *op)
{
    plx_op_unlock(op);
    if (op->done_bytes == op->request->length || (plx_op_moving(op) && plx_move_ends(op)) ||
        (plx_op_vouching(op) && plx_vouch_ends(op))) {
        plx_op_finish(op, 0);
        return PLX_WAIT;
    }
    plx_op_lay_out_window(op);
    op->state = OP_LOOKUP;
    return 0;
}

static int take_range(struct plx_op *op)
{
    struct plx_vdi *vdi = op->vdi;
    int error = plx_op_lock(op);

    if (error)
        return error;
    op->state = OP_LOOKUP;
    if (!plx_op_comparing(op))
        return 0;
    if (vdi->compare_busy) {
        op->state = OP_LOCK;
        plx_queue_push(&vdi->compare_waiters, &op->task);
        plx_op_wake_all(vdi->store, &vdi->ticket_waiters);
        return PLX_WAIT;
    }
    vdi->compare_busy = true;
    op->compare_held = true;
    return 0;
}

/* The window is done; goes on with the next one. */
static int pass_window(struct plx_op *op)
{
    op->done_bytes += op->window_bytes;
    op->state = OP_WINDOW;
    return 0;
}

/* Waits for the transfers that were submitted, unless all have completed. */
static int await_join(struct plx_op *op)
{
    return plx_op_end_join(op) ? 0 : PLX_WAIT;
}

static int look_up_window(struct plx_op *op)
{
    int error;

    if (plx_op_whole_unmap(op)) {
        op->state = OP_ISSUE;
        return 0;
    }
    if (plx_op_look_up(op) == PLX_WAIT)
        return PLX_WAIT;
    if (plx_op_moving(op) && !plx_move_plan(op)) {
        end_move(op);
        op->state = OP_WINDOW;
        return 0;
    }
    if ((plx_op_sharing(op) && !plx_share_plan(op)) || (plx_op_vouching(op) && !plx_vouch_plan(op)))
        return pass_window(op);
    op->state = OP_ISSUE;
    if (op->request->op != PLX_READ && !plx_op_comparing(op) && !plx_op_keeps_contents(op) &&
        (!plx_op_has_edges(op) || op->edges_read))
        return 0;
    error = plx_op_submit_reads(op);
    if (error)
        return error;
    if (plx_op_sharing(op))
        plx_op_submit_common_read(op);
    op->state = OP_READ;
    return await_join(op);
}

static int compare(struct plx_op *op)
{
    for (uint64_t at = 0; at < op->request->length; at++) {
        struct plx_op_bytes c = plx_op_bytes_at(op->request, at);
        const uint8_t *theirs = plx_op_bytes_take(&c, 1).iov_base;

        if (op->vdi->compare_buffer[op->head_skip + at] != *theirs) {
            op->request->miscompare_offset = at;
            return PLX_ERR_MISCOMPARE;
        }
    }
    op->compared = true;
    plx_op_release_compare(op);
    op->looked_up = 0;
    op->state = OP_LOOKUP;
    return 0;
}

/* Reads the next part of a move's window, which may need more transfers than an operation has. */
static int read_on(struct plx_op *op)
{
    int error = plx_op_submit_reads(op);
    bool done = plx_op_end_join(op);

    PLX_ASSERT(!error && !done); /* a block is left */
    return PLX_WAIT;
}

static int take_reads(struct plx_op *op)
{
    int error;

    if (plx_op_moving(op) && op->moves_read < op->blocks && !op->join.error)
        return read_on(op);
    error = plx_op_verify_reads(op);
    if (error == PLX_WAIT) {
        op->looked_up = 0;
        op->state = OP_LOOKUP;
    }
    if (error)
        return error;
    if (op->request->op == PLX_READ) {
        if (plx_op_has_edges(op))
            plx_op_deliver_edges(op);
        return pass_window(op);
    }
    if (plx_op_comparing(op))
        return compare(op);
    if (plx_op_sharing(op) && !plx_share_compare(op))
        return pass_window(op);
    if (plx_op_vouching(op)) {
        plx_op_checksum_kept(op);
        op->state = plx_vouch_writes(op) ? OP_ISSUE : OP_DURABLE;
        return 0;
    }
    plx_op_merge_edges(op);
    op->edges_read = true;
    op->state = OP_ISSUE;
    return 0;
}

static int issue_unmap(struct plx_op *op)
{
    int error = plx_op_wait_for_room(op, plx_op_room_for_changes(op, PLX_OP_EDGE_LEAVES));

    if (error)
        return error;
    op->pieces[0] = (struct plx_piece){.vblock = op->first_block, .count = op->blocks};
    op->piece_count = 1;
    error = plx_op_make_item(op);
    if (error)
        return error;
    plx_protect_note_change(op->vdi);
    plx_op_start_join(op);
    plx_log_append(&op->vdi->log, &op->item);
    op->state = OP_LOGGED;
    return PLX_WAIT;
}

/* Logs a VOID record for the checksums of blocks that will be overwritten in place (ISSUE-1). */
static int issue_void(struct plx_op *op)
{
    int error = plx_op_wait_for_room(op, plx_op_room_for_void(op));

    if (error == PLX_WAIT)
        return error;
    op->void_again = op->void_encoded = false;
    if (!error)
        error = plx_op_append_void(op);
    if (error)
        return error;
    op->vdi->voids_pending++;
    return PLX_WAIT;
}

/* Other operations' VOID records are not durable yet. One of them may be for the same leaf, so a
 * write in place waits for all of them (ISSUE-1). true: the operation waits. */
static bool awaits_voids(struct plx_op *op)
{
    bool in_place = false;

    for (unsigned i = 0; i < op->blocks; i++)
        in_place = in_place || op->actions[i] == PLX_ACTION_IN_PLACE;
    if (!in_place)
        return false;
    op->state = OP_VOID_WAIT;
    plx_queue_push(&op->vdi->void_waiters, &op->task);
    return true;
}

static int issue_window(struct plx_op *op)
{
    struct plx_vdi *vdi = op->vdi;
    bool must_void = false;
    int error;

    if (plx_op_whole_unmap(op))
        return issue_unmap(op);
    if (vdi->log.sticky)
        return vdi->log.sticky;
    /* A snapshot came after the lookup. That matters where blocks are written in place, for the
     * snapshot may see them, and for a move or a vouch (STEPS-1). */
    if (op->gen != vdi->map.gen_submitted &&
        (plx_op_moving(op) || plx_op_vouching(op) || !plx_op_always_copies(vdi))) {
        op->looked_up = 0;
        op->state = OP_LOOKUP;
        return 0;
    }
    if (plx_op_keeps_contents(op))
        plx_op_checksum_kept(op);
    else
        plx_op_classify(op, &must_void);
    if (must_void)
        return issue_void(op);
    if (vdi->voids_pending && awaits_voids(op))
        return PLX_WAIT;
    error = plx_op_issue(op);
    if (error)
        return plx_op_wait_for_room(op, error);
    op->state = OP_WRITTEN;
    if (!op->piece_count)
        return await_join(op);
    /* The log comes first: when the record is applied, all new data has completed as well. */
    op->state = OP_LOGGED;
    return PLX_WAIT;
}

static int take_written(struct plx_op *op)
{
    struct plx_vdi *vdi = op->vdi;

    if (op->join.error) {
        /* The item failed and lost its records (LOG-4), so nobody will ever map the new blocks.
         * But if the log has stopped, a record may have reached the store and recovery may believe
         * it: then the blocks stay allocated. */
        if (op->piece_count && op->item.data_error && !vdi->log.sticky)
            plx_op_release_pieces(op);
        return op->join.error;
    }
    op->state = OP_DURABLE;
    if (!must_flush(op))
        return 0;
    plx_store_flush(vdi->store, &op->task, op->in_place ? op->flush_mark : vdi->flush_mark);
    return PLX_WAIT;
}

static int end_window(struct plx_op *op)
{
    if (plx_op_vouching(op) && op->in_place)
        plx_op_in_cache_only(op->vdi);
    op->in_place = false;
    if (plx_op_sharing(op))
        plx_share_done(op);
    if (plx_op_vouching(op))
        plx_vouch_take(op);
    if (!plx_op_moving(op))
        return pass_window(op);
    end_move(op);
    op->state = OP_WINDOW;
    return 0;
}

/* Takes steps until the operation waits or ends. */
static void op_run(struct plx_op *op)
{
    int error = 0;

    while (!error) {
        switch (op->state) {
        case OP_WINDOW:
            error = next_window(op);
            if (error || op->request->op == PLX_READ)
                break;
            /* fall through */
        case OP_LOCK:
            error = take_range(op);
            break;
        case OP_LOOKUP:
            error = look_up_window(op);
            break;
        case OP_READ:
            error = take_reads(op);
            break;
        case OP_ISSUE:
            error = issue_window(op);
            break;
        case OP_WRITTEN:
            error = take_written(op);
            break;
        case OP_DURABLE:
            error = end_window(op);
            break;
        default:
            PLX_ASSERT(!"no such state");
        }
    }
    if (error != PLX_WAIT)
        plx_op_finish(op, error);
}

/* ---- What the task waited for has happened ---- */

/* The VOID record was logged. true: it is being logged once more (plx_op_append_void()). */
static bool voided(struct plx_op *op, int *error)
{
    struct plx_vdi *vdi = op->vdi;

    if (!*error && !op->void_covered) {
        op->void_again = true;
        *error = plx_op_append_void(op);
        if (!*error)
            return true;
    }
    if (*error && op->void_encoded) /* the map has lost the checksums, and no record says so */
        plx_log_stop(&vdi->log, PLX_ERR_STICKY, *error);
    if (!--vdi->voids_pending)
        plx_op_wake_all(vdi->store, &vdi->void_waiters);
    return false;
}

/* The log item was applied or has failed. true: no data is in flight any more. */
static bool logged(struct plx_op *op, int error)
{
    op->item.data_error = error;
    op->state = OP_WRITTEN;
    if (!op->join.error)
        op->join.error = error;
    return plx_op_end_join(op);
}

static void snapshot_logged(struct plx_op *op, int error)
{
    if (error) {
        plx_op_forget_in_place(op);
        op->vdi->map.gen_submitted--; /* it was never logged */
        plx_protect_note_change(op->vdi);
    }
    plx_op_finish(op, error);
}

static void snapshot_waited(struct plx_op *op)
{
    struct plx_vdi *vdi = op->vdi;

    if (!plx_ops_ended_before(vdi, op->ticket, true, &op->task))
        return;
    if (!vdi->log.write_back) {
        plx_op_finish(op, 0);
        return;
    }
    op->state = OP_FLUSHED;
    plx_store_flush(vdi->store, &op->task, vdi->flush_mark);
}

void plx_op_step(struct plx_task *task)
{
    struct plx_op *op = PLX_CONTAINER(task, struct plx_op, task);
    int error = task->error;

    task->error = 0;
    switch (op->state) {
    case OP_LOOKUP: /* a node was loaded, or could not be */
        if (error) {
            plx_op_fail_at(op, error, op->looked_up, "its place in the map cannot be read");
            plx_op_finish(op, error);
            return;
        }
        break;
    case OP_VOIDED:
        if (voided(op, &error))
            return;
        /* fall through */
    case OP_VOID_WAIT:
    case OP_ROOM:
    case OP_RETRY:
        if (op->state == OP_RETRY) /* the error is a key frame's, perhaps another disk's: ignored */
            error = op->vdi->log.sticky;
        if (error) {
            plx_op_finish(op, error);
            return;
        }
        op->looked_up = 0;
        op->state = OP_LOOKUP;
        break;
    case OP_WRITTEN:
        plx_op_written_in_place(op);
        break;
    case OP_LOGGED:
        if (!logged(op, error))
            return;
        break;
    case OP_DURABLE:
        if (error) {
            plx_op_finish(op, error);
            return;
        }
        break;
    case OP_SNAPSHOT_LOGGED:
        snapshot_logged(op, error);
        return;
    case OP_SNAPSHOT_WAIT:
        snapshot_waited(op);
        return;
    case OP_FLUSHED:
        if (!error)
            note_flushed(op);
        /* fall through */
    case OP_ITEM:
    case OP_KEYFRAME:
        plx_op_finish(op, error);
        return;
    }
    op_run(op);
}

/* ---- The first step ---- */

void plx_op_start(struct plx_op *op)
{
    op->task.error = 0;
    switch (op->state) {
    case OP_SNAPSHOT_LOGGED:
        plx_op_begin_snapshot(op);
        return;
    case OP_ITEM:
        if (op->request->op == PLX_LABEL)
            plx_op_begin_label(op);
        else
            plx_op_append_lone(op, PLX_RECORD_RESIZE, OP_ITEM);
        return;
    case OP_FLUSHED:
        if (op->vdi->snapshot || !op->vdi->unflushed) { /* all acknowledged writes are durable */
            plx_op_finish(op, 0);
            return;
        }
        op->cache_changes = op->vdi->cache_changes;
        op->flush_seq = op->vdi->log.applied.seq - 1;
        plx_store_flush(op->vdi->store, &op->task, op->vdi->flush_mark);
        return;
    case OP_KEYFRAME:
        plx_keyframe_request(op->vdi, &op->task);
        return;
    default:
        op_run(op);
    }
}
