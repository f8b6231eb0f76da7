/* plxsim.c - simulated runs from seeds: one replayed, or many one after the other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sim/seeds.h"
#include "today.h"

static const char usage[] =
    "usage: plxsim [PROFILE] [--seed N | --from N] [--count N | --seconds N] [--trace]\n"
    "\n"
    "  PROFILE      --model   no deaths: random operations against the model\n"
    "               --crash   power cuts, killed and fenced hosts (the default)\n"
    "               --states  small disks; at many events every fate of the volatile writes is "
    "tried\n"
    "               --full    as --crash, on a store that is nearly always full\n"
    "               --reuse   as --full, without snapshots; what a key frame frees is written at "
    "once\n"
    "               --history snapshots, clones and rewinds, of which most are let go again\n"
    "               --ring    small disks of a host with a write-back ring; as --states\n"
    "               --ring-full such ones on a store that gets full\n"
    "               --ring-mirror such ones with a ring of two members, which fail and come back\n"
    "               --ring-hosts such ones, and another host that comes without the ring\n"
    "               --rings   the last four in turn\n"
    "               --ring-along such ones on a full store, where many writes go past the ring at "
    "once\n"
    "               --ring-apart such ones; the store or the host's machine alone loses power\n"
    "               --ring-faults such ones whose devices fail for a while\n"
    "               --all     --model, --crash and --states in turn\n"
    "  --seed N     one run, bit for bit the same each time\n"
    "  --from N     many, from this seed on: --count N of them, or for --seconds N\n"
    "  --today N    N of them that are other ones each day\n"
    "  --first N    this one before them\n"
    "  --at-least N fails if these worlds had fewer crash states\n"
    "  --trace      says what happens\n"
    "  --no-forks   the same run without trying other fates (to find where a trace begins to "
    "differ)\n";

enum profile {
    MODEL,
    CRASH,
    STATES,
    FULL,
    REUSE,
    HISTORY,
    RING,
    RING_FULL,
    RING_MIRROR,
    RING_HOSTS,
    RINGS,
    RING_ALONG,
    RING_APART,
    RING_FAULTS,
    ALL,
};

static void options_for(enum profile profile, uint64_t seed, struct plx_world_options *ret)
{
    /* What a run of states costs, others find more for. */
    static const enum profile turns[] = {MODEL, CRASH, MODEL, CRASH, STATES,
                                         MODEL, CRASH, MODEL, CRASH};

    if (profile == RINGS)
        profile = RING + seed % (RINGS - RING);
    if (profile == ALL)
        profile = turns[seed % (sizeof turns / sizeof turns[0])];
    if (profile == STATES)
        plx_world_options_states(seed, ret);
    else if (profile == FULL)
        plx_world_options_full(seed, true, ret);
    else if (profile == REUSE)
        plx_world_options_reuse(seed, ret);
    else if (profile == RING)
        plx_world_options_ring(seed, ret);
    else if (profile == RING_FULL)
        plx_world_options_ring_full(seed, ret);
    else if (profile == RING_ALONG)
        plx_world_options_ring_along(seed, ret);
    else if (profile == RING_MIRROR)
        plx_world_options_ring_mirror(seed, ret);
    else if (profile == RING_FAULTS)
        plx_world_options_ring_faults(seed, ret);
    else if (profile == RING_APART)
        plx_world_options_ring_apart(seed, ret);
    else if (profile == RING_HOSTS)
        plx_world_options_ring_hosts(seed, ret);
    else if (profile == HISTORY)
        plx_world_options_history(seed, ret);
    else
        plx_world_options_random(seed, profile == CRASH, ret);
}

static void print(const struct plx_world_result *sum)
{
    printf("%llu requests, %llu snapshots, %llu rewinds (%llu of them past), %llu clock jumps, "
           "%llu snapshots gone by time, %llu blocks moved, %llu joined, %llu vouched for, %llu "
           "power cuts and %llu hosts killed, %llu deaths while recovering, "
           "%llu crash states, %llu times out of space, %llu sectors checked\n",
           (unsigned long long)sum->requests, (unsigned long long)sum->snapshots,
           (unsigned long long)sum->rewinds, (unsigned long long)sum->rewinds_past,
           (unsigned long long)sum->clock_jumps, (unsigned long long)sum->gone_by_time,
           (unsigned long long)sum->moved, (unsigned long long)sum->joined,
           (unsigned long long)sum->vouched, (unsigned long long)sum->crashes,
           (unsigned long long)sum->kills, (unsigned long long)sum->recovery_crashes,
           (unsigned long long)sum->states, (unsigned long long)sum->nospace,
           (unsigned long long)sum->sectors_checked);
}

/* The program with the bug planted lies in the folder canary beside this one. */
static int become_canary(int argc, char **argv)
{
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    char *slash;

    if (argc < 3 || length < 0)
        return fputs(usage, stderr), 2;
    path[length] = 0;
    slash = strrchr(path, '/');
    snprintf(slash, sizeof path - (size_t)(slash - path), "/canary/plxsim-%s", argv[2]);
    execv(path, argv + 2);
    fprintf(stderr, "plxsim: no canary %s: build the target canaries first\n", argv[2]);
    return 2;
}

/* Runs in a child, whose assertions count as well as what it finds. */
static int expect_failure(void)
{
    int status;
    pid_t child = fork();

    if (child <= 0)
        return -1; /* the child goes on */
    if (waitpid(child, &status, 0) < 0)
        return 2;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return puts("NOT CAUGHT"), 1;
    puts("caught");
    return 0;
}

struct plan {
    uint64_t from, count, first; /* first: 0: none */
    uint64_t states_min;
    enum profile profile;
    bool trace, forks, caught;
    time_t until;
};

static bool parse(int argc, char **argv, struct plan *plan)
{
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--model"))
            plan->profile = MODEL;
        else if (!strcmp(argv[i], "--crash"))
            plan->profile = CRASH;
        else if (!strcmp(argv[i], "--states"))
            plan->profile = STATES;
        else if (!strcmp(argv[i], "--full"))
            plan->profile = FULL;
        else if (!strcmp(argv[i], "--reuse"))
            plan->profile = REUSE;
        else if (!strcmp(argv[i], "--history"))
            plan->profile = HISTORY;
        else if (!strcmp(argv[i], "--ring"))
            plan->profile = RING;
        else if (!strcmp(argv[i], "--ring-full"))
            plan->profile = RING_FULL;
        else if (!strcmp(argv[i], "--ring-along"))
            plan->profile = RING_ALONG;
        else if (!strcmp(argv[i], "--ring-mirror"))
            plan->profile = RING_MIRROR;
        else if (!strcmp(argv[i], "--ring-faults"))
            plan->profile = RING_FAULTS;
        else if (!strcmp(argv[i], "--ring-hosts"))
            plan->profile = RING_HOSTS;
        else if (!strcmp(argv[i], "--ring-apart"))
            plan->profile = RING_APART;
        else if (!strcmp(argv[i], "--rings"))
            plan->profile = RINGS;
        else if (!strcmp(argv[i], "--all"))
            plan->profile = ALL;
        else if (!strcmp(argv[i], "--trace"))
            plan->trace = true;
        else if (!strcmp(argv[i], "--no-forks"))
            plan->forks = false;
        else if (!strcmp(argv[i], "--caught"))
            plan->caught = true;
        else if (i + 1 < argc && (!strcmp(argv[i], "--seed") || !strcmp(argv[i], "--from")))
            plan->from = strtoull(argv[++i], NULL, 0);
        else if (i + 1 < argc && !strcmp(argv[i], "--today"))
            plan->from = plx_today() * (plan->count = strtoull(argv[++i], NULL, 0));
        else if (i + 1 < argc && !strcmp(argv[i], "--first"))
            plan->first = strtoull(argv[++i], NULL, 0);
        else if (i + 1 < argc && !strcmp(argv[i], "--at-least"))
            plan->states_min = strtoull(argv[++i], NULL, 0);
        else if (i + 1 < argc && !strcmp(argv[i], "--count"))
            plan->count = strtoull(argv[++i], NULL, 0);
        else if (i + 1 < argc && !strcmp(argv[i], "--seconds"))
            plan->until = time(NULL) + (time_t)strtoull(argv[++i], NULL, 0);
        else
            return false;
    }
    return true;
}

/* So that worlds which no power cut meets any more are not taken for good ones. */
static bool states_suffice(const struct plan *plan, const struct plx_world_result *sum)
{
    if (sum->states >= plan->states_min)
        return true;
    printf("FAILED: %llu crash states were judged, and there should be %llu at least: either the "
           "worlds have become shorter, or their power is not cut any more\n",
           (unsigned long long)sum->states, (unsigned long long)plan->states_min);
    return false;
}

int main(int argc, char **argv)
{
    struct plan plan = {.from = 1, .count = 1, .profile = CRASH, .forks = true};
    struct plx_world_result sum = {0}, result = {0};
    uint64_t failed = 0;

    if (argc > 1 && !strcmp(argv[1], "--canary"))
        return become_canary(argc, argv);
    if (!parse(argc, argv, &plan))
        return fputs(usage, stderr), 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (plan.caught) {
        int verdict = expect_failure();

        if (verdict >= 0)
            return verdict;
    }
    for (uint64_t next = plan.from; plan.until ? time(NULL) < plan.until : sum.runs < plan.count;) {
        uint64_t seed = plan.first && !sum.runs ? plan.first : next++;
        struct plx_world_options options;

        options_for(plan.profile, seed, &options);
        options.trace = plan.trace;
        if (!plan.forks)
            options.fork_every = 0;
        if (!plx_world_run(&options, &result)) {
            printf("FAILED %s\n", result.failure);
            failed++;
        }
        plx_world_result_add(&sum, &result);
        if (failed && plan.caught)
            break;
    }
    printf("%llu runs, %llu failed: ", (unsigned long long)sum.runs, (unsigned long long)failed);
    print(&sum);
    if (plan.profile >= RING && plan.profile < ALL)
        printf(
            "%llu times a ring was turned on or off, %llu disks opened with records on it, %llu "
            "times without room for those, %llu members lost and %llu added, %llu times the last "
            "one was refused, %llu rings stopped, %llu states with several writes past a ring, "
            "%llu "
            "disks "
            "went on without, another host looked at %llu and discarded writes of %llu, %llu times "
            "the store alone lost power and %llu times the machine\n",
            (unsigned long long)sum.ring_turns, (unsigned long long)sum.replayed,
            (unsigned long long)sum.undrained, (unsigned long long)sum.members_lost,
            (unsigned long long)sum.members_added, (unsigned long long)sum.members_refused,
            (unsigned long long)sum.rings_stopped, (unsigned long long)sum.along,
            (unsigned long long)sum.rings_aside, (unsigned long long)sum.strangers,
            (unsigned long long)sum.discarded, (unsigned long long)sum.store_cuts,
            (unsigned long long)sum.machine_cuts);
    if (sum.runs == 1)
        printf("hash %016llx\n", (unsigned long long)result.trace_hash);
    return failed != 0 || !states_suffice(&plan, &sum);
}
