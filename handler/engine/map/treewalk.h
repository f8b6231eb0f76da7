/* treewalk.h - inside the engine: reading trees as they were, for letting snapshots go.
 *
 * Synchronous, runs the loop while it reads. An error comes with a sentence about the virtual disk
 * `name`.
 */
#ifndef PLX_TREEWALK_H
#define PLX_TREEWALK_H

#include "engine/map/map.h"

/* A whole tree, or the part of one below an entry. */
struct plx_subtree {
    uint64_t entry;
    unsigned levels;
};

struct plx_treewalk {
    struct plx_store *store;
    const char *name;
    struct plx_fault *fault;
};

/* 0: absent. */
int plx_treewalk_entry(const struct plx_treewalk *walk, struct plx_subtree tree, uint64_t vblock,
                       uint64_t *ret_entry);
/* Calls visit for every block of the range that the tree maps, until it returns an error. */
int plx_treewalk_each(const struct plx_treewalk *walk, struct plx_subtree tree, uint64_t vblock,
                      uint64_t count, int (*visit)(void *argument, uint64_t vblock, uint64_t entry),
                      void *argument);
/* Adds the nodes of `old` that neither `next` nor `other` have at the same place. */
int plx_treewalk_nodes(const struct plx_treewalk *walk, struct plx_subtree old,
                       struct plx_subtree next, struct plx_subtree other,
                       struct plx_deaths *ret_nodes);

#endif
