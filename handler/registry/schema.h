/* schema.h - the migrations of schema/, embedded at build time by schema/embed.cmake. */
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
