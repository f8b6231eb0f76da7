/* hash.h - a multiply-and-fold hash of 64 bits. It links batches into a chain, tells a batch from a
 * leftover of an older log, and finds equal blocks: it resists accidents, not attackers. */
#ifndef PLX_ENGINE_HASH_H
#define PLX_ENGINE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t plx_hash64(const void *bytes, size_t count);

#endif
