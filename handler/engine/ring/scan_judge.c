/* scan_judge.c - whether what a scan has found is all that must be there, and nothing is there that
 * must not be.
 *
 * SCAN_JUDGE-1  The chain ends before some record, N. That is damage, and the ring is refused
 *     (CORRUPT), if a segment with the mark's proof says so:
 *     - its header, or a whole batch of it, calls record N or a later one durable;
 *     - or a whole batch of it has record N, although the chain does not lead there.
 *     The mark's proof was written when all records before it had been made durable. So its
 *     segments know all that counts. If they say nothing of N, then N and what is behind it was
 *     never done (CHAIN-3). What has another proof says nothing: it may be left of another future,
 *     which was given up when the store was put back to an older state.
 * SCAN_JUDGE-2  A ring is refused (CORRUPT) if a record under another proof is newer than those of
 *     the mark's proof. Another mark had that other proof, and this store never had that mark. So
 *     the ring belongs to a copy of the store, or the store was put back.
 * SCAN_JUDGE-3  A batch whose proof is not its segment's is nobody's: nothing counts it.
 * SCAN_JUDGE-4  The first header with the mark's proof names the hash of the batch before it, as
 *     its writer had found it. What this scan finds before that header must end with the same hash.
 *     Otherwise the ring is refused (CORRUPT): batches of another future were taken, because a
 *     segment lost its header.
 * SCAN_JUDGE-5  This rule holds if the mark's proof was written in the position's epoch. The
 *     position's record must be there, or a segment with the mark's proof that begins behind that
 *     record: the newest segment with that proof is kept (CHAIN-7). If there is neither, the ring
 *     is refused (CORRUPT). It is a copy that was made under this very proof, before the position's
 *     record was appended, and lacks all that was acknowledged since.
 * SCAN_JUDGE-6  A ring is refused (CORRUPT) if its header with the mark's proof has a higher epoch
 *     than the disk. No opening leaves that: ring and store do not fit together, or one of them is
 *     damaged or forged. The mark claims all records up to the epoch of its proof. Two things would
 *     go wrong if they were taken:
 *     - The disk's position would get their epoch, which is higher than that of the disk's record.
 *       Whoever reads such a VDI record refuses it.
 *     - What the disk appends next has its own, lower epoch. Along a chain epochs never fall
 *       (SCAN-1), so the next scan would pass over these new records, though they were
 *       acknowledged.
 * SCAN_JUDGE-7  A batch may be on one of two members only:
 *
 *       a later batch or header      the batch is
 *       calls it durable             damaged on the other member, for what was done was on both
 *                                    (CHAIN-4)
 *       does not                     perhaps left so by a crash: no damage. The next opening writes
 *                                    it to both (SCAN-5)
 *
 *     A batch goes to both members at once, and several batches are on their way. Either member may
 *     get any of them first, whole, torn, or not at all. A batch is acknowledged when both have it
 *     durably, and the next batch that is formed says so. So at the chain's end the members may
 *     differ by what was under way, and by what no later batch followed.
 * Loop: the ring's. Calls are synchronous.
 * Crash story: none, it only reads.
 */
#include "engine/ring/scan_inside.h"

/* ---- The mark's proof ---- */

/* By this member's header the segment has the proof in the mark. */
static bool has_mark(const struct plx_scan *scan, uint32_t segment, unsigned m)
{
    const struct plx_ring_part *part = &scan->ring->parts[segment];

    return plx_scan_uses(scan, m) && part->whole[m] &&
           part->head[m].proof == scan->options->mark.proof &&
           plx_uuid_equal(&part->head[m].vdi, &scan->options->vdi);
}

int plx_scan_find_proof(struct plx_scan *scan)
{
    const struct plx_ring_chain_options *options = scan->options;
    struct plx_ring *ring = scan->ring;

    scan->proof_part = PLX_RING_NOWHERE;
    if (!plx_ring_is_marked(&options->mark))
        return 0;
    scan->proof_part =
        plx_ring_part_of_proof(ring, &options->vdi, options->mark.proof, &scan->proof_head);
    if (scan->proof_part == PLX_RING_NOWHERE) /* the member that has it was lost just now */
        return plx_fault_set(scan->fault, PLX_ERR_RING_AWAY,
                             "%s: the member is lost that shows that the ring is up to date",
                             ring->members[0].device->name);
    if (scan->proof_head.epoch > options->epoch) /* SCAN_JUDGE-6 */
        return plx_fault_set(
            scan->fault, PLX_ERR_CORRUPT,
            "%s: segment %u has writes of epoch %llu, and the disk is at %llu: ring "
            "and store do not fit together",
            ring->members[0].device->name, scan->proof_part,
            (unsigned long long)scan->proof_head.epoch, (unsigned long long)options->epoch);
    scan->proof_first = scan->proof_head.first_seq;
    scan->proof_prev_hash = scan->proof_head.prev_hash;
    for (uint32_t s = 0; s < ring->segments; s++)
        for (unsigned m = 0; m < ring->count; m++) {
            const struct plx_ring_segment *head = &ring->parts[s].head[m];

            if (!has_mark(scan, s, m) || head->first_seq >= scan->proof_first)
                continue;
            scan->proof_first = head->first_seq;
            scan->proof_prev_hash = head->prev_hash;
        }
    return 0;
}

/* ---- What is missing ---- */

/* The newest record that must be there because of a batch with the mark's proof, in the segment on
 * the shelf: it calls it durable, or has it, though nobody took it. */
static uint64_t newest_of(const struct plx_scan *scan, const struct plx_ring_batch *batch)
{
    bool is_next = batch->first_seq <= scan->next && scan->next < batch->first_seq + batch->records;

    return is_next ? scan->next : batch->durable_seq;
}

static uint64_t newest_durable(const struct plx_scan *scan)
{
    uint64_t newest = 0, hash;
    struct plx_ring_batch batch;

    for (unsigned m = 0; m < scan->ring->count; m++)
        for (size_t at = PLX_BLOCK_SIZE; plx_scan_uses(scan, m) && at < scan->ring->segment_bytes;
             at += PLX_BLOCK_SIZE) {
            size_t left = scan->ring->segment_bytes - at;

            if (plx_format_ring_batch_head(scan->shelf[m] + at, left, &batch) ||
                batch.vdi != scan->word || batch.proof != scan->options->mark.proof ||
                newest_of(scan, &batch) <= newest ||
                plx_format_ring_batch_decode(scan->shelf[m] + at, left, &scan->ring->id, &batch,
                                             &hash))
                continue;
            newest = newest_of(scan, &batch);
        }
    return newest;
}

/* Of the segments with the mark's proof: the highest first record that is not behind the end of the
 * chain. Those before it were filled before the end. */
static uint64_t begin_of_end(const struct plx_scan *scan)
{
    uint64_t begin = 0;

    for (uint32_t s = 0; s < scan->ring->segments; s++)
        for (unsigned m = 0; m < scan->ring->count; m++)
            if (has_mark(scan, s, m) && scan->ring->parts[s].head[m].first_seq <= scan->next)
                begin = plx_max_u64(begin, scan->ring->parts[s].head[m].first_seq);
    return begin;
}

/* What headers and batches of the segment say. */
static int durable_in(struct plx_scan *scan, uint32_t s, uint64_t begin, uint64_t *ret_durable)
{
    const struct plx_ring_part *part = &scan->ring->parts[s];
    bool read = part->use == PLX_RING_BAD;
    uint64_t durable = 0;
    int error = 0;

    for (unsigned m = 0; m < scan->ring->count; m++)
        if (has_mark(scan, s, m)) {
            durable = plx_max_u64(durable, part->head[m].durable_seq);
            read |= part->head[m].first_seq >= begin;
        }
    if (read)
        error = plx_scan_shelve(scan, s);
    if (read && !error)
        durable = plx_max_u64(durable, newest_durable(scan));
    *ret_durable = durable;
    return error;
}

/* SCAN_JUDGE-1 */
static int look_for_holes(struct plx_scan *scan)
{
    uint64_t begin = begin_of_end(scan);
    int error = 0;

    for (uint32_t s = 0; s < scan->ring->segments && !error; s++) {
        uint64_t durable;

        error = durable_in(scan, s, begin, &durable);
        if (!error && durable >= scan->next)
            error = plx_fault_set(scan->fault, PLX_ERR_CORRUPT,
                                  "%s: writes that were acknowledged are missing: record %llu and "
                                  "others, up to %llu or more (segment %u): the ring was damaged, "
                                  "or the store was put back to an older state, then put the newer "
                                  "store back",
                                  scan->ring->members[0].device->name,
                                  (unsigned long long)scan->next, (unsigned long long)durable, s);
    }
    return error;
}

/* SCAN_JUDGE-5 */
static int look_for_position(const struct plx_scan *scan)
{
    const struct plx_ring_position *position = &scan->options->position;
    bool has = scan->has_position || scan->proof_head.epoch != position->epoch;

    for (uint32_t s = 0; s < scan->ring->segments && !has; s++)
        for (unsigned m = 0; m < scan->ring->count; m++)
            has |= has_mark(scan, s, m) && scan->ring->parts[s].head[m].first_seq > position->seq;
    return has ? 0
               : plx_fault_set(
                     scan->fault, PLX_ERR_CORRUPT,
                     "%s: record %llu, which the store has from this ring, is not there: "
                     "this is an older copy of the ring, then put the newer ring back, or "
                     "it was damaged",
                     scan->ring->members[0].device->name, (unsigned long long)position->seq);
}

/* ---- What only one member has ---- */

/* The newest record that a batch of the chain, or a header with the mark's proof, calls durable. */
static uint64_t told_durable(const struct plx_scan *scan)
{
    uint64_t durable = scan->durable;

    for (uint32_t s = 0; s < scan->ring->segments; s++)
        for (unsigned m = 0; m < scan->ring->count; m++)
            if (has_mark(scan, s, m))
                durable = plx_max_u64(durable, scan->ring->parts[s].head[m].durable_seq);
    return durable;
}

/* SCAN_JUDGE-5, of one member: without the other one the disk would be refused. */
static bool lacks_position(const struct plx_scan *scan, unsigned m)
{
    const struct plx_ring_position *position = &scan->options->position;
    bool has = (scan->position_have >> m & 1u) || scan->proof_head.epoch != position->epoch;

    for (uint32_t s = 0; s < scan->ring->segments && !has; s++)
        has = has_mark(scan, s, m) && scan->ring->parts[s].head[m].first_seq > position->seq;
    return scan->has_position && !has;
}

/* SCAN_JUDGE-7 */
void plx_scan_compare(const struct plx_scan *scan, struct plx_ring_look *look)
{
    uint64_t durable = told_durable(scan), before = scan->options->position.seq;

    for (unsigned m = 0; m < scan->ring->count; m++)
        look->damaged[m] = lacks_position(scan, m);
    for (size_t i = 0; i < scan->count; i++) {
        const struct plx_scanned *batch = &scan->batches[i];
        uint64_t *lacking = batch->last_seq <= durable ? look->damaged : look->behind;

        for (unsigned m = 0; m < scan->ring->count; m++)
            if (!(batch->have >> m & 1u))
                lacking[m] += batch->last_seq - before;
        before = batch->last_seq;
    }
}

/* ---- What is newer ---- */

/* Whether this member's header of the segment may begin what is newer than all that counts. */
static bool may_be_newer(const struct plx_scan *scan, uint32_t segment, unsigned m)
{
    const struct plx_ring_part *part = &scan->ring->parts[segment];
    const struct plx_ring_segment *head = &part->head[m], *proof = &scan->proof_head;

    if (!plx_scan_uses(scan, m) || part->use == PLX_RING_BAD || !part->whole[m] ||
        !plx_uuid_equal(&head->vdi, &scan->options->vdi))
        return false;
    return !plx_ring_is_marked(&scan->options->mark) ||
           (head->proof != proof->proof &&
            (head->epoch > proof->epoch ||
             (head->epoch == proof->epoch && head->first_seq >= proof->first_seq)));
}

/* The batch, in the segment on the shelf, lies behind the position, and is a header's
 * (SCAN_JUDGE-3). */
static bool is_newer(const struct plx_scan *scan, const struct plx_ring_batch *batch)
{
    const struct plx_ring_position *position = &scan->options->position;
    bool is = false;

    for (unsigned m = 0; m < scan->ring->count; m++)
        is |= may_be_newer(scan, scan->shelved, m) &&
              scan->ring->parts[scan->shelved].head[m].proof == batch->proof;
    return is && (batch->epoch > position->epoch ||
                  (batch->epoch == position->epoch && batch->first_seq > position->seq));
}

/* Records in the segment on the shelf, of batches that are newer. */
static uint64_t count_in(const struct plx_scan *scan, unsigned m)
{
    size_t bytes = PLX_BLOCK_SIZE, left;
    struct plx_ring_batch batch;
    uint64_t records = 0, hash;

    for (size_t at = PLX_BLOCK_SIZE; at < scan->ring->segment_bytes; at += bytes) {
        left = scan->ring->segment_bytes - at;
        bytes = PLX_BLOCK_SIZE;
        if (plx_format_ring_batch_head(scan->shelf[m] + at, left, &batch) ||
            batch.vdi != scan->word ||
            plx_format_ring_batch_decode(scan->shelf[m] + at, left, &scan->ring->id, &batch, &hash))
            continue;
        bytes = batch.bytes;
        if (is_newer(scan, &batch))
            records += batch.records;
    }
    return records;
}

int plx_scan_count_newer(struct plx_scan *scan, uint64_t *ret_records)
{
    const struct plx_ring *ring = scan->ring;
    int error = 0;

    for (uint32_t s = 0; s < ring->segments && !error; s++) {
        uint64_t most = 0;
        bool may = false;

        for (unsigned m = 0; m < ring->count; m++)
            may |= may_be_newer(scan, s, m);
        if (!may)
            continue;
        error = plx_scan_shelve(scan, s);
        for (unsigned m = 0; m < ring->count && !error; m++)
            if (plx_scan_uses(scan, m))
                most = plx_max_u64(most, count_in(scan, m));
        *ret_records += most;
    }
    return error;
}

/* Of the segment on the shelf. */
static void find_newest_in(const struct plx_scan *scan, unsigned m,
                           struct plx_ring_position *newest)
{
    const struct plx_ring_part *part = &scan->ring->parts[scan->shelved];
    struct plx_ring_batch batch;
    uint64_t last, hash;

    for (size_t at = PLX_BLOCK_SIZE; at < scan->ring->segment_bytes; at += PLX_BLOCK_SIZE) {
        size_t left = scan->ring->segment_bytes - at;

        if (plx_format_ring_batch_head(scan->shelf[m] + at, left, &batch) ||
            batch.vdi != scan->word || batch.proof != part->head[m].proof) /* SCAN_JUDGE-3 */
            continue;
        last = batch.first_seq + batch.records - 1;
        if ((batch.epoch > newest->epoch || (batch.epoch == newest->epoch && last > newest->seq)) &&
            plx_format_ring_batch_decode(scan->shelf[m] + at, left, &scan->ring->id, &batch,
                                         &hash) == 0)
            *newest = (struct plx_ring_position){.epoch = batch.epoch, .seq = last};
    }
}

int plx_scan_find_newest(struct plx_scan *scan, struct plx_ring_position *newest)
{
    int error = 0;

    for (uint32_t s = 0; s < scan->ring->segments && !error; s++) {
        const struct plx_ring_part *part = &scan->ring->parts[s];

        if (!plx_ring_part_is_of(scan->ring, s, &scan->options->vdi))
            continue;
        error = plx_scan_shelve(scan, s);
        for (unsigned m = 0; m < scan->ring->count && !error; m++)
            if (plx_scan_uses(scan, m) && part->whole[m])
                find_newest_in(scan, m, newest);
    }
    return error;
}

/* SCAN_JUDGE-4 */
static int look_where_it_leads(struct plx_scan *scan)
{
    bool other = scan->count && scan->proof != scan->options->mark.proof;

    if (other && (scan->next > scan->proof_first ||
                  (scan->next == scan->proof_first && scan->hash != scan->proof_prev_hash)))
        return plx_fault_set(scan->fault, PLX_ERR_CORRUPT,
                             "%s: the writes before record %llu are not those that the ones behind "
                             "it follow",
                             scan->ring->members[0].device->name,
                             (unsigned long long)scan->proof_first);
    return 0;
}

int plx_scan_judge(struct plx_scan *scan)
{
    uint64_t newer = 0;
    int error = look_for_holes(scan);

    if (!error)
        error = look_for_position(scan);
    if (!error)
        error = look_where_it_leads(scan);
    if (!error)
        error = plx_scan_count_newer(scan, &newer);
    if (!error && newer) /* SCAN_JUDGE-2 */
        error = plx_fault_set(scan->fault, PLX_ERR_CORRUPT,
                              "%s: there are %llu records that are newer than what the store knows "
                              "of: the store was put back to an older state, then put the newer "
                              "store back, or one of them is a copy that was used elsewhere",
                              scan->ring->members[0].device->name, (unsigned long long)newer);
    return error;
}
