/* verify_kin.c - who descends from whom (VERIFY-11). See verify.h.
 *
 * A block is written by one disk, W. Another disk has it only if it descends from W, as a clone or
 * a clone of a clone, and got the block with the tree that it began with. W may be deleted by now.
 * A family is all disks that descend from one disk. Its disks are read one after the other,
 * ancestors first (verify_families.c). Then a few bits tell of each block what is needed:
 *
 *     the disk being read     earlier disks use the block     it fits
 *     has it as its own       any                             never: W is read before its heirs
 *     inherited it            one of another family           no
 *                             one of its own family           yes, but see below
 *
 * If disk D inherited a block, and a disk of its family wrote it, the writer must be an ancestor of
 * D. That is so if an ancestor A has the snapshot that D descends from: A uses the block, too, and
 * A has been compared with the disks before it. If no ancestor has that snapshot, no disk of the
 * family may have written the block.
 *
 * What does not fit here is only a suspect. Its users are then compared one by one
 * (plx_verify_related()), whatever the order was.
 *
 * A disk whose ancestor is in no record any more may descend from any disk. It is read last, and
 * what it inherited fits everybody.
 *
 * Loop: the store's. Crash story: this file only reads.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/list.h"
#include "engine/check/verify.h"

/* ---- The list ---- */

static int by_id(const void *a, const void *b)
{
    const struct plx_kin *x = a, *y = b;

    return memcmp(&x->id, &y->id, sizeof x->id);
}

static size_t find(const struct plx_verify *v, const struct plx_uuid *id)
{
    const struct plx_kin key = {.id = *id};
    const struct plx_kin *found =
        v->kin_count ? bsearch(&key, v->kin, v->kin_count, sizeof *v->kin, by_id) : NULL;

    return found ? (size_t)(found - v->kin) : PLX_NO_KIN;
}

/* Whether the disk certainly lacks a snapshot. An open one, or one that a crash left, may have
 * taken it behind its key frame. */
static bool lacks(const struct plx_kin *kin, uint64_t seq)
{
    return seq <= kin->oldest || seq > kin->newest;
}

/* Follows the ancestors of a disk. A circle of them, which cannot be, counts as not known. */
static void trace(struct plx_verify *v, struct plx_kin *kin)
{
    const struct plx_kin *at = kin;

    kin->root_slot = kin->slot;
    kin->link = PLX_NO_KIN;
    while (!plx_uuid_is_zero(&at->parent) && !kin->strange) {
        const struct plx_kin *parent = at->up == PLX_NO_KIN ? NULL : &v->kin[at->up];

        kin->strange = !parent || ++kin->depth > v->kin_count;
        if (kin->strange)
            return;
        if (parent->read && kin->link == PLX_NO_KIN)
            kin->link = (size_t)(at - v->kin);
        kin->root_slot = parent->slot;
        at = parent;
    }
}

void plx_verify_list_kin(struct plx_verify *v)
{
    struct plx_slot_scan scan = {0};
    struct plx_vdi_record record;
    size_t capacity = 0;
    uint8_t which;

    free(v->kin);
    v->kin = NULL;
    v->self = NULL;
    v->kin_count = 0;
    for (uint32_t slot = 0; !v->error && plx_vdi_next_slot(v->store, &scan, &slot); slot++) {
        if (plx_vdi_record_read(v->store, slot, &record, &which, NULL))
            continue;
        if (!PLX_LIST_ROOM(v->kin, v->kin_count, capacity, 64)) {
            v->error = PLX_ERR_NOMEM;
            return;
        }
        v->kin[v->kin_count++] = (struct plx_kin){
            .id = record.id,
            .parent = record.parent,
            .parent_seq = record.parent_seq,
            .created_ns = record.created_ns,
            .oldest = record.oldest.snap_seq,
            .origin_root = record.origin_root,
            .origin_levels = record.origin_levels,
            .newest = record.owner ? UINT64_MAX : record.keyframe.snap_seq,
            .slot = slot,
            .read = record.state == PLX_VDI_LIVE &&
                    (!v->options->leave_out || !v->options->leave_out(v->options->context, slot))};
    }
    if (v->kin_count)
        qsort(v->kin, v->kin_count, sizeof *v->kin, by_id);
    for (size_t i = 0; i < v->kin_count; i++)
        v->kin[i].up = find(v, &v->kin[i].parent);
    for (size_t i = 0; i < v->kin_count; i++)
        trace(v, &v->kin[i]);
}

const struct plx_kin *plx_verify_find_kin(const struct plx_verify *v)
{
    size_t at = find(v, &v->record->id);

    return at != PLX_NO_KIN && v->kin[at].slot == v->record->slot ? &v->kin[at] : NULL;
}

/* Whether the disk's parent, which is read, has the snapshot that the disk was made of. */
static bool has_snapshot(const struct plx_verify *v, const struct plx_kin *kin)
{
    return !lacks(&v->kin[kin->up], kin->parent_seq) && !kin->denied;
}

bool plx_verify_is_linked(const struct plx_verify *v, const struct plx_kin *kin)
{
    return kin->link != PLX_NO_KIN && has_snapshot(v, &v->kin[kin->link]);
}

/* ---- Two users of a block ---- */

/* Whether what the disk inherited may be a block that the other one has written. */
static bool may_descend(const struct plx_verify *v, const struct plx_kin *disk, size_t other,
                        bool same_contents)
{
    const struct plx_kin *at = disk;

    for (uint32_t i = 0; i < disk->depth && at->up != PLX_NO_KIN; i++) {
        if (at->up == other) /* what went back to before the snapshot may have it no longer */
            return same_contents || has_snapshot(v, at);
        at = &v->kin[at->up];
    }
    return disk->strange;
}

bool plx_verify_related(const struct plx_verify *v, const struct plx_use *first,
                        const struct plx_use *other)
{
    const struct plx_kin *one = first->kin == PLX_NO_KIN ? NULL : &v->kin[first->kin],
                         *two = other->kin == PLX_NO_KIN ? NULL : &v->kin[other->kin];
    bool same_contents = first->checksum && first->checksum == other->checksum;

    if (!first->inherited && !other->inherited)
        return false;
    if (!one || !two) /* they came meanwhile, so their records have changed */
        return true;
    if (!other->inherited)
        return may_descend(v, one, other->kin, same_contents);
    if (!first->inherited)
        return may_descend(v, two, first->kin, same_contents);
    return one->strange || two->strange || one->root_slot == two->root_slot;
}
