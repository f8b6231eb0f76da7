/* kinds.c - the kinds of requests: one row of a table for each. See struct plx_op_kind in op.h.
 *
 * All requests take the steps of steps.c or lone.c. What distinguishes one kind from another stands
 * in its row and nowhere else: what it counts, when it may be made, what it locks, reads and
 * writes. So a new kind is a new row, and no step asks which request it works on. Functions of a
 * row that need more than a few lines are in files of their own: move.c, share.c, vouch.c, lone.c.
 *
 *    kind            locks            reads               ends a window with
 *    READ            nothing          all                 nothing
 *    WRITE           its range        edges               data in place, new blocks and a record
 *    UNMAP           its range        edges               a record; edges as WRITE
 *    COMPARE_WRITE   its range and    all; then as WRITE  as WRITE
 *                    the buffer
 *    MOVE            its range        what moves          new blocks and a record
 *    SHARE           its range        the block           a new block or none, and a record
 *    VOUCH           its range        what is unknown     nothing, or data in place as it was
 *    the others      nothing          nothing             have no windows
 * Loop: the disk's; never blocks.
 * Crash story: nothing is written here.
 */
#include "engine/disk/move.h"
#include "engine/disk/op.h"
#include "engine/disk/share.h"

/* ---- Whether a request is one that can be made ---- */

static bool has_sectors(const struct plx_vdi *vdi, const struct plx_request *request)
{
    uint32_t sector = vdi->record.sector_size;

    return request->offset % sector == 0 && request->length % sector == 0;
}

static bool is_comparable(const struct plx_vdi *vdi, const struct plx_request *request)
{
    return has_sectors(vdi, request) && request->length <= PLX_COMPARE_MAX;
}

static bool is_own(const struct plx_vdi *vdi, const struct plx_request *request)
{
    return request == &vdi->vouch.request;
}

static bool has_label(const struct plx_vdi *vdi, const struct plx_request *request)
{
    return request->label[0] && request->seq && request->seq <= vdi->map.gen_submitted;
}

static bool makes_larger(const struct plx_vdi *vdi, const struct plx_request *request)
{
    return request->length >= vdi->size_bytes && request->length <= PLX_VDI_SIZE_MAX &&
           request->length % vdi->record.sector_size == 0;
}

/* ---- Comparing ---- */

static int lock_to_compare(struct plx_op *op)
{
    struct plx_vdi *vdi = op->vdi;
    int error = plx_op_lock(op);

    if (error)
        return error;
    if (vdi->compare_busy) {
        op->state = OP_LOCK;
        plx_queue_push(&vdi->compare_waiters, &op->task);
        plx_queue_wake(vdi->store, &vdi->ticket_waiters, 0);
        return PLX_WAIT;
    }
    vdi->compare_busy = true;
    op->compares = true;
    return 0;
}

/* Goes on as a write of the second half of the request's memory. */
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
    plx_op_release_compare(op);
    op->kind = op->kind->goes_on_as;
    op->data_skip = op->request->length;
    return plx_op_look_up_again(op);
}

/* ---- The table ---- */

#define COUNTER(name) offsetof(struct plx_counters, name)
#define COUNTS(what) .requests = COUNTER(what##s), .bytes = COUNTER(what##_bytes)
#define BY_WINDOWS(first) .start = first, .step = plx_op_step_windows
_Static_assert(COUNTER(reads) > 0, "0 means that nothing is counted");

const struct plx_op_kind plx_op_kinds[] = {
    [PLX_READ] = {BY_WINDOWS(plx_op_start_windows), COUNTS(read), .latency = COUNTER(read_latency),
                  .of_snapshots = true, .when_stopped = true, .without_ring = true,
                  .valid = has_sectors, .within_disk = true, .effect = PLX_READS,
                  .lay_out = plx_op_lay_out, .take = plx_op_deliver},
    [PLX_WRITE] = {BY_WINDOWS(plx_op_start_windows), COUNTS(write),
                   .latency = COUNTER(write_latency), .valid = has_sectors, .within_disk = true,
                   .effect = PLX_WRITES, .lay_out = plx_op_lay_out, .lock = plx_op_lock,
                   .take = plx_op_merge, .place = plx_op_place},
    [PLX_UNMAP] = {BY_WINDOWS(plx_op_start_windows), COUNTS(unmap), .valid = has_sectors,
                   .within_disk = true, .effect = PLX_WRITES, .zeroes = true,
                   .lay_out = plx_op_lay_out_unmap, .lock = plx_op_lock, .take = plx_op_merge,
                   .place = plx_op_place},
    [PLX_COMPARE_WRITE] = {BY_WINDOWS(plx_op_start_windows), COUNTS(write), .valid = is_comparable,
                           .within_disk = true, .effect = PLX_READS,
                           .goes_on_as = &plx_op_kinds[PLX_WRITE], .lay_out = plx_op_lay_out,
                           .lock = lock_to_compare, .take = compare},
    [PLX_MOVE] = {BY_WINDOWS(plx_move_start), .end = plx_move_end, .valid = plx_move_valid,
                  .within_disk = true, .effect = PLX_KEEPS, .uncut = true, .looks_again = true,
                  .enough = plx_move_enough, .lay_out = plx_move_lay_out, .lock = plx_move_lock,
                  .plan = plx_move_plan, .place = plx_op_place_adjacent, .done = plx_move_done},
    /* SHARE-1, SHARE-3 */
    [PLX_SHARE] = {BY_WINDOWS(plx_op_start_windows), .valid = plx_share_valid, .within_disk = true,
                   .effect = PLX_KEEPS, .durable = true, .addr_bits = PLX_ADDR_COMMON,
                   .lay_out = plx_op_lay_out, .lock = plx_op_lock, .plan = plx_share_plan,
                   .read_more = plx_share_read_more, .take = plx_share_take,
                   .place = plx_share_place, .done = plx_share_done},
    [PLX_VOUCH] = {BY_WINDOWS(plx_op_start_windows), .end = plx_vouch_end, .valid = is_own,
                   .effect = PLX_KEEPS, .looks_again = true, .enough = plx_vouch_enough,
                   .lay_out = plx_op_lay_out, .lock = plx_op_lock, .plan = plx_vouch_plan,
                   .take = plx_vouch_take, .place = plx_op_place, .done = plx_vouch_done_window},
    [PLX_SNAPSHOT] = {.start = plx_op_start_snapshot,
                      .step = plx_op_step_snapshot,
                      .requests = COUNTER(snapshots),
                      .latency = COUNTER(snapshot_latency)},
    [PLX_LABEL] = {.start = plx_op_start_label, .step = plx_op_step_last, .valid = has_label},
    [PLX_RESIZE] = {.start = plx_op_start_resize, .step = plx_op_step_last, .valid = makes_larger},
    [PLX_FLUSH] = {.start = plx_op_start_flush,
                   .step = plx_op_step_flush,
                   .requests = COUNTER(flushes),
                   .of_snapshots = true,
                   .without_ring = true},
    [PLX_KEYFRAME] = {.start = plx_op_start_keyframe,
                      .step = plx_op_step_last,
                      .without_ring = true},
};
