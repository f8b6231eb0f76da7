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
    CU_ASSERT(states[0] > 4 && states[1] > 4);
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"slowed", test_slowed},
        {"paced", test_paced},
        {"filled to its end", test_filled},
        {"lost on the ring", test_lost_on_ring},
        {"discarded, and the power fails", test_discard_cut},
    };

    return SUITE_RUN("ringed_slow", tests);
}
