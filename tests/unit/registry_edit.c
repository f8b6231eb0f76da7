/* registry_edit.c - see registry_edit.h. The registry is copied out, changed and put back. */
#include "unit/registry_edit.h"

#include <sqlite3.h>
#include <stdio.h>
#include <unistd.h>

#include "registry/embedded.h"

static int run(const char *file, const char *sql, int *ret_changes, struct plx_fault *fault)
{
    sqlite3 *db;
    int result = sqlite3_open(file, &db), error = 0;

    if (result == SQLITE_OK)
        result = sqlite3_exec(db, "PRAGMA foreign_keys = ON", NULL, NULL, NULL);
    if (result == SQLITE_OK)
        result = sqlite3_exec(db, sql, NULL, NULL, NULL);
    if (result != SQLITE_OK)
        error = plx_fault_set(fault, PLX_ERR_INVALID, "%s: %s", sql, sqlite3_errmsg(db));
    *ret_changes = sqlite3_total_changes(db);
    sqlite3_close(db);
    return error;
}

int plx_registry_edit(const char *volume, const char *sql, int *ret_changes,
                      struct plx_fault *fault)
{
    struct plx_embedded_options options = {.volume = volume, .who = "test"};
    struct plx_registry *registry;
    char file[64];
    int error = plx_embedded_open(&options, &registry, fault);

    if (error)
        return error;
    snprintf(file, sizeof file, "/tmp/plx-edit-%d.db", (int)getpid());
    unlink(file);
    error = plx_registry_get(registry, file, fault);
    if (!error)
        error = run(file, sql, ret_changes, fault);
    if (!error)
        error = plx_registry_put(registry, file, fault);
    plx_registry_close(registry);
    unlink(file);
    return error;
}
