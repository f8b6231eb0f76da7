/* ringed_records.c - the records of a disk that the store has not: kept in order, in memory as far
 * as there is room, else read back from the ring.
 *
 * RINGED_RECORDS-1  A record stays until the store has it and nobody reads it any more. Its blocks
 *     stay in memory until the ring has them, and while somebody has pinned the record. After that
 *     they are dropped when memory is short: the newest first, for the oldest are drained next.
 * RINGED_RECORDS-2  The ring may use a record's segment again only when the disk's record on the
 *     store names a position at or behind it. A durable log item is not enough, because another
 *     host may have taken the disk over and use an older log. A key frame checks for that before it
 *     writes the position (KEYFRAME-6). The segment is also kept while the record may be read back.
 * RINGED_RECORDS-3  Blocks lie aligned, so that neither ring nor store copies them. Buffers of the
 *     largest size are kept for the next records, as long as there are records, and within the
 *     memory limit: allocating fresh memory costs more than filling it.
 * RINGED_RECORDS-4  The hash of each block stays in memory with its record, 2 MiB for a GiB. So a
 *     reader who wants a few blocks of a record reads and checks these alone.
 * Loop: the disk's; never blocks.
 * Crash story: memory only; what is on the ring is found again.
 */
#include "engine/ring/ringed_inside.h"

uint64_t plx_ringed_record_bytes(const struct plx_ringed_record *record)
{
    return record->type == PLX_RING_WRITE ? record->blocks * PLX_BLOCK_SIZE : 0;
}

/* RINGED_RECORDS-3 */
uint8_t *plx_ringed_blocks_get(struct plx_ringed *ringed, uint64_t blocks)
{
    uint8_t *memory = ringed->spares;

    if (blocks != ringed->window_blocks || !memory)
        return aligned_alloc(PLX_BLOCK_SIZE, blocks * PLX_BLOCK_SIZE);
    memcpy(&ringed->spares, memory, sizeof ringed->spares);
    ringed->spare_count--;
    return memory;
}

void plx_ringed_blocks_put(struct plx_ringed *ringed, uint8_t *memory, uint64_t blocks)
{
    uint64_t all = ringed->memory + (ringed->spare_count + 1) * blocks * PLX_BLOCK_SIZE;

    if (!memory || blocks != ringed->window_blocks || all > plx_ringed_memory_most(ringed)) {
        free(memory);
        return;
    }
    memcpy(memory, &ringed->spares, sizeof ringed->spares);
    ringed->spares = memory;
    ringed->spare_count++;
}

static void free_spares(struct plx_ringed *ringed)
{
    while (ringed->spares)
        free(plx_ringed_blocks_get(ringed, ringed->window_blocks));
}

static void drop_data(struct plx_ringed_record *record)
{
    if (!record->data)
        return;
    record->ringed->memory -= plx_ringed_record_bytes(record);
    plx_ringed_blocks_put(record->ringed, record->data, record->blocks);
    record->data = NULL;
}

/* RINGED_RECORDS-1 */
static void trim(struct plx_ringed_record *record)
{
    const struct plx_ringed *ringed = record->ringed;

    if (!record->pins && (record->state == PLX_RINGED_DRAINED ||
                          (record->place.offset && ringed->memory > ringed->memory_limit)))
        drop_data(record);
}

struct plx_ringed_record *plx_ringed_record_new(struct plx_ringed *ringed,
                                                enum plx_ring_record_type type, uint64_t block,
                                                uint64_t blocks, uint8_t *data)
{
    uint64_t sums = type == PLX_RING_WRITE ? blocks : 0;
    struct plx_ringed_record *record = malloc(sizeof *record + sums * sizeof *record->sums);

    if (!record || (type != PLX_RING_SNAPSHOT && !plx_ringed_index_room(&ringed->index))) {
        free(record);
        return NULL;
    }
    *record = (struct plx_ringed_record){
        .ringed = ringed, .type = type, .block = block, .blocks = blocks, .data = data};
    if (data)
        ringed->memory += plx_ringed_record_bytes(record);
    return record;
}

void plx_ringed_record_add(struct plx_ringed_record *record)
{
    struct plx_ringed *ringed = record->ringed;

    PLX_ASSERT(!ringed->last || record->seq == ringed->last->seq + 1);
    if (ringed->last)
        ringed->last->next = record;
    else
        ringed->first = record;
    ringed->last = record;
    if (!ringed->drain.next)
        ringed->drain.next = record;
    if (record->type != PLX_RING_SNAPSHOT)
        plx_ringed_index_put(&ringed->index, record->block, record->block + record->blocks, record);
}

void plx_ringed_pin(struct plx_ringed_record *record)
{
    record->pins++;
}

void plx_ringed_unpin(struct plx_ringed_record *record)
{
    PLX_ASSERT(record->pins > 0);
    record->pins--;
    trim(record);
}

/* ---- Read back ---- */

static void loaded(struct plx_ring_read *read)
{
    struct plx_ringed_load *load = read->owner;
    struct plx_ringed_record *record = load->record;
    struct plx_ringed *ringed = record->ringed;

    record->load = NULL;
    ringed->loads--;
    ringed->host->stirred = true;
    if (read->error) {
        record->lost = read->error;
        plx_ringed_blocks_put(ringed, read->buffer, record->blocks);
    } else {
        record->data = read->buffer;
        ringed->memory += plx_ringed_record_bytes(record);
    }
    free(load);
    plx_ringed_unpin(record);
}

int plx_ringed_load(struct plx_ringed_record *record)
{
    uint64_t bytes = plx_ringed_record_bytes(record);
    struct plx_ringed_load *load;
    uint8_t *buffer;

    if (record->data || record->lost || record->load || !bytes)
        return record->data || !bytes ? 0 : record->lost ? record->lost : PLX_WAIT;
    load = malloc(sizeof *load);
    buffer = plx_ringed_blocks_get(record->ringed, record->blocks);
    if (!load || !buffer) {
        free(load);
        plx_ringed_blocks_put(record->ringed, buffer, record->blocks);
        return PLX_ERR_NOMEM;
    }
    *load = (struct plx_ringed_load){
        .read = {.place = record->place, .buffer = buffer, .done = loaded, .owner = load},
        .record = record};
    record->load = load;
    record->ringed->loads++;
    plx_ringed_pin(record);
    plx_ring_read(record->ringed->host->ring, &load->read);
    return PLX_WAIT;
}

static void free_part(struct plx_ringed_part *part)
{
    plx_ringed_blocks_put(part->record->ringed, part->read.buffer, part->read.place.blocks);
    free(part);
}

static void part_done(struct plx_ring_read *read)
{
    struct plx_ringed_part *part = read->owner;
    struct plx_ringed_record *record = part->record;

    record->ringed->loads--;
    record->ringed->host->stirred = true;
    part->done = true;
    if (part->unwanted)
        free_part(part);
    plx_ringed_unpin(record);
}

/* RINGED_RECORDS-4 */
struct plx_ringed_part *plx_ringed_part_begin(struct plx_ringed_record *record, uint64_t block,
                                              uint64_t blocks)
{
    uint64_t skip = block - record->block;
    struct plx_ringed_part *part = malloc(sizeof *part);
    uint8_t *buffer = plx_ringed_blocks_get(record->ringed, blocks);

    PLX_ASSERT(!record->data && skip + blocks <= record->blocks);
    if (!part || !buffer) {
        free(part);
        plx_ringed_blocks_put(record->ringed, buffer, blocks);
        return NULL;
    }
    *part = (struct plx_ringed_part){
        .read = {.place = {.offset = record->place.offset + skip * PLX_BLOCK_SIZE,
                           .blocks = (uint32_t)blocks},
                 .sums = record->sums + skip,
                 .buffer = buffer,
                 .done = part_done,
                 .owner = part},
        .record = record};
    record->ringed->loads++;
    plx_ringed_pin(record);
    plx_ring_read(record->ringed->host->ring, &part->read);
    return part;
}

void plx_ringed_part_end(struct plx_ringed_part *part)
{
    if (part && !part->done)
        part->unwanted = true;
    else if (part)
        free_part(part);
}

/* ---- Their end ---- */

static void unpromise(struct plx_ringed_record *record)
{
    plx_alloc_unpromise(record->ringed->vdi->store, record->promised);
    record->promised = 0;
}

void plx_ringed_record_drained(struct plx_ringed_record *record)
{
    record->state = PLX_RINGED_DRAINED;
    unpromise(record);
    if (record->type != PLX_RING_SNAPSHOT)
        plx_ringed_index_drop(&record->ringed->index, record->block, record->block + record->blocks,
                              record);
    trim(record);
}

static void free_first(struct plx_ringed *ringed)
{
    struct plx_ringed_record *record = ringed->first;

    ringed->first = record->next;
    if (!ringed->first)
        ringed->last = NULL;
    unpromise(record);
    drop_data(record);
    free(record);
}

void plx_ringed_records_sweep(struct plx_ringed *ringed)
{
    uint64_t seq = /* RINGED_RECORDS-2 */
        plx_min_u64(ringed->vdi->record.position.seq, ringed->done_seq);

    while (ringed->first && ringed->first->state == PLX_RINGED_DRAINED && !ringed->first->pins)
        free_first(ringed);
    if (!ringed->first)
        free_spares(ringed);
    else
        seq = plx_min_u64(seq, ringed->first->seq - 1);
    if (seq <= ringed->released_seq)
        return;
    ringed->released_seq = seq;
    plx_ring_release(ringed->chain, seq);
}

void plx_ringed_records_free(struct plx_ringed *ringed)
{
    while (ringed->first)
        free_first(ringed);
    free_spares(ringed);
}

void plx_ringed_records_cut(struct plx_ringed *ringed, uint64_t after_seq)
{
    for (struct plx_ringed_record *r = ringed->first; r; r = r->next)
        if (r->seq > after_seq && r->state != PLX_RINGED_DRAINED)
            plx_ringed_record_drained(r);
    ringed->drain.next = NULL;
}
