/* reserve.h - inside the engine: a reservation of metadata blocks for recovery.
 *
 * Recovery writes a key frame of what the log says, and closing a disk writes one, too. A key frame
 * takes new nodes before it frees any. In a store that is full of metadata there would be none: the
 * disk could not be opened before garbage is collected, and nothing is collected before all disks
 * are open. So whatever makes logs longer or key frames larger leaves as many blocks free as all
 * disks that are open here need together (INV-8).
 *
 * To take metadata: plx_reserve_room() asks; if it says no, plx_reserve_wait() queues the task, and
 * the task asks again when it is ready. Counts are in blocks. All of this is on the store's loop.
 */
#ifndef PLX_RESERVE_H
#define PLX_RESERVE_H

#include "engine/space/allocator.h"

struct plx_vdi;

struct plx_reserve {
    struct plx_store *store;
    uint64_t blocks; /* RESERVE-1 */
    struct plx_task task;
    bool passing;           /* a bitmap pass runs to make freed blocks usable */
    struct plx_vdi *relief; /* the disk whose key frame is written to lower the need */
};

/* How many nodes a key frame needs at most, if `leaves` leaves have changed. */
uint64_t plx_reserve_nodes(const struct plx_vdi *vdi, uint64_t leaves);
/* Whether the reserve is still left after `blocks` blocks of metadata are taken and `leaves` more
 * leaves of the disk change. */
bool plx_reserve_room(struct plx_vdi *vdi, uint64_t leaves, uint64_t blocks);
/* Makes room in the background when it is getting short. */
void plx_reserve_ahead(struct plx_store *store);
/* There is no room. PLX_WAIT: the task is queued until there may be some. Else why there will be
 * none. *waits counts how often the task was queued; 0 at first. */
int plx_reserve_wait(struct plx_store *store, struct plx_task *task, unsigned *waits);
/* Waits until `blocks` blocks can be taken, while something may make room: 0, or why not.
 * Synchronous. */
int plx_reserve_obtain(struct plx_vdi *vdi, uint64_t blocks);
/* Counts again what the disk needs: after its key frame has made nodes, after it has ended. */
void plx_reserve_count(struct plx_vdi *vdi);
void plx_reserve_keyframe_ended(struct plx_vdi *vdi);
/* The disk is gone: it needs nothing any more. */
void plx_reserve_forget(struct plx_vdi *vdi);
void plx_reserve_init(struct plx_store *store);

#endif
