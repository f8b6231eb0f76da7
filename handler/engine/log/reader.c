/* reader.c - a log read batch by batch, from a position that was sought (REPLAY-1, REPLAY-2,
 * REPLAY-5). See replay.h.
 *
 * Where no batch continues the chain, the log ends, or it is damaged. It is damage if the record's
 * key frame lies further on, or if a batch further on has a mark that covers the missing one.
 * Loop: synchronous; the disk's loop runs while it waits for I/O.
 * Crash story: nothing is written here.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/hash.h"
#include "engine/log/replay_inside.h"

/* ---- Positions ---- */

void plx_log_reader_seek(struct plx_log_reader *reader, const struct plx_keyframe *keyframe)
{
    reader->cursor = plx_log_cursor_at(keyframe);
    reader->epoch = 0;
}

static bool has_segment(const struct plx_log_reader *reader, uint64_t segment)
{
    return segment >= reader->first_segment && segment - reader->first_segment < reader->count &&
           reader->segments[segment - reader->first_segment];
}

/* The last existing segment below `below`. The first retained segment always exists. */
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
    int error = plx_log_load_segment(reader, segment, fault);

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
    return plx_log_read_header(reader, segment, reader->segments[segment - reader->first_segment],
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

/* Whether the log has passed the start of the segment: then an invalid header is damage. */
static bool must_have_begun(const struct plx_log_reader *reader, uint64_t segment)
{
    return segment * plx_log_segment_bytes(reader->store) < reader->record->keyframe.pos;
}

/* The number after the last segment that was begun; NOT_FOUND: none was. */
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

/* About the middle one of the existing segments between low and high; low: there is none. */
static uint64_t segment_between(const struct plx_log_reader *reader, uint64_t low, uint64_t high)
{
    uint64_t middle = segment_below(reader, low + (high - low) / 2 + 1);

    return middle > low ? middle : segment_below(reader, high);
}

/* Binary search: seeks the start of the last segment for which is_before() is true, or else of the
 * first one. is_before() must be true up to some segment and false from there on. */
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

/* Whether the first snapshot behind the start of a segment was taken by that time. The snapshot may
 * lie many segments further on. */
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

/* Searches by the times of snapshots, which never fall (plx_vdi_snapshot_time()). The times in
 * segment headers are no help: they are the wall clock's, which may have been set back. */
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
           (!behind_keyframe || header->epoch == reader->record->epoch); /* REPLAY-1 */
}

/* REPLAY-5: if the batch is a SKIP record, goes on at the key frame that it names. */
static void skip(struct plx_log_reader *reader)
{
    size_t offset = PLX_BATCH_HEADER_BYTES;
    struct plx_record record;

    if (reader->batch_header.records == 1 &&
        plx_record_next(reader->batch, &reader->batch_header, &offset, reader->store->addr_limit,
                        &record) == 0 &&
        record.type == PLX_RECORD_SKIP && record.keyframe.pos >= reader->cursor.pos &&
        record.keyframe.batch_seq >= reader->batch_header.seq)
        reader->cursor = plx_log_cursor_at(&record.keyframe);
}

static bool read_batch(struct plx_log_reader *reader)
{
    uint64_t bytes = plx_log_segment_bytes(reader->store);
    uint64_t offset = reader->cursor.pos % bytes;
    struct plx_batch_header header;

    if (offset < PLX_SEGMENT_HEADER_BYTES ||
        plx_format_batch_decode(reader->buffer + offset, (size_t)(bytes - offset), &header) ||
        header.bytes >= bytes - offset || /* LOG-3: a batch never reaches the segment's end */
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

/* Tries to read the batch at the cursor. On a shelf, reads as far as the batch reaches. If there is
 * no batch, reads to the segment's end, where a later mark may say that one is missing (REPLAY-7).
 */
static int try_batch(struct plx_log_reader *reader, bool *ret_there, struct plx_fault *fault)
{
    size_t bytes = (size_t)plx_log_segment_bytes(reader->store);
    size_t offset = (size_t)(reader->cursor.pos % bytes);
    int error = plx_log_read_further(reader, offset, offset + PLX_BATCH_HEADER_BYTES, fault);

    *ret_there = false;
    for (size_t to = offset; !error && !*ret_there && reader->copy && to < bytes;) {
        to = reader->copy->to;
        *ret_there = read_batch(reader);
        if (!*ret_there && to < bytes)
            error = plx_log_read_further(reader, offset, to + 1, fault);
    }
    if (!error && !reader->copy)
        *ret_there = read_batch(reader);
    return error;
}

/* REPLAY-2: whether a batch further on in the buffer has a mark that covers the expected batch.
 * Looks even if the segment's header is not valid, for the header may be what is damaged. */
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

/* The chain ends at the cursor. NOT_FOUND: that is the end of the log. CORRUPT: it is damage. */
static int end_of_log(const struct plx_log_reader *reader, struct plx_fault *fault)
{
    if (reader->cursor.seq <= reader->record->keyframe.batch_seq ||
        (reader->in_buffer != NO_SEGMENT && later_mark(reader)))
        return damaged(reader, fault);
    return PLX_ERR_NOT_FOUND;
}

/* Whether the segment in the buffer, which had not begun when the log's segments were listed, has
 * begun by now: a live owner has gone on. */
static bool has_begun(struct plx_log_reader *reader)
{
    uint64_t segment = reader->first_segment + reader->count;
    struct plx_segment_header header;

    return plx_format_segment_decode(reader->buffer, &reader->store->info.id, &reader->record->id,
                                     segment, reader->store->addr_limit, &header, NULL) == 0 &&
           header.epoch == reader->record->epoch;
}

/* At the end of the log, looks into the segment that would be next. While its header is not valid,
 * it may still hold batches with marks that cover a missing one (REPLAY-2). */
int plx_log_end_is_right(struct plx_log_reader *reader, struct plx_fault *fault)
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
    return !has_begun(reader) && later_mark(reader) ? damaged(reader, fault) : 0;
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
        error = plx_log_load_segment(reader, segment, fault);
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
    /* The log may go on in the next segment, if that continues the chain. */
    segment++;
    if (!has_segment(reader, segment))
        return end_of_log(reader, fault);
    error = plx_log_load_segment(reader, segment, fault);
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
    /* The owner may be writing meanwhile. Then a segment that was read earlier is older than what
     * was read after it, which looks like damage: so the segment is read again. */
    if (reader->copy)
        reader->copy->segment = NO_SEGMENT;
    reader->loaded = NO_SEGMENT;
    return read_next(reader, fault);
}

/* ---- Records ---- */

int plx_log_bad_record(const struct plx_log_reader *reader, struct plx_fault *fault)
{
    return plx_fault_set(fault, PLX_ERR_CORRUPT,
                         "virtual disk %s: log batch %llu has an impossible record",
                         reader->record->name, (unsigned long long)reader->batch_header.seq);
}

int plx_log_batch_records(const struct plx_log_reader *reader,
                          int (*visit)(void *context, const struct plx_record *record),
                          void *context, struct plx_fault *fault)
{
    size_t offset = PLX_BATCH_HEADER_BYTES;
    int error = 0;

    for (uint32_t i = 0; i < reader->batch_header.records && !error; i++) {
        struct plx_record record;

        if (plx_record_next(reader->batch, &reader->batch_header, &offset,
                            reader->store->addr_limit, &record))
            return plx_log_bad_record(reader, fault);
        error = visit(context, &record);
    }
    return error;
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
                return plx_log_bad_record(reader, fault);
            if (!visit(context, &record))
                return 0;
        }
    }
    return error == PLX_ERR_NOT_FOUND ? 0 : error;
}
