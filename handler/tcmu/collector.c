/* collector.c - see collector.h.
 *
 * L1  attach_lock is held while a collection works and given up many times a second: whoever opens,
 *     closes or changes a disk waits for a few nodes to be read, no longer.
 * L2  By itself it begins when the registry says that something was left (a deleted disk, a crash,
 *     history that began anew after a rewind), or that one was broken off; and takes care not to be
 *     in anybody's way (GENTLE_RATE).
 * L3  What goes wrong by itself is told once, until one has gone well; that others are busy only
 *     when it does not end.
 * Lock order: attach_lock, then `lock`, which is held for a moment only.
 * Threads: the collector's own, but for start, stop, ask, status and interrupt.
 */
#include "tcmu/collector.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "registry/collections.h"
#include "tcmu/home.h"
#include "tcmu/runner.h"

#define LOOK_S 60
#define BUSY_TOLD 10u /* so often in a row: who is busy will not be ready by himself */
#define GENTLE_RATE (32ull << 20)
#define PAUSE_NS 100000 /* so that somebody who waits for the lock gets it */

enum state {
    STATE_NONE,
    STATE_MARK,
    STATE_SWEEP,
    STATE_ENDED,
    STATE_FAILED,
};

static const char *const state_names[] = {"none", "mark", "sweep", "ended", "failed"};

struct plx_collector {
    struct plx_store_home *home;
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t cond;
    bool stop, interrupt, asked;
    struct plx_attach_collect_options options; /* asked for */
    enum state state;
    uint64_t done, total;
    struct plx_collected result;
    struct plx_fault fault;
    /* The thread's own. */
    unsigned failures; /* one after the other */
    bool told;         /* operators know */
};

/* ---- While one is under way ---- */

static void on_progress(void *context, bool sweeping, uint64_t done, uint64_t total)
{
    struct plx_collector *c = context;

    pthread_mutex_lock(&c->lock);
    c->state = sweeping ? STATE_SWEEP : STATE_MARK;
    c->done = done;
    c->total = total;
    pthread_mutex_unlock(&c->lock);
}

/* L1 */
static void on_pause(void *context)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    struct plx_collector *c = context;

    pthread_mutex_unlock(&c->home->attach_lock);
    nanosleep(&pause, NULL);
    pthread_mutex_lock(&c->home->attach_lock);
}

static bool on_interrupted(void *context)
{
    struct plx_collector *c = context;
    bool interrupted;

    pthread_mutex_lock(&c->lock);
    interrupted = c->stop || c->interrupt;
    pthread_mutex_unlock(&c->lock);
    return interrupted;
}

static int collect(struct plx_collector *c, struct plx_attach_collect_options options)
{
    struct plx_collected result;
    struct plx_fault fault = {0};
    int error;

    options.progress = on_progress;
    options.pause = on_pause;
    options.interrupted = on_interrupted;
    options.context = c;
    on_progress(c, false, 0, 0);
    pthread_mutex_lock(&c->home->attach_lock);
    error = plx_attach_collect(c->home->attach, &options, &result, &fault);
    pthread_mutex_unlock(&c->home->attach_lock);
    pthread_mutex_lock(&c->lock);
    c->result = result;
    c->fault = fault;
    c->state = error ? STATE_FAILED : STATE_ENDED;
    pthread_mutex_unlock(&c->lock);
    return error;
}

/* ---- The thread ---- */

/* L2 */
static bool is_wanted(struct plx_collector *c)
{
    struct plx_registry_collection last;
    struct plx_registry_store row;
    struct plx_registry *registry;
    int error;

    pthread_mutex_lock(&c->home->attach_lock);
    registry = plx_attach_registry(c->home->attach);
    error = plx_registry_store_get(registry, c->home->name, &row);
    if (!error)
        error = plx_registry_collection_get(registry, row.id, &last);
    pthread_mutex_unlock(&c->home->attach_lock);
    return !error && (last.wanted || last.number % 2);
}

static void collect_by_itself(struct plx_collector *c)
{
    const struct plx_attach_collect_options gentle = {.rate = GENTLE_RATE};
    int error;

    if (!is_wanted(c))
        return;
    error = collect(c, gentle);
    c->failures = error && !on_interrupted(c) ? c->failures + 1 : 0;
    c->told = c->told && error;
    if (c->failures && !c->told && (error != PLX_ERR_BUSY || c->failures >= BUSY_TOLD)) {
        tcmu_warn("%s: garbage cannot be collected: %s; tried again every minute\n", c->home->name,
                  c->fault.text);
        c->told = true;
    }
}

/* Returns false when it is time to end. */
static bool wait_for_work(struct plx_collector *c, bool *ret_asked,
                          struct plx_attach_collect_options *ret_options)
{
    struct timespec due;
    int timeout = 0;
    bool stop;

    clock_gettime(CLOCK_MONOTONIC, &due);
    due.tv_sec += LOOK_S;
    pthread_mutex_lock(&c->lock);
    while (!c->stop && !c->asked && timeout == 0)
        timeout = pthread_cond_timedwait(&c->cond, &c->lock, &due);
    *ret_asked = c->asked;
    *ret_options = c->options;
    c->asked = c->interrupt = false;
    stop = c->stop;
    pthread_mutex_unlock(&c->lock);
    return !stop;
}

static void *serve(void *argument)
{
    struct plx_attach_collect_options options;
    struct plx_collector *c = argument;
    bool asked;

    pthread_setname_np(pthread_self(), "plx-collector");
    while (wait_for_work(c, &asked, &options)) {
        if (asked)
            collect(c, options);
        else
            collect_by_itself(c);
    }
    return NULL;
}

int plx_collector_start(struct plx_store_home *home, struct plx_collector **ret_collector,
                        struct plx_fault *fault)
{
    struct plx_collector *c = calloc(1, sizeof *c);
    pthread_condattr_t attributes;
    int error;

    if (!c)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    c->home = home;
    pthread_mutex_init(&c->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&c->cond, &attributes);
    pthread_condattr_destroy(&attributes);
    error = pthread_create(&c->thread, NULL, serve, c);
    if (!error) {
        *ret_collector = c;
        return 0;
    }
    pthread_cond_destroy(&c->cond);
    pthread_mutex_destroy(&c->lock);
    free(c);
    return plx_fault_set(fault, PLX_ERR_SYSTEM, "cannot start the collector: %s", strerror(error));
}

void plx_collector_stop(struct plx_collector *c)
{
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    c->stop = true;
    pthread_cond_signal(&c->cond);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
    pthread_cond_destroy(&c->cond);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

/* ---- What others ask for ---- */

int plx_collector_ask(struct plx_collector *c, bool dry_run, uint64_t memory, uint64_t rate,
                      struct plx_fault *fault)
{
    bool busy;

    pthread_mutex_lock(&c->lock);
    busy = c->asked || c->state == STATE_MARK || c->state == STATE_SWEEP;
    if (!busy) {
        c->options =
            (struct plx_attach_collect_options){.dry_run = dry_run, .memory = memory, .rate = rate};
        c->asked = true;
        c->state = STATE_MARK;
        c->done = c->total = 0;
        pthread_cond_signal(&c->cond);
    }
    pthread_mutex_unlock(&c->lock);
    return busy ? plx_fault_set(fault, PLX_ERR_BUSY, "%s: a collection is under way already",
                                c->home->name)
                : 0;
}

json_t *plx_collector_status(struct plx_collector *c)
{
    const struct plx_collected *r = &c->result;
    json_t *status;

    pthread_mutex_lock(&c->lock);
    status = json_pack(
        "{s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:b}", "state", state_names[c->state],
        "done", (json_int_t)c->done, "total", (json_int_t)c->total, "found", (json_int_t)r->found,
        "swept", (json_int_t)r->swept, "looked", (json_int_t)r->looked, "missed",
        (json_int_t)r->missed, "elsewhere", (json_int_t)r->elsewhere, "unreadable",
        (json_int_t)r->unreadable, "metadata_bytes", (json_int_t)r->metadata_bytes, "nanoseconds",
        (json_int_t)r->nanoseconds, "slices", (json_int_t)r->slices, "resumed", r->resumed);
    if (status && c->state == STATE_FAILED)
        json_object_update_new(status, json_pack("{s:s,s:s}", "error", c->fault.text, "code",
                                                 plx_error_name(c->fault.code)));
    pthread_mutex_unlock(&c->lock);
    return status;
}

void plx_collector_interrupt(struct plx_collector *c)
{
    pthread_mutex_lock(&c->lock);
    c->interrupt = true;
    pthread_mutex_unlock(&c->lock);
}
