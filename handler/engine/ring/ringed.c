/* ringed.c - a disk with a write-back ring: turned on and off, and its front. See ringed.h; the
 * other parts are in
 *
 *    ringed_open.c      opened with the disk's records on the ring, closed
 *    ringed_requests.c  what comes: taken, queued, put off
 *    ringed_append.c    becomes records, and is acknowledged
 *    ringed_index.c     which record has a block's newest contents
 *    ringed_read.c      reads through that
 *    ringed_records.c   records in order, in memory or read back
 *    ringed_drain.c     carried to the disk's log
 *    ringed_auto.c      turned on and off by how slow the store is
 *
 * How it is turned on and off, and what the store says in the meantime:
 *
 *    state     waits for                                    mark   changes     drains
 *  1 OFF       plx_ringed_turn()                            none   the disk's  -
 *  2 QUIET     changes that the disk was handed to end      none   wait        -
 *  3 FLUSH     these changes to be durable                  none   wait        -
 *  4 PROVE     the ring to have a new proof                 none   wait        -
 *  5 MARK      the record to name the ring, in both slots   either wait        -
 *  6 ON        plx_ringed_turn(), or the ring to stop       set    the ring's  yes
 *  7 SLOW      1 MiB to be left on the ring                 set    the ring's  yes
 *  8 EMPTY     the ring to be empty                         set    wait        yes
 *  9 UNMARK    the record to name no ring; then OFF         either wait        -
 *    STOPPED   the disk to be closed                        any    fail        -
 * A disk whose record has a mark already is opened in QUIET. It keeps that mark up to MARK, and
 * drains in PROVE if the ring has no room for the proof.
 *
 * RINGED-1  Nothing is acknowledged by the ring before the disk's record names the ring as it is
 *     now: its id, its set of members, and a proof that it has got just before (FRONT-2). That is
 *     so for a disk that had a mark when it was opened, too. So whenever the mark is set, all
 *     copies of the ring that were made before become old, and they are refused for good.
 * RINGED-2  A change is acknowledged when its records, and all before them, are durable on all
 *     members of the ring. If the disk has stopped by then, the change is not acknowledged: the
 *     ring may not be the one that counts any more.
 * RINGED-3  While the disk has a mark, its changes become records. A change that goes to the disk
 *     itself (RINGED_REQUESTS-3) does so when the store has all records, and no new record is made
 *     until that change has ended. Whenever the mark is set or removed, there is an instant at
 *     which no change is in progress, in the ring or in the disk. So all changes have one order:
 *     those from before the mark, the records and the changes between them, and those from after
 *     it.
 * RINGED-4  The mark goes only when the store has all that was acknowledged. If the ring stops,
 *     three steps lead there:
 *     1. The acknowledged records are drained from memory, or from the ring where it can be read.
 *     2. The mark is removed. The same key frame raises the position to the disk's epoch and the
 *        last number given. The ring may still have records that it never acknowledged, and records
 *        of an earlier epoch that lie behind a hole. With the raised position neither counts as
 *        newer than the store (RINGED-10).
 *     3. Requests that the ring has not acknowledged are passed to the disk as ordinary requests.
 *     While there is a mark, the position is not raised over these requests. With a position beyond
 *     the ring's last record, the ring would look like an older copy of itself (SCAN_JUDGE-5).
 * RINGED-5  The store has the newest contents of every block that is not in the index.
 * RINGED-6  Within an epoch of the disk the numbers of its records go on. So a chain stays open
 *     while its disk is, whether the ring is on or off. Otherwise the ring forgets the disk
 *     (plx_ring_forget()) before the disk has another chain: what is left of the first chain would
 *     look like the second one.
 * RINGED-7  All records that the ring has behind the store's position are taken, in order, or the
 *     disk is not opened with the ring. They have to fit: number follows number, snapshot follows
 *     snapshot, and all blocks lie within the disk.
 * RINGED-8  `since` in the mark is the epoch in which the disk got its mark. It stays when the disk
 *     is opened again. So the mark claims all records from that epoch up to that of its proof.
 * RINGED-9  A request that waits for the mark to be removed does not wait for ever. When writing
 *     the record has failed ATTEMPTS_MAX times, the request fails, as it would without a ring. The
 *     ring goes on trying to remove the mark.
 * RINGED-10  A disk without a mark does not use a ring that has records of it which are newer than
 *     its position. Either they were given up while the ring was away. Or the store was put back to
 *     an older state, and the newer store needs them. They stay as they are until the operator
 *     discards them, or the disk has used another ring, which gives it a newer position.
 * RINGED-11  Draining that somebody waits for may be interrupted, but not while the mark is being
 *     removed: that is one write, and the ring is to forget the disk behind it (RINGED-6).
 * Loop: the store's; a disk's turn never blocks. Calls of ringed.h are synchronous.
 * Crash story: what was acknowledged is on the ring, and the store says so. The store has a prefix
 *   of it. In state OFF, and until the mark is durable, the store has everything. A crash while the
 *   mark goes leaves it or not: the store has everything, too.
 */
#include "engine/ring/ringed_inside.h"

#define RETRY_NS 100000000ull
#define ATTEMPTS_MAX 10u /* in vain, before a synchronous call gives up */

static const struct plx_ring_mark no_mark;

static struct plx_ringed *ringed_of(const struct plx_front *front)
{
    return PLX_CONTAINER((uintptr_t)front, struct plx_ringed, front);
}

/* ---- Turning on and off ---- */

static void task_step(struct plx_task *task)
{
    struct plx_ringed *ringed = PLX_CONTAINER(task, struct plx_ringed, task);

    ringed->waits = false;
    ringed->error = task->error;
}

static void flush_done(struct plx_request *request)
{
    struct plx_ringed *ringed = request->owner;

    ringed->waits = false;
    ringed->error = request->result;
}

static void go(struct plx_ringed *ringed, enum plx_ringed_state state)
{
    ringed->state = state;
    ringed->retry_ns = 0;
}

static void write_mark(struct plx_ringed *ringed, const struct plx_ring_mark *mark)
{
    PLX_ASSERT(!ringed->waits);
    ringed->waits = true;
    ringed->retry_ns = 0;
    plx_front_mark(ringed->vdi, mark, &ringed->task);
}

static void begin_on(struct plx_ringed *ringed)
{
    plx_front_set(ringed->vdi, &ringed->front);
    ringed->turn_error = 0;
    ringed->batch_changed = false; /* else a snapshot might come before the mark (CHAIN-7) */
    go(ringed, PLX_RINGED_QUIET);
}

static void begin_flush(struct plx_ringed *ringed)
{
    ringed->flush = (struct plx_request){.op = PLX_FLUSH, .done = flush_done, .owner = ringed};
    go(ringed, PLX_RINGED_FLUSH);
    PLX_ASSERT(!ringed->waits);
    ringed->waits = true;
    plx_front_pass(ringed->vdi, &ringed->flush);
}

static void begin_mark(struct plx_ringed *ringed, uint64_t proof)
{
    const struct plx_vdi *vdi = ringed->vdi;
    const struct plx_ring_info info = plx_ringed_ring_info(ringed->host);

    ringed->mark = (struct plx_ring_mark){
        .ring = info.super.ring,
        .set = info.super.set,
        .proof = proof,
        .since = plx_ringed_is_marked(vdi) ? vdi->mark.since : vdi->record.epoch, /* RINGED-8 */
    };
    go(ringed, PLX_RINGED_MARK);
    write_mark(ringed, &ringed->mark); /* RINGED-1 */
}

static void end_on(struct plx_ringed *ringed)
{
    plx_ring_chain_marked(ringed->chain, &ringed->mark);
    if (ringed->drain.drained_seq == ringed->last_seq) /* a record may stay for a reader */
        ringed->front.snapshots = ringed->vdi->map.gen_submitted;
    ringed->batch_changed = false;
    go(ringed, PLX_RINGED_ON);
}

static void end_off(struct plx_ringed *ringed)
{
    bool anew = ringed->anew && ringed->wanted;

    ringed->wanted = ringed->anew = false;
    ringed->unmarkings = 0;
    plx_front_set(ringed->vdi, NULL);
    go(ringed, PLX_RINGED_OFF);
    plx_ringed_records_sweep(ringed);
    plx_ring_chain_marked(ringed->chain, &no_mark);
    plx_ringed_requests_pass(ringed);
    if (anew)
        plx_ringed_want(ringed, true);
}

/* It could not be turned on. */
static void give_up_on(struct plx_ringed *ringed, int error)
{
    ringed->turn_error = error;
    ringed->wanted = false;
    if (plx_ringed_is_marked(ringed->vdi))
        go(ringed, PLX_RINGED_EMPTY); /* perhaps a key frame has written the mark */
    else
        end_off(ringed);
}

static void begin_slow(struct plx_ringed *ringed)
{
    go(ringed, PLX_RINGED_SLOW);
    plx_ringed_pace(ringed);
}

/* RINGED-4 */
static void begin_unmark(struct plx_ringed *ringed)
{
    if (ringed->last_seq != ringed->done_seq) { /* a snapshot among them has not been taken */
        plx_ringed_records_cut(ringed, ringed->done_seq);
        plx_protect_note_change(ringed->vdi);
    }
    if (ringed->last_seq) /* a position without a number is none */
        plx_front_skip(ringed->vdi, ringed->last_seq);
    go(ringed, PLX_RINGED_UNMARK);
    ringed->unmarkings = 0;
    write_mark(ringed, &no_mark);
}

static void step_unmark(struct plx_ringed *ringed)
{
    if (ringed->retry_ns && plx_ringed_now(ringed) >= ringed->retry_ns) {
        write_mark(ringed, &no_mark);
        return;
    }
    if (ringed->waits || ringed->retry_ns)
        return;
    if (!ringed->error) {
        end_off(ringed);
    } else {
        if (++ringed->unmarkings >= ATTEMPTS_MAX) /* RINGED-9 */
            plx_ringed_requests_fail(ringed, ringed->error);
        ringed->retry_ns = plx_ringed_now(ringed) + RETRY_NS;
    }
}

static void step_mark(struct plx_ringed *ringed)
{
    if (ringed->waits)
        return;
    if (!ringed->error)
        end_on(ringed);
    else
        give_up_on(ringed, ringed->error);
}

static bool ring_has_stopped(const struct plx_ringed *ringed)
{
    return plx_ring_sticky(ringed->host->ring) != 0;
}

static void step_quiet(struct plx_ringed *ringed)
{
    const struct plx_front_load load = plx_front_load(ringed->vdi);

    if (ring_has_stopped(ringed))
        give_up_on(ringed, PLX_ERR_STICKY);
    else if (load.waits_for_history && !plx_ringed_is_marked(ringed->vdi)) /* RINGED_REQUESTS-5 */
        give_up_on(ringed, PLX_ERR_NOSPACE);
    else if (!load.changes) /* RINGED-3 */
        begin_flush(ringed);
}

static void step_flush(struct plx_ringed *ringed)
{
    if (ringed->waits)
        return;
    if (ringed->error || ring_has_stopped(ringed))
        give_up_on(ringed, ringed->error ? ringed->error : PLX_ERR_STICKY);
    else {
        plx_ring_chain_prove(ringed->chain);
        go(ringed, PLX_RINGED_PROVE);
    }
}

/* A full ring has no room for a proof. What the disk has there is drained under the mark that it
 * has, until there is some. If all is drained, but for the segment that the mark itself keeps, the
 * mark goes, and the ring is turned on anew. */
static void step_prove(struct plx_ringed *ringed)
{
    bool marked = plx_ringed_is_marked(ringed->vdi);
    struct plx_ring_chain_info info;

    plx_ring_chain_get_info(ringed->chain, &info);
    if (ring_has_stopped(ringed)) {
        give_up_on(ringed, PLX_ERR_STICKY);
    } else if (info.proof) {
        begin_mark(ringed, info.proof);
    } else if (info.full && (!marked || !ringed->wanted)) {
        give_up_on(ringed, ringed->wanted ? PLX_ERR_NOSPACE : 0);
    } else if (info.full && plx_ringed_is_drained(ringed) &&
               ringed->released_seq == ringed->done_seq) {
        ringed->anew = true;
        begin_unmark(ringed);
    }
}

/* The disk has stopped. What waits for ring or store fails when nothing of it is under way. */
static void step_stopped(struct plx_ringed *ringed)
{
    go(ringed, PLX_RINGED_STOPPED);
    ringed->stirred = true;
    plx_ring_cancel(ringed->chain, ringed->vdi->log.sticky);
    if (!ringed->drain.flight)
        plx_ringed_answers_fail(ringed, ringed->vdi->log.sticky);
}

static void step(struct plx_ringed *ringed)
{
    if (ringed->vdi->log.sticky) {
        step_stopped(ringed);
        return;
    }
    switch (ringed->state) {
    case PLX_RINGED_QUIET:
        step_quiet(ringed);
        break;
    case PLX_RINGED_FLUSH:
        step_flush(ringed);
        break;
    case PLX_RINGED_PROVE:
        step_prove(ringed);
        break;
    case PLX_RINGED_MARK:
        step_mark(ringed);
        break;
    case PLX_RINGED_ON:
        if (ring_has_stopped(ringed))
            go(ringed, PLX_RINGED_EMPTY);
        else if (!ringed->wanted)
            begin_slow(ringed);
        break;
    case PLX_RINGED_SLOW:
        if (ringed->wanted)
            go(ringed, PLX_RINGED_ON);
        else if (ring_has_stopped(ringed) || ringed->drain.bytes_left <= PLX_RINGED_LAST_BYTES)
            go(ringed, PLX_RINGED_EMPTY);
        break;
    case PLX_RINGED_EMPTY:
        if (ringed->wanted && !ring_has_stopped(ringed) && !ringed->directing)
            go(ringed, PLX_RINGED_QUIET); /* RINGED-1: the mark may not have been written */
        else if (!ringed->remarking && plx_ringed_requests_rest(ringed) &&
                 plx_ringed_is_drained(ringed))
            begin_unmark(ringed);
        break;
    case PLX_RINGED_UNMARK:
        step_unmark(ringed);
        break;
    default:
        break;
    }
}

bool plx_ringed_is_proven(const struct plx_ringed *ringed)
{
    struct plx_ring_chain_info info;

    if (ringed->state != PLX_RINGED_PROVE)
        return false;
    plx_ring_chain_get_info(ringed->chain, &info);
    return info.proof || (info.full && !plx_ringed_is_marked(ringed->vdi));
}

/* ---- The ring's set changes: a member was lost ---- */

static void remark_step(struct plx_task *task)
{
    struct plx_ringed *ringed = PLX_CONTAINER(task, struct plx_ringed, remark);

    ringed->remarking = false;
    if (!task->error)
        plx_ring_chain_marked(ringed->chain, &ringed->mark);
    else
        ringed->remark_ns = plx_ringed_now(ringed) + RETRY_NS;
}

/* RINGED-1 */
static void look_at_set(struct plx_ringed *ringed)
{
    struct plx_ring_chain_info info;

    if (ringed->state < PLX_RINGED_ON || ringed->state > PLX_RINGED_EMPTY || ringed->remarking)
        return;
    plx_ring_chain_get_info(ringed->chain, &info);
    if (!info.unmarked || !info.proof || info.proof != ringed->mark.proof ||
        ring_has_stopped(ringed) || ringed->vdi->log.sticky ||
        (ringed->remark_ns && plx_ringed_now(ringed) < ringed->remark_ns))
        return;
    ringed->remark_ns = 0;
    ringed->remarking = true;
    ringed->mark.set = plx_ringed_ring_info(ringed->host).super.set;
    plx_front_mark(ringed->vdi, &ringed->mark, &ringed->remark);
}

/* ---- The front ---- */

static bool drains(const struct plx_ringed *ringed)
{
    return (ringed->state == PLX_RINGED_PROVE ||
            (ringed->state >= PLX_RINGED_ON && ringed->state <= PLX_RINGED_EMPTY)) &&
           !ringed->closing;
}

static void front_pump(struct plx_front *front)
{
    struct plx_ringed *ringed = ringed_of(front);

    plx_ringed_requests_pump(ringed);
    step(ringed);
    if (ringed->state == PLX_RINGED_OFF)
        return;
    look_at_set(ringed);
    if (ringed->state == PLX_RINGED_ON) /* RINGED_APPEND-5: while the SAN is gone no extent comes */
        plx_alloc_spare(ringed->vdi->store, PLX_EXTENT_DATA, ringed->host->spare_blocks);
    if (drains(ringed))
        plx_ringed_drain_pump(ringed);
    plx_ringed_calls_fail(ringed);
    plx_ringed_records_sweep(ringed);
}

static uint64_t front_last(const struct plx_front *front)
{
    return ringed_of(front)->done_seq;
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return b && b < a ? b : a;
}

static uint64_t front_due_ns(const struct plx_front *front)
{
    const struct plx_ringed *ringed = ringed_of(front);
    uint64_t due_ns = sooner(UINT64_MAX, ringed->retry_ns);

    due_ns = sooner(due_ns, ringed->remark_ns);
    if (drains(ringed))
        due_ns = sooner(due_ns, ringed->drain.resume_ns);
    if (ringed->scarce && (ringed->waiting || ringed->direct) &&
        plx_ringed_stalled_ns(ringed) > plx_ringed_now(ringed))
        due_ns = sooner(due_ns, plx_ringed_stalled_ns(ringed));
    return ringed->no_memory || ringed->state == PLX_RINGED_PROVE
               ? plx_min_u64(due_ns, plx_ringed_now(ringed) + RETRY_NS)
               : due_ns;
}

static bool front_covers(const struct plx_front *front, uint64_t block, uint64_t *ret_end,
                         bool *ret_mapped)
{
    const struct plx_ringed_range *range = plx_ringed_index_find(&ringed_of(front)->index, block);
    bool covered = range && range->block <= block;

    *ret_mapped = covered && range->record->type == PLX_RING_WRITE;
    *ret_end = covered ? range->end : range ? range->block : UINT64_MAX;
    return covered;
}

/* ---- Asked from outside ---- */

void plx_ringed_run(struct plx_ringed *ringed)
{
    struct plx_store *store = ringed->vdi->store;

    if (!plx_store_tick(store))
        plx_store_wait(store);
}

void plx_ringed_front_init(struct plx_ringed *ringed)
{
    ringed->front = (struct plx_front){.take = plx_ringed_take,
                                       .pump = front_pump,
                                       .last = front_last,
                                       .due_ns = front_due_ns,
                                       .covers = front_covers,
                                       .snapshots = ringed->vdi->map.gen_submitted};
    ringed->task.step = task_step;
    ringed->remark.step = remark_step;
}

void plx_ringed_want(struct plx_ringed *ringed, bool on)
{
    ringed->wanted = on;
    if (on && ringed->state == PLX_RINGED_OFF)
        begin_on(ringed);
}

void plx_ringed_turn(struct plx_ringed *ringed, bool on)
{
    ringed->automatic.on = false;
    plx_ringed_want(ringed, on);
}

/* A synchronous call ends when nothing can go on without its caller: who waits may keep others from
 * making room. What was begun goes on with the loop's turns. */
static int why_in_vain(const struct plx_ringed *ringed)
{
    if (ringed->drain.attempts >= ATTEMPTS_MAX)
        return ringed->drain.error;
    if (ringed->full && ringed->drain.asked_in_vain >= ATTEMPTS_MAX)
        return ringed->vdi->keyframe.error;
    if (plx_front_load(ringed->vdi).waits_for_history) /* RINGED_REQUESTS-5 */
        return PLX_ERR_NOSPACE;
    return ringed->unmarkings >= ATTEMPTS_MAX ? ringed->error : 0;
}

int plx_ringed_on(struct plx_ringed *ringed, struct plx_fault *fault)
{
    int error = 0;

    plx_ringed_turn(ringed, true);
    while (ringed->wanted && ringed->state != PLX_RINGED_ON &&
           ringed->state != PLX_RINGED_STOPPED && !error) {
        plx_ringed_run(ringed);
        error = why_in_vain(ringed);
    }
    while (!error && ringed->state == PLX_RINGED_ON &&
           !plx_alloc_may_promise(
               ringed->vdi->store,
               plx_min_u64(ringed->host->spare_blocks, ringed->vdi->store->info.extent_blocks / 4)))
        plx_ringed_run(ringed); /* for some of it; the rest comes meanwhile */
    if (!error && ringed->state != PLX_RINGED_ON)
        error = ringed->turn_error ? ringed->turn_error : ringed->vdi->log.sticky;
    return error ? plx_vdi_fault(ringed->vdi, error, fault) : 0;
}

/* RINGED-11 */
static bool is_interrupted(const struct plx_ringed *ringed, const struct plx_ringed_watch *watch)
{
    return ringed->state != PLX_RINGED_UNMARK && watch->interrupted &&
           watch->interrupted(watch->context, ringed->drain.bytes_left);
}

int plx_ringed_off_watched(struct plx_ringed *ringed, const struct plx_ringed_watch *watch,
                           struct plx_fault *fault)
{
    bool interrupted = false;
    int error = 0;

    plx_ringed_turn(ringed, false);
    while (!error && ringed->state != PLX_RINGED_OFF) {
        interrupted = is_interrupted(ringed, watch);
        if (interrupted)
            break;
        plx_ringed_run(ringed);
        error = ringed->state == PLX_RINGED_STOPPED ? ringed->vdi->log.sticky : why_in_vain(ringed);
    }
    ringed->wanted = interrupted || error; /* it goes on as before */
    if (interrupted)
        return plx_fault_set(fault, PLX_ERR_BUSY, "interrupted");
    return error ? plx_vdi_fault(ringed->vdi, error, fault) : 0;
}

int plx_ringed_off(struct plx_ringed *ringed, struct plx_fault *fault)
{
    return plx_ringed_off_watched(ringed, &(struct plx_ringed_watch){NULL, NULL}, fault);
}

void plx_ringed_get_info(const struct plx_ringed *ringed, struct plx_ringed_info *ret_info)
{
    const struct plx_ringed_drain *drain = &ringed->drain;

    *ret_info = (struct plx_ringed_info){
        .on = ringed->state == PLX_RINGED_ON,
        .turning = ringed->state != PLX_RINGED_OFF && ringed->state != PLX_RINGED_ON &&
                   ringed->state != PLX_RINGED_STOPPED,
        .records = drain->records_left,
        .bytes = drain->bytes_left,
        .automatic = ringed->automatic.on,
        .waited_ns = drain->records_left ? plx_ringed_now(ringed) - ringed->oldest_ns : 0,
        .memory = ringed->memory,
        .drained_bytes = drain->bytes,
        .full = ringed->full,
        .waits_for = drain->error,
    };
}

void plx_ringed_set_memory(struct plx_ringed *ringed, uint64_t bytes)
{
    ringed->memory_limit = bytes;
}
