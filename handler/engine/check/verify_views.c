/* verify_views.c - whether clones began with what the snapshot sees that they were made of
 * (VERIFY-11).
 *
 * A disk may have lost snapshots, and the operator may have accepted that. Then it gives their
 * numbers out again. So a snapshot with the number that a clone names need not be the one that the
 * clone was made of. Here the tree that the clone began with is compared with what the snapshot
 * sees: the tree of the key frame before the snapshot, and the changes since. Where there were no
 * changes, both trees have the same nodes, and nothing is read below them. So this costs little.
 *
 * Loop: the store's. Crash story: this file only reads.
 */
#include <stdlib.h>

#include "engine/base/list.h"
#include "engine/check/verify.h"

static int by_seq(const void *a, const void *b)
{
    const struct plx_clone *x = a, *y = b;

    return plx_compare_u64(&x->seq, &y->seq);
}

void plx_verify_list_clones(struct plx_verify *v)
{
    v->clone_count = v->next_clone = 0;
    for (size_t i = 0; i < v->kin_count && v->self; i++) {
        if (v->kin[i].up != (size_t)(v->self - v->kin) || !v->kin[i].read)
            continue;
        if (!PLX_LIST_ROOM(v->clones, v->clone_count, v->clone_capacity, 16)) {
            v->error = PLX_ERR_NOMEM;
            return;
        }
        v->clones[v->clone_count++] = (struct plx_clone){v->kin[i].parent_seq, i};
    }
    if (v->clone_count)
        qsort(v->clones, v->clone_count, sizeof *v->clones, by_seq);
}

struct view {
    const struct plx_keyframe *keyframe;
    const struct plx_history *history;
};

/* Whether a block of the clone is what the view has there. seen: what the key frame's tree has.
 * What the snapshot knows the checksum of, its clone began with knowing it. (The reverse does not
 * hold: the key frame that the clone was made from may be gone, and another one is read with more
 * log.) */
static bool same_block(const struct view *view, uint64_t vblock, uint64_t entry, uint64_t seen)
{
    uint64_t addr = plx_entry_addr(seen);
    uint32_t checksum = plx_entry_checksum(seen);

    if (!plx_history_tells(view->history, vblock, &addr, &checksum) &&
        plx_history_voided(view->history, vblock >> PLX_NODE_SHIFT, view->keyframe->batch_seq))
        checksum = 0;
    return addr == plx_entry_addr(entry) && (!checksum || checksum == plx_entry_checksum(entry));
}

/* The same for a node and all below it. Nodes that cannot be read say nothing. */
static bool same(struct plx_verify *v, const struct view *view, unsigned level, uint64_t index,
                 uint64_t entry, uint64_t seen)
{
    uint8_t node[PLX_BLOCK_SIZE], other[PLX_BLOCK_SIZE];
    unsigned levels = view->keyframe->levels;

    if (level == levels) /* the clone may be larger */
        seen = index ? 0 : view->keyframe->root;
    if (!plx_entry_addr(entry) || v->error)
        return true;
    if (level == 0)
        return same_block(view, index, entry, seen);
    if (plx_entry_addr(entry) == plx_entry_addr(seen))
        return true;
    if (!plx_verify_quiet_node(v, entry, node) ||
        (plx_entry_addr(seen) && !plx_verify_quiet_node(v, seen, other)))
        return true;
    for (unsigned i = 0; i < PLX_NODE_ENTRIES; i++)
        if (!same(v, view, level - 1, index << PLX_NODE_SHIFT | i, plx_node_entry(node, i),
                  plx_entry_addr(seen) ? plx_node_entry(other, i) : 0))
            return false;
    return true;
}

void plx_verify_clones(struct plx_verify *v, uint64_t seq, const struct plx_keyframe *keyframe,
                       const struct plx_history *history)
{
    const struct view view = {keyframe, history};

    if (v->mode == PLX_VERIFY_BEHIND || v->mode == PLX_VERIFY_DELETED)
        return;
    while (v->next_clone < v->clone_count && v->clones[v->next_clone].seq < seq)
        v->next_clone++;
    for (; v->next_clone < v->clone_count && v->clones[v->next_clone].seq == seq; v->next_clone++) {
        struct plx_kin *clone = &v->kin[v->clones[v->next_clone].kin];

        clone->denied = clone->origin_levels >= keyframe->levels &&
                        !same(v, &view, clone->origin_levels, 0, clone->origin_root, 0);
    }
}
