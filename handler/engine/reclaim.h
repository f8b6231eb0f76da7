/* reclaim.h - letting go of the oldest snapshots (DESIGN section 5, reclaim).
 *
 * History is a chain of key frames and the log between them. It is dropped from its old end, one
 * key frame after the other: what was seen by none but the snapshots in between comes back. Cost
 * follows what changed between the two, never the size of the disk or the number of snapshots.
 */
#ifndef PLX_RECLAIM_H
#define PLX_RECLAIM_H

#include "engine/map.h"

/* Takes effect with a key frame's record: history begins with `oldest` from then on, and the blocks
 * (data and nodes) are free. */
struct plx_history_drop {
    struct plx_keyframe oldest;
    struct plx_deaths blocks;
};

/* Whether a snapshot of a disk that is open here is just being let go. */
bool plx_vdi_forgets(const struct plx_store *store, uint32_t slot, uint64_t seq);

#endif
