/* rebuild.h - a store's registry rebuilt from what the store says of itself (INV-6).
 *
 * Threads: the caller's.
 */
#ifndef PLX_REBUILD_H
#define PLX_REBUILD_H

#include "attach/known.h"
#include "engine/engine.h"

/* What a rebuild found, and what it could not read. */
struct plx_rebuilt {
    uint64_t disks, deleted; /* virtual disks */
    uint64_t lost_records; /* slots whose record cannot be read: a disk, or one that was deleted; or
                              does not hold the disk that the old registry knows there */
    uint64_t older_records;  /* of disks that are refused: they went back (doors.h) */
    uint64_t unread_disks;   /* of whose trees or logs not all can be read */
    size_t unknown_origins;  /* clones of disks that are not known any more */
    uint64_t lost_labels;    /* disks whose labels were not all read */
    bool unknown;            /* the old registry could not be read */
    uint64_t unread;         /* parts of it that could not be read: REBUILD-5 */
    uint64_t undated;        /* disks whose snapshots count as taken just now: REBUILD-15 */
    uint64_t newer_extents;  /* of further volumes: REBUILD-11 */
    bool first_back;         /* the same, as the volumes' numbers say */
    bool further_back;       /* a further volume went back: REBUILD-12 */
    uint64_t sealed_extents; /* whose header or bitmap is damaged or went back: nothing is
                                allocated in them */
};

/* The volumes of one store, all of them. Either the new registry takes the old one's place as a
 * whole, or nothing has changed; the store is known here afterwards. BUSY: somebody has a volume
 * open, or another host has the store. What cannot be read is reported, kept in the registry
 * (lost.h), and fails nothing; so is what the old registry knows of disks, as far as that can be
 * read, and the store does not hold any more. It reads the metadata of all disks: as long as
 * "store check" takes. dry_run: only looks. */
struct plx_rebuild_options {
    const char *state_dir;
    const char *const *volumes;
    unsigned count;
    bool dry_run;
    bool no_newer; /* the operator's word: of a volume that went back there is no newer state. Else
                      UNCONFIRMED, and nothing has changed */
    /* The operator's word: the cluster that the store belongs to has lost the store's registry, or
     * will not have it. The new one lies in the store, which belongs to no cluster then. Without
     * that word, UNCONFIRMED for a store of a cluster. */
    bool registry_lost;
    const struct plx_patience
        *patience; /* while others have the volumes, or the store (device.h) */
    void (*lost)(void *context, const char *text); /* may be NULL */
    /* May be NULL: what of the old registry could not be read (REBUILD-5), beside `lost`; the names
     * of undated disks (REBUILD-15). */
    void (*unread)(void *context, const char *what);
    void (*undated)(void *context, const char *vdi);
    void *context;          /* of these three */
    struct plx_watch watch; /* bytes of metadata; once interrupted, nothing has changed */
};
int plx_rebuild(const struct plx_rebuild_options *options, struct plx_known *ret_known,
                struct plx_rebuilt *ret_rebuilt, struct plx_fault *fault);

#endif
