/* test_ring.c - the write-back ring's device part: made, opened, appended to, scanned, released,
 * full, read back; two members, of which one fails, is left behind, is added again; damage.
 * Power cuts are in crash/test_ring_cuts.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/format/format_inside.h"
#include "ring_world.h"

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
    CU_ASSERT_STRING_EQUAL(super.host_name, "alpha");
    open_ring();
    CU_ASSERT_EQUAL(ring_info().free_segments, SEGMENTS);
    close_ring();
    OK(try_open((struct plx_ring_options){.read_only = true}));
    close_ring();
    OK(try_create(true));
    OK(plx_ring_erase(devices[0], &fault));
    FAILS(NOT_FOUND, try_open((struct plx_ring_options){0}));
    end_ring();
}

/* A ring of another version is refused, with what to do, and not overwritten. */
static void test_version(void)
{
    static const char *const words[] = {"'vdi set --ring off' and 'ring delete'", "newer version"};

    for (unsigned i = 0; i < 2; i++) {
        uint8_t block[BLOCK];

        make_disks(1);
        OK(try_create(false));
        plx_simdisk_peek(disks[0], 0, block, BLOCK);
        block[12] = i ? PLX_RING_VERSION + 1 : PLX_RING_VERSION - 1;
        plx_format_seal_block(block);
        for (unsigned slot = 0; slot < 2; slot++)
            plx_simdisk_poke(disks[0], slot * BLOCK, block, BLOCK);
        FAILS(UNSUPPORTED, try_open((struct plx_ring_options){0}));
        CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, words[i]));
        FAILS(UNSUPPORTED, try_open((struct plx_ring_options){.read_only = true}));
        FAILS(EXISTS, try_create(false));
        OK(try_create(true));
        end_ring();
    }
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
    unmark(chain);
    plx_ring_chain_close(chain);
    CU_ASSERT_EQUAL(ring_info().free_segments, SEGMENTS);
    end_ring();
}

/* A full ring waits. What is released goes on; the last segments are left to others. */
static void test_full(void)
{
    struct plx_ring_chain_options options;
    struct plx_ring_chain *a, *b;
    unsigned before;

    make_ring(1);
    a = open_chain(vdi_a, 1, 1, 0, 0);
    options = options_for(vdi_b, 1, 1, 0, 0);
    OK(plx_ring_chain_open(ring, &options, &b, &fault));
    for (unsigned i = 0; i < 200; i++)
        append(a, 1);
    for (unsigned i = 0; i < 2000; i++)
        if (!plx_ring_turn(ring))
            plx_ring_wait(ring);
    before = done;
    CU_ASSERT(before > 60 && before < 200);
    CU_ASSERT(chain_info(a).full);
    CU_ASSERT_EQUAL(ring_info().free_segments, 1);
    chain_b = b;
    prove(b);
    mark(b);
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
    unmark(a);
    unmark(b);
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

#define LARGE 4u /* blocks: enough for a batch by itself */

static struct plx_ring_item *append_large(struct plx_ring_chain *chain, uint8_t byte)
{
    struct plx_ring_item *item = &items[used];

    memset(contents[used], byte, LARGE * BLOCK);
    iovs[used] = (struct iovec){contents[used], LARGE * BLOCK};
    *item = (struct plx_ring_item){
        .record = {.type = PLX_RING_WRITE, .block = byte, .blocks = LARGE},
        .iov = &iovs[used],
        .iovcnt = 1,
    };
    plx_ring_append(chain, item);
    return item;
}

static bool is_stable(const struct plx_ring_item *item)
{
    uint8_t block[BLOCK];

    for (unsigned i = 0; i < LARGE; i++) {
        plx_simdisk_peek_stable(disks[0], item->place.offset + i * BLOCK, block, BLOCK);
        if (block[0] != item->record.block || memcmp(block, block + 1, BLOCK - 1) != 0)
            return false;
    }
    return true;
}

static bool all_are_stable;
static struct plx_ring_item *first_large;

static void large_done(struct plx_ring_item *item)
{
    item_done(item);
    for (const struct plx_ring_item *i = first_large; i <= item; i += LARGE)
        all_are_stable &= is_stable(i);
}

/* Several batches are on their way at once, and end in any order. What is done is durable, and so
 * is all before it. */
static void test_several_batches(void)
{
    unsigned most = 0;

    for (unsigned round = 0; round < 20; round++) {
        struct plx_ring_chain *chain;

        disk_seed = 10 * round;
        make_ring(1);
        plx_simdisk_set_patience(disks[0], 80);
        chain = open_chain(vdi_a, 1, 1, 0, 0);
        all_are_stable = true;
        first_large = &items[0];
        for (unsigned i = 0; i < 8; i++) {
            append_large(chain, (uint8_t)(1 + i))->done = large_done;
            used += LARGE;
            plx_ring_hurry(chain);
            most = (unsigned)plx_max_u64(most, plx_ring_under_way(ring));
        }
        for (unsigned i = 0; i < 10000 && done < 8; i++)
            if (!plx_ring_turn(ring))
                plx_ring_wait(ring);
        CU_ASSERT_EQUAL(done, 8);
        CU_ASSERT(all_are_stable);
        plx_ring_chain_close(chain);
        OK(scan_code(vdi_a, 2, 1, 0, 0));
        CU_ASSERT_EQUAL(found_count, 8);
        end_ring();
    }
    CU_ASSERT(most >= 8);
    disk_seed = 0;
}

static void take_back(struct plx_ring_item *item)
{
    item_done(item);
    memset(item->iov[0].iov_base, 0xdd, item->iov[0].iov_len);
}

/* One of several transfers fails, and the ring stops. Who is told so may use the memory again:
 * nobody reads it any more. */
static void test_memory_is_mine(void)
{
    uint8_t block[BLOCK];
    bool found_it = false;

    for (unsigned round = 0; round < 20; round++) {
        struct plx_ring_chain *chain;

        disk_seed = 10 * round;
        make_ring(1);
        plx_simdisk_set_patience(disks[0], 80);
        chain = open_chain(vdi_a, 1, 1, 0, 0);
        plx_simdisk_fail_io(disks[0], 1, 1);
        for (unsigned i = 0; i < 8; i++) {
            append_large(chain, (uint8_t)(1 + i))->done = take_back;
            used += LARGE;
        }
        plx_ring_hurry(chain);
        for (unsigned i = 0; i < 10000 && (done < 8 || plx_ring_under_way(ring)); i++)
            if (!plx_ring_turn(ring))
                plx_ring_wait(ring);
        CU_ASSERT_EQUAL(done, 8);
        CU_ASSERT_EQUAL(plx_ring_sticky(ring), PLX_ERR_IO_WRITE);
        for (uint64_t at = 0; at < RING_BYTES; at += BLOCK) {
            plx_simdisk_peek(disks[0], at, block, BLOCK);
            found_it |= block[0] == 0xdd;
        }
        plx_ring_chain_close(chain);
        end_ring();
    }
    CU_ASSERT(!found_it);
    disk_seed = 0;
}

/* A chain is cancelled, and more is appended to it before it is closed: nothing of that is found,
 * and no batch says that it was durable. */
static void test_cancelled(void)
{
    for (unsigned turns = 0; turns < 8; turns++) {
        struct plx_ring_chain *chain;

        make_ring(1);
        chain = open_chain(vdi_a, 1, 1, 0, 0);
        append_singly(chain, 1, 3);
        append(chain, 4);
        append(chain, 5);
        for (unsigned i = 0; i < turns; i++)
            plx_ring_turn(ring);
        plx_ring_cancel(chain, PLX_ERR_STICKY);
        for (unsigned i = 0; i < 3; i++) {
            append_large(chain, (uint8_t)(6 + i))->done = item_done;
            used += LARGE;
            plx_ring_hurry(chain);
            for (unsigned t = 0; t < 20; t++)
                if (!plx_ring_turn(ring))
                    plx_ring_wait(ring);
        }
        plx_ring_cancel(chain, PLX_ERR_STICKY);
        while (plx_ring_under_way(ring))
            if (!plx_ring_turn(ring))
                plx_ring_wait(ring);
        plx_ring_chain_close(chain);
        OK(scan_code(vdi_a, 2, 1, 0, 0));
        CU_ASSERT(found_count >= 3 && found_count <= 5);
        expect_found(1, 1, found_count);
        end_ring();
    }
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

/* ---- Two members ---- */

static void fail_disk(unsigned disk)
{
    plx_simdisk_fail_io(disks[disk], 1, 1000000);
}

static void test_mirror(void)
{
    struct plx_ring_chain *chain;

    make_mirror();
    append_and_close();
    FAILS(MISSING, reopen(0, 1, false));
    FAILS(MISSING, reopen(1, 1, false));
    OK(reopen(0, 2, false));
    CU_ASSERT_EQUAL(ring_info().members, 2);
    close_ring();
    for (unsigned m = 0; m < 2; m++) { /* looked at, so that nothing changes */
        struct plx_ring_chain_options options;
        struct plx_ring_look look = {0};

        detach();
        attach(m, 1);
        OK(try_open((struct plx_ring_options){.read_only = true}));
        options = options_for(vdi_a, 2, 1, 0, 0);
        OK(plx_ring_chain_look(ring, &options, &look, &fault));
        CU_ASSERT(look.first == 1 && look.last == 10);
        close_ring();
    }
    OK(reopen(1, 1, true));
    chain = open_chain(vdi_a, 2, 1, 0, 0);
    expect_found(1, 1, 10);
    append_singly(chain, 11, 1);
    plx_ring_chain_close(chain);
    OK(reopen(1, 1, false)); /* it is alone now */
    OK(reopen(0, 2, false)); /* and the other one was left behind */
    CU_ASSERT_EQUAL(ring_info().members, 1);
    CU_ASSERT_EQUAL(plx_simenv_heard(&env, "went on without this member"), 1);
    OK(scan_code(vdi_a, 4, 1, 0, 0));
    expect_found(1, 1, 11);
    OK(reopen(0, 1, true)); /* so each was used without the other one */
    FAILS(CORRUPT, reopen(0, 2, false));
    end_ring();
}

/* The survivor does nothing by itself before the mark on the store names its set. */
static void test_lost(void)
{
    struct plx_ring_chain *chain;
    uint64_t set;

    make_mirror();
    set = set_of_ring();
    chain = open_chain(vdi_a, 1, 1, 0, 0);
    append_singly(chain, 1, 3);
    fail_disk(1);
    append(chain, 4);
    for (unsigned i = 0; i < 100; i++)
        if (!plx_ring_turn(ring))
            plx_ring_wait(ring);
    CU_ASSERT_EQUAL(done, 3);
    CU_ASSERT_EQUAL(changes, 1);
    CU_ASSERT(chain_info(chain).unmarked);
    CU_ASSERT_NOT_EQUAL(set_of_ring(), set);
    CU_ASSERT_EQUAL(ring_info().members, 1);
    mark(chain);
    run();
    CU_ASSERT_EQUAL(done, 4);
    append_singly(chain, 5, 2);
    fail_disk(0);
    append(chain, 7);
    append(chain, 8);
    run();
    CU_ASSERT_EQUAL(done, 8);
    CU_ASSERT_EQUAL(last_error, PLX_ERR_IO_WRITE);
    CU_ASSERT_EQUAL(chain_info(chain).done_seq, 6);
    append(chain, 9);
    run();
    CU_ASSERT_EQUAL(last_error, PLX_ERR_STICKY);
    plx_ring_chain_close(chain);
    plx_simdisk_heal(disks[0]);
    plx_simdisk_heal(disks[1]);
    OK(reopen(0, 2, false));
    CU_ASSERT_EQUAL(ring_info().members, 1);
    OK(scan_code(vdi_a, 2, 1, 0, 0));
    CU_ASSERT(found_count >= 6);
    end_ring();
}

/* What one member has lost, the other one has; a loss of both is told from an end. */
static void test_damage(void)
{
    uint64_t at, last_at;
    uint8_t buffer[BLOCK];

    make_mirror();
    append_and_close();
    at = items[4].place.offset;
    last_at = items[9].place.offset;
    plx_simdisk_flip(disks[0], at, 1);
    OK(reopen(0, 2, false));
    OK(read_back(items[4].place, buffer)); /* of the other one */
    CU_ASSERT_EQUAL(buffer[0], 5);
    OK(scan_code(vdi_a, 2, 1, 0, 0));
    expect_found(1, 1, 10);
    plx_simdisk_peek(disks[0], at, buffer, BLOCK);
    CU_ASSERT_EQUAL(buffer[0], 5); /* it was written again */
    plx_simdisk_flip(disks[0], at, 1);
    plx_simdisk_flip(disks[1], at, 1);
    FAILS(CORRUPT, scan_code(vdi_a, 3, 1, 0, 0)); /* record 6 says that 5 was done */
    OK(scan_code(vdi_a, 3, 1, 1, 5));             /* the store has it */
    expect_found(6, 6, 5);
    plx_simdisk_flip(disks[0], at, 1);
    plx_simdisk_fail_range(disks[0], last_at, BLOCK, true, false);
    OK(scan_code(vdi_a, 4, 1, 0, 0)); /* the other one has it */
    expect_found(1, 1, 10);
    plx_simdisk_fail_range(disks[1], last_at, BLOCK, true, false);
    FAILS(IO_READ, scan_code(vdi_a, 5, 1, 0, 0));
    end_ring();
}

/* SCAN_LOOK-2: the header of the last segment cannot be read, or not be believed. What was done is
 * found all the same, or nobody is told that it was not there. */
static void test_header_unreadable(void)
{
    for (unsigned how = 0; how < 4; how++) {
        uint64_t at, segment_bytes = SEGMENT_BYTES;

        make_ring(1);
        append_and_close();
        at = items[9].place.offset - PLX_RING_SEGMENTS_AT;
        at = PLX_RING_SEGMENTS_AT + at / segment_bytes * segment_bytes;
        if (how == 0)
            plx_simdisk_fail_range(disks[0], at, BLOCK, true, false);
        else if (how == 1)
            plx_simdisk_flip(disks[0], at, 1);
        else
            plx_simdisk_fail_range(disks[0], at, 2 * (uint64_t)BLOCK, true, false);
        OK(reopen(0, 1, false));
        CU_ASSERT_EQUAL(ring_info().bad_segments, 1);
        if (how == 3)
            OK(scan_code(vdi_b, 2, 0, 0, 0)); /* which claims nothing */
        if (how >= 2) {
            FAILS(IO_READ, scan_code(vdi_a, 2, 1, 0, 0));
            plx_simdisk_heal(disks[0]);
        }
        OK(scan_code(vdi_a, 2, 1, 0, 0));
        expect_found(1, 1, 10);
        plx_simdisk_heal(disks[0]);
        OK(reopen(0, 1, false)); /* the header is whole again */
        CU_ASSERT_EQUAL(ring_info().bad_segments, 0);
        OK(scan_code(vdi_a, 3, 1, 0, 0));
        expect_found(1, 1, 10);
        end_ring();
    }
}

/* SCAN_LOOK-2: what an older epoch left, whose header is damaged, is no part of the chain, and no
 * proof either, though its numbers are higher than those of the proof's segment. */
static void test_leftover_damaged(void)
{
    const uint64_t segment_bytes = SEGMENT_BYTES;
    struct plx_ring_chain *chain;
    uint64_t at;

    make_ring(1);
    append_and_close();
    at = items[9].place.offset - PLX_RING_SEGMENTS_AT;
    at = PLX_RING_SEGMENTS_AT + at / segment_bytes * segment_bytes;
    OK(reopen(0, 1, false));
    last_done = 0;
    marks[0] = (struct plx_ring_mark){.set = 0}; /* that was discarded */
    chain = open_chain(vdi_a, 2, 2, 0, 0);       /* which claims nothing of that */
    append_singly(chain, 20, 3);
    plx_ring_chain_close(chain);
    close_ring();
    plx_simdisk_flip(disks[0], at, 1);
    for (uint64_t epoch = 3; epoch < 5; epoch++) {
        OK(reopen(0, 1, false));
        CU_ASSERT_EQUAL(ring_info().bad_segments, 1);
        OK(scan_code(vdi_a, epoch, 2, 0, 0));
        expect_found(1, 20, 3);
        CU_ASSERT_EQUAL(ring_info().bad_segments, 1);
    }
    end_ring();
}

/* Where one member lacks a batch, it may have one of an older epoch with the same numbers, which
 * was never done: that one is not what is written again. */
static void test_older_in_place(void)
{
    struct plx_simpower aside = {.count = 0};
    struct plx_simdisk *before[2];
    uint8_t older[2 * BLOCK];

    make_mirror();
    close_ring();
    for (unsigned m = 0; m < 2; m++) {
        before[m] = plx_simdisk_new(
            &(struct plx_simdisk_options){.bytes = RING_BYTES, .block_size = 512}, &aside);
        plx_simdisk_copy(before[m], disks[m]);
    }
    for (uint64_t epoch = 1; epoch < 3; epoch++) {
        struct plx_ring_chain *chain;

        for (unsigned m = 0; m < 2; m++)
            plx_simdisk_copy(disks[m], before[m]);
        memset(marks, 0, sizeof marks);
        last_done = 0;
        OK(reopen(0, 2, false));
        chain = open_chain(vdi_a, epoch, epoch, 0, 0);
        append_singly(chain, (uint8_t)(10 * epoch), 1);
        plx_ring_chain_close(chain);
        close_ring();
        if (epoch == 1)
            plx_simdisk_peek(disks[0], items[0].place.offset - BLOCK, older, sizeof older);
    }
    CU_ASSERT_EQUAL(items[0].place.offset, items[1].place.offset);
    plx_simdisk_poke(disks[0], items[0].place.offset - BLOCK, older, sizeof older);
    for (uint64_t epoch = 3; epoch < 5; epoch++) {
        uint8_t buffer[BLOCK];

        OK(reopen(0, 2, false));
        OK(scan_code(vdi_a, epoch, 2, 0, 0));
        expect_found(1, 20, 1);
        OK(read_back(found[0].place, buffer));
        CU_ASSERT_EQUAL(buffer[0], 20);
    }
    end_ring();
    while (aside.count)
        plx_simdisk_free(aside.disks[0]);
}

/* SCAN-5: a flush fails and drops what it was to cover, and the process dies. What the next one
 * finds is there as yet, and no later flush covers it: it stays found when the power fails. */
static void test_found_is_durable(void)
{
    unsigned more = 0;

    for (disk_seed = 0; disk_seed < 20 && !CU_get_number_of_failures(); disk_seed++) {
        struct plx_ring_chain *chain;
        unsigned first;

        make_ring(1);
        chain = open_chain(vdi_a, 1, 1, 0, 0);
        append_singly(chain, 1, 3);
        plx_simdisk_drop_flush(disks[0], 1);
        append(chain, 4);
        run();
        CU_ASSERT(last_error != 0);
        plx_ring_chain_close(chain);
        OK(reopen(0, 1, false));
        OK(scan_code(vdi_a, 2, 1, 0, 0));
        first = found_count;
        CU_ASSERT(first >= 3);
        more += first > 3;
        plx_simpower_cut(&power);
        plx_simpower_restore(&power);
        OK(reopen(0, 1, false));
        OK(scan_code(vdi_a, 3, 1, 0, 0));
        expect_found(1, 1, first);
        end_ring();
    }
    CU_ASSERT(more > 10);
    disk_seed = 0;
}

static void run_resilver(void)
{
    for (unsigned i = 0; i < 10000 && ring_info().resilvering; i++)
        if (!plx_ring_turn(ring))
            plx_ring_wait(ring);
    CU_ASSERT_FALSE(ring_info().resilvering);
}

/* SCAN_LOOK-3: a member that is gone when a disk is opened. */
static void test_lost_at_opening(void)
{
    for (unsigned m = 0; m < 2; m++) {
        make_mirror();
        append_and_close();
        OK(reopen(0, 2, false));
        plx_simdisk_stop(devices[m], PLX_ERR_LOST);
        OK(scan_code(vdi_a, 2, 1, 0, 0));
        expect_found(1, 1, 10);
        CU_ASSERT_EQUAL(ring_info().members, 1);
        OK(reopen(1 - m, 1, false)); /* it has the new set: nobody has to be asked */
        OK(scan_code(vdi_a, 3, 1, 0, 0));
        expect_found(1, 1, 10);
        end_ring();
    }
}

/* Which device may be added, and which not without the operator's word. */
static void test_may_be_added(void)
{
    struct plx_device *third;

    make_disks(3);
    detach();
    attach(0, 2);
    OK(try_create(false));
    open_ring();
    third = plx_simdisk_attach(disks[2], "third");
    FAILS(INVALID, plx_ring_resilver(ring, third, false, &fault));
    close_ring();
    OK(plx_ring_create(
        &third, 1,
        &(struct plx_ring_create_options){.env = &env.env, .segment_blocks = SEGMENT_BLOCKS},
        &fault));
    OK(reopen(1, 1, true));
    FAILS(EXISTS, plx_ring_resilver(ring, third, false, &fault));
    plx_simdisk_resize(disks[2], RING_BYTES - BLOCK);
    third->bytes = RING_BYTES - BLOCK;
    FAILS(INVALID, plx_ring_resilver(ring, third, true, &fault));
    plx_simdisk_resize(disks[2], RING_BYTES);
    third->bytes = RING_BYTES;
    OK(plx_ring_resilver(ring, third, true, &fault));
    FAILS(BUSY, plx_ring_resilver(ring, third, true, &fault));
    run_resilver();
    CU_ASSERT_EQUAL(ring_info().members, 2);
    close_ring();
    plx_device_close(third);
    OK(reopen(0, 1, true)); /* the one that was left behind goes on */
    close_ring();
    detach();
    attach(1, 1);
    third = plx_simdisk_attach(disks[0], "first");
    OK(try_open((struct plx_ring_options){.alone = true}));
    FAILS(EXISTS, plx_ring_resilver(ring, third, false, &fault)); /* and may have more */
    close_ring();
    plx_device_close(third);
    end_ring();
}

/* A member that was left behind is added while the ring goes on. Then each has everything. */
static void test_resilver(void)
{
    struct plx_ring_chain *chain;

    make_mirror();
    chain = open_chain(vdi_a, 1, 1, 0, 0);
    append_singly(chain, 1, 3);
    fail_disk(0);
    append(chain, 4);
    while (!chain_info(chain).unmarked) {
        plx_ring_turn(ring);
        plx_ring_wait(ring);
    }
    mark(chain);
    append_singly(chain, 5, 2);
    plx_simdisk_heal(disks[0]);
    OK(plx_ring_resilver(ring, devices[0], false, &fault));
    append_singly(chain, 7, 3);
    run_resilver();
    CU_ASSERT_EQUAL(ring_info().members, 2);
    CU_ASSERT_EQUAL(ring_info().resilver_error, 0);
    CU_ASSERT_FALSE(chain_info(chain).unmarked);
    append_singly(chain, 10, 1);
    plx_ring_chain_close(chain);
    FAILS(MISSING, reopen(1, 1, false));
    OK(reopen(0, 2, false));
    CU_ASSERT_EQUAL(ring_info().members, 2);
    OK(reopen(0, 1, true));
    OK(scan_code(vdi_a, 2, 1, 0, 0));
    expect_found(1, 1, 10);
    end_ring();
}

/* As if its superblock had been written so often; the mirror copy has the number before. */
static void forge_generation(unsigned disk, uint64_t generation)
{
    struct plx_ring_super super;
    uint8_t block[BLOCK];

    plx_simdisk_peek(disks[disk], 0, block, BLOCK);
    OK(plx_format_ring_super_decode(block, &super, &fault));
    for (unsigned slot = 0; slot < 2; slot++) {
        super.generation = generation - slot;
        plx_format_ring_super_encode(&super, block);
        plx_simdisk_poke(disks[disk], slot * BLOCK, block, BLOCK);
    }
}

/* The other member fails, and this one goes on alone. */
static void append_alone(unsigned survivor)
{
    struct plx_ring_chain *chain = open_chain(vdi_a, 2, 1, 0, 0);

    fail_disk(1 - survivor);
    append(chain, 11);
    while (!chain_info(chain).unmarked) {
        plx_ring_turn(ring);
        plx_ring_wait(ring);
    }
    mark(chain);
    run();
    CU_ASSERT_EQUAL(last_error, 0);
    CU_ASSERT_EQUAL(chain_info(chain).done_seq, 11);
    plx_ring_chain_close(chain);
    plx_simdisk_heal(disks[1 - survivor]);
}

/* RING-6: what is opened to write leaves room for what is written when a member is lost. Else that
 * is acknowledged, and refused by our own gate when it is read again. */
static void test_counters_leave_room(void)
{
    static const uint64_t numbers[] = {PLX_COUNTER_MAX,     PLX_COUNTER_MAX - 1,
                                       PLX_COUNTER_MAX - 4, PLX_COUNTER_MAX / 2 + 2,
                                       PLX_COUNTER_MAX / 2, 2};

    for (size_t i = 0; i < 2 * sizeof numbers / sizeof numbers[0]; i++) {
        unsigned forged = i % 2;

        make_mirror();
        append_and_close();
        forge_generation(forged, numbers[i / 2]);
        OK(reopen(0, 2, false));
        append_alone(forged);
        OK(reopen(forged, 1, false));
        OK(scan_code(vdi_a, 3, 1, 0, 0));
        expect_found(1, 1, 11);
        end_ring();
    }
}

/* RING-6: whenever the power fails while it is counted anew, there is a superblock, with the high
 * number still or with a low one. */
static void test_counted_anew(void)
{
    bool cut = true;

    for (unsigned event = 1; cut; event++)
        for (disk_seed = 0; disk_seed < 8; disk_seed++) {
            make_ring(1);
            append_and_close();
            forge_generation(0, PLX_COUNTER_MAX);
            power.crash_at = power.events + event;
            cut = try_open((struct plx_ring_options){0}) != 0;
            power.crash_at = 0;
            if (cut)
                ring = NULL;
            plx_simpower_restore(&power);
            OK(reopen(0, 1, false));
            CU_ASSERT(ring_info().super.generation < 20);
            OK(scan_code(vdi_a, 2, 1, 0, 0));
            expect_found(1, 1, 10);
            end_ring();
        }
    disk_seed = 0;
}

/* What the survivor cannot be read of is not copied as if there were nothing. */
static void test_resilver_unreadable(void)
{
    struct plx_device *second;

    make_mirror();
    append_and_close();
    OK(reopen(0, 1, true));
    plx_simdisk_fail_range(disks[0], items[9].place.offset, BLOCK, true, false);
    second = plx_simdisk_attach(disks[1], "second");
    OK(plx_ring_resilver(ring, second, false, &fault));
    run_resilver();
    CU_ASSERT_EQUAL(ring_info().resilver_error, PLX_ERR_IO_READ);
    CU_ASSERT_EQUAL(ring_info().members, 1);
    close_ring();
    plx_device_close(second);
    FAILS(NOT_FOUND, reopen(1, 1, true));
    OK(reopen(0, 1, false));
    end_ring();
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"made, opened, erased", test_made},
        {"another version", test_version},
        {"append and scan", test_append},
        {"wrap", test_wrap},
        {"full", test_full},
        {"group commit", test_group_commit},
        {"several batches at once", test_several_batches},
        {"memory is given back", test_memory_is_mine},
        {"cancelled", test_cancelled},
        {"records read back", test_read},
        {"two members", test_mirror},
        {"a member fails", test_lost},
        {"a member is lost when a disk is opened", test_lost_at_opening},
        {"damage", test_damage},
        {"which device may be added", test_may_be_added},
        {"a member is added", test_resilver},
        {"counters leave room", test_counters_leave_room},
        {"counted anew", test_counted_anew},
        {"a header that cannot be read", test_header_unreadable},
        {"a damaged leftover", test_leftover_damaged},
        {"an older batch in its place", test_older_in_place},
        {"what is found is durable", test_found_is_durable},
        {"a survivor that cannot be read", test_resilver_unreadable},
    };

    return SUITE_RUN("ring", tests);
}
