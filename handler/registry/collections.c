/* collections.c - see collections.h.
 *
 * COLLECTIONS-1  A store has one collection at a time. Its number is odd while one is under way,
 *     and only grows. extents.c hands the number out with every extent, and the engine compares it
 *     before it frees a block (ALLOC-6). A deduplication, which must keep collections out, enters
 *     itself as a collection that finds nothing (dedup.c).
 * COLLECTIONS-2  A collection is ended by the instance that runs it. If that instance dies, another
 *     one that has proven the death goes on with the collection.
 * COLLECTIONS-3  What was found in an extent is entered only if the extent has not changed hands
 *     since the collection began: the statement compares the generation. The entry is valid until
 *     the extent changes hands. It is removed before the blocks are freed, so blocks that are used
 *     again after that are not freed a second time.
 * Threads: as registry.c.
 * Crash story: as registry.c. While a collection of a dead instance is under way, nobody frees
 *   blocks in extents that nobody owns. Those blocks are what the collection would find; another
 *   instance goes on with it.
 */
#include "registry/collections.h"

#include <stdlib.h>
#include <string.h>

#include "registry/sql.h"

#define COLUMNS "number, instance, phase = 'sweep', begun_ns, ended_ns, collected, wanted"

static void read_collection(void *item, const struct plx_sql_value *columns)
{
    struct plx_registry_collection *c = item;

    c->number = (uint64_t)columns[0].number;
    c->instance = (uint64_t)columns[1].number;
    c->sweeping = columns[2].number != 0;
    c->begun_ns = (uint64_t)columns[3].number;
    c->ended_ns = (uint64_t)columns[4].number;
    c->collected = (uint64_t)columns[5].number;
    c->wanted = (uint64_t)columns[6].number;
}

static const struct plx_sql_shape shape = {sizeof(struct plx_registry_collection), read_collection};

int plx_registry_collection_get(struct plx_registry *reg, int64_t store,
                                struct plx_registry_collection *ret_collection)
{
    static const char get[] = "SELECT " COLUMNS " FROM collections WHERE store = ?1";
    const struct plx_sql statement = SQL(get, SQL_INT(store));
    int code = plx_sql_get(reg, &statement, &shape, ret_collection);

    return code == PLX_ERR_NOT_FOUND ? plx_sql_fail(reg, code, "nothing was collected yet") : code;
}

bool plx_registry_collection_is_due(struct plx_registry *reg, int64_t store,
                                    struct plx_registry_collection *ret_last)
{
    return plx_registry_collection_get(reg, store, ret_last) == 0 &&
           (ret_last->wanted || ret_last->number % 2); /* COLLECTIONS-1 */
}

int plx_registry_collection_want(struct plx_registry *reg, int64_t store)
{
    static const char want[] =
        "INSERT INTO collections (store, number, instance, phase, begun_ns, wanted)"
        " VALUES (?1, 0, 0, 'none', 0, 1) ON CONFLICT (store) DO UPDATE SET wanted = wanted + 1";
    const struct plx_sql batch[] = {SQL(want, SQL_INT(store))};

    return plx_sql_change(reg, batch, SQL_COUNT(batch), NULL, NULL);
}

int plx_registry_collection_begin(struct plx_registry *reg, int64_t store, uint64_t instance,
                                  uint64_t dead, struct plx_registry_collection *ret_collection)
{
    /* COLLECTIONS-1, COLLECTIONS-2. After a lost answer the collection is this instance's already,
     * and the repeated call goes on with it. */
    static const char begin[] =
        "INSERT INTO collections (store, number, instance, phase, begun_ns)"
        " VALUES (?1, 1, ?2, 'mark', ?4) ON CONFLICT (store) DO UPDATE SET"
        "  number = number + (number % 2 = 0), instance = ?2, begun_ns = ?4,"
        "  phase = iif(number % 2 = 0, 'mark', phase)"
        " WHERE number % 2 = 0 OR instance IN (?2, ?3) RETURNING 0";
    static const char begun[] =
        "SELECT " COLUMNS " FROM collections WHERE store = ?1 AND instance = ?2";
    const struct plx_sql batch[] = {
        SQL_MUST(begin, SQL_INT(store), SQL_INT(instance), SQL_INT(dead), SQL_INT(plx_sql_now())),
        SQL_MUST(begun, SQL_INT(store), SQL_INT(instance)),
    };
    int code = plx_sql_change(reg, batch, SQL_COUNT(batch), &shape, ret_collection);

    return code > 0
               ? plx_sql_fail(reg, PLX_ERR_BUSY,
                              "another process is collecting in this store, or deduplicating; wait "
                              "for it to end")
               : code;
}

/* Runs a batch whose first statement requires that the collection is this instance's. */
static int change(struct plx_registry *reg, const struct plx_sql *batch, size_t count)
{
    int code = plx_sql_change(reg, batch, count, NULL, NULL);

    return code > 0
               ? plx_sql_fail(reg, PLX_ERR_FENCED, "the collection is not this process's any more")
               : code;
}

int plx_registry_collection_sweep(struct plx_registry *reg, int64_t store, uint64_t instance,
                                  bool sweeping)
{
    static const char sweep[] =
        "UPDATE collections SET phase = ?3"
        " WHERE store = ?1 AND instance = ?2 AND number % 2 = 1 RETURNING 0";
    const struct plx_sql batch[] = {
        SQL_MUST(sweep, SQL_INT(store), SQL_INT(instance), SQL_TEXT(sweeping ? "sweep" : "mark")),
    };

    return change(reg, batch, SQL_COUNT(batch));
}

int plx_registry_collection_end(struct plx_registry *reg, int64_t store, uint64_t instance,
                                uint64_t collected, uint64_t wanted)
{
    static const char end[] =
        "UPDATE collections SET number = number + (number % 2), phase = 'none', ended_ns = ?4,"
        " collected = ?3, wanted = max(0, wanted - ?5)"
        " WHERE store = ?1 AND instance = ?2 RETURNING 0";
    static const char drop[] = "DELETE FROM garbage WHERE store = ?1";
    const struct plx_sql batch[] = {
        SQL_MUST(end, SQL_INT(store), SQL_INT(instance), SQL_INT(collected), SQL_INT(plx_sql_now()),
                 SQL_INT(wanted)),
        SQL(drop, SQL_INT(store)),
    };

    return change(reg, batch, SQL_COUNT(batch));
}

/* Blocks that died during the deduplication in extents that nobody owns were left to a collection,
 * so one is wanted. The deduplication may have taken over the entry of a dead collection that had
 * not found everything yet: what that one entered goes, and the next one finds it again. */
int plx_registry_collection_leave(struct plx_registry *reg, int64_t store, uint64_t instance)
{
    static const char leave[] =
        "UPDATE collections SET number = number + 1, phase = 'none', wanted = wanted + 1"
        " WHERE store = ?1 AND instance = ?2 AND number % 2 = 1 AND phase = 'mark' RETURNING 0";
    static const char drop[] = "DELETE FROM garbage WHERE store = ?1";
    const struct plx_sql batch[] = {
        SQL_MUST(leave, SQL_INT(store), SQL_INT(instance)),
        SQL(drop, SQL_INT(store)),
    };

    return change(reg, batch, SQL_COUNT(batch));
}

/* ---- What was found ---- */

int plx_registry_garbage_put(struct plx_registry *reg, int64_t store,
                             const struct plx_registry_garbage *garbage)
{
    static const char put[] = /* COLLECTIONS-3 */
        "INSERT INTO garbage (store, extent, generation, blocks, runs)"
        " SELECT store, no, generation, ?4, ?5 FROM extents"
        " WHERE store = ?1 AND no = ?2 AND generation = ?3"
        " ON CONFLICT (store, extent) DO UPDATE SET generation = excluded.generation,"
        "  blocks = excluded.blocks, runs = excluded.runs RETURNING 0";
    const struct plx_sql batch[] = {
        {.text = put,
         .must = true,
         .leaves = PLX_SQL_LEAVES_GARBAGE,
         SQL_ARGS(SQL_INT(store), SQL_INT(garbage->extent), SQL_INT(garbage->generation),
                  SQL_INT(garbage->blocks), SQL_TEXT(garbage->runs))},
    };
    int code = plx_sql_change(reg, batch, SQL_COUNT(batch), NULL, NULL);

    if (code > 0 && plx_sql_left_out(reg, PLX_SQL_LEAVES_GARBAGE))
        return plx_sql_fail(reg, PLX_ERR_NOSPACE, "the registry has no room for what was found");
    return code > 0 ? plx_sql_fail(reg, PLX_ERR_NOT_FOUND, "extent %llu has just changed hands",
                                   (unsigned long long)garbage->extent)
                    : code;
}

static void read_garbage(void *item, const struct plx_sql_value *columns)
{
    struct plx_registry_garbage *garbage = item;

    garbage->extent = (uint64_t)columns[0].number;
    garbage->generation = (uint64_t)columns[1].number;
    garbage->blocks = (uint64_t)columns[2].number;
    garbage->runs = strdup(columns[3].text);
}

static const struct plx_sql_shape garbage_shape = {sizeof(struct plx_registry_garbage),
                                                   read_garbage};

int plx_registry_garbage_next(struct plx_registry *reg, int64_t store, uint64_t from,
                              struct plx_registry_garbage *ret_garbage)
{
    static const char next[] = "SELECT extent, generation, blocks, runs FROM garbage"
                               " WHERE store = ?1 AND extent >= ?2 ORDER BY extent LIMIT 1";
    const struct plx_sql statement = SQL(next, SQL_INT(store), SQL_INT(from));
    int code = plx_sql_get(reg, &statement, &garbage_shape, ret_garbage);

    if (code == PLX_ERR_NOT_FOUND)
        plx_sql_fail(reg, code, "nothing is left to be swept");
    return !code && !ret_garbage->runs ? plx_sql_fail(reg, PLX_ERR_NOMEM, "out of memory") : code;
}

int plx_registry_garbage_drop(struct plx_registry *reg, int64_t store, uint64_t extent)
{
    static const char drop[] = "DELETE FROM garbage WHERE store = ?1 AND extent = ?2";
    const struct plx_sql batch[] = {SQL(drop, SQL_INT(store), SQL_INT(extent))};

    return plx_sql_change(reg, batch, SQL_COUNT(batch), NULL, NULL);
}
