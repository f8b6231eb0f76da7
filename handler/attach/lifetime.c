/* lifetime.c - virtual disks created, cloned, renamed and deleted, in the store and in its registry
 * (ATTACH-3, ATTACH-6, ATTACH-16, ATTACH-19). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attach/attach_inside.h"
#include "attach/doors.h"
#include "registry/collections.h"
#include "registry/embedded.h"
#include "registry/holds.h"

static int fill_parent(struct plx_attach *a, const char *parent, const char *snapshot,
                       struct plx_vdi_create_options *options, struct plx_registry_vdi *row,
                       struct plx_fault *fault)
{
    struct plx_registry_vdi from;
    int error = plx_attach_row_of(a, parent, &from, fault);

    if (error)
        return error;
    if (!snapshot)
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "a clone starts from a snapshot: %s/%s@SNAPSHOT", a->known.name,
                             parent);
    error = plx_attach_snapshot_resolve(a, parent, snapshot, &options->parent_seq, fault);
    if (error)
        return error;
    if (!options->parent_seq)
        return plx_fault_set(fault, PLX_ERR_INVALID, "%s/%s has no snapshot 0; they begin with 1",
                             a->known.name, parent);
    error = plx_attach_check_door(a, &from, fault);
    if (error)
        return error;
    options->is_clone = true;
    options->parent_slot = from.slot;
    options->sector_size = from.sector_size;
    if (!options->size_bytes)
        row->size_bytes = from.size_bytes; /* corrected when the snapshot's is known */
    memcpy(row->parent, from.id, sizeof row->parent);
    row->parent_seq = options->parent_seq;
    return 0;
}

/* ATTACH-3 */
static int create_filled(struct plx_attach *a, struct plx_vdi_create_options *options,
                         struct plx_registry_vdi *row, struct plx_vdi_info *ret_info,
                         struct plx_fault *fault)
{
    struct plx_registry_lock lock = {.instance = a->instance.row.id, .epoch = 1};
    struct plx_store_info info;
    int error;

    plx_store_get_info(a->store, &info);
    error = plx_registry_vdi_create(a->registry, row, info.vdi_slots, row);
    if (error)
        return plx_registry_fault(a->registry, error, fault);
    memcpy(lock.vdi, row->id, sizeof lock.vdi);
    options->slot = row->slot;
    plx_attach_lock(a);
    error = plx_vdi_create(a->store, options, ret_info, fault);
    plx_attach_unlock(a);
    if (error) {
        struct plx_vdi_info now;
        struct plx_fault why = {0};
        int undone;

        plx_attach_lock(a); /* ATTACH-9: only a record that this call wrote is undone */
        undone = plx_door_read(a->store, row, &now, &why);
        if (!undone)
            undone = plx_vdi_delete(a->store, row->slot, false, NULL);
        plx_attach_unlock(a);
        /* If the record could not be undone, the row stays locked, and recovery finishes it by what
         * the record says. EXISTS: the slot has another disk, and nothing was written. Then the row
         * goes, because it would say that its disk was lost. */
        if (!undone || undone == PLX_ERR_NOT_FOUND || error == PLX_ERR_EXISTS)
            plx_attach_finish_creation(a, &lock, NULL);
        if (error == PLX_ERR_EXISTS && undone == PLX_ERR_REGISTRY)
            error = plx_fault_set(
                fault, undone,
                "slot %u of the store, where %.80s was to be, holds %.80s: the registry lost a "
                "write; 'parallax store rebuild-registry' rebuilds it from the store",
                row->slot, row->name, now.name);
        plx_attach_in_doubt(a, undone, &why);
        return error;
    }
    if (ret_info->size_bytes != row->size_bytes)
        error = plx_registry_vdi_resize(a->registry, &lock, ret_info->size_bytes);
    if (!error)
        error = plx_attach_unlock_closed(a, &lock, row->slot, plx_attach_closings(a));
    return error ? plx_registry_fault(a->registry, error, fault) : 0;
}

int plx_attach_vdi_create(struct plx_attach *a, const struct plx_vdi_create_options *options,
                          const char *parent, const char *snapshot, struct plx_vdi_info *ret_info,
                          struct plx_fault *fault)
{
    struct plx_vdi_create_options filled = *options;
    struct plx_registry_vdi row = {
        .store = a->row.id, .size_bytes = options->size_bytes, .owner = a->instance.row.id};
    struct plx_registry_vdi from;
    uint64_t hold = 0;
    int error = 0;

    filled.created_ns = row.created_ns = plx_attach_env_now(&a->env);
    if (plx_uuid_is_zero(&filled.id))
        plx_attach_env_random(&a->env, filled.id.b, sizeof filled.id.b);
    filled.id.b[6] = (filled.id.b[6] & 0x0f) | 0x40; /* a random UUID (RFC 9562) */
    filled.id.b[8] = (filled.id.b[8] & 0x3f) | 0x80;
    plx_uuid_text(&filled.id, row.id);
    snprintf(row.name, sizeof row.name, "%s", options->name);
    if (parent)
        error = fill_parent(a, parent, snapshot, &filled, &row, fault);
    row.sector_size = filled.sector_size;
    if (error)
        return error;
    if (!parent && (row.size_bytes < PLX_VDI_SIZE_MIN || row.size_bytes > PLX_VDI_SIZE_MAX))
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "size %llu: a virtual disk has 4 KiB to 256 TiB",
                             (unsigned long long)row.size_bytes);
    if (parent)
        error = plx_attach_hold_instant(a, row.parent, row.parent_seq, &hold, fault); /* ATTACH-5 */
    if (!error)
        error = create_filled(a, &filled, &row, ret_info, fault);
    if (error == PLX_ERR_NOT_FOUND && parent && plx_attach_row_of(a, parent, &from, NULL) == 0)
        error = plx_attach_explain_missing(a, &from, snapshot, filled.parent_seq, fault);
    plx_attach_release_instant(a, hold);
    return error;
}

/* ATTACH-6. Holds of dead readers do not count (plx_attach_release_dead). */
/* *ret_soon: all readers are commands of this host, which end soon. */
static int refuse_read(struct plx_attach *a, const char *name,
                       const struct plx_registry_hold *holds, size_t count, bool *ret_soon,
                       struct plx_fault *fault)
{
    struct plx_registry_instance reader;
    char who[160] = "";

    if (plx_registry_instance_get(a->registry, holds[0].instance, &reader) == 0)
        snprintf(who, sizeof who, " by %s (pid %lld) on host %s", plx_instance_kind(reader.role),
                 (long long)reader.pid, reader.host_name);
    *ret_soon = true;
    for (size_t i = 0; i < count; i++)
        *ret_soon = *ret_soon && plx_attach_ends_soon(a, holds[i].instance);
    return plx_fault_set(fault, PLX_ERR_BUSY,
                         "%s/%.200s@%llu is being read or cloned%s; close it first", a->known.name,
                         name, (unsigned long long)holds[0].seq, who);
}

static int check_unread(struct plx_attach *a, const struct plx_registry_vdi *row,
                        const struct plx_registry_lock *lock, bool *ret_soon,
                        struct plx_fault *fault)
{
    struct plx_registry_hold *holds = NULL;
    uint64_t *kept = NULL;
    size_t count = 0;
    int error = plx_attach_release_dead(a, row->id, fault);

    if (error)
        return error;
    error = plx_attach_begin_intent(a, lock, NULL, &kept, &count, fault);
    if (error)
        return error;
    error = plx_registry_hold_list(a->registry, row->id, &holds, &count);
    if (error)
        plx_registry_fault(a->registry, error, fault);
    else if (count)
        error = refuse_read(a, row->name, holds, count, ret_soon, fault);
    free(kept);
    free(holds);
    if (error)
        plx_registry_intent_end(a->registry, lock);
    return error;
}

/* ATTACH-9, for a disk that this instance has locked: its record must be gone or older. */
static int check_gone(struct plx_attach *a, const struct plx_registry_vdi *row, bool *ret_back,
                      struct plx_fault *fault)
{
    int error;

    plx_attach_lock(a);
    error = plx_door_is_gone(a->store, row, ret_back, fault);
    plx_attach_unlock(a);
    return plx_attach_in_doubt(a, error, fault);
}

/* Whether nobody locked the disk between *after and this lock. *after: the epoch of an earlier
 * lock, 0: any. It becomes this lock's epoch, for the next attempt. */
static int check_untouched(const struct plx_registry_lock *lock, uint64_t *after, const char *name,
                           struct plx_fault *fault)
{
    bool untouched = !*after || lock->epoch == *after + 1;

    if (!untouched)
        return plx_fault_set(fault, PLX_ERR_EXISTS, "%s was opened again meanwhile", name);
    if (*after)
        *after = lock->epoch;
    return 0;
}

/* One attempt to delete. *ret_soon: it failed with BUSY, holds no lock, and is worth repeating.
 * after: as in check_untouched(). */
static int delete_once(struct plx_attach *a, const char *name, bool lost, uint64_t *after,
                       bool *ret_soon, struct plx_fault *fault)
{
    struct plx_registry_lock lock;
    struct plx_registry_vdi row;
    struct plx_vdi_info info;
    bool recover, lives, back = false, marked = false;
    struct plx_uuid id;
    int error = plx_attach_row_of(a, name, &row, fault);

    *ret_soon = false;
    if (!error)
        error = plx_attach_lock_vdi(a, &row, &lock, &recover, fault);
    if (error)
        return error;
    error = check_untouched(&lock, after, name, fault);
    if (!error)
        error = lost ? check_gone(a, &row, &back, fault)
                     : plx_attach_check_locked(a, &lock, recover, &marked, fault);
    if (!error)
        error = check_unread(a, &row, &lock, ret_soon, fault);
    if (error) {
        if (!recover)
            plx_registry_vdi_unlock(a->registry, &lock, NULL);
        return error;
    }
    plx_attach_lock(a);
    error = lost && !back ? plx_vdi_give_up(a->store, row.slot, fault)
                          : plx_vdi_delete(a->store, row.slot, recover || back, fault);
    lives = error && plx_vdi_read_info(a->store, row.slot, &info, NULL) == 0 &&
            info.state == PLX_VDI_LIVE;
    plx_attach_unlock(a);
    if (error) {
        if (lives && !recover) /* if the record may be gone, the row stays locked (ATTACH-3) */
            plx_registry_vdi_unlock(a->registry, &lock, NULL);
        return error;
    }
    error = plx_registry_vdi_delete(a->registry, &lock);
    /* ATTACH-3: if that failed, the record is gone and the row stays locked. Recovery, or the same
     * call again, finishes the deletion. */
    if (error)
        return plx_registry_fault(a->registry, error, fault);
    plx_registry_put_off(a->registry, PLX_PUT_OFF);
    plx_registry_vdi_unlock(a->registry, &lock, NULL);
    plx_registry_put_off(a->registry, PLX_NOW);
    plx_uuid_parse(row.id, &id);
    if (marked) /* else nothing is left there (ATTACH-20) */
        plx_attach_ring_forget(a, &id);
    plx_registry_collection_want(a->registry, a->row.id); /* if not: others ask later */
    return 0;
}

/* Waits for readers between attempts, without the disk's lock, because a reader may need it to end.
 */
static int delete_in_turn(struct plx_attach *a, const char *name, bool lost, uint64_t after,
                          struct plx_fault *fault)
{
    uint64_t since_ns = plx_patience_begin();
    struct plx_fault why = {0};
    bool soon;
    int error;

    do
        error = delete_once(a, name, lost, &after, &soon, &why);
    while (soon && plx_attach_waits(a, since_ns, &why));
    return error ? plx_fault_set(fault, error, "%s", why.text) : 0;
}

int plx_attach_vdi_delete(struct plx_attach *a, const char *name, bool lost,
                          struct plx_fault *fault)
{
    return delete_in_turn(a, name, lost, 0, fault);
}

/* ATTACH-3, in doubt. Whoever opened the disk after that epoch has written its record. */
static int delete_in_doubt(struct plx_attach *a, const char *name, uint64_t epoch,
                           struct plx_fault *fault)
{
    struct plx_registry_vdi row;
    struct plx_vdi_info info;
    int error = plx_attach_row_of(a, name, &row, fault);

    if (!error && row.owner)
        return plx_fault_set(fault, PLX_ERR_BUSY, "%s is in use", name);
    if (error)
        return error;
    plx_attach_lock(a);
    error = plx_door_read(a->store, &row, &info, fault);
    if (!error && info.epoch > epoch)
        error = plx_fault_set(fault, PLX_ERR_EXISTS, "%s was opened again meanwhile", name);
    if (!error)
        error = plx_vdi_delete(a->store, row.slot, false, fault);
    plx_attach_unlock(a);
    if (error)
        return error;
    error = plx_registry_vdi_delete_in_doubt(a->registry, row.id, row.epoch);
    return error ? plx_registry_fault(a->registry, error, fault) : 0;
}

int plx_attach_vdi_delete_untouched(struct plx_attach *a, const char *name, uint64_t epoch,
                                    struct plx_fault *fault)
{
    struct plx_registry_store now;
    int error = delete_in_turn(a, name, false, epoch, fault);

    if (error == PLX_ERR_REGISTRY && !plx_registry_store_get(a->registry, a->row.uuid, &now) &&
        now.doubt[0])
        error = delete_in_doubt(a, name, epoch, fault);
    return error;
}

/* ---- Renaming (ATTACH-19) ---- */

/* The registry did not take the name, because a snapshot is held: by whom? */
static int explain_held(struct plx_attach *a, const char *id, const char *name, bool *ret_soon,
                        struct plx_fault *fault)
{
    struct plx_registry_hold *holds = NULL;
    size_t count = 0;
    int error = plx_registry_hold_list(a->registry, id, &holds, &count);

    if (error) {
        plx_registry_fault(a->registry, error, fault);
    } else if (count) {
        error = refuse_read(a, name, holds, count, ret_soon, fault);
    } else {
        *ret_soon = true;
        error = plx_fault_set(fault, PLX_ERR_BUSY, "%s was read until now; try again", name);
    }
    free(holds);
    return error;
}

/* For a disk that is open. If nobody knows whether the registry took the name (REGISTRY), settling
 * the disk finds out. */
static int rename_open(struct plx_attach *a, struct plx_vdi *vdi, const char *name,
                       const char *new_name, bool *ret_soon, struct plx_fault *fault)
{
    struct plx_opened_vdi *opened = plx_attach_opened(a, vdi);
    int error = plx_attach_release_dead(a, opened->lock.vdi, fault);

    if (error)
        return error;
    error = plx_registry_vdi_rename(a->registry, &opened->lock, new_name);
    if (error == PLX_ERR_BUSY)
        return explain_held(a, opened->lock.vdi, name, ret_soon, fault);
    if (error == PLX_ERR_REGISTRY)
        plx_attach_note_told(opened, plx_attach_newest_of(a, vdi), error);
    if (error)
        return plx_registry_fault(a->registry, error, fault);
    plx_attach_lock(a);
    plx_vdi_rename(vdi, new_name);
    plx_attach_unlock(a);
    return 0;
}

/* One attempt. *ret_soon: as in delete_once(). */
static int rename_once(struct plx_attach *a, const char *name, const char *new_name, bool *ret_soon,
                       struct plx_fault *fault)
{
    const struct plx_attach_vdi_options as_it_is = {.overwrite = -1};
    struct plx_vdi *vdi;
    int error = plx_attach_vdi_open(a, name, NULL, &as_it_is, &vdi, fault), closed;

    *ret_soon = false;
    if (error)
        return error;
    error = rename_open(a, vdi, name, new_name, ret_soon, fault);
    closed = plx_attach_vdi_close(a, vdi);
    if (closed && !error)
        plx_fault_set(fault, closed,
                      "%s/%.120s is called %.120s now, but it could not be closed: %s; its next "
                      "opening for writing recovers it",
                      a->known.name, name, new_name, plx_error_text(closed));
    return error ? error : closed;
}

int plx_attach_vdi_rename(struct plx_attach *a, const char *name, const char *new_name,
                          struct plx_fault *fault)
{
    uint64_t since_ns = plx_patience_begin();
    struct plx_registry_vdi row;
    struct plx_fault why = {0};
    char text[160];
    bool soon;
    int error = plx_name_check("vdi", new_name, text, sizeof text);

    if (error)
        return plx_fault_set(fault, error, "%s", text);
    /* Said before anything is written. If the name is taken later, the registry refuses it. */
    if (plx_registry_vdi_get(a->registry, a->row.id, new_name, &row) == 0)
        return plx_fault_set(fault, PLX_ERR_EXISTS, "%s/%.200s exists already", a->known.name,
                             new_name);
    do
        error = rename_once(a, name, new_name, &soon, &why);
    while (error && soon && plx_attach_waits(a, since_ns, &why));
    return error ? plx_fault_set(fault, error, "%s", why.text) : 0;
}
