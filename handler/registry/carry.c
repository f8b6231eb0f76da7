/* carry.c - see carry.h.
 *
 *   step                                          a crash afterwards leaves in the target
 *   1 nobody has the store open in `from`         nothing
 *   2 what an earlier attempt left is deleted     a part of that, `arriving`
 *   3 the store's row enters, as `arriving`       an empty store, `arriving`
 *   4 rows, table by table, in batches            a part of the store, `arriving`
 *   5 nobody has come, and all is read again      all of it, `arriving`
 *   6 the row's state, if it is to be another     all of it
 *
 * CARRY-1  A store's row is `arriving` from the first statement on until all of its rows were read
 *     again and compared with what they were made from, column by column. What can be opened is
 *     whole.
 * CARRY-2  Rows are entered and deleted only where the store's row is in such a state and has the
 *     identity that the caller names; each transaction asks that again. So neither another copy of
 *     the store nor one that is in use is touched, whoever else is at work on the nodes.
 * CARRY-3  A store's row goes last. So whoever begins anew finds what is left, and rows are never
 *     without their store.
 * CARRY-4  A transaction has at most CARRY_ROWS rows, or BATCH_BYTES and one row; memory holds two
 *     pages at most.
 * CARRY-5  Nothing is carried that somebody uses: no instance is registered, and no disk and no
 *     extent has an owner, before the first row is read and after the last one.
 * CARRY-6  A row hangs only on rows of its own store (carry_tables.c).
 * CARRY-7  What is not `normal` or `leaving` is no source: it may be a part, or the very rows that
 *     step 2 would delete.
 * Threads: as registry.c.
 * Crash story: the table. Each step is repeated from the beginning, or plx_registry_drop() deletes
 *   what there is.
 */
#include "registry/carry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "registry/carry_inside.h"
#include "registry/instance.h"

#define BATCH_BYTES ((size_t)1 << 20)
#define WHY_TEXT 320
#define ROUNDS_MAX 100000u /* of deleting some rows of a table */

struct carry {
    struct plx_registry *from, *to;
    struct plx_registry_store row; /* as it is in `from` */
    int64_t to_id;
    const char *identity; /* NULL: none */
    struct plx_fault *fault;
};

static int fail_by(const struct plx_registry *reg, int code, struct plx_fault *fault)
{
    return plx_registry_fault(reg, code, fault);
}

/* ---- Looking ----------------------------------------------------------------------------- */

static int find(struct plx_registry *reg, const char *uuid, struct plx_registry_store *ret_store)
{
    int code = plx_registry_store_get(reg, uuid, ret_store);

    if (!code && strcmp(ret_store->uuid, uuid) != 0) /* one of that name */
        code = plx_sql_fail(reg, PLX_ERR_NOT_FOUND, "there is no store %.40s", uuid);
    return code;
}

static bool is_of(const struct plx_registry_store *store, const char *identity)
{
    return strcmp(store->identity, identity ? identity : "") == 0;
}

static void read_why(void *item, const struct plx_sql_value *columns)
{
    plx_sql_copy(item, WHY_TEXT, &columns[0]);
}

static const struct plx_sql_shape why_shape = {WHY_TEXT, read_why};

/* CARRY-5 */
static int refuse_used(struct carry *c)
{
    static const char used[] =
        "SELECT 'virtual disk ' || name || ' is locked by instance ' || owner FROM vdis"
        " WHERE store = ?1 AND owner IS NOT NULL"
        " UNION ALL SELECT 'extent ' || no || ' belongs to instance ' || owner FROM extents"
        " WHERE store = ?1 AND owner IS NOT NULL"
        " UNION ALL SELECT 'it is being made larger by ' || g.path || ', and ''parallax store"
        " add-volume'' finishes that' FROM growth g WHERE g.store = ?1 AND g.path IS NOT NULL"
        "  AND NOT EXISTS (SELECT 1 FROM volumes v WHERE v.store = ?1 AND v.path = g.path)"
        " LIMIT 1";
    const struct plx_sql statement = SQL(used, SQL_INT(c->row.id));
    struct plx_registry_instance *list;
    char why[WHY_TEXT];
    size_t count;
    int code = plx_registry_instance_list(c->from, c->row.id, &list, &count);

    if (code)
        return fail_by(c->from, code, c->fault);
    if (count)
        code = plx_fault_set(c->fault, PLX_ERR_BUSY,
                             "%s (pid %lld on %s) has store '%s' open; try again when it has ended",
                             plx_instance_kind(list[0].role), (long long)list[0].pid,
                             list[0].host_name, c->row.name);
    free(list);
    if (code)
        return code;
    code = plx_sql_get(c->from, &statement, &why_shape, why);
    if (code == PLX_ERR_NOT_FOUND)
        return 0;
    return code ? fail_by(c->from, code, c->fault)
                : plx_fault_set(c->fault, PLX_ERR_BUSY, "store '%s' is in use: %.300s", c->row.name,
                                why);
}

static int look_at_source(struct carry *c, const char *uuid)
{
    int code = find(c->from, uuid, &c->row);

    if (code)
        return fail_by(c->from, code, c->fault);
    if (c->row.state != PLX_STORE_NORMAL && c->row.state != PLX_STORE_LEAVING) /* CARRY-7 */
        return plx_fault_set(c->fault, PLX_ERR_BUSY,
                             "store '%s' is '%s' where it is to be carried from: it may be there "
                             "in part only",
                             c->row.name, plx_registry_state_word(c->row.state));
    return refuse_used(c);
}

/* ---- Deleting ---------------------------------------------------------------------------- */

/* CARRY-2. args must outlive it. */
static struct plx_sql still(int64_t store, const char *identity, enum plx_registry_state state,
                            struct plx_sql_value args[3])
{
    static const char text[] = "SELECT 1 FROM store s WHERE s.id = ?1 AND s.identity IS ?2"
                               " AND s.state IN ('arriving', ?3)"
                               " AND NOT EXISTS (SELECT 1 FROM instances i WHERE i.store = s.id)";
    const struct plx_sql_value row[3] = {
        SQL_INT(store),
        {identity ? PLX_SQL_TEXT : PLX_SQL_NULL, 0, identity},
        SQL_TEXT(plx_registry_state_word(state)),
    };

    memcpy(args, row, sizeof row);
    return (struct plx_sql){.text = text, .must = true, .quiet = true, .count = 3, .args = args};
}

static int not_still(struct plx_registry *reg, const struct plx_registry_store *store)
{
    return plx_sql_fail(reg, PLX_ERR_BUSY,
                        "the rows of store '%s' are in use, or somebody else carries them or has "
                        "deleted them; look again",
                        store->name);
}

static int erase_table(struct plx_registry *reg, const struct plx_registry_store *store,
                       const struct plx_carried *table, const struct plx_sql *guard)
{
    const struct plx_sql batch[] = {*guard, SQL_MUST(table->remove, SQL_INT(store->id))};

    for (unsigned round = 0; round < ROUNDS_MAX; round++) {
        int code = plx_sql_change(reg, batch, SQL_COUNT(batch), NULL, NULL);

        if (code == 1)
            return not_still(reg, store);
        if (code) /* 2: none is left */
            return code > 0 ? 0 : code;
    }
    return plx_sql_fail(reg, PLX_ERR_REGISTRY, "rows that were deleted do not go (%s)",
                        table->name);
}

/* Deletes a store that is `arriving`, or in this state. */
static int erase(struct plx_registry *reg, const struct plx_registry_store *store,
                 const char *identity, enum plx_registry_state state)
{
    static const char remove[] = "DELETE FROM store WHERE id = ?1 RETURNING id";
    struct plx_sql_value args[3];
    const struct plx_sql guard = still(store->id, identity, state, args);
    const struct plx_sql batch[] = {
        guard,
        SQL_MUST(remove, SQL_INT(store->id)),
        SQL_EVENT(reg, "store drop", store->name, store->uuid),
    };
    int code = 0;

    for (size_t i = plx_carried_count; i-- > 0 && !code;) /* CARRY-3 */
        if (plx_carried_tables[i].remove)
            code = erase_table(reg, store, &plx_carried_tables[i], &guard);
    if (!code)
        code = plx_sql_change(reg, batch, SQL_COUNT(batch), NULL, NULL);
    return code > 0 ? not_still(reg, store) : code;
}

int plx_registry_drop(struct plx_registry *reg, const char *uuid, const char *identity,
                      struct plx_fault *fault)
{
    struct plx_registry_store store;
    int code = find(reg, uuid, &store);

    if (code == PLX_ERR_NOT_FOUND)
        return 0;
    if (code)
        return fail_by(reg, code, fault);
    if (!is_of(&store, identity))
        return plx_fault_set(fault, PLX_ERR_BUSY,
                             "the registry has store '%s' of another copy (%s), whose rows stay",
                             store.name, store.identity[0] ? store.identity : "not said which");
    if (store.state != PLX_STORE_ARRIVING && store.state != PLX_STORE_LEAVING)
        return plx_fault_set(fault, PLX_ERR_BUSY,
                             "store '%s' is '%s' in the registry, and its rows stay", store.name,
                             plx_registry_state_word(store.state));
    code = erase(reg, &store, identity, PLX_STORE_LEAVING);
    return code ? fail_by(reg, code, fault) : 0;
}

/* ---- Copying ----------------------------------------------------------------------------- */

/* What is there of the store in the target, and goes if an earlier attempt has left it. */
static int make_place(struct carry *c)
{
    struct plx_registry_store there;
    int code = find(c->to, c->row.uuid, &there);

    if (code == PLX_ERR_NOT_FOUND)
        return 0;
    if (code)
        return fail_by(c->to, code, c->fault);
    if (!is_of(&there, c->identity))
        return plx_fault_set(c->fault, PLX_ERR_EXISTS,
                             "another copy of store '%s' has its rows there already: '%s', with "
                             "identity %s; two copies of a store cannot be in one cluster",
                             c->row.name, there.name,
                             there.identity[0] ? there.identity : "not said");
    if (there.state != PLX_STORE_ARRIVING)
        return plx_fault_set(c->fault, PLX_ERR_EXISTS,
                             "store '%s' has its rows there already, and is '%s'", there.name,
                             plx_registry_state_word(there.state));
    code = erase(c->to, &there, c->identity, PLX_STORE_ARRIVING);
    return code ? fail_by(c->to, code, c->fault) : 0;
}

static int enter_store(struct carry *c)
{
    static const char insert[] =
        "INSERT INTO store (uuid, name, extent_blocks, created_ns, identity, state)"
        " VALUES (?1, ?2, ?3, ?4, ?5, 'arriving')";
    const struct plx_registry_store *row = &c->row;
    const struct plx_sql_value identity = {c->identity ? PLX_SQL_TEXT : PLX_SQL_NULL, 0,
                                           c->identity};
    const struct plx_sql batch[] = {
        SQL(insert, SQL_TEXT(row->uuid), SQL_TEXT(row->name), SQL_INT(row->extent_blocks),
            SQL_INT(row->created_ns), identity),
        SQL_EVENT(c->to, "store carry", row->name, row->uuid),
    };
    struct plx_registry_store there;
    int code = plx_sql_change(c->to, batch, SQL_COUNT(batch), NULL, NULL);

    if (code == PLX_ERR_EXISTS)
        return plx_fault_set(c->fault, code,
                             "another store is called '%s' there; two stores of a cluster cannot "
                             "have one name",
                             row->name);
    if (!code)
        code = find(c->to, row->uuid, &there);
    if (code)
        return fail_by(c->to, code, c->fault);
    c->to_id = there.id;
    return 0;
}

static size_t bytes_of(const struct plx_carried *table, const struct plx_carried_row *row)
{
    size_t bytes = sizeof *row;

    for (size_t i = 1; i <= table->columns; i++)
        if (row->value[i].kind == PLX_SQL_TEXT)
            bytes += strlen(row->value[i].text);
    return bytes;
}

static int put_batch(struct carry *c, const struct plx_carried *table, const struct plx_sql *batch,
                     size_t count)
{
    int code = plx_sql_change(c->to, batch, count, NULL, NULL);

    if (code > 0)
        code = not_still(c->to, &c->row);
    if (code == PLX_ERR_EXISTS)
        return plx_fault_set(c->fault, code,
                             "store '%s' has something in '%s' that another store has there "
                             "already: one of them is a copy of the other (%.150s)",
                             c->row.name, table->name, plx_registry_error(c->to));
    return code ? fail_by(c->to, code, c->fault) : 0;
}

/* CARRY-4: the rows of a page. */
static int put_page(struct carry *c, struct plx_carried_pages *pages)
{
    const struct plx_carried *table = pages->table;
    struct plx_sql batch[1 + CARRY_ROWS];
    struct plx_sql_value args[3];
    size_t count = 1, bytes = 0;
    int code = 0;

    batch[0] = still(c->to_id, c->identity, PLX_STORE_ARRIVING, args);
    for (size_t i = 0; i < pages->count && !code; i++) {
        struct plx_carried_row *row = &pages->rows[i];

        row->value[0] = (struct plx_sql_value)SQL_INT(c->to_id);
        batch[count++] = (struct plx_sql){
            .text = table->insert, .count = 1 + table->columns, .args = row->value};
        bytes += bytes_of(table, row);
        if (i + 1 < pages->count && bytes < BATCH_BYTES)
            continue;
        code = put_batch(c, table, batch, count);
        count = 1;
        bytes = 0;
    }
    return code;
}

static int copy_table(struct carry *c, const struct plx_carried *table)
{
    struct plx_carried_pages pages;
    bool more = true;
    int code = plx_carried_begin(c->from, c->row.id, table, &pages);

    if (code)
        fail_by(c->from, code, c->fault);
    while (!code && more) {
        code = plx_carried_next(&pages);
        more = pages.count > 0;
        if (code)
            fail_by(c->from, code, c->fault);
        else
            code = put_page(c, &pages);
    }
    plx_carried_done(&pages);
    return code;
}

/* ---- Comparing --------------------------------------------------------------------------- */

static bool same_value(const struct plx_sql_value *a, const struct plx_sql_value *b)
{
    if (a->kind != b->kind)
        return false;
    if (a->kind == PLX_SQL_TEXT)
        return strcmp(a->text, b->text) == 0;
    return a->kind == PLX_SQL_NULL || a->number == b->number;
}

static bool same_page(const struct plx_carried_pages *a, const struct plx_carried_pages *b)
{
    bool same = a->count == b->count;

    for (size_t i = 0; same && i < a->count; i++)
        for (size_t column = 1; same && column <= a->table->columns; column++)
            same = same_value(&a->rows[i].value[column], &b->rows[i].value[column]);
    return same;
}

static int next_of(struct carry *c, struct plx_carried_pages *pages)
{
    int code = plx_carried_next(pages);

    return code ? fail_by(pages->reg, code, c->fault) : 0;
}

/* CARRY-1 */
static int compare_table(struct carry *c, const struct plx_carried *table)
{
    struct plx_carried_pages from = {0}, to = {0};
    bool more = true;
    int code = plx_carried_begin(c->from, c->row.id, table, &from);

    if (code)
        fail_by(c->from, code, c->fault);
    else if ((code = plx_carried_begin(c->to, c->to_id, table, &to)))
        fail_by(c->to, code, c->fault);
    while (!code && more) {
        code = next_of(c, &from);
        if (!code)
            code = next_of(c, &to);
        if (!code && !same_page(&from, &to))
            code = plx_fault_set(c->fault, PLX_ERR_REGISTRY,
                                 "the copy of store '%s' is not what it was made from (%s); one of "
                                 "the two registries is damaged, or has changed meanwhile",
                                 c->row.name, table->name);
        more = from.count > 0;
    }
    plx_carried_done(&from);
    plx_carried_done(&to);
    return code;
}

/* ---- All of it --------------------------------------------------------------------------- */

static int carry_rows(struct carry *c)
{
    int code = make_place(c);

    if (!code)
        code = enter_store(c);
    for (size_t i = 0; i < plx_carried_count && !code; i++)
        code = copy_table(c, &plx_carried_tables[i]);
    if (!code)
        code = refuse_used(c);
    for (size_t i = 0; i < plx_carried_count && !code; i++)
        code = compare_table(c, &plx_carried_tables[i]);
    return code;
}

int plx_registry_carry(struct plx_registry *from, struct plx_registry *to, const char *uuid,
                       const char *identity, enum plx_registry_state state, struct plx_fault *fault)
{
    struct carry c = {.from = from, .to = to, .identity = identity, .fault = fault};
    int code;

    PLX_ASSERT(state == PLX_STORE_ARRIVING || state == PLX_STORE_NORMAL);
    code = plx_registry_settle(from); /* pages are read beside what was put off */
    if (code)
        return fail_by(from, code, fault);
    code = look_at_source(&c, uuid);
    if (!code)
        code = carry_rows(&c);
    if (code || state == PLX_STORE_ARRIVING)
        return code;
    code = plx_registry_store_move(to, c.to_id, PLX_STORE_ARRIVING, state);
    return code ? fail_by(to, code, fault) : 0;
}
