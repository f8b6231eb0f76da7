/* rqlite_open.c - opening a registry on rqlite nodes: recognising and migrating it (RQLITE-9). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "registry/clock.h"
#include "registry/rqlite_inside.h"
#include "registry/schema.h"

/* As SQLite keeps the text. */
#define SESSIONS                                                                                   \
    "requests (client INTEGER PRIMARY KEY AUTOINCREMENT, number INTEGER NOT NULL,"                 \
    " seen_ns INTEGER NOT NULL) STRICT"
#define EXECUTE "/db/execute?transaction&noparse&timeout=2s"

/* What one look at the database says. */
struct found {
    int64_t tables, ours, requests, references, number;
    bool strange;
};

static bool is_ours(const char *sql)
{
    for (size_t i = 0; i < plx_schema_count; i++)
        if (sql && strstr(plx_schema[i].sql, sql))
            return true;
    return false;
}

static int look(struct plx_rqlite *rq, struct found *ret, struct plx_fault *fault)
{
    static const struct plx_sql queries[] = {
        {.text = "SELECT count(*) FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
                 " AND sql IS NOT 'CREATE TABLE " SESSIONS "'"},
        {.text = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name"
                 " IN ('migrations', 'volumes', 'extents', 'vdis')"},
        {.text = "SELECT count(*) FROM sqlite_schema WHERE sql = 'CREATE TABLE " SESSIONS "'"},
        {.text = "SELECT foreign_keys FROM pragma_foreign_keys"},
        {.text = "SELECT sql FROM sqlite_schema WHERE type NOT IN ('table', 'index')"},
    };
    static const struct plx_sql newest = {.text = "SELECT max(number) FROM migrations"};
    struct plx_answer answer;
    int code = plx_rqlite_query(rq, queries, SQL_COUNT(queries), &answer, fault);

    *ret = (struct found){0};
    if (code)
        return code;
    if (!plx_answer_number(&answer, 0, &ret->tables) ||
        !plx_answer_number(&answer, 1, &ret->ours) ||
        !plx_answer_number(&answer, 2, &ret->requests) ||
        !plx_answer_number(&answer, 3, &ret->references))
        code = plx_fault_set(fault, PLX_ERR_REGISTRY, "the registry does not say what it has");
    for (size_t i = 0; i < plx_answer_rows(&answer, 4) && !ret->strange; i++)
        ret->strange = !is_ours(plx_answer_text(&answer, 4, i));
    plx_answer_done(&answer);
    if (code || ret->ours != 4)
        return code;
    code = plx_rqlite_query(rq, &newest, 1, &answer, fault);
    if (code)
        return code;
    plx_answer_number(&answer, 0, &ret->number);
    plx_answer_done(&answer);
    return 0;
}

static int recognise(struct plx_rqlite *rq, struct found *ret, struct plx_fault *fault)
{
    int code = look(rq, ret, fault);

    if (code)
        return code;
    if (ret->references != 1)
        return plx_fault_set(fault, PLX_ERR_REGISTRY,
                             "the registry's node does not enforce references: start each rqlited "
                             "with -fk");
    if (ret->tables && ret->ours != 4)
        return plx_fault_set(fault, PLX_ERR_REGISTRY,
                             "these rqlite nodes have a database that is not a Parallax registry; "
                             "it was left alone");
    if (ret->number > (int64_t)plx_schema_count)
        return plx_fault_set(fault, PLX_ERR_UNSUPPORTED,
                             "the registry has schema %lld, this program knows up to %zu; use a "
                             "newer Parallax (nothing was changed)",
                             (long long)ret->number, plx_schema_count);
    if (ret->strange)
        return plx_fault_set(fault, PLX_ERR_REGISTRY,
                             "the registry has triggers or views that Parallax has not made");
    return 0;
}

/* Of nodes that are only looked at. */
static int check_present(const struct found *found, struct plx_fault *fault)
{
    if (!found->tables)
        return plx_fault_set(fault, PLX_ERR_NOT_FOUND, "the nodes have no registry yet");
    return found->number == (int64_t)plx_schema_count
               ? 0
               : plx_fault_set(fault, PLX_ERR_UNSUPPORTED,
                               "the registry has schema %lld, this program has %zu; the next "
                               "opening of a store brings the registry up to date",
                               (long long)found->number, plx_schema_count);
}

/* All that is missing, as one transaction. What became of it shows when one looks again: a second
 * one breaks at a table or a row that is there. */
static int migrate(struct plx_rqlite *rq, int64_t number, struct plx_fault *fault)
{
    static const char sessions[] = "CREATE TABLE IF NOT EXISTS " SESSIONS;
    static const char note[] = "INSERT INTO migrations VALUES (?1, ?2)";
    struct plx_sending sending = {0};
    struct plx_answer answer;
    int code;

    plx_sending_own(&sending, sessions, NULL, 0);
    for (size_t i = (size_t)number; i < plx_schema_count; i++) {
        const struct plx_sql_value args[] = {SQL_INT(plx_schema[i].number), SQL_INT(plx_sql_now())};

        plx_sending_own(&sending, plx_schema[i].sql, NULL, 0);
        plx_sending_own(&sending, note, args, 2);
    }
    code = plx_rqlite_ask(rq, EXECUTE, &sending, &answer, fault);
    plx_sending_done(&sending);
    if (code)
        return code;
    if (answer.error)
        code = plx_answer_fault(answer.error, fault);
    plx_answer_done(&answer);
    return code;
}

static int open_database(struct plx_rqlite *rq, bool look, struct plx_fault *fault)
{
    struct found found;
    int code = plx_rqlite_begin(rq, fault), failed = 0;

    for (unsigned turn = 0; turn < 2 && !code; turn++) {
        code = recognise(rq, &found, fault);
        if (code || (found.number == (int64_t)plx_schema_count && found.requests))
            return code;
        if (look)
            return check_present(&found, fault);
        failed = migrate(rq, found.number, fault);
    }
    if (!code)
        code = recognise(rq, &found, NULL);
    if (!code && found.number == (int64_t)plx_schema_count && found.requests)
        return 0;
    if (!failed)
        plx_fault_set(fault, PLX_ERR_REGISTRY, "the registry does not keep its schema");
    return PLX_ERR_REGISTRY;
}

int plx_registry_open_rqlite(const struct plx_registry_nodes *nodes, const char *who,
                             struct plx_registry **ret_reg, struct plx_fault *fault)
{
    struct plx_rqlite *rq = calloc(1, sizeof *rq);
    int code;

    if (!rq)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory opening the registry");
    rq->call_ms = nodes->wait_ms ? nodes->wait_ms : CALL_MS;
    code = plx_nodes_open(nodes, &rq->nodes, fault);
    if (!code)
        code = open_database(rq, nodes->look, fault);
    if (!code)
        return plx_sql_handle(who, &plx_rqlite_ops, rq, ret_reg, fault);
    plx_rqlite_ops.close(rq);
    return code;
}
