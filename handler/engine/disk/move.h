/* move.h - inside the engine: which blocks of a PLX_MOVE request (engine.h) are worth moving.
 *
 * For such an operation op.c calls plx_move_begin(). steps.c calls plx_move_ends() between windows,
 * and for each window plx_move_plan() when it was looked up and plx_move_end() when it is done.
 * None of them blocks.
 */
#ifndef PLX_MOVE_H
#define PLX_MOVE_H

#include "engine/disk/vdi.h"

/* The size of a move's windows in blocks: a power of two, and no more than an empty extent surely
 * has in a row. */
uint64_t plx_move_window(const struct plx_store *store);
void plx_move_begin(struct plx_op *op);
/* Whether the move has done as much as was asked for. */
bool plx_move_ends(const struct plx_op *op);
/* The window was looked up: decides which blocks get another place (op->actions). false: none, so
 * the window is done. */
bool plx_move_plan(struct plx_op *op);
/* The window is done as planned: counts it. Returns by how many blocks to go on: by the
 * window's, and by more if nothing is mapped behind it. */
uint64_t plx_move_end(struct plx_op *op);
/* The block up to which nothing is mapped from the window's end on: if the last lookup came to an
 * empty subtree, its end or the next block in memory's changes; else `end`. */
uint64_t plx_move_empty_end(const struct plx_op *op, uint64_t end);

#endif
