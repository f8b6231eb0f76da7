/* share.h - inside the engine: a PLX_SHARE request (engine.h), by which one block becomes common or
 * joins a common block. A common block is one that any number of addresses and disks may map.
 *
 * For such an operation steps.c calls, in this order: plx_share_plan() when the block was looked
 * up, plx_share_buffers() for reading, plx_share_compare(), plx_share_addr() for the log record,
 * and plx_share_done(). None of them blocks.
 */
#ifndef PLX_SHARE_H
#define PLX_SHARE_H

#include "engine/disk/vdi.h"

/* Whether the request is one that may be made now: 0 or INVALID. */
int plx_share_check(const struct plx_store *store, const struct plx_request *request);
/* The block was looked up. false: nothing is to be done, and the request's result says why. */
bool plx_share_plan(struct plx_op *op);
/* The memory that the request's block is read to, and that of the common block to compare with. */
void plx_share_buffers(const struct plx_op *op, uint8_t **ret_own, uint8_t **ret_other);
/* Both blocks were read. false: they differ, and the result says so. */
bool plx_share_compare(struct plx_op *op);
/* The address that a piece of an operation maps: for a PLX_SHARE, with the bit of a common block.
 * The piece itself has a new block's address without that bit, so that the block can still be freed
 * if the operation fails. */
uint64_t plx_share_addr(const struct plx_op *op, const struct plx_piece *piece);
/* The block is mapped, durably: sets the request's result. */
void plx_share_done(struct plx_op *op);

#endif
