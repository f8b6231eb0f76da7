/* founding.c - see founding.h.
 *
 * V1  A volume is written by a format only while no other process has it open (device.h,
 *     exclusive), and never when it belongs to a store that is known here: that is forgotten first.
 *     The format has it for itself until its store is known: two of them are one after the other.
 * V2  A format is through when the registry has the store's row. Before that, the volumes hold a
 *     superblock and an empty registry, which every opening refuses with what to do.
 * V3  The list of known stores comes last: it is only the way to what is there. Whether it can be
 *     written is tried before anything is changed: where it cannot, nothing is. If it fails in the
 *     end all the same, what is there is said, and how to enter it.
 * V4  A format that fails removes the files that it made, if nothing was in them when it got them
 *     for itself: another's format may have been quicker.
 * V5  Whose a volume is its store's volume 0 says. Where that is not at hand, or cannot be read,
 *     the operator's word is asked for that no host uses the store: --force is none.
 * V6  The home page is written only where the superblock says that this is the store's volume 0:
 *     what is known here is a path, which may lead to another disk by now.
 * V7  The home page is there before the store's row (V2). So a store that has its row and no page,
 *     not even nobody's, has lost it: the operator's word is asked for, as where it is damaged.
 * Threads: the caller's. Crash story: V2; what is repeated begins anew.
 */
#include "attach/founding.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attach/attach.h"
#include "attach/attach_inside.h"
#include "attach/volumes.h"
#include "registry/embedded.h"
#include "registry/instance.h"
#include "registry/tenancy.h"

#define NAMES_SHOWN 3u

/* ---- Volumes ---- */

static int check_count(unsigned count, struct plx_fault *fault)
{
    return count >= 1 && count <= PLX_VOLUMES_MAX
               ? 0
               : plx_fault_set(fault, PLX_ERR_INVALID, "a store has 1 to %d volumes",
                               PLX_VOLUMES_MAX);
}

/* The handler runs elsewhere: by absolute paths. */
static int absolute_paths(const char *const *paths, struct plx_known *known, unsigned count,
                          struct plx_fault *fault)
{
    for (unsigned i = 0; i < count; i++) {
        int error = plx_volumes_absolute(paths[i], &known->volume[i], fault);

        if (error)
            return error;
        known->volumes++;
    }
    return 0;
}

/* V3 */
int plx_founding_enter(const struct plx_paths *paths, const struct plx_known *known,
                       const struct plx_patience *patience, struct plx_fault *fault)
{
    char volumes[PLX_KNOWN_VOLUMES_TEXT];
    struct plx_fault why;
    int error = plx_known_put(paths, known, patience, &why);

    plx_known_name_volumes(known, volumes);
    if (error == PLX_ERR_EXISTS)
        return plx_fault_set(fault, error, "%s", why.text);
    return error
               ? plx_fault_set(fault, error,
                               "%.*s; store %s is whole, but not known here: when that is mended, "
                               "'parallax store import %s %s' makes it known",
                               (int)strcspn(why.text, ";"), why.text, known->name, known->name,
                               volumes)
               : 0;
}

/* ---- Formatting ---- */

/* V1: one file or device under two names; one that does not exist yet has no other name. */
static int check_distinct(const char *const *paths, unsigned count, struct plx_fault *fault)
{
    struct plx_bytelock *locks[PLX_VOLUMES_MAX] = {0};
    int error = 0;

    for (unsigned i = 0; i < count && !error; i++) {
        error = plx_bytelock_open(paths[i], &locks[i], fault);
        if (error == PLX_ERR_NOT_FOUND)
            error = 0;
        for (unsigned j = 0; j < i && !error; j++)
            if (plx_bytelock_same(locks[i], locks[j]))
                error = plx_fault_set(fault, PLX_ERR_INVALID, "%s and %s are the same volume",
                                      paths[j], paths[i]);
    }
    for (unsigned i = 0; i < count; i++)
        plx_bytelock_close(locks[i]);
    return error;
}

/* "web, db, mail and 4 more", for people. */
static void name_disks(const struct plx_known *known, char *ret_text, size_t size)
{
    struct plx_embedded_options options = {
        .volume = known->volume[0],
        .uuid = known->uuid,
        .who = "",
        .read_only = true,
        .beside = true, /* it may be the one that is open exclusively */
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

int plx_founding_name_living(const char *volume, int error, struct plx_fault *fault)
{
    static unsigned none;
    static const struct plx_patience at_once = {plx_patience_fixed, &none};
    struct plx_embedded_options options = {
        .volume = volume, .who = "", .read_only = true, .beside = true, .patience = &at_once};
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
            plx_fault_set(
                fault, error, "%s: store %s is open in %s (pid %lld) on host %s; stop that first",
                volume, info.store_name, list[i].role, (long long)list[i].pid, list[i].host_name);
            break;
        }
    free(list);
    plx_registry_close(registry);
    return error;
}

/* V5. why: what stands in the way of knowing. */
static int refuse_untold(const struct plx_device *device, bool unused, const char *why,
                         struct plx_fault *fault)
{
    return unused ? 0
                  : plx_fault_set(fault, PLX_ERR_BUSY,
                                  "%s: %s, so nobody knows whether a host uses it; when you have "
                                  "seen that none does, add --i-checked-nobody-uses-it",
                                  device->name, why);
}

/* V7 */
static bool has_lost_home(const struct plx_paths *paths, const char *volume, const char *uuid)
{
    const struct plx_embedded_options look = {
        .volume = volume, .uuid = uuid, .who = "", .read_only = true, .beside = true};
    struct plx_registry_store row;
    struct plx_registry *registry;
    struct plx_tenant tenant;
    bool founded;

    if (plx_embedded_tenant(&look, paths, &tenant, NULL) || tenant.found ||
        plx_embedded_open(&look, &registry, NULL))
        return false;
    founded = plx_registry_store_get(registry, uuid, &row) == 0;
    plx_registry_close(registry);
    return founded;
}

/* V1: a store that another host has, or that is in use through another name of the volume. */
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
    if (has_lost_home(paths, device->name, uuid))
        return refuse_untold(device, unused, "holds a store, and its home page is lost", fault);
    if (tenant.here || plx_uuid_is_zero(&tenant.host))
        return 0;
    plx_uuid_parse(uuid, &options.store);
    error = plx_tenancy_begin(&options, &tenancy, &why);
    plx_tenancy_end(tenancy);
    return error == PLX_ERR_BUSY ? plx_fault_set(fault, error, "%s", why.text) : 0;
}

static int refuse_known(const struct plx_known *known, const struct plx_device *device,
                        struct plx_fault *fault)
{
    char disks[160];

    name_disks(known, disks, sizeof disks);
    return plx_fault_set(
        fault, PLX_ERR_EXISTS,
        "%s is a volume of store %s (%s); 'parallax store forget %s' first, if it is to be "
        "overwritten",
        device->name, known->name, disks, known->name);
}

/* Volume 0 of the store, which says who has it. */
static bool is_first(struct plx_device *device, const struct plx_uuid *store)
{
    struct plx_superblock_info info;

    return plx_superblock_probe(device, &info, NULL) == 0 && info.volume_index == 0 &&
           plx_uuid_equal(&info.store, store);
}

static int refuse_used(const struct plx_paths *paths, struct plx_device *const *devices,
                       unsigned count, struct plx_device *device, bool unused,
                       const struct plx_patience *patience, struct plx_fault *fault)
{
    struct plx_superblock_info info;
    struct plx_known known;
    char uuid[PLX_UUID_TEXT], identity[PLX_UUID_TEXT], text[160];
    int error = plx_superblock_probe(device, &info, NULL);

    if (error == PLX_ERR_NOT_FOUND)
        return 0;
    if (error == PLX_ERR_CORRUPT || error == PLX_ERR_UNSUPPORTED)
        return refuse_untold(device, unused,
                             error == PLX_ERR_CORRUPT
                                 ? "holds a store whose superblocks are damaged"
                                 : "holds a store of another version",
                             fault);
    if (error)
        return plx_fault_set(fault, error, "%s: cannot be read: %s", device->name,
                             plx_error_text(error));
    plx_uuid_text(&info.store, uuid);
    plx_uuid_text(&info.identity, identity);
    error = plx_known_get(paths, identity, &known, fault);
    if (!error) {
        error = refuse_known(&known, device, fault);
        plx_known_done(&known);
        return error;
    }
    if (error != PLX_ERR_NOT_FOUND)
        return error;
    if (info.volume_index == 0)
        return refuse_tenant(paths, device, uuid, unused, patience, fault);
    for (unsigned i = 0; i < count; i++)
        if (is_first(devices[i], &info.store))
            return 0; /* it is asked itself */
    snprintf(text, sizeof text, "is volume %u of store %s, and only its volume 0 tells whose it is",
             info.volume_index, info.store_name);
    return refuse_untold(device, unused, text, fault);
}

int plx_founding_refuse_used(const struct plx_paths *paths, struct plx_device *const *devices,
                             unsigned count, bool unused, const struct plx_patience *patience,
                             struct plx_fault *fault)
{
    int error = 0;

    for (unsigned i = 0; i < count && !error; i++)
        error = refuse_used(paths, devices, count, devices[i], unused, patience, fault);
    return error;
}

static int check_name(const struct plx_paths *paths, const char *name, struct plx_fault *fault)
{
    struct plx_known known;
    int error = plx_known_get(paths, name, &known, fault);

    if (error)
        return error == PLX_ERR_NOT_FOUND ? 0 : error;
    plx_known_done(&known);
    return plx_fault_set(
        fault, PLX_ERR_EXISTS,
        "a store named %s exists already; 'parallax store forget %s' drops it from "
        "the list of known stores",
        name, name);
}

/* The volumes of a format, for itself. */
struct volumes {
    struct plx_device *devices[PLX_VOLUMES_MAX];
    bool made[PLX_VOLUMES_MAX]; /* V4 */
    unsigned count;
};

static int open_one(struct volumes *volumes, const char *name, uint64_t size,
                    const struct plx_patience *patience, struct plx_fault *fault)
{
    struct plx_device_open_options open = {
        .create_bytes = size, .exclusive = true, .patience = patience};
    struct plx_device *device;
    struct plx_superblock_info info;
    int error = plx_founding_name_living(name, plx_device_open(name, &open, &device, fault), fault);

    if (error)
        return error;
    volumes->made[volumes->count] =
        device->made && plx_superblock_probe(device, &info, NULL) == PLX_ERR_NOT_FOUND;
    volumes->devices[volumes->count++] = device;
    return 0;
}

static void close_all(struct volumes *volumes, bool failed)
{
    for (unsigned i = 0; i < volumes->count; i++)
        if (failed && volumes->made[i])
            unlink(volumes->devices[i]->name);
    plx_volumes_close(volumes->devices, volumes->count);
}

/* V1 */
static int format_volumes(const struct plx_paths *paths, const char *const *names, unsigned count,
                          uint64_t size, const struct plx_format_options *options, bool unused,
                          const struct plx_patience *patience, struct volumes *volumes,
                          struct plx_store_info *ret_info, struct plx_fault *fault)
{
    struct plx_format_options format = *options;
    struct plx_env env;
    int error = 0;

    plx_attach_init_env(&env);
    format.registry = true;
    for (unsigned i = 0; i < count && !error; i++) {
        error = check_distinct(names, i + 1, fault); /* before one waits for itself */
        if (!error)
            error = open_one(volumes, names[i], size, patience, fault);
    }
    if (!error)
        error = plx_founding_refuse_used(paths, volumes->devices, count, unused, patience, fault);
    return error ? error
                 : plx_store_format(volumes->devices, count, &format, &env, ret_info, fault);
}

void plx_founding_rows(const struct plx_store_info *info, const struct plx_known *known,
                       struct plx_registry_store *ret_store,
                       struct plx_registry_volume *ret_volumes)
{
    *ret_store = (struct plx_registry_store){.extent_blocks = info->extent_blocks,
                                             .created_ns = info->created_ns};
    plx_uuid_text(&info->id, ret_store->uuid);
    memcpy(ret_store->name, info->name, sizeof ret_store->name);
    for (unsigned i = 0; i < info->volumes; i++) {
        ret_volumes[i] = (struct plx_registry_volume){
            .index = i,
            .first_extent = info->volume[i].first_extent,
            .extents = info->volume[i].extents,
            .system_extents = info->volume[i].system_extents,
        };
        plx_uuid_text(&info->volume[i].id, ret_volumes[i].uuid);
        snprintf(ret_volumes[i].path, sizeof ret_volumes[i].path, "%s", known->volume[i]);
    }
}

/* V2 */
static int found_registry(const struct plx_paths *paths, const struct plx_known *known,
                          const struct plx_store_info *info, struct plx_fault *fault)
{
    struct plx_registry_volume *volumes = calloc(info->volumes, sizeof *volumes);
    struct plx_embedded_options options = {
        .volume = known->volume[0],
        .uuid = known->uuid,
        .who = "parallax store format",
        .beside = true,
    };
    struct plx_registry_store store;
    struct plx_registry *registry;
    int error = volumes ? plx_embedded_create(&options, &registry, fault)
                        : plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");

    if (error) {
        free(volumes);
        return error;
    }
    plx_founding_rows(info, known, &store, volumes);
    error = plx_tenancy_found(plx_registry_device(registry), plx_registry_locks(registry),
                              &info->id, paths, fault);
    if (!error) {
        error = plx_registry_store_create(registry, &store, volumes, info->volumes, NULL);
        if (error)
            plx_registry_fault(registry, error, fault);
    }
    plx_registry_close(registry);
    free(volumes);
    return error;
}

int plx_founding_format(const char *state_dir, const char *const *names, unsigned count,
                        uint64_t size, const struct plx_format_options *options, bool unused,
                        const struct plx_patience *patience, struct plx_store_info *ret_info,
                        struct plx_fault *fault)
{
    struct plx_known known = {0};
    struct plx_paths *paths = malloc(sizeof *paths);
    struct volumes volumes = {.count = 0};
    bool failed;
    int error = check_count(count, fault);

    if (!paths)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    if (!error)
        error = plx_paths_init(paths, state_dir, fault);
    if (!error)
        error = check_name(paths, options->name, fault);
    if (!error)
        error = absolute_paths(names, &known, count, fault);
    if (!error) {
        memcpy(known.name, options->name, sizeof known.name);
        error = plx_known_try(paths, &known, patience, fault);
    }
    if (!error)
        error = format_volumes(paths, names, count, size, options, unused, patience, &volumes,
                               ret_info, fault);
    if (!error) {
        plx_uuid_text(&ret_info->id, known.uuid);
        plx_uuid_text(&ret_info->identity, known.identity);
        error = found_registry(paths, &known, ret_info, fault);
    }
    failed = error != 0;
    if (!error) { /* but for a name that is taken, the entry may be there */
        error = plx_founding_enter(paths, &known, patience, fault);
        failed = error == PLX_ERR_EXISTS;
    }
    close_all(&volumes, failed);
    plx_known_done(&known);
    free(paths);
    return error;
}

/* ---- Importing ---- */

static int identify(const char *const *paths, unsigned count, bool mixed,
                    const struct plx_patience *patience, struct plx_known *known,
                    struct plx_fault *fault)
{
    struct plx_device_open_options options = {.read_only = true, .patience = patience};
    struct plx_device *devices[PLX_VOLUMES_MAX];
    const char *ordered[PLX_VOLUMES_MAX] = {0};
    struct plx_superblock_info first = {0};
    struct plx_uuid identity = {{0}};
    unsigned most = 0; /* that volume 0 says less: volume.c, U5 */
    int error = plx_volumes_open_paths(paths, count, &options, devices, fault);

    if (error)
        return error;
    for (unsigned i = 0; i < count && !error; i++) {
        struct plx_superblock_info info;

        error = plx_superblock_probe(devices[i], &info, fault);
        if (error)
            break;
        if (i == 0)
            identity = info.identity;
        if (i == 0 || info.volume_index == 0)
            first = info;
        most = info.volumes > most ? info.volumes : most;
        if (!plx_uuid_equal(&info.store, &first.store))
            error = plx_fault_set(fault, PLX_ERR_INVALID, "%s belongs to another store (%s)",
                                  paths[i], info.store_name);
        else if (!mixed && !plx_uuid_equal(&info.identity, &identity))
            error =
                plx_fault_set(fault, PLX_ERR_INVALID,
                              "%s is of another copy of store %s than %s; name the volumes of "
                              "one copy ('parallax store scan' shows what each is), or, when an "
                              "import with --new-identity was cut off, do that again",
                              paths[i], info.store_name, paths[0]);
        else if (info.volume_index >= count || ordered[info.volume_index])
            error = plx_fault_set(fault, PLX_ERR_INVALID,
                                  "%s is volume %u of store %s; name each of its %u volume%s once",
                                  paths[i], info.volume_index, info.store_name, info.volumes,
                                  plx_plural(info.volumes));
        else
            ordered[info.volume_index] = paths[i];
    }
    plx_volumes_close(devices, count);
    if (!error && first.volumes != count && most != count)
        error = plx_fault_set(fault, PLX_ERR_INVALID,
                              "store %s has %u volume%s, of which %u %s given; name them all",
                              first.store_name, first.volumes, plx_plural(first.volumes), count,
                              count == 1 ? "was" : "were");
    if (!error)
        error = absolute_paths(ordered, known, count, fault);
    if (error)
        return error;
    memcpy(known->name, first.store_name, sizeof known->name);
    plx_uuid_text(&first.store, known->uuid);
    plx_uuid_text(&first.identity, known->identity);
    return 0;
}

static int identify_all(const char *const *paths, unsigned count, bool mixed,
                        const struct plx_patience *patience, struct plx_known *ret_known,
                        struct plx_fault *fault)
{
    struct plx_known known = {0};
    int error = check_count(count, fault);

    if (!error)
        error = identify(paths, count, mixed, patience, &known, fault);
    if (error)
        plx_known_done(&known);
    else
        *ret_known = known;
    return error;
}

static bool is_same_volume(const char *a, const char *b)
{
    struct plx_bytelock *here = NULL, *there = NULL;
    bool same = !plx_bytelock_open(a, &here, NULL) && !plx_bytelock_open(b, &there, NULL) &&
                plx_bytelock_same(here, there);

    plx_bytelock_close(here);
    plx_bytelock_close(there);
    return same;
}

/* Whether volume 0 of `other`, if the store is still there, is another one than that of `known`. */
static bool lies_elsewhere(const struct plx_known *known, const struct plx_known *other)
{
    struct plx_device_open_options options = {.read_only = true, .queue_depth = 1, .beside = true};
    struct plx_superblock_info info;
    struct plx_device *device;
    char identity[PLX_UUID_TEXT] = "";

    if (plx_device_open(other->volume[0], &options, &device, NULL) == 0) {
        if (plx_superblock_probe(device, &info, NULL) == 0)
            plx_uuid_text(&info.identity, identity);
        plx_device_close(device);
    }
    return strcmp(identity, known->identity) == 0 && /* else it moved away from there */
           !is_same_volume(known->volume[0], other->volume[0]);
}

/* A copy of a store that is known here, beside the original: one identity, two truths. And the
 * original is no copy: who calls it one would lose sight of it. */
static int check_copy(const struct plx_paths *paths, const struct plx_known *known, bool copy,
                      struct plx_fault *fault)
{
    struct plx_known other;
    bool elsewhere;
    int error = plx_known_get(paths, known->identity, &other, NULL);

    if (error)
        return 0;
    elsewhere = lies_elsewhere(known, &other);
    if (elsewhere && !copy)
        error = plx_fault_set(
            fault, PLX_ERR_EXISTS,
            "%s and %s are the same store, which is known here as %s: one of them is a copy, and "
            "to be used beside the other it needs an identity of its own: 'parallax store import "
            "NAME --new-identity --volume PATH' with the copy's volumes; or 'parallax store forget "
            "%s' first, if only one is to be used",
            known->volume[0], other.volume[0], other.name, other.name);
    else if (!elsewhere && copy)
        error = plx_fault_set(
            fault, PLX_ERR_EXISTS,
            "%s is store %s itself, which is known here, and no copy of it; 'parallax store forget "
            "%s' first, if it is the copy's place now",
            known->volume[0], other.name, other.name);
    else if (!copy && strcmp(other.name, known->name))
        error = plx_fault_set(fault, PLX_ERR_EXISTS,
                              "%s is known here as store %s; 'parallax store forget %s' first, if "
                              "it is to be called %s",
                              known->volume[0], other.name, other.name, known->name);
    plx_known_done(&other);
    return error;
}

/* Each of the volumes: a copy's volume 0 beside a volume of the original would make one store of
 * both. Those of the store itself, when it is imported again, are its own. */
static int refuse_volumes_of_others(const struct plx_paths *paths, const struct plx_known *known,
                                    bool copy, struct plx_fault *fault)
{
    struct plx_known *list;
    size_t count;
    int error = plx_known_list(paths, &list, &count, fault);

    if (error)
        return error;
    for (size_t i = 0; i < count && !error; i++) {
        if (list[i].problem.code) /* nobody knows which volumes are its */
            error = plx_fault_set(fault, list[i].problem.code, "%s", list[i].problem.text);
        for (unsigned v = 0; v < list[i].volumes && !error; v++)
            for (unsigned u = 0; u < known->volumes && !error; u++)
                if ((copy || strcmp(list[i].identity, known->identity) != 0) &&
                    is_same_volume(list[i].volume[v], known->volume[u]))
                    error = plx_fault_set(fault, PLX_ERR_EXISTS,
                                          "%s is a volume of store %s, which is known here, and of "
                                          "no other; 'parallax "
                                          "store forget %s' first, if it is another one's now",
                                          known->volume[u], list[i].name, list[i].name);
    }
    plx_known_list_free(list, count);
    return error;
}

/* As it is asked for; else as it is called here already; else as it was when it was made. */
static void name_it(const struct plx_paths *paths, const char *name, struct plx_known *known)
{
    struct plx_known here;

    if (name) {
        snprintf(known->name, sizeof known->name, "%s", name);
    } else if (plx_known_get(paths, known->identity, &here, NULL) == 0) {
        memcpy(known->name, here.name, sizeof known->name);
        plx_known_done(&here);
    }
}

int plx_founding_identify(const struct plx_paths *paths, const char *const *names, unsigned count,
                          const struct plx_patience *patience, struct plx_known *ret_known,
                          struct plx_fault *fault)
{
    int error = identify_all(names, count, false, patience, ret_known, fault);

    if (error)
        return error;
    name_it(paths, NULL, ret_known);
    error = check_copy(paths, ret_known, false, fault);
    if (error)
        plx_known_done(ret_known);
    return error;
}

/* The volumes' paths as this host knows them. */
static int enter_paths(const struct plx_known *known, const struct plx_patience *patience,
                       struct plx_fault *fault)
{
    struct plx_embedded_options options = {.volume = known->volume[0],
                                           .uuid = known->uuid,
                                           .who = "parallax store import",
                                           .patience = patience};
    struct plx_registry_volume *list = NULL;
    struct plx_registry_store row;
    struct plx_registry *registry;
    size_t count = 0;
    int error = plx_embedded_open(&options, &registry, fault);

    if (error)
        return error;
    error = plx_registry_store_get(registry, known->uuid, &row);
    if (!error)
        error = plx_registry_volume_list(registry, row.id, &list, &count);
    for (size_t i = 0; i < count && i < known->volumes && !error; i++)
        if (strcmp(list[i].path, known->volume[i]) != 0)
            error = plx_registry_volume_set_path(registry, row.id, (unsigned)i, known->volume[i]);
    if (error)
        plx_registry_fault(registry, error, fault);
    free(list);
    plx_registry_close(registry);
    return error;
}

static int take(const struct plx_paths *paths, const struct plx_known *known, const char *which,
                const char *from, bool dry_run, const struct plx_patience *patience,
                struct plx_tenancy **ret_tenancy, struct plx_fault *fault)
{
    struct plx_tenancy_options options = {.paths = paths,
                                          .volume = known->volume[0],
                                          .take = true,
                                          .dry_run = dry_run,
                                          .from = from,
                                          .which = which,
                                          .patience = patience};

    if (!from && has_lost_home(paths, known->volume[0], known->uuid))
        return plx_fault_set(fault, PLX_ERR_CORRUPT,
                             "%s: the home page is lost, so nobody knows which host has the store; "
                             "when no other has, 'parallax store take-over %.200s --any "
                             "--i-checked-it-is-off' writes it anew",
                             known->volume[0], which);
    plx_uuid_parse(known->uuid, &options.store);
    return plx_tenancy_begin(&options, ret_tenancy, fault);
}

static int take_volumes(const struct plx_paths *paths, const struct plx_known *known,
                        const char *from, bool dry_run, const struct plx_patience *patience,
                        struct plx_tenancy **ret_tenancy, struct plx_fault *fault)
{
    char volumes[PLX_KNOWN_VOLUMES_TEXT];

    plx_known_name_volumes(known, volumes);
    return take(paths, known, volumes, from, dry_run, patience, ret_tenancy, fault);
}

int plx_founding_take(const struct plx_paths *paths, const struct plx_known *known,
                      const char *from, const struct plx_patience *patience,
                      struct plx_tenancy **ret_tenancy, struct plx_fault *fault)
{
    return take_volumes(paths, known, from, false, patience, ret_tenancy, fault);
}

/* The volumes are this process's alone; for the rest see plx_store_set_identity(). What fails may
 * be repeated. */
static int give_identity(struct plx_known *known, const struct plx_patience *patience,
                         struct plx_fault *fault)
{
    const struct plx_device_open_options open = {.exclusive = true, .patience = patience};
    const struct plx_store_options options = {.instance = 1, .mixed = true};
    struct plx_device *devices[PLX_VOLUMES_MAX];
    struct plx_store *store;
    struct plx_uuid identity;
    struct plx_env env;
    int error = plx_volumes_open_paths((const char *const *)known->volume, known->volumes, &open,
                                       devices, fault);

    if (error)
        return error;
    plx_attach_init_env(&env);
    error = plx_store_open(devices, known->volumes, &options, &env, &store, fault);
    if (error) {
        plx_volumes_close(devices, known->volumes);
        return error;
    }
    env.random(&env, identity.b, sizeof identity.b);
    identity.b[6] = (uint8_t)(0x40 | (identity.b[6] & 0x0f));
    identity.b[8] = (uint8_t)(0x80 | (identity.b[8] & 0x3f));
    error = plx_store_set_identity(store, &identity, fault);
    plx_store_close(store);
    plx_uuid_text(&identity, known->identity);
    return error;
}

/* Of volumes that were identified. */
static int import(const struct plx_paths *paths, const struct plx_founding_import *options,
                  struct plx_known *known, struct plx_fault *fault)
{
    const struct plx_patience *patience = options->patience;
    struct plx_tenancy *tenancy = NULL;
    int error;

    name_it(paths, options->name, known);
    error = check_copy(paths, known, options->copy, fault);
    if (!error)
        error = refuse_volumes_of_others(paths, known, options->copy, fault);
    if (!error && options->copy)
        error = check_name(paths, known->name, fault);
    if (!error)
        error = plx_known_try(paths, known, patience, fault);
    if (!error)
        error =
            take_volumes(paths, known, options->from, options->dry_run, patience, &tenancy, fault);
    if (!error && options->copy)
        error = give_identity(known, patience, fault);
    if (!error && !options->dry_run)
        error = plx_founding_enter(paths, known, patience, fault);
    if (!error &&
        !options->dry_run) /* entered by now: what is wrong with the registry can be mended */
        error = enter_paths(known, patience, fault);
    plx_tenancy_end(tenancy);
    return error;
}

int plx_founding_import_known(const char *state_dir, struct plx_known *known,
                              const struct plx_founding_import *options, struct plx_fault *fault)
{
    struct plx_paths *paths = malloc(sizeof *paths);
    int error = paths ? plx_paths_init(paths, state_dir, fault)
                      : plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");

    if (!error)
        error = import(paths, options, known, fault);
    free(paths);
    return error;
}

int plx_founding_import(const char *state_dir, const char *const *names, unsigned count,
                        const struct plx_founding_import *options, struct plx_known *ret_known,
                        struct plx_fault *fault)
{
    struct plx_known known = {0};
    int error = identify_all(names, count, options->copy, options->patience, &known, fault);

    if (!error)
        error = plx_founding_import_known(state_dir, &known, options, fault);
    if (error)
        plx_known_done(&known);
    else
        *ret_known = known;
    return error;
}

/* ---- Stores that are known ---- */

struct named {
    struct plx_paths paths;
    struct plx_known known;
    struct plx_tenancy *tenancy;
};

static int find(const char *state_dir, const char *store, struct named **ret_named,
                struct plx_fault *fault)
{
    struct named *named = calloc(1, sizeof *named);
    int error = named ? plx_paths_init(&named->paths, state_dir, fault)
                      : plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");

    if (!error)
        error = plx_known_get(&named->paths, store, &named->known, fault);
    if (error)
        free(named);
    else
        *ret_named = named;
    return error;
}

static void named_free(struct named *named)
{
    plx_tenancy_end(named->tenancy);
    plx_known_done(&named->known);
    free(named);
}

int plx_founding_take_over(const char *state_dir, const char *store, const char *from, bool dry_run,
                           const struct plx_patience *patience, struct plx_fault *fault)
{
    struct plx_embedded_options look = {.beside = true};
    struct named *named;
    int error = find(state_dir, store, &named, fault);

    if (error)
        return error;
    look.volume = named->known.volume[0];
    look.uuid = named->known.uuid;
    look.identity = named->known.identity;
    error = plx_known_missing(&named->known, plx_embedded_check(&look, fault), fault); /* V6 */
    if (!error)
        error = take(&named->paths, &named->known, named->known.name, from, dry_run, patience,
                     &named->tenancy, fault);
    if (!error && !dry_run)
        error = enter_paths(&named->known, patience, fault);
    named_free(named);
    return error;
}

/* What dead processes have left is recovered first: another host could not tell them from living
 * ones of this one. And the living are let through. */
static int recover(const char *state_dir, const char *store, const struct plx_patience *patience,
                   struct plx_fault *fault)
{
    struct plx_attach_options options = {
        .store = store, .state_dir = state_dir, .role = "admin", .patience = patience};
    struct plx_attach *attach;
    int error = plx_attach_open(&options, &attach, fault), closed;

    if (error)
        return error;
    error = plx_attach_alone(attach, fault);
    closed = plx_attach_close(attach);
    return error ? error : closed;
}

/* Where its volume is not there, or cannot be opened, nobody here uses it. */
static int wait_until_unused(const struct plx_known *known, const struct plx_patience *patience,
                             struct plx_fault *fault)
{
    uint64_t since_ns = plx_patience_begin();
    struct plx_bytelock *locks;
    struct plx_fault why;
    bool busy;

    if (plx_bytelock_open(known->volume[0], &locks, NULL))
        return 0;
    plx_fault_set(&why, PLX_ERR_BUSY,
                  "store %s is open: a handler or a command uses it; stop that first", known->name);
    do
        busy = !locks->ops->probe(locks, PLX_BYTE_USED, &busy) && busy;
    while (busy && plx_patience_waits(patience, since_ns, &why));
    plx_bytelock_close(locks);
    return busy ? plx_founding_name_living(
                      known->volume[0], plx_fault_set(fault, PLX_ERR_BUSY, "%s", why.text), fault)
                : 0;
}

int plx_founding_release(const char *state_dir, const char *store, bool dry_run,
                         const struct plx_patience *patience, struct plx_fault *fault)
{
    struct named *named;
    int error = dry_run ? 0 : recover(state_dir, store, patience, fault);

    if (!error)
        error = find(state_dir, store, &named, fault);
    if (error)
        return error;
    if (dry_run)
        error = wait_until_unused(&named->known, patience, fault);
    if (!error)
        error = plx_known_missing(&named->known,
                                  take(&named->paths, &named->known, named->known.name, NULL,
                                       dry_run, patience, &named->tenancy, fault),
                                  fault);
    if (!error && !dry_run)
        error = plx_tenancy_release(named->tenancy, fault);
    named_free(named);
    return error;
}

int plx_founding_forget(const char *state_dir, const char *store,
                        const struct plx_patience *patience, struct plx_fault *fault)
{
    struct named *named;
    int error = find(state_dir, store, &named, fault);

    if (error)
        return error;
    error = wait_until_unused(&named->known, patience, fault);
    if (!error)
        error = plx_known_remove(&named->paths, named->known.name, fault);
    named_free(named);
    return error;
}
