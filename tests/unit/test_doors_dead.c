/* test_doors_dead.c - what a process that died has left: logs and records that cannot be read just
 * then (ATTACH-1), disks that nobody has recovered (rule C3), garbage that it had entered
 * (ATTACH_COLLECT-2, -7). And rows that the doors compare with records of any kind (rule 1,
 * DOORS-1, -3).
 */
#include <CUnit/Basic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ok.h"
#include "attach/attach_inside.h"
#include "attach/doors.h"
#include "registry/collections.h"
#include "suite.h"
#include "unit/lost_writes.h"
#include "unit/registry_edit.h"

#define SLOT_OF_TWO 1u

static void header(uint64_t extent, uint8_t bytes[HEADER_BYTES], bool put)
{
    header_page(extent, 0, bytes, put);
}

static struct plx_registry_vdi vdi_row(const char *name)
{
    struct plx_registry_store store;
    struct plx_registry_vdi row;

    plx_attach_row(attach, &store);
    OK(plx_registry_vdi_get(plx_attach_registry(attach), store.id, name, &row));
    return row;
}

/* Writes disk "one" from its second part on, at one opening: one that is opened for each part takes
 * another extent each time. */
static void write_on(void)
{
    static uint8_t bytes[PART * PLX_BLOCK_SIZE];
    struct iovec iov = {bytes, sizeof bytes};
    struct plx_request request = {
        .op = PLX_WRITE, .offset = sizeof bytes, .length = sizeof bytes, .iov = &iov, .iovcnt = 1};
    struct plx_vdi *vdi;

    memset(bytes, 5, sizeof bytes);
    OK(open_disk("one", &vdi));
    for (; request.offset < 25 * sizeof bytes; request.offset += sizeof bytes)
        OK(plx_vdi_run(vdi, &request));
    OK(plx_attach_vdi_close(attach, vdi));
}

/* ---- Logs and records that cannot be read ---- */

/* Where disk two's log begins, with the header of a segment. */
static uint64_t log_of_two(void)
{
    uint8_t bytes[RECORD_BYTES];
    struct plx_vdi_record newest = {0}, slot;
    struct plx_store_info info;
    struct plx_attach_options options = {
        .store = "s", .state_dir = folder, .role = "admin", .read_only = true};

    OK(plx_attach_open(&options, &attach, &fault));
    plx_store_get_info(plx_attach_store(attach), &info);
    close_attach();
    record(SLOT_OF_TWO, bytes, false);
    for (size_t at = 0; at < sizeof bytes; at += PLX_BLOCK_SIZE) {
        OK(plx_format_vdi_record_decode(bytes + at, &info.id, SLOT_OF_TWO, UINT64_MAX, &slot,
                                        &fault));
        if (slot.generation > newest.generation)
            newest = slot;
    }
    CU_ASSERT_FATAL(newest.segment_addr != 0);
    return newest.segment_addr * PLX_BLOCK_SIZE;
}

/* Blocks that only the log of "two" names, in extents which this process has now, and it cannot be
 * read, or the record that leads to it. All that there is to write of "one" is written; nothing of
 * it comes to lie where "two" has its blocks, or its log. */
static void read_later(bool the_record)
{
    static uint8_t damaged[RECORD_BYTES], bytes[RECORD_BYTES];
    struct plx_collected collected;
    size_t count = the_record ? RECORD_BYTES : PLX_SEGMENT_HEADER_BYTES;
    struct plx_extent_info info;
    uint64_t extent, at;

    OK(make_store_of(16, 4 * MIB)); /* in less, one write takes them all ahead of need */
    extent = create_two();
    write_and_die("two", 3);
    at = the_record ? (PLX_VDI_TABLE_BLOCK + 2ull * SLOT_OF_TWO) * PLX_BLOCK_SIZE : log_of_two();
    memset(damaged, 0xa5, sizeof damaged);
    volume_bytes(at, bytes, count, false);
    volume_bytes(at, damaged, count, true);
    open_attach();
    CU_ASSERT_EQUAL(vdi_row("two").owner, row_of(extent).owner);
    OK(plx_store_extent_read(plx_attach_store(attach), extent, &info, &fault));
    CU_ASSERT(info.sealed && info.used_blocks < 4 * PART); /* it lacks what "two" has */
    write_on();
    plx_attach_collect(attach, &(struct plx_attach_work){0}, &collected, &fault);
    create("more");
    for (unsigned part = 0; part < 25; part++)
        fill("more", part * PART, 6);
    refuse_disk("two", PLX_ERR_CORRUPT);
    close_attach();
    volume_bytes(at, bytes, count, true);
    open_attach();
    CU_ASSERT(row_of(extent).sealed && !row_of(extent).owner);
    for (unsigned part = 0; part < 4; part++)
        CU_ASSERT(holds("two", part * PART, 3));
    for (unsigned part = 0; part < 25; part++)
        CU_ASSERT(holds("one", part * PART, part ? 5 : 1) && holds("more", part * PART, 6));
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

static void test_log_unreadable(void)
{
    read_later(false);
}

static void test_record_unreadable(void)
{
    read_later(true);
}

/* ---- Collecting beside what a dead process has left ---- */

/* Who collects has had the store open since before the other one came and died. */
static void test_dead_first(void)
{
    struct plx_collected collected;

    OK(make_store());
    create_two();
    open_attach();
    create("three");
    fill("three", 0, 9);
    OK(plx_attach_vdi_delete(attach, "three", false, &fault));
    {
        struct plx_attach *first = attach;

        write_and_die("two", 3);
        attach = first;
    }
    CU_ASSERT_NOT_EQUAL(vdi_row("two").owner, 0);
    OK(plx_attach_collect(attach, &(struct plx_attach_work){0}, &collected, &fault));
    CU_ASSERT(collected.swept >= PART);
    CU_ASSERT_EQUAL(vdi_row("two").owner, 0);
    CU_ASSERT_EQUAL(collected.elsewhere, 0);
    write_on();
    for (unsigned part = 0; part < 4; part++)
        CU_ASSERT(holds("two", part * PART, 3));
    CU_ASSERT(holds("one", 0, 1));
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

/* ---- Garbage that a dead collector has entered ---- */

#define GARBAGE_FIRST 180u
#define GARBAGE_COUNT 60u

/* How many of these blocks of the extent are in use on the store. */
static unsigned count_used(uint64_t extent)
{
    uint32_t pages = plx_extent_pages(extent_bytes / PLX_BLOCK_SIZE);
    struct plx_extent_page slot;
    uint8_t bytes[HEADER_BYTES];
    const uint8_t *newest = NULL;
    uint64_t generation = 0;
    struct plx_store_info info;
    unsigned used = 0;

    plx_store_get_info(plx_attach_store(attach), &info);
    header(extent, bytes, false);
    for (uint8_t *block = bytes; block < bytes + sizeof bytes; block += PLX_BLOCK_SIZE) {
        OK(plx_format_extent_page_decode(block, &info.id, extent, 0, pages, &slot, &fault));
        if (slot.generation >= generation) {
            generation = slot.generation;
            newest = plx_format_extent_bits(block);
        }
    }
    for (unsigned i = GARBAGE_FIRST; i < GARBAGE_FIRST + GARBAGE_COUNT; i++)
        used += newest[i / 8] >> i % 8 & 1;
    return used;
}

/* A process enters blocks of the extent as garbage, and dies before it sweeps them. write: it has
 * the extent then, else nobody has. */
static void collect_and_die(uint64_t extent, bool write)
{
    pid_t child = fork();
    int status = 0;

    CU_ASSERT_FATAL(child >= 0);
    if (!child) {
        struct plx_registry_collection entered;
        struct plx_registry_garbage garbage = {.extent = extent, .blocks = GARBAGE_COUNT};
        struct plx_attach_inside in;
        char runs[32];

        open_attach();
        if (write) {
            fill("two", 0, 3);
            status |= !holds("two", 0, 3); /* opening it has written the bitmap as it is by now */
        }
        plx_attach_get_inside(attach, &in);
        garbage.generation = row_of(extent).generation;
        snprintf(runs, sizeof runs, "%u+%u ", GARBAGE_FIRST, GARBAGE_COUNT);
        garbage.runs = runs;
        status |= row_of(extent).owner != (write ? in.instance : 0);
        status |=
            plx_registry_collection_begin(in.registry, in.store_row, in.instance, 0, &entered) != 0;
        status |= plx_registry_garbage_put(in.registry, in.store_row, &garbage) != 0;
        status |= plx_registry_collection_sweep(in.registry, in.store_row, in.instance, true) != 0;
        _exit(status);
    }
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    CU_ASSERT_EQUAL(status, 0);
}

/* The extent was full when what had been entered was taken up again; nothing of it has gone. */
static void resume(uint64_t extent)
{
    struct plx_collected collected;
    unsigned used = count_used(extent);

    CU_ASSERT(used > 0);
    OK(plx_attach_collect(attach, &(struct plx_attach_work){0}, &collected, &fault));
    CU_ASSERT(collected.resumed && collected.missed > 0);
    CU_ASSERT_EQUAL(count_used(extent), used);
    for (unsigned part = 4; part < 25; part++)
        fill("two", part * PART, 6);
    CU_ASSERT(holds("one", 0, 1));
    for (unsigned part = 1; part < 25; part++)
        CU_ASSERT(holds("one", part * PART, 5));
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

/* Blocks were in use in the memory of who died, and in no bitmap on the store: its heir, who begins
 * with that bitmap, gives them out again. */
static void test_garbage_of_owner(void)
{
    uint64_t extent;

    OK(make_store());
    extent = create_two();
    collect_and_die(extent, true);
    open_attach();
    CU_ASSERT_EQUAL(count_used(extent), 0);
    write_on();
    CU_ASSERT_NOT_EQUAL(row_of(extent).owner, 0);
    resume(extent);
}

/* Somebody has had the extent since, and was done with it. */
static void test_garbage_of_nobody(void)
{
    uint64_t extent;

    OK(make_store());
    extent = create_two();
    collect_and_die(extent, false);
    open_attach();
    CU_ASSERT_EQUAL(count_used(extent), 0);
    write_on();
    CU_ASSERT_NOT_EQUAL(row_of(extent).owner, 0);
    close_attach();
    open_attach();
    CU_ASSERT_EQUAL(row_of(extent).owner, 0);
    resume(extent);
}

/* Of nobody, and nobody has had it since: but its header is an older one by now. What the bitmap
 * lacks is not given out. */
static void test_garbage_of_older(void)
{
    struct plx_collected collected;
    uint8_t between[HEADER_BYTES];
    uint64_t extent;

    OK(make_store());
    extent = create_two();
    header(extent, between, false);
    open_attach();
    fill("one", PART, 5);
    close_attach();
    collect_and_die(extent, false);
    header(extent, between, true);
    open_attach();
    OK(plx_attach_collect(attach, &(struct plx_attach_work){0}, &collected, &fault));
    CU_ASSERT(collected.resumed && collected.unreadable > 0);
    CU_ASSERT(row_of(extent).sealed && row_of(extent).states == PLX_STATES_NEVER);
    for (unsigned part = 0; part < 25; part++)
        fill("two", part * PART, 6);
    CU_ASSERT(holds("one", 0, 1) && holds("one", PART, 5));
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

/* ---- Rows and records ---- */

/* Rule 1: the registry has lost a disk's row, and its slot is given to another one. What is there
 * is not that one's to undo. */
static void test_slot_in_use(void)
{
    struct plx_vdi_create_options options = {
        .size_bytes = 4 * MIB, .sector_size = 512, .name = "new"};
    struct plx_registry_store store;
    struct plx_vdi_info info;
    int changes;

    OK(make_store());
    create_two();
    open_attach();
    fill("two", 0, 3);
    close_attach();
    OK(plx_registry_edit(volume, "DELETE FROM vdis WHERE name = 'two'", &changes, &fault));
    CU_ASSERT_EQUAL(changes, 1);
    open_attach();
    FAILS(REGISTRY, plx_attach_vdi_create(attach, &options, NULL, NULL, &info, &fault));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "where new was to be, holds two"));
    store_row(&store);
    CU_ASSERT(store.doubt[0]);
    close_attach();
    rebuild_registry();
    open_attach();
    CU_ASSERT(holds("one", 0, 1) && holds("two", 0, 3));
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

/* Who reads between a change of the registry and the one of the record that goes with it. */
static struct plx_attach *deleting; /* deletes disk two before the next record is read; or NULL */

int __real_plx_door_read(struct plx_store *store, const struct plx_registry_vdi *row,
                         struct plx_vdi_info *ret_info, struct plx_fault *why);
int __wrap_plx_door_read(struct plx_store *store, const struct plx_registry_vdi *row,
                         struct plx_vdi_info *ret_info, struct plx_fault *why);

int __wrap_plx_door_read(struct plx_store *store, const struct plx_registry_vdi *row,
                         struct plx_vdi_info *ret_info, struct plx_fault *why)
{
    struct plx_attach *other = deleting;

    if (other && strcmp(row->name, "two") == 0) {
        deleting = NULL;
        OK(plx_attach_vdi_delete(other, "two", false, &fault));
    }
    return __real_plx_door_read(store, row, ret_info, why);
}

/* ATTACH_COLLECT-6: a row that is another one behind the look proves nothing. */
static void test_deleted_beside(void)
{
    struct plx_collected collected;
    struct plx_attach *collector;
    struct plx_registry_store store;

    OK(make_store());
    create_two();
    open_attach();
    collector = attach;
    open_attach();
    deleting = attach;
    OK(plx_attach_collect(collector, &(struct plx_attach_work){0}, &collected, &fault));
    CU_ASSERT_PTR_NULL(deleting);
    store_row(&store);
    CU_ASSERT_EQUAL(store.doubt[0], 0);
    close_attach();
    attach = collector;
    CU_ASSERT(holds("one", 0, 1));
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

static int read_row(const struct plx_registry_vdi *row,
                    int (*read)(struct plx_store *store, const struct plx_registry_vdi *row,
                                struct plx_vdi_info *ret_info, struct plx_fault *fault))
{
    struct plx_vdi_info info;

    return read(plx_attach_store(attach), row, &info, &fault);
}

/* DOORS-3: only a disk that its creator has still, and that was never closed, may be missing. */
static void test_missing(void)
{
    uint8_t zero[RECORD_BYTES] = {0}, bytes[RECORD_BYTES];
    struct plx_registry_vdi row;

    OK(make_store());
    create_two();
    open_attach();
    row = vdi_row("two");
    record(SLOT_OF_TWO, bytes, false);
    record(SLOT_OF_TWO, zero, true);
    CU_ASSERT(row.written.state && !row.owner);
    FAILS(CORRUPT, read_row(&row, plx_door_read));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "is not on the store any more"));
    row.owner = 4711; /* and was closed before */
    FAILS(CORRUPT, read_row(&row, plx_door_read));
    row.written.state = 0;
    FAILS(NOT_FOUND, read_row(&row, plx_door_read));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "is being created"));
    row.owner = 0;
    FAILS(CORRUPT, read_row(&row, plx_door_read));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "is not on the store any more"));
    record(SLOT_OF_TWO, bytes, true);
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

/* DOORS-1: newer than the registry knows only if nobody has had the lock since. */
static void test_newer_of_whom(void)
{
    struct plx_registry_vdi row, now;

    OK(make_store());
    create_two();
    open_attach();
    row = now = vdi_row("one");
    CU_ASSERT(!row.owner && row.epoch == row.written.epoch && row.written.state > 1);
    OK(read_row(&now, plx_door_read_closed));
    now.written.state = row.written.state - 1;
    FAILS(REGISTRY, read_row(&now, plx_door_read_closed));
    now.owner = 4711; /* has it, and writes its record */
    OK(read_row(&now, plx_door_read_closed));
    now.owner = 0;
    now.epoch = row.epoch + 1; /* has had it, and did not tell what was written */
    OK(read_row(&now, plx_door_read_closed));
    now.written.state = row.written.state + 1;
    FAILS(CORRUPT, read_row(&now, plx_door_read_closed)); /* older is older */
    now.written.state = 0;
    now.epoch = row.epoch; /* nobody knows */
    OK(read_row(&now, plx_door_read_closed));
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"a log that cannot be read just now", test_log_unreadable},
        {"a record that cannot be read just now", test_record_unreadable},
        {"a process that died beside who collects", test_dead_first},
        {"garbage of a dead owner", test_garbage_of_owner},
        {"garbage in an extent that somebody had since", test_garbage_of_nobody},
        {"garbage in an extent that went back", test_garbage_of_older},
        {"a disk that is deleted beside a collection", test_deleted_beside},
        {"a slot that is in use", test_slot_in_use},
        {"a record that is missing", test_missing},
        {"a record that is newer, and who had it", test_newer_of_whom},
    };

    return SUITE_RUN("doors: what the dead have left", tests);
}
