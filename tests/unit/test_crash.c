/* test_crash.c - random operations and power cuts, at any submission or completion, also during
 * recovery: nothing that was acknowledged is missing, and what was read after a crash sticks.
 *
 * PLX_SEED=n replays one seed, PLX_RUNS=n runs so many; a failure names its seed.
 */
#include <CUnit/Basic.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim/world.h"

static uint64_t crashes, requests;

static void run_seed(uint64_t seed, void (*adapt)(struct plx_world_options *options))
{
    struct plx_world_options options;
    struct plx_world_result result;
    bool good;

    plx_world_options_random(seed, true, &options);
    if (adapt)
        adapt(&options);
    good = plx_world_run(&options, &result);
    if (!good)
        printf("\n  %s\n", result.failure);
    CU_ASSERT(good);
    crashes += result.crashes + result.recovery_crashes;
    requests += result.requests;
}

static void many(uint64_t first, uint64_t runs, void (*adapt)(struct plx_world_options *options))
{
    const char *seed = getenv("PLX_SEED"), *count = getenv("PLX_RUNS");

    if (seed) {
        run_seed(strtoull(seed, NULL, 0), adapt);
        return;
    }
    runs = count ? strtoull(count, NULL, 0) : runs;
    for (uint64_t i = 0; i < runs; i++)
        run_seed(first + i, adapt);
}

static void test_random(void)
{
    many(1, 250, NULL);
}

static void write_back(struct plx_world_options *options)
{
    options->write_back = options->volatile_cache = true;
}

static void test_write_back(void)
{
    many(1000, 80, write_back);
}

/* Few blocks, little but writes and snapshots of them: what is overwritten in place, when. */
static void in_place(struct plx_world_options *options)
{
    options->vdis = 1;
    options->vdi_bytes = 256u << 10;
    options->copy = false;
    options->sync_weight = 2;
    options->crashes = 8;
}

static void test_in_place(void)
{
    many(2000, 120, in_place);
}

/* Power cuts so close that most happen during recovery and the first writes after it. */
static void often(struct plx_world_options *options)
{
    options->steps = 600;
    options->crashes = 20;
}

static void test_often(void)
{
    many(3000, 50, often);
}

/* Seeds that once found something. */
static void test_found(void)
{
    many(12477, 1, NULL); /* a view that nobody was told of */
    many(50968, 1, NULL); /* two key frames at one log position */
}

int main(void)
{
    CU_pSuite suite;
    unsigned failures;

    CU_initialize_registry();
    suite = CU_add_suite("crash", NULL, NULL);
    CU_add_test(suite, "random operations", test_random);
    CU_add_test(suite, "write-back", test_write_back);
    CU_add_test(suite, "in place", test_in_place);
    CU_add_test(suite, "often", test_often);
    CU_add_test(suite, "seeds that found something", test_found);
    CU_basic_set_mode(CU_BRM_NORMAL);
    CU_basic_run_tests();
    failures = CU_get_number_of_failures();
    CU_cleanup_registry();
    printf("%llu requests, %llu power cuts\n", (unsigned long long)requests,
           (unsigned long long)crashes);
    return failures != 0;
}
