/* known_rings.h - which write-back rings this host has (engine/ring/ring.h), one a store at most.
 *
 * The state directory keeps the way to each: STATE/rings/IDENTITY.json, by the identity of the
 * ring's store, with the ring's UUID and the paths of its members. Losing it loses nothing:
 * 'parallax ring create' with the members' paths enters a ring of this host again.
 *
 * Threads: any. Several processes may read and write at the same time.
 */
#ifndef PLX_KNOWN_RINGS_H
#define PLX_KNOWN_RINGS_H

#include "attach/known.h"
#include "engine/ring/ring.h"

struct plx_known_ring {
    char identity[PLX_UUID_TEXT];       /* of its store */
    char store[PLX_STORE_NAME_MAX + 1]; /* what that was called here when the ring was made */
    char ring[PLX_UUID_TEXT];
    unsigned members;
    char *member[PLX_RING_MEMBERS]; /* absolute paths */
    /* In a list: why this entry cannot be read; then only the identity is known. */
    struct plx_fault problem;
};

/* Of the store with this identity. NOT_FOUND, without a text: this host has none. The result is to
 * be freed by plx_known_ring_done(). */
int plx_known_ring_get(const struct plx_paths *paths, const char *identity,
                       struct plx_known_ring *ret_ring, struct plx_fault *fault);
/* Of a store by its name here, by its identity, or by the name that it had. NOT_FOUND: the text
 * says what to do. */
int plx_known_ring_find(const struct plx_paths *paths, const char *store,
                        struct plx_known_ring *ret_ring, struct plx_fault *fault);
/* By the names of their stores. An entry that cannot be read is there, too, with its problem. */
int plx_known_ring_list(const struct plx_paths *paths, struct plx_known_ring **ret_list,
                        size_t *ret_count, struct plx_fault *fault);
void plx_known_ring_list_free(struct plx_known_ring *list, size_t count);
/* Which ring has a member there, whatever its name, or with OVERLAPPING one that overlaps with what
 * is there; *ret_ring NULL: none. An entry that cannot be read is an error where no other one has a
 * member there. */
int plx_known_ring_at(const struct plx_known_ring *list, size_t count, const char *volume,
                      enum plx_overlap least, const struct plx_known_ring **ret_ring,
                      struct plx_fault *fault);
/* EXISTS: a ring of this list has a member there, or one that overlaps with it. An error, too: an
 * entry cannot be read, and nobody knows where its members are. */
int plx_known_ring_refuse(const struct plx_paths *paths, const char *volume,
                          struct plx_fault *fault);
/* Tries whether an entry could be written, and writes none. EXISTS: this host has a ring of that
 * store, which is named. */
int plx_known_ring_try(const struct plx_paths *paths, const struct plx_known_ring *ring,
                       const struct plx_patience *patience, struct plx_fault *fault);
/* Enters the ring, or the members that it has now; durable on return. EXISTS as above. */
int plx_known_ring_put(const struct plx_paths *paths, const struct plx_known_ring *ring,
                       const struct plx_patience *patience, struct plx_fault *fault);
/* Durable on return. No error: there is none. */
int plx_known_ring_remove(const struct plx_paths *paths, const char *identity,
                          struct plx_fault *fault);
/* "PATH" or "PATH and PATH". */
#define PLX_KNOWN_RING_TEXT 320
void plx_known_ring_name_members(const struct plx_known_ring *ring,
                                 char ret_text[PLX_KNOWN_RING_TEXT]);
void plx_known_ring_done(struct plx_known_ring *ring);

#endif
