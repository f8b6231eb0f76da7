/* rewrite.h - inside the engine: rewrites a stretch of a disk's log in fewer segments.
 *
 * The stretch lies between two key frames, `from` and `to`, whose log positions do not change. The
 * new batches begin at the position of `from`, in new segments that carry the old segment numbers.
 * Because they are shorter, a SKIP record ends them and sends readers on to `to`. The segment
 * numbers in between are left without a segment.
 *
 *   before   |..from====|==========|==========|====to....|     .. as it is, == the stretch
 *   after    |..from--S |    (none)|    (none)|    to....|     -- rewritten, S the SKIP record
 *
 * The order of calls:
 *
 *   fill in the first fields, then plx_rewrite_begin()
 *   for each record that stays, in the order of the log:
 *     plx_rewrite_room() and encode the record there; or plx_rewrite_snapshot()
 *     plx_rewrite_place() where a key frame in the middle stands, which changes its position;
 *     plx_rewrite_announce() where the old log announces it
 *   plx_rewrite_end(); the caller hands `moves` to a key frame (struct plx_history_drop), or frees
 *   the segments in it; then plx_rewrite_done()
 *
 * All calls are synchronous and run the loop. They return 0, an error with a sentence in *fault, or
 * one of the two results below, after which only plx_rewrite_done() follows.
 */
#ifndef PLX_REWRITE_H
#define PLX_REWRITE_H

#include "engine/log/replay.h"

/* Not errors. FULL: the new batches do not fit between `from` and `to`. OPEN: a segment that would
 * have to be copied is the one that the disk still writes to. */
#define PLX_REWRITE_FULL 2
#define PLX_REWRITE_OPEN 3

struct plx_rewrite {
    struct plx_store *store;
    const struct plx_log_reader *reader; /* of the old log; only its list of segments is used */
    struct plx_keyframe from, to;
    uint64_t epoch;             /* for the new batches */
    bool first;                 /* history begins with `from`: what lies before it is not kept */
    uint64_t limit;             /* the disk may still write to segments from this number on */
    struct plx_log_move *moves; /* new places of segments; addr 0: that number has none any more */
    size_t move_count, move_capacity;
    struct plx_log_reader copier; /* reads the old batches that are copied */
    uint8_t *memory;
    /* The segment being filled, and where in the log the next batch goes. */
    uint8_t *segment;
    uint64_t number, addr;
    struct plx_segment_header header;
    uint64_t pos, seq, hash;
    uint64_t snap_seq, time_ns;   /* of the last snapshot or key frame before pos */
    struct plx_keyframe keyframe; /* the last one announced before pos */
    /* The batch being filled. */
    uint8_t *batch;
    size_t batch_bytes;
    uint32_t records;
    uint64_t batch_snap_seq, batch_ns; /* snap_seq, time_ns and keyframe before this batch */
    struct plx_keyframe batch_keyframe;
    bool batch_snapshot; /* it has a SNAPSHOT record */
    uint64_t written;    /* bytes of all new batches */
    /* Where the batch with the last snapshot lies; seq 0: no snapshot was written. */
    struct plx_log_cursor last_snapshot;
    struct plx_fault *fault;
};

/* The caller has filled in store, reader, from, to, epoch, first, limit and fault; all other fields
 * are zero. */
int plx_rewrite_begin(struct plx_rewrite *rewrite);
/* *ret_room: where the caller encodes a record of exactly so many bytes. */
int plx_rewrite_room(struct plx_rewrite *rewrite, size_t bytes, void **ret_room);
/* Writes a SNAPSHOT record. */
int plx_rewrite_snapshot(struct plx_rewrite *rewrite, uint64_t seq, uint64_t time_ns);
/* Gives a kept key frame its position in the new log: here, behind all records so far. */
int plx_rewrite_place(struct plx_rewrite *rewrite, struct plx_keyframe *keyframe);
/* Writes a KEYFRAME record: snapshots behind it are read through that key frame. */
int plx_rewrite_announce(struct plx_rewrite *rewrite, const struct plx_keyframe *keyframe);
/* Ends with the SKIP record, writes the last segment and copies what REWRITE-3 and REWRITE-4 say.
 */
int plx_rewrite_end(struct plx_rewrite *rewrite);
/* Frees the memory, moves included, but not the segments on the store. */
void plx_rewrite_done(struct plx_rewrite *rewrite);

#endif
