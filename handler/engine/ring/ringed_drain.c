/* ringed_drain.c - what the ring has acknowledged is carried to the disk's log.
 *
 * RINGED_DRAIN-1  Records are carried in order, none left out, and only those that are durable on
 *     the ring. Otherwise the store could hold a record that the ring then loses, and the ring
 *     would give its number to another record. A record is carried only when the one before it has
 *     its place in the log's order (FRONT-3). At most half of the disk's operations carry records;
 *     the rest is left to reads.
 * RINGED_DRAIN-2  When carrying a record fails, all records behind it fail as well. When all have
 *     ended, draining begins anew with the first record that failed, after a wait that doubles from
 *     attempt to attempt. So a store that is full or away costs nothing while it is. Two kinds of
 *     failure stop the disk, for nothing behind such a record could ever be carried: its data could
 *     not be written in three attempts, to other blocks each time; or another host has the store.
 * RINGED_DRAIN-3  A record is dropped, from the index too, only when its carried item is durable on
 *     the store (FRONT-3).
 * RINGED_DRAIN-4  If a record cannot be read back from the ring any more, the disk stops, and an
 *     event says how many acknowledged records are lost with it. The mark stays, and so does what
 *     is on the ring.
 * RINGED_DRAIN-5  While requests wait for the ring, a turn carries no more than a window or so. So
 *     what the ring is to write, or has written, does not wait behind work for the store.
 * Loop: the disk's; never blocks.
 * Crash story: the store has the records up to its position, and perhaps some windows of the next
 *   one, which is carried again.
 */
#include "engine/ring/ringed_inside.h"

#define WAIT_MIN_NS 10000000ull
#define WAIT_MAX_NS 1000000000ull
#define FAILURES_MAX 3u
#define TURN_BYTES (1u << 20)

int plx_ringed_drain_init(struct plx_ringed *ringed)
{
    unsigned count = (unsigned)plx_max_u64(1, ringed->vdi->store->options.ops_per_vdi / 2);
    struct plx_ringed_drain *drain = &ringed->drain;

    drain->carriers = calloc(count, sizeof *drain->carriers);
    for (unsigned i = 0; drain->carriers && i < count; i++) {
        drain->carriers[i].next = drain->free;
        drain->free = &drain->carriers[i];
    }
    return drain->carriers ? 0 : PLX_ERR_NOMEM;
}

void plx_ringed_drain_done(struct plx_ringed *ringed)
{
    free(ringed->drain.carriers);
}

/* ---- Carrying ---- */

void plx_ringed_answer(struct plx_ringed_record *record, int error)
{
    struct plx_vdi *vdi = record->ringed->vdi;
    struct plx_request *request = record->answer;

    record->answer = NULL;
    while (request) {
        struct plx_request *next = request->next;

        plx_front_complete(vdi, request, error);
        request = next;
    }
}

void plx_ringed_answers_fail(struct plx_ringed *ringed, int error)
{
    for (struct plx_ringed_record *r = ringed->first; r; r = r->next)
        plx_ringed_answer(r, error);
}

/* RINGED_REQUESTS-6. What was taken while nothing was drained is not made up for. */
static void note_progress(struct plx_ringed *ringed)
{
    uint64_t now = plx_ringed_now(ringed);

    if (now >= plx_ringed_stalled_ns(ringed))
        plx_ringed_pace(ringed);
    ringed->drain.drained_ns = now;
}

/* RINGED_DRAIN-3 */
static void drained(struct plx_ringed *ringed, struct plx_ringed_record *record)
{
    struct plx_ringed_drain *drain = &ringed->drain;

    PLX_ASSERT(record->seq == drain->drained_seq + 1);
    drain->drained_seq = record->seq;
    drain->bytes += plx_ringed_record_bytes(record);
    drain->bytes_left -= plx_ringed_record_bytes(record);
    if (ringed->scarce)
        note_progress(ringed);
    drain->records_left--;
    if (drain->records_left)
        ringed->oldest_ns = record->next->done_ns;
    drain->wait_ns = drain->attempts = 0;
    drain->error = 0;
    plx_ringed_record_drained(record);
    plx_ringed_answer(record, 0);
}

static void carried(struct plx_request *request)
{
    struct plx_ringed_carrier *carrier = request->owner;
    struct plx_ringed *ringed = carrier->ringed;
    struct plx_ringed_drain *drain = &ringed->drain;
    struct plx_ringed_record *record = carrier->record;

    record->carrier = NULL;
    carrier->next = drain->free;
    drain->free = carrier;
    drain->flight--;
    ringed->stirred = true;
    if (!request->result) {
        drained(ringed, record);
        plx_ringed_unpin(record);
    } else if (!drain->failing || record->seq < drain->failed->seq) {
        drain->failing = true;
        drain->failed = record;
        drain->error = request->result;
    }
}

static void placed(struct plx_request *request)
{
    struct plx_ringed_carrier *carrier = request->owner;

    carrier->ringed->drain.placing = false;
}

static void carry(struct plx_ringed *ringed, struct plx_ringed_record *record)
{
    static const enum plx_request_op ops[] = {[PLX_RING_WRITE] = PLX_WRITE,
                                              [PLX_RING_UNMAP] = PLX_UNMAP,
                                              [PLX_RING_SNAPSHOT] = PLX_SNAPSHOT};
    struct plx_ringed_drain *drain = &ringed->drain;
    struct plx_ringed_carrier *carrier = drain->free;

    drain->free = carrier->next;
    drain->next = record->next;
    drain->flight++;
    drain->placing = true;
    record->state = PLX_RINGED_CARRIED;
    record->carrier = carrier;
    carrier->ringed = ringed;
    carrier->record = record;
    carrier->iov = (struct iovec){record->data, plx_ringed_record_bytes(record)};
    carrier->request = (struct plx_request){.op = ops[record->type],
                                            .offset = record->block * PLX_BLOCK_SIZE,
                                            .length = record->blocks * PLX_BLOCK_SIZE,
                                            .iov = &carrier->iov,
                                            .iovcnt = 1,
                                            .seq = record->snapshot,
                                            .time_ns = record->time_ns,
                                            .carried = {record->epoch, record->seq},
                                            .promised = record->promised != 0,
                                            .appended = placed,
                                            .done = carried,
                                            .owner = carrier};
    plx_front_carry(ringed->vdi, &carrier->request);
}

/* ---- Failing ---- */

/* RINGED_DRAIN-2 */
static bool goes_on_failing(const struct plx_ringed_drain *drain)
{
    return plx_error_class(drain->error) == PLX_CLASS_FENCED ||
           (drain->error == PLX_ERR_IO_WRITE && ++drain->failed->failures == FAILURES_MAX);
}

/* RINGED_DRAIN-2 */
static void begin_anew(struct plx_ringed *ringed)
{
    struct plx_ringed_drain *drain = &ringed->drain;
    struct plx_vdi *vdi = ringed->vdi;

    drain->next = drain->failed;
    for (struct plx_ringed_record *r = drain->next; r && r->state == PLX_RINGED_CARRIED;
         r = r->next)
        r->state = PLX_RINGED_DURABLE;
    drain->failing = drain->placing = false;
    drain->attempts++;
    drain->wait_ns = plx_max_u64(WAIT_MIN_NS, plx_min_u64(2 * drain->wait_ns, WAIT_MAX_NS));
    drain->resume_ns = plx_ringed_now(ringed) + drain->wait_ns;
    if (plx_error_class(drain->error) == PLX_CLASS_NOSPACE)
        plx_ringed_answers_fail(ringed, drain->error); /* RINGED_REQUESTS-4 */
    if (!vdi->log.sticky && goes_on_failing(drain))
        plx_log_fail(&vdi->log, drain->error);
}

/* RINGED_DRAIN-4 */
static void stop_for_lost(struct plx_ringed *ringed, const struct plx_ringed_record *record,
                          int error)
{
    struct plx_vdi *vdi = ringed->vdi;
    uint64_t lost = 0;

    for (const struct plx_ringed_record *r = record; r; r = r->next)
        lost += r->state == PLX_RINGED_DURABLE;
    plx_log_stop(&vdi->log, PLX_ERR_STICKY, error);
    plx_store_event(
        vdi->store, error,
        "virtual disk %s: record %llu cannot be read back from its ring (%s), so it and "
        "those behind it, %llu writes that were acknowledged, are not on the store; the "
        "disk is stopped",
        vdi->record.name, (unsigned long long)record->seq, plx_error_text(error),
        (unsigned long long)lost);
}

/* ---- The disk's turn ---- */

/* Whether its blocks are in memory, where they stay until it is carried: 0, PLX_WAIT or an error.
 */
static int prepare(struct plx_ringed_record *record)
{
    if (!record->ahead)
        plx_ringed_pin(record);
    record->ahead = true;
    return plx_ringed_load(record);
}

/* RINGED_REQUESTS-6 */
static void look_at_room(struct plx_ringed *ringed, const struct plx_ring_chain_info *info)
{
    bool before = ringed->scarce;

    ringed->full = info->full;
    ringed->scarce = info->ring_free <= info->ring_bytes / (before ? 4 : 8);
    if (ringed->scarce && !before) {
        ringed->drain.drained_ns = plx_ringed_now(ringed);
        plx_ringed_pace(ringed);
    }
}

/* Whether it is time for a key frame that makes room. Before the ring is scarce, it is one that
 * lets go of much; for while it is written, more is taken. */
static bool room_is_due(const struct plx_ringed *ringed, const struct plx_ring_chain_info *info)
{
    uint64_t freed = ringed->drain.bytes - ringed->drain.asked_bytes;

    if (info->full)
        return true;
    if (ringed->scarce)
        return freed >= info->ring_bytes / 16 || plx_ringed_is_drained(ringed);
    return freed >= info->ring_bytes / 4 && info->ring_free < info->ring_bytes / 2;
}

/* A key frame names the position, and lets the ring use its segments again. */
static void ask_for_room(struct plx_ringed *ringed)
{
    struct plx_ringed_drain *drain = &ringed->drain;
    struct plx_vdi *vdi = ringed->vdi;
    struct plx_ring_chain_info info;
    uint64_t now;

    plx_ring_chain_get_info(ringed->chain, &info);
    look_at_room(ringed, &info);
    if (!room_is_due(ringed, &info) || drain->drained_seq <= vdi->record.position.seq ||
        vdi->keyframe.running || vdi->keyframe.wanted || vdi->log.sticky)
        return;
    now = plx_ringed_now(ringed);
    if (vdi->keyframe.error && now - drain->asked_ns < WAIT_MAX_NS)
        return;
    drain->asked_in_vain = vdi->keyframe.error ? drain->asked_in_vain + 1 : 0;
    drain->asked_ns = now;
    drain->asked_bytes = drain->bytes;
    plx_keyframe_request(vdi, NULL);
}

static void read_ahead(struct plx_ringed *ringed)
{
    struct plx_ringed_record *record = ringed->drain.next;

    for (unsigned i = 0; i < PLX_RINGED_AHEAD && record && record->state == PLX_RINGED_DURABLE;
         i++) {
        if (ringed->memory > plx_ringed_memory_most(ringed))
            return;
        prepare(record);
        record = record->next;
    }
}

void plx_ringed_drain_pump(struct plx_ringed *ringed)
{
    struct plx_ringed_drain *drain = &ringed->drain;
    uint64_t turn_bytes = 0;

    drain->cut_short = false;
    if (drain->failing && !drain->flight)
        begin_anew(ringed);
    ask_for_room(ringed);
    if (drain->resume_ns && plx_ringed_now(ringed) < drain->resume_ns)
        return;
    drain->resume_ns = 0;
    /* RINGED_DRAIN-1 */
    while (drain->next && drain->next->state == PLX_RINGED_DURABLE && !drain->placing &&
           !drain->failing && drain->free && !ringed->vdi->log.sticky) {
        struct plx_ringed_record *record = drain->next;
        int error = prepare(record);

        if (error == PLX_WAIT || (error == PLX_ERR_NOMEM && ringed->loads))
            break;
        if (error == PLX_ERR_NOMEM) {
            drain->error = error;
            drain->resume_ns = plx_ringed_now(ringed) + WAIT_MIN_NS;
            return;
        }
        if (error) {
            stop_for_lost(ringed, record, error);
            return;
        }
        carry(ringed, record);
        turn_bytes += plx_ringed_record_bytes(record);
        if (ringed->items && turn_bytes >= TURN_BYTES) { /* RINGED_DRAIN-5 */
            drain->cut_short = true;
            break;
        }
    }
    read_ahead(ringed);
}

bool plx_ringed_is_drained(const struct plx_ringed *ringed)
{
    return !ringed->drain.flight && ringed->drain.drained_seq == ringed->done_seq && !ringed->items;
}
