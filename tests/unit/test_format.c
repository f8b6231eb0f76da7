/* test_format.c - the gates of format.c: what is encoded comes back, every flipped byte and every
 * impossible value is refused, and nothing is written to the result of a refusal.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/hash.h"
#include "engine/format/format.h"
#include "suite.h"

#define ADDR_LIMIT (1ull << 20)

static const struct plx_uuid store_id = {"store store stor"};
static const struct plx_uuid other_id = {"another store..."};
static const struct plx_uuid vdi_id = {"a virtual disk.."};
static uint8_t block[PLX_BLOCK_SIZE];

/* Flips each bit pattern of each byte in turn; the gate must refuse every one. */
static void every_flip(bool (*accepts)(const uint8_t *bytes), uint8_t *bytes, size_t count)
{
    static const uint8_t masks[] = {0x01, 0x80, 0xff};
    size_t accepted = 0;

    CU_ASSERT(accepts(bytes));
    for (size_t i = 0; i < count; i++) {
        for (unsigned m = 0; m < sizeof masks; m++) {
            bytes[i] ^= masks[m];
            accepted += accepts(bytes);
            bytes[i] ^= masks[m];
        }
    }
    CU_ASSERT_EQUAL(accepted, 0);
    CU_ASSERT(accepts(bytes));
}

/* A number in `block`, whose checksum is made to say that it belongs there. */
static void set_and_seal(size_t at, uint64_t number, size_t bytes)
{
    uint32_t crc;

    memcpy(block + at, &number, bytes);
    memset(block + 8, 0, sizeof crc);
    crc = plx_crc32c(block, sizeof block);
    memcpy(block + 8, &crc, sizeof crc);
}

/* ---- Superblock ---- */

static struct plx_superblock good_super(void)
{
    return (struct plx_superblock){
        .compatible = 5,
        .store = store_id,
        .volume = other_id,
        .generation = 7,
        .volume_index = 1,
        .volumes = 2,
        .range = {{100, 50}},
        .ranges = 1,
        .extent_blocks = 256,
        .segment_blocks = 4,
        .vdi_slots = 120,
        .created_ns = 123456789,
        .name = "mystore",
    };
}

static int super_code(const struct plx_superblock *super)
{
    struct plx_superblock back;

    plx_format_superblock_encode(super, block);
    return plx_format_superblock_decode(block, &back, NULL);
}

static bool super_accepts(const uint8_t *bytes)
{
    struct plx_superblock super;

    return plx_format_superblock_decode(bytes, &super, NULL) == 0;
}

static void test_superblock(void)
{
    struct plx_superblock super = good_super(), back;

    memset(&back, 0, sizeof back);
    plx_format_superblock_encode(&super, block);
    CU_ASSERT_EQUAL(plx_format_superblock_decode(block, &back, NULL), 0);
    CU_ASSERT(plx_uuid_equal(&back.store, &super.store));
    CU_ASSERT(plx_uuid_equal(&back.volume, &super.volume));
    CU_ASSERT_EQUAL(back.compatible, 5);
    CU_ASSERT_EQUAL(back.generation, 7);
    CU_ASSERT_EQUAL(back.volume_index, 1);
    CU_ASSERT_EQUAL(back.volumes, 2);
    CU_ASSERT_EQUAL(back.ranges, 1);
    CU_ASSERT_EQUAL(back.range[0].first, 100);
    CU_ASSERT_EQUAL(back.range[0].extents, 50);
    CU_ASSERT_EQUAL(back.extent_blocks, 256);
    CU_ASSERT_EQUAL(back.segment_blocks, 4);
    CU_ASSERT_EQUAL(back.vdi_slots, 120);
    CU_ASSERT_EQUAL(back.created_ns, 123456789);
    CU_ASSERT_STRING_EQUAL(back.name, "mystore");
    every_flip(super_accepts, block, PLX_BLOCK_SIZE);
}

static void test_superblock_ranges(void)
{
    struct plx_superblock super = good_super(), back;
    uint8_t other[PLX_BLOCK_SIZE];

    super.incompatible = PLX_INCOMPATIBLE_RANGES;
    super.ranges = PLX_RANGES_MAX;
    for (uint32_t i = 1; i < PLX_RANGES_MAX; i++)
        super.range[i] = (struct plx_superblock_range){100 + 100 * i, i};
    plx_format_superblock_encode(&super, block);
    CU_ASSERT_EQUAL(plx_format_superblock_decode(block, &back, NULL), 0);
    CU_ASSERT_EQUAL(back.ranges, PLX_RANGES_MAX);
    CU_ASSERT(memcmp(back.range, super.range, sizeof super.range) == 0);
    CU_ASSERT_EQUAL(plx_superblock_extents(&back), 50 + 63 * 64 / 2);
    super.generation++;
    plx_format_superblock_encode(&super, other);
    CU_ASSERT(plx_format_superblock_same(block, other));
    super.range[63].extents++;
    plx_format_superblock_encode(&super, other);
    CU_ASSERT(!plx_format_superblock_same(block, other));
    super.range[63].extents--;
    super.compatible++;
    plx_format_superblock_encode(&super, other);
    CU_ASSERT(!plx_format_superblock_same(block, other));
    every_flip(super_accepts, block, PLX_BLOCK_SIZE);
}

/* The feature bit, a cluster and its line come together, on volume 0. */
static void test_superblock_cluster(void)
{
    struct plx_superblock super = good_super(), back;
    const struct plx_cluster good = {.id = other_id, .line = INT64_MAX};

    super.volume_index = 0;
    super.cluster = good;
    plx_format_superblock_encode(&super, block);
    CU_ASSERT_EQUAL(plx_format_superblock_decode(block, &back, NULL), 0);
    CU_ASSERT(plx_uuid_is_zero(&back.cluster.id)); /* without the bit it says nothing */
    super.incompatible = PLX_INCOMPATIBLE_CLUSTER;
    plx_format_superblock_encode(&super, block);
    CU_ASSERT_EQUAL(plx_format_superblock_decode(block, &back, NULL), 0);
    CU_ASSERT(plx_uuid_equal(&back.cluster.id, &other_id));
    CU_ASSERT_EQUAL(back.cluster.line, INT64_MAX);
    every_flip(super_accepts, block, PLX_BLOCK_SIZE);
    super.volume_index = 1;
    CU_ASSERT_EQUAL(super_code(&super), PLX_ERR_CORRUPT);
    super.volume_index = 0;
    super.cluster.line = 0;
    CU_ASSERT_EQUAL(super_code(&super), PLX_ERR_CORRUPT);
    super.cluster.line = (uint64_t)INT64_MAX + 1;
    CU_ASSERT_EQUAL(super_code(&super), PLX_ERR_CORRUPT);
    super.cluster = (struct plx_cluster){.line = 1};
    CU_ASSERT_EQUAL(super_code(&super), PLX_ERR_CORRUPT);
}

#define REFUSED_SUPER(code, member, value)                                                         \
    do {                                                                                           \
        struct plx_superblock bad = good_super();                                                  \
        bad.member = (value);                                                                      \
        CU_ASSERT_EQUAL(super_code(&bad), PLX_ERR_##code);                                         \
    } while (0)

static void test_superblock_values(void)
{
    struct plx_superblock noname = good_super(), ranges = good_super();

    REFUSED_SUPER(UNSUPPORTED, incompatible, 1ull << 4);
    REFUSED_SUPER(UNSUPPORTED, incompatible, 1ull << 63);
    REFUSED_SUPER(CORRUPT, volumes, 0);
    REFUSED_SUPER(CORRUPT, volumes, PLX_VOLUMES_MAX + 1);
    REFUSED_SUPER(CORRUPT, volume_index, 2);
    REFUSED_SUPER(CORRUPT, extent_blocks, 0);
    REFUSED_SUPER(CORRUPT, extent_blocks, 300);
    REFUSED_SUPER(CORRUPT, extent_blocks, 128);
    REFUSED_SUPER(CORRUPT, extent_blocks, 2 * PLX_EXTENT_BLOCKS_MAX);
    REFUSED_SUPER(CORRUPT, range[0].extents, 0);
    REFUSED_SUPER(CORRUPT, range[0].extents, UINT64_MAX);
    REFUSED_SUPER(CORRUPT, range[0].extents, PLX_ADDR_MAX / 256 + 1);
    REFUSED_SUPER(CORRUPT, range[0].first, UINT64_MAX);
    REFUSED_SUPER(CORRUPT, ranges, 2);       /* without the feature bit */
    REFUSED_SUPER(CORRUPT, incompatible, 1); /* without ranges */
    ranges.incompatible = PLX_INCOMPATIBLE_RANGES;
    ranges.ranges = 2;
    for (uint64_t first = 0; first <= 151; first++) { /* inside, before, or going on */
        ranges.range[1] = (struct plx_superblock_range){first, 1};
        CU_ASSERT_EQUAL(super_code(&ranges), first > 150 ? 0 : PLX_ERR_CORRUPT);
    }
    ranges.range[1].extents = 0;
    CU_ASSERT_EQUAL(super_code(&ranges), PLX_ERR_CORRUPT);
    ranges.range[1].extents = UINT64_MAX;
    CU_ASSERT_EQUAL(super_code(&ranges), PLX_ERR_CORRUPT);
    ranges.range[1] = (struct plx_superblock_range){PLX_ADDR_MAX / 256 + 1, 1};
    CU_ASSERT_EQUAL(super_code(&ranges), PLX_ERR_CORRUPT);
    REFUSED_SUPER(CORRUPT, segment_blocks, 0);
    REFUSED_SUPER(CORRUPT, segment_blocks, 65);
    REFUSED_SUPER(CORRUPT, vdi_slots, 0);
    REFUSED_SUPER(CORRUPT, vdi_slots, 121);
    ranges.range[1] = (struct plx_superblock_range){1000, 1};
    CU_ASSERT_EQUAL(super_code(&ranges), 0);
    set_and_seal(192, PLX_RANGES_MAX, 4); /* beside the first */
    CU_ASSERT_FALSE(super_accepts(block));
    set_and_seal(192, UINT32_MAX, 4);
    CU_ASSERT_FALSE(super_accepts(block));
    memset(noname.name, 'x', sizeof noname.name);
    CU_ASSERT_EQUAL(super_code(&noname), PLX_ERR_CORRUPT);
    memset(noname.name, 0, sizeof noname.name);
    CU_ASSERT_EQUAL(super_code(&noname), PLX_ERR_CORRUPT);
    memset(block, 0, sizeof block);
    CU_ASSERT_EQUAL(plx_format_superblock_decode(block, &noname, NULL), PLX_ERR_NOT_FOUND);
    memset(block, 0xff, sizeof block);
    CU_ASSERT_EQUAL(plx_format_superblock_decode(block, &noname, NULL), PLX_ERR_NOT_FOUND);
}

/* ---- Extent page ---- */

static bool page_accepts(const uint8_t *bytes)
{
    struct plx_extent_page page;

    return plx_format_extent_page_decode(bytes, &store_id, 33, 2, 17, &page, NULL) == 0;
}

static void test_extent_page(void)
{
    struct plx_extent_page page = {
        .type = PLX_EXTENT_META,
        .sealed = true,
        .page = 2,
        .pages = 17,
        .extent = 33,
        .owner = 9,
        .owner_host = vdi_id,
        .generation = 44,
    };
    struct plx_extent_page back;

    memset(block, 0, sizeof block);
    for (unsigned i = 0; i < PLX_EXTENT_PAGE_BITS / 8; i++)
        plx_format_extent_bits(block)[i] = (uint8_t)(i * 7);
    plx_format_extent_page_encode(&store_id, &page, block);
    CU_ASSERT_EQUAL(plx_format_extent_page_decode(block, &store_id, 33, 2, 17, &back, NULL), 0);
    CU_ASSERT_EQUAL(back.type, PLX_EXTENT_META);
    CU_ASSERT(back.sealed);
    CU_ASSERT_EQUAL(back.owner, 9);
    CU_ASSERT_EQUAL(back.generation, 44);
    CU_ASSERT(plx_uuid_equal(&back.owner_host, &vdi_id));
    CU_ASSERT_EQUAL(plx_format_extent_bits(block)[100], (uint8_t)700);
    CU_ASSERT_EQUAL(plx_format_extent_page_decode(block, &other_id, 33, 2, 17, &back, NULL),
                    PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(plx_format_extent_page_decode(block, &store_id, 34, 2, 17, &back, NULL),
                    PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(plx_format_extent_page_decode(block, &store_id, 33, 1, 17, &back, NULL),
                    PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(plx_format_extent_page_decode(block, &store_id, 33, 2, 16, &back, NULL),
                    PLX_ERR_CORRUPT);
    every_flip(page_accepts, block, PLX_BLOCK_SIZE);
    page.type = 4;
    plx_format_extent_page_encode(&store_id, &page, block);
    CU_ASSERT_FALSE(page_accepts(block));
}

/* ---- VDI record ---- */

static struct plx_keyframe good_keyframe(void)
{
    return (struct plx_keyframe){
        .root = plx_entry_make(1234, 0xabcdef) | PLX_ENTRY_READ_ONLY,
        .levels = 3,
        .size_bytes = 1ull << 30,
        .pos = 241 * 512,
        .batch_seq = 77,
        .prev_hash = 0x123456789abcdef,
        .snap_seq = 5,
        .time_ns = 99,
        .mapped = 4242,
    };
}

static struct plx_vdi_record good_record(void)
{
    struct plx_vdi_record record = {
        .state = PLX_VDI_LIVE,
        .sector_size = 512,
        .overwrite = PLX_OVERWRITE_COPY,
        .id = vdi_id,
        .generation = 3,
        .epoch = 4,
        .owner = 5,
        .owner_host = other_id,
        .created_ns = 6,
        .parent = store_id,
        .parent_seq = 7,
        .slot = 8,
        .keyframe = good_keyframe(),
        .oldest = good_keyframe(),
        .origin_root = plx_entry_make(777, 5),
        .origin_levels = 3,
        .rewind = {{.pos = 512, .seq = 2, .root = 0, .levels = 3},
                   {.pos = 241 * 512,
                    .seq = 4,
                    .root = PLX_ENTRY_READ_ONLY | plx_entry_make(888, 6),
                    .levels = 3}},
        .rewinds = 2,
        .rewinds_past = 7,
        .first_segment = 9,
        .index_root = plx_entry_make(4321, 0x111111),
        .index_levels = 3,
        .segment_addr = 1000,
        .next_addr = 2000,
        .mark = {.ring = other_id, .set = UINT64_MAX, .proof = UINT64_MAX - 1, .since = 4},
        .position = {.epoch = 4, .seq = 12},
    };

    memset(record.name, 'n', PLX_NAME_MAX);
    return record;
}

static bool record_accepts(const uint8_t *bytes)
{
    struct plx_vdi_record record;

    return plx_format_vdi_record_decode(bytes, &store_id, 8, ADDR_LIMIT, &record, NULL) == 0;
}

static bool record_ok(const struct plx_vdi_record *record)
{
    plx_format_vdi_record_encode(&store_id, record, block);
    return record_accepts(block);
}

static uint64_t mapped_again(uint64_t mapped)
{
    struct plx_vdi_record record = good_record(), back;

    record.keyframe.mapped = mapped;
    plx_format_vdi_record_encode(&store_id, &record, block);
    CU_ASSERT_EQUAL(plx_format_vdi_record_decode(block, &store_id, 8, ADDR_LIMIT, &back, NULL), 0);
    return back.keyframe.mapped;
}

/* Known or not; what is impossible is not known, and the record is good all the same. */
static void test_mapped(void)
{
    CU_ASSERT_EQUAL(mapped_again(0), 0);
    CU_ASSERT_EQUAL(mapped_again(1u << 18), 1u << 18);
    CU_ASSERT_EQUAL(mapped_again((1u << 18) + 1), PLX_MAPPED_UNKNOWN);
    CU_ASSERT_EQUAL(mapped_again(PLX_MAPPED_UNKNOWN), PLX_MAPPED_UNKNOWN);
}

static void test_vdi_record(void)
{
    struct plx_vdi_record record = good_record(), back;

    plx_format_vdi_record_encode(&store_id, &record, block);
    CU_ASSERT_EQUAL(plx_format_vdi_record_decode(block, &store_id, 8, ADDR_LIMIT, &back, NULL), 0);
    CU_ASSERT_EQUAL(back.state, PLX_VDI_LIVE);
    CU_ASSERT_EQUAL(back.sector_size, 512);
    CU_ASSERT_EQUAL(back.overwrite, PLX_OVERWRITE_COPY);
    CU_ASSERT_EQUAL(back.generation, 3);
    CU_ASSERT_EQUAL(back.epoch, 4);
    CU_ASSERT_EQUAL(back.owner, 5);
    CU_ASSERT_EQUAL(back.created_ns, 6);
    CU_ASSERT_EQUAL(back.parent_seq, 7);
    CU_ASSERT_EQUAL(back.slot, 8);
    CU_ASSERT_EQUAL(back.first_segment, 9);
    CU_ASSERT_EQUAL(back.index_root, record.index_root);
    CU_ASSERT_EQUAL(back.segment_addr, 1000);
    CU_ASSERT_EQUAL(back.next_addr, 2000);
    CU_ASSERT(plx_uuid_equal(&back.id, &vdi_id));
    CU_ASSERT(plx_uuid_equal(&back.parent, &store_id));
    CU_ASSERT(plx_uuid_equal(&back.owner_host, &other_id));
    CU_ASSERT_STRING_EQUAL(back.name, record.name);
    CU_ASSERT_EQUAL(back.keyframe.root, record.keyframe.root);
    CU_ASSERT_EQUAL(back.keyframe.pos, 241 * 512);
    CU_ASSERT_EQUAL(back.keyframe.batch_seq, 77);
    CU_ASSERT_EQUAL(back.keyframe.prev_hash, 0x123456789abcdef);
    CU_ASSERT_EQUAL(back.keyframe.snap_seq, 5);
    CU_ASSERT_EQUAL(back.keyframe.time_ns, 99);
    CU_ASSERT_EQUAL(back.keyframe.mapped, 4242);
    CU_ASSERT_EQUAL(back.rewinds, 2);
    CU_ASSERT_EQUAL(back.rewinds_past, 7);
    CU_ASSERT_EQUAL(memcmp(back.rewind, record.rewind, sizeof back.rewind), 0);
    CU_ASSERT(plx_uuid_equal(&back.mark.ring, &other_id));
    CU_ASSERT_EQUAL(back.mark.set, UINT64_MAX);
    CU_ASSERT_EQUAL(back.mark.proof, UINT64_MAX - 1);
    CU_ASSERT_EQUAL(back.mark.since, 4);
    CU_ASSERT_EQUAL(back.position.epoch, 4);
    CU_ASSERT_EQUAL(back.position.seq, 12);
    every_flip(record_accepts, block, PLX_BLOCK_SIZE);
    CU_ASSERT_EQUAL(plx_format_vdi_record_decode(block, &store_id, 9, ADDR_LIMIT, &back, NULL),
                    PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(plx_format_vdi_record_decode(block, &other_id, 8, ADDR_LIMIT, &back, NULL),
                    PLX_ERR_CORRUPT);
    memset(block, 0, sizeof block);
    CU_ASSERT_EQUAL(plx_format_vdi_record_decode(block, &store_id, 8, ADDR_LIMIT, &back, NULL),
                    PLX_ERR_NOT_FOUND);
}

#define REFUSED_RECORD(member, value)                                                              \
    do {                                                                                           \
        struct plx_vdi_record bad = good_record();                                                 \
        bad.member = (value);                                                                      \
        CU_ASSERT_FALSE(record_ok(&bad));                                                          \
    } while (0)

/* In the sealed record: encode() would not write more than there is room for. */
static bool record_ok_counting(size_t at, uint32_t count, size_t bytes)
{
    struct plx_vdi_record record = good_record();

    plx_format_vdi_record_encode(&store_id, &record, block);
    set_and_seal(at, count, bytes);
    return record_accepts(block);
}

static void test_vdi_record_values(void)
{
    struct plx_vdi_record record = good_record();

    CU_ASSERT(record_ok(&record));
    REFUSED_RECORD(state, PLX_VDI_FREE);
    REFUSED_RECORD(state, 3);
    REFUSED_RECORD(overwrite, 2);
    REFUSED_RECORD(name[0], 0);
    REFUSED_RECORD(keyframe.levels, PLX_LEVELS_MIN - 1);
    REFUSED_RECORD(keyframe.levels, PLX_LEVELS_MAX + 1);
    REFUSED_RECORD(keyframe.root, ADDR_LIMIT);
    REFUSED_RECORD(keyframe.root, PLX_ENTRY_SUPERPAGE | 5);
    REFUSED_RECORD(keyframe.size_bytes, 0);
    REFUSED_RECORD(keyframe.size_bytes, PLX_VDI_SIZE_MAX + 1);
    REFUSED_RECORD(keyframe.size_bytes, (1 << 20) + 256);
    REFUSED_RECORD(keyframe.pos, 123456);
    REFUSED_RECORD(keyframe.pos, PLX_COUNTER_MAX + 512);
    REFUSED_RECORD(keyframe.batch_seq, PLX_COUNTER_MAX + 1);
    REFUSED_RECORD(keyframe.snap_seq, UINT64_MAX);
    REFUSED_RECORD(oldest.levels, 0);
    REFUSED_RECORD(oldest.pos, good_keyframe().pos + 512);
    REFUSED_RECORD(oldest.snap_seq, good_keyframe().snap_seq + 1);
    REFUSED_RECORD(oldest.batch_seq, good_keyframe().batch_seq + 1);
    REFUSED_RECORD(origin_root, ADDR_LIMIT);
    REFUSED_RECORD(origin_root, PLX_ENTRY_SUPERPAGE | 5);
    REFUSED_RECORD(origin_levels, PLX_LEVELS_MAX + 1);
    REFUSED_RECORD(origin_levels, PLX_LEVELS_MIN - 1); /* walks count down from it */
    REFUSED_RECORD(origin_levels, 0);
    REFUSED_RECORD(keyframe.time_ns, PLX_TIME_MAX + 1);
    REFUSED_RECORD(oldest.time_ns, UINT64_MAX);
    REFUSED_RECORD(created_ns, PLX_TIME_MAX + 1);
    REFUSED_RECORD(parent_seq, PLX_COUNTER_MAX + 1);
    REFUSED_RECORD(protection.mode, PLX_PROTECT_WRITE + 1);
    REFUSED_RECORD(protection.interval_ns, 1);
    REFUSED_RECORD(rewind[1].pos, good_keyframe().pos + 512);
    REFUSED_RECORD(rewind[1].pos, 0);
    REFUSED_RECORD(rewind[1].seq, 0);
    REFUSED_RECORD(rewind[1].seq, good_keyframe().snap_seq + 1);
    REFUSED_RECORD(rewind[1].root, ADDR_LIMIT);
    REFUSED_RECORD(rewind[1].root, PLX_ENTRY_SUPERPAGE | 5);
    REFUSED_RECORD(rewind[1].levels, PLX_LEVELS_MIN - 1);
    REFUSED_RECORD(rewind[1].levels, PLX_LEVELS_MAX + 1);
    record.rewinds = PLX_REWINDS_MAX;
    for (unsigned i = 2; i < PLX_REWINDS_MAX; i++)
        record.rewind[i] = record.rewind[1];
    CU_ASSERT(record_ok(&record));
    CU_ASSERT_FALSE(record_ok_counting(1116, PLX_REWINDS_MAX + 1, 4));
    CU_ASSERT_FALSE(record_ok_counting(1116, UINT32_MAX, 4));
    CU_ASSERT_FALSE(record_ok_counting(512 + 1, PLX_TIERS_MAX + 1, 1));
    CU_ASSERT_FALSE(record_ok_counting(512 + 1, UINT8_MAX, 1));
    REFUSED_RECORD(mark.set, 0);
    REFUSED_RECORD(mark.proof, 0);
    REFUSED_RECORD(mark.since, 0);
    REFUSED_RECORD(mark.since, 5);
    REFUSED_RECORD(position.epoch, 5); /* later than the disk's */
    REFUSED_RECORD(position.epoch, 0); /* of nothing, or of an epoch that never was */
    REFUSED_RECORD(position.seq, 0);
    REFUSED_RECORD(position.seq, PLX_COUNTER_MAX + 1);
    REFUSED_RECORD(mark.ring, (struct plx_uuid){{0}}); /* the rest of a mark without a ring */
    record.mark = (struct plx_ring_mark){.set = 0};
    CU_ASSERT(record_ok(&record)); /* drained */
    record.position = (struct plx_ring_position){0, 0};
    CU_ASSERT(record_ok(&record));
    REFUSED_RECORD(generation, UINT64_MAX);
    REFUSED_RECORD(epoch, UINT64_MAX);
    REFUSED_RECORD(first_segment, UINT64_MAX);
    REFUSED_RECORD(index_root, ADDR_LIMIT);
    REFUSED_RECORD(index_levels, 0);
    REFUSED_RECORD(index_levels, PLX_INDEX_LEVELS + 1);
    REFUSED_RECORD(segment_addr, ADDR_LIMIT);
    REFUSED_RECORD(next_addr, ADDR_LIMIT);
}

/* ---- Log segment ---- */

static bool segment_accepts(const uint8_t *bytes)
{
    struct plx_segment_header header;

    return plx_format_segment_decode(bytes, &store_id, &vdi_id, 12, ADDR_LIMIT, &header, NULL) == 0;
}

static void test_segment(void)
{
    struct plx_segment_header header = {
        .vdi = vdi_id,
        .epoch = 2,
        .segment = 12,
        .next_addr = 777,
        .first_batch = 1000,
        .prev_hash = 0xfeed,
        .snap_seq = 3,
        .time_ns = 4,
        .keyframe = good_keyframe(),
    };
    static const struct {
        uint32_t at;
        bool valid;
    } starts[] = {
        {PLX_SEGMENT_HEADER_BYTES, true},
        {PLX_SEGMENT_HEADER_BYTES + 512, true},
        {PLX_SEGMENT_HEADER_BYTES + 100, false},
        {PLX_SEGMENT_HEADER_BYTES - 512, false},
        {PLX_SEGMENT_BLOCKS_MAX * PLX_BLOCK_SIZE - 512, true},
        {PLX_SEGMENT_BLOCKS_MAX * PLX_BLOCK_SIZE, false},
    };
    struct plx_segment_header back;

    plx_format_segment_encode(&store_id, &header, block);
    CU_ASSERT_EQUAL(
        plx_format_segment_decode(block, &store_id, &vdi_id, 12, ADDR_LIMIT, &back, NULL), 0);
    CU_ASSERT_EQUAL(back.epoch, 2);
    CU_ASSERT_EQUAL(back.next_addr, 777);
    CU_ASSERT_EQUAL(back.first_batch, 1000);
    CU_ASSERT_EQUAL(back.prev_hash, 0xfeed);
    CU_ASSERT_EQUAL(back.snap_seq, 3);
    CU_ASSERT_EQUAL(back.keyframe.root, header.keyframe.root);
    every_flip(segment_accepts, block, PLX_BLOCK_SIZE);
    CU_ASSERT_EQUAL(
        plx_format_segment_decode(block, &store_id, &vdi_id, 13, ADDR_LIMIT, &back, NULL),
        PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(
        plx_format_segment_decode(block, &store_id, &other_id, 12, ADDR_LIMIT, &back, NULL),
        PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(
        plx_format_segment_decode(block, &other_id, &vdi_id, 12, ADDR_LIMIT, &back, NULL),
        PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(plx_format_segment_decode(block, &store_id, &vdi_id, 12, 777, &back, NULL),
                    PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(back.start, PLX_SEGMENT_HEADER_BYTES);
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        header.start = starts[i].at;
        plx_format_segment_encode(&store_id, &header, block);
        CU_ASSERT_EQUAL(segment_accepts(block), starts[i].valid);
    }
}

/* ---- Batch and records ---- */

static size_t batch_bytes;
static uint8_t batch[2048];

static bool batch_accepts(const uint8_t *bytes)
{
    struct plx_batch_header header;

    return plx_format_batch_decode(bytes, sizeof batch, &header) == 0;
}

/* One batch with a record of each type; returns its header. */
static struct plx_batch_header make_batch(void)
{
    const uint32_t checksums[3] = {11, 22, 0xffffffff};
    struct plx_keyframe keyframe = good_keyframe();
    struct plx_batch_header header = {
        .seq = 9, .vdi = 8, .epoch = 7, .time_ns = 6, .prev_hash = 5, .durable_seq = 4};
    uint8_t *at = batch + PLX_BATCH_HEADER_BYTES;

    memset(batch, 0, sizeof batch);
    at += plx_record_put_map(at, 1000, 3, 5000, checksums);
    at += plx_record_put_unmap(at, 2000, 30000);
    at += plx_record_put_void(at, 30, 2);
    at += plx_record_put_snapshot(at, 6, 12345);
    at += plx_record_put_label(at, 6, "golden", true);
    at += plx_record_put_resize(at, 1ull << 40);
    at += plx_record_put_keyframe(at, &keyframe, true);
    at += plx_record_put_rewind(at, 3, &keyframe);
    at += plx_record_put_ring(at, &(struct plx_ring_position){2, 90});
    batch_bytes = (size_t)(at - batch);
    header.records = 9;
    header.bytes = 1024;
    plx_format_batch_encode(&header, batch);
    return header;
}

static void test_batch(void)
{
    struct plx_batch_header header = make_batch(), back;
    struct plx_record record;
    size_t offset = PLX_BATCH_HEADER_BYTES;

    CU_ASSERT_FATAL(batch_bytes <= 1024);
    CU_ASSERT_EQUAL(plx_format_batch_decode(batch, sizeof batch, &back), 0);
    CU_ASSERT_EQUAL(back.seq, 9);
    CU_ASSERT_EQUAL(back.vdi, 8);
    CU_ASSERT_EQUAL(back.epoch, 7);
    CU_ASSERT_EQUAL(back.time_ns, 6);
    CU_ASSERT_EQUAL(back.prev_hash, 5);
    CU_ASSERT_EQUAL(back.durable_seq, 4);
    CU_ASSERT_EQUAL(back.bytes, 1024);
    CU_ASSERT_EQUAL(back.records, 9);
    CU_ASSERT_EQUAL(plx_record_next(batch, &header, &offset, ADDR_LIMIT, &record), 0);
    CU_ASSERT_EQUAL(record.type, PLX_RECORD_MAP);
    CU_ASSERT_EQUAL(record.vblock, 1000);
    CU_ASSERT_EQUAL(record.count, 3);
    CU_ASSERT_EQUAL(record.addr, 5000);
    CU_ASSERT_EQUAL(plx_record_checksum(&record, 2), 0xffffffff);
    CU_ASSERT_EQUAL(plx_record_next(batch, &header, &offset, ADDR_LIMIT, &record), 0);
    CU_ASSERT_EQUAL(record.type, PLX_RECORD_UNMAP);
    CU_ASSERT_EQUAL(record.vblock, 2000);
    CU_ASSERT_EQUAL(record.count, 30000);
    CU_ASSERT_EQUAL(plx_record_next(batch, &header, &offset, ADDR_LIMIT, &record), 0);
    CU_ASSERT_EQUAL(record.type, PLX_RECORD_VOID);
    CU_ASSERT_EQUAL(record.vblock, 30);
    CU_ASSERT_EQUAL(record.count, 2);
    CU_ASSERT_EQUAL(plx_record_next(batch, &header, &offset, ADDR_LIMIT, &record), 0);
    CU_ASSERT_EQUAL(record.seq, 6);
    CU_ASSERT_EQUAL(record.time_ns, 12345);
    CU_ASSERT_EQUAL(plx_record_next(batch, &header, &offset, ADDR_LIMIT, &record), 0);
    CU_ASSERT_STRING_EQUAL(record.label, "golden");
    CU_ASSERT(record.flag);
    CU_ASSERT_EQUAL(plx_record_next(batch, &header, &offset, ADDR_LIMIT, &record), 0);
    CU_ASSERT_EQUAL(record.size_bytes, 1ull << 40);
    CU_ASSERT_EQUAL(plx_record_next(batch, &header, &offset, ADDR_LIMIT, &record), 0);
    CU_ASSERT_EQUAL(record.keyframe.batch_seq, 77);
    CU_ASSERT_EQUAL(plx_record_next(batch, &header, &offset, ADDR_LIMIT, &record), 0);
    CU_ASSERT_EQUAL(record.seq, 3);
    CU_ASSERT_EQUAL(record.keyframe.batch_seq, 77);
    CU_ASSERT_EQUAL(plx_record_next(batch, &header, &offset, ADDR_LIMIT, &record), 0);
    CU_ASSERT_EQUAL(record.type, PLX_RECORD_RING);
    CU_ASSERT_EQUAL(record.position.epoch, 2);
    CU_ASSERT_EQUAL(record.position.seq, 90);
    CU_ASSERT_EQUAL(offset, batch_bytes);
    CU_ASSERT_EQUAL(plx_record_next(batch, &header, &offset, ADDR_LIMIT, &record), PLX_ERR_CORRUPT);
    every_flip(batch_accepts, batch, 1024);
}

static void test_batch_values(void)
{
    struct plx_batch_header header = make_batch(), back;

    CU_ASSERT_EQUAL(plx_format_batch_decode(batch, 1023, &back), PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(plx_format_batch_decode(batch, 63, &back), PLX_ERR_CORRUPT);
    header.durable_seq = header.seq + 1;
    plx_format_batch_encode(&header, batch);
    CU_ASSERT_FALSE(batch_accepts(batch));
    header = make_batch();
    header.records = 61;
    plx_format_batch_encode(&header, batch);
    CU_ASSERT_FALSE(batch_accepts(batch));
}

/* A batch has no more bytes than whoever writes one has room for, and a MAP no more blocks. */
static void test_largest(void)
{
    static uint8_t large[PLX_BATCH_BYTES_MAX + 512];
    struct plx_batch_header header = {.bytes = PLX_BATCH_BYTES_MAX}, back;
    static uint32_t checksums[PLX_RECORD_MAP_MAX + 1];
    struct plx_record record;

    plx_format_batch_encode(&header, large);
    CU_ASSERT_EQUAL(plx_format_batch_decode(large, sizeof large, &back), 0);
    header.bytes += 512;
    plx_format_batch_encode(&header, large);
    CU_ASSERT_EQUAL(plx_format_batch_decode(large, sizeof large, &back), PLX_ERR_CORRUPT);
    for (uint32_t more = 0; more <= 1; more++) {
        size_t offset = PLX_BATCH_HEADER_BYTES;

        plx_record_put_map(large + offset, 5, PLX_RECORD_MAP_MAX + more, 100, checksums);
        CU_ASSERT_EQUAL(plx_record_next(large, &header, &offset, 1ull << 20, &record),
                        more ? PLX_ERR_CORRUPT : 0);
    }
}

/* A lone record with these words, of which the second is the first of its body. */
static int lone(uint64_t first, uint64_t second, uint64_t third)
{
    struct plx_batch_header header = {.bytes = 512, .records = 1};
    size_t offset = PLX_BATCH_HEADER_BYTES;
    struct plx_record record;

    memset(batch, 0, sizeof batch);
    memcpy(batch + offset, &first, 8);
    memcpy(batch + offset + 8, &second, 8);
    memcpy(batch + offset + 16, &third, 8);
    return plx_record_next(batch, &header, &offset, ADDR_LIMIT, &record);
}

/* Of a rewind to this snapshot, with a good key frame. */
static int lone_rewind(uint64_t seq)
{
    struct plx_batch_header header = {.bytes = 512, .records = 1};
    size_t offset = PLX_BATCH_HEADER_BYTES;
    struct plx_keyframe keyframe = good_keyframe();
    struct plx_record record;

    plx_record_put_rewind(batch + offset, seq, &keyframe);
    return plx_record_next(batch, &header, &offset, ADDR_LIMIT, &record);
}

#define WORD(type, vblock, count)                                                                  \
    ((uint64_t)(type) | (uint64_t)(vblock) << 12 | (uint64_t)(count) << 48)

static void test_record_values(void)
{
    CU_ASSERT_EQUAL(lone(WORD(PLX_RECORD_MAP, 5, 2), 100, 0), 0);
    CU_ASSERT_EQUAL(lone(WORD(0, 5, 2), 100, 0), PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(lone(WORD(8, 5, 2), 100, 0), PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(lone(WORD(PLX_RECORD_MAP, 5, 0), 100, 0), PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(lone(WORD(PLX_RECORD_MAP, 5, 2), 0, 0), PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(lone(WORD(PLX_RECORD_MAP, 5, 2), ADDR_LIMIT - 1, 0), PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(lone(WORD(PLX_RECORD_MAP, 5, 2), PLX_ADDR_COMMON | 100, 0), 0);
    CU_ASSERT_EQUAL(lone(WORD(PLX_RECORD_MAP, 5, 2), PLX_ADDR_COMMON, 0), PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(lone(WORD(PLX_RECORD_MAP, 5, 2), PLX_ADDR_COMMON | (ADDR_LIMIT - 1), 0),
                    PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(lone(WORD(PLX_RECORD_MAP, PLX_VBLOCK_MAX, 2), 100, 0), PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(lone(WORD(PLX_RECORD_MAP, 5, 200), 100, 0), PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(lone(WORD(PLX_RECORD_UNMAP, 5, 0), 0, 0), PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(lone(WORD(PLX_RECORD_UNMAP, 5, 0), UINT64_MAX, 0), PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(lone(WORD(PLX_RECORD_UNMAP, 5, 0), PLX_VBLOCK_MAX, 0), PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(lone(WORD(PLX_RECORD_UNMAP, 5, 0), PLX_RECORD_UNMAP_MAX, 0), 0);
    CU_ASSERT_EQUAL(lone(WORD(PLX_RECORD_UNMAP, 5, 0), PLX_RECORD_UNMAP_MAX + 1, 0),
                    PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(lone(WORD(PLX_RECORD_VOID, 5, 0), 0, 0), PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(lone(WORD(PLX_RECORD_VOID, PLX_VBLOCK_MAX, 1), 0, 0), PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(lone(WORD(PLX_RECORD_SNAPSHOT, 0, 0), 0, 0), PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(lone(WORD(PLX_RECORD_LABEL, 0, 0), 1, 0), PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(lone(WORD(PLX_RECORD_LABEL, 0, 3), 1, 0), PLX_ERR_CORRUPT); /* a zero byte */
    CU_ASSERT_EQUAL(lone(WORD(PLX_RECORD_LABEL, 0, 3), 0, 0x616161), PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(lone(WORD(PLX_RECORD_LABEL, 0, 3), 1, 0x616161), 0);
    CU_ASSERT_EQUAL(lone(WORD(PLX_RECORD_RESIZE, 0, 0), 0, 0), PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(lone(WORD(PLX_RECORD_RESIZE, 0, 0), PLX_VDI_SIZE_MAX + 1, 0), PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(lone(WORD(PLX_RECORD_RESIZE, 0, 0), 8192 + 1, 0), PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(lone(WORD(PLX_RECORD_SNAPSHOT, 0, 0), UINT64_MAX, 0), PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(lone(WORD(PLX_RECORD_KEYFRAME, 0, 0), 0, 0), PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(lone(WORD(PLX_RECORD_REWIND, 0, 0), 1, 0), PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(lone_rewind(0), PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(lone_rewind(5), 0);
    CU_ASSERT_EQUAL(lone_rewind(6), PLX_ERR_CORRUPT); /* taken after it */
    CU_ASSERT_EQUAL(lone(WORD(PLX_RECORD_RING, 0, 0), 1, 1), 0);
    CU_ASSERT_EQUAL(lone(WORD(PLX_RECORD_RING, 0, 0), 0, 0), PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(lone(WORD(PLX_RECORD_RING, 0, 0), 1, 0), PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(lone(WORD(PLX_RECORD_RING, 0, 0), UINT64_MAX, 1), PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(lone(WORD(PLX_RECORD_RING, 0, 0), 1, UINT64_MAX), PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(lone(WORD(PLX_RECORD_RING + 1, 0, 0), 1, 1), PLX_ERR_CORRUPT);
}

/* Whatever bytes a batch holds, records are decoded within it or refused. */
static void test_random_records(void)
{
    uint64_t seed = 1;

    for (unsigned run = 0; run < 200000; run++) {
        struct plx_batch_header header = {.bytes = 512, .records = 28};
        uint8_t *bytes = malloc(512); /* so that the sanitizer sees the end */
        size_t offset = PLX_BATCH_HEADER_BYTES;
        struct plx_record record;

        for (unsigned i = 0; i < 512; i += 8) {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            memcpy(bytes + i, &seed, 8);
        }
        bytes[offset] = (uint8_t)(1 + run % 7);
        bytes[offset + 6] &= run & 8 ? 0x0f : 0xff;
        bytes[offset + 7] &= run & 16 ? 0 : 0xff;
        while (plx_record_next(bytes, &header, &offset, ADDR_LIMIT, &record) == 0)
            CU_ASSERT_FATAL(offset <= 512);
        free(bytes);
    }
}

/* ---- Checksums, entries ---- */

static void test_checksums(void)
{
    CU_ASSERT_EQUAL(plx_crc32c("123456789", 9), 0xe3069283); /* the published check value */
    CU_ASSERT_EQUAL(plx_crc32c_more(plx_crc32c("1234", 4), "56789", 5), 0xe3069283);
    CU_ASSERT_EQUAL(plx_checksum24(0xab000000), 1); /* never 0: unknown */
    CU_ASSERT_EQUAL(plx_checksum24(0xab123456), 0x123456);
    CU_ASSERT_EQUAL(plx_hash64("", 0), 0x2d06800538d394c2); /* likewise */
    CU_ASSERT_NOT_EQUAL(plx_hash64("a", 1), plx_hash64("b", 1));
}

static void test_entries(void)
{
    uint64_t entry = plx_entry_make(PLX_ADDR_MAX, 0xffffff) | PLX_ENTRY_READ_ONLY;

    CU_ASSERT_EQUAL(plx_entry_addr(entry), PLX_ADDR_MAX);
    CU_ASSERT_EQUAL(plx_entry_checksum(entry), 0xffffff);
    CU_ASSERT_EQUAL(plx_entry_checksum(plx_entry_void(entry)), 0);
    CU_ASSERT_EQUAL(plx_entry_addr(plx_entry_void(entry)), PLX_ADDR_MAX);
    CU_ASSERT((plx_entry_void(entry) & PLX_ENTRY_READ_ONLY) != 0);
    CU_ASSERT((entry & PLX_ENTRY_SUPERPAGE) == 0);
    plx_node_set_entry(block, 511, entry);
    CU_ASSERT_EQUAL(plx_node_entry(block, 511), entry);
    memset(block, 0, sizeof block);
    CU_ASSERT(plx_format_node_valid(block, 1, ADDR_LIMIT));
    plx_node_set_entry(block, 511, plx_entry_make(ADDR_LIMIT - 1, 5) | PLX_ENTRY_READ_ONLY);
    CU_ASSERT(plx_format_node_valid(block, 1, ADDR_LIMIT));
    plx_node_set_entry(block, 0, ADDR_LIMIT);
    CU_ASSERT(!plx_format_node_valid(block, 1, ADDR_LIMIT));
    plx_node_set_entry(block, 0, PLX_ENTRY_SUPERPAGE | 5);
    CU_ASSERT(!plx_format_node_valid(block, 1, ADDR_LIMIT));
}

/* Leaves and MAP records name them, and nothing else does. */
static void test_common(void)
{
    uint64_t last = PLX_ADDR_COMMON | (ADDR_LIMIT - 1);

    CU_ASSERT(plx_addr_is_common(last) && !plx_addr_is_common(ADDR_LIMIT - 1));
    CU_ASSERT_EQUAL(plx_addr_block(last), ADDR_LIMIT - 1);
    CU_ASSERT_EQUAL(plx_addr_block(5), 5);
    CU_ASSERT(plx_entry_is_own(plx_entry_make(5, 1)));
    CU_ASSERT(!plx_entry_is_own(plx_entry_make(last, 1)) && !plx_entry_is_own(0));
    memset(block, 0, sizeof block);
    plx_node_set_entry(block, 7, plx_entry_make(last, 5));
    CU_ASSERT(plx_format_node_valid(block, 1, ADDR_LIMIT));
    CU_ASSERT(!plx_format_node_valid(block, 2, ADDR_LIMIT));
    plx_node_set_entry(block, 7, plx_entry_make(last + 1, 5));
    CU_ASSERT(!plx_format_node_valid(block, 1, ADDR_LIMIT));
    plx_node_set_entry(block, 7, plx_entry_make(PLX_ADDR_COMMON, 5));
    CU_ASSERT(!plx_format_node_valid(block, 1, ADDR_LIMIT));
}

/* ---- Identities as text ---- */

/* A code that nobody has given a name is an error all the same. */
static void test_errors(void)
{
    CU_ASSERT_STRING_EQUAL(plx_error_name(PLX_OK), "OK");
    CU_ASSERT_STRING_EQUAL(plx_error_name(PLX_ERR_NOSPACE), "NOSPACE");
    CU_ASSERT_EQUAL(plx_error_code("NOSPACE"), PLX_ERR_NOSPACE);
    CU_ASSERT_EQUAL(plx_error_code("OK"), PLX_ERR_SYSTEM);
    for (int code = -100000; code <= 1; code += 100001) {
        CU_ASSERT_STRING_EQUAL(plx_error_name(code), "SYSTEM");
        CU_ASSERT_STRING_EQUAL(plx_error_text(code), plx_error_text(PLX_ERR_SYSTEM));
        CU_ASSERT_EQUAL(plx_error_class(code), plx_error_class(PLX_ERR_SYSTEM));
        CU_ASSERT_EQUAL(plx_error_sense(code).key, plx_error_sense(PLX_ERR_SYSTEM).key);
    }
}

static void test_uuid_text(void)
{
    static const char text[] = "0123abcd-4567-89ef-0123-456789abcdef";
    static const char *const refused[] = {
        "",
        "0123abcd-4567-89ef-0123-456789abcde",
        "0123abcd-4567-89ef-0123-456789abcdef0",
        "0123abcd04567-89ef-0123-456789abcdef",
        "0123abcd-4567-89ef-0123456789abcdef-",
        "0123abcd-4567-89ef-0123-456789abcdeg",
        "0123abcd-4567-89ef-0123-456789abcd/f",
        "g123abcd-4567-89ef-0123-456789abcdef",
        "0123ABCD-4567-89ef-0123-456789abcdef",
    };
    struct plx_uuid id = store_id;
    char back[PLX_UUID_TEXT];

    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        CU_ASSERT(!plx_uuid_parse(refused[i], &id));
        CU_ASSERT(plx_uuid_equal(&id, &store_id));
    }
    CU_ASSERT(plx_uuid_parse(text, &id));
    plx_uuid_text(&id, back);
    CU_ASSERT_STRING_EQUAL(back, text);
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"superblock", test_superblock},
        {"superblock: ranges", test_superblock_ranges},
        {"superblock: cluster", test_superblock_cluster},
        {"superblock: impossible values", test_superblock_values},
        {"extent page", test_extent_page},
        {"VDI record", test_vdi_record},
        {"how many blocks a key frame maps", test_mapped},
        {"VDI record: impossible values", test_vdi_record_values},
        {"log segment", test_segment},
        {"batch", test_batch},
        {"batch: impossible values", test_batch_values},
        {"the largest batch, the largest MAP", test_largest},
        {"records: impossible values", test_record_values},
        {"records: any bytes", test_random_records},
        {"checksums", test_checksums},
        {"entries", test_entries},
        {"common blocks", test_common},
        {"identities as text", test_uuid_text},
        {"errors by their codes", test_errors},
    };

    return SUITE_RUN("format", tests);
}
