/* reclaim.h - letting go of snapshots.
 *
 * History is a chain of key frames and the log between them. Any snapshots of it can go: a stretch
 * of the log is written anew without them, and what was seen by none but them comes back. At the
 * old end nothing is written, history just begins later. Cost follows what changed in the stretch,
 * never the size of the disk or the number of snapshots.
 */
#ifndef PLX_RECLAIM_H
#define PLX_RECLAIM_H

#include "engine/map/map.h"

/* A log segment that was written anew elsewhere; addr 0: there is none of that number any more. */
struct plx_log_move {
    uint64_t segment, addr;
};

/* Takes effect with a key frame's record: the snapshots are gone, the log lies where the moves say,
 * and the blocks (data and nodes) are free. */
struct plx_history_drop {
    struct plx_keyframe oldest; /* levels 0: history begins where it did */
    struct plx_deaths blocks;
    struct plx_log_move *moves; /* by number */
    size_t move_count;
    uint64_t *snapshots; /* ascending */
    size_t snapshot_count;
    uint64_t flush_mark; /* store->flush_failures before the first write */
};

/* Whether a snapshot of a disk that is open here is just being let go. */
bool plx_vdi_lets_go(const struct plx_store *store, uint32_t slot, uint64_t seq);

#endif
