/* blockmap.h - inside the engine: a set of the store's blocks, one bit each.
 *
 * Memory is taken extent by extent, when the first block of one is set. Extents that came to the
 * store after plx_blockmap_init() have no bits: nothing of them is ever in the set.
 */
#ifndef PLX_BLOCKMAP_H
#define PLX_BLOCKMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct plx_blockmap {
    uint64_t extents, extent_blocks;
    uint64_t **bits; /* of an extent; NULL: none is set */
    size_t taken;    /* extents that have memory */
};

bool plx_blockmap_init(struct plx_blockmap *map, uint64_t extents, uint64_t extent_blocks);
void plx_blockmap_done(struct plx_blockmap *map);
/* Adjacent blocks of one extent. false: out of memory. */
bool plx_blockmap_set(struct plx_blockmap *map, uint64_t addr, uint64_t count);
bool plx_blockmap_test(const struct plx_blockmap *map, uint64_t addr);
/* All that are in `more`. false: out of memory. */
bool plx_blockmap_add(struct plx_blockmap *map, const struct plx_blockmap *more);
/* All that are both in `a` and in `b`. false: out of memory. */
bool plx_blockmap_add_common(struct plx_blockmap *map, const struct plx_blockmap *a,
                             const struct plx_blockmap *b);
void plx_blockmap_clear(struct plx_blockmap *map);
/* How many there are. */
uint64_t plx_blockmap_total(const struct plx_blockmap *map);
/* How many are in both. */
uint64_t plx_blockmap_total_common(const struct plx_blockmap *a, const struct plx_blockmap *b);

#endif
