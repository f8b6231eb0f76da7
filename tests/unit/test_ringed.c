/* test_ringed.c - a disk with a write-back ring is the same as one without: what is read, each
 * snapshot, and what is found after a crash, whatever fails, and whenever the power does. Store and
 * ring have devices, caches and power of their own.
 */
#include "engine/space/allocator_inside.h"
#include "ok.h"
#include "suite.h"
#include "unit/ringed_world.h"

/* ---- One after the other ---- */

static void test_on_and_off(void)
{
    make(1);
    CU_ASSERT(!info_of().on);
    OK(write_byte(vdi, 0, 3 * BLOCK, 1));
    OK(plx_ringed_on(ringed, &fault));
    CU_ASSERT(info_of().on);
    CU_ASSERT(is_marked());
    OK(write_byte(vdi, BLOCK, BLOCK, 2));
    OK(write_byte(vdi, 2 * BLOCK + SECTOR, SECTOR, 3)); /* a part of a block */
    OK(try_run(vdi, PLX_UNMAP, 0, BLOCK, NULL));
    CU_ASSERT(reads_as(vdi, 0, BLOCK, 0));
    CU_ASSERT(reads_as(vdi, BLOCK, BLOCK, 2));
    CU_ASSERT(reads_as(vdi, 2 * BLOCK, SECTOR, 1));
    CU_ASSERT(reads_as(vdi, 2 * BLOCK + SECTOR, SECTOR, 3));
    CU_ASSERT(reads_as(vdi, 2 * BLOCK + 2 * SECTOR, 6 * SECTOR, 1));
    OK(plx_ringed_off(ringed, &fault));
    CU_ASSERT(!info_of().on);
    CU_ASSERT_EQUAL(info_of().records, 0);
    CU_ASSERT(!is_marked());
    CU_ASSERT_EQUAL(vdi_info().position.seq, 3);
    CU_ASSERT(reads_as(vdi, 0, BLOCK, 0));
    CU_ASSERT(reads_as(vdi, BLOCK, BLOCK, 2));
    CU_ASSERT(reads_as(vdi, 2 * BLOCK + SECTOR, SECTOR, 3));
    OK(write_byte(vdi, BLOCK, BLOCK, 4));
    OK(plx_ringed_on(ringed, &fault)); /* again, in the same epoch */
    CU_ASSERT(reads_as(vdi, BLOCK, BLOCK, 4));
    OK(write_byte(vdi, BLOCK, BLOCK, 5));
    OK(plx_ringed_off(ringed, &fault));
    CU_ASSERT_EQUAL(vdi_info().position.seq, 4);
    CU_ASSERT(reads_as(vdi, BLOCK, BLOCK, 5));
    close_disk();
    end(false);
}

/* The ring is let go of, and taken again in the same epoch: what it has then is found, and nothing
 * of what it had before. */
static void test_let_go(void)
{
    struct plx_uuid id;

    make(6);
    id = vdi_info().id;
    for (unsigned i = 0; i < 4; i++) {
        OK(plx_ringed_on(ringed, &fault));
        for (unsigned b = 0; b <= i; b++)
            OK(write_byte(vdi, b * BLOCK, BLOCK, (int)(10 * i + b)));
        if (i == 3)
            break;
        OK(plx_ringed_off(ringed, &fault));
        plx_ringed_close(ringed);
        FAILS(CORRUPT, plx_ringed_new(host, vdi, &ringed, &fault)); /* RINGED-6 */
        OK(plx_ring_forget(ring, &id, &fault));
        OK(write_byte(vdi, 0, 4 * BLOCK, 99));
        OK(plx_ringed_new(host, vdi, &ringed, &fault));
    }
    CU_ASSERT(info_of().records > 0);
    die();
    open_ring();
    OK(try_open(true));
    for (unsigned b = 0; b < 4; b++)
        CU_ASSERT(reads_as(vdi, b * BLOCK, BLOCK, (int)(30 + b)));
    OK(plx_ringed_off(ringed, &fault));
    for (unsigned b = 0; b < 4; b++)
        CU_ASSERT(reads_as(vdi, b * BLOCK, BLOCK, (int)(30 + b)));
    close_disk();
    end(true);
}

/* The store does not answer: writes are acknowledged and read all the same, and found after the
 * host's death. */
static void test_store_away(void)
{
    fixture.open.ops_per_vdi = 8; /* few are carried at once */
    make(2);
    OK(plx_ringed_on(ringed, &fault));
    hold_store(true);
    for (unsigned i = 0; i < 20; i++)
        OK(write_byte(vdi, i * BLOCK, BLOCK, (int)i + 1));
    OK(try_run(vdi, PLX_FLUSH, 0, 0, NULL));
    for (unsigned i = 0; i < 20; i++)
        CU_ASSERT(reads_as(vdi, i * BLOCK, BLOCK, (int)i + 1));
    CU_ASSERT_EQUAL(info_of().records, 20);
    hold_store(false);
    plx_simpower_cut(&ring_power);
    plx_simpower_cut(&power);
    plx_ringed_close(ringed);
    plx_vdi_abandon(vdi);
    close_ring();
    plx_simpower_restore(&ring_power);
    crash_store();
    open_ring();
    OK(try_open(true));
    for (bool more = false; !info_of().on; more = plx_store_tick(store))
        if (!more)
            plx_store_wait(store);
    CU_ASSERT(info_of().records > 0);
    die(); /* with a new mark, and what the first epoch left */
    open_ring();
    OK(try_open(true));
    for (unsigned i = 0; i < 20; i++)
        CU_ASSERT(reads_as(vdi, i * BLOCK, BLOCK, (int)i + 1));
    OK(plx_ringed_off(ringed, &fault));
    for (unsigned i = 0; i < 20; i++)
        CU_ASSERT(reads_as(vdi, i * BLOCK, BLOCK, (int)i + 1));
    close_disk();
    end(true);
    fixture.open.ops_per_vdi = 0;
}

/* ---- Many at once, against a model ---- */

#define FLIGHT 8u
#define LARGEST (SIZE + 64 * SECTOR)
#define INSTANTS 200u

static uint64_t size; /* of the disk */
static uint8_t model[LARGEST];
static uint8_t *instants[INSTANTS]; /* by the snapshot's number */
static uint64_t instant_sizes[INSTANTS];
static unsigned newest;
static bool stays_on;

static struct sent sents[FLIGHT];

static void wait_all(void)
{
    for (unsigned i = 0; i < FLIGHT; i++) {
        while (sents[i].under_way)
            turn();
        if (sents[i].memory)
            CU_ASSERT_EQUAL(sents[i].request.result, sents[i].expected);
        free(sents[i].memory);
        sents[i].memory = NULL;
    }
}

static void some_range(uint64_t sectors, uint64_t *ret_offset, uint64_t *ret_length)
{
    bool whole = below(2);
    uint64_t unit = whole ? BLOCK : SECTOR, units = size / unit;

    *ret_offset = below(3) ? below(plx_min_u64(units, 60)) : below(units);
    *ret_length = 1 + below(plx_min_u64(units - *ret_offset, 1 + sectors * SECTOR / unit));
    *ret_offset *= unit;
    *ret_length *= unit;
}

static void send_write(struct sent *sent)
{
    uint64_t offset, length;
    int byte = (int)below(20);

    some_range(below(4) ? 8 : 300, &offset, &length);
    sent->memory = malloc(length);
    memset(sent->memory, byte, length);
    memset(model + offset, byte, length);
    submit(sent, PLX_WRITE, offset, length, length);
}

static void send_unmap(struct sent *sent)
{
    uint64_t offset, length;

    some_range(100, &offset, &length);
    sent->memory = malloc(1);
    memset(model + offset, 0, length);
    submit(sent, PLX_UNMAP, offset, length, 0);
}

static void send_compare(struct sent *sent)
{
    uint64_t offset, length;
    bool right = below(3);
    int byte = (int)below(250);

    some_range(20, &offset, &length);
    length = plx_min_u64(length, PLX_COMPARE_MAX);
    sent->memory = malloc(2 * length);
    memcpy(sent->memory, model + offset, length);
    if (!right)
        sent->memory[below(length)] ^= 1;
    memset(sent->memory + length, byte, length);
    submit(sent, PLX_COMPARE_WRITE, offset, length, 2 * length);
    sent->expected = right ? 0 : PLX_ERR_MISCOMPARE;
    if (right)
        memset(model + offset, byte, length);
}

/* Changes that come at once count in the order in which they come, while the ring is on. Without it
 * the order of those that overlap is anybody's guess, for the disk locks a window at a time. */
static void send_changes(unsigned first)
{
    bool alone = !info_of().on || !stays_on;
    unsigned count = first + 1 + (unsigned)below(alone ? 1 : FLIGHT - first);

    for (unsigned i = first; i < count; i++)
        switch (below(4)) {
        case 0:
            send_unmap(&sents[i]);
            break;
        case 1:
            send_compare(&sents[i]);
            break;
        default:
            send_write(&sents[i]);
            break;
        }
}

static void keep_instant(uint64_t seq, const uint8_t *bytes, uint64_t bytes_size)
{
    CU_ASSERT_FATAL(seq == newest + 1 || seq == newest);
    CU_ASSERT_FATAL(seq < INSTANTS);
    if (seq == newest) {
        CU_ASSERT(seq && memcmp(instants[seq], bytes, bytes_size) == 0);
        return;
    }
    newest++;
    instants[newest] = malloc(LARGEST);
    memcpy(instants[newest], bytes, LARGEST);
    instant_sizes[newest] = bytes_size;
}

/* What is submitted behind a snapshot is not in it. */
static void take_snapshot(void)
{
    static uint8_t before[LARGEST];

    memcpy(before, model, sizeof before);
    sents[0].memory = malloc(1);
    submit(&sents[0], PLX_SNAPSHOT, 0, 0, 0);
    if (below(2))
        send_changes(1);
    wait_all();
    keep_instant(sents[0].request.seq, before, size);
}

static void grow(void)
{
    uint64_t more = size + (1 + below(4)) * SECTOR;

    if (more > LARGEST)
        return;
    sents[0].memory = malloc(1);
    submit(&sents[0], PLX_RESIZE, 0, more, 0);
    if (below(2))
        send_changes(1);
    wait_all();
    size = more;
}

static void put_label(void)
{
    struct plx_request label = {.op = PLX_LABEL, .seq = newest, .label = "here"};

    if (newest)
        OK(plx_vdi_run(vdi, &label));
}

static void expect_contents(void)
{
    OK(try_run(vdi, PLX_READ, 0, size, NULL));
    CU_ASSERT(memcmp(buffer, model, size) == 0);
    for (unsigned i = 0; i < 3; i++) {
        uint64_t offset, length;

        some_range(100, &offset, &length);
        OK(try_run(vdi, PLX_READ, offset, length, NULL));
        CU_ASSERT(memcmp(buffer, model + offset, length) == 0);
    }
}

/* What is mapped, by disk and ring together: nothing that has data is left out. */
static bool visit_mapped(void *context, uint64_t offset, uint64_t length, bool mapped)
{
    uint64_t *at = context;

    CU_ASSERT_EQUAL(*at, offset);
    CU_ASSERT(length > 0);
    *at = offset + length;
    for (uint64_t i = offset; i < offset + length && !mapped; i++)
        if (model[i]) {
            CU_FAIL("what has data is not mapped");
            return false;
        }
    return true;
}

static void expect_mapped(void)
{
    uint64_t at = 0;

    OK(plx_vdi_map_runs(vdi, 0, size, visit_mapped, &at, &fault));
    CU_ASSERT_EQUAL(at, size);
}

static void expect_instants(void)
{
    for (unsigned seq = 1; seq <= newest; seq++) {
        struct plx_vdi *instant = NULL;

        OK(plx_snapshot_open(store, 0, seq, &instant, &fault));
        OK(try_run(instant, PLX_READ, 0, instant_sizes[seq], NULL));
        CU_ASSERT(memcmp(buffer, instants[seq], instant_sizes[seq]) == 0);
        plx_vdi_abandon(instant);
    }
}

static void reopen(void)
{
    close_disk();
    if (below(2)) {
        close_ring();
        open_ring();
    }
    OK(try_open(false));
    stays_on = is_marked();
}

static void work_on_model(unsigned rounds)
{
    for (unsigned i = 0; i < rounds && !CU_get_number_of_failures(); i++) {
        switch (below(16)) {
        case 0:
            take_snapshot();
            break;
        case 1:
            expect_contents();
            break;
        case 2:
            OK(try_run(vdi, below(2) ? PLX_KEYFRAME : PLX_FLUSH, 0, 0, NULL));
            break;
        case 3:
            stays_on = below(3);
            plx_ringed_turn(ringed, stays_on);
            break;
        case 4:
            plx_simdisk_set_patience(disk, (unsigned)below(3) * 45);
            break;
        case 5:
            if (below(3) == 0)
                grow();
            else if (below(2))
                put_label();
            else
                expect_mapped();
            break;
        case 6:
            if (below(2))
                reopen();
            break;
        default:
            send_changes(0);
            wait_all();
            break;
        }
        for (uint64_t turns = below(8); turns; turns--)
            turn();
    }
}

static void model_run(uint64_t seed)
{
    make(seed);
    size = SIZE;
    newest = 0;
    stays_on = false;
    memset(model, 0, sizeof model);
    work_on_model(120);
    hold_store(false);
    expect_contents();
    OK(plx_ringed_off(ringed, &fault));
    expect_contents();
    expect_instants();
    close_disk();
    end(false);
    while (newest)
        free(instants[newest--]);
}

static void test_model(void)
{
    unsigned runs = getenv("PLX_RUNS") ? (unsigned)atoi(getenv("PLX_RUNS")) : 30;

    for (uint64_t seed = 1; seed <= runs && !CU_get_number_of_failures(); seed++) {
        memory_limit = seed % 3 ? 64 * BLOCK : 0; /* most is read back from the ring */
        model_run(seed);
        if (CU_get_number_of_failures())
            printf("\n  seed %llu\n", (unsigned long long)seed);
    }
    memory_limit = 0;
}

/* ---- Whenever the power fails ---- */

#define REQUESTS 48u
#define AT_ONCE 6u

/* A request, in whole blocks: request r is record r or some more of the ring. */
struct step {
    enum plx_request_op op;
    uint64_t block, count;
    uint64_t snapshot, time_ns; /* as it was answered; 0: it was not */
};
static struct step steps[REQUESTS + 1]; /* from 1 on */

static struct flying {
    struct plx_request request;
    struct iovec iov;
    uint8_t *bytes;
    unsigned r;
} flying[AT_ONCE];
static unsigned flights, submitted, acknowledged;
static unsigned at_once = AT_ONCE;
static unsigned writes_fail_in; /* turns; then all of the ring's do; 0: never */
static bool acked[REQUESTS + 2];

static void make_steps(void)
{
    for (unsigned r = 1; r <= REQUESTS; r++) {
        struct step *step = &steps[r];

        *step = (struct step){.op = PLX_WRITE, .block = below(40), .count = 1 + below(3)};
        if (r % 8 == 0)
            step->op = PLX_SNAPSHOT;
        else if (r % 8 == 3)
            step->op = PLX_UNMAP;
        else if (r % 8 == 5)
            step->count = 1 + below(40); /* several records */
        else if (r % 8 == 6)
            step->block = BLOCKS - step->count;
    }
}

static uint64_t word_of(unsigned r, uint64_t block)
{
    return steps[r].op == PLX_UNMAP ? 0 : (uint64_t)r << 32 | block;
}

static bool block_is(const uint8_t *bytes, uint64_t block, uint64_t word)
{
    size_t left = block == BLOCKS - 1 ? 512 : BLOCK;

    /* All words at once: with sanitizers a call for each takes a third of the test. */
    return memcmp(bytes, &word, sizeof word) == 0 &&
           memcmp(bytes, bytes + sizeof word, left - sizeof word) == 0;
}

/* Whether the disk holds the first n requests, and of the next one the first `more` blocks. */
static bool holds(struct plx_vdi *of, unsigned n, uint64_t more)
{
    static uint64_t words[BLOCKS];
    bool same = true;

    memset(words, 0, sizeof words);
    for (unsigned r = 1; r <= n + 1 && r <= REQUESTS; r++)
        for (uint64_t i = 0; i < (r <= n ? steps[r].count : more); i++)
            if (steps[r].op != PLX_SNAPSHOT)
                words[steps[r].block + i] = word_of(r, steps[r].block + i);
    OK(try_run(of, PLX_READ, 0, SIZE, NULL));
    for (uint64_t b = 0; b < BLOCKS && same; b++)
        same = block_is(buffer + b * BLOCK, b, words[b]);
    return same;
}

static void flying_done(struct plx_request *request)
{
    struct flying *f = request->owner;

    free(f->bytes);
    f->bytes = NULL;
    flights--;
    if (request->result)
        return;
    acked[f->r] = true;
    acknowledged = f->r > acknowledged ? f->r : acknowledged;
    steps[f->r].snapshot = request->seq;
    steps[f->r].time_ns = request->time_ns;
}

static void fly(unsigned r)
{
    const struct step *step = &steps[r];
    struct flying *f = flying;
    uint64_t end = plx_min_u64((step->block + step->count) * BLOCK, SIZE);

    while (f->bytes)
        f++;
    f->r = r;
    f->bytes = malloc(step->count * BLOCK);
    for (uint64_t i = 0; i < step->count * BLOCK / 8; i++) {
        uint64_t word = word_of(r, step->block + i * 8 / BLOCK);

        memcpy(f->bytes + i * 8, &word, 8);
    }
    f->iov = (struct iovec){f->bytes, end - step->block * BLOCK};
    f->request = (struct plx_request){.op = step->op,
                                      .offset = step->block * BLOCK,
                                      .length = f->iov.iov_len,
                                      .iov = &f->iov,
                                      .iovcnt = 1,
                                      .done = flying_done,
                                      .owner = f};
    flights++;
    plx_vdi_submit(vdi, &f->request);
}

/* Requests in bursts, key frames among them; the ring is turned off and on. Without it one comes
 * after the other, because the disk itself keeps no order among those that are under way. */
static void work(unsigned first)
{
    submitted = first - 1;
    while ((submitted < REQUESTS || flights) && !power.off && !ring_power.off && !vdi->log.sticky) {
        if (!flights && submitted >= first && !acked[submitted])
            fly(submitted); /* it failed without the ring, so the host sends it again */
        while (submitted < REQUESTS && flights < (stays_on && info_of().on ? at_once : 1) &&
               below(3))
            fly(++submitted);
        turn();
        if (writes_fail_in && !--writes_fail_in)
            plx_simdisk_fail_range(ring_disk, 0, RING_BYTES, false, true);
        if (below(40) == 0)
            plx_keyframe_request(vdi, NULL);
        if (!flights && below(4) == 0) {
            stays_on = below(3);
            plx_ringed_turn(ringed, stays_on);
        }
    }
}

/* Store and host go on or not when the other's power fails. */
static void stop_all(bool store_first)
{
    for (uint64_t turns = below(20); turns && store_first && !ring_power.off; turns--)
        turn();
    plx_simpower_cut(&power); /* the host cannot reach it either */
    plx_simpower_cut(&ring_power);
    plx_ringed_close(ringed);
    plx_vdi_abandon(vdi);
    close_ring();
    plx_simpower_restore(&ring_power);
    crash_store();
}

static unsigned snapshots_in(unsigned n)
{
    unsigned count = 0;

    for (unsigned r = 1; r <= n; r++)
        count += steps[r].op == PLX_SNAPSHOT;
    return count;
}

/* The first requests are all there, and none behind them, but perhaps a part of the next one. */
static unsigned check_found(void)
{
    struct plx_vdi_clock clock;

    plx_vdi_look_at_clock(vdi, &clock);
    for (unsigned n = acknowledged; n <= REQUESTS; n++) {
        if (snapshots_in(n) != clock.ends.newest_seq)
            continue;
        if (holds(vdi, n, 0))
            return n;
        for (uint64_t more = 1; n < REQUESTS && more < steps[n + 1].count; more++)
            if (holds(vdi, n, more))
                return n;
    }
    CU_FAIL_FATAL("what was acknowledged is not there, or not in order");
    return 0;
}

static void check_steps(unsigned n)
{
    uint64_t seq = 0;

    for (unsigned r = 1; r <= n; r++) {
        struct plx_snapshot_info info = {0};
        struct plx_vdi *instant = NULL;

        if (steps[r].op != PLX_SNAPSHOT)
            continue;
        seq++;
        OK(plx_snapshot_first(store, 0, seq, &info, &fault));
        CU_ASSERT_EQUAL(info.seq, seq);
        if (acked[r]) {
            CU_ASSERT_EQUAL(steps[r].snapshot, seq);
            CU_ASSERT_EQUAL(steps[r].time_ns, info.time_ns);
        }
        OK(plx_snapshot_open(store, 0, seq, &instant, &fault));
        CU_ASSERT(holds(instant, r, 0));
        plx_vdi_abandon(instant);
    }
}

static unsigned states;

/* What a crash left is opened, perhaps with another crash in it, and the rest follows. */
static void recover(uint64_t again)
{
    unsigned n;

    open_ring();
    if (again) {
        (again % 2 ? &power : &ring_power)->crash_at =
            (again % 2 ? power.events : ring_power.events) + again;
        if (try_open(true)) {
            close_ring();
            plx_simpower_cut(&power);
            plx_simpower_cut(&ring_power);
            plx_simpower_restore(&ring_power);
            power.crash_at = ring_power.crash_at = 0;
            crash_store();
        } else {
            for (uint64_t turns = below(100); turns && !power.off && !ring_power.off; turns--)
                turn();
            power.crash_at = ring_power.crash_at = 0;
            stop_all(again % 3 == 0);
        }
        open_ring();
    }
    OK(try_open(true));
    states++;
    n = check_found();
    CU_ASSERT(n >= acknowledged);
    for (unsigned r = n + 1; r <= REQUESTS; r++) /* one by one, so that none is left out */
        do {
            CU_ASSERT_EQUAL_FATAL(vdi->log.sticky, 0);
            fly(r);
            while (flights)
                turn();
        } while (!acked[r]);
    OK(plx_ringed_off(ringed, &fault));
    CU_ASSERT(holds(vdi, REQUESTS, 0));
    check_steps(REQUESTS);
    close_disk();
    end(true);
}

/* false: the work was done before that. */
static bool crash_at(uint64_t seed, uint64_t at, bool host_first, uint64_t again)
{
    bool crashed;

    overwrite = PLX_OVERWRITE_COPY; /* else a write in place may be torn while the ring is off */
    make(seed);
    make_steps();
    stays_on = true;
    memset(acked, 0, sizeof acked);
    acknowledged = 0;
    OK(plx_ringed_on(ringed, &fault));
    if (host_first)
        ring_power.crash_at = ring_power.events + at;
    else
        power.crash_at = power.events + at;
    work(1);
    crashed = power.off || ring_power.off;
    power.crash_at = ring_power.crash_at = 0;
    stop_all(!host_first);
    recover(again);
    return crashed;
}

static void test_crashes(void)
{
    unsigned runs = getenv("PLX_RUNS") ? (unsigned)atoi(getenv("PLX_RUNS")) : 6;

    states = 0;
    for (uint64_t seed = 1; seed <= runs && !CU_get_number_of_failures(); seed++) {
        memory_limit = seed % 2 ? 24 * BLOCK : 0;
        for (uint64_t at = 1; crash_at(seed, at, false, at % 4 ? 0 : 1 + at % 53);
             at += 1 + at / 100)
            ;
        for (uint64_t at = 1; crash_at(seed, at, true, at % 4 ? 0 : 1 + at % 29); at++)
            ;
    }
    memory_limit = 0;
    overwrite = -1;
    printf(" %u crash states ...", states);
    CU_ASSERT(states > 200 * runs);
}

/* ---- Whatever fails ---- */

static void begin_work(uint64_t seed)
{
    overwrite = PLX_OVERWRITE_COPY;
    make(seed);
    make_steps();
    stays_on = true;
    memset(acked, 0, sizeof acked);
    acknowledged = 0;
    OK(plx_ringed_on(ringed, &fault));
}

/* One I/O of the store fails, or two in a row: what is carried is carried again, the log is written
 * again, or the disk stops and is opened again. */
static void test_store_fails(void)
{
    unsigned stops = 0;

    for (uint64_t k = 1; k < 120 && !CU_get_number_of_failures(); k++) {
        begin_work(k % 5);
        plx_simdisk_fail_io(disk, k, 1 + k % 2);
        work(1);
        plx_simdisk_fail_io(disk, 0, 0);
        stops += vdi->log.sticky != 0;
        CU_ASSERT(vdi->log.sticky || acknowledged == REQUESTS);
        die();
        recover(0);
    }
    CU_ASSERT(stops > 2);
    overwrite = -1;
}

/* The ring fails for good: what it acknowledged goes to the store, what it did not goes there as it
 * came, and the disk goes on without it. */
static void test_ring_fails(void)
{
    unsigned fell_back = 0;

    for (uint64_t k = 1; k < 120 && !CU_get_number_of_failures(); k++) {
        struct plx_ring_info ring_info;

        memory_limit = k % 2 ? 24 * BLOCK : 0; /* what is not in memory can still be read */
        at_once = k / 2 % 2 ? AT_ONCE : 1;
        begin_work(k % 5);
        writes_fail_in = k % 2 ? (unsigned)k : 0;
        if (!memory_limit)
            plx_simdisk_fail_io(ring_disk, k, 1000000);
        work(1);
        CU_ASSERT_EQUAL(vdi->log.sticky, 0);
        CU_ASSERT_EQUAL(acknowledged, REQUESTS);
        CU_ASSERT(holds(vdi, REQUESTS, 0));
        plx_ring_get_info(ring, &ring_info);
        if (ring_info.sticky) { /* else it failed while the ring was off, and nobody knows yet */
            CU_ASSERT(!info_of().on && !is_marked());
            FAILS(STICKY, plx_ringed_on(ringed, &fault));
            fell_back++;
        }
        if (at_once == 1) /* else the disk takes a snapshot beside the writes that come with it */
            check_steps(REQUESTS);
        plx_simdisk_fail_io(ring_disk, 0, 0);
        plx_simdisk_heal(ring_disk);
        close_disk();
        close_ring();
        open_ring(); /* what it may have of what it did not acknowledge is not in the way */
        OK(try_open(false));
        CU_ASSERT(holds(vdi, REQUESTS, 0));
        OK(plx_ringed_on(ringed, &fault));
        CU_ASSERT(holds(vdi, REQUESTS, 0));
        close_disk();
        end(true);
    }
    at_once = AT_ONCE;
    CU_ASSERT(fell_back > 40);
    memory_limit = 0;
    overwrite = -1;
}

/* One of two members fails: the other one goes on alone, when the mark says so, and has everything.
 * The one that failed comes back, and is not believed. */
static void test_member_fails(void)
{
    unsigned alone = 0;

    mirrored = true;
    for (uint64_t k = 1; k < 60 && !CU_get_number_of_failures(); k++) {
        struct plx_ring_info ring_info;

        begin_work(k % 5);
        plx_simdisk_fail_io(k % 2 ? ring_disk : mirror_disk, k, 1000000);
        work(1);
        CU_ASSERT_EQUAL(vdi->log.sticky, 0);
        CU_ASSERT_EQUAL(acknowledged, REQUESTS);
        CU_ASSERT(holds(vdi, REQUESTS, 0));
        plx_ring_get_info(ring, &ring_info);
        alone += ring_info.members == 1;
        if (ring_info.members == 1 && is_marked())
            CU_ASSERT_EQUAL(vdi_info().mark.set, ring_info.super.set);
        plx_simdisk_fail_io(ring_disk, 0, 0);
        plx_simdisk_fail_io(mirror_disk, 0, 0);
        stop_all(false);
        recover(0);
    }
    CU_ASSERT(alone > 20);
    mirrored = false;
    overwrite = -1;
}

static void use_ring(struct plx_simdisk *which)
{
    close_ring();
    ring_disk = which;
    open_ring();
}

static void refuse(void)
{
    int error = try_open(true);

    CU_ASSERT_EQUAL(error, PLX_ERR_RING_AWAY);
    if (!error)
        close_disk();
}

/* An older copy of the ring is not taken for the ring, however often that is tried. */
static void test_old_copy(void)
{
    struct plx_simdisk *newer, *older;

    make(3);
    newer = ring_disk;
    older = plx_simdisk_new(
        &(struct plx_simdisk_options){.bytes = RING_BYTES, .block_size = 512, .seed = 9},
        &ring_power);
    OK(plx_ringed_on(ringed, &fault));
    hold_store(true);
    OK(write_byte(vdi, 0, BLOCK, 1));
    plx_simdisk_copy(older, newer);
    OK(write_byte(vdi, 0, BLOCK, 2));
    hold_store(false);
    die();
    open_ring();
    OK(try_open(true));
    while (!info_of().on) /* from now on the copy is older */
        turn();
    hold_store(true);
    OK(write_byte(vdi, 0, BLOCK, 3));
    hold_store(false);
    die();
    OK(try_open_vdi(0, true, &vdi)); /* recovered by somebody without the ring */
    OK(plx_vdi_close(vdi));
    open_ring();
    for (unsigned k = 0; k < 5; k++) {
        use_ring(older);
        refuse();
        refuse();
        use_ring(newer);
        if (k % 2 == 0)
            continue;
        OK(try_open(true)); /* each is tried in turn */
        CU_ASSERT(reads_as(vdi, 0, BLOCK, 3));
        die();
        open_ring();
    }
    OK(try_open(true));
    CU_ASSERT(reads_as(vdi, 0, BLOCK, 3));
    OK(plx_ringed_off(ringed, &fault));
    CU_ASSERT(reads_as(vdi, 0, BLOCK, 3));
    close_disk();
    plx_simdisk_free(older);
    end(true);
}

static void turns_until_full(void)
{
    for (unsigned i = 0; i < 100 && !info_of().full; i++)
        turn();
}

/* More comes than the ring holds: it waits, and none is lost or refused. */
static void test_full(void)
{
    make(4);
    size = SIZE;
    memset(model, 0, sizeof model);
    stays_on = true;
    OK(plx_ringed_on(ringed, &fault));
    hold_store(true);
    for (unsigned i = 0; !info_of().full; i++) {
        CU_ASSERT_FATAL(i < 100);
        for (unsigned f = 0; f < FLIGHT; f++)
            if (!sents[f].under_way) {
                free(sents[f].memory);
                send_write(&sents[f]);
            }
        turns_until_full();
    }
    hold_store(false);
    wait_all();
    expect_contents();
    OK(plx_ringed_off(ringed, &fault));
    expect_contents();
    close_disk();
    end(false);
}

/* The store has no room left: what needs any is refused by it, and nothing is lost. The ring takes
 * what needs none. */
static void test_store_full(void)
{
    const struct plx_protection policy = {.mode = PLX_PROTECT_WRITE};
    int error = 0, last = 0, tried = 0;

    make(5);
    OK(plx_vdi_set_protection(vdi, &policy, &fault)); /* nothing is freed */
    OK(plx_ringed_on(ringed, &fault));
    OK(write_byte(vdi, 0, SIZE, 1));
    registry.limit = registry.granted;
    for (unsigned i = 0; i < 2000 && !error; i++) {
        tried = (int)i % 250;
        error = write_byte(vdi, BLOCK, 15 * BLOCK, tried);
        last = error ? last : tried;
        while (!error && info_of().records && !info_of().waits_for)
            turn();
    }
    CU_ASSERT_EQUAL(error, PLX_ERR_NOSPACE);
    CU_ASSERT_EQUAL(info_of().waits_for, 0);
    CU_ASSERT_EQUAL(info_of().records, 0);
    CU_ASSERT(reads_as(vdi, BLOCK, 15 * BLOCK, last));
    FAILS(NOSPACE, write_byte(vdi, BLOCK, 15 * BLOCK, tried)); /* again */
    hold_store(true);
    OK(try_run(vdi, PLX_UNMAP, 0, BLOCK, NULL));
    CU_ASSERT(info_of().records > 0);
    OK(try_run(vdi, PLX_FLUSH, 0, 0, NULL));
    plx_ringed_close(ringed);
    hold_store(false);
    OK(plx_vdi_close(vdi));
    OK(plx_vdi_open(store, &(struct plx_vdi_open_options){.epoch = ++epoch, .overwrite = -1}, &vdi,
                    &fault));
    CU_ASSERT(reads_as(vdi, BLOCK, 15 * BLOCK, last)); /* the store has all that had no promise */
    OK(plx_vdi_close(vdi));
    OK(try_open(false));
    CU_ASSERT(reads_as(vdi, 0, BLOCK, 0));
    registry.limit = 0;
    plx_alloc_grown(store);
    OK(write_byte(vdi, BLOCK, 15 * BLOCK, tried));
    OK(write_byte(vdi, 0, BLOCK, 99));
    OK(plx_ringed_off(ringed, &fault));
    CU_ASSERT(reads_as(vdi, 0, BLOCK, 99));
    CU_ASSERT(reads_as(vdi, BLOCK, 15 * BLOCK, tried));
    close_disk();
    end(false);
}

static void nothing_done(struct plx_ring_item *item)
{
}

/* ALLOC-8: what was promised is left to whom it was promised. */
static void test_promised(void)
{
    uint64_t all, addr[3], count[3];

    make(30);
    OK(plx_ringed_on(ringed, &fault));
    registry.limit = registry.granted;
    hold_store(true);
    OK(write_byte(vdi, 0, BLOCK, 1));
    OK(write_byte(vdi, BLOCK, 2 * BLOCK, 1));
    CU_ASSERT_EQUAL(store->allocator->promised, 3);
    all = plx_alloc_free_blocks(store, PLX_EXTENT_DATA);
    CU_ASSERT_FATAL(all > 100);
    CU_ASSERT(!plx_alloc_promise(store, all));
    CU_ASSERT(plx_alloc_promise(store, all - 13));
    OK(plx_alloc_data(store, 50, false, NULL, &addr[0], &count[0]));
    CU_ASSERT_EQUAL(count[0], 10);
    FAILS(NOSPACE, plx_alloc_data(store, 1, false, NULL, &addr[1], &count[1]));
    FAILS(NOSPACE, plx_alloc_adjacent(store, 1, NULL, &addr[1]));
    OK(plx_alloc_data(store, 50, true, NULL, &addr[1], &count[1]));
    CU_ASSERT_EQUAL(count[1], 50);
    plx_alloc_unpromise(store, all - 13);
    OK(plx_alloc_data(store, 1, false, NULL, &addr[2], &count[2]));
    CU_ASSERT(count[2] > 1);
    for (unsigned i = 0; i < 3; i++)
        plx_alloc_free(store, addr[i], count[i]);
    hold_store(false);
    OK(plx_ringed_off(ringed, &fault));
    CU_ASSERT_EQUAL(store->allocator->promised, 0);
    close_disk();
    end(false);
}

/* All segments but so many, and those that are taken already, are another disk's, which does not
 * drain. */
static struct plx_ring_chain *take_segments(struct plx_ring_item *items, uint32_t leave)
{
    struct plx_ring_chain_options options = {.vdi = {{9}}, .epoch = 1};
    struct plx_ring_chain_info info = {0};
    struct plx_ring_chain *chain = NULL;
    struct plx_ring_info ring_info;
    static uint8_t blocks[8 * BLOCK];
    static struct iovec iov = {blocks, sizeof blocks};

    OK(plx_ring_chain_open(ring, &options, &chain, &fault));
    plx_ring_chain_prove(chain);
    for (; !info.proof; plx_ring_chain_get_info(chain, &info))
        turn();
    plx_ring_get_info(ring, &ring_info);
    plx_ring_chain_marked(chain, &(struct plx_ring_mark){.ring = ring_info.super.ring,
                                                         .set = ring_info.super.set,
                                                         .proof = info.proof,
                                                         .since = 1});
    for (unsigned i = 0; i < 2 * SEGMENTS && ring_info.free_segments > leave; i++) {
        items[i] = (struct plx_ring_item){.record = {PLX_RING_WRITE, .block = i, .blocks = 8},
                                          .iov = &iov,
                                          .iovcnt = 1,
                                          .done = nothing_done};
        plx_ring_append(chain, &items[i]);
        for (uint64_t seq = items[i].seq; info.done_seq < seq;
             plx_ring_chain_get_info(chain, &info))
            turn();
        plx_ring_get_info(ring, &ring_info);
    }
    CU_ASSERT_EQUAL(ring_info.free_segments, leave);
    return chain;
}

/* A full ring has no room for the proof that a disk needs to go on: the disk is drained until there
 * is, under the mark that it has, while changes wait. */
static void test_opened_full(void)
{
    static struct plx_ring_item items[2 * SEGMENTS];
    struct plx_ring_chain *other;
    struct sent late = {.memory = malloc(BLOCK)};
    uint64_t proof;

    fixture.open.ops_per_vdi = 8; /* not all is carried at once */
    make(4);
    OK(plx_ringed_on(ringed, &fault));
    other = take_segments(items, 4);
    hold_store(true);
    for (unsigned i = 0; i < 30; i++)
        OK(write_byte(vdi, i * BLOCK, BLOCK, (int)i));
    CU_ASSERT(info_of().records > 20); /* for the last ones, others had to be drained */
    proof = vdi_info().mark.proof;
    plx_ring_chain_close(other);
    hold_store(false);
    die();
    open_ring();
    OK(try_open(true));
    hold_store(true);
    memset(late.memory, 99, BLOCK);
    submit(&late, PLX_WRITE, 0, BLOCK, BLOCK);
    some_turns(3);
    CU_ASSERT(late.under_way && !info_of().on && info_of().records > 10);
    CU_ASSERT_EQUAL(vdi_info().mark.proof, proof);
    hold_store(false);
    while (late.under_way)
        turn();
    CU_ASSERT(info_of().on);
    CU_ASSERT_NOT_EQUAL(vdi_info().mark.proof, proof);
    CU_ASSERT(reads_as(vdi, 0, BLOCK, 99));
    OK(plx_ringed_off(ringed, &fault));
    CU_ASSERT(reads_as(vdi, 0, BLOCK, 99));
    for (unsigned i = 1; i < 30; i++)
        CU_ASSERT(reads_as(vdi, i * BLOCK, BLOCK, (int)i));
    free(late.memory);
    close_disk();
    end(true);
    fixture.open.ops_per_vdi = 0;
}

/* Other disks have the rest of the ring: a disk that has drained its only segment gives up its mark
 * and goes on with a new one. Without any segment the ring is not turned on, and the disk goes on.
 */
static void test_no_room(void)
{
    static struct plx_ring_item items[2 * SEGMENTS];
    struct plx_ring_chain *other;
    uint64_t proof;

    make(5);
    OK(plx_ringed_on(ringed, &fault));
    OK(write_byte(vdi, 0, BLOCK, 1));
    other = take_segments(items, 0);
    proof = vdi_info().mark.proof;
    close_disk();
    OK(try_open(false));
    OK(plx_ringed_on(ringed, &fault));
    CU_ASSERT(info_of().on && is_marked());
    CU_ASSERT_NOT_EQUAL(vdi_info().mark.proof, proof);
    OK(write_byte(vdi, 0, BLOCK, 2));
    close_disk();
    plx_ring_chain_close(other);
    close_ring();
    open_ring();
    OK(try_open(false));
    CU_ASSERT(reads_as(vdi, 0, BLOCK, 2));
    OK(plx_ringed_off(ringed, &fault));
    close_disk();
    OK(plx_ring_forget(ring, &(struct plx_uuid){{9}}, &fault));
    other = take_segments(items, 0);
    OK(try_open(false));
    FAILS(NOSPACE, plx_ringed_on(ringed, &fault));
    CU_ASSERT(!info_of().on && !is_marked());
    OK(write_byte(vdi, 0, BLOCK, 3));
    CU_ASSERT(reads_as(vdi, 0, BLOCK, 3));
    plx_ring_chain_close(other);
    close_disk();
    end(false);
}

/* More changes than are let in at once wait, a snapshot behind them, and behind that a new size:
 * the snapshot has the old one. */
static void test_sizes_in_order(void)
{
    static struct sent writes[400];
    struct sent snapshot = {0}, resize = {0};
    struct plx_vdi *instant = NULL;
    struct plx_vdi_info info;

    make(7);
    OK(plx_ringed_on(ringed, &fault));
    hold_store(true);
    for (unsigned i = 0; i < 400; i++) {
        writes[i].memory = calloc(1, BLOCK);
        submit(&writes[i], PLX_WRITE, i % 40 * BLOCK, BLOCK, BLOCK);
    }
    submit(&snapshot, PLX_SNAPSHOT, 0, 0, 0);
    submit(&resize, PLX_RESIZE, 0, SIZE + 8 * SECTOR, 0);
    hold_store(false);
    while (snapshot.under_way || resize.under_way)
        turn();
    OK(snapshot.request.result);
    OK(resize.request.result);
    for (unsigned i = 0; i < 400; i++) {
        CU_ASSERT(!writes[i].under_way && !writes[i].request.result);
        free(writes[i].memory);
    }
    OK(plx_snapshot_open(store, 0, snapshot.request.seq, &instant, &fault));
    plx_vdi_get_info(instant, &info);
    CU_ASSERT_EQUAL(info.size_bytes, SIZE);
    plx_vdi_abandon(instant);
    CU_ASSERT_EQUAL(vdi_info().size_bytes, SIZE + 8 * SECTOR);
    OK(plx_ringed_off(ringed, &fault));
    close_disk();
    end(false);
}

/* The old contents of the last block of a large write cannot be read, while the ring has not yet
 * what came before it: it fails when that has ended. */
static void test_fails_behind(void)
{
    make(8);
    OK(write_byte(vdi, 28 * BLOCK, BLOCK, 1));
    OK(plx_ringed_on(ringed, &fault));
    plx_simdisk_set_patience(ring_disk, 100);
    plx_simdisk_fail_range(disk, 0, 64 * MIB, true, false);
    FAILS(IO_READ, write_byte(vdi, 0, 28 * BLOCK + SECTOR, 2));
    plx_simdisk_heal(disk);
    plx_simdisk_set_patience(ring_disk, 20);
    CU_ASSERT(reads_as(vdi, 28 * BLOCK, BLOCK, 1));
    OK(write_byte(vdi, 0, 28 * BLOCK + SECTOR, 3));
    OK(plx_ringed_off(ringed, &fault));
    CU_ASSERT(reads_as(vdi, 0, 28 * BLOCK + SECTOR, 3));
    close_disk();
    end(false);
}

/* A disk is closed with reads under way, of ring and store, whenever their ends come. */
static void test_closed_reading(void)
{
    for (unsigned turns = 0; turns < 40; turns++) {
        struct sent reads[4] = {{.under_way = false}};

        memory_limit = turns % 4 < 2; /* what the ring has is read back from it */
        make(turns);
        OK(write_byte(vdi, BLOCK, BLOCK, 1));
        OK(plx_ringed_on(ringed, &fault));
        OK(write_byte(vdi, 0, BLOCK, 2));
        for (unsigned i = 0; i < 4; i++) {
            reads[i].memory = malloc(2 * BLOCK);
            submit(&reads[i], PLX_READ, 0, 2 * BLOCK, 2 * BLOCK);
        }
        some_turns(turns / 4);
        if (turns % 2)
            plx_simpower_cut(&power);
        plx_ringed_close(ringed);
        if (turns % 2)
            plx_vdi_abandon(vdi);
        else
            OK(plx_vdi_close(vdi));
        for (unsigned i = 0; i < 4; i++) {
            CU_ASSERT(!reads[i].under_way);
            free(reads[i].memory);
        }
        if (turns % 2) {
            close_ring();
            crash_store();
            open_ring();
        }
        OK(try_open(turns % 2));
        OK(plx_ringed_off(ringed, &fault));
        CU_ASSERT(reads_as(vdi, 0, BLOCK, 2));
        close_disk();
        end(turns % 2);
    }
    memory_limit = 0;
}

/* A disk on its ring is closed while the store does not answer, with requests under way. */
static void test_closed_held(void)
{
    make(5);
    OK(plx_ringed_on(ringed, &fault));
    hold_store(true);
    memset(acked, 0, sizeof acked);
    make_steps();
    for (unsigned r = 1; r <= AT_ONCE; r++)
        fly(r);
    some_turns(3);
    hold_store(false);
    plx_ringed_close(ringed);
    CU_ASSERT_EQUAL(flights, 0);
    OK(plx_vdi_close(vdi));
    OK(try_open(false));
    OK(plx_ringed_off(ringed, &fault));
    close_disk();
    end(false);
}

/* ---- Continuous protection ---- */

static unsigned automatic;

static void count_automatic(struct plx_simenv *sim, uint32_t slot, enum plx_automatic what,
                            uint64_t seq, uint64_t time_ns)
{
    automatic += what == PLX_AUTOMATIC_TAKEN;
}

/* In mode WRITE each write has its instant, in order; in the others there are some, too. */
static void test_protection(void)
{
    static const enum plx_protection_mode modes[] = {PLX_PROTECT_WRITE, PLX_PROTECT_BATCH,
                                                     PLX_PROTECT_INTERVAL};

    for (unsigned m = 0; m < 3; m++) {
        struct plx_protection policy = {.mode = modes[m]};
        uint64_t before;

        make(6 + m);
        policy.interval_ns = policy.mode == PLX_PROTECT_INTERVAL ? 10000000 : 0;
        OK(plx_ringed_on(ringed, &fault));
        OK(plx_vdi_set_protection(vdi, &policy, &fault));
        before = vdi_info().snapshots;
        automatic = 0;
        env.on_automatic = count_automatic;
        hold_store(true);
        for (unsigned i = 1; i <= 20; i++) {
            OK(write_byte(vdi, 0, BLOCK, (int)i));
            if (policy.mode == PLX_PROTECT_INTERVAL)
                env.ns += 10000000;
        }
        some_turns(10);
        hold_store(false);
        OK(plx_ringed_off(ringed, &fault));
        CU_ASSERT(policy.mode == PLX_PROTECT_WRITE ? automatic == 20 : automatic > 5);
        CU_ASSERT_EQUAL(vdi_info().snapshots - before, automatic);
        for (unsigned i = 1; i <= 20 && policy.mode == PLX_PROTECT_WRITE; i++) {
            struct plx_vdi *instant = NULL;

            OK(plx_snapshot_open(store, 0, before + i, &instant, &fault));
            CU_ASSERT(reads_as(instant, 0, BLOCK, (int)i));
            plx_vdi_abandon(instant);
        }
        OK(write_byte(vdi, 0, BLOCK, 21)); /* the disk itself goes on with it */
        if (policy.mode == PLX_PROTECT_WRITE)
            CU_ASSERT_EQUAL(vdi_info().snapshots - before, 21);
        env.on_automatic = NULL;
        close_disk();
        end(false);
    }
}

/* The mode becomes BATCH at any time while the ring is turned off: what is told to be taken is
 * there. */
static void test_mode_changes(void)
{
    const struct plx_protection seldom = {.mode = PLX_PROTECT_INTERVAL,
                                          .interval_ns = PLX_INTERVAL_MAX_NS};
    const struct plx_protection batch = {.mode = PLX_PROTECT_BATCH};

    for (unsigned turns = 0; turns < 40 && !CU_get_number_of_failures(); turns++) {
        uint64_t before;

        make(turns);
        OK(plx_vdi_set_protection(vdi, &seldom, &fault));
        OK(plx_ringed_on(ringed, &fault));
        before = vdi_info().snapshots;
        automatic = 0;
        env.on_automatic = count_automatic;
        OK(write_byte(vdi, 0, BLOCK, 1));
        plx_ringed_turn(ringed, false);
        some_turns(turns);
        OK(plx_vdi_set_protection(vdi, &batch, &fault));
        some_turns(20);
        OK(plx_ringed_off(ringed, &fault));
        CU_ASSERT_EQUAL(vdi_info().snapshots - before, automatic);
        env.on_automatic = NULL;
        close_disk();
        end(false);
    }
}

/* RINGED-9: the store fails while the ring is turned off. Whatever comes ends, and nothing that was
 * acknowledged is missing. */
static void test_fails_meanwhile(void)
{
    for (unsigned turns = 0; turns < 40 && !CU_get_number_of_failures(); turns++) {
        struct sent late = {.memory = calloc(1, BLOCK)};

        make(turns);
        OK(plx_ringed_on(ringed, &fault));
        OK(write_byte(vdi, 0, BLOCK, 1));
        plx_ringed_turn(ringed, false);
        some_turns(turns);
        plx_simdisk_fail_io(disk, 1, 1000000);
        submit(&late, PLX_WRITE, BLOCK, BLOCK, BLOCK);
        for (unsigned i = 0; i < 400 && late.under_way; i++) {
            env.ns += 50000000;
            turn();
        }
        CU_ASSERT(!late.under_way);
        plx_simdisk_fail_io(disk, 0, 0);
        plx_simdisk_heal(disk);
        die();
        free(late.memory);
        open_ring();
        OK(try_open(true));
        OK(plx_ringed_off(ringed, &fault));
        CU_ASSERT(reads_as(vdi, 0, BLOCK, 1));
        close_disk();
        end(true);
    }
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"on and off", test_on_and_off},
        {"store away", test_store_away},
        {"model", test_model},
        {"power cuts", test_crashes},
        {"store fails", test_store_fails},
        {"ring fails", test_ring_fails},
        {"a member fails", test_member_fails},
        {"an older copy", test_old_copy},
        {"full", test_full},
        {"store full", test_store_full},
        {"promised", test_promised},
        {"let go", test_let_go},
        {"opened full", test_opened_full},
        {"no room for a proof", test_no_room},
        {"sizes in order", test_sizes_in_order},
        {"fails behind", test_fails_behind},
        {"closed and held", test_closed_held},
        {"closed while read", test_closed_reading},
        {"protection", test_protection},
        {"mode changes", test_mode_changes},
        {"store fails meanwhile", test_fails_meanwhile},
    };

    return SUITE_RUN("ringed", tests);
}
