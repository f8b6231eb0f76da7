/* test_doors_half.c - a recovery that fails when it has taken some of a dead process's extents, in
 * a process that lives on (ATTACH-25).
 *
 * The disk of the dead process has blocks that only its log names. Whoever recovers the disk next,
 * none of these blocks is handed out again. And what the process has claimed itself since then is
 * not given up as if the dead one had left it.
 */
#include <CUnit/Basic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ok.h"
#include "attach/attach_inside.h"
#include "suite.h"
#include "unit/lost_writes.h"

enum half { TAKE_FAILS, TAKE_IS_UNKNOWN, READ_FAILS, RELEASE_IS_UNKNOWN };

/* The k-th of these calls from now on fails, k being 1; 0: none does. */
static enum half half;
static unsigned left;

int __real_plx_registry_extent_take(struct plx_registry *reg, int64_t store, uint64_t no,
                                    uint64_t owner, uint64_t instance,
                                    struct plx_registry_extent *ret_extent);
int __wrap_plx_registry_extent_take(struct plx_registry *reg, int64_t store, uint64_t no,
                                    uint64_t owner, uint64_t instance,
                                    struct plx_registry_extent *ret_extent);
int __real_plx_store_extent_read(struct plx_store *store, uint64_t number,
                                 struct plx_extent_info *ret_info, struct plx_fault *why);
int __wrap_plx_store_extent_read(struct plx_store *store, uint64_t number,
                                 struct plx_extent_info *ret_info, struct plx_fault *why);

int __real_plx_registry_extent_release(struct plx_registry *reg, int64_t store,
                                       const struct plx_registry_extent *extent);
int __wrap_plx_registry_extent_release(struct plx_registry *reg, int64_t store,
                                       const struct plx_registry_extent *extent);

int __wrap_plx_registry_extent_release(struct plx_registry *reg, int64_t store,
                                       const struct plx_registry_extent *extent)
{
    bool fails = half == RELEASE_IS_UNKNOWN && left && !--left;
    int error = __real_plx_registry_extent_release(reg, store, extent);

    return fails ? PLX_ERR_REGISTRY : error;
}

int __wrap_plx_registry_extent_take(struct plx_registry *reg, int64_t store, uint64_t no,
                                    uint64_t owner, uint64_t instance,
                                    struct plx_registry_extent *ret_extent)
{
    bool fails = half <= TAKE_IS_UNKNOWN && left && !--left;
    int error = fails && half == TAKE_FAILS
                    ? 0
                    : __real_plx_registry_extent_take(reg, store, no, owner, instance, ret_extent);

    return fails ? PLX_ERR_REGISTRY : error;
}

int __wrap_plx_store_extent_read(struct plx_store *store, uint64_t number,
                                 struct plx_extent_info *ret_info, struct plx_fault *why)
{
    bool fails = half == READ_FAILS && left && !--left;

    return fails ? plx_fault_set(why, PLX_ERR_IO_READ, "not now")
                 : __real_plx_store_extent_read(store, number, ret_info, why);
}

/* A process that has disk "three" open until it is killed. */
static pid_t live(void)
{
    struct plx_vdi *vdi;
    int ready[2];
    pid_t child;
    char byte;

    CU_ASSERT_EQUAL_FATAL(pipe(ready), 0);
    child = fork();
    CU_ASSERT_FATAL(child >= 0);
    if (!child) {
        open_attach();
        if (open_disk("three", &vdi) || write(ready[1], "", 1) != 1)
            _exit(1);
        pause();
    }
    close(ready[1]);
    CU_ASSERT_EQUAL(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return child;
}

static int collect(void)
{
    struct plx_collected collected;

    return plx_attach_collect(attach, &(struct plx_attach_work){0}, &collected, &fault);
}

/* Opening recovers. */
static int open_beside(void)
{
    struct plx_attach_options options = {.store = "s", .state_dir = folder, .role = "admin"};
    struct plx_attach *beside;
    int error = plx_attach_open(&options, &beside, &fault);

    if (!error)
        OK(plx_attach_close(beside));
    return error;
}

/* Disk "two" has what was acknowledged, whatever is written elsewhere. */
static void fill_another(const char *name)
{
    create(name);
    for (unsigned part = 0; part < 25; part++)
        fill(name, part * PART, 6);
    for (unsigned part = 0; part < 4; part++)
        CU_ASSERT(holds("two", part * PART, 3));
}

static void fail_at(enum half what, unsigned k)
{
    struct plx_attach *first;
    pid_t other;

    OK(make_store_of(16, 4 * MIB)); /* in less, one write takes them all ahead of need */
    create_two();
    open_attach();
    first = attach;
    create("three");
    other = live();
    write_and_die("two", 3);
    attach = first;
    half = what;
    left = k;
    CU_ASSERT_NOT_EQUAL(collect(), 0);
    CU_ASSERT_EQUAL_FATAL(left, 0);
    if (what == READ_FAILS)
        CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "nobody can open store s to write until it can"));
    CU_ASSERT_EQUAL(open_beside(), PLX_ERR_BUSY);
    kill(other, SIGKILL);
    CU_ASSERT_EQUAL(waitpid(other, NULL, 0), other);
    OK(collect());
    fill_another("more");
    OK(open_beside());
    close_attach();
    open_attach(); /* had the first one left an extent, this would be given out now */
    fill_another("rest");
    close_attach();
    OK(drop_store());
}

static void test_take_fails(void)
{
    for (unsigned k = 1; k <= 2; k++)
        fail_at(TAKE_FAILS, k);
}

static void test_take_is_unknown(void)
{
    for (unsigned k = 1; k <= 2; k++)
        fail_at(TAKE_IS_UNKNOWN, k);
}

static void test_read_fails(void)
{
    for (unsigned k = 1; k <= 2; k++)
        fail_at(READ_FAILS, k);
}

/* A process that dies when it has claimed an extent, before it writes the extent's header. */
static void claim_and_die(void)
{
    struct plx_registry_extent extent;
    struct plx_attach_inside in;
    pid_t child = fork();
    int status;
    bool fresh;

    CU_ASSERT_FATAL(child >= 0);
    if (!child) {
        open_attach();
        plx_attach_get_inside(attach, &in);
        _exit(plx_registry_extent_claim(in.registry, in.store_row, in.instance, PLX_EXTENT_DATA, 0,
                                        &extent, &fresh) != 0);
    }
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    CU_ASSERT_EQUAL(status, 0);
}

/* The generation of the extent that the attach owns; 0: it does not own it. */
static uint64_t generation_of(const struct plx_attach_inside *in, uint64_t no)
{
    struct plx_registry_extent *list;
    uint64_t generation = 0;
    size_t count;

    OK(plx_registry_extent_list(in->registry, in->store_row, in->instance, &list, &count));
    for (size_t i = 0; i < count; i++)
        if (list[i].no == no)
            generation = list[i].generation;
    free(list);
    return generation;
}

/* The claim is on its way: the header is not written yet when the recovery is tried again. */
static void test_release_is_unknown(void)
{
    struct plx_registry_extent extent = {.no = 0};
    struct plx_attach_inside in;
    struct plx_attach *first;
    bool fresh;

    OK(make_store_of(16, 4 * MIB));
    open_attach();
    first = attach;
    claim_and_die();
    attach = first;
    half = RELEASE_IS_UNKNOWN;
    left = 1;
    CU_ASSERT_NOT_EQUAL(collect(), 0);
    CU_ASSERT_EQUAL_FATAL(left, 0);
    plx_attach_get_inside(attach, &in);
    OK(plx_registry_extent_claim(in.registry, in.store_row, in.instance, PLX_EXTENT_DATA, 0,
                                 &extent, &fresh));
    OK(collect());
    CU_ASSERT_EQUAL(generation_of(&in, extent.no), extent.generation);
    extent.type = PLX_EXTENT_UNUSED;
    OK(plx_registry_extent_release(in.registry, in.store_row, &extent));
    close_attach();
    OK(drop_store());
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"the registry does not give an extent", test_take_fails},
        {"nobody knows whether it did", test_take_is_unknown},
        {"a header cannot be read", test_read_fails},
        {"nobody knows whether one was given up", test_release_is_unknown},
    };

    return SUITE_RUN("half a recovery (ATTACH-25)", tests);
}
