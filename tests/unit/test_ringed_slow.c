/* test_ringed_slow.c - a disk with a write-back ring that has much that the store lacks: writers
 * are slowed until it has little, what cannot be read back from it any more is told, and what is
 * discarded is gone at once or not at all, wherever the power fails.
 */
#include "engine/ring/ringed_inside.h"
#include "ok.h"
#include "suite.h"
#include "unit/ringed_world.h"

#define WRITE_BYTES (14ull * BLOCK)
#define WRITERS 4u

static bool none_goes; /* to the store (TICK-6) */

static bool writes_wait(struct plx_env *unused, uint64_t since_ns)
{
    return none_goes;
}

/* So many writes are acknowledged, and the store has none of them. */
static void fill_ring(unsigned writes, uint64_t bytes)
{
    env.env.writes_wait = writes_wait;
    OK(plx_ringed_on(ringed, &fault));
    some_turns(50); /* room is claimed ahead */
    none_goes = true;
    for (unsigned i = 0; i < writes; i++)
        OK(write_byte(vdi, i * bytes % (BLOCKS / 14 * WRITE_BYTES), bytes, 1 + (int)i));
    CU_ASSERT_EQUAL_FATAL(info_of().records, writes);
}

static uint64_t write_bytes = WRITE_BYTES;

static void write_again(struct sent *writer, unsigned number)
{
    memset(writer->memory, (int)number, write_bytes);
    submit(writer, PLX_WRITE, number % 16 * WRITE_BYTES, write_bytes, write_bytes);
}

static void begin_writers(struct sent writers[WRITERS], unsigned *number)
{
    for (unsigned i = 0; i < WRITERS; i++) {
        writers[i].memory = malloc(WRITE_BYTES);
        write_again(&writers[i], (*number)++);
    }
}

/* Those that were acknowledged write again. */
static unsigned turn_writers(struct sent writers[WRITERS], unsigned *number)
{
    unsigned acknowledged = 0;

    for (unsigned i = 0; i < WRITERS; i++)
        if (!writers[i].under_way) {
            OK(writers[i].request.result);
            write_again(&writers[i], (*number)++);
            acknowledged++;
        }
    turn();
    return acknowledged;
}

static void end_writers(struct sent writers[WRITERS])
{
    for (unsigned i = 0; i < WRITERS; i++) {
        while (writers[i].under_way)
            turn();
        OK(writers[i].request.result);
        free(writers[i].memory);
    }
}

/* While the ring is turned off, writers go on, at half of what is drained: so they cannot keep it
 * from getting empty. */
static void test_slowed(void)
{
    struct sent writers[WRITERS];
    uint64_t drained, written = 0;
    unsigned number = 0;

    ring_segments = 128;
    fixture.open.ops_per_vdi = 8; /* a write that is carried takes up twice its room (ALLOC-8) */
    make(81);
    fill_ring(60, WRITE_BYTES);
    plx_ringed_turn(ringed, false);
    turn();
    CU_ASSERT_EQUAL_FATAL(ringed->state, PLX_RINGED_SLOW);
    CU_ASSERT_FATAL(info_of().bytes > PLX_RINGED_LAST_BYTES + 8 * WRITE_BYTES);
    drained = ringed->drain.bytes;
    none_goes = false;
    begin_writers(writers, &number);
    while (ringed->state == PLX_RINGED_SLOW) {
        written += turn_writers(writers, &number) * WRITE_BYTES;
        CU_ASSERT(written <= (ringed->drain.bytes - drained) / 2 + WRITERS * WRITE_BYTES);
    }
    CU_ASSERT(written > 0); /* they were not stopped */
    OK(plx_ringed_off(ringed, &fault));
    CU_ASSERT(!is_marked());
    end_writers(writers);
    for (unsigned i = number - WRITERS; i < number; i++)
        CU_ASSERT(reads_as(vdi, i % 16 * WRITE_BYTES, WRITE_BYTES, (int)(uint8_t)i));
    close_disk();
    end(false);
    ring_segments = SEGMENTS;
    fixture.open.ops_per_vdi = 0;
}

/* RINGED_REQUESTS-6. The store is slower than the writers, and the ring nearly full all the time:
 * it never is full. */
static void test_paced(void)
{
    struct sent writers[WRITERS];
    unsigned number = 0, written = 0, waited = 0, longest = 0, scarce = 0, full = 0;

    ring_segments = 128;
    fixture.open.ops_per_vdi = 8;
    write_bytes = BLOCK;
    make(83);
    fill_ring(400, BLOCK);
    none_goes = false;
    begin_writers(writers, &number);
    for (unsigned turns = 0; turns < 6000; turns++) {
        unsigned acknowledged;

        none_goes = turns % 16 > 1; /* a slow store */
        acknowledged = turn_writers(writers, &number);

        written += acknowledged;
        waited = acknowledged ? 0 : waited + 1;
        longest = waited > longest ? waited : longest;
        scarce += ringed->scarce;
        full += ringed->full;
    }
    printf(
        "%u written in 6000 turns, %u of them with little room, %u full, at most %u turns apart ",
        written, scarce, full, longest);
    none_goes = false;
    CU_ASSERT(scarce > 1000);
    CU_ASSERT_EQUAL(full, 0);
    end_writers(writers);
    close_disk();
    end(false);
    ring_segments = SEGMENTS;
    write_bytes = WRITE_BYTES;
    fixture.open.ops_per_vdi = 0;
}

/* RINGED_REQUESTS-6. While the store takes nothing, the ring is filled to its end. */
static void test_filled(void)
{
    struct sent writers[WRITERS];
    unsigned number = 0, scarce = 0;

    ring_segments = 64;
    fixture.open.ops_per_vdi = 8;
    make(84);
    fill_ring(4, WRITE_BYTES);
    begin_writers(writers, &number);
    for (unsigned turns = 0; turns < 2000 && !ringed->full; turns++) {
        turn_writers(writers, &number);
        scarce += ringed->scarce;
    }
    CU_ASSERT(scarce > 0);
    CU_ASSERT(ringed->full);
    CU_ASSERT(info_of().records >= 60);
    none_goes = false;
    end_writers(writers);
    close_disk();
    end(false);
    ring_segments = SEGMENTS;
    fixture.open.ops_per_vdi = 0;
}

/* RINGED_DRAIN-4. What is before it is on the store, and what is lost is told with its number. */
static void test_lost_on_ring(void)
{
    const struct plx_ringed_record *record;
    uint64_t place;
    char text[64];

    memory_limit = 1; /* what is not to be drained soon is read back */
    fixture.open.ops_per_vdi = 8;
    make(82);
    fill_ring(40, BLOCK);
    for (record = ringed->first; record->seq < 31; record = record->next)
        continue;
    place = record->place.offset;
    plx_simdisk_flip(ring_disk, place, 1);
    none_goes = false;
    while (!vdi->log.sticky)
        turn();
    CU_ASSERT_EQUAL(plx_simenv_heard(&env, "record 31 cannot be read back from its ring"), 1);
    snprintf(text, sizeof text, "%u writes that were acknowledged", 10);
    CU_ASSERT_EQUAL(plx_simenv_heard(&env, text), 1);
    CU_ASSERT(is_marked());
    FAILS(STICKY, write_byte(vdi, 0, BLOCK, 99));
    for (unsigned i = 0; i < 30; i++)
        CU_ASSERT(reads_as(vdi, i * BLOCK, BLOCK, 1 + (int)i));
    die();
    open_ring();
    FAILS(CORRUPT, try_open(true)); /* what is behind it was acknowledged */
    plx_simdisk_flip(ring_disk, place, 1);
    OK(try_open(true));
    OK(plx_ringed_off(ringed, &fault));
    for (unsigned i = 0; i < 40; i++)
        CU_ASSERT(reads_as(vdi, i * BLOCK, BLOCK, 1 + (int)i));
    close_disk();
    end(true);
    memory_limit = 0;
    fixture.open.ops_per_vdi = 0;
}

/* ---- Read in parts ---- */

static uint64_t bytes_read(void)
{
    return plx_simdisk_counters(ring_disk)->read_bytes;
}

/* Whether this is read, and how much that reads of the ring. */
static void check_read(uint64_t offset, uint64_t length, int byte, uint64_t of_ring)
{
    uint64_t before = bytes_read();

    CU_ASSERT(reads_as(vdi, offset, length, byte));
    CU_ASSERT_EQUAL(bytes_read() - before, of_ring);
}

static uint64_t place_of(uint64_t seq, uint64_t block)
{
    const struct plx_ringed_record *record = ringed->first;

    while (record->seq < seq)
        record = record->next;
    return record->place.offset + block * BLOCK;
}

static int read_at(uint64_t offset, uint64_t length)
{
    return try_run(vdi, PLX_READ, offset, length, NULL);
}

/* The first writes are in memory, for they are drained next. The last ones begin at the disk's
 * first block again. */
#define WRITES 40u
#define SECOND 38 /* the record that begins at WRITE_BYTES, and its bytes */

/* RINGED_READ-2 */
static void check_parts(void)
{
    some_turns(50); /* what is drained next is read before */
    check_read(WRITE_BYTES + 3 * BLOCK, BLOCK, SECOND, BLOCK);
    check_read(WRITE_BYTES + 3 * BLOCK + SECTOR, SECTOR, SECOND, BLOCK);
    check_read(WRITE_BYTES + 2 * BLOCK + SECTOR, 2 * BLOCK, SECOND, 3 * BLOCK);
    check_read(WRITE_BYTES, WRITE_BYTES, SECOND, WRITE_BYTES);
    check_read(2 * WRITE_BYTES - BLOCK, BLOCK, SECOND, BLOCK);
    check_read(2 * WRITE_BYTES, BLOCK, SECOND + 1, BLOCK);
}

/* Of a record that is on the ring alone, what is asked for is read, and checked. */
static void test_parts(void)
{
    memory_limit = 1;
    ring_segments = 128;
    fixture.open.ops_per_vdi = 8;
    make(83);
    fill_ring(WRITES, WRITE_BYTES);
    check_parts();
    plx_simdisk_flip(ring_disk, place_of(SECOND, 3), 1);
    FAILS(CORRUPT, read_at(WRITE_BYTES + 3 * BLOCK, SECTOR));
    FAILS(CORRUPT, read_at(WRITE_BYTES + 2 * BLOCK, 2 * BLOCK));
    check_read(WRITE_BYTES + 4 * BLOCK, 2 * BLOCK, SECOND, 2 * BLOCK);
    plx_simdisk_flip(ring_disk, place_of(SECOND, 3), 1);
    check_read(WRITE_BYTES + 3 * BLOCK, BLOCK, SECOND, BLOCK);
    none_goes = false;
    die();
    open_ring();
    OK(try_open(true));
    none_goes = true;
    check_parts();
    none_goes = false;
    OK(plx_ringed_off(ringed, &fault));
    for (unsigned i = WRITES - BLOCKS / 14; i < WRITES; i++)
        check_read(i % (BLOCKS / 14) * WRITE_BYTES, WRITE_BYTES, 1 + (int)i, 0);
    close_disk();
    end(true);
    memory_limit = 0;
    ring_segments = SEGMENTS;
    fixture.open.ops_per_vdi = 0;
}

/* Of two members, whichever has the blocks. */
static void test_parts_mirrored(void)
{
    uint64_t at = WRITE_BYTES + 3 * BLOCK;

    memory_limit = 1;
    ring_segments = 128;
    fixture.open.ops_per_vdi = 8;
    mirrored = true;
    make(84);
    fill_ring(WRITES, WRITE_BYTES);
    plx_simdisk_flip(ring_disk, place_of(SECOND, 3), 1);
    CU_ASSERT(reads_as(vdi, at, BLOCK, SECOND));
    CU_ASSERT(reads_as(vdi, WRITE_BYTES, 5 * BLOCK, SECOND));
    plx_simdisk_flip(mirror_disk, place_of(SECOND, 3), 2);
    FAILS(CORRUPT, read_at(at, BLOCK));
    plx_simdisk_flip(ring_disk, place_of(SECOND, 3), 1);
    CU_ASSERT(reads_as(vdi, at, BLOCK, SECOND));
    none_goes = false;
    OK(plx_ringed_off(ringed, &fault));
    CU_ASSERT(reads_as(vdi, WRITE_BYTES, WRITE_BYTES, SECOND));
    close_disk();
    end(false);
    memory_limit = 0;
    ring_segments = SEGMENTS;
    fixture.open.ops_per_vdi = 0;
    mirrored = false;
}

static struct plx_device_ops holding;
static const struct plx_device_ops *ring_ops;
static struct plx_io *held_read;

static void hold_read(struct plx_device *device, struct plx_io *io)
{
    if (!held_read && io->op == PLX_IO_READ && io->bytes == BLOCK)
        held_read = io;
    else
        ring_ops->submit(device, io);
}

static void let_read_go(struct plx_device *device)
{
    ring_ops->submit(device, held_read);
    device->ops = ring_ops;
    held_read = NULL;
}

/* The ring is off, and a part of its last record is still being read: nobody wants it any more,
 * because the whole record came first. */
static struct plx_device *turn_off_beside_part(struct sent *read)
{
    struct plx_device *device = plx_ring_device(ring, 0);
    const struct plx_ringed_record *last = ringed->last;

    ring_ops = device->ops;
    holding = *ring_ops;
    holding.submit = hold_read;
    device->ops = &holding;
    *read = (struct sent){.memory = malloc(BLOCK)};
    submit(read, PLX_READ, last->block * BLOCK, BLOCK, BLOCK);
    for (unsigned i = 0; i < 100 && !held_read; i++)
        turn();
    CU_ASSERT_PTR_NOT_NULL_FATAL(held_read);
    none_goes = false;
    plx_ringed_turn(ringed, false);
    for (unsigned i = 0; i < 20000 && ringed->state != PLX_RINGED_OFF; i++)
        turn();
    CU_ASSERT_EQUAL_FATAL(ringed->state, PLX_RINGED_OFF);
    CU_ASSERT(ringed->loads == 1 && !read->under_way);
    free(read->memory);
    return device;
}

static void test_part_outlives(void)
{
    for (unsigned again = 0; again < 2; again++) {
        struct plx_device *device;
        struct sent read;

        memory_limit = 1;
        ring_segments = 128;
        fixture.open.ops_per_vdi = 8;
        make(85);
        fill_ring(24, WRITE_BYTES);
        some_turns(50);
        device = turn_off_beside_part(&read);
        if (again) {
            OK(write_byte(vdi, 0, BLOCK, 77));
            run(vdi, PLX_SNAPSHOT, 0, 0);
            OK(plx_ringed_on(ringed, &fault));
            CU_ASSERT_EQUAL(ringed->front.snapshots, vdi->map.gen_submitted);
            let_read_go(device);
            OK(write_byte(vdi, 0, BLOCK, 78));
            run(vdi, PLX_SNAPSHOT, 0, 0);
            OK(plx_ringed_off(ringed, &fault));
            close_disk();
        } else { /* it is closed just before the part has come */
            let_read_go(device);
            plx_ringed_close(ringed);
            CU_ASSERT_EQUAL(plx_ring_under_way(ring), 0);
            OK(plx_vdi_close(vdi));
        }
        end(!again);
    }
    memory_limit = 0;
    ring_segments = SEGMENTS;
    fixture.open.ops_per_vdi = 0;
}

/* ---- Discarded ---- */

#define DISCARDED 30u

static struct plx_uuid disk_id;

/* So many of the ring's writes, from the first one on, and none behind them. */
static bool holds_first(uint64_t writes)
{
    bool holds = true;

    for (uint64_t b = 0; b < DISCARDED; b++)
        holds &= reads_as(vdi, b * BLOCK, BLOCK, b < writes ? 2 : 1);
    return holds;
}

/* The store has 1 in all blocks, the ring 2; nobody has the disk open. */
static void make_undrained(uint64_t seed)
{
    overwrite = PLX_OVERWRITE_COPY;
    make(seed);
    OK(write_byte(vdi, 0, DISCARDED * BLOCK, 1));
    env.env.writes_wait = writes_wait;
    OK(plx_ringed_on(ringed, &fault));
    some_turns(50);
    none_goes = true;
    for (unsigned i = 0; i < DISCARDED; i++)
        OK(write_byte(vdi, i * BLOCK, BLOCK, 2));
    CU_ASSERT_EQUAL(info_of().records, DISCARDED);
    disk_id = vdi_info().id;
    plx_simpower_cut(&power);
    none_goes = false;
    plx_ringed_close(ringed);
    plx_vdi_abandon(vdi);
    close_ring();
    crash_store();
}

static int open_without_ring(void)
{
    const struct plx_vdi_open_options options = {
        .slot = 0, .epoch = ++epoch, .take_over = true, .overwrite = overwrite};

    return plx_vdi_open(store, &options, &vdi, &fault);
}

static int discard(void)
{
    int error = open_without_ring();

    if (!error)
        error = plx_ringed_discard(vdi, &fault);
    if (!error)
        error = plx_vdi_close(vdi);
    return error;
}

/* Whether the disk has all that the ring has; else it has nothing of it, and does not use it. */
static bool is_whole(void)
{
    int error = try_open(true);

    if (error) {
        CU_ASSERT_EQUAL(error, PLX_ERR_EXISTS);
        OK(open_without_ring());
        CU_ASSERT(!is_marked() && holds_first(0));
    } else {
        CU_ASSERT(is_marked() && holds_first(DISCARDED));
        plx_ringed_close(ringed); /* some of it may be drained */
    }
    plx_vdi_abandon(vdi);
    return !error;
}

/* The power of store and ring fails with the store's event `at` while the records are discarded.
 * False: that was over before. */
static bool discard_cut(uint64_t seed, uint64_t at, unsigned *states)
{
    uint64_t drained = 0;
    bool crashed, whole;

    make_undrained(seed);
    power.crash_at = power.events + at;
    discard();
    crashed = power.off;
    power.crash_at = 0;
    if (crashed) {
        plx_simpower_cut(&ring_power);
        plx_simpower_restore(&ring_power);
        crash_store();
    }
    open_ring();
    whole = is_whole();
    CU_ASSERT(crashed || !whole);
    states[whole]++;
    OK(discard()); /* it is repeated */
    OK(plx_ring_forget(ring, &disk_id, &fault));
    OK(try_open(false));
    CU_ASSERT(!is_marked());
    while (drained < DISCARDED && whole && reads_as(vdi, drained * BLOCK, BLOCK, 2))
        drained++;
    CU_ASSERT(holds_first(drained));
    OK(plx_ringed_on(ringed, &fault));
    OK(write_byte(vdi, 0, BLOCK, 3));
    OK(plx_ringed_off(ringed, &fault));
    CU_ASSERT(reads_as(vdi, 0, BLOCK, 3));
    close_disk();
    end(true);
    return crashed;
}

static void test_discard_cut(void)
{
    unsigned states[2] = {0};

    for (uint64_t seed = 1; seed <= 4; seed++)
        for (uint64_t at = 1; discard_cut(seed, at, states) && !CU_get_number_of_failures(); at++)
            continue;
    printf(" %u crash states ...", states[0] + states[1]);
    CU_ASSERT(states[0] > 4 && states[1] > 4 && states[0] + states[1] > 200);
}

/* No data can be written any more, but the log can. */
static void fail_data(void)
{
    struct plx_extent_info info;
    uint64_t first = 0, last = 0;

    for (size_t i = 0; plx_store_extent_owned(store, i, &info) == 0; i++) {
        if (info.type != PLX_EXTENT_DATA)
            continue;
        first = first ? plx_min_u64(first, info.number) : info.number;
        last = plx_max_u64(last, info.number);
    }
    for (size_t i = 0; plx_store_extent_owned(store, i, &info) == 0; i++)
        CU_ASSERT_FATAL(info.type == PLX_EXTENT_DATA || info.number < first || info.number > last);
    plx_simdisk_fail_range(disk, first * MIB, (last - first + 1) * MIB, false, true);
}

/* RINGED_DRAIN-2: the third time that a record's data cannot be written stops the disk. After two
 * it goes on. What was acknowledged is on the ring, and another opening drains it. */
static void test_written_thrice(void)
{
    for (unsigned stops = 0; stops < 2; stops++) {
        struct plx_ringed_record *record;

        make(60 + stops);
        OK(plx_ringed_on(ringed, &fault));
        some_turns(50);
        fail_data();
        OK(write_byte(vdi, 0, BLOCK, 5));
        record = ringed->first;
        for (unsigned i = 0; i < 1000 && record->failures < 2; i++) {
            env.ns += 10000000;
            turn();
        }
        CU_ASSERT(record->failures == 2 && !vdi->log.sticky && info_of().on);
        if (!stops)
            plx_simdisk_heal(disk);
        for (unsigned i = 0; i < 1000 && info_of().records && !vdi->log.sticky; i++) {
            env.ns += 10000000;
            turn();
        }
        CU_ASSERT_EQUAL(vdi->log.sticky, stops ? PLX_ERR_STICKY : 0);
        if (stops) {
            FAILS(STICKY, write_byte(vdi, BLOCK, BLOCK, 6));
            plx_simdisk_heal(disk);
            die();
            open_ring();
            OK(try_open(true));
        }
        OK(plx_ringed_off(ringed, &fault));
        CU_ASSERT(reads_as(vdi, 0, BLOCK, 5));
        close_disk();
        end(true);
    }
}

/* The ring's device hangs: writes wait, and nothing times out. What it has done is read, and
 * drained. */
static void test_ring_hangs(void)
{
    struct sent write;

    make(64);
    OK(plx_ringed_on(ringed, &fault));
    some_turns(50);
    none_goes = true;
    env.env.writes_wait = writes_wait;
    OK(write_byte(vdi, 0, BLOCK, 5));
    plx_simdisk_set_patience(ring_disk, 100);
    submit_byte(&write, 1, 1, 6);
    none_goes = false;
    for (unsigned i = 0; i < 6000; i++) {
        env.ns += 10000000;
        plx_store_tick(store);
    }
    CU_ASSERT(write.under_way && info_of().on && !vdi->log.sticky && !plx_ring_sticky(ring));
    CU_ASSERT_EQUAL(ringed->drain.bytes_left, 0);
    CU_ASSERT(reads_as(vdi, 0, BLOCK, 5));
    plx_simdisk_set_patience(ring_disk, 20);
    while (write.under_way)
        turn();
    OK(write.request.result);
    free(write.memory);
    OK(plx_ringed_off(ringed, &fault));
    CU_ASSERT(reads_as(vdi, BLOCK, BLOCK, 6));
    close_disk();
    end(false);
}

/* The ring is full, and the store has all of it: only a key frame makes room, and none can be
 * written. Then the store takes nothing at all. The disk does not stop, and goes on afterwards. */
static void test_full_and_drained(void)
{
    struct sent writes[40];
    unsigned waiting = 0;

    make(65);
    OK(plx_ringed_on(ringed, &fault));
    some_turns(50);
    fail_nodes();
    for (unsigned i = 0; i < 40; i++)
        submit_byte(&writes[i], 6 * i, 6, (int)i);
    for (unsigned i = 0; i < 2000; i++) {
        env.ns += 10000000;
        turn();
    }
    CU_ASSERT(info_of().full && !ringed->drain.bytes_left);
    plx_simdisk_fail_range(disk, 0, 64 * MIB, true, true);
    for (unsigned i = 0; i < 6000; i++) {
        env.ns += 10000000;
        turn();
    }
    for (unsigned i = 0; i < 40; i++)
        waiting += writes[i].under_way;
    CU_ASSERT(waiting > 0 && info_of().on && !vdi->log.sticky);
    plx_simdisk_heal(disk);
    for (unsigned i = 0; i < 40; i++) {
        while (writes[i].under_way) {
            env.ns += 10000000;
            turn();
        }
        OK(writes[i].request.result);
        free(writes[i].memory);
    }
    OK(plx_ringed_off(ringed, &fault));
    for (unsigned i = 0; i < 40; i++)
        CU_ASSERT(reads_as(vdi, 6 * i * BLOCK, 6 * BLOCK, (int)i));
    close_disk();
    end(true);
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"slowed", test_slowed},
        {"paced", test_paced},
        {"filled to its end", test_filled},
        {"lost on the ring", test_lost_on_ring},
        {"read in parts", test_parts},
        {"read in parts, mirrored", test_parts_mirrored},
        {"discarded, and the power fails", test_discard_cut},
        {"a part that outlives the ring", test_part_outlives},
        {"written three times", test_written_thrice},
        {"the ring hangs", test_ring_hangs},
        {"full and drained, and the store fails", test_full_and_drained},
    };

    return SUITE_RUN("ringed_slow", tests);
}
