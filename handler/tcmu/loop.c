/* loop.c - the threads and the mutex that run a store's engine; see loop.h.
 *
 * LOOP-1  The engine is called only with the mutex held, because it is written for one thread.
 * LOOP-2  No posted work is forgotten. The poster tries the mutex after posting, unless LOOP-7 lets
 *     it leave the work to others. The holder looks into the inbox after giving up the mutex, and
 *     if there is work, tries to take the mutex again. So if the poster's try fails, the holder's
 *     look comes after the post and finds it.
 * LOOP-3  A completion may post, as tcmu-runner's compound commands do, although it runs with the
 *     mutex held. Its try fails, because this very thread holds the mutex, and this thread finds
 *     the work by LOOP-2.
 * LOOP-4  A thread cannot be cancelled while it holds the mutex. tcmu-runner ends its command
 *     threads with pthread_cancel(), and a cancelled holder would stop the store for good.
 * LOOP-5  Work that a turn leaves is done without delay: the same thread makes another turn, or it
 *     wakes the loop's own thread.
 * LOOP-6  The loop's own thread wakes up when the engine's next timer is due. It counts that time
 *     into its timeout. If a turn brings the time forward, the thread that made the turn wakes it,
 *     once. So requests that set timers cost no system call each.
 * LOOP-7  Under load a few posts share one turn of the engine, and so one system call. While DEEP
 *     or more I/Os are in flight, a poster leaves its work in the inbox and returns. The thread
 *     that collects the next completion makes the turn. A poster whose work is the MANYth or a
 *     later one in the inbox tries the mutex all the same. No work is forgotten, because a holder
 *     first stores the number of I/Os in flight (under_way), then gives up the mutex, then looks
 *     into the inbox:
 *
 *        the post comes              who takes the work
 *        before the holder's look    the holder, by LOOP-2
 *        after that look, and        the poster, because it tries the mutex (LOOP-2)
 *        under_way is below DEEP
 *        after that look, and        a watcher: it makes a turn when an I/O of its device has
 *        under_way is DEEP or more   completed (LOOP-8), and with DEEP I/Os in flight one completes
 *                                    soon. If another thread collects that completion first, its
 *                                    turn or its look takes the work (LOOP-2)
 *        the same, but the device    the loop's own thread, which sleeps IMPATIENT_MS at most
 *        with those I/Os hangs       while DEEP or more I/Os are in flight
 *
 *     The table assumes that one of many I/Os completes soon. A slow device with large writes in
 *     flight breaks that assumption. A reader who waits for each answer before the next request
 *     would get one answer every IMPATIENT_MS. So when a turn finds work that was left for LATE_NS
 *     or longer, posters leave no work to others for WARY_NS.
 *
 * LOOP-8  Each device has a thread that waits for its completions, a watcher: the volumes, and the
 *     members of a ring. So one system call collects completions, and a device needs no file
 *     descriptor to announce them. If a watcher cannot be started, the loop's own thread wakes up
 *     every IMPATIENT_MS while any I/O is in flight, and each time tries to start the watcher
 *     again.
 * LOOP-9  plx_loop_stop() ends all watchers. They are started only with the mutex held and only
 *     while `stop` is not set; `stop` is set with the mutex held as well. So no watcher starts
 *     unseen. No watcher is started for a device that has left the store; plx_loop_unwatch() ends
 *     the one that is running.
 *
 * Threads: every function may be called from any thread, except where loop.h says otherwise. Lock
 *   order: the mutex, then tcmu-runner's own locks (in completions) or a device's locks. jobs_lock
 *   is taken alone.
 */
#include "tcmu/loop.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "engine/ring/ring.h"

#define TURNS_AT_ONCE 64 /* turns that one thread makes before it lets others go on */
#define DEEP 16u         /* I/Os in flight: so many that one of them completes soon (LOOP-7) */
#define MANY 4u          /* pieces of work in the inbox that are worth a turn (LOOP-7) */
#define IDLE_MS 5
#define IMPATIENT_MS 5
#define LATE_NS 1000000u   /* LOOP-7 */
#define WARY_NS 100000000u /* LOOP-7 */
#define BUSY_WAIT_MS 100   /* the longest sleep while the engine has work, if nothing wakes it */
#define QUIET_WAIT_MS 1000
#define JOBS_MAX 256
#define NS_PER_MS 1000000u

struct loop_job {
    void (*function)(void *argument);
    void *argument;
};

#define WATCHERS (PLX_VOLUMES_MAX + PLX_RING_MEMBERS)

/* The thread that waits for one device (LOOP-8). */
struct watcher {
    struct plx_loop *loop;
    struct plx_device *device;
    pthread_t thread;
    bool started;
    atomic_bool end; /* the device is closed next */
};

struct plx_loop {
    pthread_mutex_t mutex;
    struct plx_store *store; /* NULL while not started */
    /* LOOP-6: when the loop's own thread wakes up, on the monotonic clock; 0: it is awake. */
    uint64_t sleeps_until_ns;
    bool sleeps_long;                 /* that thread sleeps for longer than IMPATIENT_MS */
    bool unwatched;                   /* a device has no watcher (LOOP-8) */
    int cancelable;                   /* LOOP-4: the holder's cancel state before plx_loop_lock() */
    _Atomic(struct plx_work *) inbox; /* newest first */
    atomic_uint posted;               /* about how much work is in the inbox (LOOP-7) */
    atomic_uint under_way;            /* I/Os in flight when the mutex was given up last */
    _Atomic(uint64_t) wary_until_ns;  /* no work is left to others before that (LOOP-7) */

    int wake_fd;     /* wakes the loop's own thread */
    int job_done_fd; /* wakes plx_loop_idle() */
    pthread_t server;
    struct watcher watchers[WATCHERS];
    bool serving;
    atomic_bool stop; /* LOOP-9 */

    pthread_mutex_t jobs_lock;
    pthread_cond_t jobs_cond;
    struct loop_job jobs[JOBS_MAX];
    unsigned jobs_first, jobs_count;
    bool no_more_jobs;
    pthread_t worker;
};

/* ---- Turns --------------------------------------------------------------------------------- */

static uint64_t now_ns(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* LOOP-7 */
static void look_for_late(struct plx_loop *loop, const struct plx_work *oldest)
{
    uint64_t now = oldest && oldest->posted_ns ? now_ns() : 0;

    if (now && now - oldest->posted_ns >= LATE_NS)
        atomic_store(&loop->wary_until_ns, now + WARY_NS);
}

void plx_loop_tick(struct plx_loop *loop)
{
    struct plx_work *newest = atomic_exchange(&loop->inbox, NULL), *oldest = NULL;

    atomic_store_explicit(&loop->posted, 0, memory_order_relaxed);
    while (newest) {
        struct plx_work *work = newest;

        newest = work->next;
        work->next = oldest;
        oldest = work;
    }
    look_for_late(loop, oldest);
    while (oldest) {
        struct plx_work *work = oldest;

        oldest = work->next;
        work->run(work);
    }
}

/* With the mutex held (LOOP-1). Returns true when work is left. */
static bool make_turns(struct plx_loop *loop, unsigned count)
{
    bool more = true;

    if (!loop->store)
        return false;
    while (more && count-- > 0) {
        plx_loop_tick(loop);
        more = plx_store_tick(loop->store);
    }
    return more;
}

/* LOOP-5, LOOP-6 */
static void turn(struct plx_loop *loop, unsigned count)
{
    bool more = make_turns(loop, count);

    if (!more && loop->store && plx_store_due_ns(loop->store) < loop->sleeps_until_ns) {
        loop->sleeps_until_ns = 0;
        more = true;
    }
    if (more)
        plx_loop_wake(loop);
}

/* LOOP-7, LOOP-8: whether the loop's own thread must not sleep long: so many I/Os are in flight
 * that posters leave work to watchers, or a device without a watcher has any. */
static bool impatient(const struct plx_loop *loop, unsigned under_way)
{
    return under_way >= (loop->unwatched ? 1 : DEEP);
}

/* LOOP-7: stores under_way, then gives up the mutex. */
static void unlock(struct plx_loop *loop)
{
    unsigned under_way = loop->store ? plx_store_under_way(loop->store) : 0;

    atomic_store(&loop->under_way, under_way);
    if (loop->sleeps_long && impatient(loop, under_way)) {
        loop->sleeps_long = false;
        plx_loop_wake(loop);
    }
    pthread_mutex_unlock(&loop->mutex);
}

/* LOOP-2: gives up the mutex, and takes it again for work that came in meanwhile. */
static void give_up(struct plx_loop *loop)
{
    unlock(loop);
    while (atomic_load(&loop->inbox) && pthread_mutex_trylock(&loop->mutex) == 0) {
        turn(loop, TURNS_AT_ONCE);
        unlock(loop);
    }
}

void plx_loop_lock(struct plx_loop *loop)
{
    int cancelable;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelable);
    pthread_mutex_lock(&loop->mutex);
    loop->cancelable = cancelable;
}

void plx_loop_unlock(struct plx_loop *loop)
{
    int cancelable = loop->cancelable;

    turn(loop, 1);
    give_up(loop);
    pthread_setcancelstate(cancelable, NULL);
}

/* LOOP-7. The time at which this work is left to a watcher; 0: the poster makes the turn itself. */
static uint64_t left_since(const struct plx_loop *loop)
{
    uint64_t now = atomic_load(&loop->under_way) >= DEEP ? now_ns() : 0;

    return now >= atomic_load(&loop->wary_until_ns) ? now : 0;
}

void plx_loop_post(struct plx_loop *loop, struct plx_work *work)
{
    bool left;
    int cancelable;

    work->posted_ns = left_since(loop);
    left = work->posted_ns != 0;
    work->next = atomic_load(&loop->inbox);
    while (!atomic_compare_exchange_weak(&loop->inbox, &work->next, work))
        ;
    if (atomic_fetch_add(&loop->posted, 1) + 1 < MANY && left &&
        atomic_load(&loop->under_way) >= DEEP) /* after the post, as the table says */
        return;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelable);
    if (pthread_mutex_trylock(&loop->mutex) == 0) { /* fails within a completion: LOOP-3 */
        turn(loop, TURNS_AT_ONCE);
        give_up(loop);
    }
    pthread_setcancelstate(cancelable, NULL);
}

void plx_loop_wake(struct plx_loop *loop)
{
    eventfd_write(loop->wake_fd, 1);
}

/* Waits for an eventfd, and resets it. */
static void wait_for(int event_fd, int timeout_ms)
{
    struct pollfd fd = {.fd = event_fd, .events = POLLIN};
    eventfd_t count;

    if (poll(&fd, 1, timeout_ms) > 0)
        eventfd_read(event_fd, &count);
}

void plx_loop_idle(struct plx_loop *loop)
{
    wait_for(loop->job_done_fd, IDLE_MS);
}

/* ---- A request from a thread that waits ------------------------------------------------------ */

struct waiter {
    struct plx_work work; /* first */
    struct plx_vdi *vdi;
    struct plx_request *request;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool done;
};

static void waiter_done(struct plx_request *request)
{
    struct waiter *waiter = request->owner;

    pthread_mutex_lock(&waiter->mutex);
    waiter->done = true;
    pthread_cond_signal(&waiter->cond);
    pthread_mutex_unlock(&waiter->mutex);
}

static void waiter_submit(struct plx_work *work)
{
    struct waiter *waiter = (struct waiter *)work;

    plx_vdi_submit_ahead(waiter->vdi, waiter->request);
}

int plx_loop_run(struct plx_loop *loop, struct plx_vdi *vdi, struct plx_request *request)
{
    struct waiter waiter = {
        .work.run = waiter_submit,
        .vdi = vdi,
        .request = request,
        .mutex = PTHREAD_MUTEX_INITIALIZER,
        .cond = PTHREAD_COND_INITIALIZER,
    };
    int cancelable;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelable);
    request->done = waiter_done;
    request->owner = &waiter;
    plx_loop_post(loop, &waiter.work);
    pthread_mutex_lock(&waiter.mutex);
    while (!waiter.done)
        pthread_cond_wait(&waiter.cond, &waiter.mutex);
    pthread_mutex_unlock(&waiter.mutex);
    pthread_cond_destroy(&waiter.cond);
    pthread_mutex_destroy(&waiter.mutex);
    pthread_setcancelstate(cancelable, NULL);
    return request->result;
}

/* ---- The devices' threads ------------------------------------------------------------------ */

static void *watch(void *argument)
{
    struct watcher *watcher = argument;
    struct plx_loop *loop = watcher->loop;
    struct plx_device *device = watcher->device;

    pthread_setname_np(pthread_self(), "plx-volume");
    while (!atomic_load(&loop->stop) && !atomic_load(&watcher->end)) {
        device->ops->wait(device);
        pthread_mutex_lock(&loop->mutex);
        device->ops->poll(device, false); /* some devices have work of their own to do here */
        turn(loop, TURNS_AT_ONCE);
        give_up(loop);
    }
    return NULL;
}

/* The device's watcher, else one that is free; NULL: all are used. */
static struct watcher *watcher_for(struct plx_loop *loop, const struct plx_device *device)
{
    struct watcher *unused = NULL;

    for (unsigned i = 0; i < WATCHERS; i++) {
        struct watcher *watcher = &loop->watchers[i];

        if (watcher->started && watcher->device == device)
            return watcher;
        if (!watcher->started && !unused)
            unused = watcher;
    }
    return unused;
}

/* Starts the watchers that do not run yet (LOOP-8, LOOP-9). With the mutex held. Returns 0, or the
 * errno of the first that could not be started. */
static int start_watchers(struct plx_loop *loop)
{
    struct plx_device *device;
    int error = 0;

    if (atomic_load(&loop->stop))
        return 0;
    for (unsigned i = 0; (device = plx_store_any_device(loop->store, i)); i++) {
        struct watcher *watcher = watcher_for(loop, device);
        int failed = watcher ? 0 : EAGAIN;

        if (watcher && !watcher->started) {
            *watcher = (struct watcher){.loop = loop, .device = device};
            failed = pthread_create(&watcher->thread, NULL, watch, watcher);
            watcher->started = failed == 0;
        }
        error = error ? error : failed;
    }
    loop->unwatched = error != 0;
    return error;
}

/* Without the mutex, because a watcher needs it to end. */
static void end_watcher(struct watcher *watcher)
{
    watcher->device->ops->interrupt(watcher->device);
    pthread_join(watcher->thread, NULL);
    pthread_mutex_lock(&watcher->loop->mutex);
    watcher->started = false;
    unlock(watcher->loop);
}

/* After `stop` is set (LOOP-9). */
static void end_watchers(struct plx_loop *loop)
{
    for (unsigned i = 0; i < WATCHERS; i++)
        if (loop->watchers[i].started)
            end_watcher(&loop->watchers[i]);
}

static bool is_named(const struct plx_store *store, const struct plx_device *device)
{
    const struct plx_device *named = NULL;

    for (unsigned i = 0; (named = plx_store_any_device(store, i)) && named != device; i++)
        ;
    return named != NULL;
}

/* LOOP-9 */
void plx_loop_unwatch(struct plx_loop *loop)
{
    for (unsigned i = 0; i < WATCHERS; i++) {
        struct watcher *watcher = &loop->watchers[i];
        bool end;

        pthread_mutex_lock(&loop->mutex);
        end = loop->store && watcher->started && !is_named(loop->store, watcher->device);
        if (end)
            atomic_store(&watcher->end, true);
        give_up(loop);
        if (end)
            end_watcher(watcher);
    }
}

int plx_loop_watch(struct plx_loop *loop)
{
    return loop->store ? start_watchers(loop) : 0;
}

/* ---- The loop's own thread ------------------------------------------------------------------- */

/* How long the loop's own thread sleeps (LOOP-6, LOOP-7). more: work is left. */
static int timeout_after(struct plx_loop *loop, bool more)
{
    uint64_t now = now_ns(), due_ns, ms;

    if (more)
        return 0;
    ms = plx_store_busy(loop->store) ? BUSY_WAIT_MS : QUIET_WAIT_MS;
    if (impatient(loop, plx_store_under_way(loop->store)))
        ms = IMPATIENT_MS;
    due_ns = plx_store_due_ns(loop->store);
    if (due_ns < now + ms * NS_PER_MS)
        ms = due_ns > now ? plx_div_up(due_ns - now, NS_PER_MS) : 0;
    loop->sleeps_until_ns = now + ms * NS_PER_MS;
    loop->sleeps_long = ms > IMPATIENT_MS;
    return (int)ms;
}

static void *serve(void *argument)
{
    struct plx_loop *loop = argument;
    int timeout_ms = 0;

    pthread_setname_np(pthread_self(), "plx-loop");
    while (!atomic_load(&loop->stop)) {
        wait_for(loop->wake_fd, timeout_ms);
        pthread_mutex_lock(&loop->mutex);
        loop->sleeps_until_ns = 0;
        loop->sleeps_long = false;
        start_watchers(loop);
        timeout_ms = timeout_after(loop, make_turns(loop, TURNS_AT_ONCE));
        give_up(loop);
    }
    return NULL;
}

int plx_loop_start(struct plx_loop *loop, struct plx_store *store, struct plx_fault *fault)
{
    int error;

    pthread_mutex_lock(&loop->mutex);
    loop->store = store;
    atomic_store(&loop->stop, false);
    error = start_watchers(loop);
    if (error == 0) {
        error = pthread_create(&loop->server, NULL, serve, loop);
        loop->serving = error == 0;
    }
    unlock(loop);
    if (error == 0)
        return 0;
    plx_loop_stop(loop);
    return plx_fault_set(fault, PLX_ERR_SYSTEM, "cannot start the store's loop: %s",
                         strerror(error));
}

void plx_loop_stop(struct plx_loop *loop)
{
    pthread_mutex_lock(&loop->mutex);
    atomic_store(&loop->stop, true);
    unlock(loop);
    end_watchers(loop);
    if (loop->serving) {
        plx_loop_wake(loop);
        pthread_join(loop->server, NULL);
        loop->serving = false;
    }
    pthread_mutex_lock(&loop->mutex);
    PLX_ASSERT(!atomic_load(&loop->inbox));
    loop->store = NULL;
    unlock(loop);
}

/* ---- The thread for jobs that may block ----------------------------------------------------- */

static bool next_job(struct plx_loop *loop, struct loop_job *ret_job)
{
    bool got;

    pthread_mutex_lock(&loop->jobs_lock);
    while (loop->jobs_count == 0 && !loop->no_more_jobs)
        pthread_cond_wait(&loop->jobs_cond, &loop->jobs_lock);
    got = loop->jobs_count > 0;
    if (got) {
        *ret_job = loop->jobs[loop->jobs_first];
        loop->jobs_first = (loop->jobs_first + 1) % JOBS_MAX;
        loop->jobs_count--;
    }
    pthread_mutex_unlock(&loop->jobs_lock);
    return got;
}

static void *work_off(void *argument)
{
    struct plx_loop *loop = argument;
    struct loop_job job;

    pthread_setname_np(pthread_self(), "plx-worker");
    while (next_job(loop, &job)) {
        job.function(job.argument);
        eventfd_write(loop->job_done_fd, 1);
        plx_loop_wake(loop);
    }
    return NULL;
}

int plx_loop_defer(struct plx_loop *loop, void (*function)(void *argument), void *argument)
{
    int result = PLX_ERR_BUSY;

    pthread_mutex_lock(&loop->jobs_lock);
    if (loop->jobs_count < JOBS_MAX) {
        loop->jobs[(loop->jobs_first + loop->jobs_count) % JOBS_MAX] =
            (struct loop_job){function, argument};
        loop->jobs_count++;
        pthread_cond_signal(&loop->jobs_cond);
        result = 0;
    }
    pthread_mutex_unlock(&loop->jobs_lock);
    return result;
}

/* ---- Making and ending one ------------------------------------------------------------------ */

static void close_fds(struct plx_loop *loop)
{
    if (loop->wake_fd >= 0)
        close(loop->wake_fd);
    if (loop->job_done_fd >= 0)
        close(loop->job_done_fd);
}

int plx_loop_new(struct plx_loop **ret_loop, struct plx_fault *fault)
{
    struct plx_loop *loop = calloc(1, sizeof *loop);
    int error;

    if (!loop)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory for the store's loop");
    pthread_mutex_init(&loop->mutex, NULL);
    pthread_mutex_init(&loop->jobs_lock, NULL);
    pthread_cond_init(&loop->jobs_cond, NULL);
    loop->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    loop->job_done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (loop->wake_fd < 0 || loop->job_done_fd < 0)
        error = errno;
    else
        error = pthread_create(&loop->worker, NULL, work_off, loop);
    if (error) {
        close_fds(loop);
        free(loop);
        return plx_fault_set(fault, PLX_ERR_SYSTEM, "cannot set up the store's loop: %s",
                             strerror(error));
    }
    *ret_loop = loop;
    return 0;
}

void plx_loop_free(struct plx_loop *loop)
{
    if (!loop)
        return;
    PLX_ASSERT(!loop->store);
    pthread_mutex_lock(&loop->jobs_lock);
    loop->no_more_jobs = true;
    pthread_cond_signal(&loop->jobs_cond);
    pthread_mutex_unlock(&loop->jobs_lock);
    pthread_join(loop->worker, NULL);
    close_fds(loop);
    pthread_cond_destroy(&loop->jobs_cond);
    pthread_mutex_destroy(&loop->jobs_lock);
    pthread_mutex_destroy(&loop->mutex);
    free(loop);
}
