/* counters.c - counters by name. Stateless. */
#include <stddef.h>
#include <string.h>

#include "engine/engine.h"

#define COUNTER(member)                                                                            \
    {                                                                                              \
#member, offsetof(struct plx_counters, member)                                             \
    }
#define COUNTER_OF(member, kind, suffix)                                                           \
    {                                                                                              \
#member "_" suffix, offsetof(struct plx_counters, member) + sizeof(uint64_t) * (kind)      \
    }
#define COUNTERS_BY_KIND(member)                                                                   \
    COUNTER_OF(member, PLX_KIND_DATA, "data"), COUNTER_OF(member, PLX_KIND_LOG, "log"),            \
        COUNTER_OF(member, PLX_KIND_NODE, "node"), COUNTER_OF(member, PLX_KIND_ADMIN, "admin")

struct counter {
    const char *name;
    size_t offset;
};

static const struct counter of_disk[] = {
    COUNTER(reads),
    COUNTER(read_bytes),
    COUNTER(writes),
    COUNTER(write_bytes),
    COUNTER(unmaps),
    COUNTER(unmap_bytes),
    COUNTER(flushes),
    COUNTER(snapshots),
    COUNTER(snapshots_automatic),
    COUNTER(snapshots_skipped),
    COUNTER(snapshot_rate),
    COUNTER(blocks_in_place),
    COUNTER(blocks_new),
    COUNTER(voids),
    COUNTER(blocks_vouched),
};

static const struct counter of_store[] = {
    COUNTERS_BY_KIND(device_reads),
    COUNTERS_BY_KIND(device_read_bytes),
    COUNTERS_BY_KIND(device_writes),
    COUNTERS_BY_KIND(device_write_bytes),
    COUNTER(device_flushes),
    COUNTER(snapshot_bytes),
    COUNTER(blocks_zero),
    COUNTER(write_path_node_reads),
    COUNTER(batches),
    COUNTER(batch_records),
    COUNTER(batch_bytes),
    COUNTER(keyframes),
    COUNTER(keyframe_nodes),
    COUNTER(cache_hits),
    COUNTER(cache_misses),
    COUNTER(blocks_freed),
    COUNTER(blocks_foreign),
    COUNTER(blocks_collected),
    COUNTER(registry_calls_on_data_path),
    COUNTER(data_free_blocks),
    COUNTER(meta_free_blocks),
    COUNTER(recovery_blocks),
};

bool plx_counter_at(const struct plx_counters *counters, unsigned index, bool disk,
                    const char **ret_name, uint64_t *ret_value)
{
    unsigned disks = sizeof of_disk / sizeof of_disk[0];
    unsigned all = disk ? disks : disks + sizeof of_store / sizeof of_store[0];
    const struct counter *counter;

    if (index >= all)
        return false;
    counter = index < disks ? &of_disk[index] : &of_store[index - disks];
    *ret_name = counter->name;
    memcpy(ret_value, (const uint8_t *)counters + counter->offset, sizeof *ret_value);
    return true;
}
