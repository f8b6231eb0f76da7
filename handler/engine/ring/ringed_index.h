/* ringed_index.h - which record of a ring has a block's newest contents.
 *
 * Ranges of blocks, none of which overlap. Putting a record replaces older records in its range.
 * Dropping it leaves the blocks that it still had without a record: the store's contents count
 * again. Records are put and dropped in their order.
 *
 *     if (!plx_ringed_index_room(&index))
 *         return PLX_ERR_NOMEM;
 *     plx_ringed_index_put(&index, block, block + blocks, record);
 *     for (range = plx_ringed_index_find(&index, at); range && range->block < end; ...)
 *     plx_ringed_index_drop(&index, block, block + blocks, record);
 */
#ifndef PLX_RINGED_INDEX_H
#define PLX_RINGED_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct plx_ringed_record;

struct plx_ringed_range {
    uint64_t block, end;
    struct plx_ringed_record *record;
    struct plx_ringed_range *left, *right; /* the index's; left: also of spare ones, the next */
    uint64_t rank;
};

/* All zero: empty. */
struct plx_ringed_index {
    struct plx_ringed_range *root, *spare;
    unsigned spares;
    uint64_t made; /* ranges so far */
};

/* Makes room for one put. False: out of memory. */
bool plx_ringed_index_room(struct plx_ringed_index *index);
void plx_ringed_index_put(struct plx_ringed_index *index, uint64_t block, uint64_t end,
                          struct plx_ringed_record *record);
void plx_ringed_index_drop(struct plx_ringed_index *index, uint64_t block, uint64_t end,
                           const struct plx_ringed_record *record);
/* The first range that ends behind this block; NULL: there is none. Valid until the next put or
 * drop. */
const struct plx_ringed_range *plx_ringed_index_find(const struct plx_ringed_index *index,
                                                     uint64_t block);
void plx_ringed_index_free(struct plx_ringed_index *index);

#endif
