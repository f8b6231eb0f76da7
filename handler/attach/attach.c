/* attach.c - see attach.h.
 *
 * ATTACH-1  Nothing is allocated from a dead instance's extents before the blocks that the logs of
 *     all its disks name are marked as used. Those blocks are not in the extents' bitmaps yet, so
 *     an allocation would hand them out a second time. A log that cannot be read seals the extents.
 * ATTACH-2  An instance holds a disk's lock in the registry from before the disk's record names
 *     the instance until after the record names nobody. If closing fails, the lock stays, and
 *     whoever recovers this instance recovers the disk.
 * ATTACH-3  The registry's row frames the record, so a crash never leaves a record without a row:
 *         creating a disk   1. row, locked   2. record   3. unlock
 *         deleting a disk   1. lock   2. record deleted   3. row deleted   4. unlock
 *     A crash in between leaves a locked row. Recovery reads the record and finishes the deletion,
 *     unlocks a disk that is complete, or removes the row of one that has no record.
 *     While the registry is in doubt (ATTACH-9) nobody gets a lock. A call that has made a disk and
 *     must undo that then deletes it without a lock, record first: nobody has the disk, and nobody
 *     can get it. A crash in between leaves a row that the rebuild, which ends the doubt, does not
 *     take over.
 * ATTACH-4  Size, labels and protection change in the store first, because the store is the truth,
 *     and then in the registry. If the registry missed a change, it is told later: by recovery,
 *     when the disk is closed, or before snapshots are let go. Until that has worked the disk's
 *     lock stays (ATTACH-2), and no snapshot goes whose label only the store knows. After an owner
 *     has died, recovery reads the label changes in the disk's log since SETTLE_SNAPSHOTS snapshots
 *     ago. It may pass over an older one that the registry missed: the call that made it returned
 *     an error. Labels are removed after their snapshots. A process that died in between has left
 *     an intent (HOLDS-8). Then labels of snapshots that went from amid history are removed.
 * ATTACH-5  A reader holds a snapshot (holds.c) from before it opens the snapshot until after it
 *     has closed it. A clone's creator holds the snapshot until the clone's record is durable. A
 *     process that only reads registers an instance when it takes its first hold, not before.
 * ATTACH-6  A disk is not deleted while one of its snapshots is held, because deletion keeps
 *     nothing of the disk that the reader could still use.
 * ATTACH-7  The store grows before the registry does (volumes.c). So the registry may name an
 *     extent that this opening of the store does not know yet. The engine is told of the growth
 *     before it gets such an extent, before a disk is opened that may use one, and when the process
 *     that grew the store says so.
 * ATTACH-8  Nothing is written to the registry or the store without a tenancy (tenancy.h). Opening
 *     for writing begins one. A process that only reads begins one before its first change of the
 *     registry: a hold, or a doubt. A lost tenancy ends all writing.
 * ATTACH-9  A disk's record is believed only after a comparison with the disk's row (doors.h).
 *       When the lock is given up, the registry remembers the record as closing made it durable:
 *           the epoch in it, and how many states it has had (record_state grows by one a rewrite).
 *       At the next opening, the id in the slot is compared, and these two numbers:
 *           they are equal      the record is current, and the disk opens
 *           the epoch is lower, or equal with fewer states
 *                               the device lost a write: this disk is refused
 *           the epoch is higher, or equal with more states
 *                               the registry lost a write: the whole registry is in doubt
 *           another live disk   the device or the registry lost a write: likewise in doubt
 *     A process without the lock reads the row again before it reports another disk: its own disk
 *     may have been deleted meanwhile, and the slot given to that other disk.
 * ATTACH-10  An extent whose header contradicts the registry (EXTENT-5) is given up at once, as
 *     sealed, so that nobody allocates from it. Another one is claimed for the same request. The
 *     header of a dead owner's extent is compared when the extent is adopted:
 *         more states than the registry    as it should be: the owner wrote some before it died
 *           knows
 *         fewer states                     the device lost a write: the extent is sealed
 *         it names an instance that the    the registry lost a write, and the dead owner had not
 *           registry does not know         compared the header yet
 *     A header that proves that the registry lost a write puts the registry in doubt at once
 *     (plx_registry_doubt), because a crash would forget the proof. From then on nothing is opened
 *     for writing or claimed until the registry is rebuilt. The row of that extent stays as it was.
 *     What it says is the proof (DOORS-4). And a rebuild that found the row disbelieved would
 *     disbelieve the newer header, too (REBUILD-6).
 * ATTACH-11  One process of a machine recovers at a time, under the lock on PLX_BYTE_RECOVERY, and
 *     lists the dead only when it has that lock. Two recoveries would share a dead instance's
 *     extents between them, and neither could mark all that its logs name there (ATTACH-1). The
 *     kernel drops the lock when its holder dies.
 * ATTACH-12  A call that waits for another process has changed nothing yet, or only what the next
 *     attempt finds again. It waits only for processes that need nothing of what it holds, so no
 *     two wait for each other.
 * ATTACH-13  A commit of the registry costs four flushes, so some changes share one (kept.c):
 *         registering this instance                waits for the instance's first other change
 *         unlocking, by a command or a recovery    waits for the next change
 *         unlocking, by a handler                  is committed at once, for others wait for it
 *         unlocking disks that close together      is committed once for all of them
 * ATTACH-14  A handler that recovers one dead handler keeps that handler's disks open, because
 *     their LUNs are about to ask for them. Closing, unlocking, locking and opening each disk again
 *     would take longer than the rest of the recovery. These disks are locked like any open disk
 *     until a LUN asks for them or they are let go. If several handlers died, all their disks are
 *     closed, since nobody can tell which will be asked for here. A disk that its LUN has left
 *     stays open too: more LUNs may be about to close, and closing all disks together costs hardly
 *     more than closing one.
 * ATTACH-15  A superblock that knows fewer extents than the registry proves that the device lost a
 *     write (ATTACH-7). The registry's word counts then (VOLUME-5): everything can be read, and
 *     nobody writes to the store until "store grow" has written the superblock again. "store grow"
 *     refuses if extents of that volume went back, too: then a newer volume is to be put back.
 * ATTACH-16  A reader that cannot write to the volume, finds it full, or finds the store released,
 *     another host's or without a home page to be read enters nothing in the registry, not even a
 *     hold. One of two things protects its snapshots:
 *         its locks are seen by others   it shares a lock that whoever lets snapshots go looks for
 *                                        (HOLDS-7)
 *         its locks are not seen         nobody has the store open when the reader begins, and
 *                                        nobody has opened it by the end (TENANCY-7)
 *     Otherwise the reader is refused all snapshots. In the second case a process that opens the
 *     store later does not know of the reader. So the reader asks plx_attach_fenced() before it
 *     takes what it has read for right. A store that was not this host's may be imported here while
 *     it is read. Then the first case applies from then on, and nobody notices that another host
 *     had the store in between. A process that can write enters holds (ATTACH-5).
 * ATTACH-17  A growth that fails removes the file that it made for a further volume, unless the
 *     file has a superblock by then. Volume 0 counts a further volume only after that superblock is
 *     there (GROW-3), so nobody counts what is removed. A repeated call goes on with what stays:
 *     the registry has the path. Any other volume that names this store is refused without --force.
 * ATTACH-18  A disk whose record names a ring that this process cannot open is opened, which
 *     recovers it, and is closed again: it is not used without the ring (FRONT-1). Mark and
 *     position stay. The error names the ring.
 * ATTACH-19  The registry decides names, because only its index can give each name to one disk. The
 *     record repeats the name, so that a rebuild finds it. Renaming a disk:
 *         1. open it for writing, which locks its row      2. the row gets the new name
 *         3. closing it writes the record with that name   4. unlock
 *     Whoever opens a disk for writing gives the record the name that the row has under the lock.
 *     The lock is not given up while the two differ. So the recovery of the locked disk heals a
 *     crash: before 2 the disk has its old name, from 2 on the new one. No other disk can get that
 *     name in between. A rebuild of the registry between 2 and 3 finds either name (REBUILD-17):
 *     nobody was told that the disk was renamed.
 *     Whoever has waited for a lock compares the name again: it wants the disk of that name.
 * ATTACH-20  The ring is open, and locked (RING_MEMBERS-1), while a disk that is open here uses it.
 *     A disk uses it until all is drained and the ring has forgotten the disk (RINGED-6). A disk
 *     that uses the ring is not kept open for its next LUN (ATTACH-14): closing drains what it has
 *     there. Only an attach with options.rings appends to the ring; every other one drains before
 *     it does anything else with the disk. If that is interrupted (options.draining), the disk is
 *     closed with mark and position as they are by then, and the next opening goes on.
 * ATTACH-21  A disk's records on a ring are discarded in two steps:
 *     1. The disk's record names no ring any more, durably.
 *     2. If the ring is this host's, it forgets the disk.
 *     The second step is left out, too, if the ring has records that the mark did not claim. Then
 *     the store was put back, and its newer state may need them. Where the second step was left
 *     out, or a crash came before it, the ring keeps records that no mark claims. Only
 *     options.discard_aside makes the ring forget them; a call that is repeated without that option
 *     leaves them there.
 * ATTACH-22  While the device of the home page hangs, nobody knows whose the store is. Then writes
 *     to the store wait (TENANCY-10, TICK-6); the loop itself never reads the page. A ring goes on
 *     to acknowledge, and needs no look for that: what it writes is not the store's, and no other
 *     host uses a disk whose record names a ring (FRONT-1). Case by case:
 *         another host takes the store    It recovers the disk, and refuses to use it (ATTACH-18).
 *             over                        Mark and position stay. So when this host has the store
 *                                         again, it drains what its ring has acknowledged, before
 *                                         the take-over or after it.
 *         the operator discards the       His word says that this host is off, and gives the writes
 *             ring's writes there         up. What this host acknowledges until it looks goes with
 *                                         them. The record has no mark then, so these writes are
 *                                         kept aside and never reach the store (RINGED-10).
 *         another process of this         It knows the ring by the state directory, which both
 *             machine takes the store     have, and cannot open it, since the members are locked
 *             over, through another       (RING_MEMBERS-1). If it reaches the members by other
 *             inode of the volume         inodes, too, both append. So nobody may give store and
 *                                         ring to two containers of one state directory.
 *         the record names no ring yet    Setting the mark is a write to the store. It waits, and
 *                                         nothing is acknowledged before (RINGED-1).
 *         the ring loses a member         The survivor's set is a write to the store as well.
 *         the tenancy is fenced           Draining fails, which stops the disk, and a disk that has
 *                                         stopped acknowledges nothing (RINGED-2).
 *         the machine was paused          The first write to the store after the pause waits for a
 *                                         look. For the ring it is one of the cases above.
 * ATTACH-23  What a disk knows of the clocks, its witness, is kept in the registry: when the disk
 *     is opened and closed; at once when a look finds a doubt, or the end of one; and when nothing
 *     is kept yet and a snapshot is taken (WITNESS-9). A change that the loop finds is kept by the
 *     thread of the hook "defer". If keeping it fails, it is tried again. No witness replaces a
 *     newer one. A command (options .brief) keeps what is no doubt only with its next commit. While
 *     the clock is right, this costs one commit in the life of a disk.
 *     If the registry cannot say what the disk knew, a command does not open the disk: nothing has
 *     changed, and somebody is there who can rebuild the registry. A handler does open it, because
 *     a LUN that does not come back costs more than snapshots that stay longer: all snapshots that
 *     there are count as taken up to its first look without doubt (WITNESS-5). The handler goes on
 *     trying to keep that. A registry that stays damaged makes every opening begin so.
 * ATTACH-24  A ring has records of an opening of a disk only if the disk's record had the epoch of
 *     that opening before, durably. Say an instance died with the disk open, in an epoch E that the
 *     registry had granted. If this host's ring has records of E, and the disk's record is older
 *     than E and names no ring, the device has lost the record of E. What was acknowledged must not
 *     be set aside then as if it had been given up (RINGED-10). So the disk is unlocked with E as
 *     the epoch that was written. Each door refuses the older record from then on (DOORS-1), until
 *     the operator accepts it, and by that gives up what the ring has. A store that was put back as
 *     a whole is no such case: its registry has not granted E.
 * ATTACH-25  Process P recovers the dead instance D. A step from 1 to 3 of recovery.c fails, and P
 *     lives on. Then the registry may have given extents of D to P, while the blocks that D's logs
 *     name there are not marked (ATTACH-1). Only P can mark them, for P owns the extents. If a
 *     process Q recovered D's disks now, their new key frames would make those logs count no more.
 *     No log would tell P of the blocks, and P would hand them out a second time. So P keeps the
 *     recovery lock (ATTACH-11) until an attempt of its own has ended step 3. That attempt first
 *     adopts the extents that the registry had given to P and whose headers could not be read then.
 *     If P ends before that, it is one more dead instance, and one recovery treats all of them.
 * ATTACH-26  The newest state of a disk is no snapshot, and nothing holds it. So who copies it is
 *     refused while another process has the disk open, and asks before the copy counts whether the
 *     disk stood still: its row has no other owner, no other epoch, and is not deleted (newest.c).
 *     That is enough, for a disk's blocks are written, moved and freed only under its lock, and
 *     each locking raises the epoch before anything else changes (LOCK-1, ATTACH-2).
 * Threads: see attach.h. A claim of an extent runs on the thread of the hook "defer", with a
 *   registry handle of its own. The next tick of the loop takes its answer in.
 * Crash story: locks and extents stay with the instance's row, and its byte lock is free. The next
 *   opening finds the instance dead and recovers it (recovery.c).
 */
#include "attach/attach.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attach/attach_inside.h"
#include "attach/counted.h"
#include "attach/numbers.h"
#include "engine/base/list.h"
#include "registry/embedded.h"

/* What the schema says of a store in doubt, which cannot say what was seen (0007_trust.sql). */
#define SCHEMA_ON_DOUBT "the registry has lost writes ("

/* ---- Alone (ATTACH-12) ---- */

/* Finds another instance of the store: a handler if there is one, because nobody waits for that. */
static int find_other(struct plx_attach *a, bool *ret_found,
                      struct plx_registry_instance *ret_other, struct plx_fault *fault)
{
    struct plx_registry_instance *list;
    size_t count;
    int error = plx_registry_instance_list(a->registry, a->row.id, &list, &count);

    if (error)
        return plx_registry_fault(a->registry, error, fault);
    *ret_found = false;
    for (size_t i = 0; i < count; i++) {
        bool handler = !plx_instance_is_command(&a->paths, &list[i]);

        if (list[i].id == a->instance.row.id || (*ret_found && !handler))
            continue;
        *ret_other = list[i];
        *ret_found = true;
    }
    free(list);
    return 0;
}

int plx_attach_alone(struct plx_attach *a, struct plx_fault *fault)
{
    uint64_t since_ns = plx_patience_begin();
    struct plx_registry_instance other;
    struct plx_fault why;
    bool found;
    int error;

    do {
        error = plx_attach_recover(a, fault);
        if (!error)
            error = find_other(a, &found, &other, fault);
        if (error || !found)
            return error;
        plx_fault_set(
            &why, PLX_ERR_BUSY, "store %s is open in %s (pid %lld) on host %s; stop that first",
            a->known.name, plx_instance_kind(other.role), (long long)other.pid, other.host_name);
    } while (plx_instance_is_command(&a->paths, &other) && plx_attach_waits(a, since_ns, &why));
    return plx_fault_set(fault, PLX_ERR_BUSY, "%s", why.text);
}

/* ---- For collect.c and dedup.c ---- */

void plx_attach_get_inside(struct plx_attach *a, struct plx_attach_inside *ret_inside)
{
    *ret_inside = (struct plx_attach_inside){
        .registry = a->registry,
        .store = a->store,
        .store_row = a->row.id,
        .instance = a->instance.row.id,
        .paths = &a->paths,
    };
}

/* ---- Opening and closing ---- */

int plx_attach_fenced(struct plx_attach *a, struct plx_fault *fault)
{
    struct plx_fault why;
    int error;

    if (!a->tenancy)
        error = plx_attach_stood_still(a, fault);
    else if ((error = plx_tenancy_fenced(a->tenancy, &why)))
        plx_fault_set(fault, error, "%s; what was not done by then was not done", why.text);
    return error ? error : plx_attach_newest_stood_still(a, fault);
}

/* For a process that only reads: finds out whether this host has the store. *ret_ours: it has, and
 * its locks are seen, so what a crash left in the registry (a journal) may be rolled back. */
static int look_at_tenant(struct plx_attach *a, bool *ret_ours, struct plx_fault *fault)
{
    const struct plx_embedded_options options = {
        .volume = a->known.volume[0],
        .uuid = a->known.uuid,
        .identity = a->known.identity,
        .patience = a->options.patience,
    };
    struct plx_tenant tenant;
    int error = plx_embedded_tenant(&options, &a->paths, &tenant, fault);

    if (error == PLX_ERR_CORRUPT) { /* as if there were no page; opening finds any other damage */
        tenant = (struct plx_tenant){0};
        error = 0;
    }
    if (error)
        return error;
    if (tenant.ours && !tenant.here) /* since a boot, or by another name */
        error = plx_attach_begin_tenancy(a, fault);
    *ret_ours = tenant.here || a->tenancy;
    a->not_ours = !tenant.ours;
    if (error == PLX_ERR_BUSY && fault)
        a->in_the_way = *fault;
    return plx_error_is_unwritable(error) || error == PLX_ERR_BUSY ? 0 : error;
}

int plx_attach_whose(struct plx_attach *a, struct plx_fault *fault)
{
    return a->tenancy ? 0 : plx_attach_begin_tenancy(a, fault);
}

static int open_registries(struct plx_attach *a, struct plx_fault *fault)
{
    char who[160];
    bool ours = true;
    struct plx_embedded_options options = {
        .volume = a->known.volume[0],
        .uuid = a->known.uuid,
        .identity = a->known.identity,
        .who = who,
        .settings = &a->paths.settings,
        .host = a->paths.host,
        .may_write = plx_attach_may_write,
        .context = a,
        .damaged = &a->damaged,
        .patience = a->options.patience,
    };
    int error;

    if (a->options.read_only)
        error = look_at_tenant(a, &ours, fault);
    else if (!(error = plx_embedded_check(&options, fault))) /* the home page is the store's */
        error = plx_attach_begin_tenancy(a, fault);
    if (error)
        return error;
    options.read_only = !ours;
    if (!ours)
        options.host = NULL; /* who only reads */
    snprintf(who, sizeof who, "%s %d on %s", a->options.role, (int)getpid(), a->paths.host_name);
    error = plx_embedded_open(&options, &a->registry, fault);
    if ((error == PLX_ERR_PERMISSION || error == PLX_ERR_READONLY) && a->options.read_only) {
        options.read_only = true;
        error = plx_embedded_open(&options, &a->registry, fault);
    }
    if (!error)
        plx_registry_call_store(a->registry, a->known.name);
    if (a->options.defer)
        options.patience = NULL; /* another thread uses the second one */
    options.damaged = &a->claims_damaged;
    if (!error && !a->options.read_only)
        error = plx_embedded_open(&options, &a->claims_registry, fault);
    if (!error && !a->options.read_only)
        plx_registry_call_store(a->claims_registry, a->known.name);
    return error;
}

int plx_attach_empty_registry(const struct plx_known *known, struct plx_fault *fault)
{
    char volumes[PLX_KNOWN_VOLUMES_TEXT];

    plx_known_name_volumes(known, volumes);
    return plx_fault_set(fault, PLX_ERR_CORRUPT,
                         "%.150s: the registry of store %s is empty: it was overwritten, or its "
                         "format or rebuild was not finished; 'parallax store rebuild-registry %s' "
                         "rebuilds it from the store",
                         known->volume[0], known->name, volumes);
}

/* Reads the store's row. A registry without it belongs to a format that did not finish
 * (FOUNDING-2). */
static int find_row(struct plx_attach *a, struct plx_fault *fault)
{
    int error = plx_registry_store_get(a->registry, a->known.uuid, &a->row);

    if (error == PLX_ERR_NOT_FOUND)
        return plx_attach_empty_registry(&a->known, fault);
    return error ? plx_registry_fault(a->registry, error, fault) : 0;
}

int plx_attach_known_damage(const struct plx_known *known, int error, struct plx_fault *fault)
{
    struct plx_fault what = *fault;
    char volumes[PLX_KNOWN_VOLUMES_TEXT];

    if (error != PLX_ERR_REGISTRY)
        return error;
    plx_known_name_volumes(known, volumes);
    return plx_fault_set(fault, PLX_ERR_CORRUPT,
                         "%.*s; 'parallax store rebuild-registry %s' rebuilds it from the store",
                         (int)plx_min_u64(strcspn(what.text, ";"), 230), what.text, volumes);
}

/* No room, because extents cannot be believed: to who writes that is a write error (ATTACH-10). */
static int name_distrust(struct plx_attach *a, int error, struct plx_fault *fault)
{
    struct plx_fault what = *fault, seen;
    size_t first = strcspn(what.text, ";");

    if (error != PLX_ERR_IO_WRITE && error != PLX_ERR_STICKY)
        return error;
    pthread_mutex_lock(&a->claims_lock);
    seen = a->distrust;
    pthread_mutex_unlock(&a->claims_lock);
    if (!seen.code)
        return error;
    return plx_fault_set(
        fault, PLX_ERR_CORRUPT, "%.*s: %.280s; 'parallax store check %s' says what to do%.100s",
        (int)plx_min_u64(first, 120), what.text, seen.text, a->known.name, what.text + first);
}

int plx_attach_name_damage(struct plx_attach *a, int error, struct plx_fault *fault)
{
    bool damaged;

    if (!a)
        return error;
    pthread_mutex_lock(&a->claims_lock);
    damaged = a->damaged || a->damage_claiming;
    pthread_mutex_unlock(&a->claims_lock);
    if (!damaged)
        return name_distrust(a, error, fault);
    plx_attach_name_unclaimed(a, error, fault); /* as long as the code is REGISTRY */
    return plx_attach_known_damage(&a->known, error, fault);
}

int plx_attach_name_doubt(struct plx_attach *a, int error, struct plx_fault *fault)
{
    struct plx_registry_store now;

    if (error != PLX_ERR_REGISTRY || !strstr(fault->text, SCHEMA_ON_DOUBT) || !a->registry ||
        plx_registry_store_get(a->registry, a->known.uuid, &now) || !now.doubt[0])
        return error;
    return plx_fault_set(fault, PLX_ERR_DOUBT, "store %s is in doubt: %s%s", now.name, now.doubt,
                         plx_registry_doubt_advice(&now));
}

static void attach_free(struct plx_attach *a)
{
    plx_attach_unregister_instance(a);
    for (struct plx_owned_extent *owned; (owned = plx_attach_pop(a, &a->extents));)
        free(owned);
    for (struct plx_owned_extent *owned; (owned = plx_attach_pop(a, &a->refused));)
        free(owned);
    for (struct plx_owned_extent *owned; (owned = plx_attach_pop(a, &a->taken));)
        free(owned);
    plx_registry_close(a->registry);
    plx_registry_close(a->claims_registry);
    plx_tenancy_end(a->tenancy);
    plx_known_done(&a->known);
    pthread_mutex_destroy(&a->clocks_lock);
    pthread_mutex_destroy(&a->claims_lock);
    free(a);
}

/* The hooks that belong to the caller's loop. The tenancy's thread may read the others meanwhile.
 */
static void hook(struct plx_attach *a, const struct plx_attach_options *options)
{
    a->options.lock = options->lock;
    a->options.unlock = options->unlock;
    a->options.tick = options->tick;
    a->options.idle = options->idle;
    a->options.defer = options->defer;
    a->options.room_wanted = options->room_wanted;
}

static void unhook(struct plx_attach *a)
{
    const struct plx_attach_options none = {.store = NULL};

    hook(a, &none);
}

int plx_attach_open(const struct plx_attach_options *options, struct plx_attach **ret_attach,
                    struct plx_fault *fault)
{
    struct plx_attach *a = calloc(1, sizeof *a);
    int error;

    if (!a)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    a->options = *options;
    pthread_mutex_init(&a->claims_lock, NULL);
    pthread_mutex_init(&a->clocks_lock, NULL);
    plx_attach_hook_env(&a->env);
    for (int type = 0; type <= PLX_EXTENT_META; type++)
        a->claims[type] = (struct plx_claim){.attach = a, .type = (enum plx_extent_type)type};
    unhook(a); /* the caller does not know the store yet: its loop is not used before the end */
    error = plx_paths_init(&a->paths, options->state_dir, fault);
    a->env.boot_id = plx_clocks_boot_id(&a->paths);
    if (!error)
        error = plx_known_get(&a->paths, options->store, &a->known, fault);
    if (!error)
        error = plx_known_missing(&a->known, open_registries(a, fault), fault);
    if (!error)
        error = find_row(a, fault);
    if (!error)
        /* COUNTED-1 */
        error = plx_known_missing(
            &a->known, plx_counted_check(a->registry, a->row.id, &a->known, true, fault), fault);
    if (!error && !options->read_only)
        error = plx_attach_register_instance(a, fault);
    if (!error && !options->registry_only)
        error = plx_known_missing(&a->known, plx_attach_open_store(a, fault), fault);
    a->keeps = options->reopens;
    if (!error && !options->read_only)
        error = plx_attach_recover(a, fault);
    a->keeps = false;
    if (error) {
        error = plx_attach_name_damage(a, error, fault);
        error = plx_attach_name_doubt(a, error, fault); /* recovery is refused, too */
        if (a->store)
            plx_attach_close(a);
        else
            attach_free(a);
        return error;
    }
    hook(a, options);
    if (!options->read_only && a->store) /* an older entry was put back */
        plx_attach_know_further(a);
    *ret_attach = a;
    return 0;
}

/* What is given back when the attach is closed. */
struct returned {
    struct plx_registry_extent *rows;
    size_t count, capacity;
};

static int return_row(struct returned *returned, const struct plx_registry_extent *row)
{
    if (!PLX_LIST_ROOM(returned->rows, returned->count, returned->capacity, 16))
        return PLX_ERR_NOMEM;
    returned->rows[returned->count++] = *row;
    return 0;
}

/* An extent that was claimed and that the engine could not be told of (struct plx_claim, stranded).
 * A fresh one is unused again. One that was taken to free blocks in it keeps its type. */
static int return_stranded(struct plx_attach *a, struct returned *returned)
{
    int error = 0;

    for (int type = PLX_EXTENT_DATA; type <= PLX_EXTENT_META && !error; type++) {
        struct plx_claim *claim = &a->claims[type];

        if (claim->fresh)
            claim->row.type = PLX_EXTENT_UNUSED;
        if (claim->stranded)
            error = return_row(returned, &claim->row);
    }
    return error;
}

/* Collects the rows of all extents that this instance has, and releases them in the store first:
 * their header pages name no owner then. */
static int return_extents(struct plx_attach *a, struct returned *returned)
{
    struct plx_extent_info info;
    int error = return_stranded(a, returned);

    if (!error)
        error = plx_attach_tell_doubt(a, a->registry);
    for (struct plx_owned_extent *owned; !error && (owned = plx_attach_pop(a, &a->refused));
         free(owned))
        error = return_row(returned, &owned->row);
    if (!error)
        plx_store_extents_leave(a->store);
    for (size_t i = 0; !error && plx_store_extent_owned(a->store, i, &info) == 0;) {
        struct plx_registry_extent row;
        struct plx_owned_extent *owned;

        error = plx_store_extent_release(a->store, info.number, &info, NULL);

        if (error == PLX_ERR_NOT_FOUND) { /* adopted, not yet usable: the next attach goes on */
            i++;
            error = 0;
            continue;
        }
        owned = error ? NULL : plx_attach_forget_extent(a, info.number);
        if (!owned)
            continue;
        row = owned->row;
        free(owned);
        row.states = info.states;
        row.free_blocks = info.blocks - info.used_blocks;
        row.sealed = info.sealed || row.free_blocks == 0;
        if (info.used_blocks == info.header_blocks && !info.sealed)
            row.type = PLX_EXTENT_UNUSED;
        error = return_row(returned, &row);
    }
    return error;
}

/* The registry's part: gives the extents and the instance's row up in one commit. BUSY: a disk
 * could not be closed (ATTACH-2), so the row stays, and only the extents are given up. Whatever
 * fails stays with the row, whose byte lock is free, and the next attach recovers it. */
static int leave(struct plx_attach *a, const struct returned *returned)
{
    int error = 0;

    if (!plx_registry_take_back(a->registry)) /* ATTACH-13: else nothing was ever changed */
        error = plx_registry_instance_leave(a->registry, a->row.id, a->instance.row.id,
                                            returned->rows, returned->count);
    if (error == PLX_ERR_BUSY) {
        error = 0;
        for (size_t i = 0; i < returned->count && !error; i++)
            error = plx_registry_extent_release(a->registry, a->row.id, &returned->rows[i]);
    }
    plx_instance_close(&a->instance);
    a->registered = false;
    return error;
}

int plx_attach_close_why(struct plx_attach *a, struct plx_fault *fault)
{
    struct returned returned = {0};
    int error = 0, closed;

    PLX_ASSERT(!a->vdis);
    plx_attach_let_all_go(a);
    /* The caller's loop has ended. Claims that it deferred are answered here. */
    plx_attach_wait_for_claims(a);
    unhook(a);
    if (!a->options.read_only) {
        plx_store_settle(a->store);
        error = return_extents(a, &returned);
        plx_numbers_closing(a);
    }
    closed = a->store ? plx_store_close(a->store) : 0;
    plx_fault_set(fault, error ? error : closed, "%s", plx_error_text(error ? error : closed));
    if (!error && a->registered && (error = leave(a, &returned)))
        plx_registry_fault(a->registry, error, fault);
    free(returned.rows);
    if (error)
        plx_attach_env_event(&a->env, error,
                             "extents could not be given back; the next opening takes them");
    attach_free(a);
    return error ? error : closed;
}

int plx_attach_close(struct plx_attach *a)
{
    return plx_attach_close_why(a, NULL);
}

const struct plx_fault *plx_attach_in_the_way(const struct plx_attach *attach)
{
    return attach->in_the_way.code ? &attach->in_the_way : NULL;
}

const char *plx_attach_went_back(const struct plx_attach *attach)
{
    return attach->went_back.code ? attach->went_back.text : NULL;
}

struct plx_store *plx_attach_store(struct plx_attach *attach)
{
    return attach->store;
}

struct plx_registry *plx_attach_registry(struct plx_attach *attach)
{
    return attach->registry;
}

void plx_attach_row(const struct plx_attach *attach, struct plx_registry_store *ret_row)
{
    *ret_row = attach->row;
}

void plx_attach_shown_id(const struct plx_attach *attach, const char *vdi,
                         char ret_text[PLX_UUID_TEXT])
{
    struct plx_uuid store, identity, id;

    plx_uuid_parse(attach->known.uuid, &store);
    plx_uuid_parse(attach->known.identity, &identity);
    if (plx_uuid_parse(vdi, &id))
        id = plx_uuid_shown(&store, &identity, &id);
    else
        memset(&id, 0, sizeof id); /* no registry that passed its checks has such an id */
    plx_uuid_text(&id, ret_text);
}

int plx_attach_control_path(const struct plx_attach *attach, char ret_path[PLX_PATH_MAX],
                            struct plx_fault *fault)
{
    plx_paths_control(&attach->paths, attach->instance.row.id, ret_path);
    return plx_paths_make_control(&attach->paths, fault);
}
