/* fuzz.h - what the fuzzers share: taking an input apart, checking, sealing what was changed.
 *
 * Every fuzzer defines LLVMFuzzerTestOneInput and, if it needs one, LLVMFuzzerInitialize; libFuzzer
 * calls them, or replay.c does with the files of a corpus. An input that ends early goes on as
 * zeroes, so that every prefix of an input is one, too.
 */
#ifndef PLX_FUZZ_H
#define PLX_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/format/format.h"

#define PLX_FUZZ_EXPORT __attribute__((visibility("default")))

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

#define FUZZ_CHECK(condition)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

struct fuzz_input {
    const uint8_t *at;
    size_t left;
};

/* The next `bytes` bytes (8 at most), little-endian. */
static inline uint64_t fuzz_take(struct fuzz_input *input, unsigned bytes)
{
    uint64_t v = 0;

    for (unsigned i = 0; i < bytes && input->left; i++, input->left--)
        v |= (uint64_t)*input->at++ << 8 * i;
    return v;
}

static inline uint64_t fuzz_get(const uint8_t *at, unsigned bytes)
{
    uint64_t v = 0;

    for (unsigned i = 0; i < bytes; i++)
        v |= (uint64_t)at[i] << 8 * i;
    return v;
}

static inline void fuzz_put(uint8_t *at, unsigned bytes, uint64_t v)
{
    for (unsigned i = 0; i < bytes; i++)
        at[i] = (uint8_t)(v >> 8 * i);
}

/* The checksum of a superblock, an extent page, a VDI record or a segment's header. */
static inline void fuzz_seal_block(uint8_t *block)
{
    fuzz_put(block + 8, 4, 0);
    fuzz_put(block + 8, 4, plx_crc32c(block, PLX_BLOCK_SIZE));
}

static inline void fuzz_seal_batch(uint8_t *batch, size_t bytes)
{
    fuzz_put(batch + 4, 4, 0);
    fuzz_put(batch + 4, 4, plx_crc32c(batch, bytes));
}

#endif
