/* test_move.c - scattered blocks that are moved together. */

#include "engine/space/allocator_inside.h"
#include "ok.h"
#include "suite.h"
#include "unit/fixture.h"
#include "unit/properties.h"

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

    vdi = make_with_vdi(128 * MIB, 4 * MIB, 8 * MIB);
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

    vdi = make_with_vdi(128 * MIB, 4 * MIB, 8 * MIB);
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

    vdi = make_with_vdi(128 * MIB, 4 * MIB, 8 * MIB);
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

    vdi = make_with_vdi(128 * MIB, 4 * MIB, 8 * MIB);
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

    vdi = make_with_vdi(128 * MIB, 4 * MIB, 4ull << 40);
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

    vdi = make_with_vdi(128 * MIB, 4 * MIB, 8 * MIB);
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

    vdi = make_with_vdi(16 * MIB, MIB, 64 * MIB);
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
    gone_again += store->allocator->space_waiters.head != NULL;
    plx_alloc_wake(store);
}

/* A move does not wait for ever for room that others take: writes may need it. They go on. */
static void test_move_gives_up(void)
{
    struct plx_move moved = {.windows = 100}, again = {.windows = 100};
    struct plx_vdi *vdi;

    vdi = make_with_vdi(32 * MIB, MIB, 64 * MIB);
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
    CU_ASSERT_PTR_NULL(store->allocator->space_waiters.head);
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

    vdi = make_with_vdi(128 * MIB, 4 * MIB, 8 * MIB);
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

int main(void)
{
    static const struct suite_test tests[] = {
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
    };

    fixture.open.ops_per_vdi = 16;
    return SUITE_RUN("move", tests);
}
