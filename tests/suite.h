/* suite.h - a CUnit program: its tests by name, run. */
#ifndef PLX_SUITE_H
#define PLX_SUITE_H

#include <CUnit/Basic.h>
#include <stdio.h>

/* A part of this test is left out, although the test passes. tests/run lists all of these lines. */
#define PART_SKIPPED(...) (fputs("\nPART SKIPPED: ", stdout), printf(__VA_ARGS__), putchar('\n'))

struct suite_test {
    const char *name;
    void (*test)(void);
};

/* Around all tests, and around each; each may be NULL. init and clean return 0. */
struct suite_frame {
    int (*init)(void), (*clean)(void);
    void (*before)(void), (*after)(void);
};

/* Returns what main() does. A suite whose init fails runs no test, and no assertion of it has
 * failed. */
static inline int suite_run(const char *name, const struct suite_frame *frame,
                            const struct suite_test *tests, size_t count)
{
    CU_pSuite suite;
    unsigned failures;

    if (CU_initialize_registry() != CUE_SUCCESS)
        return 1;
    suite = CU_add_suite_with_setup_and_teardown(name, frame->init, frame->clean, frame->before,
                                                 frame->after);
    for (size_t i = 0; i < count; i++)
        CU_add_test(suite, tests[i].name, tests[i].test);
    CU_basic_set_mode(CU_BRM_NORMAL);
    CU_basic_run_tests();
    failures = CU_get_number_of_failure_records();
    CU_cleanup_registry();
    return failures != 0;
}

#define SUITE_RUN_IN(frame, name, tests)                                                           \
    suite_run(name, frame, tests, sizeof(tests) / sizeof(tests)[0])
#define SUITE_RUN(name, tests) SUITE_RUN_IN(&(struct suite_frame){0}, name, tests)

#endif
