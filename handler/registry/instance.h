/* instance.h - proof that a process of this host is alive, or dead.
 *
 * Every instance holds a flock() on RUN/instances/<id>. The kernel drops it when the process is
 * gone, and only then: the descriptors of a process are closed after its memory map, whose end
 * waits for its asynchronous I/O (io_submit). So once the lock is free, nothing that the process
 * had submitted to a block device or file can still arrive there. For a volume reached over the
 * network (iscsi://) that is not proven by this alone: its target may still hold commands.
 */
#ifndef PLX_INSTANCE_H
#define PLX_INSTANCE_H

#include "registry/paths.h"

struct plx_instance {
    struct plx_registry_instance row; /* to be registered; the caller sets store */
    int fd;
};

/* Makes and locks the file; row is filled in for this process. Not across fork(): a child shares
 * the lock until it exits or calls exec. */
int plx_instance_create(const struct plx_paths *paths, const char *role,
                        struct plx_instance *ret_instance, struct plx_fault *fault);
/* Gives the lock up; this process must do no more I/O for it. The file goes too when the instance
 * was unregistered; else it stays as the proof of death for who takes its locks over. */
void plx_instance_close(const struct plx_paths *paths, struct plx_instance *instance,
                        bool unregistered);

/* Whether the instance is proven dead. Never true of another host's (INV-5), nor while there is
 * any doubt; fault then says why not. */
bool plx_instance_is_dead(const struct plx_paths *paths, const struct plx_registry_instance *row,
                          struct plx_fault *fault);
/* Removes the file of an instance that is dead and was unregistered. */
void plx_instance_bury(const struct plx_paths *paths, const struct plx_registry_instance *row);

#endif
