/* test_thin_failing.c - letting snapshots go where key frames and writes fail, the log is damaged,
 * or the store is full.
 */
#include <string.h>

#include "ok.h"
#include "suite.h"
#include "unit/thinning.h"

/* ---- Key frames that fail ---- */

/* What the record on the store names, newest or not yet durable, is allocated. */
static bool named_is_allocated(void)
{
    struct plx_vdi_record record;
    struct plx_log_reader log;
    bool all = true;
    uint8_t which;

    OK(plx_vdi_record_read(reader, 0, &record, &which, &fault));
    OK(plx_log_reader_open(reader, &record, &log, &fault));
    for (size_t i = 0; i < log.count; i++)
        all &= !log.segments[i] || allocated(log.segments[i], store->info.segment_blocks);
    all &= allocated(plx_entry_addr(record.keyframe.root), 1);
    all &= !record.oldest.root || allocated(plx_entry_addr(record.oldest.root), 1);
    plx_log_reader_close(&log);
    return all;
}

static struct {
    unsigned fail_in;   /* I/Os from when the key frame of the drop begins; 0: none */
    bool fail_keyframe; /* the one under way, once */
    bool wrong;         /* something that is named was free */
    uint64_t writes;    /* on the disk, when it was looked at last */
} watch;

static void watch_tick(struct plx_simenv *e)
{
    struct plx_keyframe_op *op = &vdi->keyframe;
    uint64_t writes = plx_simdisk_counters(disk)->writes;

    if (watch.fail_keyframe && op->running && vdi->map.is_frozen) {
        fault_plan_arm(&plan, FAULT_IO_ONCE, 1);
        watch.fail_keyframe = false;
    }
    if (watch.fail_in && op->running && op->drop) {
        fault_plan_arm(&plan, FAULT_IO_ONCE, watch.fail_in);
        watch.fail_in = 0;
    }
    if (op->error && !op->running) /* it is not tried again by itself */
        op->failed_at_ns = e->env.monotonic_ns(&e->env);
    if (writes != watch.writes)
        watch.wrong |= !named_is_allocated();
    watch.writes = writes;
}

static void begin_watch(void)
{
    memset(&watch, 0, sizeof watch);
    env.on_tick = watch_tick;
}

/* A key frame that failed is resumed by one of those that letting go waits for. It knows where the
 * log lay when it began: what goes, goes with the next one. */
static void test_resumed_keyframe(void)
{
    uint64_t between_all[12], first, last_before, segment;
    struct plx_thinned thinned;
    struct plx_thin thin;

    make_disk();
    write_history(12, between_all);
    do {
        write_places(3);
        snapshot();
        keyframe();
        write_places(1);
        last_before = snapshot();
        segment = plx_log_segment_of(&vdi->log, vdi->log.applied.pos);
    } while (segment != plx_log_segment_of(&vdi->log, vdi->record.keyframe.pos) ||
             SEGMENT - vdi->log.applied.pos % SEGMENT < 8 * 512);
    begin_watch();
    watch.fail_keyframe = true;
    write_places(1);
    CU_ASSERT_EQUAL_FATAL(plx_error_class(try_run(vdi, PLX_KEYFRAME, 0, 0, NULL)), PLX_CLASS_IO);
    CU_ASSERT_EQUAL(plx_log_segment_of(&vdi->log, vdi->keyframe.at.pos), segment);
    while (plx_log_segment_of(&vdi->log, vdi->log.applied.pos) < segment + 2)
        write_places(1);
    first = snapshot();
    CU_ASSERT(vdi->map.is_frozen);
    thin = (struct plx_thin){.after = last_before - 5, .upto = last_before - 1};
    OK(plx_vdi_thin(vdi, &thin, &thinned, &fault));
    CU_ASSERT(thinned.snapshots > 0);
    CU_ASSERT(!watch.wrong && named_is_allocated());
    env.on_tick = NULL;
    write_places(50); /* into what came free */
    expect_snapshot(last_before - 5);
    expect_snapshot(last_before);
    expect_snapshot(first);
    OK(plx_vdi_close(vdi));
    vdi = open_vdi(0);
    CU_ASSERT(holds(vdi, model.now));
    end_disk(true);
}

/* The key frame that the drop rides on fails at its k-th I/O: then nothing has gone, what goes on
 * is the key frame alone; and the next time they go. Returns whether it came so far. */
static bool fail_drop(unsigned k)
{
    struct plx_thin thin = {.after = 10, .upto = 15};
    uint64_t between_all[12];
    struct plx_thinned thinned = {0};
    bool failed;

    make_disk();
    write_history(8, between_all);
    begin_watch();
    watch.fail_in = k;
    failed = plx_vdi_thin(vdi, &thin, &thinned, &fault) != 0;
    fault_plan_heal(&plan);
    CU_ASSERT_EQUAL(watch.fail_in, 0);
    if (plx_vdi_health(vdi, NULL)) { /* which of the two records counts is not known */
        env.on_tick = NULL;
        plx_vdi_abandon(vdi);
        OK(try_open_vdi(0, true, &vdi));
        CU_ASSERT(!watch.wrong && named_is_allocated());
        env.on_tick = watch_tick;
    } else if (failed) {
        for (uint64_t seq = 10; seq <= 16; seq++)
            expect_snapshot(seq);
        keyframe();
    }
    CU_ASSERT_PTR_NULL(vdi->keyframe.drop);
    CU_ASSERT_PTR_NULL(vdi->keyframe.next_drop);
    OK(plx_vdi_thin(vdi, &thin, &thinned, &fault));
    CU_ASSERT(!watch.wrong && named_is_allocated());
    env.on_tick = NULL;
    write_places(50);
    expect_snapshot(10);
    expect_no_snapshot(12);
    expect_snapshot(16);
    CU_ASSERT(holds(vdi, model.now));
    end_disk(true);
    return failed;
}

static void test_drop_fails(void)
{
    unsigned failed = 0;

    for (unsigned k = 1; k <= 40; k++)
        failed += fail_drop(k);
    CU_ASSERT(failed > 10);
}

/* ---- Damage (REWRITE-5) ---- */

struct batch {
    uint64_t segment, addr; /* addr: of the segment */
    size_t offset;
};

static size_t list_batches(struct batch *ret_batches, size_t max)
{
    struct plx_vdi_record record;
    struct plx_log_reader log;
    size_t count = 0;
    uint8_t which;

    OK(plx_vdi_record_read(reader, 0, &record, &which, &fault));
    OK(plx_log_reader_open(reader, &record, &log, &fault));
    plx_log_reader_seek(&log, &record.oldest);
    while (plx_log_reader_next(&log, &fault) == 0) {
        CU_ASSERT_FATAL(count < max);
        ret_batches[count++] = (struct batch){.segment = log.loaded,
                                              .addr = log.segments[log.loaded - log.first_segment],
                                              .offset = (size_t)(log.batch - log.buffer)};
    }
    plx_log_reader_close(&log);
    return count;
}

/* One batch after the other is damaged. Of the segments that are rewritten none is copied
 * without it: nothing goes, although nobody has to read it for what goes. reopened: they are of an
 * older epoch, so that no later batch says that it was durable. */
static void damage_batches(bool reopened)
{
    static struct batch batches[1000];
    static bool found[1000];
    struct plx_thin thin = {.after = 13, .upto = 17, .dry_run = true};
    struct plx_thinned thinned;
    uint64_t around[12];
    size_t count, moved = 0;

    make_disk();
    write_history(12, around);
    if (reopened) {
        OK(plx_vdi_close(vdi));
        vdi = open_vdi(0);
    }
    keyframe();
    count = list_batches(batches, sizeof batches / sizeof batches[0]);
    for (size_t i = 0; i < count; i++) {
        uint64_t at = batches[i].addr * BLOCK + batches[i].offset + PLX_BATCH_HEADER_BYTES;
        int error;

        plx_simdisk_flip(disk, at, 1);
        error = plx_vdi_thin(vdi, &thin, &thinned, &fault);
        CU_ASSERT(!error || error == PLX_ERR_CORRUPT);
        found[i] = error != 0;
        plx_simdisk_flip(disk, at, 1);
    }
    thin.dry_run = false;
    OK(plx_vdi_thin(vdi, &thin, &thinned, &fault));
    CU_ASSERT_EQUAL(thinned.snapshots, 4);
    for (size_t i = 0; i < count; i++) {
        const struct batch *b = &batches[i];

        if (vdi->log.segments[b->segment - vdi->record.first_segment] == b->addr)
            continue;
        moved++;
        CU_ASSERT(found[i]);
    }
    CU_ASSERT(moved > 20 && moved < count);
    for (uint64_t seq = 10; seq <= 20; seq++)
        if (seq <= 13 || seq >= 18)
            expect_snapshot(seq);
    end_disk(false);
}

static void test_damaged_log(void)
{
    damage_batches(false);
    damage_batches(true);
}

static void damage(const struct batch *batch)
{
    plx_simdisk_flip(disk, batch->addr * BLOCK + batch->offset + PLX_BATCH_HEADER_BYTES, 1);
}

/* The last batch of the segment that the stretch ends in, and the only one behind it: nothing on
 * the store says that they were durable, so the log seems to end before them. It does not: they are
 * of the disk that is open, and no copy is made without them. */
static void test_damaged_end(void)
{
    static struct batch batches[100];
    struct plx_thin thin = {.after = 1, .upto = 2};
    struct plx_thinned thinned;
    uint64_t segment;
    size_t count;

    make_disk();
    for (unsigned i = 0; i < 2; i++) {
        write_places(2);
        snapshot();
    }
    write_places(2);
    keyframe();
    write_places(1);
    snapshot();
    segment = plx_log_segment_of(&vdi->log, vdi->record.keyframe.pos);
    while (plx_log_segment_of(&vdi->log, vdi->log.applied.pos) == segment)
        write_places(1);
    count = list_batches(batches, sizeof batches / sizeof batches[0]);
    CU_ASSERT_FATAL(count > 2);
    CU_ASSERT_EQUAL_FATAL(batches[count - 1].segment, segment + 1);
    CU_ASSERT_EQUAL_FATAL(batches[count - 2].segment, segment);
    damage(&batches[count - 2]);
    damage(&batches[count - 1]);
    FAILS(CORRUPT, plx_vdi_thin(vdi, &thin, &thinned, &fault));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "v0: log segment"));
    damage(&batches[count - 2]);
    damage(&batches[count - 1]);
    expect_snapshot(2);
    OK(plx_vdi_thin(vdi, &thin, &thinned, &fault));
    CU_ASSERT_EQUAL(thinned.snapshots, 1);
    CU_ASSERT_NOT_EQUAL(vdi->log.segments[segment - vdi->record.first_segment],
                        batches[count - 2].addr);
    expect_snapshot(1);
    expect_no_snapshot(2);
    expect_snapshot(3);
    plx_vdi_abandon(vdi);
    OK(try_open_vdi(0, true, &vdi));
    CU_ASSERT(holds(vdi, model.now)); /* what was acknowledged behind the key frame, too */
    end_disk(true);
}

/* ---- A full store ---- */

static int try_write(void)
{
    unsigned place = model.writes * 37 % PLACES;
    int error;

    memset(buffer, (int)(model.writes % 251 + 1), BLOCK);
    error = write_place(place);
    if (!error)
        model.now[place] = (uint8_t)(model.writes++ % 251 + 1);
    return error;
}

/* In the middle, letting go needs room for what it writes, and takes nothing of the reserve: it may
 * be refused, then nothing has changed. At the old end it needs none, and makes room. */
static void test_full_store(void)
{
    unsigned refusals = 0;
    uint64_t first = 0, last;
    int error = 0;

    make_disk();
    registry.limit = 5;
    while (!error) {
        for (unsigned i = 0; i < 9 && !error; i++)
            error = try_write();
        if (!error) {
            snapshot();
            error = try_run(vdi, PLX_KEYFRAME, 0, 0, NULL);
        }
    }
    CU_ASSERT_EQUAL(error, PLX_ERR_NOSPACE);
    last = model.newest;
    for (uint64_t seq = 2; seq + 4 < last; seq += 3) {
        struct plx_thin thin = {.after = seq, .upto = seq + 1};
        struct plx_thinned thinned;

        error = plx_vdi_thin(vdi, &thin, &thinned, &fault);
        CU_ASSERT(!error || error == PLX_ERR_NOSPACE);
        refusals += error != 0;
        expect_snapshot(seq);
        if (error)
            expect_snapshot(seq + 1);
        while (!error && !try_write()) /* full again */
            ;
        first = seq;
    }
    CU_ASSERT(refusals > 0);
    CU_ASSERT(let_go(0, first, NULL, 0) > 0);
    write_places(20);
    expect_snapshot(last);
    CU_ASSERT(holds(vdi, model.now));
    end_disk(true);
}

/* Until nothing more can be made of what there is. */
static void use_up_metadata(struct plx_vdi *neighbour)
{
    uint64_t taken, one;

    registry.limit = registry.granted;
    while (plx_vdi_wait_metadata_room(neighbour) == 0)
        OK(plx_alloc_run(store, PLX_EXTENT_META, 1, NULL, &taken, &one));
}

/* What it writes leaves a neighbour room for a key frame. When there is none, and the neighbour has
 * written what it had changed, it waits for an extent that comes, and is refused if none does. */
static void test_neighbours_reserve(void)
{
    const struct plx_thin middle[] = {{.after = 2, .upto = 8}, {.after = 10, .upto = 16}};
    struct plx_thinned thinned;
    struct plx_vdi *neighbour;
    uint64_t around[8];

    make_disk();
    OK(create_vdi(1, 2 * PLACES * APART * (uint64_t)BLOCK));
    neighbour = open_vdi(1);
    write_history(8, around);
    for (uint64_t leaf = 0; leaf < PLACES; leaf++)
        OK(write_byte(neighbour, leaf * APART * BLOCK, BLOCK, 1));
    CU_ASSERT(neighbour->map.active.count > 0);
    use_up_metadata(neighbour);
    CU_ASSERT_EQUAL(neighbour->map.active.count, 0);
    FAILS(NOSPACE, plx_vdi_thin(vdi, &middle[0], &thinned, &fault));
    expect_snapshot(6);
    registry.limit++;
    env.ns += 1000000000; /* it may be asked again */
    env.grant_later = true;
    OK(plx_vdi_thin(vdi, &middle[0], &thinned, &fault));
    expect_no_snapshot(6);
    OK(plx_vdi_thin(vdi, &middle[1], &thinned, &fault));
    env.grant_later = false;
    CU_ASSERT(holds(vdi, model.now));
    OK(plx_vdi_close(neighbour));
    end_disk(true);
}

/* ---- What is rewritten cannot be ---- */

#define LEAVES 690u /* of which blocks are overwritten in place */

static void submit(struct plx_request request)
{
    OK(plx_vdi_run(vdi, &request));
}

static void put_labels(unsigned count)
{
    struct plx_request label = {.op = PLX_LABEL, .seq = 1};

    memset(label.label, 'x', PLX_LABEL_MAX);
    for (unsigned i = 0; i < count; i++) {
        label.label[0] = (char)('a' + i % 26);
        label.label[1] = (char)('a' + i / 26);
        submit(label);
    }
}

/* More labels, and more sizes, than a batch can hold. */
static void put_words(void)
{
    put_labels(300);
    for (unsigned i = 0; i < 800; i++)
        submit((struct plx_request){.op = PLX_RESIZE, .length = vdi->size_bytes + BLOCK});
}

/* More leaves whose checksums are void. */
static void put_leaves(void)
{
    put_labels(60);
    for (unsigned i = 0; i < 2 * LEAVES; i++)
        OK(write_byte(vdi, i % LEAVES * APART * BLOCK + BLOCK, BLOCK, 1 + (int)(i / LEAVES)));
}

/* Of the snapshots 2 and 4 go. Between is a key frame that is kept for 3. */
static void make_wordy(void (*put)(void))
{
    make_disk();
    submit((struct plx_request){.op = PLX_RESIZE, .length = LEAVES * APART * BLOCK});
    write_places(3);
    snapshot();
    keyframe();
    write_places(1);
    snapshot();
    put();
    keyframe();
    write_places(1);
    snapshot();
    write_places(1);
    snapshot();
    keyframe();
    write_places(1);
    snapshot();
    approach_end(); /* so that the segment in which it ends is complete */
    write_places(3);
}

static const uint64_t third = 3;
static const struct plx_thin around_third = {
    .after = 1, .upto = 4, .kept = &third, .kept_count = 1, .dry_run = true};

static void expect_wordy(bool gone)
{
    for (uint64_t seq = 1; seq <= 5; seq++)
        if (gone && (seq == 2 || seq == 4))
            expect_no_snapshot(seq);
        else
            expect_snapshot(seq);
    CU_ASSERT(holds(vdi, model.now));
}

/* Wherever a write fails: it says so, and nothing has changed. */
static void fail_writes(void (*put)(void))
{
    struct plx_thin thin = around_third;
    struct plx_thinned thinned;
    unsigned failures = 0;
    bool failed = true;

    make_wordy(put);
    while (failed) {
        int error;

        fault_plan_arm(&plan, FAULT_IO_LOST, failures + 1);
        error = plx_vdi_thin(vdi, &thin, &thinned, &fault);
        failed = fault_plan_heal(&plan);
        CU_ASSERT_EQUAL(error, failed ? PLX_ERR_LOST : 0);
        failures += failed;
    }
    CU_ASSERT(failures > 3);
    CU_ASSERT_EQUAL(thinned.snapshots, 2);
    OK(plx_vdi_health(vdi, &fault));
    expect_wordy(false);
    thin.dry_run = false;
    OK(plx_vdi_thin(vdi, &thin, &thinned, &fault));
    CU_ASSERT_EQUAL(thinned.snapshots, 2);
    expect_wordy(true);
    end_disk(false);
}

static void test_failing_writes(void)
{
    fail_writes(put_words);
    fail_writes(put_leaves);
}

static struct {
    uint64_t addr[1024];
    size_t count;
} others;

static void take_segments(void)
{
    while (others.count < 1024 && plx_alloc_segment_sync(store, &others.addr[others.count]) == 0)
        others.count++;
    CU_ASSERT_FATAL(others.count > 0 && others.count < 1024);
}

static void give_segment(void)
{
    plx_alloc_free(store, others.addr[--others.count], SEGMENT / BLOCK);
}

/* However few segments there is room for: too few, and nothing has changed. */
static void test_few_segments(void)
{
    struct plx_thin thin = {.after = 2, .upto = 18, .dry_run = true};
    struct plx_thinned thinned;
    uint64_t around[8];
    unsigned refusals = 0;

    make_disk();
    write_history(8, around);
    keyframe();
    registry.limit = registry.granted;
    others.count = 0;
    while (thin.upto-- > 8) {
        int error;

        take_segments();
        while ((error = plx_vdi_thin(vdi, &thin, &thinned, &fault)) && others.count) {
            CU_ASSERT_EQUAL(error, PLX_ERR_NOSPACE);
            refusals++;
            give_segment();
        }
        OK(error);
    }
    CU_ASSERT(refusals > 20);
    while (others.count)
        give_segment();
    expect_snapshot(6);
    thin = (struct plx_thin){.after = 2, .upto = 8};
    OK(plx_vdi_thin(vdi, &thin, &thinned, &fault));
    expect_no_snapshot(6);
    end_disk(false);
}

/* More adjoining blocks than a record can name. */
static void test_long_run(void)
{
    struct plx_vdi *instant = NULL;

    fixture.format.segment_bytes = 128u << 10;
    make_store(64 * MIB, 16 * MIB);
    open_reader();
    OK(create_vdi(0, 16 * MIB));
    vdi = open_vdi(0);
    run(vdi, PLX_SNAPSHOT, 0, 0);
    run(vdi, PLX_KEYFRAME, 0, 0);
    OK(write_byte(vdi, 0, 4 * MIB, 1));
    OK(write_byte(vdi, 4 * MIB, 4 * MIB, 2));
    run(vdi, PLX_SNAPSHOT, 0, 0);
    OK(write_byte(vdi, 12 * MIB, BLOCK, 3));
    for (unsigned i = 0; i < 2; i++) {
        run(vdi, PLX_SNAPSHOT, 0, 0);
        run(vdi, PLX_KEYFRAME, 0, 0);
    }
    CU_ASSERT_EQUAL(let_go(1, 2, NULL, 0), 1);
    expect_no_snapshot(2);
    OK(plx_snapshot_open(reader, 0, 3, &instant, &fault));
    CU_ASSERT(reads_as(instant, 0, 4 * MIB, 1));
    CU_ASSERT(reads_as(instant, 4 * MIB, 4 * MIB, 2));
    CU_ASSERT(reads_as(instant, 12 * MIB, BLOCK, 3));
    plx_vdi_abandon(instant);
    end_disk(false);
    fixture.format.segment_bytes = SEGMENT;
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"a key frame that is resumed", test_resumed_keyframe},
        {"a key frame that fails", test_drop_fails},
        {"a damaged log", test_damaged_log},
        {"a damaged end", test_damaged_end},
        {"a full store", test_full_store},
        {"a neighbour's reserve", test_neighbours_reserve},
        {"writes that fail", test_failing_writes},
        {"few segments", test_few_segments},
        {"a long run of blocks", test_long_run},
    };

    prepare_thinning();
    return SUITE_RUN("letting go, failing", tests);
}
