/* test_damage.c - damage of each structure kind in turn. */
#include <string.h>

#include "engine/space/allocator_inside.h"
#include "ok.h"
#include "suite.h"
#include "unit/fixture.h"
#include "unit/properties.h"

/* A disk with a snapshot, closed; and the store closed with it. */
static void make_history(void)
{
    struct plx_vdi *vdi;

    vdi = make_with_vdi(64 * MIB, MIB, 16 * MIB);
    OK(write_byte(vdi, 0, MIB, 1));
    run(vdi, PLX_SNAPSHOT, 0, 0);
    OK(write_byte(vdi, 0, 65536, 2));
    run(vdi, PLX_SNAPSHOT, 0, 0);
    OK(plx_vdi_close(vdi));
    close_store();
}

static uint64_t find_magic(const char *magic, uint64_t from)
{
    uint8_t page[BLOCK];

    for (uint64_t at = from; at < 64 * MIB; at += 512) {
        plx_simdisk_peek(disk, at, page, 512);
        if (memcmp(page, magic, strlen(magic)) == 0)
            return at;
    }
    return 0;
}

static void test_damage_superblock(void)
{
    make_history();
    plx_simdisk_flip(disk, 100, 1); /* slot A: slot B is used */
    open_store(0);
    close_store();
    plx_simdisk_flip(disk, BLOCK + 100, 1);
    FAILS(CORRUPT, try_open_store(0));
    end_store();
}

static void test_damage_record(void)
{
    uint64_t first, second;
    struct plx_vdi_info info;

    make_history();
    first = find_magic("PLXVDREC", 0);
    second = find_magic("PLXVDREC", first + 512);
    CU_ASSERT_EQUAL_FATAL(second, first + BLOCK);
    plx_simdisk_flip(disk, first + 200, 1);
    open_store(0);
    OK(plx_vdi_read_info(store, 0, &info, &fault));
    CU_ASSERT_STRING_EQUAL(info.name, "v0");
    plx_simdisk_flip(disk, second + 200, 1);
    FAILS(CORRUPT, plx_vdi_read_info(store, 0, &info, &fault));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "slot 0"));
    close_store();
    plx_simdisk_flip(disk, first + 200, 1);
    plx_simdisk_flip(disk, second + 200, 1);
    open_store(0);
    end_store();
}

static void test_damage_extent(void)
{
    struct plx_extent_info info;
    uint64_t at = 0, extent;
    struct plx_extent_page page;
    uint8_t block[BLOCK];
    struct plx_superblock super;

    make_history();
    plx_simdisk_peek(disk, 0, block, BLOCK);
    OK(plx_format_superblock_decode(block, &super, &fault));
    at = find_magic("PLXEXTNT", 0);
    extent = at / MIB;
    plx_simdisk_peek(disk, extent * MIB, block, BLOCK);
    OK(plx_format_extent_page_decode(block, &super.store, extent, 0, 1, &page, &fault));
    plx_simdisk_flip(disk, extent * MIB + 500, 1);
    open_store(3);
    OK(plx_store_extent_read(store, extent, &info, &fault));
    OK(plx_store_extent_adopt(store, extent, &fault)); /* by the other slot */
    OK(plx_store_extents_adopted(store, &fault));
    OK(plx_store_extent_release(store, extent, &info, &fault));
    plx_simdisk_flip(disk, extent * MIB + 500, 1);
    plx_simdisk_flip(disk, extent * MIB + BLOCK + 500, 1);
    plx_simdisk_flip(disk, extent * MIB + 600, 1);
    FAILS(CORRUPT, plx_store_extent_adopt(store, extent, &fault));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "damaged"));
    end_store();
}

/* Of an extent that is taken over and sealed the header cannot be written: it is given up only when
 * that has been done, and nothing is allocated in it meanwhile. */
/* A generation that could not be counted on from: our own next page would not be believed, and the
 * older one again be. Nothing is written there. */
static void test_extent_generations(void)
{
    static const uint64_t numbers[] = {PLX_COUNTER_MAX / 2 - 100, PLX_COUNTER_MAX / 2 + 2,
                                       PLX_COUNTER_MAX};
    struct plx_extent_page page;
    struct plx_extent_info info;
    struct plx_superblock super;
    uint8_t block[BLOCK];
    uint64_t at, before;

    for (unsigned i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        make_history();
        plx_simdisk_peek(disk, 0, block, BLOCK);
        OK(plx_format_superblock_decode(block, &super, &fault));
        at = find_magic("PLXEXTNT", 0);
        plx_simdisk_peek(disk, at, block, BLOCK);
        OK(plx_format_extent_page_decode(block, &super.store, at / MIB, 0, 1, &page, &fault));
        for (unsigned slot = 0; slot < 2; slot++) {
            page.generation = numbers[i] - slot;
            plx_format_extent_page_encode(&super.store, &page, block);
            plx_simdisk_poke(disk, at + slot * BLOCK, block, BLOCK);
        }
        open_store(3);
        before = plx_simdisk_hash(disk);
        if (plx_counter_has_room(numbers[i])) {
            OK(plx_store_extent_adopt(store, at / MIB, &fault));
            OK(plx_store_extents_adopted(store, &fault));
            OK(plx_store_extent_release(store, at / MIB, &info, &fault));
            OK(plx_store_extent_read(store, at / MIB, &info, &fault));
        } else {
            FAILS(CORRUPT, plx_store_extent_adopt(store, at / MIB, &fault));
            CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "impossible generation"));
            CU_ASSERT_EQUAL(plx_simdisk_hash(disk), before);
        }
        end_store();
    }
}

static void test_sealed_release(void)
{
    struct plx_extent_info info;
    uint64_t extent;

    make_history();
    extent = find_magic("PLXEXTNT", 0) / MIB;
    open_store(3);
    OK(plx_store_extent_adopt(store, extent, &fault));
    OK(plx_store_extent_adopt(store, extent, &fault)); /* once */
    CU_ASSERT_EQUAL(owned_extents(), 1);
    plx_store_extents_seal(store);
    plx_alloc_free(store, extent * MIB / BLOCK + 2, 1); /* nor is anything freed in it */
    CU_ASSERT_EQUAL(counters().blocks_foreign, 1);
    CU_ASSERT_EQUAL(counters().blocks_freed, 0);
    FAILS(NOT_FOUND, plx_store_extent_release(store, extent, &info, &fault)); /* not yet ours */
    OK(plx_store_extents_adopted(store, &fault));
    plx_simdisk_fail_range(disk, extent * MIB, MIB, false, true);
    CU_ASSERT_NOT_EQUAL(plx_store_extent_release(store, extent, &info, &fault), 0);
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "cannot write its header"));
    plx_simdisk_heal(disk);
    CU_ASSERT(plx_store_extent_is_owned(store, extent));
    CU_ASSERT_EQUAL(plx_alloc_free_blocks(store, PLX_EXTENT_DATA), 0);
    CU_ASSERT_EQUAL(plx_alloc_free_blocks(store, PLX_EXTENT_META), 0);
    OK(plx_store_extent_release(store, extent, &info, &fault));
    OK(plx_store_extent_read(store, extent, &info, &fault));
    CU_ASSERT(info.sealed && info.owner == 0);
    end_store();
}

/* Freed in an extent of nobody, where none may be asked for by number: the collector's. */
static void test_left_to_collector(void)
{
    struct plx_since since;

    make_store(16 * MIB, MIB);
    env.env.extent_needed = NULL;
    since = plx_store_since(store);
    for (unsigned i = 1; i <= 3; i++) {
        plx_alloc_free_dead(store, 8 * MIB / BLOCK + 16 + i, &since);
        plx_store_settle(store);
        CU_ASSERT_EQUAL(counters().blocks_foreign, i);
        CU_ASSERT_EQUAL(store->allocator->foreign.count, 0);
    }
    CU_ASSERT_EQUAL(counters().blocks_freed, 0);
    end_store();
}

/* Slot A reads as zeroes: lost, if slot B is a later one than the first. If slot B is the first
 * one, the extent never came into use: then nothing but its own pages may be in use (EXTENT-3). */
static void test_lost_extent_page(void)
{
    uint8_t block[BLOCK], zeroes[BLOCK] = {0};
    uint8_t *bits;
    struct plx_extent_info info;
    struct plx_extent_page page;
    struct plx_superblock super;
    uint64_t at;

    make_history();
    plx_simdisk_peek(disk, 0, block, BLOCK);
    OK(plx_format_superblock_decode(block, &super, &fault));
    at = find_magic("PLXEXTNT", 0);
    plx_simdisk_peek(disk, at + BLOCK, block, BLOCK);
    OK(plx_format_extent_page_decode(block, &super.store, at / MIB, 0, 1, &page, &fault));
    plx_simdisk_poke(disk, at, zeroes, BLOCK);
    open_store(3);
    check_store(true);
    OK(plx_store_extent_read(store, at / MIB, &info, &fault));
    CU_ASSERT_EQUAL(info.type, page.type);
    page.generation = plx_generation_next(0);
    plx_format_extent_page_encode(&super.store, &page, block);
    plx_simdisk_poke(disk, at + BLOCK, block, BLOCK);
    zeroes[BLOCK - 1] = 1; /* damaged, not zero */
    plx_simdisk_poke(disk, at, zeroes, BLOCK);
    OK(plx_store_extent_read(store, at / MIB, &info, &fault));
    CU_ASSERT_EQUAL(info.type, page.type);
    zeroes[BLOCK - 1] = 0;
    plx_simdisk_poke(disk, at, zeroes, BLOCK);
    FAILS(CORRUPT, plx_store_extent_read(store, at / MIB, &info, &fault));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "blocks are in use"));
    bits = plx_format_extent_bits(block);
    memset(bits, 0, PLX_EXTENT_PAGE_BITS / 8);
    bits[0] = 3;
    plx_format_extent_page_encode(&super.store, &page, block);
    plx_simdisk_poke(disk, at + BLOCK, block, BLOCK);
    OK(plx_store_extent_read(store, at / MIB, &info, &fault));
    CU_ASSERT_EQUAL(info.type, PLX_EXTENT_UNUSED);
    end_store();
}

/* Whatever has two slots: the one that counts is damaged. */
static void damage_newest(const char *magic, unsigned generation_at)
{
    uint64_t at = 0;
    unsigned found = 0;

    while ((at = find_magic(magic, at)) != 0) {
        uint8_t block[2][BLOCK];
        uint64_t generation[2];

        for (unsigned slot = 0; slot < 2; slot++) {
            plx_simdisk_peek(disk, at + slot * BLOCK, block[slot], BLOCK);
            memcpy(&generation[slot], block[slot] + generation_at, sizeof generation[slot]);
            CU_ASSERT_EQUAL(memcmp(block[slot], magic, strlen(magic)), 0);
        }
        /* The mirror says the same: 4 bytes of checksum and the generation are its own. */
        CU_ASSERT_EQUAL(memcmp(block[0] + 12, block[1] + 12, generation_at - 12), 0);
        CU_ASSERT_EQUAL(memcmp(block[0] + generation_at + 8, block[1] + generation_at + 8,
                               BLOCK - generation_at - 8),
                        0);
        CU_ASSERT(generation[0] + 1 == generation[1] || generation[1] + 1 == generation[0]);
        plx_simdisk_flip(disk, at + (generation[1] > generation[0] ? BLOCK : 0) + 200, 1);
        at += 2 * BLOCK;
        found++;
    }
    CU_ASSERT(found > 0);
}

static void test_damage_newest(void)
{
    struct plx_vdi_open_options options = {.epoch = 50, .take_over = true, .overwrite = -1};
    struct plx_vdi *vdi;

    vdi = make_with_vdi(64 * MIB, MIB, 16 * MIB);
    for (unsigned i = 0; i < 40; i++)
        OK(write_byte(vdi, i * 65536, 65536, (int)i + 1));
    run(vdi, PLX_KEYFRAME, 0, 0);
    run(vdi, PLX_SNAPSHOT, 0, 0);
    for (unsigned i = 0; i < 40; i++)
        OK(write_byte(vdi, i * 65536, 32768, (int)i + 101));
    run(vdi, PLX_KEYFRAME, 0, 0);
    run(vdi, PLX_FLUSH, 0, 0);
    plx_vdi_abandon(vdi);
    plx_store_close(store);
    store = NULL;
    damage_newest("PLXVDREC", 48);
    damage_newest("PLXEXTNT", 48);
    open_store(2);
    adopt_all();
    OK(plx_vdi_open(store, &options, &vdi, &fault));
    for (unsigned i = 40; i < 120; i++) /* would take blocks that an older bitmap calls free */
        OK(write_byte(vdi, i * 65536, 65536, (int)i + 1));
    for (unsigned i = 0; i < 40; i++) {
        CU_ASSERT(reads_as(vdi, i * 65536, 32768, (int)i + 101));
        CU_ASSERT(reads_as(vdi, i * 65536 + 32768, 32768, (int)i + 1));
    }
    OK(plx_vdi_close(vdi));
    OK(plx_snapshot_open(store, 0, 1, &vdi, &fault));
    for (unsigned i = 0; i < 40; i++)
        CU_ASSERT(reads_as(vdi, i * 65536, 65536, (int)i + 1));
    OK(plx_vdi_close(vdi));
    end_store();
}

/* The reservation is preempted at the k-th event, for every k: what is not read is not taken for
 * the end of anything. */
static int events_left;

static void fence(void *context)
{
    (void)context;
    if (--events_left == 0)
        plx_simdisk_stop(opened, PLX_ERR_FENCED);
}

static int list_fenced(int k, unsigned *ret_count)
{
    int error;

    open_store(0);
    *ret_count = 0;
    events_left = k;
    power.on_event = fence;
    error = plx_snapshot_list(store, 0, 0, count_snapshot, ret_count, &fault);
    power.on_event = NULL;
    plx_store_close(store);
    store = NULL;
    return error;
}

static void test_fenced_reader(void)
{
    struct plx_vdi *vdi;
    unsigned all, count;
    int k = 0;

    make_history();
    open_store(2);
    vdi = open_vdi(0);
    for (unsigned i = 0; i < 600; i++) { /* into further segments */
        OK(write_byte(vdi, i * 4096, 4096, (int)i % 250 + 1));
        run(vdi, PLX_SNAPSHOT, 0, 0);
    }
    plx_vdi_abandon(vdi);
    plx_store_close(store);
    OK(list_fenced(0, &all));
    CU_ASSERT_EQUAL(all, 602);
    do {
        int error = list_fenced(++k, &count);

        CU_ASSERT(error == PLX_ERR_FENCED || (error == 0 && count == all));
    } while (events_left <= 0);
    CU_ASSERT(k > 5);
    end_store();
}

static void test_damage_segment(void)
{
    struct plx_vdi *vdi;
    uint64_t at, before;

    make_history();
    at = find_magic("PLXLOGSG", 0);
    CU_ASSERT_FATAL(at != 0);
    plx_simdisk_flip(disk, at + 60, 1);
    before = plx_simdisk_hash(disk);
    open_store(0);
    CU_ASSERT(plx_snapshot_open(store, 0, 1, &vdi, &fault) < 0);
    CU_ASSERT(strlen(fault.text) > 10);
    close_store();
    CU_ASSERT_EQUAL(plx_simdisk_hash(disk), before);
    end_store();
}

static void test_damage_batch(void)
{
    struct plx_vdi *vdi;
    uint64_t at;

    make_history();
    at = find_magic("PLXB", 0);
    CU_ASSERT_FATAL(at != 0);
    plx_simdisk_flip(disk, at + 100, 4);
    open_store(0);
    FAILS(CORRUPT, plx_snapshot_open(store, 0, 1, &vdi, &fault));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "v0"));
    end_store();
}

/* An unclean end, and something in the middle of what has to be replayed is damaged: refused, for
 * what follows was acknowledged. */
static void damaged_log(const char *magic, unsigned skip, unsigned offset)
{
    struct plx_vdi_open_options options = {.epoch = 50, .take_over = true, .overwrite = -1};
    struct plx_vdi *vdi;
    uint64_t at;

    vdi = make_with_vdi(64 * MIB, MIB, 16 * MIB);
    for (unsigned i = 0; i < 600; i++)
        OK(write_byte(vdi, i * 8192, 8192, (int)i % 250 + 1));
    plx_simpower_cut(&power);
    plx_vdi_abandon(vdi);
    plx_store_close(store);
    store = NULL;
    plx_simpower_restore(&power);
    at = find_magic(magic, 0);
    while (at && skip--)
        at = find_magic(magic, at + 512);
    CU_ASSERT_FATAL(at != 0);
    plx_simdisk_flip(disk, at + offset, 4);
    open_store(2);
    FAILS(CORRUPT, plx_vdi_open(store, &options, &vdi, &fault));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "damaged"));
    plx_simdisk_flip(disk, at + offset, 4); /* and nothing was changed */
    adopt_all();
    options.epoch++;
    OK(plx_vdi_open(store, &options, &vdi, &fault));
    for (unsigned i = 0; i < 600; i++)
        CU_ASSERT(reads_as(vdi, i * 8192, 8192, (int)i % 250 + 1));
    OK(plx_vdi_close(vdi));
    end_store();
}

static void test_damage_in_recovery(void)
{
    damaged_log("PLXB", 1, 80);
}

/* Without its header a segment looks as if it had not been begun: the first, one in the middle, the
 * last one that was. */
static void test_damaged_header_in_recovery(void)
{
    for (unsigned skip = 0; skip < 3; skip++)
        damaged_log("PLXLOGSG", skip, 60);
}

static void test_damage_node(void)
{
    struct plx_vdi *vdi;
    struct plx_vdi_record record;
    struct plx_superblock super;
    uint8_t block[BLOCK];
    uint64_t at, root, first = 0, mapped = 0;

    make_history();
    plx_simdisk_peek(disk, 0, block, BLOCK);
    OK(plx_format_superblock_decode(block, &super, &fault));
    at = find_magic("PLXVDREC", 0);
    root = 0;
    for (unsigned slot = 0, newest = 0; slot < 2; slot++) {
        plx_simdisk_peek(disk, at + slot * BLOCK, block, BLOCK);
        OK(plx_format_vdi_record_decode(block, &super.store, 0, 1u << 20, &record, &fault));
        if (record.generation > newest) {
            newest = (unsigned)record.generation;
            root = plx_entry_addr(record.keyframe.root);
        }
    }
    CU_ASSERT_FATAL(root != 0);
    plx_simdisk_flip(disk, root * BLOCK + 4000, 1);
    open_store(2);
    adopt_all();
    vdi = open_vdi(0);
    FAILS(CORRUPT, try_run(vdi, PLX_READ, 0, BLOCK, NULL));
    CU_ASSERT(plx_simenv_heard(&env, "radix node") > 0);
    FAILS(CORRUPT, plx_vdi_each_mapping(vdi, 10, &first, count_mapping, &mapped, &fault));
    CU_ASSERT(first == 0 && mapped == 0);
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "v0"));
    plx_simdisk_flip(disk, root * BLOCK + 4000, 1);
    CU_ASSERT(reads_as(vdi, 0, BLOCK, 2));
    OK(plx_vdi_close(vdi));
    end_store();
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"damaged superblock", test_damage_superblock},
        {"damaged VDI record", test_damage_record},
        {"damaged extent page", test_damage_extent},
        {"generations of an extent near their bound", test_extent_generations},
        {"a sealed extent that cannot be given up", test_sealed_release},
        {"blocks that are left to the collector", test_left_to_collector},
        {"a lost bitmap page", test_lost_extent_page},
        {"damaged log segment", test_damage_segment},
        {"damaged batch", test_damage_batch},
        {"damaged newest slots", test_damage_newest},
        {"fenced reader", test_fenced_reader},
        {"damaged batch in recovery", test_damage_in_recovery},
        {"damaged log segment in recovery", test_damaged_header_in_recovery},
        {"damaged node", test_damage_node},
    };

    fixture.open.ops_per_vdi = 16;
    return SUITE_RUN("damage", tests);
}
