/* clocks.c - time that passes, wall clocks that jump, and what may go by time all the same.
 *
 * Each host has a clock of its own that tells the truth, and a wall clock that may be off. What a
 * disk knows of them (witness.h) is kept for the next who opens it, as a service that looks
 * every minute would: after each event here, and when it is closed.
 *
 * SIM_CLOCKS-1  By time a snapshot goes only if it was old enough in truth; and as one of many in a
 *     period only if one before it stays that was, in truth, taken within such a period. Who asks
 *     for one while nothing has changed is given the last one again, which is as old as it was: of
 *     all who were given it the first tells when it was taken.
 * SIM_CLOCKS-2  The operator's word is given when the clock is right, and then only.
 * SIM_CLOCKS-3  What the rule cannot notice (witness.c) does not happen: a clock is not behind when
 *     a disk, or the machine, is seen for the first time, and what it is off by is more than hours,
 *     from every other host's, too, for a disk may be opened there next. Nor is it ahead of where
 *     it was off to before by less than the hour that a machine may have been off.
 */
#include "sim/parts.h"

#define MINUTE_NS (60 * 1000000000ull)
#define HOUR_NS (60 * MINUTE_NS)

void plx_sim_keep_clock(struct plx_world *w, struct plx_sim_disk *disk)
{
    struct plx_vdi_clock clock;

    if (!disk->vdi || disk->host->dead || plx_sim_interrupted(w))
        return;
    plx_vdi_look_at_clock(disk->vdi, &clock);
    disk->witness = clock.witness;
    disk->witnessed = true;
}

static void keep_clocks(struct plx_world *w)
{
    for (unsigned i = 0; i < w->options.vdis; i++)
        plx_sim_keep_clock(w, &w->vdis[i]);
}

static void set_clock(struct plx_world *w, struct plx_sim_host *host, int64_t off_ns)
{
    PLX_SIM_TRACE(w, "the clock of host %d is off by %lld min", (int)(host - w->hosts),
                  (long long)off_ns / (long long)MINUTE_NS);
    w->result.clock_jumps += host->env.off_ns != off_ns;
    host->env.off_ns = off_ns;
    keep_clocks(w);
}

/* SIM_CLOCKS-3 */
void plx_sim_clock_not_behind(struct plx_world *w, struct plx_sim_host *host)
{
    if (host->env.off_ns < 0)
        set_clock(w, host, 0);
}

/* All machines start anew; SIM_CLOCKS-3. */
void plx_sim_clocks_restart(struct plx_world *w)
{
    for (unsigned i = 0; i < PLX_SIM_HOSTS; i++) {
        struct plx_simenv *env = &w->hosts[i].env;

        env->env.boot_id += PLX_SIM_HOSTS;
        env->off_ns = env->off_ns < 0 ? 0 : env->off_ns;
    }
}

static void jump(struct plx_world *w)
{
    uint64_t number = plx_sim_below(w, w->options.hosts);
    struct plx_sim_host *host = &w->hosts[number];
    int64_t off_ns = (int64_t)((2 + 5 * number) * HOUR_NS + plx_sim_below(w, 3) * 75 * MINUTE_NS);

    if (host->env.off_ns)
        set_clock(w, host, 0);
    else
        set_clock(w, host, plx_sim_chance(w, 30) ? -off_ns : off_ns);
}

static void pass_time(struct plx_world *w)
{
    uint64_t ns = plx_sim_below(w, plx_sim_chance(w, 50) ? 3 * HOUR_NS : MINUTE_NS);

    PLX_SIM_TRACE(w, "%llu min pass", (unsigned long long)(ns / MINUTE_NS));
    for (unsigned i = 0; i < PLX_SIM_HOSTS; i++)
        w->hosts[i].env.ns += ns;
    keep_clocks(w);
}

/* SIM_CLOCKS-2 */
static void resume(struct plx_world *w, struct plx_sim_disk *disk)
{
    struct plx_vdi_clock clock;

    if (!disk->vdi || disk->host->dead || disk->host->env.off_ns)
        return;
    PLX_SIM_TRACE(w, "resume %u", disk->slot);
    plx_vdi_resume(disk->vdi, &clock);
    plx_sim_keep_clock(w, disk);
}

void plx_sim_clock_event(struct plx_world *w)
{
    plx_sim_drain(w); /* so that what nobody hears of was taken when it seems */
    if (plx_sim_interrupted(w))
        return;
    switch (plx_sim_below(w, 5)) {
    case 0:
    case 1:
        pass_time(w);
        break;
    case 2:
    case 3:
        jump(w);
        break;
    default:
        resume(w, &w->vdis[plx_sim_below(w, w->options.vdis)]);
    }
}

void plx_sim_note_time(const struct plx_world *w, struct plx_sim_snapshot *snapshot)
{
    for (unsigned i = 0; i < PLX_SIM_HOSTS; i++)
        snapshot->true_ns[i] = w->hosts[i].env.ns;
}

/* ---- SIM_CLOCKS-1 ---- */

static void add_age(struct plx_sim_ages *ages, const struct plx_sim_snapshot *snapshot,
                    uint64_t true_ns)
{
    unsigned i = 0;

    while (i < ages->count && ages->at[i].seq != snapshot->seq)
        i++;
    if (i == ages->count)
        ages->at[ages->count++] = (struct plx_sim_age){snapshot->seq, true_ns, snapshot->going};
    ages->at[i].true_ns = plx_min_u64(ages->at[i].true_ns, true_ns);
    ages->at[i].going |= snapshot->going;
}

void plx_sim_ages_before(const struct plx_world *w, const struct plx_sim_disk *disk,
                         const struct plx_thin *thin, struct plx_sim_ages *ret_ages)
{
    unsigned host = (unsigned)(disk->host - w->hosts);
    uint64_t wall_ns = plx_simenv_wall_ns(&disk->host->env);

    *ret_ages = (struct plx_sim_ages){.every_ns = thin->every_ns, .complete = true};
    if (!thin->before_ns || thin->before_ns > wall_ns)
        return;
    ret_ages->oldest_kept_ns = disk->host->env.ns + MINUTE_NS;
    ret_ages->oldest_kept_ns -= plx_min_u64(ret_ages->oldest_kept_ns, wall_ns - thin->before_ns);
    for (unsigned i = 0; i < disk->snapshot_count; i++) {
        const struct plx_sim_snapshot *snapshot = &disk->snapshots[i];

        if (!snapshot->acked)
            ret_ages->complete = false;
        else if (!plx_sim_number_gone(disk, snapshot->seq))
            add_age(ret_ages, snapshot, snapshot->true_ns[host]);
    }
}

/* The nearest one before it that is there. */
static const struct plx_sim_age *before_it(const struct plx_sim_disk *disk,
                                           const struct plx_sim_ages *ages, uint64_t seq)
{
    const struct plx_sim_age *nearest = NULL;

    for (unsigned i = 0; i < ages->count; i++)
        if (ages->at[i].seq < seq && !plx_sim_number_gone(disk, ages->at[i].seq) &&
            (!nearest || ages->at[i].seq > nearest->seq))
            nearest = &ages->at[i];
    return nearest;
}

void plx_sim_ages_after(struct plx_world *w, const struct plx_sim_disk *disk,
                        const struct plx_sim_ages *ages)
{
    for (unsigned i = 0; i < ages->count && !w->result.failed; i++) {
        const struct plx_sim_age *age = &ages->at[i], *first;

        if (age->going || !plx_sim_number_gone(disk, age->seq))
            continue;
        w->result.gone_by_time++;
        if (age->true_ns > ages->oldest_kept_ns)
            plx_sim_fail(w, "VDI %u@%llu went %llu s before its time", disk->slot,
                         (unsigned long long)age->seq,
                         (unsigned long long)(age->true_ns - ages->oldest_kept_ns) / 1000000000u);
        first = ages->every_ns && ages->complete ? before_it(disk, ages, age->seq) : NULL;
        if (first && age->true_ns > first->true_ns + ages->every_ns + MINUTE_NS)
            plx_sim_fail(w, "VDI %u@%llu went, and %llu was %llu s before it", disk->slot,
                         (unsigned long long)age->seq, (unsigned long long)first->seq,
                         (unsigned long long)(age->true_ns - first->true_ns) / 1000000000u);
    }
}
