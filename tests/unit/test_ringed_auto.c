/* test_ringed_auto.c - a disk uses its ring while the store is slower than usual, and no longer. */
#include "ok.h"
#include "suite.h"
#include "unit/ringed_world.h"

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
            slow_writes(writes, 1, i ? 25 : 300);
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

int main(void)
{
    static const struct suite_test tests[] = {
        {"by itself", test_auto},
        {"calm", test_calm},
    };

    return SUITE_RUN("ringed_auto", tests);
}
