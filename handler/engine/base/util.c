/* util.c - identities as text, counters by name. Stateless. */
#include <stdio.h>
#include <string.h>

#include "engine/base/hash.h"
#include "engine/engine.h"

void plx_uuid_text(const struct plx_uuid *id, char ret_text[37])
{
    const uint8_t *b = id->b;

    snprintf(ret_text, 37, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
             b[14], b[15]);
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool plx_uuid_parse(const char *text, struct plx_uuid *ret_id)
{
    struct plx_uuid id;
    unsigned count = 0;

    if (strlen(text) != 36)
        return false;
    for (unsigned i = 0; i < 36;) {
        int high, low;

        if (i == 8 || i == 13 || i == 18 || i == 23) {
            if (text[i++] != '-')
                return false;
            continue;
        }
        high = hex_digit(text[i]);
        low = hex_digit(text[i + 1]);
        if (high < 0 || low < 0)
            return false;
        id.b[count++] = (uint8_t)(high << 4 | low);
        i += 2;
    }
    *ret_id = id;
    return true;
}

bool plx_uuid_is_zero(const struct plx_uuid *id)
{
    static const struct plx_uuid zero;

    return plx_uuid_equal(id, &zero);
}

bool plx_uuid_equal(const struct plx_uuid *a, const struct plx_uuid *b)
{
    return memcmp(a->b, b->b, sizeof a->b) == 0;
}

/* The bits of a UUID of version 8 are its maker's choice. */
struct plx_uuid plx_uuid_shown(const struct plx_uuid *store, const struct plx_uuid *identity,
                               const struct plx_uuid *vdi)
{
    const struct plx_uuid both[2] = {*identity, *vdi}, turned[2] = {*vdi, *identity};
    const uint64_t halves[2] = {plx_hash64(both, sizeof both), plx_hash64(turned, sizeof turned)};
    struct plx_uuid shown;

    if (plx_uuid_equal(store, identity))
        return *vdi;
    memcpy(shown.b, halves, sizeof shown.b);
    shown.b[6] = (uint8_t)(0x80 | (shown.b[6] & 0x0f));
    shown.b[8] = (uint8_t)(0x80 | (shown.b[8] & 0x3f));
    return shown;
}

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
