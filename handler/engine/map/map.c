/* map.c - see map.h.
 *
 * MAP-1  A lookup sees the newest applied change: it asks active, then frozen, then the base.
 * MAP-2  A mapping is writable only if no snapshot sees it, whether that snapshot is taken or only
 *     submitted. Otherwise a write in place would change what the snapshot shows.
 * MAP-3  A death is recorded once, and only for a block that no snapshot sees. Otherwise a block
 *     would be freed twice, or while a snapshot has it.
 * MAP-4  A checksum is reported only while it holds. A VOIDED slot hides the checksums of its
 *     leaf's writable blocks in the base, and an entry without a checksum says that it is unknown.
 *     So a stale checksum never makes good data look damaged.
 * MAP-5  A common block is never writable, keeps its checksum, and its death is not recorded,
 *     because other disks may map it (share.c).
 * MAP-6  A checksum that comes back (plx_map_vouch()) changes nothing else. The block stays where
 *     it is, and it is as writable as it was.
 * Loop: the store's loop.
 * Crash story: memory only. The store has the base and the log, and replay applies the log again.
 */
#include "engine/base/list.h"
#include "engine/map/map.h"

#include <stdlib.h>

void plx_deaths_add(struct plx_deaths *deaths, uint64_t addr)
{
    if (plx_addr_is_common(addr)) /* MAP-5 */
        return;
    if (!PLX_LIST_ROOM(deaths->addrs, deaths->count, deaths->capacity, 64)) {
        deaths->lost++;
        return;
    }
    deaths->addrs[deaths->count++] = addr;
}

void plx_deaths_free(struct plx_deaths *deaths)
{
    free(deaths->addrs);
    *deaths = (struct plx_deaths){0};
}

void plx_deaths_give_back(struct plx_store *store, struct plx_deaths *deaths,
                          const struct plx_since *since)
{
    for (size_t i = 0; i < deaths->count; i++)
        if (since)
            plx_alloc_free_dead(store, deaths->addrs[i], since);
        else
            plx_alloc_free(store, deaths->addrs[i], 1);
    plx_deaths_free(deaths);
}

void plx_map_init(struct plx_map *map, struct plx_store *store, const struct plx_base *base)
{
    *map = (struct plx_map){
        .store = store, .base = *base, .gen = base->gen, .gen_submitted = base->gen};
    plx_overlay_init(&map->active, base->gen);
    plx_overlay_init(&map->frozen, base->gen);
}

void plx_map_done(struct plx_map *map)
{
    plx_overlay_done(&map->active);
    plx_overlay_done(&map->frozen);
    plx_deaths_free(&map->deaths);
    plx_deaths_free(&map->frozen_deaths);
}

unsigned plx_map_levels_for(uint64_t size_bytes)
{
    unsigned levels = 3;

    return size_bytes > (uint64_t)PLX_BLOCK_SIZE << (levels * PLX_NODE_SHIFT) ? 4 : levels;
}

/* ---- Lookup ---- */

static bool is_shared(const struct plx_slot *slot)
{
    return (slot->value & PLX_SLOT_OLDER_SHARED) == PLX_SLOT_OLDER_SHARED;
}

/* MAP-2 */
static bool is_writable(const struct plx_map *map, const struct plx_overlay *overlay,
                        const struct plx_slot *slot)
{
    return plx_entry_is_own(slot->value) && !is_shared(slot) &&
           plx_overlay_gen(overlay, slot) == map->gen_submitted;
}

enum overlay_answer {
    SAYS_NOTHING,
    SAYS_MAPPED,
    SAYS_ABSENT,
};

static enum overlay_answer ask_overlay(const struct plx_map *map, const struct plx_overlay *overlay,
                                       uint64_t vblock, struct plx_mapping *ret)
{
    const struct plx_slot *slot = plx_overlay_find(overlay, PLX_OVERLAY_BLOCK, vblock);

    if (slot) {
        *ret = (struct plx_mapping){
            .addr = plx_entry_addr(slot->value),
            .checksum = plx_entry_checksum(slot->value),
            .writable = is_writable(map, overlay, slot),
        };
        return ret->addr ? SAYS_MAPPED : SAYS_ABSENT;
    }
    if (overlay->unmapped &&
        plx_overlay_find(overlay, PLX_OVERLAY_UNMAPPED, vblock >> PLX_NODE_SHIFT)) {
        *ret = (struct plx_mapping){0};
        return SAYS_ABSENT;
    }
    return SAYS_NOTHING;
}

static enum overlay_answer ask_overlays(const struct plx_map *map, uint64_t vblock,
                                        struct plx_mapping *ret)
{
    enum overlay_answer answer = ask_overlay(map, &map->active, vblock, ret);

    if (answer == SAYS_NOTHING && map->is_frozen)
        answer = ask_overlay(map, &map->frozen, vblock, ret);
    return answer;
}

static bool voided_in(const struct plx_map *map, const struct plx_overlay *overlay, uint64_t leaf)
{
    const struct plx_slot *slot;

    if (!overlay->voided)
        return false;
    slot = plx_overlay_find(overlay, PLX_OVERLAY_VOIDED, leaf);
    return slot && plx_overlay_gen(overlay, slot) == map->base.gen;
}

static void from_base(const struct plx_map *map, uint64_t vblock, uint64_t entry, bool read_only,
                      struct plx_mapping *ret)
{
    uint64_t leaf = vblock >> PLX_NODE_SHIFT;

    read_only = read_only || (entry & PLX_ENTRY_READ_ONLY);
    *ret = (struct plx_mapping){
        .addr = plx_entry_addr(entry),
        .checksum = plx_entry_checksum(entry),
        .writable = plx_entry_is_own(entry) && !read_only && map->base.gen == map->gen_submitted,
    };
    if (!read_only && ret->checksum && plx_entry_is_own(entry) &&
        (voided_in(map, &map->active, leaf) ||
         (map->is_frozen && voided_in(map, &map->frozen, leaf))))
        ret->checksum = 0; /* MAP-4 */
}

static bool base_covers(const struct plx_map *map, uint64_t vblock)
{
    return plx_entry_addr(map->base.root) && vblock >> (map->base.levels * PLX_NODE_SHIFT) == 0;
}

static void walk_begin(const struct plx_map *map, uint64_t vblock, struct plx_walk *walk)
{
    walk->under_way = true;
    walk->vblock = vblock;
    walk->entry = map->base.root;
    walk->level = map->base.levels;
    walk->base_changes = map->base_changes;
    walk->read_only = (map->base.root & PLX_ENTRY_READ_ONLY) != 0;
    walk->leaf = NULL;
}

int plx_map_lookup(struct plx_map *map, uint64_t vblock, struct plx_walk *walk,
                   struct plx_task *task, struct plx_mapping *ret_mapping)
{
    if (ask_overlays(map, vblock, ret_mapping) != SAYS_NOTHING) { /* MAP-1 */
        walk->under_way = false;
        return 0;
    }
    if (!base_covers(map, vblock)) {
        *walk = (struct plx_walk){
            .vblock = vblock, .level = PLX_LEVELS_MAX, .base_changes = map->base_changes};
        *ret_mapping = (struct plx_mapping){0};
        return 0;
    }
    if (walk->leaf && walk->leaf_index == vblock >> PLX_NODE_SHIFT &&
        walk->base_changes == map->base_changes) {
        from_base(map, vblock, plx_node_entry(walk->leaf, vblock & (PLX_NODE_ENTRIES - 1)),
                  walk->leaf_read_only, ret_mapping);
        return 0;
    }
    if (!walk->under_way || walk->vblock != vblock || walk->base_changes != map->base_changes)
        walk_begin(map, vblock, walk);
    while (walk->level > 0 && plx_entry_addr(walk->entry)) {
        unsigned index = vblock >> ((walk->level - 1) * PLX_NODE_SHIFT) & (PLX_NODE_ENTRIES - 1);
        const void *node;
        int error = plx_cache_get(map->store->cache, walk->entry, walk->level, task, &node);

        if (error == PLX_WAIT)
            walk->nodes_waited++;
        if (error)
            return error;
        if (walk->level == 1) {
            walk->leaf = node;
            walk->leaf_index = vblock >> PLX_NODE_SHIFT;
            walk->leaf_read_only = walk->read_only;
        }
        walk->entry = plx_node_entry(node, index);
        walk->read_only = walk->read_only || (walk->entry & PLX_ENTRY_READ_ONLY);
        walk->level--;
    }
    from_base(map, vblock, walk->level ? 0 : walk->entry, walk->read_only, ret_mapping);
    walk->under_way = false;
    return 0;
}

bool plx_map_known_not_writable(const struct plx_map *map, uint64_t vblock, bool *ret_absent)
{
    struct plx_mapping mapping;

    *ret_absent = false;
    switch (ask_overlays(map, vblock, &mapping)) {
    case SAYS_MAPPED:
        return !mapping.writable;
    case SAYS_ABSENT:
        *ret_absent = true;
        return true;
    case SAYS_NOTHING:
        break;
    }
    *ret_absent = !base_covers(map, vblock);
    return *ret_absent || map->base.gen != map->gen_submitted ||
           (map->base.root & PLX_ENTRY_READ_ONLY);
}

/* ---- Applying changes ---- */

size_t plx_map_slots_for_unmap(uint64_t vblock, uint64_t count)
{
    uint64_t first = vblock >> PLX_NODE_SHIFT, last = (vblock + count - 1) >> PLX_NODE_SHIFT;
    uint64_t edges = plx_min_u64(count, 2 * PLX_NODE_ENTRIES);

    return (size_t)(last - first + 1 + edges);
}

static bool first_gen(const struct plx_map *map)
{
    return map->gen == map->active.first_gen;
}

/* Sets the block's slot in active; entry 0: the block is unmapped. BASE_DEAD records whether what
 * the layers below map there died before any snapshot could see it:
 *     no slot yet, no UNMAPPED marker   it dies now: yes, if no snapshot came since the freeze
 *     no slot yet, an UNMAPPED marker   it died with the leaf: as the marker says
 *     an OLDER slot                     it dies now, as in the first case
 *     any other slot                    it died before: as the slot says; what dies now is what the
 *                                       slot maps, recorded if no snapshot sees it (MAP-3)
 */
static void set_block(struct plx_map *map, uint64_t vblock, uint64_t entry)
{
    struct plx_overlay *overlay = &map->active;
    bool is_new, base_dead;
    struct plx_slot *slot = plx_overlay_put(overlay, PLX_OVERLAY_BLOCK, vblock, &is_new);

    if (is_new) {
        const struct plx_slot *unmapped = NULL;

        if (overlay->unmapped)
            unmapped = plx_overlay_find(overlay, PLX_OVERLAY_UNMAPPED, vblock >> PLX_NODE_SHIFT);
        base_dead = unmapped ? (unmapped->value & PLX_SLOT_BASE_DEAD) : first_gen(map);
    } else if (slot->value & PLX_SLOT_OLDER) {
        base_dead = first_gen(map);
    } else {
        base_dead = slot->value & PLX_SLOT_BASE_DEAD;
        if (plx_entry_addr(slot->value) && plx_overlay_gen(overlay, slot) == map->gen)
            plx_deaths_add(&map->deaths, plx_entry_addr(slot->value)); /* MAP-3 */
    }
    slot->value = entry | (base_dead ? PLX_SLOT_BASE_DEAD : 0);
    plx_overlay_set_gen(overlay, slot, map->gen);
}

void plx_map_apply_map(struct plx_map *map, uint64_t vblock, uint64_t addr, uint32_t checksum24)
{
    set_block(map, vblock, plx_entry_make(addr, checksum24));
}

/* One marker instead of 512 slots. Blocks that have a slot keep it, because their deaths differ. */
static void unmap_leaf(struct plx_map *map, uint64_t leaf)
{
    struct plx_overlay *overlay = &map->active;
    struct plx_slot *marker;
    bool is_new;

    if (overlay->count > overlay->unmapped)
        for (uint64_t v = leaf << PLX_NODE_SHIFT; v < (leaf + 1) << PLX_NODE_SHIFT; v++)
            if (plx_overlay_find(overlay, PLX_OVERLAY_BLOCK, v))
                set_block(map, v, 0);
    marker = plx_overlay_put(overlay, PLX_OVERLAY_UNMAPPED, leaf, &is_new);
    if (is_new && first_gen(map))
        marker->value = PLX_SLOT_BASE_DEAD;
    plx_overlay_set_gen(overlay, marker, map->gen);
}

void plx_map_apply_unmap(struct plx_map *map, uint64_t vblock, uint64_t count)
{
    uint64_t end = vblock + count;

    map->unmapped_blocks += count;
    while (vblock < end) {
        uint64_t leaf = vblock >> PLX_NODE_SHIFT, leaf_end = (leaf + 1) << PLX_NODE_SHIFT;

        if (vblock == leaf << PLX_NODE_SHIFT && end >= leaf_end) {
            unmap_leaf(map, leaf);
            vblock = leaf_end;
        } else {
            for (; vblock < plx_min_u64(end, leaf_end); vblock++)
                set_block(map, vblock, 0);
        }
    }
}

/* If the frozen layer maps the block, and the block is still writable, copies the mapping up
 * without its checksum. */
static void void_frozen_block(struct plx_map *map, uint64_t vblock)
{
    const struct plx_slot *below = plx_overlay_find(&map->frozen, PLX_OVERLAY_BLOCK, vblock);
    struct plx_slot *slot;
    bool is_new;

    if (!below || !plx_entry_is_own(below->value) || is_shared(below) ||
        plx_overlay_gen(&map->frozen, below) != map->gen)
        return;
    slot = plx_overlay_put(&map->active, PLX_OVERLAY_BLOCK, vblock, &is_new);
    slot->value = plx_entry_addr(below->value) | PLX_SLOT_OLDER;
    plx_overlay_set_gen(&map->active, slot, map->gen);
}

/* The leaf's writable mappings lose their checksums: in active they are cleared, from frozen they
 * are copied up without one, and for the base a VOIDED marker says so. */
void plx_map_apply_void(struct plx_map *map, uint64_t leaf)
{
    struct plx_overlay *overlay = &map->active;
    bool hidden = plx_overlay_find(overlay, PLX_OVERLAY_UNMAPPED, leaf) != NULL, is_new;

    for (uint64_t v = leaf << PLX_NODE_SHIFT; v < (leaf + 1) << PLX_NODE_SHIFT; v++) {
        struct plx_slot *slot = plx_overlay_find(overlay, PLX_OVERLAY_BLOCK, v);

        if (slot && plx_entry_is_own(slot->value) && !is_shared(slot) &&
            plx_overlay_gen(overlay, slot) == map->gen)
            slot->value = plx_entry_void(slot->value);
        else if (!slot && !hidden && map->is_frozen)
            void_frozen_block(map, v);
    }
    if (!hidden && map->base.gen == map->gen)
        plx_overlay_set_gen(overlay, plx_overlay_put(overlay, PLX_OVERLAY_VOIDED, leaf, &is_new),
                            map->gen);
}

void plx_map_vouch(struct plx_map *map, uint64_t vblock, const struct plx_mapping *mapping,
                   uint32_t checksum24)
{
    bool is_new;
    struct plx_slot *slot = plx_overlay_put(&map->active, PLX_OVERLAY_BLOCK, vblock, &is_new);

    PLX_ASSERT(!map->is_frozen && !mapping->checksum && !plx_addr_is_common(mapping->addr));
    /* The base maps the block. It is writable only if no snapshot came since, applied or not. */
    if (is_new) {
        slot->value = mapping->addr | (mapping->writable ? PLX_SLOT_OLDER : PLX_SLOT_OLDER_SHARED);
        plx_overlay_set_gen(&map->active, slot, map->gen);
    }
    PLX_ASSERT(plx_entry_addr(slot->value) == mapping->addr);
    slot->value = plx_entry_void(slot->value) | plx_entry_make(0, checksum24); /* MAP-6 */
}

void plx_map_apply_snapshot(struct plx_map *map, uint64_t seq)
{
    map->gen = seq;
    if (map->gen_submitted < map->gen)
        map->gen_submitted = map->gen; /* in replay nothing is submitted */
}

/* ---- Key frames ---- */

bool plx_map_freeze(struct plx_map *map)
{
    struct plx_overlay empty = map->frozen;
    size_t reserved = map->active.reserved;

    PLX_ASSERT(!map->is_frozen);
    /* What batches in flight have reserved moves along, because they are applied to the fresh
     * layer. */

    plx_overlay_clear(&empty, map->gen);
    if (!plx_overlay_reserve(&empty, reserved)) {
        map->frozen = empty;
        return false;
    }
    map->active.reserved = 0;
    map->frozen = map->active;
    map->active = empty;
    map->is_frozen = true;
    map->frozen_deaths = map->deaths;
    map->deaths = (struct plx_deaths){0};
    map->unmapped_blocks = 0;
    return true;
}

void plx_map_install(struct plx_map *map, const struct plx_keyframe *keyframe)
{
    PLX_ASSERT(map->is_frozen);
    map->base = (struct plx_base){.root = keyframe->root,
                                  .levels = keyframe->levels,
                                  .gen = map->active.first_gen,
                                  .mapped = keyframe->mapped,
                                  .vouched = keyframe->vouched};
    map->base_changes++;
    plx_overlay_clear(&map->frozen, map->gen);
    map->is_frozen = false;
}
