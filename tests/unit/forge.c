/* forge.c - see forge.h. */
#include "unit/forge.h"

#include <stdio.h>
#include <string.h>

#include "engine/disk/vdi.h"
#include "ok.h"

struct plx_uuid store_id;
struct heard heard;
struct beside beside;
struct plx_check_result checked;

/* ---- A store with something of everything ---- */

void make_of(uint64_t bytes, uint64_t extent_bytes)
{
    struct plx_store_info info;

    make_store(bytes, extent_bytes);
    plx_store_get_info(store, &info);
    store_id = info.id;
}

void make(uint64_t bytes)
{
    make_of(bytes, MIB);
}

void fill(struct plx_vdi *vdi, uint64_t offset, uint64_t length, int byte)
{
    memset(buffer, byte, length);
    for (size_t i = 0; i < length; i += BLOCK)
        buffer[i] = (uint8_t)(i / BLOCK);
    run(vdi, PLX_WRITE, offset, length);
}

void fill_store(void)
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

void make_history(void)
{
    make(64 * MIB);
    fill_store();
    OK(plx_simenv_release_all(&env, &fault));
    close_store();
}

void make_crashed(unsigned writes)
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

/* ---- Checking ---- */

static void add(char *text, size_t size, const char *more)
{
    size_t used = strlen(text);

    snprintf(text + used, size - used, "%s\n", more);
}

void on_found(void *context, const struct plx_finding *finding)
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

static bool on_interrupted(void *context)
{
    beside.reads++;
    if (beside.at && (beside.again ? beside.reads % beside.at == 0 : beside.reads == beside.at))
        beside.happens();
    return heard.stop;
}

int check_at(uint64_t rate)
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
    error = plx_store_check(store, &options, &checked, &fault);
    if (was_closed)
        close_store();
    CU_ASSERT_EQUAL(checked.errors, heard.errors);
    return error;
}

void expect_clean(int line)
{
    OK(check_at(0));
    if (heard.errors)
        printf("\n  line %d: %s", line, heard.text);
    CU_ASSERT_EQUAL(heard.errors, 0);
}

void expect(const char *kind, const char *words, int line)
{
    OK(check_at(0));
    if (!strstr(heard.kinds, kind) || !strstr(heard.text, words))
        printf("\n  line %d: %s wanted, found %s: %s", line, kind, heard.kinds, heard.text);
    CU_ASSERT(heard.errors > 0);
    CU_ASSERT_PTR_NOT_NULL(strstr(heard.kinds, kind));
    CU_ASSERT_PTR_NOT_NULL(strstr(heard.text, words));
}

/* ---- Forging ---- */

void peek(uint64_t addr, void *block)
{
    plx_simdisk_peek(disk, addr * BLOCK, block, BLOCK);
}

void poke(uint64_t addr, const void *block)
{
    plx_simdisk_poke(disk, addr * BLOCK, block, BLOCK);
}

uint64_t record_addr(uint32_t slot)
{
    return PLX_VDI_TABLE_BLOCK + 2ull * slot;
}

struct plx_vdi_record get_record(uint32_t slot)
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

void put_record(struct plx_vdi_record *record)
{
    uint8_t block[BLOCK];

    record->generation++;
    for (unsigned i = 0; i < 2; i++) {
        plx_format_vdi_record_encode(&store_id, record, block);
        poke(record_addr(record->slot) + i, block);
    }
}

unsigned load_leaf(const struct plx_vdi_record *record, uint64_t *ret_path, uint8_t *leaf)
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

void forge_entry(uint32_t slot, unsigned index, uint64_t entry)
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

void expect_unaccounted(const char *words, int line)
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

uint64_t entry_of(uint32_t slot, unsigned index)
{
    struct plx_vdi_record record = get_record(slot);
    uint64_t path[PLX_LEVELS_MAX];
    uint8_t leaf[BLOCK];

    load_leaf(&record, path, leaf);
    return plx_node_entry(leaf, index);
}

void forge_bit(uint64_t addr, bool set)
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

void flip(uint64_t addr, unsigned offset)
{
    plx_simdisk_flip(disk, addr * BLOCK + offset, 1);
}

uint64_t find_extent(enum plx_extent_type type)
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

uint64_t addr_of(struct plx_vdi *vdi, uint64_t vblock)
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

uint64_t find_batch(uint64_t seq, struct plx_batch_header *ret_header)
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

uint64_t forge_batch(uint64_t at, const struct plx_batch_header *header, unsigned offset,
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

void let_snapshots_go(struct plx_vdi *vdi, uint64_t after, uint64_t upto)
{
    struct plx_thin thin = {.after = after, .upto = upto};
    struct plx_thinned thinned;

    do {
        OK(plx_vdi_thin(vdi, &thin, &thinned, &fault));
    } while (thinned.upto > thin.after && (thin.after = thinned.upto) < upto);
}
