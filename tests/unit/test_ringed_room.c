/* test_ringed_room.c - a disk with a write-back ring on a store that has no room, or too little of
 * it: what is promised, what goes to the disk itself, and what ends while something waits for room.
 */
#include "engine/disk/reserve.h"
#include "engine/loop/store.h"
#include "engine/ring/ringed_inside.h"
#include "engine/space/allocator_inside.h"
#include "ok.h"
#include "suite.h"
#include "unit/ringed_world.h"

#define SECOND_NS 1000000000ull

/* The store has so many free data blocks, and gets no more. Returns how many runs were taken. */
static unsigned leave_free(uint64_t blocks, uint64_t *addr, uint64_t *count)
{
    unsigned taken = 0;
    uint64_t left;

    registry.limit = registry.granted;
    for (unsigned turns = 0; turns < 100; turns++, turn()) /* one may be on its way */
        while ((left = plx_alloc_free_blocks(store, PLX_EXTENT_DATA)) > blocks) {
            OK(plx_alloc_data(store, left - blocks, true, NULL, &addr[taken], &count[taken]));
            CU_ASSERT_FATAL(++taken < 64);
        }
    return taken;
}

static void give_back(unsigned taken, const uint64_t *addr, const uint64_t *count)
{
    while (taken--)
        plx_alloc_free(store, addr[taken], count[taken]);
    plx_store_room_made(store, true);
    plx_alloc_wake(store);
}

static void await(struct sent *sent)
{
    for (unsigned i = 0; i < 2000 && sent->under_way; i++) {
        env.ns += 1000000;
        turn();
    }
    CU_ASSERT_FATAL(!sent->under_way);
    free(sent->memory);
    sent->memory = NULL;
}

static void drain_all(void)
{
    for (unsigned i = 0; i < 2000 && info_of().records; i++)
        turn();
    CU_ASSERT_EQUAL_FATAL(info_of().records, 0);
}

/* Nothing goes to the store's device (TICK-6). */
static bool none_goes;

static bool writes_wait(struct plx_env *unused, uint64_t since_ns)
{
    return none_goes;
}

/* The ring is on, the store has so many blocks with 1 in them, and so many free ones. */
static unsigned make_full(uint64_t seed, unsigned written, uint64_t left, uint64_t *addr,
                          uint64_t *count)
{
    none_goes = false;
    make(seed);
    env.env.writes_wait = writes_wait;
    OK(plx_ringed_on(ringed, &fault));
    OK(write_byte(vdi, 0, written * (uint64_t)BLOCK, 1));
    drain_all();
    return leave_free(left, addr, count);
}

/* ---- Promises ---- */

/* ALLOC-8: a write to which nothing was promised takes nothing that was promised to others. It
 * fails, and is no record: what comes behind it goes on. */
static void test_without_promise(void)
{
    uint64_t addr[64], count[64];
    struct sent writes[2];
    unsigned taken = make_full(41, 1, 10, addr, count);

    CU_ASSERT(plx_alloc_promise(store, 5)); /* to another disk */
    submit_byte(&writes[0], 0, 8, 2);
    submit_byte(&writes[1], 20, 1, 3);
    await(&writes[0]);
    FAILS(NOSPACE, writes[0].request.result);
    await(&writes[1]);
    OK(writes[1].request.result);
    drain_all();
    CU_ASSERT_EQUAL(store->allocator->promised, 5);
    CU_ASSERT(plx_alloc_free_blocks(store, PLX_EXTENT_DATA) >= store->allocator->promised);
    CU_ASSERT_EQUAL(ringed->last_seq, 2);
    give_back(taken, addr, count);
    plx_alloc_unpromise(store, 5);
    CU_ASSERT_EQUAL(store->allocator->promised, 0);
    OK(write_byte(vdi, 0, 8 * BLOCK, 4));
    OK(plx_ringed_off(ringed, &fault));
    CU_ASSERT(reads_as(vdi, 0, 8 * BLOCK, 4) && reads_as(vdi, 20 * BLOCK, BLOCK, 3));
    close_disk();
    end(false);
}

/* Room comes while the store is slow: what waits for it is acknowledged by the ring, in order, and
 * so is what comes next. */
static void test_promised_later(void)
{
    uint64_t addr[64], count[64];
    struct sent writes[4];
    unsigned taken = make_full(42, 1, 3, addr, count);

    hold_store(true);
    submit_byte(&writes[0], 40, 2, 5);
    submit_byte(&writes[1], 0, 8, 2);
    submit_byte(&writes[2], 20, 1, 3); /* there is room for it, but it comes behind */
    for (unsigned i = 0; i < 20; i++)
        plx_store_tick(store);
    CU_ASSERT(!writes[0].under_way && writes[1].under_way && writes[2].under_way);
    CU_ASSERT_EQUAL(store->allocator->promised, 2);
    give_back(taken, addr, count);
    for (unsigned i = 0; i < 20; i++)
        plx_store_tick(store);
    submit_byte(&writes[3], 30, 1, 4);
    for (unsigned i = 0; i < 20; i++)
        plx_store_tick(store);
    for (unsigned i = 0; i < 4; i++) {
        CU_ASSERT(!writes[i].under_way);
        OK(writes[i].request.result);
        free(writes[i].memory);
    }
    CU_ASSERT_EQUAL(info_of().records, 4);
    CU_ASSERT_EQUAL(store->allocator->promised, 12);
    hold_store(false);
    OK(plx_ringed_off(ringed, &fault));
    CU_ASSERT_EQUAL(store->allocator->promised, 0);
    CU_ASSERT(reads_as(vdi, 0, 8 * BLOCK, 2) && reads_as(vdi, 20 * BLOCK, BLOCK, 3));
    close_disk();
    end(false);
}

/* RINGED_APPEND-5: what a change does not need is given back: a COMPARE_WRITE that finds something
 * else, an UNMAP of parts of blocks that are records by then. */
static void test_given_back(void)
{
    struct sent sent = {.memory = malloc(2 * BLOCK)};

    make(43);
    OK(plx_ringed_on(ringed, &fault));
    OK(write_byte(vdi, 0, 8 * BLOCK, 1));
    memset(sent.memory, 9, 2 * BLOCK);
    submit(&sent, PLX_COMPARE_WRITE, 0, BLOCK, 2 * BLOCK);
    await(&sent);
    FAILS(MISCOMPARE, sent.request.result);
    drain_all();
    CU_ASSERT_EQUAL(store->allocator->promised, 0);
    hold_store(true);
    OK(try_run(vdi, PLX_UNMAP, SECTOR, 3 * BLOCK, NULL));
    CU_ASSERT_EQUAL(store->allocator->promised, 2);
    OK(try_run(vdi, PLX_UNMAP, 4 * BLOCK + SECTOR, SECTOR, NULL));
    CU_ASSERT_EQUAL(store->allocator->promised, 3);
    OK(try_run(vdi, PLX_UNMAP, 5 * BLOCK, BLOCK, NULL));
    CU_ASSERT_EQUAL(store->allocator->promised, 3);
    hold_store(false);
    drain_all();
    CU_ASSERT_EQUAL(store->allocator->promised, 0);
    OK(plx_ringed_off(ringed, &fault));
    close_disk();
    end(false);
}

/* ---- What goes to the disk itself: RINGED_REQUESTS-3 ---- */

/* A write is refused for want of room. What is unmapped behind it makes some, for this disk, too.
 */
static void test_makes_room(void)
{
    uint64_t addr[64], count[64];
    unsigned taken = make_full(50, 100, 0, addr, count);

    FAILS(NOSPACE, write_byte(vdi, 100 * BLOCK, 8 * BLOCK, 2));
    CU_ASSERT_EQUAL(info_of().records, 0);
    OK(try_run(vdi, PLX_UNMAP, 0, 50 * BLOCK, NULL));
    drain_all();
    OK(write_byte(vdi, 100 * BLOCK, 8 * BLOCK, 3));
    OK(write_byte(vdi, 0, 32 * BLOCK, 4));
    CU_ASSERT(reads_as(vdi, 0, 32 * BLOCK, 4) && reads_as(vdi, 32 * BLOCK, 18 * BLOCK, 0));
    CU_ASSERT(reads_as(vdi, 50 * BLOCK, 50 * BLOCK, 1));
    CU_ASSERT(reads_as(vdi, 100 * BLOCK, 8 * BLOCK, 3));
    give_back(taken, addr, count);
    OK(plx_ringed_off(ringed, &fault));
    CU_ASSERT(reads_as(vdi, 0, 32 * BLOCK, 4) && reads_as(vdi, 100 * BLOCK, 8 * BLOCK, 3));
    close_disk();
    end(false);
}

static int compare_write(uint64_t block, int expected, int byte)
{
    struct sent sent = {.memory = malloc(2 * BLOCK)};

    memset(sent.memory, expected, BLOCK);
    memset(sent.memory + BLOCK, byte, BLOCK);
    submit(&sent, PLX_COMPARE_WRITE, block * BLOCK, BLOCK, 2 * BLOCK);
    await(&sent);
    return sent.request.result;
}

/* What is there is overwritten in place, without room, as it would be without a ring. No record
 * has a number for it (RINGED-4). */
static void test_kinds(void)
{
    uint64_t addr[64], count[64], last;
    unsigned taken = make_full(51, 9, 0, addr, count);

    last = ringed->last_seq;
    OK(write_byte(vdi, 0, BLOCK, 2));
    CU_ASSERT(reads_as(vdi, 0, BLOCK, 2));
    OK(try_run(vdi, PLX_UNMAP, BLOCK + SECTOR, 2 * BLOCK, NULL));
    CU_ASSERT(reads_as(vdi, BLOCK, SECTOR, 1) && reads_as(vdi, BLOCK + SECTOR, 2 * BLOCK, 0));
    CU_ASSERT(reads_as(vdi, 3 * BLOCK + SECTOR, BLOCK - SECTOR, 1));
    OK(compare_write(4, 1, 3));
    FAILS(MISCOMPARE, compare_write(4, 1, 5));
    CU_ASSERT(reads_as(vdi, 4 * BLOCK, BLOCK, 3));
    OK(try_run(vdi, PLX_UNMAP, 5 * BLOCK + SECTOR, SECTOR, NULL));
    CU_ASSERT(reads_as(vdi, 5 * BLOCK + SECTOR, SECTOR, 0));
    CU_ASSERT_EQUAL(ringed->last_seq, last);
    CU_ASSERT_EQUAL(store->allocator->promised, 0);
    OK(try_run(vdi, PLX_UNMAP, 6 * BLOCK, BLOCK, NULL)); /* it needs no room */
    CU_ASSERT_EQUAL(ringed->last_seq, last + 1);
    give_back(taken, addr, count);
    OK(write_byte(vdi, 7 * BLOCK, BLOCK, 6));
    CU_ASSERT_EQUAL(ringed->last_seq, last + 2);
    plx_ringed_close(ringed);
    plx_vdi_abandon(vdi);
    close_ring();
    kill_store();
    open_ring();
    OK(try_open(true));
    for (unsigned off = 0; off < 2; off++) {
        CU_ASSERT(reads_as(vdi, 0, BLOCK, 2) && reads_as(vdi, 4 * BLOCK, BLOCK, 3));
        CU_ASSERT(reads_as(vdi, 6 * BLOCK, BLOCK, 0) && reads_as(vdi, 7 * BLOCK, BLOCK, 6));
        OK(plx_ringed_off(ringed, &fault));
    }
    close_disk();
    end(true);
}

static bool instant_has(uint64_t seq, const uint8_t *blocks, unsigned n, uint64_t size)
{
    struct plx_vdi *instant = NULL;
    struct plx_vdi_info info;
    bool has = true;

    OK(plx_snapshot_open(store, 0, seq, &instant, &fault));
    if (!instant)
        return false;
    plx_vdi_get_info(instant, &info);
    for (unsigned i = 0; i < n; i++)
        has = reads_as(instant, i * BLOCK, BLOCK, blocks[i]) && has;
    plx_vdi_abandon(instant);
    return has && info.size_bytes == size;
}

/* Continuous protection takes its snapshots behind what the disk itself was given, too, and none
 * where nothing has changed. Zeroes need no room. */
static void test_protected(void)
{
    static const enum plx_protection_mode modes[] = {PLX_PROTECT_WRITE, PLX_PROTECT_BATCH};

    for (unsigned m = 0; m < 2; m++) {
        const struct plx_protection policy = {.mode = modes[m]};
        uint64_t addr[64], count[64], first, last;
        unsigned taken = make_full(52 + m, 4, 0, addr, count);

        OK(plx_vdi_set_protection(vdi, &policy, &fault));
        first = ringed->front.snapshots;
        last = ringed->last_seq;
        OK(write_byte(vdi, 0, 2 * BLOCK, 0));
        OK(try_run(vdi, PLX_RESIZE, 0, SIZE + SECTOR, NULL));
        FAILS(MISCOMPARE, compare_write(3, 9, 7));
        FAILS(NOSPACE, write_byte(vdi, 8 * BLOCK, BLOCK, 9));
        OK(try_run(vdi, PLX_UNMAP, 2 * BLOCK, BLOCK, NULL));
        some_turns(5);
        CU_ASSERT_EQUAL(ringed->front.snapshots, first + 3);
        CU_ASSERT_EQUAL(ringed->last_seq, last + 4); /* three of them, and the UNMAP */
        OK(plx_ringed_off(ringed, &fault));
        CU_ASSERT(instant_has(first, (uint8_t[]){1, 1, 1, 1}, 4, SIZE));
        CU_ASSERT(instant_has(first + 1, (uint8_t[]){0, 0, 1, 1}, 4, SIZE));
        CU_ASSERT(instant_has(first + 2, (uint8_t[]){0, 0, 1, 1}, 4, SIZE + SECTOR));
        CU_ASSERT(instant_has(first + 3, (uint8_t[]){0, 0, 0, 1}, 4, SIZE + SECTOR));
        give_back(taken, addr, count);
        OK(write_byte(vdi, 0, BLOCK, 5));
        CU_ASSERT_EQUAL(vdi_info().snapshots, first + 4);
        close_disk();
        end(false);
    }
}

/* It is passed when the store has all that came before, and what comes behind it waits; but not
 * reads and flushes. */
static void test_in_order(void)
{
    struct sent before, direct, behind, snapshot = {.under_way = false}, last;
    uint64_t addr[64], count[64], seq;
    unsigned taken = make_full(54, 9, 5, addr, count);

    none_goes = true;
    submit_byte(&before, 0, 2, 4);
    submit_byte(&direct, 1, 8, 2);
    submit_byte(&behind, 3, 1, 5);
    submit(&snapshot, PLX_SNAPSHOT, 0, 0, 0);
    submit_byte(&last, 4, 1, 6);
    seq = ringed->last_seq;
    some_turns(100);
    CU_ASSERT(!before.under_way && direct.under_way && behind.under_way && last.under_way);
    CU_ASSERT(ringed->direct == &direct.request && !ringed->directing);
    CU_ASSERT_EQUAL(ringed->last_seq, seq);
    OK(try_run(vdi, PLX_FLUSH, 0, 0, NULL));
    CU_ASSERT(reads_as(vdi, 0, 2 * BLOCK, 4) && reads_as(vdi, 2 * BLOCK, 7 * BLOCK, 1));
    none_goes = false;
    await(&before);
    for (unsigned i = 0; i < 1000 && direct.under_way; i++) {
        CU_ASSERT(behind.under_way);
        turn();
    }
    await(&direct);
    await(&behind);
    await(&snapshot);
    await(&last);
    OK(direct.request.result);
    OK(behind.request.result);
    OK(snapshot.request.result);
    OK(last.request.result);
    CU_ASSERT_EQUAL(ringed->last_seq, seq + 3);
    give_back(taken, addr, count);
    OK(plx_ringed_off(ringed, &fault));
    CU_ASSERT(instant_has(1, (uint8_t[]){4, 2, 2, 5, 2, 2, 2, 2, 2}, 9, SIZE));
    CU_ASSERT(reads_as(vdi, 0, BLOCK, 4) && reads_as(vdi, BLOCK, 2 * BLOCK, 2));
    CU_ASSERT(reads_as(vdi, 3 * BLOCK, BLOCK, 5) && reads_as(vdi, 4 * BLOCK, BLOCK, 6));
    CU_ASSERT(reads_as(vdi, 5 * BLOCK, 4 * BLOCK, 2));
    close_disk();
    end(false);
}

static void ticks(unsigned n)
{
    while (n--)
        plx_store_tick(store);
}

static unsigned disk_has(void)
{
    return (unsigned)plx_front_load(vdi).changes;
}

/* Writes that find no room are in the disk together, as without a ring, until something comes that
 * has its place behind them. What is promised room by then waits for them, too. */
static void test_together(void)
{
    uint64_t addr[64], count[64], seq, first;
    struct sent writes[6], snapshot = {.under_way = false}, behind, unmap;
    unsigned taken = make_full(55, 12, 0, addr, count);

    first = ringed->front.snapshots;
    seq = ringed->last_seq;
    hold_store(true);
    submit_byte(&writes[0], 0, 2, 20);
    submit(&unmap, PLX_UNMAP, 11 * BLOCK, BLOCK, 0);
    submit_byte(&writes[1], 2, 1, 21);
    ticks(20);
    CU_ASSERT_EQUAL(disk_has(), 1); /* an UNMAP of a whole block is a record, and has its turn */
    hold_store(false);
    await(&writes[0]);
    await(&unmap);
    await(&writes[1]);
    drain_all();
    taken += leave_free(0, addr + taken, count + taken);
    hold_store(true);
    for (unsigned i = 0; i < 6; i++)
        submit_byte(&writes[i], i, 1, 2 + (int)i);
    submit(&snapshot, PLX_SNAPSHOT, 0, 0, 0);
    submit_byte(&behind, 6, 1, 9);
    ticks(20);
    CU_ASSERT_EQUAL(disk_has(), 6);
    CU_ASSERT(snapshot.under_way && behind.under_way);
    give_back(taken, addr, count);
    ticks(20);
    CU_ASSERT(snapshot.under_way && behind.under_way);
    hold_store(false);
    for (unsigned i = 0; i < 6; i++) {
        await(&writes[i]);
        OK(writes[i].request.result);
    }
    await(&snapshot);
    OK(snapshot.request.result);
    await(&behind);
    OK(behind.request.result);
    CU_ASSERT(ringed->last_seq > seq + 2);
    OK(plx_ringed_off(ringed, &fault));
    CU_ASSERT(instant_has(first + 1, (uint8_t[]){2, 3, 4, 5, 6, 7, 1, 1, 1, 1, 1, 0}, 12, SIZE));
    CU_ASSERT(reads_as(vdi, 6 * BLOCK, BLOCK, 9));
    close_disk();
    end(false);
}

/* None goes along with a new size, or where each write has its own snapshot. */
static void test_alone(void)
{
    const struct plx_protection policy = {.mode = PLX_PROTECT_WRITE};
    struct sent resize = {.under_way = false}, writes[3];
    uint64_t addr[64], count[64], first;
    unsigned taken = make_full(56, 4, 0, addr, count);

    hold_store(true);
    submit(&resize, PLX_RESIZE, 0, SIZE + SECTOR, 0);
    submit_byte(&writes[0], 0, 1, 2);
    ticks(20);
    CU_ASSERT_EQUAL(disk_has(), 1);
    hold_store(false);
    await(&resize);
    await(&writes[0]);
    OK(writes[0].request.result);
    OK(plx_vdi_set_protection(vdi, &policy, &fault));
    first = ringed->front.snapshots;
    hold_store(true);
    for (unsigned i = 0; i < 3; i++)
        submit_byte(&writes[i], i, 1, 0); /* zeroes need no room */
    ticks(20);
    CU_ASSERT_EQUAL(disk_has(), 1);
    hold_store(false);
    for (unsigned i = 0; i < 3; i++)
        await(&writes[i]);
    some_turns(5);
    CU_ASSERT_EQUAL(ringed->front.snapshots, first + 3);
    give_back(taken, addr, count);
    OK(plx_ringed_off(ringed, &fault));
    close_disk();
    end(false);
}

/* ---- What ends while one waits, or is under way ---- */

enum ending { RING_STOPS, TURNED_OFF, CLOSED, DISK_STOPS, ENDINGS };

static void begin_ending(enum ending how)
{
    if (how == TURNED_OFF)
        plx_ringed_turn(ringed, false);
    else if (how == DISK_STOPS)
        plx_log_fail(&vdi->log, PLX_ERR_LOST);
}

/* What was acknowledged is there when the disk comes back. */
static void come_back(bool closed, const uint64_t *addr, const uint64_t *count, unsigned taken)
{
    if (closed) {
        give_back(taken, addr, count);
        OK(plx_vdi_close(vdi));
        OK(try_open(false));
    } else {
        die();
        registry.limit = 0;
        open_ring();
        OK(try_open(true));
    }
}

static void ends_while_waiting(enum ending how)
{
    static const int results[] = {PLX_ERR_NOSPACE, PLX_ERR_NOSPACE, PLX_ERR_BUSY, PLX_ERR_STICKY};
    uint64_t addr[64], count[64];
    struct sent before, between, direct, behind;
    unsigned taken = make_full(60 + how, 9, 3, addr, count);

    none_goes = true;
    submit_byte(&before, 20, 1, 2);
    some_turns(20);
    CU_ASSERT(!before.under_way);
    if (how == RING_STOPS)
        plx_simdisk_fail_io(ring_disk, 1, 1000000);
    submit_byte(&between, 21, 1, 3);
    submit_byte(&direct, 40, 8, 4);
    submit_byte(&behind, 0, 1, 5);
    CU_ASSERT_PTR_EQUAL(ringed->direct, &direct.request);
    begin_ending(how);
    some_turns(20);
    none_goes = false;
    if (how == CLOSED)
        plx_ringed_close(ringed);
    await(&before);
    await(&between);
    await(&direct);
    await(&behind);
    CU_ASSERT_EQUAL(direct.request.result, results[how]);
    if (how == RING_STOPS || how == TURNED_OFF) {
        OK(between.request.result);
        OK(behind.request.result); /* in place */
        for (unsigned i = 0; i < 1000 && ringed->state != PLX_RINGED_OFF; i++)
            turn();
        CU_ASSERT(!info_of().on && !is_marked());
        CU_ASSERT(reads_as(vdi, 0, BLOCK, 5));
        give_back(taken, addr, count);
    } else {
        come_back(how == CLOSED, addr, count, taken);
    }
    CU_ASSERT(reads_as(vdi, 20 * BLOCK, BLOCK, 2) && reads_as(vdi, BLOCK, 8 * BLOCK, 1));
    OK(between.request.result || reads_as(vdi, 21 * BLOCK, BLOCK, 3) ? 0 : PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(store->allocator->promised == 0, info_of().records == 0);
    OK(plx_ringed_off(ringed, &fault));
    close_disk();
    end(true);
}

/* It waits for history in the disk itself. */
static void ends_under_way(enum ending how)
{
    uint64_t addr[64], count[64];
    struct sent direct, behind;
    unsigned taken = make_full(70 + how, 9, 0, addr, count);

    env.gives_way = true;
    submit_byte(&direct, 40, 8, 4);
    submit_byte(&behind, 40, 1, 5);
    some_turns(50);
    CU_ASSERT(direct.under_way && behind.under_way && ringed->directing && env.room_wanted);
    begin_ending(how);
    some_turns(50);
    if (how == TURNED_OFF) {
        CU_ASSERT_EQUAL(ringed->state, PLX_RINGED_EMPTY);
        FAILS(NOSPACE, plx_ringed_off(ringed, &fault)); /* who waits may keep history */
        plx_ringed_turn(ringed, true);
        some_turns(5);
        CU_ASSERT(direct.under_way && behind.under_way);
        plx_ringed_turn(ringed, false);
        env.gives_way = false;
        give_back(taken, addr, count);
    } else if (how == CLOSED) {
        plx_ringed_close(ringed);
    } else {
        plx_store_room_made(store, true);
    }
    env.gives_way = false;
    await(&direct);
    await(&behind);
    CU_ASSERT_EQUAL(direct.request.result, how == TURNED_OFF ? 0
                                           : how == CLOSED   ? PLX_ERR_NOSPACE
                                                             : PLX_ERR_STICKY);
    if (how == TURNED_OFF) {
        OK(behind.request.result);
        CU_ASSERT(reads_as(vdi, 40 * BLOCK, BLOCK, 5) && reads_as(vdi, 41 * BLOCK, 7 * BLOCK, 4));
    } else {
        CU_ASSERT(behind.request.result != 0);
        come_back(how == CLOSED, addr, count, taken);
    }
    CU_ASSERT(reads_as(vdi, 0, 9 * BLOCK, 1));
    OK(plx_ringed_off(ringed, &fault));
    close_disk();
    end(true);
}

static void test_endings(void)
{
    for (enum ending how = RING_STOPS; how < ENDINGS && !CU_get_number_of_failures(); how++)
        ends_while_waiting(how);
    for (enum ending how = TURNED_OFF; how < ENDINGS && !CU_get_number_of_failures(); how++)
        ends_under_way(how);
}

/* RINGED-3: no snapshot of a batch becomes a record while a change is under way
 * in the disk itself: it would have a part of that change. It comes behind. */
static void test_batch_behind(void)
{
    uint64_t addr[64], count[64], first, last;
    struct sent direct;
    unsigned taken = make_full(80, 9, 0, addr, count);

    env.gives_way = true;
    OK(try_run(vdi, PLX_UNMAP, 8 * BLOCK, BLOCK, NULL));
    submit_byte(&direct, 9, 8, 4);
    some_turns(50);
    CU_ASSERT_FATAL(direct.under_way && ringed->directing && ringed->batch_changed);
    first = ringed->front.snapshots;
    last = ringed->last_seq;
    vdi->protect.policy.mode = PLX_PROTECT_BATCH; /* its record was under way */
    some_turns(50);
    CU_ASSERT(direct.under_way && ringed->last_seq == last && ringed->front.snapshots == first);
    env.gives_way = false;
    give_back(taken, addr, count);
    await(&direct);
    OK(direct.request.result);
    some_turns(5);
    CU_ASSERT_EQUAL(ringed->front.snapshots, first + 1);
    OK(plx_ringed_off(ringed, &fault));
    CU_ASSERT(instant_has(first, (uint8_t[]){1, 1, 1, 1, 1, 1, 1, 1, 0, 4}, 10, SIZE));
    close_disk();
    end(false);
}

/* ---- While something waits for history ---- */

static bool ended;

static void call_ended(struct plx_request *request)
{
    ended = true;
}

/* A snapshot has what the disk had, and nothing is free. */
static unsigned fill_up(uint64_t *addr, uint64_t *count)
{
    unsigned taken = 0;

    OK(write_byte(vdi, 0, MIB, 1));
    run(vdi, PLX_SNAPSHOT, 0, 0);
    registry.limit = registry.granted;
    for (unsigned i = 0; i < 100; i++) {
        while (plx_alloc_data(store, 1000, true, NULL, &addr[taken], &count[taken]) == 0)
            CU_ASSERT_FATAL(++taken < 64);
        turn();
    }
    return taken;
}

static void submit_until_history_is_waited_for(struct sent *write)
{
    env.gives_way = true;
    for (unsigned i = 0; i < 2 && !write->under_way; i++) { /* there may be a run of blocks */
        submit(write, PLX_WRITE, 0, MIB, MIB);
        for (unsigned t = 0; t < 1000 && !env.room_wanted && write->under_way; t++)
            turn();
    }
    CU_ASSERT_FATAL(env.room_wanted && write->under_way);
    some_turns(10);
}

/* A write waits for history, in front of the ring (it is just being turned on) or behind it. */
static void ends_without_room(enum plx_request_op op, bool on)
{
    struct sent write = {.memory = malloc(MIB)};
    struct plx_request call = {.op = op, .seq = 1, .label = "here", .done = call_ended};
    uint64_t addr[64], count[64];
    unsigned taken;

    make(40);
    if (on)
        OK(plx_ringed_on(ringed, &fault));
    taken = fill_up(addr, count);
    memset(write.memory, 7, MIB);
    submit_until_history_is_waited_for(&write);
    CU_ASSERT_EQUAL(ringed->directing, on);
    if (!on)
        plx_ringed_turn(ringed, true);
    ended = false;
    call.length = op == PLX_RESIZE ? SIZE + SECTOR : 0;
    plx_vdi_submit_own(vdi, &call);
    for (unsigned i = 0; i < 1000 && !ended; i++) {
        env.ns += 10000000;
        turn();
    }
    CU_ASSERT_FATAL(ended);
    CU_ASSERT_EQUAL(call.result, on && op != PLX_LABEL ? PLX_ERR_NOSPACE : 0);
    FAILS(NOSPACE, on ? plx_ringed_off(ringed, &fault) : plx_ringed_on(ringed, &fault));
    CU_ASSERT(write.under_way);
    some_turns(2);
    CU_ASSERT_EQUAL(info_of().on, on);
    env.gives_way = false;
    while (taken--)
        plx_alloc_free(store, addr[taken], count[taken]);
    plx_store_room_made(store, true);
    while (write.under_way)
        turn();
    OK(write.request.result);
    OK(plx_ringed_on(ringed, &fault));
    OK(plx_ringed_off(ringed, &fault));
    CU_ASSERT(reads_as(vdi, 0, MIB, 7));
    close_disk();
    end(true);
    free(write.memory);
}

/* RINGED_REQUESTS-5: a call does not wait for a write that waits for history, and so perhaps for
 * whoever has made the call. The write goes on waiting. */
static void test_calls_end(void)
{
    for (unsigned on = 0; on < 2; on++) {
        ends_without_room(PLX_LABEL, on);
        ends_without_room(PLX_SNAPSHOT, on);
        ends_without_room(PLX_RESIZE, on);
    }
}

/* ---- Records that were found at an opening, and other disks have taken their room ---- */

static unsigned take_all(uint64_t *addr, uint64_t *count)
{
    unsigned taken = 0;

    registry.limit = registry.granted;
    while (plx_alloc_data(store, 1000, true, NULL, &addr[taken], &count[taken]) == 0)
        CU_ASSERT_FATAL(++taken < 64);
    return taken;
}

static void (*grants)(struct plx_env *, struct plx_store *, enum plx_extent_type);

static void put_off_data(struct plx_env *from, struct plx_store *to, enum plx_extent_type type)
{
    if (type != PLX_EXTENT_DATA)
        grants(from, to, type);
}

/* The disk is opened with a record of 8 blocks, and a snapshot if wanted. The store has nothing
 * free. */
static unsigned find_without_room(bool snapshot, uint64_t *addr, uint64_t *count)
{
    struct sent taken_there = {.under_way = false};
    unsigned taken;

    none_goes = false;
    make(41);
    env.env.writes_wait = writes_wait;
    OK(plx_ringed_on(ringed, &fault));
    OK(write_byte(vdi, 0, 32 * BLOCK, 1));
    while (info_of().records || plx_store_busy(store))
        turn();
    none_goes = true;
    OK(write_byte(vdi, 0, 8 * BLOCK, 7));
    if (snapshot)
        submit(&taken_there, PLX_SNAPSHOT, 0, 0, 0);
    some_turns(20);
    plx_simpower_cut(&ring_power);
    plx_simpower_cut(&power);
    none_goes = false;
    plx_ringed_close(ringed);
    plx_vdi_abandon(vdi);
    close_ring();
    plx_simpower_restore(&ring_power);
    crash_store();
    open_ring();
    taken = take_all(addr, count);
    OK(try_open(true));
    CU_ASSERT_EQUAL(info_of().records, 1 + snapshot);
    return taken;
}

static void await_no_room(void)
{
    for (unsigned i = 0; i < 1000 && !info_of().waits_for; i++)
        turn();
    FAILS(NOSPACE, info_of().waits_for);
}

/* RINGED_REQUESTS-4: draining finds no room. A call that waits for what it would bring ends, or
 * what makes room would wait behind it for ever. What needs room fails, what makes some is taken.
 */
static void ends_with_full_store(enum plx_request_op op, bool late)
{
    struct plx_request call = {.op = op, .label = "here", .done = call_ended};
    uint64_t addr[64], count[64];
    unsigned taken = find_without_room(true, addr, count);
    struct sent write;

    if (late) {
        await_no_room();
    } else { /* what is carried waits for an extent, which will not come */
        grants = env.env.extent_wanted;
        env.env.extent_wanted = put_off_data;
        env.ns += 2 * SECOND_NS;
        some_turns(50);
        CU_ASSERT(info_of().on && !info_of().waits_for && info_of().records == 2);
    }
    ended = false;
    call.length = op == PLX_RESIZE ? SIZE + SECTOR : 0;
    call.seq = ringed->front.snapshots;
    plx_vdi_submit_own(vdi, &call);
    if (!late) {
        some_turns(10);
        CU_ASSERT(!ended);
        env.env.extent_wanted = grants;
        plx_store_extent_granted(store, PLX_EXTENT_DATA, PLX_ERR_NOSPACE, NULL);
    }
    for (unsigned i = 0; i < 1000 && !ended; i++)
        turn();
    CU_ASSERT_FATAL(ended);
    FAILS(NOSPACE, call.result);
    await_no_room();
    submit_byte(&write, 20, 1, 5);
    await(&write);
    FAILS(NOSPACE, write.request.result);
    FAILS(NOSPACE, try_run(vdi, PLX_UNMAP, 20 * BLOCK + SECTOR, SECTOR, NULL));
    OK(try_run(vdi, PLX_UNMAP, 9 * BLOCK, BLOCK, NULL)); /* it is not held */
    give_back(taken, addr, count);
    OK(plx_ringed_off(ringed, &fault));
    CU_ASSERT(reads_as(vdi, 0, 8 * BLOCK, 7) && reads_as(vdi, 8 * BLOCK, BLOCK, 1));
    CU_ASSERT(reads_as(vdi, 9 * BLOCK, BLOCK, 0) && reads_as(vdi, 10 * BLOCK, 22 * BLOCK, 1));
    close_disk();
    end(true);
}

static void test_calls_of_a_full_store(void)
{
    for (unsigned late = 0; late < 2; late++) {
        ends_with_full_store(PLX_RESIZE, late);
        ends_with_full_store(PLX_LABEL, late);
    }
}

static void refuse_extent(struct plx_env *unused, struct plx_store *to, enum plx_extent_type type)
{
    plx_store_extent_granted(to, type, PLX_ERR_FENCED, NULL);
}

/* RINGED_DRAIN-2: another host has the store. That is learned when an extent is asked for, before
 * anything is written, by what is carried or by what goes to the disk itself. */
static void test_fenced_without_room(void)
{
    for (unsigned carried = 0; carried < 2; carried++) {
        uint64_t addr[64], count[64];
        struct sent write;

        if (carried)
            find_without_room(false, addr, count);
        else
            make_full(41, 1, 0, addr, count);
        grants = env.env.extent_wanted;
        env.env.extent_wanted = refuse_extent;
        env.ns += 2 * SECOND_NS; /* it is asked again */
        submit_byte(&write, 40, 1, 2);
        await(&write);
        FAILS(FENCED, write.request.result);
        FAILS(FENCED, write_byte(vdi, 40 * BLOCK, BLOCK, 3));
        die();
        env.env.extent_wanted = grants;
        registry.limit = 0;
        open_ring();
        OK(try_open(true)); /* it is ours again */
        OK(plx_ringed_off(ringed, &fault));
        CU_ASSERT(reads_as(vdi, 0, BLOCK, carried ? 7 : 1) && reads_as(vdi, 40 * BLOCK, BLOCK, 0));
        close_disk();
        end(true);
    }
}

/* RINGED_REQUESTS-5: an automatic snapshot that is held behind a write does not wait for the
 * history that the write waits for. Whoever sets a new policy waits for that snapshot. */
static void test_automatic_behind_direct(void)
{
    const struct plx_protection often = {.mode = PLX_PROTECT_INTERVAL, .interval_ns = SECOND_NS};
    const struct plx_protection rarely = {.mode = PLX_PROTECT_INTERVAL,
                                          .interval_ns = 2 * SECOND_NS};
    struct sent write = {.memory = malloc(MIB)};
    uint64_t addr[64], count[64];
    unsigned taken;

    make(40);
    OK(plx_ringed_on(ringed, &fault));
    OK(plx_vdi_set_protection(vdi, &often, &fault));
    taken = fill_up(addr, count);
    memset(write.memory, 7, MIB);
    run(vdi, PLX_UNMAP, 0, BLOCK);
    submit_until_history_is_waited_for(&write);
    CU_ASSERT(ringed->directing);
    for (unsigned i = 0; i < 40; i++) {
        env.ns += SECOND_NS / 10;
        turn();
        turn();
    }
    CU_ASSERT_FATAL(!vdi->protect.under_way && write.under_way);
    FAILS(NOSPACE, plx_vdi_set_protection(vdi, &rarely, &fault));
    give_back(taken, addr, count);
    await(&write);
    OK(plx_ringed_off(ringed, &fault));
    close_disk();
    end(true);
}

/* ---- Beside those that go along ---- */

static bool putting_off;

static void put_off(struct plx_env *from, struct plx_store *to, enum plx_extent_type type)
{
    if (!putting_off || type != PLX_EXTENT_DATA)
        grants(from, to, type);
}

/* Whether what waits could go along is asked quietly: nothing is taken and given back for it, which
 * would wake whoever waits for room, so that the loop never sleeps. 5 blocks are free, an extent is
 * on its way. The first write needs 8, the one behind it 1. */
static void test_rests(void)
{
    uint64_t addr[64], count[64];
    struct sent writes[2];
    unsigned taken = make_full(90, 9, 5, addr, count), busy = 0;
    uint64_t asked;

    grants = env.env.extent_wanted;
    env.env.extent_wanted = put_off;
    putting_off = true;
    env.ns += 2 * SECOND_NS;
    submit_byte(&writes[0], 20, 8, 2);
    submit_byte(&writes[1], 40, 1, 3);
    ticks(200);
    asked = store->counters.registry_calls_on_data_path;
    for (unsigned i = 0; i < 1000; i++)
        busy += plx_store_tick(store);
    CU_ASSERT(store->counters.registry_calls_on_data_path - asked < 10);
    CU_ASSERT(busy < 10);
    putting_off = false;
    give_back(taken, addr, count);
    plx_store_extent_granted(store, PLX_EXTENT_DATA, PLX_ERR_NOSPACE, NULL);
    await(&writes[0]);
    await(&writes[1]);
    OK(writes[0].request.result);
    OK(writes[1].request.result);
    env.env.extent_wanted = grants;
    OK(plx_ringed_off(ringed, &fault));
    close_disk();
    end(false);
}

struct waiting_task {
    struct plx_task task;
    unsigned waits, looks;
    int error;
};

static void look_again(struct plx_task *task)
{
    struct waiting_task *w = PLX_CONTAINER(task, struct waiting_task, task);

    w->looks++;
    w->error = plx_reserve_wait(store, &w->task, &w->waits);
}

/* Nor is somebody else refused, who waits for a key frame that makes room for metadata, and counts
 * how often he was woken in vain (RESERVE-5). */
static void test_others_wait_on(void)
{
    uint64_t addr[64], count[64];
    struct sent writes[2];
    struct waiting_task other = {.task = {.step = look_again}};
    unsigned taken = make_full(91, 9, 5, addr, count);

    hold_store(true);
    none_goes = true;
    plx_keyframe_request(vdi, NULL);
    some_turns(3);
    none_goes = false;
    submit_byte(&writes[0], 0, 8, 2); /* in place */
    submit_byte(&writes[1], 40, 1, 3);
    for (unsigned i = 0; i < 400 && !ringed->directing; i++)
        plx_store_tick(store);
    none_goes = true; /* the SAN is slow */
    CU_ASSERT_FATAL(ringed->directing && writes[1].under_way);
    other.error = plx_reserve_wait(store, &other.task, &other.waits);
    ticks(20);
    CU_ASSERT_EQUAL(other.error, PLX_WAIT);
    none_goes = false;
    hold_store(false);
    await(&writes[0]);
    await(&writes[1]);
    some_turns(200);
    give_back(taken, addr, count);
    OK(plx_ringed_off(ringed, &fault));
    close_disk();
    end(false);
}

/* RINGED_REQUESTS-2: more writes than the disk has operations wait for history. A read and a flush
 * that come then do not. */
static void test_reads_pass(void)
{
    static struct sent writes[200];
    uint64_t addr[64], count[64];
    struct sent read = {.memory = malloc(BLOCK)}, flush = {.memory = NULL};
    unsigned taken = make_full(92, 9, 0, addr, count);

    env.gives_way = true;
    for (unsigned i = 0; i < 200; i++)
        submit_byte(&writes[i], 20 + i, 1, 4);
    some_turns(50);
    submit(&read, PLX_READ, 0, BLOCK, BLOCK);
    submit(&flush, PLX_FLUSH, 0, 0, 0);
    some_turns(100);
    CU_ASSERT(disk_has() > 1 && writes[199].under_way);
    CU_ASSERT(!read.under_way && !flush.under_way);
    env.gives_way = false;
    give_back(taken, addr, count);
    for (unsigned i = 0; i < 200; i++)
        await(&writes[i]);
    await(&read);
    await(&flush);
    OK(plx_ringed_off(ringed, &fault));
    close_disk();
    end(false);
}

/* On a store that is not full an extent may be on its way: the one write for which it comes too
 * late goes to the disk, and the rest of a burst becomes records. */
static void test_burst_waits(void)
{
    static struct sent writes[64];
    uint64_t addr[64], count[64], seq;
    unsigned taken = make_full(93, 9, 0, addr, count);

    grants = env.env.extent_wanted;
    env.env.extent_wanted = put_off;
    putting_off = true;
    env.ns += 2 * SECOND_NS;
    seq = ringed->last_seq;
    hold_store(true);
    for (unsigned i = 0; i < 64; i++)
        submit_byte(&writes[i], 20 + i, 1, 4);
    ticks(50);
    CU_ASSERT_EQUAL(disk_has(), 1);
    putting_off = false;
    registry.limit = 0;
    store->allocator->wanted[PLX_EXTENT_DATA].asked = false;
    grants(&env.env, store, PLX_EXTENT_DATA);
    for (unsigned i = 0; i < 64; i++)
        await(&writes[i]);
    CU_ASSERT_EQUAL(ringed->last_seq, seq + 63);
    hold_store(false);
    give_back(taken, addr, count);
    env.env.extent_wanted = grants;
    OK(plx_ringed_off(ringed, &fault));
    close_disk();
    end(false);
}

/* While the ring is turned off none goes along: else it would never be off. */
static void test_none_along_at_the_end(void)
{
    uint64_t addr[64], count[64];
    struct sent writes[3];
    unsigned taken = make_full(94, 9, 0, addr, count);

    hold_store(true);
    none_goes = true;
    submit_byte(&writes[0], 0, 1, 2);
    submit_byte(&writes[1], 1, 1, 3);
    ticks(20);
    CU_ASSERT_EQUAL(disk_has(), 2);
    plx_ringed_turn(ringed, false);
    ticks(5);
    CU_ASSERT_EQUAL(ringed->state, PLX_RINGED_EMPTY);
    submit_byte(&writes[2], 2, 1, 4);
    ticks(20);
    CU_ASSERT_EQUAL(disk_has(), 2);
    none_goes = false;
    hold_store(false);
    for (unsigned i = 0; i < 3; i++) {
        await(&writes[i]);
        OK(writes[i].request.result);
    }
    give_back(taken, addr, count);
    OK(plx_ringed_off(ringed, &fault));
    close_disk();
    end(false);
}

/* RINGED_REQUESTS-4: the ring is being turned off, and its records find no room. An UNMAP of whole
 * blocks is not let in any more; it fails like a write, and does not wait for ever. */
static void test_unmap_at_the_end(void)
{
    uint64_t addr[64], count[64];
    unsigned taken = find_without_room(false, addr, count);
    struct sent unmap = {.memory = NULL}, write;

    await_no_room();
    plx_ringed_turn(ringed, false);
    some_turns(20);
    submit(&unmap, PLX_UNMAP, 9 * BLOCK, BLOCK, 0);
    submit_byte(&write, 20, 1, 5);
    for (unsigned i = 0; i < 3000 && unmap.under_way; i++) {
        env.ns += 10000000;
        turn();
    }
    CU_ASSERT(!unmap.under_way && !write.under_way);
    FAILS(NOSPACE, unmap.request.result);
    give_back(taken, addr, count);
    await(&unmap);
    await(&write);
    OK(plx_ringed_off(ringed, &fault));
    close_disk();
    end(true);
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"without a promise", test_without_promise},
        {"promised later", test_promised_later},
        {"given back", test_given_back},
        {"makes room for itself", test_makes_room},
        {"kinds", test_kinds},
        {"protected", test_protected},
        {"in order", test_in_order},
        {"together", test_together},
        {"alone", test_alone},
        {"rests", test_rests},
        {"others wait on", test_others_wait_on},
        {"reads pass", test_reads_pass},
        {"a burst waits for an extent", test_burst_waits},
        {"none goes along at the end", test_none_along_at_the_end},
        {"an UNMAP at the end", test_unmap_at_the_end},
        {"endings", test_endings},
        {"calls end", test_calls_end},
        {"an automatic snapshot ends", test_automatic_behind_direct},
        {"a snapshot of a batch", test_batch_behind},
        {"calls of a full store", test_calls_of_a_full_store},
        {"fenced without room", test_fenced_without_room},
    };

    return SUITE_RUN("ringed_room", tests);
}
