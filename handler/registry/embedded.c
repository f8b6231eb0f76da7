/* embedded.c - see embedded.h.
 *
 * EMBEDDED-1  The database is read only after the superblock has said two things: that this volume
 *     belongs to the expected store, and where in it the database lies. A path may name another
 *     device by now. Where the database lies is asked again with each lock (REGION-9). A writer
 *     rewrites the superblock's slots one after the other, so one slot is whole at any time. But a
 *     read of both may take longer than that, and is repeated.
 * EMBEDDED-2  A superblock that names a cluster says that the database in the store counts for
 *     nothing (CLUSTERED-1). So it is not opened. Who had it open before meets that with the next
 *     lock, before anything is read or written.
 * Threads: the caller's.
 * Crash story: region.c's and SQLite's.
 */
#include "registry/embedded.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/units.h"
#include "engine/engine.h"
#include "registry/clustered.h"
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
    if (!region->outdated && !plx_uuid_is_zero(&info.cluster.id)) /* EMBEDDED-2 */
        return plx_fault_set(fault, PLX_ERR_UNSUPPORTED,
                             "store %s on %s has joined a cluster meanwhile; open it again",
                             info.store_name, region->device->name);
    take_spans(&info, region);
    for (unsigned i = 0; i < region->spans; i++)
        larger |= region->span[i].offset + region->span[i].bytes > region->device->bytes;
    return larger ? measure(region->device, fault) : 0;
}

/* EMBEDDED-1 */
static int find_region(const struct plx_embedded_options *options, struct plx_region *region,
                       struct plx_superblock_info *ret_super, struct plx_fault *fault)
{
    struct plx_superblock_info info;
    char uuid[PLX_UUID_TEXT], identity[PLX_UUID_TEXT];
    int error = plx_superblock_probe(region->device, &info, fault);

    if (error)
        return error;
    *ret_super = info;
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
                       struct plx_superblock_info *ret_super, struct plx_fault *fault)
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
                                      .outdated = options->in_store,
                                      .look = look};
    error = plx_device_open(options->volume, &device_options, &ret_region->device, fault);
    if (!error)
        error = plx_bytelock_open(options->volume, &ret_region->locks, fault);
    if (!error)
        error = find_region(options, ret_region, ret_super, fault);
    if (error)
        close_region(ret_region);
    return error;
}

/* EMBEDDED-2: whether the registry to be opened is a cluster's. */
static bool is_clustered(const struct plx_embedded_options *options,
                         const struct plx_superblock_info *super)
{
    return !options->in_store && !plx_uuid_is_zero(&super->cluster.id);
}

/* Asks may_write before each change, as a region does (REGISTRY-3). */
static int open_nodes(const struct plx_embedded_options *options,
                      const struct plx_superblock_info *super, struct plx_registry **ret_reg,
                      struct plx_fault *fault)
{
    const struct plx_clustered nodes = {.super = super,
                                        .settings = options->settings,
                                        .who = options->who,
                                        .writes = !options->read_only,
                                        .host = options->host,
                                        .takes = options->takes};
    int error = plx_clustered_open(&nodes, ret_reg, fault);

    if (error)
        return error;
    (*ret_reg)->read_only = options->read_only;
    (*ret_reg)->may_write = options->may_write;
    (*ret_reg)->context = options->context;
    return 0;
}

static int open_in(const struct plx_embedded_options *options, bool blank,
                   struct plx_registry **ret_reg, struct plx_fault *fault)
{
    struct plx_region region;
    struct plx_registry *reg;
    struct plx_superblock_info super;
    bool nodes;
    int error = open_region(options, &region, &super, fault);

    if (error)
        return error;
    nodes = is_clustered(options, &super);
    region.made = !blank;
    if (nodes && blank)
        error = plx_fault_set(fault, PLX_ERR_EXISTS, "store %s on %s belongs to a cluster",
                              super.store_name, options->volume);
    else if (nodes)
        error = open_nodes(options, &super, &reg, fault);
    else if (!blank || !(error = plx_region_blank(&region, fault)))
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
                        struct plx_superblock_info *ret_super, struct plx_fault *fault)
{
    struct plx_embedded_options reading = *options;

    reading.read_only = true;
    return open_region(&reading, ret_region, ret_super, fault);
}

int plx_embedded_check(const struct plx_embedded_options *options, struct plx_fault *fault)
{
    struct plx_region region;
    struct plx_superblock_info super;
    int error = open_to_look(options, &region, &super, fault);

    if (error)
        return error;
    close_region(&region);
    return is_clustered(options, &super) ? plx_clustered_check(&super, options->settings, fault)
                                         : 0;
}

bool plx_embedded_is_clustered(const struct plx_embedded_options *options)
{
    struct plx_region region;
    struct plx_superblock_info super;

    if (open_to_look(options, &region, &super, NULL))
        return false;
    close_region(&region);
    return !plx_uuid_is_zero(&super.cluster.id);
}

int plx_embedded_tenant(const struct plx_embedded_options *options, const struct plx_paths *paths,
                        struct plx_tenant *ret_tenant, struct plx_fault *fault)
{
    struct plx_region region;
    struct plx_superblock_info super;
    int error = open_to_look(options, &region, &super, fault);

    if (error)
        return error;
    error = plx_tenancy_read(region.device, region.locks, &super.store, paths, ret_tenant, fault);
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
