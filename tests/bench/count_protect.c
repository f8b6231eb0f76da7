/* count_protect.c - what an automatic snapshot costs of the log, in the simulation, for
 * tests/bench/counts.
 *
 * A disk takes a snapshot every 10 ms while it is written, on a device with logical blocks of 512
 * bytes. Its record costs nothing where it lies in the padding of a batch, and a block where
 * nothing joins it; so it is the load that says. Simulated disk and clock, one thread, a fixed
 * seed. Of each load are printed: snapshots, bytes of log that would not be there without them,
 * and how many were left out.
 */
#include <stdio.h>
#include <string.h>

#include "measure.h"
#include "ok.h"
#include "queue.h"
#include "suite.h"
#include "unit/fixture.h"

#define MS 1000000ull
#define DISK (64 * MIB)
#define SECONDS 20u

static const struct load {
    const char *name;
    unsigned writes;   /* in a millisecond, at random up to so many */
    unsigned lasts_ms; /* a burst */
    unsigned pause_ms; /* after it: at random, so much on average */
} loads[] = {
    {"a write each ms", 1, 1, 0},
    {"up to 64 at once each ms", 64, 1, 0},
    {"a write, some 10 ms apart", 1, 1, 10},
    {"a write, some 20 ms apart", 1, 1, 20},
    {"a write, some 50 ms apart", 1, 1, 50},
    {"20 ms long, some 10 ms apart", 8, 20, 10},
    {"20 ms long, some 20 ms apart", 8, 20, 20},
    {"20 ms long, some 50 ms apart", 8, 20, 50},
    {"20 ms long, some 500 ms apart", 8, 20, 500},
};

static struct plx_vdi *vdi;
static uint64_t random_word;

static void pass_ms(uint64_t ms)
{
    for (; ms; ms--) {
        env.ns += MS;
        while (plx_store_tick(store))
            continue;
    }
}

static void write_burst(const struct load *load)
{
    for (unsigned ms = 0; ms < load->lasts_ms; ms++) {
        uint64_t count = 1 + measure_random(&random_word) % load->writes;

        for (uint64_t i = 0; i < count; i++)
            bench_submit(store, vdi, PLX_WRITE,
                         measure_random(&random_word) % (DISK / BLOCK) * BLOCK, BLOCK, buffer);
        bench_drain(store);
        pass_ms(1);
    }
}

static void run_load(const struct load *load)
{
    struct plx_protection policy = {.mode = PLX_PROTECT_INTERVAL,
                                    .interval_ns = 10 * MS,
                                    .tiers = 1,
                                    .tier = {{0, 3600000 * MS}}};
    struct plx_counters before, after;
    uint64_t end_ns;

    random_word = MEASURE_SEED;
    memset(buffer, 'x', BLOCK);
    vdi = make_with_vdi(4096 * MIB, 64 * MIB, DISK);
    OK(plx_vdi_set_protection(vdi, &policy, &fault));
    plx_store_counters(store, &before);
    for (end_ns = env.ns + SECONDS * 1000 * MS; env.ns < end_ns;) {
        write_burst(load);
        if (load->pause_ms)
            pass_ms(measure_random(&random_word) % (2 * load->pause_ms));
    }
    plx_store_counters(store, &after);
    printf("%s\t%llu\t%llu\t%llu\n", load->name,
           (unsigned long long)(after.snapshots_automatic - before.snapshots_automatic),
           (unsigned long long)(after.snapshot_bytes - before.snapshot_bytes),
           (unsigned long long)(after.snapshots_skipped - before.snapshots_skipped));
    fflush(stdout);
    OK(plx_vdi_close(vdi));
    check_store(false);
    end_store();
}

static void run_loads(void)
{
    for (const struct load *load = loads; load < loads + sizeof loads / sizeof loads[0]; load++)
        run_load(load);
}

int main(void)
{
    static const struct suite_test tests[] = {{"loads", run_loads}};

    fixture.disk.patience = 0;
    fixture.open.cache_bytes = 64 * MIB;
    return SUITE_RUN("protecting", tests);
}
