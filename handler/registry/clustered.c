/* clustered.c - see clustered.h.
 *
 * CLUSTERED-1  The bit CLUSTER in volume 0's superblock says where a store's registry lies. With
 *     the bit, the rows on the nodes count, and the database in the store counts for nothing.
 *     Without it, the database in the store counts, and rows of the store on nodes count for
 *     nothing. One write of a superblock slot moves a store from one to the other.
 * CLUSTERED-2  The nodes are believed only if they are of the cluster that the superblock names, in
 *     the same line, and have a row of this copy of the store. Another line says that the cluster's
 *     registry was restored from a backup: it may have lost writes. A call may be answered by
 *     another node than the one before, so each node is asked that first (RQLITE-14).
 * CLUSTERED-3  A row that is 'arriving' is complete where the superblock has the bit. Whoever opens
 *     the store to write finishes what was cut off there. A row that is 'leaving' stays so, because
 *     who makes it leave may be alive: the schema refuses new instances (0009_cluster.sql).
 * Crash story: changing the state of a row is one transaction. Nothing else is written here.
 */
#include "registry/clustered.h"

#include <string.h>

#include "registry/clusters.h"

#define NAME_THEM "in section [registry] of " PLX_SETTINGS_FILE " (FILES in parallax(8))"

int plx_clustered_nodes(const struct plx_settings *settings, const char *who,
                        struct plx_registry **ret_reg, struct plx_fault *fault)
{
    struct plx_settings_nodes named = {.nodes = {.count = 0}};

    if (settings)
        plx_settings_nodes(settings, &named);
    if (!named.nodes.count)
        return plx_fault_set(fault, PLX_ERR_UNSUPPORTED,
                             "no nodes of a cluster are named here: name them " NAME_THEM);
    return plx_registry_open_rqlite(&named.nodes, who, ret_reg, fault);
}

int plx_clustered_check(const struct plx_superblock_info *super,
                        const struct plx_settings *settings, struct plx_fault *fault)
{
    char uuid[PLX_UUID_TEXT];

    if (settings && settings->node[0][0])
        return 0;
    plx_uuid_text(&super->cluster.id, uuid);
    return plx_fault_set(fault, PLX_ERR_UNSUPPORTED,
                         "store %s belongs to cluster %s, whose nodes are not named here: name "
                         "them " NAME_THEM,
                         super->store_name, uuid);
}

/* CLUSTERED-2 */
static int check_cluster(struct plx_registry *reg, const struct plx_superblock_info *super,
                         struct plx_fault *fault)
{
    struct plx_registry_cluster cluster;
    char uuid[PLX_UUID_TEXT];
    int error = plx_registry_cluster_get(reg, &cluster);

    plx_uuid_text(&super->cluster.id, uuid);
    if (error == PLX_ERR_NOT_FOUND)
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "store %s belongs to cluster %s, and the nodes that are named here "
                             "are no cluster's yet; name those of that cluster, or if they have "
                             "lost everything, 'parallax store rebuild-registry --volume PATH "
                             "--registry-lost' makes a registry from the store",
                             super->store_name, uuid);
    if (error)
        return plx_registry_fault(reg, error, fault);
    if (strcmp(cluster.uuid, uuid) != 0)
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "store %s belongs to cluster %s, and the nodes that are named here "
                             "are those of cluster %s: name those of the first",
                             super->store_name, uuid, cluster.uuid);
    plx_registry_cluster_pin(reg, &cluster); /* CLUSTERED-2 */
    return cluster.line == super->cluster.line
               ? 0
               : plx_fault_set(
                     fault, PLX_ERR_DOUBT,
                     "the registry of cluster %s was restored since store %s was opened "
                     "last, and may lack what was written since; 'parallax store "
                     "rebuild-registry --volume PATH --registry-lost' makes one from the store",
                     uuid, super->store_name);
}

/* CLUSTERS-4 */
static int check_host(struct plx_registry *reg, const struct plx_clustered *options,
                      const struct plx_registry_store *row, struct plx_fault *fault)
{
    int error;

    if (!options->host || !*options->host || strcmp(row->host, options->host) == 0)
        return 0; /* a host without an id only reads */
    if (row->host[0] && !options->takes)
        return plx_fault_set(fault, PLX_ERR_BUSY,
                             "by the nodes of its cluster, host %s has store %s: if that host is "
                             "off, 'parallax store take-over' with --from takes it; if this is a "
                             "copy, 'parallax store import --new-identity' and then 'parallax "
                             "store rebuild-registry --registry-lost' make it a store of its own",
                             row->host, options->super->store_name);
    if (!options->writes)
        return 0;
    error = plx_registry_store_have(reg, row->id, options->host, options->takes);
    return error ? plx_registry_fault(reg, error, fault) : 0;
}

/* CLUSTERED-2, CLUSTERED-3 */
static int check_row(struct plx_registry *reg, const struct plx_clustered *options,
                     struct plx_fault *fault)
{
    const struct plx_superblock_info *super = options->super;
    struct plx_registry_store row;
    char uuid[PLX_UUID_TEXT], identity[PLX_UUID_TEXT];
    int error;

    plx_uuid_text(&super->store, uuid);
    plx_uuid_text(&super->identity, identity);
    error = plx_registry_store_get(reg, uuid, &row);
    if (error == PLX_ERR_NOT_FOUND)
        return plx_fault_set(
            fault, PLX_ERR_CORRUPT,
            "store %s belongs to this cluster, and its nodes know nothing of it; "
            "'parallax store rebuild-registry --volume PATH --registry-lost' makes a registry "
            "from the store",
            super->store_name);
    if (error)
        return plx_registry_fault(reg, error, fault);
    if (strcmp(row.identity, identity) != 0)
        return plx_fault_set(
            fault, PLX_ERR_INVALID,
            "this is copy %s of store %s, and the cluster has copy %s of it; "
            "'parallax store rebuild-registry --volume PATH --registry-lost' gives this copy a "
            "registry of its own",
            identity, super->store_name, row.identity);
    error = check_host(reg, options, &row, fault);
    if (error || !options->writes || row.state != PLX_STORE_ARRIVING)
        return error;
    error = plx_registry_store_move(reg, row.id, PLX_STORE_ARRIVING, PLX_STORE_NORMAL);
    if (error == PLX_ERR_BUSY) /* somebody else has finished it, or makes it leave */
        error = 0;
    return error ? plx_registry_fault(reg, error, fault) : 0;
}

int plx_clustered_open(const struct plx_clustered *options, struct plx_registry **ret_reg,
                       struct plx_fault *fault)
{
    struct plx_registry *reg;
    int error = plx_clustered_check(options->super, options->settings, fault);

    if (!error)
        error = plx_clustered_nodes(options->settings, options->who, &reg, fault);
    if (error)
        return error;
    error = check_cluster(reg, options->super, fault);
    if (!error)
        error = check_row(reg, options, fault);
    if (error)
        plx_registry_close(reg);
    else
        *ret_reg = reg;
    return error;
}
