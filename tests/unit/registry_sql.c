/* registry_sql.c - registry_edit.h for shell tests.
 *
 *   registry-sql VOLUME SQL           changes the registry of the store on this volume 0
 *   registry-sql --wait VOLUME SQL    asks until a query has a row, for half a minute at most; says
 *                                     "watching" when it begins
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "registry/embedded.h"
#include "registry/sql.h"
#include "unit/registry_edit.h"

#define ASK_US 500
#define ASK_TIMES 60000

static void no_columns(void *item, const struct plx_sql_value *columns)
{
}

static int wait_for(const char *volume, const char *sql, struct plx_fault *fault)
{
    static const struct plx_sql_shape shape = {1, no_columns};
    struct plx_embedded_options options = {.volume = volume, .who = "test", .read_only = true};
    const struct plx_sql statement = {.text = sql};
    struct plx_registry *registry;
    int error = plx_embedded_open(&options, &registry, fault);
    char item[1];

    if (error)
        return error;
    puts("watching");
    fflush(stdout);
    error = PLX_ERR_NOT_FOUND;
    for (int i = 0; i < ASK_TIMES && error; i++) {
        error = plx_sql_get(registry, &statement, &shape, item);
        if (error)
            usleep(ASK_US);
    }
    if (error)
        plx_fault_set(fault, error, "%s: no row", sql);
    plx_registry_close(registry);
    return error;
}

int main(int argc, char **argv)
{
    bool waits = argc == 4 && strcmp(argv[1], "--wait") == 0;
    struct plx_fault fault;
    int changes = 1, error;

    if (argc != 3 && !waits) {
        fprintf(stderr, "usage: registry-sql [--wait] VOLUME SQL\n");
        return 2;
    }
    error = waits ? wait_for(argv[2], argv[3], &fault)
                  : plx_registry_edit(argv[1], argv[2], &changes, &fault);
    if (error)
        fprintf(stderr, "registry-sql: %s\n", fault.text);
    return error || changes == 0;
}
