/* keyframe_index.c - the index of a disk's log, which each key frame brings up to date: a radix
 * tree from segment number to address.
 *
 * Loop: the disk's; never blocks. Crash story: that of the key frame (keyframe.c).
 */
#include <stdlib.h>

#include "engine/disk/keyframe_inside.h"

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
