/* ringed_read.c - a disk is read through its ring: what the ring has is newer than the store.
 *
 * RINGED_READ-1  What is read from the ring is chosen, and pinned, before the store is asked for
 *     the rest. So a block that the ring no longer has is on the store by then (RINGED-5). And a
 *     block that is taken from the ring is never older than what the store has.
 * RINGED_READ-2  Of a record that is not in memory, no more is read than somebody asked for.
 *     Records are large, and during a burst most of them are on the ring alone.
 * Loop: the disk's; never blocks.
 * Crash story: nothing is written here.
 */
#include "engine/ring/ringed_inside.h"

/* ---- Memory ---- */

static void copy(const struct iovec *iov, int iovcnt, uint64_t skip, uint8_t *plain, size_t bytes,
                 bool to)
{
    for (int i = 0; i < iovcnt && bytes; i++) {
        uint8_t *at = (uint8_t *)iov[i].iov_base + skip;
        size_t count;

        if (skip >= iov[i].iov_len) {
            skip -= iov[i].iov_len;
            continue;
        }
        count = plx_min_u64(bytes, iov[i].iov_len - skip);
        if (to && !plain)
            memset(at, 0, count);
        else
            memcpy(to ? at : plain, to ? plain : at, count);
        plain = plain ? plain + count : NULL;
        bytes -= count;
        skip = 0;
    }
    PLX_ASSERT(!bytes);
}

void plx_ringed_to_iov(const struct iovec *iov, int iovcnt, uint64_t skip, const void *plain,
                       size_t bytes)
{
    copy(iov, iovcnt, skip, (uint8_t *)(uintptr_t)plain, bytes, true);
}

void plx_ringed_from_iov(const struct iovec *iov, int iovcnt, uint64_t skip, void *plain,
                         size_t bytes)
{
    copy(iov, iovcnt, skip, plain, bytes, false);
}

/* ---- Reads ---- */

static uint64_t first_block(uint64_t offset)
{
    return offset >> PLX_BLOCK_SHIFT;
}

static uint64_t end_block(uint64_t offset, uint64_t length)
{
    return plx_div_up(offset + length, PLX_BLOCK_SIZE);
}

bool plx_ringed_overlaps(const struct plx_ringed *ringed, uint64_t offset, uint64_t length)
{
    const struct plx_ringed_range *range =
        plx_ringed_index_find(&ringed->index, first_block(offset));

    return range && range->block < end_block(offset, length);
}

static void store_done(struct plx_request *request)
{
    struct plx_ringed_read *read = request->owner;

    read->store_pending = false;
    read->error = request->result;
}

/* RINGED_READ-1. Returns whether the pieces cover everything; else the store has the rest
 * (RINGED-5). */
static bool pin_pieces(struct plx_ringed *ringed, struct plx_ringed_read *read)
{
    uint64_t at = first_block(read->offset), end = end_block(read->offset, read->length);
    const struct plx_ringed_range *range = plx_ringed_index_find(&ringed->index, at);
    bool all = true;

    for (; at < end && range && range->block < end;
         range = plx_ringed_index_find(&ringed->index, at)) {
        struct plx_ringed_piece *piece = &read->pieces[read->piece_count++];

        *piece = (struct plx_ringed_piece){.record = range->record,
                                           .block = plx_max_u64(range->block, at),
                                           .end = plx_min_u64(range->end, end)};
        plx_ringed_pin(piece->record);
        all = all && piece->block == at;
        at = piece->end;
    }
    return all && at == end;
}

static size_t count_pieces(const struct plx_ringed *ringed, const struct plx_ringed_read *read)
{
    uint64_t end = end_block(read->offset, read->length);
    const struct plx_ringed_range *range =
        plx_ringed_index_find(&ringed->index, first_block(read->offset));
    size_t count = 0;

    for (; range && range->block < end; range = plx_ringed_index_find(&ringed->index, range->end))
        count++;
    return count;
}

int plx_ringed_read_begin(struct plx_ringed *ringed, struct plx_ringed_read *read)
{
    size_t count = count_pieces(ringed, read);

    read->pieces = malloc((count + 1) * sizeof *read->pieces);
    read->piece_count = read->at = 0;
    read->store_pending = false;
    read->error = 0;
    if (!read->pieces)
        return PLX_ERR_NOMEM;
    if (pin_pieces(ringed, read))
        return 0;
    read->store = (struct plx_request){.op = PLX_READ,
                                       .offset = read->offset,
                                       .length = read->length,
                                       .iov = read->iov,
                                       .iovcnt = read->iovcnt,
                                       .done = store_done,
                                       .owner = read};
    read->store_pending = true;
    plx_front_pass(ringed->vdi, &read->store);
    return 0;
}

static void copy_piece(struct plx_ringed_read *read, const struct plx_ringed_piece *piece)
{
    const struct plx_ringed_record *record = piece->record;
    uint64_t from = plx_max_u64(piece->block * PLX_BLOCK_SIZE, read->offset);
    uint64_t to = plx_min_u64(piece->end * PLX_BLOCK_SIZE, read->offset + read->length);
    const uint8_t *plain = NULL;

    if (record->data)
        plain = record->data + (from - record->block * PLX_BLOCK_SIZE);
    else if (record->type == PLX_RING_WRITE)
        plain = (const uint8_t *)piece->part->read.buffer + (from - piece->block * PLX_BLOCK_SIZE);
    plx_ringed_to_iov(read->iov, read->iovcnt, from - read->offset, plain, to - from);
}

/* RINGED_READ-2. 0: the piece can be copied. PLX_WAIT: it is being read. */
static int fetch(struct plx_ringed_piece *piece)
{
    struct plx_ringed_record *record = piece->record;
    uint64_t blocks = piece->end - piece->block;

    if (piece->part && !record->data)
        return piece->part->done ? piece->part->read.error : PLX_WAIT;
    if (record->type != PLX_RING_WRITE || record->data || record->lost || record->load ||
        blocks == record->blocks)
        return plx_ringed_load(record);
    piece->part = plx_ringed_part_begin(record, piece->block, blocks);
    return piece->part ? PLX_WAIT : PLX_ERR_NOMEM;
}

static void drop_piece(struct plx_ringed_piece *piece)
{
    plx_ringed_part_end(piece->part);
    plx_ringed_unpin(piece->record);
}

/* The store's part is copied first: it fills the whole range. */
bool plx_ringed_read_step(struct plx_ringed *ringed, struct plx_ringed_read *read)
{
    if (!read->store_pending && read->error)
        return true;
    for (size_t i = read->at; i < read->piece_count; i++) {
        struct plx_ringed_piece *piece = &read->pieces[i];
        int error = fetch(piece);

        if (read->store_pending || error == PLX_WAIT || (error == PLX_ERR_NOMEM && ringed->loads))
            continue;
        if (error) {
            read->error = error;
            plx_fault_set(&read->store.fault, error,
                          "virtual disk %s, virtual block %llu: its newest contents cannot be read "
                          "back from the ring: %s",
                          ringed->vdi->record.name, (unsigned long long)piece->block,
                          plx_error_text(error));
            return true;
        }
        if (i > read->at)
            continue; /* one before it waits */
        copy_piece(read, piece);
        drop_piece(piece);
        read->at++;
    }
    return !read->store_pending && read->at == read->piece_count;
}

void plx_ringed_read_end(struct plx_ringed_read *read)
{
    PLX_ASSERT(!read->store_pending);
    for (; read->at < read->piece_count; read->at++)
        drop_piece(&read->pieces[read->at]);
    free(read->pieces);
    read->pieces = NULL;
    read->piece_count = 0;
}
