/* units.h - sizes, and what the numbers in names mean.
 *
 * A block is 4 KiB. addr: a block's number in the store (37 bits, 512 TiB), with a 38th bit on top
 * where the block is common (share.c). vblock: a block's number in a virtual disk (36 bits, 256
 * TiB). pos: a log position, in bytes of the VDI's endless log: segment number times segment size
 * plus the offset in it.
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
#define PLX_LEVELS_MIN 3 /* of a disk's tree */
#define PLX_LEVELS_MAX 4
#define PLX_VBLOCK_MAX ((1ull << (PLX_NODE_SHIFT * PLX_LEVELS_MAX)) - 1)

/* Times, in ns since 1970: up to the year 2160. 100 years more (PLX_KEEP_MAX_NS) are still less
 * than a signed number holds, such as the registry's. A clock that says more counts as this
 * (env.h). */
#define PLX_TIME_MAX 6000000000000000000ull

static inline uint64_t plx_min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t plx_max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Whether many may map the block, so that it is nobody's (share.c). */
static inline bool plx_addr_is_common(uint64_t addr)
{
    return addr & PLX_ADDR_COMMON;
}

/* The block's number: where it lies. */
static inline uint64_t plx_addr_block(uint64_t addr)
{
    return addr & ~PLX_ADDR_COMMON;
}

/* For people, behind a number: the end of a noun, and its verb. */
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

/* For qsort() and bsearch() of numbers. */
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
