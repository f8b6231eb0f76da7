/* engine_check.h - the independent checker.
 *
 * Part of engine.h, which says how calls are made; include that. */
#ifndef PLX_ENGINE_CHECK_H
#define PLX_ENGINE_CHECK_H

#include "engine/engine.h"

enum plx_finding_severity {
    PLX_FINDING_INFO,  /* leaked blocks and the like: nothing is lost */
    PLX_FINDING_ERROR, /* the store is damaged */
};

struct plx_finding {
    enum plx_finding_severity severity;
    const char
        *kind; /* one word: superblock, bitmap, record, node, data, log, keyframe, shared... */
    const char *text; /* one sentence, no newline */
    const char *vdi;  /* its name, NULL: none */
    const struct plx_uuid *id;
    uint64_t vblock;       /* block of the virtual disk, UINT64_MAX: none */
    uint64_t addr;         /* block of the store, 0: none */
    const char *volume;    /* that holds it */
    uint64_t volume_block; /* and which of its blocks */
};

/* Blocks of one extent that are allocated and that no live disk or snapshot has. */
struct plx_leak {
    uint64_t extent;
    enum plx_extent_type type;
    uint64_t owner;   /* instance that holds the extent (an open disk's reserve, or its crash) */
    uint64_t deleted; /* blocks that deleted disks still have */
    uint64_t other;
};

/* Who watches long work. The hooks may be NULL. */
struct plx_watch {
    void (*progress)(void *context, uint64_t done, uint64_t total); /* total 0: not known yet */
    bool (*interrupted)(void *context);                             /* true ends the work */
    void *context;
};

struct plx_check_options {
    bool data;     /* also read and verify every data block with a known checksum */
    uint64_t rate; /* bytes read a second at most, 0: no limit */
    void (*finding)(void *context, const struct plx_finding *finding); /* may be NULL */
    void (*leak)(void *context, const struct plx_leak *leak);          /* may be NULL */
    /* Once for each extent that has blocks of a disk and would give them away: its bitmap has them
     * free, or it is of another type, and no owner's recovery will mark them. Certain only where
     * nobody writes. May be NULL. */
    void (*unguarded)(void *context, uint64_t extent);
    bool held; /* also for each that has blocks of a disk and an owner, who may know them as free */
    bool (*leave_out)(void *context, uint32_t slot); /* may be NULL: every disk is looked at */
    void *context;                                   /* of these hooks */
    struct plx_watch watch; /* bytes; interrupted ends the check with BUSY */
};

struct plx_check_result {
    uint64_t errors, leaked_blocks, used_blocks, free_blocks, vdis, snapshots, nodes, batches,
        data_verified;
    uint64_t deleted_blocks; /* of the leaked: deleted disks have them */
    /* Of the newest states of disks of which it is known: blocks, and those of them whose checksum
     * is known. What the others hold nobody can check. */
    uint64_t mapped_blocks, vouched_blocks;
    uint64_t unsettled; /* disks that changed too fast to be read in one piece */
    uint64_t bytes;     /* read */
};

/* Reads only. Independent of the code that writes: verify.c. The store may have been opened
 * read-only (instance 0); disks may be open, here and elsewhere. */
int plx_store_check(struct plx_store *store, const struct plx_check_options *options,
                    struct plx_check_result *ret_result, struct plx_fault *fault);

#endif
