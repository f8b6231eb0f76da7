/* sqlite_open.c - opening a registry's database: recognising it, migrating it, closing it. Rules:
 * sqlite.c.
 *
 *   step                     a file                        a region
 *   1 openers take turns     flock() on FILE.lock          the byte PLX_BYTE_OPENING
 *   2 make it if missing     an empty file                 plx_region_blank() did, at creation
 *   3 recognise (SQLITE-3)   plx_sqlite_recognise()        the same, after enter_region()
 *   4 journal mode           WAL                           PERSIST, all else in memory (SQLITE-5)
 *   5 migrate                plx_sqlite_migrate()          the same, unless read-only
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

/* ---- Opening and migration --------------------------------------------------------------- */

int plx_sqlite_scalar(struct plx_sqlite *lite, const char *sql, int64_t *ret_value)
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

static bool is_ours(const char *sql)
{
    for (size_t i = 0; i < plx_schema_count; i++)
        if (sql && strstr(plx_schema[i].sql, sql))
            return true;
    return false;
}

/* SQLITE-9: any schema entry that is no table or index must be text of one of our migrations. */
static int refuse_strange(struct plx_sqlite *lite, struct plx_fault *fault)
{
    sqlite3_stmt *statement;
    bool strange = false;
    int result = sqlite3_prepare_v2(lite->db,
                                    "SELECT sql FROM sqlite_schema WHERE type NOT IN ('table',"
                                    " 'index')",
                                    -1, &statement, NULL);

    if (result)
        return plx_sqlite_failed(lite, result, fault);
    while (!strange && (result = sqlite3_step(statement)) == SQLITE_ROW)
        strange = !is_ours((const char *)sqlite3_column_text(statement, 0));
    sqlite3_finalize(statement);
    if (!strange)
        return result == SQLITE_DONE ? 0 : plx_sqlite_failed(lite, result, fault);
    plx_sqlite_note_damage(lite);
    return plx_fault_set(fault, PLX_ERR_REGISTRY,
                         "registry %.120s has triggers or views that Parallax has not made; run "
                         "'parallax store rebuild-registry'",
                         lite->path);
}

/* SQLITE-3 */
int plx_sqlite_recognise(struct plx_sqlite *lite, int64_t *ret_number, struct plx_fault *fault)
{
    int64_t tables, ours, number = 0;
    int result = plx_sqlite_scalar(lite, "SELECT count(*) FROM sqlite_schema", &tables);

    if (!result)
        result =
            plx_sqlite_scalar(lite,
                              "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name"
                              " IN ('migrations', 'volumes', 'extents', 'vdis')",
                              &ours);
    if (!result && tables && ours != 4) {
        plx_sqlite_note_damage(lite);
        return plx_fault_set(fault, PLX_ERR_REGISTRY,
                             "%.150s is an SQLite file, but not a "
                             "Parallax registry; it was left alone",
                             lite->path);
    }
    if (!result && tables)
        result = plx_sqlite_scalar(lite, "SELECT max(number) FROM migrations", &number);
    if (result)
        return plx_sqlite_failed(lite, result, fault);
    if (number > (int64_t)plx_schema_count)
        return plx_fault_set(fault, PLX_ERR_UNSUPPORTED,
                             "registry %.100s has schema %lld, this "
                             "program knows up to %zu; use a newer Parallax (nothing was changed)",
                             lite->path, (long long)number, plx_schema_count);
    *ret_number = number;
    return refuse_strange(lite, fault);
}

int plx_sqlite_migrate(struct plx_sqlite *lite, int64_t number, struct plx_fault *fault)
{
    char note[128];
    int result = plx_sqlite_exec(lite, "BEGIN IMMEDIATE");

    for (size_t i = (size_t)number; i < plx_schema_count && !result; i++) {
        result = plx_sqlite_exec(lite, plx_schema[i].sql);
        snprintf(note, sizeof note, "INSERT INTO migrations VALUES (%d, %llu)",
                 plx_schema[i].number, (unsigned long long)plx_clock_ns(CLOCK_REALTIME));
        if (!result)
            result = plx_sqlite_exec(lite, note);
    }
    if (!result)
        result = plx_sqlite_exec(lite, "COMMIT");
    return result ? plx_sqlite_give_up(lite, result, fault) : 0;
}

int64_t plx_sqlite_event_limit(const struct plx_sqlite *lite)
{
    return lite->vfs ? (int64_t)plx_region_vfs_pages(lite->vfs) * PLX_BLOCK_SIZE / 8
                     : FILE_EVENT_BYTES;
}

static int set_event_limit(struct plx_sqlite *lite, struct plx_fault *fault)
{
    int64_t limit = plx_sqlite_event_limit(lite), old = 0;
    char sql[80];
    int result = plx_sqlite_scalar(lite, "SELECT event_limit FROM room", &old);

    snprintf(sql, sizeof sql, "UPDATE room SET event_limit = %lld", (long long)limit);
    if (!result && old != limit)
        result = plx_sqlite_exec(lite, sql);
    return result ? plx_sqlite_failed(lite, result, fault) : 0;
}

/* Asks for a journal mode. *ret_given: SQLite granted it. */
static int set_journal(struct plx_sqlite *lite, const char *mode, bool *ret_given)
{
    char sql[64];
    sqlite3_stmt *statement;
    int result;

    snprintf(sql, sizeof sql, "PRAGMA journal_mode = %s", mode);
    result = sqlite3_prepare_v2(lite->db, sql, -1, &statement, NULL);
    if (result)
        return result;
    *ret_given = sqlite3_step(statement) == SQLITE_ROW &&
                 !strcmp((const char *)sqlite3_column_text(statement, 0), mode);
    return sqlite3_finalize(statement);
}

static void set_up(struct plx_sqlite *lite)
{
    sqlite3_extended_result_codes(lite->db, 1);
    sqlite3_busy_handler(lite->db, plx_sqlite_wait_turn, lite);
    sqlite3_db_config(lite->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
}

/* SQLITE-1 */
static int enter_wal(struct plx_sqlite *lite, struct plx_fault *fault)
{
    bool wal = false;
    int result = set_journal(lite, "wal", &wal);

    if (!result)
        result = plx_sqlite_exec(lite, ALWAYS);
    if (result)
        return plx_sqlite_failed(lite, result, fault);
    if (!wal)
        return plx_fault_set(fault, PLX_ERR_REGISTRY,
                             "registry %.120s: its file system cannot "
                             "share memory (WAL mode refused); use a local one",
                             lite->path);
    return 0;
}

static void remove_beside(const char *file, const char *suffix)
{
    char path[PLX_PATH_MAX + 16];

    snprintf(path, sizeof path, "%s%s", file, suffix);
    unlink(path);
}

static void remove_logs(const char *file)
{
    remove_beside(file, "-wal");
    remove_beside(file, "-shm");
    remove_beside(file, "-journal");
}

void plx_registry_remove(const char *where)
{
    remove_logs(where);
    remove_beside(where, LOCK_SUFFIX);
    unlink(where);
}

/* Makes an empty file. A -wal or -shm file found there belongs to a registry that was deleted and
 * may still be open in another process. SQLite must not apply it to the new registry. */
static int create_file(struct plx_sqlite *lite, struct plx_fault *fault)
{
    int fd;

    remove_logs(lite->path);
    fd = open(lite->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return plx_fault_set(fault, PLX_ERR_REGISTRY, "cannot make the registry %.150s: %s",
                             lite->path, strerror(errno));
    close(fd);
    return 0;
}

static int open_database(struct plx_sqlite *lite, bool create, struct plx_fault *fault)
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
        return plx_sqlite_failed(lite, result, fault);
    set_up(lite);
    code = plx_sqlite_recognise(lite, &number, fault);
    if (!code)
        code = enter_wal(lite, fault);
    if (!code && number < (int64_t)plx_schema_count)
        code = plx_sqlite_migrate(lite, number, fault);
    if (!code)
        code = set_event_limit(lite, fault);
    return code;
}

void plx_sqlite_disconnect(struct plx_sqlite *lite)
{
    while (lite->prepared) {
        struct plx_prepared *first = lite->prepared;

        lite->prepared = first->next;
        sqlite3_finalize(first->statement);
        free(first);
    }
    sqlite3_close(lite->db);
    lite->db = NULL;
}

/* Opens the file while holding its .lock, so that making, recognising and migrating it is one step
 * to other openers. */
int plx_sqlite_open_locked(struct plx_sqlite *lite, bool create, struct plx_fault *fault)
{
    char path[PLX_PATH_MAX + 16];
    int fd, code;

    snprintf(path, sizeof path, "%s" LOCK_SUFFIX, lite->path);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || flock(fd, LOCK_EX)) {
        code = plx_fault_set(fault, errno == EACCES ? PLX_ERR_PERMISSION : PLX_ERR_REGISTRY,
                             "cannot open the registry %.120s: %s%s", lite->path, strerror(errno),
                             errno == EACCES ? "; run as root, or give --state-dir" : "");
    } else {
        code = open_database(lite, create, fault);
        if (code)
            plx_sqlite_disconnect(lite);
    }
    if (fd >= 0)
        close(fd);
    return code;
}

/* ---- In a region ------------------------------------------------------------------------- */

/* Sets SQLite up for a region: SQLITE-1, SQLITE-5, and pages of 4 KiB with room for a stamp
 * (REGION-2). */
static int enter_region(struct plx_sqlite *lite, struct plx_fault *fault)
{
    int reserved = PLX_REGION_STAMP;
    bool persist = false;
    char limit[64];
    int result = plx_sqlite_exec(lite, "PRAGMA temp_store = MEMORY; PRAGMA cache_spill = OFF;"
                                       "PRAGMA mmap_size = 0; PRAGMA page_size = 4096;" ALWAYS);

    lite->pages = plx_region_vfs_pages(lite->vfs);
    snprintf(limit, sizeof limit, "PRAGMA max_page_count = %u", lite->pages);
    if (!result)
        result = sqlite3_file_control(lite->db, "main", SQLITE_FCNTL_RESERVE_BYTES, &reserved);
    if (!result)
        result = set_journal(lite, "persist", &persist);
    if (!result)
        result = plx_sqlite_exec(lite, limit);
    if (result)
        return plx_sqlite_failed(lite, result, fault);
    if (!persist)
        return plx_fault_set(fault, PLX_ERR_REGISTRY,
                             "this program's SQLite cannot keep a registry in a volume");
    return 0;
}

static int fill_region(struct plx_sqlite *lite, struct plx_fault *fault)
{
    int64_t number = 0;
    int code = enter_region(lite, fault);

    if (!code)
        code = plx_sqlite_recognise(lite, &number, fault);
    if (code)
        return code;
    if (!lite->region.read_only) {
        if (number < (int64_t)plx_schema_count)
            code = plx_sqlite_migrate(lite, number, fault);
        return code ? code : set_event_limit(lite, fault);
    }
    if (number < (int64_t)plx_schema_count)
        return plx_fault_set(fault, PLX_ERR_REGISTRY,
                             "the registry in %.120s is %s: open the store once for writing",
                             lite->path, number ? "an older version's" : "empty");
    return 0;
}

int plx_sqlite_open_in_turn(struct plx_sqlite *lite, struct plx_fault *fault)
{
    struct plx_bytelock *locks = lite->region.locks;
    bool reader = lite->region.read_only;
    int asked = 0, result;
    int code =
        locks->ops->set(locks, PLX_BYTE_OPENING, reader ? PLX_BYTE_SHARED : PLX_BYTE_EXCLUSIVE);

    while (code == PLX_ERR_BUSY && plx_sqlite_wait_turn(lite, asked++))
        code =
            locks->ops->set(locks, PLX_BYTE_OPENING, reader ? PLX_BYTE_SHARED : PLX_BYTE_EXCLUSIVE);
    if (code == PLX_ERR_BUSY)
        return plx_sqlite_failed(lite, SQLITE_BUSY, fault);
    if (code)
        return plx_fault_set(fault, PLX_ERR_REGISTRY,
                             "cannot lock the registry in %.120s: no permission to write the "
                             "volume, or it knows no locks",
                             lite->path);
    result = sqlite3_open_v2(PLX_REGION_FILE, &lite->db,
                             (reader ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE) |
                                 SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_URI,
                             plx_region_vfs_name(lite->vfs));
    if (result) {
        code = plx_sqlite_failed(lite, result, fault);
    } else {
        set_up(lite);
        code = fill_region(lite, fault);
    }
    if (code)
        plx_sqlite_disconnect(lite);
    locks->ops->set(locks, PLX_BYTE_OPENING, PLX_BYTE_UNLOCKED);
    return code;
}
