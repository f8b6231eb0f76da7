/* verify_whose.c - what the contents of a block say of two disks that use it (VERIFY-10).
 *
 * A disk that writes a block has it alone. Say two disks A and B name one block, and each of them
 * has written it. If the block holds what B wrote, and not what A wrote, A had the block before B,
 * and has it no longer: A's record is older than what A wrote last. What contents say of a disk
 * that uses the block:
 *
 *     the disk's record names the block as            the disk wrote    the block speaks
 *                                                     the contents if   against the disk if
 *     data or node with a checksum that is known      they match it     they do not match it
 *     header of a log segment                         they are one      they are none
 *     data without a checksum                         -                 -
 *     a common block                                  -                 -
 *     what a log names behind its key frame           -                 -
 *     a log segment behind its header                 -                 -
 *
 * The rows with a dash prove nothing:
 * - Data that a disk overwrites in place has no checksum any more; that is durable before the bytes
 *   change. So the block never speaks against such a disk. Even if its contents match another
 *   disk's checksum, the disk that overwrote in place may have written the same bytes.
 * - A block becomes common because its contents are equal to another's.
 * - What the last two rows name may not have been written yet.
 *
 * Loop: the store's. Crash story: this file only reads.
 */
#include "engine/check/verify.h"

static bool differ(const struct plx_use *first, const struct plx_use *other)
{
    return first->checksum && other->checksum && first->checksum != other->checksum;
}

bool plx_verify_misfits(const struct plx_verify *v, const struct plx_use *first,
                        const struct plx_use *other)
{
    bool data = first->content == PLX_CONTENT_DATA;

    if (first->writable || other->common != first->common)
        return true;
    if (first->common)
        return false;
    if (other->place != first->place || (!data && differ(first, other))) /* VERIFY-11 */
        return true;
    return data && other->slot != first->slot &&
           (differ(first, other) || !plx_verify_related(v, first, other));
}

/* VERIFY-10. Whether v->block is what the user wrote: 1 yes, -1 no, 0 that is not known. */
static int fits(struct plx_verify *v, const struct plx_use *use)
{
    uint32_t holds = plx_checksum24(plx_crc32c(v->block, PLX_BLOCK_SIZE));
    struct plx_segment_header header;
    struct plx_vdi_record record;
    uint8_t which;

    if (use->named || use->common || use->content == PLX_CONTENT_OPEN)
        return 0;
    if (use->content != PLX_CONTENT_HEADER)
        return !use->checksum ? 0 : use->checksum == holds ? 1 : -1;
    if (plx_vdi_record_read(v->store, use->slot, &record, &which, NULL))
        return 0;
    return plx_format_segment_decode(v->block, &v->store->info.id, &record.id, use->segment,
                                     v->store->addr_limit, &header, NULL)
               ? -1
               : 1;
}

static bool only_reads(const struct plx_use *use, const struct plx_use *other)
{
    bool data = use->content == PLX_CONTENT_DATA;

    return (data ? use->inherited : !use->writable) && use->place == other->place;
}

void plx_verify_tell_shared(struct plx_verify *v, const struct plx_use *uses, size_t count)
{
    bool unread;
    int first;

    if (!v->options->shared || v->error)
        return;
    unread = plx_verify_read(v, PLX_KIND_DATA, uses[0].addr, v->block, PLX_BLOCK_SIZE) != 0;
    first = unread ? 0 : fits(v, &uses[0]);
    for (size_t i = 1; i < count && !v->error; i++) {
        const struct plx_use *other = &uses[i];
        const struct plx_shared shared = {
            .slot = {uses[0].slot, other->slot},
            .fits = {first, unread ? 0 : fits(v, other)},
            .reads = {only_reads(&uses[0], other), only_reads(other, &uses[0])}};

        if (other->slot == uses[0].slot || !plx_verify_misfits(v, &uses[0], other))
            continue;
        v->options->shared(v->options->context, &shared);
    }
}
