/* protect.h - inside the engine: continuous protection, the snapshots that a disk takes by itself.
 *
 * Order of calls: plx_protect_start() once the disk is opened. plx_protect_pump() once a turn takes
 * a snapshot when one is due; plx_protect_due_ns() says when a turn is needed. The data path calls
 * plx_protect_note_change() for each change. plx_protect_last() before the disk is closed. The
 * policy is set with plx_vdi_set_protection() (engine.h), which has the modes.
 */
#ifndef PLX_PROTECT_H
#define PLX_PROTECT_H

#include "engine/engine.h"

struct plx_protect {
    struct plx_protection policy; /* in force */
    struct plx_protection kept;   /* what the next key frame writes into the record: `policy`; while
                                   * another one is only tried, the policy before it */
    struct plx_request request;   /* INTERVAL: the one automatic snapshot there is */
    bool under_way, ordered;      /* that request; ordered: it has its place among the writes */
    bool changed;        /* since the last snapshot, for certain (vdi->changed may be a guess) */
    bool failing;        /* the last snapshot failed, and an operator was told */
    uint64_t changed_ns; /* monotonic: the first change since the last snapshot */
    uint64_t due_ns;     /* monotonic: when the next one is due, if anything has changed */
    uint64_t told_ns;  /* monotonic: when an operator was told that some were left out; 0: never */
    uint64_t left_out; /* snapshots left out since then */
    uint64_t meter_ns, meter_count, rate; /* taken since meter_ns; rate: per second before that */
};

struct plx_vdi;

/* From now on snapshots are taken. To be called once the disk is this instance's (VDI-2).
 * found_changes: recovery found changes that perhaps no snapshot saw. */
void plx_protect_start(struct plx_vdi *vdi, bool found_changes);
/* Tells the log what snapshots it is to add by itself (BATCH and WRITE). To be called when the mode
 * or the disk's mark of a ring has changed (PROTECT-8). */
void plx_protect_apply_mode(struct plx_vdi *vdi);
/* Whether snapshots taken before this time may be let go by time: 0, or CLOCK and why. */
int plx_protect_check_clock(struct plx_vdi *vdi, uint64_t before_ns, struct plx_fault *fault);
/* Takes a snapshot when one is due. Called once a turn. */
void plx_protect_pump(struct plx_vdi *vdi);
/* When the loop must turn for a snapshot: monotonic; UINT64_MAX: never. */
uint64_t plx_protect_due_ns(const struct plx_vdi *vdi);
/* Takes the last snapshot of a disk that is about to be closed, if an interval's policy is in
 * force. Synchronous. */
void plx_protect_last(struct plx_vdi *vdi);

/* ---- For the data path (op.h) and log.c ---- */

/* Whether nothing may be written in place, because the log adds snapshots (PROTECT-3). */
bool plx_protect_copies(const struct plx_vdi *vdi);
/* The disk's contents or size change now. */
void plx_protect_note_change(struct plx_vdi *vdi);
/* A snapshot, requested or automatic, takes its place among the writes. */
void plx_protect_ordered(struct plx_vdi *vdi, const struct plx_request *request);
/* Tells the environment of an automatic snapshot (env.h), and counts it when it was taken. */
void plx_protect_tell(struct plx_vdi *vdi, enum plx_automatic what, uint64_t seq, uint64_t time_ns);

/* Automatic snapshots per second, lately. */
uint64_t plx_protect_rate(const struct plx_vdi *vdi);

#endif
