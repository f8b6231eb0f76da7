/* counted.c - does volume 0 still count all volumes that this host knows of a store?
 *
 * COUNTED-1  The state directory's entry of a store names no more volumes than the store had when
 *     this host used it. If volume 0 counts fewer, by its superblock and its registry, and one of
 *     the others is in use, volume 0 went back to an older state. It is in use if an extent of it
 *     was ever used, or if its number is too high for volume 0 (NUMBERS-2). Then nothing is opened,
 *     neither for reading nor for writing, until the newer volume 0 is back or the entry is another
 *     one.
 * Threads: the caller's. Crash story: nothing is written here.
 */
#include "attach/counted.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attach/numbers.h"
#include "registry/embedded.h"

/* Whether this volume is the store's and in use. first: volume 0. */
static int look_at(struct plx_device *first, const struct plx_known *known, unsigned index,
                   bool *ret_used, struct plx_fault *fault)
{
    struct plx_device_open_options options = {.read_only = true, .beside = true};
    struct plx_superblock_info info;
    struct plx_device *device;
    char identity[PLX_UUID_TEXT];
    bool used = false;
    int error = plx_device_open(known->volume[index], &options, &device, fault);

    if (error)
        return error;
    error = plx_superblock_probe(device, &info, fault);
    if (!error)
        error = plx_superblock_was_used(device, &used, fault);
    used = used || (!error && plx_numbers_is_ahead(first, device, &info.store));
    plx_device_close(device);
    if (error)
        return error;
    plx_uuid_text(&info.identity, identity);
    *ret_used = used && strcmp(identity, known->identity) == 0 && info.volume_index == index;
    return 0;
}

int plx_counted_further(const struct plx_known *known, unsigned counted, unsigned *ret_index,
                        struct plx_fault *fault)
{
    struct plx_device_open_options options = {.read_only = true, .beside = true};
    struct plx_device *first;
    bool used = false;
    int error;

    *ret_index = 0;
    if (counted >= known->volumes)
        return 0;
    error = plx_device_open(known->volume[0], &options, &first, fault);
    if (error)
        return error;
    for (unsigned i = counted; i < known->volumes && !error && !used; i++) {
        error = look_at(first, known, i, &used, fault);
        *ret_index = used ? i : 0;
    }
    plx_device_close(first);
    return error;
}

int plx_counted_check(struct plx_registry *registry, int64_t store, const struct plx_known *known,
                      bool entered, struct plx_fault *fault)
{
    struct plx_registry_volume *list;
    struct plx_superblock_info info;
    char volumes[PLX_KNOWN_VOLUMES_TEXT], forget[PLX_STORE_NAME_MAX + 40] = "";
    struct plx_known older = *known;
    unsigned index = 0;
    size_t counted;
    int error = plx_registry_volume_list(registry, store, &list, &counted);

    if (error)
        return plx_registry_fault(registry, error, fault);
    free(list);
    if (counted >= known->volumes)
        return 0;
    error = plx_superblock_probe(plx_registry_device(registry), &info, fault);
    if (error)
        return error;
    older.volumes = (unsigned)plx_max_u64(counted, info.volumes);
    error = plx_counted_further(known, older.volumes, &index, fault);
    if (error || !index)
        return error;
    plx_known_name_volumes(&older, volumes);
    if (entered)
        snprintf(forget, sizeof forget, "'parallax store forget %s' and ", known->name);
    return plx_fault_set(
        fault, PLX_ERR_CORRUPT,
        "%.80s is in use as volume %u of store %s, but %.80s does not count it, "
        "so that one went back to an older state; put the newer one back, or, to go on with "
        "the older state, %s'parallax store import %s'",
        known->volume[index], index, known->name, known->volume[0], forget, volumes);
}
