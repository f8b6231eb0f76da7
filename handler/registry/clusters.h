/* clusters.h - which cluster a registry is of, and on which way a store's rows are (clusters.c).
 *
 * The registry of a cluster has rows of several stores, on rqlite nodes. A store's own registry is
 * of no cluster. Life of a store's row:
 *
 *   none       plx_registry_carry() begins (carry.h)
 *   arriving   all rows have come, and the store's superblock says that they count: store_move()
 *   normal     the store can be opened; nobody has it open any more: store_move()
 *   leaving    back to normal by store_move(), or gone by plx_registry_drop()
 *
 * Results and threads as for registry.h.
 */
#ifndef PLX_CLUSTERS_H
#define PLX_CLUSTERS_H

#include "registry/registry.h"

struct plx_registry_cluster {
    char uuid[PLX_UUID_TEXT];
    uint64_t line; /* random, not 0: new whenever the cluster's registry was restored */
    uint64_t created_ns;
};

/* NOT_FOUND: the registry is of no cluster. */
int plx_registry_cluster_get(struct plx_registry *reg, struct plx_registry_cluster *ret_cluster);
/* Makes the registry that of this cluster if it is of none. *ret_cluster is which one it is of
 * afterwards: the caller compares. Repeating it changes nothing. */
int plx_registry_cluster_found(struct plx_registry *reg, const char *uuid, uint64_t line,
                               struct plx_registry_cluster *ret_cluster);

/* From now on answers count only if they are of nodes of this cluster: an address may lead to a
 * node of another one, or to one that lost all it had and began anew. */
void plx_registry_cluster_pin(struct plx_registry *reg, const struct plx_registry_cluster *cluster);

/* From one state of a store's row to another. BUSY: the row's state is not `from`; or it should
 * leave, and an instance has the store open. INVALID: there is no such way. */
int plx_registry_store_move(struct plx_registry *reg, int64_t store, enum plx_registry_state from,
                            enum plx_registry_state to);
/* The word for a state, as in the schema; and back: UNKNOWN for any other word. */
const char *plx_registry_state_word(enum plx_registry_state state);
enum plx_registry_state plx_registry_state_of(const char *word);

/* CLUSTERS-4. This host has the store from now on; take: whoever had it. BUSY: another one has it.
 */
int plx_registry_store_have(struct plx_registry *reg, int64_t store, const char *host, bool take);
/* No host has it, if this one had. */
int plx_registry_store_let_go(struct plx_registry *reg, int64_t store, const char *host);
/* Makes the rows 'leaving', whoever had the store open by them, so that plx_registry_drop() removes
 * them: of a store whose superblock names no cluster, by the operator's word. */
int plx_registry_store_abandon(struct plx_registry *reg, int64_t store);

#endif
