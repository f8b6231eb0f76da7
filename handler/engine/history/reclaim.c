/* reclaim.c - lets snapshots go: plx_vdi_thin() of engine.h, from beginning to end.
 *
 * A key frame is the checkpoint of a disk's map: all of the map, written out as a radix tree. A
 * snapshot is one record in the log. To read a snapshot, the engine loads the last key frame that
 * the log announces before it and replays the log from there up to the snapshot. Such a key frame
 * is called the base of the snapshots behind it (struct base). To let snapshots go, one call takes
 * a stretch of history, from one base to a later one, and frees what only the snapshots that go can
 * see: data blocks, nodes of bases in between, and segments of log.
 *
 * One call, step by step. Until step 7 the record on the store names the history as it was.
 *
 *  no  step          function                        what it leaves for the next step
 *   1  holds         plx_reclaim_find_holds          snapshots that must stay (RECLAIM-6)
 *   2  resume        go_on (thrifty only)            the mark to go on at; or "too little log yet"
 *   3  look          plx_reclaim_look                which snapshots go; bases; the end
 *   4  force an end  end_the_segment (if none)       a new key frame; step 1 again
 *   5  work          plx_reclaim_work_on_stretch,    blocks and nodes to free; the log rewritten
 *                    ..._begin_with_rewind           in new segments; or a later beginning
 *   6  settle        settle_keyframes, then          no key frame under way; nobody uses what goes
 *                    plx_reclaim_check_undisturbed   (else BUSY), and plx_vdi_lets_go refuses it
 *   7  commit        keyframe_sync in commit         the record names the new history; frees
 *   8  remember      mark_end, mark_passed           where the next thrifty call goes on
 *
 * If the rewritten log does not fit (PLX_REWRITE_FULL), reach_further moves the end of the stretch
 * and the call begins again at step 1. A call makes REACH_TRIES tries in all, and a forced end
 * (step 4) takes one of them. A thrifty call, one that may put work off (thrift.c), does not reach
 * further: the snapshots of that stretch stay.
 *
 * RECLAIM-1  Let P be the last snapshot that stays before the first one that goes (`previous` in
 *     the code). A stretch begins at P's base, and so does reading. The stretch ends at a base
 *     behind the last snapshot that goes. Without a P, it begins where history begins, and the call
 *     may do no more than let history begin later: at the last base before the first snapshot that
 *     stays, or at the first base through which a held snapshot is read, if that comes earlier.
 *     Then the stretch ends there, no log is rewritten, and snapshots behind that base are left to
 *     the next call. So versions.c can tell of each block that dies in the stretch whether a
 *     snapshot that stays sees it:
 *
 *       the block was born            and died   it is
 *       in the log that is read       behind P   seen, if a snapshot that stays lies in between
 *       before the log that is read   behind P   seen by P: it was mapped when P was taken
 *       before the log that is read,  -          seen, if a snapshot that stays lies before its
 *         and there is no P                        death
 *       at any time                   before P   left alone: the snapshots that go are all behind
 *                                                  P, so none of them sees it
 *
 *     If the rewritten log does not fit between the two bases, the stretch ends at a later base. If
 *     that does not help either, the snapshots of the stretch stay.
 * RECLAIM-2  A base in the middle of a stretch must be a whole key frame: one whose nodes are all
 *     kept. Where the log announces one that is not whole, the next one takes its place. A key
 *     frame K is not whole if no snapshot came between K's position and the announcement of the
 *     next key frame. Then the disk has freed the nodes of K that the next one replaced
 *     (KEYFRAME-3), so nobody can read through K. The snapshots in the log therefore show which key
 *     frames are whole. Where the snapshots behind a whole key frame have gone, its rewritten
 *     announcement carries the flag "whole". The key frame with which history begins is whole in
 *     any case: the disk frees none of its nodes (KEYFRAME-3).
 * RECLAIM-3  When a base goes, its nodes are freed, but for those in the tree of the next base, and
 *     those in the tree of the last kept base before it. If history begins later, no base before it
 *     is kept. Then the tree that a clone began with is looked at instead (RECLAIM-4).
 * RECLAIM-4  A block or node of the tree that a clone began with is never freed here, because
 *     its origin may still use it.
 * RECLAIM-5  A block or segment is freed only after a record is durable that no longer names it
 *     (step 7). Before step 1 the caller has listed what must stay. From then until that record is
 *     durable, nobody may begin to use a snapshot that goes. Up to step 6 somebody still can. Step
 *     6 notices it by the counters of labels and clones and by the open instants, and the call ends
 *     with BUSY. From step 6 on plx_vdi_lets_go() refuses to label or open these snapshots.
 * RECLAIM-6  A snapshot is held if one of these is so:
 *     - the caller names it, because it has a label, because a clone began with it, or because
 *       another process reads it;
 *     - it is open in this process;
 *     - a rewind in the disk's record names it (RECLAIM-8).
 *     A held snapshot stays, and so does its base, because readers go on reading through that base.
 *     The rewritten log keeps the order of snapshots and announcements, so a held snapshot is found
 *     through the same base as before. A snapshot that stays without being held may lose its base,
 *     and is then read through the base before that.
 *     The caller names the snapshot of a clone for as long as any disk may use the clone's first
 *     blocks: a clone of that clone may use them after the clone itself is deleted.
 * RECLAIM-7  The newest snapshot always stays. A block that only the newest snapshot sees is still
 *     mapped, or died behind it. If that snapshot had gone, no later call would notice that nobody
 *     sees the block.
 * RECLAIM-8  No stretch reaches across a rewind. A rewind maps dead blocks again, and the log does
 *     not list them: they are the blocks of the snapshot S that the disk went back to. So S is
 *     held, and it counts as P (RECLAIM-1) for the snapshots behind the rewind. The last snapshot
 *     before a rewind is treated as the newest one of its time (RECLAIM-7).
 * RECLAIM-9  A rewind's key frame becomes the beginning of history if all of these hold:
 *     - before it, only the last snapshot there and snapshots that rewinds hold are left;
 *     - the caller lets all of them go, and none is open;
 *     - no later rewind went back to one of them;
 *     - a newer snapshot exists;
 *     - the call does not apply a policy's tier.
 *     That key frame is whole, because its tree is written out completely and read-only. The
 *     snapshots that this rewind and earlier ones went to are held by those rewinds alone, and go
 *     with them. A snapshot behind the key frame then sees only what that tree names or what the
 *     log behind it maps. Two kinds of blocks are left to garbage collection:
 *     - blocks that only the dropped past had: the log does not say which of them the rewind
 *       revived;
 *     - a block of that tree that dies before any later snapshot sees it (VERSIONS-1).
 * RECLAIM-10  A thrifty call rewrites no part of the log twice for one boundary of the policy. The
 *     look goes on at the mark: where the last stretch ended, or up to where nothing could go. The
 *     next stretch begins at the last base before the first snapshot that goes, at the mark or
 *     behind it. That base may lie behind P, which is an exception to RECLAIM-1. Four rules follow.
 *     - Step 3 begins to read at the last snapshot that stays before the mark. Step 5 begins at P's
 *       batch, or at the base if P lies behind it. So it meets every block that was born behind P.
 *     - The base at which the stretch begins may go too, if the last stretch ended with it and no
 *       held snapshot is read through it. Then the rewritten log does not announce it, and
 *       RECLAIM-3 frees its nodes. Snapshots behind it that stay are read through the kept base
 *       before it; none of them is held.
 *     - The mark is in memory. thrift.c proposes a key frame at which the stretch ends. The look
 *       goes on until it has read that key frame's announcement. Snapshots between the key frame's
 *       position and its announcement are read through the base before it. If one of them is held,
 *       that base must stay (RECLAIM-6).
 *     - A snapshot before the mark stays, whatever the caller asks for. If the last one went, at
 *       which step 3 begins to read, nothing would tell who sees the older blocks.
 *
 * Loop: the disk's store. The call is synchronous and runs the loop while it reads and writes, so
 *   the disk goes on. The log and the trees before the record's key frame do not change meanwhile.
 * Crash story: before the record of step 7 is durable, the old history stands, and the new segments
 *   are leaks. After it, the new history stands, and freed blocks that the bitmaps on the store
 *   still show as used are leaks. A garbage collection finds both.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/history/reclaim_inside.h"

/* ---- Commit and results (steps 6 and 7) ---- */

static int keyframe_sync(struct plx_vdi *vdi, struct plx_fault *fault)
{
    int error = plx_keyframe_run(vdi);

    return error ? plx_fault_set(fault, error, "virtual disk %s: %s", vdi->record.name,
                                 plx_error_text(error))
                 : 0;
}

/* The change must take effect with a key frame that starts from scratch. A key frame that failed
 * before keeps its frozen layer and the positions of the log at that time; it has to end first. */
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
        error = plx_reclaim_check_undisturbed(r); /* no turn of the loop before the key frame */
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
    r->rewrite.move_count = 0; /* the new segments belong to the log now */
    plx_thrift_forget(&r->vdi->past->thrift, r->bases[0].keyframe.pos,
                      r->bases[r->end].keyframe.pos);
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
    /* Frees new segments that no record names. If writing the record failed, the log has stopped
     * (sticky) and the record on the store may name them: then they stay allocated (RECLAIM-5). */
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
        .drop.flush_mark = plx_flush_mark(vdi->store),
        .fault = fault,
    };
    if (plx_log_shelf_init(&r->shelf, SHELF_SEGMENTS))
        return plx_reclaim_no_memory(r);
    /* Leaves out the segments behind `limit`: their writes are in flight and may reach the device
     * out of order. */
    error = plx_log_reader_of(
        r->store, &r->record, vdi->log.segments,
        plx_min_u64(r->limit + 1 - vdi->log.first_segment, vdi->log.segment_count), &r->reader,
        fault);
    r->reader.shelf = &r->shelf;
    return error;
}

/* ---- Another end of the stretch: both functions return FULL, and the caller looks again ---- */

/* Asks for an end twice as far away, because a longer stretch leaves more room for the rewritten
 * log. If there is no such end, or this was the last try, the snapshots up to `upto` stay and the
 * next call goes on behind them. */
static int reach_further(struct reclaim *r)
{
    const struct plx_keyframe *from = &r->bases[r->from].keyframe,
                              *end = &r->bases[r->end].keyframe;

    r->reach->behind = end->pos + (end->pos - from->pos);
    r->reach->upto = r->thinned->upto = end->snap_seq;
    return PLX_REWRITE_FULL;
}

/* Ends the current segment and writes a key frame: then a base lies behind all snapshots, in a
 * complete segment. Then nearer ends are tried again, too. At most once per call. */
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

/* Remembers that no snapshot up to here can go. */
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
    plx_thrift_set(&r->vdi->past->thrift, &mark);
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
    plx_thrift_set(&r->vdi->past->thrift, &mark);
}

/* Goes on at the mark of this boundary, if there is one. *ret_waits: the log behind the mark is too
 * short to be worth working on. */
static int go_on(struct reclaim *r, bool *ret_waits)
{
    uint64_t written_to = r->limit, bytes = plx_log_segment_bytes(r->store);
    int error;

    if (!r->thin->thrifty)
        return 0;
    r->mark = plx_thrift_find(&r->vdi->past->thrift, r->thin, r->held, r->held_count, &r->reader);
    if (!r->mark)
        return 0;
    if (r->vdi->log.applied.pos % bytes == 0)
        written_to--; /* the segment at that position may not have begun */
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

/* ---- One slice of history ---- */

/* Up to which snapshot this call let nothing go: the stretch did not fit, or had no end, or no
 * snapshot was due. Where a rewind stops the stretch (RECLAIM-8), all up to the last one read. */
static uint64_t passed_over(const struct reclaim *r)
{
    if (r->reach->behind)
        return r->reach->upto;
    return r->gone_count && !r->at_rewind ? r->gone[0] - 1 : r->seen;
}

/* Whether to force a base behind the snapshots that go. Not for a boundary between two tiers of a
 * policy: those snapshots can wait until a base comes by itself. */
static bool wants_end(const struct reclaim *r)
{
    return !r->reach->all && r->gone_before_end < r->gone_count && !r->looked_enough &&
           !(r->thin->thrifty && r->thin->every_ns);
}

/* Returns PLX_REWRITE_FULL when the next try may end the stretch elsewhere. */
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
    /* Not damage: history moved on meanwhile, and what this call read there is reused by now. */
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
                          .clones_made = vdi->store->disks->clones_made};
    int error;

    if (vdi->snapshot)
        return plx_fault_set(fault, PLX_ERR_READONLY, "this is a snapshot");
    error = thin->before_ns && !thin->dry_run ? plx_protect_check_clock(vdi, thin->before_ns, fault)
                                              : 0;
    if (!error)
        error = plx_past_begin(vdi, fault);
    if (error)
        return error;
    error = PLX_REWRITE_FULL;
    for (unsigned tries = 0; error == PLX_REWRITE_FULL && tries < REACH_TRIES; tries++)
        error = thin_slice(vdi, thin, &reach, ret_thinned, fault);
    plx_past_end(vdi);
    ret_thinned->upto = plx_max_u64(ret_thinned->upto, thin->after);
    ret_thinned->oldest = vdi->record.oldest.snap_seq;
    return error == PLX_REWRITE_FULL ? 0 : error;
}
