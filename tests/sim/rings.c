/* rings.c - the write-back ring of a simulated world: one more device, with a cache of its own.
 *
 * SIM_RINGS-1  The ring lies on the machine of the world's only host. It loses power with the
 *     store's disks, but what is volatile has a fate of its own for each write: so the one may keep
 *     what the other one loses.
 * SIM_RINGS-2  A disk's snapshots are judged by what the store has of them. So all that the ring
 *     has is drained before they are looked at, and when a disk is opened with snapshots that
 *     nobody was told of.
 * SIM_RINGS-3  What needs the whole disk on the store turns its ring off: rewinding, deleting, and
 *     the end of a run, which reads everything without the ring.
 * SIM_RINGS-4  A store without room lets draining wait. Then only snapshots that the store has are
 *     looked at. At the end of a run the store grows, and nothing may lack room any more: all that
 *     was acknowledged must be there.
 * SIM_RINGS-5  What a ring has acknowledged has room on the store, and keeps it, from then on or
 *     from the opening that finds it there.
 * SIM_RINGS-6  Of two members one may fail, and come back, or be added again. No request fails
 *     then. In some forks only one member is left, and the operator says so: if it was in use to
 *     the end, all that was acknowledged is there; if not, that, or the disk is refused. (Not of
 *     one that was set aside at an opening: until the mark has the ring's set, it is believed, and
 *     has not what was found and read, but was never acknowledged.)
 * SIM_RINGS-7  When a device fails for a while, the ring may stop, or a disk: it is opened again
 *     then, and all that was acknowledged is there. A host that dies while the mark goes may leave
 *     what a ring that stopped had not acknowledged: the disk goes on without its ring then.
 * SIM_RINGS-8  Before the host comes back another one may, without the ring. It recovers disks, but
 *     cannot change those that the ring may have writes of, and so loses nothing. If it discards
 *     what the ring has, the disk is what the store had then, and stays so when the ring is back.
 * SIM_RINGS-9  The store and the machine may lose power apart from each other. While the store has
 *     none, the host goes on: the ring acknowledges, and what needs the store fails. Then the host
 *     dies, too: its process alone, or with its machine, whose ring loses what was volatile. After
 *     that the same is expected as after a power cut of all.
 * What is expected of a disk is the same with a ring and without (oracle.c).
 */
#include <stdlib.h>
#include <string.h>

#include "engine/ring/ringed_inside.h"
#include "engine/space/allocator_inside.h"
#include "sim/parts.h"

#define SEGMENT_BLOCKS 16u
#define GROWN_EXTENTS 40u

void plx_sim_ring_make(struct plx_world *w)
{
    struct plx_simdisk_options options = {
        .bytes = PLX_RING_SEGMENTS_AT +
                 (uint64_t)w->options.ring_segments * SEGMENT_BLOCKS * PLX_BLOCK_SIZE,
        .block_size = w->options.block_size,
        .volatile_cache = w->options.volatile_cache,
        .patience = w->options.patience / 2,
        .tear_bytes = w->options.tear_bytes,
    };
    const struct plx_ring_create_options create = {
        .env = &w->hosts[0].env.env, .host_name = "sim", .segment_blocks = SEGMENT_BLOCKS};
    struct plx_device *devices[PLX_RING_MEMBERS];
    struct plx_fault fault = {0};

    w->ring_disk = w->power.count; /* SIM_RINGS-1 */
    for (unsigned m = 0; m < w->options.ring_members; m++) {
        options.seed = plx_simrng_next(&w->rng);
        devices[m] =
            plx_simdisk_attach(plx_simdisk_new(&options, &w->power), m ? "mirror" : "ring");
    }
    if (plx_ring_create(devices, w->options.ring_members, &create, &fault))
        plx_sim_fail(w, "no ring: %s", fault.text);
    for (unsigned m = 0; m < w->options.ring_members; m++)
        devices[m]->ops->close(devices[m]);
}

static struct plx_simdisk *member_disk(const struct plx_world *w, unsigned member)
{
    return w->power.disks[w->ring_disk + member];
}

static void close_ring(struct plx_sim_host *host)
{
    if (host->ringed)
        plx_ringed_host_free(host->ringed);
    if (host->ring)
        plx_ring_close(host->ring);
    while (host->ring_device_count) {
        struct plx_device *device = host->ring_devices[--host->ring_device_count];

        device->ops->close(device);
    }
    memset(host->ring_member, 0, sizeof host->ring_member);
    host->lacks = 0;
    host->ringed = NULL;
    host->ring = NULL;
}

static struct plx_device *attach_member(struct plx_world *w, struct plx_sim_host *host,
                                        unsigned member)
{
    struct plx_device *device =
        plx_simdisk_attach(member_disk(w, member), member ? "mirror" : "ring");

    host->ring_devices[host->ring_device_count++] = device;
    host->ring_member[member] = device;
    return device;
}

static unsigned attach_members(struct plx_world *w, struct plx_sim_host *host,
                               struct plx_device **ret_devices)
{
    unsigned count = 0;

    for (unsigned m = 0; m < w->options.ring_members; m++) {
        if (w->ring_broken[m] || (w->ring_only && w->ring_only != m + 1))
            continue;
        if (w->options.ring_members > 1)
            plx_simdisk_heal(member_disk(w, m));
        ret_devices[count++] = attach_member(w, host, m);
    }
    return count;
}

/* Who is in use has all; who is not may lack something. */
static void note_members(struct plx_world *w, const struct plx_sim_host *host)
{
    struct plx_ring_info info;

    plx_ring_get_info(host->ring, &info);
    w->ring_adding = false;
    for (unsigned m = 0; m < w->options.ring_members; m++)
        w->ring_doubted[m] = info.members < w->options.ring_members &&
                             host->ring_member[m] != plx_ring_device(host->ring, 0);
    w->ring_set_aside = info.members < w->options.ring_members;
}

void plx_sim_ring_start(struct plx_world *w, struct plx_sim_host *host)
{
    struct plx_ring_options options = {.env = &host->env.env};
    struct plx_device *devices[PLX_RING_MEMBERS];
    struct plx_fault fault = {0};
    unsigned count;
    int error;

    if (!w->options.ring_segments || host != &w->hosts[0])
        return;
    count = attach_members(w, host, devices);
    options.alone = count < w->options.ring_members;
    error = plx_store_allow_ring(host->store, &fault);
    if (!error)
        error = plx_ring_open(devices, count, &options, &host->ring, &fault);
    if (error && plx_sim_faulty(w) && !plx_sim_interrupted(w) && !host->dead) { /* SIM_RINGS-7 */
        PLX_SIM_TRACE(w, "the ring does not open: %s", fault.text);
        for (unsigned m = 0; m < w->options.ring_members; m++)
            plx_simdisk_heal(member_disk(w, m));
        error = plx_ring_open(devices, count, &options, &host->ring, &fault);
    }
    if (error)
        host->ring = NULL;
    else if (!w->ring_only)
        note_members(w, host);
    if (!error)
        error = plx_ringed_host_new(host->store, host->ring, &host->ringed);
    if (error && w->ring_only && w->ring_doubted[w->ring_only - 1]) /* SIM_RINGS-6 */
        w->ring_refused = true;
    else if (error && !plx_sim_excused(w, host, error))
        plx_sim_fail(w, "the ring does not open: %s", fault.text);
}

void plx_sim_ring_end(struct plx_world *w, struct plx_sim_host *host)
{
    for (unsigned i = 0; i < w->options.vdis; i++)
        if (w->vdis[i].ringed && w->vdis[i].host == host)
            plx_sim_ring_leave(w, &w->vdis[i]);
    close_ring(host);
}

void plx_sim_ring_stop(struct plx_sim_host *host)
{
    for (unsigned i = 0; i < host->ring_device_count; i++)
        plx_simdisk_stop(host->ring_devices[i], PLX_ERR_LOST);
}

/* SIM_RINGS-2. False: not to its end. */
static bool drain(struct plx_world *w, const struct plx_sim_disk *disk, struct plx_sim_host *host,
                  struct plx_vdi *vdi)
{
    struct plx_ringed_info info;

    plx_ringed_get_info(disk->ringed, &info);
    while (info.records && !plx_sim_interrupted(w) && !host->dead && !plx_vdi_health(vdi, NULL)) {
        if (w->options.tight && info.waits_for == PLX_ERR_NOSPACE) { /* SIM_RINGS-4 */
            PLX_SIM_TRACE(w, "no room for %llu records of %u", (unsigned long long)info.records,
                          disk->slot);
            w->result.undrained++;
            return false;
        }
        plx_sim_make_room(w);
        if (!plx_store_tick(host->store))
            plx_store_wait(host->store);
        plx_ringed_get_info(disk->ringed, &info);
    }
    return !info.records;
}

uint64_t plx_sim_ring_snapshots(const struct plx_sim_disk *disk, uint64_t on_store)
{
    return disk->ringed ? plx_max_u64(on_store, disk->ringed->front.snapshots) : on_store;
}

/* The last snapshot that the store has, or more. */
static uint64_t drained_snapshots(const struct plx_sim_disk *disk)
{
    const struct plx_ringed_record *r = disk->ringed ? disk->ringed->first : NULL;

    while (r && (r->type != PLX_RING_SNAPSHOT || r->state == PLX_RINGED_DRAINED))
        r = r->next;
    return r ? r->snapshot - 1 : UINT64_MAX;
}

/* Blocks for data that were promised to what rings have, and are not there (ALLOC-8). What is being
 * carried may have its own already: then they are no more than *ret_most. */
static uint64_t lacking(const struct plx_sim_host *host, uint64_t *ret_most)
{
    uint64_t promised = host->store->allocator->promised, carried = 0;
    uint64_t have = plx_alloc_free_blocks(host->store, PLX_EXTENT_DATA);

    for (const struct plx_ringed *r = host->ringed->disks; r; r = r->next)
        for (const struct plx_ringed_record *record = r->first; record; record = record->next)
            if (record->state == PLX_RINGED_CARRIED)
                carried += record->promised;
    *ret_most = promised - plx_min_u64(have, promised);
    return promised - plx_min_u64(have + carried, promised);
}

bool plx_sim_ring_goes_along(const struct plx_world *w)
{
    for (unsigned i = 0; i < w->options.vdis; i++) {
        const struct plx_sim_disk *disk = &w->vdis[i];

        if (disk->ringed && disk->vdi && disk->ringed->directing &&
            plx_front_load(disk->vdi).changes > 1)
            return true;
    }
    return false;
}

/* SIM_RINGS-5 */
static void check_room(struct plx_world *w)
{
    for (unsigned h = 0; h < PLX_SIM_HOSTS; h++) {
        struct plx_sim_host *host = &w->hosts[h];
        uint64_t lacks, most;

        if (!host->store || !host->ringed || host->dead)
            continue;
        lacks = lacking(host, &most);
        if (lacks > host->lacks)
            plx_sim_fail(w, "%llu blocks that were promised are not there",
                         (unsigned long long)lacks);
        host->lacks = plx_min_u64(host->lacks, most);
    }
}

void plx_sim_ring_turned(struct plx_world *w)
{
    if (w->options.ring_segments && w->options.tight && !w->power.off)
        check_room(w);
}

int plx_sim_ring_open(struct plx_world *w, struct plx_sim_disk *disk, struct plx_sim_host *host,
                      const struct plx_vdi_open_options *options, struct plx_vdi **ret_vdi,
                      struct plx_fault *fault)
{
    struct plx_ringed_info info;
    bool unknown = false;
    int error = plx_ringed_open(host->ringed, options, ret_vdi, &disk->ringed, fault);

    if (error == PLX_ERR_EXISTS && w->options.ring_aside && !host->dead) { /* SIM_RINGS-7 */
        struct plx_vdi_open_options without = *options;

        without.epoch = ++disk->epoch;
        w->result.rings_aside++;
        return plx_vdi_open(host->store, &without, ret_vdi, fault);
    }
    if (error == PLX_ERR_RING_AWAY && w->ring_only && w->ring_doubted[w->ring_only - 1])
        w->ring_refused = true; /* SIM_RINGS-6 */
    /* What one member cannot read may be the chain's end (SCAN-4): that one is taken away. */
    if (error == PLX_ERR_IO_READ && (w->ring_broken[0] || w->ring_broken[1]) && !host->dead)
        plx_sim_kill(w, host, false);
    if (error)
        return error;
    lacking(host, &host->lacks); /* SIM_RINGS-5 */
    plx_ringed_get_info(disk->ringed, &info);
    if (disk->discarded && info.records)
        plx_sim_fail(w, "what was discarded of VDI %u is back", disk->slot);
    disk->discarded = false;
    PLX_SIM_TRACE(w, "%llu records of %u are on the ring", (unsigned long long)info.records,
                  disk->slot);
    w->result.replayed += info.records != 0;
    plx_ringed_set_memory(disk->ringed, w->options.ring_memory);
    if (plx_sim_chance(w, 60))
        plx_ringed_turn(disk->ringed, true);
    for (unsigned i = 0; i < disk->snapshot_count; i++)
        unknown |= !disk->snapshots[i].acked;
    if (unknown)
        drain(w, disk, host, *ret_vdi);
    return 0;
}

uint64_t plx_sim_ring_drain(struct plx_world *w, struct plx_sim_disk *disk)
{
    struct plx_vdi_info info;

    if (!disk->ringed || !disk->vdi || !disk->host) {
        struct plx_sim_host *host = plx_sim_live_host(w);
        bool left = w->options.ring_segments && (w->options.tight || w->options.ring_aside) &&
                    host && plx_vdi_read_info(host->store, disk->slot, &info, NULL) == 0 &&
                    plx_ring_is_marked(&info.mark);

        return left ? 0 : UINT64_MAX;
    }
    if ((w->options.protect || w->options.tight || w->ring_had_no_room || w->options.ring_aside) &&
        !drain(w, disk, disk->host, disk->vdi))
        return drained_snapshots(disk);
    return UINT64_MAX;
}

void plx_sim_ring_leave(struct plx_world *w, struct plx_sim_disk *disk)
{
    if (disk->ringed)
        plx_ringed_close(disk->ringed);
    disk->ringed = NULL;
}

bool plx_sim_ring_off(struct plx_world *w, struct plx_sim_disk *disk)
{
    struct plx_sim_host *host = disk->host;
    struct plx_fault fault = {0};
    int error = disk->ringed ? plx_ringed_off(disk->ringed, &fault) : 0;

    if (error && !plx_sim_excused(w, host, error))
        plx_sim_fail(w, "the ring of VDI %u is not turned off: %s", disk->slot, fault.text);
    return !error;
}

static void grow(struct plx_world *w, uint64_t extents)
{
    uint64_t bytes = plx_simdisk_bytes(w->power.disks[0]) + extents * w->options.extent_bytes;

    w->growing = PLX_SIM_GROWS_VOLUME;
    w->growing_to = bytes / w->options.extent_bytes;
    plx_simdisk_resize(w->power.disks[0], bytes);
    plx_sim_grow(w);
    if (!plx_sim_interrupted(w))
        w->growing = PLX_SIM_GROWS_NOT;
}

static bool is_stuck(const struct plx_world *w)
{
    for (unsigned i = 0; w->options.tight && i < w->options.vdis; i++) {
        const struct plx_sim_disk *disk = &w->vdis[i];
        struct plx_ringed_info info;

        if (!disk->ringed || disk->host->dead)
            continue;
        plx_ringed_get_info(disk->ringed, &info);
        if (info.full && info.waits_for == PLX_ERR_NOSPACE)
            return true;
    }
    return false;
}

void plx_sim_ring_unstick(struct plx_world *w)
{
    if (!plx_sim_interrupted(w) && plx_sim_live_host(w) && is_stuck(w))
        grow(w, 1);
}

/* SIM_RINGS-7 */
void plx_sim_ring_revive(struct plx_world *w)
{
    struct plx_sim_host *host = &w->hosts[0];

    if (!host->ring || host->dead || !plx_ring_sticky(host->ring) || plx_sim_chance(w, 30))
        return;
    PLX_SIM_TRACE(w, "the ring has stopped");
    w->result.rings_stopped++;
    for (unsigned d = 0; d < w->power.count; d++)
        plx_simdisk_heal(w->power.disks[d]);
    if (plx_sim_chance(w, 50))
        plx_sim_kill(w, host, false);
    else
        plx_sim_restart(w, host);
}

/* SIM_RINGS-4 */
void plx_sim_ring_make_room(struct plx_world *w)
{
    struct plx_sim_host *host = plx_sim_live_host(w);

    if (!w->options.ring_segments || !w->options.tight || !host || plx_sim_interrupted(w))
        return;
    grow(w, GROWN_EXTENTS);
    w->options.tight = false;
    w->ring_had_no_room = true;
    for (unsigned i = 0; i < w->options.vdis && !plx_sim_interrupted(w); i++)
        if (w->vdis[i].state == PLX_SIM_LIVE)
            plx_sim_recover_disk(w, host, &w->vdis[i]);
}

void plx_sim_ring_step(struct plx_world *w)
{
    struct plx_sim_disk *disk = &w->vdis[plx_sim_below(w, w->options.vdis)];
    bool on = plx_sim_chance(w, 75);

    if (!disk->ringed || !disk->vdi || disk->host->dead)
        return;
    PLX_SIM_TRACE(w, "the ring of %u is turned %s", disk->slot, on ? "on" : "off");
    plx_ringed_turn(disk->ringed, on);
    w->result.ring_turns++;
}

/* ---- Members that fail and come back: SIM_RINGS-6 ---- */

static void lose_member(struct plx_world *w, struct plx_sim_host *host, unsigned m)
{
    struct plx_simdisk *disk = member_disk(w, m);
    unsigned how = (unsigned)plx_sim_below(w, 4);

    PLX_SIM_TRACE(w, "member %u of the ring is lost (%u)", m, how);
    w->ring_doubted[m] = true;
    w->ring_adding = w->ring_set_aside = false;
    w->result.members_lost++;
    if (how == 0) {
        plx_simdisk_stop(host->ring_member[m], PLX_ERR_LOST);
    } else if (how == 1) {
        plx_simdisk_drop_flush(disk, 1 + plx_sim_below(w, 3));
    } else {
        plx_simdisk_fail_range(disk, 0, UINT64_MAX, how == 2, true);
        w->ring_broken[m] = true;
    }
}

static void add_member(struct plx_world *w, struct plx_sim_host *host, unsigned m)
{
    struct plx_fault fault = {0};
    int error;

    if (host->ring_device_count == PLX_SIM_RING_DEVICES)
        return;
    plx_simdisk_heal(member_disk(w, m));
    w->ring_broken[m] = false;
    error = plx_ring_resilver(host->ring, attach_member(w, host, m), plx_sim_chance(w, 50), &fault);
    PLX_SIM_TRACE(w, "member %u of the ring is added: %s", m, plx_error_name(error));
    w->ring_adding = !error;
    w->result.members_added += !error;
    if (error && error != PLX_ERR_BUSY && !plx_sim_excused(w, host, error))
        plx_sim_fail(w, "member %u of the ring is not added: %s", m, fault.text);
}

void plx_sim_ring_members_step(struct plx_world *w)
{
    struct plx_sim_host *host = &w->hosts[0];
    struct plx_ring_info info;
    unsigned m = (unsigned)plx_sim_below(w, PLX_RING_MEMBERS);
    bool doubted = w->ring_doubted[0] || w->ring_doubted[1];

    if (w->options.ring_members < 2 || !host->ring || host->dead || plx_sim_interrupted(w))
        return;
    plx_ring_get_info(host->ring, &info);
    if (w->ring_doubted[0] || w->ring_doubted[1])
        m = w->ring_doubted[0] ? 0 : 1;
    if (info.resilvering) {
        if (plx_sim_chance(w, 5))
            lose_member(w, host, m);
    } else if (info.members == 1) {
        if (plx_sim_chance(w, 30))
            add_member(w, host, m);
    } else if (!doubted) {
        lose_member(w, host, m);
    } else if (w->ring_adding) {
        w->ring_doubted[m] = w->ring_adding = false;
    }
}

/* ---- Power of the store or of the machine alone: SIM_RINGS-9 ---- */

#define STEPS_WITHOUT_STORE 60u
#define TURNS_WITHOUT_STORE 50000u

static void machine_dies(struct plx_world *w, struct plx_sim_host *host)
{
    bool process_alone = w->store_lost && plx_sim_chance(w, 40);

    plx_sim_kill(w, host, false);
    for (unsigned d = w->ring_disk; d < w->power.count && !process_alone; d++)
        plx_simdisk_cut(w->power.disks[d]);
    PLX_SIM_TRACE(w, "the machine%s", process_alone ? "'s power stays" : " loses power");
    w->result.machine_cuts += !process_alone;
    w->died_apart = true;
}

static void store_loses_power(struct plx_world *w)
{
    PLX_SIM_TRACE(w, "the store loses power, the host goes on");
    for (unsigned d = 0; d < w->ring_disk; d++)
        plx_simdisk_cut(w->power.disks[d]);
    w->result.store_cuts++;
    w->store_lost = true;
    w->store_steps = w->store_turns = 0;
    w->kill_at = w->power.events + 1 + plx_sim_below(w, 150);
}

void plx_sim_ring_apart(struct plx_world *w, struct plx_sim_host *host)
{
    if (!w->store_lost && plx_sim_chance(w, 65))
        store_loses_power(w);
    else
        machine_dies(w, host);
}

bool plx_sim_ring_without_store(struct plx_world *w, bool at_end)
{
    struct plx_sim_host *host = plx_sim_live_host(w);

    if (!w->store_lost || w->died_apart || plx_sim_interrupted(w))
        return false;
    if (!host) /* it was starting anew, and found no store */
        w->died_apart = true;
    else if (at_end || ++w->store_steps > STEPS_WITHOUT_STORE)
        machine_dies(w, host);
    return true;
}

/* The host's time comes with an event, and there is none while a full ring waits for the store. Nor
 * does a disk notice then that its host has died. */
void plx_sim_ring_waits(struct plx_world *w)
{
    struct plx_sim_host *host = w->store_lost && !w->died_apart ? plx_sim_live_host(w) : NULL;

    if (!host || ++w->store_turns <= TURNS_WITHOUT_STORE)
        return;
    machine_dies(w, host);
    for (unsigned i = 0; i < w->options.vdis; i++)
        if (w->vdis[i].vdi && w->vdis[i].host == host)
            plx_log_fail(&w->vdis[i].vdi->log, PLX_ERR_LOST);
}

/* ---- Another host: SIM_RINGS-8 ---- */

static void expect_away(struct plx_world *w, struct plx_sim_host *host,
                        const struct plx_sim_disk *disk, struct plx_vdi *vdi,
                        enum plx_request_op op)
{
    struct iovec iov = {w->scratch, PLX_BLOCK_SIZE};
    struct plx_request request = {.op = op,
                                  .length = op == PLX_SNAPSHOT ? 0 : PLX_BLOCK_SIZE,
                                  .iov = &iov,
                                  .iovcnt = op == PLX_WRITE};
    int error = plx_vdi_run(vdi, &request);

    if (error != PLX_ERR_RING_AWAY && !plx_sim_interrupted(w) && !host->dead)
        plx_sim_fail(w, "VDI %u is changed without its ring: %s", disk->slot,
                     plx_error_name(error));
}

/* What the store has of the disk is what it is from now on. False: it could not be read. */
static bool learn_contents(struct plx_world *w, struct plx_sim_disk *disk, struct plx_vdi *vdi)
{
    struct plx_oracle *oracle;
    struct plx_vdi_info info;
    unsigned kept = 0;

    plx_vdi_get_info(vdi, &info);
    oracle = plx_oracle_new(info.size_bytes / PLX_SECTOR);
    for (uint64_t at = 0; at < info.size_bytes / PLX_SECTOR; at++) {
        struct iovec iov = {w->scratch, PLX_SECTOR};
        struct plx_request request = {.op = PLX_READ,
                                      .offset = at * PLX_SECTOR,
                                      .length = PLX_SECTOR,
                                      .iov = &iov,
                                      .iovcnt = 1};
        uint64_t id = 0;

        if (at % (info.sector_size / PLX_SECTOR) == 0) {
            iov.iov_len = request.length = info.sector_size;
            if (plx_vdi_run(vdi, &request)) {
                plx_oracle_free(oracle);
                return false;
            }
        }
        if (!plx_sector_id(w->scratch + at % (info.sector_size / PLX_SECTOR) * PLX_SECTOR, at, &id))
            plx_sim_fail(w, "VDI %u, sector %llu: bytes that nobody wrote there", disk->slot,
                         (unsigned long long)at);
        if (id)
            plx_oracle_write_end(oracle, plx_oracle_write_begin(oracle, at, 1, id), at, 1, false,
                                 true);
    }
    plx_oracle_free(disk->oracle);
    disk->oracle = oracle;
    disk->size = info.size_bytes;
    disk->resizing = 0;
    for (unsigned i = 0; i < disk->snapshot_count; i++) {
        if (disk->snapshots[i].acked && disk->snapshots[i].seq > info.snapshots)
            plx_view_free(disk->snapshots[i].view);
        else
            disk->snapshots[kept++] = disk->snapshots[i];
    }
    disk->snapshot_count = kept;
    return true;
}

static void look_without_ring(struct plx_world *w, struct plx_sim_host *host,
                              struct plx_sim_disk *disk)
{
    struct plx_vdi_open_options options = {
        .slot = disk->slot, .epoch = ++disk->epoch, .take_over = true, .overwrite = -1};
    struct plx_fault fault = {0};
    struct plx_vdi *vdi;
    int error = plx_vdi_open(host->store, &options, &vdi, &fault);

    if (error) {
        if (!plx_sim_excused(w, host, error))
            plx_sim_fail(w, "VDI %u does not open without its ring: %s", disk->slot, fault.text);
        return;
    }
    w->result.strangers++;
    expect_away(w, host, disk, vdi, PLX_WRITE);
    expect_away(w, host, disk, vdi, PLX_UNMAP);
    expect_away(w, host, disk, vdi, PLX_SNAPSHOT);
    if (plx_sim_chance(w, 30) && !plx_sim_interrupted(w) && learn_contents(w, disk, vdi)) {
        PLX_SIM_TRACE(w, "what the ring has of %u is discarded", disk->slot);
        w->options.ring_aside = disk->discarded = true;
        w->result.discarded++;
        error = plx_ringed_discard(vdi, &fault);
        if (error && !plx_sim_excused(w, host, error))
            plx_sim_fail(w, "what the ring has of VDI %u is not discarded: %s", disk->slot,
                         fault.text);
    }
    error = plx_vdi_close(vdi);
    if (error && !plx_sim_excused(w, host, error))
        plx_sim_fail(w, "VDI %u does not close: %s", disk->slot, plx_error_text(error));
}

void plx_sim_ring_stranger(struct plx_world *w)
{
    struct plx_sim_host *host = &w->hosts[PLX_SIM_HOSTS - 1];
    uint64_t crash_at = w->power.crash_at;

    w->power.crash_at = 0; /* a disk that is half discarded is what nobody can expect */
    w->forks_paused = true;
    if (!plx_sim_host_start(w, host, false) && plx_sim_adopt(w, host))
        for (unsigned i = 0; i < w->options.vdis && !plx_sim_interrupted(w); i++) {
            struct plx_sim_disk *disk = &w->vdis[i];
            struct plx_vdi_info info;

            if (disk->state == PLX_SIM_LIVE && !disk->rewinding &&
                plx_vdi_read_info(host->store, i, &info, NULL) == 0 &&
                plx_ring_is_marked(&info.mark))
                look_without_ring(w, host, disk);
        }
    w->forks_paused = false;
    w->power.crash_at = crash_at ? w->power.events + 1 + plx_sim_below(w, 400) : 0;
    if (host->store)
        plx_sim_host_drop(w, host);
}
