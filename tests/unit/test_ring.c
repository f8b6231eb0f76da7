/* test_ring.c - the write-back ring's device part: made, opened, appended to, scanned, released,
 * full, read back. Not here yet: power cuts, members that fail, damage.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/ring/ring.h"
#include "ok.h"
#include "sim/simdisk.h"
#include "sim/simenv.h"
#include "suite.h"

#define BLOCK PLX_BLOCK_SIZE
#define SEGMENT_BLOCKS 16u
#define SEGMENTS 8u
#define SEGMENT_BYTES (SEGMENT_BLOCKS * (uint64_t)BLOCK)
#define RING_BYTES (PLX_RING_SEGMENTS_AT + SEGMENTS * SEGMENT_BYTES)
#define ITEMS 4096u

static const struct plx_uuid vdi_a = {"a virtual disk.."}, vdi_b = {"b virtual disk.."};
static struct plx_simpower power;
static struct plx_simdisk *disks[2];
static struct plx_device *devices[2];
static unsigned members; /* that are attached */
static struct plx_simenv env;
static struct plx_ring *ring;
static struct plx_fault fault;

/* What was appended: record i of a disk is a WRITE of block i with this byte, unless it says other.
 */
static struct plx_ring_item items[ITEMS];
static uint8_t contents[ITEMS][BLOCK];
static struct iovec iovs[ITEMS];
static unsigned used, done;
static uint64_t last_done;
static int last_error;

/* What was found. */
static struct plx_ring_found found[ITEMS];
static uint8_t found_byte[ITEMS];
static unsigned found_count;

static int take(void *context, const struct plx_ring_found *record)
{
    found_byte[found_count] = record->data ? *(const uint8_t *)record->data : 0;
    found[found_count++] = *record;
    return 0;
}

static void item_done(struct plx_ring_item *item)
{
    done++;
    last_error = item->error;
    if (!item->error) {
        CU_ASSERT(item->seq > last_done || item->owner);
        last_done = item->seq;
    }
}

static void attach(unsigned first, unsigned count)
{
    members = count;
    for (unsigned i = 0; i < count; i++)
        devices[i] = plx_simdisk_attach(disks[first + i], first + i ? "second" : "first");
}

static void detach(void)
{
    for (unsigned i = 0; i < members; i++)
        devices[i]->ops->close(devices[i]);
    members = 0;
}

static void make_disks(unsigned count)
{
    memset(&power, 0, sizeof power);
    plx_simenv_init(&env, 7);
    for (unsigned i = 0; i < count; i++)
        disks[i] = plx_simdisk_new(
            &(struct plx_simdisk_options){
                .bytes = RING_BYTES, .block_size = 512, .volatile_cache = true, .seed = i + 1},
            &power);
    attach(0, count);
    used = done = found_count = 0;
    last_done = 0;
    last_error = 0;
}

static int try_create(bool replace)
{
    return plx_ring_create(devices, members,
                           &(struct plx_ring_create_options){.env = &env.env,
                                                             .store = vdi_b,
                                                             .host = vdi_a,
                                                             .host_name = "alpha",
                                                             .segment_blocks = SEGMENT_BLOCKS,
                                                             .replace = replace},
                           &fault);
}

static int try_open(struct plx_ring_options options)
{
    options.env = &env.env;
    return plx_ring_open(devices, members, &options, &ring, &fault);
}

static void open_ring(void)
{
    OK(try_open((struct plx_ring_options){0}));
}

static void close_ring(void)
{
    plx_ring_close(ring);
    ring = NULL;
}

static void make_ring(unsigned count)
{
    make_disks(count);
    OK(try_create(false));
    open_ring();
}

static void end_ring(void)
{
    if (ring)
        close_ring();
    detach();
    while (power.count)
        plx_simdisk_free(power.disks[0]);
}

static uint64_t set_of_ring(void)
{
    struct plx_ring_info info;

    plx_ring_get_info(ring, &info);
    return info.super.set;
}

static struct plx_ring_chain_options options_for(struct plx_uuid vdi, uint64_t epoch,
                                                 uint64_t since, uint64_t at_epoch, uint64_t at_seq)
{
    found_count = 0;
    return (struct plx_ring_chain_options){
        .vdi = vdi,
        .epoch = epoch,
        .since = since,
        .position = {at_epoch, at_seq},
        .set = set_of_ring(),
        .found = take,
    };
}

static struct plx_ring_chain *open_chain(struct plx_uuid vdi, uint64_t epoch, uint64_t since,
                                         uint64_t at_epoch, uint64_t at_seq)
{
    struct plx_ring_chain_options options = options_for(vdi, epoch, since, at_epoch, at_seq);
    struct plx_ring_chain *chain = NULL;

    OK(plx_ring_chain_open(ring, &options, &chain, &fault));
    return chain;
}

static int scan_code(struct plx_uuid vdi, uint64_t epoch, uint64_t since, uint64_t at_epoch,
                     uint64_t at_seq)
{
    struct plx_ring_chain_options options = options_for(vdi, epoch, since, at_epoch, at_seq);
    struct plx_ring_chain *chain = NULL;
    int error = plx_ring_chain_open(ring, &options, &chain, &fault);

    if (!error)
        plx_ring_chain_close(chain);
    return error;
}

static struct plx_ring_item *append(struct plx_ring_chain *chain, uint8_t byte)
{
    struct plx_ring_item *item = &items[used];

    memset(contents[used], byte, BLOCK);
    iovs[used] = (struct iovec){contents[used], BLOCK};
    *item = (struct plx_ring_item){
        .record = {.type = PLX_RING_WRITE, .block = byte, .blocks = 1},
        .iov = &iovs[used],
        .iovcnt = 1,
        .done = item_done,
    };
    used++;
    plx_ring_append(chain, item);
    return item;
}

static void run(void)
{
    for (unsigned i = 0; i < 10000 && done < used; i++)
        if (!plx_ring_turn(ring))
            plx_ring_wait(ring);
}

/* One by one, so that each is a batch. */
static void append_singly(struct plx_ring_chain *chain, uint8_t first, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        append(chain, (uint8_t)(first + i));
        run();
    }
    CU_ASSERT_EQUAL_FATAL(done, used);
}

static struct plx_ring_chain_info chain_info(const struct plx_ring_chain *chain)
{
    struct plx_ring_chain_info info;

    plx_ring_chain_get_info(chain, &info);
    return info;
}

static struct plx_ring_info ring_info(void)
{
    struct plx_ring_info info;

    plx_ring_get_info(ring, &info);
    return info;
}

/* Records first_seq and so on were found, with these bytes. */
static void expect_found(uint64_t first_seq, uint8_t first_byte, unsigned count)
{
    CU_ASSERT_EQUAL(found_count, count);
    for (unsigned i = 0; i < found_count; i++) {
        CU_ASSERT_EQUAL(found[i].seq, first_seq + i);
        CU_ASSERT_EQUAL(found[i].record.block, (uint8_t)(first_byte + i));
        CU_ASSERT_EQUAL(found_byte[i], (uint8_t)(first_byte + i));
    }
}

/* ---- One device ---- */

static void test_made(void)
{
    struct plx_ring_super super;

    make_disks(1);
    FAILS(NOT_FOUND, try_open((struct plx_ring_options){0}));
    OK(try_create(false));
    FAILS(EXISTS, try_create(false));
    OK(plx_ring_recognise(devices[0], &super, &fault));
    CU_ASSERT_EQUAL(super.segments, SEGMENTS);
    CU_ASSERT_EQUAL(super.openings, 0);
    CU_ASSERT_STRING_EQUAL(super.host_name, "alpha");
    open_ring();
    CU_ASSERT_EQUAL(ring_info().super.openings, 1);
    CU_ASSERT_EQUAL(ring_info().free_segments, SEGMENTS);
    close_ring();
    open_ring();
    CU_ASSERT_EQUAL(ring_info().super.openings, 2);
    close_ring();
    OK(try_open((struct plx_ring_options){.read_only = true}));
    CU_ASSERT_EQUAL(ring_info().super.openings, 2);
    close_ring();
    OK(try_create(true));
    OK(plx_ring_erase(devices[0], &fault));
    FAILS(NOT_FOUND, try_open((struct plx_ring_options){0}));
    end_ring();
}

static void test_append(void)
{
    struct plx_ring_chain *chain;
    struct plx_ring_item other[2] = {
        {.record = {.type = PLX_RING_UNMAP, .block = 9, .blocks = 1000}, .done = item_done},
        {.record = {.type = PLX_RING_SNAPSHOT, .snapshot = 3, .time_ns = 44}, .done = item_done},
    };

    make_ring(1);
    chain = open_chain(vdi_a, 1, 1, 0, 0);
    append(chain, 1);
    plx_ring_append(chain, &other[0]);
    plx_ring_append(chain, &other[1]);
    used += 2;
    append(chain, 2);
    run();
    CU_ASSERT_EQUAL(done, 4);
    CU_ASSERT_EQUAL(last_done, 4);
    CU_ASSERT_EQUAL(chain_info(chain).durable_seq, 4);
    plx_ring_chain_close(chain);
    CU_ASSERT_EQUAL(ring_info().unknown_segments, 1);
    close_ring();
    open_ring();
    chain = open_chain(vdi_a, 2, 1, 0, 0);
    CU_ASSERT_EQUAL_FATAL(found_count, 4);
    CU_ASSERT(found[0].record.type == PLX_RING_WRITE && found_byte[0] == 1);
    CU_ASSERT(found[1].record.type == PLX_RING_UNMAP && found[1].record.blocks == 1000);
    CU_ASSERT(found[2].record.type == PLX_RING_SNAPSHOT && found[2].record.time_ns == 44);
    CU_ASSERT(found[3].seq == 4 && found[3].epoch == 1 && found_byte[3] == 2);
    plx_ring_chain_close(chain);
    FAILS(CORRUPT, scan_code(vdi_a, 1, 1, 1, 2)); /* the store's epoch is not newer */
    OK(scan_code(vdi_a, 3, 1, 1, 3));             /* the position is within the batch */
    expect_found(4, 2, 1);
    OK(scan_code(vdi_b, 3, 1, 0, 0));
    expect_found(1, 0, 0);
    end_ring();
}

/* More than the ring holds goes through it, while what is on the store is released. */
static void test_wrap(void)
{
    struct plx_ring_chain *chain;
    uint64_t seq = 0, epoch = 1;

    make_ring(1);
    chain = open_chain(vdi_a, epoch, 1, 0, 0);
    for (unsigned round = 0; round < 40; round++) {
        append_singly(chain, (uint8_t)(round * 10), 10);
        seq += 10;
        CU_ASSERT_EQUAL(chain_info(chain).done_seq, seq);
        if (round % 7 == 6) { /* reopened with a few undrained */
            plx_ring_chain_close(chain);
            close_ring();
            open_ring();
            chain = open_chain(vdi_a, epoch + 1, 1, epoch, seq - 20);
            epoch++;
            expect_found(seq - 19, (uint8_t)((round - 1) * 10), 20);
        }
        plx_ring_release(chain, seq - 10);
    }
    plx_ring_release(chain, seq);
    plx_ring_chain_close(chain);
    CU_ASSERT_EQUAL(ring_info().free_segments, SEGMENTS);
    end_ring();
}

/* A full ring waits. What is released goes on; the last segments are left to others. */
static void test_full(void)
{
    struct plx_ring_chain *a, *b;
    unsigned before;

    make_ring(1);
    a = open_chain(vdi_a, 1, 1, 0, 0);
    b = open_chain(vdi_b, 1, 1, 0, 0);
    for (unsigned i = 0; i < 200; i++)
        append(a, 1);
    for (unsigned i = 0; i < 2000; i++)
        if (!plx_ring_turn(ring))
            plx_ring_wait(ring);
    before = done;
    CU_ASSERT(before > 60 && before < 200);
    CU_ASSERT(chain_info(a).full);
    CU_ASSERT_EQUAL(ring_info().free_segments, 1);
    append(b, 2)->owner = b;
    for (unsigned i = 0; i < 100; i++)
        if (!plx_ring_turn(ring))
            plx_ring_wait(ring);
    CU_ASSERT_EQUAL(done, before + 1);
    CU_ASSERT_EQUAL(chain_info(b).done_seq, 1);
    while (done < used) {
        plx_ring_release(a, chain_info(a).done_seq);
        plx_ring_turn(ring);
        plx_ring_wait(ring);
    }
    CU_ASSERT_EQUAL(chain_info(a).done_seq, 200);
    plx_ring_release(a, 200);
    plx_ring_release(b, 1);
    plx_ring_chain_close(a);
    plx_ring_chain_close(b);
    CU_ASSERT_EQUAL(ring_info().free_segments, SEGMENTS);
    end_ring();
}

/* Group commit: what comes while a batch is being written shares the next one, and a flush. */
static void test_group_commit(void)
{
    struct plx_ring_chain *chain;
    uint64_t writes, flushes;

    make_ring(1);
    chain = open_chain(vdi_a, 1, 1, 0, 0);
    writes = plx_simdisk_counters(disks[0])->writes;
    flushes = plx_simdisk_counters(disks[0])->flushes;
    append(chain, 1);
    plx_ring_turn(ring);
    for (unsigned i = 0; i < 8; i++)
        append(chain, 2);
    run();
    CU_ASSERT_EQUAL(done, 9);
    CU_ASSERT_EQUAL(plx_simdisk_counters(disks[0])->writes - writes, 2);
    CU_ASSERT(plx_simdisk_counters(disks[0])->flushes - flushes <= 2);
    plx_ring_chain_close(chain);
    end_ring();
}

static struct plx_ring_read reading;
static bool read_ended;

static void read_end(struct plx_ring_read *read)
{
    read_ended = true;
}

static int read_back(struct plx_ring_place place, uint8_t *buffer)
{
    reading = (struct plx_ring_read){.place = place, .buffer = buffer, .done = read_end};
    read_ended = false;
    plx_ring_read(ring, &reading);
    while (!read_ended)
        if (!plx_ring_turn(ring))
            plx_ring_wait(ring);
    return reading.error;
}

static void test_read(void)
{
    struct plx_ring_chain *chain;
    uint8_t buffer[BLOCK];
    struct plx_ring_place place;

    make_ring(1);
    chain = open_chain(vdi_a, 1, 1, 0, 0);
    append(chain, 1);
    place = append(chain, 77)->place;
    run();
    place = items[1].place;
    OK(read_back(place, buffer));
    CU_ASSERT(buffer[0] == 77 && buffer[BLOCK - 1] == 77);
    plx_simdisk_flip(disks[0], place.offset + 100, 1);
    FAILS(CORRUPT, read_back(place, buffer));
    plx_simdisk_flip(disks[0], place.offset + 100, 1);
    plx_simdisk_fail_range(disks[0], place.offset, BLOCK, true, false);
    FAILS(IO_READ, read_back(place, buffer));
    plx_ring_chain_close(chain);
    end_ring();
}

/* ---- */

int main(void)
{
    static const struct suite_test tests[] = {
        {"made, opened, erased", test_made},
        {"append and scan", test_append},
        {"wrap", test_wrap},
        {"full", test_full},
        {"group commit", test_group_commit},
        {"records read back", test_read},
    };

    return SUITE_RUN("ring", tests);
}
