/* overlay.h - the changes to a map since a key frame, in memory: a hash table of 16-byte slots.
 *
 * A slot says something about one block (BLOCK), or about all older mappings of one leaf: they
 * are gone (UNMAPPED) or their checksums no longer hold (VOIDED). A slot remembers the snapshot
 * generation in which it was made. Rooms are reserved ahead, so that putting cannot fail.
 */
#ifndef PLX_OVERLAY_H
#define PLX_OVERLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum plx_overlay_kind {
    PLX_OVERLAY_UNMAPPED = 0, /* index: leaf */
    PLX_OVERLAY_VOIDED = 1,   /* index: leaf */
    PLX_OVERLAY_BLOCK = 2,    /* index: virtual block */
};

/* Value bits beside address and checksum (entries never carry them here). */
#define PLX_SLOT_OLDER                                                                             \
    (1ull << 63) /* BLOCK: the mapping is the older one, but for its checksum                      \
                  */
#define PLX_SLOT_BASE_DEAD (1ull << 62) /* what was mapped before died unseen by any snapshot */
/* BLOCK: the older one, which is not writable: no generation of a slot can say so. */
#define PLX_SLOT_OLDER_SHARED (PLX_SLOT_OLDER | PLX_SLOT_BASE_DEAD)

struct plx_slot {
    uint64_t key; /* kind 2, index 36, generation 26 bits */
    uint64_t value;
};

/* Places counted lately, so many that streams side by side count each of theirs once. */
#define PLX_OVERLAY_COUNTED 16u

struct plx_overlay {
    struct plx_slot *slots;
    size_t capacity, count, reserved;
    size_t unmapped, voided; /* slots of these kinds */
    size_t leaves;           /* OVERLAY-3 */
    uint64_t counted[PLX_OVERLAY_COUNTED];
    uint64_t first_gen;      /* generations are stored relative to it */
    struct plx_slot *sorted; /* room for plx_overlay_sort: capacity * 3 / 4 slots */
};

#define PLX_OVERLAY_GENS (1u << 26)

void plx_overlay_init(struct plx_overlay *overlay, uint64_t first_gen);
void plx_overlay_done(struct plx_overlay *overlay);
/* Promises that `slots` more new slots can be put. false: out of memory, nothing changed. */
bool plx_overlay_reserve(struct plx_overlay *overlay, size_t slots);
void plx_overlay_unreserve(struct plx_overlay *overlay, size_t slots);
struct plx_slot *plx_overlay_find(const struct plx_overlay *overlay, enum plx_overlay_kind kind,
                                  uint64_t index);
/* Finds or makes; a new slot has value 0. Pointers are valid until the next reserve. */
struct plx_slot *plx_overlay_put(struct plx_overlay *overlay, enum plx_overlay_kind kind,
                                 uint64_t index, bool *ret_new);
void plx_overlay_set_gen(const struct plx_overlay *overlay, struct plx_slot *slot, uint64_t gen);
uint64_t plx_overlay_gen(const struct plx_overlay *overlay, const struct plx_slot *slot);
enum plx_overlay_kind plx_slot_kind(const struct plx_slot *slot);
uint64_t plx_slot_index(const struct plx_slot *slot);
uint64_t plx_slot_leaf(const struct plx_slot *slot);
/* The first block at or after vblock that has a slot of its own; UINT64_MAX: none. Looks at all. */
uint64_t plx_overlay_next_block(const struct plx_overlay *overlay, uint64_t vblock);
/* Copies all slots, ordered by leaf, markers first, then by block, into overlay->sorted. */
void plx_overlay_sort(struct plx_overlay *overlay);
/* Empties it, keeping the memory. */
void plx_overlay_clear(struct plx_overlay *overlay, uint64_t first_gen);

#endif
