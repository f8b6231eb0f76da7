/* sqlite_inside.h - what sqlite.c, sqlite_open.c and sqlite_driver.c share. The rules SQLITE-1 to
 * SQLITE-9 are in sqlite.c. */
#ifndef PLX_SQLITE_INSIDE_H
#define PLX_SQLITE_INSIDE_H

#include "registry/clock.h"
#include "registry/schema.h"
#include "registry/sqlite.h"

#define LOCK_SUFFIX ".lock"
#define TURNS_MS 1000         /* SQLITE-8: every caller waits this long for other processes */
#define SHORT_MS 50           /* SQLITE-8: who has given up outlasts an ordinary commit */
#define BUSY_TIMEOUT_MS 30000 /* SQLITE-8: without patience, and after the first change */
#define CHANGES_APART_MS 10u  /* a change that follows this soon first pauses for TURN_NS */
#define TURN_NS 1000000
#define COLUMNS_MAX 16
#define FILE_EVENT_BYTES (8 << 20)
#define ALWAYS "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF"

struct plx_prepared {
    struct plx_prepared *next;
    const char *text;
    sqlite3_stmt *statement;
};

/* sqlite_open.c */
void plx_sqlite_disconnect(struct plx_sqlite *lite);
int plx_sqlite_open_locked(struct plx_sqlite *lite, bool create, struct plx_fault *fault);
/* Likewise, for a region. Read-only openers share the byte: they migrate nothing and only keep
 * others from migrating meanwhile. */
int plx_sqlite_open_in_turn(struct plx_sqlite *lite, struct plx_fault *fault);

/* sqlite.c */
void plx_sqlite_note_damage(struct plx_sqlite *lite);
int plx_sqlite_wait_turn(void *context, int asked);
int plx_sqlite_prepare(struct plx_sqlite *lite, const char *text, sqlite3_stmt **ret_statement);
int plx_sqlite_step(struct plx_sqlite *lite, const struct plx_sql *sql,
                    void (*row)(void *, const struct plx_sql_value *, size_t), void *context,
                    size_t *ret_rows);
int plx_sqlite_give_up(struct plx_sqlite *lite, int result, struct plx_fault *fault);

#endif
