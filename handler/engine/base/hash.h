/* hash.h - the hash of 64 bits: XXH3, whose code is in its header. It links batches into a chain,
 * tells a batch from a leftover of an older log, and finds equal blocks: it resists accidents, not
 * attackers. Its results are on the store: another hash needs another version of the format. */
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
