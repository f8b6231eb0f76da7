/* newstore.c - makes a new store on volumes whose contents may be lost (GROW-1). All volumes are
 * zeroed before the first one gets a superblock, so that an interrupted call leaves no store. */
#include <stdlib.h>
#include <string.h>

#include "engine/space/grow_inside.h"

static uint32_t slots_of(uint64_t extent_blocks, const struct plx_format_options *options)
{
    uint64_t most = plx_min_u64((extent_blocks - PLX_VDI_TABLE_BLOCK) / 2, PLX_VDI_SLOTS_MAX);

    return (uint32_t)(options->vdi_slots ? plx_min_u64(options->vdi_slots, most) : most);
}

int plx_grow_check_extents(const struct plx_device *device, uint64_t extent_bytes,
                           const char *advice, struct plx_fault *fault)
{
    unsigned long long needed = EXTENTS_MIN * extent_bytes;

    if (device->bytes >= needed)
        return 0;
    return plx_fault_set(fault, PLX_ERR_INVALID,
                         "%s: too small: %llu bytes; a volume needs at least %u extents of %llu "
                         "bytes, which are %llu bytes%s",
                         device->name, (unsigned long long)device->bytes, EXTENTS_MIN,
                         (unsigned long long)extent_bytes, needed, advice);
}

int plx_grow_refuse_data(struct plx_device *device, bool force, uint8_t *buffer,
                         struct plx_fault *fault)
{
    struct plx_superblock_info store;
    bool holds;
    int error;

    if (device->read_only)
        return plx_fault_set(fault, PLX_ERR_READONLY, "%s: read-only", device->name);
    error = plx_grow_holds_data(device, buffer, &holds);
    if (error)
        return plx_fault_set(fault, error, "%s: cannot read: %s", device->name,
                             plx_error_text(error));
    if (holds && !force && !plx_superblock_probe(device, &store, NULL))
        return plx_fault_set(fault, PLX_ERR_EXISTS,
                             "%s: holds store %s; 'parallax store import' makes it known here, "
                             "--force overwrites it with all its disks",
                             device->name, store.store_name);
    if (holds && !force)
        return plx_fault_set(fault, PLX_ERR_EXISTS, "%s: holds data already; --force overwrites it",
                             device->name);
    return 0;
}

/* ---- Formatting ---- */

static uint64_t choose_extent_bytes(uint64_t bytes)
{
    uint64_t extent = 1ull << 20;

    while (extent < 2ull << 30 && extent < bytes / 256)
        extent <<= 1;
    return extent;
}

/* The number of extents of volume 0 that the registry of a store with `extents` extents should
 * have: room for several times one row per extent, and for disks and labels. */
uint64_t plx_grow_registry_extents(const struct plx_superblock *super, uint64_t extents)
{
    uint64_t extent_bytes = super->extent_blocks << PLX_BLOCK_SHIFT;
    uint64_t bytes = plx_max_u64(REGISTRY_BYTES_MIN, extents * REGISTRY_BYTES_EXTENT);
    uint64_t most = plx_max_u64(1, plx_superblock_extents(super) / REGISTRY_SHARE);

    return plx_min_u64(plx_div_up(bytes, extent_bytes), most);
}

/* The registry gets the extents after extent 0. */
static void place_registry(struct plx_superblock *super, uint64_t extents)
{
    super->span[0] = (struct plx_superblock_span){
        .kind = PLX_SYSTEM_REGISTRY,
        .first = super->range[0].first + 1,
        .extents = plx_grow_registry_extents(super, extents),
    };
    super->spans = 1;
}

static int format_geometry(struct plx_device **devices, unsigned count,
                           const struct plx_format_options *options, struct plx_superblock *supers,
                           struct plx_fault *fault)
{
    uint64_t total = 0, extent_bytes, segment_bytes, extent = 0;

    for (unsigned i = 0; i < count; i++)
        total += devices[i]->bytes;
    extent_bytes = options->extent_bytes ? options->extent_bytes : choose_extent_bytes(total);
    segment_bytes =
        options->segment_bytes ? options->segment_bytes : plx_min_u64(1u << 20, extent_bytes / 8);
    if ((extent_bytes & (extent_bytes - 1)) || extent_bytes < 1u << 20 || extent_bytes > 2ull << 30)
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "extent size: a power of two from 1M to 2G is needed");
    for (unsigned i = 0; i < count; i++) {
        uint64_t extents = devices[i]->bytes / extent_bytes;
        uint64_t extent_blocks = extent_bytes >> PLX_BLOCK_SHIFT;

        if (plx_grow_check_extents(devices[i], extent_bytes,
                                   extent_bytes > 1u << 20 ? ", or a smaller --extent-size" : "",
                                   fault))
            return PLX_ERR_INVALID;
        supers[i] = (struct plx_superblock){
            .volume_index = i,
            .volumes = count,
            .range = {{extent, extents}},
            .ranges = 1,
            .extent_blocks = extent_blocks,
            .segment_blocks = (uint32_t)(segment_bytes >> PLX_BLOCK_SHIFT),
            .vdi_slots = slots_of(extent_blocks, options),
            .generation = 1,
        };
        extent += extents;
    }
    if (extent > PLX_BLOCK_MAX / (extent_bytes >> PLX_BLOCK_SHIFT))
        return plx_fault_set(fault, PLX_ERR_INVALID, "a store holds at most 512 TiB");
    if (options->registry)
        place_registry(&supers[0], extent);
    if (segment_bytes < 4 * PLX_BLOCK_SIZE || segment_bytes % PLX_BLOCK_SIZE ||
        supers[0].segment_blocks > PLX_SEGMENT_BLOCKS_MAX ||
        supers[0].segment_blocks > supers[0].extent_blocks / 4)
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "log segment size: a multiple of 4096 from 16K to 1M, at most a "
                             "quarter of an extent");
    return 0;
}

static int format_checked(struct plx_device **devices, unsigned count,
                          const struct plx_format_options *options, struct plx_env *env,
                          struct plx_superblock *supers, uint8_t *buffer, struct plx_fault *fault)
{
    struct plx_uuid store_id;
    uint64_t now = plx_env_now_ns(env);
    int error = format_geometry(devices, count, options, supers, fault);

    if (error)
        return error;
    for (unsigned i = 0; i < count; i++) {
        error = plx_grow_refuse_data(devices[i], options->force, buffer, fault);
        if (error)
            return error;
    }
    env->random(env, store_id.b, sizeof store_id.b);
    for (unsigned i = 0; i < count && !error; i++) {
        supers[i].store = supers[i].identity = store_id;
        env->random(env, supers[i].volume.b, sizeof supers[i].volume.b);
        supers[i].created_ns = now;
        memcpy(supers[i].name, options->name, sizeof supers[i].name);
        error = plx_grow_zero_volume(devices[i], &supers[i], buffer);
        if (error)
            plx_fault_set(fault, error, "%s: cannot format: %s", devices[i]->name,
                          plx_error_text(error));
    }
    for (unsigned i = 0; i < count && !error; i++) {
        error = plx_superblock_write_first(devices[i], &supers[i], buffer);
        if (error)
            plx_fault_set(fault, error, "%s: cannot write the superblock: %s", devices[i]->name,
                          plx_error_text(error));
    }
    return error;
}

int plx_store_format(struct plx_device **devices, unsigned count,
                     const struct plx_format_options *options, struct plx_env *env,
                     struct plx_store_info *ret_info, struct plx_fault *fault)
{
    struct plx_superblock supers[PLX_VOLUMES_MAX] = {0};
    struct plx_extent_range *room;
    struct plx_store *scratch;
    uint8_t *buffer;
    int error;

    if (count < 1 || count > PLX_VOLUMES_MAX || !options->name[0])
        return plx_fault_set(fault, PLX_ERR_INVALID, "a store has a name and 1 to %d volumes",
                             PLX_VOLUMES_MAX);
    buffer = malloc(SWEEP_BYTES);
    if (!buffer)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    error = format_checked(devices, count, options, env, supers, buffer, fault);
    free(buffer);
    if (error || !ret_info)
        return error;
    scratch = calloc(1, sizeof *scratch);
    if (!scratch)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    for (unsigned i = 0; i < count; i++) {
        scratch->volumes[i].device = devices[i];
        scratch->volumes[i].super = supers[i];
    }
    error = plx_volumes_room(count, &room, fault);
    if (!error)
        error = plx_volumes_map(scratch, scratch->volumes, count, &room, fault);
    if (!error)
        *ret_info = scratch->info;
    free(room);
    free(scratch->ranges);
    free(scratch);
    return error;
}
