/* test_ringed_slow.c - a disk with a write-back ring that has more than is drained at once: writers
 * are slowed until it has little, and what cannot be read back from it any more is told.
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

static void write_again(struct sent *writer, unsigned number)
{
    memset(writer->memory, (int)number, WRITE_BYTES);
    submit(writer, PLX_WRITE, number % 16 * WRITE_BYTES, WRITE_BYTES, WRITE_BYTES);
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
    for (unsigned i = 0; i < WRITERS; i++) {
        writers[i].memory = malloc(WRITE_BYTES);
        write_again(&writers[i], number++);
    }
    while (ringed->state == PLX_RINGED_SLOW) {
        for (unsigned i = 0; i < WRITERS; i++)
            if (!writers[i].under_way) {
                OK(writers[i].request.result);
                written += WRITE_BYTES;
                write_again(&writers[i], number++);
            }
        CU_ASSERT(written <= (ringed->drain.bytes - drained) / 2 + WRITERS * WRITE_BYTES);
        turn();
    }
    CU_ASSERT(written > 0); /* they were not stopped */
    OK(plx_ringed_off(ringed, &fault));
    CU_ASSERT(!is_marked());
    for (unsigned i = 0; i < WRITERS; i++) {
        while (writers[i].under_way)
            turn();
        free(writers[i].memory);
    }
    for (unsigned i = number - WRITERS; i < number; i++)
        CU_ASSERT(reads_as(vdi, i % 16 * WRITE_BYTES, WRITE_BYTES, (int)(uint8_t)i));
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

int main(void)
{
    static const struct suite_test tests[] = {
        {"slowed", test_slowed},
        {"lost on the ring", test_lost_on_ring},
    };

    return SUITE_RUN("ringed_slow", tests);
}
