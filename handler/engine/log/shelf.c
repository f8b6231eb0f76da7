/* shelf.c - a log read into memory: its segments found and loaded, on a shelf or not (REPLAY-3,
 * REPLAY-7). See replay.h.
 *
 * Segments up to the record's position are found by the log's index, a radix tree. Those behind it
 * are found by the chain: each header names the next segment.
 * Loop: synchronous; the disk's loop runs while it waits for I/O.
 * Crash story: nothing is written here.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/list.h"
#include "engine/log/replay_inside.h"

/* ---- Segments ---- */

static int push_segment(struct plx_log_reader *reader, uint64_t addr, size_t *capacity)
{
    if (!PLX_LIST_ROOM(reader->segments, reader->count, *capacity, 16))
        return PLX_ERR_NOMEM;
    reader->segments[reader->count++] = addr;
    return 0;
}

static bool segment_addr_valid(const struct plx_store *store, uint64_t addr)
{
    uint64_t blocks = store->info.segment_blocks;

    return addr && addr <= store->addr_limit - blocks &&
           addr / store->info.extent_blocks == (addr + blocks - 1) / store->info.extent_blocks;
}

/* The address of a segment by the index; 0: the index does not have it. */
static int index_lookup(struct plx_log_reader *reader, uint64_t segment, uint64_t *ret_addr,
                        struct plx_fault *fault)
{
    uint64_t entry = reader->record->index_root;

    *ret_addr = 0;
    for (unsigned level = reader->record->index_levels; level > 0; level--) {
        const void *node;
        int error;

        if (!plx_entry_addr(entry))
            return 0;
        error = plx_cache_get_sync(reader->store->cache, entry, level, &node);
        if (error)
            return plx_fault_set(fault, error, "virtual disk %s: log index, block %llu: %s",
                                 reader->record->name, (unsigned long long)plx_entry_addr(entry),
                                 plx_error_text(error));
        entry = plx_node_entry(node,
                               segment >> ((level - 1) * PLX_NODE_SHIFT) & (PLX_NODE_ENTRIES - 1));
    }
    *ret_addr = plx_entry_addr(entry);
    return 0;
}

/* ---- The shelf (REPLAY-7) ---- */

int plx_log_shelf_init(struct plx_log_shelf *shelf, size_t limit)
{
    *shelf = (struct plx_log_shelf){.copies = calloc(limit, sizeof *shelf->copies), .limit = limit};
    return shelf->copies ? 0 : PLX_ERR_NOMEM;
}

void plx_log_shelf_free(struct plx_log_shelf *shelf)
{
    for (size_t i = 0; i < shelf->count; i++)
        free(shelf->copies[i].bytes);
    free(shelf->copies);
    *shelf = (struct plx_log_shelf){0};
}

/* The shelf's copy of a segment, or an empty copy for it; NULL: the shelf is full, or NOMEM. */
static struct plx_log_copy *copy_of(struct plx_log_shelf *shelf, uint64_t segment, size_t bytes)
{
    struct plx_log_copy *copy = shelf->copies;

    while (copy < shelf->copies + shelf->count && copy->segment != segment)
        copy++;
    if (copy < shelf->copies + shelf->count)
        return copy;
    if (shelf->count == shelf->limit)
        return NULL;
    *copy = (struct plx_log_copy){.segment = segment, .bytes = calloc(1, bytes)};
    if (!copy->bytes)
        return NULL;
    shelf->count++;
    return copy;
}

static int read_log(struct plx_log_reader *reader, uint64_t segment, size_t from, size_t to,
                    struct plx_fault *fault)
{
    uint64_t addr = reader->segments[segment - reader->first_segment];
    int error = plx_store_read_sync(reader->store, PLX_KIND_LOG, addr + from / PLX_BLOCK_SIZE,
                                    reader->buffer + from, to - from);

    return error
               ? plx_fault_set(fault, error, "virtual disk %s: log segment %llu at block %llu: %s",
                               reader->record->name, (unsigned long long)segment,
                               (unsigned long long)addr, plx_error_text(error))
               : 0;
}

/* Reads the bytes from..to of the segment at hand into its copy on the shelf. Reads further than
 * asked for, so that the copy at least doubles: a segment is read in few pieces. */
int plx_log_read_further(struct plx_log_reader *reader, size_t from, size_t to,
                         struct plx_fault *fault)
{
    struct plx_log_copy *copy = reader->copy;
    size_t end = (size_t)plx_log_segment_bytes(reader->store), twice;
    int error = 0;

    if (!copy || (from >= copy->from && to <= copy->to))
        return 0;
    from = from / PLX_BLOCK_SIZE * PLX_BLOCK_SIZE;
    if (copy->from == copy->to)
        copy->from = copy->to = from;
    if (from < copy->from) {
        error = read_log(reader, copy->segment, from, copy->from, fault);
        copy->from = error ? copy->from : from;
    }
    twice = copy->to + plx_max_u64(READ_AHEAD, copy->to - copy->from);
    to = (size_t)plx_min_u64(plx_max_u64(to, twice), end);
    to = (to + PLX_BLOCK_SIZE - 1) / PLX_BLOCK_SIZE * PLX_BLOCK_SIZE;
    if (!error && to > copy->to) {
        error = read_log(reader, copy->segment, copy->to, to, fault);
        copy->to = error ? copy->to : to;
    }
    return error;
}

/* ---- Loading ---- */

static int load_bytes(struct plx_log_reader *reader, uint64_t segment, struct plx_fault *fault)
{
    size_t bytes = (size_t)plx_log_segment_bytes(reader->store);
    bool fresh;
    int error;

    reader->copy = reader->shelf ? copy_of(reader->shelf, segment, bytes) : NULL;
    reader->buffer = reader->copy ? reader->copy->bytes : reader->own;
    if (!reader->copy)
        return read_log(reader, segment, 0, bytes, fault);
    fresh = reader->copy->from == reader->copy->to;
    error = fresh ? read_log(reader, segment, 0, PLX_SEGMENT_HEADER_BYTES, fault) : 0;
    if (error)
        reader->copy->segment = NO_SEGMENT;
    return error;
}

int plx_log_load_segment(struct plx_log_reader *reader, uint64_t segment, struct plx_fault *fault)
{
    size_t bytes = (size_t)plx_log_segment_bytes(reader->store);
    int error;

    reader->loaded = reader->in_buffer = NO_SEGMENT;
    error = load_bytes(reader, segment, fault);
    if (error)
        return error;
    reader->in_buffer = segment;
    error = plx_format_segment_decode(reader->buffer, &reader->store->info.id, &reader->record->id,
                                      segment, reader->store->addr_limit, &reader->header, fault);
    if (!error && reader->header.start >= bytes)
        error = plx_fault_set(fault, PLX_ERR_CORRUPT, "log segment: begins behind its end");
    if (!error)
        reader->loaded = segment;
    return error;
}

/* Reads a segment's header without loading the segment. */
int plx_log_read_header(struct plx_log_reader *reader, uint64_t segment, uint64_t addr,
                        struct plx_segment_header *ret_header)
{
    int error;

    reader->buffer = reader->own;
    reader->copy = NULL;
    error = plx_store_read_sync(reader->store, PLX_KIND_LOG, addr, reader->buffer,
                                PLX_SEGMENT_HEADER_BYTES);
    reader->loaded = reader->in_buffer = NO_SEGMENT;
    return error ? error
                 : plx_format_segment_decode(reader->buffer, &reader->store->info.id,
                                             &reader->record->id, segment,
                                             reader->store->addr_limit, ret_header, NULL);
}

/* The segments up to the one that holds the key frame's position. The index has their addresses;
 * the record has the address of the last one. */
static int collect_indexed(struct plx_log_reader *reader, uint64_t last, size_t *capacity,
                           struct plx_fault *fault)
{
    const struct plx_vdi_record *record = reader->record;
    int error = 0;

    for (uint64_t s = record->first_segment; s <= last && !error; s++) {
        uint64_t addr;

        error = s == last ? 0 : index_lookup(reader, s, &addr, fault);
        if (s == last)
            addr = record->segment_addr;
        /* Numbers without a segment are in order where history was thinned out (REPLAY-5). */
        if (!error && (addr || s == record->first_segment) &&
            !segment_addr_valid(reader->store, addr))
            error = plx_fault_set(fault, PLX_ERR_CORRUPT,
                                  "virtual disk %s: log segment %llu is missing from the index",
                                  record->name, (unsigned long long)s);
        if (!error && push_segment(reader, addr, capacity))
            error = plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    }
    return error;
}

/* The segments behind it: by the chain, as far as there are headers with the record's epoch. */
static int collect_chain(struct plx_log_reader *reader, uint64_t last, size_t *capacity)
{
    uint64_t next = reader->record->next_addr, epoch = reader->record->epoch;

    for (uint64_t s = last + 1;; s++) {
        struct plx_segment_header header;
        int error = plx_log_read_header(reader, s, next, &header);

        reader->beyond = next;
        if (error && error != PLX_ERR_CORRUPT)
            return error;                   /* a header that cannot be read does not end the log */
        if (error || header.epoch != epoch) /* REPLAY-1: not begun yet, or a leftover */
            return 0;
        if (!segment_addr_valid(reader->store, header.next_addr)) /* REPLAY-3 */
            return PLX_ERR_CORRUPT;
        error = push_segment(reader, next, capacity);
        if (error)
            return error;
        next = header.next_addr;
    }
}

/* REPLAY-3: whether a record's log position is possible. A record without a segment stands at the
 * start of one that is still to be allocated. */
static bool record_plausible(const struct plx_store *store, const struct plx_vdi_record *record)
{
    uint64_t bytes = plx_log_segment_bytes(store), last = record->keyframe.pos / bytes;
    uint64_t offset = record->keyframe.pos % bytes;

    if (last < record->first_segment || record->oldest.pos / bytes < record->first_segment ||
        last - record->first_segment >= store->addr_limit / store->info.segment_blocks)
        return false;
    if (!record->segment_addr)
        return !offset && last == record->first_segment && !record->next_addr;
    return segment_addr_valid(store, record->segment_addr) &&
           segment_addr_valid(store, record->next_addr) &&
           record->next_addr != record->segment_addr &&
           (!offset || offset >= PLX_SEGMENT_HEADER_BYTES);
}

int plx_log_reader_open(struct plx_store *store, const struct plx_vdi_record *record,
                        struct plx_log_reader *ret_reader, struct plx_fault *fault)
{
    struct plx_log_reader reader = {
        .store = store,
        .record = record,
        .first_segment = record->first_segment,
        .loaded = NO_SEGMENT,
        .in_buffer = NO_SEGMENT,
    };
    uint64_t last = record->keyframe.pos / plx_log_segment_bytes(store);
    size_t capacity = 0;
    int error = 0;

    if (!record_plausible(store, record))
        return plx_fault_set(fault, PLX_ERR_CORRUPT, "virtual disk %s: impossible log position",
                             record->name);
    reader.own = reader.buffer = malloc(plx_log_segment_bytes(store));
    if (!reader.own)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    if (record->segment_addr) {
        error = collect_indexed(&reader, last, &capacity, fault);
        if (!error) {
            error = collect_chain(&reader, last, &capacity);
            if (error)
                plx_fault_set(fault, error, "virtual disk %s: reading its log: %s", record->name,
                              plx_error_text(error));
        }
    }
    if (error) {
        plx_log_reader_close(&reader);
        return error;
    }
    reader.cursor = plx_log_cursor_at(&record->keyframe);
    *ret_reader = reader;
    return 0;
}

int plx_log_reader_of(struct plx_store *store, const struct plx_vdi_record *record,
                      const uint64_t *segments, size_t count, struct plx_log_reader *ret_reader,
                      struct plx_fault *fault)
{
    struct plx_log_reader reader = {
        .store = store,
        .record = record,
        .first_segment = record->first_segment,
        .segments = malloc((count + 1) * sizeof *segments),
        .count = count,
        .loaded = NO_SEGMENT,
        .in_buffer = NO_SEGMENT,
        .own = malloc(plx_log_segment_bytes(store)),
    };

    reader.buffer = reader.own;
    if (!reader.segments || !reader.own) {
        plx_log_reader_close(&reader);
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    }
    memcpy(reader.segments, segments, count * sizeof *segments);
    *ret_reader = reader;
    return 0;
}

void plx_log_reader_close(struct plx_log_reader *reader)
{
    free(reader->segments);
    free(reader->own);
    reader->segments = NULL;
    reader->own = reader->buffer = NULL;
    reader->copy = NULL;
}
