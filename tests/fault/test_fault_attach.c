/* test_fault_attach.c - the fault loop one layer up: registry, attach and real files, where the
 * k-th allocation fails, or the k-th event (event.h). After each fault a new process's worth of
 * calls finds everything whole.
 *
 * PLX_FAULT=OPERATION or OPERATION:K runs only that.
 */
#include <CUnit/Basic.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "fault/alloc.h"
#include "fault/attach.h"
#include "fault/event.h"

static unsigned part, parts;

/* error: what became of the operation; expected: that it failed, if so, is right. */
static void judge(const struct fault_operation *operation, uint64_t k, int error, bool expected,
                  unsigned *failures)
{
    struct plx_fault *fault = &fault_attach_fault;
    const char *step = "";
    int after;

    if (error && (!expected || !fault->text[0])) {
        printf("\n    %s:%" PRIu64 ": it failed with %s: %s", operation->name, k,
               plx_error_name(error), fault->text);
        ++*failures;
    }
    if (fault_attach_mute_events) {
        printf("\n    %s:%" PRIu64 ": an event says nothing", operation->name, k);
        ++*failures;
    }
    after = fault_attach_judge(operation, !error, &step);
    if (after) {
        printf("\n    %s:%" PRIu64 " (%s): then %s: %s: %s", operation->name, k,
               plx_error_name(error), step, plx_error_name(after), fault->text);
        ++*failures;
        fault_attach_drop();
    }
}

static void prepare(const struct fault_operation *operation, uint64_t k)
{
    fault_attach_reopens = k % 2;
    CU_ASSERT_EQUAL_FATAL(fault_attach_prepare(operation), 0);
    CU_ASSERT_EQUAL_FATAL(fault_attach_begin(operation), 0);
    fault_attach_fault.text[0] = 0;
    fault_attach_mute_events = 0;
}

static bool fail_allocation(const struct fault_operation *operation, uint64_t k, unsigned *failures)
{
    uint64_t failed;
    int error;

    prepare(operation, k);
    fault_alloc_arm(k, false);
    error = operation->run();
    fault_alloc_disarm(&failed);
    judge(operation, k, error, failed && plx_error_class(error) == PLX_CLASS_NOMEM, failures);
    return failed > 0;
}

static bool fail_event(const struct fault_operation *operation, uint64_t k, unsigned *failures)
{
    bool failed;
    int error;

    prepare(operation, k);
    fault_event_arm(k, FAULT_EVENT_FAILS);
    error = operation->run();
    failed = fault_event_disarm() >= k;
    judge(operation, k, error, failed, failures);
    return failed;
}

static void test_allocations(void)
{
    CU_ASSERT(fault_attach_loop(getenv("PLX_FAULT"), part, parts, "alloc", fail_allocation));
}

static void test_events(void)
{
    CU_ASSERT(fault_attach_loop(getenv("PLX_FAULT"), part, parts, "events", fail_event));
}

static int work(unsigned number, unsigned count)
{
    CU_pSuite suite;
    unsigned failures;

    part = number;
    parts = count;
    CU_initialize_registry();
    suite = CU_add_suite("faults of an attach", NULL, NULL);
    CU_add_test(suite, "every allocation", test_allocations);
    CU_add_test(suite, "every event", test_events);
    CU_basic_set_mode(CU_BRM_SILENT);
    CU_basic_run_tests();
    failures = CU_get_number_of_failures();
    CU_cleanup_registry();
    return failures != 0;
}

int main(void)
{
    return fault_attach_share(work);
}
