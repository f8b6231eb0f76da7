/* sqlite.c - the registry in SQLite: in a region of a volume, or in a file.
 *
 * SQLITE-1  A committed batch survives a power cut: synchronous=FULL, with a rollback journal in a
 *     region (region.c), with WAL in a file.
 * SQLITE-2  A change takes the write lock before its first statement (BEGIN IMMEDIATE), so what its
 *     conditions read is what it changes, and there are no deadlocks to break.
 * SQLITE-3  A file is touched only after it was recognised: a foreign or newer one stays as it is.
 * SQLITE-4  A file that was deleted or replaced while open is never used any more; two processes
 *     cannot work on two registries under one name. A region cannot be replaced.
 * SQLITE-5  In a region nothing but the region is opened or written: what SQLite would put into
 *     files of its own stays in memory, and pages that a transaction changed stay there until its
 *     commit. That also keeps SQLite from reading again what it never wrote: a page that is on the
 *     free list can be anything, and would be taken for damage.
 * SQLITE-6  The last fifth of a region is for what frees something: events are left out there. Rows
 *     of further extents stop before that is used up, for they are never removed; what a collection
 *     has found stops where a region could not be made longer any more.
 * SQLITE-7  A region can become longer while it is open (REGION-9). The first change that finds it
 *     so raises the limits of pages and of events; until then the old ones hold.
 * SQLITE-8  Others have the registry for fractions of a millisecond: for a second their turns are
 *     waited for by anybody. Longer before the first change as the caller's patience says; who has
 *     not enough of it does not wait again. From that change on, for something has begun, as long
 *     as who was given no patience.
 * SQLITE-9  What runs by itself, or in place of a table, is ours: a trigger or view that no
 *     migration has made could change rows unseen, or never end.
 * Threads: one at a time per handle, any number of processes.
 * Crash story: SQLite's. A crash while the file is made leaves an empty one, which the next
 *   opener fills; the schema and all pending migrations are one transaction.
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

/* What only a file can have. */
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

/* And a region: the layer below SQLite knows best what went wrong there. */
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

/* SQLITE-8 */
static bool is_patient(const struct plx_sqlite *lite)
{
    return lite->region.patience && !lite->changed_at;
}

static int kept_busy(const struct plx_sqlite *lite, struct plx_fault *fault)
{
    return plx_fault_set(fault, is_patient(lite) ? PLX_ERR_TURN : PLX_ERR_REGISTRY,
                         "registry %.120s: another process keeps it busy; try again", lite->path);
}

/* By its contents: a page's stamp (REGION-2), its structure, tables that are not there. */
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

static uint64_t monotonic_ms(void)
{
    return plx_clock_ns(CLOCK_MONOTONIC) / 1000000;
}

/* SQLITE-8. SQLite's own busy handler sleeps ever longer, and one process that writes without pause
 * starves the others: ask again as often as they change something, at odd times. */
int plx_sqlite_wait_turn(void *context, int asked)
{
    struct plx_sqlite *lite = context;
    struct timespec pause = {.tv_nsec = 200000 + (long)(plx_id_random() % 1000000)};
    bool patient = is_patient(lite);
    unsigned limit_ms = !patient ? BUSY_TIMEOUT_MS : lite->given_up ? 0 : TURNS_MS;
    struct plx_fault why;

    if (asked == 0)
        lite->busy_since_ns = plx_patience_begin();
    if ((plx_patience_begin() - lite->busy_since_ns) / 1000000 < limit_ms) {
        nanosleep(&pause, NULL);
        return 1;
    }
    if (!patient || lite->given_up)
        return 0;
    kept_busy(lite, &why);
    lite->given_up = !plx_patience_waits(lite->region.patience, lite->busy_since_ns, &why);
    return !lite->given_up;
}

/* One that makes change after change leaves room between them. */
static void give_turn(struct plx_sqlite *lite)
{
    struct timespec pause = {.tv_nsec = TURN_NS};

    if (monotonic_ms() - lite->changed_at < CHANGES_APART_MS)
        nanosleep(&pause, NULL);
}

/* ---- Running batches --------------------------------------------------------------------- */

static int prepare(struct plx_sqlite *lite, const char *text, sqlite3_stmt **ret_statement)
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

/* Runs one statement to its end. Returns SQLite's result and how many rows there were. */
int plx_sqlite_step(struct plx_sqlite *lite, const struct plx_sql *sql,
                    void (*row)(void *, const struct plx_sql_value *, size_t), void *context,
                    size_t *ret_rows)
{
    struct plx_sql_value columns[COLUMNS_MAX];
    sqlite3_stmt *statement;
    size_t rows = 0, count;
    int result = prepare(lite, sql->text, &statement);

    if (result)
        return result;
    count = (size_t)sqlite3_column_count(statement);
    PLX_ASSERT(count <= COLUMNS_MAX);
    PLX_ASSERT(sql->count == (size_t)sqlite3_bind_parameter_count(statement));
    result = bind_values(statement, sql);
    while (!result && (result = sqlite3_step(statement)) == SQLITE_ROW) {
        if (!sql->quiet) {
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

/* Rolls back, keeping the error for the fault. Returns the fault's code. */
int plx_sqlite_give_up(struct plx_sqlite *lite, int result, struct plx_fault *fault)
{
    int code = plx_sqlite_failed(lite, result, fault);

    if (!sqlite3_get_autocommit(lite->db))
        plx_sqlite_exec(lite, "ROLLBACK");
    return code;
}

/* SQLITE-4. The file may have been deleted, or deleted and rebuilt: then the rebuilt one is the
 * one. */
static int follow(struct plx_sqlite *lite, struct plx_fault *fault)
{
    int moved = 0;

    if (lite->vfs) {
        plx_region_vfs_fault(lite->vfs); /* of this call, what comes now */
        return 0;
    }
    if (lite->db) {
        sqlite3_file_control(lite->db, "main", SQLITE_FCNTL_HAS_MOVED, &moved);
        if (!moved)
            return 0;
        plx_sqlite_disconnect(lite);
    }
    return plx_sqlite_open_locked(lite, false, fault);
}

/* Pages in use, as this transaction leaves them. */
static int used_pages(struct plx_sqlite *lite, int64_t *ret_used)
{
    static const char sql[] = "SELECT page_count - freelist_count"
                              " FROM pragma_page_count(), pragma_freelist_count()";
    sqlite3_stmt *statement;
    int result = prepare(lite, sql, &statement);

    if (!result && sqlite3_step(statement) == SQLITE_ROW)
        *ret_used = sqlite3_column_int64(statement, 0);
    return result ? result : sqlite3_reset(statement);
}

/* SQLITE-6. Pages in use, if there is a statement that depends on them. */
static int look_for_room(struct plx_sqlite *lite, const struct plx_sql *batch, size_t count,
                         int64_t *ret_used)
{
    bool asked = false;

    for (size_t i = 0; i < count; i++)
        asked |= batch[i].leaves != 0;
    return lite->vfs && asked ? used_pages(lite, ret_used) : SQLITE_OK;
}

static bool left_out(const struct plx_sqlite *lite, const struct plx_sql *sql, int64_t used)
{
    return lite->vfs && sql->leaves &&
           plx_sql_crowded((uint64_t)used, plx_region_vfs_pages(lite->vfs), sql->leaves);
}

/* SQLITE-7. Within a change. */
static int fit(struct plx_sqlite *lite)
{
    uint32_t pages = lite->vfs ? plx_region_vfs_pages(lite->vfs) : 0;
    char sql[128];
    int result;

    if (pages == lite->pages)
        return SQLITE_OK;
    snprintf(sql, sizeof sql, "PRAGMA max_page_count = %u; UPDATE room SET event_limit = %lld",
             pages, (long long)plx_sqlite_event_limit(lite));
    result = plx_sqlite_exec(lite, sql);
    if (!result)
        lite->pages = pages;
    return result;
}

int plx_sqlite_run(void *driver, bool change, const struct plx_sql *batch, size_t count,
                   void (*row)(void *, const struct plx_sql_value *, size_t), void *context,
                   struct plx_fault *ret_fault)
{
    struct plx_sqlite *lite = driver;
    int result = SQLITE_OK, code = follow(lite, ret_fault);
    int64_t used = 0;
    size_t rows;

    if (code)
        return code;
    PLX_ASSERT(change || count == 1);
    if (change) {
        give_turn(lite);
        result = plx_sqlite_exec(lite, "BEGIN IMMEDIATE");
        if (!result)
            result = fit(lite);
        if (!result)
            result = look_for_room(lite, batch, count, &used);
    }
    for (size_t i = 0; i < count && !result; i++) {
        rows = 0;
        if (!left_out(lite, &batch[i], used))
            result = plx_sqlite_step(lite, &batch[i], row, context, &rows);
        if (!result && batch[i].must && !rows) {
            plx_sqlite_exec(lite, "ROLLBACK");
            lite->changed_at = monotonic_ms();
            return (int)i + 1;
        }
    }
    if (!result && change) {
        result = plx_sqlite_exec(lite, "COMMIT");
        lite->changed_at = monotonic_ms();
    }
    return result ? plx_sqlite_give_up(lite, result, ret_fault) : 0;
}

int plx_sqlite_room(void *driver, uint64_t *ret_used, uint64_t *ret_pages, struct plx_fault *fault)
{
    struct plx_sqlite *lite = driver;
    int code = follow(lite, fault), result;
    int64_t used = 0;

    if (code)
        return code;
    result = used_pages(lite, &used);
    if (result)
        return plx_sqlite_failed(lite, result, fault);
    *ret_used = (uint64_t)used;
    *ret_pages = lite->vfs ? plx_region_vfs_pages(lite->vfs) : 0;
    return 0;
}

/* Nothing is changed: the rollback only gives the lock up. */
int plx_sqlite_alone(void *driver, int (*work)(void *context, struct plx_fault *fault),
                     void *context, struct plx_fault *fault)
{
    struct plx_sqlite *lite = driver;
    int code = follow(lite, fault), result;

    if (code)
        return code;
    result = plx_sqlite_exec(lite, "BEGIN EXCLUSIVE");
    if (result)
        return plx_sqlite_give_up(lite, result, fault);
    code = work(context, fault);
    plx_sqlite_exec(lite, "ROLLBACK");
    return code;
}

/* ---- As a whole -------------------------------------------------------------------------- */

/* SQLite's check goes on past a page that it cannot get, and gives the reason in its text alone.
 * Returns that result, or SQLITE_CORRUPT. */
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

int plx_sqlite_check_whole(void *driver, struct plx_fault *fault)
{
    return plx_sqlite_check(driver, "PRAGMA integrity_check(1)", "the registry",
                            "run 'parallax store rebuild-registry'", fault);
}
