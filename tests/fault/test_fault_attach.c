/* test_fault_attach.c - the fault loop one layer up: registry, attach and real files, where the
 * k-th allocation fails. After each fault a new process's worth of calls finds everything whole.
 */
#include <CUnit/Basic.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fault/alloc.h"
#include "registry/attach.h"

#define MIB (1ull << 20)
#define LENGTH 65536u
#define K_MAX 1000u

static char directory[64], state[96], volume[96];
static struct plx_attach *attach;
static struct plx_vdi *vdi;
static struct plx_fault fault;
static uint8_t *buffer;

static void shell(const char *command)
{
    char text[512];

    snprintf(text, sizeof text, "cd '%s' && %s", directory, command);
    CU_ASSERT_EQUAL_FATAL(system(text), 0);
}

/* ---- Steps ---- */

static int format(void)
{
    struct plx_format_options options = {.name = "s", .extent_bytes = MIB};
    struct plx_store_info info;
    const char *paths[] = {volume};

    options.force = access(volume, F_OK) == 0;
    return plx_attach_format(state, paths, 1, 16 * MIB, &options, &info, &fault);
}

static int open_attach(void)
{
    struct plx_attach_options options = {
        .store = "s", .state_dir = state, .role = "admin", .cache_bytes = MIB};
    int error = plx_attach_open(&options, &attach, &fault);

    if (error)
        attach = NULL;
    return error;
}

static int close_attach(void)
{
    int error = attach ? plx_attach_close(attach) : 0;

    attach = NULL;
    if (error)
        plx_fault_set(&fault, error, "%s", plx_error_text(error));
    return error;
}

static int create(void)
{
    struct plx_vdi_create_options options = {
        .name = "v", .size_bytes = 4 * MIB, .sector_size = 512};
    struct plx_vdi_info info;

    return plx_attach_vdi_create(attach, &options, NULL, NULL, &info, &fault);
}

static int open_vdi(void)
{
    struct plx_attach_vdi_options options = {.overwrite = -1};
    int error = plx_attach_vdi_open(attach, "v", NULL, &options, &vdi, &fault);

    if (error)
        vdi = NULL;
    return error;
}

static int open_instant(void)
{
    struct plx_attach_vdi_options options = {.overwrite = -1};
    int error = plx_attach_vdi_open(attach, "v", "first", &options, &vdi, &fault);

    if (error)
        vdi = NULL;
    return error;
}

static int close_vdi(void)
{
    int error = vdi ? plx_attach_vdi_close(attach, vdi) : 0;

    vdi = NULL;
    if (error)
        plx_fault_set(&fault, error, "%s", plx_error_text(error));
    return error;
}

static int request(enum plx_request_op op, uint64_t *ret_seq)
{
    struct iovec iov = {buffer, LENGTH};
    struct plx_request r = {.op = op, .length = LENGTH, .iov = &iov, .iovcnt = 1};
    int error = plx_vdi_run(vdi, &r);

    if (error)
        fault = r.fault;
    if (ret_seq)
        *ret_seq = r.seq;
    return error;
}

static int write_all(void)
{
    memset(buffer, 7, LENGTH);
    return request(PLX_WRITE, NULL);
}

static int label(void)
{
    uint64_t seq;
    int error = request(PLX_SNAPSHOT, &seq);

    return error ? error : plx_attach_label(attach, vdi, "first", seq, 1, &fault);
}

static int resize(void)
{
    return plx_attach_resize(attach, vdi, 6 * MIB, &fault);
}

static int delete_vdi(void)
{
    return plx_attach_vdi_delete(attach, "v", &fault);
}

static int rebuild(void)
{
    const char *paths[] = {volume};

    return plx_attach_rebuild(state, paths, 1, &fault);
}

static int reopen(void)
{
    int error = close_attach();

    return error ? error : open_attach();
}

#define MUST(call) CU_ASSERT_EQUAL_FATAL(must(call, #call), 0)

static int must(int error, const char *call)
{
    if (error)
        printf("\n    %s: %s: %s", call, plx_error_name(error), fault.text);
    return error;
}

/* ---- What is there before ---- */

static void nothing(void)
{
}

static void formatted(void)
{
    MUST(format());
}

static void attached(void)
{
    formatted();
    MUST(open_attach());
}

static void created(void)
{
    attached();
    MUST(create());
}

static void opened(void)
{
    created();
    MUST(open_vdi());
}

static void labelled(void)
{
    opened();
    MUST(write_all());
    MUST(label());
    MUST(close_vdi());
}

static void forgotten(void)
{
    labelled();
    MUST(close_attach());
    shell("rm -rf state");
}

/* Another process opened the store and a disk, wrote, and was killed. */
static void died(void)
{
    pid_t child;
    int status;

    created();
    MUST(close_attach());
    fflush(NULL);
    child = fork();
    if (child == 0)
        _exit(open_attach() || open_vdi() || write_all());
    CU_ASSERT_EQUAL_FATAL(waitpid(child, &status, 0), child);
    CU_ASSERT_FATAL(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- The loop ---- */

static const struct {
    const char *name;
    void (*prepare)(void);
    int (*run)(void);
    bool formats, deletes; /* formats: the store may not be there; deletes: the disk may not */
    bool written;          /* the disk's contents were acknowledged before */
} operations[] = {
    {"format", nothing, format, true, true, false},
    {"open", formatted, open_attach, false, true, false},
    {"recover", died, open_attach, false, false, true},
    {"create", attached, create, false, true, false},
    {"open-disk", created, open_vdi, false, false, false},
    {"write", opened, write_all, false, false, false},
    {"label", opened, label, false, false, false},
    {"resize", opened, resize, false, false, false},
    {"close-disk", opened, close_vdi, false, false, false},
    {"open-snapshot", labelled, open_instant, false, false, true},
    {"delete", labelled, delete_vdi, false, true, true},
    {"close", labelled, close_attach, false, false, true},
    {"reopen", labelled, reopen, false, false, true},
    {"rebuild", forgotten, rebuild, false, false, true},
};
#define OPERATIONS (sizeof operations / sizeof operations[0])

static void finding(void *context, enum plx_finding_severity severity, const char *text)
{
    if (severity == PLX_FINDING_ERROR)
        printf("\n    check: %s", text);
}

/* A fresh opening, after whatever happened; *step: what does not work. */
static int all_is_well(size_t i, const char **step)
{
    struct plx_check_options options = {.finding = finding};
    struct plx_check_result result = {0};
    int error = 0;

    *step = "closing what is open";
    if (vdi)
        error = close_vdi();
    if (!error)
        error = close_attach();
    if (!error && operations[i].run == rebuild) {
        *step = "rebuilding";
        error = rebuild();
    }
    if (error)
        return error;
    *step = "opening the store";
    error = open_attach();
    if (error && operations[i].formats)
        error = format() || open_attach();
    if (error)
        return error;
    *step = "opening the disk";
    error = open_vdi();
    if (error == PLX_ERR_NOT_FOUND && operations[i].deletes)
        error = create() || open_vdi();
    else if (!error && operations[i].written) {
        *step = "reading";
        error = request(PLX_READ, NULL);
        for (unsigned at = 0; !error && at < LENGTH; at++)
            if (buffer[at] != 7)
                error = plx_fault_set(&fault, PLX_ERR_CORRUPT, "byte %u is %u", at, buffer[at]);
    }
    if (error)
        return error;
    *step = "writing and closing";
    error = write_all();
    if (!error)
        error = request(PLX_SNAPSHOT, NULL);
    if (!error)
        error = close_vdi();
    if (error)
        return error;
    *step = "checking";
    error = plx_store_check(plx_attach_store(attach), &options, &result, &fault);
    if (!error && result.errors)
        error = PLX_ERR_CORRUPT;
    return error ? error : close_attach();
}

static bool run_case(size_t i, uint64_t k, unsigned *failures)
{
    const char *step = "";
    uint64_t failed;
    int error, after;

    shell("rm -rf state volume");
    operations[i].prepare();
    fault.text[0] = 0;
    fault_alloc_arm(k, false);
    error = operations[i].run();
    fault_alloc_disarm(&failed);
    if (error && (plx_error_class(error) != PLX_CLASS_NOMEM || !fault.text[0] || !failed)) {
        printf("\n    %s:%" PRIu64 ": it failed with %s: %s", operations[i].name, k,
               plx_error_name(error), fault.text);
        ++*failures;
    }
    after = all_is_well(i, &step);
    if (after) {
        printf("\n    %s:%" PRIu64 " (%s): then %s: %s: %s", operations[i].name, k,
               plx_error_name(error), step, plx_error_name(after), fault.text);
        ++*failures;
        if (vdi)
            close_vdi();
        close_attach();
    }
    return failed > 0;
}

static void test_all(void)
{
    const char *wanted = getenv("PLX_FAULT"); /* OPERATION or OPERATION:K */
    char name[32] = "";
    uint64_t only = 0;

    if (wanted && sscanf(wanted, "%31[^:]:%" SCNu64, name, &only) < 1)
        return;
    for (size_t i = 0; i < OPERATIONS; i++) {
        unsigned failures = 0;
        uint64_t k = only ? only : 1;

        if (wanted && strcmp(name, operations[i].name) != 0)
            continue;
        while (run_case(i, k, &failures) && !only && k < K_MAX && failures < 8)
            k++;
        printf("\n    %-14s alloc %" PRIu64, operations[i].name, k - 1);
        fflush(stdout);
        CU_ASSERT_EQUAL(failures, 0);
        CU_ASSERT(k < K_MAX);
    }
}

int main(void)
{
    CU_pSuite suite;
    unsigned failures;

    strcpy(directory, "/tmp/plx-fault-XXXXXX");
    if (!mkdtemp(directory))
        return 2;
    snprintf(state, sizeof state, "%s/state", directory);
    snprintf(volume, sizeof volume, "%s/volume", directory);
    buffer = malloc(LENGTH);
    CU_initialize_registry();
    suite = CU_add_suite("faults of an attach", NULL, NULL);
    CU_add_test(suite, "every allocation", test_all);
    CU_basic_set_mode(CU_BRM_NORMAL);
    CU_basic_run_tests();
    failures = CU_get_number_of_failures();
    shell("rm -rf state volume");
    rmdir(directory);
    CU_cleanup_registry();
    free(buffer);
    return failures != 0;
}
