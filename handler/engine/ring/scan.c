/* scan.c - what is on the ring of a disk: found by its chain, made durable, given back.
 *
 * SCAN-1  A batch is of the chain if it has the number, the epoch and the hash that continue it.
 *     It lies behind the batch before it, or is the first one of a segment whose header says so; of
 *     two such segments the one of the higher epoch counts, because its writer has looked at the
 *     other one and found that nothing of it was durable.
 * SCAN-2  The chain is entered where the position is. Its epoch tells the segment: an older epoch
 *     may have left batches with the same numbers, whole, behind one that was lost. Within an epoch
 *     segments follow each other, so the last one that begins before the position has it.
 * SCAN-3  A hole is damage if a batch anywhere says that it was durable. Without such a batch, what
 *     is behind the hole was never done (CHAIN-3).
 * SCAN-4  Of two members, each batch is taken from whoever has it. A block that cannot be read may
 *     be a part of the chain: unless something else continues it, that is an error.
 * SCAN-5  What is read is not thereby durable: all that is behind the newest durable record, and
 *     all that a member lacks, is written again where it lies, on all members, and flushed, before
 *     anybody learns that it was found.
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
    if (error)
        return plx_fault_set(scan->fault, error, "%s", plx_error_text(error));
    scan->next = batch->first_seq + batch->records;
    scan->batches[scan->count++] = (struct plx_scanned){
        scan->shelved, at, batch->bytes, sight->have, scan->next - 1,
    };
    scan->bytes += batch->bytes;
    scan->durable = plx_max_u64(scan->durable, batch->durable_seq);
    scan->epoch = batch->epoch;
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

/* The segment, by any member's header, that is the last of this epoch to begin at or before the
 * position. */
static uint32_t segment_of_position(const struct plx_scan *scan)
{
    const struct plx_ring_position *position = &scan->options->position;
    uint32_t best = PLX_RING_NOWHERE;
    uint64_t first_seq = 0;

    for (uint32_t s = 0; s < scan->ring->segments; s++)
        for (unsigned m = 0; m < scan->ring->count; m++) {
            const struct plx_ring_part *part = &scan->ring->parts[s];
            const struct plx_ring_segment *head = &part->head[m];

            if (plx_scan_uses(scan, m) && part->whole[m] &&
                plx_uuid_equal(&head->vdi, &scan->options->vdi) && head->epoch == position->epoch &&
                head->first_seq <= position->seq && head->first_seq > first_seq) {
                best = s;
                first_seq = head->first_seq;
            }
        }
    return best;
}

/* SCAN-2. Looks for the batch that has the position's record, or begins behind it. What is before
 * it is on the store, so whether it is whole does not matter. */
static int enter(struct plx_scan *scan)
{
    const struct plx_ring_position *position = &scan->options->position;
    struct plx_scan_wanted wanted = {.epoch = position->epoch};
    bool unreadable = false;
    struct plx_scan_sight sight;
    int error;

    scan->entered = segment_of_position(scan);
    if (scan->entered == PLX_RING_NOWHERE)
        return 0;
    error = plx_scan_shelve(scan, scan->entered);
    for (uint32_t at = PLX_BLOCK_SIZE; at < scan->ring->segment_bytes && !error;
         at += PLX_BLOCK_SIZE)
        for (unsigned m = 0; m < scan->ring->count; m++) {
            struct plx_ring_batch batch;

            if (!plx_scan_uses(scan, m))
                continue;
            unreadable |= scan->unreadable[m][at / PLX_BLOCK_SIZE];
            if (plx_format_ring_batch_head(scan->shelf[m] + at, scan->ring->segment_bytes - at,
                                           &batch) ||
                batch.first_seq > position->seq + 1 ||
                batch.first_seq + batch.records <= position->seq)
                continue;
            wanted.first_seq = batch.first_seq;
            if (plx_scan_look(scan, at, &wanted, &sight) != PLX_SCAN_PRESENT)
                continue;
            if (sight.batch.first_seq + sight.batch.records > scan->next &&
                is_claimed(scan, position->epoch))
                return take_batch(scan, &sight, at);
            if (sight.batch.first_seq > position->seq)
                continue;
            scan->hash = sight.hash;
            scan->hash_known = true;
            if (!is_claimed(scan, position->epoch))
                return 0;
            scan->segment = scan->shelved;
            scan->at = at + sight.batch.bytes;
            return 0;
        }
    if (unreadable && !error)
        error = plx_fault_set(scan->fault, PLX_ERR_IO_READ,
                              "%s: a block of segment %u cannot be read, so nobody can tell which "
                              "writes follow record %llu",
                              scan->ring->members[0].device->name, scan->entered,
                              (unsigned long long)position->seq);
    return error;
}

/* The next candidate after (epoch, segment) in the order of SCAN-1. */
static bool next_candidate(const struct plx_scan *scan, uint64_t *epoch, uint32_t *segment,
                           uint64_t *ret_prev_hash)
{
    uint64_t best_epoch = 0, prev_hash = 0;
    uint32_t best = PLX_RING_NOWHERE;

    for (uint32_t s = 0; s < scan->ring->segments; s++)
        for (unsigned m = 0; m < scan->ring->count; m++) {
            const struct plx_ring_part *part = &scan->ring->parts[s];
            const struct plx_ring_segment *head = &part->head[m];

            if (!plx_scan_uses(scan, m) || !part->whole[m] || head->first_seq != scan->next ||
                !plx_uuid_equal(&head->vdi, &scan->options->vdi) || head->epoch < scan->epoch ||
                !is_claimed(scan, head->epoch) ||
                (scan->hash_known && head->prev_hash != scan->hash))
                continue;
            if (head->epoch > *epoch || (head->epoch == *epoch && s <= *segment))
                continue; /* was tried */
            if (best != PLX_RING_NOWHERE && head->epoch <= best_epoch)
                continue;
            best = s;
            best_epoch = head->epoch;
            prev_hash = head->prev_hash;
        }
    if (best == PLX_RING_NOWHERE)
        return false;
    *epoch = best_epoch;
    *segment = best;
    *ret_prev_hash = prev_hash;
    return true;
}

static int begin_segment(struct plx_scan *scan, bool *ret_more, bool *unreadable)
{
    struct plx_scan_wanted wanted = {
        .epoch = UINT64_MAX, .first_seq = scan->next, .hash_known = true};
    uint32_t segment = 0;
    int error = 0;

    *ret_more = false;
    while (!error && !*ret_more &&
           next_candidate(scan, &wanted.epoch, &segment, &wanted.prev_hash)) {
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
        struct plx_scan_wanted wanted = {scan->epoch, scan->next, scan->hash, scan->hash_known};
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
    if (!error && unreadable)
        error = plx_fault_set(scan->fault, PLX_ERR_IO_READ,
                              "%s: a block that cannot be read may have record %llu and others",
                              scan->ring->members[0].device->name, (unsigned long long)scan->next);
    return error;
}

/* ---- Holes ---- */

/* Whether what is behind the end of the chain may lie in the segment. Segments that an epoch filled
 * before the end are left out. */
static bool may_cover(const struct plx_scan *scan, uint32_t s, uint64_t epoch)
{
    const struct plx_ring_part *part = &scan->ring->parts[s];
    bool may = part->use == PLX_RING_BAD || s == scan->segment || s == scan->entered;

    for (unsigned m = 0; m < scan->ring->count && !may; m++)
        may = plx_scan_uses(scan, m) && part->whole[m] &&
              plx_uuid_equal(&part->head[m].vdi, &scan->options->vdi) &&
              part->head[m].epoch >= epoch &&
              (part->head[m].first_seq >= scan->next || part->head[m].epoch > scan->epoch);
    return may;
}

/* SCAN-3 */
static int look_for_holes(struct plx_scan *scan)
{
    uint64_t epoch = plx_max_u64(scan->epoch, scan->first_epoch);
    int error = 0;

    for (uint32_t s = 0; s < scan->ring->segments && !error; s++) {
        uint64_t durable;

        if (!may_cover(scan, s, epoch))
            continue;
        error = plx_scan_shelve(scan, s);
        durable = error ? 0 : plx_scan_newest_durable(scan, epoch);
        if (durable >= scan->next)
            error = plx_fault_set(scan->fault, PLX_ERR_CORRUPT,
                                  "%s: writes that were acknowledged are missing: record %llu and "
                                  "others, up to %llu or more (segment %u)",
                                  scan->ring->members[0].device->name,
                                  (unsigned long long)scan->next, (unsigned long long)durable, s);
    }
    return error;
}

/* ---- Making durable ---- */

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
            head.vdi == scan->word && head.first_seq + head.records == batch->last_seq + 1)
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
        struct plx_ring_segment header = {scan->options->vdi, head.epoch, head.first_seq,
                                          head.prev_hash};

        plx_format_ring_segment_encode(&ring->id, &header, buffer);
        for (unsigned m = 0; m < ring->count; m++) {
            ring->parts[batch->segment].head[m] = header;
            ring->parts[batch->segment].whole[m] = true;
        }
        offset -= PLX_BLOCK_SIZE;
        count += PLX_BLOCK_SIZE;
    }
    for (unsigned m = 0; m < ring->count; m++) {
        if (!plx_scan_uses(scan, m))
            continue;
        error = plx_ring_transfer_sync(ring, m, PLX_IO_WRITE, offset,
                                       buffer + (batch->at == PLX_BLOCK_SIZE ? 0 : PLX_BLOCK_SIZE),
                                       count);
        if (error)
            plx_ring_member_lost(ring, m, error);
    }
    free(buffer);
    return ring->sticky;
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
    if (!error && written && (error = plx_ring_flush_members(scan->ring)) != 0)
        plx_fault_set(scan->fault, error, "%s: %s", scan->ring->members[0].device->name,
                      plx_error_text(error));
    return error;
}

/* ---- Opening ---- */

static int scan_init(struct plx_scan *scan, struct plx_ring *ring,
                     const struct plx_ring_chain_options *options, struct plx_fault *fault)
{
    *scan = (struct plx_scan){
        .ring = ring,
        .options = options,
        .fault = fault,
        .word = plx_format_vdi_word(&options->vdi),
        .shelved = PLX_RING_NOWHERE,
    };
    for (unsigned m = 0; m < ring->count; m++) {
        scan->shelf[m] = malloc(ring->segment_bytes);
        scan->unreadable[m] = calloc(plx_scan_blocks(scan), sizeof(bool));
        if (!scan->shelf[m] || !scan->unreadable[m])
            return plx_scan_nomem(fault);
    }
    return 0;
}

static void scan_done(struct plx_scan *scan)
{
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
    scan->segment = scan->entered = PLX_RING_NOWHERE;
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

/* What is behind the position and was discarded, if anything: only what is older than `since`. */
static int scan_aside(struct plx_scan *scan, struct plx_ring_look *look)
{
    const struct plx_ring_chain_options *options = scan->options;

    scan->count = 0;
    if (options->position.epoch >= options->since)
        return 0;
    return scan_run(scan, 0, options->since - 1, count_aside, look);
}

static int scan_claimed(struct plx_scan *scan)
{
    const struct plx_ring_chain_options *options = scan->options;
    int error = scan_run(scan, options->since, UINT64_MAX, options->found, options->context);

    return error ? error : look_for_holes(scan);
}

int plx_ring_chain_look(struct plx_ring *ring, const struct plx_ring_chain_options *options,
                        struct plx_ring_look *ret_look, struct plx_fault *fault)
{
    struct plx_ring_look look_now = {.first = options->position.seq + 1};
    struct plx_scan scan;
    int error = scan_init(&scan, ring, options, fault);

    if (!error)
        error = scan_aside(&scan, &look_now);
    if (!error)
        error = scan_claimed(&scan);
    look_now.last = scan.next - 1;
    look_now.bytes = scan.bytes;
    scan_done(&scan);
    if (!error)
        *ret_look = look_now;
    return error;
}

static void mark_aside(struct plx_scan *scan)
{
    for (size_t i = 0; i < scan->count; i++)
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
    if (options->epoch <= options->position.epoch || options->epoch < options->since)
        return plx_fault_set(fault, PLX_ERR_CORRUPT,
                             "the disk's epoch %llu is not newer than what it has from the ring",
                             (unsigned long long)options->epoch);
    for (const struct plx_ring_chain *c = ring->chains; c; c = c->next)
        if (plx_uuid_equal(&c->vdi, &options->vdi))
            return plx_fault_set(fault, PLX_ERR_BUSY, "the disk's part of the ring is open");
    if (ring->sticky)
        return plx_fault_set(fault, PLX_ERR_STICKY, "%s: the ring has stopped: %s",
                             ring->members[0].device->name, plx_error_text(ring->sticky));
    return 0;
}

int plx_ring_chain_open(struct plx_ring *ring, const struct plx_ring_chain_options *options,
                        struct plx_ring_chain **ret_chain, struct plx_fault *fault)
{
    struct plx_ring_chain *chain = calloc(1, sizeof *chain);
    struct plx_ring_look look_now = {0};
    struct plx_scan scan = {0}, aside = {0};
    int error = may_open(ring, options, fault);

    if (!error && !chain)
        error = plx_scan_nomem(fault);
    if (!error)
        error = scan_init(&aside, ring, options, fault);
    if (!error)
        error = scan_aside(&aside, &look_now);
    if (!error)
        error = scan_init(&scan, ring, options, fault);
    if (!error)
        error = scan_claimed(&scan);
    if (!error && scan.count && scan.epoch >= options->epoch)
        error = plx_fault_set(fault, PLX_ERR_CORRUPT,
                              "%s: there are records of epoch %llu, and the disk was opened with "
                              "epoch %llu: the store is older than the ring",
                              ring->members[0].device->name, (unsigned long long)scan.epoch,
                              (unsigned long long)options->epoch);
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
            .hash = scan.hash,
            .set = options->set,
            .first = PLX_RING_NOWHERE,
            .current = PLX_RING_NOWHERE,
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
    return error;
}
