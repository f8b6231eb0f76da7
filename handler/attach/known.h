/* known.h - which stores this host, or this user, knows: their names and where they lie.
 *
 * A store's registry lies in the store (embedded.h). What the state directory keeps is only the way
 * to it: STATE/stores/NAME.json with the store's UUIDs and the paths of its volumes. Losing it
 * loses nothing: 'parallax store import --volume ...' enters a store again.
 *
 * Threads: any. Several processes may read and write at the same time; the last writer of one
 * store's entry wins.
 */
#ifndef PLX_KNOWN_H
#define PLX_KNOWN_H

#include "device/patience.h"
#include "device/storage.h"
#include "registry/paths.h"

struct plx_known {
    char name[PLX_STORE_NAME_MAX + 1];
    char uuid[PLX_UUID_TEXT];     /* what the store's structures carry */
    char identity[PLX_UUID_TEXT]; /* tells stores apart; a copy may have its own */
    unsigned volumes;
    char *volume[PLX_VOLUMES_MAX]; /* paths; volume 0 comes first */
    struct plx_fault problem; /* in a list: why this entry cannot be read; only its name is known */
};

/* By name or identity. NOT_FOUND: the text says where it was looked for, and what to do. The result
 * is to be freed by plx_known_done(). */
int plx_known_get(const struct plx_paths *paths, const char *name_or_identity,
                  struct plx_known *ret_known, struct plx_fault *fault);
/* By name. An entry that cannot be read is there, too, with its problem. */
int plx_known_list(const struct plx_paths *paths, struct plx_known **ret_list, size_t *ret_count,
                   struct plx_fault *fault);
void plx_known_list_free(struct plx_known *list, size_t count);
/* EXISTS, with what to do: a store is called so here. */
int plx_known_free_name(const struct plx_paths *paths, const char *name, struct plx_fault *fault);
/* Adds volumes by their absolute paths, because the handler runs in another folder. The caller has
 * checked that there is room for them (plx_volumes_check_count()). */
int plx_known_add_volumes(struct plx_known *known, const char *const *paths, unsigned count,
                          struct plx_fault *fault);
/* A volume of a known store, and what another one has to do with it (storage.h). */
struct plx_known_place {
    const struct plx_known *known; /* NULL: nothing, with any of a list */
    const char *path;              /* as the store has it */
    enum plx_overlap overlap;
};
/* Finds the volume, among those of the listed stores, that lies at `volume` or overlaps it, by
 * storage and not by name. An exact match is preferred. `but`: an identity whose stores do not
 * count, or NULL. An entry that cannot be read is an error where no other one has a volume there,
 * since nobody knows where its own are. */
int plx_known_at(const struct plx_known *list, size_t count, const char *but, const char *volume,
                 struct plx_known_place *ret_place, struct plx_fault *fault);
/* How to say what `volume` is, which is there: "PATH is a volume of store NAME", or overlaps one.
 */
#define PLX_KNOWN_PLACE_TEXT 320
void plx_known_name_place(const struct plx_known_place *place, const char *volume,
                          char ret_text[PLX_KNOWN_PLACE_TEXT]);
/* Tries whether an entry of this name and with these volumes could be written, and writes none.
 * Call it before changing what lies on the volumes. */
int plx_known_try(const struct plx_paths *paths, const struct plx_known *known,
                  const struct plx_patience *patience, struct plx_fault *fault);
/* Enters the store, or replaces its entry; durable on return. EXISTS: another store has that name
 * here. patience, here and above: while others enter one; NULL: for some seconds. */
int plx_known_put(const struct plx_paths *paths, const struct plx_known *known,
                  const struct plx_patience *patience, struct plx_fault *fault);
int plx_known_remove(const struct plx_paths *paths, const char *name, struct plx_fault *fault);
/* The error of opening a known store: what is NOT_FOUND is a volume of it, and MISSING. */
int plx_known_missing(const struct plx_known *known, int error, struct plx_fault *fault);
/* "--volume PATH", once for each, as 'parallax store import' takes them; as the manual writes it
 * where that is too long for a message. */
#define PLX_KNOWN_VOLUMES_TEXT 200
void plx_known_name_volumes(const struct plx_known *known, char ret_text[PLX_KNOWN_VOLUMES_TEXT]);
/* Likewise, where the paths are to be found out: "--volume PATH" for each. */
void plx_known_count_volumes(const struct plx_known *known, char ret_text[PLX_KNOWN_VOLUMES_TEXT]);
/* Gives the commands that a text advises the store's name, where whoever wrote the text did not
 * know it: "'parallax store grow'" becomes "'parallax store grow demo'" (KNOWN-5). */
void plx_known_name_advice(const char *store, char *text, size_t size);
void plx_known_done(struct plx_known *known);

#endif
