/* test_verify.c - the checker finds each kind of damage, says where, and finds nothing else; beside
 * disks that are open it finds none.
 *
 * Structures are forged: written again with right checksums and wrong contents, so that only what
 * the checker knows of the whole can tell.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/format/format.h"
#include "engine/disk/vdi.h"
#include "fault/alloc.h"
#include "fault/faultdev.h"
#include "ok.h"
#include "suite.h"
#include "unit/fixture.h"

#define EXTENT_BLOCKS (MIB / BLOCK)
#define SEGMENT (MIB / 8)

static struct plx_uuid store_id;

/* ---- A store with something of everything ---- */

static void make_of(uint64_t bytes, uint64_t extent_bytes)
{
    struct plx_store_info info;

    make_store(bytes, extent_bytes);
    plx_store_get_info(store, &info);
    store_id = info.id;
}

static void make(uint64_t bytes)
{
    make_of(bytes, MIB);
}

/* Blocks that differ. */
static void fill(struct plx_vdi *vdi, uint64_t offset, uint64_t length, int byte)
{
    memset(buffer, byte, length);
    for (size_t i = 0; i < length; i += BLOCK)
        buffer[i] = (uint8_t)(i / BLOCK);
    run(vdi, PLX_WRITE, offset, length);
}

/* v0: two snapshots and later writes; v1: a clone of the first, written; v2: deleted. */
static void fill_store(void)
{
    struct plx_vdi *vdi;

    OK(create_vdi(0, 16 * MIB));
    vdi = open_vdi(0);
    fill(vdi, 0, MIB, 1);
    run(vdi, PLX_SNAPSHOT, 0, 0);
    fill(vdi, 0, 65536, 2);
    run(vdi, PLX_KEYFRAME, 0, 0);
    run(vdi, PLX_UNMAP, 65536, 65536);
    run(vdi, PLX_SNAPSHOT, 0, 0);
    fill(vdi, 4096, 65536, 3);
    fill(vdi, 4096, 4096, 4);
    run(vdi, PLX_KEYFRAME, 0, 0);
    fill(vdi, 8 * MIB, 65536, 5);
    OK(plx_vdi_close(vdi));
    OK(clone_vdi(1, 0, 1));
    vdi = open_vdi(1);
    fill(vdi, 65536, 65536, 6);
    OK(plx_vdi_close(vdi));
    OK(create_vdi(2, 16 * MIB));
    vdi = open_vdi(2);
    fill(vdi, 0, 65536, 7);
    OK(plx_vdi_close(vdi));
    OK(plx_vdi_delete(store, 2, false, &fault));
}

static void make_history(void)
{
    make(64 * MIB);
    fill_store();
    OK(plx_simenv_release_all(&env, &fault));
    close_store();
}

/* ---- Checking ---- */

static struct {
    unsigned errors, infos, busy;
    char kinds[400];
    char text[200000];
    struct plx_finding first;
    char vdi[64], volume[64];
    uint64_t deleted, other;
    bool stop;
} heard;
static struct plx_check_result result;

static void add(char *text, size_t size, const char *more)
{
    size_t used = strlen(text);

    snprintf(text + used, size - used, "%s\n", more);
}

static void on_found(void *context, const struct plx_finding *finding)
{
    if (finding->severity == PLX_FINDING_INFO) {
        heard.infos++;
        heard.busy += strcmp(finding->kind, "busy") == 0;
        return;
    }
    if (!heard.errors++) {
        heard.first = *finding;
        snprintf(heard.vdi, sizeof heard.vdi, "%s", finding->vdi ? finding->vdi : "");
        snprintf(heard.volume, sizeof heard.volume, "%s", finding->volume ? finding->volume : "");
    }
    if (!strstr(heard.kinds, finding->kind))
        add(heard.kinds, sizeof heard.kinds, finding->kind);
    add(heard.text, sizeof heard.text, finding->text);
}

static void on_leak(void *context, const struct plx_leak *leak)
{
    heard.deleted += leak->deleted;
    heard.other += leak->other;
}

/* Something happens beside the check, when it reads for the at-th time, or at each such read. */
static struct {
    unsigned reads, at;
    bool again;
    void (*happens)(void);
} beside;

static bool on_interrupted(void *context)
{
    beside.reads++;
    if (beside.at && (beside.again ? beside.reads % beside.at == 0 : beside.reads == beside.at))
        beside.happens();
    return heard.stop;
}

static int check_at(uint64_t rate)
{
    struct plx_check_options options = {.data = true,
                                        .rate = rate,
                                        .finding = on_found,
                                        .leak = on_leak,
                                        .watch.interrupted = on_interrupted};
    bool stop = heard.stop, was_closed = !store;
    int error;

    memset(&heard, 0, sizeof heard);
    heard.stop = stop;
    if (was_closed)
        open_store(0);
    error = plx_store_check(store, &options, &result, &fault);
    if (was_closed)
        close_store();
    CU_ASSERT_EQUAL(result.errors, heard.errors);
    return error;
}

static void expect_clean(int line)
{
    OK(check_at(0));
    if (heard.errors)
        printf("\n  line %d: %s", line, heard.text);
    CU_ASSERT_EQUAL(heard.errors, 0);
}

/* The check finds this kind, and the text holds this. */
static void expect(const char *kind, const char *words, int line)
{
    OK(check_at(0));
    if (!strstr(heard.kinds, kind) || !strstr(heard.text, words))
        printf("\n  line %d: %s wanted, found %s: %s", line, kind, heard.kinds, heard.text);
    CU_ASSERT(heard.errors > 0);
    CU_ASSERT_PTR_NOT_NULL(strstr(heard.kinds, kind));
    CU_ASSERT_PTR_NOT_NULL(strstr(heard.text, words));
}
#define CLEAN() expect_clean(__LINE__)
#define EXPECT(kind, words) expect(kind, words, __LINE__)

/* ---- Forging ---- */

static void peek(uint64_t addr, void *block)
{
    plx_simdisk_peek(disk, addr * BLOCK, block, BLOCK);
}

static void poke(uint64_t addr, const void *block)
{
    plx_simdisk_poke(disk, addr * BLOCK, block, BLOCK);
}

static uint64_t record_addr(uint32_t slot)
{
    return PLX_VDI_TABLE_BLOCK + 2ull * slot;
}

static struct plx_vdi_record get_record(uint32_t slot)
{
    struct plx_vdi_record best = {0}, record;
    uint8_t block[BLOCK];

    for (unsigned i = 0; i < 2; i++) {
        peek(record_addr(slot) + i, block);
        if (plx_format_vdi_record_decode(block, &store_id, slot, UINT32_MAX, &record, NULL) == 0 &&
            record.generation > best.generation)
            best = record;
    }
    return best;
}

static void put_record(struct plx_vdi_record *record)
{
    uint8_t block[BLOCK];

    record->generation++;
    for (unsigned i = 0; i < 2; i++) {
        plx_format_vdi_record_encode(&store_id, record, block);
        poke(record_addr(record->slot) + i, block);
    }
}

/* Loads the leaf of vblock 0; ret_path: node addresses from the root down. */
static unsigned load_leaf(const struct plx_vdi_record *record, uint64_t *ret_path, uint8_t *leaf)
{
    uint64_t entry = record->keyframe.root;
    unsigned count = 0;

    for (unsigned level = record->keyframe.levels; level > 0; level--) {
        ret_path[count++] = plx_entry_addr(entry);
        peek(plx_entry_addr(entry), leaf);
        entry = plx_node_entry(leaf, 0);
    }
    return count;
}

/* Sets one entry of that leaf; what vouched for it on the way does not know a checksum any more. */
static void forge_entry(uint32_t slot, unsigned index, uint64_t entry)
{
    struct plx_vdi_record record = get_record(slot);
    uint64_t path[PLX_LEVELS_MAX];
    uint8_t node[BLOCK];
    unsigned count = load_leaf(&record, path, node);

    plx_node_set_entry(node, index, entry);
    poke(path[count - 1], node);
    for (unsigned i = count - 1; i-- > 0;) {
        peek(path[i], node);
        plx_node_set_entry(node, 0, plx_entry_void(plx_node_entry(node, 0)));
        poke(path[i], node);
    }
    record.keyframe.root = plx_entry_void(record.keyframe.root);
    put_record(&record);
}

/* What a disk has cannot be told either, for the accounting or the collector. */
static void expect_unaccounted(const char *words, int line)
{
    struct plx_usage usage;

    open_store(0);
    fault.text[0] = 0;
    CU_ASSERT_EQUAL(
        plx_store_usage(store, &(struct plx_usage_options){.kin = NULL}, &usage, &fault),
        PLX_ERR_CORRUPT);
    if (!strstr(fault.text, words)) {
        printf("\n  line %d: \"%s\" instead of \"%s\"", line, fault.text, words);
        CU_FAIL("what a disk has");
    }
    close_store();
}
#define UNACCOUNTED(words) expect_unaccounted(words, __LINE__)

static uint64_t entry_of(uint32_t slot, unsigned index)
{
    struct plx_vdi_record record = get_record(slot);
    uint64_t path[PLX_LEVELS_MAX];
    uint8_t leaf[BLOCK];

    load_leaf(&record, path, leaf);
    return plx_node_entry(leaf, index);
}

/* Sets or clears a block's bit in both copies of its bitmap page. */
static void forge_bit(uint64_t addr, bool set)
{
    uint64_t extent = addr / EXTENT_BLOCKS, at = addr % EXTENT_BLOCKS;
    struct plx_extent_page page;
    uint8_t block[BLOCK], *bits;

    for (unsigned i = 0; i < 2; i++) {
        peek(extent * EXTENT_BLOCKS + i, block);
        OK(plx_format_extent_page_decode(block, &store_id, extent, 0, 1, &page, &fault));
        bits = plx_format_extent_bits(block);
        bits[at / 8] = (uint8_t)((bits[at / 8] & ~(1 << at % 8)) | set << at % 8);
        plx_format_extent_page_encode(&store_id, &page, block);
        poke(extent * EXTENT_BLOCKS + i, block);
    }
}

static void flip(uint64_t addr, unsigned offset)
{
    plx_simdisk_flip(disk, addr * BLOCK + offset, 1);
}

/* The first extent of a type. */
static uint64_t find_extent(enum plx_extent_type type)
{
    struct plx_extent_page page = {0};
    uint64_t extent = 0;
    uint8_t block[BLOCK];

    do
        peek(++extent * EXTENT_BLOCKS, block);
    while (plx_format_extent_page_decode(block, &store_id, extent, 0, 1, &page, NULL) ||
           page.type != type);
    return extent;
}

/* ---- Tests ---- */

static void test_clean(void)
{
    make_history();
    CLEAN();
    CU_ASSERT_EQUAL(result.vdis, 2);
    CU_ASSERT_EQUAL(result.snapshots, 2);
    CU_ASSERT(result.data_verified > 256);
    CU_ASSERT(heard.deleted >= 16); /* v2's data */
    CU_ASSERT_EQUAL(heard.deleted, result.deleted_blocks);
    CU_ASSERT_EQUAL(heard.deleted + heard.other, result.leaked_blocks);
    CU_ASSERT_EQUAL(result.used_blocks + result.free_blocks, 63 * EXTENT_BLOCKS);
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
    used = result.used_blocks;
    forge_bit(addr / EXTENT_BLOCKS * EXTENT_BLOCKS, false);
    CLEAN();
    CU_ASSERT_EQUAL(result.used_blocks, used);
    CU_ASSERT_EQUAL(result.used_blocks + result.free_blocks, 63 * EXTENT_BLOCKS);
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
    CU_ASSERT_EQUAL(heard.errors, 1); /* though v0, its snapshots and v1 have it */
    flip(addr, 17);
    plx_simdisk_fail_range(disk, addr * BLOCK, BLOCK, true, false);
    EXPECT("data", "block 100 cannot be read");
    plx_simdisk_heal(disk);
    CLEAN();
    end_store();
}

/* Where an open disk or instant has a block. */
static uint64_t addr_of(struct plx_vdi *vdi, uint64_t vblock)
{
    struct plx_waiter waiter = PLX_WAITER;
    struct plx_mapping mapping;
    struct plx_walk walk = {0};

    while (plx_map_lookup(&vdi->map, vblock, &walk, &waiter.task, &mapping) == PLX_WAIT) {
        plx_waiter_wait(store, &waiter);
        plx_walk_resume(&walk);
    }
    return mapping.addr;
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
    EXPECT("data", "does not match");
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

/* Batches of v0's log: forged with right checksums. */
static uint64_t find_batch(uint64_t seq, struct plx_batch_header *ret_header)
{
    struct plx_vdi_record record = get_record(0);
    static uint8_t segment[256 * BLOCK];
    uint64_t addr = record.segment_addr;

    plx_simdisk_peek(disk, addr * BLOCK, segment, 32 * BLOCK);
    for (uint64_t at = BLOCK; at < 32 * BLOCK; at += 512)
        if (plx_format_batch_decode(segment + at, (size_t)(32 * BLOCK - at), ret_header) == 0 &&
            ret_header->seq == seq)
            return addr * BLOCK + at;
    return 0;
}

/* Returns the hash that the next batch must have of it. */
static uint64_t forge_batch(uint64_t at, const struct plx_batch_header *header, unsigned offset,
                            uint8_t mask)
{
    static uint8_t bytes[PLX_BATCH_BYTES_MAX];
    uint64_t hash;

    plx_simdisk_peek(disk, at, bytes, header->bytes);
    bytes[offset] ^= mask;
    hash = plx_format_batch_encode(header, bytes);
    plx_simdisk_poke(disk, at, bytes, header->bytes);
    return hash;
}

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

/* v0 is left as a crash would leave it, with so many writes behind its key frame. */
static void make_crashed(unsigned writes)
{
    struct plx_vdi *vdi;

    make(64 * MIB);
    fill_store();
    vdi = open_vdi(0);
    for (unsigned i = 0; i < writes; i++)
        fill(vdi, 3 * MIB + i % 100 * 8192, 4096, (int)(i % 3));
    OK(plx_simenv_release_all(&env, &fault));
    plx_vdi_abandon(vdi);
    close_store();
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
    EXPECT("data", "block 16 does not match its checksum");
    CU_ASSERT_PTR_NOT_NULL(strstr(heard.text, "block 15 does not match its checksum"));
    CU_ASSERT_EQUAL(heard.errors, 32);
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
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "v0: impossible log record"));
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

static void let_go(struct plx_vdi *vdi, uint64_t after, uint64_t upto)
{
    struct plx_thin thin = {.after = after, .upto = upto};
    struct plx_thinned thinned;

    do {
        OK(plx_vdi_thin(vdi, &thin, &thinned, &fault));
    } while (thinned.upto > thin.after && (thin.after = thinned.upto) < upto);
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
    let_go(vdi, 3, 5);
    let_go(vdi, 0, 5);
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
    let_go(vdi, 0, 1);
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
    let_go(vdi, 1, 3);
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
    CU_ASSERT_EQUAL(result.data_verified, 32);
    end_store();
}

/* While disks are open, at rest and in the middle of a crash, nothing is wrong. */
static void test_open(void)
{
    struct plx_vdi *vdi, *clone;

    make(64 * MIB);
    fill_store();
    vdi = open_vdi(0);
    clone = open_vdi(1);
    CLEAN();
    fill(vdi, 2 * MIB, MIB, 8);
    fill(clone, 2 * MIB, MIB, 9);
    CLEAN();
    run(vdi, PLX_SNAPSHOT, 0, 0);
    fill(vdi, 2 * MIB, 65536, 10);
    fill(vdi, 2 * MIB, 65536, 11);
    CLEAN();
    CU_ASSERT_EQUAL(result.snapshots, 3);
    OK(clone_vdi(3, 0, 3)); /* sees what lies behind v0's key frame */
    CLEAN();
    for (unsigned i = 0; i < 600; i++) /* the log goes on in further segments */
        fill(vdi, 3 * MIB + i % 100 * 8192, 4096, (int)(i % 3));
    CLEAN();
    run(vdi, PLX_KEYFRAME, 0, 0);
    CLEAN();
    plx_simpower_cut(&power);
    plx_vdi_abandon(vdi);
    plx_vdi_abandon(clone);
    plx_store_close(store);
    store = NULL;
    plx_simpower_restore(&power);
    CLEAN();
    CU_ASSERT(heard.infos > 0);
    end_store();
}

/* A disk that is written on and on, on the same loop. */
static struct {
    struct plx_vdi *vdi;
    struct plx_request requests[4];
    struct iovec iov[4];
    uint8_t *bytes;
    bool busy[4], on;
    uint64_t count, turns;
} writer;

static void writer_done(struct plx_request *request)
{
    if (request->result && writer.on) {
        printf("\n  write %d: %s: %s", (int)request->op, plx_error_name(request->result),
               request->fault.text);
        CU_FAIL("a request beside the check");
        writer.on = false;
    }
    writer.busy[request - writer.requests] = false;
}

static void writer_tick(struct plx_simenv *sim)
{
    if (writer.turns++ % 64)
        return;
    for (unsigned i = 0; writer.on && i < 4; i++) {
        struct plx_request *request = &writer.requests[i];
        uint64_t n = writer.count;

        if (writer.busy[i])
            continue;
        writer.count++;
        writer.busy[i] = true;
        writer.iov[i] = (struct iovec){writer.bytes + i * 65536, 65536};
        memset(writer.bytes + i * 65536, (int)n, 65536);
        *request = (struct plx_request){.op = n % 61 == 0                ? PLX_KEYFRAME
                                              : n % 203 == 0 && n < 4000 ? PLX_SNAPSHOT
                                              : n % 11 == 0              ? PLX_UNMAP
                                                                         : PLX_WRITE,
                                        .offset = n * 77 % 128 * 65536,
                                        .length = 65536,
                                        .iov = &writer.iov[i],
                                        .iovcnt = 1,
                                        .done = writer_done};
        plx_vdi_submit(writer.vdi, request);
    }
}

static void no_label(void *context, const char *label, uint64_t seq, bool removed)
{
    (void)context, (void)label, (void)seq, (void)removed;
}

static void test_beside_writer(void)
{
    make(512 * MIB);
    fill_store();
    memset(&writer, 0, sizeof writer);
    writer.bytes = malloc(4 * 65536);
    writer.vdi = open_vdi(0);
    writer.on = true;
    env.on_tick = writer_tick;
    for (unsigned i = 0; i < 12; i++)
        CLEAN();
    for (unsigned i = 0; i < 60; i++) { /* nor do other readers take what moves on for damage */
        struct plx_vdi *instant;

        OK(plx_label_list(store, 0, 0, no_label, NULL, &fault));
        OK(plx_snapshot_open(store, 0, 1 + i % 2, &instant, &fault));
        plx_vdi_abandon(instant);
    }
    writer.on = false;
    while (writer.busy[0] || writer.busy[1] || writer.busy[2] || writer.busy[3])
        if (!plx_store_tick(store))
            plx_store_wait(store);
    env.on_tick = NULL;
    CLEAN();
    CU_ASSERT_EQUAL(result.unsettled, 0);
    OK(plx_vdi_close(writer.vdi));
    CLEAN();
    free(writer.bytes);
    end_store();
}

/* ---- One thing beside a check, at each of its reads ---- */

static struct plx_vdi *moving; /* v0 */

static void write_much(uint64_t offset) /* in what has become free, too */
{
    fill(moving, offset, 2 * MIB, 20);
}

static void overwrite_in_place(void)
{
    fill(moving, 4096, 65536, 21);         /* from the key frame */
    fill(moving, 8 * MIB, 16 * BLOCK, 22); /* from the log behind it */
}

static void overwrite_and_keyframe(void)
{
    fill(moving, 0, 65536, 23);
    overwrite_in_place();
    run(moving, PLX_KEYFRAME, 0, 0);
    write_much(12 * MIB);
}

static void unmap(void)
{
    run(moving, PLX_UNMAP, 4096, 65536);
    run(moving, PLX_UNMAP, 8 * MIB, 65536);
    run(moving, PLX_KEYFRAME, 0, 0);
    write_much(12 * MIB);
}

static void forget(void)
{
    struct plx_thinned thinned;

    OK(plx_vdi_thin(moving, &(struct plx_thin){.upto = 2}, &thinned, &fault));
    CU_ASSERT(thinned.snapshots > 0);
    write_much(12 * MIB);
}

static void close_and_delete(void)
{
    OK(plx_vdi_close(moving));
    OK(plx_vdi_delete(store, 0, false, &fault));
    moving = open_vdi(3);
    write_much(0);
}

static void keyframe(void)
{
    run(moving, PLX_KEYFRAME, 0, 0);
}

static void lose_record(void)
{
    plx_simdisk_fail_range(disk, record_addr(0) * BLOCK, 2 * BLOCK, true, false);
}

/* A small store with v0 open, which no clone holds, and v3 to be opened. What snapshots alone have
 * fills whole extents, which somebody else gets as soon as it is let go. */
static void make_moving(void)
{
    make(16 * MIB);
    OK(create_vdi(0, 16 * MIB));
    OK(create_vdi(3, 16 * MIB));
    moving = open_vdi(0);
    for (int i = 1; i <= 3; i++) {
        fill(moving, 0, MIB, i);
        run(moving, PLX_SNAPSHOT, 0, 0);
        run(moving, PLX_KEYFRAME, 0, 0);
    }
    fill(moving, 4096, 65536, 4);
    run(moving, PLX_KEYFRAME, 0, 0);
    fill(moving, 8 * MIB, 65536, 5);
    run(moving, PLX_FLUSH, 0, 0);
    fill(moving, 9 * MIB, 4096, 6); /* says that all before is durable */
}

/* Runs the check with this beside it, once for each place; judge says whether it did well. */
static void at_each_read(void (*happens)(void), void (*judge)(void))
{
    bool more = true;

    for (unsigned at = 1; more; at++) {
        make_moving();
        memset(&beside, 0, sizeof beside);
        beside.at = at;
        beside.happens = happens;
        judge();
        more = beside.reads >= at;
        beside.at = 0;
        plx_simdisk_heal(disk);
        OK(plx_vdi_close(moving));
        end_store();
    }
}

static void nothing_found(void)
{
    CLEAN();
}

static void test_beside_changes(void)
{
    static void (*const changes[])(void) = {overwrite_in_place, overwrite_and_keyframe, unmap,
                                            forget, close_and_delete};

    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++)
        at_each_read(changes[i], nothing_found);
}

/* A block of the newest tree, one that only the log has, one that only snapshots see. */
static const unsigned damaged[] = {100, 8 * MIB / BLOCK + 3, 5};

static void flip_damaged(void)
{
    struct plx_vdi *old;

    OK(plx_snapshot_open(store, 0, 2, &old, &fault));
    for (unsigned i = 0; i < 3; i++)
        flip(addr_of(i == 2 ? old : moving, damaged[i]), 9);
    plx_vdi_abandon(old);
}

static void all_damage_found(void)
{
    char words[64];

    CU_ASSERT_EQUAL(heard.errors, 3);
    for (unsigned i = 0; i < 3; i++) {
        snprintf(words, sizeof words, "block %u does not match its checksum", damaged[i]);
        CU_ASSERT_PTR_NOT_NULL(strstr(heard.text, words));
    }
}

static void damage_found(void)
{
    flip_damaged();
    OK(check_at(0));
    all_damage_found();
}

static void damage_or_record_found(void)
{
    flip_damaged();
    OK(check_at(0));
    if (!strstr(heard.kinds, "record"))
        all_damage_found();
}

static void test_damage_beside_changes(void)
{
    at_each_read(keyframe, damage_found);
    at_each_read(lose_record, damage_or_record_found);
}

static void delete_and_use_slot(void)
{
    close_and_delete();
    OK(create_vdi(0, 16 * MIB));
}

static void unmap_all(void)
{
    run(moving, PLX_UNMAP, 0, 16 * MIB);
    run(moving, PLX_KEYFRAME, 0, 0);
}

/* Damage of a disk that is no more what it was while its contents are read: it counts up to then.
 * What a snapshot sees that stays counts all the time. */
static void damage_until(void (*happens)(void), bool snapshots_stay)
{
    bool seen[4] = {false};
    unsigned last;

    make_moving();
    memset(&beside, 0, sizeof beside);
    damage_found();
    last = beside.reads;
    OK(plx_vdi_close(moving));
    end_store();
    for (unsigned at = last - 40; at <= last; at++) {
        make_moving();
        memset(&beside, 0, sizeof beside);
        beside.at = at;
        beside.happens = happens;
        flip_damaged();
        OK(check_at(0));
        beside.at = 0;
        CU_ASSERT_FATAL(heard.errors < 4);
        seen[heard.errors] = true;
        CU_ASSERT(!heard.errors || strcmp(heard.kinds, "data\n") == 0);
        CU_ASSERT(!snapshots_stay || strstr(heard.text, "block 5 does not match"));
        OK(plx_vdi_close(moving));
        end_store();
    }
    CU_ASSERT(snapshots_stay || (seen[0] && seen[1]));
    CU_ASSERT(seen[2] && seen[3]);
}

static void test_damage_until(void)
{
    damage_until(close_and_delete, false);
    damage_until(delete_and_use_slot, false);
    damage_until(unmap_all, true);
}

static void lose_leaf(void)
{
    uint64_t path[PLX_LEVELS_MAX];
    uint8_t leaf[BLOCK];
    struct plx_vdi_record record = get_record(0);
    unsigned count = load_leaf(&record, path, leaf);

    plx_simdisk_fail_range(disk, path[count - 1] * BLOCK, BLOCK, true, false);
}

/* Of a block that no snapshot sees. What goes bad behind the check the next one finds. */
static void damage_or_node_found(void)
{
    flip(addr_of(moving, 7), 9);
    OK(check_at(0));
    if (!heard.errors)
        EXPECT("node", "v0");
    CU_ASSERT(strstr(heard.kinds, "node") || strstr(heard.text, "block 7 does not match"));
}

static uint64_t rotten;

static void rot_leaf(void)
{
    uint64_t path[PLX_LEVELS_MAX];
    uint8_t leaf[BLOCK];
    struct plx_vdi_record record = get_record(0);

    rotten = path[load_leaf(&record, path, leaf) - 1];
    flip(rotten, 9);
}

static void damage_or_rot_found(void)
{
    rotten = 0;
    damage_or_node_found();
    if (rotten)
        flip(rotten, 9);
}

/* A root whose node nothing vouches for any more says that the leaf is beyond the store. */
static uint64_t misled, led_to;

static void mislead_root(void)
{
    uint64_t path[PLX_LEVELS_MAX];
    uint8_t node[BLOCK];
    struct plx_vdi_record record = get_record(0);

    CU_ASSERT(load_leaf(&record, path, node) > 1);
    misled = path[0];
    peek(misled, node);
    led_to = plx_node_entry(node, 0);
    plx_node_set_entry(node, 0, 1ull << 30);
    poke(misled, node);
}

static void damage_or_address_found(void)
{
    struct plx_vdi_record record = get_record(0);
    uint8_t node[BLOCK], copies[2][BLOCK];

    misled = 0;
    peek(record_addr(0), copies[0]);
    peek(record_addr(0) + 1, copies[1]);
    record.keyframe.root = plx_entry_void(record.keyframe.root);
    put_record(&record);
    flip(addr_of(moving, 7), 9);
    OK(check_at(0));
    if (!heard.errors)
        EXPECT("address", "v0: a node at block 1073741824");
    CU_ASSERT(strstr(heard.kinds, "address") || strstr(heard.text, "block 7 does not match"));
    poke(record_addr(0), copies[0]); /* or its owner takes it for another host's */
    poke(record_addr(0) + 1, copies[1]);
    if (!misled)
        return;
    peek(misled, node);
    plx_node_set_entry(node, 0, led_to);
    poke(misled, node);
}

static void lose_log(void)
{
    plx_simdisk_fail_range(disk, get_record(0).segment_addr * BLOCK, 64 * BLOCK, true, false);
}

/* What is damaged cannot be read either, from some moment on. */
static void test_damage_beside_loss(void)
{
    struct plx_batch_header header;
    uint64_t at;

    at_each_read(lose_leaf, damage_or_node_found);
    at_each_read(rot_leaf, damage_or_rot_found);
    at_each_read(mislead_root, damage_or_address_found);
    make_history();
    at = find_batch(3, &header);
    CU_ASSERT_FATAL(at != 0);
    plx_simdisk_flip(disk, at + 90, 1);
    memset(&beside, 0, sizeof beside);
    beside.happens = lose_log;
    do {
        beside.reads = 0;
        beside.at++;
        EXPECT("log", "v0");
        plx_simdisk_heal(disk);
    } while (beside.reads >= beside.at);
    beside.at = 0;
    end_store();
}

/* A block of v0 that is in use, and that its bitmap on the store calls free. */
static uint64_t call_free(void)
{
    uint64_t addr = addr_of(moving, damaged[0]);

    forge_bit(addr, false);
    return addr;
}

static void free_found(void)
{
    uint64_t addr;

    run(moving, PLX_KEYFRAME, 0, 0); /* writes the bitmaps */
    addr = call_free();
    EXPECT("free", "marked as free");
    forge_bit(addr, true);
}

static unsigned still_reads;

static void keyframe_later(void)
{
    if (beside.reads > still_reads)
        keyframe();
}

/* A block that does not fit is looked at again when who has it has moved on. If he does so each
 * time, nothing is made up, and nothing is kept silent. */
static void test_suspect_beside_changes(void)
{
    unsigned found = 0, busy = 0;
    uint64_t addr;

    at_each_read(keyframe, free_found);
    make_moving();
    run(moving, PLX_KEYFRAME, 0, 0);
    memset(&beside, 0, sizeof beside);
    CLEAN();
    still_reads = beside.reads;
    addr = call_free();
    beside.at = 1;
    beside.again = true;
    beside.happens = keyframe_later;
    for (unsigned i = 0; i < 12; i++, still_reads++) {
        beside.reads = 0;
        OK(check_at(0));
        found += heard.errors != 0;
        busy += heard.busy != 0;
        CU_ASSERT(heard.errors ? strstr(heard.kinds, "free") != NULL : heard.infos > 0);
    }
    CU_ASSERT(busy > 0 && found + busy <= 12);
    beside.at = 0;
    forge_bit(addr, true);
    CLEAN();
    OK(plx_vdi_close(moving));
    end_store();
}

/* Who has a block that does not fit cannot be looked at again. */
static struct {
    uint32_t slot;
    unsigned turns, turn;
} losing;

static void lose_record_in_turn(struct plx_simenv *e)
{
    if (++losing.turns == losing.turn)
        plx_simdisk_fail_range(disk, record_addr(losing.slot) * BLOCK, 2 * BLOCK, true, false);
}

/* In each of the last turns of the loop of a check that finds it: it is found all the same, or that
 * somebody moved on, or the record is found to be lost, now or when all is checked again. */
static void expect_though_lost(const char *kind, const char *words, uint32_t slot)
{
    unsigned last, found = 0, other = 0;

    losing.slot = slot;
    losing.turns = losing.turn = 0;
    env.on_tick = lose_record_in_turn;
    EXPECT(kind, words);
    last = losing.turns;
    CU_ASSERT_FATAL(last > 30);
    for (unsigned i = 0; i < 30; i++) {
        losing.turns = 0;
        losing.turn = last + 10 - i; /* some need more turns than the first */
        OK(check_at(0));
        CU_ASSERT(!heard.errors || strstr(heard.text, words) || strstr(heard.kinds, "record"));
        found += strstr(heard.kinds, kind) != NULL;
        other += !heard.errors;
        if (!heard.errors && !heard.busy)
            EXPECT("record", "slot");
        plx_simdisk_heal(disk);
    }
    CU_ASSERT(found > 0 && other > 0);
    env.on_tick = NULL;
}

static void test_suspect_beside_loss(void)
{
    uint64_t addr;

    make_moving();
    run(moving, PLX_KEYFRAME, 0, 0);
    addr = call_free();
    expect_though_lost("free", "in use by virtual disk v0 (block 100", 0);
    forge_bit(addr, true);
    CLEAN();
    OK(plx_vdi_close(moving));
    end_store();

    make_history();
    forge_entry(1, 300, entry_of(0, 2));
    open_store(0);
    for (uint32_t slot = 0; slot < 2; slot++)
        expect_though_lost("shared", "virtual disk v1 (block 300", slot);
    end_store();
}

static void move_record(struct plx_simenv *e)
{
    struct plx_vdi_record record = get_record(0);

    put_record(&record);
}

/* Of a disk that has moved on whenever it was read nobody looks for ever for what is not there. */
static void test_moving_for_ever(void)
{
    struct plx_snapshot_info info;
    struct plx_vdi *instant;

    make_history();
    open_store(0);
    env.on_tick = move_record;
    FAILS(NOT_FOUND, plx_snapshot_open(store, 0, 99, &instant, &fault));
    FAILS(NOT_FOUND, plx_snapshot_at(store, 0, 1, &info, &fault));
    OK(plx_label_list(store, 0, 0, no_label, NULL, &fault));
    OK(plx_snapshot_open(store, 0, 1, &instant, &fault));
    plx_vdi_abandon(instant);
    env.on_tick = NULL;
    end_store();

    make_crashed(3); /* somebody has it: it may have moved on, but says the same of the block */
    open_store(0);
    OK(plx_snapshot_open(store, 0, 0, &instant, &fault));
    flip(addr_of(instant, 8 * MIB / BLOCK + 3), 9);
    plx_vdi_abandon(instant);
    env.on_tick = move_record;
    EXPECT("data", "v0: block 2051 does not match");
    CU_ASSERT_EQUAL(heard.errors, 1);
    CU_ASSERT_EQUAL(result.unsettled, 1);
    env.on_tick = NULL;
    end_store();
}

/* A log of many segments behind the key frame, of a disk that is open: what it says of a damaged
 * block is read again. */
static void test_long_log(void)
{
    struct plx_vdi *vdi;
    uint64_t addr, at;

    make(64 * MIB);
    fill_store();
    vdi = open_vdi(0);
    at = vdi->log.cursor.pos / SEGMENT;
    for (unsigned i = 0; i < 900; i++) {
        run(vdi, PLX_UNMAP, 3 * MIB + i % 100 * 8192, 8192);
        fill(vdi, 3 * MIB + i % 100 * 8192, 4096, (int)(i % 3) + 1);
    }
    CU_ASSERT(vdi->log.cursor.pos / SEGMENT > at + 4);
    CU_ASSERT(vdi->record.keyframe.pos / SEGMENT <= at);
    addr = addr_of(vdi, 8 * MIB / BLOCK + 3); /* which no snapshot sees */
    flip(addr, 9);
    EXPECT("data", "block 2051 does not match");
    CU_ASSERT_EQUAL(heard.errors, 1);
    flip(addr, 9);
    CLEAN();
    run(vdi, PLX_UNMAP, 8 * MIB + 3 * BLOCK, BLOCK); /* which only the end of the log tells */
    flip(addr, 9);
    CLEAN();
    OK(plx_vdi_close(vdi));
    end_store();
}

/* Of a block that was mapped in a segment before the key frame's the log says no more than that it
 * is unmapped since: what lies there may be anybody's. */
static void test_unmapped_behind(void)
{
    struct plx_vdi *vdi;
    uint64_t addr, at;

    make(64 * MIB);
    fill_store();
    vdi = open_vdi(0);
    fill(vdi, 10 * MIB, 65536, 1);
    at = vdi->log.cursor.pos / SEGMENT;
    for (unsigned i = 0; vdi->log.cursor.pos / SEGMENT == at; i++)
        fill(vdi, 3 * MIB + i % 100 * 8192, 4096, (int)(i % 3));
    run(vdi, PLX_KEYFRAME, 0, 0);
    addr = addr_of(vdi, 10 * MIB / BLOCK + 3);
    flip(addr, 9);
    EXPECT("data", "block 2563 does not match");
    run(vdi, PLX_UNMAP, 10 * MIB, 65536);
    CLEAN();
    OK(plx_vdi_close(vdi));
    end_store();
}

/* A common block is never overwritten: what is written in place beside it makes its leaf's
 * checksums void, but not its own. Of a disk that is open, too. */
static void test_common_beside_void(void)
{
    struct plx_vdi_record record;
    struct plx_vdi *vdi;
    uint64_t mine;

    make_history();
    mine = entry_of(1, 17);
    CU_ASSERT(plx_entry_checksum(mine) != 0 && plx_entry_checksum(entry_of(1, 18)) != 0);
    forge_entry(1, 17,
                plx_entry_make(plx_entry_addr(mine) | PLX_ADDR_COMMON, plx_entry_checksum(mine)));
    record = get_record(1);
    record.oldest.root = record.keyframe.root;
    put_record(&record);
    open_store(2);
    vdi = open_vdi(1);
    fill(vdi, 18 * BLOCK, BLOCK, 8);
    CU_ASSERT_EQUAL(addr_of(vdi, 18), plx_entry_addr(entry_of(1, 18))); /* in place */
    CLEAN();
    flip(addr_of(vdi, 18), 9); /* whose checksum nobody knows */
    CLEAN();
    flip(plx_entry_addr(mine), 9);
    EXPECT("data", "v1: block 17 does not match its checksum");
    CU_ASSERT_EQUAL(heard.errors, 1);
    flip(plx_entry_addr(mine), 9);
    CLEAN();
    plx_vdi_abandon(vdi);
    end_store();
}

/* Nothing is made up about a disk that never holds still, nor counted once for each attempt. */
static void test_unsettled(void)
{
    uint64_t addr;

    make_moving();
    memset(&beside, 0, sizeof beside);
    beside.at = 1;
    beside.again = true;
    beside.happens = keyframe;
    CLEAN();
    CU_ASSERT_EQUAL(result.unsettled, 1);
    CU_ASSERT(heard.infos > 0 && !result.nodes && !result.batches && !result.snapshots);
    addr = moving->log.segments[0];
    flip(addr, PLX_SEGMENT_HEADER_BYTES + 100); /* what is found counts as little as it is told */
    beside.reads = 0;
    CLEAN();
    CU_ASSERT_EQUAL(result.unsettled, 1);
    beside.at = 0;
    OK(check_at(0));
    CU_ASSERT_EQUAL(result.unsettled, 0);
    CU_ASSERT(result.errors > 0);
    flip(addr, PLX_SEGMENT_HEADER_BYTES + 100);
    CLEAN();
    CU_ASSERT_EQUAL(result.unsettled, 0);
    OK(plx_vdi_close(moving));
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
    for (unsigned i = 0; i < 3; i++)
        fill(vdi, i * 2 * MIB, 2 * MIB, 1);
    run(vdi, PLX_KEYFRAME, 0, 0);
    for (unsigned i = 0; i < DAMAGED_BLOCKS; i++)
        flip(addr_of(vdi, i), 9);
    OK(plx_vdi_close(vdi));
    EXPECT("more", "virtual disk v0: 100 further findings");
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

/* Each of its allocations fails once: then it says so, instead of calling sound what it did not
 * look at. */
static void check_without_memory(const char *kind)
{
    struct plx_check_options options = {.data = true, .finding = on_found};
    uint64_t failed = 1;

    for (uint64_t k = 1; failed; k++) {
        int error;

        memset(&heard, 0, sizeof heard);
        fault_alloc_arm(k, false);
        error = plx_store_check(store, &options, &result, &fault);
        fault_alloc_disarm(&failed);
        CU_ASSERT_EQUAL(error, failed ? PLX_ERR_NOMEM : 0);
        CU_ASSERT(!error || strstr(fault.text, "out of memory"));
    }
    CU_ASSERT(kind ? strstr(heard.kinds, kind) != NULL : heard.errors == 0);
}

static struct plx_device *attach_uncounted(void)
{
    static struct fault_plan plan; /* nothing fails */

    return fault_device_attach(disk, &plan);
}

static void test_memory(void)
{
    fixture.attach = attach_uncounted;
    make_history();
    open_store(0);
    check_without_memory(NULL);
    forge_bit(plx_entry_addr(entry_of(0, 0)), false);
    check_without_memory("free");
    end_store();
    make_moving();
    check_without_memory(NULL);
    OK(plx_vdi_close(moving));
    end_store();
    fixture.attach = NULL;
}

/* A finding that cannot be kept until it is known whether the disk has moved on is counted. */
static void test_findings_without_memory(void)
{
    struct plx_check_options options = {.data = true, .finding = on_found};
    uint64_t failed = 1;
    unsigned counted = 0;

    fixture.attach = attach_uncounted;
    make_history();
    flip(plx_entry_addr(entry_of(0, 100)), 17);
    open_store(0);
    for (uint64_t k = 1; failed; k++) {
        int error;

        memset(&heard, 0, sizeof heard);
        fault_alloc_arm(k, false);
        error = plx_store_check(store, &options, &result, &fault);
        fault_alloc_disarm(&failed);
        CU_ASSERT(!error || (failed && error == PLX_ERR_NOMEM));
        if (!error)
            CU_ASSERT_EQUAL(result.errors, 1);
        counted += strstr(heard.text, "virtual disk v0: 1 further finding") != NULL;
    }
    CU_ASSERT_EQUAL(counted, 1);
    CU_ASSERT_PTR_NOT_NULL(strstr(heard.text, "block 100 does not match"));
    end_store();
    fixture.attach = NULL;
}

static void stop_here(void)
{
    heard.stop = true;
}

static void keyframe_and_stop(void)
{
    keyframe();
    heard.stop = true;
}

/* Whatever it was about to read: it says so, and makes nothing up of what it did not read. */
static void stop_at_each_read(void (*happens)(void), unsigned most)
{
    unsigned at = 0;

    memset(&beside, 0, sizeof beside);
    beside.happens = happens;
    do {
        int error;

        beside.at = ++at;
        beside.reads = 0;
        heard.stop = false;
        error = check_at(0);
        CU_ASSERT_EQUAL(error, beside.reads >= at ? PLX_ERR_BUSY : 0);
        CU_ASSERT_EQUAL(heard.errors, 0);
        CU_ASSERT_EQUAL(result.unsettled, 0);
    } while (beside.reads >= at && at < most);
    CU_ASSERT(at > 10);
    beside.at = 0;
    heard.stop = false;
}

static void test_interrupted(void)
{
    make_moving();
    let_go(moving, 0, 1); /* history begins with a tree of its own */
    stop_at_each_read(stop_here, UINT32_MAX);
    stop_at_each_read(keyframe_and_stop, UINT32_MAX);
    CLEAN();
    OK(plx_vdi_close(moving));
    end_store();
    make_of(1024 * MIB, 256 * MIB); /* extents with several header pages */
    fill_store();
    leave_store();
    stop_at_each_read(stop_here, 20);
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
    CU_ASSERT(slow >= result.bytes / (1 << 20) * 1000000000);
    CU_ASSERT(slow < 2 * fast + (result.bytes / (1 << 20) + 2) * 1000000000);
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
        {"common blocks", test_common},
        {"addresses", test_addresses},
        {"rewound", test_rewound},
        {"log", test_log},
        {"a block that is free already", test_free_already},
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
        {"open disks", test_open},
        {"beside a writer", test_beside_writer},
        {"beside one change at each moment", test_beside_changes},
        {"damage beside a change at each moment", test_damage_beside_changes},
        {"damage until the disk is another", test_damage_until},
        {"damage that cannot be read any more", test_damage_beside_loss},
        {"a block that does not fit beside changes", test_suspect_beside_changes},
        {"a block that does not fit, of a record that is lost", test_suspect_beside_loss},
        {"a disk that has always moved on", test_moving_for_ever},
        {"a long log of an open disk", test_long_log},
        {"a block that is unmapped behind the key frame", test_unmapped_behind},
        {"a common block in a leaf that is void", test_common_beside_void},
        {"a disk that never holds still", test_unsettled},
        {"very many findings", test_many_findings},
        {"very many blocks that do not fit", test_many_suspects},
        {"headers that are lost", test_lost_headers},
        {"a header page that is lost", test_lost_page},
        {"header pages that are taken over", test_adopted_pages},
        {"without memory", test_memory},
        {"findings without memory", test_findings_without_memory},
        {"interrupted", test_interrupted},
        {"rate and interruption", test_rate},
    };

    return SUITE_RUN("verify", tests);
}
