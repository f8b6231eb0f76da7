/* stores.c - stores, their volumes, and the instances that have them open.
 *
 * STORES-1  Ranges of extents follow each other without gaps. A volume begins where those before it
 *     end. What a volume grows by comes behind all extents that exist then (growth.c).
 * STORES-2  An instance's row exists as long as the instance owns a lock or an extent. Foreign keys
 *     refuse to remove it earlier, so nothing is ever owned by an unknown instance (INV-5).
 * Threads and crash story: as registry.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "registry/clusters.h"
#include "registry/sql.h"

/* ---- Stores ------------------------------------------------------------------------------ */

static void read_store(void *item, const struct plx_sql_value *columns)
{
    struct plx_registry_store *store = item;

    store->id = columns[0].number;
    plx_sql_copy(store->uuid, sizeof store->uuid, &columns[1]);
    plx_sql_copy(store->name, sizeof store->name, &columns[2]);
    store->extent_blocks = (uint64_t)columns[3].number;
    store->created_ns = (uint64_t)columns[4].number;
    plx_sql_copy(store->doubt, sizeof store->doubt, &columns[5]);
    plx_sql_copy(store->identity, sizeof store->identity, &columns[6]);
    store->state = plx_registry_state_of(columns[7].text);
    plx_sql_copy(store->host, sizeof store->host, &columns[8]);
}

#define STORE_COLUMNS                                                                              \
    "id, uuid, name, extent_blocks, created_ns, coalesce(doubt, ''), coalesce(identity, ''),"      \
    " state, coalesce(host, '')"

static const struct plx_sql_shape store_shape = {sizeof(struct plx_registry_store), read_store};

/* The two statements that enter a volume and its first extents, the system's. The first one enters
 * nothing unless the volume begins where the others end (STORES-1). args must outlive them. */
static void enter_volume(const char *store_uuid, const struct plx_registry_volume *volume,
                         struct plx_sql_value args[7], struct plx_sql ret_batch[2])
{
    static const char insert[] =
        "INSERT INTO volumes (uuid, store, first_extent, idx, path, extents, touched)"
        " SELECT ?1, s.id, ?3, ?4, ?5, ?6, ?7 FROM store s WHERE s.uuid = ?2"
        " AND ?4 = (SELECT count(*) FROM volumes WHERE store = s.id AND part = 0)"
        " AND ?3 = (SELECT coalesce(sum(extents), 0) FROM volumes WHERE store = s.id)";
    static const char extent[] =
        "WITH RECURSIVE at(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM at"
        "  WHERE n + 1 < (SELECT touched FROM volumes WHERE uuid = ?1))"
        " INSERT INTO extents (store, no, type)"
        " SELECT store, first_extent + n, 'system' FROM volumes, at WHERE uuid = ?1";
    const struct plx_sql_value row[] = {
        SQL_TEXT(volume->uuid),
        SQL_TEXT(store_uuid),
        SQL_INT(volume->first_extent),
        SQL_INT(volume->index),
        SQL_TEXT(volume->path),
        SQL_INT(volume->extents),
        SQL_INT(volume->system_extents ? volume->system_extents : 1),
    };

    memcpy(args, row, sizeof row);
    ret_batch[0] = (struct plx_sql){.text = insert, .count = 7, .args = args};
    ret_batch[1] = (struct plx_sql){.text = extent, .count = 1, .args = args};
}

static int check_volume(struct plx_registry *reg, const struct plx_registry_volume *volume)
{
    if (!plx_uuid_parse(volume->uuid, NULL) || !volume->path[0] || !volume->extents)
        return plx_sql_fail(reg, PLX_ERR_INVALID, "volume %u: its UUID, path or size is missing",
                            volume->index);
    return 0;
}

int plx_registry_store_create(struct plx_registry *reg, const struct plx_registry_store *store,
                              const struct plx_registry_volume *volumes, unsigned count,
                              struct plx_registry_store *ret_store)
{
    static const char insert[] = "INSERT INTO store (uuid, name, extent_blocks, created_ns)"
                                 " VALUES (?1, ?2, ?3, ?4)";
    static const char entered[] =
        "SELECT " STORE_COLUMNS " FROM store WHERE uuid = ?1"
        " AND ?2 = (SELECT count(*) FROM volumes v WHERE v.store = store.id AND v.part = 0)";
    uint64_t created_ns = store->created_ns ? store->created_ns : plx_sql_now();
    struct plx_sql_value args[PLX_VOLUMES_MAX][7];
    struct plx_sql batch[2 * PLX_VOLUMES_MAX + 3] = {
        SQL(insert, SQL_TEXT(store->uuid), SQL_TEXT(store->name), SQL_INT(store->extent_blocks),
            SQL_INT(created_ns)),
        SQL_EVENT(reg, "store create", store->name, store->uuid),
    };
    struct plx_registry_store created;
    size_t statements = 2;
    char why[160];
    int code = plx_name_check("store", store->name, why, sizeof why);

    if (code)
        return plx_sql_fail(reg, code, "%s", why);
    if (!plx_uuid_parse(store->uuid, NULL) || !store->extent_blocks || !count ||
        count > PLX_VOLUMES_MAX)
        return plx_sql_fail(reg, PLX_ERR_INVALID,
                            "store '%s': its UUID, extent size or volumes "
                            "are missing or too many",
                            store->name);
    for (unsigned i = 0; i < count && !code; i++, statements += 2) {
        code = check_volume(reg, &volumes[i]);
        enter_volume(store->uuid, &volumes[i], args[i], batch + statements);
    }
    if (code)
        return code;
    batch[statements++] = (struct plx_sql)SQL_MUST(entered, SQL_TEXT(store->uuid), SQL_INT(count));
    code = plx_sql_change(reg, batch, statements, &store_shape, &created);
    if (code == PLX_ERR_EXISTS)
        return plx_sql_fail(reg, code,
                            "store '%s', or one with its UUID or a volume's, is in the "
                            "registry already",
                            store->name);
    if (code > 0)
        return plx_sql_fail(reg, PLX_ERR_INVALID,
                            "store '%s': its volumes do not follow each "
                            "other",
                            store->name);
    if (!code && ret_store)
        *ret_store = created;
    return code;
}

int plx_registry_store_get(struct plx_registry *reg, const char *name_or_uuid,
                           struct plx_registry_store *ret_store)
{
    static const char get[] = "SELECT " STORE_COLUMNS " FROM store"
                              " WHERE name = ?1 OR uuid = ?1";
    struct plx_sql statement = SQL(get, SQL_TEXT(name_or_uuid));
    int code = plx_sql_get(reg, &statement, &store_shape, ret_store);

    if (code == PLX_ERR_NOT_FOUND)
        plx_sql_fail(reg, code, "there is no store '%.80s'; 'parallax store list' shows them",
                     name_or_uuid);
    return code;
}

int plx_registry_store_list(struct plx_registry *reg, struct plx_registry_store **ret_list,
                            size_t *ret_count)
{
    static const char list[] = "SELECT " STORE_COLUMNS " FROM store"
                               " ORDER BY name";

    return plx_sql_list(reg, &(struct plx_sql){.text = list}, &store_shape, (void **)ret_list,
                        ret_count);
}

const char *plx_registry_doubt_advice(const struct plx_registry_store *store)
{
    return strchr(store->doubt, ';')
               ? ""
               : "; 'parallax store rebuild-registry' rebuilds its registry from the store";
}

int plx_registry_doubt(struct plx_registry *reg, int64_t store, const char *why)
{
    static const char doubt[] =
        "UPDATE store SET doubt = coalesce(doubt, ?2) WHERE id = ?1 RETURNING id";
    static const char event[] = "INSERT INTO events (time_ns, who, what, subject, detail)"
                                " SELECT ?1, ?2, 'store doubt', name, ?4 FROM store WHERE id = ?3";
    struct plx_sql batch[] = {
        SQL_MUST(doubt, SQL_INT(store), SQL_TEXT(why)),
        SQL_EXTRA(event, SQL_INT(plx_sql_now()), SQL_TEXT(reg->who), SQL_INT(store), SQL_TEXT(why)),
    };
    int code = plx_sql_change(reg, batch, SQL_COUNT(batch), NULL, NULL);

    return code > 0 ? plx_sql_fail(reg, PLX_ERR_NOT_FOUND, "the store is not in the registry")
                    : code;
}

/* ---- Volumes ----------------------------------------------------------------------------- */

static void read_volume(void *item, const struct plx_sql_value *columns)
{
    struct plx_registry_volume *volume = item;

    volume->index = (unsigned)columns[0].number;
    plx_sql_copy(volume->uuid, sizeof volume->uuid, &columns[1]);
    plx_sql_copy(volume->path, sizeof volume->path, &columns[2]);
    volume->first_extent = (uint64_t)columns[3].number;
    volume->extents = (uint64_t)columns[4].number;
    volume->touched = (uint64_t)columns[5].number;
}

static const struct plx_sql_shape volume_shape = {sizeof(struct plx_registry_volume), read_volume};

static int store_by_id(struct plx_registry *reg, int64_t id, struct plx_registry_store *ret_store)
{
    static const char get[] = "SELECT " STORE_COLUMNS " FROM store"
                              " WHERE id = ?1";
    struct plx_sql statement = SQL(get, SQL_INT(id));
    int code = plx_sql_get(reg, &statement, &store_shape, ret_store);

    if (code == PLX_ERR_NOT_FOUND)
        plx_sql_fail(reg, code, "the store is not in the registry (any more)");
    return code;
}

int plx_registry_volume_add(struct plx_registry *reg, int64_t store_id,
                            const struct plx_registry_volume *volume)
{
    struct plx_registry_store store;
    int code = check_volume(reg, volume);

    if (!code)
        code = store_by_id(reg, store_id, &store);
    if (code)
        return code;

    static const char entered[] = "SELECT 1 FROM volumes WHERE uuid = ?1";
    struct plx_sql_value args[7];
    struct plx_sql batch[] = {
        {0},
        {0},
        SQL_MUST(entered, SQL_TEXT(volume->uuid)),
        SQL_EVENT(reg, "volume add", store.name, volume->path),
    };

    enter_volume(store.uuid, volume, args, batch);
    code = plx_sql_change(reg, batch, SQL_COUNT(batch), NULL, NULL);
    if (code > 0)
        return plx_sql_fail(reg, PLX_ERR_INVALID,
                            "volume %u of store '%s' does not start where "
                            "the others end",
                            volume->index, store.name);
    if (code == PLX_ERR_EXISTS)
        return plx_sql_fail(reg, code, "volume %s is in the registry already", volume->uuid);
    return code;
}

int plx_registry_volume_list(struct plx_registry *reg, int64_t store,
                             struct plx_registry_volume **ret_list, size_t *ret_count)
{
    static const char list[] =
        "SELECT v.idx, v.uuid, v.path, v.first_extent, sum(r.extents), sum(r.touched)"
        " FROM volumes v JOIN volumes r ON r.store = v.store AND r.idx = v.idx"
        " WHERE v.store = ?1 AND v.part = 0 GROUP BY v.idx ORDER BY v.idx";
    struct plx_sql statement = SQL(list, SQL_INT(store));

    return plx_sql_list(reg, &statement, &volume_shape, (void **)ret_list, ret_count);
}

int plx_registry_volume_set_path(struct plx_registry *reg, int64_t store, unsigned index,
                                 const char *path)
{
    static const char set[] = "UPDATE volumes SET path = ?3"
                              " WHERE store = ?1 AND idx = ?2 AND part = 0 RETURNING uuid";
    static const char event[] = "INSERT INTO events (time_ns, who, what, subject, detail)"
                                " SELECT ?1, ?2, 'volume path', uuid, path FROM volumes"
                                " WHERE store = ?3 AND idx = ?4 AND part = 0";
    struct plx_sql batch[] = {
        SQL_MUST(set, SQL_INT(store), SQL_INT(index), SQL_TEXT(path)),
        SQL_EXTRA(event, SQL_INT(plx_sql_now()), SQL_TEXT(reg->who), SQL_INT(store),
                  SQL_INT(index)),
    };
    int code = plx_sql_change(reg, batch, SQL_COUNT(batch), NULL, NULL);

    return code > 0 ? plx_sql_fail(reg, PLX_ERR_NOT_FOUND, "the store has no volume %u", index)
                    : code;
}

/* ---- Instances --------------------------------------------------------------------------- */

#define INSTANCE_SELECT                                                                            \
    "SELECT i.id, i.store, coalesce(i.host, ''), coalesce(h.name, 'unknown'), i.boot, i.pid,"      \
    " i.role, i.started_ns FROM instances i LEFT JOIN hosts h ON h.uuid = i.host"

static void read_instance(void *item, const struct plx_sql_value *columns)
{
    struct plx_registry_instance *instance = item;

    instance->id = (uint64_t)columns[0].number;
    instance->store = columns[1].number;
    plx_sql_copy(instance->host, sizeof instance->host, &columns[2]);
    plx_sql_copy(instance->host_name, sizeof instance->host_name, &columns[3]);
    plx_sql_copy(instance->boot, sizeof instance->boot, &columns[4]);
    instance->pid = columns[5].number;
    plx_sql_copy(instance->role, sizeof instance->role, &columns[6]);
    instance->started_ns = (uint64_t)columns[7].number;
}

static const struct plx_sql_shape instance_shape = {sizeof(struct plx_registry_instance),
                                                    read_instance};

static int enter_instance(struct plx_registry *reg, const struct plx_registry_instance *instance,
                          bool import)
{
    static const char host[] =
        "INSERT INTO hosts (uuid, name, seen_ns) SELECT ?1, ?2, ?3 WHERE ?1 <> ''"
        " ON CONFLICT (uuid) DO UPDATE SET name = excluded.name, seen_ns = excluded.seen_ns";
    static const char insert[] =
        "INSERT INTO instances (id, store, host, boot, pid, role, started_ns)"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    static const char insert_unknown[] =
        "INSERT INTO instances (id, store, host, boot, pid, role, started_ns)"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (id) DO NOTHING";
    uint64_t now = plx_sql_now();
    char id[24];
    struct plx_sql batch[] = {
        SQL(host, SQL_TEXT(instance->host), SQL_TEXT(instance->host_name), SQL_INT(now)),
        SQL(import ? insert_unknown : insert, SQL_INT(instance->id), SQL_INT(instance->store),
            SQL_OPT(instance->host), SQL_TEXT(instance->boot), SQL_INT(instance->pid),
            SQL_TEXT(instance->role), SQL_INT(instance->started_ns ? instance->started_ns : now)),
        SQL_EVENT(reg, import ? "instance import" : "instance start", id, instance->host_name),
    };
    int code;

    snprintf(id, sizeof id, "%llu", (unsigned long long)instance->id);
    if (!instance->id || (instance->host[0] && !plx_uuid_parse(instance->host, NULL)))
        return plx_sql_fail(reg, PLX_ERR_INVALID, "instance %s: its id or host is not valid", id);
    code = plx_sql_change(reg, batch, SQL_COUNT(batch), NULL, NULL);
    if (code == PLX_ERR_BUSY) /* foreign key: no such store */
        return plx_sql_fail(reg, PLX_ERR_NOT_FOUND, "the store is not in the registry (any more)");
    if (code == PLX_ERR_EXISTS)
        return plx_sql_fail(reg, code, "instance %s is registered already", id);
    return code;
}

int plx_registry_instance_register(struct plx_registry *reg,
                                   const struct plx_registry_instance *instance)
{
    return enter_instance(reg, instance, false);
}

int plx_registry_import_instances(struct plx_registry *reg,
                                  const struct plx_registry_instance *list, size_t count)
{
    int code = 0;

    for (size_t i = 0; i < count && !code; i++)
        code = enter_instance(reg, &list[i], true);
    return code;
}

/* HOLDS-4, GROWTH-1: foreign keys take the instance's holds and its name from a growth. */
int plx_registry_instance_unregister(struct plx_registry *reg, uint64_t id)
{
    static const char remove[] = "DELETE FROM instances WHERE id = ?1 RETURNING id";
    char text[24];
    struct plx_sql batch[] = {
        SQL_MUST(remove, SQL_INT(id)),
        SQL_EVENT(reg, "instance stop", text, ""),
    };
    int code;

    snprintf(text, sizeof text, "%llu", (unsigned long long)id);
    code = plx_sql_change(reg, batch, SQL_COUNT(batch), NULL, NULL);
    if (code > 0)
        return plx_sql_fail(reg, PLX_ERR_NOT_FOUND, "instance %s is not registered", text);
    if (code == PLX_ERR_BUSY) /* STORES-2: a foreign key */
        return plx_sql_fail(reg, code, "instance %s still owns locks or extents", text);
    return code;
}

int plx_registry_instance_get(struct plx_registry *reg, uint64_t id,
                              struct plx_registry_instance *ret_instance)
{
    static const char get[] = INSTANCE_SELECT " WHERE i.id = ?1";
    struct plx_sql statement = SQL(get, SQL_INT(id));
    int code = plx_sql_get(reg, &statement, &instance_shape, ret_instance);

    if (code == PLX_ERR_NOT_FOUND)
        plx_sql_fail(reg, code, "instance %llu is not registered", (unsigned long long)id);
    return code;
}

int plx_registry_instance_list(struct plx_registry *reg, int64_t store,
                               struct plx_registry_instance **ret_list, size_t *ret_count)
{
    static const char list[] = INSTANCE_SELECT " WHERE i.store = ?1 ORDER BY i.started_ns, i.id";
    struct plx_sql statement = SQL(list, SQL_INT(store));

    return plx_sql_list(reg, &statement, &instance_shape, (void **)ret_list, ret_count);
}
