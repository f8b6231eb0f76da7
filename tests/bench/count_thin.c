/* count_thin.c - what letting go by tiers costs, in the simulation, for tests/bench/counts.
 *
 *     count_thin [LOAD]
 *
 * A disk that takes a snapshot every 10 ms has random overwrites at a steady rate, and the policy
 * is applied as often as the handler's service does it. Simulated disk and clock, one thread, fixed
 * seeds: an hour takes as long as its work does, and counts the same each time. Of each load are
 * printed: how many boundaries of tiers it passes, and whether the end is one; bytes of log as
 * first written, written in all, read; key frames; snapshots that were taken, and that stay. Then
 * the store is checked, every block of it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure.h"
#include "ok.h"
#include "queue.h"
#include "registry/policy.h"
#include "registry/retention.h"
#include "suite.h"
#include "unit/fixture.h"

#define SECOND_NS 1000000000ull
#define MINUTE 60u
#define HOUR (60 * MINUTE)
#define DISK (64 * MIB)
#define BEGIN_NS (1000000 * SECOND_NS)

static const struct load {
    const char *name, *tiers;
    unsigned boundaries; /* that what is written passes in this time */
    bool ends;           /* the last of them is the end of all tiers, where nothing is kept */
    unsigned rate;       /* writes a second */
    unsigned seconds;
    uint64_t store;
} loads[] = {
    {"all:1m,1s:10m", "all:1m,1s:10m", 2, true, 100, HOUR, 8192 * MIB},
    {"all:1m,1s:10m, slowly", "all:1m,1s:10m", 2, true, 10, HOUR, 8192 * MIB},
    {"all:10s,1s:1m, fast", "all:10s,1s:1m", 2, true, 2000, 3 * MINUTE, 8192 * MIB},
    {"four boundaries", "all:1m,1s:5m,10s:20m,1m:40m", 4, true, 50, HOUR, 8192 * MIB},
    {"by default", PLX_TIERS_DEFAULT, 1, false, 20, 2 * HOUR, 8192 * MIB},
};

static const struct load *load;
static struct plx_vdi *vdi;
static uint64_t random_word, gone_in_all;

static uint64_t clock_ns(struct plx_env *e)
{
    return env.ns;
}

/* ---- Load ---- */

static void write_block(uint64_t block)
{
    bench_submit(store, vdi, PLX_WRITE, block * BLOCK, BLOCK, buffer);
}

static void pass_until(uint64_t ns)
{
    if (env.ns < ns)
        env.ns = ns;
    while (plx_store_tick(store))
        continue;
}

static int thin(void *context, const struct plx_thin *slice, struct plx_thinned *ret_thinned,
                struct plx_fault *ret_fault)
{
    return plx_vdi_thin(vdi, slice, ret_thinned, ret_fault);
}

static void run_for(const struct plx_protection *policy)
{
    const struct plx_retention_work work = {.thin = thin};
    uint64_t blocks = DISK / BLOCK, gap_ns = SECOND_NS / load->rate, begun_ns = env.ns;
    uint64_t look_ns = begun_ns, looks_ns = plx_retention_interval_ns(policy);
    struct plx_retention retention = {.thrifty = true};
    struct plx_thinned gone;

    plx_retention_set(&retention, policy);
    for (uint64_t i = 0; i < (uint64_t)load->seconds * load->rate; i++) {
        pass_until(begun_ns + i * gap_ns);
        write_block(measure_random(&random_word) % blocks);
        if (env.ns < look_ns)
            continue;
        bench_drain(store);
        OK(plx_retention_apply(&retention, env.ns, &work, &gone, &fault));
        gone_in_all += gone.snapshots;
        look_ns += looks_ns;
    }
    bench_drain(store);
}

static void run_load(void)
{
    struct plx_protection policy = {.mode = PLX_PROTECT_INTERVAL, .interval_ns = 10000000};
    struct plx_counters before, after;

    random_word = MEASURE_SEED;
    gone_in_all = 0;
    memset(buffer, 'x', BLOCK);
    make_store(load->store, 64 * MIB);
    env.env.now_ns = env.env.monotonic_ns = clock_ns;
    env.ns = BEGIN_NS;
    OK(create_vdi(0, DISK));
    vdi = open_vdi(0);
    for (uint64_t block = 0; block < DISK / BLOCK; block++)
        write_block(block);
    bench_drain(store);
    OK(plx_protection_parse_tiers(load->tiers, &policy, &fault));
    OK(plx_vdi_set_protection(vdi, &policy, &fault));
    plx_store_counters(store, &before);
    run_for(&policy);
    plx_store_counters(store, &after);
    printf("%s\t%u\t%d\t%llu\t%llu\t%llu\t%llu\t%llu\t%llu\n", load->name, load->boundaries,
           load->ends, (unsigned long long)(after.batch_bytes - before.batch_bytes),
           (unsigned long long)(after.device_write_bytes[PLX_KIND_LOG] -
                                before.device_write_bytes[PLX_KIND_LOG]),
           (unsigned long long)(after.device_read_bytes[PLX_KIND_LOG] -
                                before.device_read_bytes[PLX_KIND_LOG]),
           (unsigned long long)(after.keyframes - before.keyframes),
           (unsigned long long)(after.snapshots - before.snapshots),
           (unsigned long long)(after.snapshots - before.snapshots - gone_in_all));
    fflush(stdout);
    OK(plx_vdi_close(vdi));
    check_store(false);
    end_store();
}

static const char *only;

static void run_loads(void)
{
    for (load = loads; load < loads + sizeof loads / sizeof loads[0]; load++)
        if (!only || strcmp(only, load->name) == 0)
            run_load();
}

int main(int argc, char **argv)
{
    static const struct suite_test tests[] = {{"loads", run_loads}};

    only = argc > 1 ? argv[1] : NULL;
    fixture.disk.patience = 0;
    fixture.open.cache_bytes = 64 * MIB;
    return SUITE_RUN("letting go", tests);
}
