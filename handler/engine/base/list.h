/* list.h - arrays that grow by one element at a time.
 *
 * The owner keeps the array, the number of its elements and its capacity, all zero at first, and
 * frees the array. Capacities double, so that adding an element costs the same on average, however
 * many there are.
 *
 *     if (!PLX_LIST_ROOM(marks, count, capacity, 16))
 *         return PLX_ERR_NOMEM;
 *     marks[count++] = mark;
 */
#ifndef PLX_ENGINE_LIST_H
#define PLX_ENGINE_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Makes room for one more element; the first call makes room for `first`. array, count and capacity
 * are lvalues, the last two of type size_t. False: out of memory, and nothing has changed. */
#define PLX_LIST_ROOM(array, count, capacity, first)                                               \
    plx_list_room(&(array), (count), &(capacity), (first), sizeof *(array))

/* array: address of a pointer to elements of `size` bytes. */
static inline bool plx_list_room(void *array, size_t count, size_t *capacity, size_t first,
                                 size_t size)
{
    size_t more = *capacity ? 2 * *capacity : first;
    void *elements;

    if (count < *capacity)
        return true;
    memcpy(&elements, array, sizeof elements);
    elements = realloc(elements, more * size);
    if (!elements)
        return false;
    memcpy(array, &elements, sizeof elements);
    *capacity = more;
    return true;
}

#endif
