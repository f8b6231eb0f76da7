/* disk_clock.c - a disk looks at the clocks: whether its snapshots get the wall clock's time, and
 * may expire (PROTECT-7). base/witness.c has the rule.
 *
 * Loop: the disk's; never blocks. Crash story: memory only.
 */
#include "engine/disk/protect.h"
#include "engine/disk/vdi.h"

static void read_clock(struct plx_vdi *vdi, struct plx_vdi_clock *ret_clock)
{
    ret_clock->now = plx_clocks_read(vdi->store->env);
    ret_clock->ends = (struct plx_history_ends){
        .forgotten = vdi->record.oldest.snap_seq,
        .taken_seq = vdi->map.gen,
        .newest_seq = plx_max_u64(vdi->front ? vdi->front->snapshots : 0,
                                  plx_max_u64(vdi->map.gen_submitted, vdi->log.cursor.snap_seq)),
        .newest_ns = vdi->last_snapshot_ns,
        .unsettled = vdi->log.sticky != 0,
    };
}

static void tell_doubt(struct plx_vdi *vdi, enum plx_doubt before,
                       const struct plx_vdi_clock *clock)
{
    char why[PLX_DOUBT_TEXT];

    if (clock->witness.doubt == before)
        return;
    if (clock->witness.doubt)
        plx_store_event(vdi->store, PLX_ERR_CLOCK,
                        "virtual disk %s: %s; until it is right again, or 'parallax cdp resume' "
                        "confirms it, no snapshot expires",
                        vdi->record.name,
                        plx_witness_text(&vdi->witness, &clock->now, &clock->ends, why));
    else
        plx_store_event(vdi->store, 0,
                        "virtual disk %s: the wall clock is believed again, and snapshots "
                        "expire",
                        vdi->record.name);
}

/* WITNESS-9 */
void plx_vdi_tell_witness(struct plx_vdi *vdi)
{
    struct plx_env *env = vdi->store->env;

    if (env->witness_changed)
        env->witness_changed(env, &vdi->record.id, &vdi->witness);
}

static void changed(struct plx_vdi *vdi, const struct plx_witness *before,
                    struct plx_vdi_clock *ret_clock)
{
    ret_clock->witness = vdi->witness;
    if (plx_witness_differs(&vdi->witness, before))
        plx_vdi_tell_witness(vdi);
    tell_doubt(vdi, before->doubt, ret_clock);
}

void plx_vdi_look_at_clock(struct plx_vdi *vdi, struct plx_vdi_clock *ret_clock)
{
    struct plx_witness before = vdi->witness;

    read_clock(vdi, ret_clock);
    plx_witness_look(&vdi->witness, &ret_clock->now, &ret_clock->ends);
    changed(vdi, &before, ret_clock);
}

void plx_vdi_resume(struct plx_vdi *vdi, struct plx_vdi_clock *ret_clock)
{
    struct plx_witness before = vdi->witness;

    read_clock(vdi, ret_clock);
    plx_witness_resume(&vdi->witness, &ret_clock->now, &ret_clock->ends);
    changed(vdi, &before, ret_clock);
}

/* PROTECT-7 */
int plx_protect_check_clock(struct plx_vdi *vdi, uint64_t before_ns, struct plx_fault *fault)
{
    struct plx_vdi_clock clock;
    char why[PLX_DOUBT_TEXT];

    plx_vdi_look_at_clock(vdi, &clock);
    if (plx_witness_lets_go(&clock.witness, &clock.now, &clock.ends) &&
        before_ns <= clock.now.wall_ns)
        return 0;
    return plx_fault_set(
        fault, PLX_ERR_CLOCK,
        "virtual disk %s: no snapshot expires: %s; set the clock right, or "
        "confirm it with 'parallax cdp resume'",
        vdi->record.name,
        clock.witness.doubt
            ? plx_witness_text(&clock.witness, &clock.now, &clock.ends, why)
            : "the wall clock is behind the newest snapshot, or the time asked for");
}
