/* fuzz_ring.c - every decoder of format_ring.c on arbitrary bytes.
 *
 * The first byte says which decoder, the second whether the bytes get a right magic number and
 * checksum first. Properties: as those of fuzz_format.c.
 */
#include "engine/format/format_ring.h"
#include "fuzz.h"

enum {
    SUPERBLOCK,
    SEGMENT,
    BATCH,
    DECODERS,
};

static const struct plx_uuid ring = {"a write-back rin"};
static uint8_t again[PLX_BLOCK_SIZE], thrice[PLX_BLOCK_SIZE];

static void superblock(const uint8_t *block)
{
    struct plx_ring_super s;
    struct plx_fault fault;

    if (plx_format_ring_super_decode(block, &s, &fault))
        return;
    FUZZ_CHECK(s.member < s.members && s.members <= 2);
    FUZZ_CHECK(s.segments >= 1 && s.segments <= PLX_RING_SEGMENTS_MAX);
    FUZZ_CHECK(s.ancestors <= PLX_RING_ANCESTORS_MAX && plx_ring_set_descends(&s, s.set));
    FUZZ_CHECK(strnlen(s.host_name, sizeof s.host_name) < sizeof s.host_name);
    plx_format_ring_super_encode(&s, again);
    FUZZ_CHECK(plx_format_ring_super_decode(again, &s, &fault) == 0);
    plx_format_ring_super_encode(&s, thrice);
    FUZZ_CHECK(memcmp(again, thrice, sizeof again) == 0);
}

static void segment(const uint8_t *block)
{
    struct plx_ring_segment s;
    struct plx_fault fault;

    if (plx_format_ring_segment_decode(block, &ring, &s, &fault))
        return;
    FUZZ_CHECK(s.first_seq <= PLX_COUNTER_MAX && (s.first_seq || plx_uuid_is_zero(&s.vdi)));
    plx_format_ring_segment_encode(&ring, &s, again);
    FUZZ_CHECK(plx_format_ring_segment_decode(again, &ring, &s, &fault) == 0);
    plx_format_ring_segment_encode(&ring, &s, thrice);
    FUZZ_CHECK(memcmp(again, thrice, sizeof again) == 0);
}

/* Its hashes are made right, as far as its record heads can be. */
static void seal_batch(uint8_t *bytes, size_t room)
{
    struct plx_ring_batch header = {.records = (uint32_t)fuzz_get(bytes + 28, 4)};
    size_t data_at, before;
    struct plx_ring_record record;

    memcpy(bytes, "PLXR\0\0\0\0", 8);
    if (header.records > PLX_RING_RECORDS_MAX || plx_ring_batch_data_at(header.records) > room)
        header.records = 1;
    fuzz_put(bytes + 28, 4, header.records);
    header.bytes = (uint32_t)plx_min_u64(room, PLX_RING_BATCH_BYTES_MAX);
    data_at = plx_ring_batch_data_at(header.records);
    for (uint32_t i = 0; i < header.records; i++) {
        before = data_at;
        if (plx_format_ring_record_decode(bytes, &header, i, &data_at, &record))
            break;
        if (record.type == PLX_RING_WRITE)
            fuzz_put(bytes + PLX_RING_BATCH_HEADER_BYTES + i * PLX_RING_RECORD_BYTES + 24, 8,
                     plx_ring_blocks_hash(&ring, bytes + before, record.blocks, NULL));
    }
    fuzz_put(bytes + 24, 4, data_at);
    data_at = plx_ring_batch_data_at(header.records);
    fuzz_put(bytes + 8, 8, plx_ring_heads_hash(&ring, bytes, header.records));
}

static void check_records(const uint8_t *bytes, const struct plx_ring_batch *batch)
{
    size_t data_at = plx_ring_batch_data_at(batch->records);
    struct plx_ring_record record;

    for (uint32_t i = 0; i < batch->records; i++) {
        size_t before = data_at;

        if (plx_format_ring_record_decode(bytes, batch, i, &data_at, &record))
            return;
        FUZZ_CHECK(data_at <= batch->bytes);
        if (record.type == PLX_RING_SNAPSHOT)
            FUZZ_CHECK(record.snapshot >= 1 && record.time_ns <= PLX_TIME_MAX);
        else
            FUZZ_CHECK(record.blocks >= 1 && record.block + record.blocks <= PLX_VBLOCK_MAX + 1);
        FUZZ_CHECK(data_at - before ==
                   (record.type == PLX_RING_WRITE ? record.blocks * PLX_BLOCK_SIZE : 0));
    }
}

static void batch(const struct fuzz_input *input, bool seal)
{
    /* Batches are whole blocks, and inputs are short: what is missing are zeroes. */
    size_t room = input->left ? plx_div_up(input->left, PLX_BLOCK_SIZE) * PLX_BLOCK_SIZE : 0;
    uint8_t *bytes = calloc(1, room ? room : 1), *copy;
    struct plx_ring_batch header;
    uint64_t hash, made;

    memcpy(bytes, input->at, input->left);
    if (seal && room)
        seal_batch(bytes, room);
    if (plx_format_ring_batch_decode(bytes, room, &ring, &header, &hash) == 0) {
        FUZZ_CHECK(header.bytes <= room && header.records);
        copy = malloc(header.bytes); /* as long as the batch: reads behind it are found */
        memcpy(copy, bytes, header.bytes);
        check_records(copy, &header);
        made = plx_format_ring_batch_encode(&ring, &header, copy);
        FUZZ_CHECK(plx_format_ring_batch_decode(copy, header.bytes, &ring, &header, &hash) == 0 &&
                   hash == made);
        free(copy);
    }
    free(bytes);
}

PLX_FUZZ_EXPORT int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct fuzz_input input = {bytes, count};
    unsigned which = (unsigned)(fuzz_take(&input, 1) % DECODERS);
    bool seal = fuzz_take(&input, 1) & 1;
    uint8_t *block;

    if (which == BATCH) {
        batch(&input, seal);
        return 0;
    }
    block = calloc(1, PLX_BLOCK_SIZE);
    memcpy(block, input.at, plx_min_u64(input.left, PLX_BLOCK_SIZE));
    if (seal) {
        memcpy(block, which == SUPERBLOCK ? "PLXRING." : "PLXRSEG.", 8);
        fuzz_seal_block(block);
        if (which == SEGMENT) {
            memcpy(block + 16, ring.b, sizeof ring.b);
            fuzz_put(block + 8, 4, 0);
            fuzz_put(block + 8, 4, plx_crc32c(block, 512));
        }
    }
    if (which == SUPERBLOCK)
        superblock(block);
    else
        segment(block);
    free(block);
    return 0;
}
