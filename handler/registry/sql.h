/* sql.h - between the registry's calls and a driver: batches of SQL. Private to handler/registry.
 *
 * A driver runs a batch of statements as one transaction and hands the rows up. What belongs to
 * SQLite or rqlite (connections, retries, error texts) stays below this line. What belongs to
 * Parallax (what the statements say) stays above it, so both drivers run the same SQL.
 *
 * A changing call looks like this. The first statement must return a row, else the whole batch is
 * rolled back and plx_sql_change() returns its number, 1:
 *
 *   struct plx_sql batch[] = {
 *       SQL_MUST(statement, SQL_TEXT(id), SQL_INT(size)),
 *       SQL_EVENT_VDI(reg, "vdi resize", id),
 *   };
 *   code = plx_sql_change(reg, batch, SQL_COUNT(batch), NULL, NULL);
 *
 * The rows that a batch hands up are those of its SELECTs. RETURNING only says to `must` that a
 * statement has changed a row; it is the last clause of a statement. When an answer was lost on the
 * way, a driver asks the SELECTs of a change again, by themselves (rqlite.c). So a SELECT in a
 * change reads what the change has left, and finds it by the change's own request_id. It is a
 * `must` unless no row is an answer, too.
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
    const char *text; /* of a column: never NULL, valid while its row is being handed up */
};

struct plx_sql {
    const char *text; /* static: the driver finds the prepared statement by this address */
    bool must;        /* it must return a row, else the whole batch is rolled back */
    unsigned leaves;  /* n: skipped while less than 1/n of a region's pages is free; 0: never */
    bool quiet;       /* its rows are not handed up; nor are those of what is no SELECT */
    bool joined;      /* it belongs to the same change as the statement before it (kept.c) */
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
/* One element of a batch: a statement's text and its arguments. */
#define SQL(statement, ...)                                                                        \
    {                                                                                              \
        .text = statement, SQL_ARGS(__VA_ARGS__)                                                   \
    }
#define SQL_MUST(statement, ...)                                                                   \
    {                                                                                              \
        .text = statement, .must = true, SQL_ARGS(__VA_ARGS__)                                     \
    }
/* Values of `leaves`. The fuller a region, the fewer kinds of statements still run (SQLITE-6):
 *
 *   the last fifth of the pages   is for work that goes on
 *   the last eighth               for work that frees something
 *   the last sixteenth            for work that ends, and for making the region longer */
#define PLX_SQL_LEAVES_NEW 5
#define PLX_SQL_LEAVES_EXTENT 8
#define PLX_SQL_LEAVES_GARBAGE 16
/* A statement that nothing depends on: an audit event. */
#define SQL_EXTRA(statement, ...)                                                                  \
    {                                                                                              \
        .text = statement, .leaves = PLX_SQL_LEAVES_NEW, SQL_ARGS(__VA_ARGS__)                     \
    }
#define SQL_COUNT(batch) (sizeof(batch) / sizeof(batch)[0])

struct plx_registry_ops {
    /* Runs the batch, as a transaction if `change`, and calls row for each row of each SELECT.
     * Returns 0, a negative code with *ret_fault set, or n when the n-th statement (from 1) must
     * return a row and did not. Unless it returns 0 or REGISTRY, nothing was changed.
     * A broken constraint is EXISTS (unique), BUSY (reference) or INVALID (check). */
    int (*run)(void *driver, bool change, const struct plx_sql *batch, size_t count,
               void (*row)(void *context, const struct plx_sql_value *columns, size_t count),
               void *context, struct plx_fault *ret_fault);
    /* Reads the whole database. REGISTRY: its structure is damaged. Another code: it could not be
     * read. */
    int (*check)(void *driver, struct plx_fault *fault);
    /* registry.h: plx_registry_put(), _get() and _room(). */
    int (*put)(void *driver, const char *file, struct plx_fault *fault);
    int (*get)(void *driver, const char *file, struct plx_fault *fault);
    int (*room)(void *driver, uint64_t *ret_used, uint64_t *ret_pages, struct plx_fault *fault);
    /* registry.h: plx_registry_alone(). NULL: the registry is a file. */
    int (*alone)(void *driver, int (*work)(void *context, struct plx_fault *fault), void *context,
                 struct plx_fault *fault);
    /* clusters.h: plx_registry_cluster_pin(). NULL: there is one place only. */
    void (*pin)(void *driver, const char *uuid, uint64_t line);
    void (*close)(void *driver);
};

/* The changes that were put off (plx_registry_put_off()), as copies of their statements. */
struct plx_sql_kept {
    struct plx_sql *batch;
    size_t count;
    size_t tried; /* how many of the first were tried and failed; they may have been made */
    bool seen;    /* some of them must be made before a read */
};

struct plx_registry {
    const struct plx_registry_ops *ops;
    void *driver;
    struct plx_fault fault;
    char who[128];
    char store[PLX_STORE_NAME_MAX + 1]; /* the store's name for messages; empty: not known */
    char named[PLX_STORE_NAME_MAX + PLX_NAME_MAX + 8]; /* the answer of plx_sql_named() */
    enum plx_put_off next;                             /* whether the next change is put off */
    struct plx_sql_kept kept;
    /* Owned by a handle of embedded.h; else NULL. */
    struct plx_device *device;
    struct plx_bytelock *locks;
    /* REGISTRY-3. may_write NULL: all changes are made. */
    bool read_only;
    bool (*may_write)(void *context, struct plx_fault *fault);
    void *context;
};

/* Makes a handle of a driver that was opened, and closes the driver when there is no memory. */
int plx_sql_handle(const char *who, const struct plx_registry_ops *ops, void *driver,
                   struct plx_registry **ret_reg, struct plx_fault *fault);
int plx_sqlite_open(const char *path, const struct plx_registry_ops **ret_ops, void **ret_driver,
                    struct plx_fault *fault);
/* Copies the region; its device and locks stay the caller's. volume is a name for messages. */
int plx_sqlite_open_region(const struct plx_region *region, const char *volume,
                           const struct plx_registry_ops **ret_ops, void **ret_driver,
                           struct plx_fault *fault);

/* Whether less than 1/leaves of a region's pages is free. pages 0: a file, which never is. */
static inline bool plx_sql_crowded(uint64_t used, uint64_t pages, unsigned leaves)
{
    return pages && used * leaves > pages * (leaves - 1);
}
/* Whether a statement with this `leaves` would be skipped now: asked to explain a refusal. */
bool plx_sql_left_out(struct plx_registry *reg, unsigned leaves);
#define PLX_SQL_MORE_ROOM ", or make volume 0 larger ('parallax store grow')"

/* kept.c. Adds a copy of the batch, as one change, to what was put off. false: out of memory. */
bool plx_sql_keep(struct plx_registry *reg, const struct plx_sql *batch, size_t count);
/* Forgets the first `count` statements, which must be whole changes. */
void plx_sql_drop_kept(struct plx_registry *reg, size_t count);
/* The index at which the change after the one at `at` begins. */
size_t plx_sql_next_kept(const struct plx_sql_kept *kept, size_t at);

/* How a row becomes an item of `size` bytes: read() fills a zeroed item from the row's columns. */
struct plx_sql_shape {
    size_t size;
    void (*read)(void *item, const struct plx_sql_value *columns);
};

/* These four run a batch, after what was put off (kept.c). They return what ops->run returns.
 *
 *   plx_sql_change        a change; one statement may return one row, which is read into ret_item
 *                         (shape NULL: no row is wanted)
 *   plx_sql_change_list   a change; the rows of all statements make a list
 *   plx_sql_get           a query of one row; NOT_FOUND, without a text, when there is none
 *   plx_sql_list          a query of any number of rows
 */
int plx_sql_change(struct plx_registry *reg, const struct plx_sql *batch, size_t count,
                   const struct plx_sql_shape *shape, void *ret_item);
/* NOMEM here may come after the change was made. */
int plx_sql_change_list(struct plx_registry *reg, const struct plx_sql *batch, size_t count,
                        const struct plx_sql_shape *shape, void **ret_list, size_t *ret_count);
int plx_sql_get(struct plx_registry *reg, const struct plx_sql *statement,
                const struct plx_sql_shape *shape, void *ret_item);
int plx_sql_list(struct plx_registry *reg, const struct plx_sql *statement,
                 const struct plx_sql_shape *shape, void **ret_list, size_t *ret_count);

/* How a message names a disk: STORE/VDI, or VDI 'NAME' when the handle does not know the store's
 * name. Valid until the next call. */
const char *plx_sql_named(struct plx_registry *reg, const char *vdi);
int plx_sql_fail(struct plx_registry *reg, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void plx_sql_copy(char *to, size_t size, const struct plx_sql_value *column);
uint64_t plx_sql_now(void);

/* Audit events, as the last element of a batch. SQL_EVENT has a subject and detail known
 * beforehand. In SQL_EVENT_VDI the subject is a VDI's id and the detail is that VDI's row, as the
 * batch left it. */
extern const char plx_sql_event[], plx_sql_event_vdi[];
#define SQL_EVENT(reg, what, subject, detail)                                                      \
    SQL_EXTRA(plx_sql_event, SQL_INT(plx_sql_now()), SQL_TEXT((reg)->who), SQL_TEXT(what),         \
              SQL_TEXT(subject), SQL_TEXT(detail))
#define SQL_EVENT_VDI(reg, what, vdi)                                                              \
    SQL_EXTRA(plx_sql_event_vdi, SQL_INT(plx_sql_now()), SQL_TEXT((reg)->who), SQL_TEXT(what),     \
              SQL_TEXT(vdi))

#endif
