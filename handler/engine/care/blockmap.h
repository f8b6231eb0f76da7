/* blockmap.h - inside the engine: a set of the store's blocks, one bit per block.
 *
 * An extent takes memory when its first block is set. Blocks of extents that were added to the
 * store after plx_blockmap_init() are never in the set; setting one does nothing.
 */
#ifndef PLX_BLOCKMAP_H
#define PLX_BLOCKMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct plx_blockmap {
    uint64_t extents, extent_blocks;
    uint64_t **bits; /* the bits of each extent; NULL: no block of it is set */
    size_t taken;    /* how many extents have memory */
};

bool plx_blockmap_init(struct plx_blockmap *map, uint64_t extents, uint64_t extent_blocks);
void plx_blockmap_done(struct plx_blockmap *map);
/* Sets `count` adjacent blocks, which lie in one extent. false: out of memory. */
bool plx_blockmap_set(struct plx_blockmap *map, uint64_t addr, uint64_t count);
bool plx_blockmap_test(const struct plx_blockmap *map, uint64_t addr);
/* Adds all blocks of `more`. false: out of memory. */
bool plx_blockmap_add(struct plx_blockmap *map, const struct plx_blockmap *more);
/* Adds all blocks that are in both `a` and `b`. false: out of memory. */
bool plx_blockmap_add_common(struct plx_blockmap *map, const struct plx_blockmap *a,
                             const struct plx_blockmap *b);
void plx_blockmap_clear(struct plx_blockmap *map);
/* How many blocks are in the set. */
uint64_t plx_blockmap_total(const struct plx_blockmap *map);
/* How many blocks are in both sets. */
uint64_t plx_blockmap_total_common(const struct plx_blockmap *a, const struct plx_blockmap *b);

#endif
