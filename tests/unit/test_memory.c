/* test_memory.c - what needs more memory the longer history is: each allocation fails once. What
 * failed says so, and changes nothing; what does without goes on.
 */
#include <stdio.h>
#include <string.h>

#include "engine/disk/vdi.h"
#include "engine/space/allocator_inside.h"
#include "fault/alloc.h"
#include "fault/faultdev.h"
#include "ok.h"
#include "suite.h"
#include "unit/fixture.h"

#define LEAF (512ull * BLOCK)
#define LEAVES 12u
#define ROUNDS 72u

static struct plx_device *attach_uncounted(void)
{
    static struct fault_plan plan; /* nothing fails */

    return fault_device_attach(disk, &plan);
}

static struct plx_vdi *vdi, *chain;
static unsigned writes;

static void write_some(unsigned count)
{
    for (unsigned i = 0; i < count; i++, writes++)
        OK(write_byte(vdi, writes % LEAVES * LEAF + writes * 7 % 500 * BLOCK, BLOCK,
                      (int)(writes % 250) + 1));
}

/* v0: snapshots and key frames by the dozen, over many segments, and once it went back. v1: many
 * segments behind its key frame. */
static void make_long(void)
{
    struct plx_rewind_options back = {.seq = 2};
    struct plx_snapshot_info before;

    make_store(64 * MIB, MIB);
    OK(create_vdi(0, LEAVES * LEAF));
    OK(create_vdi(1, LEAVES * LEAF));
    vdi = open_vdi(0);
    chain = open_vdi(1);
    for (unsigned i = 0; i < ROUNDS; i++) {
        write_some(4);
        run(vdi, PLX_UNMAP, i % LEAVES * LEAF + 64 * BLOCK, (i % 3 ? 40 : 400) * BLOCK);
        run(vdi, PLX_SNAPSHOT, 0, 0);
        if (i % 3 == 0)
            run(vdi, PLX_KEYFRAME, 0, 0);
        if (i == 4)
            OK(plx_vdi_rewind(vdi, &back, &before, &fault));
    }
    for (unsigned i = 0; i < 600; i++)
        OK(write_byte(chain, (uint64_t)i * BLOCK, BLOCK, 3));
}

static int thin(void)
{
    struct plx_thin all = {.upto = ROUNDS, .dry_run = true};
    struct plx_thinned thinned;
    int error;

    do
        error = plx_vdi_thin(vdi, &all, &thinned, &fault);
    while (!error && thinned.upto > all.after && (all.after = thinned.upto) < ROUNDS);
    return error;
}

static int thin_middle(void)
{
    struct plx_thin middle = {.after = 20, .upto = ROUNDS - 5, .dry_run = true};
    struct plx_thinned thinned;

    return plx_vdi_thin(vdi, &middle, &thinned, &fault);
}

static int thin_kept(void)
{
    static const uint64_t kept[] = {30, 40};
    struct plx_thin middle = {
        .after = 20, .upto = ROUNDS - 5, .kept = kept, .kept_count = 2, .dry_run = true};
    static uint64_t went;
    struct plx_thinned thinned;
    int error = plx_vdi_thin(vdi, &middle, &thinned, &fault);

    CU_ASSERT(error || !went || thinned.snapshots == went); /* what is kept is never forgotten */
    went = error ? went : thinned.snapshots;
    return error;
}

static int open_instant(void)
{
    struct plx_vdi *instant;
    int error = plx_snapshot_open(store, 1, 0, &instant, &fault);

    if (!error)
        plx_vdi_abandon(instant);
    return error;
}

/* The two are related through one that is gone, or it is said that this could not be found out. */
static int usage(void)
{
    struct plx_usage_options options = {.kin_count = 2};
    struct plx_usage_kin kin[2] = {{.parent = {{1}}}, {.vdi = {{1}}}};
    struct plx_vdi_info info;
    struct plx_usage found;
    int error;

    plx_vdi_get_info(vdi, &info);
    kin[0].vdi = info.id;
    plx_vdi_get_info(chain, &info);
    kin[1].parent = info.id;
    options.kin = kin;
    error = plx_store_usage(store, &options, &found, &fault);
    if (error)
        return error;
    CU_ASSERT_EQUAL(found.family_count, 1);
    plx_usage_done(&found);
    return 0;
}

static int unmap_all(void)
{
    return try_run(vdi, PLX_UNMAP, 0, LEAVES * LEAF, NULL);
}

static const struct {
    const char *name;
    int (*run)(void);
} operations[] = {
    {"letting all go", thin},
    {"letting go in the middle", thin_middle},
    {"letting go around what is kept", thin_kept},
    {"opening", open_instant},
    {"accounting", usage},
    {"unmapping", unmap_all},
};

/* Returns how many there were. */
static uint64_t fail_each(const char *name, int (*run_operation)(void))
{
    uint64_t failed = 1, k = 0;

    while (failed) {
        int error;

        fault.text[0] = 0;
        fault_alloc_arm(++k, false);
        error = run_operation();
        fault_alloc_disarm(&failed);
        if (!error || (failed && error == PLX_ERR_NOMEM && strstr(fault.text, "memory")))
            continue;
        printf("\n  %s, %u: %s: %s", name, (unsigned)k, plx_error_name(error), fault.text);
        CU_FAIL("without memory");
    }
    return k - 1;
}

static void test_each(void)
{
    make_long();
    for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++)
        CU_ASSERT(fail_each(operations[i].name, operations[i].run) > 0);
    CU_ASSERT_EQUAL(plx_vdi_health(vdi, NULL), 0);
    CU_ASSERT(reads_as(vdi, 0, 4 * MIB, 0));
    CU_ASSERT(reads_as(chain, 0, 600 * BLOCK, 3));
    OK(plx_vdi_close(vdi));
    OK(plx_vdi_close(chain));
    check_store(true);
    end_store();
}

#define TIMES 34u /* that a disk was rewound, each time to another instant */

static int thin_rewound(void)
{
    struct plx_thin all = {.upto = UINT64_MAX, .dry_run = true};
    struct plx_thinned thinned;
    int error = plx_vdi_thin(vdi, &all, &thinned, &fault);

    CU_ASSERT(error || thinned.snapshots == 2 * TIMES);
    return error;
}

/* What rewinds alone hold goes at once, or nothing does. */
static void test_rewound(void)
{
    struct plx_thin all = {.upto = UINT64_MAX};
    struct plx_thinned thinned;
    uint64_t oldest;

    vdi = make_with_vdi(64 * MIB, MIB, MIB);
    for (unsigned i = 0; i < TIMES; i++) {
        struct plx_rewind_options back;
        struct plx_snapshot_info before;

        OK(write_byte(vdi, 0, BLOCK, (int)i));
        back = (struct plx_rewind_options){.seq = run(vdi, PLX_SNAPSHOT, 0, 0)};
        OK(write_byte(vdi, 0, BLOCK, 99));
        OK(plx_vdi_rewind(vdi, &back, &before, &fault));
    }
    run(vdi, PLX_SNAPSHOT, 0, 0);
    oldest = vdi->record.oldest.snap_seq;
    CU_ASSERT(fail_each("letting go of what rewinds hold", thin_rewound) > 0);
    CU_ASSERT_EQUAL(vdi->record.oldest.snap_seq, oldest);
    OK(plx_vdi_thin(vdi, &all, &thinned, &fault));
    CU_ASSERT_EQUAL(thinned.snapshots, 2 * TIMES);
    CU_ASSERT_EQUAL(vdi->record.rewinds, 0);
    CU_ASSERT(reads_as(vdi, 0, BLOCK, TIMES - 1));
    OK(plx_vdi_close(vdi));
    check_store(true);
    end_store();
}

/* ---- Beside a collection ---- */

static void want_keyframe(struct plx_simenv *e)
{
    if (store->allocator->held_back.on && !vdi->keyframe.running && vdi->map.active.count)
        plx_keyframe_request(vdi, NULL);
}

static int collect(void)
{
    static uint8_t extents[16];
    struct plx_collect_options options = {
        .extents = extents, .extent_count = registry.count, .rate = 1000000000};
    struct plx_collect *collection;
    int error;

    fault_alloc_suspend();
    write_some(2);
    run(vdi, PLX_KEYFRAME, 0, 0);
    write_some(2);
    memset(extents, PLX_COLLECT_LOOK, sizeof extents);
    fault_alloc_resume();
    error = plx_collect_begin(store, &options, &collection, &fault);
    if (error)
        return error;
    env.on_tick = want_keyframe;
    error = plx_collect_mark(collection, &fault);
    env.on_tick = NULL;
    plx_collect_end(collection);
    CU_ASSERT_PTR_NULL(store->allocator->held_back.addrs);
    return error;
}

/* A key frame is written while a disk is marked: what it frees is held back meanwhile. For want of
 * memory it is left to the next collection. */
static void test_held_back(void)
{
    uint64_t blocks;

    vdi = make_with_vdi(16 * MIB, MIB, LEAVES * LEAF);
    fail_each("collecting", collect);
    CU_ASSERT_EQUAL(plx_vdi_health(vdi, NULL), 0);
    OK(plx_simenv_collect(&env, &blocks, &fault));
    CU_ASSERT(blocks > 0);
    OK(plx_vdi_close(vdi));
    check_store(false);
    end_store();
}

/* What cannot be kept in mind is not freed either while blocks are held back: a collection that is
 * reading may still come to it. */
static void test_not_held_back(void)
{
    uint64_t addr, count, failed, free_blocks;

    vdi = make_with_vdi(16 * MIB, MIB, LEAVES * LEAF);
    plx_store_settle(store);
    OK(plx_alloc_run(store, PLX_EXTENT_META, 1, NULL, &addr, &count));
    free_blocks = plx_alloc_free_blocks(store, PLX_EXTENT_META);
    plx_alloc_hold_back(store);
    fault_alloc_arm(1, false);
    plx_alloc_free(store, addr, 1);
    fault_alloc_disarm(&failed);
    CU_ASSERT_EQUAL(failed, 1);
    CU_ASSERT_EQUAL(plx_alloc_free_blocks(store, PLX_EXTENT_META), free_blocks);
    CU_ASSERT(plx_alloc_let_go(store));
    CU_ASSERT_EQUAL(plx_alloc_free_blocks(store, PLX_EXTENT_META), free_blocks);
    plx_alloc_free(store, addr, 1);
    CU_ASSERT_EQUAL(plx_alloc_free_blocks(store, PLX_EXTENT_META), free_blocks + 1);
    OK(plx_vdi_close(vdi));
    check_store(false);
    end_store();
}

/* All that is under way when a collection begins is spared, or it does not begin. */
static void fail_beginning(struct plx_simenv *e)
{
    static uint8_t extents[32];
    struct plx_collect_options options = {.extents = extents, .extent_count = registry.count};
    struct plx_collect *collection;
    uint64_t failed = 1, k = 0;

    memset(extents, PLX_COLLECT_LOOK, sizeof extents);
    while (failed) {
        int error;

        fault_alloc_arm(++k, false);
        error = plx_collect_begin(store, &options, &collection, &fault);
        fault_alloc_disarm(&failed);
        CU_ASSERT_EQUAL(error, failed ? PLX_ERR_NOMEM : 0);
        if (!error)
            plx_collect_end(collection);
        CU_ASSERT_FALSE(store->disks->collecting);
    }
}

static struct {
    struct plx_request request;
    struct iovec iov;
} flying[3];
static unsigned landed;

static void flying_done(struct plx_request *request)
{
    OK(request->result);
    landed++;
}

/* Data extents of one are another's; 0: nobody's. */
static void change_owner(uint64_t from, uint64_t to)
{
    for (uint64_t e = 0; e < registry.count; e++)
        if (registry.extents[e].used && registry.extents[e].owner == from &&
            registry.extents[e].type == PLX_EXTENT_DATA)
            registry.extents[e].owner = to;
}

/* Requests whose blocks lie in many extents, what died in others, of this instance and of nobody, a
 * key frame that is to free it, another disk and an instant. */
static void test_begin_collection(void)
{
    struct plx_vdi *instant;
    uint64_t blocks;

    make_store(32 * MIB, MIB);
    OK(create_vdi(0, LEAVES * LEAF));
    OK(create_vdi(1, LEAF));
    vdi = open_vdi(0);
    OK(write_byte(vdi, 0, 2 * MIB, 1));
    OK(plx_vdi_close(vdi));
    leave_store();
    change_owner(0, 9); /* until others are taken for what is written next */
    open_store(2);
    vdi = open_vdi(0);
    chain = open_vdi(1);
    OK(write_byte(chain, 0, BLOCK, 2));
    run(chain, PLX_SNAPSHOT, 0, 0);
    OK(plx_snapshot_open(store, 1, 1, &instant, &fault));
    OK(write_byte(vdi, 2 * MIB, 2 * MIB, 1));
    run(vdi, PLX_KEYFRAME, 0, 0);
    change_owner(9, 0);
    env.grant_later = true;
    env.on_tick = fail_beginning;
    run(vdi, PLX_UNMAP, 0, 4 * MIB);
    landed = 0;
    for (unsigned i = 0; i < 3; i++) {
        flying[i].iov = (struct iovec){buffer, MIB};
        flying[i].request = (struct plx_request){.op = PLX_WRITE,
                                                 .offset = (8 + i) * MIB,
                                                 .length = MIB,
                                                 .iov = &flying[i].iov,
                                                 .iovcnt = 1,
                                                 .done = flying_done};
        plx_vdi_submit(vdi, &flying[i].request);
    }
    run(vdi, PLX_KEYFRAME, 0, 0);
    while (landed < 3)
        if (!plx_store_tick(store))
            plx_store_wait(store);
    while (store->allocator->foreign.count)
        plx_store_tick(store);
    env.on_tick = NULL;
    env.grant_later = false;
    CU_ASSERT(reads_as(vdi, 0, 4 * MIB, 0));
    CU_ASSERT(reads_as(vdi, 8 * MIB, 3 * MIB, 1));
    OK(plx_simenv_collect(&env, &blocks, &fault));
    CU_ASSERT_EQUAL(blocks, 0);
    CU_ASSERT(reads_as(instant, 0, BLOCK, 2));
    OK(plx_vdi_close(instant));
    OK(plx_vdi_close(chain));
    OK(plx_vdi_close(vdi));
    check_store(false);
    end_store();
}

/* ---- Common blocks ---- */

/* A store is prepared for them, or it is not. */
static int allow_common(void)
{
    int error = plx_store_allow_common(store, &fault);

    CU_ASSERT_EQUAL(plx_store_allows_common(store), !error);
    return error;
}

static void test_allow_common(void)
{
    make_store(16 * MIB, MIB);
    CU_ASSERT(fail_each("preparing", allow_common) > 0);
    CU_ASSERT(plx_store_allows_common(store));
    end_store();
}

/* A block that was to become another name of a common one does not, and others have that one. */
static void test_common(void)
{
    struct plx_share made = {0}, joined;
    unsigned refused = 0;
    uint64_t failed;

    make_store(16 * MIB, MIB);
    OK(plx_store_allow_common(store, &fault));
    OK(plx_share_begin(store, &fault));
    OK(create_vdi(0, MIB));
    OK(create_vdi(1, 4 * MIB));
    vdi = open_vdi(0);
    chain = open_vdi(1);
    OK(write_byte(vdi, 0, BLOCK, 9));
    OK(try_share(vdi, 0, &made));
    FAILS(RANGE, try_share(vdi, MIB / BLOCK + 1, &made));
    for (uint64_t i = 0; i < 400; i++) { /* some time the map has to grow */
        int error;

        OK(write_byte(chain, i * BLOCK, BLOCK, 9));
        joined = made;
        fault_alloc_arm(1, true);
        error = try_share(chain, i, &joined);
        fault_alloc_disarm(&failed);
        CU_ASSERT(error == 0 || error == PLX_ERR_NOMEM);
        refused += error != 0;
    }
    CU_ASSERT(refused > 0);
    CU_ASSERT_EQUAL(counters().blocks_foreign, 0); /* nothing is freed that is not ours */
    plx_share_end(store);
    OK(write_byte(chain, 2 * MIB, MIB, 7)); /* over what is free */
    CU_ASSERT(reads_as(vdi, 0, BLOCK, 9));
    CU_ASSERT(reads_as(chain, 0, 400 * BLOCK, 9));
    OK(plx_vdi_close(vdi));
    OK(plx_vdi_close(chain));
    check_store(true);
    end_store();
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"each allocation", test_each},
        {"what rewinds hold", test_rewound},
        {"beside a collection", test_held_back},
        {"blocks that cannot be held back", test_not_held_back},
        {"a collection that begins", test_begin_collection},
        {"a store that is prepared for common blocks", test_allow_common},
        {"common blocks", test_common},
    };

    fixture.format.segment_bytes = 16u << 10;
    fixture.attach = attach_uncounted;
    fixture.open.cache_bytes = 64 * BLOCK;
    return SUITE_RUN("memory", tests);
}
