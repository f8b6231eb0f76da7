/* map.h - a VDI's map: from virtual blocks to blocks in the store.
 *
 * Three layers, newest first: `active` (changes since the last key frame), `frozen` (changes that
 * a key frame under way is writing out), and the base, a radix tree on the store (Parallax 3.1).
 * Changes are applied in log order, when they are durable.
 *
 * Generations: the map counts snapshots. A mapping may be overwritten in place only when it was
 * made in the generation that new writes belong to, that is after the last snapshot (INV-3).
 */
#ifndef PLX_MAP_H
#define PLX_MAP_H

#include "engine/loop/store.h"
#include "engine/map/overlay.h"

/* Blocks nothing maps any more; freed once a key frame that knows so is durable. */
struct plx_deaths {
    uint64_t *addrs;
    size_t count, capacity;
    uint64_t lost; /* for want of memory: left to the collector */
};

void plx_deaths_add(struct plx_deaths *deaths, uint64_t addr);
void plx_deaths_free(struct plx_deaths *deaths);
/* They are free from now on. */
/* since: before the record that let them go; NULL: no record ever named them. */
void plx_deaths_give_back(struct plx_store *store, struct plx_deaths *deaths,
                          const struct plx_since *since);

struct plx_base {
    uint64_t root; /* entry */
    unsigned levels;
    uint64_t gen;             /* snapshots before the key frame */
    uint64_t mapped, vouched; /* blocks, or PLX_MAPPED_UNKNOWN */
};

struct plx_map {
    struct plx_store *store;
    struct plx_base base;
    uint64_t base_changes; /* counts installs; walks that began before start over */
    struct plx_overlay active, frozen;
    bool is_frozen;
    uint64_t gen;                    /* of what is applied */
    uint64_t gen_submitted;          /* of what is submitted: writes from now on belong to it */
    uint64_t unmapped_blocks;        /* since the freeze; what they were is known at the merge */
    struct plx_deaths deaths;        /* since the freeze */
    struct plx_deaths frozen_deaths; /* before it */
};

struct plx_mapping {
    uint64_t addr;     /* 0: absent */
    uint32_t checksum; /* 24 bits, 0: unknown */
    bool writable;     /* in place */
};

/* A lookup's way down the tree; survives waiting for nodes. Zero-initialised. leaf is valid only
 * within one step: plx_walk_resume() at the start of each. */
struct plx_walk {
    bool under_way;
    uint64_t vblock, entry, base_changes;
    unsigned level;
    bool read_only;
    const void *leaf;
    uint64_t leaf_index;
    bool leaf_read_only;
    uint64_t nodes_waited; /* how often a lookup had to wait */
};

static inline void plx_walk_resume(struct plx_walk *walk)
{
    walk->leaf = NULL;
}

void plx_map_init(struct plx_map *map, struct plx_store *store, const struct plx_base *base);
void plx_map_done(struct plx_map *map);

/* 0; or PLX_WAIT: the task is queued, and told if a node cannot be read; if not, call again with
 * the same walk. */
int plx_map_lookup(struct plx_map *map, uint64_t vblock, struct plx_walk *walk,
                   struct plx_task *task, struct plx_mapping *ret_mapping);
/* Whether a block is known, from memory alone, to be absent or shared: a write to it is blind, it
 * needs no node. *ret_absent: it is known to be absent. */
bool plx_map_known_not_writable(const struct plx_map *map, uint64_t vblock, bool *ret_absent);

/* How many overlay slots a change can need at most. */
size_t plx_map_slots_for_unmap(uint64_t vblock, uint64_t count);
#define PLX_MAP_SLOTS_FOR_VOID (PLX_NODE_ENTRIES + 1)

/* Apply in log order. Slots are reserved in map->active before. */
void plx_map_apply_map(struct plx_map *map, uint64_t vblock, uint64_t addr, uint32_t checksum24);
void plx_map_apply_unmap(struct plx_map *map, uint64_t vblock, uint64_t count);
void plx_map_apply_void(struct plx_map *map, uint64_t leaf);
void plx_map_apply_snapshot(struct plx_map *map, uint64_t seq);
/* The checksum of what a block holds, which was not known; it stays where it is. mapping: what a
 * lookup said of it, since when neither the base nor map->gen_submitted has changed. Nothing is
 * frozen; a slot is reserved. */
void plx_map_vouch(struct plx_map *map, uint64_t vblock, const struct plx_mapping *mapping,
                   uint32_t checksum24);

/* Freezes active for a key frame: false when one is frozen already. */
bool plx_map_freeze(struct plx_map *map);
/* The key frame failed: what was frozen stays frozen, to be merged again. Install: the new base
 * replaces base and frozen. */
void plx_map_install(struct plx_map *map, const struct plx_keyframe *keyframe);

unsigned plx_map_levels_for(uint64_t size_bytes);

#endif
