/* engine_care.h - garbage collected, equal blocks found, space accounted for.
 *
 * Part of engine.h, which says how calls are made; include that. */
#ifndef PLX_ENGINE_CARE_H
#define PLX_ENGINE_CARE_H

#include "engine/engine.h"

/* ---- Collecting (collect.c) ---------------------------------------------------------------- */

/* What the caller knows of an extent. */
enum plx_collect_extent {
    PLX_COLLECT_IGNORE,
    PLX_COLLECT_LOOK,   /* garbage is looked for in it: this instance's, or nobody's */
    PLX_COLLECT_MOVING, /* another instance has it: not to be looked at, and nothing stays as it is
                         */
};

struct plx_collect_options {
    const uint8_t *extents; /* enum plx_collect_extent for each; copied */
    uint64_t extent_count;  /* BUSY if the store has become larger by then */
    const uint64_t *living; /* other instances that are not dead; kept by the caller */
    size_t living_count;
    uint64_t rate; /* bytes of metadata read a second at most, 0: no limit */
    /* Both may be NULL. pause: between two turns of the loop, nothing of the engine is under way:
     * others may call in. interrupted: true ends the collection with BUSY. */
    void (*pause)(void *context);
    bool (*interrupted)(void *context);
    void (*progress)(void *context, uint64_t metadata_bytes); /* read so far; may be NULL */
    void *context;
};

struct plx_collect;

/* Blocks that are allocated and that no disk uses any more: those of deleted disks, and what
 * crashes left. One collection at a time in a store, here and elsewhere: the caller's affair.
 * Whatever is garbage when it begins is found, if its extent stays where it is until
 * plx_collect_garbage(); nothing else ever is. Disks are at work meanwhile, here and elsewhere. All
 * calls are synchronous. BUSY: a disk stopped, or changes faster than it can be read. CORRUPT: the
 * store is damaged, and what is garbage cannot be known. */
int plx_collect_begin(struct plx_store *store, const struct plx_collect_options *options,
                      struct plx_collect **ret_collect, struct plx_fault *fault);
/* Reads the metadata of all disks. */
int plx_collect_mark(struct plx_collect *collect, struct plx_fault *fault);
/* One extent's garbage: one bit a block. It stays garbage until it is swept, as long as the extent
 * is this instance's without a break, or, if it was nobody's from before plx_collect_begin() until
 * now, as long as it goes on to be nobody's. NOT_FOUND: not to be known this time. */
int plx_collect_garbage(struct plx_collect *collect, uint64_t extent, uint64_t *ret_bits,
                        uint64_t *ret_count, struct plx_fault *fault);
void plx_collect_end(struct plx_collect *collect);

/* ---- Deduplication (dedup.c) --------------------------------------------------------------- */

struct plx_dedup_options {
    bool dry_run;    /* only counts; reads the same */
    uint64_t memory; /* bytes, 0: 256 MiB; with less, metadata is read more often */
    uint64_t rate;   /* bytes of data read a second at most, 0: no limit */
    /* Each may be NULL. pause: between two turns of the loop, nothing of this is under way: others
     * may call in. It should sleep for a moment. interrupted: true ends it with BUSY. progress:
     * blocks looked at, or, comparing, steps of what is to be done in the slice at hand. */
    void (*pause)(void *context);
    bool (*interrupted)(void *context);
    void (*progress)(void *context, bool comparing, uint64_t done, uint64_t total);
    void *context;
};

struct plx_deduped {
    uint64_t mapped;     /* blocks of these disks; of them: */
    uint64_t common;     /* were common already */
    uint64_t seen;       /* by snapshots or clones: they stay as they are */
    uint64_t unknown;    /* have no checksum, for they were overwritten in place */
    uint64_t compared;   /* were read, for their checksum was not the only one of its kind */
    uint64_t unreadable; /* could not be */
    uint64_t joined;     /* have become one with another: so many blocks come free */
    uint64_t made;       /* common blocks that there are now for it */
    unsigned disks, slices;
};

/* Equal blocks of the disks that are open for writing here become one, each a PLX_SHARE. They go on
 * meanwhile. Conditions and errors of plx_share_begin(), unless it is a dry run; NOSPACE: there is
 * no room to copy a block. What was done before an error stays, and is told. Synchronous. */
int plx_store_dedup(struct plx_store *store, const struct plx_dedup_options *options,
                    struct plx_deduped *ret_deduped, struct plx_fault *fault);

/* ---- Accounting of space (usage.c) --------------------------------------------------------- */

/* Blocks, data and metadata. Of what is busy the numbers are 0. */
struct plx_space {
    bool busy;           /* changes faster than it can be read */
    uint64_t referenced; /* its records lead to them: the newest state, snapshots, log */
    uint64_t exclusive;  /* of these, those that nobody else has: deleting it makes them garbage */
};

struct plx_usage_vdi {
    uint32_t slot;
    struct plx_uuid id;
    char name[PLX_NAME_MAX + 1];
    bool open;       /* somewhere */
    uint32_t family; /* index of it */
    struct plx_space space;
};

/* Disks that come from each other by cloning, possibly through deleted ones. */
struct plx_usage_family {
    uint32_t vdis; /* live ones, 1 or more */
    struct plx_space space;
};

struct plx_usage {
    struct plx_usage_vdi *vdis; /* live ones, by family and slot */
    struct plx_usage_family *families;
    uint32_t vdi_count, family_count;
    uint64_t referenced, shared; /* blocks that one disk has or more; that two have or more */
    /* Allocated, and no disk has them: what a collection would free, when no disk is open; open
     * ones have some in reserve and have not written all they know. */
    uint64_t garbage;
    uint64_t bytes; /* read */
};

struct plx_usage_kin {
    struct plx_uuid vdi, parent;
};

struct plx_usage_options {
    const struct plx_usage_kin *kin; /* relations beyond those that the records tell */
    size_t kin_count;
    /* Bytes of metadata; total 0: not known yet. May be NULL. */
    void (*progress)(void *context, uint64_t done, uint64_t total);
    bool (*interrupted)(void *context); /* may be NULL; true ends it with BUSY */
    void *context;
};

/* Reads all metadata twice, and no data. The store may have been opened read-only (instance 0);
 * disks may be open, here and elsewhere: each is read in one piece, but not all at one instant.
 * Synchronous. CORRUPT: the store is damaged, and what is in use cannot be known. */
int plx_store_usage(struct plx_store *store, const struct plx_usage_options *options,
                    struct plx_usage *ret_usage, struct plx_fault *fault);
void plx_usage_done(struct plx_usage *usage);

#endif
