/* protect.h - inside the engine: continuous protection, the snapshots that a disk takes by itself.
 */
#ifndef PLX_PROTECT_H
#define PLX_PROTECT_H

#include "engine/engine.h"

struct plx_protect {
    struct plx_protection policy; /* in force */
    struct plx_protection kept;   /* the record has it after the next key frame; policy or, while
                                   * another one is tried, the one before */
    struct plx_request request;   /* INTERVAL: the one automatic snapshot there is */
    bool under_way, ordered;
    bool changed;        /* the disk, since its last snapshot; unlike vdi->changed never a guess */
    bool failing;        /* the last one failed, and an operator knows */
    uint64_t changed_ns; /* monotonic: the first change since then */
    uint64_t due_ns;     /* monotonic: the next one, if anything has changed */
    uint64_t told_ns;  /* monotonic: when an operator was told that some were left out; 0: never */
    uint64_t left_out; /* since then */
    uint64_t meter_ns, meter_count, rate; /* taken since meter_ns; a second, before that */
};

struct plx_vdi;

/* Once the disk is this instance's (VDI-2), not before: from now on snapshots are taken.
 * found_changes: recovery found some that perhaps no snapshot saw. */
void plx_protect_start(struct plx_vdi *vdi, bool found_changes);
/* Whether snapshots taken before this time may go by time: 0, or CLOCK and why. */
int plx_protect_check_clock(struct plx_vdi *vdi, uint64_t before_ns, struct plx_fault *fault);
/* Takes a snapshot when one is due. Called once a turn. */
void plx_protect_pump(struct plx_vdi *vdi);
/* When a turn is needed for that: monotonic, UINT64_MAX: never. */
uint64_t plx_protect_due_ns(const struct plx_vdi *vdi);
/* The disk is about to be closed: its last state is an instant, too. Synchronous. */
void plx_protect_last(struct plx_vdi *vdi);

/* ---- For the data path (op.h) and log.c ---- */

/* Whether nothing may be written in place: every batch ends with a snapshot. */
bool plx_protect_copies(const struct plx_vdi *vdi);
void plx_protect_note_change(struct plx_vdi *vdi);
/* A snapshot takes its place among the writes; automatic: if it is protection's. */
void plx_protect_ordered(struct plx_vdi *vdi, const struct plx_request *request);
/* Those that follow records in a batch (log.c). */
void plx_protect_tell(struct plx_vdi *vdi, enum plx_automatic what, uint64_t seq, uint64_t time_ns);

/* Snapshots a second, lately. */
uint64_t plx_protect_rate(const struct plx_vdi *vdi);

#endif
