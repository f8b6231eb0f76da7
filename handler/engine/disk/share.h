/* share.h - inside the engine: how one block becomes common; see PLX_SHARE. */
#ifndef PLX_SHARE_H
#define PLX_SHARE_H

#include "engine/disk/vdi.h"

/* 0 or INVALID. */
int plx_share_check(const struct plx_store *store, const struct plx_request *request);
/* The block has been looked up. false: nothing is to be done, and the result says why. */
bool plx_share_plan(struct plx_op *op);
/* Where the request's block is read to, and the common one that it is compared with. */
void plx_share_buffers(const struct plx_op *op, uint8_t **ret_own, uint8_t **ret_other);
/* Both have been read. false: they differ. */
bool plx_share_compare(struct plx_op *op);
/* What a piece of an operation maps: a PLX_SHARE's is common. Until it is logged a new block is not
 * called so, for it can still be freed. */
uint64_t plx_share_addr(const struct plx_op *op, const struct plx_piece *piece);
/* It is mapped, durably. */
void plx_share_done(struct plx_op *op);

#endif
