/* changes.c - when a range of blocks was changed, after the log.
 *
 * C1  The log is read in stretches, the newest first, each forward from the start of a segment: so
 *     whoever wants the newest changes reads no more than it takes.
 * C2  A change is known as exactly as snapshots were taken. A write in place leaves no record, but
 *     its block was mapped by one after the last snapshot before it (INV-3), so the interval
 *     between the two snapshots counts all the same. Voided checksums say nothing more. A rewind
 *     may have changed any range.
 * C3  The log is kept from the oldest snapshot on. What is mapped there was written before, unless
 *     a parent had it. Of all else it is not known whether it was, and that is what is said.
 * Loop: the store's; the reader's reads. Crash story: nothing is written.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/disk/vdi.h"
#include "engine/log/replay.h"

/* A snapshot, and whether the range was changed between it and the one before. */
struct mark {
    uint64_t seq, time_ns;
    bool changed;
};

struct changes {
    struct plx_log_reader reader;
    uint64_t first, end; /* the range */
    /* The stretch being read. */
    uint64_t end_seq; /* the batch it ends before */
    struct mark *marks;
    size_t count, capacity;
    bool changed, no_memory; /* changed: since the last mark */
    /* The interval whose beginning is not found yet. */
    struct plx_range_change open;
    bool open_changed, stopped;
    bool oldest; /* the stretch that was read was the oldest */
    bool (*visit)(void *context, const struct plx_range_change *change);
    void *context;
};

static bool add_mark(struct changes *changes, const struct plx_record *record)
{
    if (changes->count == changes->capacity) {
        size_t capacity = changes->capacity ? 2 * changes->capacity : 256;
        struct mark *bigger = realloc(changes->marks, capacity * sizeof *bigger);

        changes->no_memory = !bigger;
        if (!bigger)
            return false;
        changes->marks = bigger;
        changes->capacity = capacity;
    }
    changes->marks[changes->count++] =
        (struct mark){record->seq, record->time_ns, changes->changed};
    changes->changed = false;
    return true;
}

static bool on_record(void *context, const struct plx_record *record)
{
    struct changes *changes = context;

    if (changes->reader.batch_header.seq >= changes->end_seq)
        return false;
    if (changes->reader.batch_header.seq <= changes->reader.record->oldest.batch_seq)
        return true; /* history begins later */
    switch (record->type) {
    case PLX_RECORD_MAP:
    case PLX_RECORD_UNMAP:
        changes->changed |=
            record->vblock < changes->end && record->vblock + record->count > changes->first;
        return true;
    case PLX_RECORD_REWIND: /* C2 */
        changes->changed = true;
        return true;
    case PLX_RECORD_SNAPSHOT:
        return add_mark(changes, record);
    default:
        return true;
    }
}

/* The interval that is open begins at this snapshot. */
static void close_interval(struct changes *changes, const struct plx_snapshot_info *from)
{
    changes->open.from = *from;
    if (changes->open_changed && !changes->stopped)
        changes->stopped = !changes->visit(changes->context, &changes->open);
    changes->open = (struct plx_range_change){.to = *from};
}

static void tell_stretch(struct changes *changes)
{
    changes->open_changed |= changes->changed;
    for (size_t i = changes->count; i > 0 && !changes->stopped; i--) {
        const struct mark *mark = &changes->marks[i - 1];

        close_interval(changes,
                       &(struct plx_snapshot_info){.seq = mark->seq, .time_ns = mark->time_ns});
        changes->open_changed = mark->changed;
    }
}

/* Reads the stretch from the last segment that begins before snapshot seq, else from the oldest.
 * *ret_before: snapshots before it. */
static int read_stretch(struct changes *changes, uint64_t seq, uint64_t *ret_before,
                        struct plx_fault *fault)
{
    struct plx_log_reader *reader = &changes->reader;
    struct plx_log_cursor start;
    int error = plx_log_reader_seek_snapshot(reader, seq, fault);

    if (error)
        return error;
    start = reader->cursor;
    changes->count = 0;
    changes->changed = false;
    error = plx_log_each_record(reader, on_record, changes, fault);
    if (!error && changes->no_memory)
        error = plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    if (error)
        return error;
    changes->end_seq = start.seq;
    changes->oldest = start.pos / plx_log_segment_bytes(reader->store) == reader->first_segment;
    tell_stretch(changes);
    *ret_before = plx_max_u64(start.snap_seq, reader->record->oldest.snap_seq);
    return 0;
}

static bool stop_at_mapped(void *context, uint64_t offset, uint64_t length, bool mapped)
{
    *(bool *)context |= mapped;
    return !mapped;
}

/* C3: the oldest interval, where no record tells. */
static int ask_map(struct changes *changes, struct plx_fault *fault)
{
    const struct plx_vdi_record *record = changes->reader.record;
    struct plx_vdi *vdi;
    uint64_t first, end;
    bool mapped = false;
    int error =
        plx_snapshot_open(changes->reader.store, record->slot, changes->open.to.seq, &vdi, fault);

    if (error)
        return error;
    end = plx_min_u64(changes->end << PLX_BLOCK_SHIFT, vdi->size_bytes);
    first = plx_min_u64(changes->first << PLX_BLOCK_SHIFT, end);
    if (plx_uuid_is_zero(&record->parent))
        error = plx_vdi_map_runs(vdi, first, end - first, stop_at_mapped, &mapped, fault);
    changes->open.unknown = !mapped;
    changes->open_changed = true;
    plx_vdi_abandon(vdi);
    return error;
}

static int read_all(struct changes *changes, struct plx_fault *fault)
{
    uint64_t before = UINT64_MAX;
    struct plx_snapshot_info from;
    int error = 0;

    while (!error && !changes->stopped && !changes->oldest) /* C1 */
        error = read_stretch(changes, before, &before, fault);
    if (error == PLX_ERR_NOT_FOUND) { /* an empty log: all is in the key frame */
        before = changes->reader.record->keyframe.snap_seq;
        error = 0;
    }
    if (!error && !changes->stopped && changes->reader.record->oldest.batch_seq &&
        !changes->open_changed)
        error = ask_map(changes, fault);
    if (error)
        return error;
    from = (struct plx_snapshot_info){.seq = before,
                                      .time_ns = before ? 0 : changes->reader.record->created_ns};
    close_interval(changes, &from);
    return 0;
}

int plx_range_change_list(struct plx_store *store, uint32_t slot, uint64_t vblock, uint64_t count,
                          bool (*visit)(void *context, const struct plx_range_change *change),
                          void *context, struct plx_fault *fault)
{
    struct changes changes = {.first = vblock,
                              .end = vblock + count,
                              .end_seq = UINT64_MAX,
                              .visit = visit,
                              .context = context};
    struct plx_vdi_record record;
    uint8_t which;
    int error = plx_vdi_record_read(store, slot, &record, &which, fault);

    if (error)
        return error;
    error = plx_log_reader_open(store, &record, &changes.reader, fault);
    if (error)
        return error;
    error = read_all(&changes, fault);
    plx_log_reader_close(&changes.reader);
    free(changes.marks);
    return error;
}
