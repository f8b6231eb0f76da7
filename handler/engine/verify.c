/* verify.c - an independent checker of a whole store: reads only, believes nothing.
 *
 * It shares the gates of format.c with the code that writes, and nothing else: its own walk of
 * trees and logs, its own idea of what must be allocated. It proves:
 *
 * F1  Superblocks, extent pages and VDI records: at least one copy of each is whole.
 * F2  Every node that a live VDI's key frame reaches is in a metadata extent, allocated, and
 *     matches its checksum; every data block it names is in a data extent and allocated.
 * F3  What is reached writable is reached once.
 * F4  The log's segments form a chain from the first retained one to the key frame's position.
 * F5  The key frame that a retained snapshot is opened through is whole.
 * F6  What is allocated but reached by nothing is counted: space to be collected, nothing lost.
 *
 * A VDI that is open elsewhere moves on while it is read: when something does not fit and its
 * record has changed meanwhile, it is read again. Blocks that only the log behind the key frame
 * names need not be in the store's bitmap yet.
 * A node is walked once: a tree that names its own nodes would have no end.
 * Synchronous; memory: four bits per block of the store.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/log.h"
#include "engine/store.h"
#include "engine/vdi.h"

#define TRIES 4u

enum mark {
    MARK_ALLOCATED, /* says the bitmap */
    MARK_REACHED,   /* by a live VDI's key frame or log index: must be allocated */
    MARK_HISTORY,   /* named by retained log or an older key frame: may be allocated */
    MARK_WALKED,    /* a node that was read, in this attempt */
    MARKS,
};

struct verify {
    struct plx_store *store;
    const struct plx_check_options *options;
    struct plx_check_result result;
    struct plx_fault *fault;
    uint64_t *marks[MARKS];
    uint8_t *types; /* of extents */
    uint8_t *data;  /* one block */
    uint8_t *segment;
    /* The VDI being read. */
    const struct plx_vdi_record *record;
    uint64_t walk_errors;
    bool quiet; /* a first try on an open VDI: findings are only counted */
};

/* ---- Findings ---- */

__attribute__((format(printf, 3, 4))) static void
find(struct verify *v, enum plx_finding_severity severity, const char *format, ...)
{
    char text[512];
    va_list args;

    if (severity == PLX_FINDING_ERROR) {
        v->walk_errors++;
        if (v->quiet)
            return;
        v->result.errors++;
    }
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    v->options->finding(v->options->context, severity, text);
}

static bool marked(const struct verify *v, enum mark mark, uint64_t addr)
{
    return v->marks[mark][addr / 64] >> addr % 64 & 1;
}

static void set_mark(struct verify *v, enum mark mark, uint64_t addr)
{
    v->marks[mark][addr / 64] |= 1ull << addr % 64;
}

static enum plx_extent_type type_at(const struct verify *v, uint64_t addr)
{
    return (enum plx_extent_type)v->types[addr / v->store->info.extent_blocks];
}

static bool good_addr(struct verify *v, uint64_t addr, enum plx_extent_type type, const char *what)
{
    if (addr < v->store->addr_limit && type_at(v, addr) == type)
        return true;
    find(v, PLX_FINDING_ERROR, "virtual disk %s: %s at block %llu, which is no %s extent",
         v->record->name, what, (unsigned long long)addr,
         type == PLX_EXTENT_DATA ? "data" : "metadata");
    return false;
}

/* ---- Superblocks and extents ---- */

static void check_superblocks(struct verify *v)
{
    for (unsigned i = 0; i < v->store->info.volumes; i++) {
        uint64_t base = v->store->volumes[i].super.first_extent * v->store->info.extent_blocks;

        for (unsigned slot = 0; slot < PLX_SUPERBLOCK_SLOTS; slot++) {
            struct plx_superblock super;
            struct plx_fault why;

            if (plx_store_read_sync(v->store, PLX_KIND_ADMIN, base + slot, v->data,
                                    PLX_BLOCK_SIZE) ||
                plx_format_superblock_decode(v->data, &super, &why))
                find(v, PLX_FINDING_ERROR, "volume %u (%s): copy %u of the superblock is damaged",
                     i, v->store->info.volume[i].name, slot);
        }
    }
}

static bool is_zero(const uint8_t *bytes, size_t count)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, count - 1) == 0;
}

static void take_bits(struct verify *v, uint64_t base, uint32_t page, const uint8_t *bits)
{
    uint64_t first = (uint64_t)page * PLX_EXTENT_PAGE_BITS;
    uint64_t end = plx_min_u64(first + PLX_EXTENT_PAGE_BITS, v->store->info.extent_blocks);

    for (uint64_t block = first; block < end; block++) {
        uint64_t i = block - first;

        if (bits[i / 8] >> i % 8 & 1)
            set_mark(v, MARK_ALLOCATED, base + block);
    }
}

static void check_extent(struct verify *v, uint64_t number)
{
    uint32_t pages = plx_extent_pages(v->store->info.extent_blocks);
    uint64_t base = number * v->store->info.extent_blocks;

    for (uint32_t p = 0; p < pages; p++) {
        uint8_t blocks[2][PLX_BLOCK_SIZE];
        struct plx_extent_page best = {0}, page;
        int which = -1;

        if (plx_store_read_sync(v->store, PLX_KIND_ADMIN, base + 2 * p, blocks, sizeof blocks)) {
            find(v, PLX_FINDING_ERROR, "extent %llu: bitmap page %u cannot be read",
                 (unsigned long long)number, p);
            continue;
        }
        if (is_zero(blocks[0], sizeof blocks[0]))
            return; /* never came into use (extent.c, E3) */
        for (int slot = 0; slot < 2; slot++) {
            if (plx_format_extent_page_decode(blocks[slot], &v->store->info.id, number, p, pages,
                                              &page, NULL) ||
                (which >= 0 && page.generation <= best.generation))
                continue;
            best = page;
            which = slot;
        }
        if (which < 0) { /* F1 */
            find(v, PLX_FINDING_ERROR, "extent %llu: both copies of bitmap page %u are damaged",
                 (unsigned long long)number, p);
            continue;
        }
        if (p == 0)
            v->types[number] = (uint8_t)best.type;
        take_bits(v, base, p, plx_format_extent_bits(blocks[which]));
    }
    for (uint32_t i = 0; i < 2 * pages; i++) {
        set_mark(v, MARK_ALLOCATED, base + i);
        set_mark(v, MARK_REACHED, base + i);
    }
}

/* ---- Trees ---- */

struct walk {
    enum mark mark;
    bool index;      /* leaves name log segments, not blocks */
    uint64_t blocks; /* virtual blocks of the disk: what lies beyond is an error */
};

static void reach(struct verify *v, enum mark mark, uint64_t addr, bool writable, const char *what)
{
    if (mark == MARK_REACHED && writable && marked(v, MARK_REACHED, addr)) /* F3 */
        find(v, PLX_FINDING_ERROR, "virtual disk %s: %s at block %llu is used twice",
             v->record->name, what, (unsigned long long)addr);
    set_mark(v, mark, addr);
}

static void verify_data(struct verify *v, uint64_t entry, uint64_t vblock)
{
    uint32_t known = plx_entry_checksum(entry);

    if (!v->options->data || !known)
        return;
    v->result.data_verified++;
    if (plx_store_read_sync(v->store, PLX_KIND_DATA, plx_entry_addr(entry), v->data,
                            PLX_BLOCK_SIZE))
        find(v, PLX_FINDING_ERROR, "virtual disk %s: block %llu (store block %llu) is unreadable",
             v->record->name, (unsigned long long)vblock,
             (unsigned long long)plx_entry_addr(entry));
    else if (plx_checksum24(plx_crc32c(v->data, PLX_BLOCK_SIZE)) != known)
        find(v, PLX_FINDING_ERROR,
             "virtual disk %s: block %llu (store block %llu) does not match its checksum",
             v->record->name, (unsigned long long)vblock,
             (unsigned long long)plx_entry_addr(entry));
}

static void walk_data(struct verify *v, const struct walk *walk, uint64_t entry, uint64_t vblock,
                      bool read_only)
{
    uint64_t addr = plx_entry_addr(entry);

    if (!good_addr(v, addr, PLX_EXTENT_DATA, "data"))
        return;
    if (walk->mark == MARK_REACHED && marked(v, MARK_REACHED, addr) && read_only)
        return; /* shared, and seen already */
    reach(v, walk->mark, addr, !read_only, "data");
    if (walk->mark == MARK_REACHED)
        verify_data(v, entry, vblock);
}

static void walk_segment(struct verify *v, uint64_t addr)
{
    if (!good_addr(v, addr, PLX_EXTENT_META, "a log segment"))
        return;
    for (uint64_t i = 0; i < v->store->info.segment_blocks && addr + i < v->store->addr_limit; i++)
        set_mark(v, MARK_REACHED, addr + i);
}

static void walk_node(struct verify *v, const struct walk *walk, uint64_t entry, unsigned level,
                      uint64_t index, bool read_only)
{
    uint64_t addr = plx_entry_addr(entry);
    uint32_t known = plx_entry_checksum(entry);
    uint8_t *node;

    if (!good_addr(v, addr, PLX_EXTENT_META, "a map node"))
        return;
    if (read_only && (marked(v, MARK_REACHED, addr) || marked(v, walk->mark, addr)))
        return; /* shared, and seen already */
    reach(v, walk->mark, addr, !read_only, "a map node");
    if (marked(v, MARK_WALKED, addr))
        return;
    set_mark(v, MARK_WALKED, addr);
    node = malloc(PLX_BLOCK_SIZE);
    if (!node || plx_store_read_sync(v->store, PLX_KIND_NODE, addr, node, PLX_BLOCK_SIZE)) {
        find(v, PLX_FINDING_ERROR, "virtual disk %s: map node at block %llu cannot be read",
             v->record->name, (unsigned long long)addr);
        free(node);
        return;
    }
    v->result.nodes++;
    if (known && plx_checksum24(plx_crc32c(node, PLX_BLOCK_SIZE)) != known) { /* F2 */
        find(v, PLX_FINDING_ERROR,
             "virtual disk %s: map node at block %llu (level %u) does not match its checksum",
             v->record->name, (unsigned long long)addr, level);
        free(node);
        return;
    }
    for (unsigned i = 0; i < PLX_NODE_ENTRIES; i++) {
        uint64_t child = plx_node_entry(node, i), at = index << PLX_NODE_SHIFT | i;
        bool shared = read_only || (child & PLX_ENTRY_READ_ONLY);

        if (!plx_entry_addr(child))
            continue;
        if (level > 1)
            walk_node(v, walk, child, level - 1, at, shared);
        else if (walk->index)
            walk_segment(v, plx_entry_addr(child));
        else if (at >= walk->blocks)
            find(v, PLX_FINDING_ERROR, "virtual disk %s: block %llu is mapped beyond the end",
                 v->record->name, (unsigned long long)at);
        else
            walk_data(v, walk, child, at, shared);
    }
    free(node);
}

static void walk_tree(struct verify *v, const struct walk *walk, uint64_t root, unsigned levels)
{
    if (plx_entry_addr(root))
        walk_node(v, walk, root, levels, 0, (root & PLX_ENTRY_READ_ONLY) != 0);
}

static void walk_keyframe(struct verify *v, const struct plx_keyframe *keyframe, enum mark mark)
{
    struct walk walk = {.mark = mark, .blocks = plx_div_up(keyframe->size_bytes, PLX_BLOCK_SIZE)};

    walk_tree(v, &walk, keyframe->root, keyframe->levels);
}

/* ---- Logs ---- */

struct log_walk {
    uint64_t seq, hash; /* expected next */
    uint64_t epoch;
    bool begun;
    struct plx_keyframe keyframe; /* in effect */
    bool keyframe_walked;
};

static void log_record(struct verify *v, struct log_walk *log, const struct plx_record *record)
{
    switch (record->type) {
    case PLX_RECORD_MAP:
        for (uint64_t i = 0; i < record->count; i++)
            set_mark(v, MARK_HISTORY, record->addr + i);
        break;
    case PLX_RECORD_SNAPSHOT:
        v->result.snapshots++;
        if (!log->keyframe_walked)
            walk_keyframe(v, &log->keyframe, MARK_HISTORY); /* F5 */
        log->keyframe_walked = true;
        break;
    case PLX_RECORD_KEYFRAME:
        /* The later one counts: two may stand at one position, when between them only checksums
         * were voided. */
        if (record->keyframe.pos >= log->keyframe.pos) {
            log->keyframe = record->keyframe;
            log->keyframe_walked = false;
        }
        break;
    default:
        break;
    }
}

/* One batch at `offset` of the loaded segment; false: the chain does not go on here. */
static bool log_batch(struct verify *v, struct log_walk *log, uint64_t *offset)
{
    uint64_t bytes = plx_log_segment_bytes(v->store);
    const struct plx_vdi_record *record = v->record;
    struct plx_batch_header header;
    size_t at = PLX_BATCH_HEADER_BYTES;

    if (plx_format_batch_decode(v->segment + *offset, (size_t)(bytes - *offset), &header) ||
        header.vdi != plx_format_vdi_word(&record->id) || header.epoch < log->epoch ||
        (log->begun && (header.seq != log->seq || header.prev_hash != log->hash)) ||
        (header.seq > record->keyframe.batch_seq && header.epoch != record->epoch))
        return false;
    v->result.batches++;
    for (uint32_t i = 0; i < header.records; i++) {
        struct plx_record one;

        if (plx_record_next(v->segment + *offset, &header, &at, v->store->addr_limit, &one)) {
            find(v, PLX_FINDING_ERROR, "virtual disk %s: log batch %llu has an impossible record",
                 record->name, (unsigned long long)header.seq);
            break;
        }
        log_record(v, log, &one);
    }
    log->begun = true;
    log->seq = header.seq + 1;
    log->hash = plx_hash64(v->segment + *offset, header.bytes);
    log->epoch = header.epoch;
    *offset += header.bytes;
    return true;
}

static bool segment_at(struct verify *v, uint64_t segment, uint64_t addr,
                       struct plx_segment_header *ret_header)
{
    uint64_t blocks = v->store->info.segment_blocks;

    return addr && addr + blocks <= v->store->addr_limit && type_at(v, addr) == PLX_EXTENT_META &&
           type_at(v, addr + blocks - 1) == PLX_EXTENT_META &&
           addr / v->store->info.extent_blocks ==
               (addr + blocks - 1) / v->store->info.extent_blocks &&
           plx_store_read_sync(v->store, PLX_KIND_LOG, addr, v->segment,
                               (size_t)(blocks << PLX_BLOCK_SHIFT)) == 0 &&
           plx_format_segment_decode(v->segment, &v->store->info.id, &v->record->id, segment,
                                     v->store->addr_limit, ret_header, NULL) == 0;
}

static void check_log(struct verify *v)
{
    const struct plx_vdi_record *record = v->record;
    uint64_t bytes = plx_log_segment_bytes(v->store);
    uint64_t last = record->keyframe.pos / bytes;
    struct walk index = {.mark = MARK_REACHED, .index = true};
    struct log_walk log = {0};
    struct plx_segment_header header;
    uint64_t addr = 0, next = 0;

    walk_tree(v, &index, record->index_root, record->index_levels);
    if (!record->segment_addr)
        return;
    walk_segment(v, record->segment_addr);
    if (record->next_addr)
        walk_segment(v, record->next_addr);
    for (uint64_t s = record->first_segment;; s++) {
        uint64_t offset = PLX_SEGMENT_HEADER_BYTES;

        if (s == record->first_segment)
            addr = s == last ? record->segment_addr : 0;
        if (s == record->first_segment && s != last) {
            /* The first retained segment's address is in the index alone. */
            uint64_t entry = record->index_root;

            for (unsigned l = record->index_levels; l > 0 && plx_entry_addr(entry); l--) {
                if (plx_entry_addr(entry) >= v->store->addr_limit ||
                    plx_store_read_sync(v->store, PLX_KIND_NODE, plx_entry_addr(entry), v->data,
                                        PLX_BLOCK_SIZE))
                    return;
                entry = plx_node_entry(v->data,
                                       s >> ((l - 1) * PLX_NODE_SHIFT) & (PLX_NODE_ENTRIES - 1));
            }
            addr = plx_entry_addr(entry);
        } else if (s != record->first_segment) {
            addr = next;
        }
        if (!segment_at(v, s, addr, &header) || (s > last && header.epoch != record->epoch)) {
            if (s <= last && !(s == last && record->keyframe.pos % bytes == 0))
                find(v, PLX_FINDING_ERROR, "virtual disk %s: log segment %llu is missing (F4)",
                     record->name, (unsigned long long)s);
            return;
        }
        next = header.next_addr;
        if (header.keyframe.pos >= log.keyframe.pos || !log.begun) {
            log.keyframe = header.keyframe;
            log.keyframe_walked = false;
        }
        if (s > last || s == record->first_segment) {
            /* Behind the key frame the bitmap need not have it yet. */
            for (uint64_t i = 0; i < bytes >> PLX_BLOCK_SHIFT; i++) {
                set_mark(v, MARK_HISTORY, addr + i);
                if (next && next + i < v->store->addr_limit)
                    set_mark(v, MARK_HISTORY, next + i);
            }
        }
        if (log.begun && (header.first_batch != log.seq || header.prev_hash != log.hash)) {
            if (s <= last)
                find(v, PLX_FINDING_ERROR,
                     "virtual disk %s: the log breaks off before segment "
                     "%llu",
                     record->name, (unsigned long long)s);
            return;
        }
        if (!log.begun) {
            log.seq = header.first_batch;
            log.hash = header.prev_hash;
            log.begun = true;
        }
        while (offset < bytes && log_batch(v, &log, &offset))
            ;
        if (s == last && record->keyframe.pos % bytes > PLX_SEGMENT_HEADER_BYTES &&
            log.seq <= record->keyframe.batch_seq)
            find(v, PLX_FINDING_ERROR,
                 "virtual disk %s: the log breaks off at batch %llu, before its key frame",
                 record->name, (unsigned long long)log.seq);
    }
}

/* ---- Virtual disks ---- */

static void check_vdi(struct verify *v, uint32_t slot)
{
    struct plx_vdi_record record, now;
    struct plx_fault why;
    uint8_t which;

    for (unsigned attempt = 0;; attempt++) {
        int error = plx_vdi_record_read(v->store, slot, &record, &which, &why);

        v->record = &record;
        v->quiet = false;
        if (error == PLX_ERR_NOT_FOUND || (!error && record.state != PLX_VDI_LIVE))
            return;
        if (error) {
            find(v, PLX_FINDING_ERROR, "%s", why.text);
            return;
        }
        v->quiet = record.owner && attempt + 1 < TRIES;
        v->walk_errors = 0;
        if (attempt)
            memset(v->marks[MARK_WALKED], 0, plx_div_up(v->store->addr_limit, 64) * 8);
        walk_keyframe(v, &record.keyframe, MARK_REACHED);
        check_log(v);
        if (!v->walk_errors || !v->quiet)
            break;
        if (plx_vdi_record_read(v->store, slot, &now, &which, NULL) == 0 &&
            now.generation == record.generation)
            attempt = TRIES - 2; /* it did not move: say what was found */
    }
    v->quiet = false;
    v->result.vdis++;
}

/* ---- The whole ---- */

static void compare(struct verify *v)
{
    uint64_t extent_blocks = v->store->info.extent_blocks, missing = 0;

    for (uint64_t extent = 0; extent < v->store->info.extents; extent++) {
        if (v->types[extent] == PLX_EXTENT_SYSTEM)
            continue;
        for (uint64_t addr = extent * extent_blocks; addr < (extent + 1) * extent_blocks; addr++) {
            bool allocated = marked(v, MARK_ALLOCATED, addr);

            v->result.used_blocks += allocated;
            v->result.free_blocks += !allocated;
            if (marked(v, MARK_REACHED, addr) && !allocated && !marked(v, MARK_HISTORY, addr)) {
                if (missing++ < 10)
                    find(v, PLX_FINDING_ERROR, "block %llu is in use but marked as free",
                         (unsigned long long)addr);
            } else if (allocated && !marked(v, MARK_REACHED, addr) &&
                       !marked(v, MARK_HISTORY, addr)) {
                v->result.leaked_blocks++;
            }
        }
    }
    if (missing > 10)
        find(v, PLX_FINDING_ERROR, "%llu blocks in all are in use but marked as free",
             (unsigned long long)missing);
    if (v->result.leaked_blocks)
        find(v, PLX_FINDING_INFO,
             "%llu blocks are allocated but unused (deleted disks, open disks' reserves, or left "
             "by a crash): to be collected, nothing is lost",
             (unsigned long long)v->result.leaked_blocks);
}

static void progress(struct verify *v, uint64_t done)
{
    if (v->options->progress)
        v->options->progress(v->options->context, done,
                             v->store->info.extents + v->store->info.vdi_slots);
}

static void check_all(struct verify *v)
{
    check_superblocks(v);
    for (unsigned i = 0; i < v->store->info.volumes; i++)
        v->types[v->store->info.volume[i].first_extent] = PLX_EXTENT_SYSTEM;
    for (uint64_t extent = 0; extent < v->store->info.extents; extent++) {
        if (v->types[extent] != PLX_EXTENT_SYSTEM)
            check_extent(v, extent);
        progress(v, extent);
    }
    for (uint32_t slot = 0; slot < v->store->info.vdi_slots; slot++) {
        check_vdi(v, slot);
        progress(v, v->store->info.extents + slot);
    }
    compare(v);
    progress(v, v->store->info.extents + v->store->info.vdi_slots);
}

int plx_store_check(struct plx_store *store, const struct plx_check_options *options,
                    struct plx_check_result *ret_result, struct plx_fault *fault)
{
    struct verify v = {.store = store, .options = options, .fault = fault};
    size_t words = (size_t)plx_div_up(store->addr_limit, 64);
    bool ready = true;

    for (int i = 0; i < MARKS; i++) {
        v.marks[i] = calloc(words, sizeof(uint64_t));
        ready = ready && v.marks[i];
    }
    v.types = calloc(store->info.extents, 1);
    v.data = malloc(PLX_BLOCK_SIZE);
    v.segment = malloc(plx_log_segment_bytes(store));
    ready = ready && v.types && v.data && v.segment;
    if (ready) {
        check_all(&v);
        *ret_result = v.result;
    }
    for (int i = 0; i < MARKS; i++)
        free(v.marks[i]);
    free(v.types);
    free(v.data);
    free(v.segment);
    return ready ? 0 : plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
}
