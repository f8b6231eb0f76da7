/* rebuild_inside.h - what rebuild.c, rebuild_scan.c, rebuild_old.c, rebuild_disks.c,
 * rebuild_clock.c, rebuild_file.c and rebuild_ground.c share; the rules REBUILD-1 to REBUILD-18 are
 * rebuild.c's. */
#ifndef PLX_REBUILD_INSIDE_H
#define PLX_REBUILD_INSIDE_H

#include "attach/attach_inside.h"
#include "attach/rebuild.h"
#include "registry/embedded.h"
#include "registry/lost.h"

struct rebuild {
    const struct plx_rebuild_options *options;
    struct plx_fault *fault;
    struct plx_paths paths;
    struct plx_known known;
    struct plx_env env;
    struct plx_store *store; /* REBUILD-1: brings the volumes */
    bool clustered;          /* REBUILD-18 */
    struct plx_store_info info;
    struct plx_registry *file; /* REBUILD-2 */
    char path[PLX_PATH_MAX + 64], folder[PLX_PATH_MAX + 32];
    int lock;                 /* of the file: rebuild_file.c */
    int64_t row;              /* of the store in the file */
    struct plx_registry *old; /* NULL: it cannot be opened */
    bool damaged;             /* REBUILD-2, REBUILD-5, REBUILD-6: the old one, where it was read */
    bool unread;              /* REBUILD-5: what was read of it last is damaged */
    bool knows;               /* what follows, and more: it can be read */
    bool doubted;             /* the old one was, before the rebuild */
    bool outdated;            /* REBUILD-15: it is older than the store, or may be */
    int64_t old_row;
    struct plx_registry_vdi *old_vdis; /* live ones */
    size_t old_count;
    struct plx_rebuilt rebuilt;
    bool *unbelieved; /* of each extent */
    bool newer_first; /* REBUILD-11: something on volume 0 is newer than the old registry knows */
    /* What the store says, for the import calls. */
    struct plx_registry_extent *extents;
    struct plx_registry_vdi *vdis;
    struct plx_registry_instance *instances;
    size_t extent_count, vdi_count, instance_count, instance_capacity;
};

/* rebuild_ground.c */
int plx_rebuilding_no_memory(struct rebuild *r);
int plx_rebuilding_registry_fault(struct rebuild *r, struct plx_registry *registry, int error);
__attribute__((format(printf, 2, 3))) void plx_rebuilding_tell_lost(struct rebuild *r,
                                                                    const char *format, ...);
/* Of a call that reads the old registry: what is damaged is as if it were not there (r->unread),
 * and is told as what the registry knew of `what`. NULL: the caller tells. */
int plx_rebuilding_read_old(struct rebuild *r, int error, const char *what);
void plx_rebuilding_tell_unread(struct rebuild *r, const char *what);
int plx_rebuilding_add_lost(struct rebuild *r, uint32_t slot, const char *vdi, const char *why);
/* Once for each slot. */
int plx_rebuilding_enter_lost(struct rebuild *r, uint32_t slot, const char *why, const char *more);
/* old: which disk's it was, as far as that is known. */
int plx_rebuilding_lose_record(struct rebuild *r, uint32_t slot, const struct plx_registry_vdi *old,
                               const char *why);

/* rebuild_file.c */
/* Where the file is to be made (r->path); removes what killed rebuilds left. */
int plx_rebuilding_place_file(struct rebuild *r);
void plx_rebuilding_remove_file(struct rebuild *r);

/* rebuild_scan.c */
int plx_rebuilding_scan_extents(struct rebuild *r);
int plx_rebuilding_scan_vdis(struct rebuild *r);

/* rebuild_old.c */
/* How the registry in the store is opened, and made. */
struct plx_embedded_options plx_rebuilding_embedded(struct rebuild *r);
int plx_rebuilding_open_old(struct rebuild *r);
int plx_rebuilding_keep_labels(struct rebuild *r, const char *vdi);
int plx_rebuilding_never_believe(struct rebuild *r, uint64_t number, const char *why);
int plx_rebuilding_keep_old(struct rebuild *r);
/* REBUILD-11: that volume 0 went back. */
int plx_rebuilding_tell_newer(struct rebuild *r);

/* rebuild_clock.c: REBUILD-15 */
int plx_rebuilding_keep_clocks(struct rebuild *r);

/* rebuild_disks.c: REBUILD-9, REBUILD-12, REBUILD-14, REBUILD-16 */
int plx_rebuilding_ask_disks(struct rebuild *r);
/* REBUILD-13: the clones whose origin is not known. */
int plx_rebuilding_tell_strays(struct rebuild *r);

#endif
