/* hash.c - the hash of batches and tables; see hash.h. Stateless. */
#include "engine/base/hash.h"

#include <string.h>

/* Little-endian, as everything that is hashed on the store. */
static uint64_t load(const uint8_t *at)
{
    uint64_t word;

    memcpy(&word, at, sizeof word);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

uint64_t plx_hash64(const void *bytes, size_t count)
{
    const uint8_t *at = bytes;
    uint64_t h = 0x9e3779b97f4a7c15ull ^ count;

    for (; count >= 8; at += 8, count -= 8) {
        __uint128_t product = (__uint128_t)(h ^ load(at)) * 0xd6e8feb86659fd93ull;

        h = (uint64_t)product ^ (uint64_t)(product >> 64) ^ (h << 1);
    }
    for (; count; at++, count--)
        h = (h ^ *at) * 0x100000001b3ull;
    return h ^ h >> 29;
}
