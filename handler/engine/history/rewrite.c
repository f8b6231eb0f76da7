/* rewrite.c - see rewrite.h.
 *
 * REWRITE-1  Nothing that a VDI record names is overwritten. New batches and copies go to newly
 *     allocated segments, which become part of the log when a record's index of segments names them
 *     (INV-2). So a crash at any moment leaves the old log whole.
 * REWRITE-2  The new batches continue the chain of sequence numbers and hashes behind `from`. They
 *     end at or before the position of `to` and use no batch number behind that of `to`, because
 *     the log goes on there unchanged.
 * REWRITE-3  Two segments are shared with the neighbours of the stretch. Batches before `from` in
 *     its segment are copied, unless history begins with `from`. Batches behind `to` in its segment
 *     are copied as well.
 * REWRITE-4  After the rewrite no segment header names a key frame at its old position within the
 *     stretch. A segment behind `to` whose header names such a key frame is copied; the copy's
 *     header names the last key frame that the new log announces. If the segment to be copied is
 *     the one that the disk still writes to, the rewrite is given up with the result OPEN, and
 *     reclaim.c first ends that segment.
 * REWRITE-5  Everything that is copied is checked as replay checks it, batch by batch and on into
 *     the next segment. The old segment is freed later, so an unnoticed damaged or stale batch
 *     would be lost for good.
 * REWRITE-6  A rewrite keeps nothing of the reserve that open disks need to write their key frames
 *     (INV-8). After each allocation it asks every open disk. If one lacks room, the rewrite waits
 *     until that disk has it, or gives up and frees its segments.
 * REWRITE-7  No batch is empty. The log announces each kept key frame before the next one begins
 *     (KEYFRAME-3), and the rewritten log repeats that announcement. A forged log without
 *     announcements gets a batch without records, which readers pass over.
 *
 * Loop: the store's.
 * Crash story: new segments that no record names yet are leaks, which a garbage collection finds.
 */
#include "engine/history/rewrite.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/list.h"
#include "engine/disk/vdi.h"

static uint64_t segment_bytes(const struct plx_rewrite *w)
{
    return plx_log_segment_bytes(w->store);
}

static bool is_there(const struct plx_rewrite *w, uint64_t number)
{
    return w->reader->segments[number - w->reader->first_segment] != 0;
}

/* ---- Segments ---- */

static int failed(const struct plx_rewrite *w, uint64_t number, int error)
{
    return plx_fault_set(w->fault, error, "virtual disk %s: log segment %llu: %s",
                         w->reader->record->name, (unsigned long long)number,
                         plx_error_text(error));
}

static int push_move(struct plx_rewrite *w, uint64_t number, uint64_t addr)
{
    if (!PLX_LIST_ROOM(w->moves, w->move_count, w->move_capacity, 16))
        return failed(w, number, PLX_ERR_NOMEM);
    w->moves[w->move_count++] = (struct plx_log_move){number, addr};
    return 0;
}

/* REWRITE-6 */
static int room_is_left(const struct plx_rewrite *w)
{
    struct plx_vdi *vdi = w->store->vdis;

    while (vdi) {
        bool needs =
            !vdi->snapshot && !vdi->log.sticky && plx_vdi_metadata_room(vdi, 0) == PLX_ERR_NOSPACE;
        int error = needs ? plx_vdi_wait_metadata_room(vdi) : 0;

        if (error)
            return error;
        vdi = needs ? w->store->vdis : vdi->next; /* the list may have changed while waiting */
    }
    return 0;
}

/* Allocates a new place for the segment of that number (REWRITE-1). The move is listed before the
 * allocation, so that the caller frees the segment whatever happens later. */
static int place(struct plx_rewrite *w, uint64_t number, uint64_t *ret_addr)
{
    int error = push_move(w, number, 0);

    if (error)
        return error;
    error = plx_alloc_segment_sync(w->store, ret_addr);
    if (error)
        return failed(w, number, error);
    w->moves[w->move_count - 1].addr = *ret_addr;
    error = room_is_left(w);
    return error ? failed(w, number, error) : 0;
}

/* While batches before the stretch are copied: notes the last key frame that they announce. */
static void note_announcements(struct plx_rewrite *w, uint64_t until)
{
    const struct plx_log_reader *old = &w->copier;
    size_t offset = PLX_BATCH_HEADER_BYTES;
    struct plx_record record;

    for (uint32_t i = 0; i < old->batch_header.records && until <= w->from.pos; i++)
        if (plx_record_next(old->batch, &old->batch_header, &offset, w->store->addr_limit,
                            &record) == 0 &&
            plx_record_announces(&record) && record.keyframe.pos > w->keyframe.pos)
            w->keyframe = record.keyframe;
}

/* Copies batches of the old segment that the copier stands in, up to a position or the end of that
 * segment. Reading one batch of the next segment proves that none is missing here (REWRITE-5). */
static int copy_batches(struct plx_rewrite *w, uint64_t number, uint64_t until, uint8_t *segment)
{
    struct plx_log_reader *old = &w->copier;
    int error = 0;

    while (!error && old->cursor.pos < until) {
        error = plx_log_reader_next(old, w->fault);
        if (!error && old->loaded != number)
            return 0;
        if (error)
            break;
        memcpy(segment + (old->batch - old->buffer), old->batch, old->batch_header.bytes);
        note_announcements(w, until);
    }
    return error == PLX_ERR_NOT_FOUND ? failed(w, number, PLX_ERR_CORRUPT) : error;
}

static int write_segment(struct plx_rewrite *w, uint64_t addr,
                         const struct plx_segment_header *header, uint8_t *segment)
{
    int error;

    plx_format_segment_encode(&w->store->info.id, header, segment);
    error = plx_store_write_sync(w->store, PLX_KIND_LOG, addr, segment, (size_t)segment_bytes(w));
    return error ? failed(w, header->segment, error) : 0;
}

static struct plx_segment_header header_here(const struct plx_rewrite *w)
{
    return (struct plx_segment_header){
        .vdi = w->reader->record->id,
        .epoch = w->epoch,
        .segment = w->number,
        .first_batch = w->seq,
        .prev_hash = w->hash,
        .snap_seq = w->snap_seq,
        .time_ns = w->time_ns,
        .keyframe = w->keyframe,
        .start = (uint32_t)(w->pos % segment_bytes(w)),
    };
}

static int next_segment(struct plx_rewrite *w)
{
    uint64_t next;
    int error = w->number < w->to.pos / segment_bytes(w) ? place(w, w->number + 1, &next)
                                                         : PLX_REWRITE_FULL;

    if (error)
        return error;
    w->header.next_addr = next;
    error = write_segment(w, w->addr, &w->header, w->segment);
    w->number++;
    w->addr = next;
    w->pos = w->number * segment_bytes(w) + PLX_SEGMENT_HEADER_BYTES;
    memset(w->segment, 0, (size_t)segment_bytes(w));
    w->header = header_here(w); /* a header gives the state before the segment's first batch */
    w->header.snap_seq = w->batch_snap_seq;
    w->header.time_ns = w->batch_ns;
    w->header.keyframe = w->batch_keyframe;
    return error;
}

/* ---- Batches ---- */

static size_t batch_bytes_max(const struct plx_rewrite *w)
{
    return (size_t)plx_min_u64(PLX_BATCH_BYTES_MAX, segment_bytes(w) - PLX_SEGMENT_HEADER_BYTES -
                                                        plx_store_device_block(w->store));
}

/* Ends the batch at hand (REWRITE-2). A batch never reaches the very end of its segment (LOG-3). */
static int write_batch(struct plx_rewrite *w)
{
    uint32_t block = plx_store_device_block(w->store);
    size_t bytes = (size_t)plx_div_up(w->batch_bytes, block) * block;
    struct plx_batch_header header;
    int error = 0;

    if (segment_bytes(w) - w->pos % segment_bytes(w) < bytes + block)
        error = next_segment(w);
    if (!error && (w->pos + bytes > w->to.pos || w->seq > w->to.batch_seq))
        error = PLX_REWRITE_FULL;
    if (error)
        return error;
    header = (struct plx_batch_header){
        .seq = w->seq,
        .vdi = plx_format_vdi_word(&w->reader->record->id),
        .epoch = w->epoch,
        .time_ns = w->time_ns,
        .prev_hash = w->hash,
        .durable_seq = w->from.batch_seq,
        .bytes = (uint32_t)bytes,
        .records = w->records,
    };
    if (w->batch_snapshot)
        w->last_snapshot = (struct plx_log_cursor){.pos = w->pos, .seq = w->seq, .hash = w->hash};
    memset(w->batch + w->batch_bytes, 0, bytes - w->batch_bytes);
    w->hash = plx_format_batch_encode(&header, w->batch);
    memcpy(w->segment + w->pos % segment_bytes(w), w->batch, bytes);
    w->pos += bytes;
    w->seq++;
    w->written += bytes;
    w->batch_bytes = PLX_BATCH_HEADER_BYTES;
    w->records = 0;
    w->batch_snapshot = false;
    return 0;
}

int plx_rewrite_room(struct plx_rewrite *w, size_t bytes, void **ret_room)
{
    int error = 0;

    if (w->batch_bytes + bytes > batch_bytes_max(w))
        error = write_batch(w);
    if (error)
        return error;
    if (!w->records) {
        w->batch_snap_seq = w->snap_seq;
        w->batch_ns = w->time_ns;
        w->batch_keyframe = w->keyframe;
    }
    *ret_room = w->batch + w->batch_bytes;
    w->batch_bytes += bytes;
    w->records++;
    return 0;
}

int plx_rewrite_snapshot(struct plx_rewrite *w, uint64_t seq, uint64_t time_ns)
{
    void *room;
    int error = plx_rewrite_room(w, plx_record_bytes(PLX_RECORD_SNAPSHOT, 0), &room);

    if (error)
        return error;
    plx_record_put_snapshot(room, seq, time_ns);
    w->snap_seq = seq;
    w->time_ns = time_ns;
    w->batch_snapshot = true;
    return 0;
}

int plx_rewrite_place(struct plx_rewrite *w, struct plx_keyframe *keyframe)
{
    int error = write_batch(w); /* the key frame includes all records so far; REWRITE-7 */

    keyframe->pos = w->pos;
    keyframe->batch_seq = w->seq - 1;
    keyframe->prev_hash = w->hash;
    return error;
}

int plx_rewrite_announce(struct plx_rewrite *w, const struct plx_keyframe *keyframe)
{
    void *room;
    int error = plx_rewrite_room(w, plx_record_bytes(PLX_RECORD_KEYFRAME, 0), &room);

    if (error)
        return error;
    plx_record_put_keyframe(room, keyframe, true);
    w->keyframe = *keyframe;
    w->snap_seq = plx_max_u64(w->snap_seq, keyframe->snap_seq);
    return 0;
}

/* ---- Beginning and end ---- */

/* Fills the new copy of the segment of `from` up to `from` (REWRITE-3). */
static int begin_segment(struct plx_rewrite *w)
{
    struct plx_log_reader *old = &w->copier;
    int error = place(w, w->number, &w->addr);

    if (!error)
        error = plx_log_reader_seek_segment(old, w->number, w->fault);
    if (error)
        return error;
    if (!w->first)
        w->keyframe = old->header.keyframe;
    w->header = header_here(w);
    if (w->first || old->cursor.pos >= w->pos)
        return 0;
    w->header = old->header;
    error = copy_batches(w, w->number, w->pos, w->segment);
    if (!error && (old->cursor.pos != w->pos || old->cursor.hash != w->hash))
        error = failed(w, w->number, PLX_ERR_CORRUPT);
    return error;
}

int plx_rewrite_begin(struct plx_rewrite *w)
{
    size_t bytes = (size_t)segment_bytes(w);
    int error;

    if (w->to.pos % bytes && w->to.pos / bytes >= w->limit)
        return PLX_REWRITE_OPEN; /* REWRITE-4 */
    error = plx_log_reader_of(w->store, w->reader->record, w->reader->segments, w->reader->count,
                              &w->copier, w->fault);

    if (error)
        return error;
    w->copier.shelf = w->reader->shelf;
    w->memory = aligned_alloc(PLX_BLOCK_SIZE, 2 * bytes + PLX_BATCH_BYTES_MAX);
    if (!w->memory)
        return plx_fault_set(w->fault, PLX_ERR_NOMEM, "out of memory");
    memset(w->memory, 0, bytes);
    w->segment = w->memory;
    w->batch = w->memory + 2 * bytes;
    w->batch_bytes = PLX_BATCH_HEADER_BYTES;
    w->number = w->from.pos / bytes;
    w->pos = w->from.pos % bytes ? w->from.pos : w->from.pos + PLX_SEGMENT_HEADER_BYTES;
    w->seq = w->from.batch_seq + 1;
    w->hash = w->from.prev_hash;
    w->snap_seq = w->from.snap_seq;
    w->time_ns = w->from.time_ns;
    w->keyframe = w->from;
    return begin_segment(w);
}

static int write_skip(struct plx_rewrite *w)
{
    void *room;
    int error = write_batch(w); /* a SKIP record is alone in its batch */

    if (!error)
        error = plx_rewrite_room(w, plx_record_bytes(PLX_RECORD_SKIP, 0), &room);
    if (error)
        return error;
    plx_record_put_skip(room, &w->to);
    return write_batch(w);
}

/* Copies the batches behind `to` in its segment (REWRITE-3). */
static int copy_behind(struct plx_rewrite *w, uint64_t number, uint8_t *segment)
{
    plx_log_reader_seek(&w->copier, &w->to);
    return copy_batches(w, number, UINT64_MAX, segment);
}

/* Copies the segment of `to`, if no new batch lies in it. */
static int copy_last(struct plx_rewrite *w, uint64_t number)
{
    uint8_t *segment = w->segment + segment_bytes(w);
    struct plx_segment_header old;
    uint64_t addr;
    int error = place(w, number, &addr);

    if (!error)
        error = plx_log_reader_seek_segment(&w->copier, number, w->fault);
    if (error)
        return error;
    old = w->copier.header;
    w->number = number;
    w->pos = w->to.pos;
    w->seq = w->to.batch_seq + 1;
    w->hash = w->to.prev_hash;
    w->snap_seq = w->to.snap_seq;
    w->header = header_here(w);
    w->header.epoch = old.epoch;
    w->header.time_ns = old.time_ns;
    w->header.next_addr = old.next_addr;
    memset(segment, 0, (size_t)segment_bytes(w));
    error = copy_behind(w, number, segment);
    return error ? error : write_segment(w, addr, &w->header, segment);
}

/* Completes the segment of `to`, if the last new batch lies in it, too. */
static int complete_last(struct plx_rewrite *w)
{
    int error = plx_log_reader_seek_segment(&w->copier, w->number, w->fault);

    if (error)
        return error;
    w->header.next_addr = w->copier.header.next_addr;
    error = copy_behind(w, w->number, w->segment);
    return error ? error : write_segment(w, w->addr, &w->header, w->segment);
}

/* The last new batch lies in a segment before that of `to`: no segment is left in between. */
static int leave_gap(struct plx_rewrite *w, uint64_t last)
{
    int error = write_segment(w, w->addr, &w->header, w->segment);

    for (uint64_t n = w->number + 1; n < last && !error; n++)
        if (is_there(w, n))
            error = push_move(w, n, 0);
    return !error && w->to.pos % segment_bytes(w) ? copy_last(w, last) : error;
}

/* Copies a segment behind `to`, with a header that names the last key frame announced (REWRITE-4).
 */
static int copy_stale_one(struct plx_rewrite *w, uint64_t number)
{
    uint8_t *segment = w->segment + segment_bytes(w);
    struct plx_segment_header header = w->copier.header;
    uint64_t addr;
    int error = place(w, number, &addr);

    header.keyframe = w->keyframe;
    header.snap_seq = plx_max_u64(header.snap_seq, w->to.snap_seq);
    memset(segment, 0, (size_t)segment_bytes(w));
    if (!error)
        error = copy_batches(w, number, UINT64_MAX, segment);
    return error ? error : write_segment(w, addr, &header, segment);
}

/* From a segment on, copies each one whose header names a key frame before `to` (REWRITE-4). */
static int copy_stale(struct plx_rewrite *w, uint64_t number)
{
    for (;; number++) {
        int error;

        if (!is_there(w, number))
            continue;
        error = plx_log_reader_seek_segment(&w->copier, number, w->fault);
        if (error || w->copier.header.keyframe.pos >= w->to.pos)
            return error;
        error = number == w->limit ? PLX_REWRITE_OPEN : copy_stale_one(w, number);
        if (error)
            return error;
    }
}

int plx_rewrite_end(struct plx_rewrite *w)
{
    uint64_t last = w->to.pos / segment_bytes(w);
    bool begun = w->to.pos % segment_bytes(w) != 0;
    int error = write_skip(w);

    if (!error)
        error = w->number == last ? complete_last(w) : leave_gap(w, last);
    return error ? error : copy_stale(w, begun ? last + 1 : last);
}

void plx_rewrite_done(struct plx_rewrite *w)
{
    plx_log_reader_close(&w->copier);
    free(w->memory);
    free(w->moves);
    w->memory = NULL;
    w->moves = NULL;
    w->move_count = 0;
}
