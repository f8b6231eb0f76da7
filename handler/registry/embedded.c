/* embedded.c - see embedded.h.
 *
 * EMBEDDED-1  The database is read only after the superblock has said two things: that this volume
 *     belongs to the expected store, and where in it the database lies. A path may name another
 *     device by now. Where the database lies is asked again with each lock (REGION-9). A writer
 *     rewrites the superblock's slots one after the other, so one slot is whole at any time. But a
 *     read of both may take longer than that, and is repeated.
 * Threads: the caller's.
 * Crash story: region.c's and SQLite's.
 */
#include "registry/embedded.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/units.h"
#include "engine/engine.h"
#include "registry/region.h"
#include "registry/sql.h"

#define LOOKS 3

static void take_spans(const struct plx_superblock_info *info, struct plx_region *region)
{
    region->spans = info->registry_spans;
    for (unsigned i = 0; i < info->registry_spans; i++) {
        region->span[i].offset = info->registry[i].offset;
        region->span[i].bytes = info->registry[i].bytes;
    }
}

/* Brings device->bytes up to date after the volume grew. A driver that can measure its open device
 * does so, since a file's path may name another file by now. Otherwise the device is opened again
 * by name: an iscsi:// URL still names the same LUN. */
static int measure(struct plx_device *device, struct plx_fault *fault)
{
    const struct plx_device_open_options options = {
        .read_only = device->read_only, .queue_depth = 1, .beside = true};
    struct plx_device *now;
    int error;

    if (device->ops->measure)
        return device->ops->measure(device, fault);
    error = plx_device_open(device->name, &options, &now, fault);
    if (error)
        return error;
    device->bytes = plx_max_u64(device->bytes, now->bytes);
    plx_device_close(now);
    return 0;
}

static int look(struct plx_region *region, struct plx_fault *fault)
{
    struct plx_superblock_info info;
    bool larger = false;
    int error = PLX_ERR_CORRUPT;

    for (unsigned i = 0; i < LOOKS && error; i++) /* EMBEDDED-1 */
        error = plx_superblock_probe(region->device, &info, fault);
    if (error == PLX_ERR_NOT_FOUND) /* the volume had one at opening */
        return plx_fault_set(fault, PLX_ERR_CORRUPT,
                             "%s: its superblocks, which were there when it was opened, were "
                             "overwritten; end what else writes to it, then 'parallax store check' "
                             "says what is left",
                             region->device->name);
    if (error)
        return error;
    take_spans(&info, region);
    for (unsigned i = 0; i < region->spans; i++)
        larger |= region->span[i].offset + region->span[i].bytes > region->device->bytes;
    return larger ? measure(region->device, fault) : 0;
}

/* EMBEDDED-1 */
static int find_region(const struct plx_embedded_options *options, struct plx_region *region,
                       struct plx_uuid *ret_store, struct plx_fault *fault)
{
    struct plx_superblock_info info;
    char uuid[PLX_UUID_TEXT], identity[PLX_UUID_TEXT];
    int error = plx_superblock_probe(region->device, &info, fault);

    if (error)
        return error;
    *ret_store = info.store;
    plx_uuid_text(&info.store, uuid);
    plx_uuid_text(&info.identity, identity);
    if ((options->uuid && strcmp(uuid, options->uuid) != 0) ||
        (options->identity && strcmp(identity, options->identity) != 0))
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "%s holds another store now (%s, %s); 'parallax store import --volume "
                             "PATH' tells where this one lies",
                             options->volume, info.store_name, identity);
    if (info.volume_index != 0)
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "%s is volume %u of store %s; the registry lies in volume 0: name all "
                             "volumes ('parallax store import')",
                             options->volume, info.volume_index, info.store_name);
    if (!info.registry_spans)
        return plx_fault_set(fault, PLX_ERR_UNSUPPORTED,
                             "store %s on %s has no registry of its own", info.store_name,
                             options->volume);
    take_spans(&info, region);
    region->unknown = info.unknown;
    return region->read_only ? 0 : plx_superblock_check_known(region->device, info.unknown, fault);
}

static void close_region(struct plx_region *region)
{
    plx_bytelock_close(region->locks);
    plx_device_close(region->device);
}

static int open_region(const struct plx_embedded_options *options, struct plx_region *ret_region,
                       struct plx_uuid *ret_store, struct plx_fault *fault)
{
    struct plx_device_open_options device_options = {.read_only = options->read_only,
                                                     .queue_depth = 1,
                                                     .beside = options->beside,
                                                     .patience = options->patience};
    int error;

    *ret_region = (struct plx_region){.read_only = options->read_only,
                                      .patience = options->patience,
                                      .may_write = options->may_write,
                                      .context = options->context,
                                      .damaged = options->damaged,
                                      .look = look};
    error = plx_device_open(options->volume, &device_options, &ret_region->device, fault);
    if (!error)
        error = plx_bytelock_open(options->volume, &ret_region->locks, fault);
    if (!error)
        error = find_region(options, ret_region, ret_store, fault);
    if (error)
        close_region(ret_region);
    return error;
}

static int open_in(const struct plx_embedded_options *options, bool blank,
                   struct plx_registry **ret_reg, struct plx_fault *fault)
{
    struct plx_region region;
    struct plx_registry *reg;
    struct plx_uuid store;
    int error = open_region(options, &region, &store, fault);

    if (error)
        return error;
    region.made = !blank;
    if (blank)
        error = plx_region_blank(&region, fault);
    if (!error)
        error = plx_registry_open_region(&region, options->volume, options->who, &reg, fault);
    if (error) {
        close_region(&region);
        return error;
    }
    reg->device = region.device;
    reg->locks = region.locks;
    *ret_reg = reg;
    return 0;
}

int plx_embedded_open(const struct plx_embedded_options *options, struct plx_registry **ret_reg,
                      struct plx_fault *fault)
{
    return open_in(options, false, ret_reg, fault);
}

int plx_embedded_create(const struct plx_embedded_options *options, struct plx_registry **ret_reg,
                        struct plx_fault *fault)
{
    return open_in(options, true, ret_reg, fault);
}

static int open_to_look(const struct plx_embedded_options *options, struct plx_region *ret_region,
                        struct plx_uuid *ret_store, struct plx_fault *fault)
{
    struct plx_embedded_options reading = *options;

    reading.read_only = true;
    return open_region(&reading, ret_region, ret_store, fault);
}

int plx_embedded_check(const struct plx_embedded_options *options, struct plx_fault *fault)
{
    struct plx_region region;
    struct plx_uuid store;
    int error = open_to_look(options, &region, &store, fault);

    if (!error)
        close_region(&region);
    return error;
}

int plx_embedded_tenant(const struct plx_embedded_options *options, const struct plx_paths *paths,
                        struct plx_tenant *ret_tenant, struct plx_fault *fault)
{
    struct plx_region region;
    struct plx_uuid store;
    int error = open_to_look(options, &region, &store, fault);

    if (error)
        return error;
    error = plx_tenancy_read(region.device, region.locks, &store, paths, ret_tenant, fault);
    close_region(&region);
    if (!error && region.unknown) /* a store with unknown features can only be read */
        ret_tenant->ours = ret_tenant->here = false;
    return error;
}

struct plx_device *plx_registry_device(const struct plx_registry *reg)
{
    return reg->device;
}

struct plx_bytelock *plx_registry_locks(const struct plx_registry *reg)
{
    return reg->locks;
}
