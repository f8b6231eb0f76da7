/* keyframe.c - when a key frame is written; see keyframe.h.
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
 * KEYFRAME-3  A snapshot that is kept can always be opened: from its base and the log between the
 *     base and it. The base is the last key frame that the log announces before the snapshot. If
 *     history begins with a later key frame by now, the base is that one. A node of a base that is
 *     freed too early gets a new user and is overwritten. Then nothing leads any more to the blocks
 *     below that node, for all snapshots that are read through this base. Readers here or in other
 *     processes go on reading a base's nodes, so while a snapshot is held (RECLAIM-6), not only
 *     kept, its base stays. With key frames K1 and K2 and snapshots 5 to 7 this means:
 *
 *      log          K1 announced ... 5 ... position of K2 ... 6 ... K2 announced ... 7
 *      opened from                   K1                       K1                     K2
 *
 *     Once 5 has been let go, and if nobody holds 6, history may begin with K2, whose position is
 *     before 6. Then K1 is gone, and K2, now the oldest key frame that the record names, is the
 *     base of 6.
 *
 *     K2 is announced only when the record that names K2 is durable. Some nodes of K1 have been
 *     replaced in K2's tree. Whether they are freed is decided when K2's announcement is in the log
 *     or has failed; for the last key frame of a disk that is closed, as soon as its record is
 *     durable. The first row that applies decides:
 *
 *      row  what is so then                           K1's replaced nodes
 *       1   K2's announcement failed                  stay: later snapshots are opened from K1
 *       2   K2 is `alone`: history begins with it     are freed: no snapshot is opened from K1
 *             (decided as said below)
 *       3   the record names K1 as the oldest key     stay: who lets history go takes the oldest
 *             frame                                     key frame for a whole one (RECLAIM-2)
 *       4   a snapshot was taken since K1's position  stay: it may be opened from K1
 *       5   none of these                             are freed
 *
 *     Examples, for logs like the one above. Snapshot 4 lies before K1's position:
 *
 *      5 was taken, and 4 is kept                                          row 4
 *      neither 5 nor 6 was taken, and 4 is kept                            row 5
 *      no snapshot was ever taken                                          row 2
 *      the first one ever is 6, logged while K2's tree was built, so K2    row 3
 *        is not `alone`; even if the batch of 6 failed afterwards (LOG-4)
 *        and there is no snapshot
 *
 *     What the rows do not say:
 *     - Whether K2 is `alone` is decided once, when K2's tree is complete: it is if no snapshot is
 *       kept then, and none was logged behind K2's position. From this decision until the
 *       announcement, new snapshots wait in the log. One that was logged in between would be opened
 *       from K1 before the record flips, and from K2 afterwards.
 *     - The last key frame of a disk that is closed is not announced. Nothing is logged behind it
 *       (KEYFRAME-5), so no snapshot can follow, and the next opening announces it first.
 *     - A snapshot between K1's position and K1's announcement is opened from the key frame before
 *       K1. Row 4 counts it all the same, because the record tells only K1's position.
 *     A rewind (rewind.c) writes a key frame whose tree does not follow from the log before it, so
 *     no reader may replay the log across its position. The log's next record is therefore a REWIND
 *     record, which announces that key frame. If it cannot be logged, the disk stops. If a crash
 *     comes between VDI record and announcement, recovery writes its own key frame at the same
 *     position, and announces that one as the rewind.
 * KEYFRAME-4  A block that died before the key frame's position is freed only after two events: the
 *     record is durable, and every operation that may still read the block has ended. A crash
 *     before the record is durable makes recovery start from the old record, so until then none of
 *     these blocks may have a new user:
 *       what died                                      what recovery from the old record does
 *       new and dead again since the old key frame     may read it to prove a batch (REPLAY-2)
 *         (frozen_deaths)
 *       replaced in the old tree (data_deaths)         merges the same log into the same tree, and
 *                                                      so frees the block once more
 *       what history lets go (reclaim.c)               keeps that history, which the old record
 *                                                      names: its snapshots are read from there
 *                                                      (RECLAIM-5)
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

void plx_keyframe_pump(struct plx_vdi *vdi)
{
    struct plx_keyframe_op *op = &vdi->keyframe;

    if (op->running) /* KEYFRAME-2 */
        return;
    if (!op->wanted && (!due(vdi) || (op->error && !plx_keyframe_may_retry(op))))
        return;
    op->wanted = false;
    op->running = true;
    op->begun_ns = vdi->store->env->monotonic_ns(vdi->store->env);
    op->waiters = op->next_waiters;
    op->next_waiters = (struct plx_queue){0};
    op->state = KEYFRAME_LOOK;
    plx_task_ready(vdi->store, &op->task);
}
