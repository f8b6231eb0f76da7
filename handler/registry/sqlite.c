/* sqlite.c - the registry in SQLite: in a region of a volume, or in a file.
 *
 * SQLITE-1  A committed batch survives a power cut: synchronous=FULL, with a rollback journal in a
 *     region (region.c) and with WAL in a file.
 * SQLITE-2  A change takes the write lock before its first statement (BEGIN IMMEDIATE). So nobody
 *     changes what its conditions read, and two changes cannot deadlock by upgrading read locks.
 * SQLITE-3  A database is changed only after it was recognised as a registry of a known schema. A
 *     foreign or newer database stays as it is.
 * SQLITE-4  A file that was deleted or replaced while open is not used any more. The next call
 *     opens the file that has the name now, so two processes cannot work on two registries under
 *     one name. A region cannot be replaced.
 * SQLITE-5  In a region SQLite opens and writes the region and no file. What SQLite would put into
 *     temporary files stays in memory, and so do pages that a transaction changed, until its commit
 *     (cache_spill=OFF). Spilling would also make SQLite read back pages of its free list that it
 *     never wrote. These can contain anything, so their stamps would look like damage.
 * SQLITE-6  When four fifths of a region are in use, the rest is reserved for changes that free
 *     something, so that a full registry can be emptied. Statements that need less are left out
 *     later; `leaves` in sql.h has the steps:
 *
 *       free pages below   left out
 *       a fifth            audit events; new disks and labels are refused (registry.c)
 *       an eighth          rows of extents used for the first time, which are never removed
 *       a sixteenth        what a collection has found; the rest is needed to lengthen the region
 *
 * SQLITE-7  A region can become longer while it is open (REGION-9). The first change that sees the
 *     new length raises SQLite's page limit and the limit of events. Until then the old limits
 *     hold.
 * SQLITE-8  How long a call waits while other processes hold SQLite's locks. They hold them for
 *     fractions of a millisecond.
 *
 *       connection                        waits
 *       no patience was given             30 s
 *       patience, before its first change 1 s; then the patience decides whether to wait on
 *       that patience was used up         50 ms
 *       after its first change            30 s, since something has begun that must be finished
 *       those were used up, too           50 ms, until a change of its own succeeds: otherwise
 *                                         one statement after the other would wait
 *
 *     A change whose commit was given up for those locks is none: it was rolled back.
 * SQLITE-9  All triggers and views in the schema come from our migrations. A foreign trigger or
 *     view runs by itself or in place of a table: it could change rows unseen, or never end.
 * Threads: one at a time per handle; any number of processes.
 * Crash story: SQLite's. A crash while a file is made leaves an empty file, which the next opener
 *   fills. The schema and all pending migrations are one transaction.
 */
#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "registry/sqlite_inside.h"

/* ---- Errors ------------------------------------------------------------------------------ */

/* Errors of a registry that is a file. */
static int file_failed(const struct plx_sqlite *lite, int result, const char *text,
                       struct plx_fault *fault)
{
    switch (result & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return plx_fault_set(fault, PLX_ERR_REGISTRY,
                             "registry %.80s is damaged (%.60s); run 'parallax store "
                             "rebuild-registry'",
                             lite->path, text);
    case SQLITE_FULL:
        return plx_fault_set(fault, PLX_ERR_NOSPACE,
                             "registry %.120s: its file system is full; make room there",
                             lite->path);
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_AUTH:
        return plx_fault_set(fault, PLX_ERR_REGISTRY,
                             "registry %.120s: no permission to write "
                             "it or its directory (%.60s)",
                             lite->path, text);
    default:
        return plx_fault_set(fault, PLX_ERR_REGISTRY, "registry %.120s: %.100s", lite->path, text);
    }
}

/* Errors of a registry in a region. An I/O error's text comes from the file system below SQLite,
 * which knows what the device said. */
static int region_failed(const struct plx_sqlite *lite, int result, const char *text,
                         struct plx_fault *fault)
{
    struct plx_fault below = plx_region_vfs_fault(lite->vfs);

    switch (result & 0xff) {
    case SQLITE_IOERR:
        if (below.code)
            return plx_fault_set(fault, below.code, "%s", below.text);
        break;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return plx_fault_set(fault, PLX_ERR_REGISTRY,
                             "the registry in %.80s is damaged (%.60s); run 'parallax store "
                             "rebuild-registry'",
                             lite->path, text);
    case SQLITE_FULL:
        return plx_fault_set(fault, PLX_ERR_NOSPACE,
                             "the registry's space in %.80s is full (%u pages): delete disks or "
                             "labels that are not needed any more" PLX_SQL_MORE_ROOM,
                             lite->path, plx_region_vfs_pages(lite->vfs));
    case SQLITE_READONLY:
        if (result == SQLITE_READONLY_ROLLBACK)
            return plx_fault_set(fault, PLX_ERR_REGISTRY,
                                 "the registry in %.80s was left in the middle of a change: open "
                                 "the store once for writing",
                                 lite->path);
        if (lite->region.unknown)
            return plx_superblock_check_known(lite->region.device, lite->region.unknown, fault);
        return plx_fault_set(fault, PLX_ERR_READONLY,
                             "the registry in %.120s is opened for reading only", lite->path);
    }
    return plx_fault_set(fault, PLX_ERR_REGISTRY, "the registry in %.120s: %.100s", lite->path,
                         text);
}

/* SQLITE-8: whether the caller's patience decides, instead of the fixed limit. */
static bool is_patient(const struct plx_sqlite *lite)
{
    return lite->region.patience && !lite->changed_at;
}

static int kept_busy(const struct plx_sqlite *lite, struct plx_fault *fault)
{
    return plx_fault_set(fault, lite->region.patience ? PLX_ERR_TURN : PLX_ERR_REGISTRY,
                         "registry %.120s: another process keeps it busy; try again", lite->path);
}

/* Results that say that the contents are wrong: a page's stamp (REGION-2), SQLite's structures, a
 * table that is missing. An unreadable device is no damage. */
static bool is_damage(int result)
{
    return result == SQLITE_IOERR_DATA || (result & 0xff) == SQLITE_CORRUPT ||
           (result & 0xff) == SQLITE_NOTADB || (result & 0xff) == SQLITE_ERROR;
}

void plx_sqlite_note_damage(struct plx_sqlite *lite)
{
    if (lite->region.damaged)
        *lite->region.damaged = true;
}

int plx_sqlite_failed(struct plx_sqlite *lite, int result, struct plx_fault *fault)
{
    bool last = lite->db && sqlite3_extended_errcode(lite->db) == result;
    const char *text = last ? sqlite3_errmsg(lite->db) : sqlite3_errstr(result);

    if (is_damage(result))
        plx_sqlite_note_damage(lite);
    switch (result & 0xff) {
    case SQLITE_NOMEM:
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory in the registry");
    case SQLITE_CONSTRAINT:
        if (result == SQLITE_CONSTRAINT_UNIQUE || result == SQLITE_CONSTRAINT_PRIMARYKEY)
            return plx_fault_set(fault, PLX_ERR_EXISTS, "exists already (%.150s)", text);
        if (result == SQLITE_CONSTRAINT_FOREIGNKEY)
            return plx_fault_set(fault, PLX_ERR_BUSY,
                                 "still referred to, or refers to what is "
                                 "not there (%.150s)",
                                 text);
        if (result == SQLITE_CONSTRAINT_TRIGGER) /* in the words of the schema */
            return plx_fault_set(fault, PLX_ERR_REGISTRY, "%.250s", text);
        return plx_fault_set(fault, PLX_ERR_INVALID, "out of bounds (%.150s)", text);
    case SQLITE_MISMATCH:
    case SQLITE_TOOBIG:
        return plx_fault_set(fault, PLX_ERR_INVALID, "out of bounds (%.150s)", text);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return kept_busy(lite, fault);
    default:
        return lite->vfs ? region_failed(lite, result, text, fault)
                         : file_failed(lite, result, text, fault);
    }
}

/* ---- Taking turns ------------------------------------------------------------------------ */

/* SQLite's busy handler (SQLITE-8); returns 1 to try again. SQLite's own handler sleeps longer and
 * longer, so one process that writes without pause would starve the others. This one tries again
 * after a random 0.2 to 1.2 ms, about as often as others change something. */
int plx_sqlite_wait_turn(void *context, int asked)
{
    struct plx_sqlite *lite = context;
    struct timespec pause = {.tv_nsec = 200000 + (long)(plx_id_random() % 1000000)};
    bool patient = is_patient(lite);
    unsigned limit_ms = lite->given_up ? SHORT_MS : patient ? TURNS_MS : BUSY_TIMEOUT_MS;
    struct plx_fault why;

    if (asked == 0)
        lite->busy_since_ns = plx_patience_begin();
    if ((plx_patience_begin() - lite->busy_since_ns) / 1000000 < limit_ms) {
        nanosleep(&pause, NULL);
        return 1;
    }
    if (!patient)
        lite->given_up = lite->region.patience != NULL;
    if (!patient || lite->given_up)
        return 0;
    kept_busy(lite, &why);
    lite->given_up = !plx_patience_waits(lite->region.patience, lite->busy_since_ns, &why);
    return !lite->given_up;
}

/* ---- Running batches --------------------------------------------------------------------- */

int plx_sqlite_prepare(struct plx_sqlite *lite, const char *text, sqlite3_stmt **ret_statement)
{
    struct plx_prepared **link = &lite->prepared, *found;
    int result;

    while (*link && (*link)->text != text)
        link = &(*link)->next;
    found = *link;
    if (found) {
        *link = found->next;
    } else {
        found = calloc(1, sizeof *found);
        if (!found)
            return SQLITE_NOMEM;
        found->text = text;
        result = sqlite3_prepare_v3(lite->db, text, -1, SQLITE_PREPARE_PERSISTENT,
                                    &found->statement, NULL);
        if (result) {
            free(found);
            return result;
        }
    }
    found->next = lite->prepared;
    lite->prepared = found;
    *ret_statement = found->statement;
    return SQLITE_OK;
}

static int bind_values(sqlite3_stmt *statement, const struct plx_sql *sql)
{
    int result = SQLITE_OK;

    for (size_t i = 0; i < sql->count && !result; i++) {
        const struct plx_sql_value *value = &sql->args[i];

        if (value->kind == PLX_SQL_INT)
            result = sqlite3_bind_int64(statement, (int)i + 1, value->number);
        else if (value->kind == PLX_SQL_TEXT)
            result = sqlite3_bind_text(statement, (int)i + 1, value->text, -1, SQLITE_STATIC);
    }
    return result;
}

static void fetch(sqlite3_stmt *statement, struct plx_sql_value *columns, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *text = NULL;

        columns[i] = (struct plx_sql_value){PLX_SQL_NULL, 0, ""};
        switch (sqlite3_column_type(statement, (int)i)) {
        case SQLITE_INTEGER:
            columns[i].kind = PLX_SQL_INT;
            columns[i].number = sqlite3_column_int64(statement, (int)i);
            break;
        case SQLITE_TEXT:
            text = (const char *)sqlite3_column_text(statement, (int)i);
            columns[i].kind = PLX_SQL_TEXT;
            columns[i].text = text ? text : "";
            break;
        }
    }
}

/* Runs one statement to its end. Returns SQLite's result and counts the rows. */
int plx_sqlite_step(struct plx_sqlite *lite, const struct plx_sql *sql,
                    void (*row)(void *, const struct plx_sql_value *, size_t), void *context,
                    size_t *ret_rows)
{
    struct plx_sql_value columns[COLUMNS_MAX];
    sqlite3_stmt *statement;
    size_t rows = 0, count;
    bool hand_up;
    int result = plx_sqlite_prepare(lite, sql->text, &statement);

    if (result)
        return result;
    count = (size_t)sqlite3_column_count(statement);
    PLX_ASSERT(count <= COLUMNS_MAX);
    PLX_ASSERT(sql->count == (size_t)sqlite3_bind_parameter_count(statement));
    hand_up = !sql->quiet && sqlite3_stmt_readonly(statement);
    result = bind_values(statement, sql);
    while (!result && (result = sqlite3_step(statement)) == SQLITE_ROW) {
        if (hand_up) {
            fetch(statement, columns, count);
            row(context, columns, count);
        }
        rows++;
        result = SQLITE_OK;
    }
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
    *ret_rows = rows;
    return result == SQLITE_DONE ? SQLITE_OK : result;
}

int plx_sqlite_exec(struct plx_sqlite *lite, const char *sql)
{
    return sqlite3_exec(lite->db, sql, NULL, NULL, NULL);
}

/* Sets the fault, then rolls back, which would change SQLite's error text. Returns the fault's
 * code. */
int plx_sqlite_give_up(struct plx_sqlite *lite, int result, struct plx_fault *fault)
{
    int code = plx_sqlite_failed(lite, result, fault);

    if (!sqlite3_get_autocommit(lite->db))
        plx_sqlite_exec(lite, "ROLLBACK");
    return code;
}

/* ---- As a whole -------------------------------------------------------------------------- */

/* When SQLite's check cannot read a page, it goes on, and only its text has the result code.
 * Returns that code, or SQLITE_CORRUPT when the text has none. */
static int result_in(const char *text)
{
    static const char given[] = "error code=";
    const char *found = strstr(text, given);

    return found ? (int)strtol(found + strlen(given), NULL, 10) : SQLITE_CORRUPT;
}

int plx_sqlite_check(struct plx_sqlite *lite, const char *pragma, const char *what,
                     const char *next, struct plx_fault *fault)
{
    const char *text = "no answer";
    sqlite3_stmt *check;
    int code = 0, result = sqlite3_prepare_v2(lite->db, pragma, -1, &check, NULL);

    if (result)
        return plx_sqlite_failed(lite, result, fault);
    result = sqlite3_step(check);
    if (result == SQLITE_ROW)
        text = (const char *)sqlite3_column_text(check, 0);
    if (result != SQLITE_ROW)
        code = plx_sqlite_failed(lite, result, fault);
    else if (!text)
        code = plx_sqlite_failed(lite, SQLITE_NOMEM, fault);
    else if (!strcmp(text, "ok"))
        code = 0;
    else if (!is_damage(result_in(text)))
        code = plx_sqlite_failed(lite, result_in(text), fault);
    else
        code = plx_fault_set(fault, PLX_ERR_REGISTRY, "%.150s is damaged: %.120s; %s", what, text,
                             next);
    sqlite3_finalize(check);
    return code;
}
