/* verify_log.c - the checker's own reading of a disk's log, and of what its snapshots see.
 *
 * VERIFY_LOG-1  From the first kept segment up to the position of the record's key frame, the log
 *     is an unbroken chain of segment numbers, batch numbers and hashes. Epochs and durable marks
 *     never fall, and no batch calls itself durable. Behind that position the log ends at the first
 *     batch that does not fit. That is damage if a later durable mark covers the missing batch.
 * VERIFY_LOG-2  A key frame through which a kept snapshot is read must be whole, and nobody may
 *     overwrite what that snapshot sees. Three more key frames must be whole: the record's oldest
 *     one, where history begins; one that its announcement in the log calls whole; and one behind
 *     whose position a snapshot was taken before the next one was announced.
 * VERIFY_LOG-3  Where history was thinned out, a SKIP record sends the reader forward to the batch
 *     where the log goes on. Segments may be missing there, and nowhere else.
 * VERIFY_LOG-4  A disk's position in its ring (RING records) only rises. Up to the record's key
 *     frame it does not pass the position in the disk's record. Behind that key frame it goes on
 *     from there.
 *
 * A snapshot sees what the snapshot before it saw, with the changes that the log made in between.
 * The first one sees the tree of the key frame before it, with the changes since. So all snapshots
 * together cost one reading of the log and, of each tree, of the nodes that are new in it. Memory
 * holds the changes since the key frame announced last.
 *
 * Loop: the store's.
 * Crash story: this file only reads.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/hash.h"
#include "engine/base/list.h"
#include "engine/check/verify.h"

/* ---- One log ---- */

#define NO_BATCH UINT64_MAX

struct log_walk {
    struct plx_history *history;
    uint64_t seq, hash;           /* the number of the next batch; the hash of the last one */
    uint64_t epoch, durable;      /* the highest so far */
    bool begun;                   /* the first segment was joined */
    uint64_t snapshots;           /* the last snapshot so far, by records, headers and key frames */
    uint64_t taken;               /* the last snapshot that has a record */
    struct plx_keyframe keyframe; /* the one announced last */
    /* Of the key frame whose tree claim_view() walked last. */
    uint64_t viewed_root, viewed_seq;
    uint64_t segment, pos; /* of the batch being read */
    uint64_t addr, end;    /* of its segment; where in it the next batch is looked for */
    uint64_t size_bytes;   /* the disk's size, as RESIZE records behind the key frame say */
    /* VERIFY_LOG-3: a SKIP record was read, and the log goes on here; 0: no */
    uint64_t skip_to, skip_seq, skip_hash;
    struct plx_ring_position ring;
};

static void log_error(struct plx_verify *v, const char *kind, uint64_t addr, const char *text,
                      uint64_t number)
{
    plx_verify_find(v, PLX_FINDING_ERROR, kind, addr, PLX_NO_VBLOCK, "virtual disk %s: %s %llu",
                    v->record->name, text, (unsigned long long)number);
}

static void on_map(struct plx_verify *v, struct log_walk *log, const struct plx_record *record,
                   uint64_t seq)
{
    if (record->addr / v->store->info.extent_blocks !=
        (record->addr + record->count - 1) / v->store->info.extent_blocks) {
        log_error(v, "log", record->addr, "a mapping crosses the end of an extent; log batch", seq);
        return;
    }
    for (uint64_t i = 0; i < record->count && !v->error; i++) {
        struct plx_change *change = plx_history_put(v, log->history, record->vblock + i);

        if (!change)
            return;
        change->addr = record->addr + i;
        change->seq = seq;
        change->checksum = plx_checksum24(plx_record_checksum(record, i));
        change->seen = false;
    }
}

static void on_unmap(struct plx_verify *v, struct log_walk *log, const struct plx_record *record,
                     uint64_t seq)
{
    struct plx_history *h = log->history;

    plx_history_push(v, &h->unmapped, &h->unmapped_count, &h->unmapped_capacity,
                     (struct plx_span){record->vblock, record->count, seq});
    if (record->count < h->capacity) {
        for (uint64_t i = 0; i < record->count; i++) {
            struct plx_change *change = plx_history_change_at(h, record->vblock + i);

            if (change)
                *change =
                    (struct plx_change){.used = true, .vblock = record->vblock + i, .seq = seq};
        }
        return;
    }
    for (size_t i = 0; i < h->capacity; i++)
        if (h->changes[i].used && h->changes[i].vblock - record->vblock < record->count)
            h->changes[i] =
                (struct plx_change){.used = true, .vblock = h->changes[i].vblock, .seq = seq};
}

static void void_change(struct plx_change *change)
{
    if (change && !change->seen && !plx_addr_is_common(change->addr))
        change->checksum = 0;
}

static void on_void(struct plx_verify *v, struct log_walk *log, const struct plx_record *record,
                    uint64_t seq)
{
    struct plx_history *h = log->history;
    uint64_t first = record->vblock << PLX_NODE_SHIFT, count = record->count << PLX_NODE_SHIFT;

    plx_history_push(v, &h->voided, &h->voided_count, &h->voided_capacity,
                     (struct plx_span){record->vblock, record->count, seq});
    if (count < h->capacity) {
        for (uint64_t i = 0; i < count; i++)
            void_change(plx_history_change_at(h, first + i));
        return;
    }
    for (size_t i = 0; i < h->capacity; i++)
        if (h->changes[i].used && h->changes[i].vblock - first < count)
            void_change(&h->changes[i]);
}

/* Walks the tree for the first snapshot behind a key frame only. What a later one sees of the tree,
 * that one saw, too: until the next key frame, changes only take blocks away from the tree. */
static void claim_tree(struct plx_verify *v, struct log_walk *log, const struct plx_tree_walk *walk)
{
    const struct plx_keyframe *keyframe = &log->keyframe;

    if (log->viewed_root == keyframe->root && log->viewed_seq == keyframe->batch_seq)
        return;
    log->viewed_root = keyframe->root;
    log->viewed_seq = keyframe->batch_seq;
    plx_verify_tree(v, walk, keyframe->root, keyframe->levels);
}

/* Returns whether it is claimed: a snapshot's block must lie in a data extent. */
static bool claim_change(struct plx_verify *v, const struct plx_change *change, bool writable,
                         bool named, bool snapshot)
{
    struct plx_block_claim claim = {.addr = change->addr,
                                    .vblock = change->vblock,
                                    .place = change->vblock,
                                    .checksum = change->checksum,
                                    .what = "data",
                                    .writable = writable,
                                    .named = named,
                                    .snapshot = snapshot};

    if (!snapshot || plx_verify_type_is(v, change->addr, PLX_EXTENT_DATA)) {
        plx_verify_claim(v, &claim);
        return true;
    }
    claim.damage = PLX_DAMAGE_PLACE;
    plx_verify_damage(v, &claim, false);
    return false;
}

/* VERIFY-5, VERIFY_LOG-2: claims what this snapshot sees and the one before it does not. */
static void claim_view(struct plx_verify *v, struct log_walk *log)
{
    struct plx_history *h = log->history;
    struct plx_tree_walk walk = {.blocks = plx_div_up(log->keyframe.size_bytes, PLX_BLOCK_SIZE),
                                 .read_only = true,
                                 .exclude = h,
                                 .seq = log->keyframe.batch_seq};

    claim_tree(v, log, &walk);
    for (size_t i = 0; i < h->capacity && !v->error; i++) {
        struct plx_change *change = &h->changes[i];

        if (!change->used || change->seen || !change->addr)
            continue;
        change->seen = true;
        if (claim_change(v, change, false, false, true))
            plx_verify_data(v, change->addr, change->vblock, change->checksum, false);
    }
}

static void on_snapshot(struct plx_verify *v, struct log_walk *log, const struct plx_record *record,
                        uint64_t seq)
{
    if (record->seq <= log->snapshots) /* a gap is fine: those snapshots were let go */
        log_error(v, "log", 0, "snapshots are not numbered one after the other; snapshot",
                  record->seq);
    log->snapshots = log->taken = record->seq;
    if (record->seq <= v->record->oldest.snap_seq)
        return; /* let go */
    v->result.snapshots += v->mode == PLX_VERIFY_LIVE;
    if (seq <= v->record->keyframe.batch_seq)
        plx_verify_clones(v, record->seq, &log->keyframe, log->history);
    /* A snapshot behind the record's key frame sees the newest tree, which is walked anyway. */
    if (seq <= v->record->keyframe.batch_seq && v->mode != PLX_VERIFY_BEHIND)
        claim_view(v, log);
}

/* VERIFY_LOG-2: claims the nodes of the key frame announced last. */
static void claim_nodes(struct plx_verify *v, const struct log_walk *log)
{
    const struct plx_tree_walk walk = {.read_only = true, .nodes_only = true};

    if (v->mode != PLX_VERIFY_BEHIND)
        plx_verify_tree(v, &walk, log->keyframe.root, log->keyframe.levels);
}

static void on_keyframe(struct plx_verify *v, struct log_walk *log,
                        const struct plx_keyframe *keyframe, bool whole)
{
    bool news;

    /* Of two key frames at one position the later one counts; only checksums changed between them.
     * A key frame from before history begins is gone, and so is an earlier one at that position. */
    if (keyframe->pos < log->keyframe.pos || keyframe->pos <= v->record->oldest.pos)
        return;
    news = keyframe->batch_seq != log->keyframe.batch_seq;
    if (log->taken > log->keyframe.snap_seq && keyframe->root != log->keyframe.root)
        claim_nodes(v, log);
    log->keyframe = *keyframe;
    if (whole)
        claim_nodes(v, log);
    log->snapshots = plx_max_u64(log->snapshots, keyframe->snap_seq);
    if (news && v->mode != PLX_VERIFY_BEHIND)
        plx_history_forget(v, log->history,
                           plx_min_u64(keyframe->batch_seq, v->record->keyframe.batch_seq));
}

/* VERIFY_LOG-3 */
static void on_skip(struct plx_verify *v, struct log_walk *log, const struct plx_record *record)
{
    const struct plx_keyframe *to = &record->keyframe;

    if (log->skip_to || to->batch_seq < log->seq || to->pos < log->pos ||
        to->pos > v->record->keyframe.pos) {
        log_error(v, "log", 0, "a SKIP record leads nowhere; log batch", log->seq);
        return;
    }
    log->snapshots = plx_max_u64(log->snapshots, to->snap_seq);
    log->skip_to = to->pos;
    log->skip_seq = to->batch_seq + 1;
    log->skip_hash = to->prev_hash;
}

/* The record's table must hold the rewind: it did so before the log announced the rewind, and does
 * so until history begins there or later (REWIND-5). */
static void on_rewind(struct plx_verify *v, const struct plx_record *record)
{
    const struct plx_keyframe *keyframe = &record->keyframe;

    if (keyframe->pos <= v->record->oldest.pos)
        return;
    for (uint32_t i = 0; i < v->record->rewinds; i++) {
        const struct plx_rewind *rewind = &v->record->rewind[i];

        if (rewind->pos == keyframe->pos && rewind->seq == record->seq &&
            rewind->root == keyframe->root && rewind->levels == keyframe->levels)
            return;
    }
    log_error(v, "keyframe", plx_entry_addr(keyframe->root),
              "the record does not know of a rewind to snapshot", record->seq);
}

/* VERIFY_LOG-4 */
static void on_ring(struct plx_verify *v, struct log_walk *log,
                    const struct plx_ring_position *position, uint64_t seq)
{
    const struct plx_ring_position *at = &v->record->position;

    if (seq > v->record->keyframe.batch_seq && log->ring.seq < at->seq)
        log->ring = *at;
    if (position->seq <= log->ring.seq || position->epoch < log->ring.epoch ||
        (seq <= v->record->keyframe.batch_seq &&
         (position->seq > at->seq || position->epoch > at->epoch)))
        log_error(v, "log", 0, "a position in the ring that cannot be; log batch", seq);
    log->ring = *position;
}

/* Whether a record of mappings lies before the key frame with which history begins. That key frame
 * includes it, or a rewind in between has taken it back. */
static bool is_past(const struct plx_verify *v, const struct plx_record *record, uint64_t seq)
{
    return seq <= v->record->oldest.batch_seq &&
           (record->type == PLX_RECORD_MAP || record->type == PLX_RECORD_UNMAP ||
            record->type == PLX_RECORD_VOID);
}

/* Whether a record behind the key frame names only blocks within the disk's size, and does not make
 * the disk smaller. */
static bool fits_disk(const struct log_walk *log, const struct plx_record *record)
{
    uint64_t blocks = plx_div_up(log->size_bytes, PLX_BLOCK_SIZE);

    if (record->type == PLX_RECORD_RESIZE)
        return record->size_bytes >= log->size_bytes;
    if (record->type == PLX_RECORD_VOID)
        blocks = plx_div_up(blocks, PLX_NODE_ENTRIES);
    else if (record->type != PLX_RECORD_MAP && record->type != PLX_RECORD_UNMAP)
        return true;
    return record->vblock + record->count <= blocks;
}

static void log_record(struct plx_verify *v, struct log_walk *log, const struct plx_record *record,
                       uint64_t seq)
{
    if (is_past(v, record, seq))
        return;
    if (seq > v->record->keyframe.batch_seq && !fits_disk(log, record)) {
        log_error(v, "log", 0, "a record does not fit the disk's size; log batch", seq);
        return;
    }
    switch (record->type) {
    case PLX_RECORD_MAP:
        on_map(v, log, record, seq);
        break;
    case PLX_RECORD_UNMAP:
        on_unmap(v, log, record, seq);
        break;
    case PLX_RECORD_VOID:
        on_void(v, log, record, seq);
        break;
    case PLX_RECORD_SNAPSHOT:
        on_snapshot(v, log, record, seq);
        break;
    case PLX_RECORD_REWIND:
        on_rewind(v, record);
        /* fall through */
    case PLX_RECORD_KEYFRAME:
        on_keyframe(v, log, &record->keyframe, record->flag);
        break;
    case PLX_RECORD_SKIP:
        on_skip(v, log, record);
        break;
    case PLX_RECORD_RESIZE:
        if (seq > v->record->keyframe.batch_seq)
            log->size_bytes = record->size_bytes;
        break;
    case PLX_RECORD_RING:
        on_ring(v, log, &record->position, seq);
        break;
    case PLX_RECORD_LABEL:
        break;
    }
}

static void check_marks(struct plx_verify *v, struct log_walk *log,
                        const struct plx_batch_header *header)
{
    if (header->durable_seq >= header->seq)
        log_error(v, "log", 0, "a batch calls itself durable; log batch", header->seq);
    else if (header->durable_seq < log->durable)
        log_error(v, "log", 0, "the durable mark falls; log batch", header->seq);
    log->durable = plx_max_u64(log->durable, header->durable_seq);
    log->history->durable = log->durable;
}

/* Reads the batch at `offset` of the loaded segment; false: the chain does not go on here
 * (VERIFY-4).
 */
static bool log_batch(struct plx_verify *v, struct log_walk *log, uint64_t *offset)
{
    uint64_t bytes = plx_log_segment_bytes(v->store);
    const struct plx_vdi_record *record = v->record;
    struct plx_batch_header header;
    size_t at = PLX_BATCH_HEADER_BYTES;

    if (plx_format_batch_decode(v->segment + *offset, (size_t)(bytes - *offset), &header) ||
        header.bytes >= bytes - *offset || header.vdi != plx_format_vdi_word(&record->id) ||
        header.epoch < log->epoch || header.seq != log->seq || header.prev_hash != log->hash ||
        (header.seq > record->keyframe.batch_seq && header.epoch != record->epoch))
        return false;
    v->result.batches += v->mode == PLX_VERIFY_LIVE;
    check_marks(v, log, &header);
    log->pos = log->segment * bytes + *offset;
    for (uint32_t i = 0; i < header.records && !v->error; i++) {
        struct plx_record one;

        if (plx_record_next(v->segment + *offset, &header, &at, v->store->addr_limit, &one)) {
            log_error(v, "log", 0, "an impossible record; log batch", header.seq);
            break;
        }
        log_record(v, log, &one, header.seq);
    }
    log->seq = header.seq + 1;
    log->hash = plx_hash64(v->segment + *offset, header.bytes);
    log->epoch = header.epoch;
    *offset += header.bytes;
    if (log->skip_to) {
        log->seq = log->skip_seq;
        log->hash = log->skip_hash;
        log->durable = 0; /* batches behind carry marks from before the log was thinned out */
    }
    if (header.seq == record->oldest.batch_seq)
        plx_history_forget(v, log->history, header.seq);
    if (header.seq == record->keyframe.batch_seq) {
        if (log->snapshots != record->keyframe.snap_seq)
            log_error(v, "keyframe", 0, "the key frame counts other snapshots than the log",
                      record->keyframe.snap_seq);
        if (log->hash != record->keyframe.prev_hash)
            log_error(v, "keyframe", 0, "the key frame follows another log batch", header.seq);
    }
    return true;
}

/* Whether a later batch in the segment says that the missing batch was durable. */
static bool later_mark(struct plx_verify *v, const struct log_walk *log, uint64_t offset)
{
    uint64_t bytes = plx_log_segment_bytes(v->store);
    struct plx_batch_header header;

    for (; offset < bytes; offset += 512)
        if (!plx_format_batch_decode(v->segment + offset, (size_t)(bytes - offset), &header) &&
            header.vdi == plx_format_vdi_word(&v->record->id) && header.epoch == v->record->epoch &&
            header.durable_seq >= log->seq)
            return true;
    return false;
}

/* Whether to look once more for the next batch: it is not the one that was missed last. What was
 * durable when it was missed is found by the next look, so looking ends with what is damaged. */
static bool look_again(const struct log_walk *log, uint64_t *missed)
{
    bool again = *missed != log->seq;

    *missed = log->seq;
    return again;
}

static bool read_segment(struct plx_verify *v, uint64_t addr)
{
    uint64_t blocks = v->store->info.segment_blocks, extent_blocks = v->store->info.extent_blocks;

    return addr && addr + blocks <= v->store->addr_limit &&
           addr / extent_blocks == (addr + blocks - 1) / extent_blocks &&
           plx_verify_type_is(v, addr, PLX_EXTENT_META) &&
           plx_verify_read(v, PLX_KIND_LOG, addr, v->segment,
                           (size_t)(blocks << PLX_BLOCK_SHIFT)) == 0;
}

static bool load_segment(struct plx_verify *v, uint64_t segment, uint64_t addr,
                         struct plx_segment_header *ret_header)
{
    return read_segment(v, addr) &&
           plx_format_segment_decode(v->segment, &v->store->info.id, &v->record->id, segment,
                                     v->store->addr_limit, ret_header, NULL) == 0;
}

/* Reads the batches of a loaded segment. A batch that a writer appends just then may be read in
 * part, so the segment is read again, until nothing new comes, before a missing batch counts as
 * damage. */
static void walk_batches(struct plx_verify *v, struct log_walk *log, uint64_t offset)
{
    uint64_t bytes = plx_log_segment_bytes(v->store), missed = NO_BATCH;
    struct plx_segment_header header;

    do {
        while (offset < bytes && !log->skip_to && log_batch(v, log, &offset))
            ;
        log->end = offset;
        if (offset >= bytes || log->skip_to || !later_mark(v, log, offset))
            return;
    } while (look_again(log, &missed) && load_segment(v, log->segment, log->addr, &header));
    log->end = bytes; /* nothing is looked for behind it any more */
    if (!v->error)
        log_error(v, "log", log->addr,
                  "a batch is damaged, and a later one says that it was durable;"
                  " log batch",
                  log->seq);
}

/* VERIFY_LOG-3: a SKIP record may lead on within its own segment. */
static void walk_from(struct plx_verify *v, struct log_walk *log, uint64_t segment, uint64_t addr,
                      uint64_t offset)
{
    uint64_t bytes = plx_log_segment_bytes(v->store);

    log->segment = segment;
    log->addr = addr;
    walk_batches(v, log, offset);
    while (log->skip_to && log->skip_to / bytes == segment && !v->error) {
        offset = log->skip_to % bytes;
        log->skip_to = 0;
        walk_batches(v, log, offset);
    }
    if (log->skip_to) /* the caller goes on with the segment after this number */
        log->segment = log->skip_to / bytes - 1;
    log->skip_to = 0;
}

static uint64_t index_entry(struct plx_verify *v, uint64_t segment)
{
    uint64_t entry = v->record->index_root;

    for (unsigned l = v->record->index_levels; l > 0 && plx_entry_addr(entry); l--) {
        if (plx_entry_addr(entry) >= v->store->addr_limit ||
            plx_verify_read(v, PLX_KIND_NODE, plx_entry_addr(entry), v->block, PLX_BLOCK_SIZE))
            return 0; /* the walk of the index has reported it */
        entry = plx_node_entry(v->block,
                               segment >> ((l - 1) * PLX_NODE_SHIFT) & (PLX_NODE_ENTRIES - 1));
    }
    return plx_entry_addr(entry);
}

/* Begins the walk at a segment's header, or checks that the segment continues the chain. must: a
 * break is damage, not the end. */
static bool join_segment(struct plx_verify *v, struct log_walk *log, uint64_t segment,
                         const struct plx_segment_header *header, bool must)
{
    if (log->begun && (header->first_batch != log->seq || header->prev_hash != log->hash)) {
        if (must)
            log_error(v, "log", 0, "the log breaks off before segment", segment);
        return false;
    }
    if (!log->begun) {
        log->seq = header->first_batch;
        log->hash = header->prev_hash;
        log->snapshots = header->snap_seq;
        log->keyframe = v->record->oldest;
        claim_nodes(v, log);
        log->begun = true;
    }
    on_keyframe(v, log, &header->keyframe, false);
    if (header->snap_seq < log->snapshots) /* more is fine: snapshots in between were let go */
        log_error(v, "log", 0, "a segment counts fewer snapshots than the log before it; segment",
                  segment);
    log->snapshots = plx_max_u64(log->snapshots, header->snap_seq);
    return true;
}

static void lost_segment(struct plx_verify *v, uint64_t addr, uint64_t segment)
{
    log_error(v, "log", addr, "a log segment is missing or damaged; segment", segment);
}

/* Reads on in the segment at whose last batch the log seemed to end. */
static void read_on(struct plx_verify *v, struct log_walk *log)
{
    struct plx_segment_header header;

    if (load_segment(v, log->segment, log->addr, &header))
        walk_batches(v, log, log->end);
}

/* VERIFY_LOG-1: behind the key frame's segment the log may end before any segment. That is the end
 * only if the place can be read and nothing there says that the next batch was durable. If it says
 * so, a writer may have gone on since the segment before was read: so that one is read on, and this
 * one again, until nothing new comes. What was durable when this one was read is there by then. */
static bool next_segment(struct plx_verify *v, struct log_walk *log, uint64_t segment,
                         uint64_t addr, struct plx_segment_header *ret_header)
{
    uint64_t missed = NO_BATCH;

    while (read_segment(v, addr)) {
        if (plx_format_segment_decode(v->segment, &v->store->info.id, &v->record->id, segment,
                                      v->store->addr_limit, ret_header, NULL) == 0 &&
            ret_header->epoch == v->record->epoch && ret_header->first_batch == log->seq &&
            ret_header->prev_hash == log->hash)
            return true;
        if (!later_mark(v, log, PLX_SEGMENT_HEADER_BYTES))
            return false;
        if (!look_again(log, &missed))
            break;
        read_on(v, log);
    }
    lost_segment(v, addr, segment);
    return false;
}

/* Whether a key frame can stand at the position that the record names. */
static bool place_is_possible(const struct plx_vdi_record *record, uint64_t bytes)
{
    uint64_t last = record->keyframe.pos / bytes, offset = record->keyframe.pos % bytes;

    if (!record->segment_addr)
        return !offset && last == record->first_segment && !record->next_addr;
    return last >= record->first_segment && (!offset || offset >= PLX_SEGMENT_HEADER_BYTES);
}

/* Claims the blocks that the log maps behind the key frame; other changes are forgotten by now. */
static void claim_behind(struct plx_verify *v, const struct log_walk *log)
{
    const struct plx_vdi_record *record = v->record;
    bool seen = log->snapshots > record->keyframe.snap_seq;

    for (size_t i = 0; i < log->history->capacity && !v->error; i++) {
        const struct plx_change *change = &log->history->changes[i];

        if (!change->used || !change->addr)
            continue;
        claim_change(v, change, !seen, true, false);
        if (change->seq <= log->durable)
            plx_verify_data(v, change->addr, change->vblock, change->checksum, true);
    }
}

void plx_verify_log(struct plx_verify *v, struct plx_history *history)
{
    const struct plx_vdi_record *record = v->record;
    uint64_t bytes = plx_log_segment_bytes(v->store);
    uint64_t last = record->keyframe.pos / bytes, addr, next = 0;
    uint64_t end = plx_div_up(record->keyframe.pos, bytes); /* segments before it must exist */
    struct log_walk log = {.history = history, .size_bytes = record->keyframe.size_bytes};

    if (!place_is_possible(record, bytes))
        log_error(v, "log", record->segment_addr, "an impossible place of the key frame; position",
                  record->keyframe.pos);
    if (!record->segment_addr)
        return;
    for (uint64_t s = v->mode == PLX_VERIFY_BEHIND ? last : record->first_segment; !v->error; s++) {
        struct plx_segment_header header;

        if (s < last)
            addr = index_entry(v, s);
        else if (s == last)
            addr = record->segment_addr;
        else
            addr = s == last + 1 && record->next_addr ? record->next_addr : next;
        if (s > last + 1 && plx_vdi_record_moved(v->store, record))
            break; /* do not chase a writer for ever; the disk is read again anyway */
        if (s > last && !next_segment(v, &log, s, addr, &header))
            break;
        if (s <= last && !load_segment(v, s, addr, &header)) {
            if (s < end)
                lost_segment(v, addr, s);
            break;
        }
        if (s > last && next && addr != next)
            log_error(v, "log", addr,
                      "the index names another place than the segment before;"
                      " segment",
                      s);
        next = header.next_addr;
        if (!join_segment(v, &log, s, &header, s < end))
            break;
        if (s > last && addr != record->next_addr && v->mode != PLX_VERIFY_BEHIND)
            plx_verify_segment(v, addr, s,
                               true); /* the record's own segments are claimed already */
        walk_from(v, &log, s, addr, header.start);
        s = log.segment;
        if (s == last && record->keyframe.pos % bytes > PLX_SEGMENT_HEADER_BYTES &&
            log.seq <= record->keyframe.batch_seq)
            log_error(v, "log", addr, "the log breaks off before its key frame; log batch",
                      log.seq);
    }
    if (log.taken > log.keyframe.snap_seq)
        claim_nodes(v, &log);
    history->snapshots = log.snapshots;
    plx_history_forget(v, history, record->keyframe.batch_seq);
    if (v->mode != PLX_VERIFY_BEHIND)
        claim_behind(v, &log);
}
