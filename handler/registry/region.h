/* region.h - a registry's SQLite database in a part of a volume.
 *
 * The database and its rollback journal lie in spans of a device: the first half of each span is
 * database, the second half journal, both in the order of the spans, so a region grows by a span.
 * Locks are bytes of the volume. region.c has the rules; sql.h opens a registry in a region.
 */
#ifndef PLX_REGION_H
#define PLX_REGION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/bytelock.h"
#include "device/patience.h"
#include "engine/base/device.h"

#define PLX_REGION_SPANS 16
#define PLX_REGION_UNIT 8192u /* a span's bytes are a multiple of it: a block for each half */

struct plx_region {
    struct plx_device *device;  /* a handle of the registry's own */
    struct plx_bytelock *locks; /* of its own, one for each connection */
    unsigned spans;
    struct {
        uint64_t offset, bytes;
    } span[PLX_REGION_SPANS];
    /* The device cannot be written. A registry that was not closed in order cannot be read then. */
    bool read_only;
    uint64_t unknown; /* the store's features that whoever writes must know, and we do not */
    /* While others have the registry, before the first change that is made here (SQLITE-8).
     * NULL: as after it. */
    const struct plx_patience *patience;
    /* Asked before a transaction takes its lock, before its journal goes to the device and before a
     * transaction of the dead is rolled back. false, with a fault: the change fails with it, and
     * nothing was changed. NULL: always true. */
    bool (*may_write)(void *context, struct plx_fault *fault);
    void *context;
    /* Asked with each lock: the spans as they are now, of which there may be more than before, and
     * the device, which may be larger, written into the region. NULL: it stays as it is. */
    int (*look)(struct plx_region *region, struct plx_fault *fault);
    /* Becomes true when something fails because what lies there is damaged, or no registry, for
     * certain. NULL: nobody asks. */
    bool *damaged;
};

/* Makes the region an empty database, durably. What it held is gone then, whatever it was; a power
 * cut before leaves it as it was. Nobody may have it open. */
int plx_region_blank(const struct plx_region *region, struct plx_fault *fault);

/* ---- For sqlite.c ------------------------------------------------------------------------ */

#define PLX_REGION_FILE "registry" /* what SQLite is to open there */
#define PLX_REGION_STAMP 8         /* bytes reserved at the end of each page */

/* A region as SQLite's file system: one for each connection, under a name of its own. */
struct plx_region_vfs;

/* volume: for messages. Copies the region. */
int plx_region_vfs_new(const struct plx_region *region, const char *volume,
                       struct plx_region_vfs **ret_vfs, struct plx_fault *fault);
void plx_region_vfs_free(struct plx_region_vfs *vfs); /* NULL is fine */
const char *plx_region_vfs_name(const struct plx_region_vfs *vfs);
/* How many pages the database can have, as the last lock found it; its journal has room for all of
 * them. */
uint32_t plx_region_vfs_pages(const struct plx_region_vfs *vfs);
/* What went wrong below SQLite since the last call; code 0: nothing. */
struct plx_fault plx_region_vfs_fault(struct plx_region_vfs *vfs);
/* Meanwhile damaged pages may be read, to be replaced. They stay damaged if they are not. */
void plx_region_vfs_salvage(struct plx_region_vfs *vfs, bool salvage);

#endif
