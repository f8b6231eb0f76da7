/* test_taken.c - who had a store, or was taking it, when another host took it.
 *
 * A pause: a process has the store and asks all the time whether it may write, as whoever submits
 * I/O does. It is stopped for longer than a gap may be, and meanwhile the home page becomes another
 * host's. When it goes on, its very first answer must be no (TENANCY-10): what it submitted before
 * its thread has looked would be written into another one's store. The look finds out, so it stays
 * no. Who reads is told at once, too: what it has read may be another one's.
 *
 * At the same time: a store that was released is taken, and another host, which had read the page
 * before, writes it, too. The first one notices before it has done anything (TENANCY-3), even if it
 * is stopped until its wait is over. If it is killed in the wait, the next one waits, too. If it is
 * stopped right before it names its inode, for so long that another host may have waited, it waits
 * once more.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engine/format/format.h"
#include "ok.h"
#include "registry/clock.h"
#include "registry/tenancy.h"
#include "suite.h"

ssize_t __real_pwrite64(int fd, const void *bytes, size_t count, off_t offset);
ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t count, off_t offset);

#define MIB (1ull << 20)
#define HOME_AT ((off_t)PLX_HOME_BLOCK * PLX_BLOCK_SIZE)
#define PAUSED 8u
#define PAUSE_NS 2500000000ull /* a gap is two seconds */
#define TAKEN_NS 4500000000ull /* who takes a store waits for five */
#define LATE_NS 3000000000ull

static char folder[64], volume[96];
static struct plx_paths paths;
static struct plx_uuid store = {{1}};
static struct plx_fault fault;

static unsigned stop_at; /* before which of this process's writes it stops; 0: before none */

ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t count, off_t offset)
{
    if (stop_at && !--stop_at)
        raise(SIGSTOP);
    return __real_pwrite64(fd, bytes, count, offset);
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

static bool may_write(struct plx_tenancy *tenancy, uint64_t now_ns)
{
    return !plx_tenancy_is_fenced(tenancy) && !plx_tenancy_waits(tenancy, now_ns);
}

/* Exits with whether it could write after the pause; 2: it had no store. */
static _Noreturn void live(int ready)
{
    struct plx_tenancy_options options = {.paths = &paths, .volume = volume, .store = store};
    struct plx_tenancy *tenancy;
    uint64_t last_ns, now_ns;
    bool may;

    if (plx_tenancy_begin(&options, &tenancy, &fault) || write(ready, "", 1) != 1)
        _exit(2);
    alarm(60);
    now_ns = plx_clock_ns(CLOCK_BOOTTIME);
    do {
        last_ns = now_ns;
        may = may_write(tenancy, now_ns);
        now_ns = plx_clock_ns(CLOCK_BOOTTIME);
    } while (now_ns - last_ns < PAUSE_NS);
    if (may) /* the pause came between answer and clock: nothing was asked since */
        may = may_write(tenancy, now_ns);
    while (!may && !plx_tenancy_is_fenced(tenancy))
        usleep(1000);
    _exit(may);
}

static int read_slot(unsigned slot, struct plx_home *ret_home)
{
    int fd = open(volume, O_RDONLY | O_CLOEXEC);
    uint8_t block[PLX_BLOCK_SIZE];

    CU_ASSERT_EQUAL_FATAL(pread(fd, block, sizeof block, HOME_AT + (off_t)slot * PLX_BLOCK_SIZE),
                          sizeof block);
    close(fd);
    return plx_format_home_decode(block, &store, ret_home, &fault);
}

static void write_home(struct plx_home home)
{
    int fd = open(volume, O_RDWR | O_CLOEXEC);
    uint8_t block[PLX_BLOCK_SIZE];

    for (unsigned slot = 0; slot < 2; slot++) {
        home.generation += 1000; /* more than he can have come to since */
        plx_format_home_encode(&store, &home, block);
        CU_ASSERT_EQUAL_FATAL(
            pwrite(fd, block, sizeof block, HOME_AT + (off_t)slot * PLX_BLOCK_SIZE), sizeof block);
    }
    CU_ASSERT_EQUAL(fsync(fd), 0);
    close(fd);
}

static void take_for_another(void)
{
    struct plx_home home;

    OK(read_slot(0, &home));
    home.host.b[0] ^= 1;
    home.boot.b[0] ^= 1;
    write_home(home);
}

/* Several are paused, for in each the tenancy's thread may be the first to run again. */
static void test_paused(void)
{
    struct timespec pause = {PAUSE_NS / 1000000000, PAUSE_NS % 1000000000 + 200000000};
    pid_t children[PAUSED];
    int ready[2], status;
    char byte;

    found();
    CU_ASSERT_EQUAL_FATAL(pipe(ready), 0);
    for (unsigned i = 0; i < PAUSED; i++) {
        children[i] = fork();
        if (children[i] == 0)
            live(ready[1]);
        CU_ASSERT_EQUAL_FATAL(read(ready[0], &byte, 1), 1);
    }
    close(ready[1]);
    close(ready[0]);
    for (unsigned i = 0; i < PAUSED; i++) {
        CU_ASSERT_EQUAL(kill(children[i], SIGSTOP), 0);
        CU_ASSERT_EQUAL(waitpid(children[i], &status, WUNTRACED), children[i]);
    }
    take_for_another();
    nanosleep(&pause, NULL);
    for (unsigned i = 0; i < PAUSED; i++)
        CU_ASSERT_EQUAL(kill(children[i], SIGCONT), 0);
    for (unsigned i = 0; i < PAUSED; i++) {
        CU_ASSERT_EQUAL(waitpid(children[i], &status, 0), children[i]);
        CU_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

/* Exits with whether it was told, when it went on after a stop, that the store is another's; 2: it
 * had no store. */
static _Noreturn void read_on(void)
{
    struct plx_tenancy_options options = {.paths = &paths, .volume = volume, .store = store};
    struct plx_tenancy *tenancy;

    if (plx_tenancy_begin(&options, &tenancy, &fault))
        _exit(2);
    raise(SIGSTOP);
    _exit(plx_tenancy_fenced(tenancy, &fault) == PLX_ERR_FENCED);
}

/* What was read counts only if no other host can have written over it. */
static void test_read_on(void)
{
    struct timespec pause = {PAUSE_NS / 1000000000, PAUSE_NS % 1000000000};
    pid_t children[PAUSED];
    int status;

    found();
    for (unsigned i = 0; i < PAUSED; i++) {
        children[i] = fork();
        if (children[i] == 0)
            read_on();
        CU_ASSERT_EQUAL(waitpid(children[i], &status, WUNTRACED), children[i]);
    }
    take_for_another();
    nanosleep(&pause, NULL);
    for (unsigned i = 0; i < PAUSED; i++) {
        CU_ASSERT_EQUAL(kill(children[i], SIGCONT), 0);
        CU_ASSERT_EQUAL(waitpid(children[i], &status, 0), children[i]);
        CU_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    }
}

static bool is_taken(unsigned slot)
{
    struct plx_home home;

    return read_slot(slot, &home) == 0 && !plx_uuid_is_zero(&home.host);
}

static const struct plx_tenancy_options taking = {
    .paths = &paths, .volume = volume, .store = {{1}}, .take = true};

/* A process that takes a store that was released, and waits now. Exits with the error. */
static pid_t take(unsigned stop)
{
    struct plx_tenancy *tenancy;
    struct plx_home home;
    unsigned tries = 0;
    pid_t child;

    found();
    OK(read_slot(0, &home));
    home.host = home.boot = (struct plx_uuid){0};
    write_home(home);
    child = fork();
    if (child == 0) {
        stop_at = stop;
        _exit(-plx_tenancy_begin(&taking, &tenancy, &fault));
    }
    while ((!is_taken(0) || !is_taken(1)) && tries++ < 1000)
        usleep(10000);
    return child;
}

/* Returns false if this process was held up for so long that the case proves nothing. */
static bool both_take(void)
{
    pid_t child = take(0);
    uint64_t seen_ns = plx_clock_ns(CLOCK_BOOTTIME);
    bool timely;
    int status;

    usleep(LATE_NS / 1000);
    take_for_another();
    timely = plx_clock_ns(CLOCK_BOOTTIME) - seen_ns < TAKEN_NS;
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    CU_ASSERT(!timely || (WIFEXITED(status) && WEXITSTATUS(status) == -PLX_ERR_BUSY));
    return timely;
}

static void test_both_take(void)
{
    unsigned tries = 0;

    while (!both_take() && ++tries < 20)
        continue;
    CU_ASSERT(tries < 20);
}

/* The other host's page stays as it is. */
static void test_stopped(void)
{
    struct plx_home before, after;
    pid_t child = take(0);
    int status;

    CU_ASSERT_EQUAL(kill(child, SIGSTOP), 0);
    CU_ASSERT_EQUAL(waitpid(child, &status, WUNTRACED), child);
    usleep(5500000);
    take_for_another();
    OK(read_slot(1, &before));
    CU_ASSERT_EQUAL(kill(child, SIGCONT), 0);
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    CU_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == -PLX_ERR_BUSY);
    OK(read_slot(1, &after));
    CU_ASSERT_EQUAL(after.generation, before.generation);
}

/* Both slots were written without the inode; the third write begins to name it. */
static void test_stopped_late(void)
{
    uint64_t begun_ns;
    pid_t child;
    int status;

    child = take(3);
    CU_ASSERT_EQUAL(waitpid(child, &status, WUNTRACED), child);
    CU_ASSERT_FATAL(WIFSTOPPED(status));
    take_for_another();
    usleep(5500000); /* as the other one waits */
    begun_ns = plx_clock_ns(CLOCK_BOOTTIME);
    CU_ASSERT_EQUAL(kill(child, SIGCONT), 0);
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    CU_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CU_ASSERT(plx_clock_ns(CLOCK_BOOTTIME) - begun_ns >= TAKEN_NS);
}

static void test_killed(void)
{
    pid_t child = take(0);
    uint64_t begun_ns = plx_clock_ns(CLOCK_BOOTTIME);
    struct plx_tenancy *tenancy;

    CU_ASSERT_EQUAL(kill(child, SIGKILL), 0);
    CU_ASSERT_EQUAL(waitpid(child, NULL, 0), child);
    OK(plx_tenancy_begin(&taking, &tenancy, &fault));
    CU_ASSERT(plx_clock_ns(CLOCK_BOOTTIME) - begun_ns >= TAKEN_NS);
    plx_tenancy_end(tenancy);
    begun_ns = plx_clock_ns(CLOCK_BOOTTIME);
    OK(plx_tenancy_begin(&taking, &tenancy, &fault));
    CU_ASSERT(plx_clock_ns(CLOCK_BOOTTIME) - begun_ns < TAKEN_NS);
    plx_tenancy_end(tenancy);
}

static int make(void)
{
    int fd;

    strcpy(folder, "/var/tmp/plx-paused-XXXXXX");
    if (!mkdtemp(folder) || plx_paths_init(&paths, folder, &fault))
        return 1;
    snprintf(volume, sizeof volume, "%s/volume", folder);
    fd = open(volume, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    return fd < 0 || ftruncate(fd, 2 * MIB) || close(fd);
}

static int clean(void)
{
    char command[128];

    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) != 0;
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"a pause", test_paused},
        {"a pause of who reads", test_read_on},
        {"two that take it at the same time", test_both_take},
        {"stopped in the wait", test_stopped},
        {"stopped behind the wait", test_stopped_late},
        {"killed in the wait", test_killed},
    };

    return SUITE_RUN_IN(&((struct suite_frame){.init = make, .clean = clean}),
                        "a store that is taken", tests);
}
