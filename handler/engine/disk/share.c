/* share.c - how a block becomes common, so that many addresses of many disks may map it; PLX_SHARE.
 *
 * SHARE-1  A common block is nobody's: nobody overwrites it (MAP-5), and nobody frees it but the
 *     sweep of a collection (collect.c), when nobody maps it any more. A bit of its address says so
 *     wherever it is named, and all who name it do so with that bit (VERIFY_TREE-2).
 * SHARE-2  It becomes common by being made: a copy in a new block. What was there before goes as
 *     with any overwrite, or stays for the snapshots that see it.
 * SHARE-3  Another disk's log may name it only once its contents are durable. Were they lost by a
 *     flush that failed, it would be news for the log that they were written with, but not for one
 *     that came to name them later (TICK-2). So PLX_SHARE waits for the device's flush, with
 *     write_back, too, and what is mapped as common is durable. Recovery of either disk marks it.
 * SHARE-4  Contents never change: what joins was read, checked against its checksum, and found
 *     equal byte by byte, under the range lock of a write.
 * SHARE-5  No collection is under way between learning a common block's address and naming it in a
 *     log (plx_share_begin): a disk that was marked before it came to map the block does not count,
 *     and the one that it had the address from may have let go of it before it was marked.
 * Loop: the VDI's; never blocks.
 * Crash story: that of a write to new blocks. Before the first log record is durable the copy is
 *   a free block or a leak; later nothing but garbage can be left, which a collection finds.
 */
#include "engine/disk/share.h"

#include <string.h>

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
    if (store->collect || store->sharing)
        return plx_fault_set(fault, PLX_ERR_BUSY,
                             "a collection or a deduplication is under way; try again after it");
    store->sharing = true;
    return 0;
}

void plx_share_end(struct plx_store *store)
{
    store->sharing = false;
}

/* ---- One block ---- */

static bool is_common_here(const struct plx_store *store, uint64_t addr)
{
    return plx_addr_is_common(addr) && plx_addr_block(addr) &&
           plx_addr_block(addr) < store->addr_limit;
}

int plx_share_check(const struct plx_store *store, const struct plx_request *request)
{
    uint64_t common = request->share->common;

    return store->sharing && (!common || is_common_here(store, common)) &&
                   request->offset % PLX_BLOCK_SIZE == 0 && request->length == PLX_BLOCK_SIZE &&
                   request->iovcnt == 1 && request->iov->iov_len >= PLX_SHARE_BUFFER
               ? 0
               : PLX_ERR_INVALID;
}

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
    op->actions[0] = PLX_ACTION_NEW;
    return true;
}

void plx_share_buffers(const struct plx_op *op, uint8_t **ret_own, uint8_t **ret_other)
{
    *ret_own = op->request->iov->iov_base;
    *ret_other = *ret_own + PLX_BLOCK_SIZE;
}

bool plx_share_compare(struct plx_op *op)
{
    uint8_t *own, *other;

    plx_share_buffers(op, &own, &other);
    if (op->request->share->common && memcmp(own, other, PLX_BLOCK_SIZE) != 0) /* SHARE-4 */
        return settled(op, PLX_SHARE_DIFFERS);
    return true;
}

uint64_t plx_share_addr(const struct plx_op *op, const struct plx_piece *piece)
{
    return op->request->op == PLX_SHARE ? piece->addr | PLX_ADDR_COMMON : piece->addr;
}

void plx_share_done(struct plx_op *op)
{
    struct plx_share *share = op->request->share;

    share->result = share->common ? PLX_SHARE_JOINED : PLX_SHARE_MADE;
    share->common = plx_share_addr(op, &op->pieces[0]);
}
