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
} beside;

static void pause(void *context)
{
    if (++beside.turns == beside.at && beside.happens)
        beside.happens();
}

static bool interrupted(void *context)
{
    return beside.stop && beside.turns + 1 >= beside.at;
}

static int dedup(bool dry_run)
{
    const struct plx_dedup_options options = {
        .dry_run = dry_run, .memory = 1, .pause = pause, .interrupted = interrupted};

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
        memset(&beside, 0, sizeof beside);
        beside.happens = happenings[i];
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

/* Of a disk with more blocks than are looked at between two pauses. */
static void test_closed_meanwhile(void)
{
    make_disks(2);
    OK(create_vdi(2, 32 * MIB));
    disks[2] = open_vdi(2);
    for (unsigned i = 4; i < 24; i += 4)
        OK(write_byte(disks[2], i * MIB, 4 * MIB, 9));
    OK(plx_vdi_close(disks[1]));
    disks[1] = disks[2];
    memset(&beside, 0, sizeof beside);
    beside.happens = close_one;
    beside.at = 2; /* behind the first part of it */
    OK(dedup(false));
    CU_ASSERT(deduped.mapped > BLOCKS && deduped.mapped < BLOCKS + 5 * 1024);
    disks[2] = open_vdi(2);
    CU_ASSERT(reads_as(disks[2], 20 * MIB, 4 * MIB, 9));
    OK(plx_vdi_close(disks[2]));
    end_disks(2);
}

/* It ends at once; what was done stays, and the next one does the rest. */
static void test_interrupted(void)
{
    int error;

    memset(&beside, 0, sizeof beside);
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

/* One more comes to what is common already: that is told before it is done. */
static void test_counted(void)
{
    memset(&beside, 0, sizeof beside);
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
    end_disks(3);
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"something in each pause", test_each_pause},
        {"closed meanwhile", test_closed_meanwhile},
        {"interrupted", test_interrupted},
        {"counted", test_counted},
    };

    return SUITE_RUN("deduplication beside", tests);
}
