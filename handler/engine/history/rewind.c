/* rewind.c - a disk's contents become those of an older instant: a clone in its own place.
 *
 * REWIND-1  The state before is a snapshot, and labelled, before anything changes: so whoever went
 *     back can go forth again, even if it was not he who ended it but a crash.
 * REWIND-2  One flip of the record does it. The key frame in it names a tree written out whole from
 *     the instant, all of it read-only (INV-3), at the log's position; and the record's table holds
 *     the snapshot and the tree, until history begins here or later (REWIND-5).
 * REWIND-3  From the snapshot of the state before until the log has announced that key frame
 *     nothing else is logged: requests wait behind a barrier. So every snapshot either was taken
 *     before and is found through an older key frame, or comes after and is found through this one
 *     (keyframe.c, KEYFRAME-3).
 * REWIND-4  The changes in memory go into an ordinary key frame first, behind the barrier what came
 *     since: so none has to be thrown away, what died is freed in the usual way, and the snapshot
 *     of the state before, which is the next record in the log, needs that key frame's nodes.
 * REWIND-5  An entry of that table goes with the record that says so: history begins with its key
 *     frame (RECLAIM-9) or later. Until then all of the tree stays: nobody frees what is read-only
 *     but who lets history go.
 *
 * Synchronous; runs the loop meanwhile.
 * Crash story: before the record flips nothing has changed but that there is a snapshot more; the
 *   tree's nodes are leaks that a sweep finds. After it the disk is what it was then: the log holds
 *   nothing behind the key frame, recovery's own key frame stands in the same place and announces
 *   it.
 */
#include <stdio.h>

#include "engine/disk/vdi.h"

static int check(struct plx_vdi *vdi, const struct plx_rewind_options *options,
                 struct plx_fault *fault)
{
    const char *name = vdi->record.name;

    if (vdi->snapshot)
        return plx_fault_set(fault, PLX_ERR_READONLY, "this is a snapshot");
    if (!options->seq)
        return plx_fault_set(fault, PLX_ERR_INVALID, "snapshots are numbered from 1 on");
    if (vdi->thinning || vdi->rewinding)
        return plx_fault_set(fault, PLX_ERR_BUSY,
                             "virtual disk %s: old snapshots are being let go, or it is being "
                             "rewound; try again when that is done",
                             name);
    if (vdi->record.rewinds == PLX_REWINDS_MAX)
        return plx_fault_set(fault, PLX_ERR_INVALID, /* more space would be no help */
                             "virtual disk %s was rewound %u times, as often as its record can "
                             "hold; clone the snapshot and use the clone",
                             name, PLX_REWINDS_MAX);
    return plx_vdi_health(vdi, fault);
}

static int fail(const struct plx_vdi *vdi, const struct plx_rewind_options *options, int error,
                struct plx_fault *fault)
{
    return plx_fault_set(fault, error,
                         vdi->log.sticky ? "virtual disk %s: rewinding it to snapshot %llu: %s; "
                                           "whether it was shows when it is opened again"
                                         : "virtual disk %s: rewinding it to snapshot %llu: %s; "
                                           "nothing has changed",
                         vdi->record.name, (unsigned long long)options->seq, plx_error_text(error));
}

/* REWIND-4 */
static int settle_changes(struct plx_vdi *vdi)
{
    int error = 0;

    while (!error && (vdi->map.active.count || vdi->map.is_frozen)) {
        struct plx_request request = {.op = PLX_KEYFRAME};

        error = plx_vdi_run(vdi, &request);
        plx_vdi_drain(vdi);
    }
    return error;
}

/* REWIND-1. Always a new one: the key frame before it has no other use. */
static int keep_state(struct plx_vdi *vdi, const char *label, struct plx_snapshot_info *ret_before)
{
    struct plx_request snapshot = {.op = PLX_SNAPSHOT}, labelling = {.op = PLX_LABEL};
    int error;

    vdi->changed = true;
    error = plx_vdi_run(vdi, &snapshot);
    if (error)
        return error;
    *ret_before = (struct plx_snapshot_info){
        .seq = snapshot.seq, .time_ns = snapshot.time_ns, .size_bytes = vdi->size_bytes};
    if (!label)
        return 0;
    labelling.seq = snapshot.seq;
    snprintf(labelling.label, sizeof labelling.label, "%s", label);
    return plx_vdi_run(vdi, &labelling);
}

/* The announcement must not fail for want of space. */
static int make_room_in_log(struct plx_vdi *vdi)
{
    plx_log_want_spare(&vdi->log);
    plx_vdi_drain(vdi);
    return vdi->log.spare_addr ? 0 : vdi->log.spare_error;
}

/* Behind the barrier (REWIND-3). */
static int change_over(struct plx_vdi *vdi, const struct plx_rewind_options *options,
                       struct plx_keyframe_detour *detour, struct plx_snapshot_info *ret_before)
{
    int error;

    plx_vdi_drain(vdi);
    error = settle_changes(vdi);
    if (!error)
        error = keep_state(vdi, options->label, ret_before);
    if (!error)
        error = make_room_in_log(vdi);
    if (error)
        return error;
    PLX_ASSERT(plx_vdi_idle(vdi) && vdi->map.gen == ret_before->seq);
    vdi->keyframe.detour = detour;
    return plx_keyframe_run(vdi);
}

static int rewind_to(struct plx_vdi *vdi, struct plx_vdi *instant,
                     const struct plx_rewind_options *options, struct plx_snapshot_info *ret_before)
{
    struct plx_keyframe_detour detour = {
        .seq = options->seq,
        .flush_mark = vdi->store->flush_failures,
    };
    struct plx_request keyframe = {.op = PLX_KEYFRAME};
    struct plx_whole whole = {0};
    int error = plx_vdi_wait_metadata_room(vdi);

    if (!error)
        error = plx_vdi_write_whole(instant, vdi->size_bytes, &whole);
    if (!error)
        error = plx_vdi_run(vdi, &keyframe); /* so that little is left to do behind the barrier */
    detour.root = whole.root;
    detour.levels = whole.levels;
    detour.mapped = whole.mapped;
    detour.vouched = whole.vouched;
    detour.made = whole.made;
    if (!error) {
        vdi->barrier = true;
        error = change_over(vdi, options, &detour, ret_before);
        vdi->barrier = false;
    }
    plx_deaths_give_back(vdi->store, &detour.made, NULL);
    return error;
}

int plx_vdi_rewind(struct plx_vdi *vdi, const struct plx_rewind_options *options,
                   struct plx_snapshot_info *ret_before, struct plx_fault *fault)
{
    struct plx_vdi *instant;
    int error = check(vdi, options, fault);

    if (error)
        return error;
    vdi->rewinding = true;
    error = plx_snapshot_open(vdi->store, vdi->record.slot, options->seq, &instant, fault);
    if (!error) {
        error = rewind_to(vdi, instant, options, ret_before);
        plx_vdi_abandon(instant);
        if (error)
            fail(vdi, options, error, fault);
    }
    vdi->rewinding = false;
    return error;
}
