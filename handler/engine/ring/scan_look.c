/* scan_look.c - what a scan looks at: segments read, of all members, and batches in them.
 *
 * SCAN_LOOK-1  A block that cannot be read is not the end of the chain (SCAN-4): the next batch may
 *     lie there. A block outside the chain does no harm.
 * SCAN_LOOK-2  A segment of which no member has a header that can be believed may hold the end of
 *     the chain, and no later batch would tell that (SCAN_JUDGE-1). But the segment's first batch
 *     repeats what the header said. So while a disk is scanned, a segment whose first batch is the
 *     disk's counts as the disk's. Such a segment does not prove that the ring is no older copy
 *     (PARTS-3). If that first batch cannot be read either, the scan fails. If the chain needs the
 *     segment, the segment gets a header again. If not, it stays as it was, because it may have a
 *     newer proof of another disk (PARTS-2).
 * SCAN_LOOK-3  A member that cannot be reached any more is lost. The scan goes on with the other
 *     one, which has all that was done (CHAIN-4). The survivor has its new set before anybody
 *     learns what was found (SCAN-5). A ring that is only read loses no member: there the scan
 *     fails.
 * Loop: the ring's. Calls are synchronous.
 * Crash story: none, it only reads.
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

static int read_segment(struct plx_scan *scan, unsigned m, uint32_t segment)
{
    int error =
        plx_ring_transfer_sync(scan->ring, m, PLX_IO_READ, plx_ring_offset(scan->ring, segment),
                               scan->shelf[m], scan->ring->segment_bytes);

    memset(scan->unreadable[m], 0, plx_scan_blocks(scan) * sizeof(bool));
    if (error == PLX_ERR_IO_READ)
        error = read_singly(scan, m, segment);
    if (error == PLX_ERR_LOST && !scan->ring->options.read_only) { /* SCAN_LOOK-3 */
        plx_ring_member_lost(scan->ring, m, error);
        error = scan->ring->sticky;
    }
    return error;
}

int plx_scan_shelve(struct plx_scan *scan, uint32_t segment)
{
    int error = 0;

    if (scan->shelved == segment)
        return 0;
    scan->shelved = PLX_RING_NOWHERE;
    for (unsigned m = 0; m < scan->ring->count && !error; m++) {
        if (!plx_scan_uses(scan, m))
            continue;
        error = read_segment(scan, m, segment);
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
           batch->first_seq == wanted->first_seq && batch->proof == wanted->proof &&
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

/* Whether the member's header of the segment is the one that its first batch goes with. */
static bool has_header(const struct plx_scan *scan, unsigned m, uint32_t segment,
                       const struct plx_ring_batch *batch)
{
    const struct plx_ring_part *part = &scan->ring->parts[segment];
    const struct plx_ring_segment *head = &part->head[m];

    return part->use != PLX_RING_BAD && part->whole[m] &&
           plx_uuid_equal(&head->vdi, &scan->options->vdi) && head->epoch == batch->epoch &&
           head->first_seq == batch->first_seq && head->prev_hash == batch->prev_hash &&
           head->proof == batch->proof;
}

bool plx_scan_has_proof(const struct plx_scan *scan, uint32_t segment, uint64_t proof)
{
    const struct plx_ring_part *part = &scan->ring->parts[segment];
    bool has = false;

    for (unsigned m = 0; m < scan->ring->count; m++)
        has |= plx_scan_uses(scan, m) && part->whole[m] && part->head[m].proof == proof &&
               plx_uuid_equal(&part->head[m].vdi, &scan->options->vdi);
    return has;
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

/* What the header of the segment on the shelf said of a disk whose batch it begins with. */
static enum plx_scan_presence look_at_first(const struct plx_scan *scan, unsigned m,
                                            struct plx_ring_segment *ret_head)
{
    const uint8_t *bytes = scan->shelf[m] + PLX_BLOCK_SIZE;
    size_t left = scan->ring->segment_bytes - PLX_BLOCK_SIZE;
    struct plx_ring_batch batch;
    uint64_t hash;

    if (scan->unreadable[m][1])
        return PLX_SCAN_UNREADABLE;
    if (plx_format_ring_batch_head(bytes, left, &batch) || batch.vdi != scan->word)
        return PLX_SCAN_ABSENT;
    for (uint32_t b = 0; b < batch.bytes / PLX_BLOCK_SIZE; b++)
        if (scan->unreadable[m][1 + b])
            return PLX_SCAN_UNREADABLE;
    if (plx_format_ring_batch_decode(bytes, left, &scan->ring->id, &batch, &hash))
        return PLX_SCAN_ABSENT;
    *ret_head = (struct plx_ring_segment){scan->options->vdi, batch.epoch, batch.first_seq,
                                          batch.prev_hash,    batch.proof, batch.durable_seq};
    return PLX_SCAN_PRESENT;
}

/* SCAN_LOOK-2 */
int plx_scan_adopt(struct plx_scan *scan)
{
    struct plx_ring *ring = scan->ring;

    for (uint32_t s = 0; s < ring->segments && plx_ring_is_marked(&scan->options->mark); s++) {
        struct plx_ring_part *part = &ring->parts[s];
        bool unreadable = false, adopted = false;
        int error = part->use == PLX_RING_BAD ? plx_scan_shelve(scan, s) : 0;

        if (error)
            return error;
        for (unsigned m = 0; m < ring->count && part->use == PLX_RING_BAD; m++) {
            enum plx_scan_presence presence =
                plx_scan_uses(scan, m) ? look_at_first(scan, m, &part->head[m]) : PLX_SCAN_ABSENT;

            part->whole[m] = presence == PLX_SCAN_PRESENT;
            adopted |= part->whole[m];
            unreadable |= presence == PLX_SCAN_UNREADABLE;
        }
        scan->unknown |= unreadable && !adopted;
    }
    return 0;
}

/* What became a part of the chain has its header again. */
void plx_scan_disown(struct plx_scan *scan)
{
    for (uint32_t s = 0; scan->ring && s < scan->ring->segments; s++)
        if (scan->ring->parts[s].use == PLX_RING_BAD)
            memset(scan->ring->parts[s].whole, 0, sizeof scan->ring->parts[s].whole);
}
