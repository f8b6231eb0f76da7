/* instant.c - snapshots opened: a disk as it was at an instant.
 *
 * A snapshot is opened from the last key frame that the log announces before it, and the log behind
 * that up to the SNAPSHOT record (KEYFRAME-3). The map in memory is then frozen, and serves reads.
 * Loop: synchronous; the disk's loop runs while it waits. Crash story: nothing is written here.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/disk/vdi_inside.h"

static int no_snapshot(const struct plx_log_reader *reader, uint64_t seq, struct plx_fault *fault)
{
    return plx_fault_set(fault, PLX_ERR_NOT_FOUND, "virtual disk %s has no snapshot %llu",
                         reader->record->name, (unsigned long long)seq);
}

/* KEYFRAME-3: the key frame that the log names, or if that one is gone, the oldest that is kept. */
struct plx_keyframe plx_vdi_kept_keyframe(const struct plx_vdi_record *record,
                                          const struct plx_keyframe *named)
{
    return plx_keyframe_is_past(record, named) ? record->oldest : *named;
}

struct keyframe_search {
    const struct plx_vdi_record *record;
    uint64_t seq;
    struct plx_keyframe best;
    bool found; /* the log has the snapshot */
};

static bool search_keyframe(void *context, const struct plx_record *record)
{
    struct keyframe_search *search = context;

    if (plx_record_announces(record) && record->keyframe.snap_seq < search->seq &&
        record->keyframe.pos >= search->best.pos &&
        !plx_keyframe_is_past(search->record, &record->keyframe))
        search->best = record->keyframe;
    if (record->type != PLX_RECORD_SNAPSHOT)
        return true;
    search->found = record->seq == search->seq;
    return record->seq < search->seq;
}

/* Finds the key frame to open a snapshot from: the last one that the log announces before it. The
 * record's key frame may be nearer, but does not count until the log announces it. So the answer
 * does not depend on when one asks, and that key frame is kept for its readers (RECLAIM-6). seq 0,
 * the newest state, is opened from the record's key frame. */
static int find_keyframe(struct plx_log_reader *reader, uint64_t seq,
                         struct plx_keyframe *ret_keyframe, struct plx_fault *fault)
{
    struct keyframe_search search = {.record = reader->record, .seq = seq};
    int error;

    if (!seq) {
        *ret_keyframe = reader->record->keyframe;
        return 0;
    }
    if (seq <= reader->record->oldest.snap_seq)
        return no_snapshot(reader, seq, fault);
    error = plx_log_reader_seek_snapshot(reader, seq, fault);
    if (error)
        return error;
    search.best = plx_vdi_kept_keyframe(reader->record, &reader->header.keyframe);
    error = plx_log_each_record(reader, search_keyframe, &search, fault);
    if (error)
        return error;
    if (!search.found)
        return no_snapshot(reader, seq, fault);
    *ret_keyframe = search.best;
    return 0;
}

static int replay_instant(struct plx_vdi *vdi, uint64_t seq, struct plx_fault *fault)
{
    struct plx_replay_result result;
    struct plx_log_reader reader;
    struct plx_keyframe keyframe;
    struct plx_base base;
    int error = plx_log_reader_open(vdi->store, &vdi->record, &reader, fault);

    if (error)
        return error;
    error = find_keyframe(&reader, seq, &keyframe, fault);
    if (!error) {
        base = (struct plx_base){.root = keyframe.root,
                                 .levels = keyframe.levels,
                                 .gen = keyframe.snap_seq,
                                 .mapped = keyframe.mapped,
                                 .vouched = keyframe.vouched};
        plx_map_init(&vdi->map, vdi->store, &base);
        error = plx_replay(&reader, &keyframe, &vdi->map, seq, false, &result, fault);
    }
    plx_log_reader_close(&reader);
    if (error)
        return error;
    vdi->size_bytes = result.size_bytes;
    vdi->last_snapshot_ns = result.snapshot_ns;
    if (!plx_map_freeze(&vdi->map)) /* frozen and sorted, for the walks of mapped.c */
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    plx_overlay_sort(&vdi->map.frozen);
    return 0;
}

static int open_instant(struct plx_store *store, const struct plx_vdi_record *record, uint8_t which,
                        uint64_t seq, struct plx_vdi **ret_vdi, struct plx_fault *fault)
{
    struct plx_vdi *vdi = plx_vdi_new(store, record, which);
    int error;

    if (!vdi)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    vdi->snapshot = true;
    store->disks->instants_opening++;
    error = replay_instant(vdi, seq, fault);
    store->disks->instants_opening--;
    if (error) {
        plx_vdi_free(vdi);
        return error;
    }
    vdi->next = store->vdis;
    store->vdis = vdi;
    *ret_vdi = vdi;
    return 0;
}

int plx_snapshot_open(struct plx_store *store, uint32_t slot, uint64_t seq,
                      struct plx_vdi **ret_vdi, struct plx_fault *fault)
{
    struct plx_reading reading = {.store = store, .slot = slot};
    const struct plx_vdi_record *record = &reading.record;

    while (plx_reading_begin(&reading, fault)) {
        if (record->state != PLX_VDI_LIVE)
            return plx_fault_set(fault, PLX_ERR_NOT_FOUND, "virtual disk %s is deleted",
                                 record->name);
        if (seq && plx_vdi_lets_go(store, slot, seq))
            return plx_fault_set(fault, PLX_ERR_NOT_FOUND, "virtual disk %s lets snapshot %llu go",
                                 record->name, (unsigned long long)seq);
        reading.error = open_instant(store, record, reading.which, seq, ret_vdi, fault);
        if (!reading.error)
            return 0;
        plx_reading_end(&reading, reading.error);
    }
    return reading.error;
}
