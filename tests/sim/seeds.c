/* seeds.c - see seeds.h. */
#include "sim/seeds.h"

#include <stdio.h>
#include <stdlib.h>

#include "today.h"

static bool run_seed(const struct plx_seeds *seeds, uint64_t seed, struct plx_world_result *sum)
{
    struct plx_world_options options;
    struct plx_world_result result;
    bool good;

    plx_world_options_random(seed, seeds->deaths, &options);
    if (seeds->adapt)
        seeds->adapt(&options);
    options.trace = getenv("PLX_TRACE") != NULL;
    good = plx_world_run(&options, &result);
    if (!good)
        printf("\n  %s\n", result.failure);
    if (sum)
        plx_world_result_add(sum, &result);
    return good;
}

bool plx_seeds_run(const struct plx_seeds *seeds, uint64_t first, uint64_t runs,
                   struct plx_world_result *sum)
{
    const char *seed = getenv("PLX_SEED"), *count = getenv("PLX_RUNS");
    uint64_t all = runs, begin = 0;
    bool good = true;

    if (seed)
        return run_seed(seeds, strtoull(seed, NULL, 0), sum);
    if (count)
        runs = strtoull(count, NULL, 0);
    if (runs < all)
        begin = plx_today() * runs;
    else
        all = runs;
    for (uint64_t i = 0; i < runs; i++)
        good = run_seed(seeds, first + (begin + i) % all, sum) && good;
    return good;
}

void plx_world_result_add(struct plx_world_result *sum, const struct plx_world_result *result)
{
    sum->runs++;
    sum->requests += result->requests;
    sum->snapshots += result->snapshots;
    sum->rewinds += result->rewinds;
    sum->rewinds_past += result->rewinds_past;
    sum->clock_jumps += result->clock_jumps;
    sum->gone_by_time += result->gone_by_time;
    sum->moved += result->moved;
    sum->joined += result->joined;
    sum->vouched += result->vouched;
    sum->crashes += result->crashes;
    sum->kills += result->kills;
    sum->recovery_crashes += result->recovery_crashes;
    sum->sectors_checked += result->sectors_checked;
    sum->states += result->states;
    sum->io_events += result->io_events;
    sum->nospace += result->nospace;
    sum->ring_turns += result->ring_turns;
    sum->replayed += result->replayed;
    sum->undrained += result->undrained;
    sum->along += result->along;
    sum->strangers += result->strangers;
    sum->discarded += result->discarded;
    sum->store_cuts += result->store_cuts;
    sum->machine_cuts += result->machine_cuts;
    sum->rings_aside += result->rings_aside;
    sum->rings_stopped += result->rings_stopped;
    sum->members_lost += result->members_lost;
    sum->members_added += result->members_added;
    sum->members_refused += result->members_refused;
}
