/* turn.c - a disk's turn of the loop: what waits is admitted, what is due begins.
 *
 * Loop: the disk's; never blocks. Crash story: nothing is written here.
 */
#include "engine/disk/vdi.h"

void plx_vdi_pump(struct plx_vdi *vdi)
{
    plx_vdi_admit_waiting(vdi);
    if (vdi->snapshot)
        return;
    if (vdi->front)
        vdi->front->pump(vdi->front);
    /* A flush has failed since, so writes in place that were acknowledged may be lost. */
    if (vdi->unflushed && !vdi->log.sticky && plx_flush_failed_since(vdi->store, vdi->flush_mark))
        plx_log_fail(&vdi->log, vdi->store->flush_error);
    plx_keyframe_pump(vdi);
    plx_protect_pump(vdi);
    plx_vouch_pump(vdi);
    plx_gather_pump(&vdi->gather);
    plx_log_pump(&vdi->log);
}
