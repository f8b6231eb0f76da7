/* world.c - see world.h.
 *
 * W1  The oracle hears of a completion only while there is power: what completes in the dead
 *     devices' wake was in flight when the power failed.
 * W2  A snapshot is remembered as the view that was open from its submission to its completion; it
 *     never changes afterwards, and what was once read of it is right for ever.
 * W3  After a power cut every extent of the dead instance is adopted and every disk it held is
 *     recovered before anything new is written.
 */
#include "sim/world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "sim/oracle.h"
#include "sim/simdisk.h"
#include "sim/simenv.h"

#define DISKS_MAX 4u
#define VDIS_MAX 8u
#define SNAPSHOTS_MAX 400u
#define LABELS_MAX 64u
#define OPS_MAX 64u
#define READERS_MAX 3u
#define IO_SECTORS_MAX 4096u

struct snapshot {
    uint64_t seq; /* 0: in flight, or unknown after a power cut */
    uint64_t time_ns;
    bool acked;
    uint64_t size_min, size_max; /* bytes */
    struct plx_view *view;
};

struct label {
    char name[16];
    uint64_t seq;
    bool removed, acked;
};

struct disk {
    bool exists, maybe; /* maybe: its creation was in flight at a power cut */
    uint32_t slot;
    uint64_t epoch;
    uint64_t size, resizing; /* bytes; resizing: 0 or the size in flight */
    uint32_t sector_size;
    struct plx_oracle *oracle;
    struct plx_vdi *vdi;
    bool unclean;
    struct snapshot snapshots[SNAPSHOTS_MAX];
    unsigned snapshot_count;
    struct label labels[LABELS_MAX];
    unsigned label_count;
    unsigned in_flight;
};

struct op {
    struct plx_request request;
    struct world *world;
    struct disk *disk;
    bool busy;
    uint64_t token, first, count, flush_begun; /* sectors of 512 */
    uint64_t expected[PLX_COMPARE_MAX / PLX_SECTOR];
    struct plx_view *view;
    const struct plx_view *frozen; /* reading a snapshot */
    unsigned snapshot, label;
    struct iovec iov[8];
    uint8_t *buffer;
};

struct reader {
    struct plx_vdi *vdi;
    struct disk *disk;
    unsigned snapshot, in_flight;
};

struct world {
    struct plx_world_options options;
    struct plx_world_result result;
    struct plx_simrng rng;
    struct plx_simpower power;
    struct plx_simdisk *disks[DISKS_MAX];
    struct plx_simenv env;
    struct plx_simregistry registry;
    struct plx_store *store;
    uint64_t instance, next_id;
    struct disk vdis[VDIS_MAX];
    struct op ops[OPS_MAX];
    struct reader readers[READERS_MAX];
    uint8_t *scratch;
    unsigned step;
};

static void failure(struct world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void failure(struct world *w, const char *format, ...)
{
    va_list args;
    int used;

    if (w->result.failed)
        return;
    w->result.failed = true;
    used = snprintf(w->result.failure, sizeof w->result.failure,
                    "seed %llu, step %u, instance %llu: ", (unsigned long long)w->options.seed,
                    w->step, (unsigned long long)w->instance);
    va_start(args, format);
    vsnprintf(w->result.failure + used, sizeof w->result.failure - (size_t)used, format, args);
    va_end(args);
    if (w->options.trace)
        printf("FAILED: %s\n", w->result.failure);
    if (getenv("PLX_SIM_ABORT"))
        abort();
}

#define TRACE(w, ...)                                                                              \
    do {                                                                                           \
        if ((w)->options.trace) {                                                                  \
            printf("[%u] ", (w)->step);                                                            \
            printf(__VA_ARGS__);                                                                   \
            printf("\n");                                                                          \
        }                                                                                          \
    } while (0)

static uint64_t below(struct world *w, uint64_t n)
{
    return plx_simrng_below(&w->rng, n);
}

static bool chance(struct world *w, unsigned percent)
{
    return plx_simrng_chance(&w->rng, percent);
}

static void hash_in(struct world *w, uint64_t value)
{
    w->result.trace_hash = (w->result.trace_hash ^ value) * 0x100000001b3ull;
    w->result.trace_hash ^= w->result.trace_hash >> 29;
}

/* An error that the options make legitimate. */
static bool excused(struct world *w, int error)
{
    if (w->power.off)
        return true;
    if (error == PLX_ERR_NOSPACE && w->options.tight) {
        w->result.nospace++;
        return true;
    }
    /* An extent whose header could not be read or written is not used again by this instance, so
     * faults may use the store up. */
    return w->options.faults &&
           (plx_error_class(error) == PLX_CLASS_IO || error == PLX_ERR_NOSPACE);
}

/* ---- The store ---- */

static int open_store(struct world *w)
{
    struct plx_device *devices[DISKS_MAX];
    struct plx_store_options options = {
        .instance = w->instance,
        .host = {{(uint8_t)w->instance, 1}},
        .cache_bytes = w->options.cache_bytes,
        .keyframe_mappings = w->options.keyframe_mappings,
        .ops_per_vdi = w->options.ops_per_vdi,
    };
    struct plx_fault fault = {0};
    int error;

    for (unsigned i = 0; i < w->options.volumes; i++) {
        char name[16];

        snprintf(name, sizeof name, "sim%u", i);
        devices[i] = plx_simdisk_attach(w->disks[i], name);
    }
    error = plx_store_open(devices, w->options.volumes, &options, &w->env.env, &w->store, &fault);
    if (error) {
        for (unsigned i = 0; i < w->options.volumes; i++)
            devices[i]->ops->close(devices[i]);
        w->store = NULL;
        if (!w->power.off)
            failure(w, "the store does not open: %s", fault.text);
    } else {
        w->env.store = w->store;
    }
    return error;
}

static void make_store(struct world *w)
{
    struct plx_device *devices[DISKS_MAX];
    struct plx_format_options format = {.name = "sim",
                                        .extent_bytes = w->options.extent_bytes,
                                        .segment_bytes = w->options.segment_bytes};
    struct plx_store_info info = {0};
    struct plx_fault fault = {0};
    int error;

    for (unsigned i = 0; i < w->options.volumes; i++) {
        struct plx_simdisk_options disk = {
            .bytes = w->options.volume_bytes,
            .block_size = w->options.block_size,
            .volatile_cache = w->options.volatile_cache,
            .patience = w->options.patience,
            .tear_bytes = w->options.tear_bytes,
            .seed = plx_simrng_next(&w->rng),
        };
        w->disks[i] = plx_simdisk_new(&disk, &w->power);
        devices[i] = plx_simdisk_attach(w->disks[i], "sim");
    }
    error = plx_store_format(devices, w->options.volumes, &format, &w->env.env, &info, &fault);
    for (unsigned i = 0; i < w->options.volumes; i++)
        devices[i]->ops->close(devices[i]);
    if (error) {
        failure(w, "format: %s", fault.text);
        return;
    }
    plx_simregistry_init(&w->registry, &info);
    w->env.registry = &w->registry;
    w->env.grant_later = w->options.grant_later;
}

/* ---- Completions ---- */

static void check_sectors(struct world *w, const struct plx_view *view, uint64_t first,
                          uint64_t count, const uint8_t *bytes, const char *what, uint32_t slot,
                          uint64_t seq)
{
    for (uint64_t s = first; s < first + count && !w->result.failed; s++, bytes += PLX_SECTOR) {
        uint64_t id;

        w->result.sectors_checked++;
        if (!plx_sector_id(bytes, s, &id))
            failure(w,
                    "%s of VDI %u@%llu, sector %llu: bytes that nobody wrote there (like id "
                    "%llu; %llu expected)",
                    what, slot, (unsigned long long)seq, (unsigned long long)s,
                    (unsigned long long)id, (unsigned long long)plx_view_any(view, s));
        else if (s < view->first + view->sectors && !plx_view_allows(view, s, id))
            failure(w, "%s of VDI %u@%llu, sector %llu: write %llu, but %llu would be right", what,
                    slot, (unsigned long long)seq, (unsigned long long)s, (unsigned long long)id,
                    (unsigned long long)plx_view_any(view, s));
        else if (s >= view->first + view->sectors && id)
            failure(w, "%s of VDI %u@%llu, sector %llu: write %llu beyond its end", what, slot,
                    (unsigned long long)seq, (unsigned long long)s, (unsigned long long)id);
    }
}

static bool durable_ack(const struct world *w, const struct op *op)
{
    return !w->options.write_back || op->request.fua;
}

static void write_ended(struct op *op)
{
    struct world *w = op->world;
    int result = op->request.result;

    plx_oracle_write_end(op->disk->oracle, op->token, op->first, op->count, result != 0,
                         durable_ack(w, op));
    if (result && !excused(w, result))
        failure(w, "write of VDI %u failed: %s", op->disk->slot, op->request.fault.text);
}

static void compare_ended(struct op *op)
{
    struct world *w = op->world;
    int result = op->request.result;
    bool surely = true;

    plx_oracle_view_close(op->disk->oracle, op->view);
    for (uint64_t s = 0; s < op->count; s++) {
        bool allowed = plx_view_allows(op->view, op->first + s, op->expected[s]);

        if (!allowed && !result)
            failure(w, "compare-and-write of VDI %u: sector %llu cannot have held %llu",
                    op->disk->slot, (unsigned long long)(op->first + s),
                    (unsigned long long)op->expected[s]);
        surely = surely && allowed;
    }
    if (result == PLX_ERR_MISCOMPARE) {
        uint64_t sector = op->first + op->request.miscompare_offset / PLX_SECTOR;
        const struct plx_idset *page = op->view->pages[sector / 8 - op->view->first / 8];

        if (plx_view_allows(op->view, sector, op->expected[sector - op->first]) &&
            (!page || page[sector % 8].count == 1))
            failure(w, "compare-and-write of VDI %u: sector %llu holds %llu for sure",
                    op->disk->slot, (unsigned long long)sector,
                    (unsigned long long)op->expected[sector - op->first]);
        plx_oracle_write_cancel(op->disk->oracle, op->token, op->first, op->count);
    } else {
        write_ended(op);
    }
    plx_view_free(op->view);
}

static void read_ended(struct op *op)
{
    struct world *w = op->world;

    if (op->view)
        plx_oracle_view_close(op->disk->oracle, op->view);
    if (op->request.result) {
        if (!excused(w, op->request.result))
            failure(w, "read of VDI %u failed: %s", op->disk->slot, op->request.fault.text);
    } else {
        check_sectors(w, op->view ? op->view : op->frozen, op->first, op->count, op->buffer, "read",
                      op->disk->slot, op->view ? 0 : 1);
        if (op->frozen) /* W2 */
            for (uint64_t s = 0; s < op->count && !w->result.failed; s++) {
                uint64_t id;

                if (op->first + s < op->frozen->first + op->frozen->sectors &&
                    plx_sector_id(op->buffer + s * PLX_SECTOR, op->first + s, &id))
                    plx_view_pin((struct plx_view *)(uintptr_t)op->frozen, op->first + s, id);
            }
    }
    plx_view_free(op->view);
}

static void snapshot_ended(struct op *op)
{
    struct world *w = op->world;
    struct disk *disk = op->disk;
    struct snapshot *snapshot = &disk->snapshots[op->snapshot];

    plx_oracle_view_close(disk->oracle, snapshot->view);
    if (op->request.result) {
        if (!excused(w, op->request.result))
            failure(w, "snapshot of VDI %u failed: %s", disk->slot, op->request.fault.text);
        return; /* never taken, or taken and not told: it stays unknown */
    }
    snapshot->seq = op->request.seq;
    snapshot->time_ns = op->request.time_ns;
    snapshot->acked = true;
    w->result.snapshots++;
}

static void op_done(struct plx_request *request)
{
    struct op *op = request->owner;
    struct world *w = op->world;

    op->busy = false;
    op->disk->in_flight--;
    hash_in(w, (uint64_t)(op - w->ops) << 8 ^ (uint64_t)(int64_t)request->result ^ request->seq);
    TRACE(w, "done %d on %u, sectors %llu+%llu: %s", request->op, op->disk->slot,
          (unsigned long long)op->first, (unsigned long long)op->count,
          plx_error_name(request->result));
    if (w->power.off) { /* W1 */
        if (request->op == PLX_READ || request->op == PLX_COMPARE_WRITE) {
            if (op->view)
                plx_oracle_view_close(op->disk->oracle, op->view);
            plx_view_free(op->view);
        } else if (request->op == PLX_SNAPSHOT) {
            plx_oracle_view_close(op->disk->oracle, op->disk->snapshots[op->snapshot].view);
        }
        return;
    }
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
        else if (!excused(w, request->result))
            failure(w, "flush failed: %s", request->fault.text);
        break;
    case PLX_LABEL:
        op->disk->labels[op->label].acked = !request->result;
        if (request->result && !excused(w, request->result))
            failure(w, "label failed: %s", request->fault.text);
        break;
    case PLX_RESIZE:
        if (!request->result) {
            op->disk->size = op->disk->resizing;
            plx_oracle_grow(op->disk->oracle, op->disk->size / PLX_SECTOR);
            op->disk->resizing = 0;
        } else if (!excused(w, request->result)) {
            failure(w, "resize failed: %s", request->fault.text);
        }
        break;
    case PLX_KEYFRAME:
        if (request->result && !excused(w, request->result))
            failure(w, "key frame failed: %s", request->fault.text);
        break;
    }
}

/* ---- Submitting ---- */

static struct op *free_op(struct world *w)
{
    for (unsigned i = 0; i < w->options.in_flight && i < OPS_MAX; i++)
        if (!w->ops[i].busy)
            return &w->ops[i];
    return NULL;
}

static void cut_iov(struct world *w, struct op *op, uint64_t bytes)
{
    uint8_t *at = op->buffer;
    int count = 0;

    while (bytes) {
        uint64_t now = bytes;

        if (count < 7 && chance(w, 40))
            now = 512 * (1 + below(w, bytes / 512));
        op->iov[count++] = (struct iovec){at, now};
        at += now;
        bytes -= now;
    }
    op->request.iov = op->iov;
    op->request.iovcnt = count;
}

static void choose_range(struct world *w, struct op *op)
{
    uint64_t unit = op->disk->sector_size / PLX_SECTOR;
    uint64_t sectors = op->disk->size / PLX_SECTOR / unit, count, first;

    switch (below(w, 10)) {
    case 0:
    case 1:
        count = 1 + below(w, 8 / unit);
        break;
    case 2:
        count = w->options.big_io ? 1 + below(w, IO_SECTORS_MAX / unit) : 1 + below(w, 200);
        break;
    case 3:
    case 4:
        count = 1 + below(w, 200);
        break;
    default:
        count = (1 + below(w, 8)) * 8 / unit;
    }
    count = count > IO_SECTORS_MAX / unit ? IO_SECTORS_MAX / unit : count;
    count = count > sectors ? sectors : count;
    first = below(w, sectors - count + 1);
    if (chance(w, 70)) /* a hot place */
        first = first % (256 / unit);
    if (chance(w, 60))
        first = first / (8 / unit) * (8 / unit);
    op->first = first * unit;
    op->count = count * unit;
    if (op->first + op->count > op->disk->size / PLX_SECTOR)
        op->first = op->disk->size / PLX_SECTOR - op->count;
}

static void set_range(struct op *op)
{
    op->request.offset = op->first * PLX_SECTOR;
    op->request.length = op->count * PLX_SECTOR;
}

static void submit_write(struct world *w, struct op *op, bool zeroes)
{
    uint64_t id = zeroes ? 0 : ++w->next_id;

    choose_range(w, op);
    set_range(op);
    op->request.op = PLX_WRITE;
    plx_sector_fill(op->buffer, id, op->first, op->count);
    if (!zeroes && chance(w, 10)) { /* zeroes in the middle: as an id of its own, 0 */
        uint64_t from = below(w, op->count), n = 1 + below(w, op->count - from);

        if (from == 0 && n == op->count)
            n = 0;
        /* Split at the model by cutting the request to the part before. */
        op->count = from ? from / (op->disk->sector_size / PLX_SECTOR) *
                               (op->disk->sector_size / PLX_SECTOR)
                         : op->count;
        if (!op->count)
            op->count = op->disk->sector_size / PLX_SECTOR;
        set_range(op);
    }
    cut_iov(w, op, op->request.length);
    op->token = plx_oracle_write_begin(op->disk->oracle, op->first, op->count, id);
}

static void submit_unmap(struct world *w, struct op *op)
{
    choose_range(w, op);
    if (chance(w, 30)) {
        uint64_t unit = op->disk->sector_size / PLX_SECTOR;
        uint64_t sectors = op->disk->size / PLX_SECTOR;

        op->first = below(w, sectors / unit) * unit;
        op->count = (1 + below(w, (sectors - op->first) / unit)) * unit;
    }
    set_range(op);
    op->request.op = PLX_UNMAP;
    op->token = plx_oracle_write_begin(op->disk->oracle, op->first, op->count, 0);
}

static void submit_compare(struct world *w, struct op *op)
{
    uint64_t id = ++w->next_id;

    choose_range(w, op);
    if (op->count > PLX_COMPARE_MAX / PLX_SECTOR)
        op->count = PLX_COMPARE_MAX / PLX_SECTOR;
    set_range(op);
    op->request.op = PLX_COMPARE_WRITE;
    op->view = plx_oracle_view_open(op->disk->oracle, op->first, op->count);
    for (uint64_t s = 0; s < op->count; s++) {
        op->expected[s] = chance(w, 1) ? id : plx_view_any(op->view, op->first + s);
        plx_sector_fill(op->buffer + s * PLX_SECTOR, op->expected[s], op->first + s, 1);
    }
    plx_sector_fill(op->buffer + op->request.length, id, op->first, op->count);
    cut_iov(w, op, 2 * op->request.length);
    /* The view is of what may be there before: this write itself is not in it. */
    plx_oracle_view_close(op->disk->oracle, op->view);
    op->token = plx_oracle_write_begin(op->disk->oracle, op->first, op->count, id);
    {
        struct plx_view *before = op->view;

        op->view = plx_oracle_view_open(op->disk->oracle, op->first, op->count);
        plx_view_free(before);
    }
}

static void submit_snapshot(struct world *w, struct op *op)
{
    struct disk *disk = op->disk;

    if (disk->snapshot_count == SNAPSHOTS_MAX) {
        op->request.op = PLX_FLUSH;
        op->flush_begun = plx_oracle_flush_begin(disk->oracle);
        return;
    }
    op->request.op = PLX_SNAPSHOT;
    op->snapshot = disk->snapshot_count++;
    disk->snapshots[op->snapshot] = (struct snapshot){
        .view = plx_oracle_view_open(disk->oracle, 0, disk->size / PLX_SECTOR),
        .size_min = disk->size,
        .size_max = disk->resizing ? disk->resizing : disk->size,
    };
}

static bool submit_label(struct world *w, struct op *op)
{
    struct disk *disk = op->disk;
    unsigned pick;

    if (disk->label_count == LABELS_MAX || !disk->snapshot_count)
        return false;
    pick = (unsigned)below(w, disk->snapshot_count);
    if (!disk->snapshots[pick].acked)
        return false;
    op->request.op = PLX_LABEL;
    op->request.seq = disk->snapshots[pick].seq;
    op->label = disk->label_count++;
    snprintf(op->request.label, sizeof op->request.label, "l%u", (unsigned)below(w, 6));
    op->request.remove = chance(w, 20);
    memcpy(disk->labels[op->label].name, op->request.label, sizeof disk->labels[0].name);
    disk->labels[op->label].seq = op->request.seq;
    disk->labels[op->label].removed = op->request.remove;
    disk->labels[op->label].acked = false;
    return true;
}

static void submit(struct world *w)
{
    struct op *op = free_op(w);
    struct disk *disk = &w->vdis[below(w, w->options.vdis)];
    unsigned unmaps = w->options.unmap_weight, snapshots = w->options.snapshot_weight;
    uint64_t kind = below(w, 100 + unmaps + snapshots);

    if (!op || !disk->vdi || disk->in_flight >= 12)
        return;
    {
        struct world *world = op->world;
        uint8_t *buffer = op->buffer;

        memset(op, 0, sizeof *op);
        op->world = world;
        op->buffer = buffer;
    }
    op->disk = disk;
    if (kind < 45) {
        submit_write(w, op, false);
    } else if (kind < 50) {
        submit_write(w, op, true);
    } else if (kind < 80) {
        choose_range(w, op);
        set_range(op);
        op->request.op = PLX_READ;
        op->view = plx_oracle_view_open(disk->oracle, op->first, op->count);
        cut_iov(w, op, op->request.length);
    } else if (kind < 85) {
        submit_compare(w, op);
    } else if (kind < 92) {
        op->request.op = PLX_FLUSH;
        op->flush_begun = plx_oracle_flush_begin(disk->oracle);
    } else if (kind < 96) {
        op->request.op = PLX_KEYFRAME;
    } else if (kind < 99) {
        if (!submit_label(w, op))
            return;
    } else if (kind < 100) {
        if (disk->resizing || disk->size >= 3 * w->options.vdi_bytes)
            return;
        disk->resizing = disk->size + (1 + below(w, 64)) * 4096;
        op->request.op = PLX_RESIZE;
        op->request.length = disk->resizing;
    } else if (kind < 100 + unmaps) {
        submit_unmap(w, op);
    } else {
        submit_snapshot(w, op);
    }
    op->request.fua = chance(w, 15);
    op->request.done = op_done;
    op->request.owner = op;
    op->busy = true;
    disk->in_flight++;
    w->result.requests++;
    TRACE(w, "submit %d on %u, sectors %llu+%llu id %llu fua %d", op->request.op, disk->slot,
          (unsigned long long)op->first, (unsigned long long)op->count,
          (unsigned long long)w->next_id, op->request.fua);
    plx_vdi_submit(disk->vdi, &op->request);
}

static void drain(struct world *w)
{
    for (;;) {
        bool busy = false;

        for (unsigned i = 0; i < OPS_MAX; i++)
            busy = busy || w->ops[i].busy;
        if (!busy)
            return;
        if (!plx_store_tick(w->store))
            plx_store_wait(w->store);
    }
}

static void drain_disk(struct world *w, const struct disk *disk)
{
    while (disk->in_flight)
        if (!plx_store_tick(w->store) && disk->in_flight)
            plx_store_wait(w->store);
}

/* ---- Reading back ---- */

static int read_at(struct world *w, struct plx_vdi *vdi, uint64_t first, uint64_t count,
                   struct plx_fault *ret_fault)
{
    struct iovec iov = {w->scratch, count * PLX_SECTOR};
    struct plx_request request = {.op = PLX_READ,
                                  .offset = first * PLX_SECTOR,
                                  .length = count * PLX_SECTOR,
                                  .iov = &iov,
                                  .iovcnt = 1};
    int error = plx_vdi_run(vdi, &request);

    *ret_fault = request.fault;
    return error;
}

/* All of an idle disk; what is read there sticks. */
static void verify_live(struct world *w, struct disk *disk, bool durable, const char *what)
{
    uint64_t sectors = disk->size / PLX_SECTOR;

    TRACE(w, "verify %u (%s)", disk->slot, what);
    for (uint64_t at = 0; at < sectors && !w->result.failed;) {
        uint64_t count = 8 * (1 + below(w, 64));
        struct plx_fault fault;
        int error;

        count = count > sectors - at ? sectors - at : count;
        error = read_at(w, disk->vdi, at, count, &fault);
        if (w->power.off)
            return;
        if (error) {
            if (!excused(w, error))
                failure(w, "%s: read of VDI %u at sector %llu: %s", what, disk->slot,
                        (unsigned long long)at, fault.text);
            return;
        }
        for (uint64_t s = 0; s < count && !w->result.failed; s++) {
            uint64_t id;

            w->result.sectors_checked++;
            if (!plx_sector_id(w->scratch + s * PLX_SECTOR, at + s, &id))
                failure(w, "%s: VDI %u, sector %llu: bytes that nobody wrote there (like id %llu)",
                        what, disk->slot, (unsigned long long)(at + s), (unsigned long long)id);
            else if (!plx_oracle_settle(disk->oracle, at + s, id, durable)) {
                struct plx_view *view = plx_oracle_view_open(disk->oracle, at + s, 1);

                failure(w, "%s: VDI %u, sector %llu: write %llu, but %llu would be right", what,
                        disk->slot, (unsigned long long)(at + s), (unsigned long long)id,
                        (unsigned long long)plx_view_any(view, at + s));
                plx_oracle_view_close(disk->oracle, view);
                plx_view_free(view);
            }
        }
        at += count;
    }
}

static struct snapshot *pick_snapshot(struct world *w, struct disk *disk)
{
    struct snapshot *snapshot;

    if (!disk->snapshot_count)
        return NULL;
    snapshot = &disk->snapshots[below(w, disk->snapshot_count)];
    return snapshot->acked ? snapshot : NULL;
}

static void check_snapshot_size(struct world *w, struct disk *disk, struct plx_vdi *vdi,
                                const struct snapshot *snapshot)
{
    struct plx_vdi_info info;

    plx_vdi_get_info(vdi, &info);
    if (info.size_bytes < snapshot->size_min || info.size_bytes > snapshot->size_max)
        failure(w, "VDI %u@%llu has %llu bytes, not %llu", disk->slot,
                (unsigned long long)snapshot->seq, (unsigned long long)info.size_bytes,
                (unsigned long long)snapshot->size_min);
}

static void verify_snapshot(struct world *w, struct disk *disk, struct snapshot *snapshot)
{
    struct plx_fault fault = {0};
    struct plx_vdi *vdi;
    struct plx_vdi_info info;
    int error = plx_snapshot_open(w->store, disk->slot, snapshot->seq, &vdi, &fault);

    TRACE(w, "verify %u@%llu", disk->slot, (unsigned long long)snapshot->seq);
    if (error) {
        if (!excused(w, error))
            failure(w, "VDI %u@%llu does not open: %s", disk->slot,
                    (unsigned long long)snapshot->seq, fault.text);
        return;
    }
    check_snapshot_size(w, disk, vdi, snapshot);
    plx_vdi_get_info(vdi, &info);
    for (uint64_t at = 0; at < info.size_bytes / PLX_SECTOR && !w->result.failed;) {
        uint64_t count = 8 * (1 + below(w, 128)), left = info.size_bytes / PLX_SECTOR - at;

        count = count > left ? left : count;
        error = read_at(w, vdi, at, count, &fault);
        if (w->power.off)
            break;
        if (error) {
            if (!excused(w, error))
                failure(w, "read of VDI %u@%llu: %s", disk->slot, (unsigned long long)snapshot->seq,
                        fault.text);
            break;
        }
        check_sectors(w, snapshot->view, at, count, w->scratch, "whole snapshot", disk->slot,
                      snapshot->seq);
        for (uint64_t s = 0; s < count && !w->result.failed; s++) { /* W2 */
            uint64_t id;

            if (at + s < snapshot->view->sectors &&
                plx_sector_id(w->scratch + s * PLX_SECTOR, at + s, &id))
                plx_view_pin(snapshot->view, at + s, id);
        }
        at += count;
    }
    plx_vdi_abandon(vdi);
}

struct listing {
    struct world *world;
    struct disk *disk;
    uint64_t seqs[SNAPSHOTS_MAX], times[SNAPSHOTS_MAX];
    unsigned count;
};

static bool list_visit(void *context, const struct plx_snapshot_info *info)
{
    struct listing *listing = context;

    if (listing->count < SNAPSHOTS_MAX) {
        listing->seqs[listing->count] = info->seq;
        listing->times[listing->count++] = info->time_ns;
    }
    return true;
}

/* Every acknowledged snapshot is listed; others only if they were in flight once, and those get
 * their number now. */
static void verify_list(struct world *w, struct disk *disk)
{
    struct listing listing = {.world = w, .disk = disk};
    struct plx_fault fault = {0};
    bool before[SNAPSHOTS_MAX] = {0};
    int error;

    for (unsigned i = 0; i < disk->snapshot_count; i++)
        before[i] = disk->snapshots[i].acked;
    error = plx_snapshot_list(w->store, disk->slot, 0, list_visit, &listing, &fault);

    if (error) {
        if (!excused(w, error))
            failure(w, "snapshots of VDI %u cannot be listed: %s", disk->slot, fault.text);
        return;
    }
    for (unsigned i = 0; i < disk->snapshot_count; i++) {
        const struct snapshot *snapshot = &disk->snapshots[i];
        bool found = false;

        for (unsigned k = 0; k < listing.count; k++)
            found = found ||
                    (listing.seqs[k] == snapshot->seq && listing.times[k] == snapshot->time_ns);
        if (before[i] && !found)
            failure(w, "VDI %u@%llu is not listed", disk->slot, (unsigned long long)snapshot->seq);
    }
    for (unsigned k = 0; k < listing.count; k++) {
        struct snapshot *unknown = NULL;
        bool known = false;

        if (k && listing.seqs[k] != listing.seqs[k - 1] + 1)
            failure(w, "VDI %u: snapshot %llu is listed after %llu", disk->slot,
                    (unsigned long long)listing.seqs[k], (unsigned long long)listing.seqs[k - 1]);
        for (unsigned i = 0; i < disk->snapshot_count; i++) {
            known =
                known || (disk->snapshots[i].acked && disk->snapshots[i].seq == listing.seqs[k]);
            if (!disk->snapshots[i].acked && !unknown)
                unknown = &disk->snapshots[i];
        }
        if (known)
            continue;
        if (!unknown || disk->in_flight) {
            if (!disk->in_flight)
                failure(w, "VDI %u@%llu is listed but was never taken", disk->slot,
                        (unsigned long long)listing.seqs[k]);
            continue;
        }
        unknown->seq = listing.seqs[k];
        unknown->time_ns = listing.times[k];
        unknown->acked = true;
    }
    if (disk->in_flight)
        return;
    for (unsigned i = disk->snapshot_count; i-- > 0;) /* those that never came to be */
        if (!disk->snapshots[i].acked) {
            plx_view_free(disk->snapshots[i].view);
            disk->snapshots[i] = disk->snapshots[--disk->snapshot_count];
        }
}

struct label_listing {
    struct label labels[LABELS_MAX];
    unsigned count;
};

static void label_visit(void *context, const char *label, uint64_t seq, bool removed)
{
    struct label_listing *listing = context;

    if (listing->count < LABELS_MAX) {
        snprintf(listing->labels[listing->count].name, sizeof listing->labels[0].name, "%s", label);
        listing->labels[listing->count].seq = seq;
        listing->labels[listing->count++].removed = removed;
    }
}

/* Acknowledged labels, in order, are a subsequence of those listed. */
static void verify_labels(struct world *w, struct disk *disk)
{
    struct label_listing listing = {0};
    struct plx_fault fault = {0};
    bool before[LABELS_MAX] = {0};
    unsigned at = 0;
    int error;

    for (unsigned i = 0; i < disk->label_count; i++)
        before[i] = disk->labels[i].acked;
    error = plx_label_list(w->store, disk->slot, label_visit, &listing, &fault);

    if (error) {
        if (!excused(w, error))
            failure(w, "labels of VDI %u cannot be listed: %s", disk->slot, fault.text);
        return;
    }
    for (unsigned i = 0; i < disk->label_count; i++) {
        if (!before[i])
            continue;
        while (at < listing.count && (strcmp(listing.labels[at].name, disk->labels[i].name) ||
                                      listing.labels[at].seq != disk->labels[i].seq ||
                                      listing.labels[at].removed != disk->labels[i].removed))
            at++;
        if (at++ >= listing.count)
            failure(w, "VDI %u: label %s of %llu is not listed", disk->slot, disk->labels[i].name,
                    (unsigned long long)disk->labels[i].seq);
    }
}

struct runs {
    struct world *world;
    const struct plx_view *view;
    uint32_t slot;
    uint64_t expected;
};

static bool runs_visit(void *context, uint64_t offset, uint64_t length, bool mapped)
{
    struct runs *runs = context;

    if (offset != runs->expected)
        failure(runs->world, "map runs of VDI %u: a gap before %llu", runs->slot,
                (unsigned long long)offset);
    runs->expected = offset + length;
    for (uint64_t s = offset / PLX_SECTOR; !mapped && s < (offset + length) / PLX_SECTOR; s++)
        if (s < runs->view->sectors && !plx_view_allows(runs->view, s, 0))
            failure(runs->world, "map runs of VDI %u: sector %llu is unmapped but holds %llu",
                    runs->slot, (unsigned long long)s,
                    (unsigned long long)plx_view_any(runs->view, s));
    return !runs->world->result.failed;
}

static void verify_runs(struct world *w, struct disk *disk, struct snapshot *snapshot)
{
    struct runs runs = {.world = w, .view = snapshot->view, .slot = disk->slot};
    struct plx_fault fault = {0};
    struct plx_vdi *vdi;
    struct plx_vdi_info info;
    int error = plx_snapshot_open(w->store, disk->slot, snapshot->seq, &vdi, &fault);

    if (!error) {
        plx_vdi_get_info(vdi, &info);
        error = plx_vdi_map_runs(vdi, 0, info.size_bytes, runs_visit, &runs, &fault);
        if (!error && runs.expected != info.size_bytes)
            failure(w, "map runs of VDI %u end at %llu", disk->slot,
                    (unsigned long long)runs.expected);
        plx_vdi_abandon(vdi);
    }
    if (error && !excused(w, error))
        failure(w, "map runs of VDI %u@%llu: %s", disk->slot, (unsigned long long)snapshot->seq,
                fault.text);
}

/* ---- Whole virtual disks ---- */

static void open_disk(struct world *w, struct disk *disk)
{
    struct plx_vdi_open_options options = {
        .slot = disk->slot,
        .epoch = ++disk->epoch,
        .take_over = disk->unclean,
        .write_back = w->options.write_back,
        .overwrite = w->options.copy ? PLX_OVERWRITE_COPY : -1,
    };
    struct plx_fault fault = {0};
    int error = plx_vdi_open(w->store, &options, &disk->vdi, &fault);

    TRACE(w, "open %u: %s", disk->slot, plx_error_name(error));
    if (error) {
        disk->vdi = NULL;
        disk->unclean = true; /* the record may or may not name us */
        if (!excused(w, error))
            failure(w, "VDI %u does not open: %s", disk->slot, fault.text);
        return;
    }
    disk->unclean = false;
}

static void close_disk(struct world *w, struct disk *disk)
{
    int error;

    drain_disk(w, disk);
    if (!disk->vdi)
        return;
    error = plx_vdi_close(disk->vdi);
    TRACE(w, "close %u: %s", disk->slot, plx_error_name(error));
    disk->vdi = NULL;
    disk->unclean = error != 0;
    if (!error)
        plx_oracle_flush_end(disk->oracle, plx_oracle_flush_begin(disk->oracle));
    else if (!excused(w, error))
        failure(w, "VDI %u does not close: %s", disk->slot, plx_error_text(error));
}

static void create_disk(struct world *w, struct disk *disk, struct disk *parent,
                        const struct snapshot *snapshot)
{
    struct plx_vdi_create_options options = {
        .size_bytes = w->options.vdi_bytes + 4096 * below(w, 8),
        .sector_size = w->options.sector_size,
        .slot = disk->slot,
    };
    struct plx_fault fault = {0};
    struct plx_vdi_info info = {0};
    int error;

    snprintf(options.name, sizeof options.name, "disk%u", disk->slot);
    if (parent) {
        options.is_clone = true;
        options.parent_slot = parent->slot;
        options.parent_seq = snapshot->seq;
        options.size_bytes = chance(w, 50) ? 0 : snapshot->size_max + 4096 * below(w, 8);
    }
    error = plx_vdi_create(w->store, &options, &info, &fault);
    TRACE(w, "create %u (parent %d): %s", disk->slot, parent ? (int)parent->slot : -1,
          plx_error_name(error));
    if (error && !w->power.off) {
        /* EXISTS: an earlier attempt failed after its first copy of the record. */
        if (!excused(w, error) && !(w->options.faults && error == PLX_ERR_EXISTS))
            failure(w, "VDI %u cannot be created: %s", disk->slot, fault.text);
        plx_vdi_delete(w->store, disk->slot, false,
                       &fault); /* one copy of its record may be there */
        return;
    }
    disk->exists = !error;
    disk->maybe = error != 0;
    disk->size = error ? options.size_bytes : info.size_bytes;
    if (error && parent && disk->size < snapshot->size_min)
        disk->size = snapshot->size_min;
    disk->sector_size = w->options.sector_size;
    disk->resizing = 0;
    disk->unclean = false;
    disk->snapshot_count = disk->label_count = 0;
    disk->oracle = parent ? plx_oracle_clone(snapshot->view, disk->size / PLX_SECTOR)
                          : plx_oracle_new(disk->size / PLX_SECTOR);
}

static void forget_disk(struct disk *disk)
{
    for (unsigned i = 0; i < disk->snapshot_count; i++)
        plx_view_free(disk->snapshots[i].view);
    plx_oracle_free(disk->oracle);
    disk->oracle = NULL;
    disk->exists = disk->maybe = false;
    disk->snapshot_count = disk->label_count = 0;
}

static void delete_disk(struct world *w, struct disk *disk)
{
    struct plx_fault fault = {0};
    int error;

    unsigned others = 0;

    for (unsigned i = 0; i < READERS_MAX; i++)
        if (w->readers[i].disk == disk && w->readers[i].vdi)
            return;
    for (unsigned i = 0; i < w->options.vdis; i++)
        others += &w->vdis[i] != disk && w->vdis[i].vdi;
    if (!others)
        return;
    close_disk(w, disk);
    if (disk->unclean || w->power.off)
        return;
    error = plx_vdi_delete(w->store, disk->slot, false, &fault);
    TRACE(w, "delete %u: %s", disk->slot, plx_error_name(error));
    if (!error)
        forget_disk(disk);
    else if (!excused(w, error))
        failure(w, "VDI %u cannot be deleted: %s", disk->slot, fault.text);
}

/* ---- Readers: snapshots held open ---- */

static void reader_open(struct world *w, struct disk *disk)
{
    struct snapshot *snapshot = pick_snapshot(w, disk);
    struct plx_fault fault = {0};

    for (unsigned i = 0; snapshot && i < READERS_MAX; i++) {
        struct reader *reader = &w->readers[i];
        int error;

        if (reader->vdi)
            continue;
        error = plx_snapshot_open(w->store, disk->slot, snapshot->seq, &reader->vdi, &fault);
        if (error) {
            reader->vdi = NULL;
            if (!excused(w, error))
                failure(w, "VDI %u@%llu does not open: %s", disk->slot,
                        (unsigned long long)snapshot->seq, fault.text);
            return;
        }
        reader->disk = disk;
        reader->snapshot = (unsigned)(snapshot - disk->snapshots);
        return;
    }
}

static void reader_submit(struct world *w)
{
    struct reader *reader = &w->readers[below(w, READERS_MAX)];
    struct op *op = free_op(w);
    struct world *world;
    uint8_t *buffer;

    if (!reader->vdi || !op)
        return;
    world = op->world;
    buffer = op->buffer;
    memset(op, 0, sizeof *op);
    op->world = world;
    op->buffer = buffer;
    op->disk = reader->disk;
    choose_range(w, op);
    if (op->first + op->count > reader->disk->snapshots[reader->snapshot].view->sectors)
        return;
    set_range(op);
    op->request.op = PLX_READ;
    op->frozen = reader->disk->snapshots[reader->snapshot].view;
    cut_iov(w, op, op->request.length);
    op->request.done = op_done;
    op->request.owner = op;
    op->busy = true;
    op->disk->in_flight++;
    w->result.requests++;
    plx_vdi_submit(reader->vdi, &op->request);
}

static void reader_close(struct world *w, struct reader *reader)
{
    if (!reader->vdi)
        return;
    plx_vdi_abandon(reader->vdi);
    reader->vdi = NULL;
    reader->disk = NULL;
}

/* ---- Steps ---- */

static struct disk *absent_disk(struct world *w)
{
    for (unsigned i = 0; i < w->options.vdis; i++)
        if (!w->vdis[i].exists && !w->vdis[i].maybe)
            return &w->vdis[i];
    return NULL;
}

static void sync_step(struct world *w)
{
    struct disk *disk = &w->vdis[below(w, w->options.vdis)], *absent = absent_disk(w);
    struct snapshot *snapshot;

    if (absent && chance(w, 20)) {
        create_disk(w, absent, NULL, NULL);
        if (absent->exists && !w->power.off)
            open_disk(w, absent);
        return;
    }
    if (!disk->exists)
        return;
    snapshot = pick_snapshot(w, disk);
    switch (below(w, 14)) {
    case 0:
    case 1:
        if (snapshot)
            verify_snapshot(w, disk, snapshot);
        break;
    case 2:
    case 3:
    case 4:
        reader_open(w, disk);
        break;
    case 5:
        reader_close(w, &w->readers[below(w, READERS_MAX)]);
        break;
    case 6:
        close_disk(w, disk);
        if (!w->power.off)
            open_disk(w, disk);
        break;
    case 7:
        drain_disk(w, disk);
        if (disk->vdi && !w->power.off)
            verify_live(w, disk, false, "live");
        break;
    case 8:
        verify_list(w, disk);
        verify_labels(w, disk);
        break;
    case 9:
    case 10:
        if (snapshot && absent) {
            create_disk(w, absent, disk, snapshot);
            if (absent->exists && !w->power.off)
                open_disk(w, absent);
        }
        break;
    case 11:
        if (snapshot)
            verify_runs(w, disk, snapshot);
        break;
    case 12:
        if (chance(w, 20))
            delete_disk(w, disk);
        break;
    case 13:
        if (disk->unclean && !disk->vdi)
            open_disk(w, disk);
        break;
    }
}

static void inject_fault(struct world *w)
{
    struct plx_simdisk *disk = w->disks[below(w, w->options.volumes)];

    plx_simdisk_fail_io(disk, 1 + below(w, 40), 1 + below(w, 3));
}

/* A disk that stopped (a log that could not be written) is opened again. */
static void revive(struct world *w)
{
    for (unsigned i = 0; i < w->options.vdis; i++) {
        struct disk *disk = &w->vdis[i];
        struct plx_fault fault;

        if (disk->vdi && !plx_vdi_health(disk->vdi, &fault))
            continue;
        if (!disk->exists)
            continue;
        for (unsigned d = 0; d < w->options.volumes; d++)
            plx_simdisk_heal(w->disks[d]);
        if (disk->vdi) {
            drain_disk(w, disk);
            plx_vdi_abandon(disk->vdi);
            disk->vdi = NULL;
            disk->unclean = true;
        }
        if (!w->power.off)
            open_disk(w, disk);
    }
}

/* ---- Power ---- */

static void shut_down(struct world *w)
{
    for (unsigned i = 0; i < READERS_MAX; i++)
        reader_close(w, &w->readers[i]);
    for (unsigned i = 0; i < w->options.vdis; i++)
        if (w->vdis[i].vdi) {
            plx_vdi_abandon(w->vdis[i].vdi);
            w->vdis[i].vdi = NULL;
            w->vdis[i].unclean = true;
        }
    if (w->store)
        plx_store_close(w->store);
    w->store = NULL;
    memset(w->env.asked, 0, sizeof w->env.asked);
    w->env.needed = false;
}

/* Before anything is allocated: all extents, and all that the logs name (W3). */
static bool adopt(struct world *w)
{
    struct plx_fault fault = {0};

    for (uint64_t e = 0; e < w->registry.count; e++) {
        struct plx_extent_info info;
        int error;

        if (!w->registry.extents[e].owner)
            continue;
        error = plx_store_extent_read(w->store, e, &info, &fault);
        if (!error && info.type != PLX_EXTENT_UNUSED)
            error = plx_store_extent_adopt(w->store, e, &fault);
        if (w->power.off)
            return false;
        if (!error && info.type == PLX_EXTENT_UNUSED) { /* granted, but nothing came of it */
            w->registry.extents[e].owner = 0;
            w->registry.extents[e].used = false;
            w->registry.granted--;
            continue;
        }
        if (error) {
            failure(w, "extent %llu cannot be adopted: %s", (unsigned long long)e, fault.text);
            return false;
        }
        w->registry.extents[e].owner = w->instance;
    }
    for (unsigned i = 0; i < w->options.vdis; i++) {
        int error = plx_vdi_mark(w->store, i, &fault);

        if (w->power.off)
            return false;
        if (error)
            failure(w, "the log of VDI %u cannot be marked: %s", i, fault.text);
    }
    if (plx_store_extents_adopted(w->store, &fault) && !w->power.off)
        failure(w, "adopted extents cannot be used: %s", fault.text);
    return !w->power.off;
}

static bool recover_disk(struct world *w, struct disk *disk)
{
    struct plx_vdi_info info;
    struct plx_fault fault = {0};
    int error = plx_vdi_read_info(w->store, disk->slot, &info, &fault);

    if (w->power.off)
        return false;
    if (error == PLX_ERR_NOT_FOUND && disk->maybe) {
        forget_disk(disk);
        return true;
    }
    if (!error && disk->maybe && info.state == PLX_VDI_DELETED) {
        forget_disk(disk); /* the slot's former disk */
        return true;
    }
    if (!error && disk->exists && info.state == PLX_VDI_DELETED) {
        forget_disk(disk); /* its deletion was under way */
        return true;
    }
    if (error) {
        failure(w, "VDI %u is gone: %s", disk->slot, fault.text);
        return false;
    }
    disk->exists = true;
    disk->maybe = false;
    if (info.epoch > disk->epoch)
        failure(w, "VDI %u has epoch %llu, at most %llu was given", disk->slot,
                (unsigned long long)info.epoch, (unsigned long long)disk->epoch);
    disk->unclean = true;
    open_disk(w, disk);
    return disk->vdi != NULL;
}

static void recovered(struct world *w, struct disk *disk)
{
    struct plx_vdi_info info;

    plx_vdi_get_info(disk->vdi, &info);
    if (info.size_bytes != disk->size && info.size_bytes != disk->resizing)
        failure(w, "VDI %u has %llu bytes after recovery, not %llu", disk->slot,
                (unsigned long long)info.size_bytes, (unsigned long long)disk->size);
    disk->size = info.size_bytes;
    disk->resizing = 0;
    if (plx_oracle_sectors(disk->oracle) < disk->size / PLX_SECTOR)
        plx_oracle_grow(disk->oracle, disk->size / PLX_SECTOR);
    verify_live(w, disk, true, "recovered");
    if (w->power.off)
        return;
    verify_list(w, disk);
    if (!w->power.off)
        verify_labels(w, disk);
}

static void crash_and_recover(struct world *w)
{
    plx_simpower_cut(&w->power);
    w->result.crashes++;
    for (unsigned i = 0; i < w->options.vdis; i++) {
        struct disk *disk = &w->vdis[i];

        for (unsigned s = 0; s < disk->snapshot_count; s++)
            if (!disk->snapshots[s].acked && w->options.write_back)
                plx_oracle_view_widen(disk->oracle, disk->snapshots[s].view);
        if (disk->oracle)
            plx_oracle_crash(disk->oracle);
    }
    for (bool again = true; again && !w->result.failed;) {
        again = false;
        TRACE(w, "power cut; instance %llu follows", (unsigned long long)w->instance + 1);
        shut_down(w);
        for (unsigned i = 0; i < w->options.vdis; i++)
            if (w->vdis[i].in_flight)
                failure(w, "a request never completed");
        plx_simpower_restore(&w->power);
        w->instance++;
        w->env.instance = w->instance;
        if (chance(w, 30))
            w->power.crash_at = w->power.events + 1 + below(w, 400);
        if (!open_store(w) && adopt(w)) {
            bool all = true;

            for (unsigned i = 0; i < w->options.vdis && all; i++)
                if (w->vdis[i].exists || w->vdis[i].maybe)
                    all = recover_disk(w, &w->vdis[i]);
            for (unsigned i = 0; i < w->options.vdis && all && !w->power.off; i++)
                if (w->vdis[i].exists)
                    recovered(w, &w->vdis[i]);
        }
        if (w->power.off && !w->result.failed) {
            again = true;
            w->result.recovery_crashes++;
        }
    }
    w->power.crash_at = 0;
}

/* ---- A run ---- */

static void check_everything(struct world *w)
{
    for (unsigned i = 0; i < w->options.vdis && !w->result.failed; i++) {
        struct disk *disk = &w->vdis[i];

        if (!disk->exists)
            continue;
        verify_list(w, disk);
        verify_labels(w, disk);
        for (unsigned s = 0; s < disk->snapshot_count && !w->result.failed; s++)
            if (disk->snapshots[s].acked && (disk->snapshot_count < 20 || chance(w, 30)))
                verify_snapshot(w, disk, &disk->snapshots[s]);
    }
}

#ifdef PLX_HAVE_CHECK
static void check_finding(void *context, enum plx_finding_severity severity, const char *text)
{
    struct world *w = context;

    TRACE(w, "check: %s", text);
    if (severity == PLX_FINDING_ERROR)
        failure(w, "check: %s", text);
}

static void check_store(struct world *w)
{
    struct plx_check_options options = {.data = true, .finding = check_finding, .context = w};
    struct plx_check_result result = {0};
    struct plx_fault fault = {0};
    int error = plx_store_check(w->store, &options, &result, &fault);

    if (error || result.errors)
        failure(w, "check: %s, %llu errors", error ? fault.text : "",
                (unsigned long long)result.errors);
}
#else
static void check_store(struct world *w)
{
}
#endif

/* A clean end, with all extents given up, and another instance. */
static void restart(struct world *w)
{
    struct plx_fault fault = {0};
    int error;

    drain(w);
    for (unsigned i = 0; i < READERS_MAX; i++)
        reader_close(w, &w->readers[i]);
    for (unsigned i = 0; i < w->options.vdis && !w->power.off; i++) {
        close_disk(w, &w->vdis[i]);
        if (w->vdis[i].unclean && w->vdis[i].exists)
            return;
    }
    if (w->power.off || w->env.needed || w->env.asked[PLX_EXTENT_DATA] ||
        w->env.asked[PLX_EXTENT_META])
        return;
    while (plx_store_busy(w->store)) /* extents may still be loading */
        if (!plx_store_tick(w->store))
            plx_store_wait(w->store);
    error = plx_simenv_release_all(&w->env, &fault);
    TRACE(w, "restart: %s", plx_error_name(error));
    if (error) {
        if (!excused(w, error))
            failure(w, "extents cannot be released: %s", fault.text);
        return;
    }
    error = plx_store_close(w->store);
    w->store = NULL;
    if (w->power.off)
        return;
    if (error && !excused(w, error))
        failure(w, "the store does not close: %s", plx_error_text(error));
    w->env.instance = ++w->instance;
    if (open_store(w))
        return;
    for (unsigned i = 0; i < w->options.vdis && !w->power.off && !w->result.failed; i++)
        if (w->vdis[i].exists)
            open_disk(w, &w->vdis[i]);
}

static void finish(struct world *w)
{
    drain(w);
    for (unsigned d = 0; d < w->options.volumes; d++)
        plx_simdisk_heal(w->disks[d]);
    if (w->options.faults)
        revive(w);
    for (unsigned i = 0; i < w->options.vdis && !w->result.failed; i++)
        if (w->vdis[i].vdi)
            verify_live(w, &w->vdis[i], false, "at the end");
    check_everything(w);
    for (unsigned i = 0; i < READERS_MAX; i++)
        reader_close(w, &w->readers[i]);
    for (unsigned i = 0; i < w->options.vdis; i++)
        if (w->vdis[i].vdi)
            close_disk(w, &w->vdis[i]);
    if (plx_store_close(w->store) && !w->options.faults)
        failure(w, "the store does not close");
    w->store = NULL;
    memset(w->env.asked, 0, sizeof w->env.asked);
    w->env.needed = false;
    w->instance = 0; /* once more, read only */
    if (w->result.failed || open_store(w))
        return;
    check_everything(w);
    for (unsigned i = 0; i < w->options.vdis && !w->result.failed; i++) {
        struct disk *disk = &w->vdis[i];
        struct plx_fault fault = {0};

        if (!disk->exists || disk->unclean)
            continue;
        if (plx_snapshot_open(w->store, disk->slot, 0, &disk->vdi, &fault))
            failure(w, "VDI %u does not open read-only: %s", disk->slot, fault.text);
        else
            verify_live(w, disk, false, "read-only");
    }
    if (!w->result.failed)
        check_store(w);
}

static void run(struct world *w)
{
    unsigned crash_every = w->options.crashes ? w->options.steps / (w->options.crashes + 1) : 0;

    for (w->step = 1; w->step <= w->options.steps && !w->result.failed; w->step++) {
        if (crash_every && w->step % crash_every == 0 && !w->power.crash_at)
            w->power.crash_at = w->power.events + 1 + below(w, 300);
        if (w->options.faults && chance(w, w->options.faults))
            inject_fault(w);
        if (below(w, 1000) < w->options.sync_weight) {
            if (chance(w, 8))
                restart(w);
            else
                sync_step(w);
        } else if (chance(w, 10))
            reader_submit(w);
        else if (chance(w, 60))
            submit(w);
        if (!w->power.off && w->store && !plx_store_tick(w->store) && chance(w, 30))
            plx_store_wait(w->store);
        if (w->power.off)
            crash_and_recover(w);
        else if (w->options.faults && w->step % 16 == 0)
            revive(w);
    }
    if (!w->result.failed && w->store) {
        w->power.crash_at = 0;
        finish(w);
    }
}

bool plx_world_run(const struct plx_world_options *options, struct plx_world_result *ret_result)
{
    struct world *w = calloc(1, sizeof *w);

    w->options = *options;
    w->rng.state = options->seed;
    w->instance = 1;
    w->scratch = malloc(IO_SECTORS_MAX * PLX_SECTOR);
    plx_simenv_init(&w->env, plx_simrng_next(&w->rng));
    w->env.loud = options->trace;
    for (unsigned i = 0; i < OPS_MAX; i++) {
        w->ops[i].world = w;
        if (i < options->in_flight)
            w->ops[i].buffer = malloc(IO_SECTORS_MAX * PLX_SECTOR);
    }
    for (unsigned i = 0; i < VDIS_MAX; i++)
        w->vdis[i].slot = i;
    make_store(w);
    if (!w->result.failed && !open_store(w)) {
        create_disk(w, &w->vdis[0], NULL, NULL);
        if (!w->result.failed)
            open_disk(w, &w->vdis[0]);
        if (!w->result.failed)
            run(w);
    }
    shut_down(w);
    for (unsigned i = 0; i < VDIS_MAX; i++)
        forget_disk(&w->vdis[i]);
    w->result.io_events = w->power.events;
    hash_in(w, w->power.events);
    for (unsigned i = 0; i < options->volumes; i++) {
        if (!w->disks[i])
            continue;
        hash_in(w, plx_simdisk_hash(w->disks[i]));
        plx_simdisk_free(w->disks[i]);
    }
    plx_simregistry_done(&w->registry);
    for (unsigned i = 0; i < OPS_MAX; i++)
        free(w->ops[i].buffer);
    free(w->scratch);
    *ret_result = w->result;
    free(w);
    return !ret_result->failed;
}

void plx_world_options_random(uint64_t seed, bool with_crashes, struct plx_world_options *ret)
{
    struct plx_simrng rng = {seed * 2 + with_crashes};
    bool tiny = plx_simrng_chance(&rng, 75);
    struct plx_world_options o = {.seed = seed};

    o.volumes = plx_simrng_chance(&rng, 25) ? 2 : 1;
    o.extent_bytes = tiny ? 1u << 20 : 8u << 20;
    o.volume_bytes = tiny ? 96u << 20 : 256u << 20;
    o.segment_bytes = tiny ? 16u << 10 : 256u << 10;
    o.block_size = plx_simrng_chance(&rng, 60) ? 512 : 4096;
    o.volatile_cache = plx_simrng_chance(&rng, 60);
    o.patience = (unsigned)plx_simrng_below(&rng, 90);
    o.tear_bytes = o.block_size == 512 && plx_simrng_chance(&rng, 30) ? 4096 : 0;
    o.cache_bytes = tiny ? 1 : 0;
    o.keyframe_mappings = tiny ? 20 + plx_simrng_below(&rng, 400) : 0;
    o.ops_per_vdi = tiny ? 2 + (unsigned)plx_simrng_below(&rng, 8) : 0;
    o.grant_later = plx_simrng_chance(&rng, 50);
    o.vdis = 1 + (unsigned)plx_simrng_below(&rng, 5);
    o.vdi_bytes = (uint64_t)(tiny ? 1 + plx_simrng_below(&rng, 8) : 16) << 20;
    o.sector_size = plx_simrng_chance(&rng, 80) ? 512 : 4096;
    o.write_back = plx_simrng_chance(&rng, 25);
    o.copy = plx_simrng_chance(&rng, 20);
    o.steps = with_crashes ? 1200 : 2500;
    o.in_flight = 1 + (unsigned)plx_simrng_below(&rng, 24);
    o.unmap_weight = (unsigned)plx_simrng_below(&rng, 20);
    o.snapshot_weight = (unsigned)plx_simrng_below(&rng, 12);
    o.sync_weight = (unsigned)plx_simrng_below(&rng, 12);
    o.big_io = plx_simrng_chance(&rng, 20);
    o.tight = false;
    o.crashes = with_crashes ? 1 + (unsigned)plx_simrng_below(&rng, 4) : 0;
    *ret = o;
}
