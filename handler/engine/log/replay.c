/* replay.c - see replay.h.
 *
 * REPLAY-1  A batch counts only if it continues the chain: sequence, hash of the one before, this
 *     VDI; behind the record's key frame it must carry the record's epoch, before it epochs never
 *     fall.
 * REPLAY-2  Behind the newest durable mark in the chain every block that a batch names must match
 *     its checksum; the first batch that does not ends the log (it was never acknowledged). A batch
 *     missing from the chain although a later one's mark calls it durable is damage, not an end:
 *     replay refuses rather than lose acknowledged writes.
 * REPLAY-3  What a batch names lies in the store and within the disk as large as it is then, and
 *     segments lie where segments may lie: what is built on a replayed log relies on it (INV-7).
 * REPLAY-4  Nothing is changed: replay can be interrupted and repeated (crash during recovery).
 *     What recovery believes behind the durable mark can be read, but need not be durable, and a
 *     flush does not make it so: one that failed may have dropped it from a cache that goes on
 *     showing it. So recovery writes it again, the same bytes in the same places: the blocks, which
 *     match their checksums, then the batch, with the header of the segment that it begins. That is
 *     what may be in flight at once, or in write-back mode what came since the last flush. Blocks
 *     that were overwritten in place since then are not named by the log and not written again.
 *     Those that a batch names are marked before they are read, so that nobody else is given them
 *     and writes there in between. They were nobody else's before: they come free only when a
 *     record is durable that ends the log's naming them, or when it is certain that no batch that
 *     could be believed names them (LOG-4), so not when a log has stopped.
 * REPLAY-5  Where history was thinned out (reclaim.c) some segments are missing, and a batch with
 *     nothing but a SKIP record says where the log goes on: always forward, to a key frame.
 * REPLAY-6  Nothing is replayed across a rewind, from a key frame before it: who comes to one has
 *     an old record at hand, or a damaged one.
 * REPLAY-7  On a shelf nothing is read twice, and of a segment no more than the batches asked for,
 *     the readahead, and all of it where one is wanting. What was not read yet is zero there.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/log/replay_inside.h"

/* Reads the blocks of a MAP record and compares them with its checksums. again: and writes them
 * again (REPLAY-4). */
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

/* REPLAY-4, for the batch the reader stands on. A batch is padded to the device's blocks, unless
 * the store came from a device of smaller ones. */
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

/* REPLAY-2, for the batch the reader stands on. again: REPLAY-4. */
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

/* REPLAY-3: whether the record names blocks of the disk alone, and does not make it smaller. */
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
        /* Numbers in between were thinned out. */
        if (record->seq <= map->gen || record->seq - map->active.first_gen >= PLX_OVERLAY_GENS)
            return plx_log_bad_record(replay->reader, fault);
        plx_map_apply_snapshot(map, record->seq);
        replay->result.snapshot_ns = record->time_ns;
        replay->reached = record->seq == replay->until_seq;
        break;
    case PLX_RECORD_RESIZE:
        replay->result.size_bytes = record->size_bytes;
        break;
    case PLX_RECORD_REWIND:
        if (record->keyframe.pos > replay->from_pos)
            return crosses_rewind(replay->reader, fault);
        break;
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

/* First pass: how far the chain goes, and the newest mark in it. */
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
                            .recover = recover};
    uint64_t mark = UINT64_MAX, last = 0;
    uint8_t *buffer = aligned_alloc(PLX_BLOCK_SIZE, PROOF_BLOCKS * PLX_BLOCK_SIZE);
    int error = buffer ? 0 : plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");

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
    *ret_result = replay.result;
    return 0;
}
