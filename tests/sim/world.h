/* world.h - a whole run from one seed: disks, a store, virtual disks, a workload, power cuts.
 *
 * Everything that is read is held against the oracle. With power cuts each one is followed by a
 * new instance that adopts and recovers what the dead one held, and reads everything back.
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
    unsigned patience, tear_bytes;
    /* Instance. */
    uint64_t cache_bytes, keyframe_mappings;
    unsigned ops_per_vdi;
    bool grant_later;
    /* Virtual disks. */
    unsigned vdis; /* at most; the first is made at once, others come later */
    uint64_t vdi_bytes;
    uint32_t sector_size;
    bool write_back, copy;
    /* Workload. */
    unsigned steps, in_flight;
    unsigned unmap_weight, snapshot_weight, sync_weight;
    bool big_io;
    bool tight;      /* NOSPACE is to be expected */
    unsigned faults; /* I/O errors injected now and then */
    /* Power. */
    unsigned crashes;
    bool trace;
};

struct plx_world_result {
    bool failed;
    char failure[512];
    uint64_t requests, snapshots, crashes, recovery_crashes, sectors_checked, io_events, nospace;
    uint64_t trace_hash; /* of the disks' images and the events: the same for the same options */
};

/* All of it follows from the seed: sizes, profile, mix. */
void plx_world_options_random(uint64_t seed, bool with_crashes, struct plx_world_options *ret);
bool plx_world_run(const struct plx_world_options *options, struct plx_world_result *ret_result);

#endif
