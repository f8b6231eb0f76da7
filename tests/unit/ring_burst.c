/* ring_burst.c - a process that writes through a ring and dies of SIGKILL, for shell tests.
 *
 *   ring-burst STORE VDI LOG FIRST BLOCKS COUNT HELD
 *       writes COUNT whole blocks of the disk, which has --ring on, at random among its first
 *       BLOCKS, then HELD more. While it writes these, nothing that is submitted to the store's
 *       volume gets there: what they hold is on the ring only, whatever the machine's speed. It
 *       dies as soon as all but those in flight are acknowledged.
 *
 * Each block holds one number, again and again; the numbers begin with FIRST. A line in LOG says
 * what happens to it: "s BLOCK NUMBER" before it is submitted, "a BLOCK NUMBER" when it is
 * acknowledged, "h 0 0" when the store is held. No two writes of one block are in flight at once,
 * so each block has to hold the number that was acknowledged last, or the one submitted behind it.
 */
#include <fcntl.h>
#include <libaio.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attach/attach_ring.h"

#define DEPTH 16u
#define GIVE_UP_S 120u /* the ring does not acknowledge while the store is held: SIGALRM */

int __real_io_submit(io_context_t context, long count, struct iocb **list);
int __wrap_io_submit(io_context_t context, long count, struct iocb **list);

static atomic_bool held;
static char volume[PLX_PATH_MAX];
static struct plx_fault fault;

struct job {
    struct plx_request request;
    struct iovec iov;
    uint64_t memory[PLX_BLOCK_SIZE / sizeof(uint64_t)];
    uint64_t block, number;
    bool busy;
};

static struct job jobs[DEPTH];
static uint64_t acknowledged;
static int failed, log_fd;

static bool is_store(int fd)
{
    char link[64], path[PLX_PATH_MAX];
    ssize_t length;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return false;
    path[length] = 0;
    return strcmp(path, volume) == 0;
}

/* What the store gets while it is held never completes. */
int __wrap_io_submit(io_context_t context, long count, struct iocb **list)
{
    if (!count || !atomic_load(&held) || !is_store(list[0]->aio_fildes))
        return __real_io_submit(context, count, list);
    return (int)count;
}

static void note(char what, uint64_t block, uint64_t number)
{
    char line[64];
    int length = snprintf(line, sizeof line, "%c %llu %llu\n", what, (unsigned long long)block,
                          (unsigned long long)number);

    if (write(log_fd, line, (size_t)length) != length)
        abort();
}

static void on_done(struct plx_request *request)
{
    struct job *job = request->owner;

    job->busy = false;
    if (request->result) {
        failed = request->result;
        fault = request->fault;
        return;
    }
    note('a', job->block, job->number);
    acknowledged++;
}

static void begin(struct plx_vdi *vdi, struct job *job, uint64_t blocks, uint64_t number)
{
    static uint64_t seed = 88172645463325252u;

    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    job->block = seed % (blocks / DEPTH) * DEPTH + (uint64_t)(job - jobs);
    job->number = number;
    for (size_t i = 0; i < sizeof job->memory / sizeof job->memory[0]; i++)
        job->memory[i] = number;
    job->iov = (struct iovec){job->memory, sizeof job->memory};
    job->request = (struct plx_request){.op = PLX_WRITE,
                                        .offset = job->block * PLX_BLOCK_SIZE,
                                        .length = PLX_BLOCK_SIZE,
                                        .iov = &job->iov,
                                        .iovcnt = 1,
                                        .done = on_done,
                                        .owner = job};
    job->busy = true;
    note('s', job->block, number);
    plx_vdi_submit(vdi, &job->request);
}

static int say(const char *what, int error)
{
    fprintf(stderr, "ring-burst: %s: %s\n", what, fault.code ? fault.text : plx_error_text(error));
    return 1;
}

/* Until so many are acknowledged. */
static int write_until(struct plx_store *store, struct plx_vdi *vdi, uint64_t blocks,
                       uint64_t *number, uint64_t until)
{
    while (!failed && acknowledged < until) {
        for (unsigned i = 0; i < DEPTH; i++)
            if (!jobs[i].busy)
                begin(vdi, &jobs[i], blocks, (*number)++);
        if (!plx_store_tick(store))
            plx_store_wait(store);
    }
    return failed;
}

int main(int argc, char **argv)
{
    struct plx_attach_options options = {.role = "test", .rings = true};
    const struct plx_attach_vdi_options how = {.overwrite = -1};
    struct plx_attach *attach;
    struct plx_store *store;
    struct plx_vdi *vdi;
    uint64_t number, blocks, count;
    int error;

    if (argc != 8)
        return 2;
    alarm(GIVE_UP_S);
    options.store = argv[1];
    number = strtoull(argv[4], NULL, 10);
    blocks = strtoull(argv[5], NULL, 10);
    count = strtoull(argv[6], NULL, 10);
    log_fd = open(argv[3], O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
    error = plx_attach_open(&options, &attach, &fault);
    if (error)
        return say(argv[1], error);
    store = plx_attach_store(attach);
    snprintf(volume, sizeof volume, "%s", plx_store_device(store, 0)->name);
    error = plx_attach_vdi_open(attach, argv[2], NULL, &how, &vdi, &fault);
    if (!error)
        error = plx_attach_ring_use(attach, vdi, PLX_RING_ON, &fault);
    if (!error)
        error = write_until(store, vdi, blocks, &number, count);
    if (error)
        return say(argv[2], error);
    note('h', 0, 0);
    atomic_store(&held, true);
    error = write_until(store, vdi, blocks, &number, acknowledged + strtoull(argv[7], NULL, 10));
    if (error)
        return say(argv[2], error);
    kill(getpid(), SIGKILL);
    return 1;
}
