/* backup.c - puts a whole registry into a region, or takes it out.
 *
 * BACKUP-1  A file that is put in is first copied into memory, and what goes in is that copy after
 *     it was checked. So nobody can change it between check and use. The copy has the page layout
 *     that a region needs, whatever the file has.
 * BACKUP-2  The copy goes in as one transaction (sqlite3_backup). Other processes see the old
 *     contents or the new ones, and a crash leaves the old ones.
 * BACKUP-3  Damaged pages of the old contents are no obstacle, since they are replaced. If the
 *     transaction is rolled back, they are as damaged as before (REGION-8).
 * BACKUP-4  A file that is taken out gets its name only when it is whole and durable.
 * Threads: as sqlite.c.
 * Crash story: BACKUP-2, BACKUP-4. A crash can leave a file named FILE.XXXXXX.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "registry/sqlite.h"

#define SUFFIX ".XXXXXX"

/* A URI by which SQLite opens this very file, whatever characters its path has. */
static void file_uri(const char *path, char ret_uri[3 * PLX_PATH_MAX + 32])
{
    char *to = ret_uri + sprintf(ret_uri, "file:%s", path[0] == '/' ? "" : "./");

    for (; *path; path++)
        to += sprintf(to, strchr("?#%", *path) ? "%%%02x" : "%c", (unsigned char)*path);
    strcpy(to, "?vfs=unix");
}

static int vacuum_into(struct plx_sqlite *lite, const char *name)
{
    sqlite3_stmt *statement;
    int result = sqlite3_prepare_v2(lite->db, "VACUUM INTO ?1", -1, &statement, NULL);

    if (result)
        return result;
    result = sqlite3_bind_text(statement, 1, name, -1, SQLITE_STATIC);
    if (!result)
        sqlite3_step(statement);
    return sqlite3_finalize(statement);
}

/* ---- In ---------------------------------------------------------------------------------- */

static int open_plain(struct plx_sqlite *lite, const char *uri, int flags)
{
    int result =
        sqlite3_open_v2(uri, &lite->db, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_URI, NULL);

    if (!result)
        sqlite3_extended_result_codes(lite->db, 1);
    return result ? result
                  : plx_sqlite_exec(lite, "PRAGMA trusted_schema = OFF; PRAGMA temp_store = MEMORY;"
                                          "PRAGMA page_size = 4096");
}

/* Checks that the source is a registry and that its pages are sound. The copy gets new pages. */
static int check_source(struct plx_sqlite *source, struct plx_fault *fault)
{
    int64_t number;
    int code = plx_sqlite_recognise(source, &number, fault);

    if (code)
        return code;
    if (!number)
        return plx_fault_set(fault, PLX_ERR_REGISTRY, "%.150s is empty, not a registry",
                             source->path);
    return plx_sqlite_check(source, "PRAGMA quick_check(1)", source->path,
                            "the registry stays as it was", fault);
}

static atomic_ulong copy_count; /* so many had a name */

/* BACKUP-1 */
static int copy_into_memory(struct plx_sqlite *source, struct plx_sqlite *copy,
                            struct plx_fault *fault)
{
    char uri[3 * PLX_PATH_MAX + 32];
    int reserved = PLX_REGION_STAMP, code, result;

    file_uri(source->path, uri);
    result = open_plain(source, uri, SQLITE_OPEN_READONLY);
    if (result)
        return plx_sqlite_failed(source, result, fault);
    code = check_source(source, fault);
    if (code)
        return code;
    snprintf(uri, sizeof uri, "file:/parallax-copy-%lu?vfs=memdb", ++copy_count);
    result = open_plain(copy, uri, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
    if (result)
        return plx_sqlite_failed(copy, result, fault);
    sqlite3_file_control(source->db, "main", SQLITE_FCNTL_RESERVE_BYTES, &reserved);
    result = vacuum_into(source, uri);
    return result ? plx_sqlite_failed(source, result, fault) : 0;
}

/* Brings the copy's schema up to date, and cuts its events down to what the region keeps. */
static int fit_copy(struct plx_sqlite *copy, int64_t event_limit, struct plx_fault *fault)
{
    static const char trim[] =
        "DELETE FROM events WHERE id <= (SELECT max(id) FROM (SELECT id, sum(" PLX_EVENT_BYTES
        ") OVER (ORDER BY id DESC) AS since FROM events) WHERE since > %lld);"
        "UPDATE room SET event_limit = %lld; VACUUM";
    char sql[sizeof trim + 64];
    int64_t number, references;
    int code = plx_sqlite_recognise(copy, &number, fault), result;

    if (!code)
        code = plx_sqlite_migrate(copy, number, fault);
    if (code)
        return code;
    snprintf(sql, sizeof sql, trim, (long long)event_limit, (long long)event_limit);
    result = plx_sqlite_exec(copy, sql);
    if (!result)
        result =
            plx_sqlite_scalar(copy, "SELECT count(*) FROM pragma_foreign_key_check", &references);
    if (result)
        return plx_sqlite_failed(copy, result, fault);
    if (references)
        return plx_fault_set(fault, PLX_ERR_REGISTRY,
                             "%.150s has rows that refer to missing ones; the registry stays as it "
                             "was",
                             copy->path);
    return 0;
}

/* BACKUP-2, BACKUP-3 */
static int replace(struct plx_sqlite *lite, struct plx_sqlite *copy, struct plx_fault *fault)
{
    sqlite3_backup *backup;
    int64_t pages;
    int result = plx_sqlite_scalar(copy, "PRAGMA page_count", &pages);

    if (result)
        return plx_sqlite_failed(copy, result, fault);
    if (pages > plx_region_vfs_pages(lite->vfs))
        return plx_fault_set(fault, PLX_ERR_NOSPACE,
                             "%.120s needs %lld pages, the registry in %.80s has %u", copy->path,
                             (long long)pages, lite->path, plx_region_vfs_pages(lite->vfs));
    plx_region_vfs_salvage(lite->vfs, true);
    backup = sqlite3_backup_init(lite->db, "main", copy->db, "main");
    if (backup) {
        sqlite3_backup_step(backup, -1);
        result = sqlite3_backup_finish(backup);
    } else {
        result = sqlite3_errcode(lite->db);
    }
    plx_region_vfs_salvage(lite->vfs, false);
    return result ? plx_sqlite_failed(lite, result, fault) : 0;
}

int plx_sqlite_put(void *driver, const char *file, struct plx_fault *fault)
{
    struct plx_sqlite *lite = driver, *both = calloc(2, sizeof *both);
    int code;

    if (!both)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory reading a registry");
    plx_region_vfs_fault(lite->vfs);
    for (unsigned i = 0; i < 2; i++)
        snprintf(both[i].path, sizeof both[i].path, "%s", file);
    code = copy_into_memory(&both[0], &both[1], fault);
    if (!code)
        code = fit_copy(&both[1], plx_sqlite_event_limit(lite), fault);
    if (!code)
        code = replace(lite, &both[1], fault);
    for (unsigned i = 0; i < 2; i++)
        sqlite3_close(both[i].db);
    free(both);
    return code;
}

/* ---- Out --------------------------------------------------------------------------------- */

/* BACKUP-4. Returns an errno. */
static int settle(int fd, const char *temporary, const char *file)
{
    char folder[PLX_PATH_MAX];
    char *slash;
    int dir, error = 0;

    snprintf(folder, sizeof folder, "%s", file);
    slash = strrchr(folder, '/');
    strcpy(slash ? slash + 1 : folder, slash ? "" : ".");
    if (fsync(fd) || rename(temporary, file))
        return errno;
    dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 || fsync(dir))
        error = errno;
    if (dir >= 0)
        close(dir);
    return error;
}

int plx_sqlite_get(void *driver, const char *file, struct plx_fault *fault)
{
    struct plx_sqlite *lite = driver;
    char temporary[PLX_PATH_MAX], uri[3 * PLX_PATH_MAX + 32];
    int fd, result, code = 0;

    if (snprintf(temporary, sizeof temporary, "%s" SUFFIX, file) >= (int)sizeof temporary)
        return plx_fault_set(fault, PLX_ERR_INVALID, "the path of the file is too long");
    fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0)
        return plx_fault_set(fault, PLX_ERR_SYSTEM, "cannot make %.150s: %s", temporary,
                             strerror(errno));
    file_uri(temporary, uri);
    result = vacuum_into(lite, lite->vfs ? uri : temporary);
    if (result)
        code = plx_sqlite_failed(lite, result, fault);
    else if ((result = settle(fd, temporary, file)))
        code =
            plx_fault_set(fault, PLX_ERR_SYSTEM, "cannot write %.150s: %s", file, strerror(result));
    if (code)
        unlink(temporary);
    close(fd);
    return code;
}
