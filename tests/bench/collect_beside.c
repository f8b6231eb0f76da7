/* collect_beside.c - what a disk at work notices of a collection, through the handler's own entry
 * points.
 *
 *     collect_beside [--seconds N]
 *
 * Random reads and overwrites of 4 KiB, four at a time, on one disk. Beside it lies another one
 * with a block in every 2 MiB, so that nearly all of it is metadata, which the collector reads over
 * and over: as fast as it can, or at the rate at which the handler collects by itself. Stretches
 * without a collection, with a gentle one and with a fast one take turns.
 */
#include <getopt.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "measure.h"
#include "stand.h"

#define MIB (1ull << 20)
#define BLOCK 4096u
#define SECTOR 512u
#define DEPTH 4u
#define DISK_BYTES (256 * MIB)
#define REST_BYTES (64ull << 30)
#define LEAF_BYTES (2 * MIB)
#define GENTLE_RATE (32 * MIB) /* handler/tcmu/collector.c */
#define SAMPLES_MAX (8u << 20)
#define TURNS 3u

enum how { WITHOUT, GENTLE, FAST, HOWS };

static struct slot {
    struct runner_command command;
    uint64_t begun_ns;
    char buffer[BLOCK];
    atomic_bool busy;
} slots[DEPTH];

static struct samples {
    uint64_t *ns;
    atomic_size_t count;
} samples[HOWS];

static sem_t done;
static atomic_int how;
static atomic_bool over;
static unsigned collections[HOWS];
static uint64_t seconds = 10, random_word = MEASURE_SEED;
static char volume[PATH_MAX];

static void must(bool right, const char *what)
{
    if (right)
        return;
    fprintf(stderr, "collect_beside: %s failed\n", what);
    exit(1);
}

/* ---- Load ---- */

static void slot_done(struct runner_command *command)
{
    struct slot *slot = command->owner;
    struct samples *s = &samples[atomic_load(&how)];
    size_t at = atomic_fetch_add(&s->count, 1);

    must(command->status == TCMU_STS_OK, "a request");
    if (at < SAMPLES_MAX)
        s->ns[at] = measure_now_ns() - slot->begun_ns;
    atomic_store(&slot->busy, false);
    sem_post(&done);
}

static struct slot *free_slot(void)
{
    for (;;)
        for (unsigned i = 0; i < DEPTH; i++)
            if (!atomic_exchange(&slots[i].busy, true))
                return &slots[i];
}

static void submit(struct tcmu_device *device, bool write, uint64_t offset)
{
    struct slot *slot;

    while (sem_wait(&done) != 0)
        ;
    slot = free_slot();
    slot->command = (struct runner_command){
        .iov = {{slot->buffer, BLOCK}}, .iovcnt = 1, .done = slot_done, .owner = slot};
    slot->buffer[0]++;
    slot->buffer[1] = 1; /* a block of zeroes would take no room */
    runner_read_write(&slot->command, write, offset / SECTOR, BLOCK / SECTOR, 0);
    slot->begun_ns = measure_now_ns();
    runner_submit(device, &slot->command);
}

static void drain(void)
{
    for (unsigned i = 0; i < DEPTH; i++)
        while (sem_wait(&done) != 0)
            ;
    for (unsigned i = 0; i < DEPTH; i++)
        sem_post(&done);
}

static struct tcmu_device *open_disk(const char *configuration, uint64_t bytes)
{
    char reason[600] = "";
    int error;
    struct tcmu_device *device =
        runner_open(stand_handler, configuration, bytes, SECTOR, &error, reason, sizeof reason);

    must(device != NULL, reason);
    return device;
}

static void fill(struct tcmu_device *device, uint64_t bytes, uint64_t step)
{
    for (uint64_t at = 0; at < bytes; at += step)
        submit(device, true, at);
    drain();
}

/* ---- Collections ---- */

static json_int_t ask(const char *request, const char *name, int *ret_code)
{
    struct plx_fault fault = {0};
    json_int_t number = 0;
    char path[PATH_MAX];

    must(stand_control(path, sizeof path), "finding the handler");
    *ret_code = stand_ask(path, request, name, &number, &fault);
    return number;
}

/* As parallax gc does: asks for one, BUSY while the one before is under way. */
static void *collect(void *argument)
{
    const struct timespec moment = {.tv_nsec = 2000000};
    char request[100];
    int now, code;

    while (!atomic_load(&over)) {
        now = atomic_load(&how);
        if (now != WITHOUT) {
            snprintf(
                request, sizeof request,
                "{\"command\": \"collect\", \"dry_run\": false, \"memory\": 0, \"rate\": %llu}",
                now == GENTLE ? GENTLE_RATE : 0ull);
            ask(request, NULL, &code);
            collections[now] += code == 0;
        }
        nanosleep(&moment, NULL);
    }
    return NULL;
}

static void stretch(struct tcmu_device *device, enum how now)
{
    uint64_t end_ns = measure_now_ns() + seconds * 1000000000u / TURNS;
    int code;

    ask("{\"command\": \"collect-stop\"}", NULL, &code);
    atomic_store(&how, now);
    while (measure_now_ns() < end_ns)
        submit(device, measure_random(&random_word) % 2,
               measure_random(&random_word) % (DISK_BYTES / BLOCK) * BLOCK);
    drain();
}

/* ---- The whole ---- */

static void make_store(void)
{
    must(stand_shell("./parallax -q store format s --volume %s --size 4G --force && "
                     "./parallax -q vdi create s/v --size 256M && "
                     "./parallax -q vdi create s/rest --size 64G",
                     volume) == 0,
         "making the store");
}

static void tell(void)
{
    static const char *const names[] = {"without", "at 32 MiB/s", "at full speed"};
    double p99[HOWS];

    printf("collection      requests      p50 us     p99 us  collections\n");
    for (unsigned i = 0; i < HOWS; i++) {
        size_t count = atomic_load(&samples[i].count);
        uint64_t p50_ns;

        count = count < SAMPLES_MAX ? count : SAMPLES_MAX;
        p50_ns = measure_percentile_ns(samples[i].ns, count, 50);
        p99[i] = (double)measure_percentile_ns(samples[i].ns, count, 99);
        printf("%-14s %9zu %11.1f %10.1f %12u\n", names[i], count, (double)p50_ns / 1e3,
               p99[i] / 1e3, collections[i]);
    }
    measure_goal("p99 beside a collection that began by itself", 2, p99[GENTLE] / p99[WITHOUT],
                 "times");
    measure_goal("p99 beside one at full speed", 2, p99[FAST] / p99[WITHOUT], "times");
}

static void run(void)
{
    struct tcmu_device *device, *rest;
    pthread_t collector;

    make_store();
    device = open_disk("parallax/s/v", DISK_BYTES);
    rest = open_disk("parallax/s/rest", REST_BYTES);
    fill(rest, REST_BYTES, LEAF_BYTES);
    runner_close(rest);
    fill(device, DISK_BYTES, BLOCK);
    for (unsigned i = 0; i < HOWS; i++)
        atomic_store(&samples[i].count, 0);
    must(pthread_create(&collector, NULL, collect, NULL) == 0, "a thread");
    for (unsigned turn = 0; turn < TURNS; turn++)
        for (unsigned i = 0; i < HOWS; i++)
            stretch(device, (enum how)i);
    atomic_store(&over, true);
    pthread_join(collector, NULL);
    runner_close(device);
    tell();
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"seconds", required_argument, NULL, 's'}, {0}};
    char folder[MEASURE_PATH_MAX];
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option != 's')
            return 2;
        seconds = strtoull(optarg, NULL, 10);
    }
    if (!seconds || optind != argc || !stand_up()) {
        fprintf(stderr, "usage: collect_beside [--seconds N]\n");
        return 2;
    }
    if (!measure_folder(4096 * MIB, folder)) {
        fprintf(stderr, "collect_beside: no folder has room for 4 GiB\n");
        stand_down();
        return 77;
    }
    snprintf(volume, sizeof volume, "%s/plx-beside.%d", folder, (int)getpid());
    sem_init(&done, 0, DEPTH);
    for (unsigned i = 0; i < HOWS; i++) {
        samples[i].ns = malloc(SAMPLES_MAX * sizeof *samples[i].ns);
        must(samples[i].ns != NULL, "memory");
    }
    run();
    stand_down();
    unlink(volume);
    return 0;
}
