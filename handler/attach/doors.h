/* doors.h - whether the record in a slot is the one that the registry means.
 *
 * A device may acknowledge a write and lose it. Then a slot shows an earlier record, which is whole
 * and has a good checksum: an older state of the disk, or the record of another disk. Only the
 * registry can tell. It remembers the disk's id, and in `written` what the last closing made
 * durable: the epoch in the record, and how many states the record has had. A call for each
 * situation compares the record with that:
 *
 *     plx_door_read()          the disk may be open somewhere     id; not older
 *     plx_door_read_closed()   nobody has its lock                id; not older, not newer
 *     plx_door_read_taken()    its lock came from a dead holder   id; not older, not by a stranger
 *
 * Errors, the same for all three:
 *
 *     NOT_FOUND   the disk is being created, or its creation was cut off
 *     CORRUPT     the record is damaged, missing, older, or that of another disk that was deleted:
 *                 this disk only is affected
 *     REGISTRY    the record is newer, or that of another live disk: the caller reports a doubt
 *                 (plx_registry_doubt)
 *
 * Threads: the engine's; calls are made with its lock held. They only read.
 */
#ifndef PLX_DOORS_H
#define PLX_DOORS_H

#include "engine/engine.h"
#include "registry/registry.h"

/* Reads the record of the row's disk, whoever may have it open. */
int plx_door_read(struct plx_store *store, const struct plx_registry_vdi *row,
                  struct plx_vdi_info *ret_info, struct plx_fault *fault);
/* The same. If nobody had the lock when the row was read, a record that is newer is REGISTRY. */
int plx_door_read_closed(struct plx_store *store, const struct plx_registry_vdi *row,
                         struct plx_vdi_info *ret_info, struct plx_fault *fault);
/* The same, for a row whose lock the caller has taken over from a dead instance. A record that
 * somebody wrote whom the row does not know is REGISTRY. */
int plx_door_read_taken(struct plx_store *store, const struct plx_registry_vdi *row,
                        struct plx_vdi_info *ret_info, struct plx_fault *fault);
/* Whether the record is older than what was written last, which an operator may accept. Errors: as
 * plx_door_read(). */
int plx_door_is_older(struct plx_store *store, const struct plx_registry_vdi *row, bool *ret_older,
                      struct plx_fault *fault);
/* The same, of a record that the caller has read and whose id is the row's. */
bool plx_door_is_back(const struct plx_registry_vdi *row, const struct plx_vdi_info *info);
/* As `written` of a disk that a rebuild refuses because another one has its blocks (REBUILD-14): so
 * many states, in an epoch behind the record's. No disk has so few in its second epoch or later. */
#define PLX_DOOR_USED_TWICE 2u
bool plx_door_is_used_twice(const struct plx_registry_vdi *row);
#define PLX_OLDER_TEXT 512
/* What to do about a disk whose record is older. Returns ret_text. */
const char *plx_door_older_advice(const struct plx_registry_vdi *row,
                                  char ret_text[PLX_OLDER_TEXT]);
/* Whether the operator may give the row's disk up as lost. 0: its slot has no live record at all,
 * or has the disk's record in an older state (*ret_back). EXISTS: the disk's record is there and
 * current. REGISTRY: another live disk's record is there. */
int plx_door_is_gone(struct plx_store *store, const struct plx_registry_vdi *row, bool *ret_back,
                     struct plx_fault *fault);
/* Whether the row's slot has the disk's record, in whatever state. */
bool plx_door_is_there(struct plx_store *store, const struct plx_registry_vdi *row);

#define PLX_STRAY_TEXT 512
/* What there is to tell of a clone whose origin is not known (HOLDS-9). */
void plx_door_tell_stray(const struct plx_registry_vdi *row, char ret_text[PLX_STRAY_TEXT]);

/* Whether an extent is newer than the registry knows (DOORS-4). row: one that the registry does not
 * have is of an unused extent. states: of its header, as far as they are known to be durable. */
bool plx_door_extent_is_newer(const struct plx_registry_extent *row, uint64_t states);
/* Says so, and what to do first; returns REGISTRY. */
int plx_door_refuse_newer_extent(const struct plx_store *store, uint64_t no,
                                 struct plx_fault *fault);

#endif
