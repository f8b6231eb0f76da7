/* region.h - the registry's SQLite database in a part of a volume.
 *
 * A region is a list of spans of one device. The first half of each span holds database pages, the
 * second half holds the rollback journal. Each part is the concatenation of its halves in the order
 * of the spans, so a region grows by appending a span and no page moves:
 *
 *   span 0                 span 1
 *   [ pages  | journal ]   [ pages  | journal ]     database = pages of span 0, then of span 1
 *
 * Two levels of callers:
 * - embedded.c finds the region, fills in struct plx_region and opens the registry in it (sql.h).
 *   plx_region_blank() makes an empty one.
 * - sqlite*.c give the region to SQLite as a file system: plx_region_vfs_new(), then
 *   sqlite3_open_v2(PLX_REGION_FILE, ..., plx_region_vfs_name()), at the end _vfs_free().
 *
 * Units: offsets and lengths are bytes, multiples of 4 KiB; a page is 4 KiB. SQLite's locks are
 * locks on bytes of the volume (device/bytelock.h). Rules and crash story: region.c.
 * Threads: each connection is used by one thread at a time.
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
#define PLX_REGION_UNIT 8192u /* a span's length is a multiple of this: one block for each half */

struct plx_region {
    /* Both belong to this connection alone. Neither is closed with the file system. */
    struct plx_device *device;
    struct plx_bytelock *locks;
    unsigned spans;
    struct {
        uint64_t offset, bytes;
    } span[PLX_REGION_SPANS];
    /* Nothing may be written. If a crash left a journal to be rolled back, the registry cannot be
     * read at all in this mode. */
    bool read_only;
    /* A registry was made here, so an empty one is damage (REGION-4). False: whoever opens it for
     * writing makes one where it is empty. */
    bool made;
    /* The store's feature bits that a writer must understand and this program does not. */
    uint64_t unknown;
    /* How long to wait for other processes that hold SQLite's locks, until this connection makes
     * its first change. NULL, and after the first change: the fixed limit of SQLITE-8. */
    const struct plx_patience *patience;
    /* The permission to write, given by the tenancy (REGION-7). The file system asks three times:
     * when a transaction takes its write lock, before its journal goes to the device, and before
     * the transaction of a dead process is rolled back. When the answer is false, with a fault, the
     * change fails with that fault and nothing has changed. NULL: always allowed. */
    bool (*may_write)(void *context, struct plx_fault *fault);
    void *context;
    /* Called after each SHARED lock. It writes the present spans into the region, of which there
     * may be more than before, and the device's size, which may have grown (REGION-9). NULL: the
     * region never changes. */
    bool outdated; /* for look: the superblock may say that the region counts for nothing */
    int (*look)(struct plx_region *region, struct plx_fault *fault);
    /* Set to true when a call fails because the contents are certainly damaged or are no registry,
     * as opposed to unreadable. NULL: nobody asks. */
    bool *damaged;
};

/* Makes the region an empty database, durably, whatever it held. A power cut before the call
 * returns leaves either the old contents or an empty database. Nobody may have the region open. */
int plx_region_blank(const struct plx_region *region, struct plx_fault *fault);

/* ---- For sqlite.c ------------------------------------------------------------------------ */

#define PLX_REGION_FILE "registry" /* the only database name that the file system knows */
#define PLX_REGION_STAMP 8         /* bytes reserved at the end of each page: REGION-2 */

/* An SQLite file system (VFS) over one region. Each connection has one, with a name of its own. */
struct plx_region_vfs;

/* Copies the region. volume is a name for messages. */
int plx_region_vfs_new(const struct plx_region *region, const char *volume,
                       struct plx_region_vfs **ret_vfs, struct plx_fault *fault);
void plx_region_vfs_free(struct plx_region_vfs *vfs); /* NULL is fine */
const char *plx_region_vfs_name(const struct plx_region_vfs *vfs);
/* How many pages the database can have, as of the last SHARED lock. The journal has room for a copy
 * of each (REGION-6). */
uint32_t plx_region_vfs_pages(const struct plx_region_vfs *vfs);
/* Returns and clears the last fault below SQLite. Code 0: there was none. */
struct plx_fault plx_region_vfs_fault(struct plx_region_vfs *vfs);
/* While salvage is on, damaged pages other than page 1 can be read, so that a transaction can
 * replace them. A page that is not replaced stays damaged (REGION-8). */
void plx_region_vfs_salvage(struct plx_region_vfs *vfs, bool salvage);

#endif
