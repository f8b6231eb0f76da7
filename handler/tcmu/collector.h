/* collector.h - the thread of an open store that collects garbage and deduplicates.
 *
 * It collects when asked to, and by itself when there is garbage. It deduplicates only when asked
 * to. One job runs at a time.
 */
#ifndef PLX_COLLECTOR_H
#define PLX_COLLECTOR_H

#include <jansson.h>

#include "attach/attach.h"

struct plx_store_home;
struct plx_collector;

/* The home must be open, and stay open until plx_collector_stop() has returned. */
int plx_collector_start(struct plx_store_home *home, struct plx_collector **ret_collector,
                        struct plx_fault *fault);
/* Interrupts the job under way, which a later job goes on with, and ends the thread. With no lock
 * of the home held. NULL is fine. */
void plx_collector_stop(struct plx_collector *collector);

enum plx_job_kind {
    PLX_JOB_COLLECT,
    PLX_JOB_DEDUP, /* deduplicates the disks that are open in this process */
    PLX_JOBS
};

struct plx_job {
    enum plx_job_kind kind;
    bool dry_run;
    uint64_t memory, rate; /* as for plx_attach_collect() and plx_attach_dedup() */
};

/* The following calls may come from any thread and return soon. */

/* Begins a job. BUSY: one is under way. */
int plx_collector_ask(struct plx_collector *collector, const struct plx_job *job,
                      struct plx_fault *fault);
/* Space is low: true if garbage may be what takes it. A collection is under way then, or begins now
 * and at full speed. false: nothing was left to a collection since the last one, which has ended or
 * failed; history may give way. */
bool plx_collector_goes_first(struct plx_collector *collector);
/* How the last job of a kind stands, as a JSON object; NULL: out of memory.
 *
 *  key             value
 *  state           "none", "ended" or "failed"; under way "mark" or "sweep" (collecting), "look" or
 *                  "compare" (deduplicating)
 *  done, total     progress
 *  error, code     if it failed: the sentence and the error's name
 *  others          the fields of struct plx_collected, or of struct plx_attach_deduped
 */
json_t *plx_collector_status(struct plx_collector *collector, enum plx_job_kind kind);
/* Interrupts the job under way. */
void plx_collector_interrupt(struct plx_collector *collector);

#endif
