/* vouch.h - inside the engine: blocks that were overwritten in place get their checksums back. */
#ifndef PLX_VOUCH_H
#define PLX_VOUCH_H

#include "engine/engine.h"

/* Bits for leaves, by their numbers modulo this: 64 GiB of a disk. Leaves of a larger one share
 * them: some are looked at in vain, or a pass later. */
#define PLX_VOUCH_LEAVES 32768u

struct plx_vouch {
    struct plx_request request; /* the one there is */
    struct iovec iov;
    uint8_t *buffer;    /* of a window */
    uint64_t *leaves;   /* the memory of these: */
    uint64_t *written;  /* in place, in this period of quiet_ns */
    uint64_t *before;   /* and in the one before it */
    uint64_t *left;     /* may have blocks without a checksum: for the next pass */
    uint64_t *wanted;   /* and for this one */
    bool any_left;      /* in `left` */
    uint64_t quiet_ns;  /* 0: there are no passes */
    uint64_t period_ns; /* monotonic: when this period began */
    uint64_t due_ns;    /* the next step of the pass, not earlier */
    uint64_t tickets;   /* vdi->tickets after the last one: has anybody else been at work? */
    uint64_t at;        /* bytes: how far the pass has come */
    uint64_t found;     /* blocks that it gave their checksums */
    unsigned windows;   /* that the step may still look at */
    bool passing, under_way;
    bool doubt;              /* VOUCH-3; with the next key frame it is in the record */
    bool writes_again;       /* VOUCH-3: what the step under way reads */
    uint64_t flush_failures; /* the store's when the disk was opened */
    uint64_t completed_ns;   /* wall clock: the end of the newest pass; with the next key frame it
                                is in the record */
};

struct plx_vdi;
struct plx_op;

/* Once the disk is this instance's. Without memory there are no passes. */
void plx_vouch_start(struct plx_vdi *vdi, uint64_t quiet_ns);
void plx_vouch_done(struct plx_vouch *vouch);
/* Takes the next step of a pass when it is due. Called once a turn. */
void plx_vouch_pump(struct plx_vdi *vdi);
/* When a turn is needed for that: monotonic, UINT64_MAX: never. */
uint64_t plx_vouch_due_ns(const struct plx_vdi *vdi);

/* ---- For the data path (op.h) ---- */

/* These blocks are being overwritten in place. */
void plx_vouch_note(struct plx_vouch *vouch, uint64_t vblock, uint64_t count);
/* Goes over what need not be looked at; true: the step ends here. */
bool plx_vouch_ends(struct plx_op *op);
/* What is to be read; false: nothing. */
bool plx_vouch_plan(struct plx_op *op);
/* It was read: whether it is to be written again, where it lies, before it is taken. */
bool plx_vouch_writes(struct plx_op *op);
/* op->checksums are its checksums. */
void plx_vouch_take(struct plx_op *op);
void plx_vouch_ended(struct plx_op *op, int result);

#endif
