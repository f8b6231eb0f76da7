/* witness.h - whether the wall clock is to be believed. A witness remembers what the wall clock
 * said when it was last believed, and which snapshots were taken in doubt. The rules are at the top
 * of witness.c.
 *
 *     struct plx_clocks now = plx_clocks_read(env);
 *     plx_witness_look(&witness, &now, &ends);                      first, each time
 *     time = plx_witness_stamp(&witness, now.wall_ns, ends.newest_ns);      of a new snapshot
 *     if (plx_witness_lets_go(&witness, &now, &ends))               may snapshots go by age?
 *
 * Pure functions, but for plx_clocks_read(). The engine makes the looks, the registry keeps the
 * text (registry/retention.h), and the admin command asks of a closed disk what an open one would
 * say.
 */
#ifndef PLX_WITNESS_H
#define PLX_WITNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/env.h"

enum plx_doubt {
    PLX_DOUBT_NONE,
    PLX_DOUBT_STEPPED, /* set while this machine ran */
    PLX_DOUBT_BEHIND,  /* the machine restarted; the time is earlier than before */
    PLX_DOUBT_GAP,     /* it restarted; the time is much later than before */
    PLX_DOUBT_FUTURE,  /* the newest snapshot lies in the future */
    PLX_DOUBTS,
};

/* One look at all clocks. */
struct plx_clocks {
    uint64_t wall_ns, boot_ns;
    uint64_t boot_id;
    bool disciplined;
};

/* A stretch: snapshots with after < seq <= upto were taken in doubt, at unknown times before
 * ended_ns. upto UINT64_MAX: the doubt goes on. */
struct plx_undated {
    uint64_t after, upto, ended_ns;
};

#define PLX_UNDATED_MAX 8u

struct plx_witness {
    uint64_t boot_id;          /* 0: nothing was seen yet */
    uint64_t boot_ns, wall_ns; /* the clocks when they were last believed */
    uint64_t seq;              /* the newest snapshot taken by then */
    uint64_t future_ns;        /* by the operator's word, snapshots up to this time stay */
    enum plx_doubt doubt;      /* as of the last look */
    unsigned undated_count;    /* oldest first; only the last one may go on */
    struct plx_undated undated[PLX_UNDATED_MAX];
};

/* Where a disk's history begins and ends. */
struct plx_history_ends {
    uint64_t forgotten;             /* snapshots up to this one are gone */
    uint64_t taken_seq;             /* the newest one whose record the log holds */
    uint64_t newest_seq, newest_ns; /* the newest one that was ordered */
    bool unsettled;                 /* the disk has stopped: a failed snapshot may exist */
};

struct plx_clocks plx_clocks_read(struct plx_env *env);

/* Looks at the clocks once, and updates the witness. */
void plx_witness_look(struct plx_witness *witness, const struct plx_clocks *now,
                      const struct plx_history_ends *ends);
/* The operator's word: the wall clock is right as it is. */
void plx_witness_resume(struct plx_witness *witness, const struct plx_clocks *now,
                        const struct plx_history_ends *ends);

/* WITNESS-9: before the first look of an opening that has recovered the disk. The snapshots behind
 * `after`, up to `upto`, the newest one, have times that are a nanosecond apart. */
void plx_witness_found(struct plx_witness *witness, uint64_t after, uint64_t upto);
/* Whether two states of a witness differ in what a crash must not lose: the doubt, the stretches,
 * the operator's word. */
bool plx_witness_differs(const struct plx_witness *witness, const struct plx_witness *other);

/* Whether snapshots may go by time. To be called right after a look. */
bool plx_witness_lets_go(const struct plx_witness *witness, const struct plx_clocks *now,
                         const struct plx_history_ends *ends);
/* The time of a snapshot that is taken now. To be called right after a look. newest_ns: the time of
 * the snapshot before. */
uint64_t plx_witness_stamp(const struct plx_witness *witness, uint64_t wall_ns, uint64_t newest_ns);
/* Whether the snapshot stays whatever its time says (WITNESS-5). every_ns 0: snapshots before
 * before_ns are about to go. Above 0: of them one per period of every_ns is to stay. */
bool plx_witness_keeps(const struct plx_witness *witness, uint64_t seq, uint64_t before_ns,
                       uint64_t every_ns);
bool plx_witness_is_undated(const struct plx_witness *witness, uint64_t seq);
/* Whether the time of a snapshot is beyond doubt (WITNESS-8). To be called right after a look. */
bool plx_witness_is_dated(const struct plx_witness *witness, const struct plx_clocks *now,
                          uint64_t seq, uint64_t time_ns);

/* How far the wall clock is off: what it says, less what it should say, as far as can be told. For
 * PLX_DOUBT_GAP: the time that nobody has seen pass. */
int64_t plx_witness_off_ns(const struct plx_witness *witness, const struct plx_clocks *now,
                           const struct plx_history_ends *ends);
/* The reason for a person, as a sentence without a full stop. */
#define PLX_DOUBT_TEXT 200
const char *plx_witness_text(const struct plx_witness *witness, const struct plx_clocks *now,
                             const struct plx_history_ends *ends, char ret_text[PLX_DOUBT_TEXT]);
/* "stepped", or "none". */
const char *plx_doubt_name(enum plx_doubt doubt);

/* The witness as text, to be kept, and back. False: the text is no witness. */
#define PLX_WITNESS_TEXT 768
const char *plx_witness_print(const struct plx_witness *witness, char ret_text[PLX_WITNESS_TEXT]);
bool plx_witness_parse(const char *text, struct plx_witness *ret_witness);

#endif
