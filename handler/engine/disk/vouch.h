/* vouch.h - inside the engine: blocks that were overwritten in place get their checksums back.
 *
 * Nobody would notice damage of a block without a checksum. A pass in the background reads such
 * blocks once nobody writes to them any more, and notes their checksums: from then on they are
 * vouched for. A pass is a row of PLX_VOUCH requests (op.h), one at a time.
 *
 * Order of calls: plx_vouch_start() once the disk is opened, plx_vouch_pump() once a turn, and
 * plx_vouch_done() at the end. The data path calls plx_vouch_note() for each write in place. The
 * rest are the functions of PLX_VOUCH's row in kinds.c; struct plx_op_kind (op.h) says when they
 * are called.
 */
#ifndef PLX_VOUCH_H
#define PLX_VOUCH_H

#include "engine/loop/store.h"

/* One bit for each leaf, by its number modulo this: enough for 64 GiB of a disk. Leaves of a
 * larger disk share bits, so some are looked at in vain, or one pass later. */
#define PLX_VOUCH_LEAVES 32768u

struct plx_vouch {
    struct plx_request request; /* one at a time */
    struct iovec iov;
    uint8_t *buffer;    /* for one window */
    uint64_t *leaves;   /* memory of the four sets of leaves: */
    uint64_t *written;  /* written in place in this period of quiet_ns */
    uint64_t *before;   /* written in place in the period before */
    uint64_t *left;     /* may have blocks without a checksum: for the next pass */
    uint64_t *wanted;   /* the same, for the pass under way */
    bool any_left;      /* `left` has any */
    uint64_t quiet_ns;  /* 0: there are no passes */
    uint64_t period_ns; /* monotonic: when this period began */
    uint64_t due_ns;    /* monotonic: the pass takes no step before this */
    uint64_t tickets;   /* vdi->tickets after the last step: has anybody else been at work since? */
    uint64_t at;        /* how far the pass has come, in bytes */
    uint64_t found;     /* blocks that got their checksums in this pass */
    unsigned windows;   /* windows that the step may still look at */
    /* A pass is under way; one of its steps is. */
    bool passing, under_way;
    bool doubt;                   /* VOUCH-3; the next key frame writes it into the record */
    bool writes_again;            /* VOUCH-3: the step under way writes again what it reads */
    struct plx_flush_mark opened; /* when the disk was */
    uint64_t completed_ns; /* wall clock: when the newest pass ended; the next key frame writes it
                              into the record */
};

struct plx_vdi;
struct plx_op;

/* To be called once the disk is this instance's. If there is no memory, there are no passes. */
void plx_vouch_start(struct plx_vdi *vdi, uint64_t quiet_ns);
void plx_vouch_done(struct plx_vouch *vouch);
/* Takes the next step of a pass when it is due. Called once a turn. */
void plx_vouch_pump(struct plx_vdi *vdi);
/* When the loop must turn for a step: monotonic; UINT64_MAX: never. */
uint64_t plx_vouch_due_ns(const struct plx_vdi *vdi);

/* ---- For the data path (op.h) ---- */

/* These blocks are being overwritten in place. */
void plx_vouch_note(struct plx_vouch *vouch, uint64_t vblock, uint64_t count);

/* ---- Leaves ---- */

/* Whether the pass under way is to look at this leaf. */
bool plx_vouch_is_wanted(const struct plx_vouch *vouch, uint64_t leaf);
/* Whether nothing was written in place there in this period and the one before. */
bool plx_vouch_is_quiet(const struct plx_vouch *vouch, uint64_t leaf);
/* Leaves the leaf to the next pass. */
void plx_vouch_leave(struct plx_vouch *vouch, uint64_t leaf);

/* ---- A PLX_VOUCH request ---- */

/* Passes over leaves that are not wanted or not quiet. true: the step ends here. */
bool plx_vouch_enough(struct plx_op *op);
/* Decides which blocks are read. */
bool plx_vouch_plan(struct plx_op *op);
/* The blocks were read: they may have to be written again where they lie (VOUCH-3). */
int plx_vouch_take(struct plx_op *op);
/* Notes op->checksums in the map, if that is still allowed (VOUCH-2). */
void plx_vouch_done_window(struct plx_op *op);
void plx_vouch_end(struct plx_op *op, int result);

#endif
