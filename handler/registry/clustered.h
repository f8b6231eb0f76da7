/* clustered.h - the registry of a store that belongs to a cluster: on rqlite nodes, reached with
 * what this host's configuration file says (settings.h). For embedded.c, and for what moves a store
 * into a cluster or out of it (attach/cluster.c).
 *
 * Threads: the caller's.
 */
#ifndef PLX_CLUSTERED_H
#define PLX_CLUSTERED_H

#include "engine/engine.h"
#include "registry/registry.h"
#include "registry/settings.h"

/* Opens the registry on the nodes, whichever cluster's it is. settings NULL, or one that names no
 * nodes: UNSUPPORTED. */
int plx_clustered_nodes(const struct plx_settings *settings, const char *who,
                        struct plx_registry **ret_reg, struct plx_fault *fault);

/* Whether the configuration names nodes for the store with this superblock, which names a cluster.
 * Nobody is asked. */
int plx_clustered_check(const struct plx_superblock_info *super,
                        const struct plx_settings *settings, struct plx_fault *fault);

/* Opens the registry of the store with this superblock, which names a cluster. UNSUPPORTED: the
 * configuration names no nodes. INVALID: they are another cluster's, or have another copy of this
 * store. DOUBT: the cluster's registry was restored since. writes: the store is about to be opened
 * for writing. */
int plx_clustered_open(const struct plx_superblock_info *super, const struct plx_settings *settings,
                       const char *who, bool writes, struct plx_registry **ret_reg,
                       struct plx_fault *fault);

#endif
