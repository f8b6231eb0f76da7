/* request.c - the data path: reads, writes, unmaps, snapshots and the rest, one state machine.
 *
 * Q1  Writes and unmaps of overlapping blocks run one after the other, in the order they came.
 * Q2  A block is overwritten in place only if it is writable for the generation that the write
 *     belongs to, checked in the same step that submits the write (INV-3), and only once the
 *     record that voids its checksum is durable.
 * Q3  A blind write (to an absent or shared block) reads no metadata that is not in memory.
 * Q4  A read whose checksum does not match is corrupt only if the mapping is still the same: a
 *     write in place may have overtaken it.
 * Q5  A request completes exactly once; a failed window ends it.
 * Q6  Nothing is allocated here: operations exist since the VDI was opened.
 * Q7  A move gives blocks another place and never other contents: it reads, checks and logs under
 *     the range lock of a write. What a snapshot has come to see in between stays where it is. It
 *     takes no room that writes wait for. So does a share, block by block (share.c).
 *     A vouch (vouch.c) reads under that lock, too, perhaps writes the same again, and changes
 *     nothing but what is known.
 * Q8  Writes that wait for history to give way hold nobody up who may have to do with that: what
 *     the engine asks of itself (a synchronous call, an automatic snapshot) and what somebody waits
 *     for ahead of initiators have operations of their own, and a move or a share does not wait
 *     for such a write's range.
 * Q9  A snapshot is acknowledged when all that it sees is durable. What is being written in place
 *     when it is ordered counts as data of its log item, so the flush of its batch covers that too.
 * Loop: the VDI's. Crash story: log.c has it; a write in place is torn at most where it was
 *   never acknowledged.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/disk/move.h"
#include "engine/disk/reserve.h"
#include "engine/disk/share.h"

/* Q8 */
#define OWN_OPS 2u /* a synchronous call and an automatic snapshot, at most one of each */
#define AHEAD_OPS 2u
#define RUN_BLOCKS 256u /* allocated at once per VDI: about 1 MiB */
#define EDGE_LEAVES 2u  /* of a run: those at its ends keep other blocks */
#define READ_RETRIES 16u
#define MOVE_RETRIES 256u
#define EDGE_BYTES (2 * PLX_BLOCK_SIZE)
#define COMPARE_BLOCKS (PLX_COMPARE_MAX / PLX_BLOCK_SIZE + 1)

enum {
    OP_WINDOW, /* lay out the next window */
    OP_LOCK,
    OP_LOOKUP,
    OP_READ, /* a read window's blocks, or old contents that a write needs */
    OP_VOIDED,
    OP_VOID_WAIT,
    OP_ISSUE,
    OP_WRITTEN, /* data in place has completed */
    OP_LOGGED,
    OP_DURABLE,
    OP_RETRY, /* space may have become free: look again */
    OP_ROOM,  /* the same, when history has given way */
    OP_SNAPSHOT_LOGGED,
    OP_SNAPSHOT_WAIT, /* nothing has changed since the last one */
    OP_ITEM,          /* a lone log record */
    OP_FLUSHED,
    OP_KEYFRAME,
};

static void op_step(struct plx_task *task);
static void op_run(struct plx_op *op);

/* ---- Operations ---- */

static void release_op(struct plx_op *op)
{
    op->next = op->vdi->free_ops;
    op->vdi->free_ops = op;
    op->vdi->free_op_count++;
}

/* There is one. What no load ever was deep enough to need is never touched: it takes no memory. */
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
    op->task.step = op_step;
    op->edges = vdi->op_edges + (size_t)vdi->ops_touched++ * EDGE_BYTES;
    return op;
}

int plx_ops_init(struct plx_vdi *vdi)
{
    unsigned count = vdi->store->options.ops_per_vdi + AHEAD_OPS + OWN_OPS;

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

static void wake_all(struct plx_store *store, struct plx_queue *queue)
{
    struct plx_task *task;

    while ((task = plx_queue_pop(queue)) != NULL)
        plx_task_ready(store, task);
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
    wake_all(vdi->store, &vdi->ticket_waiters);
}

/* Whether an operation goes by addresses that it looked up. One that waits for its turn, for space
 * or for a key frame looks up again afterwards; a key frame must not wait for it. */
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
        vdi->log.patience_ns = 0; /* it may be for the snapshot that shares its I/O */
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

/* ---- Latency and counters ---- */

static void count_latency(struct plx_store *store, uint64_t *histogram, uint64_t *other,
                          uint64_t started_ns)
{
    uint64_t ns = store->env->monotonic_ns(store->env) - started_ns;
    unsigned bucket = 63 - (unsigned)__builtin_clzll(ns | 1); /* that of 0 is that of 1 */

    bucket = bucket < PLX_HISTOGRAM_BUCKETS ? bucket : PLX_HISTOGRAM_BUCKETS - 1;
    histogram[bucket]++;
    other[bucket]++;
}

static void count_request(struct plx_vdi *vdi, const struct plx_request *request)
{
    struct plx_counters *both[] = {&vdi->counters, &vdi->store->counters};

    for (unsigned i = 0; i < 2; i++) {
        struct plx_counters *c = both[i];

        switch (request->op) {
        case PLX_READ:
            c->reads++;
            c->read_bytes += request->length;
            break;
        case PLX_WRITE:
        case PLX_COMPARE_WRITE:
            c->writes++;
            c->write_bytes += request->length;
            break;
        case PLX_UNMAP:
            c->unmaps++;
            c->unmap_bytes += request->length;
            break;
        case PLX_FLUSH:
            c->flushes++;
            break;
        case PLX_SNAPSHOT:
            c->snapshots++;
            break;
        default:
            break;
        }
    }
}

static void complete(struct plx_vdi *vdi, struct plx_request *request, int result)
{
    struct plx_store *store = vdi->store;

    request->result = result;
    if (request->op == PLX_READ)
        count_latency(store, vdi->counters.read_latency, store->counters.read_latency,
                      request->started_ns);
    else if (request->op == PLX_WRITE)
        count_latency(store, vdi->counters.write_latency, store->counters.write_latency,
                      request->started_ns);
    else if (request->op == PLX_SNAPSHOT)
        count_latency(store, vdi->counters.snapshot_latency, store->counters.snapshot_latency,
                      request->started_ns);
    request->done(request);
}

static void unlock(struct plx_op *op)
{
    if (!op->locks)
        return;
    op->locks = false;
    wake_all(op->vdi->store, &op->vdi->range_waiters);
}

static void release_compare(struct plx_op *op)
{
    if (!op->compare_held)
        return;
    op->compare_held = op->vdi->compare_busy = false;
    wake_all(op->vdi->store, &op->vdi->compare_waiters);
}

/* What was written in place may be seen, and no flush has followed it. */
static void in_cache_only(struct plx_vdi *vdi)
{
    plx_vdi_set_unflushed(vdi);
    vdi->cache_changes++;
}

static void finish(struct plx_op *op, int result)
{
    struct plx_vdi *vdi = op->vdi;
    struct plx_request *request = op->request;

    if (request->op == PLX_MOVE)
        request->move->upto = request->offset + op->done_bytes +
                              (plx_error_is_unreadable(result) ? op->window_bytes : 0);
    if (request->op == PLX_VOUCH)
        plx_vouch_ended(op, result);
    if (op->in_place && result) {
        vdi->vouch.doubt = true;
        in_cache_only(vdi);
    }
    op->in_place = false;
    vdi->labels_ended += op->labels;
    op->labels = false;
    release_compare(op);
    unlock(op);
    deactivate(op);
    op->request = NULL;
    release_op(op);
    if (result && !request->fault.code)
        plx_fault_set(&request->fault, result, "virtual disk %s: %s", vdi->record.name,
                      plx_error_text(result));
    complete(vdi, request, result); /* Q5; may submit again */
}

static int fail_at(struct plx_op *op, int error, unsigned block, const char *what)
{
    return plx_fault_set(&op->request->fault, error,
                         "virtual disk %s, virtual block %llu, store block %llu: %s",
                         op->vdi->record.name, (unsigned long long)(op->first_block + block),
                         (unsigned long long)plx_addr_block(op->mappings[block].addr), what);
}

/* ---- Submitting ---- */

static bool within_disk(const struct plx_vdi *vdi, const struct plx_request *request)
{
    return request->offset <= vdi->size_bytes &&
           request->length <= vdi->size_bytes - request->offset;
}

static int check_request(const struct plx_vdi *vdi, const struct plx_request *request)
{
    uint32_t sector = vdi->record.sector_size;

    switch (request->op) {
    case PLX_READ:
    case PLX_WRITE:
    case PLX_UNMAP:
    case PLX_COMPARE_WRITE:
        if (request->offset % sector || request->length % sector)
            return PLX_ERR_INVALID;
        if (!within_disk(vdi, request))
            return PLX_ERR_RANGE;
        if (request->op == PLX_COMPARE_WRITE && request->length > PLX_COMPARE_MAX)
            return PLX_ERR_INVALID;
        break;
    case PLX_MOVE:
        if (request->offset % PLX_BLOCK_SIZE || request->length % PLX_BLOCK_SIZE ||
            request->iovcnt != 1 || request->iov->iov_len < PLX_MOVE_BUFFER)
            return PLX_ERR_INVALID;
        if (!within_disk(vdi, request))
            return PLX_ERR_RANGE;
        break;
    case PLX_SHARE:
        if (plx_share_check(vdi->store, request))
            return PLX_ERR_INVALID;
        if (!within_disk(vdi, request))
            return PLX_ERR_RANGE;
        break;
    case PLX_RESIZE:
        if (request->length < vdi->size_bytes || request->length > PLX_VDI_SIZE_MAX ||
            request->length % sector)
            return PLX_ERR_INVALID;
        break;
    case PLX_LABEL:
        if (!request->label[0] || request->seq == 0 || request->seq > vdi->map.gen_submitted)
            return PLX_ERR_INVALID;
        break;
    case PLX_FLUSH:
    case PLX_SNAPSHOT:
    case PLX_KEYFRAME:
        break;
    case PLX_VOUCH:
        if (request != &vdi->vouch.request)
            return PLX_ERR_INVALID;
        break;
    }
    if (vdi->snapshot && request->op != PLX_READ && request->op != PLX_FLUSH)
        return PLX_ERR_READONLY;
    return vdi->snapshot ? 0 : vdi->log.sticky && request->op != PLX_READ ? vdi->log.sticky : 0;
}

static struct plx_op *begin(struct plx_vdi *vdi, struct plx_request *request)
{
    struct plx_op *op = take_op(vdi);

    op->request = request;
    op->done_bytes = 0;
    op->in_place = op->locks = false;
    op->retries = op->room_waits = 0;
    op->compared = op->compare_held = false;
    if (request->op == PLX_MOVE)
        plx_move_begin(op);
    activate(op);
    switch (request->op) {
    case PLX_READ:
    case PLX_WRITE:
    case PLX_UNMAP:
    case PLX_COMPARE_WRITE:
    case PLX_MOVE:
    case PLX_SHARE:
    case PLX_VOUCH:
        op->state = OP_WINDOW;
        break;
    case PLX_SNAPSHOT:
        op->state = OP_SNAPSHOT_LOGGED;
        break;
    case PLX_LABEL:
    case PLX_RESIZE:
        op->state = OP_ITEM;
        break;
    case PLX_FLUSH:
        op->state = OP_FLUSHED;
        break;
    case PLX_KEYFRAME:
        op->state = OP_KEYFRAME;
        break;
    }
    return op;
}

static void start_op(struct plx_op *op);

/* There is a free operation. */
static void admit(struct plx_vdi *vdi, struct plx_request *request)
{
    start_op(begin(vdi, request));
}

static bool may_admit(const struct plx_vdi *vdi, enum plx_urgency urgency)
{
    unsigned kept = urgency == PLX_AHEAD ? OWN_OPS : AHEAD_OPS + OWN_OPS;

    return urgency == PLX_OWN || (vdi->free_op_count > kept && !vdi->barrier);
}

static void enqueue(struct plx_vdi *vdi, struct plx_request *request)
{
    if (!vdi->waiting) {
        vdi->waiting = vdi->last_waiting = request;
    } else if (request->urgency == PLX_AHEAD) {
        request->next = vdi->waiting;
        vdi->waiting = request;
    } else {
        vdi->last_waiting->next = request;
        vdi->last_waiting = request;
    }
}

static void submit(struct plx_vdi *vdi, struct plx_request *request, enum plx_urgency urgency)
{
    int error = check_request(vdi, request);

    request->started_ns = vdi->store->env->monotonic_ns(vdi->store->env);
    request->fault.code = 0;
    request->next = NULL;
    request->urgency = urgency;
    count_request(vdi, request);
    if (error) {
        plx_fault_set(&request->fault, error, "virtual disk %s: %s", vdi->record.name,
                      plx_error_text(error));
        complete(vdi, request, error);
        return;
    }
    if (!may_admit(vdi, urgency) || (urgency == PLX_IN_TURN && vdi->waiting))
        enqueue(vdi, request);
    else
        admit(vdi, request);
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

static void start_waiting(struct plx_vdi *vdi)
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

void plx_vdi_set_unflushed(struct plx_vdi *vdi)
{
    if (!vdi->unflushed)
        vdi->flush_mark = vdi->store->flush_failures;
    vdi->unflushed = true;
}

void plx_vdi_pump(struct plx_vdi *vdi)
{
    start_waiting(vdi);
    if (vdi->snapshot)
        return;
    /* Acknowledged writes in place may be gone, too. */
    if (vdi->unflushed && !vdi->log.sticky && vdi->flush_mark != vdi->store->flush_failures)
        plx_log_fail(&vdi->log, vdi->store->flush_error);
    plx_keyframe_pump(vdi);
    plx_protect_pump(vdi);
    plx_vouch_pump(vdi);
    plx_gather_pump(&vdi->gather);
    plx_log_pump(&vdi->log);
}

/* ---- Bytes: where a window's blocks lie in memory ---- */

struct bytes_cursor {
    const struct iovec *iov;
    int left;
    size_t offset;
};

static struct bytes_cursor bytes_at(const struct plx_request *request, uint64_t skip)
{
    struct bytes_cursor c = {request->iov, request->iovcnt, 0};

    while (c.left && skip >= c.iov->iov_len) {
        skip -= c.iov->iov_len;
        c.iov++;
        c.left--;
    }
    c.offset = (size_t)skip;
    return c;
}

/* Takes the next slice of at most `want` bytes. */
static struct iovec bytes_take(struct bytes_cursor *c, size_t want)
{
    struct iovec slice;

    while (c->left && c->offset == c->iov->iov_len) {
        c->iov++;
        c->left--;
        c->offset = 0;
    }
    PLX_ASSERT(c->left);
    slice.iov_base = (uint8_t *)c->iov->iov_base + c->offset;
    slice.iov_len = plx_min_u64(want, c->iov->iov_len - c->offset);
    c->offset += slice.iov_len;
    return slice;
}

static void bytes_copy(struct bytes_cursor c, uint8_t *memory, size_t count, bool to_memory)
{
    while (count) {
        struct iovec slice = bytes_take(&c, count);

        if (to_memory)
            memcpy(memory, slice.iov_base, slice.iov_len);
        else
            memcpy(slice.iov_base, memory, slice.iov_len);
        memory += slice.iov_len;
        count -= slice.iov_len;
    }
}

static bool is_head(const struct plx_op *op, unsigned block)
{
    return block == 0 && (op->head_skip || (op->blocks == 1 && op->tail_skip));
}

/* Of a block that is no head. */
static bool is_tail(const struct plx_op *op, unsigned block)
{
    return block == op->blocks - 1 && op->tail_skip;
}

/* The buffer of a partly covered block, or NULL for a block that lies wholly in the request. */
static uint8_t *edge_of(const struct plx_op *op, unsigned block)
{
    if (is_head(op, block))
        return op->edges;
    return is_tail(op, block) ? op->edges + PLX_BLOCK_SIZE : NULL;
}

/* The part of an edge block that the request covers. */
static void edge_range(const struct plx_op *op, unsigned block, uint32_t *ret_from,
                       uint32_t *ret_bytes)
{
    uint32_t from = block == 0 ? op->head_skip : 0;
    uint32_t to = block == op->blocks - 1 ? PLX_BLOCK_SIZE - op->tail_skip : PLX_BLOCK_SIZE;

    *ret_from = from;
    *ret_bytes = to - from;
}

static bool moving(const struct plx_op *op)
{
    return op->request->op == PLX_MOVE;
}

static bool sharing(const struct plx_op *op)
{
    return op->request->op == PLX_SHARE;
}

static bool vouching(const struct plx_op *op)
{
    return op->request->op == PLX_VOUCH;
}

/* Q7 */
static bool keeps_contents(const struct plx_op *op)
{
    return moving(op) || sharing(op) || vouching(op);
}

/* Bytes from the start of the request's (write) data to a block's first covered byte. */
static uint64_t data_offset(const struct plx_op *op, unsigned block)
{
    uint64_t in_window = block == 0 ? 0 : (uint64_t)block * PLX_BLOCK_SIZE - op->head_skip;
    uint64_t base = op->request->op == PLX_COMPARE_WRITE ? op->request->length : 0;

    return moving(op) || vouching(op) ? in_window : base + op->done_bytes + in_window;
}

static bool comparing(const struct plx_op *op)
{
    return op->request->op == PLX_COMPARE_WRITE && !op->compared;
}

/* A block's 4 KiB wherever they lie: in the compare buffer, an edge buffer or the request. */
static struct bytes_cursor block_bytes(const struct plx_op *op, unsigned block, struct iovec *flat)
{
    uint8_t *edge = comparing(op) ? op->vdi->compare_buffer + (size_t)block * PLX_BLOCK_SIZE
                                  : edge_of(op, block);

    if (!edge)
        return bytes_at(op->request, data_offset(op, block));
    *flat = (struct iovec){edge, PLX_BLOCK_SIZE};
    return (struct bytes_cursor){flat, 1, 0};
}

/* Appends a block's memory to op->iovs, joining what is adjacent since first_iov. false: no room,
 * nothing changed. */
static bool add_block_iovs(struct plx_op *op, unsigned block, unsigned first_iov)
{
    struct iovec flat, last = {0};
    struct bytes_cursor c = block_bytes(op, block, &flat);
    unsigned count = op->iov_count;
    size_t left = PLX_BLOCK_SIZE;

    if (count > first_iov)
        last = op->iovs[count - 1];
    while (left) {
        struct iovec slice = bytes_take(&c, left);
        struct iovec *end = count > first_iov ? &op->iovs[count - 1] : NULL;

        left -= slice.iov_len;
        if (end && (uint8_t *)end->iov_base + end->iov_len == slice.iov_base) {
            end->iov_len += slice.iov_len;
        } else if (count == PLX_OP_IOVS) {
            if (op->iov_count > first_iov)
                op->iovs[op->iov_count - 1] = last;
            return false;
        } else {
            op->iovs[count++] = slice;
        }
    }
    op->iov_count = count;
    return true;
}

static uint32_t block_checksum(const struct plx_op *op, unsigned block)
{
    struct iovec flat;
    struct bytes_cursor c = block_bytes(op, block, &flat);
    uint32_t crc = 0;

    for (size_t left = PLX_BLOCK_SIZE; left;) {
        struct iovec slice = bytes_take(&c, left);

        crc = plx_crc32c_more(crc, slice.iov_base, slice.iov_len);
        left -= slice.iov_len;
    }
    op->vdi->store->turn_bytes += PLX_BLOCK_SIZE;
    return crc;
}

static bool block_is_zero(const struct plx_op *op, unsigned block)
{
    struct iovec flat;
    struct bytes_cursor c = block_bytes(op, block, &flat);

    for (size_t left = PLX_BLOCK_SIZE; left;) {
        struct iovec slice = bytes_take(&c, left);
        const uint8_t *bytes = slice.iov_base;

        if (bytes[0] || memcmp(bytes, bytes + 1, slice.iov_len - 1) != 0)
            return false;
        left -= slice.iov_len;
    }
    return true;
}

static void clear_block(const struct plx_op *op, unsigned block)
{
    struct iovec flat;
    struct bytes_cursor c = block_bytes(op, block, &flat);

    for (size_t left = PLX_BLOCK_SIZE; left;) {
        struct iovec slice = bytes_take(&c, left);

        memset(slice.iov_base, 0, slice.iov_len);
        left -= slice.iov_len;
    }
}

/* ---- Windows and range locks ---- */

static bool whole_unmap(const struct plx_op *op)
{
    return op->request->op == PLX_UNMAP && !op->head_skip && !op->tail_skip;
}

static void set_window(struct plx_op *op, uint64_t offset, uint64_t bytes)
{
    uint64_t end = offset + bytes;

    op->first_block = offset >> PLX_BLOCK_SHIFT;
    op->head_skip = offset & (PLX_BLOCK_SIZE - 1);
    op->blocks = (unsigned)(((end - 1) >> PLX_BLOCK_SHIFT) - op->first_block + 1);
    op->tail_skip = (uint32_t)(((op->first_block + op->blocks) << PLX_BLOCK_SHIFT) - end);
    op->window_bytes = (size_t)bytes;
    op->looked_up = 0;
    op->edges_read = false;
    op->walk = (struct plx_walk){0};
}

static void lay_out_window(struct plx_op *op)
{
    uint64_t offset = op->request->offset + op->done_bytes;
    uint64_t left = op->request->length - op->done_bytes;
    uint64_t in_block = offset & (PLX_BLOCK_SIZE - 1);

    if (moving(op)) {
        uint64_t window = plx_move_window(op->vdi->store) * PLX_BLOCK_SIZE;

        set_window(op, offset, plx_min_u64(left, window - offset % window));
        return;
    }
    if (op->request->op != PLX_UNMAP) {
        set_window(op, offset,
                   plx_min_u64(left, (uint64_t)PLX_WINDOW_BLOCKS * PLX_BLOCK_SIZE - in_block));
        return;
    }
    /* An unmap: whole blocks at once; the partly covered ends are written with zeroes. */
    if (in_block)
        set_window(op, offset, plx_min_u64(left, PLX_BLOCK_SIZE - in_block));
    else if (left >= PLX_BLOCK_SIZE)
        set_window(op, offset,
                   plx_min_u64(left & ~(uint64_t)(PLX_BLOCK_SIZE - 1),
                               (uint64_t)PLX_RECORD_UNMAP_MAX * PLX_BLOCK_SIZE));
    else
        set_window(op, offset, left);
}

static bool overlaps(const struct plx_op *a, const struct plx_op *b)
{
    return a->first_block < b->first_block + b->blocks &&
           b->first_block < a->first_block + a->blocks;
}

/* Q1: nobody who came earlier and holds or wants the range. 0, PLX_WAIT or, to a move or a share,
 * NOSPACE. */
static int lock(struct plx_op *op)
{
    if (moving(op) && op->request->move->dry_run) /* it only looks */
        return 0;
    for (const struct plx_op *other = op->vdi->oldest; other; other = other->next) {
        if (other != op && other->locks && overlaps(op, other) &&
            (other->state != OP_LOCK || other->ticket < op->ticket)) {
            if (keeps_contents(op) && other->state == OP_ROOM) /* Q8 */
                return PLX_ERR_NOSPACE;
            op->locks = true; /* stands in line */
            op->state = OP_LOCK;
            plx_queue_push(&op->vdi->range_waiters, &op->task);
            wake_all(op->vdi->store, &op->vdi->ticket_waiters);
            return PLX_WAIT;
        }
    }
    op->locks = true;
    return 0;
}

/* ---- Lookup ---- */

/* Looks up what is still missing. 0 or PLX_WAIT: that a node cannot be read the task is told. */
static int look_up(struct plx_op *op)
{
    struct plx_map *map = &op->vdi->map;
    bool writing = op->request->op != PLX_READ && !comparing(op) && !keeps_contents(op);

    plx_walk_resume(&op->walk);
    if (op->looked_up == 0)
        op->gen = map->gen_submitted;
    if (op->looked_up == 0 && vouching(op))
        op->base_changes = map->base_changes;
    while (op->looked_up < op->blocks) {
        uint64_t vblock = op->first_block + op->looked_up, waited = op->walk.nodes_waited;
        struct plx_mapping *mapping = &op->mappings[op->looked_up];
        bool absent;
        int error;

        if (writing && !edge_of(op, op->looked_up) &&
            plx_map_known_not_writable(map, vblock, &absent)) {
            *mapping = (struct plx_mapping){.addr = absent ? 0 : PLX_ADDR_MAX}; /* Q3 */
            op->looked_up++;
            continue;
        }
        error = plx_map_lookup(map, vblock, &op->walk, &op->task, mapping);
        if (writing)
            op->vdi->store->counters.write_path_node_reads += op->walk.nodes_waited - waited;
        if (error)
            return error;
        op->looked_up++;
    }
    return 0;
}

/* ---- Reading blocks of a window into memory ---- */

static bool wanted_for_read(const struct plx_op *op, unsigned block)
{
    if (keeps_contents(op))
        return op->actions[block] == PLX_ACTION_NEW;
    return op->request->op == PLX_READ || comparing(op) || edge_of(op, block);
}

/* Whether block lies behind the one before it on the store: one transfer takes both. It never
 * crosses the end of an extent, which may be that of a volume. No two blocks of ours adjoin there,
 * for an extent begins with its header; but a damaged map may say so. */
static bool adjoins(const struct plx_op *op, unsigned block)
{
    uint64_t addr = op->mappings[block].addr;

    return addr == op->mappings[block - 1].addr + 1 &&
           addr % op->vdi->store->info.extent_blocks != 0;
}

static struct plx_xfer *prepare_run(struct plx_op *op, enum plx_io_op io_op, unsigned first_iov,
                                    uint64_t addr, unsigned blocks)
{
    struct plx_xfer *xfer = &op->xfers[op->xfer_count++];

    plx_store_prepare(op->vdi->store, xfer, io_op, PLX_KIND_DATA, addr, 0,
                      (size_t)blocks * PLX_BLOCK_SIZE, &op->iovs[first_iov],
                      (int)(op->iov_count - first_iov), &op->join);
    return xfer;
}

static void submit_run(struct plx_op *op, enum plx_io_op io_op, unsigned first_iov, uint64_t addr,
                       unsigned blocks)
{
    struct plx_xfer *xfer = prepare_run(op, io_op, first_iov, addr, blocks);

    plx_store_submit(op->vdi->store, xfer->volume, &xfer->io);
}

static void cut_window(struct plx_op *op, unsigned blocks)
{
    PLX_ASSERT(blocks > 0 && blocks < op->blocks);
    set_window(op, op->request->offset + op->done_bytes,
               (uint64_t)blocks * PLX_BLOCK_SIZE - op->head_skip);
    op->looked_up = blocks;
}

static void start_join(struct plx_op *op)
{
    op->join = (struct plx_join){.pending = 1}; /* held until all are submitted */
    op->xfer_count = op->iov_count = 0;
}

/* Releases the hold; true: all have completed (or there were none). */
static bool end_join(struct plx_op *op)
{
    if (--op->join.pending == 0)
        return true;
    op->join.task = &op->task;
    return false;
}

/* Submits reads of the blocks that are wanted, adjacent ones together. When transfers or iovecs
 * run out the window is cut: the rest makes a window of its own. That of a move is read bit by bit.
 */
static int submit_reads(struct plx_op *op)
{
    unsigned block = moving(op) ? op->moves_read : 0;

    start_join(op);
    while (block < op->blocks) {
        unsigned first = block, first_iov = op->iov_count;
        uint64_t addr = op->mappings[block].addr;
        bool full = false;

        if (!wanted_for_read(op, block)) {
            block++;
            continue;
        }
        if (!addr) {
            clear_block(op, block++);
            continue;
        }
        while (!full && block < op->blocks && wanted_for_read(op, block) &&
               (block == first || adjoins(op, block))) {
            full = op->xfer_count == PLX_OP_XFERS || !add_block_iovs(op, block, first_iov);
            block += !full;
        }
        if (block > first)
            submit_run(op, PLX_IO_READ, first_iov, addr, block - first);
        if (full && moving(op))
            break;
        if (full && block == 0)
            return PLX_ERR_INVALID; /* one block in more pieces than an operation has */
        if (full) {
            cut_window(op, block);
            return 0;
        }
    }
    op->moves_read = block;
    return 0;
}

/* What a share's block is to be compared with. Behind submit_reads(). */
static void submit_common_read(struct plx_op *op)
{
    uint64_t common = op->request->share->common;
    uint8_t *own, *other;

    if (!common)
        return;
    plx_share_buffers(op, &own, &other);
    op->iovs[op->iov_count++] = (struct iovec){other, PLX_BLOCK_SIZE};
    submit_run(op, PLX_IO_READ, op->iov_count - 1, common, 1);
}

/* After the reads: checksums. 0; PLX_WAIT: look up again (Q4); or CORRUPT. */
static int verify_reads(struct plx_op *op)
{
    if (op->join.error)
        return fail_at(op, op->join.error, 0, plx_error_text(op->join.error));
    for (unsigned i = 0; i < op->blocks; i++) {
        const struct plx_mapping *mapping = &op->mappings[i];
        struct plx_mapping now;

        if (!wanted_for_read(op, i) || !mapping->addr || !mapping->checksum ||
            plx_checksum24(block_checksum(op, i)) == mapping->checksum)
            continue;
        if (op->retries++ < READ_RETRIES) {
            int error;

            plx_walk_resume(&op->walk);
            error = plx_map_lookup(&op->vdi->map, op->first_block + i, &op->walk, &op->task, &now);
            if (error)
                return error; /* PLX_WAIT: queued, the lookup starts over */
            if (now.addr != mapping->addr || now.checksum != mapping->checksum) {
                plx_task_ready(op->vdi->store, &op->task);
                return PLX_WAIT;
            }
        }
        return fail_at(op, PLX_ERR_CORRUPT, i, "checksum mismatch");
    }
    return 0;
}

static void deliver_edges(struct plx_op *op)
{
    for (unsigned i = 0; i<op->blocks; i += op->blocks> 1 ? op->blocks - 1 : 1) {
        uint8_t *edge = edge_of(op, i);
        uint32_t from, bytes;

        if (!edge)
            continue;
        edge_range(op, i, &from, &bytes);
        bytes_copy(bytes_at(op->request, data_offset(op, i)), edge + from, bytes, false);
    }
}

/* ---- Writing ---- */

static void merge_edges(struct plx_op *op)
{
    for (unsigned i = 0; i<op->blocks; i += op->blocks> 1 ? op->blocks - 1 : 1) {
        uint8_t *edge = edge_of(op, i);
        uint32_t from, bytes;

        if (!edge)
            continue;
        edge_range(op, i, &from, &bytes);
        if (op->request->op == PLX_UNMAP)
            memset(edge + from, 0, bytes);
        else
            bytes_copy(bytes_at(op->request, data_offset(op, i)), edge + from, bytes, true);
    }
}

static bool has_edges(const struct plx_op *op)
{
    return op->head_skip || op->tail_skip;
}

static bool always_copies(const struct plx_vdi *vdi)
{
    return vdi->copy_always || plx_protect_copies(vdi);
}

/* What gets another place is settled. A checksum that was not known is from now on. */
static void checksum_kept(struct plx_op *op)
{
    for (unsigned i = 0; i < op->blocks; i++)
        if (op->actions[i] == PLX_ACTION_NEW)
            op->checksums[i] = block_checksum(op, i);
}

/* What happens to each block; *ret_void: some checksum has to be voided first. */
static void classify(struct plx_op *op, bool *ret_void)
{
    struct plx_vdi *vdi = op->vdi;

    *ret_void = false;
    op->void_leaf = UINT64_MAX;
    op->void_count = 0;
    for (unsigned i = 0; i < op->blocks; i++) {
        const struct plx_mapping *mapping = &op->mappings[i];
        uint64_t leaf = (op->first_block + i) >> PLX_NODE_SHIFT;

        if (block_is_zero(op, i)) {
            op->actions[i] = mapping->addr ? PLX_ACTION_UNMAP : PLX_ACTION_SKIP;
            continue;
        }
        if (!mapping->writable || always_copies(vdi)) {
            op->actions[i] = PLX_ACTION_NEW;
            op->checksums[i] = block_checksum(op, i);
            continue;
        }
        op->actions[i] = PLX_ACTION_IN_PLACE;
        if (!mapping->checksum)
            continue;
        *ret_void = true;
        if (op->void_leaf == UINT64_MAX)
            op->void_leaf = leaf;
        op->void_count = (uint32_t)(leaf - op->void_leaf + 1);
    }
}

static size_t void_encode(struct plx_log_item *item, uint8_t *out, uint32_t *records)
{
    struct plx_op *op = PLX_CONTAINER(item, struct plx_op, item);

    /* In memory the checksums go now: only what is applied may lose its checksum by this record,
     * because the mark must cover it, this batch's or that of the record's repetition. */
    op->void_encoded = true;
    op->void_covered = op->void_again || op->vdi->log.durable_seq == op->vdi->log.applied.seq - 1;
    for (uint32_t i = 0; i < op->void_count && !op->void_again; i++)
        plx_map_apply_void(&op->vdi->map, op->void_leaf + i);
    op->vdi->counters.voids++;
    op->vdi->store->counters.voids++;
    ++*records;
    return plx_record_put_void(out, op->void_leaf, op->void_count);
}

static void void_apply(struct plx_log_item *item)
{
}

/* What is applied need not be durable when the record is formed (write-back): a second record,
 * formed when the first is durable and with it all before, carries the mark that covers it. Once
 * the first has taken its effect the disk depends on the second: for both there is room
 * (room_for_void). */
static int append_void(struct plx_op *op)
{
    static const struct plx_log_item_ops ops = {void_encode, void_apply};
    int error;

    op->item = (struct plx_log_item){
        .ops = &ops,
        .task = &op->task,
        .bytes = plx_record_bytes(PLX_RECORD_VOID, op->void_count),
        .slots = op->void_again ? 0 : op->void_count * PLX_MAP_SLOTS_FOR_VOID,
        .needs_durable = true,
    };
    error = plx_log_reserve(&op->vdi->log, &op->item);
    if (error)
        return error;
    op->state = OP_VOIDED;
    plx_log_append(&op->vdi->log, &op->item);
    return 0;
}

static void release_pieces(struct plx_op *op)
{
    for (unsigned i = 0; i < op->piece_count; i++)
        if (op->pieces[i].addr && !plx_addr_is_common(op->pieces[i].addr))
            plx_alloc_free(op->vdi->store, op->pieces[i].addr, op->pieces[i].count);
    op->piece_count = 0;
}

int plx_vdi_metadata_room(struct plx_vdi *vdi, uint64_t blocks)
{
    struct plx_store *store = vdi->store;
    uint64_t leaves = blocks ? (blocks >> PLX_NODE_SHIFT) + EDGE_LEAVES : 0;
    bool room = plx_reserve_room(vdi, leaves, 2 * (uint64_t)store->info.segment_blocks);

    plx_reserve_ahead(store);
    return room ? plx_log_room(&vdi->log) : PLX_ERR_NOSPACE;
}

int plx_vdi_wait_metadata_room(struct plx_vdi *vdi)
{
    unsigned waits = 0;

    for (;;) {
        struct plx_waiter waiter = PLX_WAITER;
        int error = plx_vdi_metadata_room(vdi, 0);

        if (error == PLX_ERR_NOSPACE)
            error = plx_reserve_wait(vdi->store, &waiter.task, &waits);
        if (error != PLX_WAIT)
            return error;
        plx_waiter_wait(vdi->store, &waiter); /* then look again */
    }
}

static int wait_for_metadata(struct plx_op *op)
{
    return plx_reserve_wait(op->vdi->store, &op->task, &op->room_waits);
}

/* 0, PLX_WAIT or NOSPACE (INV-8). */
static int metadata_room(struct plx_op *op)
{
    int error = plx_vdi_metadata_room(op->vdi, op->blocks);

    return !error || error == PLX_ERR_NOMEM ? error : wait_for_metadata(op);
}

/* The same, for what changes so many leaves and needs no block: as long as the reserve is left. */
static int room_for_changes(struct plx_op *op, uint64_t leaves)
{
    int error =
        plx_reserve_room(op->vdi, leaves, 0) ? plx_log_room(&op->vdi->log) : PLX_ERR_NOSPACE;

    return !error || error == PLX_ERR_NOMEM ? error : wait_for_metadata(op);
}

/* From a run of adjacent blocks, which is refilled about 1 MiB at a time. */
static int take_blocks(struct plx_op *op, struct plx_run *run, uint64_t want, uint64_t *ret_addr,
                       uint64_t *ret_count)
{
    if (!run->count) {
        int error = plx_alloc_run(op->vdi->store, PLX_EXTENT_DATA, plx_max_u64(want, RUN_BLOCKS),
                                  &op->task, &run->addr, &run->count);

        if (error)
            return error;
    }
    *ret_addr = run->addr;
    *ret_count = plx_min_u64(want, run->count);
    run->addr += *ret_count;
    run->count -= *ret_count;
    return 0;
}

/* Pieces for all new and unmapped blocks, the new ones from the run. 0, PLX_WAIT or NOSPACE; cuts
 * the window when there are too many pieces: those of a move are one transfer. */
static int lay_out_pieces(struct plx_op *op, struct plx_run *run)
{
    unsigned i = 0;

    op->piece_count = 0;
    while (i < op->blocks) {
        unsigned first = i, count;
        uint8_t action = op->actions[i];

        while (i < op->blocks && op->actions[i] == action)
            i++;
        count = i - first;
        if (action != PLX_ACTION_NEW && action != PLX_ACTION_UNMAP)
            continue;
        while (count) {
            struct plx_piece *piece = &op->pieces[op->piece_count];
            uint64_t addr = 0, got = count;

            if (op->piece_count == PLX_OP_XFERS / 2 && !moving(op)) {
                cut_window(op, first);
                return 0;
            }
            if (action == PLX_ACTION_NEW) {
                int error = take_blocks(op, run, count, &addr, &got);

                if (error)
                    return error;
            }
            *piece = (struct plx_piece){
                .vblock = op->first_block + first, .addr = addr, .count = (uint32_t)got};
            op->piece_count++;
            first += (unsigned)got;
            count -= (unsigned)got;
        }
    }
    return 0;
}

/* All that moves, into one run of its own. An extent that is asked for may have none that is long
 * enough: others have used it. Not all of them are taken for that. */
static int lay_out_move(struct plx_op *op)
{
    bool may_wait = op->retries++ < MOVE_RETRIES;
    struct plx_run run = {0};
    int error;

    for (unsigned i = 0; i < op->blocks; i++)
        run.count += op->actions[i] == PLX_ACTION_NEW;
    error = plx_alloc_adjacent(op->vdi->store, run.count, may_wait ? &op->task : NULL, &run.addr);
    if (error)
        return error;
    error = lay_out_pieces(op, &run);
    PLX_ASSERT(!error && !run.count);
    return 0;
}

/* The common block that is there, or a new one that will be. */
static int lay_out_share(struct plx_op *op)
{
    const struct plx_share *share = op->request->share;

    if (!share->common)
        return lay_out_move(op);
    op->pieces[0] = (struct plx_piece){op->first_block, share->common, 1};
    op->piece_count = 1;
    return 0;
}

static size_t pieces_encode(struct plx_log_item *item, uint8_t *out, uint32_t *records)
{
    struct plx_op *op = PLX_CONTAINER(item, struct plx_op, item);
    size_t bytes = 0;

    for (unsigned i = 0; i < op->piece_count; i++) {
        const struct plx_piece *piece = &op->pieces[i];

        if (piece->addr)
            bytes += plx_record_put_map(out + bytes, piece->vblock, piece->count,
                                        plx_share_addr(op, piece),
                                        &op->checksums[piece->vblock - op->first_block]);
        else
            bytes += plx_record_put_unmap(out + bytes, piece->vblock, piece->count);
    }
    *records += op->piece_count;
    return bytes;
}

static void pieces_apply(struct plx_log_item *item)
{
    struct plx_op *op = PLX_CONTAINER(item, struct plx_op, item);
    struct plx_map *map = &op->vdi->map;

    for (unsigned i = 0; i < op->piece_count; i++) {
        const struct plx_piece *piece = &op->pieces[i];
        const uint32_t *checksums = &op->checksums[piece->vblock - op->first_block];

        if (!piece->addr) {
            plx_map_apply_unmap(map, piece->vblock, piece->count);
            continue;
        }
        for (uint32_t b = 0; b < piece->count; b++)
            plx_map_apply_map(map, piece->vblock + b, plx_share_addr(op, piece) + b,
                              plx_checksum24(checksums[b]));
    }
}

/* The item for the pieces, with the memory that applying it needs: 0 or NOMEM. */
static int make_item(struct plx_op *op)
{
    static const struct plx_log_item_ops ops = {pieces_encode, pieces_apply};
    size_t bytes = 0, slots = 0;

    for (unsigned i = 0; i < op->piece_count; i++) {
        const struct plx_piece *piece = &op->pieces[i];

        bytes += plx_record_bytes(piece->addr ? PLX_RECORD_MAP : PLX_RECORD_UNMAP, piece->count);
        slots += piece->addr ? piece->count : plx_map_slots_for_unmap(piece->vblock, piece->count);
    }
    op->item = (struct plx_log_item){
        .ops = &ops,
        .task = &op->task,
        .bytes = bytes,
        .slots = slots,
        .needs_durable = op->request->fua || sharing(op),
        .changes = true,
    };
    return plx_log_reserve(&op->vdi->log, &op->item);
}

/* Data of an op that is logged reports to the log item; that of one that is not to the op's join.
 */
static void logged_data_done(struct plx_io *io)
{
    struct plx_xfer *xfer = PLX_CONTAINER(io, struct plx_xfer, io);
    struct plx_op *op = PLX_CONTAINER(xfer->join, struct plx_op, join);
    struct plx_volume *volume = &xfer->store->volumes[xfer->volume];

    volume->under_way--;
    volume->dirty = true;
    plx_log_data_done(&op->vdi->log, &op->item, io->result);
    if (--op->join.pending == 0 && op->join.task) /* the item failed before its data was through */
        plx_task_ready(op->vdi->store, op->join.task);
}

/* What is adjacent on the store goes in one transfer. */
static unsigned submit_new(struct plx_op *op)
{
    const struct plx_piece *piece = op->pieces, *end = op->pieces + op->piece_count;
    unsigned data = 0, sent = 0;

    while (piece < end) {
        unsigned first_iov = op->iov_count, run = 0;
        uint64_t addr = piece->addr + sent;
        struct plx_xfer *xfer;

        if (!piece->addr || plx_addr_is_common(piece->addr)) {
            piece++;
            continue;
        }
        while (piece < end && piece->addr + sent == addr + run &&
               add_block_iovs(op, (unsigned)(piece->vblock - op->first_block) + sent, first_iov)) {
            run++;
            if (++sent == piece->count) {
                piece++;
                sent = 0;
            }
        }
        PLX_ASSERT(run > 0);
        xfer = prepare_run(op, PLX_IO_WRITE, first_iov, addr, run);
        xfer->io.done = logged_data_done;
        plx_gather_write(&op->vdi->gather, xfer);
        data++;
        op->vdi->store->counters.blocks_new += run;
        op->vdi->counters.blocks_new += run;
    }
    return data;
}

/* Returns how many transfers. */
static unsigned submit_in_place(struct plx_op *op)
{
    unsigned block = 0, sent = 0;

    while (block < op->blocks) {
        unsigned first = block, first_iov = op->iov_count;
        uint64_t addr = op->mappings[block].addr;
        struct plx_xfer *xfer;

        if (op->actions[block] != PLX_ACTION_IN_PLACE) {
            if (!keeps_contents(op))
                op->vdi->store->counters.blocks_zero += op->actions[block] != PLX_ACTION_NEW;
            block++;
            continue;
        }
        while (block < op->blocks && op->actions[block] == PLX_ACTION_IN_PLACE &&
               (block == first || adjoins(op, block)) && add_block_iovs(op, block, first_iov))
            block++;
        PLX_ASSERT(block > first);
        xfer = prepare_run(op, PLX_IO_WRITE, first_iov, addr, block - first);
        if (op->piece_count)
            xfer->io.done = logged_data_done;
        plx_store_submit(op->vdi->store, xfer->volume, &xfer->io);
        sent++;
        op->in_place = true;
        if (!vouching(op))
            plx_vouch_note(&op->vdi->vouch, op->first_block + first, block - first);
        op->vdi->store->counters.blocks_in_place += block - first;
        op->vdi->counters.blocks_in_place += block - first;
    }
    return sent;
}

/* How many transfers and iovecs the window needs; cuts it to what there is. */
static int fit_window(struct plx_op *op)
{
    unsigned xfers = 0, iovs = 0;

    for (unsigned i = 0; i < op->blocks; i++) {
        bool starts = i == 0 || op->actions[i] != op->actions[i - 1] ||
                      (op->actions[i] == PLX_ACTION_IN_PLACE && !adjoins(op, i));
        unsigned slices = 1;

        if (op->actions[i] == PLX_ACTION_SKIP || op->actions[i] == PLX_ACTION_UNMAP)
            continue;
        if (!edge_of(op, i)) {
            struct bytes_cursor c = bytes_at(op->request, data_offset(op, i));
            size_t left = PLX_BLOCK_SIZE;

            for (slices = 0; left; slices++)
                left -= bytes_take(&c, left).iov_len;
        }
        xfers += starts;
        iovs += slices;
        /* Half of the transfers are kept for pieces split by allocation. */
        if (i > 0 && (xfers > PLX_OP_XFERS / 2 || iovs > PLX_OP_IOVS)) {
            cut_window(op, i);
            return 0;
        }
        if (iovs > PLX_OP_IOVS)
            return PLX_ERR_INVALID;
    }
    return 0;
}

/* Everything is known and in memory: allocate, submit data and log in one step (Q2). */
static int issue(struct plx_op *op)
{
    bool has_in_place = false, has_new = false, unmaps = false;
    unsigned in_place;
    int error;

    error = moving(op) ? 0 : fit_window(op);
    if (error)
        return error;
    for (unsigned i = 0; i < op->blocks; i++) {
        has_in_place = has_in_place || op->actions[i] == PLX_ACTION_IN_PLACE;
        has_new = has_new || op->actions[i] == PLX_ACTION_NEW;
        unmaps = unmaps || op->actions[i] == PLX_ACTION_UNMAP;
    }
    op->piece_count = 0;
    if (has_new)
        error = metadata_room(op);
    else if (unmaps)
        error = room_for_changes(op, EDGE_LEAVES);
    if (!error)
        error = moving(op)    ? lay_out_move(op)
                : sharing(op) ? lay_out_share(op)
                              : lay_out_pieces(op, &op->vdi->run);
    if (!error && op->piece_count)
        error = make_item(op);
    if (error) {
        release_pieces(op);
        return error;
    }
    if ((has_in_place && !vouching(op)) || op->piece_count)
        plx_protect_note_change(op->vdi);
    op->flush_mark = op->vdi->store->flush_failures;
    start_join(op);
    in_place = submit_in_place(op);
    if (op->piece_count) {
        op->item.data_pending = in_place + submit_new(op);
        plx_log_append(&op->vdi->log, &op->item);
    }
    return 0;
}

/* No space: a key frame frees what has died, if anything has; then the write is tried again. */
static int wait_for_deaths(struct plx_op *op)
{
    struct plx_vdi *vdi = op->vdi;

    for (struct plx_vdi *v = vdi->store->vdis; v; v = v->next) {
        if (!v->snapshot && !v->log.sticky && !v->closing &&
            (v->map.deaths.count || v->map.active.count || v->keyframe.running) &&
            op->retries < 4) {
            op->retries++;
            op->state = OP_RETRY;
            plx_keyframe_request(v, &op->task);
            return PLX_WAIT;
        }
    }
    return PLX_ERR_NOSPACE;
}

/* Nothing has died that is not free: perhaps some of the history can go. Not while somebody waits
 * for the disk to be idle: who lets history go may be waiting for him. */
static int wait_for_history(struct plx_op *op)
{
    struct plx_store *store = op->vdi->store;

    if (op->vdi->closing || op->vdi->barrier || !store->env->room_wanted ||
        !store->env->room_wanted(store->env, store))
        return PLX_ERR_NOSPACE;
    op->retries = 0;
    op->state = OP_ROOM;
    plx_queue_push(&store->room_waiters, &op->task);
    wake_all(store, &op->vdi->range_waiters); /* moves and shares do not wait for it (Q8) */
    return PLX_WAIT;
}

/* What issuing came to: PLX_WAIT when the op will be ready again, and looks up anew. */
static int wait_for_room(struct plx_op *op, int error)
{
    if (error == PLX_WAIT) {
        op->vdi->store->counters.registry_calls_on_data_path += plx_alloc_asks(op->vdi->store);
        op->state = OP_RETRY;
    } else if (error == PLX_ERR_NOSPACE && !keeps_contents(op)) { /* Q7 */
        error = wait_for_deaths(op);
        if (error == PLX_ERR_NOSPACE)
            error = wait_for_history(op);
    }
    if (error == PLX_WAIT)
        wake_all(op->vdi->store, &op->vdi->ticket_waiters); /* it holds no address any more */
    return error;
}

/* A VOID record may have to be logged twice (void_again), and must not fail the second time: with a
 * spare segment at hand it does not. */
static int room_for_void(struct plx_op *op)
{
    int error = room_for_changes(op, op->void_count);

    return error || op->vdi->log.spare_addr ? error : wait_for_metadata(op);
}

/* ---- The other requests ---- */

static size_t lone_encode(struct plx_log_item *item, uint8_t *out, uint32_t *records)
{
    struct plx_op *op = PLX_CONTAINER(item, struct plx_op, item);
    struct plx_request *request = op->request;
    struct plx_log *log = &op->vdi->log;

    ++*records;
    switch (request->op) {
    case PLX_SNAPSHOT:
        request->seq = ++log->cursor.snap_seq;
        /* An automatic one may have overtaken it while it waited for a batch. */
        request->time_ns = log->snapshot_ns =
            plx_max_u64(request->time_ns, plx_min_u64(log->snapshot_ns + 1, PLX_TIME_MAX));
        op->vdi->last_snapshot_ns = plx_max_u64(request->time_ns, op->vdi->last_snapshot_ns);
        return plx_record_put_snapshot(out, request->seq, request->time_ns);
    case PLX_LABEL:
        return plx_record_put_label(out, request->seq, request->label, request->remove);
    default:
        return plx_record_put_resize(out, request->length);
    }
}

static void lone_apply(struct plx_log_item *item)
{
    struct plx_op *op = PLX_CONTAINER(item, struct plx_op, item);

    if (op->request->op == PLX_SNAPSHOT) {
        PLX_ASSERT(op->request->seq == op->vdi->map.gen + 1);
        plx_map_apply_snapshot(&op->vdi->map, op->vdi->map.gen + 1);
    } else if (op->request->op == PLX_RESIZE) {
        op->vdi->size_bytes = op->request->length;
        plx_protect_note_change(op->vdi);
    }
}

/* Q9: the item has what is being written in place as its data, and what lies in the device's cache
 * must not have been lost. */
static void await_in_place(struct plx_op *op)
{
    if (op->vdi->unflushed)
        op->item.flush_mark = op->vdi->flush_mark;
    for (struct plx_op *other = op->vdi->oldest; other != op; other = other->next) {
        if (other->state != OP_WRITTEN || other->seen_by)
            continue;
        other->seen_by = op;
        op->item.data_pending++;
        op->item.flush_mark = plx_min_u64(op->item.flush_mark, other->flush_mark);
    }
}

/* It failed; that data may still be under way. */
static void forget_in_place(const struct plx_op *op)
{
    for (struct plx_op *other = op->vdi->oldest; other; other = other->next)
        if (other->seen_by == op)
            other->seen_by = NULL;
}

static void written_in_place(struct plx_op *op)
{
    if (op->seen_by)
        plx_log_data_done(&op->vdi->log, &op->seen_by->item, 0);
    op->seen_by = NULL;
}

static void append_lone(struct plx_op *op, enum plx_record_type type, int next_state)
{
    static const struct plx_log_item_ops ops = {lone_encode, lone_apply};

    op->item = (struct plx_log_item){
        .ops = &ops,
        .task = &op->task,
        .bytes = plx_record_bytes(type, strlen(op->request->label)),
        .needs_durable = true,
        .changes = type == PLX_RECORD_RESIZE,
        .snapshot = type == PLX_RECORD_SNAPSHOT,
        .patient = op->request->patient,
        .flush_mark = op->vdi->store->flush_failures,
    };
    if (type == PLX_RECORD_SNAPSHOT)
        await_in_place(op);
    op->state = next_state;
    plx_log_append(&op->vdi->log, &op->item);
}

/* Into the stream of writes, without draining it (Parallax 5.3). */
static void begin_snapshot(struct plx_op *op)
{
    struct plx_vdi *vdi = op->vdi;

    if (!vdi->changed && vdi->map.gen && vdi->map.gen == vdi->map.gen_submitted) {
        op->request->seq = vdi->map.gen;
        op->request->time_ns = vdi->last_snapshot_ns;
        op->state = OP_SNAPSHOT_WAIT; /* what belongs to that one may still be under way */
        plx_task_ready(vdi->store, &op->task);
        return;
    }
    vdi->changed = false;
    vdi->map.gen_submitted++; /* writes from now on are not seen by it */
    op->request->time_ns = plx_vdi_snapshot_time(vdi);
    plx_protect_ordered(vdi, op->request);
    append_lone(op, PLX_RECORD_SNAPSHOT, OP_SNAPSHOT_LOGGED);
}

/* A snapshot that is just being let go is as good as gone (reclaim.c, C5 and C6). */
static void begin_label(struct plx_op *op)
{
    struct plx_vdi *vdi = op->vdi;
    uint64_t seq = op->request->seq;
    bool gone =
        seq <= vdi->record.oldest.snap_seq || plx_vdi_lets_go(vdi->store, vdi->record.slot, seq);

    vdi->labels_begun++;
    op->labels = true;
    if (gone && !op->request->remove) /* a label may outlive its snapshot for a moment */
        finish(op, PLX_ERR_NOT_FOUND);
    else
        append_lone(op, PLX_RECORD_LABEL, OP_ITEM);
}

/* ---- Steps ---- */

static void start_op(struct plx_op *op)
{
    op->task.error = 0;
    switch (op->state) {
    case OP_SNAPSHOT_LOGGED:
        begin_snapshot(op);
        return;
    case OP_ITEM:
        if (op->request->op == PLX_LABEL)
            begin_label(op);
        else
            append_lone(op, PLX_RECORD_RESIZE, OP_ITEM);
        return;
    case OP_FLUSHED:
        if (op->vdi->snapshot || !op->vdi->unflushed) { /* all that was acknowledged is durable */
            finish(op, 0);
            return;
        }
        op->cache_changes = op->vdi->cache_changes;
        op->flush_seq = op->vdi->log.applied.seq - 1;
        plx_store_flush(op->vdi->store, &op->task, op->vdi->flush_mark);
        return;
    case OP_KEYFRAME:
        plx_keyframe_request(op->vdi, &op->task);
        return;
    default:
        op_run(op);
    }
}

/* What was applied when a flush began is durable now. */
static void note_flushed(struct plx_op *op)
{
    struct plx_vdi *vdi = op->vdi;

    vdi->log.durable_seq = plx_max_u64(vdi->log.durable_seq, op->flush_seq);
    if (op->flush_seq == vdi->log.applied.seq - 1)
        vdi->log.undurable = false;
    if (!vdi->log.write_back && op->cache_changes == vdi->cache_changes)
        vdi->unflushed = false;
}

/* Whether what this window did, or found done, must be flushed before it is acknowledged. What went
 * through the log is durable already. */
static bool must_flush(const struct plx_op *op)
{
    bool durable = (!op->vdi->log.write_back && !vouching(op)) || op->request->fua;

    return durable && !op->piece_count && (op->in_place || op->vdi->unflushed);
}

static void end_move(struct plx_op *op)
{
    op->done_bytes +=
        plx_min_u64(plx_move_end(op) << PLX_BLOCK_SHIFT, op->request->length - op->done_bytes);
}

/* Runs until it waits or ends. A window goes WINDOW, LOCK, LOOKUP, READ (what must be read),
 * ISSUE, then WRITTEN and LOGGED for what was submitted, and back to WINDOW. */
static void op_run(struct plx_op *op)
{
    struct plx_vdi *vdi = op->vdi;
    bool must_void;
    int error;

    for (;;) {
        switch (op->state) {
        case OP_WINDOW:
            unlock(op);
            if (op->done_bytes == op->request->length || (moving(op) && plx_move_ends(op)) ||
                (vouching(op) && plx_vouch_ends(op))) {
                finish(op, 0);
                return;
            }
            lay_out_window(op);
            op->state = OP_LOOKUP;
            if (op->request->op == PLX_READ)
                break;
            /* fall through */
        case OP_LOCK:
            error = lock(op);
            if (error == PLX_WAIT)
                return;
            if (error) {
                finish(op, error);
                return;
            }
            op->state = OP_LOOKUP;
            if (comparing(op)) {
                if (vdi->compare_busy) {
                    op->state = OP_LOCK;
                    plx_queue_push(&vdi->compare_waiters, &op->task);
                    wake_all(vdi->store, &vdi->ticket_waiters);
                    return;
                }
                vdi->compare_busy = true;
                op->compare_held = true;
            }
            break;
        case OP_LOOKUP:
            if (whole_unmap(op)) {
                op->state = OP_ISSUE;
                break;
            }
            if (look_up(op) == PLX_WAIT)
                return;
            if (moving(op) && !plx_move_plan(op)) {
                end_move(op);
                op->state = OP_WINDOW;
                break;
            }
            if ((sharing(op) && !plx_share_plan(op)) || (vouching(op) && !plx_vouch_plan(op))) {
                op->done_bytes += op->window_bytes;
                op->state = OP_WINDOW;
                break;
            }
            op->state = OP_ISSUE;
            if (op->request->op == PLX_READ || comparing(op) || keeps_contents(op) ||
                (has_edges(op) && !op->edges_read)) {
                error = submit_reads(op);
                if (error)
                    goto fail;
                if (sharing(op))
                    submit_common_read(op);
                op->state = OP_READ;
                if (!end_join(op))
                    return;
            }
            break;
        case OP_READ:
            if (moving(op) && op->moves_read < op->blocks && !op->join.error) {
                bool done;

                error = submit_reads(op);
                done = end_join(op);
                PLX_ASSERT(!error && !done); /* a block is left */
                return;
            }
            error = verify_reads(op);
            if (error == PLX_WAIT) {
                op->looked_up = 0;
                op->state = OP_LOOKUP;
                return;
            }
            if (error)
                goto fail;
            if (op->request->op == PLX_READ) {
                deliver_edges(op);
                op->done_bytes += op->window_bytes;
                op->state = OP_WINDOW;
                break;
            }
            if (comparing(op)) {
                error = PLX_ERR_MISCOMPARE;
                for (uint64_t at = 0; at < op->request->length; at++) {
                    struct bytes_cursor c = bytes_at(op->request, at);
                    const uint8_t *theirs = bytes_take(&c, 1).iov_base;

                    if (vdi->compare_buffer[op->head_skip + at] != *theirs) {
                        op->request->miscompare_offset = at;
                        goto fail;
                    }
                }
                op->compared = true;
                release_compare(op);
                op->looked_up = 0;
                op->state = OP_LOOKUP;
                break;
            }
            if (sharing(op) && !plx_share_compare(op)) {
                op->done_bytes += op->window_bytes;
                op->state = OP_WINDOW;
                break;
            }
            if (vouching(op)) {
                checksum_kept(op);
                op->state = plx_vouch_writes(op) ? OP_ISSUE : OP_DURABLE;
                break;
            }
            merge_edges(op);
            op->edges_read = true;
            op->state = OP_ISSUE;
            break;
        case OP_ISSUE:
            if (whole_unmap(op)) {
                error = wait_for_room(op, room_for_changes(op, EDGE_LEAVES));
                if (error == PLX_WAIT)
                    return;
                if (error)
                    goto fail;
                op->pieces[0] = (struct plx_piece){.vblock = op->first_block, .count = op->blocks};
                op->piece_count = 1;
                error = make_item(op);
                if (error)
                    goto fail;
                plx_protect_note_change(vdi);
                start_join(op);
                plx_log_append(&vdi->log, &op->item);
                op->state = OP_LOGGED;
                return;
            }
            if (vdi->log.sticky) {
                error = vdi->log.sticky;
                goto fail;
            }
            /* A snapshot came in between. It matters for what would be written in place only, and
             * for what moves (Q7). */
            if (op->gen != vdi->map.gen_submitted &&
                (moving(op) || vouching(op) || !always_copies(vdi))) {
                op->looked_up = 0;
                op->state = OP_LOOKUP;
                break;
            }
            must_void = false;
            if (keeps_contents(op))
                checksum_kept(op);
            else
                classify(op, &must_void);
            if (must_void) {
                error = wait_for_room(op, room_for_void(op));
                if (error == PLX_WAIT)
                    return;
                op->void_again = op->void_encoded = false;
                if (!error)
                    error = append_void(op);
                if (error)
                    goto fail;
                vdi->voids_pending++;
                return;
            }
            if (vdi->voids_pending) {
                bool in_place = false;

                for (unsigned i = 0; i < op->blocks; i++)
                    in_place = in_place || op->actions[i] == PLX_ACTION_IN_PLACE;
                if (in_place) {
                    op->state = OP_VOID_WAIT;
                    plx_queue_push(&vdi->void_waiters, &op->task);
                    return;
                }
            }
            error = wait_for_room(op, issue(op));
            if (error == PLX_WAIT)
                return;
            if (error)
                goto fail;
            op->state = OP_WRITTEN;
            if (!op->piece_count && !end_join(op))
                return;
            if (op->piece_count) {
                /* Wait for the log first: then all new data has completed as well. */
                op->state = OP_LOGGED;
                return;
            }
            break;
        case OP_WRITTEN:
            if (op->join.error) {
                /* What the log has let go nobody will ever map. A log that has stopped has let
                 * nothing go: recovery may believe a record that was on its way. */
                if (op->piece_count && op->item.data_error && !vdi->log.sticky)
                    release_pieces(op);
                error = op->join.error;
                goto fail;
            }
            op->state = OP_DURABLE;
            if (must_flush(op)) {
                plx_store_flush(vdi->store, &op->task,
                                op->in_place ? op->flush_mark : vdi->flush_mark);
                return;
            }
            break;
        case OP_DURABLE:
            if (vouching(op) && op->in_place)
                in_cache_only(vdi);
            op->in_place = false;
            if (sharing(op))
                plx_share_done(op);
            if (vouching(op))
                plx_vouch_take(op);
            if (moving(op))
                end_move(op);
            else
                op->done_bytes += op->window_bytes;
            op->state = OP_WINDOW;
            break;
        default:
            PLX_ASSERT(!"no such state");
        }
    }
fail:
    finish(op, error);
}

static void op_step(struct plx_task *task)
{
    struct plx_op *op = PLX_CONTAINER(task, struct plx_op, task);
    struct plx_vdi *vdi = op->vdi;
    int error = task->error;

    task->error = 0;
    switch (op->state) {
    case OP_LOOKUP: /* a node was loaded, or not */
        if (error) {
            fail_at(op, error, op->looked_up, "its place in the map cannot be read");
            finish(op, error);
            return;
        }
        break;
    case OP_VOIDED:
        if (!error && !op->void_covered) {
            op->void_again = true;
            error = append_void(op);
            if (!error)
                return;
        }
        if (error && op->void_encoded) /* its checksums are gone, and no record says so */
            plx_log_stop(&vdi->log, PLX_ERR_STICKY);
        if (!--vdi->voids_pending)
            wake_all(vdi->store, &vdi->void_waiters);
        /* fall through */
    case OP_VOID_WAIT:
    case OP_ROOM:
    case OP_RETRY:
        if (op->state == OP_RETRY) /* what failed is a key frame, perhaps another disk's */
            error = vdi->log.sticky;
        if (error) {
            finish(op, error);
            return;
        }
        op->looked_up = 0;
        op->state = OP_LOOKUP;
        break;
    case OP_WRITTEN:
        written_in_place(op);
        break;
    case OP_LOGGED:
        /* Applied, or failed: data may still be under way then. */
        op->item.data_error = error;
        op->state = OP_WRITTEN;
        if (!op->join.error)
            op->join.error = error;
        if (!end_join(op))
            return;
        break;
    case OP_DURABLE:
        if (error) {
            finish(op, error);
            return;
        }
        break;
    case OP_SNAPSHOT_LOGGED:
        if (error) {
            forget_in_place(op);
            vdi->map.gen_submitted--; /* it was never logged */
            plx_protect_note_change(vdi);
        }
        finish(op, error);
        return;
    case OP_SNAPSHOT_WAIT:
        if (!plx_ops_ended_before(vdi, op->ticket, true, task))
            return;
        if (!vdi->log.write_back) {
            finish(op, 0);
            return;
        }
        op->state = OP_FLUSHED;
        plx_store_flush(vdi->store, task, vdi->flush_mark);
        return;
    case OP_FLUSHED:
        if (!error)
            note_flushed(op);
        finish(op, error);
        return;
    case OP_ITEM:
    case OP_KEYFRAME:
        finish(op, error);
        return;
    }
    op_run(op);
}
