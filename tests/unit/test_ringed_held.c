/* test_ringed_held.c - a disk with a write-back ring: what is held, or waits for ring, store or
 * room, while something fails, the disk is closed, or nothing makes room.
 */
#include "engine/ring/ringed_inside.h"
#include "engine/loop/store.h"
#include "ok.h"
#include "suite.h"
#include "unit/ringed_world.h"

#define SECOND_NS 1000000000ull

/* The mark cannot be written when the ring is turned on, and the mode has become BATCH since the
 * last time: no snapshot goes to a ring whose proof no record names. */
static void test_batch_without_mark(void)
{
    const struct plx_protection batch = {.mode = PLX_PROTECT_BATCH};

    for (unsigned turns = 0; turns < 40; turns++) {
        make(turns);
        OK(plx_ringed_on(ringed, &fault));
        OK(write_byte(vdi, 0, BLOCK, 1));
        OK(plx_ringed_off(ringed, &fault));
        OK(plx_vdi_set_protection(vdi, &batch, &fault));
        plx_ringed_turn(ringed, true);
        some_turns(turns);
        plx_simdisk_fail_io(disk, 1, 1000000);
        for (unsigned i = 0; i < 100; i++) {
            env.ns += 50000000;
            turn();
        }
        plx_simdisk_fail_io(disk, 0, 0);
        die();
        open_ring();
        OK(try_open(true));
        OK(plx_ringed_off(ringed, &fault));
        CU_ASSERT(reads_as(vdi, 0, BLOCK, 1));
        close_disk();
        end(true);
    }
}

/* PROTECT-8: until no copy of the record has the mark any more, the log adds no snapshots of its
 * own. What the ring may still have would not follow them (RINGED-7). */
static void test_none_while_marked(void)
{
    static const enum plx_protection_mode modes[] = {PLX_PROTECT_BATCH, PLX_PROTECT_WRITE};

    for (unsigned m = 0; m < 2; m++) {
        const struct plx_protection policy = {.mode = modes[m]};
        unsigned leaving = 0;

        make(m);
        OK(plx_vdi_set_protection(vdi, &policy, &fault));
        OK(plx_ringed_on(ringed, &fault));
        OK(write_byte(vdi, 0, BLOCK, 1));
        plx_ringed_turn(ringed, false);
        for (unsigned i = 0; i < 1000 && ringed->state != PLX_RINGED_OFF; i++) {
            turn();
            leaving += ringed->state == PLX_RINGED_UNMARK && is_marked();
            CU_ASSERT(!is_marked() || vdi->log.snapshots == PLX_PROTECT_OFF);
        }
        CU_ASSERT(leaving > 0 && ringed->state == PLX_RINGED_OFF);
        CU_ASSERT_EQUAL(vdi->log.snapshots, policy.mode);
        close_disk();
        end(true);
    }
}

/* A disk is closed while the ring has yet to write some records, and a write that waits for the
 * store comes behind them: what is on the ring still follows what the store has (RINGED-7). */
static void test_closed_between(void)
{
    const struct plx_protection policy = {.mode = PLX_PROTECT_WRITE};

    for (unsigned turns = 0; turns < 60; turns++) {
        struct sent writes[8];

        make(turns);
        OK(write_byte(vdi, 0, MIB, 1));
        OK(plx_ringed_on(ringed, &fault));
        OK(plx_vdi_set_protection(vdi, &policy, &fault));
        plx_simdisk_set_patience(ring_disk, 100);
        plx_simdisk_set_patience(disk, 60);
        for (unsigned i = 0; i < 8; i++) {
            bool part = i % 3 == 2;

            writes[i].memory = malloc(8 * BLOCK);
            memset(writes[i].memory, 10 + (int)i, 8 * BLOCK);
            submit(&writes[i], PLX_WRITE, 10 * i * BLOCK + (part ? SECTOR : 0),
                   part ? 7 * BLOCK : BLOCK, part ? 7 * BLOCK : BLOCK);
            if (i % 4 == 3)
                some_turns(turns % 5);
        }
        some_turns(turns / 5);
        plx_ringed_close(ringed);
        plx_simdisk_set_patience(ring_disk, 20);
        plx_simdisk_set_patience(disk, 20);
        OK(plx_vdi_close(vdi));
        OK(try_open(false));
        for (unsigned i = 0; i < 8; i++) {
            uint64_t at = 10 * i * BLOCK + (i % 3 == 2 ? SECTOR : 0);

            CU_ASSERT(!writes[i].under_way);
            CU_ASSERT(writes[i].request.result ||
                      reads_as(vdi, at, writes[i].request.length, 10 + (int)i));
            free(writes[i].memory);
        }
        OK(plx_ringed_off(ringed, &fault));
        close_disk();
        end(false);
    }
}

/* ---- Key frames ---- */

static uint64_t times[64]; /* of automatic snapshots; 0: it is another one, or not there yet */

static void note_time(struct plx_simenv *sim, uint32_t slot, enum plx_automatic what, uint64_t seq,
                      uint64_t time_ns)
{
    if (what == PLX_AUTOMATIC_ORDERED)
        times[seq] = time_ns;
}

/* The ring has newer snapshots than the store: a key frame has the time of the newest one that is
 * on the store, for none behind it is older. */
static void test_time_of_keyframe(void)
{
    const struct plx_protection policy = {.mode = PLX_PROTECT_WRITE};
    unsigned between = 0;

    fixture.open.ops_per_vdi = 4;
    make(43);
    env.on_automatic = note_time;
    OK(plx_ringed_on(ringed, &fault));
    OK(plx_vdi_set_protection(vdi, &policy, &fault));
    for (unsigned i = 1; i <= 40; i++) {
        hold_store(true);
        OK(write_byte(vdi, 0, BLOCK, (int)i));
        env.ns += 1000000;
        hold_store(false);
        plx_keyframe_request(vdi, NULL);
        for (unsigned t = 0; t < 5; t++) {
            uint64_t seq;

            turn();
            seq = vdi->record.keyframe.snap_seq;
            between += seq && seq < i;
            CU_ASSERT(!times[seq] || vdi->record.keyframe.time_ns == times[seq]);
        }
    }
    CU_ASSERT(between > 10);
    env.on_automatic = NULL;
    OK(plx_ringed_off(ringed, &fault));
    close_disk();
    end(false);
    fixture.open.ops_per_vdi = 0;
}

/* ---- Room ---- */

/* The store has so many free data blocks, and gets no more. Returns how many runs were taken. */
static unsigned leave_free(uint64_t blocks, uint64_t *addr, uint64_t *count)
{
    unsigned taken = 0;
    uint64_t left;

    registry.limit = registry.granted;
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

static void submit_byte(struct sent *sent, uint64_t block, uint64_t blocks, int byte)
{
    sent->memory = malloc(blocks * BLOCK);
    memset(sent->memory, byte, blocks * BLOCK);
    submit(sent, PLX_WRITE, block * BLOCK, blocks * BLOCK, blocks * BLOCK);
}

/* ALLOC-8: a write to which nothing was promised takes nothing that was promised to others. What
 * comes behind it cannot be drained before it, so it is not acknowledged either
 * (RINGED_APPEND-5). */
static void test_without_promise(void)
{
    uint64_t addr[64], count[64];
    struct sent writes[2];
    unsigned taken;

    make(41);
    OK(plx_ringed_on(ringed, &fault));
    OK(write_byte(vdi, 0, BLOCK, 1));
    while (info_of().records)
        turn();
    taken = leave_free(10, addr, count);
    CU_ASSERT(plx_alloc_promise(store, 5)); /* to another disk */
    submit_byte(&writes[0], 0, 8, 2);
    submit_byte(&writes[1], 20, 1, 3);
    for (unsigned i = 0; i < 300 && (writes[0].under_way || writes[1].under_way); i++)
        turn();
    CU_ASSERT_EQUAL(store->promised, 5);
    CU_ASSERT(plx_alloc_free_blocks(store, PLX_EXTENT_DATA) >= store->promised);
    for (unsigned i = 0; i < 2; i++) {
        CU_ASSERT(!writes[i].under_way);
        FAILS(NOSPACE, writes[i].request.result);
        free(writes[i].memory);
    }
    give_back(taken, addr, count);
    while (info_of().records)
        turn();
    plx_alloc_unpromise(store, 5);
    CU_ASSERT_EQUAL(store->promised, 0);
    OK(plx_ringed_off(ringed, &fault));
    CU_ASSERT(reads_as(vdi, 0, 8 * BLOCK, 2) && reads_as(vdi, 20 * BLOCK, BLOCK, 3));
    close_disk();
    end(false);
}

static void refuse_extent(struct plx_env *unused, struct plx_store *to, enum plx_extent_type type)
{
    plx_store_extent_granted(to, type, PLX_ERR_FENCED, NULL);
}

/* RINGED_DRAIN-2: another host has the store. That is learned when an extent is asked for, before
 * anything is written. What waits for the store fails, and so does what comes later. */
static void test_fenced_without_room(void)
{
    void (*grants)(struct plx_env *, struct plx_store *, enum plx_extent_type);
    uint64_t addr[64], count[64];
    struct sent write;

    make(41);
    OK(plx_ringed_on(ringed, &fault));
    OK(write_byte(vdi, 0, BLOCK, 1));
    while (info_of().records)
        turn();
    grants = env.env.extent_wanted;
    env.env.extent_wanted = refuse_extent;
    leave_free(0, addr, count);
    submit_byte(&write, 0, 1, 2);
    for (unsigned i = 0; i < 300 && write.under_way; i++)
        turn();
    CU_ASSERT_FATAL(!write.under_way);
    FAILS(FENCED, write.request.result);
    FAILS(FENCED, write_byte(vdi, 0, BLOCK, 3));
    CU_ASSERT(reads_as(vdi, 0, BLOCK, 2));
    free(write.memory);
    die();
    env.env.extent_wanted = grants;
    registry.limit = 0;
    open_ring();
    OK(try_open(true)); /* it is ours again */
    OK(plx_ringed_off(ringed, &fault));
    CU_ASSERT(reads_as(vdi, 0, BLOCK, 2));
    close_disk();
    end(true);
}

/* Room comes while the store is slow: what waits for it is acknowledged by the ring, in order, and
 * so is what comes next. */
static void test_promised_later(void)
{
    uint64_t addr[64], count[64];
    struct sent writes[3];
    unsigned taken;

    make(42);
    OK(plx_ringed_on(ringed, &fault));
    OK(write_byte(vdi, 0, BLOCK, 1));
    while (info_of().records)
        turn();
    taken = leave_free(3, addr, count);
    hold_store(true);
    submit_byte(&writes[0], 0, 8, 2);
    submit_byte(&writes[1], 20, 1, 3);
    for (unsigned i = 0; i < 4; i++)
        plx_store_tick(store);
    CU_ASSERT(writes[0].under_way && writes[1].under_way);
    give_back(taken, addr, count);
    for (unsigned i = 0; i < 20; i++)
        plx_store_tick(store);
    submit_byte(&writes[2], 30, 1, 4);
    for (unsigned i = 0; i < 20; i++)
        plx_store_tick(store);
    for (unsigned i = 0; i < 3; i++) {
        CU_ASSERT(!writes[i].under_way);
        OK(writes[i].request.result);
        free(writes[i].memory);
    }
    CU_ASSERT_EQUAL(info_of().records, 3);
    CU_ASSERT_EQUAL(store->promised, 10);
    hold_store(false);
    OK(plx_ringed_off(ringed, &fault));
    CU_ASSERT_EQUAL(store->promised, 0);
    CU_ASSERT(reads_as(vdi, 0, 8 * BLOCK, 2) && reads_as(vdi, 20 * BLOCK, BLOCK, 3));
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
    CU_ASSERT_EQUAL(info_of().full, on);
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

/* RINGED_REQUESTS-4: draining finds no room. A call that waits for what it would bring ends, or
 * what makes room would wait behind it for ever. */
static void ends_with_full_store(enum plx_request_op op, bool late)
{
    const struct plx_protection policy = {.mode = PLX_PROTECT_WRITE};
    struct sent write = {.memory = malloc(MIB)};
    struct plx_request call = {.op = op, .label = "here", .done = call_ended};
    uint64_t addr[64], count[64];
    unsigned taken;

    make(41);
    OK(plx_vdi_set_protection(vdi, &policy, &fault));
    OK(plx_ringed_on(ringed, &fault));
    taken = fill_up(addr, count);
    hold_store(true);
    memset(write.memory, 7, MIB);
    submit(&write, PLX_WRITE, 0, 4 * BLOCK, 4 * BLOCK);
    ended = false;
    for (unsigned i = 0; i < 1000 && !(late ? info_of().waits_for : (int)info_of().records); i++) {
        hold_store(!late);
        turn();
    }
    CU_ASSERT_FATAL(info_of().records > 0);
    call.length = op == PLX_RESIZE ? SIZE + SECTOR : 0;
    call.seq = ringed->front.snapshots;
    plx_vdi_submit_own(vdi, &call);
    CU_ASSERT(late || !ended);
    hold_store(false);
    for (unsigned i = 0; i < 1000 && !ended; i++)
        turn();
    CU_ASSERT_FATAL(ended);
    FAILS(NOSPACE, call.result);
    while (write.under_way)
        turn();
    FAILS(NOSPACE, write.request.result);
    OK(try_run(vdi, PLX_UNMAP, 8 * BLOCK, BLOCK, NULL)); /* it is not held */
    while (taken--)
        plx_alloc_free(store, addr[taken], count[taken]);
    plx_store_room_made(store, true);
    OK(plx_ringed_off(ringed, &fault));
    CU_ASSERT(reads_as(vdi, 0, 4 * BLOCK, 7)); /* it failed, and anything might be read */
    close_disk();
    end(true);
    free(write.memory);
}

static void test_calls_of_a_full_store(void)
{
    for (unsigned late = 0; late < 2; late++) {
        ends_with_full_store(PLX_RESIZE, late);
        ends_with_full_store(PLX_LABEL, late);
    }
}

/* RINGED-4: behind a hole there are records that were never acknowledged. Nobody finds them, but
 * they lie there. When the mark has gone, they are not taken for what the store lacks. */
static void test_behind_a_hole(void)
{
    struct sent writes[3];
    uint64_t hole;

    make(43);
    OK(plx_ringed_on(ringed, &fault));
    hold_store(true);
    plx_simdisk_set_patience(ring_disk, 100);
    for (unsigned i = 0; i < 3; i++) {
        writes[i].memory = malloc(MIB);
        memset(writes[i].memory, (int)i + 1, MIB);
        submit(&writes[i], PLX_WRITE, i * (uint64_t)(14 * BLOCK), 14 * BLOCK, 14 * BLOCK);
        for (unsigned t = 0; t < 5; t++)
            plx_store_tick(store);
    }
    plx_simdisk_set_patience(ring_disk, 20);
    for (unsigned t = 0; t < 10000 && info_of().records < 3; t++)
        plx_store_tick(store);
    CU_ASSERT_FATAL(info_of().records == 3 && ringed->first->seq == 1);
    hole = ringed->first->next->place.offset;
    hold_store(false);
    plx_simpower_cut(&power);
    plx_ringed_close(ringed);
    plx_vdi_abandon(vdi);
    close_ring();
    crash_store();
    for (unsigned i = 0; i < 3; i++)
        free(writes[i].memory);
    plx_simdisk_flip(ring_disk, hole, 1); /* as if it had been lost, and nobody been told of it */
    open_ring();
    OK(try_open(true));
    CU_ASSERT(reads_as(vdi, 0, 14 * BLOCK, 1) && reads_as(vdi, 14 * BLOCK, 28 * BLOCK, 0));
    OK(plx_ringed_off(ringed, &fault));
    close_disk();
    close_ring();
    open_ring();
    OK(try_open(false));
    OK(plx_ringed_on(ringed, &fault));
    CU_ASSERT(reads_as(vdi, 0, 14 * BLOCK, 1) && reads_as(vdi, 14 * BLOCK, 28 * BLOCK, 0));
    OK(plx_ringed_off(ringed, &fault));
    close_disk();
    end(true);
}

/* ---- While the environment lets no write go to the store (TICK-6) ---- */

static bool none_goes;
static uint64_t lets_go_until_ns; /* what has waited since before that */

static bool writes_wait(struct plx_env *unused, uint64_t since_ns)
{
    return none_goes && since_ns >= lets_go_until_ns;
}

static uint64_t store_writes(void)
{
    return plx_simdisk_counters(disk)->writes + plx_simdisk_counters(disk)->flushes;
}

/* With the ring on, and everything on the store; from here on nothing goes there. */
static void make_waiting(uint64_t seed)
{
    none_goes = false;
    make(seed);
    env.env.writes_wait = writes_wait;
    OK(plx_ringed_on(ringed, &fault));
    OK(write_byte(vdi, 0, 32 * BLOCK, 1));
    while (info_of().records || plx_store_busy(store))
        turn();
    lets_go_until_ns = 0;
    none_goes = true;
    plx_simdisk_reset_counters(disk);
}

static void write_waiting(void)
{
    for (unsigned i = 0; i < 32 && !CU_get_number_of_failures(); i++)
        OK(write_byte(vdi, i * BLOCK, BLOCK, (int)i + 2));
    OK(try_run(vdi, PLX_FLUSH, 0, 0, NULL));
}

static void check_waiting(void)
{
    for (unsigned i = 0; i < 32 && !CU_get_number_of_failures(); i++)
        CU_ASSERT(reads_as(vdi, i * BLOCK, BLOCK, (int)i + 2));
}

/* What waited never reached the store, which fails with the host. */
static void lose_power_waiting(void)
{
    plx_simpower_cut(&ring_power);
    plx_simpower_cut(&power);
    none_goes = false;
    plx_ringed_close(ringed);
    plx_vdi_abandon(vdi);
    close_ring();
    plx_simpower_restore(&ring_power);
    crash_store();
    open_ring();
    OK(try_open(true));
}

/* The ring acknowledges, nothing is handed to the store's device, nobody waits for that device; it
 * all goes on by itself, or the host dies instead. */
static void test_store_waits(void)
{
    for (unsigned seed = 0; seed < 20 && !CU_get_number_of_failures(); seed++) {
        make_waiting(seed);
        write_waiting();
        CU_ASSERT_EQUAL(info_of().records, 32);
        check_waiting();
        some_turns(50);
        CU_ASSERT_EQUAL(store_writes(), 0);
        CU_ASSERT(plx_store_busy(store));
        CU_ASSERT_EQUAL(plx_store_under_way(store), 0);
        if (seed % 2)
            lose_power_waiting();
        none_goes = false;
        OK(plx_ringed_off(ringed, &fault));
        CU_ASSERT(store_writes() > 0);
        check_waiting();
        close_disk();
        end(true);
    }
}

/* What came before an instant goes, what came later waits, again and again. */
static void test_store_waits_by_turns(void)
{
    for (unsigned seed = 0; seed < 20 && !CU_get_number_of_failures(); seed++) {
        uint64_t before;

        make_waiting(seed);
        write_waiting();
        for (unsigned i = 0; i < 2000 && info_of().records && !CU_get_number_of_failures(); i++) {
            before = store_writes();
            some_turns(5);
            CU_ASSERT(lets_go_until_ns || store_writes() == before);
            lets_go_until_ns = env.ns;
        }
        CU_ASSERT_EQUAL(info_of().records, 0);
        CU_ASSERT(none_goes);
        none_goes = false;
        check_waiting();
        close_disk();
        end(false);
    }
}

/* Another host has the store: what waited fails and never goes. What the ring has is there when the
 * store is ours again. */
static void test_fenced_waiting(void)
{
    for (unsigned seed = 0; seed < 20 && !CU_get_number_of_failures(); seed++) {
        make_waiting(seed);
        write_waiting();
        some_turns((unsigned)below(20));
        plx_store_fence(store);
        while (!vdi->log.sticky)
            turn();
        FAILS(FENCED, write_byte(vdi, 0, BLOCK, 1));
        CU_ASSERT_EQUAL(store_writes(), 0);
        none_goes = false;
        die();
        open_ring();
        OK(try_open(true));
        OK(plx_ringed_off(ringed, &fault));
        check_waiting();
        close_disk();
        end(true);
    }
}

#define WAITING 24u

/* A full ring gets room by key frames only. When the store's device has gone, whoever turns the
 * ring off is told so, instead of waiting without an end for what the ring could not take. */
static void test_off_while_full(void)
{
    struct sent writes[WAITING];

    make(47);
    OK(plx_ringed_on(ringed, &fault));
    for (unsigned i = 0; i < WAITING; i++) {
        writes[i].memory = malloc(14 * BLOCK);
        memset(writes[i].memory, (int)i + 1, 14 * BLOCK);
        submit(&writes[i], PLX_WRITE, i % 12 * (uint64_t)(14 * BLOCK), 14 * BLOCK, 14 * BLOCK);
    }
    for (unsigned i = 0; i < 10000 && !(ringed->full && ringed->items && !info_of().records); i++)
        turn();
    CU_ASSERT_FATAL(ringed->full && ringed->items && !info_of().records);
    plx_simdisk_stop(plx_store_device(store, 0), PLX_ERR_LOST);
    CU_ASSERT_EQUAL(plx_ringed_off(ringed, &fault), PLX_ERR_LOST);
    die();
    for (unsigned i = 0; i < WAITING; i++)
        free(writes[i].memory);
    open_ring();
    OK(try_open(true));
    OK(plx_ringed_off(ringed, &fault));
    close_disk();
    end(true);
}

/* ---- Interrupted ---- */

struct watching {
    uint64_t asked, first, least; /* times; bytes left */
    uint64_t until;               /* as soon as so few are left, it is interrupted */
};

static bool ends_at(void *context, uint64_t left)
{
    struct watching *w = context;

    w->first = w->asked++ ? w->first : left;
    w->least = left;
    return left <= w->until;
}

/* RINGED-11. Whoever waits for draining ends it: what is drained is on the store, the rest on the
 * ring, and the next one goes on. */
static void test_interrupted(void)
{
    for (unsigned part = 1; part <= 3 && !CU_get_number_of_failures(); part++) {
        struct watching w = {.until = 0};
        const struct plx_ringed_watch watch = {ends_at, &w};
        uint64_t seq;

        make(70 + part);
        OK(plx_ringed_on(ringed, &fault));
        hold_store(true);
        for (unsigned i = 0; i < 40; i++)
            OK(write_byte(vdi, i * BLOCK, BLOCK, 1 + (int)i));
        hold_store(false);
        seq = vdi_info().position.seq;
        w.until = info_of().bytes * (4 - part) / 4;
        FAILS(BUSY, plx_ringed_off_watched(ringed, &watch, &fault));
        CU_ASSERT_STRING_EQUAL(fault.text, "interrupted");
        CU_ASSERT(w.asked > 1 && w.first > w.until && w.least <= w.until);
        CU_ASSERT(is_marked());
        CU_ASSERT(vdi_info().position.seq > seq);
        hold_store(true);
        OK(write_byte(vdi, 0, BLOCK, 99)); /* it goes on as before */
        CU_ASSERT(info_of().records > 0);
        plx_ringed_close(ringed);
        hold_store(false);
        OK(plx_vdi_close(vdi));
        OK(try_open(false));
        OK(plx_ringed_off(ringed, &fault));
        CU_ASSERT(!is_marked());
        CU_ASSERT(reads_as(vdi, 0, BLOCK, 99));
        for (unsigned i = 1; i < 40; i++)
            CU_ASSERT(reads_as(vdi, i * BLOCK, BLOCK, 1 + (int)i));
        close_disk();
        end(false);
    }
}

/* While the mark goes nobody is asked. */
static bool never_asked_without_mark(void *context, uint64_t left)
{
    CU_ASSERT(*(const enum plx_ringed_state *)context != PLX_RINGED_UNMARK);
    return false;
}

static void test_not_while_unmarked(void)
{
    make(75);
    OK(plx_ringed_on(ringed, &fault));
    OK(write_byte(vdi, 0, BLOCK, 1));
    OK(plx_ringed_off_watched(
        ringed, &(struct plx_ringed_watch){never_asked_without_mark, &ringed->state}, &fault));
    CU_ASSERT(!is_marked());
    close_disk();
    end(false);
}

/* WITNESS-9: snapshots in doubt lie on the ring, and the process dies before the registry heard of
 * the doubt. */
static void test_doubt_untold(void)
{
    struct sent snapshots[4] = {{.under_way = false}};
    struct plx_vdi_clock clock;

    make_waiting(76);
    for (unsigned i = 1; i <= 4; i++) {
        env.ns += SECOND_NS;
        env.off_ns = i > 2 ? 10 * 86400 * (int64_t)SECOND_NS : 0;
        OK(write_byte(vdi, i * BLOCK, BLOCK, (int)i));
        submit(&snapshots[i - 1], PLX_SNAPSHOT, 0, 0, 0);
        some_turns(20);
    }
    CU_ASSERT_EQUAL(info_of().records, 8); /* the ring alone has them */
    env.off_ns = 0;
    lose_power_waiting();
    plx_vdi_look_at_clock(vdi, &clock);
    /* And those that the log does not have yet, whose numbers may be given again (WITNESS-6). */
    for (unsigned i = 1; i <= 5; i++)
        CU_ASSERT_EQUAL(plx_witness_is_undated(&clock.witness, i), i <= 4);
    OK(plx_ringed_off(ringed, &fault));
    close_disk();
    end(true);
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"batch without a mark", test_batch_without_mark},
        {"none while marked", test_none_while_marked},
        {"closed in between", test_closed_between},
        {"without a promise", test_without_promise},
        {"promised later", test_promised_later},
        {"time of a key frame", test_time_of_keyframe},
        {"calls end", test_calls_end},
        {"calls of a full store", test_calls_of_a_full_store},
        {"behind a hole", test_behind_a_hole},
        {"off while full", test_off_while_full},
        {"store waits", test_store_waits},
        {"store waits by turns", test_store_waits_by_turns},
        {"fenced while it waits", test_fenced_waiting},
        {"fenced without room", test_fenced_without_room},
        {"interrupted", test_interrupted},
        {"not while the mark goes", test_not_while_unmarked},
        {"a doubt that nobody was told of", test_doubt_untold},
    };

    return SUITE_RUN("ringed_held", tests);
}
