/* test_verify_log.c - what the checker makes of records, segments and batches that cannot be. */
#include <stdio.h>
#include <string.h>

#include "engine/disk/vdi.h"
#include "ok.h"
#include "suite.h"
#include "unit/forge.h"

/* The log goes on from it as it did. */
static void forge_in_chain(uint64_t at, const struct plx_batch_header *header, unsigned offset,
                           uint8_t mask)
{
    struct plx_batch_header next;
    uint64_t next_at = find_batch(header->seq + 1, &next);

    next.prev_hash = forge_batch(at, header, offset, mask);
    if (next_at)
        forge_batch(next_at, &next, 0, 0);
}

/* ---- What reading the log makes of records and segments that cannot be ---- */

static void expect_unreadable(const char *words, int line)
{
    struct plx_vdi *instant;

    open_store(0);
    fault.text[0] = 0;
    CU_ASSERT_EQUAL(plx_snapshot_open(store, 0, 0, &instant, &fault), PLX_ERR_CORRUPT);
    if (!strstr(fault.text, words)) {
        printf("\n  line %d: \"%s\" instead of \"%s\"", line, fault.text, words);
        CU_FAIL("damage in the log");
    }
    close_store();
}
#define UNREADABLE(words) expect_unreadable(words, __LINE__)

static void forge_segment(uint64_t addr, uint64_t number, uint32_t start, uint64_t next_addr)
{
    struct plx_vdi_record record = get_record(0);
    struct plx_segment_header header;
    uint8_t block[BLOCK];

    peek(addr, block);
    OK(plx_format_segment_decode(block, &store_id, &record.id, number, UINT32_MAX, &header,
                                 &fault));
    header.start = start ? start : header.start;
    header.next_addr = next_addr ? next_addr : header.next_addr;
    plx_format_segment_encode(&store_id, &header, block);
    poke(addr, block);
}

static void test_impossible_log(void)
{
    struct plx_rewind_options options = {.seq = 1};
    struct plx_segment_header header, forged;
    struct plx_vdi_record record, whole;
    struct plx_snapshot_info before;
    struct plx_vdi *vdi;
    uint8_t block[BLOCK];

    make_crashed(600);
    record = whole = get_record(0);
    forge_segment(record.next_addr, record.keyframe.pos / (256 * 1024) + 1, 0, EXTENT_BLOCKS - 1);
    UNREADABLE("reading its log");
    EXPECT("log", "a log segment is missing or damaged");
    record.first_segment = 2;
    record.oldest.pos = 2 * 256 * 1024;
    record.keyframe.pos = 3 * 256 * 1024 + BLOCK;
    put_record(&record);
    UNREADABLE("missing from the index");
    end_store();

    make_crashed(1);
    record = get_record(0);
    peek(record.segment_addr, block);
    OK(plx_format_segment_decode(block, &store_id, &record.id, 0, UINT32_MAX, &header, &fault));
    forged = header;
    forged.keyframe.pos = 512; /* in the header itself */
    plx_format_segment_encode(&store_id, &forged, block);
    poke(record.segment_addr, block);
    open_store(0);
    FAILS(CORRUPT, plx_snapshot_open(store, 0, 1, &vdi, &fault));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "is damaged"));
    close_store();
    plx_format_segment_encode(&store_id, &header, block);
    poke(record.segment_addr, block);
    forge_segment(record.segment_addr, record.keyframe.pos / (256 * 1024), 512 * 1024, 0);
    UNREADABLE("segment");
    end_store();

    /* Replayed from before a rewind that the record does not know of. */
    make(64 * MIB);
    fill_store();
    vdi = open_vdi(0);
    whole = get_record(0);
    OK(plx_vdi_rewind(vdi, &options, &before, &fault));
    fill(vdi, 0, 65536, 8);
    plx_vdi_abandon(vdi);
    close_store();
    whole.generation = get_record(0).generation;
    put_record(&whole);
    UNREADABLE("it was rewound in log batch");
    end_store();
}

/* Places in the log that cannot be: no disk is opened by them, and the checker says so. */
static void test_impossible_positions(void)
{
    struct plx_vdi_record whole;
    uint64_t limit = 64 * MIB / BLOCK;

    make_crashed(3);
    whole = get_record(0);
    for (unsigned i = 0; i < 11; i++) {
        struct plx_vdi_record record = whole;
        struct plx_keyframe *keyframe = &record.keyframe;

        record.generation = get_record(0).generation;
        if (i >= 3 && i <= 5)
            record.segment_addr = record.next_addr = 0;
        switch (i) {
        case 0:
            record.first_segment = 1;
            break;
        case 1:
            record.first_segment = 2;
            keyframe->pos = 3 * SEGMENT + BLOCK;
            record.oldest.pos = SEGMENT;
            break;
        case 2:
            keyframe->pos = 1ull << 40;
            break;
        case 3: /* no segment, but a place in it */
            break;
        case 4:
            keyframe->pos = SEGMENT;
            break;
        case 5:
            keyframe->pos = record.oldest.pos = 0;
            record.next_addr = whole.next_addr;
            break;
        case 6:
            record.segment_addr = limit - 1;
            break;
        case 7:
            record.segment_addr = EXTENT_BLOCKS - 1;
            break;
        case 8:
            record.next_addr = limit - 1;
            break;
        case 9:
            record.next_addr = record.segment_addr;
            break;
        default: /* in its segment's header */
            keyframe->pos = 512;
            record.oldest.pos = 0;
        }
        put_record(&record);
        UNREADABLE("impossible log position");
        OK(check_at(0));
        if (!heard.errors)
            printf("\n  position %u", i);
        CU_ASSERT(heard.errors > 0);
    }
    whole.generation = get_record(0).generation;
    put_record(&whole);
    CLEAN();
    end_store();
}

/* A log of segments that no index knows. */
static void test_no_index(void)
{
    struct plx_vdi_record record;

    make_crashed(3);
    record = get_record(0);
    record.index_root = 0;
    record.keyframe.pos = SEGMENT + BLOCK;
    put_record(&record);
    UNREADABLE("log segment 0 is missing from the index");
    EXPECT("log", "missing or damaged");
    end_store();
}

/* An index whose nodes cannot be read, or name nodes that are beyond the store. */
static void test_lost_index(void)
{
    struct plx_segment_header header;
    struct plx_vdi_record record;
    struct plx_vdi *vdi;
    uint8_t node[BLOCK];

    make(64 * MIB);
    fill_store();
    vdi = open_vdi(0);
    for (unsigned i = 0; i < 600; i++)
        fill(vdi, 3 * MIB + i % 100 * 8192, 4096, (int)(i % 3));
    OK(plx_vdi_close(vdi));
    leave_store();
    CLEAN();
    record = get_record(0);
    CU_ASSERT_FATAL(record.keyframe.pos / SEGMENT > 0 && record.first_segment == 0);
    CU_ASSERT_FATAL(record.index_levels > 1);
    peek(record.segment_addr, node); /* counts as it should, but follows other batches */
    OK(plx_format_segment_decode(node, &store_id, &record.id, record.keyframe.pos / SEGMENT,
                                 UINT32_MAX, &header, &fault));
    header.prev_hash ^= 1;
    plx_format_segment_encode(&store_id, &header, node);
    poke(record.segment_addr, node);
    EXPECT("log", "the log breaks off before segment");
    header.prev_hash ^= 1;
    plx_format_segment_encode(&store_id, &header, node);
    poke(record.segment_addr, node);
    CLEAN();
    peek(plx_entry_addr(record.index_root), node);
    for (unsigned i = 0; i < 2; i++) {
        uint64_t addr = plx_entry_addr(i ? plx_node_entry(node, 0) : record.index_root);

        plx_simdisk_fail_range(disk, addr * BLOCK, BLOCK, true, false);
        EXPECT("node", "cannot be read");
        CU_ASSERT_PTR_NOT_NULL(strstr(heard.text, "is missing or damaged; segment 0"));
        CU_ASSERT_EQUAL(heard.first.addr, addr);
        plx_simdisk_heal(disk);
    }
    CLEAN();
    plx_node_set_entry(node, 0, 1ull << 30);
    poke(plx_entry_addr(record.index_root), node);
    record.index_root = plx_entry_void(record.index_root);
    put_record(&record);
    EXPECT("address", "a node at block 1073741824 of the store");
    CU_ASSERT_PTR_NOT_NULL(strstr(heard.text, "a log segment is missing or damaged; segment 0"));
    UNREADABLE("log index, block"); /* a node that names such is believed in nothing */
    end_store();
}

static void expect_in_log(int third)
{
    struct plx_vdi *vdi;

    open_store(0);
    OK(plx_snapshot_open(store, 0, 0, &vdi, &fault));
    run(vdi, PLX_READ, 3 * MIB + 8192, BLOCK);
    CU_ASSERT_EQUAL(buffer[1], 1);
    run(vdi, PLX_READ, 3 * MIB + 2 * 8192, BLOCK);
    CU_ASSERT_EQUAL(buffer[1], third);
    plx_vdi_abandon(vdi);
    close_store();
}

/* A whole batch that does not go on from the one before it ends the log, if nothing says that it
 * was durable; else it is damage. */
static void test_not_continued(void)
{
    struct plx_batch_header header, wrong;
    uint64_t at, last;

    make_crashed(3);
    for (last = get_record(0).keyframe.batch_seq; find_batch(last + 1, &header);)
        last++;
    expect_in_log(2);
    for (unsigned field = 0; field < 4; field++) {
        for (unsigned before = 0; before < 2; before++) {
            at = find_batch(last - before, &header);
            CU_ASSERT_FATAL(at != 0);
            wrong = header;
            wrong.vdi ^= field == 0;
            wrong.prev_hash ^= field == 1;
            wrong.epoch += field == 2;
            wrong.epoch -= field == 3;
            forge_batch(at, &wrong, 0, 0);
            if (before) {
                UNREADABLE("is damaged");
                EXPECT("log", "a later one says that it was durable");
            } else {
                expect_in_log(0);
                CLEAN();
            }
            forge_batch(at, &header, 0, 0);
        }
    }
    expect_in_log(2);
    CLEAN();
    end_store();
}

/* Where a log goes on in another segment, this one's header does not count; what lies behind it
 * says that all was durable. */
static void test_lost_segment(void)
{
    struct plx_segment_header header, wrong;
    struct plx_vdi_record record;
    uint8_t kept[BLOCK], block[BLOCK];

    make_crashed(600);
    CLEAN();
    record = get_record(0);
    peek(record.next_addr, kept);
    OK(plx_format_segment_decode(kept, &store_id, &record.id, record.keyframe.pos / SEGMENT + 1,
                                 UINT32_MAX, &header, &fault));
    forge_segment(record.segment_addr, record.keyframe.pos / SEGMENT, 0, header.next_addr);
    EXPECT("log", "the index names another place than the segment before");
    forge_segment(record.segment_addr, record.keyframe.pos / SEGMENT, 0, record.next_addr);
    for (unsigned field = 0; field < 5; field++) {
        wrong = header;
        wrong.first_batch += field == 0;
        wrong.prev_hash ^= field == 1;
        wrong.epoch -= field == 2;
        plx_format_segment_encode(&store_id, &wrong, block);
        block[60] ^= field == 3;
        if (field == 4)
            plx_simdisk_fail_range(disk, record.next_addr * BLOCK, BLOCK, true, false);
        else
            poke(record.next_addr, block);
        EXPECT("log", "a log segment is missing or damaged; segment 1");
        if (field < 4)
            UNREADABLE("is damaged");
        plx_simdisk_heal(disk);
        poke(record.next_addr, kept);
    }
    CLEAN();
    end_store();
}

/* The header of the segment in which a log ends goes bad while it is opened, in each turn of the
 * loop: it is opened with all that was written, or refused and nothing is changed. */
static struct {
    uint64_t addr;
    unsigned turns, at;
} rot;

static void rot_header(struct plx_simenv *e)
{
    if (++rot.turns == rot.at)
        flip(rot.addr, 60);
}

static void test_rot_while_opened(void)
{
    struct plx_vdi *vdi = NULL;
    unsigned refused = 0;
    int error;

    make_crashed(600);
    open_store(2);
    OK(try_open_vdi(0, true, &vdi));
    for (unsigned i = 0; i < 600; i++)
        fill(vdi, 5 * MIB + i % 100 * 8192, 4096, 9);
    rot.addr = vdi->log.cursor.addr;
    crash_store();
    rot.at = 0;
    do {
        rot.at++;
        rot.turns = 0;
        env.on_tick = rot_header;
        error = try_open_vdi(0, true, &vdi);
        env.on_tick = NULL;
        refused += error != 0;
        if (error) {
            CU_ASSERT_EQUAL(error, PLX_ERR_CORRUPT);
            CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "log"));
            flip(rot.addr, 60);
        }
    } while (error);
    CU_ASSERT(refused > 2);
    run(vdi, PLX_READ, 5 * MIB + 99 * 8192, 4096);
    CU_ASSERT(buffer[1] == 9 && buffer[4095] == 9);
    plx_vdi_abandon(vdi);
    end_store();
}

/* Two batches behind v0's key frame: blocks 0 to 15, of which it is known that they are durable,
 * and 16 to 31; or two snapshots. Returns where the first or the second is. */
static uint64_t make_two(enum plx_request_op op, bool second, struct plx_batch_header *ret_header,
                         struct plx_record *ret_record)
{
    size_t offset = PLX_BATCH_HEADER_BYTES;
    uint8_t bytes[BLOCK];
    struct plx_vdi *vdi;
    uint64_t at, seq;

    make(64 * MIB);
    OK(create_vdi(0, 16 * MIB));
    vdi = open_vdi(0);
    for (unsigned i = 0; i < 2; i++) {
        if (op == PLX_WRITE || i)
            fill(vdi, i * 65536, 65536, 1);
        if (op == PLX_SNAPSHOT)
            run(vdi, PLX_SNAPSHOT, 0, 0);
    }
    seq = vdi->log.cursor.seq - (second ? 1 : 2);
    OK(plx_simenv_release_all(&env, &fault));
    plx_vdi_abandon(vdi);
    close_store();
    CLEAN();
    at = find_batch(seq, ret_header);
    CU_ASSERT_FATAL(at != 0);
    plx_simdisk_peek(disk, at, bytes, sizeof bytes);
    OK(plx_record_next(bytes, ret_header, &offset, UINT32_MAX, ret_record));
    return at;
}

static void expect_not_recovered(void)
{
    struct plx_vdi *vdi;
    uint64_t hash = plx_simdisk_hash(disk);

    open_store(2);
    FAILS(CORRUPT, try_open_vdi(0, true, &vdi));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "has an impossible record"));
    CU_ASSERT_EQUAL(plx_simdisk_hash(disk), hash);
    end_store();
}

/* A mapping that goes on behind the end of its extent, whether it is known to be durable or not. */
static void test_crossing(void)
{
    for (unsigned second = 0; second < 2; second++) {
        struct plx_batch_header header;
        struct plx_record record;
        uint64_t at = make_two(PLX_WRITE, second, &header, &record);

        CU_ASSERT(record.type == PLX_RECORD_MAP && record.count == 16);
        forge_in_chain(at, &header, PLX_BATCH_HEADER_BYTES + 8, (uint8_t)(record.addr ^ 0xff));
        EXPECT("log", "a mapping crosses the end of an extent");
        UNACCOUNTED("cross the end of an extent");
        UNREADABLE("has an impossible record");
        expect_not_recovered();
    }
}

/* Records of no kind, and of blocks that the disk does not have: nothing is opened by them, and
 * nothing is taken for free that they may have meant. */
static void test_impossible_records(void)
{
    for (unsigned i = 0; i < 4; i++) {
        struct plx_batch_header header;
        struct plx_record record;
        uint64_t at = make_two(PLX_WRITE, i & 1, &header, &record);

        if (i < 2)
            forge_in_chain(at, &header, PLX_BATCH_HEADER_BYTES, 0xff);
        else
            forge_in_chain(at, &header, PLX_BATCH_HEADER_BYTES + 3, 0x80);
        if (i < 2) {
            EXPECT("log", "impossible record");
            open_store(2);
            FAILS(CORRUPT, plx_vdi_mark(store, 0, &fault));
            close_store();
        } else {
            EXPECT("log", "a record does not fit the disk's size");
        }
        UNREADABLE("has an impossible record");
        expect_not_recovered();
    }
}

/* Of a disk that has grown behind its key frame blocks may be named that this one did not have; but
 * it never becomes smaller. */
static void test_grown_in_log(void)
{
    struct plx_batch_header header;
    struct plx_vdi *vdi;
    uint64_t at, seq;

    make(64 * MIB);
    OK(create_vdi(0, 16 * MIB));
    vdi = open_vdi(0);
    run(vdi, PLX_RESIZE, 0, 24 * MIB);
    fill(vdi, 20 * MIB, 65536, 1);
    seq = vdi->log.cursor.seq - 2;
    OK(plx_simenv_release_all(&env, &fault));
    plx_vdi_abandon(vdi);
    close_store();
    CLEAN();
    at = find_batch(seq, &header);
    CU_ASSERT_FATAL(at != 0);
    forge_in_chain(at, &header, PLX_BATCH_HEADER_BYTES + 8 + 3, 1); /* to 8 MiB */
    EXPECT("log", "a record does not fit the disk's size");
    UNREADABLE("has an impossible record");
    expect_not_recovered();
}

/* Snapshots that were there already, or are too far away. */
static void test_impossible_snapshots(void)
{
    for (unsigned i = 0; i < 2; i++) {
        struct plx_batch_header header;
        struct plx_record record;
        uint64_t at = make_two(PLX_SNAPSHOT, true, &header, &record);

        CU_ASSERT(record.type == PLX_RECORD_SNAPSHOT && record.seq == 2);
        forge_in_chain(at, &header, PLX_BATCH_HEADER_BYTES + (i ? 12 : 8), i ? 1 : 3);
        if (!i)
            EXPECT("log", "snapshots are not numbered one after the other; snapshot 1");
        UNREADABLE("has an impossible record");
        expect_not_recovered();
    }
}

/* Two blocks that seem to adjoin, in two extents, which may be in two volumes: each is read by
 * itself. */
static void test_adjoining(void)
{
    struct plx_vdi *vdi;
    uint8_t blocks[2][BLOCK];
    uint64_t addr, reads;

    make_history();
    addr = (find_extent(PLX_EXTENT_DATA) + 1) * EXTENT_BLOCKS - 1;
    forge_entry(1, 400, addr);
    forge_entry(1, 401, addr + 1);
    EXPECT("address", "no data extent"); /* but in the header of one */
    peek(addr, blocks[0]);
    peek(addr + 1, blocks[1]);
    open_store(2);
    vdi = open_vdi(1);
    run(vdi, PLX_READ, 402 * BLOCK, BLOCK);
    reads = store->counters.device_reads[PLX_KIND_DATA];
    run(vdi, PLX_READ, 400 * BLOCK, 2 * BLOCK);
    CU_ASSERT_EQUAL(store->counters.device_reads[PLX_KIND_DATA], reads + 2);
    CU_ASSERT_EQUAL(memcmp(buffer, blocks, sizeof blocks), 0);
    plx_vdi_abandon(vdi);
    end_store();
}

/* The same of what the log alone tells: the checker reads each by itself. */
static void test_adjoining_in_log(void)
{
    struct plx_batch_header header;
    struct plx_record record;
    uint8_t bytes[BLOCK];
    struct plx_vdi *vdi;
    uint64_t seq;

    make(64 * MIB);
    OK(create_vdi(0, 16 * MIB));
    vdi = open_vdi(0);
    for (unsigned i = 0; i < 3; i++)
        fill(vdi, i * 65536, 65536, 1);
    seq = vdi->log.cursor.seq - 3;
    OK(plx_simenv_release_all(&env, &fault));
    plx_vdi_abandon(vdi);
    close_store();
    CLEAN();
    for (unsigned i = 0; i < 2; i++) { /* to the end of an extent, to the start of the next */
        size_t offset = PLX_BATCH_HEADER_BYTES;
        uint64_t at = find_batch(seq + i, &header), addr;

        CU_ASSERT_FATAL(at != 0);
        plx_simdisk_peek(disk, at, bytes, sizeof bytes);
        OK(plx_record_next(bytes, &header, &offset, UINT32_MAX, &record));
        CU_ASSERT_FATAL(record.type == PLX_RECORD_MAP && record.count == 16);
        addr = (record.addr / EXTENT_BLOCKS + 1) * EXTENT_BLOCKS - (i ? 0 : 16);
        forge_in_chain(at, &header, PLX_BATCH_HEADER_BYTES + 8, (uint8_t)(record.addr ^ addr));
        CU_ASSERT_FATAL(find_batch(seq + i, &header) == at);
        forge_in_chain(at, &header, PLX_BATCH_HEADER_BYTES + 9,
                       (uint8_t)(record.addr >> 8 ^ addr >> 8));
    }
    open_store(0);
    EXPECT("data", "blocks 16 to 31 do not match their checksums (store blocks ");
    CU_ASSERT_PTR_NOT_NULL(strstr(heard.text, "blocks 0 to 15 do not match their checksums"));
    CU_ASSERT_EQUAL(heard.errors, 2);
    CU_ASSERT_EQUAL(store->counters.device_reads[PLX_KIND_DATA], 2 + 32); /* and one by one */
    end_store();
}

/* ---- What letting go makes of them ---- */

/* Four snapshots, key frames behind the first, the third and the last. Returns the number of the
 * batch before the first key frame. */
static uint64_t make_thinnable(struct plx_vdi **ret_vdi)
{
    struct plx_vdi *vdi;
    uint64_t batch = 0;

    make(64 * MIB);
    OK(create_vdi(0, 16 * MIB));
    vdi = open_vdi(0);
    for (int i = 1; i <= 4; i++) {
        fill(vdi, (uint64_t)i * 65536, 131072, i);
        run(vdi, PLX_SNAPSHOT, 0, 0);
        if (i != 2)
            run(vdi, PLX_KEYFRAME, 0, 0);
        batch = i == 1 ? vdi->record.keyframe.batch_seq : batch;
    }
    *ret_vdi = vdi;
    return batch;
}

static bool has_snapshots(unsigned count)
{
    struct plx_vdi *instant;

    for (unsigned seq = 1; seq <= 4; seq++) {
        if (plx_snapshot_open(store, 0, seq, &instant, &fault))
            continue;
        count--;
        plx_vdi_abandon(instant);
    }
    return count == 0;
}

static struct {
    uint64_t at;
    struct plx_batch_header header;
    unsigned turns, turn;
} forging;

static void forge_later(struct plx_simenv *e)
{
    struct plx_batch_header wrong = forging.header;

    wrong.time_ns++;
    if (++forging.turns == forging.turn)
        forge_batch(forging.at, &wrong, 0, 0);
}

/* A record that cannot be; and a batch that becomes another one while it is worked on: what is not
 * worked on, but copied, must be what the log goes on from. Nothing has gone then. */
static void test_thin_damaged(void)
{
    const struct plx_thin thin = {.after = 2, .upto = 3};
    struct plx_thinned thinned;
    struct plx_vdi *vdi;
    uint64_t batch;
    int error;

    batch = make_thinnable(&vdi);
    forging.at = find_batch(vdi->record.keyframe.batch_seq, &forging.header);
    CU_ASSERT_FATAL(forging.at != 0);
    forge_batch(forging.at, &forging.header, PLX_BATCH_HEADER_BYTES, 0xff);
    FAILS(CORRUPT, plx_vdi_thin(vdi, &thin, &thinned, &fault));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "has an impossible record"));
    forge_batch(forging.at, &forging.header, PLX_BATCH_HEADER_BYTES, 0xff);
    CU_ASSERT(has_snapshots(4));
    forging.at = find_batch(batch, &forging.header);
    CU_ASSERT_FATAL(forging.at != 0);
    forging.turn = 0;
    do {
        forging.turn++;
        forging.turns = 0;
        env.on_tick = forge_later;
        error = plx_vdi_thin(vdi, &thin, &thinned, &fault);
        env.on_tick = NULL;
        if (error) {
            CU_ASSERT_EQUAL(error, PLX_ERR_CORRUPT);
            CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "v0: log"));
            forge_batch(forging.at, &forging.header, 0, 0);
            CU_ASSERT(has_snapshots(4));
        }
    } while (error);
    CU_ASSERT(forging.turn > 2);
    CU_ASSERT_EQUAL(thinned.snapshots, 1);
    CU_ASSERT(has_snapshots(3));
    OK(plx_vdi_close(vdi));
    leave_store();
    CLEAN();
    end_store();
}

/* The SKIP record leads there; 0: where it did. twice: there are two of it in its batch. */
static void forge_skip(uint64_t batch_seq, uint64_t pos, bool twice)
{
    static uint8_t bytes[PLX_BATCH_BYTES_MAX];
    unsigned forged = 0;

    for (uint64_t at = 0; at < fixture.disk.bytes; at += 512) {
        struct plx_batch_header header;
        size_t offset = PLX_BATCH_HEADER_BYTES;
        struct plx_record record;

        plx_simdisk_peek(disk, at, bytes,
                         (size_t)plx_min_u64(sizeof bytes, fixture.disk.bytes - at));
        if (plx_format_batch_decode(bytes, sizeof bytes, &header) || !header.records ||
            plx_record_next(bytes, &header, &offset, UINT32_MAX, &record) ||
            record.type != PLX_RECORD_SKIP)
            continue;
        record.keyframe.batch_seq = batch_seq ? batch_seq : record.keyframe.batch_seq;
        record.keyframe.pos = pos ? pos : record.keyframe.pos;
        offset = PLX_BATCH_HEADER_BYTES;
        offset += plx_record_put_skip(bytes + offset, &record.keyframe);
        if (twice) {
            offset += plx_record_put_skip(bytes + offset, &record.keyframe);
            CU_ASSERT_FATAL(offset <= header.bytes);
            header.records = 2;
        }
        plx_format_batch_encode(&header, bytes);
        plx_simdisk_poke(disk, at, bytes, header.bytes);
        forged++;
    }
    CU_ASSERT_EQUAL(forged, 1);
}

/* Batches or places that were before, a place behind the key frame, and two ways on. */
static void test_skip(void)
{
    static const uint64_t wrong[][3] = {{1, 0, 0}, {0, BLOCK, 0}, {0, 1ull << 40, 0}, {0, 0, 1}};

    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct plx_thinned thinned;
        struct plx_vdi *vdi;

        make_thinnable(&vdi);
        OK(plx_vdi_thin(vdi, &(struct plx_thin){.after = 2, .upto = 3}, &thinned, &fault));
        OK(plx_vdi_close(vdi));
        leave_store();
        CLEAN();
        forge_skip(wrong[i][0], wrong[i][1], wrong[i][2]);
        EXPECT("log", "a SKIP record leads nowhere");
        open_store(0);
        FAILS(CORRUPT, plx_snapshot_open(store, 0, 4, &vdi, &fault)); /* nor goes on for ever */
        CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "is damaged"));
        OK(plx_snapshot_open(store, 0, 2, &vdi, &fault));
        plx_vdi_abandon(vdi);
        end_store();
    }
}

/* A rewind took back what was written before it, and all that knew of it went: first between two
 * snapshots, so that the log goes on where history then begins. It still says what was mapped. */
static void test_taken_back(void)
{
    struct plx_rewind_options options = {.seq = 1};
    struct plx_snapshot_info before;
    uint64_t blocks, taken;
    struct plx_vdi *vdi;

    make(64 * MIB);
    OK(create_vdi(0, 16 * MIB));
    vdi = open_vdi(0);
    fill(vdi, 0, 65536, 1);
    run(vdi, PLX_SNAPSHOT, 0, 0);
    fill(vdi, MIB, 65536, 2);
    taken = addr_of(vdi, EXTENT_BLOCKS);
    OK(plx_vdi_rewind(vdi, &options, &before, &fault));
    for (int i = 3; i < 7; i++) {
        fill(vdi, 0, 65536, i);
        CU_ASSERT_EQUAL(run(vdi, PLX_SNAPSHOT, 0, 0), (uint64_t)i);
        run(vdi, PLX_KEYFRAME, 0, 0);
    }
    let_snapshots_go(vdi, 3, 5);
    let_snapshots_go(vdi, 0, 5);
    CU_ASSERT_EQUAL(vdi->record.oldest.snap_seq, 5);
    CU_ASSERT_EQUAL(vdi->record.first_segment, 0); /* that is still there */
    OK(plx_simenv_collect(&env, &blocks, &fault));
    CU_ASSERT(blocks >= 16);
    flip(taken, 9); /* nobody's any more */
    run(vdi, PLX_SNAPSHOT, 0, 0);
    run(vdi, PLX_KEYFRAME, 0, 0);
    OK(plx_vdi_close(vdi));
    leave_store();
    CLEAN();
    end_store();
}

/* Where history begins the record knows another key frame than the log announces there: as after a
 * crash, when recovery wrote it once more, and the nodes of the other one are used for something
 * else. Snapshots are found through the record's. */
static void test_written_once_more(void)
{
    struct plx_vdi *vdi, *instant;
    struct plx_vdi_record record;
    uint8_t node[BLOCK], nothing[BLOCK] = {0}, at[BLOCK];
    uint64_t root, other;

    make_thinnable(&vdi);
    let_snapshots_go(vdi, 0, 1);
    CU_ASSERT_EQUAL(vdi->record.oldest.snap_seq, 1);
    OK(plx_vdi_close(vdi));
    leave_store();
    CLEAN();
    record = get_record(0);
    root = plx_entry_addr(record.oldest.root);
    CU_ASSERT_NOT_EQUAL(root, plx_entry_addr(record.keyframe.root));
    other = root / EXTENT_BLOCKS * EXTENT_BLOCKS + 120;
    peek(other, at);
    CU_ASSERT_EQUAL_FATAL(memcmp(at, nothing, BLOCK), 0); /* nobody's */
    peek(root, node);
    poke(other, node);
    memset(node, 0x5a, BLOCK);
    poke(root, node);
    forge_bit(other, true);
    record.oldest.root = plx_entry_make(other, plx_entry_checksum(record.oldest.root));
    put_record(&record);
    CLEAN();
    open_store(0);
    for (uint64_t seq = 2; seq <= 4; seq++) {
        OK(plx_snapshot_open(store, 0, seq, &instant, &fault));
        run(instant, PLX_READ, 65536, 131072); /* from the key frame; from the log */
        CU_ASSERT(buffer[65535] == 1 && buffer[131071] == 2);
        plx_vdi_abandon(instant);
    }
    end_store();
}

/* The record says that the log goes on with a segment that is still to begin, and of those before
 * it the last one has gone, with snapshots: those that stay are found all the same. */
static void test_hole_before_end(void)
{
    struct plx_vdi *vdi, *instant;
    struct plx_vdi_record record;
    uint64_t hole = 0;

    make(64 * MIB);
    OK(create_vdi(0, 16 * MIB));
    vdi = open_vdi(0);
    for (int i = 1; i <= 4; i++) {
        for (unsigned at = 0; at < 300; at++) {
            run(vdi, PLX_UNMAP, at % 50 * 8192, 4096);
            OK(write_byte(vdi, at % 50 * 8192, 4096, i));
        }
        run(vdi, PLX_SNAPSHOT, 0, 0);
        run(vdi, PLX_KEYFRAME, 0, 0);
    }
    let_snapshots_go(vdi, 1, 3);
    while (hole < vdi->log.segment_count && vdi->log.segments[hole])
        hole++;
    CU_ASSERT_FATAL(hole > 0 && hole < vdi->log.segment_count);
    OK(plx_vdi_close(vdi));
    leave_store();
    CLEAN();
    record = get_record(0);
    CU_ASSERT_EQUAL_FATAL(record.first_segment, 0);
    record.keyframe.pos = (hole + 1) * SEGMENT;
    record.segment_addr = fixture.disk.bytes / BLOCK - 32; /* nothing is there */
    record.next_addr = record.segment_addr - 32;
    put_record(&record);
    open_store(0);
    OK(plx_snapshot_open(store, 0, 1, &instant, &fault));
    CU_ASSERT(reads_as(instant, 49 * 8192, 4096, 1));
    plx_vdi_abandon(instant);
    end_store();
}

/* Records of more blocks than the log has told of: what they name is unmapped, and void. */
static void test_wide_records(void)
{
    struct plx_vdi *vdi;

    make(64 * MIB);
    OK(create_vdi(0, 16 * MIB));
    vdi = open_vdi(0);
    run(vdi, PLX_SNAPSHOT, 0, 0);
    fill(vdi, MIB, 65536, 1);
    run(vdi, PLX_UNMAP, 0, 8 * MIB);
    fill(vdi, 2 * MIB - 65536, 131072, 2); /* in two leaves */
    fill(vdi, 2 * MIB - 65536, 131072, 3); /* in place */
    run(vdi, PLX_SNAPSHOT, 0, 0);
    fill(vdi, 2 * MIB - 65536, 131072, 4); /* those only the snapshot has now */
    run(vdi, PLX_KEYFRAME, 0, 0);
    OK(plx_vdi_close(vdi));
    leave_store();
    CLEAN();
    CU_ASSERT_EQUAL(checked.data_verified, 32);
    end_store();
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"impossible logs", test_impossible_log},
        {"mappings that cross the end of an extent", test_crossing},
        {"impossible records", test_impossible_records},
        {"impossible snapshots", test_impossible_snapshots},
        {"a disk that has grown in its log", test_grown_in_log},
        {"blocks that adjoin in two extents", test_adjoining},
        {"blocks that adjoin there in the log", test_adjoining_in_log},
        {"impossible places in logs", test_impossible_positions},
        {"a log without its index", test_no_index},
        {"a log whose index is lost", test_lost_index},
        {"batches that do not continue", test_not_continued},
        {"a segment that is lost behind the key frame", test_lost_segment},
        {"damage while a disk is opened", test_rot_while_opened},
        {"letting go in a damaged log", test_thin_damaged},
        {"a log that goes on nowhere", test_skip},
        {"what a rewind took back before history began", test_taken_back},
        {"a key frame that was written once more", test_written_once_more},
        {"a hole before a segment that is still to begin", test_hole_before_end},
        {"wide records", test_wide_records},
    };

    return SUITE_RUN("verify: logs", tests);
}
