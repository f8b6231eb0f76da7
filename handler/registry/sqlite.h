/* sqlite.h - inside the SQLite driver: sqlite.c, and backup.c, which moves whole registries. */
#ifndef PLX_SQLITE_H
#define PLX_SQLITE_H

#include <sqlite3.h>

#include "registry/region.h"
#include "registry/sql.h"

/* Of a row of events, as schema/0006_room.sql counts them. */
#define PLX_EVENT_BYTES                                                                            \
    "32 + length(CAST(who AS BLOB)) + length(CAST(what AS BLOB))"                                  \
    " + length(CAST(subject AS BLOB)) + length(CAST(detail AS BLOB))"

struct plx_prepared;

struct plx_sqlite {
    sqlite3 *db;
    struct plx_prepared *prepared; /* most recently used first */
    uint64_t busy_since_ns;        /* of the busy handler (patience.h) */
    uint64_t changed_at;           /* monotonic ms */
    bool given_up;                 /* a turn (SQLITE-8) */
    struct plx_region_vfs *vfs;    /* NULL: a file */
    struct plx_region region;      /* with vfs: its locks and what may be done; its spans: vfs */
    uint32_t pages;                /* with vfs: SQLite's limit (SQLITE-7) */
    char path[PLX_PATH_MAX];       /* the file; of a region the name of its volume, for messages */
};

/* Sets the fault for a result of SQLite. Returns its code. */
int plx_sqlite_failed(struct plx_sqlite *lite, int result, struct plx_fault *fault);
/* These two return SQLite's result. */
int plx_sqlite_exec(struct plx_sqlite *lite, const char *sql);
int plx_sqlite_scalar(struct plx_sqlite *lite, const char *sql, int64_t *ret_value);
/* The schema's number, 0 for an empty database; refuses what is not ours or newer. */
int plx_sqlite_recognise(struct plx_sqlite *lite, int64_t *ret_number, struct plx_fault *fault);

/* Asks SQLite for damage by pragma, which returns one row. A page that could not be read is no
 * damage, though SQLite says so: an I/O error. The message says that `what` is damaged, and what
 * comes next. */
int plx_sqlite_check(struct plx_sqlite *lite, const char *pragma, const char *what,
                     const char *next, struct plx_fault *fault);
/* All migrations behind number, in one transaction. */
int plx_sqlite_migrate(struct plx_sqlite *lite, int64_t number, struct plx_fault *fault);
/* Bytes of events that this registry keeps. */
int64_t plx_sqlite_event_limit(const struct plx_sqlite *lite);

/* backup.c: of plx_registry_ops. */
int plx_sqlite_put(void *driver, const char *file, struct plx_fault *fault);
int plx_sqlite_get(void *driver, const char *file, struct plx_fault *fault);

#endif
