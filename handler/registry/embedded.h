/* embedded.h - the registry of the store on a volume, wherever it lies.
 *
 * As a rule the registry is an SQLite database in system extents of volume 0 (format.h), reached
 * through region.h. Registry and store are then one device. A backup that is put back, an array's
 * snapshot, a move to another machine or a power cut takes both back to the same instant. Where the
 * superblock names a cluster, the registry lies on the cluster's nodes (clustered.h).
 *
 * Order of calls: plx_tenancy_begin() (tenancy.h) makes sure that this host has the store; then
 * plx_embedded_open(), the calls of registry.h, plx_registry_close().
 *
 * Ownership: the registry opens a device handle and byte locks of its own and closes them.
 * Threads: as registry.h.
 */
#ifndef PLX_EMBEDDED_H
#define PLX_EMBEDDED_H

#include "device/bytelock.h"
#include "registry/registry.h"
#include "registry/settings.h"
#include "registry/tenancy.h"

struct plx_embedded_options {
    const char *volume;   /* volume 0 */
    const char *uuid;     /* the store that the caller expects; NULL: any */
    const char *identity; /* the copy of it that the caller expects; NULL: any */
    const char *who;      /* written into audit events */
    /* Which nodes a cluster's registry lies on. NULL: a cluster's store is refused. */
    const struct plx_settings *settings;
    /* Whose a cluster's rows must be (clustered.h), and whether they become this host's. */
    const char *host;
    bool takes;
    /* The database in the store, even if it counts for nothing (CLUSTERED-1): for who makes it the
     * registry again. */
    bool in_store;
    bool read_only; /* nothing is written: a journal that a crash left is not rolled back */
    bool beside;    /* this process may have the volume open exclusively (device.h) */
    const struct plx_patience *patience; /* NULL: the defaults of device.h and region.h */
    /* Asked before each change whether this host may write. NULL: it may. */
    bool (*may_write)(void *context, struct plx_fault *fault);
    void *context;
    bool *damaged; /* as in region.h; must stay valid until the registry is closed */
};

int plx_embedded_open(const struct plx_embedded_options *options, struct plx_registry **ret_reg,
                      struct plx_fault *fault);
/* Makes an empty registry in place of whatever lay there. Nobody else may have the store open. */
int plx_embedded_create(const struct plx_embedded_options *options, struct plx_registry **ret_reg,
                        struct plx_fault *fault);

/* Returns 0 when the volume is volume 0 of the store and identity in `options`, and the registry
 * can be looked for: of a cluster's store the nodes are named. */
int plx_embedded_check(const struct plx_embedded_options *options, struct plx_fault *fault);
/* Whether the superblock names a cluster; false if it cannot be read. */
bool plx_embedded_is_clustered(const struct plx_embedded_options *options);
/* Reads which host has the store. Neither opens the registry nor writes anything. */
int plx_embedded_tenant(const struct plx_embedded_options *options, const struct plx_paths *paths,
                        struct plx_tenant *ret_tenant, struct plx_fault *fault);

/* Volume 0 and its byte locks, which a handle from here owns; NULL for other handles. */
struct plx_device *plx_registry_device(const struct plx_registry *reg);
struct plx_bytelock *plx_registry_locks(const struct plx_registry *reg);

#endif
