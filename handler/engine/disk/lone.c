/* lone.c - requests that are one log record: snapshots, labels, resizing. See op.h.
 *
 * LONE-1  A snapshot is acknowledged only when all that it sees is durable. That includes writes in
 *     place that are in flight when it is ordered. They count as data of the snapshot's log item,
 *     so its batch waits for them (LOG-1), and the flush of the batch covers them.
 * Loop: the disk's; never blocks.
 * Crash story: log.c has it.
 */
#include <string.h>

#include "engine/disk/op.h"

static size_t lone_encode(struct plx_log_item *item, uint8_t *out, uint32_t *records)
{
    struct plx_op *op = PLX_CONTAINER(item, struct plx_op, item);
    struct plx_request *request = op->request;
    struct plx_log *log = &op->vdi->log;

    ++*records;
    switch (request->op) {
    case PLX_SNAPSHOT:
        request->seq = ++log->cursor.snap_seq;
        /* While this one waited for a batch, an automatic snapshot may have overtaken it and taken
         * its time. Times of snapshots only rise. */
        request->time_ns = log->snapshot_ns =
            plx_max_u64(request->time_ns, plx_min_u64(log->snapshot_ns + 1, PLX_TIME_MAX));
        op->vdi->last_snapshot_ns = plx_max_u64(request->time_ns, op->vdi->last_snapshot_ns);
        return plx_record_put_snapshot(out, request->seq, request->time_ns);
    case PLX_LABEL:
        return plx_record_put_label(out, request->seq, request->label, request->remove);
    default:
        return plx_record_put_resize(out, request->length);
    }
}

static void lone_apply(struct plx_log_item *item)
{
    struct plx_op *op = PLX_CONTAINER(item, struct plx_op, item);

    if (op->request->op == PLX_SNAPSHOT) {
        PLX_ASSERT(op->request->seq == op->vdi->map.gen + 1);
        plx_map_apply_snapshot(&op->vdi->map, op->vdi->map.gen + 1);
    } else if (op->request->op == PLX_RESIZE) {
        op->vdi->size_bytes = op->request->length;
        plx_protect_note_change(op->vdi);
    }
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
        op->item.flush_mark = plx_min_u64(op->item.flush_mark, other->flush_mark);
    }
}

void plx_op_forget_in_place(const struct plx_op *op)
{
    for (struct plx_op *other = op->vdi->oldest; other; other = other->next)
        if (other->seen_by == op)
            other->seen_by = NULL;
}

void plx_op_append_lone(struct plx_op *op, enum plx_record_type type, int next_state)
{
    static const struct plx_log_item_ops ops = {lone_encode, lone_apply};

    op->item = (struct plx_log_item){
        .ops = &ops,
        .task = &op->task,
        .bytes = plx_record_bytes(type, strlen(op->request->label)),
        .needs_durable = true,
        .changes = type == PLX_RECORD_RESIZE,
        .snapshot = type == PLX_RECORD_SNAPSHOT,
        .patient = op->request->patient,
        .flush_mark = op->vdi->store->flush_failures,
    };
    if (type == PLX_RECORD_SNAPSHOT)
        await_in_place(op);
    op->state = next_state;
    plx_log_append(&op->vdi->log, &op->item);
}

/* (Parallax 5.3.) If nothing has changed since the last snapshot, the request gets that one. */
void plx_op_begin_snapshot(struct plx_op *op)
{
    struct plx_vdi *vdi = op->vdi;

    if (!vdi->changed && vdi->map.gen && vdi->map.gen == vdi->map.gen_submitted) {
        op->request->seq = vdi->map.gen;
        op->request->time_ns = vdi->last_snapshot_ns;
        op->state = OP_SNAPSHOT_WAIT; /* writes in place that it sees may still be in flight */
        plx_task_ready(vdi->store, &op->task);
        return;
    }
    vdi->changed = false;
    vdi->map.gen_submitted++; /* writes from now on are not seen by it */
    op->request->time_ns = plx_vdi_snapshot_time(vdi);
    plx_protect_ordered(vdi, op->request);
    plx_op_append_lone(op, PLX_RECORD_SNAPSHOT, OP_SNAPSHOT_LOGGED);
}

/* A snapshot that is being let go counts as gone (RECLAIM-5, RECLAIM-6): no label may keep it. */
void plx_op_begin_label(struct plx_op *op)
{
    struct plx_vdi *vdi = op->vdi;
    uint64_t seq = op->request->seq;
    bool gone =
        seq <= vdi->record.oldest.snap_seq || plx_vdi_lets_go(vdi->store, vdi->record.slot, seq);

    vdi->labels_begun++;
    op->labels = true;
    if (gone && !op->request->remove) /* a label that outlived its snapshot can be removed */
        plx_op_finish(op, PLX_ERR_NOT_FOUND);
    else
        plx_op_append_lone(op, PLX_RECORD_LABEL, OP_ITEM);
}
