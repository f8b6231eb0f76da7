/* snapshots.c - how long snapshots take under load, and what a million of them cost, on the engine.
 *
 *     snapshots load [--seconds N]    latency at queue depth 32; a snapshot every millisecond
 *     snapshots million [--count N]   one disk with so many snapshots beside one with ten
 *
 * load: 32 random overwrites of 4 KiB at once on a disk of 256 MiB. Beside them, one at a time and
 * in turns: a snapshot; and a write of 4 KiB with a flush, to a file beside the volume and through
 * the same driver, which is what the device itself takes for a durable write at that moment.
 *
 * million: per-write protection, 64 writes of 4 KiB at once all over a disk of 100 GiB. Key frames
 * come as they do by default, every 65536 mappings: the instant in the middle is opened from the
 * key frame before it and the log up to it.
 */
#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/engine.h"
#include "measure.h"
#include "attach/attach.h"
#include "attach/founding.h"

#define BLOCK 4096u
#define DEPTH_MAX 64
#define SAMPLES 200000
#define PROBES 2000
#define MANY_BYTES (100ull << 30)
#define LOAD_BYTES (256ull << 20)

static char folder[MEASURE_PATH_MAX + 32], state[PLX_PATH_MAX], volume[PLX_PATH_MAX];
static struct plx_attach *attach;
static struct plx_store *store;
static struct plx_fault fault;
static uint64_t random_word;

#define OK(call) ok_((call), #call)

static void ok_(int result, const char *call)
{
    if (!result)
        return;
    fprintf(stderr, "%s: %s: %s\n", call, plx_error_name(result), fault.text);
    exit(1);
}

static uint64_t random_offset(uint64_t bytes)
{
    return (uint64_t)(((unsigned __int128)measure_random(&random_word) * (bytes / BLOCK)) >> 64) *
           BLOCK;
}

/* ---- A store ---- */

static void open_store(void)
{
    struct plx_attach_options options = {.store = "s", .state_dir = state, .role = "admin"};

    OK(plx_attach_open(&options, &attach, &fault));
    store = plx_attach_store(attach);
}

static void make_store(uint64_t bytes)
{
    const char *paths[] = {volume};
    struct plx_format_options options = {.name = "s", .force = true};
    struct plx_store_info info;

    OK(plx_founding_format(state, paths, 1, bytes, &options, false, NULL, &info, &fault));
    open_store();
}

static void create(const char *name, uint64_t bytes)
{
    struct plx_vdi_create_options options = {.size_bytes = bytes, .sector_size = 512};
    struct plx_vdi_info info;

    snprintf(options.name, sizeof options.name, "%s", name);
    OK(plx_attach_vdi_create(attach, &options, NULL, NULL, &info, &fault));
}

static struct plx_vdi *open_disk(const char *name, const char *snapshot)
{
    struct plx_attach_vdi_options options = {.overwrite = -1};
    struct plx_vdi *vdi;

    OK(plx_attach_vdi_open(attach, name, snapshot, &options, &vdi, &fault));
    return vdi;
}

static void protect(struct plx_vdi *vdi, enum plx_protection_mode mode, uint64_t interval_ns)
{
    struct plx_protection protection = {.mode = mode, .interval_ns = interval_ns};

    OK(plx_vdi_set_protection(vdi, &protection, &fault));
}

static void turn(void)
{
    if (!plx_store_tick(store))
        plx_store_wait(store);
}

/* ---- Load ---- */

struct job {
    struct plx_request request;
    struct iovec iov;
    uint64_t started_ns;
    bool busy;
};

struct load {
    struct plx_vdi *vdi;
    uint64_t bytes, started, limit; /* limit: requests in all */
    unsigned depth, busy;
    struct job jobs[DEPTH_MAX];
    uint8_t *memory;
    uint64_t *ns, count; /* latencies, the first SAMPLES */
};

static struct load load;

static void job_done(struct plx_request *request)
{
    struct job *job = request->owner;

    fault = request->fault;
    OK(request->result);
    if (load.count < SAMPLES)
        load.ns[load.count++] = measure_now_ns() - job->started_ns;
    job->busy = false;
    load.busy--;
}

static void start_job(struct job *job)
{
    load.started++;
    memcpy(job->iov.iov_base, &load.started, sizeof load.started);
    job->request = (struct plx_request){.op = PLX_WRITE,
                                        .offset = random_offset(load.bytes),
                                        .length = BLOCK,
                                        .iov = &job->iov,
                                        .iovcnt = 1,
                                        .done = job_done,
                                        .owner = job};
    job->started_ns = measure_now_ns();
    job->busy = true;
    load.busy++;
    plx_vdi_submit(load.vdi, &job->request);
}

static void begin_load(struct plx_vdi *vdi, uint64_t bytes, unsigned depth)
{
    static uint64_t ns[SAMPLES];

    load = (struct load){.vdi = vdi, .bytes = bytes, .depth = depth, .limit = UINT64_MAX, .ns = ns};
    load.memory = aligned_alloc(BLOCK, (size_t)depth * BLOCK);
    memset(load.memory, 'x', (size_t)depth * BLOCK);
    for (unsigned i = 0; i < depth; i++)
        load.jobs[i].iov = (struct iovec){load.memory + (size_t)i * BLOCK, BLOCK};
}

static void keep_busy(void)
{
    for (unsigned i = 0; i < load.depth && load.started < load.limit; i++)
        if (!load.jobs[i].busy)
            start_job(&load.jobs[i]);
}

static void end_load(void)
{
    while (load.busy)
        turn();
    free(load.memory);
}

/* ---- The device itself ---- */

struct probe {
    struct plx_device *device;
    struct plx_io io;
    struct iovec iov;
    uint8_t *memory;
    uint64_t started_ns;
    bool busy, flushing;
    uint64_t ns[PROBES], count;
};

static void probe_done(struct plx_io *io)
{
    struct probe *probe = io->owner;

    OK(io->result);
    if (!probe->flushing) {
        probe->flushing = true;
        probe->io = (struct plx_io){.op = PLX_IO_FLUSH, .done = probe_done, .owner = probe};
        probe->device->ops->submit(probe->device, &probe->io);
        return;
    }
    probe->ns[probe->count++] = measure_now_ns() - probe->started_ns;
    probe->busy = false;
}

static void start_probe(struct probe *probe)
{
    probe->iov = (struct iovec){probe->memory, BLOCK};
    probe->io = (struct plx_io){.op = PLX_IO_WRITE,
                                .offset = random_offset(LOAD_BYTES),
                                .bytes = BLOCK,
                                .iov = &probe->iov,
                                .iovcnt = 1,
                                .done = probe_done,
                                .owner = probe};
    probe->busy = true;
    probe->flushing = false;
    probe->started_ns = measure_now_ns();
    probe->device->ops->submit(probe->device, &probe->io);
}

/* ---- Snapshots under load ---- */

struct taker {
    struct plx_request request;
    uint64_t started_ns;
    bool busy;
    uint64_t ns[PROBES], count;
};

static void taken(struct plx_request *request)
{
    struct taker *taker = request->owner;

    fault = request->fault;
    OK(request->result);
    taker->ns[taker->count++] = measure_now_ns() - taker->started_ns;
    taker->busy = false;
}

static void take(struct taker *taker, struct plx_vdi *vdi)
{
    taker->request = (struct plx_request){.op = PLX_SNAPSHOT, .done = taken, .owner = taker};
    taker->busy = true;
    taker->started_ns = measure_now_ns();
    plx_vdi_submit(vdi, &taker->request);
}

static void print_latency(const char *what, uint64_t *ns, size_t count)
{
    printf("  %-34s %7zu: median %8.3f ms, p99 %8.3f ms\n", what, count,
           (double)measure_percentile_ns(ns, count, 50) / 1e6,
           (double)measure_percentile_ns(ns, count, 99) / 1e6);
}

static void open_probe(struct probe *probe)
{
    struct plx_device_open_options options = {.create_bytes = LOAD_BYTES};
    char path[PLX_PATH_MAX + 8];

    snprintf(path, sizeof path, "%s/probe", folder);
    OK(plx_device_open(path, &options, &probe->device, &fault));
    probe->memory = aligned_alloc(BLOCK, BLOCK);
    memset(probe->memory, 'p', BLOCK);
}

static void measure_latency(struct plx_vdi *vdi, uint64_t seconds)
{
    static struct probe probe;
    static struct taker taker;
    uint64_t end = measure_now_ns() + seconds * 1000000000u;
    bool probes_next = false;
    double snapshot_ns;

    open_probe(&probe);
    begin_load(vdi, LOAD_BYTES, 32);
    while (measure_now_ns() < end && taker.count < PROBES && probe.count < PROBES) {
        keep_busy();
        if (!taker.busy && !probe.busy) {
            if (probes_next)
                start_probe(&probe);
            else
                take(&taker, vdi);
            probes_next = !probes_next;
        }
        probe.device->ops->kick(probe.device);
        plx_store_tick(store);
        probe.device->ops->poll(probe.device, false);
    }
    while (probe.busy)
        probe.device->ops->poll(probe.device, true);
    while (taker.busy)
        turn();
    end_load();
    print_latency("device, write and flush", probe.ns, probe.count);
    print_latency("snapshot", taker.ns, taker.count);
    print_latency("disk's writes, depth 32", load.ns, load.count);
    snapshot_ns = (double)measure_percentile_ns(taker.ns, taker.count, 50);
    printf("  a snapshot takes %.2f times as long as the device's own write\n",
           snapshot_ns / (double)measure_percentile_ns(probe.ns, probe.count, 50));
    measure_goal("snapshot under load, median against the disk's writes", 1.5,
                 snapshot_ns / (double)measure_percentile_ns(load.ns, load.count, 50), "times");
    plx_device_close(probe.device);
    free(probe.memory);
}

/* What is older than two seconds goes, so that a minute of it has room. The load stands still
 * meanwhile; returns for how long. */
static uint64_t let_go(struct plx_vdi *vdi)
{
    struct timespec now;
    struct plx_thin thin = {.upto = UINT64_MAX};
    struct plx_thinned thinned;
    uint64_t start = measure_now_ns();

    clock_gettime(CLOCK_REALTIME, &now);
    thin.before_ns = ((uint64_t)now.tv_sec - 2) * 1000000000u;
    OK(plx_attach_thin(attach, vdi, &thin, &thinned, &fault));
    return measure_now_ns() - start;
}

static void measure_rate(struct plx_vdi *vdi, uint64_t seconds)
{
    struct plx_counters before, after;
    uint64_t start, ns, let_go_ns = 0, next_ns = 1000000000u;
    double rate;

    protect(vdi, PLX_PROTECT_INTERVAL, PLX_INTERVAL_MIN_NS);
    begin_load(vdi, LOAD_BYTES, 32);
    plx_store_counters(store, &before);
    start = measure_now_ns();
    while ((ns = measure_now_ns() - start) < seconds * 1000000000u) {
        keep_busy();
        turn();
        if (ns < next_ns)
            continue;
        let_go_ns += let_go(vdi);
        next_ns += 1000000000u;
    }
    ns -= let_go_ns;
    plx_store_counters(store, &after);
    end_load();
    protect(vdi, PLX_PROTECT_OFF, 0);
    rate = (double)(after.snapshots_automatic - before.snapshots_automatic) * 1e9 / (double)ns;
    printf("  every millisecond for %.1f s: %.0f snapshots/s, %llu left out, %.0f writes/s, %.1f "
           "bytes "
           "of log for each\n",
           (double)ns / 1e9, rate,
           (unsigned long long)(after.snapshots_skipped - before.snapshots_skipped),
           (double)(after.writes - before.writes) * 1e9 / (double)ns,
           (double)(after.snapshot_bytes - before.snapshot_bytes) /
               (double)(after.snapshots_automatic - before.snapshots_automatic));
    measure_goal("a snapshot every millisecond, left out of 100", 5, 100 - rate / 10, "");
}

static void run_load(uint64_t seconds)
{
    struct plx_vdi *vdi;

    random_word = MEASURE_SEED;
    make_store(16ull << 30);
    create("load", LOAD_BYTES);
    vdi = open_disk("load", NULL);
    printf("snapshots under load, in %s\n", folder);
    measure_latency(vdi, seconds);
    measure_rate(vdi, seconds);
    OK(plx_attach_vdi_close(attach, vdi));
}

/* ---- A million ---- */

#define ROUNDS 6
#define WARM 500
#define SNAPSHOTS 500

struct figures {
    double read_us, write_us, snapshot_us, open_ms, close_ms;
};

static double median_of(struct plx_vdi *vdi, enum plx_request_op op, unsigned count)
{
    static uint64_t ns[PROBES];
    uint8_t *memory = aligned_alloc(BLOCK, BLOCK);
    struct iovec iov = {memory, BLOCK};

    memset(memory, 'm', BLOCK);
    for (unsigned i = 0; i < count; i++) {
        struct plx_request change = {.op = PLX_WRITE, .length = BLOCK, .iov = &iov, .iovcnt = 1};
        struct plx_request request = {.op = op,
                                      .offset = random_offset(MANY_BYTES),
                                      .length = op == PLX_SNAPSHOT ? 0 : BLOCK,
                                      .iov = &iov,
                                      .iovcnt = 1};
        uint64_t start;

        if (op == PLX_SNAPSHOT) /* else there is nothing to take */
            OK(plx_vdi_run(vdi, &change));
        start = measure_now_ns();
        OK(plx_vdi_run(vdi, &request));
        ns[i] = measure_now_ns() - start;
    }
    free(memory);
    return (double)measure_percentile_ns(ns, count, 50) / 1e3;
}

/* To blocks that fill() has written, each round others. */
static void seek_round(unsigned round, uint64_t count)
{
    random_word = MEASURE_SEED;
    for (uint64_t n = round * (WARM + 2ull * PROBES + SNAPSHOTS) % count; n; n--)
        measure_random(&random_word);
}

static struct figures figures_of(const char *name, unsigned round, uint64_t count)
{
    struct figures f;
    uint64_t start = measure_now_ns();
    struct plx_vdi *vdi = open_disk(name, NULL);

    f.open_ms = (double)(measure_now_ns() - start) / 1e6;
    seek_round(round, count);
    median_of(vdi, PLX_READ, WARM); /* inner nodes come into memory */
    f.read_us = median_of(vdi, PLX_READ, PROBES);
    f.write_us = median_of(vdi, PLX_WRITE, PROBES);
    f.snapshot_us = median_of(vdi, PLX_SNAPSHOT, SNAPSHOTS);
    start = measure_now_ns();
    OK(plx_attach_vdi_close(attach, vdi));
    f.close_ms = (double)(measure_now_ns() - start) / 1e6;
    return f;
}

/* Writes all over it, each an instant; the last `count` of them. */
static void fill(const char *name, uint64_t writes, uint64_t count)
{
    struct plx_vdi *vdi = open_disk(name, NULL);

    random_word = MEASURE_SEED;
    begin_load(vdi, MANY_BYTES, DEPTH_MAX);
    for (unsigned part = 0; part < 2; part++) {
        load.limit = part ? writes : writes - count;
        if (part)
            protect(vdi, PLX_PROTECT_WRITE, 0);
        while (load.started < load.limit) {
            keep_busy();
            turn();
        }
        while (load.busy)
            turn();
    }
    end_load();
    protect(vdi, PLX_PROTECT_OFF, 0);
    OK(plx_attach_vdi_close(attach, vdi));
}

struct page {
    unsigned count;
    uint64_t last_ns;
};

static bool count_page(void *context, const struct plx_snapshot_info *info)
{
    struct page *page = context;

    page->last_ns = info->time_ns;
    return ++page->count < 50;
}

static double time_page(uint32_t slot, uint64_t from, struct page *ret_page)
{
    uint64_t start = measure_now_ns();

    *ret_page = (struct page){0};
    OK(plx_snapshot_list(store, slot, from, count_page, ret_page, &fault));
    return (double)(measure_now_ns() - start) / 1e6;
}

static double time_instant(const char *name, uint64_t seq)
{
    char number[24];
    uint64_t start = measure_now_ns();
    struct plx_vdi *vdi;
    double ms;

    snprintf(number, sizeof number, "%llu", (unsigned long long)seq);
    vdi = open_disk(name, number);
    ms = (double)(measure_now_ns() - start) / 1e6;
    OK(plx_attach_vdi_close(attach, vdi));
    return ms;
}

static double median_figure(const struct figures *figures, size_t offset)
{
    double values[ROUNDS];

    for (unsigned i = 0; i < ROUNDS; i++)
        memcpy(&values[i], (const char *)&figures[i] + offset, sizeof values[i]);
    return measure_median(values, ROUNDS);
}

static void compare(const struct figures *ten, const struct figures *many)
{
    static const struct {
        const char *what, *unit;
        size_t offset;
        bool goal;
    } rows[] = {
        {"read", "us", offsetof(struct figures, read_us), true},
        {"write", "us", offsetof(struct figures, write_us), true},
        {"snapshot", "us", offsetof(struct figures, snapshot_us), true},
        {"open", "ms", offsetof(struct figures, open_ms), true},
        {"close", "ms", offsetof(struct figures, close_ms), false},
    };

    printf("  %-28s %10s %10s\n", "", "ten", "many");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double a = median_figure(ten, rows[i].offset), b = median_figure(many, rows[i].offset);
        char goal[64];

        printf("  %-28s %10.2f %10.2f %s, %.2f times\n", rows[i].what, a, b, rows[i].unit, b / a);
        snprintf(goal, sizeof goal, "%s, many snapshots against ten", rows[i].what);
        if (rows[i].goal)
            measure_goal(goal, 1.1, b / a, "times");
    }
}

/* In turns, either one first as often as the other: the node cache holds a part of the nodes of
 * both, and whose these are depends on who came last. */
static void compare_disks(uint64_t count)
{
    static const char *const names[] = {"ten", "many"};
    struct figures figures[2][ROUNDS];

    for (unsigned i = 0; i < 2; i++) /* not counted: then both have room */
        figures_of(names[i], 0, count);
    for (unsigned round = 0; round < ROUNDS; round++)
        for (unsigned i = 0; i < 2; i++) {
            unsigned disk = (round + i) % 2;

            figures[disk][round] = figures_of(names[disk], 1 + round, count);
        }
    compare(figures[0], figures[1]);
}

static void look_up(uint32_t slot, uint64_t newest)
{
    struct plx_snapshot_info info;
    struct page page;
    double middle_ms = time_page(slot, newest / 2, &page), newest_ms, at_ms, open_ms, worst = 0;
    uint64_t start = measure_now_ns();

    OK(plx_snapshot_at(store, slot, page.last_ns, &info, &fault));
    at_ms = (double)(measure_now_ns() - start) / 1e6;
    newest_ms = time_page(slot, newest - 49, &page);
    printf("  a page of 50 from the middle %.1f ms, the newest %.1f ms; by time %.1f ms\n",
           middle_ms, newest_ms, at_ms);
    open_ms = time_instant("many", newest / 2);
    for (unsigned i = 1; i < 16; i++) {
        double ms = time_instant("many", newest * i / 16);

        worst = ms > worst ? ms : worst;
    }
    printf("  opening the instant in the middle %.1f ms; the slowest of fifteen %.1f ms\n", open_ms,
           worst);
    measure_goal("opening an instant, the slowest of fifteen", 300, worst, "ms");
    measure_goal("a page of 50 of the list, from the middle", 300, middle_ms, "ms");
    measure_goal("finding a snapshot by time", 300, at_ms, "ms");
}

/* In place; what the disk holds by then is settled before. */
static void go_back(uint64_t seq)
{
    struct plx_vdi *vdi = open_disk("many", NULL);
    char label[PLX_REWIND_LABEL];
    struct plx_snapshot_info before;
    uint64_t start = measure_now_ns();
    double ms;

    OK(plx_attach_rewind(attach, vdi, seq, label, &before, &fault));
    ms = (double)(measure_now_ns() - start) / 1e6;
    OK(plx_attach_vdi_close(attach, vdi));
    printf("  rewinding to the middle %.1f ms\n", ms);
    measure_goal("rewinding to the middle", 300, ms, "ms");
}

static void run_million(uint64_t count)
{
    struct plx_vdi_info info;
    struct plx_vdi *vdi;
    uint64_t start;

    make_store(24ull << 30);
    create("ten", MANY_BYTES);
    create("many", MANY_BYTES);
    start = measure_now_ns();
    fill("ten", count, 10);
    fill("many", count, count);
    vdi = open_disk("many", NULL);
    plx_vdi_get_info(vdi, &info);
    OK(plx_attach_vdi_close(attach, vdi));
    printf("%llu snapshots beside ten, %llu writes each, in %s (made in %.0f s; log of %llu MiB)\n",
           (unsigned long long)info.snapshots, (unsigned long long)count, folder,
           (double)(measure_now_ns() - start) / 1e9, (unsigned long long)info.log_segments);
    OK(plx_attach_close(attach)); /* nothing of them is in memory */
    open_store();
    compare_disks(count);
    look_up(1, info.snapshots);
    go_back(info.snapshots / 2);
}

int main(int argc, char **argv)
{
    static const struct option longs[] = {
        {"seconds", 1, NULL, 's'}, {"count", 1, NULL, 'c'}, {NULL, 0, NULL, 0}};
    uint64_t seconds = 10, count = 1000000;
    bool million;
    int c;

    while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        if (c == 's')
            seconds = strtoull(optarg, NULL, 0);
        else if (c == 'c')
            count = strtoull(optarg, NULL, 0);
        else
            return 2;
    }
    million = argc - optind == 1 && strcmp(argv[optind], "million") == 0;
    if (argc - optind != 1 || (!million && strcmp(argv[optind], "load") != 0) || seconds == 0 ||
        count < 1000) {
        fprintf(stderr, "usage: snapshots load [--seconds N] | million [--count N, from 1000]\n");
        return 2;
    }
    if (!measure_folder(million ? 3 * count * BLOCK : 8ull << 30, folder)) {
        printf("skipped: no room for it; name a folder in PLX_BENCH_DIR\n");
        return 77;
    }
    strcat(folder, "/plx-snapshots-XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    snprintf(state, sizeof state, "%s/state", folder);
    snprintf(volume, sizeof volume, "%s/volume", folder);
    if (million)
        run_million(count);
    else
        run_load(seconds);
    OK(plx_attach_close(attach));
    fflush(stdout);
    if (execlp("rm", "rm", "-rf", folder, (char *)NULL) != 0)
        perror(folder);
    return 1;
}
