/* reclaim_inside.h - what reclaim.c and its two passes share; the rules RECLAIM-1 to RECLAIM-10 are
 * reclaim.c's.
 */
#ifndef PLX_RECLAIM_INSIDE_H
#define PLX_RECLAIM_INSIDE_H

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
    /* Before the first try: of these the caller knew (RECLAIM-5, RECLAIM-6). */
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
    uint64_t *held; /* RECLAIM-6, ascending */
    size_t held_count, held_capacity;
    /* RECLAIM-10, when thrifty: */
    struct plx_thrift_mark *mark;
    uint64_t after;              /* the caller's, or further: what a mark has passed stays */
    struct plx_keyframe planned; /* the stretch ends there, or further; levels 0: anywhere */
    struct plx_log_cursor at;    /* the batch that is being read */
    struct plx_log_cursor begin; /* of the last snapshot that stays: its batch */
    uint64_t too_young_ns;       /* the first snapshot that is; 0: none was met */
    /* What was found: */
    struct base *bases; /* RECLAIM-1, oldest first */
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
    /* RECLAIM-9: */
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

/* reclaim_look.c */
int plx_reclaim_no_memory(const struct reclaim *r);
int plx_reclaim_push_number(struct reclaim *r, uint64_t **list, size_t *count, size_t *capacity,
                            uint64_t number);
bool plx_reclaim_contains(const uint64_t *list, size_t count, uint64_t number);
int plx_reclaim_find_holds(struct reclaim *r);
bool plx_reclaim_history_moved(const struct reclaim *r);
bool plx_reclaim_end_moved(const struct reclaim *r);
int plx_reclaim_check_undisturbed(struct reclaim *r);
int plx_reclaim_next_batch(struct reclaim *r);
int plx_reclaim_each_record(struct reclaim *r,
                            int (*visit)(struct reclaim *r, const struct plx_record *record));
struct plx_log_cursor plx_reclaim_behind(const struct plx_keyframe *keyframe);
bool plx_reclaim_goes(const struct reclaim *r, uint64_t seq, uint64_t time_ns);
bool plx_reclaim_is_read(const struct reclaim *r, const struct base *base);
int plx_reclaim_look(struct reclaim *r);

/* reclaim_write.c */
struct plx_log_cursor plx_reclaim_beginning(const struct reclaim *r);
bool plx_reclaim_begins_with_rewind(const struct reclaim *r);
int plx_reclaim_begin_with_rewind(struct reclaim *r);
int plx_reclaim_work_on_stretch(struct reclaim *r);

/* reclaim.c */
void plx_reclaim_done(struct reclaim *r);
int plx_reclaim_begin(struct reclaim *r, struct plx_vdi *vdi, const struct plx_thin *thin,
                      struct reach *reach, struct plx_thinned *thinned, struct plx_fault *fault);

#endif
