/* sqlite_driver.c - SQLite as the registry's driver (sql.h): a batch is one transaction, and takes
 * its turn among processes. Rules: sqlite.c. */
#include <stdio.h>
#include <stdlib.h>

#include "registry/sqlite_inside.h"

static uint64_t monotonic_ms(void)
{
    return plx_clock_ns(CLOCK_MONOTONIC) / 1000000;
}

/* A process that makes change after change pauses in between, so that others get a turn. */
static void give_turn(struct plx_sqlite *lite)
{
    struct timespec pause = {.tv_nsec = TURN_NS};

    if (monotonic_ms() - lite->changed_at < CHANGES_APART_MS)
        nanosleep(&pause, NULL);
}

/* SQLITE-4: begins a call. A file that was deleted and rebuilt meanwhile is opened again. */
static int follow(struct plx_sqlite *lite, struct plx_fault *fault)
{
    int moved = 0;

    if (lite->vfs) {
        plx_region_vfs_fault(lite->vfs); /* forget an earlier call's fault */
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

/* Pages in use, as the current transaction sees them. */
static int used_pages(struct plx_sqlite *lite, int64_t *ret_used)
{
    static const char sql[] = "SELECT page_count - freelist_count"
                              " FROM pragma_page_count(), pragma_freelist_count()";
    sqlite3_stmt *statement;
    int result = plx_sqlite_prepare(lite, sql, &statement);

    if (!result && sqlite3_step(statement) == SQLITE_ROW)
        *ret_used = sqlite3_column_int64(statement, 0);
    return result ? result : sqlite3_reset(statement);
}

/* SQLITE-6: counts the pages in use, if the batch has a statement that depends on that. */
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

/* SQLITE-7: called within a change. */
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

static int run(void *driver, bool change, const struct plx_sql *batch, size_t count,
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
        result = plx_sqlite_exec(lite, "BEGIN IMMEDIATE"); /* SQLITE-2 */
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
        if (result != SQLITE_BUSY) /* SQLITE-8: who waits for others has changed nothing yet */
            lite->changed_at = monotonic_ms();
        lite->given_up = lite->given_up && result;
    }
    return result ? plx_sqlite_give_up(lite, result, ret_fault) : 0;
}

static int room(void *driver, uint64_t *ret_used, uint64_t *ret_pages, struct plx_fault *fault)
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

/* The transaction changes nothing; its rollback only releases the lock. */
static int alone(void *driver, int (*work)(void *context, struct plx_fault *fault), void *context,
                 struct plx_fault *fault)
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

static int check_whole(void *driver, struct plx_fault *fault)
{
    return plx_sqlite_check(driver, "PRAGMA integrity_check(1)", "the registry",
                            "run 'parallax store rebuild-registry'", fault);
}

static void close_registry(void *driver)
{
    struct plx_sqlite *lite = driver;

    plx_sqlite_disconnect(lite);
    plx_region_vfs_free(lite->vfs);
    free(lite);
}

int plx_sqlite_open_region(const struct plx_region *region, const char *volume,
                           const struct plx_registry_ops **ret_ops, void **ret_driver,
                           struct plx_fault *fault)
{
    static const struct plx_registry_ops ops = {.run = run,
                                                .check = check_whole,
                                                .put = plx_sqlite_put,
                                                .get = plx_sqlite_get,
                                                .room = room,
                                                .alone = alone,
                                                .close = close_registry};
    struct plx_sqlite *lite = calloc(1, sizeof *lite);
    int code;

    if (!lite)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory opening the registry");
    lite->region = *region;
    snprintf(lite->path, sizeof lite->path, "%s", volume);
    code = plx_region_vfs_new(region, volume, &lite->vfs, fault);
    if (!code)
        code = plx_sqlite_open_in_turn(lite, fault);
    if (code) {
        plx_region_vfs_free(lite->vfs);
        free(lite);
        return code;
    }
    *ret_ops = &ops;
    *ret_driver = lite;
    return 0;
}

int plx_sqlite_open(const char *path, const struct plx_registry_ops **ret_ops, void **ret_driver,
                    struct plx_fault *fault)
{
    static const struct plx_registry_ops ops = {.run = run,
                                                .check = check_whole,
                                                .get = plx_sqlite_get,
                                                .room = room,
                                                .close = close_registry};
    struct plx_sqlite *lite = calloc(1, sizeof *lite);
    int code;

    if (!lite)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory opening the registry");
    if (snprintf(lite->path, sizeof lite->path, "%s", path) >= (int)sizeof lite->path)
        code = plx_fault_set(fault, PLX_ERR_INVALID, "the path of the registry is too long");
    else
        code = plx_sqlite_open_locked(lite, true, fault);
    if (code) {
        free(lite);
        return code;
    }
    *ret_ops = &ops;
    *ret_driver = lite;
    return 0;
}
