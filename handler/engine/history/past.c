/* past.c - one at a time lets snapshots of a disk go, or rewinds it. See past.h.
 *
 * Loop: the disk's. Crash story: memory only.
 */
#include "engine/history/past.h"

#include <stdlib.h>

bool plx_vdi_history_changes(const struct plx_vdi *vdi)
{
    return vdi->past && vdi->past->changing;
}

int plx_past_begin(struct plx_vdi *vdi, struct plx_fault *fault)
{
    if (plx_vdi_history_changes(vdi))
        return plx_fault_set(fault, PLX_ERR_BUSY,
                             "virtual disk %s: old snapshots are being let go, or it is being "
                             "rewound; try again when that is done",
                             vdi->record.name);
    if (!vdi->past && !(vdi->past = calloc(1, sizeof *vdi->past)))
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    vdi->past->changing = true;
    return 0;
}

void plx_past_end(struct plx_vdi *vdi)
{
    vdi->past->changing = false;
}
