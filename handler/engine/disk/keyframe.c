/* keyframe.c - when a key frame is written, the log's index, how a key frame ends; see keyframe.h.
 * The states that a key frame passes through are in keyframe_steps.c.
 *
 * Words: the "old" key frame is the one that the record on the store names when a new one begins.
 * To "announce" a key frame is to log a record (KEYFRAME or REWIND) that says where it lies; the
 * header of a new segment announces the key frame in effect as well. The "position" of a key frame
 * is the place in the log up to which its tree includes all changes. Its announcement comes later.
 *
 * KEYFRAME-1  A record names a key frame only after all that the key frame depends on is durable:
 *     its nodes, the data that they name, the allocation bits of both, and the log up to its
 *     position. So a crash never finds a record that leads to something half written.
 * KEYFRAME-2  A disk writes one key frame at a time. The record has two slots (A/B): a new record
 *     goes to the slot that is not in effect, and is flushed. Only then is its mirror copy written
 *     over the other slot. So a torn write never hits the only durable copy of the record (INV-2).
 * KEYFRAME-3  A snapshot that is kept can always be opened, and always from the same key frame: the
 *     last one that the log announces before the snapshot. Readers here or in other processes may
 *     be using that key frame, so its nodes must stay, and no reader may be led to another one.
 *     With key frames K1 and K2 and snapshots 5 to 7 this means:
 *
 *       log          K1 announced ... 5 ... position of K2 ... 6 ... K2 announced ... 7
 *       opened from                   K1                       K1                     K2
 *
 *     If K1 has been let go, because history begins later, the record's oldest key frame takes its
 *     place. What follows for writing K2 over K1:
 *       - K2 is announced only when the record that names it is durable.
 *       - Nodes of K1 that K2 has replaced are freed only after K2's announcement is in the log,
 *         after every operation that may read them has ended (KEYFRAME-4), and only if no snapshot
 *         lies between K1's position and that announcement. Otherwise, or if the announcement
 *         fails, they stay until that history is let go (reclaim.c).
 *       - The last key frame of a disk that is closed is the exception: it is not announced, and
 *         the nodes that it replaces are freed at once. Nothing is logged behind it (KEYFRAME-5),
 *         and the next opening announces it before anything else.
 *       - Those nodes also stay if the record still says that history begins with K1. Usually a
 *         snapshot lies between then. But if a snapshot was logged while K2 was written, and its
 *         batch failed (LOG-4), none does.
 *       - If no snapshot is kept when K2 is written, history begins with K2 (op->alone). From this
 *         decision until the announcement the log holds snapshots back. Otherwise a snapshot in
 *         between would be opened from K1 before the record flips, and from K2 afterwards.
 *     A rewind (rewind.c) writes a key frame whose tree the log before it does not lead to, and no
 *     reader may replay across its position. So the log says this (a REWIND record) before it says
 *     anything else; if that cannot be logged, the disk stops. If a crash comes between record and
 *     announcement, recovery writes its own key frame at the same position, and announces that one
 *     as the rewind.
 * KEYFRAME-4  A block that died before the key frame's position is freed only after two events: the
 *     record is durable, and every operation that may still read the block has ended. A crash
 *     before the record is durable makes recovery start from the old record, so until then none of
 *     these blocks may have a new user:
 *       what died                                      what recovery from the old record does
 *       new and dead again since the old key frame     may read it to prove a batch (REPLAY-2)
 *         (frozen_deaths; what history lets go)
 *       replaced in the old tree (data_deaths)         merges the same log into the same tree, and
 *                                                      so frees the block once more
 * KEYFRAME-5  The last key frame of a disk that is closed includes all of its log, and its record
 *     names no owner. The log is ended before that key frame is written, so nothing is ever logged
 *     behind it.
 * KEYFRAME-6  Before a key frame overwrites anything, it reads the record on the store. A later
 *     epoch or generation than the one in memory means that another host took the disk over while
 *     this instance was alive. The disk then stops (FENCED). It overwrites neither that record nor
 *     the bitmaps of extents that the other host adopted. This is no real fencing: it limits the
 *     damage when the operator wrongly declared this host dead. A record that is older or cannot be
 *     read proves nothing, and the key frame goes on.
 * Loop: the disk's; one task, never blocks.
 * Crash story: until the new record is durable, the old record and the log behind it are in effect.
 *   The new nodes are then garbage: in free blocks, or leaks if the bitmaps were written already.
 *   From then on recovery does not need the log before the new position. Blocks that died and were
 *   not freed yet are leaks, which a collection (mark and sweep) finds.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/disk/keyframe_inside.h"

#define DEATHS_DUE 16384u
#define UNMAPPED_DUE 8192u /* blocks: space is given back soon after a trim */
/* A change waits between AGE_MIN_NS and AGE_MAX_NS for a key frame. History is let go in stretches
 * between key frames (reclaim.c), so a short window of history gets key frames at shorter
 * distances: each stretch is then a small part of the window. */
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

/* A key frame that failed is not tried again at once. */
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

    if (op->running) /* KEYFRAME-2 */
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

/* Segment numbers grow for ever, the index does not: it is keyed by the number modulo its size. Two
 * retained segments never collide, for no store has room for even a fraction of that number. */
static uint64_t index_of(uint64_t segment)
{
    return segment & ((1ull << (PLX_INDEX_LEVELS * PLX_NODE_SHIFT)) - 1);
}

/* The address of a segment once the record is in effect: history that is let go may have moved it.
 */
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
    /* From the old key frame's segment on, entries may be new or differ from the old index. */
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

    op->error = error;
    op->running = op->alone = false;
    if (op->drop) /* the history is not let go after all: its owner offers it once only */
        op->drop = op->next_drop = NULL;
    op->detour = NULL;
    if (error)
        op->failed_at_ns = store->env->monotonic_ns(store->env);
    if (error && error != op->vdi->log.sticky) /* a stopped disk was reported already */
        plx_store_event(store, error, "virtual disk %s: no key frame could be written: %s",
                        op->vdi->record.name, plx_error_text(error));
    plx_reserve_keyframe_ended(op->vdi);
    plx_queue_wake(store, &op->waiters, error);
}

/* Ends a key frame whose record was not written, or may not have been (record_failed()). For this
 * instance the old one stays, and the changes stay frozen for the next attempt. */
void plx_keyframe_give_up(struct plx_keyframe_op *op, int error)
{
    plx_tree_abort(&op->tree);
    plx_deaths_give_back(op->vdi->store, &op->made, NULL);
    /* The next attempt merges the same changes and finds the same deaths again. */
    plx_deaths_free(&op->data_deaths);
    plx_deaths_free(&op->node_deaths);
    plx_deaths_free(&op->index_deaths);
    plx_keyframe_finish(op, error);
}
