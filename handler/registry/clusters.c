/* clusters.c - see clusters.h.
 *
 * CLUSTERS-1  A registry is of one cluster at most, and stays that cluster's. Of several processes
 *     that make it one, the first decides, and all are told of which one it is.
 * CLUSTERS-2  A store's state changes by compare-and-set. It leaves only while no instance has it
 *     open, which the same statement asks; from then on a trigger of the schema lets none in.
 * CLUSTERS-3  No state leads to `arriving`: the rows of a store that was ever normal are not
 *     replaced by a later carrying (CARRY-2).
 * CLUSTERS-4  The rows of a store are one host's at a time, whatever home pages say: two copies of
 *     the volumes, with one identity, may lie on two hosts, and each has a home page of its own.
 * The first host that opens the store to write has it, until it releases it, or another one takes
 *     it by the operator's word.
 * Threads and crash story: as registry.c.
 */
#include "registry/clusters.h"

#include <string.h>

#include "registry/instance.h"
#include "registry/sql.h"

static const char *const words[] = {
    [PLX_STORE_NORMAL] = "normal",
    [PLX_STORE_ARRIVING] = "arriving",
    [PLX_STORE_LEAVING] = "leaving",
    [PLX_STORE_UNKNOWN] = "unknown",
};

const char *plx_registry_state_word(enum plx_registry_state state)
{
    return words[state];
}

enum plx_registry_state plx_registry_state_of(const char *word)
{
    int state = PLX_STORE_NORMAL;

    while (state < PLX_STORE_UNKNOWN && strcmp(words[state], word) != 0)
        state++;
    return (enum plx_registry_state)state;
}

/* ---- The cluster ------------------------------------------------------------------------- */

#define CLUSTER "SELECT uuid, line, created_ns FROM cluster WHERE id = 1"

static void read_cluster(void *item, const struct plx_sql_value *columns)
{
    struct plx_registry_cluster *cluster = item;

    plx_sql_copy(cluster->uuid, sizeof cluster->uuid, &columns[0]);
    cluster->line = columns[1].number > 0 ? (uint64_t)columns[1].number : 0;
    cluster->created_ns = (uint64_t)columns[2].number;
}

static const struct plx_sql_shape cluster_shape = {sizeof(struct plx_registry_cluster),
                                                   read_cluster};

/* The row comes from outside. */
static int take_cluster(struct plx_registry *reg, const struct plx_registry_cluster *row,
                        struct plx_registry_cluster *ret_cluster)
{
    if (!plx_uuid_parse(row->uuid, NULL) || !row->line)
        return plx_sql_fail(reg, PLX_ERR_REGISTRY,
                            "the registry does not say which cluster it is of");
    *ret_cluster = *row;
    return 0;
}

int plx_registry_cluster_get(struct plx_registry *reg, struct plx_registry_cluster *ret_cluster)
{
    static const struct plx_sql get = {.text = CLUSTER};
    struct plx_registry_cluster row;
    int code = plx_sql_get(reg, &get, &cluster_shape, &row);

    if (code == PLX_ERR_NOT_FOUND)
        return plx_sql_fail(reg, code, "the registry is of no cluster");
    return code ? code : take_cluster(reg, &row, ret_cluster);
}

/* CLUSTERS-1 */
int plx_registry_cluster_found(struct plx_registry *reg, const char *uuid, uint64_t line,
                               struct plx_registry_cluster *ret_cluster)
{
    static const char found[] = "INSERT INTO cluster (id, uuid, line, created_ns)"
                                " VALUES (1, ?1, ?2, ?3) ON CONFLICT (id) DO NOTHING";
    static const char event[] =
        "INSERT INTO events (time_ns, who, what, subject, detail)"
        " SELECT ?1, ?2, 'cluster found', uuid, 'line ' || line FROM cluster"
        " WHERE uuid = ?3 AND line = ?4 AND created_ns = ?1";
    static const char founded[] = CLUSTER;
    const uint64_t now = plx_sql_now();
    struct plx_sql batch[] = {
        SQL(found, SQL_TEXT(uuid), SQL_INT(line), SQL_INT(now)),
        SQL_EXTRA(event, SQL_INT(now), SQL_TEXT(reg->who), SQL_TEXT(uuid), SQL_INT(line)),
        {.text = founded, .must = true},
    };
    struct plx_registry_cluster row = {.line = 0};
    int code;

    if (!plx_uuid_parse(uuid, NULL) || !line || line > INT64_MAX)
        return plx_sql_fail(reg, PLX_ERR_INVALID, "a cluster has a UUID and a line from 1 on");
    code = plx_sql_change(reg, batch, SQL_COUNT(batch), &cluster_shape, &row);
    return code < 0 ? code : take_cluster(reg, &row, ret_cluster);
}

void plx_registry_cluster_pin(struct plx_registry *reg, const struct plx_registry_cluster *cluster)
{
    if (reg->ops->pin)
        reg->ops->pin(reg->driver, cluster->uuid, cluster->line);
}

/* ---- States of a store ------------------------------------------------------------------- */

struct standing_row {
    char name[PLX_STORE_NAME_MAX + 1];
    enum plx_registry_state state;
    char role[16];
    int64_t pid; /* of an instance, or 0 */
};

static void read_where(void *item, const struct plx_sql_value *columns)
{
    struct standing_row *where = item;

    plx_sql_copy(where->name, sizeof where->name, &columns[0]);
    where->state = plx_registry_state_of(columns[1].text);
    plx_sql_copy(where->role, sizeof where->role, &columns[2]);
    where->pid = columns[3].number;
}

static const struct plx_sql_shape where_shape = {sizeof(struct standing_row), read_where};

static int not_moved(struct plx_registry *reg, int64_t store, enum plx_registry_state from,
                     enum plx_registry_state to)
{
    static const char get[] = "SELECT s.name, s.state, coalesce(i.role, ''), coalesce(i.pid, 0)"
                              " FROM store s LEFT JOIN instances i ON i.store = s.id"
                              " WHERE s.id = ?1 LIMIT 1";
    const struct plx_sql statement = SQL(get, SQL_INT(store));
    struct standing_row now;
    int code = plx_sql_get(reg, &statement, &where_shape, &now);

    if (code == PLX_ERR_NOT_FOUND)
        return plx_sql_fail(reg, code, "the store is not in the registry (any more)");
    if (code)
        return code;
    if (now.state != from)
        return plx_sql_fail(reg, PLX_ERR_BUSY, "store '%s' is '%s' in the registry, and not '%s'",
                            now.name, words[now.state], words[from]);
    if (to == PLX_STORE_LEAVING && now.role[0])
        return plx_sql_fail(reg, PLX_ERR_BUSY,
                            "%s (pid %lld) has store '%s' open; try again when it has ended",
                            plx_instance_kind(now.role), (long long)now.pid, now.name);
    return plx_sql_fail(reg, PLX_ERR_BUSY, "store '%s' has just changed; try again", now.name);
}

/* CLUSTERS-2 */
int plx_registry_store_move(struct plx_registry *reg, int64_t store, enum plx_registry_state from,
                            enum plx_registry_state to)
{
    static const char move[] =
        "UPDATE store SET state = ?3 WHERE id = ?1 AND state = ?2 AND (?3 <> 'leaving'"
        " OR NOT EXISTS (SELECT 1 FROM instances i WHERE i.store = ?1)) RETURNING id";
    static const char event[] = "INSERT INTO events (time_ns, who, what, subject, detail)"
                                " SELECT ?1, ?2, 'store move', name, ?4 || ' to ' || state"
                                " FROM store WHERE id = ?3";
    bool in = from == PLX_STORE_ARRIVING && to == PLX_STORE_NORMAL;
    bool out = from == PLX_STORE_NORMAL && to == PLX_STORE_LEAVING;
    bool back = from == PLX_STORE_LEAVING && to == PLX_STORE_NORMAL;
    int code;

    if (!in && !out && !back) /* CLUSTERS-3 */
        return plx_sql_fail(reg, PLX_ERR_INVALID, "no store goes from one such state to the other");

    struct plx_sql batch[] = {
        SQL_MUST(move, SQL_INT(store), SQL_TEXT(words[from]), SQL_TEXT(words[to])),
        SQL_EXTRA(event, SQL_INT(plx_sql_now()), SQL_TEXT(reg->who), SQL_INT(store),
                  SQL_TEXT(words[from])),
    };

    code = plx_sql_change(reg, batch, SQL_COUNT(batch), NULL, NULL);
    return code > 0 ? not_moved(reg, store, from, to) : code;
}

/* ---- Whose a store is (CLUSTERS-4) ------------------------------------------------------- */

int plx_registry_store_have(struct plx_registry *reg, int64_t store, const char *host, bool take)
{
    static const char have[] = "UPDATE store SET host = ?2 WHERE id = ?1"
                               " AND (?3 OR host IS NULL OR host = ?2) RETURNING id";
    struct plx_sql batch[] = {
        SQL_MUST(have, SQL_INT(store), SQL_TEXT(host), SQL_INT(take)),
        SQL_EVENT(reg, "store have", host, take ? "taken" : ""),
    };
    int code = plx_sql_change(reg, batch, SQL_COUNT(batch), NULL, NULL);

    return code > 0 ? plx_sql_fail(reg, PLX_ERR_BUSY, "another host has the store") : code;
}

int plx_registry_store_let_go(struct plx_registry *reg, int64_t store, const char *host)
{
    static const char let_go[] = "UPDATE store SET host = NULL WHERE id = ?1 AND host = ?2";
    struct plx_sql batch[] = {
        SQL(let_go, SQL_INT(store), SQL_TEXT(host)),
        SQL_EVENT(reg, "store let go", host, ""),
    };

    return plx_sql_change(reg, batch, SQL_COUNT(batch), NULL, NULL);
}

int plx_registry_store_abandon(struct plx_registry *reg, int64_t store)
{
    static const char state[] = "UPDATE store SET state = 'leaving', host = NULL WHERE id = ?1";
    static const char vdis[] =
        "UPDATE vdis SET owner = NULL WHERE store = ?1 AND owner IS NOT NULL";
    static const char extents[] =
        "UPDATE extents SET owner = NULL WHERE store = ?1 AND owner IS NOT NULL";
    static const char growth[] = "DELETE FROM growth WHERE store = ?1";
    static const char instances[] = "DELETE FROM instances WHERE store = ?1";
    struct plx_sql batch[] = {
        SQL(state, SQL_INT(store)),     SQL(vdis, SQL_INT(store)),
        SQL(extents, SQL_INT(store)),   SQL(growth, SQL_INT(store)),
        SQL(instances, SQL_INT(store)), SQL_EVENT(reg, "store abandon", "", ""),
    };

    return plx_sql_change(reg, batch, SQL_COUNT(batch), NULL, NULL);
}
