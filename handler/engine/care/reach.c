/* reach.c - see reach.h.
 *
 * What counts as used, for one disk:
 *
 *  reached from the record     nodes count          data counts
 *  newest key frame            all                  all
 *  index of log segments       all                  -
 *  trees of rewinds            all                  all
 *  tree a clone began with     all (REACH-4)        no
 *  log segments                all                  -
 *  other key frames in the     those that are kept  what a snapshot sees
 *  log, and MAP records        (REACH-2)            (REACH-2), or not yet freed (REACH-5)
 *
 * REACH-1  Too many blocks may count as used, but never too few. Where it is not known whether a
 *     snapshot sees a block, the block counts. Damage ends the walk with an error, because nothing
 *     is known of what lies below it.
 * REACH-2  A snapshot sees two things: the tree of its key frame, the last one that the log
 *     announces before it (find_keyframe in instant.c), and what the log behind that tree has
 *     mapped. A block that was mapped and replaced with no snapshot in between is visible in no
 *     snapshot. The nodes of a key frame K count even if no snapshot is left behind it, where
 *     reclaim.c takes K for whole (RECLAIM-2): if history begins with K, if its record is flagged
 *     "whole", or if a snapshot was taken between its position and the next announcement.
 * REACH-3  A subtree that was read is not read again, as long as its node is surely the same one.
 *     Within one disk it is, because nothing is freed that the disk's record leads to. From one
 *     disk to another it is, unless the node's block may have been given out again since.
 * REACH-4  Of the tree that a clone began with, only the nodes count: reclaim.c reads them to learn
 *     what the clone must not free (RECLAIM-4). A block of its data needs no mark here. It is
 *     marked when the origin is read, or as a block that the clone still sees; or it is garbage.
 * REACH-5  A block that a MAP record behind the record's key frame names counts even if it was
 *     replaced since. The disk frees it with its next key frame, so a sweep must not free it as
 *     well.
 *
 * Nodes are read in the order of the store, many at once. They bypass the node cache, which keeps
 * what disks at work need.
 *
 * Loop: the store's. The calls are synchronous; they run it, and pause between batches of nodes.
 * Crash story: this file only reads.
 */
#include "engine/care/reach.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/hashtable.h"
#include "engine/base/list.h"
#include "engine/disk/vdi.h"
#include "engine/log/replay.h"

int plx_reach_init(struct plx_reach *reach, struct plx_store *store, const bool *counts,
                   const bool *moving, const struct plx_turns *turns, struct plx_fault *fault)
{
    uint64_t extents = store->info.extents, blocks = store->info.extent_blocks;
    bool ready;

    *reach = (struct plx_reach){.store = store,
                                .turns = turns,
                                .fault = fault,
                                .counts = counts,
                                .moving = moving,
                                .begun_ns = store->env->monotonic_ns(store->env),
                                .believe = true};
    ready = plx_blockmap_init(&reach->used, extents, blocks);
    ready = plx_blockmap_init(&reach->seen, extents, blocks) && ready;
    ready = plx_blockmap_init(&reach->own, extents, blocks) && ready;
    for (unsigned level = 1; level <= PLX_LEVELS_MAX; level++) {
        reach->nodes_at[level] = aligned_alloc(PLX_BLOCK_SIZE, PLX_REACH_BATCH * PLX_BLOCK_SIZE);
        ready = ready && reach->nodes_at[level];
    }
    if (ready)
        return 0;
    plx_reach_done(reach);
    return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
}

void plx_reach_done(struct plx_reach *reach)
{
    plx_blockmap_done(&reach->used);
    plx_blockmap_done(&reach->seen);
    plx_blockmap_done(&reach->own);
    for (unsigned level = 1; level <= PLX_LEVELS_MAX; level++) {
        free(reach->nodes_at[level]);
        reach->nodes_at[level] = NULL;
    }
}

static int no_memory(const struct plx_reach *reach)
{
    return plx_fault_set(reach->fault, PLX_ERR_NOMEM, "out of memory");
}

int plx_reach_mark(struct plx_reach *reach, uint64_t addr, uint64_t count)
{
    uint64_t extent;

    addr = plx_addr_block(addr);
    extent = addr / reach->store->info.extent_blocks;
    if (extent >= reach->used.extents || !reach->counts[extent])
        return 0;
    if (count > reach->store->info.extent_blocks - addr % reach->store->info.extent_blocks)
        return plx_fault_set(reach->fault, PLX_ERR_CORRUPT,
                             "virtual disk %s: %llu blocks from block %llu on cross the end of an "
                             "extent",
                             reach->name, (unsigned long long)count, (unsigned long long)addr);
    return plx_blockmap_set(&reach->used, addr, count) ? 0 : no_memory(reach);
}

int plx_reach_believe(struct plx_reach *reach, bool whole)
{
    bool added = !whole || plx_blockmap_add(&reach->seen, &reach->own);

    plx_blockmap_clear(&reach->own);
    return added ? 0 : no_memory(reach);
}

/* Between two batches of nodes: lets disks at work go on, keeps to the rate, asks for interruption.
 */
static int take_turns(struct plx_reach *reach)
{
    uint64_t bytes = (reach->nodes << PLX_BLOCK_SHIFT) + reach->log_bytes;

    return plx_store_take_turns(reach->store, reach->turns, reach->begun_ns, bytes)
               ? 0
               : plx_fault_set(reach->fault, PLX_ERR_BUSY, "interrupted");
}

/* ---- Nodes ---- */

static int bad_node(const struct plx_reach *reach, uint64_t entry, const char *why)
{
    return plx_fault_set(reach->fault, PLX_ERR_CORRUPT,
                         "virtual disk %s: radix node at block %llu: %s", reach->name,
                         (unsigned long long)plx_entry_addr(entry), why);
}

/* REACH-1: an unreadable subtree is an error, never an empty one. */
static int check_node(const struct plx_reach *reach, uint64_t entry, unsigned level,
                      const uint8_t *node)
{
    uint32_t known = plx_entry_checksum(entry);

    if (known && plx_checksum24(plx_crc32c(node, PLX_BLOCK_SIZE)) != known)
        return bad_node(reach, entry, "checksum mismatch");
    if (!plx_format_node_valid(node, level, reach->store->addr_limit))
        return bad_node(reach, entry, "it names no block of the store");
    return 0;
}

struct child {
    uint64_t entry, index;
};

static int by_addr(const void *a, const void *b)
{
    uint64_t x = plx_entry_addr(((const struct child *)a)->entry);
    uint64_t y = plx_entry_addr(((const struct child *)b)->entry);

    return x < y ? -1 : x > y;
}

/* How many of the nodes follow each other on the store, within one extent. */
static size_t adjacent(const struct plx_reach *reach, const struct child *children, size_t count)
{
    uint64_t first = plx_entry_addr(children[0].entry), blocks = reach->store->info.extent_blocks;
    size_t n = 1;

    while (n < count && plx_entry_addr(children[n].entry) == first + n &&
           (first + n) / blocks == first / blocks)
        n++;
    return n;
}

/* Reads up to PLX_REACH_BATCH nodes, ordered by address, into the buffer of their level. */
static int read_nodes(struct plx_reach *reach, const struct child *children, size_t count,
                      unsigned level)
{
    struct plx_join join = {0};
    uint8_t *nodes = reach->nodes_at[level];
    unsigned xfers = 0;
    int error = take_turns(reach);

    for (size_t i = 0; i < count && !error;) {
        size_t run = adjacent(reach, children + i, count - i);

        reach->iovs[xfers] = (struct iovec){nodes + i * PLX_BLOCK_SIZE, run * PLX_BLOCK_SIZE};
        plx_store_xfer(reach->store, &reach->xfers[xfers], PLX_IO_READ, PLX_KIND_NODE,
                       plx_entry_addr(children[i].entry), 0, run * PLX_BLOCK_SIZE,
                       &reach->iovs[xfers], 1, &join);
        xfers++;
        i += run;
    }
    plx_store_run_until_zero(reach->store, &join.pending);
    if (!error && join.error)
        error = plx_fault_set(reach->fault, join.error, "virtual disk %s: reading radix nodes: %s",
                              reach->name, plx_error_text(join.error));
    for (size_t i = 0; i < count && !error; i++)
        error = check_node(reach, children[i].entry, level, nodes + i * PLX_BLOCK_SIZE);
    reach->nodes += count;
    return error;
}

/* Whether the subtree below this node was reached already (REACH-3). */
static bool known(const struct plx_reach *reach, uint64_t addr)
{
    uint64_t extent = addr / reach->store->info.extent_blocks;

    if (plx_blockmap_test(&reach->own, addr))
        return true;
    return reach->believe && plx_blockmap_test(&reach->seen, addr) &&
           !(reach->moving && reach->moving[extent]) && !plx_extent_used_again(reach->store, addr);
}

/* What a tree is walked for. */
struct walk {
    bool data; /* nodes and data; false: nodes alone (REACH-4) */
    /* Blocks that these changes replace do not count. NULL: all do. */
    const struct since_keyframe *since;
};

static bool was_replaced(const struct since_keyframe *since, uint64_t vblock);

static int walk_below(struct plx_reach *reach, const struct walk *walk, const uint8_t *node,
                      unsigned level, uint64_t index, bool *ret_all);

/* Walks the subtrees of the children. *ret_all: every block below them was marked, so `known` may
 * pass them over the next time. */
static int walk_nodes(struct plx_reach *reach, const struct walk *walk, struct child *children,
                      size_t count, unsigned level, bool *ret_all)
{
    int error = 0;

    qsort(children, count, sizeof *children, by_addr);
    for (size_t at = 0; at < count && !error; at += PLX_REACH_BATCH) {
        size_t now = plx_min_u64(count - at, PLX_REACH_BATCH);

        error = read_nodes(reach, children + at, now, level);
        for (size_t i = 0; i < now && !error; i++) {
            const struct child *child = &children[at + i];
            bool all = walk->data;

            error = walk_below(reach, walk, reach->nodes_at[level] + i * PLX_BLOCK_SIZE, level,
                               child->index, &all);
            if (!error && all && !plx_blockmap_set(&reach->own, plx_entry_addr(child->entry), 1))
                error = no_memory(reach);
            *ret_all = *ret_all && all;
        }
    }
    return error;
}

/* Marks a node. *ret_read: its subtree has to be read, because it was not reached before and blocks
 * below it count. */
static int meet_node(struct plx_reach *reach, const struct walk *walk, uint64_t entry,
                     unsigned level, bool *ret_read)
{
    uint64_t addr = plx_entry_addr(entry);

    *ret_read = (walk->data || level > 1) && !known(reach, addr);
    return plx_reach_mark(reach, addr, 1);
}

static int meet_data(struct plx_reach *reach, const struct walk *walk, uint64_t entry,
                     uint64_t vblock, bool *ret_all)
{
    PLX_ASSERT(walk->data); /* a walk of nodes alone reads no leaf */
    if (walk->since && was_replaced(walk->since, vblock)) {
        *ret_all = false;
        return 0;
    }
    return plx_reach_mark(reach, plx_entry_addr(entry), 1);
}

static int walk_below(struct plx_reach *reach, const struct walk *walk, const uint8_t *node,
                      unsigned level, uint64_t index, bool *ret_all)
{
    struct child children[PLX_NODE_ENTRIES];
    size_t count = 0;
    int error = 0;

    for (unsigned i = 0; i < PLX_NODE_ENTRIES && !error; i++) {
        uint64_t entry = plx_node_entry(node, i), at = index << PLX_NODE_SHIFT | i;
        bool read = false;

        if (!plx_entry_addr(entry))
            continue;
        error = level > 1 ? meet_node(reach, walk, entry, level - 1, &read)
                          : meet_data(reach, walk, entry, at, ret_all);
        if (read)
            children[count++] = (struct child){entry, at};
    }
    return error || !count ? error : walk_nodes(reach, walk, children, count, level - 1, ret_all);
}

static int walk_tree(struct plx_reach *reach, const struct walk *walk, uint64_t root,
                     unsigned levels)
{
    struct child child = {root & ~PLX_ENTRY_READ_ONLY, 0};
    bool read, all = true;
    int error;

    if (!plx_entry_addr(root))
        return 0;
    /* The decoders of VDI records and of the log let no other root pass. */
    PLX_ASSERT(plx_entry_addr(root) < reach->store->addr_limit && levels <= PLX_LEVELS_MAX);
    error = meet_node(reach, walk, child.entry, levels, &read);
    return error || !read ? error : walk_nodes(reach, walk, &child, 1, levels, &all);
}

static int walk_nodes_alone(struct plx_reach *reach, uint64_t root, unsigned levels)
{
    const struct walk walk = {.data = false};

    return walk_tree(reach, &walk, root, levels);
}

/* ---- What the log maps (REACH-2) ---- */

struct change {
    struct plx_hashtable_key vblock;
    uint64_t addr, seq; /* addr 0: unmapped; seq: the number of its batch */
    bool seen;          /* a snapshot sees the block as it is here */
};

struct span {
    uint64_t first, count, seq;
};

/* The changes since the key frame announced last. `fresh` keeps the cost of a snapshot down to what
 * changed since the snapshot before. */
struct since_keyframe {
    struct plx_hashtable table; /* the changes, by virtual block */
    uint64_t *fresh;            /* virtual blocks whose last change no snapshot has seen */
    size_t fresh_count, fresh_capacity;
    struct span *unmapped; /* long unmapped ranges; short ones are changes to address 0 */
    size_t unmapped_count, unmapped_capacity;
};

#define LONG_SPAN 64u /* blocks */

static struct change *change_at(const struct since_keyframe *c, uint64_t vblock)
{
    return plx_hashtable_at(&c->table, vblock);
}

static bool was_replaced(const struct since_keyframe *since, uint64_t vblock)
{
    for (size_t i = 0; i < since->unmapped_count; i++)
        if (vblock - since->unmapped[i].first < since->unmapped[i].count)
            return true;
    return since->table.capacity && change_at(since, vblock)->vblock.used;
}

static bool put_change(struct since_keyframe *c, uint64_t vblock, uint64_t addr, uint64_t seq)
{
    struct change *slot;

    if (!plx_hashtable_room(&c->table, sizeof *slot) ||
        !PLX_LIST_ROOM(c->fresh, c->fresh_count, c->fresh_capacity, 16))
        return false;
    slot = change_at(c, vblock);
    if (!slot->vblock.used || slot->seen)
        c->fresh[c->fresh_count++] = vblock;
    c->table.count += !slot->vblock.used;
    *slot = (struct change){.vblock = {vblock, true}, .addr = addr, .seq = seq};
    return true;
}

static bool put_unmap(struct since_keyframe *c, struct span span)
{
    for (uint64_t i = 0; i < span.count && span.count < LONG_SPAN; i++)
        if (!put_change(c, span.first + i, 0, span.seq))
            return false;
    if (span.count < LONG_SPAN)
        return true;
    if (!PLX_LIST_ROOM(c->unmapped, c->unmapped_count, c->unmapped_capacity, 16))
        return false;
    c->unmapped[c->unmapped_count++] = span;
    for (size_t i = 0; i < c->fresh_count; i++) /* a snapshot saw the others: they are marked */
        if (c->fresh[i] - span.first < span.count)
            change_at(c, c->fresh[i])->addr = 0;
    return true;
}

static bool is_younger(const void *element, uint64_t seq)
{
    return ((const struct change *)element)->seq > seq;
}

/* A key frame was announced: drops the changes that its tree includes. */
static bool drop_changes(struct since_keyframe *c, uint64_t upto_seq)
{
    size_t kept = 0;

    for (size_t i = 0; i < c->unmapped_count; i++)
        if (c->unmapped[i].seq > upto_seq)
            c->unmapped[kept++] = c->unmapped[i];
    c->unmapped_count = kept;
    if (c->table.count && !plx_hashtable_sift(&c->table, is_younger, upto_seq))
        return false;
    kept = 0;
    for (size_t i = 0; i < c->fresh_count; i++)
        if (change_at(c, c->fresh[i])->vblock.used)
            c->fresh[kept++] = c->fresh[i];
    c->fresh_count = kept;
    return true;
}

static void free_changes(struct since_keyframe *c)
{
    free(c->table.slots);
    free(c->fresh);
    free(c->unmapped);
    *c = (struct since_keyframe){0};
}

struct log_reach {
    struct plx_reach *reach;
    const struct plx_vdi_record *record;
    struct since_keyframe changes;
    struct plx_keyframe keyframe; /* the one announced last */
    bool walked;                  /* its tree was walked, with its data */
    uint64_t snapshots;           /* the last snapshot so far */
    uint64_t seq;                 /* the number of the batch being read */
};

/* Marks what a snapshot sees through the key frame announced last. */
static int walk_keyframe(struct log_reach *log)
{
    const struct walk walk = {.data = true, .since = &log->changes};
    int error = 0;

    if (!log->walked)
        error = walk_tree(log->reach, &walk, log->keyframe.root, log->keyframe.levels);
    log->walked = true;
    return error;
}

static int keep_nodes(struct log_reach *log)
{
    return log->walked ? 0 : walk_nodes_alone(log->reach, log->keyframe.root, log->keyframe.levels);
}

static int announced(struct log_reach *log, const struct plx_keyframe *keyframe)
{
    bool same = keyframe->pos == log->keyframe.pos && keyframe->root == log->keyframe.root;
    int error = 0;

    if (keyframe->pos < log->keyframe.pos || same || plx_keyframe_is_past(log->record, keyframe))
        return 0;
    if (log->snapshots > log->keyframe.snap_seq)
        error = keep_nodes(log);
    log->keyframe = *keyframe;
    log->walked = false;
    if (error)
        return error;
    return drop_changes(&log->changes, keyframe->batch_seq) ? 0 : no_memory(log->reach);
}

/* A kept snapshot sees everything that is mapped at this point of the log. */
static int seen_now(struct log_reach *log)
{
    struct since_keyframe *c = &log->changes;
    int error = walk_keyframe(log);

    for (size_t i = 0; i < c->fresh_count && !error; i++) {
        struct change *slot = change_at(c, c->fresh[i]);

        if (slot->vblock.used && slot->addr && !slot->seen)
            error = plx_reach_mark(log->reach, slot->addr, 1);
        slot->seen = true;
    }
    c->fresh_count = 0;
    return error;
}

static int mapped(struct log_reach *log, const struct plx_record *record)
{
    for (uint64_t i = 0; i < record->count; i++)
        if (!put_change(&log->changes, record->vblock + i, record->addr + i, log->seq))
            return no_memory(log->reach);
    /* REACH-5: counts whether or not it is replaced later. */
    return log->seq > log->record->keyframe.batch_seq
               ? plx_reach_mark(log->reach, record->addr, record->count)
               : 0;
}

static int visit(void *context, const struct plx_record *record)
{
    struct log_reach *log = context;
    int error;

    switch (record->type) {
    case PLX_RECORD_MAP:
        return mapped(log, record);
    case PLX_RECORD_UNMAP:
        return put_unmap(&log->changes, (struct span){record->vblock, record->count, log->seq})
                   ? 0
                   : no_memory(log->reach);
    case PLX_RECORD_SNAPSHOT:
        log->snapshots = record->seq;
        return record->seq > log->record->oldest.snap_seq ? seen_now(log) : 0;
    case PLX_RECORD_KEYFRAME:
    case PLX_RECORD_REWIND:
        error = announced(log, &record->keyframe);
        return error || !record->flag ? error : keep_nodes(log);
    default:
        return 0;
    }
}

static int read_log(struct log_reach *log, struct plx_log_reader *reader)
{
    uint64_t bytes = plx_log_segment_bytes(reader->store), segment = UINT64_MAX;
    int error;

    plx_log_reader_seek(reader, &log->record->oldest);
    while ((error = plx_log_reader_next(reader, log->reach->fault)) == 0) {
        if (reader->loaded != segment) {
            segment = reader->loaded;
            log->reach->log_bytes += bytes;
            error = announced(log, &reader->header.keyframe);
            if (!error)
                error = take_turns(log->reach);
        }
        log->seq = reader->batch_header.seq;
        if (!error)
            error = plx_log_batch_records(reader, visit, log, log->reach->fault);
        if (error)
            return error;
    }
    return error == PLX_ERR_NOT_FOUND ? 0 : error;
}

/* ---- A disk ---- */

static int mark_segments(struct plx_reach *reach, const struct plx_vdi_record *record,
                         const struct plx_log_reader *reader)
{
    uint64_t blocks = reach->store->info.segment_blocks;
    uint64_t named[] = {record->segment_addr, record->next_addr, reader->beyond};
    int error = 0;

    for (size_t i = 0; i < reader->count && !error; i++)
        if (reader->segments[i])
            error = plx_reach_mark(reach, reader->segments[i], blocks);
    for (size_t i = 0; i < sizeof named / sizeof named[0] && !error; i++)
        if (named[i]) /* opening the log has checked where it lies (REPLAY-3) */
            error = plx_reach_mark(reach, named[i], blocks);
    return error;
}

/* Marks the newest key frame; what the log has mapped since then, mapped() marks (REACH-5). */
static int walk_newest(struct plx_reach *reach, const struct plx_vdi_record *record)
{
    const struct walk walk = {.data = true};

    return walk_tree(reach, &walk, record->keyframe.root, record->keyframe.levels);
}

static int walk_log(struct plx_reach *reach, const struct plx_vdi_record *record)
{
    struct log_reach log = {.reach = reach, .record = record, .keyframe = record->oldest};
    struct plx_log_reader reader;
    int error = plx_log_reader_open(reach->store, record, &reader, reach->fault);

    if (error)
        return error;
    error = mark_segments(reach, record, &reader);
    if (!error)
        error = keep_nodes(&log);
    if (!error && record->segment_addr)
        error = read_log(&log, &reader);
    if (!error && log.snapshots > log.keyframe.snap_seq)
        error = keep_nodes(&log);
    free_changes(&log.changes);
    plx_log_reader_close(&reader);
    return error;
}

static int walk_rewinds(struct plx_reach *reach, const struct plx_vdi_record *record)
{
    const struct walk walk = {.data = true};
    int error = 0;

    for (uint32_t i = 0; i < record->rewinds && !error; i++)
        error = walk_tree(reach, &walk, record->rewind[i].root, record->rewind[i].levels);
    return error;
}

int plx_reach_vdi(struct plx_reach *reach, const struct plx_vdi_record *record)
{
    int error;

    reach->name = record->name;
    error = walk_nodes_alone(reach, record->index_root, record->index_levels);
    if (!error)
        error = walk_nodes_alone(reach, record->origin_root, record->origin_levels);
    if (!error)
        error = walk_rewinds(reach, record);
    if (!error)
        error = walk_newest(reach, record);
    return error ? error : walk_log(reach, record);
}
