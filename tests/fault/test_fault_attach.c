/* test_fault_attach.c - the fault loop one layer up: registry, attach and real files, where the
 * k-th allocation fails. After each fault a new process's worth of calls finds everything whole.
 *
 * PLX_FAULT=OPERATION or OPERATION:K runs only that.
 */
#include <CUnit/Basic.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "fault/alloc.h"
#include "fault/attach.h"

static bool run_case(const struct fault_operation *operation, uint64_t k, unsigned *failures)
{
    struct plx_fault *fault = &fault_attach_fault;
    const char *step = "";
    uint64_t failed;
    int error, after;

    fault_attach_clean();
    CU_ASSERT_EQUAL_FATAL(operation->prepare(), 0);
    fault->text[0] = 0;
    fault_alloc_arm(k, false);
    error = operation->run();
    fault_alloc_disarm(&failed);
    if (error && (plx_error_class(error) != PLX_CLASS_NOMEM || !fault->text[0] || !failed)) {
        printf("\n    %s:%" PRIu64 ": it failed with %s: %s", operation->name, k,
               plx_error_name(error), fault->text);
        ++*failures;
    }
    after = fault_attach_judge(operation, !error, &step);
    if (after) {
        printf("\n    %s:%" PRIu64 " (%s): then %s: %s: %s", operation->name, k,
               plx_error_name(error), step, plx_error_name(after), fault->text);
        ++*failures;
        fault_attach_drop();
    }
    return failed > 0;
}

static void test_all(void)
{
    CU_ASSERT(fault_attach_loop(getenv("PLX_FAULT"), 0, 1, "alloc", run_case));
}

int main(void)
{
    CU_pSuite suite;
    unsigned failures;

    if (!fault_attach_set_up())
        return 2;
    CU_initialize_registry();
    suite = CU_add_suite("faults of an attach", NULL, NULL);
    CU_add_test(suite, "every allocation", test_all);
    CU_basic_set_mode(CU_BRM_NORMAL);
    CU_basic_run_tests();
    failures = CU_get_number_of_failures();
    fault_attach_tear_down();
    CU_cleanup_registry();
    return failures != 0;
}
