/* thinning.c - see thinning.h. */
#include "engine/space/allocator_inside.h"
#include "unit/thinning.h"

#include <string.h>

#include "ok.h"

struct plx_simenv reader_env;
struct plx_store *reader;
struct plx_vdi *vdi;
struct fault_plan plan;
struct model model;
struct meanwhile meanwhile;
struct on_its_way on_its_way;
const struct plx_device_ops *planned_ops;

/* ---- The store ---- */

static int poll_meanwhile(struct plx_device *device, bool wait)
{
    void (*act)(void) = meanwhile.act;

    if (wait && act && (plx_vdi_history_changes(vdi) || store->disks->instants_opening) &&
        --meanwhile.count == 0) {
        meanwhile.act = NULL;
        act();
    }
    return planned_ops->poll(device, wait);
}

static void submit_held(struct plx_device *device, struct plx_io *io)
{
    if (on_its_way.wanted && io->op == PLX_IO_WRITE && io->kind == PLX_KIND_LOG &&
        io->bytes == PLX_SEGMENT_HEADER_BYTES) {
        on_its_way.wanted = false;
        on_its_way.io = io;
        return;
    }
    planned_ops->submit(device, io);
}

static struct plx_device *attach_planned(void)
{
    static struct plx_device_ops ops;
    struct plx_device *device = fault_device_attach(disk, &plan);

    planned_ops = device->ops;
    ops = *planned_ops;
    ops.poll = poll_meanwhile;
    ops.submit = submit_held;
    device->ops = &ops;
    return device;
}

void open_reader(void)
{
    struct plx_device *device = plx_simdisk_attach(disk, "sim");

    plx_simenv_init(&reader_env, 8);
    OK(plx_store_open(&device, 1,
                      &(struct plx_store_options){.cache_bytes = 32 * BLOCK, .ops_per_vdi = 8},
                      &reader_env.env, &reader, &fault));
    reader_env.instance = 0;
    reader_env.store = reader;
}

void make_disk(void)
{
    memset(&model, 0, sizeof model);
    make_store(64 * MIB, MIB);
    open_reader();
    OK(create_vdi(0, PLACES * APART * (uint64_t)BLOCK));
    vdi = open_vdi(0);
}

void end_disk(bool leaks)
{
    OK(plx_vdi_close(vdi));
    check_store(leaks);
    OK(plx_store_close(reader));
    end_store();
}

/* ---- The disk ---- */

int write_place(unsigned place)
{
    return try_run(vdi, PLX_WRITE, (uint64_t)place * APART * BLOCK, BLOCK, NULL);
}

void write_places(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        unsigned place = model.writes * 37 % PLACES;

        model.now[place] = (uint8_t)(model.writes++ % 251 + 1);
        memset(buffer, model.now[place], BLOCK);
        OK(write_place(place));
    }
}

void note_snapshot(uint64_t seq)
{
    CU_ASSERT_FATAL(seq < SNAPS);
    memcpy(model.then[seq], model.now, PLACES);
    model.newest = seq;
}

uint64_t snapshot(void)
{
    uint64_t seq = run(vdi, PLX_SNAPSHOT, 0, 0);

    note_snapshot(seq);
    return seq;
}

void keyframe(void)
{
    run(vdi, PLX_KEYFRAME, 0, 0);
}

/* A snapshot that is logged after a key frame's position, and before the log announces it. */
static struct {
    struct plx_request request, unmap;
    bool submitted, done;
} between;
unsigned unmap_between; /* so many blocks, before that snapshot */

static void unmap_done(struct plx_request *request)
{
}

static void between_done(struct plx_request *request)
{
    between.done = true;
}

static void submit_between(struct plx_simenv *e)
{
    if (between.submitted || !vdi->keyframe.running || !vdi->map.is_frozen)
        return;
    between.submitted = true;
    between.unmap = (struct plx_request){.op = PLX_UNMAP,
                                         .offset = BLOCK,
                                         .length = (uint64_t)unmap_between * BLOCK,
                                         .done = unmap_done};
    if (unmap_between)
        plx_vdi_submit(vdi, &between.unmap);
    between.request = (struct plx_request){.op = PLX_SNAPSHOT, .done = between_done};
    plx_vdi_submit(vdi, &between.request);
}

uint64_t keyframe_around_snapshot(void)
{
    memset(&between, 0, sizeof between);
    env.on_tick = submit_between;
    keyframe();
    env.on_tick = NULL;
    while (!between.done)
        if (!plx_store_tick(store))
            plx_store_wait(store);
    OK(between.request.result);
    note_snapshot(between.request.seq);
    return between.request.seq;
}

bool place_is(struct plx_vdi *v, unsigned place, uint8_t byte)
{
    uint8_t bytes[BLOCK];
    struct iovec iov = {bytes, BLOCK};
    struct plx_request read = {.op = PLX_READ,
                               .offset = (uint64_t)place * APART * BLOCK,
                               .length = BLOCK,
                               .iov = &iov,
                               .iovcnt = 1};
    int error = plx_vdi_run(v, &read);

    if (error)
        printf("\n  place %u: %s: %s\n", place, plx_error_name(error), read.fault.text);
    for (unsigned i = 0; i < BLOCK && !error; i++)
        error = bytes[i] != byte;
    return error == 0;
}

bool holds(struct plx_vdi *v, const uint8_t *places)
{
    for (unsigned p = 0; p < PLACES; p++)
        if (!place_is(v, p, places[p]))
            return false;
    return true;
}

void expect_snapshot(uint64_t seq)
{
    struct plx_vdi *instant = NULL;

    OK(plx_snapshot_open(reader, 0, seq, &instant, &fault));
    CU_ASSERT(holds(instant, model.then[seq]));
    plx_vdi_abandon(instant);
}

void expect_no_snapshot(uint64_t seq)
{
    struct plx_vdi *instant;

    FAILS(NOT_FOUND, plx_snapshot_open(reader, 0, seq, &instant, &fault));
}

uint64_t let_go(uint64_t after, uint64_t upto, const uint64_t *kept, size_t kept_count)
{
    struct plx_thin thin = {.after = after, .upto = upto, .kept = kept, .kept_count = kept_count};
    struct plx_thinned thinned;
    uint64_t gone = 0;

    do {
        OK(plx_vdi_thin(vdi, &thin, &thinned, &fault));
        gone += thinned.snapshots;
    } while (thinned.upto > thin.after && (thin.after = thinned.upto) < upto);
    return gone;
}

/* ---- The order of the log (RECLAIM-6) ---- */

void read_order(struct order *ret_order)
{
    struct order order = {.skips = 0};
    struct plx_keyframe announced;
    struct plx_vdi_record record;
    struct plx_log_reader log;
    uint8_t which;

    OK(plx_vdi_record_read(reader, 0, &record, &which, &fault));
    OK(plx_log_reader_open(reader, &record, &log, &fault));
    announced = record.oldest;
    plx_log_reader_seek(&log, &record.oldest);
    while (plx_log_reader_next(&log, &fault) == 0) {
        size_t offset = PLX_BATCH_HEADER_BYTES;

        if (log.header.keyframe.pos > announced.pos)
            announced = log.header.keyframe;
        for (uint32_t i = 0; i < log.batch_header.records; i++) {
            struct plx_record r;

            OK(plx_record_next(log.batch, &log.batch_header, &offset, reader->addr_limit, &r));
            order.skips += r.type == PLX_RECORD_SKIP;
            if (plx_record_announces(&r) && r.keyframe.pos >= announced.pos &&
                !plx_keyframe_is_past(&record, &r.keyframe))
                announced = r.keyframe;
            if (r.type == PLX_RECORD_SNAPSHOT && r.seq > record.oldest.snap_seq)
                order.root[r.seq] = announced.root;
        }
    }
    plx_log_reader_close(&log);
    *ret_order = order;
}

uint64_t root_of(uint64_t seq)
{
    struct plx_vdi *instant = NULL;
    uint64_t root;

    OK(plx_snapshot_open(reader, 0, seq, &instant, &fault));
    root = instant->map.base.root;
    plx_vdi_abandon(instant);
    return root;
}

bool contains(const uint64_t *list, size_t count, uint64_t seq)
{
    for (size_t i = 0; i < count; i++)
        if (list[i] == seq)
            return true;
    return false;
}

void expect_order(const struct order *before, const uint64_t *held, size_t held_count)
{
    struct order now;

    read_order(&now);
    for (uint64_t seq = 1; seq <= model.newest; seq++) {
        if (now.root[seq])
            CU_ASSERT_EQUAL(root_of(seq), now.root[seq]);
        if (contains(held, held_count, seq))
            CU_ASSERT_EQUAL(now.root[seq], before->root[seq]);
    }
}

void approach_end(void)
{
    while (SEGMENT - vdi->log.cursor.pos % SEGMENT > 512)
        write_places(1);
}

size_t write_history(unsigned rounds, uint64_t *ret_between)
{
    size_t count = 0;

    for (unsigned i = 0; i < rounds; i++) {
        struct order order;

        write_places(7);
        snapshot();
        write_places(3 + i % 5);
        if (i % 4 < 2)
            approach_end();
        ret_between[count] = keyframe_around_snapshot();
        read_order(&order);
        CU_ASSERT_NOT_EQUAL(order.root[ret_between[count]], vdi->record.keyframe.root);
        CU_ASSERT_EQUAL(order.root[ret_between[count]], root_of(ret_between[count]));
        count++;
        write_places(2);
        snapshot();
    }
    return count;
}

bool allocated(uint64_t addr, uint64_t blocks)
{
    const struct plx_extent *extent = plx_extent_find(store, addr / store->info.extent_blocks);

    for (uint64_t b = addr; extent && b < addr + blocks; b++)
        if (!(extent->bits[(b - extent->base) / 64] >> (b - extent->base) % 64 & 1))
            return false;
    return extent != NULL;
}

void write_over_free(void)
{
    memset(buffer, 0xa5, BLOCK);
    for (const struct plx_extent *e = store->allocator->extents; e; e = e->next)
        for (uint64_t b = 0; b < store->info.extent_blocks; b++)
            if (!(e->bits[b / 64] >> b % 64 & 1))
                plx_simdisk_poke(disk, (e->base + b) * BLOCK, buffer, BLOCK);
}

void prepare_thinning(void)
{
    fixture.format.segment_bytes = SEGMENT;
    fixture.open.cache_bytes = 32 * BLOCK;
    fixture.open.ops_per_vdi = 8;
    fixture.attach = attach_planned;
}
