/* share.c - how a block becomes common, so that many addresses of many disks may map it. See
 * share.h, and PLX_SHARE in engine.h.
 *
 * SHARE-1  A common block belongs to no disk. Nobody overwrites it (MAP-5). Only the sweep of a
 *     collection frees it, once no disk maps it; no reference counts are kept. The top bit of an
 *     address says that its block is common, and everything that names such a block sets the bit
 *     (VERIFY_TREE-2). So code that drops a mapping sees from the address alone that it must not
 *     free the block.
 * SHARE-2  A block never becomes common where it lies: a copy is made in a new block, and that one
 *     is common from the start. The old block dies as with any overwrite, or stays for the
 *     snapshots that see it.
 * SHARE-3  A log may name another disk's common block only when the block's contents are durable.
 *     If a failed flush lost them, the log that they were written with would learn of it, but not a
 *     log that came to name them later (TICK-2). So PLX_SHARE waits for the device's flush even in
 *     write-back mode. Recovery of either disk marks the block as allocated.
 * SHARE-4  Contents of the disk never change. A block that joins a common one was read, matched its
 *     checksum, and is equal to the common one byte by byte; all of that under the range lock of a
 *     write.
 * SHARE-5  No collection is under way between learning a common block's address and naming it in a
 *     log (plx_share_begin()). Otherwise the collection could miss the block: it may have marked
 *     this disk before the disk came to map the block, and the disk that the address came from may
 *     have let go of the block before it was marked.
 * Loop: the disk's; never blocks.
 * Crash story: that of a write to new blocks. Until the first log record is durable, the copy is a
 *   free block or a leak. Later a crash can leave nothing but garbage, which a collection finds.
 */
#include "engine/disk/share.h"

#include <string.h>

#include "engine/disk/op.h"

/* ---- The store ---- */

bool plx_store_allows_common(const struct plx_store *store)
{
    return store->volumes[0].super.incompatible & PLX_INCOMPATIBLE_COMMON;
}

int plx_share_begin(struct plx_store *store, struct plx_fault *fault)
{
    if (!plx_store_allows_common(store))
        return plx_fault_set(fault, PLX_ERR_UNSUPPORTED,
                             "the store is not prepared for common blocks, or this instance has "
                             "not learned that it is");
    if (store->disks->collecting || store->disks->sharing) /* SHARE-5 */
        return plx_fault_set(fault, PLX_ERR_BUSY,
                             "a collection or a deduplication is under way; try again after it");
    store->disks->sharing = true;
    return 0;
}

void plx_share_end(struct plx_store *store)
{
    store->disks->sharing = false;
}

/* ---- One block ---- */

static bool is_common_here(const struct plx_store *store, uint64_t addr)
{
    return plx_addr_is_common(addr) && plx_addr_block(addr) &&
           plx_addr_block(addr) < store->addr_limit;
}

bool plx_share_valid(const struct plx_vdi *vdi, const struct plx_request *request)
{
    const struct plx_store *store = vdi->store;
    uint64_t common = request->share->common;

    return store->disks->sharing && (!common || is_common_here(store, common)) &&
           request->offset % PLX_BLOCK_SIZE == 0 && request->length == PLX_BLOCK_SIZE &&
           request->iovcnt == 1 && request->iov->iov_len >= PLX_SHARE_BUFFER;
}

/* Notes the result; false, as an answer: nothing is left to be done. */
static bool settled(struct plx_op *op, enum plx_share_result result)
{
    op->request->share->result = result;
    return false;
}

bool plx_share_plan(struct plx_op *op)
{
    struct plx_share *share = op->request->share;
    uint64_t addr = op->mappings[0].addr;

    if (!addr)
        return settled(op, PLX_SHARE_ABSENT);
    if (plx_addr_is_common(addr) && (!share->common || share->common == addr)) {
        share->common = addr;
        return settled(op, PLX_SHARE_ALREADY);
    }
    op->actions[0] = PLX_ACTION_NEW; /* SHARE-2 */
    return true;
}

static uint8_t *common_buffer(const struct plx_op *op)
{
    return (uint8_t *)op->request->iov->iov_base + PLX_BLOCK_SIZE;
}

void plx_share_read_more(struct plx_op *op)
{
    uint64_t common = op->request->share->common;

    if (!common)
        return;
    op->iovs[op->iov_count++] = (struct iovec){common_buffer(op), PLX_BLOCK_SIZE};
    plx_op_submit_run(op, PLX_IO_READ, op->iov_count - 1, common, 1);
}

int plx_share_take(struct plx_op *op)
{
    const uint8_t *own = op->request->iov->iov_base;

    if (!op->request->share->common || !memcmp(own, common_buffer(op), PLX_BLOCK_SIZE))
        return 0;
    op->request->share->result = PLX_SHARE_DIFFERS; /* SHARE-4 */
    return plx_op_pass_window(op);
}

int plx_share_place(struct plx_op *op)
{
    const struct plx_share *share = op->request->share;

    if (!share->common)
        return plx_op_place_adjacent(op);
    op->pieces[0] = (struct plx_piece){op->first_block, share->common, 1};
    op->piece_count = 1;
    return 0;
}

void plx_share_done(struct plx_op *op)
{
    struct plx_share *share = op->request->share;

    share->result = share->common ? PLX_SHARE_JOINED : PLX_SHARE_MADE;
    share->common = op->pieces[0].addr | PLX_ADDR_COMMON;
}
