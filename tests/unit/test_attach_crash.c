/* test_attach_crash.c - kill -9 at every event of every operation of the attach layer, on real
 * files: a write or flush, a changing statement of the registry's, a change of a folder. Every
 * third time the process that recovers dies as well. Then a new process's worth of calls finds
 * everything whole (fault/attach.h).
 *
 * PLX_KILL=OPERATION or OPERATION:K runs only that.
 */
#include <CUnit/Basic.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fault/attach.h"
#include "fault/event.h"

/* What the killed process had come to. */
static struct progress {
    bool begun, done;
    int error; /* of what failed without being killed */
    struct plx_fault fault;
} * progress;

static unsigned part, parts;

/* In a process of its own, which always ends by being killed. operation: which finds open what run
 * works on; NULL: nothing is open. */
static _Noreturn void live(const struct fault_operation *operation, int (*run)(void), uint64_t k)
{
    progress->error = operation ? fault_attach_begin(operation) : 0;
    if (!progress->error) {
        progress->begun = true;
        fault_event_arm(k, FAULT_EVENT_KILLS);
        progress->error = run();
        fault_event_disarm();
        progress->done = !progress->error;
    }
    progress->fault = fault_attach_fault;
    fault_event_kill();
}

/* Returns false when it was not k that ended it. */
static bool live_and_die(const struct fault_operation *operation, int (*run)(void), uint64_t k)
{
    pid_t child;
    int status;

    *progress = (struct progress){0};
    fflush(NULL);
    child = fork();
    if (child == 0)
        live(operation, run, k);
    CU_ASSERT_EQUAL_FATAL(waitpid(child, &status, 0), child);
    CU_ASSERT_FATAL(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    CU_ASSERT_FATAL(progress->begun);
    return !progress->done && !progress->error;
}

static bool run_case(const struct fault_operation *operation, uint64_t k, unsigned *failures)
{
    const char *step = "running";
    bool killed, done;
    int error;

    fault_attach_reopens = k % 2;
    CU_ASSERT_EQUAL_FATAL(fault_attach_prepare(operation), 0);
    killed = live_and_die(operation, operation->run, k);
    done = progress->done;
    error = progress->error;
    if (!error && k % 3 == 0)
        live_and_die(NULL, fault_attach_open, 1 + k * 7 % 60);
    if (!error)
        error = fault_attach_judge(operation, done, &step);
    else
        fault_attach_fault = progress->fault;
    if (error) {
        printf("\n    %s:%" PRIu64 " (%s): then %s: %s: %s", operation->name, k,
               done ? "done" : "killed", step, plx_error_name(error), fault_attach_fault.text);
        ++*failures;
        fault_attach_drop();
    }
    return killed;
}

static void test_all(void)
{
    CU_ASSERT(fault_attach_loop(getenv("PLX_KILL"), part, parts, "events", run_case));
}

static int work(unsigned number, unsigned count)
{
    CU_pSuite suite;
    unsigned failures;

    part = number;
    parts = count;
    progress =
        mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (progress == MAP_FAILED)
        return 2;
    CU_initialize_registry();
    suite = CU_add_suite("kills of an attach", NULL, NULL);
    CU_add_test(suite, "every event", test_all);
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
