/* collector.c - see collector.h.
 *
 * COLLECTOR-1  A job holds attach_lock while it works, and gives it up many times a second. So a
 *     thread that opens, closes or changes a disk waits only until a few nodes are read.
 * COLLECTOR-2  The thread begins a collection by itself in two cases. The registry says that
 *     garbage was left (by a deleted disk, a crash, or history that now begins with a rewind), or
 *     that a collection was interrupted. Such a collection reads at GENTLE_RATE, so that it slows
 *     no request down.
 * COLLECTOR-3  If an automatic collection fails, operators are told once, and again only after one
 *     has succeeded. BUSY is told only after BUSY_TOLD failures in a row, because it mostly passes.
 *     A collection for want of space counts as an automatic one.
 * COLLECTOR-4  One job runs at a time, because a collection and a deduplication exclude each other
 *     (COLLECT-7).
 * COLLECTOR-5  While space is low, a collection that is due runs before any history is let go. A
 *     collection that has failed is due again only when the registry's reasons for one have
 *     changed since. Otherwise garbage that cannot be collected would keep writes waiting. BUSY is
 *     no failure in this sense, since it passes; SERVICE-9 says for how long.
 *
 * Lock order: attach_lock, then `lock`, which is held only for a moment.
 * Threads: the collector's own, except start, stop, ask, status and interrupt.
 */
#include "tcmu/collector.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "control/messages.h"
#include "registry/collections.h"
#include "tcmu/home.h"
#include "tcmu/runner.h"
#include "tcmu/say.h"

#define LOOK_S 60                 /* how often the thread asks the registry for work */
#define BUSY_TOLD 10u             /* failures in a row after which BUSY will not pass by itself */
#define GENTLE_RATE (32ull << 20) /* bytes a second */
#define PAUSE_NS 100000           /* long enough for a waiting thread to take attach_lock */

enum state {
    STATE_NONE,
    STATE_FIRST,  /* reading metadata */
    STATE_SECOND, /* sweeping, comparing */
    STATE_ENDED,
    STATE_FAILED,
};

static const char *const state_names[PLX_JOBS][5] = {
    [PLX_JOB_COLLECT] = {"none", "mark", "sweep", "ended", "failed"},
    [PLX_JOB_DEDUP] = {"none", "look", "compare", "ended", "failed"},
};

/* How a job stands, or how the last job of its kind ended. */
struct report {
    enum state state;
    uint64_t done, total;
    union {
        struct plx_collected collected;
        struct plx_attach_deduped deduped;
    } result;
    struct plx_fault fault;
};

struct plx_collector {
    struct plx_store_home *home;
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t cond;
    bool stop, interrupt;
    bool asked;         /* the thread has to run `job` */
    bool by_itself;     /* nobody asked for `job` */
    struct plx_job job; /* the job that is asked for or under way */
    struct report reports[PLX_JOBS];
    /* COLLECTOR-5: what the registry said after the last collection, if that failed. */
    bool failed;
    struct plx_registry_collection failed_as;
    /* The thread's own. */
    unsigned failures; /* in a row (COLLECTOR-3) */
    bool told;         /* operators were told of them */
};

/* ---- While a job is under way ---- */

static void on_progress(void *context, bool second, uint64_t done, uint64_t total)
{
    struct plx_collector *c = context;
    struct report *report = &c->reports[c->job.kind];

    pthread_mutex_lock(&c->lock);
    report->state = second ? STATE_SECOND : STATE_FIRST;
    report->done = done;
    report->total = total;
    pthread_mutex_unlock(&c->lock);
}

/* COLLECTOR-1 */
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

/* Whether a collection may free something (collections.h). */
static bool is_due(struct plx_collector *c, struct plx_registry_collection *ret_last)
{
    struct plx_registry_store row;
    bool due;

    pthread_mutex_lock(&c->home->attach_lock);
    plx_attach_row(c->home->attach, &row);
    due = plx_registry_collection_is_due(plx_attach_registry(c->home->attach), row.id, ret_last);
    pthread_mutex_unlock(&c->home->attach_lock);
    return due;
}

/* COLLECTOR-5. What was left to a collection while this one ran is not counted as tried. */
static void note_end(struct plx_collector *c, int error, uint64_t wanted)
{
    struct plx_registry_collection last = {0};
    bool failed = error && error != PLX_ERR_BUSY && is_due(c, &last);

    last.wanted = plx_min_u64(last.wanted, wanted);
    pthread_mutex_lock(&c->lock);
    c->failed = failed;
    c->failed_as = last;
    pthread_mutex_unlock(&c->lock);
}

static int run_job(struct plx_collector *c, struct plx_fault *ret_fault)
{
    const struct plx_attach_work work = {
        .dry_run = c->job.dry_run,
        .memory = c->job.memory,
        .rate = c->job.rate,
        .progress = on_progress,
        .pause = on_pause,
        .interrupted = on_interrupted,
        .context = c,
    };
    struct plx_attach *attach = c->home->attach;
    struct plx_registry_collection before = {0};
    struct report report = {0};
    int error;

    is_due(c, &before);
    pthread_mutex_lock(&c->home->attach_lock);
    error = c->job.kind == PLX_JOB_DEDUP
                ? plx_attach_dedup(attach, false, &work, &report.result.deduped, &report.fault)
                : plx_attach_collect(attach, &work, &report.result.collected, &report.fault);
    pthread_mutex_unlock(&c->home->attach_lock);
    if (c->job.kind == PLX_JOB_COLLECT && !c->job.dry_run)
        note_end(c, error, before.wanted);
    report.state = error ? STATE_FAILED : STATE_ENDED;
    *ret_fault = report.fault;
    pthread_mutex_lock(&c->lock);
    c->reports[c->job.kind] = report;
    pthread_mutex_unlock(&c->lock);
    return error;
}

/* ---- The thread ---- */

/* Enters a job as the one under way; false: there is one already (COLLECTOR-4). runs: the thread
 * has to run it. */
static bool begin(struct plx_collector *c, const struct plx_job *job, bool runs, bool by_itself)
{
    bool busy = false;

    pthread_mutex_lock(&c->lock);
    for (unsigned i = 0; i < PLX_JOBS; i++)
        busy = busy || c->reports[i].state == STATE_FIRST || c->reports[i].state == STATE_SECOND;
    if (!busy) {
        c->job = *job;
        c->asked = runs;
        c->by_itself = by_itself;
        c->interrupt = false;
        c->reports[job->kind] = (struct report){.state = STATE_FIRST};
        pthread_cond_signal(&c->cond);
    }
    pthread_mutex_unlock(&c->lock);
    return !busy;
}

/* Runs an automatic collection (COLLECTOR-3). */
static void collect_by_itself(struct plx_collector *c)
{
    struct plx_fault fault;
    int error = run_job(c, &fault);

    c->failures = error && !on_interrupted(c) ? c->failures + 1 : 0;
    c->told = c->told && error;
    if (c->failures && !c->told && (error != PLX_ERR_BUSY || c->failures >= BUSY_TOLD)) {
        plx_say(warn, NULL, "%s: garbage cannot be collected: %s; tried again every minute",
                c->home->name, fault.text);
        c->told = true;
    }
}

/* Waits until a job is asked for or LOOK_S have passed; false: the thread has to end. */
static bool wait_for_work(struct plx_collector *c, bool *ret_asked)
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
    c->asked = false;
    stop = c->stop;
    pthread_mutex_unlock(&c->lock);
    return !stop;
}

static void *serve(void *argument)
{
    const struct plx_job gentle = {.kind = PLX_JOB_COLLECT, .rate = GENTLE_RATE};
    struct plx_collector *c = argument;
    struct plx_registry_collection last;
    struct plx_fault fault; /* not used: the report has it, for those who asked */
    bool asked;

    pthread_setname_np(pthread_self(), "plx-collector");
    while (wait_for_work(c, &asked)) {
        if (asked && !c->by_itself)
            run_job(c, &fault);
        else if (asked || (is_due(c, &last) && begin(c, &gentle, false, true))) /* COLLECTOR-2 */
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

/* ---- Calls of other threads ---- */

int plx_collector_ask(struct plx_collector *c, const struct plx_job *job, struct plx_fault *fault)
{
    return begin(c, job, true, false)
               ? 0
               : plx_fault_set(fault, PLX_ERR_BUSY,
                               "%s: a collection or a deduplication is under way already",
                               c->home->name);
}

bool plx_collector_goes_first(struct plx_collector *c)
{
    const struct plx_job job = {.kind = PLX_JOB_COLLECT};
    struct plx_registry_collection last;
    bool tried;

    if (!is_due(c, &last))
        return false;
    pthread_mutex_lock(&c->lock);
    tried = c->failed && last.number == c->failed_as.number && last.wanted <= c->failed_as.wanted;
    pthread_mutex_unlock(&c->lock);
    if (!tried)
        begin(c, &job, true, true); /* unless a job is under way already, whose end is waited for */
    return !tried;
}

json_t *plx_collector_status(struct plx_collector *c, enum plx_job_kind kind)
{
    const struct report *report = &c->reports[kind];
    json_t *status;

    pthread_mutex_lock(&c->lock);
    status = plx_message_encode(kind == PLX_JOB_DEDUP ? plx_message_deduped : plx_message_collected,
                                &report->result);
    if (status)
        json_object_update_new(
            status, json_pack("{s:s,s:I,s:I}", "state", state_names[kind][report->state], "done",
                              (json_int_t)report->done, "total", (json_int_t)report->total));
    if (status && report->state == STATE_FAILED)
        json_object_update_new(status, json_pack("{s:s,s:s}", "error", report->fault.text, "code",
                                                 plx_error_name(report->fault.code)));
    pthread_mutex_unlock(&c->lock);
    return status;
}

void plx_collector_interrupt(struct plx_collector *c)
{
    pthread_mutex_lock(&c->lock);
    c->interrupt = true;
    pthread_mutex_unlock(&c->lock);
}
