/* thrift.h - inside the engine: how far each tier of a retention policy has thinned out history,
 * and when thinning out more is worth its cost. For reclaim.c, when struct plx_thin says thrifty.
 *
 * Each tier keeps one snapshot per interval (every_ns); the end of the window keeps none (every_ns
 * 0). A tier works through history from older to newer stretches, each stretch once. A mark in
 * memory remembers where the tier goes on and what it waits for. The order of calls:
 *
 *   plx_thrift_find()    the tier's mark; NULL after a restart: reclaim.c searches the log once
 *   plx_thrift_end()     proposes where the next stretch ends, or writes into the mark what to wait
 *                        for
 *   plx_thrift_waits()   whether what the mark waits for has come
 *   plx_thrift_set()     after the stretch: the mark moves on
 *   plx_thrift_forget()  the log was rewritten: marks inside the stretch are void
 */
#ifndef PLX_THRIFT_H
#define PLX_THRIFT_H

#include "engine/log/replay.h"

#define PLX_THRIFT_MARKS (PLX_TIERS_MAX + 1)

struct plx_thrift_mark {
    bool used;
    uint64_t every_ns, upto; /* which tier; it has looked at all snapshots up to this one */
    uint64_t held;           /* a digest of the snapshots up to there that were held then */
    /* Reading begins here. From here up to `from` the log shows every block that was born after the
     * last snapshot that stays (RECLAIM-10). */
    struct plx_log_cursor begin;
    struct plx_keyframe from;   /* the next stretch begins at this key frame; levels 0: not known */
    struct plx_keyframe before; /* the kept key frame before `from`; levels 0: `from` must stay */
    uint64_t mappings;          /* mappings in the log since `before` */
    unsigned percent;           /* how much of the log of the last stretch was left */
    /* The tier waits until before_ns is later than wait_ns, and until this segment has begun. */
    uint64_t wait_ns, wait_segment;
};

/* The marks of an open disk; all zero at first. */
struct plx_thrift {
    struct plx_thrift_mark marks[PLX_THRIFT_MARKS];
    unsigned next; /* the mark that an unknown tier replaces */
};

/* A digest of the numbers up to `upto` in an ascending list. */
uint64_t plx_thrift_digest(const uint64_t *held, size_t count, uint64_t upto);
/* The mark to go on at, or NULL. held: all snapshots that are held, ascending. */
struct plx_thrift_mark *plx_thrift_find(struct plx_thrift *thrift, const struct plx_thin *thin,
                                        const uint64_t *held, size_t held_count,
                                        const struct plx_log_reader *reader);
/* Replaces the mark of the same tier. */
void plx_thrift_set(struct plx_thrift *thrift, const struct plx_thrift_mark *mark);
/* Forgets the marks between two log positions: that part of the log was rewritten, or is gone. */
void plx_thrift_forget(struct plx_thrift *thrift, uint64_t from, uint64_t to);

/* The bytes of log between two positions, without the segments that no longer exist. */
uint64_t plx_thrift_bytes(const struct plx_log_reader *reader, uint64_t from, uint64_t to);
/* Whether the tier still waits. limit: the segment that the disk writes to. */
bool plx_thrift_waits(const struct plx_thrift_mark *mark, uint64_t limit, uint64_t before_ns);
/* *ret_end: where the stretch that begins at the mark should end. Its levels are 0 if no end is
 * worth it yet; the mark then says what to wait for. */
int plx_thrift_end(struct plx_log_reader *reader, struct plx_thrift_mark *mark, uint64_t limit,
                   uint64_t before_ns, struct plx_keyframe *ret_end, struct plx_fault *fault);

#endif
