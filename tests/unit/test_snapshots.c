/* test_snapshots.c - snapshots let go, found by their time, and taken while clocks jump. */
#include <stdio.h>
#include <string.h>

#include "ok.h"
#include "suite.h"
#include "unit/fixture.h"
#include "unit/properties.h"

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

static void expect_no_instant(uint64_t seq)
{
    struct plx_vdi *instant;

    FAILS(NOT_FOUND, plx_snapshot_open(store, 0, seq, &instant, &fault));
}

/* At the old end history just begins later: nothing is rewritten. */
static void test_forget(void)
{
    struct plx_vdi_info info;
    struct plx_vdi *vdi, *reader;
    uint64_t last, gone, free_before;

    vdi = make_with_vdi(64 * MIB, MIB, 16 * MIB);
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

/* In the middle the log is rewritten, with fewer snapshots, again and again; what stays reads as
 * it did, and in the end nothing is left of what went. */
static void test_thin(void)
{
    struct plx_vdi *vdi;
    uint64_t last, gone, kept[64], free_before, stays;

    vdi = make_with_vdi(64 * MIB, MIB, 16 * MIB);
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

    vdi = make_with_vdi(64 * MIB, MIB, 16 * MIB);
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

    vdi = make_with_vdi(64 * MIB, MIB, 16 * MIB);
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

    vdi = make_with_vdi(256 * MIB, MIB, 16 * MIB);
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

    vdi = make_with_vdi(64 * MIB, MIB, 16 * MIB);
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

    vdi = make_with_vdi(64 * MIB, MIB, 16 * MIB);
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
 * that has stopped is opened again. */
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

/* The next process, which knows of the clocks what was kept before the first jump. */
static struct plx_vdi *killed(const struct plx_witness *kept)
{
    struct plx_vdi_open_options options = {
        .epoch = ++epoch, .take_over = true, .overwrite = -1, .witness = kept};
    struct plx_vdi *vdi = NULL;

    kill_store();
    OK(plx_vdi_open(store, &options, &vdi, &fault));
    return vdi;
}

/* WITNESS-9: a process dies before the registry heard of its doubt. The clock is right by then, or
 * is not. */
static void test_clock_doubt_untold(void)
{
    for (unsigned right = 0; right < 2; right++) {
        struct plx_vdi *vdi = make_dated();
        struct plx_vdi_clock clock;
        struct plx_witness kept;

        plx_vdi_look_at_clock(vdi, &clock);
        kept = clock.witness;
        time_of_next(vdi); /* 4 */
        env.ns += 1000 * MS;
        time_of_next(vdi);
        env.off_ns = 10 * 86400 * 1000000000ll;
        time_of_next(vdi);
        time_of_next(vdi);
        env.off_ns = right ? 0 : env.off_ns;
        vdi = killed(&kept);
        plx_vdi_look_at_clock(vdi, &clock);
        CU_ASSERT_EQUAL(clock.witness.doubt, right ? PLX_DOUBT_NONE : PLX_DOUBT_STEPPED);
        CU_ASSERT(plx_witness_is_undated(&clock.witness, 6));
        CU_ASSERT(plx_witness_is_undated(&clock.witness, 7));
        CU_ASSERT(plx_witness_is_undated(&clock.witness, 5) == !right); /* to be certain */
        CU_ASSERT(!plx_witness_is_undated(&clock.witness, 3));
        CU_ASSERT(plx_witness_is_undated(&clock.witness, 8) == !right);
        env.off_ns = 0;
        env.ns += 1000 * MS;
        time_of_next(vdi);
        plx_vdi_look_at_clock(vdi, &clock);
        kept = clock.witness;
        vdi = killed(&kept); /* nothing new */
        plx_vdi_look_at_clock(vdi, &clock);
        CU_ASSERT_EQUAL(clock.witness.undated_count, 1);
        CU_ASSERT(plx_witness_is_undated(&clock.witness, 8) == !right); /* the first look */
        OK(plx_vdi_close(vdi));
        end_store();
    }
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"old snapshots are let go", test_forget},
        {"snapshots are let go in any order", test_thin},
        {"one snapshot is let go", test_thin_one},
        {"a clone's snapshot is not", test_thin_clone},
        {"snapshots by their time", test_snapshot_at},
        {"clocks that jump", test_clock_jumps},
        {"a snapshot that was not logged, and a clock that jumps", test_clock_number_again},
        {"a snapshot that failed, and a clock that is right too early", test_clock_right_too_early},
        {"a doubt that nobody was told of", test_clock_doubt_untold},
    };

    fixture.open.ops_per_vdi = 16;
    return SUITE_RUN("snapshots", tests);
}
