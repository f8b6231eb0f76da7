/* witness.h - whether the wall clock is to be believed: what it was when it last was, and since
 * when it is in doubt. The rule is at the top of witness.c.
 *
 * Pure functions: the engine looks at the clocks of env.h, the registry keeps the text
 * (registry/retention.h), the admin command asks of a closed disk what an open one would say.
 */
#ifndef PLX_WITNESS_H
#define PLX_WITNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/env.h"

enum plx_doubt {
    PLX_DOUBT_NONE,
    PLX_DOUBT_STEPPED, /* the wall clock was set while this machine ran */
    PLX_DOUBT_BEHIND,  /* the machine has started anew, with an earlier time than was seen before */
    PLX_DOUBT_GAP,     /* it has started anew, and long after what was seen before */
    PLX_DOUBT_FUTURE,  /* the newest snapshot lies in the future */
    PLX_DOUBTS,
};

/* One look at all clocks. */
struct plx_clocks {
    uint64_t wall_ns, boot_ns;
    uint64_t boot_id;
    bool disciplined;
};

/* Snapshots with after < seq <= upto were taken in doubt: before ended_ns, and nobody knows when.
 * upto UINT64_MAX: it is not over. */
struct plx_undated {
    uint64_t after, upto, ended_ns;
};

#define PLX_UNDATED_MAX 8u

struct plx_witness {
    uint64_t boot_id;          /* 0: nothing was seen yet */
    uint64_t boot_ns, wall_ns; /* the clocks when they were last believed ... */
    uint64_t seq;              /* ... and the newest snapshot taken by then */
    uint64_t future_ns;        /* operator's word: snapshots up to here are right */
    enum plx_doubt doubt;      /* as of the last look */
    unsigned undated_count;    /* oldest first; only the last may not be over */
    struct plx_undated undated[PLX_UNDATED_MAX];
};

/* Where a disk's history begins and ends. */
struct plx_history_ends {
    uint64_t forgotten;             /* snapshots up to this one are gone */
    uint64_t taken_seq;             /* the newest of which the log holds the record ... */
    uint64_t newest_seq, newest_ns; /* ... and the newest that was ordered */
    bool unsettled; /* the disk has stopped: what failed may be on the store all the same */
};

struct plx_clocks plx_clocks_read(struct plx_env *env);

/* One look. */
void plx_witness_look(struct plx_witness *witness, const struct plx_clocks *now,
                      const struct plx_history_ends *ends);
/* The operator's word: the wall clock is right as it is. */
void plx_witness_resume(struct plx_witness *witness, const struct plx_clocks *now,
                        const struct plx_history_ends *ends);

/* Whether snapshots may go by time, right after a look. */
bool plx_witness_lets_go(const struct plx_witness *witness, const struct plx_clocks *now,
                         const struct plx_history_ends *ends);
/* The time of a snapshot taken now, right after a look; newest_ns is that of the last one. */
uint64_t plx_witness_stamp(const struct plx_witness *witness, uint64_t wall_ns, uint64_t newest_ns);
/* Whether this snapshot stays, whatever time is written in it, when those taken before before_ns
 * go, or (every_ns) come down to one in each such period. */
bool plx_witness_keeps(const struct plx_witness *witness, uint64_t seq, uint64_t before_ns,
                       uint64_t every_ns);
bool plx_witness_is_undated(const struct plx_witness *witness, uint64_t seq);

/* How far the wall clock is off, as far as can be told: what it says less what it should say. For
 * PLX_DOUBT_GAP: what nobody has seen pass. */
int64_t plx_witness_off_ns(const struct plx_witness *witness, const struct plx_clocks *now,
                           const struct plx_history_ends *ends);
/* Why, for a person: "the wall clock was set ..." */
#define PLX_DOUBT_TEXT 200
const char *plx_witness_text(const struct plx_witness *witness, const struct plx_clocks *now,
                             const struct plx_history_ends *ends, char ret_text[PLX_DOUBT_TEXT]);
/* "stepped"; "none" */
const char *plx_doubt_name(enum plx_doubt doubt);

/* As text, to be kept, and back; false: it is none. */
#define PLX_WITNESS_TEXT 768
const char *plx_witness_print(const struct plx_witness *witness, char ret_text[PLX_WITNESS_TEXT]);
bool plx_witness_parse(const char *text, struct plx_witness *ret_witness);

#endif
