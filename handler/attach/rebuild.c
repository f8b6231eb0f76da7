/* rebuild.c - see rebuild.h.
 *
 * REBUILD-1  The volumes are open exclusively from before they are read until the new registry has
 *     replaced the old one. So no instance lives whose rows could change, and none begins.
 * REBUILD-2  The new registry is made and checked in a file of its own, and replaces the old one in
 *     one transaction. An old registry that is too damaged to open is first made blank, and every
 *     opening refuses a blank one (FOUNDING-2) until the replacement is durable. An old registry
 *     that only cannot be read or written just now is not damaged: it stays, and the call fails.
 * REBUILD-3  What cannot be read affects nothing but itself:
 *         a disk's record, a disk's labels   entered as lost (lost.h)
 *         an extent's header                 the extent is sealed and has no owner
 * REBUILD-4  An instance that the store names gets a row without a boot. No process of this boot
 *     can be such an instance (REBUILD-1). So each counts as dead, and the next opening recovers
 *     what it had.
 * REBUILD-5  What only the registry knew is copied from the old registry as far as it can be read:
 *     what an operator set, and what was known of the clocks. If a part of it is damaged, that part
 *     counts as not read, and the operator is told of it. Nothing is left out without a word.
 * REBUILD-6  The header of an extent is not believed if it has fewer states than the old registry
 *     knows, or if the old registry refused to believe it already. Such an extent is sealed for
 *     good: nothing is allocated or swept in it, and its blocks stay readable. Even a very old
 *     registry is a safe witness here: it can know too few states, and never too many.
 * REBUILD-7  The store's word alone does not end a disk:
 *         alive in the old registry,   lost, as if its record could not be read (REBUILD-3), until
 *         record gone                  the operator gives it up
 *         record is older than the     refused (doors.h) until the operator accepts that state. The
 *         old registry remembers       disk keeps the labels and the epoch of the old registry,
 *                                      because numbers of the lost state must not come again.
 *     An outdated registry may take a deleted disk for a live one. That costs the operator one
 *     question.
 * REBUILD-8  The old registry may know ranges of extents that the superblocks do not. They belong
 *     to the store all the same (ATTACH-15). So the rebuild finds what lies there, and "store grow"
 *     writes the superblocks. Ranges that cannot be true are left out: the volumes have no room for
 *     them, or the volumes are not of this store.
 * REBUILD-9  No bitmap is believed that the disks contradict. A header and the old registry may
 *     both be from before some blocks were handed out, and then REBUILD-6 sees no difference. So
 *     the checker reads every block that every disk leads to, log included. An extent whose bitmap
 *     calls such a block free is sealed as in REBUILD-6.
 *         a disk that is                      its blocks
 *         refused by REBUILD-7                do not count: they may be another disk's by now, and
 *                                             accepting the disk looks again (FORGET-4)
 *         refused by REBUILD-14               count, the older disk's, too: in row 3 nobody knows
 *                                             which of the two is as it should be
 *         damaged, and no longer leads        are not protected by this
 *           to them
 * REBUILD-10  A name that the registry would not take keeps nobody from any disk. A record whose
 *     name no disk may have is entered with a name that is made of its UUID. If several live disks
 *     have one name, all but one are entered with names that are made of their slots. The records
 *     keep what they have.
 * REBUILD-11  Extents of further volumes may be newer than the old registry knows, while nothing on
 *     volume 0 is. Then all of volume 0 went back to an older state, and not only the registry
 *     there. A disk may lead to blocks that were freed since and are another disk's by now. Where
 *     such a block has no checksum, nothing else shows that. So the rebuild says so, every time
 *     that it can tell. Disks that were made since have lost their records, and what is left of
 *     them lies on the further volumes. So one lost record is entered for all of them (lost.h):
 *     nothing of them is collected before the operator gives them up.
 * REBUILD-12  The volumes' numbers may say that a volume went back (NUMBERS-1). Then nothing
 *     changes without the operator's word that there is no newer one. That is asked before the
 *     store is taken, and again once nobody else can change it. With that word the rebuild says so
 *     and takes the volume as it is. It also names the disks that have blocks without a checksum:
 *     these blocks may be older ones, or another disk's by now. When the new registry is in, all
 *     volumes get a new number (NUMBERS-6).
 * REBUILD-13  A disk may be gone from the store, or its record unreadable, while clones descend
 *     from it. Then its row is kept as that of a deleted disk: it leads from a clone to the
 *     snapshots that the clone needs (HOLDS-5). Without the row, these would be let go. If neither
 *     the store nor the old registry has the row, no snapshot of any other disk goes by itself
 *     while the clone lives; a whole disk may still be deleted (HOLDS-9). Each rebuild names the
 *     clone.
 * REBUILD-14  A block that only one disk can have, and two disks have, is *disputed*. (Inherited
 *     and common blocks may have several users: VERIFY-3, VERIFY-11.) No two disks come out of a
 *     rebuild with a disputed block. The older of them believes that the block is its own, and
 *     would overwrite or free what the newer one has there. The checker finds disputed blocks,
 *     whatever the old registry knows. A block *speaks against* a disk if its contents are proven
 *     not to be what that disk wrote there: mostly, because they do not match its checksum
 *     (VERIFY-10). A block *proves A older than B* if it speaks against A, and its contents are
 *     proven to be what B wrote. One of the two disks went back to an older state, and is refused
 *     as in REBUILD-7:
 *
 *       row  what is known                                                refused
 *        1   a disputed block of A and B proves A older than B; no        A
 *              disputed block of B, with A or with any other disk,
 *              speaks against B
 *        2   no disputed block of A and B proves either one older. A is   A: its record is from
 *              the origin that B descends from, and has neither the       before that snapshot,
 *              snapshot that B descends from nor a later one. B only      which stays as long as
 *              reads the disputed blocks of A and B. The contents of      the clone lives
 *              one of them match B's checksum. No disputed block of B,
 *              with A or with any other disk, speaks against B
 *        3   anything else                                                both: the older one
 *                                                                         would overwrite the newer
 *
 *     Why row 2 does not go by the missing snapshot alone: its loss may have been accepted once,
 *     and then B may have gone back, to blocks that A has got since. So B must do no more than read
 *     the disputed blocks, as it does with all that it got with the snapshot, and the contents of
 *     one of them must match B's checksum. That nothing speaks against B would not be enough: what
 *     was overwritten in place has no checksum. Row 2 does not apply if A's record names a ring, or
 *     if A's log cannot be read: A may have that snapshot there. Row 1 is tried for all pairs, then
 *     rows 2 and 3 for the others. A pair is left out if both disks are refused by then, or if one
 *     is and no block of the pair proves either one older. Then the checker reads the store again
 *     without the refused disks, until it finds no disputed block. attach/README.md has an example
 *     of each row.
 * REBUILD-15  What was known of the clocks may be gone or old. The old registry is old in this
 *     sense if it is in doubt, if something on the store is newer than it knows, or if what would
 *     tell cannot be read. Then nobody knows which snapshots were taken in doubt, and the new
 *     registry does not believe their times:
 *
 *       the old registry                        snapshots whose times are not believed
 *       cannot be read, or is not there, or     all of the disk: one stretch (WITNESS-5)
 *         has no witness of the disk
 *       has a witness, and is old               those behind the newest that the witness had seen:
 *                                               one stretch, beside the witness's own. A doubt that
 *                                               it knows goes on
 *       has a witness, and is not old           as the witness says
 *
 *     The rebuild counts as a look at the clocks. If this look finds no doubt, the one stretch that
 *     the table speaks of ends with the newest snapshot. But it goes on until the next look if the
 *     disk waits for recovery, may have records on a ring, or has a log that cannot be read. So
 *     none of these snapshots goes by time before the policy's window has passed since the rebuild.
 *     Whether the clock itself is in doubt, only the newest snapshot can tell then (WITNESS-7).
 * REBUILD-16  A disk whose trees or log cannot all be read is named. It stays as it is: what can be
 *     read of it can be saved. It may also have gone back.
 * REBUILD-17  A disk keeps the name that the old registry has (ATTACH-19). The record's name counts
 *     instead if the old registry is in doubt, or if the record's epoch is higher than any that the
 *     old registry gave to this disk: the disk may have been renamed since. A disk whose record
 *     went back keeps the old registry's name in any case, because the operator was told that the
 *     renaming had worked.
 * REBUILD-18  A store that belongs to a cluster is rebuilt only by the operator's word that the
 *     cluster will not have its registry any more. The database in the store is from before the
 *     store joined, and is not read. When the new one is in, the superblock names no cluster any
 *     more; until then, the new one counts for nothing (CLUSTERED-1).
 * Threads: the caller's.
 * Crash story: a crash leaves the old registry or a blank one (REBUILD-2), and the file. The next
 *   call begins again, and removes it (rebuild_file.c). A blank one knows nothing of the clocks, so
 *   the next call takes all snapshots for undated (REBUILD-15). The stretches come with the new
 *   registry as a whole, and no other process sees one without them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attach/doors.h"
#include "attach/founding.h"
#include "attach/numbers.h"
#include "attach/occupied.h"
#include "attach/rebuild_inside.h"
#include "attach/volumes.h"
#include "registry/labels.h"
#include "registry/policy.h"
#include "registry/region.h"
#include "registry/tenancy.h"

/* ---- Making the new registry ---- */

static int enter_store(struct rebuild *r)
{
    struct plx_registry_volume *volumes = calloc(r->info.volumes, sizeof *volumes);
    struct plx_registry_store row, created;
    struct plx_extent_range first;
    int error;

    if (!volumes)
        return plx_rebuilding_no_memory(r);
    plx_founding_rows(&r->info, &r->known, &row, volumes);
    plx_store_range(r->store, 0, &first);
    volumes[0].extents = first.extents; /* the others follow by their numbers */
    error = plx_rebuilding_registry_fault(
        r, r->file, plx_registry_store_create(r->file, &row, volumes, 1, &created));
    free(volumes);
    if (error)
        return error;
    r->row = created.id;
    return plx_volumes_register(r->file, r->row, r->store, (const char *const *)r->known.volume,
                                r->fault);
}

/* REBUILD-3 */
static int import_labels(struct rebuild *r, const struct plx_registry_vdi *row)
{
    struct plx_labels labels;
    struct plx_fault why;
    int error = plx_labels_read(r->store, row->slot, 0, &labels, &why);

    if (!error)
        error = plx_labels_times(r->store, row->slot, &labels, &why);
    if (error == PLX_ERR_CORRUPT) {
        r->rebuilt.lost_labels++;
        plx_rebuilding_tell_lost(r, "labels of %s: %s; none of its snapshots goes", row->name,
                                 why.text);
        error = plx_rebuilding_add_lost(r, row->slot, row->id, why.text);
    } else if (error) {
        plx_fault_set(r->fault, error, "%s", why.text);
    } else if (labels.count) {
        error = plx_rebuilding_registry_fault(
            r, r->file, plx_registry_import_labels(r->file, row->id, labels.list, labels.count));
    }
    plx_labels_done(&labels);
    return error;
}

static int import_vdi(struct rebuild *r, const struct plx_registry_vdi *row)
{
    struct plx_vdi_info info;
    int error = row->deleted ? 0 : plx_vdi_read_info(r->store, row->slot, &info, r->fault);

    if (error || row->deleted)
        return error;
    error = plx_rebuilding_registry_fault(r, r->file,
                                          plx_policy_keep(r->file, row->id, &info.protection));
    if (!error)
        error = import_labels(r, row);
    if (!error && plx_door_is_back(row, &info))
        error = plx_rebuilding_keep_labels(r, row->id);
    return error;
}

static int import_found(struct rebuild *r)
{
    int error = plx_registry_import_instances(r->file, r->instances, r->instance_count);

    if (!error)
        error = plx_registry_import_extents(r->file, r->row, r->extents, r->extent_count);
    if (!error)
        error = plx_registry_import_vdis(r->file, r->vdis, r->vdi_count);
    error = plx_rebuilding_registry_fault(r, r->file, error);
    for (size_t i = 0; i < r->vdi_count && !error; i++)
        error = import_vdi(r, &r->vdis[i]);
    return error;
}

/* REBUILD-18 */
static int ask_cluster(struct rebuild *r)
{
    const struct plx_device_open_options open = {.read_only = true, .beside = true};
    struct plx_superblock_info super;
    struct plx_device *device;
    char cluster[PLX_UUID_TEXT];

    if (plx_device_open(r->known.volume[0], &open, &device, NULL))
        return 0; /* opening the store says why */
    r->clustered =
        !plx_superblock_probe(device, &super, NULL) && !plx_uuid_is_zero(&super.cluster.id);
    plx_device_close(device);
    if (!r->clustered || r->options->registry_lost || r->options->dry_run)
        return 0;
    plx_uuid_text(&super.cluster.id, cluster);
    return plx_fault_set(r->fault, PLX_ERR_UNCONFIRMED,
                         "store %s belongs to cluster %s, whose nodes have its registry: 'parallax "
                         "cluster leave %s' brings that back; if the nodes have lost it for good, "
                         "add --registry-lost",
                         r->known.name, cluster, r->known.name);
}

/* REBUILD-18. By a store object of its own, for r->store is one that only reads. */
static int end_membership(struct rebuild *r)
{
    const struct plx_device_open_options open = {.beside = true, .patience = r->options->patience};
    const struct plx_store_options options = {.instance = 1};
    const struct plx_cluster none = {.line = 0};
    struct plx_store *store;
    struct plx_env env;
    int error;

    if (!r->clustered)
        return 0;
    error = plx_founding_open(&r->known, &open, &options, &env, &store, r->fault);
    if (error)
        return error;
    error = plx_store_set_cluster(store, &none, r->fault);
    plx_store_close(store);
    return error;
}

/* ---- Making the file ---- */

/* REBUILD-12 */
static int refuse_older(struct rebuild *r, unsigned volume)
{
    if (r->options->dry_run || r->options->no_newer)
        return 0;
    return plx_fault_set(r->fault, PLX_ERR_UNCONFIRMED,
                         "%.160s went back to an older state, and nothing was changed: put the "
                         "newer one back, for after the rebuild it is too late; when you have seen "
                         "that there is none, add --i-checked-there-is-no-newer-one",
                         r->known.volume[volume]);
}

/* REBUILD-12 */
static int ask_numbers(struct rebuild *r)
{
    unsigned volume;
    int error;

    if (!plx_numbers_went_back(r->store, &volume))
        return 0;
    error = refuse_older(r, volume);
    if (error)
        return error;
    r->rebuilt.first_back = volume == 0;
    r->rebuilt.further_back = volume != 0;
    if (volume)
        plx_rebuilding_tell_lost(
            r,
            "%.160s went back to an older state: what was written there since is lost, and where "
            "disks have no checksums, older blocks are read without an error",
            r->known.volume[volume]);
    return 0;
}

/* REBUILD-2. The file has the store and its volumes when the store is scanned, for what is lost. */
static int make_file(struct rebuild *r)
{
    int error;

    error = plx_rebuilding_place_file(r);
    if (error)
        return error;
    error = plx_registry_open(r->path, "parallax store rebuild-registry", &r->file, r->fault);
    if (!error)
        error = enter_store(r);
    if (!error)
        error = plx_rebuilding_scan_extents(r);
    if (!error)
        error = ask_numbers(r);
    if (!error)
        error = plx_rebuilding_scan_vdis(r);
    if (!error)
        error = import_found(r);
    if (!error && r->knows)
        error = plx_rebuilding_keep_old(r);
    if (!error)
        error = plx_rebuilding_tell_newer(r);
    if (!error)
        error = plx_rebuilding_keep_clocks(r);
    if (!error)
        error = plx_rebuilding_ask_disks(r);
    if (!error)
        error = plx_rebuilding_tell_strays(r);
    if (!error)
        error = plx_rebuilding_registry_fault(r, r->file, plx_registry_check(r->file));
    return error;
}

/* ---- Putting it in ---- */

/* REBUILD-2 */
static int put_file(struct rebuild *r)
{
    const struct plx_embedded_options options = plx_rebuilding_embedded(r);
    int error = r->old ? 0 : plx_embedded_create(&options, &r->old, r->fault);

    plx_registry_close(r->file); /* whole, and nobody else's */
    r->file = NULL;
    return error ? error : plx_registry_put(r->old, r->path, r->fault);
}

/* ---- The whole ---- */

/* REBUILD-8. Volumes that were not named, and are there. */
static int find_unnamed(struct rebuild *r)
{
    const struct plx_device_open_options open = {.read_only = true};
    struct plx_registry_volume *list = NULL;
    struct plx_superblock_info info;
    struct plx_device *device;
    char uuid[PLX_UUID_TEXT];
    size_t count = 0;
    int error = plx_rebuilding_read_old(
        r, plx_registry_volume_list(r->old, r->old_row, &list, &count), "the volumes");

    for (size_t i = r->known.volumes; i < count && !error; i++) {
        if (plx_device_open(list[i].path, &open, &device, NULL))
            continue;
        if (plx_superblock_probe(device, &info, NULL) == 0 && info.volume_index == i) {
            plx_uuid_text(&info.store, uuid);
            if (strcmp(uuid, r->known.uuid) == 0)
                error = plx_fault_set(r->fault, PLX_ERR_INVALID,
                                      "%s is volume %zu of store %s, as its registry knows; name "
                                      "all volumes",
                                      list[i].path, i, r->known.name);
        }
        plx_device_close(device);
    }
    free(list);
    return error == PLX_ERR_NOT_FOUND ? 0 : error;
}

/* COUNTED-1, of a volume that volume 0 does not count: the engine takes it for one that was being
 * added if nothing lies there. */
static int name_ahead(struct rebuild *r, struct plx_device **devices, int error)
{
    struct plx_uuid store;

    plx_uuid_parse(r->known.uuid, &store);
    for (unsigned i = 1; i < r->known.volumes && error == PLX_ERR_INVALID; i++)
        if (plx_numbers_is_ahead(devices[0], devices[i], &store))
            error = plx_fault_set(r->fault, PLX_ERR_CORRUPT,
                                  "%.160s is in use as volume %u of store %s, and %.160s is older, "
                                  "so that one went back to an older state; put the newer one back",
                                  devices[i]->name, i, r->known.name, devices[0]->name);
    return error;
}

/* REBUILD-8. As far as what is known can be true. */
static int open_known(struct rebuild *r, struct plx_device **devices)
{
    struct plx_extent_range *list = NULL;
    struct plx_store_options options = {0};
    unsigned count = 0;
    int error = r->knows ? find_unnamed(r) : 0;

    if (!error)
        error = plx_founding_name_all(&r->paths, &r->known, r->fault);
    if (error)
        return error;
    if (r->knows)
        error = plx_volumes_ranges(r->old, r->old_row, &list, &count, r->fault);
    if (error && r->damaged)
        error = plx_rebuilding_read_old(r, error, "ranges of extents");
    if (error == PLX_ERR_CORRUPT || error == PLX_ERR_NOT_FOUND) /* they cannot be */
        error = 0;
    options.known = list;
    while (options.known_count < count && list[options.known_count].volume < r->known.volumes)
        options.known_count++;
    while (!error) {
        error = plx_store_open(devices, r->known.volumes, &options, &r->env, &r->store, r->fault);
        if (!error || !options.known_count)
            break;
        options.known_count = 0;
        error = 0;
    }
    free(list);
    return name_ahead(r, devices, error);
}

static int open_store(struct rebuild *r)
{
    struct plx_device_open_options open = {
        .exclusive = true, .read_only = r->options->dry_run, .patience = r->options->patience};
    struct plx_device *devices[PLX_VOLUMES_MAX];
    int error = plx_volumes_open_paths((const char *const *)r->known.volume, r->known.volumes,
                                       &open, devices, r->fault);

    if (error)
        return plx_occupied_name_living(r->known.volume[0], error, r->fault);
    error = plx_rebuilding_open_old(r);
    if (!error)
        error = open_known(r, devices);
    if (error)
        plx_volumes_close(devices, r->known.volumes);
    else
        plx_store_get_info(r->store, &r->info);
    return error;
}

/* REBUILD-12, of what can be read beside others. What cannot is met when the store is opened, and
 * so is a volume that volume 0 does not count. */
static int look_at_numbers(struct rebuild *r)
{
    const struct plx_device_open_options open = {.read_only = true, .beside = true};
    struct plx_device *devices[PLX_VOLUMES_MAX];
    struct plx_superblock_info info;
    struct plx_uuid store;
    unsigned volume;
    int error = 0;

    if (plx_volumes_open_paths((const char *const *)r->known.volume, r->known.volumes, &open,
                               devices, NULL))
        return 0;
    if (plx_uuid_parse(r->known.uuid, &store) && !plx_superblock_probe(devices[0], &info, NULL) &&
        info.volumes == r->known.volumes &&
        plx_numbers_look(devices, r->known.volumes, &store, r->known.name, r->known.name, &volume,
                         NULL))
        error = refuse_older(r, volume);
    plx_volumes_close(devices, r->known.volumes);
    return error;
}

static int run(struct rebuild *r)
{
    struct plx_tenancy *tenancy = NULL;
    const struct plx_patience *patience = r->options->patience;
    bool writes = !r->options->dry_run;
    int error = writes ? plx_known_try(&r->paths, &r->known, patience, r->fault) : 0;

    if (!error)
        error = ask_cluster(r);
    if (!error)
        error = look_at_numbers(r);
    if (!error && writes)
        error = plx_founding_take(&r->paths, &r->known, NULL, patience, &tenancy, r->fault);
    if (!error)
        error = open_store(r);
    if (!error)
        error = make_file(r);
    if (!error && writes)
        error = put_file(r);
    if (!error && writes)
        error = end_membership(r);
    if (!error && writes)
        error = plx_numbers_renew(r->store, tenancy, r->fault);
    if (!error && writes)
        error = plx_founding_enter(&r->paths, &r->known, patience, r->fault);
    plx_registry_close(r->file);
    plx_registry_close(r->old);
    plx_rebuilding_remove_file(r);
    if (r->store)
        plx_store_close(r->store);
    plx_tenancy_end(tenancy);
    return error;
}

int plx_rebuild(const struct plx_rebuild_options *options, struct plx_known *ret_known,
                struct plx_rebuilt *ret_rebuilt, struct plx_fault *fault)
{
    struct rebuild *r = calloc(1, sizeof *r);
    int error;

    if (!r)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    r->options = options;
    r->fault = fault;
    plx_attach_init_env(&r->env);
    error = plx_paths_init(&r->paths, options->state_dir, fault);
    if (!error)
        error = plx_founding_identify(&r->paths, options->volumes, options->count,
                                      options->patience, &r->known, fault);
    if (!error)
        error = run(r);
    if (error) {
        plx_known_done(&r->known);
    } else {
        *ret_known = r->known;
        *ret_rebuilt = r->rebuilt;
    }
    free(r->extents);
    free(r->unbelieved);
    free(r->vdis);
    free(r->old_vdis);
    free(r->instances);
    free(r);
    return error;
}
