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

#include "engine/store.h"

struct plx_vdi;

/* Counts what recovering the disk needs, with so many changed blocks more, into store->reserve. */
void plx_reserve_note(struct plx_vdi *vdi, uint64_t blocks);
void plx_reserve_forget(struct plx_vdi *vdi);
/* Whether so many blocks of metadata can be taken beside it. */
bool plx_reserve_leaves(struct plx_store *store, uint64_t blocks);
/* It cannot: queues the task until that may have changed (PLX_WAIT), or why it will not. */
int plx_reserve_wait(struct plx_store *store, struct plx_task *task);
/* Waits for that as long as it may change. Synchronous. */
int plx_reserve_obtain(struct plx_store *store, uint64_t blocks);
void plx_reserve_init(struct plx_store *store);

#endif
