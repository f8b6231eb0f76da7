/* test_engine.c - single properties of the engine on a simulated disk: device I/O counts, contents,
 * checksums, space, clones, sizes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ok.h"
#include "suite.h"
#include "unit/fixture.h"
#include "unit/properties.h"

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
    CU_ASSERT_EQUAL_FATAL(plx_tick_init(&two), 0);
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
    plx_tick_free(&two);
}

/* ---- I/O counts ---- */

static void test_io_counts(void)
{
    struct plx_counters settled, a, b;
    struct plx_vdi *vdi;
    uint64_t seq, again;

    vdi = make_with_vdi(128 * MIB, MIB, 64 * MIB);
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
    CU_ASSERT_EQUAL(b.registry_calls_on_data_path, settled.registry_calls_on_data_path); /* INV-4 */
    CU_ASSERT_EQUAL(b.write_path_node_reads, 0);
    OK(plx_vdi_close(vdi));
    end_store();
}

static void test_blind_after_keyframe(void)
{
    struct plx_counters a, b;
    struct plx_vdi *vdi;

    vdi = make_with_vdi(128 * MIB, MIB, 64 * MIB);
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

    vdi = make_with_vdi(256 * MIB, MIB, leaves * leaf_bytes);
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

    vdi = make_with_vdi(64 * MIB, MIB, 16 * MIB);
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

    vdi = make_with_vdi(64 * MIB, MIB, 16 * MIB);
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

    vdi = make_with_vdi(64 * MIB, MIB, 16 * MIB);
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

    vdi = make_with_vdi(64 * MIB, MIB, 16 * MIB);
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

    vdi = make_with_vdi(64 * MIB, MIB, 32 * MIB);
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

/* It goes on where it came to when it had looked as often as it was told. */
static void test_mapping_by_mapping(void)
{
    uint64_t vblock = 0, mapped = 0;
    struct plx_vdi *vdi;

    vdi = make_with_vdi(64 * MIB, MIB, 16 * MIB);
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

    vdi = make_with_vdi(128 * MIB, MIB, 64 * MIB);
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

    vdi = make_with_vdi(64 * MIB, MIB, 32 * MIB);
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

static void test_checksum(void)
{
    struct plx_vdi_open_options copy = {.epoch = 5, .overwrite = PLX_OVERWRITE_COPY};
    struct plx_vdi *vdi;
    uint64_t at;
    char place[64];

    vdi = make_with_vdi(64 * MIB, MIB, 16 * MIB);
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

    vdi = make_with_vdi(64 * MIB, MIB, MIB);
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

    vdi = make_with_vdi(64 * MIB, MIB, 16 * MIB);
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

    vdi = make_with_vdi(64 * MIB, MIB, 16 * MIB);
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

    vdi = make_with_vdi(16 * MIB, MIB, 64 * MIB);
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

/* ---- Records that are edited ---- */

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
            vdi = make_with_vdi(64 * MIB, MIB, MIB);
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

/* ---- Clones, sizes ---- */

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

    vdi = make_with_vdi(64 * MIB, MIB, old);
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
        {"clones of clones", test_clones},
        {"grow from 3 to 4 levels", test_grow},
        {"many VDIs", test_many_vdis},
    };

    fixture.open.ops_per_vdi = 16;
    return SUITE_RUN("engine", tests);
}
