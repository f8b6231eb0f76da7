/* test_reserve.c - a store that is full of metadata: the disks that were open when power failed all
 * open again, together, before anybody collects (reserve.h).
 */
#include <stdio.h>
#include <string.h>

#include "engine/reserve.h"
#include "engine/vdi.h"
#include "ok.h"
#include "suite.h"
#include "unit/fixture.h"

#define DISKS 10u
#define DISK_BYTES (32 * MIB)
#define BLOCKS (DISK_BYTES / BLOCK)
#define REFUSALS 400u

static struct plx_vdi *vdis[DISKS];
static uint8_t model[DISKS][BLOCKS]; /* what was acknowledged */
static uint64_t random_state;

static uint64_t below(uint64_t n)
{
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return (random_state >> 33) % n;
}

static void write_one(unsigned *refused)
{
    unsigned i = (unsigned)below(DISKS);
    uint64_t at = below(BLOCKS);
    int byte = 1 + (int)below(255), error = write_byte(vdis[i], at * BLOCK, BLOCK, byte);

    CU_ASSERT(!error || error == PLX_ERR_NOSPACE);
    *refused += error != 0;
    if (!error)
        model[i][at] = (uint8_t)byte;
}

static void unmap_one(void)
{
    unsigned i = (unsigned)below(DISKS);
    uint64_t at = below(BLOCKS);

    if (!try_run(vdis[i], PLX_UNMAP, at * BLOCK, BLOCK, NULL))
        model[i][at] = 0;
}

/* Until writes have been refused for a while; snapshots and unmaps go on for as long as they can.
 */
static void fill_up(unsigned seed, unsigned snapshot_every, bool unmaps)
{
    unsigned refused = 0;

    random_state = seed;
    memset(model, 0, sizeof model);
    fixture.format.segment_bytes = 64u << 10;
    make_store(64 * MIB, MIB);
    registry.reserve = 4;
    for (uint32_t i = 0; i < DISKS; i++) {
        OK(create_vdi(i, DISK_BYTES));
        vdis[i] = open_vdi(i);
    }
    for (unsigned n = 0; refused < REFUSALS; n++) {
        write_one(&refused);
        if (n % snapshot_every == 0)
            try_run(vdis[below(DISKS)], PLX_SNAPSHOT, 0, 0, NULL);
        if (unmaps && refused && n % 4 == 0)
            unmap_one();
        if (n % 1000 == 0)
            env.ns += 1000000000;
    }
}

static void verify(unsigned i)
{
    for (uint64_t at = 0; at < BLOCKS; at++)
        if (model[i][at] || at % 16 == 0)
            CU_ASSERT_FATAL(reads_as(vdis[i], at * BLOCK, BLOCK, model[i][at]));
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
    for (uint32_t i = 0; i < DISKS; i++)
        OK(try_open_vdi(i, true, &vdis[i]));
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

/* All at once; and again, for the next power cut comes soon. */
static void crash(unsigned seed, unsigned snapshot_every, bool unmaps)
{
    fill_up(seed, snapshot_every, unmaps);
    crash_store();
    recover_all();
    for (uint32_t i = 0; i < DISKS; i++)
        verify(i);
    crash_store();
    recover_all();
    for (uint32_t i = 0; i < DISKS; i++)
        let_go(i);
    env.ns += 5000000000u;
    OK(write_byte(vdis[0], 0, BLOCK, 7));
    model[0][0] = 7;
    verify(0);
    end();
}

static void test_crash(void)
{
    for (unsigned seed = 1; seed <= 8; seed++) {
        crash(seed, 1 + seed * seed / 2, false);
        crash(seed, 1 + seed * seed / 2, true);
    }
}

/* As attach.c does it: all are recovered and closed, then opened for use, the first of them under
 * load by the time that the last one is. */
static void test_one_by_one(void)
{
    unsigned refused = 0;

    fill_up(3, 1000000, false);
    crash_store();
    for (uint32_t i = 0; i < DISKS; i++) {
        OK(try_open_vdi(i, true, &vdis[i]));
        OK(plx_vdi_close(vdis[i]));
    }
    vdis[0] = open_vdi(0);
    eat_segments();
    for (uint32_t i = 1; i < DISKS; i++)
        vdis[i] = open_vdi(i);
    for (uint32_t i = 0; i < DISKS; i++)
        verify(i);
    give_segments_back();
    registry.reserve = 0;
    for (unsigned n = 0; n < 10; n++)
        write_one(&refused);
    end();
}

/* A disk without room to be closed is not opened: it stays as it is. */
static void test_no_room_to_close(void)
{
    uint64_t taken, one;
    struct plx_vdi *vdi;

    fixture.format.segment_bytes = 64u << 10;
    make_store(64 * MIB, MIB);
    OK(create_vdi(0, DISK_BYTES));
    vdi = open_vdi(0);
    OK(write_byte(vdi, 0, BLOCK, 1));
    run(vdi, PLX_SNAPSHOT, 0, 0); /* its log stays */
    OK(plx_vdi_close(vdi));
    registry.limit = registry.granted;
    while (plx_alloc_run(store, PLX_EXTENT_META, 1, NULL, &taken, &one) == 0)
        ;
    CU_ASSERT_EQUAL(try_open_vdi(0, false, &vdi), PLX_ERR_NOSPACE);
    registry.limit = 0;
    env.ns += 5000000000u;
    vdi = open_vdi(0);
    CU_ASSERT(reads_as(vdi, 0, BLOCK, 1));
    OK(plx_vdi_close(vdi));
    check_store(true);
    end_store();
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"a crash of a store full of metadata", test_crash},
        {"recovered, then opened one by one", test_one_by_one},
        {"no room to close", test_no_room_to_close},
    };

    return SUITE_RUN("reserve", tests);
}
