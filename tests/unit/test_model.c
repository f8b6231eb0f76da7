/* test_model.c - random operations against the oracle, without power cuts: every byte read, of
 * every instant, is one that was written there last or is just being written.
 *
 * PLX_SEED, PLX_RUNS, PLX_TRACE: see ../sim/seeds.h.
 */

#include "sim/seeds.h"
#include "suite.h"

static void many(uint64_t first, uint64_t runs, void (*adapt)(struct plx_world_options *options))
{
    struct plx_seeds seeds = {.adapt = adapt};

    CU_ASSERT(plx_seeds_run(&seeds, first, runs, NULL));
}

static void test_random(void)
{
    many(1, 100, NULL);
}

static void write_back(struct plx_world_options *options)
{
    options->write_back = options->volatile_cache = true;
}

static void test_write_back(void)
{
    many(1000, 15, write_back);
}

static void full(struct plx_world_options *options)
{
    plx_world_options_full(options->seed, options->crashes, options);
}

static void test_full(void)
{
    struct plx_world_result sum = {0};
    struct plx_seeds seeds = {.adapt = full}, deaths = {.adapt = full, .deaths = true};

    CU_ASSERT(plx_seeds_run(&seeds, 2000, 20, &sum));
    CU_ASSERT(plx_seeds_run(&deaths, 2100, 20, &sum));
    CU_ASSERT(sum.nospace > 0 || sum.runs < 40);
}

static void reuse(struct plx_world_options *options)
{
    plx_world_options_reuse(options->seed, options);
}

static void test_reuse(void)
{
    struct plx_seeds seeds = {.adapt = reuse, .deaths = true};

    CU_ASSERT(plx_seeds_run(&seeds, 2200, 20, NULL));
}

/* I/O errors now and then. */
static void faulty(struct plx_world_options *options)
{
    options->faults = 2;
}

static void test_faults(void)
{
    many(3000, 20, faulty);
}

/* Reads that return other bytes: an error is right, wrong data is not. */
static void lying(struct plx_world_options *options)
{
    options->copy = true;
    options->lies = 10;
    options->cache_bytes = 1;
}

static void test_lies(void)
{
    many(4000, 30, lying);
}

static void test_deterministic(void)
{
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct plx_world_options options;
        struct plx_world_result once, again;

        plx_world_options_random(seed, seed & 1, &options);
        options.steps = 800;
        plx_world_run(&options, &once);
        plx_world_run(&options, &again);
        CU_ASSERT_EQUAL(once.trace_hash, again.trace_hash); /* INV-10 */
    }
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"random operations", test_random},
        {"write-back", test_write_back},
        {"a full store", test_full},
        {"a full store, used again at once", test_reuse},
        {"I/O errors", test_faults},
        {"reads that lie", test_lies},
        {"the same seed gives the same run", test_deterministic},
    };

    return SUITE_RUN("model", tests);
}
