/* test_ringed_auto.c - a disk uses its ring while the store is slower than usual, and no longer. */
#include "engine/ring/ringed_inside.h"
#include "ok.h"
#include "suite.h"
#include "unit/ringed_world.h"

#define SECOND_NS 1000000000ull

/* Unanswered for so long, if they go to the store. */
static void slow_writes(struct sent *writes, unsigned count, unsigned ms)
{
    static uint8_t memory[BLOCK] = {1};

    for (unsigned i = 0; i < count; i++) {
        writes[i].memory = memory;
        submit(&writes[i], PLX_WRITE, (uint64_t)i * BLOCK, BLOCK, BLOCK);
    }
    while (ms--) {
        env.ns += 1000000;
        plx_store_tick(store);
    }
    while (count--)
        while (writes[count].under_way)
            turn();
}

/* RINGED_AUTO-1, RINGED_AUTO-2 */
static void test_auto(void)
{
    static struct sent writes[60];

    make(20);
    plx_ringed_auto(ringed);
    for (unsigned many = 0; many < 2; many++) {
        hold_store(true);
        for (unsigned i = 0; i < 90; i++)
            slow_writes(writes, 1, i || many ? 25 : 300);
        slow_writes(writes, 15, 210); /* the time is too short */
        CU_ASSERT(!info_of().on && !info_of().turning && info_of().automatic);
        for (unsigned i = 0; i < 40; i++)
            slow_writes(writes, many ? 60 : 1, many || i ? 10 : 600);
        CU_ASSERT(info_of().on && is_marked());
        hold_store(false);
        for (unsigned i = 0; i < 6000 && info_of().on; i++)
            slow_writes(writes, i % 100 == 0, 1);
        some_turns(200);
        CU_ASSERT(!info_of().on && !is_marked());
    }
    close_disk();
    end(false);
}

/* The ring is on, because the store has got slower. */
static void make_slow(uint64_t seed, struct sent *writes)
{
    make(seed);
    plx_ringed_auto(ringed);
    hold_store(true);
    for (unsigned i = 0; i < 90; i++)
        slow_writes(writes, 1, i ? 25 : 300);
    for (unsigned i = 0; i < 40; i++)
        slow_writes(writes, 1, i ? 10 : 600);
    CU_ASSERT(info_of().on);
}

/* It stays on while something waits for the store, and then until the store has kept up for 5 s. */
static void test_calm(void)
{
    static struct sent writes[1];
    uint64_t since_ns;

    make_slow(22, writes);
    for (unsigned i = 0; i < 80; i++) {
        slow_writes(writes, 1, 100);
        CU_ASSERT(info_of().on);
    }
    hold_store(false);
    since_ns = env.ns;
    while (info_of().on && env.ns - since_ns < 20000000000)
        slow_writes(writes, 0, 1);
    CU_ASSERT(env.ns - since_ns >= 5000000000 && env.ns - since_ns < 6000000000);
    some_turns(200);
    CU_ASSERT(!is_marked());
    close_disk();
    end(false);
}

/* What is usual: one change after the other, and the store answers after so many ms. */
static void learn(uint64_t seed, struct sent *writes, unsigned ms)
{
    make(seed);
    plx_ringed_auto(ringed);
    hold_store(true);
    for (unsigned i = 0; i < 90; i++)
        slow_writes(writes, 1, ms);
    CU_ASSERT(!info_of().on);
}

/* RINGED_AUTO-4: each change is slow, and none lasts for 200 ms. They may pause, but not for long.
 * Those of 8 ms are not slow. */
static void test_each_slow(void)
{
    static const struct {
        unsigned many, ms, pause;
        bool on;
    } loads[] = {{1, 30, 0, true},  {1, 175, 0, true}, {16, 75, 0, true},     {1, 175, 5, true},
                 {1, 75, 25, true}, {1, 8, 0, false},  {16, 150, 250, false}, {1, 175, 250, false}};
    static struct sent writes[16];

    for (unsigned l = 0; l < sizeof loads / sizeof loads[0]; l++) {
        learn(31 + l, writes, 1);
        while (ringed->automatic.learnt < 64)
            slow_writes(writes, 1, 1);
        for (unsigned i = 0; i < 100 && !info_of().on; i++) {
            slow_writes(writes, loads[l].many, loads[l].ms);
            slow_writes(NULL, 0, loads[l].pause);
        }
        CU_ASSERT_EQUAL(info_of().on, loads[l].on);
        hold_store(false);
        OK(plx_ringed_off(ringed, &fault));
        close_disk();
        end(false);
    }
}

/* RINGED_AUTO-2: many changes at once do not become usual, however often they come. Each time is
 * too short for the ring, until one lasts. */
static void test_trouble(void)
{
    static struct sent writes[60];

    learn(23, writes, 300);
    for (unsigned i = 0; i < 30; i++) {
        slow_writes(writes, 60, 180);
        slow_writes(writes, 1, 300);
        CU_ASSERT(!info_of().on && !info_of().turning);
    }
    slow_writes(writes, 60, 300);
    some_turns(200);
    CU_ASSERT(info_of().on);
    hold_store(false);
    OK(plx_ringed_off(ringed, &fault));
    close_disk();
    end(false);
}

/* RINGED_AUTO-2: a store that has been slow from the beginning is as usual. */
static void test_always_slow(void)
{
    static struct sent writes[1];

    make(24);
    plx_ringed_auto(ringed);
    hold_store(true);
    for (unsigned i = 0; i < 100; i++) {
        slow_writes(writes, 1, 600);
        CU_ASSERT(!info_of().on && !info_of().turning);
    }
    hold_store(false);
    close_disk();
    end(false);
}

/* RINGED_AUTO-2: a change that hangs does not teach that this is usual, however slow the store is
 * otherwise, and whatever it was before. */
static void test_hang(void)
{
    static const unsigned usual[] = {25, 150, 1000};
    static struct sent writes[1];

    for (unsigned u = 0; u < 3; u++) {
        learn(27, writes, usual[u]);
        slow_writes(writes, 1, 5 * usual[u] + 300);
        some_turns(200);
        CU_ASSERT(info_of().on);
        hold_store(false);
        OK(plx_ringed_off(ringed, &fault));
        close_disk();
        end(false);
    }
}

/* RINGED_AUTO-3: the store cannot take the mark. It is slow, but well again: the ring is not tried
 * before 10 s have passed. */
static void test_tried_again(void)
{
    static struct sent writes[1];
    uint64_t tried_ns;

    learn(25, writes, 25);
    fail_nodes();
    slow_writes(writes, 1, 600);
    tried_ns = env.ns;
    for (unsigned i = 0; i < 1000 && !ringed->turn_error; i++)
        turn();
    CU_ASSERT_FATAL(ringed->turn_error && !info_of().on && !vdi->log.sticky);
    plx_simdisk_heal(disk);
    for (unsigned i = 0; i < 1000 && ringed->state != PLX_RINGED_OFF; i++) {
        env.ns += 10000000;
        turn();
    }
    CU_ASSERT_EQUAL(ringed->state, PLX_RINGED_OFF);
    while (ringed->state == PLX_RINGED_OFF && env.ns - tried_ns < 20 * SECOND_NS)
        slow_writes(writes, 1, 600);
    CU_ASSERT(env.ns - tried_ns >= 9 * SECOND_NS && env.ns - tried_ns < 12 * SECOND_NS);
    some_turns(200);
    CU_ASSERT(info_of().on);
    hold_store(false);
    OK(plx_ringed_off(ringed, &fault));
    close_disk();
    end(true);
}

/* RINGED_AUTO-1: the ring stays on while more than 1 MiB waits for the store, though nothing waits
 * for it longer than usual. Each burst is followed by a pause in which the store gets all of it. */
static void test_much(void)
{
    static struct sent writes[60];

    ring_segments = 128;
    learn(26, writes, 300);
    slow_writes(writes, 60, 300);
    some_turns(200);
    CU_ASSERT_FATAL(info_of().on);
    for (unsigned s = 0; s < 15; s++) {
        hold_store(true);
        for (unsigned i = 0; i < 3; i++)
            submit_byte(&writes[i], i, 128, (int)i);
        slow_writes(NULL, 0, 100);
        CU_ASSERT(ringed->drain.bytes_left > PLX_RINGED_LAST_BYTES);
        hold_store(false);
        slow_writes(NULL, 0, 900);
        CU_ASSERT(info_of().on && !ringed->drain.bytes_left);
        for (unsigned i = 0; i < 3; i++)
            free(writes[i].memory);
    }
    slow_writes(NULL, 0, 6000);
    some_turns(200);
    CU_ASSERT(!info_of().on && !is_marked());
    close_disk();
    end(false);
    ring_segments = SEGMENTS;
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"by itself", test_auto},          {"calm", test_calm},
        {"each slow", test_each_slow},     {"trouble", test_trouble},
        {"always slow", test_always_slow}, {"hang", test_hang},
        {"tried again", test_tried_again}, {"much", test_much},
    };

    return SUITE_RUN("ringed_auto", tests);
}
