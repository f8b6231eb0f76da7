/* front.c - what a disk promises to its front, and asks of it. See front.h.
 *
 * FRONT-1  While a disk's record has a mark, a ring may have acknowledged what the disk lacks. Only
 *     its front may change such a disk then. Without a front every request that would change it, or
 *     depends on how it is, fails with RING_AWAY; protection and vouching rest. Replaying its log,
 *     key frames and closing change nothing that anyone can see: whoever may write the disk may do
 *     that, and mark and position stay.
 * FRONT-2  Nothing is acknowledged by a ring before the record names it, durably in both slots: if
 *     the newer slot is lost one day, the older one must not say that the disk is whole. The mark
 *     goes only when the log has durably all that was acknowledged (keyframe_steps.c).
 * FRONT-3  Carried requests are submitted in the order of their records, the next one when the last
 *     window of the one before is in the log's queue. Each window makes one log item, in which
 *     nothing is looked up: all blocks are new or unmapped. Carried requests wait for each other's
 *     ranges neither here nor anywhere: the log's order decides (LOG-6). They do wait for a move, a
 *     share or a vouch of the range, which read what they replace. If one fails, all behind it
 *     fail; when all have ended, the front begins again at the first that failed.
 * FRONT-4  A carried snapshot has the number and the time that it was acknowledged with. It is
 *     logged even if nothing has changed. Numbers have no gaps, for a marked disk takes no other.
 * FRONT-5  A position belongs to what the log holds: take_items() raises the cursor's with the
 *     item, roll_back() restores both, a key frame freezes both, replay finds both.
 * Loop: the disk's; never blocks.
 * Crash story: the disk has the records up to its position, and perhaps some windows of the next
 *   one, which is carried again. A batch is in the log whole or not at all, position included.
 */
#include "engine/disk/front.h"

#include "engine/disk/op.h"

void plx_front_set(struct plx_vdi *vdi, struct plx_front *front)
{
    vdi->front = front;
}

void plx_front_mark(struct plx_vdi *vdi, const struct plx_ring_mark *mark, struct plx_task *task)
{
    PLX_ASSERT(plx_store_allows_ring(vdi->store));
    vdi->mark = *mark;
    plx_protect_look_at_mark(vdi);
    plx_keyframe_request(vdi, task);
}
