/* parts.c - a ring's segments: whose they are, by their headers; freed; forgotten.
 *
 * PARTS-1  After opening, a segment is free only in two cases: the header of each member says so;
 *     or the chain of the disk that a header names was scanned, and does not need the segment.
 *     Until then it is unknown which of that disk's records are on the store.
 * PARTS-2  A segment of which no member has a header that can be believed is never used: it may
 *     hold what was acknowledged.
 * PARTS-3  A ring is believed for a disk only if each of its members has the proof that the disk's
 *     mark names. A member without that proof is a copy that was made before the mark was set, or
 *     was away then, and the ring is refused (RING_AWAY). One kind of member is accepted without
 *     it: its header of a segment is damaged, and another member's header of that segment has the
 *     proof. That shows damage, not an old copy. Nothing is written before this check, so a refused
 *     ring is refused again.
 * Loop: the ring's. Calls are synchronous.
 * Crash story: forgetting rewrites headers one by one; what is left of them is forgotten again.
 */
#include <stdio.h>

#include "engine/ring/ring_inside.h"

#define READS 32u /* headers read at once */

static void init_part(struct plx_ring *ring, uint32_t s)
{
    struct plx_ring_part *part = &ring->parts[s];
    bool any = false, taken = false;

    for (unsigned m = 0; m < ring->count; m++) {
        any |= part->whole[m];
        taken |= part->whole[m] && !plx_uuid_is_zero(&part->head[m].vdi);
    }
    part->use = !any ? PLX_RING_BAD /* PARTS-2 */ : taken ? PLX_RING_UNKNOWN : PLX_RING_FREE;
    ring->free_parts += part->use == PLX_RING_FREE;
    if (!any)
        plx_ring_event(ring, PLX_ERR_CORRUPT,
                       "%s: the header of segment %u is damaged, so it is not used",
                       ring->members[0].device->name, s);
}

/* Of one member, up to READS segments. A header that cannot be read is as a damaged one. */
static int read_headers(struct plx_ring *ring, unsigned m, uint32_t first, uint32_t count,
                        uint8_t *blocks)
{
    struct plx_ring_xfer xfers[READS];
    struct plx_ring_join joins[READS];
    struct plx_fault why;
    int error = 0;

    memset(joins, 0, sizeof joins);
    for (uint32_t i = 0; i < count; i++)
        plx_ring_submit(ring, &xfers[i], m, PLX_IO_READ, plx_ring_offset(ring, first + i),
                        blocks + (size_t)i * PLX_BLOCK_SIZE, PLX_BLOCK_SIZE, &joins[i]);
    for (uint32_t i = 0; i < count; i++) {
        struct plx_ring_part *part = &ring->parts[first + i];

        plx_ring_run_until_zero(ring, &joins[i].pending);
        part->whole[m] =
            !joins[i].error && plx_format_ring_segment_decode(blocks + (size_t)i * PLX_BLOCK_SIZE,
                                                              &ring->id, &part->head[m], &why) == 0;
        if (joins[i].error && joins[i].error != PLX_ERR_IO_READ)
            error = joins[i].error;
    }
    return error;
}

int plx_ring_load_parts(struct plx_ring *ring, struct plx_fault *fault)
{
    uint8_t *blocks = malloc((size_t)READS * PLX_BLOCK_SIZE);
    int error = 0;

    ring->parts = calloc(ring->segments, sizeof *ring->parts);
    if (!ring->parts || !blocks) {
        free(blocks);
        return plx_fault_set(fault, PLX_ERR_NOMEM, "%s", plx_error_text(PLX_ERR_NOMEM));
    }
    for (uint32_t s = 0; s < ring->segments && !error; s += READS) {
        uint32_t count = (uint32_t)plx_min_u64(READS, ring->segments - s);

        for (unsigned m = 0; m < ring->count && !error; m++)
            if ((error = read_headers(ring, m, s, count, blocks)) != 0)
                plx_fault_set(fault, error, "%s: %s", ring->members[m].device->name,
                              plx_error_text(error));
        for (uint32_t i = 0; i < count; i++)
            init_part(ring, s + i);
    }
    free(blocks);
    return error;
}

void plx_ring_part_free(struct plx_ring *ring, uint32_t segment)
{
    ring->parts[segment].use = PLX_RING_FREE;
    ring->free_parts++;
}

void plx_ring_part_changed(struct plx_ring *ring, uint32_t segment)
{
    struct plx_ring_part *part = &ring->parts[segment];

    ring->resilver.left += part->copied; /* RESILVER-4 */
    part->copied = false;
}

static bool names(const struct plx_ring_part *part, unsigned m, const struct plx_uuid *vdi)
{
    return part->whole[m] && plx_uuid_equal(&part->head[m].vdi, vdi);
}

bool plx_ring_part_is_of(const struct plx_ring *ring, uint32_t segment, const struct plx_uuid *vdi)
{
    bool any = false;

    for (unsigned m = 0; m < ring->count; m++)
        any |= names(&ring->parts[segment], m, vdi);
    return any;
}

bool plx_ring_goes_on(const struct plx_ring *ring, const struct plx_ring_chain_options *options)
{
    bool any = options->epoch != options->position.epoch;

    for (uint32_t s = 0; s < ring->segments && !any; s++)
        any = plx_ring_part_is_of(ring, s, &options->vdi);
    return !any;
}

void plx_ring_part_settle(struct plx_ring *ring, uint32_t segment, const struct plx_uuid *vdi)
{
    struct plx_ring_part *part = &ring->parts[segment];
    bool all = part->use == PLX_RING_UNKNOWN;

    for (unsigned m = 0; m < ring->count; m++) {
        part->settled[m] |= names(part, m, vdi);
        /* PARTS-1. What a damaged header said, the other member's says. */
        all &= !part->whole[m] || part->settled[m] || plx_uuid_is_zero(&part->head[m].vdi);
    }
    if (all)
        plx_ring_part_free(ring, segment);
}

bool plx_ring_went_on_without(const struct plx_ring *ring, const struct plx_uuid *vdi,
                              const struct plx_ring_position *record)
{
    bool did = false;

    for (uint32_t s = 0; s < ring->segments; s++)
        for (unsigned m = 0; m < ring->count; m++) {
            const struct plx_ring_segment *head = &ring->parts[s].head[m];

            did |= names(&ring->parts[s], m, vdi) && head->epoch > record->epoch &&
                   head->first_seq <= record->seq;
        }
    return did;
}

/* ---- Proofs ---- */

static bool has_proof(const struct plx_ring_part *part, unsigned m, const struct plx_uuid *vdi,
                      uint64_t proof)
{
    return names(part, m, vdi) && part->head[m].proof == proof;
}

uint32_t plx_ring_part_of_proof(const struct plx_ring *ring, const struct plx_uuid *vdi,
                                uint64_t proof, struct plx_ring_segment *ret_head)
{
    uint32_t newest = PLX_RING_NOWHERE;
    uint64_t first_seq = 0;

    for (uint32_t s = 0; s < ring->segments; s++)
        for (unsigned m = 0; m < ring->count; m++) {
            const struct plx_ring_segment *head = &ring->parts[s].head[m];

            if (ring->members[m].lost || !has_proof(&ring->parts[s], m, vdi, proof) ||
                head->first_seq <= first_seq)
                continue;
            newest = s;
            first_seq = head->first_seq;
            *ret_head = *head;
        }
    return newest;
}

/* PARTS-3 */
static bool is_behind(const struct plx_ring *ring, unsigned m, const struct plx_uuid *vdi,
                      uint64_t proof)
{
    bool excused = false;

    for (uint32_t s = 0; s < ring->segments; s++) {
        const struct plx_ring_part *part = &ring->parts[s];

        if (has_proof(part, m, vdi, proof))
            return false;
        for (unsigned other = 0; other < ring->count; other++)
            excused |=
                !ring->members[other].lost && has_proof(part, other, vdi, proof) && !part->whole[m];
    }
    return !excused;
}

int plx_ring_check_mark(const struct plx_ring *ring, const struct plx_uuid *vdi,
                        const struct plx_ring_mark *mark, struct plx_fault *fault)
{
    const struct plx_ring_member *survivor = &ring->members[plx_ring_survivor(ring)];

    if (!plx_uuid_equal(&mark->ring, &ring->id))
        return plx_fault_set(fault, PLX_ERR_RING_AWAY,
                             "the newest writes lie in another write-back ring than the one that "
                             "is open here");
    if (ring->sticky) /* of members that are all lost none says which one has the newest writes */
        return plx_fault_set(fault, PLX_ERR_STICKY, "the write-back ring has stopped: %s",
                             plx_error_text(ring->sticky));
    if (!plx_ring_set_descends(&survivor->super, mark->set))
        return plx_fault_set(fault, PLX_ERR_RING_AWAY,
                             "%s: the newest writes lie on another member of the ring",
                             survivor->device->name);
    for (unsigned m = 0; m < ring->count; m++)
        if (!ring->members[m].lost && is_behind(ring, m, vdi, mark->proof))
            return plx_fault_set(fault, PLX_ERR_RING_AWAY,
                                 "%s: this is an older copy of the ring that has the newest "
                                 "writes, or it was damaged, or the store was put back to an "
                                 "older state: put the newer ring, or the newer store, back",
                                 ring->members[m].device->name);
    return 0;
}

/* ---- What is known of disks ---- */

static const struct plx_uuid *owner(const struct plx_ring *ring, uint32_t segment)
{
    const struct plx_ring_part *part = &ring->parts[segment];

    if (part->use == PLX_RING_FREE || part->use == PLX_RING_BAD)
        return NULL;
    for (unsigned m = 0; m < ring->count; m++)
        if (part->whole[m] && !plx_uuid_is_zero(&part->head[m].vdi))
            return &part->head[m].vdi;
    return NULL;
}

void plx_ring_each_disk(const struct plx_ring *ring,
                        void (*disk)(void *context, const struct plx_uuid *vdi, uint32_t segments),
                        void *context)
{
    for (uint32_t s = 0; s < ring->segments; s++) {
        const struct plx_uuid *vdi = owner(ring, s), *other;
        uint32_t count = 0, before = 0;

        for (uint32_t t = 0; t < ring->segments && vdi; t++) {
            other = owner(ring, t);
            if (!other || !plx_uuid_equal(other, vdi))
                continue;
            count++;
            before += t < s;
        }
        if (count && !before)
            disk(context, vdi, count);
    }
}

/* ---- Scans ---- */

void plx_ring_scan_begin(struct plx_ring *ring)
{
    while (ring->resilver.paused)
        plx_ring_run(ring);
    ring->scans++;
}

void plx_ring_scan_end(struct plx_ring *ring)
{
    ring->scans--;
}

/* ---- Forgetting ---- */

static int write_free(struct plx_ring *ring, uint32_t segment, uint8_t *block)
{
    static const struct plx_ring_segment unused;
    struct plx_ring_part *part = &ring->parts[segment];
    int error = 0;

    plx_format_ring_segment_encode(&ring->id, &unused, block);
    for (unsigned m = 0; m < ring->count && !error; m++) {
        if (!ring->members[m].lost)
            error = plx_ring_transfer_sync(ring, m, PLX_IO_WRITE, plx_ring_offset(ring, segment),
                                           block, PLX_BLOCK_SIZE);
        if (error)
            plx_ring_member_lost(ring, m, error);
        part->head[m] = unused;
        part->whole[m] = true;
    }
    plx_ring_part_changed(ring, segment);
    return ring->sticky;
}

/* Whether forgetting the disk frees the segment; then it counts as free. It may have been free
 * before: what an open chain lets go of keeps its header. */
static bool is_forgotten(struct plx_ring *ring, uint32_t segment, const struct plx_uuid *vdi,
                         bool open)
{
    struct plx_ring_part *part = &ring->parts[segment];

    if (!plx_ring_part_is_of(ring, segment, vdi) ||
        (part->use != PLX_RING_ASIDE &&
         (open || (part->use != PLX_RING_UNKNOWN && part->use != PLX_RING_FREE))))
        return false;
    if (part->use == PLX_RING_FREE)
        return true;
    part->use = PLX_RING_UNKNOWN;
    plx_ring_part_settle(ring, segment, vdi);
    return part->use == PLX_RING_FREE; /* else the other member says that it is another disk's */
}

int plx_ring_forget(struct plx_ring *ring, const struct plx_uuid *vdi, struct plx_fault *fault)
{
    uint8_t *block = malloc(PLX_BLOCK_SIZE);
    bool open = false;
    int error = block ? ring->sticky : PLX_ERR_NOMEM;

    plx_ring_scan_begin(ring);
    for (const struct plx_ring_chain *c = ring->chains; c; c = c->next)
        open |= plx_uuid_equal(&c->vdi, vdi);
    for (uint32_t s = 0; s < ring->segments && !error; s++) {
        struct plx_ring_part *part = &ring->parts[s];

        if (!is_forgotten(ring, s, vdi, open))
            continue;
        ring->free_parts--;
        part->use = PLX_RING_UNKNOWN; /* nobody takes it meanwhile */
        error = write_free(ring, s, block);
        plx_ring_part_free(ring, s);
    }
    free(block);
    if (!error)
        error = plx_ring_flush_members(ring);
    plx_ring_settle_set(ring);
    error = error ? error : ring->sticky;
    plx_ring_scan_end(ring);
    return error ? plx_fault_set(fault, error, "%s: %s", ring->members[0].device->name,
                                 plx_error_text(error))
                 : 0;
}
