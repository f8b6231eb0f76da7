/* move.h - inside the engine: what a PLX_MOVE request (engine.h) does in a way of its own. The
 * functions are those of its row in kinds.c; struct plx_op_kind (op.h) says when they are called.
 */
#ifndef PLX_MOVE_H
#define PLX_MOVE_H

#include "engine/disk/vdi.h"

/* Whether the request's range and memory are as it needs them. */
bool plx_move_valid(const struct plx_vdi *vdi, const struct plx_request *request);
void plx_move_start(struct plx_op *op);
bool plx_move_enough(struct plx_op *op);
void plx_move_lay_out(struct plx_op *op);
int plx_move_lock(struct plx_op *op);
/* Decides which blocks get another place. */
bool plx_move_plan(struct plx_op *op);
/* Counts what was done as planned. */
void plx_move_done(struct plx_op *op);
void plx_move_end(struct plx_op *op, int result);

#endif
