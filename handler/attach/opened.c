/* opened.c - a disk that this attach has open: the registry is told of it, and its lock is given up
 * (ATTACH-4, ATTACH-9, ATTACH-13, ATTACH-14); opened_clock.c has its clocks. Invariants, threads
 * and crash story: attach.c. */
#include <stdlib.h>
#include <string.h>

#include "attach/attach_inside.h"
#include "attach/doors.h"
#include "registry/labels.h"
#include "registry/policy.h"

/* How many snapshots back recovery looks in a dead owner's log for label changes that the registry
 * missed. That is some 10 MB of log. A missed change that lies further back was never acknowledged.
 */
#define SETTLE_SNAPSHOTS 20000u

/* Reads the label changes since snapshot `from`. A log that is damaged is reported and otherwise
 * left to "store check", because the disk must not stay locked for it. */
static int read_labels(struct plx_attach *a, const struct plx_vdi_info *info, uint64_t from,
                       struct plx_labels *ret_labels, struct plx_fault *fault)
{
    struct plx_fault why = {0};
    int error;

    *ret_labels = (struct plx_labels){0};
    if (!info->snapshots)
        return 0;
    plx_attach_lock(a);
    error = plx_labels_read(a->store, info->slot, from, ret_labels, &why);
    plx_attach_unlock(a);
    if (error != PLX_ERR_CORRUPT)
        return error ? plx_fault_set(fault, error, "%s", why.text) : 0;
    plx_attach_env_event(&a->env, error, why.text);
    plx_labels_done(ret_labels);
    return 0;
}

/* LABELS-1 */
static int tell_labels(struct plx_attach *a, const struct plx_registry_lock *lock, uint32_t slot,
                       struct plx_labels *labels, struct plx_fault *fault)
{
    int error = plx_labels_drop_known(a->registry, lock->vdi, labels);

    if (error)
        return plx_registry_fault(a->registry, error, fault);
    plx_attach_lock(a);
    error = plx_labels_times(a->store, slot, labels, fault);
    plx_attach_unlock(a);
    if (error)
        return error;
    error = plx_labels_tell(a->registry, lock, labels);
    return error ? plx_registry_fault(a->registry, error, fault) : 0;
}

/* Removes labels of snapshots that history no longer has. A process that let the snapshots go died
 * before it removed the labels. */
static int drop_forgotten(struct plx_attach *a, const struct plx_registry_lock *lock,
                          const struct plx_vdi_info *info)
{
    struct plx_registry_label *list;
    size_t count;
    int error = plx_registry_label_list(a->registry, lock->vdi, &list, &count);

    if (error)
        return error;
    for (size_t i = 0; i < count && !error; i++)
        if (list[i].seq <= info->forgotten)
            error = plx_registry_label_remove(a->registry, lock, list[i].name);
    free(list);
    return error;
}

/* Removes labels that the registry has of snapshots that went from amid history. A process that let
 * the snapshots go died before it removed the labels, so its intent is left (HOLDS-8). What the log
 * says of such labels does not count (LABELS-3). */
static int drop_gone(struct plx_attach *a, const struct plx_registry_lock *lock, uint32_t slot,
                     struct plx_fault *fault)
{
    struct plx_registry_label *list;
    size_t count;
    int error = plx_registry_label_list(a->registry, lock->vdi, &list, &count);

    if (error)
        return plx_registry_fault(a->registry, error, fault);
    for (size_t i = 0; i < count && !error; i++) {
        struct plx_snapshot_info first = {0};

        plx_attach_lock(a);
        error = plx_snapshot_first(a->store, slot, list[i].seq, &first, fault);
        plx_attach_unlock(a);
        if (error || first.seq <= list[i].seq)
            continue;
        error = plx_registry_label_remove(a->registry, lock, list[i].name);
        if (error)
            plx_registry_fault(a->registry, error, fault);
    }
    free(list);
    return error;
}

/* HOLDS-8. A log that is damaged is left to "store check", as in read_labels(). */
static int end_left(struct plx_attach *a, const struct plx_registry_lock *lock, uint32_t slot,
                    struct plx_fault *fault)
{
    bool left = false;
    int error = plx_registry_intent_is_left(a->registry, lock->vdi, &left);

    if (error)
        return plx_registry_fault(a->registry, error, fault);
    if (!left)
        return 0;
    error = drop_gone(a, lock, slot, fault);
    if (error)
        return error == PLX_ERR_CORRUPT ? 0 : error;
    error = plx_registry_intent_clear(a->registry, lock);
    return error ? plx_registry_fault(a->registry, error, fault) : 0;
}

/* ATTACH-4 */
int plx_attach_settle(struct plx_attach *a, const struct plx_registry_lock *lock,
                      const struct plx_vdi_info *info, uint64_t from, struct plx_fault *fault)
{
    struct plx_registry_vdi row;
    struct plx_labels labels;
    int error = plx_registry_vdi_get_by_id(a->registry, lock->vdi, &row);

    if (!error &&
        strcmp(row.name, info->name) != 0) /* ATTACH-19: the next opening tells the record */
        return plx_fault_set(fault, PLX_ERR_REGISTRY,
                             "virtual disk %.100s is called %.100s in the registry", info->name,
                             row.name);
    if (!error && row.size_bytes != info->size_bytes)
        error = plx_registry_vdi_resize(a->registry, lock, info->size_bytes);
    if (!error)
        error = plx_policy_keep(a->registry, lock->vdi, &info->protection);
    if (!error)
        error = drop_forgotten(a, lock, info);
    if (error)
        return plx_registry_fault(a->registry, error, fault);
    error = read_labels(a, info, from, &labels, fault);
    if (!error)
        error = tell_labels(a, lock, info->slot, &labels, fault);
    plx_labels_done(&labels);
    return error ? error : end_left(a, lock, info->slot, fault);
}

/* From which snapshot on label changes are read for a disk whose owner died (SETTLE_SNAPSHOTS). */
uint64_t plx_attach_settle_from(uint64_t newest)
{
    return newest > SETTLE_SNAPSHOTS ? newest - SETTLE_SNAPSHOTS : 1;
}

uint64_t plx_attach_newest_of(struct plx_attach *a, const struct plx_vdi *vdi)
{
    struct plx_vdi_info info;

    plx_attach_lock(a);
    plx_vdi_get_info(vdi, &info);
    plx_attach_unlock(a);
    return info.snapshots;
}

/* ATTACH-4. Notes that the registry missed a change (error not 0). newest: the newest snapshot when
 * that change was made; label changes are read from there on when the disk is settled. */
void plx_attach_note_told(struct plx_opened_vdi *opened, uint64_t newest, int error)
{
    if (error && !opened->behind)
        opened->behind = plx_max_u64(newest, 1);
}

int plx_attach_finish_creation(struct plx_attach *a, const struct plx_registry_lock *lock,
                               struct plx_fault *fault)
{
    int error = plx_registry_vdi_delete(a->registry, lock);

    if (!error)
        error = plx_registry_vdi_unlock(a->registry, lock, NULL);
    if (!error)
        error = plx_registry_vdi_purge(a->registry, lock->vdi);
    return error ? plx_registry_fault(a->registry, error, fault) : 0;
}

/* ATTACH-13: whether the unlocking of a closed disk is committed now, or with the next change. */
enum plx_put_off plx_attach_closings(const struct plx_attach *a)
{
    return a->options.brief || a->together ? PLX_PUT_OFF : PLX_NOW;
}

/* Allocated before the disk is opened, so that no open disk is missing from the list of open ones
 * for want of memory. */
struct plx_opened_vdi *plx_attach_new_opened(struct plx_fault *fault)
{
    struct plx_opened_vdi *opened = calloc(1, sizeof *opened);

    if (!opened)
        plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    return opened;
}

/* ATTACH-14 */
void plx_attach_wait_to_be_asked(struct plx_attach *a, struct plx_opened_vdi *opened)
{
    opened->next = a->unasked;
    a->unasked = opened;
    a->unasked_changes++;
}

/* Created under this lock, and not opened since: its record has no epoch yet. */
static bool is_new(const struct plx_registry_lock *lock, const struct plx_vdi_info *info)
{
    return lock->epoch == 1 && info->epoch == 0;
}

/* Gives up the lock of a disk that was closed. The same commit enters what the registry remembers
 * of the record (ATTACH-9), and the states of extents that have risen (ATTACH-10). A record that is
 * not this disk's, or not of this lock's epoch, is no witness: then the registry keeps what it had.
 */
int plx_attach_unlock_closed(struct plx_attach *a, const struct plx_registry_lock *lock,
                             uint32_t slot, enum plx_put_off put_off)
{
    struct plx_registry_written written = {0};
    struct plx_registry_extent *rows = NULL;
    struct plx_extent_info *extents;
    struct plx_vdi_info info;
    char id[PLX_UUID_TEXT];
    size_t count;
    int error;

    plx_attach_lock(a);
    if (plx_vdi_read_info(a->store, slot, &info, NULL) == 0) {
        plx_uuid_text(&info.id, id);
        if (strcmp(id, lock->vdi) == 0 && (info.epoch == lock->epoch || is_new(lock, &info)))
            written = (struct plx_registry_written){info.epoch, info.record_state};
    }
    extents = plx_store_extents_risen(a->store, &count); /* ATTACH-10 */
    plx_attach_unlock(a);
    if (count)
        rows = calloc(count, sizeof *rows);
    for (size_t i = 0; rows && i < count; i++)
        rows[i] =
            (struct plx_registry_extent){.no = extents[i].number, .states = extents[i].states};
    plx_registry_put_off(a->registry, put_off);
    error = plx_registry_vdi_closed(a->registry, lock, &written, rows, rows ? count : 0);
    plx_registry_put_off(a->registry, PLX_NOW);
    free(rows);
    free(extents);
    return error;
}

/* ATTACH-9: puts the registry in doubt if the door's answer was REGISTRY. The caller has made sure
 * that the disk was not deleted meanwhile: it has the lock, or has read the row again. */
int plx_attach_in_doubt(struct plx_attach *a, int error, const struct plx_fault *fault)
{
    if (error == PLX_ERR_REGISTRY)
        plx_registry_doubt(a->registry, a->row.id,
                           fault ? fault->text : "a record is not as the registry knows it");
    return error;
}

static bool is_in(const struct plx_opened_vdi *list, const char *id)
{
    while (list && strcmp(list->lock.vdi, id) != 0)
        list = list->next;
    return list != NULL;
}

bool plx_attach_is_open(const struct plx_attach *a, const char *id)
{
    return is_in(a->vdis, id) || is_in(a->unasked, id);
}

void plx_attach_enter_opened(struct plx_attach *a, struct plx_opened_vdi *opened,
                             struct plx_vdi *vdi)
{
    opened->vdi = vdi;
    opened->next = a->vdis;
    a->vdis = opened;
}

struct plx_opened_vdi *plx_attach_opened(struct plx_attach *a, const struct plx_vdi *vdi)
{
    struct plx_opened_vdi *opened = a->vdis;

    while (opened->vdi != vdi)
        opened = opened->next;
    return opened;
}
