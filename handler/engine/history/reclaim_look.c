/* reclaim_look.c - steps 1 and 3 of reclaim.c: reads the log to find which snapshots go, which key
 * frames can be bases, and what holds them (RECLAIM-1, RECLAIM-2, RECLAIM-6 to RECLAIM-10).
 *
 * plx_reclaim_look() reads batch after batch and reacts to three events:
 *
 *  event in the log            function          what it decides
 *  key frame announced         base_appears      a new base, or the same one again
 *  ... behind a rewind         reach_rewind      the stretch ends before the rewind or begins there
 *  snapshot                    look_at_snapshot  whether it goes; whether this is enough to work on
 *
 * As long as no snapshot goes, each snapshot that stays moves the beginning of the stretch on.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/list.h"
#include "engine/history/reclaim_inside.h"

int plx_reclaim_no_memory(const struct reclaim *r)
{
    return plx_fault_set(r->fault, PLX_ERR_NOMEM, "out of memory");
}

int plx_reclaim_push_number(struct reclaim *r, uint64_t **list, size_t *count, size_t *capacity,
                            uint64_t number)
{
    if (!PLX_LIST_ROOM(*list, *count, *capacity, 64))
        return plx_reclaim_no_memory(r);
    (*list)[(*count)++] = number;
    return 0;
}

bool plx_reclaim_contains(const uint64_t *list, size_t count, uint64_t number)
{
    return count && bsearch(&number, list, count, sizeof *list, plx_compare_u64);
}

/* ---- What holds snapshots (RECLAIM-6) ---- */

static int hold(struct reclaim *r, uint64_t seq)
{
    return plx_reclaim_push_number(r, &r->held, &r->held_count, &r->held_capacity, seq);
}

static int each_reader(struct reclaim *r, int (*each)(struct reclaim *r, uint64_t seq))
{
    int error = 0;

    for (const struct plx_vdi *vdi = r->store->vdis; vdi && !error; vdi = vdi->next)
        if (vdi->snapshot && vdi->record.slot == r->record.slot)
            error = each(r, vdi->map.gen);
    return error;
}

int plx_reclaim_find_holds(struct reclaim *r)
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
    return seq > r->drop.oldest.snap_seq && plx_reclaim_contains(r->held, r->held_count, seq)
               ? 0
               : PLX_ERR_BUSY;
}

/* While a disk keeps no snapshot, each key frame moves the beginning of history on and gives the
 * log before it back. */
bool plx_reclaim_history_moved(const struct reclaim *r)
{
    return r->vdi->record.oldest.pos != r->record.oldest.pos ||
           r->vdi->record.oldest.root != r->record.oldest.root;
}

/* The stretch ends at the key frame that was the newest, and a newer one came, which may have
 * replaced nodes of it (RECLAIM-2). */
bool plx_reclaim_end_moved(const struct reclaim *r)
{
    return r->base_count && !r->bases[r->end].whole &&
           r->vdi->record.keyframe.batch_seq > r->bases[r->end].keyframe.batch_seq;
}

/* RECLAIM-5: BUSY if anybody began to use a snapshot that goes. A label that was requested
 * meanwhile counts as one of those, because it may name such a snapshot. */
int plx_reclaim_check_undisturbed(struct reclaim *r)
{
    int error = r->vdi->labels_begun != r->reach->labels_ended ||
                        r->store->disks->instants_opening ||
                        r->store->disks->clones_made != r->reach->clones_made ||
                        plx_reclaim_history_moved(r) || plx_reclaim_end_moved(r)
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

/* Reads the next batch. All batches read here were applied, so a log that ends earlier is damaged
 * or has moved on. */
int plx_reclaim_next_batch(struct reclaim *r)
{
    int error = plx_log_reader_next(&r->reader, r->fault);

    return error == PLX_ERR_NOT_FOUND
               ? plx_fault_set(r->fault, PLX_ERR_CORRUPT,
                               "virtual disk %s: its log ends before batch %llu", r->record.name,
                               (unsigned long long)r->reader.cursor.seq)
               : error;
}

/* ---- Which go, and which key frames there are (RECLAIM-1, RECLAIM-2) ---- */

/* The position in the log just behind a key frame. */
struct plx_log_cursor plx_reclaim_behind(const struct plx_keyframe *keyframe)
{
    return (struct plx_log_cursor){.pos = keyframe->pos,
                                   .seq = keyframe->batch_seq + 1,
                                   .hash = keyframe->prev_hash,
                                   .snap_seq = keyframe->snap_seq};
}

static int push_base(struct reclaim *r, const struct plx_keyframe *keyframe)
{
    if (!PLX_LIST_ROOM(r->bases, r->base_count, r->base_capacity, 16))
        return plx_reclaim_no_memory(r);
    r->bases[r->base_count++] =
        (struct base){.keyframe = *keyframe, .whole = r->seen > keyframe->snap_seq};
    return 0;
}

/* RECLAIM-7: takes the newest snapshot that was read off the list of those that go. */
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

/* Whether the snapshot stays because its time is not to be believed (WITNESS-5). */
static bool stays_undated(const struct reclaim *r, uint64_t seq)
{
    const struct plx_thin *thin = r->thin;

    return thin->before_ns &&
           plx_witness_keeps(&r->vdi->witness, seq, thin->before_ns, thin->every_ns);
}

bool plx_reclaim_goes(const struct reclaim *r, uint64_t seq, uint64_t time_ns)
{
    uint64_t every = r->thin->every_ns;

    if (r->thin->rewinds_only || !in_range(r, seq, time_ns) ||
        plx_reclaim_contains(r->held, r->held_count, seq) || stays_undated(r, seq))
        return false;
    return !every || (r->seen && time_ns / every == r->seen_ns / every);
}

bool plx_reclaim_is_read(const struct reclaim *r, const struct base *base)
{
    bool open = false;

    for (const struct plx_vdi *vdi = r->store->vdis; vdi && !open; vdi = vdi->next)
        open = vdi->snapshot && vdi->record.slot == r->record.slot &&
               vdi->map.base.root == base->keyframe.root;
    return open || base->needed;
}

/* Makes the last base the end of the stretch, if it can be. The caller has made sure that a
 * snapshot stays behind that base, or that the newest snapshot stays before it (RECLAIM-7). A
 * snapshot behind the end stays for this call even if it is on the list. */
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

/* The position of the last rewind up to a position (RECLAIM-8); 0: there was none. */
static uint64_t last_rewind(const struct reclaim *r, uint64_t pos)
{
    uint64_t last = 0;

    for (uint32_t i = 0; i < r->record.rewinds; i++)
        if (r->record.rewind[i].pos <= pos)
            last = plx_max_u64(last, r->record.rewind[i].pos);
    return last;
}

/* The snapshot that this rewind went to; 0: there was none. */
static uint64_t went_to(const struct reclaim *r, uint64_t pos)
{
    uint64_t last = last_rewind(r, pos), seq = 0;

    for (uint32_t i = 0; i < r->record.rewinds; i++)
        if (r->record.rewind[i].pos == last)
            seq = r->record.rewind[i].seq;
    return seq;
}

/* Whether anything but a rewind holds the snapshot. */
static bool in_use(const struct reclaim *r, uint64_t seq)
{
    bool used = plx_reclaim_contains(r->thin->kept, r->thin->kept_count, seq);

    for (const struct plx_vdi *vdi = r->store->vdis; vdi && !used; vdi = vdi->next)
        used = vdi->snapshot && vdi->record.slot == r->record.slot && vdi->map.gen == seq;
    return used;
}

/* RECLAIM-9: lists the snapshots that go if history begins with a rewind's key frame. Gives up at
 * the first snapshot that must stay for another reason than a rewind. */
static int note_past(struct reclaim *r, uint64_t seq, uint64_t time_ns)
{
    r->all_may_go =
        r->all_may_go && in_range(r, seq, time_ns) && !in_use(r, seq) && !stays_undated(r, seq);
    return r->all_may_go
               ? plx_reclaim_push_number(r, &r->past, &r->past_count, &r->past_capacity, seq)
               : 0;
}

/* Whether history can begin with this key frame: it is a rewind's (RECLAIM-9), no later rewind went
 * to a snapshot before it, and a newer snapshot stays (RECLAIM-7). */
static bool can_begin_with(const struct reclaim *r, const struct plx_keyframe *keyframe)
{
    const struct plx_vdi_record *record = &r->record;
    bool can = false;

    for (uint32_t i = 0; i < record->rewinds; i++) {
        const struct plx_rewind *rewind = &record->rewind[i];

        if (rewind->pos == keyframe->pos)
            can = rewind->root == keyframe->root;
        else if (rewind->pos > keyframe->pos && rewind->seq <= keyframe->snap_seq)
            return false;
    }
    return can && r->all_may_go && r->vdi->map.gen > keyframe->snap_seq;
}

/* RECLAIM-8: if anything goes before the rewind, the stretch ends before it; else the stretch
 * begins with the rewind's key frame. */
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
    r->begin = plx_reclaim_behind(keyframe);
    return push_base(r, keyframe);
}

/* RECLAIM-10: whether a thrifty stretch begins at this key frame, since nothing goes before it. */
static bool begins_stretch(const struct reclaim *r, const struct plx_keyframe *keyframe)
{
    return r->thin->thrifty && r->previous && (!r->gone_count || r->gone[0] > keyframe->snap_seq);
}

/* The log announces a key frame, or a segment's header names the one in effect. whole: the record
 * says that all its nodes are kept (RECLAIM-2). A base that is not whole gives its place to the
 * next key frame. */
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

/* Whether reading stops before this snapshot:
 *
 *  reached                         stops if
 *  the end that thrift.c proposed  there is an end, or nothing goes before the proposed end
 *  a snapshot too young to go      all that go lie before the end; or at once if the limit is a
 *                                  time and no further end is asked for (reach->behind)
 *  the size of a slice             there is an end, or nothing goes and history cannot begin later
 */
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
    bool gone = plx_reclaim_goes(r, seq, time_ns);
    int error;

    error = note_past(r, seq, time_ns);
    if (error)
        return error;
    last->whole = last->whole || seq > last->keyframe.snap_seq;
    last->needed = last->needed || plx_reclaim_contains(r->held, r->held_count, seq);
    if (r->gone_count)
        end_here(r);
    if (!r->too_young_ns && r->thin->before_ns && time_ns >= r->thin->before_ns)
        r->too_young_ns = time_ns;
    r->looked_enough = enough(r, seq, time_ns);
    if (r->looked_enough)
        return 0;
    if (gone) {
        error = plx_reclaim_push_number(r, &r->gone, &r->gone_count, &r->gone_capacity, seq);
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
    /* A snapshot whose time is in doubt does not count as the first one of its period. */
    if (!stays_undated(r, seq))
        r->seen_ns = time_ns;
    return error;
}

static int look_at(void *context, const struct plx_record *record)
{
    struct reclaim *r = context;
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
    uint64_t upto, after; /* the search is for the last snapshot with after < seq <= upto */
    uint64_t seq;         /* that snapshot; 0: not found */
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

/* Seeks the segment that holds the last snapshot up to thin->after, or goes to the mark, and pushes
 * the key frame in effect there as the first base. Without such a snapshot reading begins where
 * history begins. */
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
    /* The disk frees no nodes of the key frame with which history begins (KEYFRAME-3), even if no
     * snapshot follows before the next one, as after RECLAIM-9. */
    if (!error)
        r->bases[0].whole = true;
    r->all_may_go = r->record.rewinds && !r->thin->every_ns;
    return error;
}

int plx_reclaim_look(struct reclaim *r)
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
        error = plx_reclaim_next_batch(r);
        if (!error && segment != r->reader.loaded) {
            r->segments_read++;
            segment = r->reader.loaded;
            error = base_appears(r, &r->reader.header.keyframe, false);
        }
        if (!error)
            error = plx_log_batch_records(&r->reader, look_at, r, r->fault);
    }
    if (error || r->looked_enough)
        return error;
    newest_stays(r);
    if (r->gone_count)
        end_here(r);
    return 0;
}
