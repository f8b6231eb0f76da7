/* reach.h - inside the engine: the mark phase: which blocks of the store a virtual disk uses.
 *
 * A disk uses every block that its record leads to. That is: the newest tree, the log and its
 * index, what the kept snapshots see, the trees of rewinds, and the nodes of the tree that a clone
 * began with. Only metadata is read. For garbage collection (collect.c) and the accounting of
 * space (usage.c). The order of calls:
 *
 *   plx_reach_init()
 *   for each disk: plx_reach_vdi(), then plx_reach_believe()
 *   plx_reach_mark() for single blocks that no disk's record leads to
 *   `used` is the result; plx_reach_done()
 */
#ifndef PLX_REACH_H
#define PLX_REACH_H

#include "engine/care/blockmap.h"
#include "engine/space/allocator.h"

#define PLX_REACH_BATCH 64u /* nodes read at once */

struct plx_reach {
    struct plx_store *store;
    const struct plx_turns *turns;
    struct plx_fault *fault;
    struct plx_blockmap used;  /* the result: blocks in use, in the extents that count */
    struct plx_blockmap seen;  /* nodes whose subtrees earlier disks have marked (REACH-3) */
    struct plx_blockmap own;   /* the same for this disk; joins `seen` if the disk was read whole */
    const bool *counts;        /* for each extent: whether its blocks go into `used` */
    const bool *moving;        /* for each extent: whether another instance may reuse its blocks */
    uint64_t nodes, log_bytes; /* how much was read */
    uint64_t begun_ns;
    bool believe; /* whether `seen` is used; false: each disk is read completely */
    /* The disk being read. */
    const char *name;
    uint8_t *nodes_at[PLX_LEVELS_MAX + 1]; /* room for PLX_REACH_BATCH nodes of each level */
    struct plx_xfer xfers[PLX_REACH_BATCH];
    struct iovec iovs[PLX_REACH_BATCH];
};

struct plx_vdi_record;

/* counts, moving: one for each extent, owned by the caller until plx_reach_done(). moving may be
 * NULL: no extent moves. NOMEM. */
int plx_reach_init(struct plx_reach *reach, struct plx_store *store, const bool *counts,
                   const bool *moving, const struct plx_turns *turns, struct plx_fault *fault);
void plx_reach_done(struct plx_reach *reach);
/* Marks everything that the record leads to. The disk may be open and move on meanwhile, as long as
 * nothing is freed that this record leads to. A caller who cannot be sure of that compares the
 * record with the store afterwards, and tells plx_reach_believe(). Synchronous. CORRUPT: damage, so
 * it is not known what lies below some node or behind some batch. BUSY: interrupted. */
int plx_reach_vdi(struct plx_reach *reach, const struct plx_vdi_record *record);
/* whole: the record stayed in force while the disk was read, so later disks need not read shared
 * nodes again. After each plx_reach_vdi(). NOMEM. */
int plx_reach_believe(struct plx_reach *reach, bool whole);
/* Marks adjacent blocks as used. NOMEM; CORRUPT: they cross the end of an extent. */
int plx_reach_mark(struct plx_reach *reach, uint64_t addr, uint64_t count);

#endif
