/* scan_look.c - what a scan looks at: segments read, of all members, and batches in them.
 *
 * SCAN_LOOK-1  A block that cannot be read is not the end of the chain (SCAN-4): a batch of which
 * it is a part may be there or not. One that lies elsewhere does no harm. Loop: the ring's. Calls
 * are synchronous. Crash story: none, it only reads.
 */
#include "engine/ring/scan_inside.h"

int plx_scan_nomem(struct plx_fault *fault)
{
    return plx_fault_set(fault, PLX_ERR_NOMEM, "%s", plx_error_text(PLX_ERR_NOMEM));
}

/* Block by block, because one of them cannot be read. */
static int read_singly(struct plx_scan *scan, unsigned m, uint32_t segment)
{
    uint64_t offset = plx_ring_offset(scan->ring, segment);
    int error;

    for (uint32_t b = 0; b < plx_scan_blocks(scan); b++) {
        size_t at = (size_t)b * PLX_BLOCK_SIZE;

        error = plx_ring_transfer_sync(scan->ring, m, PLX_IO_READ, offset + at, scan->shelf[m] + at,
                                       PLX_BLOCK_SIZE);
        if (error && error != PLX_ERR_IO_READ)
            return error;
        scan->unreadable[m][b] = error != 0;
        if (error)
            memset(scan->shelf[m] + at, 0, PLX_BLOCK_SIZE);
    }
    return 0;
}

int plx_scan_shelve(struct plx_scan *scan, uint32_t segment)
{
    uint64_t offset = plx_ring_offset(scan->ring, segment);
    int error = 0;

    if (scan->shelved == segment)
        return 0;
    scan->shelved = PLX_RING_NOWHERE;
    for (unsigned m = 0; m < scan->ring->count && !error; m++) {
        if (!plx_scan_uses(scan, m))
            continue;
        memset(scan->unreadable[m], 0, plx_scan_blocks(scan) * sizeof(bool));
        error = plx_ring_transfer_sync(scan->ring, m, PLX_IO_READ, offset, scan->shelf[m],
                                       scan->ring->segment_bytes);
        if (error == PLX_ERR_IO_READ)
            error = read_singly(scan, m, segment);
        if (error)
            plx_fault_set(scan->fault, error, "%s: segment %u: %s",
                          scan->ring->members[m].device->name, segment, plx_error_text(error));
    }
    if (!error)
        scan->shelved = segment;
    return error;
}

static bool is_wanted(const struct plx_scan *scan, const struct plx_ring_batch *batch,
                      const struct plx_scan_wanted *wanted)
{
    return batch->vdi == scan->word && batch->epoch == wanted->epoch &&
           batch->first_seq == wanted->first_seq &&
           (!wanted->hash_known || batch->prev_hash == wanted->prev_hash);
}

/* On one member, in the segment on the shelf. */
static enum plx_scan_presence look_at(const struct plx_scan *scan, unsigned m, uint32_t at,
                                      const struct plx_scan_wanted *wanted,
                                      struct plx_ring_batch *ret_batch, uint64_t *ret_hash)
{
    const uint8_t *bytes = scan->shelf[m] + at;
    size_t left = scan->ring->segment_bytes - at;

    if (!left)
        return PLX_SCAN_ABSENT;
    if (scan->unreadable[m][at / PLX_BLOCK_SIZE]) /* SCAN_LOOK-1 */
        return PLX_SCAN_UNREADABLE;
    if (plx_format_ring_batch_head(bytes, left, ret_batch) || !is_wanted(scan, ret_batch, wanted))
        return PLX_SCAN_ABSENT;
    for (uint32_t b = 0; b < ret_batch->bytes / PLX_BLOCK_SIZE; b++)
        if (scan->unreadable[m][at / PLX_BLOCK_SIZE + b])
            return PLX_SCAN_UNREADABLE;
    return plx_format_ring_batch_decode(bytes, left, &scan->ring->id, ret_batch, ret_hash)
               ? PLX_SCAN_ABSENT
               : PLX_SCAN_PRESENT;
}

static bool same_segment(const struct plx_ring_segment *a, const struct plx_ring_segment *b)
{
    return plx_uuid_equal(&a->vdi, &b->vdi) && a->epoch == b->epoch &&
           a->first_seq == b->first_seq && a->prev_hash == b->prev_hash;
}

/* Whether the member's header of the segment is the one that its first batch goes with. */
static bool has_header(const struct plx_scan *scan, unsigned m, uint32_t segment,
                       const struct plx_ring_batch *batch)
{
    const struct plx_ring_part *part = &scan->ring->parts[segment];
    struct plx_ring_segment head = {scan->options->vdi, batch->epoch, batch->first_seq,
                                    batch->prev_hash};

    return part->whole[m] && same_segment(&part->head[m], &head);
}

/* SCAN-4 */
enum plx_scan_presence plx_scan_look(const struct plx_scan *scan, uint32_t at,
                                     const struct plx_scan_wanted *wanted,
                                     struct plx_scan_sight *ret_sight)
{
    enum plx_scan_presence worst = PLX_SCAN_ABSENT;

    ret_sight->have = 0;
    for (unsigned m = 0; m < scan->ring->count; m++) {
        struct plx_ring_batch batch;
        enum plx_scan_presence presence;
        uint64_t hash;

        if (!plx_scan_uses(scan, m))
            continue;
        presence = look_at(scan, m, at, wanted, &batch, &hash);
        if (presence == PLX_SCAN_UNREADABLE)
            worst = PLX_SCAN_UNREADABLE;
        if (presence != PLX_SCAN_PRESENT || (ret_sight->have && hash != ret_sight->hash))
            continue;
        ret_sight->batch = batch;
        ret_sight->hash = hash;
        ret_sight->bytes = scan->shelf[m] + at;
        ret_sight->have |= 1u << m;
    }
    if (!ret_sight->have)
        return worst;
    for (unsigned m = 0; m < scan->ring->count && at == PLX_BLOCK_SIZE; m++)
        if (!has_header(scan, m, scan->shelved, &ret_sight->batch))
            ret_sight->have &= ~(1u << m);
    return PLX_SCAN_PRESENT;
}

uint64_t plx_scan_newest_durable(const struct plx_scan *scan, uint64_t epoch)
{
    uint64_t newest = 0, hash;
    struct plx_ring_batch batch;

    for (unsigned m = 0; m < scan->ring->count; m++)
        for (size_t at = PLX_BLOCK_SIZE; plx_scan_uses(scan, m) && at < scan->ring->segment_bytes;
             at += PLX_BLOCK_SIZE) {
            size_t left = scan->ring->segment_bytes - at;

            if (plx_format_ring_batch_head(scan->shelf[m] + at, left, &batch) ||
                batch.vdi != scan->word || batch.epoch < epoch || batch.durable_seq <= newest ||
                plx_format_ring_batch_decode(scan->shelf[m] + at, left, &scan->ring->id, &batch,
                                             &hash))
                continue;
            newest = batch.durable_seq;
        }
    return newest;
}
