/* rewind.c - gives a disk the contents of an older snapshot, in place: plx_vdi_rewind() of
 * engine_history.h.
 *
 * It works like a clone that replaces its origin. A key frame is the checkpoint of a disk's map;
 * the rewind writes one for the old snapshot and lets the disk's own record name it. One call, step
 * by step; the record flips in step 7:
 *
 *  no  step                       function                       requests of the disk
 *   1  open the old snapshot      plx_snapshot_open              go on
 *   2  write its tree, whole      plx_vdi_write_whole            go on
 *   3  ordinary key frame         plx_vdi_run                    go on
 *   4  raise the barrier, drain   change_over                    wait from here on
 *   5  flush changes to the tree  settle_changes (REWIND-4)      wait
 *   6  snapshot and label it      keep_state (REWIND-1)          wait
 *   7  key frame with the detour  plx_keyframe_run (REWIND-2)    wait
 *   8  REWIND record announced    end of that key frame          go on when it is durable
 *
 * REWIND-1  Before anything changes, the current state becomes a snapshot, labelled if the caller
 *     gives a label. So the operator can go forward again, even if a crash ended the call.
 * REWIND-2  One write of the VDI record changes the disk's contents. The key frame in that record
 *     stands at the log's position and names the tree of step 2, all of it read-only (INV-3). The
 *     record's table of rewinds holds the old snapshot and that tree, until history begins at this
 *     key frame or later (REWIND-5).
 * REWIND-3  From the snapshot of step 6 until the log has announced the key frame, nothing else is
 *     logged, because requests wait behind a barrier. So every snapshot is found either through a
 *     key frame before the rewind or through the rewind's own (KEYFRAME-3), and never by a replay
 *     from one side to the other.
 * REWIND-4  Changes in memory go into ordinary key frames before the snapshot of step 6. So no
 *     change is thrown away, and blocks that died are freed in the usual way. The last of these key
 *     frames keeps all its nodes, because the snapshot is the next record in the log.
 * REWIND-5  An entry leaves the table with the same record that lets history begin at its key frame
 *     (RECLAIM-9) or later. Until then all of the tree of step 2 stays: it is read-only, and
 *     read-only nodes and blocks are freed only when snapshots go.
 * REWIND-6  Who asks for the rewind can end it until step 6 begins. From then on it goes on to its
 *     end, because a snapshot and a label cannot be taken back.
 *
 * Loop: the disk's store. The call is synchronous and runs the loop.
 * Crash story: before the record of step 7 is durable, the disk has its old contents and perhaps
 *   one more snapshot; the nodes of the new tree are leaks that a garbage collection finds. After
 *   it, the disk has the old snapshot's contents. The log holds nothing behind the key frame, so
 *   recovery writes its own key frame at the same position, and that one logs the REWIND record.
 */
#include <stdio.h>

#include "engine/history/past.h"

static int begin(struct plx_vdi *vdi, const struct plx_rewind_options *options,
                 struct plx_fault *fault)
{
    const char *name = vdi->record.name;
    int error;

    if (vdi->snapshot)
        return plx_fault_set(fault, PLX_ERR_READONLY, "this is a snapshot");
    if (!options->seq)
        return plx_fault_set(fault, PLX_ERR_INVALID, "snapshots are numbered from 1 on");
    if (vdi->front)
        return plx_fault_set(fault, PLX_ERR_BUSY,
                             "virtual disk %s: its write-back ring has to be turned off first",
                             name);
    if (vdi->record.rewinds == PLX_REWINDS_MAX)
        return plx_fault_set(fault, PLX_ERR_INVALID, /* not NOSPACE: more space would not help */
                             "virtual disk %s was rewound %u times, as often as its record can "
                             "hold; clone the snapshot and use the clone",
                             name, PLX_REWINDS_MAX);
    error = plx_vdi_health(vdi, fault);
    return error ? error : plx_past_begin(vdi, fault);
}

/* REWIND-6 */
static bool is_interrupted(const struct plx_rewind_options *options)
{
    return options->interrupted && options->interrupted(options->context);
}

static int fail(const struct plx_vdi *vdi, const struct plx_rewind_options *options, int error,
                struct plx_fault *fault)
{
    if (error == PLX_ERR_SYSTEM && !vdi->log.sticky && is_interrupted(options))
        return plx_fault_set(fault, error,
                             "interrupted; virtual disk %s was not rewound to snapshot %llu, and "
                             "nothing has changed",
                             vdi->record.name, (unsigned long long)options->seq);
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

/* REWIND-1. `changed` makes it a new snapshot even if nothing has changed since the last one: only
 * a snapshot behind it keeps the last key frame's nodes (REWIND-4). */
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

/* Makes sure that a spare log segment is at hand, since the announcement must not fail for want of
 * space. */
static int make_room_in_log(struct plx_vdi *vdi)
{
    plx_log_want_spare(&vdi->log);
    plx_vdi_drain(vdi);
    return vdi->log.spare_addr ? 0 : vdi->log.spare_error;
}

/* Steps 4 to 8, behind the barrier (REWIND-3). */
static int change_over(struct plx_vdi *vdi, const struct plx_rewind_options *options,
                       struct plx_keyframe_detour *detour, struct plx_snapshot_info *ret_before)
{
    int error;

    plx_vdi_drain(vdi);
    error = settle_changes(vdi);
    if (!error && is_interrupted(options))
        error = PLX_ERR_SYSTEM;
    if (!error)
        error = keep_state(vdi, options->label, ret_before);
    if (!error)
        error = make_room_in_log(vdi);
    if (error)
        return error;
    PLX_ASSERT(plx_vdi_idle(vdi) && vdi->map.gen == ret_before->seq);
    vdi->keyframe.detour = detour; /* REWIND-2 */
    return plx_keyframe_run(vdi);
}

static int rewind_to(struct plx_vdi *vdi, struct plx_vdi *instant,
                     const struct plx_rewind_options *options, struct plx_snapshot_info *ret_before)
{
    struct plx_keyframe_detour detour = {
        .seq = options->seq,
        .flush_mark = plx_flush_mark(vdi->store),
    };
    struct plx_request keyframe = {.op = PLX_KEYFRAME};
    struct plx_whole whole = {.interrupted = options->interrupted, .context = options->context};
    int error = plx_vdi_wait_metadata_room(vdi);

    if (!error)
        error = plx_vdi_write_whole(instant, vdi->size_bytes, &whole);
    if (!error)
        error = plx_vdi_run(vdi, &keyframe); /* leaves little to do behind the barrier */
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
    int error = begin(vdi, options, fault);

    if (error)
        return error;
    error = plx_snapshot_open(vdi->store, vdi->record.slot, options->seq, &instant, fault);
    if (!error) {
        error = rewind_to(vdi, instant, options, ret_before);
        plx_vdi_abandon(instant);
        if (error)
            fail(vdi, options, error, fault);
    }
    plx_past_end(vdi);
    return error;
}
