/* rebuild_scan.c - what a store says of its extents and disks (REBUILD-3, REBUILD-4), and which
 * disks went back (REBUILD-7). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attach/doors.h"
#include "attach/rebuild_inside.h"
#include "engine/base/list.h"

static int found_instance(struct rebuild *r, uint64_t id)
{
    for (size_t i = 0; i < r->instance_count; i++)
        if (r->instances[i].id == id)
            return 0;
    if (!PLX_LIST_ROOM(r->instances, r->instance_count, r->instance_capacity, 16))
        return plx_rebuilding_no_memory(r);
    r->instances[r->instance_count++] = (struct plx_registry_instance){
        .id = id, .store = r->row, .role = "lost", .started_ns = 1}; /* REBUILD-4 */
    return 0;
}

/* REBUILD-3 */
static int scan_extent(struct rebuild *r, uint64_t number)
{
    struct plx_registry_extent *row = &r->extents[r->extent_count];
    struct plx_extent_info extent;
    struct plx_fault why;
    int error = plx_store_extent_read(r->store, number, &extent, &why);

    if (error == PLX_ERR_CORRUPT) {
        *row = (struct plx_registry_extent){
            .no = number, .type = PLX_EXTENT_DATA, .sealed = true, .states = PLX_STATES_NEVER};
        r->unbelieved[number] = true;
        r->rebuilt.sealed_extents++;
        plx_rebuilding_tell_lost(r, "%s; nothing is allocated in it any more", why.text);
    } else if (error) {
        return plx_fault_set(r->fault, error, "%s", why.text);
    } else if (extent.type == PLX_EXTENT_UNUSED) {
        return 0;
    } else {
        *row = (struct plx_registry_extent){
            .no = number,
            .type = extent.type,
            .owner = extent.owner,
            .generation = extent.generation,
            .free_blocks = extent.blocks - extent.used_blocks,
            .states = extent.settled ? extent.states : 0,
            .sealed = extent.sealed || (!extent.owner && extent.blocks == extent.used_blocks),
        };
        /* An owner's extent is not sealed in the registry; its recovery seals it. */
        row->sealed = row->sealed && !extent.owner;
    }
    r->extent_count++;
    return row->owner ? found_instance(r, row->owner) : 0;
}

int plx_rebuilding_scan_extents(struct rebuild *r)
{
    struct plx_extent_range range;
    int error = 0;

    r->extents = calloc(r->info.extents, sizeof *r->extents);
    r->unbelieved = calloc(r->info.extents, sizeof *r->unbelieved);
    if (!r->extents || !r->unbelieved)
        return plx_rebuilding_no_memory(r);
    for (unsigned i = 0; plx_store_range(r->store, i, &range) && !error; i++)
        for (uint64_t no = range.first; no < range.first + range.extents && !error; no++)
            if (plx_store_extent_is_system(r->store, no)) /* SPANS-3 */
                r->extents[r->extent_count++] =
                    (struct plx_registry_extent){.no = no, .type = PLX_EXTENT_SYSTEM};
            else
                error = scan_extent(r, no);
    return error;
}

static const struct plx_registry_vdi *old_in_slot(const struct rebuild *r, uint32_t slot)
{
    for (size_t i = 0; i < r->old_count; i++)
        if (r->old_vdis[i].slot == slot)
            return &r->old_vdis[i];
    return NULL;
}

/* REBUILD-7. One that went back may have a name that was given to another since; it keeps its new
 * one. */
static void free_name(const struct rebuild *r, const struct plx_registry_vdi *old, bool back,
                      struct plx_registry_vdi *row)
{
    char name[sizeof row->name];
    bool taken = false;

    snprintf(name, sizeof name, "%.200s-slot-%u", row->name, row->slot);
    for (size_t i = 0; i < r->old_count && !taken; i++)
        taken =
            strcmp(r->old_vdis[i].name, row->name) == 0 && strcmp(r->old_vdis[i].id, row->id) != 0;
    if (taken && (back || (old && strcmp(old->name, name) == 0)))
        memcpy(row->name, name, sizeof name);
}

/* REBUILD-17 */
static void keep_name(const struct rebuild *r, const struct plx_vdi_info *vdi,
                      const struct plx_registry_vdi *old, bool back, struct plx_registry_vdi *row)
{
    char why[160];

    if ((back || (!r->doubted && vdi->epoch <= old->epoch)) &&
        !plx_name_check("vdi", old->name, why, sizeof why)) /* another word is damage */
        memcpy(row->name, old->name, sizeof row->name);
}

/* REBUILD-7. old: what was known of it; NULL: nothing. */
static void keep_known(struct rebuild *r, const struct plx_vdi_info *vdi,
                       const struct plx_registry_vdi *old, struct plx_registry_vdi *row)
{
    const struct plx_registry_vdi *later = old ? NULL : old_in_slot(r, vdi->slot);
    bool gone = old ? old->deleted : later && vdi->created_ns < later->created_ns;
    bool back = gone || (old && plx_door_is_back(old, vdi));
    bool newer = !old || vdi->epoch > old->written.epoch ||
                 (vdi->epoch == old->written.epoch && vdi->record_state > old->written.state);
    char advice[PLX_OLDER_TEXT];

    /* REBUILD-15. The registry has not given that epoch out, or has not heard that the disk was
     * closed: it may have been a crash that kept that from it, but nobody can tell. */
    r->outdated =
        r->outdated ||
        (newer && !row->deleted && old &&
         (vdi->epoch > old->epoch || (vdi->epoch == old->epoch && vdi->owner != old->owner)));
    /* REBUILD-11 */
    r->newer_first = r->newer_first || (newer && !gone && !row->deleted && !(old && old->owner));
    if (row->deleted)
        return;
    if (old)
        row->epoch = plx_max_u64(row->epoch, old->epoch);
    if (old && !old->deleted)
        keep_name(r, vdi, old, back, row);
    free_name(r, old, back, row);
    if (!back)
        return;
    row->written = gone ? (struct plx_registry_written){row->epoch + 1, 1} : old->written;
    r->rebuilt.older_records++;
    if (plx_door_is_used_twice(row))
        plx_rebuilding_tell_lost(
            r, "virtual disk %s: its record is older than what was written last; it is refused: %s",
            row->name, plx_door_older_advice(row, advice));
    else
        plx_rebuilding_tell_lost(
            r,
            "virtual disk %s: its record is older than what was written last; it is refused "
            "until the store is restored, or 'parallax vdi accept-older STORE/%.80s' "
            "accepts that",
            row->name, row->name);
}

/* ---- REBUILD-10 ---- */

static void tell_name(struct rebuild *r, const struct plx_registry_vdi *row, const char *why)
{
    if (!row->deleted)
        plx_rebuilding_tell_lost(r, "the virtual disk in slot %u %s; it is called %s now",
                                 row->slot, why, row->name);
}

static void replace_invalid_name(struct rebuild *r, struct plx_registry_vdi *row)
{
    char why[160];

    if (!plx_name_check("vdi", row->name, why, sizeof why))
        return;
    snprintf(row->name, sizeof row->name, "vdi-%s", row->id);
    tell_name(r, row, "has a name that no virtual disk may have");
}

struct named_row {
    struct plx_registry_vdi *row;
    bool renamed;
};

/* By name. Of those with one name, one that has always had it comes first, and keeps it. */
static int compare_names(const void *one, const void *other)
{
    const struct named_row *a = one, *b = other;
    int order = strcmp(a->row->name, b->row->name);

    if (!order)
        order = a->renamed - b->renamed;
    return order ? order : (a->row->slot > b->row->slot) - (a->row->slot < b->row->slot);
}

/* Renames all but the first of those that have one name. A name that is made may be another disk's
 * as well, so this goes on until each has its own. The number of the round makes each name a new
 * one, however much of a long name is cut. */
static void rename_equals(struct named_row *live, size_t count)
{
    bool again = true;

    for (unsigned round = 1; again; round++) {
        again = false;
        qsort(live, count, sizeof *live, compare_names);
        for (size_t i = count; i-- > 1;) {
            struct plx_registry_vdi *row = live[i].row;
            char name[sizeof row->name];

            if (strcmp(row->name, live[i - 1].row->name))
                continue;
            snprintf(name, sizeof name, "%.200s-slot-%u-%u", row->name, row->slot, round);
            memcpy(row->name, name, sizeof name);
            live[i].renamed = again = true;
        }
    }
}

static int replace_equal_names(struct rebuild *r)
{
    struct named_row *live = calloc(r->vdi_count + 1, sizeof *live);
    size_t count = 0;

    if (!live)
        return plx_rebuilding_no_memory(r);
    for (size_t i = 0; i < r->vdi_count; i++)
        if (!r->vdis[i].deleted) /* its name is free */
            live[count++].row = &r->vdis[i];
    rename_equals(live, count);
    for (size_t i = 0; i < count; i++)
        if (live[i].renamed)
            tell_name(r, live[i].row, "has another one's name");
    free(live);
    return 0;
}

static int scan_vdi(struct rebuild *r, uint32_t slot)
{
    struct plx_registry_vdi *row = &r->vdis[r->vdi_count], old;
    struct plx_vdi_info vdi;
    struct plx_fault why;
    int error = plx_vdi_read_info(r->store, slot, &vdi, &why);
    char what[PLX_NAME_MAX + 32];
    bool known = false;

    if (error == PLX_ERR_NOT_FOUND)
        return 0;
    if (error == PLX_ERR_CORRUPT) /* REBUILD-3 */
        return plx_rebuilding_lose_record(r, slot, old_in_slot(r, slot), why.text);
    if (error)
        return plx_fault_set(r->fault, error, "%s", why.text);
    *row = (struct plx_registry_vdi){
        .store = r->row,
        .slot = slot,
        .size_bytes = vdi.size_bytes,
        .sector_size = vdi.sector_size,
        .owner = vdi.owner,
        .epoch = plx_max_u64(vdi.epoch, 1),
        .deleted = vdi.state == PLX_VDI_DELETED,
        .parent_seq = vdi.parent_seq,
        .created_ns = vdi.created_ns,
        .written = {vdi.epoch, vdi.record_state}, /* an owner's, too: it was made (DOORS-3) */
    };
    plx_uuid_text(&vdi.id, row->id);
    memcpy(row->name, vdi.name, sizeof row->name);
    replace_invalid_name(r, row);
    if (vdi.parent_seq)
        plx_uuid_text(&vdi.parent, row->parent);
    if (r->knows) {
        snprintf(what, sizeof what, "virtual disk %s", row->name);
        error = plx_rebuilding_read_old(r, plx_registry_vdi_get_by_id(r->old, row->id, &old), what);
        if (error && error != PLX_ERR_NOT_FOUND)
            return error;
        known = !error;
    }
    keep_known(r, &vdi, known ? &old : NULL, row);
    r->vdi_count++;
    r->rebuilt.disks += !row->deleted;
    r->rebuilt.deleted += row->deleted;
    return row->owner ? found_instance(r, row->owner) : 0;
}

int plx_rebuilding_scan_vdis(struct rebuild *r)
{
    struct plx_slot_scan scan = {0};
    int error = 0;

    r->vdis = calloc(r->info.vdi_slots, sizeof *r->vdis);
    if (!r->vdis)
        return plx_rebuilding_no_memory(r);
    for (uint32_t slot = 0; !error && plx_vdi_next_slot(r->store, &scan, &slot); slot++)
        error = scan_vdi(r, slot);
    return error ? error : replace_equal_names(r);
}
