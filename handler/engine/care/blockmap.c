/* blockmap.c - see blockmap.h.
 *
 * Loop: any.
 * Crash story: this file changes memory only.
 */
#include "engine/care/blockmap.h"

#include <stdlib.h>

bool plx_blockmap_init(struct plx_blockmap *map, uint64_t extents, uint64_t extent_blocks)
{
    *map = (struct plx_blockmap){.extents = extents, .extent_blocks = extent_blocks};
    map->bits = calloc(extents, sizeof *map->bits);
    return map->bits != NULL;
}

void plx_blockmap_done(struct plx_blockmap *map)
{
    if (map->bits)
        plx_blockmap_clear(map);
    free(map->bits);
    *map = (struct plx_blockmap){0};
}

static bool take(struct plx_blockmap *map, uint64_t extent)
{
    if (!map->bits[extent]) {
        map->bits[extent] = calloc(map->extent_blocks / 64, sizeof **map->bits);
        map->taken += map->bits[extent] != NULL;
    }
    return map->bits[extent] != NULL;
}

bool plx_blockmap_set(struct plx_blockmap *map, uint64_t addr, uint64_t count)
{
    uint64_t extent = addr / map->extent_blocks, at = addr % map->extent_blocks;

    if (extent >= map->extents)
        return true;
    if (!take(map, extent))
        return false;
    for (uint64_t end = at + count; at < end; at++)
        map->bits[extent][at / 64] |= 1ull << at % 64;
    return true;
}

bool plx_blockmap_test(const struct plx_blockmap *map, uint64_t addr)
{
    uint64_t extent = addr / map->extent_blocks, at = addr % map->extent_blocks;

    return extent < map->extents && map->bits[extent] &&
           (map->bits[extent][at / 64] >> at % 64 & 1);
}

bool plx_blockmap_add(struct plx_blockmap *map, const struct plx_blockmap *more)
{
    for (uint64_t extent = 0; extent < more->extents; extent++) {
        if (!more->bits[extent])
            continue;
        if (!take(map, extent))
            return false;
        for (uint64_t i = 0; i < map->extent_blocks / 64; i++)
            map->bits[extent][i] |= more->bits[extent][i];
    }
    return true;
}

bool plx_blockmap_add_common(struct plx_blockmap *map, const struct plx_blockmap *a,
                             const struct plx_blockmap *b)
{
    for (uint64_t extent = 0; extent < map->extents; extent++) {
        if (!a->bits[extent] || !b->bits[extent])
            continue;
        if (!take(map, extent))
            return false;
        for (uint64_t i = 0; i < map->extent_blocks / 64; i++)
            map->bits[extent][i] |= a->bits[extent][i] & b->bits[extent][i];
    }
    return true;
}

void plx_blockmap_clear(struct plx_blockmap *map)
{
    for (uint64_t extent = 0; extent < map->extents; extent++) {
        free(map->bits[extent]);
        map->bits[extent] = NULL;
    }
    map->taken = 0;
}

uint64_t plx_blockmap_total(const struct plx_blockmap *map)
{
    return plx_blockmap_total_common(map, map);
}

uint64_t plx_blockmap_total_common(const struct plx_blockmap *a, const struct plx_blockmap *b)
{
    uint64_t count = 0;

    for (uint64_t extent = 0; extent < a->extents; extent++)
        for (uint64_t i = 0; a->bits[extent] && b->bits[extent] && i < a->extent_blocks / 64; i++)
            count += (unsigned)__builtin_popcountll(a->bits[extent][i] & b->bits[extent][i]);
    return count;
}
