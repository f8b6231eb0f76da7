/* store.c - a store as a whole: opened, closed, grown by another process, counted; and what a turn
 * of its loop does for its disks. See engine.h.
 *
 * This room is above disk/, so that the loop (loop/tick.c) need not know disks: it calls
 * store->pump, which is set here.
 * Loop: the store's. Opening, closing and plx_store_volumes_changed() are synchronous.
 * Crash story: a store is opened by reading alone, and closing only writes allocation bitmaps, each
 *   page in two slots. A crash at any point leaves what was durable before.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/disk/reserve.h"
#include "engine/disk/vdi.h"
#include "engine/loop/store.h"
#include "engine/loop/volume.h"

#ifdef __SANITIZE_ADDRESS__ /* each start would pay for all of it, used or not */
#define CACHE_BYTES_DEFAULT (8ull << 20)
#else
#define CACHE_BYTES_DEFAULT (64ull << 20)
#endif
#define KEYFRAME_MAPPINGS_DEFAULT 65536u
#define KEYFRAME_LOG_BYTES_DEFAULT (64ull << 20)
#define OPS_DEFAULT 128u

/* ---- The store's turn ---- */

/* store->pump: called in each round of a turn. */
static void pump(struct plx_store *store)
{
    for (struct plx_vdi *vdi = store->vdis; vdi; vdi = vdi->next)
        plx_vdi_pump(vdi);
    plx_alloc_foreign_pump(store);
}

uint64_t plx_store_due_ns(const struct plx_store *store)
{
    uint64_t due_ns = UINT64_MAX;

    for (const struct plx_vdi *vdi = store->vdis; vdi; vdi = vdi->next) {
        if (!vdi->snapshot)
            due_ns =
                plx_min_u64(due_ns, plx_min_u64(plx_protect_due_ns(vdi), plx_vouch_due_ns(vdi)));
        if (vdi->front && vdi->front->due_ns)
            due_ns = plx_min_u64(due_ns, vdi->front->due_ns(vdi->front));
    }
    return due_ns;
}

void plx_store_settle(struct plx_store *store)
{
    /* After a fence no extent is granted any more for what was freed. */
    while ((!store->fenced && plx_alloc_foreign_waits(store)) || plx_alloc_asks(store))
        if (!plx_store_tick(store))
            plx_store_wait(store);
}

/* ---- Opening ---- */

static int check_writable(const struct plx_store *store, const struct plx_volume *volumes,
                          unsigned count, struct plx_fault *fault)
{
    int error = 0;

    for (unsigned i = 0; i < count && store->options.instance && !error; i++)
        error =
            volumes[i].device->read_only
                ? plx_fault_set(fault, PLX_ERR_READONLY, "%s: read-only", volumes[i].device->name)
                : plx_superblock_check_known(
                      volumes[i].device,
                      volumes[i].super.read_compatible & ~PLX_READ_COMPATIBLE_KNOWN, fault);
    return error;
}

/* Of the rooms below. */
static void free_parts(struct plx_store *store)
{
    plx_disks_free(store);
    plx_allocator_free(store);
    plx_cache_free(store->cache);
    plx_tick_free(store);
}

int plx_store_open(struct plx_device **devices, unsigned count,
                   const struct plx_store_options *options, struct plx_env *env,
                   struct plx_store **ret_store, struct plx_fault *fault)
{
    struct plx_extent_range *room = NULL;
    struct plx_store *store;
    int error = 0;

    if (count < 1 || count > PLX_VOLUMES_MAX)
        return plx_fault_set(fault, PLX_ERR_INVALID, "a store has 1 to %d volumes",
                             PLX_VOLUMES_MAX);
    store = calloc(1, sizeof *store);
    if (!store)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    store->env = env;
    store->options = *options;
    store->options.known = NULL; /* belongs to the caller */
    if (!store->options.cache_bytes)
        store->options.cache_bytes = CACHE_BYTES_DEFAULT;
    if (!store->options.keyframe_mappings)
        store->options.keyframe_mappings = KEYFRAME_MAPPINGS_DEFAULT;
    if (!store->options.keyframe_log_bytes)
        store->options.keyframe_log_bytes = KEYFRAME_LOG_BYTES_DEFAULT;
    if (!store->options.ops_per_vdi)
        store->options.ops_per_vdi = OPS_DEFAULT;
    error = plx_volumes_read(devices, count, options, store->volumes, fault);
    if (!error)
        error = check_writable(store, store->volumes, count, fault);
    if (!error)
        error = plx_volumes_room(count, &room, fault);
    if (!error)
        error = plx_volumes_map(store, store->volumes, count, &room, fault);
    if (error)
        goto fail;
    store->pump = pump;
    /* What a process before this one wrote may lie in the device's cache. */
    for (unsigned i = 0; i < count; i++)
        store->volumes[i].dirty = store->options.instance != 0;
    store->cache = plx_cache_new(store, store->options.cache_bytes);
    if (plx_tick_init(store) || plx_allocator_init(store) || plx_disks_init(store) ||
        !store->cache) {
        error = plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
        goto fail;
    }
    *ret_store = store;
    return 0;
fail:
    free_parts(store);
    free(room);
    free(store->ranges);
    free(store);
    return error;
}

int plx_store_close(struct plx_store *store)
{
    int error = 0;

    PLX_ASSERT(!store->vdis);
    if (store->options.instance)
        error = plx_bitmap_sync_run(store);
    while (plx_store_busy(store))
        if (!plx_store_tick(store))
            plx_store_wait(store);
    free_parts(store);
    for (unsigned i = 0; i < store->info.volumes; i++)
        store->volumes[i].device->ops->close(store->volumes[i].device);
    free(store->ranges);
    free(store);
    return error;
}

/* ---- Volumes that another process has grown or added ---- */

/* Whether everything that was known is still where it was, so that addresses in use stay right. */
static int check_grown(const struct plx_store *store, const struct plx_volume *volumes,
                       unsigned count, struct plx_fault *fault)
{
    if (!plx_uuid_equal(&volumes[0].super.store, &store->info.id))
        return plx_fault_set(fault, PLX_ERR_INVALID, "%s: belongs to another store (%s)",
                             volumes[0].device->name, volumes[0].super.name);
    for (unsigned i = 0; i < count; i++) {
        const struct plx_volume *known = &store->volumes[i], *now = &volumes[i];

        if (i >= store->info.volumes) {
            if (now->device->block_size > plx_store_device_block(store))
                return plx_fault_set(fault, PLX_ERR_INVALID,
                                     "%s: its logical blocks are larger than the store's; close "
                                     "all disks and open them again",
                                     now->device->name);
            continue;
        }
        if (!plx_uuid_equal(&known->super.volume, &now->super.volume))
            return plx_fault_set(fault, PLX_ERR_INVALID,
                                 "%s: another volume than %s, which is open", now->device->name,
                                 known->device->name);
        for (unsigned r = 0; r < known->super.ranges; r++)
            if (r >= now->super.ranges ||
                known->super.range[r].first != now->super.range[r].first ||
                known->super.range[r].extents > now->super.range[r].extents)
                return plx_fault_set(fault, PLX_ERR_CORRUPT,
                                     "%s: its extents lie elsewhere than when it was opened",
                                     now->device->name);
    }
    return count >= store->info.volumes ? check_writable(store, volumes, count, fault)
                                        : plx_fault_set(fault, PLX_ERR_INVALID,
                                                        "the store had more than %u volume%s "
                                                        "when it was opened",
                                                        count, plx_plural(count));
}

static void take_volumes(struct plx_store *store, struct plx_volume *volumes, unsigned count,
                         unsigned known)
{
    for (unsigned i = 0; i < count; i++) {
        struct plx_volume *volume = &store->volumes[i];

        if (i >= known) {
            volume->device = volumes[i].device;
            volume->dirty = store->options.instance != 0;
        } else {
            /* The open device stays; its number of bytes says what may be asked of it. */
            volume->device->bytes = plx_max_u64(volume->device->bytes, volumes[i].device->bytes);
            volumes[i].device->ops->close(volumes[i].device);
        }
        volume->super = volumes[i].super;
        volume->slot = volumes[i].slot;
        volume->attempted = 0;
        volume->mirrored = volumes[i].mirrored;
        volume->behind = volumes[i].behind;
    }
}

int plx_store_volumes_changed(struct plx_store *store, struct plx_device **devices, unsigned count,
                              struct plx_fault *fault)
{
    struct plx_volume *volumes = calloc(PLX_VOLUMES_MAX, sizeof *volumes);
    struct plx_extent_range *room = NULL;
    unsigned known = store->info.volumes;
    uint64_t extents = store->info.extents;
    const struct plx_store_options options = {
        .known = store->ranges,
        .known_count = plx_store_behind(store) ? store->range_count : 0, /* VOLUME-5 */
    };
    int error = volumes ? plx_volumes_read(devices, count, &options, volumes, fault)
                        : plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");

    if (!error)
        error = check_grown(store, volumes, count, fault);
    if (!error)
        error = plx_volumes_room(count, &room, fault);
    if (!error)
        error = plx_volumes_map(store, volumes, count, &room, fault);
    if (error) {
        for (unsigned i = 0; i < count; i++)
            devices[i]->ops->close(devices[i]);
    } else {
        take_volumes(store, volumes, count, known);
        if (store->info.extents > extents)
            plx_alloc_grown(store);
    }
    free(room);
    free(volumes);
    return error;
}

/* ---- Counters ---- */

void plx_store_counters(const struct plx_store *store, struct plx_counters *ret_counters)
{
    *ret_counters = store->counters;
    for (const struct plx_vdi *vdi = store->vdis; vdi; vdi = vdi->next)
        ret_counters->snapshot_rate += plx_protect_rate(vdi);
    ret_counters->data_free_blocks = plx_alloc_free_blocks(store, PLX_EXTENT_DATA);
    ret_counters->meta_free_blocks = plx_alloc_free_blocks(store, PLX_EXTENT_META);
    ret_counters->recovery_blocks = store->disks->reserve.blocks;
}
