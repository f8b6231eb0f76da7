/* rqlite_answer.c - what an rqlite node answered: read, checked, handed up (RQLITE-8).
 *
 * An answer that is good in form is an object with `results`: a list with an object for each
 * statement. Such an object has `error`, a text; or `values`, a list of rows, each a list of
 * numbers, texts and nulls that is as long as `columns`; or none of them.
 * Threads: any. No state.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "registry/rqlite_inside.h"

void plx_answer_plain(const char *text, char *to, size_t size)
{
    size_t at = 0;

    for (; *text && at + 1 < size; text++)
        to[at++] = (unsigned char)*text < ' ' || *text == 0x7f ? ' ' : *text;
    while (at && to[at - 1] == ' ')
        at--;
    to[at] = '\0';
}

/* ---- Form -------------------------------------------------------------------------------- */

static bool is_value(const json_t *value)
{
    return json_is_null(value) || json_is_integer(value) || json_is_string(value) ||
           json_is_real(value);
}

static bool is_row(const json_t *row, size_t columns)
{
    if (!json_is_array(row) || json_array_size(row) != columns)
        return false;
    for (size_t i = 0; i < columns; i++)
        if (!is_value(json_array_get(row, i)))
            return false;
    return true;
}

static bool is_result(const json_t *result)
{
    const json_t *values = json_object_get(result, "values");
    const json_t *error = json_object_get(result, "error");
    size_t columns = json_array_size(json_object_get(result, "columns"));

    if (!json_is_object(result) || (error && (!json_is_string(error) || values)))
        return false;
    if (!values)
        return true;
    if (!json_is_array(values) || !columns || columns > ROW_COLUMNS)
        return false;
    for (size_t i = 0; i < json_array_size(values); i++)
        if (!is_row(json_array_get(values, i), columns))
            return false;
    return true;
}

static bool find_results(struct plx_answer *answer, size_t sent)
{
    answer->results = json_object_get(answer->root, "results");
    answer->count = json_array_size(answer->results);
    answer->bad = answer->count;
    if (!json_is_array(answer->results) || !answer->count || answer->count > sent)
        return false;
    for (size_t i = 0; i < answer->count; i++) {
        const json_t *result = json_array_get(answer->results, i);
        const json_t *error = json_object_get(result, "error");

        if (!is_result(result))
            return false;
        if (!error || answer->error)
            continue;
        answer->bad = i;
        answer->error = json_string_value(error);
    }
    /* A transaction that ends early ends at an error. */
    return answer->count == sent ||
           json_object_get(json_array_get(answer->results, answer->count - 1), "error");
}

enum plx_reply plx_answer_read(const char *text, size_t size, size_t sent, struct plx_answer *ret,
                               struct plx_fault *fault)
{
    struct plx_answer answer = {0};
    const char *general;
    char plain[160];
    json_error_t why;

    answer.root = json_loadb(text ? text : "", size, 0, &why);
    general = json_string_value(json_object_get(answer.root, "error"));
    if (general) {
        plx_answer_plain(general, plain, sizeof plain);
        plx_fault_set(fault, PLX_ERR_REGISTRY, "the registry's nodes do not work: %s", plain);
        json_decref(answer.root);
        return PLX_REPLY_NONE;
    }
    if (!answer.root || !find_results(&answer, sent)) {
        plx_answer_plain(answer.root ? "its form is wrong" : why.text, plain, sizeof plain);
        plx_fault_set(fault, PLX_ERR_REGISTRY, "the answer is not rqlite's: %s", plain);
        json_decref(answer.root);
        return PLX_REPLY_STRANGE;
    }
    *ret = answer;
    return PLX_REPLY;
}

void plx_answer_done(struct plx_answer *answer)
{
    json_decref(answer->root);
    *answer = (struct plx_answer){0};
}

/* ---- Rows -------------------------------------------------------------------------------- */

static const json_t *values_of(const struct plx_answer *answer, size_t result)
{
    return json_object_get(json_array_get(answer->results, result), "values");
}

size_t plx_answer_rows(const struct plx_answer *answer, size_t result)
{
    return json_array_size(values_of(answer, result));
}

bool plx_answer_number(const struct plx_answer *answer, size_t result, int64_t *ret_number)
{
    const json_t *value = json_array_get(json_array_get(values_of(answer, result), 0), 0);

    if (!json_is_integer(value))
        return false;
    *ret_number = json_integer_value(value);
    return true;
}

const char *plx_answer_text(const struct plx_answer *answer, size_t result, size_t row)
{
    return json_string_value(json_array_get(json_array_get(values_of(answer, result), row), 0));
}

static struct plx_sql_value value_of(const json_t *value)
{
    if (json_is_integer(value))
        return (struct plx_sql_value){PLX_SQL_INT, json_integer_value(value), ""};
    if (json_is_string(value))
        return (struct plx_sql_value){PLX_SQL_TEXT, 0, json_string_value(value)};
    return (struct plx_sql_value){PLX_SQL_NULL, 0, ""};
}

void plx_answer_hand_up(const struct plx_answer *answer, size_t result, const struct plx_rows *rows)
{
    const json_t *values = values_of(answer, result);

    for (size_t i = 0; i < json_array_size(values); i++) {
        const json_t *from = json_array_get(values, i);
        struct plx_sql_value columns[ROW_COLUMNS];

        /* An answer may have fewer columns than who asked will read. */
        for (size_t column = 0; column < ROW_COLUMNS; column++)
            columns[column] = value_of(json_array_get(from, column));
        rows->row(rows->context, columns, json_array_size(from));
    }
}

/* ---- Errors of SQLite's ------------------------------------------------------------------ */

int plx_answer_fault(const char *text, struct plx_fault *fault)
{
    static const struct {
        const char *begins;
        int code;
        const char *format;
    } known[] = {
        {"UNIQUE constraint failed", PLX_ERR_EXISTS, "exists already (%s)"},
        {"FOREIGN KEY constraint failed", PLX_ERR_BUSY,
         "still referred to, or refers to what is not there (%s)"},
        {"CHECK constraint failed", PLX_ERR_INVALID, "out of bounds (%s)"},
        {"NOT NULL constraint failed", PLX_ERR_INVALID, "out of bounds (%s)"},
        {"cannot store ", PLX_ERR_INVALID, "out of bounds (%s)"},
        {"datatype mismatch", PLX_ERR_INVALID, "out of bounds (%s)"},
        {"string or blob too big", PLX_ERR_INVALID, "out of bounds (%s)"},
        {"database or disk is full", PLX_ERR_NOSPACE,
         "the registry's nodes have no space left (%s)"},
        {"no such ", PLX_ERR_REGISTRY, "the registry is damaged (%s)"},
        {"database disk image is malformed", PLX_ERR_REGISTRY, "the registry is damaged (%s)"},
        {"file is not a database", PLX_ERR_REGISTRY, "the registry is damaged (%s)"},
    };
    char plain[250];

    plx_answer_plain(text, plain, sizeof plain);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strncmp(plain, known[i].begins, strlen(known[i].begins)) != 0)
            continue;
        plain[150] = '\0';
        return plx_fault_set(fault, known[i].code, known[i].format, plain);
    }
    return plx_fault_set(fault, PLX_ERR_REGISTRY, "%s", plain); /* in the words of the schema */
}
