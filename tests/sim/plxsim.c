/* plxsim.c - replays simulated runs: plxsim [--crash] [--seed N | --from N --count N] [--trace]. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/world.h"

int main(int argc, char **argv)
{
    uint64_t from = 1, count = 1;
    bool crash = false, trace = false;
    unsigned failed = 0;

    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--crash"))
            crash = true;
        else if (!strcmp(argv[i], "--trace"))
            trace = true;
        else if (i + 1 < argc && (!strcmp(argv[i], "--seed") || !strcmp(argv[i], "--from")))
            from = strtoull(argv[++i], NULL, 0);
        else if (i + 1 < argc && !strcmp(argv[i], "--count"))
            count = strtoull(argv[++i], NULL, 0);
        else
            return fprintf(stderr, "usage: plxsim [--crash] [--seed N] [--count N] [--trace]\n"), 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (uint64_t seed = from; seed < from + count; seed++) {
        struct plx_world_options options;
        struct plx_world_result result;

        plx_world_options_random(seed, crash, &options);
        options.trace = trace;
        if (trace)
            printf("seed %llu\n", (unsigned long long)seed);
        if (!plx_world_run(&options, &result)) {
            printf("FAILED %s\n", result.failure);
            failed++;
        }
        if (count == 1)
            printf("%llu requests, %llu snapshots, %llu+%llu crashes, %llu sectors checked, "
                   "hash %016llx\n",
                   (unsigned long long)result.requests, (unsigned long long)result.snapshots,
                   (unsigned long long)result.crashes, (unsigned long long)result.recovery_crashes,
                   (unsigned long long)result.sectors_checked,
                   (unsigned long long)result.trace_hash);
    }
    return failed != 0;
}
