/* steps.c - the steps of an operation with windows: one state machine. See op.h. How a kind of
 * request differs from the others is in its row of the table in kinds.c.
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
#include "engine/disk/op.h"

/* Whether a flush must come before the window is acknowledged (INV-1): for what it wrote in place,
 * or for earlier writes that it found done. What went through the log is durable already. */
static bool must_flush(const struct plx_op *op)
{
    bool durable = (!op->vdi->log.write_back && op->kind->effect != PLX_KEEPS) || op->request->fua;

    return durable && !op->piece_count && (op->in_place || op->vdi->unflushed);
}

/* ---- Steps of a window. 0: the next step follows. PLX_WAIT: it waits, or the operation has ended.
 * Else why it fails. ---- */

static int next_window(struct plx_op *op)
{
    plx_op_unlock(op);
    if (op->done_bytes == op->request->length || (op->kind->enough && op->kind->enough(op))) {
        plx_op_finish(op, 0);
        return PLX_WAIT;
    }
    op->kind->lay_out(op);
    op->state = op->kind->lock ? OP_LOCK : OP_LOOKUP;
    return 0;
}

static int take_range(struct plx_op *op)
{
    int error = op->kind->lock(op);

    if (!error)
        op->state = OP_LOOKUP;
    return error;
}

/* Waits for the transfers that were submitted, unless all have completed. */
static int await_join(struct plx_op *op)
{
    return plx_op_end_join(op) ? 0 : PLX_WAIT;
}

static int look_up_window(struct plx_op *op)
{
    const struct plx_op_kind *kind = op->kind;
    int error;

    if (plx_op_whole_unmap(op)) {
        op->state = OP_ISSUE;
        return 0;
    }
    if (plx_op_look_up(op) == PLX_WAIT)
        return PLX_WAIT;
    if (kind->plan && !kind->plan(op))
        return plx_op_pass_window(op);
    op->state = OP_ISSUE;
    if (kind->effect == PLX_WRITES && (!plx_op_has_edges(op) || op->edges_read))
        return 0;
    op->blocks_read = 0;
    error = plx_op_submit_reads(op);
    if (error)
        return error;
    if (kind->read_more)
        kind->read_more(op);
    op->state = OP_READ;
    return await_join(op);
}

/* Reads the next part of a window that is not cut, and may need more transfers than an operation
 * has. */
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

    if (op->blocks_read < op->blocks && !op->join.error)
        return read_on(op);
    error = plx_op_verify_reads(op);
    if (error == PLX_WAIT)
        plx_op_look_up_again(op);
    if (error)
        return error;
    op->state = OP_ISSUE;
    return op->kind->take ? op->kind->take(op) : 0;
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
    plx_op_note_change(op);
    plx_op_start_join(op);
    op->state = OP_LOGGED;
    plx_op_append(op);
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
    if (op->gen != vdi->map.gen_submitted && (op->kind->looks_again || !plx_op_always_copies(vdi)))
        return plx_op_look_up_again(op);
    if (op->kind->effect == PLX_KEEPS)
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
         * it: then the blocks stay allocated. So do blocks that could not be written with what a
         * ring has: it is carried again, and must not meet the same blocks. */
        if (op->piece_count && op->item.data_error && !vdi->log.sticky &&
            !(plx_op_carries(op) && plx_error_class(op->item.data_error) == PLX_CLASS_IO))
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
    if (op->kind->done)
        op->kind->done(op);
    op->in_place = false;
    return plx_op_pass_window(op);
}

/* Takes steps until the operation waits or ends. */
static void op_run(struct plx_op *op)
{
    int error = 0;

    while (!error) {
        switch (op->state) {
        case OP_WINDOW:
            error = next_window(op);
            break;
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
        plx_queue_wake(vdi->store, &vdi->void_waiters, 0);
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

void plx_op_step_windows(struct plx_task *task)
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
        plx_op_look_up_again(op);
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
    }
    op_run(op);
}

void plx_op_start_windows(struct plx_op *op)
{
    op->state = OP_WINDOW;
    op_run(op);
}
