/* attach_collect.c - a collection of a store's garbage: where the engine's mark and sweep
 * (collect.c) and the registry (collections.c) meet.
 *
 * ATTACH_COLLECT-1  A collection is entered in the registry before it begins, and stays entered
 *     until everything it found is swept. So no second one begins, and an instance that frees
 *     blocks in an extent that had no owner knows of the collection (ALLOC-6).
 * ATTACH_COLLECT-2  A collection looks at extents of this instance and at extents without an owner.
 *     What it found in an extent counts only if the extent has the same generation at the sweep as
 *     at the beginning. Otherwise the extent has changed hands, and blocks found free may be used.
 * ATTACH_COLLECT-3  What is found is entered in the registry before any of it is freed. The entry
 *     of an extent is removed before that extent is swept, so no block is freed twice. After a
 *     crash the next collection sweeps what is still entered.
 * ATTACH_COLLECT-4  If an extent moved to another instance while the disks were read, the reading
 *     begins again, because other nodes may have taken the place of those that were read there.
 * ATTACH_COLLECT-5  Rows of deleted disks are removed when all slices are done. Blocks of these
 *     disks are left only in extents of other processes, and no record is needed to find them.
 * ATTACH_COLLECT-6  Before and after a slice is read, the record of every live disk is compared
 *     with the registry (doors.h). If the store has forgotten a disk, the collection ends, because
 *     it would give that disk's blocks away.
 * ATTACH_COLLECT-7  An extent without an owner is swept only if its header is as its last owner
 *     gave it up. An older one is never believed again (ATTACH-10), and later collections pass it
 *     over. A newer one puts the registry in doubt (DOORS-4), and the collection ends.
 * ATTACH_COLLECT-8  A collection enters only as much as the registry has room for, and fails if
 *     that is nothing. The next one finds the rest, and the room that sweeping freed.
 * Threads: one call at a time on an attach; others may use the attach inside pause().
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attach/collect_inside.h"

/* ---- Entering ---- */

/* Of the collection that was entered last: its instance, which may be dead. */
static int dead_collector(const struct plx_attach_inside *in, uint64_t *ret_last,
                          uint64_t *ret_dead, struct plx_fault *fault)
{
    struct plx_registry_collection last = {0};
    struct plx_registry_instance *list;
    size_t count;
    int error;

    plx_registry_collection_get(in->registry, in->store_row, &last); /* there may be none */
    error = plx_registry_instance_list(in->registry, in->store_row, &list, &count);
    if (error)
        return plx_registry_fault(in->registry, error, fault);
    *ret_last = *ret_dead = last.instance;
    for (size_t i = 0; i < count; i++)
        if (list[i].id == last.instance &&
            !plx_instance_is_dead(in->paths, plx_registry_locks(in->registry), &list[i], NULL))
            *ret_dead = 0;
    free(list);
    return 0;
}

int plx_attach_enter_collection(struct plx_attach *attach,
                                struct plx_registry_collection *ret_entered, bool *ret_waited,
                                struct plx_fault *fault)
{
    uint64_t since_ns = plx_clock_ns(CLOCK_MONOTONIC), last, dead;
    struct plx_attach_inside in;
    struct plx_fault why;
    int error;

    plx_attach_get_inside(attach, &in);
    for (*ret_waited = false;; *ret_waited = true) {
        error = dead_collector(&in, &last, &dead, fault);
        if (error)
            return error;
        error = plx_registry_collection_begin(in.registry, in.store_row, in.instance, dead,
                                              ret_entered);
        if (!error)
            return 0;
        plx_registry_fault(in.registry, error, &why);
        if (error != PLX_ERR_BUSY || !plx_attach_ends_soon(attach, last) ||
            !plx_attach_waits(attach, since_ns, &why))
            return plx_fault_set(fault, error, "%s", why.text);
    }
}

/* ---- The whole ---- */

/* Whether the row is still as it was read: then its record should be, too. */
static bool unchanged(const struct collect *c, const struct plx_registry_vdi *row)
{
    struct plx_registry_vdi now;

    return plx_registry_vdi_get_by_id(c->in.registry, row->id, &now) == 0 && !now.deleted &&
           now.owner == row->owner && now.epoch == row->epoch;
}

/* ATTACH_COLLECT-6: a store that has forgotten a live disk would give its blocks away. */
static int check_record(struct collect *c, const struct plx_registry_vdi *row)
{
    struct plx_vdi_info info;
    struct plx_fault why = {0};
    int error;

    plx_attach_lock(c->attach);
    error = plx_door_read(c->in.store, row, &info, &why);
    plx_attach_unlock(c->attach);
    if (error == PLX_ERR_NOT_FOUND || (!error && info.state != PLX_VDI_LIVE && row->owner))
        return 0; /* being made, or deleted */
    if (!error && info.state != PLX_VDI_LIVE)
        error = plx_fault_set(
            &why, PLX_ERR_CORRUPT,
            "virtual disk %.80s is deleted on the store, and the registry does not know of it: it "
            "lost a write; 'parallax store rebuild-registry' rebuilds it from the store",
            row->name);
    if (!error || !unchanged(c, row))
        return 0;
    if (error == PLX_ERR_REGISTRY && !c->work->dry_run) /* DOORS-2 */
        plx_registry_doubt(c->in.registry, c->in.store_row, why.text);
    return plx_fault_set(c->fault, error, "%s", why.text);
}

static int check_records(struct collect *c)
{
    struct plx_registry_vdi *list = NULL;
    size_t count = 0;
    int error =
        plx_registry_vdi_list(c->in.registry, c->in.store_row, false, NULL, 0, &list, &count);

    if (error)
        return plx_registry_fault(c->in.registry, error, c->fault);
    for (size_t i = 0; i < count && !error; i++)
        error = check_record(c, &list[i]);
    free(list);
    return error;
}

static int collect_slice(struct collect *c, uint64_t from, uint64_t *ret_next)
{
    struct plx_collect *mark;
    int error = check_records(c);

    if (!error)
        error = plx_collecting_mark_slice(c, from, ret_next, &mark);
    if (error)
        return error;
    error = check_records(c);
    if (!error)
        error = plx_collecting_judge_slice(c, mark);
    plx_collecting_end_mark(c, mark);
    c->result->slices++;
    c->metadata_before = c->result->metadata_bytes;
    return error || c->work->dry_run ? error : plx_collecting_sweep(c);
}

/* ATTACH_COLLECT-5: clones before those they came from. */
static int forget_deleted(const struct collect *c, const struct plx_registry_vdi *deleted,
                          size_t count)
{
    bool some = true;

    while (some) {
        some = false;
        for (size_t i = 0; i < count; i++) {
            int error = plx_registry_vdi_purge(c->in.registry, deleted[i].id);

            some = some || !error;
            if (error && error != PLX_ERR_BUSY && error != PLX_ERR_NOT_FOUND)
                return plx_registry_fault(c->in.registry, error, c->fault);
        }
    }
    return 0;
}

static int collect_all(struct collect *c)
{
    struct plx_registry_vdi *deleted = NULL;
    uint64_t from = 0;
    size_t count = 0;
    int error =
        plx_registry_vdi_list(c->in.registry, c->in.store_row, true, NULL, 0, &deleted, &count);

    if (error)
        return plx_registry_fault(c->in.registry, error, c->fault);
    error = plx_collecting_list_extents(c, &c->before);
    for (size_t i = 0; i < c->before.count && !error; i++) {
        const struct plx_registry_extent *row = &c->before.rows[i];

        c->result->elsewhere += plx_collecting_in_use(row) && !plx_collecting_is_ours(c, row);
        if (row->type == PLX_EXTENT_META)
            c->metadata_total += (c->extent_blocks - row->free_blocks) << PLX_BLOCK_SHIFT;
    }
    /* An estimate: free_blocks is that of the last release. */
    while (!error && from < c->extent_count)
        error = collect_slice(c, from, &from);
    for (uint64_t e = 0; e < c->extent_count; e++)
        c->result->missed += c->moved[e];
    if (!error && !c->work->dry_run)
        error = forget_deleted(c, deleted, count);
    free(deleted);
    return error;
}

static int collect_init(struct collect *c)
{
    struct plx_store_info info;

    plx_attach_get_inside(c->attach, &c->in);
    plx_attach_lock(c->attach);
    plx_store_get_info(c->in.store, &info);
    plx_attach_unlock(c->attach);
    c->extent_blocks = info.extent_blocks;
    c->extent_count = info.extents;
    c->classes = calloc(c->extent_count, 1);
    c->moved = calloc(c->extent_count, 1);
    c->bits = malloc((size_t)(c->extent_blocks / 8));
    return c->classes && c->moved && c->bits ? 0 : plx_collecting_no_memory(c);
}

static void collect_done(struct collect *c)
{
    free(c->living);
    free(c->before.rows);
    free(c->classes);
    free(c->moved);
    free(c->bits);
}

/* ATTACH_COLLECT-1 */
static int collect_entered(struct collect *c)
{
    struct plx_registry_collection entered;
    bool waited;
    int error = plx_attach_enter_collection(c->attach, &entered, &waited, c->fault);

    if (error)
        return error;
    if (waited)
        error = plx_collecting_list_living(c);
    if (!error && entered.sweeping) {
        c->result->resumed = true;
        error = plx_collecting_sweep(c);
    }
    if (!error)
        error = collect_all(c);
    if (error && (c->result->resumed || c->result->found > c->result->swept))
        return error; /* the next one goes on with it */
    if (c->result->missed)
        plx_registry_collection_want(c->in.registry, c->in.store_row);
    if (plx_registry_collection_end(c->in.registry, c->in.store_row, c->in.instance,
                                    c->result->swept, error ? 0 : entered.wanted) &&
        !error)
        error = plx_registry_fault(c->in.registry, PLX_ERR_REGISTRY, c->fault);
    return error;
}

int plx_attach_collect(struct plx_attach *attach, const struct plx_attach_work *work,
                       struct plx_collected *ret_collected, struct plx_fault *fault)
{
    struct collect c = {.attach = attach, .work = work, .result = ret_collected, .fault = fault};
    uint64_t begun_ns = plx_clock_ns(CLOCK_MONOTONIC);
    int error;

    *ret_collected = (struct plx_collected){0};
    error = collect_init(&c);
    if (!error && c.in.instance) /* else it is open for reading */
        error = plx_attach_recover(attach, fault);
    if (!error)
        error = plx_collecting_list_living(&c);
    if (!error)
        error = work->dry_run ? collect_all(&c) : collect_entered(&c);
    collect_done(&c);
    ret_collected->nanoseconds = plx_clock_ns(CLOCK_MONOTONIC) - begun_ns;
    return error;
}
