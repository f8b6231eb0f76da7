/* test_posted.c - who makes the engine's turns (handler/tcmu/loop.c), seen below handler_parallax.so:
 * this program gets the handler's io_submit().
 */
#include <errno.h>
#include <libaio.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lun.h"
#include "suite.h"

#define WRITES 24u
#define READS 200u
#define LARGE (256u << 10)
#define SIZE (64u << 20)
#define BLOCK 4096u

static struct tcmu_device *device;
static atomic_uint done, failed;

/* ---- A device that is slow with large writes ---- */

/* Large writes that the device does not get before let_go(), and reads that the loop's own thread
 * makes meanwhile. */
static atomic_bool slow;
static atomic_uint held_count, loop_reads;
static struct iocb *held[WRITES];
static io_context_t held_context;

static bool is_held(const struct iocb *cb)
{
    bool large = cb->aio_lio_opcode == IO_CMD_PWRITE
                     ? cb->u.c.nbytes >= LARGE / 4
                     : cb->aio_lio_opcode == IO_CMD_PWRITEV && cb->u.v.vec->iov_len >= LARGE / 4;

    return slow && large && held_count < WRITES;
}

static void count_read(const struct iocb *cb)
{
    char name[16] = "";

    if (slow && (cb->aio_lio_opcode == IO_CMD_PREAD || cb->aio_lio_opcode == IO_CMD_PREADV) &&
        pthread_getname_np(pthread_self(), name, sizeof name) == 0)
        loop_reads += strcmp(name, "plx-loop") == 0;
}

static int submit(io_context_t context, long count, struct iocb **list)
{
    long taken = syscall(SYS_io_submit, context, count, list);

    return taken < 0 ? -errno : (int)taken;
}

/* With the loop's mutex held. */
__attribute__((visibility("default"))) int io_submit(io_context_t context, long count,
                                                     struct iocb **list)
{
    long at = 0;

    for (; at < count && !is_held(list[at]); at++)
        count_read(list[at]);
    if (at || !count)
        return submit(context, at, list);
    held_context = context;
    held[held_count] = list[0];
    held_count++;
    return 1;
}

static void let_go(void)
{
    slow = false;
    CU_ASSERT_EQUAL(submit(held_context, held_count, held), (int)held_count);
}

/* ---- Tests ---- */

static void count_done(struct runner_command *command)
{
    failed += command->status != TCMU_STS_OK;
    done++;
}

static void begin_writes(void *data)
{
    static struct runner_command commands[WRITES];

    for (unsigned i = 0; i < WRITES; i++) {
        commands[i] =
            (struct runner_command){.iov = {{data, LARGE}}, .iovcnt = 1, .done = count_done};
        runner_read_write(&commands[i], true, (i + 1) * (uint64_t)(LARGE / SECTOR), LARGE / SECTOR,
                          0);
        runner_submit(device, &commands[i]);
    }
    for (unsigned tries = 0; tries < 500 && held_count < WRITES; tries++)
        usleep(10000);
}

/* LOOP-7: who has one read at a time does not wait for completions that do not come, but once. */
static void test_reads_beside_slow_writes(void)
{
    static char data[LARGE], block[BLOCK];
    unsigned by_loop;

    memset(data, 'w', sizeof data);
    CU_ASSERT_EQUAL(write_on(device, 0, data, BLOCK, 0), TCMU_STS_OK);
    slow = true;
    begin_writes(data);
    CU_ASSERT(held_count >= 16); /* else nothing is left to others */
    for (unsigned i = 0; i < READS; i++) {
        struct runner_command command = {.iov = {{block, BLOCK}}, .iovcnt = 1};

        runner_read_write(&command, false, 0, BLOCK / SECTOR, 0);
        CU_ASSERT_EQUAL(runner_run(device, &command), TCMU_STS_OK);
    }
    CU_ASSERT(all_are(block, BLOCK, 'w'));
    by_loop = loop_reads;
    let_go();
    while (done < WRITES)
        usleep(1000);
    CU_ASSERT_EQUAL(failed, 0);
    CU_ASSERT(by_loop < READS / 2);
    printf("%u writes held, %u of %u reads made by the loop's own thread ", held_count, by_loop,
           READS);
}

static bool set_up(void)
{
    char reason[600] = "";
    int error = 0;

    if (!stand_up() || stand_shell("./parallax -q store format s --volume %s/s --size 256M && "
                                   "./parallax -q vdi create s/v --size %u",
                                   stand_folder, SIZE) != 0)
        return false;
    device =
        runner_open(stand_handler, "parallax/s/v", SIZE, SECTOR, &error, reason, sizeof reason);
    return device != NULL;
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"reads beside slow writes", test_reads_beside_slow_writes},
    };
    int failures;

    if (!set_up())
        return 1;
    failures = SUITE_RUN("loop", tests);
    runner_close(device);
    stand_down();
    return failures;
}
