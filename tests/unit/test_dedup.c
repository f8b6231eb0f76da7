/* test_dedup.c - common blocks: how blocks become common and are joined, who may do what to them,
 * what becomes of them when nobody maps them any more, and what the checker says.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/format/format.h"
#include "engine/disk/vdi.h"
#include "ok.h"
#include "suite.h"
#include "unit/fixture.h"

#define DISK_BYTES (16 * MIB)

static void make(bool allow)
{
    make_store(64 * MIB, MIB);
    if (allow)
        OK(plx_store_allow_common(store, &fault));
}

static void create(uint32_t slot)
{
    OK(create_vdi(slot, DISK_BYTES));
}

/* The common block that is mapped then. */
static uint64_t share(struct plx_vdi *vdi, uint64_t block, uint64_t common,
                      enum plx_share_result expected)
{
    struct plx_share one = {.common = common};

    OK(try_share(vdi, block, &one));
    CU_ASSERT_EQUAL(one.result, expected);
    return one.common;
}

static struct plx_check_result check(void)
{
    struct plx_check_options options = {.data = true, .finding = print_finding};
    struct plx_check_result result = {0};

    OK(plx_store_check(store, &options, &result, &fault));
    CU_ASSERT_EQUAL(result.errors, 0);
    return result;
}

/* What nobody uses, with all disks closed; closes the store. */
static uint64_t leaked(void)
{
    uint64_t blocks;

    leave_store();
    open_store(0);
    blocks = check().leaked_blocks;
    close_store();
    return blocks;
}

static int begin_collection(struct plx_collect **ret_collect)
{
    static uint8_t look[64];
    const struct plx_collect_options options = {.extents = look, .extent_count = registry.count};

    for (uint64_t extent = 1; extent < registry.count; extent++)
        look[extent] = registry.extents[extent].used ? PLX_COLLECT_LOOK : PLX_COLLECT_IGNORE;
    return plx_collect_begin(store, &options, ret_collect, &fault);
}

/* ---- Tests ---- */

/* Not one whole block, or no room for the two that are compared. */
static void test_malformed(struct plx_vdi *vdi)
{
    struct iovec whole[2] = {{buffer, PLX_SHARE_BUFFER}, {buffer + MIB, PLX_SHARE_BUFFER}};
    struct iovec small = {buffer, PLX_SHARE_BUFFER - 1};
    const struct plx_request good = {.op = PLX_SHARE, .length = BLOCK, .iov = whole, .iovcnt = 1};
    struct plx_request bad[] = {good, good, good, good};

    bad[0].offset = 512;
    bad[1].length = 2 * BLOCK;
    bad[2].iovcnt = 2;
    bad[3].iov = &small;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct plx_share share = {0};

        bad[i].share = &share;
        FAILS(INVALID, plx_vdi_run(vdi, &bad[i]));
    }
}

static void test_refusals(void)
{
    struct plx_collect *collecting;
    struct plx_share one = {0};
    struct plx_vdi *vdi;

    make(false);
    create(0);
    vdi = open_vdi(0);
    OK(write_byte(vdi, 0, BLOCK, 1));
    FAILS(INVALID, try_share(vdi, 0, &one)); /* not begun */
    FAILS(UNSUPPORTED, plx_share_begin(store, &fault));
    OK(plx_vdi_close(vdi));
    OK(plx_store_allow_common(store, &fault));
    OK(plx_store_allow_common(store, &fault)); /* again */
    close_store();
    open_store(1); /* the superblock says so */
    OK(plx_share_begin(store, &fault));
    FAILS(BUSY, plx_share_begin(store, &fault));
    FAILS(BUSY, begin_collection(&collecting));
    vdi = open_vdi(0);
    one.common = 300; /* not common */
    FAILS(INVALID, try_share(vdi, 0, &one));
    one.common = PLX_ADDR_COMMON;
    FAILS(INVALID, try_share(vdi, 0, &one));
    one.common = PLX_ADDR_COMMON | (64 * MIB / BLOCK); /* beyond the store */
    FAILS(INVALID, try_share(vdi, 0, &one));
    one.common = PLX_ADDR_COMMON << 1 | PLX_ADDR_COMMON | 300; /* beyond all stores */
    FAILS(INVALID, try_share(vdi, 0, &one));
    one.common = 0;
    FAILS(RANGE, try_share(vdi, DISK_BYTES / BLOCK, &one));
    test_malformed(vdi);
    plx_share_end(store);
    OK(begin_collection(&collecting));
    FAILS(BUSY, plx_share_begin(store, &fault));
    plx_collect_end(collecting);
    OK(plx_vdi_close(vdi));
    end_store();
}

static void test_join(void)
{
    struct plx_counters before, after;
    struct plx_vdi *a, *b;
    uint64_t common;

    make(true);
    create(0);
    create(1);
    a = open_vdi(0);
    b = open_vdi(1);
    OK(write_byte(a, 0, 8 * BLOCK, 1));
    OK(write_byte(b, 100 * BLOCK, 8 * BLOCK, 1));
    OK(write_byte(b, 108 * BLOCK, BLOCK, 2));
    OK(plx_share_begin(store, &fault));
    share(a, 1000, 0, PLX_SHARE_ABSENT);
    before = counters();
    common = share(a, 0, 0, PLX_SHARE_MADE);
    after = counters();
    CU_ASSERT(plx_addr_is_common(common));
    CU_ASSERT_EQUAL(after.device_writes[PLX_KIND_DATA] - before.device_writes[PLX_KIND_DATA], 1);
    CU_ASSERT_EQUAL(share(a, 0, 0, PLX_SHARE_ALREADY), common);
    CU_ASSERT_EQUAL(share(a, 0, common, PLX_SHARE_ALREADY), common);
    for (unsigned i = 1; i < 8; i++)
        CU_ASSERT_EQUAL(share(a, i, common, PLX_SHARE_JOINED), common);
    before = counters();
    for (unsigned i = 0; i < 8; i++)
        CU_ASSERT_EQUAL(share(b, 100 + i, common, PLX_SHARE_JOINED), common);
    after = counters(); /* both are read, and one record is written */
    CU_ASSERT_EQUAL(after.device_reads[PLX_KIND_DATA] - before.device_reads[PLX_KIND_DATA], 16);
    CU_ASSERT_EQUAL(after.device_writes[PLX_KIND_DATA], before.device_writes[PLX_KIND_DATA]);
    CU_ASSERT_EQUAL(after.device_writes[PLX_KIND_LOG] - before.device_writes[PLX_KIND_LOG], 8);
    share(b, 108, common, PLX_SHARE_DIFFERS);
    plx_share_end(store);
    run(a, PLX_KEYFRAME, 0, 0);
    run(b, PLX_KEYFRAME, 0, 0);
    CU_ASSERT(reads_as(a, 0, 8 * BLOCK, 1));
    CU_ASSERT(reads_as(b, 100 * BLOCK, 8 * BLOCK, 1));
    CU_ASSERT(reads_as(b, 108 * BLOCK, BLOCK, 2));
    check();
    OK(plx_vdi_close(a));
    OK(plx_vdi_close(b));
    CU_ASSERT_EQUAL(data_used(), 2);
    CU_ASSERT_EQUAL(leaked(), 0);
    end_store();
}

/* Whoever writes to it gets a block of its own; the others see nothing of it, whatever comes. */
static void test_overwrite(void)
{
    struct plx_vdi *a, *b;
    uint64_t common;

    make(true);
    create(0);
    create(1);
    for (unsigned in_tree = 0; in_tree < 2; in_tree++) {
        a = open_vdi(0);
        b = open_vdi(1);
        OK(write_byte(a, 0, 4 * BLOCK, 1));
        OK(write_byte(b, 0, 4 * BLOCK, 1));
        OK(plx_share_begin(store, &fault));
        common = share(a, 0, 0, PLX_SHARE_MADE);
        share(a, 1, common, PLX_SHARE_JOINED);
        share(b, 0, common, PLX_SHARE_JOINED);
        share(b, 1, common, PLX_SHARE_JOINED);
        plx_share_end(store);
        if (in_tree) {
            run(a, PLX_KEYFRAME, 0, 0);
            run(b, PLX_KEYFRAME, 0, 0);
        }
        OK(write_byte(a, 0, BLOCK, 3));
        OK(write_byte(a, BLOCK, 512, 4));       /* a part of one */
        OK(write_byte(a, 2 * BLOCK, BLOCK, 5)); /* in place beside it */
        run(b, PLX_UNMAP, BLOCK, BLOCK);
        CU_ASSERT(reads_as(a, 0, BLOCK, 3) && reads_as(a, BLOCK, 512, 4) &&
                  reads_as(a, BLOCK + 512, BLOCK - 512, 1));
        CU_ASSERT(reads_as(b, 0, BLOCK, 1) && reads_as(b, BLOCK, BLOCK, 0));
        check();
        OK(write_byte(b, 0, BLOCK, 6)); /* nobody maps it any more */
        OK(plx_vdi_close(a));
        OK(plx_vdi_close(b));
        CU_ASSERT_EQUAL(leaked(), in_tree + 1);
        open_store(1);
    }
    leave_store();
    CU_ASSERT_EQUAL(collect_closed(), 2);
    open_store(1);
    b = open_vdi(1);
    CU_ASSERT(reads_as(b, 0, BLOCK, 6) && reads_as(b, 2 * BLOCK, 2 * BLOCK, 1));
    OK(plx_vdi_close(b));
    OK(plx_vdi_delete(store, 0, false, &fault));
    OK(plx_vdi_delete(store, 1, false, &fault));
    leave_store();
    CU_ASSERT(collect_closed() > 0);
    open_store(1);
    CU_ASSERT_EQUAL(leaked(), 0);
    end_store();
}

/* A snapshot has the old block, the next one the common one; letting go frees the former alone. */
static void test_snapshots(void)
{
    struct plx_thinned thinned = {0};
    struct plx_thin thin = {0};
    struct plx_vdi *a, *b, *instant;
    uint64_t common, first, second;

    make(true);
    create(0);
    create(1);
    a = open_vdi(0);
    b = open_vdi(1);
    OK(write_byte(a, 0, 2 * BLOCK, 1));
    OK(write_byte(b, 0, 2 * BLOCK, 1));
    first = run(a, PLX_SNAPSHOT, 0, 0);
    OK(plx_share_begin(store, &fault));
    common = share(a, 0, 0, PLX_SHARE_MADE);
    share(b, 0, common, PLX_SHARE_JOINED);
    plx_share_end(store);
    second = run(a, PLX_SNAPSHOT, 0, 0);
    OK(write_byte(a, 0, BLOCK, 2));
    run(a, PLX_SNAPSHOT, 0, 0);
    run(a, PLX_KEYFRAME, 0, 0);
    OK(write_byte(a, BLOCK, BLOCK, 3));
    run(a, PLX_SNAPSHOT, 0, 0);
    check();
    for (uint64_t seq = first; seq <= second; seq++) {
        OK(plx_snapshot_open(store, 0, seq, &instant, &fault));
        CU_ASSERT(reads_as(instant, 0, 2 * BLOCK, 1));
        OK(plx_vdi_close(instant));
    }
    thin.upto = second;
    OK(plx_vdi_thin(a, &thin, &thinned, &fault));
    check();
    CU_ASSERT(reads_as(b, 0, 2 * BLOCK, 1));
    OK(plx_vdi_close(a));
    OK(plx_vdi_close(b));
    CU_ASSERT_EQUAL(leaked(), 0); /* b has it */
    end_store();
}

/* What is common keeps its checksum when writes in place void those beside it. */
static void test_checksum(void)
{
    uint64_t common, verified;
    struct plx_vdi *a;

    make(true);
    create(0);
    a = open_vdi(0);
    OK(write_byte(a, 0, 4 * BLOCK, 1));
    OK(plx_share_begin(store, &fault));
    common = share(a, 0, 0, PLX_SHARE_MADE);
    share(a, 1, common, PLX_SHARE_JOINED);
    plx_share_end(store);
    OK(write_byte(a, 3 * BLOCK, BLOCK, 2));
    run(a, PLX_KEYFRAME, 0, 0);
    OK(plx_vdi_close(a));
    verified = check().data_verified;
    CU_ASSERT_EQUAL(verified, 1);
    plx_simdisk_peek(disk, plx_addr_block(common) * BLOCK, buffer, BLOCK);
    CU_ASSERT_EQUAL(buffer[77], 1);
    end_store();
}

/* ---- Finding them ---- */

#define DISKS 3u
#define BLOCKS 512u /* of each that are used */

/* What disks hold: a byte for each block, 0: nothing. Meanwhile they are written. */
static struct finding {
    struct plx_vdi *disks[DISKS];
    uint8_t bytes[DISKS][BLOCKS];
    unsigned pauses, left; /* until a disk is closed */
    bool write;
} finding;

static void change(unsigned d, unsigned block, uint8_t byte)
{
    memset(buffer, byte, BLOCK);
    run(finding.disks[d], byte ? PLX_WRITE : PLX_UNMAP, block * BLOCK, BLOCK);
    finding.bytes[d][block] = byte;
}

static void on_pause(void *context)
{
    finding.pauses++;
    if (finding.write && finding.disks[1])
        for (unsigned i = 0; i < 4; i++)
            change(1, (unsigned)rand() % BLOCKS, (uint8_t)(rand() % 40));
    if (finding.left && --finding.left == 0) {
        OK(plx_vdi_close(finding.disks[1]));
        finding.disks[1] = NULL;
    }
}

static bool not_any_more(void *context)
{
    return finding.pauses >= 10;
}

static struct plx_deduped find(bool dry_run, uint64_t memory)
{
    const struct plx_dedup_options options = {
        .dry_run = dry_run, .memory = memory, .pause = on_pause};
    struct plx_deduped deduped;

    OK(plx_store_dedup(store, &options, &deduped, &fault));
    return deduped;
}

static void compare_all(void)
{
    for (unsigned d = 0; d < DISKS; d++)
        for (unsigned b = 0; b < BLOCKS && finding.disks[d]; b++)
            CU_ASSERT(reads_as(finding.disks[d], b * BLOCK, BLOCK, finding.bytes[d][b]));
    check();
}

static void begin_finding(void)
{
    make(true);
    finding = (struct finding){0};
    srand(4711);
    for (unsigned d = 0; d < DISKS; d++) {
        create(d);
        finding.disks[d] = open_vdi(d);
        for (unsigned b = 0; b < BLOCKS; b++)
            change(d, b, (uint8_t)(rand() % 40));
    }
}

/* Returns how many blocks of data they use. */
static uint64_t end_finding(void)
{
    uint64_t used;

    for (unsigned d = 0; d < DISKS; d++)
        if (finding.disks[d])
            OK(plx_vdi_close(finding.disks[d]));
    used = data_used();
    leave_store();
    collect_closed();
    open_store(1);
    CU_ASSERT_EQUAL(leaked(), 0);
    open_store(1);
    for (unsigned d = 0; d < DISKS; d++)
        finding.disks[d] = open_vdi(d);
    compare_all();
    for (unsigned d = 0; d < DISKS; d++)
        OK(plx_vdi_close(finding.disks[d]));
    end_store();
    return used;
}

/* As many are left as there are different ones, which is what a table of bytes tells. */
static void test_find(void)
{
    struct plx_deduped dry, deduped;
    uint64_t mapped = 0, different = 0, used;
    bool is_there[256] = {0};

    begin_finding();
    for (unsigned i = 0; i < DISKS * BLOCKS; i++) {
        uint8_t byte = finding.bytes[i / BLOCKS][i % BLOCKS];

        mapped += byte != 0;
        different += byte && !is_there[byte];
        is_there[byte] = true;
    }
    dry = find(true, 0);
    used = data_used();
    deduped = find(false, 0);
    CU_ASSERT_EQUAL(dry.mapped, mapped);
    CU_ASSERT_EQUAL(dry.joined, mapped - different);
    CU_ASSERT(deduped.joined == dry.joined && deduped.made == dry.made && dry.made == different);
    CU_ASSERT_EQUAL(dry.disks, DISKS);
    compare_all();
    deduped = find(false, 0);
    CU_ASSERT(deduped.joined == 0 && deduped.compared == 0 && deduped.common == mapped);
    CU_ASSERT(used > different);
    CU_ASSERT_EQUAL(end_finding(), different);
}

/* Whatever happens meanwhile, contents stay what they are. */
static void test_find_beside(void)
{
    const struct plx_dedup_options options = {.pause = on_pause, .interrupted = not_any_more};
    struct plx_deduped deduped;

    begin_finding();
    finding.write = true;
    deduped = find(false, 0);
    CU_ASSERT(deduped.joined > 500 && finding.pauses > 50);
    compare_all();
    run(finding.disks[0], PLX_SNAPSHOT, 0, 0);
    for (unsigned b = 0; b < BLOCKS; b++)
        change(2, b, (uint8_t)(rand() % 40));
    finding.left = 20; /* a disk that is closed in the midst of it */
    find(false, 0);
    CU_ASSERT_PTR_NULL(finding.disks[1]);
    compare_all();
    finding.disks[1] = open_vdi(1);
    finding.pauses = 0;
    for (unsigned b = 0; b < BLOCKS; b++)
        change(2, b, (uint8_t)(rand() % 40));
    FAILS(BUSY, plx_store_dedup(store, &options, &deduped, &fault));
    find(false, 0); /* nothing is left over of it */
    compare_all();
    end_finding();
}

/* So little memory that one checksum fills it. */
static void test_find_in_slices(void)
{
    struct plx_deduped deduped;

    make(true);
    finding = (struct finding){0};
    create(0);
    finding.disks[0] = open_vdi(0);
    for (uint64_t at = 0; at < 8; at += 2)
        OK(write_byte(finding.disks[0], at * MIB, 2 * MIB, 5));
    for (unsigned b = 0; b < 1200; b++)
        OK(write_byte(finding.disks[0], 8 * MIB + b * BLOCK, BLOCK, 100 + (int)(b % 100)));
    deduped = find(false, 1);
    CU_ASSERT(deduped.slices > 1 && deduped.mapped == 2048 + 1200);
    for (unsigned i = 0; i < 3; i++) /* what did not fit comes the next time */
        deduped = find(false, 1);
    CU_ASSERT(deduped.joined == 0 && deduped.common == deduped.mapped);
    CU_ASSERT(reads_as(finding.disks[0], 6 * MIB, 2 * MIB, 5));
    check();
    OK(plx_vdi_close(finding.disks[0]));
    CU_ASSERT_EQUAL(data_used(), 101);
    end_store();
}

/* DEDUP-2 */
static void test_find_seen(void)
{
    struct plx_deduped deduped;
    struct plx_vdi *a;

    make(true);
    finding = (struct finding){0};
    create(0);
    a = open_vdi(0);
    OK(write_byte(a, 0, 8 * BLOCK, 1));
    run(a, PLX_SNAPSHOT, 0, 0);
    OK(write_byte(a, 8 * BLOCK, 4 * BLOCK, 1));
    deduped = find(false, 0);
    CU_ASSERT(deduped.mapped == 12 && deduped.seen == 8);
    CU_ASSERT(deduped.compared == 4 && deduped.made == 1 && deduped.joined == 3);
    CU_ASSERT(reads_as(a, 0, 12 * BLOCK, 1));
    OK(plx_vdi_close(a));
    CU_ASSERT_EQUAL(leaked(), 0);
    end_store();
}

/* Equal ones that are common already stay as they are; one that is asked for goes over. */
static void test_two_common(void)
{
    struct plx_deduped deduped;
    uint64_t first, second;
    struct plx_vdi *a;

    make(true);
    finding = (struct finding){0};
    create(0);
    a = open_vdi(0);
    OK(write_byte(a, 0, 2 * BLOCK, 1));
    OK(plx_share_begin(store, &fault));
    first = share(a, 0, 0, PLX_SHARE_MADE);
    second = share(a, 1, 0, PLX_SHARE_MADE);
    CU_ASSERT_NOT_EQUAL(first, second);
    plx_share_end(store);
    deduped = find(false, 0);
    CU_ASSERT(deduped.common == 2 && deduped.compared == 0 && deduped.joined == 0);
    OK(plx_share_begin(store, &fault));
    CU_ASSERT_EQUAL(share(a, 1, first, PLX_SHARE_JOINED), first);
    plx_share_end(store);
    CU_ASSERT(reads_as(a, 0, 2 * BLOCK, 1));
    OK(plx_vdi_close(a));
    CU_ASSERT_EQUAL(leaked(), 1);
    end_store();
}

/* Instants are nobody's to change; a disk that has stopped is left alone. */
static void test_find_left_out(void)
{
    struct plx_vdi *a, *b, *instant;
    uint64_t empty;

    make(true);
    finding = (struct finding){0};
    create(0);
    create(1);
    a = open_vdi(0);
    b = open_vdi(1);
    empty = run(b, PLX_SNAPSHOT, 0, 0);
    OK(write_byte(a, 0, 8 * BLOCK, 1));
    OK(write_byte(b, 0, 8 * BLOCK, 1));
    OK(plx_snapshot_open(store, 1, empty, &instant, &fault));
    CU_ASSERT_EQUAL(find(true, 0).mapped, 16);
    OK(plx_vdi_close(instant));
    plx_log_stop(&b->log, PLX_ERR_STICKY, 0);
    CU_ASSERT_EQUAL(find(true, 0).mapped, 8);
    plx_vdi_abandon(b);
    OK(try_open_vdi(1, true, &b));
    CU_ASSERT_EQUAL(find(false, 0).joined, 15);
    CU_ASSERT(reads_as(b, 0, 8 * BLOCK, 1));
    OK(plx_vdi_close(a));
    OK(plx_vdi_close(b));
    end_store();
}

static void note_addr(void *context, uint64_t vblock, const struct plx_mapping *mapping)
{
    *(uint64_t *)context = mapping->addr;
}

static uint64_t addr_of(struct plx_vdi *vdi, uint64_t vblock)
{
    uint64_t addr = 0;

    OK(plx_vdi_each_mapping(vdi, 1, &vblock, note_addr, &addr, &fault));
    return addr;
}

/* Two disks with the same contents, of which nothing is cached. */
static void make_two_unread(struct plx_vdi *ret_disks[2])
{
    make(true);
    finding = (struct finding){0};
    for (unsigned d = 0; d < 2; d++) {
        create(d);
        ret_disks[d] = open_vdi(d);
        OK(write_byte(ret_disks[d], 0, 4 * BLOCK, 1));
        OK(plx_vdi_close(ret_disks[d]));
    }
    leave_store();
    open_store(1);
    for (unsigned d = 0; d < 2; d++)
        ret_disks[d] = open_vdi(d);
}

/* What cannot be read, of the tree or of data, is left as it is and told; the rest is found. */
static void test_find_damaged(void)
{
    struct plx_deduped deduped;
    struct plx_vdi *disks[2];
    uint64_t at;

    make_two_unread(disks);
    plx_simdisk_lie(disk, PLX_LIE_ROT); /* the first node of the first disk */
    deduped = find(true, 0);
    CU_ASSERT(deduped.unreadable == 1 && deduped.mapped == 4 && deduped.joined == 3);
    at = addr_of(disks[0], 2) * BLOCK + 7;
    plx_simdisk_flip(disk, at, 1);
    deduped = find(false, 0);
    CU_ASSERT(deduped.unreadable == 1 && deduped.mapped == 8 && deduped.joined == 6);
    FAILS(CORRUPT, try_run(disks[0], PLX_READ, 0, 4 * BLOCK, NULL));
    plx_simdisk_flip(disk, at, 1);
    for (unsigned d = 0; d < 2; d++) {
        CU_ASSERT(reads_as(disks[d], 0, 4 * BLOCK, 1));
        OK(plx_vdi_close(disks[d]));
    }
    end_store();
}

/* What is no damage of one disk ends it: no other disk can be read either. */
static void test_find_fenced(void)
{
    const struct plx_dedup_options options = {
        .dry_run = true, .pause = on_pause, .interrupted = not_any_more};
    struct plx_deduped deduped;
    struct plx_vdi *disks[2];

    make_two_unread(disks);
    plx_simdisk_stop(opened, PLX_ERR_FENCED);
    FAILS(FENCED, plx_store_dedup(store, &options, &deduped, &fault));
    CU_ASSERT(deduped.disks == 1 && deduped.unreadable == 0);
    for (unsigned d = 0; d < 2; d++)
        plx_vdi_abandon(disks[d]);
    plx_store_close(store);
    store = NULL;
    end_store();
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"refusals", test_refusals},
        {"joining", test_join},
        {"overwriting", test_overwrite},
        {"snapshots", test_snapshots},
        {"checksums", test_checksum},
        {"finding", test_find},
        {"finding beside writes", test_find_beside},
        {"finding in slices", test_find_in_slices},
        {"what snapshots see is left alone", test_find_seen},
        {"two common blocks that are equal", test_two_common},
        {"disks that are left out", test_find_left_out},
        {"finding beside damage", test_find_damaged},
        {"finding when fenced", test_find_fenced},
    };

    return SUITE_RUN("dedup", tests);
}
