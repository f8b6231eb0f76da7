/* world.h - a whole run from one seed: disks, a store, hosts, virtual disks, a workload, and death:
 * power cuts, killed processes, fenced hosts.
 *
 * Everything that is read is held against the oracle. Each death is followed by an instance that
 * adopts and recovers what the dead one held, beside the disks that live on, and reads everything
 * back. At chosen events the whole world is forked as a power cut would leave it, once for each of
 * many fates of the volatile writes, and each fork is recovered and judged while the run goes on.
 */
#ifndef PLX_WORLD_H
#define PLX_WORLD_H

#include <stdbool.h>
#include <stdint.h>

struct plx_world_options {
    uint64_t seed;
    /* Disks and store. */
    unsigned volumes;
    uint64_t volume_bytes, extent_bytes, segment_bytes;
    uint32_t block_size;
    bool volatile_cache;
    unsigned patience, stalls, tear_bytes;
    /* Instances. */
    unsigned hosts; /* at work on the store at the same time */
    uint64_t cache_bytes, keyframe_mappings;
    unsigned ops_per_vdi;
    bool grant_later;
    /* Virtual disks. */
    unsigned vdis; /* at most; the first is made at once, others come later */
    uint64_t vdi_bytes;
    uint32_t sector_size;
    bool write_back, copy;
    uint64_t quiet_ns; /* of what is not overwritten in place for so long; 0: never */
    /* Workload. */
    unsigned steps, in_flight;
    unsigned unmap_weight, snapshot_weight, sync_weight, move_weight, share_weight;
    bool big_io;
    bool protect;      /* disks take snapshots by themselves, in modes that change now and then */
    bool toggle_cache; /* the cache mode changes now and then */
    bool labels;
    unsigned forget_weight;  /* how often old snapshots are let go, per 1000 steps */
    unsigned by_policy;      /* at least so many per cent of that: as a policy does it */
    unsigned rewind_weight;  /* and how often a disk goes back to an instant */
    unsigned collect_weight; /* and garbage is collected */
    unsigned clock_weight;   /* and time passes, or a wall clock jumps */
    bool disciplined;        /* kernels say of a clock that is right that it is */
    bool tight;              /* NOSPACE is to be expected, of what needs blocks for data */
    bool gives_way;          /* history does, to writes */
    unsigned faults;         /* I/O errors injected now and then, in per cent of steps */
    unsigned drops; /* flushes that fail and drop what they were to cover, of steps in 100 */
    unsigned
        lies; /* reads that return other bytes, likewise; everything needs its checksum (copy) */
    /* Death. */
    unsigned crashes;     /* power cuts */
    unsigned kills;       /* of one host; half of them fenced instead, alive a while longer */
    unsigned fork_every;  /* forks are made at every so many-th event; 0: never */
    unsigned forks_dense; /* after so many states twice as rarely, three times after as many again;
                             0: as ever */
    unsigned forks;       /* at most so many at one event */
    unsigned ring_segments; /* of a write-back ring of the only host; 0: there is none */
    unsigned ring_members;
    unsigned ring_strangers; /* per cent of recoveries that another host comes before */
    bool ring_apart;         /* store and machine lose power apart from each other */
    bool ring_aside;         /* disks may have to go on without it, after it had stopped */
    uint64_t ring_memory;
    unsigned ring_weight; /* how often it is turned on or off, per 1000 steps */
    bool trace;
};

struct plx_world_result {
    uint64_t runs; /* of a sum (seeds.h) */
    bool failed;
    char failure[512];
    uint64_t collected;    /* blocks */
    uint64_t rewinds_past; /* that history has moved past */
    uint64_t clock_jumps, gone_by_time;
    uint64_t ring_turns, replayed; /* disks opened with records on the ring */
    uint64_t strangers, discarded; /* disks that another host looked at, that it discarded writes of
                                    */
    uint64_t store_cuts, machine_cuts; /* of power, apart from each other */
    uint64_t rings_stopped, rings_aside, members_lost, members_added, members_refused;
    uint64_t undrained; /* times that the store had no room for what a ring has */
    uint64_t along;     /* crash states in which a disk had passed by its ring several writes that
                           were under way (RINGED_REQUESTS-3) */
    uint64_t requests, snapshots, rewinds, moved, joined, vouched, crashes, kills, recovery_crashes,
        sectors_checked, io_events, nospace;
    uint64_t
        states; /* different contents of the disks that a power cut left and that were judged */
    uint64_t trace_hash; /* of the disks' images and the events: the same for the same options */
};

/* All of it follows from the seed: sizes, profile, mix. */
void plx_world_options_random(uint64_t seed, bool with_crashes, struct plx_world_options *ret);
/* Few and small disks, and forks at many events: what a run costs goes into crash states. */
void plx_world_options_states(uint64_t seed, struct plx_world_options *ret);
/* A store that is nearly always full. */
void plx_world_options_full(uint64_t seed, bool with_crashes, struct plx_world_options *ret);
/* Such a one whose blocks die with every key frame, which are many and slow, and are used again at
 * once. */
void plx_world_options_reuse(uint64_t seed, struct plx_world_options *ret);
/* Snapshots, clones and rewinds, between key frames that are many and slow, and what nobody holds
 * is let go all the time. */
void plx_world_options_history(uint64_t seed, struct plx_world_options *ret);
/* A host with a write-back ring, and forks at many events. */
void plx_world_options_ring(uint64_t seed, struct plx_world_options *ret);
/* The same with a mirrored ring, whose members fail and come back. */
void plx_world_options_ring_mirror(uint64_t seed, struct plx_world_options *ret);
/* With one, and devices that fail for a while. */
void plx_world_options_ring_faults(uint64_t seed, struct plx_world_options *ret);
/* With one; before the host comes back, another one comes, and may discard what the ring has. */
void plx_world_options_ring_hosts(uint64_t seed, struct plx_world_options *ret);
/* With one; the store loses power while the host goes on, or the host while the store does. */
void plx_world_options_ring_apart(uint64_t seed, struct plx_world_options *ret);
/* With one on a store that gets full. */
void plx_world_options_ring_full(uint64_t seed, struct plx_world_options *ret);
/* Many writes at once on a store that is full: few become records. */
void plx_world_options_ring_along(uint64_t seed, struct plx_world_options *ret);
bool plx_world_run(const struct plx_world_options *options, struct plx_world_result *ret_result);

#endif
