/* service.h - the thread of an open store that lets snapshots go, as each disk's policy says.
 *
 * Every few seconds it applies the tiers (registry/retention.h) to the disks that are open for
 * writing and protected, a slice of history at a time. When the store is nearly full it shortens
 * their windows, oldest snapshots first, unless a disk's policy says otherwise. The same thread
 * looks at soft limits (limits.h).
 */
#ifndef PLX_SERVICE_H
#define PLX_SERVICE_H

#include <stdbool.h>

#include "engine/base/error.h"

struct plx_store_home;
struct plx_service;

/* The home is open, and stays so until plx_retention_stop() has returned. */
int plx_retention_start(struct plx_store_home *home, struct plx_service **ret_service,
                        struct plx_fault *fault);
/* After the slice at hand. Not with luns_lock or attach_lock held. NULL is fine. */
void plx_retention_stop(struct plx_service *service);
/* A write has found no room: history gives way now, and plx_store_room_made() follows. false: there
 * is no service yet. Any thread, also from within the loop; while a disk is open. */
bool plx_retention_wake(struct plx_store_home *home);

#endif
