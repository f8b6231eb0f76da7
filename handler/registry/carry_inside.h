/* carry_inside.h - which rows carry.c carries, and how it reads them. Private to carry*.c. */
#ifndef PLX_CARRY_INSIDE_H
#define PLX_CARRY_INSIDE_H

#include "registry/sql.h"

#define CARRY_KEYS 2u
#define CARRY_COLUMNS 12u
#define CARRY_ROWS 200u /* of a page, at most */

/* A table's rows of one store (carry_tables.c). The first columns are their key: rows are read in
 * its order, a page at a time. */
struct plx_carried {
    const char *name;
    const char *select; /* ?1 the store, ?2 and ?3 the key behind which a page begins, ?4 rows */
    const char *insert; /* ?1 the store, ?2 and on the columns */
    const char *remove; /* ?1 the store; some of the rows, as often as there are some. NULL: none */
    unsigned columns, keys;
    bool text[CARRY_KEYS]; /* which keys are texts; the others are numbers */
    unsigned rows;         /* of a page */
};

/* In an order in which they can be entered. */
extern const struct plx_carried plx_carried_tables[];
extern const size_t plx_carried_count;

/* A row: value[0] is free, for the store's number; texts are the row's own. */
struct plx_carried_row {
    struct plx_sql_value value[1 + CARRY_COLUMNS];
};

/* Reads the rows of a table, a page at a time (carry_pages.c). */
struct plx_carried_pages {
    struct plx_registry *reg;
    int64_t store;
    const struct plx_carried *table;
    struct plx_carried_row *rows; /* of the present page */
    size_t count;
    struct plx_sql_value key[CARRY_KEYS]; /* of the last row before it; texts are its own */
    bool last;                            /* there is no further page */
    const char *strange;                  /* what is wrong with the page */
    bool nomem;
};

int plx_carried_begin(struct plx_registry *reg, int64_t store, const struct plx_carried *table,
                      struct plx_carried_pages *ret_pages);
/* count is 0 at the end. A failure is told by plx_registry_error(). */
int plx_carried_next(struct plx_carried_pages *pages);
void plx_carried_done(struct plx_carried_pages *pages);

#endif
