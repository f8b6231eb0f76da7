/* past.h - inside history: what it keeps of an open disk. Synchronous; on the disk's loop.
 *
 * Other rooms ask plx_vdi_history_changes() (engine_history.h).
 */
#ifndef PLX_PAST_H
#define PLX_PAST_H

#include "engine/disk/vdi.h"
#include "engine/history/thrift.h"

struct plx_past {
    bool changing; /* between plx_past_begin() and plx_past_end() */
    struct plx_thrift thrift;
};

/* Begins to change the disk's history, which nobody else may do before plx_past_end(). BUSY:
 * somebody does; NOMEM. From then on vdi->past is there, until the disk is closed. */
int plx_past_begin(struct plx_vdi *vdi, struct plx_fault *fault);
void plx_past_end(struct plx_vdi *vdi);

#endif
