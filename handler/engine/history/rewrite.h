/* rewrite.h - inside the engine: writes a stretch of a disk's log anew, in fewer segments.
 *
 * The stretch lies between two key frames, `from` and `to`, whose log positions stay what they are:
 * what is written lies between them, in new segments of the same numbers, and ends with a SKIP
 * record; the numbers that are left over have no segment any more. Synchronous, runs the loop.
 */
#ifndef PLX_REWRITE_H
#define PLX_REWRITE_H

#include "engine/log/replay.h"

/* Not errors: it does not fit between the two; or what is to be written anew includes the segment
 * that the disk still writes to. */
#define PLX_REWRITE_FULL 2
#define PLX_REWRITE_OPEN 3

struct plx_rewrite {
    struct plx_store *store;
    const struct plx_log_reader *reader; /* of the log as it is; only its segments are used */
    struct plx_keyframe from, to;
    uint64_t epoch;             /* of the batches that are written */
    bool first;                 /* nothing before `from` is kept */
    uint64_t limit;             /* segments from this number on may still be written to */
    struct plx_log_move *moves; /* what was written so far; the caller takes or frees them */
    size_t move_count, move_capacity;
    struct plx_log_reader copier; /* of what is taken over as it is */
    uint8_t *memory;
    /* The segment at hand, and where the next batch goes. */
    uint8_t *segment;
    uint64_t number, addr;
    struct plx_segment_header header;
    uint64_t pos, seq, hash;
    uint64_t snap_seq, time_ns;   /* of the last snapshot, or key frame, before pos */
    struct plx_keyframe keyframe; /* in effect */
    /* The batch at hand. */
    uint8_t *batch;
    size_t batch_bytes;
    uint32_t records;
    uint64_t batch_snap_seq, batch_ns; /* as they were before it */
    struct plx_keyframe batch_keyframe;
    bool batch_snapshot; /* there is one in it */
    uint64_t written;    /* bytes of batches */
    /* Where the batch with the last snapshot lies; seq 0: there was none. */
    struct plx_log_cursor last_snapshot;
    struct plx_fault *fault;
};

/* The caller has filled in store, reader, from, to, epoch, first, limit and fault; all else is
 * zero. */
int plx_rewrite_begin(struct plx_rewrite *rewrite);
/* Where a record of so many bytes is to be put. */
int plx_rewrite_room(struct plx_rewrite *rewrite, size_t bytes, void **ret_room);
int plx_rewrite_snapshot(struct plx_rewrite *rewrite, uint64_t seq, uint64_t time_ns);
/* A key frame of this moment lies here now. */
int plx_rewrite_place(struct plx_rewrite *rewrite, struct plx_keyframe *keyframe);
/* From now on snapshots are read through it. */
int plx_rewrite_announce(struct plx_rewrite *rewrite, const struct plx_keyframe *keyframe);
int plx_rewrite_end(struct plx_rewrite *rewrite);
/* Frees the memory, not the segments. */
void plx_rewrite_done(struct plx_rewrite *rewrite);

#endif
