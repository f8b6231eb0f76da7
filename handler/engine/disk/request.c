/* request.c - requests: offered to the disk's front, checked, counted, admitted when an operation
 * is free.
 *
 * A request (engine.h) is what a caller submits. It becomes an operation (op.h), of which a disk
 * has a fixed number; while none is free, requests wait here in a queue. Further invariants of the
 * data path are in window.c, issue.c, op.c, steps.c and lone.c.
 *
 * REQUEST-1  A write that finds no room may wait until history is let go (OP_ROOM). Whoever lets
 *     history go may itself wait for a request of this disk: for one that it makes, or for a lock
 *     whose holder waits for one. (In the handler a command holds luns_lock while its request runs,
 *     and the service takes luns_lock to let snapshots go.) So such a write never holds these up:
 *       the engine's own (PLX_OWN)    Synchronous calls and automatic snapshots have PLX_OP_OWN
 *                                     operations to themselves, and skip the queue.
 *       submitted ahead (PLX_AHEAD)   They have PLX_OP_AHEAD operations that no other request
 *                                     in the queue gets, and go to the queue's front.
 *       a move, share or vouch        If such a write has locked its range, it ends with NOSPACE at
 *                                     once instead of waiting. Contents stay as they are without
 *                                     it, so it can be tried again later.
 *       carried (PLX_CARRIED)         They go to the queue's head, one at a time (FRONT-3), for no
 *                                     other request changes the disk.
 * Loop: the disk's; never blocks, except plx_vdi_run(), which is synchronous.
 * Crash story: nothing is written here; log.c has it.
 */
#include "engine/disk/op.h"

static void count_request(struct plx_counters *counters, const struct plx_request *request)
{
    if (request->kind->requests)
        ++*plx_op_counter(counters, request->kind->requests);
    if (request->kind->bytes)
        *plx_op_counter(counters, request->kind->bytes) += request->length;
}

static inline int check_request(const struct plx_vdi *vdi, const struct plx_request *request)
{
    const struct plx_op_kind *kind = request->kind;

    if (kind->valid && !kind->valid(vdi, request))
        return PLX_ERR_INVALID;
    if (kind->within_disk &&
        (request->offset > vdi->size_bytes || request->length > vdi->size_bytes - request->offset))
        return PLX_ERR_RANGE;
    if (vdi->snapshot)
        return kind->of_snapshots ? 0 : PLX_ERR_READONLY;
    if (plx_front_is_away(vdi) && !kind->without_ring) /* FRONT-1 */
        return PLX_ERR_RING_AWAY;
    return kind->when_stopped ? 0 : vdi->log.sticky;
}

/* Begins a request. The caller knows that an operation is free. */
static void admit(struct plx_vdi *vdi, struct plx_request *request)
{
    struct plx_op *op = plx_op_begin(vdi, request);

    op->task.error = 0;
    op->kind->start(op);
}

/* REQUEST-1 */
static bool may_admit(const struct plx_vdi *vdi, enum plx_urgency urgency)
{
    unsigned kept = urgency == PLX_AHEAD ? PLX_OP_OWN : PLX_OP_AHEAD + PLX_OP_OWN;

    return urgency == PLX_OWN || (vdi->free_op_count > kept && !vdi->barrier);
}

static void enqueue(struct plx_vdi *vdi, struct plx_request *request)
{
    if (!vdi->waiting) {
        vdi->waiting = vdi->last_waiting = request;
    } else if (request->urgency != PLX_IN_TURN) {
        request->next = vdi->waiting;
        vdi->waiting = request;
    } else {
        vdi->last_waiting->next = request;
        vdi->last_waiting = request;
    }
}

/* Validates a carried request (FRONT-3, FRONT-4). Its contents come from a local device and are not
 * trusted. */
static int check_carried(const struct plx_vdi *vdi, const struct plx_request *request)
{
    uint64_t end = plx_div_up(vdi->size_bytes, PLX_BLOCK_SIZE) * PLX_BLOCK_SIZE;
    const struct plx_ring_position *carried = &request->carried;

    if (vdi->snapshot)
        return PLX_ERR_READONLY;
    if (!plx_store_allows_ring(vdi->store))
        return PLX_ERR_UNSUPPORTED;
    if (!carried->seq || carried->epoch < vdi->log.cursor.ring.epoch ||
        carried->epoch > vdi->record.epoch)
        return PLX_ERR_INVALID;
    if (request->op == PLX_SNAPSHOT)
        return request->seq == vdi->map.gen_submitted + 1 && request->time_ns <= PLX_TIME_MAX
                   ? vdi->log.sticky
                   : PLX_ERR_INVALID;
    if ((request->op != PLX_WRITE && request->op != PLX_UNMAP) || !request->length ||
        request->offset % PLX_BLOCK_SIZE || request->length % PLX_BLOCK_SIZE)
        return PLX_ERR_INVALID;
    if (request->offset > end || request->length > end - request->offset)
        return PLX_ERR_RANGE;
    return vdi->log.sticky;
}

void plx_front_complete(struct plx_vdi *vdi, struct plx_request *request, int result)
{
    if (result && !request->fault.code)
        plx_vdi_fault(vdi, result, &request->fault);
    plx_op_complete(vdi, request, result);
}

static inline void pass(struct plx_vdi *vdi, struct plx_request *request, int error)
{
    enum plx_urgency urgency = request->urgency;

    if (error)
        plx_front_complete(vdi, request, error);
    else if (!may_admit(vdi, urgency) || (urgency == PLX_IN_TURN && vdi->waiting))
        enqueue(vdi, request);
    else
        admit(vdi, request);
}

static void prepare(struct plx_vdi *vdi, struct plx_request *request, enum plx_urgency urgency)
{
    request->kind = &plx_op_kinds[request->op];
    request->started_ns = vdi->store->env->monotonic_ns(vdi->store->env);
    request->fault.code = 0;
    request->next = NULL;
    request->urgency = urgency;
    request->promised &= urgency == PLX_CARRIED;
}

static void submit(struct plx_vdi *vdi, struct plx_request *request, enum plx_urgency urgency)
{
    prepare(vdi, request, urgency);
    count_request(&vdi->counters, request);
    count_request(&vdi->store->counters, request);
    if (!vdi->front || !vdi->front->take(vdi->front, request))
        pass(vdi, request, check_request(vdi, request));
}

void plx_front_carry(struct plx_vdi *vdi, struct plx_request *request)
{
    prepare(vdi, request, PLX_CARRIED);
    pass(vdi, request, check_carried(vdi, request));
}

int plx_front_check(const struct plx_vdi *vdi, const struct plx_request *request)
{
    return check_request(vdi, request);
}

void plx_front_pass(struct plx_vdi *vdi, struct plx_request *request)
{
    if (!request->kind) /* it is the front's own */
        prepare(vdi, request, PLX_IN_TURN);
    pass(vdi, request, check_request(vdi, request));
}

void plx_vdi_submit(struct plx_vdi *vdi, struct plx_request *request)
{
    submit(vdi, request, PLX_IN_TURN);
}

void plx_vdi_submit_ahead(struct plx_vdi *vdi, struct plx_request *request)
{
    submit(vdi, request, PLX_AHEAD);
}

static void run_done(struct plx_request *request)
{
    *(bool *)request->owner = true;
}

void plx_vdi_submit_own(struct plx_vdi *vdi, struct plx_request *request)
{
    submit(vdi, request, PLX_OWN);
}

int plx_vdi_run(struct plx_vdi *vdi, struct plx_request *request)
{
    bool done = false;

    request->done = run_done;
    request->owner = &done;
    plx_vdi_submit_own(vdi, request);
    plx_store_run_until_true(vdi->store, &done);
    return request->result;
}

void plx_vdi_admit_waiting(struct plx_vdi *vdi)
{
    while (vdi->waiting && may_admit(vdi, vdi->waiting->urgency)) {
        struct plx_request *request = vdi->waiting;

        vdi->waiting = request->next;
        if (!vdi->waiting)
            vdi->last_waiting = NULL;
        request->next = NULL;
        admit(vdi, request);
    }
}
