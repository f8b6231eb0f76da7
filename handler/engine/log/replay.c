/* replay.c - see replay.h.
 *
 * R1  A batch counts only if it continues the chain: sequence, hash of the one before, this VDI;
 *     behind the record's key frame it must carry the record's epoch, before it epochs never fall.
 * R2  Behind the newest durable mark in the chain every block that a batch names must match its
 *     checksum; the first batch that does not ends the log (it was never acknowledged).
 *     A batch missing from the chain although a later one's mark calls it durable is damage, not
 *     an end: replay refuses rather than lose acknowledged writes.
 * R3  What a batch names lies in the store and within the disk as large as it is then, and segments
 *     lie where segments may lie: what is built on a replayed log relies on it (INV-7).
 * R4  Nothing is changed: replay can be interrupted and repeated (crash during recovery). What
 *     recovery believes behind the durable mark can be read, but need not be durable, and a flush
 *     does not make it so: one that failed may have dropped it from a cache that goes on showing
 *     it. So recovery writes it again, the same bytes in the same places: the blocks, which match
 *     their checksums, then the batch, with the header of the segment that it begins. That is what
 *     may be in flight at once, or in write-back mode what came since the last flush. Blocks that
 *     were overwritten in place since then are not named by the log and not written again. Those
 *     that a batch names are marked before they are read, so that nobody else is given them and
 *     writes there in between. They were nobody else's before: they come free only when a record is
 *     durable that ends the log's naming them, or when it is certain that no batch that could be
 *     believed names them (log.c, L4), so not when a log has stopped.
 * R5  Where history was thinned out (reclaim.c) some segments are missing, and a batch with nothing
 *     but a SKIP record says where the log goes on: always forward, to a key frame.
 * R6  Nothing is replayed across a rewind, from a key frame before it: who comes to one has an old
 *     record at hand, or a damaged one.
 * R7  On a shelf nothing is read twice, and of a segment no more than the batches asked for, the
 *     readahead, and all of it where one is wanting. What was not read yet is zero there.
 */
#include "engine/log/replay.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/hash.h"

#define NO_SEGMENT UINT64_MAX
#define PROOF_BLOCKS 64u /* read, and written again, at once */
#define READ_AHEAD ((size_t)PLX_BLOCK_SIZE)

/* ---- Segments ---- */

static int push_segment(struct plx_log_reader *reader, uint64_t addr, size_t *capacity)
{
    if (reader->count == *capacity) {
        size_t bigger = *capacity ? *capacity * 2 : 16;
        uint64_t *segments = realloc(reader->segments, bigger * sizeof *segments);

        if (!segments)
            return PLX_ERR_NOMEM;
        reader->segments = segments;
        *capacity = bigger;
    }
    reader->segments[reader->count++] = addr;
    return 0;
}

static bool segment_addr_valid(const struct plx_store *store, uint64_t addr)
{
    uint64_t blocks = store->info.segment_blocks;

    return addr && addr <= store->addr_limit - blocks &&
           addr / store->info.extent_blocks == (addr + blocks - 1) / store->info.extent_blocks;
}

/* The address of a segment according to the index; 0: not in it. */
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

/* ---- The shelf (R7) ---- */

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

/* The copy of a segment, or an empty one; NULL: the shelf is full, or there is no memory. */
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

/* Of a segment on the shelf what lies between two offsets, and twice as much as before at least. */
static int extend(struct plx_log_reader *reader, size_t from, size_t to, struct plx_fault *fault)
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

static int load_segment(struct plx_log_reader *reader, uint64_t segment, struct plx_fault *fault)
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

/* Reads one header without loading the segment. */
static int read_header(struct plx_log_reader *reader, uint64_t segment, uint64_t addr,
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

/* Segments up to the one that holds the key frame's position: from the index. */
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
        /* Of what was thinned out some numbers have no segment any more. */
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

/* Behind it: by the chain, as far as headers of this owner exist. */
static int collect_chain(struct plx_log_reader *reader, uint64_t last, size_t *capacity)
{
    uint64_t next = reader->record->next_addr, epoch = reader->record->epoch;

    for (uint64_t s = last + 1;; s++) {
        struct plx_segment_header header;
        int error = read_header(reader, s, next, &header);

        reader->beyond = next;
        if (error && error != PLX_ERR_CORRUPT)
            return error; /* unread is not unbegun: nothing may be cut off for that */
        if (error || header.epoch != epoch) /* R1: not begun, or a leftover */
            return 0;
        if (!segment_addr_valid(reader->store, header.next_addr)) /* R3 */
            return PLX_ERR_CORRUPT;
        error = push_segment(reader, next, capacity);
        if (error)
            return error;
        next = header.next_addr;
    }
}

/* R3, for a record. Without a segment the log goes on in a new one. */
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
    plx_log_reader_seek(&reader, &record->keyframe);
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

/* ---- Positions ---- */

static void seek(struct plx_log_reader *reader, const struct plx_keyframe *keyframe)
{
    reader->cursor = (struct plx_log_cursor){
        .pos = keyframe->pos,
        .seq = keyframe->batch_seq + 1,
        .hash = keyframe->prev_hash,
        .snap_seq = keyframe->snap_seq,
    };
}

void plx_log_reader_seek(struct plx_log_reader *reader, const struct plx_keyframe *keyframe)
{
    seek(reader, keyframe);
    reader->epoch = 0;
}

static bool has_segment(const struct plx_log_reader *reader, uint64_t segment)
{
    return segment >= reader->first_segment && segment - reader->first_segment < reader->count &&
           reader->segments[segment - reader->first_segment];
}

/* The last one below `below` that there is; the first one always is. */
static uint64_t segment_below(const struct plx_log_reader *reader, uint64_t below)
{
    do
        below--;
    while (below > reader->first_segment && !has_segment(reader, below));
    return below;
}

int plx_log_reader_seek_segment(struct plx_log_reader *reader, uint64_t segment,
                                struct plx_fault *fault)
{
    int error = load_segment(reader, segment, fault);

    if (error)
        return error;
    reader->cursor = (struct plx_log_cursor){
        .pos = segment * plx_log_segment_bytes(reader->store) + reader->header.start,
        .seq = reader->header.first_batch,
        .hash = reader->header.prev_hash,
        .snap_seq = reader->header.snap_seq,
    };
    reader->epoch = 0;
    return 0;
}

static int header_of(struct plx_log_reader *reader, uint64_t segment,
                     struct plx_segment_header *ret_header)
{
    return read_header(reader, segment, reader->segments[segment - reader->first_segment],
                       ret_header);
}

static int unreadable_header(const struct plx_log_reader *reader, uint64_t segment, int error,
                             struct plx_fault *fault)
{
    return plx_fault_set(fault, error, "virtual disk %s: log segment %llu: %s",
                         reader->record->name, (unsigned long long)segment, plx_error_text(error));
}

int plx_log_reader_header(struct plx_log_reader *reader, uint64_t segment,
                          struct plx_segment_header *ret_header, struct plx_fault *fault)
{
    int error = header_of(reader, segment, ret_header);

    return error ? unreadable_header(reader, segment, error, fault) : 0;
}

/* The log has been in it: its header is there, or damaged. */
static bool must_have_begun(const struct plx_log_reader *reader, uint64_t segment)
{
    return segment * plx_log_segment_bytes(reader->store) < reader->record->keyframe.pos;
}

/* Behind the last segment that was begun; NOT_FOUND: none was. */
static int find_end(struct plx_log_reader *reader, uint64_t *ret_end, struct plx_fault *fault)
{
    struct plx_segment_header header;

    for (uint64_t end = reader->first_segment + reader->count; end > reader->first_segment; end--) {
        int error = PLX_ERR_CORRUPT;

        if (has_segment(reader, end - 1)) {
            error = header_of(reader, end - 1, &header);
            if (error && (error != PLX_ERR_CORRUPT || must_have_begun(reader, end - 1)))
                return unreadable_header(reader, end - 1, error, fault);
        }
        if (!error) {
            *ret_end = end;
            return 0;
        }
    }
    return plx_fault_set(fault, PLX_ERR_NOT_FOUND, "the log is empty");
}

/* About the middle of those between the two that there are; low: there is none. */
static uint64_t segment_between(const struct plx_log_reader *reader, uint64_t low, uint64_t high)
{
    uint64_t middle = segment_below(reader, low + (high - low) / 2 + 1);

    return middle > low ? middle : segment_below(reader, high);
}

/* To the start of the last segment that lies before what is looked for, which those do up to some
 * one; or of the first. */
static int seek_last(struct plx_log_reader *reader,
                     int (*is_before)(struct plx_log_reader *reader, uint64_t segment,
                                      uint64_t limit, bool *ret_before, struct plx_fault *fault),
                     uint64_t limit, struct plx_fault *fault)
{
    uint64_t low = reader->first_segment, high, middle;
    int error = find_end(reader, &high, fault);

    while (!error && (middle = segment_between(reader, low, high)) > low) {
        bool before = false;

        error = is_before(reader, middle, limit, &before, fault);
        if (before)
            low = middle;
        else
            high = middle;
    }
    return error ? error : plx_log_reader_seek_segment(reader, low, fault);
}

static int begins_before(struct plx_log_reader *reader, uint64_t segment, uint64_t seq,
                         bool *ret_before, struct plx_fault *fault)
{
    struct plx_segment_header header;
    int error = plx_log_reader_header(reader, segment, &header, fault);

    if (!error)
        *ret_before = header.snap_seq < seq;
    return error;
}

int plx_log_reader_seek_snapshot(struct plx_log_reader *reader, uint64_t seq,
                                 struct plx_fault *fault)
{
    return seek_last(reader, begins_before, seq, fault);
}

static bool take_time(void *context, const struct plx_record *record)
{
    if (record->type == PLX_RECORD_SNAPSHOT)
        *(uint64_t *)context = record->time_ns;
    return record->type != PLX_RECORD_SNAPSHOT;
}

/* Whether the first snapshot behind the start of a segment, which may lie many segments further on,
 * was taken by then. */
static int holds_one_by(struct plx_log_reader *reader, uint64_t segment, uint64_t time_ns,
                        bool *ret_before, struct plx_fault *fault)
{
    struct plx_segment_header header;
    uint64_t first_ns = UINT64_MAX;
    int error = plx_log_reader_header(reader, segment, &header, fault);

    if (error)
        return error;
    error = plx_log_reader_seek_snapshot(reader, header.snap_seq + 1, fault);
    if (!error)
        error = plx_log_each_record(reader, take_time, &first_ns, fault);
    *ret_before = !error && first_ns <= time_ns;
    return error;
}

/* By the times of snapshots, which never fall (plx_vdi_snapshot_time), and not by the headers'
 * own: those are the clock's, and it may have been set back in between. */
int plx_log_reader_seek_time(struct plx_log_reader *reader, uint64_t time_ns,
                             struct plx_fault *fault)
{
    return seek_last(reader, holds_one_by, time_ns, fault);
}

/* ---- Batches ---- */

static bool continues(const struct plx_log_reader *reader, const struct plx_batch_header *header)
{
    bool behind_keyframe = reader->cursor.seq > reader->record->keyframe.batch_seq;

    return header->seq == reader->cursor.seq && header->prev_hash == reader->cursor.hash &&
           header->vdi == plx_format_vdi_word(&reader->record->id) &&
           header->epoch >= reader->epoch &&
           (!behind_keyframe || header->epoch == reader->record->epoch); /* R1 */
}

/* R5: over what was thinned out. */
static void skip(struct plx_log_reader *reader)
{
    size_t offset = PLX_BATCH_HEADER_BYTES;
    struct plx_record record;

    if (reader->batch_header.records == 1 &&
        plx_record_next(reader->batch, &reader->batch_header, &offset, reader->store->addr_limit,
                        &record) == 0 &&
        record.type == PLX_RECORD_SKIP && record.keyframe.pos >= reader->cursor.pos &&
        record.keyframe.batch_seq >= reader->batch_header.seq)
        seek(reader, &record.keyframe);
}

static bool read_batch(struct plx_log_reader *reader)
{
    uint64_t bytes = plx_log_segment_bytes(reader->store);
    uint64_t offset = reader->cursor.pos % bytes;
    struct plx_batch_header header;

    if (offset < PLX_SEGMENT_HEADER_BYTES ||
        plx_format_batch_decode(reader->buffer + offset, (size_t)(bytes - offset), &header) ||
        header.bytes >= bytes - offset || /* never to the very end (log.c, L3) */
        !continues(reader, &header))
        return false;
    reader->batch = reader->buffer + offset;
    reader->batch_header = header;
    reader->cursor.pos += header.bytes;
    reader->cursor.seq++;
    reader->cursor.hash = plx_hash64(reader->batch, header.bytes);
    reader->epoch = header.epoch;
    skip(reader);
    return true;
}

/* As far as the batch reaches; where there is none, to the segment's end: a later one may say that
 * it is wanting. */
static int try_batch(struct plx_log_reader *reader, bool *ret_there, struct plx_fault *fault)
{
    size_t bytes = (size_t)plx_log_segment_bytes(reader->store);
    size_t offset = (size_t)(reader->cursor.pos % bytes);
    int error = extend(reader, offset, offset + PLX_BATCH_HEADER_BYTES, fault);

    *ret_there = false;
    for (size_t to = offset; !error && !*ret_there && reader->copy && to < bytes;) {
        to = reader->copy->to;
        *ret_there = read_batch(reader);
        if (!*ret_there && to < bytes)
            error = extend(reader, offset, to + 1, fault);
    }
    if (!error && !reader->copy)
        *ret_there = read_batch(reader);
    return error;
}

/* Whether a batch further on in the buffer says that the one expected was durable. The segment's
 * own header may be the damage. */
static bool later_mark(const struct plx_log_reader *reader)
{
    uint64_t bytes = plx_log_segment_bytes(reader->store);
    uint64_t offset = PLX_SEGMENT_HEADER_BYTES;
    struct plx_batch_header header;

    if (reader->cursor.pos / bytes == reader->in_buffer)
        offset = plx_max_u64(offset, reader->cursor.pos % bytes);
    for (; offset < bytes; offset += 512) {
        if (!plx_format_batch_decode(reader->buffer + offset, (size_t)(bytes - offset), &header) &&
            header.vdi == plx_format_vdi_word(&reader->record->id) &&
            header.epoch == reader->record->epoch && header.durable_seq >= reader->cursor.seq)
            return true;
    }
    return false;
}

static int damaged(const struct plx_log_reader *reader, struct plx_fault *fault)
{
    return plx_fault_set(fault, PLX_ERR_CORRUPT,
                         "virtual disk %s: log batch %llu at position %llu is damaged",
                         reader->record->name, (unsigned long long)reader->cursor.seq,
                         (unsigned long long)reader->cursor.pos);
}

/* The chain ends here: rightly so, or because something is broken? */
static int end_of_log(const struct plx_log_reader *reader, struct plx_fault *fault)
{
    if (reader->cursor.seq <= reader->record->keyframe.batch_seq ||
        (reader->in_buffer != NO_SEGMENT && later_mark(reader)))
        return damaged(reader, fault);
    return PLX_ERR_NOT_FOUND;
}

/* At the end of the log: the segment that should come next, and whose header did not count, may
 * hold batches all the same (R2). Only where nobody is writing to it. */
static int end_is_right(struct plx_log_reader *reader, struct plx_fault *fault)
{
    int error;

    if (!reader->beyond)
        return 0;
    reader->loaded = reader->in_buffer = NO_SEGMENT;
    reader->buffer = reader->own;
    reader->copy = NULL;
    error = plx_store_read_sync(reader->store, PLX_KIND_LOG, reader->beyond, reader->buffer,
                                (size_t)plx_log_segment_bytes(reader->store));
    if (error)
        return plx_fault_set(fault, error, "virtual disk %s: log segment at block %llu: %s",
                             reader->record->name, (unsigned long long)reader->beyond,
                             plx_error_text(error));
    return later_mark(reader) ? damaged(reader, fault) : 0;
}

static int read_next(struct plx_log_reader *reader, struct plx_fault *fault)
{
    uint64_t bytes = plx_log_segment_bytes(reader->store);
    uint64_t segment = reader->cursor.pos / bytes, stay;
    bool there;
    int error;

    if (!has_segment(reader, segment))
        return end_of_log(reader, fault);
    if (reader->loaded != segment) {
        error = load_segment(reader, segment, fault);
        if (error == PLX_ERR_CORRUPT && reader->cursor.pos % bytes == 0)
            return end_of_log(reader, fault); /* not begun yet */
        if (error)
            return error;
    }
    if (reader->cursor.pos % bytes == 0)
        reader->cursor.pos += reader->header.start;
    error = try_batch(reader, &there, fault);
    if (error || there)
        return error;
    if (later_mark(reader))
        return damaged(reader, fault);
    /* The next segment, if it continues the chain. */
    segment++;
    if (!has_segment(reader, segment))
        return end_of_log(reader, fault);
    error = load_segment(reader, segment, fault);
    if (error == PLX_ERR_CORRUPT)
        return end_of_log(reader, fault);
    if (error)
        return error;
    if (reader->header.first_batch != reader->cursor.seq ||
        reader->header.prev_hash != reader->cursor.hash)
        return end_of_log(reader, fault);
    stay = reader->cursor.pos;
    reader->cursor.pos = segment * bytes + reader->header.start;
    error = try_batch(reader, &there, fault);
    if (!error && there)
        return 0;
    if (!error)
        error = end_of_log(reader, fault);
    reader->cursor.pos = stay;
    return error;
}

int plx_log_reader_next(struct plx_log_reader *reader, struct plx_fault *fault)
{
    int error = read_next(reader, fault);

    if (error != PLX_ERR_CORRUPT)
        return error;
    /* Beside a writer: what was read first may only be older than what was read after it. */
    if (reader->copy)
        reader->copy->segment = NO_SEGMENT;
    reader->loaded = NO_SEGMENT;
    return read_next(reader, fault);
}

/* ---- Records ---- */

static int bad_record(const struct plx_log_reader *reader, struct plx_fault *fault)
{
    return plx_fault_set(fault, PLX_ERR_CORRUPT,
                         "virtual disk %s: log batch %llu has an impossible record",
                         reader->record->name, (unsigned long long)reader->batch_header.seq);
}

int plx_log_each_record(struct plx_log_reader *reader,
                        bool (*visit)(void *context, const struct plx_record *record),
                        void *context, struct plx_fault *fault)
{
    int error;

    while ((error = plx_log_reader_next(reader, fault)) == 0) {
        size_t offset = PLX_BATCH_HEADER_BYTES;

        for (uint32_t i = 0; i < reader->batch_header.records; i++) {
            struct plx_record record;

            error = plx_record_next(reader->batch, &reader->batch_header, &offset,
                                    reader->store->addr_limit, &record);
            if (error)
                return bad_record(reader, fault);
            if (!visit(context, &record))
                return 0;
        }
    }
    return error == PLX_ERR_NOT_FOUND ? 0 : error;
}

/* ---- Replay ---- */

/* Reads the blocks of a MAP record and compares them with its checksums. again: and writes them
 * again (R4). */
static int verify_map(struct plx_store *store, const struct plx_record *record, bool again,
                      uint8_t *buffer, bool *ret_match)
{
    uint64_t now;

    *ret_match = true;
    for (uint64_t at = 0; at < record->count && *ret_match; at += now) {
        size_t bytes;
        int error;

        now = plx_min_u64(record->count - at, PROOF_BLOCKS);
        bytes = (size_t)now << PLX_BLOCK_SHIFT;
        error = plx_store_read_sync(store, PLX_KIND_DATA, record->addr + at, buffer, bytes);
        for (uint64_t i = 0; i < now && !error && *ret_match; i++)
            *ret_match = plx_crc32c(buffer + (i << PLX_BLOCK_SHIFT), PLX_BLOCK_SIZE) ==
                         plx_record_checksum(record, at + i);
        if (!error && *ret_match && again)
            error = plx_store_write_sync(store, PLX_KIND_DATA, record->addr + at, buffer, bytes);
        if (error)
            return error;
    }
    return 0;
}

static bool addrs_in_one_extent(const struct plx_store *store, const struct plx_record *record)
{
    uint64_t blocks = store->info.extent_blocks;

    return record->addr / blocks == (record->addr + record->count - 1) / blocks;
}

/* R4, for the batch the reader stands on. A batch is padded to the device's blocks, unless the
 * store came from a device of smaller ones. */
static int write_log_again(struct plx_log_reader *reader, struct plx_fault *fault)
{
    struct plx_store *store = reader->store;
    uint64_t addr = reader->segments[reader->loaded - reader->first_segment];
    uint64_t block = plx_store_device_block(store);
    uint64_t offset = (uint64_t)(reader->batch - reader->buffer);
    uint64_t low = offset / block * block;
    uint64_t high = plx_div_up(offset + reader->batch_header.bytes, block) * block;
    int error = 0;

    if (reader->header.first_batch == reader->batch_header.seq)
        error = plx_store_write_sync(store, PLX_KIND_LOG, addr, reader->buffer,
                                     PLX_SEGMENT_HEADER_BYTES);
    if (!error)
        error = plx_store_write_at_sync(store, PLX_KIND_LOG, addr, low, reader->buffer + low,
                                        (size_t)(high - low));
    return error ? plx_fault_set(fault, error, "virtual disk %s: log segment at block %llu: %s",
                                 reader->record->name, (unsigned long long)addr,
                                 plx_error_text(error))
                 : 0;
}

/* R2, for the batch the reader stands on. again: R4. */
static int prove_batch(struct plx_log_reader *reader, bool again, uint8_t *buffer, bool *ret_proven,
                       struct plx_fault *fault)
{
    size_t offset = PLX_BATCH_HEADER_BYTES;

    *ret_proven = true;
    for (uint32_t i = 0; i < reader->batch_header.records && *ret_proven; i++) {
        struct plx_record record;
        int error = plx_record_next(reader->batch, &reader->batch_header, &offset,
                                    reader->store->addr_limit, &record);

        if (error)
            return bad_record(reader, fault);
        if (record.type != PLX_RECORD_MAP)
            continue;
        if (!addrs_in_one_extent(reader->store, &record))
            return bad_record(reader, fault);
        if (again)
            plx_alloc_mark(reader->store, record.addr, record.count);
        error = verify_map(reader->store, &record, again, buffer, ret_proven);
        if (error)
            return plx_fault_set(fault, error, "virtual disk %s: block %llu: %s",
                                 reader->record->name, (unsigned long long)record.addr,
                                 plx_error_text(error));
    }
    return again && *ret_proven ? write_log_again(reader, fault) : 0;
}

/* R3: whether the record names blocks of the disk alone, and does not make it smaller. */
static bool within_disk(const struct plx_record *record, uint64_t size_bytes)
{
    uint64_t blocks = plx_div_up(size_bytes, PLX_BLOCK_SIZE);

    switch (record->type) {
    case PLX_RECORD_MAP:
    case PLX_RECORD_UNMAP:
        return record->vblock + record->count <= blocks;
    case PLX_RECORD_VOID:
        return record->vblock + record->count <= plx_div_up(blocks, PLX_NODE_ENTRIES);
    case PLX_RECORD_RESIZE:
        return record->size_bytes >= size_bytes;
    default:
        return true;
    }
}

static size_t slots_for(const struct plx_record *record)
{
    switch (record->type) {
    case PLX_RECORD_MAP:
        return (size_t)record->count;
    case PLX_RECORD_UNMAP:
        return plx_map_slots_for_unmap(record->vblock, record->count);
    case PLX_RECORD_VOID:
        return record->count * PLX_MAP_SLOTS_FOR_VOID;
    default:
        return 0;
    }
}

struct replay {
    struct plx_log_reader *reader;
    struct plx_map *map;
    uint64_t from_pos, until_seq;
    bool recover, reached;
    struct plx_replay_result result;
};

/* R6 */
static int crosses_rewind(const struct plx_log_reader *reader, struct plx_fault *fault)
{
    return plx_fault_set(fault, PLX_ERR_CORRUPT,
                         "virtual disk %s: it was rewound in log batch %llu, and its record does "
                         "not say so",
                         reader->record->name, (unsigned long long)reader->batch_header.seq);
}

static int apply_record(struct replay *replay, const struct plx_record *record,
                        struct plx_fault *fault)
{
    struct plx_map *map = replay->map;
    size_t slots = slots_for(record);

    if (!within_disk(record, replay->result.size_bytes))
        return bad_record(replay->reader, fault);
    if (!plx_overlay_reserve(&map->active, slots))
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    switch (record->type) {
    case PLX_RECORD_MAP:
        if (!addrs_in_one_extent(map->store, record)) {
            plx_overlay_unreserve(&map->active, slots);
            return bad_record(replay->reader, fault);
        }
        if (replay->recover)
            plx_alloc_mark(map->store, record->addr, record->count);
        for (uint64_t i = 0; i < record->count; i++)
            plx_map_apply_map(map, record->vblock + i, record->addr + i,
                              plx_checksum24(plx_record_checksum(record, i)));
        break;
    case PLX_RECORD_UNMAP:
        plx_map_apply_unmap(map, record->vblock, record->count);
        break;
    case PLX_RECORD_VOID:
        for (uint64_t i = 0; i < record->count; i++)
            plx_map_apply_void(map, record->vblock + i);
        break;
    case PLX_RECORD_SNAPSHOT:
        /* Numbers in between were thinned out. */
        if (record->seq <= map->gen || record->seq - map->active.first_gen >= PLX_OVERLAY_GENS)
            return bad_record(replay->reader, fault);
        plx_map_apply_snapshot(map, record->seq);
        replay->result.snapshot_ns = record->time_ns;
        replay->reached = record->seq == replay->until_seq;
        break;
    case PLX_RECORD_RESIZE:
        replay->result.size_bytes = record->size_bytes;
        break;
    case PLX_RECORD_REWIND:
        if (record->keyframe.pos > replay->from_pos)
            return crosses_rewind(replay->reader, fault);
        break;
    case PLX_RECORD_LABEL:
    case PLX_RECORD_KEYFRAME:
    case PLX_RECORD_SKIP:
        break;
    }
    plx_overlay_unreserve(&map->active, slots);
    return 0;
}

static int apply_batch(struct replay *replay, struct plx_fault *fault)
{
    struct plx_log_reader *reader = replay->reader;
    size_t offset = PLX_BATCH_HEADER_BYTES;

    for (uint32_t i = 0; i < reader->batch_header.records && !replay->reached; i++) {
        struct plx_record record;
        int error = plx_record_next(reader->batch, &reader->batch_header, &offset,
                                    reader->store->addr_limit, &record);

        if (error)
            return bad_record(reader, fault);
        error = apply_record(replay, &record, fault);
        if (error)
            return error;
    }
    return 0;
}

/* First pass: how far the chain goes, and the newest mark in it. */
static int find_mark(struct plx_log_reader *reader, uint64_t *ret_mark, uint64_t *ret_last,
                     struct plx_fault *fault)
{
    uint64_t mark = reader->cursor.seq - 1;
    int error;

    while ((error = plx_log_reader_next(reader, fault)) == 0)
        mark = plx_max_u64(mark, reader->batch_header.durable_seq);
    if (error != PLX_ERR_NOT_FOUND)
        return error;
    *ret_mark = mark;
    *ret_last = reader->cursor.seq - 1;
    return end_is_right(reader, fault);
}

int plx_replay(struct plx_log_reader *reader, const struct plx_keyframe *from, struct plx_map *map,
               uint64_t until_seq, bool recover, struct plx_replay_result *ret_result,
               struct plx_fault *fault)
{
    struct replay replay = {.reader = reader,
                            .map = map,
                            .from_pos = from->pos,
                            .until_seq = until_seq,
                            .recover = recover};
    uint64_t mark = UINT64_MAX, last = 0;
    uint8_t *buffer = aligned_alloc(PLX_BLOCK_SIZE, PROOF_BLOCKS * PLX_BLOCK_SIZE);
    int error = buffer ? 0 : plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");

    plx_log_reader_seek(reader, from);
    replay.result.size_bytes = from->size_bytes;
    replay.result.snapshot_ns = 0;
    if (!error && !until_seq) {
        error = find_mark(reader, &mark, &last, fault);
        plx_log_reader_seek(reader, from);
    }
    while (!error && !replay.reached) {
        struct plx_log_cursor before = reader->cursor;
        bool proven = true;

        error = plx_log_reader_next(reader, fault);
        if (error)
            break;
        if (reader->batch_header.seq > mark) {
            replay.result.written_again = recover;
            error = prove_batch(reader, recover, buffer, &proven, fault);
        }
        if (!error && !proven) {
            reader->cursor = before;
            replay.result.dropped = last - (before.seq - 1);
            break;
        }
        if (!error)
            error = apply_batch(&replay, fault);
        replay.result.batches += !error;
    }
    free(buffer);
    if (error == PLX_ERR_NOT_FOUND)
        error =
            until_seq && !replay.reached
                ? plx_fault_set(fault, PLX_ERR_NOT_FOUND, "virtual disk %s has no snapshot %llu",
                                reader->record->name, (unsigned long long)until_seq)
                : 0;
    if (error)
        return error;
    replay.result.end = reader->cursor;
    *ret_result = replay.result;
    return 0;
}
