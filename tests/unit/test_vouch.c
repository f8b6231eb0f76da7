/* test_vouch.c - blocks that were overwritten in place get their checksums back (vouch.c). */
#include <string.h>

#include "engine/disk/vdi.h"
#include "ok.h"
#include "suite.h"
#include "unit/fixture.h"

#define QUIET_NS 1000000000ull

static struct plx_vdi_info info_of(struct plx_vdi *vdi)
{
    struct plx_vdi_info info;

    run(vdi, PLX_KEYFRAME, 0, 0);
    plx_vdi_get_info(vdi, &info);
    return info;
}

static uint64_t unvouched(struct plx_vdi *vdi)
{
    struct plx_vdi_info info = info_of(vdi);

    CU_ASSERT_NOT_EQUAL(info.vouched_blocks, PLX_MAPPED_UNKNOWN);
    return info.mapped_blocks - info.vouched_blocks;
}

/* 20 blocks from 0 and as many from 1000 on, of which all have lost their checksums by a write in
 * place to one of each. */
static struct plx_vdi *make_hot(uint64_t quiet_ns)
{
    struct plx_vdi *vdi;

    make_store(64 * MIB, MIB);
    OK(create_vdi(0, 16 * MIB));
    vdi = open_quiet(0, quiet_ns);
    OK(write_byte(vdi, 0, 20 * BLOCK, 1));
    OK(write_byte(vdi, 1000 * BLOCK, 20 * BLOCK, 2));
    CU_ASSERT_EQUAL(unvouched(vdi), 0);
    OK(write_byte(vdi, 3 * BLOCK, BLOCK, 3));
    OK(write_byte(vdi, 1003 * BLOCK, BLOCK, 4));
    return vdi;
}

static void end_hot(struct plx_vdi *vdi)
{
    OK(plx_vdi_close(vdi));
    check_store(true);
    end_store();
}

static bool has_contents(struct plx_vdi *vdi)
{
    return reads_as(vdi, 0, 3 * BLOCK, 1) && reads_as(vdi, 3 * BLOCK, BLOCK, 3) &&
           reads_as(vdi, 4 * BLOCK, 16 * BLOCK, 1) && reads_as(vdi, 1000 * BLOCK, 3 * BLOCK, 2) &&
           reads_as(vdi, 1003 * BLOCK, BLOCK, 4);
}

static void test_quiet(void)
{
    struct plx_vdi *vdi = make_hot(QUIET_NS);
    struct plx_counters before, after;
    struct plx_vdi_info info;
    uint64_t begun_ns = plx_simenv_wall_ns(&env), since_ns;

    CU_ASSERT_EQUAL(unvouched(vdi), 40);
    CU_ASSERT_EQUAL(info_of(vdi).vouched_ns, 0);
    before = counters();
    pass_time(QUIET_NS * 9 / 10); /* not yet quiet */
    CU_ASSERT_EQUAL(counters().blocks_vouched, 0);
    pass_time(4 * QUIET_NS);
    after = counters();
    CU_ASSERT_EQUAL(after.blocks_vouched, 40);
    CU_ASSERT_EQUAL(after.batches - before.batches, 1); /* the key frame's announcement */
    CU_ASSERT_EQUAL(after.device_writes[PLX_KIND_DATA], before.device_writes[PLX_KIND_DATA]);
    CU_ASSERT_EQUAL(after.device_reads[PLX_KIND_DATA] - before.device_reads[PLX_KIND_DATA], 2);
    plx_vdi_get_info(vdi, &info);
    CU_ASSERT_EQUAL(info.vouched_blocks, info.mapped_blocks);
    since_ns = info.vouched_ns; /* when the pass ended that found it all quiet */
    CU_ASSERT(since_ns >= begun_ns + QUIET_NS && since_ns <= plx_simenv_wall_ns(&env));
    CU_ASSERT_EQUAL(plx_store_due_ns(store), UINT64_MAX); /* all is known: no timer */
    CU_ASSERT(has_contents(vdi));
    OK(plx_vdi_close(vdi));
    OK(plx_vdi_read_info(store, 0, &info, &fault));
    CU_ASSERT_EQUAL(info.vouched_blocks, 40);
    CU_ASSERT_EQUAL(info.vouched_ns, since_ns);
    vdi = open_quiet(0, QUIET_NS);
    pass_time(4 * QUIET_NS);
    CU_ASSERT_EQUAL(info_of(vdi).vouched_ns, since_ns);
    CU_ASSERT_EQUAL(plx_store_due_ns(store), UINT64_MAX);
    CU_ASSERT(has_contents(vdi));
    end_hot(vdi);
}

/* From then on damage is found where it was not. */
static void test_damage(void)
{
    for (int vouched = 0; vouched < 2; vouched++) {
        struct plx_vdi *vdi = make_hot(QUIET_NS);
        struct plx_mapping mapping;
        struct plx_walk walk = {0};
        struct plx_task task = {0};

        if (vouched)
            pass_time(5 * QUIET_NS);
        run(vdi, PLX_KEYFRAME, 0, 0);
        OK(plx_map_lookup(&vdi->map, 3, &walk, &task, &mapping));
        CU_ASSERT_EQUAL(mapping.checksum != 0, vouched);
        CU_ASSERT(mapping.writable);
        plx_simdisk_flip(disk, mapping.addr * BLOCK + 77, 4);
        CU_ASSERT_EQUAL(try_run(vdi, PLX_READ, 3 * BLOCK, BLOCK, NULL),
                        vouched ? PLX_ERR_CORRUPT : 0);
        plx_simdisk_flip(disk, mapping.addr * BLOCK + 77, 4);
        end_hot(vdi);
    }
}

/* What is written in place again and again stays as it is, and costs what it cost. */
static void test_hot(void)
{
    struct plx_vdi *vdi = make_hot(QUIET_NS);
    struct plx_counters before = counters();

    for (unsigned i = 0; i < 20; i++) {
        pass_time(QUIET_NS / 3);
        OK(write_byte(vdi, 3 * BLOCK, BLOCK, 3));
    }
    CU_ASSERT_EQUAL(counters().voids, before.voids);
    CU_ASSERT_EQUAL(counters().blocks_vouched, 20); /* the other leaf's */
    CU_ASSERT_EQUAL(unvouched(vdi), 20);
    pass_time(4 * QUIET_NS);
    CU_ASSERT_EQUAL(unvouched(vdi), 0);
    OK(write_byte(vdi, 3 * BLOCK, BLOCK, 5)); /* one VOID more, and on it goes */
    CU_ASSERT_EQUAL(counters().voids, before.voids + 1);
    CU_ASSERT_EQUAL(unvouched(vdi), 20);
    OK(write_byte(vdi, 3 * BLOCK, BLOCK, 3));
    CU_ASSERT(has_contents(vdi));
    end_hot(vdi);
}

static void note_end(struct plx_request *request)
{
    *(bool *)request->owner = true;
}

/* VOUCH-4: beside requests that come more often than steps would, and beside one that takes
 * long. */
static void test_busy(void)
{
    unsigned patience = fixture.disk.patience;
    struct plx_vdi *vdi;
    struct iovec iov = {buffer, BLOCK};
    bool ended = false;
    struct plx_request slow = {.op = PLX_READ,
                               .length = BLOCK,
                               .iov = &iov,
                               .iovcnt = 1,
                               .done = note_end,
                               .owner = &ended};
    uint64_t reads;

    fixture.disk.patience = 95;
    vdi = make_hot(QUIET_NS);
    for (unsigned i = 0; i < 200; i++) {
        pass_time(QUIET_NS / 50);
        CU_ASSERT(reads_as(vdi, 0, BLOCK, 1));
    }
    CU_ASSERT_EQUAL(counters().blocks_vouched, 0);
    reads = counters().device_reads[PLX_KIND_DATA];
    plx_simdisk_set_patience(disk, 100);
    plx_vdi_submit(vdi, &slow);
    for (unsigned i = 0; i < 8; i++) { /* the device is not waited for */
        env.ns += QUIET_NS / 16 + 1;
        plx_store_tick(store);
    }
    CU_ASSERT_FALSE(ended);
    CU_ASSERT_EQUAL(counters().device_reads[PLX_KIND_DATA] - reads, 1);
    CU_ASSERT_EQUAL(counters().blocks_vouched, 0);
    plx_simdisk_set_patience(disk, 95);
    pass_time(1);
    CU_ASSERT(ended && slow.result == 0);
    pass_time(4 * QUIET_NS);
    CU_ASSERT_EQUAL(counters().blocks_vouched, 40);
    fixture.disk.patience = patience;
    end_hot(vdi);
}

/* VOUCH-4: the pass over an idle disk reads a window in a tenth of a second: 10 MiB in a second. */
static void test_rate(void)
{
    const uint64_t second = 1000000000ull, blocks = 16 * MIB / BLOCK;
    uint64_t before, seconds = 0;
    struct plx_vdi *vdi;

    make_store(64 * MIB, MIB);
    OK(create_vdi(0, blocks * BLOCK));
    vdi = open_quiet(0, 60 * second);
    for (uint64_t at = 0; at < blocks * BLOCK; at += MIB)
        OK(write_byte(vdi, at, MIB, 1));
    unvouched(vdi);
    for (uint64_t at = 0; at < blocks * BLOCK; at += 2 * MIB) /* of each leaf one */
        OK(write_byte(vdi, at, BLOCK, 1));
    CU_ASSERT_EQUAL(unvouched(vdi), blocks);
    do {
        before = counters().blocks_vouched;
        pass_time(second);
        CU_ASSERT(counters().blocks_vouched - before <= 11 * MIB / BLOCK);
    } while (counters().blocks_vouched < blocks && ++seconds < 200);
    CU_ASSERT_EQUAL(unvouched(vdi), 0);
    end_hot(vdi);
}

static void test_off(void)
{
    struct plx_vdi *vdi = make_hot(0);

    CU_ASSERT_EQUAL(plx_store_due_ns(store), UINT64_MAX);
    pass_time(10 * QUIET_NS);
    CU_ASSERT_EQUAL(unvouched(vdi), 40);
    end_hot(vdi);
}

/* What a snapshot sees gets its checksums, too, in the newest state; and stays as unwritable as it
 * was, before the next key frame and after. */
static void test_shared(void)
{
    for (int keyframes = 0; keyframes < 4; keyframes++) {
        struct plx_vdi *vdi = make_hot(QUIET_NS), *snapshot;
        uint64_t seq;

        if (keyframes & 1)
            run(vdi, PLX_KEYFRAME, 0, 0);
        seq = run(vdi, PLX_SNAPSHOT, 0, 0);
        if (keyframes & 2)
            run(vdi, PLX_KEYFRAME, 0, 0);
        OK(plx_vdi_close(vdi));
        vdi = open_quiet(0, QUIET_NS);
        pass_time(3 * QUIET_NS);
        CU_ASSERT_EQUAL(counters().blocks_vouched, 40);
        OK(write_byte(vdi, 3 * BLOCK, BLOCK, 9));
        CU_ASSERT_EQUAL(unvouched(vdi), 0);
        OK(write_byte(vdi, 1003 * BLOCK, BLOCK, 9));
        OK(plx_snapshot_open(store, 0, seq, &snapshot, &fault));
        CU_ASSERT(has_contents(snapshot));
        OK(plx_vdi_close(snapshot));
        CU_ASSERT(reads_as(vdi, 3 * BLOCK, BLOCK, 9));
        CU_ASSERT(reads_as(vdi, 1003 * BLOCK, BLOCK, 9));
        end_hot(vdi);
    }
}

/* The same before a key frame has them: a write to such a block still goes elsewhere, and a
 * snapshot that comes after the note sees a block that is not written any more. */
static void test_noted(void)
{
    struct plx_vdi *vdi = make_hot(QUIET_NS), *snapshot;
    struct plx_mapping mapping;
    struct plx_walk walk = {0};
    struct plx_task task = {0};
    uint64_t seq, addr;

    run(vdi, PLX_KEYFRAME, 0, 0);
    OK(plx_map_lookup(&vdi->map, 3, &walk, &task, &mapping));
    CU_ASSERT(mapping.writable && !mapping.checksum);
    addr = mapping.addr;
    CU_ASSERT(plx_overlay_reserve(&vdi->map.active, 1));
    memset(buffer, 3, BLOCK);
    plx_map_vouch(&vdi->map, 3, &mapping, plx_checksum24(plx_crc32c(buffer, BLOCK)));
    plx_overlay_unreserve(&vdi->map.active, 1);
    walk = (struct plx_walk){0};
    OK(plx_map_lookup(&vdi->map, 3, &walk, &task, &mapping));
    CU_ASSERT(mapping.writable && mapping.checksum && mapping.addr == addr);
    seq = run(vdi, PLX_SNAPSHOT, 0, 0);
    OK(plx_map_lookup(&vdi->map, 3, &walk, &task, &mapping));
    CU_ASSERT(!mapping.writable && mapping.checksum && mapping.addr == addr);
    OK(write_byte(vdi, 3 * BLOCK, BLOCK, 9));
    run(vdi, PLX_KEYFRAME, 0, 0);
    OK(plx_snapshot_open(store, 0, seq, &snapshot, &fault));
    CU_ASSERT(has_contents(snapshot));
    OK(plx_vdi_close(snapshot));
    OK(write_byte(vdi, 3 * BLOCK, BLOCK, 3));
    end_hot(vdi);
}

/* Ticks at which nothing completes, until a step has asked for what it reads. */
static void begin_step(struct plx_vdi *vdi)
{
    uint64_t reads = counters().device_reads[PLX_KIND_DATA];

    for (unsigned i = 0; i < 100 && counters().device_reads[PLX_KIND_DATA] == reads; i++) {
        env.ns += QUIET_NS / 16 + 1;
        plx_store_tick(store);
    }
    CU_ASSERT_FATAL(vdi->vouch.under_way);
}

/* Of what is under way something ends now and then; if all of it stalls, one ends every 64 turns.
 */
static void turn(unsigned number)
{
    plx_store_tick(store);
    if (number % 64 == 63 && plx_store_under_way(store))
        plx_store_wait(store);
}

/* Until it has frozen the changes: first it looks whose the disk is. */
static void begin_keyframe(struct plx_vdi *vdi)
{
    plx_keyframe_request(vdi, NULL);
    for (unsigned i = 0; i < 10000 && !vdi->map.is_frozen; i++)
        turn(i);
    CU_ASSERT_FATAL(vdi->map.is_frozen);
}

enum meeting {
    APART,    /* the step ended before the changes were frozen */
    MET,      /* and while they were */
    OUTLIVED, /* and behind the key frame */
    MEETINGS,
};

static enum meeting end_step(struct plx_vdi *vdi)
{
    uint64_t keyframes = counters().keyframes;
    enum meeting meeting = APART;

    for (unsigned i = 0; vdi->vouch.under_way; i++) {
        if (vdi->map.is_frozen)
            meeting = MET;
        if (counters().keyframes != keyframes)
            meeting = OUTLIVED;
        turn(i);
    }
    return meeting;
}

static enum meeting step_beside_keyframe(uint64_t seed, bool keyframe_first)
{
    enum meeting meeting;
    struct plx_vdi *vdi;

    fixture.disk.seed = seed;
    fixture.disk.stalls = 40; /* of some reads it takes as long as a key frame */
    vdi = make_hot(QUIET_NS);
    env.ns += QUIET_NS; /* a period ends here, and nothing was quiet in it */
    plx_store_tick(store);
    plx_simdisk_set_patience(disk, 80);
    if (keyframe_first)
        begin_keyframe(vdi);
    plx_simdisk_set_patience(disk, 100);
    begin_step(vdi);
    if (!keyframe_first)
        plx_keyframe_request(vdi, NULL);
    plx_simdisk_set_patience(disk, 80);
    meeting = end_step(vdi);
    if (meeting != APART) {
        CU_ASSERT_EQUAL(counters().blocks_vouched, 0);
        CU_ASSERT(vdi->vouch.any_left);
    }
    plx_simdisk_set_patience(disk, 50);
    pass_time(6 * QUIET_NS);
    CU_ASSERT_EQUAL(counters().blocks_vouched, 40);
    CU_ASSERT_EQUAL(unvouched(vdi), 0);
    CU_ASSERT(has_contents(vdi));
    end_hot(vdi);
    return meeting;
}

/* VOUCH-2: what was read while a key frame began, was under way or ended is left to the next
 * pass. */
static void test_keyframe(void)
{
    const struct fixture usual = fixture;
    unsigned met[2][MEETINGS] = {{0}};

    for (unsigned i = 0; i < 240; i++)
        met[i % 2][step_beside_keyframe(1 + i / 2, i % 2)]++;
    CU_ASSERT(met[0][APART] && met[0][MET] && met[0][OUTLIVED]);
    CU_ASSERT(!met[1][APART] && met[1][MET] && met[1][OUTLIVED]);
    fixture = usual;
}

/* The VOID record is durable before the first write in place after it, whenever power fails. */
static void test_crash(void)
{
    for (int keyframe = 0; keyframe < 2; keyframe++) {
        struct plx_vdi *vdi = make_hot(QUIET_NS);

        pass_time(5 * QUIET_NS);
        CU_ASSERT_EQUAL(counters().blocks_vouched, 40);
        OK(write_byte(vdi, 5 * BLOCK, BLOCK, 6));
        if (keyframe)
            run(vdi, PLX_KEYFRAME, 0, 0);
        OK(write_byte(vdi, 5 * BLOCK, BLOCK, 7));
        plx_vdi_abandon(vdi);
        crash_store();
        OK(try_open_vdi(0, true, &vdi));
        CU_ASSERT(reads_as(vdi, 5 * BLOCK, BLOCK, 7));
        CU_ASSERT(reads_as(vdi, 3 * BLOCK, BLOCK, 3));
        OK(write_byte(vdi, 5 * BLOCK, BLOCK, 1));
        CU_ASSERT(has_contents(vdi));
        end_hot(vdi);
    }
}

/* After a flush that failed block 3 reads as 9 for as long as there is power; what of it is durable
 * depends on the seed. */
static struct plx_vdi *make_dropped(uint64_t seed)
{
    struct plx_vdi *vdi;

    fixture.disk.volatile_cache = true;
    fixture.disk.seed = seed;
    vdi = make_hot(QUIET_NS);
    plx_vdi_set_write_back(vdi, true);
    OK(write_byte(vdi, 3 * BLOCK, BLOCK, 9));
    plx_simdisk_drop_flush(disk, 1);
    CU_ASSERT_NOT_EQUAL(try_run(vdi, PLX_FLUSH, 0, 0, NULL), 0);
    kill_store();
    OK(plx_vdi_open(
        store,
        &(struct plx_vdi_open_options){
            .slot = 0, .epoch = ++epoch, .take_over = true, .overwrite = -1, .quiet_ns = QUIET_NS},
        &vdi, &fault));
    return vdi;
}

/* VOUCH-3: whoever opens the disk by then, what is noted has been written again. */
static void test_doubt(void)
{
    const struct fixture usual = fixture;

    for (unsigned i = 0; i < 16; i++) {
        struct plx_vdi *vdi = make_dropped(1 + i / 2);

        if (i % 2) {
            OK(plx_vdi_close(vdi));
            vdi = open_quiet(0, QUIET_NS);
        }
        CU_ASSERT(reads_as(vdi, 3 * BLOCK, BLOCK, 9));
        pass_time(5 * QUIET_NS);
        CU_ASSERT_EQUAL(counters().blocks_vouched, 40);
        CU_ASSERT_EQUAL(counters().blocks_in_place, 40);
        pass_time(5 * QUIET_NS); /* once is enough */
        CU_ASSERT_EQUAL(counters().blocks_in_place, 40);
        CU_ASSERT_EQUAL(unvouched(vdi), 0);
        OK(plx_vdi_close(vdi));
        lose_power();
        vdi = open_quiet(0, QUIET_NS);
        CU_ASSERT(reads_as(vdi, 3 * BLOCK, BLOCK, 9));
        OK(write_byte(vdi, 3 * BLOCK, BLOCK, 3));
        CU_ASSERT(has_contents(vdi));
        end_hot(vdi);
    }
    fixture = usual;
}

/* VOUCH-3: what is written again while a flush fails is not noted; and of what a snapshot sees
 * nothing is written again. */
static void test_doubt_stays(void)
{
    struct plx_vdi *vdi = make_hot(QUIET_NS);

    run(vdi, PLX_SNAPSHOT, 0, 0);
    store->flush_failures++;
    pass_time(5 * QUIET_NS);
    CU_ASSERT_EQUAL(counters().blocks_vouched, 0);
    CU_ASSERT_EQUAL(plx_store_due_ns(store), UINT64_MAX);
    OK(write_byte(vdi, 3 * BLOCK, BLOCK, 3));
    pass_time(5 * QUIET_NS);
    CU_ASSERT_EQUAL(unvouched(vdi), 39); /* that one has another place now */
    CU_ASSERT(has_contents(vdi));
    end_hot(vdi);
}

/* What cannot be read is passed over, and the rest of the disk is not. */
static void test_unreadable(void)
{
    struct plx_vdi *vdi = make_hot(QUIET_NS);
    struct plx_mapping mapping;
    struct plx_walk walk = {0};
    struct plx_task task = {0};

    run(vdi, PLX_KEYFRAME, 0, 0);
    OK(plx_map_lookup(&vdi->map, 3, &walk, &task, &mapping));
    plx_simdisk_fail_range(disk, mapping.addr * BLOCK, BLOCK, true, false);
    pass_time(5 * QUIET_NS);
    CU_ASSERT_EQUAL(counters().blocks_vouched, 20);
    plx_simdisk_heal(disk);
    pass_time(5 * QUIET_NS);
    CU_ASSERT_EQUAL(counters().blocks_vouched, 40);
    CU_ASSERT(has_contents(vdi));
    end_hot(vdi);
}

/* VOUCH-2: nothing is noted while there is no room for a key frame of it beside all the rest. Once
 * there is, it is made up for. */
static void test_low_space(void)
{
    struct plx_vdi *vdi = make_hot(QUIET_NS);
    uint64_t left = 0;

    run(vdi, PLX_KEYFRAME, 0, 0);
    eat_segments();
    while (plx_vdi_metadata_room(vdi, 20)) { /* of the key frame alone, then of a leaf's blocks */
        pass_time(5 * QUIET_NS);
        CU_ASSERT_EQUAL(counters().blocks_vouched, 0);
        OK(write_byte(vdi, 3 * BLOCK, BLOCK, 3)); /* in place */
        CU_ASSERT_FATAL(left || eaten_count);
        if (!left) {
            eaten_count--;
            left = store->info.segment_blocks;
        }
        plx_alloc_free(store, eaten[eaten_count] + --left, 1);
        OK(plx_bitmap_sync_run(store)); /* or it is not yet free */
    }
    pass_time(5 * QUIET_NS);
    CU_ASSERT_EQUAL(counters().blocks_vouched, 40);
    plx_alloc_free(store, eaten[eaten_count], left);
    give_segments_back();
    CU_ASSERT_EQUAL(unvouched(vdi), 0);
    CU_ASSERT(has_contents(vdi));
    end_hot(vdi);
}

/* A disk whose last block is not whole, and one of which nearly nothing is mapped. */
static void test_ends(void)
{
    struct plx_vdi *vdi;

    make_store(64 * MIB, MIB);
    OK(create_vdi(0, 5 * BLOCK + 512));
    OK(create_vdi(1, 200ull << 40));
    for (uint32_t slot = 0; slot < 2; slot++) {
        uint64_t size = slot ? 200ull << 40 : 5 * BLOCK + 512;

        vdi = open_quiet(slot, QUIET_NS);
        for (int i = 1; i < 3; i++) {
            OK(write_byte(vdi, size - 512, 512, i));
            OK(write_byte(vdi, 0, BLOCK, i));
        }
        CU_ASSERT(unvouched(vdi) > 0);
        pass_time(20 * QUIET_NS);
        if (slot) /* so large a disk's pass takes its time */
            pass_time(400 * QUIET_NS);
        CU_ASSERT_EQUAL(unvouched(vdi), 0);
        CU_ASSERT(reads_as(vdi, size - 512, 512, 2));
        OK(plx_vdi_close(vdi));
    }
    check_store(true);
    end_store();
}

static void test_refused(void)
{
    struct plx_vdi *vdi = make_hot(QUIET_NS);

    FAILS(INVALID, try_run(vdi, PLX_VOUCH, 0, BLOCK, NULL));
    end_hot(vdi);
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"quiet blocks", test_quiet},
        {"damage is found again", test_damage},
        {"hot leaves", test_hot},
        {"busy disks", test_busy},
        {"rate", test_rate},
        {"off", test_off},
        {"seen by a snapshot", test_shared},
        {"noted, not yet in a key frame", test_noted},
        {"beside a key frame", test_keyframe},
        {"power fails", test_crash},
        {"in doubt", test_doubt},
        {"what stays in doubt", test_doubt_stays},
        {"unreadable blocks", test_unreadable},
        {"low space", test_low_space},
        {"the ends of disks", test_ends},
        {"nobody else may ask for it", test_refused},
    };

    return SUITE_RUN("vouch", tests);
}
