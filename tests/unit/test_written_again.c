/* test_written_again.c - records and headers of extents that a failed flush has left readable, and
 * not durable: whoever takes them over writes them again, and flushes, before the other slot
 * (RECORD-1; EXTENT-2).
 *
 * A flush fails and drops what it was to cover (simdisk.h), and its process dies. From then on one
 * slot of each structure must be durable, at every event. Which writes a flush drops is the seed's
 * choice, so there are several. Extents have three pages.
 */
#include <stdio.h>
#include <string.h>

#include "engine/format/format.h"
#include "engine/loop/store.h"
#include "engine/space/allocator.h"
#include "ok.h"
#include "suite.h"
#include "unit/fixture.h"

#define EXTENT (256 * MIB)
#define EXTENTS 8u
#define PAGES 3u
#define VDI (64 * MIB)
#define PART (64 * BLOCK)
#define SEEDS 12u

/* ---- What must be durable ---- */

static uint64_t watched; /* extent; 0: the record of slot 0 */
static unsigned unstable;

static bool is_stable(uint64_t block)
{
    uint8_t seen[BLOCK], stable[BLOCK];

    plx_simdisk_peek(disk, block * BLOCK, seen, BLOCK);
    plx_simdisk_peek_stable(disk, block * BLOCK, stable, BLOCK);
    return memcmp(seen, stable, BLOCK) == 0;
}

/* Of two slots that lie side by side. */
static void check_event(void *context)
{
    uint64_t at = watched ? watched * (EXTENT / BLOCK) : PLX_VDI_TABLE_BLOCK;

    for (unsigned i = 0; i < (watched ? PAGES : 1); i++)
        unstable += !is_stable(at + 2 * i) && !is_stable(at + 2 * i + 1);
}

static void watch(uint64_t extent)
{
    watched = extent;
    power.on_event = check_event;
}

/* ---- The store ---- */

static void begin(uint64_t seed)
{
    fixture.disk.seed = seed;
    make_store(EXTENTS * EXTENT, EXTENT);
    OK(create_vdi(0, VDI));
}

/* A part with its number. */
static void write_disk(unsigned part)
{
    struct plx_vdi *vdi = open_vdi(0);

    OK(write_byte(vdi, part * PART, PART, (int)part));
    OK(plx_vdi_close(vdi));
}

/* The extent that holds data. */
static uint64_t data_extent(void)
{
    struct plx_extent_info info = {0};

    for (size_t i = 0; plx_store_extent_owned(store, i, &info) == 0; i++)
        if (info.type == PLX_EXTENT_DATA)
            return info.number;
    CU_FAIL_FATAL("no extent holds data");
    return 0;
}

/* The process that has the store dies, and the disk's cache stays; so does its ownership. */
static void die(void)
{
    plx_simdisk_stop(opened, PLX_ERR_LOST);
    plx_store_close(store);
    open_store(env.instance + 1);
}

static void take_over(void)
{
    adopt_extents();
    OK(plx_vdi_mark(store, 0, &fault));
}

static void end(void)
{
    struct plx_vdi *vdi;

    power.on_event = NULL;
    crash_store();
    OK(try_open_vdi(0, true, &vdi));
    for (unsigned part = 1; part <= 2; part++)
        CU_ASSERT(reads_as(vdi, part * PART, PART, (int)part));
    OK(plx_vdi_close(vdi));
    check_store(true);
    end_store();
}

/* ---- Tests ---- */

/* The first to take the extents over fails to write their headers. */
static void adopt(uint64_t seed)
{
    uint64_t extent;

    begin(seed);
    write_disk(1);
    extent = data_extent();
    die();
    take_over();
    plx_simdisk_drop_flush(disk, 1);
    CU_ASSERT_NOT_EQUAL(plx_store_extents_adopted(store, &fault), 0);
    die();
    watch(extent);
    take_over();
    OK(plx_store_extents_adopted(store, &fault));
    write_disk(2);
    end();
}

static void test_adopted(void)
{
    unstable = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++)
        adopt(seed);
    CU_ASSERT_EQUAL(unstable, 0);
}

/* Whoever held the extent fails to give it up. A registry that is rebuilt from the headers then
 * takes it for nobody's. Each of its pages has a block that no disk uses. */
static uint64_t give_up(uint64_t seed)
{
    struct plx_extent_info info;
    uint64_t extent;

    begin(seed);
    write_disk(1);
    extent = data_extent();
    for (unsigned page = 0; page < PAGES; page++)
        plx_alloc_mark(store, extent * (EXTENT / BLOCK) + page * PLX_EXTENT_PAGE_BITS + 999, 1);
    plx_store_extents_leave(store);
    plx_simdisk_drop_flush(disk, 1);
    CU_ASSERT_NOT_EQUAL(plx_store_extent_release(store, extent, &info, &fault), 0);
    die();
    OK(plx_store_extent_read(store, extent, &info, &fault));
    CU_ASSERT_EQUAL_FATAL(info.owner, 0);
    registry.extents[extent].owner = 0;
    registry.extents[extent].type = info.type;
    registry.extents[extent].states = info.states;
    watch(extent);
    take_over();
    OK(plx_store_extents_adopted(store, &fault));
    return extent;
}

static void grant(uint64_t seed)
{
    uint64_t extent = give_up(seed);

    write_disk(2);
    CU_ASSERT_TRUE(plx_store_extent_is_owned(store, extent));
    end();
}

static void test_granted(void)
{
    unstable = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++)
        grant(seed);
    CU_ASSERT_EQUAL(unstable, 0);
}

/* It is not held for that. */
static void sweep(uint64_t seed)
{
    uint64_t extent = give_up(seed), blocks = 0;

    OK(plx_simenv_collect(&env, &blocks, &fault));
    CU_ASSERT(blocks >= PAGES);
    CU_ASSERT_FALSE(plx_store_extent_is_owned(store, extent));
    write_disk(2);
    end();
}

static void test_swept(void)
{
    unstable = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++)
        sweep(seed);
    CU_ASSERT_EQUAL(unstable, 0);
}

/* The flush of a record behind that of what it names. */
static void open_again(uint64_t seed)
{
    struct plx_vdi *vdi;

    begin(seed);
    write_disk(1);
    vdi = open_vdi(0);
    OK(write_byte(vdi, 2 * PART, PART, 2));
    plx_simdisk_drop_flush(disk, 2);
    CU_ASSERT_NOT_EQUAL(try_run(vdi, PLX_KEYFRAME, 0, 0, NULL), 0);
    plx_vdi_abandon(vdi);
    die();
    watch(0);
    take_over();
    OK(plx_store_extents_adopted(store, &fault));
    OK(try_open_vdi(0, true, &vdi));
    OK(plx_vdi_close(vdi));
    end();
}

static void test_records(void)
{
    unstable = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++)
        open_again(seed);
    CU_ASSERT_EQUAL(unstable, 0);
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"adopted headers", test_adopted},
        {"granted headers", test_granted},
        {"swept headers", test_swept},
        {"records", test_records},
    };

    return SUITE_RUN("written again", tests);
}
