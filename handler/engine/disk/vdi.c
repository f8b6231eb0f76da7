/* vdi.c - virtual disks opened (with recovery) and closed, and questions about them. vdi_create.c
 * creates and deletes them; instant.c opens snapshots.
 *
 * How plx_vdi_open() opens a disk for writing:
 *
 *    step                                                       a crash in it leaves
 *  1 read the record, and make what was read durable (VDI-1)    the record as it was
 *  2 replay the log into the map (replay.c)                     the record, the log as believed
 *  3 check counters (VDI-4), allocate missing log segments      the same, and segments that leak
 *  4 after an unclean end: write a key frame, whose record      the old record or the new one;
 *      carries the new owner and epoch (VDI-2)                    either can be recovered
 *    after a clean end: write the record with owner and epoch
 *  5 the disk is open: snapshots and passes begin               a disk to be recovered
 *
 * VDI-1  An instance that has read a record, and may write it, first makes durable what it has read
 *     (RECORD-1). So it never builds on a state that only a device's cache has.
 * VDI-2  A writer raises the epoch before it logs anything. Behind the record's key frame, replay
 *     believes batches of the record's epoch only. So raising the epoch alone would lose a log that
 *     is still needed. After an unclean end that log goes into a new key frame, and the record that
 *     flips to it carries the new epoch and owner, too.
 * VDI-3  A disk that was closed cleanly has no log behind its key frame, and no owner. A disk that
 *     has such a log is recovered, whatever its record says of an owner.
 * VDI-4  A writer begins only if all counters have room for what a lifetime of use adds to them
 *     (format.h); else the opening is refused (CORRUPT), and the disk can still be read. A writer
 *     without that room would write and acknowledge what the next reader refuses.
 * VDI-5  The registry decides a disk's name, and the record repeats it. Whoever opens the disk says
 *     what the registry has, and every record that is written from then on has that name.
 * Loop: calls are synchronous; the disk's loop runs meanwhile.
 * Crash story: see the steps. Until the record flips, an opening changes nothing that the next
 *   opening goes by. What it writes before is of two kinds:
 *   - The same bytes in the same places, of the record's slot and of the log (VDI-1, REPLAY-4).
 *     Nobody else writes there: the owner is this instance, or dead. Such a write may be torn.
 *     Bytes that were durable stay the same however it is torn. Bytes that were not durable could
 *     have been lost in a power cut anyway: then the record's other slot counts, or the log ends
 *     earlier, yet not before its durable mark.
 *   - New bytes that nothing names before the flip: the key frame's nodes, in blocks that were
 *     free, and bitmaps in which these blocks and the missing log segments are used. A crash leaves
 *     leaks.
 *   Closing is a key frame whose record names no owner (KEYFRAME-5). Creating is told in
 *   vdi_create.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/disk/reserve.h"
#include "engine/disk/vdi_inside.h"

int plx_vdi_read_info(struct plx_store *store, uint32_t slot, struct plx_vdi_info *ret_info,
                      struct plx_fault *fault)
{
    struct plx_vdi_record record;
    uint8_t which;
    int error = plx_vdi_record_read(store, slot, &record, &which, fault);

    if (!error)
        plx_vdi_record_info(&record, ret_info);
    return error;
}

/* ---- Opening ---- */

/* Makes the log as replay found it: its cursor, and the addresses of its segments, which are marked
 * as allocated. */
static int init_log(struct plx_vdi *vdi, struct plx_log_reader *reader,
                    const struct plx_replay_result *result, struct plx_fault *fault)
{
    uint64_t bytes = plx_log_segment_bytes(vdi->store);
    uint64_t segment = result->end.pos / bytes;
    size_t count = 0;
    struct plx_log_cursor cursor = result->end;
    uint64_t *segments;

    cursor.snap_seq = vdi->map.gen;
    if (vdi->record.segment_addr) {
        count = (size_t)(segment - reader->first_segment) + 1;
        cursor.addr = reader->segments[count - 1];
        cursor.next_addr = vdi->record.next_addr;
        if (segment != vdi->record.keyframe.pos / bytes) {
            uint8_t block[PLX_BLOCK_SIZE];
            struct plx_segment_header header;
            int error =
                plx_store_read_sync(vdi->store, PLX_KIND_LOG, cursor.addr, block, sizeof block);

            if (error)
                return plx_fault_set(fault, error, "virtual disk %s: reading its log: %s",
                                     vdi->record.name, plx_error_text(error));
            error = plx_format_segment_decode(block, &vdi->store->info.id, &vdi->record.id, segment,
                                              vdi->store->addr_limit, &header, fault);
            if (error)
                return error;
            cursor.next_addr = header.next_addr;
        }
    }
    segments = malloc((count + 1) * sizeof *segments);
    if (!segments)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    if (count)
        memcpy(segments, reader->segments, count * sizeof *segments);
    if (cursor.next_addr)
        segments[count++] = cursor.next_addr;
    for (size_t i = 0; i < count; i++)
        if (segments[i])
            plx_alloc_mark(vdi->store, segments[i], vdi->store->info.segment_blocks);
    if (plx_log_init(&vdi->log, &(struct plx_log){.vdi = vdi,
                                                  .disk = &plx_logged,
                                                  .map = &vdi->map,
                                                  .record = &vdi->record,
                                                  .store = vdi->store,
                                                  .cursor = cursor,
                                                  .first_segment = vdi->record.first_segment,
                                                  .segments = segments,
                                                  .segment_count = count}))
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    return 0;
}

static int replay_into(struct plx_vdi *vdi, struct plx_replay_result *ret_result,
                       struct plx_fault *fault)
{
    const struct plx_keyframe *keyframe = &vdi->record.keyframe;
    struct plx_base base = {.root = keyframe->root,
                            .levels = keyframe->levels,
                            .gen = keyframe->snap_seq,
                            .mapped = keyframe->mapped,
                            .vouched = keyframe->vouched};
    struct plx_flush_mark mark = plx_flush_mark(vdi->store);
    struct plx_log_reader reader;
    int error;

    plx_map_init(&vdi->map, vdi->store, &base);
    error = plx_log_reader_open(vdi->store, &vdi->record, &reader, fault);
    if (error)
        return error;
    error = plx_replay(&reader, keyframe, &vdi->map, 0, true, ret_result, fault);
    if (!error)
        error = init_log(vdi, &reader, ret_result, fault);
    plx_log_reader_close(&reader);
    if (!error && ret_result->written_again) { /* the key frame must be preceded by a flush */
        vdi->log.undurable = true;
        vdi->log.flush_mark = mark;
    }
    return error;
}

static void wait_keyframe_ended(struct plx_vdi *vdi)
{
    while (vdi->keyframe.running || vdi->keyframe.wanted)
        if (!plx_store_tick(vdi->store) && vdi->keyframe.running)
            plx_store_wait(vdi->store);
}

/* Takes ownership on the store (VDI-2). *ret_unwritten, on failure: the record surely stayed as it
 * was. false: a write of it failed, but may have reached the store. */
static int take_ownership(struct plx_vdi *vdi, const struct plx_vdi_open_options *options,
                          bool unclean, bool *ret_unwritten)
{
    struct plx_store *store = vdi->store;
    int error;

    plx_reserve_count(vdi);
    error = plx_log_ensure_segments(&vdi->log);
    *ret_unwritten = true;
    if (error)
        return error;
    vdi->record.owner = store->options.instance;
    vdi->record.owner_host = store->options.host;
    vdi->record.epoch = options->epoch;
    if (unclean) {
        error = plx_keyframe_run(vdi);
        wait_keyframe_ended(vdi);
        *ret_unwritten = !vdi->log.sticky; /* keyframe_steps.c, record_failed() */
        return error;
    }
    error = plx_reserve_obtain(vdi, 0); /* RESERVE-3 */
    if (error)
        return error;
    vdi->record.segment_addr = vdi->log.cursor.addr;
    vdi->record.next_addr = vdi->log.cursor.next_addr;
    error = plx_bitmap_sync_run(store);
    if (error)
        return error;
    *ret_unwritten = false;
    error = plx_vdi_record_write(store, &vdi->record, &vdi->record_slot);
    if (!error && plx_keyframe_announce(vdi)) {
        wait_keyframe_ended(vdi);
        error = vdi->keyframe.error;
    }
    return error;
}

static void give_back(struct plx_vdi *vdi);

/* Undoes an opening that failed. Segments that it allocated for the log are freed again, unless the
 * record may name them. */
static void undo_open(struct plx_vdi *vdi, bool had_segment, bool had_next, bool unwritten)
{
    uint64_t blocks = vdi->store->info.segment_blocks;
    const struct plx_log_cursor *cursor = &vdi->log.cursor;

    vdi->closing = true;
    plx_log_stop(&vdi->log, PLX_ERR_STICKY, 0);
    plx_vdi_drain(vdi);
    give_back(vdi);
    if (unwritten && !had_segment && cursor->addr)
        plx_alloc_free(vdi->store, cursor->addr, blocks);
    if (unwritten && !had_next && cursor->next_addr)
        plx_alloc_free(vdi->store, cursor->next_addr, blocks);
    plx_vdi_free(vdi);
}

static int check_open(const struct plx_store *store, const struct plx_vdi_record *record,
                      const struct plx_vdi_open_options *options, struct plx_fault *fault)
{
    if (record->state != PLX_VDI_LIVE)
        return plx_fault_set(fault, PLX_ERR_NOT_FOUND, "virtual disk %s is deleted", record->name);
    if (!store->options.instance)
        return plx_fault_set(fault, PLX_ERR_READONLY, "the store is open read-only");
    if (record->owner && !options->take_over)
        return plx_fault_set(fault, PLX_ERR_BUSY,
                             "virtual disk %s is open in instance %llx (epoch %llu)", record->name,
                             (unsigned long long)record->owner, (unsigned long long)record->epoch);
    if (options->epoch <= record->epoch)
        return plx_fault_set(fault, PLX_ERR_FENCED,
                             "virtual disk %s: epoch %llu was granted, the store has %llu already",
                             record->name, (unsigned long long)options->epoch,
                             (unsigned long long)record->epoch);
    return options->ring && plx_ring_is_marked(&record->mark) /* FRONT-1 */
               ? options->ring->check(options->ring, record, fault)
               : 0;
}

/* VDI-4. The log's own counters may be far ahead of the record's, for a SKIP record says where the
 * log goes on. */
static int check_counters(const struct plx_vdi *vdi, const struct plx_vdi_open_options *options,
                          struct plx_fault *fault)
{
    const struct plx_log_cursor *cursor = &vdi->log.cursor;
    const char *what = !plx_counter_has_room(vdi->record.generation) ? "generation"
                       : !plx_counter_has_room(options->epoch)       ? "epoch"
                       : !plx_counter_has_room(cursor->pos)          ? "log position"
                       : !plx_counter_has_room(cursor->seq)          ? "batch number"
                       : !plx_counter_has_room(cursor->snap_seq)     ? "snapshot number"
                       : !plx_counter_has_room(cursor->ring.seq)     ? "position in a ring"
                                                                     : NULL;

    return what
               ? plx_fault_set(fault, PLX_ERR_CORRUPT,
                               "virtual disk %s has an impossible %s; it can be read and exported, "
                               "but not written",
                               vdi->record.name, what)
               : 0;
}

static void set_writing(struct plx_vdi *vdi, const struct plx_vdi_open_options *options)
{
    int overwrite = options->overwrite < 0 ? (int)vdi->record.overwrite : options->overwrite;

    plx_vdi_set_write_back(vdi, options->write_back);
    vdi->copy_always = overwrite == PLX_OVERWRITE_COPY;
}

static void set_name(struct plx_vdi *vdi, const char *name)
{
    snprintf(vdi->record.name, sizeof vdi->record.name, "%s", name);
}

/* A key frame that is running has a record of its own, which becomes the disk's. */
void plx_vdi_rename(struct plx_vdi *vdi, const char *name)
{
    wait_keyframe_ended(vdi);
    set_name(vdi, name);
}

bool plx_vdi_use(struct plx_vdi *vdi, const struct plx_vdi_open_options *options)
{
    if (vdi->log.sticky || plx_front_is_away(vdi) ||
        (vdi->vouch.quiet_ns && vdi->vouch.quiet_ns != options->quiet_ns))
        return false;
    set_writing(vdi, options);
    vdi->recovered = false;
    if (!vdi->vouch.quiet_ns)
        plx_vouch_start(vdi, options->quiet_ns);
    return true;
}

int plx_vdi_open(struct plx_store *store, const struct plx_vdi_open_options *options,
                 struct plx_vdi **ret_vdi, struct plx_fault *fault)
{
    struct plx_vdi_record record;
    struct plx_replay_result result = {0};
    struct plx_record_slots slots;
    struct plx_vdi *vdi;
    bool unclean, unwritten = true, had_segment, had_next;
    int error = plx_vdi_record_slots_read(store, options->slot, &slots, &record, fault);

    if (!error)
        error = check_open(store, &record, options, fault);
    if (error)
        return error;
    error = plx_vdi_record_write_again(store, options->slot, &slots);
    if (error)
        return plx_vdi_cannot_write(record.name, error, fault);
    vdi = plx_vdi_new(store, &record, slots.slot);
    if (!vdi)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    if (options->name && options->name[0])
        set_name(vdi, options->name); /* VDI-5 */
    set_writing(vdi, options);
    error = replay_into(vdi, &result, fault);
    unclean = vdi->recovered = record.owner || result.batches; /* VDI-3 */
    if (!error)
        error = check_counters(vdi, options, fault);
    if (error) {
        plx_vdi_free(vdi);
        return error;
    }
    vdi->size_bytes = result.size_bytes;
    vdi->last_snapshot_ns = vdi->gen_ns = plx_max_u64(record.keyframe.time_ns, result.snapshot_ns);
    if (options->witness)
        vdi->witness = *options->witness;
    if (result.undated) /* WITNESS-9 */
        plx_witness_found(&vdi->witness, result.undated_after, vdi->map.gen);
    vdi->changed = true; /* perhaps: so the next snapshot is taken in any case */
    had_segment = vdi->log.cursor.addr;
    had_next = vdi->log.cursor.next_addr;
    error = plx_keyframe_init(vdi);
    if (!error) {
        vdi->next = store->vdis;
        store->vdis = vdi;
        error = take_ownership(vdi, options, unclean, &unwritten);
    }
    if (error) {
        plx_fault_set(fault, error, "virtual disk %s cannot be opened: %s", record.name,
                      plx_error_text(error));
        undo_open(vdi, had_segment, had_next, unwritten);
        return error;
    }
    vdi->vouch.opened = plx_flush_mark(store);
    plx_vouch_start(vdi, options->quiet_ns);
    plx_protect_start(vdi, unclean && (result.batches || plx_keyframe_rewind(&record)));
    if (unclean)
        plx_store_event(store, 0,
                        "virtual disk %s: recovered, %llu log batch%s replayed, %llu dropped that "
                        "were never acknowledged",
                        record.name, (unsigned long long)result.batches,
                        result.batches == 1 ? "" : "es", (unsigned long long)result.dropped);
    *ret_vdi = vdi;
    return 0;
}

/* ---- After a crash: blocks that the logs name are marked as allocated ---- */

static bool mark_record(void *context, const struct plx_record *record)
{
    if (record->type == PLX_RECORD_MAP)
        plx_alloc_mark(context, record->addr, record->count);
    return true;
}

int plx_vdi_mark(struct plx_store *store, uint32_t slot, struct plx_fault *fault)
{
    struct plx_vdi_record record;
    struct plx_log_reader reader;
    uint64_t bytes = plx_log_segment_bytes(store);
    uint8_t which;
    int error = plx_vdi_record_read(store, slot, &record, &which, fault);

    if (error)
        return error == PLX_ERR_NOT_FOUND ? 0 : error;
    if (record.state != PLX_VDI_LIVE || !record.segment_addr)
        return 0;
    error = plx_log_reader_open(store, &record, &reader, fault);
    if (error)
        return error;
    /* Segments before that of the key frame are in the bitmaps, durably (KEYFRAME-1). */
    for (size_t i = (size_t)(record.keyframe.pos / bytes - reader.first_segment); i < reader.count;
         i++) {
        struct plx_segment_header header;

        plx_alloc_mark(store, reader.segments[i], bytes >> PLX_BLOCK_SHIFT);
        if (plx_store_read_sync(store, PLX_KIND_LOG, reader.segments[i], reader.buffer,
                                PLX_SEGMENT_HEADER_BYTES) == 0 &&
            plx_format_segment_decode(reader.buffer, &store->info.id, &record.id,
                                      reader.first_segment + i, store->addr_limit, &header,
                                      NULL) == 0)
            plx_alloc_mark(store, header.next_addr, bytes >> PLX_BLOCK_SHIFT);
    }
    plx_alloc_mark(store, record.next_addr, bytes >> PLX_BLOCK_SHIFT);
    reader.loaded = UINT64_MAX;
    error = plx_log_each_record(&reader, mark_record, store, fault);
    plx_log_reader_close(&reader);
    return error;
}

/* ---- Closing ---- */

void plx_vdi_drain(struct plx_vdi *vdi)
{
    plx_store_room_made(vdi->store, true); /* writes that wait for history try again */
    while (!plx_vdi_idle(vdi))
        if (!plx_store_tick(vdi->store) && !plx_vdi_idle(vdi))
            plx_store_wait(vdi->store);
}

static void give_back(struct plx_vdi *vdi)
{
    if (vdi->run.count)
        plx_alloc_free(vdi->store, vdi->run.addr, vdi->run.count);
    if (vdi->log.spare_addr)
        plx_alloc_free(vdi->store, vdi->log.spare_addr, vdi->store->info.segment_blocks);
    vdi->run.count = 0;
    vdi->log.spare_addr = 0;
}

int plx_vdi_rest(struct plx_vdi *vdi)
{
    struct plx_request flush = {.op = PLX_FLUSH};

    vdi->closing = true; /* so no write waits for history, and no snapshot for a batch to join */
    plx_vdi_drain(vdi);
    vdi->closing = false;
    return vdi->log.sticky ? vdi->log.sticky : plx_vdi_run(vdi, &flush);
}

void plx_vdi_begin_close(struct plx_vdi *vdi)
{
    if (vdi->snapshot || vdi->closing)
        return;
    vdi->closing = true;
    plx_vdi_drain(vdi);
    plx_protect_last(vdi);
    vdi->keyframe.quiet = true;
    plx_keyframe_request(vdi, NULL);
}

/* Want of room is told as such: there is something to be done about it. */
static int why_stopped(const struct plx_vdi *vdi)
{
    bool full = plx_error_class(vdi->log.cause) == PLX_CLASS_NOSPACE;

    return full && vdi->log.sticky == PLX_ERR_STICKY ? vdi->log.cause : vdi->log.sticky;
}

int plx_vdi_close(struct plx_vdi *vdi)
{
    const struct plx_keyframe_op *last = &vdi->keyframe;
    int error;

    if (vdi->snapshot) {
        plx_vdi_abandon(vdi);
        return 0;
    }
    plx_vdi_begin_close(vdi);
    plx_vdi_drain(vdi);
    /* The key frame may have written only what an earlier, failed one had frozen: then another one
     * must follow. Or it found no room: other disks closed at the same time may have given
     * some back by now. */
    for (unsigned i = 0; vdi->record.owner && !vdi->log.sticky && i < 3 &&
                         (!last->error || last->error == PLX_ERR_NOSPACE);
         i++) {
        plx_keyframe_run(vdi);
        plx_vdi_drain(vdi);
    }
    error = vdi->log.sticky ? why_stopped(vdi) : last->error;
    if (!error && vdi->record.owner)
        error = PLX_ERR_BUSY;
    if (!error)
        give_back(vdi);
    plx_vdi_abandon(vdi);
    return error;
}

void plx_vdi_abandon(struct plx_vdi *vdi)
{
    vdi->closing = true;
    plx_log_stop(&vdi->log, PLX_ERR_STICKY, 0);
    plx_vdi_drain(vdi);
    if (vdi->run.count) /* no record names these; a stale header may name the spare segment */
        plx_alloc_free(vdi->store, vdi->run.addr, vdi->run.count);
    plx_vdi_free(vdi);
}

/* ---- Questions ---- */

void plx_vdi_get_info(const struct plx_vdi *vdi, struct plx_vdi_info *ret_info)
{
    plx_vdi_record_info(&vdi->record, ret_info);
    ret_info->size_bytes = vdi->size_bytes;
    ret_info->snapshots = vdi->map.gen;
    ret_info->position = vdi->log.applied.ring;
    for (size_t i = 0; i < vdi->log.segment_count; i++)
        ret_info->log_segments += vdi->log.segments[i] != 0;
}

bool plx_vdi_is_snapshot(const struct plx_vdi *vdi)
{
    return vdi->snapshot;
}

void plx_vdi_set_write_back(struct plx_vdi *vdi, bool write_back)
{
    vdi->write_back = write_back;
    vdi->log.write_back = write_back && !vdi->front && !plx_ring_is_marked(&vdi->mark);
    vdi->cache_changes++;
    if (vdi->log.write_back)
        plx_vdi_set_unflushed(vdi);
}

int plx_vdi_health(const struct plx_vdi *vdi, struct plx_fault *ret_fault)
{
    return vdi->log.sticky ? plx_vdi_fault(vdi, vdi->log.sticky, ret_fault) : 0;
}

void plx_vdi_counters(const struct plx_vdi *vdi, struct plx_counters *ret_counters)
{
    *ret_counters = vdi->counters;
    ret_counters->snapshot_rate = plx_protect_rate(vdi);
}
