/* versions.c - see versions.h.
 *
 * VERSIONS-1  A version that is born after snapshot b and dies after snapshot d is seen by the
 *     snapshots b+1..d that there are. One that none saw came back when it died, or belongs to what
 *     a crash left over; so what comes back here was seen by some, and by none that stays.
 * VERSIONS-2  A version that lives on at the end of the stretch is not touched: who sees it is
 *     decided where it dies.
 * VERSIONS-3  What a clone began with is its parent's: it never comes back here.
 * Loop: the caller's.
 * Crash story: memory only.
 */
#include "engine/history/versions.h"

#include <stdlib.h>
#include <string.h>

#include "engine/loop/store.h"

/* ---- The table ---- */

struct plx_version *plx_versions_at(const struct plx_versions *v, uint64_t vblock)
{
    size_t at = (size_t)(vblock * 0x9e3779b97f4a7c15ull >> 20) & (v->capacity - 1);

    while (v->slots[at].used && v->slots[at].vblock != vblock)
        at = (at + 1) & (v->capacity - 1);
    return &v->slots[at];
}

static bool make_room(struct plx_versions *v)
{
    struct plx_versions bigger = {.capacity = v->capacity ? v->capacity * 2 : 1024};

    if (v->count + 1 < v->capacity / 4 * 3)
        return true;
    bigger.slots = calloc(bigger.capacity, sizeof *bigger.slots);
    if (!bigger.slots)
        return false;
    for (size_t i = 0; i < v->capacity; i++)
        if (v->slots[i].used)
            *plx_versions_at(&bigger, v->slots[i].vblock) = v->slots[i];
    free(v->slots);
    v->slots = bigger.slots;
    v->capacity = bigger.capacity;
    return true;
}

static bool push(uint64_t **list, size_t *count, size_t *capacity, uint64_t number)
{
    if (*count == *capacity) {
        size_t more = *capacity ? *capacity * 2 : 256;
        uint64_t *bigger = realloc(*list, more * sizeof *bigger);

        if (!bigger)
            return false;
        *list = bigger;
        *capacity = more;
    }
    (*list)[(*count)++] = number;
    return true;
}

/* ---- Lives and deaths ---- */

/* VERSIONS-1 */
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

/* The version before this one ends; entry: the base's, when the caller has looked. */
static int replace(struct plx_versions *v, uint64_t vblock, uint64_t addr, uint32_t checksum,
                   const uint64_t *entry)
{
    struct plx_version *version;
    bool fresh;

    if (!make_room(v))
        return PLX_ERR_NOMEM;
    version = plx_versions_at(v, vblock);
    fresh = version->used && version->fresh;
    if (!fresh && !push(&v->fresh, &v->fresh_count, &v->fresh_capacity, vblock))
        return PLX_ERR_NOMEM;
    if (version->used) {
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
        v->count++;
    }
    *version = (struct plx_version){.used = true,
                                    .fresh = true,
                                    .vblock = vblock,
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

/* Of the base, where nothing has come in its place yet. */
static int unmap_base(void *argument, uint64_t vblock, uint64_t entry)
{
    struct plx_versions *v = argument;

    if (v->capacity && plx_versions_at(v, vblock)->used)
        return 0;
    return replace(v, vblock, 0, 0, &entry);
}

static int unmap(struct plx_versions *v, uint64_t vblock, uint64_t count)
{
    int error = v->base.each(v->base.context, vblock, count, unmap_base, v);

    if (!error && !make_room(v)) /* so that the table stays where it is */
        error = PLX_ERR_NOMEM;
    if (error)
        return error;
    /* Few blocks are looked up; of many the whole table is looked through. */
    for (size_t i = 0; i < v->capacity && count >= v->capacity && !error; i++) {
        struct plx_version version = v->slots[i];

        if (version.used && version.addr && version.vblock - vblock < count)
            error = replace(v, version.vblock, 0, 0, NULL);
    }
    for (uint64_t i = 0; i < count && count < v->capacity && !error; i++) {
        const struct plx_version *version = plx_versions_at(v, vblock + i);

        if (version->used && version->addr)
            error = replace(v, vblock + i, 0, 0, NULL);
    }
    return error;
}

/* The checksums of what may be written in place: no snapshot has seen it. */
static int void_leaf(struct plx_versions *v, uint64_t leaf)
{
    for (unsigned i = 0; i < PLX_NODE_ENTRIES && v->capacity; i++) {
        struct plx_version *version = plx_versions_at(v, (leaf << PLX_NODE_SHIFT) + i);

        if (version->used && version->birth == v->gen && !plx_addr_is_common(version->addr))
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

/* ---- What has changed lately ---- */

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

void plx_versions_free(struct plx_versions *v)
{
    free(v->slots);
    free(v->fresh);
    free(v->leaves);
    *v = (struct plx_versions){0};
}
