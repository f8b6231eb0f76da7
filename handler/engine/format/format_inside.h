/* format_inside.h - what the files of engine/format/ share: offsets, little-endian access,
 * checksums.
 */
#ifndef PLX_FORMAT_INSIDE_H
#define PLX_FORMAT_INSIDE_H

#include <string.h>

#include "engine/format/format.h"

#define SUPER_MAGIC "PLXSUPER"
#define EXTENT_MAGIC "PLXEXTNT"
#define VDI_MAGIC "PLXVDREC"
#define SEGMENT_MAGIC "PLXLOGSG"
#define HOME_MAGIC "PLXHOME."
#define NUMBER_MAGIC "PLXNUMBR"
#define BATCH_MAGIC 0x42584c50u /* "PLXB" */
#define CHECKSUM_AT 8
#define BITMAP_AT 96
#define KEYFRAME_BYTES 80u
#define RECORD_BYTES 16u
#define REWINDS_OFFSET 2048u
#define REWIND_BYTES 32u

#define RANGES_OFFSET 256u
#define RANGE_BYTES 16u
#define SPANS_OFFSET 2048u
#define SPAN_BYTES 32u

/* The feature bits that this program knows. */
#define KNOWN_INCOMPATIBLE                                                                         \
    (PLX_INCOMPATIBLE_RANGES | PLX_INCOMPATIBLE_COMMON | PLX_INCOMPATIBLE_RING |                   \
     PLX_INCOMPATIBLE_CLUSTER)
#define KNOWN_READ_COMPATIBLE 0ull

/* ---- Little-endian access ---- */

static inline void put16(void *at, uint16_t v)
{
    uint8_t *p = at;

    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static inline void put32(void *at, uint32_t v)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap32(v);
#endif
    memcpy(at, &v, sizeof v);
}

static inline void put64(void *at, uint64_t v)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    memcpy(at, &v, sizeof v);
}

static inline uint16_t get16(const void *at)
{
    const uint8_t *p = at;

    return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t get32(const void *at)
{
    uint32_t v;

    memcpy(&v, at, sizeof v);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap32(v);
#endif
    return v;
}

static inline uint64_t get64(const void *at)
{
    uint64_t v;

    memcpy(&v, at, sizeof v);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    return v;
}

static inline void put_uuid(void *at, const struct plx_uuid *id)
{
    memcpy(at, id->b, sizeof id->b);
}

static inline struct plx_uuid get_uuid(const void *at)
{
    struct plx_uuid id;

    memcpy(id.b, at, sizeof id.b);
    return id;
}

/* format_vdi.c */
void plx_format_put_keyframe(uint8_t *b, const struct plx_keyframe *k);
bool plx_format_get_keyframe(const uint8_t *b, uint64_t addr_limit, struct plx_keyframe *ret);

/* format_log.c */
static inline bool plx_format_ring_position_valid(const struct plx_ring_position *position)
{
    return position->epoch <= PLX_COUNTER_MAX && position->seq <= PLX_COUNTER_MAX &&
           !position->epoch == !position->seq;
}

/* format.c */
void plx_format_seal_block(void *block);
bool plx_format_all_zero(const void *block);
int plx_format_check_block(const void *block, const char *magic, const char *what,
                           struct plx_fault *fault);
bool plx_format_data_addr_valid(uint64_t addr, uint64_t addr_limit);

#endif
