/* doors.h - whether the record in a slot is the one that the registry means.
 *
 * A device that acknowledged a write and lost it shows a record, whole and well checksummed, of
 * before: of the same disk in an older state, or of another one. The registry remembers the id, and
 * what was made durable last of a record that nobody has open.
 *
 * Threads: the engine's; calls are made with its lock held.
 */
#ifndef PLX_DOORS_H
#define PLX_DOORS_H

#include "engine/engine.h"
#include "registry/registry.h"

/* Reads the record that the row means. NOT_FOUND: the disk is being created, or its creation was
 * cut off. CORRUPT: its record is damaged, not there, that of another disk, which was deleted, or
 * older than what the registry knows to have been written. REGISTRY: it is another disk's, which
 * lives. */
int plx_door_read(struct plx_store *store, const struct plx_registry_vdi *row,
                  struct plx_vdi_info *ret_info, struct plx_fault *fault);
/* As above, of a row that nobody had locked when it was read. REGISTRY: or it is newer. */
int plx_door_read_closed(struct plx_store *store, const struct plx_registry_vdi *row,
                         struct plx_vdi_info *ret_info, struct plx_fault *fault);
/* As plx_door_read(), of a row whose lock was a dead instance's and is the caller's now. REGISTRY:
 * or somebody has had the disk since, of whom the row knows nothing. */
int plx_door_read_taken(struct plx_store *store, const struct plx_registry_vdi *row,
                        struct plx_vdi_info *ret_info, struct plx_fault *fault);
/* Whether the record is the row's, and older than what was written last: what an operator may
 * accept. */
int plx_door_is_older(struct plx_store *store, const struct plx_registry_vdi *row, bool *ret_older,
                      struct plx_fault *fault);
/* The same, of a record that was read. */
bool plx_door_is_back(const struct plx_registry_vdi *row, const struct plx_vdi_info *info);
/* 0: there is no live record of the row's disk, nor of another one in its slot; or it is older than
 * what was written last (*ret_back). EXISTS: its own is there. */
int plx_door_is_gone(struct plx_store *store, const struct plx_registry_vdi *row, bool *ret_back,
                     struct plx_fault *fault);

#endif
