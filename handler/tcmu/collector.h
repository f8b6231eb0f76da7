/* collector.h - the thread of an open store that collects garbage, when asked to, or by itself when
 * there is some; and deduplicates, when asked to.
 */
#ifndef PLX_COLLECTOR_H
#define PLX_COLLECTOR_H

#include <jansson.h>

#include "attach/attach.h"

struct plx_store_home;
struct plx_collector;

/* The home is open, and stays so until plx_collector_stop() has returned. */
int plx_collector_start(struct plx_store_home *home, struct plx_collector **ret_collector,
                        struct plx_fault *fault);
/* What is under way is given up; a later one goes on with it. Not with a lock of the home's held.
 * NULL is fine. */
void plx_collector_stop(struct plx_collector *collector);

enum plx_job_kind {
    PLX_JOB_COLLECT,
    PLX_JOB_DEDUP, /* of the disks that are open here */
    PLX_JOBS
};

struct plx_job {
    enum plx_job_kind kind;
    bool dry_run;
    uint64_t memory, rate; /* as plx_attach_collect() and plx_attach_dedup() have them */
};

/* Begins one. BUSY: one is under way. Returns at once, as the others do; any thread. */
int plx_collector_ask(struct plx_collector *collector, const struct plx_job *job,
                      struct plx_fault *fault);
/* The last one of a kind: {"state": "none", "ended", "failed" or, under way, "mark", "sweep"
 * (collecting), "look", "compare" (deduplicating), "done", "total", "error" and "code" if it
 * failed, and struct plx_collected or plx_attach_deduped by their names}. NULL: out of memory. */
json_t *plx_collector_status(struct plx_collector *collector, enum plx_job_kind kind);
/* The one under way is interrupted. */
void plx_collector_interrupt(struct plx_collector *collector);

#endif
