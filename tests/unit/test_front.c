/* test_front.c - a disk that is marked for a ring, and what its front carries to it: in order, none
 * left out, whatever fails and whenever the power does. The front here is a list in memory that
 * never loses anything, as a ring is one on a local device.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/disk/vdi.h"
#include "ok.h"
#include "suite.h"
#include "unit/fixture.h"
#include "unit/forge.h"

#define SIZE (MIB + 512) /* the last block is there in part only */
#define BLOCKS 257u
#define RECORDS 36u
#define FLIGHT 6u /* records that are carried at once */

/* ---- Records, and what the disk is with them ---- */

struct record {
    enum plx_request_op op;
    uint64_t block, count;
    bool striped; /* each second block has zeroes: many pieces, so many windows */
    uint64_t epoch, snapshot, time_ns;
};
static struct record records[RECORDS + 1]; /* from 1 on */
static struct plx_simrng rng;

static void make_records(uint64_t seed, uint64_t of_epoch)
{
    uint64_t snapshots = 0;

    rng = (struct plx_simrng){seed};
    for (unsigned r = 1; r <= RECORDS; r++) {
        struct record *record = &records[r];

        *record = (struct record){.op = PLX_WRITE, .epoch = of_epoch, .count = 1};
        record->block = plx_simrng_below(&rng, 40);
        switch (r % 6) {
        case 0:
            record->op = PLX_SNAPSHOT;
            record->snapshot = ++snapshots;
            record->time_ns = 1000000 + r;
            break;
        case 1:
            record->count = 1 + plx_simrng_below(&rng, 30);
            break;
        case 2:
            record->count = 1 + plx_simrng_below(&rng, 3);
            break;
        case 3:
            record->striped = plx_simrng_below(&rng, 2);
            record->count = record->striped ? 100 : 2;
            break;
        case 4:
            record->block = BLOCKS - 2;
            record->count = 2;
            break;
        case 5:
            record->op = PLX_UNMAP;
            record->count = 1 + plx_simrng_below(&rng, 20);
            break;
        }
    }
}

/* The word that the block's bytes repeat; 0: zeroes. */
static uint64_t word_of(unsigned r, uint64_t block)
{
    const struct record *record = &records[r];

    return record->op == PLX_UNMAP || (record->striped && block % 2) ? 0
                                                                     : (uint64_t)r << 32 | block;
}

/* What the disk holds with the first n records, and of the next one the first `more` blocks. */
static void expect_words(unsigned n, uint64_t more, uint64_t words[BLOCKS])
{
    memset(words, 0, BLOCKS * sizeof words[0]);
    for (unsigned r = 1; r <= n + 1 && r <= RECORDS; r++)
        for (uint64_t i = 0; i < (r <= n ? records[r].count : more); i++)
            if (records[r].op != PLX_SNAPSHOT)
                words[records[r].block + i] = word_of(r, records[r].block + i);
}

static bool block_is(const uint8_t *bytes, uint64_t block, uint64_t word)
{
    size_t left = block == BLOCKS - 1 ? 512 : BLOCK;

    /* All words at once: with sanitizers a call for each takes a third of the test. */
    return memcmp(bytes, &word, sizeof word) == 0 &&
           memcmp(bytes, bytes + sizeof word, left - sizeof word) == 0;
}

static bool holds(struct plx_vdi *vdi, unsigned n, uint64_t more)
{
    uint64_t words[BLOCKS];
    bool same = true;

    expect_words(n, more, words);
    OK(try_run(vdi, PLX_READ, 0, SIZE, NULL));
    for (uint64_t b = 0; b < BLOCKS && same; b++)
        same = block_is(buffer + b * BLOCK, b, words[b]);
    return same;
}

static unsigned snapshots_in(unsigned n)
{
    unsigned count = 0;

    for (unsigned r = 1; r <= n; r++)
        count += records[r].op == PLX_SNAPSHOT;
    return count;
}

/* ---- The front ---- */

struct carried {
    struct plx_request request;
    struct iovec iov;
    uint8_t *bytes;
};

static struct carrier {
    struct plx_front front;
    struct plx_vdi *vdi;
    unsigned limit;         /* records that there are so far */
    unsigned next, durable; /* to be carried; that were */
    unsigned flight;
    bool may_go;  /* the one before has its place */
    bool failing; /* one failed: begins again when all have ended */
    bool stopped;
    unsigned failures, asked;
    struct carried carried[FLIGHT];
} carrier;

static bool take(struct plx_front *front, struct plx_request *request)
{
    carrier.asked++;
    if (request->op != PLX_SNAPSHOT && request->op != PLX_LABEL)
        return false;
    plx_front_complete(carrier.vdi, request, PLX_ERR_BUSY);
    return true;
}

static uint64_t last(const struct plx_front *front)
{
    return carrier.limit;
}

static void on_appended(struct plx_request *request)
{
    CU_ASSERT(!carrier.may_go);
    carrier.may_go = true;
}

static void on_done(struct plx_request *request)
{
    struct carried *c = request->owner;

    free(c->bytes);
    c->bytes = NULL;
    carrier.flight--;
    if (request->result) {
        carrier.failing = true;
        carrier.failures++;
        return;
    }
    CU_ASSERT_EQUAL(request->carried.seq, carrier.durable + 1);
    carrier.durable = (unsigned)request->carried.seq;
}

static void carry(unsigned r)
{
    const struct record *record = &records[r];
    struct carried *c = carrier.carried;

    while (c->bytes)
        c++;
    c->bytes = aligned_alloc(BLOCK, record->count * BLOCK);
    for (uint64_t i = 0; i < record->count * BLOCK / 8; i++) {
        uint64_t word = word_of(r, record->block + i * 8 / BLOCK);

        memcpy(c->bytes + i * 8, &word, 8);
    }
    c->iov = (struct iovec){c->bytes, record->count * BLOCK};
    c->request = (struct plx_request){.op = record->op,
                                      .offset = record->block * BLOCK,
                                      .length = record->count * BLOCK,
                                      .iov = &c->iov,
                                      .iovcnt = 1,
                                      .seq = record->snapshot,
                                      .time_ns = record->time_ns,
                                      .carried = {record->epoch, r},
                                      .appended = on_appended,
                                      .done = on_done,
                                      .owner = c};
    carrier.flight++;
    carrier.may_go = false;
    plx_front_carry(carrier.vdi, &c->request);
}

static void pump(struct plx_front *front)
{
    if (carrier.failing && !carrier.flight) {
        carrier.failing = false;
        carrier.may_go = true;
        carrier.next = carrier.durable + 1;
    }
    while (carrier.may_go && !carrier.failing && !carrier.stopped && carrier.flight < FLIGHT &&
           carrier.next <= carrier.limit)
        carry(carrier.next++);
}

static void put_front(struct plx_vdi *vdi, unsigned drained)
{
    carrier = (struct carrier){.front = {.take = take, .pump = pump, .last = last},
                               .vdi = vdi,
                               .limit = drained,
                               .next = drained + 1,
                               .durable = drained,
                               .may_go = true};
    plx_front_set(vdi, &carrier.front);
}

static const struct plx_ring_mark no_mark;
static struct plx_ring_mark mark;

static void make_mark(uint64_t set)
{
    mark = (struct plx_ring_mark){.ring = {{7}}, .set = set, .proof = 3, .since = epoch};
}

static int set_mark(struct plx_vdi *vdi, const struct plx_ring_mark *to)
{
    struct plx_waiter waiter = PLX_WAITER;

    plx_front_mark(vdi, to, &waiter.task);
    return plx_waiter_wait(store, &waiter);
}

static unsigned turns_left; /* of a test: nothing goes on for ever */

static void turn(void)
{
    CU_ASSERT_FATAL(turns_left-- > 0);
    if (!plx_store_tick(store))
        plx_store_wait(store);
}

/* Until all is on the disk, or the disk has stopped. */
static void drain(void)
{
    while (carrier.durable < carrier.limit && !carrier.vdi->log.sticky && !power.off)
        turn();
}

static void take_front_away(void)
{
    CU_ASSERT_EQUAL(set_mark(carrier.vdi, &no_mark), 0);
    plx_front_set(carrier.vdi, NULL);
}

static struct plx_vdi *make_marked(uint64_t seed)
{
    struct plx_vdi *vdi;

    turns_left = 20000;
    fixture.disk.seed = seed;
    vdi = make_with_vdi(64 * MIB, MIB, SIZE);
    OK(plx_vdi_close(vdi));
    OK(plx_store_allow_ring(store, &fault));
    vdi = open_vdi(0);
    make_records(seed, epoch);
    make_mark(1);
    put_front(vdi, 0);
    OK(set_mark(vdi, &mark));
    return vdi;
}

static void end(struct plx_vdi *vdi, bool leaks)
{
    OK(plx_vdi_close(vdi));
    check_store(leaks);
    end_store();
}

/* ---- What is found ---- */

static bool same_mark(const struct plx_ring_mark *a, const struct plx_ring_mark *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* Snapshots have the numbers, times and contents that they were acknowledged with. */
static void check_snapshots(unsigned n)
{
    for (unsigned r = 1; r <= n; r++) {
        struct plx_snapshot_info info = {0};
        struct plx_vdi *instant = NULL;

        if (records[r].op != PLX_SNAPSHOT)
            continue;
        OK(plx_snapshot_first(store, 0, records[r].snapshot, &info, &fault));
        CU_ASSERT_EQUAL(info.seq, records[r].snapshot);
        CU_ASSERT_EQUAL(info.time_ns, records[r].time_ns);
        OK(plx_snapshot_open(store, 0, records[r].snapshot, &instant, &fault));
        CU_ASSERT(holds(instant, r, 0));
        plx_vdi_abandon(instant);
    }
}

/* The disk has the records up to its position, and perhaps the first windows of the next one. */
static unsigned check_found(struct plx_vdi *vdi, unsigned durable)
{
    struct plx_vdi_info info;
    bool right;
    unsigned n;

    plx_vdi_get_info(vdi, &info);
    n = (unsigned)info.position.seq;
    CU_ASSERT_FATAL(n <= RECORDS);
    CU_ASSERT(n >= durable);
    CU_ASSERT_EQUAL(info.position.epoch, n ? records[n].epoch : 0);
    CU_ASSERT_EQUAL(info.snapshots, snapshots_in(n));
    right = holds(vdi, n, 0);
    for (uint64_t more = 1; n < RECORDS && more < records[n + 1].count && !right; more++)
        right = records[n + 1].striped && holds(vdi, n, more);
    CU_ASSERT(right);
    check_snapshots(n);
    return n;
}

/* ---- Without its front ---- */

static void expect_away(struct plx_vdi *vdi)
{
    struct plx_vdi_open_options use = {.overwrite = -1};
    struct plx_request label = {.op = PLX_LABEL, .seq = 1, .label = "here"},
                       grow = {.op = PLX_RESIZE, .length = 2 * MIB};
    struct plx_snapshot_info before;

    FAILS(RING_AWAY, write_byte(vdi, 0, BLOCK, 1));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "write-back ring"));
    FAILS(RING_AWAY, try_run(vdi, PLX_UNMAP, 0, BLOCK, NULL));
    FAILS(RING_AWAY, try_run(vdi, PLX_COMPARE_WRITE, 0, BLOCK, NULL));
    FAILS(RING_AWAY, try_run(vdi, PLX_SNAPSHOT, 0, 0, NULL));
    FAILS(RING_AWAY, plx_vdi_run(vdi, &label));
    FAILS(RING_AWAY, plx_vdi_run(vdi, &grow));
    FAILS(RING_AWAY, plx_vdi_rewind(vdi, &(struct plx_rewind_options){.seq = 1}, &before, &fault));
    OK(try_run(vdi, PLX_FLUSH, 0, 0, NULL));
    OK(try_run(vdi, PLX_KEYFRAME, 0, 0, NULL));
    CU_ASSERT(!plx_vdi_use(vdi, &use));
}

/* Recovered, written as a key frame, closed and opened: mark and position stay, and nothing else
 * changes. */
static void test_away(void)
{
    struct plx_protection each = {.mode = PLX_PROTECT_INTERVAL, .interval_ns = 10000000};
    struct plx_vdi *vdi = make_marked(1);
    struct plx_vdi_info info;

    carrier.limit = 12;
    drain();
    CU_ASSERT_EQUAL(carrier.failures, 0);
    crash_store();
    OK(try_open_vdi(0, true, &vdi));
    vdi->protect.policy = each;
    CU_ASSERT_EQUAL(check_found(vdi, 12), 12);
    expect_away(vdi);
    pass_time(1000000000); /* no snapshot is due */
    OK(plx_vdi_close(vdi));
    OK(plx_vdi_read_info(store, 0, &info, &fault));
    CU_ASSERT(same_mark(&info.mark, &mark));
    CU_ASSERT_EQUAL(info.position.seq, 12);
    OK(try_open_vdi(0, false, &vdi));
    CU_ASSERT_EQUAL(check_found(vdi, 12), 12);
    put_front(vdi, 12);
    carrier.limit = RECORDS;
    drain();
    take_front_away();
    CU_ASSERT_EQUAL(check_found(vdi, RECORDS), RECORDS);
    OK(write_byte(vdi, 0, BLOCK, 1));
    CU_ASSERT_EQUAL(run(vdi, PLX_SNAPSHOT, 0, 0), snapshots_in(RECORDS) + 1);
    end(vdi, true);
}

/* The last batch of the disk's log, and where in it the epoch of its last position lies. */
static uint64_t find_position(struct plx_batch_header *ret_header, unsigned *ret_offset)
{
    static uint8_t bytes[PLX_BATCH_BYTES_MAX];
    struct plx_batch_header header;
    struct plx_record record;
    uint64_t at = 0;
    size_t offset = PLX_BATCH_HEADER_BYTES;

    for (uint64_t seq = 1, found; seq < 200; seq++) {
        found = find_batch(seq, &header);
        if (found) {
            at = found;
            *ret_header = header;
        }
    }
    plx_simdisk_peek(disk, at, bytes, ret_header->bytes);
    while (plx_record_next(bytes, ret_header, &offset, PLX_BLOCK_MAX, &record) == 0)
        if (record.type == PLX_RECORD_RING)
            *ret_offset = (unsigned)offset - 8;
    return at;
}

/* REPLAY-8: a position of an epoch that the disk never had. With it, the next key frame would write
 * a record that our own gate refuses. */
static void test_later_epoch(void)
{
    for (unsigned later = 0; later < 2; later++) {
        struct plx_vdi *vdi = make_marked(1);
        struct plx_batch_header header;
        struct plx_store_info info;
        unsigned offset = 0;
        uint64_t at;
        int error;

        carrier.limit = 12;
        drain();
        crash_store();
        plx_store_get_info(store, &info);
        store_id = info.id;
        at = find_position(&header, &offset);
        CU_ASSERT_FATAL(at && offset);
        forge_batch(at, &header, offset + 6, later ? 8 : 0);
        error = try_open_vdi(0, true, &vdi);
        CU_ASSERT_EQUAL(error, later ? PLX_ERR_CORRUPT : 0);
        if (!error)
            OK(plx_vdi_close(vdi));
        end_store();
    }
}

/* What a ring cannot have written is refused, for a ring is not believed. */
static int carry_wrong(struct plx_vdi *vdi, struct plx_request request)
{
    struct carried *c = carrier.carried;

    c->bytes = aligned_alloc(BLOCK, 2 * BLOCK);
    c->iov = (struct iovec){c->bytes, 2 * BLOCK};
    request.iov = &c->iov;
    request.iovcnt = 1;
    request.appended = on_appended;
    request.done = on_done;
    request.owner = c;
    c->request = request;
    carrier.flight++;
    carrier.may_go = false;
    plx_front_carry(vdi, &c->request);
    while (c->bytes)
        turn();
    return c->request.result;
}

static void test_refused(void)
{
    struct plx_vdi *vdi = make_marked(2);
    struct plx_ring_position at = {epoch, 1};
    uint64_t end_at = (BLOCKS - 1) * BLOCK;

    FAILS(INVALID, carry_wrong(vdi, (struct plx_request){.op = PLX_WRITE, .length = BLOCK}));
    FAILS(INVALID,
          carry_wrong(vdi, (struct plx_request){.op = PLX_WRITE, .length = 512, .carried = at}));
    FAILS(INVALID, carry_wrong(vdi, (struct plx_request){.op = PLX_WRITE, .carried = at}));
    FAILS(INVALID,
          carry_wrong(vdi, (struct plx_request){.op = PLX_READ, .length = BLOCK, .carried = at}));
    FAILS(INVALID,
          carry_wrong(vdi, (struct plx_request){
                               .op = PLX_WRITE, .length = BLOCK, .carried = {epoch + 1, 1}}));
    FAILS(RANGE,
          carry_wrong(vdi,
                      (struct plx_request){
                          .op = PLX_WRITE, .offset = end_at, .length = 2 * BLOCK, .carried = at}));
    FAILS(INVALID,
          carry_wrong(vdi, (struct plx_request){.op = PLX_SNAPSHOT, .seq = 2, .carried = at}));
    FAILS(
        INVALID,
        carry_wrong(vdi, (struct plx_request){
                             .op = PLX_SNAPSHOT, .seq = 1, .time_ns = UINT64_MAX, .carried = at}));
    /* Not the next one: it has its place, and fails there. */
    at.seq = 2;
    FAILS(BUSY, carry_wrong(vdi, (struct plx_request){
                                     .op = PLX_WRITE, .length = 2 * BLOCK, .carried = at}));
    FAILS(BUSY,
          carry_wrong(vdi, (struct plx_request){.op = PLX_SNAPSHOT, .seq = 1, .carried = at}));
    /* Nor is any part of it logged, if it has several. */
    records[3].striped = true;
    records[3].count = 100;
    carry(3);
    while (carrier.flight)
        turn();
    CU_ASSERT(holds(vdi, 0, 0));
    FAILS(BUSY, try_run(vdi, PLX_SNAPSHOT, 0, 0, NULL)); /* the front's answer */
    carrier.limit = RECORDS;
    drain();
    CU_ASSERT_EQUAL(check_found(vdi, RECORDS), RECORDS);
    take_front_away();
    end(vdi, false);
}

/* FRONT-2: nobody is told of a mark that only one slot has. */
static void test_mark_in_one_slot(void)
{
    struct plx_vdi *vdi;
    struct plx_vdi_info info;
    unsigned failed = 0, refused = 0;

    for (unsigned k = 1; k < 100; k++) {
        int error;

        vdi = make_marked(k / 25);
        make_mark(2);
        plx_simdisk_fail_io(disk, k % 25, 1);
        error = set_mark(vdi, &mark);
        plx_simdisk_fail_io(disk, 0, 0);
        failed += error != 0;
        refused += !error; /* the I/O was a later one, or one that was tried again */
        if (!error) {
            uint8_t bytes[2][BLOCK];

            for (unsigned slot = 0; slot < 2; slot++) {
                struct plx_vdi_record record;

                plx_simdisk_peek_stable(disk,
                                        (plx_vdi_slot_addr(store, 0) + slot) * (uint64_t)BLOCK,
                                        bytes[slot], BLOCK);
                OK(plx_format_vdi_record_decode(bytes[slot], &store->info.id, 0, store->addr_limit,
                                                &record, &fault));
                CU_ASSERT(same_mark(&record.mark, &mark));
            }
        }
        carrier.stopped = true;
        crash_store();
        OK(plx_vdi_read_info(store, 0, &info, &fault));
        CU_ASSERT(plx_ring_is_marked(&info.mark));
        end_store();
    }
    CU_ASSERT(failed > 3 && refused > 3);
}

/* ---- Whenever the power fails ---- */

/* Records come in bursts, with key frames among them, and once the mark changes. */
static void work(struct plx_vdi *vdi)
{
    struct plx_ring_mark other = mark;

    other.set = 2;
    while (carrier.limit < RECORDS && !vdi->log.sticky && !power.off) {
        carrier.limit =
            (unsigned)plx_min_u64(RECORDS, carrier.limit + 1 + plx_simrng_below(&rng, 7));
        for (uint64_t turns = plx_simrng_below(&rng, 12); turns; turns--)
            turn();
        if (plx_simrng_below(&rng, 4) == 0)
            try_run(vdi, PLX_KEYFRAME, 0, 0, NULL);
        if (carrier.limit > RECORDS / 2 && mark.set == 1) {
            if (set_mark(vdi, &other) == 0)
                mark = other;
        }
    }
    drain();
}

static unsigned states;

/* What a crash left is opened, perhaps with another crash in it, and the rest is carried. */
static void recover(unsigned durable, uint64_t again)
{
    struct plx_vdi *vdi;
    struct plx_vdi_info info;
    unsigned n;

    OK(plx_vdi_read_info(store, 0, &info, &fault));
    CU_ASSERT(plx_ring_is_marked(&info.mark) && info.mark.since == mark.since &&
              info.mark.set >= mark.set);
    if (again) {
        power.crash_at = power.events + again;
        if (!try_open_vdi(0, true, &vdi))
            run(vdi, PLX_FLUSH, 0, 0);
        power.crash_at = 0;
        crash_store();
    }
    OK(try_open_vdi(0, true, &vdi));
    states++;
    n = check_found(vdi, durable);
    put_front(vdi, n);
    carrier.limit = RECORDS;
    drain();
    CU_ASSERT_EQUAL(carrier.failures, 0);
    CU_ASSERT_EQUAL(check_found(vdi, RECORDS), RECORDS);
    take_front_away();
    end(vdi, true);
}

/* false: the work was done before that. */
static bool crash_at(uint64_t seed, uint64_t at, uint64_t again)
{
    struct plx_vdi *vdi = make_marked(seed);
    unsigned durable;
    bool crashed;

    if (seed % 2 == 0) /* an I/O fails shortly before */
        plx_simdisk_fail_io(disk, 1 + (at > 10 ? at / 2 - plx_simrng_below(&rng, 5) : 0), 1);
    power.crash_at = power.events + at;
    work(vdi);
    crashed = power.off || vdi->log.sticky;
    power.crash_at = 0;
    durable = carrier.durable;
    carrier.stopped = true;
    plx_simdisk_fail_io(disk, 0, 0);
    crash_store();
    recover(durable, again);
    return crashed;
}

static void test_crashes(void)
{
    unsigned runs = getenv("PLX_RUNS") ? (unsigned)atoi(getenv("PLX_RUNS")) : 4;

    states = 0;
    for (uint64_t seed = 1; seed <= runs; seed++)
        for (uint64_t at = 1; crash_at(seed, at, at % 4 ? 0 : 1 + at % 23); at++)
            ;
    printf(" %u crash states ...", states);
    CU_ASSERT(states > 100 * runs);
}

/* ---- Whatever fails ---- */

/* One I/O fails, or two in a row: of data, then all behind it is carried again; of the log, then
 * the log is written again; or of a flush, and the disk stops, is opened again and goes on. */
static void test_failures(void)
{
    unsigned failures = 0, stops = 0;

    for (uint64_t k = 1; k < 160; k++) {
        struct plx_vdi *vdi = make_marked(k % 5);
        unsigned durable;

        plx_simdisk_fail_io(disk, k, 1 + k % 2);
        work(vdi);
        failures += carrier.failures;
        stops += vdi->log.sticky != 0;
        durable = carrier.durable;
        plx_simdisk_fail_io(disk, 0, 0);
        CU_ASSERT(vdi->log.sticky || durable == RECORDS);
        if (!vdi->log.sticky)
            CU_ASSERT_EQUAL(check_found(vdi, RECORDS), RECORDS);
        carrier.stopped = true;
        crash_store();
        recover(durable, 0);
    }
    CU_ASSERT(failures > 20 && stops > 2);
}

/* A move brings the blocks together that are being carried: it is done before, or after. */
static void move_done(struct plx_request *request)
{
    *(bool *)request->owner = true;
}

static void test_moves(void)
{
    static uint8_t memory[PLX_MOVE_BUFFER];
    uint64_t moved = 0;

    for (uint64_t seed = 1; seed < 40; seed++) {
        struct plx_vdi *vdi = make_marked(seed);
        struct iovec iov = {memory, sizeof memory};
        struct plx_move move = {.windows = UINT64_MAX};
        bool done = false;
        struct plx_request request = {.op = PLX_MOVE,
                                      .length = SIZE / BLOCK * BLOCK,
                                      .iov = &iov,
                                      .iovcnt = 1,
                                      .move = &move,
                                      .done = move_done,
                                      .owner = &done};

        for (unsigned r = 1; r <= RECORDS; r++) /* backwards, then anywhere among them */
            records[r] = (struct record){.op = PLX_WRITE,
                                         .epoch = epoch,
                                         .count = 1,
                                         .block = r <= 16 ? 16 - r : plx_simrng_below(&rng, 16)};
        for (carrier.limit = 1; carrier.limit < 16; carrier.limit++)
            drain();
        drain();
        plx_vdi_submit(vdi, &request);
        for (uint64_t turns = plx_simrng_below(&rng, 8); turns; turns--)
            turn();
        carrier.limit = RECORDS;
        drain();
        while (!done)
            turn();
        moved += move.moved;
        CU_ASSERT_EQUAL(request.result, 0);
        CU_ASSERT_EQUAL(check_found(vdi, RECORDS), RECORDS);
        take_front_away();
        end(vdi, false);
    }
    CU_ASSERT(moved > 100);
}

/* No room for a segment of the log: those behind fail as well, and all come when there is some. */
static void test_no_room(void)
{
    struct plx_vdi *vdi = make_marked(4);

    eat_segments();
    carrier.limit = RECORDS;
    for (unsigned i = 0; i < 2000 && !vdi->log.sticky; i++)
        turn();
    give_segments_back();
    drain();
    CU_ASSERT_EQUAL(check_found(vdi, RECORDS), RECORDS);
    take_front_away();
    end(vdi, true);
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"away", test_away},
        {"refused", test_refused},
        {"a position of a later epoch", test_later_epoch},
        {"a mark in one slot", test_mark_in_one_slot},
        {"power cuts", test_crashes},
        {"failures", test_failures},
        {"moves", test_moves},
        {"no room", test_no_room},
    };

    return SUITE_RUN("front", tests);
}
