/* ops.c - requests to a simulated world's disks, and what their completions say.
 *
 * SIM_OPS-1  The oracle hears of a completion only while there is power and its host lives: what
 *     completes in the wake of a dead device was in flight when it died.
 * SIM_OPS-2  An acknowledgement promises durability if the request asked for it, or if the disk was
 *     in write-through mode from submission to completion.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/parts.h"

#define BLOCK_SECTORS (PLX_BLOCK_SIZE / PLX_SECTOR)

/* ---- Completions ---- */

/* INV-8: what needs no block for data goes on when there is none, as long as history has not used
 * up what is reserved for metadata, too; a flush in any case. With a ring, what is answered by the
 * store waits behind writes that may lack room (RINGED_REQUESTS-4, RINGED_REQUESTS-5). */
static bool may_lack_space(const struct plx_sim_op *op)
{
    const struct plx_request *request = &op->request;
    bool whole = (request->offset | request->length) % PLX_BLOCK_SIZE == 0;

    if (op->disk->ringed &&
        (request->op == PLX_SNAPSHOT || request->op == PLX_LABEL || request->op == PLX_RESIZE))
        return true;
    if (request->op == PLX_WRITE || request->op == PLX_COMPARE_WRITE ||
        (request->op == PLX_UNMAP && !whole))
        return true;
    return request->op != PLX_FLUSH && plx_sim_used_up(op->world);
}

static bool excused(struct plx_sim_op *op)
{
    bool alive = !op->world->power.off && !op->host->dead && !plx_sim_faulty(op->world);

    if (op->request.result == PLX_ERR_NOSPACE && alive && !may_lack_space(op))
        return false;
    return plx_sim_excused(op->world, op->host, op->request.result);
}

static void expect_success(struct plx_sim_op *op, const char *what)
{
    if (op->request.result && !excused(op))
        plx_sim_fail(op->world, "%s of VDI %u failed: %s", what, op->disk->slot,
                     op->request.fault.text);
}

static void write_ended(struct plx_sim_op *op)
{
    bool durable =
        /* SIM_OPS-2 */
        op->request.fua || (op->durable && op->mode_changes == op->disk->mode_changes);

    plx_oracle_write_end(op->disk->oracle, op->token, op->first, op->count, op->request.result != 0,
                         durable);
    expect_success(op, "write");
}

static void compare_ended(struct plx_sim_op *op)
{
    struct plx_world *w = op->world;
    int result = op->request.result;

    plx_oracle_view_close(op->disk->oracle, op->view);
    for (uint64_t s = 0; s < op->count && !result; s++)
        if (!plx_view_allows(op->view, op->first + s, op->expected[s]))
            plx_sim_fail(w, "compare-and-write of VDI %u: sector %llu cannot have held %llu",
                         op->disk->slot, (unsigned long long)(op->first + s),
                         (unsigned long long)op->expected[s]);
    if (result == PLX_ERR_MISCOMPARE) {
        uint64_t sector = op->first + op->request.miscompare_offset / PLX_SECTOR;
        const struct plx_idset *page = op->view->pages[sector / 8 - op->view->first / 8];

        if (plx_view_allows(op->view, sector, op->expected[sector - op->first]) &&
            (!page || page[sector % 8].count == 1))
            plx_sim_fail(w, "compare-and-write of VDI %u: sector %llu holds %llu for sure",
                         op->disk->slot, (unsigned long long)sector,
                         (unsigned long long)op->expected[sector - op->first]);
        plx_oracle_write_cancel(op->disk->oracle, op->token, op->first, op->count);
    } else {
        write_ended(op);
    }
    plx_view_free(op->view);
}

static void read_ended(struct plx_sim_op *op)
{
    struct plx_world *w = op->world;

    if (op->view)
        plx_oracle_view_close(op->disk->oracle, op->view);
    if (op->request.result) {
        expect_success(op, "read");
    } else if (op->view) {
        plx_sim_check_sectors(w, op->view, op->first, op->count, op->buffer, "read", op->disk->slot,
                              0);
    } else {
        struct plx_sim_snapshot *snapshot = plx_sim_snapshot_find(op->disk, op->frozen);

        plx_sim_check_sectors(w, snapshot->view, op->first, op->count, op->buffer, "read",
                              op->disk->slot, op->frozen);
        for (uint64_t s = 0; s < op->count && plx_sim_sticks(w); s++) { /* SIM_MODEL-1 */
            uint64_t id;

            if (op->first + s < snapshot->view->sectors &&
                plx_sector_id(op->buffer + s * PLX_SECTOR, op->first + s, &id))
                plx_view_pin(&snapshot->view, op->first + s, id);
        }
    }
    plx_view_free(op->view);
}

static void snapshot_ended(struct plx_sim_op *op)
{
    struct plx_sim_snapshot *snapshot = &op->disk->snapshots[op->snapshot];

    plx_oracle_view_close(op->disk->oracle, snapshot->view);
    expect_success(op, "snapshot");
    if (op->request.result == PLX_ERR_NOSPACE && op->disk->ringed && !op->request.seq)
        snapshot->never = true; /* it did not even get a number there */
    if (op->request.result)
        return; /* never taken, or taken and not told: it stays unknown */
    plx_sim_snapshot_taken(op->disk, snapshot, op->request.seq, op->request.time_ns);
    op->world->result.snapshots++;
    op->world->fresh = op->disk;
}

/* It is the first to be told that there is no room, and a store that is not full may have none that
 * is adjacent. */
static void move_ended(struct plx_sim_op *op)
{
    const struct plx_move *move = &op->move;
    uint64_t end = op->request.offset + op->request.length;
    uint64_t window = plx_min_u64(PLX_MOVE_BUFFER, op->world->options.extent_bytes / 4);

    op->world->result.moved += move->moved;
    if (op->request.result != PLX_ERR_NOSPACE)
        expect_success(op, "move");
    if (op->request.result)
        return;
    if (move->upto < op->request.offset || move->upto > end ||
        (!move->blocks && move->windows > op->request.length / window + 1 && move->upto != end))
        plx_sim_fail(op->world, "VDI %u: a move ended at %llu", op->disk->slot,
                     (unsigned long long)move->upto);
    if (move->runs_after > move->runs_before || move->shared + move->moved > move->mapped)
        plx_sim_fail(op->world, "VDI %u: a move made %llu runs of %llu", op->disk->slot,
                     (unsigned long long)move->runs_after, (unsigned long long)move->runs_before);
}

static void share_block(struct plx_world *w, struct plx_sim_disk *disk, uint64_t block,
                        uint64_t common, struct plx_sim_disk *joins, uint64_t joins_at);

static void share_ended(struct plx_sim_op *op)
{
    struct plx_world *w = op->world;
    struct plx_sim_host *host = op->host;
    struct plx_sim_disk *joins = op->joins;
    enum plx_share_result result = op->share.result;

    if (op->request.result != PLX_ERR_NOSPACE)
        expect_success(op, "share");
    PLX_SIM_TRACE(w, "share on %u: %d, common block %llx", op->disk->slot, (int)result,
                  (unsigned long long)op->share.common);
    if (!op->request.result) {
        w->result.joined += result == PLX_SHARE_JOINED;
        if (joins && joins->vdi && joins->host == host &&
            (result == PLX_SHARE_MADE || result == PLX_SHARE_ALREADY))
            share_block(w, joins, op->joins_at, op->share.common, NULL, 0); /* op may be used */
    }
    if (!--host->sharing)
        plx_share_end(host->store);
}

/* SIM_OPS-1 */
static void unheard(struct plx_sim_op *op)
{
    switch (op->request.op) {
    case PLX_READ:
        if (op->view)
            plx_oracle_view_close(op->disk->oracle, op->view);
        plx_view_free(op->view);
        break;
    case PLX_COMPARE_WRITE:
        plx_oracle_view_close(op->disk->oracle, op->view);
        plx_view_free(op->view);
        /* fallthrough */
    case PLX_WRITE:
    case PLX_UNMAP:
        if (!op->world->power.off)
            plx_oracle_write_end(op->disk->oracle, op->token, op->first, op->count, true, false);
        break;
    case PLX_SNAPSHOT:
        plx_oracle_view_close(op->disk->oracle, op->disk->snapshots[op->snapshot].view);
        break;
    default:
        break;
    }
}

static void op_done(struct plx_request *request)
{
    struct plx_sim_op *op = request->owner;
    struct plx_world *w = op->world;

    op->busy = false;
    op->disk->in_flight -= !op->deaf;
    plx_sim_hash_in(w, (uint64_t)(op - w->ops) << 8 ^ (uint64_t)(int64_t)request->result ^
                           request->seq);
    PLX_SIM_TRACE(w, "done %d on %u, sectors %llu+%llu seq %llu: %s", request->op, op->disk->slot,
                  (unsigned long long)op->first, (unsigned long long)op->count,
                  (unsigned long long)request->seq, plx_error_name(request->result));
    if (op->deaf)
        return;
    if (w->power.off || op->host->dead) {
        unheard(op);
        return;
    }
    w->acks++;
    switch (request->op) {
    case PLX_READ:
        read_ended(op);
        break;
    case PLX_WRITE:
    case PLX_UNMAP:
        write_ended(op);
        break;
    case PLX_COMPARE_WRITE:
        compare_ended(op);
        break;
    case PLX_SNAPSHOT:
        snapshot_ended(op);
        break;
    case PLX_FLUSH:
        if (!request->result)
            plx_oracle_flush_end(op->disk->oracle, op->flush_begun);
        expect_success(op, "flush");
        break;
    case PLX_LABEL:
        op->disk->labels[op->label].acked = !request->result;
        if (request->result != PLX_ERR_NOT_FOUND || request->seq > op->disk->thinned)
            expect_success(op, "label");
        break;
    case PLX_RESIZE:
        if (!request->result)
            plx_sim_settle_size(w, op->disk, op->disk->resizing);
        expect_success(op, "resize");
        break;
    case PLX_KEYFRAME:
        expect_success(op, "key frame");
        break;
    case PLX_MOVE:
        move_ended(op);
        break;
    case PLX_SHARE:
        share_ended(op);
        break;
    case PLX_VOUCH: /* the engine's own */
        break;
    }
}

void plx_sim_disown(struct plx_world *w, const struct plx_sim_host *host)
{
    for (unsigned i = 0; i < w->options.vdis; i++)
        if (w->vdis[i].host == host)
            plx_sim_disk_doubt(&w->vdis[i]);
    for (unsigned i = 0; i < w->options.in_flight; i++) {
        struct plx_sim_op *op = &w->ops[i];

        if (!op->busy || op->deaf || op->host != host)
            continue;
        unheard(op);
        op->deaf = true;
        op->disk->in_flight--;
    }
}

/* ---- Submitting ---- */

static struct plx_sim_op *op_new(struct plx_world *w, struct plx_sim_disk *disk,
                                 struct plx_sim_host *host)
{
    for (unsigned i = 0; i < w->options.in_flight; i++) {
        struct plx_sim_op *op = &w->ops[i];
        uint8_t *buffer = op->buffer;

        if (op->busy)
            continue;
        memset(op, 0, sizeof *op);
        op->buffer = buffer ? buffer : malloc(PLX_SIM_IO_SECTORS * PLX_SECTOR);
        op->world = w;
        op->disk = disk;
        op->host = host;
        return op;
    }
    return NULL;
}

struct plx_sim_op *plx_sim_op_new(struct plx_world *w, struct plx_sim_disk *disk)
{
    return disk->vdi ? op_new(w, disk, disk->host) : NULL;
}

static void submit_to(struct plx_world *w, struct plx_sim_op *op, struct plx_vdi *vdi)
{
    op->request.offset = op->first * PLX_SECTOR;
    op->request.done = op_done;
    op->request.owner = op;
    op->busy = true;
    op->durable = !op->disk->write_back;
    op->mode_changes = op->disk->mode_changes;
    op->disk->in_flight++;
    w->result.requests++;
    PLX_SIM_TRACE(w, "submit %d to %u, sectors %llu+%llu (%llu bytes) id %llu%s", op->request.op,
                  op->disk->slot, (unsigned long long)op->first, (unsigned long long)op->count,
                  (unsigned long long)op->request.length, (unsigned long long)w->next_id,
                  op->request.fua ? " fua" : "");
    plx_vdi_submit(vdi, &op->request);
}

void plx_sim_op_submit(struct plx_world *w, struct plx_sim_op *op)
{
    submit_to(w, op, op->disk->vdi);
}

static void cut_iov(struct plx_world *w, struct plx_sim_op *op, uint64_t bytes)
{
    uint8_t *at = op->buffer;
    int count = 0;

    while (bytes) {
        uint64_t now = bytes;

        if (count < 7 && plx_sim_chance(w, 40))
            now = 512 * (1 + plx_sim_below(w, bytes / 512));
        op->iov[count++] = (struct iovec){at, now};
        at += now;
        bytes -= now;
    }
    op->request.iov = op->iov;
    op->request.iovcnt = count;
}

static void set_range(struct plx_sim_op *op, enum plx_request_op kind, uint64_t first,
                      uint64_t count)
{
    op->request.op = kind;
    op->request.length = count * PLX_SECTOR;
    op->first = first;
    op->count = count;
}

static void write_id(struct plx_world *w, struct plx_sim_disk *disk, uint64_t first, uint64_t count,
                     uint64_t id, bool fua)
{
    struct plx_sim_op *op = plx_sim_op_new(w, disk);

    if (!op)
        return;
    set_range(op, PLX_WRITE, first, count);
    op->request.fua = fua;
    plx_sector_fill(op->buffer, id, first, count);
    cut_iov(w, op, op->request.length);
    op->token = plx_oracle_write_begin(disk->oracle, first, count, id);
    plx_sim_op_submit(w, op);
}

void plx_sim_write(struct plx_world *w, struct plx_sim_disk *disk, uint64_t first, uint64_t count,
                   bool zeroes, bool fua)
{
    write_id(w, disk, first, count, zeroes ? 0 : ++w->next_id, fua);
}

void plx_sim_write_both(struct plx_world *w, struct plx_sim_disk *disk, struct plx_sim_disk *other,
                        uint64_t first, uint64_t count)
{
    uint64_t unit = other->sector_size / PLX_SECTOR, id = ++w->next_id;

    write_id(w, disk, first, count, id, false);
    if (other != disk && other->vdi && !other->still && !other->host->dead && first % unit == 0 &&
        count % unit == 0 && (first + count) * PLX_SECTOR <= other->size)
        write_id(w, other, first, count, id, false);
}

void plx_sim_unmap(struct plx_world *w, struct plx_sim_disk *disk, uint64_t first, uint64_t count)
{
    struct plx_sim_op *op = plx_sim_op_new(w, disk);

    if (!op)
        return;
    set_range(op, PLX_UNMAP, first, count);
    op->token = plx_oracle_write_begin(disk->oracle, first, count, 0);
    plx_sim_op_submit(w, op);
}

void plx_sim_compare(struct plx_world *w, struct plx_sim_disk *disk, uint64_t first, uint64_t count)
{
    struct plx_sim_op *op = plx_sim_op_new(w, disk);
    struct plx_view *before;
    uint64_t id;

    if (!op)
        return;
    id = ++w->next_id;
    count = count > PLX_COMPARE_MAX / PLX_SECTOR ? PLX_COMPARE_MAX / PLX_SECTOR : count;
    set_range(op, PLX_COMPARE_WRITE, first, count);
    before = plx_oracle_view_open(disk->oracle, first, count);
    for (uint64_t s = 0; s < count; s++) {
        op->expected[s] = plx_sim_chance(w, 1) ? id : plx_view_any(before, first + s);
        plx_sector_fill(op->buffer + s * PLX_SECTOR, op->expected[s], first + s, 1);
    }
    plx_oracle_view_close(disk->oracle, before);
    plx_view_free(before);
    plx_sector_fill(op->buffer + op->request.length, id, first, count);
    cut_iov(w, op, 2 * op->request.length);
    op->token = plx_oracle_write_begin(disk->oracle, first, count, id);
    op->view = plx_oracle_view_open(disk->oracle, first, count);
    plx_sim_op_submit(w, op);
}

void plx_sim_snapshot(struct plx_world *w, struct plx_sim_disk *disk)
{
    struct plx_sim_op *op = plx_sim_op_new(w, disk);
    struct plx_sim_snapshot *snapshot;
    uint64_t largest = plx_max_u64(disk->size, disk->resizing);

    if (!op)
        return;
    snapshot = plx_sim_snapshot_add(disk);
    if (!snapshot)
        return;
    if (plx_oracle_sectors(disk->oracle) < largest / PLX_SECTOR)
        plx_oracle_grow(disk->oracle, largest / PLX_SECTOR);
    *snapshot = (struct plx_sim_snapshot){
        .view = plx_oracle_view_open(disk->oracle, 0, largest / PLX_SECTOR),
        .size_min = disk->size,
        .size_max = disk->resizing ? disk->resizing : disk->size,
    };
    plx_sim_note_time(w, snapshot);
    op->request.op = PLX_SNAPSHOT;
    op->snapshot = (unsigned)(snapshot - disk->snapshots);
    plx_sim_op_submit(w, op);
}

void plx_sim_flush(struct plx_world *w, struct plx_sim_disk *disk)
{
    struct plx_sim_op *op = plx_sim_op_new(w, disk);

    if (!op)
        return;
    op->request.op = PLX_FLUSH;
    op->flush_begun = plx_oracle_flush_begin(disk->oracle);
    plx_sim_op_submit(w, op);
}

void plx_sim_keyframe(struct plx_world *w, struct plx_sim_disk *disk)
{
    struct plx_sim_op *op = plx_sim_op_new(w, disk);

    if (!op)
        return;
    op->request.op = PLX_KEYFRAME;
    plx_sim_op_submit(w, op);
}

void plx_sim_move(struct plx_world *w, struct plx_sim_disk *disk, uint64_t first_block,
                  uint64_t blocks)
{
    struct plx_sim_op *op = plx_sim_op_new(w, disk);

    if (!op)
        return;
    set_range(op, PLX_MOVE, first_block * BLOCK_SECTORS, blocks * BLOCK_SECTORS);
    op->move = (struct plx_move){
        .windows = 1 + plx_sim_below(w, 20),
        .blocks = plx_sim_chance(w, 20) ? 1 + plx_sim_below(w, 100) : 0,
    };
    op->request.move = &op->move;
    op->iov[0] = (struct iovec){op->buffer, PLX_MOVE_BUFFER};
    op->request.iov = op->iov;
    op->request.iovcnt = 1;
    plx_sim_op_submit(w, op);
}

static void share_block(struct plx_world *w, struct plx_sim_disk *disk, uint64_t block,
                        uint64_t common, struct plx_sim_disk *joins, uint64_t joins_at)
{
    struct plx_sim_op *op = plx_sim_op_new(w, disk);
    struct plx_fault fault;

    if (!op || disk->still || (block + 1) * PLX_BLOCK_SIZE > disk->size)
        return;
    if (!disk->host->sharing && plx_share_begin(disk->host->store, &fault)) {
        plx_sim_fail(w, "blocks cannot be shared: %s", fault.text);
        return;
    }
    disk->host->sharing++;
    set_range(op, PLX_SHARE, block * BLOCK_SECTORS, BLOCK_SECTORS);
    op->share = (struct plx_share){.common = common};
    op->joins = joins;
    op->joins_at = joins_at;
    op->request.share = &op->share;
    op->iov[0] = (struct iovec){op->buffer, PLX_SHARE_BUFFER};
    op->request.iov = op->iov;
    op->request.iovcnt = 1;
    plx_sim_op_submit(w, op);
}

void plx_sim_share(struct plx_world *w, struct plx_sim_disk *disk, uint64_t block,
                   struct plx_sim_disk *joins, uint64_t joins_at)
{
    if (w->registry.collections % 2 == 0) /* as the registry would have it */
        share_block(w, disk, block, 0, joins, joins_at);
}

/* Where its ring has stopped, a snapshot that waits for the disk's log is logged behind a new size
 * that was asked for after it: both were under way. Elsewhere they keep their order. */
static void resize_overtakes(struct plx_world *w, struct plx_sim_disk *disk)
{
    for (unsigned i = 0; i < PLX_SIM_OPS; i++) {
        const struct plx_sim_op *op = &w->ops[i];

        if (op->busy && op->disk == disk && op->request.op == PLX_SNAPSHOT)
            disk->snapshots[op->snapshot].size_max = disk->resizing;
    }
}

void plx_sim_resize(struct plx_world *w, struct plx_sim_disk *disk, uint64_t bytes)
{
    struct plx_sim_op *op = plx_sim_op_new(w, disk);

    if (!op || disk->resizing || disk->rewinding) /* how large is the state before? */
        return;
    op->request.op = PLX_RESIZE;
    op->request.length = disk->resizing = bytes;
    if (w->options.ring_segments && plx_sim_faulty(w))
        resize_overtakes(w, disk);
    plx_sim_op_submit(w, op);
}

void plx_sim_label(struct plx_world *w, struct plx_sim_disk *disk, bool remove)
{
    const struct plx_sim_snapshot *snapshot = plx_sim_snapshot_pick(w, disk);
    struct plx_sim_op *op = snapshot ? plx_sim_op_new(w, disk) : NULL;
    struct plx_sim_label *label = op ? plx_sim_label_add(disk) : NULL;

    if (!label)
        return;
    *label = (struct plx_sim_label){.seq = snapshot->seq, .removed = remove};
    snprintf(label->name, sizeof label->name, "l%u", (unsigned)plx_sim_below(w, 6));
    op->request.op = PLX_LABEL;
    op->request.seq = snapshot->seq;
    op->request.remove = remove;
    memcpy(op->request.label, label->name, sizeof label->name);
    op->label = (unsigned)(label - disk->labels);
    plx_sim_op_submit(w, op);
}

/* ---- Automatic snapshots ---- */

/* What the disk holds right after the rewind that is under way. */
static struct plx_view *rewound_view(const struct plx_sim_disk *disk)
{
    struct plx_oracle *oracle = plx_oracle_clone(disk->rewinding, disk->size / PLX_SECTOR);
    struct plx_view *view = plx_oracle_view_open(oracle, 0, disk->size / PLX_SECTOR);

    plx_oracle_view_close(oracle, view);
    plx_oracle_free(oracle);
    return view;
}

/* The first that was ordered with this number, which is 0 for one of an interval. NULL: none. */
static struct plx_sim_snapshot *awaited(struct plx_sim_disk *disk, uint64_t expected_seq)
{
    for (unsigned i = 0; i < disk->snapshot_count; i++)
        if (disk->snapshots[i].awaited && disk->snapshots[i].expected_seq == expected_seq)
            return &disk->snapshots[i];
    return NULL;
}

/* It may be taken by a batch that is found after a crash: it stays unknown. Where the disk has
 * stopped, that is as likely as of any other whose end nobody heard of, and later ones follow it.
 */
static void automatic_dropped(struct plx_sim_disk *disk, struct plx_sim_snapshot *snapshot)
{
    snapshot->awaited = false;
    snapshot->dropped = !disk->vdi || !plx_vdi_health(disk->vdi, NULL);
    disk->automatic--;
    plx_view_free(snapshot->exact);
    snapshot->exact = NULL;
}

static void automatic_ordered(struct plx_world *w, struct plx_sim_disk *disk, uint64_t seq)
{
    struct plx_sim_snapshot *snapshot, *before = seq ? NULL : awaited(disk, 0);
    uint64_t sectors = disk->size / PLX_SECTOR;

    if (before && w->options.ring_segments && plx_sim_faulty(w)) /* its ring has stopped */
        automatic_dropped(disk, before);
    snapshot = plx_sim_snapshot_add(disk);
    if (!snapshot) {
        plx_sim_fail(w, "VDI %u took more snapshots than a model has room for", disk->slot);
        return;
    }
    *snapshot = (struct plx_sim_snapshot){
        .size_min = disk->size,
        .size_max = disk->resizing ? disk->resizing : disk->size,
        .awaited = true,
        .opening = !disk->vdi,
        .expected_seq = seq,
    };
    plx_sim_note_time(w, snapshot);
    if (disk->rewound_from.seq && seq > disk->rewound_from.seq) { /* logged with the rewind */
        snapshot->view = rewound_view(disk);
        snapshot->exact = plx_view_share(snapshot->view);
    } else {
        snapshot->view = plx_oracle_view_open(disk->oracle, 0, sectors);
        snapshot->exact = plx_oracle_view_open(disk->oracle, 0, sectors);
    }
    plx_oracle_view_close(disk->oracle, snapshot->exact);
    disk->automatic++;
}

/* One of an interval gets its number when it is logged, and tells it only if it was taken. By then
 * the disk may have another mode again, and those of batches and writes end beside it. */
static void automatic_ended(struct plx_world *w, struct plx_sim_disk *disk, bool taken,
                            uint64_t seq, uint64_t time_ns)
{
    struct plx_sim_snapshot *snapshot = awaited(disk, seq);

    if (!snapshot && taken)
        snapshot = awaited(disk, 0);
    if (!snapshot) {
        plx_sim_fail(w, "VDI %u: the end of an automatic snapshot (%llu) that had no beginning",
                     disk->slot, (unsigned long long)seq);
        return;
    }
    if (!taken) {
        automatic_dropped(disk, snapshot);
        return;
    }
    snapshot->awaited = false;
    disk->automatic--;
    plx_oracle_view_close(disk->oracle, snapshot->view);
    plx_view_free(snapshot->view);
    snapshot->view = snapshot->exact;
    snapshot->exact = NULL;
    plx_sim_snapshot_taken(disk, snapshot, seq, time_ns);
    w->result.snapshots++;
    w->fresh = disk;
}

void plx_sim_on_automatic(struct plx_simenv *env, uint32_t slot, enum plx_automatic what,
                          uint64_t seq, uint64_t time_ns)
{
    struct plx_sim_host *host = (struct plx_sim_host *)env;
    struct plx_world *w = host->world;

    plx_sim_hash_in(w, (uint64_t)what << 56 ^ (uint64_t)slot << 48 ^ seq);
    PLX_SIM_TRACE(w, "automatic snapshot %llu of %u: %d", (unsigned long long)seq, slot, what);
    if (w->power.off || host->dead) /* SIM_OPS-1 */
        return;
    w->acks++;
    if (what == PLX_AUTOMATIC_ORDERED)
        automatic_ordered(w, &w->vdis[slot], seq);
    else
        automatic_ended(w, &w->vdis[slot], what == PLX_AUTOMATIC_TAKEN, seq, time_ns);
}

/* In write-back mode those of batches and writes are not reported, so that nothing can be expected
 * of them. */
static struct plx_protection choose_protection(struct plx_world *w, const struct plx_sim_disk *disk)
{
    bool any = !w->options.write_back && !w->options.toggle_cache;

    if (disk->snapshot_count > PLX_SIM_SNAPSHOTS / 4 || plx_sim_chance(w, 20))
        return (struct plx_protection){0};
    if (any && plx_sim_chance(w, 60))
        return (struct plx_protection){.mode = plx_sim_chance(w, 50) ? PLX_PROTECT_BATCH
                                                                     : PLX_PROTECT_WRITE};
    return (struct plx_protection){.mode = PLX_PROTECT_INTERVAL,
                                   .interval_ns = PLX_INTERVAL_MIN_NS};
}

void plx_sim_protect(struct plx_world *w, struct plx_sim_disk *disk)
{
    struct plx_protection protection;
    struct plx_sim_host *host = disk->host;
    struct plx_fault fault = {0};
    int error;

    if (!disk->vdi || host->dead || disk->still)
        return;
    protection = choose_protection(w, disk);
    error = plx_vdi_set_protection(disk->vdi, &protection, &fault);
    PLX_SIM_TRACE(w, "protect %u: mode %d: %s", disk->slot, protection.mode, plx_error_name(error));
    if (error && !plx_sim_excused(w, host, error))
        plx_sim_fail(w, "protection of VDI %u cannot be set: %s", disk->slot, fault.text);
}

void plx_sim_set_write_back(struct plx_world *w, struct plx_sim_disk *disk, bool write_back)
{
    disk->write_back = write_back;
    disk->mode_changes++;
    PLX_SIM_TRACE(w, "cache of %u: write-%s", disk->slot, write_back ? "back" : "through");
    plx_vdi_set_write_back(disk->vdi, write_back);
}

/* ---- Anything ---- */

static void choose_range(struct plx_world *w, const struct plx_sim_disk *disk, uint64_t *ret_first,
                         uint64_t *ret_count)
{
    uint64_t unit = disk->sector_size / PLX_SECTOR;
    uint64_t sectors = disk->size / PLX_SECTOR / unit, count, first;

    switch (plx_sim_below(w, 10)) {
    case 0:
    case 1:
        count = 1 + plx_sim_below(w, 8 / unit);
        break;
    case 2:
        count = 1 + plx_sim_below(w, w->options.big_io ? PLX_SIM_IO_SECTORS / unit : 200);
        break;
    case 3:
    case 4:
        count = 1 + plx_sim_below(w, 200);
        break;
    default:
        count = (1 + plx_sim_below(w, 8)) * 8 / unit;
    }
    count = count > PLX_SIM_IO_SECTORS / unit ? PLX_SIM_IO_SECTORS / unit : count;
    count = count > sectors ? sectors : count;
    first = plx_sim_below(w, sectors - count + 1);
    if (plx_sim_chance(w, 70)) /* a hot place */
        first = first % (256 / unit);
    if (plx_sim_chance(w, 60))
        first = first / (8 / unit) * (8 / unit);
    if (first + count > sectors)
        first = sectors - count;
    *ret_first = first * unit;
    *ret_count = count * unit;
}

static void unmap_anything(struct plx_world *w, struct plx_sim_disk *disk, uint64_t first,
                           uint64_t count)
{
    uint64_t unit = disk->sector_size / PLX_SECTOR, sectors = disk->size / PLX_SECTOR;

    if (plx_sim_chance(w, 30)) {
        first = plx_sim_below(w, sectors / unit) * unit;
        count = (1 + plx_sim_below(w, (sectors - first) / unit)) * unit;
    }
    plx_sim_unmap(w, disk, first, count);
}

static void move_anything(struct plx_world *w, struct plx_sim_disk *disk)
{
    uint64_t blocks = disk->size / PLX_BLOCK_SIZE, first = 0;

    if (plx_sim_chance(w, 30))
        first = plx_sim_below(w, blocks);
    if (first < blocks)
        plx_sim_move(w, disk, first,
                     plx_sim_chance(w, 70) ? blocks - first : plx_sim_below(w, blocks - first));
}

static struct plx_view *look_at_block(struct plx_sim_disk *disk, uint64_t block)
{
    struct plx_view *view =
        plx_oracle_view_open(disk->oracle, block * BLOCK_SECTORS, BLOCK_SECTORS);

    plx_oracle_view_close(disk->oracle, view);
    return view;
}

/* Whether two disks may have the same in a block, and that not zeroes. */
static bool may_be_equal(struct plx_sim_disk *a, struct plx_sim_disk *b, uint64_t block)
{
    struct plx_view *in_a = look_at_block(a, block), *in_b = look_at_block(b, block);
    bool equal = true, zeroes = true;

    for (uint64_t s = block * BLOCK_SECTORS; s < (block + 1) * BLOCK_SECTORS; s++) {
        uint64_t id = plx_view_any(in_a, s);

        equal = equal && plx_view_allows(in_b, s, id);
        zeroes = zeroes && !id;
    }
    plx_view_free(in_a);
    plx_view_free(in_b);
    return equal && !zeroes;
}

/* Equal blocks lie at the same place: a sector's contents depend on it. */
static bool share_equal(struct plx_world *w, struct plx_sim_disk *disk, struct plx_sim_disk *joins)
{
    uint64_t blocks = plx_min_u64(disk->size, joins->size) / PLX_BLOCK_SIZE;
    uint64_t first = plx_sim_below(w, 1 + plx_sim_below(w, blocks));

    for (uint64_t block = first; block < plx_min_u64(blocks, first + 200); block++)
        if (may_be_equal(disk, joins, block)) {
            plx_sim_share(w, disk, block, joins, block);
            return true;
        }
    return false;
}

static void share_anything(struct plx_world *w, struct plx_sim_disk *disk, uint64_t first)
{
    uint64_t block = first / BLOCK_SECTORS;

    for (unsigned i = 0; i < w->options.vdis && plx_sim_chance(w, 90); i++) {
        struct plx_sim_disk *joins = &w->vdis[i];

        if (joins != disk && joins->vdi && joins->host == disk->host && share_equal(w, disk, joins))
            return;
    }
    plx_sim_share(w, disk, block, disk, block + plx_sim_below(w, 2));
}

static void read_anything(struct plx_world *w, struct plx_sim_disk *disk, uint64_t first,
                          uint64_t count)
{
    struct plx_sim_op *op = plx_sim_op_new(w, disk);

    if (!op)
        return;
    set_range(op, PLX_READ, first, count);
    op->view = plx_oracle_view_open(disk->oracle, first, count);
    cut_iov(w, op, op->request.length);
    plx_sim_op_submit(w, op);
}

void plx_sim_submit_random(struct plx_world *w)
{
    struct plx_sim_disk *disk = &w->vdis[plx_sim_below(w, w->options.vdis)];
    unsigned unmaps = w->options.unmap_weight, snapshots = w->options.snapshot_weight;
    unsigned writes = 101 + unmaps + snapshots;
    unsigned moves = writes + w->options.move_weight;
    uint64_t kind = plx_sim_below(w, moves + w->options.share_weight), first, count;
    bool fua = plx_sim_chance(w, 15);

    if (!disk->vdi || disk->still || disk->in_flight >= 12 || disk->host->dead)
        return;
    if (w->options.protect && disk->snapshot_count > PLX_SIM_SNAPSHOTS / 2)
        kind = 50; /* hardly any room: reads change nothing */
    choose_range(w, disk, &first, &count);
    if (kind < 45 && w->options.share_weight && plx_sim_chance(w, 40))
        plx_sim_write_both(w, disk, &w->vdis[plx_sim_below(w, w->options.vdis)], first, count);
    else if (kind < 45)
        plx_sim_write(w, disk, first, count, false, fua);
    else if (kind < 50)
        plx_sim_write(w, disk, first, count, true, fua);
    else if (kind < 80)
        read_anything(w, disk, first, count);
    else if (kind < 85)
        plx_sim_compare(w, disk, first, count);
    else if (kind < 92)
        plx_sim_flush(w, disk);
    else if (kind < 96)
        plx_sim_keyframe(w, disk);
    else if (kind < 99 && w->options.labels)
        plx_sim_label(w, disk, plx_sim_chance(w, 20));
    else if (kind < 100 && disk->size < 3 * w->options.vdi_bytes)
        plx_sim_resize(w, disk, disk->size + (1 + plx_sim_below(w, 64)) * 4096);
    else if (kind < 101 && w->options.toggle_cache)
        plx_sim_set_write_back(w, disk, !disk->write_back);
    else if (kind >= 101 && kind < 101 + unmaps)
        unmap_anything(w, disk, first, count);
    else if (kind >= moves)
        share_anything(w, disk, first);
    else if (kind >= writes)
        move_anything(w, disk);
    else if (kind >= 101 + unmaps)
        plx_sim_snapshot(w, disk);
}

void plx_sim_reader_submit(struct plx_world *w)
{
    struct plx_sim_reader *reader = &w->readers[plx_sim_below(w, PLX_SIM_READERS)];
    const struct plx_sim_snapshot *snapshot;
    struct plx_sim_op *op;
    uint64_t first, count;

    if (!reader->vdi || reader->host->dead)
        return;
    snapshot = plx_sim_snapshot_find(reader->disk, reader->seq);
    choose_range(w, reader->disk, &first, &count);
    if (first + count > snapshot->view->sectors)
        return;
    op = op_new(w, reader->disk, reader->host);
    if (!op)
        return;
    set_range(op, PLX_READ, first, count);
    op->frozen = reader->seq;
    cut_iov(w, op, op->request.length);
    submit_to(w, op, reader->vdi);
}
