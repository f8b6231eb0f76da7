/* reach.h - inside the engine: which blocks of the store a virtual disk uses.
 *
 * Everything that its record leads to: the newest tree, the log, what its retained snapshots see,
 * the nodes of the tree that it began with as a clone. Metadata is read, data is not. Serves the
 * collector (collect.c) and the accounting of space.
 */
#ifndef PLX_REACH_H
#define PLX_REACH_H

#include "engine/care/blockmap.h"
#include "engine/loop/store.h"

#define PLX_REACH_BATCH 64u /* nodes read at once */

struct plx_reach {
    struct plx_store *store;
    const struct plx_turns *turns;
    struct plx_fault *fault;
    struct plx_blockmap used;  /* what was reached, in the extents that count */
    struct plx_blockmap seen;  /* nodes below which everything was */
    struct plx_blockmap own;   /* the same of the disk at hand: believed when it was read whole */
    const bool *counts;        /* of each extent: whether its blocks are to be noted */
    const bool *moving;        /* ... whether others may use its blocks again meanwhile */
    uint64_t nodes, log_bytes; /* read */
    uint64_t begun_ns;
    bool believe; /* what was seen before, of other disks, is not read again */
    /* The disk at hand: */
    const char *name;
    uint8_t *nodes_at[PLX_LEVELS_MAX + 1]; /* PLX_REACH_BATCH nodes for each level of a walk */
    struct plx_xfer xfers[PLX_REACH_BATCH];
    struct iovec iovs[PLX_REACH_BATCH];
};

struct plx_vdi_record;

/* counts: one for each extent, kept by the caller, as is moving (NULL: none). */
int plx_reach_init(struct plx_reach *reach, struct plx_store *store, const bool *counts,
                   const bool *moving, const struct plx_turns *turns, struct plx_fault *fault);
void plx_reach_done(struct plx_reach *reach);
/* All that the record leads to. It may be read while the disk is open and moves on, as long as
 * nothing is freed meanwhile that the record leads to; whoever cannot be sure looks afterwards
 * whether the record is still the same, before plx_reach_believe(). Synchronous. CORRUPT: what
 * lies below some node or batch is not known; BUSY: interrupted. */
int plx_reach_vdi(struct plx_reach *reach, const struct plx_vdi_record *record);
/* The disk was read in one piece, or not. NOMEM. */
int plx_reach_believe(struct plx_reach *reach, bool whole);
/* Blocks that count, of no disk. NOMEM. */
int plx_reach_mark(struct plx_reach *reach, uint64_t addr, uint64_t count);

#endif
