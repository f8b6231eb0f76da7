/* sql.h - between the registry's calls and a driver: batches of SQL. Private to handler/registry.
 *
 * A driver runs a batch of statements as one transaction and hands their rows up. All that is
 * SQLite's or rqlite's own (connections, retries, error texts) stays below this line; all that is
 * Parallax's (what the statements say) stays above it, so both run the same SQL.
 */
#ifndef PLX_SQL_H
#define PLX_SQL_H

#include "registry/registry.h"

enum plx_sql_kind {
    PLX_SQL_NULL,
    PLX_SQL_INT,
    PLX_SQL_TEXT,
};

struct plx_sql_value {
    enum plx_sql_kind kind;
    int64_t number;
    const char *text; /* of a column: valid while its row is being handed up; never NULL */
};

struct plx_sql {
    const char *text; /* static: drivers keep it prepared under this address */
    bool must;        /* it must return a row, else the whole batch is rolled back */
    unsigned leaves;  /* it is left out where less than this part of a region is free; 0: never */
    bool quiet;       /* its rows are not handed up */
    bool joined;      /* it is of one change with the statement before it (kept.c) */
    size_t count;
    const struct plx_sql_value *args; /* ?1 and on */
};

#define SQL_INT(x)                                                                                 \
    {                                                                                              \
        PLX_SQL_INT, (int64_t)(x), NULL                                                            \
    }
#define SQL_TEXT(x)                                                                                \
    {                                                                                              \
        PLX_SQL_TEXT, 0, (x)                                                                       \
    }
#define SQL_ID(x)                                                                                  \
    {                                                                                              \
        (x) ? PLX_SQL_INT : PLX_SQL_NULL, (int64_t)(x), NULL                                       \
    } /* 0: NULL */
#define SQL_OPT(x)                                                                                 \
    {                                                                                              \
        *(x) ? PLX_SQL_TEXT : PLX_SQL_NULL, 0, (x)                                                 \
    } /* "": NULL */
#define SQL_ARGS(...)                                                                              \
    .count = sizeof((const struct plx_sql_value[]){__VA_ARGS__}) / sizeof(struct plx_sql_value),   \
    .args = (const struct plx_sql_value[])                                                         \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
/* One element of a batch: statement text, arguments. */
#define SQL(statement, ...)                                                                        \
    {                                                                                              \
        .text = statement, SQL_ARGS(__VA_ARGS__)                                                   \
    }
#define SQL_MUST(statement, ...)                                                                   \
    {                                                                                              \
        .text = statement, .must = true, SQL_ARGS(__VA_ARGS__)                                     \
    }
/* The last fifth of a region's pages is for what goes on, the last eighth for what frees something,
 * the last sixteenth for what ends, and for what makes the region longer. */
#define PLX_SQL_LEAVES_NEW 5
#define PLX_SQL_LEAVES_EXTENT 8
#define PLX_SQL_LEAVES_GARBAGE 16
/* One of which nothing depends: an event. */
#define SQL_EXTRA(statement, ...)                                                                  \
    {                                                                                              \
        .text = statement, .leaves = PLX_SQL_LEAVES_NEW, SQL_ARGS(__VA_ARGS__)                     \
    }
#define SQL_COUNT(batch) (sizeof(batch) / sizeof(batch)[0])

struct plx_registry_ops {
    /* Runs the batch, as a transaction if `change`, and calls row for each row of each statement.
     * Returns 0, a negative code with *ret_fault set, or n when the n-th statement (from 1) must
     * return a row and did not. Anything but 0 means that nothing was changed, except REGISTRY.
     * A broken constraint is EXISTS (unique), BUSY (reference) or INVALID (check). */
    int (*run)(void *driver, bool change, const struct plx_sql *batch, size_t count,
               void (*row)(void *context, const struct plx_sql_value *columns, size_t count),
               void *context, struct plx_fault *ret_fault);
    /* Reads all of it: REGISTRY when its structure is damaged, another code when it could not be
     * read. */
    int (*check)(void *driver, struct plx_fault *fault);
    /* registry.h: plx_registry_put(), _get() and _room(). */
    int (*put)(void *driver, const char *file, struct plx_fault *fault);
    int (*get)(void *driver, const char *file, struct plx_fault *fault);
    int (*room)(void *driver, uint64_t *ret_used, uint64_t *ret_pages, struct plx_fault *fault);
    /* registry.h: plx_registry_alone(). NULL: it does not lie in a store. */
    int (*alone)(void *driver, int (*work)(void *context, struct plx_fault *fault), void *context,
                 struct plx_fault *fault);
    void (*close)(void *driver);
};

/* Statements in memory of their own: what was put off (plx_registry_put_off()). */
struct plx_sql_kept {
    struct plx_sql *batch;
    size_t count;
    size_t tried; /* so many of the first: that failed, and they may have been made */
    bool seen;    /* some of it must be there for who reads */
};

struct plx_registry {
    const struct plx_registry_ops *ops;
    void *driver;
    struct plx_fault fault;
    char who[128];
    char store[PLX_STORE_NAME_MAX + 1]; /* what its one store is called here; empty: not known */
    char named[PLX_STORE_NAME_MAX + PLX_NAME_MAX + 8]; /* plx_sql_named() */
    enum plx_put_off next;                             /* what becomes of the next change */
    struct plx_sql_kept kept;
    /* Of one that lies in a store (embedded.h); else NULL. */
    struct plx_device *device;
    struct plx_bytelock *locks;
};

int plx_sqlite_open(const char *path, const struct plx_registry_ops **ret_ops, void **ret_driver,
                    struct plx_fault *fault);
/* volume: for messages. Copies the region; its device and locks stay the caller's. */
int plx_sqlite_open_region(const struct plx_region *region, const char *volume,
                           const struct plx_registry_ops **ret_ops, void **ret_driver,
                           struct plx_fault *fault);

/* Whether less than such a part of a region's pages is free. pages 0: a file. */
bool plx_sql_crowded(uint64_t used, uint64_t pages, unsigned leaves);
/* Whether that is why a statement was left out. */
bool plx_sql_left_out(struct plx_registry *reg, unsigned leaves);
#define PLX_SQL_MORE_ROOM ", or make volume 0 larger ('parallax store grow')"

/* What was put off (kept.c): a copy of this batch joins it; false: no memory for that. */
bool plx_sql_keep(struct plx_registry *reg, const struct plx_sql *batch, size_t count);
/* The first so many statements of it: whole changes. */
void plx_sql_drop_kept(struct plx_registry *reg, size_t count);
/* Where the change after that at `at` begins. */
size_t plx_sql_next_kept(const struct plx_sql_kept *kept, size_t at);

/* How a row becomes an item: read fills a zeroed one from the columns of its statement. */
struct plx_sql_shape {
    size_t size;
    void (*read)(void *item, const struct plx_sql_value *columns);
};

/* Run a batch; results as for ops->run. What was put off goes before it (kept.c). plx_sql_change
 * reads the only row it expects into ret_item (shape NULL: none wanted; else one statement only
 * returns rows); plx_sql_get likewise, and returns NOT_FOUND, without a text, when there is none.
 */
int plx_sql_change(struct plx_registry *reg, const struct plx_sql *batch, size_t count,
                   const struct plx_sql_shape *shape, void *ret_item);
/* A change whose rows make a list, of all its statements in order. NOMEM here may come after the
 * change was made. */
int plx_sql_change_list(struct plx_registry *reg, const struct plx_sql *batch, size_t count,
                        const struct plx_sql_shape *shape, void **ret_list, size_t *ret_count);
int plx_sql_get(struct plx_registry *reg, const struct plx_sql *statement,
                const struct plx_sql_shape *shape, void *ret_item);
int plx_sql_list(struct plx_registry *reg, const struct plx_sql *statement,
                 const struct plx_sql_shape *shape, void **ret_list, size_t *ret_count);

/* For one message: STORE/VDI, or VDI 'NAME' where the store's name is not known. */
const char *plx_sql_named(struct plx_registry *reg, const char *vdi);
int plx_sql_fail(struct plx_registry *reg, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void plx_sql_copy(char *to, size_t size, const struct plx_sql_value *column);
uint64_t plx_sql_now(void);

/* Audit events, as the last element of a batch. The subject is a string known beforehand, or a
 * VDI whose row, as the batch left it, becomes the detail. */
extern const char plx_sql_event[], plx_sql_event_vdi[];
#define SQL_EVENT(reg, what, subject, detail)                                                      \
    SQL_EXTRA(plx_sql_event, SQL_INT(plx_sql_now()), SQL_TEXT((reg)->who), SQL_TEXT(what),         \
              SQL_TEXT(subject), SQL_TEXT(detail))
#define SQL_EVENT_VDI(reg, what, vdi)                                                              \
    SQL_EXTRA(plx_sql_event_vdi, SQL_INT(plx_sql_now()), SQL_TEXT((reg)->who), SQL_TEXT(what),     \
              SQL_TEXT(vdi))

#endif
