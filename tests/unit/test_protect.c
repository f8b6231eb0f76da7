/* test_protect.c - snapshots beside writes, and those that a disk takes by itself. */
#include <string.h>

#include "ok.h"
#include "suite.h"
#include "unit/fixture.h"
#include "unit/properties.h"

/* ---- Snapshots beside writes ---- */

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

    vdi = make_with_vdi(64 * MIB, MIB, 32 * MIB);
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
        vdi = make_with_vdi(64 * MIB, MIB, 32 * MIB);
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

/* ---- Continuous protection ---- */

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

    vdi = make_with_vdi(128 * MIB, MIB, 64 * MIB);
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

    vdi = make_with_vdi(128 * MIB, MIB, 64 * MIB);
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

    vdi = make_with_vdi(128 * MIB, MIB, 64 * MIB);
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

    vdi = make_with_vdi(128 * MIB, MIB, 64 * MIB);
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

    vdi = make_with_vdi(128 * MIB, MIB, 64 * MIB);
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

    vdi = make_with_vdi(128 * MIB, MIB, 64 * MIB);
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

    vdi = make_with_vdi(64 * MIB, MIB, 16 * MIB);
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

    vdi = make_with_vdi(64 * MIB, MIB, 16 * MIB);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        FAILS(INVALID, plx_vdi_set_protection(vdi, &bad[i], &fault));
    seq = run(vdi, PLX_SNAPSHOT, 0, 0);
    OK(plx_vdi_close(vdi));
    OK(plx_snapshot_open(store, 0, seq, &vdi, &fault));
    FAILS(READONLY, plx_vdi_set_protection(vdi, &none, &fault));
    OK(plx_vdi_close(vdi));
    end_store();
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"a snapshot drains nothing", test_snapshot_does_not_drain},
        {"protection: an interval", test_protect_interval},
        {"protection: late, not left out", test_protect_late},
        {"protection: one at a time", test_protect_skips},
        {"protection: a snapshot shares a batch", test_protect_shares},
        {"protection: each write, each batch", test_protect_writes},
        {"protection: restarts and clones", test_protect_restart},
        {"protection: closed when it has stopped", test_protect_stopped},
        {"protection: refusals", test_protect_refusals},
        {"an idle snapshot waits for the one before", test_idle_snapshot_waits},
    };

    fixture.open.ops_per_vdi = 16;
    return SUITE_RUN("protect", tests);
}
