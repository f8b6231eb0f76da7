/* log.c - a disk's redo log: batches formed, written, made durable, applied; see log.h.
 *
 * The life of a batch. Its state says what has happened; the functions named move it on.
 *
 *    state        reached when                                         moved on by
 *  1 WRITING      form_batch() submitted it; data may be in flight     settle()
 *  2 FLUSHING     log I/O and data completed; a flush is under way     batch_step()
 *  3 WRITTEN      the same, but it must be flushed later               advance(), to FLUSHING
 *  4 SETTLED      the same, and nobody waits for a flush (write-back)  advance(), is applied
 *  5 DURABLE      the flush succeeded                                  advance(), is applied
 *  6 FAILED       log I/O, data or the flush failed                    roll_back()
 *
 * In the ordinary case a batch goes from WRITING to FLUSHING at once. In write-back mode applied
 * batches may be in the device's cache only. So a batch that must be durable goes to WRITTEN: its
 * flush begins when all batches before it are applied, and so covers these, too.
 *
 * LOG-1  Batches are applied and acknowledged in log order. Each one waits for three things: its
 *     log I/O, the data of its items, and a flush that began after both. (In write-back mode only
 *     batches that somebody asked to be durable are flushed.) It also waits for every batch before
 *     it. So whatever was acknowledged as durable survives a crash, along with all before it.
 * LOG-2  The durable mark of a batch (durable_seq) names a batch that was durable, data included,
 *     when this one was formed. So recovery may believe everything up to the newest mark without
 *     looking at data.
 * LOG-3  A batch lies within one segment and never reaches the segment's very end. So a position
 *     at a multiple of the segment size always means a segment that is not begun. A segment's
 *     header is written together with its first batch. The header names the next segment, which is
 *     allocated by then, so a reader can follow the chain.
 * LOG-4  Nothing that succeeded ever follows something that failed. When the log I/O or the data of
 *     a batch fails, no further batch is formed, all batches in flight come to rest, and the log is
 *     written again from the failed batch on. Items that failed keep their place, without records.
 *     They learn of their failure only when the rewritten batch is durable: until then a stale copy
 *     of the first attempt, which names their blocks, could still be believed after a crash.
 * LOG-5  Memory for forming and applying an item is reserved before anything of the item is
 *     submitted: its overlay slots, and a place in the list for the next segment's address. So
 *     neither forming nor applying can fail for want of memory.
 * LOG-6  Items that carry records of a ring are logged in the order of these records, and none is
 *     left out: one whose record does not follow the log's position fails, and keeps its place as
 *     in LOG-4. A batch ends with the position of the last record that is whole in it. So the log
 *     always has just the records up to its position, and perhaps a part of the next one.
 * Loop: the disk's; never blocks.
 * Crash story: a torn or missing batch ends the log. Nothing behind it was acknowledged (LOG-1).
 *   A batch whose data did not reach the store fails its checksums in replay. If a later batch's
 *   mark covers it, replay does not check, for then the data is durable (LOG-2). Leftovers of
 *   batches that were rewritten do not continue the chain of hashes. Leftovers of an older owner
 *   carry an older epoch.
 */
#include "engine/log/log.h"

#include <stdlib.h>
#include <string.h>

#include "engine/log/segments.h"
#include "engine/loop/gather.h"
#include "engine/map/map.h"

#define RETRIES_MAX 3u

enum {
    BATCH_WRITING,
    BATCH_SETTLED,
    BATCH_WRITTEN,
    BATCH_FLUSHING,
    BATCH_DURABLE,
    BATCH_FAILED,
};

static size_t batch_bytes_max(const struct plx_log *log)
{
    return (size_t)plx_min_u64(PLX_BATCH_BYTES_MAX, plx_log_segment_bytes(log->store) -
                                                        PLX_SEGMENT_HEADER_BYTES -
                                                        plx_store_device_block(log->store));
}

static void batch_step(struct plx_task *task);

int plx_log_init(struct plx_log *log, const struct plx_log *of)
{
    size_t room = PLX_BATCH_BYTES_MAX + PLX_SEGMENT_HEADER_BYTES;

    *log = *of;
    log->applied = log->cursor;
    log->durable_seq = log->cursor.seq - 1;
    plx_log_segments_init(log);
    log->memory = aligned_alloc(PLX_BLOCK_SIZE, PLX_BATCHES * room);
    if (!log->memory)
        return PLX_ERR_NOMEM;
    for (unsigned i = 0; i < PLX_BATCHES; i++) {
        struct plx_batch *batch = &log->batches[i];

        batch->log = log;
        batch->task.step = batch_step;
        batch->buffer = log->memory + i * room;
        batch->header = batch->buffer + PLX_BATCH_BYTES_MAX;
    }
    return 0;
}

void plx_log_done(struct plx_log *log)
{
    free(log->memory);
    free(log->segments);
    log->memory = NULL;
    log->segments = NULL;
}

/* ---- Failing for good ---- */

static void unreserve(struct plx_log *log, struct plx_log_item *item)
{
    plx_overlay_unreserve(&log->map->active, item->slots);
    log->changing -= item->slots > 0;
    item->slots = 0;
}

/* The item will fail, but keeps its place: it has no records any more. */
static void lose_records(struct plx_log *log, struct plx_log_item *item)
{
    unreserve(log, item);
    item->failed = true;
    item->changes = false;
    item->bytes = 0;
}

/* Fails an item that is in no batch. */
static void fail_item(struct plx_log *log, struct plx_log_item *item, int error)
{
    unreserve(log, item);
    item->task->error = error;
    plx_task_ready(log->store, item->task);
}

void plx_log_stop(struct plx_log *log, int error, int cause)
{
    struct plx_log_item *items = log->head;

    if (!log->sticky) {
        log->sticky = error;
        log->cause = cause;
    }
    log->head = log->tail = NULL;
    while (items) {
        struct plx_log_item *next = items->next;

        fail_item(log, items, log->sticky);
        items = next;
    }
}

void plx_log_fail(struct plx_log *log, int cause)
{
    plx_log_stop(log, plx_error_class(cause) == PLX_CLASS_FENCED ? PLX_ERR_FENCED : PLX_ERR_STICKY,
                 cause);
    plx_store_event(log->store, log->sticky,
                    "virtual disk %s: its log cannot be written (%s); it is stopped until it is "
                    "opened again",
                    log->record->name, plx_error_text(cause));
}

/* ---- Forming ---- */

int plx_log_reserve(struct plx_log *log, struct plx_log_item *item)
{
    item->flush_mark = plx_flush_mark(log->store);
    if (item->slots && !plx_overlay_reserve(&log->map->active, item->slots))
        return PLX_ERR_NOMEM;
    log->changing += item->slots > 0;
    return 0;
}

/* false: the log has stopped or ended, and the item failed at once. */
static bool take_in(struct plx_log *log, struct plx_log_item *item)
{
    int error = log->sticky ? log->sticky : log->ended ? PLX_ERR_BUSY : 0;

    item->next = NULL;
    item->batch = NULL;
    if (error)
        fail_item(log, item, error);
    return !error;
}

void plx_log_append(struct plx_log *log, struct plx_log_item *item)
{
    if (!take_in(log, item))
        return;
    if (log->tail)
        log->tail->next = item;
    else
        log->head = item;
    log->tail = item;
}

void plx_log_prepend(struct plx_log *log, struct plx_log_item *item)
{
    if (!take_in(log, item))
        return;
    item->next = log->head;
    log->head = item;
    if (!log->tail)
        log->tail = item;
}

/* Begins the next segment; its header is written together with this batch (LOG-3). false: there is
 * no spare segment. */
static bool begin_segment(struct plx_log *log, struct plx_batch *batch)
{
    struct plx_log_cursor *cursor = &log->cursor;
    uint64_t bytes = plx_log_segment_bytes(log->store);
    bool fresh = cursor->pos % bytes == 0;
    struct plx_segment_header header;

    if (!fresh) { /* on to the next one */
        plx_log_want_spare(log);
        if (!log->spare_addr)
            return false;
        plx_log_segments_push(log, log->spare_addr);
        cursor->pos = (cursor->pos / bytes + 1) * bytes;
        cursor->addr = cursor->next_addr;
        cursor->next_addr = log->spare_addr;
        log->spare_addr = 0;
        plx_log_want_spare(log);
    }
    header = (struct plx_segment_header){
        .vdi = log->record->id,
        .epoch = log->record->epoch,
        .segment = cursor->pos / bytes,
        .next_addr = cursor->next_addr,
        .first_batch = cursor->seq,
        .prev_hash = cursor->hash,
        .snap_seq = cursor->snap_seq,
        .time_ns = plx_env_now_ns(log->store->env),
        .keyframe = log->record->keyframe,
        .start = PLX_SEGMENT_HEADER_BYTES,
    };
    plx_format_segment_encode(&log->store->info.id, &header, batch->header);
    batch->header_iov = (struct iovec){batch->header, PLX_SEGMENT_HEADER_BYTES};
    plx_store_xfer(log->store, &batch->header_xfer, PLX_IO_WRITE, PLX_KIND_LOG, cursor->addr, 0,
                   PLX_SEGMENT_HEADER_BYTES, &batch->header_iov, 1, &batch->join);
    cursor->pos += PLX_SEGMENT_HEADER_BYTES;
    return true;
}

/* ---- Automatic snapshots (protect.h) ---- */

/* The bytes of an item's records, of the automatic snapshot that may follow them, and of the
 * position that may end the batch. changes, carries: an item before it in the batch changes
 * something, so a snapshot will end the batch; or was carried. */
static inline size_t item_bytes(const struct plx_log *log, const struct plx_log_item *item,
                                bool changes, bool carries)
{
    bool followed = (item->changes && log->snapshots != PLX_PROTECT_OFF) ||
                    (changes && log->snapshots == PLX_PROTECT_BATCH);

    return item->bytes + (followed ? plx_record_bytes(PLX_RECORD_SNAPSHOT, 0) : 0) +
           (carries || item->carried.seq ? plx_record_bytes(PLX_RECORD_RING, 0) : 0);
}

/* Logs an automatic snapshot behind an item. It sees all that was logged before it. Nothing is
 * written in place meanwhile (PROTECT-3), so it needs to wait for no write: it is whole when its
 * batch is durable. */
static size_t put_snapshot(struct plx_log *log, struct plx_batch *batch, struct plx_log_item *item,
                           size_t at, uint32_t *records)
{
    size_t bytes;

    ++*records;
    log->map->gen_submitted++;
    item->snapshot_seq = ++log->cursor.snap_seq;
    item->snapshot_ns = log->snapshot_ns =
        log->disk->snapshot_ordered(log->vdi, item->snapshot_seq, log->head != NULL);
    bytes = plx_record_put_snapshot(batch->buffer + at, item->snapshot_seq, item->snapshot_ns);
    batch->snapshot_bytes += bytes;
    return bytes;
}

/* Undoes put_snapshot(): the item's batch is formed again, or never. */
static void take_back_snapshot(struct plx_log *log, struct plx_log_item *item)
{
    if (!item->snapshot_seq)
        return;
    log->map->gen_submitted--;
    log->disk->snapshot_dropped(log->vdi, item->snapshot_seq, item->snapshot_ns);
    item->snapshot_seq = 0;
}

static void apply_snapshot(struct plx_log *log, const struct plx_log_item *item, bool durable)
{
    if (!item->snapshot_seq)
        return;
    PLX_ASSERT(item->snapshot_seq == log->map->gen + 1);
    plx_map_apply_snapshot(log->map, item->snapshot_seq);
    log->store->counters.snapshots++;
    log->disk->snapshot_taken(log->vdi, item->snapshot_seq, item->snapshot_ns, durable);
}

/* LOG-6. An item in a batch that is formed again has failed, or its turn may have passed. */
static inline void keep_order(struct plx_log *log, struct plx_log_item *item)
{
    if (!item->carried.seq || item->failed)
        return;
    if (item->carried.seq != log->cursor.ring.seq + 1) {
        item->data_error = PLX_ERR_BUSY;
        lose_records(log, item);
    } else if (item->whole) {
        log->cursor.ring = item->carried;
    }
}

/* Moves items into the batch's buffer while they fit; returns the bytes used. */
static size_t take_items(struct plx_log *log, struct plx_batch *batch, size_t room,
                         uint32_t *ret_records)
{
    size_t bytes = PLX_BATCH_HEADER_BYTES;
    bool changes = false, carries = false;

    *ret_records = 0;
    while (log->head && bytes + item_bytes(log, log->head, changes, carries) <= room) {
        struct plx_log_item *item = log->head;
        size_t used;

        log->head = item->next;
        if (!log->head)
            log->tail = NULL;
        item->next = NULL;
        if (batch->last_item)
            batch->last_item->next = item;
        else
            batch->items = item;
        batch->last_item = item;
        item->batch = batch;
        batch->unsettled += item->data_pending > 0;
        batch->needs_durable = batch->needs_durable || item->needs_durable;
        batch->flush_mark = plx_flush_mark_older(batch->flush_mark, item->flush_mark);
        keep_order(log, item);
        carries = carries || item->carried.seq;
        used = item->failed ? 0 : item->ops->encode(item, batch->buffer + bytes, ret_records);
        PLX_ASSERT(used <= item->bytes);
        bytes += used;
        changes = changes || item->changes;
        batch->snapshot_bytes += item->patient ? used : 0;
        if (item->changes && log->snapshots == PLX_PROTECT_WRITE)
            bytes += put_snapshot(log, batch, item, bytes, ret_records);
    }
    if (changes && log->snapshots == PLX_PROTECT_BATCH)
        bytes += put_snapshot(log, batch, batch->last_item, bytes, ret_records);
    if (log->cursor.ring.seq != batch->before.ring.seq) {
        bytes += plx_record_put_ring(batch->buffer + bytes, &log->cursor.ring);
        ++*ret_records;
    }
    PLX_ASSERT(bytes <= room);
    return bytes;
}

static void submit_batch(struct plx_log *log, struct plx_batch *batch, size_t bytes,
                         uint32_t records)
{
    uint32_t block = plx_store_device_block(log->store);
    struct plx_batch_header header = {
        .seq = log->cursor.seq,
        .vdi = plx_format_vdi_word(&log->record->id),
        .epoch = log->record->epoch,
        .time_ns = plx_env_now_ns(log->store->env),
        .prev_hash = log->cursor.hash,
        .durable_seq = log->durable_seq, /* LOG-2 */
        .bytes = (uint32_t)(plx_div_up(bytes, block) * block),
        .records = records,
    };
    uint64_t offset = log->cursor.pos % plx_log_segment_bytes(log->store);

    memset(batch->buffer + bytes, 0, header.bytes - bytes);
    log->cursor.hash = plx_format_batch_encode(&header, batch->buffer);
    log->cursor.seq++;
    log->cursor.pos += header.bytes;
    batch->after = log->cursor;
    batch->iov = (struct iovec){batch->buffer, header.bytes};
    plx_store_xfer(log->store, &batch->xfer, PLX_IO_WRITE, PLX_KIND_LOG, log->cursor.addr, offset,
                   header.bytes, &batch->iov, 1, &batch->join);
    log->bytes_since_keyframe += header.bytes;
    log->store->counters.batches++;
    log->store->counters.batch_records += records;
    log->store->counters.batch_bytes += header.bytes;
    bytes -= batch->snapshot_bytes;
    log->store->counters.snapshot_bytes +=
        header.bytes - (bytes > PLX_BATCH_HEADER_BYTES ? plx_div_up(bytes, block) * block : 0);
}

/* Forms one batch from the items that wait; false: none can be formed now. */
static bool form_batch(struct plx_log *log)
{
    struct plx_batch *batch = &log->batches[(log->first_batch + log->batch_count) % PLX_BATCHES];
    uint64_t segment_bytes = plx_log_segment_bytes(log->store), offset, left;
    uint32_t block = plx_store_device_block(log->store), records;
    size_t bytes, least;

    batch->items = batch->last_item = NULL;
    batch->unsettled = 1; /* the log I/O itself */
    batch->snapshot_bytes = 0;
    batch->flush_mark = plx_flush_mark(log->store);
    batch->needs_durable = batch->covers = false;
    batch->before = log->cursor;
    batch->state = BATCH_WRITING;
    batch->join = (struct plx_join){.task = &batch->task};
    offset = log->cursor.pos % segment_bytes;
    /* LOG-3: one device block at the end of a segment stays unused. */
    left = offset && segment_bytes - offset > block ? segment_bytes - offset - block : 0;
    if (offset % block) /* the log was begun on a device with smaller blocks */
        left = 0;
    if (log->leave_at == log->cursor.pos)
        left = 0;
    least = PLX_BATCH_HEADER_BYTES + item_bytes(log, log->head, false, false);
    if (left < plx_div_up(least, block) * block) {
        if (!begin_segment(log, batch)) {
            struct plx_log_item *item = log->head;

            if (log->spare_waiting) /* an extent is on its way */
                return false;
            if (item->data_pending) /* a snapshot behind it relies on this wait (LONE-1) */
                return false;
            log->head = item->next;
            if (!log->head)
                log->tail = NULL;
            fail_item(log, item, log->spare_error);
            return log->head != NULL;
        }
        left = segment_bytes - PLX_SEGMENT_HEADER_BYTES - block;
    }
    bytes = take_items(log, batch, (size_t)plx_min_u64(left, batch_bytes_max(log)), &records);
    PLX_ASSERT(batch->items);
    log->batch_count++;
    submit_batch(log, batch, bytes, records);
    return true;
}

/* Whether the next batch would hold a snapshot that must wait for a key frame's announcement
 * (KEYFRAME-3). */
static bool snapshot_waits(const struct plx_log *log)
{
    const struct plx_log_item *item = log->head;

    if (!log->disk->holds_snapshots(log->vdi))
        return false;
    while (item && !item->snapshot)
        item = item->next;
    return item || log->snapshots == PLX_PROTECT_BATCH || log->snapshots == PLX_PROTECT_WRITE;
}

/* Group commit: a batch costs one I/O however little is in it. So while several are in flight,
 * another one is formed only when many items wait for it. */
static bool may_form(const struct plx_log *log)
{
    unsigned items = 0;

    if (snapshot_waits(log))
        return false;
    if (log->batch_count < PLX_FEW_TRANSFERS)
        return true;
    for (const struct plx_log_item *item = log->head; item && items < PLX_MANY_WRITES;
         item = item->next)
        items++;
    return log->batch_count < PLX_BATCHES && items == PLX_MANY_WRITES;
}

void plx_log_pump(struct plx_log *log)
{
    /* A flush has failed since, so batches that were acknowledged in write-back mode may be lost.
     * Nothing may be built on them: the log stops. */
    if (log->undurable && !log->sticky && plx_flush_failed_since(log->store, log->flush_mark))
        plx_log_fail(log, log->store->flush_error);
    if (plx_log_has_patience(log) && !log->disk->hurries(log->vdi) &&
        log->store->env->monotonic_ns(log->store->env) < log->patience_ns)
        return;
    while (log->head && !log->failing && !log->sticky && may_form(log))
        if (!form_batch(log))
            break;
}

void plx_log_leave_segment(struct plx_log *log)
{
    log->leave_at = log->cursor.pos;
}

bool plx_log_has_patience(const struct plx_log *log)
{
    return log->head && log->head->patient && log->head == log->tail;
}

uint64_t plx_log_due_ns(const struct plx_log *log)
{
    bool formed = !log->failing && !log->sticky && may_form(log);

    return formed ? log->patience_ns : UINT64_MAX;
}

bool plx_log_idle(const struct plx_log *log)
{
    return !log->head && !log->batch_count;
}

/* ---- Completion ---- */

static void apply_batch(struct plx_log *log, struct plx_batch *batch)
{
    struct plx_log_item *item = batch->items;

    while (item) {
        struct plx_log_item *next = item->next;

        unreserve(log, item);
        if (!item->failed)
            item->ops->apply(item);
        apply_snapshot(log, item, batch->state == BATCH_DURABLE);
        item->task->error = item->data_error;
        plx_task_ready(log->store, item->task);
        item = next;
    }
    log->applied = batch->after;
    if (batch->state == BATCH_SETTLED && !log->undurable) {
        log->undurable = true;
        log->flush_mark = batch->flush_mark;
    }
    if (batch->state == BATCH_DURABLE) {
        log->durable_seq = batch->after.seq - 1;
        log->undurable = false;
    }
    log->retries = 0;
    log->first_batch = (log->first_batch + 1) % PLX_BATCHES;
    log->batch_count--;
}

/* Puts the items of all batches in flight, from the first failed one on, back to the front of the
 * queue, so that they are logged again. Items that failed lose their records (LOG-4). */
static void roll_back(struct plx_log *log)
{
    struct plx_log_item *kept = NULL, **link = &kept, *last = NULL;
    struct plx_batch *first = &log->batches[log->first_batch];
    int cause = 0;

    for (unsigned i = 0; i < log->batch_count; i++) {
        struct plx_batch *batch = &log->batches[(log->first_batch + i) % PLX_BATCHES];

        cause = cause ? cause : batch->join.error;
        *link = batch->items;
        for (; *link; link = &last->next) {
            last = *link;
            last->batch = NULL;
            take_back_snapshot(log, last);
            if (last->data_error)
                lose_records(log, last);
        }
    }
    if (kept) {
        last->next = log->head;
        if (!log->head)
            log->tail = last;
        log->head = kept;
    }
    /* Segments that were begun since then count as unbegun. A stale header may still name the last
     * of them, so no one else may have it: it becomes this log's spare, or leaks until a collection
     * finds it. */
    while (log->cursor.addr != first->before.addr) {
        if (!log->spare_addr)
            log->spare_addr = log->cursor.next_addr;
        log->spare_error = 0;
        log->segment_count--;
        log->cursor.next_addr = log->cursor.addr;
        log->cursor.addr = log->segments[log->segment_count - 2];
    }
    log->cursor = first->before;
    log->batch_count = 0;
    log->failing = false;
    if (log->sticky) /* the log stopped meanwhile: the items fail, too */
        plx_log_stop(log, log->sticky, log->cause);
    else if (cause && (++log->retries > RETRIES_MAX || plx_error_class(cause) == PLX_CLASS_FENCED))
        plx_log_fail(log, cause);
}

static void advance(struct plx_log *log)
{
    while (log->batch_count) {
        struct plx_batch *batch = &log->batches[log->first_batch];

        /* The batch was flushed, but before an earlier one had completed, which was then applied
         * without a flush (write-back). The mark would claim both: so another flush follows. */
        if (batch->state == BATCH_DURABLE && log->undurable && !batch->covers)
            batch->state = BATCH_WRITTEN;
        if (batch->state == BATCH_WRITTEN) {
            batch->state = BATCH_FLUSHING;
            batch->covers = true;
            plx_store_flush(log->store, &batch->task,
                            log->undurable
                                ? plx_flush_mark_older(log->flush_mark, batch->flush_mark)
                                : batch->flush_mark);
        }
        if (batch->state != BATCH_DURABLE && batch->state != BATCH_SETTLED)
            break;
        apply_batch(log, batch); /* LOG-1 */
    }
    if (!log->failing || !log->batch_count)
        return;
    for (unsigned i = 0; i < log->batch_count; i++) {
        int state = log->batches[(log->first_batch + i) % PLX_BATCHES].state;

        if (state == BATCH_WRITING || state == BATCH_FLUSHING)
            return; /* LOG-4: roll back only when nothing is in flight any more */
    }
    roll_back(log);
}

static int batch_error(const struct plx_batch *batch)
{
    if (batch->join.error)
        return batch->join.error;
    for (const struct plx_log_item *item = batch->items; item; item = item->next)
        if (item->data_error && !item->failed)
            return item->data_error;
    return 0;
}

/* The log I/O, or the data of one item, has completed. */
static void settle(struct plx_batch *batch)
{
    struct plx_log *log = batch->log;

    if (--batch->unsettled)
        return;
    if (batch_error(batch)) {
        batch->state = BATCH_FAILED;
        log->failing = true;
    } else if (!log->write_back && !log->undurable) {
        batch->state = BATCH_FLUSHING;
        plx_store_flush(log->store, &batch->task, batch->flush_mark);
    } else {
        batch->state = !log->write_back || batch->needs_durable ? BATCH_WRITTEN : BATCH_SETTLED;
    }
    advance(log);
}

static void batch_step(struct plx_task *task)
{
    struct plx_batch *batch = PLX_CONTAINER(task, struct plx_batch, task);

    switch (batch->state) {
    case BATCH_WRITING: /* the log I/O has completed */
        settle(batch);
        return;
    case BATCH_FLUSHING:
        if (task->error) {
            /* The device's cache may have lost the data, too. Writing the log again would not bring
             * it back, so there is no retry: the log stops. */
            batch->join.error = task->error;
            batch->state = BATCH_FAILED;
            batch->log->failing = true;
            batch->log->retries = RETRIES_MAX;
        } else {
            batch->state = BATCH_DURABLE;
        }
        advance(batch->log);
        return;
    }
}

void plx_log_data_done(struct plx_log *log, struct plx_log_item *item, int error)
{
    struct plx_batch *batch = item->batch;

    PLX_ASSERT(item->data_pending > 0);
    if (error && !item->data_error)
        item->data_error = error;
    if (--item->data_pending == 0 && batch)
        settle(batch);
}
