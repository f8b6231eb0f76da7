/* test_verify.c - the checker finds each kind of damage, says where, and finds nothing else. What
 * it makes of logs that cannot be is in test_verify_log.c, disks that are open in
 * test_verify_beside.c.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/disk/vdi.h"
#include "ok.h"
#include "suite.h"
#include "unit/forge.h"

static void test_clean(void)
{
    make_history();
    CLEAN();
    CU_ASSERT_EQUAL(checked.vdis, 2);
    CU_ASSERT_EQUAL(checked.snapshots, 2);
    CU_ASSERT(checked.data_verified > 256);
    CU_ASSERT(heard.deleted >= 16); /* v2's data */
    CU_ASSERT_EQUAL(heard.deleted, checked.deleted_blocks);
    CU_ASSERT_EQUAL(heard.deleted + heard.other, checked.leaked_blocks);
    CU_ASSERT_EQUAL(checked.used_blocks + checked.free_blocks, 63 * EXTENT_BLOCKS);
    end_store();
}

static void test_copies(void)
{
    uint64_t extent;

    make_history();
    flip(1, 200);
    EXPECT("superblock", "copy 1");
    flip(1, 200);
    flip(record_addr(0), 200); /* one of two is no damage */
    CLEAN();
    flip(record_addr(0) + 1, 200);
    EXPECT("record", "slot 0");
    flip(record_addr(0), 200);
    flip(record_addr(0) + 1, 200);
    extent = find_extent(PLX_EXTENT_DATA);
    flip(extent * EXTENT_BLOCKS, 300);
    flip(extent * EXTENT_BLOCKS + 1, 300);
    EXPECT("bitmap", "extent");
    flip(extent * EXTENT_BLOCKS, 300);
    flip(extent * EXTENT_BLOCKS + 1, 300);
    CLEAN();
    end_store();
}

static void test_bits(void)
{
    uint64_t addr, leaks, used;

    make_history();
    CLEAN();
    leaks = heard.other;
    addr = plx_entry_addr(entry_of(0, 0));
    forge_bit(addr, false);
    EXPECT("free", "marked as free");
    CU_ASSERT_EQUAL(heard.first.addr, addr);
    CU_ASSERT_EQUAL(heard.first.vblock, 0);
    CU_ASSERT_EQUAL(heard.first.volume_block, addr);
    CU_ASSERT_STRING_EQUAL(heard.volume, "sim");
    CU_ASSERT_EQUAL(heard.errors, 1);
    forge_bit(addr, true);
    forge_bit(plx_entry_addr(get_record(1).keyframe.root), false);
    EXPECT("free", "v1 (node");
    forge_bit(plx_entry_addr(get_record(1).keyframe.root), true);
    forge_bit(get_record(0).segment_addr, false);
    EXPECT("free", "v0 (log segment");
    forge_bit(get_record(0).segment_addr, true);
    addr = addr / EXTENT_BLOCKS * EXTENT_BLOCKS + EXTENT_BLOCKS - 1;
    forge_bit(addr, true);
    CLEAN();
    CU_ASSERT_EQUAL(heard.other, leaks + 1);
    /* An extent's own pages are in use, whatever their bits say. */
    used = checked.used_blocks;
    forge_bit(addr / EXTENT_BLOCKS * EXTENT_BLOCKS, false);
    CLEAN();
    CU_ASSERT_EQUAL(checked.used_blocks, used);
    CU_ASSERT_EQUAL(checked.used_blocks + checked.free_blocks, 63 * EXTENT_BLOCKS);
    end_store();
}

static void test_contents(void)
{
    struct plx_vdi_record record;
    uint64_t path[PLX_LEVELS_MAX], addr;
    uint8_t leaf[BLOCK];

    make_history();
    record = get_record(0);
    load_leaf(&record, path, leaf);
    flip(path[1], 4000);
    EXPECT("node", "level 2");
    CU_ASSERT_STRING_EQUAL(heard.vdi, "v0");
    flip(path[1], 4000);
    addr = plx_entry_addr(plx_node_entry(leaf, 100));
    flip(addr, 17);
    EXPECT("data", "block 100 does not match");
    CU_ASSERT_EQUAL(heard.errors, 2); /* VERIFY-9: v0, its snapshots and v1 have it */
    CU_ASSERT_PTR_NOT_NULL(strstr(heard.text, "virtual disk v0: block 100 does not match"));
    CU_ASSERT_PTR_NOT_NULL(strstr(heard.text, "virtual disk v1: block 100 does not match"));
    CU_ASSERT_PTR_NULL(strstr(heard.text, "only snapshots"));
    flip(addr, 17);
    plx_simdisk_fail_range(disk, addr * BLOCK, BLOCK, true, false);
    EXPECT("data", "block 100 cannot be read");
    plx_simdisk_heal(disk);
    CLEAN();
    end_store();
}

/* A block that only a snapshot sees, and the blocks of its key frame. */
static void test_snapshot_contents(void)
{
    struct plx_vdi *snapshot;
    uint64_t addr;

    make_history();
    open_store(0);
    OK(plx_snapshot_open(store, 0, 1, &snapshot, &fault));
    addr = addr_of(snapshot, 0);
    plx_vdi_abandon(snapshot);
    close_store();
    CU_ASSERT_NOT_EQUAL(addr, plx_entry_addr(entry_of(0, 0)));
    flip(addr, 5);
    EXPECT("data", "does not match its checksum; only snapshots have it");
    flip(addr, 5);
    forge_bit(addr, false);
    EXPECT("free", "in a snapshot");
    forge_bit(addr, true);
    /* The newest tree takes the block as its own: what the snapshot sees could be overwritten. */
    forge_entry(0, 3, addr);
    EXPECT("shared", "in a snapshot");
    CU_ASSERT_PTR_NOT_NULL(strstr(heard.text, "v0 (block 3, which it may overwrite in place)"));
    end_store();
}

/* What a clone began with and has overwritten since, of a parent that is deleted: nobody reads it
 * any more, and a collection may have freed it. The nodes are still needed. */
static void test_origin_contents(void)
{
    struct plx_vdi *vdi;
    uint64_t addr;

    make(64 * MIB);
    fill_store();
    OK(plx_snapshot_open(store, 0, 1, &vdi, &fault));
    addr = addr_of(vdi, 20);
    plx_vdi_abandon(vdi);
    OK(plx_vdi_delete(store, 0, false, &fault));
    vdi = open_vdi(1);
    CU_ASSERT_NOT_EQUAL(addr, addr_of(vdi, 20));
    CLEAN();
    flip(addr, 5);
    CLEAN();
    forge_bit(addr, false);
    CLEAN();
    forge_bit(addr, true);
    flip(addr, 5);
    OK(plx_vdi_close(vdi));
    end_store();
}

static void test_sharing(void)
{
    uint64_t addr, kept;

    make_history();
    /* Read-only and seen by a snapshot: losing the bit makes it writable. The leaf of v1 shares
     * what it has not written with v0. */
    addr = entry_of(1, 200);
    CU_ASSERT((addr & PLX_ENTRY_READ_ONLY) != 0);
    forge_entry(1, 200, addr & ~PLX_ENTRY_READ_ONLY);
    EXPECT("shared", "v1 (block 200, which it may overwrite in place)");
    CU_ASSERT_PTR_NOT_NULL(strstr(heard.text, "v0 (block 200"));
    forge_entry(1, 200, addr);
    CLEAN();
    /* Twice in one tree. */
    kept = entry_of(1, 17);
    CU_ASSERT((kept & PLX_ENTRY_READ_ONLY) == 0);
    addr = entry_of(1, 18);
    forge_entry(1, 18, kept);
    EXPECT("shared", "v1 (block 17");
    CU_ASSERT_PTR_NOT_NULL(strstr(heard.text, "v1 (block 18"));
    forge_entry(1, 18, addr);
    /* Another disk's own. */
    addr = entry_of(0, 2);
    CU_ASSERT((addr & PLX_ENTRY_READ_ONLY) == 0);
    forge_entry(1, 300, addr);
    EXPECT("shared", "v0 (block 2");
    end_store();
}

/* VERIFY-11: v1 is a clone of v0. */
static void test_reading_alone(void)
{
    struct plx_vdi_record record;
    uint64_t mine, its, inherited;

    make_history();
    /* v1 and v0 have both written it. */
    mine = entry_of(1, 17);
    its = entry_of(0, 17);
    forge_entry(1, 17, mine | PLX_ENTRY_READ_ONLY);
    CLEAN();
    forge_entry(0, 17, mine | PLX_ENTRY_READ_ONLY);
    EXPECT("shared", "v0 (block 17)");
    CU_ASSERT_PTR_NOT_NULL(strstr(heard.text, "v1 (block 17)"));
    forge_entry(0, 17, its);
    forge_entry(1, 17, mine);
    /* v1 has it, and not with the tree that it began with: at another place, or in one disk. */
    inherited = entry_of(1, 200);
    its = entry_of(1, 300);
    forge_entry(1, 300, inherited);
    EXPECT("shared", "v1 (block 300)");
    CU_ASSERT_PTR_NOT_NULL(strstr(heard.text, "v0 (block 200"));
    forge_entry(1, 300, its);
    CLEAN();
    /* It is no clone of v0, although it has v0's blocks. */
    record = get_record(1);
    memset(&record.parent, 0, sizeof record.parent);
    put_record(&record);
    EXPECT("shared", "v1 (block 200)");
    record.parent = store_id; /* nobody knows whose clone it is */
    put_record(&record);
    CLEAN();
    record.parent = get_record(0).id;
    put_record(&record);
    CLEAN();
    end_store();
}

/* VERIFY-11: an origin that lacks the snapshot of its clone may have got the clone's blocks since.
 * Equal checksums prove that it did not. */
static void test_lost_snapshot(void)
{
    struct plx_vdi_record record;
    uint64_t inherited;

    make_history();
    record = get_record(1);
    record.parent_seq = 77;
    put_record(&record);
    CLEAN();
    inherited = entry_of(1, 200);
    forge_entry(1, 200, plx_entry_make(plx_entry_addr(inherited), 0) | PLX_ENTRY_READ_ONLY);
    EXPECT("shared", "v1 (block 200)");
    record = get_record(1);
    record.parent_seq = 1;
    put_record(&record);
    CLEAN();
    forge_entry(1, 200, plx_entry_make(plx_entry_addr(inherited), 1) | PLX_ENTRY_READ_ONLY);
    end_store();
}

/* VERIFY-11: a node of v0's is no node of v1's that has another checksum, or lies elsewhere. */
static void test_other_node(void)
{
    struct plx_vdi_record record, kept;
    uint64_t root;

    make_history();
    root = get_record(0).keyframe.root;
    kept = record = get_record(1);
    record.keyframe.root =
        plx_entry_make(plx_entry_addr(root), plx_entry_checksum(root) ^ 1) | PLX_ENTRY_READ_ONLY;
    record.keyframe.levels = get_record(0).keyframe.levels;
    put_record(&record);
    EXPECT("node",
           "virtual disk v1: node of level 3, which leads to blocks 0 to 4095, does not match");
    CU_ASSERT_PTR_NULL(strstr(heard.text, "virtual disk v0: node"));
    CU_ASSERT_PTR_NOT_NULL(strstr(heard.text, "one block is used twice: by virtual disk v0 (node"));
    kept.generation = record.generation;
    put_record(&kept);
    CLEAN();
    end_store();
}

/* Any number may have a common block; nobody has it otherwise. */
static void test_common(void)
{
    uint64_t mine, another, common;

    make_history();
    mine = entry_of(1, 17);
    another = entry_of(1, 18);
    common = plx_entry_make(plx_entry_addr(mine) | PLX_ADDR_COMMON, plx_entry_checksum(mine));
    forge_entry(1, 17, common);
    CLEAN();
    forge_entry(1, 18, common);
    forge_entry(0, 2, common);
    CLEAN();
    forge_entry(1, 18, common | PLX_ENTRY_READ_ONLY);
    CLEAN();
    forge_entry(1, 18, mine | PLX_ENTRY_READ_ONLY);
    EXPECT("shared", "as a common block");
    CU_ASSERT_PTR_NOT_NULL(strstr(heard.text, "v1 (block 18"));
    forge_entry(1, 18, mine);
    EXPECT("shared", "v1 (block 18, which it may overwrite in place)");
    forge_entry(1, 18, another);
    CLEAN();
    end_store();
}

static void test_addresses(void)
{
    struct plx_vdi_record record;

    make_history();
    forge_entry(1, 400, 5); /* a system extent */
    EXPECT("address", "no data extent");
    CU_ASSERT_EQUAL(heard.first.vblock, 400);
    forge_entry(1, 400, 1ull << 30); /* beyond the store */
    EXPECT("address", "no data extent");
    UNACCOUNTED("names no block of the store");
    forge_entry(1, 400, plx_entry_addr(get_record(1).keyframe.root));
    EXPECT("address", "no data extent");
    forge_entry(1, 400, PLX_ENTRY_SUPERPAGE | plx_entry_addr(entry_of(0, 0)));
    EXPECT("address", "no data extent");
    forge_entry(1, 400, 0);
    CLEAN();
    record = get_record(1);
    record.keyframe.size_bytes = MIB / 2;
    put_record(&record);
    EXPECT("address", "beyond the end");
    record.keyframe.size_bytes = 16 * MIB;
    put_record(&record);
    record.keyframe.root = plx_entry_addr(entry_of(0, 0));
    put_record(&record);
    EXPECT("address", "no metadata extent");
    end_store();
}

/* Nothing of what the last rewind went to is read-only any more. */
static void forge_rewound(struct plx_vdi_record *record)
{
    struct plx_rewind *rewind = &record->rewind[record->rewinds - 1];
    uint64_t addr = plx_entry_addr(rewind->root);
    uint8_t node[BLOCK];

    for (unsigned level = rewind->levels; level > 0; level--) {
        uint64_t entry;

        peek(addr, node);
        entry = plx_node_entry(node, 0) & ~PLX_ENTRY_READ_ONLY;
        plx_node_set_entry(node, 0, level > 1 ? plx_entry_void(entry) : entry);
        poke(addr, node);
        addr = plx_entry_addr(entry);
    }
    rewind->root = plx_entry_void(rewind->root) & ~PLX_ENTRY_READ_ONLY;
    put_record(record);
}

/* A disk that went back and on: what its table names, and what it must name. */
static void test_rewound(void)
{
    struct plx_rewind_options options = {.seq = 1};
    struct plx_vdi_record record, whole;
    struct plx_snapshot_info before;
    struct plx_vdi *vdi;

    make(64 * MIB);
    fill_store();
    vdi = open_vdi(0);
    OK(plx_vdi_rewind(vdi, &options, &before, &fault));
    fill(vdi, 0, 65536, 8);
    run(vdi, PLX_KEYFRAME, 0, 0);
    OK(plx_vdi_close(vdi));
    OK(plx_simenv_release_all(&env, &fault));
    close_store();
    CLEAN();
    record = whole = get_record(0);
    CU_ASSERT_EQUAL_FATAL(record.rewinds, 1);
    CU_ASSERT_EQUAL(record.rewind[0].seq, 1);
    for (unsigned field = 0; field < 5; field++) {
        const struct plx_rewind *known = &whole.rewind[0];
        uint64_t generation = record.generation;

        record = whole;
        record.generation = generation;
        if (field == 0)
            record.rewinds = 0;
        else
            record.rewind[0] = (struct plx_rewind){
                .pos = known->pos + (field == 1 ? 512 : 0),
                .seq = known->seq + (field == 2),
                .root = field == 3 ? plx_entry_void(known->root) : known->root,
                .levels = known->levels + (field == 4),
            };
        put_record(&record);
        EXPECT("keyframe", "does not know of a rewind to snapshot 1");
    }
    whole.generation = record.generation;
    put_record(&whole);
    CLEAN();
    flip(plx_entry_addr(whole.rewind[0].root), 8);
    EXPECT("node", "does not match its checksum");
    flip(plx_entry_addr(whole.rewind[0].root), 8);
    CLEAN();
    forge_rewound(&whole);
    EXPECT("keyframe", "does not know of a rewind to snapshot 1");
    CU_ASSERT_EQUAL(heard.errors, 1); /* its data is what it was */
    end_store();
}

/* A bitmap that lost a bit: the block is freed as if nothing were, and that is told. */
static void test_free_already(void)
{
    struct plx_vdi *vdi;

    make_history();
    forge_bit(plx_entry_addr(entry_of(0, 2)), false);
    open_store(2);
    vdi = open_vdi(0);
    run(vdi, PLX_UNMAP, 2 * BLOCK, BLOCK);
    run(vdi, PLX_KEYFRAME, 0, 0);
    plx_store_settle(store);
    CU_ASSERT_EQUAL(plx_simenv_heard(&env, "was to be freed but is free"), 1);
    CU_ASSERT(reads_as(vdi, 2 * BLOCK, BLOCK, 0));
    OK(plx_vdi_close(vdi));
    leave_store();
    CLEAN();
    end_store();
}

static void test_log(void)
{
    struct plx_vdi_record record, whole;
    struct plx_batch_header header, wrong;
    uint64_t at;

    make_history();
    record = whole = get_record(0);
    at = find_batch(3, &header);
    CU_ASSERT_FATAL(at != 0);
    plx_simdisk_flip(disk, at + 90, 1);
    EXPECT("log", "breaks off");
    plx_simdisk_flip(disk, at + 90, 1);
    flip(record.segment_addr, 60);
    EXPECT("log", "missing or damaged");
    flip(record.segment_addr, 60);
    /* The last batch before the key frame: its hash is in the record. */
    at = find_batch(record.keyframe.batch_seq, &header);
    CU_ASSERT_FATAL(at != 0);
    wrong = header;
    wrong.time_ns++;
    forge_batch(at, &wrong, 0, 0);
    EXPECT("keyframe", "another log batch");
    wrong = header;
    wrong.durable_seq = header.seq;
    forge_batch(at, &wrong, 0, 0);
    EXPECT("log", "calls itself durable");
    wrong.durable_seq = 0;
    forge_batch(at, &wrong, 0, 0);
    EXPECT("log", "mark falls");
    wrong = header;
    wrong.prev_hash ^= 1;
    forge_batch(at, &wrong, 0, 0);
    EXPECT("log", "breaks off");
    forge_batch(at, &header, PLX_BATCH_HEADER_BYTES, 0xff);
    EXPECT("log", "impossible record");
    UNACCOUNTED("impossible record");
    forge_batch(at, &header, PLX_BATCH_HEADER_BYTES, 0xff);
    CLEAN();
    record.keyframe.snap_seq = 7;
    put_record(&record);
    EXPECT("keyframe", "other snapshots");
    record = whole;
    record.next_addr += EXTENT_BLOCKS - 1 - record.next_addr % EXTENT_BLOCKS;
    put_record(&record);
    UNACCOUNTED("impossible log position");
    record = whole;
    record.first_segment = record.keyframe.pos / MIB + 1;
    record.next_addr = record.segment_addr;
    put_record(&record);
    CU_ASSERT_EQUAL(check_at(0), 0);
    CU_ASSERT(heard.errors > 0);
    end_store();
}

/* ---- Very much damage ---- */

#define DAMAGED_BLOCKS 1100u

static void test_many_findings(void)
{
    struct plx_vdi *vdi;

    make(32 * MIB);
    OK(create_vdi(0, 16 * MIB));
    vdi = open_vdi(0);
    for (unsigned i = 0; i < 5; i++)
        fill(vdi, i * 2 * MIB, 2 * MIB, 1);
    run(vdi, PLX_KEYFRAME, 0, 0);
    for (unsigned i = 0; i < DAMAGED_BLOCKS; i++)
        flip(addr_of(vdi, 2 * i), 9);
    OK(plx_vdi_close(vdi));
    EXPECT("more", "100 further blocks of virtual disks are damaged");
    CU_ASSERT_EQUAL(heard.errors, 1001);
    end_store();
}

/* The bitmaps call everything free: more blocks than are looked at one by one. */
static void test_many_suspects(void)
{
    struct plx_vdi *vdi;

    make(32 * MIB);
    OK(create_vdi(0, 24 * MIB));
    vdi = open_vdi(0);
    for (unsigned i = 0; i < 9; i++)
        fill(vdi, i * 2 * MIB, 2 * MIB, 1);
    OK(plx_vdi_close(vdi));
    OK(plx_simenv_release_all(&env, &fault));
    for (uint64_t extent = 1; extent < registry.count; extent++)
        if (registry.extents[extent].used && registry.extents[extent].type == PLX_EXTENT_DATA)
            for (unsigned at = 2; at < EXTENT_BLOCKS; at++)
                forge_bit(extent * EXTENT_BLOCKS + at, false);
    close_store();
    OK(check_at(0));
    CU_ASSERT(heard.errors > 1000);
    CU_ASSERT_PTR_NOT_NULL(strstr(heard.kinds, "shared")); /* which none is: it may be, of those */
    end_store();
}

static void test_lost_headers(void)
{
    uint8_t kept[2][BLOCK], nothing[BLOCK] = {0};
    struct plx_superblock super;
    uint64_t extent;

    make_history();
    extent = find_extent(PLX_EXTENT_DATA);
    for (unsigned i = 0; i < 2; i++) {
        peek(extent * EXTENT_BLOCKS + i, kept[i]);
        poke(extent * EXTENT_BLOCKS + i, nothing);
    }
    OK(check_at(0)); /* as if the extent had never been used */
    CU_ASSERT(heard.errors > 0);
    CU_ASSERT_PTR_NOT_NULL(strstr(heard.text, "data extent"));
    for (unsigned i = 0; i < 2; i++)
        poke(extent * EXTENT_BLOCKS + i, kept[i]);
    CLEAN();
    open_store(0);
    plx_simdisk_fail_range(disk, BLOCK, BLOCK, true, false);
    EXPECT("superblock", "copy 1");
    plx_simdisk_heal(disk);
    peek(1, kept[1]);
    OK(plx_format_superblock_decode(kept[1], &super, &fault));
    super.store.b[3] ^= 1;
    plx_format_superblock_encode(&super, nothing);
    poke(1, nothing);
    EXPECT("superblock", "copy 1 of the superblock is another store's");
    poke(1, kept[1]);
    CLEAN();
    end_store();
}

/* Of an extent with several header pages one is lost, as if it had never been written: what it says
 * of blocks in use is that they are free. */
static void test_lost_page(void)
{
    uint8_t nothing[2 * BLOCK] = {0}, kept[2 * BLOCK];
    uint64_t blocks = 256 * EXTENT_BLOCKS, segment, page;

    make_of(1024 * MIB, 256 * MIB);
    fill_store();
    leave_store();
    CLEAN();
    segment = get_record(0).segment_addr;
    page = segment / blocks * blocks + 2 * (segment % blocks / PLX_EXTENT_PAGE_BITS);
    CU_ASSERT(page % blocks > 0);
    plx_simdisk_peek(disk, page * BLOCK, kept, sizeof kept);
    plx_simdisk_poke(disk, page * BLOCK, nothing, sizeof nothing);
    EXPECT("free", "v0 (log segment");
    for (unsigned i = 0; i < 2; i++) /* and of the first one both copies are damaged */
        flip(segment / blocks * blocks + i, 300);
    EXPECT("free", "v0 (log segment");
    CU_ASSERT_PTR_NOT_NULL(strstr(heard.kinds, "bitmap"));
    for (unsigned i = 0; i < 2; i++)
        flip(segment / blocks * blocks + i, 300);
    plx_simdisk_poke(disk, page * BLOCK, kept, sizeof kept);
    CLEAN();
    /* Both copies of one behind the first are damaged: what the extent is for is known. */
    for (unsigned i = 0; i < 2; i++)
        flip(page + i, 300);
    EXPECT("bitmap", "both copies of bitmap page");
    CU_ASSERT_EQUAL(heard.errors, 1);
    CU_ASSERT_EQUAL(heard.first.addr, page);
    forge_entry(1, 400, plx_entry_addr(get_record(1).keyframe.root));
    EXPECT("address", "no data extent");
    forge_entry(1, 400, 0);
    for (unsigned i = 0; i < 2; i++)
        flip(page + i, 300);
    CLEAN();
    end_store();
}

/* What a dead instance had of several header pages is taken over with all of them: what only one
 * behind the first tells of is not handed out again. */
static void test_adopted_pages(void)
{
    uint64_t blocks = 256 * EXTENT_BLOCKS, addr = 0, count;
    struct plx_vdi *vdi;

    make_of(1024 * MIB, 256 * MIB);
    OK(create_vdi(0, 16 * MIB));
    vdi = open_vdi(0);
    fill(vdi, 0, 65536, 1);
    while (addr % blocks < PLX_EXTENT_PAGE_BITS)
        OK(plx_alloc_run(store, PLX_EXTENT_DATA, 1000, NULL, &addr, &count));
    for (unsigned i = 1; i < 4; i++) /* more than a run that it may have at hand */
        fill(vdi, i * 2 * MIB, 2 * MIB, 2);
    addr = addr_of(vdi, 8 * EXTENT_BLOCKS - 1);
    CU_ASSERT(addr % blocks > PLX_EXTENT_PAGE_BITS);
    run(vdi, PLX_SNAPSHOT, 0, 0);
    fill(vdi, 6 * MIB, 2 * MIB, 3);
    run(vdi, PLX_KEYFRAME, 0, 0);
    crash_store();
    OK(try_open_vdi(0, true, &vdi));
    CU_ASSERT_NOT_EQUAL(addr_of(vdi, 8 * EXTENT_BLOCKS - 1), addr);
    OK(plx_vdi_close(vdi));
    check_store(true);
    end_store();
}

/* A mark, in a store that programs which know no rings would use. */
static void test_ring_not_allowed(void)
{
    struct plx_vdi_record record;

    make_history();
    record = get_record(0);
    record.mark =
        (struct plx_ring_mark){.ring = record.id, .set = 5, .proof = 1, .since = record.epoch};
    put_record(&record);
    EXPECT("record", "v0: its record names a ring");
    record.mark = (struct plx_ring_mark){.set = 0};
    record.position = (struct plx_ring_position){record.epoch, 7};
    put_record(&record);
    EXPECT("record", "v0: its record names a ring");
    open_store(1);
    OK(plx_store_allow_ring(store, &fault));
    leave_store();
    CLEAN();
    end_store();
}

static void stop_now(struct plx_simenv *e)
{
    heard.stop = true;
}

static void test_rate(void)
{
    uint64_t before, fast, slow;

    make_history();
    before = env.ns;
    OK(check_at(0));
    fast = env.ns - before;
    before = env.ns;
    OK(check_at(1 << 20));
    slow = env.ns - before;
    CU_ASSERT(slow >= checked.bytes / (1 << 20) * 1000000000);
    CU_ASSERT(slow < 2 * fast + (checked.bytes / (1 << 20) + 2) * 1000000000);
    CU_ASSERT_EQUAL(heard.errors, 0);
    heard.stop = true;
    CU_ASSERT_EQUAL(check_at(0), PLX_ERR_BUSY);
    CU_ASSERT_EQUAL(heard.errors, 0);
    heard.stop = false;
    env.on_tick = stop_now; /* while it waits for its time */
    before = env.ns;
    CU_ASSERT_EQUAL(check_at(1), PLX_ERR_BUSY);
    CU_ASSERT(env.ns - before < 4096000000000);
    env.on_tick = NULL;
    heard.stop = false;
    end_store();
}

static struct {
    uint64_t told, done, total;
    unsigned stood; /* how often it was all but the end */
} progress;

static void on_progress(void *context, uint64_t done, uint64_t total)
{
    CU_ASSERT(done >= progress.done);
    CU_ASSERT(!progress.total || total == progress.total);
    CU_ASSERT(!progress.total || progress.done < progress.total); /* only this one may be the end */
    progress.told++;
    progress.stood += total && done == total - 1;
    progress.done = done;
    progress.total = total;
}

/* VERIFY-8 */
static void test_progress(void)
{
    const struct plx_check_options options = {.data = true, .watch.progress = on_progress};

    make_history();
    open_store(0);
    memset(&progress, 0, sizeof progress);
    OK(plx_store_check(store, &options, &checked, &fault));
    CU_ASSERT(progress.told > 10);
    CU_ASSERT(progress.total > 0);
    CU_ASSERT_EQUAL(progress.done, progress.total);
    CU_ASSERT(progress.stood <= 2);
    close_store();
    end_store();
}

/* A disk of many leaves, and so many snapshots behind one key frame, each after an overwrite.
 * Returns how many nodes its check reads. */
static uint64_t nodes_read(unsigned snapshots)
{
    struct plx_vdi *vdi;

    make(64 * MIB);
    OK(create_vdi(0, 64 * MIB));
    vdi = open_vdi(0);
    for (uint64_t at = 0; at < 64 * MIB; at += 2 * MIB)
        fill(vdi, at, 16384, 1);
    run(vdi, PLX_SNAPSHOT, 0, 0); /* from here on nothing is overwritten in place */
    run(vdi, PLX_KEYFRAME, 0, 0);
    for (unsigned i = 0; i < snapshots; i++) {
        fill(vdi, i % 32 * (2 * MIB), 4096, (int)(2 + i % 3));
        run(vdi, PLX_SNAPSHOT, 0, 0);
    }
    run(vdi, PLX_KEYFRAME, 0, 0);
    OK(plx_vdi_close(vdi));
    OK(plx_simenv_release_all(&env, &fault));
    close_store();
    CLEAN();
    CU_ASSERT_EQUAL(checked.snapshots, snapshots + 1);
    end_store();
    return checked.nodes;
}

/* The second snapshot behind a key frame costs no further walk of its tree, nor does the
 * hundredth. */
static void test_nodes_once(void)
{
    uint64_t few = nodes_read(32), many = nodes_read(128);

    CU_ASSERT(few > 32);
    CU_ASSERT(many <= few + 8);
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"nothing wrong", test_clean},
        {"copies", test_copies},
        {"bitmaps", test_bits},
        {"nodes and data", test_contents},
        {"what snapshots see", test_snapshot_contents},
        {"what clones began with", test_origin_contents},
        {"sharing", test_sharing},
        {"blocks that two only read", test_reading_alone},
        {"an origin that lost a snapshot", test_lost_snapshot},
        {"a node that is another one", test_other_node},
        {"common blocks", test_common},
        {"addresses", test_addresses},
        {"rewound", test_rewound},
        {"log", test_log},
        {"a block that is free already", test_free_already},
        {"very many findings", test_many_findings},
        {"very many blocks that do not fit", test_many_suspects},
        {"headers that are lost", test_lost_headers},
        {"a header page that is lost", test_lost_page},
        {"header pages that are taken over", test_adopted_pages},
        {"a ring that is not allowed", test_ring_not_allowed},
        {"rate and interruption", test_rate},
        {"progress", test_progress},
        {"trees behind many snapshots", test_nodes_once},
    };

    return SUITE_RUN("verify", tests);
}
