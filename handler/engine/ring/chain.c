/* chain.c - what is appended to a disk's chain, made durable, done, and released.
 *
 * CHAIN-1  Group commit: while a batch of the chain is being written, items wait for the next one.
 *     Items that are enough for a batch by themselves (plx_ring_batch_enough()) do not wait. Then
 *     several batches are written at once, and become durable in any order. A batch is written to
 *     all members of the set.
 * CHAIN-2  A segment has records of one disk, one epoch and one proof, which each of its batches
 *     repeats. So each proof begins a segment, and nothing is written over what an earlier opening
 *     left. The header is written along with the segment's first batch, in one transfer. A header
 *     with a new proof is written alone. A proof is drawn at random, anew at each opening and each
 *     time the ring is turned on. So two segments with one proof come from the same history of this
 *     ring.
 * CHAIN-3  A batch is durable when a flush that began after it had been written has ended, on all
 *     members of the set, and all batches before it in the chain are durable. A batch, or a header,
 *     calls a record durable only if the record was done when the batch or header was formed. So
 *     the record was durable on every member of the set in the superblocks. After the loss of a
 *     member that is the old set, until the survivor's superblock has a new one. Until then nothing
 *     that the lost member may lack is called durable: a scan that finds the old set would believe
 *     it of both, and what is read from a disk whose flush failed proves nothing.
 * CHAIN-4  Items are done in order, each when its batch is durable. After the loss of a member,
 *     that waits until the new set is durable on the survivor and in the disk's mark (MEMBER-2).
 * CHAIN-5  A segment is free when all its records were released, and CHAIN-7 does not keep it.
 * CHAIN-6  One free segment is kept for each chain that has none, so a disk that cannot drain may
 *     fill the rest of the ring but never blocks another disk.
 * CHAIN-7  Nothing is appended before the disk's record names the chain's proof. That proof tells
 *     the ring from its older copies (PARTS-3). So of each proof that the record may name, the old
 *     one or the new one, the newest segment with a durable header is kept, even when all its
 *     records are released and the chain is closed. If the ring has no other segment, the chain
 *     goes on in that one. Then its new header is written alone, before any batch. A header lies in
 *     one sector, so the proof is there before and after. The new header repeats up to which record
 *     all was durable: the batches that said so are overwritten next (SCAN_JUDGE-5).
 * CHAIN-8  A batch of a few records is written from the memory of its items, if that is aligned,
 *     without a copy. So an item is not done, nor failed, before the transfers of its batch have
 *     ended on all members: from then on that memory is its owner's again.
 * CHAIN-9  Cancelled items leave a gap in the numbering. So this chain forms no further batch, for
 *     as long as it is open: the batch's records would be stored under the cancelled items' numbers
 *     but acknowledged under their own.
 * Loop: the ring's; nothing here blocks.
 * Crash story: a torn or lost batch was never done, nor was any batch behind it. Batches behind it
 *   may be whole on the medium; the chain of hashes does not lead to them. What lies further behind
 *   was left by earlier users of the segment, and has another proof or lower numbers. A header
 *   without a batch begins no records, and a segment of a later epoch overrules it. A header with a
 *   proof that no disk's record names is nobody's.
 */
#include "engine/ring/ring_inside.h"

static struct plx_ring_part *part_at(const struct plx_ring *ring, uint32_t segment)
{
    return &ring->parts[segment];
}

/* ---- Segments ---- */

void plx_ring_chain_add(struct plx_ring_chain *chain, uint32_t segment, uint64_t last_seq)
{
    struct plx_ring_part *part = part_at(chain->ring, segment);

    part->use = PLX_RING_CHAINED;
    part->last_seq = last_seq;
    part->next = PLX_RING_NOWHERE;
    if (chain->segments++)
        part_at(chain->ring, chain->current)->next = segment;
    else
        chain->first = segment;
    chain->current = segment;
}

static bool is_released(const struct plx_ring_chain *chain, uint32_t segment)
{
    return part_at(chain->ring, segment)->last_seq <= chain->released_seq;
}

/* CHAIN-7 */
static bool is_proof(const struct plx_ring_chain *chain, uint32_t segment)
{
    return segment == chain->named_part || segment == chain->proof_part;
}

static void free_first(struct plx_ring_chain *chain)
{
    uint32_t segment = chain->first;

    chain->first = part_at(chain->ring, segment)->next;
    chain->segments--;
    plx_ring_part_free(chain->ring, segment);
}

/* CHAIN-5 */
static void free_released(struct plx_ring_chain *chain)
{
    while (chain->segments && is_released(chain, chain->first) && !is_proof(chain, chain->first) &&
           !(chain->begun && chain->first == chain->current)) /* it gets more */
        free_first(chain);
}

void plx_ring_release(struct plx_ring_chain *chain, uint64_t seq)
{
    PLX_ASSERT(seq <= chain->done_seq);
    chain->released_seq = plx_max_u64(chain->released_seq, seq);
    free_released(chain);
}

/* CHAIN-6 */
static bool may_take(const struct plx_ring_chain *chain)
{
    uint32_t others = 0;

    for (const struct plx_ring_chain *c = chain->ring->chains; c; c = c->next)
        others += c != chain && !c->segments;
    return chain->ring->free_parts > (chain->segments ? others : 0);
}

/* CHAIN-7: the chain's only segment is taken anew. */
static bool may_take_own(const struct plx_ring_chain *chain)
{
    return chain->segments == 1 && is_released(chain, chain->first) && !chain->proving &&
           chain->proof_part == chain->first && chain->named_part == chain->first;
}

/* The chain goes on in a segment of its own epoch. The header goes to the buffer. *ret_own: it was
 * the chain's already (CHAIN-7). */
static bool take_segment(struct plx_ring_chain *chain, uint8_t *header, bool *ret_own)
{
    struct plx_ring *ring = chain->ring;
    struct plx_ring_segment head = {
        .vdi = chain->vdi,
        .epoch = chain->epoch,
        .first_seq = chain->formed_seq + 1,
        .prev_hash = chain->hash,
        .proof = chain->proof,
        .durable_seq = chain->done_seq, /* CHAIN-3 */
    };
    struct plx_ring_part *part;

    chain->begun = false;
    free_released(chain); /* the one that it leaves may have been kept for this only */
    *ret_own = !may_take(chain) && may_take_own(chain);
    if (*ret_own) {
        ring->cursor = chain->first;
        free_first(chain);
    }
    chain->full = !may_take(chain);
    if (chain->full)
        return false;
    while (part_at(ring, ring->cursor)->use != PLX_RING_FREE)
        ring->cursor = (ring->cursor + 1) % ring->segments;
    part = part_at(ring, ring->cursor);
    ring->free_parts--;
    for (unsigned m = 0; m < ring->count; m++) {
        part->head[m] = head;
        part->whole[m] = true;
        part->settled[m] = false;
    }
    plx_format_ring_segment_encode(&ring->id, &head, header);
    plx_ring_chain_add(chain, ring->cursor, head.first_seq);
    ring->cursor = (ring->cursor + 1) % ring->segments;
    chain->begun = true; /* CHAIN-2 */
    chain->at = PLX_BLOCK_SIZE;
    return true;
}

/* ---- Appending ---- */

static void push(struct plx_ring_item **head, struct plx_ring_item **tail,
                 struct plx_ring_item *item)
{
    item->next = NULL;
    if (*head)
        (*tail)->next = item;
    else
        *head = item;
    *tail = item;
}

static size_t data_bytes(const struct plx_ring_item *item)
{
    return item->record.type == PLX_RING_WRITE ? item->record.blocks * PLX_BLOCK_SIZE : 0;
}

void plx_ring_append(struct plx_ring_chain *chain, struct plx_ring_item *item)
{
    size_t bytes = data_bytes(item);

    PLX_ASSERT(chain->proof_part != PLX_RING_NOWHERE &&
               chain->named_part == chain->proof_part); /* CHAIN-7 */
    PLX_ASSERT(plx_ring_batch_data_at(1) + bytes <= plx_ring_batch_limit(chain->ring));
    PLX_ASSERT(item->record.type != PLX_RING_WRITE ||
               (bytes && item->record.blocks <= PLX_RING_WRITE_MAX));
    item->seq = ++chain->last_seq;
    item->error = 0;
    item->place = (struct plx_ring_place){0};
    push(&chain->waiting, &chain->last_waiting, item);
    chain->waiting_bytes += bytes;
}

/* How many of the items that wait fit into a batch of `room` bytes, and its bytes. */
static uint32_t fit(const struct plx_ring_chain *chain, size_t room, size_t *ret_bytes)
{
    uint32_t count = 0;
    size_t data = 0, bytes = 0;

    for (const struct plx_ring_item *i = chain->waiting; i && count < PLX_RING_RECORDS_MAX;
         i = i->next) {
        if (plx_ring_batch_data_at(count + 1) + data + data_bytes(i) > room)
            break;
        data += data_bytes(i);
        bytes = plx_ring_batch_data_at(++count) + data;
    }
    *ret_bytes = bytes;
    return count;
}

/* CHAIN-8. Of the first `count` that wait. */
static bool are_pieces(const struct plx_ring_chain *chain, uint32_t count)
{
    const struct plx_ring_item *item = chain->waiting;

    for (uint32_t i = 0; i < count; i++, item = item->next)
        if (data_bytes(item) && (item->iovcnt != 1 || item->iov[0].iov_len != data_bytes(item) ||
                                 (uintptr_t)item->iov[0].iov_base % PLX_BLOCK_SIZE))
            return false;
    return count <= PLX_RING_PIECES_MAX;
}

/* Takes the item's blocks into the batch, behind all that it has. Returns where they are. */
static const uint8_t *take_blocks(struct plx_ring_flight *flight, const struct plx_ring_item *item,
                                  bool pieces)
{
    struct iovec *first = &flight->pieces[0];
    uint8_t *to = (uint8_t *)first->iov_base + first->iov_len;

    if (pieces) {
        flight->pieces[flight->piece_count++] = item->iov[0];
        return item->iov[0].iov_base;
    }
    for (int i = 0; i < item->iovcnt; i++) {
        memcpy((uint8_t *)first->iov_base + first->iov_len, item->iov[i].iov_base,
               item->iov[i].iov_len);
        first->iov_len += item->iov[i].iov_len;
    }
    return to;
}

/* Puts the first `count` items that wait into the batch, which will lie at this offset. */
static void fill(struct plx_ring_chain *chain, struct plx_ring_flight *flight, uint8_t *batch,
                 uint32_t count, uint64_t offset)
{
    size_t data_at = plx_ring_batch_data_at(count);
    bool pieces = are_pieces(chain, count);

    memset(batch, 0, data_at);
    flight->pieces[0] = (struct iovec){batch, data_at};
    for (uint32_t i = 0; i < count; i++) {
        struct plx_ring_item *item = chain->waiting;
        size_t bytes = data_bytes(item);

        chain->waiting = item->next;
        chain->waiting_bytes -= bytes;
        push(&flight->items, &flight->last_item, item);
        if (bytes) {
            item->record.hash =
                plx_ring_blocks_hash(&chain->ring->id, take_blocks(flight, item, pieces),
                                     item->record.blocks, item->ret_sums);
            item->place = (struct plx_ring_place){offset + data_at, (uint32_t)item->record.blocks,
                                                  item->record.hash};
        }
        plx_format_ring_record_encode(&item->record, i, batch);
        data_at += bytes;
    }
}

static void begin_flight(struct plx_ring_chain *chain, struct plx_ring_flight *flight, bool header)
{
    *flight = (struct plx_ring_flight){
        .buffer = flight->buffer,
        .pieces = {{flight->buffer + PLX_BLOCK_SIZE, 0}},
        .piece_count = 1,
        .chain = chain,
        .segment = chain->current,
        .header = header,
    };
    if (chain->flights)
        chain->last_flight->next = flight;
    else
        chain->flights = flight;
    chain->last_flight = flight;
}

/* Writes a batch that lies at the offset, with the segment's header or without. */
static void launch(struct plx_ring_flight *flight, uint64_t offset)
{
    struct plx_ring *ring = flight->chain->ring;

    if (flight->header) {
        offset -= PLX_BLOCK_SIZE;
        flight->pieces[0].iov_base = flight->buffer;
        flight->pieces[0].iov_len += PLX_BLOCK_SIZE;
    }
    flight->last_seq = flight->chain->formed_seq;
    flight->state = PLX_FLIGHT_WRITING;
    for (unsigned m = 0; m < ring->count; m++)
        if (!ring->members[m].lost)
            plx_ring_submit_pieces(ring, &flight->xfers[m], m, offset, flight->pieces,
                                   flight->piece_count, &flight->join);
}

static void form_batch(struct plx_ring_chain *chain, struct plx_ring_flight *flight, uint32_t count,
                       size_t bytes)
{
    struct plx_ring *ring = chain->ring;
    uint64_t offset = plx_ring_offset(ring, chain->current) + chain->at;
    uint8_t *batch = flight->buffer + PLX_BLOCK_SIZE;
    struct plx_ring_batch head = {
        .vdi = plx_format_vdi_word(&chain->vdi),
        .epoch = chain->epoch,
        .first_seq = chain->formed_seq + 1,
        .durable_seq = chain->done_seq, /* CHAIN-3 */
        .prev_hash = chain->hash,
        .proof = chain->proof, /* CHAIN-2 */
        .time_ns = plx_env_now_ns(ring->options.env),
        .bytes = (uint32_t)bytes,
        .records = count,
    };

    fill(chain, flight, batch, count, offset);
    chain->hash = plx_format_ring_batch_encode(&ring->id, &head, batch);
    chain->formed_seq += count;
    chain->at += bytes;
    part_at(ring, chain->current)->last_seq = chain->formed_seq;
    launch(flight, offset);
}

static struct plx_ring_flight *idle_flight(struct plx_ring *ring)
{
    for (unsigned i = 0; i < PLX_RING_FLIGHTS; i++)
        if (ring->flights[i].state == PLX_FLIGHT_IDLE)
            return &ring->flights[i];
    return NULL;
}

/* CHAIN-1. Nothing goes behind a header that goes by itself before that is durable. */
static bool may_form(const struct plx_ring_chain *chain)
{
    unsigned count = 0;
    bool writing = false, alone = false;

    for (const struct plx_ring_flight *f = chain->flights; f; f = f->next) {
        count++;
        writing |= f->state == PLX_FLIGHT_WRITING;
        alone |= !f->items;
    }
    return chain->waiting && !alone && count < PLX_RING_CHAIN_FLIGHTS &&
           (!writing || chain->waiting_bytes >= plx_ring_batch_enough(chain->ring));
}

/* The header of the segment that was just taken, by itself. */
static void form_header(struct plx_ring_chain *chain, struct plx_ring_flight *flight)
{
    part_at(chain->ring, chain->current)->last_seq = chain->formed_seq;
    begin_flight(chain, flight, true);
    launch(flight, plx_ring_offset(chain->ring, chain->current) + PLX_BLOCK_SIZE);
}

/* A proof's first segment (CHAIN-2). */
static bool form_proof(struct plx_ring_chain *chain, struct plx_ring_flight *flight)
{
    bool own;

    if (!take_segment(chain, flight->buffer, &own))
        return false;
    chain->proving = false;
    form_header(chain, flight);
    return true;
}

static bool form(struct plx_ring_chain *chain)
{
    struct plx_ring *ring = chain->ring;
    struct plx_ring_flight *flight = chain->proving || may_form(chain) ? idle_flight(ring) : NULL;
    size_t limit = plx_ring_batch_limit(ring), bytes;
    uint32_t count = 0;
    bool header = false, own;

    if (!flight || ring->resilver.paused || chain->cancelled) /* RESILVER-4, CHAIN-9 */
        return false;
    if (chain->proving)
        return form_proof(chain, flight);
    if (chain->begun)
        count = fit(chain, (size_t)plx_min_u64(limit, ring->segment_bytes - chain->at), &bytes);
    if (!count) {
        header = true;
        if (!take_segment(chain, flight->buffer, &own))
            return false;
        if (own) {
            form_header(chain, flight);
            return true;
        }
        count = fit(chain, limit, &bytes);
    }
    begin_flight(chain, flight, header);
    form_batch(chain, flight, count, bytes);
    return true;
}

/* Each chain in turn, so that none waits for a flight for ever. */
static bool form_all(struct plx_ring *ring)
{
    struct plx_ring_chain **link = &ring->chains, *chain, *last = ring->last_chain;
    bool formed = false;

    while ((chain = *link) != NULL) {
        bool end = chain == last;

        if (!form(chain)) {
            link = &chain->next;
        } else {
            formed = true;
            if (chain->next) {
                *link = chain->next;
                chain->next = NULL;
                ring->last_chain->next = chain;
                ring->last_chain = chain;
            }
        }
        if (end)
            break;
    }
    return formed;
}

void plx_ring_hurry(struct plx_ring_chain *chain)
{
    struct plx_ring *ring = chain->ring;
    bool formed = false;

    if (ring->in_turn || ring->sticky)
        return;
    while (chain->waiting_bytes >= plx_ring_batch_enough(ring) && form(chain))
        formed = true;
    if (formed)
        plx_ring_kick(ring);
}

/* ---- Durable, done ---- */

bool plx_ring_flush_begin(struct plx_ring *ring)
{
    bool wanted = false;

    for (unsigned i = 0; i < PLX_RING_FLIGHTS && !ring->flushing; i++)
        if (ring->flights[i].state == PLX_FLIGHT_WRITTEN) {
            ring->flights[i].state = PLX_FLIGHT_FLUSHING;
            wanted = true;
        }
    if (!wanted)
        return false;
    ring->flushing = true;
    ring->flush_join = (struct plx_ring_join){0};
    for (unsigned m = 0; m < ring->count; m++)
        if (!ring->members[m].lost && ring->members[m].device->volatile_cache)
            plx_ring_submit(ring, &ring->members[m].flush, m, PLX_IO_FLUSH, 0, NULL, 0,
                            &ring->flush_join);
    return true;
}

static bool flush_end(struct plx_ring *ring)
{
    if (!ring->flushing || ring->flush_join.pending)
        return false;
    ring->flushing = false;
    plx_ring_members_lost(ring, &ring->flush_join);
    for (unsigned i = 0; i < PLX_RING_FLIGHTS && !ring->sticky; i++)
        if (ring->flights[i].state == PLX_FLIGHT_FLUSHING)
            ring->flights[i].state = PLX_FLIGHT_DURABLE;
    return true;
}

static bool writes_end(struct plx_ring *ring)
{
    bool any = false;

    for (unsigned i = 0; i < PLX_RING_FLIGHTS; i++) {
        struct plx_ring_flight *flight = &ring->flights[i];

        if (flight->join.pending)
            continue;
        if (flight->state == PLX_FLIGHT_WRITING) {
            plx_ring_members_lost(ring, &flight->join);
            plx_ring_part_changed(ring, flight->segment);
            flight->state = PLX_FLIGHT_WRITTEN;
            any = true;
        }
    }
    return any;
}

/* CHAIN-7: a segment's header is durable, so that its proof need not be kept in an older one. */
static void header_is_durable(struct plx_ring_chain *chain, uint32_t segment)
{
    if (chain->named_part == chain->proof_part && chain->proof_part != PLX_RING_NOWHERE)
        chain->named_part = segment;
    chain->proof_part = segment;
    free_released(chain);
}

/* CHAIN-3: what is durable up to here leaves its flights to others. */
static bool settle(struct plx_ring_chain *chain)
{
    struct plx_ring_flight *flight;
    bool any = false;

    while ((flight = chain->flights) != NULL && flight->state == PLX_FLIGHT_DURABLE) {
        chain->durable_seq = flight->last_seq;
        chain->flights = flight->next;
        while (flight->items) {
            struct plx_ring_item *item = flight->items;

            flight->items = item->next;
            push(&chain->durable, &chain->last_durable, item);
        }
        if (flight->header)
            header_is_durable(chain, flight->segment);
        flight->state = PLX_FLIGHT_IDLE;
        any = true;
    }
    return any;
}

/* CHAIN-4 */
static bool must_wait(const struct plx_ring_chain *chain)
{
    const struct plx_ring *ring = chain->ring;

    return chain->set != ring->set || plx_ring_set_is_changing(ring);
}

static bool deliver(struct plx_ring_chain *chain)
{
    struct plx_ring_item *item;
    bool any = false;

    while ((item = chain->durable) != NULL && !must_wait(chain)) {
        chain->durable = item->next;
        chain->done_seq = item->seq;
        any = true;
        item->done(item);
    }
    return any;
}

static void fail_items(struct plx_ring_item *item, int error)
{
    while (item) {
        struct plx_ring_item *next = item->next;

        item->error = error;
        item->done(item);
        item = next;
    }
}

/* MEMBER-3: in order, what is on its way, as its transfers end (CHAIN-8), and then what waits. */
static bool fail_chain(struct plx_ring_chain *chain, int error)
{
    struct plx_ring_item *durable = chain->durable, *waiting = chain->waiting;
    struct plx_ring_flight *flight;
    bool any = durable;

    chain->durable = NULL;
    fail_items(durable, error);
    while ((flight = chain->flights) != NULL && !flight->join.pending) {
        struct plx_ring_item *items = flight->items;

        chain->flights = flight->next;
        flight->items = NULL;
        flight->state = PLX_FLIGHT_IDLE;
        fail_items(items, error);
        any = true;
    }
    if (flight || !waiting)
        return any;
    chain->waiting = NULL;
    chain->waiting_bytes = 0;
    fail_items(waiting, error);
    return true;
}

void plx_ring_cancel(struct plx_ring_chain *chain, int error)
{
    struct plx_ring_item *durable = chain->durable, *waiting = chain->waiting;

    chain->cancelled = true; /* CHAIN-9 */
    chain->durable = chain->waiting = NULL;
    chain->waiting_bytes = 0;
    fail_items(durable, error);
    fail_items(waiting, error);
}

bool plx_ring_chains_step(struct plx_ring *ring)
{
    bool any = writes_end(ring);

    any |= flush_end(ring);
    for (struct plx_ring_chain *chain = ring->chains; chain; chain = chain->next)
        if (ring->sticky)
            any |=
                fail_chain(chain, chain->flights || chain->durable ? ring->sticky : PLX_ERR_STICKY);
        else
            any |= settle(chain) | deliver(chain);
    return ring->sticky ? any : any | form_all(ring);
}

void plx_ring_chain_prove(struct plx_ring_chain *chain)
{
    struct plx_env *env = chain->ring->options.env;

    if (chain->proof)
        return;
    do {
        env->random(env, &chain->proof, sizeof chain->proof);
    } while (!chain->proof);
    chain->proving = true;
}

void plx_ring_chain_marked(struct plx_ring_chain *chain, const struct plx_ring_mark *mark)
{
    bool none = !plx_ring_is_marked(mark);

    PLX_ASSERT(none || (mark->proof == chain->proof && chain->proof_part != PLX_RING_NOWHERE));
    if (none) { /* CHAIN-7: no proof is needed any more */
        chain->proof_part = PLX_RING_NOWHERE;
        chain->proof = 0;
        chain->proving = chain->begun = false;
    }
    chain->named_part = chain->proof_part;
    chain->set = none ? chain->ring->set : mark->set;
    free_released(chain);
}

void plx_ring_chain_get_info(const struct plx_ring_chain *chain,
                             struct plx_ring_chain_info *ret_info)
{
    *ret_info = (struct plx_ring_chain_info){
        .last_seq = chain->last_seq,
        .durable_seq = chain->durable_seq,
        .done_seq = chain->done_seq,
        .released_seq = chain->released_seq,
        .proof = chain->proof_part == PLX_RING_NOWHERE ? 0 : chain->proof,
        .aside = chain->aside,
        .segments = chain->segments,
        .ring_bytes = chain->ring->segments * chain->ring->segment_bytes,
        .ring_free = chain->ring->free_parts * chain->ring->segment_bytes,
        .full = chain->full && (chain->waiting || chain->proving),
        .unmarked = chain->set != chain->ring->set,
    };
}

/* Segments with unreleased records become UNKNOWN again until the next opening scans them. */
void plx_ring_chain_close(struct plx_ring_chain *chain)
{
    struct plx_ring *ring = chain->ring;
    struct plx_ring_chain **link = &ring->chains, *before = NULL;
    bool released = chain->released_seq >= chain->formed_seq;

    chain->proving = false;
    PLX_ASSERT(!chain->waiting && !chain->durable);
    while (chain->flights) { /* only a proof's header can still be on its way */
        PLX_ASSERT(!chain->flights->items);
        plx_ring_run(ring);
    }
    while (*link != chain) {
        before = *link;
        link = &(*link)->next;
    }
    *link = chain->next;
    if (ring->last_chain == chain)
        ring->last_chain = before;
    for (uint32_t s = chain->segments ? chain->first : PLX_RING_NOWHERE, next;
         s != PLX_RING_NOWHERE; s = next) {
        struct plx_ring_part *part = part_at(ring, s);

        next = part->next;
        if (released && !is_proof(chain, s))
            plx_ring_part_free(ring, s);
        else
            part->use = PLX_RING_UNKNOWN;
    }
    for (uint32_t s = 0; s < ring->segments; s++)
        if (part_at(ring, s)->use == PLX_RING_ASIDE && plx_ring_part_is_of(ring, s, &chain->vdi))
            part_at(ring, s)->use = PLX_RING_UNKNOWN;
    free(chain);
}
