/* map.h - a VDI's map: from virtual blocks to blocks in the store.
 *
 * The map has three layers. A lookup asks them in this order:
 *     active   changes since the last key frame began, in memory
 *     frozen   changes that a key frame under way is writing out, in memory
 *     base     the radix tree of the last key frame, on the store (Parallax 3.1)
 * Changes are applied in log order, when they are durable. A key frame turns active into frozen
 * (plx_map_freeze()), merges frozen and base into a new tree (tree.h), and makes that tree the base
 * (plx_map_install()).
 *
 * Generations: the map counts snapshots. A block may be overwritten in place only if it was mapped
 * in the generation that new writes belong to, that is, after the last snapshot. Otherwise a
 * snapshot sees it.
 *
 *     plx_walk_resume(&walk);                        at the start of each step
 *     if (plx_map_lookup(map, vblock, &walk, task, &mapping) == PLX_WAIT)
 *         return;                                    call again with the same walk
 *     mapping.addr, .writable, .checksum             0: absent; in place or not; 0: unknown
 *
 * All calls come from the store's loop. The map owns its memory; plx_map_done() frees it.
 */
#ifndef PLX_MAP_H
#define PLX_MAP_H

#include "engine/space/allocator.h"
#include "engine/map/overlay.h"

/* Blocks that nothing maps any more. They may be freed once a key frame without them is durable. */
struct plx_deaths {
    uint64_t *addrs;
    size_t count, capacity;
    uint64_t lost; /* not recorded for want of memory; a collection finds them */
};

void plx_deaths_add(struct plx_deaths *deaths, uint64_t addr);
void plx_deaths_free(struct plx_deaths *deaths);
/* Frees the blocks and empties the list. since: taken before the record was written that lets them
 * go (ALLOC-6). NULL: no record ever named them. */
void plx_deaths_give_back(struct plx_store *store, struct plx_deaths *deaths,
                          const struct plx_since *since);

struct plx_base {
    uint64_t root; /* an entry */
    unsigned levels;
    uint64_t gen;             /* snapshots before its key frame */
    uint64_t mapped, vouched; /* blocks, or PLX_MAPPED_UNKNOWN */
};

struct plx_map {
    struct plx_store *store;
    struct plx_base base;
    uint64_t base_changes; /* counts installs: an older walk starts over */
    struct plx_overlay active, frozen;
    bool is_frozen;
    uint64_t gen;           /* of the changes that are applied */
    uint64_t gen_submitted; /* of the writes that are submitted from now on */
    /* Blocks unmapped since the freeze. How many of them were mapped is known only after a merge.
     */
    uint64_t unmapped_blocks;
    struct plx_deaths deaths;        /* blocks that died since the freeze */
    struct plx_deaths frozen_deaths; /* blocks that died before it */
};

struct plx_mapping {
    uint64_t addr;     /* 0: the block is absent */
    uint32_t checksum; /* 24 bits, 0: unknown */
    bool writable;     /* may be overwritten in place */
};

/* A lookup's way down the tree, which survives waiting for nodes. Zero it first. A leaf from the
 * cache stays valid within one step only, so each step begins with plx_walk_resume(). */
struct plx_walk {
    bool under_way;
    uint64_t vblock, entry, base_changes;
    unsigned level;
    bool read_only;
    const void *leaf;
    uint64_t leaf_index;
    bool leaf_read_only;
    uint64_t nodes_waited; /* waits of its lookups, in all */
};

static inline void plx_walk_resume(struct plx_walk *walk)
{
    walk->leaf = NULL;
}

void plx_map_init(struct plx_map *map, struct plx_store *store, const struct plx_base *base);
void plx_map_done(struct plx_map *map);

/* Returns 0, or PLX_WAIT after it has queued the task. When the task becomes ready, task->error
 * says whether a node could not be read. If not, the caller repeats the call with the same walk. */
int plx_map_lookup(struct plx_map *map, uint64_t vblock, struct plx_walk *walk,
                   struct plx_task *task, struct plx_mapping *ret_mapping);
/* Whether memory alone tells that a write to the block needs a new block, because the block is
 * absent or a snapshot sees it. Such a write is blind: it reads no node. *ret_absent: it is absent.
 */
bool plx_map_known_not_writable(const struct plx_map *map, uint64_t vblock, bool *ret_absent);

/* The most overlay slots that a change can need. */
size_t plx_map_slots_for_unmap(uint64_t vblock, uint64_t count);
#define PLX_MAP_SLOTS_FOR_VOID (PLX_NODE_ENTRIES + 1)

/* To be called in log order, with the slots reserved in map->active before. */
void plx_map_apply_map(struct plx_map *map, uint64_t vblock, uint64_t addr, uint32_t checksum24);
void plx_map_apply_unmap(struct plx_map *map, uint64_t vblock, uint64_t count);
void plx_map_apply_void(struct plx_map *map, uint64_t leaf);
void plx_map_apply_snapshot(struct plx_map *map, uint64_t seq);
/* Notes the checksum of a block's contents, which was unknown. The block stays where it is (MAP-6).
 * mapping: from a lookup after which neither the base nor map->gen_submitted has changed. Nothing
 * may be frozen, and one slot must be reserved. */
void plx_map_vouch(struct plx_map *map, uint64_t vblock, const struct plx_mapping *mapping,
                   uint32_t checksum24);

/* Turns active into frozen, for a key frame. Nothing may be frozen yet. False: out of memory, and
 * nothing has changed. */
bool plx_map_freeze(struct plx_map *map);
/* The key frame is durable: its tree becomes the base, and frozen is emptied. If a key frame fails,
 * frozen stays as it is, and the next attempt merges it. */
void plx_map_install(struct plx_map *map, const struct plx_keyframe *keyframe);

unsigned plx_map_levels_for(uint64_t size_bytes);

#endif
