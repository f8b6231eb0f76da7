/* count_ops.c - loads on the engine in the simulation, for tests/bench/counts to count what each
 * operation costs. Loads named `many` have many snapshots and cost the same as those that have few
 * (INV-9).
 *
 * Deterministic: simulated disk and clock, one thread, fixed seeds, no time. A load is prepared
 * (filled, snapshotted), warmed up, then measured in measure(): callgrind counts the instructions
 * of each call of it, the engine's own counters say the device I/Os, which are printed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ok.h"
#include "suite.h"
#include "unit/fixture.h"

#define DISK (16 * MIB)
#define STORE (256 * MIB) /* and 16 KiB for each of many snapshots */
#define EXTENT (4 * MIB)
#define DEPTH_MAX 32u
#define OPS 4096u
#define WARM_UP 1024u

static unsigned many = 5000;

enum place {
    RANDOM,
    ONCE, /* random, none twice */
    IN_ORDER,
};

static const struct load {
    const char *name;
    enum plx_request_op op;
    enum place place;
    unsigned depth, blocks; /* of a request */
    bool filled, frozen;    /* written before; and a snapshot has all of it */
    bool many;              /* as many changes before, each with a snapshot */
    bool durable; /* when it is complete; else the device has a cache, and so has the disk */
    bool copies;  /* overwrite=copy */
} loads[] = {
    {"random read 4k (1)", PLX_READ, RANDOM, 1, 1, .filled = true},
    {"random read 4k (32)", PLX_READ, RANDOM, 32, 1, .filled = true},
    {"overwrite 4k (1)", PLX_WRITE, RANDOM, 1, 1, .filled = true},
    {"overwrite 4k (32)", PLX_WRITE, RANDOM, 32, 1, .filled = true},
    {"durable overwrite 4k (1)", PLX_WRITE, RANDOM, 1, 1, .filled = true, .durable = true},
    {"durable overwrite 4k (32)", PLX_WRITE, RANDOM, 32, 1, .filled = true, .durable = true},
    {"overwrite=copy 4k (1)", PLX_WRITE, RANDOM, 1, 1, .filled = true, .copies = true},
    {"overwrite=copy 4k (32)", PLX_WRITE, RANDOM, 32, 1, .filled = true, .copies = true},
    {"first write 4k (1)", PLX_WRITE, ONCE, 1, 1, .filled = false},
    {"first write 4k (32)", PLX_WRITE, ONCE, 32, 1, .filled = false},
    {"durable first write 4k (1)", PLX_WRITE, ONCE, 1, 1, .durable = true},
    {"durable first write 4k (32)", PLX_WRITE, ONCE, 32, 1, .durable = true},
    {"copy-on-write 4k (1)", PLX_WRITE, ONCE, 1, 1, .filled = true, .frozen = true},
    {"copy-on-write 4k (32)", PLX_WRITE, ONCE, 32, 1, .filled = true, .frozen = true},
    {"sequential read 1M (4)", PLX_READ, IN_ORDER, 4, 256, .filled = true},
    {"sequential write 1M (4)", PLX_WRITE, IN_ORDER, 4, 256, .filled = true},
    {"snapshot, and a write 4k (1)", PLX_SNAPSHOT, RANDOM, 1, 1, .filled = true},
    /* INV-9 */
    {"many: random read 4k (32)", PLX_READ, RANDOM, 32, 1, .filled = true, .many = true},
    {"many: overwrite 4k (32)", PLX_WRITE, RANDOM, 32, 1, .filled = true, .many = true},
    {"many: copy-on-write 4k (32)", PLX_WRITE, ONCE, 32, 1, .filled = true, .frozen = true,
     .many = true},
};

/* ---- Requests ---- */

static struct job {
    struct plx_request request;
    struct iovec iov;
    bool busy;
} jobs[DEPTH_MAX];

static const struct load *load;
static struct plx_vdi *vdi;
static uint64_t random_word, placed;

static void job_done(struct plx_request *request)
{
    fault = request->fault;
    OK(request->result);
    ((struct job *)request->owner)->busy = false;
}

static uint64_t next_random(void)
{
    random_word ^= random_word << 13;
    random_word ^= random_word >> 7;
    return random_word ^= random_word << 17;
}

/* In requests; an odd step meets each of 2^n places once. */
static uint64_t next_place(enum place place, unsigned blocks)
{
    uint64_t places = DISK / BLOCK / blocks;

    if (place == RANDOM)
        return next_random() % places;
    return placed++ * (place == ONCE ? 7919 : 1) % places;
}

static void submit(struct job *job, enum plx_request_op op, enum place place, unsigned blocks)
{
    uint64_t bytes = op == PLX_SNAPSHOT ? 0 : blocks * (uint64_t)BLOCK;

    job->busy = true;
    job->iov = (struct iovec){buffer, bytes};
    job->request = (struct plx_request){.op = op,
                                        .offset = bytes ? next_place(place, blocks) * bytes : 0,
                                        .length = bytes,
                                        .iov = &job->iov,
                                        .iovcnt = 1,
                                        .done = job_done,
                                        .owner = job};
    plx_vdi_submit(vdi, &job->request);
}

static bool any_busy(void)
{
    for (unsigned i = 0; i < DEPTH_MAX; i++)
        if (jobs[i].busy)
            return true;
    return false;
}

static void turn(void)
{
    if (!plx_store_tick(store))
        plx_store_wait(store);
}

static void drive(enum plx_request_op op, enum place place, unsigned depth, unsigned blocks,
                  unsigned count)
{
    while (count > 0) {
        for (unsigned i = 0; i < depth && count > 0; i++)
            if (!jobs[i].busy) {
                submit(&jobs[i], op, place, blocks);
                count--;
            }
        turn();
    }
    while (any_busy())
        turn();
}

static unsigned operations(void)
{
    unsigned once = DISK / BLOCK / load->blocks;

    return load->blocks == 1 ? OPS : once;
}

/* callgrind counts in here, and dumps at its end. */
__attribute__((noinline)) void measure(void);
__attribute__((noinline)) void measure(void)
{
    if (load->op != PLX_SNAPSHOT)
        drive(load->op, load->place, load->depth, load->blocks, operations());
    else
        for (unsigned i = 0; i < operations(); i++) {
            drive(PLX_WRITE, RANDOM, 1, 1, 1);
            drive(PLX_SNAPSHOT, RANDOM, 1, 1, 1);
        }
}

/* ---- Loads ---- */

static void prepare(void)
{
    struct plx_protection each = {.mode = PLX_PROTECT_WRITE}, none = {.mode = PLX_PROTECT_OFF};
    struct plx_vdi_open_options use = {
        .write_back = !load->durable,
        .overwrite = load->copies ? PLX_OVERWRITE_COPY : PLX_OVERWRITE_IN_PLACE,
    };

    random_word = 88172645463325252u;
    placed = 0;
    memset(buffer, 'x', sizeof buffer);
    vdi = make_with_vdi(STORE + many / 256 * EXTENT, EXTENT, DISK);
    CU_ASSERT(plx_vdi_use(vdi, &use));
    if (load->filled)
        drive(PLX_WRITE, IN_ORDER, 4, 256, DISK / MIB);
    if (load->many) {
        OK(plx_vdi_set_protection(vdi, &each, &fault));
        drive(PLX_WRITE, RANDOM, 1, 1, many);
        OK(plx_vdi_set_protection(vdi, &none, &fault));
        drive(PLX_WRITE, IN_ORDER, 4, 256, DISK / MIB);
    }
    /* The second time it is in place, and says once for each block that its checksum is unknown. */
    if (load->filled && !load->frozen)
        drive(PLX_WRITE, IN_ORDER, 32, 1, DISK / BLOCK);
    if (load->frozen)
        drive(PLX_SNAPSHOT, RANDOM, 1, 1, 1);
    drive(PLX_READ, RANDOM, load->depth, 1, WARM_UP);
    memset(buffer, 'y', sizeof buffer);
}

static void run_load(void)
{
    struct plx_counters before, after;
    uint64_t reads = 0, writes = 0;

    prepare();
    plx_store_counters(store, &before);
    measure();
    plx_store_counters(store, &after);
    for (unsigned kind = 0; kind < PLX_KINDS; kind++) {
        reads += after.device_reads[kind] - before.device_reads[kind];
        writes += after.device_writes[kind] - before.device_writes[kind];
    }
    printf("%s\t%u\t%llu\t%llu\t%llu\n", load->name, operations(), (unsigned long long)reads,
           (unsigned long long)writes,
           (unsigned long long)(after.device_flushes - before.device_flushes));
    fflush(stdout);
    OK(plx_vdi_close(vdi));
    end_store();
}

static void run_loads(void)
{
    for (load = loads; load < loads + sizeof loads / sizeof loads[0]; load++)
        run_load();
}

int main(int argc, char **argv)
{
    static const struct suite_test tests[] = {{"loads", run_loads}};

    if (argc > 1)
        many = (unsigned)atoi(argv[1]);
    fixture.disk.patience = 0;
    fixture.open.cache_bytes = 64 * MIB;
    return SUITE_RUN("operations", tests);
}
