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
 *     checksum is that of what the block holds. From then on the checksum is known, and the next
 *     write in place makes a VOID record durable first (ISSUE-1), whatever has become of the note.
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
 *     since the step before. One step reads one window. Besides that it reads only the map's nodes,
 *     of at most STEP_WINDOWS windows, and writes only what VOUCH-3 asks for.
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

#include <stdlib.h>
#include <string.h>

#include "engine/disk/move.h"
#include "engine/disk/op.h"

#define STEP_NS 100000000ull /* between two steps: at most 10 MiB/s are read */
#define STEPS_IN_PERIOD 16u  /* a period has time for at least this many steps */
#define STEP_WINDOWS 64u     /* windows without anything to read that one step looks at */
#define STEP_LEAVES 65536u   /* leaves that are not wanted that one step passes over */
#define WORDS (PLX_VOUCH_LEAVES / 64)

/* ---- Leaves ---- */

static void set_leaf(uint64_t *leaves, uint64_t leaf)
{
    leaves[leaf % PLX_VOUCH_LEAVES / 64] |= 1ull << leaf % 64;
}

static bool has_leaf(const uint64_t *leaves, uint64_t leaf)
{
    return leaves[leaf % PLX_VOUCH_LEAVES / 64] >> leaf % 64 & 1;
}

static bool is_quiet(const struct plx_vouch *v, uint64_t leaf)
{
    return !has_leaf(v->written, leaf) && !has_leaf(v->before, leaf);
}

/* Leaves a leaf to the next pass. */
static void leave(struct plx_vouch *v, uint64_t leaf)
{
    set_leaf(v->left, leaf);
    v->any_left = true;
}

void plx_vouch_note(struct plx_vouch *v, uint64_t vblock, uint64_t count)
{
    if (!v->quiet_ns)
        return;
    for (uint64_t leaf = vblock >> PLX_NODE_SHIFT; leaf <= (vblock + count - 1) >> PLX_NODE_SHIFT;
         leaf++) {
        set_leaf(v->written, leaf);
        leave(v, leaf);
    }
}

/* ---- Passes ---- */

static uint64_t monotonic(const struct plx_vdi *vdi)
{
    return vdi->store->env->monotonic_ns(vdi->store->env);
}

void plx_vouch_start(struct plx_vdi *vdi, uint64_t quiet_ns)
{
    const struct plx_keyframe *keyframe = &vdi->record.keyframe;
    struct plx_vouch *v = &vdi->vouch;

    if (!quiet_ns)
        return;
    v->leaves = calloc((size_t)4 * WORDS, sizeof *v->leaves);
    v->buffer = aligned_alloc(PLX_BLOCK_SIZE, PLX_WINDOW_BLOCKS * PLX_BLOCK_SIZE);
    if (!v->leaves || !v->buffer) {
        plx_vouch_done(v);
        return;
    }
    v->written = v->leaves;
    v->before = v->leaves + WORDS;
    v->left = v->leaves + (size_t)2 * WORDS;
    v->wanted = v->leaves + (size_t)3 * WORDS;
    v->quiet_ns = quiet_ns;
    v->period_ns = monotonic(vdi);
    if (keyframe->mapped == PLX_MAPPED_UNKNOWN || keyframe->vouched != keyframe->mapped ||
        vdi->map.active.count || vdi->map.is_frozen) {
        memset(v->left, 0xff, WORDS * sizeof *v->left);
        v->any_left = true;
    }
}

void plx_vouch_done(struct plx_vouch *v)
{
    free(v->leaves);
    free(v->buffer);
    v->leaves = NULL;
    v->buffer = NULL;
    v->quiet_ns = 0;
}

/* VOUCH-3: whether what can be read may be in a cache only. */
static bool in_doubt(const struct plx_vdi *vdi)
{
    return vdi->vouch.doubt || vdi->vouch.flush_failures != vdi->store->flush_failures;
}

static bool may_step(const struct plx_vdi *vdi)
{
    const struct plx_vouch *v = &vdi->vouch;

    return v->quiet_ns && (v->passing || v->any_left) && !v->under_way && !vdi->oldest &&
           !vdi->waiting && !vdi->closing && !vdi->barrier && !vdi->log.sticky &&
           !plx_front_is_away(vdi);
}

static uint64_t step_ns(const struct plx_vouch *v)
{
    return plx_min_u64(STEP_NS, v->quiet_ns / STEPS_IN_PERIOD + 1);
}

uint64_t plx_vouch_due_ns(const struct plx_vdi *vdi)
{
    const struct plx_vouch *v = &vdi->vouch;

    if (!may_step(vdi)) /* VOUCH-5; or what allows the next step makes the loop turn itself */
        return UINT64_MAX;
    return v->passing ? v->due_ns : v->period_ns + v->quiet_ns;
}

/* Begins the next period of quiet_ns, and a pass if none is under way. What was written in this
 * period or the one before is not quiet. */
static void next_period(struct plx_vouch *v, uint64_t now)
{
    uint64_t *written = v->before;

    v->before = v->written;
    v->written = written;
    memset(written, 0, WORDS * sizeof *written);
    v->period_ns = now;
    if (v->passing)
        return;
    written = v->wanted;
    v->wanted = v->left;
    v->left = written;
    memset(written, 0, WORDS * sizeof *written);
    v->any_left = false;
    v->passing = true;
    v->at = v->found = 0;
}

static uint64_t disk_end(const struct plx_vdi *vdi)
{
    return plx_div_up(vdi->size_bytes, PLX_BLOCK_SIZE) << PLX_BLOCK_SHIFT;
}

static void step_done(struct plx_request *request)
{
    struct plx_vdi *vdi = request->owner;
    struct plx_vouch *v = &vdi->vouch;

    v->under_way = false;
    v->tickets = vdi->tickets;
    v->due_ns = monotonic(vdi) + step_ns(v);
    if (v->at < disk_end(vdi))
        return;
    v->passing = false;
    v->completed_ns = plx_env_now_ns(vdi->store->env);
    if (v->found)
        plx_keyframe_request(vdi, NULL);
}

void plx_vouch_pump(struct plx_vdi *vdi)
{
    struct plx_vouch *v = &vdi->vouch;
    uint64_t now;

    if (!may_step(vdi))
        return;
    now = monotonic(vdi);
    if (now - v->period_ns >= v->quiet_ns)
        next_period(v, now);
    if (!v->passing || now < v->due_ns)
        return;
    if (v->tickets != vdi->tickets) { /* VOUCH-4 */
        v->tickets = vdi->tickets;
        v->due_ns = now + step_ns(v);
        return;
    }
    v->windows = STEP_WINDOWS;
    v->iov = (struct iovec){v->buffer, PLX_WINDOW_BLOCKS * PLX_BLOCK_SIZE};
    v->request = (struct plx_request){.op = PLX_VOUCH,
                                      .offset = v->at,
                                      .length = disk_end(vdi) - v->at,
                                      .iov = &v->iov,
                                      .iovcnt = 1,
                                      .done = step_done,
                                      .owner = vdi};
    v->under_way = true;
    plx_vdi_submit(vdi, &v->request);
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

        if (has_leaf(v->wanted, leaf) && is_quiet(v, leaf))
            return !v->windows;
        if (has_leaf(v->wanted, leaf))
            leave(v, leaf);
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
        plx_move_stretch_window(op);
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
    return op->flush_mark == op->vdi->store->flush_failures;
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
        leave(v, op->first_block >> PLX_NODE_SHIFT);
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
        leave(v, leaf_at(op));
        done = plx_min_u64(done + op->window_bytes, op->request->length);
    }
    v->at = op->request->offset + done;
}
