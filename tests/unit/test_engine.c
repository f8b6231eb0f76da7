/* test_engine.c - single properties of the engine on a simulated disk: device I/O counts, sizes,
 * checksums, space, clones, damage of each structure kind.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/format/format.h"
#include "engine/disk/vdi.h"
#include "ok.h"
#include "suite.h"
#include "unit/fixture.h"

static void adopt_all(void)
{
    struct plx_fault why;

    for (uint64_t e = 0; e < registry.count; e++)
        if (registry.extents[e].owner)
            CU_ASSERT_EQUAL(plx_store_extent_adopt(store, e, &why), 0);
    CU_ASSERT_EQUAL(plx_store_extents_adopted(store, &why), 0);
}

static uint64_t all_writes(const struct plx_counters *c)
{
    return c->device_writes[PLX_KIND_DATA] + c->device_writes[PLX_KIND_LOG] +
           c->device_writes[PLX_KIND_NODE] + c->device_writes[PLX_KIND_ADMIN];
}

static uint64_t all_reads(const struct plx_counters *c)
{
    return c->device_reads[PLX_KIND_DATA] + c->device_reads[PLX_KIND_LOG] +
           c->device_reads[PLX_KIND_NODE] + c->device_reads[PLX_KIND_ADMIN];
}

static void settle(void)
{
    while (plx_store_busy(store))
        if (!plx_store_tick(store))
            plx_store_wait(store);
}

/* ---- Waiting ---- */

/* Two volumes and what their devices are asked. */
static struct {
    struct plx_device devices[2];
    int completed[2];
    unsigned polled[2], idle;
} pair;

static int poll_waited(struct plx_device *device, bool wait)
{
    size_t at = (size_t)(device - pair.devices);

    CU_ASSERT(wait);
    pair.polled[at]++;
    return pair.completed[at];
}

static void idle_waited(struct plx_env *e)
{
    pair.idle++;
}

static void expect_waited(struct plx_store *of, unsigned first, unsigned second, unsigned idle)
{
    memset(pair.polled, 0, sizeof pair.polled);
    pair.idle = 0;
    plx_store_wait(of);
    CU_ASSERT_EQUAL(pair.polled[0], first);
    CU_ASSERT_EQUAL(pair.polled[1], second);
    CU_ASSERT_EQUAL(pair.idle, idle);
}

/* A device may find that nothing has completed: then the other one has its turn, and nobody idles
 * while something is under way. */
static void test_wait(void)
{
    static const struct plx_device_ops ops = {.poll = poll_waited};
    static struct plx_store two;
    struct plx_env idler = {.idle = idle_waited};

    two = (struct plx_store){.env = &idler, .info = {.volumes = 2}};
    for (unsigned i = 0; i < 2; i++) {
        pair.devices[i].ops = &ops;
        two.volumes[i].device = &pair.devices[i];
    }
    expect_waited(&two, 0, 0, 1);
    idler.idle = NULL; /* it may be */
    expect_waited(&two, 0, 0, 0);
    idler.idle = idle_waited;
    two.volumes[0].under_way = 1;
    expect_waited(&two, 1, 0, 0);
    two.volumes[1].under_way = 1;
    expect_waited(&two, 1, 1, 0);
    pair.completed[0] = 1;
    expect_waited(&two, 1, 0, 0);
    two.volumes[0].under_way = 0;
    expect_waited(&two, 0, 1, 0);
}

/* ---- I/O counts ---- */

static void test_io_counts(void)
{
    struct plx_counters settled, a, b;
    struct plx_vdi *vdi;
    uint64_t seq, again;

    make_store(128 * MIB, MIB);
    OK(create_vdi(0, 64 * MIB));
    vdi = open_vdi(0);
    OK(write_byte(vdi, 0, BLOCK, 1)); /* extents are there, the segment is begun */
    settle();
    settled = counters();
    CU_ASSERT(settled.registry_calls_on_data_path > 0); /* the first write found no extent */
    a = counters(); /* a blind write: data and log, no metadata read */
    OK(write_byte(vdi, 10 * BLOCK, BLOCK, 2));
    b = counters();
    CU_ASSERT_EQUAL(all_writes(&b) - all_writes(&a), 2);
    CU_ASSERT_EQUAL(all_reads(&b) - all_reads(&a), 0);
    CU_ASSERT_EQUAL(b.device_flushes - a.device_flushes, 1);
    OK(write_byte(vdi, 10 * BLOCK, BLOCK, 3)); /* voids the leaf's checksums, once */
    a = counters();
    OK(write_byte(vdi, 10 * BLOCK, BLOCK, 4)); /* in place: one write */
    b = counters();
    CU_ASSERT_EQUAL(all_writes(&b) - all_writes(&a), 1);
    CU_ASSERT_EQUAL(b.device_writes[PLX_KIND_DATA] - a.device_writes[PLX_KIND_DATA], 1);
    CU_ASSERT_EQUAL(all_reads(&b) - all_reads(&a), 0);
    CU_ASSERT_EQUAL(b.blocks_in_place - a.blocks_in_place, 1);
    seq = run(vdi, PLX_SNAPSHOT, 0, 0);
    a = counters(); /* an idle snapshot: nothing */
    again = run(vdi, PLX_SNAPSHOT, 0, 0);
    b = counters();
    CU_ASSERT_EQUAL(seq, again);
    CU_ASSERT_EQUAL(all_writes(&b) - all_writes(&a), 0);
    a = counters(); /* zeroes over nothing: nothing */
    OK(write_byte(vdi, 2000 * BLOCK, 16 * BLOCK, 0));
    b = counters();
    CU_ASSERT_EQUAL(all_writes(&b) - all_writes(&a), 0);
    a = counters(); /* absent blocks are zeroes without I/O */
    CU_ASSERT(reads_as(vdi, 2000 * BLOCK, 16 * BLOCK, 0));
    b = counters();
    CU_ASSERT_EQUAL(all_reads(&b) - all_reads(&a), 0);
    OK(write_byte(vdi, 100 * BLOCK, 256 * BLOCK, 5));
    a = counters(); /* adjacent blocks are read in one request */
    CU_ASSERT(reads_as(vdi, 100 * BLOCK, 64 * BLOCK, 5));
    b = counters();
    CU_ASSERT(all_reads(&b) - all_reads(&a) <= 2);
    CU_ASSERT_EQUAL(b.registry_calls_on_data_path, settled.registry_calls_on_data_path);
    CU_ASSERT_EQUAL(b.write_path_node_reads, 0);
    OK(plx_vdi_close(vdi));
    end_store();
}

static void test_blind_after_keyframe(void)
{
    struct plx_counters a, b;
    struct plx_vdi *vdi;

    make_store(128 * MIB, MIB);
    OK(create_vdi(0, 64 * MIB));
    vdi = open_vdi(0);
    OK(write_byte(vdi, 0, 2 * MIB, 1));
    run(vdi, PLX_SNAPSHOT, 0, 0);
    OK(plx_vdi_close(vdi));
    OK(plx_store_close(store));
    open_store(2); /* nothing is cached */
    adopt_all();
    vdi = open_vdi(0);
    run(vdi, PLX_SNAPSHOT, 0, 0);
    a = counters();
    OK(write_byte(vdi, 0, BLOCK, 2)); /* shared with the snapshot: known without its node */
    b = counters();
    CU_ASSERT_EQUAL(b.device_reads[PLX_KIND_NODE] - a.device_reads[PLX_KIND_NODE], 0);
    CU_ASSERT_EQUAL(b.write_path_node_reads, 0);
    CU_ASSERT(reads_as(vdi, 0, BLOCK, 2));
    CU_ASSERT(reads_as(vdi, BLOCK, BLOCK, 1));
    OK(plx_vdi_close(vdi));
    end_store();
}

/* ---- Reading ahead ---- */

static const struct plx_device_ops *real_ops;
static unsigned turn_nodes, turn_nodes_max; /* radix nodes read in one turn of the loop */

static void counting_submit(struct plx_device *device, struct plx_io *io)
{
    turn_nodes += io->op == PLX_IO_READ && io->kind == PLX_KIND_NODE;
    if (turn_nodes > turn_nodes_max)
        turn_nodes_max = turn_nodes;
    real_ops->submit(device, io);
}

static bool counting_kick(struct plx_device *device)
{
    turn_nodes = 0;
    return real_ops->kick(device);
}

/* A key frame asks for the old leaves together, and for each of them once. */
static void test_keyframe_reads_ahead(void)
{
    const unsigned leaves = 60;
    const uint64_t leaf_bytes = PLX_NODE_ENTRIES * BLOCK;
    struct plx_device_ops ops;
    struct plx_counters a, b;
    struct plx_vdi *vdi;

    make_store(256 * MIB, MIB);
    OK(create_vdi(0, leaves * leaf_bytes));
    vdi = open_vdi(0);
    for (unsigned i = 0; i < leaves; i++)
        OK(write_byte(vdi, i * leaf_bytes, BLOCK, 1));
    OK(plx_vdi_close(vdi));
    OK(plx_store_close(store));
    open_store(2); /* nothing is cached */
    adopt_all();
    vdi = open_vdi(0);
    run(vdi, PLX_SNAPSHOT, 0, 0);
    for (unsigned i = 0; i < leaves; i++)
        OK(write_byte(vdi, i * leaf_bytes + BLOCK, BLOCK, 2));
    real_ops = opened->ops;
    ops = *real_ops;
    ops.submit = counting_submit;
    ops.kick = counting_kick;
    opened->ops = &ops;
    a = counters();
    CU_ASSERT_EQUAL(a.device_reads[PLX_KIND_NODE], 0);
    run(vdi, PLX_KEYFRAME, 0, 0);
    b = counters();
    opened->ops = real_ops;
    CU_ASSERT_EQUAL(b.device_reads[PLX_KIND_NODE], leaves + 2); /* and the two above them */
    CU_ASSERT_EQUAL(turn_nodes_max, plx_cache_ahead_max(store->cache));
    for (unsigned i = 0; i < leaves; i++) {
        CU_ASSERT(reads_as(vdi, i * leaf_bytes, BLOCK, 1));
        CU_ASSERT(reads_as(vdi, i * leaf_bytes + BLOCK, BLOCK, 2));
    }
    OK(plx_vdi_close(vdi));
    end_store();
}

/* A block that was asked for ahead is freed and used again before it arrives (CACHE-4). */
static void test_freed_while_loading(void)
{
    struct plx_vdi_record record;
    struct plx_vdi *vdi;
    const void *node = NULL;
    uint64_t root, before;
    uint8_t slot;

    make_store(64 * MIB, MIB);
    OK(create_vdi(0, 16 * MIB));
    vdi = open_vdi(0);
    OK(write_byte(vdi, 0, BLOCK, 1));
    OK(plx_vdi_close(vdi));
    OK(plx_store_close(store));
    open_store(2);
    OK(plx_vdi_record_read(store, 0, &record, &slot, &fault));
    root = record.keyframe.root;
    before = plx_entry_make(plx_entry_addr(root), plx_entry_checksum(root) ^ 6);
    CU_ASSERT_PTR_NULL(plx_cache_ahead(store->cache, before, record.keyframe.levels));
    plx_cache_forget(store->cache, plx_entry_addr(before));
    OK(plx_cache_get_sync(store->cache, root, record.keyframe.levels, &node));
    CU_ASSERT(node && plx_entry_addr(plx_node_entry(node, 0)));
    CU_ASSERT_EQUAL(plx_simenv_heard(&env, "radix node"), 0);
    FAILS(CORRUPT, plx_cache_get_sync(store->cache, before, record.keyframe.levels, &node));
    end_store();
}

static uint64_t nodes_read(void)
{
    return counters().device_reads[PLX_KIND_NODE];
}

/* v0's root, and nothing is in memory. */
static struct plx_keyframe make_cold_root(void)
{
    struct plx_vdi_record record;
    struct plx_vdi *vdi;
    uint8_t slot;

    make_store(64 * MIB, MIB);
    OK(create_vdi(0, 16 * MIB));
    vdi = open_vdi(0);
    OK(write_byte(vdi, 0, BLOCK, 1));
    OK(plx_vdi_close(vdi));
    close_store();
    open_store(2);
    OK(plx_vdi_record_read(store, 0, &record, &slot, &fault));
    return record.keyframe;
}

/* More nodes are asked for than are read at once: who is not served at first is later. */
static void test_many_loads(void)
{
    const struct plx_keyframe root = make_cold_root();
    const void *node = NULL;
    uint64_t before = nodes_read(), free_at = 64 * MIB / BLOCK;

    for (unsigned i = 1; i <= 100; i++) /* zeroes, where nothing was ever allocated */
        CU_ASSERT_PTR_NULL(plx_cache_ahead(store->cache, plx_entry_make(free_at - i, 0), 1));
    OK(plx_cache_get_sync(store->cache, root.root, root.levels, &node));
    CU_ASSERT(node && plx_entry_addr(plx_node_entry(node, 0)));
    CU_ASSERT(nodes_read() - before > 32 && nodes_read() - before <= 100);
    end_store();
}

/* A node is built where an older one is just being read: there is one node at an address (
 * CACHE-3), and what comes of the older one's read is nobody's. */
static void test_built_while_loading(void)
{
    const struct plx_keyframe root = make_cold_root();
    const void *node = NULL;
    uint64_t older, before;

    older = plx_entry_make(plx_entry_addr(root.root), plx_entry_checksum(root.root) ^ 6);
    CU_ASSERT_PTR_NULL(plx_cache_ahead(store->cache, older, root.levels));
    plx_simdisk_peek(disk, plx_entry_addr(root.root) * BLOCK, buffer, BLOCK);
    plx_cache_put(store->cache, root.root, root.levels, buffer);
    before = nodes_read();
    for (unsigned i = 0; i < 2; i++) {
        OK(plx_cache_get_sync(store->cache, root.root, root.levels, &node));
        CU_ASSERT(node && memcmp(node, buffer, BLOCK) == 0);
    }
    CU_ASSERT_EQUAL(nodes_read() - before, 1);
    CU_ASSERT_EQUAL(plx_simenv_heard(&env, "radix node"), 0);
    end_store();
}

/* Somebody who follows an older record reads what its block held before: he fails alone
 * (CACHE-5). */
static void test_older_while_loading(void)
{
    const struct plx_keyframe root = make_cold_root();
    const void *node = NULL;
    uint64_t older = plx_entry_make(plx_entry_addr(root.root), plx_entry_checksum(root.root) ^ 6);

    CU_ASSERT_PTR_NULL(plx_cache_ahead(store->cache, older, root.levels));
    OK(plx_cache_get_sync(store->cache, root.root, root.levels, &node));
    CU_ASSERT(node && plx_entry_addr(plx_node_entry(node, 0)));
    CU_ASSERT_EQUAL(plx_simenv_heard(&env, "radix node"), 1);
    end_store();
}

/* ---- Contents ---- */

static void test_sub_block(void)
{
    struct plx_vdi *vdi;

    make_store(64 * MIB, MIB);
    OK(create_vdi(0, 16 * MIB));
    vdi = open_vdi(0);
    for (unsigned round = 0; round < 3; round++) { /* absent, new, in place */
        OK(write_byte(vdi, 512, 512, (int)(10 + round)));
        OK(write_byte(vdi, BLOCK + 3584, 1024, (int)(20 + round)));
        CU_ASSERT(reads_as(vdi, 0, 512, 0));
        CU_ASSERT(reads_as(vdi, 512, 512, (int)(10 + round)));
        CU_ASSERT(reads_as(vdi, 1024, BLOCK + 3584 - 1024, 0));
        CU_ASSERT(reads_as(vdi, BLOCK + 3584, 1024, (int)(20 + round)));
        CU_ASSERT(reads_as(vdi, 2 * BLOCK + 512, 512, 0));
    }
    OK(write_byte(vdi, 8 * BLOCK, 3 * BLOCK, 7));
    run(vdi, PLX_UNMAP, 8 * BLOCK + 512, 2 * BLOCK);
    CU_ASSERT(reads_as(vdi, 8 * BLOCK, 512, 7));
    CU_ASSERT(reads_as(vdi, 8 * BLOCK + 512, 2 * BLOCK, 0));
    CU_ASSERT(reads_as(vdi, 10 * BLOCK + 512, BLOCK - 512, 7));
    FAILS(INVALID, try_run(vdi, PLX_READ, 100, 512, NULL));
    FAILS(INVALID, try_run(vdi, PLX_READ, 0, 100, NULL));
    FAILS(RANGE, try_run(vdi, PLX_READ, 16 * MIB - 512, 1024, NULL));
    FAILS(RANGE, try_run(vdi, PLX_WRITE, UINT64_MAX - 511, 512, NULL));
    OK(plx_vdi_close(vdi));
    end_store();
}

/* An open that fails before its record was written gives its log segments back. */
static void test_failed_open_frees(void)
{
    struct plx_counters a, b;
    struct plx_vdi *vdi, *other_vdi;

    make_store(64 * MIB, MIB);
    OK(create_vdi(0, 16 * MIB));
    OK(create_vdi(1, 16 * MIB));
    other_vdi = open_vdi(1); /* so that extents are there */
    settle();
    a = counters();
    plx_simdisk_fail_range(disk, 0, 64 * MIB, false, true);
    FAILS(IO_WRITE, try_open_vdi(0, false, &vdi));
    plx_simdisk_heal(disk);
    b = counters();
    CU_ASSERT_EQUAL(a.meta_free_blocks, b.meta_free_blocks);
    vdi = open_vdi(0);
    OK(write_byte(vdi, 0, BLOCK, 1));
    OK(plx_vdi_close(vdi));
    OK(plx_vdi_close(other_vdi));
    end_store();
}

static unsigned wanted_more;

/* As a write to another disk does that finds no room (room.c). */
static void want_one_more(struct plx_simenv *e)
{
    if (wanted_more || !store->vdis || !store->vdis->keyframe.running)
        return;
    wanted_more++;
    plx_keyframe_request(store->vdis, NULL);
}

/* A disk that is recovered has one to write, and is asked for another one meanwhile. */
static void test_wanted_while_opening(void)
{
    struct plx_vdi *vdi;

    make_store(64 * MIB, MIB);
    OK(create_vdi(0, 16 * MIB));
    vdi = open_vdi(0);
    OK(write_byte(vdi, 0, MIB, 1));
    plx_vdi_abandon(vdi);
    wanted_more = 0;
    env.on_tick = want_one_more;
    OK(try_open_vdi(0, true, &vdi));
    env.on_tick = NULL;
    CU_ASSERT_EQUAL(wanted_more, 1);
    CU_ASSERT(!vdi->keyframe.wanted && !vdi->keyframe.running);
    CU_ASSERT_EQUAL(counters().keyframes, 2);
    CU_ASSERT(reads_as(vdi, 0, MIB, 1));
    OK(plx_vdi_close(vdi));
    check_store(true);
    end_store();
}

static void test_unmap_frees(void)
{
    struct plx_counters a, b, c;
    struct plx_vdi *vdi;

    make_store(64 * MIB, MIB);
    OK(create_vdi(0, 32 * MIB));
    vdi = open_vdi(0);
    for (unsigned i = 0; i < 8; i++)
        OK(write_byte(vdi, i * MIB, MIB, 1));
    run(vdi, PLX_KEYFRAME, 0, 0);
    settle();
    a = counters();
    run(vdi, PLX_UNMAP, 0, 8 * MIB);
    settle();
    run(vdi, PLX_KEYFRAME, 0, 0);
    settle();
    b = counters();
    CU_ASSERT(b.data_free_blocks >= a.data_free_blocks + 8 * MIB / BLOCK);
    CU_ASSERT(reads_as(vdi, 0, MIB, 0));
    /* Written with zeroes: as good as unmapped. */
    OK(write_byte(vdi, 0, MIB, 1));
    run(vdi, PLX_KEYFRAME, 0, 0);
    settle();
    b = counters();
    OK(write_byte(vdi, 0, MIB, 0));
    run(vdi, PLX_KEYFRAME, 0, 0);
    settle();
    c = counters();
    CU_ASSERT(c.data_free_blocks >= b.data_free_blocks + MIB / BLOCK);
    OK(plx_vdi_close(vdi));
    end_store();
}

/* ---- What is mapped ---- */

static bool add_mapped(void *context, uint64_t offset, uint64_t length, bool mapped)
{
    *(uint64_t *)context += mapped ? length / BLOCK : 0;
    return true;
}

/* What the key frame says of the disk is what there is, counted one by one (of a small disk). */
static void check_mapped(struct plx_vdi *vdi, uint64_t expected)
{
    struct plx_vdi_info info;
    uint64_t count = 0;

    run(vdi, PLX_KEYFRAME, 0, 0);
    plx_vdi_get_info(vdi, &info);
    if (info.size_bytes <= 64 * MIB) {
        OK(plx_vdi_map_runs(vdi, 0, info.size_bytes, add_mapped, &count, &fault));
        CU_ASSERT_EQUAL(count, expected);
    }
    CU_ASSERT_EQUAL(info.mapped_blocks, expected);
    OK(plx_vdi_read_info(store, info.slot, &info, &fault));
    CU_ASSERT_EQUAL(info.mapped_blocks, expected);
}

static void count_mapping(void *context, uint64_t vblock, const struct plx_mapping *mapping)
{
    ++*(uint64_t *)context;
}

/* It goes on where it came to when it had looked as often as it was told. */
static void test_mapping_by_mapping(void)
{
    uint64_t vblock = 0, mapped = 0;
    struct plx_vdi *vdi;

    make_store(64 * MIB, MIB);
    OK(create_vdi(0, 16 * MIB));
    vdi = open_vdi(0);
    OK(write_byte(vdi, 0, 8 * BLOCK, 1));
    OK(write_byte(vdi, 16 * MIB - BLOCK, BLOCK, 2));
    for (uint64_t i = 1; i <= 8; i++) {
        OK(plx_vdi_each_mapping(vdi, 1, &vblock, count_mapping, &mapped, &fault));
        CU_ASSERT(vblock == i && mapped == i);
    }
    OK(plx_vdi_each_mapping(vdi, 1, &vblock, count_mapping, &mapped, &fault));
    CU_ASSERT(vblock > 8 && vblock < 16 * MIB / BLOCK && mapped == 8); /* an absent one */
    OK(plx_vdi_each_mapping(vdi, 10000, &vblock, count_mapping, &mapped, &fault));
    CU_ASSERT(vblock == UINT64_MAX && mapped == 9);
    OK(plx_vdi_close(vdi));
    end_store();
}

static void test_mapped(void)
{
    struct plx_rewind_options back = {0};
    struct plx_snapshot_info before;
    struct plx_request grow = {.op = PLX_RESIZE, .length = 600ull << 30};
    struct plx_vdi *vdi, *clone;
    uint64_t seq;

    make_store(128 * MIB, MIB);
    OK(create_vdi(0, 64 * MIB));
    vdi = open_vdi(0);
    check_mapped(vdi, 0);
    OK(write_byte(vdi, 0, 4 * MIB, 1));
    OK(write_byte(vdi, 63 * MIB + 512, 2 * BLOCK, 2));
    check_mapped(vdi, 1024 + 3);
    seq = run(vdi, PLX_SNAPSHOT, 0, 0);
    OK(write_byte(vdi, MIB, 2 * MIB, 3)); /* again, to new blocks */
    OK(write_byte(vdi, 5 * MIB, BLOCK, 4));
    run(vdi, PLX_UNMAP, 0, 16 * BLOCK); /* a few; then a leaf and a half, in part absent */
    check_mapped(vdi, 1024 + 3 + 1 - 16);
    run(vdi, PLX_UNMAP, MIB, 3 * MIB);
    OK(write_byte(vdi, 0, BLOCK, 0)); /* zeroes over nothing, over something */
    OK(write_byte(vdi, 5 * MIB, BLOCK, 0));
    check_mapped(vdi, 256 - 16 + 3);
    OK(plx_vdi_close(vdi));
    vdi = open_vdi(0);
    check_mapped(vdi, 256 - 16 + 3);
    OK(clone_vdi(1, 0, seq));
    clone = open_vdi(1);
    check_mapped(clone, 1024 + 3);
    OK(plx_vdi_close(clone));
    back.seq = seq;
    OK(plx_vdi_rewind(vdi, &back, &before, &fault));
    check_mapped(vdi, 1024 + 3);
    OK(plx_vdi_run(vdi, &grow)); /* one level more */
    OK(write_byte(vdi, 599ull << 30, BLOCK, 5));
    check_mapped(vdi, 1024 + 4);
    OK(plx_vdi_close(vdi));
    end_store();
}

static void settle_keyframe(struct plx_vdi *vdi)
{
    run(vdi, PLX_KEYFRAME, 0, 0);
    settle();
}

/* What is unmapped comes back to the block: at once, or with the last snapshot that sees it. */
/* Blocks that are written again and again, always to new ones, until a key frame has been written;
 * returns how many times. */
static uint64_t writes_for_keyframe(uint64_t bytes, struct plx_store_options options)
{
    struct plx_store_options before = fixture.open;
    struct plx_vdi_open_options copying = {.epoch = 1, .overwrite = PLX_OVERWRITE_COPY};
    uint64_t keyframes, writes = 0;
    struct plx_vdi *vdi;

    options.cache_bytes = before.cache_bytes;
    fixture.open = options;
    make_store(256 * MIB, MIB);
    OK(create_vdi(0, MIB));
    OK(plx_vdi_open(store, &copying, &vdi, &fault));
    env.step_ns = 1; /* none is due for its age */
    for (keyframes = counters().keyframes; counters().keyframes == keyframes && writes < 2000;
         writes++)
        OK(write_byte(vdi, 0, bytes, (int)writes % 200 + 1));
    CU_ASSERT(reads_as(vdi, 0, bytes, (int)(writes - 1) % 200 + 1));
    OK(plx_vdi_close(vdi));
    check_store(false);
    end_store();
    fixture.open = before;
    return writes;
}

/* However few blocks have changed: for the length of the log, and for the blocks that come back. */
static void test_keyframe_due(void)
{
    uint64_t writes =
        writes_for_keyframe(BLOCK, (struct plx_store_options){.keyframe_log_bytes = 64u << 10});

    CU_ASSERT(writes >= (64u << 10) / 512 && writes < (64u << 10) / 512 + 8);
    writes = writes_for_keyframe(MIB, (struct plx_store_options){0});
    CU_ASSERT(writes >= 16384 / 256 && writes < 16384 / 256 + 8);
}

static void test_unmap_counts(void)
{
    struct plx_thin thin = {0};
    struct plx_thinned thinned;
    struct plx_vdi *vdi;
    uint64_t used;

    make_store(64 * MIB, MIB);
    OK(create_vdi(0, 32 * MIB));
    vdi = open_vdi(0);
    OK(write_byte(vdi, 16 * MIB, 2 * MIB, 1));
    settle_keyframe(vdi);
    used = data_used();
    OK(write_byte(vdi, 0, 2 * MIB, 1));
    settle_keyframe(vdi);
    CU_ASSERT(data_used() > used + 256); /* the disk has a part of a run at hand */
    run(vdi, PLX_UNMAP, 0, MIB);
    OK(write_byte(vdi, MIB, MIB, 0));
    settle_keyframe(vdi);
    CU_ASSERT(data_used() < used + 256);
    OK(write_byte(vdi, 0, 2 * MIB, 2));
    thin.upto = run(vdi, PLX_SNAPSHOT, 0, 0);
    run(vdi, PLX_UNMAP, 0, 2 * MIB);
    settle_keyframe(vdi);
    CU_ASSERT(data_used() > used + 256);
    OK(write_byte(vdi, 16 * MIB, BLOCK, 1));
    run(vdi, PLX_SNAPSHOT, 0, 0);
    settle_keyframe(vdi);
    OK(plx_vdi_thin(vdi, &thin, &thinned, &fault));
    settle();
    CU_ASSERT_EQUAL(thinned.snapshots, 1);
    CU_ASSERT_EQUAL(thinned.blocks, 512 + 1); /* and what was overwritten since */
    CU_ASSERT(data_used() < used + 256);
    OK(plx_vdi_close(vdi)); /* gives back what is left of its run */
    CU_ASSERT_EQUAL(data_used(), 512);
    end_store();
}

/* The disk's place of the only block that holds this byte throughout; 0: none. */
static uint64_t find_block(int byte)
{
    uint8_t *page = malloc(BLOCK), *wanted = malloc(BLOCK);
    uint64_t found = 0;

    memset(wanted, byte, BLOCK);
    for (uint64_t at = 0; at < 64 * MIB && !found; at += BLOCK) {
        plx_simdisk_peek(disk, at, page, BLOCK);
        if (memcmp(page, wanted, BLOCK) == 0)
            found = at;
    }
    free(page);
    free(wanted);
    return found;
}

static void test_checksum(void)
{
    struct plx_vdi_open_options copy = {.epoch = 5, .overwrite = PLX_OVERWRITE_COPY};
    struct plx_vdi *vdi;
    uint64_t at;
    char place[64];

    make_store(64 * MIB, MIB);
    OK(create_vdi(0, 16 * MIB));
    vdi = open_vdi(0);
    OK(write_byte(vdi, 7 * BLOCK, BLOCK, 0x5a));
    at = find_block(0x5a);
    CU_ASSERT_FATAL(at != 0);
    plx_simdisk_flip(disk, at + 1000, 1);
    FAILS(CORRUPT, try_run(vdi, PLX_READ, 7 * BLOCK, BLOCK, NULL));
    snprintf(place, sizeof place, "virtual block 7, store block %llu",
             (unsigned long long)(at / BLOCK));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, place));
    FAILS(CORRUPT, write_byte(vdi, 7 * BLOCK + 512, 512, 1)); /* nor is it merged into */
    CU_ASSERT(reads_as(vdi, 8 * BLOCK, BLOCK, 0));            /* the neighbours live */
    plx_simdisk_flip(disk, at + 1000, 1);
    CU_ASSERT(reads_as(vdi, 7 * BLOCK, BLOCK, 0x5a));
    OK(plx_vdi_close(vdi));
    OK(plx_vdi_open(store, &copy, &vdi, &fault)); /* overwrite=copy: after any overwrite */
    epoch = 5;
    OK(write_byte(vdi, 7 * BLOCK, BLOCK, 0x5b));
    OK(write_byte(vdi, 7 * BLOCK, BLOCK, 0x5c));
    at = find_block(0x5c);
    CU_ASSERT_FATAL(at != 0);
    plx_simdisk_flip(disk, at, 0x80);
    FAILS(CORRUPT, try_run(vdi, PLX_READ, 7 * BLOCK, BLOCK, NULL));
    CU_ASSERT_EQUAL(counters().blocks_in_place, 0);
    OK(plx_vdi_close(vdi));
    end_store();
}

static uint64_t root_addr, data_reads;

static void forget_root(struct plx_simenv *e)
{
    if (counters().device_reads[PLX_KIND_DATA] > data_reads)
        plx_cache_forget(store->cache, root_addr);
    data_reads = counters().device_reads[PLX_KIND_DATA];
}

/* A block that does not match is looked up again, and by then a node of its map is not in
 * memory any more: it is read anew, and the block with it, but not for ever. */
static void test_checksum_evicted(void)
{
    struct plx_vdi *vdi;
    uint64_t at, waited;

    make_store(64 * MIB, MIB);
    OK(create_vdi(0, MIB));
    vdi = open_vdi(0);
    OK(write_byte(vdi, 7 * BLOCK, BLOCK, 0x5a));
    OK(write_byte(vdi, 8 * BLOCK, BLOCK, 0x5b));
    OK(plx_vdi_close(vdi));
    vdi = open_vdi(0);
    root_addr = plx_entry_addr(vdi->map.base.root);
    at = find_block(0x5a);
    CU_ASSERT_FATAL(at != 0);
    plx_simdisk_flip(disk, at + 1000, 1);
    waited = counters().device_reads[PLX_KIND_NODE];
    data_reads = counters().device_reads[PLX_KIND_DATA];
    env.on_tick = forget_root;
    FAILS(CORRUPT, try_run(vdi, PLX_READ, 7 * BLOCK, 2 * BLOCK, NULL));
    CU_ASSERT(counters().device_reads[PLX_KIND_NODE] > waited + 2);
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "virtual block 7"));
    plx_simdisk_flip(disk, at + 1000, 1);
    CU_ASSERT(reads_as(vdi, 7 * BLOCK, BLOCK, 0x5a));
    CU_ASSERT(reads_as(vdi, 8 * BLOCK, BLOCK, 0x5b));
    env.on_tick = NULL;
    OK(plx_vdi_close(vdi));
    check_store(false);
    end_store();
}

/* ---- Requests in many pieces ---- */

/* The request's bytes lie backwards in `buffer`, piece by piece, so that none are adjacent. */
static int run_in_pieces(struct plx_vdi *vdi, enum plx_request_op op, uint64_t offset,
                         uint64_t length, size_t piece)
{
    size_t count = (size_t)length / piece;
    struct iovec *pieces = calloc(count, sizeof *pieces);
    struct plx_request request = {
        .op = op, .offset = offset, .length = length, .iov = pieces, .iovcnt = (int)count};
    int error;

    for (size_t i = 0; i < count; i++)
        pieces[i] = (struct iovec){buffer + (count - 1 - i) * piece, piece};
    error = plx_vdi_run(vdi, &request);
    free(pieces);
    return error;
}

/* Piece n of those backwards, or of those in order, is all of this byte. */
static void fill_pieces(size_t count, size_t piece, unsigned seed, bool backwards)
{
    for (size_t i = 0; i < count; i++)
        memset(buffer + (backwards ? count - 1 - i : i) * piece, (int)((i * 7 + seed) % 251),
               piece);
}

static bool pieces_are(size_t count, size_t piece, unsigned seed, bool backwards)
{
    uint8_t *wanted = malloc(count * piece);
    bool equal;

    memcpy(wanted, buffer, count * piece);
    fill_pieces(count, piece, seed, backwards);
    equal = memcmp(wanted, buffer, count * piece) == 0;
    free(wanted);
    return equal;
}

/* Windows are cut to what an operation has room for, down to one block; less is refused. */
static void test_pieces(void)
{
    static const size_t sizes[] = {2048, 512, 64, 48, 16}; /* 48: across blocks */
    struct plx_vdi *vdi;

    make_store(64 * MIB, MIB);
    OK(create_vdi(0, 16 * MIB));
    vdi = open_vdi(0);
    for (unsigned i = 0; i < 2 * sizeof sizes / sizeof sizes[0]; i++) { /* new, then in place */
        size_t piece = sizes[i / 2], length = piece < 512 ? 15 * BLOCK : 256 * BLOCK;
        size_t count = length / piece;
        uint64_t offset = i / 2 * 2 * MIB;

        fill_pieces(count, piece, i, true);
        OK(run_in_pieces(vdi, PLX_WRITE, offset, length, piece));
        run(vdi, PLX_READ, offset, length);
        CU_ASSERT(pieces_are(count, piece, i, false));
        memset(buffer, 0xff, length);
        OK(run_in_pieces(vdi, PLX_READ, offset, length, piece));
        CU_ASSERT(pieces_are(count, piece, i, true));
    }
    FAILS(INVALID, run_in_pieces(vdi, PLX_WRITE, 0, BLOCK, 8));
    FAILS(INVALID, run_in_pieces(vdi, PLX_READ, 0, BLOCK, 8));
    OK(plx_vdi_close(vdi));
    end_store();
}

/* ---- Space ---- */

/* Extents are given up in any order, and once. */
static void test_giving_up(void)
{
    struct plx_extent_info first, second, info;
    struct plx_vdi *vdi;

    make_store(64 * MIB, MIB);
    OK(create_vdi(0, 16 * MIB));
    vdi = open_vdi(0);
    OK(write_byte(vdi, 0, MIB / 2, 1));
    OK(plx_vdi_close(vdi));
    OK(plx_store_extent_owned(store, 0, &first));
    OK(plx_store_extent_owned(store, 1, &second));
    OK(plx_store_extent_release(store, second.number, &info, &fault));
    FAILS(NOT_FOUND, plx_store_extent_release(store, second.number, &info, &fault));
    OK(plx_store_extent_release(store, first.number, &info, &fault));
    FAILS(NOT_FOUND, plx_store_extent_release(store, 0, &info, &fault));
    end_store();
}

static void note_done(struct plx_request *request)
{
    *(bool *)request->owner = true;
}

/* The superblock that counts the new extents has a mirror (INV-2). */
static void check_mirror(uint64_t extents)
{
    struct plx_store_info info;

    for (unsigned slot = 0; slot < PLX_SUPERBLOCK_SLOTS; slot++) {
        plx_simdisk_flip(disk, slot * BLOCK + 100, 1);
        open_store(2);
        plx_store_get_info(store, &info);
        CU_ASSERT_EQUAL(info.extents, extents);
        OK(plx_store_close(store));
        plx_simdisk_flip(disk, slot * BLOCK + 100, 1);
    }
    store = NULL;
}

/* A write that waits for room gets it from a volume that becomes larger. */
static void test_growing(void)
{
    struct iovec iov = {NULL, 256u << 10};
    struct plx_request request = {
        .op = PLX_WRITE, .length = 256u << 10, .iov = &iov, .iovcnt = 1, .done = note_done};
    struct plx_store_options options = {.instance = 9, .cache_bytes = 1u << 20};
    struct plx_device *device;
    struct plx_store *none;
    struct plx_vdi *vdi;
    bool done = true;

    make_store(8 * MIB, MIB);
    env.gives_way = true;
    OK(create_vdi(0, 64 * MIB));
    vdi = open_vdi(0);
    iov.iov_base = memset(buffer, 5, 256u << 10);
    request.owner = &done;
    for (; done; request.offset += done ? 256u << 10 : 0) {
        done = false;
        plx_vdi_submit(vdi, &request);
        while (!done && (plx_store_busy(store) || !env.room_wanted))
            if (!plx_store_tick(store))
                plx_store_wait(store);
    }
    CU_ASSERT(request.offset >= 4 * MIB);
    plx_simdisk_resize(disk, 11 * MIB + BLOCK);
    grow_elsewhere(11);
    env.gives_way = false;
    while (!done)
        if (!plx_store_tick(store))
            plx_store_wait(store);
    CU_ASSERT_EQUAL(request.result, 0);
    CU_ASSERT(reads_as(vdi, 0, MIB, 5));
    CU_ASSERT(reads_as(vdi, request.offset, 256u << 10, 5));
    OK(write_byte(vdi, request.offset + MIB, MIB, 6));
    OK(plx_vdi_close(vdi));
    OK(plx_store_close(store));
    check_mirror(11);
    plx_simdisk_resize(disk, 11 * MIB - BLOCK);
    device = plx_simdisk_attach(disk, "sim");
    FAILS(CORRUPT, plx_store_open(&device, 1, &options, &env.env, &none, &fault));
    device->ops->close(device);
    end_store();
}

static int run_ahead(struct plx_vdi *vdi, struct plx_request *request)
{
    bool done = false;

    request->owner = &done;
    plx_vdi_submit_ahead(vdi, request);
    while (!done)
        if (!plx_store_tick(store) && !done)
            plx_store_wait(store);
    return request->result;
}

/* More writes than operations wait for history to give way; who would let it go calls the engine,
 * too, so what the engine does for a caller and by itself does not wait behind them. */
static void test_waiting_writes(void)
{
    enum { WRITES = 64 };
    static struct plx_request requests[WRITES];
    static bool done[WRITES];
    static uint8_t moved[PLX_MOVE_BUFFER];
    struct plx_protection every = {.mode = PLX_PROTECT_INTERVAL, .interval_ns = 10000000};
    struct iovec iov = {NULL, 256u << 10};
    struct plx_vdi *vdi;
    unsigned waiting = 0;
    struct plx_move moving = {.windows = 64};
    struct plx_request move = {
        .op = PLX_MOVE, .length = 16 * MIB, .iovcnt = 1, .done = note_done, .move = &moving};
    struct plx_request flush = {.op = PLX_FLUSH, .done = note_done};

    make_store(8 * MIB, MIB);
    env.gives_way = true;
    OK(create_vdi(0, 64 * MIB));
    vdi = open_vdi(0);
    iov.iov_base = memset(buffer, 5, iov.iov_len);
    for (unsigned i = 0; i < WRITES; i++) {
        done[i] = false;
        requests[i] = (struct plx_request){.op = PLX_WRITE,
                                           .offset = i * iov.iov_len,
                                           .length = iov.iov_len,
                                           .iov = &iov,
                                           .iovcnt = 1,
                                           .done = note_done,
                                           .owner = &done[i]};
        plx_vdi_submit(vdi, &requests[i]);
    }
    while (plx_store_tick(store) || plx_store_busy(store))
        plx_store_wait(store);
    for (unsigned i = 0; i < WRITES; i++)
        waiting += !done[i];
    CU_ASSERT(waiting > 16 && waiting < WRITES);
    run(vdi, PLX_SNAPSHOT, 0, 0);
    OK(plx_vdi_set_protection(vdi, &every, &fault));
    move.iov = &(struct iovec){moved, sizeof moved};
    FAILS(NOSPACE, run_ahead(vdi, &move));
    moving.dry_run = true;
    OK(run_ahead(vdi, &move));
    for (unsigned i = 0; i < 4; i++)
        OK(run_ahead(vdi, &flush));
    env.gives_way = false;
    plx_store_room_made(store, true);
    for (unsigned i = 0; i < WRITES; i++) {
        while (!done[i])
            if (!plx_store_tick(store))
                plx_store_wait(store);
        CU_ASSERT(requests[i].result == 0 || requests[i].result == PLX_ERR_NOSPACE);
        if (requests[i].result == 0)
            CU_ASSERT(reads_as(vdi, requests[i].offset, iov.iov_len, 5));
    }
    OK(plx_vdi_close(vdi));
    end_store();
}

static void test_no_space(void)
{
    struct plx_vdi *vdi, *snapshot;
    uint64_t seq, written = 0;
    int error = 0;

    make_store(16 * MIB, MIB);
    OK(create_vdi(0, 64 * MIB));
    vdi = open_vdi(0);
    for (uint64_t at = 0; at < 64 * MIB && !error; at += 256u << 10) {
        error = write_byte(vdi, at, 256u << 10, 9);
        written += error ? 0 : 256u << 10;
    }
    CU_ASSERT_EQUAL(error, PLX_ERR_NOSPACE);
    CU_ASSERT(written >= 6 * MIB);
    OK(write_byte(vdi, 0, BLOCK, 8)); /* in place */
    OK(write_byte(vdi, 0, BLOCK, 9));
    CU_ASSERT(reads_as(vdi, 0, MIB, 9));
    run(vdi, PLX_FLUSH, 0, 0);
    run(vdi, PLX_UNMAP, 0, MIB);
    run(vdi, PLX_KEYFRAME, 0, 0);
    OK(write_byte(vdi, 0, 512u << 10, 7)); /* it came back */
    seq = run(vdi, PLX_SNAPSHOT, 0, 0);
    for (error = 0; !error;) {
        error = write_byte(vdi, written, BLOCK, 9);
        written += BLOCK;
    }
    CU_ASSERT_EQUAL(error, PLX_ERR_NOSPACE);
    FAILS(NOSPACE, write_byte(vdi, 0, BLOCK, 6)); /* shared now: it needs a new block */
    for (unsigned i = 0; i < 50; i++)
        run(vdi, PLX_SNAPSHOT, 0, 0);
    run(vdi, PLX_FLUSH, 0, 0);
    OK(plx_snapshot_open(store, 0, seq, &snapshot, &fault));
    CU_ASSERT(reads_as(snapshot, 0, 512u << 10, 7));
    plx_vdi_abandon(snapshot);
    OK(plx_vdi_close(vdi));
    vdi = open_vdi(0);
    CU_ASSERT(reads_as(vdi, 0, 512u << 10, 7));
    OK(plx_vdi_close(vdi));
    end_store();
}

/* ---- Moving ---- */

/* Blocks [first, first + count) from the last to the first, each full of its number. */
static void write_backwards(struct plx_vdi *vdi, uint64_t first, uint64_t count)
{
    for (uint64_t b = first + count; b-- > first;)
        OK(write_byte(vdi, b * BLOCK, BLOCK, (int)(b % 251 + 1)));
}

static bool reads_numbers(struct plx_vdi *vdi, uint64_t first, uint64_t count)
{
    bool good = true;

    for (uint64_t b = first; b < first + count && good; b++)
        good = reads_as(vdi, b * BLOCK, BLOCK, (int)(b % 251 + 1));
    return good;
}

static int move(struct plx_vdi *vdi, struct plx_move *move, uint64_t offset, uint64_t length)
{
    struct iovec iov = {buffer, PLX_MOVE_BUFFER};
    struct plx_request request = {
        .op = PLX_MOVE, .offset = offset, .length = length, .iov = &iov, .iovcnt = 1, .move = move};
    int error = plx_vdi_run(vdi, &request);

    if (error)
        fault = request.fault;
    return error;
}

static void test_move(void)
{
    struct plx_move would = {.windows = 100, .dry_run = true}, moved = {.windows = 100},
                    again = {.windows = 100};
    struct plx_counters before, a, b;
    struct plx_vdi *vdi;

    make_store(128 * MIB, 4 * MIB);
    OK(create_vdi(0, 8 * MIB));
    vdi = open_vdi(0);
    OK(write_byte(vdi, 4 * MIB, 2 * MIB, 7)); /* lies well already */
    write_backwards(vdi, 100, 300);
    run(vdi, PLX_KEYFRAME, 0, 0);
    before = counters();
    OK(move(vdi, &would, 0, 8 * MIB));
    CU_ASSERT_EQUAL(would.mapped, 300 + 512);
    CU_ASSERT_EQUAL(would.moved, 300);
    CU_ASSERT_EQUAL(would.runs_before, 300 + 2);
    CU_ASSERT_EQUAL(would.runs_after, 2 + 2);
    CU_ASSERT_EQUAL(would.upto, 8 * MIB);
    a = counters();
    CU_ASSERT_EQUAL(all_writes(&a), all_writes(&before));
    CU_ASSERT_EQUAL(a.device_reads[PLX_KIND_DATA], before.device_reads[PLX_KIND_DATA]);
    OK(move(vdi, &moved, 0, 8 * MIB));
    b = counters();
    CU_ASSERT_EQUAL(moved.moved, 300);
    CU_ASSERT_EQUAL(moved.runs_after, 4);
    CU_ASSERT_EQUAL(b.device_reads[PLX_KIND_DATA] - a.device_reads[PLX_KIND_DATA], 300);
    CU_ASSERT_EQUAL(b.device_writes[PLX_KIND_DATA] - a.device_writes[PLX_KIND_DATA], 2);
    CU_ASSERT_EQUAL(b.device_writes[PLX_KIND_LOG] - a.device_writes[PLX_KIND_LOG], 2);
    CU_ASSERT(reads_numbers(vdi, 100, 300));
    OK(move(vdi, &again, 0, 8 * MIB));
    CU_ASSERT_EQUAL(again.moved, 0);
    CU_ASSERT_EQUAL(again.runs_before, 4);
    run(vdi, PLX_KEYFRAME, 0, 0);
    settle();
    b = counters();
    CU_ASSERT_EQUAL(b.blocks_freed - a.blocks_freed >= 300, true); /* the old places, and nodes */
    CU_ASSERT_EQUAL(b.data_free_blocks, before.data_free_blocks);
    OK(write_byte(vdi, 100 * BLOCK, BLOCK, 99)); /* in place, at the new one */
    CU_ASSERT(reads_as(vdi, 100 * BLOCK, BLOCK, 99));
    OK(plx_vdi_close(vdi));
    vdi = open_vdi(0);
    CU_ASSERT(reads_as(vdi, 100 * BLOCK, BLOCK, 99));
    CU_ASSERT(reads_numbers(vdi, 101, 299));
    CU_ASSERT(reads_as(vdi, 4 * MIB, 2 * MIB, 7));
    OK(plx_vdi_close(vdi));
    end_store();
}

static void test_move_shared(void)
{
    struct plx_move moved = {.windows = 100};
    struct plx_vdi *vdi, *snapshot;
    uint64_t seq;

    make_store(128 * MIB, 4 * MIB);
    OK(create_vdi(0, 8 * MIB));
    vdi = open_vdi(0);
    write_backwards(vdi, 0, 64);
    seq = run(vdi, PLX_SNAPSHOT, 0, 0);
    write_backwards(vdi, 10, 20);
    OK(move(vdi, &moved, 0, 8 * MIB));
    CU_ASSERT_EQUAL(moved.mapped, 64);
    CU_ASSERT_EQUAL(moved.shared, 44);
    CU_ASSERT_EQUAL(moved.moved, 20);
    CU_ASSERT_EQUAL(moved.runs_before, 64);
    CU_ASSERT_EQUAL(moved.runs_after, 45);
    CU_ASSERT(reads_numbers(vdi, 0, 64));
    run(vdi, PLX_KEYFRAME, 0, 0);
    OK(plx_snapshot_open(store, 0, seq, &snapshot, &fault));
    CU_ASSERT(reads_numbers(snapshot, 0, 64));
    plx_vdi_abandon(snapshot);
    OK(plx_vdi_close(vdi));
    end_store();
}

/* Between what stays: many pieces of one transfer. */
static void test_move_pieces(void)
{
    struct plx_move moved = {.windows = 100};
    struct plx_counters a, b;
    struct plx_vdi *vdi;

    make_store(128 * MIB, 4 * MIB);
    OK(create_vdi(0, 8 * MIB));
    vdi = open_vdi(0);
    write_backwards(vdi, 0, 256);
    run(vdi, PLX_SNAPSHOT, 0, 0);
    for (uint64_t at = 256; at > 0; at -= 4)
        write_backwards(vdi, at - 4, 3);
    a = counters();
    OK(move(vdi, &moved, 0, MIB));
    b = counters();
    CU_ASSERT_EQUAL(moved.mapped, 256);
    CU_ASSERT_EQUAL(moved.moved, 192);
    CU_ASSERT_EQUAL(b.device_writes[PLX_KIND_DATA] - a.device_writes[PLX_KIND_DATA], 1);
    CU_ASSERT(reads_numbers(vdi, 0, 256));
    OK(plx_vdi_close(vdi));
    vdi = open_vdi(0);
    CU_ASSERT(reads_numbers(vdi, 0, 256));
    OK(plx_vdi_close(vdi));
    end_store();
}

/* One of the first reads fails, and no checksum tells what it has brought: nothing is moved. */
static void test_move_unreadable(void)
{
    struct plx_move moved = {.windows = 100};
    struct plx_vdi *vdi;
    uint64_t at;

    make_store(128 * MIB, 4 * MIB);
    OK(create_vdi(0, 8 * MIB));
    vdi = open_vdi(0);
    write_backwards(vdi, 0, 256);
    OK(write_byte(vdi, 10 * BLOCK, BLOCK, 254)); /* in place */
    at = find_block(254);
    CU_ASSERT_FATAL(at != 0);
    plx_simdisk_fail_range(disk, at, BLOCK, true, false);
    FAILS(IO_READ, move(vdi, &moved, 0, MIB));
    CU_ASSERT_EQUAL(moved.moved, 0);
    plx_simdisk_heal(disk);
    CU_ASSERT(reads_as(vdi, 10 * BLOCK, BLOCK, 254));
    OK(move(vdi, &moved, 0, MIB));
    CU_ASSERT_EQUAL(moved.moved, 256);
    CU_ASSERT(reads_as(vdi, 10 * BLOCK, BLOCK, 254));
    CU_ASSERT(reads_numbers(vdi, 11, 245));
    OK(plx_vdi_close(vdi));
    end_store();
}

/* Large, mostly empty: what is not in the tree is passed over, what is only in memory is not. */
static void test_move_sparse(void)
{
    struct plx_move moved = {.windows = 5000, .blocks = 1};
    struct plx_vdi *vdi;

    make_store(128 * MIB, 4 * MIB);
    OK(create_vdi(0, 4ull << 40));
    vdi = open_vdi(0);
    write_backwards(vdi, 5, 10);
    write_backwards(vdi, (1ull << 28) + 300, 10);
    run(vdi, PLX_KEYFRAME, 0, 0);
    write_backwards(vdi, (1ull << 27) + 300, 10);
    OK(move(vdi, &moved, 0, 4ull << 40)); /* so much at least, in whole windows */
    CU_ASSERT_EQUAL(moved.moved, 10);
    CU_ASSERT_EQUAL(moved.upto, MIB);
    moved.blocks = 0;
    OK(move(vdi, &moved, MIB, (4ull << 40) - MIB));
    CU_ASSERT_EQUAL(moved.upto, 4ull << 40);
    CU_ASSERT_EQUAL(moved.moved, 30);
    CU_ASSERT_EQUAL(moved.runs_after, 3);
    OK(plx_vdi_close(vdi));
    end_store();
}

static void test_move_damaged(void)
{
    struct plx_move moved = {.windows = 100};
    struct plx_vdi *vdi;
    uint64_t at;

    make_store(128 * MIB, 4 * MIB);
    OK(create_vdi(0, 8 * MIB));
    vdi = open_vdi(0);
    write_backwards(vdi, 0, 100);
    write_backwards(vdi, 301, 55);
    OK(write_byte(vdi, 300 * BLOCK, BLOCK, 254));
    write_backwards(vdi, 256, 44);
    write_backwards(vdi, 512, 100);
    at = find_block(254);
    CU_ASSERT_FATAL(at != 0);
    plx_simdisk_flip(disk, at + 1000, 1);
    FAILS(CORRUPT, move(vdi, &moved, 0, 8 * MIB));
    CU_ASSERT_EQUAL(moved.upto, 2 * MIB); /* behind it */
    CU_ASSERT_EQUAL(moved.moved, 100);
    OK(move(vdi, &moved, 2 * MIB, 6 * MIB));
    CU_ASSERT_EQUAL(moved.moved, 200);
    CU_ASSERT(reads_numbers(vdi, 256, 44));
    plx_simdisk_flip(disk, at + 1000, 1);
    CU_ASSERT(reads_as(vdi, 300 * BLOCK, BLOCK, 254));
    OK(plx_vdi_close(vdi));
    end_store();
}

/* It leaves to writes what they may need, and writes go on. */
static void test_move_no_space(void)
{
    struct plx_move moved = {.windows = 100};
    struct plx_vdi *vdi;
    int error = 0;
    uint64_t at;

    make_store(16 * MIB, MIB);
    OK(create_vdi(0, 64 * MIB));
    vdi = open_vdi(0);
    write_backwards(vdi, 0, 200);
    for (at = 4 * MIB; at < 64 * MIB && !error; at += 32 * BLOCK)
        error = write_byte(vdi, at, 32 * BLOCK, 9);
    CU_ASSERT_EQUAL(error, PLX_ERR_NOSPACE);
    run(vdi, PLX_UNMAP, 4 * MIB, 64 * BLOCK);
    run(vdi, PLX_KEYFRAME, 0, 0);
    FAILS(NOSPACE, move(vdi, &moved, 0, 8 * MIB));
    CU_ASSERT_EQUAL(moved.upto, 0);
    CU_ASSERT_EQUAL(moved.moved, 0);
    OK(write_byte(vdi, 4 * MIB, 32 * BLOCK, 9));
    CU_ASSERT(reads_numbers(vdi, 0, 200));
    OK(plx_vdi_close(vdi));
    end_store();
}

static unsigned gone_again;

/* The extent that was asked for never comes, and whatever becomes free is taken by others. */
static void wake_in_vain(struct plx_simenv *e)
{
    if (!e->asked[PLX_EXTENT_DATA])
        return;
    e->delay[PLX_EXTENT_DATA] = 100;
    gone_again += store->space_waiters.head != NULL;
    plx_alloc_wake(store);
}

/* A move does not wait for ever for room that others take: writes may need it. They go on. */
static void test_move_gives_up(void)
{
    struct plx_move moved = {.windows = 100}, again = {.windows = 100};
    struct plx_vdi *vdi;

    make_store(32 * MIB, MIB);
    OK(create_vdi(0, 64 * MIB));
    vdi = open_vdi(0);
    write_backwards(vdi, 0, 200);
    settle();
    env.grant_later = true;
    env.on_tick = wake_in_vain;
    for (unsigned i = 0; counters().data_free_blocks > 150; i++) /* but for a little */
        OK(write_byte(vdi, 4 * MIB + i * BLOCK, BLOCK, 9));
    gone_again = 0;
    FAILS(NOSPACE, move(vdi, &moved, 0, 8 * MIB));
    CU_ASSERT_EQUAL(moved.moved, 0);
    CU_ASSERT_EQUAL(moved.upto, 0);
    CU_ASSERT(gone_again >= 256);
    CU_ASSERT(reads_numbers(vdi, 0, 200));
    env.on_tick = NULL;
    OK(move(vdi, &again, 0, 8 * MIB)); /* now there is one */
    CU_ASSERT(again.moved >= 128);
    CU_ASSERT_EQUAL(again.upto, 8 * MIB);
    CU_ASSERT(reads_numbers(vdi, 0, 200));
    env.grant_later = false;
    OK(plx_vdi_close(vdi));
    check_store(false);
    end_store();
}

/* Who cannot wait for an extent is told so at once, and gets what there is when it has come. */
static void test_never_waits(void)
{
    uint64_t addr, count = 0;

    make_store(16 * MIB, MIB);
    FAILS(NOSPACE, plx_alloc_run(store, PLX_EXTENT_DATA, 7, NULL, &addr, &count));
    CU_ASSERT_PTR_NULL(store->space_waiters.head);
    while (!plx_alloc_free_blocks(store, PLX_EXTENT_DATA))
        if (!plx_store_tick(store))
            plx_store_wait(store);
    OK(plx_alloc_run(store, PLX_EXTENT_DATA, 7, NULL, &addr, &count));
    CU_ASSERT_EQUAL(count, 7);
    plx_alloc_free(store, addr, count);
    check_store(false);
    end_store();
}

static void test_move_refusals(void)
{
    struct plx_move moved = {.windows = 1};
    struct plx_request request = {.op = PLX_MOVE, .length = MIB, .move = &moved};
    struct plx_vdi *vdi, *snapshot;
    uint64_t seq;

    make_store(128 * MIB, 4 * MIB);
    OK(create_vdi(0, 8 * MIB));
    vdi = open_vdi(0);
    OK(write_byte(vdi, 0, BLOCK, 1));
    OK(write_byte(vdi, 4 * MIB, BLOCK, 1));
    seq = run(vdi, PLX_SNAPSHOT, 0, 0);
    FAILS(INVALID, plx_vdi_run(vdi, &request)); /* no memory to work with */
    request.iov = &(struct iovec){buffer, PLX_MOVE_BUFFER - 1};
    request.iovcnt = 1;
    FAILS(INVALID, plx_vdi_run(vdi, &request)); /* not enough */
    FAILS(INVALID, move(vdi, &moved, 512, MIB));
    FAILS(INVALID, move(vdi, &moved, 0, 512));
    FAILS(RANGE, move(vdi, &moved, 4 * MIB, 5 * MIB));
    FAILS(RANGE, move(vdi, &moved, 9 * MIB, MIB));
    OK(move(vdi, &moved, 0, 8 * MIB)); /* no more windows than it is told */
    CU_ASSERT_EQUAL(moved.upto, 4 * MIB);
    OK(plx_snapshot_open(store, 0, seq, &snapshot, &fault));
    FAILS(READONLY, move(snapshot, &moved, 0, MIB));
    plx_vdi_abandon(snapshot);
    OK(plx_vdi_close(vdi));
    end_store();
}

/* ---- Snapshots, clones, sizes ---- */

static unsigned finished;

static void count_done(struct plx_request *request)
{
    finished += request->result == 0;
}

static void test_snapshot_does_not_drain(void)
{
    struct plx_request writes[12] = {0}, snapshot = {.op = PLX_SNAPSHOT, .done = count_done};
    struct iovec iovs[12];
    struct plx_vdi *vdi;

    make_store(64 * MIB, MIB);
    OK(create_vdi(0, 32 * MIB));
    vdi = open_vdi(0);
    memset(buffer, 3, MIB);
    finished = 0;
    for (unsigned i = 0; i < 12; i++) {
        iovs[i] = (struct iovec){buffer, 64u << 10};
        writes[i] = (struct plx_request){.op = PLX_WRITE,
                                         .offset = i * MIB,
                                         .length = 64u << 10,
                                         .iov = &iovs[i],
                                         .iovcnt = 1,
                                         .done = count_done};
        if (i == 6)
            plx_vdi_submit(vdi, &snapshot);
        plx_vdi_submit(vdi, &writes[i]);
    }
    CU_ASSERT_EQUAL(finished, 0);
    /* All of it is under way at once: data of all writes is submitted before anything ended. */
    plx_store_tick(store);
    settle();
    while (finished < 13)
        if (!plx_store_tick(store))
            plx_store_wait(store);
    CU_ASSERT(counters().batches <= 13);
    CU_ASSERT_EQUAL(snapshot.seq, 1);
    OK(plx_vdi_close(vdi));
    end_store();
}

/* An overwrite in place under way belongs to the snapshot; the next one, before which nothing was
 * written, is the same instant: neither is whole before that overwrite has ended. */
static void test_idle_snapshot_waits(void)
{
    for (unsigned round = 0; round < 200; round++) {
        struct plx_request write = {.op = PLX_WRITE, .length = MIB, .done = count_done};
        struct plx_request first = {.op = PLX_SNAPSHOT, .done = count_done};
        struct plx_request second = {.op = PLX_SNAPSHOT, .done = count_done};
        struct iovec iov;
        struct plx_vdi *vdi;

        fixture.disk.seed = round;
        fixture.disk.stalls = 30;
        make_store(64 * MIB, MIB);
        OK(create_vdi(0, 32 * MIB));
        vdi = open_vdi(0);
        OK(write_byte(vdi, 0, MIB, 1));
        OK(write_byte(vdi, 0, MIB, 2)); /* in place from now on */
        finished = 0;
        iov = (struct iovec){buffer, MIB};
        write.iov = &iov;
        write.iovcnt = 1;
        write.result = first.result = second.result = 1;
        plx_vdi_submit(vdi, &write);
        plx_vdi_submit(vdi, &first);
        for (unsigned i = 0; i < round / 4 && finished < 2; i++)
            if (!plx_store_tick(store))
                plx_store_wait(store);
        plx_vdi_submit(vdi, &second);
        while (second.result == 1) {
            CU_ASSERT(write.result <= 0 || first.result == 1);
            if (!plx_store_tick(store))
                plx_store_wait(store);
        }
        CU_ASSERT_EQUAL(write.result, 0);
        while (finished < 3)
            if (!plx_store_tick(store))
                plx_store_wait(store);
        OK(plx_vdi_close(vdi));
        end_store();
    }
    fixture.disk.seed = 42;
    fixture.disk.stalls = 0;
}

static bool count_snapshot(void *context, const struct plx_snapshot_info *info)
{
    ++*(unsigned *)context;
    return true;
}

static void expect_instant(uint64_t seq, int byte);

/* ---- Continuous protection ---- */

#define MS 1000000ull

static void protect(struct plx_vdi *vdi, enum plx_protection_mode mode, uint64_t interval_ns)
{
    struct plx_protection protection = {
        .mode = mode, .interval_ns = interval_ns, .tiers = 1, .tier = {{0, 3600000 * MS}}};

    OK(plx_vdi_set_protection(vdi, &protection, &fault));
}

/* Lets time pass in turns of a millisecond. */
static void pass(uint64_t ms)
{
    for (; ms; ms--) {
        env.ns += MS;
        plx_store_tick(store);
        settle();
    }
}

static uint64_t automatic(void)
{
    return counters().snapshots_automatic;
}

static unsigned listed(uint32_t slot)
{
    unsigned count = 0;

    OK(plx_snapshot_list(store, slot, 0, count_snapshot, &count, &fault));
    return count;
}

static void test_protect_interval(void)
{
    struct plx_counters before, after;
    struct plx_vdi *vdi;

    make_store(128 * MIB, MIB);
    OK(create_vdi(0, 64 * MIB));
    vdi = open_vdi(0);
    protect(vdi, PLX_PROTECT_INTERVAL, 10 * MS);
    before = counters(); /* idle: no record, no I/O, no turn of the loop */
    CU_ASSERT_EQUAL(plx_store_due_ns(store), UINT64_MAX);
    pass(1000);
    after = counters();
    CU_ASSERT_EQUAL(all_writes(&after), all_writes(&before));
    CU_ASSERT_EQUAL(listed(0), 1); /* the one that setting it took */
    OK(write_byte(vdi, 0, BLOCK, 1));
    pass(25); /* due after ten, and logged alone when nothing else was in another ten */
    CU_ASSERT_EQUAL(automatic(), 2);
    CU_ASSERT_EQUAL(listed(0), 2);
    before = counters(); /* the first after a pause: data, and a batch of both records */
    OK(write_byte(vdi, 0, BLOCK, 2));
    settle();
    after = counters();
    CU_ASSERT_EQUAL(all_writes(&after) - all_writes(&before), 2);
    CU_ASSERT_EQUAL(automatic(), 3);
    before = counters(); /* the next: data, its record, later the snapshot's */
    OK(write_byte(vdi, 0, BLOCK, 2));
    CU_ASSERT(plx_store_due_ns(store) != UINT64_MAX);
    pass(25);
    after = counters();
    CU_ASSERT_EQUAL(all_writes(&after) - all_writes(&before), 3);
    CU_ASSERT_EQUAL(after.blocks_in_place, before.blocks_in_place);
    before = after; /* under load: one in ten milliseconds, in the batches of the writes */
    for (unsigned i = 0; i < 1000; i++) {
        OK(write_byte(vdi, (i % 100) * BLOCK, BLOCK, 1 + (int)i % 200));
        pass(1);
    }
    pass(25);
    after = counters();
    CU_ASSERT_EQUAL(after.batches - before.batches, 1001); /* and the last one */
    CU_ASSERT_EQUAL(after.batch_bytes - before.batch_bytes, 1001 * 512);
    CU_ASSERT_EQUAL(after.snapshot_bytes - before.snapshot_bytes, 512);
    CU_ASSERT(after.device_flushes - before.device_flushes < 1020); /* extents come, too */
    CU_ASSERT(automatic() >= 95 && automatic() <= 125);
    CU_ASSERT_EQUAL(listed(0), automatic());
    CU_ASSERT_EQUAL(counters().snapshots_skipped, 0);
    OK(plx_vdi_close(vdi));
    end_store();
}

/* The record of an interval's snapshot waits for company: not for long, and nobody waits for it. */
static void test_protect_shares(void)
{
    struct plx_vdi *vdi;
    uint64_t before;

    make_store(128 * MIB, MIB);
    OK(create_vdi(0, 64 * MIB));
    vdi = open_vdi(0);
    protect(vdi, PLX_PROTECT_INTERVAL, 5000 * MS);
    for (unsigned i = 0; i < 3; i++) {
        OK(write_byte(vdi, 0, BLOCK, 1 + (int)i));
        env.ns += 5000 * MS;
        pass(10); /* ordered */
        CU_ASSERT_EQUAL(automatic(), 1 + i);
        CU_ASSERT(plx_store_due_ns(store) < env.ns + 1000 * MS);
        before = env.ns;
        switch (i) {
        case 0: /* left alone for a second */
            pass(1000);
            break;
        case 1: /* a key frame */
            run(vdi, PLX_KEYFRAME, 0, 0);
            CU_ASSERT(env.ns - before < 10 * MS);
            break;
        case 2: /* its end */
            protect(vdi, PLX_PROTECT_OFF, 0);
            CU_ASSERT(env.ns - before < 10 * MS);
            break;
        }
        CU_ASSERT_EQUAL(automatic(), 2 + i);
        CU_ASSERT_EQUAL(listed(0), 2 + i);
    }
    protect(vdi, PLX_PROTECT_INTERVAL, 5000 * MS);
    OK(write_byte(vdi, 0, BLOCK, 9));
    env.ns += 5000 * MS;
    pass(10);
    before = env.ns;
    OK(plx_vdi_close(vdi)); /* its last state is that instant */
    CU_ASSERT(env.ns - before < 10 * MS);
    CU_ASSERT_EQUAL(listed(0), 5);
    expect_instant(5, 9);
    end_store();
}

static unsigned blocks_written(struct plx_vdi *vdi, unsigned blocks)
{
    unsigned count = 0;

    run(vdi, PLX_READ, 0, (uint64_t)blocks * BLOCK);
    for (unsigned i = 0; i < blocks; i++)
        count += buffer[i * BLOCK] != 0;
    return count;
}

static void submit_writes(struct plx_vdi *vdi, struct plx_request *writes, struct iovec *iovs,
                          unsigned count, bool turn)
{
    memset(buffer, 9, BLOCK);
    finished = 0;
    for (unsigned i = 0; i < count; i++) {
        iovs[i] = (struct iovec){buffer, BLOCK};
        writes[i] = (struct plx_request){.op = PLX_WRITE,
                                         .offset = i * BLOCK,
                                         .length = BLOCK,
                                         .iov = &iovs[i],
                                         .iovcnt = 1,
                                         .done = count_done};
        plx_vdi_submit(vdi, &writes[i]);
        if (turn)
            plx_store_tick(store);
    }
    while (finished < count)
        if (!plx_store_tick(store))
            plx_store_wait(store);
}

static unsigned told_left_out(void)
{
    unsigned told = 0;

    for (unsigned i = 0; i < env.event_count && i < PLX_SIMENV_EVENTS; i++)
        told += strstr(env.events[i], "left out") != NULL;
    return told;
}

/* One that falls due while another is under way comes late, and is not left out: whenever a write
 * comes, and although each takes some milliseconds. */
static void test_protect_late(void)
{
    struct iovec iov = {buffer, BLOCK};
    struct plx_vdi *vdi;
    uint64_t begin;

    make_store(128 * MIB, MIB);
    OK(create_vdi(0, 64 * MIB));
    vdi = open_vdi(0);
    protect(vdi, PLX_PROTECT_INTERVAL, 10 * MS);
    memset(buffer, 9, BLOCK);
    begin = env.ns;
    for (unsigned i = 0; i < 300; i++) {
        struct plx_request write = {.op = PLX_WRITE,
                                    .offset = i % 50 * BLOCK,
                                    .length = BLOCK,
                                    .iov = &iov,
                                    .iovcnt = 1,
                                    .done = count_done};

        finished = 0;
        plx_vdi_submit(vdi, &write);
        for (unsigned ms = 0; ms < 1 + i % 13 || !finished; ms++) {
            env.ns += MS;
            plx_store_tick(store);
        }
    }
    CU_ASSERT(automatic() >= (env.ns - begin) / (10 * MS) * 9 / 10);
    CU_ASSERT_EQUAL(counters().snapshots_skipped, 0);
    CU_ASSERT_EQUAL(told_left_out(), 0);
    OK(plx_vdi_close(vdi));
    end_store();
}

/* When one takes longer than the interval, those that are due meanwhile are left out and counted,
 * and that is told, once. */
static void test_protect_skips(void)
{
    static struct plx_request writes[100];
    static struct iovec iovs[100];
    struct plx_vdi *vdi;
    uint64_t before;

    make_store(128 * MIB, MIB);
    OK(create_vdi(0, 64 * MIB));
    vdi = open_vdi(0);
    protect(vdi, PLX_PROTECT_INTERVAL, MS);
    env.step_ns = MS; /* the device takes many intervals */
    submit_writes(vdi, writes, iovs, 100, true);
    CU_ASSERT(automatic() > 0 && automatic() <= 100);
    CU_ASSERT(counters().snapshots_skipped > 0);
    CU_ASSERT_EQUAL(told_left_out(), 1);
    env.ns += 61000 * MS; /* a pause leaves nothing out */
    before = counters().snapshots_skipped;
    env.step_ns = 0;
    OK(write_byte(vdi, 0, BLOCK, 7));
    pass(5);
    CU_ASSERT_EQUAL(counters().snapshots_skipped, before);
    env.step_ns = MS;
    submit_writes(vdi, writes, iovs, 100, true);
    CU_ASSERT_EQUAL(told_left_out(), 2);
    OK(plx_vdi_close(vdi));
    end_store();
}

/* Each write at once with others is an instant of its own; of a batch there is one. */
static void test_protect_writes(void)
{
    static struct plx_request writes[12];
    static struct iovec iovs[12];
    struct plx_counters before, after;
    struct plx_vdi *vdi, *instant;

    make_store(128 * MIB, MIB);
    OK(create_vdi(0, 64 * MIB));
    vdi = open_vdi(0);
    protect(vdi, PLX_PROTECT_WRITE, 0);
    before = counters();
    submit_writes(vdi, writes, iovs, 12, false);
    after = counters();
    CU_ASSERT(after.batches - before.batches <= 2);
    CU_ASSERT_EQUAL(after.snapshots_automatic - before.snapshots_automatic, 12);
    CU_ASSERT(after.snapshot_bytes - before.snapshot_bytes < 12 * 64);
    CU_ASSERT_EQUAL(listed(0), 13);
    for (unsigned i = 0; i <= 12; i++) {
        OK(plx_snapshot_open(store, 0, i + 1, &instant, &fault));
        CU_ASSERT_EQUAL(blocks_written(instant, 12), i);
        OK(plx_vdi_close(instant));
    }
    protect(vdi, PLX_PROTECT_BATCH, 0); /* nothing changed: no further snapshot for that */
    before = counters();
    submit_writes(vdi, writes, iovs, 12, false);
    after = counters();
    CU_ASSERT_EQUAL(after.blocks_in_place, 0);
    CU_ASSERT_EQUAL(after.snapshots_automatic - before.snapshots_automatic,
                    after.batches - before.batches);
    before = counters();
    run(vdi, PLX_UNMAP, 0, 12 * BLOCK);
    after = counters();
    CU_ASSERT_EQUAL(after.snapshots_automatic - before.snapshots_automatic, 1);
    CU_ASSERT_EQUAL(all_writes(&after) - all_writes(&before), 1);
    protect(vdi, PLX_PROTECT_OFF, 0);
    OK(write_byte(vdi, 0, BLOCK, 1));
    OK(write_byte(vdi, 0, BLOCK, 2));
    CU_ASSERT(counters().blocks_in_place > 0);
    OK(plx_vdi_close(vdi));
    end_store();
}

static void test_protect_restart(void)
{
    struct plx_vdi_info info;
    struct plx_vdi *vdi;
    uint64_t count;

    make_store(128 * MIB, MIB);
    OK(create_vdi(0, 64 * MIB));
    vdi = open_vdi(0);
    protect(vdi, PLX_PROTECT_INTERVAL, 10 * MS);
    OK(write_byte(vdi, 0, BLOCK, 1));
    OK(plx_vdi_close(vdi)); /* the last state is an instant */
    count = listed(0);
    CU_ASSERT_EQUAL(count, 2);
    OK(plx_vdi_read_info(store, 0, &info, &fault));
    CU_ASSERT_EQUAL(info.protection.mode, PLX_PROTECT_INTERVAL);
    CU_ASSERT_EQUAL(info.protection.interval_ns, 10 * MS);
    CU_ASSERT_EQUAL(info.protection.tiers, 1);
    CU_ASSERT_EQUAL(info.protection.tier[0].keep_ns, 3600000 * MS);
    for (unsigned i = 0; i < 3; i++) { /* to open it changes nothing */
        vdi = open_vdi(0);
        pass(100);
        OK(plx_vdi_close(vdi));
    }
    CU_ASSERT_EQUAL(listed(0), count);
    vdi = open_vdi(0);
    OK(write_byte(vdi, 0, BLOCK, 2));
    pass(20);
    CU_ASSERT_EQUAL(listed(0), count + 1);
    OK(clone_vdi(1, 0, count));
    OK(plx_vdi_read_info(store, 1, &info, &fault));
    CU_ASSERT_EQUAL(info.protection.mode, PLX_PROTECT_OFF);
    CU_ASSERT_EQUAL(info.protection.tiers, 0);
    OK(plx_vdi_close(vdi));
    end_store();
}

/* A disk that has stopped is closed without its last snapshot; nothing else is lost of it. */
static void test_protect_stopped(void)
{
    struct plx_vdi *vdi;

    make_store(64 * MIB, MIB);
    OK(create_vdi(0, 16 * MIB));
    vdi = open_vdi(0);
    protect(vdi, PLX_PROTECT_INTERVAL, 1000 * MS);
    OK(write_byte(vdi, 0, BLOCK, 7));
    plx_log_stop(&vdi->log, PLX_ERR_STICKY, 0);
    FAILS(STICKY, plx_vdi_close(vdi));
    OK(try_open_vdi(0, true, &vdi));
    CU_ASSERT_EQUAL(listed(0), 1);
    CU_ASSERT(reads_as(vdi, 0, BLOCK, 7));
    OK(plx_vdi_close(vdi));
    CU_ASSERT_EQUAL(listed(0), 2);
    check_store(true);
    end_store();
}

static void test_protect_refusals(void)
{
    static const struct plx_protection bad[] = {
        {.mode = PLX_PROTECT_INTERVAL, .interval_ns = MS - 1},
        {.mode = PLX_PROTECT_INTERVAL, .interval_ns = PLX_INTERVAL_MAX_NS + 1},
        {.mode = PLX_PROTECT_WRITE, .interval_ns = MS},
        {.mode = PLX_PROTECT_WRITE + 1},
        {.tiers = PLX_TIERS_MAX + 1},
        {.tiers = 1, .tier = {{MS, 0}}},
        {.tiers = 1, .tier = {{2 * MS, MS}}},
        {.tiers = 2, .tier = {{0, 2 * MS}, {0, 3 * MS}}},
        {.tiers = 2, .tier = {{0, 2 * MS}, {MS, 2 * MS}}},
    };
    struct plx_protection none = {0};
    struct plx_vdi *vdi;
    uint64_t seq;

    make_store(64 * MIB, MIB);
    OK(create_vdi(0, 16 * MIB));
    vdi = open_vdi(0);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        FAILS(INVALID, plx_vdi_set_protection(vdi, &bad[i], &fault));
    seq = run(vdi, PLX_SNAPSHOT, 0, 0);
    OK(plx_vdi_close(vdi));
    OK(plx_snapshot_open(store, 0, seq, &vdi, &fault));
    FAILS(READONLY, plx_vdi_set_protection(vdi, &none, &fault));
    OK(plx_vdi_close(vdi));
    end_store();
}

/* Of v0, which is closed. */
static void edit_record(void (*edit)(struct plx_vdi_record *record, uint64_t number),
                        uint64_t number)
{
    uint64_t at = PLX_VDI_TABLE_BLOCK * BLOCK;
    struct plx_vdi_record record;
    struct plx_store_info info;

    plx_store_get_info(store, &info);
    for (unsigned i = 0; i < 2; i++) {
        plx_simdisk_peek(disk, at + i * BLOCK, buffer, BLOCK);
        OK(plx_format_vdi_record_decode(buffer, &info.id, 0, UINT32_MAX, &record, &fault));
        edit(&record, number);
        plx_format_vdi_record_encode(&info.id, &record, buffer);
        plx_simdisk_poke(disk, at + i * BLOCK, buffer, BLOCK);
    }
}

static void set_mapped(struct plx_vdi_record *record, uint64_t blocks)
{
    record->keyframe.mapped = blocks;
}

static uint64_t mapped_blocks(struct plx_vdi *vdi)
{
    struct plx_vdi_info info;

    run(vdi, PLX_KEYFRAME, 0, 0);
    plx_vdi_get_info(vdi, &info);
    return info.mapped_blocks;
}

/* Whatever the record says that is mapped: what cannot be counted on is not. */
static void test_wrong_count(void)
{
    static const uint64_t wrong[] = {PLX_MAPPED_UNKNOWN, MIB / BLOCK};

    make_store(64 * MIB, MIB);
    OK(create_vdi(0, MIB));
    for (unsigned i = 0; i < 2; i++) {
        struct plx_vdi *vdi = open_vdi(0);

        OK(write_byte(vdi, 2 * i * BLOCK, BLOCK, 1));
        OK(plx_vdi_close(vdi));
        edit_record(set_mapped, wrong[i]);
        vdi = open_vdi(0);
        OK(write_byte(vdi, (2 * i + 1) * BLOCK, BLOCK, 1));
        CU_ASSERT_EQUAL(mapped_blocks(vdi), PLX_MAPPED_UNKNOWN);
        CU_ASSERT(reads_as(vdi, 0, 2 * (i + 1) * BLOCK, 1));
        OK(plx_vdi_close(vdi));
    }
    end_store();
}

static void set_generation(struct plx_vdi_record *record, uint64_t number)
{
    record->generation = number;
}

static void set_epoch(struct plx_vdi_record *record, uint64_t number)
{
    record->epoch = number;
}

static void set_batch(struct plx_vdi_record *record, uint64_t number)
{
    record->keyframe.batch_seq = number;
}

static void set_snapshots(struct plx_vdi_record *record, uint64_t number)
{
    record->keyframe.snap_seq = record->oldest.snap_seq = number;
}

static void set_position(struct plx_vdi_record *record, uint64_t number)
{
    uint64_t bytes = fixture.format.segment_bytes;

    record->first_segment = number / bytes;
    record->keyframe.pos = record->oldest.pos = record->first_segment * bytes;
}

static void set_time(struct plx_vdi_record *record, uint64_t number)
{
    record->keyframe.time_ns = record->oldest.time_ns = record->created_ns = number;
}

/* One more time it is opened, written and closed; *ret_usable: it could be. All that is done once
 * it is open must succeed. */
static void use_once_more(int byte, bool *ret_usable)
{
    struct plx_vdi_info info;
    struct plx_vdi *vdi;

    *ret_usable = false;
    if (plx_vdi_read_info(store, 0, &info, &fault))
        return;
    epoch = plx_max_u64(epoch, info.epoch);
    if (try_open_vdi(0, false, &vdi)) {
        CU_ASSERT_EQUAL(fault.code, PLX_ERR_CORRUPT);
        return;
    }
    *ret_usable = true;
    OK(write_byte(vdi, 0, BLOCK, byte));
    run(vdi, PLX_KEYFRAME, 0, 0);
    OK(write_byte(vdi, BLOCK, BLOCK, byte));
    OK(plx_vdi_close(vdi));
}

/* What is accepted leaves room for what is written next: else that is acknowledged, and refused by
 * our own gate when it is read again. */
static void test_counters_leave_room(void)
{
    static void (*const edits[])(struct plx_vdi_record *, uint64_t) = {
        set_generation, set_epoch, set_batch, set_snapshots, set_position, set_time};
    static const uint64_t numbers[] = {PLX_COUNTER_MAX,
                                       PLX_COUNTER_MAX - 1,
                                       PLX_COUNTER_MAX - 100,
                                       PLX_COUNTER_MAX / 2 + 2,
                                       PLX_COUNTER_MAX / 2,
                                       PLX_COUNTER_MAX / 2 - 2,
                                       PLX_TIME_MAX,
                                       PLX_TIME_MAX - 1000000u,
                                       PLX_COUNTER_MAX / 2 - (1u << 30)};

    fixture.format.segment_bytes = 64u << 10;
    for (size_t e = 0; e < sizeof edits / sizeof edits[0]; e++)
        for (size_t n = 0; n < sizeof numbers / sizeof numbers[0]; n++) {
            struct plx_vdi *vdi;
            bool usable, again;

            if (numbers[n] > PLX_COUNTER_MAX && edits[e] != set_time)
                continue;
            make_store(64 * MIB, MIB);
            OK(create_vdi(0, MIB));
            vdi = open_vdi(0);
            OK(write_byte(vdi, 0, 4 * BLOCK, 1));
            OK(plx_vdi_close(vdi));
            edit_record(edits[e], numbers[n]);
            use_once_more(2, &usable);
            again = false;
            if (usable)
                use_once_more(3, &again);
            CU_ASSERT(again || (edits[e] != set_time && numbers[n] >= PLX_COUNTER_MAX / 2 - MIB));
            CU_ASSERT(!usable || edits[e] == set_time || edits[e] == set_position ||
                      numbers[n] <= PLX_COUNTER_MAX / 2);
            /* It can be read in any case, and has what was acknowledged. */
            OK(plx_snapshot_open(store, 0, 0, &vdi, &fault));
            CU_ASSERT(reads_as(vdi, 0, 2 * BLOCK, again ? 3 : usable ? 2 : 1));
            CU_ASSERT(reads_as(vdi, 2 * BLOCK, 2 * BLOCK, 1));
            OK(plx_vdi_close(vdi));
            end_store();
        }
    fixture.format.segment_bytes = 0;
}

/* As if so much had been logged before that the index has no room for a segment's whole number. */
static void set_log_position(struct plx_vdi_record *record, uint64_t segment)
{
    struct plx_store_info info;

    plx_store_get_info(store, &info);
    record->first_segment = segment;
    record->keyframe.pos = record->oldest.pos = segment * info.segment_blocks * BLOCK;
}

static void test_long_log(void)
{
    unsigned snapshots = 0;
    struct plx_vdi *vdi;

    make_store(64 * MIB, MIB);
    OK(create_vdi(0, 16 * MIB));
    edit_record(set_log_position, (1ull << (PLX_INDEX_LEVELS * PLX_NODE_SHIFT)) - 3);
    vdi = open_vdi(0);
    for (unsigned i = 1; i <= 1600; i++) {
        OK(write_byte(vdi, i % 7 * BLOCK, BLOCK, (int)(i % 200) + 1));
        if (i % 10 == 0)
            run(vdi, PLX_SNAPSHOT, 0, 0);
        if (i % 400 == 0)
            run(vdi, PLX_KEYFRAME, 0, 0);
    }
    OK(plx_vdi_close(vdi));
    OK(plx_store_close(store));
    open_store(2);
    adopt_all();
    OK(plx_snapshot_list(store, 0, 0, count_snapshot, &snapshots, &fault));
    CU_ASSERT_EQUAL(snapshots, 160);
    OK(plx_snapshot_open(store, 0, 5, &vdi, &fault));
    CU_ASSERT(reads_as(vdi, 50 % 7 * BLOCK, BLOCK, 51));
    OK(plx_vdi_close(vdi));
    vdi = open_vdi(0);
    CU_ASSERT(reads_as(vdi, 1600 % 7 * BLOCK, BLOCK, 1));
    OK(plx_vdi_close(vdi));
    end_store();
}

static void test_clones(void)
{
    struct plx_vdi *vdi;
    uint64_t seq;

    make_store(64 * MIB, MIB);
    OK(create_vdi(0, 4 * MIB));
    for (uint32_t depth = 0; depth < 6; depth++) {
        vdi = open_vdi(depth);
        OK(write_byte(vdi, depth * 65536, 65536, (int)(depth + 1)));
        OK(write_byte(vdi, MIB, BLOCK, (int)(depth + 100)));
        seq = run(vdi, PLX_SNAPSHOT, 0, 0);
        OK(write_byte(vdi, MIB, BLOCK, 55)); /* not seen by the clone */
        OK(plx_vdi_close(vdi));
        if (depth < 5)
            OK(clone_vdi(depth + 1, depth, seq));
    }
    for (uint32_t depth = 0; depth < 6; depth++) {
        vdi = open_vdi(depth);
        for (uint32_t d = 0; d < 6; d++)
            CU_ASSERT(reads_as(vdi, d * 65536, 65536, d <= depth ? (int)(d + 1) : 0));
        CU_ASSERT(reads_as(vdi, MIB, BLOCK, 55));
        OK(plx_vdi_close(vdi));
        OK(plx_snapshot_open(store, depth, 1, &vdi, &fault));
        CU_ASSERT(reads_as(vdi, MIB, BLOCK, (int)(depth + 100)));
        plx_vdi_abandon(vdi);
    }
    FAILS(EXISTS, clone_vdi(3, 0, 1));
    FAILS(NOT_FOUND, clone_vdi(9, 0, 77));
    end_store();
}

static void test_grow(void)
{
    struct plx_request resize = {.op = PLX_RESIZE, .length = 1ull << 40};
    struct plx_vdi *vdi, *snapshot;
    struct plx_vdi_info info;
    uint64_t old = 512ull << 30, seq;

    make_store(64 * MIB, MIB);
    OK(create_vdi(0, old));
    vdi = open_vdi(0);
    OK(write_byte(vdi, 0, 65536, 1));
    OK(write_byte(vdi, old - 65536, 65536, 2));
    seq = run(vdi, PLX_SNAPSHOT, 0, 0);
    FAILS(RANGE, write_byte(vdi, old, 512, 3));
    OK(plx_vdi_run(vdi, &resize));
    OK(write_byte(vdi, old, 65536, 3));
    OK(write_byte(vdi, (1ull << 40) - 65536, 65536, 4));
    for (unsigned round = 0; round < 2; round++) {
        CU_ASSERT(reads_as(vdi, 0, 65536, 1));
        CU_ASSERT(reads_as(vdi, old - 65536, 65536, 2));
        CU_ASSERT(reads_as(vdi, old, 65536, 3));
        CU_ASSERT(reads_as(vdi, old + 65536, 65536, 0));
        CU_ASSERT(reads_as(vdi, (1ull << 40) - 65536, 65536, 4));
        OK(plx_vdi_close(vdi));
        vdi = open_vdi(0);
        plx_vdi_get_info(vdi, &info);
        CU_ASSERT_EQUAL(info.size_bytes, 1ull << 40);
        CU_ASSERT_EQUAL(info.levels, 4);
    }
    OK(plx_snapshot_open(store, 0, seq, &snapshot, &fault));
    plx_vdi_get_info(snapshot, &info);
    CU_ASSERT_EQUAL(info.size_bytes, old);
    CU_ASSERT(reads_as(snapshot, old - 65536, 65536, 2));
    plx_vdi_abandon(snapshot);
    resize.length = old; /* never smaller */
    FAILS(INVALID, plx_vdi_run(vdi, &resize));
    OK(plx_vdi_close(vdi));
    end_store();
}

static void test_many_vdis(void)
{
    struct plx_vdi *vdis[40];

    make_store(128 * MIB, MIB);
    for (uint32_t i = 0; i < 40; i++) {
        OK(create_vdi(i, 4 * MIB));
        vdis[i] = open_vdi(i);
    }
    for (unsigned round = 0; round < 3; round++)
        for (uint32_t i = 0; i < 40; i++)
            OK(write_byte(vdis[i], round * 32768, 65536, (int)(i + round + 1)));
    for (uint32_t i = 0; i < 40; i++)
        CU_ASSERT(reads_as(vdis[i], 65536, 65536, (int)(i + 3)));
    for (uint32_t i = 0; i < 40; i++)
        OK(plx_vdi_close(vdis[i]));
    end_store();
}

/* ---- Refusals ---- */

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

    make_store(64 * MIB, MIB);
    OK(create_vdi(0, MIB));
    vdi = open_vdi(0);
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

    make_store(64 * MIB, MIB);
    OK(create_vdi(0, MIB));
    vdi = open_vdi(0);
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

    make_store(64 * MIB, MIB);
    OK(create_vdi(0, MIB));
    vdi = open_vdi(0);
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

static size_t owned_extents(void)
{
    struct plx_extent_info info;
    size_t count = 0;

    while (plx_store_extent_owned(store, count, &info) == 0)
        count++;
    return count;
}

/* An extent that is held already, or that there is not: its blocks would have two owners, or no
 * place. It is not taken, nor is one whose header is damaged taken for a full store. */
static void test_wrong_grants(void)
{
    uint64_t free_blocks, swept, addr, garbage[MIB / BLOCK / 64] = {0};
    struct plx_extent_info info;
    struct plx_vdi *vdi;
    size_t count;

    make_store(64 * MIB, MIB);
    OK(create_vdi(0, 16 * MIB));
    vdi = open_vdi(0);
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
    super.incompatible = 4;
    super.generation++;
    plx_format_superblock_encode(&super, block);
    plx_simdisk_poke(disk, BLOCK, block, BLOCK);
    before = plx_simdisk_hash(disk);
    FAILS(UNSUPPORTED, try_open_store(1));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "newer"));
    CU_ASSERT_EQUAL(plx_simdisk_hash(disk), before);
    end_store();
}

/* Whoever does not know a feature that writers must know may still read. */
static void test_newer_feature_read(void)
{
    struct plx_superblock super;
    struct plx_vdi *vdi;
    uint8_t block[BLOCK];
    uint64_t before;

    make_store(64 * MIB, MIB);
    OK(create_vdi(0, MIB));
    vdi = open_vdi(0);
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

/* ---- Damage: each structure kind in turn ---- */

/* A disk with a snapshot, closed; and the store closed with it. */
static void make_history(void)
{
    struct plx_vdi *vdi;

    make_store(64 * MIB, MIB);
    OK(create_vdi(0, 16 * MIB));
    vdi = open_vdi(0);
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

/* ---- Letting go of snapshots ---- */

static uint64_t lost_data;

static void count_lost(void *context, const struct plx_leak *leak)
{
    if (leak->type == PLX_EXTENT_DATA)
        lost_data += leak->other;
}

static void no_finding(void *context, const struct plx_finding *finding)
{
    if (finding->severity == PLX_FINDING_ERROR)
        printf("\n  %s", finding->text);
}

static void check_clean(void)
{
    struct plx_check_options options = {.data = true, .finding = no_finding, .leak = count_lost};
    struct plx_check_result result = {0};

    lost_data = 0;
    OK(plx_simenv_release_all(&env, &fault)); /* writes the bitmaps */
    OK(plx_store_check(store, &options, &result, &fault));
    CU_ASSERT_EQUAL(result.errors, 0);
}

static int byte_at(struct plx_vdi *vdi, uint64_t offset)
{
    run(vdi, PLX_READ, offset, BLOCK);
    return buffer[0];
}

static int byte_then[64]; /* of block 0, by snapshot */

/* Forty rounds of overwrites, unmaps and snapshots; a key frame every third round. */
static uint64_t busy_history(struct plx_vdi *vdi)
{
    uint64_t seq = 0;

    for (unsigned i = 1; i <= 40; i++) {
        OK(write_byte(vdi, i % 5 * 16 * BLOCK, 16 * BLOCK, (int)i));
        OK(write_byte(vdi, i % 3 * 8 * BLOCK, 4 * BLOCK, (int)i + 100)); /* dies unseen, in part */
        OK(write_byte(vdi, 200 * BLOCK + i % 7 * BLOCK, BLOCK, (int)i));
        if (i % 4 == 0)
            OK(write_byte(vdi, i % 5 * 16 * BLOCK, 8 * BLOCK, 0));
        seq = run(vdi, PLX_SNAPSHOT, 0, 0);
        byte_then[seq] = byte_at(vdi, 0);
        if (i % 3 == 0)
            run(vdi, PLX_KEYFRAME, 0, 0);
    }
    return seq;
}

/* Lets go of after < seq <= upto, but for what is kept. */
static int let_go(struct plx_vdi *vdi, uint64_t after, uint64_t upto, const uint64_t *kept,
                  size_t kept_count, uint64_t *ret_gone)
{
    struct plx_thin thin = {.after = after, .upto = upto, .kept = kept, .kept_count = kept_count};
    struct plx_thinned thinned;
    int error;

    *ret_gone = 0;
    do {
        error = plx_vdi_thin(vdi, &thin, &thinned, &fault);
        *ret_gone += thinned.snapshots;
    } while (!error && thinned.upto > thin.after && (thin.after = thinned.upto) < upto);
    return error;
}

static unsigned instants(void)
{
    unsigned count = 0;

    OK(plx_snapshot_list(store, 0, 0, count_snapshot, &count, &fault));
    return count;
}

static void expect_instant(uint64_t seq, int byte)
{
    struct plx_vdi *instant = NULL;

    OK(plx_snapshot_open(store, 0, seq, &instant, &fault));
    if (!instant)
        return;
    CU_ASSERT_EQUAL(byte_at(instant, 0), byte);
    OK(plx_vdi_close(instant));
}

static void expect_no_instant(uint64_t seq)
{
    struct plx_vdi *instant;

    FAILS(NOT_FOUND, plx_snapshot_open(store, 0, seq, &instant, &fault));
}

/* At the old end history just begins later: nothing is written anew. */
static void test_forget(void)
{
    struct plx_vdi_info info;
    struct plx_vdi *vdi, *reader;
    uint64_t last, gone, free_before;

    make_store(64 * MIB, MIB);
    OK(create_vdi(0, 16 * MIB));
    vdi = open_vdi(0);
    last = busy_history(vdi);
    free_before = counters().data_free_blocks;
    OK(plx_snapshot_open(store, 0, 20, &reader, &fault));
    OK(let_go(vdi, 0, 15, NULL, 0, &gone));
    CU_ASSERT_EQUAL(gone, 15);
    CU_ASSERT_EQUAL(byte_at(reader, 0), byte_then[20]);
    OK(let_go(vdi, 15, 25, NULL, 0, &gone));
    CU_ASSERT(gone == 8 || gone == 9); /* of what is open its key frame's next is kept, too */
    CU_ASSERT_EQUAL(byte_at(reader, 0), byte_then[20]);
    expect_instant(20, byte_then[20]);
    OK(plx_vdi_close(reader));
    expect_no_instant(15);
    OK(let_go(vdi, 0, UINT64_MAX, NULL, 0, &gone));
    CU_ASSERT_EQUAL(instants(), 1); /* the newest stays */
    expect_instant(last, byte_then[last]);
    plx_vdi_get_info(vdi, &info);
    CU_ASSERT(info.forgotten > 0);
    CU_ASSERT(counters().data_free_blocks > free_before + 400);
    OK(plx_vdi_close(vdi));
    check_clean();
    CU_ASSERT_EQUAL(lost_data, 0);
    vdi = open_vdi(0);
    CU_ASSERT_EQUAL(byte_at(vdi, 0), byte_then[last]);
    OK(plx_vdi_close(vdi));
    end_store();
}

/* In the middle the log is written anew, with fewer snapshots, again and again; what stays reads as
 * it did, and in the end nothing is left of what went. */
static void test_thin(void)
{
    struct plx_vdi *vdi;
    uint64_t last, gone, kept[64], free_before, stays;

    make_store(64 * MIB, MIB);
    OK(create_vdi(0, 16 * MIB));
    vdi = open_vdi(0);
    last = busy_history(vdi);
    for (uint64_t step = 2; step <= 8; step *= 2) {
        size_t count = 0;

        for (uint64_t seq = 1; seq <= last; seq++)
            if (seq % step == 1)
                kept[count++] = seq;
        free_before = counters().data_free_blocks;
        stays = instants();
        OK(let_go(vdi, 0, last, kept, count, &gone));
        CU_ASSERT_EQUAL(instants(), stays - gone);
        CU_ASSERT(instants() <= count + 1);
        CU_ASSERT(counters().data_free_blocks > free_before);
        for (uint64_t seq = 1; seq <= last; seq++)
            if (seq % step == 1 || seq == last)
                expect_instant(seq, byte_then[seq]);
            else
                expect_no_instant(seq);
        OK(plx_vdi_close(vdi));
        check_clean();
        vdi = open_vdi(0);
    }
    OK(let_go(vdi, 0, last, NULL, 0, &gone));
    CU_ASSERT_EQUAL(instants(), 1);
    CU_ASSERT_EQUAL(byte_at(vdi, 0), byte_then[last]);
    OK(plx_vdi_close(vdi));
    check_clean();
    CU_ASSERT_EQUAL(lost_data, 0);
    end_store();
}

/* Deleting one changes that one; a dry run nothing. */
static void test_thin_one(void)
{
    struct plx_thin thin = {.after = 16, .upto = 17, .dry_run = true};
    struct plx_thinned would, thinned;
    struct plx_vdi *vdi;
    uint64_t last;

    make_store(64 * MIB, MIB);
    OK(create_vdi(0, 16 * MIB));
    vdi = open_vdi(0);
    last = busy_history(vdi);
    OK(plx_vdi_thin(vdi, &thin, &would, &fault));
    CU_ASSERT_EQUAL(would.snapshots, 1);
    CU_ASSERT_EQUAL(instants(), last);
    thin.dry_run = false;
    OK(plx_vdi_thin(vdi, &thin, &thinned, &fault));
    CU_ASSERT_EQUAL(thinned.snapshots, 1);
    CU_ASSERT_EQUAL(thinned.blocks, would.blocks);
    CU_ASSERT_EQUAL(instants(), last - 1);
    expect_no_instant(17);
    expect_instant(16, byte_then[16]);
    expect_instant(18, byte_then[18]);
    thin.after = last - 1;
    thin.upto = last;
    OK(plx_vdi_thin(vdi, &thin, &thinned, &fault));
    CU_ASSERT_EQUAL(thinned.snapshots, 0); /* the newest */
    OK(plx_vdi_close(vdi));
    check_clean();
    CU_ASSERT_EQUAL(lost_data, 0);
    end_store();
}

/* What a clone came from stays as it names it; the clone lets go of its own history, and of nothing
 * that its parent has. */
static void test_thin_clone(void)
{
    struct plx_vdi_create_options clone = {
        .name = "clone", .slot = 1, .sector_size = 512, .is_clone = true, .parent_seq = 15};
    struct plx_vdi_info info;
    struct plx_vdi *vdi, *child;
    uint64_t last, gone;
    int first;

    make_store(64 * MIB, MIB);
    OK(create_vdi(0, 16 * MIB));
    vdi = open_vdi(0);
    last = busy_history(vdi);
    first = byte_then[15];
    OK(plx_vdi_create(store, &clone, &info, &fault));
    OK(let_go(vdi, 0, last, &clone.parent_seq, 1, &gone));
    CU_ASSERT_EQUAL(instants(), 2);
    child = open_vdi(1);
    CU_ASSERT_EQUAL(byte_at(child, 0), first);
    last = busy_history(child);
    OK(let_go(child, 0, last, NULL, 0, &gone));
    CU_ASSERT_EQUAL(gone, last - 1);
    OK(plx_vdi_close(child));
    OK(plx_vdi_close(vdi));
    check_clean();
    expect_instant(15, first);
    end_store();
}

/* ---- Snapshots by time ---- */

struct times {
    uint64_t seq[1024], ns[1024];
    unsigned count;
};

static bool note_time(void *context, const struct plx_snapshot_info *info)
{
    struct times *times = context;

    times->seq[times->count] = info->seq;
    times->ns[times->count++] = info->time_ns;
    return true;
}

static void expect_at(const struct times *times, uint64_t ns)
{
    struct plx_snapshot_info info = {0};
    unsigned older = 0;
    int error = plx_snapshot_at(store, 0, ns, &info, &fault);

    while (older < times->count && times->ns[older] <= ns)
        older++;
    CU_ASSERT_EQUAL(error, older ? 0 : PLX_ERR_NOT_FOUND);
    if (!older || error)
        return;
    CU_ASSERT_EQUAL(info.seq, times->seq[older - 1]);
    CU_ASSERT_EQUAL(info.time_ns, times->ns[older - 1]);
}

/* Against the whole list: just before, at and just after every one. */
static void expect_times(void)
{
    struct times times = {.count = 0};

    OK(plx_snapshot_list(store, 0, 0, note_time, &times, &fault));
    for (unsigned i = 0; i < times.count; i++) {
        CU_ASSERT(i == 0 || times.ns[i] > times.ns[i - 1]);
        expect_at(&times, times.ns[i] - 1);
        expect_at(&times, times.ns[i]);
        expect_at(&times, times.ns[i] + 1);
    }
    expect_at(&times, 0);
    expect_at(&times, UINT64_MAX - 1);
}

/* So many, a while apart each; 0: the clock is set back each time, so it stands still. */
static void snapshots_apart(struct plx_vdi *vdi, unsigned count, uint64_t ns)
{
    uint64_t start = env.ns;

    for (unsigned i = 0; i < count; i++) {
        OK(write_byte(vdi, i % 50 * BLOCK, 16 * BLOCK, (int)i % 250 + 1));
        env.ns = ns ? env.ns + ns : start;
        run(vdi, PLX_SNAPSHOT, 0, 0);
    }
}

static void write_segments(struct plx_vdi *vdi, unsigned count)
{
    struct plx_vdi_info info;
    uint64_t end;

    plx_vdi_get_info(vdi, &info);
    end = info.log_segments + count;
    for (unsigned i = 0; info.log_segments < end; i++) {
        OK(write_byte(vdi, i % 2000 * BLOCK, BLOCK, (int)i % 250 + 1));
        if (i % 2000 == 1999)
            run(vdi, PLX_UNMAP, 0, 2000 * BLOCK);
        plx_vdi_get_info(vdi, &info);
    }
}

/* The clock goes on, stands still, jumps ahead and is set back, also while the disk is closed; some
 * segments hold no snapshot, some are gone. */
static void test_snapshot_at(void)
{
    struct plx_vdi *vdi;
    uint64_t gone, kept[] = {40, 110, 111, 290};

    make_store(256 * MIB, MIB);
    OK(create_vdi(0, 16 * MIB));
    vdi = open_vdi(0);
    FAILS(NOT_FOUND,
          plx_snapshot_at(store, 0, UINT64_MAX - 1, &(struct plx_snapshot_info){0}, &fault));
    snapshots_apart(vdi, 100, MS);
    snapshots_apart(vdi, 100, 0);
    env.ns += 3600000 * MS; /* ahead ... */
    snapshots_apart(vdi, 10, MS);
    run(vdi, PLX_KEYFRAME, 0, 0);
    OK(plx_vdi_close(vdi));
    env.ns -= 3600000 * MS; /* ... and back */
    vdi = open_vdi(0);
    snapshots_apart(vdi, 50, MS);
    env.ns += 3700000 * MS;
    write_segments(vdi, 4);
    snapshots_apart(vdi, 40, MS);
    write_segments(vdi, 3);
    expect_times();
    OK(let_go(vdi, 30, 295, kept, 4, &gone));
    CU_ASSERT(gone > 200);
    expect_times();
    OK(let_go(vdi, 0, 30, NULL, 0, &gone));
    expect_times();
    OK(plx_vdi_close(vdi));
    expect_times();
    end_store();
}

/* The time of one more snapshot. */
static uint64_t time_of_next(struct plx_vdi *vdi)
{
    static unsigned writes;
    struct plx_request request = {.op = PLX_SNAPSHOT};

    OK(write_byte(vdi, 0, BLOCK, (int)(writes++ % 250) + 1));
    OK(plx_vdi_run(vdi, &request));
    return request.time_ns;
}

/* closed: what closing says. */
static struct plx_vdi *reopen_with(struct plx_vdi *vdi, const struct plx_witness *witness,
                                   int closed)
{
    struct plx_vdi_open_options options = {
        .take_over = closed, .overwrite = -1, .witness = witness};
    struct plx_vdi_info info;
    struct plx_vdi *again;

    plx_vdi_get_info(vdi, &info);
    options.epoch = info.epoch + 1;
    CU_ASSERT_EQUAL(plx_vdi_close(vdi), closed);
    OK(plx_vdi_open(store, &options, &again, &fault));
    return again;
}

/* A wall clock that jumps, ahead and behind: what the disk writes and lets go (witness.c). */
static void test_clock_jumps(void)
{
    static const int64_t day_ns = 86400 * 1000000000ll;
    struct plx_thin by_time = {.upto = UINT64_MAX}, by_number = {.upto = 2};
    struct plx_thinned thinned;
    struct plx_vdi_clock clock;
    struct plx_vdi *vdi;
    uint64_t last;

    make_store(64 * MIB, MIB);
    OK(create_vdi(0, 16 * MIB));
    vdi = open_vdi(0);
    for (unsigned i = 0; i < 10; i++) {
        last = time_of_next(vdi);
        env.ns += 1000 * MS;
    }
    env.off_ns = 10 * day_ns;
    CU_ASSERT_EQUAL(time_of_next(vdi), last + 1);
    CU_ASSERT_EQUAL(plx_simenv_heard(&env, "ahead of where it was"), 1);
    CU_ASSERT_EQUAL(time_of_next(vdi), last + 2);
    by_time.before_ns = plx_simenv_wall_ns(&env) - (uint64_t)day_ns;
    FAILS(CLOCK, plx_vdi_thin(vdi, &by_time, &thinned, &fault));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "cdp resume"));
    by_time.dry_run = true;
    OK(plx_vdi_thin(vdi, &by_time, &thinned, &fault));
    CU_ASSERT(thinned.snapshots >= 9); /* but for those in doubt, and the newest */
    by_time.dry_run = false;
    OK(plx_vdi_thin(vdi, &by_number, &thinned, &fault)); /* no clock is asked */
    CU_ASSERT_EQUAL(thinned.snapshots, 2);
    /* The next process knows, whether the clock goes on or not. */
    plx_vdi_look_at_clock(vdi, &clock);
    vdi = reopen_with(vdi, &clock.witness, 0);
    env.ns += (uint64_t)day_ns;
    CU_ASSERT_EQUAL(time_of_next(vdi), last + 3);
    FAILS(CLOCK, plx_vdi_thin(vdi, &by_time, &thinned, &fault));
    env.off_ns = 0;
    last = time_of_next(vdi);
    CU_ASSERT(last > plx_simenv_wall_ns(&env) - 1000 * MS);
    CU_ASSERT_EQUAL(plx_simenv_heard(&env, "believed again"), 1);
    /* Those taken in doubt are of that day, whatever is written in them. */
    by_time.before_ns = plx_simenv_wall_ns(&env) - (uint64_t)day_ns / 2;
    OK(plx_vdi_thin(vdi, &by_time, &thinned, &fault));
    plx_vdi_look_at_clock(vdi, &clock);
    for (uint64_t seq = 11; seq <= 13; seq++) {
        struct plx_snapshot_info info;

        CU_ASSERT(plx_witness_is_undated(&clock.witness, seq));
        OK(plx_snapshot_first(store, 0, seq, &info, &fault));
        CU_ASSERT_EQUAL(info.seq, seq);
    }
    /* Behind: refused as well, until the operator's word. */
    env.off_ns = -day_ns / 24;
    FAILS(CLOCK, plx_vdi_thin(vdi, &by_time, &thinned, &fault));
    CU_ASSERT_EQUAL(time_of_next(vdi), last + 1);
    plx_vdi_resume(vdi, &clock);
    CU_ASSERT(!clock.witness.doubt);
    CU_ASSERT_EQUAL(time_of_next(vdi), last + 2); /* the clock is right, those are in the future */
    by_time.before_ns = plx_simenv_wall_ns(&env) - (uint64_t)day_ns / 2;
    OK(plx_vdi_thin(vdi, &by_time, &thinned, &fault));
    by_time.before_ns = plx_simenv_wall_ns(&env) + (uint64_t)day_ns;
    FAILS(CLOCK, plx_vdi_thin(vdi, &by_time, &thinned, &fault)); /* nobody knows that time yet */
    OK(plx_vdi_close(vdi));
    end_store();
}

/* Three snapshots were taken while the clock was right. */
static struct plx_vdi *make_dated(void)
{
    struct plx_vdi *vdi;

    make_store(64 * MIB, MIB);
    OK(create_vdi(0, 16 * MIB));
    vdi = open_vdi(0);
    for (unsigned i = 0; i < 3; i++)
        time_of_next(vdi);
    return vdi;
}

/* A snapshot that could not be logged, and one in doubt that has its number (WITNESS-6). */
static void test_clock_number_again(void)
{
    struct plx_request in_vain = {.op = PLX_SNAPSHOT};
    struct plx_vdi_clock clock;
    struct plx_vdi *vdi = make_dated();

    OK(write_byte(vdi, 0, BLOCK, 200));
    plx_simdisk_fail_range(disk, 0, 64 * MIB, false, true);
    FAILS(STICKY, plx_vdi_run(vdi, &in_vain));
    env.off_ns = 10 * 86400 * 1000000000ll;
    plx_vdi_look_at_clock(vdi, &clock);
    plx_simdisk_fail_range(disk, 0, 0, false, false);
    vdi = reopen_with(vdi, &clock.witness, PLX_ERR_STICKY);
    time_of_next(vdi);
    plx_vdi_look_at_clock(vdi, &clock);
    CU_ASSERT(plx_witness_is_undated(&clock.witness, 4));
    CU_ASSERT(!plx_witness_is_undated(&clock.witness, 3));
    env.off_ns = 0;
    OK(plx_vdi_close(vdi));
    end_store();
}

/* One in doubt whose batch failed may be on the store: the clock is right again before the disk
 * that has stopped is opened anew. */
static void test_clock_right_too_early(void)
{
    struct plx_request in_vain = {.op = PLX_SNAPSHOT};
    struct plx_vdi_clock clock;
    struct plx_vdi *vdi = make_dated();

    plx_vdi_look_at_clock(vdi, &clock);
    env.off_ns = 10 * 86400 * 1000000000ll;
    OK(write_byte(vdi, 0, BLOCK, 200));
    plx_simdisk_fail_range(disk, 0, 64 * MIB, false, true);
    FAILS(STICKY, plx_vdi_run(vdi, &in_vain));
    env.off_ns = 0;
    plx_vdi_look_at_clock(vdi, &clock);
    CU_ASSERT(plx_witness_is_undated(&clock.witness, 4));
    plx_vdi_resume(vdi, &clock);
    CU_ASSERT(plx_witness_is_undated(&clock.witness, 4));
    plx_simdisk_fail_range(disk, 0, 0, false, false);
    vdi = reopen_with(vdi, &clock.witness, PLX_ERR_STICKY);
    plx_vdi_look_at_clock(vdi, &clock);
    CU_ASSERT(!plx_witness_is_undated(&clock.witness, clock.ends.newest_seq + 1));
    OK(plx_vdi_close(vdi));
    end_store();
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
        CU_ASSERT_EQUAL(store->foreign.count, 0);
    }
    CU_ASSERT_EQUAL(counters().blocks_freed, 0);
    end_store();
}

/* Slot A reads as zeroes: lost, if slot B is a later one than the first. */
static void test_lost_extent_page(void)
{
    uint8_t block[BLOCK], zeroes[BLOCK] = {0};
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

    make_store(64 * MIB, MIB);
    OK(create_vdi(0, 16 * MIB));
    vdi = open_vdi(0);
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

    make_store(64 * MIB, MIB);
    OK(create_vdi(0, 16 * MIB));
    vdi = open_vdi(0);
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
        {"who waits for devices", test_wait},
        {"device I/O counts", test_io_counts},
        {"blind writes read no node", test_blind_after_keyframe},
        {"key frames read ahead", test_keyframe_reads_ahead},
        {"freed while it is loaded", test_freed_while_loading},
        {"an older one asked for while it is loaded", test_older_while_loading},
        {"more loads than there may be", test_many_loads},
        {"built while it is loaded", test_built_while_loading},
        {"sub-block writes", test_sub_block},
        {"a key frame that is wanted of a disk being opened", test_wanted_while_opening},
        {"unmap and zeroes free blocks", test_unmap_frees},
        {"unmapping gives back every block", test_unmap_counts},
        {"how many blocks are mapped", test_mapped},
        {"mapping by mapping", test_mapping_by_mapping},
        {"a count that is wrong", test_wrong_count},
        {"counters leave room", test_counters_leave_room},
        {"when a key frame is due", test_keyframe_due},
        {"a failed open frees its segments", test_failed_open_frees},
        {"a log of more segments than its index holds", test_long_log},
        {"checksums", test_checksum},
        {"checksums when a node is gone", test_checksum_evicted},
        {"requests in many pieces", test_pieces},
        {"giving extents up", test_giving_up},
        {"a store that grows", test_growing},
        {"writes that wait for room", test_waiting_writes},
        {"no space", test_no_space},
        {"scattered blocks are moved together", test_move},
        {"shared blocks are not moved", test_move_shared},
        {"moves in many pieces", test_move_pieces},
        {"moves of what cannot be read", test_move_unreadable},
        {"moves on a disk that is mostly empty", test_move_sparse},
        {"moves and damage", test_move_damaged},
        {"moves leave room to writes", test_move_no_space},
        {"a move that gives up", test_move_gives_up},
        {"blocks for somebody who never waits", test_never_waits},
        {"moves: refusals", test_move_refusals},
        {"a snapshot drains nothing", test_snapshot_does_not_drain},
        {"protection: an interval", test_protect_interval},
        {"protection: late, not left out", test_protect_late},
        {"protection: one at a time", test_protect_skips},
        {"protection: a snapshot shares a batch", test_protect_shares},
        {"protection: each write, each batch", test_protect_writes},
        {"protection: restarts and clones", test_protect_restart},
        {"protection: closed when it has stopped", test_protect_stopped},
        {"protection: refusals", test_protect_refusals},
        {"clones of clones", test_clones},
        {"grow from 3 to 4 levels", test_grow},
        {"many VDIs", test_many_vdis},
        {"create: refusals", test_create_refusals},
        {"scan of slots", test_scan_of_slots},
        {"calls that are refused", test_call_refusals},
        {"what is gone", test_gone},
        {"extents that are granted wrongly", test_wrong_grants},
        {"one writer", test_two_owners},
        {"taken over while it is open", test_taken_while_open},
        {"newer feature", test_newer_feature},
        {"newer feature that readers need not know", test_newer_feature_read},
        {"version 1", test_version_1},
        {"truncated volume", test_truncated},
        {"format: refusals", test_format_refusals},
        {"old snapshots are let go", test_forget},
        {"snapshots are let go in any order", test_thin},
        {"one snapshot is let go", test_thin_one},
        {"a clone's snapshot is not", test_thin_clone},
        {"snapshots by their time", test_snapshot_at},
        {"clocks that jump", test_clock_jumps},
        {"a snapshot that was not logged, and a clock that jumps", test_clock_number_again},
        {"a snapshot that failed, and a clock that is right too early", test_clock_right_too_early},
        {"damaged superblock", test_damage_superblock},
        {"damaged VDI record", test_damage_record},
        {"damaged extent page", test_damage_extent},
        {"a sealed extent that cannot be given up", test_sealed_release},
        {"blocks that are left to the collector", test_left_to_collector},
        {"a lost bitmap page", test_lost_extent_page},
        {"damaged log segment", test_damage_segment},
        {"damaged batch", test_damage_batch},
        {"damaged newest slots", test_damage_newest},
        {"an idle snapshot waits for the one before", test_idle_snapshot_waits},
        {"fenced reader", test_fenced_reader},
        {"damaged batch in recovery", test_damage_in_recovery},
        {"damaged log segment in recovery", test_damaged_header_in_recovery},
        {"damaged node", test_damage_node},
    };

    fixture.open.ops_per_vdi = 16;
    return SUITE_RUN("engine", tests);
}
