/* sqlite.h - the inside of the SQLite driver, for sqlite*.c and for backup.c, which moves whole
 * registries. */
#ifndef PLX_SQLITE_H
#define PLX_SQLITE_H

#include <sqlite3.h>

#include "registry/region.h"
#include "registry/sql.h"

/* The size of a row of `events`, as schema/0006_room.sql counts it. */
#define PLX_EVENT_BYTES                                                                            \
    "32 + length(CAST(who AS BLOB)) + length(CAST(what AS BLOB))"                                  \
    " + length(CAST(subject AS BLOB)) + length(CAST(detail AS BLOB))"

struct plx_prepared;

struct plx_sqlite {
    sqlite3 *db;
    struct plx_prepared *prepared; /* prepared statements, most recently used first */
    uint64_t busy_since_ns;        /* since when SQLite's busy handler waits (patience.h) */
    uint64_t changed_at;           /* the last change here, monotonic ms; 0: none (SQLITE-8) */
    bool given_up;                 /* no more waiting for others' locks (SQLITE-8) */
    struct plx_region_vfs *vfs;    /* NULL: the registry is a file */
    struct plx_region region;      /* with vfs: as opened; only vfs knows the present spans */
    uint32_t pages;                /* with vfs: the page limit that SQLite was told (SQLITE-7) */
    char path[PLX_PATH_MAX];       /* the file's path, or the volume's name for messages */
};

/* Sets the fault for a result code of SQLite. Returns the fault's code. */
int plx_sqlite_failed(struct plx_sqlite *lite, int result, struct plx_fault *fault);
/* These two return SQLite's result code. */
int plx_sqlite_exec(struct plx_sqlite *lite, const char *sql);
int plx_sqlite_scalar(struct plx_sqlite *lite, const char *sql, int64_t *ret_value);
/* Returns the number of the last migration, 0 for an empty database. Refuses a database that is not
 * a registry, or that a newer program made (SQLITE-3). */
int plx_sqlite_recognise(struct plx_sqlite *lite, int64_t *ret_number, struct plx_fault *fault);

/* Runs a checking pragma that returns one row. SQLite reports a page that cannot be read as damage,
 * but the caller gets it as an I/O error. After real damage the message is "`what` is damaged: ...;
 * `next`". */
int plx_sqlite_check(struct plx_sqlite *lite, const char *pragma, const char *what,
                     const char *next, struct plx_fault *fault);
/* Runs all migrations after `number`, in one transaction. */
int plx_sqlite_migrate(struct plx_sqlite *lite, int64_t number, struct plx_fault *fault);
/* How many bytes of events this registry keeps: an eighth of a region, 8 MiB in a file. */
int64_t plx_sqlite_event_limit(const struct plx_sqlite *lite);

/* backup.c: put and get of struct plx_registry_ops. */
int plx_sqlite_put(void *driver, const char *file, struct plx_fault *fault);
int plx_sqlite_get(void *driver, const char *file, struct plx_fault *fault);

#endif
