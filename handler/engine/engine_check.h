/* engine_check.h - the independent checker.
 *
 * Part of engine.h, which says how calls are made; include that. Findings come through hooks. What
 * a struct plx_finding points to is valid during the hook only.
 */
#ifndef PLX_ENGINE_CHECK_H
#define PLX_ENGINE_CHECK_H

#include "engine/engine.h"

enum plx_finding_severity {
    PLX_FINDING_INFO,  /* nothing is lost: leaked blocks and the like */
    PLX_FINDING_ERROR, /* the store is damaged */
};

struct plx_finding {
    enum plx_finding_severity severity;
    const char
        *kind; /* one word: superblock, bitmap, record, node, data, log, keyframe, shared... */
    const char *text; /* one sentence, no newline */
    const char *vdi;  /* name of the disk; NULL: none */
    const struct plx_uuid *id;
    uint64_t vblock;       /* block of the virtual disk, UINT64_MAX: none */
    uint64_t addr;         /* block of the store, 0: none */
    uint64_t blocks;       /* so many from these on; 0: the finding is not of blocks */
    const char *volume;    /* the volume that holds addr */
    uint64_t volume_block; /* its block there */
    bool also;             /* the same damage was found at another disk first */
};

/* Whether what it calls damaged leads a disk to its blocks: a node, the log, an address. */
bool plx_finding_leads_to_blocks(const struct plx_finding *finding);

/* The blocks of one extent that are allocated and that no live disk or snapshot has. */
struct plx_leak {
    uint64_t extent;
    enum plx_extent_type type;
    /* The instance that owns the extent: the blocks are an open disk's reserve, or its crash left
     * them. */
    uint64_t owner;
    uint64_t deleted; /* blocks that deleted disks still have */
    uint64_t other;
};

/* Two live disks that use one block and may not: what one writes there, the other loses. So the
 * record of one of them is older than what was written last. */
struct plx_shared {
    uint32_t slot[2];
    int fits[2]; /* whether the block holds what this disk wrote there: 1 yes, -1 no, 0 not known */
    bool reads[2]; /* it only reads the block, at the same place as the other one, as a clone does
                      with what its origin wrote */
};

/* Hooks of long work. Each may be NULL. */
struct plx_watch {
    void (*progress)(void *context, uint64_t done, uint64_t total); /* total 0: not known yet */
    bool (*interrupted)(void *context);                             /* true ends the work */
    void *context;
};

struct plx_check_options {
    bool data;     /* also read and verify every data block with a known checksum */
    uint64_t rate; /* bytes read per second at most; 0: no limit */
    void (*finding)(void *context, const struct plx_finding *finding); /* may be NULL */
    void (*leak)(void *context, const struct plx_leak *leak);          /* may be NULL */
    void (*shared)(void *context, const struct plx_shared *shared);    /* may be NULL */
    /* Called once for each extent that could hand out blocks that a disk has. Its bitmap has such
     * blocks free, or the extent is of another type, and no owner's recovery will mark them.
     * Certain only if nobody writes. May be NULL. */
    void (*unguarded)(void *context, uint64_t extent);
    /* Calls unguarded also for extents with an owner: in the owner's memory the blocks may be free.
     */
    bool owned;
    bool (*leave_out)(void *context, uint32_t slot); /* NULL: looks at every disk */
    /* What findings call a disk: the hook may replace what its record says. NULL: as in the record.
     */
    void (*name)(void *context, const struct plx_uuid *id, char name[PLX_NAME_MAX + 1]);
    /* Whether the extent's bitmap is not believed, so that nothing in it is ever freed. NULL: all
     * are believed. */
    bool (*disbelieved)(void *context, uint64_t extent);
    void *context; /* of these hooks */
    /* Counts bytes of what is to be read, each once; interrupted ends the check with BUSY. */
    struct plx_watch watch;
};

struct plx_check_result {
    uint64_t errors, leaked_blocks, used_blocks, free_blocks, vdis, snapshots, nodes, batches,
        data_verified;
    uint64_t deleted_blocks; /* of leaked_blocks: deleted disks have them, to be collected */
    /* Of the newest states, where it is known: mapped blocks, and those with a known checksum. What
     * the other blocks hold cannot be checked. */
    uint64_t mapped_blocks, vouched_blocks;
    uint64_t unsettled; /* disks that changed too fast to be read in one piece */
    uint64_t bytes;     /* read */
};

/* Reads only, and uses none of the code that writes (verify.c). The store may be open to read only
 * (instance 0). Disks may be open, here and elsewhere. Synchronous. */
int plx_store_check(struct plx_store *store, const struct plx_check_options *options,
                    struct plx_check_result *ret_result, struct plx_fault *fault);

#endif
