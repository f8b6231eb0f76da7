/* clustering.h - a store joins a cluster, and leaves it: its registry moves from the store to the
 * cluster's nodes, and back (registry/clustered.h).
 *
 * The store is known on this host, and nobody has it open: BUSY otherwise. What dead processes have
 * left is recovered first. A call that was cut off is repeated; until the superblock's write, the
 * registry lies where it lay before. Threads: any.
 */
#ifndef PLX_CLUSTERING_H
#define PLX_CLUSTERING_H

#include "device/patience.h"
#include "registry/clusters.h"

struct plx_clustering {
    const char *state_dir; /* as in plx_paths_init() */
    const char *store;
    bool unused; /* joining: the operator's word that nobody uses what the nodes have of it */
    const struct plx_patience *patience;
    /* Called when all is done that counts, and something could not be cleared up. */
    void (*left)(void *context, const char *text);
    void *context;
};

/* EXISTS: the store is in the cluster already, and nothing was left to be finished. UNCONFIRMED:
 * see clear_nodes(). DOUBT: the store is in doubt. */
int plx_clustering_join(const struct plx_clustering *options,
                        struct plx_registry_cluster *ret_cluster, struct plx_fault *fault);
/* NOT_FOUND: the store is in no cluster, and nothing was left of it on the nodes. */
int plx_clustering_leave(const struct plx_clustering *options, struct plx_fault *fault);

#endif
