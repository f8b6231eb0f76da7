/* test_tenancy.c - every power cut of a home page's life.
 *
 * What is written to the two slots and flushed passes through here. After each write and flush the
 * page is put together as a cut then could leave it: of what is volatile each write lost, kept, or
 * the block ruined. Each is read: it must say whose the store is, and that it is open as long as
 * somebody has it open (TENANCY-2).
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/format/format.h"
#include "ok.h"
#include "registry/clock.h"
#include "registry/tenancy.h"
#include "suite.h"

#define MIB (1ull << 20)
#define HOME_AT ((off_t)PLX_HOME_BLOCK * PLX_BLOCK_SIZE)
#define HOME_BYTES (2 * PLX_BLOCK_SIZE)
#define RUIN_BYTES 64u
#define VOLATILE_MAX 5u

static char folder[64], volume[96], copy[96];
static struct plx_paths paths;
static struct plx_uuid store = {{1}};
static struct plx_fault fault;

/* ---- The device's cache ------------------------------------------------------------------ */

enum fate { LOST, KEPT, RUINED, FATES };

struct write {
    unsigned slot;
    uint8_t block[PLX_BLOCK_SIZE];
};

static bool watching, must_be_open;
static uint8_t durable[HOME_BYTES];
static struct write pending[VOLATILE_MAX];
static unsigned volatile_writes, cuts, wrong;

ssize_t __real_pwrite64(int fd, const void *buffer, size_t bytes, off_t offset);
ssize_t __wrap_pwrite64(int fd, const void *buffer, size_t bytes, off_t offset);
ssize_t __real_pwritev64(int fd, const struct iovec *iov, int count, off_t offset);
ssize_t __wrap_pwritev64(int fd, const struct iovec *iov, int count, off_t offset);
int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
ssize_t __real_pread64(int fd, void *buffer, size_t bytes, off_t offset);
ssize_t __wrap_pread64(int fd, void *buffer, size_t bytes, off_t offset);
ssize_t __real_preadv64(int fd, const struct iovec *iov, int count, off_t offset);
ssize_t __wrap_preadv64(int fd, const struct iovec *iov, int count, off_t offset);

static void apply(uint8_t *image, const struct write *write, enum fate fate)
{
    uint8_t *to = image + write->slot * PLX_BLOCK_SIZE;

    if (fate != LOST)
        memcpy(to, write->block, PLX_BLOCK_SIZE);
    if (fate == RUINED)
        memset(to, 0xee, RUIN_BYTES);
}

static void judge(const uint8_t image[HOME_BYTES])
{
    struct plx_device_open_options options = {.read_only = true, .beside = true};
    struct plx_bytelock *locks = NULL;
    struct plx_device *device = NULL;
    struct plx_tenant tenant = {0};
    int fd = open(copy, O_RDWR | O_CLOEXEC);
    int error = fd < 0 || __real_pwrite64(fd, image, HOME_BYTES, HOME_AT) != HOME_BYTES;

    close(fd);
    cuts++;
    error = error || plx_device_open(copy, &options, &device, &fault) ||
            plx_bytelock_open(copy, &locks, &fault) ||
            plx_tenancy_read(device, locks, &store, &paths, &tenant, &fault);
    if (device)
        plx_device_close(device);
    plx_bytelock_close(locks);
    if (!error && tenant.ours && (tenant.open || !must_be_open))
        return;
    if (!wrong++)
        printf("\n    cut %u: %s", cuts,
               error          ? fault.text
               : !tenant.ours ? "nobody's"
                              : "not open, though somebody has it open");
}

/* Every fate of every write that is volatile. */
static void cut_here(void)
{
    unsigned count = 1;

    for (unsigned i = 0; i < volatile_writes; i++)
        count *= FATES;
    for (unsigned number = 0; number < count; number++) {
        uint8_t image[HOME_BYTES];

        memcpy(image, durable, sizeof image);
        for (unsigned i = 0, rest = number; i < volatile_writes; i++, rest /= FATES)
            apply(image, &pending[i], rest % FATES);
        judge(image);
    }
}

static void note_write(const void *bytes, size_t count, off_t offset)
{
    struct write *write = &pending[volatile_writes];

    if (!watching || offset < HOME_AT || offset >= HOME_AT + HOME_BYTES)
        return;
    CU_ASSERT_FATAL(count == PLX_BLOCK_SIZE && volatile_writes < VOLATILE_MAX);
    write->slot = (unsigned)((offset - HOME_AT) / PLX_BLOCK_SIZE);
    memcpy(write->block, bytes, count);
    volatile_writes++;
    cut_here();
}

ssize_t __wrap_pwrite64(int fd, const void *buffer, size_t bytes, off_t offset)
{
    note_write(buffer, bytes, offset);
    return __real_pwrite64(fd, buffer, bytes, offset);
}

ssize_t __wrap_pwritev64(int fd, const struct iovec *iov, int count, off_t offset)
{
    note_write(iov->iov_base, iov->iov_len, offset);
    return __real_pwritev64(fd, iov, count, offset);
}

int __wrap_fdatasync(int fd)
{
    int failed = __real_fdatasync(fd);

    for (unsigned i = 0; watching && i < volatile_writes; i++)
        apply(durable, &pending[i], KEPT);
    if (watching) {
        volatile_writes = 0;
        cut_here();
    }
    return failed;
}

/* ---- Reading beside a writer ------------------------------------------------------------- */

static unsigned whole_reads, torn_reads, torn_slot; /* so many of either come next */

/* What was written is not all there yet when it is read. */
static void tear(const struct iovec *iov, off_t offset)
{
    off_t at = HOME_AT + torn_slot * PLX_BLOCK_SIZE;

    if (!torn_reads || at < offset || at + RUIN_BYTES > offset + (off_t)iov->iov_len)
        return;
    if (whole_reads) {
        whole_reads--;
        return;
    }
    torn_reads--;
    memset((uint8_t *)iov->iov_base + (at - offset), 0xee, RUIN_BYTES);
}

ssize_t __wrap_pread64(int fd, void *buffer, size_t bytes, off_t offset)
{
    ssize_t got = __real_pread64(fd, buffer, bytes, offset);

    tear(&(struct iovec){buffer, bytes}, offset);
    return got;
}

ssize_t __wrap_preadv64(int fd, const struct iovec *iov, int count, off_t offset)
{
    ssize_t got = __real_preadv64(fd, iov, count, offset);

    tear(iov, offset);
    return got;
}

/* ---- The page's life --------------------------------------------------------------------- */

static struct plx_tenancy *enter(void)
{
    struct plx_tenancy_options options = {.paths = &paths, .volume = volume, .store = store};
    struct plx_tenancy *tenancy = NULL;

    OK(plx_tenancy_begin(&options, &tenancy, &fault));
    return tenancy;
}

static struct plx_tenancy *begin(void)
{
    struct plx_tenancy *tenancy = enter();

    must_be_open = true;
    cut_here();
    return tenancy;
}

static void end(struct plx_tenancy *tenancy)
{
    must_be_open = false;
    plx_tenancy_end(tenancy);
    cut_here();
}

static void found(void)
{
    struct plx_device_open_options options = {.beside = true};
    struct plx_bytelock *locks;
    struct plx_device *device;

    OK(plx_device_open(volume, &options, &device, &fault));
    OK(plx_bytelock_open(volume, &locks, &fault));
    OK(plx_tenancy_found(device, locks, &store, &paths, &fault));
    plx_bytelock_close(locks);
    plx_device_close(device);
}

static void test_cuts(void)
{
    struct plx_tenancy *first, *second;
    int fd;

    found();
    fd = open(volume, O_RDONLY | O_CLOEXEC);
    CU_ASSERT_EQUAL_FATAL(pread(fd, durable, HOME_BYTES, HOME_AT), HOME_BYTES);
    close(fd);
    watching = true;
    first = begin();
    usleep(1300000); /* a counter */
    end(first);
    first = begin(); /* "open" is in slot A already */
    second = begin();
    end(first);
    must_be_open = true;
    usleep(1300000);
    end(second);
    paths.boot[0] = paths.boot[0] == '1' ? '2' : '1'; /* the machine has come up again */
    first = begin();
    usleep(1300000);
    end(first);
    end(begin());
    watching = false;
    CU_ASSERT_EQUAL(wrong, 0);
    CU_ASSERT(cuts > 100);
    printf("\n    %u cuts ", cuts);
}

/* TENANCY-6: a look whose page was torn looks again, and one that is torn each time fences
 * nobody. */
static void test_torn_look(void)
{
    struct plx_tenancy *tenancy;

    found();
    tenancy = enter();
    usleep(1300000); /* both slots are in use */
    for (torn_slot = 0; torn_slot < 2; torn_slot++) {
        torn_reads = 1;
        OK(plx_tenancy_look(tenancy, &fault));
        CU_ASSERT_EQUAL(torn_reads, 0);
        torn_reads = 100;
        if (plx_tenancy_look(tenancy, &fault))
            CU_ASSERT_EQUAL(fault.code, PLX_ERR_CORRUPT);
        CU_ASSERT_NOT_EQUAL(torn_reads, 100);
        torn_reads = 0;
        OK(plx_tenancy_look(tenancy, &fault));
        CU_ASSERT_FALSE(plx_tenancy_waits(tenancy, plx_clock_ns(CLOCK_BOOTTIME)));
        CU_ASSERT_FALSE(plx_tenancy_is_fenced(tenancy));
    }
    plx_tenancy_end(tenancy);
}

/* TENANCY-6: nor does such a page show that somebody lives. */
static void test_torn_watch(void)
{
    struct plx_device_open_options options = {.read_only = true, .beside = true};
    struct plx_device *device;
    struct plx_tenancy *tenancy;
    uint8_t home[HOME_BYTES];
    int fd;

    found();
    tenancy = enter();
    usleep(1300000);
    fd = open(volume, O_RDONLY | O_CLOEXEC);
    CU_ASSERT_EQUAL_FATAL(__real_pread64(fd, home, HOME_BYTES, HOME_AT), HOME_BYTES);
    close(fd);
    plx_tenancy_end(tenancy);
    fd = open(copy, O_RDWR | O_CLOEXEC); /* as a host left it that died */
    CU_ASSERT_EQUAL_FATAL(__real_pwrite64(fd, home, HOME_BYTES, HOME_AT), HOME_BYTES);
    close(fd);
    OK(plx_device_open(copy, &options, &device, &fault));
    for (torn_slot = 0; torn_slot < 2; torn_slot++) {
        bool unopened = false;
        uint64_t since = 0;

        whole_reads = 2;
        torn_reads = 3;
        OK(plx_tenancy_unopened(device, &store, &since, &unopened, &fault));
        CU_ASSERT_EQUAL(torn_reads, 0);
        CU_ASSERT_TRUE(unopened);
    }
    plx_device_close(device);
}

static void put_home(const uint8_t home[HOME_BYTES])
{
    int fd = open(copy, O_RDWR | O_CLOEXEC);

    CU_ASSERT_EQUAL_FATAL(__real_pwrite64(fd, home, HOME_BYTES, HOME_AT), HOME_BYTES);
    close(fd);
}

static bool is_unopened(struct plx_device *device, uint64_t *since)
{
    bool unopened = false;

    OK(plx_tenancy_unopened(device, &store, since, &unopened, &fault));
    return unopened;
}

/* A page that is damaged in both slots says nothing, but who has the store open makes it whole. */
static void test_damaged_watch(void)
{
    struct plx_device_open_options options = {.read_only = true, .beside = true};
    uint8_t home[HOME_BYTES], damaged[HOME_BYTES];
    struct plx_device *device;
    uint64_t since = 0;
    pid_t child;
    int fd;

    found();
    fd = open(volume, O_RDONLY | O_CLOEXEC);
    CU_ASSERT_EQUAL_FATAL(__real_pread64(fd, home, HOME_BYTES, HOME_AT), HOME_BYTES);
    close(fd);
    memcpy(damaged, home, sizeof damaged);
    for (unsigned slot = 0; slot < 2; slot++)
        damaged[slot * PLX_BLOCK_SIZE + 100] ^= 1;
    put_home(damaged);
    OK(plx_device_open(copy, &options, &device, &fault));
    CU_ASSERT_TRUE(is_unopened(device, &since));
    CU_ASSERT_TRUE(is_unopened(device, &since));
    put_home(home);
    CU_ASSERT_FALSE(is_unopened(device, &since));
    put_home(damaged);
    since = 0;
    child = fork();
    if (child == 0) {
        usleep(700000);
        put_home(home);
        _exit(0);
    }
    CU_ASSERT_FALSE(is_unopened(device, &since));
    CU_ASSERT_EQUAL(waitpid(child, NULL, 0), child);
    plx_device_close(device);
}

/* Both slots of a page that was just made, with this number in place of one of its own. */
static void make_number(bool generation, uint64_t number)
{
    uint8_t block[PLX_BLOCK_SIZE];
    struct plx_home home;
    int fd;

    found();
    fd = open(volume, O_RDWR | O_CLOEXEC);
    for (off_t at = HOME_AT; at < HOME_AT + HOME_BYTES; at += PLX_BLOCK_SIZE) {
        CU_ASSERT_EQUAL_FATAL(pread(fd, block, sizeof block, at), PLX_BLOCK_SIZE);
        OK(plx_format_home_decode(block, &store, &home, &fault));
        *(generation ? &home.generation : &home.counter) = number;
        plx_format_home_encode(&store, &home, block);
        CU_ASSERT_EQUAL_FATAL(pwrite(fd, block, sizeof block, at), PLX_BLOCK_SIZE);
    }
    close(fd);
}

/* TENANCY-8: who could not count on from it does not begin; the operator's word begins anew. */
static void test_numbers(void)
{
    static const uint64_t too_large[] = {PLX_COUNTER_MAX / 2 + 1, PLX_COUNTER_MAX};
    struct plx_tenancy_options options = {.paths = &paths, .volume = volume, .store = store};
    struct plx_tenancy *tenancy;

    for (unsigned generation = 0; generation < 2; generation++) {
        make_number(generation, PLX_COUNTER_MAX / 2 - 100);
        plx_tenancy_end(enter());
        plx_tenancy_end(enter());
        for (unsigned i = 0; i < 2; i++) {
            make_number(generation, too_large[i]);
            options.from = NULL;
            CU_ASSERT_EQUAL(plx_tenancy_begin(&options, &tenancy, &fault), PLX_ERR_CORRUPT);
            CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "take-over"));
        }
        options.from = PLX_TENANCY_ANY;
        OK(plx_tenancy_begin(&options, &tenancy, &fault));
        OK(plx_tenancy_look(tenancy, &fault));
        plx_tenancy_end(tenancy);
        plx_tenancy_end(enter());
    }
}

static int make(void)
{
    int fd;

    strcpy(folder, "/var/tmp/plx-tenancy-XXXXXX");
    if (!mkdtemp(folder) || plx_paths_init(&paths, folder, &fault))
        return 1;
    snprintf(volume, sizeof volume, "%s/volume", folder);
    snprintf(copy, sizeof copy, "%s/copy", folder);
    for (int i = 0; i < 2; i++) {
        fd = open(i ? copy : volume, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0 || ftruncate(fd, 2 * MIB) || close(fd))
            return 1;
    }
    return 0;
}

static int clean(void)
{
    char command[128];

    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) != 0;
}

int main(void)
{
    static const struct suite_test tests[] = {{"power cuts", test_cuts},
                                              {"a look at a torn page", test_torn_look},
                                              {"a watch of a torn page", test_torn_watch},
                                              {"a watch of a damaged page", test_damaged_watch},
                                              {"numbers near their bound", test_numbers}};

    return SUITE_RUN_IN(&((struct suite_frame){.init = make, .clean = clean}), "the home page",
                        tests);
}
