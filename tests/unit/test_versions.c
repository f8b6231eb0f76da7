/* test_versions.c - versions of blocks when what the stretch began with cannot be read, or memory
 * is short: the record is refused, and nothing is let go for it until it is applied.
 */
#include "engine/history/versions.h"

#include <string.h>

#include "fault/alloc.h"
#include "ok.h"
#include "suite.h"

#define BASE_BLOCKS 16u
#define BASE_ADDR 1000u
#define ADDR 5000u
#define FEW 600u     /* fewer than the table has room for */
#define MANY 100000u /* more */

static struct plx_fault fault;
static struct plx_versions versions;
static struct plx_deaths freed;
static int entry_fails, each_fails, inherited_fails; /* 0: the base answers */
static bool inherited;

/* ---- What the stretch began with: the first blocks of the disk ---- */

static uint64_t base_of(uint64_t vblock)
{
    return vblock < BASE_BLOCKS ? plx_entry_make(BASE_ADDR + vblock, 1) : 0;
}

static int base_entry(void *context, uint64_t vblock, uint64_t *ret_entry)
{
    *ret_entry = base_of(vblock);
    return entry_fails;
}

static int base_each(void *context, uint64_t vblock, uint64_t count,
                     int (*visit)(void *argument, uint64_t vblock, uint64_t entry), void *argument)
{
    int error = 0;

    for (uint64_t v = vblock; !error && v < vblock + count && v < BASE_BLOCKS; v++)
        error = visit(argument, v, base_of(v));
    return error ? error : each_fails;
}

static int base_inherited(void *context, uint64_t vblock, uint64_t addr, bool *ret_inherited)
{
    *ret_inherited = inherited;
    return inherited_fails;
}

/* ---- Records ---- */

static int map(uint64_t vblock, uint64_t count)
{
    static const uint8_t checksums[4 * FEW];
    struct plx_record record = {
        .type = PLX_RECORD_MAP, .vblock = vblock, .count = count, .addr = ADDR + vblock};

    record.checksums = checksums;
    return plx_versions_apply(&versions, &record);
}

static int unmap(uint64_t vblock, uint64_t count)
{
    struct plx_record record = {.type = PLX_RECORD_UNMAP, .vblock = vblock, .count = count};

    return plx_versions_apply(&versions, &record);
}

static int void_leaves(uint64_t count)
{
    struct plx_record record = {.type = PLX_RECORD_VOID, .count = count};

    return plx_versions_apply(&versions, &record);
}

/* From here on a snapshot sees what there is, and does not stay. */
static void next_snapshot(void)
{
    plx_versions_snapshot(&versions, versions.gen + 1, false);
    plx_versions_settle(&versions);
}

static void set_up(void)
{
    versions = (struct plx_versions){
        .base = {.entry = base_entry, .each = base_each, .inherited = base_inherited},
        .freed = &freed,
    };
    entry_fails = each_fails = inherited_fails = 0;
    inherited = false;
    next_snapshot();
}

static void tear_down(void)
{
    plx_versions_free(&versions);
    plx_deaths_free(&freed);
}

/* So many from an address on, each once, in whatever order. */
static void expect_freed(uint64_t first_addr, uint64_t count)
{
    uint64_t seen = 0;

    CU_ASSERT_EQUAL_FATAL(freed.count, count);
    for (size_t i = 0; i < freed.count; i++)
        for (size_t j = 0; j < freed.count; j++)
            seen += freed.addrs[j] == first_addr + i;
    CU_ASSERT_EQUAL(seen, count);
}

/* ---- The base ---- */

/* Whose a block is cannot be told: it is not freed, before the record can be applied. */
static void test_base_unread(void)
{
    set_up();
    entry_fails = PLX_ERR_IO_READ;
    FAILS(IO_READ, map(0, 1));
    entry_fails = 0;
    inherited_fails = PLX_ERR_CORRUPT;
    FAILS(CORRUPT, map(0, 1));
    FAILS(CORRUPT, unmap(0, 1));
    inherited_fails = 0;
    each_fails = PLX_ERR_IO_READ;
    FAILS(IO_READ, unmap(BASE_BLOCKS, 1));
    each_fails = 0;
    CU_ASSERT_EQUAL(versions.table.count, 0);
    CU_ASSERT_EQUAL(versions.fresh_count, 0);
    expect_freed(0, 0);
    OK(map(0, BASE_BLOCKS / 2));
    OK(unmap(0, BASE_BLOCKS));
    expect_freed(BASE_ADDR, BASE_BLOCKS);
    tear_down();
}

/* VERSIONS-3 */
static void test_base_inherited(void)
{
    set_up();
    inherited = true;
    OK(map(0, BASE_BLOCKS / 2));
    OK(unmap(0, BASE_BLOCKS));
    expect_freed(0, 0);
    tear_down();
}

/* ---- Memory ---- */

/* One allocation fails, and the next would not: what is left out because of it is told. */
static void fail_once(int (*apply)(uint64_t count), uint64_t count)
{
    uint64_t failed;

    fault_alloc_arm(1, false);
    FAILS(NOMEM, apply(count));
    fault_alloc_disarm(&failed);
    CU_ASSERT_EQUAL(failed, 1);
    OK(apply(count));
}

static int unmap_from_start(uint64_t count)
{
    return unmap(BASE_BLOCKS, count);
}

static int map_from_start(uint64_t count)
{
    return map(BASE_BLOCKS, count);
}

/* What is freed is noted as far as there is memory (map.h): that is another matter. */
static void make_room_to_free(unsigned count)
{
    while (count--)
        plx_deaths_add(&freed, 1);
    freed.count = 0;
}

static void test_unmap_without_memory(void)
{
    static const uint64_t counts[] = {FEW, MANY};

    for (unsigned i = 0; i < 2; i++) {
        set_up();
        fail_once(unmap_from_start, counts[i]); /* for the table */
        OK(map_from_start(FEW / 2));
        next_snapshot();
        OK(map(BASE_BLOCKS + FEW / 2, FEW / 2));
        next_snapshot();
        make_room_to_free(FEW);
        fail_once(unmap_from_start, counts[i]); /* to note them all */
        expect_freed(ADDR + BASE_BLOCKS, FEW);
        tear_down();
    }
}

static void test_map_without_memory(void)
{
    set_up();
    fail_once(map_from_start, FEW);
    next_snapshot();
    OK(unmap_from_start(FEW));
    expect_freed(ADDR + BASE_BLOCKS, FEW);
    tear_down();
}

static void test_void_without_memory(void)
{
    set_up();
    fail_once(void_leaves, 3);
    CU_ASSERT_EQUAL(versions.leaf_count, 3);
    tear_down();
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"a base that cannot be read", test_base_unread},
        {"what a clone began with", test_base_inherited},
        {"unmapping without memory", test_unmap_without_memory},
        {"mapping without memory", test_map_without_memory},
        {"voiding without memory", test_void_without_memory},
    };

    return SUITE_RUN("versions", tests);
}
