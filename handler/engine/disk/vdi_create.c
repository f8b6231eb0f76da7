/* vdi_create.c - virtual disks created, cloned, deleted, and given up. VDI-1 is in vdi.c.
 *
 * A clone is a disk whose key frame names a tree that shares all blocks with a snapshot of another
 * disk. The tree is read-only as a whole, so the clone overwrites nothing of it in place.
 * Loop: calls are synchronous; the loop runs meanwhile.
 * Crash story: a disk is created by two states of its record, first deleted, then live, each
 *   flushed (RECORD-1). Of a record that was never used, slot A is written first; a torn A beside
 *   an empty B counts as never used. A crash before the second state is durable leaves a record
 *   that can be used again, and of a clone some leaked nodes. Deleting is one new state of the
 *   record; the blocks become garbage, which a collection finds.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/disk/reserve.h"
#include "engine/disk/vdi_inside.h"

int plx_vdi_write_whole(struct plx_vdi *instant, uint64_t size_bytes, struct plx_whole *ret_whole)
{
    struct plx_waiter waiter = PLX_WAITER;
    struct plx_map *map = &instant->map;
    struct plx_whole whole = *ret_whole;
    struct plx_tree tree;
    int error;

    PLX_ASSERT(instant->snapshot && map->is_frozen);
    error = plx_reserve_obtain(instant, plx_reserve_nodes(instant, map->frozen.leaves));
    if (!error)
        error = plx_tree_begin_map(&tree, map, plx_map_levels_for(size_bytes), &waiter.task, NULL,
                                   NULL); /* blocks that die in it belong to the snapshot's disk */
    if (error)
        return error;
    while ((error = plx_tree_step(&tree, &whole.root)) == PLX_WAIT) {
        error = plx_waiter_wait(map->store, &waiter);
        if (!error && whole.interrupted && whole.interrupted(whole.context))
            error = PLX_ERR_SYSTEM;
        if (error)
            break;
    }
    if (error) {
        plx_tree_abort(&tree);
        return error;
    }
    whole.levels = tree.result_levels;
    plx_tree_count(&tree, size_bytes, &whole.mapped, &whole.vouched);
    whole.made = tree.made;
    tree.made = (struct plx_deaths){0};
    plx_tree_done(&tree);
    if (plx_entry_addr(whole.root)) /* all of it is shared with the snapshot (INV-3) */
        whole.root |= PLX_ENTRY_READ_ONLY;
    *ret_whole = whole;
    return 0;
}

static int clone_keyframe(struct plx_store *store, const struct plx_vdi_create_options *options,
                          struct plx_vdi_record *record, struct plx_fault *fault)
{
    struct plx_whole whole = {0};
    struct plx_vdi *parent;
    int error = plx_snapshot_open(store, options->parent_slot, options->parent_seq, &parent, fault);

    if (error)
        return error;
    record->parent = parent->record.id;
    record->parent_seq = options->parent_seq;
    record->sector_size = parent->record.sector_size;
    record->keyframe.size_bytes = plx_max_u64(parent->size_bytes, options->size_bytes);
    error = plx_store_flush_others(store); /* another process may have written what it shares */
    if (!error)
        error = plx_vdi_write_whole(parent, record->keyframe.size_bytes, &whole);
    if (error)
        plx_fault_set(fault, error, "cloning %s: %s", parent->record.name, plx_error_text(error));
    record->keyframe.root = record->origin_root = whole.root;
    record->keyframe.levels = record->origin_levels = whole.levels;
    record->keyframe.mapped = whole.mapped;
    record->keyframe.vouched = whole.vouched;
    plx_deaths_free(&whole.made);
    plx_vdi_abandon(parent);
    return error;
}

static int check_create(const struct plx_vdi_create_options *options, struct plx_fault *fault)
{
    uint64_t size = options->size_bytes;

    if (!options->name[0])
        return plx_fault_set(fault, PLX_ERR_INVALID, "a virtual disk needs a name");
    if (options->sector_size != 512 && options->sector_size != 4096)
        return plx_fault_set(fault, PLX_ERR_INVALID, "sector size: 512 or 4096");
    if (options->is_clone && size == 0)
        return 0;
    if (size < PLX_VDI_SIZE_MIN || size > PLX_VDI_SIZE_MAX)
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "size %llu: a virtual disk has 4 KiB to 256 TiB",
                             (unsigned long long)size);
    if (size % options->sector_size)
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "size %llu: not a multiple of the sector size (%u)",
                             (unsigned long long)size, options->sector_size);
    return 0;
}

/* Writes a new record as deleted first, then as live: if the second write fails, the record can be
 * used again. But a write that failed may have reached the store. So a third write takes it back,
 * in the same slot. If that fails as well, the disk may exist: another attempt to create it says
 * EXISTS then, or the disk can be deleted. */
static int write_new_record(struct plx_store *store, struct plx_vdi_record *record, uint8_t *slot)
{
    int error;

    record->state = PLX_VDI_DELETED;
    error = plx_vdi_record_write(store, record, slot);
    if (error)
        return error;
    record->state = PLX_VDI_LIVE;
    error = plx_vdi_record_write(store, record, slot);
    if (error) {
        struct plx_vdi_record undone = *record;

        undone.state = PLX_VDI_DELETED;
        undone.generation = plx_generation_next(undone.generation); /* newer than the failed one */
        plx_vdi_record_write(store, &undone, slot);
    }
    return error;
}

static int create_record(struct plx_store *store, const struct plx_vdi_create_options *options,
                         struct plx_vdi_record *record, uint8_t slot,
                         struct plx_flush_mark flush_mark, struct plx_fault *fault)
{
    int error = options->is_clone ? clone_keyframe(store, options, record, fault) : 0;

    if (error)
        return error;
    record->oldest = record->keyframe;
    error = options->is_clone ? plx_bitmap_sync_run(store) : 0; /* a new disk names no block */
    if (!error && plx_flush_failed_since(store, flush_mark))
        error = store->flush_error; /* the clone's nodes may be lost */
    if (!error)
        error = write_new_record(store, record, &slot);
    return error ? plx_vdi_cannot_write(options->name, error, fault) : 0;
}

int plx_vdi_create(struct plx_store *store, const struct plx_vdi_create_options *options,
                   struct plx_vdi_info *ret_info, struct plx_fault *fault)
{
    struct plx_vdi_record record = {0}, old;
    struct plx_flush_mark mark = plx_flush_mark(store);
    struct plx_record_slots slots;
    int error = check_create(options, fault);

    if (error)
        return error;
    if (options->slot >= plx_vdi_slot_count(store))
        return plx_fault_set(fault, PLX_ERR_RANGE, "VDI slot %u: the store has %u", options->slot,
                             plx_vdi_slot_count(store));
    error = plx_vdi_record_slots_read(store, options->slot, &slots, &old, fault);
    if (!error && old.state == PLX_VDI_LIVE)
        return plx_fault_set(fault, PLX_ERR_EXISTS, "VDI slot %u holds %s", options->slot,
                             old.name);
    if (error && error != PLX_ERR_NOT_FOUND)
        return error;
    record.generation = error ? 0 : old.generation;
    if (error)
        slots.slot = 1;
    else
        error = plx_vdi_record_write_again(store, options->slot, &slots);
    if (error && error != PLX_ERR_NOT_FOUND)
        return plx_vdi_cannot_write(options->name, error, fault);
    record.state = PLX_VDI_LIVE;
    record.id = options->id;
    record.sector_size = options->sector_size;
    record.overwrite = options->overwrite;
    record.slot = options->slot;
    record.created_ns = options->created_ns ? plx_min_u64(options->created_ns, PLX_TIME_MAX)
                                            : plx_env_now_ns(store->env);
    record.index_levels = PLX_INDEX_LEVELS;
    record.keyframe.size_bytes = options->size_bytes;
    record.keyframe.levels = plx_map_levels_for(options->size_bytes);
    record.keyframe.time_ns = record.created_ns;
    memcpy(record.name, options->name, sizeof record.name);
    if (plx_uuid_is_zero(&record.id))
        store->env->random(store->env, record.id.b, sizeof record.id.b);
    store->disks->instants_opening++; /* until the record says that this is a clone (RECLAIM-6) */
    error = create_record(store, options, &record, slots.slot, mark, fault);
    store->disks->instants_opening--;
    store->disks->clones_made += options->is_clone;
    if (error)
        return error;
    if (ret_info)
        plx_vdi_record_info(&record, ret_info);
    return 0;
}

int plx_vdi_delete(struct plx_store *store, uint32_t slot, bool owner_dead, struct plx_fault *fault)
{
    struct plx_vdi_record record;
    struct plx_record_slots slots;
    int error = plx_vdi_record_slots_read(store, slot, &slots, &record, fault);

    if (error)
        return error;
    if (record.owner && !owner_dead)
        return plx_fault_set(fault, PLX_ERR_BUSY, "virtual disk %s is open", record.name);
    record.state = PLX_VDI_DELETED;
    record.owner = 0;
    error = plx_vdi_record_write_again(store, slot, &slots);
    if (!error)
        error = plx_vdi_record_write(store, &record, &slots.slot);
    return error ? plx_vdi_cannot_write(record.name, error, fault) : 0;
}

/* Writes zeroes over both slots. A crash in between leaves a damaged record as before, or one that
 * was never used. */
int plx_vdi_give_up(struct plx_store *store, uint32_t slot, struct plx_fault *fault)
{
    static const uint8_t none[2 * PLX_BLOCK_SIZE];
    struct plx_vdi_record record;
    struct plx_flush_mark mark = plx_flush_mark(store);
    struct plx_record_slots slots;
    int error;

    if (slot >= plx_vdi_slot_count(store))
        return 0;
    error = plx_vdi_record_slots_read(store, slot, &slots, &record, fault);
    if (!error && record.state == PLX_VDI_LIVE)
        return plx_fault_set(fault, PLX_ERR_EXISTS, "VDI slot %u can be read: it holds %s", slot,
                             record.name);
    if (error != PLX_ERR_CORRUPT)
        return error == PLX_ERR_NOT_FOUND ? 0 : error;
    error = plx_store_write_sync(store, PLX_KIND_ADMIN, plx_vdi_slot_addr(store, slot), none,
                                 sizeof none);
    if (!error)
        error = plx_store_flush_sync(store, mark);
    return error ? plx_fault_set(fault, error, "VDI slot %u: writing it: %s", slot,
                                 plx_error_text(error))
                 : 0;
}
