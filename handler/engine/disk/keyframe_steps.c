/* keyframe_steps.c - the steps of a key frame (KEYFRAME-1 to KEYFRAME-6 are in keyframe.c).
 *
 * A key frame (the checkpoint of a disk's map) passes through these states. Each names what the
 * task waits for; plx_keyframe_step() moves it on when that has happened.
 *
 *    state         what happens on leaving it                         a crash in it leaves
 *  1 LOOK          both slots of the store's record are read           the old record
 *  2 START         taken over? (KEYFRAME-6) The map is frozen          the old record
 *  3 TREE          the frozen changes are merged into a new tree       + nodes in free blocks
 *  4 INDEX_START   `alone` is decided: does history begin here?        + nodes in free blocks
 *  5 INDEX         the log's index is built; bitmaps are written       + nodes in free blocks
 *  6 BITMAPS       all is durable (KEYFRAME-1): the record is written  + nodes that leak
 *  7 RECORD        the record is flushed                               the old or the new record
 *  8 FLUSHED       the new record is in effect; the mirror is written  the old or the new record
 *  9 MIRRORED      another mark of a ring: the mirror is flushed       the new record, + leaks
 * 10 MARKED        the announcement is logged                          the new record, + leaks
 * 11 ANNOUNCED     operations that read what died are waited for       the new record, + leaks
 * 12 FREE          what died is freed                                  the new record, + leaks
 *
 * An error up to BITMAPS gives the key frame up: the changes stay frozen for the next one. An error
 * in RECORD or FLUSHED stops the disk, for nobody can tell which slot counts. Later errors cost no
 * more than blocks that stay allocated, with two exceptions that stop the disk: a rewind must be
 * announced (KEYFRAME-3), and a mark must be in both slots (FRONT-2).
 */
#include <stdlib.h>
#include <string.h>

#include "engine/disk/keyframe_inside.h"

/* Remembers a finished tree's new nodes: they are freed again if the record cannot be written. */
static void keep_made(struct plx_keyframe_op *op)
{
    for (size_t i = 0; i < op->tree.made.count; i++)
        plx_deaths_add(&op->made, op->tree.made.addrs[i]);
    op->made.lost += op->tree.made.lost;
    plx_tree_done(&op->tree);
}

/* A rewind: the key frame names the tree that rewind.c has written, not one of its own. */
static void take_detour(struct plx_keyframe_op *op)
{
    PLX_ASSERT(!op->vdi->map.frozen.count && op->target.snap_seq == op->vdi->map.gen);
    op->target.root = op->detour->root;
    op->target.levels = op->detour->levels;
    op->target.mapped = op->detour->mapped;
    op->target.vouched = op->detour->vouched;
    op->made = op->detour->made;
    op->detour->made = (struct plx_deaths){0};
    op->flush_mark = plx_flush_mark_older(op->flush_mark, op->detour->flush_mark);
}

static int build_tree(struct plx_keyframe_op *op)
{
    int error = op->detour ? 0 : plx_tree_step(&op->tree, &op->target.root);

    if (error || op->detour)
        return error;
    op->target.levels = op->tree.result_levels;
    plx_tree_count(&op->tree, op->target.size_bytes, &op->target.mapped, &op->target.vouched);
    keep_made(op);
    return 0;
}

/* State START: freezes the changes and says what the key frame will be. */
static int start(struct plx_keyframe_op *op)
{
    struct plx_vdi *vdi = op->vdi;
    unsigned levels = plx_map_levels_for(vdi->size_bytes);
    bool fresh = !vdi->map.is_frozen;

    /* If an earlier key frame failed, this one writes the changes that were frozen then, at the
     * position of then. Newer changes go into the next key frame. */
    if (!vdi->map.is_frozen) {
        if (!plx_map_freeze(&vdi->map))
            return PLX_ERR_NOMEM;
        plx_overlay_sort(&vdi->map.frozen);
        op->at = vdi->log.applied;
        op->target = (struct plx_keyframe){
            .levels = (uint32_t)plx_max_u64(levels, vdi->map.base.levels),
            .size_bytes = vdi->size_bytes,
            .pos = op->at.pos,
            .batch_seq = op->at.seq - 1,
            .prev_hash = op->at.hash,
            .snap_seq = vdi->map.gen,
            .time_ns = vdi->gen_ns,
        };
        vdi->log.bytes_since_keyframe = 0;
    }
    op->drop = op->next_drop;
    PLX_ASSERT(fresh || !op->drop); /* a drop needs a key frame at the current position */
    op->oldest = op->drop && op->drop->oldest.levels ? op->drop->oldest : vdi->record.oldest;
    op->old_snap_seq = vdi->record.keyframe.snap_seq;
    op->flush_mark = vdi->log.undurable ? vdi->log.flush_mark : plx_flush_mark(vdi->store);
    if (op->drop)
        op->flush_mark = plx_flush_mark_older(op->flush_mark, op->drop->flush_mark);
    if (op->detour) {
        take_detour(op);
        return 0;
    }
    return plx_tree_begin_map(&op->tree, &vdi->map, op->target.levels, &op->task, &op->data_deaths,
                              &op->node_deaths);
}

/* Reads or writes `blocks` slots of the record, from slot `copy` on. */
static void record_xfer(struct plx_keyframe_op *op, enum plx_io_op kind, unsigned copy,
                        unsigned blocks)
{
    struct plx_store *store = op->vdi->store;

    op->iov = (struct iovec){op->block, blocks * PLX_BLOCK_SIZE};
    op->join = (struct plx_join){.task = &op->task};
    plx_store_xfer(store, &op->xfer, kind, PLX_KIND_ADMIN,
                   plx_vdi_slot_addr(store, op->vdi->record.slot) + copy, 0, op->iov.iov_len,
                   &op->iov, 1, &op->join);
}

/* Writes op->record to the slot that is not in effect (KEYFRAME-2). */
static void write_slot(struct plx_keyframe_op *op)
{
    plx_format_vdi_record_encode(&op->vdi->store->info.id, &op->record, op->block);
    record_xfer(op, PLX_IO_WRITE, op->vdi->record_slot ^ 1, 1);
}

/* KEYFRAME-6: compares the slots that were read with the record in memory. */
static void stop_if_taken_over(struct plx_keyframe_op *op)
{
    struct plx_vdi *vdi = op->vdi;
    const struct plx_store *store = vdi->store;
    struct plx_vdi_record record;
    struct plx_fault why;

    for (unsigned copy = 0; copy < 2 && !op->join.error && !vdi->log.sticky; copy++) {
        if (plx_format_vdi_record_decode(op->block + copy * PLX_BLOCK_SIZE, &store->info.id,
                                         vdi->record.slot, store->addr_limit, &record, &why) ||
            (record.epoch <= vdi->record.epoch && record.generation <= vdi->record.generation))
            continue;
        plx_log_stop(&vdi->log, PLX_ERR_FENCED, 0);
        plx_store_event(vdi->store, PLX_ERR_FENCED,
                        "virtual disk %s: another host has written its record (epoch %llu, here "
                        "%llu), so it was taken over while it was open here; it is stopped",
                        vdi->record.name, (unsigned long long)record.epoch,
                        (unsigned long long)vdi->record.epoch);
    }
}

/* The record's table gets an entry for the rewind that this key frame is. */
static void note_rewind(const struct plx_keyframe_op *op, struct plx_vdi_record *record)
{
    PLX_ASSERT(record->rewinds < PLX_REWINDS_MAX);
    record->rewind[record->rewinds++] = (struct plx_rewind){
        .pos = op->target.pos,
        .seq = op->detour->seq,
        .root = op->target.root,
        .levels = op->target.levels,
    };
}

/* REWIND-5: drops the rewinds at or before the position where history begins. */
static void forget_rewinds(struct plx_vdi_record *record)
{
    uint32_t past = 0;

    while (past < record->rewinds && record->rewind[past].pos <= record->oldest.pos)
        past++;
    record->rewinds -= past;
    record->rewinds_past =
        (uint32_t)plx_min_u64((uint64_t)record->rewinds_past + past, PLX_REWINDS_PAST_MAX);
    memmove(record->rewind, record->rewind + past, record->rewinds * sizeof record->rewind[0]);
}

/* No snapshot is kept that was taken before this key frame. */
static bool keeps_nothing(const struct plx_keyframe_op *op)
{
    return op->oldest.snap_seq == op->target.snap_seq;
}

/* Makes the new record of the old one and of what the key frame is, and writes it. */
static void write_record(struct plx_keyframe_op *op)
{
    struct plx_vdi *vdi = op->vdi;

    op->since = plx_store_since(vdi->store);
    op->record = vdi->record;
    op->record.keyframe = op->target;
    op->record.protection = vdi->protect.kept;
    op->record.vouched_ns = vdi->vouch.completed_ns;
    op->record.doubted = vdi->vouch.doubt;
    op->record.mark = vdi->mark;
    op->record.position = op->at.ring;
    PLX_ASSERT(plx_ring_is_marked(&vdi->mark) || !vdi->front ||
               vdi->front->last(vdi->front) <= vdi->log.applied.ring.seq); /* FRONT-2 */
    op->marks = memcmp(&op->record.mark, &vdi->record.mark, sizeof vdi->mark) != 0;
    if (op->detour)
        note_rewind(op, &op->record);
    op->record.generation = plx_generation_next(op->record.generation);
    op->record.index_root = op->index_root;
    op->record.index_levels = PLX_INDEX_LEVELS;
    if (op->alone)
        op->oldest = op->target;
    op->old_begins =
        op->oldest.pos == vdi->record.keyframe.pos && op->oldest.root == vdi->record.keyframe.root;
    op->record.oldest = op->oldest;
    forget_rewinds(&op->record);
    op->record.first_segment = op->oldest.pos / plx_log_segment_bytes(vdi->store);
    op->record.segment_addr = op->at.addr;
    op->record.next_addr = op->at.next_addr;
    if (vdi->log.ended) { /* KEYFRAME-5 */
        PLX_ASSERT(op->target.batch_seq == vdi->log.cursor.seq - 1 && !vdi->map.active.count);
        op->record.owner = 0;
        memset(&op->record.owner_host, 0, sizeof op->record.owner_host);
    }
    write_slot(op);
}

/* The new record is durable: it takes effect in memory, and what it no longer names is dead. */
static void install(struct plx_keyframe_op *op)
{
    struct plx_vdi *vdi = op->vdi;

    plx_deaths_free(&op->made);
    vdi->record = op->record;
    vdi->record_slot ^= 1;
    vdi->store->counters.keyframes++;
    plx_map_install(&vdi->map, &op->target);
    for (size_t i = 0; i < vdi->map.frozen_deaths.count; i++)
        plx_deaths_add(&op->data_deaths, vdi->map.frozen_deaths.addrs[i]);
    plx_deaths_free(&vdi->map.frozen_deaths);
    for (size_t i = 0; op->drop && i < op->drop->move_count; i++)
        plx_log_move(&vdi->log, op->drop->moves[i].segment, op->drop->moves[i].addr,
                     &op->segment_deaths);
    plx_log_trim(&vdi->log, op->oldest.pos, &op->segment_deaths);
    if (!op->drop)
        return;
    for (size_t i = 0; i < op->drop->blocks.count; i++)
        plx_deaths_add(&op->data_deaths, op->drop->blocks.addrs[i]);
    op->next_drop = op->drop = NULL;
}

/* The new record may be on the store or not, so nobody knows which slot counts: nothing more may be
 * built on either. Or the record is there and names a rewind that the log cannot announce. */
static void record_failed(struct plx_keyframe_op *op, int error)
{
    plx_log_stop(&op->vdi->log, PLX_ERR_STICKY, error);
    plx_deaths_free(&op->made); /* the new record may name these nodes: they stay allocated */
    plx_keyframe_give_up(op, error);
}

static size_t announce_encode(struct plx_log_item *item, uint8_t *out, uint32_t *records)
{
    struct plx_keyframe_op *op = PLX_CONTAINER(item, struct plx_keyframe_op, item);
    const struct plx_vdi_record *record = &op->vdi->record;
    const struct plx_rewind *rewind = plx_keyframe_rewind(record);

    ++*records;
    return rewind ? plx_record_put_rewind(out, rewind->seq, &record->keyframe)
                  : plx_record_put_keyframe(out, &record->keyframe, false);
}

/* KEYFRAME-3: keeps the old key frame's nodes if a snapshot may be found through that key frame. */
static void keep_needed_nodes(struct plx_keyframe_op *op)
{
    if (!op->alone && (op->old_begins || op->vdi->map.gen != op->old_snap_seq))
        plx_deaths_free(&op->node_deaths);
}

static void announce_apply(struct plx_log_item *item)
{
    struct plx_keyframe_op *op = PLX_CONTAINER(item, struct plx_keyframe_op, item);

    keep_needed_nodes(op);
    if (op->detour)
        plx_protect_note_change(op->vdi);
}

/* Logs that there is a new key frame (KEYFRAME-3). */
static void announce(struct plx_keyframe_op *op)
{
    static const struct plx_log_item_ops ops = {announce_encode, announce_apply};

    op->item = (struct plx_log_item){
        .ops = &ops,
        .task = &op->task,
        .bytes = plx_record_bytes(PLX_RECORD_KEYFRAME, 0), /* a REWIND has as many */
        .flush_mark = plx_flush_mark(op->vdi->store),
        .needs_durable = true,
        .changes = op->detour != NULL,
    };
    op->state = KEYFRAME_ANNOUNCED;
    if (op->vdi->log.spare_waiting)
        plx_alloc_wake(op->vdi->store); /* RESERVE-5 */
    /* KEYFRAME-3: if history begins with this key frame, snapshots that wait in the log must come
     * behind its announcement. Else any order will do: keep_needed_nodes() looks. */
    if (op->alone)
        plx_log_prepend(&op->vdi->log, &op->item);
    else
        plx_log_append(&op->vdi->log, &op->item);
}

bool plx_keyframe_announce(struct plx_vdi *vdi)
{
    struct plx_keyframe_op *op = &vdi->keyframe;

    PLX_ASSERT(!op->running);
    if (vdi->log.cursor.pos % plx_log_segment_bytes(vdi->store) == 0)
        return false; /* the header of the next segment will name it */
    op->running = true;
    op->old_snap_seq = vdi->map.gen - 1; /* nothing is to be freed */
    announce(op);
    return true;
}

/* KEYFRAME-5: ends the log of a disk that is being closed. A disk without snapshots needs none of
 * its log any more, so its position moves behind the last segment and all segments come free. But a
 * disk that was just recovered is opened again soon: it keeps its segments (RESERVE-3). */
static void end_log(struct plx_keyframe_op *op)
{
    struct plx_vdi *vdi = op->vdi;
    uint64_t bytes = plx_log_segment_bytes(vdi->store);

    if (!op->quiet || op->at.seq != vdi->log.cursor.seq || vdi->log.head)
        return;
    vdi->log.ended = true;
    if (!keeps_nothing(op) || vdi->recovered)
        return;
    op->at.pos = op->target.pos = (vdi->log.first_segment + vdi->log.segment_count) * bytes;
    op->at.addr = op->at.next_addr = 0;
}

/* States START to INDEX: the tree and the log's index are made. */
static void make(struct plx_keyframe_op *op, int error)
{
    struct plx_vdi *vdi = op->vdi;

    switch (op->state) {
    case KEYFRAME_START:
        stop_if_taken_over(op);
        error = vdi->log.sticky ? vdi->log.sticky : start(op);
        if (error) {
            plx_keyframe_finish(op, error);
            return;
        }
        end_log(op);
        op->state = KEYFRAME_TREE;
        /* fall through */
    case KEYFRAME_TREE:
        if (!error)
            error = build_tree(op);
        plx_reserve_count(vdi); /* fewer nodes are left to be made */
        if (error == PLX_WAIT)
            return;
        if (error) {
            plx_keyframe_give_up(op, error);
            return;
        }
        op->state = KEYFRAME_INDEX_START;
        /* fall through */
    case KEYFRAME_INDEX_START:
        op->alone = keeps_nothing(op) && vdi->log.cursor.snap_seq == op->target.snap_seq;
        if (op->alone)
            op->oldest.pos = op->target.pos;
        error = plx_keyframe_index_begin(op);
        if (error) {
            plx_keyframe_give_up(op, error);
            return;
        }
        op->state = KEYFRAME_INDEX;
        /* fall through */
    case KEYFRAME_INDEX:
        if (!error)
            error = plx_tree_step(&op->tree, &op->index_root);
        if (error == PLX_WAIT)
            return;
        if (error) {
            plx_keyframe_give_up(op, error);
            return;
        }
        keep_made(op);
        op->state = KEYFRAME_BITMAPS;
        /* KEYFRAME-1: the bitmap pass ends with a flush, which covers nodes, data and log, too. */
        plx_bitmap_sync(vdi->store, &op->task);
        return;
    }
}

/* States ANNOUNCED and FREE: blocks without a use are freed. */
static void let_go(struct plx_keyframe_op *op, int error)
{
    struct plx_vdi *vdi = op->vdi;
    struct plx_store *store = vdi->store;

    switch (op->state) {
    case KEYFRAME_ANNOUNCED:
        if (error && plx_keyframe_rewind(&vdi->record)) {
            record_failed(op, error);
            return;
        }
        if (error) /* not announced: later snapshots are found through the old key frame's nodes */
            plx_deaths_free(&op->node_deaths);
        op->state = KEYFRAME_FREE;
        op->ticket = ++vdi->tickets;
        /* fall through */
    case KEYFRAME_FREE:
        if (!plx_ops_ended_before(vdi, op->ticket, false, &op->task)) /* KEYFRAME-4 */
            return;
        plx_deaths_give_back(store, &op->data_deaths, &op->since);
        plx_deaths_give_back(store, &op->node_deaths, &op->since);
        plx_deaths_give_back(store, &op->index_deaths, &op->since);
        plx_deaths_give_back(store, &op->segment_deaths, &op->since);
        plx_keyframe_finish(op, 0);
        return;
    }
}

/* States BITMAPS to MARKED: the record flips to the new key frame. */
static void put_in_force(struct plx_keyframe_op *op, int error)
{
    struct plx_store *store = op->vdi->store;

    switch (op->state) {
    case KEYFRAME_BITMAPS:
        if (!error && plx_flush_failed_since(store, op->flush_mark))
            error = store->flush_error; /* an earlier flush failed: nodes may have gone with it */
        if (error) {
            plx_keyframe_give_up(op, error);
            return;
        }
        op->state = KEYFRAME_RECORD;
        write_record(op);
        return;
    case KEYFRAME_RECORD:
        if (op->join.error) {
            record_failed(op, op->join.error);
            return;
        }
        op->state = KEYFRAME_FLUSHED;
        plx_store_flush(store, &op->task, op->flush_mark);
        return;
    case KEYFRAME_FLUSHED:
        if (error) {
            record_failed(op, error);
            return;
        }
        install(op);
        op->record.generation--;
        op->state = KEYFRAME_MIRRORED;
        write_slot(op); /* KEYFRAME-2: the mirror. If this write fails, one good slot is there. */
        return;
    case KEYFRAME_MIRRORED:
        if (op->marks && op->join.error) { /* FRONT-2 */
            record_failed(op, op->join.error);
            return;
        }
        op->state = KEYFRAME_MARKED;
        if (op->marks) {
            plx_store_flush(store, &op->task, op->flush_mark);
            return;
        }
        /* fall through */
    case KEYFRAME_MARKED:
        if (op->marks && error) {
            record_failed(op, error);
            return;
        }
        if (op->marks)
            plx_protect_apply_mode(op->vdi); /* PROTECT-8 */
        if (!op->quiet) {
            announce(op);
            return;
        }
        op->state = KEYFRAME_ANNOUNCED;
        keep_needed_nodes(op);
        let_go(op, error);
        return;
    }
}

void plx_keyframe_step(struct plx_task *task)
{
    struct plx_keyframe_op *op = PLX_CONTAINER(task, struct plx_keyframe_op, task);
    int error = task->error;

    task->error = 0;
    if (op->state == KEYFRAME_LOOK) {
        op->state = KEYFRAME_START;
        record_xfer(op, PLX_IO_READ, 0, 2);
    } else if (op->state < KEYFRAME_BITMAPS) {
        make(op, error);
    } else if (op->state < KEYFRAME_ANNOUNCED) {
        put_in_force(op, error);
    } else {
        let_go(op, error);
    }
}
