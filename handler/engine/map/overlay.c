/* overlay.c - see overlay.h. Open addressing with linear probing, never more than 3/4 full.
 *
 * OVERLAY-1  count + reserved <= capacity * 3 / 4, and `sorted` has room for that many slots. So
 *     neither putting a reserved slot nor sorting can fail.
 * OVERLAY-2  A kind and index have at most one slot, so a lookup finds the newest change.
 * OVERLAY-3  A merge builds at most `leaves` nodes on any level, so the nodes that a key frame
 *     needs can be reserved beforehand (reserve.c). A new slot counts its place, unless the place
 *     was counted lately: the leaf of a BLOCK or VOIDED slot, the node above the leaf of an
 *     UNMAPPED slot. An unmapped leaf gets no node, but the node above it changes.
 * Loop: the store's loop.
 * Crash story: memory only; replay makes it again.
 */
#include "engine/map/overlay.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/error.h"
#include "engine/base/units.h"

#define EMPTY UINT64_MAX
#define GEN_BITS 26
#define CAPACITY_MIN 256u

static uint64_t make_key(enum plx_overlay_kind kind, uint64_t index)
{
    return (uint64_t)kind << 62 | index << GEN_BITS;
}

static bool same(uint64_t a, uint64_t b)
{
    return a >> GEN_BITS == b >> GEN_BITS;
}

static size_t home(const struct plx_overlay *overlay, uint64_t key)
{
    uint64_t h = (key >> GEN_BITS) * 0x9e3779b97f4a7c15ull;

    return (h ^ h >> 32) & (overlay->capacity - 1);
}

enum plx_overlay_kind plx_slot_kind(const struct plx_slot *slot)
{
    return (enum plx_overlay_kind)(slot->key >> 62);
}

uint64_t plx_slot_index(const struct plx_slot *slot)
{
    return slot->key << 2 >> (2 + GEN_BITS);
}

uint64_t plx_slot_leaf(const struct plx_slot *slot)
{
    uint64_t index = plx_slot_index(slot);

    return plx_slot_kind(slot) == PLX_OVERLAY_BLOCK ? index >> PLX_NODE_SHIFT : index;
}

void plx_overlay_init(struct plx_overlay *overlay, uint64_t first_gen)
{
    *overlay = (struct plx_overlay){.first_gen = first_gen};
}

void plx_overlay_done(struct plx_overlay *overlay)
{
    free(overlay->slots);
    free(overlay->sorted);
    *overlay = (struct plx_overlay){0};
}

static struct plx_slot *place(struct plx_overlay *overlay, uint64_t key)
{
    size_t at = home(overlay, key);

    /* OVERLAY-2: the slot of this kind and index, if there is one */
    while (overlay->slots[at].key != EMPTY && !same(overlay->slots[at].key, key))
        at = (at + 1) & (overlay->capacity - 1);
    return &overlay->slots[at];
}

static bool grow(struct plx_overlay *overlay, size_t capacity)
{
    struct plx_overlay bigger = *overlay;

    bigger.capacity = capacity;
    bigger.slots = malloc(capacity * sizeof *bigger.slots);
    bigger.sorted = malloc(capacity / 4 * 3 * sizeof *bigger.sorted);
    if (!bigger.slots || !bigger.sorted) {
        free(bigger.slots);
        free(bigger.sorted);
        return false;
    }
    memset(bigger.slots, 0xff, capacity * sizeof *bigger.slots);
    for (size_t i = 0; i < overlay->capacity; i++)
        if (overlay->slots[i].key != EMPTY)
            *place(&bigger, overlay->slots[i].key) = overlay->slots[i];
    free(overlay->slots);
    free(overlay->sorted);
    *overlay = bigger;
    return true;
}

/* OVERLAY-3 */
static void count_leaf(struct plx_overlay *overlay, enum plx_overlay_kind kind, uint64_t index)
{
    bool of_table = kind == PLX_OVERLAY_UNMAPPED;
    uint64_t leaf = kind == PLX_OVERLAY_BLOCK ? index >> PLX_NODE_SHIFT : index;
    uint64_t place = of_table ? leaf >> PLX_NODE_SHIFT : leaf;
    uint64_t *counted = &overlay->counted[place % PLX_OVERLAY_COUNTED];
    uint64_t word = (place << 1 | of_table) + 1; /* 0: no place yet */

    overlay->leaves += *counted != word;
    *counted = word;
}

bool plx_overlay_reserve(struct plx_overlay *overlay, size_t slots)
{
    size_t need = overlay->count + overlay->reserved + slots;
    size_t capacity = overlay->capacity ? overlay->capacity : CAPACITY_MIN;

    while (capacity / 4 * 3 < need)
        capacity *= 2;
    if (capacity != overlay->capacity && !grow(overlay, capacity))
        return false;
    overlay->reserved += slots;
    return true;
}

void plx_overlay_unreserve(struct plx_overlay *overlay, size_t slots)
{
    PLX_ASSERT(overlay->reserved >= slots);
    overlay->reserved -= slots;
}

struct plx_slot *plx_overlay_find(const struct plx_overlay *overlay, enum plx_overlay_kind kind,
                                  uint64_t index)
{
    uint64_t key = make_key(kind, index);
    size_t at;

    if (!overlay->count)
        return NULL;
    for (at = home(overlay, key); overlay->slots[at].key != EMPTY;
         at = (at + 1) & (overlay->capacity - 1))
        if (same(overlay->slots[at].key, key))
            return &overlay->slots[at];
    return NULL;
}

struct plx_slot *plx_overlay_put(struct plx_overlay *overlay, enum plx_overlay_kind kind,
                                 uint64_t index, bool *ret_new)
{
    uint64_t key = make_key(kind, index);
    struct plx_slot *slot;

    PLX_ASSERT(overlay->capacity); /* OVERLAY-1 */
    slot = place(overlay, key);
    *ret_new = slot->key == EMPTY;
    if (*ret_new) {
        slot->key = key;
        slot->value = 0;
        overlay->count++;
        overlay->unmapped += kind == PLX_OVERLAY_UNMAPPED;
        overlay->voided += kind == PLX_OVERLAY_VOIDED;
        count_leaf(overlay, kind, index);
        PLX_ASSERT(overlay->count <= overlay->capacity / 4 * 3); /* OVERLAY-1 */
    }
    return slot;
}

void plx_overlay_set_gen(const struct plx_overlay *overlay, struct plx_slot *slot, uint64_t gen)
{
    uint64_t relative = gen - overlay->first_gen;

    PLX_ASSERT(relative < PLX_OVERLAY_GENS);
    slot->key = slot->key >> GEN_BITS << GEN_BITS | relative;
}

uint64_t plx_overlay_gen(const struct plx_overlay *overlay, const struct plx_slot *slot)
{
    return overlay->first_gen + (slot->key & (PLX_OVERLAY_GENS - 1));
}

/* ---- Sorting: radix exchange in place, one bit at a time, from the highest that differs ---- */

static uint64_t sort_key(const struct plx_slot *slot)
{
    uint64_t index = plx_slot_index(slot);

    switch (plx_slot_kind(slot)) {
    case PLX_OVERLAY_UNMAPPED:
        return index << PLX_NODE_SHIFT << 2;
    case PLX_OVERLAY_VOIDED:
        return index << PLX_NODE_SHIFT << 2 | 1;
    case PLX_OVERLAY_BLOCK:
        break;
    }
    return index << 2 | 2;
}

static void swap(struct plx_slot *a, struct plx_slot *b)
{
    struct plx_slot t = *a;

    *a = *b;
    *b = t;
}

static void insertion_sort(struct plx_slot *slots, size_t count)
{
    for (size_t i = 1; i < count; i++)
        for (size_t j = i; j && sort_key(&slots[j - 1]) > sort_key(&slots[j]); j--)
            swap(&slots[j - 1], &slots[j]);
}

static void radix_exchange(struct plx_slot *slots, size_t count, int bit)
{
    size_t low = 0, high = count;

    if (count <= 24) {
        insertion_sort(slots, count);
        return;
    }
    PLX_ASSERT(bit >= 0); /* sort keys are unique: OVERLAY-2 */
    while (low < high) {
        if (sort_key(&slots[low]) >> bit & 1)
            swap(&slots[low], &slots[--high]);
        else
            low++;
    }
    radix_exchange(slots, low, bit - 1);
    radix_exchange(slots + low, count - low, bit - 1);
}

void plx_overlay_sort(struct plx_overlay *overlay)
{
    uint64_t differing = 0;
    size_t count = 0;

    for (size_t i = 0; i < overlay->capacity; i++) {
        if (overlay->slots[i].key == EMPTY)
            continue;
        overlay->sorted[count++] = overlay->slots[i];
        differing |= sort_key(&overlay->slots[i]) ^ sort_key(&overlay->sorted[0]);
    }
    PLX_ASSERT(count == overlay->count);
    if (differing)
        radix_exchange(overlay->sorted, count, 63 - __builtin_clzll(differing));
}

void plx_overlay_clear(struct plx_overlay *overlay, uint64_t first_gen)
{
    if (overlay->capacity)
        memset(overlay->slots, 0xff, overlay->capacity * sizeof *overlay->slots);
    overlay->count = overlay->unmapped = overlay->voided = overlay->leaves = 0;
    memset(overlay->counted, 0, sizeof overlay->counted);
    PLX_ASSERT(overlay->reserved == 0);
    overlay->first_gen = first_gen;
}

uint64_t plx_overlay_next_block(const struct plx_overlay *overlay, uint64_t vblock)
{
    uint64_t next = UINT64_MAX;

    for (size_t i = 0; i < overlay->capacity; i++) {
        const struct plx_slot *slot = &overlay->slots[i];

        if (slot->key != EMPTY && plx_slot_kind(slot) == PLX_OVERLAY_BLOCK &&
            plx_slot_index(slot) >= vblock)
            next = plx_min_u64(next, plx_slot_index(slot));
    }
    return next;
}
