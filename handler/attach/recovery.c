/* recovery.c - takes over what dead instances of this host had.
 *
 * All steps are taken under the recovery lock (ATTACH-11). A step that fails ends the recovery,
 * unless the step says otherwise. For all dead instances together (ATTACH-1):
 *     1. Adopt: the registry's rows of their extents name this instance. A header without a mirror
 *        copy is written again as it was read (EXTENT-2). An extent whose header is not to be
 *        believed is given up (ATTACH-10). Nothing is allocated from the extents yet.
 *     2. Mark: the blocks that the logs of their disks name, in memory. A log that cannot be read
 *        seals all adopted extents.
 *     3. Allow: the headers are written with owner and bits. Then allocation from the extents is
 *        allowed.
 * Then for each of them:
 *     4. Take over: its disks' locks, with raised epochs.
 *     5. Open: each disk, which replays its log; it is closed, or kept open (ATTACH-14). If a disk
 *        fails, the others are opened all the same, and this instance keeps its lock.
 *     6. Remove: the instance's row.
 * A crash leaves this instance dead beside the others. The next recovery treats all of them alike.
 * If step 1, 2 or 3 fails after the registry may have given this process an extent, only this
 * process may go on with the recovery (ATTACH-25). README.md here and handler/README.md use the
 * same numbers.
 * Invariants and threads: attach.c. */
#include <stdlib.h>
#include <string.h>

#include "attach/attach_inside.h"
#include "attach/doors.h"
#include "registry/collections.h"
#include "registry/embedded.h"
#include "registry/labels.h"
#include "registry/policy.h"

/* ---- Recovery of dead instances ---- */

/* Whether the dead instance claimed the extent and died before it wrote the header. Then nothing
 * was allocated in it. Its place holds no header, or that of an earlier owner: of the other type,
 * with no owner's name, and empty. */
static bool never_headed(const struct plx_registry_extent *row, const struct plx_extent_info *info)
{
    return info->type == PLX_EXTENT_UNUSED ||
           (info->type != row->type && !info->owner && info->used_blocks <= info->header_blocks);
}

/* Whether the header names somebody whom the registry has never heard of: all that are dead have
 * rows until their extents' headers name who took them over. So the dead instance never wrote this
 * header. */
static bool names_stranger(struct plx_attach *a, uint64_t owner)
{
    struct plx_registry_instance row;

    return owner && owner != a->instance.row.id &&
           plx_registry_instance_get(a->registry, owner, &row) == PLX_ERR_NOT_FOUND;
}

/* ---- Extents ---- */

/* ATTACH-25. What the registry gives is on this list until the store has it, or it is given up. */
static int note_taken(struct plx_attach *a, uint64_t no, struct plx_fault *fault)
{
    struct plx_owned_extent *taken = calloc(1, sizeof *taken);

    if (!taken)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory recovering");
    taken->row.no = no;
    taken->next = a->taken;
    a->taken = taken;
    return 0;
}

static struct plx_owned_extent *find_taken(const struct plx_attach *a, uint64_t no)
{
    struct plx_owned_extent *taken = a->taken;

    while (taken && taken->row.no != no)
        taken = taken->next;
    return taken;
}

/* Another generation: it was given up, although the registry did not say so, and claimed since. */
static bool is_taken(const struct plx_attach *a, const struct plx_registry_extent *row)
{
    const struct plx_owned_extent *taken = find_taken(a, row->no);

    return taken && (!taken->row.generation || taken->row.generation == row->generation);
}

static void forget_taken(struct plx_attach *a, uint64_t no)
{
    struct plx_owned_extent **link = &a->taken, *taken;

    while ((taken = *link)) {
        if (taken->row.no == no) {
            *link = taken->next;
            free(taken);
        } else {
            link = &taken->next;
        }
    }
}

static int give_up(struct plx_attach *a, const struct plx_registry_extent *row,
                   struct plx_fault *fault)
{
    int error = plx_registry_extent_release(a->registry, a->row.id, row);

    if (error)
        return plx_registry_fault(a->registry, error, fault);
    forget_taken(a, row->no);
    return 0;
}

/* ATTACH-10: the row stays as it was before the dead instance claimed the extent. */
static int doubt_extent(struct plx_attach *a, struct plx_registry_extent *row,
                        struct plx_fault *fault)
{
    int refused, error;

    plx_attach_lock(a);
    refused = plx_door_refuse_newer_extent(a->store, row->no, fault);
    plx_attach_unlock(a);
    error = plx_registry_doubt(a->registry, a->row.id, fault ? fault->text : "");
    if (error)
        return plx_registry_fault(a->registry, error, fault);
    if (!row->states)
        row->type = PLX_EXTENT_UNUSED;
    else
        row->sealed = true;
    error = give_up(a, row, fault);
    return error ? error : refused;
}

/* ATTACH-10. Adopts the extent if its header is to be believed. *ret_info: type UNUSED if nothing
 * could be read, or if its owner never wrote the header. REGISTRY: somebody else wrote it. */
static int look_at_dead(struct plx_attach *a, const struct plx_registry_extent *row,
                        struct plx_extent_info *ret_info, struct plx_fault *fault)
{
    int error = plx_store_extent_read(a->store, row->no, ret_info, fault);

    if (!error && ret_info->states < row->states)
        error = plx_fault_set(fault, PLX_ERR_CORRUPT,
                              "extent %llu: its header is older than what was written last: the "
                              "device lost a write that it had acknowledged",
                              (unsigned long long)row->no);
    if (!error && names_stranger(a, ret_info->owner))
        return PLX_ERR_REGISTRY;
    if (!error && never_headed(row, ret_info))
        ret_info->type = PLX_EXTENT_UNUSED;
    else if (!error)
        error = plx_store_extent_adopt(a->store, row->no, fault);
    return error;
}

/* What the recovery waits for. */
static int explain_unread(const struct plx_attach *a, int error, struct plx_fault *fault)
{
    struct plx_fault why;

    if (plx_error_class(error) != PLX_CLASS_IO || !fault)
        return error;
    why = *fault;
    return plx_fault_set(fault, error,
                         "%.200s; a process that has died left this extent, and nobody can open "
                         "store %s to write until it can be read; reading goes on ('parallax vdi "
                         "export'), and each later command tries again",
                         why.text, a->known.name);
}

/* The registry has given the extent to this instance. */
static int adopt_taken(struct plx_attach *a, struct plx_registry_extent *row,
                       struct plx_fault *fault)
{
    struct plx_extent_info info = {.type = PLX_EXTENT_UNUSED};
    int error;

    find_taken(a, row->no)->row.generation = row->generation;
    plx_attach_lock(a);
    plx_store_set_collections(a->store, row->collections);
    error = look_at_dead(a, row, &info, fault);
    plx_attach_unlock(a);
    if (error == PLX_ERR_REGISTRY)
        return doubt_extent(a, row, fault);
    /* An extent that cannot be read just now may hold blocks that only a log names. They must be
     * marked while the log exists, so the recovery ends here and is tried again later. */
    if (error && error != PLX_ERR_CORRUPT)
        return explain_unread(a, error, fault);
    if (!error && info.type != PLX_EXTENT_UNUSED) {
        plx_attach_remember_extent(a, row, false);
        forget_taken(a, row->no);
        return 0;
    }
    if (error) {
        plx_attach_env_event(&a->env, error, fault ? fault->text : plx_error_text(error));
        plx_attach_never_believe(row);
    } else {
        row->type = PLX_EXTENT_UNUSED;
    }
    return give_up(a, row, fault);
}

static int adopt_extent(struct plx_attach *a, uint64_t no, uint64_t dead, struct plx_fault *fault)
{
    struct plx_registry_extent row;
    int error = note_taken(a, no, fault);

    if (error)
        return error;
    error = plx_registry_extent_take(a->registry, a->row.id, no, dead, a->instance.row.id, &row);
    if (error == PLX_ERR_INVALID || error == PLX_ERR_BUSY) { /* not a race: ATTACH-11 */
        forget_taken(a, no);
        return plx_fault_set(fault, PLX_ERR_CORRUPT,
                             "the registry's row of extent %llu, which a dead process owned, is "
                             "damaged; 'parallax store rebuild-registry' rebuilds it from "
                             "the store",
                             (unsigned long long)no);
    }
    a->half_recovered = true;
    if (error)
        return plx_registry_fault(a->registry, error, fault);
    return adopt_taken(a, &row, fault);
}

static int adopt_extents(struct plx_attach *a, uint64_t dead, struct plx_fault *fault)
{
    struct plx_registry_extent *list;
    size_t count;
    int error = plx_registry_extent_list(a->registry, a->row.id, dead, &list, &count);

    if (error)
        return plx_registry_fault(a->registry, error, fault);
    for (size_t i = 0; i < count && !error; i++)
        error = adopt_extent(a, list[i].no, dead, fault);
    free(list);
    return error;
}

/* ATTACH-25. What is on the list and not among this instance's extents was never given to it: a
 * dead instance still owns it. */
static int adopt_left(struct plx_attach *a, struct plx_fault *fault)
{
    struct plx_registry_extent *list;
    size_t count;
    int error = a->taken ? plx_registry_extent_list(a->registry, a->row.id, a->instance.row.id,
                                                    &list, &count)
                         : 0;

    if (error || !a->taken)
        return error ? plx_registry_fault(a->registry, error, fault) : 0;
    for (size_t i = 0; i < count && !error; i++)
        error = is_taken(a, &list[i]) ? adopt_taken(a, &list[i], fault) : 0;
    free(list);
    for (struct plx_owned_extent *left; !error && (left = plx_attach_pop(a, &a->taken));)
        free(left);
    return error;
}

/* ---- Disks ---- */

/* Opens a disk that a dead instance had open; that replays its log. */
static int open_dead(struct plx_attach *a, const struct plx_registry_vdi *row,
                     struct plx_opened_vdi *opened, struct plx_fault *fault)
{
    struct plx_vdi_open_options options = {
        .slot = row->slot,
        .epoch = opened->lock.epoch,
        .name = row->name, /* ATTACH-19 */
        .take_over = true,
        .overwrite = -1,
    };
    int error = plx_attach_clock_begin(a, opened, &options.witness, fault);

    if (error)
        return error;
    plx_attach_lock(a);
    error = plx_vdi_open(a->store, &options, &opened->vdi, fault);
    plx_attach_unlock(a);
    if (error)
        plx_attach_clock_end(a, opened);
    return error;
}

static int recover_closed(struct plx_attach *a, const struct plx_registry_vdi *row,
                          const struct plx_registry_lock *ours, struct plx_fault *fault)
{
    struct plx_opened_vdi opened = {.lock = *ours};
    struct plx_vdi_clock clock;
    struct plx_vdi_info info;
    int error = open_dead(a, row, &opened, fault);

    if (error)
        return error;
    plx_attach_clock_look(a, &opened, true, &clock);
    plx_attach_lock(a);
    plx_vdi_get_info(opened.vdi, &info);
    error = plx_vdi_close(opened.vdi);
    plx_attach_unlock(a);
    plx_attach_clock_end(a, &opened);
    return error ? plx_fault_set(fault, error, "%s: cannot be closed after recovery: %s", row->name,
                                 plx_error_text(error))
                 : plx_attach_settle(a, ours, &info, plx_attach_settle_from(info.snapshots), fault);
}

static int recover_kept(struct plx_attach *a, const struct plx_registry_vdi *row,
                        const struct plx_registry_lock *ours, struct plx_fault *fault)
{
    struct plx_opened_vdi *opened = plx_attach_new_opened(fault);
    struct plx_vdi_clock clock;
    struct plx_vdi_info info;
    int error;

    if (!opened)
        return PLX_ERR_NOMEM;
    opened->lock = *ours;
    error = open_dead(a, row, opened, fault);
    if (error) {
        free(opened);
        return error;
    }
    plx_attach_wait_to_be_asked(a, opened);
    plx_attach_clock_look(a, opened, false, &clock);
    plx_attach_lock(a);
    plx_vdi_get_info(opened->vdi, &info);
    plx_attach_unlock(a);
    error = plx_attach_settle(a, ours, &info, plx_attach_settle_from(info.snapshots), fault);
    opened->behind = error ? plx_attach_settle_from(info.snapshots) : 0;
    return error;
}

/* ATTACH-24. The lock was taken over, which raised the epoch. */
static int refuse_lost_record(struct plx_attach *a, const struct plx_registry_vdi *row,
                              const struct plx_registry_lock *ours, struct plx_fault *fault)
{
    struct plx_registry_vdi told = *row;
    struct plx_vdi_info info;
    int error;

    if (!plx_attach_ring_saw(a, row, row->epoch - 1, &told.written))
        return 0;
    error = plx_registry_vdi_unlock(a->registry, ours, &told.written);
    if (error)
        return plx_registry_fault(a->registry, error, fault);
    plx_attach_lock(a);
    error = plx_door_read(a->store, &told, &info, fault);
    plx_attach_unlock(a);
    return error;
}

/* Recovers one disk whose lock has been taken over from a dead instance. keep: ATTACH-14. */
static int recover_vdi(struct plx_attach *a, const struct plx_registry_vdi *row, bool keep,
                       struct plx_fault *fault)
{
    struct plx_registry_lock ours = {.instance = row->owner, .epoch = row->epoch};
    struct plx_vdi_info info;
    int error;

    memcpy(ours.vdi, row->id, sizeof ours.vdi);
    error = row->deleted ? 0 : refuse_lost_record(a, row, &ours, fault);
    if (error)
        return error;
    plx_attach_lock(a);
    error = plx_door_read_taken(a->store, row, &info, fault);
    plx_attach_unlock(a);
    if (error == PLX_ERR_NOT_FOUND) /* ATTACH-3: its record was never written */
        return plx_attach_finish_creation(a, &ours, fault);
    if (error)
        return plx_attach_in_doubt(a, error, fault);
    if (info.state == PLX_VDI_DELETED || row->deleted) {
        if (info.state != PLX_VDI_DELETED) {
            plx_attach_lock(a);
            error = plx_vdi_delete(a->store, row->slot, true, fault);
            plx_attach_unlock(a);
        }
        if (!error && !row->deleted && (error = plx_registry_vdi_delete(a->registry, &ours)))
            plx_registry_fault(a->registry, error, fault);
    } else if (keep) {
        return recover_kept(a, row, &ours, fault);
    } else {
        error = recover_closed(a, row, &ours, fault);
    }
    if (!error && (error = plx_attach_unlock_closed(a, &ours, row->slot, PLX_PUT_OFF_UNSEEN)))
        plx_registry_fault(a->registry, error, fault);
    return error;
}

/* ATTACH-1. Marks the blocks that the disk's log names. If the log cannot be read, or the record
 * that leads to it is not to be believed (ATTACH-9), all adopted extents are sealed, since the log
 * may name blocks in any of them. */
static void mark_log(struct plx_attach *a, const struct plx_registry_vdi *row)
{
    struct plx_registry_vdi told = *row;
    struct plx_fault why = {0};
    struct plx_vdi_info info;
    int error;

    plx_attach_ring_saw(a, row, row->epoch, &told.written); /* ATTACH-24 */
    plx_attach_lock(a);
    error = plx_door_read(a->store, &told, &info, &why);
    if (!error)
        error = plx_vdi_mark(a->store, row->slot, &why);
    if (error == PLX_ERR_NOT_FOUND) /* the disk was being created: it has no log */
        error = 0;
    if (error)
        plx_store_extents_seal(a->store);
    plx_attach_unlock(a);
    if (error)
        plx_attach_env_event(&a->env, error, why.text);
}

static int locked_by(struct plx_attach *a, uint64_t instance, struct plx_registry_vdi **ret_list,
                     size_t *ret_count, struct plx_fault *fault)
{
    int error = plx_registry_locks_of(a->registry, instance, ret_list, ret_count);

    return error ? plx_registry_fault(a->registry, error, fault) : 0;
}

static int mark_logs(struct plx_attach *a, uint64_t dead, struct plx_fault *fault)
{
    struct plx_registry_vdi *list;
    size_t count;
    int error = locked_by(a, dead, &list, &count, fault);

    if (error)
        return error;
    for (size_t i = 0; i < count; i++)
        mark_log(a, &list[i]);
    free(list);
    return 0;
}

static void note_unrecovered(struct plx_attach *a, const struct plx_registry_vdi *row,
                             const struct plx_fault *why)
{
    a->unrecovered = *why;
    memcpy(a->unrecovered_vdi, row->id, sizeof a->unrecovered_vdi);
}

int plx_attach_unrecovered(struct plx_attach *a, struct plx_fault *fault)
{
    struct plx_registry_vdi row;

    if (!a->unrecovered.code || plx_attach_is_open(a, a->unrecovered_vdi) ||
        plx_registry_vdi_get_by_id(a->registry, a->unrecovered_vdi, &row) || row.deleted ||
        row.owner != a->instance.row.id)
        return 0;
    return plx_fault_set(fault, a->unrecovered.code, "%s", a->unrecovered.text);
}

/* Recovers the disks one after the other and returns how many failed. Recovering a disk may free
 * room that another one needs. So disks that found no room are tried again, as long as a round
 * recovers at least one. A disk that is kept open counts as recovered even if the registry could
 * not be told everything: closing it makes up for that (ATTACH-4). */
static size_t recover_vdis(struct plx_attach *a, struct plx_registry_vdi *list, size_t count,
                           bool keep)
{
    size_t failed = 0, left = count, before;

    do {
        before = left;
        left = 0;
        for (size_t i = 0; i < before; i++) {
            struct plx_fault why = {0};
            int error = recover_vdi(a, &list[i], keep, &why);

            if (error) /* the other disks are recovered all the same */
                plx_attach_env_event(&a->env, error, why.text);
            if (plx_error_is_full_below(error))
                note_unrecovered(a, &list[i], &why);
            if (error == PLX_ERR_NOSPACE && !plx_attach_is_open(a, list[i].id) &&
                plx_registry_vdi_get_by_id(a->registry, list[i].id, &list[left]) == 0)
                left++;
            else
                failed += error != 0;
        }
    } while (left && left < before);
    return failed + left;
}

static int recover_instance(struct plx_attach *a, const struct plx_registry_instance *dead,
                            bool keep, struct plx_fault *fault)
{
    struct plx_registry_vdi *list;
    size_t count, failed;
    int error =
        plx_registry_vdis_takeover(a->registry, dead->id, a->instance.row.id, &list, &count);

    if (error)
        return plx_registry_fault(a->registry, error, fault);
    failed = recover_vdis(a, list, count, keep);
    free(list);
    /* This instance has the lock of a disk that could not be recovered; opening the disk says why.
     * An instance row that is gone was removed by an older program, which knew no ATTACH-11. */
    error = plx_registry_instance_unregister(a->registry, dead->id);
    if (error && error != PLX_ERR_NOT_FOUND)
        return failed ? 0 : plx_registry_fault(a->registry, error, fault);
    return 0;
}

/* ATTACH-14 */
static bool is_peer(const struct plx_attach *a, const struct plx_registry_instance *dead)
{
    return strcmp(dead->role, a->options.role) == 0;
}

static size_t count_peers(const struct plx_attach *a, const struct plx_registry_instance *dead,
                          size_t count)
{
    size_t peers = 0;

    for (size_t i = 0; i < count; i++)
        peers += is_peer(a, &dead[i]);
    return peers;
}

/* ATTACH-1, for all dead instances together. Dead instance B may have died while it recovered dead
 * A, when it had A's extents but not yet A's disks. Then A's logs name blocks in extents of B. */
static int recover_all(struct plx_attach *a, const struct plx_registry_instance *dead, size_t count,
                       struct plx_fault *fault)
{
    bool keep = a->keeps && count_peers(a, dead, count) == 1;
    int error = adopt_left(a, fault);

    for (size_t i = 0; i < count && !error; i++)
        error = adopt_extents(a, dead[i].id, fault);
    for (size_t i = 0; i < count && !error; i++)
        error = mark_logs(a, dead[i].id, fault);
    if (error)
        return error;
    plx_attach_lock(a);
    error = plx_store_extents_adopted(a->store, fault);
    plx_attach_unlock(a);
    a->half_recovered = a->half_recovered && error; /* ATTACH-25 */
    for (size_t i = 0; i < count && !error; i++)
        error = recover_instance(a, &dead[i], keep && is_peer(a, &dead[i]), fault);
    return error;
}

/* INSTANCE-3: a free byte proves a death only while the row exists. An instance that has left in
 * the meantime has removed its row. */
bool plx_attach_is_dead(struct plx_attach *a, const struct plx_registry_instance *row)
{
    struct plx_registry_instance now;

    return plx_instance_is_dead(&a->paths, plx_registry_locks(a->registry), row, NULL) &&
           plx_registry_instance_get(a->registry, row->id, &now) == 0;
}

/* The instances of this host that are proven dead. The caller frees *ret_list. */
static int list_dead(struct plx_attach *a, struct plx_registry_instance **ret_list,
                     size_t *ret_count, struct plx_fault *fault)
{
    struct plx_registry_instance *list;
    size_t count, dead = 0;
    int error = plx_registry_instance_list(a->registry, a->row.id, &list, &count);

    if (error)
        return plx_registry_fault(a->registry, error, fault);
    for (size_t i = 0; i < count; i++)
        if (list[i].id != a->instance.row.id && plx_attach_is_dead(a, &list[i]))
            list[dead++] = list[i];
    *ret_list = list;
    *ret_count = dead;
    return 0;
}

/* ATTACH-11 */
int plx_attach_lock_recovery(struct plx_attach *a, struct plx_fault *fault)
{
    struct plx_bytelock *locks = plx_registry_locks(a->registry);
    uint64_t since_ns = plx_patience_begin();
    struct plx_fault why;
    int error;

    plx_fault_set(&why, PLX_ERR_BUSY,
                  "store %s: another process recovers what one that has died left, or could not, "
                  "as its messages say, and tries again within a minute; try again",
                  a->known.name);
    do
        error = locks->ops->set(locks, PLX_BYTE_RECOVERY, PLX_BYTE_EXCLUSIVE);
    while (error == PLX_ERR_BUSY && plx_attach_waits(a, since_ns, &why));
    if (error == PLX_ERR_BUSY)
        return plx_fault_set(fault, error, "%s", why.text);
    return error ? plx_fault_set(fault, error, "%.200s: cannot be locked for recovery",
                                 a->known.volume[0])
                 : 0;
}

void plx_attach_unlock_recovery(struct plx_attach *a)
{
    struct plx_bytelock *locks = plx_registry_locks(a->registry);

    if (!a->half_recovered) /* ATTACH-25 */
        locks->ops->set(locks, PLX_BYTE_RECOVERY, PLX_BYTE_UNLOCKED);
}

/* Under the lock of ATTACH-11. The store may have grown while this process waited for the lock. */
static int recover_dead(struct plx_attach *a, struct plx_fault *fault)
{
    struct plx_registry_instance *list;
    size_t count;
    int error = plx_attach_keep_up(a, fault);

    if (!error)
        error = list_dead(a, &list, &count, fault);
    if (error)
        return error;
    if (count || a->half_recovered) {
        /* Writes in flight leave blocks allocated that only a collection frees. It is asked for
         * first, because another process may have to finish this recovery. */
        plx_registry_collection_want(a->registry, a->row.id);
        error = recover_all(a, list, count, fault);
    }
    free(list);
    return error;
}

int plx_attach_recover(struct plx_attach *a, struct plx_fault *fault)
{
    struct plx_registry_instance *list;
    size_t count;
    int error = plx_attach_keep_up(a, fault);

    if (!error)
        error = list_dead(a, &list, &count, fault);
    if (error)
        return error;
    free(list);
    if (!count && !a->half_recovered)
        return 0;
    error = plx_attach_lock_recovery(a, fault);
    if (error)
        return error;
    error = recover_dead(a, fault);
    plx_attach_unlock_recovery(a);
    return error;
}
