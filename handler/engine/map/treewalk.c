/* treewalk.c - see treewalk.h.
 *
 * TREEWALK-1  A node is copied before further nodes are read, because the cache may evict it then.
 * TREEWALK-2  A disk that grows gets a higher tree. The tree that it had is below child 0 of the
 *     new one, if the new one has it at all.
 * TREEWALK-3  A node that is in two trees is at the same place in both, and in all trees between
 *     them. So a node that neither neighbour of a tree has belongs to that tree alone.
 * Loop: the store's loop.
 * Crash story: nothing is written.
 */
#include "engine/map/treewalk.h"

#include <stdlib.h>
#include <string.h>

#include "engine/format/format.h"
#include "engine/loop/cache.h"

static int no_memory(const struct plx_treewalk *walk)
{
    return plx_fault_set(walk->fault, PLX_ERR_NOMEM, "out of memory");
}

static int get_node(const struct plx_treewalk *walk, uint64_t entry, unsigned level,
                    const void **ret_node)
{
    int error = plx_cache_get_sync(walk->store->cache, entry, level, ret_node);

    return error ? plx_fault_set(walk->fault, error, "virtual disk %s: node at block %llu: %s",
                                 walk->name, (unsigned long long)plx_entry_addr(entry),
                                 plx_error_text(error))
                 : 0;
}

/* ---- Blocks ---- */

int plx_treewalk_entry(const struct plx_treewalk *walk, struct plx_subtree tree, uint64_t vblock,
                       uint64_t *ret_entry)
{
    uint64_t entry = tree.entry;

    *ret_entry = 0;
    if (vblock >> (tree.levels * PLX_NODE_SHIFT))
        return 0;
    for (unsigned level = tree.levels; level > 0 && plx_entry_addr(entry); level--) {
        const void *node;
        int error = get_node(walk, entry, level, &node);

        if (error)
            return error;
        entry =
            plx_node_entry(node, vblock >> ((level - 1) * PLX_NODE_SHIFT) & (PLX_NODE_ENTRIES - 1));
    }
    if (plx_entry_addr(entry))
        *ret_entry = entry;
    return 0;
}

struct walk_range {
    uint64_t first, end;
    int (*visit)(void *argument, uint64_t vblock, uint64_t entry);
    void *argument;
};

/* first: the virtual block at which the subtree begins. */
static int each(const struct plx_treewalk *walk, struct plx_subtree tree, uint64_t first,
                const struct walk_range *range)
{
    unsigned shift = (tree.levels - 1) * PLX_NODE_SHIFT;
    const void *node;
    uint8_t *copy;
    int error;

    if (!plx_entry_addr(tree.entry))
        return 0;
    error = get_node(walk, tree.entry, tree.levels, &node);
    if (error)
        return error;
    copy = malloc(PLX_BLOCK_SIZE);
    if (!copy)
        return no_memory(walk);
    memcpy(copy, node, PLX_BLOCK_SIZE); /* TREEWALK-1 */
    for (unsigned i = 0; i < PLX_NODE_ENTRIES && !error; i++) {
        uint64_t begin = first + ((uint64_t)i << shift), child = plx_node_entry(copy, i);

        if (!plx_entry_addr(child) || begin + (1ull << shift) <= range->first ||
            begin >= range->end)
            continue;
        error = tree.levels > 1
                    ? each(walk, (struct plx_subtree){child, tree.levels - 1}, begin, range)
                    : range->visit(range->argument, begin, child);
    }
    free(copy);
    return error;
}

int plx_treewalk_each(const struct plx_treewalk *walk, struct plx_subtree tree, uint64_t vblock,
                      uint64_t count, int (*visit)(void *argument, uint64_t vblock, uint64_t entry),
                      void *argument)
{
    struct walk_range range = {vblock, vblock + count, visit, argument};

    return each(walk, tree, 0, &range);
}

/* ---- Nodes ---- */

/* TREEWALK-2 */
static struct plx_subtree child_of(const struct plx_subtree *side, unsigned level,
                                   const uint8_t *node, unsigned index)
{
    if (side->levels < level)
        return index ? (struct plx_subtree){0, level - 1} : *side;
    return (struct plx_subtree){plx_entry_addr(side->entry) ? plx_node_entry(node, index) : 0,
                                level - 1};
}

static bool same_node(const struct plx_subtree *side, unsigned level, uint64_t addr)
{
    return side->levels == level && plx_entry_addr(side->entry) == addr;
}

static int copy_node(const struct plx_treewalk *walk, const struct plx_subtree *side,
                     unsigned level, uint8_t *copy)
{
    const void *node;
    int error;

    if (side->levels != level || !plx_entry_addr(side->entry))
        return 0;
    error = get_node(walk, side->entry, level, &node);
    if (error)
        return error;
    memcpy(copy, node, PLX_BLOCK_SIZE);
    return 0;
}

/* TREEWALK-3 */
static int only_old(const struct plx_treewalk *walk, const struct plx_subtree *old,
                    const struct plx_subtree *next, const struct plx_subtree *other,
                    struct plx_deaths *ret_nodes)
{
    unsigned level = old->levels;
    uint64_t addr = plx_entry_addr(old->entry);
    uint8_t *nodes;
    int error;

    if (!addr || same_node(next, level, addr) || same_node(other, level, addr))
        return 0;
    plx_deaths_add(ret_nodes, addr);
    if (level == 1)
        return 0;
    nodes = malloc(3 * PLX_BLOCK_SIZE);
    if (!nodes)
        return no_memory(walk);
    error = copy_node(walk, old, level, nodes);
    if (!error)
        error = copy_node(walk, next, level, nodes + PLX_BLOCK_SIZE);
    if (!error)
        error = copy_node(walk, other, level, nodes + 2 * PLX_BLOCK_SIZE);
    for (unsigned i = 0; i < PLX_NODE_ENTRIES && !error; i++) {
        struct plx_subtree o = child_of(old, level, nodes, i);
        struct plx_subtree n = child_of(next, level, nodes + PLX_BLOCK_SIZE, i);
        struct plx_subtree p = child_of(other, level, nodes + 2 * PLX_BLOCK_SIZE, i);

        error = only_old(walk, &o, &n, &p, ret_nodes);
    }
    free(nodes);
    return error;
}

/* TREEWALK-2: descends to the level of a lower tree. */
static int descend(const struct plx_treewalk *walk, struct plx_subtree *side, unsigned levels)
{
    while (side->levels > levels) {
        const void *node;
        int error = 0;

        if (plx_entry_addr(side->entry)) {
            error = get_node(walk, side->entry, side->levels, &node);
            if (error)
                return error;
            side->entry = plx_node_entry(node, 0);
        }
        side->levels--;
    }
    return 0;
}

int plx_treewalk_nodes(const struct plx_treewalk *walk, struct plx_subtree old,
                       struct plx_subtree next, struct plx_subtree other,
                       struct plx_deaths *ret_nodes)
{
    int error = descend(walk, &next, old.levels);

    if (!error)
        error = descend(walk, &other, old.levels);
    return error ? error : only_old(walk, &old, &next, &other, ret_nodes);
}
