/* test_refusals.c - what the engine refuses: calls, owners, formats. */
#include <string.h>

#include "engine/space/allocator_inside.h"
#include "ok.h"
#include "suite.h"
#include "unit/fixture.h"
#include "unit/properties.h"

static void test_create_refusals(void)
{
    struct plx_vdi_info info;

    make_store(64 * MIB, MIB);
    FAILS(INVALID, create_vdi(0, 0));
    FAILS(INVALID, create_vdi(0, 300ull << 40));
    FAILS(INVALID, create_vdi(0, 4096 + 100));
    FAILS(RANGE, create_vdi(100000, MIB));
    FAILS(NOT_FOUND, plx_vdi_read_info(store, 0, &info, &fault));
    OK(create_vdi(0, 256ull << 40));
    FAILS(EXISTS, create_vdi(0, MIB));
    OK(plx_vdi_delete(store, 0, false, &fault));
    OK(create_vdi(0, MIB));
    end_store();
}

/* A bit for each slot that a scan stops at. */
static uint64_t slots_found(void)
{
    struct plx_slot_scan scan = {0};
    uint64_t found = 0;

    for (uint32_t slot = 0; plx_vdi_next_slot(store, &scan, &slot); slot++)
        found |= 1ull << slot % 64;
    return found;
}

/* Slots that nobody ever used cost one read for many of them. */
static void test_scan_of_slots(void)
{
    uint64_t reads;

    make_store(64 * MIB, MIB);
    CU_ASSERT_EQUAL(slots_found(), 0);
    OK(create_vdi(0, MIB));
    OK(create_vdi(5, MIB));
    OK(create_vdi(40, MIB));
    OK(plx_vdi_delete(store, 5, false, &fault));
    reads = counters().device_reads[PLX_KIND_ADMIN];
    CU_ASSERT_EQUAL(slots_found(), 1ull << 0 | 1ull << 5 | 1ull << 40);
    CU_ASSERT_EQUAL(counters().device_reads[PLX_KIND_ADMIN] - reads, 8); /* of 127 slots */
    /* What cannot be read is left to whoever reads the record itself. */
    plx_simdisk_fail_range(disk, plx_vdi_slot_addr(store, 7) * PLX_BLOCK_SIZE, PLX_BLOCK_SIZE, true,
                           false);
    CU_ASSERT_EQUAL(slots_found(), 0xffff | 1ull << 40);
    end_store();
}

static void test_call_refusals(void)
{
    struct plx_vdi_create_options nameless = {.size_bytes = MIB, .sector_size = 512},
                                  sectors = {.name = "v", .size_bytes = MIB, .sector_size = 1024};
    struct plx_vdi_open_options old = {.slot = 0, .overwrite = -1}; /* epoch 0 */
    struct plx_request label = {.op = PLX_LABEL, .seq = 1},
                       grow = {.op = PLX_RESIZE, .length = MIB - 512};
    struct plx_vdi *vdi = NULL, *instant = NULL, *none;
    struct plx_snapshot_info first = {.seq = 77};
    /* The system's, the first behind the end, and one whose address is 0 again. */
    static const uint64_t nowhere[] = {0, 64, 1000000, 1ull << 56, UINT64_MAX};
    struct plx_extent_info extent;
    struct plx_vdi_info info;
    uint64_t seq, flushes;

    make_store(64 * MIB, MIB);
    FAILS(CORRUPT, plx_vdi_read_info(store, 100000, &info, &fault));
    FAILS(CORRUPT, plx_snapshot_first(store, 100000, 0, &first, &fault));
    CU_ASSERT_EQUAL(first.seq, 77);
    FAILS(INVALID, plx_vdi_create(store, &nameless, NULL, &fault));
    FAILS(INVALID, plx_vdi_create(store, &sectors, NULL, &fault));
    for (uint64_t i = 0; i < sizeof nowhere / sizeof nowhere[0]; i++) {
        FAILS(CORRUPT, plx_store_extent_adopt(store, nowhere[i], &fault));
        FAILS(CORRUPT, plx_store_extent_read(store, nowhere[i], &extent, &fault));
    }
    OK(create_vdi(0, MIB));
    FAILS(FENCED, plx_vdi_open(store, &old, &vdi, &fault));
    vdi = open_vdi(0);
    FAILS(RANGE, plx_vdi_map_runs(vdi, MIB, BLOCK, NULL, NULL, &fault));
    FAILS(RANGE, plx_vdi_map_runs(vdi, UINT64_MAX - BLOCK + 1, 2 * BLOCK, NULL, NULL, &fault));
    OK(plx_vdi_map_runs(vdi, BLOCK, 0, NULL, NULL, &fault)); /* of nothing nothing is told */
    FAILS(INVALID, try_run(vdi, PLX_READ, 100, 512, NULL));
    FAILS(INVALID, try_run(vdi, PLX_COMPARE_WRITE, 0, 2 * PLX_COMPARE_MAX, NULL));
    FAILS(INVALID, plx_vdi_run(vdi, &grow));
    grow.length = MIB + 100;
    FAILS(INVALID, plx_vdi_run(vdi, &grow));
    grow.length = PLX_VDI_SIZE_MAX + 512;
    FAILS(INVALID, plx_vdi_run(vdi, &grow));
    FAILS(INVALID, plx_vdi_run(vdi, &label));
    strcpy(label.label, "here");
    FAILS(INVALID, plx_vdi_run(vdi, &label)); /* there is no snapshot yet */
    seq = run(vdi, PLX_SNAPSHOT, 0, 0);
    label.seq = 0;
    FAILS(INVALID, plx_vdi_run(vdi, &label));
    OK(plx_snapshot_open(store, 0, seq, &instant, &fault));
    FAILS(READONLY, try_run(instant, PLX_WRITE, 0, 512, NULL));
    plx_vdi_set_write_back(instant, true); /* as its neighbours are opened */
    plx_vdi_set_write_back(vdi, true);
    OK(write_byte(vdi, 0, BLOCK, 1));
    flushes = counters().device_flushes;
    run(instant, PLX_FLUSH, 0, 0);
    CU_ASSERT_EQUAL(counters().device_flushes, flushes); /* nothing of it is to be flushed */
    OK(plx_vdi_close(instant));
    OK(plx_vdi_close(vdi));
    OK(plx_store_close(store));
    open_store(0);
    FAILS(READONLY, try_open_vdi(0, false, &none));
    end_store();
}

static void test_two_owners(void)
{
    struct plx_vdi *vdi, *second;

    vdi = make_with_vdi(64 * MIB, MIB, MIB);
    FAILS(BUSY, try_open_vdi(0, false, &second));
    FAILS(BUSY, plx_vdi_delete(store, 0, false, &fault));
    OK(plx_vdi_close(vdi));
    end_store();
}

/* KEYFRAME-6: a disk is taken over from a host that is alive after all. */
static void test_taken_while_open(void)
{
    struct plx_store *mine;
    struct plx_vdi *vdi, *theirs = NULL;

    vdi = make_with_vdi(64 * MIB, MIB, MIB);
    OK(write_byte(vdi, 0, BLOCK, 1));
    run(vdi, PLX_KEYFRAME, 0, 0);
    OK(write_byte(vdi, BLOCK, BLOCK, 2));
    mine = store;
    open_store(2);
    adopt_extents();
    OK(plx_vdi_mark(store, 0, &fault));
    OK(plx_store_extents_adopted(store, &fault));
    OK(try_open_vdi(0, true, &theirs));
    OK(write_byte(theirs, 0, BLOCK, 3));
    run(theirs, PLX_KEYFRAME, 0, 0);
    FAILS(FENCED, try_run(vdi, PLX_KEYFRAME, 0, 0, NULL));
    FAILS(FENCED, write_byte(vdi, 0, BLOCK, 4));
    plx_vdi_abandon(vdi);
    plx_store_close(mine);
    OK(plx_vdi_close(theirs));
    theirs = open_vdi(0);
    CU_ASSERT(reads_as(theirs, 0, BLOCK, 3));
    CU_ASSERT(reads_as(theirs, BLOCK, BLOCK, 2));
    OK(plx_vdi_close(theirs));
    check_store(true);
    end_store();
}

/* Nobody opens what is deleted, or a snapshot that is just being let go. */
static void test_gone(void)
{
    uint64_t first = 1;
    struct plx_history_drop drop = {.snapshots = &first, .snapshot_count = 1};
    struct plx_vdi *vdi, *none = NULL;

    vdi = make_with_vdi(64 * MIB, MIB, MIB);
    OK(write_byte(vdi, 0, BLOCK, 1));
    CU_ASSERT_EQUAL(run(vdi, PLX_SNAPSHOT, 0, 0), first);
    OK(write_byte(vdi, 0, BLOCK, 2));
    CU_ASSERT_EQUAL(run(vdi, PLX_SNAPSHOT, 0, 0), 2);
    vdi->keyframe.next_drop = &drop;
    FAILS(NOT_FOUND, plx_snapshot_open(store, 0, first, &none, &fault));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "lets snapshot 1 go"));
    OK(plx_snapshot_open(store, 0, 2, &none, &fault));
    plx_vdi_abandon(none);
    vdi->keyframe.next_drop = NULL;
    OK(plx_snapshot_open(store, 0, first, &none, &fault));
    CU_ASSERT(reads_as(none, 0, BLOCK, 1));
    plx_vdi_abandon(none);
    plx_vdi_abandon(vdi); /* its owner has died */
    FAILS(BUSY, plx_vdi_delete(store, 0, false, &fault));
    OK(plx_vdi_delete(store, 0, true, &fault));
    FAILS(NOT_FOUND, try_open_vdi(0, true, &none));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "is deleted"));
    FAILS(NOT_FOUND, plx_snapshot_open(store, 0, 0, &none, &fault));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "is deleted"));
    end_store();
}

/* An extent that is held already, or that there is not: its blocks would have two owners, or no
 * place. It is not taken, nor is one whose header is damaged taken for a full store. */
static void test_wrong_grants(void)
{
    uint64_t free_blocks, swept, addr, garbage[MIB / BLOCK / 64] = {0};
    struct plx_extent_info info;
    struct plx_vdi *vdi;
    size_t count;

    vdi = make_with_vdi(64 * MIB, MIB, 16 * MIB);
    OK(write_byte(vdi, 0, MIB / 2, 1));
    plx_store_settle(store);
    count = owned_extents();
    free_blocks = plx_alloc_free_blocks(store, PLX_EXTENT_DATA);
    for (size_t i = 0; plx_store_extent_owned(store, i, &info) == 0; i++)
        plx_store_extent_granted(store, PLX_EXTENT_DATA, 0,
                                 &(struct plx_grant){.extent = info.number, .fresh = true});
    plx_store_extent_granted(store, PLX_EXTENT_DATA, 0,
                             &(struct plx_grant){.extent = registry.count, .fresh = true});
    plx_store_settle(store);
    CU_ASSERT_EQUAL(owned_extents(), count);
    CU_ASSERT_EQUAL(plx_alloc_free_blocks(store, PLX_EXTENT_DATA), free_blocks);
    /* Of what is free already a sweep makes nothing. */
    OK(plx_alloc_run(store, PLX_EXTENT_DATA, 1, NULL, &addr, &swept));
    garbage[addr / 64 % 4] |= 1ull << addr % 64;
    OK(plx_store_extent_sweep(store, addr / (MIB / BLOCK), garbage, &info, &swept, &fault));
    CU_ASSERT_EQUAL(swept, 1);
    OK(plx_store_extent_sweep(store, addr / (MIB / BLOCK), garbage, &info, &swept, &fault));
    CU_ASSERT_EQUAL(swept, 0);
    CU_ASSERT_EQUAL(plx_alloc_free_blocks(store, PLX_EXTENT_DATA), free_blocks);
    FAILS(NOSPACE, plx_alloc_adjacent(store, MIB / BLOCK, NULL, &addr));
    plx_alloc_denied(store, PLX_EXTENT_DATA, PLX_ERR_NOSPACE);
    FAILS(NOSPACE, plx_alloc_wait(store, PLX_EXTENT_DATA, NULL));
    plx_alloc_denied(store, PLX_EXTENT_DATA, PLX_ERR_CORRUPT);
    FAILS(IO_WRITE, plx_alloc_wait(store, PLX_EXTENT_DATA, NULL));
    OK(write_byte(vdi, MIB, MIB / 4, 2));
    CU_ASSERT(reads_as(vdi, 0, MIB / 2, 1));
    CU_ASSERT(reads_as(vdi, MIB, MIB / 4, 2));
    OK(plx_vdi_close(vdi));
    check_store(false);
    end_store();
}

static void test_newer_feature(void)
{
    struct plx_superblock super;
    uint8_t block[BLOCK];
    uint64_t before;

    make_store(64 * MIB, MIB);
    close_store();
    plx_simdisk_peek(disk, 0, block, BLOCK);
    OK(plx_format_superblock_decode(block, &super, &fault));
    super.incompatible = 1ull << 63;
    super.generation++;
    plx_format_superblock_encode(&super, block);
    plx_simdisk_poke(disk, BLOCK, block, BLOCK);
    before = plx_simdisk_hash(disk);
    FAILS(UNSUPPORTED, try_open_store(1));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "newer"));
    CU_ASSERT_EQUAL(plx_simdisk_hash(disk), before);
    end_store();
}

/* A newer Parallax can restore the superblocks from it, so this is no empty disk. */
static void test_newer_spare(void)
{
    static const uint8_t zeroes[2 * BLOCK];
    struct plx_superblock super;
    uint8_t block[BLOCK];

    make_store(64 * MIB, MIB);
    close_store();
    plx_simdisk_peek(disk, 0, block, BLOCK);
    OK(plx_format_superblock_decode(block, &super, &fault));
    super.incompatible = 1ull << 63;
    plx_format_superblock_encode(&super, block);
    plx_simdisk_poke(disk, PLX_SUPERBLOCK_SPARE * BLOCK, block, BLOCK);
    plx_simdisk_poke(disk, 0, zeroes, sizeof zeroes);
    FAILS(UNSUPPORTED, try_open_store(1));
    CU_ASSERT_PTR_NOT_NULL(
        strstr(fault.text, "spare superblock: the store needs a newer Parallax"));
    end_store();
}

/* Whoever does not know a feature that writers must know may still read. */
static void test_newer_feature_read(void)
{
    struct plx_superblock super;
    struct plx_vdi *vdi;
    uint8_t block[BLOCK];
    uint64_t before;

    vdi = make_with_vdi(64 * MIB, MIB, MIB);
    OK(write_byte(vdi, 0, BLOCK, 7));
    OK(plx_vdi_close(vdi));
    leave_store();
    plx_simdisk_peek(disk, 0, block, BLOCK);
    OK(plx_format_superblock_decode(block, &super, &fault));
    super.read_compatible = 4;
    plx_format_superblock_encode(&super, block);
    plx_simdisk_poke(disk, 0, block, BLOCK);
    plx_simdisk_poke(disk, BLOCK, block, BLOCK);
    before = plx_simdisk_hash(disk);
    FAILS(UNSUPPORTED, try_open_store(1));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "may only read the store"));
    OK(try_open_store(0));
    OK(plx_snapshot_open(store, 0, 0, &vdi, &fault));
    CU_ASSERT(reads_as(vdi, 0, BLOCK, 7));
    OK(plx_vdi_close(vdi));
    CU_ASSERT_EQUAL(plx_simdisk_hash(disk), before);
    end_store();
}

/* It is told what to do, and nothing is written. */
static void test_version_1(void)
{
    uint8_t block[BLOCK];
    uint32_t sum = 0;
    uint64_t before;

    make_store(64 * MIB, MIB);
    close_store();
    plx_simdisk_peek(disk, 0, block, BLOCK);
    block[12] = 1;
    memcpy(block + 8, &sum, sizeof sum);
    sum = plx_crc32c(block, BLOCK);
    memcpy(block + 8, &sum, sizeof sum);
    plx_simdisk_poke(disk, 0, block, BLOCK);
    plx_simdisk_poke(disk, BLOCK, block, BLOCK);
    before = plx_simdisk_hash(disk);
    FAILS(UNSUPPORTED, try_open_store(1));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "Parallax 0.1 was the last to read"));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "'parallax vdi export'"));
    CU_ASSERT_EQUAL(plx_simdisk_hash(disk), before);
    end_store();
}

static void test_truncated(void)
{
    make_store(64 * MIB, MIB);
    close_store();
    plx_simdisk_resize(disk, 63 * MIB);
    FAILS(CORRUPT, try_open_store(1));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "truncated"));
    plx_simdisk_resize(disk, 4096);
    CU_ASSERT(try_open_store(1) < 0);
    end_store();
}

static void test_format_refusals(void)
{
    struct plx_format_options options = {.name = "again", .extent_bytes = MIB};
    struct plx_device *device;
    uint64_t before;

    make_store(64 * MIB, MIB);
    close_store();
    before = plx_simdisk_hash(disk);
    device = plx_simdisk_attach(disk, "sim");
    FAILS(EXISTS, plx_store_format(&device, 1, &options, &env.env, NULL, &fault));
    options.extent_bytes = 3 * MIB;
    options.force = true;
    FAILS(INVALID, plx_store_format(&device, 1, &options, &env.env, NULL, &fault));
    options.extent_bytes = 32 * MIB;
    FAILS(INVALID, plx_store_format(&device, 1, &options, &env.env, NULL, &fault));
    options.extent_bytes = MIB;
    options.segment_bytes = 1000;
    FAILS(INVALID, plx_store_format(&device, 1, &options, &env.env, NULL, &fault));
    options.segment_bytes = 0;
    options.name[0] = 0;
    FAILS(INVALID, plx_store_format(&device, 1, &options, &env.env, NULL, &fault));
    strcpy(options.name, "again");
    FAILS(INVALID, plx_store_open(&device, 0, &(struct plx_store_options){.instance = 1}, &env.env,
                                  &store, &fault));
    device->read_only = true;
    FAILS(READONLY, plx_store_open(&device, 1, &(struct plx_store_options){.instance = 1}, &env.env,
                                   &store, &fault));
    device->read_only = false;
    CU_ASSERT_EQUAL(plx_simdisk_hash(disk), before);
    options.extent_bytes = MIB;
    OK(plx_store_format(&device, 1, &options, &env.env, NULL, &fault));
    device->ops->close(device);
    end_store();
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"create: refusals", test_create_refusals},
        {"scan of slots", test_scan_of_slots},
        {"calls that are refused", test_call_refusals},
        {"what is gone", test_gone},
        {"extents that are granted wrongly", test_wrong_grants},
        {"one writer", test_two_owners},
        {"taken over while it is open", test_taken_while_open},
        {"newer feature", test_newer_feature},
        {"a spare superblock of a newer version", test_newer_spare},
        {"newer feature that readers need not know", test_newer_feature_read},
        {"version 1", test_version_1},
        {"truncated volume", test_truncated},
        {"format: refusals", test_format_refusals},
    };

    fixture.open.ops_per_vdi = 16;
    return SUITE_RUN("refusals", tests);
}
