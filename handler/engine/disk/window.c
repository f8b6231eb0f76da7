/* window.c - a window of an operation: laid out, locked, looked up, read. See op.h.
 *
 * WINDOW-1  Writes and unmaps of overlapping blocks run one after the other, in the order in which
 *     they came. So two writes to parts of one block never both start from its old contents.
 * WINDOW-2  A write to a block that memory alone shows to be absent or shared (a blind write) reads
 *     no metadata from the store: it goes to a new block in any case. A carried write (front.h)
 *     always takes a new block: it looks at nothing.
 * WINDOW-3  A read whose checksum does not match is an error only if the block's mapping is still
 *     the same. Otherwise a write in place has overtaken the read, and the window is looked up and
 *     read again.
 * Loop: the disk's; never blocks.
 * Crash story: nothing is written here.
 */
#include "engine/disk/op.h"

#define READ_RETRIES 16u

void plx_op_set_window(struct plx_op *op, uint64_t offset, uint64_t bytes)
{
    uint64_t end = offset + bytes;

    op->first_block = offset >> PLX_BLOCK_SHIFT;
    op->head_skip = offset & (PLX_BLOCK_SIZE - 1);
    op->blocks = (unsigned)(((end - 1) >> PLX_BLOCK_SHIFT) - op->first_block + 1);
    op->tail_skip = (uint32_t)(((op->first_block + op->blocks) << PLX_BLOCK_SHIFT) - end);
    op->window_bytes = (size_t)bytes;
    op->looked_up = 0;
    op->edges_read = false;
    op->walk = (struct plx_walk){0};
}

void plx_op_lay_out(struct plx_op *op)
{
    uint64_t offset = op->request->offset + op->done_bytes;
    uint64_t in_block = offset & (PLX_BLOCK_SIZE - 1);

    plx_op_set_window(op, offset,
                      plx_min_u64(op->request->length - op->done_bytes,
                                  (uint64_t)PLX_WINDOW_BLOCKS * PLX_BLOCK_SIZE - in_block));
}

/* Whole blocks make one window, which only needs a log record. Blocks at the ends of the range that
 * it covers in part make windows of their own, and are written with zeroes. */
void plx_op_lay_out_unmap(struct plx_op *op)
{
    uint64_t offset = op->request->offset + op->done_bytes;
    uint64_t bytes = op->request->length - op->done_bytes;
    uint64_t in_block = offset & (PLX_BLOCK_SIZE - 1);

    if (in_block)
        bytes = plx_min_u64(bytes, PLX_BLOCK_SIZE - in_block);
    else if (bytes >= PLX_BLOCK_SIZE)
        bytes = plx_min_u64(bytes & ~(uint64_t)(PLX_BLOCK_SIZE - 1),
                            (uint64_t)PLX_RECORD_UNMAP_MAX * PLX_BLOCK_SIZE);
    plx_op_set_window(op, offset, bytes);
}

void plx_op_cut_window(struct plx_op *op, unsigned blocks)
{
    PLX_ASSERT(blocks > 0 && blocks < op->blocks);
    plx_op_set_window(op, op->request->offset + op->done_bytes,
                      (uint64_t)blocks * PLX_BLOCK_SIZE - op->head_skip);
    op->looked_up = blocks;
}

void plx_op_stretch_window(struct plx_op *op)
{
    uint64_t end = op->first_block + op->blocks;

    if (op->walk.level >= 2)
        end = plx_vdi_absent_end(op->vdi, &op->walk, end - 1);
    op->window_bytes = (size_t)plx_min_u64(op->request->length - op->done_bytes,
                                           (end - op->first_block) << PLX_BLOCK_SHIFT);
}

static bool overlaps(const struct plx_op *a, const struct plx_op *b)
{
    return a->first_block < b->first_block + b->blocks &&
           b->first_block < a->first_block + a->blocks;
}

/* WINDOW-1: waits for each operation that holds the range, or came earlier and waits for it. */
int plx_op_lock(struct plx_op *op)
{
    for (const struct plx_op *other = op->vdi->oldest; other; other = other->next) {
        if (other != op && other->locks && overlaps(op, other) &&
            !(plx_op_carries(op) && plx_op_carries(other)) && /* FRONT-3 */
            (other->state != OP_LOCK || other->ticket < op->ticket)) {
            if (op->kind->effect == PLX_KEEPS && other->state == OP_ROOM) /* REQUEST-1 */
                return PLX_ERR_NOSPACE;
            op->locks = true; /* it stands in line: later ones wait for it */
            op->state = OP_LOCK;
            plx_queue_push(&op->vdi->range_waiters, &op->task);
            plx_queue_wake(op->vdi->store, &op->vdi->ticket_waiters, 0);
            return PLX_WAIT;
        }
    }
    op->locks = true;
    return 0;
}

int plx_op_look_up(struct plx_op *op)
{
    struct plx_map *map = &op->vdi->map;
    bool writing = op->kind->effect == PLX_WRITES, carries = writing && plx_op_carries(op);

    plx_walk_resume(&op->walk);
    if (op->looked_up == 0) {
        op->gen = map->gen_submitted;
        op->base_changes = map->base_changes;
    }
    while (op->looked_up < op->blocks) {
        uint64_t vblock = op->first_block + op->looked_up, waited = op->walk.nodes_waited;
        struct plx_mapping *mapping = &op->mappings[op->looked_up];
        bool absent;
        int error;

        if (carries) {
            *mapping = (struct plx_mapping){.addr = PLX_ADDR_MAX}; /* WINDOW-2 */
            op->looked_up++;
            continue;
        }
        if (writing && !plx_op_edge_of(op, op->looked_up) &&
            plx_map_known_not_writable(map, vblock, &absent)) {
            *mapping = (struct plx_mapping){.addr = absent ? 0 : PLX_ADDR_MAX}; /* WINDOW-2 */
            op->looked_up++;
            continue;
        }
        error = plx_map_lookup(map, vblock, &op->walk, &op->task, mapping);
        if (writing)
            op->vdi->store->counters.write_path_node_reads += op->walk.nodes_waited - waited;
        if (error)
            return error;
        op->looked_up++;
    }
    return 0;
}

static bool wanted_for_read(const struct plx_op *op, unsigned block)
{
    switch (op->kind->effect) {
    case PLX_READS:
        return true;
    case PLX_KEEPS:
        return op->actions[block] == PLX_ACTION_NEW;
    default:
        return plx_op_edge_of(op, block);
    }
}

struct plx_xfer *plx_op_prepare_run(struct plx_op *op, enum plx_io_op io_op, unsigned first_iov,
                                    uint64_t addr, unsigned blocks)
{
    struct plx_xfer *xfer = &op->xfers[op->xfer_count++];

    plx_store_prepare(op->vdi->store, xfer, io_op, PLX_KIND_DATA, addr, 0,
                      (size_t)blocks * PLX_BLOCK_SIZE, &op->iovs[first_iov],
                      (int)(op->iov_count - first_iov), &op->join);
    return xfer;
}

void plx_op_submit_run(struct plx_op *op, enum plx_io_op io_op, unsigned first_iov, uint64_t addr,
                       unsigned blocks)
{
    struct plx_xfer *xfer = plx_op_prepare_run(op, io_op, first_iov, addr, blocks);

    plx_store_submit(op->vdi->store, xfer->volume, &xfer->io);
}

/* Blocks that adjoin on the store are read together. When transfers or iovecs run out, the window
 * is cut and the rest becomes the next window; or it is read part by part (kind->uncut). */
int plx_op_submit_reads(struct plx_op *op)
{
    unsigned block = op->blocks_read;

    plx_op_start_join(op);
    while (block < op->blocks) {
        unsigned first = block, first_iov = op->iov_count;
        uint64_t addr = op->mappings[block].addr;
        bool full = false;

        if (!wanted_for_read(op, block)) {
            block++;
            continue;
        }
        if (!addr) {
            plx_op_clear_block(op, block++);
            continue;
        }
        while (!full && block < op->blocks && wanted_for_read(op, block) &&
               (block == first || plx_op_adjoins(op, block))) {
            full = op->xfer_count == PLX_OP_XFERS || !plx_op_add_block_iovs(op, block, first_iov);
            block += !full;
        }
        if (block > first)
            plx_op_submit_run(op, PLX_IO_READ, first_iov, addr, block - first);
        if (full && op->kind->uncut)
            break;
        if (full && block == 0)
            return PLX_ERR_INVALID; /* the request gave one block in too many pieces */
        if (full)
            plx_op_cut_window(op, block);
    }
    op->blocks_read = block;
    return 0;
}

int plx_op_verify_reads(struct plx_op *op)
{
    if (op->join.error)
        return plx_op_fail_at(op, op->join.error, 0, plx_error_text(op->join.error));
    for (unsigned i = 0; i < op->blocks; i++) {
        const struct plx_mapping *mapping = &op->mappings[i];
        struct plx_mapping now;

        if (!wanted_for_read(op, i) || !mapping->addr || !mapping->checksum ||
            plx_checksum24(plx_op_block_checksum(op, i)) == mapping->checksum)
            continue;
        if (op->retries++ < READ_RETRIES) {
            int error;

            plx_walk_resume(&op->walk);
            error = plx_map_lookup(&op->vdi->map, op->first_block + i, &op->walk, &op->task, &now);
            if (error)
                return error; /* PLX_WAIT: the caller looks the whole window up again */
            /* WINDOW-3 */
            if (now.addr != mapping->addr || now.checksum != mapping->checksum) {
                plx_task_ready(op->vdi->store, &op->task);
                return PLX_WAIT;
            }
        }
        return plx_op_fail_at(op, PLX_ERR_CORRUPT, i, "checksum mismatch");
    }
    return 0;
}
