/* test_dedup_beside.c - deduplication while something happens in each of its pauses: disks are
 * closed and written, it is interrupted or asked for once more. Whatever comes of it, disks hold
 * what was written.
 */
#include <string.h>

#include "engine/engine.h"
#include "ok.h"
#include "suite.h"
#include "unit/fixture.h"

#define BLOCKS 80u

static struct plx_vdi *disks[3]; /* NULL: closed */
static int first_byte[3];        /* of block b: this + b; 0: it is zero */
static struct plx_deduped deduped;

static void write_blocks(unsigned n, int first)
{
    for (unsigned b = 0; b < BLOCKS; b++)
        memset(buffer + (size_t)b * BLOCK, first ? first + (int)b : 0, BLOCK);
    run(disks[n], PLX_WRITE, 0, BLOCKS * BLOCK);
    first_byte[n] = first;
}

/* Disks of equal blocks. */
static void make_disks(unsigned count)
{
    make_store(96 * MIB, MIB);
    OK(plx_store_allow_common(store, &fault));
    memset(disks, 0, sizeof disks);
    memset(first_byte, 0, sizeof first_byte);
    for (unsigned n = 0; n < count; n++) {
        OK(create_vdi(n, 4 * MIB));
        disks[n] = open_vdi(n);
        write_blocks(n, 1);
        run(disks[n], PLX_KEYFRAME, 0, 0);
    }
}

static void end_disks(unsigned count)
{
    for (unsigned n = 0; n < count; n++) {
        disks[n] = disks[n] ? disks[n] : open_vdi(n);
        run(disks[n], PLX_READ, 0, BLOCKS * BLOCK);
        for (unsigned b = 0; b < BLOCKS; b++) {
            const uint8_t *block = buffer + (size_t)b * BLOCK;

            CU_ASSERT(block[0] == (first_byte[n] ? first_byte[n] + (int)b : 0));
            CU_ASSERT(memcmp(block, block + 1, BLOCK - 1) == 0);
        }
        OK(plx_vdi_close(disks[n]));
    }
    check_store(true);
    end_store();
}

/* ---- What happens in a pause ---- */

static struct {
    unsigned turns, at;
    void (*happens)(void);
    bool stop;
    unsigned stopped; /* was told to, so often */
    uint64_t memory;  /* 0: enough */
} beside;

static void begin_beside(void (*happens)(void))
{
    memset(&beside, 0, sizeof beside);
    beside.happens = happens;
    beside.memory = 1;
}

static void pause(void *context)
{
    if (++beside.turns == beside.at && beside.happens)
        beside.happens();
}

static bool interrupted(void *context)
{
    bool now = beside.stop && beside.turns + 1 >= beside.at;

    beside.stopped += now;
    return now;
}

static int dedup(bool dry_run)
{
    const struct plx_dedup_options options = {
        .dry_run = dry_run, .memory = beside.memory, .pause = pause, .interrupted = interrupted};

    return plx_store_dedup(store, &options, &deduped, &fault);
}

static void close_one(void)
{
    OK(plx_vdi_close(disks[1]));
    disks[1] = NULL;
}

static void overwrite_one(void)
{
    write_blocks(1, 100);
}

static void clear_both(void)
{
    write_blocks(0, 0);
    write_blocks(1, 0);
}

static void ask_again(void)
{
    struct plx_deduped first = deduped;

    FAILS(BUSY, dedup(false));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "under way"));
    deduped = first;
}

static void test_each_pause(void)
{
    static void (*const happenings[])(void) = {close_one, overwrite_one, clear_both, ask_again};

    for (size_t i = 0; i < sizeof happenings / sizeof happenings[0]; i++) {
        begin_beside(happenings[i]);
        do {
            make_disks(2);
            beside.turns = 0;
            beside.at++;
            OK(dedup(false));
            CU_ASSERT_EQUAL(deduped.unreadable, 0);
            end_disks(2);
        } while (beside.turns >= beside.at);
    }
}

/* Another one has its slot then, and is smaller; that is no damage. */
static void replace_one(void)
{
    OK(plx_vdi_close(disks[1]));
    OK(plx_vdi_delete(store, 1, false, &fault));
    OK(create_vdi(1, 16 * BLOCK));
    disks[1] = open_vdi(1);
    OK(write_byte(disks[1], 0, 16 * BLOCK, 200));
}

static void test_replaced(void)
{
    bool replaced;

    begin_beside(replace_one);
    do {
        make_disks(2);
        beside.turns = 0;
        beside.at++;
        OK(dedup(false));
        CU_ASSERT_EQUAL(deduped.unreadable, 0);
        replaced = beside.turns >= beside.at;
        CU_ASSERT(!replaced || reads_as(disks[1], 0, 16 * BLOCK, 200));
        OK(plx_vdi_close(disks[1]));
        end_disks(1);
    } while (replaced);
}

/* Of a disk with more blocks than are looked at between two pauses, be it the last one or not. */
static void test_closed_meanwhile(void)
{
    uint64_t mapped[2];

    for (unsigned behind = 0; behind < 2; behind++) {
        make_disks(1);
        for (unsigned n = 1; n < 2 + behind; n++) {
            OK(create_vdi(n, 32 * MIB));
            disks[n] = open_vdi(n);
            for (unsigned i = 4; i < 24; i += 4)
                OK(write_byte(disks[n], i * MIB, 4 * MIB, 9));
        }
        begin_beside(close_one);
        beside.at = 2; /* behind the first part of it */
        OK(dedup(false));
        mapped[behind] = deduped.mapped;
        disks[1] = open_vdi(1);
        for (unsigned n = 1; n < 2 + behind; n++)
            CU_ASSERT(reads_as(disks[n], 20 * MIB, 4 * MIB, 9));
        end_disks(2 + behind);
    }
    CU_ASSERT(mapped[0] > BLOCKS && mapped[0] < BLOCKS + 5 * 1024);
    CU_ASSERT_EQUAL(mapped[1], mapped[0] + 5 * 1024);
}

/* It ends at once; what was done stays, and the next one does the rest. */
static void test_interrupted(void)
{
    int error;

    begin_beside(NULL);
    beside.stop = true;
    do {
        uint64_t joined;

        make_disks(2);
        beside.turns = 0;
        beside.at++;
        error = dedup(false);
        CU_ASSERT(!error || error == PLX_ERR_BUSY);
        CU_ASSERT(!error || strstr(fault.text, "interrupted"));
        joined = deduped.joined;
        beside.stop = false;
        OK(dedup(false));
        CU_ASSERT_EQUAL(joined + deduped.joined, BLOCKS);
        beside.stop = true;
        end_disks(2);
    } while (error);
    CU_ASSERT(beside.at > 3);
}

/* More candidates than are sorted without a turn; with little memory room is made for them. */
static void test_interrupted_in_sort(void)
{
    for (uint64_t memory = 0; memory < 2; memory++) {
        make_disks(1);
        OK(create_vdi(1, 16 * MIB));
        disks[1] = open_vdi(1);
        for (unsigned i = 4; i < 16; i++)
            OK(write_byte(disks[1], i * MIB, MIB, 9));
        begin_beside(NULL);
        beside.memory = memory;
        beside.stop = true;
        for (beside.at = 1; beside.at < 12; beside.at++) {
            beside.turns = beside.stopped = 0;
            FAILS(BUSY, dedup(true));
            CU_ASSERT_EQUAL(beside.stopped, 1); /* it does not ask again */
        }
        end_disks(2);
    }
}

/* One more comes to what is common already: that is told before it is done. */
static void test_counted(void)
{
    begin_beside(NULL);
    make_disks(2);
    OK(dedup(false));
    CU_ASSERT_EQUAL(deduped.made, BLOCKS);
    CU_ASSERT_EQUAL(deduped.joined, BLOCKS);
    OK(create_vdi(2, 4 * MIB));
    disks[2] = open_vdi(2);
    write_blocks(2, 1);
    for (unsigned dry_run = 2; dry_run-- > 0;) {
        OK(dedup(dry_run));
        CU_ASSERT_EQUAL(deduped.common, 2 * BLOCKS);
        CU_ASSERT_EQUAL(deduped.made, 0);
        CU_ASSERT_EQUAL(deduped.joined, BLOCKS);
    }
    write_blocks(0, 1); /* and comes first */
    OK(dedup(false));
    CU_ASSERT_EQUAL(deduped.made, 0);
    CU_ASSERT_EQUAL(deduped.joined, BLOCKS);
    end_disks(3);
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"something in each pause", test_each_pause},
        {"replaced in each pause", test_replaced},
        {"closed meanwhile", test_closed_meanwhile},
        {"interrupted", test_interrupted},
        {"interrupted while sorting", test_interrupted_in_sort},
        {"counted", test_counted},
    };

    return SUITE_RUN("deduplication beside", tests);
}
