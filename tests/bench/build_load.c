/* build_load.c - what continuous protection costs a build: the experiment of the Parallax paper
 * (6.2.4; figures 14 and 15, table 2), through the handler's own entry points.
 *
 *     build_load [--rounds N] [--files N] [--modes MODE,...]
 *
 * The load is what a guest's file system makes of unpacking a source tree and of compiling it:
 *
 * - Two jobs. Per file a job computes (0.3 ms when unpacking, 8 ms when compiling: a CPU-bound
 *   compile, yet some twenty times as fast as the paper's), reads 16 KiB for every fourth file (the
 *   rest is in the guest's cache) and writes a file of 4 to 64 KiB, 18 KiB on average, behind the
 *   one before.
 * - Writes are the page cache's: a job goes on at once, until 256 are dirty. One thread writes them
 *   back, 32 at a time.
 * - The journal commits after every 64 files: what was dirtied of inode tables, folders and bitmaps
 *   (11 blocks) goes to a ring of 16 MiB, which is flushed; then to its own place, mostly over what
 *   was there. Journal and metadata are what is overwritten, as in the paper; files are not.
 *
 * Every run has a store of its own and the same files. Runs of a mode stand between two without
 * snapshots, and are compared with the mean of those; what is printed are the medians. The
 * handler's CPU time is that of the process without the jobs'.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "measure.h"
#include "stand.h"

#define VDI_BYTES (4ull << 30)
#define SECTOR 512u
#define BLOCK 4096u
#define JOBS 2
#define DEPTH 32
#define DIRTY_MAX 256
#define FILE_MAX (64u << 10)
#define FILES_PER_COMMIT 64
#define RING_BLOCKS 4096u
#define RING_START 64u
#define INODES_START (RING_START + RING_BLOCKS)
#define INODE_BLOCKS 512u
#define FOLDERS_START (INODES_START + INODE_BLOCKS)
#define FOLDER_BLOCKS 256u
#define FILES_START 16384u
#define UNPACK_US 300
#define COMPILE_US 8000
#define UNPACKED_PER_COMPILED 8
#define ROUNDS_MAX 32
#define MODES_MAX 16

enum kind { WRITE, FLUSH };

struct request {
    enum kind kind;
    uint64_t block;
    uint32_t bytes;
};

struct slot {
    struct runner_command command;
    struct guest *guest;
    struct slot *next_free;
    char *buffer;
};

struct guest {
    struct tcmu_device *device;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    struct request dirty[DIRTY_MAX];
    unsigned first, count, under_way;
    struct slot slots[DEPTH], *free;
    bool over;
    uint64_t stamp, failed;
    /* The file system. */
    uint64_t next_block, ring_at, compute_us;
    unsigned files, next_file, made;
    uint64_t job_cpu_ns;
};

struct result {
    double seconds, unpack_seconds, cpu_ms;
    double data, metadata, batches, voids, snapshots, snapshot_bytes;
};

struct mode {
    const char *name;
    struct result results[ROUNDS_MAX];
    double ratio[ROUNDS_MAX], unpack_ratio[ROUNDS_MAX], cpu_ratio[ROUNDS_MAX], beyond[ROUNDS_MAX];
};

static uint64_t spins_per_us;
static volatile uint64_t sink; /* of what is computed */
static char volume[PATH_MAX];

/* ---- Computing ---- */

static uint64_t spin(uint64_t spins)
{
    uint64_t word = spins;

    while (spins--)
        word = word * 6364136223846793005u + 1442695040888963407u;
    return word;
}

static void calibrate(void)
{
    uint64_t best = UINT64_MAX;

    for (unsigned i = 0; i < 20; i++) {
        uint64_t start = measure_now_ns(), ns;

        sink += spin(1000000);
        ns = measure_now_ns() - start;
        best = ns < best ? ns : best;
    }
    spins_per_us = 1000000000 / best;
}

static void compute(uint64_t us)
{
    sink += spin(us * spins_per_us);
}

static uint64_t cpu_ns(clockid_t clock)
{
    struct timespec time;

    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* The same for the same number in every run. */
static uint64_t random_of(uint64_t number)
{
    number = (number + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    number = (number ^ number >> 30) * 0x94d049bb133111ebu;
    return number ^ number >> 31;
}

/* ---- Writing back ---- */

static void slot_done(struct runner_command *command)
{
    struct slot *slot = command->owner;
    struct guest *guest = slot->guest;

    pthread_mutex_lock(&guest->mutex);
    guest->failed += command->status != TCMU_STS_OK;
    slot->next_free = guest->free;
    guest->free = slot;
    guest->under_way--;
    pthread_cond_broadcast(&guest->cond);
    pthread_mutex_unlock(&guest->mutex);
}

static void submit(struct slot *slot, const struct request *request)
{
    struct guest *guest = slot->guest;

    if (request->kind == FLUSH) {
        memset(slot->command.cdb, 0, sizeof slot->command.cdb);
        slot->command.cdb[0] = 0x91;
    } else {
        for (uint32_t at = 0; at < request->bytes; at += BLOCK, guest->stamp++)
            memcpy(slot->buffer + at, &guest->stamp, sizeof guest->stamp);
        runner_read_write(&slot->command, true, request->block * (BLOCK / SECTOR),
                          request->bytes / SECTOR, 0);
    }
    slot->command.iov[0] = (struct iovec){slot->buffer, request->bytes};
    slot->command.iovcnt = request->bytes > 0;
    slot->command.done = slot_done;
    slot->command.owner = slot;
    runner_submit(guest->device, &slot->command);
}

/* Under the mutex: a flush goes alone, behind all before it. */
static bool may_go(const struct guest *guest)
{
    return guest->count && guest->free &&
           (guest->dirty[guest->first].kind == WRITE || !guest->under_way);
}

static void *write_back(void *argument)
{
    struct guest *guest = argument;

    pthread_mutex_lock(&guest->mutex);
    while (!guest->over || guest->count || guest->under_way) {
        struct request request;
        struct slot *slot = guest->free;

        if (!may_go(guest)) {
            pthread_cond_wait(&guest->cond, &guest->mutex);
            continue;
        }
        request = guest->dirty[guest->first];
        guest->first = (guest->first + 1) % DIRTY_MAX;
        guest->count--;
        guest->free = slot->next_free;
        guest->under_way++;
        pthread_cond_broadcast(&guest->cond);
        pthread_mutex_unlock(&guest->mutex);
        submit(slot, &request);
        pthread_mutex_lock(&guest->mutex);
        while (request.kind == FLUSH && guest->under_way)
            pthread_cond_wait(&guest->cond, &guest->mutex);
    }
    pthread_mutex_unlock(&guest->mutex);
    return NULL;
}

/* Under the mutex. */
static void make_dirty(struct guest *guest, enum kind kind, uint64_t block, uint32_t bytes)
{
    while (guest->count == DIRTY_MAX)
        pthread_cond_wait(&guest->cond, &guest->mutex);
    guest->dirty[(guest->first + guest->count++) % DIRTY_MAX] =
        (struct request){kind, block, bytes};
    pthread_cond_broadcast(&guest->cond);
}

/* ---- The file system ---- */

static uint32_t file_bytes(unsigned file)
{
    static const uint8_t blocks[] = {1, 1, 1, 2, 2, 2, 3, 3, 4, 4, 4, 6, 6, 8, 10, 16};

    return blocks[random_of(file) % sizeof blocks] * BLOCK;
}

static void commit(struct guest *guest)
{
    uint64_t number = guest->made / FILES_PER_COMMIT;

    if (guest->ring_at + 13 > RING_BLOCKS)
        guest->ring_at = 0;
    make_dirty(guest, WRITE, RING_START + guest->ring_at, 12 * BLOCK);
    make_dirty(guest, FLUSH, 0, 0);
    make_dirty(guest, WRITE, RING_START + guest->ring_at + 12, BLOCK);
    make_dirty(guest, FLUSH, 0, 0);
    guest->ring_at += 13;
    make_dirty(guest, WRITE, 0, BLOCK); /* superblock, then bitmaps, inodes, folders */
    for (unsigned i = 0; i < 2; i++)
        make_dirty(guest, WRITE, 1 + (number / 32 + i) % 32, BLOCK);
    for (unsigned i = 0; i < 4; i++)
        make_dirty(guest, WRITE, INODES_START + (number * 4 + i) % INODE_BLOCKS, BLOCK);
    for (unsigned i = 0; i < 4; i++)
        make_dirty(guest, WRITE, FOLDERS_START + random_of(number * 4 + i) % FOLDER_BLOCKS, BLOCK);
}

static void write_file(struct guest *guest, unsigned file)
{
    uint32_t bytes = file_bytes(file);

    pthread_mutex_lock(&guest->mutex);
    make_dirty(guest, WRITE, guest->next_block, bytes);
    guest->next_block += bytes / BLOCK;
    if (++guest->made % FILES_PER_COMMIT == 0)
        commit(guest);
    pthread_mutex_unlock(&guest->mutex);
}

static void read_source(struct guest *guest, unsigned file, char *buffer)
{
    struct runner_command command = {.iov = {{buffer, 4 * BLOCK}}, .iovcnt = 1};
    uint64_t written, block;

    pthread_mutex_lock(&guest->mutex);
    written = guest->next_block - FILES_START;
    pthread_mutex_unlock(&guest->mutex);
    block = FILES_START + (written > 4 ? random_of(file) % (written - 4) : 0);
    runner_read_write(&command, false, block * (BLOCK / SECTOR), 4 * BLOCK / SECTOR, 0);
    if (runner_run(guest->device, &command) != TCMU_STS_OK)
        guest->failed++;
}

static void *work(void *argument)
{
    struct guest *guest = argument;
    char buffer[4 * BLOCK];

    for (;;) {
        unsigned file;

        pthread_mutex_lock(&guest->mutex);
        file = guest->next_file < guest->files ? guest->next_file++ : UINT32_MAX;
        pthread_mutex_unlock(&guest->mutex);
        if (file == UINT32_MAX)
            break;
        if (file % 4 == 0)
            read_source(guest, file, buffer);
        compute(guest->compute_us);
        write_file(guest, file);
    }
    pthread_mutex_lock(&guest->mutex);
    guest->job_cpu_ns += cpu_ns(CLOCK_THREAD_CPUTIME_ID);
    pthread_mutex_unlock(&guest->mutex);
    return NULL;
}

/* Until everything is written. Returns seconds. */
static double phase(struct guest *guest, unsigned files, uint64_t us)
{
    uint64_t start = measure_now_ns();
    pthread_t jobs[JOBS], writer;

    guest->files += files;
    guest->compute_us = us;
    guest->over = false;
    pthread_create(&writer, NULL, write_back, guest);
    for (unsigned i = 0; i < JOBS; i++)
        pthread_create(&jobs[i], NULL, work, guest);
    for (unsigned i = 0; i < JOBS; i++)
        pthread_join(jobs[i], NULL);
    pthread_mutex_lock(&guest->mutex);
    make_dirty(guest, FLUSH, 0, 0);
    guest->over = true;
    pthread_cond_broadcast(&guest->cond);
    pthread_mutex_unlock(&guest->mutex);
    pthread_join(writer, NULL);
    return (double)(measure_now_ns() - start) / 1e9;
}

/* ---- One run ---- */

static double ask(const char *request, const char *name)
{
    struct plx_fault fault = {0};
    json_int_t number = 0;
    char path[PATH_MAX];

    if (!stand_control(path, sizeof path) || stand_ask(path, request, name, &number, &fault) != 0) {
        fprintf(stderr, "%s: %s\n", request, fault.text);
        exit(1);
    }
    return (double)number;
}

static void count(struct result *result, double sign)
{
    static const char stats[] = "{\"command\": \"stats\"}";

    result->data += sign * ask(stats, "device_write_bytes_data");
    result->metadata +=
        sign * (ask(stats, "device_write_bytes_log") + ask(stats, "device_write_bytes_node") +
                ask(stats, "device_write_bytes_admin"));
    result->snapshots += sign * ask(stats, "snapshots_automatic");
    result->batches += sign * ask(stats, "batches");
    result->voids += sign * ask(stats, "voids");
    result->snapshot_bytes += sign * ask(stats, "snapshot_bytes");
}

static struct guest *open_guest(const char *mode)
{
    struct guest *guest = calloc(1, sizeof *guest);
    char reason[600] = "", request[200];
    int error;

    stand_shell("./parallax -q store forget s 2>/dev/null");
    if (stand_shell("./parallax -q store format s --volume %s --size 6G --force && "
                    "./parallax -q vdi create s/v --size %llu",
                    volume, (unsigned long long)VDI_BYTES) != 0)
        exit(1);
    pthread_mutex_init(&guest->mutex, NULL);
    pthread_cond_init(&guest->cond, NULL);
    guest->next_block = FILES_START;
    for (unsigned i = 0; i < DEPTH; i++) {
        struct slot *slot = &guest->slots[i];

        slot->guest = guest;
        if (posix_memalign((void **)&slot->buffer, BLOCK, FILE_MAX) != 0)
            exit(1);
        memset(slot->buffer, 'x', FILE_MAX);
        slot->next_free = guest->free;
        guest->free = slot;
    }
    guest->device = runner_open(stand_handler, "parallax/s/v", VDI_BYTES, SECTOR, &error, reason,
                                sizeof reason);
    if (!guest->device) {
        fprintf(stderr, "not opened: %s\n", reason);
        exit(1);
    }
    snprintf(request, sizeof request,
             "{\"command\": \"protect\", \"vdi\": \"v\", \"mode\": \"%s\", \"retention\": \"\"}",
             mode);
    ask(request, NULL);
    return guest;
}

static void close_guest(struct guest *guest)
{
    runner_close(guest->device);
    for (unsigned i = 0; i < DEPTH; i++)
        free(guest->slots[i].buffer);
    free(guest);
}

static struct result run(const char *mode, unsigned files)
{
    struct guest *guest = open_guest(mode);
    struct result result = {0};
    uint64_t cpu = cpu_ns(CLOCK_PROCESS_CPUTIME_ID);

    count(&result, -1);
    result.unpack_seconds = phase(guest, files, UNPACK_US);
    result.seconds =
        result.unpack_seconds + phase(guest, files / UNPACKED_PER_COMPILED, COMPILE_US);
    result.cpu_ms = (double)(cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu - guest->job_cpu_ns) / 1e6;
    ask("{\"command\": \"keyframe\", \"vdi\": \"v\"}", NULL); /* the metadata is all there */
    count(&result, 1);
    if (guest->failed) {
        fprintf(stderr, "%llu requests failed\n", (unsigned long long)guest->failed);
        exit(1);
    }
    close_guest(guest);
    return result;
}

/* ---- The comparison ---- */

static void compare(struct mode *mode, unsigned round, const struct result *before,
                    const struct result *after)
{
    const struct result *r = &mode->results[round];

    mode->ratio[round] = 2 * r->seconds / (before->seconds + after->seconds);
    mode->unpack_ratio[round] =
        2 * r->unpack_seconds / (before->unpack_seconds + after->unpack_seconds);
    mode->cpu_ratio[round] = 2 * r->cpu_ms / (before->cpu_ms + after->cpu_ms);
    mode->beyond[round] = r->snapshots > 0 ? r->snapshot_bytes / r->snapshots : 0;
}

static double median_of(const struct mode *mode, unsigned rounds, size_t member)
{
    double values[ROUNDS_MAX];

    for (unsigned i = 0; i < rounds; i++)
        values[i] = *(const double *)(const void *)((const char *)&mode->results[i] + member);
    return measure_median(values, rounds);
}

#define MEDIAN(mode, rounds, member) median_of(mode, rounds, offsetof(struct result, member))

static void print_row(struct mode *mode, unsigned rounds, bool none)
{
    double ratio = none ? 1 : measure_median(mode->ratio, rounds);

    printf("%-8s %7.2f %7.3f %7.3f..%.3f %8.3f %8.0f %7.3f %7.1f %8.2f %8.0f %6.0f %9.0f %9.1f\n",
           mode->name, MEDIAN(mode, rounds, seconds), ratio, none ? 1 : mode->ratio[0],
           none ? 1 : mode->ratio[rounds - 1],
           none ? 1 : measure_median(mode->unpack_ratio, rounds), MEDIAN(mode, rounds, cpu_ms),
           none ? 1 : measure_median(mode->cpu_ratio, rounds), MEDIAN(mode, rounds, data) / 1048576,
           MEDIAN(mode, rounds, metadata) / 1048576, MEDIAN(mode, rounds, batches),
           MEDIAN(mode, rounds, voids), MEDIAN(mode, rounds, snapshots),
           none ? 0 : measure_median(mode->beyond, rounds));
    if (none)
        return;
    if (strcmp(mode->name, "10ms") == 0)
        measure_goal("build at 10 ms, slower by", 1, (ratio - 1) * 100, "%");
    if (strcmp(mode->name, "write") == 0)
        measure_goal("build per write, slower by", 10, (ratio - 1) * 100, "%");
    measure_goal("metadata per snapshot, beyond the writes'", 200,
                 measure_median(mode->beyond, rounds), "bytes");
}

static void experiment(struct mode *modes, unsigned mode_count, unsigned rounds, unsigned files)
{
    static struct mode none = {.name = "off"};

    run("off", files); /* the volume's blocks are there from now on */
    for (unsigned round = 0; round < rounds; round++) {
        struct result before = run("off", files);

        none.results[round] = before;
        for (unsigned m = 0; m < mode_count; m++) {
            struct result after;

            modes[m].results[round] = run(modes[m].name, files);
            after = run("off", files);
            compare(&modes[m], round, &before, &after);
            before = after;
        }
    }
    printf("%-8s %7s %7s %14s %8s %8s %7s %7s %8s %8s %6s %9s %9s\n", "mode", "seconds", "ratio",
           "(rounds)", "unpack", "CPU ms", "ratio", "data M", "meta M", "batches", "voids",
           "snapshots", "bytes/snap");
    print_row(&none, rounds, true);
    for (unsigned m = 0; m < mode_count; m++)
        print_row(&modes[m], rounds, false);
}

int main(int argc, char **argv)
{
    static const struct option longs[] = {{"rounds", 1, NULL, 'r'},
                                          {"files", 1, NULL, 'f'},
                                          {"modes", 1, NULL, 'm'},
                                          {NULL, 0, NULL, 0}};
    static struct mode modes[MODES_MAX];
    static char names[] = "1s,100ms,20ms,10ms,batch,write";
    char *list = names, *rest = NULL, folder[MEASURE_PATH_MAX];
    unsigned rounds = 5, files = 3000, mode_count = 0;
    int c;

    while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        if (c == 'r')
            rounds = (unsigned)atoi(optarg);
        else if (c == 'f')
            files = (unsigned)atoi(optarg);
        else if (c == 'm')
            list = optarg;
        else
            return 2;
    }
    if (rounds == 0 || rounds > ROUNDS_MAX || files == 0 || files > 50000) {
        fprintf(stderr, "usage: build_load [--rounds 1-%d] [--files 1-50000] [--modes LIST]\n",
                ROUNDS_MAX);
        return 2;
    }
    for (char *word = strtok_r(list, ",", &rest); word && mode_count < MODES_MAX;
         word = strtok_r(NULL, ",", &rest))
        modes[mode_count++].name = word;
    if (!stand_up())
        return 1;
    if (!measure_folder(3ull << 30, folder))
        snprintf(folder, sizeof folder, "%s", stand_folder);
    snprintf(volume, sizeof volume, "%s/plx-build-load-%d", folder, (int)getpid());
    calibrate();
    printf("build: %u files unpacked, %u compiled, volume in %s, medians of %u rounds\n", files,
           files / UNPACKED_PER_COMPILED, folder, rounds);
    experiment(modes, mode_count, rounds, files);
    remove(volume);
    stand_down();
    return 0;
}
