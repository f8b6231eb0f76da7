/* changes.c - between which snapshots a range of blocks was changed: plx_range_change_list() of
 * engine_history.h, from the newest interval to the oldest.
 *
 * An interval lies between two snapshots that follow each other; the newest one lasts from the last
 * snapshot to the present. What the log says of the range in one interval:
 *
 *  last record that touches the range   sign          the range changed
 *  none                                 SIGN_NONE     no
 *  MAP                                  SIGN_WRITTEN  yes
 *  UNMAP, or a rewind in the interval   SIGN_PERHAPS  if the maps of the two snapshots differ
 *
 * CHANGES-1  The log is read in stretches, newest first, each forward from the start of a segment.
 *     So a caller who wants only the newest changes reads only as much log as that takes.
 * CHANGES-2  A change is known to lie between two snapshots, never more exactly. A write in place
 *     leaves no record, but its block was mapped by a MAP record after the last snapshot (INV-3),
 *     so the interval is right all the same. VOID records are passed over, since they add nothing.
 * CHANGES-3  The last record that touches the range decides. A block that a MAP record maps lies
 *     where no earlier snapshot has it, so the two snapshots differ. An UNMAP record may name
 *     blocks that were absent before, or that were written in the same interval. A rewind may
 *     change any range or leave it as it was. In these cases the two maps are compared (diff.c).
 * CHANGES-4  Rewinds are also taken from the disk's record. The log may lack the REWIND record,
 *     because it was rewritten without it (RECLAIM-10), or because the rewind is not yet announced.
 * CHANGES-5  The log begins at the oldest kept snapshot. For the interval before that snapshot, its
 *     map is compared with what the disk began with: a range that differs was changed. A range that
 *     is equal may still have been changed and changed back. If snapshots of that time are gone,
 *     the answer is therefore "unknown".
 * CHANGES-6  The disk may be open elsewhere and move on. Batches form a chain (REPLAY-1), so a
 *     stretch is whole if it reaches what was told before it. Where the log ends instead, or looks
 *     damaged, the record must be unchanged (RECORD-2). Otherwise the log is read again, from the
 *     beginning of the last interval that was told. If that snapshot is gone by then, the next one
 *     that is left takes its place, so a change may be told twice, but none is missed.
 *
 * Loop: the store's; it runs while the log and nodes are read.
 * Crash story: nothing is written.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/list.h"
#include "engine/disk/vdi.h"
#include "engine/history/diff.h"
#include "engine/log/replay.h"

/* What the last record of the interval that touches the range says (CHANGES-3). */
enum sign {
    SIGN_NONE,
    SIGN_WRITTEN,
    SIGN_PERHAPS, /* the two maps are compared */
};

/* A snapshot, and what the log says of the interval that ends with it. */
struct mark {
    uint64_t seq, time_ns;
    enum sign sign;
};

struct changes {
    struct plx_reading reading;
    struct plx_log_reader reader;
    uint64_t first, end; /* the range */
    /* The stretch being read. */
    uint64_t end_seq; /* batches from this one on belong to a stretch that was read before */
    struct mark *marks;
    size_t count, capacity;
    enum sign sign; /* since the last mark */
    bool no_memory;
    /* Indexes into the record's table of rewinds (CHANGES-4): the next one to be met in this
     * stretch, and the first one that later stretches have accounted for. */
    uint32_t rewind, rewinds;
    /* The interval whose end was read and whose beginning was not. */
    struct plx_range_change open;
    enum sign open_sign;
    uint64_t until; /* the snapshot that ends it; UINT64_MAX: none, it ends with the state now */
    bool stopped;
    bool whole;  /* the stretch that was read reaches what was told before it */
    bool oldest; /* it was the oldest */
    bool (*visit)(void *context, const struct plx_range_change *change);
    void *context;
};

static bool add_mark(struct changes *changes, const struct plx_record *record)
{
    changes->no_memory = !PLX_LIST_ROOM(changes->marks, changes->count, changes->capacity, 256);
    if (changes->no_memory)
        return false;
    changes->marks[changes->count++] = (struct mark){record->seq, record->time_ns, changes->sign};
    changes->sign = SIGN_NONE;
    return true;
}

/* CHANGES-4: accounts for the rewinds before a log position. */
static void pass_rewinds(struct changes *changes, uint64_t pos)
{
    while (changes->rewind < changes->rewinds &&
           changes->reader.record->rewind[changes->rewind].pos < pos) {
        changes->sign = SIGN_PERHAPS;
        changes->rewind++;
    }
}

static bool is_in_range(const struct changes *changes, const struct plx_record *record)
{
    return record->vblock < changes->end && record->vblock + record->count > changes->first;
}

/* CHANGES-6: what follows was told before the log was read again. */
static bool end_here(struct changes *changes, const struct plx_record *record)
{
    changes->open.to = (struct plx_snapshot_info){.seq = record->seq, .time_ns = record->time_ns};
    changes->end_seq = changes->reader.cursor.seq;
    changes->rewinds = changes->rewind;
    return false;
}

static bool on_record(void *context, const struct plx_record *record)
{
    struct changes *changes = context;

    if (changes->reader.batch_header.seq >= changes->end_seq)
        return false;
    if (changes->reader.batch_header.seq <= changes->reader.record->oldest.batch_seq)
        return true; /* the batch lies before the beginning of history */
    pass_rewinds(changes, changes->reader.cursor.pos);
    switch (record->type) {
    case PLX_RECORD_MAP:
        changes->sign = is_in_range(changes, record) ? SIGN_WRITTEN : changes->sign;
        return true;
    case PLX_RECORD_UNMAP:
        changes->sign = is_in_range(changes, record) ? SIGN_PERHAPS : changes->sign;
        return true;
    case PLX_RECORD_REWIND: /* the VDI record in memory may be older than this rewind */
        changes->sign = SIGN_PERHAPS;
        return true;
    case PLX_RECORD_SNAPSHOT:
        return record->seq < changes->until ? add_mark(changes, record) : end_here(changes, record);
    default: /* CHANGES-2 */
        return true;
    }
}

/* Compares the range in the snapshot that ends the open interval with the range in `from`. */
static int ask_map(struct changes *changes, const struct plx_map *from, bool *ret_differs,
                   struct plx_fault *fault)
{
    struct plx_store *store = changes->reader.store;
    struct plx_vdi *to;
    int error =
        plx_snapshot_open(store, changes->reader.record->slot, changes->open.to.seq, &to, fault);

    if (error)
        return error;
    error = plx_diff_any(from, to, changes->first, changes->end, ret_differs, fault);
    plx_vdi_abandon(to);
    return error;
}

/* CHANGES-5: compares with what the disk began with: its origin's tree, or nothing. */
static int ask_since_creation(struct changes *changes, bool *ret_differs, struct plx_fault *fault)
{
    const struct plx_vdi_record *record = changes->reader.record;
    const struct plx_base origin = {.root = record->origin_root, .levels = record->origin_levels};
    struct plx_map began;
    int error;

    if (!origin.levels)
        return ask_map(changes, NULL, ret_differs, fault);
    plx_map_init(&began, changes->reader.store, &origin);
    error = ask_map(changes, &began, ret_differs, fault);
    plx_map_done(&began);
    return error;
}

static int ask_since_snapshot(struct changes *changes, bool *ret_differs, struct plx_fault *fault)
{
    struct plx_vdi *from;
    int error = plx_snapshot_open(changes->reader.store, changes->reader.record->slot,
                                  changes->open.from.seq, &from, fault);

    if (error)
        return error;
    error = ask_map(changes, &from->map, ret_differs, fault);
    plx_vdi_abandon(from);
    return error;
}

/* Whether the caller is told of the open interval (CHANGES-3, CHANGES-5). */
static int judge(struct changes *changes, bool *ret_told, struct plx_fault *fault)
{
    const struct plx_keyframe *begins = &changes->reader.record->oldest;
    bool oldest = !changes->open.from.seq;
    bool logged = !oldest || !begins->batch_seq, forgotten = oldest && begins->snap_seq;
    int error;

    *ret_told = changes->open_sign == SIGN_WRITTEN;
    if (*ret_told || (changes->open_sign == SIGN_NONE && logged))
        return 0;
    error = oldest ? ask_since_creation(changes, ret_told, fault)
                   : ask_since_snapshot(changes, ret_told, fault);
    changes->open.unknown = forgotten && !*ret_told;
    *ret_told |= forgotten;
    return error;
}

/* The open interval begins at this snapshot: tells of it and opens the one before. */
static int close_interval(struct changes *changes, const struct plx_snapshot_info *from,
                          struct plx_fault *fault)
{
    bool told;
    int error;

    changes->open.from = *from;
    error = judge(changes, &told, fault);
    if (error)
        return error;
    if (told)
        changes->stopped = !changes->visit(changes->context, &changes->open);
    changes->open = (struct plx_range_change){.to = *from};
    changes->until = from->seq;
    return 0;
}

static int tell_stretch(struct changes *changes, struct plx_fault *fault)
{
    int error = 0;

    if (changes->open_sign == SIGN_NONE) /* else a later record of the same interval decides */
        changes->open_sign = changes->sign;
    for (size_t i = changes->count; i > 0 && !changes->stopped && !error; i--) {
        const struct mark *mark = &changes->marks[i - 1];

        error = close_interval(
            changes, &(struct plx_snapshot_info){.seq = mark->seq, .time_ns = mark->time_ns},
            fault);
        changes->open_sign = mark->sign;
    }
    return error;
}

/* Reads the stretch from the last segment that begins before snapshot seq, or else from the oldest
 * segment. *ret_before: the last snapshot before the stretch. */
static int read_stretch(struct changes *changes, uint64_t seq, uint64_t *ret_before,
                        struct plx_fault *fault)
{
    struct plx_log_reader *reader = &changes->reader;
    const struct plx_vdi_record *record = reader->record;
    struct plx_log_cursor start;
    uint32_t first = 0;
    int error = plx_log_reader_seek_snapshot(reader, seq, fault);

    changes->count = 0;
    changes->sign = SIGN_NONE;
    changes->whole = false;
    changes->oldest = error == PLX_ERR_NOT_FOUND;
    if (error) /* or the log is empty: the key frame includes everything */
        return changes->oldest ? 0 : error;
    start = reader->cursor;
    while (first < changes->rewinds && record->rewind[first].pos < start.pos)
        first++;
    changes->rewind = first;
    error = plx_log_each_record(reader, on_record, changes, fault);
    if (!error && changes->no_memory)
        error = plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    if (error)
        return error;
    pass_rewinds(changes, UINT64_MAX);
    changes->rewinds = first;
    changes->whole = reader->cursor.seq >= changes->end_seq;
    changes->end_seq = start.seq;
    changes->oldest = start.pos / plx_log_segment_bytes(reader->store) == reader->first_segment;
    *ret_before = plx_max_u64(start.snap_seq, record->oldest.snap_seq);
    return 0;
}

/* CHANGES-6 */
static bool stretch_counts(struct changes *changes)
{
    changes->reading.settled = changes->whole || plx_reading_end(&changes->reading, 0);
    return changes->reading.settled;
}

/* Until all is told, or the disk has moved on. */
static int read_all(struct changes *changes, struct plx_fault *fault)
{
    const struct plx_snapshot_info creation = {.time_ns = changes->reader.record->created_ns};
    uint64_t before = changes->until;
    int error = 0;

    while (!error && !changes->stopped && !changes->oldest) { /* CHANGES-1 */
        error = read_stretch(changes, before, &before, fault);
        if (!error && !stretch_counts(changes))
            return 0;
        if (!error)
            error = tell_stretch(changes, fault);
    }
    return error || changes->stopped ? error : close_interval(changes, &creation, fault);
}

/* Reads the log by the record as it is now, and tells what is left. */
static void read_on(struct changes *changes, struct plx_fault *fault)
{
    const struct plx_vdi_record *record = &changes->reading.record;
    const uint64_t until = changes->until;
    int error = plx_log_reader_open(changes->reading.store, record, &changes->reader, fault);

    if (!error) {
        changes->end_seq = UINT64_MAX;
        changes->rewinds = record->rewinds;
        changes->open = (struct plx_range_change){0};
        changes->open_sign = SIGN_NONE;
        changes->oldest = false;
        error = read_all(changes, fault);
        plx_log_reader_close(&changes->reader);
    }
    if (changes->until < until)
        changes->reading.count = 0;
    if (error)
        plx_reading_end(&changes->reading, error);
}

int plx_range_change_list(struct plx_store *store, uint32_t slot, uint64_t vblock, uint64_t count,
                          bool (*visit)(void *context, const struct plx_range_change *change),
                          void *context, struct plx_fault *fault)
{
    struct changes changes = {.reading = {.store = store, .slot = slot},
                              .first = vblock,
                              .end = vblock + count,
                              .until = UINT64_MAX,
                              .visit = visit,
                              .context = context};

    while (plx_reading_begin(&changes.reading, fault))
        read_on(&changes, fault);
    free(changes.marks);
    if (!changes.reading.settled)
        return plx_fault_set(fault, PLX_ERR_BUSY,
                             "virtual disk %s changes faster than it can be read; try again when "
                             "it is quiet",
                             changes.reading.record.name);
    return changes.reading.error;
}
