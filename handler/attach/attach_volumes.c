/* attach_volumes.c - the volumes of an attached store: opened, and looked at again when the store
 * has grown (ATTACH-7, ATTACH-15). Invariants, threads and crash story: attach.c. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attach/attach_inside.h"
#include "attach/occupied.h"
#include "attach/volumes.h"
#include "registry/embedded.h"
#include "registry/spans.h"

#define RESERVE_MAX 8u /* unused extents that data leaves to metadata */

/* ---- How large the store is ---- */

/* Which extents this process can use, and how many of them it leaves to metadata. On the loop. */
static void note_size(struct plx_attach *a)
{
    struct plx_store_info info;

    plx_store_get_info(a->store, &info);
    pthread_mutex_lock(&a->claims_lock);
    a->extents_known = info.extents;
    a->keep_unused = plx_min_u64(RESERVE_MAX, plx_max_u64(1, info.extents / 16));
    pthread_mutex_unlock(&a->claims_lock);
}

uint64_t plx_attach_extents_known(struct plx_attach *a)
{
    uint64_t known;

    pthread_mutex_lock(&a->claims_lock);
    known = a->extents_known;
    pthread_mutex_unlock(&a->claims_lock);
    return known;
}

uint64_t plx_attach_keep_unused(struct plx_attach *a)
{
    uint64_t keep;

    pthread_mutex_lock(&a->claims_lock);
    keep = a->keep_unused;
    pthread_mutex_unlock(&a->claims_lock);
    return keep;
}

int plx_attach_open_volumes(struct plx_attach *a, struct plx_registry *registry,
                            struct plx_device *ret_devices[PLX_VOLUMES_MAX], unsigned *ret_count,
                            struct plx_fault *fault)
{
    struct plx_device_open_options options = {.read_only = a->options.read_only};

    return plx_volumes_open(registry, a->row.id, &a->known, &options, ret_devices, ret_count,
                            fault);
}

/* On the loop. */
int plx_attach_take_volumes(struct plx_attach *a, struct plx_device **devices, unsigned count,
                            struct plx_fault *fault)
{
    int error = plx_store_volumes_changed(a->store, devices, count, fault);

    if (error)
        return error;
    if (a->options.volumes_changed)
        a->options.volumes_changed(a->options.context);
    note_size(a);
    return 0;
}

/* ---- Volumes ---- */

/* ATTACH-15 */
static int check_behind(struct plx_attach *a, struct plx_fault *fault)
{
    const char *volume = plx_store_behind(a->store);

    if (!volume || a->options.read_only || a->options.grows)
        return 0;
    return plx_fault_set(fault, PLX_ERR_CORRUPT,
                         "%s: its superblock is older than the registry of store %s: the device "
                         "lost a write that it had acknowledged; nothing is written to the store "
                         "until 'parallax store grow %s' has written it again",
                         volume, a->known.name, a->known.name);
}

/* ATTACH-15. Rows that cannot be true are the check's affair where nothing is written. */
static int open_known(struct plx_attach *a, struct plx_device **devices, unsigned count,
                      struct plx_store_options *options, struct plx_store **ret_store,
                      struct plx_fault *fault)
{
    int error = plx_store_open(devices, count, options, &a->env, ret_store, fault);

    if (error != PLX_ERR_REGISTRY || !a->options.read_only)
        return error;
    options->known_count = 0;
    return plx_store_open(devices, count, options, &a->env, ret_store, fault);
}

/* Locks on one volume prove nothing about another one, even if that is its copy. */
int plx_attach_open_store(struct plx_attach *a, struct plx_fault *fault)
{
    struct plx_device_open_options device_options = {.read_only = a->options.read_only,
                                                     .patience = a->options.patience};
    struct plx_store_options options = {
        .instance = a->instance.row.id,
        .cache_bytes = a->options.cache_bytes,
    };
    struct plx_device *devices[PLX_VOLUMES_MAX] = {0};
    struct plx_extent_range *known;
    struct plx_store_info info;
    struct plx_store *store;
    char text[37];
    unsigned count;
    int error = plx_volumes_ranges(a->registry, a->row.id, &known, &options.known_count, fault);

    if (error)
        return error;
    options.known = known;
    error = plx_volumes_open(a->registry, a->row.id, &a->known, &device_options, devices, &count,
                             fault);
    if (error) {
        free(known);
        return error;
    }
    plx_uuid_parse(a->paths.host, &options.host);
    error = open_known(a, devices, count, &options, &store, fault);
    free(known);
    if (error) {
        plx_volumes_close(devices, count);
        return error;
    }
    if (!plx_bytelock_same(plx_store_device(store, 0)->used, plx_registry_locks(a->registry))) {
        plx_store_close(store);
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "%s is not the volume that the registry of store %s lies on; name its "
                             "volumes again ('parallax store import')",
                             a->known.volume[0], a->known.name);
    }
    plx_store_get_info(store, &info);
    plx_uuid_text(&info.id, text);
    if (strcmp(text, a->row.uuid) != 0) {
        plx_store_close(store);
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "%s holds store %s, not the one the registry means (%s); check its "
                             "volumes' paths",
                             info.volume[0].name, text, a->row.uuid);
    }
    a->store = store;
    note_size(a);
    error = check_behind(a, fault);
    return error || a->options.read_only /* ATTACH-7 */
               ? error
               : plx_volumes_register(a->registry, a->row.id, store, NULL, fault);
}

/* ---- A store that grows ---- */

static bool is_member(const struct plx_attach *a, const char *path)
{
    struct plx_bytelock *lock;
    struct plx_device *device;
    bool member = false;

    if (plx_bytelock_open(path, &lock, NULL))
        return false;
    for (unsigned i = 0; (device = plx_store_device(a->store, i)) && !member; i++)
        member = plx_bytelock_same(device->used, lock);
    plx_bytelock_close(lock);
    return member;
}

int plx_attach_volumes_changed(struct plx_attach *a, struct plx_fault *fault)
{
    struct plx_device *devices[PLX_VOLUMES_MAX] = {0};
    unsigned count;
    int error = plx_attach_open_volumes(a, a->registry, devices, &count, fault);

    if (error)
        return error;
    plx_attach_lock(a);
    error = plx_attach_take_volumes(a, devices, count, fault);
    plx_attach_unlock(a);
    return error;
}

/* What others have written from now on may lie in extents that came since this store was opened. */
int plx_attach_keep_up(struct plx_attach *a, struct plx_fault *fault)
{
    uint64_t extents;
    int error = plx_volumes_registered(a->registry, a->row.id, &extents, fault);

    if (error || extents <= plx_attach_extents_known(a))
        return error;
    return plx_attach_volumes_changed(a, fault);
}

/* A volume under another name than that which it is open by, or a copy of it. */
static int refuse_double(struct plx_attach *a, const struct plx_device *device,
                         const struct plx_superblock_info *info, struct plx_fault *fault)
{
    struct plx_store_info store;

    plx_store_get_info(a->store, &store);
    for (unsigned i = 0; i < store.volumes; i++)
        if (plx_uuid_equal(&info->volume, &store.volume[i].id) && !is_member(a, device->name))
            return plx_fault_set(fault, PLX_ERR_EXISTS,
                                 "%s is a copy of volume %u of store %s (%.100s), or another name "
                                 "of it",
                                 device->name, i, a->known.name, store.volume[i].name);
    return 0;
}

/* That it is no volume of another store that is known here, or that a host may have. A copy of this
 * store that was given an identity of its own is another one. Of this one: what an interrupted call
 * left is gone on with. */
static int check_further(struct plx_attach *a, struct plx_device *device,
                         const struct plx_attach_growth *growth, struct plx_fault *fault)
{
    struct plx_superblock_info info;
    char identity[PLX_UUID_TEXT] = "";
    bool own;
    int error;

    if (plx_superblock_probe(device, &info, NULL) == 0)
        plx_uuid_text(&info.identity, identity);
    own = strcmp(identity, a->known.identity) == 0;
    error = plx_occupied_refuse_place(&a->paths, device, own ? identity : NULL, fault);
    if (!error && identity[0])
        error = refuse_double(a, device, &info, fault);
    if (error || own)
        return error;
    error = plx_occupied_refuse(&a->paths, &device, 1, growth->unused, a->options.patience, fault);
    return error || growth->how.force ? error : plx_occupied_refuse_data(device, fault);
}

/* ATTACH-17. Of a device that does not become a volume. */
static void give_further_up(struct plx_device *device, const char *path)
{
    struct plx_superblock_info info;

    if (device->made && plx_superblock_probe(device, &info, NULL) == PLX_ERR_NOT_FOUND)
        unlink(path);
    plx_device_close(device);
}

/* The device under the name that others open it by, made if it is to be. Nobody else uses it (a
 * member is open here), and nobody begins to before it is this store's. */
static int open_further(struct plx_attach *a, const struct plx_attach_growth *growth,
                        struct plx_device **ret_device, struct plx_fault *fault)
{
    struct plx_device_open_options options = {.create_bytes = growth->create_bytes,
                                              .exclusive = !is_member(a, growth->path),
                                              .patience = a->options.patience};
    struct plx_device *device = NULL;
    char *path = NULL;
    int error = plx_volumes_absolute(growth->path, &path, fault);

    if (!error)
        error =
            plx_occupied_name_living(path, plx_device_open(path, &options, &device, fault), fault);
    free(path);
    if (error)
        return error;
    error = check_further(a, device, growth, fault);
    if (!error)
        error = plx_device_share(device, fault);
    if (error)
        give_further_up(device, growth->path);
    else
        *ret_device = device;
    return error;
}

void plx_attach_know_further(struct plx_attach *a)
{
    struct plx_fault why = {0};
    struct plx_store_info info;
    int error = 0;

    plx_store_get_info(a->store, &info);
    if (a->known.volumes >= info.volumes)
        return;
    for (unsigned i = a->known.volumes; i < info.volumes && !error; i++) {
        a->known.volume[i] = strdup(info.volume[i].name);
        error = a->known.volume[i] ? 0 : PLX_ERR_NOMEM;
        a->known.volumes += !error;
    }
    if (!error)
        error = plx_known_put(&a->paths, &a->known, NULL, &why);
    if (error)
        plx_attach_env_event(&a->env, error, why.text[0] ? why.text : plx_error_text(error));
}

/* With the right to do so, and knowing the store as it is. */
static int grow_by(struct plx_attach *a, const struct plx_attach_growth *growth,
                   struct plx_grown *ret_grown, struct plx_fault *fault)
{
    bool dry_run = growth->how.dry_run;
    struct plx_device *device;
    int error;

    if (growth->common)
        return plx_store_allow_common(a->store, fault);
    if (!growth->path)
        return plx_store_grow(a->store, &growth->how, ret_grown, fault);
    error = open_further(a, growth, &device, fault);
    if (error)
        return error;
    error = dry_run ? 0
                    : plx_registry_growth_join(a->registry, a->row.id, a->instance.row.id,
                                               device->name);
    if (error)
        plx_registry_fault(a->registry, error, fault);
    else
        error = plx_store_add_volume(a->store, device, &growth->how, ret_grown, fault);
    if (error)
        give_further_up(device, growth->path);
    else if (!ret_grown->added || dry_run)
        plx_device_close(device);
    return error;
}

/* Only commands make stores larger. */
static int begin_growth(struct plx_attach *a, struct plx_fault *fault)
{
    uint64_t since_ns = plx_patience_begin();
    struct plx_fault why;
    int error;

    do {
        error = plx_registry_growth_begin(a->registry, a->row.id, a->instance.row.id);
        if (error)
            plx_registry_fault(a->registry, error, &why);
    } while (error == PLX_ERR_BUSY && plx_attach_waits(a, since_ns, &why));
    return error ? plx_fault_set(fault, error, "%s", why.text) : 0;
}

/* The store has grown. That its registry cannot is no failure of that. */
static int grow_registry(struct plx_attach *a, struct plx_grown *grown, struct plx_fault *fault)
{
    int error = plx_spans_grow(a->registry, a->row.id, a->store, grown, fault);

    grown->registry_stays = plx_store_registry_stays(a->store);
    return error == PLX_ERR_NOT_FOUND ? 0 : error;
}

static int grow_alone(struct plx_attach *a, const struct plx_attach_growth *growth,
                      struct plx_grown *ret_grown, struct plx_fault *fault)
{
    int error = plx_attach_volumes_changed(a, fault); /* somebody may have had the right before */

    if (!error) /* us, and have left the registry behind */
        error = plx_volumes_register(a->registry, a->row.id, a->store, NULL, fault);
    if (!error)
        error = grow_by(a, growth, ret_grown, fault);
    if (!error)
        error = plx_volumes_register(a->registry, a->row.id, a->store, NULL, fault);
    note_size(a);
    if (!error && growth->path)
        plx_attach_know_further(a);
    if (!error && !growth->common)
        error = grow_registry(a, ret_grown, fault);
    return error;
}

/* One process at a time writes superblocks, whatever the registry says (GROW-5). */
static int lock_superblocks(struct plx_attach *a, struct plx_fault *fault)
{
    struct plx_bytelock *locks = plx_registry_locks(a->registry);
    uint64_t since_ns = plx_patience_begin();
    const char *name = plx_store_device(a->store, 0)->name;
    struct plx_fault why;
    int error;

    plx_fault_set(&why, PLX_ERR_BUSY,
                  "%s: another process is writing the store's superblocks; try again when it has "
                  "ended",
                  name);
    do
        error = locks->ops->set(locks, PLX_BYTE_SUPER, PLX_BYTE_EXCLUSIVE);
    while (error == PLX_ERR_BUSY && plx_attach_waits(a, since_ns, &why));
    if (error == PLX_ERR_BUSY)
        return plx_fault_set(fault, error, "%s", why.text);
    return error ? plx_fault_set(fault, error, "%s: %s", name, plx_error_text(error)) : 0;
}

static void unlock_superblocks(struct plx_attach *a)
{
    struct plx_bytelock *locks = plx_registry_locks(a->registry);

    locks->ops->set(locks, PLX_BYTE_SUPER, PLX_BYTE_UNLOCKED);
}

int plx_attach_grow(struct plx_attach *a, const struct plx_attach_growth *growth,
                    struct plx_grown *ret_grown, struct plx_fault *fault)
{
    bool behind = plx_store_behind(a->store) != NULL, locked;
    int error, ended;

    plx_attach_let_go(a, NULL); /* no disk is open while superblocks are written */
    if (growth->how.dry_run) {
        error = grow_by(a, growth, ret_grown, fault);
        ret_grown->restored = behind;
        return error;
    }
    error = begin_growth(a, fault);
    if (error)
        return error;
    error = lock_superblocks(a, fault);
    locked = !error;
    if (locked) {
        error = grow_alone(a, growth, ret_grown, fault);
        ret_grown->restored = behind; /* ATTACH-15 */
        unlock_superblocks(a);
    }
    /* Else the right goes with the instance, and what was being added is remembered. */
    if (error && locked && !plx_grow_refused(error))
        return error;
    ended = plx_registry_growth_end(a->registry, a->row.id, a->instance.row.id);
    return error ? error : ended ? plx_registry_fault(a->registry, ended, fault) : 0;
}
