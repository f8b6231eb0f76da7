/* lone.c - requests without windows: snapshots, labels and resizing, which are one log record each;
 * flushes and key frames. See op.h.
 *
 * LONE-1  A snapshot is acknowledged only when all that it sees is durable. That includes writes in
 *     place that are in flight when it is ordered. They count as data of the snapshot's log item,
 *     so its batch waits for them (LOG-1), and the flush of the batch covers them.
 * Loop: the disk's; never blocks.
 * Crash story: log.c has it.
 */
#include <string.h>

#include "engine/disk/op.h"

void plx_op_step_last(struct plx_task *task)
{
    plx_op_finish(PLX_CONTAINER(task, struct plx_op, task), task->error);
}

/* LONE-1: writes in place that are in flight become data of the snapshot's item. Those that have
 * completed may be in the device's cache only: the flush must cover them, too, or fail. */
static void await_in_place(struct plx_op *op)
{
    if (op->vdi->unflushed)
        op->item.flush_mark = op->vdi->flush_mark;
    for (struct plx_op *other = op->vdi->oldest; other != op; other = other->next) {
        if (other->state != OP_WRITTEN || other->seen_by)
            continue;
        other->seen_by = op;
        op->item.data_pending++;
        op->item.flush_mark = plx_flush_mark_older(op->item.flush_mark, other->flush_mark);
    }
}

static void append(struct plx_op *op, enum plx_record_type type, const struct plx_log_item_ops *ops)
{
    op->item = (struct plx_log_item){
        .ops = ops,
        .task = &op->task,
        .bytes = plx_record_bytes(type, strlen(op->request->label)),
        .needs_durable = true,
        .changes = type == PLX_RECORD_RESIZE,
        .snapshot = type == PLX_RECORD_SNAPSHOT,
        .patient = op->request->patient,
        .carried = plx_op_carries(op) ? op->request->carried : (struct plx_ring_position){0},
        .whole = true,
        .flush_mark = plx_flush_mark(op->vdi->store),
    };
    if (type == PLX_RECORD_SNAPSHOT)
        await_in_place(op);
    plx_op_append(op);
}

/* ---- Flushes ---- */

void plx_op_start_flush(struct plx_op *op)
{
    if (op->vdi->snapshot || !op->vdi->unflushed) { /* all acknowledged writes are durable */
        plx_op_finish(op, 0);
        return;
    }
    op->cache_changes = op->vdi->cache_changes;
    op->flush_seq = op->vdi->log.applied.seq - 1;
    plx_store_flush(op->vdi->store, &op->task, op->vdi->flush_mark);
}

/* What was applied when the flush began is durable now. */
static void note_flushed(struct plx_op *op)
{
    struct plx_vdi *vdi = op->vdi;

    vdi->log.durable_seq = plx_max_u64(vdi->log.durable_seq, op->flush_seq);
    if (op->flush_seq == vdi->log.applied.seq - 1)
        vdi->log.undurable = false;
    if (!vdi->log.write_back && op->cache_changes == vdi->cache_changes)
        vdi->unflushed = false;
}

void plx_op_step_flush(struct plx_task *task)
{
    if (!task->error)
        note_flushed(PLX_CONTAINER(task, struct plx_op, task));
    plx_op_step_last(task);
}

/* ---- Snapshots ---- */

static size_t snapshot_encode(struct plx_log_item *item, uint8_t *out, uint32_t *records)
{
    struct plx_op *op = PLX_CONTAINER(item, struct plx_op, item);
    struct plx_request *request = op->request;
    struct plx_log *log = &op->vdi->log;

    ++*records;
    if (plx_op_carries(op)) { /* FRONT-4 */
        PLX_ASSERT(request->seq == log->cursor.snap_seq + 1);
        log->cursor.snap_seq++;
        log->snapshot_ns = op->vdi->last_snapshot_ns =
            plx_max_u64(request->time_ns, op->vdi->last_snapshot_ns);
        return plx_record_put_snapshot(out, request->seq, request->time_ns);
    }
    request->seq = ++log->cursor.snap_seq;
    /* While this one waited for a batch, an automatic snapshot may have overtaken it, and have a
     * later time by now. Times of snapshots only rise. */
    request->time_ns = log->snapshot_ns =
        plx_max_u64(request->time_ns, plx_min_u64(log->snapshot_ns + 1, PLX_TIME_MAX));
    op->vdi->last_snapshot_ns = plx_max_u64(request->time_ns, op->vdi->last_snapshot_ns);
    return plx_record_put_snapshot(out, request->seq, request->time_ns);
}

static void snapshot_apply(struct plx_log_item *item)
{
    struct plx_op *op = PLX_CONTAINER(item, struct plx_op, item);

    PLX_ASSERT(op->request->seq == op->vdi->map.gen + 1);
    plx_map_apply_snapshot(&op->vdi->map, op->vdi->map.gen + 1);
    op->vdi->gen_ns = op->request->time_ns;
}

/* A snapshot failed: writes in place that it waited for no longer report to it. */
static void forget_in_place(const struct plx_op *op)
{
    for (struct plx_op *other = op->vdi->oldest; other; other = other->next)
        if (other->seen_by == op)
            other->seen_by = NULL;
}

/* Nothing has changed since the last snapshot: that one must be durable, with the writes in place
 * that it sees and that may still be in flight. */
static void step_unchanged(struct plx_task *task)
{
    struct plx_op *op = PLX_CONTAINER(task, struct plx_op, task);
    struct plx_vdi *vdi = op->vdi;

    if (!plx_ops_ended_before(vdi, op->ticket, true, task))
        return;
    task->step = plx_op_step_flush;
    if (vdi->log.write_back)
        plx_store_flush(vdi->store, task, vdi->flush_mark);
    else
        plx_op_step_last(task);
}

/* It takes its place in the stream of writes, which is not drained for it. (Parallax 5.3.) If
 * nothing has changed since the last snapshot, the request gets that one. */
void plx_op_start_snapshot(struct plx_op *op)
{
    static const struct plx_log_item_ops ops = {snapshot_encode, snapshot_apply};
    struct plx_vdi *vdi = op->vdi;

    if (plx_op_carries(op)) { /* FRONT-4 */
        vdi->map.gen_submitted++;
        append(op, PLX_RECORD_SNAPSHOT, &ops);
        return;
    }
    if (!vdi->changed && vdi->map.gen && vdi->map.gen == vdi->map.gen_submitted) {
        op->request->seq = vdi->map.gen;
        op->request->time_ns = vdi->last_snapshot_ns;
        op->task.step = step_unchanged;
        plx_task_ready(vdi->store, &op->task);
        return;
    }
    vdi->changed = false;
    vdi->map.gen_submitted++; /* writes from now on are not seen by it */
    op->request->time_ns = plx_vdi_snapshot_time(vdi);
    plx_protect_ordered(vdi, op->request);
    append(op, PLX_RECORD_SNAPSHOT, &ops);
}

void plx_op_step_snapshot(struct plx_task *task)
{
    struct plx_op *op = PLX_CONTAINER(task, struct plx_op, task);

    if (task->error) {
        forget_in_place(op);
        op->vdi->map.gen_submitted--; /* it was never logged */
        plx_op_note_change(op);
    }
    plx_op_step_last(task);
}

/* ---- Labels ---- */

static size_t label_encode(struct plx_log_item *item, uint8_t *out, uint32_t *records)
{
    const struct plx_request *request = PLX_CONTAINER(item, struct plx_op, item)->request;

    ++*records;
    return plx_record_put_label(out, request->seq, request->label, request->remove);
}

static void label_apply(struct plx_log_item *item)
{
}

/* A snapshot that is being let go counts as gone (RECLAIM-5, RECLAIM-6): no label may keep it. */
void plx_op_start_label(struct plx_op *op)
{
    static const struct plx_log_item_ops ops = {label_encode, label_apply};
    struct plx_vdi *vdi = op->vdi;
    uint64_t seq = op->request->seq;
    bool gone =
        seq <= vdi->record.oldest.snap_seq || plx_vdi_lets_go(vdi->store, vdi->record.slot, seq);

    vdi->labels_begun++;
    op->labels = true;
    if (gone && !op->request->remove) /* a label that outlived its snapshot can be removed */
        plx_op_finish(op, PLX_ERR_NOT_FOUND);
    else
        append(op, PLX_RECORD_LABEL, &ops);
}

/* ---- Resizing ---- */

static size_t resize_encode(struct plx_log_item *item, uint8_t *out, uint32_t *records)
{
    ++*records;
    return plx_record_put_resize(out, PLX_CONTAINER(item, struct plx_op, item)->request->length);
}

static void resize_apply(struct plx_log_item *item)
{
    struct plx_op *op = PLX_CONTAINER(item, struct plx_op, item);

    op->vdi->size_bytes = op->request->length;
    plx_protect_note_change(op->vdi);
}

void plx_op_start_resize(struct plx_op *op)
{
    static const struct plx_log_item_ops ops = {resize_encode, resize_apply};

    append(op, PLX_RECORD_RESIZE, &ops);
}

/* ---- Key frames ---- */

void plx_op_start_keyframe(struct plx_op *op)
{
    op->state = OP_KEYFRAME;
    plx_keyframe_request(op->vdi, &op->task);
}
