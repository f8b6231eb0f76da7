/* lost.h - what a rebuild could not read or find (rebuild.h), until the operator gives it up.
 *
 * A row of `lost` stands for one of two things, and forbids what could harm it:
 *
 *   lost       what may be behind it              forbidden meanwhile
 *   a record   a disk, cloned from any snapshot   collecting garbage; letting snapshots of any disk
 *              of any other disk                  go; giving its slot to a new disk
 *   labels     labels of this disk that were not  letting snapshots of this disk go
 *              all read
 *
 * A record's slot may be one that the store does not have: another disk has its slot by now, or
 * nobody knows which records are lost, because the first volume went back (REBUILD-11).
 *
 * Threads: as registry.h.
 */
#ifndef PLX_LOST_H
#define PLX_LOST_H

#include "registry/registry.h"

struct plx_registry_lost {
    uint32_t slot;
    bool labels;             /* labels of the disk in this slot are lost; false: its record is */
    char vdi[PLX_UUID_TEXT]; /* with labels: the disk's id */
    char why[256];
};

int plx_registry_lost_add(struct plx_registry *reg, int64_t store,
                          const struct plx_registry_lost *lost);
int plx_registry_lost_list(struct plx_registry *reg, int64_t store,
                           struct plx_registry_lost **ret_list, size_t *ret_count);
/* Names the first lost records of a list, and how many more there are, for people. Returns how many
 * they are in all; labels are not counted. */
#define PLX_LOST_TEXT 320
size_t plx_registry_lost_text(const struct plx_registry_lost *list, size_t count,
                              char ret_text[PLX_LOST_TEXT]);
/* Gives everything up that was lost in the store; *ret_count: how many entries there were. What
 * happens to the slots themselves is up to forget.c. */
int plx_registry_lost_forget(struct plx_registry *reg, int64_t store, size_t *ret_count);

#endif
