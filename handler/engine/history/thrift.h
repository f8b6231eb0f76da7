/* thrift.h - inside the engine: where letting go by a policy has come to, and when going on is
 * worth what it costs.
 *
 * A level of a policy lets go of snapshots at one interval. It works through history in stretches,
 * each once, from older to newer ones. What it has to know to go on is a mark. For reclaim.c.
 */
#ifndef PLX_THRIFT_H
#define PLX_THRIFT_H

#include "engine/log/replay.h"

#define PLX_THRIFT_MARKS (PLX_TIERS_MAX + 1)

struct plx_thrift_mark {
    bool used;
    uint64_t every_ns, upto; /* all snapshots up to this one were looked at */
    uint64_t held;           /* a digest of those that were held then */
    /* Whoever reads the log from here on up to `from` meets all that was born after the last
     * snapshot up to there that stays. */
    struct plx_log_cursor begin;
    struct plx_keyframe from;   /* the next stretch begins at this one; levels 0: to be found */
    struct plx_keyframe before; /* the one kept before, if `from` may go; levels 0: it stays */
    uint64_t mappings;          /* in the log since `before` */
    unsigned percent;           /* so much of the log worked on the last time was left */
    /* Nobody looks again before snapshots of this time go, and before this segment has begun. */
    uint64_t wait_ns, wait_segment;
};

/* Of a disk that is open; all zero at first. */
struct plx_thrift {
    struct plx_thrift_mark marks[PLX_THRIFT_MARKS];
    unsigned next; /* to be replaced */
};

/* Of those in an ascending list up to one. */
uint64_t plx_thrift_digest(const uint64_t *held, size_t count, uint64_t upto);
/* The mark to go on at; NULL: there is none. held: all snapshots that are, ascending. */
struct plx_thrift_mark *plx_thrift_find(struct plx_thrift *thrift, const struct plx_thin *thin,
                                        const uint64_t *held, size_t held_count,
                                        const struct plx_log_reader *reader);
/* Instead of the one of that interval. */
void plx_thrift_set(struct plx_thrift *thrift, const struct plx_thrift_mark *mark);
/* Forgets those that lie in a stretch of the log that was written anew, or is gone. */
void plx_thrift_forget(struct plx_thrift *thrift, uint64_t from, uint64_t to);

/* Of the log between two positions, what there is of it. */
uint64_t plx_thrift_bytes(const struct plx_log_reader *reader, uint64_t from, uint64_t to);
/* What is waited for has not come. */
bool plx_thrift_waits(const struct plx_thrift_mark *mark, uint64_t limit, uint64_t before_ns);
/* Where the stretch that begins at the mark should end; levels 0: nowhere yet, and the mark says
 * what is waited for. limit: the segment that is written to. */
int plx_thrift_end(struct plx_log_reader *reader, struct plx_thrift_mark *mark, uint64_t limit,
                   uint64_t before_ns, struct plx_keyframe *ret_end, struct plx_fault *fault);

#endif
