/* bytelock.h - locks on bytes of a volume, far beyond its end.
 *
 * An owner is an open file description (OFD locks), so that no close() of another descriptor of
 * the volume drops what is held, and a death of any kind drops all of it. Whoever can open a volume
 * can lock it, and a copy of the volume has locks of its own.
 *
 * Caveats: one host only. Device nodes of one name space: another node of the same device, or
 * another portal of the same LUN, has other locks. One thread at a time for each owner.
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

struct plx_bytelock_ops { /* tests have their own */
    /* 0, BUSY (somebody else has it) or SYSTEM. Never waits. Changing SHARED to EXCLUSIVE and back
     * is one step; when it fails, what was held before is still held. */
    int (*set)(struct plx_bytelock *lock, uint64_t byte, enum plx_bytelock_mode mode);
    /* Whether another owner has it, in any mode. */
    int (*probe)(struct plx_bytelock *lock, uint64_t byte, bool *ret_busy);
    void (*close)(struct plx_bytelock *lock); /* drops all */
};

struct plx_bytelock {
    const struct plx_bytelock_ops *ops;
    uint64_t device, inode; /* of the file that is locked */
};

/* name: as for plx_device_open(). A file or device is locked itself; one that may only be read can
 * be locked SHARED only (EXCLUSIVE is SYSTEM then). For an iscsi:// URL it is a file named by
 * portal, target and LUN below /run/parallax, or a directory of this user's own. */
int plx_bytelock_open(const char *name, struct plx_bytelock **ret_lock, struct plx_fault *fault);
void plx_bytelock_close(struct plx_bytelock *lock); /* NULL is fine */
/* Whether locks of one are seen through the other, whatever their names. NULL: no. Whether they
 * keep the same bytes is another question (storage.h). */
bool plx_bytelock_same(const struct plx_bytelock *one, const struct plx_bytelock *other);

bool plx_bytelock_is_lun(const char *name);
/* What tells a LUN of an iscsi:// URL, as the name of a file. */
int plx_bytelock_lun_name(const char *url, char ret_name[NAME_MAX + 1], struct plx_fault *fault);

/* The bytes. */
#define PLX_BYTE_SQLITE ((uint64_t)0)         /* and the two that follow (region.c) */
#define PLX_BYTE_OPENING ((uint64_t)8)        /* recognising and migrating the registry */
#define PLX_BYTE_SUPER ((uint64_t)9)          /* of volume 0: writing superblocks of the store */
#define PLX_BYTE_HOME ((uint64_t)10)          /* writing the home page's counter */
#define PLX_BYTE_USED ((uint64_t)11)          /* shared by who has the volume open */
#define PLX_BYTE_OPEN ((uint64_t)12)          /* shared by who has the store open for writing */
#define PLX_BYTE_RECOVERY ((uint64_t)13)      /* recovering what dead instances had */
#define PLX_BYTE_READING ((uint64_t)14)       /* shared by who reads instants without a hold */
#define PLX_BYTE_INSTANCE ((uint64_t)1 << 48) /* plus the low 48 bits of the instance's id */

#endif
