/* hashtable.h - a hash table by 64-bit numbers: open addressing in one array of the owner's
 * structs.
 *
 * The owner's struct begins with a struct plx_hashtable_key. A table that is all zero is empty.
 *
 *     if (!plx_hashtable_room(&table, sizeof *version))
 *         return PLX_ERR_NOMEM;
 *     version = plx_hashtable_at(&table, number);
 *     table.count += !version->key.used;
 *     *version = (struct version){.key = {number, true}, ...};
 *     ...
 *     free(table.slots);
 *
 * Pointers to elements are valid until the next call that makes room or sifts.
 */
#ifndef PLX_ENGINE_HASHTABLE_H
#define PLX_ENGINE_HASHTABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct plx_hashtable_key {
    uint64_t number;
    bool used; /* false: the slot is free, and all zero */
};

struct plx_hashtable {
    void *slots;
    size_t slot_bytes, count, capacity;
};

/* Makes room for one more element. False: out of memory, and nothing has changed. */
bool plx_hashtable_room(struct plx_hashtable *table, size_t slot_bytes);
/* The element with this number, or a free slot for it. There must have been room once. */
void *plx_hashtable_at(const struct plx_hashtable *table, uint64_t number);
/* Drops the elements for which stays() says false. False: out of memory, and nothing has changed.
 */
bool plx_hashtable_sift(struct plx_hashtable *table,
                        bool (*stays)(const void *element, uint64_t argument), uint64_t argument);

#endif
