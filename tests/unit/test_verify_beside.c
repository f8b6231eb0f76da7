/* test_verify_beside.c - beside disks that are open the checker finds what is damaged, and nothing
 * else; without memory, or interrupted, it says so.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/disk/vdi.h"
#include "fault/alloc.h"
#include "fault/faultdev.h"
#include "ok.h"
#include "suite.h"
#include "unit/forge.h"

/* While disks are open, at rest and in the middle of a crash, nothing is wrong. */
static void test_open(void)
{
    struct plx_vdi *vdi, *clone;

    make(64 * MIB);
    fill_store();
    vdi = open_vdi(0);
    clone = open_vdi(1);
    CLEAN();
    fill(vdi, 2 * MIB, MIB, 8);
    fill(clone, 2 * MIB, MIB, 9);
    CLEAN();
    run(vdi, PLX_SNAPSHOT, 0, 0);
    fill(vdi, 2 * MIB, 65536, 10);
    fill(vdi, 2 * MIB, 65536, 11);
    CLEAN();
    CU_ASSERT_EQUAL(checked.snapshots, 3);
    OK(clone_vdi(3, 0, 3)); /* sees what lies behind v0's key frame */
    CLEAN();
    for (unsigned i = 0; i < 600; i++) /* the log goes on in further segments */
        fill(vdi, 3 * MIB + i % 100 * 8192, 4096, (int)(i % 3));
    CLEAN();
    run(vdi, PLX_KEYFRAME, 0, 0);
    CLEAN();
    plx_simpower_cut(&power);
    plx_vdi_abandon(vdi);
    plx_vdi_abandon(clone);
    plx_store_close(store);
    store = NULL;
    plx_simpower_restore(&power);
    CLEAN();
    CU_ASSERT(heard.infos > 0);
    end_store();
}

/* A disk that is written on and on, on the same loop. */
static struct {
    struct plx_vdi *vdi;
    struct plx_request requests[4];
    struct iovec iov[4];
    uint8_t *bytes;
    bool busy[4], on;
    uint64_t count, turns;
} writer;

static void writer_done(struct plx_request *request)
{
    if (request->result && writer.on) {
        printf("\n  write %d: %s: %s", (int)request->op, plx_error_name(request->result),
               request->fault.text);
        CU_FAIL("a request beside the check");
        writer.on = false;
    }
    writer.busy[request - writer.requests] = false;
}

static void writer_tick(struct plx_simenv *sim)
{
    if (writer.turns++ % 64)
        return;
    for (unsigned i = 0; writer.on && i < 4; i++) {
        struct plx_request *request = &writer.requests[i];
        uint64_t n = writer.count;

        if (writer.busy[i])
            continue;
        writer.count++;
        writer.busy[i] = true;
        writer.iov[i] = (struct iovec){writer.bytes + i * 65536, 65536};
        memset(writer.bytes + i * 65536, (int)n, 65536);
        *request = (struct plx_request){.op = n % 61 == 0                ? PLX_KEYFRAME
                                              : n % 203 == 0 && n < 4000 ? PLX_SNAPSHOT
                                              : n % 11 == 0              ? PLX_UNMAP
                                                                         : PLX_WRITE,
                                        .offset = n * 77 % 128 * 65536,
                                        .length = 65536,
                                        .iov = &writer.iov[i],
                                        .iovcnt = 1,
                                        .done = writer_done};
        plx_vdi_submit(writer.vdi, request);
    }
}

static void no_label(void *context, const char *label, uint64_t seq, bool removed)
{
    (void)context, (void)label, (void)seq, (void)removed;
}

static void test_beside_writer(void)
{
    make(512 * MIB);
    fill_store();
    memset(&writer, 0, sizeof writer);
    writer.bytes = malloc(4 * 65536);
    writer.vdi = open_vdi(0);
    writer.on = true;
    env.on_tick = writer_tick;
    for (unsigned i = 0; i < 12; i++)
        CLEAN();
    for (unsigned i = 0; i < 60; i++) { /* nor do other readers take what moves on for damage */
        struct plx_vdi *instant;

        OK(plx_label_list(store, 0, 0, no_label, NULL, &fault));
        OK(plx_snapshot_open(store, 0, 1 + i % 2, &instant, &fault));
        plx_vdi_abandon(instant);
    }
    writer.on = false;
    while (writer.busy[0] || writer.busy[1] || writer.busy[2] || writer.busy[3])
        if (!plx_store_tick(store))
            plx_store_wait(store);
    env.on_tick = NULL;
    CLEAN();
    CU_ASSERT_EQUAL(checked.unsettled, 0);
    OK(plx_vdi_close(writer.vdi));
    CLEAN();
    free(writer.bytes);
    end_store();
}

/* ---- One thing beside a check, at each of its reads ---- */

static struct plx_vdi *moving; /* v0 */

static void write_much(uint64_t offset) /* in what has become free, too */
{
    fill(moving, offset, 2 * MIB, 20);
}

static void overwrite_in_place(void)
{
    fill(moving, 4096, 65536, 21);         /* from the key frame */
    fill(moving, 8 * MIB, 16 * BLOCK, 22); /* from the log behind it */
}

static void overwrite_and_keyframe(void)
{
    fill(moving, 0, 65536, 23);
    overwrite_in_place();
    run(moving, PLX_KEYFRAME, 0, 0);
    write_much(12 * MIB);
}

static void unmap(void)
{
    run(moving, PLX_UNMAP, 4096, 65536);
    run(moving, PLX_UNMAP, 8 * MIB, 65536);
    run(moving, PLX_KEYFRAME, 0, 0);
    write_much(12 * MIB);
}

static void forget(void)
{
    struct plx_thinned thinned;

    OK(plx_vdi_thin(moving, &(struct plx_thin){.upto = 2}, &thinned, &fault));
    CU_ASSERT(thinned.snapshots > 0);
    write_much(12 * MIB);
}

/* The log alone goes on, into the segment after next, and no key frame follows. */
static void log_goes_on(void)
{
    uint64_t segment = moving->log.cursor.pos / SEGMENT;
    uint64_t generation = moving->record.generation;

    for (unsigned i = 0; moving->log.cursor.pos / SEGMENT < segment + 2; i++)
        fill(moving, 3 * MIB + i % 100 * 8192, 4096, (int)(i % 3));
    CU_ASSERT_EQUAL(moving->record.generation, generation);
}

static void close_and_delete(void)
{
    OK(plx_vdi_close(moving));
    OK(plx_vdi_delete(store, 0, false, &fault));
    moving = open_vdi(3);
    write_much(0);
}

static void keyframe(void)
{
    run(moving, PLX_KEYFRAME, 0, 0);
}

static void lose_record(void)
{
    plx_simdisk_fail_range(disk, record_addr(0) * BLOCK, 2 * BLOCK, true, false);
}

/* A small store with v0 open, which no clone holds, and v3 to be opened. What snapshots alone have
 * fills whole extents, which somebody else gets as soon as it is let go. */
static void make_moving(void)
{
    make(16 * MIB);
    OK(create_vdi(0, 16 * MIB));
    OK(create_vdi(3, 16 * MIB));
    moving = open_vdi(0);
    for (int i = 1; i <= 3; i++) {
        fill(moving, 0, MIB, i);
        run(moving, PLX_SNAPSHOT, 0, 0);
        run(moving, PLX_KEYFRAME, 0, 0);
    }
    fill(moving, 4096, 65536, 4);
    run(moving, PLX_KEYFRAME, 0, 0);
    fill(moving, 8 * MIB, 65536, 5);
    run(moving, PLX_FLUSH, 0, 0);
    fill(moving, 9 * MIB, 4096, 6); /* says that all before is durable */
}

/* Runs the check with this beside it, once for each place; judge says whether it did well. */
static void at_each_read(void (*happens)(void), void (*judge)(void))
{
    bool more = true;

    for (unsigned at = 1; more; at++) {
        make_moving();
        memset(&beside, 0, sizeof beside);
        beside.at = at;
        beside.happens = happens;
        judge();
        more = beside.reads >= at;
        beside.at = 0;
        plx_simdisk_heal(disk);
        OK(plx_vdi_close(moving));
        end_store();
    }
}

static void nothing_found(void)
{
    CLEAN();
}

static void test_beside_changes(void)
{
    static void (*const changes[])(void) = {
        overwrite_in_place, overwrite_and_keyframe, unmap, forget, log_goes_on, close_and_delete};

    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++)
        at_each_read(changes[i], nothing_found);
}

/* A block of the newest tree, one that only the log has, one that only snapshots see. */
static const unsigned damaged[] = {100, 8 * MIB / BLOCK + 3, 5};

static void flip_damaged(void)
{
    struct plx_vdi *old;

    OK(plx_snapshot_open(store, 0, 2, &old, &fault));
    for (unsigned i = 0; i < 3; i++)
        flip(addr_of(i == 2 ? old : moving, damaged[i]), 9);
    plx_vdi_abandon(old);
}

static void all_damage_found(void)
{
    char words[64];

    CU_ASSERT_EQUAL(heard.errors, 3);
    for (unsigned i = 0; i < 3; i++) {
        snprintf(words, sizeof words, "block %u does not match its checksum", damaged[i]);
        CU_ASSERT_PTR_NOT_NULL(strstr(heard.text, words));
    }
}

static void damage_found(void)
{
    flip_damaged();
    OK(check_at(0));
    all_damage_found();
}

static void damage_or_record_found(void)
{
    flip_damaged();
    OK(check_at(0));
    if (!strstr(heard.kinds, "record"))
        all_damage_found();
}

static void test_damage_beside_changes(void)
{
    at_each_read(keyframe, damage_found);
    at_each_read(lose_record, damage_or_record_found);
}

static void delete_and_use_slot(void)
{
    close_and_delete();
    OK(create_vdi(0, 16 * MIB));
}

static void unmap_all(void)
{
    run(moving, PLX_UNMAP, 0, 16 * MIB);
    run(moving, PLX_KEYFRAME, 0, 0);
}

/* Damage of a disk that is no more what it was while its contents are read: it counts up to then.
 * What a snapshot sees that stays counts all the time. */
static void damage_until(void (*happens)(void), bool snapshots_stay)
{
    bool seen[4] = {false};
    unsigned last;

    make_moving();
    memset(&beside, 0, sizeof beside);
    damage_found();
    last = beside.reads;
    OK(plx_vdi_close(moving));
    end_store();
    for (unsigned at = last - 80; at <= last; at++) { /* who has what is read once more behind it */
        make_moving();
        memset(&beside, 0, sizeof beside);
        beside.at = at;
        beside.happens = happens;
        flip_damaged();
        OK(check_at(0));
        beside.at = 0;
        CU_ASSERT_FATAL(heard.errors < 4);
        seen[heard.errors] = true;
        CU_ASSERT(!heard.errors || strcmp(heard.kinds, "data\n") == 0);
        CU_ASSERT(!snapshots_stay || strstr(heard.text, "block 5 does not match"));
        OK(plx_vdi_close(moving));
        end_store();
    }
    CU_ASSERT(snapshots_stay || (seen[0] && seen[1]));
    CU_ASSERT(seen[2] && seen[3]);
}

static void test_damage_until(void)
{
    damage_until(close_and_delete, false);
    damage_until(delete_and_use_slot, false);
    damage_until(unmap_all, true);
}

static void lose_leaf(void)
{
    uint64_t path[PLX_LEVELS_MAX];
    uint8_t leaf[BLOCK];
    struct plx_vdi_record record = get_record(0);
    unsigned count = load_leaf(&record, path, leaf);

    plx_simdisk_fail_range(disk, path[count - 1] * BLOCK, BLOCK, true, false);
}

/* Of a block that no snapshot sees. What goes bad behind the check the next one finds. */
static void damage_or_node_found(void)
{
    flip(addr_of(moving, 7), 9);
    OK(check_at(0));
    if (!heard.errors)
        EXPECT("node", "v0");
    CU_ASSERT(strstr(heard.kinds, "node") || strstr(heard.text, "block 7 does not match"));
}

static uint64_t rotten;

static void rot_leaf(void)
{
    uint64_t path[PLX_LEVELS_MAX];
    uint8_t leaf[BLOCK];
    struct plx_vdi_record record = get_record(0);

    rotten = path[load_leaf(&record, path, leaf) - 1];
    flip(rotten, 9);
}

static void damage_or_rot_found(void)
{
    rotten = 0;
    damage_or_node_found();
    if (rotten)
        flip(rotten, 9);
}

/* A root whose node nothing vouches for any more says that the leaf is beyond the store. */
static uint64_t misled, led_to;

static void mislead_root(void)
{
    uint64_t path[PLX_LEVELS_MAX];
    uint8_t node[BLOCK];
    struct plx_vdi_record record = get_record(0);

    CU_ASSERT(load_leaf(&record, path, node) > 1);
    misled = path[0];
    peek(misled, node);
    led_to = plx_node_entry(node, 0);
    plx_node_set_entry(node, 0, 1ull << 30);
    poke(misled, node);
}

static void damage_or_address_found(void)
{
    struct plx_vdi_record record = get_record(0);
    uint8_t node[BLOCK], copies[2][BLOCK];

    misled = 0;
    peek(record_addr(0), copies[0]);
    peek(record_addr(0) + 1, copies[1]);
    record.keyframe.root = plx_entry_void(record.keyframe.root);
    put_record(&record);
    flip(addr_of(moving, 7), 9);
    OK(check_at(0));
    if (!heard.errors)
        EXPECT("address", "v0: a node at block 1073741824");
    CU_ASSERT(strstr(heard.kinds, "address") || strstr(heard.text, "block 7 does not match"));
    poke(record_addr(0), copies[0]); /* or its owner takes it for another host's */
    poke(record_addr(0) + 1, copies[1]);
    if (!misled)
        return;
    peek(misled, node);
    plx_node_set_entry(node, 0, led_to);
    poke(misled, node);
}

static void lose_log(void)
{
    plx_simdisk_fail_range(disk, get_record(0).segment_addr * BLOCK, 64 * BLOCK, true, false);
}

/* What is damaged cannot be read either, from some moment on. */
static void test_damage_beside_loss(void)
{
    struct plx_batch_header header;
    uint64_t at;

    at_each_read(lose_leaf, damage_or_node_found);
    at_each_read(rot_leaf, damage_or_rot_found);
    at_each_read(mislead_root, damage_or_address_found);
    make_history();
    at = find_batch(3, &header);
    CU_ASSERT_FATAL(at != 0);
    plx_simdisk_flip(disk, at + 90, 1);
    memset(&beside, 0, sizeof beside);
    beside.happens = lose_log;
    do {
        beside.reads = 0;
        beside.at++;
        EXPECT("log", "v0");
        plx_simdisk_heal(disk);
    } while (beside.reads >= beside.at);
    beside.at = 0;
    end_store();
}

/* A block of v0 that is in use, and that its bitmap on the store calls free. */
static uint64_t call_free(void)
{
    uint64_t addr = addr_of(moving, damaged[0]);

    forge_bit(addr, false);
    return addr;
}

static void free_found(void)
{
    uint64_t addr;

    run(moving, PLX_KEYFRAME, 0, 0); /* writes the bitmaps */
    addr = call_free();
    EXPECT("free", "marked as free");
    forge_bit(addr, true);
}

static unsigned still_reads;

static void keyframe_later(void)
{
    if (beside.reads > still_reads)
        keyframe();
}

/* A block that does not fit is looked at again when who has it has moved on. If he does so each
 * time, nothing is made up, and nothing is kept silent. */
static void test_suspect_beside_changes(void)
{
    unsigned found = 0, busy = 0;
    uint64_t addr;

    at_each_read(keyframe, free_found);
    make_moving();
    run(moving, PLX_KEYFRAME, 0, 0);
    memset(&beside, 0, sizeof beside);
    CLEAN();
    still_reads = beside.reads;
    addr = call_free();
    beside.at = 1;
    beside.again = true;
    beside.happens = keyframe_later;
    for (unsigned i = 0; i < 12; i++, still_reads++) {
        beside.reads = 0;
        OK(check_at(0));
        found += heard.errors != 0;
        busy += heard.busy != 0;
        CU_ASSERT(heard.errors ? strstr(heard.kinds, "free") != NULL : heard.infos > 0);
    }
    CU_ASSERT(busy > 0 && found + busy <= 12);
    beside.at = 0;
    forge_bit(addr, true);
    CLEAN();
    OK(plx_vdi_close(moving));
    end_store();
}

/* Who has a block that does not fit cannot be looked at again. */
static struct {
    uint32_t slot;
    unsigned turns, turn;
} losing;

static void lose_record_in_turn(struct plx_simenv *e)
{
    if (++losing.turns == losing.turn)
        plx_simdisk_fail_range(disk, record_addr(losing.slot) * BLOCK, 2 * BLOCK, true, false);
}

/* In each of the last turns of the loop of a check that finds it: it is found all the same, or that
 * somebody moved on, or the record is found to be lost, now or when all is checked again. */
static void expect_though_lost(const char *kind, const char *words, uint32_t slot)
{
    unsigned last, found = 0, other = 0;

    losing.slot = slot;
    losing.turns = losing.turn = 0;
    env.on_tick = lose_record_in_turn;
    EXPECT(kind, words);
    last = losing.turns;
    CU_ASSERT_FATAL(last > 30);
    for (unsigned i = 0; i < 30; i++) {
        losing.turns = 0;
        losing.turn = last + 10 - i; /* some need more turns than the first */
        OK(check_at(0));
        CU_ASSERT(!heard.errors || strstr(heard.text, words) || strstr(heard.kinds, "record"));
        found += strstr(heard.kinds, kind) != NULL;
        other += !heard.errors;
        if (!heard.errors && !heard.busy)
            EXPECT("record", "slot");
        plx_simdisk_heal(disk);
    }
    CU_ASSERT(found > 0 && other > 0);
    env.on_tick = NULL;
}

static void test_suspect_beside_loss(void)
{
    uint64_t addr;

    make_moving();
    run(moving, PLX_KEYFRAME, 0, 0);
    addr = call_free();
    expect_though_lost("free", "in use by virtual disk v0 (block 100", 0);
    forge_bit(addr, true);
    CLEAN();
    OK(plx_vdi_close(moving));
    end_store();

    make_history();
    forge_entry(1, 300, entry_of(0, 2));
    open_store(0);
    for (uint32_t slot = 0; slot < 2; slot++)
        expect_though_lost("shared", "virtual disk v1 (block 300", slot);
    end_store();
}

static void move_record(struct plx_simenv *e)
{
    struct plx_vdi_record record = get_record(0);

    put_record(&record);
}

/* Of a disk that has moved on whenever it was read nobody looks for ever for what is not there. */
static void test_moving_for_ever(void)
{
    struct plx_snapshot_info info;
    struct plx_vdi *instant;

    make_history();
    open_store(0);
    env.on_tick = move_record;
    FAILS(NOT_FOUND, plx_snapshot_open(store, 0, 99, &instant, &fault));
    FAILS(NOT_FOUND, plx_snapshot_at(store, 0, 1, &info, &fault));
    OK(plx_label_list(store, 0, 0, no_label, NULL, &fault));
    OK(plx_snapshot_open(store, 0, 1, &instant, &fault));
    plx_vdi_abandon(instant);
    env.on_tick = NULL;
    end_store();

    make_crashed(3); /* somebody has it: it may have moved on, but says the same of the block */
    open_store(0);
    OK(plx_snapshot_open(store, 0, 0, &instant, &fault));
    flip(addr_of(instant, 8 * MIB / BLOCK + 3), 9);
    plx_vdi_abandon(instant);
    env.on_tick = move_record;
    EXPECT("data", "v0: block 2051 does not match");
    CU_ASSERT_EQUAL(heard.errors, 1);
    CU_ASSERT_EQUAL(checked.unsettled, 1);
    env.on_tick = NULL;
    end_store();
}

/* A log of many segments behind the key frame, of a disk that is open: what it says of a damaged
 * block is read again. */
static void test_long_log(void)
{
    struct plx_vdi *vdi;
    uint64_t addr, at;

    make(64 * MIB);
    fill_store();
    vdi = open_vdi(0);
    at = vdi->log.cursor.pos / SEGMENT;
    for (unsigned i = 0; i < 900; i++) {
        run(vdi, PLX_UNMAP, 3 * MIB + i % 100 * 8192, 8192);
        fill(vdi, 3 * MIB + i % 100 * 8192, 4096, (int)(i % 3) + 1);
    }
    CU_ASSERT(vdi->log.cursor.pos / SEGMENT > at + 4);
    CU_ASSERT(vdi->record.keyframe.pos / SEGMENT <= at);
    addr = addr_of(vdi, 8 * MIB / BLOCK + 3); /* which no snapshot sees */
    flip(addr, 9);
    EXPECT("data", "block 2051 does not match");
    CU_ASSERT_EQUAL(heard.errors, 1);
    flip(addr, 9);
    CLEAN();
    run(vdi, PLX_UNMAP, 8 * MIB + 3 * BLOCK, BLOCK); /* which only the end of the log tells */
    flip(addr, 9);
    CLEAN();
    OK(plx_vdi_close(vdi));
    end_store();
}

/* Of a block that was mapped in a segment before the key frame's the log says no more than that it
 * is unmapped since: what lies there may be anybody's. */
static void test_unmapped_behind(void)
{
    struct plx_vdi *vdi;
    uint64_t addr, at;

    make(64 * MIB);
    fill_store();
    vdi = open_vdi(0);
    fill(vdi, 10 * MIB, 65536, 1);
    at = vdi->log.cursor.pos / SEGMENT;
    for (unsigned i = 0; vdi->log.cursor.pos / SEGMENT == at; i++)
        fill(vdi, 3 * MIB + i % 100 * 8192, 4096, (int)(i % 3));
    run(vdi, PLX_KEYFRAME, 0, 0);
    addr = addr_of(vdi, 10 * MIB / BLOCK + 3);
    flip(addr, 9);
    EXPECT("data", "block 2563 does not match");
    run(vdi, PLX_UNMAP, 10 * MIB, 65536);
    CLEAN();
    OK(plx_vdi_close(vdi));
    end_store();
}

/* A common block is never overwritten: what is written in place beside it makes its leaf's
 * checksums void, but not its own. Of a disk that is open, too. */
static void test_common_beside_void(void)
{
    struct plx_vdi_record record;
    struct plx_vdi *vdi;
    uint64_t mine;

    make_history();
    mine = entry_of(1, 17);
    CU_ASSERT(plx_entry_checksum(mine) != 0 && plx_entry_checksum(entry_of(1, 18)) != 0);
    forge_entry(1, 17,
                plx_entry_make(plx_entry_addr(mine) | PLX_ADDR_COMMON, plx_entry_checksum(mine)));
    record = get_record(1);
    record.oldest.root = record.keyframe.root;
    put_record(&record);
    open_store(2);
    vdi = open_vdi(1);
    fill(vdi, 18 * BLOCK, BLOCK, 8);
    CU_ASSERT_EQUAL(addr_of(vdi, 18), plx_entry_addr(entry_of(1, 18))); /* in place */
    CLEAN();
    flip(addr_of(vdi, 18), 9); /* whose checksum nobody knows */
    CLEAN();
    flip(plx_entry_addr(mine), 9);
    EXPECT("data", "v1: block 17 does not match its checksum");
    CU_ASSERT_EQUAL(heard.errors, 1);
    flip(plx_entry_addr(mine), 9);
    CLEAN();
    plx_vdi_abandon(vdi);
    end_store();
}

/* Nothing is made up about a disk that never holds still, nor counted once for each attempt. */
static void test_unsettled(void)
{
    uint64_t addr;

    make_moving();
    memset(&beside, 0, sizeof beside);
    beside.at = 1;
    beside.again = true;
    beside.happens = keyframe;
    CLEAN();
    CU_ASSERT_EQUAL(checked.unsettled, 1);
    CU_ASSERT(heard.infos > 0 && !checked.nodes && !checked.batches && !checked.snapshots);
    addr = moving->log.segments[0];
    flip(addr, PLX_SEGMENT_HEADER_BYTES + 100); /* what is found counts as little as it is told */
    beside.reads = 0;
    CLEAN();
    CU_ASSERT_EQUAL(checked.unsettled, 1);
    beside.at = 0;
    OK(check_at(0));
    CU_ASSERT_EQUAL(checked.unsettled, 0);
    CU_ASSERT(checked.errors > 0);
    flip(addr, PLX_SEGMENT_HEADER_BYTES + 100);
    CLEAN();
    CU_ASSERT_EQUAL(checked.unsettled, 0);
    OK(plx_vdi_close(moving));
    end_store();
}

/* The k-th allocation fails; *ret_failed: 0 if there are not so many. */
static int check_failing_at(uint64_t k, uint64_t *ret_failed)
{
    struct plx_check_options options = {.data = true, .finding = on_found};
    int error;

    memset(&heard, 0, sizeof heard);
    fault_alloc_arm(k, false);
    error = plx_store_check(store, &options, &checked, &fault);
    fault_alloc_disarm(ret_failed);
    return error;
}

/* Each of its allocations fails once: then it says so, instead of calling sound what it did not
 * look at. */
static void check_without_memory(const char *kind)
{
    uint64_t failed = 1;

    for (uint64_t k = 1; failed; k++) {
        int error = check_failing_at(k, &failed);

        CU_ASSERT_EQUAL(error, failed ? PLX_ERR_NOMEM : 0);
        CU_ASSERT(!error || strstr(fault.text, "out of memory"));
    }
    CU_ASSERT(kind ? strstr(heard.kinds, kind) != NULL : heard.errors == 0);
}

static struct plx_device *attach_uncounted(void)
{
    static struct fault_plan plan; /* nothing fails */

    return fault_device_attach(disk, &plan);
}

static void test_memory(void)
{
    fixture.attach = attach_uncounted;
    make_history();
    open_store(0);
    check_without_memory(NULL);
    forge_bit(plx_entry_addr(entry_of(0, 0)), false);
    check_without_memory("free");
    end_store();
    make_history();
    flip(plx_entry_addr(entry_of(0, 100)), 17);
    open_store(0);
    check_without_memory("data");
    end_store();
    make_moving();
    check_without_memory(NULL);
    OK(plx_vdi_close(moving));
    end_store();
    fixture.attach = NULL;
}

/* A finding that cannot be kept until it is known whether the disk has moved on is counted. */
static void test_findings_without_memory(void)
{
    struct plx_vdi_record record;
    uint64_t failed = 1;
    unsigned counted = 0;

    fixture.attach = attach_uncounted;
    make_history();
    record = get_record(0);
    record.keyframe.prev_hash++;
    put_record(&record);
    open_store(0);
    for (uint64_t k = 1; failed; k++) {
        int error = check_failing_at(k, &failed);

        CU_ASSERT(!error || (failed && error == PLX_ERR_NOMEM));
        if (!error)
            CU_ASSERT_EQUAL(checked.errors, 1);
        counted += strstr(heard.text, "virtual disk v0: 1 further finding") != NULL;
    }
    CU_ASSERT_EQUAL(counted, 1);
    CU_ASSERT_PTR_NOT_NULL(strstr(heard.text, "the key frame follows another log batch"));
    end_store();
    fixture.attach = NULL;
}

static void stop_here(void)
{
    heard.stop = true;
}

static void keyframe_and_stop(void)
{
    keyframe();
    heard.stop = true;
}

/* Whatever it was about to read: it says so, and makes nothing up of what it did not read. */
static void stop_at_each_read(void (*happens)(void), unsigned most)
{
    unsigned at = 0;

    memset(&beside, 0, sizeof beside);
    beside.happens = happens;
    do {
        int error;

        beside.at = ++at;
        beside.reads = 0;
        heard.stop = false;
        error = check_at(0);
        CU_ASSERT_EQUAL(error, beside.reads >= at ? PLX_ERR_BUSY : 0);
        CU_ASSERT_EQUAL(heard.errors, 0);
        CU_ASSERT_EQUAL(checked.unsettled, 0);
    } while (beside.reads >= at && at < most);
    CU_ASSERT(at > 10);
    beside.at = 0;
    heard.stop = false;
}

static void test_interrupted(void)
{
    make_moving();
    let_snapshots_go(moving, 0, 1); /* history begins with a tree of its own */
    stop_at_each_read(stop_here, UINT32_MAX);
    stop_at_each_read(keyframe_and_stop, UINT32_MAX);
    CLEAN();
    OK(plx_vdi_close(moving));
    end_store();
    make_of(1024 * MIB, 256 * MIB); /* extents with several header pages */
    fill_store();
    leave_store();
    stop_at_each_read(stop_here, 20);
    end_store();
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"open disks", test_open},
        {"beside a writer", test_beside_writer},
        {"beside one change at each moment", test_beside_changes},
        {"damage beside a change at each moment", test_damage_beside_changes},
        {"damage until the disk is another", test_damage_until},
        {"damage that cannot be read any more", test_damage_beside_loss},
        {"a block that does not fit beside changes", test_suspect_beside_changes},
        {"a block that does not fit, of a record that is lost", test_suspect_beside_loss},
        {"a disk that has always moved on", test_moving_for_ever},
        {"a long log of an open disk", test_long_log},
        {"a block that is unmapped behind the key frame", test_unmapped_behind},
        {"a common block in a leaf that is void", test_common_beside_void},
        {"a disk that never holds still", test_unsettled},
        {"without memory", test_memory},
        {"findings without memory", test_findings_without_memory},
        {"interrupted", test_interrupted},
    };

    return SUITE_RUN("verify: open disks", tests);
}
