/* growth.c - ranges of extents that come to a store, and who adds them.
 *
 * Life of a growth (a store's row in table growth):
 *
 *   1 begun    plx_registry_growth_begin(): an instance has the right to grow the store
 *   2 joined   for a further volume only, plx_registry_growth_join(): its path is noted
 *   3 grown    the store's superblock counts the extents (engine/space/grow.c)
 *   4 entered  plx_registry_range_add() or _volume_add(): the registry knows them, too
 *   5 ended    plx_registry_growth_end() removes the row
 *
 * A crash in 1 to 4 leaves the row. The next opener enters what the store counts already.
 *
 * GROWTH-1  One instance at a time makes a store larger: the one that the row in growth names. When
 *     an instance's row is removed, a foreign key sets that name to NULL. So a dead instance is in
 *     nobody's way once it was taken over.
 * GROWTH-2  The path of a volume that is being added is in growth before the store counts the
 *     volume. It stays there until the volume has a row of its own. So a process that opens the
 *     store in between finds all its volumes.
 * GROWTH-3  A range is entered where the extent numbers end, or makes the last range longer
 *     (STORES-1).
 * GROWTH-4  Nothing is added to a store in doubt (plx_registry_doubt).
 * Threads and crash story: as registry.c, and above.
 */
#include <stdio.h>

#include "registry/instance.h"
#include "registry/sql.h"

/* ---- Who ---- */

static void read_path(void *item, const struct plx_sql_value *columns)
{
    snprintf(item, PLX_PATH_MAX, "%s", columns[0].text);
}

static const struct plx_sql_shape path_shape = {PLX_PATH_MAX, read_path};

static void read_who(void *item, const struct plx_sql_value *columns)
{
    snprintf(item, 160, "%s (pid %lld)", plx_instance_kind(columns[0].text),
             (long long)columns[1].number);
}

static const struct plx_sql_shape who_shape = {160, read_who};

/* GROWTH-1 */
int plx_registry_growth_begin(struct plx_registry *reg, int64_t store, uint64_t instance)
{
    static const char begin[] =
        "INSERT INTO growth (store, instance) SELECT ?1, ?2" /* GROWTH-4 */
        " WHERE NOT EXISTS (SELECT 1 FROM store WHERE id = ?1 AND doubt IS NOT NULL)"
        " ON CONFLICT (store) DO UPDATE SET instance = ?2 WHERE instance IS NULL OR instance = ?2"
        " RETURNING store";
    static const char user[] = "SELECT i.role, i.pid FROM growth g JOIN instances i"
                               " ON i.id = g.instance WHERE g.store = ?1";
    struct plx_sql batch[] = {SQL_MUST(begin, SQL_INT(store), SQL_INT(instance))};
    struct plx_sql who_statement = SQL(user, SQL_INT(store));
    static const char doubt[] = "SELECT doubt FROM store WHERE id = ?1 AND doubt IS NOT NULL";
    struct plx_sql doubt_statement = SQL(doubt, SQL_INT(store));
    char who[160], why[PLX_PATH_MAX];
    int code = plx_sql_change(reg, batch, SQL_COUNT(batch), NULL, NULL);

    if (code == PLX_ERR_BUSY) /* a foreign key */
        return plx_sql_fail(reg, PLX_ERR_NOT_FOUND,
                            "the store or this instance is not in the registry (any more)");
    if (code <= 0)
        return code;
    if (plx_sql_get(reg, &doubt_statement, &path_shape, why) == 0)
        return plx_sql_fail(reg, PLX_ERR_REGISTRY, "the store is in doubt, and does not grow: %.*s",
                            PLX_REGISTRY_DOUBT - 1, why);
    if (plx_sql_get(reg, &who_statement, &who_shape, who))
        snprintf(who, sizeof who, "another process");
    return plx_sql_fail(reg, PLX_ERR_BUSY,
                        "%s is making the store larger; try again when it has ended", who);
}

/* GROWTH-2 */
int plx_registry_growth_join(struct plx_registry *reg, int64_t store, uint64_t instance,
                             const char *path)
{
    static const char join[] =
        "UPDATE growth SET path = ?3 WHERE store = ?1 AND instance = ?2 RETURNING store";
    struct plx_sql batch[] = {
        SQL_MUST(join, SQL_INT(store), SQL_INT(instance), SQL_TEXT(path)),
        SQL_EVENT(reg, "volume join", path, ""),
    };
    int code = plx_sql_change(reg, batch, SQL_COUNT(batch), NULL, NULL);

    return code > 0 ? plx_sql_fail(reg, PLX_ERR_FENCED, "another process makes the store larger")
                    : code;
}

int plx_registry_growth_path(struct plx_registry *reg, int64_t store, char ret_path[PLX_PATH_MAX])
{
    static const char get[] = "SELECT path FROM growth WHERE store = ?1 AND path IS NOT NULL";
    struct plx_sql statement = SQL(get, SQL_INT(store));

    return plx_sql_get(reg, &statement, &path_shape, ret_path);
}

int plx_registry_growth_end(struct plx_registry *reg, int64_t store, uint64_t instance)
{
    static const char end[] = "DELETE FROM growth WHERE store = ?1 AND instance = ?2";
    struct plx_sql batch[] = {SQL(end, SQL_INT(store), SQL_INT(instance))};

    return plx_sql_change(reg, batch, SQL_COUNT(batch), NULL, NULL);
}

/* ---- Ranges ---- */

static void read_range(void *item, const struct plx_sql_value *columns)
{
    struct plx_registry_range *range = item;

    range->volume = (unsigned)columns[0].number;
    range->first = (uint64_t)columns[1].number;
    range->extents = (uint64_t)columns[2].number;
}

static const struct plx_sql_shape range_shape = {sizeof(struct plx_registry_range), read_range};

int plx_registry_range_list(struct plx_registry *reg, int64_t store,
                            struct plx_registry_range **ret_list, size_t *ret_count)
{
    static const char list[] = "SELECT idx, first_extent, extents FROM volumes WHERE store = ?1"
                               " ORDER BY first_extent";
    struct plx_sql statement = SQL(list, SQL_INT(store));

    return plx_sql_list(reg, &statement, &range_shape, (void **)ret_list, ret_count);
}

/* GROWTH-3 */
int plx_registry_range_add(struct plx_registry *reg, int64_t store,
                           const struct plx_registry_range *range)
{
    static const char longer[] =
        "UPDATE volumes SET extents = ?4 WHERE store = ?1 AND idx = ?2 AND first_extent = ?3"
        " AND extents < ?4"
        " AND first_extent + extents = (SELECT sum(extents) FROM volumes WHERE store = ?1)";
    static const char further[] =
        "INSERT INTO volumes (store, idx, part, first_extent, extents)"
        " SELECT ?1, ?2, 1 + max(part), ?3, ?4 FROM volumes WHERE store = ?1 AND idx = ?2"
        " HAVING count(*) > 0 AND ?3 = (SELECT sum(extents) FROM volumes WHERE store = ?1)";
    static const char entered[] = "SELECT 1 FROM volumes WHERE store = ?1 AND idx = ?2"
                                  " AND first_extent = ?3 AND extents = ?4";
    static const char event[] =
        "INSERT INTO events (time_ns, who, what, subject, detail)"
        " SELECT ?1, ?2, 'volume grow', uuid, path FROM volumes WHERE store = ?3 AND idx = ?4"
        " AND part = 0";
    struct plx_sql batch[] = {
        SQL(longer, SQL_INT(store), SQL_INT(range->volume), SQL_INT(range->first),
            SQL_INT(range->extents)),
        SQL(further, SQL_INT(store), SQL_INT(range->volume), SQL_INT(range->first),
            SQL_INT(range->extents)),
        SQL_MUST(entered, SQL_INT(store), SQL_INT(range->volume), SQL_INT(range->first),
                 SQL_INT(range->extents)),
        SQL_EXTRA(event, SQL_INT(plx_sql_now()), SQL_TEXT(reg->who), SQL_INT(store),
                  SQL_INT(range->volume)),
    };
    int code = plx_sql_change(reg, batch, SQL_COUNT(batch), NULL, NULL);

    return code > 0 ? plx_sql_fail(reg, PLX_ERR_INVALID,
                                   "extents %llu and on of volume %u do not start where the others "
                                   "end",
                                   (unsigned long long)range->first, range->volume)
                    : code;
}
