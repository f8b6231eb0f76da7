/* test_ring_proofs.c - which ring it is, and whose records: copies of rings, members that were
 * away, stores that were put back. Power cuts are in crash/test_ring_cuts.c.
 */
#include "ring_world.h"

/* Some records in this epoch; the ring is closed. */
static void use_in_epoch(uint64_t epoch, uint8_t first, unsigned count)
{
    struct plx_ring_chain *chain = open_chain(vdi_a, epoch, 1, 0, 0);

    last_done = 0;
    append_singly(chain, first, count);
    plx_ring_chain_close(chain);
    close_ring();
}

/* Disk 0 has a ring with some records, which is closed, and disk 1 a copy of it. */
static void make_ring_and_copy(void)
{
    make_disks(2);
    detach();
    attach(0, 1);
    OK(try_create(false));
    open_ring();
    use_in_epoch(1, 1, 3);
    plx_simdisk_copy(disks[1], disks[0]);
}

/* A copy that was made before the mark is refused, each time, and changes nothing by that. */
static void test_older_copy(void)
{
    make_ring_and_copy();
    open_ring();
    use_in_epoch(2, 4, 1);
    for (unsigned k = 0; k < 4; k++) {
        OK(reopen(1, 1, false));
        FAILS(RING_AWAY, scan_code(vdi_a, 3 + k, 1, 0, 0));
        OK(scan_code(vdi_b, 3 + k, 1, 0, 0)); /* a disk without a mark may use it */
    }
    OK(reopen(0, 1, false));
    OK(scan_code(vdi_a, 7, 1, 0, 0));
    expect_found(1, 1, 4);
    end_ring();
}

/* A copy that was made under the mark, after three records, and put back after `written` more. */
static void older_copy_of_opening(unsigned written)
{
    struct plx_ring_chain *chain;

    make_disks(2);
    detach();
    attach(0, 1);
    OK(try_create(false));
    open_ring();
    chain = open_chain(vdi_a, 2, 2, 1, 3);
    append_singly(chain, 1, 3);
    plx_simdisk_copy(disks[1], disks[0]);
    append_singly(chain, 4, written);
    plx_ring_release(chain, 6 + written);
    plx_ring_chain_close(chain);
    close_ring();
    for (uint64_t at = 3; at <= 6 + written; at++) { /* how far the store is */
        OK(reopen(1, 1, false));
        CU_ASSERT_EQUAL(scan_code(vdi_a, 3, 2, at == 3 ? 1 : 2, at), at > 6 ? PLX_ERR_CORRUPT : 0);
        CU_ASSERT(at > 6 || found_count == 6 - at);
    }
    OK(reopen(0, 1, false));
    OK(scan_code(vdi_a, 3, 2, 2, 6 + written));
    end_ring();
}

static void test_older_copy_of_opening(void)
{
    for (unsigned written = 1; written < 20 && !CU_get_number_of_failures(); written++)
        older_copy_of_opening(written);
}

/* Ring and store were copied, and both are used on, in the same epoch. */
static void test_two_futures(void)
{
    struct plx_ring_mark before, ours, theirs;

    make_ring_and_copy();
    before = marks[0];
    OK(reopen(0, 1, false));
    use_in_epoch(2, 4, 1);
    ours = marks[0];
    marks[0] = before;
    OK(reopen(1, 1, false));
    use_in_epoch(2, 14, 2);
    theirs = marks[0];
    for (unsigned k = 0; k < 2; k++) {
        OK(reopen(0, 1, false));
        marks[0] = theirs;
        FAILS(RING_AWAY, scan_code(vdi_a, 3, 1, 0, 0));
        marks[0] = ours;
        OK(scan_code(vdi_a, 3, 1, 0, 0));
        expect_found(1, 1, 4);
        OK(reopen(1, 1, false));
        FAILS(RING_AWAY, scan_code(vdi_a, 3, 1, 0, 0));
    }
    marks[0] = before; /* what both have of it was followed by what this store never heard of */
    FAILS(CORRUPT, scan_code(vdi_a, 3, 1, 0, 0));
    end_ring();
}

/* A member that was put back from an older image has the set, and not the proof. */
static void test_stale_member(void)
{
    uint64_t header;

    make_disks(3);
    detach();
    attach(0, 2);
    OK(try_create(false));
    open_ring();
    use_in_epoch(1, 1, 3);
    plx_simdisk_copy(disks[2], disks[1]);
    OK(reopen(0, 2, false));
    use_in_epoch(2, 4, 2);
    header = (items[4].place.offset - PLX_RING_SEGMENTS_AT) / SEGMENT_BYTES * SEGMENT_BYTES +
             PLX_RING_SEGMENTS_AT;
    plx_simdisk_flip(disks[1], header + 60, 1); /* damage is no age */
    OK(reopen(0, 2, false));
    OK(scan_code(vdi_a, 3, 1, 0, 0));
    expect_found(1, 1, 5);
    OK(reopen(1, 1, true));
    OK(scan_code(vdi_a, 4, 1, 0, 0)); /* it was written again */
    expect_found(1, 1, 5);
    close_ring();
    plx_simdisk_copy(disks[1], disks[2]);
    for (unsigned k = 0; k < 2; k++) {
        OK(reopen(0, 2, false));
        FAILS(RING_AWAY, scan_code(vdi_a, 5, 1, 0, 0));
    }
    OK(reopen(1, 1, true));
    FAILS(RING_AWAY, scan_code(vdi_a, 5, 1, 0, 0));
    OK(reopen(0, 1, true));
    OK(scan_code(vdi_a, 5, 1, 0, 0));
    expect_found(1, 1, 5);
    end_ring();
}

/* ---- A store that was put back ---- */

/* The disk is closed in order: the store has everything, and the ring forgets the disk. */
static void end_in_order(struct plx_ring_chain *chain, uint64_t last)
{
    plx_ring_release(chain, last);
    unmark(chain);
    plx_ring_chain_close(chain);
    OK(plx_ring_forget(ring, &vdi_a, &fault));
}

/* A future ends in order, the store is put back to the instant before, and the disk gets the same
 * epoch and the same numbers again. What the first future has left is never found, nor missed:
 * SCAN-1, SCAN_JUDGE-1. damaged: it has lost the header before that, too. */
static void put_back(unsigned count, unsigned written, bool damaged)
{
    struct plx_ring_chain *chain;

    make_ring(count);
    chain = open_chain(vdi_a, 1, 1, 0, 0);
    append_singly(chain, 1, 3);
    end_in_order(chain, 3);
    if (!damaged) /* else the second future goes on in another segment */
        OK(reopen(0, count, false));
    chain = open_chain(vdi_a, 2, 2, 1, 3);
    append_singly(chain, 20, 10);
    end_in_order(chain, 13);
    if (!damaged)
        OK(reopen(0, count, false));
    last_done = 3;
    chain = open_chain(vdi_a, 2, 2, 1, 3);
    append_singly(chain, 40, written);
    plx_ring_chain_close(chain);
    close_ring();
    for (unsigned m = 0; m < count && damaged; m++)
        plx_simdisk_flip(disks[m], PLX_RING_SEGMENTS_AT + SEGMENT_BYTES, 1);
    for (uint64_t epoch = 3; epoch < 5; epoch++) {
        OK(reopen(0, count, false));
        CU_ASSERT_EQUAL(ring_info().bad_segments, damaged);
        OK(scan_code(vdi_a, epoch, 2, 1, 3));
        expect_found(4, 40, written);
    }
    end_ring();
}

static void test_put_back(void)
{
    for (unsigned count = 1; count <= 2; count++)
        for (unsigned written = 0; written < 12 && !CU_get_number_of_failures(); written++) {
            put_back(count, written, false);
            put_back(count, written, true);
        }
}

static void append_jointly(struct plx_ring_chain *chain, uint8_t first, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        append(chain, (uint8_t)(first + i));
    run();
}

/* The position's batch is damaged, so nobody can tell whether writes were acknowledged behind it
 * (SCAN_JUDGE-5); what the other future has left behind it does not follow the position. */
static void test_put_back_entered(void)
{
    struct plx_ring_chain *chain;

    make_ring(1);
    chain = open_chain(vdi_a, 2, 2, 1, 3);
    append_jointly(chain, 20, 6); /* 7 blocks */
    append_singly(chain, 26, 3);  /* the last one in blocks 12 and 13 of the segment */
    end_in_order(chain, 12);
    OK(reopen(0, 1, false));
    last_done = 3;
    chain = open_chain(vdi_a, 2, 2, 1, 3);
    append_jointly(chain, 40, 7); /* 8 blocks */
    append_singly(chain, 47, 1);
    plx_ring_chain_close(chain);
    plx_simdisk_flip(disks[0], items[used - 1].place.offset - BLOCK, 100);
    OK(reopen(0, 1, false));
    FAILS(CORRUPT, scan_code(vdi_a, 3, 2, 2, 11));
    expect_found(12, 0, 0);
    end_ring();
}

/* Each segment with batches has a header that cannot be believed, if `all`, or if the disk's are
 * erased there. */
static void damage_headers(bool all)
{
    static const uint8_t nobody[sizeof vdi_a.b];
    uint8_t blocks[2 * BLOCK];

    for (unsigned s = 0; s < SEGMENTS; s++) {
        uint64_t at = PLX_RING_SEGMENTS_AT + s * SEGMENT_BYTES;

        plx_simdisk_peek(disks[0], at, blocks, sizeof blocks);
        if (blocks[BLOCK] && (all || memcmp(blocks + 32, nobody, sizeof nobody) == 0))
            plx_simdisk_flip(disks[0], at, 1);
    }
}

/* SCAN_JUDGE-4: what the other future has left has lost its header, and this one had two openings
 * since. What is found is this future's, or nothing is. */
static void put_back_twice_opened(unsigned other, unsigned second, unsigned third)
{
    struct plx_ring_chain *chain;
    int code;

    make_ring(1);
    chain = open_chain(vdi_a, 1, 1, 0, 0);
    append_singly(chain, 1, 3);
    end_in_order(chain, 3);
    chain = open_chain(vdi_a, 2, 2, 1, 3);
    append_singly(chain, 20, other);
    end_in_order(chain, 3 + other);
    last_done = 3;
    chain = open_chain(vdi_a, 2, 2, 1, 3);
    append_singly(chain, 40, second);
    plx_ring_chain_close(chain);
    OK(reopen(0, 1, false));
    chain = open_chain(vdi_a, 3, 2, 1, 3);
    append_singly(chain, (uint8_t)(40 + second), third);
    plx_ring_chain_close(chain);
    close_ring();
    damage_headers(false);
    OK(reopen(0, 1, false));
    code = scan_code(vdi_a, 4, 2, 1, 3);
    CU_ASSERT(code == 0 || code == PLX_ERR_CORRUPT);
    if (!code)
        expect_found(4, 40, second + third);
    end_ring();
}

static void test_put_back_twice_opened(void)
{
    for (unsigned other = 1; other < 12; other++)
        for (unsigned second = 1; second < 8; second++)
            for (unsigned third = 0; third < 3 && !CU_get_number_of_failures(); third++)
                put_back_twice_opened(other, second, third);
}

/* SCAN-8: the position's segment has lost its header when the disk has no mark, so nobody finds the
 * position's batch. A later scan, under a mark, finds it. */
static void test_position_found_later(void)
{
    for (unsigned written = 1; written < 4 && !CU_get_number_of_failures(); written++) {
        struct plx_ring_chain *chain;

        make_ring(1);
        chain = open_chain(vdi_a, 1, 1, 0, 0);
        append_singly(chain, 1, 3);
        plx_ring_release(chain, 3);
        unmark(chain);
        plx_ring_chain_close(chain);
        close_ring();
        damage_headers(true);
        OK(reopen(0, 1, false));
        chain = open_chain(vdi_a, 2, 2, 1, 3);
        append_singly(chain, 4, written);
        plx_ring_chain_close(chain);
        OK(reopen(0, 1, false));
        chain = open_chain(vdi_a, 3, 2, 1, 3); /* with a proof of its own */
        expect_found(4, 4, written);
        append_singly(chain, (uint8_t)(4 + written), written);
        plx_ring_chain_close(chain);
        OK(reopen(0, 1, false));
        OK(scan_code(vdi_a, 4, 2, 1, 3));
        expect_found(4, 4, 2 * written);
        end_ring();
    }
}

/* A store that was put back, without a mark, beside a ring that the newer store needs: nothing is
 * taken, all is counted, and what an older future has left behind is not (SCAN_JUDGE-3). */
static void test_put_back_beside(void)
{
    for (unsigned written = 0; written < 6 && !CU_get_number_of_failures(); written++) {
        struct plx_ring_chain *chain;

        make_ring(1);
        chain = open_chain(vdi_a, 2, 2, 1, 3);
        append_singly(chain, 20, 5);
        end_in_order(chain, 8);
        OK(reopen(0, 1, false));
        last_done = 3;
        chain = open_chain(vdi_a, 2, 2, 1, 3);
        append_singly(chain, 40, written);
        plx_ring_chain_close(chain);
        marks[0] = (struct plx_ring_mark){.set = 0};
        for (uint64_t epoch = 2; epoch < 5; epoch++) {
            OK(reopen(0, 1, false));
            chain = open_bare(vdi_a, epoch, 1, 3);
            CU_ASSERT_EQUAL(found_count, 0);
            CU_ASSERT_EQUAL(chain_info(chain).aside, written);
            plx_ring_chain_close(chain);
        }
        end_ring();
    }
}

/* SCAN_JUDGE-2: turned off and on again in one epoch, with changes in between that the ring knows
 * nothing of. Then the store is put back to the first mark. */
static void test_put_back_within(void)
{
    struct plx_ring_chain *chain;
    struct plx_ring_mark first;

    make_ring(1);
    chain = open_chain(vdi_a, 1, 1, 0, 0);
    append_singly(chain, 1, 3);
    first = marks[0];
    plx_ring_release(chain, 3);
    unmark(chain);
    prove(chain);
    mark(chain);
    OK(scan_code(vdi_b, 2, 0, 0, 0));
    append_singly(chain, 4, 2);
    plx_ring_chain_close(chain);
    OK(reopen(0, 1, false));
    marks[1] = marks[0];
    marks[0] = first;
    FAILS(CORRUPT, scan_code(vdi_a, 2, 1, 1, 1));
    marks[0] = marks[1];
    OK(scan_code(vdi_a, 2, 1, 1, 3));
    expect_found(4, 4, 2);
    end_ring();
}

/* SCAN_JUDGE-1: the next proof's header says that the last batch was durable. */
static void test_last_before_proof(void)
{
    for (unsigned lost = 0; lost < 3; lost++) {
        make_ring(1);
        use_in_epoch(1, 1, 3);
        open_ring();
        use_in_epoch(2, 4, 0);
        for (unsigned i = lost; i < 3; i++)
            plx_simdisk_flip(disks[0], items[i].place.offset - BLOCK, 100);
        OK(reopen(0, 1, false));
        FAILS(CORRUPT, scan_code(vdi_a, 3, 1, 0, 0));
        OK(scan_code(vdi_a, 3, 1, 1, 3)); /* the store has it */
        end_ring();
    }
}

/* A disk without a mark, whose position's segment cannot be read when its new chain begins, and can
 * be read later. Its first header says that there was no batch before it. */
static void test_header_came_back(void)
{
    struct plx_ring_chain *chain;

    make_ring(1);
    chain = open_chain(vdi_a, 1, 1, 0, 0);
    append_singly(chain, 1, 5);
    plx_ring_release(chain, 5);
    unmark(chain);
    plx_ring_chain_close(chain);
    close_ring(); /* killed before the ring has forgotten the disk */
    plx_simdisk_fail_range(disks[0], PLX_RING_SEGMENTS_AT, BLOCK, true, false);
    OK(reopen(0, 1, false));
    CU_ASSERT_EQUAL(ring_info().bad_segments, 1);
    chain = open_chain(vdi_a, 2, 2, 1, 5);
    append_singly(chain, 6, 3);
    plx_ring_chain_close(chain);
    close_ring();
    plx_simdisk_heal(disks[0]);
    OK(reopen(0, 1, false));
    CU_ASSERT_EQUAL(ring_info().bad_segments, 0);
    OK(scan_code(vdi_a, 3, 2, 1, 5));
    expect_found(6, 6, 3);
    end_ring();
}

/* SCAN_JUDGE-1: the next batch is there, whole and with the mark's proof, but follows another one
 * than the one that is there. */
static void test_not_taken(void)
{
    uint8_t blocks[2 * BLOCK];
    struct plx_ring_batch batch;
    struct plx_ring_super super;

    make_ring(1);
    use_in_epoch(1, 1, 4);
    plx_simdisk_peek(disks[0], items[2].place.offset - BLOCK, blocks, sizeof blocks);
    OK(plx_format_ring_batch_head(blocks, sizeof blocks, &batch));
    batch.time_ns++;
    open_ring();
    super = ring_info().super;
    plx_format_ring_batch_encode(&super.ring, &batch, blocks);
    plx_simdisk_poke(disks[0], items[2].place.offset - BLOCK, blocks, sizeof blocks);
    FAILS(CORRUPT, scan_code(vdi_a, 2, 1, 0, 0)); /* else record 4 would be gone */
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "put back"));
    OK(scan_code(vdi_a, 2, 1, 1, 4)); /* the store has it */
    end_ring();
}

/* SCAN_JUDGE-6: the proof and its batch are forged, of an epoch that the disk never had. */
static void test_later_epoch(void)
{
    static const uint64_t epochs[] = {2, 3, 1000, PLX_COUNTER_MAX};
    uint8_t blocks[3 * BLOCK];
    struct plx_ring_segment head;
    struct plx_ring_batch batch;
    struct plx_ring_super super;

    for (size_t i = 0; i < sizeof epochs / sizeof epochs[0]; i++) {
        uint64_t at;

        make_ring(1);
        use_in_epoch(1, 1, 1);
        at = items[0].place.offset - 2 * (uint64_t)BLOCK;
        open_ring();
        super = ring_info().super;
        close_ring();
        plx_simdisk_peek(disks[0], at, blocks, sizeof blocks);
        OK(plx_format_ring_segment_decode(blocks, &super.ring, &head, &fault));
        OK(plx_format_ring_batch_head(blocks + BLOCK, 2 * (size_t)BLOCK, &batch));
        head.epoch = batch.epoch = epochs[i];
        plx_format_ring_segment_encode(&super.ring, &head, blocks);
        plx_format_ring_batch_encode(&super.ring, &batch, blocks + BLOCK);
        plx_simdisk_poke(disks[0], at, blocks, sizeof blocks);
        open_ring();
        if (epochs[i] <= 2) {
            OK(scan_code(vdi_a, 2, 1, 0, 0));
            expect_found(1, 1, 1);
        } else {
            FAILS(CORRUPT, scan_code(vdi_a, 2, 1, 0, 0));
            CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "do not fit together"));
        }
        end_ring();
    }
}

static void some_turns(unsigned turns)
{
    for (unsigned i = 0; i < turns; i++)
        if (!plx_ring_turn(ring))
            plx_ring_wait(ring);
}

static void fill_up(struct plx_ring_chain *chain)
{
    for (unsigned i = 0; i < 200; i++)
        append(chain, 1)->owner = chain;
    some_turns(2000);
    CU_ASSERT(chain_info(chain).full);
}

/* Whatever was released: while a mark names a proof it has a segment, which nobody else gets. */
static void test_proof_stays(void)
{
    struct plx_ring_chain *a, *b;
    uint64_t writes, flushes, old;

    make_ring(1);
    a = open_chain(vdi_a, 1, 1, 0, 0);
    append_singly(a, 1, 20); /* in several segments */
    plx_ring_release(a, 20);
    CU_ASSERT_EQUAL(chain_info(a).segments, 1);
    plx_ring_chain_close(a);
    CU_ASSERT_EQUAL(ring_info().free_segments, SEGMENTS - 1);
    close_ring();
    open_ring();
    writes = plx_simdisk_counters(disks[0])->writes;
    flushes = plx_simdisk_counters(disks[0])->flushes;
    a = open_bare(vdi_a, 2, 1, 20);
    CU_ASSERT_EQUAL(plx_simdisk_counters(disks[0])->writes, writes + 1); /* SCAN-7 */
    CU_ASSERT_EQUAL(plx_simdisk_counters(disks[0])->flushes, flushes + 1);
    b = open_chain(vdi_b, 2, 1, 0, 0);
    fill_up(b);
    plx_ring_chain_prove(a);
    some_turns(50);
    CU_ASSERT(chain_info(a).full);
    CU_ASSERT_EQUAL(chain_info(a).proof, 0);
    old = marks[0].proof;
    unmark(a); /* all is on the store, so its mark may go */
    prove(a);
    mark(a);
    CU_ASSERT_NOT_EQUAL(marks[0].proof, old);
    used = done;                        /* what waits stays */
    for (unsigned i = 0; i < 30; i++) { /* it goes on in the one segment that it has */
        struct plx_ring_item *item = append(a, 9);

        item->owner = a;
        for (unsigned turns = 0; turns < 100 && chain_info(a).done_seq < item->seq; turns++)
            if (!plx_ring_turn(ring))
                plx_ring_wait(ring);
        CU_ASSERT_EQUAL_FATAL(chain_info(a).done_seq, item->seq);
        plx_ring_release(a, item->seq);
        CU_ASSERT_EQUAL(chain_info(a).segments, 1);
    }
    plx_ring_cancel(b, PLX_ERR_BUSY);
    plx_ring_chain_close(a);
    plx_ring_chain_close(b);
    close_ring();
    open_ring();
    OK(scan_code(vdi_a, 3, 1, 2, 50));
    end_ring();
}

/* A chain goes on in another segment: the one before is free when the other one's header is
 * durable.
 */
static void test_proof_moves(void)
{
    struct plx_ring_chain *chain;

    make_ring(1);
    chain = open_chain(vdi_a, 1, 1, 0, 0);
    append_singly(chain, 1, 7); /* the segment is full */
    plx_ring_release(chain, 7);
    CU_ASSERT_EQUAL(ring_info().free_segments, SEGMENTS - 1);
    append(chain, 8);
    plx_ring_turn(ring);
    CU_ASSERT_EQUAL(ring_info().free_segments, SEGMENTS - 2);
    run();
    CU_ASSERT_EQUAL(ring_info().free_segments, SEGMENTS - 1);
    plx_ring_chain_close(chain);
    end_ring();
}

/* Turned on, off and on again in one epoch: the first proof's segment is empty, and begins with the
 * same record. */
static void test_turned_on_twice(void)
{
    struct plx_ring_chain *chain;

    for (unsigned turns = 1; turns < 2 * SEGMENTS; turns++) {
        make_ring(1);
        chain = open_chain(vdi_a, 1, 1, 0, 0);
        for (unsigned i = 0; i < turns; i++) {
            unmark(chain);
            prove(chain);
            mark(chain);
        }
        append_singly(chain, 1, 5);
        plx_ring_chain_close(chain);
        close_ring();
        open_ring();
        OK(scan_code(vdi_a, 2, 1, 1, 3));
        expect_found(4, 4, 2);
        plx_ring_chain_close(open_chain(vdi_a, 3, 1, 1, 3)); /* which all proofs are before */
        OK(scan_code(vdi_a, 4, 1, 1, 3));
        expect_found(4, 4, 2);
        end_ring();
    }
}

/* Nobody knows whether the record names the old proof or the new one: the ring keeps both. */
static void test_either_proof(void)
{
    struct plx_ring_mark before;
    struct plx_ring_chain *a, *b;

    make_disks(2);
    detach();
    attach(0, 1);
    OK(try_create(false));
    open_ring();
    use_in_epoch(1, 1, 3);
    open_ring();
    before = marks[0];
    a = open_bare(vdi_a, 2, 1, 3);
    plx_ring_release(a, 3);
    prove(a);
    CU_ASSERT_EQUAL(chain_info(a).segments, 2);
    marks[0].proof = chain_info(a).proof;
    plx_ring_chain_prove(a); /* it stays the same one */
    CU_ASSERT_EQUAL(marks[0].proof, chain_info(a).proof);
    plx_ring_chain_close(a);
    b = open_chain(vdi_b, 2, 1, 0, 0);
    fill_up(b);
    plx_ring_cancel(b, PLX_ERR_BUSY);
    plx_ring_chain_close(b);
    close_ring();
    plx_simdisk_copy(disks[1], disks[0]);
    OK(reopen(0, 1, false));
    OK(scan_code(vdi_a, 3, 1, 1, 3));
    marks[0] = before;
    OK(reopen(1, 1, false));
    OK(scan_code(vdi_a, 3, 1, 1, 3));
    end_ring();
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"an older copy", test_older_copy},
        {"an older copy of the same opening", test_older_copy_of_opening},
        {"two futures", test_two_futures},
        {"a stale member", test_stale_member},
        {"the proof stays", test_proof_stays},
        {"the proof moves", test_proof_moves},
        {"either proof", test_either_proof},
        {"turned on twice", test_turned_on_twice},
        {"a store put back", test_put_back},
        {"a store put back, opened twice since", test_put_back_twice_opened},
        {"the position is found later", test_position_found_later},
        {"a store put back, entered", test_put_back_entered},
        {"a store put back beside a newer ring", test_put_back_beside},
        {"a store put back within an epoch", test_put_back_within},
        {"the last batch before a proof", test_last_before_proof},
        {"a header that came back", test_header_came_back},
        {"a batch that nobody took", test_not_taken},
        {"a proof of a later epoch", test_later_epoch},
    };

    return SUITE_RUN("ring proofs", tests);
}
