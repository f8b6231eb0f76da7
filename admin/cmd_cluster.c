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
    json_t *nodes, *stores;
    size_t silent; /* nodes */
};

static void read_stores(struct plx_registry *reg, struct status *status)
{
    struct plx_registry_cluster cluster;
    struct plx_registry_store *list = NULL;
    size_t count = 0;

    if (plx_registry_cluster_get(reg, &cluster) == 0)
        memcpy(status->cluster, cluster.uuid, sizeof cluster.uuid);
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

/* CMD_CLUSTER-1 */
static void ask_node(const struct plx_registry_nodes *nodes, const char *address,
                     struct status *status)
{
    struct plx_registry_nodes one = *nodes;
    struct plx_registry *reg = NULL;
    struct plx_fault why;
    int error;

    one.addresses = &address;
    one.count = 1;
    one.look = true;
    one.wait_ms = NODE_WAIT_MS;
    error = plx_registry_open_rqlite(&one, "parallax cluster status", &reg, &why);
    if (!error && !json_array_size(status->stores) && !*status->cluster)
        read_stores(reg, status);
    plx_registry_close(reg);
    if (error == PLX_ERR_NOT_FOUND) /* it answers: nothing is there yet */
        error = 0;
    status->silent += error != 0;
    json_array_append_new(status->nodes,
                          json_pack("{s:o,s:b,s:o}", "address", plx_out_string(address), "answers",
                                    error == 0, "why",
                                    error ? plx_out_string(why.text) : json_null()));
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
    struct status status = {.silent = 0};
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
    if (!rc && status.silent)
        rc = plx_cli_fail(cli, PLX_ERR_REGISTRY,
                          "%zu of %zu nodes do not answer; start them, or name the right ones "
                          "in section [registry]",
                          status.silent, named.nodes.count);
    json_decref(status.nodes);
    json_decref(status.stores);
    return rc;
}
