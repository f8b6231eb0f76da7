/* cmd_cluster.c - parallax cluster init, leave, status: where stores keep their registries.
 *
 * CMD_CLUSTER-1  Status writes nothing, and asks each node by itself for a few seconds: one that
 *     does not answer must not hide the others.
 */
#include <stdlib.h>
#include <string.h>

#include "attach/clustering.h"
#include "cmd.h"
#include "output.h"
#include "registry/clustered.h"

#define NODE_WAIT_MS 5000u

/* What counts has been done. */
static void tell_left(void *context, const char *text)
{
    plx_out_warning("not all was cleared up, and the same command does that later: %s", text);
}

static int begin(struct plx_cli *cli, struct plx_clustering *ret_options, struct plx_name *ret_name)
{
    *ret_options = (struct plx_clustering){
        .state_dir = cli->state_dir, .patience = plx_session_patience(cli), .left = tell_left};
    ret_options->store = ret_name->store;
    return plx_cli_name(cli, 0, PLX_NAME_STORE, ret_name);
}

int plx_cmd_cluster_init(struct plx_cli *cli)
{
    struct plx_registry_cluster cluster;
    struct plx_clustering options;
    struct plx_name name;
    int rc;

    if ((rc = begin(cli, &options, &name)))
        return rc;
    options.unused = plx_cli_get(cli, "i-checked-nobody-uses-it") != NULL;
    if ((rc = plx_clustering_join(&options, &cluster, &cli->fault)))
        return rc;
    plx_out_note(cli, "the registry of store %s lies on the nodes of cluster %s now", name.store,
                 cluster.uuid);
    plx_out_done(cli, json_pack("{s:s,s:s}", "name", name.store, "cluster", cluster.uuid));
    return 0;
}

int plx_cmd_cluster_leave(struct plx_cli *cli)
{
    struct plx_clustering options;
    struct plx_name name;
    int rc;

    if ((rc = begin(cli, &options, &name)) || (rc = plx_clustering_leave(&options, &cli->fault)))
        return rc;
    plx_out_note(cli, "the registry of store %s lies in the store now", name.store);
    plx_out_done(cli, json_pack("{s:s,s:n}", "name", name.store, "cluster"));
    return 0;
}

/* ---- Status ---- */

struct status {
    char cluster[PLX_UUID_TEXT]; /* empty: not known */
    bool known;                  /* a node has said it, or that it is of none */
    json_t *nodes, *stores;
    size_t wrong; /* nodes that do not answer, or are another cluster's */
};

static void read_stores(struct plx_registry *reg, struct status *status)
{
    struct plx_registry_store *list = NULL;
    size_t count = 0;

    if (plx_registry_store_list(reg, &list, &count))
        return;
    for (size_t i = 0; i < count; i++)
        json_array_append_new(
            status->stores,
            json_pack("{s:o,s:s,s:s,s:s,s:b}", "name", plx_out_string(list[i].name), "uuid",
                      list[i].uuid, "identity", list[i].identity, "state",
                      plx_registry_state_word(list[i].state), "doubt", list[i].doubt[0] != 0));
    free(list);
}

/* Of a node that answers: the first that does says which cluster it is. */
static int compare_cluster(struct plx_registry *reg, const char *address, struct status *status,
                           struct plx_fault *why)
{
    struct plx_registry_cluster cluster = {.line = 0};

    if (plx_registry_cluster_get(reg, &cluster))
        cluster.uuid[0] = 0;
    if (!status->known) {
        status->known = true;
        memcpy(status->cluster, cluster.uuid, sizeof cluster.uuid);
        read_stores(reg, status);
    }
    return strcmp(cluster.uuid, status->cluster) == 0
               ? 0
               : plx_fault_set(why, PLX_ERR_INVALID, "%s is a node of %s%s, and others are not",
                               address, *cluster.uuid ? "cluster " : "no cluster", cluster.uuid);
}

/* CMD_CLUSTER-1 */
static void ask_node(const struct plx_registry_nodes *nodes, const char *address,
                     struct status *status)
{
    struct plx_registry_nodes one = *nodes;
    struct plx_registry *reg = NULL;
    struct plx_fault why;
    bool answers;
    int error;

    one.addresses = &address;
    one.count = 1;
    one.look = true;
    one.wait_ms = NODE_WAIT_MS;
    error = plx_registry_open_rqlite(&one, "parallax cluster status", &reg, &why);
    answers = !error || error == PLX_ERR_NOT_FOUND; /* nothing is there yet */
    if (error == PLX_ERR_NOT_FOUND)
        error = 0;
    else if (!error)
        error = compare_cluster(reg, address, status, &why);
    plx_registry_close(reg);
    status->wrong += error != 0;
    json_array_append_new(
        status->nodes, json_pack("{s:o,s:b,s:o}", "address", plx_out_string(address), "answers",
                                 answers, "why", error ? plx_out_string(why.text) : json_null()));
}

static int print_table(struct plx_cli *cli, const struct plx_column *columns, json_t *rows)
{
    struct plx_table table;
    json_t *row;
    size_t i;
    int rc = plx_table_begin(&table, cli, columns);

    if (rc)
        return rc;
    json_array_foreach(rows, i, row) plx_table_row(&table, json_incref(row));
    plx_table_end(&table);
    return 0;
}

static int print(struct plx_cli *cli, const struct status *status)
{
    static const struct plx_column cluster[] = {{"cluster", "Cluster", PLX_COLUMN_TEXT},
                                                {NULL, NULL, 0}};
    static const struct plx_column nodes[] = {{"address", "NODE", PLX_COLUMN_TEXT},
                                              {"answers", "ANSWERS", PLX_COLUMN_TEXT},
                                              {NULL, NULL, 0}};
    static const struct plx_column stores[] = {{"name", "STORE", PLX_COLUMN_TEXT},
                                               {"state", "STATE", PLX_COLUMN_TEXT},
                                               {"uuid", "UUID", PLX_COLUMN_TEXT},
                                               {NULL, NULL, 0}};
    json_t *id = *status->cluster ? json_string(status->cluster) : json_null();
    json_t *row;
    size_t i;
    int rc;

    if (cli->json) {
        plx_out_json(json_pack("{s:o,s:O,s:O}", "cluster", id, "nodes", status->nodes, "stores",
                               status->stores));
        return 0;
    }
    plx_out_object(cli, cluster, json_pack("{s:o}", "cluster", id));
    rc = print_table(cli, nodes, status->nodes);
    json_array_foreach(status->nodes, i, row) if (json_is_string(json_object_get(row, "why")))
        plx_out_note(cli, "%s", json_string_value(json_object_get(row, "why")));
    return rc || !json_array_size(status->stores) ? rc : print_table(cli, stores, status->stores);
}

int plx_cmd_cluster_status(struct plx_cli *cli)
{
    struct plx_settings_nodes named;
    struct status status = {.wrong = 0};
    struct plx_paths *paths;
    int rc = plx_session_paths(cli, &paths);

    if (rc)
        return rc;
    plx_settings_nodes(&paths->settings, &named);
    if (!named.nodes.count)
        return plx_clustered_nodes(&paths->settings, "", NULL, &cli->fault); /* says so */
    status.nodes = json_array();
    status.stores = json_array();
    for (size_t i = 0; i < named.nodes.count; i++)
        ask_node(&named.nodes, named.address[i], &status);
    rc = print(cli, &status);
    if (!rc && status.wrong)
        rc = plx_cli_fail(cli, PLX_ERR_REGISTRY,
                          "%zu of %zu nodes do not answer as one cluster; start them, or name "
                          "the right ones in section [registry]",
                          status.wrong, named.nodes.count);
    json_decref(status.nodes);
    json_decref(status.stores);
    return rc;
}
