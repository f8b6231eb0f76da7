/* versions.c - see versions.h.
 *
 * VERSIONS-1  A version that is born after snapshot b and dies after snapshot d is seen by those of
 *     the snapshots b+1 to d that still exist. This file frees a version if at least one snapshot
 *     saw it and none that stays does. A version that no snapshot saw is left alone: the disk freed
 *     it when it died, or a crash left it to garbage collection.
 * VERSIONS-2  A version that is still mapped at the end of the stretch is never freed. Whether a
 *     snapshot sees it is decided by the stretch in which it dies.
 * VERSIONS-3  A block that a clone began with is never freed, because its origin may still use it.
 * Loop: the caller's; the base's functions may run it.
 * Crash story: this file changes memory only.
 */
#include "engine/history/versions.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/list.h"
#include "engine/loop/store.h"

/* ---- The table ---- */

struct plx_version *plx_versions_at(const struct plx_versions *v, uint64_t vblock)
{
    return plx_hashtable_at(&v->table, vblock);
}

static bool push(uint64_t **list, size_t *count, size_t *capacity, uint64_t number)
{
    if (!PLX_LIST_ROOM(*list, *count, *capacity, 256))
        return false;
    (*list)[(*count)++] = number;
    return true;
}

/* ---- Lives and deaths ---- */

/* VERSIONS-1: a snapshot saw the version that dies here, and none that stays did. */
static bool comes_back(const struct plx_versions *v, uint64_t birth)
{
    return v->gen > birth && v->kept <= birth;
}

static int base_dies(struct plx_versions *v, uint64_t vblock, uint64_t addr)
{
    bool inherited = false;
    int error = 0;

    if (!addr || !comes_back(v, v->base_birth))
        return 0;
    error = v->base.inherited(v->base.context, vblock, addr, &inherited); /* VERSIONS-3 */
    if (!error && !inherited)
        plx_deaths_add(v->freed, addr);
    return error;
}

/* The block's version ends and the next one begins. entry: the block's entry in the base, if the
 * caller has it at hand; else NULL. */
static int replace(struct plx_versions *v, uint64_t vblock, uint64_t addr, uint32_t checksum,
                   const uint64_t *entry)
{
    struct plx_version *version;
    bool fresh;

    if (!plx_hashtable_room(&v->table, sizeof(struct plx_version)))
        return PLX_ERR_NOMEM;
    version = plx_versions_at(v, vblock);
    fresh = version->vblock.used && version->fresh;
    if (!fresh && !push(&v->fresh, &v->fresh_count, &v->fresh_capacity, vblock))
        return PLX_ERR_NOMEM;
    if (version->vblock.used) {
        if (version->addr && comes_back(v, version->birth))
            plx_deaths_add(v->freed, version->addr);
    } else {
        uint64_t base = entry ? *entry : 0;
        int error = 0;

        if (!entry && comes_back(v, v->base_birth))
            error = v->base.entry(v->base.context, vblock, &base);
        if (!error)
            error = base_dies(v, vblock, plx_entry_addr(base));
        if (error) {
            v->fresh_count--;
            return error;
        }
        v->table.count++;
    }
    *version = (struct plx_version){.vblock = {vblock, true},
                                    .fresh = true,
                                    .addr = addr,
                                    .checksum = checksum,
                                    .birth = v->gen};
    return 0;
}

static int map(struct plx_versions *v, const struct plx_record *record)
{
    int error = 0;

    for (uint64_t i = 0; i < record->count && !error; i++)
        error =
            replace(v, record->vblock + i, record->addr + i, plx_record_checksum(record, i), NULL);
    return error;
}

/* Unmaps a block of the base, unless a later version has replaced it. */
static int unmap_base(void *argument, uint64_t vblock, uint64_t entry)
{
    struct plx_versions *v = argument;

    if (v->table.capacity && plx_versions_at(v, vblock)->vblock.used)
        return 0;
    return replace(v, vblock, 0, 0, &entry);
}

static int unmap(struct plx_versions *v, uint64_t vblock, uint64_t count)
{
    int error = v->base.each(v->base.context, vblock, count, unmap_base, v);

    if (!error &&
        !plx_hashtable_room(
            &v->table,
            sizeof(struct plx_version))) /* now, so that replace() below does not move the table */
        error = PLX_ERR_NOMEM;
    if (error)
        return error;
    /* Looks up each block of a short range; for a long one, goes through the whole table. */
    for (size_t i = 0; i < v->table.capacity && count >= v->table.capacity && !error; i++) {
        const struct plx_version *version = (struct plx_version *)v->table.slots + i;

        if (version->vblock.used && version->addr && version->vblock.number - vblock < count)
            error = replace(v, version->vblock.number, 0, 0, NULL);
    }
    for (uint64_t i = 0; i < count && count < v->table.capacity && !error; i++) {
        const struct plx_version *version = plx_versions_at(v, vblock + i);

        if (version->vblock.used && version->addr)
            error = replace(v, vblock + i, 0, 0, NULL);
    }
    return error;
}

/* Voids the checksums of the blocks that may be overwritten in place: those that no snapshot has
 * seen and that are not common. */
static int void_leaf(struct plx_versions *v, uint64_t leaf)
{
    for (unsigned i = 0; i < PLX_NODE_ENTRIES && v->table.capacity; i++) {
        struct plx_version *version = plx_versions_at(v, (leaf << PLX_NODE_SHIFT) + i);

        if (version->vblock.used && version->birth == v->gen && !plx_addr_is_common(version->addr))
            version->voided = true;
    }
    return push(&v->leaves, &v->leaf_count, &v->leaf_capacity, leaf) ? 0 : PLX_ERR_NOMEM;
}

int plx_versions_apply(struct plx_versions *v, const struct plx_record *record)
{
    int error = 0;

    switch (record->type) {
    case PLX_RECORD_MAP:
        return map(v, record);
    case PLX_RECORD_UNMAP:
        return unmap(v, record->vblock, record->count);
    case PLX_RECORD_VOID:
        for (uint64_t i = 0; i < record->count && !error; i++)
            error = void_leaf(v, record->vblock + i);
        return error;
    default:
        PLX_ASSERT(!"a record that changes no blocks");
    }
}

void plx_versions_snapshot(struct plx_versions *v, uint64_t seq, bool stays)
{
    v->gen = seq;
    if (stays)
        v->kept = seq;
}

/* ---- What has changed since the caller looked last ---- */

void plx_versions_sort_fresh(struct plx_versions *v)
{
    if (v->fresh_count)
        qsort(v->fresh, v->fresh_count, sizeof *v->fresh, plx_compare_u64);
    if (v->leaf_count)
        qsort(v->leaves, v->leaf_count, sizeof *v->leaves, plx_compare_u64);
}

void plx_versions_settle(struct plx_versions *v)
{
    for (size_t i = 0; i < v->fresh_count; i++)
        plx_versions_at(v, v->fresh[i])->fresh = false;
    v->fresh_count = v->leaf_count = 0;
}

/* Frees the table only: what is still mapped stays on the store (VERSIONS-2). */
void plx_versions_free(struct plx_versions *v)
{
    free(v->table.slots);
    free(v->fresh);
    free(v->leaves);
    *v = (struct plx_versions){0};
}
