/* attach_volumes.c - the volumes of an attached store: opened, and looked at again when the store
 * has grown (ATTACH-7, ATTACH-15). Invariants, threads and crash story: attach.c. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attach/attach_inside.h"
#include "attach/doors.h"
#include "attach/numbers.h"
#include "attach/occupied.h"
#include "attach/volumes.h"
#include "registry/embedded.h"
#include "registry/spans.h"

#define RESERVE_MAX 8u /* unused extents that data leaves to metadata */

/* ---- How large the store is ---- */

/* Which extents this process can use, and how many of them it leaves to metadata. On the loop. */
void plx_attach_note_size(struct plx_attach *a)
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

uint64_t plx_attach_reserve_extents(struct plx_attach *a)
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
    struct plx_device_open_options options = {.read_only = a->options.read_only,
                                              .waits = !a->options.brief};

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
    if (a->options.devices_changed)
        a->options.devices_changed(a->options.context);
    plx_attach_note_size(a);
    return a->options.read_only ? 0 : plx_volumes_share_open(a->store, fault);
}

/* ---- Volumes ---- */

/* ATTACH-15 */
static int check_behind(struct plx_attach *a, struct plx_fault *fault)
{
    const char *volume = plx_store_behind(a->store);

    if (a->options.read_only)
        return 0;
    if (plx_store_ahead(a->store))
        return plx_volumes_tell_ahead(a->store, fault);
    if (!volume || a->options.grows)
        return 0;
    return plx_fault_set(fault, PLX_ERR_CORRUPT,
                         "%.160s: its superblock is older than the registry of store %s: the "
                         "device lost a write that it had acknowledged, or the volume went back "
                         "to an older state; if there is a newer one, put it back first; nothing "
                         "is written to the store until 'parallax store grow %s' has written it "
                         "again",
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

/* The store by the volumes that are known now, *ret_count of them. */
static int open_listed(struct plx_attach *a, unsigned *ret_count, struct plx_store **ret_store,
                       struct plx_fault *fault)
{
    struct plx_device_open_options device_options = {.read_only = a->options.read_only,
                                                     .waits = !a->options.brief,
                                                     .patience = a->options.patience};
    struct plx_store_options options = {
        .instance = a->instance.row.id,
        .cache_bytes = a->options.cache_bytes,
    };
    struct plx_device *devices[PLX_VOLUMES_MAX] = {0};
    struct plx_extent_range *known;
    int error = plx_volumes_ranges(a->registry, a->row.id, &known, &options.known_count, fault);

    if (error)
        return error;
    options.known = known;
    plx_uuid_parse(a->paths.host, &options.host);
    error = plx_volumes_open(a->registry, a->row.id, &a->known, &device_options, devices, ret_count,
                             fault);
    if (!error) {
        error = open_known(a, devices, *ret_count, &options, ret_store, fault);
        if (error)
            plx_volumes_close(devices, *ret_count);
    }
    free(known);
    return error;
}

/* DOORS-4: an extent that the registry hears of only now was never given out. If one was used all
 * the same, the registry has lost what it knew of it: the volume 0 with the registry went back. But
 * another process may enter it meanwhile, and only then use it: so the registry is asked again. */
static int doubt_used(struct plx_attach *a, struct plx_fault *fault)
{
    struct plx_extent_info extent;
    struct plx_store_info info;
    struct plx_fault why;
    uint64_t known, now;
    int error = plx_volumes_registered(a->registry, a->row.id, &known, fault);

    plx_store_get_info(a->store, &info);
    for (uint64_t no = known; !error && no < info.extents; no++) {
        if (plx_store_extent_read(a->store, no, &extent, &why) || extent.type == PLX_EXTENT_UNUSED)
            continue;
        error = plx_volumes_registered(a->registry, a->row.id, &now, fault);
        if (error || no < now)
            continue;
        plx_door_refuse_newer_extent(a->store, no, &why);
        error = plx_registry_doubt(a->registry, a->row.id, why.text);
        return error ? plx_registry_fault(a->registry, error, fault) : 0;
    }
    return error;
}

/* VOLUMES-5. read: opens or takes over what the registry lists, *ret_count volumes. */
static int read_volumes(struct plx_attach *a,
                        int (*read)(struct plx_attach *a, unsigned *ret_count,
                                    struct plx_store **ret_store, struct plx_fault *fault),
                        struct plx_store **ret_store, struct plx_fault *fault)
{
    unsigned count = 0;
    unsigned before;
    int error;

    do {
        before = count;
        error = read(a, &count, ret_store, fault);
    } while (error == PLX_ERR_INVALID && count > before);
    return error;
}

/* Locks on one volume prove nothing about another one, even if that is its copy. */
int plx_attach_open_store(struct plx_attach *a, struct plx_fault *fault)
{
    struct plx_store_info info;
    struct plx_store *store;
    char text[PLX_UUID_TEXT];
    int error = read_volumes(a, open_listed, &store, fault);

    if (error)
        return error;
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
    plx_attach_note_size(a);
    error = check_behind(a, fault);
    if (!error)
        error = plx_numbers_opened(a, &a->went_back);
    if (error == PLX_ERR_CORRUPT && a->options.checks) /* that is a finding */
        error = 0;
    else if (error && a->went_back.code)
        plx_fault_set(fault, error, "%s", a->went_back.text);
    if (error || a->options.read_only) /* ATTACH-7 */
        return error;
    error = doubt_used(a, fault);
    if (!error)
        error = plx_numbers_open(a, fault);
    return error ? error : plx_volumes_register(a->registry, a->row.id, store, NULL, fault);
}

/* ---- A store that grows ---- */

static int take_listed(struct plx_attach *a, unsigned *ret_count, struct plx_store **ret_store,
                       struct plx_fault *fault)
{
    struct plx_device *devices[PLX_VOLUMES_MAX] = {0};
    int error = plx_attach_open_volumes(a, a->registry, devices, ret_count, fault);

    if (error)
        return error;
    plx_attach_lock(a);
    error = plx_attach_take_volumes(a, devices, *ret_count, fault);
    plx_attach_unlock(a);
    return error;
}

int plx_attach_volumes_changed(struct plx_attach *a, struct plx_fault *fault)
{
    return read_volumes(a, take_listed, NULL, fault);
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
