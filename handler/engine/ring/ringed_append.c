/* ringed_append.c - requests of a disk that is on its ring. A change becomes records, and is
 * acknowledged when the ring has them.
 *
 * What becomes of a request:
 *    READ            one that overlaps records on the ring; all other reads go to the disk
 *    WRITE, UNMAP    records of whole blocks; blocks covered in part are completed with their old
 *    COMPARE_WRITE   contents first, under a lock
 *    FLUSH           waits until all that came before it is durable on the ring
 *    SNAPSHOT        a record; answered when the store has it, an automatic one when the ring has
 *    LABEL, RESIZE   wait for the store (ringed_requests.c), and so do changes for which the store
 *                    has no room
 *
 * RINGED_APPEND-1  Changes of overlapping blocks take their places in the order in which they came:
 *     a change holds its range from its arrival until all its records have their numbers. So the
 *     old contents that it reads have all changes before it.
 * RINGED_APPEND-2  A record is in the index as soon as it has its number, so the next change that
 *     completes a block with old contents sees it. The change is acknowledged only when the ring
 *     says that it is done. What the ring has not acknowledged when it stops is handed to the disk
 *     as it came.
 * RINGED_APPEND-3  Memory is asked for when a window is made. If there is none, the request waits,
 *     and later makes that window again from its beginning. What is drained gives memory back.
 * RINGED_APPEND-4  A snapshot gets its number and its time when its record is appended. The number
 *     is the one behind that of the newest snapshot. The time is what WITNESS-4 makes of the host's
 *     wall clock then: later than the time of the snapshot before. The store logs both as they are
 *     (FRONT-4). If nothing has changed since the newest snapshot, no record is made, and that
 *     snapshot is the answer, as without a ring. Snapshots that a disk takes by itself (protect.c)
 *     are appended so:
 *
 *       mode       the SNAPSHOT record follows
 *       INTERVAL   what was appended when it fell due
 *       BATCH      all changes that were appended in one turn of the loop
 *       WRITE      each record of a change
 *
 * RINGED_APPEND-5  A change becomes records only if the store has promised the blocks that draining
 *     all of them needs (ALLOC-8). When a record of blocks is appended, it takes its part of the
 *     promise, and keeps it until the store has the record. What is left is given back when the
 *     operation ends. A change without a promise goes to the disk itself (RINGED_REQUESTS-3). So
 *     the only records that ever wait for blocks are those that an opening found on the ring.
 *     Metadata is not promised: key frames make the room for it (reserve.c).
 * Loop: the disk's; never blocks.
 * Crash story: chain.c's. What has no acknowledgement may be found or not.
 */
#include "engine/ring/ringed_inside.h"

#define OPS_KEPT 8u /* for reads, flushes, and requests that must not wait for others */

/* ---- Operations ---- */

int plx_ringed_ops_init(struct plx_ringed *ringed)
{
    unsigned count = ringed->vdi->store->options.ops_per_vdi + OPS_KEPT;

    ringed->ops = calloc(count, sizeof *ringed->ops);
    if (!ringed->ops)
        return PLX_ERR_NOMEM;
    for (unsigned i = 0; i < count; i++) {
        ringed->ops[i].next = ringed->free_ops;
        ringed->free_ops = &ringed->ops[i];
    }
    ringed->free_op_count = count;
    return 0;
}

void plx_ringed_ops_done(struct plx_ringed *ringed)
{
    free(ringed->ops);
}

struct plx_ringed_op *plx_ringed_op_begin(struct plx_ringed *ringed, struct plx_request *request,
                                          uint64_t promised)
{
    struct plx_ringed_op *op = ringed->free_ops;

    ringed->free_ops = op->next;
    ringed->free_op_count--;
    *op = (struct plx_ringed_op){
        .ringed = ringed, .request = request, .promised = promised, .previous = ringed->newest};
    if (ringed->newest)
        ringed->newest->next = op;
    else
        ringed->oldest = op;
    ringed->newest = op;
    ringed->working++;
    return op;
}

static void set_sent(struct plx_ringed_op *op)
{
    op->ringed->working--;
    op->state = PLX_RINGED_SENT;
}

void plx_ringed_op_leave_record(struct plx_ringed_op *op)
{
    struct plx_ringed_item *item = op->awaited ? op->awaited->item : NULL;

    if (item && item->op == op) {
        item->op = NULL;
        op->pending--;
    }
}

struct plx_request *plx_ringed_op_end(struct plx_ringed_op *op)
{
    struct plx_ringed *ringed = op->ringed;

    PLX_ASSERT(!op->pending && !op->read.pieces);
    plx_alloc_unpromise(ringed->vdi->store, op->promised); /* RINGED_APPEND-5 */
    free(op->data);
    if (op->awaited)
        plx_ringed_unpin(op->awaited);
    ringed->working -= op->state != PLX_RINGED_SENT;
    if (op->previous)
        op->previous->next = op->next;
    else
        ringed->oldest = op->next;
    if (op->next)
        op->next->previous = op->previous;
    else
        ringed->newest = op->previous;
    op->next = ringed->free_ops;
    ringed->free_ops = op;
    ringed->free_op_count++;
    return op->request;
}

static void finish(struct plx_ringed_op *op, int result)
{
    struct plx_vdi *vdi = op->ringed->vdi;

    plx_front_complete(vdi, plx_ringed_op_end(op), result);
}

/* ---- Records ---- */

/* RINGED-2: the ring has made it durable, or never will. */
static void item_done(struct plx_ring_item *ring_item)
{
    struct plx_ringed_item *item = PLX_CONTAINER(ring_item, struct plx_ringed_item, item);
    struct plx_ringed_record *record = item->record;
    struct plx_ringed *ringed = record->ringed;
    struct plx_ringed_op *op = item->op;

    record->item = NULL;
    ringed->items--;
    ringed->stirred = ringed->host->stirred = true;
    if (ring_item->error) {
        if (op)
            op->failed = true;
    } else {
        record->place = ring_item->place;
        record->state = PLX_RINGED_DURABLE;
        ringed->done_seq = record->seq;
        record->done_ns = plx_ringed_now(ringed);
        if (!ringed->drain.records_left++)
            ringed->oldest_ns = record->done_ns;
        ringed->drain.bytes_left += plx_ringed_record_bytes(record);
    }
    if (record->automatic)
        plx_protect_tell(ringed->vdi,
                         ring_item->error ? PLX_AUTOMATIC_DROPPED : PLX_AUTOMATIC_TAKEN,
                         record->snapshot, record->time_ns);
    plx_ringed_unpin(record);
    if (op)
        op->pending--;
    free(item);
}

/* The op is answered when the store has the record, too. */
static void await(struct plx_ringed_op *op, struct plx_ringed_record *record)
{
    if (op->awaited)
        plx_ringed_unpin(op->awaited);
    op->awaited = record;
    if (record)
        plx_ringed_pin(record);
}

/* RINGED_APPEND-5 */
static void take_promise(struct plx_ringed_op *op, struct plx_ringed_record *record)
{
    PLX_ASSERT(op->promised >= record->blocks);
    op->promised -= record->blocks;
    record->promised = record->blocks;
}

/* Gives it a number and appends it: from now on it is the newest one. */
static void append(struct plx_ringed_record *record, struct plx_ringed_item *item,
                   struct plx_ringed_op *op)
{
    struct plx_ringed *ringed = record->ringed;
    bool snapshot = record->type == PLX_RING_SNAPSHOT;

    *item = (struct plx_ringed_item){
        .item = {.record = {.type = record->type,
                            .block = record->block,
                            .blocks = record->blocks,
                            .snapshot = record->snapshot,
                            .time_ns = record->time_ns},
                 .iov = &item->iov,
                 .iovcnt = record->type == PLX_RING_WRITE,
                 .ret_sums = record->sums,
                 .done = item_done},
        .iov = {record->data, plx_ringed_record_bytes(record)},
        .record = record,
        .op = op,
    };
    plx_ringed_pin(record);
    record->item = item;
    if (record->type == PLX_RING_WRITE)
        take_promise(op, record);
    ringed->items++;
    if (op)
        op->pending++;
    plx_ring_append(ringed->chain, &item->item);
    record->seq = item->item.seq;
    record->epoch = ringed->vdi->record.epoch;
    ringed->last_seq = record->seq;
    plx_ringed_record_add(record); /* RINGED_APPEND-2 */
    if (snapshot)
        return;
    ringed->slow_bytes += plx_ringed_record_bytes(record);
    ringed->batch_changed = true;
    plx_protect_note_change(ringed->vdi);
}

static bool is_newest_unchanged(const struct plx_ringed *ringed)
{
    return !ringed->vdi->changed && ringed->front.snapshots;
}

/* RINGED_APPEND-4. NULL: out of memory. */
static struct plx_ringed_record *append_snapshot(struct plx_ringed *ringed,
                                                 struct plx_ringed_op *op)
{
    struct plx_ringed_record *record = plx_ringed_record_new(ringed, PLX_RING_SNAPSHOT, 0, 0, NULL);
    struct plx_ringed_item *item = malloc(sizeof *item);
    struct plx_vdi *vdi = ringed->vdi;

    if (!record || !item) {
        free(record);
        free(item);
        return NULL;
    }
    record->snapshot = ++ringed->front.snapshots;
    record->time_ns = plx_vdi_snapshot_time(vdi);
    record->automatic = !op;
    vdi->changed = ringed->batch_changed = false;
    if (op) {
        op->request->seq = record->snapshot;
        op->request->time_ns = record->time_ns;
        plx_protect_ordered(vdi, op->request);
    } else {
        vdi->protect.changed = false;
        plx_protect_tell(vdi, PLX_AUTOMATIC_ORDERED, record->snapshot, record->time_ns);
    }
    append(record, item, op);
    return record;
}

/* A change, and in protection's mode WRITE the snapshot behind it. Takes data over. False: out of
 * memory, and nothing has changed. */
static bool append_change(struct plx_ringed_op *op, enum plx_ring_record_type type, uint64_t block,
                          uint64_t blocks, uint8_t *data)
{
    struct plx_ringed *ringed = op->ringed;
    struct plx_ringed_item *item = malloc(sizeof *item);
    struct plx_ringed_record *record = plx_ringed_record_new(ringed, type, block, blocks, data);

    if (!item || !record) {
        if (record)
            ringed->memory -= plx_ringed_record_bytes(record);
        free(record);
        free(item);
        return false;
    }
    append(record, item, op);
    if (ringed->vdi->protect.policy.mode == PLX_PROTECT_WRITE)
        append_snapshot(ringed, NULL);
    plx_ring_hurry(ringed->chain);
    return true;
}

/* ---- Ranges ---- */

static bool is_change(const struct plx_request *request)
{
    return request->op == PLX_WRITE || request->op == PLX_UNMAP || request->op == PLX_COMPARE_WRITE;
}

static bool overlaps(const struct plx_request *a, const struct plx_request *b)
{
    uint64_t a_end = plx_div_up(a->offset + a->length, PLX_BLOCK_SIZE);
    uint64_t b_end = plx_div_up(b->offset + b->length, PLX_BLOCK_SIZE);

    return a->offset / PLX_BLOCK_SIZE < b_end && b->offset / PLX_BLOCK_SIZE < a_end;
}

/* RINGED_APPEND-1 */
static bool is_locked(const struct plx_ringed_op *op)
{
    const struct plx_ringed_op *other = op->ringed->oldest;

    if (op->ringed->working < 2)
        return false;
    for (; other != op; other = other->next)
        if ((other->state == PLX_RINGED_LOCK || other->state == PLX_RINGED_OLD) &&
            is_change(other->request) && overlaps(op->request, other->request))
            return true;
    return false;
}

/* ---- Windows ---- */

static bool is_unmap(const struct plx_ringed_op *op)
{
    return op->request->op == PLX_UNMAP;
}

static void lay_out(struct plx_ringed_op *op)
{
    uint64_t offset = op->request->offset + op->done_bytes;
    uint64_t bytes = op->request->length - op->done_bytes, in_block = offset % PLX_BLOCK_SIZE;

    if (is_unmap(op) && in_block)
        bytes = plx_min_u64(bytes, PLX_BLOCK_SIZE - in_block);
    else if (is_unmap(op) && bytes >= PLX_BLOCK_SIZE)
        bytes = plx_min_u64(bytes / PLX_BLOCK_SIZE * PLX_BLOCK_SIZE,
                            (uint64_t)PLX_RECORD_UNMAP_MAX * PLX_BLOCK_SIZE);
    else
        bytes = plx_min_u64(bytes, (uint64_t)op->ringed->window_blocks * PLX_BLOCK_SIZE - in_block);
    op->first_block = offset / PLX_BLOCK_SIZE;
    op->blocks = plx_div_up(offset + bytes, PLX_BLOCK_SIZE) - op->first_block;
    op->window_bytes = bytes;
    op->edges_done = 0;
}

/* Whether a block of the window keeps a part of its old contents. */
static bool keeps_part(const struct plx_ringed_op *op, uint64_t block)
{
    uint64_t from = op->request->offset + op->done_bytes, to = from + op->window_bytes;
    uint64_t end = plx_min_u64((block + 1) * PLX_BLOCK_SIZE, op->ringed->vdi->size_bytes);

    return from > block * PLX_BLOCK_SIZE || to < end;
}

static int begin_read(struct plx_ringed_op *op, uint64_t block, uint64_t blocks, uint8_t *to)
{
    uint64_t offset = block * PLX_BLOCK_SIZE;
    uint64_t bytes = plx_min_u64(blocks * PLX_BLOCK_SIZE, op->ringed->vdi->size_bytes - offset);
    int error;

    op->iov = (struct iovec){to, bytes};
    op->read =
        (struct plx_ringed_read){.offset = offset, .length = bytes, .iov = &op->iov, .iovcnt = 1};
    error = plx_ringed_read_begin(op->ringed, &op->read);
    op->state = error ? PLX_RINGED_LOCK : PLX_RINGED_OLD; /* RINGED_APPEND-3 */
    return error;
}

/* Reads the old contents of the next block that keeps a part of them: PLX_WAIT. 0: there is none
 * left. */
static int read_edge(struct plx_ringed_op *op)
{
    while (op->edges_done < 2) {
        uint64_t at = op->edges_done++ ? op->blocks - 1 : 0;
        int error;

        if ((at == 0 && op->edges_done == 2) || !keeps_part(op, op->first_block + at))
            continue;
        error = begin_read(op, op->first_block + at, 1, op->data + at * PLX_BLOCK_SIZE);
        return error ? error : PLX_WAIT;
    }
    return 0;
}

static void drop_window(struct plx_ringed_op *op)
{
    plx_ringed_blocks_put(op->ringed, op->data, op->blocks);
    op->data = NULL;
}

/* The window's blocks are complete but for the request's bytes. */
static int append_window(struct plx_ringed_op *op)
{
    const struct plx_request *request = op->request;
    uint64_t in_block = (request->offset + op->done_bytes) % PLX_BLOCK_SIZE;

    if (is_unmap(op))
        memset(op->data + in_block, 0, op->window_bytes);
    else
        plx_ringed_from_iov(request->iov, request->iovcnt,
                            (op->compared ? request->length : 0) + op->done_bytes,
                            op->data + in_block, op->window_bytes);
    if (!append_change(op, PLX_RING_WRITE, op->first_block, op->blocks, op->data))
        return PLX_ERR_NOMEM;
    op->data = NULL; /* the record's now */
    op->done_bytes += op->window_bytes;
    return 0;
}

static int make_window(struct plx_ringed_op *op)
{
    uint64_t offset = op->request->offset + op->done_bytes;
    size_t bytes;
    int error;

    lay_out(op);
    if (is_unmap(op) && offset % PLX_BLOCK_SIZE == 0 && op->window_bytes % PLX_BLOCK_SIZE == 0) {
        if (!append_change(op, PLX_RING_UNMAP, op->first_block, op->blocks, NULL))
            return PLX_ERR_NOMEM;
        op->done_bytes += op->window_bytes;
        return 0;
    }
    bytes = op->blocks * PLX_BLOCK_SIZE;
    op->data = plx_ringed_blocks_get(op->ringed, op->blocks);
    if (!op->data)
        return PLX_ERR_NOMEM;
    memset(op->data + bytes - PLX_BLOCK_SIZE, 0, PLX_BLOCK_SIZE); /* the disk may end in it */
    error = read_edge(op);
    return error ? error : append_window(op);
}

/* Reads all that a COMPARE_WRITE compares with. */
static int begin_compare(struct plx_ringed_op *op)
{
    const struct plx_request *request = op->request;

    op->first_block = request->offset / PLX_BLOCK_SIZE;
    op->blocks = plx_div_up(request->offset + request->length, PLX_BLOCK_SIZE) - op->first_block;
    op->data = plx_ringed_blocks_get(op->ringed, op->blocks);
    if (!op->data)
        return PLX_ERR_NOMEM;
    return begin_read(op, op->first_block, op->blocks, op->data) ? PLX_ERR_NOMEM : PLX_WAIT;
}

static int compare(struct plx_ringed_op *op)
{
    struct plx_request *request = op->request;
    const uint8_t *ours = op->data + request->offset % PLX_BLOCK_SIZE;

    for (uint64_t at = 0; at < request->length; at++) {
        uint8_t theirs;

        plx_ringed_from_iov(request->iov, request->iovcnt, at, &theirs, 1);
        if (ours[at] != theirs) {
            request->miscompare_offset = at;
            return PLX_ERR_MISCOMPARE;
        }
    }
    drop_window(op);
    op->compared = true;
    return 0;
}

/* ---- Steps. 0: the next one follows. PLX_WAIT: it waits. NOMEM: it waits for memory. Else why it
 * fails. ---- */

static int step_change(struct plx_ringed_op *op)
{
    if (is_locked(op))
        return PLX_WAIT;
    if (op->request->op == PLX_COMPARE_WRITE && !op->compared)
        return begin_compare(op);
    if (op->done_bytes == op->request->length) {
        set_sent(op);
        return 0;
    }
    return make_window(op);
}

static int step_snapshot(struct plx_ringed_op *op)
{
    struct plx_ringed *ringed = op->ringed;

    if (is_newest_unchanged(ringed)) {
        op->request->seq = ringed->front.snapshots;
        op->request->time_ns = ringed->vdi->last_snapshot_ns;
        op->flush_seq = ringed->last_seq;
        if (ringed->last && ringed->last->state != PLX_RINGED_DRAINED)
            await(op, ringed->last); /* nothing came behind it */
    } else {
        struct plx_ringed_record *record = append_snapshot(ringed, op);

        if (!record)
            return PLX_ERR_NOMEM;
        await(op, record);
    }
    set_sent(op);
    return 0;
}

static int step_old(struct plx_ringed_op *op)
{
    int error;

    if (!plx_ringed_read_step(op->ringed, &op->read))
        return PLX_WAIT;
    error = op->read.error;
    plx_ringed_read_end(&op->read);
    op->state = PLX_RINGED_LOCK;
    if (error) {
        op->request->fault = op->read.store.fault;
        return error;
    }
    if (op->request->op == PLX_COMPARE_WRITE && !op->compared)
        return compare(op);
    error = read_edge(op);
    return error ? error : append_window(op);
}

static int step_read(struct plx_ringed_op *op)
{
    if (!plx_ringed_read_step(op->ringed, &op->read))
        return PLX_WAIT;
    if (op->read.error)
        op->request->fault = op->read.store.fault;
    plx_ringed_read_end(&op->read);
    finish(op, op->read.error);
    return PLX_WAIT;
}

/* A requested snapshot is completed only when the store has it. */
static bool is_for_store(const struct plx_ringed_op *op)
{
    return op->awaited && op->awaited->state != PLX_RINGED_DRAINED && !op->request->patient;
}

static void hand_to_record(struct plx_ringed_op *op)
{
    struct plx_ringed_record *record = op->awaited;
    struct plx_request *request = plx_ringed_op_end(op);

    request->next = record->answer;
    record->answer = request;
}

/* RINGED-2 */
static int step_sent(struct plx_ringed_op *op)
{
    struct plx_ringed *ringed = op->ringed;

    int sticky = ringed->vdi->log.sticky;

    if (op->pending || ((op->failed || op->flush_seq > ringed->done_seq) && !sticky))
        return PLX_WAIT;
    if (op->error)
        finish(op, op->error);
    else if (op->request->op == PLX_FLUSH && ringed->vdi->unflushed)
        plx_front_pass(ringed->vdi, plx_ringed_op_end(op));
    else if (is_for_store(op) && !sticky)
        hand_to_record(op);
    else
        finish(op, sticky);
    return PLX_WAIT;
}

static int step(struct plx_ringed_op *op)
{
    switch (op->state) {
    case PLX_RINGED_LOCK:
        return op->request->op == PLX_SNAPSHOT ? step_snapshot(op) : step_change(op);
    case PLX_RINGED_OLD:
        return step_old(op);
    case PLX_RINGED_READ:
        return step_read(op);
    default:
        return step_sent(op);
    }
}

void plx_ringed_op_run(struct plx_ringed_op *op)
{
    int error;

    do
        error = step(op);
    while (!error);
    if (error == PLX_WAIT)
        return;
    drop_window(op);
    if (error == PLX_ERR_NOMEM) {
        op->ringed->no_memory = true; /* RINGED_APPEND-3 */
        return;
    }
    op->error = error;
    set_sent(op); /* records of earlier windows may be on their way: it ends when they have */
    step_sent(op);
}

int plx_ringed_op_begin_read(struct plx_ringed_op *op)
{
    struct plx_request *request = op->request;

    op->read = (struct plx_ringed_read){.offset = request->offset,
                                        .length = request->length,
                                        .iov = request->iov,
                                        .iovcnt = request->iovcnt};
    op->state = PLX_RINGED_READ;
    return plx_ringed_read_begin(op->ringed, &op->read);
}

void plx_ringed_op_begin_flush(struct plx_ringed_op *op)
{
    op->flush_seq = op->ringed->last_seq;
    set_sent(op);
}

static bool takes_snapshots(const struct plx_ringed *ringed)
{
    return ringed->state >= PLX_RINGED_ON && ringed->state <= PLX_RINGED_EMPTY;
}

/* RINGED_REQUESTS-3. The disk itself has noted whether it was changed. */
bool plx_ringed_direct_snapshot(struct plx_ringed *ringed)
{
    if (!ringed->vdi->changed)
        return true;
    ringed->batch_changed = true;
    return !takes_snapshots(ringed) || !plx_protect_copies(ringed->vdi) ||
           append_snapshot(ringed, NULL);
}

/* RINGED-3: the mode may become BATCH at any time, while the mark goes, too. */
void plx_ringed_batch_snapshot(struct plx_ringed *ringed)
{
    if (takes_snapshots(ringed) && ringed->batch_changed && !ringed->directing &&
        ringed->vdi->protect.policy.mode == PLX_PROTECT_BATCH && !append_snapshot(ringed, NULL))
        ringed->no_memory = true;
}
