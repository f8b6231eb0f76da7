/* test_collect_refusals.c - the collector: what it refuses, when it must not begin or go on, how
 * fast it reads. What it finds and what it spares: sim/collect.c, test_usage.c, fault/test_fault.c.
 */
#include <string.h>

#include "engine/disk/vdi.h" /* to see and forge what is under way */
#include "ok.h"
#include "suite.h"
#include "unit/fixture.h"

#define EXTENTS_MAX 128u

static struct plx_vdi *vdi;
static struct plx_collect *collect;
static uint8_t extents[EXTENTS_MAX];
static struct plx_collect_options options;

/* A store with one disk that is open, and has many leaves. */
static void begin_test(void)
{
    vdi = make_with_vdi(64 * MIB, MIB, 128 * MIB);
    for (unsigned i = 0; i < 32; i++)
        OK(write_byte(vdi, i * 4 * MIB, 4 * BLOCK, 1));
    run(vdi, PLX_SNAPSHOT, 0, 0);
    run(vdi, PLX_KEYFRAME, 0, 0);
    memset(extents, 0, sizeof extents);
    for (uint64_t e = 0; e < registry.count; e++)
        extents[e] = registry.extents[e].used ? PLX_COLLECT_LOOK : PLX_COLLECT_IGNORE;
    options = (struct plx_collect_options){.extents = extents, .extent_count = registry.count};
    collect = NULL;
}

static void end_test(void)
{
    OK(plx_vdi_close(vdi));
    check_store(false);
    end_store();
}

static int begin(void)
{
    return plx_collect_begin(store, &options, &collect, &fault);
}

static void expect_busy(int error, const char *words)
{
    CU_ASSERT_EQUAL(error, PLX_ERR_BUSY);
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, words));
}

/* ---- Tests ---- */

static void test_one_at_a_time(void)
{
    struct plx_collect *first;

    begin_test();
    plx_collect_end(NULL);
    OK(begin());
    first = collect;
    expect_busy(begin(), "is under way");
    plx_collect_end(first);
    OK(begin());
    OK(plx_collect_mark(collect, &fault));
    plx_collect_end(collect);
    end_test();
}

/* The caller does not know all extents: before it begins, and before all was read. */
static void test_larger(void)
{
    begin_test();
    options.extent_count--;
    expect_busy(begin(), "larger");
    options.extent_count++;
    OK(begin());
    plx_simdisk_resize(disk, 70 * MIB);
    grow_elsewhere(70);
    expect_busy(plx_collect_mark(collect, &fault), "larger");
    plx_collect_end(collect);
    end_test();
}

static void grow_and_write(void *context)
{
    if (registry.count == 96)
        return;
    plx_simdisk_resize(disk, 96 * MIB);
    grow_elsewhere(96);
    vdi = open_vdi(0);
    for (unsigned i = 0; i < 16; i++)
        OK(write_byte(vdi, i * 4 * MIB + MIB, MIB, 2));
    run(vdi, PLX_KEYFRAME, 0, 0);
}

/* All that there is belongs to others; when it has become larger, the disk that is being read gets
 * nodes and blocks beyond what the caller knows. */
static void test_larger_beside(void)
{
    uint64_t blocks;

    begin_test();
    OK(plx_vdi_close(vdi));
    leave_store();
    open_store(2);
    for (uint64_t e = 1; e < registry.count; e++)
        registry.extents[e].owner = 99;
    options.pause = grow_and_write;
    OK(begin());
    expect_busy(plx_collect_mark(collect, &fault), "larger");
    plx_collect_end(collect);
    CU_ASSERT_EQUAL(registry.count, 96);
    for (unsigned i = 0; i < 16; i++)
        CU_ASSERT(reads_as(vdi, i * 4 * MIB + MIB, MIB, 2));
    for (uint64_t e = 1; e < registry.count; e++)
        if (registry.extents[e].owner == 99)
            registry.extents[e].owner = 0;
    OK(plx_simenv_collect(&env, &blocks, &fault)); /* what died in others' extents */
    CU_ASSERT(blocks > 0);
    end_test();
}

static unsigned refused;

static void begin_beside(struct plx_simenv *e)
{
    if (!plx_vdi_history_changes(vdi) || refused)
        return;
    refused++;
    expect_busy(begin(), "is being rewound, or its snapshots are being let go");
}

static void test_beside_rewind(void)
{
    struct plx_rewind_options back = {.seq = 1};
    struct plx_snapshot_info before;
    struct plx_thinned thinned;

    begin_test();
    run(vdi, PLX_SNAPSHOT, 0, 0);
    run(vdi, PLX_SNAPSHOT, 0, 0);
    env.on_tick = begin_beside;
    refused = 0;
    OK(plx_vdi_thin(vdi, &(struct plx_thin){.after = 1, .upto = 2}, &thinned, &fault));
    CU_ASSERT_EQUAL(refused, 1);
    refused = 0;
    OK(plx_vdi_rewind(vdi, &back, &before, &fault));
    CU_ASSERT_EQUAL(refused, 1);
    env.on_tick = NULL;
    OK(begin());
    plx_collect_end(collect);
    end_test();
}

/* A node that was written, and is in no list, would be taken for garbage. */
static void test_forgotten_nodes(void)
{
    begin_test();
    vdi->keyframe.made.lost = true;
    expect_busy(begin(), "forgotten nodes");
    vdi->keyframe.made.lost = false;
    OK(begin());
    plx_collect_end(collect);
    end_test();
}

/* What a disk that has stopped has is known when it has been recovered. */
static void test_stopped(void)
{
    begin_test();
    plx_log_stop(&vdi->log, PLX_ERR_STICKY, 0);
    expect_busy(begin(), "v0 has stopped");
    plx_vdi_abandon(vdi);
    OK(try_open_vdi(0, true, &vdi));
    OK(begin());
    plx_collect_end(collect);
    OK(plx_vdi_close(vdi));
    check_store(true);
    end_store();
}

/* Of a disk that a dead instance had, its log may name more. One that lives is read beside. */
static void test_not_closed(void)
{
    static const uint64_t living[] = {7, 1};

    begin_test();
    lose_power();
    OK(begin());
    expect_busy(plx_collect_mark(collect, &fault), "v0 was not closed");
    plx_collect_end(collect);
    options.living = living;
    options.living_count = 2;
    OK(begin());
    OK(plx_collect_mark(collect, &fault));
    plx_collect_end(collect);
    adopt_extents();
    OK(plx_store_extents_adopted(store, &fault));
    OK(try_open_vdi(0, true, &vdi));
    OK(plx_vdi_close(vdi));
    check_store(true);
    end_store();
}

/* What looks like damage may be what a writer was just writing: it is read again. What stays
 * damaged ends it, for what lies below is not known. */
static void test_damaged(void)
{
    uint64_t root;

    begin_test();
    OK(plx_vdi_close(vdi));
    vdi = NULL;
    OK(begin());
    plx_simdisk_lie(disk, PLX_LIE_ROT);
    OK(plx_collect_mark(collect, &fault));
    plx_collect_end(collect);
    vdi = open_vdi(0);
    root = plx_entry_addr(vdi->record.keyframe.root) * BLOCK;
    plx_simdisk_flip(disk, root + 100, 1);
    OK(begin());
    FAILS(CORRUPT, plx_collect_mark(collect, &fault));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "v0: radix node"));
    plx_collect_end(collect);
    plx_simdisk_flip(disk, root + 100, 1);
    OK(begin());
    OK(plx_collect_mark(collect, &fault));
    plx_collect_end(collect);
    end_test();
}

/* Extents that may hold what an unreadable log names: nothing in them is garbage, and what else
 * there is stays usable. */
static void test_sealed(void)
{
    struct plx_vdi *other;
    uint64_t blocks;

    begin_test();
    lose_power();
    OK(create_vdi(1, 16 * MIB));
    other = open_vdi(1);
    OK(write_byte(other, 0, MIB, 2));
    adopt_extents();
    plx_store_extents_seal(store);
    OK(plx_store_extents_adopted(store, &fault));
    OK(write_byte(other, MIB, MIB, 2));
    OK(plx_vdi_close(other));
    leave_store();
    open_store(3);
    OK(try_open_vdi(0, true, &vdi)); /* its log can be read after all */
    OK(plx_simenv_collect(&env, &blocks, &fault));
    for (unsigned i = 0; i < 32; i++)
        CU_ASSERT(reads_as(vdi, i * 4 * MIB, 4 * BLOCK, 1));
    OK(plx_vdi_close(vdi));
    other = open_vdi(1);
    CU_ASSERT(reads_as(other, 0, 2 * MIB, 2));
    OK(plx_vdi_close(other));
    check_store(true);
    end_store();
}

static uint64_t bytes_shown;

static void on_progress(void *context, uint64_t bytes)
{
    CU_ASSERT(bytes > bytes_shown);
    bytes_shown = bytes;
}

/* How long marking takes. */
static uint64_t mark_at(uint64_t rate)
{
    uint64_t began;

    options.rate = rate;
    options.progress = on_progress;
    bytes_shown = 0;
    OK(begin());
    began = env.ns;
    OK(plx_collect_mark(collect, &fault));
    plx_collect_end(collect);
    return env.ns - began;
}

static void test_rate(void)
{
    uint64_t free_ns, bytes;

    begin_test();
    free_ns = mark_at(0);
    bytes = bytes_shown;
    CU_ASSERT(bytes > 32 * BLOCK);
    CU_ASSERT(free_ns < 1000000000);
    CU_ASSERT(mark_at(bytes / 10) >= 9000000000);
    CU_ASSERT_EQUAL(bytes_shown, bytes);
    end_test();
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"one at a time", test_one_at_a_time},
        {"a store that became larger", test_larger},
        {"a store that becomes larger while disks are read", test_larger_beside},
        {"beside a rewind, or while snapshots go", test_beside_rewind},
        {"nodes that were forgotten", test_forgotten_nodes},
        {"a disk that has stopped", test_stopped},
        {"a disk that was not closed", test_not_closed},
        {"a damaged disk", test_damaged},
        {"extents that are sealed", test_sealed},
        {"no faster than it may", test_rate},
    };

    return SUITE_RUN("collecting", tests);
}
