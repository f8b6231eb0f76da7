/* carry_pages.c - reads a store's rows of a table, a page at a time, for carry.c.
 *
 * CARRY_PAGES-1  What comes is checked in form: as many columns and no more rows than were asked
 *     for, each behind the one before it. So reading ends, whatever answers, and a page has a
 *     bounded size.
 * Threads: one at a time.
 */
#include "registry/carry_inside.h"

#include <stdlib.h>
#include <string.h>

static void free_text(struct plx_sql_value *value)
{
    if (value->kind == PLX_SQL_TEXT)
        free((void *)(uintptr_t)value->text);
    *value = (struct plx_sql_value){PLX_SQL_NULL, 0, NULL};
}

static void free_rows(struct plx_carried_pages *pages)
{
    for (size_t i = 0; i < pages->count; i++)
        for (size_t column = 0; column < pages->table->columns; column++)
            free_text(&pages->rows[i].value[1 + column]);
    pages->count = 0;
}

/* Whether the row's key is one, and behind this one. */
static bool is_behind(const struct plx_carried *table, const struct plx_sql_value *row,
                      const struct plx_sql_value *key)
{
    int order = 0;

    for (size_t i = 0; i < table->keys; i++) {
        if (row[i].kind != (table->text[i] ? PLX_SQL_TEXT : PLX_SQL_INT))
            return false;
        if (!order && table->text[i])
            order = strcmp(row[i].text, key[i].text);
        else if (!order)
            order = (row[i].number > key[i].number) - (row[i].number < key[i].number);
    }
    return order > 0;
}

/* CARRY_PAGES-1 */
static void take_row(void *context, const struct plx_sql_value *columns, size_t count)
{
    struct plx_carried_pages *pages = context;
    const struct plx_carried *table = pages->table;
    const struct plx_sql_value *before =
        pages->count ? pages->rows[pages->count - 1].value + 1 : pages->key;
    struct plx_carried_row *row = &pages->rows[pages->count];

    if (pages->strange || pages->nomem)
        return;
    if (pages->count == table->rows)
        pages->strange = "more rows than were asked for";
    else if (count != table->columns)
        pages->strange = "rows of another form";
    else if (!is_behind(table, columns, before))
        pages->strange = "rows that are not in order";
    if (pages->strange)
        return;
    pages->count++;
    for (size_t i = 0; i < count; i++) {
        row->value[1 + i] = columns[i];
        if (columns[i].kind != PLX_SQL_TEXT)
            continue;
        row->value[1 + i].text = strdup(columns[i].text);
        pages->nomem = pages->nomem || !row->value[1 + i].text;
    }
}

int plx_carried_begin(struct plx_registry *reg, int64_t store, const struct plx_carried *table,
                      struct plx_carried_pages *ret_pages)
{
    struct plx_carried_pages pages = {.reg = reg, .store = store, .table = table};

    PLX_ASSERT(table->columns <= CARRY_COLUMNS && table->keys <= CARRY_KEYS);
    pages.rows = calloc(table->rows, sizeof *pages.rows);
    for (size_t i = 0; i < CARRY_KEYS; i++) {
        pages.key[i] = (struct plx_sql_value){PLX_SQL_INT, INT64_MIN, NULL};
        if (table->text[i])
            pages.key[i] = (struct plx_sql_value){PLX_SQL_TEXT, 0, strdup("")};
        pages.nomem = pages.nomem || (table->text[i] && !pages.key[i].text);
    }
    *ret_pages = pages;
    if (!pages.rows || pages.nomem)
        return plx_sql_fail(reg, PLX_ERR_NOMEM, "out of memory reading the registry");
    return 0;
}

int plx_carried_next(struct plx_carried_pages *pages)
{
    const struct plx_carried *table = pages->table;
    struct plx_registry *reg = pages->reg;
    struct plx_fault fault = {0};
    int code;

    for (size_t i = 0; pages->count && i < table->keys; i++) {
        struct plx_sql_value *newest = &pages->rows[pages->count - 1].value[1 + i];

        free_text(&pages->key[i]);
        pages->key[i] = *newest;
        newest->kind = PLX_SQL_NULL; /* its text is the key's now */
    }
    free_rows(pages);
    if (pages->last)
        return 0;

    const struct plx_sql statement = {
        .text = table->select,
        SQL_ARGS(SQL_INT(pages->store), pages->key[0], pages->key[1], SQL_INT(table->rows))};

    code = reg->ops->run(reg->driver, false, &statement, 1, take_row, pages, &fault);
    if (code) {
        reg->fault = fault;
        return code;
    }
    if (pages->nomem)
        return plx_sql_fail(reg, PLX_ERR_NOMEM, "out of memory reading the registry");
    if (pages->strange)
        return plx_sql_fail(reg, PLX_ERR_REGISTRY,
                            "the registry gives %s (%s): it is damaged, or no registry answers",
                            pages->strange, table->name);
    pages->last = pages->count < table->rows;
    return 0;
}

void plx_carried_done(struct plx_carried_pages *pages)
{
    if (pages->rows)
        free_rows(pages);
    free(pages->rows);
    for (size_t i = 0; i < CARRY_KEYS; i++)
        free_text(&pages->key[i]);
    pages->rows = NULL;
}
