/* test_gather.c - a deep queue of small writes becomes few transfers, a shallow one waits for
 * nobody, and everyone has a result of his own (gather.c).
 */
#include <string.h>

#include "engine/disk/vdi.h"
#include "ok.h"
#include "suite.h"
#include "unit/fixture.h"

#define DEEP 64u
#define PLACE(i) ((uint64_t)(i)*37 % 512 * BLOCK) /* no two neighbours */

struct queued {
    struct plx_request request;
    struct iovec iov;
    bool done;
};

static struct queued queued[DEEP];
static struct plx_vdi *vdi;

static void set_up(void)
{
    fixture.disk = (struct plx_simdisk_options){
        .block_size = 512, .volatile_cache = true, .patience = 90, .seed = 5};
    vdi = make_with_vdi(64 * MIB, 4 * MIB, 16 * MIB);
    OK(write_byte(vdi, 8 * MIB, BLOCK, 1)); /* has an extent from now on */
}

static void tear_down(void)
{
    OK(plx_vdi_close(vdi));
    check_store(true);
    end_store();
}

static void queued_done(struct plx_request *request)
{
    ((struct queued *)request->owner)->done = true;
}

/* Block i gets byte i + 1. Each is followed by a turn, as if each came by itself. */
static void submit(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        uint8_t *bytes = buffer + (size_t)i * BLOCK;

        memset(bytes, (int)i + 1, BLOCK);
        queued[i] = (struct queued){.iov = {bytes, BLOCK}};
        queued[i].request = (struct plx_request){
            .op = PLX_WRITE,
            .offset = PLACE(i),
            .length = BLOCK,
            .iov = &queued[i].iov,
            .iovcnt = 1,
            .done = queued_done,
            .owner = &queued[i],
        };
        plx_vdi_submit(vdi, &queued[i].request);
        plx_store_tick(store);
    }
}

static void wait_for_all(unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        plx_store_run_until_true(store, &queued[i].done);
}

static void test_few_transfers(void)
{
    struct plx_counters before, after;

    set_up();
    before = counters();
    submit(DEEP);
    wait_for_all(DEEP);
    after = counters();
    CU_ASSERT_EQUAL(after.blocks_new - before.blocks_new, DEEP);
    CU_ASSERT(after.device_writes[PLX_KIND_DATA] - before.device_writes[PLX_KIND_DATA] <= DEEP / 2);
    CU_ASSERT(after.device_writes[PLX_KIND_LOG] - before.device_writes[PLX_KIND_LOG] <= DEEP / 2);
    CU_ASSERT_EQUAL(after.device_write_bytes[PLX_KIND_DATA] -
                        before.device_write_bytes[PLX_KIND_DATA],
                    DEEP * BLOCK);
    for (unsigned i = 0; i < DEEP; i++) {
        OK(queued[i].request.result);
        CU_ASSERT(reads_as(vdi, PLACE(i), BLOCK, (int)i + 1));
    }
    tear_down();
}

static void test_shallow_queue_waits_for_nobody(void)
{
    struct plx_counters before, after;

    set_up();
    before = counters();
    submit(PLX_FEW_TRANSFERS);
    after = counters();
    CU_ASSERT_PTR_NULL(vdi->gather.head);
    CU_ASSERT_EQUAL(after.device_writes[PLX_KIND_DATA] - before.device_writes[PLX_KIND_DATA],
                    PLX_FEW_TRANSFERS);
    wait_for_all(PLX_FEW_TRANSFERS);
    tear_down();
}

/* GATHER-3: a place that cannot be written fails who was to lie there, and nobody who went with
 * him. */
static void test_bad_place_fails_one(void)
{
    for (unsigned bad = 0; bad < DEEP; bad++) { /* some go alone, some in company */
        unsigned failed = 0;

        set_up();
        plx_simdisk_fail_range(disk, (vdi->run.addr + bad) * BLOCK, BLOCK, false, true);
        submit(DEEP);
        wait_for_all(DEEP);
        plx_simdisk_heal(disk);
        for (unsigned i = 0; i < DEEP; i++) {
            int result = queued[i].request.result;

            failed += result == PLX_ERR_IO_WRITE;
            CU_ASSERT(result == 0 || result == PLX_ERR_IO_WRITE);
            CU_ASSERT(reads_as(vdi, PLACE(i), BLOCK, result ? 0 : (int)i + 1));
        }
        CU_ASSERT_EQUAL(failed, 1);
        tear_down();
    }
}

/* Writes that are all small pieces of memory: fewer of them fit into a transfer. */
static void test_small_pieces(void)
{
    const unsigned piece = 512, pieces = BLOCK / 512;
    static struct iovec iovs[DEEP][BLOCK / 512];
    struct plx_counters before, after;

    set_up();
    before = counters();
    for (unsigned i = 0; i < DEEP; i++) {
        uint8_t *bytes = buffer + (size_t)i * BLOCK;

        memset(bytes, (int)i + 1, BLOCK);
        for (unsigned p = 0; p < pieces; p++)
            iovs[i][p] = (struct iovec){bytes + (size_t)(pieces - 1 - p) * piece, piece};
        queued[i].done = false;
        queued[i].request = (struct plx_request){
            .op = PLX_WRITE,
            .offset = PLACE(i),
            .length = BLOCK,
            .iov = iovs[i],
            .iovcnt = (int)pieces,
            .done = queued_done,
            .owner = &queued[i],
        };
        plx_vdi_submit(vdi, &queued[i].request);
        plx_store_tick(store);
    }
    wait_for_all(DEEP);
    after = counters();
    CU_ASSERT(after.device_writes[PLX_KIND_DATA] - before.device_writes[PLX_KIND_DATA] >=
              DEEP * pieces / PLX_CARRIER_IOVS);
    CU_ASSERT(after.device_writes[PLX_KIND_DATA] - before.device_writes[PLX_KIND_DATA] <= DEEP / 2);
    for (unsigned i = 0; i < DEEP; i++) {
        OK(queued[i].request.result);
        CU_ASSERT(reads_as(vdi, PLACE(i), BLOCK, (int)i + 1));
    }
    tear_down();
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"a deep queue becomes few transfers", test_few_transfers},
        {"a shallow queue waits for nobody", test_shallow_queue_waits_for_nobody},
        {"a bad place fails one write", test_bad_place_fails_one},
        {"writes in small pieces", test_small_pieces},
    };

    return SUITE_RUN("gather", tests);
}
