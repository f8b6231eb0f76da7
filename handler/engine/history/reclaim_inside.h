/* reclaim_inside.h - the state of one plx_vdi_thin() call, shared by reclaim.c and its two passes,
 * reclaim_look.c (which snapshots go) and reclaim_write.c (the log without them).
 *
 * reclaim.c explains the steps, the word "base" and the rules RECLAIM-1 to RECLAIM-10.
 */
#ifndef PLX_RECLAIM_INSIDE_H
#define PLX_RECLAIM_INSIDE_H

#include "engine/history/past.h"
#include "engine/history/rewrite.h"
#include "engine/history/versions.h"
#include "engine/log/replay.h"
#include "engine/map/treewalk.h"

#define SLICE_SEGMENTS 64u /* one call reads about so many segments of log, or somewhat more */
#define SHELF_SEGMENTS 24u /* segments kept in memory: a thrifty stretch and both its ends */
#define SETTLE_TRIES 8u
#define REACH_TRIES 4u

/* A key frame through which the snapshots behind it are read. */
struct base {
    struct plx_keyframe keyframe;
    bool whole;                /* all its nodes are kept (RECLAIM-2) */
    bool needed;               /* a held snapshot is read through it (RECLAIM-6) */
    bool placed;               /* kept, and not announced yet in the rewritten log */
    struct plx_keyframe moved; /* the same key frame at its position in the rewritten log */
};

/* What one try learned about the end of a stretch, for the next try of the same call. */
struct reach {
    uint64_t behind; /* the end must lie behind this log position: nearer ends were FULL */
    uint64_t upto;   /* if there is no such end, snapshots up to this one stay */
    bool all;        /* end_the_segment() has put a key frame behind all of the log */
    /* Counters when the call began. The caller's list of holds is complete up to them (RECLAIM-5,
     * RECLAIM-6). */
    uint64_t labels_ended, clones_made;
};

struct reclaim {
    struct plx_vdi *vdi;
    struct plx_store *store;
    const struct plx_thin *thin;
    struct plx_thinned *thinned;
    struct reach *reach;
    struct plx_vdi_record record; /* a copy from the beginning of the try */
    uint64_t last_batch;          /* the last batch applied by then; nothing behind it is read */
    uint64_t limit;               /* the segment where that batch ends */
    struct plx_log_reader reader;
    struct plx_log_shelf shelf;
    struct plx_treewalk walk;
    uint64_t *held; /* step 1: snapshots that must stay (RECLAIM-6), ascending */
    size_t held_count, held_capacity;

    /* Step 2, thrifty calls only (RECLAIM-10). */
    struct plx_thrift_mark *mark; /* NULL: none */
    uint64_t after;               /* snapshots up to this one stay: the caller's, or the mark's */
    struct plx_keyframe planned;  /* the stretch ends here or behind; levels 0: anywhere */

    /* Step 3: what the log shows. */
    struct plx_log_cursor at;    /* the batch that is being read */
    struct plx_log_cursor begin; /* the batch of the last snapshot before those that go */
    uint64_t too_young_ns;       /* time of the first snapshot that is too young; 0: none met */
    struct base *bases;          /* the possible ends of the stretch (RECLAIM-1), oldest first */
    size_t base_count, base_capacity;
    size_t end;             /* index in bases of the end of the stretch; 0: not found */
    uint64_t previous;      /* the last snapshot before those that go; 0: none */
    uint64_t first_stays;   /* the first snapshot that stays behind the first that goes; 0: none */
    uint64_t seen, seen_ns; /* the last snapshot read; the time of the last one with a true time */
    uint64_t *gone;         /* snapshots that go, ascending */
    size_t gone_count, gone_capacity;
    size_t gone_before_end; /* how many of them lie before the end of the stretch */
    unsigned segments_read;
    /* The rest of the log is the next call's; a rewind stopped the stretch (RECLAIM-8). */
    bool looked_enough, at_rewind;

    /* Step 3, history that begins with a rewind's key frame (RECLAIM-9). */
    bool all_may_go; /* every snapshot read so far may go, apart from holds of rewinds */
    uint64_t *past;  /* those snapshots, ascending */
    size_t past_count, past_capacity;
    struct plx_keyframe rewound; /* history can begin with this one; levels 0: with none */

    /* Step 5. */
    struct plx_versions versions;
    struct plx_rewrite rewrite;
    size_t from;      /* index in bases: the base from which on history is kept */
    size_t passed;    /* how many bases were passed */
    struct base kept; /* the last base that stays */
    uint64_t stayed;  /* the last snapshot written into the new log; 0: none */
    /* The next batch read is the first of the part to be rewritten; that part has begun. */
    bool begin_writing, writing;
    uint64_t mappings;            /* mappings written since `kept` */
    struct plx_history_drop drop; /* what step 7 hands to the key frame */
    uint64_t nodes;               /* how many of drop.blocks are nodes; the others are data */
    struct plx_fault *fault;
};

/* reclaim_look.c: steps 1 and 3, and what both passes use. */
int plx_reclaim_no_memory(const struct reclaim *r);
int plx_reclaim_push_number(struct reclaim *r, uint64_t **list, size_t *count, size_t *capacity,
                            uint64_t number);
bool plx_reclaim_contains(const uint64_t *list, size_t count, uint64_t number);
int plx_reclaim_find_holds(struct reclaim *r);
bool plx_reclaim_history_moved(const struct reclaim *r);
bool plx_reclaim_end_moved(const struct reclaim *r);
int plx_reclaim_check_undisturbed(struct reclaim *r);
int plx_reclaim_next_batch(struct reclaim *r);
struct plx_log_cursor plx_reclaim_behind(const struct plx_keyframe *keyframe);
bool plx_reclaim_goes(const struct reclaim *r, uint64_t seq, uint64_t time_ns);
bool plx_reclaim_is_read(const struct reclaim *r, const struct base *base);
int plx_reclaim_look(struct reclaim *r);

/* reclaim_write.c: step 5. */
struct plx_log_cursor plx_reclaim_beginning(const struct reclaim *r);
bool plx_reclaim_begins_with_rewind(const struct reclaim *r);
int plx_reclaim_begin_with_rewind(struct reclaim *r);
int plx_reclaim_work_on_stretch(struct reclaim *r);

/* reclaim.c */
void plx_reclaim_done(struct reclaim *r);
int plx_reclaim_begin(struct reclaim *r, struct plx_vdi *vdi, const struct plx_thin *thin,
                      struct reach *reach, struct plx_thinned *thinned, struct plx_fault *fault);

#endif
