/* bytelock.h - locks on bytes of a volume, far beyond its end: between processes of one host.
 *
 * Each byte is a lock of its own, with the meaning given by the PLX_BYTE_* numbers below. Locks are
 * OFD locks: their owner is an open file description. So closing another descriptor of the volume
 * drops nothing, and the death of a process, however it dies, drops all its locks. Whoever can open
 * a volume can lock it. A copy of a volume has locks of its own.
 *
 *   plx_bytelock_open(name)  then  lock->ops->set(lock, PLX_BYTE_..., mode)  and  ->probe()
 *   plx_bytelock_close(lock) drops what it holds
 *
 * Caveats: locks are seen on one host only. Another device node of the same device, or another
 * portal of the same LUN, has other locks. One thread at a time for each owner.
 */
#ifndef PLX_BYTELOCK_H
#define PLX_BYTELOCK_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/base/error.h"

struct plx_bytelock;

enum plx_bytelock_mode {
    PLX_BYTE_UNLOCKED,
    PLX_BYTE_SHARED,
    PLX_BYTE_EXCLUSIVE,
};

struct plx_bytelock_ops { /* tests bring their own */
    /* Returns 0, BUSY (another owner has the byte) or SYSTEM, and never waits. A change between
     * SHARED and EXCLUSIVE is one step; if it fails, the mode held before is still held. */
    int (*set)(struct plx_bytelock *lock, uint64_t byte, enum plx_bytelock_mode mode);
    /* Whether another owner has the byte, in any mode. */
    int (*probe)(struct plx_bytelock *lock, uint64_t byte, bool *ret_busy);
    void (*close)(struct plx_bytelock *lock); /* drops all locks of this owner */
};

struct plx_bytelock {
    const struct plx_bytelock_ops *ops;
    uint64_t device, inode; /* of the file that is locked */
};

/* name: as for plx_device_open(). A file or device is locked itself; one that this process can only
 * read can be locked SHARED only (EXCLUSIVE is SYSTEM). An iscsi:// URL is represented by a lock
 * file, named by portal, target and LUN, below /run/parallax or in a directory of this user. */
int plx_bytelock_open(const char *name, struct plx_bytelock **ret_lock, struct plx_fault *fault);
void plx_bytelock_close(struct plx_bytelock *lock); /* NULL is fine */
/* Whether locks taken through one are seen through the other, whatever names they were opened by.
 * NULL: no. Whether both volumes keep the same bytes is another question (storage.h). */
bool plx_bytelock_same(const struct plx_bytelock *one, const struct plx_bytelock *other);

bool plx_bytelock_is_lun(const char *name);
/* The name of the lock file that represents the LUN of an iscsi:// URL. */
int plx_bytelock_lun_name(const char *url, char ret_name[NAME_MAX + 1], struct plx_fault *fault);

/* Which byte stands for what. */
#define PLX_BYTE_SQLITE ((uint64_t)0)         /* SQLite's, with the next two bytes (region.c) */
#define PLX_BYTE_OPENING ((uint64_t)8)        /* recognising and migrating the registry */
#define PLX_BYTE_SUPER ((uint64_t)9)          /* volume 0: writing the store's superblocks */
#define PLX_BYTE_HOME ((uint64_t)10)          /* writing the home page (TENANCY-1) */
#define PLX_BYTE_USED ((uint64_t)11)          /* shared by all that have the volume open */
#define PLX_BYTE_OPEN ((uint64_t)12)          /* shared by all that have the store open to write */
#define PLX_BYTE_RECOVERY ((uint64_t)13)      /* recovering disks and extents of dead instances */
#define PLX_BYTE_READING ((uint64_t)14)       /* shared by readers of instants without a hold */
#define PLX_BYTE_RING ((uint64_t)15)          /* a ring's member: writing to the ring (ring.h) */
#define PLX_BYTE_INSTANCE ((uint64_t)1 << 48) /* plus 48 low bits of an instance's id: it lives */

#endif
