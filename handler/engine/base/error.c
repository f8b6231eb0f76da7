/* error.c - tables made from error.def. Stateless. */
#include "engine/base/error.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct error_row {
    int code;
    enum plx_error_class class;
    struct plx_sense sense;
    const char *name, *text;
};

static const struct error_row rows[] = {
    {PLX_OK, PLX_CLASS_OK, {0, 0, 0}, "OK", "success"},
#define PLX_ERROR(name, number, class, key, asc, ascq, text)                                       \
    {PLX_ERR_##name, PLX_CLASS_##class, {key, asc, ascq}, #name, text},
#include "engine/base/error.def"
#undef PLX_ERROR
};

static const struct error_row *find(int code)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].code == code)
            return &rows[i];
    return find(PLX_ERR_SYSTEM);
}

enum plx_error_class plx_error_class(int code)
{
    return find(code)->class;
}

struct plx_sense plx_error_sense(int code)
{
    return find(code)->sense;
}

const char *plx_error_name(int code)
{
    return find(code)->name;
}

int plx_error_code(const char *name)
{
    for (size_t i = 1; i < sizeof rows / sizeof rows[0]; i++) /* from 1 on: OK is no error */
        if (!strcmp(rows[i].name, name))
            return rows[i].code;
    return PLX_ERR_SYSTEM;
}

const char *plx_error_text(int code)
{
    return find(code)->text;
}

int plx_fault_set(struct plx_fault *fault, int code, const char *format, ...)
{
    if (fault) {
        va_list args;

        fault->code = code;
        va_start(args, format);
        vsnprintf(fault->text, sizeof fault->text, format, args);
        va_end(args);
    }
    return code;
}

_Noreturn void plx_assert_failed(const char *condition, const char *file, int line)
{
    fprintf(stderr, "parallax: assertion failed: %s at %s:%d\n", condition, file, line);
    abort();
}
