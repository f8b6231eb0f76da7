/* segments.c - a log's segments: the retained ones, ordered by number, and a spare one. See
 * segments.h and log.h.
 *
 * The spare segment is allocated ahead of need. So when a batch begins a segment, the header that
 * is written with it can name the segment after it (LOG-3).
 * Loop: the disk's. plx_log_ensure_segments() is synchronous; nothing else blocks.
 * Crash story: a spare segment that no header names is a leak, which a collection finds. A retained
 *   segment is freed only after a record is durable that does not need it any more.
 */
#include "engine/base/list.h"
#include "engine/log/segments.h"

#include <stdlib.h>
#include <string.h>

uint64_t plx_log_segment_of(const struct plx_log *log, uint64_t pos)
{
    return pos / plx_log_segment_bytes(log->store);
}

/* Makes room for one more address; false: out of memory. */
static bool segments_reserve(struct plx_log *log)
{
    return PLX_LIST_ROOM(log->segments, log->segment_count, log->segment_capacity, 16);
}

void plx_log_segments_push(struct plx_log *log, uint64_t addr)
{
    PLX_ASSERT(log->segment_count < log->segment_capacity);
    log->segments[log->segment_count++] = addr;
}

void plx_log_want_spare(struct plx_log *log)
{
    int error;

    if (log->spare_addr || log->spare_waiting)
        return;
    /* The spare segment gets its place in the list now, so going on in it cannot fail (LOG-5). */
    if (!segments_reserve(log))
        error = PLX_ERR_NOMEM;
    else
        error = log->disk->room(log->vdi, log->store->info.segment_blocks, &log->spare_task,
                                &log->spare_waits);
    if (!error)
        error = plx_alloc_segment(log->store, &log->spare_task, &log->spare_addr);
    log->spare_waiting = error == PLX_WAIT;
    log->spare_waits = log->spare_waiting ? log->spare_waits : 0;
    log->spare_error = log->spare_waiting ? 0 : error;
}

static void spare_step(struct plx_task *task)
{
    struct plx_log *log = PLX_CONTAINER(task, struct plx_log, spare_task);

    log->spare_waiting = false;
    plx_log_want_spare(log);
}

void plx_log_segments_init(struct plx_log *log)
{
    log->segment_capacity = log->segment_count;
    log->spare_task.step = spare_step;
}

int plx_log_room(struct plx_log *log)
{
    plx_log_want_spare(log);
    return log->spare_error;
}

/* Allocates a segment and appends it to the list. */
static int segment_sync(struct plx_log *log, uint64_t *ret_addr)
{
    int error =
        segments_reserve(log) ? plx_alloc_segment_sync(log->store, ret_addr) : PLX_ERR_NOMEM;

    if (!error)
        plx_log_segments_push(log, *ret_addr);
    return error;
}

int plx_log_ensure_segments(struct plx_log *log)
{
    int error = 0;

    if (!log->cursor.addr)
        error = segment_sync(log, &log->cursor.addr);
    if (!error && !log->cursor.next_addr)
        error = segment_sync(log, &log->cursor.next_addr);
    log->applied = log->cursor;
    if (!error)
        plx_log_want_spare(log);
    return error;
}

static void segment_dies(const struct plx_log *log, uint64_t addr, struct plx_deaths *freed)
{
    for (uint64_t b = 0; addr && b < log->store->info.segment_blocks; b++)
        plx_deaths_add(freed, addr + b);
}

void plx_log_move(struct plx_log *log, uint64_t segment, uint64_t addr, struct plx_deaths *freed)
{
    uint64_t *place = &log->segments[segment - log->first_segment];

    segment_dies(log, *place, freed);
    *place = addr;
}

void plx_log_trim(struct plx_log *log, uint64_t pos, struct plx_deaths *freed)
{
    uint64_t keep = plx_log_segment_of(log, pos);
    size_t count = (size_t)plx_min_u64(keep - log->first_segment, log->segment_count);

    for (size_t i = 0; i < count; i++)
        segment_dies(log, log->segments[i], freed);
    memmove(log->segments, log->segments + count,
            (log->segment_count - count) * sizeof *log->segments);
    log->segment_count -= count;
    log->first_segment = keep;
}
