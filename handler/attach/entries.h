/* entries.h - small files in a folder of the state directory, each a JSON object under a name: read
 * as a whole, and replaced as a whole, durably.
 *
 * What the entries mean is for their users to say: known.h has stores, known_rings.h has rings.
 * Threads: any. Several processes may read and write at the same time.
 */
#ifndef PLX_ENTRIES_H
#define PLX_ENTRIES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "device/patience.h"
#include "registry/paths.h"

/* One kind of entries: how messages speak of it, and what an entry is read into, its item. */
struct plx_entries {
    const char *folder; /* in the state directory */
    const char *one;    /* "a store" */
    const char *all;    /* "the list of stores" */
    const char *again;  /* what to do when one cannot be read: "remove it, and ..." */
    size_t size;        /* of an item */
    bool (*is_name)(const char *name);
    /* Checks an entry, and reads it into an item of zeros. INVALID, NOMEM: what the item got by
     * then is freed. */
    int (*take)(const json_t *entry, const char *name, void *item);
    /* An item of zeros becomes one of a list whose entry cannot be read. */
    void (*refuse)(const char *name, const struct plx_fault *why, void *item);
    json_t *(*make)(const void *item); /* an entry; NULL: a path is not valid UTF-8 */
    /* Under the lock: whether the item may be entered. */
    int (*check)(const struct plx_paths *paths, const void *item, struct plx_fault *fault);
    int (*compare)(const void *a, const void *b); /* as qsort() asks, for a list */
    void (*done)(void *item);                     /* frees what it has */
};

/* NOT_FOUND, without a text: there is none of this name. NOMEM. Else it cannot be read, and the
 * text says what to do (ENTRIES-2). */
int plx_entry_get(const struct plx_paths *paths, const struct plx_entries *kind, const char *name,
                  void *ret_item, struct plx_fault *fault);
/* All of them. One that cannot be read is there, too. To be freed by plx_entries_free(). */
int plx_entries_list(const struct plx_paths *paths, const struct plx_entries *kind, void *ret_list,
                     size_t *ret_count, struct plx_fault *fault);
void plx_entries_free(const struct plx_entries *kind, void *list, size_t count);
/* Enters an item under a name, or replaces its entry; durable on return. try: it could be written,
 * and is not. patience NULL: waits for another process for some seconds. BUSY: that takes longer.
 */
int plx_entry_put(const struct plx_paths *paths, const struct plx_entries *kind, const char *name,
                  const void *item, bool try, const struct plx_patience *patience,
                  struct plx_fault *fault);
/* Durable on return. NOT_FOUND, without a text: there is none. */
int plx_entry_remove(const struct plx_paths *paths, const struct plx_entries *kind,
                     const char *name, struct plx_fault *fault);

#endif
