/* instance.h - proof that a process of this machine is alive, or dead.
 *
 * Every instance holds an exclusive lock on a byte of the store's volume 0 that its number names
 * (device/bytelock.h), on a file description of its own. The kernel drops the lock when the process
 * is gone, and only then: the descriptors of a process are closed after its memory map, whose end
 * waits for its asynchronous I/O (io_submit). So once the byte can be locked, nothing that the
 * process had submitted to a block device or file can still arrive there. For a volume reached over
 * the network (iscsi://) that is not proven by this alone: its target may still hold commands.
 *
 * The lock is seen by those who come through the same inode of the same running machine. That this
 * is so, and that no other machine has the store, is what a tenancy says (tenancy.h): only who has
 * one may ask who is dead.
 */
#ifndef PLX_INSTANCE_H
#define PLX_INSTANCE_H

#include "device/bytelock.h"
#include "registry/paths.h"

struct plx_instance {
    struct plx_registry_instance row; /* to be registered; the caller sets store */
    struct plx_bytelock *locks;       /* its own */
};

/* Chooses a number that nobody of this machine has, and locks it. volume: volume 0's path. Not
 * across fork(): a child shares the lock until it exits or calls exec. */
int plx_instance_create(const struct plx_paths *paths, const char *volume, const char *role,
                        struct plx_instance *ret_instance, struct plx_fault *fault);
/* Gives the lock up; this process must do no more I/O for it. Its row is gone by then, or is to be
 * taken for a dead one's. */
void plx_instance_close(struct plx_instance *instance);

/* Whether the instance is proven dead: it belongs to another boot than this one, whose tenancy has
 * ended, or its byte is free. The caller has a tenancy, and it is not the caller's own instance.
 * Never true while there is any doubt; fault then says why not. A row that was read before may be
 * of one that has ended since, as it should: one that is still registered after this has died. */
bool plx_instance_is_dead(const struct plx_paths *paths, struct plx_bytelock *locks,
                          const struct plx_registry_instance *row, struct plx_fault *fault);

/* Whether somebody has its byte now, as far as this inode of the volume shows; for people. */
bool plx_instance_is_seen(struct plx_bytelock *locks, const struct plx_registry_instance *row);

/* Whether it is a command of this host: short-lived, unlike a handler. */
bool plx_instance_is_command(const struct plx_paths *paths,
                             const struct plx_registry_instance *row);

#endif
