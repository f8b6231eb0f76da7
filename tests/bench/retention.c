/* retention.c - whether letting go keeps up, in simulated time.
 *
 *     retention [--seconds N] [--rate N] [--keep TIERS] [--disk MIB]
 *
 * Random overwrites of 4 KiB, `rate` a second, on a disk that takes a snapshot every 10 ms; the
 * clock is the load's own, so an hour takes as long as its work does. Once a second the policy is
 * applied, as the handler's service does it. At the end: what the store holds beside what must be
 * there, that is the disk's own blocks and one more for each overwrite within the window.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine.h"
#include "measure.h"
#include "queue.h"
#include "registry/policy.h"
#include "registry/retention.h"
#include "sim/simenv.h"

#define BLOCK 4096u
#define SECOND_NS 1000000000ull
#define MIB (1ull << 20)

static uint64_t seconds = 120, rate = 20000, disk_mib = 256;
static const char *keep = "all:30s";
static char path[MEASURE_PATH_MAX + 32];

static struct plx_simenv env;
static struct plx_simregistry registry;
static struct plx_store *store;
static struct plx_vdi *vdi;
static struct plx_fault fault;

static void must(int error, const char *what)
{
    if (!error)
        return;
    fprintf(stderr, "%s: %s: %s\n", what, plx_error_name(error), fault.text);
    exit(1);
}

/* ---- A store whose clock stands still ---- */

static uint64_t clock_ns(struct plx_env *e)
{
    return env.ns;
}

static struct plx_device *open_device(uint64_t bytes)
{
    struct plx_device_open_options options = {.create_bytes = bytes};
    struct plx_device *device;

    must(plx_device_open(path, &options, &device, &fault), "volume");
    return device;
}

static void open_store(uint64_t instance)
{
    struct plx_store_options options = {.instance = instance};
    struct plx_device *device = open_device(0);

    env.instance = instance;
    must(plx_store_open(&device, 1, &options, &env.env, &store, &fault), "store");
    env.store = store;
}

static void make_store(uint64_t bytes)
{
    struct plx_format_options format = {.name = "retention", .extent_bytes = 64 * MIB};
    struct plx_device *device = open_device(bytes);
    struct plx_store_info info;

    plx_simenv_init(&env, 1);
    env.env.now_ns = env.env.monotonic_ns = env.env.boot_ns = clock_ns;
    env.ns = 1000 * SECOND_NS;
    must(plx_store_format(&device, 1, &format, &env.env, &info, &fault), "format");
    plx_device_close(device);
    plx_simregistry_init(&registry, &info);
    env.registry = &registry;
    open_store(1);
}

static void make_disk(void)
{
    struct plx_vdi_create_options create = {
        .name = "v", .size_bytes = disk_mib * MIB, .sector_size = 4096};
    struct plx_vdi_open_options open = {.epoch = 1, .overwrite = -1};

    must(plx_vdi_create(store, &create, NULL, &fault), "disk");
    must(plx_vdi_open(store, &open, &vdi, &fault), "opening");
}

/* ---- Load ---- */

static uint8_t data[BLOCK];

static void write_block(uint64_t block)
{
    data[0]++;
    bench_submit(store, vdi, PLX_WRITE, block * BLOCK, BLOCK, data);
}

static int thin(void *context, const struct plx_thin *slice, struct plx_thinned *ret_thinned,
                struct plx_fault *ret_fault)
{
    return plx_vdi_thin(vdi, slice, ret_thinned, ret_fault);
}

static void run(const struct plx_protection *policy)
{
    const struct plx_retention_work work = {.thin = thin};
    uint64_t blocks = disk_mib * MIB / BLOCK, letting_go_ns = 0, start_ns;
    uint64_t random_word = MEASURE_SEED;
    struct plx_retention retention = {.thrifty = true};
    struct plx_thinned gone;

    for (uint64_t block = 0; block < blocks; block++)
        write_block(block);
    bench_drain(store);
    must(plx_vdi_set_protection(vdi, policy, &fault), "protection");
    plx_retention_set(&retention, policy);
    start_ns = measure_now_ns();
    for (uint64_t second = 0; second < seconds; second++) {
        uint64_t begun_ns;

        for (uint64_t i = 0; i < rate; i++) {
            write_block(measure_random(&random_word) % blocks);
            env.ns += SECOND_NS / rate;
        }
        bench_drain(store);
        begun_ns = measure_now_ns();
        must(plx_retention_apply(&retention, env.ns, &work, &gone, &fault), "letting go");
        letting_go_ns += measure_now_ns() - begun_ns;
    }
    printf("%llu s of it took %.1f s, %.1f of these letting go\n", (unsigned long long)seconds,
           (double)(measure_now_ns() - start_ns) / 1e9, (double)letting_go_ns / 1e9);
}

/* ---- What is left ---- */

static void finding(void *context, const struct plx_finding *finding)
{
    if (finding->severity == PLX_FINDING_ERROR)
        printf("check: %s\n", finding->text);
}

static void tell(const struct plx_protection *policy)
{
    struct plx_check_options options = {.finding = finding};
    struct plx_check_result result;
    uint64_t window = plx_min_u64(policy->tier[0].keep_ns / SECOND_NS, seconds);
    uint64_t expected = disk_mib * MIB / BLOCK + window * rate;

    must(plx_vdi_close(vdi), "closing");
    must(plx_simenv_release_all(&env, &fault), "releasing");
    must(plx_store_close(store), "closing the store");
    open_store(0);
    must(plx_store_check(store, &options, &result, &fault), "check");
    printf("%llu snapshots; blocks used %llu, live and window %llu, leaked %llu, errors %llu\n",
           (unsigned long long)result.snapshots, (unsigned long long)result.used_blocks,
           (unsigned long long)expected, (unsigned long long)result.leaked_blocks,
           (unsigned long long)result.errors);
    must(plx_store_close(store), "closing the store");
    measure_goal("space used beside live data and window", 1.05,
                 (double)result.used_blocks / (double)expected, "");
}

static void parse(int argc, char **argv)
{
    static const struct option options[] = {{"seconds", required_argument, NULL, 's'},
                                            {"rate", required_argument, NULL, 'r'},
                                            {"keep", required_argument, NULL, 'k'},
                                            {"disk", required_argument, NULL, 'd'},
                                            {0}};
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 's')
            seconds = strtoull(optarg, NULL, 10);
        else if (option == 'r')
            rate = strtoull(optarg, NULL, 10);
        else if (option == 'k')
            keep = optarg;
        else if (option == 'd')
            disk_mib = strtoull(optarg, NULL, 10);
        else
            exit(2);
    }
    if (!seconds || !rate || rate > SECOND_NS || !disk_mib) {
        fprintf(stderr, "retention: a number is missing\n");
        exit(2);
    }
}

int main(int argc, char **argv)
{
    struct plx_protection policy = {.mode = PLX_PROTECT_INTERVAL, .interval_ns = 10000000};
    uint64_t bytes;
    char folder[MEASURE_PATH_MAX];

    parse(argc, argv);
    must(plx_protection_parse_tiers(keep, &policy, &fault), "--keep");
    bytes = (2 * disk_mib + 1024) * MIB +
            2 * BLOCK * rate * plx_min_u64(policy.tier[0].keep_ns / SECOND_NS, seconds);
    bytes = bytes / (64 * MIB) * 64 * MIB;
    if (!measure_folder(bytes, folder)) {
        fprintf(stderr, "retention: no folder has room for %llu MiB\n",
                (unsigned long long)(bytes / MIB));
        return 1;
    }
    snprintf(path, sizeof path, "%s/plx-retention.%d", folder, (int)getpid());
    make_store(bytes);
    make_disk();
    run(&policy);
    tell(&policy);
    unlink(path);
    return 0;
}
