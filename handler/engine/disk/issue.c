/* issue.c - a window is written: what happens to each block, its data and its log record. See op.h.
 *
 * Each block of a write gets one action (enum plx_action, vdi.h):
 *
 *    what is written   what is mapped there        action     needs
 *    zeroes            nothing                     SKIP       nothing
 *    zeroes            something                   UNMAP      an UNMAP record
 *    other bytes       a block that is writable    IN_PLACE   its checksum voided, if it is known
 *    other bytes       anything else               NEW        a new block and a MAP record
 *
 * A mapping is writable if it was made after the last snapshot (map.h). Where the disk always
 * copies (overwrite=copy, or protection per batch or write), no mapping counts as writable.
 *
 * ISSUE-1  A block is overwritten in place under two conditions. First, it is writable for the
 *     generation (the time between two snapshots) that the write belongs to (INV-3). That is
 *     checked in the same step that submits the write, so no snapshot comes in between. Second, a
 *     VOID record of its checksum is durable. Otherwise a crash could leave the new bytes beside a
 *     checksum of the old ones, and a later read would call the block corrupt.
 * Loop: the disk's; never blocks.
 * Crash story: log.c has it for new blocks. A write in place may be torn, but only if it was never
 *   acknowledged as durable.
 */
#include "engine/disk/op.h"

#define ADJACENT_RETRIES 256u

void plx_op_checksum_kept(struct plx_op *op)
{
    for (unsigned i = 0; i < op->blocks; i++)
        if (op->actions[i] == PLX_ACTION_NEW)
            op->checksums[i] = plx_op_block_checksum(op, i);
}

void plx_op_classify(struct plx_op *op, bool *ret_void)
{
    struct plx_vdi *vdi = op->vdi;

    *ret_void = false;
    op->void_leaf = UINT64_MAX;
    op->void_count = 0;
    for (unsigned i = 0; i < op->blocks; i++) {
        const struct plx_mapping *mapping = &op->mappings[i];
        uint64_t leaf = (op->first_block + i) >> PLX_NODE_SHIFT;

        if (plx_op_block_is_zero(op, i)) {
            op->actions[i] = mapping->addr ? PLX_ACTION_UNMAP : PLX_ACTION_SKIP;
            continue;
        }
        if (!mapping->writable || plx_op_always_copies(vdi)) {
            op->actions[i] = PLX_ACTION_NEW;
            op->checksums[i] = plx_op_block_checksum(op, i);
            continue;
        }
        op->actions[i] = PLX_ACTION_IN_PLACE;
        if (!mapping->checksum)
            continue;
        *ret_void = true;
        if (op->void_leaf == UINT64_MAX)
            op->void_leaf = leaf;
        op->void_count = (uint32_t)(leaf - op->void_leaf + 1);
    }
}

static size_t void_encode(struct plx_log_item *item, uint8_t *out, uint32_t *records)
{
    struct plx_op *op = PLX_CONTAINER(item, struct plx_op, item);

    /* The checksums leave the map now, when the record's batch is formed, and not when it is
     * applied. So only mappings that are applied by now lose theirs. For these, recovery must find
     * a durable mark: else it would compare their blocks, overwritten by then, with the checksums
     * in their MAP records, and end the log there (REPLAY-2). This batch's mark covers them if all
     * that is applied is durable (void_covered); else the mark of the record's repetition does. */
    op->void_encoded = true;
    op->void_covered = op->void_again || op->vdi->log.durable_seq == op->vdi->log.applied.seq - 1;
    for (uint32_t i = 0; i < op->void_count && !op->void_again; i++)
        plx_map_apply_void(&op->vdi->map, op->void_leaf + i);
    op->vdi->counters.voids++;
    op->vdi->store->counters.voids++;
    ++*records;
    return plx_record_put_void(out, op->void_leaf, op->void_count);
}

/* The record has taken its effect when it was encoded. */
static void void_apply(struct plx_log_item *item)
{
}

/* In write-back mode, what is applied may not be durable when the record is formed. Then a second
 * VOID record is logged, formed when the first one is durable and all before it, so its batch's
 * mark covers them. From the first record on the disk depends on the second one: so there must be
 * room for both beforehand (plx_op_room_for_void()). */
int plx_op_append_void(struct plx_op *op)
{
    static const struct plx_log_item_ops ops = {void_encode, void_apply};
    int error;

    op->item = (struct plx_log_item){
        .ops = &ops,
        .task = &op->task,
        .bytes = plx_record_bytes(PLX_RECORD_VOID, op->void_count),
        .slots = op->void_again ? 0 : op->void_count * PLX_MAP_SLOTS_FOR_VOID,
        .needs_durable = true,
    };
    error = plx_log_reserve(&op->vdi->log, &op->item);
    if (error)
        return error;
    op->state = OP_VOIDED;
    plx_log_append(&op->vdi->log, &op->item);
    return 0;
}

void plx_op_release_pieces(struct plx_op *op)
{
    for (unsigned i = 0; i < op->piece_count; i++)
        if (op->pieces[i].addr && !plx_addr_is_common(op->pieces[i].addr))
            plx_alloc_free(op->vdi->store, op->pieces[i].addr, op->pieces[i].count);
    op->piece_count = 0;
}

/* Takes blocks from a run of adjacent ones, which is refilled about 1 MiB at a time. */
static int take_blocks(struct plx_op *op, struct plx_run *run, uint64_t want, uint64_t *ret_addr,
                       uint64_t *ret_count)
{
    if (!run->count) {
        int error = plx_alloc_data(op->vdi->store, want, op->request->promised, &op->task,
                                   &run->addr, &run->count);

        if (error)
            return error;
    }
    *ret_addr = run->addr;
    *ret_count = plx_min_u64(want, run->count);
    run->addr += *ret_count;
    run->count -= *ret_count;
    return 0;
}

/* Makes the pieces: runs of blocks with one log record each, for all NEW blocks (which it takes
 * from the run) and all UNMAP blocks. 0, PLX_WAIT or NOSPACE. Cuts the window when there are too
 * many pieces for an operation's transfers; adjacent ones are all one transfer. */
static int lay_out_pieces(struct plx_op *op, struct plx_run *run)
{
    unsigned i = 0;

    op->piece_count = 0;
    while (i < op->blocks) {
        unsigned first = i, count;
        uint8_t action = op->actions[i];

        while (i < op->blocks && op->actions[i] == action)
            i++;
        count = i - first;
        if (action != PLX_ACTION_NEW && action != PLX_ACTION_UNMAP)
            continue;
        while (count) {
            struct plx_piece *piece = &op->pieces[op->piece_count];
            uint64_t addr = 0, got = count;

            if (op->piece_count == PLX_OP_XFERS / 2 && !op->kind->uncut) {
                plx_op_cut_window(op, first);
                return 0;
            }
            if (action == PLX_ACTION_NEW) {
                int error = take_blocks(op, run, count, &addr, &got);

                if (error)
                    return error;
            }
            *piece = (struct plx_piece){
                .vblock = op->first_block + first, .addr = addr, .count = (uint32_t)got};
            op->piece_count++;
            first += (unsigned)got;
            count -= (unsigned)got;
        }
    }
    return 0;
}

int plx_op_place(struct plx_op *op)
{
    return lay_out_pieces(op, &op->vdi->run);
}

/* An extent that is granted for it may have no free run that long, for it was used before. After
 * ADJACENT_RETRIES attempts the operation gives up, or it would take all extents there are. */
int plx_op_place_adjacent(struct plx_op *op)
{
    bool may_wait = op->retries++ < ADJACENT_RETRIES;
    struct plx_run run = {0};
    int error;

    for (unsigned i = 0; i < op->blocks; i++)
        run.count += op->actions[i] == PLX_ACTION_NEW;
    error = plx_alloc_adjacent(op->vdi->store, run.count, may_wait ? &op->task : NULL, &run.addr);
    if (error)
        return error;
    error = lay_out_pieces(op, &run);
    PLX_ASSERT(!error && !run.count);
    return 0;
}

static size_t pieces_encode(struct plx_log_item *item, uint8_t *out, uint32_t *records)
{
    struct plx_op *op = PLX_CONTAINER(item, struct plx_op, item);
    size_t bytes = 0;

    for (unsigned i = 0; i < op->piece_count; i++) {
        const struct plx_piece *piece = &op->pieces[i];

        if (piece->addr)
            bytes += plx_record_put_map(out + bytes, piece->vblock, piece->count,
                                        piece->addr | op->kind->addr_bits,
                                        &op->checksums[piece->vblock - op->first_block]);
        else
            bytes += plx_record_put_unmap(out + bytes, piece->vblock, piece->count);
    }
    *records += op->piece_count;
    return bytes;
}

static void pieces_apply(struct plx_log_item *item)
{
    struct plx_op *op = PLX_CONTAINER(item, struct plx_op, item);
    struct plx_map *map = &op->vdi->map;

    for (unsigned i = 0; i < op->piece_count; i++) {
        const struct plx_piece *piece = &op->pieces[i];
        const uint32_t *checksums = &op->checksums[piece->vblock - op->first_block];

        if (!piece->addr) {
            plx_map_apply_unmap(map, piece->vblock, piece->count);
            continue;
        }
        for (uint32_t b = 0; b < piece->count; b++)
            plx_map_apply_map(map, piece->vblock + b, (piece->addr | op->kind->addr_bits) + b,
                              plx_checksum24(checksums[b]));
    }
}

int plx_op_make_item(struct plx_op *op)
{
    static const struct plx_log_item_ops ops = {pieces_encode, pieces_apply};
    size_t bytes = 0, slots = 0;

    for (unsigned i = 0; i < op->piece_count; i++) {
        const struct plx_piece *piece = &op->pieces[i];

        bytes += plx_record_bytes(piece->addr ? PLX_RECORD_MAP : PLX_RECORD_UNMAP, piece->count);
        slots += piece->addr ? piece->count : plx_map_slots_for_unmap(piece->vblock, piece->count);
    }
    op->item = (struct plx_log_item){
        .ops = &ops,
        .task = &op->task,
        .bytes = bytes,
        .slots = slots,
        .needs_durable = op->request->fua || op->kind->durable,
        .changes = true,
    };
    if (plx_op_carries(op)) {
        op->item.carried = op->request->carried;
        op->item.whole = op->done_bytes + op->window_bytes == op->request->length;
    }
    return plx_log_reserve(&op->vdi->log, &op->item);
}

/* FRONT-3: the last window of a carried request has its place in the log's order now. */
void plx_op_append(struct plx_op *op)
{
    plx_log_append(&op->vdi->log, &op->item);
    if (op->item.carried.seq && op->item.whole)
        op->request->appended(op->request);
}

/* Data of an operation with a log item reports to that item: its batch waits for the data (LOG-1).
 * Without a log item, data reports to the operation's join. */
static void logged_data_done(struct plx_io *io)
{
    struct plx_xfer *xfer = PLX_CONTAINER(io, struct plx_xfer, io);
    struct plx_op *op = PLX_CONTAINER(xfer->join, struct plx_op, join);
    struct plx_volume *volume = &xfer->store->volumes[xfer->volume];

    volume->under_way--;
    volume->dirty = true;
    plx_log_data_done(&op->vdi->log, &op->item, io->result);
    if (--op->join.pending == 0 && op->join.task) /* the item failed before its data completed */
        plx_task_ready(op->vdi->store, op->join.task);
}

/* Submits the data of new blocks, those adjacent on the store in one transfer. Returns the number
 * of transfers. */
static unsigned submit_new(struct plx_op *op)
{
    const struct plx_piece *piece = op->pieces, *end = op->pieces + op->piece_count;
    unsigned data = 0, sent = 0;

    while (piece < end) {
        unsigned first_iov = op->iov_count, run = 0;
        uint64_t addr = piece->addr + sent;
        struct plx_xfer *xfer;

        if (!piece->addr || plx_addr_is_common(piece->addr)) {
            piece++;
            continue;
        }
        while (piece < end && piece->addr + sent == addr + run &&
               plx_op_add_block_iovs(op, (unsigned)(piece->vblock - op->first_block) + sent,
                                     first_iov)) {
            run++;
            if (++sent == piece->count) {
                piece++;
                sent = 0;
            }
        }
        PLX_ASSERT(run > 0);
        xfer = plx_op_prepare_run(op, PLX_IO_WRITE, first_iov, addr, run);
        xfer->io.done = logged_data_done;
        plx_gather_write(&op->vdi->gather, xfer);
        data++;
        op->vdi->store->counters.blocks_new += run;
        op->vdi->counters.blocks_new += run;
    }
    return data;
}

/* Submits the writes in place. Returns the number of transfers. */
static unsigned submit_in_place(struct plx_op *op)
{
    unsigned block = 0, sent = 0;

    while (block < op->blocks) {
        unsigned first = block, first_iov = op->iov_count;
        uint64_t addr = op->mappings[block].addr;
        struct plx_xfer *xfer;

        if (op->actions[block] != PLX_ACTION_IN_PLACE) {
            if (op->kind->effect != PLX_KEEPS)
                op->vdi->store->counters.blocks_zero += op->actions[block] != PLX_ACTION_NEW;
            block++;
            continue;
        }
        while (block < op->blocks && op->actions[block] == PLX_ACTION_IN_PLACE &&
               (block == first || plx_op_adjoins(op, block)) &&
               plx_op_add_block_iovs(op, block, first_iov))
            block++;
        PLX_ASSERT(block > first);
        xfer = plx_op_prepare_run(op, PLX_IO_WRITE, first_iov, addr, block - first);
        if (op->piece_count)
            xfer->io.done = logged_data_done;
        plx_store_submit(op->vdi->store, xfer->volume, &xfer->io);
        sent++;
        op->in_place = true;
        if (op->kind->effect != PLX_KEEPS)
            plx_vouch_note(&op->vdi->vouch, op->first_block + first, block - first);
        op->vdi->store->counters.blocks_in_place += block - first;
        op->vdi->counters.blocks_in_place += block - first;
    }
    return sent;
}

/* Cuts the window to as many transfers and iovecs as an operation has. */
static int fit_window(struct plx_op *op)
{
    unsigned xfers = 0, iovs = 0;

    for (unsigned i = 0; i < op->blocks; i++) {
        bool starts = i == 0 || op->actions[i] != op->actions[i - 1] ||
                      (op->actions[i] == PLX_ACTION_IN_PLACE && !plx_op_adjoins(op, i));
        unsigned slices = 1;

        if (op->actions[i] == PLX_ACTION_SKIP || op->actions[i] == PLX_ACTION_UNMAP)
            continue;
        if (!plx_op_edge_of(op, i)) {
            struct plx_op_bytes c = plx_op_bytes_at(op->request, plx_op_data_offset(op, i));
            size_t left = PLX_BLOCK_SIZE;

            for (slices = 0; left; slices++)
                left -= plx_op_bytes_take(&c, left).iov_len;
        }
        xfers += starts;
        iovs += slices;
        /* Half of the transfers are left for pieces that allocation splits. */
        if (i > 0 && (xfers > PLX_OP_XFERS / 2 || iovs > PLX_OP_IOVS)) {
            plx_op_cut_window(op, i);
            return 0;
        }
        if (iovs > PLX_OP_IOVS)
            return PLX_ERR_INVALID;
    }
    return 0;
}

/* All that the window needs is in memory, so nothing waits between the check and the submission
 * (ISSUE-1). */
int plx_op_issue(struct plx_op *op)
{
    bool has_in_place = false, has_new = false, unmaps = false;
    unsigned in_place;
    int error;

    error = op->kind->uncut ? 0 : fit_window(op);
    if (error)
        return error;
    for (unsigned i = 0; i < op->blocks; i++) {
        has_in_place = has_in_place || op->actions[i] == PLX_ACTION_IN_PLACE;
        has_new = has_new || op->actions[i] == PLX_ACTION_NEW;
        unmaps = unmaps || op->actions[i] == PLX_ACTION_UNMAP;
    }
    op->piece_count = 0;
    if (has_new)
        error = plx_op_metadata_room(op);
    else if (unmaps)
        error = plx_op_room_for_changes(op, PLX_OP_EDGE_LEAVES);
    if (!error)
        error = op->kind->place(op);
    if (!error && op->piece_count)
        error = plx_op_make_item(op);
    if (error) {
        plx_op_release_pieces(op);
        return error;
    }
    if ((has_in_place && op->kind->effect != PLX_KEEPS) || op->piece_count)
        plx_op_note_change(op);
    op->flush_mark = plx_flush_mark(op->vdi->store);
    plx_op_start_join(op);
    in_place = submit_in_place(op);
    if (op->piece_count) {
        op->item.data_pending = in_place + submit_new(op);
        plx_op_append(op);
    }
    return 0;
}
