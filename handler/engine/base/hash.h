/* hash.h - the 64-bit hash: XXH3, whose code is in its header. It links batches into a chain, tells
 * a batch from a leftover of an older log, and finds equal blocks. It resists accidents, not
 * attackers. Its results are on the store, so another hash needs another version of the format. */
#ifndef PLX_ENGINE_HASH_H
#define PLX_ENGINE_HASH_H

#include <stddef.h>
#include <stdint.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

static inline uint64_t plx_hash64(const void *bytes, size_t count)
{
    return XXH3_64bits(bytes, count);
}

#endif
