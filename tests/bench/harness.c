/* harness.c - measures and checks a tcmu-runner handler without a kernel target.
 *
 *     harness HANDLER CFGSTRING --size BYTES [options]
 *
 *     HANDLER            a .so, or one that is built in (builtin.h)
 *
 *     --luns N           opens N devices; a %d in CFGSTRING becomes the LUN's number, from 0
 *     --rw WHAT          read, write, randread, randwrite, randrw (default), trim mixes UNMAP in;
 *                        randonce writes no block twice, and ends when all are written
 *     --bs BYTES         of a request (4096)        --iodepth N   per LUN (32)
 *     --runtime SECONDS  (5)                        --ops N       instead of a time
 *     --sector BYTES     (512)                      --flush N     a flush after every N writes
 *     --verify           every sector written carries its number and a counter; reads check them
 *     --seed N           --json                     --quiet       no log of the handler
 *     --fill BYTE        what is written, without --verify ('x')
 *     --within N         random requests go to N places only, which lie all over the disk: always
 * the same ones, in the order in which randonce writes them
 *     --serve            loads as they are asked for, on LUNs that stay open: a line of input
 *                        "WHAT BYTES DEPTH SECONDS" is one, at most 1 MiB and --iodepth deep;
 *                        a flush if it wrote, which counts, and a line of JSON end it; "idle" waits
 *     --reader           with --serve: the last LUN reads 4 KiB at random, four at once, until the
 *                        others have done what the line says; a second line of JSON is its own
 *
 * With --verify, requests that overlap are never in flight together, and everything is read once
 * more at the end. SIGTERM ends a load as its time would. Exit: 0, 1 wrong data or failed requests,
 * 2 could not start.
 *
 * Each LUN has a thread that submits, as in tcmu-runner; completions come from any thread.
 */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include "builtin.h"
#include "tcmu/bytes.h"

#define BUCKETS (64 * 16)
#define SERVED_BYTES_MIN 4096
#define SERVED_BYTES_MAX (1u << 20)
#define READER_DEPTH 4
#define NEVER UINT64_MAX
#define HUGE_PAGE (2u << 20)

struct options {
    const char *handler, *cfgstring, *rw;
    uint64_t size, ops, seed, within;
    uint32_t bs, bs_max, sector;
    unsigned luns, iodepth, flush_every;
    double runtime;
    int fill; /* the byte that is written, without --verify */
    bool verify, json, quiet, serve, reader;
};

struct lun;

struct slot {
    struct runner_command command;
    struct lun *lun;
    struct slot *next_free;
    char *buffer;
    uint64_t started_ns, offset;
    enum { READ, WRITE, TRIM, FLUSH } kind;
};

struct lun {
    const struct options *options;
    struct tcmu_device *device;
    pthread_t thread;
    uint64_t random, next_offset, written_once;
    _Atomic uint64_t deadline_ns;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    struct slot *slots, *free;
    char *memory; /* of all their buffers */
    unsigned in_flight;
    uint64_t writes;
    /* Per block of --bs, with --verify. */
    uint8_t *locked;
    uint32_t *version; /* 0: zeroes */
    uint64_t done[2], failed, wrong;
    uint64_t latency[BUCKETS];
};

static volatile sig_atomic_t is_over;

static void end_load(int number)
{
    (void)number;
    is_over = 1;
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t next_random(struct lun *lun)
{
    lun->random ^= lun->random << 13;
    lun->random ^= lun->random >> 7;
    return lun->random ^= lun->random << 17;
}

/* ---- Latencies: sixteen buckets for each power of two ---- */

static unsigned bucket_of(uint64_t ns)
{
    unsigned power = ns < 16 ? 0 : 60 - (unsigned)__builtin_clzll(ns);

    return power == 0 ? (unsigned)ns & 15 : power * 16 + (unsigned)(ns >> (power - 1) & 15);
}

static uint64_t bucket_start(unsigned bucket)
{
    unsigned power = bucket / 16;

    return power == 0 ? bucket : (16ull + bucket % 16) << (power - 1);
}

static uint64_t percentile(const uint64_t *buckets, double share)
{
    uint64_t total = 0, seen = 0;

    for (unsigned i = 0; i < BUCKETS; i++)
        total += buckets[i];
    for (unsigned i = 0; i < BUCKETS; i++) {
        seen += buckets[i];
        if (seen > 0 && (double)seen >= share * (double)total)
            return bucket_start(i);
    }
    return 0;
}

/* ---- Contents ---- */

static void fill(char *sector, uint32_t size, uint64_t number, uint32_t version)
{
    uint64_t word = number * 0x9e3779b97f4a7c15u ^ version;

    memset(sector, 0, size);
    if (version == 0)
        return;
    for (uint32_t i = 0; i + 8 <= size; i += 8, word = word * 6364136223846793005u + 1)
        memcpy(sector + i, &word, 8);
}

static void fill_block(const struct lun *lun, uint64_t offset, uint32_t version, char *buffer)
{
    uint32_t sector = lun->options->sector;

    for (uint32_t i = 0; i < lun->options->bs; i += sector)
        fill(buffer + i, sector, (offset + i) / sector, version);
}

static bool block_is_right(struct lun *lun, uint64_t offset, const char *buffer)
{
    char expected[65536];
    uint32_t sector = lun->options->sector, version = lun->version[offset / lun->options->bs];

    for (uint32_t i = 0; i < lun->options->bs; i += sector) {
        fill(expected, sector, (offset + i) / sector, version);
        if (memcmp(expected, buffer + i, sector) != 0) {
            fprintf(stderr, "wrong data at byte %llu\n", (unsigned long long)(offset + i));
            return false;
        }
    }
    return true;
}

/* ---- Requests ---- */

static void slot_done(struct runner_command *command)
{
    struct slot *slot = command->owner;
    struct lun *lun = slot->lun;
    uint64_t block = slot->offset / lun->options->bs;

    pthread_mutex_lock(&lun->mutex);
    if (command->status != TCMU_STS_OK)
        lun->failed++;
    else if (lun->options->verify && slot->kind == READ &&
             !block_is_right(lun, slot->offset, slot->buffer))
        lun->wrong++;
    if (slot->kind != FLUSH) {
        if (lun->locked)
            lun->locked[block] = 0;
        lun->latency[bucket_of(now_ns() - slot->started_ns)]++;
        lun->done[slot->kind == WRITE]++;
    }
    slot->next_free = lun->free;
    lun->free = slot;
    lun->in_flight--;
    pthread_cond_signal(&lun->cond);
    pthread_mutex_unlock(&lun->mutex);
}

static void put_trim(struct slot *slot, uint64_t lba, uint32_t sectors)
{
    memset(slot->buffer, 0, 24);
    plx_put_be((uint8_t *)slot->buffer, 2, 22);
    plx_put_be((uint8_t *)slot->buffer + 2, 2, 16);
    plx_put_be((uint8_t *)slot->buffer + 8, 8, lba);
    plx_put_be((uint8_t *)slot->buffer + 16, 4, sectors);
    memset(slot->command.cdb, 0, sizeof slot->command.cdb);
    slot->command.cdb[0] = 0x42;
    plx_put_be(slot->command.cdb + 7, 2, 24);
}

static void submit(struct slot *slot)
{
    struct lun *lun = slot->lun;
    const struct options *options = lun->options;
    uint64_t lba = slot->offset / options->sector;
    uint32_t sectors = options->bs / options->sector;
    size_t bytes = options->bs;

    if (slot->kind == TRIM) {
        put_trim(slot, lba, sectors);
        bytes = 24;
    } else if (slot->kind == FLUSH) {
        memset(slot->command.cdb, 0, sizeof slot->command.cdb);
        slot->command.cdb[0] = 0x91;
        bytes = 0;
    } else {
        runner_read_write(&slot->command, slot->kind == WRITE, lba, sectors, 0);
    }
    slot->command.iov[0] = (struct iovec){slot->buffer, bytes};
    slot->command.iovcnt = bytes > 0;
    slot->command.done = slot_done;
    slot->command.owner = slot;
    slot->started_ns = now_ns();
    runner_submit(lun->device, &slot->command);
}

static void choose_kind(struct slot *slot)
{
    const struct options *options = slot->lun->options;
    bool mixed = strcmp(options->rw, "randrw") == 0 || strcmp(options->rw, "trim") == 0;
    unsigned dice = next_random(slot->lun) % 100;

    if (strcmp(options->rw, "trim") == 0 && dice < 10)
        slot->kind = TRIM;
    else if (mixed)
        slot->kind = dice < 55 ? READ : WRITE;
    else
        slot->kind = strstr(options->rw, "read") ? READ : WRITE;
}

/* A permutation of the blocks: every step of it can be undone. It is one of the next power of two,
 * so from a block beyond the end it goes on until it comes to one that there is. */
static uint64_t shuffled(uint64_t block, uint64_t blocks)
{
    unsigned bits = blocks > 1 ? 64 - (unsigned)__builtin_clzll(blocks - 1) : 0;

    do {
        for (int round = 0; round < 3; round++) {
            block = block * 0x9e3779b97f4a7c15u & ((1ull << bits) - 1);
            block ^= block >> (bits / 2 + 1);
        }
    } while (block >= blocks);
    return block;
}

/* Into how many places random requests go. */
static uint64_t places(const struct options *options)
{
    uint64_t blocks = options->size / options->bs;

    return options->within && options->within < blocks ? options->within : blocks;
}

/* False when the place is taken. */
static bool choose_place(struct slot *slot)
{
    struct lun *lun = slot->lun;
    uint64_t blocks = lun->options->size / lun->options->bs;
    uint64_t block = lun->next_offset / lun->options->bs;

    if (strcmp(lun->options->rw, "randonce") == 0)
        block = shuffled(lun->written_once++, blocks);
    else if (strncmp(lun->options->rw, "rand", 4) == 0 || strcmp(lun->options->rw, "trim") == 0)
        block = shuffled(next_random(lun) % places(lun->options), blocks);
    else
        lun->next_offset = (block + 1) % blocks * lun->options->bs;
    if (lun->locked) {
        if (lun->locked[block])
            return false;
        lun->locked[block] = 1;
    }
    slot->offset = block * lun->options->bs;
    return true;
}

static void choose_contents(struct slot *slot)
{
    struct lun *lun = slot->lun;
    uint32_t *version = &lun->version[slot->offset / lun->options->bs];

    *version = slot->kind == TRIM ? 0 : (uint32_t)next_random(lun) | 1;
    if (slot->kind == WRITE)
        fill_block(lun, slot->offset, *version, slot->buffer);
}

/* Under the mutex: a free slot with something to do. */
static struct slot *next_request(struct lun *lun)
{
    struct slot *slot;

    while (!lun->free)
        pthread_cond_wait(&lun->cond, &lun->mutex);
    slot = lun->free;
    if (lun->options->flush_every && lun->writes >= lun->options->flush_every) {
        lun->writes = 0;
        slot->kind = FLUSH;
    } else {
        choose_kind(slot);
        if (!choose_place(slot))
            return NULL;
    }
    lun->free = slot->next_free;
    lun->in_flight++;
    if (slot->kind == WRITE || slot->kind == TRIM) {
        lun->writes++;
        if (lun->options->verify)
            choose_contents(slot);
    }
    return slot;
}

static void wait_for_all(struct lun *lun)
{
    pthread_mutex_lock(&lun->mutex);
    while (lun->in_flight)
        pthread_cond_wait(&lun->cond, &lun->mutex);
    pthread_mutex_unlock(&lun->mutex);
}

/* Waits for a free slot. */
static struct slot *take_slot(struct lun *lun)
{
    struct slot *slot;

    pthread_mutex_lock(&lun->mutex);
    while (!lun->free)
        pthread_cond_wait(&lun->cond, &lun->mutex);
    slot = lun->free;
    lun->free = slot->next_free;
    lun->in_flight++;
    pthread_mutex_unlock(&lun->mutex);
    return slot;
}

static void read_all(struct lun *lun)
{
    for (uint64_t at = 0; at + lun->options->bs <= lun->options->size; at += lun->options->bs) {
        struct slot *slot = take_slot(lun);

        slot->kind = READ;
        slot->offset = at;
        submit(slot);
    }
    wait_for_all(lun);
}

static void flush(struct lun *lun)
{
    struct slot *slot = take_slot(lun);

    slot->kind = FLUSH;
    submit(slot);
    wait_for_all(lun);
}

static bool all_done(const struct lun *lun, uint64_t started)
{
    const struct options *options = lun->options;

    return is_over || (options->ops > 0 && started == options->ops) ||
           (strcmp(options->rw, "randonce") == 0 && lun->written_once == places(options)) ||
           (lun->deadline_ns != NEVER && now_ns() >= lun->deadline_ns);
}

static void *drive(void *argument)
{
    struct lun *lun = argument;
    uint64_t started = 0;

    if (strcmp(lun->options->rw, "idle") == 0) {
        usleep((useconds_t)(lun->options->runtime * 1e6));
        return NULL;
    }
    while (!all_done(lun, started)) {
        struct slot *slot;

        pthread_mutex_lock(&lun->mutex);
        slot = next_request(lun);
        pthread_mutex_unlock(&lun->mutex);
        if (slot) {
            started++;
            submit(slot);
        }
    }
    wait_for_all(lun);
    if (lun->options->serve && lun->writes)
        flush(lun);
    return NULL;
}

/* ---- Set-up and results ---- */

/* In huge pages where there are some: how many pieces a large transfer falls into is not to be a
 * matter of the luck that this process had with its memory. */
static char *buffers(size_t bytes)
{
    void *memory;

    bytes = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    if (posix_memalign(&memory, HUGE_PAGE, bytes) != 0)
        return NULL;
    madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
}

static bool set_up_lun(struct lun *lun, const struct options *options, unsigned number,
                       struct tcmur_handler *handler)
{
    char cfgstring[600], reason[600] = "";
    const char *place = strstr(options->cfgstring, "%d");
    uint64_t blocks = options->size / options->bs;
    int error;

    lun->options = options;
    lun->random = options->seed * 0x9e3779b97f4a7c15u + number + 1;
    pthread_mutex_init(&lun->mutex, NULL);
    pthread_cond_init(&lun->cond, NULL);
    if (options->verify) {
        lun->locked = calloc(blocks, 1);
        lun->version = calloc(blocks, sizeof *lun->version);
    }
    lun->slots = calloc(options->iodepth, sizeof *lun->slots);
    lun->memory = buffers((size_t)options->iodepth * options->bs_max);
    if (!lun->slots || !lun->memory)
        return false;
    for (unsigned i = 0; i < options->iodepth; i++) {
        lun->slots[i].lun = lun;
        lun->slots[i].buffer = lun->memory + (size_t)i * options->bs_max;
    }
    if (place)
        snprintf(cfgstring, sizeof cfgstring, "%.*s%u%s", (int)(place - options->cfgstring),
                 options->cfgstring, number, place + 2);
    else
        snprintf(cfgstring, sizeof cfgstring, "%s", options->cfgstring);
    lun->device = runner_open(handler, cfgstring, options->size, options->sector, &error, reason,
                              sizeof reason);
    if (!lun->device)
        fprintf(stderr, "%s: not opened (%s): %s\n", cfgstring, strerror(-error), reason);
    return lun->device != NULL;
}

/* What a load took. */
struct taken {
    double seconds, cpu_seconds;
};

static double cpu_seconds(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void report(const struct options *options, const struct lun *luns, unsigned count,
                   struct taken taken)
{
    uint64_t buckets[BUCKETS] = {0}, done[2] = {0}, failed = 0, wrong = 0;
    double ops;

    for (unsigned l = 0; l < count; l++) {
        for (unsigned i = 0; i < BUCKETS; i++)
            buckets[i] += luns[l].latency[i];
        done[0] += luns[l].done[0];
        done[1] += luns[l].done[1];
        failed += luns[l].failed;
        wrong += luns[l].wrong;
    }
    ops = (double)(done[0] + done[1]);
    printf(options->json
               ? "{\"rw\": \"%s\", \"bs\": %u, \"iodepth\": %u, \"luns\": %u, \"seconds\": %.3f, "
                 "\"iops\": %.0f, \"mib_per_s\": %.1f, \"cpu_us\": %.2f, \"writes\": %llu, "
                 "\"failed\": %llu, \"wrong\": %llu, "
                 "\"latency_ns\": {\"p50\": %llu, \"p99\": %llu, \"p999\": %llu}}\n"
               : "%s bs=%u iodepth=%u luns=%u: %.1f s, %.0f IOPS, %.1f MiB/s, %.2f us of CPU each "
                 "(%llu writes), %llu failed, %llu wrong, ns: p50 %llu p99 %llu p99.9 %llu\n",
           options->rw, options->bs, options->iodepth, count, taken.seconds, ops / taken.seconds,
           ops / taken.seconds * options->bs / 1048576, ops > 0 ? taken.cpu_seconds * 1e6 / ops : 0,
           (unsigned long long)done[1], (unsigned long long)failed, (unsigned long long)wrong,
           (unsigned long long)percentile(buckets, 0.5),
           (unsigned long long)percentile(buckets, 0.99),
           (unsigned long long)percentile(buckets, 0.999));
    fflush(stdout);
}

static void begin_load(struct lun *lun, unsigned iodepth)
{
    lun->free = NULL;
    for (unsigned i = 0; i < iodepth; i++) {
        /* What was read before may be zeroes, and those may cost nothing to write. */
        memset(lun->slots[i].buffer, lun->options->fill, lun->options->bs);
        lun->slots[i].next_free = lun->free;
        lun->free = &lun->slots[i];
    }
    lun->writes = lun->failed = lun->wrong = lun->done[0] = lun->done[1] = 0;
    memset(lun->latency, 0, sizeof lun->latency);
}

/* A reader reads until the others have ended. */
static struct taken load(const struct options *options, struct lun *luns)
{
    unsigned told = options->luns - options->reader;
    uint64_t start;
    double cpu;

    for (unsigned i = 0; i < options->luns; i++)
        begin_load(&luns[i], luns[i].options->iodepth);
    cpu = cpu_seconds();
    start = now_ns();
    for (unsigned i = 0; i < options->luns; i++) {
        luns[i].deadline_ns =
            options->ops || i == told ? NEVER : start + (uint64_t)(options->runtime * 1e9);
        pthread_create(&luns[i].thread, NULL, drive, &luns[i]);
    }
    for (unsigned i = 0; i < options->luns; i++) {
        if (i == told)
            luns[i].deadline_ns = 0;
        pthread_join(luns[i].thread, NULL);
    }
    return (struct taken){(double)(now_ns() - start) / 1e9, cpu_seconds() - cpu};
}

static bool load_is_possible(const struct options *options)
{
    uint64_t blocks = options->bs ? options->size / options->bs : 0;

    return options->sector > 0 && options->iodepth > 0 && blocks > 0 &&
           options->bs <= options->bs_max && options->bs % options->sector == 0;
}

/* Returns how many requests failed. */
static uint64_t serve(struct options *options, struct lun *luns)
{
    struct options reading = *options;
    unsigned iodepth_max = options->iodepth, told = options->luns - options->reader;
    uint64_t bad = 0;
    char rw[16];

    reading.rw = "randread";
    reading.iodepth = READER_DEPTH;
    if (options->reader)
        luns[told].options = &reading;
    options->rw = rw;
    while (scanf("%15s %u %u %lf", rw, &options->bs, &options->iodepth, &options->runtime) == 4) {
        struct taken taken;

        if (options->bs < SERVED_BYTES_MIN || options->iodepth > iodepth_max ||
            !load_is_possible(options)) {
            fprintf(stderr, "harness: cannot serve %s of %u bytes, %u deep\n", rw, options->bs,
                    options->iodepth);
            bad++;
            break;
        }
        taken = load(options, luns);
        report(options, luns, told, taken);
        if (options->reader)
            report(&reading, &luns[told], 1, taken);
        for (unsigned i = 0; i < options->luns; i++)
            bad += luns[i].failed;
    }
    options->iodepth = iodepth_max;
    if (options->reader)
        luns[told].options = options;
    return bad;
}

static void close_lun(struct lun *lun)
{
    runner_close(lun->device);
    free(lun->memory);
    free(lun->slots);
    free(lun->locked);
    free(lun->version);
}

static int run(struct options *options)
{
    struct tcmur_handler *handler = builtin_handler(options->handler);
    struct lun *luns = calloc(options->luns, sizeof *luns);
    uint64_t bad = 0;

    if (!handler)
        handler = runner_load(options->handler);
    if (!handler)
        return 2;
    for (unsigned i = 0; i < options->luns; i++)
        if (!set_up_lun(&luns[i], options, i, handler))
            return 2;
    if (options->serve)
        bad = serve(options, luns);
    else
        report(options, luns, options->luns, load(options, luns));
    for (unsigned i = 0; i < options->luns; i++) {
        if (options->verify)
            read_all(&luns[i]);
        if (!options->serve)
            bad += luns[i].failed + luns[i].wrong;
        close_lun(&luns[i]);
    }
    free(luns);
    if (bad)
        fprintf(stderr, "%llu requests failed or read wrong data\n", (unsigned long long)bad);
    return bad ? 1 : 0;
}

int main(int argc, char **argv)
{
    static const struct option longs[] = {
        {"size", 1, NULL, 's'},   {"luns", 1, NULL, 'l'},    {"rw", 1, NULL, 'r'},
        {"bs", 1, NULL, 'b'},     {"iodepth", 1, NULL, 'd'}, {"runtime", 1, NULL, 't'},
        {"ops", 1, NULL, 'o'},    {"sector", 1, NULL, 'k'},  {"verify", 0, NULL, 'v'},
        {"seed", 1, NULL, 'e'},   {"json", 0, NULL, 'j'},    {"quiet", 0, NULL, 'q'},
        {"flush", 1, NULL, 'f'},  {"serve", 0, NULL, 'S'},   {"reader", 0, NULL, 'R'},
        {"within", 1, NULL, 'w'}, {"fill", 1, NULL, 'F'},    {NULL, 0, NULL, 0},
    };
    struct options options = {.rw = "randrw",
                              .bs = 4096,
                              .sector = 512,
                              .luns = 1,
                              .iodepth = 32,
                              .runtime = 5,
                              .seed = 1,
                              .fill = 'x'};
    int c;

    signal(SIGTERM, end_load);
    while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        uint64_t number = optarg ? strtoull(optarg, NULL, 0) : 0;

        switch (c) {
        case 's':
            options.size = number;
            break;
        case 'l':
            options.luns = (unsigned)number;
            break;
        case 'r':
            options.rw = optarg;
            break;
        case 'b':
            options.bs = (uint32_t)number;
            break;
        case 'd':
            options.iodepth = (unsigned)number;
            break;
        case 't':
            options.runtime = strtod(optarg, NULL);
            break;
        case 'o':
            options.ops = number;
            break;
        case 'k':
            options.sector = (uint32_t)number;
            break;
        case 'v':
            options.verify = true;
            break;
        case 'e':
            options.seed = number;
            break;
        case 'j':
            options.json = true;
            break;
        case 'q':
            options.quiet = true;
            break;
        case 'f':
            options.flush_every = (unsigned)number;
            break;
        case 'w':
            options.within = number;
            break;
        case 'F':
            options.fill = (int)number;
            break;
        case 'R':
            options.reader = true;
            break;
        case 'S':
            options.serve = options.json = true;
            options.bs = SERVED_BYTES_MIN;
            break;
        default:
            return 2;
        }
    }
    options.bs_max = options.serve ? SERVED_BYTES_MAX : options.bs;
    if (argc - optind != 2 || options.luns == 0 || !load_is_possible(&options) ||
        (options.serve && options.verify) ||
        (options.reader &&
         (!options.serve || options.luns < 2 || options.iodepth < READER_DEPTH))) {
        fprintf(stderr,
                "usage: harness HANDLER CFGSTRING --size BYTES [--luns N] [--rw WHAT] "
                "[--bs BYTES] [--iodepth N] [--runtime S | --ops N] [--within N] [--fill BYTE] "
                "[--verify | --serve [--reader]] [--json]\n");
        return 2;
    }
    options.handler = argv[optind];
    options.cfgstring = argv[optind + 1];
    if (options.quiet)
        runner_set_log(NULL);
    return run(&options);
}
