/* bench.c - see bench.h. */
#include "fault/bench.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fault/alloc.h"

#define DISK_BYTES (40 * MIB)
#define BUFFER_BYTES (4 * MIB)
#define NEIGHBOUR_BYTES (64 * KIB)
#define TURNS_MAX 2000000u /* more than any case needs: it hangs */
#define FAR_OFFSET (599ull << 30)
#define CHUNK (256 * KIB)

bool bench_expect(struct bench *b, bool condition, const char *format, ...)
{
    va_list args;

    if (condition)
        return true;
    fault_alloc_suspend();
    b->failures++;
    va_start(args, format);
    fputs("\n    ", stdout);
    vprintf(format, args);
    va_end(args);
    fault_alloc_resume();
    return false;
}

static bool succeeds(struct bench *b, int error, const char *what)
{
    return bench_expect(b, error == 0, "%s: %s: %s", what, plx_error_name(error), b->fault.text);
}

/* ---- The store ---- */

static void count_turn(struct plx_simenv *env)
{
    struct bench *b = (struct bench *)(void *)((char *)env - offsetof(struct bench, env));

    if (b->heals_in && !--b->heals_in) {
        fault_alloc_heal();
        b->plan.kind = FAULT_IO_NONE;
    }
    if (++b->turns < TURNS_MAX)
        return;
    puts("\n    it hangs");
    fflush(stdout);
    abort();
}

static void new_disk(struct bench *b, uint64_t seed)
{
    struct plx_simdisk_options options = {.bytes = DISK_BYTES,
                                          .block_size = 512,
                                          .volatile_cache = true,
                                          .patience = 20,
                                          .seed = seed};

    b->disk = plx_simdisk_new(&options, &b->power);
}

/* A formatted disk with two virtual disks, made once. */
static const struct plx_simdisk *template_disk(void)
{
    static struct bench made;

    if (made.disk)
        return made.disk;
    bench_init(&made, false, 1);
    if (bench_format(&made, false) || bench_open_store(&made, 1) ||
        bench_create(&made, 0, 2 * MIB) || bench_create(&made, 1, MIB) || bench_release(&made) ||
        bench_close_store(&made)) {
        printf("no template: %s\n", made.fault.text);
        abort();
    }
    return made.disk;
}

void bench_init(struct bench *b, bool formatted, uint64_t seed)
{
    const struct plx_simdisk *from = formatted ? template_disk() : NULL;
    struct plx_store_info info = {
        .extents = DISK_BYTES / BENCH_EXTENT, .volumes = 1, .volume = {{.first_extent = 0}}};

    *b = (struct bench){0};
    new_disk(b, seed);
    if (from)
        plx_simdisk_copy(b->disk, from);
    plx_simenv_init(&b->env, 7);
    b->env.on_tick = count_turn;
    plx_simregistry_init(&b->registry, &info);
    b->env.registry = &b->registry;
    b->buffer = malloc(BUFFER_BYTES);
    b->neighbour.buffer = malloc(NEIGHBOUR_BYTES);
    for (unsigned n = 0; n < BENCH_DISKS; n++)
        b->disks[n].slot = n;
    if (!formatted)
        return;
    for (unsigned n = 0; n < 2; n++) {
        struct bench_disk *d = &b->disks[n];

        d->exists = FATE_YES;
        d->size = n == 0 ? 2 * MIB : MIB;
        d->oracle = plx_oracle_new(d->size / PLX_SECTOR);
    }
}

static void forget_disk(struct bench_disk *d)
{
    for (unsigned s = 0; s < d->snap_count; s++)
        plx_view_free(d->snaps[s].view);
    plx_oracle_free(d->oracle);
    *d = (struct bench_disk){.slot = d->slot};
}

static void drop_store(struct bench *b)
{
    plx_simpower_cut(&b->power);
    bench_ring_leave_disk(b);
    for (unsigned n = 0; n < BENCH_DISKS; n++) {
        if (b->disks[n].vdi)
            plx_vdi_abandon(b->disks[n].vdi);
        b->disks[n].vdi = NULL;
    }
    bench_ring_close(b);
    if (b->store)
        plx_store_close(b->store);
    b->store = NULL;
    plx_simpower_restore(&b->power);
}

void bench_done(struct bench *b)
{
    drop_store(b);
    for (unsigned n = 0; n < BENCH_DISKS; n++)
        forget_disk(&b->disks[n]);
    plx_simregistry_done(&b->registry);
    bench_ring_done(b);
    plx_simdisk_free(b->disk);
    free(b->buffer);
    free(b->neighbour.buffer);
}

int bench_format(struct bench *b, bool force)
{
    struct plx_format_options options = {.name = "bench",
                                         .extent_bytes = BENCH_EXTENT,
                                         .segment_bytes = BENCH_SEGMENT,
                                         .vdi_slots = 8};
    struct plx_store_info info;
    struct plx_device *device;
    int error;

    options.force = force;
    fault_alloc_suspend();
    device = fault_device_attach(b->disk, &b->plan);
    fault_alloc_resume();
    error = plx_store_format(&device, 1, &options, &b->env.env, &info, &b->fault);
    device->ops->close(device);
    return error;
}

int bench_open_store(struct bench *b, uint64_t instance)
{
    struct plx_store_options options = {
        .instance = instance, .cache_bytes = 64 * BLOCK, .ops_per_vdi = 8};
    struct plx_device *device;
    int error;

    fault_alloc_suspend();
    device = fault_device_attach(b->disk, &b->plan);
    fault_alloc_resume();
    error = plx_store_open(&device, 1, &options, &b->env.env, &b->store, &b->fault);
    if (error) {
        device->ops->close(device);
        b->store = NULL;
    }
    b->env.instance = instance;
    b->env.store = b->store;
    return error;
}

static int adopt_extent(struct bench *b, uint64_t extent)
{
    struct plx_extent_info info;
    int error = plx_store_extent_read(b->store, extent, &info, &b->fault);

    if (!error && info.type == PLX_EXTENT_UNUSED) { /* claimed, and never came into use */
        b->registry.extents[extent].owner = 0;
        b->registry.extents[extent].used = false;
    } else if (!error) {
        error = plx_store_extent_adopt(b->store, extent, &b->fault);
        b->registry.extents[extent].owner =
            error ? b->registry.extents[extent].owner : b->env.instance;
    }
    return error;
}

int bench_adopt(struct bench *b)
{
    int error = 0;

    for (uint64_t e = 0; e < b->registry.count && !error; e++)
        if (b->registry.extents[e].owner)
            error = adopt_extent(b, e);
    for (unsigned n = 0; n < BENCH_DISKS && !error; n++)
        error = plx_vdi_mark(b->store, n, &b->fault);
    return error ? error : plx_store_extents_adopted(b->store, &b->fault);
}

int bench_release(struct bench *b)
{
    return plx_simenv_release_all(&b->env, &b->fault);
}

int bench_close_store(struct bench *b)
{
    int error = plx_store_close(b->store);

    b->store = NULL;
    if (error)
        plx_fault_set(&b->fault, error, "%s", plx_error_text(error));
    return error;
}

void bench_crash(struct bench *b)
{
    drop_store(b);
    for (unsigned n = 0; n < BENCH_DISKS; n++) {
        struct bench_disk *d = &b->disks[n];

        if (!d->oracle)
            continue;
        if (d->last_maybe)
            plx_oracle_view_widen(d->oracle, d->snaps[d->snap_count - 1].view);
        plx_oracle_crash(d->oracle);
    }
}

/* ---- Virtual disks ---- */

static int create(struct bench *b, unsigned n, struct plx_vdi_create_options *options)
{
    struct bench_disk *d = &b->disks[n];
    int error;

    options->sector_size = 512;
    options->slot = d->slot;
    snprintf(options->name, sizeof options->name, "disk%u", n);
    error = plx_vdi_create(b->store, options, NULL, &b->fault);
    d->exists = error ? FATE_MAYBE : FATE_YES;
    return error;
}

int bench_create(struct bench *b, unsigned n, uint64_t size)
{
    struct bench_disk *d = &b->disks[n];
    struct plx_vdi_create_options options = {.size_bytes = size};

    if (!d->oracle) {
        fault_alloc_suspend();
        d->oracle = plx_oracle_new(size / PLX_SECTOR);
        fault_alloc_resume();
        d->size = size;
    }
    return create(b, n, &options);
}

int bench_clone(struct bench *b, unsigned n, unsigned parent, uint64_t seq)
{
    struct bench_disk *d = &b->disks[n];
    struct plx_vdi_create_options options = {.is_clone = true};

    options.parent_slot = b->disks[parent].slot;
    options.parent_seq = seq;
    if (!d->oracle) {
        fault_alloc_suspend();
        d->size = b->disks[parent].snaps[seq - 1].size;
        d->oracle = plx_oracle_clone(b->disks[parent].snaps[seq - 1].view, d->size / PLX_SECTOR);
        fault_alloc_resume();
    }
    return create(b, n, &options);
}

int bench_delete(struct bench *b, unsigned n)
{
    int error = plx_vdi_delete(b->store, b->disks[n].slot, false, &b->fault);

    b->disks[n].exists = error ? FATE_MAYBE : FATE_NO;
    return error;
}

int bench_open(struct bench *b, unsigned n, bool take_over)
{
    struct plx_vdi_open_options options = {.slot = b->disks[n].slot,
                                           .epoch = ++b->epoch,
                                           .take_over = take_over,
                                           .write_back = b->disks[n].write_back,
                                           .overwrite = -1};

    if (n == 0 && b->ring.host)
        return bench_ring_open_disk(b, &options);
    return plx_vdi_open(b->store, &options, &b->disks[n].vdi, &b->fault);
}

int bench_close(struct bench *b, unsigned n)
{
    int error;

    if (n == 0)
        bench_ring_leave_disk(b);
    error = plx_vdi_close(b->disks[n].vdi);
    b->disks[n].vdi = NULL;
    if (error)
        plx_fault_set(&b->fault, error, "%s", plx_error_text(error));
    return error;
}

/* ---- Requests ---- */

static int run(struct bench *b, unsigned n, struct plx_request *request)
{
    int error = plx_vdi_run(b->disks[n].vdi, request);

    if (error)
        b->fault = request->fault;
    return error;
}

static uint64_t write_begin(struct bench *b, struct bench_disk *d, uint64_t offset, uint64_t length,
                            uint64_t id)
{
    uint64_t token;

    fault_alloc_suspend();
    token = plx_oracle_write_begin(d->oracle, offset / PLX_SECTOR, length / PLX_SECTOR, id);
    fault_alloc_resume();
    return token;
}

static void write_end(struct bench_disk *d, uint64_t token, uint64_t offset, uint64_t length,
                      int error)
{
    fault_alloc_suspend();
    plx_oracle_write_end(d->oracle, token, offset / PLX_SECTOR, length / PLX_SECTOR, error != 0,
                         !d->write_back);
    fault_alloc_resume();
}

static int write_as(struct bench *b, unsigned n, uint64_t offset, uint64_t length, uint64_t id)
{
    struct bench_disk *d = &b->disks[n];
    struct iovec iov = {b->buffer, length};
    struct plx_request request = {
        .op = PLX_WRITE, .offset = offset, .length = length, .iov = &iov, .iovcnt = 1};
    uint64_t token = write_begin(b, d, offset, length, id);
    int error;

    plx_sector_fill(b->buffer, id, offset / PLX_SECTOR, length / PLX_SECTOR);
    error = run(b, n, &request);
    write_end(d, token, offset, length, error);
    return error;
}

int bench_write(struct bench *b, unsigned n, uint64_t offset, uint64_t length)
{
    return write_as(b, n, offset, length, ++b->ids);
}

int bench_write_again(struct bench *b, unsigned n, uint64_t offset, uint64_t length)
{
    return write_as(b, n, offset, length, b->ids);
}

int bench_compare_write(struct bench *b, unsigned n, uint64_t offset, uint64_t length)
{
    struct bench_disk *d = &b->disks[n];
    struct iovec iov = {b->buffer, 2 * length};
    struct plx_request request = {
        .op = PLX_COMPARE_WRITE, .offset = offset, .length = length, .iov = &iov, .iovcnt = 1};
    uint64_t first = offset / PLX_SECTOR, count = length / PLX_SECTOR, id = ++b->ids, token;
    struct plx_view *view;
    int error;

    fault_alloc_suspend();
    view = plx_oracle_view_open(d->oracle, first, count);
    for (uint64_t s = 0; s < count; s++)
        plx_sector_fill(b->buffer + s * PLX_SECTOR, plx_view_any(view, first + s), first + s, 1);
    plx_oracle_view_close(d->oracle, view);
    plx_view_free(view);
    fault_alloc_resume();
    plx_sector_fill(b->buffer + length, id, first, count);
    token = write_begin(b, d, offset, length, id);
    error = run(b, n, &request);
    write_end(d, token, offset, length, error);
    return error;
}

int bench_move(struct bench *b, unsigned n, uint64_t length)
{
    struct iovec iov = {b->buffer, PLX_MOVE_BUFFER};
    struct plx_move move = {.windows = UINT64_MAX};
    struct plx_request request = {
        .op = PLX_MOVE, .length = length, .iov = &iov, .iovcnt = 1, .move = &move};

    return run(b, n, &request);
}

int bench_unmap(struct bench *b, unsigned n, uint64_t offset, uint64_t length)
{
    struct plx_request request = {.op = PLX_UNMAP, .offset = offset, .length = length};
    uint64_t token = write_begin(b, &b->disks[n], offset, length, 0);
    int error = run(b, n, &request);

    write_end(&b->disks[n], token, offset, length, error);
    return error;
}

static struct plx_view *snapshot_begin(struct bench_disk *d)
{
    struct plx_view *view;

    fault_alloc_suspend();
    view = plx_oracle_view_open(d->oracle, 0, plx_oracle_sectors(d->oracle));
    fault_alloc_resume();
    return view;
}

/* seq 0: it may have been taken. */
static void snapshot_end(struct bench *b, struct bench_disk *d, struct plx_view *view, uint64_t seq)
{
    plx_oracle_view_close(d->oracle, view);
    d->snaps[d->snap_count].view = view;
    d->snaps[d->snap_count].stays = FATE_YES;
    d->snaps[d->snap_count++].size = view->sectors * PLX_SECTOR;
    d->last_maybe = seq == 0;
    if (seq)
        bench_expect(b, seq == d->snap_count, "snapshot %llu is said to be %llu",
                     (unsigned long long)d->snap_count, (unsigned long long)seq);
}

int bench_snapshot(struct bench *b, unsigned n)
{
    struct bench_disk *d = &b->disks[n];
    struct plx_request request = {.op = PLX_SNAPSHOT};
    struct plx_view *view = snapshot_begin(d);
    int error = run(b, n, &request);

    snapshot_end(b, d, view, error ? 0 : request.seq);
    return error;
}

/* The disk says whether it took place. */
static void decide_rewind(struct bench *b, struct bench_disk *d)
{
    struct plx_vdi_info info;

    plx_vdi_get_info(d->vdi, &info);
    bench_expect(b, info.rewinds == d->rewinds || (d->rewinding && info.rewinds == d->rewinds + 1),
                 "disk %u was rewound %u times, not %u", d->slot, info.rewinds, d->rewinds);
    fault_alloc_suspend();
    if (d->rewinding && info.rewinds != d->rewinds)
        plx_oracle_rewind(d->oracle, d->snaps[d->rewinding - 1].view);
    fault_alloc_resume();
    d->rewinds = info.rewinds;
    d->rewinding = 0;
}

int bench_rewind(struct bench *b, unsigned n, uint64_t seq)
{
    struct bench_disk *d = &b->disks[n];
    struct plx_rewind_options options = {.seq = seq};
    struct plx_snapshot_info before = {0};
    struct plx_view *view = snapshot_begin(d);
    struct plx_vdi_info info;
    int error = plx_vdi_rewind(d->vdi, &options, &before, &b->fault);

    snapshot_end(b, d, view, before.seq);
    d->rewinding = seq;
    plx_vdi_get_info(d->vdi, &info);
    bench_expect(b, error || info.rewinds == d->rewinds + 1, "disk %u is not rewound", n);
    /* Of a disk that stopped the record may say more when it is opened again. */
    if (info.rewinds != d->rewinds || !plx_vdi_health(d->vdi, NULL))
        decide_rewind(b, d);
    return error;
}

int bench_thin(struct bench *b, unsigned n, uint64_t seq)
{
    struct bench_disk *d = &b->disks[n];
    struct plx_thin thin = {.after = seq - 1, .upto = seq};
    struct plx_thinned thinned;
    int error;

    d->snaps[seq - 1].stays = FATE_MAYBE;
    error = plx_vdi_thin(d->vdi, &thin, &thinned, &b->fault);
    /* It may stay when the key frame that was to come behind it could not be announced. */
    if (!error)
        d->snaps[seq - 1].stays = thinned.snapshots ? FATE_NO : FATE_YES;
    return error;
}

int bench_label(struct bench *b, unsigned n)
{
    struct bench_disk *d = &b->disks[n];
    struct plx_request request = {.op = PLX_LABEL, .seq = d->snap_count, .label = "two"};
    int error = run(b, n, &request);

    d->labelled = error ? FATE_MAYBE : FATE_YES;
    d->label_seq = d->snap_count;
    return error;
}

int bench_flush(struct bench *b, unsigned n)
{
    struct plx_request request = {.op = PLX_FLUSH};
    uint64_t begun = plx_oracle_flush_begin(b->disks[n].oracle);
    int error = run(b, n, &request);

    if (!error)
        plx_oracle_flush_end(b->disks[n].oracle, begun);
    return error;
}

int bench_keyframe(struct bench *b, unsigned n)
{
    struct plx_request request = {.op = PLX_KEYFRAME};

    return run(b, n, &request);
}

static void grow_to(struct bench_disk *d, uint64_t size)
{
    uint64_t sectors = (size < 16 * MIB ? size : 16 * MIB) / PLX_SECTOR;

    d->size = size;
    d->maybe_size = 0;
    fault_alloc_suspend();
    if (sectors > plx_oracle_sectors(d->oracle))
        plx_oracle_grow(d->oracle, sectors);
    fault_alloc_resume();
}

int bench_resize(struct bench *b, unsigned n, uint64_t size)
{
    struct plx_request request = {.op = PLX_RESIZE, .length = size};
    int error = run(b, n, &request);

    if (error)
        b->disks[n].maybe_size = size;
    else
        grow_to(&b->disks[n], size);
    return error;
}

int bench_write_far(struct bench *b, unsigned n)
{
    struct bench_disk *d = &b->disks[n];
    struct iovec iov = {b->buffer, BLOCK};
    struct plx_request request = {
        .op = PLX_WRITE, .offset = FAR_OFFSET, .length = BLOCK, .iov = &iov, .iovcnt = 1};
    int error;

    d->far_id = d->far_id ? d->far_id : ++b->ids;
    plx_sector_fill(b->buffer, d->far_id, FAR_OFFSET / PLX_SECTOR, BLOCK / PLX_SECTOR);
    error = run(b, n, &request);
    d->far = error && d->far != FATE_YES ? FATE_MAYBE : FATE_YES;
    return error;
}

/* ---- Reading ---- */

static void compare_far(struct bench *b, struct bench_disk *d)
{
    for (uint64_t s = 0; s < BLOCK / PLX_SECTOR; s++) {
        uint64_t id;
        bool whole = plx_sector_id(b->buffer + s * PLX_SECTOR, FAR_OFFSET / PLX_SECTOR + s, &id);

        bench_expect(b, whole && (id ? id == d->far_id && d->far != FATE_NO : d->far != FATE_YES),
                     "disk %u, far away: it holds write %llu", d->slot, (unsigned long long)id);
    }
}

/* What was read of an open virtual disk. */
static void compare(struct bench *b, struct bench_disk *d, uint64_t offset, uint64_t length)
{
    unsigned wrong = 0;

    for (uint64_t s = 0; s < length / PLX_SECTOR && wrong < 4; s++) {
        uint64_t id, sector = offset / PLX_SECTOR + s;
        bool whole = plx_sector_id(b->buffer + s * PLX_SECTOR, sector, &id);

        wrong += !bench_expect(
            b, whole && plx_oracle_settle(d->oracle, sector, id, PLX_SETTLED_UNFLUSHED),
            "disk %u, sector %llu: it holds %s %llu", d->slot, (unsigned long long)sector,
            whole ? "write" : "rubbish like", (unsigned long long)id);
    }
}

static void compare_view(struct bench *b, struct bench_disk *d, struct plx_view **view,
                         uint64_t offset, uint64_t length)
{
    unsigned wrong = 0;

    for (uint64_t s = 0; s < length / PLX_SECTOR && wrong < 4; s++) {
        uint64_t id, sector = offset / PLX_SECTOR + s;
        bool whole = plx_sector_id(b->buffer + s * PLX_SECTOR, sector, &id);

        wrong += !bench_expect(b, whole && plx_view_allows(*view, sector, id),
                               "snapshot of disk %u, sector %llu: it holds %s %llu", d->slot,
                               (unsigned long long)sector, whole ? "write" : "rubbish like",
                               (unsigned long long)id);
        if (!wrong)
            plx_view_pin(view, sector, id);
    }
}

static int read_vdi(struct bench *b, struct plx_vdi *vdi, uint64_t offset, uint64_t length)
{
    struct iovec iov = {b->buffer, length};
    struct plx_request request = {
        .op = PLX_READ, .offset = offset, .length = length, .iov = &iov, .iovcnt = 1};
    int error;

    memset(b->buffer, 0xee, length);
    error = plx_vdi_run(vdi, &request);
    if (error)
        b->fault = request.fault;
    return error;
}

int bench_read(struct bench *b, unsigned n, uint64_t offset, uint64_t length)
{
    int error = read_vdi(b, b->disks[n].vdi, offset, length);

    fault_alloc_suspend();
    if (!error)
        compare(b, &b->disks[n], offset, length);
    fault_alloc_resume();
    return error;
}

static int read_snapshot(struct bench *b, struct bench_disk *d, struct plx_vdi *vdi, uint64_t seq)
{
    uint64_t size = seq ? d->snaps[seq - 1].size : plx_oracle_sectors(d->oracle) * PLX_SECTOR;
    int error = 0;

    for (uint64_t at = 0; at < size && !error; at += CHUNK) {
        error = read_vdi(b, vdi, at, size - at < CHUNK ? size - at : CHUNK);
        fault_alloc_suspend();
        if (!error && seq)
            compare_view(b, d, &d->snaps[seq - 1].view, at, size - at < CHUNK ? size - at : CHUNK);
        else if (!error)
            compare(b, d, at, size - at < CHUNK ? size - at : CHUNK);
        fault_alloc_resume();
    }
    return error;
}

int bench_read_snapshot(struct bench *b, unsigned n, uint64_t seq)
{
    struct bench_disk *d = &b->disks[n];
    struct plx_vdi *vdi;
    enum fate stays = seq ? d->snaps[seq - 1].stays : FATE_YES;
    int error = plx_snapshot_open(b->store, d->slot, seq, &vdi, &b->fault);

    if (error == PLX_ERR_NOT_FOUND && stays != FATE_YES)
        return 0;
    if (error)
        return error;
    bench_expect(b, stays != FATE_NO, "snapshot %llu is still there", (unsigned long long)seq);
    error = read_snapshot(b, d, vdi, seq);
    plx_vdi_abandon(vdi);
    return error;
}

struct listing {
    struct bench *b;
    struct bench_disk *d;
    uint64_t count, labels;
};

static bool list_snapshot(void *context, const struct plx_snapshot_info *info)
{
    struct listing *l = context;

    l->count++;
    while (l->count < info->seq && l->count <= l->d->snap_count &&
           l->d->snaps[l->count - 1].stays != FATE_YES)
        l->count++;
    bench_expect(l->b, info->seq == l->count, "snapshot %llu is listed as number %llu",
                 (unsigned long long)info->seq, (unsigned long long)l->count);
    return true;
}

int bench_list(struct bench *b, unsigned n)
{
    struct bench_disk *d = &b->disks[n];
    struct listing l = {.b = b, .d = d};
    int error = plx_snapshot_list(b->store, d->slot, 1, list_snapshot, &l, &b->fault);

    if (error)
        return error;
    fault_alloc_suspend();
    if (d->last_maybe && l.count == d->snap_count - 1) /* it was never taken */
        plx_view_free(d->snaps[--d->snap_count].view);
    d->last_maybe = false;
    bench_expect(b, l.count == d->snap_count, "disk %u has %llu snapshots, not %u", d->slot,
                 (unsigned long long)l.count, d->snap_count);
    fault_alloc_resume();
    return 0;
}

static void list_label(void *context, const char *label, uint64_t seq, bool removed)
{
    struct listing *l = context;

    bench_expect(l->b, strcmp(label, "two") == 0 && seq == l->d->label_seq && !removed,
                 "label %s names snapshot %llu", label, (unsigned long long)seq);
    l->labels++;
}

int bench_list_labels(struct bench *b, unsigned n)
{
    struct bench_disk *d = &b->disks[n];
    struct listing l = {.b = b, .d = d};
    int error = plx_label_list(b->store, d->slot, 0, list_label, &l, &b->fault);

    if (error)
        return error;
    bench_expect(b, l.labels ? d->labelled != FATE_NO : d->labelled != FATE_YES,
                 "disk %u has %llu labels", d->slot, (unsigned long long)l.labels);
    d->labelled = l.labels ? FATE_YES : FATE_NO;
    return 0;
}

int bench_find(struct bench *b, unsigned n)
{
    const struct bench_disk *d = &b->disks[n];
    struct plx_snapshot_info info = {0};
    int error = plx_snapshot_at(b->store, d->slot, UINT64_MAX - 1, &info, &b->fault);

    if (!error)
        bench_expect(b, info.seq == d->snap_count, "the newest snapshot is %llu, not %u",
                     (unsigned long long)info.seq, d->snap_count);
    return error;
}

static bool count_change(void *context, const struct plx_range_change *change)
{
    ++*(unsigned *)context;
    return true;
}

int bench_changes(struct bench *b, unsigned n)
{
    unsigned count = 0;
    int error =
        plx_range_change_list(b->store, b->disks[n].slot, 0, 128, count_change, &count, &b->fault);

    if (!error)
        bench_expect(b, count > 1, "%u changes", count);
    return error;
}

static bool count_range(void *context, const struct plx_diff_range *range)
{
    ++*(unsigned *)context;
    return true;
}

int bench_diff(struct bench *b, unsigned n, uint64_t seq)
{
    uint32_t slot = b->disks[n].slot;
    struct plx_vdi *from, *to;
    unsigned count = 0;
    int error = plx_snapshot_open(b->store, slot, seq, &from, &b->fault);

    if (error)
        return error;
    error = plx_snapshot_open(b->store, slot, 0, &to, &b->fault);
    if (!error) {
        error = plx_vdi_diff(from, to, count_range, &count, &b->fault);
        bench_expect(b, error || count > 0, "nothing differs");
        plx_vdi_abandon(to);
    }
    plx_vdi_abandon(from);
    return error;
}

static bool add_run(void *context, uint64_t offset, uint64_t length, bool mapped)
{
    uint64_t *at = context;

    if (offset != *at) /* runs come in order and leave nothing out */
        return false;
    *at += length;
    return true;
}

int bench_map_runs(struct bench *b, unsigned n)
{
    uint64_t at = 0;
    int error = plx_vdi_map_runs(b->disks[n].vdi, 0, b->disks[n].size, add_run, &at, &b->fault);

    if (!error)
        bench_expect(b, at == b->disks[n].size, "the runs end at %llu", (unsigned long long)at);
    return error;
}

/* ---- The neighbour ---- */

static void neighbour_done(struct plx_request *request)
{
    ((struct bench *)request->owner)->neighbour.done++;
}

void bench_neighbour_begin(struct bench *b)
{
    uint64_t id = ++b->ids;

    plx_sector_fill(b->neighbour.buffer, id, 0, NEIGHBOUR_BYTES / PLX_SECTOR);
    b->neighbour.iov = (struct iovec){b->neighbour.buffer, NEIGHBOUR_BYTES};
    b->neighbour.request = (struct plx_request){.op = PLX_WRITE,
                                                .length = NEIGHBOUR_BYTES,
                                                .iov = &b->neighbour.iov,
                                                .iovcnt = 1,
                                                .done = neighbour_done,
                                                .owner = b};
    b->neighbour.token = write_begin(b, &b->disks[1], 0, NEIGHBOUR_BYTES, id);
    b->neighbour.done = 0;
    b->neighbour.submitted = true;
    plx_vdi_submit(b->disks[1].vdi, &b->neighbour.request);
}

void bench_neighbour_end(struct bench *b)
{
    const struct plx_request *request = &b->neighbour.request;

    if (!b->neighbour.submitted)
        return;
    b->neighbour.submitted = false;
    while (!b->neighbour.done)
        if (!plx_store_tick(b->store))
            plx_store_wait(b->store);
    write_end(&b->disks[1], b->neighbour.token, 0, NEIGHBOUR_BYTES, request->result);
    bench_expect(b, b->neighbour.done == 1, "the neighbour's write ended %u times",
                 b->neighbour.done);
    bench_expect(b, !request->result || request->fault.text[0],
                 "the neighbour's write failed without a word");
}

void bench_settle(struct bench *b)
{
    unsigned idle = 0;

    while (b->store && idle < 3) { /* a pump may start something only in the turn after */
        idle = plx_store_busy(b->store) ? 0 : idle + 1;
        if (!plx_store_tick(b->store) && plx_store_busy(b->store))
            plx_store_wait(b->store);
    }
}

/* ---- After a fault ---- */

static void decide_existence(struct bench *b, struct bench_disk *d)
{
    struct plx_vdi_info info = {.state = PLX_VDI_FREE};
    int error = plx_vdi_read_info(b->store, d->slot, &info, &b->fault);
    bool live = !error && info.state == PLX_VDI_LIVE;

    if (error != PLX_ERR_NOT_FOUND)
        succeeds(b, error, "reading the record");
    bench_expect(b, live ? d->exists != FATE_NO : d->exists != FATE_YES, "disk %u: it %s", d->slot,
                 live ? "exists again" : "is gone");
    if (live && bench_expect(b, d->oracle != NULL, "disk %u: unknown", d->slot))
        succeeds(b, bench_open(b, d->slot, info.owner != 0), "opening after the fault");
    if (!live && d->exists != FATE_NO)
        d->exists = FATE_MAYBE; /* what was seen need not be durable */
}

static void decide_size(struct bench *b, struct bench_disk *d)
{
    struct plx_vdi_info info;

    plx_vdi_get_info(d->vdi, &info);
    bench_expect(b, info.size_bytes == d->size || info.size_bytes == d->maybe_size,
                 "disk %u: it has %llu bytes, not %llu", d->slot,
                 (unsigned long long)info.size_bytes, (unsigned long long)d->size);
    grow_to(d, info.size_bytes);
}

void bench_bring_back(struct bench *b)
{
    struct plx_fault why = {0};

    b->env.ns += 5000000000u; /* what was refused is asked for again after a while */
    if (!b->store) {
        succeeds(b, bench_open_store(b, b->env.instance + 1), "opening the store");
        if (!b->store)
            return;
        succeeds(b, bench_adopt(b), "adopting");
    }
    bench_ring_bring_back(b);
    for (unsigned n = 0; n < BENCH_DISKS; n++) {
        struct bench_disk *d = &b->disks[n];

        if (d->vdi && plx_vdi_health(d->vdi, &why)) {
            bench_expect(b, why.text[0] != 0, "disk %u stopped without a word", n);
            if (n == 0)
                bench_ring_leave_disk(b);
            plx_vdi_abandon(d->vdi);
            d->vdi = NULL;
        }
        if (!d->vdi)
            decide_existence(b, d);
        if (!d->vdi)
            continue;
        if (n == 0 && b->ring.ringed)
            bench_settle(b); /* the ring may have snapshots that the store lacks */
        decide_size(b, d);
        decide_rewind(b, d);
        succeeds(b, bench_list(b, n), "listing snapshots");
        succeeds(b, bench_list_labels(b, n), "listing labels");
    }
}

static void verify_far(struct bench *b, struct bench_disk *d, struct plx_vdi *vdi)
{
    if (d->size <= FAR_OFFSET || !succeeds(b, read_vdi(b, vdi, FAR_OFFSET, BLOCK), "reading"))
        return;
    compare_far(b, d);
}

void bench_verify(struct bench *b)
{
    for (unsigned n = 0; n < BENCH_DISKS; n++) {
        struct bench_disk *d = &b->disks[n];
        uint64_t size = d->vdi ? plx_oracle_sectors(d->oracle) * PLX_SECTOR : 0;

        for (uint64_t at = 0; at < size; at += CHUNK)
            succeeds(b, bench_read(b, n, at, size - at < CHUNK ? size - at : CHUNK), "reading");
        if (d->vdi)
            verify_far(b, d, d->vdi);
        for (unsigned s = 1; d->vdi && s <= d->snap_count; s++)
            succeeds(b, bench_read_snapshot(b, n, s), "reading a snapshot");
    }
}

static void finding(void *context, const struct plx_finding *finding)
{
    struct bench *b = context;

    bench_expect(b, finding->severity != PLX_FINDING_ERROR, "check: %s", finding->text);
}

static void check(struct bench *b, uint64_t *ret_leaked)
{
    struct plx_check_options options = {.data = true, .finding = finding, .context = b};
    struct plx_check_result result = {0};

    if (succeeds(b, plx_store_check(b->store, &options, &result, &b->fault), "checking"))
        bench_expect(b, result.errors == 0, "check: %llu errors",
                     (unsigned long long)result.errors);
    *ret_leaked = result.leaked_blocks;
}

void bench_finish(struct bench *b, uint64_t *ret_leaked)
{
    *ret_leaked = 0;
    if (b->ring.ringed)
        succeeds(b, bench_ring_off(b), "draining the ring");
    for (unsigned n = 0; n < BENCH_DISKS; n++)
        if (b->disks[n].vdi)
            succeeds(b, bench_close(b, n), "closing");
    bench_ring_close(b);
    if (!b->store)
        return;
    succeeds(b, bench_release(b), "releasing the extents");
    succeeds(b, bench_close_store(b), "closing the store");
    if (!succeeds(b, bench_open_store(b, 0), "opening the store to check it"))
        return;
    check(b, ret_leaked);
    for (unsigned n = 0; n < BENCH_DISKS; n++) {
        struct bench_disk *d = &b->disks[n];

        if (d->exists != FATE_YES)
            continue;
        succeeds(b, bench_read_snapshot(b, n, 0), "reading what is on the store");
        for (unsigned s = 1; s <= d->snap_count; s++)
            succeeds(b, bench_read_snapshot(b, n, s), "reading a snapshot on the store");
    }
    succeeds(b, bench_close_store(b), "closing the store");
}
