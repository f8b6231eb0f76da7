/* vouch_leaves.c - sets of a disk's leaves: which were written in place lately, and in which a pass
 * looks for blocks without checksums. See vouch.h.
 *
 * Loop: the disk's; never blocks. Crash story: memory only.
 */
#include "engine/disk/vouch.h"

#include "engine/format/format.h"

static void set_leaf(uint64_t *leaves, uint64_t leaf)
{
    leaves[leaf % PLX_VOUCH_LEAVES / 64] |= 1ull << leaf % 64;
}

static bool has_leaf(const uint64_t *leaves, uint64_t leaf)
{
    return leaves[leaf % PLX_VOUCH_LEAVES / 64] >> leaf % 64 & 1;
}

bool plx_vouch_is_wanted(const struct plx_vouch *v, uint64_t leaf)
{
    return has_leaf(v->wanted, leaf);
}

bool plx_vouch_is_quiet(const struct plx_vouch *v, uint64_t leaf)
{
    return !has_leaf(v->written, leaf) && !has_leaf(v->before, leaf);
}

void plx_vouch_leave(struct plx_vouch *v, uint64_t leaf)
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
        plx_vouch_leave(v, leaf);
    }
}
