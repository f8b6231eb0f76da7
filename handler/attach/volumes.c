/* volumes.c - a store's volumes between registry and engine.
 *
 * VOLUMES-1  The superblocks are the truth of which extents the store has, and know of new ones
 *     first. The registry follows, range by range in the order of their numbers. So the registry
 *     always knows the first of the store's extents, without gaps.
 * VOLUMES-2  A volume that the superblocks count and the registry has no row of is the one that was
 *     being added when a process died. Its path is the one that GROWTH-2 remembers.
 * VOLUMES-3  The registry's rows are believed only if they can be true: the ranges follow each
 *     other from 0 without gaps (STORES-1), and there are no more volumes than a store may have.
 *     Otherwise the store is not opened by them.
 * VOLUMES-4  A volume is entered under a name that means the same to every process. A descriptor's
 *     name (/proc/self/fd/3, /dev/fd/3) is gone with its process, so the path that it leads to
 *     takes its place. What has no path, such as a deleted file or a memfd, is refused.
 * Threads: the caller's.
 * Crash story: whoever opens the store for writing next enters what the registry is missing.
 */
#include "attach/volumes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void plx_volumes_close(struct plx_device **devices, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        plx_device_close(devices[i]);
}

int plx_volumes_check_count(unsigned count, struct plx_fault *fault)
{
    return count >= 1 && count <= PLX_VOLUMES_MAX
               ? 0
               : plx_fault_set(fault, PLX_ERR_INVALID, "a store has 1 to %d volumes",
                               PLX_VOLUMES_MAX);
}

int plx_volumes_open_paths(const char *const *paths, unsigned count,
                           const struct plx_device_open_options *options,
                           struct plx_device **ret_devices, struct plx_fault *fault)
{
    for (unsigned i = 0; i < count; i++) {
        int error = plx_device_open(paths[i], options, &ret_devices[i], fault);

        if (error) {
            plx_volumes_close(ret_devices, i);
            return error;
        }
    }
    return 0;
}

/* VOLUMES-3 */
static int refuse_rows(struct plx_fault *fault)
{
    return plx_fault_set(fault, PLX_ERR_CORRUPT,
                         "the registry's rows of volumes cannot be true; 'parallax store "
                         "rebuild-registry' makes it anew from the store");
}

/* VOLUMES-2 */
static int open_joining(struct plx_registry *registry, int64_t store,
                        const struct plx_device_open_options *options, struct plx_device **devices,
                        unsigned *count, struct plx_fault *fault)
{
    struct plx_superblock_info info;
    char path[PLX_PATH_MAX];
    int error = plx_registry_growth_path(registry, store, path);

    if (error)
        return error == PLX_ERR_NOT_FOUND ? 0 : plx_registry_fault(registry, error, fault);
    error = plx_superblock_probe(devices[0], &info, fault);
    if (error || info.volumes != *count + 1 || *count == PLX_VOLUMES_MAX)
        return error;
    error = plx_device_open(path, options, &devices[*count], fault);
    *count += !error;
    return error;
}

int plx_volumes_open(struct plx_registry *registry, int64_t store, const struct plx_known *known,
                     const struct plx_device_open_options *options,
                     struct plx_device *ret_devices[PLX_VOLUMES_MAX], unsigned *ret_count,
                     struct plx_fault *fault)
{
    struct plx_registry_volume *volumes;
    unsigned opened = 0;
    size_t count;
    int error = plx_registry_volume_list(registry, store, &volumes, &count);

    if (error)
        return plx_registry_fault(registry, error, fault);
    if (count > PLX_VOLUMES_MAX)
        error = refuse_rows(fault);
    while (opened < count && !error) {
        const char *path = opened < known->volumes ? known->volume[opened] : volumes[opened].path;

        error = plx_device_open(path, options, &ret_devices[opened], fault);
        opened += !error;
    }
    free(volumes);
    if (!error && opened)
        error = open_joining(registry, store, options, ret_devices, &opened, fault);
    if (error)
        plx_volumes_close(ret_devices, opened);
    else
        *ret_count = opened;
    return error;
}

int plx_volumes_ranges(struct plx_registry *registry, int64_t store,
                       struct plx_extent_range **ret_list, unsigned *ret_count,
                       struct plx_fault *fault)
{
    struct plx_registry_range *rows;
    struct plx_extent_range *list;
    uint64_t extents = 0;
    size_t count;
    int error = plx_registry_range_list(registry, store, &rows, &count);

    if (error)
        return plx_registry_fault(registry, error, fault);
    list = calloc(count + 1, sizeof *list);
    if (!list)
        error = plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < count && !error; i++) {
        if (rows[i].first != extents || rows[i].volume >= PLX_VOLUMES_MAX ||
            rows[i].extents > PLX_BLOCK_MAX - extents)
            error = refuse_rows(fault); /* VOLUMES-3 */
        extents += rows[i].extents;
        list[i] = (struct plx_extent_range){
            .volume = rows[i].volume, .first = rows[i].first, .extents = rows[i].extents};
    }
    free(rows);
    if (error) {
        free(list);
        return error;
    }
    *ret_list = list;
    *ret_count = (unsigned)count;
    return 0;
}

int plx_volumes_registered(struct plx_registry *registry, int64_t store, uint64_t *ret_extents,
                           struct plx_fault *fault)
{
    struct plx_extent_range *list;
    unsigned count;
    int error = plx_volumes_ranges(registry, store, &list, &count, fault);

    if (error)
        return error;
    *ret_extents = count ? list[count - 1].first + list[count - 1].extents : 0;
    free(list);
    return 0;
}

static int enter(struct plx_registry *registry, int64_t store, const struct plx_store_info *info,
                 const struct plx_extent_range *range, uint64_t known, const char *path)
{
    const struct plx_registry_range row = {range->volume, range->first, range->extents};
    struct plx_registry_volume volume = {
        .index = range->volume, .first_extent = range->first, .extents = range->extents};

    if (range->at || range->first < known)
        return plx_registry_range_add(registry, store, &row);
    plx_uuid_text(&info->volume[range->volume].id, volume.uuid);
    snprintf(volume.path, sizeof volume.path, "%s", path);
    return plx_registry_volume_add(registry, store, &volume);
}

/* Another process may have been at it, too, and have come further. */
static int seen_entered(struct plx_registry *registry, int64_t store, uint64_t extents, int error,
                        uint64_t *ret_known, struct plx_fault *fault)
{
    struct plx_fault why;
    uint64_t known;
    int asked = plx_volumes_registered(registry, store, &known, &why);

    if (!asked && known >= extents) {
        *ret_known = known;
        return 0;
    }
    if (!error && !asked) /* entered, and not there */
        return refuse_rows(fault);
    return error ? error : plx_fault_set(fault, asked, "%s", why.text);
}

int plx_volumes_register(struct plx_registry *registry, int64_t id, struct plx_store *store,
                         const char *const *paths, struct plx_fault *fault)
{
    struct plx_store_info info;
    struct plx_extent_range range;
    uint64_t known;
    int error = plx_volumes_registered(registry, id, &known, fault);

    plx_store_get_info(store, &info);
    for (unsigned i = 0; !error && plx_store_range(store, i, &range); i++) {
        const char *path = paths ? paths[range.volume] : info.volume[range.volume].name;

        if (range.first + range.extents <= known)
            continue;
        /* VOLUMES-1: what is known here may not be durable */
        error = plx_store_flush_others(store);
        if (error)
            return plx_fault_set(fault, error, "volumes cannot be flushed: %s",
                                 plx_error_text(error));
        error = enter(registry, id, &info, &range, known, path);
        if (error)
            plx_registry_fault(registry, error, fault);
        error = seen_entered(registry, id, range.first + range.extents, error, &known, fault);
    }
    return error;
}

/* The length of the part of a path that names an open descriptor; 0: it has none. */
static int descriptor_part(const char *path)
{
    int length = 0;

    sscanf(path, "/dev/fd/%*u%n", &length);
    sscanf(path, "/proc/self/fd/%*u%n", &length);
    sscanf(path, "/proc/thread-self/fd/%*u%n", &length);
    sscanf(path, "/proc/%*u/fd/%*u%n", &length);
    return length;
}

/* VOLUMES-4. Puts the path that a descriptor leads to in place of the descriptor. */
static int name_descriptor(char **path, struct plx_fault *fault)
{
    int length = descriptor_part(*path);
    char link[PLX_PATH_MAX], real[PLX_PATH_MAX] = "", *named;
    struct stat by_link, by_name;

    if (!length)
        return 0;
    snprintf(link, sizeof link, "%.*s", length, *path);
    if (readlink(link, real, sizeof real - 1) < 0 || stat(link, &by_link) || stat(real, &by_name) ||
        by_link.st_dev != by_name.st_dev || by_link.st_ino != by_name.st_ino)
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "%.150s: a volume needs a name that lasts, and what this descriptor "
                             "leads to has none; name a file or device by its path",
                             *path);
    if (asprintf(&named, "%s%s", real, *path + length) < 0)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    free(*path);
    *path = named;
    return 0;
}

int plx_volumes_absolute(const char *path, char **ret_path, struct plx_fault *fault)
{
    char folder[PLX_PATH_MAX], *whole;
    bool is_whole = path[0] == '/' || strstr(path, "://");
    int length, error;

    if (!is_whole && !getcwd(folder, sizeof folder))
        return plx_fault_set(fault, PLX_ERR_SYSTEM, "%s: the current folder has no name", path);
    length = is_whole ? asprintf(&whole, "%s", path) : asprintf(&whole, "%s/%s", folder, path);
    if (length < 0)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    error = name_descriptor(&whole, fault);
    if (error)
        free(whole);
    else
        *ret_path = whole;
    return error;
}
