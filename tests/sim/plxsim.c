/* plxsim.c - simulated runs from seeds: one replayed, or many one after the other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sim/world.h"

static const char usage[] =
    "usage: plxsim [PROFILE] [--seed N | --from N] [--count N | --seconds N] [--trace]\n"
    "\n"
    "  PROFILE      --model   no deaths: random operations against the model\n"
    "               --crash   power cuts, killed and fenced hosts (the default)\n"
    "               --states  small disks; at many events every fate of the volatile writes is "
    "tried\n"
    "               --all     the three in turn\n"
    "  --seed N     one run, bit for bit the same each time\n"
    "  --from N     many, from this seed on: --count N of them, or for --seconds N\n"
    "  --trace      says what happens\n"
    "  --no-forks   the same run without trying other fates (to find where a trace begins to "
    "differ)\n";

enum profile {
    MODEL,
    CRASH,
    STATES,
    ALL,
};

static void options_for(enum profile profile, uint64_t seed, struct plx_world_options *ret)
{
    if (profile == ALL)
        profile = (enum profile)(seed % 3);
    if (profile == STATES)
        plx_world_options_states(seed, ret);
    else
        plx_world_options_random(seed, profile == CRASH, ret);
}

static void add(struct plx_world_result *sum, const struct plx_world_result *result)
{
    sum->requests += result->requests;
    sum->snapshots += result->snapshots;
    sum->crashes += result->crashes;
    sum->kills += result->kills;
    sum->recovery_crashes += result->recovery_crashes;
    sum->sectors_checked += result->sectors_checked;
    sum->states += result->states;
    sum->io_events += result->io_events;
}

static void print(const struct plx_world_result *sum)
{
    printf("%llu requests, %llu snapshots, %llu power cuts and %llu hosts killed, %llu deaths "
           "while recovering, %llu crash states, %llu sectors checked\n",
           (unsigned long long)sum->requests, (unsigned long long)sum->snapshots,
           (unsigned long long)sum->crashes, (unsigned long long)sum->kills,
           (unsigned long long)sum->recovery_crashes, (unsigned long long)sum->states,
           (unsigned long long)sum->sectors_checked);
}

int main(int argc, char **argv)
{
    struct plx_world_result sum = {0}, result = {0};
    uint64_t from = 1, count = 1, runs = 0, failed = 0;
    enum profile profile = CRASH;
    bool trace = false, forks = true;
    time_t until = 0;

    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--model"))
            profile = MODEL;
        else if (!strcmp(argv[i], "--crash"))
            profile = CRASH;
        else if (!strcmp(argv[i], "--states"))
            profile = STATES;
        else if (!strcmp(argv[i], "--all"))
            profile = ALL;
        else if (!strcmp(argv[i], "--trace"))
            trace = true;
        else if (!strcmp(argv[i], "--no-forks"))
            forks = false;
        else if (i + 1 < argc && (!strcmp(argv[i], "--seed") || !strcmp(argv[i], "--from")))
            from = strtoull(argv[++i], NULL, 0);
        else if (i + 1 < argc && !strcmp(argv[i], "--count"))
            count = strtoull(argv[++i], NULL, 0);
        else if (i + 1 < argc && !strcmp(argv[i], "--seconds"))
            until = time(NULL) + (time_t)strtoull(argv[++i], NULL, 0);
        else
            return fputs(usage, stderr), 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (uint64_t seed = from; until ? time(NULL) < until : runs < count; seed++, runs++) {
        struct plx_world_options options;

        options_for(profile, seed, &options);
        options.trace = trace;
        if (!forks)
            options.fork_every = 0;
        if (!plx_world_run(&options, &result)) {
            printf("FAILED %s\n", result.failure);
            failed++;
        }
        add(&sum, &result);
    }
    printf("%llu runs, %llu failed: ", (unsigned long long)runs, (unsigned long long)failed);
    print(&sum);
    if (runs == 1)
        printf("hash %016llx\n", (unsigned long long)result.trace_hash);
    return failed != 0;
}
