/* instance.h - proves that a process of this machine is alive, or dead.
 *
 * An instance is one opening of a store by one process; it has a random number. While it lives it
 * holds an exclusive lock on a byte of volume 0 that its number names (device/bytelock.h), through
 * a file description of its own. The kernel releases the lock when the process is gone, and only
 * then. It closes a process's descriptors after its memory map, and the end of that waits for the
 * process's asynchronous I/O (io_submit). So once the byte can be locked, no request of the dead
 * process to a block device or file is still in flight. A volume reached over the network
 * (iscsi://) is different: its target may still hold commands.
 *
 * Locks are seen only through the same inode of the same boot. A tenancy (tenancy.h) makes sure of
 * that, and that no other machine has the store. So only the holder of a tenancy may ask who is
 * dead.
 *
 * Life of an instance: plx_instance_create(), then its row enters the registry
 * (plx_registry_instance_register()); at the end the row is removed, then plx_instance_close().
 * After a crash the row is left and the byte is free: the next process takes over what it owned.
 */
#ifndef PLX_INSTANCE_H
#define PLX_INSTANCE_H

#include "device/bytelock.h"
#include "registry/paths.h"

struct plx_instance {
    struct plx_registry_instance row; /* to be registered by the caller, who sets row.store */
    struct plx_bytelock *locks;       /* holds the instance's byte */
};

/* Chooses a number whose byte no process of this machine has locked, and locks that byte. volume:
 * volume 0's path. Do not fork() while an instance is open: the child shares the lock until it
 * exits or calls exec. */
int plx_instance_create(const struct plx_paths *paths, const char *volume, const char *role,
                        struct plx_instance *ret_instance, struct plx_fault *fault);
/* Releases the lock. The process must do no more I/O for this instance. The caller has removed the
 * row before; a row that is left is from now on that of a dead instance. */
void plx_instance_close(struct plx_instance *instance);

/* Whether the instance is proven dead: its row names another boot (the caller's tenancy says that
 * no other boot has the store), or its byte is free. The caller holds a tenancy and does not ask
 * about its own instance. Returns false in any doubt, with the reason in *fault.
 * The row was read earlier, so its instance may meanwhile have ended in order. Only a row that is
 * still registered after this call belongs to a dead instance (INSTANCE-3). */
bool plx_instance_is_dead(const struct plx_paths *paths, struct plx_bytelock *locks,
                          const struct plx_registry_instance *row, struct plx_fault *fault);

/* Whether its byte is locked now, as far as this inode shows; for display only. */
bool plx_instance_is_seen(struct plx_bytelock *locks, const struct plx_registry_instance *row);

/* What an instance of this role is, in a sentence for people. */
const char *plx_instance_kind(const char *role);

/* Whether the instance is an admin command of this host, which ends soon, unlike a handler. */
bool plx_instance_is_command(const struct plx_paths *paths,
                             const struct plx_registry_instance *row);

#endif
