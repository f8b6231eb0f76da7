/* move.h - inside the engine: what of a move's window is worth moving. */
#ifndef PLX_MOVE_H
#define PLX_MOVE_H

#include "engine/disk/vdi.h"

/* In blocks, a power of two: no more than an empty extent surely has in a row. */
uint64_t plx_move_window(const struct plx_store *store);
void plx_move_begin(struct plx_op *op);
/* Whether it has done as much as was asked for. */
bool plx_move_ends(const struct plx_op *op);
/* The window's blocks have been looked up: says in op->actions which get another place. false:
 * none, the window is done with. */
bool plx_move_plan(struct plx_op *op);
/* The window is done with as planned: counts it. Returns how many blocks from its first on need no
 * look: its own, and more where the disk is empty. */
uint64_t plx_move_end(struct plx_op *op);
/* To where, from the window's end on, nothing is mapped: the last lookup found an empty subtree. */
uint64_t plx_move_empty_end(const struct plx_op *op, uint64_t end);

#endif
