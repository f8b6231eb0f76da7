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
/* Opens all of these paths, or none. */
int plx_volumes_open_paths(const char *const *paths, unsigned count,
                           const struct plx_device_open_options *options,
                           struct plx_device **ret_devices, struct plx_fault *fault);
void plx_volumes_close(struct plx_device **devices, unsigned count);

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
/* A file by an absolute path, since others will open it from elsewhere; to be freed. Links stay as
 * they are: names that last, such as those below /dev/disk, are links. INVALID: VOLUMES-4. */
int plx_volumes_absolute(const char *path, char **ret_path, struct plx_fault *fault);

#endif
