/* test_plugin.c - handler_parallax.so, driven as tcmu-runner drives it (tests/bench/runner.c).
 *
 * A store in a temporary folder, made by the parallax command; both are taken from the folder that
 * this program lies in. What needs the kernel's target is tested in tests/lab.
 */
#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <libaio.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/format/format.h"
#include "lun.h"
#include "suite.h"
#include "tcmu/say.h"

#define SIZE (16u << 20)
#define BLOCK 4096u

static struct tcmu_device *device;

/* ---- Threads, of which there may be too many ------------------------------------------------ */

static atomic_int threads_left = -1; /* so many are made, then none; -1: all */

/* The handler calls this one. */
__attribute__((visibility("default"))) int pthread_create(pthread_t *thread,
                                                          const pthread_attr_t *attributes,
                                                          void *(*run)(void *), void *argument)
{
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) =
        (__typeof__(create))dlsym(RTLD_NEXT, "pthread_create");

    if (threads_left == 0)
        return EAGAIN;
    if (threads_left > 0)
        threads_left--;
    return create(thread, attributes, run, argument);
}

/* How many of the handler's wait for volumes. */
static int watchers(void)
{
    glob_t names;
    int count = 0;

    if (glob("/proc/self/task/*/comm", 0, NULL, &names) != 0)
        return -1;
    for (size_t i = 0; i < names.gl_pathc; i++) {
        char name[32] = "";
        FILE *file = fopen(names.gl_pathv[i], "re");

        if (file && fgets(name, sizeof name, file))
            count += strcmp(name, "plx-volume\n") == 0;
        if (file)
            fclose(file);
    }
    globfree(&names);
    return count;
}

/* ---- Flushes, which may take long ---------------------------------------------------------- */

static atomic_uint flush_us;
static _Atomic ino_t quick_inode; /* whose flushes take no longer */

static void flush_slowly(int fd)
{
    struct stat stat;

    if (flush_us && (fstat(fd, &stat) != 0 || stat.st_ino != quick_inode))
        usleep(flush_us);
}

/* The handler calls these two: the latter where the kernel has no asynchronous I/O. */
__attribute__((visibility("default"))) int io_submit(io_context_t context, long count,
                                                     struct iocb **list)
{
    long taken;

    for (long i = 0; i < count; i++)
        if (list[i]->aio_lio_opcode == IO_CMD_FDSYNC)
            flush_slowly(list[i]->aio_fildes);
    taken = syscall(SYS_io_submit, context, count, list);
    return taken < 0 ? -errno : (int)taken;
}

__attribute__((visibility("default"))) int fdatasync(int fd)
{
    flush_slowly(fd);
    return (int)syscall(SYS_fdatasync, fd);
}

/* ---- Commands ------------------------------------------------------------------------------- */

static int scsi(const char *hex, void *data, size_t bytes)
{
    return scsi_on(device, hex, data, bytes);
}

static int read_at(uint64_t lba, void *data, size_t bytes)
{
    struct runner_command command = {.iov = {{data, bytes}}, .iovcnt = 1};

    runner_read_write(&command, false, lba, (uint32_t)(bytes / SECTOR), 0);
    return runner_run(device, &command);
}

static struct tcmu_device *open_lun(const char *cfgstring, uint64_t bytes, uint32_t sector,
                                    const char *word)
{
    char reason[600] = "";
    int error = 0;
    struct tcmu_device *opened =
        runner_open(stand_handler, cfgstring, bytes, sector, &error, reason, sizeof reason);

    if (!word) {
        CU_ASSERT_PTR_NOT_NULL_FATAL(opened);
        return opened;
    }
    CU_ASSERT_PTR_NULL(opened);
    CU_ASSERT_TRUE(error < 0);
    CU_ASSERT_PTR_NOT_NULL(strstr(reason, word));
    if (!strstr(reason, word))
        printf("  %s: said '%s', not '%s'\n", cfgstring, reason, word);
    return NULL;
}

/* ---- Opening ---- */

static void test_refusals(void)
{
    char state[PATH_MAX], *why = NULL;

    /* Any local user may ask this: what exists is not to be learnt by it. */
    CU_ASSERT_TRUE(stand_handler->check_config("parallax/s/nothing", &why));
    CU_ASSERT_TRUE(stand_handler->check_config("parallax/nowhere/v@nolabel", &why));
    CU_ASSERT_PTR_NULL(why);
    open_lun("parallax/s/nothing", SIZE, SECTOR, "nothing");
    open_lun("parallax/nowhere/v", SIZE, SECTOR, "nowhere");
    open_lun("parallax/s/v;chache=on", SIZE, SECTOR, "is no option");
    open_lun("parallax/s/v", SIZE + 4096, SECTOR, "the sizes must be the same");
    open_lun("parallax/s/v", SIZE, 4096, "hw_block_size=512");
    open_lun("parallax/s/v@nolabel", SIZE, SECTOR, "nolabel");
    open_lun("parallax/s/v@17", SIZE, SECTOR, "17");
    snprintf(state, sizeof state, "%s", getenv("PARALLAX_STATE_DIR"));
    setenv("PARALLAX_STATE_DIR", "/dev/null", 1);
    open_lun("parallax/s/v", SIZE, SECTOR, "cannot use directory /dev/null");
    setenv("PARALLAX_STATE_DIR", state, 1);
    /* After all of that the VDI opens. */
    device = open_lun("parallax/s/v", SIZE, SECTOR, NULL);
    open_lun("parallax/s/v", SIZE, SECTOR, "already");
}

/* ---- Data ---- */

static void test_read_write(void)
{
    static char data[65536], back[65536];

    CU_ASSERT_EQUAL(read_at(0, back, sizeof back), TCMU_STS_OK);
    CU_ASSERT_TRUE(all_are(back, sizeof back, 0));
    memset(data, 'a', sizeof data);
    CU_ASSERT_EQUAL(write_on(device, 3, data, sizeof data, 0), TCMU_STS_OK);
    CU_ASSERT_EQUAL(write_on(device, 3, data, 512, 0x08), TCMU_STS_OK); /* FUA */
    CU_ASSERT_EQUAL(read_at(3, back, sizeof back), TCMU_STS_OK);
    CU_ASSERT_EQUAL(memcmp(data, back, sizeof data), 0);
    CU_ASSERT_EQUAL(read_at(0, back, 4096), TCMU_STS_OK);
    CU_ASSERT_TRUE(all_are(back, 3 * SECTOR, 0) && all_are(back + 3 * SECTOR, 5 * SECTOR, 'a'));
    /* No data, the last sector, the one behind it. */
    CU_ASSERT_EQUAL(scsi("88 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0", NULL, 0), TCMU_STS_OK);
    CU_ASSERT_EQUAL(read_at(SIZE / SECTOR - 1, back, SECTOR), TCMU_STS_OK);
    CU_ASSERT_EQUAL(read_at(SIZE / SECTOR, back, SECTOR), TCMU_STS_RANGE);
    CU_ASSERT_EQUAL(scsi("35 0 0 0 0 0 0 0 0 0", NULL, 0), TCMU_STS_OK);
    /* Protection information is not there. */
    CU_ASSERT_EQUAL(write_on(device, 0, data, SECTOR, 0x20), TCMU_STS_INVALID_CDB);
}

static void test_unmap(void)
{
    static char data[65536], back[65536];
    uint8_t list[24] = {0, 22, 0, 16};

    memset(data, 'b', sizeof data);
    CU_ASSERT_EQUAL(write_on(device, 256, data, sizeof data, 0), TCMU_STS_OK);
    plx_put_be(list + 8, 8, 257); /* starts and ends within a block */
    plx_put_be(list + 16, 4, 100);
    CU_ASSERT_EQUAL(scsi("42 0 0 0 0 0 0 0 18 0", list, sizeof list), TCMU_STS_OK);
    CU_ASSERT_EQUAL(read_at(256, back, sizeof back), TCMU_STS_OK);
    CU_ASSERT_TRUE(all_are(back, SECTOR, 'b') && all_are(back + SECTOR, 100 * SECTOR, 0) &&
                   all_are(back + 101 * SECTOR, 27 * SECTOR, 'b'));
}

static void test_write_same(void)
{
    static char sector[SECTOR], back[2 << 20];

    memset(sector, 'c', sizeof sector);
    /* 4095 sectors from 1001 on, more than one request's worth. */
    CU_ASSERT_EQUAL(scsi("93 0 0 0 0 0 0 0 3 e9 0 0 f ff 0 0", sector, SECTOR), TCMU_STS_OK);
    CU_ASSERT_EQUAL(read_at(1001, back, 4095 * SECTOR), TCMU_STS_OK);
    CU_ASSERT_TRUE(all_are(back, 4095 * SECTOR, 'c'));
    CU_ASSERT_EQUAL(read_at(1000, back, SECTOR), TCMU_STS_OK);
    CU_ASSERT_TRUE(all_are(back, SECTOR, 0));
    /* Zeroes, then UNMAP, then zeroes without data (NDOB), of 16 sectors each. */
    memset(sector, 0, sizeof sector);
    CU_ASSERT_EQUAL(scsi("93 0 0 0 0 0 0 0 3 e9 0 0 0 10 0 0", sector, SECTOR), TCMU_STS_OK);
    CU_ASSERT_EQUAL(scsi("93 8 0 0 0 0 0 0 4 0 0 0 0 10 0 0", sector, SECTOR), TCMU_STS_OK);
    CU_ASSERT_EQUAL(scsi("93 1 0 0 0 0 0 0 5 0 0 0 0 10 0 0", NULL, 0), TCMU_STS_OK);
    for (unsigned i = 0; i < 3; i++) {
        static const unsigned lba[] = {0x3e9, 0x400, 0x500};

        CU_ASSERT_EQUAL(read_at(lba[i], back, 17 * SECTOR), TCMU_STS_OK);
        CU_ASSERT_TRUE(all_are(back, 16 * SECTOR, 0));
        CU_ASSERT_TRUE(all_are(back + 16 * SECTOR, SECTOR, 'c'));
    }
    CU_ASSERT_EQUAL(scsi("93 10 0 0 0 0 0 0 0 0 0 0 0 1 0 0", sector, SECTOR),
                    TCMU_STS_INVALID_CDB); /* ANCHOR */
    CU_ASSERT_EQUAL(scsi("93 1 0 0 0 0 0 0 7f ff 0 0 0 2 0 0", NULL, 0), TCMU_STS_PASSTHROUGH_ERR);
    check_sense(0x05, 0x2100);
}

static void test_compare_and_write(void)
{
    static char data[2 * SECTOR], back[SECTOR];

    memset(data, 0, SECTOR);
    memset(data + SECTOR, 'd', SECTOR);
    CU_ASSERT_EQUAL(scsi("89 0 0 0 0 0 0 0 40 0 0 0 0 1 0 0", data, sizeof data), TCMU_STS_OK);
    CU_ASSERT_EQUAL(read_at(0x4000, back, SECTOR), TCMU_STS_OK);
    CU_ASSERT_TRUE(all_are(back, SECTOR, 'd'));
    memset(data, 'd', 100);
    CU_ASSERT_EQUAL(scsi("89 0 0 0 0 0 0 0 40 0 0 0 0 1 0 0", data, sizeof data),
                    TCMU_STS_MISCOMPARE);
    CU_ASSERT_EQUAL(plx_get_be(sense + 3, 4), 100); /* where */
    CU_ASSERT_EQUAL(scsi("89 0 0 0 0 0 0 0 40 0 0 0 0 2 0 0", data, sizeof data),
                    TCMU_STS_INVALID_CDB);
}

static void test_verify(void)
{
    static char data[8 * SECTOR], ones[SECTOR], back[SECTOR];

    memset(data, 'e', sizeof data);
    CU_ASSERT_EQUAL(scsi("ae 2 0 0 50 0 0 0 0 8 0 0", data, sizeof data), TCMU_STS_OK);
    CU_ASSERT_EQUAL(scsi("2f 0 0 0 50 0 0 0 8 0", NULL, 0), TCMU_STS_OK);
    CU_ASSERT_EQUAL(scsi("2f 2 0 0 50 0 0 0 8 0", data, sizeof data), TCMU_STS_OK);
    CU_ASSERT_EQUAL(scsi("8f 6 0 0 0 0 0 0 50 0 0 0 0 8 0 0", data, SECTOR), TCMU_STS_OK);
    data[5 * SECTOR + 7] = 'x';
    CU_ASSERT_EQUAL(scsi("af 2 0 0 50 0 0 0 0 8 0 0", data, sizeof data), TCMU_STS_MISCOMPARE);
    CU_ASSERT_EQUAL(plx_get_be(sense + 3, 4), 5 * SECTOR + 7);
    CU_ASSERT_EQUAL(scsi("2f 4 0 0 50 0 0 0 8 0", NULL, 0), TCMU_STS_INVALID_CDB);
    CU_ASSERT_EQUAL(scsi("34 0 0 0 50 0 0 0 8 0", NULL, 0), TCMU_STS_OK);
    CU_ASSERT_EQUAL(scsi("2f 0 0 0 7f ff 0 0 2 0", NULL, 0), TCMU_STS_PASSTHROUGH_ERR);
    check_sense(0x05, 0x2100);
    memset(ones, 0x10, sizeof ones);
    CU_ASSERT_EQUAL(scsi("8b 0 0 0 0 0 0 0 50 0 0 0 0 1 0 0", ones, SECTOR), TCMU_STS_OK);
    CU_ASSERT_EQUAL(read_at(0x5000, back, SECTOR), TCMU_STS_OK);
    CU_ASSERT_TRUE(all_are(back, SECTOR, 'e' | 0x10));
}

/* ---- Answers ---- */

static void test_answers(void)
{
    uint8_t answer[2048];

    memset(answer, 0xee, sizeof answer);
    CU_ASSERT_EQUAL(scsi("12 1 b0 1 0 0", answer, 256), TCMU_STS_OK);
    CU_ASSERT_EQUAL(plx_get_be(answer + 28, 4), 8);          /* unmap granularity */
    CU_ASSERT_EQUAL(plx_get_be(answer + 32, 4), 0x80000000); /* aligned at 0 */
    CU_ASSERT_TRUE(all_are((char *)answer + 64, 256 - 64, 0));
    CU_ASSERT_EQUAL(scsi("12 1 b2 0 40 0", answer, 64), TCMU_STS_OK);
    CU_ASSERT_EQUAL(answer[5], 0xe4);
    CU_ASSERT_EQUAL(answer[6], 2);
    /* What tcmu-runner answers gets a clean buffer. */
    memset(answer, 0xee, sizeof answer);
    CU_ASSERT_EQUAL(scsi("12 0 0 0 ff 0", answer, 255), TCMU_STS_NOT_HANDLED);
    CU_ASSERT_TRUE(all_are((char *)answer, 255, 0));
    CU_ASSERT_EQUAL(scsi("1a 0 3f 0 ff 0", answer, 255), TCMU_STS_OK);
    CU_ASSERT_EQUAL(answer[2], 0x10); /* DPOFUA, writable */
    CU_ASSERT_EQUAL(answer[0], 4 + 12 + 20 + 12 - 1);
    CU_ASSERT_EQUAL(scsi("1a 0 8 0 ff 0", answer, 255), TCMU_STS_OK);
    CU_ASSERT_EQUAL(answer[6] & 0x04, 0); /* no write cache */
    CU_ASSERT_EQUAL(scsi("1a 0 c8 0 ff 0", answer, 255), TCMU_STS_NOTSUPP_SAVE_PARAMS);
    CU_ASSERT_EQUAL(scsi("1a 0 1c 0 ff 0", answer, 255), TCMU_STS_PASSTHROUGH_ERR);
    check_sense(0x05, 0x2400);
    CU_ASSERT_EQUAL(scsi("3 0 0 0 12 0", answer, 18), TCMU_STS_OK);
    CU_ASSERT_EQUAL(answer[0], 0x70);
    CU_ASSERT_EQUAL(scsi("a3 c 0 0 0 0 0 0 8 0 0 0", answer, sizeof answer), TCMU_STS_OK);
    CU_ASSERT_EQUAL(plx_get_be(answer, 4) % 8, 0);
    CU_ASSERT_TRUE(plx_get_be(answer, 4) > 50 * 8);
    CU_ASSERT_EQUAL(scsi("a3 c 1 42 0 0 0 0 8 0 0 0", answer, sizeof answer), TCMU_STS_OK);
    CU_ASSERT_EQUAL(answer[1], 3);
    CU_ASSERT_EQUAL(answer[4], 0x42);
    CU_ASSERT_EQUAL(scsi("a3 c 1 9e 0 0 0 0 8 0 0 0", answer, sizeof answer),
                    TCMU_STS_PASSTHROUGH_ERR); /* has service actions */
    CU_ASSERT_EQUAL(sense[17], 2);
}

static void test_lba_status(void)
{
    uint8_t answer[8 + 4 * 16];
    static char data[8192];

    memset(data, 'f', sizeof data);
    /* Two blocks at LBA 6000h, before and behind them nothing. */
    CU_ASSERT_EQUAL(write_on(device, 0x6000, data, sizeof data, 0), TCMU_STS_OK);
    CU_ASSERT_EQUAL(scsi("9e 12 0 0 0 0 0 0 5f f8 0 0 0 48 0 0", answer, sizeof answer),
                    TCMU_STS_OK);
    CU_ASSERT_TRUE(plx_get_be(answer, 4) >= 4 + 3 * 16);
    CU_ASSERT_EQUAL(plx_get_be(answer + 8, 8), 0x5ff8);
    CU_ASSERT_EQUAL(plx_get_be(answer + 16, 4), 8);
    CU_ASSERT_EQUAL(answer[20], 1); /* deallocated */
    CU_ASSERT_EQUAL(plx_get_be(answer + 24, 8), 0x6000);
    CU_ASSERT_EQUAL(plx_get_be(answer + 32, 4), 16);
    CU_ASSERT_EQUAL(answer[36], 0); /* mapped */
    CU_ASSERT_EQUAL(answer[52], 1);
    CU_ASSERT_EQUAL(scsi("9e 12 0 0 0 0 0 0 80 0 0 0 0 48 0 0", answer, sizeof answer),
                    TCMU_STS_PASSTHROUGH_ERR);
    check_sense(0x05, 0x2100);
}

/* ---- The control socket ---- */

static void test_control(void)
{
    CU_ASSERT_EQUAL(ask(0, "luns", "{\"command\": \"info\"}"), 1);
    CU_ASSERT_TRUE(ask(0, "writes", "{\"command\": \"stats\", \"vdi\": \"v\"}") > 0);
    CU_ASSERT_TRUE(ask(0, "writes", "{\"command\": \"stats\"}") > 0);
    CU_ASSERT_EQUAL(stand_shell("./parallax vdi stats s/v | grep -q '^writes  *[1-9]' && "
                                "./parallax vdi stats s/v --json | grep -q '\"writes\": [1-9]' && "
                                "! ./parallax vdi stats s/v | grep -q '^batches' && "
                                "./parallax store stats s | grep -q '^batches  *[1-9]' && "
                                "./parallax store stats s --json | grep -q '\"reads\": ' && "
                                "./parallax store info s | grep -q handler"),
                    0);
    ask(0, NULL, "{\"command\": \"flush\", \"vdi\": \"v\"}");
    ask(0, NULL, "{\"command\": \"keyframe\", \"vdi\": \"v\"}");
    ask(PLX_ERR_NOT_FOUND, NULL, "{\"command\": \"flush\", \"vdi\": \"w\"}");
    ask(PLX_ERR_INVALID, NULL, "{\"command\": \"flush\"}");
    ask(PLX_ERR_UNSUPPORTED, NULL, "{\"command\": \"explode\"}");
    ask(PLX_ERR_INVALID, NULL, "{\"command\": \"resize\", \"vdi\": \"v\", \"size_bytes\": 4096}");
    ask(PLX_ERR_INVALID, NULL, "{\"command\": \"resize\", \"vdi\": \"v\"}");
    ask(PLX_ERR_INVALID, NULL, "{\"command\": \"label\", \"vdi\": \"v\", \"label\": \"0x\"}");
    ask(PLX_ERR_INVALID, NULL, "{\"command\": \"label\", \"vdi\": \"v\", \"seq\": 1}");
    ask(PLX_ERR_INVALID, NULL, "{\"command\": \"label\", \"vdi\": \"v\", \"label\": \"new\"}");
    ask(PLX_ERR_NOT_FOUND, NULL,
        "{\"command\": \"label\", \"vdi\": \"v\", \"label\": \"new\", \"seq\": 4711}");
    ask(PLX_ERR_INVALID, NULL, "{\"command\": \"snapshot\", \"vdi\": \"v\", \"label\": \"17\"}");
    ask(PLX_ERR_INVALID, NULL, /* NAMES-2 */
        "{\"command\": \"snapshot\", \"vdi\": \"v\", \"label\": \"import-unfinished\"}");
    ask(PLX_ERR_INVALID, NULL,
        "{\"command\": \"label\", \"vdi\": \"v\", \"label\": \"before-rewind-x\", \"seq\": 1}");
}

static void test_snapshot(void)
{
    struct tcmulib_cfg_info cache = {.type = TCMULIB_CFG_WRITE_CACHE};
    struct tcmulib_cfg_info size = {.type = TCMULIB_CFG_DEV_SIZE};
    static char data[SECTOR], back[SECTOR];
    struct tcmu_device *snapshot;
    uint8_t mode[255];
    char label[128];
    json_int_t seq;

    memset(data, 'g', sizeof data);
    CU_ASSERT_EQUAL(write_on(device, 0x7000, data, sizeof data, 0), TCMU_STS_OK);
    seq = ask(0, "seq", "{\"command\": \"snapshot\", \"vdi\": \"v\"}");
    CU_ASSERT_TRUE(seq > 0);
    snprintf(label, sizeof label,
             "{\"command\": \"label\", \"vdi\": \"v\", \"label\": \"one\", \"seq\": %d}", (int)seq);
    ask(0, NULL, label);
    memset(data, 'h', sizeof data);
    CU_ASSERT_EQUAL(write_on(device, 0x7000, data, sizeof data, 0), TCMU_STS_OK);
    snapshot = open_lun("parallax/s/v@one", SIZE, SECTOR, NULL);
    CU_ASSERT_EQUAL(scsi_on(snapshot, "88 0 0 0 0 0 0 0 70 0 0 0 0 1 0 0", back, SECTOR),
                    TCMU_STS_OK);
    CU_ASSERT_TRUE(all_are(back, SECTOR, 'g'));
    CU_ASSERT_EQUAL(write_on(snapshot, 0, data, SECTOR, 0), TCMU_STS_PASSTHROUGH_ERR);
    check_sense(0x07, 0x2700);
    CU_ASSERT_EQUAL(scsi_on(snapshot, "4 0 0 0 0 0", NULL, 0), TCMU_STS_PASSTHROUGH_ERR);
    check_sense(0x07, 0x2700);
    CU_ASSERT_EQUAL(scsi_on(snapshot, "1a 0 8 0 ff 0", mode, 255), TCMU_STS_OK);
    CU_ASSERT_EQUAL(mode[2] & 0x80, 0x80); /* write protected */
    CU_ASSERT_EQUAL(scsi_on(snapshot, "35 0 0 0 0 0 0 0 0 0", NULL, 0), TCMU_STS_OK);
    CU_ASSERT_EQUAL(read_at(0x7000, back, SECTOR), TCMU_STS_OK);
    CU_ASSERT_TRUE(all_are(back, SECTOR, 'h'));
    CU_ASSERT_EQUAL(scsi_on(snapshot, "93 1 0 0 0 0 0 0 0 0 0 0 0 1 0 0", NULL, 0),
                    TCMU_STS_PASSTHROUGH_ERR);
    check_sense(0x07, 0x2700);
    CU_ASSERT_EQUAL(runner_reconfig(snapshot, &cache), 0);
    cache.data.write_cache = true;
    CU_ASSERT_EQUAL(runner_reconfig(snapshot, &cache), -EROFS);
    size.data.dev_size = 2 * SIZE;
    CU_ASSERT_EQUAL(runner_reconfig(snapshot, &size), -EINVAL);
    runner_close(snapshot);
    CU_ASSERT_EQUAL(stand_shell("./parallax snap create s/v@two --json | grep -q '\"seq\":' && "
                                "./parallax -q snap unlabel s/v@two"),
                    0);
    ask(0, NULL, "{\"command\": \"unlabel\", \"vdi\": \"v\", \"label\": \"one\"}");
    open_lun("parallax/s/v@one", SIZE, SECTOR, "one");
}

/* Other contents, under a live LUN: the next command is told, once. */
static void test_rewind(void)
{
    static char data[SECTOR], back[SECTOR];
    uint8_t inquiry[64];
    char request[96];
    json_int_t seq;

    memset(data, 'r', sizeof data);
    CU_ASSERT_EQUAL(write_on(device, 0x6000, data, sizeof data, 0), TCMU_STS_OK);
    seq = ask(0, "seq", "{\"command\": \"snapshot\", \"vdi\": \"v\"}");
    memset(data, 's', sizeof data);
    CU_ASSERT_EQUAL(write_on(device, 0x6000, data, sizeof data, 0), TCMU_STS_OK);
    ask(PLX_ERR_INVALID, NULL, "{\"command\": \"rewind\", \"vdi\": \"v\"}");
    ask(PLX_ERR_NOT_FOUND, NULL, "{\"command\": \"rewind\", \"vdi\": \"v\", \"seq\": 100000}");
    CU_ASSERT_EQUAL(read_at(0x6000, back, SECTOR), TCMU_STS_OK);
    CU_ASSERT_TRUE(all_are(back, SECTOR, 's'));
    snprintf(request, sizeof request, "{\"command\": \"rewind\", \"vdi\": \"v\", \"seq\": %lld}",
             (long long)seq);
    CU_ASSERT_TRUE(ask(0, "seq", request) > seq);
    CU_ASSERT_EQUAL(scsi("12 1 b0 0 40 0", inquiry, sizeof inquiry), TCMU_STS_OK);
    CU_ASSERT_EQUAL(scsi("0 0 0 0 0 0", NULL, 0), TCMU_STS_PASSTHROUGH_ERR);
    check_sense(0x06, 0x2800);
    CU_ASSERT_EQUAL(read_at(0x6000, back, SECTOR), TCMU_STS_OK);
    CU_ASSERT_TRUE(all_are(back, SECTOR, 'r'));
}

/* By the command, of a disk that is open here. */
/* A collection. One that the handler has begun by itself is waited for. */
static int collect(void)
{
    return stand_shell("i=0; until ./parallax -q gc s; do i=$((i + 1)); test $i -lt 150 || exit 1; "
                       "sleep 0.2; done");
}

static void test_defrag(void)
{
    static char data[BLOCK], back[BLOCK];
    const unsigned first = 256, blocks = 32;

    for (unsigned b = first + blocks; b-- > first;) {
        memset(data, (int)(b - first + 1), sizeof data);
        CU_ASSERT_EQUAL(write_on(device, b * (BLOCK / SECTOR), data, sizeof data, 0), TCMU_STS_OK);
    }
    CU_ASSERT_EQUAL(ask(0, "moved",
                        "{\"command\": \"move\", \"vdi\": \"v\", \"offset\": 1048576, "
                        "\"length\": 1048576, \"windows\": 1, \"blocks\": 0, \"dry_run\": true}"),
                    blocks);
    /* What does not say whether it is meant is not done (MESSAGES-1). */
    ask(PLX_ERR_INVALID, NULL,
        "{\"command\": \"move\", \"vdi\": \"v\", \"offset\": 1048576, "
        "\"length\": 1048576, \"windows\": 1, \"blocks\": 32, \"dryrun\": true}");
    ask(PLX_ERR_INVALID, NULL, "{\"command\": \"collect\", \"memory\": 0, \"rate\": 0}");
    ask(PLX_ERR_INVALID, NULL, "{\"command\": \"dedup\"}");
    CU_ASSERT_EQUAL(ask(0, "upto",
                        "{\"command\": \"move\", \"vdi\": \"v\", \"offset\": 1048577, "
                        "\"length\": 1048576, \"windows\": 1, \"blocks\": 32, \"dry_run\": false}"),
                    1048577); /* with why */
    ask(PLX_ERR_INVALID, NULL, "{\"command\": \"move\"}");
    /* Blocks are moved only where there is room: what the tests before have left goes first. */
    CU_ASSERT_EQUAL(collect(), 0);
    CU_ASSERT_EQUAL(
        stand_shell("./parallax -q defrag s/v --json | grep -q '\"moved_bytes\": 131072' "
                    "&& ./parallax defrag s/v --dry-run --json | "
                    "grep -q '\"moved_bytes\": 0'"),
        0);
    for (unsigned b = first; b < first + blocks; b++) {
        CU_ASSERT_EQUAL(read_at(b * (BLOCK / SECTOR), back, sizeof back), TCMU_STS_OK);
        CU_ASSERT_TRUE(all_are(back, sizeof back, (char)(b - first + 1)));
    }
}

/* By the command, of a disk that is open here; a collection and this keep each other out. */
static void test_dedup(void)
{
    static char data[BLOCK], back[BLOCK];
    const unsigned first = 12u << 8, blocks = 32;

    memset(data, 'q', sizeof data);
    for (unsigned b = first; b < first + blocks; b++)
        CU_ASSERT_EQUAL(write_on(device, b * (BLOCK / SECTOR), data, sizeof data, 0), TCMU_STS_OK);
    CU_ASSERT_EQUAL(collect(), 0); /* none begins by itself soon */
    CU_ASSERT_EQUAL(stand_shell("./parallax -q dedup s --dry-run"), 0);
    CU_ASSERT_EQUAL(
        stand_shell("{ (sleep 0.5; ./parallax gc s; echo $? >gc.status) & "
                    "timeout --foreground -s INT 1.5 ./parallax dedup s --rate 4k 2>dedup.err; "
                    "sleep 0.3; grep -q 'stays so' dedup.err && "
                    "test $(cat gc.status) = 4 && rm gc.status dedup.err; }"),
        0);
    CU_ASSERT_EQUAL(stand_shell("./parallax dedup s --json >dedup.out && "
                                "grep -q '\"disks\": 1' dedup.out && "
                                "! grep -q '\"saved_bytes\": 0' dedup.out && "
                                "./parallax dedup s --json >dedup.out && "
                                "grep -q '\"saved_bytes\": 0' dedup.out && rm dedup.out"),
                    0);
    memset(back, 'r', sizeof back);
    CU_ASSERT_EQUAL(write_on(device, first * (BLOCK / SECTOR), back, sizeof back, 0), TCMU_STS_OK);
    CU_ASSERT_EQUAL(collect(), 0);
    for (unsigned b = first; b < first + blocks; b++) {
        CU_ASSERT_EQUAL(read_at(b * (BLOCK / SECTOR), back, sizeof back), TCMU_STS_OK);
        CU_ASSERT_TRUE(all_are(back, sizeof back, b == first ? 'r' : 'q'));
    }
}

/* ---- Many commands at once ------------------------------------------------------------------ */

#define CROWD 300u

struct crowd {
    struct runner_command commands[CROWD];
    _Atomic unsigned done, refused, failed;
};

static void count_done(struct runner_command *command)
{
    struct crowd *crowd = command->owner;

    crowd->refused += command->status == TCMU_STS_NO_RESOURCE;
    crowd->failed += command->status != TCMU_STS_NO_RESOURCE && command->status != TCMU_STS_OK;
    crowd->done++;
}

/* A block of each from the first on, or (step 0) all of the same. */
static void submit_crowd(struct tcmu_device *on, struct crowd *crowd, void *data, unsigned step)
{
    for (unsigned i = 0; i < CROWD; i++) {
        struct runner_command *command = &crowd->commands[i];

        command->iov[0] = (struct iovec){data, BLOCK};
        command->iovcnt = 1;
        command->done = count_done;
        command->owner = crowd;
        runner_read_write(command, true, (uint64_t)i * step * (BLOCK / SECTOR), BLOCK / SECTOR, 0);
        runner_submit(on, command);
    }
}

static void await_crowd(struct crowd *crowd)
{
    while (crowd->done < CROWD)
        usleep(1000);
    CU_ASSERT_EQUAL(crowd->failed, 0);
}

static json_int_t automatic(void)
{
    return ask(0, "snapshots_automatic", "{\"command\": \"stats\", \"vdi\": \"v\"}");
}

/* The loop's own thread takes what is due, and nothing while nothing changes. */
static void test_protection(void)
{
    static char data[SECTOR] = "protected";
    json_int_t count;

    ask(PLX_ERR_INVALID, NULL, "{\"command\": \"protect\", \"vdi\": \"v\"}");
    ask(PLX_ERR_INVALID, NULL,
        "{\"command\": \"protect\", \"vdi\": \"v\", \"mode\": \"1us\", \"retention\": \"\"}");
    ask(0, NULL,
        "{\"command\": \"protect\", \"vdi\": \"v\", \"mode\": \"20ms\", "
        "\"retention\": \"all:1h\"}");
    count = automatic();
    CU_ASSERT_EQUAL(write_on(device, 0, data, SECTOR, 0), TCMU_STS_OK);
    CU_ASSERT_EQUAL(write_on(device, 0, data, SECTOR, 0), TCMU_STS_OK);
    usleep(500000);
    CU_ASSERT(automatic() > count && automatic() <= count + 2);
    count = automatic();
    usleep(200000);
    CU_ASSERT_EQUAL(automatic(), count);
    CU_ASSERT_EQUAL(stand_shell("./parallax cdp status s/v --json | grep -q 'every 20ms'"), 0);
    CU_ASSERT_EQUAL(stand_shell("./parallax -q cdp on s/v --every-write && "
                                "./parallax vdi info s/v | grep -q 'every write'"),
                    0);
    count = automatic();
    for (unsigned i = 0; i < 10; i++)
        CU_ASSERT_EQUAL(write_on(device, i, data, SECTOR, 0), TCMU_STS_OK);
    CU_ASSERT_EQUAL(automatic(), count + 10);
    CU_ASSERT_EQUAL(stand_shell("./parallax -q cdp off s/v"), 0);
}

/* Those for which the device was too slow are told of, and counted where an operator looks. */
static void test_left_out(void)
{
    static struct crowd crowd;
    static char data[BLOCK] = "busy";
    json_int_t skipped;
    FILE *log;

    CU_ASSERT_EQUAL(stand_shell("./parallax -q cdp on s/v --every 1ms --keep all:1h"), 0);
    log = lun_listen();
    flush_us = 20000;
    submit_crowd(device, &crowd, data, 1);
    await_crowd(&crowd);
    flush_us = 0;
    HEARD(log, "automatic snapshots were left out");
    CU_ASSERT_EQUAL(stand_shell("./parallax -q cdp off s/v"), 0);
    skipped = ask(0, "snapshots_skipped", "{\"command\": \"stats\", \"vdi\": \"v\"}");
    CU_ASSERT(skipped > 0);
    CU_ASSERT_EQUAL(stand_shell("./parallax cdp status s/v --json >%s/status && "
                                "grep -q '\"snapshots_skipped\": %lld,*$' %s/status",
                                stand_folder, (long long)skipped, stand_folder),
                    0);
    CU_ASSERT_EQUAL(
        stand_shell("./parallax cdp status s/v | grep -q 'Left out: *%lld$'", (long long)skipped),
        0);
}

/* A snapshot, with something in it, behind a key frame. */
static void take_one(void)
{
    static char data[SECTOR] = "history";

    data[SECTOR - 1]++;
    CU_ASSERT_EQUAL(write_on(device, 0x7800, data, SECTOR, 0), TCMU_STS_OK);
    ask(0, NULL, "{\"command\": \"snapshot\", \"vdi\": \"v\"}");
    ask(0, NULL, "{\"command\": \"keyframe\", \"vdi\": \"v\"}");
}

/* Of the snapshots up to the one named, how many could go; a slice at a time. */
static json_int_t count_upto(json_int_t seq)
{
    json_int_t count = 0, after = -1, upto = 0;
    char request[256];

    while (upto > after && upto < seq) {
        after = upto;
        snprintf(request, sizeof request,
                 "{\"command\": \"thin\", \"vdi\": \"v\", \"after\": %lld, \"upto\": %lld, "
                 "\"before_ns\": 0, \"every_ns\": 0, \"rewinds_only\": false, \"marks\": [], "
                 "\"dry_run\": true}",
                 (long long)after, (long long)seq);
        count += ask(0, "snapshots", request);
        upto = ask(0, "upto", request);
    }
    return count;
}

/* By the command, of a disk that is open here. */
static void test_delete(void)
{
    take_one();
    take_one();
    ask(0, "seq", "{\"command\": \"snapshot\", \"vdi\": \"v\", \"label\": \"gone\"}");
    take_one();
    CU_ASSERT_NOT_EQUAL(stand_shell("./parallax snap delete s/v@.. 2>/dev/null"), 0);
    ask(PLX_ERR_INVALID, NULL, "{\"command\": \"thin\", \"vdi\": \"v\", \"upto\": 2}");
    CU_ASSERT_EQUAL(stand_shell("./parallax -q snap delete s/v@..gone --dry-run >/dev/null && "
                                "./parallax -q snap delete s/v@..gone && "
                                "./parallax snap list s/v --json | grep -c seq | grep -qx 1"),
                    0);
    open_lun("parallax/s/v@gone", SIZE, SECTOR, "gone");
}

/* The service lets go of what the policy does not keep, but for a label and what is read. */
static void test_retention(void)
{
    struct tcmu_device *snapshot;
    json_int_t read, newest;
    char cfgstring[64];

    ask(PLX_ERR_INVALID, NULL, "{\"command\": \"thin\", \"vdi\": \"v\"}");
    take_one();
    read = ask(0, "seq", "{\"command\": \"snapshot\", \"vdi\": \"v\"}");
    snprintf(cfgstring, sizeof cfgstring, "parallax/s/v@%lld", (long long)read);
    snapshot = open_lun(cfgstring, SIZE, SECTOR, NULL);
    for (unsigned i = 0; i < 5; i++)
        take_one();
    newest = ask(0, "seq", "{\"command\": \"snapshot\", \"vdi\": \"v\", \"label\": \"last\"}");
    CU_ASSERT(count_upto(newest - 1) >= 5);
    /* Nothing goes while protection is off. */
    ask(0, NULL,
        "{\"command\": \"protect\", \"vdi\": \"v\", \"mode\": \"off\", "
        "\"retention\": \"all:1s\"}");
    sleep(7);
    CU_ASSERT(count_upto(newest - 1) >= 5);
    runner_close(snapshot);
    ask(0, NULL,
        "{\"command\": \"protect\", \"vdi\": \"v\", \"mode\": \"1d\", "
        "\"retention\": \"all:1s\"}");
    take_one();
    for (unsigned i = 0; i < 600 && count_upto(newest - 1) > 0; i++)
        usleep(100000);
    CU_ASSERT_EQUAL(count_upto(newest - 1), 0);
    open_lun("parallax/s/v@1", SIZE, SECTOR, "1");
    CU_ASSERT(stand_shell("./parallax -q cdp apply s/v") == 0);
    runner_close(open_lun("parallax/s/v@last", SIZE, SECTOR, NULL));
    CU_ASSERT_EQUAL(stand_shell("./parallax -q cdp off s/v"), 0);
}

#define FULL_SIZE (64u << 20)

/* Whether snapshots had to go for space by now. */
static bool is_shortened(const char *disk)
{
    return stand_shell("./parallax cdp status %s --json | grep -q '\"shortened\": \"'", disk) == 0;
}

/* The store fills up with history: the oldest of it gives way, and writes go on. */
static void test_full(void)
{
    static char data[1 << 20];
    struct tcmu_device *full;
    int status = TCMU_STS_OK;

    CU_ASSERT_EQUAL_FATAL(stand_shell("./parallax -q vdi create s/full --size %u", FULL_SIZE), 0);
    full = open_lun("parallax/s/full", FULL_SIZE, SECTOR, NULL);
    ask(0, NULL,
        "{\"command\": \"protect\", \"vdi\": \"full\", \"mode\": \"10ms\", "
        "\"retention\": \"all:1h\"}");
    for (unsigned i = 0; i < 1000 && status == TCMU_STS_OK && (i % 16 || !is_shortened("s/full"));
         i++) {
        memset(data, (int)i, sizeof data);
        status = write_on(full, i % 64 * (sizeof data / SECTOR), data, sizeof data, 0);
    }
    CU_ASSERT_EQUAL(status, TCMU_STS_OK);
    for (unsigned i = 0; i < 300 && !is_shortened("s/full"); i++)
        usleep(100000);
    CU_ASSERT(is_shortened("s/full"));
    for (unsigned i = 0; i < 8; i++)
        CU_ASSERT_EQUAL(write_on(full, i * (sizeof data / SECTOR), data, sizeof data, 0),
                        TCMU_STS_OK);
    CU_ASSERT_EQUAL(
        stand_shell("./parallax cdp status s/full | grep -q 'the store was nearly full'"), 0);
    CU_ASSERT_EQUAL(
        stand_shell("./parallax store info s --json | grep -q '\"recovery_bytes\": [1-9]'"), 0);
    runner_close(full);
    CU_ASSERT_EQUAL(stand_shell("./parallax -q vdi delete s/full --yes"), 0);
}

/* ---- Checksums that come back ---- */

/* By the option of the LUN, and told by the command: which share of the disk, and since when. */
static void test_quiet(void)
{
    static char data[BLOCK] = "quiet";
    struct tcmu_device *quiet;
    bool whole = false;

    CU_ASSERT_EQUAL_FATAL(stand_shell("./parallax -q vdi create s/quiet --size 4M"), 0);
    quiet = open_lun("parallax/s/quiet;quiet=3s", 4u << 20, SECTOR, NULL);
    for (unsigned i = 0; i < 2; i++) { /* the second one in place */
        CU_ASSERT_EQUAL(write_on(quiet, 0, data, BLOCK, 0), TCMU_STS_OK);
        ask(0, NULL, "{\"command\": \"keyframe\", \"vdi\": \"quiet\"}");
    }
    CU_ASSERT_EQUAL(stand_shell("./parallax vdi info s/quiet --json >%s/info && "
                                "grep -q '\"vouched_blocks\": 0' %s/info && "
                                "grep -q '\"vouched_since\": null' %s/info",
                                stand_folder, stand_folder, stand_folder),
                    0);
    for (unsigned i = 0; i < 300 && !whole; i++, usleep(100000))
        whole = stand_shell(
                    "./parallax vdi info s/quiet --json | grep -q '\"vouched_blocks\": 1'") == 0;
    CU_ASSERT(whole);
    CU_ASSERT_EQUAL(
        stand_shell("./parallax vdi info s/quiet --json | grep -q '\"vouched_since\": \"' && "
                    "./parallax vdi info s/quiet | grep -q 'With checksum: *100.0%%'"),
        0);
    CU_ASSERT_EQUAL(write_on(quiet, 0, data, BLOCK, 0), TCMU_STS_OK);
    ask(0, NULL, "{\"command\": \"keyframe\", \"vdi\": \"quiet\"}");
    CU_ASSERT_EQUAL(stand_shell("./parallax vdi info s/quiet | grep -q '0.0%% of its blocks; all "
                                "that was quiet by 20'"),
                    0);
    runner_close(quiet);
    CU_ASSERT_EQUAL(stand_shell("./parallax -q vdi delete s/quiet --yes"), 0);
}

/* ---- Changes of a live LUN ---- */

static void test_write_cache(void)
{
    struct tcmulib_cfg_info info = {.type = TCMULIB_CFG_WRITE_CACHE};
    uint8_t mode[255];
    static char data[SECTOR];

    info.data.write_cache = true;
    CU_ASSERT_EQUAL(runner_reconfig(device, &info), 0);
    CU_ASSERT_EQUAL(scsi("1a 0 8 0 ff 0", mode, 255), TCMU_STS_OK);
    CU_ASSERT_EQUAL(mode[6] & 0x04, 0x04);
    CU_ASSERT_EQUAL(write_on(device, 0, data, SECTOR, 0), TCMU_STS_OK);
    info.data.write_cache = false;
    CU_ASSERT_EQUAL(runner_reconfig(device, &info), 0);
    CU_ASSERT_EQUAL(scsi("1a 0 8 0 ff 0", mode, 255), TCMU_STS_OK);
    CU_ASSERT_EQUAL(mode[6] & 0x04, 0);
}

static void test_resize(void)
{
    struct tcmulib_cfg_info info = {.type = TCMULIB_CFG_DEV_SIZE};
    struct tcmulib_cfg_info other = {.type = TCMULIB_CFG_DEV_CFGSTR};
    static char data[SECTOR];

    info.data.dev_size = SIZE / 2;
    CU_ASSERT_EQUAL(runner_reconfig(device, &info), -EINVAL);
    info.data.dev_size = 2 * SIZE + 1;
    CU_ASSERT_EQUAL(runner_reconfig(device, &info), -EINVAL);
    other.data.dev_cfgstring = (char *)"parallax/s/other";
    CU_ASSERT_EQUAL(runner_reconfig(device, &other), -EOPNOTSUPP);
    other.data.dev_cfgstring = tcmu_dev_get_cfgstring(device); /* said again, as by a restore */
    CU_ASSERT_EQUAL(runner_reconfig(device, &other), 0);
    info.data.dev_size = 2 * SIZE;
    CU_ASSERT_EQUAL(runner_reconfig(device, &info), 0);
    CU_ASSERT_EQUAL(write_on(device, 2 * SIZE / SECTOR - 1, data, SECTOR, 0), TCMU_STS_OK);
    /* By the control socket; the kernel, were there one, would then call reconfig. */
    CU_ASSERT_EQUAL(
        ask(0, "size_bytes", "{\"command\": \"resize\", \"vdi\": \"v\", \"size_bytes\": 67108864}"),
        4 * SIZE);
    info.data.dev_size = 4 * SIZE;
    CU_ASSERT_EQUAL(runner_reconfig(device, &info), 0);
    CU_ASSERT_EQUAL(write_on(device, 4 * SIZE / SECTOR - 1, data, SECTOR, 0), TCMU_STS_OK);
}

/* ---- A volume that fails ---- */

static struct tcmu_device *open_store(const char *name, unsigned size)
{
    char cfgstring[64];

    CU_ASSERT_EQUAL_FATAL(
        stand_shell("./parallax -q store format %s --volume %s/%s --size %uM --extent-size 1M && "
                    "./parallax -q vdi create %s/v --size %u",
                    name, stand_folder, name, size, name, SIZE),
        0);
    snprintf(cfgstring, sizeof cfgstring, "parallax/%s/v", name);
    return open_lun(cfgstring, SIZE, SECTOR, NULL);
}

/* Writes to a file from this byte on fail; 0: none does. The handler has seen to it that the signal
 * that comes with that kills nobody (PLUGIN-5). */
static void fail_writes_from(rlim_t bytes)
{
    struct rlimit limit;

    CU_ASSERT_EQUAL_FATAL(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes ? bytes : limit.rlim_max;
    CU_ASSERT_EQUAL_FATAL(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void fill(struct tcmu_device *on, uint64_t lba, unsigned bytes, char value)
{
    static char data[MIB];

    memset(data, value, sizeof data);
    for (unsigned at = 0; at < bytes; at += sizeof data)
        CU_ASSERT_EQUAL_FATAL(write_on(on, lba + at / SECTOR, data, sizeof data, 0), TCMU_STS_OK);
}

/* Data cannot be written, the log can: only the commands concerned fail, and are told of. */
static void test_failing_data(void)
{
    static char data[65536];
    struct tcmu_device *failing = open_store("f", 64);
    FILE *log = lun_listen();

    fill(failing, 0, 8 * MIB, 'a');
    fail_writes_from(6 * MIB);
    memset(data, 'b', sizeof data);
    CU_ASSERT_EQUAL(write_on(failing, 7 * MIB / SECTOR, data, sizeof data, 0),
                    TCMU_STS_PASSTHROUGH_ERR);
    check_sense(0x07, 0x2707);
    CU_ASSERT_EQUAL(scsi_on(failing, "93 0 0 0 0 0 0 0 38 0 0 0 0 80 0 0", data, SECTOR),
                    TCMU_STS_PASSTHROUGH_ERR);
    check_sense(0x07, 0x2707);
    CU_ASSERT_EQUAL(unmap_on(failing, 7 * MIB / SECTOR + 1, 2), TCMU_STS_PASSTHROUGH_ERR);
    check_sense(0x07, 0x2707);
    CU_ASSERT_TRUE(holds(failing, 0, 'a'));
    fail_writes_from(0);
    HEARD(log,
          "error: f/v: request at 7340032, 65536 bytes: virtual disk v: a file below the "
          "store may not grow further",
          "error: f/v: request at 7340544, 1024 bytes: virtual disk v: a file below the "
          "store may not grow further");
    CU_ASSERT_EQUAL(unmap_on(failing, 7 * MIB / SECTOR, 128), TCMU_STS_OK);
    CU_ASSERT_TRUE(holds(failing, 7 * MIB / SECTOR, 0));
    CU_ASSERT_EQUAL(write_on(failing, 7 * MIB / SECTOR, data, sizeof data, 0), TCMU_STS_OK);
    runner_close(failing);
    CU_ASSERT_EQUAL(stand_shell("./parallax store check f --data >/dev/null"), 0);
}

/* What a handler that was killed had open is open in the next one as soon as that has the store:
 * LUNs find it there, commands are given it, and what nobody asks for is closed. */
static void test_killed(void)
{
    struct tcmu_device *first, *second;
    FILE *log;

    CU_ASSERT_EQUAL_FATAL(stand_shell("./parallax -q store format k --volume %s/k --size 512M && "
                                      "for n in 0 1 2 3; do ./parallax -q vdi create k/v$n "
                                      "--size 16M || exit 1; done",
                                      stand_folder),
                          0);
    CU_ASSERT_EQUAL_FATAL(
        stand_shell("build=$PWD; cd %1$s && mkfifo in && "
                    "{ $build/harness $build/handler_parallax.so "
                    "'parallax/k/v%%d' --size 16777216 --luns 4 --serve "
                    "--iodepth 4 --quiet <in >out & } && pid=$! && exec 3>in && "
                    "echo randwrite 4096 4 0.2 >&3 && "
                    "while [ ! -s out ]; do sleep 0.02; done; "
                    "kill -9 $pid; wait $pid; [ $? = 137 ] && rm %1$s/state/run/control/*.sock",
                    stand_folder),
        0);
    log = lun_listen();
    first = open_lun("parallax/k/v0", SIZE, SECTOR, NULL);
    HEARD(log, "v0: recovered", "v1: recovered", "v2: recovered", "v3: recovered");
    second = open_lun("parallax/k/v1;cache=on", SIZE, SECTOR, NULL);
    CU_ASSERT_EQUAL(stand_shell("./parallax -q vdi delete k/v2 --yes"), 0);
    for (int i = 0; i < 30 && stand_shell("./parallax vdi info k/v3 | grep -q 'in use'") == 0; i++)
        sleep(1);
    CU_ASSERT_NOT_EQUAL(stand_shell("./parallax vdi info k/v3 | grep 'in use'"), 0);
    runner_close(first);
    runner_close(second);
    CU_ASSERT_EQUAL(stand_shell("./parallax store check k --data >/dev/null"), 0);
}

/* A disk whose LUN has left while others are there is closed later: it can be opened again however
 * it is configured, and whoever wants it gets it at once. */
static void test_left(void)
{
    struct tcmu_device *stays = open_lun("parallax/k/v0", SIZE, SECTOR, NULL), *other;

    other = open_lun("parallax/k/v1;cache=on", SIZE, SECTOR, NULL);
    fill(other, 0, MIB, 'l');
    runner_close(other);
    other = open_lun("parallax/k/v1;quiet=1s", SIZE, SECTOR, NULL);
    CU_ASSERT_TRUE(holds(other, 0, 'l'));
    fill(other, 0, MIB, 'm');
    runner_close(other);
    CU_ASSERT_EQUAL(stand_shell("./parallax -q snap create k/v1 --label left"), 0);
    CU_ASSERT_NOT_EQUAL(stand_shell("./parallax vdi info k/v1 | grep 'in use'"), 0);
    other = open_lun("parallax/k/v1", SIZE, SECTOR, NULL);
    CU_ASSERT_TRUE(holds(other, 0, 'm'));
    runner_close(other);
    CU_ASSERT_EQUAL(stand_shell("./parallax -q vdi delete k/v1 --yes"), 0);
    runner_close(stays);
    CU_ASSERT_EQUAL(stand_shell("./parallax store check k --data >/dev/null"), 0);
}

/* The record in slot 0 of a store's first volume becomes that of another disk with this name. */
static void forge_name(const char *volume, const char *name)
{
    uint64_t at = PLX_VDI_TABLE_BLOCK * BLOCK;
    uint8_t blocks[2 * BLOCK];
    char path[PATH_MAX];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", stand_folder, volume);
    file = fopen(path, "r+e");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    CU_ASSERT(fseek(file, (long)at, SEEK_SET) == 0 && fread(blocks, sizeof blocks, 1, file) == 1);
    for (unsigned slot = 0; slot < 2; slot++) {
        struct plx_vdi_record record;
        struct plx_uuid store;

        memcpy(store.b, blocks + slot * BLOCK + 16, sizeof store.b);
        CU_ASSERT_EQUAL_FATAL(plx_format_vdi_record_decode(blocks + slot * BLOCK, &store, 0,
                                                           PLX_ADDR_MAX, &record, NULL),
                              0);
        record.id.b[3] ^= 1;
        snprintf(record.name, sizeof record.name, "%s", name);
        plx_format_vdi_record_encode(&store, &record, blocks + slot * BLOCK);
    }
    CU_ASSERT(fseek(file, (long)at, SEEK_SET) == 0 && fwrite(blocks, sizeof blocks, 1, file) == 1);
    CU_ASSERT_EQUAL(fclose(file), 0);
}

/* SAY-1: what a store of somebody who means harm says begins no line of the log. */
static void test_forged_name(void)
{
    FILE *log;

    CU_ASSERT_EQUAL_FATAL(stand_shell("./parallax -q store format q --volume %s/q --size 512M && "
                                      "./parallax -q vdi create q/v --size 16M",
                                      stand_folder),
                          0);
    forge_name("q", "a\nerror:\x1b[2Jb");
    log = lun_listen();
    open_lun("parallax/q/v", SIZE, SECTOR, "(a\\x0aerror:\\x1b[2Jb)");
    plx_say(info, NULL, "%s: recovered", "a\nerror:\x1b[2Jb"); /* as home.c tells of events */
    HEARD(log, "(a\\x0aerror:\\x1b[2Jb)", "info: a\\x0aerror:\\x1b[2Jb: recovered\n");
}

/* Nothing can be written: the disk stops and says so, and is whole when it is opened again. */
static void test_failing_log(void)
{
    static char data[65536];
    struct tcmu_device *failing = open_lun("parallax/f/v", SIZE, SECTOR, NULL);
    FILE *log = lun_listen();

    fill(failing, 0, MIB, 'c');
    fail_writes_from(MIB);
    memset(data, 'd', sizeof data);
    CU_ASSERT_EQUAL(write_on(failing, 12 * MIB / SECTOR, data, sizeof data, 0),
                    TCMU_STS_PASSTHROUGH_ERR);
    CU_ASSERT_EQUAL(unmap_on(failing, 0, 128), TCMU_STS_PASSTHROUGH_ERR);
    CU_ASSERT_EQUAL(write_on(failing, 0, data, sizeof data, 0), TCMU_STS_PASSTHROUGH_ERR);
    check_sense(0x04, 0x4400);
    CU_ASSERT_TRUE(holds(failing, 0, 'c'));
    ask(PLX_ERR_STICKY, NULL, "{\"command\": \"flush\", \"vdi\": \"v\"}");
    ask(PLX_ERR_STICKY, NULL, "{\"command\": \"snapshot\", \"vdi\": \"v\"}");
    runner_close(failing);
    fail_writes_from(0);
    HEARD(log,
          "f/v: request at 12582912, 65536 bytes: ", "closing f/v: ", "the next open recovers it");
    failing = open_lun("parallax/f/v", SIZE, SECTOR, NULL);
    CU_ASSERT_TRUE(holds(failing, 0, 'c') && holds(failing, 12 * MIB / SECTOR, 0));
    CU_ASSERT_EQUAL(write_on(failing, 12 * MIB / SECTOR, data, sizeof data, 0), TCMU_STS_OK);
    runner_close(failing);
    CU_ASSERT_EQUAL(stand_shell("./parallax store check f --data >/dev/null"), 0);
}

/* A volume that has lost its end: what is gone is an error, and nothing else suffers. */
static void test_failing_reads(void)
{
    struct tcmu_device *failing = open_lun("parallax/f/v", SIZE, SECTOR, NULL);
    static char back[65536];
    FILE *log;

    CU_ASSERT_EQUAL(stand_shell("cp %s/f %s/kept && truncate -s 1M %s/f", stand_folder,
                                stand_folder, stand_folder),
                    0);
    log = lun_listen();
    CU_ASSERT_EQUAL(scsi_on(failing, "88 0 0 0 0 0 0 0 38 0 0 0 0 80 0 0", back, sizeof back),
                    TCMU_STS_PASSTHROUGH_ERR);
    check_sense(0x03, 0x1100);
    CU_ASSERT_EQUAL(scsi_on(failing, "2f 0 0 0 38 0 0 0 80 0", NULL, 0), TCMU_STS_PASSTHROUGH_ERR);
    check_sense(0x03, 0x1100);
    CU_ASSERT_EQUAL(scsi_on(failing, "8b 0 0 0 0 0 0 0 38 0 0 0 0 80 0 0", back, sizeof back),
                    TCMU_STS_PASSTHROUGH_ERR);
    check_sense(0x03, 0x1100);
    HEARD(log, "f/v: request at 7340032, 65536 bytes: ");
    CU_ASSERT_EQUAL(stand_shell("dd if=%s/kept of=%s/f bs=1M conv=notrunc status=none",
                                stand_folder, stand_folder),
                    0);
    CU_ASSERT_EQUAL(scsi_on(failing, "88 0 0 0 0 0 0 0 38 0 0 0 0 80 0 0", back, sizeof back),
                    TCMU_STS_OK);
    CU_ASSERT_TRUE(all_are(back, sizeof back, 'b'));
    runner_close(failing);
    CU_ASSERT_EQUAL(stand_shell("./parallax store check f --data >/dev/null"), 0);
}

/* While there is room, thinning waits until it is worth what it costs: for megabytes of log. Of
 * large writes there is little, so space is low first. Then all goes that the policy lets go, and
 * no window is shortened. */
static void test_hasty(void)
{
    static char data[1 << 20];
    struct tcmu_device *hasty;
    int status = TCMU_STS_OK;

    CU_ASSERT_EQUAL_FATAL(
        stand_shell("./parallax -q store format h --volume %s/h --size 384M --extent-size 8M && "
                    "./parallax -q vdi create h/v --size %u && "
                    "./parallax -q cdp on h/v --every 10ms --keep all:1s,1s:1h",
                    stand_folder, SIZE),
        0);
    hasty = open_lun("parallax/h/v", SIZE, SECTOR, NULL);
    for (unsigned i = 0; i < 400 && status == TCMU_STS_OK; i++) {
        memset(data, (int)i, sizeof data);
        status = write_on(hasty, i % 4 * (sizeof data / SECTOR), data, sizeof data, 0);
        if (i % 20 == 19) /* what goes ends at one */
            ask(0, NULL, "{\"command\": \"keyframe\", \"vdi\": \"v\"}");
        usleep(15000); /* what stays, and what comes in a few seconds, finds room */
    }
    CU_ASSERT_EQUAL(status, TCMU_STS_OK);
    CU_ASSERT_FALSE(is_shortened("h/v"));
    runner_close(hasty);
}

/* Whoever writes hears of it, in SCSI's words; UNMAP still works, and makes room. */
static void test_full_store(void)
{
    struct tcmu_device *full = open_store("n", 12);
    static char data[65536];
    int status = TCMU_STS_OK;
    uint64_t lba = 0;

    memset(data, 'n', sizeof data);
    for (; status == TCMU_STS_OK && lba < SIZE / SECTOR; lba += sizeof data / SECTOR)
        status = write_on(full, lba, data, sizeof data, 0);
    CU_ASSERT_EQUAL(status, TCMU_STS_PASSTHROUGH_ERR);
    check_sense(0x07, 0x2707);
    CU_ASSERT_EQUAL(unmap_on(full, 0, 4 * MIB / SECTOR), TCMU_STS_OK);
    ask(0, NULL, "{\"command\": \"keyframe\", \"vdi\": \"v\"}");
    CU_ASSERT_EQUAL(write_on(full, 0, data, sizeof data, 0), TCMU_STS_OK);
    CU_ASSERT_TRUE(holds(full, 0, 'n'));
    runner_close(full);
}

/* Writes until there is no room; returns where the first one failed. */
static uint64_t fill_up(struct tcmu_device *on, uint64_t lba, char content)
{
    static char data[65536];
    uint64_t sectors = sizeof data / SECTOR;

    memset(data, content, sizeof data);
    while (lba < SIZE / SECTOR && write_on(on, lba, data, sizeof data, 0) == TCMU_STS_OK)
        lba += sectors;
    CU_ASSERT_FATAL(lba < SIZE / SECTOR);
    check_sense(0x07, 0x2707);
    return lba;
}

/* A handler that is told of new space writes on at once. */
static void grown_by(const char *words, const char *told)
{
    CU_ASSERT_EQUAL(stand_shell("./parallax store %s --json | grep -q '\"told\": %s'", words, told),
                    0);
}

/* Disks go on where they were refused, without being opened again: after a further volume, after
 * one that is not the last became larger, and also when the handler could not be told. */
static void test_growing_store(void)
{
    struct tcmu_device *full = open_store("o", 8);
    static char data[65536];
    uint64_t first = fill_up(full, 0, 'o'), second, third;
    char words[128];

    CU_ASSERT_EQUAL(watchers(), 1);
    snprintf(words, sizeof words, "add-volume o %s/o2 --size 4M", stand_folder);
    threads_left = 0; /* nobody waits for that one, and yet it is used */
    grown_by(words, "1");
    second = fill_up(full, first, 'p');
    CU_ASSERT_TRUE(second > first);
    CU_ASSERT_EQUAL(watchers(), 1);
    threads_left = -1;
    for (int tries = 0; tries < 50 && watchers() < 2; tries++, usleep(100000))
        CU_ASSERT_TRUE(holds(full, first, 'p'));
    CU_ASSERT_EQUAL(watchers(), 2);
    CU_ASSERT_EQUAL(stand_shell("truncate -s 10M %s/o", stand_folder), 0);
    grown_by("grow o", "1");
    third = fill_up(full, second, 'q');
    CU_ASSERT_TRUE(third > second);
    CU_ASSERT_EQUAL(stand_shell("truncate -s 13M %s/o; mv %s/state/run/control %s/control",
                                stand_folder, stand_folder, stand_folder),
                    0);
    grown_by("grow o", "0");
    CU_ASSERT_EQUAL(stand_shell("mv %s/control %s/state/run/", stand_folder, stand_folder), 0);
    memset(data, 'r', sizeof data);
    for (int tries = 0; tries < 50; tries++, usleep(100000)) /* it asks once a second */
        if (write_on(full, third, data, sizeof data, 0) == TCMU_STS_OK)
            break;
    CU_ASSERT_TRUE(holds(full, third, 'r'));
    CU_ASSERT_TRUE(holds(full, 0, 'o') && holds(full, first, 'p') && holds(full, second, 'q'));
    runner_close(full);
    CU_ASSERT_EQUAL(stand_shell("./parallax store check o --data >/dev/null"), 0);
    full = open_lun("parallax/o/v", SIZE, SECTOR, NULL);
    CU_ASSERT_TRUE(holds(full, third, 'r'));
    runner_close(full);
}

/* ---- A write-back ring ---- */

static json_int_t stat_of(const char *name)
{
    return ask(0, name, "{\"command\": \"stats\", \"vdi\": \"v\"}");
}

static json_int_t ring_status(const char *name)
{
    return ask(0, name, "{\"command\": \"ring-status\", \"vdi\": \"v\"}");
}

static void use_ring(const char *word)
{
    char request[80];

    snprintf(request, sizeof request, "{\"command\": \"ring\", \"vdi\": \"v\", \"use\": \"%s\"}",
             word);
    ask(0, NULL, request);
}

/* A store of so many MiB, and a disk whose ring is on. */
static struct tcmu_device *open_with_ring(const char *name, unsigned size)
{
    char cfgstring[64], path[PATH_MAX];
    struct tcmu_device *opened;
    struct stat stat_of_ring;

    CU_ASSERT_EQUAL_FATAL(
        stand_shell("./parallax -q store format %s --volume %s/%s --size %uM --extent-size 1M && "
                    "./parallax -q vdi create %s/v --size %u && "
                    "./parallax -q ring create %s %s/%s.ring --size 256M && "
                    "./parallax -q vdi set %s/v --ring on",
                    name, stand_folder, name, size, name, SIZE, name, stand_folder, name, name),
        0);
    snprintf(cfgstring, sizeof cfgstring, "parallax/%s/v", name);
    snprintf(path, sizeof path, "%s/%s.ring", stand_folder, name);
    CU_ASSERT_EQUAL(stat(path, &stat_of_ring), 0);
    quick_inode = stat_of_ring.st_ino;
    opened = open_lun(cfgstring, SIZE, SECTOR, NULL);
    for (int tries = 0; tries < 100 && ring_status("on") != 1; tries++)
        usleep(50000);
    CU_ASSERT_EQUAL(ring_status("on"), 1);
    return opened;
}

/* Until the store has everything. */
static void await_drained(void)
{
    for (int tries = 0; tries < 100 && stat_of("ring_records"); tries++)
        usleep(50000);
    CU_ASSERT_EQUAL(stat_of("ring_records"), 0);
    CU_ASSERT_EQUAL(stat_of("ring_bytes"), 0);
    CU_ASSERT_EQUAL(stat_of("ring_oldest_waits_ns"), 0);
}

static json_int_t member_of(json_t *stats, const char *name)
{
    return json_integer_value(json_object_get(stats, name));
}

/* Whether the counters, looked at while some of what was written waits on the ring, say so. */
static bool is_counted(struct tcmu_device *ringed, void *data, unsigned bytes)
{
    bool waits = false;

    for (int tries = 0; tries < 100 && !waits; tries++) {
        char path[PATH_MAX];
        json_t *stats;

        CU_ASSERT_EQUAL(write_on(ringed, 0, data, bytes, 0), TCMU_STS_OK);
        CU_ASSERT_EQUAL(stand_shell("./parallax vdi stats r/v --json >%s/stats", stand_folder), 0);
        snprintf(path, sizeof path, "%s/stats", stand_folder);
        stats = json_load_file(path, 0, NULL);
        CU_ASSERT_PTR_NOT_NULL_FATAL(stats);
        waits = member_of(stats, "ring_records") > 0;
        CU_ASSERT_EQUAL(member_of(stats, "ring_bytes"), bytes * member_of(stats, "ring_records"));
        CU_ASSERT(member_of(stats, "ring_memory") >= member_of(stats, "ring_bytes"));
        CU_ASSERT_EQUAL(member_of(stats, "ring_oldest_waits_ns") > 0, waits);
        CU_ASSERT(member_of(stats, "ring_oldest_waits_ns") < 30000000000);
        CU_ASSERT_EQUAL(member_of(stats, "ring_full"), 0);
        json_decref(stats);
    }
    return waits;
}

/* What lies on the ring alone is counted, and read. What was drained is not counted any more. */
static void test_ring(void)
{
    struct tcmu_device *ringed = open_with_ring("r", 64);
    static char data[65536];

    ask(PLX_ERR_INVALID, NULL, "{\"command\": \"ring\", \"vdi\": \"v\", \"use\": \"often\"}");
    ask(PLX_ERR_INVALID, NULL, "{\"command\": \"ring\", \"vdi\": \"v\"}");
    flush_us = 300000;
    memset(data, 'r', sizeof data);
    for (unsigned i = 0; i < 32; i++)
        CU_ASSERT_EQUAL(write_on(ringed, i * (sizeof data / SECTOR), data, sizeof data, 0),
                        TCMU_STS_OK);
    CU_ASSERT(is_counted(ringed, data, sizeof data));
    CU_ASSERT_TRUE(holds(ringed, 0, 'r') && holds(ringed, 31 * (sizeof data / SECTOR), 'r'));
    flush_us = 0;
    await_drained();
    /* Not all of them: where no extent has come in time, the disk itself takes a write. */
    CU_ASSERT(stat_of("ring_drained_bytes") >= (json_int_t)sizeof data);
    flush_us = 300000;
    memset(data, 's', sizeof data);
    CU_ASSERT_EQUAL(write_on(ringed, 0, data, sizeof data, 0), TCMU_STS_OK);
    use_ring("auto");
    CU_ASSERT_EQUAL(ring_status("automatic"), 1);
    use_ring("off");
    CU_ASSERT_EQUAL(ring_status("automatic"), 0);
    flush_us = 0;
    await_drained();
    CU_ASSERT_TRUE(holds(ringed, 0, 's'));
    use_ring("on");
    CU_ASSERT_EQUAL(write_on(ringed, 0, data, sizeof data, 0), TCMU_STS_OK);
    runner_close(ringed);
    CU_ASSERT_EQUAL(stand_shell("./parallax vdi info r/v | grep -q '^Ring:  *on' && "
                                "./parallax store check r --data >/dev/null"),
                    0);
}

/* With a ring, too, whoever writes hears that the store is full, in SCSI's words, and goes on when
 * it is larger. What the ring has is not lost. */
static void test_ring_on_full_store(void)
{
    struct tcmu_device *full = open_with_ring("u", 12);
    static char data[65536];
    uint64_t end = fill_up(full, 0, 'u');

    CU_ASSERT(end > 0);
    CU_ASSERT_EQUAL(ring_status("on"), 1);
    CU_ASSERT_TRUE(holds(full, 0, 'u'));
    CU_ASSERT_EQUAL(unmap_on(full, 4 * MIB / SECTOR, MIB / SECTOR), TCMU_STS_OK);
    memset(data, 'p', sizeof data);
    CU_ASSERT_EQUAL(write_on(full, end, data, sizeof data, 0), TCMU_STS_OK);
    CU_ASSERT_TRUE(holds(full, end, 'p') && holds(full, 0, 'u') &&
                   holds(full, 4 * MIB / SECTOR, 0));
    CU_ASSERT_EQUAL(stand_shell("truncate -s 48M %s/u", stand_folder), 0);
    grown_by("grow u", "1");
    CU_ASSERT_EQUAL(write_on(full, end, data, sizeof data, 0), TCMU_STS_OK);
    await_drained();
    runner_close(full);
    CU_ASSERT_EQUAL(stand_shell("./parallax -q vdi set u/v --ring off && "
                                "./parallax store check u --data >/dev/null"),
                    0);
}

/* More commands than a LUN has room for, all for one block, which takes one at a time. */
static void test_task_set_full(void)
{
    struct tcmu_device *busy = open_lun("parallax/n/v", SIZE, SECTOR, NULL);
    static struct crowd crowd;
    static char data[BLOCK];
    int flushed;

    memset(data, 'n', sizeof data);
    submit_crowd(busy, &crowd, data, 0);
    flushed = scsi_on(busy, "35 0 0 0 0 0 0 0 0 0", NULL, 0);
    CU_ASSERT(flushed == TCMU_STS_NO_RESOURCE || flushed == TCMU_STS_OK);
    await_crowd(&crowd);
    CU_ASSERT(crowd.refused > 0);
    CU_ASSERT_EQUAL(write_on(busy, 0, data, sizeof data, 0), TCMU_STS_OK); /* comes again */
    runner_close(busy);
}

/* Two stores at once, one of which cannot be opened for a while. */
static void test_missing_volume(void)
{
    struct tcmu_device *other = open_lun("parallax/n/v", SIZE, SECTOR, NULL), *back;

    CU_ASSERT_EQUAL(stand_shell("mv %s/f %s/away", stand_folder, stand_folder), 0);
    open_lun("parallax/f/v", SIZE, SECTOR, "No such file");
    CU_ASSERT_EQUAL(stand_shell("mv %s/away %s/f", stand_folder, stand_folder), 0);
    back = open_lun("parallax/f/v", SIZE, SECTOR, NULL);
    CU_ASSERT_TRUE(holds(other, 0, 'n') && holds(back, 0, 'c'));
    runner_close(other);
    CU_ASSERT_TRUE(holds(back, 0, 'c'));
    runner_close(back);
}

/* Whichever of its threads cannot be made, a store says so, and opens when it can. */
static void test_no_threads(void)
{
    struct tcmu_device *opened = NULL;
    int enough = 0;

    for (; !opened && enough < 20; enough++) {
        char reason[600] = "";
        int error = 0;

        threads_left = enough;
        opened =
            runner_open(stand_handler, "parallax/n/v", SIZE, SECTOR, &error, reason, sizeof reason);
        threads_left = -1;
        CU_ASSERT_TRUE(opened || (error < 0 && strstr(reason, strerror(EAGAIN))));
        CU_ASSERT_EQUAL(watchers(), opened ? 1 : 0);
    }
    CU_ASSERT_PTR_NOT_NULL_FATAL(opened);
    CU_ASSERT_TRUE(enough > 5 && holds(opened, 0, 'n'));
    runner_close(opened);
    CU_ASSERT_EQUAL(watchers(), 0);
}

static void test_reopen(void)
{
    static char back[SECTOR];

    runner_close(device);
    device = open_lun("parallax/s/v;overwrite=copy;cache=on", 4 * SIZE, SECTOR, NULL);
    CU_ASSERT_EQUAL(read_at(0x7000, back, SECTOR), TCMU_STS_OK);
    CU_ASSERT_TRUE(all_are(back, SECTOR, 'h'));
    runner_close(device);
    device = NULL;
    CU_ASSERT_EQUAL(stand_shell("./parallax store check s >/dev/null"), 0);
}

/* What is large has pages of its own, also when something large was freed before (plugin.c). */
static void test_memory(void)
{
    void *volatile first, *volatile second; /* else there is none of it */
    size_t blocks;

    if (mallinfo2().arena == 0) /* a sanitizer's malloc() */
        return;
    first = malloc(4 * MIB);
    free(first);
    blocks = mallinfo2().hblks;
    second = malloc(MIB);
    CU_ASSERT_EQUAL(mallinfo2().hblks, blocks + 1);
    free(second);
}

static bool set_up(void)
{
    return stand_up() && stand_shell("./parallax -q store format s --volume %s/volume --size 256M "
                                     "--extent-size 4M && ./parallax -q vdi create s/v --size %u",
                                     stand_folder, SIZE) == 0;
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"memory", test_memory},
        {"what is refused, and why", test_refusals},
        {"read and write", test_read_write},
        {"UNMAP", test_unmap},
        {"WRITE SAME", test_write_same},
        {"COMPARE AND WRITE", test_compare_and_write},
        {"VERIFY, ORWRITE, PRE-FETCH", test_verify},
        {"INQUIRY, MODE SENSE, supported commands", test_answers},
        {"GET LBA STATUS", test_lba_status},
        {"control socket", test_control},
        {"snapshots", test_snapshot},
        {"continuous protection", test_protection},
        {"snapshots that are left out", test_left_out},
        {"deleting snapshots", test_delete},
        {"retention", test_retention},
        {"a store full of history", test_full},
        {"rewind", test_rewind},
        {"defrag", test_defrag},
        {"dedup", test_dedup},
        {"checksums that come back", test_quiet},
        {"write cache on and off", test_write_cache},
        {"resize", test_resize},
        {"closing, reopening, checking", test_reopen},
        {"what was open in one that was killed", test_killed},
        {"LUNs that leave others behind", test_left},
        {"a forged name", test_forged_name},
        {"data that cannot be written", test_failing_data},
        {"a log that cannot be written", test_failing_log},
        {"a volume that cannot be read", test_failing_reads},
        {"a store full of what may go", test_hasty},
        {"a full store", test_full_store},
        {"a full store that grows", test_growing_store},
        {"a ring", test_ring},
        {"a ring on a full store", test_ring_on_full_store},
        {"TASK SET FULL", test_task_set_full},
        {"a volume that is missing", test_missing_volume},
        {"too many threads", test_no_threads},
    };
    int failed;

    if (!set_up())
        return 1;
    failed = SUITE_RUN("plugin", tests);
    stand_down();
    return failed;
}
