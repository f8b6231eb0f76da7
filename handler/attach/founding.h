/* founding.h - stores made, found, taken and given up: what concerns a store as a whole.
 *
 * None of these has a store open for its disks; each opens volumes by itself and closes them.
 * state_dir as in plx_paths_init(). Threads: any.
 */
#ifndef PLX_FOUNDING_H
#define PLX_FOUNDING_H

#include "attach/known.h"
#include "engine/engine.h"
#include "registry/tenancy.h"

/* Writes a new store over the volumes and enters it. size: of volumes that do not exist yet (0:
 * they must). Refused even with options->force: volumes of a store that is known here, belongs to a
 * host, or is open; and one volume given twice. unused: as below. patience, here and below: how
 * long to wait while another process has the volumes or the store open (device.h). */
int plx_founding_format(const char *state_dir, const char *const *paths, unsigned count,
                        uint64_t size, const struct plx_format_options *options, bool unused,
                        const struct plx_patience *patience, struct plx_store_info *ret_info,
                        struct plx_fault *fault);

/* Which store these volumes make up, all of them, in the order of their numbers, by the name that
 * it has here. EXISTS: a store of the same identity is known here and lies elsewhere. The result is
 * to be freed by plx_known_done(). */
int plx_founding_identify(const struct plx_paths *paths, const char *const *names, unsigned count,
                          const struct plx_patience *patience, struct plx_known *ret_known,
                          struct plx_fault *fault);

/* Opens the store on these volumes, whoever has it, to read, and has somebody look at it. What its
 * host writes meanwhile may not be seen. */
int plx_founding_look(const struct plx_known *known,
                      void (*look)(void *context, struct plx_store *store), void *context,
                      const struct plx_patience *patience, struct plx_fault *fault);

struct plx_founding_import {
    const char *name; /* that it is to have here; NULL: the one it has here, or its own */
    /* The operator's word that this host, which has it, is off (tenancy.h); NULL: the store is not
     * taken from anybody (BUSY). Not of a copy. */
    const char *from;
    bool copy;      /* these volumes are a copy: it gets an identity of its own */
    bool is_copy;   /* the operator's word for that, where another host has the store (BUSY) */
    bool read_only; /* entered and not taken: nothing is written to the volumes */
    bool dry_run;   /* only looks whether it would work; not of a copy */
    const struct plx_patience *patience;
};
/* CORRUPT: the entry here names a further volume of the store, which is in use (COUNTED-1). */
int plx_founding_name_all(const struct plx_paths *paths, const struct plx_known *known,
                          struct plx_fault *fault);
/* Enters a store that lies on these volumes, and takes it if no host has it. EXISTS: a store that
 * is told by the same identity is known here and lies elsewhere. */
int plx_founding_import(const char *state_dir, const char *const *paths, unsigned count,
                        const struct plx_founding_import *options, struct plx_known *ret_known,
                        struct plx_fault *fault);
/* The same, of what plx_founding_identify() found; not of a copy. known gets the name that it has
 * here. */
int plx_founding_import_known(const char *state_dir, struct plx_known *known,
                              const struct plx_founding_import *options, struct plx_fault *fault);
/* Takes a store that is known here from the host that has it, by the operator's word. dry_run: only
 * looks whether it would be given. */
int plx_founding_take_over(const char *state_dir, const char *store, const char *from, bool dry_run,
                           const struct plx_patience *patience, struct plx_fault *fault);
/* Gives a store up, so that another host may import it; dry_run: likewise. BUSY: somebody has it
 * open. */
int plx_founding_release(const char *state_dir, const char *store, bool dry_run,
                         const struct plx_patience *patience, struct plx_fault *fault);
/* Drops a store from the list of those that are known here; nothing of the store is touched. BUSY:
 * a process of this host has it open. */
int plx_founding_forget(const char *state_dir, const char *store,
                        const struct plx_patience *patience, struct plx_fault *fault);

/* For rebuild.c, clustering.c and attach.c. A tenancy of a store whether it is this host's or
 * nobody's; from: as above. */
int plx_founding_take(const struct plx_paths *paths, const struct plx_known *known,
                      const char *from, const struct plx_patience *patience,
                      struct plx_tenancy **ret_tenancy, struct plx_fault *fault);
/* plx_known_put(), after all else was done. */
int plx_founding_enter(const struct plx_paths *paths, const struct plx_known *known,
                       const struct plx_patience *patience, struct plx_fault *fault);
/* Opens the store and closes it, which recovers what dead processes have left, once no other
 * process has it open. also: what else is to be asked meanwhile; may be NULL. */
struct plx_attach;
int plx_founding_recover(const char *state_dir, const char *store,
                         int (*also)(struct plx_attach *attach, struct plx_fault *fault),
                         const struct plx_patience *patience, struct plx_fault *fault);
/* The rows of a store and its volumes. */
void plx_founding_rows(const struct plx_store_info *info, const struct plx_known *known,
                       struct plx_registry_store *ret_store,
                       struct plx_registry_volume *ret_volumes);

#endif
