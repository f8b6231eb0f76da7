/* share.h - inside the engine: what a PLX_SHARE request (engine.h) does in a way of its own. By it
 * one block becomes common or joins a common block, that is one that any number of addresses and
 * disks may map. The functions are those of its row in kinds.c; struct plx_op_kind (op.h) says when
 * they are called.
 */
#ifndef PLX_SHARE_H
#define PLX_SHARE_H

#include "engine/disk/vdi.h"

/* Whether the request is one that may be made now. */
bool plx_share_valid(const struct plx_vdi *vdi, const struct plx_request *request);
/* false: nothing is to be done, and the request's result says why. */
bool plx_share_plan(struct plx_op *op);
/* Reads the common block, too, if there is one. */
void plx_share_read_more(struct plx_op *op);
/* Passes the window if the two blocks differ, and the result says so. */
int plx_share_take(struct plx_op *op);
/* The common block that was given, or a new one that becomes common. The piece has the address
 * without the bit of a common block, so that the new one is freed if the operation fails. */
int plx_share_place(struct plx_op *op);
/* The block is mapped, durably: sets the request's result. */
void plx_share_done(struct plx_op *op);

#endif
