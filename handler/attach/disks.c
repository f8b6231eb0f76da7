/* disks.c - virtual disks by name: locked, opened, closed, kept open (ATTACH-2, ATTACH-5, ATTACH-9,
 * ATTACH-14, ATTACH-16, ATTACH-18 to ATTACH-20). Creating and deleting: lifetime.c. Readers of the
 * newest state: newest.c. Invariants, threads and crash story: attach.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attach/attach_inside.h"
#include "attach/doors.h"
#include "attach/known_rings.h"
#include "registry/collections.h"
#include "registry/embedded.h"
#include "registry/holds.h"

/* ---- Virtual disks ---- */

/* ATTACH-14. Moves a disk from the list of those that nobody has asked for to that of open disks.
 * id NULL: any disk. Returns NULL if there is none. */
static struct plx_opened_vdi *ask_for(struct plx_attach *a, const char *id)
{
    struct plx_opened_vdi **link = &a->unasked, *opened;

    while (*link && id && strcmp((*link)->lock.vdi, id) != 0)
        link = &(*link)->next;
    opened = *link;
    if (!opened)
        return NULL;
    *link = opened->next;
    opened->next = a->vdis;
    a->vdis = opened;
    a->unasked_changes++;
    return opened;
}

/* Whether waiting for the lock is worth it: nobody has it any more, or a command has it. */
static bool is_free_soon(struct plx_attach *a, const char *vdi)
{
    struct plx_registry_vdi row;

    return plx_registry_vdi_get_by_id(a->registry, vdi, &row) == 0 &&
           (!row.owner || plx_attach_ends_soon(a, row.owner));
}

/* Locks the disk, and waits for a holder that gives it up soon. A holder that died since this
 * attach was opened is recovered first. */
static int lock_in_turn(struct plx_attach *a, const char *vdi, struct plx_registry_lock *ret_lock,
                        struct plx_fault *fault)
{
    uint64_t since_ns = plx_patience_begin();
    struct plx_fault why;
    int error, failed;

    do {
        error = plx_registry_vdi_lock(a->registry, vdi, a->instance.row.id, ret_lock);
        if (error != PLX_ERR_BUSY)
            break;
        plx_registry_fault(a->registry, error, &why);
        failed = plx_attach_recover(a, fault);
        if (failed)
            return failed;
        error = plx_registry_vdi_lock(a->registry, vdi, a->instance.row.id, ret_lock);
        if (error)
            plx_registry_fault(a->registry, error, &why);
    } while (error == PLX_ERR_BUSY && is_free_soon(a, vdi) && plx_attach_waits(a, since_ns, &why));
    if (error == PLX_ERR_BUSY)
        return plx_fault_set(fault, error, "%s", why.text);
    return error ? plx_registry_fault(a->registry, error, fault) : 0;
}

/* Takes a lock that this instance has since a recovery or a closing failed. The epoch is raised
 * again, so that whatever the record still names counts as dead. BUSY: this instance does not have
 * the lock, or has the disk open. */
static int lock_left(struct plx_attach *a, const char *vdi, struct plx_registry_lock *ret_lock,
                     struct plx_fault *fault)
{
    struct plx_registry_lock ours = {.instance = a->instance.row.id};
    struct plx_registry_vdi row;
    int error = plx_registry_vdi_get_by_id(a->registry, vdi, &row);

    if (error)
        return plx_registry_fault(a->registry, error, fault);
    if (row.owner != ours.instance || plx_attach_is_open(a, vdi))
        return PLX_ERR_BUSY;
    memcpy(ours.vdi, row.id, sizeof ours.vdi);
    ours.epoch = row.epoch;
    error = plx_registry_vdi_takeover(a->registry, &ours, ours.instance, ret_lock);
    return error ? plx_registry_fault(a->registry, error, fault) : 0;
}

/* *ret_recover: this instance had the lock already, so the disk was not closed. It may have got the
 * lock while it waited, by recovering a holder that died. */
static int lock_by_id(struct plx_attach *a, const char *vdi, struct plx_registry_lock *ret_lock,
                      bool *ret_recover, struct plx_fault *fault)
{
    int error = lock_left(a, vdi, ret_lock, fault);

    *ret_recover = error != PLX_ERR_BUSY;
    if (error != PLX_ERR_BUSY)
        return error;
    error = lock_in_turn(a, vdi, ret_lock, fault);
    if (error == PLX_ERR_BUSY) {
        error = lock_left(a, vdi, ret_lock, fault);
        *ret_recover = error != PLX_ERR_BUSY;
    }
    return error;
}

/* ATTACH-19. Whoever waited for the lock has it of a disk that may have another name by now. */
int plx_attach_lock_vdi(struct plx_attach *a, const struct plx_registry_vdi *row,
                        struct plx_registry_lock *ret_lock, bool *ret_recover,
                        struct plx_fault *fault)
{
    struct plx_registry_vdi now;
    int error = lock_by_id(a, row->id, ret_lock, ret_recover, fault);

    if (error)
        return error;
    error = plx_registry_vdi_get_by_id(a->registry, row->id, &now);
    if (error)
        plx_registry_fault(a->registry, error, fault);
    else if (strcmp(now.name, row->name) != 0)
        error = plx_fault_set(fault, PLX_ERR_NOT_FOUND,
                              "%s/%.120s has just been renamed; it is called %s/%.120s now",
                              a->known.name, row->name, a->known.name, now.name);
    if (error && !*ret_recover)
        plx_registry_vdi_unlock(a->registry, ret_lock, NULL);
    return error;
}

static int hold_by_row(struct plx_attach *a, const char *vdi, uint64_t seq, uint64_t *ret_hold,
                       struct plx_fault *fault)
{
    int error = a->registered ? 0 : plx_attach_register_instance(a, fault);

    if (error)
        return error;
    error = plx_hold_wait(a->registry, &a->paths, plx_registry_locks(a->registry), vdi, seq,
                          a->instance.row.id, a->options.patience, ret_hold);
    return error ? plx_registry_fault(a->registry, error, fault) : 0;
}

/* ATTACH-16. Protects the reader by a shared lock instead of a hold. */
static int hold_without_writing(struct plx_attach *a, const char *vdi, struct plx_fault *fault)
{
    int error = a->unwritable ? 0 : plx_attach_check_stands_still(a, fault);

    if (error)
        return error;
    a->unwritable = true;
    error = plx_hold_share(a->registry, &a->paths, plx_registry_locks(a->registry), vdi,
                           a->options.patience);
    return error ? plx_registry_fault(a->registry, error, fault) : 0;
}

/* ATTACH-5 */
int plx_attach_hold_instant(struct plx_attach *a, const char *vdi, uint64_t seq, uint64_t *ret_hold,
                            struct plx_fault *fault)
{
    int error = 0;

    *ret_hold = 0;
    if (!seq)
        return 0;
    if (!a->unwritable && !a->not_ours)
        error = hold_by_row(a, vdi, seq, ret_hold, fault);
    if (a->unwritable || a->not_ours || (a->options.read_only && plx_error_is_unwritable(error)))
        return hold_without_writing(a, vdi, fault);
    return error;
}

void plx_attach_release_instant(struct plx_attach *a, uint64_t hold)
{
    int error = hold ? plx_registry_release(a->registry, hold) : 0;

    if (error)
        plx_attach_env_event(&a->env, error, "a snapshot stays held until this process has ended");
}

static void free_instant(struct plx_attach *a, struct plx_opened_vdi *opened)
{
    plx_attach_release_instant(a, opened->hold);
    free(opened->newest);
    free(opened);
}

static int open_snapshot(struct plx_attach *a, const struct plx_registry_vdi *row,
                         const char *snapshot, const struct plx_attach_vdi_options *options,
                         struct plx_vdi **ret_vdi, struct plx_fault *fault)
{
    struct plx_opened_vdi *opened;
    struct plx_vdi *vdi;
    uint64_t seq;
    int error = plx_attach_snapshot_resolve(a, row->name, snapshot, &seq, fault);

    if (error)
        return error;
    opened = plx_attach_new_opened(fault);
    if (!opened)
        return PLX_ERR_NOMEM;
    error = seq ? plx_attach_hold_instant(a, row->id, seq, &opened->hold, fault)
                : plx_attach_newest_begin(a, row, options->stands, &opened->newest, fault);
    if (!error)
        error = plx_attach_check_door(a, row, fault);
    if (!error) {
        plx_attach_lock(a);
        error = plx_snapshot_open(a->store, row->slot, seq, &vdi, fault);
        plx_attach_unlock(a);
        if (error == PLX_ERR_NOT_FOUND && seq)
            error = plx_attach_explain_missing(a, row, snapshot, seq, fault);
    }
    if (error) {
        free_instant(a, opened);
        return error;
    }
    plx_attach_enter_opened(a, opened, vdi);
    *ret_vdi = vdi;
    return 0;
}

void plx_attach_look_at_clock(struct plx_attach *a, struct plx_vdi *vdi,
                              struct plx_vdi_clock *ret_clock)
{
    plx_attach_clock_look(a, plx_attach_opened(a, vdi), false, ret_clock);
}

int plx_attach_resume(struct plx_attach *a, struct plx_vdi *vdi, struct plx_fault *fault)
{
    struct plx_opened_vdi *opened = plx_attach_opened(a, vdi);
    char why[PLX_DOUBT_TEXT];
    struct plx_vdi_clock clock;
    int error;

    plx_attach_clock_look(a, opened, false, &clock);
    plx_witness_text(&clock.witness, &clock.now, &clock.ends, why);
    error = plx_attach_clock_resume(a, opened, &clock);
    if (!error)
        error = plx_registry_event_add(a->registry, "vdi resume", opened->lock.vdi, why);
    return error ? plx_registry_fault(a->registry, error, fault) : 0;
}

/* ATTACH-9, for a disk that this instance has just locked. recovers: its last holder did not close
 * it. */
int plx_attach_check_locked(struct plx_attach *a, const struct plx_registry_lock *lock,
                            bool recovers, bool *ret_marked, struct plx_fault *fault)
{
    struct plx_registry_vdi row;
    struct plx_vdi_info info;
    int error = plx_registry_vdi_get_by_id(a->registry, lock->vdi, &row);

    if (error)
        return plx_registry_fault(a->registry, error, fault);
    if (!recovers) { /* the row as it was before locking raised the epoch */
        row.owner = 0;
        row.epoch = lock->epoch - 1;
    }
    plx_attach_lock(a);
    error = recovers ? plx_door_read_taken(a->store, &row, &info, fault)
                     : plx_door_read_closed(a->store, &row, &info, fault);
    plx_attach_unlock(a);
    *ret_marked = !error && plx_ring_is_marked(&info.mark);
    return plx_attach_in_doubt(a, error, fault);
}

/* ATTACH-18. Closes a disk that cannot be used, for its record names a ring. */
static int refuse_ringless(struct plx_attach *a, const struct plx_registry_vdi *row,
                           struct plx_vdi *vdi, const struct plx_fault *why,
                           struct plx_fault *fault)
{
    char id[PLX_UUID_TEXT], members[PLX_KNOWN_RING_TEXT], on[PLX_KNOWN_RING_TEXT + 8] = "";
    struct plx_known_ring ring = {.members = 0};
    struct plx_vdi_info info;
    int error;

    plx_attach_lock(a);
    plx_vdi_get_info(vdi, &info);
    plx_attach_unlock(a);
    error = plx_attach_vdi_close(a, vdi);
    if (error)
        return plx_fault_set(fault, error, "%s: %s", row->name, plx_error_text(error));
    plx_uuid_text(&info.mark.ring, id);
    error = plx_known_ring_get(&a->paths, a->known.identity, &ring, NULL);
    if (!error && strcmp(ring.ring, id) == 0) {
        plx_known_ring_name_members(&ring, members);
        if (strlen(members) + strlen(why->text) < 300) /* else the advice would be cut */
            snprintf(on, sizeof on, " on %s", members);
        plx_fault_set(fault, why->code == PLX_ERR_BUSY ? why->code : PLX_ERR_RING_AWAY,
                      "%s/%.60s: its newest writes lie in this host's ring%s, without which it "
                      "cannot be used: %s",
                      a->known.name, row->name, on, why->text);
    } else {
        plx_fault_set(fault, PLX_ERR_RING_AWAY,
                      "%s/%.100s: its newest writes lie in the write-back ring %s, which this host "
                      "does not have; if it lies here, 'parallax ring create %s PATH' with its own "
                      "paths makes it known again; if it is lost for good, 'parallax ring discard "
                      "%s/%.100s' discards them",
                      a->known.name, row->name, id, a->known.name, a->known.name, row->name);
    }
    plx_known_ring_done(&ring);
    return fault->code;
}

/* Of a disk that this instance has locked, and the engine could not open. */
static int opening_failed(struct plx_attach *a, const struct plx_registry_vdi *row,
                          struct plx_opened_vdi *opened, bool take_over, int error,
                          struct plx_fault *fault)
{
    struct plx_registry_store now;
    struct plx_vdi_info info;
    bool read;

    if (error == PLX_ERR_REGISTRY && !plx_registry_store_get(a->registry, a->row.uuid, &now) &&
        now.doubt[0])
        plx_fault_set(fault, error, "%s/%.150s cannot be opened: %.255s%s", a->known.name,
                      row->name, now.doubt, plx_registry_doubt_advice(&now));
    plx_attach_clock_end(a, opened);
    /* ATTACH-2: the lock stays if the record may name this instance. */
    plx_attach_lock(a);
    read = plx_vdi_read_info(a->store, row->slot, &info, NULL) == 0;
    plx_attach_unlock(a);
    if (read && info.owner != a->instance.row.id && !take_over)
        /* ATTACH-9: it may have been opened and closed, without its ring. */
        plx_attach_unlock_closed(a, &opened->lock, row->slot, plx_attach_closings(a));
    free(opened);
    return error;
}

static int open_for_writing(struct plx_attach *a, const struct plx_registry_vdi *row,
                            const struct plx_attach_vdi_options *options, struct plx_vdi **ret_vdi,
                            struct plx_fault *fault)
{
    struct plx_vdi_open_options open = {.write_back = options->write_back,
                                        .overwrite = options->overwrite,
                                        .quiet_ns = options->quiet_ns};
    struct plx_vdi_clock clock;
    struct plx_opened_vdi *opened = ask_for(a, row->id);
    struct plx_fault without = {0};
    struct plx_vdi *vdi;
    bool marked;
    int error;

    if (opened) {
        bool suits;

        plx_attach_lock(a);
        suits = plx_vdi_use(opened->vdi, &open);
        plx_attach_unlock(a);
        *ret_vdi = opened->vdi;
        if (suits) {
            plx_attach_ring_begin(a, row, opened);
            return 0;
        }
        plx_attach_vdi_close(a, opened->vdi); /* on failure lock_left() has the lock */
    }
    opened = plx_attach_new_opened(fault);
    if (!opened)
        return PLX_ERR_NOMEM;
    error = plx_attach_lock_vdi(a, row, &opened->lock, &open.take_over, fault);
    if (error) {
        free(opened);
        return error;
    }
    a->tried = opened->lock;
    error = plx_attach_check_locked(a, &opened->lock, open.take_over, &marked, fault);
    if (!error)
        error = plx_attach_clock_begin(a, opened, &open.witness, fault);
    if (error) {
        if (!open.take_over)
            plx_registry_vdi_unlock(a->registry, &opened->lock, NULL);
        free(opened);
        return error;
    }
    open.slot = row->slot;
    open.name = row->name; /* ATTACH-19 */
    open.epoch = opened->lock.epoch;
    error = options->discard_ring
                ? plx_attach_ring_discard(a, &open, marked, options->discard_aside, &vdi, fault)
                : plx_attach_ring_vdi_open(a, row, opened, &open, marked, &vdi, &without, fault);
    if (error)
        return opening_failed(a, row, opened, open.take_over, error, fault);
    plx_attach_enter_opened(a, opened, vdi);
    opened->behind = open.take_over ? plx_attach_settle_from(plx_attach_newest_of(a, vdi)) : 0;
    plx_attach_clock_look(a, opened, false, &clock);
    if (marked && without.code)
        return refuse_ringless(a, row, vdi, &without, fault);
    *ret_vdi = vdi;
    return 0;
}

/* ATTACH-20. For a disk that has just been opened. It takes too long to be tried again and again.
 */
static int drain_first(struct plx_attach *a, const char *name,
                       const struct plx_attach_vdi_options *options, struct plx_vdi **ret_vdi,
                       struct plx_fault *fault)
{
    struct plx_fault why = {0};
    int error = plx_attach_ring_settle(a, plx_attach_opened(a, *ret_vdi), &why);

    if (!error || (options->only_thins && plx_error_class(error) == PLX_CLASS_NOSPACE))
        return 0; /* closing tries again */
    plx_attach_vdi_close(a, *ret_vdi);
    *ret_vdi = NULL;
    if (error == PLX_ERR_BUSY)
        return plx_fault_set(fault, error,
                             "interrupted; what was drained of the writes of %s/%.120s from this "
                             "host's ring is on the store, and the next command that opens it "
                             "continues",
                             a->known.name, name);
    return plx_fault_set(fault, error,
                         "%s/%.120s: its writes on this host's ring could not be drained to the "
                         "store first: %.300s",
                         a->known.name, name, why.text);
}

uint64_t plx_attach_tried_epoch(const struct plx_attach *a, const char *id)
{
    return strcmp(a->tried.vdi, id) == 0 ? a->tried.epoch : 0;
}

/* Opening a disk takes room for metadata. If there is none, the disks that nobody has asked for are
 * closed, which may free some. */
int plx_attach_vdi_open(struct plx_attach *a, const char *name, const char *snapshot,
                        const struct plx_attach_vdi_options *options, struct plx_vdi **ret_vdi,
                        struct plx_fault *fault)
{
    uint64_t since_ns = plx_patience_begin();
    struct plx_registry_vdi row;
    struct plx_fault why = {0};
    int error;

    do {
        error = plx_attach_row_of(a, name, &row, &why);
        if (!error && snapshot)
            return open_snapshot(a, &row, snapshot, options, ret_vdi, fault);
        if (!error && a->options.read_only)
            return plx_fault_set(fault, PLX_ERR_READONLY, "the store is open read-only");
        if (!error)
            error = open_for_writing(a, &row, options, ret_vdi, &why);
        if (error == PLX_ERR_NOSPACE)
            plx_attach_let_go(a, NULL);
    } while (error == PLX_ERR_NOSPACE && plx_attach_waits(a, since_ns, &why));
    if (error == PLX_ERR_NOSPACE)
        return plx_fault_set(fault, PLX_ERR_BUSY,
                             "%s: there is no room for the metadata that opening it takes; let "
                             "snapshots go or add space, then try again",
                             name);
    return error ? plx_fault_set(fault, error, "%s", why.text)
                 : drain_first(a, name, options, ret_vdi, fault);
}

int plx_attach_vdi_close(struct plx_attach *a, struct plx_vdi *vdi)
{
    struct plx_opened_vdi *opened = plx_attach_opened(a, vdi), **link = &a->vdis;
    struct plx_vdi_clock clock;
    struct plx_vdi_info info;
    int error;

    plx_attach_ring_end(a, opened);
    if (!plx_vdi_is_snapshot(vdi))
        plx_attach_clock_look(a, opened, true, &clock);
    plx_attach_lock(a);
    plx_vdi_get_info(vdi, &info);
    error = plx_vdi_close(vdi);
    plx_attach_unlock(a);
    plx_attach_clock_end(a, opened);
    if (!error && opened->behind)
        error = plx_attach_settle(a, &opened->lock, &info, opened->behind, NULL);
    if (!error && opened->lock.instance) /* ATTACH-2 */
        error = plx_attach_unlock_closed(a, &opened->lock, info.slot, plx_attach_closings(a));
    while (*link != opened)
        link = &(*link)->next;
    *link = opened->next;
    free_instant(a, opened);
    return error;
}

/* ATTACH-14 */
int plx_attach_vdi_leave(struct plx_attach *a, struct plx_vdi *vdi)
{
    struct plx_opened_vdi *opened = plx_attach_opened(a, vdi), **link = &a->vdis;
    int error;

    if (!a->options.reopens || plx_vdi_is_snapshot(vdi) || opened->ringed)
        return plx_attach_vdi_close(a, vdi);
    plx_attach_lock(a);
    error = plx_vdi_rest(vdi);
    plx_attach_unlock(a);
    if (error)
        return plx_attach_vdi_close(a, vdi);
    while (*link != opened)
        link = &(*link)->next;
    *link = opened->next;
    plx_attach_wait_to_be_asked(a, opened);
    return 0;
}

unsigned plx_attach_unasked(const struct plx_attach *a, uint64_t *ret_changes)
{
    unsigned count = 0;

    for (const struct plx_opened_vdi *opened = a->unasked; opened; opened = opened->next)
        count++;
    if (ret_changes)
        *ret_changes = a->unasked_changes;
    return count;
}

static void let_go(struct plx_attach *a, const char *id)
{
    struct plx_opened_vdi *opened = ask_for(a, id);
    struct plx_vdi_info info;
    struct plx_fault why;
    int error;

    if (!opened)
        return;
    plx_attach_lock(a);
    plx_vdi_get_info(opened->vdi, &info);
    plx_attach_unlock(a);
    error = plx_attach_vdi_close(a, opened->vdi);
    if (!error)
        return;
    plx_fault_set(&why, error, "virtual disk %s: cannot be closed; the next opening recovers it",
                  info.name);
    plx_attach_env_event(&a->env, error, why.text);
}

/* Closes all disks that nobody has asked for, side by side. The registry is told with its next
 * change (ATTACH-13). */
void plx_attach_let_all_go(struct plx_attach *a)
{
    for (struct plx_opened_vdi *opened = a->unasked; opened; opened = opened->next) {
        plx_attach_lock(a);
        plx_vdi_begin_close(opened->vdi);
        plx_attach_unlock(a);
    }
    a->together = true;
    while (a->unasked)
        let_go(a, NULL);
    a->together = false;
}

void plx_attach_let_go(struct plx_attach *a, const char *name)
{
    struct plx_registry_vdi row;
    struct plx_fault why;
    int error;

    if (!a->unasked)
        return;
    if (name) {
        if (plx_registry_vdi_get(a->registry, a->row.id, name, &row) == 0)
            let_go(a, row.id);
        return;
    }
    plx_attach_let_all_go(a);
    error = plx_registry_settle(a->registry);
    if (!error)
        return;
    if (plx_registry_is_behind(a->registry))
        plx_fault_set(
            &why, error,
            "virtual disks that were just closed may still be locked, for the registry "
            "could not be told: %.200s; that is tried again whenever this process uses the "
            "registry, at the latest when it ends",
            plx_registry_error(a->registry));
    else
        plx_fault_set(&why, error,
                      "a virtual disk that was just closed was not this process's any more; "
                      "'parallax store check %s' compares registry and store",
                      a->known.name);
    plx_attach_env_event(&a->env, error, why.text);
}
