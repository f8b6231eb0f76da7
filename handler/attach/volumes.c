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
 * VOLUMES-4  A volume is entered under a name that means the same to every process. A path through
 *     a process's descriptor, working folder or root (/proc/self/fd/3, /dev/fd/3, /proc/802/cwd/a)
 *     is gone with that process, so the path that it leads to takes its place. What has no path,
 *     such as a deleted file or a memfd, is refused.
 * VOLUMES-5  Volumes may join while a store is opened: after its registry was read, and before its
 *     superblocks are. So an opening that meets another number of volumes than it was given reads
 *     the registry again, as long as that has got more of them.
 * VOLUMES-6  Who has a store open to write shares PLX_BYTE_OPEN of each further volume. A file that
 *     was put in the place of volume 0 while the store was open has locks and a counter of its own,
 *     so that they prove nothing about who has the further volumes open. This lock does, and the
 *     store is not taken through that file meanwhile (TENANCY-9). A store is not written to without
 *     these locks.
 * Threads: the caller's.
 * Crash story: whoever opens the store for writing next enters what the registry is missing.
 */
#include "attach/volumes.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "device/bytelock.h"

#define SHARE_TRIES 1000u
#define SHARE_AGAIN_US 1000u

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

int plx_volumes_check_distinct(const char *const *paths, unsigned count, struct plx_fault *fault)
{
    for (unsigned i = 0; i < count; i++)
        for (unsigned j = 0; j < i; j++) {
            enum plx_overlap overlap = plx_storage_compare(paths[i], paths[j]);

            if (overlap != PLX_APART)
                return plx_fault_set(fault, PLX_ERR_INVALID,
                                     overlap == PLX_SAME
                                         ? "%s and %s are the same volume"
                                         : "%s and %s overlap: one is a part of the other",
                                     paths[j], paths[i]);
        }
    return 0;
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
                         "rebuild-registry' rebuilds it from the store");
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

int plx_volumes_tell_ahead(struct plx_store *store, struct plx_fault *fault)
{
    struct plx_store_info info;

    plx_store_get_info(store, &info);
    return plx_fault_set(fault, PLX_ERR_CORRUPT,
                         "%.80s counts more volumes of store %s than %.80s, which went back to an "
                         "older state; put the newer one back; until then nothing is written to "
                         "the store",
                         info.volume[plx_store_ahead(store)].name, info.name, info.volume[0].name);
}

/* VOLUMES-6. Another process has the byte exclusively while it finds out whether it is alone
 * (NUMBERS-4), which takes no I/O. */
static int share_open(struct plx_device *device, struct plx_fault *fault)
{
    int error = PLX_ERR_BUSY;

    for (unsigned i = 0; i < SHARE_TRIES && error == PLX_ERR_BUSY; i++) {
        if (i)
            usleep(SHARE_AGAIN_US);
        error = device->used->ops->set(device->used, PLX_BYTE_OPEN, PLX_BYTE_SHARED);
    }
    return error ? plx_fault_set(fault, error,
                                 "%s: cannot be locked, so another process could take the store "
                                 "meanwhile: %s",
                                 device->name, plx_error_text(error))
                 : 0;
}

int plx_volumes_share_open(const struct plx_store *store, struct plx_fault *fault)
{
    struct plx_device *device;
    int error = 0;

    for (unsigned i = 1; !error && (device = plx_store_device(store, i)) != NULL; i++)
        if (device->used)
            error = share_open(device, fault);
    return error;
}

int plx_volumes_alone(const void *known, struct plx_fault *fault)
{
    const struct plx_known *store = known;
    bool busy = false;

    for (unsigned i = 1; i < store->volumes && !busy; i++) {
        struct plx_bytelock *lock;

        if (plx_bytelock_open(store->volume[i], &lock, NULL))
            continue; /* whoever opens the store says why */
        if (lock->ops->probe(lock, PLX_BYTE_OPEN, &busy))
            busy = false;
        plx_bytelock_close(lock);
        if (busy)
            return plx_fault_set(fault, PLX_ERR_BUSY,
                                 "%.160s: who opened store %s before another file was put in the "
                                 "place of %.160s uses it still; end that first, or put the file "
                                 "back",
                                 store->volume[i], store->name, store->volume[0]);
    }
    return 0;
}

unsigned plx_volumes_index_of(const struct plx_store *store, uint64_t extent)
{
    struct plx_extent_range range = {0};

    for (unsigned i = 0; plx_store_range(store, i, &range); i++)
        if (extent < range.first + range.extents)
            break;
    return range.volume;
}

const char *plx_volumes_name_of(const struct plx_store *store, uint64_t extent)
{
    return plx_store_device(store, plx_volumes_index_of(store, extent))->name;
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

/* Whether a path leads through a link of /proc that is a descriptor, a working folder or a root: it
 * means something else to each process, or ends with one. /proc/self/cwd at the beginning is meant
 * as it is written: relative to whoever asks. A kernel before 5.6 cannot tell. */
static bool is_passing(const char *path)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_MAGICLINKS};
    int fd;

    if (strncmp(path, "/proc/self/cwd/", 15) == 0)
        for (path += 15; *path == '/';)
            path++;
    fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
    if (fd >= 0)
        close(fd);
    return fd < 0 && errno == ELOOP;
}

/* The path without links; to be freed. The last part need not exist. NULL: it has none. */
static char *without_links(const char *path)
{
    char *real = realpath(path, NULL), *folder, *named = NULL;
    const char *slash = strrchr(path, '/');
    struct stat st;

    if (real || errno != ENOENT || lstat(path, &st) == 0)
        return real;
    folder = strndup(path, (size_t)(slash - path) + 1);
    real = folder ? realpath(folder, NULL) : NULL;
    if (real && asprintf(&named, "%s%s", real, slash) < 0)
        named = NULL;
    free(real);
    free(folder);
    return named;
}

/* VOLUMES-4. Puts the path that a passing one leads to in its place. */
static int name_to_last(char **path, struct plx_fault *fault)
{
    struct stat by_path = {0}, by_name = {0}; /* of what is not there yet, both stay so */
    char *real;

    if ((*path)[0] != '/' || !is_passing(*path))
        return 0;
    real = without_links(*path);
    if (!real && errno == ELOOP)
        return 0; /* links that go round: whoever opens it says so */
    if (!real || stat(*path, &by_path) != stat(real, &by_name) ||
        by_path.st_ino != by_name.st_ino || by_path.st_dev != by_name.st_dev) {
        free(real);
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "%.150s: a volume needs a name that lasts, and what this one leads "
                             "to has none; name a file or device by its path",
                             *path);
    }
    free(*path);
    *path = real;
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
    error = name_to_last(&whole, fault);
    if (error)
        free(whole);
    else
        *ret_path = whole;
    return error;
}
