/* verify_contents.c - the contents of data blocks compared with their checksums.
 *
 * Contents are read in the order of the store, adjacent blocks in one go. An open disk may have
 * overwritten or freed a block since its tree was read. A mismatch therefore counts only if the
 * block is still expected there (verify_expected.c).
 *
 * Loop: the store's. Crash story: this file only reads.
 */
#include <stdlib.h>

#include "engine/base/list.h"
#include "engine/check/verify.h"

static int by_addr(const void *a, const void *b)
{
    const struct plx_expected *x = a, *y = b;

    return x->addr < y->addr ? -1 : x->addr > y->addr;
}

void plx_verify_add_damaged(struct plx_verify *v, const struct plx_damaged *damaged)
{
    if (v->damaged_count == PLX_VERIFY_DAMAGED) {
        v->damaged_dropped++;
        return;
    }
    if (!PLX_LIST_ROOM(v->damaged, v->damaged_count, v->damaged_capacity, 64)) {
        v->error = PLX_ERR_NOMEM;
        return;
    }
    v->damaged[v->damaged_count++] = *damaged;
}

void plx_verify_damage(struct plx_verify *v, const struct plx_block_claim *claim, bool newest)
{
    const struct plx_damaged damaged = {.addr = plx_addr_block(claim->addr),
                                        .vblock = claim->level ? claim->below : claim->vblock,
                                        .slot = v->record->slot,
                                        .checksum = claim->checksum,
                                        .level = claim->level,
                                        .damage = claim->damage,
                                        .newest = newest};

    if (v->mode == PLX_VERIFY_LIVE)
        plx_verify_add_damaged(v, &damaged);
    else if (v->mode == PLX_VERIFY_GATHER && v->damaged_seen &&
             (claim->damage == PLX_DAMAGE_PLACE || claim->damage == PLX_DAMAGE_BEYOND))
        plx_verify_use(v, claim); /* others are claimed */
}

static void note_damaged(struct plx_verify *v, const struct plx_expected *expected,
                         enum plx_damage damage)
{
    const struct plx_damaged damaged = {.addr = plx_addr_block(expected->addr),
                                        .vblock = expected->vblock,
                                        .slot = v->record->slot,
                                        .damage = damage,
                                        .checksum = expected->checksum,
                                        .newest = expected->live};

    plx_verify_add_damaged(v, &damaged);
}

static void judge(struct plx_verify *v, const struct plx_expected *expected)
{
    int error = plx_verify_read(v, PLX_KIND_DATA, expected->addr, v->block, PLX_BLOCK_SIZE);

    if (!error && plx_checksum24(plx_crc32c(v->block, PLX_BLOCK_SIZE)) == expected->checksum)
        return;
    if (!v->record->owner || v->still_expected(v, expected))
        note_damaged(v, expected, error ? PLX_DAMAGE_UNREADABLE : PLX_DAMAGE_CHECKSUM);
}

static void read_run(struct plx_verify *v, const struct plx_expected *run, size_t count)
{
    size_t blocks = (size_t)(run[count - 1].addr - run->addr) + 1;
    int error = plx_verify_read(v, PLX_KIND_DATA, run->addr, v->data, blocks << PLX_BLOCK_SHIFT);

    for (size_t i = 0; i < count; i++) {
        const uint8_t *bytes = v->data + ((run[i].addr - run->addr) << PLX_BLOCK_SHIFT);

        v->result.data_verified++;
        if (error || plx_checksum24(plx_crc32c(bytes, PLX_BLOCK_SIZE)) != run[i].checksum)
            judge(v, &run[i]);
    }
}

void plx_verify_data_done(struct plx_verify *v)
{
    uint64_t extent_blocks = v->store->info.extent_blocks;
    size_t count = v->expected_count;

    v->expected_count = 0;
    qsort(v->expected, count, sizeof *v->expected, by_addr);
    for (size_t i = 0; i < count && !v->error;) {
        size_t end = i + 1;

        while (end < count && v->expected[end].addr - v->expected[end - 1].addr <= 1 &&
               v->expected[end].addr - v->expected[i].addr < PLX_VERIFY_DATA &&
               v->expected[end].addr / extent_blocks == v->expected[i].addr / extent_blocks)
            end++;
        read_run(v, v->expected + i, end - i);
        i = end;
    }
}

void plx_verify_data(struct plx_verify *v, uint64_t addr, uint64_t vblock, uint32_t checksum,
                     bool live)
{
    if (!v->read_data || !checksum)
        return;
    v->expected[v->expected_count++] =
        (struct plx_expected){.addr = addr, .vblock = vblock, .checksum = checksum, .live = live};
    if (v->expected_count == PLX_VERIFY_DATA)
        plx_verify_data_done(v);
}
