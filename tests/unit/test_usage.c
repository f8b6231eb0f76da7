/* test_usage.c - the accounting of space: sums are exact, what a disk or a family has alone is what
 * deleting and collecting frees; beside disks at work, interrupted, damaged.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/format/format.h"
#include "engine/disk/vdi.h"
#include "ok.h"
#include "suite.h"
#include "unit/fixture.h"

#define EXTENT_BLOCKS (MIB / BLOCK)

/* ---- A store ---- */

/* Written here, a snapshot, written there. */
static void work(uint32_t slot, uint64_t offset)
{
    struct plx_vdi *vdi = open_vdi(slot);

    OK(write_byte(vdi, offset, MIB, 1));
    run(vdi, PLX_SNAPSHOT, 0, 0);
    OK(write_byte(vdi, offset, MIB / 4, 2));
    run(vdi, PLX_KEYFRAME, 0, 0);
    run(vdi, PLX_UNMAP, offset + MIB / 2, MIB / 4);
    run(vdi, PLX_SNAPSHOT, 0, 0);
    OK(write_byte(vdi, offset + 4096, MIB / 8, 3));
    OK(plx_vdi_close(vdi));
}

/* v0 alone; v1, its clone v2, and v3, v2's; v4, another of v1's. */
static void make_families(void)
{
    make_store(64 * MIB, MIB);
    OK(create_vdi(0, 16 * MIB));
    OK(create_vdi(1, 16 * MIB));
    work(0, 0);
    work(1, 0);
    OK(clone_vdi(2, 1, 1));
    work(2, 4 * MIB);
    OK(clone_vdi(3, 2, 2));
    work(3, MIB / 4);
    OK(clone_vdi(4, 1, 2));
    work(4, 8 * MIB);
}

/* ---- Accounting ---- */

static struct plx_usage usage;
static unsigned asked, stop_at;
static uint64_t shown, shown_total;
static void (*beside)(void);

static bool on_interrupted(void *context)
{
    if (beside)
        beside();
    return ++asked == stop_at;
}

static void on_progress(void *context, uint64_t done, uint64_t total)
{
    CU_ASSERT(done >= shown);
    shown = done;
    shown_total = total;
}

static int take_with(const struct plx_usage_kin *kin, size_t kin_count)
{
    struct plx_usage_options options = {
        .kin = kin, .kin_count = kin_count, .progress = on_progress, .interrupted = on_interrupted};
    bool was_closed = !store;
    int error;

    plx_usage_done(&usage);
    asked = 0;
    shown = 0;
    if (was_closed)
        open_store(0);
    error = plx_store_usage(store, &options, &usage, &fault);
    if (was_closed)
        close_store();
    return error;
}

static void take(void)
{
    OK(take_with(NULL, 0));
}

static const struct plx_usage_vdi *of(uint32_t slot)
{
    for (uint32_t i = 0; i < usage.vdi_count; i++)
        if (usage.vdis[i].slot == slot)
            return &usage.vdis[i];
    CU_FAIL_FATAL("no such disk");
    return NULL;
}

static uint64_t allocated(void)
{
    struct plx_extent_info info;
    uint64_t blocks = 0;

    open_store(0);
    for (uint64_t extent = 1; extent < registry.count; extent++) {
        OK(plx_store_extent_read(store, extent, &info, &fault));
        blocks += info.used_blocks - info.header_blocks;
    }
    close_store();
    return blocks;
}

/* Everything is accounted for. */
static void expect_sum(void)
{
    uint64_t families = 0;

    take();
    CU_ASSERT_EQUAL(usage.referenced + usage.garbage, allocated());
    for (uint32_t i = 0; i < usage.family_count; i++) {
        CU_ASSERT_EQUAL(usage.families[i].space.referenced, usage.families[i].space.exclusive);
        families += usage.families[i].space.referenced;
    }
    CU_ASSERT_EQUAL(families, usage.referenced);
}

static void delete_vdi(uint32_t slot)
{
    open_store(1);
    OK(plx_vdi_delete(store, slot, false, &fault));
    leave_store();
}

/* ---- Tests ---- */

static void test_empty(void)
{
    make_store(64 * MIB, MIB);
    leave_store();
    expect_sum();
    CU_ASSERT_EQUAL(usage.vdi_count + usage.family_count + usage.referenced + usage.garbage, 0);
    end_store();
}

static void test_sums(void)
{
    make_families();
    leave_store();
    expect_sum();
    CU_ASSERT_EQUAL(usage.garbage, 0);
    CU_ASSERT_EQUAL_FATAL(usage.vdi_count, 5);
    CU_ASSERT_EQUAL_FATAL(usage.family_count, 2);
    CU_ASSERT_NOT_EQUAL(of(0)->family, of(1)->family);
    for (uint32_t slot = 1; slot <= 4; slot++) {
        CU_ASSERT_EQUAL(of(slot)->family, of(1)->family);
        CU_ASSERT(of(slot)->space.exclusive > 0 && !of(slot)->open);
        CU_ASSERT(of(slot)->space.exclusive < of(slot)->space.referenced);
    }
    CU_ASSERT_EQUAL(of(0)->space.exclusive, of(0)->space.referenced);
    CU_ASSERT(shown > 0 && shown <= shown_total);
    CU_ASSERT(usage.shared >= MIB / BLOCK && usage.shared < usage.referenced);
    end_store();
}

/* Requests that come between a key frame's position in the log and its announcement. */
static struct {
    struct plx_vdi *vdi;
    struct plx_request write, unmap;
    struct iovec iov;
    bool submitted;
    unsigned pending;
} between;

static void between_done(struct plx_request *request)
{
    CU_ASSERT_EQUAL(request->result, 0);
    between.pending--;
}

static void submit_between(struct plx_simenv *e)
{
    if (between.submitted || !between.vdi->map.is_frozen)
        return;
    between.submitted = true;
    plx_vdi_submit(between.vdi, &between.write);
    plx_vdi_submit(between.vdi, &between.unmap);
}

static void keyframe_around_requests(void)
{
    memset(buffer, 2, 4 * MIB);
    between.iov = (struct iovec){buffer, 4 * MIB};
    between.write = (struct plx_request){.op = PLX_WRITE,
                                         .offset = 8 * MIB,
                                         .length = 4 * MIB,
                                         .iov = &between.iov,
                                         .iovcnt = 1,
                                         .done = between_done};
    between.unmap = (struct plx_request){
        .op = PLX_UNMAP, .offset = MIB, .length = MIB / 2, .done = between_done};
    between.submitted = false;
    between.pending = 2;
    env.on_tick = submit_between;
    run(between.vdi, PLX_KEYFRAME, 0, 0);
    env.on_tick = NULL;
    plx_store_run_until_zero(store, &between.pending);
}

/* Who comes after the announcement sees them, though the key frame does not have them. */
static void test_around_keyframe(void)
{
    between.vdi = make_with_vdi(64 * MIB, MIB, 16 * MIB);
    run(between.vdi, PLX_SNAPSHOT, 0, 0); /* history begins before the key frame */
    OK(write_byte(between.vdi, 0, 2 * MIB, 1));
    keyframe_around_requests();
    run(between.vdi, PLX_SNAPSHOT, 0, 0);
    OK(write_byte(between.vdi, 8 * MIB, 4 * MIB, 3)); /* what was there only that one has now */
    OK(plx_vdi_close(between.vdi));
    leave_store();
    expect_sum();
    CU_ASSERT_EQUAL(usage.garbage, 0);
    end_store();
}

/* Whichever goes first, and then all others. */
static void test_deleting(void)
{
    for (uint32_t first = 0; first < 5; first++) {
        make_families();
        leave_store();
        for (uint32_t i = 0; i < 5; i++) {
            uint32_t slot = (first + i) % 5;
            uint64_t alone;

            expect_sum();
            CU_ASSERT_EQUAL(usage.garbage, 0);
            alone = of(slot)->space.exclusive;
            delete_vdi(slot);
            expect_sum();
            CU_ASSERT_EQUAL(usage.garbage, alone);
            CU_ASSERT_EQUAL(collect_closed(), alone);
        }
        take();
        CU_ASSERT_EQUAL(usage.referenced + usage.garbage, 0);
        CU_ASSERT_EQUAL(allocated(), 0);
        end_store();
    }
}

#define RELATIONS 200u

/* What is between relatives is gone, with its record: only the caller knows of it. */
static void test_lost_relation(void)
{
    static struct plx_usage_kin chain[RELATIONS];
    struct plx_usage_kin kin;
    uint32_t family;

    make_families();
    leave_store();
    take();
    kin = (struct plx_usage_kin){of(2)->id, of(1)->id};
    delete_vdi(2);
    take();
    CU_ASSERT_EQUAL(of(3)->family, of(1)->family); /* through its record */
    open_store(1);
    OK(create_vdi(2, 16 * MIB));
    leave_store();
    take();
    family = of(3)->family;
    CU_ASSERT_NOT_EQUAL(family, of(1)->family);
    CU_ASSERT_EQUAL(usage.family_count, 4);
    CU_ASSERT(usage.families[family].space.exclusive < usage.families[family].space.referenced);
    CU_ASSERT_EQUAL(usage.families[family].space.exclusive, of(3)->space.exclusive);
    OK(take_with(&kin, 1));
    CU_ASSERT_EQUAL(of(3)->family, of(1)->family);
    CU_ASSERT_EQUAL(usage.family_count, 3);
    CU_ASSERT_EQUAL(usage.families[of(1)->family].vdis, 3);
    for (unsigned i = 0; i < RELATIONS; i++) { /* through many that are gone */
        chain[i] = (struct plx_usage_kin){{{(uint8_t)i, 7}}, {{(uint8_t)(i + 1), 7}}};
    }
    chain[0].vdi = kin.vdi;
    chain[RELATIONS - 1].parent = kin.parent;
    OK(take_with(chain, RELATIONS));
    CU_ASSERT_EQUAL(of(3)->family, of(1)->family);
    CU_ASSERT_EQUAL(usage.family_count, 3);
    end_store();
}

static void test_interrupted(void)
{
    unsigned most;

    make_families();
    leave_store();
    take();
    most = asked;
    CU_ASSERT(most > 10);
    for (stop_at = 1; stop_at <= most; stop_at++)
        CU_ASSERT_EQUAL(take_with(NULL, 0), PLX_ERR_BUSY);
    stop_at = 0;
    take();
    end_store();
}

static struct plx_vdi *writer;
static unsigned every;

static void write_on(void)
{
    if (asked % every)
        return;
    OK(write_byte(writer, asked % 64 * 65536ull, 65536, (int)asked));
    run(writer, PLX_KEYFRAME, 0, 0);
}

static void test_beside_writer(void)
{
    uint64_t before;

    make_families();
    take();
    before = of(1)->space.referenced;
    writer = open_vdi(3);
    beside = write_on;
    every = 1000;
    take();
    CU_ASSERT(of(3)->open && !of(3)->space.busy && of(3)->space.referenced);
    every = 1;
    take();
    CU_ASSERT(of(3)->space.busy);
    CU_ASSERT(usage.families[of(3)->family].space.busy);
    CU_ASSERT_EQUAL(of(3)->space.referenced + usage.families[of(3)->family].space.exclusive, 0);
    CU_ASSERT(!of(1)->space.busy && !of(0)->space.busy);
    CU_ASSERT_EQUAL(of(1)->space.referenced, before);
    CU_ASSERT_EQUAL(of(0)->space.referenced, of(0)->space.exclusive);
    beside = NULL;
    OK(plx_vdi_close(writer));
    leave_store();
    expect_sum();
    end_store();
}

/* Not damage that may be gone at the next try: it ends at once. */
static void test_interrupted_beside_writer(void)
{
    make_families();
    writer = open_vdi(3);
    beside = write_on;
    every = 1;
    for (stop_at = 1; stop_at < 40; stop_at++) {
        CU_ASSERT_EQUAL(take_with(NULL, 0), PLX_ERR_BUSY);
        CU_ASSERT_EQUAL(asked, stop_at);
    }
    stop_at = 0;
    beside = NULL;
    OK(plx_vdi_close(writer));
    leave_store();
    expect_sum();
    end_store();
}

static void delete_once(void)
{
    if (asked == every)
        OK(plx_vdi_delete(store, 4, false, &fault));
}

/* A disk goes away at each moment: it is counted, or it has nothing. */
static void test_beside_deletion(void)
{
    unsigned most;

    make_families();
    take();
    most = asked;
    end_store();
    for (every = 0; every < most; every += 3) {
        make_families();
        beside = delete_once;
        take();
        beside = NULL;
        CU_ASSERT_EQUAL(usage.vdi_count, 5);
        CU_ASSERT(!of(4)->space.busy && of(4)->space.exclusive <= of(4)->space.referenced);
        leave_store();
        expect_sum();
        CU_ASSERT_EQUAL(usage.vdi_count, 4);
        end_store();
    }
}

static void replace_once(void)
{
    struct plx_vdi *vdi;

    if (asked)
        return;
    OK(plx_vdi_delete(store, 4, false, &fault));
    OK(create_vdi(4, 16 * MIB));
    vdi = open_vdi(4);
    OK(write_byte(vdi, 0, MIB, 1));
    OK(plx_vdi_close(vdi));
}

/* Another disk is in its place when its turn comes: that one was not asked about. */
static void test_beside_replacement(void)
{
    make_families();
    beside = replace_once;
    take();
    beside = NULL;
    CU_ASSERT_EQUAL(usage.vdi_count, 5);
    CU_ASSERT(!of(4)->space.busy && of(4)->space.referenced == 0);
    leave_store();
    expect_sum();
    CU_ASSERT_EQUAL(usage.vdi_count, 5);
    CU_ASSERT(of(4)->space.exclusive >= MIB / BLOCK);
    end_store();
}

/* Fills the nodes of a tree with what they do not hold. */
static void use_again(uint64_t entry, unsigned level)
{
    uint8_t node[BLOCK];

    plx_simdisk_peek(disk, plx_entry_addr(entry) * BLOCK, node, BLOCK);
    for (unsigned i = 0; i < PLX_NODE_ENTRIES && level > 1; i++)
        if (plx_entry_addr(plx_node_entry(node, i)))
            use_again(plx_node_entry(node, i), level - 1);
    memset(node, 0x5a, BLOCK);
    plx_simdisk_poke(disk, plx_entry_addr(entry) * BLOCK, node, BLOCK);
}

static void use_again_once(void)
{
    struct plx_vdi_record record;
    uint8_t which;

    if (asked != every)
        return;
    OK(plx_vdi_record_read(store, 0, &record, &which, &fault));
    OK(plx_vdi_delete(store, 0, false, &fault));
    use_again(record.keyframe.root, record.keyframe.levels);
}

/* A disk goes away at each moment, and its blocks are used for something else: that is no damage.
 */
static void test_beside_use_again(void)
{
    unsigned most = 1;

    for (every = 0; every < most; every++) {
        make_store(64 * MIB, MIB);
        for (uint32_t slot = 0; slot < 2; slot++) {
            OK(create_vdi(slot, 16 * MIB));
            work(slot, 0);
        }
        if (every == 0) {
            take();
            most = asked;
        }
        beside = use_again_once;
        take();
        beside = NULL;
        CU_ASSERT(!of(0)->space.busy && !of(1)->space.busy && of(1)->space.referenced > 0);
        leave_store();
        expect_sum();
        CU_ASSERT_EQUAL(usage.vdi_count, 1);
        end_store();
    }
}

#define OTHERS 99u /* an instance elsewhere, which has all that was free */

static void grow_once(void)
{
    if (asked)
        return;
    plx_simdisk_resize(disk, 96 * MIB);
    grow_elsewhere(96);
    writer = open_vdi(3);
    OK(write_byte(writer, 0, 4 * MIB, 4));
    run(writer, PLX_KEYFRAME, 0, 0);
}

/* The store becomes larger, and a disk that is read then has nodes and data in what was added. */
static void test_beside_growth(void)
{
    make_families();
    leave_store();
    open_store(2);
    for (uint64_t extent = 1; extent < registry.count; extent++)
        registry.extents[extent].owner = OTHERS;
    beside = grow_once;
    take();
    beside = NULL;
    CU_ASSERT_EQUAL(usage.vdi_count, 5);
    OK(plx_vdi_close(writer));
    for (uint64_t extent = 1; extent < registry.count; extent++)
        if (registry.extents[extent].owner == OTHERS)
            registry.extents[extent].owner = 0;
    leave_store();
    expect_sum();
    CU_ASSERT(of(3)->space.exclusive >= 4 * MIB / BLOCK);
    end_store();
}

static void grow_once_checked(void *context, uint64_t done, uint64_t total)
{
    grow_once();
    asked++;
}

/* The checker, likewise: what was added it does not check, and does not complain of. */
static void test_check_beside_growth(void)
{
    struct plx_check_options options = {.watch.progress = grow_once_checked,
                                        .finding = print_finding};
    struct plx_check_result result;

    make_families();
    leave_store();
    open_store(2);
    for (uint64_t extent = 1; extent < registry.count; extent++)
        registry.extents[extent].owner = OTHERS;
    asked = 0;
    OK(plx_store_check(store, &options, &result, &fault));
    CU_ASSERT_EQUAL(registry.count, 96);
    CU_ASSERT_EQUAL(result.errors, 0);
    OK(plx_vdi_close(writer));
    end_store();
}

static void test_damage(void)
{
    struct plx_vdi_record record;
    uint8_t which;

    make_families();
    OK(plx_vdi_record_read(store, 2, &record, &which, &fault));
    memset(buffer, 0x5a, BLOCK);
    OK(plx_store_write_sync(store, PLX_KIND_NODE, plx_entry_addr(record.keyframe.root), buffer,
                            BLOCK));
    leave_store();
    CU_ASSERT_EQUAL(take_with(NULL, 0), PLX_ERR_CORRUPT);
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "v2"));
    end_store();
}

/* More leaves than are read at once, of which the first is damaged: the others do not excuse it. */
static void test_damaged_leaf(void)
{
    struct plx_vdi *vdi;
    uint8_t node[BLOCK];
    uint64_t first = UINT64_MAX, root;

    vdi = make_with_vdi(16 * MIB, MIB, 512 * MIB);
    for (uint64_t leaf = 0; leaf < 150; leaf++)
        OK(write_byte(vdi, leaf * PLX_NODE_ENTRIES * BLOCK, BLOCK, 1));
    run(vdi, PLX_KEYFRAME, 0, 0);
    root = plx_entry_addr(vdi->record.keyframe.root);
    OK(plx_vdi_close(vdi));
    for (unsigned level = 3; level > 1; level--) {
        OK(plx_store_read_sync(store, PLX_KIND_NODE, root, node, BLOCK));
        root = plx_entry_addr(plx_node_entry(node, 0));
    }
    for (unsigned i = 0; i < 150; i++)
        first = plx_min_u64(first, plx_entry_addr(plx_node_entry(node, i)));
    leave_store();
    take();
    CU_ASSERT_EQUAL(of(0)->space.referenced - of(0)->space.exclusive, 0);
    plx_simdisk_flip(disk, first * BLOCK, 1);
    CU_ASSERT_EQUAL(take_with(NULL, 0), PLX_ERR_CORRUPT);
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "v0: radix node"));
    plx_simdisk_flip(disk, first * BLOCK, 1);
    take();
    end_store();
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"an empty store", test_empty},
        {"sums", test_sums},
        {"requests beside a key frame", test_around_keyframe},
        {"deleting and collecting", test_deleting},
        {"a relation that is lost", test_lost_relation},
        {"interrupted", test_interrupted},
        {"beside a writer", test_beside_writer},
        {"interrupted beside a writer", test_interrupted_beside_writer},
        {"beside a deletion at each moment", test_beside_deletion},
        {"beside a disk that takes another one's place", test_beside_replacement},
        {"beside a deletion whose blocks are used again", test_beside_use_again},
        {"beside a store that grows", test_beside_growth},
        {"checked beside a store that grows", test_check_beside_growth},
        {"damage", test_damage},
        {"a leaf that is damaged", test_damaged_leaf},
    };
    int failed = SUITE_RUN("usage", tests);

    plx_usage_done(&usage);
    return failed;
}
