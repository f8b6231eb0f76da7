/* ringed_open.c - a ring's host; disks opened with their records on the ring, and closed. See
 * ringed.h, and ringed.c for the invariants.
 *
 * How a disk is opened whose record has a mark:
 *
 *    step                                                         if it fails
 *  1 plx_vdi_open(): refused unless this ring can have all        nothing has changed
 *      that the mark names; recovers what the store has
 *  2 the chain is opened: what the ring has is found, and made    the disk is closed as it was
 *      durable on all members; each record is looked at (RINGED-7)
 *  3 the front is set, in state QUIET                             -
 *  4 the ring gets a new proof. If it is full, what was found     what was found is drained
 *      is drained until there is room, while changes wait
 *  5 the mark is written anew, then requests go on (RINGED-1)     what was found is drained
 * Loop: the store's; calls are synchronous.
 * Crash story: until step 5 the mark is what it was, and the ring has what it names.
 */
#include "engine/ring/ringed_inside.h"

#define SPARE_SHARE 16u

/* ---- The host ---- */

static struct plx_ringed_host *host_of(const struct plx_loop_part *part)
{
    return PLX_CONTAINER((uintptr_t)part, struct plx_ringed_host, part);
}

static bool host_turn(struct plx_loop_part *part)
{
    struct plx_ringed_host *host = host_of(part);
    bool more;

    host->stirred = false;
    more = plx_ring_turn(host->ring);
    for (struct plx_ringed *r = host->disks; r && !host->stirred; r = r->next)
        host->stirred = plx_ringed_is_proven(r);
    for (struct plx_ringed *r = host->disks; r; r = r->next) {
        plx_ringed_auto_look(r);
        host->stirred |= r->drain.cut_short;
    }
    return more || host->stirred; /* the disks have something to do */
}

static unsigned host_under_way(const struct plx_loop_part *part)
{
    return plx_ring_under_way(host_of(part)->ring);
}

static void host_wait(struct plx_loop_part *part)
{
    plx_ring_wait(host_of(part)->ring);
}

static struct plx_device *host_device(const struct plx_loop_part *part, unsigned index)
{
    return plx_ring_device(host_of(part)->ring, index);
}

/* The ring's own synchronous calls: the loop's disks go on. */
static void host_run(void *context)
{
    const struct plx_ringed_host *host = context;

    if (!plx_store_tick(host->store))
        plx_store_wait(host->store);
}

/* A ring full of writes, but not much of the store. */
static uint64_t spare_blocks(const struct plx_ringed_host *host)
{
    const struct plx_store_info *store = &host->store->info;
    const struct plx_ring_info ring = plx_ringed_ring_info(host);

    return plx_min_u64(ring.segments * ring.segment_bytes / PLX_BLOCK_SIZE,
                       store->extents * store->extent_blocks / SPARE_SHARE);
}

int plx_ringed_host_new(struct plx_store *store, struct plx_ring *ring,
                        struct plx_ringed_host **ret_host)
{
    struct plx_ringed_host *host = malloc(sizeof *host);

    if (!host)
        return PLX_ERR_NOMEM;
    *host = (struct plx_ringed_host){.part = {.turn = host_turn,
                                              .under_way = host_under_way,
                                              .wait = host_wait,
                                              .device = host_device},
                                     .store = store,
                                     .ring = ring};
    host->spare_blocks = spare_blocks(host);
    plx_loop_join(store, &host->part);
    plx_ring_set_wait(ring, host_run, host);
    *ret_host = host;
    return 0;
}

void plx_ringed_host_free(struct plx_ringed_host *host)
{
    PLX_ASSERT(!host->disks);
    plx_ring_set_wait(host->ring, NULL, NULL);
    plx_loop_leave(host->store, &host->part);
    free(host);
}

/* ---- Made, opened, closed ---- */

static int bad_record(const struct plx_ringed *ringed, const struct plx_ring_found *found,
                      struct plx_fault *fault)
{
    return plx_fault_set(fault, PLX_ERR_CORRUPT,
                         "virtual disk %s: record %llu of its ring cannot be what follows what the "
                         "store has: ring and store do not fit together",
                         ringed->vdi->record.name, (unsigned long long)found->seq);
}

/* RINGED-7 */
static bool is_possible(const struct plx_ringed *ringed, const struct plx_ring_found *found)
{
    uint64_t blocks = plx_div_up(ringed->vdi->size_bytes, PLX_BLOCK_SIZE);
    const struct plx_ring_record *record = &found->record;

    if (found->seq != ringed->last_seq + 1)
        return false;
    if (record->type == PLX_RING_SNAPSHOT)
        return record->snapshot == ringed->front.snapshots + 1 && record->time_ns <= PLX_TIME_MAX;
    return record->blocks && record->block < blocks && record->blocks <= blocks - record->block;
}

static void note_found(struct plx_ringed *ringed, struct plx_ringed_record *record)
{
    struct plx_vdi *vdi = ringed->vdi;

    record->done_ns = plx_ringed_now(ringed);
    if (record->type == PLX_RING_WRITE) { /* RINGED_APPEND-5: it was acknowledged */
        record->promised = record->blocks;
        plx_alloc_owe(vdi->store, record->blocks);
    }
    if (!ringed->drain.records_left)
        ringed->oldest_ns = record->done_ns;
    ringed->last_seq = ringed->done_seq = record->seq;
    ringed->drain.records_left++;
    ringed->drain.bytes_left += plx_ringed_record_bytes(record);
    if (record->type != PLX_RING_SNAPSHOT) {
        plx_protect_note_change(vdi);
        return;
    }
    if (record->time_ns <= vdi->last_snapshot_ns + 1) /* WITNESS-9 */
        plx_witness_found(&vdi->witness, record->snapshot - 1, record->snapshot);
    ringed->front.snapshots = record->snapshot;
    vdi->last_snapshot_ns = plx_max_u64(vdi->last_snapshot_ns, record->time_ns);
    vdi->changed = vdi->protect.changed = false;
}

struct scan_taker {
    struct plx_ringed *ringed;
    struct plx_uuid ring;
    struct plx_fault *fault;
};

static int take_found(void *context, const struct plx_ring_found *found)
{
    struct scan_taker *taker = context;
    struct plx_ringed *ringed = taker->ringed;
    const struct plx_ring_record *what = &found->record;
    struct plx_ringed_record *record;

    if (!is_possible(ringed, found))
        return bad_record(ringed, found, taker->fault);
    record = plx_ringed_record_new(ringed, what->type, what->block, what->blocks, NULL);
    if (!record)
        return PLX_ERR_NOMEM;
    record->snapshot = what->snapshot;
    record->time_ns = what->time_ns;
    record->epoch = found->epoch;
    record->seq = found->seq;
    record->place = found->place;
    record->state = PLX_RINGED_DURABLE;
    if (what->type == PLX_RING_WRITE)
        plx_ring_blocks_hash(&taker->ring, found->data, what->blocks, record->sums);
    plx_ringed_record_add(record);
    note_found(ringed, record);
    return 0;
}

static int open_chain(struct plx_ringed *ringed, struct plx_fault *fault)
{
    const struct plx_vdi *vdi = ringed->vdi;
    struct scan_taker taker = {ringed, plx_ringed_ring_info(ringed->host).super.ring, fault};

    return plx_ring_chain_open(ringed->host->ring,
                               &(struct plx_ring_chain_options){
                                   .vdi = vdi->record.id,
                                   .epoch = vdi->record.epoch,
                                   .mark = vdi->mark,
                                   .position = vdi->log.applied.ring,
                                   .found = take_found,
                                   .context = &taker,
                               },
                               &ringed->chain, fault);
}

static void free_all(struct plx_ringed *ringed)
{
    plx_ringed_index_free(&ringed->index);
    plx_ringed_records_free(ringed);
    plx_ringed_ops_done(ringed);
    plx_ringed_drain_done(ringed);
    free(ringed);
}

static int init(struct plx_ringed *ringed)
{
    const struct plx_vdi *vdi = ringed->vdi;
    int error = plx_ringed_ops_init(ringed);

    if (!error)
        error = plx_ringed_drain_init(ringed);
    plx_ringed_front_init(ringed);
    ringed->last_seq = ringed->done_seq = ringed->released_seq = ringed->drain.drained_seq =
        vdi->log.applied.ring.seq;
    return error;
}

/* RINGED-10 */
static int check_aside(const struct plx_ringed *ringed, struct plx_fault *fault)
{
    const char *name = ringed->vdi->record.name;
    struct plx_ring_chain_info info;

    plx_ring_chain_get_info(ringed->chain, &info);
    if (plx_ringed_is_marked(ringed->vdi) || !info.aside)
        return 0;
    return plx_fault_set(
        fault, PLX_ERR_EXISTS,
        "the ring has %llu writes of virtual disk %.100s that were set aside: " PLX_RING_WHY_ASIDE
        "; 'parallax ring discard STORE/%s --also-set-aside' erases them",
        (unsigned long long)info.aside, name, strlen(name) <= 100 ? name : "VDI");
}

int plx_ringed_new(struct plx_ringed_host *host, struct plx_vdi *vdi,
                   struct plx_ringed **ret_ringed, struct plx_fault *fault)
{
    struct plx_ringed *ringed = calloc(1, sizeof *ringed);
    int error = ringed ? 0 : PLX_ERR_NOMEM;

    if (!ringed)
        return plx_fault_set(fault, error, "%s", plx_error_text(error));
    *ringed = (struct plx_ringed){
        .host = host,
        .vdi = vdi,
        .window_blocks = plx_ringed_ring_info(host).write_blocks_max,
        .memory_limit = PLX_RINGED_MEMORY_DEFAULT,
    };
    error = init(ringed);
    if (error)
        plx_fault_set(fault, error, "%s", plx_error_text(error));
    else
        error = open_chain(ringed, fault);
    if (!error && (error = check_aside(ringed, fault)) != 0)
        plx_ring_chain_close(ringed->chain);
    if (error) {
        free_all(ringed);
        return error;
    }
    ringed->next = host->disks;
    host->disks = ringed;
    if (plx_ringed_is_marked(vdi)) {
        plx_ringed_turn(ringed, true);
    }
    *ret_ringed = ringed;
    return 0;
}

struct ring_at_hand {
    struct plx_ring_at_hand asked;
    const struct plx_ring *ring;
};

static int check_record(const struct plx_ring_at_hand *asked, const struct plx_vdi_record *record,
                        struct plx_fault *fault)
{
    const struct ring_at_hand *at_hand =
        PLX_CONTAINER((uintptr_t)asked, const struct ring_at_hand, asked);
    struct plx_fault why = {0};
    int error = plx_ring_check_mark(at_hand->ring, &record->id, &record->mark, &why);

    return error ? plx_fault_set(fault, error, "virtual disk %s: %.400s", record->name, why.text)
                 : 0;
}

int plx_ringed_open(struct plx_ringed_host *host, const struct plx_vdi_open_options *options,
                    struct plx_vdi **ret_vdi, struct plx_ringed **ret_ringed,
                    struct plx_fault *fault)
{
    struct plx_vdi_open_options with = *options;
    struct ring_at_hand at_hand = {{check_record}, host->ring};
    struct plx_vdi *vdi;
    int error;

    with.ring = &at_hand.asked;
    error = plx_vdi_open(host->store, &with, &vdi, fault);
    if (error)
        return error;
    error = plx_ringed_new(host, vdi, ret_ringed, fault);
    if (error)
        plx_vdi_close(vdi); /* as it was found: mark and position stay */
    else
        *ret_vdi = vdi;
    return error;
}

/* Whether I/O or requests are in progress that will call back into this object. */
static bool is_busy(const struct plx_ringed *ringed)
{
    bool reads = false;

    for (const struct plx_ringed_op *op = ringed->oldest; op && !reads; op = op->next)
        reads = op->read.store_pending;
    return reads || ringed->items || ringed->loads || ringed->drain.flight || ringed->remarking ||
           ringed->directing || ringed->waits;
}

static void forget(struct plx_ringed *ringed)
{
    struct plx_ringed **link = &ringed->host->disks;

    while (*link != ringed)
        link = &(*link)->next;
    *link = ringed->next;
    plx_ring_chain_close(ringed->chain); /* RINGED-6 */
    free_all(ringed);
}

/* What requests that are under way at the end fail with. */
static int why_closed(const struct plx_ringed *ringed)
{
    int sticky = ringed->vdi->log.sticky;

    return sticky ? sticky : PLX_ERR_BUSY;
}

void plx_ringed_close(struct plx_ringed *ringed)
{
    struct plx_vdi *vdi = ringed->vdi;
    bool closing = vdi->closing;

    if (ringed->state != PLX_RINGED_OFF) {
        ringed->closing = true;
        vdi->closing = true; /* nothing that is carried waits for history */
        plx_store_room_made(vdi->store, true);
        while (is_busy(ringed)) {
            plx_ring_cancel(ringed->chain, why_closed(ringed));
            plx_ringed_run(ringed);
        }
        vdi->closing = closing;
        plx_front_set(vdi, NULL);
        plx_ringed_requests_fail(ringed, why_closed(ringed));
    }
    while (ringed->loads) /* of a part that nobody wants any more */
        plx_ringed_run(ringed);
    forget(ringed);
}

/* The epoch rose when the disk was opened: no record of an earlier one is claimed again
 * (RINGED-8). */
int plx_ringed_discard(struct plx_vdi *vdi, struct plx_fault *fault)
{
    static const struct plx_ring_mark none;
    struct plx_waiter waiter = PLX_WAITER;
    int error;

    PLX_ASSERT(!vdi->front);
    plx_front_mark(vdi, &none, &waiter.task);
    error = plx_waiter_wait(vdi->store, &waiter);
    return error ? plx_vdi_fault(vdi, error, fault) : 0;
}
