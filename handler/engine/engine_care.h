/* engine_care.h - care of a store: garbage collected, equal blocks shared, space accounted for.
 *
 * Part of engine.h, which says how calls are made; include that. All calls are synchronous.
 *
 * A collection, with disks at work here and elsewhere:
 *     plx_collect_begin()       the caller has noted the collection in the registry before
 *     plx_collect_mark()        reads the metadata of all disks
 *     plx_collect_garbage()     for each extent to look at; the caller keeps what it finds
 *     plx_collect_end()
 *     plx_store_extent_sweep()  for each extent, frees what was found (engine.h)
 */
#ifndef PLX_ENGINE_CARE_H
#define PLX_ENGINE_CARE_H

#include "engine/engine.h"

/* ---- Collecting (collect.c) ---------------------------------------------------------------- */

/* What the caller knows of an extent. */
enum plx_collect_extent {
    PLX_COLLECT_IGNORE,
    PLX_COLLECT_LOOK,   /* find its garbage: this instance or nobody owns it */
    PLX_COLLECT_MOVING, /* another instance owns it: do not look, and rely on nothing there */
};

struct plx_collect_options {
    const uint8_t *extents; /* an enum plx_collect_extent for each extent; copied */
    uint64_t extent_count;  /* BUSY if the store has grown beyond that */
    const uint64_t *living; /* other instances that are not dead; stays the caller's */
    size_t living_count;
    uint64_t rate; /* bytes of metadata read per second at most; 0: no limit */
    /* Both may be NULL. pause: called between turns of the loop, with nothing of the engine under
     * way, so that other calls can come in. interrupted: true ends the collection with BUSY. */
    void (*pause)(void *context);
    bool (*interrupted)(void *context);
    void (*progress)(void *context, uint64_t metadata_bytes); /* read so far; may be NULL */
    void *context;
};

struct plx_collect;

/* Garbage is allocated blocks that no disk uses any more: those of deleted disks, and what crashes
 * left. A collection finds all garbage that existed when it began, and nothing else. An extent must
 * keep its owner until plx_collect_garbage(). The caller makes sure that a store has one collection
 * at a time, in all instances. BUSY: a disk stopped, or changes faster than it can be read.
 * CORRUPT: the store is damaged, so nobody can know what is garbage. */
int plx_collect_begin(struct plx_store *store, const struct plx_collect_options *options,
                      struct plx_collect **ret_collect, struct plx_fault *fault);
/* Reads the metadata of all disks. */
int plx_collect_mark(struct plx_collect *collect, struct plx_fault *fault);
/* The garbage of one extent, one bit per block. It stays garbage until it is swept if the extent
 * keeps its owner: this instance without a break, or nobody since before plx_collect_begin().
 * NOT_FOUND: this collection cannot tell. */
int plx_collect_garbage(struct plx_collect *collect, uint64_t extent, uint64_t *ret_bits,
                        uint64_t *ret_count, struct plx_fault *fault);
void plx_collect_end(struct plx_collect *collect);

/* ---- Deduplication (dedup.c) --------------------------------------------------------------- */

struct plx_dedup_options {
    bool dry_run;    /* only counts; reads as much */
    uint64_t memory; /* bytes, 0: 256 MiB; with less, metadata is read more often */
    uint64_t rate;   /* bytes of data read per second at most; 0: no limit */
    /* Each may be NULL. pause: as for a collection; it should sleep for a moment. interrupted: true
     * ends the call with BUSY. progress: blocks looked at, or (comparing) steps of the present
     * slice. */
    void (*pause)(void *context);
    bool (*interrupted)(void *context);
    void (*progress)(void *context, bool comparing, uint64_t done, uint64_t total);
    void *context;
};

struct plx_deduped {
    uint64_t mapped;     /* blocks of these disks; of them: */
    uint64_t common;     /* were common already */
    uint64_t seen;       /* a snapshot or clone sees them: they stay as they are */
    uint64_t unknown;    /* have no checksum: they were overwritten in place */
    uint64_t compared;   /* were read, because another block has the same checksum */
    uint64_t unreadable; /* could not be read */
    uint64_t joined;     /* now share another block: so many blocks come free */
    uint64_t made;       /* common blocks that were made for that */
    unsigned disks, slices;
};

/* Makes equal blocks of the disks that are open for writing here one, each by a PLX_SHARE. The
 * disks go on meanwhile. Unless it is a dry run, conditions and errors are those of
 * plx_share_begin(). NOSPACE: there is no room to copy a block. What was done before an error
 * stays, and *ret_deduped tells it. */
int plx_store_dedup(struct plx_store *store, const struct plx_dedup_options *options,
                    struct plx_deduped *ret_deduped, struct plx_fault *fault);

/* ---- Accounting of space (usage.c) --------------------------------------------------------- */

/* Numbers of blocks, data and metadata. 0 if busy. */
struct plx_space {
    bool busy;           /* changed faster than it could be read */
    uint64_t referenced; /* its records lead to them: state, snapshots, log */
    uint64_t exclusive;  /* of these, nobody else has them: garbage after a delete */
};

struct plx_usage_vdi {
    uint32_t slot;
    struct plx_uuid id;
    char name[PLX_NAME_MAX + 1];
    bool open;       /* here or elsewhere */
    uint32_t family; /* index of its family */
    struct plx_space space;
};

/* Disks that descend from each other by cloning, perhaps through deleted ones. */
struct plx_usage_family {
    uint32_t vdis; /* live disks, at least 1 */
    struct plx_space space;
};

struct plx_usage {
    struct plx_usage_vdi *vdis; /* live disks, by family and slot */
    struct plx_usage_family *families;
    uint32_t vdi_count, family_count;
    uint64_t referenced, shared; /* blocks that at least one disk has; at least two */
    /* Blocks that are allocated and no disk has. A collection would free them if no disk were open.
     * Open disks have some in reserve, and have not written all they know. */
    uint64_t garbage;
    uint64_t bytes; /* read */
};

struct plx_usage_kin {
    struct plx_uuid vdi, parent;
};

struct plx_usage_options {
    const struct plx_usage_kin *kin; /* relations that no record tells any more */
    size_t kin_count;
    /* bytes of metadata; total 0: not known yet; may be NULL */
    void (*progress)(void *context, uint64_t done, uint64_t total);
    bool (*interrupted)(void *context); /* may be NULL; true ends it with BUSY */
    void *context;
};

/* Reads all metadata twice, and no data. The store may be open to read only (instance 0). Disks may
 * be open, here and elsewhere: each is read as of one instant, but not all as of the same. CORRUPT:
 * the store is damaged, so nobody can know what is in use. */
int plx_store_usage(struct plx_store *store, const struct plx_usage_options *options,
                    struct plx_usage *ret_usage, struct plx_fault *fault);
void plx_usage_done(struct plx_usage *usage);

#endif
