/* test_swarm.c - random runs with power cuts, killed and fenced hosts, at any submission or
 * completion, also during recovery: nothing that was acknowledged is missing, and what was read
 * sticks.
 *
 * PLX_SEED, PLX_RUNS, PLX_TRACE: see ../sim/seeds.h.
 */
#include <stdio.h>

#include "sim/seeds.h"
#include "suite.h"

static struct plx_world_result sum;

static void many(uint64_t first, uint64_t runs, void (*adapt)(struct plx_world_options *options))
{
    struct plx_seeds seeds = {.deaths = true, .adapt = adapt};

    CU_ASSERT(plx_seeds_run(&seeds, first, runs, &sum));
}

static void test_random(void)
{
    many(1, 60, NULL);
}

static void write_back(struct plx_world_options *options)
{
    options->write_back = options->volatile_cache = true;
}

static void test_write_back(void)
{
    many(1000, 40, write_back);
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
    many(2000, 50, in_place);
}

/* Power cuts so close that most happen during recovery and the first writes after it. */
static void often(struct plx_world_options *options)
{
    options->steps = 600;
    options->crashes = 20;
}

static void test_often(void)
{
    many(3000, 30, often);
}

/* Small disks, forked at many events. */
static void states_of(struct plx_world_options *options)
{
    plx_world_options_states(options->seed, options);
}

static void test_states(void)
{
    many(5000, 30, states_of);
}

/* Seeds that once found something; runs have changed since, the cases themselves are elsewhere. */
static void test_found(void)
{
    many(784, 1, NULL); /* test_damage, "fenced reader" */
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"random operations", test_random}, {"write-back", test_write_back},
        {"in place", test_in_place},        {"often", test_often},
        {"crash states", test_states},      {"seeds that found something", test_found},
    };
    int failed = SUITE_RUN("crash", tests);

    printf("%llu swarm seeds: %llu requests, %llu deaths, %llu crash states\n",
           (unsigned long long)sum.runs, (unsigned long long)sum.requests,
           (unsigned long long)(sum.crashes + sum.kills + sum.recovery_crashes),
           (unsigned long long)sum.states);
    return failed;
}
