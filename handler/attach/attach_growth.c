/* attach_growth.c - a store gets a further volume, or follows one that became larger (ATTACH-17).
 * Invariants, threads and crash story: attach.c. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attach/attach_inside.h"
#include "attach/numbers.h"
#include "attach/occupied.h"
#include "attach/volumes.h"
#include "registry/embedded.h"
#include "registry/spans.h"

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

/* Of a volume that names this store and is none of its volumes. What an interrupted call left is
 * gone on with: the registry has its path (GROWTH-2). Any other one comes from another state of the
 * store, and may be all that is left of it. One in use that would be the next the engine refuses
 * (GROW-11). */
static int refuse_own(struct plx_attach *a, struct plx_device *device,
                      const struct plx_superblock_info *info, struct plx_fault *fault)
{
    struct plx_store_info store;
    char path[PLX_PATH_MAX];
    bool used = false;

    plx_store_get_info(a->store, &store);
    if (is_member(a, device->name))
        return 0;
    if (info->volume_index == store.volumes) {
        int error = plx_superblock_was_used(device, &used, fault);

        if (error || used)
            return error;
        if (plx_registry_growth_path(a->registry, a->row.id, path) == 0 &&
            strcmp(path, device->name) == 0)
            return 0;
    }
    return plx_fault_set(fault, PLX_ERR_EXISTS,
                         "%.200s says that it is volume %u of store %s itself, which has %u "
                         "volume%s and not this one: one of the two is an older state. If the "
                         "store is, put its newer volumes back; --force overwrites all that this "
                         "volume holds",
                         device->name, info->volume_index, a->known.name, store.volumes,
                         plx_plural(store.volumes));
}

/* That it is no volume of another store that is known here, or that a host may have. A copy of this
 * store that was given an identity of its own is another one. */
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
    if (!error && own && !growth->how.force)
        error = refuse_own(a, device, &info, fault);
    if (error || own)
        return error;
    error = plx_occupied_refuse(&a->paths, &device, 1, growth->unused, a->options.patience, fault);
    return error || growth->how.force ? error : plx_occupied_refuse_data(&a->paths, device, fault);
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
                                              .waits = !a->options.brief,
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

/* With the right to do so, and knowing the store as it is. */
static int grow_by(struct plx_attach *a, const struct plx_attach_growth *growth,
                   struct plx_grown *ret_grown, struct plx_fault *fault)
{
    bool dry_run = growth->how.dry_run;
    struct plx_grow how = growth->how;
    struct plx_device *device;
    int error;

    if (growth->allow)
        return growth->allow(a->store, fault);
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
    else if (!dry_run)
        error = plx_numbers_joining(a, &how.number, fault);
    if (!error)
        error = plx_store_add_volume(a->store, device, &how, ret_grown, fault);
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
    plx_attach_note_size(a);
    if (!error)
        error = plx_numbers_joined(a, fault);
    if (!error && growth->path)
        plx_attach_know_further(a);
    if (!error && !growth->allow)
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

/* ATTACH-15. What is written again is a superblock alone. Where an extent of that volume is older
 * than its last owner left it, more than the superblock went back. */
static int refuse_older(struct plx_attach *a, const char *behind, struct plx_fault *fault)
{
    struct plx_registry_extent *list;
    struct plx_extent_info extent;
    struct plx_fault why;
    size_t count;
    int error = plx_registry_extent_list(a->registry, a->row.id, PLX_REGISTRY_ANY, &list, &count);

    if (error)
        return plx_registry_fault(a->registry, error, fault);
    for (size_t i = 0; i < count && !error; i++) {
        const struct plx_registry_extent *row = &list[i];

        if (row->owner || !row->states || row->states == PLX_STATES_NEVER ||
            strcmp(plx_volumes_name_of(a->store, row->no), behind) != 0 ||
            plx_store_extent_read(a->store, row->no, &extent, &why) || extent.states >= row->states)
            continue;
        error = plx_fault_set(fault, PLX_ERR_CORRUPT,
                              "%.160s went back to an older state, for extent %llu there is older "
                              "than what was written last; put the newer one back; only if there "
                              "is none, 'parallax store rebuild-registry' takes over what the "
                              "store says",
                              behind, (unsigned long long)row->no);
    }
    free(list);
    return error;
}

int plx_attach_grow(struct plx_attach *a, const struct plx_attach_growth *growth,
                    struct plx_grown *ret_grown, struct plx_fault *fault)
{
    const char *behind = plx_store_behind(a->store);
    int error = behind ? refuse_older(a, behind, fault) : 0, ended;
    bool locked;

    if (error)
        return error;
    plx_attach_let_go(a, NULL); /* no disk is open while superblocks are written */
    if (growth->how.dry_run) {
        error = grow_by(a, growth, ret_grown, fault);
        ret_grown->restored = behind != NULL;
        return error;
    }
    error = begin_growth(a, fault);
    if (error)
        return error;
    error = lock_superblocks(a, fault);
    locked = !error;
    if (locked) {
        error = grow_alone(a, growth, ret_grown, fault);
        ret_grown->restored = behind != NULL; /* ATTACH-15 */
        unlock_superblocks(a);
    }
    /* Else the right goes with the instance, and what was being added is remembered. */
    if (error && locked && !plx_grow_refused(error))
        return error;
    ended = plx_registry_growth_end(a->registry, a->row.id, a->instance.row.id);
    return error ? error : ended ? plx_registry_fault(a->registry, ended, fault) : 0;
}
