/* doors.c - see doors.h.
 *
 * DOORS-1  `written` in the registry is the state of the record when the last holder closed the
 *     disk: its epoch, and its number of states. So a record is never older than `written`. The
 *     epoch decides first, then the number of states. Whether a record may be newer depends on the
 *     lock:
 *         nobody has had the lock since     not newer. The row's epoch still equals the epoch of
 *                                           `written`, since every lock raises it.
 *         the lock was just taken over      newer only by what the dead holder wrote. Every earlier
 *           from a dead holder              epoch is lower than the row's, and only the new holder
 *                                           writes with the row's. So a record of a higher epoch,
 *                                           or of this epoch with another owner, is a stranger's.
 *         somebody has the lock             newer, since the holder writes the record.
 *     Sometimes `written` says little: it is 0, or of an epoch before the row's, because a later
 *     holder of the lock did not write the record. Then only the epochs tell whether the record is
 *     newer. It is newer if nobody has the lock and the record has a higher epoch than the row,
 *     because each epoch comes from the row. What is done with a record that is older, newer or a
 *     stranger's, DOORS-2 says.
 * DOORS-2  What disagrees decides what is refused:
 *         an older record                 this disk, until the operator accepts that state; the
 *                                         device lost a write
 *         another disk, deleted           this disk; the device lost the write of its record
 *         a newer record                  every opening for writing: the registry lost a write, so
 *                                         all it says is in doubt (plx_registry_doubt)
 *         another disk, alive             likewise. Either that disk had the slot before, and the
 *                                         device lost writes; or it has the slot now, and the
 *                                         registry lost one
 * DOORS-3  A slot without the disk's record is no fault while the disk is being created: its
 *     creator still has the lock, or died with it, and the disk was never closed. Then the slot is
 *     empty, or holds a disk that was deleted before, or a damaged record that made the creation
 *     fail. In any other case the record counts as lost, never as absent. Otherwise a collection
 *     would free everything that the disk uses.
 * DOORS-4  An extent gets its owner in the registry first, and loses it there last. So if nobody
 *     owns an extent in the registry, and its header has more states than the registry was told,
 *     the registry lost a write. The same holds for an extent that was used before the registry
 *     heard of it at all, from the superblock of a volume that grew. The header is right, and stays
 *     believed. If the extent lies on a further volume, all of volume 0, with the registry in it,
 *     may have gone back. Then the first advice is to put the newer volume 0 back. Of an extent
 *     that is in use the registry may not know how many states there were (0). That proves nothing.
 * Threads: the caller's.
 * Crash story: reads only.
 */
#include "attach/doors.h"

#include <stdio.h>
#include <string.h>

#include "attach/volumes.h"

static int refuse_other(const struct plx_registry_vdi *row, const struct plx_vdi_info *info,
                        struct plx_fault *fault)
{
    bool deleted = info->state == PLX_VDI_DELETED;

    return plx_fault_set(
        fault, deleted ? PLX_ERR_CORRUPT : PLX_ERR_REGISTRY,
        "virtual disk %.48s: slot %u of the store holds %s (%.48s): %s; restore the store, or go "
        "on without it by 'parallax store rebuild-registry', which frees nothing of it",
        row->name, row->slot, deleted ? "another one, which was deleted" : "another one",
        info->name,
        deleted ? "the device lost a write" : "the device or the registry lost a write");
}

static int refuse_gone(const struct plx_registry_vdi *row, struct plx_fault *fault)
{
    return plx_fault_set(fault, PLX_ERR_CORRUPT,
                         "virtual disk %.80s is not on the store any more: the device lost a write "
                         "that it had acknowledged; restore the store, or give the disk up by "
                         "'parallax vdi delete STORE/%.80s --lost'",
                         row->name, row->name);
}

/* What the engine says of a slot that the store does not have stays. */
static int refuse_damaged(struct plx_store *store, const struct plx_registry_vdi *row,
                          struct plx_fault *fault)
{
    struct plx_store_info info;

    plx_store_get_info(store, &info);
    if (row->slot >= info.vdi_slots)
        return PLX_ERR_CORRUPT;
    return plx_fault_set(fault, PLX_ERR_CORRUPT,
                         "virtual disk %.80s: both copies of its record (VDI slot %u) are damaged; "
                         "restore the store, or give the disk up by 'parallax vdi delete "
                         "STORE/%.80s --lost'",
                         row->name, row->slot, row->name);
}

/* DOORS-3 */
static bool is_unmade(const struct plx_registry_vdi *row)
{
    return row->owner && !row->written.state;
}

static int read_own(struct plx_store *store, const struct plx_registry_vdi *row,
                    struct plx_vdi_info *ret_info, struct plx_fault *fault)
{
    char id[PLX_UUID_TEXT];
    int error = plx_vdi_read_info(store, row->slot, ret_info, fault);

    if (error && error != PLX_ERR_NOT_FOUND && error != PLX_ERR_CORRUPT)
        return error;
    if (!error) {
        plx_uuid_text(&ret_info->id, id);
        if (strcmp(id, row->id) == 0)
            return 0;
    }
    if (is_unmade(row) && (error || ret_info->state == PLX_VDI_DELETED))
        return plx_fault_set(fault, PLX_ERR_NOT_FOUND,
                             "virtual disk %.80s is being created, or its creation was cut off",
                             row->name);
    if (error == PLX_ERR_CORRUPT)
        return refuse_damaged(store, row, fault);
    return error ? refuse_gone(row, fault) : refuse_other(row, ret_info, fault);
}

int plx_door_is_gone(struct plx_store *store, const struct plx_registry_vdi *row, bool *ret_back,
                     struct plx_fault *fault)
{
    char id[PLX_UUID_TEXT];
    struct plx_vdi_info info;
    int error = plx_vdi_read_info(store, row->slot, &info, fault);

    *ret_back = false;
    if (error == PLX_ERR_NOT_FOUND || error == PLX_ERR_CORRUPT)
        return 0;
    if (error || info.state != PLX_VDI_LIVE)
        return error;
    plx_uuid_text(&info.id, id);
    if (strcmp(id, row->id) != 0)
        return refuse_other(row, &info, fault);
    *ret_back = plx_door_is_back(row, &info);
    if (*ret_back)
        return 0;
    return plx_fault_set(fault, PLX_ERR_EXISTS,
                         "virtual disk %.80s is on the store; 'parallax vdi delete' without --lost "
                         "deletes it",
                         row->name);
}

bool plx_door_is_back(const struct plx_registry_vdi *row, const struct plx_vdi_info *info)
{
    return row->written.state &&
           (info->epoch < row->written.epoch ||
            (info->epoch == row->written.epoch && info->record_state < row->written.state));
}

bool plx_door_is_used_twice(const struct plx_registry_vdi *row)
{
    return row->written.epoch > 1 && row->written.state == PLX_DOOR_USED_TWICE;
}

const char *plx_door_older_advice(const struct plx_registry_vdi *row, char ret_text[PLX_OLDER_TEXT])
{
    if (plx_door_is_used_twice(row))
        snprintf(ret_text, PLX_OLDER_TEXT,
                 "another virtual disk may have blocks of it; restore the store, or give it up by "
                 "'parallax vdi delete STORE/%.80s --lost': 'parallax vdi accept-older "
                 "STORE/%.80s' accepts it only if the other one was given up",
                 row->name, row->name);
    else
        snprintf(ret_text, PLX_OLDER_TEXT,
                 "the device lost a write that it had acknowledged; restore the store, or go on "
                 "with the older state by 'parallax vdi accept-older STORE/%.80s'",
                 row->name);
    return ret_text;
}

int plx_door_is_older(struct plx_store *store, const struct plx_registry_vdi *row, bool *ret_older,
                      struct plx_fault *fault)
{
    struct plx_vdi_info info;
    int error = read_own(store, row, &info, fault);

    if (!error)
        *ret_older = plx_door_is_back(row, &info);
    return error;
}

int plx_door_read(struct plx_store *store, const struct plx_registry_vdi *row,
                  struct plx_vdi_info *ret_info, struct plx_fault *fault)
{
    char advice[PLX_OLDER_TEXT];
    int error = read_own(store, row, ret_info, fault);

    if (error)
        return error;
    if (plx_door_is_back(row, ret_info)) /* DOORS-2 */
        return plx_fault_set(
            fault, PLX_ERR_CORRUPT,
            "virtual disk %.80s: its record on the store is older than what was written last: %s",
            row->name, plx_door_older_advice(row, advice));
    return 0;
}

bool plx_door_is_there(struct plx_store *store, const struct plx_registry_vdi *row)
{
    struct plx_vdi_info info;
    char id[PLX_UUID_TEXT];

    if (plx_vdi_read_info(store, row->slot, &info, NULL))
        return false;
    plx_uuid_text(&info.id, id);
    return strcmp(id, row->id) == 0;
}

void plx_door_tell_stray(const struct plx_registry_vdi *row, char ret_text[PLX_STRAY_TEXT])
{
    snprintf(
        ret_text, PLX_STRAY_TEXT,
        "virtual disk %.120s%s is a clone of one that is not known any more, so nobody knows "
        "whose snapshots it needs: no snapshot of another virtual disk goes while it is there, but "
        "with all of that disk; "
        "'parallax vdi export' and 'vdi import' make a copy that needs none",
        row->name, row->deleted ? " (deleted)" : "");
}

static int refuse_newer(const struct plx_registry_vdi *row, struct plx_fault *fault)
{
    return plx_fault_set(fault, PLX_ERR_REGISTRY,
                         "virtual disk %.80s: its record on the store is newer than the registry "
                         "knows: the registry lost a write; 'parallax store rebuild-registry' "
                         "rebuilds it from the store",
                         row->name);
}

int plx_door_read_closed(struct plx_store *store, const struct plx_registry_vdi *row,
                         struct plx_vdi_info *ret_info, struct plx_fault *fault)
{
    int error = plx_door_read(store, row, ret_info, fault);

    /* DOORS-1 */
    if (error || row->owner)
        return error;
    if (ret_info->epoch > row->epoch)
        return refuse_newer(row, fault);
    if (row->written.state && row->epoch == row->written.epoch &&
        ret_info->record_state > row->written.state)
        return refuse_newer(row, fault);
    return 0;
}

int plx_door_read_taken(struct plx_store *store, const struct plx_registry_vdi *row,
                        struct plx_vdi_info *ret_info, struct plx_fault *fault)
{
    int error = plx_door_read(store, row, ret_info, fault);

    if (error || ret_info->epoch < row->epoch) /* DOORS-1 */
        return error;
    if (ret_info->epoch > row->epoch || ret_info->owner != row->owner)
        return refuse_newer(row, fault);
    return 0;
}

/* DOORS-4 */
bool plx_door_extent_is_newer(const struct plx_registry_extent *row, uint64_t states)
{
    bool told = row->states || row->type == PLX_EXTENT_UNUSED;

    return told && !row->owner && states > row->states;
}

int plx_door_refuse_newer_extent(const struct plx_store *store, uint64_t no,
                                 struct plx_fault *fault)
{
    const char *first = plx_store_device(store, 0)->name;
    bool further = plx_volumes_index_of(store, no) != 0;

    return plx_fault_set(
        fault, PLX_ERR_REGISTRY,
        further ? "extent %llu (%.60s) was used since the registry saw it last: %.60s went back to "
                  "an older state, or the registry there lost a write; put the newer volume 0 back "
                  "first; only if there is none, 'parallax store rebuild-registry' takes over what "
                  "the store says"
                : "extent %llu (%.60s) was used since the registry in %.60s saw it last: the "
                  "registry lost a write; 'parallax store rebuild-registry' takes over what the "
                  "store says",
        (unsigned long long)no, plx_volumes_name_of(store, no), first);
}
