/* test_room.c - how much room a store has left for data (plx_attach_data_room), where it lies in
 * many extents that are nearly full: a service that counts too little lets go of history too early.
 */
#include <CUnit/Basic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attach/attach.h"
#include "attach/founding.h"
#include "folder.h"
#include "ok.h"
#include "suite.h"
#include "unit/registry_edit.h"

#define MIB (1ull << 20)
#define EXTENT_BLOCKS (MIB / PLX_BLOCK_SIZE)
#define FULL 80u /* extents, of 128, with one free block each; the others have none */
#define SPARSE 10u

static char folder[64], volume[96];
static struct plx_attach *attach;
static struct plx_fault fault;

/* All extents were used for data, and nobody has them. The last ones have `free` blocks left. */
static void make_store(unsigned free)
{
    struct plx_format_options options = {.name = "s", .extent_bytes = MIB};
    struct plx_attach_options open = {
        .store = "s", .state_dir = folder, .role = "admin", .read_only = true};
    const char *path = volume;
    struct plx_store_info info;
    char sql[512];
    int changes;

    CU_ASSERT_FATAL(folder_make("room", folder));
    snprintf(volume, sizeof volume, "%s/volume", folder);
    OK(plx_founding_format(folder, &path, 1, 128 * MIB, &options, false, NULL, &info, &fault));
    snprintf(sql, sizeof sql,
             "WITH RECURSIVE n (no) AS (SELECT touched FROM volumes UNION ALL SELECT no + 1 FROM n"
             "  WHERE no + 1 < (SELECT extents FROM volumes))"
             " INSERT INTO extents (store, no, type) SELECT id, no, 'data' FROM store, n;"
             "UPDATE volumes SET touched = extents;"
             "UPDATE extents SET free_blocks = 1 WHERE type = 'data' AND no < %u;"
             "UPDATE extents SET free_blocks = %u WHERE type = 'data' AND no >= 128 - %u",
             FULL, free, SPARSE);
    OK(plx_registry_edit(volume, sql, &changes, &fault));
    OK(plx_attach_open(&open, &attach, &fault));
}

static void end(void)
{
    char command[96];

    OK(plx_attach_close(attach));
    snprintf(command, sizeof command, "rm -r %s", folder);
    CU_ASSERT_EQUAL(system(command), 0);
}

static uint64_t room(uint64_t enough)
{
    uint64_t blocks = 0;

    OK(plx_attach_data_room(attach, enough, &blocks, &fault));
    return blocks;
}

/* The room is behind the extents that are looked at first. */
static void test_nearly_full(void)
{
    make_store(EXTENT_BLOCKS / 2);
    for (uint64_t enough = 1; enough <= SPARSE * EXTENT_BLOCKS / 2; enough += 37)
        CU_ASSERT_EQUAL(room(enough), enough);
    end();
}

/* All of it is counted, and no more. */
static void test_full(void)
{
    uint64_t all;

    make_store(0);
    all = room(1u << 30);
    CU_ASSERT(all > 0 && all <= FULL);
    CU_ASSERT_EQUAL(room(all), all);
    CU_ASSERT_EQUAL(room(all + 1), all);
    CU_ASSERT_EQUAL(room(2 * EXTENT_BLOCKS), all);
    end();
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"room in extents that come late", test_nearly_full},
        {"hardly any room", test_full},
    };

    return SUITE_RUN("room", tests);
}
