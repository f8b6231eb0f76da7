/* lost.h - what a rebuild could not read or find (rebuild.h), until the operator gives it up.
 *
 * A record that cannot be read may be that of a disk, which may have been cloned from any snapshot
 * of any other one. So while there is one, nothing is collected, no snapshot goes, and its slot is
 * not given out. A disk whose labels were not all read lets no snapshot go.
 *
 * Threads: as registry.h.
 */
#ifndef PLX_LOST_H
#define PLX_LOST_H

#include "registry/registry.h"

struct plx_registry_lost {
    uint32_t slot;
    bool labels;             /* of the disk in this slot; else its record */
    char vdi[PLX_UUID_TEXT]; /* labels: the disk */
    char why[256];
};

int plx_registry_lost_add(struct plx_registry *reg, int64_t store,
                          const struct plx_registry_lost *lost);
int plx_registry_lost_list(struct plx_registry *reg, int64_t store,
                           struct plx_registry_lost **ret_list, size_t *ret_count);
/* What was lost is given up; *ret_count entries. The slots themselves are forget.c's. */
int plx_registry_lost_forget(struct plx_registry *reg, int64_t store, size_t *ret_count);

#endif
