/* death.c - power cuts, killed and fenced hosts, recovery; forks of the world and their judgement.
 *
 * SIM_DEATH-1  After a death every extent of dead instances is adopted, and every disk that they
 *     held is marked, before anything is allocated from those extents; then the disks are
 *     recovered.
 * SIM_DEATH-2  Disks of hosts that live on stay open meanwhile, with requests under way.
 * SIM_DEATH-3  A fork is judged to the end (recovered, read back, written to, cut again, recovered,
 *     checked) while the world it came from stands still in the middle of an event; it shares
 *     memory with it but no state.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/parts.h"

#define FORK_SUBSETS 6u /* up to so many volatile writes, all subsets are tried */

/* ---- Dying ---- */

void plx_sim_kill(struct plx_world *w, struct plx_sim_host *host, bool fenced)
{
    PLX_SIM_TRACE(w, "host %d is %s", (int)(host - w->hosts), fenced ? "fenced" : "killed");
    w->result.kills++;
    host->dead = true;
    plx_sim_ring_stop(host);
    for (unsigned i = 0; i < w->options.volumes; i++)
        plx_simdisk_stop(host->devices[i], fenced ? PLX_ERR_FENCED : PLX_ERR_LOST);
}

/* ---- Recovery ---- */

/* SIM_DEATH-1: extents, and all that the logs name. */
bool plx_sim_adopt(struct plx_world *w, struct plx_sim_host *host)
{
    struct plx_fault fault = {0};

    for (uint64_t e = 0; e < w->registry.count; e++) {
        struct plx_extent_info info;
        uint64_t owner = w->registry.extents[e].owner;
        int error;

        if (!owner || plx_sim_instance_lives(w, owner))
            continue;
        plx_simenv_tell_collections(&host->env);
        error = plx_store_extent_read(host->store, e, &info, &fault);
        if (!error && info.type != PLX_EXTENT_UNUSED)
            error = plx_store_extent_adopt(host->store, e, &fault);
        if (w->power.off || host->dead || w->store_lost)
            return false;
        if (!error && info.type == PLX_EXTENT_UNUSED) { /* granted, but nothing came of it */
            w->registry.extents[e].owner = 0;
            w->registry.extents[e].used = false;
            w->registry.granted--;
            continue;
        }
        if (!error && info.states < w->registry.extents[e].states) {
            plx_sim_fail(w, "extent %llu went back", (unsigned long long)e);
            return false;
        }
        if (error) {
            plx_sim_fail(w, "extent %llu cannot be adopted: %s", (unsigned long long)e, fault.text);
            return false;
        }
        plx_simregistry_own(&w->registry, e, host->instance);
    }
    for (unsigned i = 0; i < w->options.vdis; i++) {
        const struct plx_sim_disk *disk = &w->vdis[i];
        int error;

        if (!disk->holder || plx_sim_instance_lives(w, disk->holder))
            continue;
        error = plx_vdi_mark(host->store, i, &fault);
        if (w->power.off || host->dead || w->store_lost)
            return false;
        if (error)
            plx_sim_fail(w, "the log of VDI %u cannot be marked: %s", i, fault.text);
    }
    if (plx_store_extents_adopted(host->store, &fault) && !w->power.off && !host->dead &&
        !w->store_lost)
        plx_sim_fail(w, "adopted extents cannot be used: %s", fault.text);
    return !plx_sim_interrupted(w) && !host->dead && !w->store_lost;
}

/* Whether a disk that was being made or deleted is there. */
static bool settle_existence(struct plx_world *w, struct plx_sim_host *host,
                             struct plx_sim_disk *disk)
{
    struct plx_vdi_info info;
    struct plx_fault fault = {0};
    int error = plx_vdi_read_info(host->store, disk->slot, &info, &fault);
    bool gone = error == PLX_ERR_NOT_FOUND || (!error && info.state == PLX_VDI_DELETED);

    if (w->power.off || host->dead || w->store_lost)
        return false;
    if (gone && disk->state != PLX_SIM_LIVE) {
        plx_sim_disk_forget(disk);
        return false;
    }
    if (gone || error) {
        plx_sim_fail(w, "VDI %u is gone: %s", disk->slot, error ? fault.text : "deleted");
        return false;
    }
    disk->state = PLX_SIM_LIVE;
    if (info.epoch > disk->epoch)
        plx_sim_fail(w, "VDI %u has epoch %llu, at most %llu was given", disk->slot,
                     (unsigned long long)info.epoch, (unsigned long long)disk->epoch);
    return true;
}

static void open_and_read(struct plx_world *w, struct plx_sim_host *host, struct plx_sim_disk *disk)
{
    struct plx_vdi_info info;

    plx_sim_open(w, host, disk);
    if (!disk->vdi || w->power.off || host->dead)
        return;
    plx_vdi_get_info(disk->vdi, &info);
    plx_sim_settle_size(w, disk, info.size_bytes);
    plx_sim_verify_live(w, disk, true, "recovered");
    if (!w->power.off && !host->dead)
        plx_sim_verify_lists(w, disk);
}

/* SIM_DEATH-2: one that a living host has open stays so. */
void plx_sim_recover_disk(struct plx_world *w, struct plx_sim_host *host, struct plx_sim_disk *disk)
{
    if (disk->vdi || !settle_existence(w, host, disk))
        return;
    disk->still = true;
    open_and_read(w, host, disk);
    disk->still = false;
}

static bool dead_hosts(const struct plx_world *w)
{
    for (unsigned i = 0; i < PLX_SIM_HOSTS; i++)
        if (w->hosts[i].store && w->hosts[i].dead)
            return true;
    return false;
}

static void power_failed(struct plx_world *w)
{
    PLX_SIM_TRACE(w, "power cut%s", w->died_apart ? " of a part" : "");
    for (unsigned i = 0; i < w->options.vdis; i++)
        plx_sim_disk_crash(&w->vdis[i]);
    for (unsigned i = 0; i < PLX_SIM_HOSTS; i++)
        plx_sim_host_drop(w, &w->hosts[i]);
    for (unsigned i = 0; i < w->options.vdis; i++)
        if (w->vdis[i].in_flight)
            plx_sim_fail(w, "a request of VDI %u never completed", i);
    plx_simpower_restore(&w->power);
    w->died_apart = w->store_lost = false;
    plx_sim_clocks_restart(w);
}

/* A fenced host may go on for a while, not knowing; what it answers is not heard. */
static void disown_dead(struct plx_world *w)
{
    for (unsigned i = 0; i < PLX_SIM_HOSTS; i++)
        if (w->hosts[i].store && w->hosts[i].dead)
            plx_sim_disown(w, &w->hosts[i]);
    for (unsigned i = 0; i < w->options.vdis; i++) {
        struct plx_sim_disk *disk = &w->vdis[i];

        if (!disk->vdi || !disk->host->dead)
            continue;
        plx_sim_ring_leave(w, disk);
        disk->host->zombies[disk->host->zombie_count++] = disk->vdi;
        disk->vdi = NULL;
        disk->host = NULL;
    }
}

static void bury(struct plx_world *w, bool all)
{
    for (unsigned i = 0; i < PLX_SIM_HOSTS; i++)
        if (w->hosts[i].store && w->hosts[i].dead && (all || plx_sim_chance(w, 50)))
            plx_sim_host_drop(w, &w->hosts[i]);
}

static void recover_once(struct plx_world *w)
{
    struct plx_sim_host *host;

    if (w->store_lost && !plx_sim_live_host(w)) /* SIM_RINGS-9 */
        w->died_apart = true;
    if (w->power.off || w->died_apart)
        power_failed(w);
    disown_dead(w);
    bury(w, false);
    host = plx_sim_live_host(w);
    if (!host) {
        bury(w, true);
        if (w->options.ring_strangers && plx_sim_chance(w, w->options.ring_strangers))
            plx_sim_ring_stranger(w);
        if (plx_sim_interrupted(w))
            return;
        host = &w->hosts[plx_sim_below(w, w->options.hosts)];
        if (plx_sim_host_start(w, host, false))
            return;
    }
    for (unsigned d = 0; (w->options.drops || w->options.ring_aside) && d < w->power.count; d++)
        plx_simdisk_heal(w->power.disks[d]); /* who cannot adopt does not open anything */
    if (!plx_sim_adopt(w, host))
        return;
    if (w->options.drops && plx_sim_chance(w, 30))
        plx_simdisk_drop_flush(w->power.disks[plx_sim_below(w, w->power.count)],
                               1 + plx_sim_below(w, 3));
    for (unsigned i = 0; i < w->options.vdis && !plx_sim_interrupted(w) && !host->dead; i++)
        if (w->vdis[i].state != PLX_SIM_ABSENT)
            plx_sim_recover_disk(w, host, &w->vdis[i]);
    if (plx_sim_interrupted(w) || host->dead)
        return;
    bury(w, true);
    for (unsigned i = 0; i < w->options.hosts && !plx_sim_interrupted(w); i++)
        if (!w->hosts[i].store)
            plx_sim_host_start(w, &w->hosts[i], false);
}

void plx_sim_recover(struct plx_world *w)
{
    while ((w->power.off || w->died_apart || dead_hosts(w)) && !w->result.failed) {
        bool again;

        w->result.crashes += w->power.off;
        if (plx_sim_chance(w, 30)) /* dies while recovering */
            w->power.crash_at = w->power.events + 1 + plx_sim_below(w, 400);
        recover_once(w);
        again = w->power.off || dead_hosts(w);
        w->result.recovery_crashes += again;
        if (!again)
            w->power.crash_at = 0;
    }
}

/* ---- Forks ---- */

struct plx_sim_states {
    uint64_t *images, *judged; /* open addressing, 0: free */
    uint64_t count, judged_count, room;
};

struct plx_sim_states *plx_sim_states_new(void)
{
    struct plx_sim_states *states = calloc(1, sizeof *states);

    states->room = 1u << 10;
    states->images = calloc(states->room, sizeof *states->images);
    states->judged = calloc(states->room, sizeof *states->judged);
    return states;
}

void plx_sim_states_free(struct plx_sim_states *states)
{
    if (!states)
        return;
    free(states->images);
    free(states->judged);
    free(states);
}

uint64_t plx_sim_states_count(const struct plx_sim_states *states)
{
    return states ? states->count : 0;
}

static bool set_add(uint64_t *set, uint64_t room, uint64_t key)
{
    uint64_t at = (key * 0x9e3779b97f4a7c15ull) & (room - 1);

    while (set[at] && set[at] != key)
        at = (at + 1) & (room - 1);
    if (set[at])
        return false;
    set[at] = key;
    return true;
}

static uint64_t *set_grow(uint64_t *set, uint64_t room)
{
    uint64_t *bigger = calloc(2 * room, sizeof *bigger);

    for (uint64_t i = 0; i < room; i++)
        if (set[i])
            set_add(bigger, 2 * room, set[i]);
    free(set);
    return bigger;
}

/* Whether these contents, with this much acknowledged, were not judged before. */
static bool states_add(struct plx_sim_states *states, uint64_t image, uint64_t acks)
{
    uint64_t judged = (image ^ (acks + 1) * 0xbf58476d1ce4e5b9ull) | 1;

    if (2 * states->judged_count >= states->room) {
        states->images = set_grow(states->images, states->room);
        states->judged = set_grow(states->judged, states->room);
        states->room *= 2;
    }
    states->count += set_add(states->images, states->room, image | 1);
    if (!set_add(states->judged, states->room, judged))
        return false;
    states->judged_count++;
    return true;
}

static struct plx_world *fork_world(const struct plx_world *w, const uint8_t *fates, uint64_t seed)
{
    struct plx_world *f = calloc(1, sizeof *f);

    f->options = w->options;
    f->options.cache_bytes = 1;
    f->options.ops_per_vdi = 4;
    f->options.in_flight = 8;
    f->options.kills = 0;
    f->options.faults = f->options.drops = 0;
    f->options.clock_weight = 0;
    f->rng.state = seed;
    f->instances = w->instances;
    f->next_id = w->next_id;
    f->step = w->step;
    f->is_fork = true;
    f->ring_disk = w->ring_disk;
    f->ring_set_aside = w->ring_set_aside;
    memcpy(f->ring_doubted, w->ring_doubted, sizeof f->ring_doubted);
    f->growing = w->growing;
    f->growing_to = w->growing_to;
    f->scratch = malloc(PLX_SIM_IO_SECTORS * PLX_SECTOR);
    f->ops = calloc(f->options.in_flight, sizeof *f->ops);
    plx_simpower_fork(&w->power, fates, seed, &f->power);
    f->registry = w->registry;
    f->registry.extents = malloc(w->registry.count * sizeof *f->registry.extents);
    memcpy(f->registry.extents, w->registry.extents,
           w->registry.count * sizeof *f->registry.extents);
    for (unsigned i = 0; i < PLX_SIM_HOSTS; i++) {
        struct plx_sim_host *host = &f->hosts[i];

        plx_sim_host_init(f, host);
        host->env.ns = w->hosts[i].env.ns;
        host->env.off_ns = w->hosts[i].env.off_ns;
        host->env.env.boot_id = w->hosts[i].env.env.boot_id;
    }
    for (unsigned i = 0; i < PLX_SIM_VDIS; i++)
        plx_sim_disk_fork(&w->vdis[i], &f->vdis[i]);
    return f;
}

/* SIM_DEATH-3 */
static void judge(struct plx_world *f)
{
    if (f->options.ring_members > 1 && !f->options.ring_aside &&
        plx_sim_chance(f, 40)) /* SIM_RINGS-6 */
        f->ring_only = 1 + (unsigned)plx_sim_below(f, f->options.ring_members);
    if (f->ring_only && f->ring_set_aside && f->ring_doubted[f->ring_only - 1])
        f->ring_only = 0;
    plx_sim_recover(f);
    if (f->ring_refused) {
        f->result.members_refused++;
        plx_simpower_cut(&f->power);
        return;
    }
    if (f->growing && !plx_sim_interrupted(f) && plx_sim_chance(f, 50))
        plx_sim_grow(f);
    for (unsigned i = 0; i < 6 && !plx_sim_interrupted(f); i++)
        plx_sim_submit_random(f);
    if (!f->result.failed)
        f->power.crash_at = f->power.events + 1 + plx_sim_below(f, 40);
    for (unsigned i = 0; i < 20 && !plx_sim_interrupted(f); i++)
        plx_sim_turn(f);
    plx_simpower_cut(&f->power);
    plx_sim_recover(f);
    if (!f->result.failed)
        plx_sim_finish(f, 2);
}

static void try_fork(struct plx_world *w, const uint8_t *fates, unsigned volatiles)
{
    struct plx_world_result result;
    struct plx_world *f;
    uint64_t seed = plx_simrng_next(&w->fork_rng);

    if (w->result.failed)
        return;
    f = fork_world(w, fates, seed);
    if (states_add(w->states, plx_simpower_hash(&f->power), w->acks)) {
        if (w->options.trace) {
            printf("  fork at event %llu, seed %llx, fates ", (unsigned long long)w->power.events,
                   (unsigned long long)seed);
            for (unsigned i = 0; i < volatiles; i++)
                putchar("lkhta"[fates[i]]);
            putchar('\n');
        }
        w->result.along += plx_sim_ring_goes_along(w);
        judge(f);
    }
    plx_sim_free(f, &result);
    w->result.sectors_checked += result.sectors_checked;
    w->result.recovery_crashes += result.recovery_crashes;
    w->result.replayed += result.replayed;
    w->result.undrained += result.undrained;
    w->result.members_refused += result.members_refused;
    w->result.strangers += result.strangers;
    w->result.discarded += result.discarded;
    w->result.rings_aside += result.rings_aside;
    if (result.failed) {
        w->result.failed = true;
        memcpy(w->result.failure, result.failure, sizeof w->result.failure);
    }
}

/* All subsets when they are few, and each write torn with the others kept or lost; else a sample.
 */
void plx_sim_fork_now(struct plx_world *w)
{
    unsigned n = plx_simpower_volatile(&w->power), left = w->options.forks;
    uint8_t *fates = calloc(n + 1, 1);

    w->forking = true;
    if (n <= FORK_SUBSETS) {
        for (unsigned subset = 0; subset < 1u << n && left; subset++, left--) {
            for (unsigned i = 0; i < n; i++)
                fates[i] = subset >> i & 1 ? PLX_FATE_KEPT : PLX_FATE_LOST;
            try_fork(w, fates, n);
        }
    } else {
        memset(fates, PLX_FATE_KEPT, n);
        try_fork(w, fates, n);
        memset(fates, PLX_FATE_LOST, n);
        try_fork(w, fates, n);
        left = left > 2 ? left - 2 : 0;
    }
    for (unsigned i = 0; i < 2 * n && left; i++) {
        uint8_t rest = i % 2 ? PLX_FATE_KEPT : PLX_FATE_LOST;

        for (uint8_t fate = PLX_FATE_LOST; fate <= PLX_FATE_ANY && left; fate++) {
            if (fate == rest || (n <= FORK_SUBSETS && fate <= PLX_FATE_KEPT))
                continue;
            memset(fates, rest, n);
            fates[i / 2] = fate;
            try_fork(w, fates, n);
            left--;
        }
    }
    for (; left && n > FORK_SUBSETS; left--) {
        for (unsigned i = 0; i < n; i++)
            fates[i] = (uint8_t)plx_simrng_below(&w->fork_rng, PLX_FATE_ANY + 1);
        try_fork(w, fates, n);
    }
    w->forking = false;
    free(fates);
}

static uint64_t fork_every(const struct plx_world *w)
{
    uint64_t dense = w->options.forks_dense;

    return w->options.fork_every * (dense ? 1 + plx_sim_states_count(w->states) / dense : 1);
}

void plx_sim_on_event(void *world)
{
    struct plx_world *w = world;

    if (w->forking || w->result.failed)
        return;
    if (w->power.events == w->kill_at) {
        struct plx_sim_host *host = plx_sim_random_host(w);

        if (host && w->options.ring_apart)
            plx_sim_ring_apart(w, host);
        else if (host)
            plx_sim_kill(w, host, !host->ring && plx_sim_chance(w, 50));
    }
    if (w->forks_on && !w->forks_paused && w->power.events % fork_every(w) == 0)
        plx_sim_fork_now(w);
}
