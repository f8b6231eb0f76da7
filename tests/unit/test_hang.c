/* test_hang.c - a store whose device hangs, and a disk on it with a write-back ring.
 *
 * The device hangs for whoever reads or writes the store's file, the tenancy's thread too; the
 * ring lies in another file. The boot clock is set forward, so that a look at the home page is due
 * (TENANCY-10). From then on the ring acknowledges, while no write is handed to the store's device
 * and the thread that runs the loop never waits for it (ATTACH-22). Where that thread would have
 * stood still, it goes on here and is counted.
 */
#include <errno.h>
#include <fcntl.h>
#include <libaio.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "attach/attach_ring.h"
#include "attach/founding.h"
#include "attach/host_ring.h"
#include "engine/loop/store.h"
#include "engine/space/allocator.h"
#include "folder.h"
#include "ok.h"
#include "suite.h"

#define MIB (1ull << 20)
#define BLOCK 4096u
#define SECOND_NS 1000000000
#define WRITES 100u
#define FEW 12u
#define TURNS_MAX 60000u /* each may wait for some milliseconds */
#define HANGS_S_MAX 60   /* so long only if the test fails */
#define HOME_AT ((off_t)PLX_HOME_BLOCK * PLX_BLOCK_SIZE)

static char folder[FOLDER_MAX], volume[96];
static struct plx_uuid store_id;
static struct plx_fault fault;
static struct plx_attach *attach;
static struct plx_store *store;
static struct plx_vdi *vdi;

/* ---- The device ---------------------------------------------------------------------------- */

static pthread_t looper; /* the thread that runs the loop */
static struct stat volume_stat;
static atomic_llong ahead_ns; /* of the boot clock */
static atomic_llong still_ns; /* it stands still there, but for that; 0: it does not */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t goes_on = PTHREAD_COND_INITIALIZER;
static bool hangs, watches;
static unsigned stood_still; /* so often the loop would have */
static unsigned handed_over; /* writes and flushes of the loop */
static bool failing;         /* reads of other threads do */
static unsigned failed;      /* so many have */
static unsigned slept;       /* so often the loop did, for the device */
static unsigned slow_s;      /* so long does a look at the home page take, by the boot clock */
static unsigned looks;

static struct waiting {
    io_context_t context;
    struct iocb *request;
} waiting[1024]; /* what was handed over while the device hangs */
static unsigned waiting_count;

int __real_clock_gettime(clockid_t id, struct timespec *time);
int __wrap_clock_gettime(clockid_t id, struct timespec *time);
int __real_io_getevents(io_context_t context, long least, long most, struct io_event *events,
                        struct timespec *timeout);
int __wrap_io_getevents(io_context_t context, long least, long most, struct io_event *events,
                        struct timespec *timeout);
int __real_io_submit(io_context_t context, long count, struct iocb **list);
int __wrap_io_submit(io_context_t context, long count, struct iocb **list);
ssize_t __real_pread64(int fd, void *buffer, size_t bytes, off_t offset);
ssize_t __wrap_pread64(int fd, void *buffer, size_t bytes, off_t offset);
ssize_t __real_preadv64(int fd, const struct iovec *iov, int count, off_t offset);
ssize_t __wrap_preadv64(int fd, const struct iovec *iov, int count, off_t offset);
ssize_t __real_pwrite64(int fd, const void *buffer, size_t bytes, off_t offset);
ssize_t __wrap_pwrite64(int fd, const void *buffer, size_t bytes, off_t offset);
ssize_t __real_pwritev64(int fd, const struct iovec *iov, int count, off_t offset);
ssize_t __wrap_pwritev64(int fd, const struct iovec *iov, int count, off_t offset);
int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);

int __wrap_clock_gettime(clockid_t id, struct timespec *time)
{
    int result = __real_clock_gettime(id, time);

    if (id == CLOCK_BOOTTIME && atomic_load(&still_ns))
        *time = (struct timespec){(time_t)(atomic_load(&still_ns) / SECOND_NS), 0};
    if (id == CLOCK_BOOTTIME)
        time->tv_sec += (time_t)(atomic_load(&ahead_ns) / SECOND_NS);
    return result;
}

static bool is_volume(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && st.st_ino == volume_stat.st_ino &&
           st.st_dev == volume_stat.st_dev;
}

/* With the lock. */
static void let_go(void)
{
    hangs = false;
    for (unsigned i = 0; i < waiting_count; i++)
        CU_ASSERT_EQUAL(__real_io_submit(waiting[i].context, 1, &waiting[i].request), 1);
    waiting_count = 0;
    pthread_cond_broadcast(&goes_on);
}

/* A call that returns when the device has done it. */
static void pass(int fd)
{
    struct timespec until;

    if (!is_volume(fd))
        return;
    pthread_mutex_lock(&lock);
    if (hangs && pthread_equal(pthread_self(), looper)) {
        stood_still++;
    } else if (hangs) {
        __real_clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += HANGS_S_MAX;
        while (hangs && !pthread_cond_timedwait(&goes_on, &lock, &until))
            ;
        if (hangs) { /* the loop waits for this thread */
            stood_still++;
            let_go();
        }
    }
    pthread_mutex_unlock(&lock);
}

/* Whether a look at the home page fails. */
static bool fails(int fd)
{
    bool result = is_volume(fd) && !pthread_equal(pthread_self(), looper);

    pthread_mutex_lock(&lock);
    result = result && failing;
    failed += result;
    pthread_mutex_unlock(&lock);
    if (result)
        errno = EIO;
    return result;
}

ssize_t __wrap_pread64(int fd, void *buffer, size_t bytes, off_t offset)
{
    pass(fd);
    if (fails(fd))
        return -1;
    if (offset == HOME_AT && is_volume(fd)) {
        pthread_mutex_lock(&lock);
        looks++;
        atomic_fetch_add(&ahead_ns, (long long)slow_s * SECOND_NS);
        pthread_mutex_unlock(&lock);
    }
    return __real_pread64(fd, buffer, bytes, offset);
}

ssize_t __wrap_preadv64(int fd, const struct iovec *iov, int count, off_t offset)
{
    pass(fd);
    if (fails(fd))
        return -1;
    return __real_preadv64(fd, iov, count, offset);
}

ssize_t __wrap_pwrite64(int fd, const void *buffer, size_t bytes, off_t offset)
{
    pass(fd);
    return __real_pwrite64(fd, buffer, bytes, offset);
}

ssize_t __wrap_pwritev64(int fd, const struct iovec *iov, int count, off_t offset)
{
    pass(fd);
    return __real_pwritev64(fd, iov, count, offset);
}

int __wrap_fdatasync(int fd)
{
    pass(fd);
    return __real_fdatasync(fd);
}

int __wrap_io_submit(io_context_t context, long count, struct iocb **list)
{
    bool ours = is_volume((*list)->aio_fildes), hold;

    pthread_mutex_lock(&lock);
    hold = ours && hangs;
    for (long i = 0; ours && i < count; i++) {
        short op = list[i]->aio_lio_opcode;

        handed_over += watches && op != IO_CMD_PREAD && op != IO_CMD_PREADV;
        if (hold) {
            CU_ASSERT_FATAL(waiting_count < sizeof waiting / sizeof *waiting);
            waiting[waiting_count++] = (struct waiting){context, list[i]};
        }
    }
    pthread_mutex_unlock(&lock);
    return hold ? (int)count : __real_io_submit(context, count, list);
}

int __wrap_io_getevents(io_context_t context, long least, long most, struct io_event *events,
                        struct timespec *timeout)
{
    pthread_mutex_lock(&lock);
    slept += hangs && least > 0 && waiting_count && waiting[0].context == context;
    pthread_mutex_unlock(&lock);
    return __real_io_getevents(context, least, most, events, timeout);
}

static void hang(void)
{
    pthread_mutex_lock(&lock);
    hangs = true;
    stood_still = slept = 0;
    pthread_mutex_unlock(&lock);
}

static void go_on(void)
{
    pthread_mutex_lock(&lock);
    let_go();
    pthread_mutex_unlock(&lock);
}

/* From now on the loop's writes to the store are counted. */
static void watch(void)
{
    pthread_mutex_lock(&lock);
    watches = true;
    handed_over = 0;
    pthread_mutex_unlock(&lock);
}

static void set_failing(bool on)
{
    pthread_mutex_lock(&lock);
    failing = on;
    failed = 0;
    pthread_mutex_unlock(&lock);
}

static unsigned count_of(const unsigned *what)
{
    unsigned count;

    pthread_mutex_lock(&lock);
    count = *what;
    pthread_mutex_unlock(&lock);
    return count;
}

/* Only pass_time() moves it on. */
static void stop_clock(bool stop)
{
    struct timespec now;

    __real_clock_gettime(CLOCK_BOOTTIME, &now);
    atomic_store(&still_ns, stop ? (long long)(now.tv_sec + 1) * SECOND_NS : 0);
}

static void make_slow(unsigned seconds)
{
    pthread_mutex_lock(&lock);
    slow_s = seconds;
    looks = 0;
    pthread_mutex_unlock(&lock);
}

/* Every look that has begun is too old now. */
static void pass_time(void)
{
    atomic_fetch_add(&ahead_ns, 3600ll * SECOND_NS);
}

/* ---- The disk ------------------------------------------------------------------------------ */

static unsigned turns_until_on;    /* then the device goes on; 0: not so */
static void (*in_each_turn)(void); /* NULL: nothing */

static void count_turns(void *context)
{
    if (turns_until_on && --turns_until_on == 0)
        go_on();
    if (in_each_turn)
        in_each_turn();
}

struct job {
    void (*function)(void *argument);
    void *argument;
};

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

static void *do_job(void *argument)
{
    struct job job = *(struct job *)argument;

    free(argument);
    pthread_mutex_lock(&one_at_a_time);
    job.function(job.argument);
    pthread_mutex_unlock(&one_at_a_time);
    return NULL;
}

/* As a handler does: claims of extents wait for the device on another thread. */
static int defer(void *context, void (*function)(void *argument), void *argument)
{
    struct job *job = malloc(sizeof *job);
    pthread_t thread;

    CU_ASSERT_PTR_NOT_NULL_FATAL(job);
    *job = (struct job){function, argument};
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, do_job, job), 0);
    pthread_detach(thread);
    return 0;
}

static int try_attach(bool handler)
{
    struct plx_attach_options options = {.store = "s",
                                         .state_dir = folder,
                                         .role = handler ? "handler" : "admin",
                                         .brief = !handler,
                                         .rings = handler,
                                         .tick = count_turns,
                                         .defer = handler ? defer : NULL};

    return plx_attach_open(&options, &attach, &fault);
}

static void open_attach(bool handler)
{
    OK(try_attach(handler));
    store = plx_attach_store(attach);
}

static void open_disk(void)
{
    struct plx_attach_vdi_options options = {.overwrite = -1};

    OK(plx_attach_vdi_open(attach, "v", NULL, &options, &vdi, &fault));
}

static struct plx_ringed_info info_of(void)
{
    struct plx_ringed_info info = {0};

    CU_ASSERT_FATAL(plx_attach_ring_info(attach, vdi, &info));
    return info;
}

static void turn(unsigned *turns)
{
    CU_ASSERT_FATAL(++*turns < TURNS_MAX);
    if (!plx_store_tick(store))
        plx_store_wait(store);
}

struct sent {
    struct plx_request request;
    bool done;
};

static void sent_done(struct plx_request *request)
{
    ((struct sent *)request->owner)->done = true;
}

static int run(enum plx_request_op op, unsigned block, void *data)
{
    struct iovec iov = {data, BLOCK};
    struct sent sent = {.request = {.op = op,
                                    .offset = (uint64_t)block * BLOCK,
                                    .length = BLOCK,
                                    .iov = &iov,
                                    .iovcnt = 1,
                                    .done = sent_done,
                                    .owner = &sent}};
    unsigned turns = 0;

    plx_vdi_submit(vdi, &sent.request);
    while (!sent.done)
        turn(&turns);
    return sent.request.result;
}

static int write_block(unsigned block, int with)
{
    static uint8_t data[BLOCK] __attribute__((aligned(BLOCK)));

    memset(data, with, sizeof data);
    return run(PLX_WRITE, block, data);
}

static bool reads_as(unsigned block, int with)
{
    static uint8_t data[BLOCK] __attribute__((aligned(BLOCK)));

    OK(run(PLX_READ, block, data));
    for (unsigned i = 0; i < BLOCK; i++)
        if (data[i] != (uint8_t)with)
            return false;
    return true;
}

static void drain(void)
{
    for (unsigned turns = 0; info_of().records;)
        turn(&turns);
}

/* A disk on a ring that acknowledges, with some blocks on the store. The store can promise room for
 * all that a test writes (RINGED_APPEND-5): while the device hangs no extent comes. */
static void begin(void)
{
    CU_ASSERT_FATAL(!CU_get_number_of_failures()); /* a disk may be open still */
    open_attach(true);
    open_disk();
    for (unsigned turns = 0; !info_of().on;)
        turn(&turns);
    for (unsigned i = 0; i < WRITES && !CU_get_number_of_failures(); i++)
        OK(write_block(i, 1));
    drain();
    for (unsigned turns = 0; !plx_alloc_has_unpromised(store, 3 * WRITES);)
        turn(&turns);
}

static void write_all(int with)
{
    for (unsigned i = 0; i < WRITES && !CU_get_number_of_failures(); i++)
        OK(write_block(i, with));
}

/* The ring may acknowledge some more. */
static void write_until_fenced(int with)
{
    int result;

    for (unsigned writes = 0; !(result = write_block(0, with)); writes++) {
        CU_ASSERT_FATAL(writes < TURNS_MAX);
        usleep(1000);
    }
    CU_ASSERT_EQUAL(result, PLX_ERR_FENCED);
}

static void check_all(int with)
{
    for (unsigned i = 0; i < WRITES && !CU_get_number_of_failures(); i++)
        CU_ASSERT(reads_as(i, with));
}

static void end(void)
{
    OK(plx_attach_vdi_close(attach, vdi));
    OK(plx_attach_close(attach));
    watches = false;
}

/* What the store has. */
static void check_store(int with)
{
    open_attach(false);
    open_disk();
    check_all(with);
    end();
}

/* ---- Tests --------------------------------------------------------------------------------- */

static void test_goes_on(void)
{
    begin();
    hang();
    pass_time();
    watch();
    write_all(2);
    CU_ASSERT_EQUAL(info_of().records, WRITES);
    check_all(2);
    CU_ASSERT_EQUAL(count_of(&stood_still), 0);
    CU_ASSERT_EQUAL(count_of(&handed_over), 0);
    CU_ASSERT(plx_store_busy(store));
    go_on();
    drain();
    CU_ASSERT(count_of(&handed_over) > 0);
    end();
    check_store(2);
}

/* Writes that were under way when the device began to hang are there, too. */
static void test_hangs_in_between(void)
{
    begin();
    hang();
    watch();
    OK(write_block(0, 3));
    for (unsigned turns = 0; !count_of(&handed_over);)
        turn(&turns);
    pass_time();
    watch();
    write_all(3);
    CU_ASSERT_EQUAL(count_of(&stood_still), 0);
    CU_ASSERT_EQUAL(count_of(&handed_over), 0);
    go_on();
    drain();
    end();
    check_store(3);
}

/* The disk is closed while the device hangs, which waits for it. */
static void test_closed(void)
{
    begin();
    hang();
    pass_time();
    watch();
    write_all(4);
    CU_ASSERT_EQUAL(count_of(&handed_over), 0);
    turns_until_on = 1000;
    OK(plx_attach_vdi_close(attach, vdi));
    CU_ASSERT_EQUAL(turns_until_on, 0);
    CU_ASSERT(count_of(&handed_over) > 0);
    OK(plx_attach_close(attach));
    watches = false;
    check_store(4);
}

static struct sent one;
static unsigned acknowledged;

/* Writes that come one after the other from elsewhere. */
static void write_another(void)
{
    static uint8_t data[BLOCK] __attribute__((aligned(BLOCK)));
    static struct iovec iov = {data, BLOCK};
    static unsigned turns;

    if (!one.done || ++turns % 16) /* nothing is under way for a while */
        return;
    if (++acknowledged == FEW) {
        in_each_turn = NULL;
        go_on();
        return;
    }
    memset(data, 6, BLOCK);
    one = (struct sent){.request = {.op = PLX_WRITE,
                                    .offset = acknowledged * BLOCK,
                                    .length = BLOCK,
                                    .iov = &iov,
                                    .iovcnt = 1,
                                    .done = sent_done,
                                    .owner = &one}};
    plx_vdi_submit(vdi, &one.request);
}

/* A synchronous call waits for the device that hangs. What comes meanwhile does not wait for that
 * device, but for the first time (TICK-7). */
static void test_goes_on_beside(void)
{
    static uint8_t data[BLOCK] __attribute__((aligned(BLOCK)));

    begin();
    hang();
    one.done = true;
    acknowledged = 0;
    in_each_turn = write_another;
    OK(plx_store_read_sync(store, PLX_KIND_ADMIN, 0, data, sizeof data));
    CU_ASSERT_EQUAL(acknowledged, FEW);
    CU_ASSERT(count_of(&slept) < 5);
    in_each_turn = NULL;
    drain();
    end();
}

/* A look takes longer than it proves anything for. What came before it began goes when it has ended
 * (TENANCY-10). If looks take longer still, nothing goes, until they are faster. */
static void test_slow(void)
{
    begin();
    make_slow(4);
    pass_time();
    write_all(6);
    drain();
    CU_ASSERT(count_of(&looks) > 0);
    make_slow(8);
    pass_time();
    watch();
    write_all(7);
    for (unsigned turns = 0; count_of(&looks) < 4;)
        turn(&turns);
    CU_ASSERT_EQUAL(count_of(&handed_over), 0);
    make_slow(0);
    drain();
    end();
    check_store(7);
}

/* It becomes another host's, or ours again. */
static void turn_home(void)
{
    int fd = open(volume, O_RDWR | O_CLOEXEC);
    uint8_t block[PLX_BLOCK_SIZE];
    struct plx_home home, newest = {.generation = 0};

    for (off_t slot = 0; slot < 2; slot++) {
        CU_ASSERT_EQUAL_FATAL(
            __real_pread64(fd, block, sizeof block, HOME_AT + slot * PLX_BLOCK_SIZE), sizeof block);
        OK(plx_format_home_decode(block, &store_id, &home, &fault));
        if (home.generation > newest.generation)
            newest = home;
    }
    newest.host.b[0] ^= 1;
    newest.boot.b[0] ^= 1;
    for (off_t slot = 0; slot < 2; slot++) {
        newest.generation += 1000; /* more than he can have come to since */
        plx_format_home_encode(&store_id, &newest, block);
        CU_ASSERT_EQUAL_FATAL(
            __real_pwrite64(fd, block, sizeof block, HOME_AT + slot * PLX_BLOCK_SIZE),
            sizeof block);
    }
    close(fd);
}

/* Another host takes the store while the device hangs for this one. Nothing of what was held
 * reaches the store, and the disk stops. What the ring had acknowledged is there when this host has
 * the store again. */
static void test_taken(void)
{
    begin();
    hang();
    pass_time();
    watch();
    write_all(5);
    turn_home();
    go_on();
    write_until_fenced(5);
    plx_attach_vdi_close(attach, vdi);
    plx_attach_close(attach);
    CU_ASSERT_EQUAL(count_of(&handed_over), 0);
    watches = false;
    turn_home();
    open_attach(true);
    open_disk();
    check_all(5);
    end();
    check_store(5);
}

/* TENANCY-11: the first looks after a hang may fail. Those that fail for seconds end the tenancy,
 * so that nobody waits for ever. */
static void test_fails(void)
{
    unsigned turns = 0;

    begin();
    hang();
    pass_time();
    write_all(7);
    set_failing(true);
    stop_clock(true);
    go_on();
    while (count_of(&failed) < 2)
        turn(&turns);
    set_failing(false);
    drain();
    stop_clock(false);
    set_failing(true);
    pass_time();
    watch();
    while (count_of(&failed) < 2)
        turn(&turns);
    pass_time();
    write_until_fenced(7);
    set_failing(false);
    plx_attach_vdi_close(attach, vdi);
    plx_attach_close(attach);
    CU_ASSERT_EQUAL(count_of(&handed_over), 0);
    watches = false;
    check_store(7);
}

static int make(void)
{
    struct plx_format_options format = {.name = "s"};
    struct plx_vdi_create_options create = {.name = "v", .size_bytes = 4 * MIB, .sector_size = 512};
    struct plx_host_ring_options how = {.members = 1, .create_bytes = 256 * MIB};
    struct plx_host_ring_made made;
    struct plx_store_info store_info;
    struct plx_vdi_info info;
    const char *paths[] = {volume};
    char ring[96], id[PLX_UUID_TEXT];

    looper = pthread_self();
    if (!folder_make("hang", folder))
        return 1;
    snprintf(volume, sizeof volume, "%s/volume", folder);
    snprintf(ring, sizeof ring, "%s/ring", folder);
    how.path[0] = ring;
    if (plx_founding_format(folder, paths, 1, 256 * MIB, &format, true, NULL, &store_info,
                            &fault) ||
        stat(volume, &volume_stat))
        return 1;
    store_id = store_info.id;
    if (try_attach(false) || plx_attach_vdi_create(attach, &create, NULL, NULL, &info, &fault) ||
        plx_host_ring_create(attach, &how, &made, &fault))
        return 1;
    plx_known_ring_done(&made.known);
    plx_uuid_text(&info.id, id);
    return plx_ring_setting_keep(plx_attach_registry(attach), id, PLX_RING_ON) ||
           plx_attach_close(attach);
}

static int clean(void)
{
    folder_remove(folder);
    return 0;
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"the ring goes on", test_goes_on},
        {"hangs in between", test_hangs_in_between},
        {"closed", test_closed},
        {"goes on beside", test_goes_on_beside},
        {"slow", test_slow},
        {"taken", test_taken},
        {"looks fail", test_fails},
    };

    return SUITE_RUN_IN(&((struct suite_frame){.init = make, .clean = clean}), "a store that hangs",
                        tests);
}
