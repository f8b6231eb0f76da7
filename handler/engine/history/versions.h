/* versions.h - inside the engine: which versions of its blocks a stretch of history has, and which
 * snapshots see them. For letting snapshots go (reclaim.c).
 */
#ifndef PLX_VERSIONS_H
#define PLX_VERSIONS_H

#include "engine/format/format.h"
#include "engine/map/map.h"

/* The version of a virtual block that is mapped at this point of the stretch. */
struct plx_version {
    uint64_t vblock, addr; /* addr 0: unmapped */
    uint64_t birth;        /* snapshots with greater numbers see it */
    uint32_t checksum;
    bool used;
    bool fresh;  /* mapped or unmapped since plx_versions_settle() */
    bool voided; /* written in place: the checksum is not known any more */
};

/* What the stretch began with, asked for when it ends: the entry of a block in that tree. */
struct plx_versions_base {
    int (*entry)(void *context, uint64_t vblock, uint64_t *ret_entry);
    /* Calls visit for every block of the range that the tree maps. */
    int (*each)(void *context, uint64_t vblock, uint64_t count,
                int (*visit)(void *argument, uint64_t vblock, uint64_t entry), void *argument);
    /* Whether the block with that address was not written by this disk: it began with it. */
    int (*inherited)(void *context, uint64_t vblock, uint64_t addr, bool *ret_inherited);
    void *context;
};

struct plx_versions {
    struct plx_version *slots; /* by virtual block; open addressing */
    size_t count, capacity;
    uint64_t gen;        /* the last snapshot */
    uint64_t kept;       /* the last one that stays; 0: none */
    uint64_t base_birth; /* of what the stretch began with */
    struct plx_versions_base base;
    struct plx_deaths *freed; /* data blocks that no snapshot sees any more */
    uint64_t *fresh;          /* virtual blocks, each once */
    size_t fresh_count, fresh_capacity;
    uint64_t *leaves; /* voided since plx_versions_settle(), some more than once */
    size_t leaf_count, leaf_capacity;
};

/* MAP, UNMAP and VOID records; NOMEM, or an error of the base's. */
int plx_versions_apply(struct plx_versions *versions, const struct plx_record *record);
/* A snapshot comes next. */
void plx_versions_snapshot(struct plx_versions *versions, uint64_t seq, bool stays);
/* After what is fresh was looked at (plx_versions_at); sorts it first. */
void plx_versions_sort_fresh(struct plx_versions *versions);
void plx_versions_settle(struct plx_versions *versions);
struct plx_version *plx_versions_at(const struct plx_versions *versions, uint64_t vblock);
void plx_versions_free(struct plx_versions *versions);

#endif
