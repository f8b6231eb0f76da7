/* ringed_requests.c - requests come to a disk that has a ring: taken, queued, put off, and
 * handed to the disk when the ring is turned off. What becomes of those that are let in is in
 * ringed_append.c.
 *
 * RINGED_REQUESTS-1  In the states ON and SLOW (ringed.c) changes become records. In OFF they are
 *     the disk's, and in STOPPED they fail. In all others they wait here, in order of arrival:
 *     while the ring is being turned on (QUIET, FLUSH, PROVE, MARK) or off (EMPTY, UNMARK). So
 *     there is an instant at which the disk has all that was acknowledged. At such an instant its
 *     mark is set or removed.
 * RINGED_REQUESTS-2  Reads and flushes never wait here. A LABEL waits for its own snapshot only.
 *     The thread that deletes snapshots may be waiting for that label, and draining may be waiting
 *     for the room which that thread makes (REQUEST-1).
 * RINGED_REQUESTS-3  A new size, or a change that gets no promise of blocks from the store
 *     (RINGED_APPEND-5), goes to the disk itself:
 *     1. The change waits until all that came before it is drained, snapshots too. In the states ON
 *        and SLOW each turn asks the store for the promise again. With the promise the change
 *        becomes records like any other.
 *     2. In ON and SLOW it is then passed to the disk. In other states it stays here; when the ring
 *        is off, it goes to the disk with all others that wait. Either way it gets the store's own
 *        answer, as without a ring.
 *     3. Changes behind it wait until it has ended. On a disk that takes a snapshot of each batch
 *        or write, the front then appends a SNAPSHOT record, and they wait for that, too.
 *     So each record lies within the disk as the store knows it. Each snapshot shows the size that
 *     the disk had then. And a change that makes room never waits for the draining of one that
 *     lacks room.
 *     If the writes directly behind such a change get no promise either, they are passed to the
 *     disk as soon as that change has been passed, beside it. So a full store has many writes under
 *     way, as without a ring. They wait as in 3 in three cases: beside a new size; on a disk that
 *     takes a snapshot of each batch or write; and while an extent has been asked for, since with
 *     that extent they may still become records. CHANGES_KEEP of the disk's operations stay free
 *     for reads and flushes.
 *     ring/README.md has an example.
 * RINGED_REQUESTS-4  While the store has no room for the ring's records:
 *
 *       a request that                                     gets
 *       needs room, and is new                             NOSPACE, as without a ring
 *       unmaps whole blocks                                in: it may make room. But not in EMPTY
 *                                                          (ringed.c): there it would wait for
 *                                                          that room itself
 *       waits until the store has its records, or all      NOSPACE: a change that is to go to the
 *         records before it                                disk itself, the label of a snapshot
 *                                                          that only the ring has
 *       was admitted, and a full ring holds it up          no answer yet: it waits for room
 *
 *     Records wait for room as well: those that were found at an opening, and those that lack room
 *     for metadata.
 * RINGED_REQUESTS-5  A thread that lets history go may itself wait for a snapshot, a label or a new
 *     size (REQUEST-1). And a write may wait for that history to go: a write that is carried, or
 *     one that was passed to the disk by RINGED_REQUESTS-3, or before the ring was turned on.
 *     Neither would ever go on. So while a write waits for history, snapshots, labels and new sizes
 *     that wait here fail with NOSPACE, automatic snapshots too unless they are records. The ring
 *     of a disk without a mark is not turned on. Synchronous calls return NOSPACE.
 * RINGED_REQUESTS-6  Writers do not run into a full ring. From when only an eighth of the ring is
 *     free until a quarter is free again, a disk takes only as many bytes as it drains. So its
 *     writers have the store's speed. Key frames let go of segments meanwhile. If nothing is
 *     drained for a while, as when the SAN is gone, writers take what room there is.
 * Loop: the disk's; never blocks.
 * Crash story: nothing is written here. After a crash the log has a prefix of a change that went to
 *   the disk itself, as without a ring. That change is behind all records that there are: the next
 *   records are appended when it has ended.
 */
#include "engine/ring/ringed_inside.h"

#define CHANGES_KEEP 8u /* operations that changes leave to reads and flushes */

static struct plx_ringed *ringed_of(struct plx_front *front)
{
    return PLX_CONTAINER(front, struct plx_ringed, front);
}

static void push(struct plx_request **head, struct plx_request **tail, struct plx_request *request)
{
    request->next = NULL;
    if (*head)
        (*tail)->next = request;
    else
        *head = request;
    *tail = request;
}

static struct plx_request *pop(struct plx_request **head)
{
    struct plx_request *request = *head;

    *head = request->next;
    request->next = NULL;
    return request;
}

static bool is_read(const struct plx_request *request)
{
    return request->op == PLX_READ;
}

static bool is_flush(const struct plx_request *request)
{
    return request->op == PLX_FLUSH;
}

/* While the ring is being turned off, half of what is drained may come; RINGED_REQUESTS-6. */
static bool is_slowed(const struct plx_ringed *ringed)
{
    uint64_t drained = ringed->drain.bytes - ringed->slow_drained;

    if (ringed->state == PLX_RINGED_SLOW)
        return ringed->slow_bytes > drained / 2;
    return ringed->scarce && ringed->slow_bytes > drained &&
           plx_ringed_now(ringed) < plx_ringed_stalled_ns(ringed);
}

static bool takes_changes(const struct plx_ringed *ringed)
{
    return ringed->free_op_count > CHANGES_KEEP && !is_slowed(ringed);
}

static bool may_begin(const struct plx_ringed *ringed, const struct plx_request *request)
{
    if (is_read(request) || is_flush(request))
        return ringed->free_op_count > 0;
    return !plx_ringed_holds(ringed) && takes_changes(ringed); /* RINGED_REQUESTS-1 */
}

/* RINGED_REQUESTS-4 */
static bool store_is_full(const struct plx_ringed *ringed)
{
    return plx_error_class(ringed->drain.error) == PLX_CLASS_NOSPACE;
}

static bool finds_no_room(const struct plx_ringed *ringed, const struct plx_request *request)
{
    bool needs = request->op == PLX_WRITE || request->op == PLX_COMPARE_WRITE ||
                 request->op == PLX_RESIZE || (request->op == PLX_SNAPSHOT && !request->patient) ||
                 (request->op == PLX_UNMAP && ringed->state == PLX_RINGED_EMPTY);

    return needs && store_is_full(ringed) &&
           !plx_front_check(ringed->vdi, request); /* else that is the better answer */
}

/* Blocks of the store that its records need: all that it covers; of an UNMAP those that it covers
 * in part. */
static uint64_t blocks_needed(const struct plx_request *request)
{
    uint64_t end = request->offset + request->length;
    uint64_t covered = plx_div_up(end, PLX_BLOCK_SIZE) - request->offset / PLX_BLOCK_SIZE;
    uint64_t parts = (request->offset % PLX_BLOCK_SIZE != 0) + (end % PLX_BLOCK_SIZE != 0);

    switch (request->length ? request->op : PLX_FLUSH) {
    case PLX_WRITE:
    case PLX_COMPARE_WRITE:
        return covered;
    case PLX_UNMAP:
        return plx_min_u64(covered, parts);
    default:
        return 0;
    }
}

/* False: it is nothing for the ring (RINGED_APPEND-5, RINGED_REQUESTS-3). */
static bool begin_change(struct plx_ringed *ringed, struct plx_request *request)
{
    uint64_t blocks = blocks_needed(request);

    if (request->op == PLX_RESIZE || (blocks && !plx_alloc_promise(ringed->vdi->store, blocks)))
        return false;
    plx_ringed_op_run(plx_ringed_op_begin(ringed, request, blocks));
    return true;
}

static void begin(struct plx_ringed *ringed, struct plx_request *request)
{
    struct plx_ringed_op *op;
    int error = plx_front_check(ringed->vdi, request);

    if (error) {
        plx_front_complete(ringed->vdi, request, error);
        return;
    }
    if (!is_read(request) && !is_flush(request)) {
        if (!begin_change(ringed, request))
            ringed->direct = request; /* RINGED_REQUESTS-3: changes wait from now on */
        return;
    }
    op = plx_ringed_op_begin(ringed, request, 0);
    if (is_flush(request))
        plx_ringed_op_begin_flush(op);
    else if ((error = plx_ringed_op_begin_read(op)) != 0)
        plx_front_complete(ringed->vdi, plx_ringed_op_end(op), error);
    if (!error)
        plx_ringed_op_run(op);
}

bool plx_ringed_take(struct plx_front *front, struct plx_request *request)
{
    struct plx_ringed *ringed = ringed_of(front);

    switch (request->op) {
    case PLX_READ:
        if (!request->length || plx_front_check(ringed->vdi, request) ||
            !plx_ringed_overlaps(ringed, request->offset, request->length))
            return false;
        break;
    case PLX_WRITE:
    case PLX_UNMAP:
    case PLX_COMPARE_WRITE:
    case PLX_SNAPSHOT:
    case PLX_FLUSH:
    case PLX_RESIZE:
        break;
    case PLX_LABEL:
        push(&ringed->orders, &ringed->last_order, request);
        ringed->stirred = true;
        return true;
    default: /* contents stay as they are */
        return false;
    }
    if (finds_no_room(ringed, request))
        plx_front_complete(ringed->vdi, request, PLX_ERR_NOSPACE);
    else if (may_begin(ringed, request) &&
             (!ringed->waiting || is_read(request) || is_flush(request))) /* RINGED_REQUESTS-2 */
        begin(ringed, request);
    else
        push(&ringed->waiting, &ringed->last_waiting, request);
    return true;
}

/* ---- Orders ---- */

/* Takes back a request that was not yet passed to the disk; NULL: there is none. */
static struct plx_request *take_direct(struct plx_ringed *ringed)
{
    struct plx_request *request = ringed->direct;

    ringed->direct = NULL;
    return request;
}

/* All changes that were let in are records. */
static bool have_places(const struct plx_ringed *ringed)
{
    for (const struct plx_ringed_op *op = ringed->oldest; op; op = op->next)
        if (!is_read(op->request) && op->state != PLX_RINGED_SENT)
            return false;
    return true;
}

/* Whether the store has all that was let in before. */
static bool is_alone(const struct plx_ringed *ringed)
{
    return have_places(ringed) && plx_ringed_is_drained(ringed) &&
           ringed->last_seq == ringed->done_seq; /* else the ring has stopped */
}

/* Whether the request that was passed to the disk has ended, with its snapshot. */
static bool end_direct(struct plx_ringed *ringed)
{
    if (plx_front_load(ringed->vdi).changes)
        return false;
    if (!plx_ringed_direct_snapshot(ringed)) {
        ringed->no_memory = true;
        return false;
    }
    ringed->directing = false;
    return true;
}

/* RINGED_REQUESTS-1 */
static bool may_pass_direct(const struct plx_ringed *ringed)
{
    return (ringed->state == PLX_RINGED_ON || ringed->state == PLX_RINGED_SLOW) && !ringed->closing;
}

static bool pass_direct(struct plx_ringed *ringed)
{
    struct plx_request *request = take_direct(ringed);

    ringed->directing = true;
    ringed->directs_alone = request->op == PLX_RESIZE;
    plx_front_pass(ringed->vdi, request);
    return end_direct(ringed);
}

static bool goes_along(const struct plx_ringed *ringed, const struct plx_request *request)
{
    struct plx_store *store = ringed->vdi->store;
    uint64_t blocks = blocks_needed(request);

    if (ringed->directs_alone || plx_protect_copies(ringed->vdi) || !may_pass_direct(ringed) ||
        plx_front_check(ringed->vdi, request))
        return false;
    if (plx_front_load(ringed->vdi).changes + CHANGES_KEEP >= store->options.ops_per_vdi)
        return false; /* RINGED_REQUESTS-2 */
    return !plx_alloc_has_unpromised(store, blocks) && !plx_alloc_asks_for(store, PLX_EXTENT_DATA);
}

/* RINGED_REQUESTS-3. True: nothing is under way any more. */
static bool step_passed(struct plx_ringed *ringed)
{
    if (end_direct(ringed))
        return true;
    while (ringed->waiting && goes_along(ringed, ringed->waiting))
        plx_front_pass(ringed->vdi, pop(&ringed->waiting));
    return end_direct(ringed);
}

/* Why it ends without having begun. */
static int why_not_direct(const struct plx_ringed *ringed)
{
    if (ringed->vdi->log.sticky)
        return ringed->vdi->log.sticky;
    return store_is_full(ringed) ? PLX_ERR_NOSPACE : 0; /* RINGED_REQUESTS-4 */
}

/* RINGED_REQUESTS-3. True: it holds nothing up any more. */
static bool step_direct(struct plx_ringed *ringed)
{
    struct plx_request *request;
    int error;

    if (ringed->directing)
        return step_passed(ringed);
    if (!ringed->direct)
        return false;
    if ((error = why_not_direct(ringed)) != 0) {
        plx_front_complete(ringed->vdi, take_direct(ringed), error);
        return true;
    }
    if (!may_pass_direct(ringed))
        return false;
    request = take_direct(ringed);
    if (takes_changes(ringed) && begin_change(ringed, request))
        return true;
    ringed->direct = request;
    return is_alone(ringed) && pass_direct(ringed);
}

/* RINGED_REQUESTS-2. One that names a snapshot that is not ordered yet is refused by the disk. */
static bool label_waits(const struct plx_ringed *ringed)
{
    uint64_t seq = ringed->orders->seq;

    return seq > ringed->vdi->map.gen_submitted && seq <= ringed->front.snapshots;
}

static void pump_orders(struct plx_ringed *ringed)
{
    while (ringed->orders) {
        struct plx_vdi *vdi = ringed->vdi;

        if (vdi->log.sticky) {
            plx_front_complete(vdi, pop(&ringed->orders), vdi->log.sticky);
            continue;
        }
        if (label_waits(ringed) && !store_is_full(ringed))
            return;
        if (label_waits(ringed)) /* RINGED_REQUESTS-4 */
            plx_front_complete(vdi, pop(&ringed->orders), PLX_ERR_NOSPACE);
        else
            plx_front_pass(vdi, pop(&ringed->orders));
    }
}

/* ---- Starting waiting requests ---- */

/* link: where the request hangs in the list of those that wait; before: the one before it. */
static void take_out(struct plx_ringed *ringed, struct plx_request **link,
                     struct plx_request *before)
{
    struct plx_request *request = *link;

    *link = request->next;
    if (ringed->last_waiting == request)
        ringed->last_waiting = before;
    request->next = NULL;
}

/* Those that wait for an operation: changes in order, reads and flushes as soon as there is one. */
static void start_waiting(struct plx_ringed *ringed)
{
    struct plx_request **link = &ringed->waiting, *before = NULL;
    bool stopped = false;

    while (*link) {
        struct plx_request *request = *link;
        bool free_to_go = is_read(request) || is_flush(request);

        if (finds_no_room(ringed, request)) {
            take_out(ringed, link, before);
            plx_front_complete(ringed->vdi, request, PLX_ERR_NOSPACE);
            link = before ? &before->next : &ringed->waiting;
            continue;
        }
        if ((stopped && !free_to_go) || !may_begin(ringed, request)) {
            stopped = true;
            before = request;
            link = &request->next;
            if (!ringed->free_op_count)
                return;
            continue;
        }
        take_out(ringed, link, before);
        begin(ringed, request);
        link = before ? &before->next : &ringed->waiting;
    }
}

static void run_all(struct plx_ringed *ringed)
{
    struct plx_ringed_op *op = ringed->oldest, *next;

    for (; op; op = next) {
        next = op->next;
        plx_ringed_op_run(op);
    }
}

void plx_ringed_requests_pump(struct plx_ringed *ringed)
{
    ringed->no_memory = false;
    if (ringed->working || ringed->stirred) {
        ringed->stirred = false;
        run_all(ringed);
    }
    step_direct(ringed);
    do
        start_waiting(ringed);
    while (step_direct(ringed));
    pump_orders(ringed);
    plx_ringed_batch_snapshot(ringed);
}

/* Takes the calls among those of the list that wait. */
static void fail_calls(struct plx_ringed *ringed, struct plx_request **list,
                       struct plx_request **last, int error)
{
    struct plx_request *kept = NULL, *last_kept = NULL;

    while (*list) {
        struct plx_request *request = pop(list);

        if (request->op == PLX_RESIZE || request->op == PLX_SNAPSHOT)
            plx_front_complete(ringed->vdi, request, error);
        else
            push(&kept, &last_kept, request);
    }
    *list = kept;
    *last = last_kept;
}

static void fail_snapshots(struct plx_ringed *ringed, int error)
{
    struct plx_ringed_op *op = ringed->oldest, *next;

    for (; op; op = next) {
        next = op->next;
        if (op->request->op != PLX_SNAPSHOT || op->request->patient)
            continue;
        plx_ringed_op_leave_record(op);
        plx_front_complete(ringed->vdi, plx_ringed_op_end(op), error);
    }
}

/* RINGED_REQUESTS-5 */
void plx_ringed_calls_fail(struct plx_ringed *ringed)
{
    struct plx_request *last;
    int error = PLX_ERR_NOSPACE;

    if (!plx_alloc_history_is_awaited(ringed->vdi->store) ||
        !plx_front_load(ringed->vdi).waits_for_history)
        return;
    fail_snapshots(ringed, error);
    fail_calls(ringed, &ringed->waiting, &ringed->last_waiting, error);
    for (struct plx_ringed_record *r = ringed->first; r; r = r->next)
        if (r->answer)
            fail_calls(ringed, &r->answer, &last, error);
    if (ringed->direct && ringed->direct->op == PLX_RESIZE)
        plx_front_complete(ringed->vdi, take_direct(ringed), error);
    while (ringed->orders)
        plx_front_complete(ringed->vdi, pop(&ringed->orders), error);
}

bool plx_ringed_requests_rest(const struct plx_ringed *ringed)
{
    for (const struct plx_ringed_op *op = ringed->oldest; op; op = op->next)
        if (op->pending || op->state != PLX_RINGED_SENT)
            return false;
    return !ringed->directing;
}

static struct plx_request *take_ops(struct plx_ringed *ringed)
{
    struct plx_request *head = NULL, *tail = NULL;

    while (ringed->oldest) {
        plx_ringed_read_end(&ringed->oldest->read); /* it may have ended, and nobody looked */
        push(&head, &tail, plx_ringed_op_end(ringed->oldest));
    }
    return head;
}

void plx_ringed_requests_pass(struct plx_ringed *ringed)
{
    struct plx_request *lists[] = {take_ops(ringed), take_direct(ringed), ringed->waiting,
                                   ringed->orders};

    ringed->waiting = ringed->orders = NULL;
    for (unsigned i = 0; i < sizeof lists / sizeof lists[0]; i++)
        while (lists[i])
            plx_front_pass(ringed->vdi, pop(&lists[i]));
}

static void fail_all(struct plx_ringed *ringed, struct plx_request **list, int error)
{
    while (*list)
        plx_front_complete(ringed->vdi, pop(list), error);
}

void plx_ringed_requests_fail(struct plx_ringed *ringed, int error)
{
    struct plx_request *begun = take_ops(ringed), *direct = take_direct(ringed);

    fail_all(ringed, &begun, error);
    fail_all(ringed, &direct, error);
    fail_all(ringed, &ringed->waiting, error);
    fail_all(ringed, &ringed->orders, error);
    plx_ringed_answers_fail(ringed, error);
}
