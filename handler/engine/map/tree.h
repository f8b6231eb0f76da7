/* tree.h - builds a changed radix tree out of place, bottom-up.
 *
 * Two kinds of trees are built: a disk's map, from its frozen overlay and its base (begin_map), and
 * the plain tree that finds a log's segments, from a list of changed entries (begin_plain).
 *
 *     error = plx_tree_begin_map(&tree, map, levels, task, &data_deaths, &node_deaths);
 *     ...
 *     error = plx_tree_step(&tree, &root);       PLX_WAIT: return; call it again when the task is
 *                                                ready and task->error is 0
 *     plx_tree_done(&tree);                      0: the tree is written, but not flushed
 *     plx_tree_abort(&tree);                     any other error: frees what was allocated
 *
 * The owner flushes before anything names the new root. The store's loop only.
 */
#ifndef PLX_TREE_H
#define PLX_TREE_H

#include "engine/space/allocator.h"
#include "engine/map/map.h"

#define PLX_TREE_BUFFER 32u /* nodes that are written at once */

struct plx_tree_change {
    uint64_t index; /* of a child at the level below (level 0: a block, or a segment) */
    uint64_t entry;
};

struct plx_tree {
    struct plx_store *store;
    struct plx_task *task;
    /* The old tree. */
    uint64_t root;
    unsigned levels;
    bool shared; /* a snapshot sees all of it: what stays becomes read-only */
    /* The changes: a map's frozen overlay, or else entries of level 0 in `in`. */
    struct plx_map *map;
    size_t slot;
    size_t ahead;          /* slots before this one: their old leaves were asked for */
    unsigned ahead_leaves; /* of those leaves, how many are still to be built */
    int64_t mapped;        /* blocks mapped, less those in the old tree, so far */
    int64_t vouched;       /* the same for blocks whose checksum is known */
    unsigned new_levels;
    unsigned result_levels; /* of the tree that *ret_root names */
    unsigned level;         /* the level that is being built */
    struct plx_tree_change *in, *out;
    size_t in_count, in_at, out_count, capacity;
    /* Nodes that are built and not yet written. */
    uint8_t *buffer;
    size_t owner[PLX_TREE_BUFFER]; /* index in out */
    unsigned buffered, written;
    struct plx_join join;
    struct plx_xfer xfers[PLX_TREE_BUFFER];
    struct iovec iovs[PLX_TREE_BUFFER];
    unsigned xfer_count;
    int state;
    struct plx_deaths *data_deaths, *node_deaths; /* NULL: not recorded */
    struct plx_deaths made;                       /* allocated nodes, for plx_tree_abort() */
};

/* Merges map->frozen, which is sorted, into map->base. */
int plx_tree_begin_map(struct plx_tree *tree, struct plx_map *map, unsigned new_levels,
                       struct plx_task *task, struct plx_deaths *data_deaths,
                       struct plx_deaths *node_deaths);
/* Sets entries of level 0 in a plain tree. The changes are sorted by index; they are copied. */
int plx_tree_begin_plain(struct plx_tree *tree, struct plx_store *store, uint64_t root,
                         unsigned levels, const struct plx_tree_change *changes, size_t count,
                         struct plx_task *task, struct plx_deaths *node_deaths);
int plx_tree_step(struct plx_tree *tree, uint64_t *ret_root);
/* How many blocks the finished tree of a map maps, and of how many it knows the checksum. Either
 * may be PLX_MAPPED_UNKNOWN. */
void plx_tree_count(const struct plx_tree *tree, uint64_t size_bytes, uint64_t *ret_mapped,
                    uint64_t *ret_vouched);
void plx_tree_abort(struct plx_tree *tree); /* after an error */
void plx_tree_done(struct plx_tree *tree);  /* after success */

#endif
