/* rqlite_batch.c - a batch as rqlite takes it: its statements, and the guards between them.
 *
 * What is sent for statements of a batch (RQLITE-5, RQLITE-6):
 *
 *   statement                     sent
 *   a SELECT                      itself
 *   a SELECT that is a `must`     a guard that asks whether it has rows, then itself
 *   a change                      itself, without its RETURNING
 *   a change that is a `must`     the same, behind something that sets changes() to 0, then a guard
 *
 * A guard inserts a 0 into the table `guard`, whose CHECK refuses it, when something is missing.
 * Else it inserts nothing, so the table stays empty, and changes() is 0 behind it.
 * Threads: any. No state.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/list.h"
#include "registry/rqlite_inside.h"

static const char returning[] = " RETURNING ";

/* Up to the clause that ends the statements which have it. */
static size_t length_of(const char *text)
{
    const char *clause = strstr(text, returning);

    return clause ? (size_t)(clause - text) : strlen(text);
}

static bool is_select(const char *text)
{
    bool with = !strncmp(text, "WITH ", 5);

    return !strncmp(text, "SELECT ", 7) ||
           (with && !strstr(text, "INSERT INTO ") && !strstr(text, "UPDATE ") &&
            !strstr(text, "DELETE FROM "));
}

/* ---- One statement ----------------------------------------------------------------------- */

static json_t *json_of(const struct plx_sql_value *value)
{
    if (value->kind == PLX_SQL_INT)
        return json_integer(value->number);
    return value->kind == PLX_SQL_TEXT ? json_string(value->text) : json_null();
}

static void put(struct plx_sending *sending, json_t *text, const struct plx_sql_value *args,
                size_t count, const struct plx_sent_as *as)
{
    json_t *statement = json_array();
    int failed;

    if (!PLX_LIST_ROOM(sending->sent, sending->count, sending->room, 1))
        sending->code = PLX_ERR_NOMEM;
    failed = json_array_append_new(statement, text);
    if (failed)
        sending->code = PLX_ERR_NOMEM;
    for (size_t i = 0; i < count && !failed; i++) {
        failed = json_array_append_new(statement, json_of(&args[i]));
        if (failed && !sending->code) /* jansson takes no text that is not UTF-8 */
            sending->code = PLX_ERR_INVALID;
    }
    if (json_array_append_new(sending->list, statement) && !sending->code)
        sending->code = PLX_ERR_NOMEM;
    if (!sending->code)
        sending->sent[sending->count++] = *as;
}

static void begin(struct plx_sending *sending)
{
    if (!sending->list && !(sending->list = json_array()))
        sending->code = PLX_ERR_NOMEM;
}

void plx_sending_own(struct plx_sending *sending, const char *text,
                     const struct plx_sql_value *args, size_t count)
{
    const struct plx_sent_as as = {.guard = false};

    begin(sending);
    put(sending, json_string(text), args, count, &as);
    sending->zero = false;
}

void plx_sending_guard(struct plx_sending *sending, size_t n)
{
    const struct plx_sent_as as = {.guard = true, .statement = n};

    put(sending, json_string("INSERT INTO guard SELECT 0 WHERE changes() = 0"), NULL, 0, &as);
    sending->zero = true;
}

/* ---- Statements of a batch --------------------------------------------------------------- */

static void guard_select(struct plx_sending *sending, const struct plx_sql *sql, size_t n)
{
    const struct plx_sent_as as = {.guard = true, .statement = n};

    put(sending, json_sprintf("INSERT INTO guard SELECT 0 WHERE NOT EXISTS (%s)", sql->text),
        sql->args, sql->count, &as);
    sending->zero = true;
}

void plx_sending_ask(struct plx_sending *sending, const struct plx_sql *sql, size_t n)
{
    const struct plx_sent_as as = {.rows = true, .statement = n};

    begin(sending);
    if (!sql->quiet && is_select(sql->text))
        put(sending, json_string(sql->text), sql->args, sql->count, &as);
}

void plx_sending_add(struct plx_sending *sending, const struct plx_sql *sql, size_t n)
{
    const struct plx_sent_as as = {.statement = n};

    begin(sending);
    if (is_select(sql->text)) {
        if (sql->must)
            guard_select(sending, sql, n);
        plx_sending_ask(sending, sql, n);
        return;
    }
    if (sql->must && !sending->zero)
        plx_sending_own(sending, "DELETE FROM guard", NULL, 0);
    put(sending, json_stringn(sql->text, length_of(sql->text)), sql->args, sql->count, &as);
    sending->zero = false;
    if (sql->must)
        plx_sending_guard(sending, n);
}

char *plx_sending_text(const struct plx_sending *sending, struct plx_fault *fault)
{
    char *text = sending->code ? NULL : json_dumps(sending->list, JSON_COMPACT);

    if (!text && sending->code == PLX_ERR_INVALID)
        plx_fault_set(fault, PLX_ERR_INVALID, "a name or path for the registry is not UTF-8");
    else if (!text)
        plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory asking the registry");
    return text;
}

void plx_sending_done(struct plx_sending *sending)
{
    json_decref(sending->list);
    free(sending->sent);
    *sending = (struct plx_sending){0};
}
