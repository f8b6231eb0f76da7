/* treewalk.h - inside the engine: reads the trees of older key frames, to let snapshots go.
 *
 * All calls are synchronous and run the loop while they read. After an error, walk->fault has a
 * sentence that names the disk walk->name. A tree's levels are counted from its leaves: 1 is a
 * leaf.
 */
#ifndef PLX_TREEWALK_H
#define PLX_TREEWALK_H

#include "engine/map/map.h"

/* A whole tree, or the part of a tree below an entry. */
struct plx_subtree {
    uint64_t entry;
    unsigned levels;
};

struct plx_treewalk {
    struct plx_store *store;
    const char *name;
    struct plx_fault *fault;
};

/* The entry of a block in the tree. 0: the tree does not map it. */
int plx_treewalk_entry(const struct plx_treewalk *walk, struct plx_subtree tree, uint64_t vblock,
                       uint64_t *ret_entry);
/* Calls visit for each block of the range that the tree maps, in order, until visit returns an
 * error. That error is returned. */
int plx_treewalk_each(const struct plx_treewalk *walk, struct plx_subtree tree, uint64_t vblock,
                      uint64_t count, int (*visit)(void *argument, uint64_t vblock, uint64_t entry),
                      void *argument);
/* Adds the nodes of `old` that neither `next` nor `other` has. `old` lies between the two in the
 * disk's history (TREEWALK-3). */
int plx_treewalk_nodes(const struct plx_treewalk *walk, struct plx_subtree old,
                       struct plx_subtree next, struct plx_subtree other,
                       struct plx_deaths *ret_nodes);

#endif
