/* extents.c - which instance allocates in which extent.
 *
 * Life of an extent's row (see also engine/space/README.md for its header on the store):
 *
 *   1 no row     never used. A claim or a reserve makes rows, in the order of the numbers
 *   2 unused     owner NULL, holds nothing
 *   3 owned      claim (from 2 or 4) or take (from 3, 4 or 5) raised the generation
 *   4 ownerless  released with free blocks: can be claimed again
 *   5 sealed     released as full, or not to be believed (states = PLX_STATES_NEVER, for good)
 *   - system     the superblock's and registry's; never owned
 *
 * A release leads from 3 to 2, 4 or 5. A crash of the owner leaves 3, until another instance takes
 * the extent over. A claimer that dies before it wrote the extent's header leaves no header either:
 * whoever takes the extent over treats it as empty.
 *
 * EXTENTS-1  An extent has at most one owner. Claim, take and release compare the owner they
 *     expect, and a release also the generation, so two instances never allocate in one extent.
 * EXTENTS-2  In each range every extent below volumes.touched has a row, and none above has. When
 *     no unused row is left, a claim makes the next one. So the rows of a volume cost what was used
 *     of it, not its size.
 * EXTENTS-3  The generation rises with every new owner. So an old grant never passes for the
 *     present one, even if the same instance gets the extent again.
 * Threads and crash story: as registry.c, and above.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "registry/sql.h"

#define EXTENT_COLUMNS                                                                             \
    "no, type, coalesce(owner, 0), sealed, generation, free_blocks, states,"                       \
    " coalesce((SELECT number - (number % 2 = 1 AND instance IS owner) FROM collections c"         \
    "  WHERE c.store = extents.store), 0)"

static const char *const type_names[] = {
    [PLX_EXTENT_UNUSED] = "unused",
    [PLX_EXTENT_SYSTEM] = "system",
    [PLX_EXTENT_DATA] = "data",
    [PLX_EXTENT_META] = "meta",
};

static void read_extent(void *item, const struct plx_sql_value *columns)
{
    struct plx_registry_extent *extent = item;

    extent->no = (uint64_t)columns[0].number;
    for (int i = PLX_EXTENT_UNUSED; i <= PLX_EXTENT_META; i++)
        if (columns[1].text[0] == type_names[i][0])
            extent->type = (enum plx_extent_type)i;
    extent->owner = (uint64_t)columns[2].number;
    extent->sealed = columns[3].number != 0;
    extent->generation = (uint64_t)columns[4].number;
    extent->free_blocks = (uint64_t)columns[5].number;
    extent->states = (uint64_t)columns[6].number;
    extent->collections = (uint64_t)columns[7].number;
}

static const struct plx_sql_shape extent_shape = {sizeof(struct plx_registry_extent), read_extent};

/* The audit event of a change of one extent, which request_id finds. */
static const char event_extent[] =
    "INSERT INTO events (time_ns, who, what, subject, detail)"
    " SELECT ?1, ?2, ?3, 'extent ' || no, type || ', owner ' || coalesce(owner, 'none')"
    " || ', sealed ' || sealed || ', generation ' || generation"
    " FROM extents WHERE request_id = ?4";
#define SQL_EVENT_EXTENT(reg, what, request)                                                       \
    SQL_EXTRA(event_extent, SQL_INT(plx_sql_now()), SQL_TEXT((reg)->who), SQL_TEXT(what),          \
              SQL_INT(request))

/* ---- Getting ----------------------------------------------------------------------------- */

struct claimed {
    struct plx_registry_extent extent;
    bool fresh;
};

static void read_claimed(void *item, const struct plx_sql_value *columns)
{
    struct claimed *claimed = item;

    read_extent(&claimed->extent, columns);
    claimed->fresh = columns[8].number != 0;
}

static const struct plx_sql_shape claimed_shape = {sizeof(struct claimed), read_claimed};

static int no_extent_left(struct plx_registry *reg, enum plx_extent_type type)
{
    if (plx_sql_left_out(reg, PLX_SQL_LEAVES_EXTENT))
        return plx_sql_fail(reg, PLX_ERR_NOSPACE,
                            "the registry has no room for extents that were never used; delete "
                            "VDIs or snapshots" PLX_SQL_MORE_ROOM);
    return plx_sql_fail(reg, PLX_ERR_NOSPACE,
                        "the store has no %s extent left; delete VDIs "
                        "or snapshots, or add a volume",
                        type_names[type]);
}

int plx_registry_extent_claim(struct plx_registry *reg, int64_t store, uint64_t instance,
                              enum plx_extent_type type, uint64_t keep_unused,
                              struct plx_registry_extent *ret_extent, bool *ret_fresh)
{
    /* EXTENTS-2: where no unused row is left, the next extent of the first range with room gets
     * one. */
    static const char touch[] =
        "INSERT INTO extents (store, no) SELECT store, first_extent + touched FROM volumes"
        " WHERE store = ?1 AND touched < extents AND NOT EXISTS (SELECT 1 FROM extents"
        "  INDEXED BY extents_free WHERE store = ?1 AND type = 'unused' AND owner IS NULL"
        "  AND sealed = 0)"
        " ORDER BY first_extent LIMIT 1";
    static const char touched[] =
        "UPDATE volumes SET touched = touched + 1"
        " WHERE store = ?1 AND touched < extents AND EXISTS (SELECT 1 FROM extents e"
        " WHERE e.store = ?1 AND e.no = volumes.first_extent + volumes.touched)";
    /* An unused extent's free_blocks is 0 until its first release. Unused rows are counted only as
     * far as the reserve (?4) needs. EXTENTS-3: raises the generation. */
    static const char claim[] =
        "UPDATE extents SET owner = ?2, type = ?3, generation = generation + 1, request_id = ?5,"
        "  free_blocks = CASE type WHEN 'unused' THEN 0 ELSE free_blocks END"
        " WHERE store = ?1 AND NOT EXISTS (SELECT 1 FROM extents WHERE request_id = ?5)"
        " AND no = coalesce("
        "  (SELECT no FROM extents INDEXED BY extents_free WHERE store = ?1 AND type = ?3"
        "   AND owner IS NULL AND sealed = 0 AND free_blocks > 0 ORDER BY no LIMIT 1),"
        "  (SELECT no FROM extents INDEXED BY extents_free WHERE store = ?1 AND type = 'unused'"
        "   AND owner IS NULL AND sealed = 0 AND ?4 <"
        "    (SELECT coalesce(sum(extents - touched), 0) FROM volumes WHERE store = ?1) +"
        "    (SELECT count(*) FROM (SELECT 1 FROM extents INDEXED BY extents_free"
        "     WHERE store = ?1 AND type = 'unused' AND owner IS NULL AND sealed = 0"
        "     LIMIT ?4 + 1)) ORDER BY no LIMIT 1))";
    static const char result[] = "SELECT " EXTENT_COLUMNS ", free_blocks = 0 FROM extents"
                                 " WHERE request_id = ?1";
    uint64_t request = plx_id_random();
    struct plx_sql batch[] = {
        {.text = touch, .leaves = PLX_SQL_LEAVES_EXTENT, SQL_ARGS(SQL_INT(store))},
        SQL(touched, SQL_INT(store)),
        SQL(claim, SQL_INT(store), SQL_INT(instance), SQL_TEXT(type_names[type]),
            SQL_INT(keep_unused), SQL_INT(request)),
        SQL_EVENT_EXTENT(reg, "extent claim", request),
        SQL_MUST(result, SQL_INT(request)),
    };
    struct claimed claimed;
    int code;

    PLX_ASSERT(type == PLX_EXTENT_DATA || type == PLX_EXTENT_META);
    if (!instance || keep_unused >= INT64_MAX)
        return plx_sql_fail(reg, PLX_ERR_INVALID,
                            "an extent is claimed by an instance, with a "
                            "reserve below 2^63");
    code = plx_sql_change(reg, batch, SQL_COUNT(batch), &claimed_shape, &claimed);
    if (code > 0)
        return no_extent_left(reg, type);
    if (code == PLX_ERR_BUSY) /* foreign key: no such instance */
        return plx_sql_fail(reg, PLX_ERR_NOT_FOUND, "instance %llu is not registered",
                            (unsigned long long)instance);
    if (code == PLX_ERR_EXISTS) /* EXTENTS-2 does not hold: a page of the registry went back */
        return plx_sql_fail(reg, PLX_ERR_REGISTRY,
                            "the registry contradicts itself: an extent that was never used is in "
                            "it; 'parallax store rebuild-registry' rebuilds it from the store");
    if (code)
        return code;
    *ret_extent = claimed.extent;
    *ret_fresh = claimed.fresh;
    return 0;
}

static void read_run(void *item, const struct plx_sql_value *columns)
{
    struct plx_registry_range *run = item;

    run->first = (uint64_t)columns[0].number;
    run->extents = (uint64_t)columns[1].number;
}

static const struct plx_sql_shape run_shape = {sizeof(struct plx_registry_range), read_run};

int plx_registry_extent_reserve(struct plx_registry *reg, int64_t store, uint64_t least,
                                uint64_t most, struct plx_registry_range *ret_run)
{
    /* EXTENTS-2: makes the next rows of the range with the most extents that have none. */
    static const char reserve[] =
        "WITH RECURSIVE run (no, last) AS (SELECT * FROM ("
        "  SELECT first_extent + touched, first_extent + touched - 1 + min(?3, extents - touched)"
        "   FROM volumes WHERE store = ?1 AND idx = 0 AND touched < extents"
        "   AND extents - touched >= ?2 AND NOT EXISTS (SELECT 1 FROM extents WHERE request_id = "
        "?4)"
        "   ORDER BY extents - touched DESC LIMIT 1)"
        "  UNION ALL SELECT no + 1, last FROM run WHERE no < last)"
        " INSERT INTO extents (store, no, type, request_id) SELECT ?1, no, 'system', ?4 FROM run";
    static const char mark[] =
        "UPDATE volumes SET touched = touched +"
        " (SELECT count(*) FROM extents WHERE request_id = ?2) WHERE store = ?1 AND idx = 0"
        " AND first_extent + touched = (SELECT min(no) FROM extents WHERE request_id = ?2)";
    static const char result[] = "SELECT min(no), count(*) FROM extents WHERE request_id = ?1"
                                 " HAVING count(*) > 0";
    uint64_t request = plx_id_random();
    struct plx_sql batch[] = {
        SQL(reserve, SQL_INT(store), SQL_INT(least), SQL_INT(most), SQL_INT(request)),
        SQL(mark, SQL_INT(store), SQL_INT(request)),
        SQL_MUST(result, SQL_INT(request)),
        SQL_EVENT(reg, "extent reserve", "the registry's", ""),
    };
    int code = plx_sql_change(reg, batch, SQL_COUNT(batch), &run_shape, ret_run);

    return code > 0 ? plx_sql_fail(reg, PLX_ERR_NOT_FOUND,
                                   "volume 0 has not enough extents left that were never used")
                    : code;
}

int plx_registry_extent_system(struct plx_registry *reg, int64_t store,
                               struct plx_registry_extent **ret_list, size_t *ret_count)
{
    static const char list[] = "SELECT " EXTENT_COLUMNS " FROM extents INDEXED BY extents_free"
                               " WHERE store = ?1 AND type = 'system' AND owner IS NULL"
                               " AND sealed = 0 ORDER BY no";
    struct plx_sql statement = SQL(list, SQL_INT(store));

    return plx_sql_list(reg, &statement, &extent_shape, (void **)ret_list, ret_count);
}

int plx_registry_extent_seal(struct plx_registry *reg, int64_t store, uint64_t no)
{
    static const char seal[] = "UPDATE extents SET type = 'data', sealed = 1, states = ?3,"
                               " free_blocks = 0, request_id = ?4"
                               " WHERE store = ?1 AND no = ?2 AND owner IS NULL RETURNING no";
    uint64_t request = plx_id_random();
    struct plx_sql batch[] = {
        SQL_MUST(seal, SQL_INT(store), SQL_INT(no), SQL_INT(PLX_STATES_NEVER), SQL_INT(request)),
        SQL_EVENT_EXTENT(reg, "extent seal", request),
    };
    int code = plx_sql_change(reg, batch, SQL_COUNT(batch), NULL, NULL);

    return code > 0 ? plx_sql_fail(reg, PLX_ERR_BUSY,
                                   "extent %llu must be sealed, and is in use by an instance; "
                                   "try again when that has ended",
                                   (unsigned long long)no)
                    : code;
}

static int get_extent(struct plx_registry *reg, int64_t store, uint64_t no,
                      struct plx_registry_extent *ret_extent)
{
    static const char get[] = "SELECT " EXTENT_COLUMNS " FROM extents WHERE store = ?1 AND no = ?2";
    struct plx_sql statement = SQL(get, SQL_INT(store), SQL_INT(no));
    int code = plx_sql_get(reg, &statement, &extent_shape, ret_extent);

    if (code == PLX_ERR_NOT_FOUND)
        plx_sql_fail(reg, code, "extent %llu was never used", (unsigned long long)no);
    return code;
}

int plx_registry_extent_take(struct plx_registry *reg, int64_t store, uint64_t no, uint64_t owner,
                             uint64_t instance, struct plx_registry_extent *ret_extent)
{
    /* EXTENTS-1, EXTENTS-3 */
    static const char take[] = "UPDATE extents SET owner = ?4, sealed = 0, request_id = ?5,"
                               "  generation = generation + (request_id IS NOT ?5)"
                               " WHERE store = ?1 AND no = ?2 AND type IN ('data', 'meta')"
                               " AND (owner IS ?3 AND states < ?6 OR request_id = ?5)"
                               " RETURNING no";
    static const char taken[] = "SELECT " EXTENT_COLUMNS " FROM extents WHERE request_id = ?1";
    uint64_t request = plx_id_random();
    struct plx_sql batch[] = {
        SQL_MUST(take, SQL_INT(store), SQL_INT(no), SQL_ID(owner), SQL_INT(instance),
                 SQL_INT(request), SQL_INT(PLX_STATES_NEVER)),
        SQL_EVENT_EXTENT(reg, "extent take", request),
        SQL_MUST(taken, SQL_INT(request)),
    };
    struct plx_registry_extent now;
    int code = plx_sql_change(reg, batch, SQL_COUNT(batch), &extent_shape, ret_extent);

    if (code == PLX_ERR_BUSY)
        return plx_sql_fail(reg, PLX_ERR_NOT_FOUND, "instance %llu is not registered",
                            (unsigned long long)instance);
    if (code <= 0)
        return code;
    code = get_extent(reg, store, no, &now);
    if (code)
        return code;
    if (now.type != PLX_EXTENT_DATA && now.type != PLX_EXTENT_META)
        return plx_sql_fail(reg, PLX_ERR_INVALID, "extent %llu is %s", (unsigned long long)no,
                            type_names[now.type]);
    if (!now.owner)
        return plx_sql_fail(reg, PLX_ERR_BUSY, "extent %llu is not to be believed",
                            (unsigned long long)no);
    return plx_sql_fail(reg, PLX_ERR_BUSY, "extent %llu belongs to instance %llu",
                        (unsigned long long)no, (unsigned long long)now.owner);
}

/* ---- Giving back ------------------------------------------------------------------------- */

#define RELEASE_ARGS 9

/* The statement that releases one extent; it must find a row (EXTENTS-1). args must outlive it. */
static struct plx_sql release(int64_t store, const struct plx_registry_extent *extent,
                              uint64_t request, struct plx_sql_value args[RELEASE_ARGS])
{
    static const char text[] =
        "UPDATE extents SET owner = NULL, type = ?5, sealed = ?6, free_blocks = ?7,"
        " request_id = ?8, states = ?9 WHERE store = ?1 AND no = ?2 AND generation = ?4"
        " AND (owner = ?3 OR request_id = ?8) AND (?5 = 'unused' OR type = ?5) RETURNING no";
    bool unused = extent->type == PLX_EXTENT_UNUSED;
    const struct plx_sql_value row[RELEASE_ARGS] = {
        SQL_INT(store),
        SQL_INT(extent->no),
        SQL_INT(extent->owner),
        SQL_INT(extent->generation),
        SQL_TEXT(type_names[extent->type]),
        SQL_INT(!unused && extent->sealed),
        SQL_INT(unused ? 0 : extent->free_blocks),
        SQL_INT(request),
        SQL_INT(extent->states),
    };

    memcpy(args, row, sizeof row);
    return (struct plx_sql){.text = text, .must = true, .count = RELEASE_ARGS, .args = args};
}

static int not_released(struct plx_registry *reg, const struct plx_registry_extent *extent)
{
    return plx_sql_fail(
        reg, PLX_ERR_FENCED,
        "extent %llu of generation %llu does not belong to instance %llu (any more)",
        (unsigned long long)extent->no, (unsigned long long)extent->generation,
        (unsigned long long)extent->owner);
}

int plx_registry_extent_release(struct plx_registry *reg, int64_t store,
                                const struct plx_registry_extent *extent)
{
    struct plx_sql_value args[RELEASE_ARGS];
    uint64_t request = plx_id_random();
    struct plx_sql batch[] = {
        release(store, extent, request, args),
        SQL_EVENT_EXTENT(reg, "extent release", request),
    };
    int code = plx_sql_change(reg, batch, SQL_COUNT(batch), NULL, NULL);

    return code > 0 ? not_released(reg, extent) : code;
}

int plx_registry_instance_leave(struct plx_registry *reg, int64_t store, uint64_t instance,
                                const struct plx_registry_extent *list, size_t count)
{
    static const char remove[] = "DELETE FROM instances WHERE id = ?1 RETURNING id";
    struct plx_sql_value(*args)[RELEASE_ARGS] = calloc(count + 1, sizeof *args);
    struct plx_sql *batch = calloc(count + 2, sizeof *batch);
    const struct plx_sql_value id[] = {SQL_INT(instance)};
    char text[24], detail[40];
    const struct plx_sql event = SQL_EVENT(reg, "instance stop", text, detail);
    int code = PLX_ERR_NOMEM;

    snprintf(text, sizeof text, "%llu", (unsigned long long)instance);
    snprintf(detail, sizeof detail, "gave back %zu extent%s", count, plx_plural(count));
    for (size_t i = 0; args && batch && i < count; i++)
        batch[i] = release(store, &list[i], plx_id_random(), args[i]);
    if (args && batch) {
        batch[count] = (struct plx_sql){.text = remove, .must = true, .count = 1, .args = id};
        batch[count + 1] = event;
        code = plx_sql_change(reg, batch, count + 2, NULL, NULL);
    } else {
        plx_sql_fail(reg, code, "out of memory changing the registry");
    }
    free(args);
    free(batch);
    if (code == PLX_ERR_BUSY)
        return plx_sql_fail(reg, code, "instance %s still owns locks or extents", text);
    if (code == (int)count + 1)
        return plx_sql_fail(reg, PLX_ERR_NOT_FOUND, "instance %s is not registered", text);
    return code > 0 ? not_released(reg, &list[code - 1]) : code;
}

/* ---- Looking ----------------------------------------------------------------------------- */

static int compare_numbers(const void *a, const void *b)
{
    return plx_compare_u64(&((const struct plx_registry_extent *)a)->no,
                           &((const struct plx_registry_extent *)b)->no);
}

int plx_registry_extent_list(struct plx_registry *reg, int64_t store, uint64_t owner,
                             struct plx_registry_extent **ret_list, size_t *ret_count)
{
    static const char owned[] = "SELECT " EXTENT_COLUMNS " FROM extents"
                                " WHERE owner = ?2 AND store = ?1 ORDER BY no";
    static const char free[] = "SELECT " EXTENT_COLUMNS " FROM extents"
                               " WHERE store = ?1 AND owner IS NULL ORDER BY no";
    static const char any[] = "SELECT " EXTENT_COLUMNS " FROM extents WHERE store = ?1 ORDER BY no";
    struct plx_sql statement = SQL(owned, SQL_INT(store), SQL_INT(owner));
    int code;

    if (owner == 0 || owner == PLX_REGISTRY_ANY) {
        statement.text = owner ? any : free;
        statement.count = 1;
    }
    code = plx_sql_list(reg, &statement, &extent_shape, (void **)ret_list, ret_count);
    if (!code && *ret_count && (*ret_list)[0].no > INT64_MAX) /* to SQL these are negative */
        qsort(*ret_list, *ret_count, sizeof **ret_list, compare_numbers);
    return code;
}

static void read_counts(void *item, const struct plx_sql_value *columns)
{
    struct plx_registry_extent_counts *counts = item;
    uint64_t *fields[] = {&counts->total, &counts->system, &counts->data,       &counts->meta,
                          &counts->owned, &counts->sealed, &counts->disbelieved};

    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        *fields[i] = (uint64_t)columns[i].number;
    counts->unused = counts->total - counts->system - counts->data - counts->meta;
}

static const struct plx_sql_shape counts_shape = {sizeof(struct plx_registry_extent_counts),
                                                  read_counts};

int plx_registry_extent_count(struct plx_registry *reg, int64_t store,
                              struct plx_registry_extent_counts *ret_counts)
{
    static const char count[] =
        "SELECT (SELECT coalesce(sum(extents), 0) FROM volumes WHERE store = ?1),"
        " coalesce(sum(type = 'system'), 0), coalesce(sum(type = 'data'), 0),"
        " coalesce(sum(type = 'meta'), 0), count(owner), coalesce(sum(sealed), 0),"
        " coalesce(sum(states = ?2), 0) FROM extents WHERE store = ?1";
    struct plx_sql statement = SQL(count, SQL_INT(store), SQL_INT(PLX_STATES_NEVER));

    return plx_sql_get(reg, &statement, &counts_shape, ret_counts);
}

static void read_blocks(void *item, const struct plx_sql_value *columns)
{
    *(uint64_t *)item = (uint64_t)columns[0].number;
}

static const struct plx_sql_shape blocks_shape = {sizeof(uint64_t), read_blocks};

int plx_registry_extent_torn_ranges(struct plx_registry *reg, int64_t store, uint64_t *ret_count)
{
    static const char torn[] =
        "SELECT count(*) FROM volumes v WHERE store = ?1 AND (touched <>"
        "  (SELECT count(*) FROM extents e WHERE e.store = ?1"
        "   AND e.no >= first_extent AND e.no < first_extent + touched)"
        " OR EXISTS (SELECT 1 FROM extents e WHERE e.store = ?1"
        "   AND e.no >= first_extent + touched AND e.no < first_extent + v.extents))";
    struct plx_sql statement = SQL(torn, SQL_INT(store));

    return plx_sql_get(reg, &statement, &blocks_shape, ret_count);
}

int plx_registry_extent_room(struct plx_registry *reg, int64_t store, uint64_t keep_unused,
                             uint64_t limit, uint64_t *ret_blocks)
{
    static const char room[] =
        "SELECT extent_blocks * min(?3, max(0, -?2 +"
        "  (SELECT coalesce(sum(extents - touched), 0) FROM volumes WHERE store = ?1) +"
        "  (SELECT count(*) FROM (SELECT 1 FROM extents INDEXED BY extents_free"
        "   WHERE store = ?1 AND type = 'unused' AND owner IS NULL AND sealed = 0"
        "   LIMIT ?2 + ?3)))) +"
        " (SELECT coalesce(sum(free_blocks), 0) FROM (SELECT free_blocks FROM extents"
        "   INDEXED BY extents_free WHERE store = ?1 AND type = 'data' AND owner IS NULL"
        "   AND sealed = 0 LIMIT ?3)) FROM store WHERE id = ?1";
    struct plx_sql statement = SQL(room, SQL_INT(store), SQL_INT(keep_unused), SQL_INT(limit));

    return plx_sql_get(reg, &statement, &blocks_shape, ret_blocks);
}

/* ---- Rebuilding -------------------------------------------------------------------------- */

#define IMPORT_BATCH 256

static int import_some(struct plx_registry *reg, int64_t store,
                       const struct plx_registry_extent *list, size_t count)
{
    static const char put[] =
        "INSERT INTO extents (store, no, type, owner, sealed, generation, free_blocks, states)"
        " SELECT store, ?2, ?3, ?4, ?5, ?6, ?7, ?8 FROM volumes"
        " WHERE store = ?1 AND ?2 >= first_extent AND ?2 < first_extent + extents"
        " ON CONFLICT (store, no) DO UPDATE SET type = excluded.type, owner = excluded.owner,"
        "  sealed = excluded.sealed, generation = max(generation, excluded.generation),"
        "  free_blocks = excluded.free_blocks, states = excluded.states RETURNING no";
    /* EXTENTS-2: first the missing rows below a range's last row, then volumes.touched. */
    static const char fill[] =
        "WITH RECURSIVE gap (no, last) AS ("
        " SELECT first_extent + touched, (SELECT max(no) FROM extents WHERE store = ?1"
        "  AND no >= first_extent AND no < first_extent + volumes.extents)"
        " FROM volumes WHERE store = ?1"
        " UNION ALL SELECT no + 1, last FROM gap WHERE no < last)"
        " INSERT INTO extents (store, no) SELECT ?1, no FROM gap WHERE no <= last"
        " ON CONFLICT (store, no) DO NOTHING";
    /* What a collection found in these extents earlier is not valid any more. */
    static const char forget[] = "DELETE FROM garbage WHERE store = ?1";
    static const char mark[] = /* a range that was added later need not have a row */
        "UPDATE volumes SET touched = max(touched, 1 + coalesce((SELECT max(no) FROM extents"
        "  WHERE store = ?1 AND no >= first_extent AND no < first_extent + volumes.extents)"
        "  - first_extent, -1)) WHERE store = ?1";
    const struct plx_sql_value store_arg[] = {SQL_INT(store)};
    struct plx_sql_value args[IMPORT_BATCH][8];
    struct plx_sql batch[IMPORT_BATCH + 3];
    int code;

    for (size_t i = 0; i < count; i++) {
        const struct plx_registry_extent *e = &list[i];
        const struct plx_sql_value row[] = {
            SQL_INT(store),          SQL_INT(e->no),     SQL_TEXT(type_names[e->type]),
            SQL_ID(e->owner),        SQL_INT(e->sealed), SQL_INT(e->generation),
            SQL_INT(e->free_blocks), SQL_INT(e->states),
        };

        for (size_t column = 0; column < 8; column++)
            args[i][column] = row[column];
        batch[i] = (struct plx_sql){.text = put, .must = true, .count = 8, .args = args[i]};
    }
    batch[count] = (struct plx_sql){.text = fill, .count = 1, .args = store_arg};
    batch[count + 1] = (struct plx_sql){.text = mark, .count = 1, .args = store_arg};
    batch[count + 2] = (struct plx_sql){.text = forget, .count = 1, .args = store_arg};
    code = plx_sql_change(reg, batch, count + 3, NULL, NULL);
    if (code > 0)
        return plx_sql_fail(reg, PLX_ERR_INVALID, "extent %llu lies outside the store",
                            (unsigned long long)list[code - 1].no);
    if (code == PLX_ERR_BUSY)
        return plx_sql_fail(reg, PLX_ERR_NOT_FOUND, "an extent's owner was not imported before");
    return code;
}

int plx_registry_import_extents(struct plx_registry *reg, int64_t store,
                                const struct plx_registry_extent *list, size_t count)
{
    int code = 0;

    for (size_t at = 0; at < count && !code; at += IMPORT_BATCH)
        code = import_some(reg, store, list + at,
                           count - at < IMPORT_BATCH ? count - at : IMPORT_BATCH);
    return code;
}
