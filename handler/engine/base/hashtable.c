/* hashtable.c - see hashtable.h.
 *
 * HASHTABLE-1  At least a quarter of the slots is free, so a search comes to an end. It goes from a
 *     number's own place to the first slot that has the number or is free. No slot in between ever
 *     becomes free: an element is dropped only by making a new array.
 * Loop: that of the table's owner.
 * Crash story: none; this is memory.
 */
#include "engine/base/hashtable.h"

#include <stdlib.h>
#include <string.h>

#define CAPACITY_MIN 1024u /* a power of two */

static void *slot_at(const struct plx_hashtable *table, size_t place)
{
    return (char *)table->slots + (place & (table->capacity - 1)) * table->slot_bytes;
}

void *plx_hashtable_at(const struct plx_hashtable *table, uint64_t number)
{
    size_t place = (size_t)(number * 0x9e3779b97f4a7c15ull >> 20);
    struct plx_hashtable_key *key = slot_at(table, place);

    while (key->used && key->number != number)
        key = slot_at(table, ++place);
    return key;
}

bool plx_hashtable_sift(struct plx_hashtable *table,
                        bool (*stays)(const void *element, uint64_t argument), uint64_t argument)
{
    struct plx_hashtable sifted = {.slot_bytes = table->slot_bytes, .capacity = CAPACITY_MIN};

    while (table->count + 1 >= sifted.capacity / 4 * 3) /* HASHTABLE-1 */
        sifted.capacity *= 2;
    sifted.slots = calloc(sifted.capacity, sifted.slot_bytes);
    if (!sifted.slots)
        return false;
    for (size_t i = 0; i < table->capacity; i++) {
        const struct plx_hashtable_key *key = slot_at(table, i);

        if (!key->used || (stays && !stays(key, argument)))
            continue;
        memcpy(plx_hashtable_at(&sifted, key->number), key, sifted.slot_bytes);
        sifted.count++;
    }
    free(table->slots);
    *table = sifted;
    return true;
}

bool plx_hashtable_room(struct plx_hashtable *table, size_t slot_bytes)
{
    table->slot_bytes = slot_bytes;
    return table->count + 1 < table->capacity / 4 * 3 || plx_hashtable_sift(table, NULL, 0);
}
