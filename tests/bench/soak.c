/* soak.c - whether memory stays what it is while history comes and goes, through the handler's own
 * entry points.
 *
 *     soak [--minutes N]
 *
 * Eight disks of one store have 800 random overwrites of 4 KiB a second between them and a snapshot
 * each every 10 ms. All snapshots are kept for N seconds, one a second for ten times as long: of 60
 * minutes (all:1m,1s:10m) six windows pass, and of fewer as many. The first two are not judged.
 * The store has room for half of what is written.
 *
 * What is judged is what malloc() has handed out and not got back, of the whole process: counted,
 * not measured, and the node cache is in it from the beginning. Letting go takes some MiB for as
 * long as it works on a stretch, so it is the least of each of those windows that must not grow.
 * Resident memory is only told: it comes to that as the node cache fills, and to what lies free
 * between.
 */
#include <getopt.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "measure.h"
#include "stand.h"

#define MIB (1ull << 20)
#define SECOND_NS 1000000000ull
#define BLOCK 4096u
#define SECTOR 512u
#define LUNS 8u
#define DISK_BYTES (64 * MIB)
#define TURN_NS (SECOND_NS / 100) /* a write to each disk */
#define DEPTH 64u
#define WINDOWS 6u
#define WARM 2u
#define SAMPLE_NS (SECOND_NS / 100 * 37) /* not in step with who looks once a second */
#define GROWTH_MAX (256u << 10)

static struct slot {
    struct runner_command command;
    char buffer[BLOCK];
    atomic_bool busy;
} slots[DEPTH];

static struct window {
    size_t least, most; /* bytes handed out */
} windows[WINDOWS];

static struct tcmu_device *devices[LUNS];
static atomic_bool failed;
static uint64_t minutes = 10, skipped, random_word = MEASURE_SEED;
static char volume[PATH_MAX];

static void must(bool right, const char *what)
{
    if (right)
        return;
    fprintf(stderr, "soak: %s failed\n", what);
    exit(1);
}

/* ---- Load ---- */

static void slot_done(struct runner_command *command)
{
    struct slot *slot = command->owner;

    if (command->status != TCMU_STS_OK)
        atomic_store(&failed, true);
    atomic_store(&slot->busy, false);
}

static struct slot *free_slot(void)
{
    for (unsigned i = 0; i < DEPTH; i++)
        if (!atomic_exchange(&slots[i].busy, true))
            return &slots[i];
    return NULL;
}

static void write_block(struct slot *slot, struct tcmu_device *device, uint64_t block)
{
    uint64_t stamp = measure_random(&random_word);

    memcpy(slot->buffer, &stamp, sizeof stamp);
    slot->command = (struct runner_command){
        .iov = {{slot->buffer, BLOCK}}, .iovcnt = 1, .done = slot_done, .owner = slot};
    runner_read_write(&slot->command, true, block * (BLOCK / SECTOR), BLOCK / SECTOR, 0);
    runner_submit(device, &slot->command);
}

static void pause_ns(uint64_t ns)
{
    nanosleep(&(struct timespec){.tv_sec = (time_t)(ns / SECOND_NS), .tv_nsec = ns % SECOND_NS},
              NULL);
}

static void fill(struct tcmu_device *device)
{
    for (uint64_t block = 0; block < DISK_BYTES / BLOCK; block++) {
        struct slot *slot;

        while (!(slot = free_slot()))
            pause_ns(100000);
        write_block(slot, device, block);
    }
}

/* A machine that is too slow for that many skips some. */
static void turn(void)
{
    for (unsigned i = 0; i < LUNS; i++) {
        struct slot *slot = free_slot();

        if (slot)
            write_block(slot, devices[i], measure_random(&random_word) % (DISK_BYTES / BLOCK));
        else
            skipped++;
    }
    must(!atomic_load(&failed), "a write");
}

/* ---- Memory ---- */

static uint64_t resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    unsigned long long size, pages;

    must(file && fscanf(file, "%llu %llu", &size, &pages) == 2, "reading statm");
    fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void sample(struct window *window)
{
    struct mallinfo2 info = mallinfo2();
    size_t bytes = info.uordblks + info.hblkhd;

    if (!window->least || bytes < window->least)
        window->least = bytes;
    if (bytes > window->most)
        window->most = bytes;
}

static double of_mib(uint64_t bytes)
{
    return (double)bytes / (double)MIB;
}

static void tell(unsigned number)
{
    printf("%-9u %11.3f %11.3f %15.1f%s\n", number + 1, of_mib(windows[number].least),
           of_mib(windows[number].most), of_mib(resident_bytes()),
           number < WARM ? "  (not judged)" : "");
    fflush(stdout);
}

/* ---- The whole ---- */

static json_int_t ask(const char *request, const char *name)
{
    struct plx_fault fault = {0};
    json_int_t number = 0;
    char path[PATH_MAX];

    must(stand_control(path, sizeof path), "finding the handler");
    if (stand_ask(path, request, name, &number, &fault) != 0)
        must(false, fault.text);
    return number;
}

static void open_disks(void)
{
    char text[200], reason[600] = "";
    int error;

    must(stand_shell("./parallax -q store format s --volume %s --size %lluM --force", volume,
                     (unsigned long long)(1024 + 96 * minutes)) == 0,
         "making the store");
    for (unsigned i = 0; i < LUNS; i++) {
        must(stand_shell("./parallax -q vdi create s/v%u --size %llu", i, DISK_BYTES) == 0,
             "making a disk");
        snprintf(text, sizeof text, "parallax/s/v%u", i);
        devices[i] =
            runner_open(stand_handler, text, DISK_BYTES, SECTOR, &error, reason, sizeof reason);
        must(devices[i] != NULL, reason);
        fill(devices[i]);
        snprintf(text, sizeof text,
                 "{\"command\": \"protect\", \"vdi\": \"v%u\", \"mode\": \"10ms\", \"retention\": "
                 "\"all:%llus,1s:%llus\"}",
                 i, (unsigned long long)minutes, (unsigned long long)minutes * 10);
        ask(text, NULL);
    }
}

static void load(struct window *window)
{
    uint64_t begun = measure_now_ns(), end = begun + minutes * 60 * SECOND_NS / WINDOWS;
    uint64_t sampled = begun;

    for (uint64_t next = begun; next < end; next += TURN_NS) {
        uint64_t now = measure_now_ns();

        if (now < next)
            pause_ns(next - now);
        turn();
        if (next < sampled)
            continue;
        sample(window);
        sampled += SAMPLE_NS;
    }
}

static bool is_flat(void)
{
    size_t growth = windows[WINDOWS - 1].least > windows[WARM].least
                        ? windows[WINDOWS - 1].least - windows[WARM].least
                        : 0;

    printf("since window %u: %zu bytes more, at most %u are allowed\n", WARM + 1, growth,
           GROWTH_MAX);
    return growth <= GROWTH_MAX;
}

static bool run(void)
{
    static const char stats[] = "{\"command\": \"stats\"}";
    double first;

    open_disks();
    printf("window      least MiB    most MiB    resident MiB\n");
    for (unsigned i = 0; i < WINDOWS; i++) {
        load(&windows[i]);
        tell(i);
    }
    if (skipped)
        printf("%llu writes were skipped: the machine is too slow for so many\n",
               (unsigned long long)skipped);
    first = (double)ask(stats, "batch_bytes");
    printf("of each byte of log %.2f were written and %.2f read\n",
           (double)ask(stats, "device_write_bytes_log") / first,
           (double)ask(stats, "device_read_bytes_log") / first);
    must(ask(stats, "device_read_bytes_log") > 0, "letting go");
    for (unsigned i = 0; i < LUNS; i++)
        runner_close(devices[i]);
    return is_flat();
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"minutes", required_argument, NULL, 'm'}, {0}};
    char folder[MEASURE_PATH_MAX];
    bool flat;
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) == 'm')
        minutes = strtoull(optarg, NULL, 10);
    if (option != -1 || !minutes || minutes > 1440 || optind != argc || !stand_up()) {
        fprintf(stderr, "usage: soak [--minutes N]\n");
        return 2;
    }
    if (!measure_folder((1024 + 96 * minutes) * MIB, folder)) {
        fprintf(stderr, "soak: no folder has room for the store\n");
        stand_down();
        return 77;
    }
    snprintf(volume, sizeof volume, "%s/plx-soak.%d", folder, (int)getpid());
    flat = run();
    stand_down();
    unlink(volume);
    return flat ? 0 : 1;
}
