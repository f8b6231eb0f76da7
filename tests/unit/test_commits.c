/* test_commits.c - how many commits of the registry, and flushes of the device, commands and LUNs
 * cost.
 *
 * A flush takes milliseconds and a commit four of them, so these numbers are what an operator waits
 * for (tests/bench/restart shows the times). More than the table says is a failure; who makes one
 * cheaper lowers it. What they were before:
 *     vdi create              4 commits, 24 flushes: 2 commits for the process alone
 *     recovered after a kill  20 flushes for each of the 64 disks, which then opened again
 *     and close               65 commits, 510 flushes
 * When the registry lay in a file beside the store (counted by a commit hook of SQLite in both
 * programs, on a store of 16 GiB with 64 disks of 64 MiB; behind the arrow, today):
 *     vdi create              4 -> 2 commits
 *     snap create             6 -> 3, and one more for a label
 *     vdi delete              7 -> 5
 *     64 LUNs start           67 -> 68: one for each disk's lock, for the kernel opens one by one,
 *                             and one for each extent that they claim, of whatever size it is
 *     and end                 67 -> 1
 */
#include <libaio.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ok.h"
#include "attach/attach.h"
#include "attach/founding.h"
#include "registry/clocks.h"
#include "suite.h"
#include "unit/registry_edit.h"

#define MIB (1ull << 20)
#define LUNS 64u

static char folder[64], volume[96];
static struct plx_attach *attach;
static struct plx_vdi *vdis[LUNS + 40];
static const char *used = "s"; /* the store */
static uint64_t disk_bytes = 4 * MIB;
static struct plx_fault fault;

/* ---- Counting ---------------------------------------------------------------------------- */

static unsigned commits, flushes, commits_failing;
static char event[512];

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __real_io_submit(io_context_t context, long count, struct iocb **list);
int __wrap_io_submit(io_context_t context, long count, struct iocb **list);
int __real_sqlite3_exec(sqlite3 *db, const char *sql, sqlite3_callback row, void *context,
                        char **ret_text);
int __wrap_sqlite3_exec(sqlite3 *db, const char *sql, sqlite3_callback row, void *context,
                        char **ret_text);

int __wrap_fdatasync(int fd)
{
    flushes++;
    return __real_fdatasync(fd);
}

int __wrap_io_submit(io_context_t context, long count, struct iocb **list)
{
    int taken = __real_io_submit(context, count, list);

    for (int i = 0; i < taken; i++)
        flushes += list[i]->aio_lio_opcode == IO_CMD_FDSYNC;
    return taken;
}

int __wrap_sqlite3_exec(sqlite3 *db, const char *sql, sqlite3_callback row, void *context,
                        char **ret_text)
{
    commits += strcmp(sql, "COMMIT") == 0;
    if (strcmp(sql, "COMMIT") == 0 && commits_failing) {
        commits_failing--;
        return SQLITE_FULL;
    }
    return __real_sqlite3_exec(db, sql, row, context, ret_text);
}

/* So far the wall clock, and the clock for durations, are ahead. */
static time_t wall_ahead, ahead;

int __real_clock_gettime(clockid_t id, struct timespec *ret_time);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret_time);

int __wrap_clock_gettime(clockid_t id, struct timespec *ret_time)
{
    int rc = __real_clock_gettime(id, ret_time);

    ret_time->tv_sec += id == CLOCK_REALTIME ? wall_ahead : id == CLOCK_MONOTONIC ? ahead : 0;
    return rc;
}

static void count_from_here(void)
{
    commits = flushes = 0;
}

static void check(const char *what, unsigned commits_max, unsigned flushes_max)
{
    printf("\n    %-34s %3u commits, %3u flushes ", what, commits, flushes);
    CU_ASSERT(commits <= commits_max);
    CU_ASSERT(flushes <= flushes_max);
    CU_ASSERT((commits > 0) == (commits_max > 0)); /* they are what was to be counted */
    CU_ASSERT((flushes > 0) == (flushes_max > 0));
}

/* ---- Steps ------------------------------------------------------------------------------- */

static void take_event(void *context, int error, const char *text)
{
    if (error)
        snprintf(event, sizeof event, "%s", text);
}

static void open_as(const char *role)
{
    bool handler = strcmp(role, "handler") == 0;
    struct plx_attach_options options = {.store = used,
                                         .state_dir = folder,
                                         .role = role,
                                         .brief = !handler,
                                         .reopens = handler,
                                         .event = take_event};

    OK(plx_attach_open(&options, &attach, &fault));
}

static void close_attach(void)
{
    OK(plx_attach_close(attach));
    attach = NULL;
}

static void create(unsigned number)
{
    struct plx_vdi_create_options options = {.size_bytes = disk_bytes, .sector_size = 512};
    struct plx_vdi_info info;

    snprintf(options.name, sizeof options.name, "v%u", number);
    OK(plx_attach_vdi_create(attach, &options, NULL, NULL, &info, &fault));
}

static void open_disk(unsigned number)
{
    struct plx_attach_vdi_options options = {.overwrite = -1};
    char name[16];

    snprintf(name, sizeof name, "v%u", number);
    OK(plx_attach_vdi_open(attach, name, NULL, &options, &vdis[number], &fault));
}

static void open_luns(unsigned count)
{
    open_as("handler");
    for (unsigned i = 0; i < count; i++)
        open_disk(i);
}

/* As a handler does for tcmu-runner, which closes one after the other. */
static void leave_luns(unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        OK(plx_attach_vdi_leave(attach, vdis[i]));
}

static void write_luns(unsigned count, char with)
{
    static char data[65536] __attribute__((aligned(4096)));

    memset(data, with, sizeof data);
    for (unsigned i = 0; i < count; i++) {
        struct iovec iov = {data, sizeof data};
        struct plx_request request = {
            .op = PLX_WRITE, .length = sizeof data, .iov = &iov, .iovcnt = 1};

        OK(plx_vdi_run(vdis[i], &request));
    }
}

/* In a process of its own, which dies with its LUNs open. */
static void die_with_luns(void)
{
    pid_t child;
    int status;

    fflush(NULL);
    child = fork();
    if (child == 0) {
        open_luns(LUNS);
        write_luns(LUNS, 'x');
        kill(getpid(), SIGKILL);
    }
    CU_ASSERT_EQUAL_FATAL(waitpid(child, &status, 0), child);
    CU_ASSERT_FATAL(WIFSIGNALED(status));
}

/* ---- Tests ------------------------------------------------------------------------------- */

static void test_commands(void)
{
    struct plx_request snapshot = {.op = PLX_SNAPSHOT};

    open_as("admin"); /* the first one of this boot says so in both slots of the home page */
    create(100);
    close_attach();

    count_from_here();
    open_as("admin");
    close_attach();
    check("attach and detach", 0, 2);

    count_from_here();
    open_as("admin");
    create(101);
    close_attach();
    check("vdi create", 2, 12);

    for (unsigned i = 0; i < 4; i++) {
        count_from_here();
        open_as("admin");
        open_disk(100);
        OK(plx_vdi_run(vdis[100], &snapshot));
        if (i % 2)
            OK(plx_attach_label(attach, vdis[100], i == 1 ? "a" : "b", snapshot.seq, 1, &fault));
        OK(plx_attach_vdi_close(attach, vdis[100]));
        close_attach();
        check(i % 2 ? "snap create with a label" : "snap create", i % 2 ? 4 : 3, i % 2 ? 27 : 22);
    }

    count_from_here();
    open_as("admin");
    OK(plx_attach_vdi_delete(attach, "v101", false, &fault));
    close_attach();
    check("vdi delete", 5, 23);

    count_from_here();
    open_as("admin");
    for (unsigned i = 0; i < LUNS; i++)
        create(i);
    close_attach();
    check("64 times vdi create, one process", 65, 454);
}

static void test_luns(void)
{
    count_from_here();
    open_luns(LUNS);
    check("64 LUNs open", 92, 570);
    write_luns(LUNS, 'a');
    count_from_here();
    leave_luns(LUNS);
    close_attach();
    check("and close", 1, 16);

    die_with_luns();
    count_from_here();
    open_as("handler");
    CU_ASSERT_EQUAL(plx_attach_unasked(attach, NULL), LUNS);
    check("recovered after a kill", 40, 390);
    count_from_here();
    for (unsigned i = 0; i < LUNS; i++)
        open_disk(i);
    CU_ASSERT_EQUAL(plx_attach_unasked(attach, NULL), 0);
    check("and open", 0, 0);
    leave_luns(LUNS);
    close_attach();
}

/* On a store like the one of the table above: its extents are as large as 16 GiB make them. */
static void test_large(void)
{
    struct plx_format_options options = {.name = "large"};
    char path[128];
    const char *paths[] = {path};
    struct plx_store_info info;

    snprintf(path, sizeof path, "%s/large", folder);
    OK(plx_founding_format(folder, paths, 1, 16384 * MIB, &options, false, NULL, &info, &fault));
    used = "large";
    disk_bytes = 64 * MIB;
    open_as("admin");
    for (unsigned i = 0; i < LUNS; i++)
        create(i);
    close_attach();
    count_from_here();
    open_luns(LUNS);
    check("64 LUNs of 16 GiB open", 68, 425);
    write_luns(LUNS, 'a');
    count_from_here();
    leave_luns(LUNS);
    close_attach();
    check("and close", 1, 16);
    used = "s";
    disk_bytes = 4 * MIB;
}

/* As many as before, and not the same: who waits until nothing changes must see it. */
static void test_left_in_turns(void)
{
    uint64_t before, after;

    open_luns(2);
    OK(plx_attach_vdi_leave(attach, vdis[0]));
    CU_ASSERT_EQUAL(plx_attach_unasked(attach, &before), 1);
    CU_ASSERT_EQUAL(plx_attach_unasked(attach, &after), 1);
    CU_ASSERT_EQUAL(before, after);
    OK(plx_attach_vdi_leave(attach, vdis[1]));
    open_disk(0);
    CU_ASSERT_EQUAL(plx_attach_unasked(attach, &after), 1);
    CU_ASSERT_NOT_EQUAL(before, after);
    leave_luns(1);
    close_attach();
}

static void test_closing(void)
{
    open_luns(8);
    write_luns(8, 'b');
    count_from_here();
    leave_luns(8);
    close_attach();
    check("8 LUNs close", 1, 16);

    open_luns(8);
    write_luns(8, 'c');
    leave_luns(8);
    CU_ASSERT_EQUAL(plx_attach_unasked(attach, NULL), 8);
    count_from_here();
    for (unsigned i = 0; i < 4; i++)
        open_disk(i);
    check("4 of 8 are opened again", 0, 0);
    CU_ASSERT_EQUAL(plx_attach_unasked(attach, NULL), 4);
    count_from_here();
    plx_attach_let_go(attach, NULL);
    CU_ASSERT_EQUAL(plx_attach_unasked(attach, NULL), 0);
    check("the others are let go", 1, 16);
    count_from_here();
    OK(plx_attach_vdi_close(attach, vdis[0]));
    check("one disk closes", 1, 6);
    for (unsigned i = 1; i < 4; i++)
        OK(plx_attach_vdi_leave(attach, vdis[i]));
    close_attach();
}

static uint64_t owner_of(unsigned number)
{
    struct plx_registry_store store;
    struct plx_registry_vdi row;
    char name[16];

    snprintf(name, sizeof name, "v%u", number);
    plx_attach_row(attach, &store);
    OK(plx_registry_vdi_get(plx_attach_registry(attach), store.id, name, &row));
    return row.owner;
}

/* The registry is told later of what it could not be told of at once. */
static void test_untold(void)
{
    open_luns(2);
    write_luns(2, 'd');
    leave_luns(2);
    event[0] = 0;
    commits_failing = 1;
    plx_attach_let_go(attach, NULL);
    CU_ASSERT_PTR_NOT_NULL(strstr(event, "could not be told"));
    CU_ASSERT_PTR_NOT_NULL(strstr(event, "is tried again"));
    CU_ASSERT(owner_of(0) == 0 && owner_of(1) == 0);

    /* Nor does it keep this process from opening them. */
    open_disk(0);
    write_luns(1, 'e');
    leave_luns(1);
    commits_failing = 1;
    plx_attach_let_go(attach, NULL);
    open_disk(0);
    leave_luns(1);
    close_attach();
}

/* ---- What a disk knows of the clocks (ATTACH-23) ----------------------------------------- */

#define DAY (24 * 3600)

static struct {
    void (*function)(void *argument);
    void *argument;
} jobs[8];
static unsigned jobs_count;

static int defer(void *context, void (*function)(void *argument), void *argument)
{
    if (jobs_count == 8)
        return PLX_ERR_BUSY;
    jobs[jobs_count].function = function;
    jobs[jobs_count++].argument = argument;
    return 0;
}

static void work_off(void)
{
    for (unsigned i = 0; i < jobs_count; i++)
        jobs[i].function(jobs[i].argument);
    jobs_count = 0;
}

/* Somebody waits for an extent. */
static void work_off_for(void *context)
{
    work_off();
}

static void open_deferring(void)
{
    struct plx_attach_options options = {.store = "s",
                                         .state_dir = folder,
                                         .role = "handler",
                                         .reopens = true,
                                         .defer = defer,
                                         .idle = work_off_for,
                                         .event = take_event};

    OK(plx_attach_open(&options, &attach, &fault));
}

/* Takes so many snapshots, and returns the number of the last one. */
static uint64_t snapshots_of(unsigned number, unsigned count)
{
    static char data[4096] __attribute__((aligned(4096)));
    struct iovec iov = {data, sizeof data};
    struct plx_request write = {.op = PLX_WRITE, .length = sizeof data, .iov = &iov, .iovcnt = 1};
    struct plx_request snapshot = {.op = PLX_SNAPSHOT};

    for (unsigned i = 0; i < count; i++) {
        data[0] = (char)(1 + i % 100);
        OK(plx_vdi_run(vdis[number], &write));
        OK(plx_vdi_run(vdis[number], &snapshot));
    }
    return snapshot.seq;
}

static uint64_t snapshots(unsigned count)
{
    return snapshots_of(0, count);
}

static struct plx_witness kept_of(unsigned number)
{
    struct plx_registry_store store;
    struct plx_registry_vdi row;
    struct plx_witness kept = {0};
    char name[16];

    snprintf(name, sizeof name, "v%u", number);
    plx_attach_row(attach, &store);
    OK(plx_registry_vdi_get(plx_attach_registry(attach), store.id, name, &row));
    OK(plx_witness_load(plx_attach_registry(attach), row.id, &kept));
    return kept;
}

static void expect_kept(unsigned count, enum plx_doubt doubt, unsigned undated)
{
    struct plx_witness kept;

    CU_ASSERT_EQUAL(commits, 0); /* no snapshot waits for the registry (INV-4) */
    work_off();
    CU_ASSERT_EQUAL(commits, count);
    kept = kept_of(0);
    CU_ASSERT_EQUAL(kept.doubt, doubt);
    CU_ASSERT_EQUAL(kept.undated_count, undated);
    CU_ASSERT(kept.boot_id != 0);
    count_from_here();
}

/* One commit with the first snapshot of a disk's life, and one with each change. */
static void test_clock(void)
{
    struct plx_vdi_clock clock;
    uint64_t last;

    open_deferring();
    open_disk(0);
    open_disk(1);
    write_luns(2, 'f');
    snapshots_of(1, 2); /* extents are claimed by then */
    work_off();
    CU_ASSERT_EQUAL(kept_of(0).boot_id, 0);
    count_from_here();
    snapshots(1);
    expect_kept(1, PLX_DOUBT_NONE, 0);
    snapshots(20);
    expect_kept(0, PLX_DOUBT_NONE, 0);
    wall_ahead = DAY;
    snapshots(20);
    expect_kept(1, PLX_DOUBT_STEPPED, 1);
    snapshots(20);
    expect_kept(0, PLX_DOUBT_STEPPED, 1);
    wall_ahead = 0;
    last = snapshots(20);
    expect_kept(1, PLX_DOUBT_NONE, 1);
    CU_ASSERT_EQUAL(kept_of(0).undated[0].after, 20);       /* which a look had seen taken, */
    CU_ASSERT_EQUAL(kept_of(0).undated[0].upto, last - 19); /* and the one that it was for */

    /* The registry cannot be told at once. */
    commits_failing = 1;
    wall_ahead = DAY;
    snapshots(1);
    work_off();
    CU_ASSERT_EQUAL(kept_of(0).undated_count, 1);
    ahead += 2;
    count_from_here();
    snapshots(1);
    expect_kept(1, PLX_DOUBT_STEPPED, 2);

    /* A look of another thread is newer than what waits. */
    wall_ahead = 0;
    snapshots(1);
    wall_ahead = DAY;
    plx_attach_look_at_clock(attach, vdis[0], &clock);
    CU_ASSERT_EQUAL(kept_of(0).doubt, PLX_DOUBT_STEPPED);
    count_from_here();
    expect_kept(0, PLX_DOUBT_STEPPED, kept_of(0).undated_count);
    wall_ahead = 0;
    snapshots(1);
    work_off();
    CU_ASSERT_EQUAL(kept_of(0).doubt, PLX_DOUBT_NONE);
    for (unsigned i = 0; i < 2; i++)
        OK(plx_attach_vdi_close(attach, vdis[i]));
    work_off();
    close_attach();
}

/* Killed after a doubt: the next process knows those that were taken in it, and one at each end. */
static void test_clock_killed(void)
{
    uint64_t seq[3];
    struct plx_vdi_clock clock;
    int status, numbers[2];
    pid_t child;

    CU_ASSERT_FATAL(pipe(numbers) == 0);
    fflush(NULL);
    child = fork();
    if (child == 0) {
        open_deferring();
        open_disk(0);
        seq[0] = snapshots(3);
        wall_ahead = DAY;
        seq[1] = snapshots(3);
        work_off();
        wall_ahead = 0;
        seq[2] = snapshots(3);
        work_off();
        CU_ASSERT(write(numbers[1], seq, sizeof seq) == sizeof seq);
        kill(getpid(), SIGKILL);
    }
    CU_ASSERT_EQUAL_FATAL(waitpid(child, &status, 0), child);
    CU_ASSERT_FATAL(WIFSIGNALED(status) && read(numbers[0], seq, sizeof seq) == sizeof seq);
    close(numbers[0]);
    close(numbers[1]);
    open_luns(1);
    plx_attach_look_at_clock(attach, vdis[0], &clock);
    CU_ASSERT_EQUAL(clock.witness.doubt, PLX_DOUBT_NONE);
    for (uint64_t at = seq[0] - 1; at <= seq[2]; at++)
        CU_ASSERT_EQUAL(plx_witness_is_undated(&clock.witness, at),
                        at >= seq[0] && at <= seq[1] + 1);
    leave_luns(1);
    close_attach();
}

/* ATTACH-23: the registry cannot say what the disk knew. A command does not open it. A handler
 * does, and believes the time of no snapshot that was there before. */
static void test_clock_unknown(void)
{
    struct plx_attach_vdi_options options = {.overwrite = -1};
    struct plx_vdi_clock clock;
    uint64_t before, after;
    int changes, error;

    open_luns(1);
    before = snapshots(3);
    leave_luns(1);
    close_attach();
    OK(plx_registry_edit(volume, "ALTER TABLE policies RENAME TO gone", &changes, &fault));
    open_as("admin");
    error = plx_attach_vdi_open(attach, "v0", NULL, &options, &vdis[0], &fault);
    CU_ASSERT_EQUAL(error, PLX_ERR_REGISTRY);
    if (!error)
        OK(plx_attach_vdi_close(attach, vdis[0]));
    close_attach();
    open_luns(1);
    after = snapshots(3);
    plx_attach_look_at_clock(attach, vdis[0], &clock);
    CU_ASSERT_EQUAL(after, before + 3); /* the command has taken none */
    for (uint64_t at = 1; at <= after; at++)
        CU_ASSERT_EQUAL(plx_witness_is_undated(&clock.witness, at), at <= before);
    leave_luns(1);
    close_attach();
    OK(plx_registry_edit(volume, "ALTER TABLE gone RENAME TO policies", &changes, &fault));
    open_luns(1);
    leave_luns(1);
    close_attach();
}

/* ---- The store --------------------------------------------------------------------------- */

static int make_store(void)
{
    struct plx_format_options options = {.name = "s", .extent_bytes = 8 * MIB};
    const char *paths[] = {volume};
    struct plx_store_info info;

    strcpy(folder, "/var/tmp/plx-commits-XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    snprintf(volume, sizeof volume, "%s/volume", folder);
    return plx_founding_format(folder, paths, 1, 2048 * MIB, &options, false, NULL, &info, &fault);
}

static int remove_store(void)
{
    char command[128];

    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) != 0;
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"commands", test_commands},
        {"64 LUNs", test_luns},
        {"64 LUNs of a large store", test_large},
        {"closing", test_closing},
        {"LUNs that leave and come in turns", test_left_in_turns},
        {"commits that fail", test_untold},
        {"clocks that jump", test_clock},
        {"clocks that jump, and a process that is killed", test_clock_killed},
        {"clocks of which nothing is known", test_clock_unknown},
    };

    return SUITE_RUN_IN(&((struct suite_frame){.init = make_store, .clean = remove_store}),
                        "commits and flushes", tests);
}
