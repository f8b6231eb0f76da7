/* occupied.c - see occupied.h.
 *
 * OCCUPIED-1  A device is recognised as a volume of a known store by where it lies (storage.h)
 *     first, and only then by its superblock. A lost superblock means a store that needs repair,
 *     not an empty disk.
 * OCCUPIED-2  Which host uses a store only the home page on its volume 0 says. If volume 0 is not
 *     among the devices, or cannot be read, the operator must state that no host uses the store
 *     (--i-checked-nobody-uses-it). --force does not state that.
 * OCCUPIED-3  Founding writes the home page before the store's row in the registry (FOUNDING-2). So
 *     a store that has its row and no home page, not even one that names no host, has lost the
 *     page. The operator must then state that no host uses the store, as for a damaged page.
 * OCCUPIED-4  A device whose beginning was lost, to a partition table or to zeroes, may still hold
 *     somebody's only copy. So data is looked for at places all over the device, where headers of
 *     extents and block groups of file systems begin.
 * OCCUPIED-5  A spare superblock does not count by itself (VOLUME-6). But a store that is known
 *     here and named by it may have its volume again by it alone, whatever the other superblocks
 *     hold now. The entry of the store need not name the device: it may be older than the volume.
 *     So the operator's word is not enough then.
 * OCCUPIED-6  A member of a ring is no free device either: the ring may hold acknowledged writes
 *     that a store lacks. This host's rings are recognised by where they lie, any other one by its
 *     superblock. Only a ring that holds nothing is overwritten with --force (RING_MEMBERS-2). No
 *     record of a disk names such a ring, for the mark's proof takes a segment; so nobody needs it.
 * Threads: the caller's.
 * Crash story: nothing is written here.
 */
#include "attach/occupied.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attach/known_rings.h"
#include "attach/ring_members.h"
#include "engine/loop/volume.h"
#include "registry/embedded.h"
#include "registry/instance.h"
#include "registry/tenancy.h"

#define NAMES_SHOWN 3u
#define SAMPLES 256u
#define SAMPLE_STEP (1ull << 20)

/* What is only looked at, for a sentence: who keeps its registry busy is not waited for. */
static bool at_once(void *context, uint64_t waited_ms, const struct plx_fault *why)
{
    return false;
}

static const struct plx_patience none = {at_once, NULL};

/* "web, db, mail and 4 more", for people. */
static void name_disks(const struct plx_known *known, char *ret_text, size_t size)
{
    struct plx_embedded_options options = {
        .volume = known->volume[0],
        .uuid = known->uuid,
        .who = "",
        .read_only = true,
        .beside = true, /* it may be the one that is open exclusively */
        .patience = &none,
    };
    struct plx_registry_store row;
    struct plx_registry_vdi *list = NULL;
    struct plx_registry *registry;
    size_t count = 0, at = 0;

    snprintf(ret_text, size, "its disks cannot be listed");
    if (plx_embedded_open(&options, &registry, NULL))
        return;
    if (plx_registry_store_get(registry, known->uuid, &row) == 0 &&
        plx_registry_vdi_list(registry, row.id, false, NULL, 0, &list, &count) == 0)
        at = (size_t)snprintf(ret_text, size, "%s", count ? "with " : "without disks");
    for (size_t i = 0; i < count && i < NAMES_SHOWN && at < size; i++)
        at += (size_t)snprintf(ret_text + at, size - at, "%s%s", i ? ", " : "", list[i].name);
    if (count > NAMES_SHOWN && at < size)
        snprintf(ret_text + at, size - at, " and %zu more", count - NAMES_SHOWN);
    free(list);
    plx_registry_close(registry);
}

int plx_occupied_name_living(const char *volume, int error, struct plx_fault *fault)
{
    struct plx_embedded_options options = {
        .volume = volume, .who = "", .read_only = true, .beside = true, .patience = &none};
    struct plx_registry_instance *list = NULL;
    struct plx_superblock_info info;
    struct plx_registry *registry;
    struct plx_registry_store row;
    char uuid[PLX_UUID_TEXT];
    size_t count = 0;

    if (error != PLX_ERR_BUSY || plx_embedded_open(&options, &registry, NULL))
        return error;
    if (plx_superblock_probe(plx_registry_device(registry), &info, NULL) == 0) {
        plx_uuid_text(&info.store, uuid);
        if (plx_registry_store_get(registry, uuid, &row) == 0)
            plx_registry_instance_list(registry, row.id, &list, &count);
    }
    for (size_t i = 0; i < count; i++)
        if (plx_instance_is_seen(plx_registry_locks(registry), &list[i])) {
            plx_fault_set(fault, error,
                          "%s: store %s is open in %s (pid %lld) on host %s; stop that first",
                          volume, info.store_name, plx_instance_kind(list[i].role),
                          (long long)list[i].pid, list[i].host_name);
            break;
        }
    free(list);
    plx_registry_close(registry);
    return error;
}

/* OCCUPIED-2. why: what stands in the way of knowing. */
static int refuse_untold(const struct plx_device *device, bool unused, const char *why,
                         struct plx_fault *fault)
{
    return unused ? 0
                  : plx_fault_set(fault, PLX_ERR_UNCONFIRMED,
                                  "%s: %s, so nobody knows whether a host uses it; when you have "
                                  "seen that none does, add --i-checked-nobody-uses-it",
                                  device->name, why);
}

/* OCCUPIED-3 */
bool plx_occupied_lost_home(const struct plx_paths *paths, const char *volume, const char *uuid)
{
    const struct plx_embedded_options look = {.volume = volume,
                                              .uuid = uuid,
                                              .who = "",
                                              .read_only = true,
                                              .beside = true,
                                              .patience = &none};
    struct plx_registry_store row;
    struct plx_registry *registry;
    struct plx_tenant tenant;
    bool founded;

    if (plx_embedded_tenant(&look, paths, &tenant, NULL) || tenant.found)
        return false;
    if (plx_embedded_is_clustered(&look)) /* which no half-made store is */
        return true;
    if (plx_embedded_open(&look, &registry, NULL))
        return false;
    founded = plx_registry_store_get(registry, uuid, &row) == 0;
    plx_registry_close(registry);
    return founded;
}

/* A store that another host has, or that is in use through another name of the volume. */
static int refuse_tenant(const struct plx_paths *paths, const struct plx_device *device,
                         const char *uuid, bool unused, const struct plx_patience *patience,
                         struct plx_fault *fault)
{
    struct plx_tenancy_options options = {
        .paths = paths, .volume = device->name, .patience = patience};
    const struct plx_embedded_options look = {.volume = device->name, .uuid = uuid, .beside = true};
    struct plx_tenancy *tenancy = NULL;
    struct plx_tenant tenant;
    struct plx_fault why;
    int error;

    if (plx_embedded_tenant(&look, paths, &tenant, NULL))
        return refuse_untold(device, unused, "holds a store, and its home page cannot be read",
                             fault);
    if (plx_occupied_lost_home(paths, device->name, uuid))
        return refuse_untold(device, unused, "holds a store, and its home page is lost", fault);
    if (tenant.here || plx_uuid_is_zero(&tenant.host))
        return 0;
    plx_uuid_parse(uuid, &options.store);
    error = plx_tenancy_begin(&options, &tenancy, &why);
    plx_tenancy_end(tenancy);
    return error == PLX_ERR_BUSY ? plx_fault_set(fault, error, "%s", why.text) : 0;
}

static int refuse_known(const struct plx_known_place *place, const struct plx_device *device,
                        struct plx_fault *fault)
{
    char disks[160], text[PLX_KNOWN_PLACE_TEXT];

    name_disks(place->known, disks, sizeof disks);
    plx_known_name_place(place, device->name, text);
    return plx_fault_set(fault, PLX_ERR_EXISTS,
                         "%s (%s); to overwrite it, run 'parallax store forget %s' first", text,
                         disks, place->known->name);
}

/* Volume 0 of the store, which says who has it. */
static bool is_first(struct plx_device *device, const struct plx_uuid *store)
{
    struct plx_superblock_info info;

    return plx_superblock_probe(device, &info, NULL) == 0 && info.volume_index == 0 &&
           plx_uuid_equal(&info.store, store);
}

/* Of a store that is known here, wherever its entry says that its volumes lie. spare: the device
 * says so in its spare superblock only. */
static int refuse_identity(const struct plx_paths *paths, const struct plx_device *device,
                           const struct plx_uuid *id, bool spare, struct plx_fault *fault)
{
    char identity[PLX_UUID_TEXT], disks[160];
    struct plx_known known;
    int error;

    plx_uuid_text(id, identity);
    error = plx_known_get(paths, identity, &known, fault);
    if (error)
        return error == PLX_ERR_NOT_FOUND ? 0 : error;
    name_disks(&known, disks, sizeof disks);
    error =
        plx_fault_set(fault, PLX_ERR_EXISTS,
                      spare ? "%.200s was a volume of store %s (%s), as its spare superblock "
                              "says; 'parallax store restore-superblock' makes it one again; to "
                              "overwrite it, run 'parallax store forget %s' first"
                            : "%.200s is a volume of store %s (%s); to overwrite it, run "
                              "'parallax store forget %s' first",
                      device->name, known.name, disks, known.name);
    plx_known_done(&known);
    return error;
}

/* OCCUPIED-5 */
static int refuse_spare(const struct plx_paths *paths, struct plx_device *device,
                        struct plx_fault *fault)
{
    uint8_t block[PLX_BLOCK_SIZE];
    struct plx_superblock spare;

    return plx_superblock_read_spare(device, block, &spare, NULL)
               ? 0
               : refuse_identity(paths, device, &spare.identity, true, fault);
}

/* OCCUPIED-2. Of a store that is not known here. */
static int refuse_unknown(const struct plx_paths *paths, struct plx_device *const *devices,
                          unsigned count, struct plx_device *device,
                          const struct plx_superblock_info *info, bool unused,
                          const struct plx_patience *patience, struct plx_fault *fault)
{
    char uuid[PLX_UUID_TEXT], text[160];

    plx_uuid_text(&info->store, uuid);
    if (info->volume_index == 0)
        return refuse_tenant(paths, device, uuid, unused, patience, fault);
    for (unsigned i = 0; i < count; i++)
        if (is_first(devices[i], &info->store))
            return 0; /* it is asked itself */
    snprintf(text, sizeof text, "is volume %u of store %s, and only its volume 0 tells whose it is",
             info->volume_index, info->store_name);
    return refuse_untold(device, unused, text, fault);
}

static int refuse_superblock(const struct plx_paths *paths, struct plx_device *const *devices,
                             unsigned count, struct plx_device *device, bool unused,
                             const struct plx_patience *patience, struct plx_fault *fault)
{
    struct plx_superblock_info info;
    int error = plx_superblock_probe(device, &info, NULL), refused;

    if (error == PLX_ERR_NOT_FOUND)
        return 0;
    if (error && error != PLX_ERR_CORRUPT && error != PLX_ERR_UNSUPPORTED)
        return plx_fault_set(fault, error, "%s: cannot be read: %s", device->name,
                             plx_error_text(error));
    refused = error ? 0 : refuse_identity(paths, device, &info.identity, false, fault);
    if (!refused)
        refused = refuse_spare(paths, device, fault);
    if (refused)
        return refused;
    if (error)
        return refuse_untold(device, unused,
                             error == PLX_ERR_CORRUPT
                                 ? "holds a store whose superblocks are damaged"
                                 : "holds a store of another version",
                             fault);
    return refuse_unknown(paths, devices, count, device, &info, unused, patience, fault);
}

/* OCCUPIED-1 */
static int refuse_places(const struct plx_paths *paths, struct plx_device *const *devices,
                         unsigned count, const char *but, struct plx_fault *fault)
{
    struct plx_known_place place;
    struct plx_known *list;
    size_t stores;
    int error = plx_known_list(paths, &list, &stores, fault);

    if (error)
        return error;
    for (unsigned i = 0; i < count && !error; i++) {
        error = plx_known_at(list, stores, but, devices[i]->name, &place, fault);
        if (!error && place.known)
            error = refuse_known(&place, devices[i], fault);
    }
    plx_known_list_free(list, stores);
    for (unsigned i = 0; i < count && !error; i++)
        error = plx_known_ring_refuse(paths, devices[i]->name, fault); /* OCCUPIED-6 */
    return error;
}

int plx_occupied_refuse_place(const struct plx_paths *paths, struct plx_device *device,
                              const char *but, struct plx_fault *fault)
{
    return refuse_places(paths, &device, 1, but, fault);
}

int plx_occupied_refuse(const struct plx_paths *paths, struct plx_device *const *devices,
                        unsigned count, bool unused, const struct plx_patience *patience,
                        struct plx_fault *fault)
{
    int error = refuse_places(paths, devices, count, NULL, fault);

    for (unsigned i = 0; i < count && !error; i++)
        error = refuse_superblock(paths, devices, count, devices[i], unused, patience, fault);
    for (unsigned i = 0; i < count && !error; i++)
        error = plx_ring_members_refuse(devices[i], fault); /* OCCUPIED-6 */
    return error;
}

/* OCCUPIED-6. This host may take its own one up again. */
static int refuse_empty_ring(const struct plx_paths *paths, const struct plx_device *device,
                             const struct plx_ring_super *ring, struct plx_fault *fault)
{
    char store[PLX_UUID_TEXT], host[PLX_UUID_TEXT];
    struct plx_known known;

    plx_uuid_text(&ring->store, store);
    plx_uuid_text(&ring->host, host);
    if (strcmp(host, paths->host) != 0 || plx_known_get(paths, store, &known, NULL))
        return plx_fault_set(fault, PLX_ERR_EXISTS,
                             "%s: holds an empty ring of host %s, which no virtual disk needs; "
                             "--force overwrites it",
                             device->name, ring->host_name);
    plx_fault_set(
        fault, PLX_ERR_EXISTS,
        "%.200s: holds an empty ring of host %s, this host's of store %s, which no "
        "virtual disk needs; 'parallax ring create %s PATH' with all its members makes "
        "it known again, and takes --from HOST --i-checked-it-is-off, too, if one of them "
        "names another host; --force overwrites it",
        device->name, ring->host_name, known.name, known.name);
    plx_known_done(&known);
    return PLX_ERR_EXISTS;
}

/* OCCUPIED-4 */
int plx_occupied_refuse_data(const struct plx_paths *paths, struct plx_device *device,
                             struct plx_fault *fault)
{
    const uint64_t step = plx_max_u64(device->bytes / SAMPLES & ~(SAMPLE_STEP - 1), SAMPLE_STEP);
    struct plx_superblock_info store;
    struct plx_ring_super ring;
    uint8_t *block;
    int error = 0;

    if (plx_superblock_probe(device, &store, NULL) == 0)
        return 0; /* plx_store_format() has a better word for that */
    if (plx_ring_recognise(device, &ring, NULL) == 0)
        return refuse_empty_ring(paths, device, &ring, fault);
    block = aligned_alloc(PLX_BLOCK_SIZE, PLX_BLOCK_SIZE);
    if (!block)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    for (uint64_t at = step; !error && at + PLX_BLOCK_SIZE <= device->bytes; at += step) {
        error = plx_volume_io(device, PLX_IO_READ, at, block, PLX_BLOCK_SIZE);
        if (error)
            plx_fault_set(fault, error, "%s: cannot read: %s", device->name, plx_error_text(error));
        else if (block[0] || memcmp(block, block + 1, PLX_BLOCK_SIZE - 1) != 0)
            error = plx_fault_set(fault, PLX_ERR_EXISTS,
                                  "%s: holds data already (at byte %llu); --force overwrites it",
                                  device->name, (unsigned long long)at);
    }
    free(block);
    return error;
}
