/* test_request.c - requests at their edges: what one that has waited says when it fails, who comes
 * first when all operations are busy, more nodes read at a time than the cache has, large reads
 * that complete at once, snapshots beside writes in place, writes to a disk that is being closed,
 * writes without room on one that is closed or rewound.
 */
#include <string.h>

#include "engine/disk/vdi.h"
#include "ok.h"
#include "suite.h"
#include "unit/fixture.h"

#define LEAF (512ull * BLOCK)
#define LEAVES 96u
#define CACHED 32u /* nodes */

/* v0 with a block in each leaf, the leaf's number + 1; nothing of it is cached. */
static struct plx_vdi *make_cold(void)
{
    struct plx_vdi *vdi;

    vdi = make_with_vdi(64 * MIB, MIB, LEAVES * LEAF);
    for (unsigned i = 0; i < LEAVES; i++)
        OK(write_byte(vdi, i * LEAF, BLOCK, (int)i + 1));
    run(vdi, PLX_SNAPSHOT, 0, 0);
    OK(plx_vdi_close(vdi));
    leave_store();
    open_store(2);
    return open_vdi(0);
}

static void end(struct plx_vdi *vdi)
{
    OK(plx_vdi_close(vdi));
    check_store(false);
    end_store();
}

/* It has waited for a node that was read well, and fails for something else: it says that. */
static void test_reason(void)
{
    struct plx_vdi *vdi = make_cold();

    memset(buffer, 9, 2 * BLOCK);
    fault.text[0] = 0;
    FAILS(MISCOMPARE, try_run(vdi, PLX_COMPARE_WRITE, 0, BLOCK, NULL));
    CU_ASSERT_EQUAL(fault.code, PLX_ERR_MISCOMPARE);
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, plx_error_text(PLX_ERR_MISCOMPARE)));
    CU_ASSERT(reads_as(vdi, 0, BLOCK, 1));
    end(vdi);
}

/* ---- Many at a time ---- */

static struct {
    struct plx_request request;
    struct iovec iov;
    unsigned place; /* as the so-manieth it ended */
} many[LEAVES];
static unsigned ended;

static void many_done(struct plx_request *request)
{
    *(unsigned *)request->owner = ++ended;
}

static struct plx_request *request_for(unsigned i, enum plx_request_op op)
{
    many[i].place = 0;
    many[i].iov = (struct iovec){buffer + (size_t)i * BLOCK, BLOCK};
    many[i].request = (struct plx_request){.op = op,
                                           .offset = i * LEAF,
                                           .length = op == PLX_KEYFRAME ? 0 : BLOCK,
                                           .iov = &many[i].iov,
                                           .iovcnt = op != PLX_KEYFRAME,
                                           .done = many_done,
                                           .owner = &many[i].place};
    return &many[i].request;
}

static void wait_for(unsigned count)
{
    while (ended < count)
        if (!plx_store_tick(store))
            plx_store_wait(store);
    for (unsigned i = 0; i < count; i++)
        OK(many[i].request.result);
}

/* More leaves are wanted at the same time than the cache has room for, and a key frame is written
 * meanwhile, whose nodes find no room: all is read, and so is what was written. */
static void test_small_cache(void)
{
    struct plx_vdi *vdi, *writer;
    unsigned patience = fixture.disk.patience;

    fixture.disk.patience = 95;
    vdi = make_cold();
    OK(create_vdi(1, 4 * LEAF));
    writer = open_vdi(1);
    OK(write_byte(writer, LEAF, BLOCK, 77));
    memset(buffer, 0, LEAVES * BLOCK);
    ended = 0;
    for (unsigned i = 0; i < LEAVES - 1; i++)
        plx_vdi_submit(vdi, request_for(i, PLX_READ));
    plx_vdi_submit(writer, request_for(LEAVES - 1, PLX_KEYFRAME));
    wait_for(LEAVES);
    for (unsigned i = 0; i < LEAVES - 1; i++)
        CU_ASSERT(buffer[i * BLOCK] == i + 1 && buffer[(i + 1) * BLOCK - 1] == i + 1);
    CU_ASSERT(reads_as(writer, LEAF, BLOCK, 77));
    OK(plx_vdi_close(writer));
    fixture.disk.patience = patience;
    end(vdi);
}

/* Large reads that the device completes all at once: each is given back before the next one's
 * checksums are computed, for who hears of it may have the next request. */
static void test_turns(void)
{
    unsigned patience = fixture.disk.patience, large = MIB / 4;
    struct plx_vdi *vdi;

    fixture.disk.patience = 0;
    vdi = make_with_vdi(64 * MIB, MIB, MIB);
    OK(write_byte(vdi, 0, MIB, 5));
    memset(buffer, 0, MIB);
    ended = 0;
    for (unsigned i = 0; i < 4; i++) {
        request_for(i, PLX_READ);
        many[i].iov = (struct iovec){buffer + i * large, large};
        many[i].request.offset = i * large;
        many[i].request.length = large;
        plx_vdi_submit(vdi, &many[i].request);
    }
    while (ended < 4) {
        unsigned before = ended;
        bool more = plx_store_tick(store);

        CU_ASSERT(ended <= before + 1);
        CU_ASSERT(more || !ended || ended == 4);
    }
    wait_for(4);
    CU_ASSERT(buffer[0] == 5 && memcmp(buffer, buffer + 1, MIB - 1) == 0);
    fixture.disk.patience = patience;
    end(vdi);
}

/* As many batches under way as there may be, and writes enough for a further one: it waits. */
static void test_full_ring(void)
{
    unsigned patience = fixture.disk.patience, submitted = 0, most = 0;
    struct plx_vdi *vdi;

    fixture.disk.patience = 99;
    fixture.disk.stalls = 100;
    vdi = make_with_vdi(64 * MIB, 4 * MIB, LEAVES * LEAF);
    OK(write_byte(vdi, LEAF + BLOCK, BLOCK, 200));
    for (unsigned i = 0; i < LEAVES; i++)
        memset(buffer + (size_t)i * BLOCK, (int)i + 1, BLOCK);
    ended = 0;
    for (unsigned turn = 0; submitted < LEAVES; turn++) {
        unsigned count = turn < PLX_FEW_TRANSFERS ? 1 : PLX_MANY_WRITES;

        for (unsigned i = 0; i < count && submitted < LEAVES; i++)
            plx_vdi_submit(vdi, request_for(submitted++, PLX_WRITE));
        plx_store_tick(store);
        most = vdi->log.batch_count > most ? vdi->log.batch_count : most;
    }
    CU_ASSERT_EQUAL(most, PLX_BATCHES);
    wait_for(submitted);
    for (unsigned i = 0; i < LEAVES; i++)
        CU_ASSERT(reads_as(vdi, i * LEAF, BLOCK, (int)i + 1));
    fixture.disk.patience = patience;
    fixture.disk.stalls = 0;
    end(vdi);
}

/* All operations are busy, also those that are kept for who comes ahead: the next one of those
 * waits, but before all that wait in turn. */
static void test_ahead(void)
{
    unsigned in_turn = 20;
    struct plx_vdi *vdi;

    fixture.open.ops_per_vdi = 8;
    vdi = make_cold();
    memset(buffer, 0, LEAVES * BLOCK);
    ended = 0;
    for (unsigned i = 0; i < in_turn; i++)
        plx_vdi_submit(vdi, request_for(i, PLX_READ));
    CU_ASSERT_PTR_EQUAL(vdi->waiting, &many[8].request);
    for (unsigned i = in_turn; i < in_turn + 3; i++)
        plx_vdi_submit_ahead(vdi, request_for(i, PLX_READ));
    CU_ASSERT_PTR_EQUAL(vdi->waiting, &many[in_turn + 2].request);
    wait_for(in_turn + 3);
    CU_ASSERT(many[in_turn + 2].place < many[in_turn - 1].place);
    for (unsigned i = 0; i < in_turn + 3; i++)
        CU_ASSERT_EQUAL(buffer[i * BLOCK], i + 1);
    fixture.open.ops_per_vdi = 0;
    end(vdi);
}

/* ---- Snapshots beside writes in place ---- */

/* A write of data that does not get to the device until it is let go. */
static struct {
    bool wanted;
    struct plx_io *io;
} held;
static const struct plx_device_ops *disk_ops;

static void submit_or_hold(struct plx_device *device, struct plx_io *io)
{
    if (held.wanted && io->op == PLX_IO_WRITE && io->kind == PLX_KIND_DATA) {
        held.wanted = false;
        held.io = io;
        return;
    }
    disk_ops->submit(device, io);
}

static struct plx_device *attach_holding(void)
{
    static struct plx_device_ops ops;
    struct plx_device *device = plx_simdisk_attach(disk, "sim");

    disk_ops = device->ops;
    ops = *disk_ops;
    ops.submit = submit_or_hold;
    device->ops = &ops;
    return device;
}

/* A few turns, in which everything happens that can. */
static void turns(void)
{
    for (unsigned i = 0; i < 200; i++)
        plx_store_tick(store);
}

static void order_snapshot(struct plx_vdi *vdi)
{
    request_for(1, PLX_SNAPSHOT);
    many[1].request.iov = NULL;
    many[1].request.iovcnt = 0;
    many[1].request.offset = many[1].request.length = 0;
    plx_vdi_submit(vdi, &many[1].request);
}

/* v0, whose first block may be written in place, and a write of it that is held. blocks: how many
 * that has; a further one is new to the disk. */
static struct plx_vdi *make_write_held(unsigned blocks)
{
    struct plx_vdi *vdi;

    fixture.attach = attach_holding;
    vdi = make_with_vdi(64 * MIB, MIB, MIB);
    for (int byte = 1; byte <= 2; byte++) /* the checksums are void from the second time on */
        OK(write_byte(vdi, 0, BLOCK, byte));
    plx_vdi_set_write_back(vdi, true);
    memset(buffer, 3, 2 * BLOCK);
    ended = 0;
    request_for(0, PLX_WRITE);
    many[0].iov.iov_len = many[0].request.length = blocks * BLOCK;
    held.wanted = true;
    plx_vdi_submit(vdi, &many[0].request);
    turns();
    CU_ASSERT_FATAL(!held.wanted && !ended);
    return vdi;
}

static void end_held(struct plx_vdi *vdi, bool leaks)
{
    OK(plx_vdi_close(vdi));
    check_store(leaks);
    end_store();
    fixture.attach = NULL;
}

/* What is being written when a snapshot is ordered is durable with it, by one flush. */
static void test_snapshot_beside(void)
{
    for (unsigned blocks = 1; blocks <= 2; blocks++) {
        struct plx_vdi *instant, *vdi = make_write_held(blocks);
        uint64_t flushes = counters().device_flushes;

        order_snapshot(vdi);
        turns();
        CU_ASSERT_EQUAL(many[1].place, 0);
        CU_ASSERT_EQUAL(counters().device_flushes, flushes);
        disk_ops->submit(opened, held.io);
        wait_for(2);
        CU_ASSERT_EQUAL(counters().device_flushes, flushes + 1);
        OK(write_byte(vdi, 0, BLOCK, 4));
        OK(plx_snapshot_open(store, 0, many[1].request.seq, &instant, &fault));
        CU_ASSERT(reads_as(instant, 0, blocks * BLOCK, 3));
        OK(plx_vdi_close(instant));
        end_held(vdi, false);
    }
}

/* The disk stops before that is written: the snapshot fails at once if it was not on its way, and
 * the write ends as if there had been none. */
static void test_stopped_beside(void)
{
    for (unsigned logged = 0; logged < 2; logged++) {
        struct plx_vdi *vdi = make_write_held(1);

        order_snapshot(vdi);
        if (logged)
            turns();
        plx_log_stop(&vdi->log, PLX_ERR_STICKY, 0);
        turns();
        CU_ASSERT_EQUAL(many[1].place != 0, !logged);
        CU_ASSERT_EQUAL(vdi->oldest->seen_by != NULL, logged != 0);
        disk_ops->submit(opened, held.io);
        while (ended < 2)
            if (!plx_store_tick(store))
                plx_store_wait(store);
        OK(many[0].request.result);
        if (logged)
            OK(many[1].request.result);
        else
            FAILS(STICKY, many[1].request.result);
        CU_ASSERT(reads_as(vdi, 0, BLOCK, 3));
        crash_store();
        OK(try_open_vdi(0, true, &vdi));
        if (logged)
            CU_ASSERT(reads_as(vdi, 0, BLOCK, 3));
        end_held(vdi, true);
    }
}

/* A write in place and of a new block at once, with nothing cached: one flush makes both durable.
 */
static void test_flush_of_both(void)
{
    struct plx_vdi *vdi;
    uint64_t flushes;

    vdi = make_with_vdi(64 * MIB, MIB, MIB);
    for (int byte = 1; byte <= 2; byte++)
        OK(write_byte(vdi, 0, BLOCK, byte));
    flushes = counters().device_flushes;
    OK(write_byte(vdi, 0, 2 * BLOCK, 3));
    CU_ASSERT_EQUAL(counters().device_flushes, flushes + 1);
    crash_store();
    OK(try_open_vdi(0, true, &vdi));
    CU_ASSERT(reads_as(vdi, 0, 2 * BLOCK, 3));
    OK(plx_vdi_close(vdi));
    check_store(true);
    end_store();
}

/* There is no room in the log. The snapshot fails, but not before that is written: the next one,
 * for which there is room again, sees it too, and counts on this one to have waited. */
static void test_no_room_beside(void)
{
    uint64_t bytes = MIB;
    struct plx_vdi *vdi;

    fixture.format.segment_bytes = 16u << 10;
    vdi = make_write_held(1);
    eat_segments();
    while (try_run(vdi, PLX_RESIZE, 0, bytes += 512, NULL) == 0)
        ;
    order_snapshot(vdi);
    turns();
    CU_ASSERT_EQUAL(many[1].place, 0);
    disk_ops->submit(opened, held.io);
    while (ended < 2)
        if (!plx_store_tick(store))
            plx_store_wait(store);
    OK(many[0].request.result);
    FAILS(NOSPACE, many[1].request.result);
    give_segments_back();
    run(vdi, PLX_SNAPSHOT, 0, 0);
    CU_ASSERT(reads_as(vdi, 0, BLOCK, 3));
    fixture.format.segment_bytes = 0;
    end_held(vdi, false);
}

/* ---- Closing ---- */

static struct plx_vdi *closing;
static unsigned written;

static void write_beside(struct plx_simenv *e)
{
    if (!closing->closing || !closing->map.is_frozen || ended != written)
        return;
    memset(buffer, 50 + (int)written, LEAVES * BLOCK);
    plx_vdi_submit(closing, request_for(written++, PLX_WRITE));
}

/* Somebody writes behind the key frame that is the last: he is refused, for no record would be
 * found behind it (KEYFRAME-5). It is closed, and has all else when it is opened again. */
static void test_written_while_closed(void)
{
    struct plx_vdi *vdi = closing = make_cold();

    ended = written = 0;
    OK(write_byte(vdi, BLOCK, BLOCK, 40));
    env.on_tick = write_beside;
    OK(plx_vdi_close(vdi));
    env.on_tick = NULL;
    CU_ASSERT(written && ended == written);
    OK(try_open_vdi(0, false, &vdi));
    for (unsigned i = 0; i < written; i++) {
        FAILS(BUSY, many[i].request.result);
        CU_ASSERT(reads_as(vdi, i * LEAF, BLOCK, (int)i + 1));
    }
    CU_ASSERT(reads_as(vdi, BLOCK, BLOCK, 40));
    OK(plx_vdi_close(vdi));
    check_store(true);
    end_store();
}

/* Of a disk without snapshots the log goes with the last key frame, and nothing may come to lie in
 * it any more: refused, or in the key frame, whenever it comes. */
static unsigned turns_left;
static enum plx_request_op late;

static void come_late(struct plx_simenv *e)
{
    if (!closing->keyframe.quiet || !closing->keyframe.running || written || turns_left-- > 0)
        return;
    memset(buffer, 50, BLOCK);
    request_for(0, late)->length = late == PLX_WRITE ? BLOCK : 0;
    written = 1;
    plx_vdi_submit(closing, &many[0].request);
}

static void end_late(enum plx_request_op op, unsigned turns)
{
    struct plx_vdi *vdi;
    int result;

    vdi = closing = make_with_vdi(32 * MIB, MIB, 16 * MIB);
    for (unsigned i = 1; i < 8; i++)
        OK(write_byte(vdi, i * LEAF, BLOCK, (int)i));
    late = op;
    turns_left = turns;
    ended = written = 0;
    env.on_tick = come_late;
    result = plx_vdi_close(vdi);
    env.on_tick = NULL;
    CU_ASSERT(result == 0 || result == PLX_ERR_BUSY);
    CU_ASSERT_EQUAL(ended, written);
    OK(try_open_vdi(0, result != 0, &vdi));
    CU_ASSERT(!written || op != PLX_WRITE ||
              reads_as(vdi, 0, BLOCK, many[0].request.result ? 0 : 50));
    CU_ASSERT(!written || many[0].request.result == 0 || many[0].request.result == PLX_ERR_BUSY);
    for (unsigned i = 1; i < 8; i++)
        CU_ASSERT(reads_as(vdi, i * LEAF, BLOCK, (int)i));
    OK(plx_vdi_close(vdi));
    check_store(true);
    end_store();
}

static void test_too_late(void)
{
    for (unsigned turns = 0; turns < 40; turns++) {
        end_late(PLX_WRITE, turns);
        end_late(PLX_SNAPSHOT, turns);
    }
}

/* ---- Behind a barrier ---- */

static void read_behind(struct plx_simenv *e)
{
    if (!closing->barrier || written)
        return;
    written = 1;
    plx_vdi_submit(closing, request_for(0, PLX_READ));
}

/* What has come while the disk was rewound is done, even if the disk is let go right after that. */
static void test_behind_barrier(void)
{
    struct plx_rewind_options back = {.seq = 1};
    struct plx_snapshot_info before;
    struct plx_vdi *vdi = closing = make_cold();

    OK(write_byte(vdi, 0, BLOCK, 40));
    ended = written = 0;
    env.on_tick = read_behind;
    OK(plx_vdi_rewind(vdi, &back, &before, &fault));
    env.on_tick = NULL;
    CU_ASSERT(written == 1 && ended == 0);
    plx_vdi_abandon(vdi);
    CU_ASSERT_EQUAL_FATAL(ended, 1);
    OK(many[0].request.result);
    CU_ASSERT_EQUAL(buffer[0], 1);
    OK(try_open_vdi(0, true, &vdi));
    OK(plx_vdi_close(vdi));
    check_store(true);
    end_store();
}

/* ---- Without room ---- */

static unsigned asked; /* for history to give way, by a write that must not wait for that */

static void give_up_waiting(struct plx_simenv *e)
{
    if (!(closing->closing || closing->barrier) || !e->room_wanted)
        return;
    asked++;
    e->gives_way = e->room_wanted = false;
    plx_store_room_made(store, true);
}

/* A store that is full. */
static void fill_store(void)
{
    struct iovec iov = {buffer, MIB};
    struct plx_request fill = {.op = PLX_WRITE, .length = MIB, .iov = &iov, .iovcnt = 1};

    closing = make_with_vdi(16 * MIB, MIB, 64 * MIB);
    OK(write_byte(closing, 0, BLOCK, 1));
    run(closing, PLX_SNAPSHOT, 0, 0);
    memset(buffer, 2, MIB);
    for (fill.offset = MIB; plx_vdi_run(closing, &fill) == 0; fill.offset += fill.length)
        ;
    for (fill.length = BLOCK; plx_vdi_run(closing, &fill) == 0; fill.offset += BLOCK)
        ;
    CU_ASSERT_EQUAL(fill.result, PLX_ERR_NOSPACE);
    ended = 0;
}

/* Of a block that a snapshot sees. */
static void submit_write(void)
{
    memset(buffer, 3, BLOCK);
    plx_vdi_submit(closing, request_for(0, PLX_WRITE));
}

/* It waits for history to give way. */
static void write_without_room(void)
{
    fill_store();
    asked = 0;
    env.gives_way = true;
    submit_write();
    CU_ASSERT(env.room_wanted && !ended);
    env.room_wanted = false;
    env.on_tick = give_up_waiting;
}

static void expect_no_room(void)
{
    env.on_tick = NULL;
    CU_ASSERT_EQUAL(ended, 1);
    CU_ASSERT_EQUAL(many[0].request.result, PLX_ERR_NOSPACE);
}

/* Not on a disk that is being closed: who would see to that may be waiting for the disk. */
static void test_no_room_when_closed(void)
{
    struct plx_vdi *vdi;

    write_without_room();
    OK(plx_vdi_close(closing));
    expect_no_room();
    CU_ASSERT_EQUAL(asked, 0);
    vdi = open_vdi(0);
    CU_ASSERT(reads_as(vdi, 0, BLOCK, 1));
    end(vdi);
}

/* Nor on one that is being rewound. */
static void test_no_room_when_rewound(void)
{
    struct plx_rewind_options back = {.seq = 1};
    struct plx_snapshot_info before;

    write_without_room();
    OK(plx_vdi_rewind(closing, &back, &before, &fault));
    expect_no_room();
    CU_ASSERT_EQUAL(asked, 0);
    CU_ASSERT(reads_as(closing, 0, BLOCK, 1));
    OK(plx_vdi_close(closing));
    check_store(true); /* what only the times before had */
    end_store();
}

/* Where nobody lets history go, no write waits for that. */
static void test_no_room_for_ever(void)
{
    fill_store();
    env.env.room_wanted = NULL;
    submit_write();
    while (!ended)
        if (!plx_store_tick(store))
            plx_store_wait(store);
    expect_no_room();
    end(closing);
}

/* ---- Turns of the loop ---- */

#define GREEDY 1000u

static void greedy_done(struct plx_request *request)
{
    ended++;
}

/* However much one disk has to do that waits for nothing, a turn comes to its end. */
static void test_greedy(void)
{
    static struct plx_request requests[GREEDY];
    struct plx_vdi *vdi;

    fixture.open.ops_per_vdi = 1; /* the next one begins when the loop comes round */
    vdi = make_cold();
    run(vdi, PLX_SNAPSHOT, 0, 0);
    ended = 0;
    for (unsigned i = 0; i < GREEDY; i++) {
        requests[i] = (struct plx_request){.op = PLX_SNAPSHOT, .done = greedy_done};
        plx_vdi_submit(vdi, &requests[i]); /* nothing has changed: the last one is told again */
    }
    CU_ASSERT(plx_store_tick(store)); /* there is more to do */
    CU_ASSERT(ended > 0 && ended < GREEDY / 2);
    while (ended < GREEDY)
        plx_store_tick(store);
    fixture.open.ops_per_vdi = 0;
    end(vdi);
}

/* Of all that there could be at once only as many take memory as there ever were. */
static void test_depth(void)
{
    struct plx_vdi *vdi = make_cold();

    for (unsigned i = 0; i < LEAVES; i++)
        OK(write_byte(vdi, i * LEAF, BLOCK, 90));
    CU_ASSERT_EQUAL(vdi->ops_touched, 1);
    ended = 0;
    for (unsigned i = 0; i < 3; i++) {
        memset(buffer, 91, LEAVES * BLOCK);
        plx_vdi_submit(vdi, request_for(i, PLX_WRITE));
    }
    while (ended < 3)
        plx_store_tick(store);
    CU_ASSERT_EQUAL(vdi->ops_touched, 3);
    end(vdi);
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"the reason after having waited", test_reason},
        {"a cache that is too small", test_small_cache},
        {"large reads that complete all at once", test_turns},
        {"as many batches as there may be", test_full_ring},
        {"ahead of those that wait", test_ahead},
        {"a snapshot beside a write in place", test_snapshot_beside},
        {"a disk that stops beside both", test_stopped_beside},
        {"a flush of data in place and logged", test_flush_of_both},
        {"no room beside both", test_no_room_beside},
        {"written while it is closed", test_written_while_closed},
        {"too late", test_too_late},
        {"behind a barrier", test_behind_barrier},
        {"no room when it is closed", test_no_room_when_closed},
        {"no room when it is rewound", test_no_room_when_rewound},
        {"no room, ever", test_no_room_for_ever},
        {"a turn ends", test_greedy},
        {"as deep as the load", test_depth},
    };

    fixture.open.cache_bytes = CACHED * BLOCK;
    return SUITE_RUN("requests", tests);
}
