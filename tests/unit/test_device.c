/* test_device.c - handler/device: files and block devices through libaio, LUNs through libiscsi.
 *
 * Every write is mirrored in a shadow in memory; what is read must equal it. What the kernel
 * refuses or reports, it refuses and reports by link-time wrapping. Block devices are loop devices,
 * which root can make where the kernel has them. The iSCSI part runs against the LUN in
 * PLX_TEST_ISCSI (an iscsi:// URL; its contents are overwritten), else not.
 */
#include <errno.h>
#include <fcntl.h>
#include <libaio.h>
#include <limits.h>
#include <linux/blkpg.h>
#include <linux/loop.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/device.h"
#include "fault/alloc.h"
#include "suite.h"

#define MIB (1u << 20)
#define FILE_BYTES (4 * MIB)
#define ROUNDS 2000
#define IN_FLIGHT 48
#define IO_BYTES_MAX (96u << 10)

static char folder[64];
static uint64_t seed;

static uint64_t next_random(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    return seed ^= seed << 17;
}

static const char *path_of(const char *name)
{
    static char path[128];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static struct plx_device *open_new(const char *name, uint64_t bytes)
{
    struct plx_device_open_options options = {
        .create_bytes = bytes, .queue_depth = 16, .waits = true};
    struct plx_device *device = NULL;
    struct plx_fault fault = {0};
    int result = plx_device_open(path_of(name), &options, &device, &fault);

    CU_ASSERT_EQUAL_FATAL(result, 0);
    return device;
}

/* What opening refuses: the code, and a word of the reason. */
static void refused(const char *name, const struct plx_device_open_options *options, int code,
                    const char *word)
{
    struct plx_device *device = (struct plx_device *)-1;
    struct plx_fault fault = {0};

    CU_ASSERT_EQUAL(plx_device_open(name, options, &device, &fault), code);
    CU_ASSERT_PTR_EQUAL(device, (struct plx_device *)-1);
    CU_ASSERT_EQUAL(fault.code, code);
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, word));
    if (!strstr(fault.text, word))
        printf("  said: %s\n", fault.text);
}

/* ---- The kernel, which refuses or says what it is told to ---- */

static struct {
    int refuses[2], next; /* io_submit's next answers instead of taking anything; 0: it takes */
    long says;            /* of the next event; 0: the truth */
    unsigned often;       /* so many events */
    int set_up;           /* io_setup's next answer; 0: the truth */
    unsigned set_ups;     /* how often it was called */
} kernel;

/* The linker sends calls of io_submit here, and calls of __real_io_submit to io_submit. */
int __real_io_submit(io_context_t context, long count, struct iocb **list);
int __real_io_getevents(io_context_t context, long min, long max, struct io_event *events,
                        struct timespec *timeout);
int __real_io_setup(int count, io_context_t *context);
int __wrap_io_submit(io_context_t context, long count, struct iocb **list);
int __wrap_io_getevents(io_context_t context, long min, long max, struct io_event *events,
                        struct timespec *timeout);
int __wrap_io_setup(int count, io_context_t *context);

int __wrap_io_submit(io_context_t context, long count, struct iocb **list)
{
    int answer = kernel.next < 2 ? kernel.refuses[kernel.next] : 0;

    if (!answer)
        return __real_io_submit(context, count, list);
    kernel.next++;
    return answer;
}

int __wrap_io_getevents(io_context_t context, long min, long max, struct io_event *events,
                        struct timespec *timeout)
{
    int got = __real_io_getevents(context, min, max, events, timeout);

    for (int i = 0; i < got && kernel.often; i++, kernel.often--)
        events[i].res = (unsigned long)kernel.says;
    return got;
}

int __wrap_io_setup(int count, io_context_t *context)
{
    int answer = kernel.set_up;

    kernel.set_ups++;
    kernel.set_up = 0;
    return answer ? answer : __real_io_setup(count, context);
}

static void kernel_refuses(int first, int second)
{
    kernel.refuses[0] = first;
    kernel.refuses[1] = second;
    kernel.next = 0;
}

static void kernel_says(long result, unsigned often)
{
    kernel.says = result;
    kernel.often = often;
}

/* ---- One request at a time ------------------------------------------------------------------ */

static void mark_done(struct plx_io *io)
{
    *(bool *)io->owner = true;
}

static int run(struct plx_device *device, enum plx_io_op op, uint64_t offset, void *buffer,
               size_t bytes)
{
    bool done = false;
    struct iovec iov = {buffer, bytes};
    struct plx_io io = {.op = op,
                        .offset = offset,
                        .bytes = bytes,
                        .iov = &iov,
                        .iovcnt = bytes ? 1 : 0,
                        .done = mark_done,
                        .owner = &done};

    device->ops->submit(device, &io);
    device->ops->kick(device);
    CU_ASSERT_FALSE(done); /* from poll() only */
    while (!done)
        device->ops->poll(device, true);
    return io.result;
}

/* Writes and reads so many blocks at once. */
static void run_many(struct plx_device *device, unsigned many)
{
    static char buffer[8 * 4096], back[8 * 4096];
    struct iovec iov[8];
    struct plx_io io[8];
    bool done[8];

    for (size_t i = 0; i < sizeof buffer; i++)
        buffer[i] = (char)next_random();
    for (int reads = 0; reads < 2; reads++) {
        for (unsigned i = 0; i < many; i++) {
            done[i] = false;
            iov[i] = (struct iovec){(reads ? back : buffer) + i * 4096, 4096};
            io[i] = (struct plx_io){.op = reads ? PLX_IO_READ : PLX_IO_WRITE,
                                    .offset = i * 4096,
                                    .bytes = 4096,
                                    .iov = &iov[i],
                                    .iovcnt = 1,
                                    .done = mark_done,
                                    .owner = &done[i]};
            device->ops->submit(device, &io[i]);
        }
        for (unsigned i = 0; i < many; i++) {
            while (!done[i])
                device->ops->poll(device, true);
            CU_ASSERT_EQUAL(io[i].result, 0);
        }
    }
    CU_ASSERT_EQUAL(memcmp(buffer, back, many * 4096), 0);
}

/* LIBAIO-6: a context from the fifth request at once on, or after 250. One that cannot be had is
 * done without. */
static void test_context(void)
{
    struct plx_device_open_options options = {.create_bytes = FILE_BYTES};
    struct plx_device *device = NULL;

    CU_ASSERT_EQUAL_FATAL(plx_device_open(path_of("context"), &options, &device, NULL), 0);
    kernel.set_ups = 0;
    for (unsigned many = 1; many <= 4; many++)
        run_many(device, many);
    CU_ASSERT_EQUAL(run(device, PLX_IO_FLUSH, 0, NULL, 0), 0);
    CU_ASSERT_EQUAL(kernel.set_ups, 0);
    kernel.set_up = -EAGAIN;
    run_many(device, 5); /* the writes find none, the reads do */
    CU_ASSERT_EQUAL(kernel.set_ups, 2);
    run_many(device, 1);
    run_many(device, 8);
    CU_ASSERT_EQUAL(kernel.set_ups, 2);
    plx_device_close(device);
    CU_ASSERT_EQUAL_FATAL(plx_device_open(path_of("context"), &options, &device, NULL), 0);
    for (unsigned i = 0; i < 125; i++)
        run_many(device, 1);
    CU_ASSERT_EQUAL(kernel.set_ups, 2);
    run_many(device, 1);
    CU_ASSERT_EQUAL(kernel.set_ups, 3); /* much was done one by one */
    plx_device_close(device);
    options.queue_depth = 1;
    CU_ASSERT_EQUAL_FATAL(plx_device_open(path_of("context"), &options, &device, NULL), 0);
    for (unsigned i = 0; i < 130; i++)
        run_many(device, 1);
    CU_ASSERT_EQUAL(kernel.set_ups, 3); /* never */
    plx_device_close(device);
}

/* ---- Random I/O against a shadow ------------------------------------------------------------- */

struct job {
    struct plx_io io;
    struct iovec iov[8];
    char *memory;
    bool busy;
    struct shadow *shadow;
};

struct shadow {
    struct plx_device *device;
    uint8_t *bytes;
    uint8_t *locked; /* per block of the device: a request is under way there */
    struct job jobs[IN_FLIGHT];
    unsigned busy, wrong, failed;
    pthread_mutex_t mutex; /* while there is a watcher: of the device and of all that is in here */
    pthread_cond_t some_done;
    unsigned polls_of_watcher;
    atomic_bool stop;
};

static void for_blocks(struct shadow *shadow, const struct plx_io *io, uint8_t value)
{
    memset(shadow->locked + io->offset / shadow->device->block_size, value,
           io->bytes / shadow->device->block_size);
}

static void check_read(struct shadow *shadow, const struct plx_io *io)
{
    const uint8_t *want = shadow->bytes + io->offset;

    for (int i = 0; i < io->iovcnt; i++) {
        if (memcmp(io->iov[i].iov_base, want, io->iov[i].iov_len) != 0)
            shadow->wrong++;
        want += io->iov[i].iov_len;
    }
}

static void job_done(struct plx_io *io)
{
    struct job *job = io->owner;

    if (io->result < 0)
        job->shadow->failed++;
    else if (io->op == PLX_IO_READ)
        check_read(job->shadow, io);
    if (io->op != PLX_IO_FLUSH)
        for_blocks(job->shadow, io, 0);
    job->busy = false;
    job->shadow->busy--;
}

/* Splits the buffer at random places, so that pieces start and end anywhere. */
static void job_scatter(struct job *job, size_t bytes, bool aligned)
{
    uint32_t block = job->shadow->device->block_size;
    char *at = job->memory + (aligned ? 0 : 1 + next_random() % 600);
    int count = 0;

    while (bytes > 0) {
        size_t part = count == 7 ? bytes : 1 + next_random() % bytes;

        if (aligned && part < bytes)
            part = part < block ? block : part / block * block;
        if (part > bytes)
            part = bytes;
        job->iov[count].iov_base = at;
        job->iov[count++].iov_len = part;
        at += part;
        bytes -= part;
    }
    job->io.iov = job->iov;
    job->io.iovcnt = count;
}

static bool job_choose_place(struct job *job)
{
    struct shadow *shadow = job->shadow;
    uint32_t block = shadow->device->block_size;
    uint64_t blocks = FILE_BYTES / block, count = 1 + next_random() % (IO_BYTES_MAX / block);
    uint64_t first = next_random() % blocks;

    if (first + count > blocks)
        count = blocks - first;
    for (uint64_t i = first; i < first + count; i++)
        if (shadow->locked[i])
            return false;
    job->io.offset = first * block;
    job->io.bytes = count * block;
    return true;
}

static void job_start(struct job *job)
{
    struct shadow *shadow = job->shadow;
    unsigned dice = next_random() % 100;

    job->io = (struct plx_io){.done = job_done, .owner = job};
    job->io.op = dice < 5 ? PLX_IO_FLUSH : dice < 50 ? PLX_IO_READ : PLX_IO_WRITE;
    if (job->io.op != PLX_IO_FLUSH) {
        if (!job_choose_place(job))
            return;
        job_scatter(job, job->io.bytes, next_random() % 2);
        for_blocks(shadow, &job->io, 1);
    }
    if (job->io.op == PLX_IO_WRITE) {
        uint8_t *to = shadow->bytes + job->io.offset;

        for (int i = 0; i < job->io.iovcnt; i++) {
            memset(job->iov[i].iov_base, (int)next_random(), job->iov[i].iov_len);
            memcpy(to, job->iov[i].iov_base, job->iov[i].iov_len);
            to += job->iov[i].iov_len;
        }
    }
    job->busy = true;
    shadow->busy++;
    shadow->device->ops->submit(shadow->device, &job->io);
}

/* As a thread of the handler's loop: waits without the mutex, polls with it. */
static void *watch(void *argument)
{
    struct shadow *shadow = argument;
    struct plx_device *device = shadow->device;

    while (!atomic_load(&shadow->stop)) {
        device->ops->wait(device);
        pthread_mutex_lock(&shadow->mutex);
        if (device->ops->poll(device, false) > 0)
            shadow->polls_of_watcher++;
        pthread_cond_signal(&shadow->some_done);
        pthread_mutex_unlock(&shadow->mutex);
    }
    return NULL;
}

/* Until nothing is under way; a lost wake-up ends here. */
static void wait_for_all(struct shadow *shadow, bool watched)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    while (shadow->busy) {
        while (shadow->device->ops->kick(shadow->device))
            shadow->device->ops->poll(shadow->device, false);
        if (!shadow->busy)
            break;
        if (watched) {
            CU_ASSERT_EQUAL_FATAL(
                pthread_cond_timedwait(&shadow->some_done, &shadow->mutex, &until), 0);
        } else {
            shadow->device->ops->wait(shadow->device);
            shadow->device->ops->poll(shadow->device, false);
            CU_ASSERT_FATAL(time(NULL) < until.tv_sec);
        }
    }
}

static void poll_some(struct plx_device *device)
{
    int tries = 0;

    while (device->ops->poll(device, true) == 0) /* each takes a second */
        CU_ASSERT_FATAL(++tries < 20);
}

static void random_rounds(struct shadow *shadow, bool watched)
{
    struct plx_device *device = shadow->device;

    for (int round = 0; round < ROUNDS; round++) {
        struct job *job = &shadow->jobs[next_random() % IN_FLIGHT];

        if (!job->busy)
            job_start(job);
        if (next_random() % 3 == 0)
            device->ops->kick(device);
        if (next_random() % 8 == 0)
            device->ops->poll(device, false);
        if (next_random() % 16 == 0 && shadow->busy) {
            device->ops->kick(device);
            if (next_random() % 2)
                poll_some(device);
        }
        if (watched && next_random() % 4 == 0) {
            pthread_mutex_unlock(&shadow->mutex);
            pthread_mutex_lock(&shadow->mutex);
        }
    }
    device->ops->kick(device);
    wait_for_all(shadow, watched);
    /* Where the watcher never got the mutex: it alone polls for these. */
    for (int tries = 0; watched && !shadow->polls_of_watcher && tries < 20; tries++) {
        job_start(&shadow->jobs[0]);
        wait_for_all(shadow, true);
    }
}

static void random_io(struct plx_device *device, bool watched)
{
    struct shadow shadow = {.device = device,
                            .mutex = PTHREAD_MUTEX_INITIALIZER,
                            .some_done = PTHREAD_COND_INITIALIZER};
    pthread_t watcher;

    shadow.bytes = calloc(1, FILE_BYTES);
    shadow.locked = calloc(1, FILE_BYTES / device->block_size);
    for (int i = 0; i < IN_FLIGHT; i++) {
        shadow.jobs[i].shadow = &shadow;
        CU_ASSERT_EQUAL_FATAL(
            posix_memalign((void **)&shadow.jobs[i].memory, 4096, IO_BYTES_MAX + 1024), 0);
    }
    pthread_mutex_lock(&shadow.mutex);
    if (watched)
        CU_ASSERT_EQUAL_FATAL(pthread_create(&watcher, NULL, watch, &shadow), 0);
    CU_ASSERT_EQUAL(run(device, PLX_IO_WRITE, 0, shadow.bytes, FILE_BYTES), 0);
    random_rounds(&shadow, watched);
    CU_ASSERT_EQUAL(shadow.wrong, 0);
    CU_ASSERT_EQUAL(shadow.failed, 0);
    CU_ASSERT_EQUAL(device->ops->poll(device, true), 0); /* nothing under way: does not block */
    pthread_mutex_unlock(&shadow.mutex);
    if (watched) {
        atomic_store(&shadow.stop, true);
        device->ops->interrupt(device);
        pthread_join(watcher, NULL);
        CU_ASSERT(shadow.polls_of_watcher > 0);
    }
    for (int i = 0; i < IN_FLIGHT; i++)
        free(shadow.jobs[i].memory);
    free(shadow.bytes);
    free(shadow.locked);
}

static void test_random(void)
{
    struct plx_device *device = open_new("random", FILE_BYTES);

    CU_ASSERT_EQUAL(device->bytes, FILE_BYTES);
    CU_ASSERT(device->block_size == 512 || device->block_size == 4096);
    CU_ASSERT_TRUE(device->volatile_cache);
    random_io(device, false);
    random_io(device, true);
    plx_device_close(device);
}

/* The page cache instead of direct I/O: tmpfs before Linux 6.6 refuses O_DIRECT. */
static void test_random_tmpfs(void)
{
    struct plx_device_open_options options = {.create_bytes = FILE_BYTES, .waits = true};
    struct plx_device *device = NULL;
    char path[64];

    snprintf(path, sizeof path, "/dev/shm/plx-test-device-%d", (int)getpid());
    CU_ASSERT_EQUAL_FATAL(plx_device_open(path, &options, &device, NULL), 0);
    random_io(device, true);
    plx_device_close(device);
    unlink(path);
}

static void test_persists(void)
{
    struct plx_device *device = open_new("persists", FILE_BYTES);
    char buffer[4096], back[4096];

    memset(buffer, 'x', sizeof buffer);
    CU_ASSERT_EQUAL(run(device, PLX_IO_WRITE, FILE_BYTES - 4096, buffer, 4096), 0);
    CU_ASSERT_EQUAL(run(device, PLX_IO_FLUSH, 0, NULL, 0), 0);
    plx_device_close(device);
    /* The size wished for matters only for a missing file. */
    device = open_new("persists", 2 * FILE_BYTES);
    CU_ASSERT_EQUAL(device->bytes, FILE_BYTES);
    CU_ASSERT_EQUAL(run(device, PLX_IO_READ, FILE_BYTES - 4096, back, 4096), 0);
    CU_ASSERT_EQUAL(memcmp(buffer, back, 4096), 0);
    plx_device_close(device);
}

/* LIBAIO-7. Both ways of a flush, and both ways to go. */
static void test_deleted(void)
{
    for (unsigned i = 0; i < 4; i++) {
        struct plx_device *device = open_new("deleted", FILE_BYTES);
        char buffer[4096] = "", other[128];

        kernel_refuses(i & 1 ? -EINVAL : 0, 0);
        CU_ASSERT_EQUAL(run(device, PLX_IO_FLUSH, 0, NULL, 0), 0);
        kernel_refuses(0, 0);
        plx_device_close(open_new("other", FILE_BYTES));
        snprintf(other, sizeof other, "%s", path_of("other"));
        CU_ASSERT_EQUAL(i & 2 ? rename(other, path_of("deleted")) : unlink(path_of("deleted")), 0);
        CU_ASSERT_EQUAL(run(device, PLX_IO_WRITE, 0, buffer, 4096), 0);
        CU_ASSERT_EQUAL(run(device, PLX_IO_FLUSH, 0, NULL, 0), PLX_ERR_MISSING);
        CU_ASSERT_EQUAL(run(device, PLX_IO_READ, 0, buffer, 4096), 0);
        plx_device_close(device);
    }
}

static void test_read_only(void)
{
    struct plx_device_open_options options = {.read_only = true};
    struct plx_device *device = NULL;
    char buffer[4096] = "";

    plx_device_close(open_new("read-only", FILE_BYTES));
    chmod(path_of("read-only"), 0444);
    CU_ASSERT_EQUAL_FATAL(plx_device_open(path_of("read-only"), &options, &device, NULL), 0);
    CU_ASSERT_EQUAL(run(device, PLX_IO_READ, 0, buffer, 4096), 0);
    CU_ASSERT_EQUAL(run(device, PLX_IO_WRITE, 0, buffer, 4096), PLX_ERR_READONLY);
    CU_ASSERT_EQUAL(run(device, PLX_IO_FLUSH, 0, NULL, 0), 0);
    plx_device_close(device);
}

static uint64_t elapsed_ms(const struct timespec *since)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)((now.tv_sec - since->tv_sec) * 1000 +
                      (now.tv_nsec - since->tv_nsec) / 1000000);
}

/* wait() ends by interrupt(), also by one that came before it; and by itself when the kernel does
 * not take that. */
static void test_interrupt(void)
{
    struct plx_device *device = open_new("interrupt", FILE_BYTES);
    struct timespec start;
    char buffer[4096];

    for (int refused = 0; refused < 2; refused++) {
        clock_gettime(CLOCK_MONOTONIC, &start);
        kernel_refuses(refused ? -EAGAIN : 0, 0);
        device->ops->interrupt(device);
        device->ops->wait(device);
        CU_ASSERT(refused ? elapsed_ms(&start) >= 900 : elapsed_ms(&start) < 900);
        kernel_refuses(0, 0);
        CU_ASSERT_EQUAL(device->ops->poll(device, true), 0);
        clock_gettime(CLOCK_MONOTONIC, &start);
        device->ops->wait(device); /* what interrupted the first is gone */
        CU_ASSERT(elapsed_ms(&start) >= 900);
        CU_ASSERT_EQUAL(run(device, PLX_IO_READ, 0, buffer, 4096), 0);
    }
    plx_device_close(device);
}

static void test_truncated(void)
{
    struct plx_device *device = open_new("truncated", FILE_BYTES);
    char buffer[8192];

    CU_ASSERT_EQUAL_FATAL(truncate(path_of("truncated"), 4096), 0);
    CU_ASSERT_EQUAL(run(device, PLX_IO_READ, 0, buffer, 8192), PLX_ERR_IO_READ);
    CU_ASSERT_EQUAL(run(device, PLX_IO_READ, 0, buffer, 4096), 0);
    plx_device_close(device);
}

static void test_refusals(void)
{
    struct plx_device_open_options plain = {0}, create = {.create_bytes = FILE_BYTES};
    struct plx_device_open_options odd = {.create_bytes = 4097};
    struct plx_device_open_options huge = {.create_bytes = INT64_MAX / 4096 * 4096};
    char long_name[400];
    struct stat st;

    refused(path_of("missing"), &plain, PLX_ERR_NOT_FOUND, "No such file");
    refused(path_of("no/such/folder"), &create, PLX_ERR_NOT_FOUND, "folder does not exist");
    refused(folder, &plain, PLX_ERR_INVALID, "is a folder");
    refused(folder, &create, PLX_ERR_INVALID, "is a folder");
    refused("/dev/null", &plain, PLX_ERR_INVALID, "neither");
    refused("", &plain, PLX_ERR_INVALID, "needs a path");
    refused(path_of("odd"), &odd, PLX_ERR_INVALID, "multiple of 4096");
    refused(path_of("huge"), &huge, PLX_ERR_NOSPACE, "too large");
    CU_ASSERT_NOT_EQUAL(stat(path_of("huge"), &st), 0); /* taken away again */
    close(open(path_of("empty"), O_CREAT | O_WRONLY, 0600));
    refused(path_of("empty"), &plain, PLX_ERR_NOT_FOUND, "is empty");
    memset(long_name, 'a', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    refused(long_name, &plain, PLX_ERR_INVALID, "longer than 255");
    close(open(path_of("file"), O_CREAT | O_WRONLY, 0600));
    refused(path_of("file/below"), &plain, PLX_ERR_NOT_FOUND, "Not a directory");
    CU_ASSERT_EQUAL(symlink("nowhere", path_of("link")), 0);
    refused(path_of("link"), &create, PLX_ERR_EXISTS, "File exists");
    refused("iscsi://", &plain, PLX_ERR_INVALID, "iscsi://host");
    refused("iscsi://127.0.0.1:1/iqn.2026-11.org.test:t/0", &plain, PLX_ERR_LOST,
            "nothing answers at 127.0.0.1:1 (Connection refused); check address");
}

/* A new file of the current folder. */
static void test_plain_name(void)
{
    struct plx_device_open_options create = {.create_bytes = FILE_BYTES};
    struct plx_device *device = NULL;
    char before[PATH_MAX];

    CU_ASSERT_PTR_NOT_NULL_FATAL(getcwd(before, sizeof before));
    CU_ASSERT_EQUAL_FATAL(chdir(folder), 0);
    CU_ASSERT_EQUAL(plx_device_open("plain", &create, &device, NULL), 0);
    plx_device_close(device);
    CU_ASSERT_EQUAL(chdir(before), 0);
    CU_ASSERT_EQUAL(access(path_of("plain"), F_OK), 0);
}

/* The programmer's errors stop the process. */
static void breach(uint64_t offset, size_t bytes)
{
    struct plx_device *device = open_new("breach", FILE_BYTES);
    int status;
    pid_t child;

    fflush(NULL);
    child = fork();
    if (child == 0) {
        char *buffer = calloc(1, 1 << 16);

        if (!freopen("/dev/null", "w", stderr))
            _exit(0);
        signal(SIGABRT, SIG_DFL);
        run(device, PLX_IO_WRITE, offset, buffer, bytes);
        _exit(0);
    }
    CU_ASSERT_EQUAL_FATAL(waitpid(child, &status, 0), child);
    CU_ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    plx_device_close(device);
}

static void test_breaches(void)
{
    breach(FILE_BYTES, 4096);
    breach(FILE_BYTES - 4096, 8192);
    breach(100, 4096);
    breach(0, 100);
}

/* What each of the kernel's errors means to the engine. */
static void test_kernel_errors(void)
{
    static const struct {
        int error, read, write;
    } meanings[] = {
        {EIO, PLX_ERR_IO_READ, PLX_ERR_IO_WRITE},
        {ENODEV, PLX_ERR_LOST, PLX_ERR_LOST},
        {ENXIO, PLX_ERR_LOST, PLX_ERR_LOST},
        {ENOLINK, PLX_ERR_LOST, PLX_ERR_LOST},
        {ENOTCONN, PLX_ERR_LOST, PLX_ERR_LOST},
        {ETIMEDOUT, PLX_ERR_LOST, PLX_ERR_LOST},
        {ESHUTDOWN, PLX_ERR_LOST, PLX_ERR_LOST},
        {EBADE, PLX_ERR_FENCED, PLX_ERR_FENCED},
        {EDQUOT, PLX_ERR_VOLUME_FULL, PLX_ERR_VOLUME_FULL},
        {EFBIG, PLX_ERR_FILE_LIMIT, PLX_ERR_FILE_LIMIT},
        {EROFS, PLX_ERR_IO_READ, PLX_ERR_READONLY},
        {EPERM, PLX_ERR_IO_READ, PLX_ERR_READONLY},
        {ENOMEM, PLX_ERR_NOMEM, PLX_ERR_NOMEM},
    };
    struct plx_device *device = open_new("errors", FILE_BYTES);
    char buffer[4096] = "";

    for (size_t i = 0; i < sizeof meanings / sizeof meanings[0]; i++) {
        kernel_says(-meanings[i].error, 1);
        CU_ASSERT_EQUAL(run(device, PLX_IO_READ, 0, buffer, 4096), meanings[i].read);
        kernel_says(-meanings[i].error, 1);
        CU_ASSERT_EQUAL(run(device, PLX_IO_WRITE, 0, buffer, 4096), meanings[i].write);
        kernel_refuses(-meanings[i].error, 0);
        CU_ASSERT_EQUAL(run(device, PLX_IO_WRITE, 0, buffer, 4096), meanings[i].write);
    }
    CU_ASSERT_EQUAL(run(device, PLX_IO_WRITE, 0, buffer, 4096), 0);
    plx_device_close(device);
}

/* LIBAIO-4 */
static void test_short_transfers(void)
{
    struct plx_device *device = open_new("short", FILE_BYTES);
    char buffer[12288], back[12288];

    memset(buffer, 'x', sizeof buffer);
    kernel_says((long)device->block_size + 1, 1);
    CU_ASSERT_EQUAL(run(device, PLX_IO_WRITE, 0, buffer, sizeof buffer), 0);
    kernel_says(4096, 3);
    CU_ASSERT_EQUAL(run(device, PLX_IO_READ, 0, back, sizeof back), 0);
    CU_ASSERT_EQUAL(memcmp(buffer, back, sizeof buffer), 0);
    kernel_says(0, 4);
    CU_ASSERT_EQUAL(run(device, PLX_IO_WRITE, 0, buffer, sizeof buffer), PLX_ERR_IO_WRITE);
    kernel_says(0, 4);
    CU_ASSERT_EQUAL(run(device, PLX_IO_READ, 0, back, sizeof back), PLX_ERR_IO_READ);
    plx_device_close(device);
}

/* The kernel is short of memory, or was interrupted, or knows no asynchronous flush. */
static void test_refused_submissions(void)
{
    struct plx_device *device = open_new("refused", FILE_BYTES);
    bool done[2] = {false, false};
    char buffer[2][4096];
    struct iovec iov[2] = {{buffer[0], 4096}, {buffer[1], 4096}};
    struct plx_io io[2];

    kernel_refuses(-EINTR, -EINTR);
    CU_ASSERT_EQUAL(run(device, PLX_IO_READ, 0, buffer[0], 4096), 0);
    kernel_refuses(-EAGAIN, 0);
    CU_ASSERT_EQUAL(run(device, PLX_IO_READ, 0, buffer[0], 4096), PLX_ERR_NOMEM);
    for (unsigned i = 0; i < 2; i++) { /* while something is under way it waits */
        io[i] = (struct plx_io){.op = PLX_IO_READ,
                                .bytes = 4096,
                                .iov = &iov[i],
                                .iovcnt = 1,
                                .done = mark_done,
                                .owner = &done[i]};
        kernel_refuses(i ? -EAGAIN : 0, 0);
        device->ops->submit(device, &io[i]);
        device->ops->kick(device);
    }
    while (!done[0] || !done[1])
        device->ops->poll(device, true);
    CU_ASSERT(io[0].result == 0 && io[1].result == 0);
    kernel_refuses(-EINVAL, 0);
    CU_ASSERT_EQUAL(run(device, PLX_IO_FLUSH, 0, NULL, 0), 0);
    kernel_refuses(-EIO, 0); /* not asked any more */
    CU_ASSERT_EQUAL(run(device, PLX_IO_FLUSH, 0, NULL, 0), 0);
    kernel_refuses(0, 0);
    plx_device_close(device);
    device = open_new("refused", FILE_BYTES);
    kernel_refuses(-EIO, 0);
    CU_ASSERT_EQUAL(run(device, PLX_IO_FLUSH, 0, NULL, 0), PLX_ERR_IO_WRITE);
    plx_device_close(device);
}

/* No descriptors, no AIO contexts, no memory: said, and nothing is left behind. */
static void test_lack(void)
{
    struct plx_device_open_options create = {.create_bytes = FILE_BYTES, .waits = true};
    struct plx_device *device = NULL;
    struct plx_fault fault = {0};
    struct rlimit limit, tight;
    struct stat st;
    int lowest = dup(0), result = -1;
    uint64_t failed = 1;

    close(lowest);
    getrlimit(RLIMIT_NOFILE, &limit);
    tight = limit;
    for (rlim_t more = 0; result; more++) {
        tight.rlim_cur = (rlim_t)lowest + more;
        setrlimit(RLIMIT_NOFILE, &tight);
        result = plx_device_open(path_of("lack"), &create, &device, &fault);
        setrlimit(RLIMIT_NOFILE, &limit);
        CU_ASSERT_EQUAL(result, more < 2 ? PLX_ERR_SYSTEM : 0);
        if (result) {
            CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "Too many open files"));
            CU_ASSERT_NOT_EQUAL(stat(path_of("lack"), &st), 0);
        }
    }
    plx_device_close(device);
    unlink(path_of("lack"));
    kernel.set_up = -EAGAIN;
    refused(path_of("lack"), &create, PLX_ERR_SYSTEM, "fs.aio-max-nr");
    kernel.set_up = -ENOMEM;
    refused(path_of("lack"), &create, PLX_ERR_NOMEM, "set up AIO");
    for (uint64_t k = 1; failed; k++) {
        fault_alloc_arm(k, false);
        result = plx_device_open(path_of("lack"), &create, &device, &fault);
        fault_alloc_disarm(&failed);
        /* One is for finding out whether direct I/O works, which then is done without. */
        CU_ASSERT(result == 0 || (failed && result == PLX_ERR_NOMEM));
        CU_ASSERT_EQUAL(stat(path_of("lack"), &st) == 0, result == 0);
        if (result == 0) {
            plx_device_close(device);
            unlink(path_of("lack"));
        }
    }
}

/* What the transport cannot take, and what goes on behind a short transfer, goes through a copy. */
static void test_no_memory_for_copy(void)
{
    static _Alignas(4096) char buffer[12288];
    struct plx_device *device = open_new("copy", FILE_BYTES);
    uint64_t failed;

    fault_alloc_arm(1, true);
    CU_ASSERT_EQUAL(run(device, PLX_IO_WRITE, 0, buffer + 1, 4096), PLX_ERR_NOMEM);
    CU_ASSERT_EQUAL(run(device, PLX_IO_READ, 0, buffer + 1, 4096), PLX_ERR_NOMEM);
    kernel_says(4096, 1);
    CU_ASSERT_EQUAL(run(device, PLX_IO_WRITE, 0, buffer, 8192), PLX_ERR_NOMEM);
    fault_alloc_disarm(&failed);
    CU_ASSERT_EQUAL(failed, 3);
    CU_ASSERT_EQUAL(run(device, PLX_IO_WRITE, 0, buffer + 1, 4096), 0);
    plx_device_close(device);
}

/* ---- What only root can set up ---- */

/* As nobody, in the folder: returns whether opening ended so, and said so. */
static bool stranger_opens(const char *name, uint64_t create_bytes, int code, const char *word)
{
    struct plx_device_open_options options = {.create_bytes = create_bytes};
    struct plx_device *device;
    struct plx_fault fault = {0};
    int status;
    pid_t child;

    fflush(NULL);
    child = fork();
    if (child == 0) {
        if (setresuid(65534, 65534, 65534))
            _exit(2);
        _exit(plx_device_open(path_of(name), &options, &device, &fault) != code ||
              !strstr(fault.text, word));
    }
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void test_permissions(void)
{
    if (geteuid() != 0) {
        PART_SKIPPED("only root can play another user");
        return;
    }
    plx_device_close(open_new("ours", FILE_BYTES));
    chmod(folder, 0711);
    CU_ASSERT(stranger_opens("ours", 0, PLX_ERR_PERMISSION, "open for writing"));
    CU_ASSERT(stranger_opens("theirs", FILE_BYTES, PLX_ERR_PERMISSION, "cannot create"));
    chmod(folder, 0733); /* may write there, and cannot make it durable */
    CU_ASSERT(stranger_opens("theirs", FILE_BYTES, PLX_ERR_PERMISSION, "cannot create"));
    CU_ASSERT_NOT_EQUAL(access(path_of("theirs"), F_OK), 0);
    chmod(folder, 0700);
}

static bool mount_here(const char *type, const char *options)
{
    mkdir(path_of("small"), 0700);
    if (mount("none", path_of("small"), type, 0, options) == 0)
        return true;
    PART_SKIPPED("cannot mount a %s: %s", type, strerror(errno));
    return false;
}

static void test_read_only_file_system(void)
{
    struct plx_device_open_options plain = {0}, reading = {.read_only = true};
    struct plx_device *device = NULL;

    if (!mount_here("tmpfs", "size=8m"))
        return;
    plx_device_close(open_new("small/volume", FILE_BYTES));
    CU_ASSERT_EQUAL(mount("none", path_of("small"), "tmpfs", MS_REMOUNT | MS_RDONLY, NULL), 0);
    refused(path_of("small/volume"), &plain, PLX_ERR_READONLY, "open for writing");
    CU_ASSERT_EQUAL(plx_device_open(path_of("small/volume"), &reading, &device, NULL), 0);
    plx_device_close(device);
    umount2(path_of("small"), MNT_DETACH);
}

/* A file system that refuses O_DIRECT. */
static void test_random_ramfs(void)
{
    struct plx_device *device;

    if (!mount_here("ramfs", NULL))
        return;
    device = open_new("small/volume", FILE_BYTES);
    random_io(device, true);
    plx_device_close(device);
    umount2(path_of("small"), MNT_DETACH);
}

/* ---- Block devices: loop devices, where there are any ---------------------------------------- */

static struct {
    int number, fd;
    char path[32];
} loop;

static bool loop_attach(uint32_t block_size)
{
    int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC), error = 0;
    struct loop_config config = {.block_size = block_size,
                                 .info = {.lo_flags = LO_FLAGS_PARTSCAN | LO_FLAGS_AUTOCLEAR}};

    if (control < 0)
        error = errno;
    plx_device_close(open_new("loop", FILE_BYTES));
    config.fd = (uint32_t)open(path_of("loop"), O_RDWR | O_CLOEXEC);
    for (int i = 0; i < 8 && !error; i++) { /* another may take it first */
        loop.number = ioctl(control, LOOP_CTL_GET_FREE);
        snprintf(loop.path, sizeof loop.path, "/dev/loop%d", loop.number);
        loop.fd = open(loop.path, O_RDWR | O_CLOEXEC);
        if (loop.fd >= 0 && ioctl(loop.fd, LOOP_CONFIGURE, &config) == 0)
            break;
        if (loop.fd < 0 || errno != EBUSY || i == 7)
            error = errno;
        close(loop.fd);
    }
    close((int)config.fd);
    close(control);
    if (error)
        PART_SKIPPED("no loop device: %s", strerror(error));
    return error == 0;
}

/* With the last descriptor, even that of a test that died. */
static void loop_detach(void)
{
    close(loop.fd);
}

static struct plx_device *open_block(const char *path)
{
    struct plx_device_open_options options = {.queue_depth = 16, .waits = true};
    struct plx_device *device = NULL;
    struct plx_fault fault = {0};

    CU_ASSERT_EQUAL(plx_device_open(path, &options, &device, &fault), 0);
    CU_ASSERT_PTR_NOT_NULL_FATAL(device);
    return device;
}

static void test_block_devices(void)
{
    static const uint32_t sizes[] = {512, 4096};
    struct plx_device_open_options plain = {0};

    for (unsigned i = 0; i < 2; i++) {
        struct plx_device *device;

        if (!loop_attach(sizes[i]))
            return;
        device = open_block(loop.path);
        CU_ASSERT_EQUAL(device->block_size, sizes[i]);
        CU_ASSERT_EQUAL(device->bytes, FILE_BYTES);
        random_io(device, true);
        plx_device_close(device);
        loop_detach();
    }
    if (!loop_attach(1024))
        return;
    refused(loop.path, &plain, PLX_ERR_UNSUPPORTED, "logical blocks of 1024 bytes");
    loop_detach();
}

static void *claim_for_a_moment(void *path)
{
    int fd = open(path, O_RDWR | O_EXCL | O_CLOEXEC);

    usleep(50000);
    close(fd);
    return NULL;
}

/* As of a mounted disk; a neighbour that opens the same store claims it for a moment only. */
static void test_claims(void)
{
    struct plx_device_open_options plain = {0}, reading = {.read_only = true};
    struct plx_device *device = NULL;
    pthread_t neighbour;
    int claim;

    if (!loop_attach(512))
        return;
    claim = open(loop.path, O_RDWR | O_EXCL | O_CLOEXEC);
    CU_ASSERT_FATAL(claim >= 0);
    refused(loop.path, &plain, PLX_ERR_BUSY, "is in use: mounted");
    CU_ASSERT_EQUAL(plx_device_open(loop.path, &reading, &device, NULL), 0);
    plx_device_close(device);
    close(claim);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&neighbour, NULL, claim_for_a_moment, loop.path), 0);
    usleep(10000);
    plx_device_close(open_block(loop.path));
    pthread_join(neighbour, NULL);
    loop_detach();
}

static bool set_write_cache(const char *kind)
{
    char path[80];
    FILE *file;
    bool set;

    snprintf(path, sizeof path, "/sys/block/loop%d/queue/write_cache", loop.number);
    file = fopen(path, "w");
    if (!file)
        return false;
    set = fputs(kind, file) >= 0;
    return fclose(file) == 0 && set;
}

/* The kernel's word on the cache, of a disk and of a partition of it. */
static void test_write_cache(void)
{
    struct blkpg_partition partition = {.start = MIB, .length = MIB, .pno = 1};
    struct blkpg_ioctl_arg add = {
        .op = BLKPG_ADD_PARTITION, .datalen = sizeof partition, .data = &partition};
    char second[48];

    if (!loop_attach(512))
        return;
    CU_ASSERT_EQUAL(ioctl(loop.fd, BLKPG, &add), 0);
    snprintf(second, sizeof second, "%sp1", loop.path);
    for (unsigned cached = 0; cached < 2; cached++) {
        struct plx_device *disk = open_block(loop.path), *part = NULL;

        if (!set_write_cache(cached ? "write back" : "write through") || access(second, F_OK)) {
            PART_SKIPPED("this kernel's cache cannot be set");
            plx_device_close(disk);
            break;
        }
        plx_device_close(disk);
        disk = open_block(loop.path);
        part = open_block(second);
        CU_ASSERT_EQUAL(disk->volatile_cache, cached);
        CU_ASSERT_EQUAL(part->volatile_cache, cached);
        CU_ASSERT_EQUAL(part->bytes, MIB);
        plx_device_close(disk);
        plx_device_close(part);
    }
    loop_detach();
}

static void test_block_device_read_only(void)
{
    struct plx_device_open_options plain = {0};
    struct plx_device *device;
    char buffer[4096] = "";
    int yes = 1, no = 0;

    if (!loop_attach(512))
        return;
    device = open_block(loop.path);
    CU_ASSERT_EQUAL(ioctl(loop.fd, BLKROSET, &yes), 0);
    CU_ASSERT_EQUAL(run(device, PLX_IO_WRITE, 0, buffer, 4096), PLX_ERR_READONLY);
    CU_ASSERT_EQUAL(run(device, PLX_IO_READ, 0, buffer, 4096), 0);
    CU_ASSERT_EQUAL(ioctl(loop.fd, BLKROSET, &no), 0); /* it would stay so */
    CU_ASSERT_EQUAL(run(device, PLX_IO_WRITE, 0, buffer, 4096), 0);
    plx_device_close(device);
    loop_detach();
    refused(loop.path, &plain, PLX_ERR_NOT_FOUND, "is empty"); /* nothing is attached any more */
}

static void test_no_such_device(void)
{
    struct plx_device_open_options plain = {0};

    if (mknod(path_of("node"), S_IFBLK | 0600, makedev(0, 0)) != 0) {
        PART_SKIPPED("cannot make a device node: %s", strerror(errno));
        return;
    }
    refused(path_of("node"), &plain, PLX_ERR_LOST, "No such device");
}

/* A file system with room for half of what is written. */
static void test_full_disk(void)
{
    struct plx_device_open_options options = {.create_bytes = 2u << 20};
    struct plx_device *device = NULL;
    char *buffer;
    int first, second;

    if (!mount_here("tmpfs", "size=1536k"))
        return;
    buffer = calloc(1, 1 << 20);
    CU_ASSERT_EQUAL_FATAL(plx_device_open(path_of("small/full"), &options, &device, NULL), 0);
    first = run(device, PLX_IO_WRITE, 0, buffer, 1 << 20);
    second = run(device, PLX_IO_WRITE, 1 << 20, buffer, 1 << 20);
    CU_ASSERT_EQUAL(first, 0);
    CU_ASSERT_EQUAL(second, PLX_ERR_VOLUME_FULL);
    CU_ASSERT_EQUAL(run(device, PLX_IO_READ, 0, buffer, 1 << 20), 0);
    plx_device_close(device);
    umount2(path_of("small"), MNT_DETACH);
    free(buffer);
}

static void test_iscsi(void)
{
    const char *url = getenv("PLX_TEST_ISCSI");
    struct plx_device_open_options options = {.queue_depth = 16};
    struct plx_device *device = NULL;
    struct plx_fault fault = {0};

    if (!url) {
        printf("(by hand only: PLX_TEST_ISCSI is not set) ");
        return;
    }
    if (plx_device_open(url, &options, &device, &fault) != 0)
        printf("  said: %s\n", fault.text);
    CU_ASSERT_PTR_NOT_NULL_FATAL(device);
    CU_ASSERT_FATAL(device->bytes >= FILE_BYTES);
    printf("(%s: %llu bytes, blocks of %u, %s cache) ", device->name,
           (unsigned long long)device->bytes, device->block_size,
           device->volatile_cache ? "volatile" : "durable");
    random_io(device, true);
    plx_device_close(device);
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"random I/O", test_random},
        {"random I/O through the page cache", test_random_tmpfs},
        {"random I/O where there is no direct I/O", test_random_ramfs},
        {"written and flushed is there after reopening", test_persists},
        {"deleted", test_deleted},
        {"read only", test_read_only},
        {"few requests need no context (LIBAIO-6)", test_context},
        {"waiting can be interrupted", test_interrupt},
        {"a volume cut short", test_truncated},
        {"refusals name the reason", test_refusals},
        {"a plain name", test_plain_name},
        {"breaches of the contract stop the process", test_breaches},
        {"the kernel's errors", test_kernel_errors},
        {"short transfers (LIBAIO-4)", test_short_transfers},
        {"submissions that the kernel refuses", test_refused_submissions},
        {"no descriptors, contexts or memory", test_lack},
        {"no memory for a copy", test_no_memory_for_copy},
        {"permissions", test_permissions},
        {"a read-only file system", test_read_only_file_system},
        {"full disk", test_full_disk},
        {"block devices", test_block_devices},
        {"a disk that is in use", test_claims},
        {"write cache", test_write_cache},
        {"a block device that turns read-only", test_block_device_read_only},
        {"a node without a device", test_no_such_device},
        {"iSCSI", test_iscsi},
    };
    int failed;
    char command[128];
    const char *given = getenv("PLX_TEST_SEED");

    seed = given ? strtoull(given, NULL, 0) : 20261121;
    snprintf(folder, sizeof folder, "/var/tmp/plx-test-device-XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    failed = SUITE_RUN("device", tests);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command) != 0)
        printf("left behind: %s\n", folder);
    return failed;
}
