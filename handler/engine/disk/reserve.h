/* reserve.h - inside the engine: room for metadata that is left to recovery.
 *
 * A disk that was not closed is opened by a key frame of what its log says, and so is one that is
 * closed. That key frame takes new nodes before it frees any, and in a store that is full of
 * metadata there are none: the disk could not be opened before somebody collects, and nothing is
 * collected before it is open. So what makes logs longer, or key frames larger, leaves as much as
 * all disks that are open here need at once.
 */
#ifndef PLX_RESERVE_H
#define PLX_RESERVE_H

#include "engine/loop/store.h"

struct plx_vdi;

/* Nodes of a key frame that changes so many leaves, at most. */
uint64_t plx_reserve_nodes(const struct plx_vdi *vdi, uint64_t leaves);
/* Whether so many blocks of metadata can be taken, and so many more leaves of the disk be changed,
 * and the reserve is left. */
bool plx_reserve_room(struct plx_vdi *vdi, uint64_t leaves, uint64_t blocks);
/* There is some, but soon there may not be: makes some in the background. */
void plx_reserve_ahead(struct plx_store *store);
/* There is none: queues the task until there may be (PLX_WAIT), or why there will not. *waits: how
 * often the task was queued; 0 at first. */
int plx_reserve_wait(struct plx_store *store, struct plx_task *task, unsigned *waits);
/* Waits until so many blocks can be taken, as long as that may be. Synchronous. */
int plx_reserve_obtain(struct plx_vdi *vdi, uint64_t blocks);
/* What the disk needs has changed: of its key frame something was written, or it has ended. */
void plx_reserve_count(struct plx_vdi *vdi);
void plx_reserve_keyframe_ended(struct plx_vdi *vdi);
void plx_reserve_forget(struct plx_vdi *vdi);
void plx_reserve_init(struct plx_store *store);

#endif
