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

struct plx_clustered {
    const struct plx_superblock_info *super; /* names a cluster */
    const struct plx_settings *settings;
    const char *who;
    bool writes; /* the store is about to be opened for writing */
    const char
        *host;  /* this host's id, to which the rows must belong (CLUSTERS-4); NULL: whoever's */
    bool takes; /* by the operator's word they are this host's from now on */
};

/* Opens the registry of a store. UNSUPPORTED: the configuration names no nodes. INVALID: they are
 * another cluster's, or have another copy of this store. BUSY: the rows are another host's. DOUBT:
 * the cluster's registry was restored since. */
int plx_clustered_open(const struct plx_clustered *options, struct plx_registry **ret_reg,
                       struct plx_fault *fault);

#endif
