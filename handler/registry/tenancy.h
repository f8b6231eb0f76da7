/* tenancy.h - one host at a time has a store (whose registry lies in the store).
 *
 * The home page of volume 0 (format.h) names the host that has the store, its boot, and the
 * inode through which it reaches the volume: locks on bytes of the volume (device/bytelock.h) are
 * seen by those, and only those, who come through the same inode of the same running machine. So
 * whoever writes to a store first makes sure of its tenancy:
 *
 *   page says                     beginning a tenancy
 *   this boot, this inode         goes on at once
 *   this boot, another inode      open: the counter is watched; it moves: refused; else taken
 *   this host, another boot       open: likewise; else taken
 *   another host                  refused: only the operator's word or a fence proves it dead
 *   nobody                        refused: 'store import' takes a store that was released
 *
 * A process with a tenancy looks at the page once a second, before each commit of the registry, and
 * before it goes on after a gap in which it could not look (a machine that was paused). Another
 * host there, or a counter that went back, means that somebody has taken the store over: FENCED,
 * for good; so does a page that cannot be read for seconds. This is a safeguard, not a fence: what
 * a paused machine had handed to a device may still arrive when it wakes up.
 *
 * Threads: plx_tenancy_look() and _ok() from any thread; the others from one. A tenancy runs a
 * thread of its own.
 */
#ifndef PLX_TENANCY_H
#define PLX_TENANCY_H

#include "device/bytelock.h"
#include "device/patience.h"
#include "engine/engine.h"
#include "registry/paths.h"

struct plx_tenancy;

#define PLX_TENANCY_ANY "any" /* from: whichever host has it, also where the page cannot tell */

struct plx_tenancy_options {
    const struct plx_paths *paths;
    const char *volume; /* volume 0 */
    struct plx_uuid store;
    bool take;    /* a store that was released, or is new, is taken */
    bool dry_run; /* only looks whether it would be granted; there is no tenancy then */
    /* The operator's word: the host of this name, or id, is off. NULL: nobody's. */
    const char *from;
    /* What 'parallax store take-over' is to be told for this store: a name that is known here, or
     * its volumes. NULL: "--volume" and the volume. Not looked at once the tenancy has begun. */
    const char *which;
    /* What 'parallax store import' is to be told: its volumes. NULL: "--volume" and the volume.
     * Likewise. */
    const char *volumes;
    /* Called once, on the tenancy's thread, when the store has been taken by another. NULL: not. */
    void (*fenced)(void *context, const char *why);
    void *context;
    /* Of plx_tenancy_begin() alone, while another process takes the store, or closes it. NULL: it
     * waits up to 15 seconds. */
    const struct plx_patience *patience;
};

/* BUSY: another host has it, or another machine that says it is this one; the text says what comes
 * next. *ret_tenancy is NULL after a dry run. */
int plx_tenancy_begin(const struct plx_tenancy_options *options, struct plx_tenancy **ret_tenancy,
                      struct plx_fault *fault);
/* The last one of this host to end it clears the page's "open". NULL is fine. */
void plx_tenancy_end(struct plx_tenancy *tenancy);

/* Reads the page now. FENCED, or an error of the device. */
int plx_tenancy_look(struct plx_tenancy *tenancy, struct plx_fault *fault);
/* Whether somebody else was found to have the store; *fault says who. Reads nothing. */
int plx_tenancy_fenced(struct plx_tenancy *tenancy, struct plx_fault *fault);
/* Whether it still holds: a comparison, and a look when the last one is too long ago. */
bool plx_tenancy_ok(struct plx_tenancy *tenancy);

/* Gives the store up, so that another host may import it. The caller has seen to it that nobody
 * has it open. */
int plx_tenancy_release(struct plx_tenancy *tenancy, struct plx_fault *fault);

/* What the page says, for people. host zero: nobody has it. */
struct plx_tenant {
    struct plx_uuid host;
    char host_name[65];
    bool found; /* false: there is no page, not even that of a store that was released */
    bool open;
    bool ours; /* this host, or this machine whatever it is called */
    bool here; /* this machine, running since then, through this inode: locks are seen */
};
int plx_tenancy_read(struct plx_device *device, const struct plx_bytelock *locks,
                     const struct plx_uuid *store, const struct plx_paths *paths,
                     struct plx_tenant *ret_tenant, struct plx_fault *fault);
/* For who cannot write, and whose locks nobody sees: whether somebody has the store open. Where the
 * page says so, it takes five seconds to see that nobody lives. */
int plx_tenancy_lives(struct plx_device *device, const struct plx_uuid *store, bool *ret_lives,
                      struct plx_fault *fault);
/* Writes the first page of a store that was just formatted: this host has it, nobody has it open.
 */
int plx_tenancy_found(struct plx_device *device, const struct plx_bytelock *locks,
                      const struct plx_uuid *store, const struct plx_paths *paths,
                      struct plx_fault *fault);

#endif
