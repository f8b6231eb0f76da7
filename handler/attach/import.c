/* import.c - stores found, taken and given up. See founding.h.
 *
 * IMPORT-1  A home page is written only after the superblock on that device has confirmed that it
 *     is the store's volume 0. What this host knows is a path, and the path may lead to another
 *     disk by now.
 * IMPORT-2  This host knows an identity at one place only. A copy of a store gets an identity of
 *     its own before it is entered.
 * IMPORT-3  A store is given up only whole: while a virtual disk's record names a ring of this
 *     host, no other one could use that disk. If it names another host's, this one cannot use it
 *     either, and giving the store back is how that host gets to it.
 * Threads: the caller's.
 * Crash story: the store is taken first and entered second. After a crash in between, the same call
 *   finds the store taken by this host, and enters it. What fails takes its entry away again. A
 *   copy has its identity before it is entered, so an entry means that only paths may be missing.
 */
#include "attach/founding.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attach/attach.h"
#include "attach/attach_inside.h"
#include "attach/attach_ring.h"
#include "attach/counted.h"
#include "attach/membership.h"
#include "attach/occupied.h"
#include "attach/volumes.h"
#include "registry/embedded.h"
#include "registry/host_word.h"
#include "registry/tenancy.h"

/* ---- Importing ---- */

/* The same check as when the store is opened (VOLUME-3). */
static int check_whole(const struct plx_device *device, const struct plx_superblock_info *info,
                       struct plx_fault *fault)
{
    return info->volume_bytes <= device->bytes
               ? 0
               : plx_fault_set(fault, PLX_ERR_CORRUPT,
                               "%s: truncated: %llu bytes, the superblock says %llu; restore the "
                               "missing part",
                               device->name, (unsigned long long)device->bytes,
                               (unsigned long long)info->volume_bytes);
}

/* Who adds a volume has PLX_BYTE_SUPER until the store's entry here names it, too. */
static int refuse_count(const struct plx_superblock_info *first, const char *volume, unsigned count,
                        struct plx_fault *fault)
{
    struct plx_bytelock *lock = NULL;
    bool busy = false;

    busy = volume && !plx_bytelock_open(volume, &lock, NULL) &&
           !lock->ops->probe(lock, PLX_BYTE_SUPER, &busy) && busy;
    plx_bytelock_close(lock);
    if (busy)
        return plx_fault_set(fault, PLX_ERR_BUSY, "another process is adding a volume to store %s",
                             first->store_name);
    return plx_fault_set(fault, count < first->volumes ? PLX_ERR_MISSING : PLX_ERR_INVALID,
                         "store %s has %u volume%s, of which %u %s given; name them all: 'parallax "
                         "store scan' shows those that are block devices, and 'parallax store scan "
                         "FILE...' what files are",
                         first->store_name, first->volumes, plx_plural(first->volumes), count,
                         count == 1 ? "was" : "were");
}

static int identify(const char *const *paths, unsigned count, bool mixed,
                    const struct plx_patience *patience, struct plx_known *known,
                    struct plx_fault *fault)
{
    struct plx_device_open_options options = {.read_only = true, .patience = patience};
    struct plx_device *devices[PLX_VOLUMES_MAX];
    const char *ordered[PLX_VOLUMES_MAX] = {0};
    struct plx_superblock_info first = {0};
    struct plx_uuid identity = {{0}};
    unsigned most = 0; /* that volume 0 says less: VOLUME-5 */
    int error = plx_volumes_open_paths(paths, count, &options, devices, fault);

    if (error)
        return error;
    for (unsigned i = 0; i < count && !error; i++) {
        struct plx_superblock_info info;

        error = plx_superblock_probe(devices[i], &info, fault);
        if (!error)
            error = check_whole(devices[i], &info, fault);
        if (error)
            break;
        if (i == 0) {
            first = info;
            identity = info.identity;
        }
        most = info.volumes > most ? info.volumes : most;
        if (!plx_uuid_equal(&info.store, &first.store))
            error = plx_fault_set(fault, PLX_ERR_INVALID,
                                  "%.120s is a volume of store %s, and %.120s of store %s, which "
                                  "is another one; name the volumes of one store",
                                  paths[0], first.store_name, paths[i], info.store_name);
        else if (!mixed && !plx_uuid_equal(&info.identity, &identity))
            error =
                plx_fault_set(fault, PLX_ERR_INVALID,
                              "%s is of another copy of store %s than %s; name the volumes of "
                              "one copy ('parallax store scan' shows what each is), or, when an "
                              "import with --new-identity was cut off, do that again",
                              paths[i], info.store_name, paths[0]);
        else if (info.volume_index >= count || ordered[info.volume_index])
            error = plx_fault_set(fault, count < info.volumes ? PLX_ERR_MISSING : PLX_ERR_INVALID,
                                  "%s is volume %u of store %s; name each of its %u volume%s once",
                                  paths[i], info.volume_index, info.store_name, info.volumes,
                                  plx_plural(info.volumes));
        else
            ordered[info.volume_index] = paths[i];
        if (info.volume_index == 0)
            first = info;
    }
    plx_volumes_close(devices, count);
    if (!error && first.volumes != count && most != count)
        error = refuse_count(&first, ordered[0], count, fault);
    if (!error)
        error = plx_known_add_volumes(known, ordered, count, fault);
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
    int error = plx_volumes_check_count(count, fault);

    if (!error)
        error = identify(paths, count, mixed, patience, &known, fault);
    if (error)
        plx_known_done(&known);
    else
        *ret_known = known;
    return error;
}

/* Whether that volume of `other`, if the store still has it there, is another one than that of
 * `known`. */
static bool lies_elsewhere(const struct plx_known *known, const struct plx_known *other,
                           unsigned index)
{
    struct plx_device_open_options options = {.read_only = true, .beside = true};
    struct plx_superblock_info info;
    struct plx_device *device;
    bool there = false;
    char identity[PLX_UUID_TEXT];

    if (plx_device_open(other->volume[index], &options, &device, NULL) == 0) {
        if (plx_superblock_probe(device, &info, NULL) == 0 && info.volume_index == index) {
            plx_uuid_text(&info.identity, identity);
            there = strcmp(identity, known->identity) == 0; /* else it moved away from there */
        }
        plx_device_close(device);
    }
    return there && plx_storage_compare(known->volume[index], other->volume[index]) != PLX_SAME;
}

/* The first such volume; known->volumes: there is none. */
static unsigned first_elsewhere(const struct plx_known *known, const struct plx_known *other)
{
    unsigned i = 0;

    while (i < known->volumes && i < other->volumes && !lies_elsewhere(known, other, i))
        i++;
    return i < other->volumes ? i : known->volumes;
}

/* IMPORT-2. A copy of a store that is known here, beside the original: one identity, two truths.
 * And the original is no copy: who calls it one would lose sight of it. */
static int check_copy(const struct plx_paths *paths, const struct plx_known *known, bool copy,
                      struct plx_fault *fault)
{
    struct plx_known other;
    bool elsewhere;
    unsigned which;
    int error = plx_known_get(paths, known->identity, &other, NULL);

    if (error)
        return 0;
    which = first_elsewhere(known, &other);
    elsewhere = which < known->volumes;
    if (elsewhere && !copy)
        error = plx_fault_set(
            fault, PLX_ERR_EXISTS,
            "%s and %s are the same store, which is known here as %s: one of them is a copy, and "
            "to be used beside the other it needs an identity of its own: 'parallax store import "
            "NAME --new-identity --volume PATH' with the copy's volumes; or 'parallax store forget "
            "%s' first, if only one is to be used",
            known->volume[which], other.volume[which], other.name, other.name);
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
    const char *own = copy ? NULL : known->identity;
    char text[PLX_KNOWN_PLACE_TEXT];
    struct plx_known_place place;
    struct plx_known *list;
    size_t count;
    int error = plx_known_list(paths, &list, &count, fault);

    if (error)
        return error;
    for (unsigned i = 0; i < known->volumes && !error; i++) {
        error = plx_known_at(list, count, own, known->volume[i], &place, fault);
        if (error || !place.known)
            continue;
        plx_known_name_place(&place, known->volume[i], text);
        error = plx_fault_set(fault, PLX_ERR_EXISTS,
                              "%s, which is known here, and of no other; 'parallax store forget "
                              "%s' first, if it is another one's now",
                              text, place.known->name);
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

int plx_founding_name_all(const struct plx_paths *paths, const struct plx_known *known,
                          struct plx_fault *fault)
{
    struct plx_known here;
    unsigned index = 0;
    int error;

    if (plx_known_get(paths, known->identity, &here, NULL))
        return 0;
    error = plx_counted_further(&here, known->volumes, &index, fault);
    if (!error && index)
        error = plx_fault_set(fault, PLX_ERR_CORRUPT, /* COUNTED-1 */
                              "%s is volume %u of store %s, as this host knows; name all volumes; "
                              "if %s is older than that, put the newer one back, or, to go on with "
                              "the older state, 'parallax store forget %s' first",
                              here.volume[index], index, here.name, known->volume[0], here.name);
    plx_known_done(&here);
    return error;
}

static int set_paths(struct plx_registry *registry, const struct plx_known *known, bool entered,
                     struct plx_fault *fault)
{
    struct plx_registry_volume *list = NULL;
    struct plx_registry_store row;
    size_t count = 0;
    int error = plx_registry_store_get(registry, known->uuid, &row);

    if (error == PLX_ERR_NOT_FOUND)
        return plx_attach_empty_registry(known, fault);
    if (!error && plx_counted_check(registry, row.id, known, entered, fault))
        return fault->code;
    if (!error)
        error = plx_registry_volume_list(registry, row.id, &list, &count);
    for (size_t i = 0; i < count && i < known->volumes && !error; i++)
        if (strcmp(list[i].path, known->volume[i]) != 0)
            error = plx_registry_volume_set_path(registry, row.id, (unsigned)i, known->volume[i]);
    free(list);
    return error ? plx_registry_fault(registry, error, fault) : 0;
}

/* The volumes' paths as this host knows them. entered: it knew the store before. */
static int enter_paths(const struct plx_paths *paths, const struct plx_known *known, bool entered,
                       bool takes, const struct plx_patience *patience, struct plx_fault *fault)
{
    bool damaged = false;
    struct plx_embedded_options options = {.volume = known->volume[0],
                                           .uuid = known->uuid,
                                           .who = "parallax store import",
                                           .settings = &paths->settings,
                                           .host = paths->host,
                                           .takes = takes,
                                           .damaged = &damaged,
                                           .patience = patience};
    struct plx_registry *registry;
    int error = plx_embedded_open(&options, &registry, fault);

    if (!error) {
        error = set_paths(registry, known, entered, fault);
        plx_registry_close(registry);
    }
    return damaged ? plx_attach_known_damage(known, error, fault) : error;
}

/* nobodys: also a store that nobody has. */
static int take(const struct plx_paths *paths, const struct plx_known *known, const char *which,
                const char *from, bool nobodys, bool dry_run, const struct plx_patience *patience,
                struct plx_tenancy **ret_tenancy, struct plx_fault *fault)
{
    struct plx_tenancy_options options = {.paths = paths,
                                          .volume = known->volume[0],
                                          .take = nobodys,
                                          .dry_run = dry_run,
                                          .from = from,
                                          .which = which,
                                          .alone = plx_volumes_alone,
                                          .volumes_known = known,
                                          .patience = patience};

    if (!from && plx_occupied_lost_home(paths, known->volume[0], known->uuid))
        return plx_fault_set(
            fault, PLX_ERR_CORRUPT,
            "%.150s: the home page is lost, so nobody knows which host has the store; "
            "when no other has, 'parallax store take-over %.200s --any "
            "--i-checked-it-is-off' rewrites it",
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
    return take(paths, known, volumes, from, true, dry_run, patience, ret_tenancy, fault);
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
    struct plx_store *store;
    struct plx_uuid identity;
    struct plx_env env;
    int error = plx_founding_open(known, &open, &options, &env, &store, fault);

    if (error)
        return error;
    env.random(&env, identity.b, sizeof identity.b);
    identity.b[6] = (uint8_t)(0x40 | (identity.b[6] & 0x0f));
    identity.b[8] = (uint8_t)(0x80 | (identity.b[8] & 0x3f));
    error = plx_store_set_identity(store, &identity, fault);
    plx_store_close(store);
    plx_uuid_text(&identity, known->identity);
    return error;
}

/* A copy's home page is the original's: nothing but the operator's word tells one from the other,
 * and who calls the original a copy takes it away from its host. */
static int check_is_copy(const struct plx_paths *paths, const struct plx_known *known,
                         struct plx_fault *fault)
{
    const struct plx_embedded_options look = {
        .volume = known->volume[0], .uuid = known->uuid, .beside = true};
    char called[PLX_HOST_WORD];
    struct plx_tenant tenant;
    int error = plx_embedded_tenant(&look, paths, &tenant, fault);

    if (error || tenant.ours || plx_uuid_is_zero(&tenant.host))
        return error;
    return plx_fault_set(fault, PLX_ERR_UNCONFIRMED,
                         "%s: belongs to host %s, or is a copy of a volume that does; when you "
                         "have seen that it is the copy, add --i-checked-it-is-a-copy",
                         known->volume[0], plx_host_called(tenant.host_name, &tenant.host, called));
}

/* A copy is to be told from the original by its name, too. */
static int check_copy_name(const struct plx_paths *paths, const struct plx_known *known,
                           bool is_named, struct plx_fault *fault)
{
    int error = plx_known_free_name(paths, known->name, fault);

    if (error != PLX_ERR_EXISTS || is_named)
        return error;
    return plx_fault_set(fault, error,
                         "a store named %s is known here already; give the copy another name: "
                         "'parallax store import NAME --new-identity --volume PATH'",
                         known->name);
}

/* Enters the store; an entry that is new goes again if the registry cannot be used. */
static int enter(const struct plx_paths *paths, struct plx_known *known,
                 const struct plx_founding_import *options, struct plx_fault *fault)
{
    bool is_new = plx_known_free_name(paths, known->name, NULL) == 0;
    int error = plx_founding_enter(paths, known, options->patience, fault);

    if (error || options->read_only)
        return error;
    error = enter_paths(paths, known, !is_new, options->from, options->patience, fault);
    if (error && is_new)
        plx_known_remove(paths, known->name, NULL);
    return error;
}

/* Whether this copy has an identity of its own, and is entered here by it under this name: the same
 * call was cut off behind that, or is repeated. */
static bool was_entered(const struct plx_paths *paths, const struct plx_known *known)
{
    struct plx_known here;
    bool is;

    if (strcmp(known->identity, known->uuid) == 0 ||
        plx_known_get(paths, known->identity, &here, NULL))
        return false;
    is = strcmp(here.name, known->name) == 0 && first_elsewhere(known, &here) == known->volumes;
    plx_known_done(&here);
    return is;
}

/* Of volumes that were identified. */
static int import(const struct plx_paths *paths, const struct plx_founding_import *options,
                  struct plx_known *known, struct plx_fault *fault)
{
    const struct plx_patience *patience = options->patience;
    struct plx_tenancy *tenancy = NULL;
    bool copy;
    int error;

    name_it(paths, options->name, known);
    copy = options->copy && !was_entered(paths, known);
    error = check_copy(paths, known, copy, fault);
    if (!error)
        error = refuse_volumes_of_others(paths, known, copy, fault);
    if (!error && !copy)
        error = plx_founding_name_all(paths, known, fault);
    if (!error && copy)
        error = check_copy_name(paths, known, options->name, fault);
    if (!error && copy && !options->is_copy)
        error = check_is_copy(paths, known, fault);
    if (!error)
        error = plx_known_try(paths, known, patience, fault);
    if (!error && !copy)
        error = plx_membership_check(paths, known, !options->read_only && !options->from, fault);
    if (!error && !options->read_only)
        error = take_volumes(paths, known, options->is_copy ? PLX_TENANCY_COPY : options->from,
                             options->dry_run, patience, &tenancy, fault);
    if (!error && copy)
        error = give_identity(known, patience, fault);
    if (!error && !options->dry_run)
        error = enter(paths, known, options, fault);
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

struct known_store {
    struct plx_paths paths;
    struct plx_known known;
    struct plx_tenancy *tenancy;
};

static int find(const char *state_dir, const char *store, struct known_store **ret_named,
                struct plx_fault *fault)
{
    struct known_store *named = calloc(1, sizeof *named);
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

static void named_free(struct known_store *named)
{
    plx_tenancy_end(named->tenancy);
    plx_known_done(&named->known);
    free(named);
}

int plx_founding_take_over(const char *state_dir, const char *store, const char *from, bool dry_run,
                           const struct plx_patience *patience, struct plx_fault *fault)
{
    struct known_store *named;
    int error = find(state_dir, store, &named, fault);

    if (error)
        return error;
    error = plx_membership_check(&named->paths, &named->known, false, fault); /* IMPORT-1 */
    error = plx_known_missing(&named->known, error, fault);
    if (!error)
        error = take(&named->paths, &named->known, named->known.name, from, true, dry_run, patience,
                     &named->tenancy, fault);
    if (!error && !dry_run)
        error = enter_paths(&named->paths, &named->known, true, true, patience, fault);
    named_free(named);
    return error;
}

/* What dead processes have left is recovered first: another host could not tell them from living
 * ones of this one. And the living are let through. */
int plx_founding_recover(const char *state_dir, const char *store,
                         int (*also)(struct plx_attach *attach, struct plx_fault *fault),
                         const struct plx_patience *patience, struct plx_fault *fault)
{
    struct plx_attach_options options = {
        .store = store, .state_dir = state_dir, .role = "admin", .patience = patience};
    struct plx_attach *attach;
    int error = plx_attach_open(&options, &attach, fault), closed;

    if (error)
        return error;
    error = plx_attach_alone(attach, fault);
    if (!error && also)
        error = also(attach, fault);
    closed = plx_attach_close(attach);
    return error ? error : closed;
}

/* Whether recover() would refuse: without the tenancy, and without the disks' records that only a
 * recovery brings up to date. */
static int look_whether_free(const char *state_dir, const char *store,
                             const struct plx_patience *patience, struct plx_fault *fault)
{
    struct plx_attach_options options = {.store = store,
                                         .state_dir = state_dir,
                                         .role = "admin",
                                         .read_only = true,
                                         .patience = patience};
    struct plx_attach *attach;
    struct plx_fault why;
    int error = plx_attach_open(&options, &attach, fault);

    if (error)
        return error;
    error = plx_attach_ring_refuse(attach, fault); /* IMPORT-3 */
    plx_attach_close_why(attach, &why);
    return error;
}

/* A volume that is missing or cannot be opened counts as unused on this host. */
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
    return busy ? plx_occupied_name_living(
                      known->volume[0], plx_fault_set(fault, PLX_ERR_BUSY, "%s", why.text), fault)
                : 0;
}

int plx_founding_release(const char *state_dir, const char *store, bool dry_run,
                         const struct plx_patience *patience, struct plx_fault *fault)
{
    struct known_store *named;
    int error = dry_run
                    ? look_whether_free(state_dir, store, patience, fault)
                    : plx_founding_recover(state_dir, store, plx_attach_ring_refuse, /* IMPORT-3 */
                                           patience, fault);

    if (!error)
        error = find(state_dir, store, &named, fault);
    if (error)
        return error;
    if (dry_run)
        error = wait_until_unused(&named->known, patience, fault);
    if (!error)
        error = plx_known_missing(&named->known,
                                  take(&named->paths, &named->known, named->known.name, NULL,
                                       !dry_run, dry_run, patience, &named->tenancy, fault),
                                  fault);
    if (!error && !dry_run) {
        plx_membership_let_go(&named->paths, &named->known);
        error = plx_tenancy_release(named->tenancy, fault);
    }
    named_free(named);
    return error;
}

int plx_founding_forget(const char *state_dir, const char *store,
                        const struct plx_patience *patience, struct plx_fault *fault)
{
    struct known_store *named;
    int error = find(state_dir, store, &named, fault);

    if (error)
        return error;
    error = wait_until_unused(&named->known, patience, fault);
    if (!error)
        error = plx_known_remove(&named->paths, named->known.name, fault);
    named_free(named);
    return error;
}
