/* founding.c - see founding.h.
 *
 * FOUNDING-1  A format writes to a volume only while no other process has the volume open
 *     (device.h, exclusive). It never writes to a volume of a store that is known here
 *     (occupied.c): the operator has to forget that store first. The format keeps its volumes to
 *     itself until the store is known, so two formats of one volume run one after the other.
 * FOUNDING-2  A format is complete when the registry has the store's row. Before that the volumes
 *     hold a superblock and an empty registry. Every opening refuses those, and says what to do.
 * FOUNDING-3  The entry in the list of known stores is written last, because it is only the way to
 *     a store that must exist. Whether it can be written is tried before anything is changed. If
 *     writing it fails in the end, the error says that the store is whole and how to enter it.
 * FOUNDING-4  A format that fails removes the files that it created. It keeps a file that already
 *     had a superblock when the format got it for itself: another format was quicker.
 * FOUNDING-5  A format that does not overwrite says which command helps with what is there. A store
 *     without a row is none that could be imported: its format is repeated with --force, or its
 *     registry is rebuilt.
 * Threads: the caller's.
 * Crash story: FOUNDING-2. The operator repeats the format, which begins again with --force.
 */
#include "attach/founding.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attach/attach.h"
#include "attach/attach_inside.h"
#include "attach/occupied.h"
#include "attach/volumes.h"
#include "registry/embedded.h"
#include "registry/tenancy.h"

/* FOUNDING-3 */
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

/* The volumes of a format, for itself. */
struct volumes {
    struct plx_device *devices[PLX_VOLUMES_MAX];
    bool made[PLX_VOLUMES_MAX]; /* FOUNDING-4 */
    unsigned count;
};

static int open_one(struct volumes *volumes, const char *name, uint64_t size,
                    const struct plx_patience *patience, struct plx_fault *fault)
{
    struct plx_device_open_options open = {
        .create_bytes = size, .exclusive = true, .patience = patience};
    struct plx_device *device;
    struct plx_superblock_info info;
    int error = plx_occupied_name_living(name, plx_device_open(name, &open, &device, fault), fault);

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

/* Whether the device is volume 0 of a store whose registry cannot be read, or has no row of it. */
static bool is_rowless(struct plx_device *device, struct plx_superblock_info *ret_store)
{
    const struct plx_embedded_options look = {
        .volume = device->name, .who = "", .read_only = true, .beside = true};
    struct plx_registry_store row;
    struct plx_registry *registry;
    char uuid[PLX_UUID_TEXT];
    int error;

    if (plx_superblock_probe(device, ret_store, NULL) || ret_store->volume_index != 0)
        return false;
    error = plx_embedded_open(&look, &registry, NULL);
    if (error)
        return error == PLX_ERR_REGISTRY;
    plx_uuid_text(&ret_store->store, uuid);
    error = plx_registry_store_get(registry, uuid, &row);
    plx_registry_close(registry);
    return error == PLX_ERR_NOT_FOUND || error == PLX_ERR_REGISTRY;
}

/* FOUNDING-5 */
static int refuse_rowless(struct plx_device *device, struct plx_fault *fault)
{
    struct plx_superblock_info store;

    return is_rowless(device, &store)
               ? plx_fault_set(fault, PLX_ERR_EXISTS,
                               "%s: holds store %s with a registry that cannot be read: if its "
                               "format was not finished, --force formats it again; if it was in "
                               "use, 'parallax store import' or, where that refuses, 'parallax "
                               "store rebuild-registry' brings it back",
                               device->name, store.store_name)
               : 0;
}

static int refuse_contents(const struct plx_paths *paths, struct plx_device *device,
                           struct plx_fault *fault)
{
    int error = refuse_rowless(device, fault);

    return error ? error : plx_occupied_refuse_data(paths, device, fault);
}

/* FOUNDING-1 */
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
        error = plx_volumes_check_distinct(names, i + 1, fault); /* before one waits for itself */
        if (!error)
            error = open_one(volumes, names[i], size, patience, fault);
    }
    if (!error)
        error = plx_occupied_refuse(paths, volumes->devices, count, unused, patience, fault);
    for (unsigned i = 0; i < count && !options->force && !error; i++)
        error = refuse_contents(paths, volumes->devices[i], fault);
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

/* FOUNDING-2 */
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
    int error = plx_volumes_check_count(count, fault);

    if (!paths)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    if (!error)
        error = plx_paths_init(paths, state_dir, fault);
    if (!error)
        error = plx_known_free_name(paths, options->name, fault);
    if (!error)
        error = plx_known_add_volumes(&known, names, count, fault);
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

/* ---- Looked at ---- */

int plx_founding_open(const struct plx_known *known, const struct plx_device_open_options *open,
                      const struct plx_store_options *options, struct plx_env *env,
                      struct plx_store **ret_store, struct plx_fault *fault)
{
    struct plx_device *devices[PLX_VOLUMES_MAX];
    int error = plx_volumes_open_paths((const char *const *)known->volume, known->volumes, open,
                                       devices, fault);

    if (error)
        return error;
    plx_attach_init_env(env);
    error = plx_store_open(devices, known->volumes, options, env, ret_store, fault);
    if (error)
        plx_volumes_close(devices, known->volumes);
    return error;
}

int plx_founding_look(const struct plx_known *known,
                      void (*look)(void *context, struct plx_store *store), void *context,
                      const struct plx_patience *patience, struct plx_fault *fault)
{
    const struct plx_device_open_options open = {
        .read_only = true, .beside = true, .patience = patience};
    struct plx_store *store;
    struct plx_env env;
    int error =
        plx_founding_open(known, &open, &(struct plx_store_options){0}, &env, &store, fault);

    if (error)
        return error;
    look(context, store);
    plx_store_close(store);
    return 0;
}
