/* logged.c - what a disk does for its log: the calls of struct plx_log_disk (log.h). It finds room
 * for a segment, and takes part in the snapshots that the log adds by itself (protect.c).
 *
 * Invariants: those of log.c and protect.c.
 * Loop: the disk's; never blocks. Crash story: memory only.
 */
#include "engine/disk/reserve.h"
#include "engine/disk/vdi.h"

/* A key frame that has only its announcement left takes the segment for it from the reserve: it
 * must not wait for room that others make by waiting for this key frame (RESERVE-5). */
static int room(struct plx_vdi *vdi, uint64_t blocks, struct plx_task *task, unsigned *waits)
{
    if (plx_keyframe_goes_on(vdi) || plx_reserve_room(vdi, 0, blocks))
        return 0;
    return plx_reserve_wait(vdi->store, task, waits);
}

static bool hurries(const struct plx_vdi *vdi)
{
    return vdi->closing;
}

uint64_t plx_vdi_snapshot_time(struct plx_vdi *vdi)
{
    struct plx_vdi_clock clock;

    plx_vdi_look_at_clock(vdi, &clock);
    if (!vdi->map.gen)
        plx_vdi_tell_witness(vdi);
    vdi->last_snapshot_ns =
        plx_witness_stamp(&clock.witness, clock.now.wall_ns, vdi->last_snapshot_ns);
    return vdi->last_snapshot_ns;
}

static uint64_t snapshot_ordered(struct plx_vdi *vdi, uint64_t seq, bool changes)
{
    uint64_t time_ns = plx_vdi_snapshot_time(vdi);

    vdi->changed = vdi->protect.changed = changes;
    plx_protect_tell(vdi, PLX_AUTOMATIC_ORDERED, seq, time_ns);
    return time_ns;
}

static void snapshot_dropped(struct plx_vdi *vdi, uint64_t seq, uint64_t time_ns)
{
    plx_protect_tell(vdi, PLX_AUTOMATIC_DROPPED, seq, time_ns);
    plx_protect_note_change(vdi);
}

static void snapshot_taken(struct plx_vdi *vdi, uint64_t seq, uint64_t time_ns, bool durable)
{
    vdi->counters.snapshots++;
    vdi->gen_ns = time_ns;
    if (durable)
        plx_protect_tell(vdi, PLX_AUTOMATIC_TAKEN, seq, time_ns);
}

const struct plx_log_disk plx_logged = {
    .room = room,
    .holds_snapshots = plx_keyframe_goes_first,
    .hurries = hurries,
    .snapshot_ordered = snapshot_ordered,
    .snapshot_dropped = snapshot_dropped,
    .snapshot_taken = snapshot_taken,
};
