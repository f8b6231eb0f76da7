/* listing.c - snapshots and labels of a disk, listed from its log.
 *
 * The disk may be open elsewhere and move on: then its record has changed, and reading starts again
 * behind what was visited already.
 * Loop: synchronous; the disk's loop runs while it waits. Crash story: nothing is written here.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/disk/vdi_inside.h"

/* A walk over the records of a log, which may start again when the disk has moved on. */
struct log_visit {
    uint64_t from; /* the first snapshot that was not visited yet */
    bool (*visit)(void *context, const struct plx_record *record);
    void *context;
    bool stopped;
    /* At this place of the log: the disk's size, and the blocks mapped since the last snapshot. */
    uint64_t size_bytes, new_blocks;
    uint64_t forgotten; /* snapshots up to this one are gone */
};

static bool visit_record(void *context, const struct plx_record *record)
{
    struct log_visit *v = context;

    if (record->type == PLX_RECORD_RESIZE)
        v->size_bytes = record->size_bytes;
    else if (record->type == PLX_RECORD_MAP)
        v->new_blocks += record->count;
    v->stopped = !v->visit(v->context, record);
    if (record->type == PLX_RECORD_SNAPSHOT) {
        v->from = plx_max_u64(v->from, record->seq + 1);
        v->new_blocks = 0;
    }
    return !v->stopped;
}

/* Opens a reader just before snapshot seq, or at the start of history. *ret_empty: the log is
 * empty. After an error the reader is closed already. */
static int open_log_at(struct plx_store *store, const struct plx_vdi_record *record, uint64_t seq,
                       struct plx_log_reader *ret_reader, bool *ret_empty, struct plx_fault *fault)
{
    int error = plx_log_reader_open(store, record, ret_reader, fault);

    if (error)
        return error;
    error = plx_log_reader_seek_snapshot(ret_reader, plx_max_u64(seq, record->oldest.snap_seq + 1),
                                         fault);
    *ret_empty = error == PLX_ERR_NOT_FOUND;
    if (error && !*ret_empty)
        plx_log_reader_close(ret_reader);
    return *ret_empty ? 0 : error;
}

/* Visits the records from the key frame in effect before snapshot v->from - 1, or from where
 * history begins. */
static int visit_from(struct plx_store *store, const struct plx_vdi_record *record,
                      struct log_visit *v, struct plx_fault *fault)
{
    struct plx_log_reader reader;
    bool empty;
    int error = open_log_at(store, record, v->from ? v->from - 1 : 0, &reader, &empty, fault);

    if (error)
        return error;
    if (!empty) {
        struct plx_keyframe keyframe = plx_vdi_kept_keyframe(record, &reader.header.keyframe);

        v->size_bytes = keyframe.size_bytes;
        v->new_blocks = 0;
        v->forgotten = record->oldest.snap_seq;
        plx_log_reader_seek(&reader, &keyframe);
        error = plx_log_each_record(&reader, visit_record, v, fault);
    }
    plx_log_reader_close(&reader);
    return error;
}

/* Visits a log (RECORD-2). As long as that gets on, it may be disturbed any number of times. */
static int visit_log(struct plx_store *store, uint32_t slot, struct log_visit *v,
                     struct plx_fault *fault)
{
    struct plx_reading reading = {.store = store, .slot = slot};

    while (plx_reading_begin(&reading, fault)) {
        uint64_t from = v->from;
        int error = visit_from(store, &reading.record, v, fault);

        if (v->stopped)
            return error;
        if (error && v->from > from)
            reading.count = 0;
        plx_reading_end(&reading, error);
    }
    return reading.error;
}

struct snapshot_visit {
    struct log_visit log;
    bool (*visit)(void *context, const struct plx_snapshot_info *info);
    void *context;
};

static bool visit_snapshot(void *context, const struct plx_record *record)
{
    struct snapshot_visit *v = context;
    struct plx_snapshot_info info = {.seq = record->seq,
                                     .time_ns = record->time_ns,
                                     .size_bytes = v->log.size_bytes,
                                     .new_blocks = v->log.new_blocks};

    if (record->type != PLX_RECORD_SNAPSHOT || record->seq < v->log.from)
        return true;
    return v->visit(v->context, &info);
}

int plx_snapshot_list(struct plx_store *store, uint32_t slot, uint64_t from,
                      bool (*visit)(void *context, const struct plx_snapshot_info *info),
                      void *context, struct plx_fault *fault)
{
    struct snapshot_visit v = {.visit = visit, .context = context};

    v.log =
        (struct log_visit){.from = plx_max_u64(from, 1), .visit = visit_snapshot, .context = &v};
    return visit_log(store, slot, &v.log, fault);
}

static bool take_first(void *context, const struct plx_snapshot_info *info)
{
    *(struct plx_snapshot_info *)context = *info;
    return false;
}

int plx_snapshot_first(struct plx_store *store, uint32_t slot, uint64_t from,
                       struct plx_snapshot_info *ret_info, struct plx_fault *fault)
{
    struct plx_snapshot_info first = {0};
    int error = plx_snapshot_list(store, slot, from, take_first, &first, fault);

    if (!error)
        *ret_info = first;
    return error;
}

struct time_search {
    const struct plx_log_reader *reader;
    uint64_t segment, forgotten, time_ns;
    struct plx_snapshot_info best; /* seq 0: none yet */
};

static bool note_if_before(void *context, const struct plx_record *record)
{
    struct time_search *search = context;

    if (record->type == PLX_RECORD_SNAPSHOT && record->time_ns > search->time_ns)
        return false;
    if (record->type == PLX_RECORD_SNAPSHOT && record->seq > search->forgotten)
        search->best = (struct plx_snapshot_info){.seq = record->seq, .time_ns = record->time_ns};
    /* Snapshots of later segments were taken after that time (plx_log_reader_seek_time()). */
    return search->reader->cursor.pos / plx_log_segment_bytes(search->reader->store) ==
           search->segment;
}

static int search_time(struct plx_store *store, const struct plx_vdi_record *record,
                       uint64_t time_ns, struct plx_snapshot_info *ret_info,
                       struct plx_fault *fault)
{
    struct time_search search = {.time_ns = time_ns, .forgotten = record->oldest.snap_seq};
    struct plx_log_reader reader;
    bool empty;
    int error = open_log_at(store, record, 0, &reader, &empty, fault);

    if (error)
        return error;
    if (!empty)
        error = plx_log_reader_seek_time(&reader, time_ns, fault);
    if (!empty && !error) {
        search.reader = &reader;
        search.segment = reader.cursor.pos / plx_log_segment_bytes(store);
        error = plx_log_each_record(&reader, note_if_before, &search, fault);
    }
    plx_log_reader_close(&reader);
    if (error)
        return error;
    if (!search.best.seq)
        return plx_fault_set(fault, PLX_ERR_NOT_FOUND, "virtual disk %s has no snapshot that old",
                             record->name);
    *ret_info = search.best;
    return 0;
}

int plx_snapshot_at(struct plx_store *store, uint32_t slot, uint64_t time_ns,
                    struct plx_snapshot_info *ret_info, struct plx_fault *fault)
{
    struct plx_reading reading = {.store = store, .slot = slot};

    while (plx_reading_begin(&reading, fault))
        plx_reading_end(&reading, search_time(store, &reading.record, time_ns, ret_info, fault));
    return reading.error;
}

struct label_visit {
    struct log_visit log;
    void (*visit)(void *context, const char *label, uint64_t seq, bool removed);
    void *context;
};

static bool visit_label(void *context, const struct plx_record *record)
{
    struct label_visit *v = context;

    if (record->type == PLX_RECORD_LABEL && record->seq > v->log.forgotten)
        v->visit(v->context, record->label, record->seq, record->flag);
    return true;
}

int plx_label_list(struct plx_store *store, uint32_t slot, uint64_t from,
                   void (*visit)(void *context, const char *label, uint64_t seq, bool removed),
                   void *context, struct plx_fault *fault)
{
    struct label_visit v = {.visit = visit, .context = context};

    v.log = (struct log_visit){.from = from, .visit = visit_label, .context = &v};
    return visit_log(store, slot, &v.log, fault);
}
