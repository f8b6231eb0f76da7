/* units.h - sizes, and what the numbers in names mean.
 *
 *     block    4 KiB
 *     addr     a block's number in the store: 37 bits, 512 TiB; the 38th marks a common block
 *     vblock   a block's number in a virtual disk: 36 bits, 256 TiB
 *     pos      a position in a disk's endless log, in bytes: segment number times segment size,
 *              plus the offset in the segment
 *     ..._ns   nanoseconds; wall clock times since 1970
 */
#ifndef PLX_UNITS_H
#define PLX_UNITS_H

#include <stdbool.h>
#include <stdint.h>

#define PLX_BLOCK_SHIFT 12
#define PLX_BLOCK_SIZE (1u << PLX_BLOCK_SHIFT)
#define PLX_ADDR_BITS 38
#define PLX_ADDR_MAX ((1ull << PLX_ADDR_BITS) - 1)
#define PLX_ADDR_COMMON (1ull << (PLX_ADDR_BITS - 1))
#define PLX_BLOCK_MAX (PLX_ADDR_COMMON - 1)
#define PLX_NODE_SHIFT 9
#define PLX_NODE_ENTRIES (1u << PLX_NODE_SHIFT)
#define PLX_LEVELS_MIN 3 /* levels of a disk's tree */
#define PLX_LEVELS_MAX 4
#define PLX_VBLOCK_MAX ((1ull << (PLX_NODE_SHIFT * PLX_LEVELS_MAX)) - 1)

/* The latest time on a store: the year 2160. 100 years more (PLX_KEEP_MAX_NS) still fit a signed
 * number, as the registry has it. A clock that says more counts as this (env.h). */
#define PLX_TIME_MAX 6000000000000000000ull

static inline uint64_t plx_min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t plx_max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Whether the address is that of a common block, which many may map and nobody owns (share.c). */
static inline bool plx_addr_is_common(uint64_t addr)
{
    return addr & PLX_ADDR_COMMON;
}

/* The number of the block, without the mark of a common block. */
static inline uint64_t plx_addr_block(uint64_t addr)
{
    return addr & ~PLX_ADDR_COMMON;
}

/* For messages, after a number: the plural's s, and the verb. */
static inline const char *plx_plural(uint64_t number)
{
    return number == 1 ? "" : "s";
}

static inline const char *plx_is_or_are(uint64_t number)
{
    return number == 1 ? "is" : "are";
}

static inline const char *plx_has_or_have(uint64_t number)
{
    return number == 1 ? "has" : "have";
}

/* For qsort() and bsearch(). */
static inline int plx_compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static inline uint64_t plx_div_up(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

#endif
