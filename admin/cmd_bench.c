/* cmd_bench.c - vdi bench: fio's words on the engine itself.
 *
 * CMD_BENCH-1  A request's latency runs from its submission to its completion, as fio's clat+slat.
 * CMD_BENCH-2  Nothing is allocated while the measurement runs: buffers, requests and histograms
 *     are made before it. Every written block differs from all others by a counter, and none is
 *     zero, so the engine cannot save any of the work.
 * CMD_BENCH-3  A disk that holds data is overwritten with --force only.
 * CMD_BENCH-4  Percentiles come from a histogram with 64 steps for each power of two, so they are
 *     right within 1.6 %.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "output.h"
#include "registry/policy.h"
#include "transfer.h"

#define STEPS_SHIFT 6
#define STEPS (1u << STEPS_SHIFT)
#define BUCKETS (STEPS * (64 - STEPS_SHIFT + 1))
#define DEPTH_MAX 1024

struct latencies {
    uint64_t buckets[BUCKETS];
    uint64_t count, sum_ns, min_ns, max_ns, bytes;
};

/* CMD_BENCH-4 */
static unsigned bucket_of(uint64_t ns)
{
    if (ns < STEPS)
        return (unsigned)ns;
    unsigned shift = 63 - (unsigned)__builtin_clzll(ns) - STEPS_SHIFT;
    return STEPS * (shift + 1) + (unsigned)((ns >> shift) - STEPS);
}

/* The middle of a bucket. */
static uint64_t bucket_ns(unsigned bucket)
{
    if (bucket < STEPS)
        return bucket;
    unsigned shift = bucket / STEPS - 1;
    return ((uint64_t)(STEPS + bucket % STEPS) << shift) + ((1ull << shift) >> 1);
}

static void record(struct latencies *l, uint64_t ns, uint64_t bytes)
{
    l->buckets[bucket_of(ns)]++;
    l->min_ns = l->count && l->min_ns < ns ? l->min_ns : ns;
    l->max_ns = plx_max_u64(l->max_ns, ns);
    l->sum_ns += ns;
    l->bytes += bytes;
    l->count++;
}

static uint64_t percentile(const struct latencies *l, double percent)
{
    uint64_t rank = (uint64_t)((double)l->count * percent / 100.0 + 0.999999), seen = 0;

    for (unsigned i = 0; i < BUCKETS; i++)
        if ((seen += l->buckets[i]) >= rank && seen)
            return plx_min_u64(plx_max_u64(bucket_ns(i), l->min_ns), l->max_ns);
    return l->max_ns;
}

/* ---- The run --------------------------------------------------------------------------------- */

struct bench_job {
    struct plx_request request;
    struct iovec iov;
    uint64_t started_ns;
    struct bench *bench;
};

struct bench {
    struct plx_cli *cli;
    unsigned pattern; /* index into patterns */
    uint64_t block, depth, runtime, range, mix;
    uint64_t seed, position, counter;
    struct bench_job *jobs, **idle;
    uint64_t idle_count;
    uint8_t *memory;
    struct latencies reads, writes;
    struct plx_fault fault;
    int error;
    uint64_t elapsed_ns;
    struct plx_protection protection; /* meanwhile; the disk's own comes back */
    uint64_t snapshots, skipped;
};

static const char *const patterns[] = {"read", "write", "randread", "randwrite", "randrw", NULL};
enum { READ, WRITE, RANDREAD, RANDWRITE, RANDRW };

static bool only_reads(const struct bench *bench)
{
    return bench->pattern == READ || bench->pattern == RANDREAD;
}

static uint64_t next_random(struct bench *bench) /* xorshift64* */
{
    bench->seed ^= bench->seed >> 12;
    bench->seed ^= bench->seed << 25;
    bench->seed ^= bench->seed >> 27;
    return bench->seed * 2685821657736338717ull;
}

static void on_done(struct plx_request *request)
{
    struct bench_job *job = request->owner;
    struct bench *bench = job->bench;
    bool read = request->op == PLX_READ;

    /* CMD_BENCH-1 */
    record(read ? &bench->reads : &bench->writes, plx_out_monotonic_ns() - job->started_ns,
           request->length);
    if (request->result && !bench->error) {
        bench->error = request->result;
        bench->fault = request->fault;
    }
    bench->idle[bench->idle_count++] = job;
}

static void stamp(struct bench *bench, uint8_t *buffer)
{
    for (uint64_t at = 0; at < bench->block; at += PLX_BLOCK_SIZE) {
        uint64_t mark = ++bench->counter;
        memcpy(buffer + at, &mark, sizeof mark);
    }
}

static void submit(struct bench *bench, struct bench_job *job)
{
    uint64_t blocks = bench->range / bench->block;
    bool read = bench->pattern == READ || bench->pattern == RANDREAD ||
                (bench->pattern == RANDRW && next_random(bench) % 100 < bench->mix);
    uint64_t at = bench->pattern <= WRITE
                      ? bench->position++ % blocks
                      : (uint64_t)(((unsigned __int128)next_random(bench) * blocks) >> 64);
    if (!read)
        stamp(bench, job->iov.iov_base);
    job->request = (struct plx_request){.op = read ? PLX_READ : PLX_WRITE,
                                        .offset = at * bench->block,
                                        .length = bench->block,
                                        .iov = &job->iov,
                                        .iovcnt = 1,
                                        .done = on_done,
                                        .owner = job};
    job->started_ns = plx_out_monotonic_ns();
    plx_vdi_submit(bench->cli->session.vdi, &job->request);
}

static void run(struct bench *bench)
{
    struct plx_store *store = plx_session_store(bench->cli);
    uint64_t start = plx_out_monotonic_ns();
    bool over = false;

    while (!over || bench->idle_count < bench->depth) {
        /* Not more at once than the depth: a request that completes at once is not sent again
         * before the loop has turned. */
        for (uint64_t i = over ? 0 : bench->idle_count; i; i--)
            submit(bench, bench->idle[--bench->idle_count]);
        if (!plx_store_tick(store) && bench->idle_count < (over ? bench->depth : 1))
            plx_store_wait(store);
        over = plx_out_monotonic_ns() - start >= bench->runtime * 1000000000 || bench->error ||
               plx_session_stopped();
    }
    bench->elapsed_ns = plx_max_u64(plx_out_monotonic_ns() - start, 1);
}

/* CMD_BENCH-2: before the measurement. */
static int prepare(struct bench *bench)
{
    bench->jobs = calloc(bench->depth, sizeof *bench->jobs);
    bench->idle = calloc(bench->depth, sizeof *bench->idle);
    if (!bench->jobs || !bench->idle ||
        posix_memalign((void **)&bench->memory, 4096, bench->depth * bench->block))
        return plx_cli_fail(bench->cli, PLX_ERR_NOMEM,
                            "out of memory; use a smaller --bs or --iodepth");
    for (uint64_t i = 0; i < bench->depth * bench->block; i += sizeof(uint64_t)) {
        uint64_t word = next_random(bench);
        memcpy(bench->memory + i, &word, sizeof word);
    }
    for (uint64_t i = 0; i < bench->depth; i++) {
        bench->jobs[i].bench = bench;
        bench->jobs[i].iov = (struct iovec){bench->memory + i * bench->block, bench->block};
        bench->idle[bench->idle_count++] = &bench->jobs[i];
    }
    return 0;
}

/* ---- The result ---- */

static const double percents[] = {50, 90, 95, 99, 99.9, 99.99};

static json_t *summarize(const struct bench *bench, const struct latencies *l)
{
    double seconds = (double)bench->elapsed_ns / 1e9;
    json_t *latency =
        json_pack("{s:I,s:I,s:I}", "min", (json_int_t)l->min_ns, "mean",
                  (json_int_t)(l->count ? l->sum_ns / l->count : 0), "max", (json_int_t)l->max_ns);
    json_t *result = json_pack("{s:f,s:I,s:I,s:I}", "iops", (double)l->count / seconds, "bw",
                               (json_int_t)((double)l->bytes / seconds), "ios",
                               (json_int_t)l->count, "bytes", (json_int_t)l->bytes);

    for (size_t i = 0; i < sizeof percents / sizeof percents[0]; i++) {
        char key[16];

        snprintf(key, sizeof key, "p%g", percents[i]);
        json_object_set_new(latency, key, json_integer((json_int_t)percentile(l, percents[i])));
    }
    json_object_set_new(result, "lat_ns", latency);
    return result;
}

static void add_up(struct latencies *sum, const struct latencies *l)
{
    if (!l->count)
        return;
    for (unsigned i = 0; i < BUCKETS; i++)
        sum->buckets[i] += l->buckets[i];
    sum->min_ns = sum->count ? plx_min_u64(sum->min_ns, l->min_ns) : l->min_ns;
    sum->max_ns = plx_max_u64(sum->max_ns, l->max_ns);
    sum->sum_ns += l->sum_ns;
    sum->count += l->count;
    sum->bytes += l->bytes;
}

static void print_text(const struct plx_cli *cli, const char *what, const json_t *result)
{
    static const struct plx_column columns[] = {
        {"iops", "IOPS", PLX_COLUMN_NUMBER},
        {"bw", "bandwidth/s", PLX_COLUMN_SIZE},
        {"min", "min", PLX_COLUMN_DURATION},
        {"mean", "mean", PLX_COLUMN_DURATION},
        {"p50", "p50", PLX_COLUMN_DURATION},
        {"p99", "p99", PLX_COLUMN_DURATION},
        {"p99.9", "p99.9", PLX_COLUMN_DURATION},
        {"max", "max", PLX_COLUMN_DURATION},
        {NULL, NULL, 0},
    };
    json_t *flat = json_copy(json_object_get(result, "lat_ns"));

    json_object_set(flat, "bw", json_object_get(result, "bw"));
    json_object_set_new(flat, "iops",
                        json_integer((json_int_t)json_real_value(json_object_get(result, "iops"))));
    printf("%s\n", what);
    plx_out_object(cli, columns, flat);
}

static void print_result(struct bench *bench, const struct plx_name *name)
{
    struct latencies all = {0};
    json_t *result;
    char what[80];

    add_up(&all, &bench->reads);
    add_up(&all, &bench->writes);
    result = summarize(bench, &all);
    if (!bench->cli->json) {
        snprintf(what, sizeof what, "%s, %" PRIu64 " bytes, depth %" PRIu64 ", %.1f s",
                 patterns[bench->pattern], bench->block, bench->depth,
                 (double)bench->elapsed_ns / 1e9);
        print_text(bench->cli, what, result);
        if (bench->protection.mode)
            printf("snapshots: %" PRIu64 ", %.0f a second, %" PRIu64 " left out\n",
                   bench->snapshots, (double)bench->snapshots / (double)bench->elapsed_ns * 1e9,
                   bench->skipped);
        json_decref(result);
        return;
    }
    json_object_set_new(result, "vdi", json_sprintf("%s/%s", name->store, name->vdi));
    json_object_set_new(result, "rw", json_string(patterns[bench->pattern]));
    json_object_set_new(result, "bs", json_integer((json_int_t)bench->block));
    json_object_set_new(result, "iodepth", json_integer((json_int_t)bench->depth));
    json_object_set_new(result, "runtime_ns", json_integer((json_int_t)bench->elapsed_ns));
    if (bench->protection.mode) {
        json_object_set_new(result, "snapshots", json_integer((json_int_t)bench->snapshots));
        json_object_set_new(result, "skipped", json_integer((json_int_t)bench->skipped));
    }
    if (bench->reads.count)
        json_object_set_new(result, "read", summarize(bench, &bench->reads));
    if (bench->writes.count)
        json_object_set_new(result, "write", summarize(bench, &bench->writes));
    plx_out_keys(result, "snapshots", "skipped", "read", "write", NULL);
    plx_out_json(result);
}

/* Under the protection that is to be measured. */
static int run_protected(struct bench *bench)
{
    struct plx_vdi *vdi = bench->cli->session.vdi;
    struct plx_counters before, after;
    struct plx_vdi_info info;
    int rc, restored;

    plx_vdi_get_info(vdi, &info);
    bench->protection.tiers = info.protection.tiers;
    memcpy(bench->protection.tier, info.protection.tier, sizeof info.protection.tier);
    if ((rc = plx_vdi_try_protection(vdi, &bench->protection, &bench->cli->fault)))
        return rc;
    plx_vdi_counters(vdi, &before);
    run(bench);
    plx_vdi_counters(vdi, &after);
    bench->snapshots = after.snapshots_automatic - before.snapshots_automatic;
    bench->skipped = after.snapshots_skipped - before.snapshots_skipped;
    restored = plx_vdi_try_protection(vdi, &info.protection, &bench->cli->fault);
    return bench->error ? 0 : restored;
}

static int read_options(struct bench *bench)
{
    struct plx_cli *cli = bench->cli;
    const char *every = plx_cli_get(cli, "snapshot-every");
    struct plx_fault why;
    int rc;

    if (every && plx_protection_parse_mode(every, &bench->protection, &why))
        return plx_cli_usage(cli, "--snapshot-every: %.200s", why.text);
    if ((rc = plx_cli_choice(cli, "rw", patterns, &bench->pattern)) ||
        (rc = plx_cli_size(cli, "bs", &bench->block)) ||
        (rc = plx_cli_number(cli, "iodepth", 1, DEPTH_MAX, &bench->depth)) ||
        (rc = plx_cli_number(cli, "runtime", 1, 86400, &bench->runtime)) ||
        (rc = plx_cli_number(cli, "rwmixread", 0, 100, &bench->mix)) ||
        (rc = plx_cli_size_within(cli, "size", 512, PLX_VDI_SIZE_MAX, &bench->range)))
        return rc;
    if (bench->block < 512 || bench->block > (16u << 20) || bench->block % 512)
        return plx_cli_usage(cli, "--bs is a multiple of 512 from 512 to 16M");
    if (bench->protection.mode && only_reads(bench))
        return plx_cli_usage(cli,
                             "--snapshot-every has no effect with --rw %s: a disk that is not "
                             "written takes no snapshots; give write, randwrite or randrw",
                             patterns[bench->pattern]);
    return 0;
}

/* What does not fit is refused: figures of a smaller range would pass for those of this one. */
static int check_range(struct bench *bench, const struct plx_vdi_info *info)
{
    char range[16], size[16];

    if (bench->range > info->size_bytes)
        return plx_cli_usage(bench->cli, "--size %s is more than the virtual disk has: %s",
                             plx_text_size(bench->range, range),
                             plx_text_size(info->size_bytes, size));
    if (!bench->range)
        bench->range = info->size_bytes;
    if (bench->range < bench->block || bench->block % info->sector_size)
        return plx_cli_usage(bench->cli,
                             "--bs must be a multiple of the sector size %u and fit into the "
                             "virtual disk",
                             info->sector_size);
    return 0;
}

/* CMD_BENCH-3 */
static int check_empty(struct bench *bench, const struct plx_name *name)
{
    struct plx_cli *cli = bench->cli;
    char range[16], data[16];
    uint64_t used;
    int rc;

    if (only_reads(bench) || plx_cli_get(cli, "force"))
        return 0;
    if ((rc = plx_mapped_sum(cli, cli->session.vdi, true, &used)) || !used)
        return rc;
    return plx_cli_fail(cli, PLX_ERR_EXISTS,
                        "%s/%.100s holds %s of data, and --rw %s overwrites its first %s; give "
                        "--force to lose what is there, or measure an empty virtual disk",
                        name->store, name->vdi, plx_text_size(used, data), patterns[bench->pattern],
                        plx_text_size(bench->range, range));
}

/* What is measured is the ring from the first request on, or not at all. */
static int begin_ring(struct plx_cli *cli, const struct plx_name *name)
{
    struct plx_registry_vdi row;
    struct plx_fault why;
    enum plx_ring_setting use = PLX_RING_OFF;
    int rc = plx_session_vdi_row(cli, name, &row);

    if (!rc && (rc = plx_ring_setting_load(cli->session.registry, row.id, &use)))
        plx_session_registry_fault(cli, rc);
    if (!rc && use != PLX_RING_OFF &&
        plx_attach_ring_use(cli->session.attach, cli->session.vdi, use, &why))
        plx_out_note(cli, "%s/%s: continuing without its ring: %s", name->store, name->vdi,
                     why.text);
    return rc;
}

int plx_cmd_vdi_bench(struct plx_cli *cli)
{
    struct bench bench = {0};
    struct plx_vdi_info info;
    struct plx_name name;
    int rc;

    bench = (struct bench){.cli = cli,
                           .pattern = RANDREAD,
                           .block = 4096,
                           .depth = 32,
                           .runtime = 5,
                           .mix = 50,
                           .seed = 0x9e3779b97f4a7c15ull};
    if ((rc = read_options(&bench)) || (rc = plx_cli_name(cli, 0, PLX_NAME_VDI, &name)) ||
        (rc = plx_session_open(cli, name.store, PLX_SESSION_MEASURE)) ||
        (rc = plx_session_vdi_open(cli, &name)) || (rc = begin_ring(cli, &name)))
        return rc;
    plx_vdi_get_info(cli->session.vdi, &info);
    if (!(rc = check_range(&bench, &info)) && !(rc = check_empty(&bench, &name)) &&
        !(rc = prepare(&bench))) {
        if (bench.protection.mode)
            rc = run_protected(&bench);
        else
            run(&bench);
        if (bench.error) {
            rc = bench.error;
            cli->fault = bench.fault;
        } else if (!rc) {
            print_result(&bench, &name);
        }
    }
    free(bench.jobs);
    free(bench.idle);
    free(bench.memory);
    return rc;
}
