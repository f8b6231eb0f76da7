/* bytes.h - numbers in SCSI's byte order, big-endian. */
#ifndef PLX_BYTES_H
#define PLX_BYTES_H

#include <stdint.h>

static inline uint64_t plx_get_be(const uint8_t *bytes, unsigned count)
{
    uint64_t value = 0;

    while (count-- > 0)
        value = value << 8 | *bytes++;
    return value;
}

static inline void plx_put_be(uint8_t *bytes, unsigned count, uint64_t value)
{
    while (count-- > 0) {
        bytes[count] = (uint8_t)value;
        value >>= 8;
    }
}

#endif
