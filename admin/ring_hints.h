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
    char host[65], host_uuid[PLX_UUID_TEXT];        /* empty: unknown */
    bool known;                                     /* this host knows the ring */
    /* Whose it is, whether it may be deleted, what comes next. A fault has room for it. */
    char text[sizeof((struct plx_fault *)0)->text];
};
/* NOT_FOUND: no ring lies there. Another error: one does, and the text says why nobody knows whose
 * it is. */
int plx_ring_hint_member(const struct plx_paths *paths, const char *path,
                         struct plx_ring_hint *ret_hint, struct plx_fault *fault);

/* Warns of each virtual disk that needs another ring than this host has for the store. copied: by
 * this import, so that the ring is the original's. */
void plx_ring_hint_needed(const struct plx_paths *paths, const struct plx_known *known,
                          struct plx_store *store, bool copied);
/* The same, of a store that is taken over from this host, or was: "any" if nobody knows which. The
 * array, if there is one, gets their names. */
void plx_ring_hint_taken(struct plx_cli *cli, const struct plx_known *known, const char *from,
                         bool dry_run, json_t *ret_names);
/* The same, where the store is not open. What is in the way of that, others tell. */
void plx_ring_hint_imported(struct plx_cli *cli, const struct plx_known *known, bool copied);

/* "; this host's ring of it on PATH stays ...", for a store that is about to be forgotten; empty:
 * there is none, or nothing on it. */
#define PLX_RING_HINT_STAYS 360
void plx_ring_hint_stays(const struct plx_paths *paths, const char *store,
                         char ret_text[PLX_RING_HINT_STAYS]);

enum plx_ring_hint_what { PLX_RING_HINT_MADE, PLX_RING_HINT_GOES, PLX_RING_HINT_WOULD_GO };
/* Notes which virtual disks of the open store have the setting, when its ring comes or goes. */
void plx_ring_hint_users(struct plx_cli *cli, const char *store, enum plx_ring_hint_what what);

/* "demo/web (handler 12 on host) and 2 more": the virtual disks of the open store that somebody has
 * open and that use a ring; empty: none is. */
#define PLX_RING_HINT_OPEN 240
void plx_ring_hint_open(struct plx_cli *cli, const char *store, char ret_text[PLX_RING_HINT_OPEN]);
/* The command failed, for the store's ring is in use: the fault says by whom, as far as that can be
 * found out. The store is not open. */
void plx_ring_hint_busy(struct plx_cli *cli, const char *store);

#endif
