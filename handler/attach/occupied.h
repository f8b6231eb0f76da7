/* occupied.h - whether a device may be overwritten: whose store's volume it is, or which ring's
 * member, and who uses that.
 *
 * Asked before a device becomes a volume of another store, or a ring's member. Threads: any.
 * Errors: the text names the device, the store and the next step.
 */
#ifndef PLX_OCCUPIED_H
#define PLX_OCCUPIED_H

#include "engine/engine.h"
#include "registry/paths.h"

/* EXISTS, with its disks named: one of the devices is a volume of a store that is known here,
 * whatever is left on it. EXISTS, too: one is a member of a ring of this host, or of a ring that
 * may hold what a store lacks. BUSY: of a store that a host has, or nobody can tell that from these
 * devices. unused: the operator's word that nobody uses such a store. */
int plx_occupied_refuse(const struct plx_paths *paths, struct plx_device *const *devices,
                        unsigned count, bool unused, const struct plx_patience *patience,
                        struct plx_fault *fault);
/* The same by its place alone: EXISTS, a volume of a known store lies there, or a member of a ring
 * of this host. but: the identity of the store that the device belongs to by its superblock. */
int plx_occupied_refuse_place(const struct plx_paths *paths, struct plx_device *device,
                              const char *but, struct plx_fault *fault);
/* EXISTS: there is an empty ring, or data far behind the beginning, at one of many places that are
 * looked at. What plx_store_format() refuses by itself is found at the beginning and at the end. */
int plx_occupied_refuse_data(const struct plx_paths *paths, struct plx_device *device,
                             struct plx_fault *fault);
/* The error of opening a volume for oneself. BUSY: says who has its store open; only volume 0 of a
 * store tells. */
int plx_occupied_name_living(const char *volume, int error, struct plx_fault *fault);
/* Whether a store that was founded has no home page any more: nobody knows which host has it. */
bool plx_occupied_lost_home(const struct plx_paths *paths, const char *volume, const char *uuid);

#endif
