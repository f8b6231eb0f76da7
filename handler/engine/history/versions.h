/* versions.h - inside the engine: follows the versions of a disk's blocks through a stretch of log,
 * and collects those that no snapshot sees any more. For letting snapshots go (reclaim.c).
 *
 * A version of a block is one place on the store, from the record that maps it to the record that
 * replaces it. The order of calls, while the caller reads the log:
 *
 *   fill in gen, kept, base_birth, base and freed of a zeroed struct plx_versions
 *   each MAP, UNMAP, VOID    plx_versions_apply(): what it replaces may go to `freed`
 *   each SNAPSHOT            plx_versions_snapshot(): later versions are born after it
 *   now and then             plx_versions_sort_fresh(), plx_versions_at() for each of `fresh`,
 *                            plx_versions_settle(): what changed since the last time
 *   at the end               plx_versions_free(); `freed` is the caller's
 */
#ifndef PLX_VERSIONS_H
#define PLX_VERSIONS_H

#include "engine/base/hashtable.h"
#include "engine/format/format.h"
#include "engine/map/map.h"

/* The version of a virtual block at this point of the stretch. */
struct plx_version {
    struct plx_hashtable_key vblock;
    uint64_t addr;  /* 0: unmapped */
    uint64_t birth; /* the last snapshot before the version: only later ones see it */
    uint32_t checksum;
    bool fresh;  /* mapped or unmapped since plx_versions_settle() */
    bool voided; /* overwritten in place: the checksum no longer holds */
};

/* The tree with which the stretch begins. It is asked only when one of its blocks is replaced. */
struct plx_versions_base {
    /* The block's entry; 0: the tree does not map it. */
    int (*entry)(void *context, uint64_t vblock, uint64_t *ret_entry);
    /* Calls visit for every block of the range that the tree maps. */
    int (*each)(void *context, uint64_t vblock, uint64_t count,
                int (*visit)(void *argument, uint64_t vblock, uint64_t entry), void *argument);
    /* Whether this disk did not write the block at addr, but began with it as a clone. */
    int (*inherited)(void *context, uint64_t vblock, uint64_t addr, bool *ret_inherited);
    void *context;
};

struct plx_versions {
    struct plx_hashtable table; /* the versions, by virtual block */
    uint64_t gen;               /* the last snapshot so far */
    uint64_t kept;              /* the last snapshot so far that stays; 0: none */
    uint64_t base_birth;        /* the birth of all blocks of the base */
    struct plx_versions_base base;
    struct plx_deaths *freed; /* data blocks that no snapshot sees any more */
    uint64_t *fresh;          /* virtual blocks changed since plx_versions_settle(), each once */
    size_t fresh_count, fresh_capacity;
    uint64_t *leaves; /* leaves voided since plx_versions_settle(), some more than once */
    size_t leaf_count, leaf_capacity;
};

/* Applies a MAP, UNMAP or VOID record. Returns NOMEM, or an error of the base's functions. */
int plx_versions_apply(struct plx_versions *versions, const struct plx_record *record);
/* The log has reached a snapshot; stays: it does not go. */
void plx_versions_snapshot(struct plx_versions *versions, uint64_t seq, bool stays);
/* Sorts `fresh` and `leaves`, for the caller to look at. */
void plx_versions_sort_fresh(struct plx_versions *versions);
/* The caller has looked: nothing is fresh any more. */
void plx_versions_settle(struct plx_versions *versions);
struct plx_version *plx_versions_at(const struct plx_versions *versions, uint64_t vblock);
void plx_versions_free(struct plx_versions *versions);

#endif
