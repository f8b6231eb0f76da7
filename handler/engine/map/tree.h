/* tree.h - builds a changed radix tree out of place, bottom-up.
 *
 * The builder is a machine that the owner steps: plx_tree_step() returns PLX_WAIT while it waits
 * (the owner's task becomes ready again), 0 when *root is complete (written, not yet flushed), or
 * an error, after which plx_tree_abort() frees what was allocated.
 */
#ifndef PLX_TREE_H
#define PLX_TREE_H

#include "engine/loop/store.h"
#include "engine/map/map.h"

#define PLX_TREE_BUFFER 32u /* nodes written at once */

struct plx_tree_change {
    uint64_t index; /* of the child at its level (level 0: a block, or a segment) */
    uint64_t entry;
};

struct plx_tree {
    struct plx_store *store;
    struct plx_task *task;
    /* The old tree. */
    uint64_t root;
    unsigned levels; /* of the old tree */
    bool shared;     /* a snapshot sees all of it: untouched children become read-only */
    /* The changes: either of a map's frozen overlay, or ready entries at level 0. */
    struct plx_map *map;
    size_t slot;
    size_t ahead;          /* the old leaves of the slots before this one were asked for */
    unsigned ahead_leaves; /* and so many of them are still to be built */
    int64_t mapped;        /* blocks more than in the old tree, so far */
    int64_t vouched;       /* the same of those whose checksum is known */
    unsigned new_levels;
    unsigned result_levels; /* of the tree that *ret_root names */
    unsigned level;         /* being built */
    struct plx_tree_change *in, *out;
    size_t in_count, in_at, out_count, capacity;
    /* Nodes built and not yet written. */
    uint8_t *buffer;
    size_t owner[PLX_TREE_BUFFER]; /* index in out */
    unsigned buffered, written;
    struct plx_join join;
    struct plx_xfer xfers[PLX_TREE_BUFFER];
    struct iovec iovs[PLX_TREE_BUFFER];
    unsigned xfer_count;
    int state;
    struct plx_deaths *data_deaths, *node_deaths; /* NULL: not recorded */
    struct plx_deaths made;                       /* nodes allocated, for abort */
};

/* For a map: merges map->frozen (sorted) into the base. */
int plx_tree_begin_map(struct plx_tree *tree, struct plx_map *map, unsigned new_levels,
                       struct plx_task *task, struct plx_deaths *data_deaths,
                       struct plx_deaths *node_deaths);
/* For a plain tree: sets entries at level 0; changes are sorted by index and copied. */
int plx_tree_begin_plain(struct plx_tree *tree, struct plx_store *store, uint64_t root,
                         unsigned levels, const struct plx_tree_change *changes, size_t count,
                         struct plx_task *task, struct plx_deaths *node_deaths);
int plx_tree_step(struct plx_tree *tree, uint64_t *ret_root);
/* How many blocks the finished tree of a map maps, and of how many it knows the checksum; or
 * PLX_MAPPED_UNKNOWN. */
void plx_tree_count(const struct plx_tree *tree, uint64_t size_bytes, uint64_t *ret_mapped,
                    uint64_t *ret_vouched);
void plx_tree_abort(struct plx_tree *tree); /* after an error: frees the new nodes */
void plx_tree_done(struct plx_tree *tree);  /* after success: keeps them */

#endif
