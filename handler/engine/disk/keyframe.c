/* keyframe.c - see keyframe.h.
 *
 * K1  A record names only a tree whose nodes and data, bitmap bits and log are durable before.
 * K2  A VDI has one key frame under way at most; the record's slots alternate, and a slot is
 *     written only after the other is durable (INV-2). Then it follows the other (its mirror).
 * K3  A snapshot is always found through a key frame that is kept, and whenever it is looked for
 *     through the same one, for somebody may go on reading by that: the log announces each key
 *     frame after its record is durable, and only if no snapshot came between the old key frame
 *     and that announcement are the old one's nodes freed, and not while history begins with it (a
 *     snapshot that was logged may have been taken back). What no announcement helps to find is
 *     found through the record's oldest key frame, where history and the log begin: the new one
 *     itself, if no snapshot is kept (alone). Before the announcement of such a one no snapshot is
 *     logged once that is settled: it would be found through the old one first, then through this.
 *     A rewind (rewind.c) names a tree to which the log before it does not lead. No snapshot after
 *     it may be replayed across: the log says so (REWIND) before it says anything else, and stops
 *     if it cannot. After a crash in between, the key frame of recovery stands at the same position
 *     and says it.
 * K4  A block that died before the key frame's position is freed only after the record is durable
 *     and every operation that may still read it has ended.
 *     The log behind the old record names those that died within it (frozen_deaths, and what
 *     history lets go), and recovery from that one may have to prove them (replay.c, R2). What the
 *     merge replaced in the old tree (data_deaths) recovery does not read, but frees: from the old
 *     record it merges the same log into the same tree, and finds the same deaths. What somebody
 *     was given meanwhile would be freed under him.
 * K5  The last key frame of a disk that is closed includes all of its log, and its record names
 *     nobody any more. So the log is ended before: nothing is ever logged behind it.
 * K6  Before anything is rewritten, the record on the store is read. A later epoch or generation
 *     than the one in memory was written by a host that took the disk over although this one is
 *     alive. The disk stops (FENCED) before it overwrites that record, or bitmaps of extents that
 *     were adopted with it. This is no fence: it limits the damage of a wrong word of the operator.
 *     What cannot be read, or is older, proves nothing.
 * Loop: the VDI's.
 * Crash story: before the record is durable, the old record and the log after it stand; the new
 *   nodes are garbage in free blocks or leaks. After it, the log before the position is not
 *   needed by recovery. Deaths that were not yet freed are leaks that a sweep finds.
 */
#include "engine/disk/keyframe.h"

#include <stdlib.h>
#include <string.h>

#include "engine/disk/reserve.h"
#include "engine/disk/vdi.h"

#define DEATHS_DUE 16384u
#define UNMAPPED_DUE 8192u /* blocks: space is given back soon after a trim */
/* Changes do not wait longer than this for a key frame; a short window of history is let go in
 * stretches between key frames, so that these are a small part of it (reclaim.c). */
#define AGE_MIN_NS 1000000000ull
#define AGE_MAX_NS 30000000000ull
#define STRETCHES_IN_WINDOW 32u
#define RETRY_NS 1000000000ull

enum {
    KEYFRAME_LOOK,
    KEYFRAME_START,
    KEYFRAME_TREE,
    KEYFRAME_INDEX_START,
    KEYFRAME_INDEX,
    KEYFRAME_BITMAPS,
    KEYFRAME_RECORD,
    KEYFRAME_FLUSHED,
    KEYFRAME_MIRRORED,
    KEYFRAME_ANNOUNCED,
    KEYFRAME_FREE,
};

static void keyframe_step(struct plx_task *task);

int plx_keyframe_init(struct plx_vdi *vdi)
{
    struct plx_keyframe_op *op = &vdi->keyframe;

    op->vdi = vdi;
    op->task.step = keyframe_step;
    op->begun_ns = vdi->store->env->monotonic_ns(vdi->store->env);
    op->block = aligned_alloc(PLX_BLOCK_SIZE, 2 * PLX_BLOCK_SIZE);
    return op->block ? 0 : PLX_ERR_NOMEM;
}

void plx_keyframe_done(struct plx_vdi *vdi)
{
    struct plx_keyframe_op *op = &vdi->keyframe;

    plx_tree_done(&op->tree);
    plx_deaths_free(&op->data_deaths);
    plx_deaths_free(&op->node_deaths);
    plx_deaths_free(&op->index_deaths);
    plx_deaths_free(&op->segment_deaths);
    plx_deaths_free(&op->made);
    free(op->block);
    op->block = NULL;
}

void plx_keyframe_request(struct plx_vdi *vdi, struct plx_task *task)
{
    if (task)
        plx_queue_push(&vdi->keyframe.next_waiters, task);
    vdi->keyframe.wanted = true;
}

int plx_keyframe_run(struct plx_vdi *vdi)
{
    struct plx_waiter waiter = PLX_WAITER;

    plx_keyframe_request(vdi, &waiter.task);
    return plx_waiter_wait(vdi->store, &waiter);
}

static bool aged(const struct plx_vdi *vdi)
{
    const struct plx_protection *policy = &vdi->protect.policy;
    uint64_t window_ns = policy->tiers ? policy->tier[policy->tiers - 1].keep_ns : UINT64_MAX;
    uint64_t age_ns =
        plx_max_u64(AGE_MIN_NS, plx_min_u64(window_ns / STRETCHES_IN_WINDOW, AGE_MAX_NS));
    struct plx_env *env = vdi->store->env;

    return env->monotonic_ns(env) - vdi->keyframe.begun_ns > age_ns;
}

static bool due(const struct plx_vdi *vdi)
{
    const struct plx_store_options *options = &vdi->store->options;

    return vdi->map.active.count >= options->keyframe_mappings || vdi->map.is_frozen ||
           vdi->log.bytes_since_keyframe >= options->keyframe_log_bytes ||
           vdi->map.deaths.count >= DEATHS_DUE || vdi->map.unmapped_blocks >= UNMAPPED_DUE ||
           (vdi->map.active.count && aged(vdi)) ||
           vdi->map.gen - vdi->map.active.first_gen > PLX_OVERLAY_GENS / 2;
}

/* A failed one is not tried again at once. */
static bool may_retry(const struct plx_keyframe_op *op)
{
    struct plx_env *env = op->vdi->store->env;

    return !op->vdi->log.sticky && env->monotonic_ns(env) - op->failed_at_ns > RETRY_NS;
}

bool plx_keyframe_would_help(const struct plx_vdi *vdi)
{
    const struct plx_keyframe_op *op = &vdi->keyframe;

    if (vdi->snapshot || vdi->log.sticky)
        return false;
    return op->running || (!vdi->closing && (vdi->map.active.count || vdi->map.is_frozen) &&
                           (!op->error || may_retry(op)));
}

bool plx_keyframe_goes_on(const struct plx_vdi *vdi)
{
    return vdi->keyframe.running && vdi->keyframe.state >= KEYFRAME_ANNOUNCED;
}

void plx_keyframe_pump(struct plx_vdi *vdi)
{
    struct plx_keyframe_op *op = &vdi->keyframe;

    if (op->running)
        return;
    if (!op->wanted && (!due(vdi) || (op->error && !may_retry(op))))
        return;
    op->wanted = false;
    op->running = true;
    op->begun_ns = vdi->store->env->monotonic_ns(vdi->store->env);
    op->waiters = op->next_waiters;
    op->next_waiters = (struct plx_queue){0};
    op->state = KEYFRAME_LOOK;
    plx_task_ready(vdi->store, &op->task);
}

/* ---- The log's index: a radix tree from segment number to address ---- */

/* Segment numbers grow for ever, the index does not: it holds the number modulo its size, of which
 * no store has room for a fraction at one time. */
static uint64_t index_of(uint64_t segment)
{
    return segment & ((1ull << (PLX_INDEX_LEVELS * PLX_NODE_SHIFT)) - 1);
}

/* Where a segment will be. */
static uint64_t segment_place(const struct plx_keyframe_op *op, uint64_t segment)
{
    const struct plx_log *log = &op->vdi->log;

    for (size_t i = 0; op->drop && i < op->drop->move_count; i++)
        if (op->drop->moves[i].segment == segment)
            return op->drop->moves[i].addr;
    return log->segments[segment - log->first_segment];
}

static int index_begin(struct plx_keyframe_op *op)
{
    struct plx_vdi *vdi = op->vdi;
    uint64_t bytes = plx_log_segment_bytes(vdi->store);
    uint64_t trimmed = op->oldest.pos / bytes, old_first = vdi->log.first_segment;
    /* Entries from the old key frame's segment on may be new or have changed. */
    uint64_t from = plx_max_u64(trimmed, vdi->record.keyframe.pos / bytes);
    uint64_t end = old_first + vdi->log.segment_count;
    size_t moved = op->drop ? op->drop->move_count : 0, n = 0;
    size_t count = (size_t)((trimmed - old_first) + moved + (end > from ? end - from : 0));
    struct plx_tree_change *changes = malloc((count + 1) * sizeof *changes);
    int error;

    if (!changes)
        return PLX_ERR_NOMEM;
    for (uint64_t s = old_first; s < trimmed; s++)
        changes[n++] = (struct plx_tree_change){.index = index_of(s)};
    for (size_t i = 0; i < moved && op->drop->moves[i].segment < from; i++)
        changes[n++] = (struct plx_tree_change){.index = index_of(op->drop->moves[i].segment),
                                                .entry = op->drop->moves[i].addr};
    for (uint64_t s = from; s < end; s++)
        changes[n++] =
            (struct plx_tree_change){.index = index_of(s), .entry = segment_place(op, s)};
    error = plx_tree_begin_plain(&op->tree, vdi->store, vdi->record.index_root, PLX_INDEX_LEVELS,
                                 changes, n, &op->task, &op->index_deaths);
    free(changes);
    return error;
}

/* ---- Ending ---- */

static void finish(struct plx_keyframe_op *op, int error)
{
    struct plx_store *store = op->vdi->store;
    struct plx_task *task;

    op->error = error;
    op->running = op->alone = false;
    if (op->drop) /* not let go after all; it is offered once */
        op->drop = op->next_drop = NULL;
    op->detour = NULL;
    if (error)
        op->failed_at_ns = store->env->monotonic_ns(store->env);
    if (error && error != op->vdi->log.sticky) /* the disk has stopped: that was said already */
        plx_store_event(store, error, "virtual disk %s: no key frame could be written: %s",
                        op->vdi->record.name, plx_error_text(error));
    plx_reserve_keyframe_ended(op->vdi);
    while ((task = plx_queue_pop(&op->waiters)) != NULL) {
        task->error = error;
        plx_task_ready(store, task);
    }
}

/* Before the record was written: everything stays as it was, the changes stay frozen. */
static void give_up(struct plx_keyframe_op *op, int error)
{
    plx_tree_abort(&op->tree);
    plx_deaths_give_back(op->vdi->store, &op->made, NULL);
    /* The merge will find the same deaths again. */
    plx_deaths_free(&op->data_deaths);
    plx_deaths_free(&op->node_deaths);
    plx_deaths_free(&op->index_deaths);
    finish(op, error);
}

/* ---- Steps ---- */

/* A finished tree's new nodes: freed again if the record cannot be written. */
static void keep_made(struct plx_keyframe_op *op)
{
    for (size_t i = 0; i < op->tree.made.count; i++)
        plx_deaths_add(&op->made, op->tree.made.addrs[i]);
    op->made.lost += op->tree.made.lost;
    plx_tree_done(&op->tree);
}

static void take_detour(struct plx_keyframe_op *op)
{
    PLX_ASSERT(!op->vdi->map.frozen.count && op->target.snap_seq == op->vdi->map.gen);
    op->target.root = op->detour->root;
    op->target.levels = op->detour->levels;
    op->target.mapped = op->detour->mapped;
    op->target.vouched = op->detour->vouched;
    op->made = op->detour->made;
    op->detour->made = (struct plx_deaths){0};
    op->flush_mark = plx_min_u64(op->flush_mark, op->detour->flush_mark);
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

static int start(struct plx_keyframe_op *op)
{
    struct plx_vdi *vdi = op->vdi;
    unsigned levels = plx_map_levels_for(vdi->size_bytes);
    bool fresh = !vdi->map.is_frozen;

    /* What an earlier, failed attempt froze is written first; newer changes the next time. */
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
            .time_ns = vdi->last_snapshot_ns,
        };
        vdi->log.bytes_since_keyframe = 0;
    }
    op->drop = op->next_drop;
    PLX_ASSERT(fresh || !op->drop); /* the drop goes by where the log lies now */
    op->oldest = op->drop && op->drop->oldest.levels ? op->drop->oldest : vdi->record.oldest;
    op->old_snap_seq = vdi->record.keyframe.snap_seq;
    op->flush_mark = vdi->log.undurable ? vdi->log.flush_mark : vdi->store->flush_failures;
    if (op->drop)
        op->flush_mark = plx_min_u64(op->flush_mark, op->drop->flush_mark);
    if (op->detour) {
        take_detour(op);
        return 0;
    }
    return plx_tree_begin_map(&op->tree, &vdi->map, op->target.levels, &op->task, &op->data_deaths,
                              &op->node_deaths);
}

/* Reads or writes `blocks` copies of the record, from this one on. */
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

/* To the slot that does not hold the record in effect. */
static void write_slot(struct plx_keyframe_op *op)
{
    plx_format_vdi_record_encode(&op->vdi->store->info.id, &op->record, op->block);
    record_xfer(op, PLX_IO_WRITE, op->vdi->record_slot ^ 1, 1);
}

/* K6, by what was read. */
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

/* rewind.c, W5 */
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

static void write_record(struct plx_keyframe_op *op)
{
    struct plx_vdi *vdi = op->vdi;

    op->since = plx_store_since(vdi->store);
    op->record = vdi->record;
    op->record.keyframe = op->target;
    op->record.protection = vdi->protect.kept;
    op->record.vouched_ns = vdi->vouch.completed_ns;
    op->record.doubted = vdi->vouch.doubt;
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
    if (vdi->log.ended) { /* K5 */
        PLX_ASSERT(op->target.batch_seq == vdi->log.cursor.seq - 1 && !vdi->map.active.count);
        op->record.owner = 0;
        memset(&op->record.owner_host, 0, sizeof op->record.owner_host);
    }
    write_slot(op);
}

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

/* The record may be on the store or not: which slot counts is unknown, so nothing more may be
 * built on it. Or a rewind is, and the log does not say so. */
static void record_failed(struct plx_keyframe_op *op, int error)
{
    plx_log_stop(&op->vdi->log, PLX_ERR_STICKY, error);
    plx_deaths_free(&op->made); /* the record may name them */
    give_up(op, error);
}

bool plx_keyframe_is_past(const struct plx_vdi_record *record, const struct plx_keyframe *keyframe)
{
    return keyframe->pos < record->oldest.pos ||
           (keyframe->pos == record->oldest.pos && keyframe->root != record->oldest.root);
}

bool plx_keyframe_goes_first(const struct plx_vdi *vdi)
{
    const struct plx_keyframe_op *op = &vdi->keyframe;

    return op->alone && op->state != KEYFRAME_ANNOUNCED && op->state != KEYFRAME_FREE;
}

const struct plx_rewind *plx_keyframe_rewind(const struct plx_vdi_record *record)
{
    const struct plx_rewind *last = record->rewinds ? &record->rewind[record->rewinds - 1] : NULL;

    return last && last->pos == record->keyframe.pos ? last : NULL;
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

/* K3: a snapshot may be found through the old key frame. */
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

static void announce(struct plx_keyframe_op *op)
{
    static const struct plx_log_item_ops ops = {announce_encode, announce_apply};

    op->item = (struct plx_log_item){
        .ops = &ops,
        .task = &op->task,
        .bytes = plx_record_bytes(PLX_RECORD_KEYFRAME, 0), /* a REWIND has as many */
        .flush_mark = op->vdi->store->flush_failures,
        .needs_durable = true,
        .changes = op->detour != NULL,
    };
    op->state = KEYFRAME_ANNOUNCED;
    if (op->vdi->log.spare_waiting)
        plx_alloc_wake(op->vdi->store); /* reserve.c, I5 */
    /* Snapshots wait for it, or they may have been logged before and be so again. */
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
        return false; /* the new segment's header says it */
    op->running = true;
    op->old_snap_seq = vdi->map.gen - 1; /* nothing is to be freed */
    announce(op);
    return true;
}

/* K5. A disk without snapshots needs none of its log then. One that was recovered is opened again
 * soon, and is to have its segments then (reserve.c, I3). */
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

/* START to INDEX: the tree and the log's index are made. */
static void make(struct plx_keyframe_op *op, int error)
{
    struct plx_vdi *vdi = op->vdi;

    switch (op->state) {
    case KEYFRAME_START:
        stop_if_taken_over(op);
        error = vdi->log.sticky ? vdi->log.sticky : start(op);
        if (error) {
            finish(op, error);
            return;
        }
        end_log(op);
        op->state = KEYFRAME_TREE;
        /* fall through */
    case KEYFRAME_TREE:
        if (!error)
            error = build_tree(op);
        plx_reserve_count(vdi); /* of what is left to be made */
        if (error == PLX_WAIT)
            return;
        if (error) {
            give_up(op, error);
            return;
        }
        op->state = KEYFRAME_INDEX_START;
        /* fall through */
    case KEYFRAME_INDEX_START:
        op->alone = keeps_nothing(op) && vdi->log.cursor.snap_seq == op->target.snap_seq;
        if (op->alone)
            op->oldest.pos = op->target.pos;
        error = index_begin(op);
        if (error) {
            give_up(op, error);
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
            give_up(op, error);
            return;
        }
        keep_made(op);
        op->state = KEYFRAME_BITMAPS;
        /* K1: ends with a flush that covers nodes, data and log. */
        plx_bitmap_sync(vdi->store, &op->task);
        return;
    }
}

/* ANNOUNCED and FREE: what no longer has a use is given back. */
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
        if (error) /* not announced (K3); the rest is dead all the same */
            plx_deaths_free(&op->node_deaths);
        op->state = KEYFRAME_FREE;
        op->ticket = ++vdi->tickets;
        /* fall through */
    case KEYFRAME_FREE:
        if (!plx_ops_ended_before(vdi, op->ticket, false, &op->task)) /* K4 */
            return;
        plx_deaths_give_back(store, &op->data_deaths, &op->since);
        plx_deaths_give_back(store, &op->node_deaths, &op->since);
        plx_deaths_give_back(store, &op->index_deaths, &op->since);
        plx_deaths_give_back(store, &op->segment_deaths, &op->since);
        finish(op, 0);
        return;
    }
}

/* BITMAPS to MIRRORED: the record flips to what was made. */
static void put_in_force(struct plx_keyframe_op *op, int error)
{
    struct plx_store *store = op->vdi->store;

    switch (op->state) {
    case KEYFRAME_BITMAPS:
        if (!error && op->flush_mark != store->flush_failures)
            error = store->flush_error; /* not the bitmaps', but nodes may have gone with it */
        if (error) {
            give_up(op, error);
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
        write_slot(op); /* if that fails there is one good copy all the same */
        return;
    case KEYFRAME_MIRRORED:
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

static void keyframe_step(struct plx_task *task)
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
