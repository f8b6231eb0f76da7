/* reclaim_write.c - step 5 of reclaim.c: finds the blocks and nodes that come free, and writes the
 * stretch of log again without the snapshots that go (RECLAIM-1, RECLAIM-2, RECLAIM-3,
 * RECLAIM-4, RECLAIM-8, RECLAIM-10).
 *
 * work() reads the stretch once, batch by batch, and does both at the same time: versions.c follows
 * which version of each block lived from when to when, and rewrite.c takes the new records. Three
 * cases need different work:
 *
 *  case                                      blocks and nodes   log
 *  history can begin with a later base       come free          stays as it is, cut at the old end
 *  snapshots stay before those that go       come free          rewritten from base 0 to the end
 *  history begins with a rewind (RECLAIM-9)  left to garbage    stays as it is, cut at the old end
 *                                            collection
 */
#include <stdlib.h>
#include <string.h>

#include "engine/history/reclaim_inside.h"

/* ---- What the stretch began with ---- */

static struct plx_subtree tree_of(const struct base *base)
{
    return (struct plx_subtree){base->keyframe.root, base->keyframe.levels};
}

static struct plx_subtree origin_of(const struct reclaim *r)
{
    return (struct plx_subtree){r->record.origin_root, r->record.origin_levels};
}

static int base_entry(void *context, uint64_t vblock, uint64_t *ret_entry)
{
    struct reclaim *r = context;

    return plx_treewalk_entry(&r->walk, tree_of(&r->bases[0]), vblock, ret_entry);
}

static int base_each(void *context, uint64_t vblock, uint64_t count,
                     int (*visit)(void *argument, uint64_t vblock, uint64_t entry), void *argument)
{
    struct reclaim *r = context;

    return plx_treewalk_each(&r->walk, tree_of(&r->bases[0]), vblock, count, visit, argument);
}

/* RECLAIM-4: whether the block belongs to the tree that this clone began with. */
static int base_inherited(void *context, uint64_t vblock, uint64_t addr, bool *ret_inherited)
{
    struct reclaim *r = context;
    uint64_t entry = 0;
    int error =
        r->record.origin_levels ? plx_treewalk_entry(&r->walk, origin_of(r), vblock, &entry) : 0;

    *ret_inherited = plx_entry_addr(entry) == addr;
    return error;
}

static void begin_versions(struct reclaim *r)
{
    uint64_t before = r->reader.cursor.snap_seq;

    /* If a snapshot stays before those that go, that snapshot sees every block of the first base
     * which was born before it: birth 0 and kept 1 say so. Any younger block is met in the log
     * (RECLAIM-10: where reading begins before the first base). Without such a snapshot, only
     * snapshots behind the first base can see its blocks. */
    r->versions = (struct plx_versions){
        .gen = before,
        .kept = r->previous ? 1 : 0,
        .base_birth = r->previous ? 0 : before,
        .base = {base_entry, base_each, base_inherited, r},
        .freed = &r->drop.blocks,
    };
}

/* ---- Writing what stays ---- */

/* How many of the fresh blocks from `at` on follow each other on the disk and on the store, so that
 * one record can name them all. */
static uint32_t run_at(const struct reclaim *r, size_t at, uint32_t max)
{
    const struct plx_versions *v = &r->versions;
    struct plx_version first = *plx_versions_at(v, v->fresh[at]);
    uint64_t extent = first.addr / r->store->info.extent_blocks;
    uint32_t count = 1;

    while (at + count < v->fresh_count && count < max) {
        const struct plx_version *next = plx_versions_at(v, v->fresh[at + count]);

        if (next->vblock.number != first.vblock.number + count || next->voided != first.voided ||
            next->addr != (first.addr ? first.addr + count : 0) ||
            next->addr / r->store->info.extent_blocks != extent)
            break;
        count++;
    }
    return count;
}

static int put_map(struct reclaim *r, size_t at, uint32_t count)
{
    const struct plx_versions *v = &r->versions;
    struct plx_version first = *plx_versions_at(v, v->fresh[at]);
    uint32_t checksums[PLX_RECORD_MAP_MAX];
    void *room;
    int error = plx_rewrite_room(&r->rewrite, plx_record_bytes(PLX_RECORD_MAP, count), &room);

    if (error)
        return error;
    for (uint32_t i = 0; i < count; i++)
        checksums[i] = plx_versions_at(v, v->fresh[at + i])->checksum;
    plx_record_put_map(room, first.vblock.number, count, first.addr, checksums);
    r->mappings += count;
    return 0;
}

static int put_unmap(struct reclaim *r, uint64_t vblock, uint32_t count)
{
    void *room;
    int error = plx_rewrite_room(&r->rewrite, plx_record_bytes(PLX_RECORD_UNMAP, 0), &room);

    if (!error)
        plx_record_put_unmap(room, vblock, count);
    return error;
}

static int put_fresh(struct reclaim *r, bool voided)
{
    const struct plx_versions *v = &r->versions;
    uint32_t count;
    int error = 0;

    for (size_t at = 0; at < v->fresh_count && !error; at += count) {
        const struct plx_version *version = plx_versions_at(v, v->fresh[at]);

        count = run_at(r, at, version->addr ? PLX_RECORD_MAP_MAX : PLX_RECORD_UNMAP_MAX);
        if (version->voided == voided)
            error =
                version->addr ? put_map(r, at, count) : put_unmap(r, version->vblock.number, count);
    }
    return error;
}

static int put_voids(struct reclaim *r)
{
    const struct plx_versions *v = &r->versions;
    int error = 0;

    for (size_t at = 0; at < v->leaf_count && !error; at++) {
        void *room;

        if (at && v->leaves[at] == v->leaves[at - 1])
            continue;
        error = plx_rewrite_room(&r->rewrite, plx_record_bytes(PLX_RECORD_VOID, 0), &room);
        if (!error)
            plx_record_put_void(room, v->leaves[at], 1);
    }
    return error;
}

/* Writes what has changed since the last call: only the last version of each block. A VOID record
 * voids a whole leaf, so the order matters: blocks without a true checksum, then the VOID records,
 * then blocks whose checksum still holds. */
static int put_changes(struct reclaim *r)
{
    int error;

    plx_versions_sort_fresh(&r->versions);
    error = put_fresh(r, true);
    if (!error)
        error = put_voids(r);
    if (!error)
        error = put_fresh(r, false);
    plx_versions_settle(&r->versions);
    return error;
}

static int put_label(struct reclaim *r, const struct plx_record *record)
{
    void *room;
    int error;

    if (!record->flag && plx_reclaim_contains(r->gone, r->gone_count, record->seq))
        return 0;
    error = plx_rewrite_room(&r->rewrite, plx_record_bytes(PLX_RECORD_LABEL, strlen(record->label)),
                             &room);
    if (!error)
        plx_record_put_label(room, record->seq, record->label, record->flag);
    return error;
}

static int put_resize(struct reclaim *r, const struct plx_record *record)
{
    void *room;
    int error = plx_rewrite_room(&r->rewrite, plx_record_bytes(PLX_RECORD_RESIZE, 0), &room);

    if (!error)
        plx_record_put_resize(room, record->size_bytes);
    return error;
}

static int put_snapshot(struct reclaim *r, const struct plx_record *record)
{
    int error = put_changes(r);

    r->stayed = record->seq;
    return error ? error : plx_rewrite_snapshot(&r->rewrite, record->seq, record->time_ns);
}

/* ---- The stretch ---- */

/* Announces the kept base in the rewritten log exactly where the old log announced it, so that each
 * snapshot keeps its base (RECLAIM-6). */
static int announced(struct reclaim *r, const struct plx_keyframe *keyframe)
{
    struct base *base = &r->kept;

    if (!r->writing || !base->placed || base->keyframe.pos != keyframe->pos ||
        base->keyframe.root != keyframe->root)
        return 0;
    base->placed = false;
    return plx_rewrite_announce(&r->rewrite, &base->moved);
}

static int work_on(void *context, const struct plx_record *record)
{
    struct reclaim *r = context;
    bool stays;
    int error;

    switch (record->type) {
    case PLX_RECORD_MAP:
    case PLX_RECORD_UNMAP:
    case PLX_RECORD_VOID:
        error = plx_versions_apply(&r->versions, record);
        return error == PLX_ERR_NOMEM ? plx_reclaim_no_memory(r) : error;
    case PLX_RECORD_SNAPSHOT:
        stays = !plx_reclaim_contains(r->gone, r->gone_count, record->seq);
        plx_versions_snapshot(&r->versions, record->seq, stays);
        if (!r->writing)
            plx_versions_settle(&r->versions);
        return r->writing && stays ? put_snapshot(r, record) : 0;
    case PLX_RECORD_LABEL:
        return r->writing ? put_label(r, record) : 0;
    case PLX_RECORD_RESIZE:
        return r->writing ? put_resize(r, record) : 0;
    case PLX_RECORD_KEYFRAME:
    case PLX_RECORD_REWIND:
        return announced(r, &record->keyframe);
    case PLX_RECORD_SKIP:
    case PLX_RECORD_RING: /* only recovery needs it, which begins behind all that is rewritten */
        break;
    }
    return 0;
}

/* Frees the nodes of a base that goes (RECLAIM-3, RECLAIM-4). */
static int drop_base(struct reclaim *r, size_t at)
{
    size_t before = r->drop.blocks.count;
    bool first = at < r->from;
    int error = plx_treewalk_nodes(&r->walk, tree_of(&r->bases[at]), tree_of(&r->bases[at + 1]),
                                   first ? origin_of(r) : tree_of(&r->kept), &r->drop.blocks);

    r->nodes += r->drop.blocks.count - before;
    return error;
}

/* Whether a base is kept: somebody reads through it, or without it too much log would have to be
 * replayed from the kept base before it, or the caller wants key frames at least so close. */
static bool base_stays(const struct reclaim *r, size_t at)
{
    const struct plx_keyframe *next = &r->bases[at + 1].keyframe, *kept = &r->kept.keyframe;
    uint64_t apart_ns = r->thin->keyframes_ns;

    return plx_reclaim_is_read(r, &r->bases[at]) ||
           r->mappings >= r->store->options.keyframe_mappings ||
           next->snap_seq - kept->snap_seq > PLX_OVERLAY_GENS / 2 ||
           (apart_ns && next->time_ns > kept->time_ns + apart_ns);
}

/* RECLAIM-10: whether the first base stays. It may go only if the stretch before ended with it, for
 * only then the mark knows the kept base before it. */
static bool beginning_stays(struct reclaim *r)
{
    const struct plx_keyframe *keyframe = &r->bases[r->from].keyframe;

    return !r->mark || !r->mark->before.levels || r->mark->from.pos != keyframe->pos ||
           r->mark->from.root != keyframe->root || base_stays(r, r->from);
}

static int begin_writing(struct reclaim *r)
{
    const struct plx_keyframe *from = &r->bases[r->from].keyframe;

    r->begin_writing = false;
    r->writing = true;
    r->rewrite = (struct plx_rewrite){
        .store = r->store,
        .reader = &r->reader,
        .from = *from,
        .to = r->bases[r->end].keyframe,
        .epoch = r->reader.batch_header.epoch,
        .first = !r->previous,
        .limit = r->limit,
        .fault = r->fault,
    };
    return plx_rewrite_begin(&r->rewrite);
}

static int end_writing(struct reclaim *r)
{
    int error = put_changes(r);

    if (!error)
        error = plx_rewrite_end(&r->rewrite);
    r->writing = false;
    return error;
}

/* From here on this is the last kept base; announced() announces it. */
static void keep_base(struct reclaim *r, size_t at)
{
    r->kept = r->bases[at];
    r->kept.moved = r->kept.keyframe;
    r->kept.placed = true;
    r->mappings = 0;
}

/* The log has reached the base from which on it is rewritten. */
static int begin_rest(struct reclaim *r)
{
    plx_versions_settle(&r->versions);
    r->begin_writing = true;
    if (r->mark && r->mark->before.levels) {
        r->kept = (struct base){.keyframe = r->mark->before};
        r->mappings = r->mark->mappings;
    }
    if (!beginning_stays(r))
        return drop_base(r, r->from);
    keep_base(r, r->from);
    return 0;
}

/* The log has reached a base: it stays, it goes, or the rewritten part begins or ends with it. */
static int pass_base(struct reclaim *r, size_t at)
{
    int error;

    if (at == r->end)
        return r->writing ? end_writing(r) : 0;
    if (at < r->from)
        return drop_base(r, at);
    if (at == r->from)
        return begin_rest(r);
    if (!base_stays(r, at))
        return drop_base(r, at);
    error = put_changes(r);
    keep_base(r, at);
    return error ? error : plx_rewrite_place(&r->rewrite, &r->kept.moved);
}

static int pass_bases(struct reclaim *r)
{
    int error = 0;

    while (!error && r->passed <= r->end &&
           r->reader.cursor.seq > r->bases[r->passed].keyframe.batch_seq)
        error = pass_base(r, r->passed++);
    return error;
}

/* Reading goes on behind the end up to the next snapshot, which stays. A block that dies before
 * that snapshot may have been seen only by snapshots that go. */
static bool is_done(const struct reclaim *r)
{
    return r->passed > r->end && (!r->gone_count || r->versions.kept > r->gone[r->gone_count - 1] ||
                                  r->reader.cursor.seq > r->last_batch);
}

/* Where reading begins: at the first base (RECLAIM-1), or, thrifty, at the batch of the last
 * snapshot that stays, if that lies before the first base (RECLAIM-10). */
struct plx_log_cursor plx_reclaim_beginning(const struct reclaim *r)
{
    const struct plx_keyframe *first = &r->bases[0].keyframe;

    return r->thin->thrifty && r->previous && r->begin.seq <= first->batch_seq
               ? r->begin
               : plx_reclaim_behind(first);
}

static int work(struct reclaim *r)
{
    int error;

    r->reader.cursor = plx_reclaim_beginning(r);
    r->reader.epoch = 0;
    begin_versions(r);
    error = pass_bases(r);
    while (!error && !is_done(r)) {
        error = plx_reclaim_next_batch(r);
        if (!error && r->begin_writing)
            error = begin_writing(r);
        if (!error && r->writing)
            error = announced(r, &r->reader.header.keyframe);
        if (!error)
            error = plx_log_batch_records(&r->reader, work_on, r, r->fault);
        if (!error)
            error = pass_bases(r);
    }
    return error;
}

/* If no snapshot stays before those that go, history can begin with a later base: the last one
 * before the first snapshot that stays, unless somebody reads through one before it. Then the call
 * does only that and writes no log. */
static void choose_beginning(struct reclaim *r)
{
    r->gone_count = r->gone_before_end;
    r->from = 0;
    if (r->previous)
        return;
    for (size_t i = 1;
         i <= r->end && r->bases[i].whole && !plx_reclaim_is_read(r, &r->bases[i - 1]); i++)
        if (!r->first_stays || r->bases[i].keyframe.snap_seq < r->first_stays)
            r->from = i;
    if (!r->from)
        return;
    r->end = r->from;
    while (r->gone_count && r->gone[r->gone_count - 1] > r->bases[r->end].keyframe.snap_seq)
        r->gone_count--;
    r->drop.oldest = r->bases[r->end].keyframe;
}

/* RECLAIM-9: whether history begins with a rewind's key frame, because no stretch ends before it.
 */
bool plx_reclaim_begins_with_rewind(const struct reclaim *r)
{
    return r->rewound.levels && (!r->end || r->bases[r->end].keyframe.pos > r->rewound.pos);
}

int plx_reclaim_begin_with_rewind(struct reclaim *r)
{
    int error = 0;

    r->drop.oldest = r->rewound;
    r->bases[0] = (struct base){.keyframe = r->rewound, .whole = true};
    r->base_count = 1;
    r->end = 0;
    r->gone_count = 0;
    for (size_t i = 0; i < r->past_count && r->past[i] <= r->rewound.snap_seq && !error; i++)
        error = plx_reclaim_push_number(r, &r->gone, &r->gone_count, &r->gone_capacity, r->past[i]);
    return error;
}

int plx_reclaim_work_on_stretch(struct reclaim *r)
{
    choose_beginning(r);
    return work(r);
}
