/* test_reserve.c - a store that is full of metadata: the disks that were open when power failed all
 * open again, together, before anybody collects (reserve.h); and what that must not cost.
 */
#include <stdio.h>
#include <string.h>

#include "engine/disk/reserve.h"
#include "engine/disk/vdi.h"
#include "engine/space/allocator_inside.h"
#include "ok.h"
#include "suite.h"
#include "unit/fixture.h"

#define DISKS 10u
#define PLACES 8192u /* of a disk, a block each */
#define REFUSALS 100u
#define WRITERS 24u
#define LEAVES 128u
#define SECOND 1000000000ull
#define TORN 255u /* overwritten in place when power failed: each sector is old or new */

/* What is done until the store is full, and after. */
struct shape {
    const char *name;
    uint64_t apart; /* blocks from one place to the next: 1, or a leaf's, and the disk is large */
    unsigned snapshot_every; /* writes; 0: none is taken */
    bool unmaps, in_order;
};

static const struct shape shapes[] = {
    {"small", 1, 0, false, false},
    {"small, unmaps", 1, 0, true, false},
    {"small, snapshots", 1, 3, false, false},
    {"small, snapshots, unmaps", 1, 19, true, false},
    {"small, in order, snapshots", 1, 50, true, true},
    {"large", 512, 0, false, false},
    {"large, unmaps", 512, 0, true, false},
    {"large, snapshots", 512, 7, false, false},
    {"large, snapshots, unmaps", 512, 33, true, false},
    {"large, in order", 512, 20, true, true},
};

static const struct shape *shape;
static struct plx_vdi *vdis[DISKS];
static uint8_t model[DISKS][PLACES]; /* what was acknowledged, or TORN */
static unsigned next_place[DISKS];
static struct {
    unsigned disk;
    uint64_t place;
    uint8_t byte;
} last; /* what was asked for last: it is there or not, if that was not answered */
static uint64_t random_state;

static uint64_t below(uint64_t n)
{
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return (random_state >> 33) % n;
}

static uint64_t offset_of(uint64_t place)
{
    return place * shape->apart * BLOCK;
}

static void note(unsigned i, uint64_t place, int error, uint8_t byte)
{
    CU_ASSERT(!error || error == PLX_ERR_NOSPACE || power.off);
    last.disk = i;
    last.place = place;
    last.byte = error && !power.off ? model[i][place] : byte;
    if (!error)
        model[i][place] = byte;
}

static int write_one(void)
{
    unsigned i = (unsigned)below(DISKS);
    uint64_t place = shape->in_order ? next_place[i]++ % PLACES : below(PLACES);
    uint8_t byte = (uint8_t)(1 + below(TORN - 1));
    int error = write_byte(vdis[i], offset_of(place), BLOCK, byte);

    note(i, place, error, byte);
    return error;
}

static void unmap_one(void)
{
    unsigned i = (unsigned)below(DISKS);
    uint64_t place = below(PLACES);

    note(i, place, try_run(vdis[i], PLX_UNMAP, offset_of(place), BLOCK, NULL), 0);
}

static void make_disks(void)
{
    memset(model, 0, sizeof model);
    memset(next_place, 0, sizeof next_place);
    fixture.format.segment_bytes = 64u << 10;
    make_store(64 * MIB, MIB);
    registry.reserve = 4;
    for (uint32_t i = 0; i < DISKS; i++) {
        OK(create_vdi(i, PLACES * shape->apart * BLOCK));
        OK(try_open_vdi(i, false, &vdis[i]));
    }
}

/* Until writes have been refused for a while; snapshots and unmaps go on for as long as they can.
 * Or until power fails. */
static void fill_up(void)
{
    unsigned refused = 0;

    for (unsigned n = 0; refused < REFUSALS && !power.off; n++) {
        refused += write_one() != 0;
        if (shape->snapshot_every && n % shape->snapshot_every == 0 && !power.off)
            try_run(vdis[below(DISKS)], PLX_SNAPSHOT, 0, 0, NULL);
        if (shape->unmaps && refused && n % 4 == 0 && !power.off)
            unmap_one();
        if (n % 1000 == 0)
            env.ns += SECOND;
    }
}

/* What was asked for last. */
static uint8_t settle(unsigned i, uint64_t offset, uint8_t byte)
{
    bool torn = false;

    OK(try_run(vdis[i], PLX_READ, offset, BLOCK, NULL));
    for (unsigned k = 0; k < BLOCK; k++) {
        CU_ASSERT(buffer[k] == byte || buffer[k] == last.byte);
        torn = torn || buffer[k] != buffer[0];
    }
    return torn ? TORN : buffer[0];
}

static void verify(unsigned i)
{
    for (uint64_t place = 0; place < PLACES; place++) {
        uint8_t byte = model[i][place];

        if (last.disk == i && last.place == place)
            model[i][place] = settle(i, offset_of(place), byte);
        else if (byte ? byte != TORN : place % 16 == 0)
            CU_ASSERT_FATAL(reads_as(vdis[i], offset_of(place), BLOCK, byte));
    }
}

/* As many snapshots go as can: then there is room. */
static void let_go(unsigned i)
{
    struct plx_vdi_info info;
    struct plx_thinned thinned;

    plx_vdi_get_info(vdis[i], &info);
    if (info.snapshots > 1)
        OK(plx_vdi_thin(vdis[i], &(struct plx_thin){.upto = info.snapshots - 1}, &thinned, &fault));
}

static void recover_all(void)
{
    for (uint32_t i = 0; i < DISKS && !power.off; i++) {
        int error = try_open_vdi(i, true, &vdis[i]);

        if (error == PLX_ERR_FENCED) /* its key frame was durable when power failed */
            error = try_open_vdi(i, true, &vdis[i]);
        CU_ASSERT_FATAL(!error || power.off);
    }
}

static void close_all(void)
{
    for (uint32_t i = 0; i < DISKS; i++)
        OK(plx_vdi_close(vdis[i]));
}

static void end(void)
{
    close_all();
    check_store(true);
    end_store();
}

/* There is room once what nobody maps is collected. */
static void use_again(void)
{
    uint64_t blocks;

    env.ns += 5 * SECOND;
    OK(plx_simenv_collect(&env, &blocks, &fault));
    run(vdis[0], PLX_UNMAP, 0, PLACES * shape->apart * BLOCK);
    memset(model[0], 0, sizeof model[0]);
    OK(write_byte(vdis[0], 0, BLOCK, 7));
    model[0][0] = 7;
    verify(0);
}

/* All at once; and again, for the next power cut comes soon: `after` events into recovery, or when
 * that is through. */
static void crash(uint64_t after)
{
    crash_store();
    power.crash_at = after ? power.events + after : 0;
    recover_all();
    power.crash_at = 0;
    crash_store();
    recover_all();
    for (uint32_t i = 0; i < DISKS; i++)
        verify(i);
    crash_store();
    recover_all();
    for (uint32_t i = 0; i < DISKS; i++)
        let_go(i);
    use_again();
    end();
}

static void test_crash(void)
{
    for (unsigned s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        shape = &shapes[s];
        random_state = s + 1;
        make_disks();
        fill_up();
        crash(0);
    }
}

/* Power fails while it fills, late rather than early, and the second time within recovery. */
static void test_crash_anywhere(void)
{
    for (unsigned s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        uint64_t events;

        shape = &shapes[s];
        random_state = s + 1;
        make_disks();
        fill_up();
        events = power.events;
        close_all();
        end_store();
        for (unsigned cut = 0; cut < 4; cut++) {
            uint64_t at = events - 1 - (events / 3) * cut / 4 - below(events / 12);

            random_state = s + 1;
            make_disks();
            power.crash_at = at;
            fill_up();
            CU_ASSERT_TRUE(power.off);
            power.crash_at = 0;
            crash(1 + below(400));
        }
    }
}

/* As attach.c does it: all are recovered and closed, then opened for use, the first of them under
 * load by the time that the last one is. */
static void test_one_by_one(void)
{
    shape = &shapes[0];
    random_state = 3;
    make_disks();
    fill_up();
    crash_store();
    for (uint32_t i = 0; i < DISKS; i++) {
        OK(try_open_vdi(i, true, &vdis[i]));
        OK(plx_vdi_close(vdis[i]));
    }
    OK(try_open_vdi(0, false, &vdis[0]));
    for (unsigned place = 0; place < PLACES; place++)
        note(0, place, write_byte(vdis[0], offset_of(place), BLOCK, 1), 1);
    for (uint32_t i = 1; i < DISKS; i++)
        OK(try_open_vdi(i, false, &vdis[i]));
    for (uint32_t i = 0; i < DISKS; i++)
        verify(i);
    end();
}

/* A disk without room to be closed is not opened: it stays as it is. */
static void test_no_room_to_close(void)
{
    uint64_t taken, one;
    struct plx_vdi *vdi;

    fixture.format.segment_bytes = 64u << 10;
    vdi = make_with_vdi(64 * MIB, MIB, 32 * MIB);
    OK(write_byte(vdi, 0, BLOCK, 1));
    run(vdi, PLX_SNAPSHOT, 0, 0); /* its log stays */
    OK(plx_vdi_close(vdi));
    registry.limit = registry.granted;
    while (plx_alloc_run(store, PLX_EXTENT_META, 1, NULL, &taken, &one) == 0)
        ;
    CU_ASSERT_EQUAL(try_open_vdi(0, false, &vdi), PLX_ERR_NOSPACE);
    registry.limit = 0;
    env.ns += 5 * SECOND;
    vdi = open_vdi(0);
    CU_ASSERT(reads_as(vdi, 0, BLOCK, 1));
    OK(plx_vdi_close(vdi));
    check_store(true);
    end_store();
}

/* ---- How it counts ---- */

static uint64_t left(void)
{
    for (struct plx_vdi *v = store->vdis; v; v = v->next)
        plx_reserve_count(v);
    return counters().meta_free_blocks - counters().recovery_blocks;
}

static void change_leaves(struct plx_vdi *vdi, unsigned leaves)
{
    for (unsigned i = 0; i < leaves; i++)
        OK(write_byte(vdi, i * 2 * MIB, BLOCK, 1));
}

/* RESERVE-2: what was freed may be taken only when it would be free after a crash, too. */
static void test_freed(void)
{
    struct plx_vdi *vdi;
    uint64_t room;

    fixture.format.segment_bytes = 64u << 10;
    vdi = make_with_vdi(64 * MIB, MIB, 1024 * MIB);
    for (unsigned i = 0; i < 2; i++) {
        change_leaves(vdi, 300);
        run(vdi, PLX_SNAPSHOT, 0, 0);
        run(vdi, PLX_UNMAP, 0, 600 * MIB);
        run(vdi, PLX_KEYFRAME, 0, 0);
    }
    change_leaves(vdi, 300);
    run(vdi, PLX_KEYFRAME, 0, 0);
    change_leaves(vdi, 300);
    run(vdi, PLX_UNMAP, 0, BLOCK);
    run(vdi, PLX_KEYFRAME, 0, 0);
    CU_ASSERT(store->allocator->freed.blocks > 0);
    room = left();
    CU_ASSERT_FALSE(plx_reserve_room(vdi, 0, room));
    CU_ASSERT_TRUE(plx_reserve_room(vdi, 0, room - store->allocator->freed.blocks));
    OK(plx_bitmap_sync_run(store));
    CU_ASSERT_TRUE(plx_reserve_room(vdi, 0, room));
    CU_ASSERT_FALSE(plx_reserve_room(vdi, 0, room + 1));
    OK(plx_vdi_close(vdi));
    check_store(false);
    end_store();
}

/* A key frame that the crash cuts short leaves its nodes allocated: another disk's has had the
 * bitmaps written. There is room for it a second time. */
static void test_cut_short(void)
{
    enum { CHANGED = 80 };
    struct plx_vdi *vdi;
    uint64_t one, count, nodes;

    fixture.format.segment_bytes = 64u << 10;
    vdi = make_with_vdi(64 * MIB, MIB, 1024 * MIB);
    change_leaves(vdi, CHANGED);
    registry.limit = registry.granted;
    OK(plx_bitmap_sync_run(store));
    while (left() > 0)
        OK(plx_alloc_run(store, PLX_EXTENT_META, 1, NULL, &one, &count));
    nodes = counters().keyframe_nodes;
    plx_keyframe_request(vdi, NULL);
    while (counters().keyframe_nodes - nodes < CHANGED &&
           vdi->map.active.count + vdi->map.is_frozen)
        if (!plx_store_tick(store))
            plx_store_wait(store);
    CU_ASSERT_EQUAL(left(), 0);
    OK(plx_bitmap_sync_run(store));
    crash_store();
    OK(try_open_vdi(0, true, &vdi));
    crash_store();
    OK(try_open_vdi(0, true, &vdi));
    for (unsigned i = 0; i < CHANGED; i++)
        CU_ASSERT(reads_as(vdi, i * 2 * MIB, BLOCK, 1));
    OK(plx_vdi_close(vdi));
    check_store(true);
    end_store();
}

/* ---- What it must not cost ---- */

static uint64_t used_blocks(void)
{
    struct plx_extent_info info;
    uint64_t used = 0;

    for (size_t i = 0; plx_store_extent_owned(store, i, &info) == 0; i++)
        used += info.used_blocks;
    return used;
}

/* Large disks written at random: each change a leaf of its own. The reserve takes little of the
 * store, for key frames come first: no write is refused as long as a quarter of it is free. */
static void test_large_disks(void)
{
    enum { LARGE = 32 };
    const uint64_t blocks = 256 * MIB / BLOCK, size = 2048 * MIB;
    struct plx_vdi *large[LARGE];
    uint64_t used = 0;

    fixture.format.segment_bytes = 64u << 10;
    make_store(256 * MIB, MIB);
    registry.reserve = 8;
    random_state = 1;
    for (uint32_t i = 0; i < LARGE; i++) {
        OK(create_vdi(i, size));
        large[i] = open_vdi(i);
    }
    for (unsigned n = 0; used < blocks / 4 * 3; n++) {
        CU_ASSERT_EQUAL_FATAL(
            write_byte(large[below(LARGE)], below(size / BLOCK) * BLOCK, BLOCK, 1), 0);
        used = n % 64 ? used : used_blocks();
    }
    for (uint32_t i = 0; i < LARGE; i++)
        OK(plx_vdi_close(large[i]));
    check_store(false);
    end_store();
}

/* More disks than the store is large for, of which most is free: what each of them needs in any
 * case is claimed, and is no reason for key frames. */
static void test_many_disks(void)
{
    enum { MANY = 64, WRITES = 12800 };
    const uint64_t size = 4096 * MIB;
    struct plx_vdi *many[MANY];
    uint64_t before;

    fixture.format.segment_bytes = MIB;
    make_store(1024 * MIB, 8 * MIB);
    registry.reserve = 8;
    random_state = 1;
    for (uint32_t i = 0; i < MANY; i++) {
        OK(create_vdi(i, size));
        many[i] = open_vdi(i);
    }
    before = counters().keyframes;
    for (unsigned n = 0; n < WRITES; n++)
        CU_ASSERT_EQUAL_FATAL(write_byte(many[n % MANY], below(size / BLOCK) * BLOCK, BLOCK, 1), 0);
    CU_ASSERT(counters().keyframes - before < WRITES / 100);
    for (uint32_t i = 0; i < MANY; i++)
        OK(plx_vdi_close(many[i]));
    check_store(false);
    end_store();
}

/* Bitmap pages that cannot be written end in errors: what a pass that fails would free is not
 * waited for again. When they can be written, there is room. */
static void test_pass_fails(void)
{
    static const struct shape unmapping = {"passes fail", 512, 0, true, false};
    unsigned failed = 0;

    shape = &unmapping;
    random_state = 5;
    make_disks();
    fill_up();
    for (uint64_t e = 0; e < registry.count; e++)
        if (plx_store_extent_is_owned(store, e))
            plx_simdisk_fail_range(disk, e * MIB, (uint64_t)2 * BLOCK, false, true);
    for (unsigned n = 0; n < 50; n++) {
        env.ns += 2 * SECOND;
        failed += write_one() != 0;
        unmap_one();
    }
    CU_ASSERT(failed > 0);
    CU_ASSERT(plx_simdisk_counters(disk)->errors < 50 * 100); /* none went round in circles */
    CU_ASSERT(store->allocator->freed.blocks > 0);
    plx_simdisk_heal(disk);
    use_again();
    for (uint32_t i = 0; i < DISKS; i++)
        verify(i);
    end();
}

/* A collection beside writes to many disks, in a store of which most is free: key frames make the
 * room, and what the collection holds back is left alone (RESERVE-6). */
static struct {
    struct plx_vdi *vdi;
    struct plx_request request;
    struct iovec iov;
    bool busy;
} writers[WRITERS];
static unsigned written;

static void wrote(struct plx_request *request)
{
    CU_ASSERT_EQUAL(request->result, 0);
    *(bool *)request->owner = false;
    written++;
}

static void write_beside(struct plx_simenv *e)
{
    for (unsigned i = 0; i < WRITERS; i++) {
        if (writers[i].busy)
            continue;
        writers[i].busy = true;
        writers[i].iov = (struct iovec){buffer, BLOCK};
        writers[i].request = (struct plx_request){.op = PLX_WRITE,
                                                  .offset = below(LEAVES) * 2 * MIB,
                                                  .length = BLOCK,
                                                  .iov = &writers[i].iov,
                                                  .iovcnt = 1,
                                                  .done = wrote,
                                                  .owner = &writers[i].busy};
        plx_vdi_submit(writers[i].vdi, &writers[i].request);
    }
}

static void test_collection(void)
{
    enum { LARGE = 4096 };
    struct plx_vdi *large;
    uint64_t blocks;

    fixture.format.segment_bytes = MIB;
    make_store(512 * MIB, 16 * MIB);
    random_state = 7;
    for (uint32_t i = 0; i < WRITERS; i++) {
        OK(create_vdi(i, LEAVES * 2 * MIB));
        writers[i].vdi = open_vdi(i);
        change_leaves(writers[i].vdi, LEAVES);
        run(writers[i].vdi, PLX_SNAPSHOT, 0, 0);
    }
    OK(create_vdi(WRITERS, LARGE * 2 * MIB)); /* takes a while to be read */
    large = open_vdi(WRITERS);
    change_leaves(large, LARGE);
    run(large, PLX_KEYFRAME, 0, 0);
    written = 0;
    env.on_tick = write_beside;
    OK(plx_simenv_collect(&env, &blocks, &fault));
    env.on_tick = NULL;
    CU_ASSERT(written > WRITERS);
    for (unsigned i = 0; i < WRITERS; i++)
        OK(plx_vdi_close(writers[i].vdi));
    OK(plx_vdi_close(large));
    CU_ASSERT(registry.granted < registry.count / 2);
    check_store(true);
    end_store();
}

/* What it is for. */
static void test_figures(void)
{
    const uint64_t gib = 1024 * MIB;
    struct plx_vdi *vdi;

    fixture.format.segment_bytes = MIB;
    vdi = make_with_vdi(gib, 16 * MIB, 1024 * gib);
    CU_ASSERT_EQUAL(counters().recovery_blocks, 12); /* the index of its log: 48 KiB */
    OK(write_byte(vdi, 0, BLOCK, 1));
    CU_ASSERT(counters().recovery_blocks < 40); /* and the way to two leaves */
    OK(plx_vdi_close(vdi));
    CU_ASSERT_EQUAL(counters().recovery_blocks, 0);
    end_store();
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"a crash of a store full of metadata", test_crash},
        {"a crash while it fills, and one while that is recovered", test_crash_anywhere},
        {"recovered, then opened one by one", test_one_by_one},
        {"no room to close", test_no_room_to_close},
        {"freed, but not for who recovers", test_freed},
        {"a key frame cut short", test_cut_short},
        {"large disks and a store half free", test_large_disks},
        {"many disks in a small store", test_many_disks},
        {"bitmap pages that cannot be written", test_pass_fails},
        {"a collection beside writes", test_collection},
        {"figures", test_figures},
    };

    return SUITE_RUN("reserve", tests);
}
