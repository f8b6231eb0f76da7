/* protect.c - continuous protection: the snapshots that a disk takes by itself. See protect.h.
 *
 *    mode       a snapshot is taken                     by
 *    OFF        never                                   -
 *    INTERVAL   when the interval has passed and        this file: one PLX_SNAPSHOT request of
 *               something has changed                   the engine's own at a time
 *    BATCH      behind the changes of each log batch    log.c: a SNAPSHOT record in that batch
 *    WRITE      behind each write, unmap or resize      log.c: a SNAPSHOT record behind its record
 *
 * PROTECT-1  An automatic snapshot is a SNAPSHOT record like that of a requested one: it has its
 *     place in the order of the log, and leaves no other trace. So whatever reads snapshots need
 *     not know who took them.
 * PROTECT-2  At most one snapshot of an interval is under way. Another one that falls due in that
 *     time, or that a late turn of the loop finds due, is taken as soon as the first has ended:
 *     less than an interval late. If yet another one falls due before that, the earlier one is
 *     skipped and counted, and an event reports it at most once a minute.
 * PROTECT-3  In modes BATCH and WRITE nothing is written in place. So what such a snapshot sees is
 *     whole as soon as its batch is durable, and the snapshot waits for no write. When such a mode
 *     is turned on, writes in place that are in flight end before the first of its snapshots.
 * PROTECT-4  No snapshot of an interval is taken when the store has no metadata blocks left beside
 *     the reserve (reserve.h): it ends as one that failed, and the next one is due an interval
 *     later. The reserve is left to requests that must go on when the store is full (INV-8).
 * PROTECT-5  Where nothing changes there is no record, no timer and no turn of the loop.
 * PROTECT-6  The record of an interval's snapshot waits for the next change and goes into its
 *     batch, so it costs no I/O of its own. It waits until the next snapshot is due, one second at
 *     most. Nothing is lost by that: until something is logged behind it, recovery finds just what
 *     the snapshot saw, for nothing that it sees is written in place any more.
 * PROTECT-7  Snapshots get their times, and are let go by time, by the rule of witness.c, which
 *     says when the wall clock is believed. The disk itself looks at the clocks each time, so no
 *     caller can let snapshots go past that rule.
 * PROTECT-8  While a disk is marked for a ring, all snapshots come through its front (FRONT-4). The
 *     log adds none by itself, and without the front none is taken. That is so as long as either
 *     slot of the record has the mark. For if that slot comes to count, what the ring still has
 *     must follow directly what the log has.
 * Loop: the disk's. plx_protect_last() and setting a policy are synchronous; nothing else blocks.
 * Crash story: the record on the store has the policy. A new one is in force after a crash only if
 *   the key frame that wrote it was durable. A policy that is only tried is never written. An
 *   automatic snapshot is in the log, or it was never taken. What was recovered and no snapshot saw
 *   is seen by the next one that is due, or by the last one when the disk is closed.
 */
#include "engine/disk/protect.h"

#include <string.h>

#include "engine/disk/vdi.h"

#define SECOND_NS 1000000000ull
#define TELL_NS (60 * SECOND_NS)

/* ---- The policy ---- */

static uint64_t monotonic(const struct plx_vdi *vdi)
{
    return vdi->store->env->monotonic_ns(vdi->store->env);
}

void plx_protect_start(struct plx_vdi *vdi, bool found_changes)
{
    struct plx_protect *p = &vdi->protect;

    p->changed = found_changes;
    p->changed_ns = p->due_ns = p->meter_ns = monotonic(vdi);
    plx_protect_apply_mode(vdi);
}

/* ---- Snapshots of an interval ---- */

static void count_skipped(struct plx_vdi *vdi, uint64_t count)
{
    vdi->counters.snapshots_skipped += count;
    vdi->store->counters.snapshots_skipped += count;
}

/* PROTECT-2: tells an operator at once the first time, then of all in a minute together. */
static void tell_left_out(struct plx_vdi *vdi, uint64_t now)
{
    struct plx_protect *p = &vdi->protect;

    if (p->told_ns && now - p->told_ns < TELL_NS)
        return;
    plx_store_event(vdi->store, 0,
                    "virtual disk %s: automatic snapshots were left out, %llu lately: its device "
                    "or this host is too busy for one every %llu us",
                    vdi->record.name, (unsigned long long)p->left_out,
                    (unsigned long long)(p->policy.interval_ns / 1000));
    p->told_ns = now;
    p->left_out = 0;
}

static void note_failed(struct plx_vdi *vdi)
{
    struct plx_protect *p = &vdi->protect;

    count_skipped(vdi, 1);
    if (vdi->log.sticky || plx_alloc_asks_for(vdi->store, PLX_EXTENT_META))
        return; /* a stopped disk was reported already; or an extent is on its way */
    if (!p->failing)
        plx_store_event(vdi->store, p->request.result,
                        "virtual disk %s: an automatic snapshot failed and is tried again: %s",
                        vdi->record.name, plx_error_text(p->request.result));
    p->failing = true;
}

/* PROTECT-2: of all snapshots that are due, leaves out all but the newest. Intervals without a
 * change count for nothing. */
static void leave_out(struct plx_vdi *vdi, uint64_t now)
{
    struct plx_protect *p = &vdi->protect;
    uint64_t missed;

    p->due_ns = plx_max_u64(p->due_ns, p->changed_ns);
    missed = (now - p->due_ns) / p->policy.interval_ns;
    if (!missed)
        return;
    p->due_ns += missed * p->policy.interval_ns;
    p->left_out += missed;
    count_skipped(vdi, missed);
    tell_left_out(vdi, now);
}

/* The snapshot has ended. If it was never ordered, a requested snapshot came first and saw
 * everything, or the disk has stopped. */
static void ended(struct plx_vdi *vdi)
{
    struct plx_protect *p = &vdi->protect;
    const struct plx_request *request = &p->request;

    p->under_way = false;
    if (request->result)
        note_failed(vdi);
    else
        p->failing = false;
    if (p->ordered)
        plx_protect_tell(vdi, request->result ? PLX_AUTOMATIC_DROPPED : PLX_AUTOMATIC_TAKEN,
                         request->result ? 0 : request->seq, request->time_ns);
}

static void interval_done(struct plx_request *request)
{
    ended(request->owner);
}

static void prepare(struct plx_vdi *vdi)
{
    struct plx_protect *p = &vdi->protect;

    p->request = (struct plx_request){.op = PLX_SNAPSHOT, .done = interval_done, .owner = vdi};
    p->under_way = true;
    p->ordered = false;
}

/* When the next snapshot is due; UINT64_MAX: none is. */
static inline uint64_t due_ns(const struct plx_vdi *vdi)
{
    const struct plx_protect *p = &vdi->protect;
    bool waits = p->policy.mode == PLX_PROTECT_INTERVAL && p->changed && !p->under_way &&
                 !vdi->closing && !vdi->barrier && !vdi->log.sticky && !plx_front_is_away(vdi);

    return waits ? p->due_ns : UINT64_MAX; /* PROTECT-5 */
}

uint64_t plx_protect_due_ns(const struct plx_vdi *vdi)
{
    return plx_log_has_patience(&vdi->log) ? plx_log_due_ns(&vdi->log) : due_ns(vdi);
}

void plx_protect_pump(struct plx_vdi *vdi)
{
    struct plx_protect *p = &vdi->protect;
    uint64_t due = due_ns(vdi), now;

    if (due == UINT64_MAX)
        return;
    now = monotonic(vdi);
    if (now < due)
        return;
    leave_out(vdi, now);
    p->due_ns += p->policy.interval_ns;
    prepare(vdi); /* PROTECT-1: a request like any other */
    p->request.patient = true;
    vdi->log.patience_ns = plx_min_u64(p->due_ns, now + SECOND_NS); /* PROTECT-6 */
    /* PROTECT-4 */
    p->request.result = plx_vdi_metadata_room(vdi, 0);
    if (p->request.result)
        ended(vdi);
    else
        plx_vdi_submit_own(vdi, &p->request);
}

static int run(struct plx_vdi *vdi, struct plx_request *request, struct plx_fault *fault)
{
    int error = plx_vdi_run(vdi, request);

    if (error && fault)
        *fault = request->fault;
    return error;
}

/* Takes a snapshot now and waits for it. Synchronous. */
static int take_now(struct plx_vdi *vdi, struct plx_fault *fault)
{
    struct plx_protect *p = &vdi->protect;
    int error;

    vdi->log.patience_ns = 0;
    while (p->under_way)
        if (!plx_store_tick(vdi->store) && p->under_way)
            plx_store_wait(vdi->store);
    prepare(vdi);
    error = run(vdi, &p->request, fault);
    ended(vdi);
    return error;
}

void plx_protect_last(struct plx_vdi *vdi)
{
    if (vdi->protect.policy.mode == PLX_PROTECT_INTERVAL && vdi->protect.changed &&
        !plx_front_is_away(vdi))
        take_now(vdi, NULL); /* if it fails, closing goes on with one snapshot less */
}

/* ---- Setting ---- */

/* PROTECT-3 */
static void wait_in_place_ended(struct plx_vdi *vdi)
{
    struct plx_waiter waiter = PLX_WAITER;
    uint64_t ticket = ++vdi->tickets;

    while (!plx_ops_ended_before(vdi, ticket, true, &waiter.task))
        plx_waiter_wait(vdi->store, &waiter);
}

/* Writes the policy into the record, with a key frame. */
static int write_policy(struct plx_vdi *vdi, struct plx_fault *fault)
{
    struct plx_request request = {.op = PLX_KEYFRAME};

    return run(vdi, &request, fault);
}

static int put_in_force(struct plx_vdi *vdi, const struct plx_protection *protection, bool keep,
                        struct plx_fault *fault)
{
    struct plx_protect *p = &vdi->protect;
    struct plx_protection old = p->policy, kept = p->kept;
    bool other = protection->mode != old.mode || protection->interval_ns != old.interval_ns;
    int error = plx_protection_check(protection, fault);

    if (error)
        return error;
    if (vdi->snapshot)
        return plx_fault_set(fault, PLX_ERR_READONLY, "a snapshot has no protection");
    p->policy = *protection;
    if (keep)
        p->kept = *protection;
    if (other) {
        vdi->log.snapshots = PLX_PROTECT_OFF;
        p->due_ns = monotonic(vdi) + protection->interval_ns;
        wait_in_place_ended(vdi);
        error = protection->mode == PLX_PROTECT_OFF ? 0 : take_now(vdi, fault);
        plx_protect_apply_mode(vdi);
    }
    if (!error && keep)
        error = write_policy(vdi, fault);
    if (error) {
        p->policy = old;
        p->kept = kept;
        wait_in_place_ended(vdi);
        plx_protect_apply_mode(vdi);
    }
    return error;
}

int plx_vdi_set_protection(struct plx_vdi *vdi, const struct plx_protection *protection,
                           struct plx_fault *fault)
{
    return put_in_force(vdi, protection, true, fault);
}

int plx_vdi_try_protection(struct plx_vdi *vdi, const struct plx_protection *protection,
                           struct plx_fault *fault)
{
    return put_in_force(vdi, protection, false, fault);
}
