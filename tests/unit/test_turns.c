/* test_turns.c - whose history gives way (turns.c), with times that are right, too late and too
 * early. */
#include <stdlib.h>
#include <string.h>

#include "registry/turns.h"
#include "suite.h"

#define DISKS 9u
#define HOUR 3600000000000ull
#define NOW (400000 * HOUR)

static struct plx_turn turns[DISKS];
static unsigned lost[DISKS]; /* steps */
static uint64_t steps;

/* Disks that are dated, the oldest one last. */
static void begin(void)
{
    memset(lost, 0, sizeof lost);
    steps = 1000; /* the service has run for a while */
    for (unsigned i = 0; i < DISKS; i++)
        turns[i] = (struct plx_turn){NOW - (i + 1) * HOUR, true, steps};
}

static unsigned next(unsigned disks)
{
    unsigned found = 0;

    for (unsigned i = 1; i < disks; i++)
        if (plx_turns_before(&turns[i], &turns[found], steps, disks))
            found = i;
    return found;
}

/* One step of the first so many disks; returns which. */
static unsigned step(unsigned disks)
{
    unsigned found = next(disks);

    turns[found].last = ++steps;
    lost[found]++;
    return found;
}

static void test_dated(void)
{
    begin();
    for (unsigned i = 0; i < 100; i++)
        CU_ASSERT_EQUAL(step(DISKS), DISKS - 1);
    turns[DISKS - 1].oldest_ns = NOW;
    CU_ASSERT_EQUAL(step(DISKS), DISKS - 2);
}

/* Disks 2 and 5 are not dated, whatever their times say: too late, or too early. */
static void test_wrong(void)
{
    static const uint64_t wrong_ns[] = {0, 1, NOW - HOUR / 2, NOW + 1000 * HOUR, UINT64_MAX};

    for (unsigned i = 0; i < sizeof wrong_ns / sizeof wrong_ns[0]; i++) {
        begin();
        turns[2].dated = turns[5].dated = false;
        turns[2].oldest_ns = turns[5].oldest_ns = wrong_ns[i];
        for (unsigned n = 0; n < 100 * DISKS; n++)
            step(DISKS);
        CU_ASSERT(lost[2] >= 99 && lost[2] <= 101);
        CU_ASSERT(lost[5] >= 99 && lost[5] <= 101);
        CU_ASSERT_EQUAL(lost[DISKS - 1], 100 * DISKS - lost[2] - lost[5]);
    }
}

/* One alone, two of which one is dated, and looks that end after one step. */
static void test_few(void)
{
    begin();
    turns[0].dated = false;
    turns[0].oldest_ns = UINT64_MAX;
    CU_ASSERT_EQUAL(step(1), 0);
    for (unsigned i = 0; i < 10; i++) {
        CU_ASSERT_EQUAL(step(2), 1);
        CU_ASSERT_EQUAL(step(2), 0);
    }
}

static void test_none_dated(void)
{
    begin();
    for (unsigned i = 0; i < DISKS; i++)
        turns[i].dated = false;
    for (unsigned n = 0; n < 10 * DISKS; n++)
        step(DISKS);
    for (unsigned i = 0; i < DISKS; i++)
        CU_ASSERT_EQUAL(lost[i], 10);
}

/* Doubts come and go: nobody who is in doubt waits for long, and one disk comes before all others.
 */
static void test_changing(void)
{
    begin();
    for (unsigned n = 0; n < 20000; n++) {
        unsigned at = (unsigned)rand() % DISKS, found;

        turns[at].dated = rand() % 3 != 0;
        turns[at].oldest_ns = (uint64_t)rand() * HOUR;
        found = next(DISKS);
        for (unsigned i = 0; i < DISKS; i++) {
            CU_ASSERT_FALSE(i != found && plx_turns_before(&turns[i], &turns[found], steps, DISKS));
            CU_ASSERT(turns[i].dated || turns[found].last <= turns[i].last ||
                      steps - turns[i].last < DISKS);
        }
        step(DISKS);
    }
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"dated disks", test_dated},
        {"wrong times", test_wrong},
        {"few disks", test_few},
        {"no disk is dated", test_none_dated},
        {"changing doubts", test_changing},
    };
    const char *seed = getenv("PLX_SEED");

    srand(seed ? (unsigned)atoi(seed) : 1);
    return SUITE_RUN("turns", tests);
}
