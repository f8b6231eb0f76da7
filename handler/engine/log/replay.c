/* replay.c - a log applied to a map: recovery, and snapshots opened; see replay.h.
 *
 * Words: a batch is "believed" if replay applies it. The durable mark of a batch says up to which
 * batch everything was durable, data included, when it was formed (LOG-2). Recovery works in two
 * passes: the first finds how far the chain of batches goes and the newest mark in it, the second
 * applies.
 *
 *    a batch lies                  recovery believes it
 *    up to the newest mark         without looking at its data; if it is missing, that is damage
 *    behind the newest mark        if each block that it names matches its checksum; then recovery
 *                                  writes block and batch again (REPLAY-4)
 *    behind the first that fails   never: it was not acknowledged
 *
 * REPLAY-1  A batch counts only if it continues the chain: the next sequence number, the hash of
 *     the batch before, this disk's id. Behind the record's key frame it must also carry the
 *     record's epoch; before the key frame epochs never fall. So leftovers of an earlier attempt or
 *     of an earlier owner never count.
 * REPLAY-2  Behind the newest durable mark, every block that a batch names must match its checksum.
 *     The first batch with a block that does not match ends the log: it was never acknowledged. A
 *     batch that is missing although a later batch's mark covers it is damage: replay looks for
 *     such a batch in the rest of the segment and in the next one. Replay then refuses, for to end
 *     the log there would lose acknowledged writes.
 * REPLAY-3  Replay checks what a batch names: blocks lie in the store, and in the disk as large as
 *     it is at that batch; segments lie where segments may lie. The rest of the engine relies on
 *     this and does not check again what came from a log (INV-7).
 * REPLAY-4  Replay changes no state on the store, so a crash during recovery is followed by another
 *     recovery. But recovery makes durable what it believes behind the mark. That can be read, yet
 *     need not be durable: if an earlier flush failed, a device's cache may have dropped the blocks
 *     and still show them, and a later flush does not write them. So recovery writes them again,
 *     the same bytes in the same places: first the blocks, whose checksums match, then the batch,
 *     along with the header of the segment that it begins. This concerns what may have been in
 *     flight at once; in write-back mode all since the last flush. Blocks that were overwritten in
 *     place since then are not named by the log and are not written again.
 *     Recovery marks the blocks of a batch as allocated before it reads them. So no other disk of
 *     this instance can get a block between its reading and its rewriting. Nobody got it before the
 *     crash either: a block is freed only after a durable record makes replay skip the batch that
 *     names it, or after it is certain that no such batch will be believed (LOG-4). A log that has
 *     stopped frees none.
 * REPLAY-5  Where history was thinned out (reclaim.c) some segment numbers have no segment. A batch
 *     with a SKIP record alone says where the log goes on: always forward, at a key frame.
 * REPLAY-6  Replay never crosses a rewind, starting at a key frame before it, because the log
 *     before a rewind does not lead to what follows. A reader that meets the REWIND record has an
 *     outdated or a damaged record of the disk, and gets CORRUPT.
 * REPLAY-7  A shelf (replay.h) holds segments in memory for several readers. Nothing is read twice
 *     for it. Of a segment only the batches that were asked for are read, plus a readahead; where a
 *     batch is missing, all the rest, for a later mark may tell that it is damage. Bytes that were
 *     not read yet are zero, which is no valid batch.
 * REPLAY-8  A disk's position in its ring (RING records) only rises, and is of no later epoch than
 *     the disk's record, which the next key frame writes it into. Recovery goes on from that of
 *     the record's key frame, so the position that it finds belongs to just what it applied.
 * Loop: synchronous; the disk's loop runs while it waits for I/O.
 * Crash story: REPLAY-4.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/log/replay_inside.h"

/* Reads the blocks of a MAP record and compares them with its checksums. again: writes those that
 * match once more (REPLAY-4). */
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

/* REPLAY-4: writes the batch that the reader is at once more, and the segment's header if the batch
 * begins the segment. Batches are padded to the blocks of the device that they were written on. If
 * this device has larger ones, what shares its blocks with the batch is written, too. */
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

/* REPLAY-2: compares the data of the batch that the reader is at with the batch's checksums. again:
 * writes both once more (REPLAY-4). */
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
            return plx_log_bad_record(reader, fault);
        if (record.type != PLX_RECORD_MAP)
            continue;
        if (!addrs_in_one_extent(reader->store, &record))
            return plx_log_bad_record(reader, fault);
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

/* REPLAY-3: whether the record names blocks within the disk only, and does not shrink the disk. */
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
    uint64_t newest_ns; /* of the newest snapshot so far, that of the key frame included */
    struct plx_ring_position position;
    bool recover, reached;
    struct plx_replay_result result;
};

/* REPLAY-6 */
static int crosses_rewind(const struct plx_log_reader *reader, struct plx_fault *fault)
{
    return plx_fault_set(fault, PLX_ERR_CORRUPT,
                         "virtual disk %s: it was rewound in log batch %llu, and its record does "
                         "not say so",
                         reader->record->name, (unsigned long long)reader->batch_header.seq);
}

/* REPLAY-8 */
static int take_position(struct replay *replay, const struct plx_ring_position *position,
                         struct plx_fault *fault)
{
    if (position->seq <= replay->position.seq || position->epoch < replay->position.epoch ||
        position->epoch > replay->reader->record->epoch)
        return plx_log_bad_record(replay->reader, fault);
    replay->position = *position;
    return 0;
}

/* WITNESS-9. before: the number of the snapshot before. */
static void note_time(struct replay *replay, uint64_t time_ns, uint64_t before)
{
    struct plx_replay_result *result = &replay->result;
    bool undated = time_ns <= replay->newest_ns + 1;

    if (undated && !result->undated)
        result->undated_after = before;
    result->undated = undated;
    result->snapshot_ns = replay->newest_ns = time_ns;
}

static int apply_record(struct replay *replay, const struct plx_record *record,
                        struct plx_fault *fault)
{
    struct plx_map *map = replay->map;
    size_t slots = slots_for(record);

    if (!within_disk(record, replay->result.size_bytes))
        return plx_log_bad_record(replay->reader, fault);
    if (!plx_overlay_reserve(&map->active, slots))
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    switch (record->type) {
    case PLX_RECORD_MAP:
        if (!addrs_in_one_extent(map->store, record)) {
            plx_overlay_unreserve(&map->active, slots);
            return plx_log_bad_record(replay->reader, fault);
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
        /* The numbers may have gaps, where history was thinned out. */
        if (record->seq <= map->gen || record->seq - map->active.first_gen >= PLX_OVERLAY_GENS)
            return plx_log_bad_record(replay->reader, fault);
        note_time(replay, record->time_ns, map->gen);
        plx_map_apply_snapshot(map, record->seq);
        replay->reached = record->seq == replay->until_seq;
        break;
    case PLX_RECORD_RESIZE:
        replay->result.size_bytes = record->size_bytes;
        break;
    case PLX_RECORD_REWIND:
        if (record->keyframe.pos > replay->from_pos)
            return crosses_rewind(replay->reader, fault);
        break;
    case PLX_RECORD_RING:
        return take_position(replay, &record->position, fault);
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
            return plx_log_bad_record(reader, fault);
        error = apply_record(replay, &record, fault);
        if (error)
            return error;
    }
    return 0;
}

/* The first pass of recovery: finds the last batch of the chain, and the newest mark in it. */
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
    return plx_log_end_is_right(reader, fault);
}

int plx_replay(struct plx_log_reader *reader, const struct plx_keyframe *from, struct plx_map *map,
               uint64_t until_seq, bool recover, struct plx_replay_result *ret_result,
               struct plx_fault *fault)
{
    struct replay replay = {.reader = reader,
                            .map = map,
                            .from_pos = from->pos,
                            .until_seq = until_seq,
                            .newest_ns = from->time_ns,
                            .recover = recover};
    uint64_t mark = UINT64_MAX, last = 0;
    uint8_t *buffer = aligned_alloc(PLX_BLOCK_SIZE, PROOF_BLOCKS * PLX_BLOCK_SIZE);
    int error = buffer ? 0 : plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");

    if (recover)
        replay.position = reader->record->position;
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
    replay.result.end.ring = replay.position;
    *ret_result = replay.result;
    return 0;
}
