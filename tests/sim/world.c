/* world.c - disks, hosts and virtual disks of a simulated world: made, opened, closed.
 *
 * SIM_WORLD-1  A disk's holder is set before its lock is used and cleared after it was given up, as
 *     the registry's row would be.
 * SIM_WORLD-2  While one host is in a synchronous call the other hosts' loops go on, and disks that
 *     are open get requests.
 * All that happens follows from the seed, so a run can be repeated bit for bit (INV-10).
 */
#include "sim/world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/parts.h"

#define VAIN_TURNS 20000u
#define PROTECT_STEP_NS 20000 /* so that intervals pass within a few turns */

/* ---- Small things ---- */

void plx_sim_fail(struct plx_world *w, const char *format, ...)
{
    va_list args;
    int used;

    if (w->result.failed)
        return;
    w->result.failed = true;
    used = snprintf(w->result.failure, sizeof w->result.failure,
                    "seed %llu, step %u, event %llu%s: ", (unsigned long long)w->options.seed,
                    w->step, (unsigned long long)w->power.events, w->is_fork ? " of a fork" : "");
    va_start(args, format);
    vsnprintf(w->result.failure + used, sizeof w->result.failure - (size_t)used, format, args);
    va_end(args);
    PLX_SIM_TRACE(w, "FAILED: %s", w->result.failure);
    if (getenv("PLX_SIM_ABORT"))
        abort();
}

uint64_t plx_sim_below(struct plx_world *w, uint64_t n)
{
    return plx_simrng_below(&w->rng, n);
}

bool plx_sim_chance(struct plx_world *w, unsigned percent)
{
    return plx_simrng_chance(&w->rng, percent);
}

void plx_sim_hash_in(struct plx_world *w, uint64_t value)
{
    w->result.trace_hash = (w->result.trace_hash ^ value) * 0x100000001b3ull;
    w->result.trace_hash ^= w->result.trace_hash >> 29;
}

bool plx_sim_interrupted(const struct plx_world *w)
{
    return w->power.off || w->result.failed || w->ring_refused;
}

bool plx_sim_faulty(const struct plx_world *w)
{
    return w->options.faults || w->options.drops || w->store_lost;
}

bool plx_sim_used_up(const struct plx_world *w)
{
    for (uint64_t e = 0; e < w->registry.count; e++)
        if (!w->registry.extents[e].system && !w->registry.extents[e].used)
            return false;
    return true;
}

bool plx_sim_excused(struct plx_world *w, const struct plx_sim_host *host, int error)
{
    if (w->power.off || !host || host->dead || w->ring_refused) /* SIM_RINGS-6 */
        return true;
    if (error == PLX_ERR_NOSPACE && (w->options.tight || plx_sim_used_up(w))) {
        w->result.nospace++;
        return true;
    }
    /* An extent whose header could not be read or written is not used again by this instance, so
     * faults may use the store up. */
    if (plx_sim_faulty(w) && (plx_error_class(error) == PLX_CLASS_IO || error == PLX_ERR_NOSPACE))
        return true;
    return w->options.lies && error == PLX_ERR_CORRUPT;
}

bool plx_sim_excused_from(struct plx_world *w, const struct plx_sim_host *host,
                          const struct plx_sim_snapshot *snapshot, int error)
{
    return plx_sim_excused(w, host, error) ||
           (error == PLX_ERR_NOT_FOUND && snapshot && snapshot->going);
}

/* ---- Hosts ---- */

struct plx_sim_host *plx_sim_live_host(struct plx_world *w)
{
    for (unsigned i = 0; i < PLX_SIM_HOSTS; i++)
        if (w->hosts[i].store && !w->hosts[i].dead)
            return &w->hosts[i];
    return NULL;
}

struct plx_sim_host *plx_sim_random_host(struct plx_world *w)
{
    unsigned first = (unsigned)plx_sim_below(w, w->options.hosts);

    for (unsigned i = 0; i < w->options.hosts; i++) {
        struct plx_sim_host *host = &w->hosts[(first + i) % w->options.hosts];

        if (host->store && !host->dead)
            return host;
    }
    return NULL;
}

bool plx_sim_instance_lives(const struct plx_world *w, uint64_t instance)
{
    for (unsigned i = 0; i < PLX_SIM_HOSTS; i++)
        if (w->hosts[i].store && !w->hosts[i].dead && w->hosts[i].instance == instance)
            return true;
    return false;
}

int plx_sim_host_start(struct plx_world *w, struct plx_sim_host *host, bool read_only)
{
    struct plx_store_options options = {
        .cache_bytes = w->options.cache_bytes,
        .keyframe_mappings = w->options.keyframe_mappings,
        .ops_per_vdi = w->options.ops_per_vdi,
    };
    struct plx_fault fault = {0};
    int error;

    host->instance = read_only ? 0 : ++w->instances;
    host->dead = false;
    host->sharing = 0;
    host->env.instance = options.instance = host->instance;
    options.host.b[0] = (uint8_t)(host - w->hosts + 1);
    memset(host->env.asked, 0, sizeof host->env.asked);
    host->env.needed = false;
    plx_sim_count_volumes(w);
    memset(host->devices, 0, sizeof host->devices);
    plx_sim_attach_volumes(w, host->devices);
    error = plx_store_open(host->devices, w->options.volumes, &options, &host->env.env,
                           &host->store, &fault);
    PLX_SIM_TRACE(w, "host %d starts as instance %llu: %s", (int)(host - w->hosts),
                  (unsigned long long)host->instance, plx_error_name(error));
    if (error) {
        for (unsigned i = 0; i < w->options.volumes; i++)
            host->devices[i]->ops->close(host->devices[i]);
        host->store = NULL;
        if (!plx_sim_excused(w, host, error))
            plx_sim_fail(w, "the store does not open: %s", fault.text);
    } else {
        host->env.store = host->store;
        plx_sim_register_extents(w, host->store);
        if (!read_only)
            plx_sim_ring_start(w, host);
    }
    return error;
}

void plx_sim_host_drop(struct plx_world *w, struct plx_sim_host *host)
{
    for (unsigned i = 0; i < PLX_SIM_READERS; i++)
        if (w->readers[i].host == host)
            plx_sim_reader_close(w, &w->readers[i]);
    plx_sim_ring_end(w, host);
    for (unsigned i = 0; i < w->options.vdis; i++) {
        struct plx_sim_disk *disk = &w->vdis[i];

        if (disk->vdi && disk->host == host) {
            plx_vdi_abandon(disk->vdi);
            disk->vdi = NULL;
            disk->host = NULL;
        }
    }
    while (host->zombie_count)
        plx_vdi_abandon(host->zombies[--host->zombie_count]);
    if (host->store)
        plx_store_close(host->store);
    host->store = NULL;
    host->dead = false;
}

bool plx_sim_turn(struct plx_world *w)
{
    bool busy = false;

    w->turning = true;
    for (unsigned i = 0; i < PLX_SIM_HOSTS; i++)
        if (w->hosts[i].store)
            busy = plx_store_tick(w->hosts[i].store) || busy;
    w->turning = false;
    plx_sim_ring_turned(w);
    return busy;
}

/* SIM_WORLD-2 */
static void others_turn(struct plx_simenv *env)
{
    struct plx_sim_host *host = (struct plx_sim_host *)env;
    struct plx_world *w = host->world;

    if (w->turning || w->forking)
        return;
    plx_sim_ring_waits(w); /* SIM_RINGS-9 */
    w->turning = true;
    if (w->meanwhile && plx_sim_chance(w, 20)) {
        w->meanwhile--;
        plx_sim_submit_random(w);
    }
    for (unsigned i = 0; i < PLX_SIM_HOSTS; i++)
        if (&w->hosts[i] != host && w->hosts[i].store)
            plx_store_tick(w->hosts[i].store);
    w->turning = false;
}

void plx_sim_wait(struct plx_world *w)
{
    for (unsigned i = 0; i < PLX_SIM_HOSTS; i++)
        if (w->hosts[i].store)
            plx_store_wait(w->hosts[i].store);
}

static bool requests_under_way(const struct plx_world *w, const struct plx_sim_disk *disk)
{
    for (unsigned i = 0; i < w->options.in_flight; i++)
        if (w->ops[i].busy && (!disk || w->ops[i].disk == disk))
            return true;
    return false;
}

/* Without power a ring's new set is never in the disk's mark, which is tried again and again. What
 * waits for that ends when the disk is closed. */
static bool is_in_vain(const struct plx_world *w, unsigned *turns)
{
    return (w->power.off || w->store_lost) && w->options.ring_segments && ++*turns > VAIN_TURNS;
}

void plx_sim_drain(struct plx_world *w)
{
    unsigned turns = 0;

    while (requests_under_way(w, NULL) && !is_in_vain(w, &turns)) {
        plx_sim_make_room(w);
        plx_sim_ring_unstick(w);
        if (!plx_sim_turn(w))
            plx_sim_wait(w);
    }
}

void plx_sim_drain_disk(struct plx_world *w, const struct plx_sim_disk *disk)
{
    unsigned turns = 0;

    while (requests_under_way(w, disk) && !is_in_vain(w, &turns)) {
        plx_sim_make_room(w);
        plx_sim_ring_unstick(w);
        if (!plx_sim_turn(w) && requests_under_way(w, disk))
            plx_sim_wait(w);
    }
}

/* ---- The world ---- */

struct plx_simdisk *plx_sim_new_disk(struct plx_world *w)
{
    const struct plx_simdisk_options options = {
        .bytes = w->options.volume_bytes,
        .block_size = w->options.block_size,
        .volatile_cache = w->options.volatile_cache,
        .patience = w->options.patience,
        .stalls = w->options.stalls,
        .tear_bytes = w->options.tear_bytes,
        .seed = plx_simrng_next(&w->rng),
    };

    return plx_simdisk_new(&options, &w->power);
}

static void make_store(struct plx_world *w)
{
    struct plx_device *devices[PLX_SIM_DISKS];
    struct plx_format_options format = {.name = "sim",
                                        .extent_bytes = w->options.extent_bytes,
                                        .segment_bytes = w->options.segment_bytes,
                                        .vdi_slots = PLX_SIM_VDIS};
    struct plx_store_info info = {0};
    struct plx_fault fault = {0};
    int error;

    for (unsigned i = 0; i < w->options.volumes; i++)
        devices[i] = plx_simdisk_attach(plx_sim_new_disk(w), "sim");
    error =
        plx_store_format(devices, w->options.volumes, &format, &w->hosts[0].env.env, &info, &fault);
    for (unsigned i = 0; i < w->options.volumes; i++)
        devices[i]->ops->close(devices[i]);
    if (error) {
        plx_sim_fail(w, "format: %s", fault.text);
        return;
    }
    plx_simregistry_init(&w->registry, &info);
    if (w->options.tight) /* as attach.c has it */
        w->registry.reserve = plx_min_u64(8, plx_max_u64(1, info.extents / 16));
}

void plx_sim_host_init(struct plx_world *w, struct plx_sim_host *host)
{
    plx_simenv_init(&host->env, plx_simrng_next(&w->rng));
    host->env.registry = &w->registry;
    host->env.grant_later = w->options.grant_later;
    host->env.gives_way = w->options.gives_way;
    host->env.on_automatic = plx_sim_on_automatic;
    host->env.loud = w->options.trace;
    host->env.disciplined = w->options.disciplined;
    host->env.env.boot_id = (uint64_t)(host - w->hosts) + 1;
    if (w->options.protect)
        host->env.step_ns = PROTECT_STEP_NS;
    host->world = w;
}

static void allow_common(struct plx_world *w, struct plx_sim_host *host)
{
    struct plx_fault fault = {0};

    if (!w->result.failed && plx_store_allow_common(host->store, &fault))
        plx_sim_fail(w, "common blocks cannot be allowed: %s", fault.text);
}

struct plx_world *plx_sim_new(const struct plx_world_options *options)
{
    struct plx_world *w = calloc(1, sizeof *w);

    w->options = *options;
    w->rng.state = options->seed;
    w->fork_rng.state = ~options->seed;
    w->scratch = malloc(PLX_SIM_IO_SECTORS * PLX_SECTOR);
    w->ops = calloc(options->in_flight, sizeof *w->ops);
    w->states = plx_sim_states_new();
    for (unsigned i = 0; i < PLX_SIM_HOSTS; i++) {
        struct plx_sim_host *host = &w->hosts[i];

        plx_sim_host_init(w, host);
        host->env.ns = plx_sim_below(w, 2000000000); /* clocks differ */
        host->env.on_tick = others_turn;
    }
    for (unsigned i = 0; i < PLX_SIM_VDIS; i++)
        w->vdis[i].slot = i;
    make_store(w);
    if (options->ring_segments && !w->result.failed)
        plx_sim_ring_make(w);
    w->power.on_event = plx_sim_on_event;
    w->power.context = w;
    for (unsigned i = 0; i < options->hosts && !w->result.failed; i++) {
        plx_sim_host_start(w, &w->hosts[i], false);
        if (!i && options->share_weight)
            allow_common(w, &w->hosts[0]);
    }
    if (!w->result.failed)
        plx_sim_create(w, &w->hosts[0], &w->vdis[0], NULL, NULL);
    if (!w->result.failed)
        plx_sim_open(w, &w->hosts[0], &w->vdis[0]);
    return w;
}

void plx_sim_free(struct plx_world *w, struct plx_world_result *ret_result)
{
    w->power.on_event = NULL;
    for (unsigned i = 0; i < PLX_SIM_HOSTS; i++)
        plx_sim_host_drop(w, &w->hosts[i]);
    for (unsigned i = 0; i < PLX_SIM_VDIS; i++)
        plx_sim_disk_forget(&w->vdis[i]);
    w->result.io_events = w->power.events;
    w->result.states = plx_sim_states_count(w->states);
    plx_sim_hash_in(w, w->power.events);
    plx_sim_hash_in(w, plx_simpower_hash(&w->power));
    while (w->power.count)
        plx_simdisk_free(w->power.disks[0]);
    plx_simregistry_done(&w->registry);
    plx_sim_states_free(w->states);
    for (unsigned i = 0; i < w->options.in_flight; i++)
        free(w->ops[i].buffer);
    free(w->ops);
    free(w->scratch);
    *ret_result = w->result;
    free(w);
}

/* ---- Virtual disks ---- */

/* Some clone of it, or of its clones, may be there. */
bool plx_sim_has_heirs(const struct plx_world *w, uint32_t slot)
{
    for (unsigned i = 0; i < w->options.vdis; i++)
        if (w->vdis[i].parent == slot + 1 &&
            (w->vdis[i].state != PLX_SIM_ABSENT || plx_sim_has_heirs(w, w->vdis[i].slot)))
            return true;
    return false;
}

/* A record is used again when nobody needs it to know where he came from. */
struct plx_sim_disk *plx_sim_absent(struct plx_world *w)
{
    for (unsigned i = 0; i < w->options.vdis; i++)
        if (w->vdis[i].state == PLX_SIM_ABSENT && !plx_sim_has_heirs(w, w->vdis[i].slot))
            return &w->vdis[i];
    return NULL;
}

/* A number up to `last`, from *number on, that no snapshot is known to have. */
static bool free_number(struct plx_sim_disk *disk, uint64_t last, uint64_t *number)
{
    while (*number <= last &&
           (plx_sim_snapshot_find(disk, *number) || plx_sim_number_gone(disk, *number)))
        ++*number;
    return *number <= last;
}

/* Nobody will hear of it any more. */
static void stop_waiting(struct plx_sim_disk *disk, struct plx_sim_snapshot *snapshot)
{
    plx_oracle_view_close(disk->oracle, snapshot->view);
    plx_view_free(snapshot->exact);
    snapshot->exact = NULL;
    disk->automatic -= snapshot->awaited;
    snapshot->awaited = false;
}

static bool is_unknown(const struct plx_sim_snapshot *snapshot)
{
    return !snapshot->acked && !snapshot->expected_seq && !snapshot->never;
}

/* How many numbers up to `last` are left for those of the first `count` that were said not to be
 * taken: those of which nobody heard the end come first. */
static unsigned left_to_dropped(struct plx_sim_disk *disk, unsigned count, uint64_t last)
{
    unsigned left = 0, unheard = 0;

    for (uint64_t next = 1; free_number(disk, last, &next); next++)
        left++;
    for (unsigned i = 0; i < count; i++)
        unheard += is_unknown(&disk->snapshots[i]) && !disk->snapshots[i].dropped;
    return left > unheard ? left - unheard : 0;
}

/* The first `count` are from before the disk was opened. Those of them whose end nobody heard of
 * got the numbers up to `survived` that they were to have or, in order, that are left; or they
 * never were. fleeting: what such a one sees of writes in place may not be durable. */
static void settle_unknown(struct plx_sim_disk *disk, unsigned count, uint64_t survived,
                           bool fleeting)
{
    unsigned kept = 0, to_dropped;
    uint64_t next = 1;

    for (unsigned i = 0; i < count; i++) {
        struct plx_sim_snapshot *snapshot = &disk->snapshots[i];
        uint64_t seq = snapshot->expected_seq;

        if (snapshot->acked)
            continue;
        stop_waiting(disk, snapshot);
        if (fleeting)
            plx_oracle_view_widen(disk->oracle, snapshot->view);
        if (seq && seq <= survived && !plx_sim_snapshot_find(disk, seq) &&
            !plx_sim_number_gone(disk, seq))
            plx_sim_snapshot_taken(disk, snapshot, seq, 0); /* the list tells the time */
    }
    to_dropped = left_to_dropped(disk, count, survived);
    for (unsigned i = 0; i < disk->snapshot_count; i++) {
        struct plx_sim_snapshot *snapshot = &disk->snapshots[i];

        if (i < count && !snapshot->acked) {
            if (!is_unknown(snapshot) || (snapshot->dropped && !to_dropped) ||
                !free_number(disk, survived, &next)) {
                plx_view_free(snapshot->view);
                continue;
            }
            to_dropped -= snapshot->dropped;
            plx_sim_snapshot_taken(disk, snapshot, next++, 0);
        }
        disk->snapshots[kept++] = *snapshot;
    }
    disk->snapshot_count = kept;
}

/* The disk knows whether the one under way took place. */
static void settle_rewind(struct plx_world *w, struct plx_sim_disk *disk, unsigned rewinds)
{
    if (rewinds != disk->rewinds && (!disk->rewinding || rewinds != disk->rewinds + 1))
        plx_sim_fail(w, "VDI %u was rewound %u times, not %u", disk->slot, rewinds, disk->rewinds);
    else if (rewinds != disk->rewinds)
        plx_oracle_rewind(disk->oracle, disk->rewinding);
    disk->rewinds = rewinds;
    disk->rewound_from.seq = 0;
    plx_view_free(disk->rewinding);
    disk->rewinding = NULL;
}

/* Automatic snapshots that were ordered, and taken perhaps, while a disk was being opened, on its
 * ring, see what a rewind has brought that took place before a crash: nobody knew of it then. */
static void see_rewound(struct plx_sim_disk *disk)
{
    uint64_t sectors = disk->size / PLX_SECTOR;

    for (unsigned i = 0; i < disk->snapshot_count; i++) {
        struct plx_sim_snapshot *snapshot = &disk->snapshots[i];

        if (!snapshot->opening)
            continue;
        if (snapshot->awaited) {
            plx_oracle_view_close(disk->oracle, snapshot->view);
            plx_view_free(snapshot->exact);
        }
        plx_view_free(snapshot->view);
        snapshot->view = plx_oracle_view_open(disk->oracle, 0, sectors);
        snapshot->exact = snapshot->awaited ? plx_oracle_view_open(disk->oracle, 0, sectors) : NULL;
        plx_oracle_view_close(disk->oracle, snapshot->awaited ? snapshot->exact : snapshot->view);
    }
}

/* It was open when somebody died, and room was left to recover it (reserve.h). With a ring, disks
 * that are recovered drain at once, and may use that up before the others are (RESERVE-3). */
static bool unclean(const struct plx_world *w, const struct plx_sim_host *host,
                    const struct plx_sim_disk *disk)
{
    struct plx_vdi_info info;

    return !(w->options.ring_segments && w->options.tight) && !plx_sim_interrupted(w) &&
           !host->dead && !plx_sim_faulty(w) &&
           plx_vdi_read_info(host->store, disk->slot, &info, NULL) == 0 && info.owner;
}

void plx_sim_open(struct plx_world *w, struct plx_sim_host *host, struct plx_sim_disk *disk)
{
    struct plx_vdi_open_options options = {
        .slot = disk->slot,
        .epoch = ++disk->epoch,
        .take_over = disk->holder != 0, /* whoever it was has died or given it up unclean */
        .write_back = w->options.write_back,
        .overwrite = w->options.copy ? PLX_OVERWRITE_COPY : -1,
        .quiet_ns = w->options.quiet_ns,
        .witness = disk->witnessed ? &disk->witness : NULL,
    };
    struct plx_fault fault = {0};
    struct plx_vdi_info info;
    struct plx_vdi *vdi;
    unsigned before = disk->snapshot_count;
    bool rewound;
    int error;

    if (!disk->witnessed || disk->witness.boot_id != host->env.env.boot_id)
        plx_sim_clock_not_behind(w, host);
    disk->holder = host->instance; /* SIM_WORLD-1 */
    disk->write_back = w->options.write_back;
    disk->mode_changes = 0;
    error = host->ringed ? plx_sim_ring_open(w, disk, host, &options, &vdi, &fault)
                         : plx_vdi_open(host->store, &options, &vdi, &fault);
    PLX_SIM_TRACE(w, "open %u on host %d: %s", disk->slot, (int)(host - w->hosts),
                  plx_error_name(error));
    if (!error) {
        disk->vdi = vdi;
        disk->host = host;
        plx_vdi_get_info(vdi, &info);
        plx_sim_keep_clock(w, disk);
        if (!disk->ringed || !(plx_sim_interrupted(w) || host->dead)) /* SIM_RINGS-2 */
            settle_unknown(disk, before, plx_sim_ring_snapshots(disk, info.snapshots),
                           plx_simpower_dropped(&w->power));
        rewound = info.rewinds != disk->rewinds;
        settle_rewind(w, disk, info.rewinds);
        if (rewound)
            see_rewound(disk);
        for (unsigned i = 0; i < disk->snapshot_count; i++)
            disk->snapshots[i].opening = false;
    } else if (!plx_sim_excused(w, host, error) ||
               (error == PLX_ERR_NOSPACE && unclean(w, host, disk))) {
        plx_sim_fail(w, "VDI %u does not open: %s", disk->slot, fault.text);
    }
}

void plx_sim_close(struct plx_world *w, struct plx_sim_disk *disk)
{
    struct plx_sim_host *host = disk->host;
    struct plx_vdi *vdi = disk->vdi;
    struct plx_counters counters;
    int error;

    plx_sim_drain_disk(w, disk);
    if (!vdi || host->dead || plx_sim_interrupted(w))
        return;
    if (disk->ringed && (w->rings_off || plx_sim_chance(w, 40)))
        plx_sim_ring_off(w, disk);
    plx_sim_keep_clock(w, disk);
    disk->vdi = NULL; /* nothing more is submitted */
    plx_sim_ring_leave(w, disk);
    plx_vdi_counters(vdi, &counters);
    w->result.vouched += counters.blocks_vouched;
    error = plx_vdi_close(vdi);
    PLX_SIM_TRACE(w, "close %u: %s", disk->slot, plx_error_name(error));
    disk->host = NULL;
    if (!error && !w->power.off && !host->dead) {
        disk->holder = 0;
        plx_oracle_flush_end(disk->oracle, plx_oracle_flush_begin(disk->oracle));
    } else if (!plx_sim_excused(w, host, error) ||
               (error == PLX_ERR_NOSPACE && unclean(w, host, disk))) {
        plx_sim_fail(w, "VDI %u does not close: %s", disk->slot, plx_error_text(error));
    }
}

void plx_sim_create(struct plx_world *w, struct plx_sim_host *host, struct plx_sim_disk *disk,
                    struct plx_sim_disk *parent, const struct plx_sim_snapshot *snapshot)
{
    struct plx_vdi_create_options options = {
        .size_bytes = w->options.vdi_bytes + 4096 * plx_sim_below(w, 8),
        .sector_size = w->options.sector_size,
        .slot = disk->slot,
    };
    struct plx_fault fault = {0};
    struct plx_vdi_info info = {0};
    int error;

    snprintf(options.name, sizeof options.name, "disk%u", disk->slot);
    disk->parent = parent ? parent->slot + 1 : 0;
    disk->parent_seq = parent ? snapshot->seq : 0;
    if (parent) {
        options.is_clone = true;
        options.parent_slot = parent->slot;
        options.parent_seq = snapshot->seq;
        options.size_bytes =
            plx_sim_chance(w, 50) ? 0 : snapshot->size_max + 4096 * plx_sim_below(w, 8);
    }
    disk->state = PLX_SIM_CREATING;
    /* A resize in flight when the snapshot was taken is in it or not. */
    disk->resizing = parent && !options.size_bytes && snapshot->size_max != snapshot->size_min
                         ? snapshot->size_max
                         : 0;
    disk->size = parent && !options.size_bytes ? snapshot->size_min : options.size_bytes;
    disk->sector_size = w->options.sector_size;
    disk->oracle = parent ? plx_oracle_clone(snapshot->view, disk->size / PLX_SECTOR)
                          : plx_oracle_new(disk->size / PLX_SECTOR);
    error = plx_vdi_create(host->store, &options, &info, &fault);
    PLX_SIM_TRACE(w, "create %u (parent %d): %s", disk->slot, parent ? (int)parent->slot : -1,
                  plx_error_name(error));
    if (w->power.off || host->dead)
        return;
    if (error) {
        /* EXISTS: an earlier attempt failed after its first copy of the record. */
        if (!plx_sim_excused_from(w, host, snapshot, error) &&
            !(plx_sim_faulty(w) && error == PLX_ERR_EXISTS))
            plx_sim_fail(w, "VDI %u cannot be created: %s", disk->slot, fault.text);
        plx_vdi_delete(host->store, disk->slot, false, &fault);
        plx_sim_disk_forget(disk);
        return;
    }
    disk->state = PLX_SIM_LIVE;
    plx_sim_settle_size(w, disk, info.size_bytes);
}

void plx_sim_settle_size(struct plx_world *w, struct plx_sim_disk *disk, uint64_t size)
{
    if (size != disk->size && size != disk->resizing)
        plx_sim_fail(w, "VDI %u has %llu bytes, not %llu", disk->slot, (unsigned long long)size,
                     (unsigned long long)disk->size);
    disk->size = size;
    disk->resizing = 0;
    if (plx_oracle_sectors(disk->oracle) < size / PLX_SECTOR)
        plx_oracle_grow(disk->oracle, size / PLX_SECTOR);
}

static bool has_reader(const struct plx_world *w, const struct plx_sim_disk *disk)
{
    for (unsigned i = 0; i < PLX_SIM_READERS; i++)
        if (w->readers[i].vdi && w->readers[i].disk == disk)
            return true;
    return false;
}

void plx_sim_delete(struct plx_world *w, struct plx_sim_disk *disk)
{
    struct plx_sim_host *host = disk->host;
    struct plx_fault fault = {0};
    int error;

    if (!disk->vdi || has_reader(w, disk))
        return;
    if (!plx_sim_ring_off(w, disk)) /* SIM_RINGS-3 */
        return;
    plx_sim_close(w, disk);
    if (disk->holder || plx_sim_interrupted(w))
        return;
    disk->state = PLX_SIM_DELETING;
    error = plx_vdi_delete(host->store, disk->slot, false, &fault);
    w->deletions++;
    PLX_SIM_TRACE(w, "delete %u: %s", disk->slot, plx_error_name(error));
    if (w->power.off || host->dead)
        return;
    if (!error)
        plx_sim_disk_forget(disk);
    else if (!plx_sim_excused(w, host, error))
        plx_sim_fail(w, "VDI %u cannot be deleted: %s", disk->slot, fault.text);
}

/* ---- Rewinding ---- */

/* The snapshot of the state before: known, or it stays unknown. */
static void settle_state_before(struct plx_sim_disk *disk, struct plx_sim_snapshot *before)
{
    plx_oracle_view_close(disk->oracle, before->view);
    before->never = !disk->rewound_from.seq && !plx_vdi_health(disk->vdi, NULL);
    if (disk->rewound_from.seq)
        plx_sim_snapshot_taken(disk, before, disk->rewound_from.seq, disk->rewound_from.time_ns);
}

static void rewind_ended(struct plx_world *w, struct plx_sim_disk *disk,
                         struct plx_sim_snapshot *before, int error, const char *text)
{
    struct plx_vdi_info info;

    plx_vdi_get_info(disk->vdi, &info);
    settle_state_before(disk, before);
    if (error && !plx_sim_excused(w, disk->host, error))
        plx_sim_fail(w, "VDI %u is not rewound: %s", disk->slot, text);
    if (!error && info.rewinds == disk->rewinds)
        plx_sim_fail(w, "VDI %u does not know that it was rewound", disk->slot);
    w->result.rewinds += !error;
    /* Of a disk that stopped the record may say more when it is opened again. */
    if (info.rewinds != disk->rewinds || !plx_vdi_health(disk->vdi, NULL))
        settle_rewind(w, disk, info.rewinds);
}

void plx_sim_rewind(struct plx_world *w, struct plx_sim_disk *disk,
                    const struct plx_sim_snapshot *snapshot)
{
    struct plx_sim_host *host = disk->host;
    struct plx_rewind_options options = {.seq = snapshot->seq,
                                         .label = w->options.labels ? "before" : NULL};
    struct plx_sim_snapshot *before;
    struct plx_fault fault = {0};
    struct plx_vdi_info info;
    int error;

    if (disk->ringed && !host->dead) {
        if (!plx_sim_ring_off(w, disk) || plx_sim_interrupted(w)) /* SIM_RINGS-3 */
            return;
    }
    if (!disk->vdi || host->dead || disk->rewinding || disk->resizing ||
        disk->snapshot_count > PLX_SIM_SNAPSHOTS / 2)
        return;
    plx_vdi_get_info(disk->vdi, &info);
    if (info.rewinds_held == PLX_REWINDS_MAX)
        return;
    disk->rewinding = plx_view_share(snapshot->view);
    disk->rewound_from.seq = 0;
    before = plx_sim_snapshot_add(disk);
    *before = (struct plx_sim_snapshot){
        .view = plx_oracle_view_open(disk->oracle, 0, disk->size / PLX_SECTOR),
        .size_min = disk->size,
        .size_max = disk->size,
    };
    plx_sim_note_time(w, before);
    error = plx_vdi_rewind(disk->vdi, &options, &disk->rewound_from, &fault);
    PLX_SIM_TRACE(w, "rewind %u to %llu, before it %llu: %s", disk->slot,
                  (unsigned long long)options.seq, (unsigned long long)disk->rewound_from.seq,
                  plx_error_name(error));
    if (!plx_sim_interrupted(w) && !host->dead)
        rewind_ended(w, disk, before, error, fault.text);
}

/* ---- Readers: snapshots held open ---- */

void plx_sim_reader_open(struct plx_world *w, struct plx_sim_disk *disk)
{
    struct plx_sim_snapshot *snapshot = plx_sim_snapshot_pick_drained(w, disk);
    struct plx_sim_host *host = plx_sim_random_host(w);
    struct plx_fault fault = {0};

    for (unsigned i = 0; snapshot && host && i < PLX_SIM_READERS; i++) {
        struct plx_sim_reader *reader = &w->readers[i];
        uint64_t seq = snapshot->seq;
        struct plx_vdi *vdi;
        int error;

        if (reader->vdi)
            continue;
        error = plx_snapshot_open(host->store, disk->slot, seq, &vdi, &fault);
        if (error) {
            if (!plx_sim_excused_from(w, host, snapshot, error))
                plx_sim_fail(w, "VDI %u@%llu does not open: %s", disk->slot,
                             (unsigned long long)seq, fault.text);
            return;
        }
        *reader = (struct plx_sim_reader){vdi, disk, host, seq};
        return;
    }
}

void plx_sim_reader_close(struct plx_world *w, struct plx_sim_reader *reader)
{
    if (!reader->vdi)
        return;
    plx_vdi_abandon(reader->vdi);
    *reader = (struct plx_sim_reader){0};
}

/* ---- A clean end ---- */

/* Closes everything; false if the host died or something failed on the way. */
static bool stop_cleanly(struct plx_world *w, struct plx_sim_host *host)
{
    struct plx_fault fault = {0};
    int error;

    for (unsigned i = 0; i < PLX_SIM_READERS; i++)
        if (w->readers[i].host == host) {
            plx_sim_drain_disk(w, w->readers[i].disk);
            plx_sim_reader_close(w, &w->readers[i]);
        }
    for (unsigned i = 0; i < w->options.vdis; i++) {
        struct plx_sim_disk *disk = &w->vdis[i];

        if (disk->host != host || !disk->vdi)
            continue;
        plx_sim_close(w, disk);
        if (disk->holder || plx_sim_interrupted(w))
            return false;
    }
    error = plx_simenv_release_all(&host->env, &fault);
    PLX_SIM_TRACE(w, "host %d ends: %s", (int)(host - w->hosts), plx_error_name(error));
    if (error) {
        if (!plx_sim_excused(w, host, error))
            plx_sim_fail(w, "extents cannot be released: %s", fault.text);
        return false;
    }
    if (w->power.off || host->dead)
        return false;
    plx_sim_ring_end(w, host);
    error = plx_store_close(host->store);
    host->store = NULL;
    if (w->power.off || host->dead) {
        host->dead = false;
        return false;
    }
    if (error && !plx_sim_excused(w, host, error))
        plx_sim_fail(w, "the store does not close: %s", plx_error_text(error));
    return true;
}

void plx_sim_restart(struct plx_world *w, struct plx_sim_host *host)
{
    bool had[PLX_SIM_VDIS] = {false};

    for (unsigned i = 0; i < w->options.vdis; i++)
        had[i] = w->vdis[i].host == host && w->vdis[i].vdi;
    if (!stop_cleanly(w, host) || plx_sim_host_start(w, host, false))
        return;
    for (unsigned i = 0; i < w->options.vdis && !plx_sim_interrupted(w) && !host->dead; i++)
        if (had[i])
            plx_sim_open(w, host, &w->vdis[i]);
}

bool plx_sim_stop_all(struct plx_world *w)
{
    bool clean = true;

    for (unsigned i = 0; i < PLX_SIM_HOSTS && !w->result.failed; i++)
        if (w->hosts[i].store && !w->hosts[i].dead)
            clean = stop_cleanly(w, &w->hosts[i]) && clean;
    return clean;
}
