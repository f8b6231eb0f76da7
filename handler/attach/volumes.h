/* volumes.h - a store's volumes between registry and engine. */
#ifndef PLX_VOLUMES_H
#define PLX_VOLUMES_H

#include "attach/known.h"
#include "engine/engine.h"
#include "registry/registry.h"

/* Opens the devices of all volumes, *ret_count of them. This host's own paths count (known.h);
 * volumes that came since are opened by the registry's paths. */
int plx_volumes_open(struct plx_registry *registry, int64_t store, const struct plx_known *known,
                     const struct plx_device_open_options *options,
                     struct plx_device *ret_devices[PLX_VOLUMES_MAX], unsigned *ret_count,
                     struct plx_fault *fault);
/* INVALID: no store has so many volumes, or none. */
int plx_volumes_check_count(unsigned count, struct plx_fault *fault);
/* INVALID: one file or device under two names, or one within another. One that does not exist yet
 * has no other name. */
int plx_volumes_check_distinct(const char *const *paths, unsigned count, struct plx_fault *fault);
/* Opens all of these paths, or none. */
int plx_volumes_open_paths(const char *const *paths, unsigned count,
                           const struct plx_device_open_options *options,
                           struct plx_device **ret_devices, struct plx_fault *fault);
void plx_volumes_close(struct plx_device **devices, unsigned count);

/* CORRUPT, with what to do about plx_store_ahead(). */
int plx_volumes_tell_ahead(struct plx_store *store, struct plx_fault *fault);
/* The ranges that the registry can give out, by their numbers: the engine is told of them (struct
 * plx_store_options). Read before superblocks are, it is never ahead of these; to be freed. */
int plx_volumes_ranges(struct plx_registry *registry, int64_t store,
                       struct plx_extent_range **ret_list, unsigned *ret_count,
                       struct plx_fault *fault);
/* How many extents those ranges have in all. */
int plx_volumes_registered(struct plx_registry *registry, int64_t store, uint64_t *ret_extents,
                           struct plx_fault *fault);
/* Enters what the open store has and the registry does not know yet: a range at a time, each in a
 * transaction. paths: of the volumes; NULL: the devices' names. */
int plx_volumes_register(struct plx_registry *registry, int64_t id, struct plx_store *store,
                         const char *const *paths, struct plx_fault *fault);
/* The volume that holds this extent: its index and its name. */
/* VOLUMES-6. Says that this process has the store's further volumes open to write, for as long as
 * it has them open. */
int plx_volumes_share_open(const struct plx_store *store, struct plx_fault *fault);
/* BUSY: somebody on this machine has one of them open so. A tenancy's hook. */
int plx_volumes_alone(const void *known, struct plx_fault *fault);
unsigned plx_volumes_index_of(const struct plx_store *store, uint64_t extent);
const char *plx_volumes_name_of(const struct plx_store *store, uint64_t extent);
/* A file by an absolute path, since others will open it from elsewhere; to be freed. Links stay as
 * they are: names that last, such as those below /dev/disk, are links. INVALID: VOLUMES-4. */
int plx_volumes_absolute(const char *path, char **ret_path, struct plx_fault *fault);

#endif
