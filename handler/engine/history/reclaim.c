/* reclaim.c - see reclaim.h.
 *
 * C1  A stretch of history that is worked on begins and ends at key frames. It begins at the one
 *     before the last snapshot that stays before the first one that goes, or where history begins;
 *     it ends at one behind the last that goes. So who sees what dies in it is known (versions.c).
 *     If what stays does not fit between the two, it ends at a later one, or they do not go.
 * C2  Of a key frame that is not kept whole the nodes that the next one replaced are free already
 *     (keyframe.c, K3). Which those are follows from the log: no snapshot came between it and the
 *     announcement of the next. Where snapshots went the announcement says that it is whole.
 * C3  Of key frames that go, those nodes come back that the ones on either side do not have.
 * C4  What a clone began with is its parent's, at least in part: never freed here.
 * C5  Nothing is free, and no log has moved, before a record is durable that says so. Before that
 *     record is written nobody may begin to use what goes.
 * C6  What the caller names (labelled, cloned, read elsewhere) and what is open here stays. So does
 *     the key frame through which it is read, the last one announced before it: what is written
 *     anew keeps the order of snapshots and announcements, so that it is the same one ever after.
 *     Of a clone the caller knows for as long as any disk may have what it had: longer than the
 *     clone itself, if that was cloned.
 * C7  The newest snapshot stays: what it alone sees dies later, and nobody would look there again.
 * C8  No stretch reaches across a rewind: there blocks come back to life, and the log does not say
 *     which. They are those of the snapshot that it went to; that one is held, and counts as the
 *     one before all that come after the rewind. The last one before a rewind is the newest of its
 *     time (C7).
 * C9  When nothing else before a rewind can go, and all that is left there may, history begins with
 *     that rewind's key frame: it is whole, for all of it is read-only. What rewinds up to it went
 *     to is held by them alone, and goes with them. So a snapshot behind it sees only what that
 *     tree names or the log behind it maps. What nobody has then is not looked for: blocks came to
 *     life again there, and a collection knows how to. It is no more anybody's to free: what dies
 *     behind that key frame before a snapshot saw it does not come back here either (versions.c,
 *     N1).
 * C10 Thrifty: a stretch begins at the last key frame before the first snapshot that goes, where
 *     the one before ended, so that nothing is written anew twice. What was born after the last
 *     snapshot that stays is met all the same: the log is read from that snapshot's batch on (C1).
 *     The key frame goes, too, if nobody needs it: it is not announced where the log is written
 *     anew behind it, so snapshots there are read through the one before, and its nodes come back
 *     by C3. Where the next stretch begins, a mark says; where it ends, thrift.c, but there, too, a
 *     key frame counts from its announcement on only (C6). If a stretch does
 *     not fit its snapshots stay. What lies before the mark stays, whatever is asked for: reading
 *     begins at the last snapshot there, and if that one went, nothing would tell of those before.
 *
 * Synchronous; runs the loop while it reads and writes, so the disk goes on. What the log and the
 * trees say below the record's key frame does not change meanwhile.
 * Crash story: before the record flips nothing has changed, and what was written anew is a leak;
 *   after it, blocks not yet free on the store are leaks that a sweep finds.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/disk/vdi.h"
#include "engine/history/rewrite.h"
#include "engine/history/thrift.h"
#include "engine/history/versions.h"
#include "engine/log/replay.h"
#include "engine/map/treewalk.h"

#define SLICE_SEGMENTS 64u /* of log worked on at a time, or somewhat more */
#define SHELF_SEGMENTS 24u /* of them in memory: a stretch that is worth it, and its ends */
#define SETTLE_TRIES 8u
#define REACH_TRIES 4u

struct base {
    struct plx_keyframe keyframe;
    bool whole;  /* a snapshot came after it: it stays so */
    bool needed; /* somebody reads through it */
    bool placed; /* where it lies now it is still to be announced */
    struct plx_keyframe moved;
};

/* Where a stretch may end, from one try to the next. */
struct reach {
    uint64_t behind; /* this position: nearer it was FULL, */
    uint64_t upto;   /* and snapshots up to this one stay, if there is no later end */
    bool all;        /* a key frame was written behind all of the log */
    /* Before the first try: of these the caller knew (C5, C6). */
    uint64_t labels_ended, clones_made;
};

struct reclaim {
    struct plx_vdi *vdi;
    struct plx_store *store;
    const struct plx_thin *thin;
    struct plx_thinned *thinned;
    struct reach *reach;
    struct plx_vdi_record record; /* as it was at the start */
    uint64_t last_batch;          /* applied by then, */
    uint64_t limit;               /* in this segment */
    struct plx_log_reader reader;
    struct plx_log_shelf shelf;
    struct plx_treewalk walk;
    uint64_t *held; /* C6, ascending */
    size_t held_count, held_capacity;
    /* C10, when thrifty: */
    struct plx_thrift_mark *mark;
    uint64_t after;              /* the caller's, or further: what a mark has passed stays */
    struct plx_keyframe planned; /* the stretch ends there, or further; levels 0: anywhere */
    struct plx_log_cursor at;    /* the batch that is being read */
    struct plx_log_cursor begin; /* of the last snapshot that stays: its batch */
    uint64_t too_young_ns;       /* the first snapshot that is; 0: none was met */
    /* What was found: */
    struct base *bases; /* C1, oldest first */
    size_t base_count, base_capacity;
    size_t end;             /* of bases: where the stretch ends; 0: not found */
    uint64_t previous;      /* the last snapshot before those that go; 0: none */
    uint64_t first_stays;   /* the first one behind the first that goes; 0: none */
    uint64_t seen, seen_ns; /* the last one read */
    uint64_t *gone;         /* ascending */
    size_t gone_count, gone_capacity;
    size_t gone_before_end;
    unsigned segments_read;
    bool looked_enough, at_rewind;
    /* C9: */
    bool all_may_go; /* from the beginning up to here, but for what rewinds hold */
    uint64_t *past;  /* these, ascending */
    size_t past_count, past_capacity;
    struct plx_keyframe rewound; /* history can begin with this one; levels 0: with none */
    /* While it is worked on: */
    struct plx_versions versions;
    struct plx_rewrite rewrite;
    size_t from;      /* of bases: with that the rest begins */
    size_t passed;    /* bases so far */
    struct base kept; /* the last one that stays */
    uint64_t stayed;  /* the last snapshot written; 0: none */
    bool begin_writing, writing;
    uint64_t mappings; /* written since the last base */
    struct plx_history_drop drop;
    uint64_t nodes; /* of drop.blocks */
    struct plx_fault *fault;
};

static int no_memory(const struct reclaim *r)
{
    return plx_fault_set(r->fault, PLX_ERR_NOMEM, "out of memory");
}

static int push_number(struct reclaim *r, uint64_t **list, size_t *count, size_t *capacity,
                       uint64_t number)
{
    if (*count == *capacity) {
        size_t more = *capacity ? *capacity * 2 : 64;
        uint64_t *bigger = realloc(*list, more * sizeof *bigger);

        if (!bigger)
            return no_memory(r);
        *list = bigger;
        *capacity = more;
    }
    (*list)[(*count)++] = number;
    return 0;
}

static bool contains(const uint64_t *list, size_t count, uint64_t number)
{
    return count && bsearch(&number, list, count, sizeof *list, plx_compare_u64);
}

/* ---- What holds snapshots (C6) ---- */

static int hold(struct reclaim *r, uint64_t seq)
{
    return push_number(r, &r->held, &r->held_count, &r->held_capacity, seq);
}

static int each_reader(struct reclaim *r, int (*each)(struct reclaim *r, uint64_t seq))
{
    int error = 0;

    for (const struct plx_vdi *vdi = r->store->vdis; vdi && !error; vdi = vdi->next)
        if (vdi->snapshot && vdi->record.slot == r->record.slot)
            error = each(r, vdi->map.gen);
    return error;
}

static int find_holds(struct reclaim *r)
{
    int error = 0;

    for (size_t i = 0; i < r->thin->kept_count && !error; i++)
        error = hold(r, r->thin->kept[i]);
    for (uint32_t i = 0; i < r->record.rewinds && !error; i++)
        error = hold(r, r->record.rewind[i].seq);
    if (!error)
        error = each_reader(r, hold);
    if (!error && r->held_count)
        qsort(r->held, r->held_count, sizeof *r->held, plx_compare_u64);
    return error;
}

static int must_be_held(struct reclaim *r, uint64_t seq)
{
    return seq > r->drop.oldest.snap_seq && contains(r->held, r->held_count, seq) ? 0
                                                                                  : PLX_ERR_BUSY;
}

/* With no snapshot kept, history moves on with every key frame, and its log is used again. */
static bool history_moved(const struct reclaim *r)
{
    return r->vdi->record.oldest.pos != r->record.oldest.pos ||
           r->vdi->record.oldest.root != r->record.oldest.root;
}

/* The stretch ends at the newest key frame, and a newer one came, which may have replaced it. */
static bool end_moved(const struct reclaim *r)
{
    return r->base_count && !r->bases[r->end].whole &&
           r->vdi->record.keyframe.batch_seq > r->bases[r->end].keyframe.batch_seq;
}

/* C5: somebody came meanwhile who may use what goes. */
static int check_undisturbed(struct reclaim *r)
{
    int error = r->vdi->labels_begun != r->reach->labels_ended || r->store->instants_opening ||
                        r->store->clones_made != r->reach->clones_made || history_moved(r) ||
                        end_moved(r)
                    ? PLX_ERR_BUSY
                    : 0;

    if (!error)
        error = each_reader(r, must_be_held);
    return error == PLX_ERR_BUSY
               ? plx_fault_set(r->fault, error,
                               "virtual disk %s: its snapshots came into use meanwhile; try again",
                               r->record.name)
               : error;
}

/* ---- Reading the log ---- */

/* One that was applied: if the log ends before it, it is damaged, or it has moved on. */
static int next_batch(struct reclaim *r)
{
    int error = plx_log_reader_next(&r->reader, r->fault);

    return error == PLX_ERR_NOT_FOUND
               ? plx_fault_set(r->fault, PLX_ERR_CORRUPT,
                               "virtual disk %s: its log ends before batch %llu", r->record.name,
                               (unsigned long long)r->reader.cursor.seq)
               : error;
}

/* The records of the batch that was read. */
static int each_record(struct reclaim *r,
                       int (*visit)(struct reclaim *r, const struct plx_record *record))
{
    struct plx_log_reader *reader = &r->reader;
    size_t offset = PLX_BATCH_HEADER_BYTES;
    int error = 0;

    for (uint32_t i = 0; i < reader->batch_header.records && !error; i++) {
        struct plx_record record;

        error = plx_record_next(reader->batch, &reader->batch_header, &offset, r->store->addr_limit,
                                &record);
        if (error)
            return plx_fault_set(r->fault, error, "virtual disk %s: impossible log record",
                                 r->record.name);
        error = visit(r, &record);
    }
    return error;
}

/* ---- Which go, and which key frames there are (C1, C2) ---- */

/* Where the log goes on behind a key frame. */
static struct plx_log_cursor behind(const struct plx_keyframe *keyframe)
{
    return (struct plx_log_cursor){.pos = keyframe->pos,
                                   .seq = keyframe->batch_seq + 1,
                                   .hash = keyframe->prev_hash,
                                   .snap_seq = keyframe->snap_seq};
}

static int push_base(struct reclaim *r, const struct plx_keyframe *keyframe)
{
    if (r->base_count == r->base_capacity) {
        size_t bigger = r->base_capacity ? r->base_capacity * 2 : 16;
        struct base *bases = realloc(r->bases, bigger * sizeof *bases);

        if (!bases)
            return no_memory(r);
        r->bases = bases;
        r->base_capacity = bigger;
    }
    r->bases[r->base_count++] =
        (struct base){.keyframe = *keyframe, .whole = r->seen > keyframe->snap_seq};
    return 0;
}

/* C7: the newest one that was read stays. */
static void newest_stays(struct reclaim *r)
{
    if (!r->gone_count || r->gone[r->gone_count - 1] != r->seen)
        return;
    r->gone_count--;
    r->first_stays = r->first_stays ? r->first_stays : r->seen;
}

static bool in_range(const struct reclaim *r, uint64_t seq, uint64_t time_ns)
{
    return seq > r->after && seq <= r->thin->upto &&
           (!r->thin->before_ns || time_ns < r->thin->before_ns);
}

/* What time says of it is not true (witness.c, N5). */
static bool stays_undated(const struct reclaim *r, uint64_t seq)
{
    const struct plx_thin *thin = r->thin;

    return thin->before_ns &&
           plx_witness_keeps(&r->vdi->witness, seq, thin->before_ns, thin->every_ns);
}

static bool goes(const struct reclaim *r, uint64_t seq, uint64_t time_ns)
{
    uint64_t every = r->thin->every_ns;

    if (r->thin->rewinds_only || !in_range(r, seq, time_ns) ||
        contains(r->held, r->held_count, seq) || stays_undated(r, seq))
        return false;
    return !every || (r->seen && time_ns / every == r->seen_ns / every);
}

static bool is_read(const struct reclaim *r, const struct base *base)
{
    bool open = false;

    for (const struct plx_vdi *vdi = r->store->vdis; vdi && !open; vdi = vdi->next)
        open = vdi->snapshot && vdi->record.slot == r->record.slot &&
               vdi->map.base.root == base->keyframe.root;
    return open || base->needed;
}

/* The stretch can end at the last key frame: a snapshot that stays follows it, or came before it
 * and stays (C7). */
static void end_here(struct reclaim *r)
{
    const struct plx_keyframe *last = &r->bases[r->base_count - 1].keyframe;
    size_t before = r->gone_count;

    while (before && r->gone[before - 1] > last->snap_seq)
        before--;
    if (r->base_count < 2 || !before || last->pos <= r->reach->behind)
        return;
    r->end = r->base_count - 1;
    r->gone_before_end = before;
}

/* Where the last rewind up to a position stands (C8); 0: there was none. */
static uint64_t last_rewind(const struct reclaim *r, uint64_t pos)
{
    uint64_t last = 0;

    for (uint32_t i = 0; i < r->record.rewinds; i++)
        if (r->record.rewind[i].pos <= pos)
            last = plx_max_u64(last, r->record.rewind[i].pos);
    return last;
}

/* And which snapshot it went to. */
static uint64_t went_to(const struct reclaim *r, uint64_t pos)
{
    uint64_t last = last_rewind(r, pos), seq = 0;

    for (uint32_t i = 0; i < r->record.rewinds; i++)
        if (r->record.rewind[i].pos == last)
            seq = r->record.rewind[i].seq;
    return seq;
}

/* By somebody else than a rewind. */
static bool in_use(const struct reclaim *r, uint64_t seq)
{
    bool used = contains(r->thin->kept, r->thin->kept_count, seq);

    for (const struct plx_vdi *vdi = r->store->vdis; vdi && !used; vdi = vdi->next)
        used = vdi->snapshot && vdi->record.slot == r->record.slot && vdi->map.gen == seq;
    return used;
}

/* C9 */
static int note_past(struct reclaim *r, uint64_t seq, uint64_t time_ns)
{
    r->all_may_go =
        r->all_may_go && in_range(r, seq, time_ns) && !in_use(r, seq) && !stays_undated(r, seq);
    return r->all_may_go ? push_number(r, &r->past, &r->past_count, &r->past_capacity, seq) : 0;
}

/* C9, C7 */
static bool can_begin_with(const struct reclaim *r, const struct plx_keyframe *keyframe)
{
    const struct plx_vdi_record *record = &r->record;
    bool can = false;

    for (uint32_t i = 0; i < record->rewinds; i++) {
        const struct plx_rewind *rewind = &record->rewind[i];

        if (rewind->pos == keyframe->pos)
            can = rewind->root == keyframe->root;
        else if (rewind->pos > keyframe->pos && rewind->seq <= keyframe->snap_seq)
            return false; /* that one went to an instant before */
    }
    return can && r->all_may_go && r->vdi->map.gen > keyframe->snap_seq;
}

/* C8: the stretch ends before it, or begins with it. */
static int reach_rewind(struct reclaim *r, const struct plx_keyframe *keyframe)
{
    if (can_begin_with(r, keyframe))
        r->rewound = *keyframe;
    newest_stays(r);
    r->at_rewind = r->looked_enough = r->gone_count != 0;
    if (r->gone_count) {
        end_here(r);
        return 0;
    }
    r->base_count = 0;
    r->first_stays = 0;
    r->previous = went_to(r, keyframe->pos);
    r->begin = behind(keyframe);
    return push_base(r, keyframe);
}

/* C10: no snapshot before it goes. */
static bool begins_stretch(const struct reclaim *r, const struct plx_keyframe *keyframe)
{
    return r->thin->thrifty && r->previous && (!r->gone_count || r->gone[0] > keyframe->snap_seq);
}

/* The log names a key frame. */
static int base_appears(struct reclaim *r, const struct plx_keyframe *keyframe, bool whole)
{
    struct base *last = &r->bases[r->base_count - 1];
    bool same = keyframe->pos == last->keyframe.pos && keyframe->root == last->keyframe.root;
    int error = 0;

    if (keyframe->pos < last->keyframe.pos || r->looked_enough ||
        plx_keyframe_is_past(&r->record, keyframe))
        return 0;
    if (keyframe->pos > last->keyframe.pos && last_rewind(r, keyframe->pos) > last->keyframe.pos)
        return reach_rewind(r, keyframe);
    if (!same && last->whole && begins_stretch(r, keyframe))
        r->base_count = 0;
    if (!same && last->whole)
        error = push_base(r, keyframe);
    else if (!same)
        *last = (struct base){.keyframe = *keyframe, .whole = r->seen > keyframe->snap_seq};
    if (!error && whole)
        r->bases[r->base_count - 1].whole = true;
    return error;
}

/* Whether what was found is worth stopping for, now that this snapshot was reached. */
static bool enough(const struct reclaim *r, uint64_t seq, uint64_t time_ns)
{
    bool slice = r->segments_read > SLICE_SEGMENTS;
    bool planned = r->planned.levels && seq > r->planned.snap_seq &&
                   r->bases[r->base_count - 1].keyframe.pos >= r->planned.pos;

    if (planned && (r->end || !r->gone_count || r->gone[0] > r->planned.snap_seq))
        return true;
    if (seq > r->after && !in_range(r, seq, time_ns) &&
        ((r->thin->before_ns && !r->reach->behind) || r->gone_before_end == r->gone_count))
        return true;
    return slice && (r->end || (!r->gone_count && !r->all_may_go));
}

static int look_at_snapshot(struct reclaim *r, uint64_t seq, uint64_t time_ns)
{
    struct base *last = &r->bases[r->base_count - 1];
    bool gone = goes(r, seq, time_ns);
    int error;

    error = note_past(r, seq, time_ns);
    if (error)
        return error;
    last->whole = last->whole || seq > last->keyframe.snap_seq;
    last->needed = last->needed || contains(r->held, r->held_count, seq);
    if (r->gone_count)
        end_here(r);
    if (!r->too_young_ns && r->thin->before_ns && time_ns >= r->thin->before_ns)
        r->too_young_ns = time_ns;
    r->looked_enough = enough(r, seq, time_ns);
    if (r->looked_enough)
        return 0;
    if (gone) {
        error = push_number(r, &r->gone, &r->gone_count, &r->gone_capacity, seq);
    } else if (r->gone_count) {
        r->first_stays = r->first_stays ? r->first_stays : seq;
    } else {
        r->previous = seq;
        r->bases[0] = *last;
        r->base_count = 1;
        r->begin = r->at;
        r->begin.snap_seq = seq - 1;
    }
    r->seen = seq;
    if (!stays_undated(r, seq)) /* it is not the first of its period */
        r->seen_ns = time_ns;
    return error;
}

static int look(struct reclaim *r, const struct plx_record *record)
{
    switch (record->type) {
    case PLX_RECORD_KEYFRAME:
    case PLX_RECORD_REWIND:
        return base_appears(r, &record->keyframe, record->flag);
    case PLX_RECORD_SNAPSHOT:
        return r->looked_enough || record->seq <= r->record.oldest.snap_seq
                   ? 0
                   : look_at_snapshot(r, record->seq, record->time_ns);
    default:
        return 0;
    }
}

struct last_snapshot {
    uint64_t upto, after; /* looked for: the last one of these */
    uint64_t seq;
};

static bool note_snapshot(void *context, const struct plx_record *record)
{
    struct last_snapshot *last = context;

    if (record->type != PLX_RECORD_SNAPSHOT)
        return true;
    if (record->seq > last->after && record->seq <= last->upto)
        last->seq = record->seq;
    return record->seq <= last->upto;
}

/* To where the last snapshot up to thin->after can be read from, and its key frame is known; if
 * there is none, to where history begins. */
static int seek_previous(struct reclaim *r)
{
    struct last_snapshot last = {.upto = r->thin->after, .after = r->record.oldest.snap_seq};
    uint64_t limit = r->thin->after;
    int error = 0;

    r->base_count = 0;
    if (r->mark) {
        r->reader.cursor = r->mark->begin;
        r->reader.epoch = 0;
        return push_base(r, &r->mark->from);
    }
    while (!error && limit > last.after) {
        struct plx_log_cursor start;
        struct plx_keyframe named;

        error = plx_log_reader_seek_snapshot(&r->reader, limit, r->fault);
        if (error)
            break;
        start = r->reader.cursor;
        named = r->reader.header.keyframe;
        error = plx_log_each_record(&r->reader, note_snapshot, &last, r->fault);
        r->reader.cursor = start;
        r->reader.epoch = 0;
        if (!error && last.seq)
            return push_base(r,
                             plx_keyframe_is_past(&r->record, &named) ? &r->record.oldest : &named);
        if (start.pos / plx_log_segment_bytes(r->store) == r->record.first_segment)
            break;
        limit = plx_min_u64(limit - 1, start.snap_seq);
    }
    if (error == PLX_ERR_NOT_FOUND)
        error = 0; /* the log is empty */
    plx_log_reader_seek(&r->reader, &r->record.oldest);
    if (!error)
        error = push_base(r, &r->record.oldest);
    if (!error) /* a rewind's is (C9), even if no snapshot follows it before the next key frame */
        r->bases[0].whole = true;
    r->all_may_go = r->record.rewinds && !r->thin->every_ns;
    return error;
}

static int scan(struct reclaim *r)
{
    uint64_t segment = UINT64_MAX;
    int error;

    r->end = r->gone_count = r->gone_before_end = 0;
    r->previous = r->first_stays = r->seen = r->seen_ns = 0;
    r->segments_read = 0;
    r->too_young_ns = 0;
    r->looked_enough = r->at_rewind = false;
    r->all_may_go = false;
    r->past_count = 0;
    r->rewound.levels = 0;
    error = seek_previous(r);
    if (!error)
        r->previous = went_to(r, r->bases[0].keyframe.pos);
    r->begin = r->reader.cursor;
    while (!error && !r->looked_enough && r->reader.cursor.seq <= r->last_batch) {
        r->at = r->reader.cursor;
        error = next_batch(r);
        if (!error && segment != r->reader.loaded) {
            r->segments_read++;
            segment = r->reader.loaded;
            error = base_appears(r, &r->reader.header.keyframe, false);
        }
        if (!error)
            error = each_record(r, look);
    }
    if (error || r->looked_enough)
        return error;
    newest_stays(r);
    if (r->gone_count)
        end_here(r);
    return 0;
}

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

/* C4 */
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

    /* With a snapshot before that stays, all that the stretch began with is seen by it, or younger
     * than it and met in the log (C10: there before the stretch). */
    r->versions = (struct plx_versions){
        .gen = before,
        .kept = r->previous ? 1 : 0,
        .base_birth = r->previous ? 0 : before,
        .base = {base_entry, base_each, base_inherited, r},
        .freed = &r->drop.blocks,
    };
}

/* ---- Writing what stays ---- */

/* How many of the fresh blocks from `at` on lie next to each other: one record. */
static uint32_t run_at(const struct reclaim *r, size_t at, uint32_t max)
{
    const struct plx_versions *v = &r->versions;
    struct plx_version first = *plx_versions_at(v, v->fresh[at]);
    uint64_t extent = first.addr / r->store->info.extent_blocks;
    uint32_t count = 1;

    while (at + count < v->fresh_count && count < max) {
        const struct plx_version *next = plx_versions_at(v, v->fresh[at + count]);

        if (next->vblock != first.vblock + count || next->voided != first.voided ||
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
    plx_record_put_map(room, first.vblock, count, first.addr, checksums);
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
            error = version->addr ? put_map(r, at, count) : put_unmap(r, version->vblock, count);
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

/* What has changed since this was called last: only the last version of each block. A checksum that
 * is still known must not be voided by what is put for others. */
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

    if (!record->flag && contains(r->gone, r->gone_count, record->seq))
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

/* C6 */
static int announced(struct reclaim *r, const struct plx_keyframe *keyframe)
{
    struct base *base = &r->kept;

    if (!r->writing || !base->placed || base->keyframe.pos != keyframe->pos ||
        base->keyframe.root != keyframe->root)
        return 0;
    base->placed = false;
    return plx_rewrite_announce(&r->rewrite, &base->moved);
}

static int work_on(struct reclaim *r, const struct plx_record *record)
{
    bool stays;
    int error;

    switch (record->type) {
    case PLX_RECORD_MAP:
    case PLX_RECORD_UNMAP:
    case PLX_RECORD_VOID:
        error = plx_versions_apply(&r->versions, record);
        return error == PLX_ERR_NOMEM ? no_memory(r) : error;
    case PLX_RECORD_SNAPSHOT:
        stays = !contains(r->gone, r->gone_count, record->seq);
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
        break;
    }
    return 0;
}

/* The nodes of a base that goes (C3). */
static int drop_base(struct reclaim *r, size_t at)
{
    size_t before = r->drop.blocks.count;
    bool first = at < r->from;
    int error = plx_treewalk_nodes(&r->walk, tree_of(&r->bases[at]), tree_of(&r->bases[at + 1]),
                                   first ? origin_of(r) : tree_of(&r->kept), &r->drop.blocks);

    r->nodes += r->drop.blocks.count - before;
    return error;
}

/* Whether snapshots behind it should go on to be read through it. */
static bool base_stays(const struct reclaim *r, size_t at)
{
    const struct plx_keyframe *next = &r->bases[at + 1].keyframe, *kept = &r->kept.keyframe;
    uint64_t apart_ns = r->thin->keyframes_ns;

    return is_read(r, &r->bases[at]) || r->mappings >= r->store->options.keyframe_mappings ||
           next->snap_seq - kept->snap_seq > PLX_OVERLAY_GENS / 2 ||
           (apart_ns && next->time_ns > kept->time_ns + apart_ns);
}

/* C10: with which the stretch before ended. */
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

/* It is to be announced. */
static void keep_base(struct reclaim *r, size_t at)
{
    r->kept = r->bases[at];
    r->kept.moved = r->kept.keyframe;
    r->kept.placed = true;
    r->mappings = 0;
}

/* From here on the log is written anew. */
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

/* The log has reached a base. */
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

/* Behind the end it is read on up to the next snapshot, which stays: it tells what is seen by none.
 */
static bool is_done(const struct reclaim *r)
{
    return r->passed > r->end && (!r->gone_count || r->versions.kept > r->gone[r->gone_count - 1] ||
                                  r->reader.cursor.seq > r->last_batch);
}

/* Where the log is read from: C1, C10. */
static struct plx_log_cursor beginning(const struct reclaim *r)
{
    const struct plx_keyframe *first = &r->bases[0].keyframe;

    return r->thin->thrifty && r->previous && r->begin.seq <= first->batch_seq ? r->begin
                                                                               : behind(first);
}

static int work(struct reclaim *r)
{
    int error;

    r->reader.cursor = beginning(r);
    r->reader.epoch = 0;
    begin_versions(r);
    error = pass_bases(r);
    while (!error && !is_done(r)) {
        error = next_batch(r);
        if (!error && r->begin_writing)
            error = begin_writing(r);
        if (!error && r->writing)
            error = announced(r, &r->reader.header.keyframe);
        if (!error)
            error = each_record(r, work_on);
        if (!error)
            error = pass_bases(r);
    }
    return error;
}

/* Where history is to begin: with the last base before all that stays. Then that is all for this
 * time, and nothing is written. */
static void choose_beginning(struct reclaim *r)
{
    r->gone_count = r->gone_before_end;
    r->from = 0;
    if (r->previous)
        return;
    for (size_t i = 1; i <= r->end && r->bases[i].whole && !is_read(r, &r->bases[i - 1]); i++)
        if (!r->first_stays || r->bases[i].keyframe.snap_seq < r->first_stays)
            r->from = i;
    if (!r->from)
        return;
    r->end = r->from;
    while (r->gone_count && r->gone[r->gone_count - 1] > r->bases[r->end].keyframe.snap_seq)
        r->gone_count--;
    r->drop.oldest = r->bases[r->end].keyframe;
}

/* C9: there is nothing else to be done before it. */
static bool begins_with_rewind(const struct reclaim *r)
{
    return r->rewound.levels && (!r->end || r->bases[r->end].keyframe.pos > r->rewound.pos);
}

static int begin_with_rewind(struct reclaim *r)
{
    int error = 0;

    r->drop.oldest = r->rewound;
    r->bases[0] = (struct base){.keyframe = r->rewound, .whole = true};
    r->base_count = 1;
    r->end = 0;
    r->gone_count = 0;
    for (size_t i = 0; i < r->past_count && r->past[i] <= r->rewound.snap_seq && !error; i++)
        error = push_number(r, &r->gone, &r->gone_count, &r->gone_capacity, r->past[i]);
    return error;
}

static int work_on_stretch(struct reclaim *r)
{
    choose_beginning(r);
    return work(r);
}

/* ---- All of it ---- */

static int keyframe_sync(struct plx_vdi *vdi, struct plx_fault *fault)
{
    int error = plx_keyframe_run(vdi);

    return error ? plx_fault_set(fault, error, "virtual disk %s: %s", vdi->record.name,
                                 plx_error_text(error))
                 : 0;
}

/* It takes effect with a key frame that begins afresh: one that was tried before, and failed, knows
 * where the log lay then. */
static int settle_keyframes(struct reclaim *r)
{
    int error = 0;

    for (unsigned i = 0; i < SETTLE_TRIES && !error; i++) {
        if (!r->vdi->map.is_frozen && !r->vdi->keyframe.running)
            return 0;
        error = keyframe_sync(r->vdi, r->fault);
    }
    return error ? error
                 : plx_fault_set(r->fault, PLX_ERR_BUSY,
                                 "virtual disk %s: it changes too fast; try again", r->record.name);
}

static int commit(struct reclaim *r)
{
    struct plx_keyframe_op *op = &r->vdi->keyframe;
    int error = settle_keyframes(r);

    if (!error)
        error = check_undisturbed(r); /* and from here on nobody has a turn */
    if (error)
        return error;

    r->drop.moves = r->rewrite.moves;
    r->drop.move_count = r->rewrite.move_count;
    r->drop.snapshots = r->gone;
    r->drop.snapshot_count = r->gone_count;
    op->next_drop = &r->drop;
    error = keyframe_sync(r->vdi, r->fault);
    op->next_drop = NULL;
    if (error)
        return error;
    r->rewrite.move_count = 0; /* the log has them */
    if (r->vdi->thrift)
        plx_thrift_forget(r->vdi->thrift, r->bases[0].keyframe.pos, r->bases[r->end].keyframe.pos);
    return 0;
}

static void count_result(struct reclaim *r)
{
    struct plx_thinned *t = r->thinned;
    uint64_t written = 0, dropped = 0, bytes = plx_log_segment_bytes(r->store);

    for (size_t i = 0; i < r->rewrite.move_count; i++) {
        uint64_t segment = r->rewrite.moves[i].segment;

        written += r->rewrite.moves[i].addr != 0;
        dropped += r->reader.segments[segment - r->reader.first_segment] != 0;
    }
    for (uint64_t s = r->record.first_segment; s < r->drop.oldest.pos / bytes; s++)
        dropped += r->reader.segments[s - r->reader.first_segment] != 0;
    t->snapshots = r->gone_count;
    t->blocks = r->drop.blocks.count - r->nodes;
    t->meta_blocks = r->nodes;
    if (dropped > written)
        t->meta_blocks += (dropped - written) * r->store->info.segment_blocks;
}

static void mark_gone(const struct reclaim *r)
{
    for (size_t i = 0; i < r->thin->mark_count; i++) {
        struct plx_thin_mark *mark = &r->thin->marks[i];

        mark->gone = mark->gone || contains(r->gone, r->gone_count, mark->seq);
    }
}

static void done(struct reclaim *r)
{
    /* What was written for nothing, unless a record may name it. */
    for (size_t i = 0; i < r->rewrite.move_count && !r->vdi->log.sticky; i++)
        if (r->rewrite.moves[i].addr)
            plx_alloc_free(r->store, r->rewrite.moves[i].addr, r->store->info.segment_blocks);
    plx_rewrite_done(&r->rewrite);
    plx_versions_free(&r->versions);
    plx_log_reader_close(&r->reader);
    plx_log_shelf_free(&r->shelf);
    plx_deaths_free(&r->drop.blocks);
    free(r->held);
    free(r->gone);
    free(r->past);
    free(r->bases);
}

static int begin(struct reclaim *r, struct plx_vdi *vdi, const struct plx_thin *thin,
                 struct reach *reach, struct plx_thinned *thinned, struct plx_fault *fault)
{
    int error;

    *r = (struct reclaim){
        .vdi = vdi,
        .store = vdi->store,
        .thin = thin,
        .after = thin->after,
        .reach = reach,
        .thinned = thinned,
        .record = vdi->record,
        .last_batch = vdi->log.applied.seq - 1,
        .limit = plx_log_segment_of(&vdi->log, vdi->log.applied.pos),
        .walk = {vdi->store, r->record.name, fault},
        .drop.flush_mark = vdi->store->flush_failures,
        .fault = fault,
    };
    if (plx_log_shelf_init(&r->shelf, SHELF_SEGMENTS))
        return no_memory(r);
    /* Those behind may be on their way to the disk, a later one there before an earlier one. */
    error = plx_log_reader_of(
        r->store, &r->record, vdi->log.segments,
        plx_min_u64(r->limit + 1 - vdi->log.first_segment, vdi->log.segment_count), &r->reader,
        fault);
    r->reader.shelf = &r->shelf;
    return error;
}

/* ---- Ending elsewhere: FULL, look again ---- */

/* Twice as far: a longer stretch has more room to spare. If there is no such end, or that was the
 * last try, they stay, and what comes behind has its turn. */
static int reach_further(struct reclaim *r)
{
    const struct plx_keyframe *from = &r->bases[r->from].keyframe,
                              *end = &r->bases[r->end].keyframe;

    r->reach->behind = end->pos + (end->pos - from->pos);
    r->reach->upto = r->thinned->upto = end->snap_seq;
    return PLX_REWRITE_FULL;
}

/* So that there is a key frame behind all snapshots, and the segment it lies in is complete: nearer
 * ones may do then, too. Once. */
static int end_the_segment(struct reclaim *r)
{
    int error;

    if (r->reach->all)
        return reach_further(r);
    plx_log_leave_segment(&r->vdi->log);
    error = keyframe_sync(r->vdi, r->fault);
    r->reach->behind = r->reach->upto = 0;
    r->reach->all = true;
    return error ? error : PLX_REWRITE_FULL;
}

/* ---- From one stretch to the next (C10) ---- */

static struct plx_thrift_mark mark_here(const struct reclaim *r)
{
    return (struct plx_thrift_mark){
        .every_ns = r->thin->every_ns,
        .upto = r->thinned->upto,
        .held = plx_thrift_digest(r->held, r->held_count, r->thinned->upto),
        .percent = r->mark ? r->mark->percent : 100,
    };
}

/* Nothing went up to here. */
static void mark_passed(struct reclaim *r)
{
    struct plx_thrift_mark mark = mark_here(r);

    if (!r->thin->thrifty || r->thin->dry_run)
        return;
    if (!r->gone_count)
        mark.wait_ns = r->too_young_ns;
    mark.begin = beginning(r);
    if (r->previous)
        mark.from = r->bases[0].keyframe;
    plx_thrift_set(r->vdi->thrift, &mark);
}

static void mark_end(struct reclaim *r)
{
    const struct plx_keyframe *from = &r->bases[r->from].keyframe, *to = &r->bases[r->end].keyframe;
    struct plx_thrift_mark mark = mark_here(r);
    uint64_t worked_on;

    if (!r->thin->thrifty || r->thin->dry_run || !r->previous || !r->bases[r->end].whole)
        return;
    mark.from = *to;
    mark.before = r->kept.moved.levels ? r->kept.moved : r->kept.keyframe;
    mark.mappings = r->mappings;
    mark.begin = r->stayed ? r->rewrite.last_snapshot : beginning(r);
    if (r->stayed)
        mark.begin.snap_seq = r->stayed - 1;
    worked_on = plx_thrift_bytes(&r->reader, from->pos, to->pos);
    if (worked_on)
        mark.percent = (unsigned)plx_min_u64(100, r->rewrite.written * 100 / worked_on);
    plx_thrift_set(r->vdi->thrift, &mark);
}

/* Where the mark is, if there is one; whether what is behind it is too little. */
static int go_on(struct reclaim *r, bool *ret_waits)
{
    uint64_t written_to = r->limit, bytes = plx_log_segment_bytes(r->store);
    int error;

    if (!r->thin->thrifty)
        return 0;
    if (!r->vdi->thrift && !(r->vdi->thrift = calloc(1, sizeof *r->vdi->thrift)))
        return plx_fault_set(r->fault, PLX_ERR_NOMEM, "out of memory");
    r->mark = plx_thrift_find(r->vdi->thrift, r->thin, r->held, r->held_count, &r->reader);
    if (!r->mark)
        return 0;
    if (r->vdi->log.applied.pos % bytes == 0)
        written_to--; /* that one may not have begun */
    error =
        plx_thrift_end(&r->reader, r->mark, written_to, r->thin->before_ns, &r->planned, r->fault);
    *ret_waits = !error && plx_thrift_waits(r->mark, written_to, r->thin->before_ns);
    if (!*ret_waits && !r->mark->from.levels)
        r->mark = NULL;
    else
        r->after = plx_max_u64(r->after, r->mark->upto);
    if (*ret_waits) {
        r->thinned->upto = r->mark->upto;
        r->thinned->waits = true;
    }
    return error;
}

/* ---- A slice ---- */

/* How far nothing can go: for now, for want of room, or because of a rewind (C8). */
static uint64_t passed_over(const struct reclaim *r)
{
    if (r->reach->behind)
        return r->reach->upto;
    return r->gone_count && !r->at_rewind ? r->gone[0] - 1 : r->seen;
}

/* Whether one is to be forced behind what goes: a policy's can stay, but for the last ones. */
static bool wants_end(const struct reclaim *r)
{
    return !r->reach->all && r->gone_before_end < r->gone_count && !r->looked_enough &&
           !(r->thin->thrifty && r->thin->every_ns);
}

/* FULL: the next time it may end elsewhere. */
static int thin_once(struct reclaim *r)
{
    bool waits = false;
    int error;

    if (r->thin->rewinds_only && !r->record.rewinds)
        return 0;
    error = find_holds(r);
    if (!error)
        error = go_on(r, &waits);
    if (error || waits)
        return error;
    error = scan(r);
    if (!error && wants_end(r))
        error = end_the_segment(r);
    if (error)
        return error;
    if (!r->end && !begins_with_rewind(r)) {
        r->thinned->upto = passed_over(r);
        mark_passed(r);
        return 0;
    }
    error = begins_with_rewind(r) ? begin_with_rewind(r) : work_on_stretch(r);
    if (error == PLX_REWRITE_FULL && r->thin->thrifty) {
        r->thinned->upto = r->bases[r->end].keyframe.snap_seq;
        return 0;
    }
    if (error == PLX_REWRITE_FULL)
        return reach_further(r);
    if (error == PLX_REWRITE_OPEN)
        return end_the_segment(r);
    if (error)
        return error;
    count_result(r);
    if (!r->thin->dry_run)
        error = commit(r);
    if (error)
        return error;
    mark_gone(r);
    r->thinned->upto = r->bases[r->end].keyframe.snap_seq;
    r->thinned->through = r->thin->thrifty && !r->previous && !r->first_stays && r->too_young_ns;
    mark_end(r);
    return 0;
}

static int thin_slice(struct plx_vdi *vdi, const struct plx_thin *thin, struct reach *reach,
                      struct plx_thinned *ret_thinned, struct plx_fault *fault)
{
    struct reclaim r;
    int error;

    *ret_thinned = (struct plx_thinned){.upto = thin->after};
    error = begin(&r, vdi, thin, reach, ret_thinned, fault);
    if (!error)
        error = thin_once(&r);
    /* It read what is somebody else's now. */
    if (error == PLX_ERR_CORRUPT && (history_moved(&r) || end_moved(&r)))
        error = plx_fault_set(fault, PLX_ERR_BUSY,
                              "virtual disk %s: its history moved on; try again", vdi->record.name);
    done(&r);
    return error;
}

int plx_vdi_thin(struct plx_vdi *vdi, const struct plx_thin *thin, struct plx_thinned *ret_thinned,
                 struct plx_fault *fault)
{
    struct reach reach = {.labels_ended = vdi->labels_ended,
                          .clones_made = vdi->store->clones_made};
    int error;

    if (vdi->snapshot)
        return plx_fault_set(fault, PLX_ERR_READONLY, "this is a snapshot");
    if (vdi->thinning || vdi->rewinding)
        return plx_fault_set(fault, PLX_ERR_BUSY, "virtual disk %s: it is under way already",
                             vdi->record.name);
    error = thin->before_ns && !thin->dry_run ? plx_protect_check_clock(vdi, thin->before_ns, fault)
                                              : 0;
    if (error)
        return error;
    vdi->thinning = true;
    error = PLX_REWRITE_FULL;
    for (unsigned tries = 0; error == PLX_REWRITE_FULL && tries < REACH_TRIES; tries++)
        error = thin_slice(vdi, thin, &reach, ret_thinned, fault);
    vdi->thinning = false;
    ret_thinned->upto = plx_max_u64(ret_thinned->upto, thin->after);
    ret_thinned->oldest = vdi->record.oldest.snap_seq;
    return error == PLX_REWRITE_FULL ? 0 : error;
}
