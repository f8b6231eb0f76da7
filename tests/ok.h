/* ok.h - calls of the engine that must succeed in a test, or fail in a certain way. */
#ifndef PLX_OK_H
#define PLX_OK_H

#include <CUnit/Basic.h>
#include <stdio.h>

#include "engine/base/error.h"

/* The text of the file's `fault` is printed when it fails. */
#define OK(call) suite_ok(call, #call, __LINE__, fault.text)
#define FAILS(code, call) CU_ASSERT_EQUAL(call, PLX_ERR_##code)

static inline void suite_ok(int result, const char *call, int line, const char *why)
{
    if (result)
        printf("\n  line %d: %s: %s: %s\n", line, call, plx_error_name(result), why);
    CU_ASSERT_EQUAL_FATAL(result, 0);
}

#endif
