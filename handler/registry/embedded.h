/* embedded.h - the registry that lies in a store.
 *
 * An SQLite database in system extents of volume 0 (format.h), reached through region.h: one
 * device is the whole truth, so a backup put back, an array's snapshot, a move to another machine
 * or a power cut takes registry and store together. A cluster's registry lies elsewhere.
 *
 * Threads: as registry.h. A registry opened here brings a device handle and locks of its own, and
 * closes them.
 */
#ifndef PLX_EMBEDDED_H
#define PLX_EMBEDDED_H

#include "device/bytelock.h"
#include "registry/registry.h"
#include "registry/tenancy.h"

struct plx_embedded_options {
    const char *volume;   /* volume 0 */
    const char *uuid;     /* of the store that is meant; NULL: whichever lies there */
    const char *identity; /* likewise; NULL: any copy of it */
    const char *who;      /* for events */
    bool read_only;       /* nothing is written, not even what a crash left to be undone */
    bool beside;          /* this process may have the volume open exclusively (device.h) */
    const struct plx_patience *patience; /* NULL: device.h's, and region.h's */
    /* Asked before each change: may this host write? NULL: it may. */
    bool (*may_write)(void *context, struct plx_fault *fault);
    void *context;
    bool *damaged; /* region.h; until the registry is closed */
};

int plx_embedded_open(const struct plx_embedded_options *options, struct plx_registry **ret_reg,
                      struct plx_fault *fault);
/* An empty registry, whatever lay there; nobody else has the store open. */
int plx_embedded_create(const struct plx_embedded_options *options, struct plx_registry **ret_reg,
                        struct plx_fault *fault);

/* Whether the volume is volume 0 of the store that is meant. */
int plx_embedded_check(const struct plx_embedded_options *options, struct plx_fault *fault);
/* Which host has the store; without opening its registry, and without writing. */
int plx_embedded_tenant(const struct plx_embedded_options *options, const struct plx_paths *paths,
                        struct plx_tenant *ret_tenant, struct plx_fault *fault);

/* What such a registry was opened with. */
struct plx_device *plx_registry_device(const struct plx_registry *reg);
struct plx_bytelock *plx_registry_locks(const struct plx_registry *reg);

#endif
