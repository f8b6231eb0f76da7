/* clustering.c - see clustering.h.
 *
 * CLUSTERING-1  Whoever moves a registry has the volumes open exclusively, from before it reads the
 *     first row until the superblock says where the registry lies now. So no instance lives whose
 *     rows could change, and none begins on this host. Other hosts cannot have the store
 *     (TENANCY-3).
 * CLUSTERING-2  A process that opened the old registry before, and opens the volumes afterwards,
 *     must not go on with it:
 *         the old one is in the store   it meets the bit with the next lock (EMBEDDED-2)
 *         the old one is on the nodes   its instance is refused: the store's row is 'leaving', or
 *                                       gone, or another one (0009_cluster.sql)
 * CLUSTERING-3  Steps, and what a crash afterwards leaves:
 *
 *       joining                                     | then the registry lies | the same call
 *       1 rows on the nodes, 'arriving'; compared   | in the store           | begins again (CARRY)
 *       2 superblock with the bit, cluster and line | on the nodes           | finishes
 *       3 the row is 'normal'                       | on the nodes           | has nothing to do
 *
 *       leaving
 *       1 the row is 'leaving'                      | on the nodes           | goes on
 *       2 a blank database in the store, then rows  | on the nodes           | begins again
 *         in it; compared and checked               |                        |
 *       3 superblock without the bit                | in the store           | removes the rows
 *       4 rows on the nodes are gone                | in the store           | has nothing to do
 *
 *     Step 2 of joining and step 3 of leaving are one write of one superblock slot (GROW-2).
 *     Between steps 1 and 3 of leaving the store can be read, and "cluster init" takes it back. A
 *     call that fails in step 2 takes it back itself: the store cannot leave, and can be used.
 * CLUSTERING-4  The slot that does not count, and the spare, may be from before such a write if a
 *     crash came right behind it. Damage to the other slot would then bring the wrong registry
 *     back, whole and believed. So whoever finds the store moved already writes all copies first.
 * Threads: the caller's.
 * Crash story: the table.
 */
#include "attach/clustering.h"

#include <stdlib.h>
#include <string.h>

#include "attach/attach_inside.h"
#include "attach/founding.h"
#include "attach/occupied.h"
#include "registry/carry.h"
#include "registry/clustered.h"
#include "registry/embedded.h"

struct moving {
    const struct plx_clustering *options;
    struct plx_fault *fault;
    struct plx_paths paths;
    struct plx_known known;
    struct plx_tenancy *tenancy;
    struct plx_env env;
    struct plx_store *store; /* CLUSTERING-1 */
    struct plx_superblock_info super;
    struct plx_registry *nodes, *in_store;
};

static bool is_clustered(const struct moving *m)
{
    return !plx_uuid_is_zero(&m->super.cluster.id);
}

/* A path may name another device by now. */
static int check_same(struct moving *m)
{
    char identity[PLX_UUID_TEXT];

    plx_uuid_text(&m->super.identity, identity);
    return strcmp(identity, m->known.identity) == 0
               ? 0
               : plx_fault_set(m->fault, PLX_ERR_INVALID, "%s holds store %s (%s) now, not %s",
                               m->known.volume[0], m->super.store_name, identity, m->known.name);
}

/* CLUSTERING-1 */
static int open_store(struct moving *m)
{
    const struct plx_device_open_options open = {.exclusive = true,
                                                 .patience = m->options->patience};
    const struct plx_store_options options = {.instance = 1};
    int error = plx_founding_open(&m->known, &open, &options, &m->env, &m->store, m->fault);

    if (error)
        return plx_occupied_name_living(m->known.volume[0], error, m->fault);
    error = plx_superblock_probe(plx_store_device(m->store, 0), &m->super, m->fault);
    return error ? error : check_same(m);
}

static void end(struct moving *m)
{
    plx_registry_close(m->nodes);
    plx_registry_close(m->in_store);
    if (m->store)
        plx_store_close(m->store);
    plx_tenancy_end(m->tenancy);
    plx_known_done(&m->known);
    free(m);
}

static int begin(const struct plx_clustering *options, struct moving **ret_moving,
                 struct plx_fault *fault)
{
    struct moving *m;
    int error =
        plx_founding_recover(options->state_dir, options->store, NULL, options->patience, fault);

    if (error)
        return error;
    m = calloc(1, sizeof *m);
    if (!m)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    m->options = options;
    m->fault = fault;
    error = plx_paths_init(&m->paths, options->state_dir, fault);
    if (!error)
        error = plx_known_get(&m->paths, options->store, &m->known, fault);
    if (!error)
        error =
            plx_founding_take(&m->paths, &m->known, NULL, options->patience, &m->tenancy, fault);
    if (!error)
        error = open_store(m);
    if (error)
        end(m);
    else
        *ret_moving = m;
    return error;
}

static struct plx_embedded_options in_store(struct moving *m, const char *who)
{
    return (struct plx_embedded_options){
        .volume = m->known.volume[0],
        .uuid = m->known.uuid,
        .identity = m->known.identity,
        .who = who,
        .in_store = true,
        .beside = true, /* CLUSTERING-1 */
        .patience = m->options->patience,
    };
}

/* The store's row on the nodes, of a store that has the bit. */
static int open_nodes(struct moving *m, const char *who, struct plx_registry_store *ret_row)
{
    const struct plx_clustered options = {.super = &m->super,
                                          .settings = &m->paths.settings,
                                          .who = who,
                                          .writes = true,
                                          .host = m->paths.host};
    int error = plx_clustered_open(&options, &m->nodes, m->fault);

    if (!error)
        error = plx_registry_store_get(m->nodes, m->known.uuid, ret_row);
    return error && m->nodes ? plx_registry_fault(m->nodes, error, m->fault) : error;
}

/* ---- Joining ---- */

/* Of a store that has the bit: what a call that was cut off has left. */
static int finish_joining(struct moving *m, const char *who,
                          struct plx_registry_cluster *ret_cluster)
{
    struct plx_registry_store row;
    int error = plx_store_set_cluster(m->store, &m->super.cluster, m->fault); /* CLUSTERING-4 */

    if (!error)
        error = open_nodes(m, who, &row); /* CLUSTERED-3: it is not 'arriving' any more */
    if (!error && (error = plx_registry_cluster_get(m->nodes, ret_cluster)))
        plx_registry_fault(m->nodes, error, m->fault);
    if (error)
        return error;
    if (row.state == PLX_STORE_NORMAL)
        return plx_fault_set(m->fault, PLX_ERR_EXISTS, "store %s is in cluster %s already",
                             m->known.name, ret_cluster->uuid);
    error = plx_registry_store_move(m->nodes, row.id, row.state, PLX_STORE_NORMAL);
    return error ? plx_registry_fault(m->nodes, error, m->fault) : 0;
}

static int open_in_store(struct moving *m, const char *who)
{
    const struct plx_embedded_options options = in_store(m, who);
    struct plx_registry_store row;
    int error = plx_embedded_open(&options, &m->in_store, m->fault);

    if (error)
        return plx_attach_known_damage(&m->known, error, m->fault);
    error = plx_registry_store_get(m->in_store, m->known.uuid, &row);
    if (error == PLX_ERR_NOT_FOUND)
        return plx_attach_empty_registry(&m->known, m->fault);
    if (error)
        return plx_registry_fault(m->in_store, error, m->fault);
    return row.doubt[0] ? plx_fault_set(m->fault, PLX_ERR_DOUBT, "store %s is in doubt: %s%s",
                                        row.name, row.doubt, plx_registry_doubt_advice(&row))
                        : 0;
}

/* Rows of the store that the nodes have although its superblock names no cluster (CLUSTERED-1).
 * Those of a normal state may be another volume's, with the same identity: of one that was put
 * back, this may be the older state. So they go by the operator's word alone. */
static int clear_nodes(struct moving *m)
{
    struct plx_registry_store row;
    int error = plx_registry_store_get(m->nodes, m->known.uuid, &row);

    if (error == PLX_ERR_NOT_FOUND)
        return 0;
    if (error)
        return plx_registry_fault(m->nodes, error, m->fault);
    if (strcmp(row.identity, m->known.identity) != 0)
        return 0; /* carrying refuses it */
    if (row.state == PLX_STORE_NORMAL && !m->options->unused)
        return plx_fault_set(m->fault, PLX_ERR_UNCONFIRMED,
                             "the nodes have a registry of store %s already, though its superblock "
                             "names no cluster: the store went back to an older state, or was "
                             "rebuilt without them; when you have seen that nobody uses a newer "
                             "copy by these nodes, add --i-checked-nobody-uses-it, and their "
                             "registry of it is replaced",
                             m->known.name);
    if (row.state == PLX_STORE_NORMAL && (error = plx_registry_store_abandon(m->nodes, row.id)))
        return plx_registry_fault(m->nodes, error, m->fault);
    return plx_registry_drop(m->nodes, m->known.uuid, m->known.identity, m->fault);
}

/* CLUSTERING-3 */
static int join(struct moving *m, const char *who, struct plx_registry_cluster *ret_cluster)
{
    struct plx_registry_store row;
    struct plx_cluster cluster;
    char uuid[PLX_UUID_TEXT];
    int error = open_in_store(m, who);

    if (!error)
        error = plx_clustered_nodes(&m->paths.settings, who, &m->nodes, m->fault);
    if (error)
        return error;
    plx_uuid_random(uuid);
    error = plx_registry_cluster_found(m->nodes, uuid, plx_id_random(), ret_cluster);
    if (error)
        return plx_registry_fault(m->nodes, error, m->fault);
    plx_registry_cluster_pin(m->nodes, ret_cluster);
    error = clear_nodes(m);
    if (error)
        return error;
    error = plx_registry_carry(m->in_store, m->nodes, m->known.uuid, m->known.identity,
                               PLX_STORE_ARRIVING, m->fault);
    if (error)
        return error;
    plx_uuid_parse(ret_cluster->uuid, &cluster.id);
    cluster.line = ret_cluster->line;
    error = plx_store_set_cluster(m->store, &cluster, m->fault);
    if (error)
        return error;
    /* The store is in the cluster: what fails now is done by its next opening (CLUSTERED-3). */
    error = plx_registry_store_get(m->nodes, m->known.uuid, &row);
    if (!error)
        error = plx_registry_store_move(m->nodes, row.id, PLX_STORE_ARRIVING, PLX_STORE_NORMAL);
    if (error)
        m->options->left(m->options->context, plx_registry_error(m->nodes));
    plx_registry_event_add(m->nodes, "cluster init", m->known.name, ret_cluster->uuid);
    return 0;
}

int plx_clustering_join(const struct plx_clustering *options,
                        struct plx_registry_cluster *ret_cluster, struct plx_fault *fault)
{
    static const char who[] = "parallax cluster init";
    struct moving *m;
    int error = begin(options, &m, fault);

    if (error)
        return error;
    error = is_clustered(m) ? finish_joining(m, who, ret_cluster) : join(m, who, ret_cluster);
    end(m);
    return error;
}

/* ---- Leaving ---- */

/* Of a store that has no bit: what a call that was cut off has left on the nodes, if any are named.
 */
static int finish_leaving(struct moving *m, const char *who)
{
    struct plx_registry_store row;
    int error = plx_store_set_cluster(m->store, &m->super.cluster, m->fault); /* CLUSTERING-4 */

    if (error)
        return error;
    error = plx_clustered_nodes(&m->paths.settings, who, &m->nodes, m->fault);
    if (!error)
        error = plx_registry_store_get(m->nodes, m->known.uuid, &row);
    if (error || strcmp(row.identity, m->known.identity) != 0 || row.state == PLX_STORE_NORMAL)
        return plx_fault_set(m->fault, PLX_ERR_NOT_FOUND, "store %s is in no cluster",
                             m->known.name);
    return plx_registry_drop(m->nodes, m->known.uuid, m->known.identity, m->fault);
}

/* CLUSTERING-3, step 2. The database is closed, and so durable, before the superblock says that it
 * counts. */
static int bring_back(struct moving *m, const char *who)
{
    const struct plx_embedded_options options = in_store(m, who);
    int error = plx_embedded_create(&options, &m->in_store, m->fault);

    if (!error)
        error = plx_registry_carry(m->nodes, m->in_store, m->known.uuid, NULL, PLX_STORE_NORMAL,
                                   m->fault);
    if (!error && (error = plx_registry_check(m->in_store)))
        plx_registry_fault(m->in_store, error, m->fault);
    if (!error)
        plx_registry_event_add(m->in_store, "cluster leave", m->known.name, m->known.uuid);
    plx_registry_close(m->in_store);
    m->in_store = NULL;
    return error;
}

static int leave(struct moving *m, const char *who)
{
    const struct plx_cluster none = {.line = 0};
    struct plx_registry_store row;
    struct plx_fault why;
    int error = open_nodes(m, who, &row);

    if (error)
        return error;
    if (row.state != PLX_STORE_LEAVING) /* CLUSTERING-2 */
        error = plx_registry_store_move(m->nodes, row.id, PLX_STORE_NORMAL, PLX_STORE_LEAVING);
    if (error)
        return plx_registry_fault(m->nodes, error, m->fault);
    error = bring_back(m, who);
    if (error) /* CLUSTERING-3 */
        plx_registry_store_move(m->nodes, row.id, PLX_STORE_LEAVING, PLX_STORE_NORMAL);
    else
        error = plx_store_set_cluster(m->store, &none, m->fault);
    /* The rows on the nodes count for nothing now, and the next call removes what stays. */
    if (!error && plx_registry_drop(m->nodes, m->known.uuid, m->known.identity, &why))
        m->options->left(m->options->context, why.text);
    return error;
}

int plx_clustering_leave(const struct plx_clustering *options, struct plx_fault *fault)
{
    static const char who[] = "parallax cluster leave";
    struct moving *m;
    int error = begin(options, &m, fault);

    if (error)
        return error;
    error = is_clustered(m) ? leave(m, who) : finish_leaving(m, who);
    end(m);
    return error;
}
