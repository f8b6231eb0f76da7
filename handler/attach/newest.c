/* newest.c - who reads a disk's newest state, which nothing holds (ATTACH-26), or what stands still
 * because nobody has the store open (ATTACH-16).
 *
 * NEWEST-1  A reader that copies reads the row of the disk before the disk's record, and again when
 *     all is read. If no other process that may live had the disk open at the first reading, and at
 *     the second owner and epoch are the same and the row is not deleted, then nobody has written
 *     to, moved or freed a block that was read in between. Why: the first reading excludes whoever
 *     had the disk open already, and whatever begins to change the disk's blocks later raises the
 *     epoch before. The exceptions are deletion in doubt and the last two rows; they leave alone
 *     every block that the reader reads:
 *         writes, discards, key frames, a ring     the disk is open for writing: its lock was taken
 *             that is drained, checksums that          (plx_registry_vdi_lock), durably, before
 *             come back, moves, sharing,               its record or a block changed
 *             rewinding, snapshots that go
 *         recovery of a disk whose owner has died  the takeover raises the epoch
 *         deleting                                 locks the disk; in doubt nobody gets a lock:
 *                                                      record and row are marked 'deleted' without
 *                                                      one, and until the doubt ends no block is
 *                                                      collected and no extent claimed
 *         a collection                             frees what no live disk leads to
 *         other disks with the same blocks         nobody overwrites or moves a block that a
 *             (clones, common blocks)                  clone or snapshot sees; only a collection
 *                                                      frees common blocks, and a snapshot that
 *                                                      a clone began with stays (HOLDS-5)
 *     The owner may have died before the reader began: then nobody writes until a takeover.
 * NEWEST-2  A reader whose locks are not seen by others, and who does not see theirs, reads a row
 *     that another host may be changing. For it the home page must stand still as well (ATTACH-16).
 *     Then nobody has the store open, so an owner in the row is dead.
 * NEWEST-3  Maps of blocks (diff) are read of open disks, too. Nodes and log are never overwritten
 *     where they lie and carry checksums, so what is read of them is of one moment or looks damaged
 *     (RECORD-2). Whoever meets damage first asks whether the disk stood still. Only if it did is
 *     that reported as damage.
 * Threads: see attach.h. Crash story: nothing is written here.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attach/attach_inside.h"
#include "registry/embedded.h"
#include "registry/instance.h"

/* ATTACH-16. *ret_unopened is true for a process whose locks are seen. */
static int is_unopened(struct plx_attach *a, bool *ret_unopened, char ret_host[65],
                       struct plx_fault *fault)
{
    struct plx_device *device = plx_registry_device(a->registry);
    struct plx_tenant tenant = {0};
    struct plx_uuid store;
    int error;

    *ret_unopened = true;
    plx_uuid_parse(a->row.uuid, &store);
    error = plx_tenancy_read(device, plx_registry_locks(a->registry), &store, &a->paths, &tenant,
                             fault);
    if (error == PLX_ERR_CORRUPT) /* nobody is known to have it, as where there is no page */
        error = 0;
    snprintf(ret_host, 65, "%s", tenant.host_name);
    if (a->not_ours && a->unopened_since && tenant.here)
        return error; /* imported here since: that host sees the lock that is shared (HOLDS-7) */
    if (!error && (!tenant.here || a->unopened_since))
        error = plx_tenancy_unopened(device, &store, &a->unopened_since, ret_unopened, fault);
    return error;
}

static const char *unwritten(const struct plx_attach *a)
{
    return a->not_ours ? "is not this host's" : "cannot be written to here";
}

int plx_attach_check_stands_still(struct plx_attach *a, struct plx_fault *fault)
{
    char host[65];
    bool unopened;
    int error = is_unopened(a, &unopened, host, fault);

    if (!unopened)
        a->unopened_since = 0; /* nothing is read */
    return error || unopened
               ? error
               : plx_fault_set(fault, PLX_ERR_BUSY,
                               "%s %s, and store %s is open on host %s, where nobody would know "
                               "that its snapshots are read: read them there, or through the same "
                               "name of the volume",
                               plx_registry_device(a->registry)->name, unwritten(a), a->known.name,
                               host);
}

int plx_attach_stood_still(struct plx_attach *a, struct plx_fault *fault)
{
    char host[65];
    bool unopened = true;
    int error = a->unopened_since ? is_unopened(a, &unopened, host, fault) : 0;

    return error || unopened
               ? error
               : plx_fault_set(fault, PLX_ERR_FENCED,
                               "%s %s, and store %s was opened on host %s meanwhile, where nobody "
                               "knew that its snapshots are read: what was read may be wrong; read "
                               "them there, or through the same name of the volume",
                               plx_registry_device(a->registry)->name, unwritten(a), a->known.name,
                               host);
}

struct plx_newest_read {
    char vdi[PLX_UUID_TEXT], name[PLX_NAME_MAX + 1];
    uint64_t owner, epoch; /* of the row, when it was opened */
    bool alone;            /* nobody who lives had it open */
    bool stands;           /* it is to stand still */
};

/* What to do instead. */
static const char *advice(struct plx_attach *a, const char *name, uint64_t owner,
                          char ret_text[420])
{
    if (owner && plx_attach_ends_soon(a, owner))
        snprintf(ret_text, 420, "try again when that has ended");
    else
        snprintf(ret_text, 420,
                 "'parallax snap create %s/%.80s@NAME' takes a snapshot at any time, and 'parallax "
                 "vdi export %s/%.80s@NAME FILE' exports that",
                 a->known.name, name, a->known.name, name);
    return ret_text;
}

/* NEWEST-1, NEWEST-2: whether another process that may live has the disk open. */
static bool is_open_elsewhere(struct plx_attach *a, const struct plx_registry_vdi *row,
                              struct plx_registry_instance *ret_owner)
{
    *ret_owner = (struct plx_registry_instance){.id = row->owner, .role = "admin"};
    if (!row->owner || row->owner == a->instance.row.id || a->unopened_since)
        return false;
    return plx_registry_instance_get(a->registry, row->owner, ret_owner) != 0 ||
           !plx_attach_is_dead(a, ret_owner);
}

static int look(struct plx_attach *a, const char *vdi, struct plx_registry_vdi *ret_row,
                struct plx_fault *fault)
{
    int error = plx_registry_vdi_get_by_id(a->registry, vdi, ret_row);

    if (error && error != PLX_ERR_NOT_FOUND)
        return plx_registry_fault(a->registry, error, fault);
    ret_row->deleted |= error != 0;
    return 0;
}

static int refuse_open(struct plx_attach *a, const struct plx_registry_vdi *row,
                       const struct plx_registry_instance *owner, struct plx_fault *fault)
{
    char text[420];

    return plx_fault_set(fault, PLX_ERR_BUSY,
                         "%s/%.80s is open in %s (pid %lld) on host %s, so what is read of it now "
                         "would be of no one moment; %s",
                         a->known.name, row->name, plx_instance_kind(owner->role),
                         (long long)owner->pid, owner->host_name,
                         advice(a, row->name, owner->id, text));
}

int plx_attach_newest_begin(struct plx_attach *a, const struct plx_registry_vdi *row, bool stands,
                            struct plx_newest_read **ret_newest, struct plx_fault *fault)
{
    uint64_t since_ns = plx_patience_begin();
    struct plx_registry_vdi now = *row;
    struct plx_registry_instance owner;
    struct plx_newest_read *newest;
    struct plx_fault why;
    bool open;
    int error;

    if (stands && !a->tenancy && (error = plx_attach_check_stands_still(a, fault))) /* NEWEST-2 */
        return error;
    for (;;) {
        error = look(a, row->id, &now, fault); /* NEWEST-1: before the record is read */
        if (!error && now.deleted)
            error = plx_fault_set(fault, PLX_ERR_NOT_FOUND, "%s/%.200s has just been deleted",
                                  a->known.name, row->name);
        if (error)
            return error;
        open = is_open_elsewhere(a, &now, &owner);
        if (!open || !stands)
            break;
        error = refuse_open(a, &now, &owner, &why);
        if (!plx_attach_ends_soon(a, owner.id) || !plx_attach_waits(a, since_ns, &why))
            return plx_fault_set(fault, error, "%s", why.text);
    }
    newest = calloc(1, sizeof *newest);
    if (!newest)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    memcpy(newest->vdi, row->id, sizeof newest->vdi);
    memcpy(newest->name, row->name, sizeof newest->name);
    newest->owner = now.owner;
    newest->epoch = now.epoch;
    newest->alone = !open;
    newest->stands = stands;
    *ret_newest = newest;
    return 0;
}

/* NEWEST-1: when all is read. */
static int stood_still(struct plx_attach *a, const struct plx_newest_read *was,
                       struct plx_fault *fault)
{
    struct plx_registry_vdi now = {.id = ""};
    char text[420];
    int error = look(a, was->vdi, &now, fault);

    if (error)
        return error;
    if (now.deleted)
        return plx_fault_set(fault, PLX_ERR_BUSY,
                             "%s/%.80s was deleted meanwhile, so what was read of it may be wrong; "
                             "of a snapshot that is being read a disk is not deleted",
                             a->known.name, was->name);
    if (was->alone && now.owner == was->owner && now.epoch == was->epoch)
        return 0;
    return plx_fault_set(fault, PLX_ERR_BUSY,
                         "%s/%.80s was open for writing meanwhile, so what was read of it is of no "
                         "one moment; %s",
                         a->known.name, was->name, advice(a, was->name, 0, text));
}

/* NEWEST-3: asked where it is not to stand still, too. */
int plx_attach_vdi_stood_still(struct plx_attach *a, struct plx_vdi *vdi, struct plx_fault *fault)
{
    const struct plx_opened_vdi *opened = plx_attach_opened(a, vdi);

    return opened->newest ? stood_still(a, opened->newest, fault) : 0;
}

/* ATTACH-26 */
int plx_attach_newest_stood_still(struct plx_attach *a, struct plx_fault *fault)
{
    int error = 0;

    for (const struct plx_opened_vdi *opened = a->vdis; opened && !error; opened = opened->next)
        if (opened->newest && opened->newest->stands)
            error = stood_still(a, opened->newest, fault);
    return error;
}
