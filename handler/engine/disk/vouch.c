/* vouch.c - blocks that were overwritten in place get their checksums back, once they are quiet.
 * See vouch.h.
 *
 * A write in place voids a block's checksum (ISSUE-1). A pass goes over the disk from its beginning
 * to its end, in steps, and looks for quiet leaves: those in which nothing was written in place for
 * quiet_ns. Of these it reads the blocks without a checksum and notes checksums in the map, from
 * where the next key frame writes them. Nothing is logged: the log says what a block holds, and
 * that has not changed.
 *
 *    the block                          what can be read         the pass
 *    no doubt                           is on the medium         reads it, notes the checksum
 *    in doubt, writable in place        may be in a cache only   reads it, writes it again where it
 *                                                                lies, then notes the checksum
 *    in doubt, not writable in place    may be in a cache only   leaves it without a checksum
 *    not writable, and the disk is a    the origin's doubts are  leaves it without a checksum
 *      clone                              not known here
 *
 * VOUCH-1  A block is read, and its checksum noted, under the range lock of a write. So the
 *     checksum is that of what the block holds. Once it is noted, the checksum is known. The next
 *     write in place then makes a VOID record durable first (ISSUE-1), whether the note is in
 *     memory only or in a key frame.
 * VOUCH-2  The checksum is noted in the map only, and only if the block is still as writable as it
 *     was when it was looked up: no snapshot was ordered since then, and no key frame began or
 *     ended.
 * VOUCH-3  A disk is in doubt if what can be read may be in a cache only. After a failure, a cache
 *     may go on showing what never reached the medium, to any process, until power goes.
 *       doubt comes from                                          and lasts
 *       a write in place that failed, or whose flush failed       for good, in the record
 *       an instance that left the disk unclosed: nobody knows     for good, in the record
 *         what failed there
 *       any other flush of the store that failed                  until the disk is closed
 *     In doubt, a block is written again as it was read and where it lies, before its checksum is
 *     noted. The table above says which blocks are left without a checksum instead.
 * VOUCH-4  A step is taken only while nobody else is at work on the disk, and only if nobody was
 *     since the last step. One step reads the blocks of one window. Besides them it reads only the
 *     map's nodes, of at most STEP_WINDOWS windows, and writes only what VOUCH-3 asks for.
 * VOUCH-5  If all checksums are known, or nothing is written in place, there is no pass and no
 *     timer.
 * Loop: the disk's; never blocks.
 * Crash story: until the record of the next key frame flips, the notes are in memory only, and a
 *   crash loses them. The flush before the flip (KEYFRAME-1) makes durable what was read. A block
 *   that was overwritten later has a VOID record:
 *     formed before the map was frozen   it has removed the note from the map already
 *     formed after that                  it lies behind the key frame's position, and replay
 *                                        removes the checksum
 *   A record of the first kind may lie behind the position, too, for it takes effect in memory
 *   before it is applied. Replay then removes checksums that the key frame knows, which does no
 *   harm.
 */
#include "engine/disk/vouch.h"

#include "engine/disk/op.h"

#define STEP_LEAVES 65536u /* leaves that are not wanted that one step passes over */

/* VOUCH-3: whether what can be read may be in a cache only. */
static bool in_doubt(const struct plx_vdi *vdi)
{
    return vdi->vouch.doubt || plx_flush_failed_since(vdi->store, vdi->vouch.opened);
}

/* ---- A step ---- */

static uint64_t leaf_at(const struct plx_op *op)
{
    return (op->request->offset + op->done_bytes) >> (PLX_BLOCK_SHIFT + PLX_NODE_SHIFT);
}

bool plx_vouch_enough(struct plx_op *op)
{
    struct plx_vouch *v = &op->vdi->vouch;

    for (unsigned i = 0; i < STEP_LEAVES && op->done_bytes < op->request->length; i++) {
        uint64_t leaf = leaf_at(op);
        uint64_t next = ((leaf + 1) << (PLX_BLOCK_SHIFT + PLX_NODE_SHIFT)) - op->request->offset;

        if (plx_vouch_is_wanted(v, leaf) && plx_vouch_is_quiet(v, leaf))
            return !v->windows;
        if (plx_vouch_is_wanted(v, leaf))
            plx_vouch_leave(v, leaf);
        op->done_bytes = plx_min_u64(next, op->request->length);
    }
    return true;
}

/* VOUCH-1: runs under the window's range lock. */
bool plx_vouch_plan(struct plx_op *op)
{
    struct plx_vouch *v = &op->vdi->vouch;
    bool any = false, own_only;

    v->writes_again = in_doubt(op->vdi);
    own_only = v->writes_again || plx_entry_addr(op->vdi->record.origin_root); /* VOUCH-3 */
    if (v->windows)
        v->windows--;
    for (unsigned i = 0; i < op->blocks; i++) {
        const struct plx_mapping *mapping = &op->mappings[i];
        bool takes = mapping->addr && !mapping->checksum && (mapping->writable || !own_only);

        op->actions[i] = takes ? PLX_ACTION_NEW : PLX_ACTION_SKIP;
        any = any || takes;
    }
    if (any)
        v->windows = 0; /* VOUCH-4 */
    else
        plx_op_stretch_window(op);
    return any;
}

int plx_vouch_take(struct plx_op *op)
{
    bool again = op->vdi->vouch.writes_again; /* VOUCH-3 */

    plx_op_checksum_kept(op);
    for (unsigned i = 0; i < op->blocks && again; i++)
        if (op->actions[i] == PLX_ACTION_NEW)
            op->actions[i] = PLX_ACTION_IN_PLACE;
    if (!again)
        op->state = OP_DURABLE;
    return 0;
}

/* VOUCH-3: whether no flush has failed since the block was written again. The write needs no flush
 * of its own: whatever makes the note durable flushes first, and if that fails the disk stops. */
static bool is_written(const struct plx_op *op)
{
    if (!op->vdi->vouch.writes_again)
        return !in_doubt(op->vdi);
    return !plx_flush_failed_since(op->vdi->store, op->flush_mark);
}

/* VOUCH-2. There must also be room for the metadata of a key frame with these changes. */
static bool may_take(const struct plx_op *op)
{
    const struct plx_map *map = &op->vdi->map;

    return !map->is_frozen && op->gen == map->gen_submitted &&
           op->base_changes == map->base_changes && is_written(op) && !op->vdi->log.sticky &&
           !plx_vdi_metadata_room(op->vdi, op->blocks);
}

void plx_vouch_done_window(struct plx_op *op)
{
    struct plx_vdi *vdi = op->vdi;
    struct plx_vouch *v = &vdi->vouch;
    uint64_t taken = 0;

    if (op->in_place)
        plx_op_in_cache_only(vdi);
    if (!may_take(op) || !plx_overlay_reserve(&vdi->map.active, op->blocks)) {
        plx_vouch_leave(v, op->first_block >> PLX_NODE_SHIFT);
        return;
    }
    for (unsigned i = 0; i < op->blocks; i++) {
        if (op->actions[i] == PLX_ACTION_SKIP)
            continue;
        plx_map_vouch(&vdi->map, op->first_block + i, &op->mappings[i],
                      plx_checksum24(op->checksums[i]));
        taken++;
    }
    plx_overlay_unreserve(&vdi->map.active, op->blocks);
    v->found += taken;
    vdi->counters.blocks_vouched += taken;
    vdi->store->counters.blocks_vouched += taken;
}

/* A window that failed is passed over, and left to the next pass. */
void plx_vouch_end(struct plx_op *op, int result)
{
    struct plx_vouch *v = &op->vdi->vouch;
    uint64_t done = op->done_bytes;

    if (result && op->locks) {
        plx_vouch_leave(v, leaf_at(op));
        done = plx_min_u64(done + op->window_bytes, op->request->length);
    }
    v->at = op->request->offset + done;
}
