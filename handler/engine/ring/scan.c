/* scan.c - what is on the ring of a disk: found by its chain, made durable, given back.
 *
 * SCAN-1  A batch continues the chain if it begins with the next number, names the hash of the
 *     batch before it, and has the epoch and the proof of its segment. Along a chain epochs never
 *     fall: a segment of a lower epoch is passed over. The batch lies in one of two places:
 *     - directly behind the batch before it, in the same segment;
 *     - at the beginning of a segment whose header says so. If several do, the one of the highest
 *       epoch counts: its writer had scanned the others, and had found that nothing in them went
 *       on.
 *     Segments with another proof than the mark's count only for records before the first of the
 *     mark's.
 * SCAN-2  The scan begins at the position's record, in a segment whose header has the position's
 *     epoch. A segment of another epoch may have the same numbers, in whole batches behind one that
 *     was lost. Within an epoch segments follow each other. So it is the last one that does not
 *     begin behind the position. Two may begin with the same record: one that got a proof and no
 *     records, and the next proof's. Then both are looked through.
 * SCAN-4  With two members, each batch is read from a member that has it. A block that cannot be
 *     read may be a part of the chain. So the scan fails if the chain ends there and nothing else
 *     continues it.
 * SCAN-5  What can be read is not thereby durable. So batches behind the newest record that is
 *     called durable, and batches that a member lacks, are written again where they lie, on all
 *     members, and flushed. Only then does anybody learn that they were found. If a member is lost
 *     meanwhile, the survivor has its new set before that, too. Otherwise a later opening could
 *     believe the lost member, which lacks them.
 * SCAN-7  The newest header with the mark's proof is written again, too, on all members. What was
 *     read of it may not be durable. Until it is, an older segment with that proof is kept to prove
 *     the ring (CHAIN-7); then that one is free.
 * SCAN-8  A segment that begins directly behind the position continues the chain in two more cases:
 *     - Its header names no batch before it. Its writer did not know the hash of the position's
 *       batch, because that batch's segment had a header that could not be read then.
 *     - This scan does not find the position's batch, so it has no hash to compare a header with.
 *     A header that names another hash than the one that this scan knows is passed over.
 * Whether that is all, scan_judge.c tells.
 * Loop: the ring's. Calls are synchronous; other chains go on meanwhile.
 * Crash story: what is written again is what lies there already, or what another member has.
 */
#include <stdio.h>

#include "engine/base/list.h"
#include "engine/ring/scan_inside.h"

static unsigned all_members(const struct plx_scan *scan)
{
    unsigned all = 0;

    for (unsigned m = 0; m < PLX_RING_MEMBERS; m++)
        all |= plx_scan_uses(scan, m) ? 1u << m : 0;
    return all;
}

/* ---- The chain ---- */

/* Gives back the records of a batch that are behind the position. */
static int take_records(struct plx_scan *scan, const struct plx_scan_sight *sight, uint32_t at)
{
    const struct plx_ring_batch *batch = &sight->batch;
    uint64_t offset = plx_ring_offset(scan->ring, scan->shelved) + at;
    size_t data_at = plx_ring_batch_data_at(batch->records), before;
    int error = 0;

    for (uint32_t i = 0; i < batch->records && !error; i++) {
        struct plx_ring_found found = {
            .epoch = batch->epoch, .seq = batch->first_seq + i, .time_ns = batch->time_ns};

        before = data_at;
        error = plx_format_ring_record_decode(sight->bytes, batch, i, &data_at, &found.record);
        if (error || found.seq < scan->next)
            continue;
        if (data_at != before) {
            found.place = (struct plx_ring_place){offset + before, (uint32_t)found.record.blocks,
                                                  found.record.hash};
            found.data = sight->bytes + before;
        }
        if (scan->found)
            error = scan->found(scan->context, &found);
    }
    return error;
}

/* The chain goes on with this batch, in the segment on the shelf. */
static int take_batch(struct plx_scan *scan, const struct plx_scan_sight *sight, uint32_t at)
{
    const struct plx_ring_batch *batch = &sight->batch;
    int error;

    if (!PLX_LIST_ROOM(scan->batches, scan->count, scan->capacity, 64))
        return plx_scan_nomem(scan->fault);
    error = take_records(scan, sight, at);
    if (error && scan->fault && scan->fault->code == error)
        return error; /* whoever was given the record said more */
    if (error)
        return plx_fault_set(scan->fault, error, "%s", plx_error_text(error));
    scan->next = batch->first_seq + batch->records;
    scan->batches[scan->count++] = (struct plx_scanned){
        .segment = scan->shelved,
        .at = at,
        .bytes = batch->bytes,
        .have = sight->have,
        .last_seq = scan->next - 1,
        .hash = sight->hash,
    };
    scan->bytes += batch->bytes;
    scan->durable = plx_max_u64(scan->durable, batch->durable_seq);
    scan->epoch = batch->epoch;
    scan->proof = batch->proof;
    scan->hash = sight->hash;
    scan->hash_known = true;
    scan->segment = scan->shelved;
    scan->at = at + batch->bytes;
    return 0;
}

static bool is_claimed(const struct plx_scan *scan, uint64_t epoch)
{
    return epoch >= scan->first_epoch && epoch <= scan->last_epoch;
}

/* SCAN-1: the proof in the mark is that of all records from its first one on. */
static bool is_ours(const struct plx_scan *scan, const struct plx_ring_segment *head)
{
    return scan->proof_part == PLX_RING_NOWHERE || head->epoch < scan->options->mark.since ||
           head->first_seq < scan->proof_first || head->proof == scan->options->mark.proof;
}

/* By this member's header: the segment's first record, if of the position's epoch, or 0. */
static uint64_t begin_of(const struct plx_scan *scan, uint32_t segment, unsigned m)
{
    const struct plx_ring_part *part = &scan->ring->parts[segment];
    const struct plx_ring_segment *head = &part->head[m];

    return plx_scan_uses(scan, m) && part->whole[m] &&
                   head->epoch == scan->options->position.epoch &&
                   plx_uuid_equal(&head->vdi, &scan->options->vdi) && is_ours(scan, head)
               ? head->first_seq
               : 0;
}

/* The highest first record of these segments that is not behind the position, or 0. */
static uint64_t begin_of_position(const struct plx_scan *scan)
{
    uint64_t last = 0;

    for (uint32_t s = 0; s < scan->ring->segments; s++)
        for (unsigned m = 0; m < scan->ring->count; m++)
            if (begin_of(scan, s, m) <= scan->options->position.seq)
                last = plx_max_u64(last, begin_of(scan, s, m));
    return last;
}

static bool is_entered(const struct plx_scan *scan, uint32_t segment)
{
    bool is = false;

    for (unsigned m = 0; m < scan->ring->count && scan->entered; m++)
        is |= begin_of(scan, segment, m) == scan->entered;
    return is;
}

/* Looks in a segment for the batch that has the position's record, or begins behind it. What is
 * before it is on the store, so whether it is whole does not matter. */
static int enter_segment(struct plx_scan *scan, uint32_t segment, bool *ret_found, bool *unreadable)
{
    const struct plx_ring_position *position = &scan->options->position;
    struct plx_scan_wanted wanted = {.epoch = position->epoch};
    struct plx_scan_sight sight;
    int error = plx_scan_shelve(scan, segment);

    for (uint32_t at = PLX_BLOCK_SIZE; at < scan->ring->segment_bytes && !error;
         at += PLX_BLOCK_SIZE)
        for (unsigned m = 0; m < scan->ring->count; m++) {
            struct plx_ring_batch batch;

            if (!plx_scan_uses(scan, m))
                continue;
            *unreadable |= scan->unreadable[m][at / PLX_BLOCK_SIZE];
            if (plx_format_ring_batch_head(scan->shelf[m] + at, scan->ring->segment_bytes - at,
                                           &batch) ||
                batch.first_seq > position->seq + 1 ||
                batch.first_seq + batch.records <= position->seq ||
                !plx_scan_has_proof(scan, segment, batch.proof))
                continue;
            wanted.first_seq = batch.first_seq;
            wanted.proof = batch.proof;
            if (plx_scan_look(scan, at, &wanted, &sight) != PLX_SCAN_PRESENT)
                continue;
            scan->position_have = sight.have;
            if (sight.batch.first_seq + sight.batch.records > scan->next &&
                is_claimed(scan, position->epoch)) {
                *ret_found = true;
                return take_batch(scan, &sight, at);
            }
            if (sight.batch.first_seq > position->seq)
                continue;
            *ret_found = true;
            scan->proof = sight.batch.proof;
            scan->hash = sight.hash;
            scan->hash_known = true;
            if (!is_claimed(scan, position->epoch))
                return 0;
            scan->segment = scan->shelved;
            scan->at = at + sight.batch.bytes;
            return 0;
        }
    return error;
}

/* SCAN-2 */
static int enter(struct plx_scan *scan)
{
    bool unreadable = false, found = false;
    int error = 0;

    scan->entered = begin_of_position(scan);
    for (uint32_t s = 0; s < scan->ring->segments && !error && !found; s++)
        if (is_entered(scan, s))
            error = enter_segment(scan, s, &found, &unreadable);
    scan->has_position = found;
    if (!error && !found && unreadable)
        error = plx_fault_set(scan->fault, PLX_ERR_IO_READ,
                              "%s: a block that cannot be read may have record %llu, so nobody can "
                              "tell which writes follow it",
                              scan->ring->members[0].device->name,
                              (unsigned long long)scan->options->position.seq);
    return error;
}

/* SCAN-8 */
static bool continues(const struct plx_scan *scan, const struct plx_ring_segment *head)
{
    return !scan->hash_known || head->prev_hash == scan->hash || (!scan->count && !head->prev_hash);
}

/* The next candidate after (epoch, segment) in the order of SCAN-1. */
static bool next_candidate(const struct plx_scan *scan, uint32_t *segment,
                           struct plx_scan_wanted *wanted)
{
    const struct plx_ring_segment *found = NULL;
    uint32_t best = PLX_RING_NOWHERE;

    for (uint32_t s = 0; s < scan->ring->segments; s++)
        for (unsigned m = 0; m < scan->ring->count; m++) {
            const struct plx_ring_part *part = &scan->ring->parts[s];
            const struct plx_ring_segment *head = &part->head[m];

            if (!plx_scan_uses(scan, m) || !part->whole[m] || head->first_seq != scan->next ||
                !plx_uuid_equal(&head->vdi, &scan->options->vdi) || head->epoch < scan->epoch ||
                !is_claimed(scan, head->epoch) || !is_ours(scan, head) || !continues(scan, head))
                continue;
            if (head->epoch > wanted->epoch || (head->epoch == wanted->epoch && s <= *segment))
                continue; /* was tried */
            if (found && head->epoch <= found->epoch)
                continue;
            best = s;
            found = head;
        }
    if (!found)
        return false;
    *segment = best;
    wanted->epoch = found->epoch;
    wanted->prev_hash = found->prev_hash;
    wanted->proof = found->proof;
    return true;
}

static int begin_segment(struct plx_scan *scan, bool *ret_more, bool *unreadable)
{
    struct plx_scan_wanted wanted = {
        .epoch = UINT64_MAX, .first_seq = scan->next, .hash_known = true};
    uint32_t segment = 0;
    int error = 0;

    *ret_more = false;
    while (!error && !*ret_more && next_candidate(scan, &segment, &wanted)) {
        struct plx_scan_sight sight;
        enum plx_scan_presence presence;

        error = plx_scan_shelve(scan, segment);
        if (error)
            return error;
        presence = plx_scan_look(scan, PLX_BLOCK_SIZE, &wanted, &sight);
        *unreadable |= presence == PLX_SCAN_UNREADABLE;
        if (presence != PLX_SCAN_PRESENT)
            continue;
        error = take_batch(scan, &sight, PLX_BLOCK_SIZE);
        *ret_more = !error;
    }
    return error;
}

static int follow(struct plx_scan *scan)
{
    bool more = true, unreadable = false;
    int error = enter(scan);

    while (!error && more) {
        struct plx_scan_wanted wanted = {scan->epoch, scan->next, scan->hash, scan->proof,
                                         scan->hash_known};
        struct plx_scan_sight sight;
        enum plx_scan_presence presence = PLX_SCAN_ABSENT;

        unreadable = false;
        if (scan->segment != PLX_RING_NOWHERE) {
            error = plx_scan_shelve(scan, scan->segment);
            if (!error)
                presence = plx_scan_look(scan, scan->at, &wanted, &sight);
        }
        unreadable = presence == PLX_SCAN_UNREADABLE;
        if (error)
            break;
        if (presence == PLX_SCAN_PRESENT)
            error = take_batch(scan, &sight, scan->at);
        else
            error = begin_segment(scan, &more, &unreadable);
    }
    if (!error && (unreadable || scan->unknown))
        error = plx_fault_set(scan->fault, PLX_ERR_IO_READ,
                              "%s: a block that cannot be read may have record %llu and others",
                              scan->ring->members[0].device->name, (unsigned long long)scan->next);
    return error;
}

/* ---- Making durable ---- */

/* The segment has this header from now on, on all members, when the block is written. */
static void put_header(struct plx_scan *scan, uint32_t segment,
                       const struct plx_ring_segment *header, uint8_t *block)
{
    struct plx_ring_part *part = &scan->ring->parts[segment];

    plx_format_ring_segment_encode(&scan->ring->id, header, block);
    for (unsigned m = 0; m < scan->ring->count; m++) {
        part->head[m] = *header;
        part->whole[m] = true;
    }
}

static int write_all(struct plx_scan *scan, uint32_t segment, uint64_t offset, uint8_t *bytes,
                     size_t count)
{
    struct plx_ring *ring = scan->ring;

    for (unsigned m = 0; m < ring->count; m++) {
        int error = plx_scan_uses(scan, m)
                        ? plx_ring_transfer_sync(ring, m, PLX_IO_WRITE, offset, bytes, count)
                        : 0;

        if (error)
            plx_ring_member_lost(ring, m, error);
    }
    plx_ring_part_changed(ring, segment);
    return ring->sticky;
}

static int write_again(struct plx_scan *scan, const struct plx_scanned *batch)
{
    struct plx_ring *ring = scan->ring;
    uint64_t offset = plx_ring_offset(ring, batch->segment) + batch->at;
    uint8_t *bytes = NULL, *buffer;
    struct plx_ring_batch head;
    size_t count = batch->bytes;
    uint64_t hash;
    int error = plx_scan_shelve(scan, batch->segment);

    for (unsigned m = 0; m < ring->count && !error && !bytes; m++)
        if (plx_scan_uses(scan, m) &&
            plx_format_ring_batch_decode(scan->shelf[m] + batch->at, batch->bytes, &ring->id, &head,
                                         &hash) == 0 &&
            hash == batch->hash) /* an older epoch's may have the same numbers */
            bytes = scan->shelf[m] + batch->at;
    if (!error && !bytes)
        error = plx_fault_set(scan->fault, PLX_ERR_IO_READ,
                              "%s: segment %u reads as something else than before",
                              ring->members[0].device->name, batch->segment);
    buffer = error ? NULL : malloc(count + PLX_BLOCK_SIZE);
    if (error || !buffer)
        return error ? error : plx_scan_nomem(scan->fault);
    memcpy(buffer + PLX_BLOCK_SIZE, bytes, count);
    if (batch->at == PLX_BLOCK_SIZE) {
        put_header(scan, batch->segment,
                   &(struct plx_ring_segment){scan->options->vdi, head.epoch, head.first_seq,
                                              head.prev_hash, head.proof, head.durable_seq},
                   buffer);
        offset -= PLX_BLOCK_SIZE;
        count += PLX_BLOCK_SIZE;
    }
    error = write_all(scan, batch->segment, offset,
                      buffer + (batch->at == PLX_BLOCK_SIZE ? 0 : PLX_BLOCK_SIZE), count);
    free(buffer);
    return error;
}

/* SCAN-7 */
static int write_proof_again(struct plx_scan *scan)
{
    struct plx_ring *ring = scan->ring;
    uint8_t *block = malloc(PLX_BLOCK_SIZE);
    int error;

    if (!block)
        return plx_scan_nomem(scan->fault);
    put_header(scan, scan->proof_part, &scan->proof_head, block);
    error = write_all(scan, scan->proof_part, plx_ring_offset(ring, scan->proof_part), block,
                      PLX_BLOCK_SIZE);
    free(block);
    return error;
}

/* SCAN-5 */
static int make_durable(struct plx_scan *scan)
{
    unsigned all = all_members(scan);
    bool written = false;
    int error = 0;

    for (size_t i = 0; i < scan->count && !error; i++)
        if (scan->batches[i].last_seq > scan->durable || scan->batches[i].have != all) {
            error = write_again(scan, &scan->batches[i]);
            written = true;
        }
    if (!error && scan->proof_part != PLX_RING_NOWHERE) {
        error = write_proof_again(scan);
        written = true;
    }
    if (!error && written)
        error = plx_ring_flush_members(scan->ring);
    plx_ring_settle_set(scan->ring);
    if (scan->ring->sticky)
        error =
            plx_fault_set(scan->fault, scan->ring->sticky, "%s: %s",
                          scan->ring->members[0].device->name, plx_error_text(scan->ring->sticky));
    return error;
}

/* ---- Opening ---- */

static uint64_t since_of(const struct plx_ring_chain_options *options)
{
    return plx_ring_is_marked(&options->mark) ? options->mark.since : options->epoch;
}

static int scan_init(struct plx_scan *scan, struct plx_ring *ring,
                     const struct plx_ring_chain_options *options, struct plx_fault *fault)
{
    int error;

    *scan = (struct plx_scan){
        .ring = ring,
        .options = options,
        .fault = fault,
        .word = plx_format_vdi_word(&options->vdi),
        .shelved = PLX_RING_NOWHERE,
    };
    error = plx_scan_find_proof(scan);
    if (error)
        return error;
    for (unsigned m = 0; m < ring->count; m++) {
        scan->shelf[m] = malloc(ring->segment_bytes);
        scan->unreadable[m] = calloc(plx_scan_blocks(scan), sizeof(bool));
        if (!scan->shelf[m] || !scan->unreadable[m])
            return plx_scan_nomem(fault);
    }
    return plx_scan_adopt(scan);
}

static void scan_done(struct plx_scan *scan)
{
    plx_scan_disown(scan);
    for (unsigned m = 0; m < PLX_RING_MEMBERS; m++) {
        free(scan->shelf[m]);
        free(scan->unreadable[m]);
    }
    free(scan->batches);
}

/* Records of epochs first_epoch to last_epoch behind the position. */
static int scan_run(struct plx_scan *scan, uint64_t first_epoch, uint64_t last_epoch,
                    int (*found)(void *context, const struct plx_ring_found *found), void *context)
{
    scan->first_epoch = first_epoch;
    scan->last_epoch = last_epoch;
    scan->found = found;
    scan->context = context;
    scan->next = scan->options->position.seq + 1;
    scan->epoch = scan->options->position.epoch;
    scan->hash_known = false;
    scan->hash = 0;
    scan->segment = PLX_RING_NOWHERE;
    scan->entered = 0;
    scan->durable = scan->options->position.seq;
    scan->count = 0;
    scan->bytes = 0;
    return follow(scan);
}

static int count_aside(void *context, const struct plx_ring_found *found)
{
    struct plx_ring_look *look = context;

    if (!look->aside++)
        look->aside_from_ns = found->time_ns;
    look->aside_to_ns = found->time_ns;
    return 0;
}

/* Counts what is not claimed: from before `since` (discarded), or of an unmarked disk (too new). */
static int scan_aside(struct plx_scan *scan, struct plx_ring_look *look)
{
    uint64_t since = since_of(scan->options);
    int error = 0;

    scan->count = 0;
    if (scan->options->position.epoch < since)
        error = scan_run(scan, 0, since - 1, count_aside, look);
    if (error || look->aside || plx_ring_is_marked(&scan->options->mark))
        return error;
    return plx_scan_count_newer(scan, &look->aside); /* RINGED-10 */
}

/* Without a mark nothing is claimed; only the hash that a new chain continues is looked for. */
static int scan_claimed(struct plx_scan *scan)
{
    const struct plx_ring_chain_options *options = scan->options;
    bool marked = plx_ring_is_marked(&options->mark);
    int error = scan_run(scan, marked ? options->mark.since : 1,
                         marked ? scan->proof_head.epoch : 0, options->found, options->context);

    return error || !marked ? error : plx_scan_judge(scan);
}

static int check_mark(const struct plx_ring *ring, const struct plx_ring_chain_options *options,
                      struct plx_fault *fault)
{
    return plx_ring_is_marked(&options->mark)
               ? plx_ring_check_mark(ring, &options->vdi, &options->mark, fault)
               : 0;
}

int plx_ring_chain_look(struct plx_ring *ring, const struct plx_ring_chain_options *options,
                        struct plx_ring_look *ret_look, struct plx_fault *fault)
{
    struct plx_ring_look look_now = {.first = options->position.seq + 1};
    struct plx_scan scan = {0};
    int error = check_mark(ring, options, fault);

    plx_ring_scan_begin(ring);
    if (!error)
        error = scan_init(&scan, ring, options, fault);
    error = error ? error : scan_aside(&scan, &look_now);
    error = error ? error : scan_claimed(&scan);
    look_now.last = scan.next - 1;
    look_now.bytes = scan.bytes;
    if (!error && plx_ring_is_marked(&options->mark))
        plx_scan_compare(&scan, &look_now);
    scan_done(&scan);
    plx_ring_scan_end(ring);
    if (!error)
        *ret_look = look_now;
    return error;
}

int plx_ring_count_newer(struct plx_ring *ring, const struct plx_ring_chain_options *options,
                         uint64_t *ret_records, struct plx_fault *fault)
{
    struct plx_ring_chain_options with = *options;
    struct plx_scan scan = {0};
    int error;

    if (check_mark(ring, options, NULL))
        with.mark = (struct plx_ring_mark){.set = 0};
    *ret_records = 0;
    plx_ring_scan_begin(ring);
    error = scan_init(&scan, ring, &with, fault);
    error = error ? error : plx_scan_count_newer(&scan, ret_records);
    scan_done(&scan);
    plx_ring_scan_end(ring);
    return error;
}

int plx_ring_newest(struct plx_ring *ring, const struct plx_uuid *vdi,
                    struct plx_ring_position *ret_newest, struct plx_fault *fault)
{
    const struct plx_ring_chain_options options = {.vdi = *vdi};
    struct plx_scan scan = {0};
    int error;

    *ret_newest = (struct plx_ring_position){0};
    plx_ring_scan_begin(ring);
    error = scan_init(&scan, ring, &options, fault);
    error = error ? error : plx_scan_find_newest(&scan, ret_newest);
    scan_done(&scan);
    plx_ring_scan_end(ring);
    return error;
}

static void mark_aside(struct plx_scan *scan)
{
    for (size_t i = 0; i < scan->count; i++) /* but for those that were adopted: PARTS-2 */
        if (scan->ring->parts[scan->batches[i].segment].use != PLX_RING_BAD)
            scan->ring->parts[scan->batches[i].segment].use = PLX_RING_ASIDE;
}

/* All segments of the disk are the chain's, aside, or free. */
static void settle_parts(struct plx_scan *scan, struct plx_ring_chain *chain)
{
    struct plx_ring *ring = scan->ring;

    for (size_t i = 0; i < scan->count; i++) {
        const struct plx_scanned *batch = &scan->batches[i];

        if (!chain->segments || chain->current != batch->segment)
            plx_ring_chain_add(chain, batch->segment, batch->last_seq);
        ring->parts[batch->segment].last_seq = batch->last_seq;
    }
    if (chain->named_part != PLX_RING_NOWHERE &&
        ring->parts[chain->named_part].use != PLX_RING_CHAINED) /* CHAIN-7 */
        plx_ring_chain_add(chain, chain->named_part, chain->last_seq);
    for (uint32_t s = 0; s < ring->segments; s++)
        if (ring->parts[s].use == PLX_RING_UNKNOWN && plx_ring_part_is_of(ring, s, &chain->vdi))
            plx_ring_part_settle(ring, s, &chain->vdi);
}

static void link_chain(struct plx_ring *ring, struct plx_ring_chain *chain)
{
    if (ring->chains)
        ring->last_chain->next = chain;
    else
        ring->chains = chain;
    ring->last_chain = chain;
}

static int may_open(const struct plx_ring *ring, const struct plx_ring_chain_options *options,
                    struct plx_fault *fault)
{
    PLX_ASSERT(!ring->options.read_only && !plx_uuid_is_zero(&options->vdi));
    if ((options->epoch <= options->position.epoch && !plx_ring_goes_on(ring, options)) ||
        options->epoch < since_of(options))
        return plx_fault_set(fault, PLX_ERR_CORRUPT,
                             "the disk's epoch %llu is not newer than what it has from the ring",
                             (unsigned long long)options->epoch);
    for (const struct plx_ring_chain *c = ring->chains; c; c = c->next)
        if (plx_uuid_equal(&c->vdi, &options->vdi))
            return plx_fault_set(fault, PLX_ERR_BUSY, "the disk's part of the ring is open");
    if (ring->sticky)
        return plx_fault_set(fault, PLX_ERR_STICKY, "%s: the ring has stopped: %s",
                             ring->members[0].device->name, plx_error_text(ring->sticky));
    return check_mark(ring, options, fault);
}

int plx_ring_chain_open(struct plx_ring *ring, const struct plx_ring_chain_options *options,
                        struct plx_ring_chain **ret_chain, struct plx_fault *fault)
{
    struct plx_ring_chain *chain = calloc(1, sizeof *chain);
    struct plx_ring_look look_now = {0};
    struct plx_scan scan = {0}, aside = {0};
    int error = may_open(ring, options, fault);

    plx_ring_scan_begin(ring);
    if (!error && !chain)
        error = plx_scan_nomem(fault);
    if (!error)
        error = scan_init(&aside, ring, options, fault);
    error = error ? error : scan_aside(&aside, &look_now);
    plx_scan_disown(&aside); /* or plx_scan_find_proof() would believe what was adopted */
    if (!error)
        error = scan_init(&scan, ring, options, fault);
    if (!error)
        error = scan_claimed(&scan);
    if (!error)
        error = make_durable(&scan);
    if (!error) {
        *chain = (struct plx_ring_chain){
            .ring = ring,
            .vdi = options->vdi,
            .epoch = options->epoch,
            .last_seq = scan.next - 1,
            .formed_seq = scan.next - 1,
            .durable_seq = scan.next - 1,
            .done_seq = scan.next - 1,
            .released_seq = options->position.seq,
            .aside = look_now.aside,
            .hash = scan.hash,
            .set = plx_ring_is_marked(&options->mark) ? options->mark.set : ring->set,
            .first = PLX_RING_NOWHERE,
            .current = PLX_RING_NOWHERE,
            .named_part = scan.proof_part,
            .proof_part = PLX_RING_NOWHERE,
        };
        mark_aside(&aside);
        settle_parts(&scan, chain);
        link_chain(ring, chain);
        *ret_chain = chain;
        chain = NULL;
    }
    free(chain);
    scan_done(&aside);
    scan_done(&scan);
    plx_ring_scan_end(ring);
    return error;
}
