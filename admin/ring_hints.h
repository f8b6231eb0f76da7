/* ring_hints.h - what commands that are not about rings say of them: that a file is a ring's
 * member, and that a virtual disk needs a ring which this host does not have. */
#ifndef PLX_RING_HINTS_H
#define PLX_RING_HINTS_H

#include "attach/known_rings.h"
#include "cli.h"

/* Whether a ring, or what is left of one, lies at this path. */
bool plx_ring_hint_holds(const char *path);

struct plx_ring_hint {
    char ring[PLX_UUID_TEXT], store[PLX_UUID_TEXT]; /* empty: damaged */
    char name[PLX_STORE_NAME_MAX + 1];              /* of the store here; empty: it has none */
    char host[65];
    bool known;     /* this host knows the ring */
    char text[800]; /* whose it is, whether it may be deleted, what comes next */
};
/* NOT_FOUND: no ring lies there. */
int plx_ring_hint_member(const struct plx_paths *paths, const char *path,
                         struct plx_ring_hint *ret_hint);

/* Warns of each virtual disk that needs another ring than this host has for the store. copied: by
 * this import, so that the ring is the original's. */
void plx_ring_hint_needed(const struct plx_paths *paths, const struct plx_known *known,
                          struct plx_store *store, bool copied);
/* The same, where the store is not open. What is in the way of that, others tell. */
void plx_ring_hint_imported(struct plx_cli *cli, const struct plx_known *known, bool copied);

/* Notes which virtual disks of the open store have the setting, when its ring goes. */
void plx_ring_hint_bereft(struct plx_cli *cli, const char *store, bool dry_run);

#endif
