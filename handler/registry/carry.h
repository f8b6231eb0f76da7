/* carry.h - a store's rows go from one open registry to another: from the store's own to the nodes
 * of a cluster, and back (carry.c).
 *
 * The caller sees to it that nobody else uses the store meanwhile, and says by the superblock which
 * of the two registries counts. The rows that arrive are those of a store in state `arriving`,
 * which nobody can open. Its number is another one there.
 *
 *   carried                         not carried, and why
 *   the store, with its doubt       instances, holds, and the owners of disks and extents: they
 *   volumes with their ranges         are of processes, and none is there
 *   store_policies, policies        growth: a growth is finished before, else the store is refused
 *   collections, garbage            hosts: each instance enters its own
 *   extents, vdis, labels, lost     events: they do not say of which store they are; each registry
 *   intents: they are leftovers       keeps those of what happened in it
 *     (HOLDS-8), and a disk is      request_id: the number of a call that has ended
 *     settled by them               migrations, cluster, room, guard, requests: the registry's own
 *
 * A store's own registry has old rows of it when it comes back from a cluster, and they are not
 * replaced row by row: carry into a new file, then plx_registry_put() it, as one transaction.
 *
 * The registries may be of any driver. What nodes answer is not believed: it is checked in form,
 * enters only through the target's own CHECKs, and is read again in the end.
 * Threads: as registry.h.
 */
#ifndef PLX_CARRY_H
#define PLX_CARRY_H

#include "registry/clusters.h"

/* Copies all rows of the store with this UUID, compares the copy with what it was made from, and
 * puts it into the state: ARRIVING or NORMAL. identity: of the copy of the store, 36 characters;
 * NULL in a store's own registry. Rows that an earlier call for the same identity has left are
 * deleted first. It may take minutes, in memory of a bounded size. After a failure the target may
 * have a part, as `arriving`: repeat the call, or drop it.
 *
 * NOT_FOUND: `from` has no such store. BUSY: it is not complete there, somebody has it open, or
 * something of it is unfinished; the text says who or what. EXISTS: the target has such a store
 * that is not `arriving` or has another identity, or the name, a volume or a disk is another
 * store's there. NOSPACE: the target is full. REGISTRY: the copy is not the same. */
int plx_registry_carry(struct plx_registry *from, struct plx_registry *to, const char *uuid,
                       const char *identity, enum plx_registry_state state,
                       struct plx_fault *fault);
/* Deletes all rows of a store that is `arriving` or `leaving` and has this identity. A store that
 * is not there is no error. BUSY: it is normal, has another identity, or an instance is registered;
 * nothing was changed then. */
int plx_registry_drop(struct plx_registry *reg, const char *uuid, const char *identity,
                      struct plx_fault *fault);

#endif
