/* front.c - what a disk promises to its front, and asks of it. See front.h.
 *
 * FRONT-1  While a disk's record has a mark, a ring may have acknowledged what the disk lacks. Only
 *     its front may change such a disk then. Without a front every request fails with RING_AWAY,
 *     except READ, FLUSH and KEYFRAME, and no automatic snapshots or vouch passes are made.
 *     Replaying its log, key frames and closing change nothing that anyone can see: a process that
 *     may write the disk may do that, and mark and position stay.
 * FRONT-2  Nothing is acknowledged by a ring before the record names it, durably in both slots: if
 *     the newer slot is lost one day, the older one must not say that the disk is whole. The mark
 *     goes only when the log has durably all that was acknowledged (keyframe_steps.c).
 * FRONT-3  Carried requests are submitted in the order of their records, the next one when the last
 *     window of the one before is in the log's queue. Each window makes one log item, in which
 *     nothing is looked up: all blocks are new or unmapped. Carried requests wait for each other's
 *     ranges neither here nor anywhere: the log's order decides (LOG-6). They do wait for a move, a
 *     share or a vouch of the range, which read what they replace. If one fails, all behind it
 *     fail; when all have ended, the front begins again at the first that failed.
 * FRONT-4  A carried snapshot has the number and the time that its record got when it was appended
 *     to the ring (RINGED_APPEND-4). It is logged even if nothing has changed. Numbers have no
 *     gaps, because a marked disk takes no other snapshots.
 * FRONT-5  A position belongs to what the log holds: take_items() raises the cursor's with the
 *     item, roll_back() restores both, a key frame freezes both, replay finds both. While there is
 *     a mark or a front, the log never acknowledges what is in the device's cache only: else the
 *     ring would let go of what may still be lost.
 * Loop: the disk's; never blocks.
 * Crash story: the disk has the records up to its position, and perhaps some windows of the next
 *   one, which is carried again. A batch is in the log whole or not at all, position included.
 */
#include "engine/disk/front.h"

#include "engine/disk/op.h"

void plx_front_set(struct plx_vdi *vdi, struct plx_front *front)
{
    vdi->front = front;
    plx_vdi_set_write_back(vdi, vdi->write_back); /* FRONT-5 */
}

static bool changes(const struct plx_request *request)
{
    switch (request->op) {
    case PLX_WRITE:
    case PLX_UNMAP:
    case PLX_COMPARE_WRITE:
    case PLX_SNAPSHOT:
    case PLX_LABEL:
    case PLX_RESIZE:
        return true;
    default:
        return false;
    }
}

static void count(struct plx_front_load *load, const struct plx_request *request)
{
    if (!changes(request))
        return;
    if (!load->changes++ || request->started_ns < load->oldest_ns)
        load->oldest_ns = request->started_ns;
}

struct plx_front_load plx_front_load(const struct plx_vdi *vdi)
{
    struct plx_front_load load = {0};

    for (const struct plx_request *r = vdi->waiting; r; r = r->next)
        count(&load, r);
    for (const struct plx_op *op = vdi->oldest; op; op = op->next) {
        count(&load, op->request);
        load.waits_for_history |= op->state == OP_ROOM;
    }
    return load;
}

void plx_front_mark(struct plx_vdi *vdi, const struct plx_ring_mark *mark, struct plx_task *task)
{
    PLX_ASSERT(plx_store_allows_ring(vdi->store));
    vdi->mark = *mark;
    plx_protect_apply_mode(vdi);
    plx_keyframe_request(vdi, task);
}

/* FRONT-5. Batches that are under way have the lower position, which may come back with them. */
void plx_front_skip(struct plx_vdi *vdi, uint64_t seq)
{
    const struct plx_ring_position to = {vdi->record.epoch, seq};

    PLX_ASSERT(seq >= vdi->log.cursor.ring.seq);
    vdi->log.cursor.ring = vdi->log.applied.ring = to;
}
