/* reclaim.c - see reclaim.h.
 *
 * RECLAIM-1  A stretch of history that is worked on begins and ends at key frames. It begins at the
 *     one before the last snapshot that stays before the first one that goes, or where history
 *     begins; it ends at one behind the last that goes. So who sees what dies in it is known
 *     (versions.c). If what stays does not fit between the two, it ends at a later one, or they do
 *     not go.
 * RECLAIM-2  Of a key frame that is not kept whole the nodes that the next one replaced are free
 *     already (KEYFRAME-3). Which those are follows from the log: no snapshot came between it and
 *     the announcement of the next. Where snapshots went the announcement says that it is whole.
 * RECLAIM-3  Of key frames that go, those nodes come back that the ones on either side do not have.
 * RECLAIM-4  What a clone began with is its parent's, at least in part: never freed here.
 * RECLAIM-5  Nothing is free, and no log has moved, before a record is durable that says so. Before
 *     that record is written nobody may begin to use what goes.
 * RECLAIM-6  What the caller names (labelled, cloned, read elsewhere) and what is open here stays.
 *     So does the key frame through which it is read, the last one announced before it: what is
 *     written anew keeps the order of snapshots and announcements, so that it is the same one ever
 *     after. Of a clone the caller knows for as long as any disk may have what it had: longer than
 *     the clone itself, if that was cloned.
 * RECLAIM-7  The newest snapshot stays: what it alone sees dies later, and nobody would look there
 *     again.
 * RECLAIM-8  No stretch reaches across a rewind: there blocks come back to life, and the log does
 *     not say which. They are those of the snapshot that it went to; that one is held, and counts
 *     as the one before all that come after the rewind. The last one before a rewind is the newest
 *     of its time (RECLAIM-7).
 * RECLAIM-9  When nothing else before a rewind can go, and all that is left there may, history
 *     begins with that rewind's key frame: it is whole, for all of it is read-only. What rewinds up
 *     to it went to is held by them alone, and goes with them. So a snapshot behind it sees only
 *     what that tree names or the log behind it maps. What nobody has then is not looked for:
 *     blocks came to life again there, and a collection knows how to. It is no more anybody's to
 *     free: what dies behind that key frame before a snapshot saw it does not come back here either
 *     (versions.c, VERSIONS-1).
 * RECLAIM-10  Thrifty: a stretch begins at the last key frame before the first snapshot that goes,
 *     where the one before ended, so that nothing is written anew twice. What was born after the
 *     last snapshot that stays is met all the same: the log is read from that snapshot's batch on
 *     (RECLAIM-1). The key frame goes, too, if nobody needs it: it is not announced where the log
 *     is written anew behind it, so snapshots there are read through the one before, and its nodes
 *     come back by RECLAIM-3. Where the next stretch begins, a mark says; where it ends, thrift.c,
 *     but there, too, a key frame counts from its announcement on only (RECLAIM-6). If a stretch
 *     does not fit its snapshots stay. What lies before the mark stays, whatever is asked for:
 *     reading begins at the last snapshot there, and if that one went, nothing would tell of those
 *     before.
 *
 * Synchronous; runs the loop while it reads and writes, so the disk goes on. What the log and the
 * trees say below the record's key frame does not change meanwhile.
 * Crash story: before the record flips nothing has changed, and what was written anew is a leak;
 *   after it, blocks not yet free on the store are leaks that a sweep finds.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/history/reclaim_inside.h"

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
        error = plx_reclaim_check_undisturbed(r); /* and from here on nobody has a turn */
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

        mark->gone = mark->gone || plx_reclaim_contains(r->gone, r->gone_count, mark->seq);
    }
}

void plx_reclaim_done(struct reclaim *r)
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

int plx_reclaim_begin(struct reclaim *r, struct plx_vdi *vdi, const struct plx_thin *thin,
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
        return plx_reclaim_no_memory(r);
    /* Those behind may be on their way to the disk, a later one there before an earlier
     * one. */
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

/* So that there is a key frame behind all snapshots, and the segment it lies in is
 * complete: nearer ones may do then, too. Once. */
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

/* ---- From one stretch to the next (RECLAIM-10) ---- */

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
    mark.begin = plx_reclaim_beginning(r);
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
    mark.begin = r->stayed ? r->rewrite.last_snapshot : plx_reclaim_beginning(r);
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

/* How far nothing can go: for now, for want of room, or because of a rewind (RECLAIM-8). */
static uint64_t passed_over(const struct reclaim *r)
{
    if (r->reach->behind)
        return r->reach->upto;
    return r->gone_count && !r->at_rewind ? r->gone[0] - 1 : r->seen;
}

/* Whether one is to be forced behind what goes: a policy's can stay, but
 * for the last ones. */
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
    error = plx_reclaim_find_holds(r);
    if (!error)
        error = go_on(r, &waits);
    if (error || waits)
        return error;
    error = plx_reclaim_look(r);
    if (!error && wants_end(r))
        error = end_the_segment(r);
    if (error)
        return error;
    if (!r->end && !plx_reclaim_begins_with_rewind(r)) {
        r->thinned->upto = passed_over(r);
        mark_passed(r);
        return 0;
    }
    error = plx_reclaim_begins_with_rewind(r) ? plx_reclaim_begin_with_rewind(r)
                                              : plx_reclaim_work_on_stretch(r);
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
    error = plx_reclaim_begin(&r, vdi, thin, reach, ret_thinned, fault);
    if (!error)
        error = thin_once(&r);
    /* It read what is somebody else's now. */
    if (error == PLX_ERR_CORRUPT && (plx_reclaim_history_moved(&r) || plx_reclaim_end_moved(&r)))
        error = plx_fault_set(fault, PLX_ERR_BUSY,
                              "virtual disk %s: its history moved on; try again", vdi->record.name);
    plx_reclaim_done(&r);
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
