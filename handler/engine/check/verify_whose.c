/* verify_whose.c - of two disks that use one block, the one that has it no longer (VERIFY-10).
 *
 * Whoever uses a block has written it, and had it alone while it wrote. So if the block holds what
 * one of its users wrote, that one wrote last: the other had the block before, and has it no
 * longer. Its record is older than what was written last. What contents say of a user:
 *
 *     they are what it wrote       a checksum that is known, or the header of its log segment
 *     they are not                 the same of nodes and headers, which are never written twice
 *     nothing                      all else: data may have been written again in place, and what a
 *                                  log names behind its key frame may not have been written yet
 *
 * A block of a log segment behind its header may not be written yet. So that it still holds what
 * another user wrote says nothing of the one whose segment it is.
 *
 * A common block is common until it is freed. So of two users that both wrote what it holds, the
 * one that does not call it common had it before.
 *
 * Loop: the store's. Crash story: this file only reads.
 */
#include "engine/check/verify.h"

bool plx_verify_misfits(const struct plx_use *first, const struct plx_use *other)
{
    return first->writable || other->common != first->common;
}

/* Whether v->block is what the user wrote: 1 yes, -1 no, 0 that is not known. */
static int is_its_own(struct plx_verify *v, const struct plx_use *use)
{
    uint32_t holds = plx_checksum24(plx_crc32c(v->block, PLX_BLOCK_SIZE));
    struct plx_segment_header header;
    struct plx_vdi_record record;
    uint8_t which;

    if (use->named || use->content == PLX_CONTENT_OPEN)
        return 0;
    if (use->content != PLX_CONTENT_HEADER)
        return !use->checksum                     ? 0
               : use->checksum == holds           ? 1
               : use->content == PLX_CONTENT_NODE ? -1
                                                  : 0;
    if (plx_vdi_record_read(v->store, use->slot, &record, &which, NULL))
        return 0;
    return plx_format_segment_decode(v->block, &v->store->info.id, &record.id, use->segment,
                                     v->store->addr_limit, &header, NULL)
               ? -1
               : 1;
}

/* Whether the user has written the block, whatever it holds. */
static bool has_written(const struct plx_use *use)
{
    return !use->named && use->content != PLX_CONTENT_OPEN;
}

/* VERIFY-10: 0 or 1, or -1: that cannot be told. */
static int find_older(const struct plx_use *first, int first_own, const struct plx_use *other,
                      int other_own)
{
    if (first_own == other_own)
        return first_own != 1 || first->common == other->common ? -1 : first->common;
    if (first_own > other_own)
        return other_own < 0 || has_written(other) ? 1 : -1;
    return first_own < 0 || has_written(first) ? 0 : -1;
}

void plx_verify_tell_shared(struct plx_verify *v, const struct plx_use *uses, size_t count)
{
    bool unread;
    int first;

    if (!v->options->shared || v->error)
        return;
    unread = plx_verify_read(v, PLX_KIND_DATA, uses[0].addr, v->block, PLX_BLOCK_SIZE) != 0;
    first = unread ? 0 : is_its_own(v, &uses[0]);
    for (size_t i = 1; i < count && !v->error; i++) {
        const struct plx_use *other = &uses[i];
        struct plx_shared shared = {.slot = {uses[0].slot, other->slot}};

        if (other->slot == uses[0].slot || !plx_verify_misfits(&uses[0], other))
            continue;
        shared.older = find_older(&uses[0], first, other, unread ? 0 : is_its_own(v, other));
        v->options->shared(v->options->context, &shared);
    }
}
