/* test_format_ring.c - the gates of format_ring.c: what is encoded comes back, every flipped byte
 * and every impossible value is refused, another ring's structures are none of this one.
 */
#include <string.h>

#include "engine/format/format_ring.h"
#include "suite.h"

static const struct plx_uuid ring_id = {"a write-back rin"};
static const struct plx_uuid other_id = {"another ring...."};
static const struct plx_uuid vdi_id = {"a virtual disk.."};
static uint8_t block[PLX_BLOCK_SIZE];
static uint8_t bytes[3 * PLX_BLOCK_SIZE];

static unsigned accepted_flips(bool (*accepts)(void), uint8_t *at, size_t count)
{
    unsigned accepted = 0;

    CU_ASSERT(accepts());
    for (size_t i = 0; i < count; i++) {
        at[i] ^= 0x10;
        accepted += accepts();
        at[i] ^= 0x10;
    }
    return accepted;
}

/* ---- Superblock ---- */

static struct plx_ring_super good_super(void)
{
    return (struct plx_ring_super){
        .compatible = 5,
        .ring = ring_id,
        .store = other_id,
        .host = vdi_id,
        .host_name = "alpha",
        .generation = 8,
        .member = 1,
        .members = 2,
        .segments = 128,
        .segment_blocks = 4096,
        .alone = true,
        .set = 77,
        .ancestor = {11, 22},
        .ancestors = 2,
    };
}

static int super_code(const struct plx_ring_super *super)
{
    struct plx_ring_super back;

    plx_format_ring_super_encode(super, block);
    return plx_format_ring_super_decode(block, &back, NULL);
}

static bool super_accepts(void)
{
    struct plx_ring_super super;

    return plx_format_ring_super_decode(block, &super, NULL) == 0;
}

static void test_super(void)
{
    struct plx_ring_super super = good_super(), back;

    plx_format_ring_super_encode(&super, block);
    CU_ASSERT_EQUAL_FATAL(plx_format_ring_super_decode(block, &back, NULL), 0);
    CU_ASSERT(memcmp(&super, &back, sizeof back) == 0);
    CU_ASSERT_EQUAL(accepted_flips(super_accepts, block, sizeof block), 0);
    super.alone = false;
    super.joining = true;
    plx_format_ring_super_encode(&super, block);
    CU_ASSERT_EQUAL(plx_format_ring_super_decode(block, &back, NULL), 0);
    CU_ASSERT(back.joining && !back.alone);
    super.alone = true; /* it cannot be both */
    CU_ASSERT_EQUAL(super_code(&super), PLX_ERR_CORRUPT);
    memset(block, 0, sizeof block);
    CU_ASSERT_EQUAL(plx_format_ring_super_decode(block, &back, NULL), PLX_ERR_NOT_FOUND);
}

static void test_super_values(void)
{
    static const struct {
        size_t at;
        uint64_t value;
        int error;
    } cases[] = {
        {offsetof(struct plx_ring_super, incompatible), 1, PLX_ERR_UNSUPPORTED},
        {offsetof(struct plx_ring_super, generation), PLX_COUNTER_MAX + 1, PLX_ERR_CORRUPT},
        {offsetof(struct plx_ring_super, set), 0, PLX_ERR_CORRUPT},
    };
    struct plx_ring_super super;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        super = good_super();
        memcpy((uint8_t *)&super + cases[i].at, &cases[i].value, sizeof cases[i].value);
        CU_ASSERT_EQUAL(super_code(&super), cases[i].error);
    }
    super = good_super();
    super.members = 3;
    CU_ASSERT_EQUAL(super_code(&super), PLX_ERR_CORRUPT);
    super = good_super();
    super.member = 2;
    CU_ASSERT_EQUAL(super_code(&super), PLX_ERR_CORRUPT);
    super = good_super();
    super.segments = 0;
    CU_ASSERT_EQUAL(super_code(&super), PLX_ERR_CORRUPT);
    super.segments = PLX_RING_SEGMENTS_MAX + 1;
    CU_ASSERT_EQUAL(super_code(&super), PLX_ERR_CORRUPT);
    super = good_super();
    super.segment_blocks = PLX_RING_SEGMENT_BLOCKS_MIN - 1;
    CU_ASSERT_EQUAL(super_code(&super), PLX_ERR_CORRUPT);
    super.segment_blocks = PLX_RING_SEGMENT_BLOCKS_MAX + 1;
    CU_ASSERT_EQUAL(super_code(&super), PLX_ERR_CORRUPT);
}

static void test_set(void)
{
    struct plx_ring_super super = good_super();

    CU_ASSERT(plx_ring_set_descends(&super, 77));
    CU_ASSERT(plx_ring_set_descends(&super, 11));
    CU_ASSERT_FALSE(plx_ring_set_descends(&super, 33));
    super.ancestors = 1;
    CU_ASSERT_FALSE(plx_ring_set_descends(&super, 22));
}

/* ---- Segment header ---- */

static bool segment_accepts(void)
{
    struct plx_ring_segment segment;

    return plx_format_ring_segment_decode(block, &ring_id, &segment, NULL) == 0;
}

static void test_segment(void)
{
    struct plx_ring_segment segment = {vdi_id, 4, 100, 0xabcdef, UINT64_MAX, 99}, back;

    plx_format_ring_segment_encode(&ring_id, &segment, block);
    CU_ASSERT_EQUAL_FATAL(plx_format_ring_segment_decode(block, &ring_id, &back, NULL), 0);
    CU_ASSERT(memcmp(&segment, &back, sizeof back) == 0);
    CU_ASSERT_EQUAL(accepted_flips(segment_accepts, block, 512), 0);
    memset(block + 512, 0xff, sizeof block - 512); /* a torn write: the first sector has it all */
    CU_ASSERT(segment_accepts());
    CU_ASSERT_EQUAL(plx_format_ring_segment_decode(block, &other_id, &back, NULL), PLX_ERR_CORRUPT);
    segment.durable_seq = 100; /* its own first record cannot be durable yet */
    plx_format_ring_segment_encode(&ring_id, &segment, block);
    CU_ASSERT_FALSE(segment_accepts());
    segment.first_seq = segment.durable_seq = 0;
    plx_format_ring_segment_encode(&ring_id, &segment, block);
    CU_ASSERT_EQUAL(plx_format_ring_segment_decode(block, &ring_id, &back, NULL), PLX_ERR_CORRUPT);
    segment = (struct plx_ring_segment){0}; /* free */
    plx_format_ring_segment_encode(&ring_id, &segment, block);
    CU_ASSERT(segment_accepts());
    segment.epoch = 1;
    plx_format_ring_segment_encode(&ring_id, &segment, block);
    CU_ASSERT_FALSE(segment_accepts());
    segment = (struct plx_ring_segment){.durable_seq = 1};
    plx_format_ring_segment_encode(&ring_id, &segment, block);
    CU_ASSERT_FALSE(segment_accepts());
    memset(block, 0, sizeof block);
    CU_ASSERT_FALSE(segment_accepts());
}

/* ---- Batches ---- */

static const struct plx_ring_record records[] = {
    {.type = PLX_RING_WRITE, .block = 1000, .blocks = 1},
    {.type = PLX_RING_SNAPSHOT, .snapshot = 7, .time_ns = 12345},
    {.type = PLX_RING_UNMAP, .block = 5, .blocks = PLX_RECORD_UNMAP_MAX},
    {.type = PLX_RING_WRITE, .block = PLX_VBLOCK_MAX, .blocks = 1},
};
#define RECORDS (sizeof records / sizeof records[0])

static struct plx_ring_batch make_batch(void)
{
    struct plx_ring_batch batch = {
        .vdi = 9,
        .epoch = 4,
        .first_seq = 100,
        .durable_seq = 99,
        .prev_hash = 0xfedc,
        .proof = 0xaffe,
        .time_ns = 1,
        .bytes = sizeof bytes,
        .records = RECORDS,
    };

    memset(bytes, 0, sizeof bytes);
    memset(bytes + PLX_BLOCK_SIZE, 0xaa, 2 * PLX_BLOCK_SIZE);
    for (uint32_t i = 0; i < RECORDS; i++) {
        struct plx_ring_record record = records[i];

        if (record.type == PLX_RING_WRITE)
            record.hash = plx_ring_blocks_hash(&ring_id, bytes + PLX_BLOCK_SIZE, 1, NULL);
        plx_format_ring_record_encode(&record, i, bytes);
    }
    return batch;
}

static int batch_code(const struct plx_ring_batch *batch)
{
    struct plx_ring_batch back;
    uint64_t hash;

    plx_format_ring_batch_encode(&ring_id, batch, bytes);
    return plx_format_ring_batch_decode(bytes, sizeof bytes, &ring_id, &back, &hash);
}

static bool batch_accepts(void)
{
    struct plx_ring_batch back;
    uint64_t hash;

    return plx_format_ring_batch_decode(bytes, sizeof bytes, &ring_id, &back, &hash) == 0;
}

static void test_batch(void)
{
    struct plx_ring_batch batch = make_batch(), back;
    size_t data_at = plx_ring_batch_data_at(RECORDS);
    uint64_t made = plx_format_ring_batch_encode(&ring_id, &batch, bytes), hash;

    CU_ASSERT_EQUAL_FATAL(plx_format_ring_batch_decode(bytes, sizeof bytes, &ring_id, &back, &hash),
                          0);
    CU_ASSERT_EQUAL(hash, made);
    CU_ASSERT(memcmp(&batch, &back, sizeof back) == 0);
    CU_ASSERT_EQUAL(data_at, PLX_BLOCK_SIZE);
    for (uint32_t i = 0; i < RECORDS; i++) {
        struct plx_ring_record record;

        CU_ASSERT_EQUAL(plx_format_ring_record_decode(bytes, &back, i, &data_at, &record), 0);
        record.hash = 0;
        CU_ASSERT(memcmp(&record, &records[i], sizeof record) == 0);
    }
    CU_ASSERT_EQUAL(data_at, sizeof bytes);
    CU_ASSERT_EQUAL(accepted_flips(batch_accepts, bytes, sizeof bytes), 0);
    CU_ASSERT_EQUAL(plx_format_ring_batch_decode(bytes, sizeof bytes, &other_id, &back, &hash),
                    PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(plx_format_ring_batch_decode(bytes, sizeof bytes - 1, &ring_id, &back, &hash),
                    PLX_ERR_CORRUPT);
}

static void test_batch_values(void)
{
    struct plx_ring_batch batch = make_batch();

    batch.records = 0;
    CU_ASSERT_EQUAL(batch_code(&batch), PLX_ERR_CORRUPT);
    batch = make_batch();
    batch.records = RECORDS - 1; /* and a block without a record */
    CU_ASSERT_EQUAL(batch_code(&batch), PLX_ERR_CORRUPT);
    batch = make_batch();
    batch.first_seq = 0;
    CU_ASSERT_EQUAL(batch_code(&batch), PLX_ERR_CORRUPT);
    batch = make_batch();
    batch.durable_seq = batch.first_seq;
    CU_ASSERT_EQUAL(batch_code(&batch), PLX_ERR_CORRUPT);
    batch = make_batch();
    batch.epoch = PLX_COUNTER_MAX + 1;
    CU_ASSERT_EQUAL(batch_code(&batch), PLX_ERR_CORRUPT);
    batch = make_batch();
    batch.proof = 0;
    CU_ASSERT_EQUAL(batch_code(&batch), PLX_ERR_CORRUPT);
}

static void test_record_values(void)
{
    static const struct plx_ring_record bad[] = {
        {.type = 0, .block = 1, .blocks = 1},
        {.type = 4, .block = 1, .blocks = 1},
        {.type = PLX_RING_WRITE, .block = 1, .blocks = 0},
        {.type = PLX_RING_WRITE, .block = 1, .blocks = 3},
        {.type = PLX_RING_WRITE, .block = PLX_VBLOCK_MAX, .blocks = 2},
        {.type = PLX_RING_WRITE, .block = PLX_VBLOCK_MAX + 1, .blocks = 1},
        {.type = PLX_RING_WRITE, .block = 1, .blocks = UINT64_MAX},
        {.type = PLX_RING_UNMAP, .block = UINT64_MAX, .blocks = 2},
        {.type = PLX_RING_UNMAP, .block = 1, .blocks = PLX_RECORD_UNMAP_MAX + 1},
        {.type = PLX_RING_SNAPSHOT, .snapshot = 0, .time_ns = 1},
        {.type = PLX_RING_SNAPSHOT, .snapshot = PLX_COUNTER_MAX + 1, .time_ns = 1},
        {.type = PLX_RING_SNAPSHOT, .snapshot = 1, .time_ns = PLX_TIME_MAX + 1},
    };
    struct plx_ring_batch batch = make_batch();

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct plx_ring_record record = records[0];
        size_t data_at = plx_ring_batch_data_at(RECORDS);

        plx_format_ring_record_encode(&bad[i], 0, bytes);
        CU_ASSERT_EQUAL(plx_format_ring_record_decode(bytes, &batch, 0, &data_at, &record),
                        PLX_ERR_CORRUPT);
        CU_ASSERT(memcmp(&record, &records[0], sizeof record) == 0);
        CU_ASSERT_EQUAL(data_at, PLX_BLOCK_SIZE);
    }
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"superblock", test_super},
        {"superblock: impossible values", test_super_values},
        {"member sets", test_set},
        {"segment header", test_segment},
        {"batch", test_batch},
        {"batch: impossible values", test_batch_values},
        {"records: impossible values", test_record_values},
    };

    return SUITE_RUN("format of the ring", tests);
}
