/* test_thin.c - letting snapshots go, seen closely: the order of snapshots and key frames in the
 * log, who reads meanwhile, key frames that fail meanwhile, stretches that fit badly, listings.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/loop/cache.h"
#include "engine/log/replay.h"
#include "engine/disk/vdi.h" /* to see key frames under way */
#include "fault/faultdev.h"
#include "ok.h"
#include "suite.h"
#include "unit/fixture.h"

#define SEGMENT (16u << 10)
#define PLACES 96u /* blocks that are written: more leaves than the reader's cache has nodes */
#define APART 512u
#define SNAPS 400u
#define HISTORIES 8u

/* A disk in one process, and another process that reads it. */
static struct plx_simenv reader_env;
static struct plx_store *reader;
static struct plx_vdi *vdi;
static struct fault_plan plan; /* what fails, of the disk's own process */

/* What it holds, and held at each snapshot. */
static struct {
    uint8_t now[PLACES], then[SNAPS][PLACES];
    uint64_t newest;
    unsigned writes;
} model;

/* ---- The store ---- */

/* What somebody else does, once, between two turns of the loop: when it waits for the count-th time
 * while history is let go, or an instant is being opened. */
static struct {
    void (*act)(void);
    unsigned count;
} meanwhile;
static const struct plx_device_ops *planned_ops;

static int poll_meanwhile(struct plx_device *device, bool wait)
{
    void (*act)(void) = meanwhile.act;

    if (wait && act && (vdi->thinning || store->instants_opening) && --meanwhile.count == 0) {
        meanwhile.act = NULL;
        act();
    }
    return planned_ops->poll(device, wait);
}

/* The next segment's header does not get to the disk. */
static struct {
    bool wanted;
    struct plx_io *io;
} on_its_way;

static void submit_held(struct plx_device *device, struct plx_io *io)
{
    if (on_its_way.wanted && io->op == PLX_IO_WRITE && io->kind == PLX_KIND_LOG &&
        io->bytes == PLX_SEGMENT_HEADER_BYTES) {
        on_its_way.wanted = false;
        on_its_way.io = io;
        return;
    }
    planned_ops->submit(device, io);
}

static struct plx_device *attach_planned(void)
{
    static struct plx_device_ops ops;
    struct plx_device *device = fault_device_attach(disk, &plan);

    planned_ops = device->ops;
    ops = *planned_ops;
    ops.poll = poll_meanwhile;
    ops.submit = submit_held;
    device->ops = &ops;
    return device;
}

static void open_reader(void)
{
    struct plx_device *device = plx_simdisk_attach(disk, "sim");

    plx_simenv_init(&reader_env, 8);
    OK(plx_store_open(&device, 1, &(struct plx_store_options){.cache_bytes = 32 * BLOCK},
                      &reader_env.env, &reader, &fault));
    reader_env.instance = 0;
    reader_env.store = reader;
}

static void make_disk(void)
{
    memset(&model, 0, sizeof model);
    make_store(64 * MIB, MIB);
    open_reader();
    OK(create_vdi(0, PLACES * APART * (uint64_t)BLOCK));
    vdi = open_vdi(0);
}

static void end_disk(bool leaks)
{
    OK(plx_vdi_close(vdi));
    check_store(leaks);
    OK(plx_store_close(reader));
    end_store();
}

/* ---- The disk ---- */

static int write_place(unsigned place)
{
    return try_run(vdi, PLX_WRITE, (uint64_t)place * APART * BLOCK, BLOCK, NULL);
}

/* So many places, one after the other. */
static void write_places(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        unsigned place = model.writes * 37 % PLACES;

        model.now[place] = (uint8_t)(model.writes++ % 251 + 1);
        memset(buffer, model.now[place], BLOCK);
        OK(write_place(place));
    }
}

static void note_snapshot(uint64_t seq)
{
    CU_ASSERT_FATAL(seq < SNAPS);
    memcpy(model.then[seq], model.now, PLACES);
    model.newest = seq;
}

static uint64_t snapshot(void)
{
    uint64_t seq = run(vdi, PLX_SNAPSHOT, 0, 0);

    note_snapshot(seq);
    return seq;
}

static void keyframe(void)
{
    run(vdi, PLX_KEYFRAME, 0, 0);
}

/* A snapshot that is logged after a key frame's position, and before the log announces it. */
static struct {
    struct plx_request request, unmap;
    bool submitted, done;
} between;
static unsigned unmap_between; /* so many blocks, before that snapshot */

static void unmap_done(struct plx_request *request)
{
}

static void between_done(struct plx_request *request)
{
    between.done = true;
}

static void submit_between(struct plx_simenv *e)
{
    if (between.submitted || !vdi->keyframe.running || !vdi->map.is_frozen)
        return;
    between.submitted = true;
    between.unmap = (struct plx_request){.op = PLX_UNMAP,
                                         .offset = BLOCK,
                                         .length = (uint64_t)unmap_between * BLOCK,
                                         .done = unmap_done};
    if (unmap_between)
        plx_vdi_submit(vdi, &between.unmap);
    between.request = (struct plx_request){.op = PLX_SNAPSHOT, .done = between_done};
    plx_vdi_submit(vdi, &between.request);
}

static uint64_t keyframe_around_snapshot(void)
{
    memset(&between, 0, sizeof between);
    env.on_tick = submit_between;
    keyframe();
    env.on_tick = NULL;
    while (!between.done)
        if (!plx_store_tick(store))
            plx_store_wait(store);
    OK(between.request.result);
    note_snapshot(between.request.seq);
    return between.request.seq;
}

static bool place_is(struct plx_vdi *v, unsigned place, uint8_t byte)
{
    uint8_t bytes[BLOCK];
    struct iovec iov = {bytes, BLOCK};
    struct plx_request read = {.op = PLX_READ,
                               .offset = (uint64_t)place * APART * BLOCK,
                               .length = BLOCK,
                               .iov = &iov,
                               .iovcnt = 1};
    int error = plx_vdi_run(v, &read);

    if (error)
        printf("\n  place %u: %s: %s\n", place, plx_error_name(error), read.fault.text);
    for (unsigned i = 0; i < BLOCK && !error; i++)
        error = bytes[i] != byte;
    return error == 0;
}

static bool holds(struct plx_vdi *v, const uint8_t *places)
{
    for (unsigned p = 0; p < PLACES; p++)
        if (!place_is(v, p, places[p]))
            return false;
    return true;
}

/* Read in the other process. */
static void expect_instant(uint64_t seq)
{
    struct plx_vdi *instant = NULL;

    OK(plx_snapshot_open(reader, 0, seq, &instant, &fault));
    CU_ASSERT(holds(instant, model.then[seq]));
    plx_vdi_abandon(instant);
}

static void expect_no_instant(uint64_t seq)
{
    struct plx_vdi *instant;

    FAILS(NOT_FOUND, plx_snapshot_open(reader, 0, seq, &instant, &fault));
}

/* All that is asked for, slice by slice. Returns how many went. */
static uint64_t let_go(uint64_t after, uint64_t upto, const uint64_t *kept, size_t kept_count)
{
    struct plx_thin thin = {.after = after, .upto = upto, .kept = kept, .kept_count = kept_count};
    struct plx_thinned thinned;
    uint64_t gone = 0;

    do {
        OK(plx_vdi_thin(vdi, &thin, &thinned, &fault));
        gone += thinned.snapshots;
    } while (thinned.upto > thin.after && (thin.after = thinned.upto) < upto);
    return gone;
}

/* ---- The order of the log (RECLAIM-6) ---- */

/* The naive twin of opening an instant: through which key frame each is read, from the whole log;
 * 0: there is no such snapshot. */
struct order {
    uint64_t root[SNAPS];
    unsigned skips;
};

static void read_order(struct order *ret_order)
{
    struct order order = {.skips = 0};
    struct plx_keyframe announced;
    struct plx_vdi_record record;
    struct plx_log_reader log;
    uint8_t which;

    OK(plx_vdi_record_read(reader, 0, &record, &which, &fault));
    OK(plx_log_reader_open(reader, &record, &log, &fault));
    announced = record.oldest;
    plx_log_reader_seek(&log, &record.oldest);
    while (plx_log_reader_next(&log, &fault) == 0) {
        size_t offset = PLX_BATCH_HEADER_BYTES;

        if (log.header.keyframe.pos > announced.pos)
            announced = log.header.keyframe;
        for (uint32_t i = 0; i < log.batch_header.records; i++) {
            struct plx_record r;

            OK(plx_record_next(log.batch, &log.batch_header, &offset, reader->addr_limit, &r));
            order.skips += r.type == PLX_RECORD_SKIP;
            if (plx_record_announces(&r) && r.keyframe.pos >= announced.pos &&
                !plx_keyframe_is_past(&record, &r.keyframe))
                announced = r.keyframe;
            if (r.type == PLX_RECORD_SNAPSHOT && r.seq > record.oldest.snap_seq)
                order.root[r.seq] = announced.root;
        }
    }
    plx_log_reader_close(&log);
    *ret_order = order;
}

static uint64_t root_of(uint64_t seq)
{
    struct plx_vdi *instant = NULL;
    uint64_t root;

    OK(plx_snapshot_open(reader, 0, seq, &instant, &fault));
    root = instant->map.base.root;
    plx_vdi_abandon(instant);
    return root;
}

static bool contains(const uint64_t *list, size_t count, uint64_t seq)
{
    for (size_t i = 0; i < count; i++)
        if (list[i] == seq)
            return true;
    return false;
}

static void expect_order(const struct order *before, const uint64_t *held, size_t held_count)
{
    struct order now;

    read_order(&now);
    for (uint64_t seq = 1; seq <= model.newest; seq++) {
        if (now.root[seq])
            CU_ASSERT_EQUAL(root_of(seq), now.root[seq]);
        if (contains(held, held_count, seq))
            CU_ASSERT_EQUAL(now.root[seq], before->root[seq]);
    }
}

/* Right before the end of a log segment. */
static void approach_end(void)
{
    while (SEGMENT - vdi->log.cursor.pos % SEGMENT > 512)
        write_places(1);
}

/* Key frames of which each is frozen before a snapshot and announced behind it, every other one in
 * the next segment. */
static size_t write_history(unsigned rounds, uint64_t *ret_between)
{
    size_t count = 0;

    for (unsigned i = 0; i < rounds; i++) {
        struct order order;

        write_places(7);
        snapshot();
        write_places(3 + i % 5);
        if (i % 4 < 2)
            approach_end();
        ret_between[count] = keyframe_around_snapshot();
        read_order(&order);
        CU_ASSERT_NOT_EQUAL(order.root[ret_between[count]], vdi->record.keyframe.root);
        CU_ASSERT_EQUAL(order.root[ret_between[count]], root_of(ret_between[count]));
        count++;
        write_places(2);
        snapshot();
    }
    return count;
}

/* What is labelled or cloned is always read through the key frame that it was read through at
 * first: nothing in the log that is written anew announces one too early. In stretches that end
 * with the key frame around it, that begin with it, then in long ones, again and again. */
static void test_order(void)
{
    struct plx_vdi_create_options clone = {
        .name = "clone", .slot = 1, .sector_size = 512, .is_clone = true};
    uint64_t around[40], held[40], kept[SNAPS];
    size_t count, held_count = 0;
    struct order before, now;
    struct plx_vdi *child;

    make_disk();
    count = write_history(40, around);
    read_order(&before);
    for (size_t i = 2; i < count - 2; i += 3)
        held[held_count++] = around[i];
    clone.parent_seq = held[held_count / 2];
    OK(plx_vdi_create(store, &clone, NULL, &fault));
    for (size_t i = 0; i < held_count; i++) {
        CU_ASSERT_EQUAL(let_go(held[i] - 2, held[i] - 1, held, held_count), 1);
        expect_order(&before, held, held_count);
        CU_ASSERT_EQUAL(let_go(held[i] + 1, held[i] + 2, held, held_count), 1);
        expect_order(&before, held, held_count);
    }
    for (uint64_t step = 2; step <= 16; step *= 2) {
        uint64_t upto = model.newest - 5;
        size_t kept_count = 0;

        for (uint64_t seq = 1; seq <= upto; seq++)
            if (seq % step == 1 || contains(held, held_count, seq))
                kept[kept_count++] = seq;
        CU_ASSERT(let_go(0, upto, kept, kept_count) > 0);
        read_order(&now);
        CU_ASSERT(now.skips > 0);
        expect_order(&before, held, held_count);
        for (uint64_t seq = 1; seq <= model.newest; seq++)
            if (now.root[seq])
                expect_instant(seq);
        write_history(2, around);
    }
    CU_ASSERT(let_go(0, model.newest, held, held_count) > 0);
    expect_order(&before, held, held_count);
    for (size_t i = 0; i < held_count; i++)
        expect_instant(held[i]);
    child = open_vdi(1);
    CU_ASSERT(holds(child, model.then[clone.parent_seq]));
    OK(plx_vdi_close(child));
    CU_ASSERT(holds(vdi, model.now));
    end_disk(false);
}

/* ---- Readers in another process ---- */

static struct {
    struct plx_vdi *instant;
    uint64_t seq;
    unsigned turns, reads, openings;
    bool wrong;
} other;

static void read_beside(struct plx_simenv *e)
{
    unsigned place = other.turns % PLACES;
    struct plx_vdi *again;

    if (other.turns++ % 2 == 0) {
        other.reads++;
        other.wrong |= !place_is(other.instant, place, model.then[other.seq][place]);
    }
    if (other.turns % 11)
        return;
    other.openings++;
    if (plx_snapshot_open(reader, 0, other.seq, &again, &fault)) {
        printf("\n  opened beside: %s\n", fault.text);
        other.wrong = true;
        return;
    }
    other.wrong |= !place_is(again, place, model.then[other.seq][place]);
    plx_vdi_abandon(again);
}

/* What somebody else reads stays whole, and can be opened again, at every turn of the loop while
 * all around it goes and what came free is written over. */
static void test_reader_elsewhere(void)
{
    uint64_t between_all[20], upto;
    size_t count;

    make_disk();
    count = write_history(20, between_all);
    memset(&other, 0, sizeof other);
    other.seq = between_all[count / 2];
    OK(plx_snapshot_open(reader, 0, other.seq, &other.instant, &fault));
    env.on_tick = read_beside;
    for (upto = 4; upto <= model.newest; upto += 4) {
        let_go(0, upto, &other.seq, 1);
        write_places(20);
        keyframe();
    }
    env.on_tick = NULL;
    CU_ASSERT(other.reads > 500 && other.openings > 50);
    CU_ASSERT(!other.wrong);
    CU_ASSERT(holds(other.instant, model.then[other.seq]));
    plx_vdi_abandon(other.instant);
    expect_no_instant(other.seq - 1);
    expect_no_instant(other.seq + 1);
    end_disk(false);
}

/* ---- Key frames that fail ---- */

static bool allocated(uint64_t addr, uint64_t blocks)
{
    const struct plx_extent *extent = plx_extent_find(store, addr / store->info.extent_blocks);

    for (uint64_t b = addr; extent && b < addr + blocks; b++)
        if (!(extent->bits[(b - extent->base) / 64] >> (b - extent->base) % 64 & 1))
            return false;
    return extent != NULL;
}

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
    expect_instant(last_before - 5);
    expect_instant(last_before);
    expect_instant(first);
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
            expect_instant(seq);
        keyframe();
    }
    CU_ASSERT_PTR_NULL(vdi->keyframe.drop);
    CU_ASSERT_PTR_NULL(vdi->keyframe.next_drop);
    OK(plx_vdi_thin(vdi, &thin, &thinned, &fault));
    CU_ASSERT(!watch.wrong && named_is_allocated());
    env.on_tick = NULL;
    write_places(50);
    expect_instant(10);
    expect_no_instant(12);
    expect_instant(16);
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

/* ---- Refusals ---- */

static int refused[2];
static bool lets_go;

static void ask_again(struct plx_simenv *e)
{
    struct plx_rewind_options options = {.seq = 1};
    struct plx_thin thin = {.upto = 1};
    struct plx_snapshot_info before;
    struct plx_thinned thinned;

    lets_go |= vdi->keyframe.drop && plx_vdi_lets_go(store, 0, 5) && !plx_vdi_lets_go(store, 0, 4);
    if ((vdi->thinning || vdi->rewinding) && !refused[0]) {
        refused[0] = plx_vdi_thin(vdi, &thin, &thinned, &fault);
        refused[1] = plx_vdi_rewind(vdi, &options, &before, &fault);
    }
}

static void want_keyframe(struct plx_simenv *e)
{
    plx_keyframe_request(vdi, NULL);
}

static void test_refusals(void)
{
    struct plx_rewind_options options = {.seq = 4};
    struct plx_thin thin = {.after = 4, .upto = 8};
    struct plx_snapshot_info before;
    struct plx_thinned thinned;
    struct plx_vdi *instant;
    uint64_t around[4];

    make_disk();
    OK(plx_vdi_thin(vdi, &thin, &thinned, &fault)); /* its log is empty */
    CU_ASSERT_EQUAL(thinned.snapshots, 0);
    write_history(4, around);
    OK(plx_snapshot_open(store, 0, 1, &instant, &fault));
    FAILS(READONLY, plx_vdi_thin(instant, &thin, &thinned, &fault));
    plx_vdi_abandon(instant);
    env.on_tick = want_keyframe; /* one after the other: there is never a moment for it */
    FAILS(BUSY, plx_vdi_thin(vdi, &thin, &thinned, &fault));
    memset(refused, 0, sizeof refused);
    env.on_tick = ask_again;
    OK(plx_vdi_thin(vdi, &thin, &thinned, &fault));
    CU_ASSERT(thinned.snapshots > 0 && lets_go);
    CU_ASSERT(refused[0] == PLX_ERR_BUSY && refused[1] == PLX_ERR_BUSY);
    memset(refused, 0, sizeof refused);
    OK(plx_vdi_rewind(vdi, &options, &before, &fault));
    env.on_tick = NULL;
    CU_ASSERT(refused[0] == PLX_ERR_BUSY && refused[1] == PLX_ERR_BUSY);
    end_disk(false);
}

/* ---- Somebody comes meanwhile (RECLAIM-5) ---- */

#define WANTED 5u /* by who comes; it was to go */

static struct plx_vdi *came;

static void label_meanwhile(void)
{
    struct plx_request request = {.op = PLX_LABEL, .seq = WANTED, .label = "kept"};

    OK(plx_vdi_run(vdi, &request));
}

static void open_meanwhile(void)
{
    OK(plx_snapshot_open(store, 0, WANTED, &came, &fault));
}

static void clone_meanwhile(void)
{
    OK(clone_vdi(1, 0, WANTED));
}

/* Snapshots of `thin` were to go, and one of them comes into use: it is not too late, none goes, no
 * matter how often it was tried where a stretch may end. Only what is open is seen to be so when
 * that begins anew. When the caller knows, the others go. */
static void come_meanwhile(void (*act)(void), unsigned rounds, struct plx_thin thin)
{
    const uint64_t wanted = WANTED;
    struct plx_thinned thinned;
    uint64_t around[12];
    int error;

    make_disk();
    write_history(rounds, around);
    came = NULL;
    meanwhile.act = act;
    meanwhile.count = 1;
    error = plx_vdi_thin(vdi, &thin, &thinned, &fault);
    CU_ASSERT_PTR_NULL(meanwhile.act);
    CU_ASSERT(error == PLX_ERR_BUSY ? strstr(fault.text, "came into use") != NULL
                                    : !error && came && rounds < 12);
    write_places(50); /* over what came free */
    for (uint64_t seq = thin.after + 1; seq <= thin.upto && error; seq++)
        expect_instant(seq);
    expect_instant(WANTED);
    CU_ASSERT(error || let_go(thin.after, thin.upto, &wanted, 1) == 0);
    CU_ASSERT(!error || let_go(thin.after, thin.upto, &wanted, 1) > 0);
    write_places(50);
    expect_instant(WANTED);
    expect_no_instant(WANTED - 1);
    if (act == clone_meanwhile)
        came = open_vdi(1);
    if (came) {
        CU_ASSERT(holds(came, model.then[WANTED]));
        OK(plx_vdi_close(came));
    }
    end_disk(false);
}

/* Who is just opening an instant is in no list yet. */
static void thin_meanwhile(void)
{
    struct plx_thin thin = {.after = 2, .upto = 8};
    struct plx_thinned thinned;

    FAILS(BUSY, plx_vdi_thin(vdi, &thin, &thinned, &fault));
}

/* When history begins with a rewind, what that went to is held no longer (RECLAIM-9): unless it is
 * opened meanwhile. */
static void come_before_rewind(void)
{
    struct plx_rewind_options back = {.seq = WANTED};
    const uint64_t wanted = WANTED;
    struct plx_snapshot_info before;
    struct plx_thinned thinned;
    struct plx_thin thin;
    uint64_t around[4];
    int error = 0;

    make_disk();
    write_history(4, around);
    note_snapshot(model.newest + 1);
    OK(plx_vdi_rewind(vdi, &back, &before, &fault));
    CU_ASSERT_EQUAL(before.seq, model.newest);
    memcpy(model.now, model.then[WANTED], PLACES);
    for (unsigned i = 0; i < 4; i++) {
        write_places(5);
        snapshot();
        keyframe();
    }
    CU_ASSERT(let_go(0, before.seq, &wanted, 1) > 0);
    expect_instant(WANTED);
    thin = (struct plx_thin){.upto = before.seq};
    for (unsigned count = 1; !error; count++) { /* or it is seen to be open, and stays */
        came = NULL;
        meanwhile.act = open_meanwhile;
        meanwhile.count = count;
        error = plx_vdi_thin(vdi, &thin, &thinned, &fault);
        CU_ASSERT_PTR_NOT_NULL_FATAL(came);
        write_places(20);
        CU_ASSERT(holds(came, model.then[WANTED]));
        expect_instant(WANTED);
        OK(plx_vdi_close(came));
    }
    CU_ASSERT_EQUAL(error, PLX_ERR_BUSY);
    CU_ASSERT(let_go(0, before.seq, NULL, 0) > 0);
    expect_no_instant(WANTED);
    expect_instant(before.seq + 1);
    end_disk(true);
}

static void thin_beside_opening(void)
{
    uint64_t around[12];

    make_disk();
    write_history(12, around);
    meanwhile.act = thin_meanwhile;
    meanwhile.count = 1;
    open_meanwhile();
    CU_ASSERT_PTR_NULL(meanwhile.act);
    write_places(50);
    CU_ASSERT(holds(came, model.then[WANTED]));
    OK(plx_vdi_close(came));
    end_disk(false);
}

static void test_come_meanwhile(void)
{
    void (*const acts[])(void) = {label_meanwhile, open_meanwhile, clone_meanwhile};
    unsigned patience = fixture.disk.patience;

    fixture.disk.patience = 90; /* so that reading the log waits */
    for (unsigned i = 0; i < sizeof acts / sizeof acts[0]; i++)
        for (unsigned rounds = 4; rounds <= 12; rounds += 8) {
            come_meanwhile(acts[i], rounds, (struct plx_thin){.after = 2, .upto = 8});
            come_meanwhile(acts[i], rounds, (struct plx_thin){.upto = 8}); /* the beginning */
        }
    thin_beside_opening();
    come_before_rewind();
    fixture.disk.patience = patience;
}

static void note_done(struct plx_request *request)
{
    *(bool *)request->owner = true;
}

static void let_it_go_on(void)
{
    planned_ops->submit(opened, on_its_way.io);
}

/* Two segments that begin at the same time: the later one is there, the one before it is not when
 * the log is read. */
static void test_segments_on_their_way(void)
{
    struct plx_request writes[2];
    struct iovec iov = {buffer, BLOCK};
    bool done[2] = {false, false};

    make_disk();
    for (unsigned i = 0; i < 9; i++) {
        write_places(i ? 1 : 300); /* so that what is looked for is at the end */
        snapshot();
        keyframe();
    }
    memset(buffer, model.now[0] = 252, BLOCK);
    on_its_way.wanted = true;
    for (unsigned i = 0; i < 2; i++) {
        writes[i] = (struct plx_request){.op = PLX_WRITE,
                                         .offset = i * (uint64_t)BLOCK,
                                         .length = BLOCK,
                                         .iov = &iov,
                                         .iovcnt = 1,
                                         .done = note_done,
                                         .owner = &done[i]};
        plx_log_leave_segment(&vdi->log);
        plx_vdi_submit(vdi, &writes[i]);
        for (unsigned turn = 0; turn < 100; turn++)
            plx_store_tick(store);
    }
    CU_ASSERT_FATAL(on_its_way.io && vdi->log.batch_count == 2 && !done[0] && !done[1]);
    meanwhile.act = let_it_go_on;
    meanwhile.count = 500; /* writing the record waits for it */
    CU_ASSERT_EQUAL(let_go(7, 8, NULL, 0), 1);
    CU_ASSERT_PTR_NULL(meanwhile.act);
    while (!done[0] || !done[1])
        if (!plx_store_tick(store))
            plx_store_wait(store);
    OK(writes[0].result);
    OK(writes[1].result);
    expect_instant(7);
    expect_no_instant(8);
    expect_instant(9);
    CU_ASSERT(holds(vdi, model.now));
    end_disk(false);
}

/* Each to a block of its own: what is overwritten in place leaves nothing in the log. */
static void write_anywhere(unsigned count)
{
    static unsigned block;

    while (count--) {
        block += (block + 1) % APART ? 1 : 2;
        run(vdi, PLX_WRITE, block % (PLACES * APART) * (uint64_t)BLOCK, BLOCK);
    }
}

/* With no snapshot at all every key frame lets the log before it go, and it is used again. */
static void move_on(void)
{
    for (unsigned i = 0; i < 5; i++) {
        keyframe();
        write_anywhere(300);
    }
}

/* What is read then is somebody else's by now: that is no damage. */
static void test_history_moves_on(void)
{
    const struct plx_thin thin = {.upto = 10};
    unsigned moved = 0, patience = fixture.disk.patience;
    struct plx_thinned thinned;

    fixture.disk.patience = 90;
    make_disk();
    fixture.disk.patience = patience;
    write_places(PLACES);
    write_anywhere(300);
    for (unsigned i = 1; i < 6; i++) {
        int error;

        meanwhile.act = move_on;
        meanwhile.count = i;
        error = plx_vdi_thin(vdi, &thin, &thinned, &fault);
        CU_ASSERT_PTR_NULL(meanwhile.act);
        CU_ASSERT(!error || error == PLX_ERR_BUSY);
        moved += error && strstr(fault.text, "its history moved on");
    }
    CU_ASSERT(moved > 0);
    OK(plx_vdi_thin(vdi, &thin, &thinned, &fault));
    CU_ASSERT_EQUAL(plx_vdi_health(vdi, NULL), 0);
    CU_ASSERT(holds(vdi, model.now));
    end_disk(false);
}

/* Every leaf changes, so that a key frame writes all of the tree; not where the model looks. */
static void change_leaves(void)
{
    static unsigned block;

    block = block % (APART - 1) + 1;
    for (uint64_t place = 0; place < PLACES; place++)
        run(vdi, PLX_WRITE, (place * APART + block) * BLOCK, BLOCK);
}

/* No snapshot comes between these key frames: each lets the tree of the one before go. */
static void replace_end(void)
{
    change_leaves();
    keyframe();
}

static void replace_and_use(void)
{
    for (unsigned i = 0; i < 24; i++) /* until nodes come round */
        replace_end();
}

/* The key frame that the stretch ends with is replaced while it is read. What was to go is still
 * there, and goes the next time. */
static void end_moves_on(void (*act)(void), const char *words)
{
    unsigned patience = fixture.disk.patience;
    struct plx_thin thin = {.after = 2};
    struct plx_thinned thinned;
    uint64_t around[4];

    fixture.disk.patience = 90;
    make_disk();
    fixture.disk.patience = patience;
    write_history(4, around);
    change_leaves();
    keyframe();
    thin.upto = model.newest;
    meanwhile.act = act;
    meanwhile.count = 1;
    FAILS(BUSY, plx_vdi_thin(vdi, &thin, &thinned, &fault));
    CU_ASSERT_PTR_NULL(meanwhile.act);
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, words));
    for (uint64_t seq = thin.after; seq <= thin.upto; seq++)
        expect_instant(seq);
    OK(plx_vdi_thin(vdi, &thin, &thinned, &fault));
    CU_ASSERT_EQUAL(thinned.snapshots, model.newest - 3);
    expect_instant(2);
    expect_no_instant(3);
    expect_instant(model.newest);
    CU_ASSERT(holds(vdi, model.now));
    end_disk(false);
}

/* Whether its nodes are still as they were, or written over: that is no damage either. */
static void test_end_moves_on(void)
{
    end_moves_on(replace_end, "came into use");
    end_moves_on(replace_and_use, "its history moved on");
}

/* ---- Two key frames at one position (KEYFRAME-3) ---- */

static bool wanted_beside;

static void want_beside_batch(struct plx_simenv *e)
{
    if (!wanted_beside || !vdi->log.batch_count)
        return;
    plx_keyframe_request(vdi, NULL);
    wanted_beside = false;
}

static struct plx_keyframe named_by_header(uint64_t segment)
{
    struct plx_vdi_record record;
    struct plx_keyframe keyframe;
    struct plx_log_reader log;
    uint8_t which;

    OK(plx_vdi_record_read(reader, 0, &record, &which, &fault));
    OK(plx_log_reader_open(reader, &record, &log, &fault));
    OK(plx_log_reader_seek_segment(&log, segment, &fault));
    keyframe = log.header.keyframe;
    plx_log_reader_close(&log);
    return keyframe;
}

/* The log begins with a batch that only voids checksums; before it is applied the next key frame is
 * taken, at the position of the one that the segment's header names, and that one is gone. All that
 * reads the log begins with the one that is there, wherever it comes from. */
static void test_same_position(void)
{
    struct plx_keyframe gone, begins;
    unsigned patience = fixture.disk.patience;
    uint64_t blocks;

    fixture.disk.patience = 90;
    make_disk();
    fixture.disk.patience = patience;
    write_places(PLACES);
    OK(plx_vdi_close(vdi));
    vdi = open_vdi(0);
    gone = vdi->record.keyframe;
    wanted_beside = true;
    env.on_tick = want_beside_batch;
    write_places(1);
    env.on_tick = NULL;
    while (vdi->keyframe.running)
        if (!plx_store_tick(store))
            plx_store_wait(store);
    begins = vdi->record.keyframe;
    CU_ASSERT_EQUAL_FATAL(begins.pos, gone.pos);
    CU_ASSERT_NOT_EQUAL_FATAL(begins.root, gone.root);
    CU_ASSERT_EQUAL(vdi->record.oldest.root, begins.root);
    for (unsigned i = 0; i < 3; i++) {
        write_places(2);
        snapshot();
    }
    CU_ASSERT_EQUAL(named_by_header(begins.pos / SEGMENT).root, gone.root);
    for (unsigned i = 0; i < 6; i++) { /* over its nodes */
        keyframe();
        change_leaves();
        snapshot();
    }
    for (uint64_t seq = 1; seq <= 3; seq++)
        CU_ASSERT_EQUAL(root_of(seq), begins.root);
    OK(plx_simenv_collect(&env, &blocks, &fault));
    CU_ASSERT_EQUAL(blocks, 0);
    CU_ASSERT_EQUAL(let_go(1, 2, NULL, 0), 1); /* found from the segment's start on */
    expect_instant(1);
    expect_no_instant(2);
    expect_instant(3);
    CU_ASSERT_EQUAL(root_of(1), begins.root);
    CU_ASSERT_EQUAL(let_go(0, 1, NULL, 0), 1);
    CU_ASSERT(let_go(0, 7, NULL, 0) > 0);
    change_leaves();
    for (uint64_t seq = 8; seq <= model.newest; seq++)
        expect_instant(seq);
    CU_ASSERT(holds(vdi, model.now));
    end_disk(false);
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

/* One batch after the other is damaged. Of the segments that are written anew none is copied
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
            expect_instant(seq);
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
    expect_instant(2);
    OK(plx_vdi_thin(vdi, &thin, &thinned, &fault));
    CU_ASSERT_EQUAL(thinned.snapshots, 1);
    CU_ASSERT_NOT_EQUAL(vdi->log.segments[segment - vdi->record.first_segment],
                        batches[count - 2].addr);
    expect_instant(1);
    expect_no_instant(2);
    expect_instant(3);
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
        expect_instant(seq);
        if (error)
            expect_instant(seq + 1);
        while (!error && !try_write()) /* full again */
            ;
        first = seq;
    }
    CU_ASSERT(refusals > 0);
    CU_ASSERT(let_go(0, first, NULL, 0) > 0);
    write_places(20);
    expect_instant(last);
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
    expect_instant(6);
    registry.limit++;
    env.ns += 1000000000; /* it may be asked again */
    env.grant_later = true;
    OK(plx_vdi_thin(vdi, &middle[0], &thinned, &fault));
    expect_no_instant(6);
    OK(plx_vdi_thin(vdi, &middle[1], &thinned, &fault));
    env.grant_later = false;
    CU_ASSERT(holds(vdi, model.now));
    OK(plx_vdi_close(neighbour));
    end_disk(true);
}

/* ---- What is written anew cannot be ---- */

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
            expect_no_instant(seq);
        else
            expect_instant(seq);
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
    expect_instant(6);
    thin = (struct plx_thin){.after = 2, .upto = 8};
    OK(plx_vdi_thin(vdi, &thin, &thinned, &fault));
    expect_no_instant(6);
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
    expect_no_instant(2);
    OK(plx_snapshot_open(reader, 0, 3, &instant, &fault));
    CU_ASSERT(reads_as(instant, 0, 4 * MIB, 1));
    CU_ASSERT(reads_as(instant, 4 * MIB, 4 * MIB, 2));
    CU_ASSERT(reads_as(instant, 12 * MIB, BLOCK, 3));
    plx_vdi_abandon(instant);
    end_disk(false);
    fixture.format.segment_bytes = SEGMENT;
}

/* ---- Stretches that fit badly ---- */

static struct {
    struct plx_request request;
    struct iovec iov;
    bool done;
} together[3];

static void together_done(struct plx_request *request)
{
    *(bool *)request->owner = true;
}

/* A write of so many blocks and two snapshots, in one batch of the log. */
static void one_batch(unsigned blocks)
{
    uint64_t batches = store->counters.batches;

    memset(buffer, 5, (size_t)blocks * BLOCK);
    for (unsigned i = 0; i < 3; i++) {
        together[i].done = false;
        together[i].iov = (struct iovec){buffer, (size_t)blocks * BLOCK};
        together[i].request = (struct plx_request){.op = i ? PLX_SNAPSHOT : PLX_WRITE,
                                                   .offset = BLOCK,
                                                   .length = i ? 0 : together[i].iov.iov_len,
                                                   .iov = &together[i].iov,
                                                   .iovcnt = i ? 0 : 1,
                                                   .done = together_done,
                                                   .owner = &together[i].done};
        plx_vdi_submit(vdi, &together[i].request);
    }
    for (unsigned i = 0; i < 3; i++) {
        while (!together[i].done)
            if (!plx_store_tick(store))
                plx_store_wait(store);
        OK(together[i].request.result);
        if (i)
            note_snapshot(together[i].request.seq);
    }
    CU_ASSERT_EQUAL(store->counters.batches, batches + 1);
}

/* Between two key frames that lie close together what stays may need more room than all of it had,
 * since the record that ends it stands alone. Then the stretch ends with a later key frame. */
static void test_tight(void)
{
    for (unsigned blocks = 1; blocks < 120; blocks++) {
        struct plx_thinned thinned;
        struct plx_thin thin;

        make_disk();
        write_places(3);
        snapshot();
        keyframe();
        one_batch(blocks);
        thin = (struct plx_thin){.after = model.newest - 1, .upto = model.newest};
        keyframe();
        for (unsigned i = 0; i < 3; i++) {
            write_places(5);
            snapshot();
            keyframe();
            write_places(1);
            snapshot();
        }
        OK(plx_vdi_thin(vdi, &thin, &thinned, &fault));
        CU_ASSERT_EQUAL(thinned.snapshots, 1);

        expect_instant(thin.after);
        expect_no_instant(thin.upto);
        expect_instant(thin.upto + 1);
        end_disk(false);
    }
}

static int run_at(enum plx_request_op op, unsigned block, unsigned blocks)
{
    struct iovec iov = {buffer, (size_t)blocks * BLOCK};
    struct plx_request request = {.op = op,
                                  .offset = (uint64_t)block * BLOCK,
                                  .length = (uint64_t)blocks * BLOCK,
                                  .iov = &iov,
                                  .iovcnt = 1};

    return plx_vdi_run(vdi, &request);
}

/* Every other one of so many blocks, but for the places. */
static void write_holes(unsigned blocks)
{
    for (unsigned block = 2; block < blocks; block += 2)
        if (block % APART)
            OK(run_at(PLX_WRITE, block, 1));
}

/* One record can unmap what it takes many to tell of anew: every other block was mapped. They stay
 * where there is no room for that, and what comes behind has its turn. Where the records that tell
 * of it end a batch, whatever comes next finds no room: a record of many mappings, a snapshot, the
 * announcement of the key frame around it, the end. Returns whether they stayed. */
static bool fits_badly(unsigned blocks, unsigned mapped, bool around)
{
    bool stayed;
    struct plx_thinned thinned;
    struct plx_thin thin;

    make_disk();
    write_holes(blocks);
    snapshot();
    keyframe();
    write_places(1);
    snapshot();
    for (unsigned place = 1; place * APART < blocks; place++)
        model.now[place] = 0;
    if (around) {
        unmap_between = blocks - 1;
        keyframe_around_snapshot();
        unmap_between = 0;
        write_places(1);
        snapshot();
    } else {
        OK(run_at(PLX_UNMAP, 1, blocks - 1));
    }
    if (mapped)
        OK(run_at(PLX_WRITE, 7 * APART + 1, mapped));
    write_places(1);
    thin = (struct plx_thin){.after = model.newest, .upto = snapshot()};
    keyframe_around_snapshot();
    for (unsigned i = 0; i < 6; i++) {
        write_places(1);
        snapshot();
        keyframe();
    }
    OK(plx_vdi_thin(vdi, &thin, &thinned, &fault));
    CU_ASSERT(thinned.upto >= thin.upto);
    stayed = thinned.snapshots == 0;
    if (stayed)
        expect_instant(thin.upto);
    for (unsigned i = 0; i < 20; i++) { /* now there will be room, further on */
        write_places(4);
        snapshot();
        keyframe();
    }
    if (stayed)
        OK(plx_vdi_thin(vdi, &thin, &thinned, &fault));
    CU_ASSERT_EQUAL(thinned.snapshots, 1);
    expect_instant(thin.after);
    expect_no_instant(thin.upto);
    expect_instant(thin.upto + 1);
    end_disk(false);
    return stayed;
}

static void test_never_fits(void)
{
    fits_badly(512, 0, false);
    for (unsigned holes = 716; holes < 734; holes++) {
        fits_badly(2 * holes, 0, false);
        fits_badly(2 * holes, 0, true);
    }
    fits_badly(2 * 700, 256, false);
    CU_ASSERT(fits_badly(6 * APART, 0, false));
}

/* What the stretch began with had fewer levels than the disk has now. */
static void test_grown(void)
{
    struct plx_request grow = {.op = PLX_RESIZE, .length = 600ull << 30};
    struct plx_request far = {.op = PLX_WRITE,
                              .offset = (600ull << 30) - BLOCK,
                              .length = BLOCK,
                              .iov = &(struct iovec){buffer, BLOCK},
                              .iovcnt = 1};
    uint64_t first, second;

    make_disk();
    write_places(5);
    first = snapshot();
    OK(plx_vdi_run(vdi, &grow));
    OK(plx_vdi_run(vdi, &far));
    second = snapshot();
    keyframe();
    write_places(5);
    snapshot();
    CU_ASSERT_EQUAL(let_go(0, first, NULL, 0), 1);
    expect_no_instant(first);
    expect_instant(second);
    end_disk(false);
}

/* A tree goes, and the next one is higher and has nothing. */
static void test_grown_empty(void)
{
    struct plx_request grow = {.op = PLX_RESIZE, .length = 600ull << 30};
    uint64_t used;

    make_disk();
    used = data_used();
    for (unsigned i = 0; i < 2; i++) {
        write_places(5);
        snapshot();
        keyframe();
    }
    OK(plx_vdi_run(vdi, &grow));
    OK(run_at(PLX_UNMAP, 0, PLACES * APART));
    memset(model.now, 0, sizeof model.now);
    keyframe();
    CU_ASSERT_EQUAL(vdi->record.keyframe.root, 0);
    CU_ASSERT_EQUAL(vdi->record.keyframe.levels, vdi->record.oldest.levels + 1);
    snapshot();
    CU_ASSERT_EQUAL(let_go(0, 2, NULL, 0), 2);
    CU_ASSERT_EQUAL(data_used() - vdi->run.count, used);
    expect_no_instant(2);
    expect_instant(3);
    end_disk(false);
}

/* ---- Listings beside it ---- */

static struct {
    unsigned at, visits; /* what goes, goes at this visit; 0: never */
    uint64_t kept[SNAPS], last;
    size_t kept_count;
    unsigned kept_seen;
    bool disorder;
} listing;

/* All but what is kept goes, and the log's old segments are written over. */
static void let_most_go(void)
{
    let_go(0, model.newest - 1, listing.kept, listing.kept_count);
    for (unsigned i = 0; i < 6; i++) {
        write_places(60);
        keyframe();
    }
}

static bool visit_snapshot(void *context, const struct plx_snapshot_info *info)
{
    listing.disorder |= info->seq <= listing.last;
    listing.kept_seen += contains(listing.kept, listing.kept_count, info->seq);
    listing.last = info->seq;
    if (++listing.visits == listing.at)
        let_most_go();
    return true;
}

static void visit_label(void *context, const char *label, uint64_t seq, bool removed)
{
    listing.disorder |= removed;
    listing.last = seq;
    if (++listing.visits == listing.at)
        let_most_go();
}

static bool keep_first(void *context, const struct plx_snapshot_info *info)
{
    *(struct plx_snapshot_info *)context = *info;
    return false;
}

static void put_label(uint64_t seq)
{
    struct plx_request request = {.op = PLX_LABEL, .seq = seq, .label = "kept"};

    OK(plx_vdi_run(vdi, &request));
}

static void make_listed(unsigned at)
{
    uint64_t around[16];
    size_t count;

    make_disk();
    memset(&listing, 0, sizeof listing);
    listing.at = at;
    count = write_history(16, around);
    for (size_t i = 0; i < count; i += 3) {
        listing.kept[listing.kept_count++] = around[i];
        put_label(around[i]);
    }
}

/* Listed by another process while most of them go: what stays is listed, once and in order. */
static void test_list_beside(void)
{
    for (unsigned at = 1; at < 40; at += 3) {
        make_listed(at);
        OK(plx_snapshot_list(reader, 0, 1, visit_snapshot, NULL, &fault));
        CU_ASSERT(!listing.disorder);
        CU_ASSERT_EQUAL(listing.kept_seen, listing.kept_count);
        CU_ASSERT(listing.last >= 48);
        end_disk(false);
    }
    for (unsigned at = 1; at < 6; at++) {
        make_listed(at);
        OK(plx_label_list(reader, 0, 0, visit_label, NULL, &fault));
        CU_ASSERT_EQUAL(listing.last, listing.kept[listing.kept_count - 1]);
        CU_ASSERT(listing.visits >= listing.kept_count);
        end_disk(false);
    }
}

/* At the at-th turn of the reader's loop. */
static void go_at_tick(struct plx_simenv *e)
{
    if (++listing.visits == listing.at)
        let_most_go();
}

/* Found by another process, by number and by time, whenever the others go. */
static void test_find_beside(void)
{
    bool more = true;

    for (unsigned at = 1; more; at += 2) {
        struct plx_snapshot_info info = {0}, found = {0};
        struct plx_vdi *instant = NULL;
        uint64_t wanted;

        make_listed(at);
        wanted = listing.kept[listing.kept_count / 2];
        OK(plx_snapshot_list(reader, 0, wanted, keep_first, &info, &fault));
        reader_env.on_tick = go_at_tick;
        OK(plx_snapshot_at(reader, 0, info.time_ns, &found, &fault));
        CU_ASSERT_EQUAL(found.seq, wanted);
        OK(plx_snapshot_open(reader, 0, wanted, &instant, &fault));
        more = listing.visits >= at;
        reader_env.on_tick = NULL;
        CU_ASSERT(holds(instant, model.then[wanted]));
        plx_vdi_abandon(instant);
        end_disk(false);
    }
}

/* However little of it is listed, the first one's new blocks count from the one before. */
static bool note_new_blocks(void *context, const struct plx_snapshot_info *info)
{
    ((uint64_t *)context)[info->seq] = info->new_blocks;
    return true;
}

static void test_pages(void)
{
    static uint64_t all[SNAPS], page[SNAPS];

    make_listed(0);
    for (unsigned i = 0; i < 6; i++) { /* a segment begins between a key frame and a snapshot */
        write_places(5);
        keyframe();
        approach_end();
        write_places(3);
        snapshot();
    }
    OK(plx_snapshot_list(reader, 0, 1, note_new_blocks, all, &fault));
    for (uint64_t from = 1; from <= model.newest; from++) {
        memset(page, 0, sizeof page);
        OK(plx_snapshot_list(reader, 0, from, note_new_blocks, page, &fault));
        CU_ASSERT(!memcmp(all + from, page + from, (model.newest + 1 - from) * sizeof *all));
    }
    end_disk(false);
}

/* ---- From one stretch to the next (RECLAIM-10) ---- */

#define SECOND_NS 1000000000ull
#define ROUNDS 60u

static struct plx_thinned by_policy(uint64_t after, uint64_t upto, uint64_t age_ns,
                                    const uint64_t *kept, size_t kept_count)
{
    struct plx_thin thin = {.after = after,
                            .upto = upto,
                            .before_ns = plx_env_now_ns(&env.env) - age_ns,
                            .kept = kept,
                            .kept_count = kept_count,
                            .thrifty = true};
    struct plx_thinned thinned = {0};

    OK(plx_vdi_thin(vdi, &thin, &thinned, &fault));
    return thinned;
}

/* It goes on at a mark, behind a snapshot that was not asked for then, and is now: what is held
 * before that one stays. */
static void test_mark_passed(void)
{
    const uint64_t held = 2;
    struct plx_thinned thinned;
    uint64_t last = 10;

    make_disk();
    while (model.newest < 60) {
        write_places(20);
        snapshot();
        if (model.newest % 4 == 0)
            keyframe();
    }
    thinned = by_policy(last, last, 0, &held, 1);
    CU_ASSERT_EQUAL(thinned.snapshots, 0);
    CU_ASSERT_EQUAL(thinned.upto, last);
    thinned = by_policy(0, model.newest - 1, 0, &held, 1);
    CU_ASSERT(thinned.snapshots > 0);
    CU_ASSERT(thinned.upto > last);
    expect_instant(held);
    expect_instant(last);
    expect_no_instant(last + 1);
    end_disk(false);
}

/* Of a stretch that ends with a key frame snapshots behind its position, but before its
 * announcement, are read through the one before: that one stays where such a snapshot is held, and
 * so do the nodes that a clone has in common with it (RECLAIM-6). */
static void hold_every(unsigned period, unsigned first)
{
    struct plx_vdi_create_options clone = {.sector_size = 512, .is_clone = true};
    uint64_t around[ROUNDS], held[ROUNDS], gone = 0, after = 0;
    size_t held_count = 0;
    struct order order;

    make_disk();
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct plx_thinned thinned;

        env.ns += SECOND_NS;
        write_history(1, around + round);
        if (round % period == first) {
            held[held_count++] = clone.parent_seq = around[round];
            clone.slot = (uint32_t)held_count;
            snprintf(clone.name, sizeof clone.name, "clone%zu", held_count);
            OK(plx_vdi_create(store, &clone, NULL, &fault));
        }
        read_order(&order);
        thinned = by_policy(after, model.newest - 1, 8 * SECOND_NS, held, held_count);
        after = thinned.upto;
        gone += thinned.snapshots;
        expect_order(&order, held, held_count);
    }
    CU_ASSERT(gone > ROUNDS);
    CU_ASSERT(let_go(0, model.newest - 1, held, held_count) > 0);
    expect_order(&order, held, held_count);
    end_disk(false);
}

static void test_mark_order(void)
{
    for (unsigned period = 3; period <= 5; period++)
        for (unsigned first = 0; first < period; first++)
            hold_every(period, first);
}

/* ---- Random histories ---- */

#define CLONES 24u /* in slots from 1 on */
#define LABELS 40u
#define POLICY_LEVELS 3u

/* A disk whose snapshots are cloned, labelled, rewound to and let go in every way, again and again:
 * what is held is always read through the same key frame, and of all that there is no node and no
 * block is free. PLX_SEED=n replays one history. */
static struct {
    struct plx_simrng rng;
    struct {
        uint64_t seq; /* 0: there is none */
        uint8_t then[PLACES];
    } clones[CLONES + 1];
    uint64_t labels[LABELS];
    unsigned label_count, clone_count; /* clones that there ever were */
    uint64_t held[CLONES + LABELS];    /* ascending */
    size_t held_count;
    uint64_t after[POLICY_LEVELS];
    struct order order; /* before what is looked at */
} tale;

static uint64_t below(uint64_t n)
{
    return plx_simrng_below(&tale.rng, n);
}

static bool chance(unsigned percent)
{
    return plx_simrng_chance(&tale.rng, percent);
}

static void expect_nodes_allocated(uint64_t entry, unsigned level)
{
    uint8_t copy[BLOCK];
    const void *node;

    if (!plx_entry_addr(entry))
        return;
    CU_ASSERT_FATAL(allocated(plx_entry_addr(entry), 1));
    if (level == 1)
        return;
    OK(plx_cache_get_sync(reader->cache, entry, level, &node));
    memcpy(copy, node, BLOCK);
    for (unsigned i = 0; i < PLX_NODE_ENTRIES; i++)
        expect_nodes_allocated(plx_node_entry(copy, i), level - 1);
}

static void expect_block_allocated(void *context, uint64_t vblock,
                                   const struct plx_mapping *mapping)
{
    CU_ASSERT_FATAL(allocated(plx_addr_block(mapping->addr), 1));
}

/* A snapshot, or with seq 0 a clone as it is. */
static void expect_whole(uint32_t slot, uint64_t seq, const uint8_t *places)
{
    struct plx_vdi *instant = NULL;
    uint64_t vblock = 0;

    OK(plx_snapshot_open(reader, slot, seq, &instant, &fault));
    expect_nodes_allocated(instant->map.base.root, instant->map.base.levels);
    while (vblock != UINT64_MAX)
        OK(plx_vdi_each_mapping(instant, 1000, &vblock, expect_block_allocated, NULL, &fault));
    CU_ASSERT_FATAL(holds(instant, places));
    plx_vdi_abandon(instant);
}

static void look_at_all(void)
{
    expect_order(&tale.order, tale.held, tale.held_count);
    read_order(&tale.order);
    for (uint64_t seq = 1; seq <= model.newest; seq++)
        if (tale.order.root[seq] &&
            (contains(tale.held, tale.held_count, seq) || seq % 5 == tale.order.root[seq] % 5))
            expect_whole(0, seq, model.then[seq]);
    for (uint32_t slot = 1; slot <= CLONES; slot++)
        if (tale.clones[slot].seq)
            expect_whole(slot, 0, tale.clones[slot].then);
    CU_ASSERT_FATAL(holds(vdi, model.now));
}

static void hold(uint64_t seq)
{
    size_t at = tale.held_count;

    if (contains(tale.held, tale.held_count, seq))
        return;
    for (; at && tale.held[at - 1] > seq; at--)
        tale.held[at] = tale.held[at - 1];
    tale.held[at] = seq;
    tale.held_count++;
}

static void find_held(void)
{
    tale.held_count = 0;
    for (unsigned i = 0; i < tale.label_count; i++)
        hold(tale.labels[i]);
    for (uint32_t slot = 1; slot <= CLONES; slot++)
        if (tale.clones[slot].seq)
            hold(tale.clones[slot].seq);
    read_order(&tale.order);
}

/* One that there is, rather a new one; 0: there is none. */
static uint64_t any_snapshot(void)
{
    uint64_t newest = model.newest, seq;

    for (unsigned tries = 0; tries < 20 && newest; tries++) {
        seq = chance(60) ? newest - below(plx_min_u64(newest, 5)) : 1 + below(newest);
        if (tale.order.root[seq])
            return seq;
    }
    return 0;
}

static void write_any(unsigned keyframes)
{
    env.ns += SECOND_NS;
    for (uint64_t n = 1 + below(4); n; n--) {
        write_places(1 + (unsigned)below(12));
        if (chance(80))
            snapshot();
        if (chance(25))
            approach_end();
        if (chance(10))
            plx_log_leave_segment(&vdi->log);
        if (!chance(keyframes))
            continue;
        if (chance(50))
            keyframe();
        else
            keyframe_around_snapshot();
    }
}

static void clone_any(void)
{
    struct plx_vdi_create_options clone = {.sector_size = 512, .is_clone = true};

    clone.parent_seq = any_snapshot();
    if (!clone.parent_seq || tale.clone_count == CLONES)
        return;
    clone.slot = ++tale.clone_count;
    snprintf(clone.name, sizeof clone.name, "clone%u", tale.clone_count);
    OK(plx_vdi_create(store, &clone, NULL, &fault));
    tale.clones[clone.slot].seq = clone.parent_seq;
    memcpy(tale.clones[clone.slot].then, model.then[clone.parent_seq], PLACES);
}

static void delete_any(void)
{
    uint32_t slot = 1 + (uint32_t)below(CLONES);

    if (!tale.clones[slot].seq)
        return;
    OK(plx_vdi_delete(store, slot, false, &fault));
    tale.clones[slot].seq = 0;
}

static void label_any(uint64_t seq)
{
    if (seq && tale.label_count < LABELS)
        tale.labels[tale.label_count++] = seq;
}

static void unlabel_any(void)
{
    if (tale.label_count)
        tale.labels[below(tale.label_count)] = tale.labels[tale.label_count - 1];
    tale.label_count -= tale.label_count > 0;
}

static void rewind_any(void)
{
    struct plx_rewind_options options = {.seq = any_snapshot()};
    struct plx_snapshot_info before;

    if (!options.seq || vdi->record.rewinds == 5)
        return;
    OK(plx_vdi_rewind(vdi, &options, &before, &fault));
    note_snapshot(before.seq);
    memcpy(model.now, model.then[options.seq], PLACES);
    if (chance(60))
        label_any(before.seq);
}

static void reopen_any(bool killed)
{
    if (!killed) {
        OK(plx_vdi_close(vdi));
        vdi = open_vdi(0);
        return;
    }
    kill_store();
    OK(try_open_vdi(0, true, &vdi));
}

/* What was asked for, once more or by a policy of three levels. */
static void let_any_go(bool exactly)
{
    static const struct {
        uint64_t every_ns, age_ns;
    } levels[POLICY_LEVELS] = {
        {0, 14 * SECOND_NS}, {3 * SECOND_NS, 4 * SECOND_NS}, {7 * SECOND_NS, 8 * SECOND_NS}};

    if (exactly) {
        uint64_t from = below(model.newest + 1);

        let_go(from, plx_min_u64(model.newest, from + 1 + below(20)), tale.held, tale.held_count);
        look_at_all();
    }
    for (unsigned i = 0; i < 3 * POLICY_LEVELS; i++) {
        unsigned level = i % POLICY_LEVELS;
        struct plx_thin thin = {.after = tale.after[level],
                                .upto = UINT64_MAX,
                                .every_ns = levels[level].every_ns,
                                .before_ns = plx_env_now_ns(&env.env) - levels[level].age_ns,
                                .kept = tale.held,
                                .kept_count = tale.held_count,
                                .thrifty = true};
        struct plx_thinned thinned;

        OK(plx_vdi_thin(vdi, &thin, &thinned, &fault));
        tale.after[level] = level ? thinned.upto : 0;
        if (thinned.snapshots)
            look_at_all();
    }
}

static void tell(uint64_t seed)
{
    unsigned clones, rewinds, exactly, reopened, keyframes;

    memset(&tale, 0, sizeof tale);
    tale.rng.state = fixture.disk.seed = seed;
    clones = (unsigned)below(25);
    rewinds = chance(40) ? (unsigned)below(12) : 0;
    exactly = chance(50) ? (unsigned)below(25) : 0;
    reopened = chance(30) ? (unsigned)below(12) : 0;
    keyframes = 20 + (unsigned)below(80);
    make_disk();
    for (unsigned step = 0; step < 60 && model.newest + 12 < SNAPS; step++) {
        write_any(keyframes);
        read_order(&tale.order);
        if (chance(clones))
            clone_any();
        if (chance(8))
            label_any(any_snapshot());
        if (chance(5))
            unlabel_any();
        if (chance(5))
            delete_any();
        if (chance(rewinds))
            rewind_any();
        if (chance(reopened))
            reopen_any(chance(50));
        find_held();
        let_any_go(chance(exactly));
    }
    look_at_all();
    end_disk(true);
}

static void test_random(void)
{
    const struct plx_simdisk_options usual = fixture.disk;
    const char *one = getenv("PLX_SEED");
    uint64_t first = one ? strtoull(one, NULL, 0) : (uint64_t)time(NULL);

    printf("\n  seeds from %llu on\n", (unsigned long long)first);
    for (uint64_t seed = first; seed < first + (one ? 1 : HISTORIES); seed++) {
        printf("  seed %llu\r", (unsigned long long)seed);
        fflush(stdout);
        tell(seed);
    }
    fixture.disk = usual;
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"the order of the log", test_order},
        {"a reader elsewhere", test_reader_elsewhere},
        {"a key frame that is resumed", test_resumed_keyframe},
        {"a key frame that fails", test_drop_fails},
        {"refusals", test_refusals},
        {"somebody comes meanwhile", test_come_meanwhile},
        {"segments on their way", test_segments_on_their_way},
        {"history that moves on", test_history_moves_on},
        {"the end that moves on", test_end_moves_on},
        {"two key frames at one position", test_same_position},
        {"a damaged log", test_damaged_log},
        {"a damaged end", test_damaged_end},
        {"a full store", test_full_store},
        {"a neighbour's reserve", test_neighbours_reserve},
        {"writes that fail", test_failing_writes},
        {"few segments", test_few_segments},
        {"a long run of blocks", test_long_run},
        {"a stretch that fits badly", test_tight},
        {"a stretch that never fits", test_never_fits},
        {"a disk that has grown", test_grown},
        {"a disk that has grown and is empty", test_grown_empty},
        {"listing beside", test_list_beside},
        {"finding beside", test_find_beside},
        {"pages of a list", test_pages},
        {"what a mark has passed", test_mark_passed},
        {"the order behind a mark", test_mark_order},
        {"random histories", test_random},
    };

    fixture.format.segment_bytes = SEGMENT;
    fixture.open.cache_bytes = 32 * BLOCK;
    fixture.open.ops_per_vdi = 8;
    fixture.attach = attach_planned;
    return SUITE_RUN("letting go", tests);
}
