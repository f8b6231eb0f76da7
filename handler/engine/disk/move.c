/* move.c - which blocks of a disk lie scattered, and which are worth moving. See move.h, and
 * PLX_MOVE in engine.h.
 *
 * Two mapped blocks that follow one another in a window belong to one run if they also follow one
 * another on the store. Reading in order costs one transfer per run, so a move makes runs fewer:
 * all blocks of a window that move become adjacent. Shared blocks stay where they are.
 *
 * MOVE-1  Only blocks that may be written in place move: no snapshot and no clone sees these. So no
 *     block that is shared becomes two.
 * MOVE-2  A window's blocks move only if that saves a run per BLOCKS_FOR_A_RUN blocks that move. So
 *     what was moved once is not moved again.
 * Loop: the disk's; never blocks.
 * Crash story: that of a write to new blocks (issue.c, log.c).
 */
#include "engine/disk/move.h"

#include "engine/disk/op.h"

#define BLOCKS_FOR_A_RUN 64u /* at most this many blocks move to save one run */

#define NEW_PLACE (1ull << 63) /* beyond all addresses: the first block of the run to be */

/* The runs of a window, before or after its blocks move as planned. */
static uint64_t count_runs(const struct plx_op *op, bool after)
{
    uint64_t runs = 0, next_new = NEW_PLACE, expected = 0;

    for (unsigned i = 0; i < op->blocks; i++) {
        uint64_t addr = op->mappings[i].addr;

        if (!addr)
            continue;
        if (after && op->actions[i] == PLX_ACTION_NEW)
            addr = next_new++;
        runs += addr != expected;
        expected = addr + 1;
    }
    return runs;
}

bool plx_move_valid(const struct plx_vdi *vdi, const struct plx_request *request)
{
    return request->offset % PLX_BLOCK_SIZE == 0 && request->length % PLX_BLOCK_SIZE == 0 &&
           request->iovcnt == 1 && request->iov->iov_len >= PLX_MOVE_BUFFER;
}

/* A window's size is a power of two, and no more than an empty extent surely has in a row. */
static uint64_t window_bytes(const struct plx_store *store)
{
    return plx_min_u64(PLX_WINDOW_BLOCKS, store->info.extent_blocks / 4) * PLX_BLOCK_SIZE;
}

void plx_move_start(struct plx_op *op)
{
    const struct plx_move *move = op->request->move;

    op->windows_left = move->windows;
    op->moves_left = move->blocks ? move->blocks : UINT64_MAX;
    plx_op_start_windows(op);
}

bool plx_move_enough(struct plx_op *op)
{
    return !op->windows_left || !op->moves_left;
}

void plx_move_lay_out(struct plx_op *op)
{
    uint64_t offset = op->request->offset + op->done_bytes;
    uint64_t window = window_bytes(op->vdi->store);

    plx_op_set_window(op, offset,
                      plx_min_u64(op->request->length - op->done_bytes, window - offset % window));
}

int plx_move_lock(struct plx_op *op)
{
    return op->request->move->dry_run ? 0 : plx_op_lock(op); /* a dry run only looks */
}

bool plx_move_plan(struct plx_op *op)
{
    uint64_t movable = 0, saved;
    bool worth;

    for (unsigned i = 0; i < op->blocks; i++) {
        bool moves = op->mappings[i].addr && op->mappings[i].writable; /* MOVE-1 */

        op->actions[i] = moves ? PLX_ACTION_NEW : PLX_ACTION_SKIP;
        movable += moves;
    }
    saved = count_runs(op, false) - plx_min_u64(count_runs(op, true), count_runs(op, false));
    worth = saved > 0 && saved * BLOCKS_FOR_A_RUN >= movable; /* MOVE-2 */
    for (unsigned i = 0; i < op->blocks && !worth; i++)
        op->actions[i] = PLX_ACTION_SKIP;
    if (worth && !op->request->move->dry_run)
        return true;
    plx_move_done(op);
    return false;
}

void plx_move_done(struct plx_op *op)
{
    struct plx_move *move = op->request->move;
    uint64_t moved = 0;

    for (unsigned i = 0; i < op->blocks; i++) {
        move->mapped += op->mappings[i].addr != 0;
        move->shared += op->mappings[i].addr && !op->mappings[i].writable;
        moved += op->actions[i] == PLX_ACTION_NEW;
    }
    op->windows_left--;
    op->retries = 0;
    op->moves_left -= plx_min_u64(moved, op->moves_left);
    move->moved += moved;
    move->runs_before += count_runs(op, false);
    move->runs_after += count_runs(op, true);
    plx_op_stretch_window(op);
}

void plx_move_end(struct plx_op *op, int result)
{
    op->request->move->upto = op->request->offset + op->done_bytes +
                              (plx_error_is_unreadable(result) ? op->window_bytes : 0);
}
