/* overlay.h - the changes to a map since a key frame, in memory: a hash table of 16-byte slots.
 *
 * A slot says something about one block, or about all older mappings of one leaf:
 *     BLOCK      where the block is mapped now, or that it is unmapped
 *     UNMAPPED   all older mappings of the leaf are gone
 *     VOIDED     the checksums of the leaf's older writable mappings do not hold any more
 * A slot remembers the snapshot generation in which it was made.
 *
 * Order of calls: plx_overlay_reserve() before anything is submitted that needs a slot, then
 * plx_overlay_put(), which cannot fail. The store's loop only.
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

/* Two bits of a slot's value, beside address and checksum. (In a tree they mean something else.)
 *     OLDER                of a BLOCK: the block lies where the layers below say; only the checksum
 *                          is the slot's
 *     BASE_DEAD            what the base maps there died before any snapshot could see it
 *     both: OLDER_SHARED   as OLDER, and the block is not writable, which no generation of a slot
 *                          can say
 */
#define PLX_SLOT_OLDER                                                                             \
    (1ull << 63) /* of a BLOCK: it lies where the layers below say; its checksum is new */
#define PLX_SLOT_BASE_DEAD (1ull << 62)
#define PLX_SLOT_OLDER_SHARED (PLX_SLOT_OLDER | PLX_SLOT_BASE_DEAD)

struct plx_slot {
    uint64_t key; /* kind 2, index 36, generation 26 bits */
    uint64_t value;
};

/* How many places are remembered as counted, so that as many streams of writes side by side do not
 * count a place again and again (OVERLAY-3). */
#define PLX_OVERLAY_COUNTED 16u

struct plx_overlay {
    struct plx_slot *slots;
    size_t capacity, count, reserved;
    size_t unmapped, voided; /* slots of these kinds */
    size_t leaves;           /* nodes of a level that a merge builds, at most: OVERLAY-3 */
    uint64_t counted[PLX_OVERLAY_COUNTED];
    uint64_t first_gen;      /* a slot's generation is stored relative to this */
    struct plx_slot *sorted; /* for plx_overlay_sort(): capacity * 3 / 4 slots */
};

#define PLX_OVERLAY_GENS (1u << 26)

void plx_overlay_init(struct plx_overlay *overlay, uint64_t first_gen);
void plx_overlay_done(struct plx_overlay *overlay);
/* Reserves room for `slots` new slots. False: out of memory, and nothing has changed. */
bool plx_overlay_reserve(struct plx_overlay *overlay, size_t slots);
void plx_overlay_unreserve(struct plx_overlay *overlay, size_t slots);
struct plx_slot *plx_overlay_find(const struct plx_overlay *overlay, enum plx_overlay_kind kind,
                                  uint64_t index);
/* Finds the slot or makes it; a new slot has value 0. The pointer is valid until the next reserve.
 */
struct plx_slot *plx_overlay_put(struct plx_overlay *overlay, enum plx_overlay_kind kind,
                                 uint64_t index, bool *ret_new);
void plx_overlay_set_gen(const struct plx_overlay *overlay, struct plx_slot *slot, uint64_t gen);
uint64_t plx_overlay_gen(const struct plx_overlay *overlay, const struct plx_slot *slot);
enum plx_overlay_kind plx_slot_kind(const struct plx_slot *slot);
uint64_t plx_slot_index(const struct plx_slot *slot);
uint64_t plx_slot_leaf(const struct plx_slot *slot);
/* The first block at or after vblock that has a BLOCK slot; UINT64_MAX: none. Reads all slots. */
uint64_t plx_overlay_next_block(const struct plx_overlay *overlay, uint64_t vblock);
/* Copies all slots into overlay->sorted, ordered by leaf; in a leaf UNMAPPED and VOIDED come first,
 * then the blocks. */
void plx_overlay_sort(struct plx_overlay *overlay);
/* Empties the table and keeps its memory. */
void plx_overlay_clear(struct plx_overlay *overlay, uint64_t first_gen);

#endif
