/* test_short.c - a store that is short of metadata, as one may be that was full before there was a
 * reserve (reserve.h), and whose process died: disks are recovered one by one, again after
 * the others; who wants one for which there is no room waits, and is told; nothing is collected.
 *
 * The process that dies is a child, with the store's volume in a file.
 */
#include <CUnit/Basic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/loop/store.h"
#include "folder.h"
#include "ok.h"
#include "attach/attach.h"
#include "attach/founding.h"
#include "engine/space/allocator.h"
#include "suite.h"

#define MIB (1ull << 20)
#define LEAF (2 * MIB)
#define LEAVES 100u /* that disk a has changed: recovering it takes as many nodes */
#define TURNS 3000u /* of disk b: its log is long, and goes when it is recovered */

static char folder[64], volume[96], further[96];
static struct plx_attach *attach;
static struct plx_fault fault;
static unsigned short_of, recovered, waited; /* events; and questions whether to wait */
static uint8_t block[PLX_BLOCK_SIZE] __attribute__((aligned(PLX_BLOCK_SIZE)));

static void hear(void *context, int error, const char *text)
{
    short_of += error == PLX_ERR_NOSPACE && strstr(text, "cannot be opened") != NULL;
    recovered += strstr(text, "recovered,") != NULL;
}

static bool wait_a_little(void *context, uint64_t waited_ms, const struct plx_fault *why)
{
    waited++;
    usleep(20000);
    return waited_ms < 300;
}

static const struct plx_patience patience = {.wait = wait_a_little};

static void open_attach(void)
{
    struct plx_attach_options options = {
        .store = "s", .state_dir = folder, .role = "admin", .event = hear, .patience = &patience};

    short_of = recovered = waited = 0;
    OK(plx_attach_open(&options, &attach, &fault));
}

static struct plx_vdi *open_disk(const char *name)
{
    struct plx_attach_vdi_options options = {.overwrite = -1};
    struct plx_vdi *vdi = NULL;

    OK(plx_attach_vdi_open(attach, name, NULL, &options, &vdi, &fault));
    return vdi;
}

static struct plx_vdi *create(const char *name)
{
    struct plx_vdi_create_options options = {.size_bytes = 1024 * MIB, .sector_size = 512};
    struct plx_vdi_info info;

    snprintf(options.name, sizeof options.name, "%s", name);
    OK(plx_attach_vdi_create(attach, &options, NULL, NULL, &info, &fault));
    return open_disk(name);
}

static void transfer(struct plx_vdi *vdi, enum plx_request_op op, uint64_t offset)
{
    struct iovec iov = {block, sizeof block};
    struct plx_request request = {
        .op = op, .offset = offset, .length = sizeof block, .iov = &iov, .iovcnt = 1};

    OK(plx_vdi_run(vdi, &request));
}

/* All but so many blocks of metadata are in use, by nobody, and there are no further extents. */
static void use_up_metadata(uint64_t left)
{
    struct plx_store *store = plx_attach_store(attach);
    static uint64_t taken[1u << 16];
    uint64_t one;
    size_t count = 0;
    int error;

    do {
        struct plx_waiter waiter = PLX_WAITER;

        error = plx_alloc_run(store, PLX_EXTENT_META, 1, &waiter.task, &taken[count], &one);
        count += error == 0;
        if (error == PLX_WAIT)
            plx_waiter_wait(store, &waiter);
    } while (!error || error == PLX_WAIT);
    CU_ASSERT_EQUAL(error, PLX_ERR_NOSPACE);
    CU_ASSERT_FATAL(count > left);
    while (left--)
        plx_alloc_free(store, taken[--count], 1);
    OK(plx_bitmap_sync_run(store));
}

static void work_and_die(uint64_t left)
{
    struct plx_vdi *a, *b;

    open_attach();
    a = create("a");
    b = create("b");
    for (unsigned i = 0; i < LEAVES; i++) {
        memset(block, (int)i + 1, sizeof block);
        transfer(a, PLX_WRITE, i * LEAF);
    }
    for (unsigned i = 0; i < TURNS; i++)
        transfer(b, i % 2 ? PLX_UNMAP : PLX_WRITE, 0);
    transfer(b, PLX_WRITE, LEAF);
    use_up_metadata(left);
    _exit(CU_get_number_of_failures() ? 1 : 0);
}

static void make_short_store(uint64_t left)
{
    struct plx_format_options options = {
        .name = "s", .extent_bytes = MIB, .segment_bytes = 64u << 10};
    const char *path = volume;
    struct plx_store_info info;
    int status = -1;
    pid_t child;

    CU_ASSERT_FATAL(folder_make("short", folder));
    snprintf(volume, sizeof volume, "%s/volume", folder);
    snprintf(further, sizeof further, "%s/further", folder);
    OK(plx_founding_format(folder, &path, 1, 128 * MIB, &options, false, NULL, &info, &fault));
    child = fork();
    if (child == 0)
        work_and_die(left);
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    CU_ASSERT_EQUAL_FATAL(status, 0);
}

static void end(void)
{
    char command[96];

    OK(plx_attach_close(attach));
    snprintf(command, sizeof command, "rm -r %s", folder);
    CU_ASSERT_EQUAL(system(command), 0);
}

static void verify(void)
{
    struct plx_vdi *a = open_disk("a");

    for (unsigned i = 0; i < LEAVES; i++) {
        transfer(a, PLX_READ, i * LEAF);
        CU_ASSERT(block[0] == i + 1 && memcmp(block, block + 1, sizeof block - 1) == 0);
    }
    OK(plx_attach_vdi_close(attach, a));
    OK(plx_attach_vdi_close(attach, open_disk("b")));
    CU_ASSERT_EQUAL(recovered, 2);
}

/* There is no room for a, but there is when b has given its log back. Which one comes first goes by
 * their ids: until it is a. */
static void test_again(void)
{
    struct plx_collected collected;
    unsigned tries = 0;

    do {
        make_short_store(LEAVES / 2);
        open_attach();
        CU_ASSERT_EQUAL(recovered, 2);
        CU_ASSERT_EQUAL(waited, 0);
        OK(plx_attach_collect(attach, &(struct plx_attach_work){0}, &collected, &fault));
        verify();
        end();
    } while (!short_of && ++tries < 32);
    CU_ASSERT(short_of > 0);
}

/* There is room for neither. */
static void test_no_room(void)
{
    const struct plx_attach_growth growth = {.path = further, .create_bytes = 16 * MIB};
    struct plx_attach_vdi_options options = {.overwrite = -1};
    struct plx_collected collected;
    struct plx_grown grown;
    struct plx_vdi *vdi;

    make_short_store(0);
    open_attach();
    CU_ASSERT_EQUAL(recovered, 0);
    CU_ASSERT_EQUAL(plx_attach_vdi_open(attach, "a", NULL, &options, &vdi, &fault), PLX_ERR_BUSY);
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "there is no room for the metadata"));
    CU_ASSERT(waited > 0);
    CU_ASSERT_EQUAL(plx_attach_collect(attach, &(struct plx_attach_work){0}, &collected, &fault),
                    PLX_ERR_BUSY);
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "nothing is collected before it is"));
    OK(plx_attach_grow(attach, &growth, &grown, &fault));
    verify();
    OK(plx_attach_collect(attach, &(struct plx_attach_work){0}, &collected, &fault));
    CU_ASSERT(collected.swept > 0);
    end();
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"what one gives back another needs", test_again},
        {"no room at all", test_no_room},
    };

    return SUITE_RUN("short", tests);
}
