/* keyframe.c - see keyframe.h.
 *
 * KEYFRAME-1  A record names only a tree whose nodes and data, bitmap bits and log are durable
 *     before.
 * KEYFRAME-2  A VDI has one key frame under way at most; the record's slots alternate, and a slot
 *     is written only after the other is durable (INV-2). Then it follows the other (its mirror).
 * KEYFRAME-3  A snapshot is always found through a key frame that is kept, and whenever it is
 *     looked for through the same one, for somebody may go on reading by that: the log announces
 *     each key frame after its record is durable, and only if no snapshot came between the old key
 *     frame and that announcement are the old one's nodes freed, and not while history begins with
 *     it (a snapshot that was logged may have been taken back). What no announcement helps to find
 *     is found through the record's oldest key frame, where history and the log begin: the new one
 *     itself, if no snapshot is kept (alone). Before the announcement of such a one no snapshot is
 *     logged once that is settled: it would be found through the old one first, then through this.
 *     A rewind (rewind.c) names a tree to which the log before it does not lead. No snapshot after
 *     it may be replayed across: the log says so (REWIND) before it says anything else, and stops
 *     if it cannot. After a crash in between, the key frame of recovery stands at the same position
 *     and says it.
 * KEYFRAME-4  A block that died before the key frame's position is freed only after the record is
 *     durable and every operation that may still read it has ended. The log behind the old record
 *     names those that died within it (frozen_deaths, and what history lets go), and recovery from
 *     that one may have to prove them (REPLAY-2). What the merge replaced in the old tree
 *     (data_deaths) recovery does not read, but frees: from the old record it merges the same log
 *     into the same tree, and finds the same deaths. What somebody was given meanwhile would be
 *     freed under him.
 * KEYFRAME-5  The last key frame of a disk that is closed includes all of its log, and its record
 *     names nobody any more. So the log is ended before: nothing is ever logged behind it.
 * KEYFRAME-6  Before anything is rewritten, the record on the store is read. A later epoch or
 *     generation than the one in memory was written by a host that took the disk over although this
 *     one is alive. The disk stops (FENCED) before it overwrites that record, or bitmaps of extents
 *     that were adopted with it. This is no fence: it limits the damage of a wrong word of the
 *     operator. What cannot be read, or is older, proves nothing.
 * Loop: the VDI's.
 * Crash story: before the record is durable, the old record and the log after it stand; the new
 *   nodes are garbage in free blocks or leaks. After it, the log before the position is not
 *   needed by recovery. Deaths that were not yet freed are leaks that a sweep finds.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/disk/keyframe_inside.h"

#define DEATHS_DUE 16384u
#define UNMAPPED_DUE 8192u /* blocks: space is given back soon after a trim */
/* Changes do not wait longer than this for a key frame; a short window of history is let go in
 * stretches between key frames, so that these are a small part of it (reclaim.c). */
#define AGE_MIN_NS 1000000000ull
#define AGE_MAX_NS 30000000000ull
#define STRETCHES_IN_WINDOW 32u
#define RETRY_NS 1000000000ull

int plx_keyframe_init(struct plx_vdi *vdi)
{
    struct plx_keyframe_op *op = &vdi->keyframe;

    op->vdi = vdi;
    op->task.step = plx_keyframe_step;
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

int plx_keyframe_index_begin(struct plx_keyframe_op *op)
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

void plx_keyframe_finish(struct plx_keyframe_op *op, int error)
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
void plx_keyframe_give_up(struct plx_keyframe_op *op, int error)
{
    plx_tree_abort(&op->tree);
    plx_deaths_give_back(op->vdi->store, &op->made, NULL);
    /* The merge will find the same deaths again. */
    plx_deaths_free(&op->data_deaths);
    plx_deaths_free(&op->node_deaths);
    plx_deaths_free(&op->index_deaths);
    plx_keyframe_finish(op, error);
}
