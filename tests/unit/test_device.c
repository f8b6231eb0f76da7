/* test_device.c - handler/device: files and block devices through libaio, LUNs through libiscsi.
 *
 * Every write is mirrored in a shadow in memory; what is read must equal it. The iSCSI part runs
 * against the LUN in PLX_TEST_ISCSI (an iscsi:// URL; its contents are overwritten), else not.
 */
#include <CUnit/Basic.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/device.h"

#define FILE_BYTES (4u << 20)
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
    struct plx_device_open_options options = {.create_bytes = bytes, .queue_depth = 16};
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

/* Waits the way the handler's loop does: on the descriptor, then poll() without blocking. */
static void wait_by_event_fd(struct shadow *shadow)
{
    struct pollfd fd = {.fd = shadow->device->ops->event_fd(shadow->device), .events = POLLIN};

    CU_ASSERT_EQUAL_FATAL(poll(&fd, 1, 10000), 1); /* a lost wake-up ends here */
    shadow->device->ops->poll(shadow->device, false);
}

static void random_io(struct plx_device *device)
{
    struct shadow shadow = {.device = device};

    shadow.bytes = calloc(1, FILE_BYTES);
    shadow.locked = calloc(1, FILE_BYTES / device->block_size);
    for (int i = 0; i < IN_FLIGHT; i++) {
        shadow.jobs[i].shadow = &shadow;
        CU_ASSERT_EQUAL_FATAL(
            posix_memalign((void **)&shadow.jobs[i].memory, 4096, IO_BYTES_MAX + 1024), 0);
    }
    CU_ASSERT_EQUAL(run(device, PLX_IO_WRITE, 0, shadow.bytes, FILE_BYTES), 0);
    for (int round = 0; round < ROUNDS; round++) {
        struct job *job = &shadow.jobs[next_random() % IN_FLIGHT];

        if (!job->busy)
            job_start(job);
        if (next_random() % 3 == 0)
            device->ops->kick(device);
        if (next_random() % 8 == 0)
            device->ops->poll(device, false);
        if (next_random() % 16 == 0 && shadow.busy) {
            device->ops->kick(device);
            if (next_random() % 2)
                CU_ASSERT(device->ops->poll(device, true) > 0);
        }
    }
    device->ops->kick(device);
    while (shadow.busy)
        wait_by_event_fd(&shadow);
    CU_ASSERT_EQUAL(shadow.wrong, 0);
    CU_ASSERT_EQUAL(shadow.failed, 0);
    CU_ASSERT_EQUAL(device->ops->poll(device, true), 0); /* nothing under way: does not block */
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
    random_io(device);
    plx_device_close(device);
}

/* The page cache instead of direct I/O: tmpfs before Linux 6.6 refuses O_DIRECT. */
static void test_random_tmpfs(void)
{
    struct plx_device_open_options options = {.create_bytes = FILE_BYTES};
    struct plx_device *device = NULL;
    char path[64];

    snprintf(path, sizeof path, "/dev/shm/plx-test-device-%d", (int)getpid());
    CU_ASSERT_EQUAL_FATAL(plx_device_open(path, &options, &device, NULL), 0);
    random_io(device);
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
    refused(path_of("empty"), &plain, PLX_ERR_INVALID, "is empty");
    memset(long_name, 'a', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    refused(long_name, &plain, PLX_ERR_INVALID, "longer than 255");
    refused("iscsi://", &plain, PLX_ERR_INVALID, "iscsi://host");
    refused("iscsi://127.0.0.1:1/iqn.2026-11.org.test:t/0", &plain, PLX_ERR_LOST, "cannot reach");
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

/* A file system with room for half of what is written. */
static void test_full_disk(void)
{
    struct plx_device_open_options options = {.create_bytes = 2u << 20};
    struct plx_device *device = NULL;
    char *buffer = calloc(1, 1 << 20), mountpoint[80];
    int first, second;

    snprintf(mountpoint, sizeof mountpoint, "%s/small", folder);
    mkdir(mountpoint, 0700);
    if (mount("none", mountpoint, "tmpfs", 0, "size=1536k") != 0) {
        printf("(skipped: cannot mount a small tmpfs: %s) ", strerror(errno));
        free(buffer);
        return;
    }
    CU_ASSERT_EQUAL_FATAL(plx_device_open(path_of("small/full"), &options, &device, NULL), 0);
    first = run(device, PLX_IO_WRITE, 0, buffer, 1 << 20);
    second = run(device, PLX_IO_WRITE, 1 << 20, buffer, 1 << 20);
    CU_ASSERT_EQUAL(first, 0);
    CU_ASSERT_EQUAL(second, PLX_ERR_NOSPACE);
    CU_ASSERT_EQUAL(run(device, PLX_IO_READ, 0, buffer, 1 << 20), 0);
    plx_device_close(device);
    umount2(mountpoint, MNT_DETACH);
    free(buffer);
}

static void test_iscsi(void)
{
    const char *url = getenv("PLX_TEST_ISCSI");
    struct plx_device_open_options options = {.queue_depth = 16};
    struct plx_device *device = NULL;
    struct plx_fault fault = {0};

    if (!url) {
        printf("(skipped: PLX_TEST_ISCSI is not set) ");
        return;
    }
    if (plx_device_open(url, &options, &device, &fault) != 0)
        printf("  said: %s\n", fault.text);
    CU_ASSERT_PTR_NOT_NULL_FATAL(device);
    CU_ASSERT_FATAL(device->bytes >= FILE_BYTES);
    printf("(%s: %llu bytes, blocks of %u, %s cache) ", device->name,
           (unsigned long long)device->bytes, device->block_size,
           device->volatile_cache ? "volatile" : "durable");
    random_io(device);
    plx_device_close(device);
}

int main(void)
{
    CU_pSuite suite;
    unsigned failures;
    char command[128];
    const char *given = getenv("PLX_TEST_SEED");

    seed = given ? strtoull(given, NULL, 0) : 20261121;
    snprintf(folder, sizeof folder, "/var/tmp/plx-test-device-XXXXXX");
    if (!mkdtemp(folder) || CU_initialize_registry() != CUE_SUCCESS)
        return 1;
    suite = CU_add_suite("device", NULL, NULL);
    CU_add_test(suite, "random I/O", test_random);
    CU_add_test(suite, "random I/O through the page cache", test_random_tmpfs);
    CU_add_test(suite, "written and flushed is there after reopening", test_persists);
    CU_add_test(suite, "read only", test_read_only);
    CU_add_test(suite, "a volume cut short", test_truncated);
    CU_add_test(suite, "refusals name the reason", test_refusals);
    CU_add_test(suite, "breaches of the contract stop the process", test_breaches);
    CU_add_test(suite, "full disk", test_full_disk);
    CU_add_test(suite, "iSCSI", test_iscsi);
    CU_basic_set_mode(CU_BRM_VERBOSE);
    CU_basic_run_tests();
    failures = CU_get_number_of_failures();
    CU_cleanup_registry();
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command) != 0)
        printf("left behind: %s\n", folder);
    return failures ? 1 : 0;
}
