/* blocks.c - a window's blocks in memory: where their bytes are, and what they hold. See op.h.
 *
 * Loop: the disk's; never blocks. Crash story: none; this is memory.
 */
#include <string.h>

#include "engine/disk/op.h"

static void bytes_copy(struct plx_op_bytes c, uint8_t *memory, size_t count, bool to_memory)
{
    while (count) {
        struct iovec slice = plx_op_bytes_take(&c, count);

        if (to_memory)
            memcpy(memory, slice.iov_base, slice.iov_len);
        else
            memcpy(slice.iov_base, memory, slice.iov_len);
        memory += slice.iov_len;
        count -= slice.iov_len;
    }
}

/* The part of an edge block that the request covers. */
static void edge_range(const struct plx_op *op, unsigned block, uint32_t *ret_from,
                       uint32_t *ret_bytes)
{
    uint32_t from = block == 0 ? op->head_skip : 0;
    uint32_t to = block == op->blocks - 1 ? PLX_BLOCK_SIZE - op->tail_skip : PLX_BLOCK_SIZE;

    *ret_from = from;
    *ret_bytes = to - from;
}

bool plx_op_add_block_iovs(struct plx_op *op, unsigned block, unsigned first_iov)
{
    struct iovec flat, last = {0};
    struct plx_op_bytes c = plx_op_block_bytes(op, block, &flat);
    unsigned count = op->iov_count;
    size_t left = PLX_BLOCK_SIZE;

    if (count > first_iov)
        last = op->iovs[count - 1];
    while (left) {
        struct iovec slice = plx_op_bytes_take(&c, left);
        struct iovec *end = count > first_iov ? &op->iovs[count - 1] : NULL;

        left -= slice.iov_len;
        if (end && (uint8_t *)end->iov_base + end->iov_len == slice.iov_base) {
            end->iov_len += slice.iov_len;
        } else if (count == PLX_OP_IOVS) {
            if (op->iov_count > first_iov)
                op->iovs[op->iov_count - 1] = last;
            return false;
        } else {
            op->iovs[count++] = slice;
        }
    }
    op->iov_count = count;
    return true;
}

uint32_t plx_op_block_checksum(const struct plx_op *op, unsigned block)
{
    struct iovec flat;
    struct plx_op_bytes c = plx_op_block_bytes(op, block, &flat);
    uint32_t crc = 0;

    for (size_t left = PLX_BLOCK_SIZE; left;) {
        struct iovec slice = plx_op_bytes_take(&c, left);

        crc = plx_crc32c_more(crc, slice.iov_base, slice.iov_len);
        left -= slice.iov_len;
    }
    plx_tick_computed(op->vdi->store, PLX_BLOCK_SIZE);
    return crc;
}

bool plx_op_block_is_zero(const struct plx_op *op, unsigned block)
{
    struct iovec flat;
    struct plx_op_bytes c = plx_op_block_bytes(op, block, &flat);

    for (size_t left = PLX_BLOCK_SIZE; left;) {
        struct iovec slice = plx_op_bytes_take(&c, left);
        const uint8_t *bytes = slice.iov_base;

        if (bytes[0] || memcmp(bytes, bytes + 1, slice.iov_len - 1) != 0)
            return false;
        left -= slice.iov_len;
    }
    return true;
}

void plx_op_clear_block(const struct plx_op *op, unsigned block)
{
    struct iovec flat;
    struct plx_op_bytes c = plx_op_block_bytes(op, block, &flat);

    for (size_t left = PLX_BLOCK_SIZE; left;) {
        struct iovec slice = plx_op_bytes_take(&c, left);

        memset(slice.iov_base, 0, slice.iov_len);
        left -= slice.iov_len;
    }
}

/* Copies the part of the window's edge blocks that the request covers: from the request (in), or to
 * it. */
static void copy_edges(struct plx_op *op, bool in)
{
    unsigned to_tail = op->blocks > 1 ? op->blocks - 1 : 1;

    for (unsigned i = 0; i < op->blocks; i += to_tail) {
        uint8_t *edge = plx_op_edge_of(op, i);
        uint32_t from, bytes;

        if (!edge)
            continue;
        edge_range(op, i, &from, &bytes);
        if (op->kind->zeroes)
            memset(edge + from, 0, bytes);
        else
            bytes_copy(plx_op_bytes_at(op->request, plx_op_data_offset(op, i)), edge + from, bytes,
                       in);
    }
}

int plx_op_deliver(struct plx_op *op)
{
    if (plx_op_has_edges(op))
        copy_edges(op, false);
    return plx_op_pass_window(op);
}

int plx_op_merge(struct plx_op *op)
{
    copy_edges(op, true);
    op->edges_read = true;
    return 0;
}
