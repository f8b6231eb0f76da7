/* sqlite.c - the registry in an SQLite file.
 *
 * S1  WAL and synchronous=FULL: a committed batch survives a power cut.
 * S2  A change takes the write lock before its first statement (BEGIN IMMEDIATE), so what its
 *     conditions read is what it changes, and there are no deadlocks to break.
 * S3  A file is touched only after it was recognised: a foreign or newer one stays as it is.
 * S4  A file that was deleted or replaced while open is never used any more; two processes cannot
 *     work on two registries under one name.
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

#include "registry/clock.h"
#include "registry/schema.h"
#include "registry/sql.h"

#define BUSY_TIMEOUT_MS 30000
#define CHANGES_APART_MS 10u
#define TURN_NS 1000000
#define COLUMNS_MAX 16

struct prepared {
    struct prepared *next;
    const char *text;
    sqlite3_stmt *statement;
};

struct sqlite {
    sqlite3 *db;
    struct prepared *prepared; /* most recently used first */
    uint64_t busy_since;       /* monotonic ms; wait_turn's */
    uint64_t changed_at;       /* monotonic ms; give_turn's */
    char path[PLX_PATH_MAX];
};

/* ---- Errors ------------------------------------------------------------------------------ */

static int failed(struct sqlite *lite, int result, struct plx_fault *fault)
{
    const char *text = lite->db ? sqlite3_errmsg(lite->db) : sqlite3_errstr(result);
    const char *path = lite->path;

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
        return plx_fault_set(fault, PLX_ERR_INVALID, "out of bounds (%.150s)", text);
    case SQLITE_MISMATCH:
    case SQLITE_TOOBIG:
        return plx_fault_set(fault, PLX_ERR_INVALID, "out of bounds (%.150s)", text);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return plx_fault_set(fault, PLX_ERR_REGISTRY,
                             "registry %.120s: another process has kept "
                             "it busy for %d s; try again",
                             path, BUSY_TIMEOUT_MS / 1000);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return plx_fault_set(fault, PLX_ERR_REGISTRY,
                             "registry %.80s is damaged (%.60s); move it "
                             "away and run 'parallax store rebuild-registry'",
                             path, text);
    case SQLITE_FULL:
        return plx_fault_set(fault, PLX_ERR_REGISTRY, "registry %.120s: its file system is full",
                             path);
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_AUTH:
        return plx_fault_set(fault, PLX_ERR_REGISTRY,
                             "registry %.120s: no permission to write "
                             "it or its directory (%.60s)",
                             path, text);
    default:
        return plx_fault_set(fault, PLX_ERR_REGISTRY, "registry %.120s: %.100s", path, text);
    }
}

/* ---- Taking turns ------------------------------------------------------------------------ */

static uint64_t monotonic_ms(void)
{
    return plx_clock_ns(CLOCK_MONOTONIC) / 1000000;
}

/* SQLite's own busy handler sleeps ever longer, and one process that writes without pause starves
 * the others. A change takes a fraction of a millisecond: ask again as often, at odd times. */
static int wait_turn(void *context, int asked)
{
    struct sqlite *lite = context;
    struct timespec pause = {.tv_nsec = 200000 + (long)(plx_id_random() % 1000000)};
    uint64_t now = monotonic_ms();

    if (asked == 0)
        lite->busy_since = now;
    if (now - lite->busy_since > BUSY_TIMEOUT_MS)
        return 0;
    nanosleep(&pause, NULL);
    return 1;
}

/* One that makes change after change leaves room between them. */
static void give_turn(struct sqlite *lite)
{
    struct timespec pause = {.tv_nsec = TURN_NS};

    if (monotonic_ms() - lite->changed_at < CHANGES_APART_MS)
        nanosleep(&pause, NULL);
}

/* ---- Running batches --------------------------------------------------------------------- */

static int prepare(struct sqlite *lite, const char *text, sqlite3_stmt **ret_statement)
{
    struct prepared **link = &lite->prepared, *found;
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
static int step(struct sqlite *lite, const struct plx_sql *sql,
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
        fetch(statement, columns, count);
        row(context, columns, count);
        rows++;
        result = SQLITE_OK;
    }
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
    *ret_rows = rows;
    return result == SQLITE_DONE ? SQLITE_OK : result;
}

static int exec(struct sqlite *lite, const char *sql)
{
    return sqlite3_exec(lite->db, sql, NULL, NULL, NULL);
}

/* Rolls back, keeping the error for the fault. Returns the fault's code. */
static int give_up(struct sqlite *lite, int result, struct plx_fault *fault)
{
    int code = failed(lite, result, fault);

    if (!sqlite3_get_autocommit(lite->db))
        exec(lite, "ROLLBACK");
    return code;
}

static void disconnect(struct sqlite *lite);
static int open_locked(struct sqlite *lite, bool create, struct plx_fault *fault);

/* S4. The file may have been deleted, or deleted and rebuilt: then the rebuilt one is the one. */
static int follow(struct sqlite *lite, struct plx_fault *fault)
{
    int moved = 0;

    if (lite->db) {
        sqlite3_file_control(lite->db, "main", SQLITE_FCNTL_HAS_MOVED, &moved);
        if (!moved)
            return 0;
        disconnect(lite);
    }
    return open_locked(lite, false, fault);
}

static int sqlite_run(void *driver, bool change, const struct plx_sql *batch, size_t count,
                      void (*row)(void *, const struct plx_sql_value *, size_t), void *context,
                      struct plx_fault *ret_fault)
{
    struct sqlite *lite = driver;
    int result = SQLITE_OK, code = follow(lite, ret_fault);
    size_t rows;

    if (code)
        return code;
    PLX_ASSERT(change || count == 1);
    if (change) {
        give_turn(lite);
        result = exec(lite, "BEGIN IMMEDIATE");
    }
    for (size_t i = 0; i < count && !result; i++) {
        result = step(lite, &batch[i], row, context, &rows);
        if (!result && batch[i].must && !rows) {
            exec(lite, "ROLLBACK");
            lite->changed_at = monotonic_ms();
            return (int)i + 1;
        }
    }
    if (!result && change) {
        result = exec(lite, "COMMIT");
        lite->changed_at = monotonic_ms();
    }
    return result ? give_up(lite, result, ret_fault) : 0;
}

/* ---- Opening and migration --------------------------------------------------------------- */

static int scalar(struct sqlite *lite, const char *sql, int64_t *ret_value)
{
    sqlite3_stmt *statement;
    int result = sqlite3_prepare_v2(lite->db, sql, -1, &statement, NULL);

    if (result)
        return result;
    result = sqlite3_step(statement);
    if (result == SQLITE_ROW)
        *ret_value = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return result == SQLITE_ROW ? SQLITE_OK : result == SQLITE_DONE ? SQLITE_ERROR : result;
}

/* S3. The schema's number, 0 for an empty file; refuses what is not for us. */
static int recognise(struct sqlite *lite, int64_t *ret_number, struct plx_fault *fault)
{
    int64_t tables, ours, number = 0;
    int result = scalar(lite, "SELECT count(*) FROM sqlite_schema", &tables);

    if (!result)
        result = scalar(lite,
                        "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name"
                        " IN ('migrations', 'volumes', 'extents', 'vdis')",
                        &ours);
    if (!result && tables && ours != 4)
        return plx_fault_set(fault, PLX_ERR_REGISTRY,
                             "%.150s is an SQLite file, but not a "
                             "Parallax registry; it was left alone",
                             lite->path);
    if (!result && tables)
        result = scalar(lite, "SELECT max(number) FROM migrations", &number);
    if (result)
        return failed(lite, result, fault);
    if (number > (int64_t)plx_schema_count)
        return plx_fault_set(fault, PLX_ERR_REGISTRY,
                             "registry %.100s has schema %lld, this "
                             "program knows up to %zu; use a newer Parallax (nothing was changed)",
                             lite->path, (long long)number, plx_schema_count);
    *ret_number = number;
    return 0;
}

static int migrate(struct sqlite *lite, int64_t number, struct plx_fault *fault)
{
    char note[128];
    int result = exec(lite, "BEGIN IMMEDIATE");

    for (size_t i = (size_t)number; i < plx_schema_count && !result; i++) {
        result = exec(lite, plx_schema[i].sql);
        snprintf(note, sizeof note, "INSERT INTO migrations VALUES (%d, %llu)",
                 plx_schema[i].number, (unsigned long long)plx_sql_now());
        if (!result)
            result = exec(lite, note);
    }
    if (!result)
        result = exec(lite, "COMMIT");
    return result ? give_up(lite, result, fault) : 0;
}

static int enter_wal(struct sqlite *lite, struct plx_fault *fault)
{
    sqlite3_stmt *statement;
    bool wal = false;
    int result = sqlite3_prepare_v2(lite->db, "PRAGMA journal_mode = WAL", -1, &statement, NULL);

    if (!result) {
        result = sqlite3_step(statement);
        wal =
            result == SQLITE_ROW && !strcmp((const char *)sqlite3_column_text(statement, 0), "wal");
        result = sqlite3_finalize(statement);
    }
    if (!result)
        result = exec(lite, "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;"
                            "PRAGMA trusted_schema = OFF");
    if (result)
        return failed(lite, result, fault);
    if (!wal)
        return plx_fault_set(fault, PLX_ERR_REGISTRY,
                             "registry %.120s: its file system cannot "
                             "share memory (WAL mode refused); use a local one",
                             lite->path);
    return 0;
}

/* Makes an empty file. A -wal or -shm lying there belongs to a file that was deleted and may
 * still be open somewhere; the new registry must not meet them. */
static int create_file(struct sqlite *lite, struct plx_fault *fault)
{
    static const char *const suffixes[] = {"-wal", "-shm", "-journal"};
    char path[PLX_PATH_MAX + 16];
    int fd;

    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s%s", lite->path, suffixes[i]);
        unlink(path);
    }
    fd = open(lite->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return plx_fault_set(fault, PLX_ERR_REGISTRY, "cannot make the registry %.150s: %s",
                             lite->path, strerror(errno));
    close(fd);
    return 0;
}

static int open_database(struct sqlite *lite, bool create, struct plx_fault *fault)
{
    int64_t number = 0;
    int code = 0, result;

    if (access(lite->path, F_OK) && errno == ENOENT) {
        if (!create)
            return plx_fault_set(fault, PLX_ERR_REGISTRY,
                                 "registry %.120s was deleted or moved "
                                 "away; run 'parallax store rebuild-registry'",
                                 lite->path);
        code = create_file(lite, fault);
    }
    if (code)
        return code;
    result =
        sqlite3_open_v2(lite->path, &lite->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (result)
        return failed(lite, result, fault);
    sqlite3_extended_result_codes(lite->db, 1);
    sqlite3_busy_handler(lite->db, wait_turn, lite);
    sqlite3_db_config(lite->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    code = recognise(lite, &number, fault);
    if (!code)
        code = enter_wal(lite, fault);
    if (!code && number < (int64_t)plx_schema_count)
        code = migrate(lite, number, fault);
    return code;
}

static void disconnect(struct sqlite *lite)
{
    while (lite->prepared) {
        struct prepared *first = lite->prepared;

        lite->prepared = first->next;
        sqlite3_finalize(first->statement);
        free(first);
    }
    sqlite3_close(lite->db);
    lite->db = NULL;
}

/* Openers take turns: making the file, recognising it and migrating it are one step to others. */
static int open_locked(struct sqlite *lite, bool create, struct plx_fault *fault)
{
    char path[PLX_PATH_MAX + 16];
    int fd, code;

    snprintf(path, sizeof path, "%s.lock", lite->path);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || flock(fd, LOCK_EX)) {
        code = plx_fault_set(fault, errno == EACCES ? PLX_ERR_PERMISSION : PLX_ERR_REGISTRY,
                             "cannot open the registry %.120s: %s%s", lite->path, strerror(errno),
                             errno == EACCES ? "; run as root, or give --state-dir" : "");
    } else {
        code = open_database(lite, create, fault);
        if (code)
            disconnect(lite);
    }
    if (fd >= 0)
        close(fd);
    return code;
}

static void sqlite_close(void *driver)
{
    disconnect(driver);
    free(driver);
}

int plx_sqlite_open(const char *path, const struct plx_registry_ops **ret_ops, void **ret_driver,
                    struct plx_fault *fault)
{
    static const struct plx_registry_ops ops = {.run = sqlite_run, .close = sqlite_close};
    struct sqlite *lite = calloc(1, sizeof *lite);
    int code;

    if (!lite)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory opening the registry");
    if (snprintf(lite->path, sizeof lite->path, "%s", path) >= (int)sizeof lite->path)
        code = plx_fault_set(fault, PLX_ERR_INVALID, "the path of the registry is too long");
    else
        code = open_locked(lite, true, fault);
    if (code) {
        free(lite);
        return code;
    }
    *ret_ops = &ops;
    *ret_driver = lite;
    return 0;
}
