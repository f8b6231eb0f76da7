/* test_ringed_held.c - a disk with a write-back ring: what is held, or waits for ring or store,
 * while something fails or the disk is closed.
 */
#include "engine/ring/ringed_inside.h"
#include "engine/loop/store.h"
#include "engine/space/allocator_inside.h"
#include "fault/alloc.h"
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

static bool ended;

static void call_ended(struct plx_request *request)
{
    ended = true;
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

/* A label, and a snapshot whose number somebody waits for, are acknowledged when the store has
 * them, and writes before and behind them when the ring has. */
static void test_snapshots_wait(void)
{
    struct sent snapshot = {.under_way = false}, again = {.under_way = false};
    struct plx_request label = {.op = PLX_LABEL, .seq = 1, .label = "here", .done = call_ended};

    make_waiting(21);
    OK(write_byte(vdi, 0, BLOCK, 2));
    submit(&snapshot, PLX_SNAPSHOT, 0, 0, 0);
    submit(&again, PLX_SNAPSHOT, 0, 0, 0); /* the same one, for nothing has changed */
    OK(write_byte(vdi, 0, BLOCK, 3));
    ended = false;
    plx_vdi_submit_own(vdi, &label);
    some_turns(100);
    CU_ASSERT(snapshot.under_way && again.under_way && !ended);
    none_goes = false;
    while (snapshot.under_way || again.under_way || !ended)
        turn();
    OK(snapshot.request.result);
    OK(again.request.result);
    OK(label.result);
    CU_ASSERT_EQUAL(snapshot.request.seq, 1);
    CU_ASSERT_EQUAL(again.request.seq, 1);
    OK(plx_ringed_off(ringed, &fault));
    close_disk();
    end(true);
}

/* RINGED_APPEND-3: a write that finds no memory for its blocks, its record or the ring's item
 * waits, and whoever sleeps meanwhile is told to look again soon, for no completion may come. */
static void test_memory_waited_for(void)
{
    make_waiting(22);
    for (uint64_t k = 1; k <= 3; k++) {
        struct sent write;
        uint64_t failed;

        fault_alloc_arm(k + 1, false); /* the first one is the test's own */
        submit_byte(&write, k, 1, 90 + (int)k);
        fault_alloc_disarm(&failed);
        CU_ASSERT_EQUAL(failed, 1);
        CU_ASSERT(write.under_way && !ringed->items);
        CU_ASSERT(plx_store_due_ns(store) <= env.ns + SECOND_NS / 5);
        for (unsigned i = 0; i < 100 && write.under_way; i++)
            turn();
        CU_ASSERT_FATAL(!write.under_way);
        OK(write.request.result);
        CU_ASSERT(reads_as(vdi, k * BLOCK, BLOCK, 90 + (int)k));
        free(write.memory);
    }
    none_goes = false;
    OK(plx_ringed_off(ringed, &fault));
    close_disk();
    end(true);
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

/* ---- A member is lost, and the store cannot be told ---- */

enum hinder { WAITS, FAILS_WHOLLY, FAILS_FOR_A_WHILE };

/* One of two members has failed, and a write waits for the mark to name the survivor. */
static void lose_member(enum hinder how, uint64_t k, struct sent *write)
{
    mirrored = true;
    if (how == WAITS) {
        make_waiting(80);
    } else {
        make(80 + k);
        OK(plx_ringed_on(ringed, &fault));
        OK(write_byte(vdi, 0, 32 * BLOCK, 1));
        while (info_of().records || plx_store_busy(store))
            turn();
        plx_simdisk_fail_io(disk, k, how == FAILS_WHOLLY ? 1000000 : 2);
    }
    plx_simdisk_fail_io(k % 2 ? ring_disk : mirror_disk, 1, 1000000);
    submit_byte(write, 0, 8, 2);
}

static bool is_told(void)
{
    return vdi_info().mark.set == plx_ringed_ring_info(host).super.set;
}

/* What was acknowledged is there when the host comes back, with the survivor and the other one. */
static void come_back(struct sent *write)
{
    bool acknowledged = !write->under_way && !write->request.result;

    plx_simdisk_heal(disk);
    plx_simdisk_heal(ring_disk);
    plx_simdisk_heal(mirror_disk);
    die();
    free(write->memory);
    open_ring();
    OK(try_open(true));
    CU_ASSERT(reads_as(vdi, 0, 8 * BLOCK, 2) || (!acknowledged && reads_as(vdi, 0, 8 * BLOCK, 1)));
    CU_ASSERT(reads_as(vdi, 8 * BLOCK, 24 * BLOCK, 1));
    OK(plx_ringed_off(ringed, &fault));
    close_disk();
    end(true);
    mirrored = false;
}

/* RINGED-1: the survivor acknowledges nothing by itself while the store cannot be told of it,
 * whether the store's device answers nothing or fails; it does as soon as the store can. */
static void test_lost_untold(void)
{
    for (enum hinder how = WAITS; how <= FAILS_WHOLLY; how++) {
        struct sent write;
        uint64_t errors;

        lose_member(how, 1, &write);
        errors = plx_simdisk_counters(disk)->errors;
        for (unsigned i = 0; i < 200; i++) {
            env.ns += 10000000;
            turn();
        }
        CU_ASSERT_EQUAL(plx_ringed_ring_info(host).members, 1);
        CU_ASSERT(write.under_way && !vdi->log.sticky);
        CU_ASSERT(how == WAITS ||
                  plx_simdisk_counters(disk)->errors > errors + 5); /* tried again */
        none_goes = false;
        plx_simdisk_heal(disk);
        for (unsigned i = 0; i < 1000 && write.under_way; i++) {
            env.ns += 10000000;
            turn();
        }
        CU_ASSERT_FATAL(!write.under_way);
        OK(write.request.result);
        CU_ASSERT(is_told());
        come_back(&write);
    }
}

/* The same wherever the store fails for a moment: the disk goes on, or has stopped. */
static void test_lost_while_failing(void)
{
    unsigned stops = 0, goes_on = 0;

    for (uint64_t k = 1; k < 30 && !CU_get_number_of_failures(); k++) {
        struct sent write;

        lose_member(FAILS_FOR_A_WHILE, k, &write);
        for (unsigned i = 0; i < 1000 && write.under_way; i++) {
            env.ns += 10000000;
            turn();
        }
        CU_ASSERT_FATAL(!write.under_way);
        CU_ASSERT(vdi->log.sticky ? write.request.result != 0 : !write.request.result && is_told());
        stops += vdi->log.sticky != 0;
        goes_on += !vdi->log.sticky;
        come_back(&write);
    }
    CU_ASSERT(stops > 2 && goes_on > 2);
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
        {"time of a key frame", test_time_of_keyframe},
        {"behind a hole", test_behind_a_hole},
        {"off while full", test_off_while_full},
        {"store waits", test_store_waits},
        {"snapshots wait for the store", test_snapshots_wait},
        {"memory is waited for", test_memory_waited_for},
        {"store waits by turns", test_store_waits_by_turns},
        {"fenced while it waits", test_fenced_waiting},
        {"a lost member, and the store is not told", test_lost_untold},
        {"a lost member, and the store fails", test_lost_while_failing},
        {"interrupted", test_interrupted},
        {"not while the mark goes", test_not_while_unmarked},
        {"a doubt that nobody was told of", test_doubt_untold},
    };

    return SUITE_RUN("ringed_held", tests);
}
