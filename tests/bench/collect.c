/* collect.c - what collecting garbage costs, and what it brings.
 *
 *     collect speed [--gigabytes N]   time for each byte of the store, and of metadata
 *     collect memory                  of a collection on a store of 32 TiB
 *     collect family [--clones N]     RSnap's experiment (its chapter 5.5): a base is deleted under
 *                                     its clones
 *
 * All go through plx_attach_collect(), as the handler and the parallax command do. Volumes are
 * sparse: opening one is wrapped at link time, and where a benchmark says so, data is acknowledged
 * and not written. The collector never reads any. Metadata is written, and read past the page cache
 * (O_DIRECT).
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/care/blockmap.h"
#include "measure.h"
#include "queue.h"
#include "attach/attach.h"
#include "attach/founding.h"

#define BLOCK PLX_BLOCK_SIZE
#define MIB (1ull << 20)
#define GB 1000000000ull
#define CHUNK (256u << 10)

static char folder[MEASURE_PATH_MAX + 32];
static struct plx_attach *attach;
static struct plx_fault fault;

static void must(int error, const char *what)
{
    if (!error)
        return;
    fprintf(stderr, "%s: %s: %s\n", what, plx_error_name(error), fault.text);
    exit(1);
}

/* ---- Volumes without data ---- */

static bool data_is_dropped;
static struct plx_io *dropped; /* acknowledged with the next poll */
static const struct plx_device_ops *real;

static void sparse_submit(struct plx_device *device, struct plx_io *io)
{
    if (!data_is_dropped || io->op != PLX_IO_WRITE || io->kind != PLX_KIND_DATA) {
        real->submit(device, io);
        return;
    }
    io->next = dropped;
    dropped = io;
}

static bool sparse_kick(struct plx_device *device)
{
    return real->kick(device);
}

static int sparse_poll(struct plx_device *device, bool wait)
{
    struct plx_io *io = dropped;
    int count = 0;

    dropped = NULL;
    while (io) {
        struct plx_io *next = io->next;

        io->result = 0;
        io->done(io);
        io = next;
        count++;
    }
    return count + real->poll(device, wait && !count);
}

static void sparse_close(struct plx_device *device)
{
    real->close(device);
}

static const struct plx_device_ops sparse = {
    .submit = sparse_submit,
    .kick = sparse_kick,
    .poll = sparse_poll,
    .close = sparse_close,
};

int __real_plx_device_open(const char *name, const struct plx_device_open_options *options,
                           struct plx_device **ret_device, struct plx_fault *ret_fault);
int __wrap_plx_device_open(const char *name, const struct plx_device_open_options *options,
                           struct plx_device **ret_device, struct plx_fault *ret_fault);

int __wrap_plx_device_open(const char *name, const struct plx_device_open_options *options,
                           struct plx_device **ret_device, struct plx_fault *ret_fault)
{
    int error = __real_plx_device_open(name, options, ret_device, ret_fault);

    if (error)
        return error;
    real = (*ret_device)->ops;
    (*ret_device)->ops = &sparse;
    return 0;
}

/* ---- Stores and disks ---- */

/* Metadata of several GB is to come from a disk; what is small may be in memory. */
static const char *large_place(void)
{
    const char *place = getenv("PLX_BENCH_DIR");

    return place ? place : "/var/tmp";
}

static const char *small_place(void)
{
    static char place[MEASURE_PATH_MAX];

    return measure_folder(2 * GB, place) ? place : "/var/tmp";
}

static void make_store(const char *place, unsigned volumes, uint64_t volume_bytes,
                       uint64_t extent_bytes)
{
    struct plx_format_options format = {.name = "s", .extent_bytes = extent_bytes};
    char state[sizeof folder + 8], volume[4][sizeof folder + 8];
    const char *paths[4] = {volume[0], volume[1], volume[2], volume[3]};
    struct plx_attach_options options = {.store = "s", .state_dir = state, .role = "admin"};
    struct plx_store_info info;

    snprintf(folder, sizeof folder, "%s/plx-collect-XXXXXX", place);
    if (!mkdtemp(folder)) {
        perror(folder);
        exit(1);
    }
    snprintf(state, sizeof state, "%s/state", folder);
    for (unsigned i = 0; i < volumes; i++)
        snprintf(volume[i], sizeof volume[i], "%s/%u.plx", folder, i);
    must(plx_founding_format(state, paths, volumes, volume_bytes, &format, false, NULL, &info,
                             &fault),
         "format");
    must(plx_attach_open(&options, &attach, &fault), "attach");
}

static void drop_store(void)
{
    char command[sizeof folder + 16];

    must(plx_attach_close(attach), "detach");
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command) != 0)
        printf("left behind: %s\n", folder);
}

static struct plx_vdi *open_disk(const char *name)
{
    struct plx_attach_vdi_options options = {.overwrite = -1, .write_back = true};
    struct plx_vdi *vdi;

    must(plx_attach_vdi_open(attach, name, NULL, &options, &vdi, &fault), name);
    return vdi;
}

static struct plx_vdi *make_disk(const char *name, uint64_t bytes, const char *parent,
                                 const char *snapshot)
{
    struct plx_vdi_create_options options = {.size_bytes = bytes, .sector_size = BLOCK};
    struct plx_vdi_info info;

    snprintf(options.name, sizeof options.name, "%s", name);
    must(plx_attach_vdi_create(attach, &options, parent, snapshot, &info, &fault), name);
    return open_disk(name);
}

static void submit(struct plx_vdi *vdi, enum plx_request_op op, uint64_t offset, uint64_t length,
                   void *data)
{
    bench_submit(plx_attach_store(attach), vdi, op, offset, length, data);
}

static void drain(void)
{
    bench_drain(plx_attach_store(attach));
}

static void close_disk(struct plx_vdi *vdi)
{
    drain();
    must(plx_attach_vdi_close(attach, vdi), "closing");
}

/* ---- Collecting ---- */

static uint64_t marked_ns;

static void on_progress(void *context, bool sweeping, uint64_t done, uint64_t total)
{
    if (!sweeping)
        marked_ns = measure_now_ns();
}

/* Returns the time that marking took. */
static uint64_t collect(struct plx_collected *ret_collected)
{
    const struct plx_attach_work work = {.progress = on_progress};
    uint64_t begun_ns = marked_ns = measure_now_ns();

    must(plx_attach_collect(attach, &work, ret_collected, &fault), "collecting");
    return marked_ns - begun_ns;
}

/* ---- Speed ---- */

#define DISKS 8u

static double mark_ns_per_byte; /* of metadata, the last time */

static void fill(const char *name, uint64_t bytes)
{
    static char data[CHUNK];
    struct plx_vdi *vdi = make_disk(name, bytes, NULL, NULL);

    memset(data, 'x', sizeof data); /* blocks of zeroes take no room */
    for (uint64_t at = 0; at < bytes; at += CHUNK)
        submit(vdi, PLX_WRITE, at, CHUNK, data);
    close_disk(vdi);
}

/* Returns bytes of the store a second. */
static double collect_filled(uint64_t gigabytes)
{
    uint64_t disk_bytes = gigabytes * GB / DISKS / CHUNK * CHUNK, mark_ns;
    struct plx_collected collected;
    char name[8];
    double rate;

    make_store(large_place(), 1, (gigabytes * 5 / 4 + 2) * 1024 * MIB, 256 * MIB);
    for (unsigned i = 0; i < DISKS; i++) {
        snprintf(name, sizeof name, "d%u", i);
        fill(name, disk_bytes);
        if (i % 2)
            must(plx_attach_vdi_delete(attach, name, false, &fault), "deleting");
    }
    mark_ns = collect(&collected);
    rate = (double)(DISKS * disk_bytes) / (double)collected.nanoseconds;
    mark_ns_per_byte = (double)mark_ns / (double)collected.metadata_bytes;
    printf("%6llu %12.1f %10.1f %10.1f %12.2f %14.3f %10.2f\n", (unsigned long long)gigabytes,
           (double)collected.metadata_bytes / 1e6, (double)mark_ns / 1e6,
           (double)(collected.nanoseconds - mark_ns) / 1e6, rate, mark_ns_per_byte,
           (double)(collected.swept * BLOCK) / 1e9);
    drop_store();
    return rate;
}

static void measure_speed(uint64_t gigabytes)
{
    double smallest = 0, slowest = 0, rate;

    data_is_dropped = true;
    printf("    GB  metadata MB    mark ms   sweep ms   GB/s total    mark ns/byte   freed GB\n");
    for (uint64_t i = 1; i <= 5; i++) {
        rate = collect_filled(gigabytes * i / 5);
        if (i == 1) {
            smallest = mark_ns_per_byte;
            slowest = rate;
        }
        slowest = rate < slowest ? rate : slowest;
    }
    measure_goal("collecting 10 GB of the store, at 9.6 GB/s", 1 / 0.96, 10 / slowest, "s");
    measure_goal("marking, for each byte: largest store beside smallest", 1.25,
                 mark_ns_per_byte / smallest, "");
}

/* ---- Memory ---- */

#define LARGE_EXTENTS 16384u /* of 2 GiB: 32 TiB */
#define LARGE_EXTENT_BLOCKS (2048 * MIB / BLOCK)

static double memory_mib(void)
{
    FILE *status = fopen("/proc/self/status", "r");
    unsigned long kib = 0;
    char line[128];

    while (status && fgets(line, sizeof line, status))
        if (sscanf(line, "VmHWM: %lu", &kib) == 1)
            break;
    if (status)
        fclose(status);
    return (double)kib / 1024;
}

/* The highest so far counts from now on. */
static double forget_peak(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "w");

    if (file) {
        fputs("5", file);
        fclose(file);
    }
    return memory_mib();
}

static void fill_map(struct plx_blockmap *map, uint64_t extents)
{
    if (!plx_blockmap_init(map, LARGE_EXTENTS, LARGE_EXTENT_BLOCKS))
        must(PLX_ERR_NOMEM, "map");
    for (uint64_t addr = 0; addr < extents * LARGE_EXTENT_BLOCKS; addr += 64) /* each word */
        if (!plx_blockmap_set(map, addr, 1))
            must(PLX_ERR_NOMEM, "map");
}

/* The maps of a collection that looks at so many extents at once: what is used there; and, twice,
 * which nodes were seen, on the whole store (reach.h). */
static double maps_mib(uint64_t slice)
{
    struct plx_blockmap used, seen, own;
    double before = forget_peak(), after;

    fill_map(&used, slice);
    fill_map(&seen, LARGE_EXTENTS / PLX_NODE_ENTRIES);
    fill_map(&own, LARGE_EXTENTS / PLX_NODE_ENTRIES);
    after = memory_mib();
    plx_blockmap_done(&used);
    plx_blockmap_done(&seen);
    plx_blockmap_done(&own);
    return after - before;
}

/* A collection on a store of that size with a few disks in it. */
static double collection_mib(void)
{
    struct plx_collected collected;
    double before, after;

    data_is_dropped = true;
    make_store(large_place(), 4, LARGE_EXTENTS / 4 * (2048 * MIB), 2048 * MIB);
    fill("live", 2000 * MIB);
    fill("gone", 2000 * MIB);
    must(plx_attach_vdi_delete(attach, "gone", false, &fault), "deleting");
    before = forget_peak();
    collect(&collected);
    after = memory_mib();
    printf("32 TiB, little of it used: %.1f MB of metadata read, %llu blocks swept in %.1f ms\n",
           (double)collected.metadata_bytes / 1e6, (unsigned long long)collected.swept,
           (double)collected.nanoseconds / 1e6);
    drop_store();
    return after - before;
}

static void measure_memory(void)
{
    const uint64_t default_slice = 256 * MIB / (LARGE_EXTENT_BLOCKS / 8);
    double sparse_store = collection_mib();

    measure_goal("memory to collect 32 TiB, hardly used", 1024, sparse_store, "MiB");
    measure_goal("... full, in slices as by default", 1024, maps_mib(default_slice), "MiB");
    measure_goal("... full, in one slice (1 per cent for nodes seen)", 1024 * 1.01,
                 maps_mib(LARGE_EXTENTS), "MiB");
}

/* ---- Families ---- */

#define CLONES_MAX 10u
#define FAMILY_BLOCKS 16384u /* of each disk */
#define BASE_BLOCKS 8192u    /* that the base has; appending goes on behind them */
#define OPERATIONS 2000u     /* on each clone */
#define RUN_MAX 16u

/* What a block holds: 0: nothing, else a stamp that no other block has. */
static uint64_t base_stamps[FAMILY_BLOCKS], clone_stamps[CLONES_MAX][FAMILY_BLOCKS];
static uint64_t last_stamp, random_word = MEASURE_SEED;

static uint64_t next_random(uint64_t below)
{
    return measure_random(&random_word) % below;
}

static void stamp_block(uint64_t *words, uint64_t stamp)
{
    for (size_t i = 0; i < BLOCK / sizeof *words; i++)
        words[i] = stamp ? stamp * 0x9e3779b97f4a7c15u + i : 0;
}

/* One at a time: what lies over what is known. */
static void write_run(struct plx_vdi *vdi, uint64_t *stamps, uint64_t block, uint64_t count)
{
    static uint64_t data[RUN_MAX][BLOCK / sizeof(uint64_t)];

    for (uint64_t i = 0; i < count; i++)
        stamp_block(data[i], stamps[block + i] = ++last_stamp);
    submit(vdi, PLX_WRITE, block * BLOCK, count * BLOCK, data);
    drain();
}

static void delete_run(struct plx_vdi *vdi, uint64_t *stamps, uint64_t block, uint64_t count)
{
    submit(vdi, PLX_UNMAP, block * BLOCK, count * BLOCK, NULL);
    drain();
    memset(stamps + block, 0, count * sizeof *stamps);
}

/* As mail comes and goes: half are small writes anywhere, some append, some delete a file. */
static void serve_mail(struct plx_vdi *vdi, uint64_t *stamps)
{
    uint64_t end = BASE_BLOCKS;

    for (unsigned i = 0; i < OPERATIONS; i++) {
        uint64_t what = next_random(10), count = 1 + next_random(what < 5 ? 2 : RUN_MAX);

        if (what < 8 && what >= 5 && end + count <= FAMILY_BLOCKS) {
            write_run(vdi, stamps, end, count);
            end += count;
        } else if (what < 8) {
            write_run(vdi, stamps, next_random(end - count), count);
        } else {
            delete_run(vdi, stamps, next_random(end - count), count);
        }
    }
}

static void verify_disk(const char *name, const uint64_t *stamps)
{
    static uint64_t data[RUN_MAX][BLOCK / sizeof(uint64_t)], expected[BLOCK / sizeof(uint64_t)];
    struct plx_vdi *vdi = open_disk(name);

    for (uint64_t block = 0; block < FAMILY_BLOCKS; block++) {
        if (block % RUN_MAX == 0) {
            submit(vdi, PLX_READ, block * BLOCK, sizeof data, data);
            drain();
        }
        stamp_block(expected, stamps[block]);
        if (memcmp(data[block % RUN_MAX], expected, BLOCK) != 0) {
            fprintf(stderr, "%s: block %llu is not what was written\n", name,
                    (unsigned long long)block);
            exit(1);
        }
    }
    close_disk(vdi);
}

static void make_base(void)
{
    struct plx_vdi *vdi = make_disk("base", FAMILY_BLOCKS * BLOCK, NULL, NULL);
    struct plx_request snapshot = {.op = PLX_SNAPSHOT};

    memset(base_stamps, 0, sizeof base_stamps);
    for (uint64_t block = 0; block < BASE_BLOCKS; block += RUN_MAX)
        write_run(vdi, base_stamps, block, RUN_MAX);
    must(plx_vdi_run(vdi, &snapshot), "snapshot");
    close_disk(vdi);
}

static void clone_name(unsigned number, char ret_name[8])
{
    snprintf(ret_name, 8, "c%u", number % 100);
}

static void make_clone(unsigned number)
{
    struct plx_vdi *vdi;
    char name[8];

    clone_name(number, name);
    vdi = make_disk(name, FAMILY_BLOCKS * BLOCK, "base", "1");
    memcpy(clone_stamps[number], base_stamps, sizeof base_stamps);
    serve_mail(vdi, clone_stamps[number]);
    close_disk(vdi);
}

static uint64_t count_shared(unsigned clones)
{
    uint64_t count = 0;

    for (uint64_t block = 0; block < BASE_BLOCKS; block++) {
        bool shared = false;

        for (unsigned i = 0; i < clones && !shared; i++)
            shared = clone_stamps[i][block] == base_stamps[block];
        count += shared;
    }
    return count;
}

/* Returns blocks of the base that nobody shares and that were not freed. */
static uint64_t collect_family(unsigned clones)
{
    struct plx_collected first, second;
    uint64_t shared, mark_ns;
    char name[8];

    make_store(small_place(), 1, (clones + 2) * 2 * FAMILY_BLOCKS * BLOCK + 256 * MIB, 16 * MIB);
    make_base();
    for (unsigned i = 0; i < clones; i++)
        make_clone(i);
    must(plx_attach_vdi_delete(attach, "base", false, &fault), "deleting");
    shared = count_shared(clones);
    mark_ns = collect(&first);
    collect(&second);
    for (unsigned i = 0; i < clones; i++) {
        clone_name(i, name);
        verify_disk(name, clone_stamps[i]);
    }
    printf("%6u %11u %13llu %12llu %13.1f %10.1f %10.1f\n", clones, BASE_BLOCKS,
           (unsigned long long)shared, (unsigned long long)first.swept,
           (double)first.metadata_bytes / 1e6, (double)mark_ns / 1e6,
           (double)(first.nanoseconds - mark_ns) / 1e6);
    drop_store();
    return second.found + (BASE_BLOCKS - plx_min_u64(BASE_BLOCKS, first.swept + shared));
}

static void measure_family(uint64_t clones)
{
    uint64_t left = 0;

    printf("clones base blocks  still shared freed blocks   metadata MB    mark ms   sweep ms\n");
    for (unsigned i = 1; i <= clones; i++)
        left += collect_family(i);
    measure_goal("blocks of deleted bases that nobody shares, left", 0, (double)left, "blocks");
}

/* ---- The whole ---- */

static int usage(void)
{
    fprintf(stderr, "usage: collect speed [--gigabytes N] | memory | family [--clones N]\n");
    return 2;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"gigabytes", required_argument, NULL, 'g'}, {"clones", required_argument, NULL, 'c'}, {0}};
    uint64_t gigabytes = 50, clones = CLONES_MAX;
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 'g')
            gigabytes = strtoull(optarg, NULL, 10);
        else if (option == 'c')
            clones = strtoull(optarg, NULL, 10);
        else
            return usage();
    }
    if (optind + 1 != argc || gigabytes < 5 || !clones || clones > CLONES_MAX)
        return usage();
    if (!strcmp(argv[optind], "speed"))
        measure_speed(gigabytes);
    else if (!strcmp(argv[optind], "memory"))
        measure_memory();
    else if (!strcmp(argv[optind], "family"))
        measure_family(clones);
    else
        return usage();
    return 0;
}
