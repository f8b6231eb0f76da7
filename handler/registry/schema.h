/* schema.h - the registry's schema: the migrations of schema/, embedded by schema/embed.cmake at
 * build time. Migration n brings a database from schema n - 1 to n (sqlite_open.c runs them). */
#ifndef PLX_SCHEMA_H
#define PLX_SCHEMA_H

#include <stddef.h>

struct plx_migration {
    int number; /* from 1, without gaps */
    const char *name;
    const char *sql;
};

extern const struct plx_migration plx_schema[];
extern const size_t plx_schema_count;

#endif
