/* op.c - the life of an operation: taken for a request, active, finished. See op.h.
 *
 * OP-1  Each request completes exactly once. The first window that fails ends its operation, and
 *     with it the request.
 * OP-2  A request allocates no memory: a disk's operations are allocated when it is opened.
 * Loop: the disk's; never blocks.
 * Crash story: none; this is memory.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/disk/op.h"

#define EDGE_BYTES (2 * PLX_BLOCK_SIZE)
#define COMPARE_BLOCKS (PLX_COMPARE_MAX / PLX_BLOCK_SIZE + 1)

static void release_op(struct plx_op *op)
{
    op->next = op->vdi->free_ops;
    op->vdi->free_ops = op;
    op->vdi->free_op_count++;
}

/* Takes a free operation; the caller knows that there is one. Operations that were used before come
 * first, so memory of operations that were never needed is never touched. */
static struct plx_op *take_op(struct plx_vdi *vdi)
{
    struct plx_op *op = vdi->free_ops;

    PLX_ASSERT(vdi->free_op_count > 0);
    vdi->free_op_count--;
    if (op) {
        vdi->free_ops = op->next;
        return op;
    }
    op = &vdi->ops[vdi->ops_touched];
    op->vdi = vdi;
    op->edges = vdi->op_edges + (size_t)vdi->ops_touched++ * EDGE_BYTES;
    return op;
}

int plx_ops_init(struct plx_vdi *vdi)
{
    unsigned count = vdi->store->options.ops_per_vdi + PLX_OP_AHEAD + PLX_OP_OWN;

    /* OP-2 */
    vdi->ops = calloc(count, sizeof *vdi->ops);
    vdi->op_edges = aligned_alloc(PLX_BLOCK_SIZE, (size_t)count * EDGE_BYTES);
    vdi->compare_buffer = aligned_alloc(PLX_BLOCK_SIZE, COMPARE_BLOCKS * PLX_BLOCK_SIZE);
    if (!vdi->ops || !vdi->op_edges || !vdi->compare_buffer) {
        plx_ops_done(vdi);
        return PLX_ERR_NOMEM;
    }
    vdi->free_op_count = count;
    return 0;
}

void plx_ops_done(struct plx_vdi *vdi)
{
    free(vdi->ops);
    free(vdi->op_edges);
    free(vdi->compare_buffer);
}

static void activate(struct plx_op *op)
{
    struct plx_vdi *vdi = op->vdi;

    op->active = true;
    op->ticket = ++vdi->tickets;
    op->next = NULL;
    op->previous = vdi->newest;
    if (vdi->newest)
        vdi->newest->next = op;
    else
        vdi->oldest = op;
    vdi->newest = op;
}

static void deactivate(struct plx_op *op)
{
    struct plx_vdi *vdi = op->vdi;

    *(op->previous ? &op->previous->next : &vdi->oldest) = op->next;
    *(op->next ? &op->next->previous : &vdi->newest) = op->previous;
    op->active = false;
    plx_queue_wake(vdi->store, &vdi->ticket_waiters, 0);
}

/* Whether an operation uses addresses that it looked up. One that waits for its range, for room or
 * for a key frame looks up again afterwards. A key frame must not wait for such an operation, which
 * may be waiting for that key frame. */
static bool holds_addresses(const struct plx_op *op)
{
    return op->state != OP_LOCK && op->state != OP_RETRY && op->state != OP_ROOM &&
           op->state != OP_KEYFRAME;
}

bool plx_ops_ended_before(struct plx_vdi *vdi, uint64_t ticket, bool in_place_only,
                          struct plx_task *task)
{
    for (const struct plx_op *op = vdi->oldest; op && op->ticket < ticket; op = op->next) {
        if (&op->task == task || (in_place_only ? !op->in_place : !holds_addresses(op)))
            continue;
        vdi->log.patience_ns = 0; /* the operation may wait for a patient snapshot to be logged */
        plx_queue_push(&vdi->ticket_waiters, task);
        return false;
    }
    return true;
}

bool plx_vdi_idle(const struct plx_vdi *vdi)
{
    return !vdi->oldest && (!vdi->waiting || vdi->barrier) && plx_log_idle(&vdi->log) &&
           !vdi->keyframe.running && !vdi->keyframe.wanted && !vdi->log.spare_waiting;
}

void plx_vdi_set_unflushed(struct plx_vdi *vdi)
{
    if (!vdi->unflushed)
        vdi->flush_mark = plx_flush_mark(vdi->store);
    vdi->unflushed = true;
}

static void count_latency(struct plx_vdi *vdi, const struct plx_request *request)
{
    struct plx_store *store = vdi->store;
    uint64_t ns = store->env->monotonic_ns(store->env) - request->started_ns;
    unsigned bucket = 63 - (unsigned)__builtin_clzll(ns | 1); /* 0 ns counts as 1 ns */

    bucket = bucket < PLX_HISTOGRAM_BUCKETS ? bucket : PLX_HISTOGRAM_BUCKETS - 1;
    plx_op_counter(&vdi->counters, request->kind->latency)[bucket]++;
    plx_op_counter(&store->counters, request->kind->latency)[bucket]++;
}

void plx_op_complete(struct plx_vdi *vdi, struct plx_request *request, int result)
{
    request->result = result;
    if (request->kind->latency && request->urgency != PLX_CARRIED)
        count_latency(vdi, request);
    request->done(request);
}

void plx_op_in_cache_only(struct plx_vdi *vdi)
{
    plx_vdi_set_unflushed(vdi);
    vdi->cache_changes++;
}

void plx_op_finish(struct plx_op *op, int result)
{
    struct plx_vdi *vdi = op->vdi;
    struct plx_request *request = op->request;

    if (op->kind->end)
        op->kind->end(op, result);
    if (op->in_place && result) {
        vdi->vouch.doubt = true;
        plx_op_in_cache_only(vdi);
    }
    op->in_place = false;
    vdi->labels_ended += op->labels;
    op->labels = false;
    plx_op_release_compare(op);
    plx_op_unlock(op);
    deactivate(op);
    op->request = NULL;
    release_op(op);
    if (result && !request->fault.code)
        plx_vdi_fault(vdi, result, &request->fault);
    plx_op_complete(vdi, request, result); /* OP-1; its callback may submit a request at once */
}

/* Of one that stopped for want of room the fault has that as its code: there is something to be
 * done about it. */
int plx_vdi_fault(const struct plx_vdi *vdi, int error, struct plx_fault *fault)
{
    const char *name = vdi->record.name, *cause = plx_error_text(vdi->log.cause);
    bool full = plx_error_class(vdi->log.cause) == PLX_CLASS_NOSPACE;

    if (error != PLX_ERR_STICKY || !vdi->log.cause)
        return plx_fault_set(fault, error, "virtual disk %s: %s", name, plx_error_text(error));
    plx_fault_set(fault, full ? vdi->log.cause : error,
                  "virtual disk %s: stopped after its log could not be written: %s%s", name, cause,
                  strchr(cause, ';') ? ", then reopen the disk" : "; reopen it");
    return error;
}

int plx_op_fail_at(struct plx_op *op, int error, unsigned block, const char *what)
{
    return plx_fault_set(&op->request->fault, error,
                         "virtual disk %s, virtual block %llu, store block %llu: %s",
                         op->vdi->record.name, (unsigned long long)(op->first_block + block),
                         (unsigned long long)plx_addr_block(op->mappings[block].addr), what);
}

struct plx_op *plx_op_begin(struct plx_vdi *vdi, struct plx_request *request)
{
    struct plx_op *op = take_op(vdi);

    op->request = request;
    op->kind = request->kind;
    op->task.step = op->kind->step;
    op->state = OP_ALONE;
    op->data_skip = op->done_bytes = 0;
    op->in_place = op->locks = false;
    op->retries = op->room_waits = 0;
    op->compares = false;
    activate(op);
    return op;
}
