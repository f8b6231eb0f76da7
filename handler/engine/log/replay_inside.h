/* replay_inside.h - what shelf.c, reader.c and replay.c share. REPLAY-1 to REPLAY-8 are at the top
 * of replay.c. */
#ifndef PLX_REPLAY_INSIDE_H
#define PLX_REPLAY_INSIDE_H

#include "engine/log/replay.h"

#define NO_SEGMENT UINT64_MAX
#define PROOF_BLOCKS 64u /* are read, and written again, at once */
#define READ_AHEAD ((size_t)PLX_BLOCK_SIZE)

/* Where the log goes on behind a key frame. */
static inline struct plx_log_cursor plx_log_cursor_at(const struct plx_keyframe *keyframe)
{
    return (struct plx_log_cursor){
        .pos = keyframe->pos,
        .seq = keyframe->batch_seq + 1,
        .hash = keyframe->prev_hash,
        .snap_seq = keyframe->snap_seq,
    };
}

/* shelf.c: reads more of the segment at hand, if it is on a shelf; reads a segment and its header;
 * reads a header alone. */
int plx_log_read_further(struct plx_log_reader *reader, size_t from, size_t to,
                         struct plx_fault *fault);
int plx_log_load_segment(struct plx_log_reader *reader, uint64_t segment, struct plx_fault *fault);
int plx_log_read_header(struct plx_log_reader *reader, uint64_t segment, uint64_t addr,
                        struct plx_segment_header *ret_header);

/* reader.c: looks for damage behind the log's end (REPLAY-2); reports an impossible record. */
int plx_log_end_is_right(struct plx_log_reader *reader, struct plx_fault *fault);
int plx_log_bad_record(const struct plx_log_reader *reader, struct plx_fault *fault);

#endif
