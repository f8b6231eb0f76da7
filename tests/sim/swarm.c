/* swarm.c - a random run: everything follows from the seed. See world.h. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/parts.h"

/* A run takes seconds, some a minute under sanitizers; one that has not ended by then never does.
 */
#define ENDLESS_SECONDS 600u

/* What a call meets must not grow with what it has met: it reads the log that these lengthen. */
#define MEANWHILE_MAX 40u
#define POLICY_EVERY_NS 10000000u
#define POLICY_SLICES 8u

/* ---- Steps that take their time ---- */

static bool others_open(const struct plx_world *w, const struct plx_sim_disk *disk)
{
    for (unsigned i = 0; i < w->options.vdis; i++)
        if (&w->vdis[i] != disk && w->vdis[i].vdi)
            return true;
    return false;
}

static void reopen(struct plx_world *w, struct plx_sim_disk *disk)
{
    struct plx_sim_host *host;

    plx_sim_close(w, disk);
    host = plx_sim_random_host(w);
    if (host && !disk->vdi && !disk->holder && !plx_sim_interrupted(w))
        plx_sim_open(w, host, disk);
}

static void make_disk(struct plx_world *w, struct plx_sim_disk *absent, struct plx_sim_disk *parent,
                      const struct plx_sim_snapshot *snapshot)
{
    struct plx_sim_host *host = plx_sim_random_host(w);

    if (!host)
        return;
    plx_sim_create(w, host, absent, parent, snapshot);
    if (absent->state == PLX_SIM_LIVE && !plx_sim_interrupted(w) && !host->dead)
        plx_sim_open(w, host, absent);
}

static void long_step(struct plx_world *w)
{
    struct plx_sim_disk *disk = &w->vdis[plx_sim_below(w, w->options.vdis)];
    struct plx_sim_disk *absent = plx_sim_absent(w);
    struct plx_sim_snapshot *snapshot;

    if (absent && plx_sim_chance(w, 20)) {
        make_disk(w, absent, NULL, NULL);
        return;
    }
    if (disk->state != PLX_SIM_LIVE)
        return;
    snapshot = plx_sim_snapshot_pick_drained(w, disk);
    switch (plx_sim_below(w, 13)) {
    case 0:
    case 1:
        if (snapshot)
            plx_sim_verify_snapshot(w, disk, snapshot);
        break;
    case 2:
    case 3:
    case 4:
        plx_sim_reader_open(w, disk);
        break;
    case 5:
        plx_sim_reader_close(w, &w->readers[plx_sim_below(w, PLX_SIM_READERS)]);
        break;
    case 6:
        if (disk->vdi)
            reopen(w, disk);
        break;
    case 7:
        if (disk->vdi && !disk->host->dead)
            plx_sim_verify_live(w, disk, false, "live");
        break;
    case 8:
        plx_sim_verify_lists(w, disk);
        break;
    case 9:
    case 10:
        if (snapshot && absent)
            make_disk(w, absent, disk, snapshot);
        break;
    case 11:
        if (snapshot)
            plx_sim_verify_runs(w, disk, snapshot);
        break;
    case 12:
        if (plx_sim_chance(w, 20) && others_open(w, disk))
            plx_sim_delete(w, disk);
        break;
    }
}

/* All there is, as often as it takes until history begins with a rewind. */
static void forget_all(struct plx_world *w, struct plx_sim_disk *disk)
{
    uint64_t newest = 0;

    for (unsigned i = 0; i < disk->snapshot_count; i++)
        if (plx_sim_snapshot_kept(disk, &disk->snapshots[i]))
            newest = plx_max_u64(newest, disk->snapshots[i].seq);
    for (unsigned i = 0; i < 3; i++)
        plx_sim_thin(w, disk, &(struct plx_thin){.upto = newest});
}

/* As a policy does that keeps snapshots for some time. */
static uint64_t before_ns(struct plx_world *w, const struct plx_sim_disk *disk)
{
    const struct plx_sim_host *host = disk->vdi ? disk->host : &w->hosts[0];

    return plx_simenv_wall_ns(&host->env) - plx_sim_below(w, 3 * 3600 * 1000000000ull);
}

/* As a policy's level does it, time and again: it goes on where it has come to, and what it leaves
 * has to wait until it is worth it. */
static void forget_by_policy(struct plx_world *w, struct plx_sim_disk *disk,
                             const struct plx_sim_snapshot *last, bool all)
{
    struct plx_thin thin = {.after = all ? 0 : disk->policy_upto,
                            .upto = last->seq,
                            .before_ns =
                                w->options.clock_weight ? before_ns(w, disk) : last->time_ns,
                            .every_ns = all ? 0 : POLICY_EVERY_NS,
                            .thrifty = true};

    for (unsigned i = 0; i < POLICY_SLICES; i++) {
        uint64_t upto = plx_sim_thin(w, disk, &thin);

        if (upto <= thin.after)
            break;
        thin.after = upto;
        if (!all)
            disk->policy_upto = upto;
    }
}

static void forget_any(struct plx_world *w)
{
    struct plx_sim_disk *disk = &w->vdis[plx_sim_below(w, w->options.vdis)];
    const struct plx_sim_snapshot *last = plx_sim_snapshot_pick_drained(w, disk);
    const struct plx_sim_snapshot *first =
        plx_sim_chance(w, 50) ? plx_sim_snapshot_pick_drained(w, disk) : NULL;
    struct plx_thin thin = {0};

    if (!last)
        return;
    if (last->seq % 4 < 2 || plx_sim_chance(w, w->options.by_policy)) {
        forget_by_policy(w, disk, last, last->seq % 4 == 0);
        return;
    }
    if (disk->rewinds && plx_sim_chance(w, 30)) {
        forget_all(w, disk);
        return;
    }
    thin.after = first && first->seq < last->seq ? first->seq : 0;
    thin.upto = last->seq;
    if (plx_sim_chance(w, 40))
        thin.every_ns = 1 + plx_sim_below(w, 50000000);
    if (plx_sim_chance(w, 30)) /* as a policy does: by age */
        thin.before_ns = w->options.clock_weight ? before_ns(w, disk) : last->time_ns;
    plx_sim_thin(w, disk, &thin);
}

static void rewind_any(struct plx_world *w)
{
    struct plx_sim_disk *disk = &w->vdis[plx_sim_below(w, w->options.vdis)];
    const struct plx_sim_snapshot *snapshot = plx_sim_snapshot_pick_drained(w, disk);

    if (snapshot)
        plx_sim_rewind(w, disk, snapshot);
}

/* In the midst of a collection: disks come and go, and history goes. */
static void during_collection(struct plx_world *w)
{
    switch (plx_sim_below(w, 4)) {
    case 0:
        forget_any(w);
        break;
    case 1:
        if (w->options.rewind_weight)
            rewind_any(w);
        break;
    default:
        long_step(w);
    }
}

static void collect_any(struct plx_world *w)
{
    struct plx_sim_host *host = plx_sim_random_host(w);

    if (host)
        plx_sim_collect(w, host, during_collection);
}

static void restart_any(struct plx_world *w)
{
    struct plx_sim_host *host = plx_sim_random_host(w);

    if (host)
        plx_sim_restart(w, host);
}

/* ---- Faults ---- */

static void inject_fault(struct plx_world *w)
{
    struct plx_simdisk *disk = w->power.disks[plx_sim_below(w, w->power.count)];

    plx_simdisk_fail_io(disk, 1 + plx_sim_below(w, 40), 1 + plx_sim_below(w, 3));
}

/* Only where one host is at work: it drops what another one wrote as well, and who flushes for
 * that one learns nothing of it. */
static void inject_drop(struct plx_world *w)
{
    plx_simdisk_drop_flush(w->power.disks[plx_sim_below(w, w->power.count)],
                           1 + plx_sim_below(w, 3));
}

static void inject_lie(struct plx_world *w)
{
    plx_simdisk_lie(w->power.disks[plx_sim_below(w, w->power.count)],
                    (enum plx_simlie)(PLX_LIE_ROT + plx_sim_below(w, 3)));
}

void plx_sim_revive(struct plx_world *w)
{
    plx_sim_ring_revive(w);
    for (unsigned i = 0; i < w->options.vdis; i++) {
        struct plx_sim_disk *disk = &w->vdis[i];
        struct plx_sim_host *host;
        struct plx_fault fault;

        if (disk->state != PLX_SIM_LIVE || (disk->vdi && !plx_vdi_health(disk->vdi, &fault)))
            continue;
        for (unsigned d = 0; d < w->power.count; d++)
            plx_simdisk_heal(w->power.disks[d]);
        if (disk->vdi) {
            plx_sim_drain_disk(w, disk);
            plx_sim_ring_leave(w, disk);
            plx_vdi_abandon(disk->vdi);
            disk->vdi = NULL;
            disk->host = NULL;
        }
        host = plx_sim_live_host(w);
        if (host && !plx_sim_interrupted(w))
            plx_sim_recover_disk(w, host, disk);
    }
}

/* ---- A run ---- */

/* What is read of it at once is right for ever: also when all that was under way has ended. */
static void look_twice(struct plx_world *w, struct plx_sim_disk *disk,
                       struct plx_sim_snapshot *snapshot)
{
    uint64_t seq = snapshot->seq;

    if (plx_sim_ring_drain(w, disk) < seq)
        return;
    snapshot = plx_sim_snapshot_find(disk, seq);
    if (snapshot)
        plx_sim_verify_snapshot(w, disk, snapshot);
    if (!disk->in_flight || plx_sim_interrupted(w) || !plx_sim_chance(w, 50))
        return;
    plx_sim_drain_disk(w, disk);
    snapshot = plx_sim_snapshot_find(disk, seq);
    if (snapshot && disk->vdi && !plx_sim_interrupted(w))
        plx_sim_verify_snapshot(w, disk, snapshot);
}

/* A snapshot is whole when it is acknowledged. */
static void look_at_fresh(struct plx_world *w)
{
    struct plx_sim_disk *disk = w->fresh;

    w->fresh = NULL;
    if (disk && disk->vdi && !disk->host->dead && plx_sim_chance(w, disk->in_flight ? 60 : 10))
        for (unsigned i = disk->snapshot_count; i-- > 0;)
            if (plx_sim_snapshot_kept(disk, &disk->snapshots[i])) {
                look_twice(w, disk, &disk->snapshots[i]);
                return;
            }
}

static void one_step(struct plx_world *w)
{
    const struct plx_world_options *o = &w->options;

    if (plx_sim_ring_without_store(w, false)) { /* SIM_RINGS-9 */
        plx_sim_submit_random(w);
        if (!plx_sim_turn(w))
            plx_sim_wait(w);
        return;
    }
    if (w->options.faults && plx_sim_chance(w, w->options.faults))
        inject_fault(w);
    if (w->options.drops && plx_sim_chance(w, w->options.drops))
        inject_drop(w);
    if (w->options.lies && plx_sim_chance(w, w->options.lies))
        inject_lie(w);
    if (w->options.protect && plx_sim_chance(w, 2)) {
        w->meanwhile = MEANWHILE_MAX;
        plx_sim_protect(w, &w->vdis[plx_sim_below(w, w->options.vdis)]);
        w->meanwhile = 0;
    }
    if (o->ring_weight && plx_sim_below(w, 1000) < o->ring_weight)
        plx_sim_ring_step(w);
    if (o->ring_members > 1 && !plx_sim_faulty(w) && plx_sim_chance(w, 5))
        plx_sim_ring_members_step(w);
    if (plx_sim_below(w, 1000) < w->options.sync_weight) {
        w->meanwhile = MEANWHILE_MAX;
        if (plx_sim_chance(w, 8))
            restart_any(w);
        else
            long_step(w);
        w->meanwhile = 0;
    } else if (plx_sim_below(w, 1000) < w->options.forget_weight) {
        w->meanwhile = MEANWHILE_MAX;
        forget_any(w);
        w->meanwhile = 0;
    } else if (w->options.rewind_weight && plx_sim_below(w, 1000) < w->options.rewind_weight) {
        w->meanwhile = MEANWHILE_MAX;
        rewind_any(w);
        w->meanwhile = 0;
    } else if (o->clock_weight && plx_sim_below(w, 1000) < o->clock_weight) {
        plx_sim_clock_event(w);
    } else if (o->collect_weight && plx_sim_below(w, 1000) < o->collect_weight) {
        w->meanwhile = MEANWHILE_MAX;
        collect_any(w);
        w->meanwhile = 0;
    } else if (plx_sim_chance(w, 10)) {
        plx_sim_reader_submit(w);
    } else if (plx_sim_chance(w, 60)) {
        plx_sim_submit_random(w);
    }
    look_at_fresh(w);
    plx_sim_make_room(w);
    if (!plx_sim_turn(w) && plx_sim_chance(w, 30))
        plx_sim_wait(w);
}

static void run(struct plx_world *w)
{
    const struct plx_world_options *o = &w->options;
    unsigned deaths = o->crashes + o->kills, every = o->steps / (deaths + 1);

    w->forks_on = o->fork_every != 0;
    for (w->step = 1; w->step <= o->steps && !w->result.failed; w->step++) {
        if (deaths && w->step % every == 0 && !w->power.crash_at && w->kill_at <= w->power.events) {
            uint64_t when = w->power.events + 1 + plx_sim_below(w, 300);

            if (plx_sim_below(w, deaths) < o->crashes)
                w->power.crash_at = when;
            else
                w->kill_at = when;
        }
        one_step(w);
        w->meanwhile = MEANWHILE_MAX;
        plx_sim_recover(w);
        w->meanwhile = 0;
        if ((plx_sim_faulty(w) || o->lies) && !w->store_lost && w->step % 16 == 0)
            plx_sim_revive(w);
    }
    w->power.crash_at = w->kill_at = 0;
    w->forks_on = false;
    if (plx_sim_ring_without_store(w, true))
        plx_sim_recover(w);
    if (w->result.failed)
        return;
    plx_sim_drain(w);
    for (unsigned d = 0; d < w->power.count; d++)
        plx_simdisk_heal(w->power.disks[d]);
    if (plx_sim_faulty(w) || o->lies)
        plx_sim_revive(w);
    if (o->ring_segments)
        plx_sim_recover(w);
    plx_sim_finish(w, 20);
}

static char endless[64];

static void say_endless(int signal_number)
{
    ssize_t ignored = write(STDERR_FILENO, endless, strlen(endless));

    (void)signal_number;
    (void)ignored;
    abort();
}

bool plx_world_run(const struct plx_world_options *options, struct plx_world_result *ret_result)
{
    struct plx_world *w = plx_sim_new(options);

    snprintf(endless, sizeof endless, "seed %llu: FAILED: it does not end\n",
             (unsigned long long)options->seed);
    signal(SIGALRM, say_endless);
    alarm(ENDLESS_SECONDS);
    if (!w->result.failed)
        run(w);
    plx_sim_free(w, ret_result);
    alarm(0);
    return !ret_result->failed;
}

/* ---- Options ---- */

void plx_world_options_random(uint64_t seed, bool with_crashes, struct plx_world_options *ret)
{
    struct plx_simrng rng = {seed * 2 + with_crashes};
    bool tiny = plx_simrng_chance(&rng, 75);
    struct plx_world_options o = {.seed = seed};

    o.volumes = plx_simrng_chance(&rng, 25) ? 2 : 1;
    o.extent_bytes = tiny ? 1u << 20 : 8u << 20;
    o.volume_bytes = tiny ? 96u << 20 : 256u << 20;
    o.segment_bytes = tiny ? 16u << 10 : 256u << 10;
    o.block_size = plx_simrng_chance(&rng, 60) ? 512 : 4096;
    o.volatile_cache = plx_simrng_chance(&rng, 60);
    o.patience = (unsigned)plx_simrng_below(&rng, 90);
    o.stalls = plx_simrng_chance(&rng, 50) ? (unsigned)plx_simrng_below(&rng, 30) : 0;
    o.tear_bytes = o.block_size == 512 && plx_simrng_chance(&rng, 30) ? 4096 : 0;
    o.hosts = plx_simrng_chance(&rng, 50) ? 1 : 2 + (unsigned)plx_simrng_below(&rng, 2);
    o.cache_bytes = tiny ? 1 : 0;
    o.keyframe_mappings = tiny ? 20 + plx_simrng_below(&rng, 400) : 0;
    o.ops_per_vdi = tiny ? 2 + (unsigned)plx_simrng_below(&rng, 8) : 0;
    o.grant_later = plx_simrng_chance(&rng, 50);
    o.vdis = 1 + (unsigned)plx_simrng_below(&rng, 5);
    o.vdi_bytes = (uint64_t)(tiny ? 1 + plx_simrng_below(&rng, 8) : 16) << 20;
    o.sector_size = plx_simrng_chance(&rng, 80) ? 512 : 4096;
    o.write_back = plx_simrng_chance(&rng, 25);
    o.toggle_cache = plx_simrng_chance(&rng, 25);
    o.copy = plx_simrng_chance(&rng, 20);
    o.steps = with_crashes ? 1200 : 2500;
    o.in_flight = 1 + (unsigned)plx_simrng_below(&rng, 24);
    o.unmap_weight = (unsigned)plx_simrng_below(&rng, 20);
    o.snapshot_weight = (unsigned)plx_simrng_below(&rng, 12);
    o.sync_weight = (unsigned)plx_simrng_below(&rng, 12);
    o.forget_weight = plx_simrng_chance(&rng, 60) ? (unsigned)plx_simrng_below(&rng, 40) : 0;
    o.labels = plx_simrng_chance(&rng, 40);
    o.big_io = plx_simrng_chance(&rng, 20);
    o.crashes = with_crashes ? 1 + (unsigned)plx_simrng_below(&rng, 4) : 0;
    if (!with_crashes && o.copy && plx_simrng_chance(&rng, 50))
        o.lies = 1 + (unsigned)plx_simrng_below(&rng, 8);
    o.kills = with_crashes ? (unsigned)plx_simrng_below(&rng, 4) : 0;
    o.protect = plx_simrng_chance(&rng, 40);
    o.gives_way = plx_simrng_chance(&rng, 50);
    if (tiny && plx_simrng_chance(&rng, 15)) { /* fills up */
        o.volume_bytes = 24u << 20;
        o.tight = true;
    }
    o.rewind_weight = plx_simrng_chance(&rng, 40) ? (unsigned)plx_simrng_below(&rng, 25) : 0;
    o.collect_weight = plx_simrng_chance(&rng, 60) ? (unsigned)plx_simrng_below(&rng, 15) : 0;
    o.move_weight = plx_simrng_chance(&rng, 50) ? (unsigned)plx_simrng_below(&rng, 20) : 0;
    if (plx_simrng_chance(&rng, 40)) {
        o.share_weight = 1 + (unsigned)plx_simrng_below(&rng, 40);
        o.vdis = o.vdis < 3 ? 3 : o.vdis;
        o.sync_weight += 8; /* clones */
    }
    if (o.hosts == 1 && o.volatile_cache && !o.lies && plx_simrng_chance(&rng, 50))
        o.drops = 1 + (unsigned)plx_simrng_below(&rng, 6);
    if (plx_simrng_chance(&rng, 60))
        o.quiet_ns = 1000 + plx_simrng_below(&rng, 100000);
    if (plx_simrng_chance(&rng, 30)) {
        o.clock_weight = 5 + (unsigned)plx_simrng_below(&rng, 25);
        o.disciplined = plx_simrng_chance(&rng, 50);
        o.snapshot_weight += 2;
        o.forget_weight += 20;
    }
    *ret = o;
}

void plx_world_options_full(uint64_t seed, bool with_crashes, struct plx_world_options *ret)
{
    struct plx_world_options o;

    plx_world_options_random(seed, with_crashes, &o);
    o.extent_bytes = 1u << 20;
    o.segment_bytes = 16u << 10;
    o.volumes = 1;
    o.volume_bytes = 24u << 20;
    o.unmap_weight = 25;
    o.snapshot_weight = 1;
    o.tight = true;
    *ret = o;
}

void plx_world_options_reuse(uint64_t seed, struct plx_world_options *ret)
{
    struct plx_world_options o;

    plx_world_options_full(seed, true, &o);
    o.copy = o.volatile_cache = true;
    o.snapshot_weight = o.forget_weight = o.rewind_weight = o.clock_weight = 0;
    o.protect = false;
    o.drops = 0;
    o.patience = 60;
    o.stalls = 40;
    o.keyframe_mappings = 20 + seed % 40;
    o.crashes = 8;
    *ret = o;
}

void plx_world_options_history(uint64_t seed, struct plx_world_options *ret)
{
    struct plx_simrng rng = {seed * 5 + 3};
    struct plx_world_options o;

    plx_world_options_random(seed, plx_simrng_chance(&rng, 30), &o);
    o.extent_bytes = 1u << 20;
    o.volume_bytes = 192u << 20;
    o.segment_bytes = 16u << 10;
    o.cache_bytes = 1;
    o.keyframe_mappings = 10 + plx_simrng_below(&rng, 60);
    o.ops_per_vdi = 4 + (unsigned)plx_simrng_below(&rng, 8);
    o.vdi_bytes = (uint64_t)(2 + plx_simrng_below(&rng, 6)) << 20;
    o.vdis = 3 + (unsigned)plx_simrng_below(&rng, 4);
    o.in_flight = 8 + (unsigned)plx_simrng_below(&rng, 16);
    o.patience = 50 + (unsigned)plx_simrng_below(&rng, 45);
    o.stalls = (unsigned)plx_simrng_below(&rng, 40);
    o.protect = plx_simrng_chance(&rng, 60);
    o.snapshot_weight = 8 + (unsigned)plx_simrng_below(&rng, 20);
    o.sync_weight = 10 + (unsigned)plx_simrng_below(&rng, 20);
    o.forget_weight = 30 + (unsigned)plx_simrng_below(&rng, 60);
    o.rewind_weight = plx_simrng_chance(&rng, 40) ? 5 + (unsigned)plx_simrng_below(&rng, 15) : 0;
    o.by_policy = 90;
    o.clock_weight = o.lies = 0;
    o.tight = o.gives_way = false;
    *ret = o;
}

void plx_world_options_states(uint64_t seed, struct plx_world_options *ret)
{
    struct plx_simrng rng = {seed * 3 + 7};
    struct plx_world_options o;

    plx_world_options_random(seed, true, &o);
    o.volumes = 1;
    o.extent_bytes = 1u << 20;
    o.volume_bytes = 32u << 20;
    o.segment_bytes = 16u << 10;
    o.cache_bytes = 1;
    o.keyframe_mappings = 10 + plx_simrng_below(&rng, 60);
    o.ops_per_vdi = 2 + (unsigned)plx_simrng_below(&rng, 6);
    o.vdis = 1 + (unsigned)plx_simrng_below(&rng, 2);
    o.vdi_bytes = (uint64_t)(16 + plx_simrng_below(&rng, 48)) << 12;
    o.steps = 150;
    o.sync_weight = 20;
    o.forget_weight = plx_simrng_chance(&rng, 50) ? 40 : 0;
    o.rewind_weight = plx_simrng_chance(&rng, 40) ? 40 : 0;
    o.collect_weight = plx_simrng_chance(&rng, 40) ? 30 : 0;
    o.big_io = false;
    o.crashes = 1;
    o.kills = o.hosts > 1;
    o.fork_every = 1 + (unsigned)plx_simrng_below(&rng, 7);
    o.forks_dense = 250;
    o.forks = 8 + (unsigned)plx_simrng_below(&rng, 24);
    *ret = o;
}

void plx_world_options_ring(uint64_t seed, struct plx_world_options *ret)
{
    struct plx_simrng rng = {seed * 7 + 5};
    struct plx_world_options o;

    plx_world_options_states(seed, &o);
    o.hosts = 1;
    o.volumes = 1;
    o.tight = false;
    o.faults = o.drops = o.lies = 0;
    o.clock_weight = 0;
    o.volatile_cache = true;
    o.steps = 300;
    o.in_flight = o.in_flight < 4 ? 4 : o.in_flight;
    o.crashes = 2;
    o.kills = (unsigned)plx_simrng_below(&rng, 3);
    o.ring_members = 1;
    o.ring_segments = 4 + (unsigned)plx_simrng_below(&rng, 40);
    o.ring_memory = plx_simrng_chance(&rng, 50) ? 1 : 0;
    o.ring_weight = 5 + (unsigned)plx_simrng_below(&rng, 30);
    *ret = o;
}

void plx_world_options_ring_full(uint64_t seed, struct plx_world_options *ret)
{
    struct plx_simrng rng = {seed * 11 + 3};
    struct plx_world_options o;

    plx_world_options_ring(seed, &o);
    o.tight = true;
    o.volume_bytes = (uint64_t)(6 + plx_simrng_below(&rng, 6)) << 20;
    o.vdi_bytes = (uint64_t)(48 + plx_simrng_below(&rng, 80)) << 12;
    o.vdis = 2 + (unsigned)plx_simrng_below(&rng, 2);
    o.steps = 400;
    o.fork_every *= 6;
    o.forks_dense = 100;
    *ret = o;
}

void plx_world_options_ring_along(uint64_t seed, struct plx_world_options *ret)
{
    struct plx_simrng rng = {seed * 19 + 7};
    struct plx_world_options o;

    plx_world_options_ring_full(seed, &o);
    o.volume_bytes = (uint64_t)(5 + plx_simrng_below(&rng, 2)) << 20;
    o.vdis = 2;
    o.vdi_bytes = (uint64_t)(500 + plx_simrng_below(&rng, 200)) << 12;
    o.big_io = true;
    o.steps = 900;
    o.ops_per_vdi = 14 + (unsigned)plx_simrng_below(&rng, 12);
    o.in_flight = 12 + (unsigned)plx_simrng_below(&rng, 16);
    o.snapshot_weight = (unsigned)plx_simrng_below(&rng, 4);
    o.sync_weight = 4;
    o.forget_weight = o.rewind_weight = o.collect_weight = 0;
    o.fork_every = 2 + (unsigned)plx_simrng_below(&rng, 12);
    *ret = o;
}

void plx_world_options_ring_mirror(uint64_t seed, struct plx_world_options *ret)
{
    struct plx_world_options o;

    plx_world_options_ring(seed, &o);
    o.ring_members = 2;
    o.fork_every *= 2;
    *ret = o;
}

void plx_world_options_ring_faults(uint64_t seed, struct plx_world_options *ret)
{
    struct plx_simrng rng = {seed * 13 + 9};
    struct plx_world_options o;

    plx_world_options_ring(seed, &o);
    o.faults = plx_simrng_chance(&rng, 60) ? 1 + (unsigned)plx_simrng_below(&rng, 4) : 0;
    o.drops =
        !o.faults || plx_simrng_chance(&rng, 60) ? 1 + (unsigned)plx_simrng_below(&rng, 5) : 0;
    o.ring_members = plx_simrng_chance(&rng, 30) ? 2 : 1;
    o.ring_aside = true;
    o.fork_every *= 3;
    *ret = o;
}

void plx_world_options_ring_apart(uint64_t seed, struct plx_world_options *ret)
{
    struct plx_simrng rng = {seed * 17 + 1};
    struct plx_world_options o;

    plx_world_options_ring(seed, &o);
    o.ring_apart = true;
    o.ring_members = plx_simrng_chance(&rng, 25) ? 2 : 1;
    o.kills = 2 + (unsigned)plx_simrng_below(&rng, 3);
    o.crashes = 1;
    o.fork_every *= 2;
    *ret = o;
}

void plx_world_options_ring_hosts(uint64_t seed, struct plx_world_options *ret)
{
    struct plx_world_options o;

    plx_world_options_ring(seed, &o);
    o.ring_strangers = 60;
    o.kills++;
    o.fork_every *= 2;
    *ret = o;
}
