/* store.c - the loop, device I/O in store addresses, flushing, opening a store.
 *
 * S1  A task stands in at most one queue.
 * S2  A flush begun after a write completed covers it; a task that joins while one is under way
 *     waits for the next. But when one fails, a later one does not bring back what was in the
 *     device's cache: whoever had written before that learns of it.
 * S3  plx_store_tick never blocks and is never entered twice.
 * Loop: this is the loop. Crash story: a store is opened by reading alone.
 */
#include "engine/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/vdi.h"

#define CACHE_BYTES_DEFAULT (64ull << 20)
#define KEYFRAME_MAPPINGS_DEFAULT 65536u
#define KEYFRAME_LOG_BYTES_DEFAULT (64ull << 20)
#define OPS_DEFAULT 128u
#define ROUNDS_MAX 64u /* of one turn; then others get theirs */

/* ---- Tasks ---- */

/* Not inlined: gcc would see that synchronous calls queue a task on their stack, but not that they
 * wait until it has left the queue. */
static __attribute__((noinline)) void push(struct plx_queue *queue, struct plx_task *task)
{
    PLX_ASSERT(!task->queued); /* S1 */
    task->queued = true;
    task->next = NULL;
    if (queue->tail)
        queue->tail->next = task;
    else
        queue->head = task;
    queue->tail = task;
}

void plx_queue_push(struct plx_queue *queue, struct plx_task *task)
{
    task->error = 0; /* until what it waits for says otherwise */
    push(queue, task);
}

struct plx_task *plx_queue_pop(struct plx_queue *queue)
{
    struct plx_task *task = queue->head;

    if (!task)
        return NULL;
    queue->head = task->next;
    if (!queue->head)
        queue->tail = NULL;
    task->next = NULL;
    task->queued = false;
    return task;
}

void plx_task_ready(struct plx_store *store, struct plx_task *task)
{
    push(&store->ready, task);
}

static void run_ready(struct plx_store *store)
{
    struct plx_task *task;

    while ((task = plx_queue_pop(&store->ready)) != NULL)
        task->step(task);
}

/* ---- I/O ---- */

static struct plx_volume *volume_of(struct plx_store *store, uint64_t addr, unsigned *ret_index)
{
    uint64_t extent = addr / store->info.extent_blocks;

    for (unsigned i = 0; i < store->info.volumes; i++) {
        const struct plx_superblock *super = &store->volumes[i].super;

        if (extent >= super->first_extent && extent - super->first_extent < super->extents) {
            *ret_index = i;
            return &store->volumes[i];
        }
    }
    PLX_ASSERT(!"address outside the store");
    return NULL;
}

static void count_io(struct plx_counters *counters, const struct plx_io *io)
{
    if (io->op == PLX_IO_READ) {
        counters->device_reads[io->kind]++;
        counters->device_read_bytes[io->kind] += io->bytes;
    } else {
        counters->device_writes[io->kind]++;
        counters->device_write_bytes[io->kind] += io->bytes;
    }
}

static void join_done(struct plx_store *store, struct plx_join *join, int result)
{
    if (result && !join->error)
        join->error = result;
    PLX_ASSERT(join->pending > 0);
    if (--join->pending == 0 && join->task)
        plx_task_ready(store, join->task);
}

static void xfer_done(struct plx_io *io)
{
    struct plx_xfer *xfer = PLX_CONTAINER(io, struct plx_xfer, io);
    struct plx_volume *volume = &xfer->store->volumes[xfer->volume];

    volume->under_way--;
    if (io->op == PLX_IO_WRITE)
        volume->dirty = true;
    join_done(xfer->store, xfer->join, io->result);
}

void plx_store_xfer(struct plx_store *store, struct plx_xfer *xfer, enum plx_io_op op,
                    enum plx_io_kind kind, uint64_t addr, uint64_t offset, size_t bytes,
                    const struct iovec *iov, int iovcnt, struct plx_join *join)
{
    struct plx_volume *volume = volume_of(store, addr, &xfer->volume);
    uint64_t base = volume->super.first_extent * store->info.extent_blocks;

    PLX_ASSERT(op != PLX_IO_WRITE || store->options.instance);
    xfer->store = store;
    xfer->join = join;
    xfer->io = (struct plx_io){
        .op = op,
        .kind = kind,
        .offset = ((addr - base) << PLX_BLOCK_SHIFT) + offset,
        .bytes = bytes,
        .iov = iov,
        .iovcnt = iovcnt,
        .done = xfer_done,
    };
    PLX_ASSERT(xfer->io.offset + bytes <= volume->super.extents * store->info.extent_blocks
                                              << PLX_BLOCK_SHIFT);
    join->pending++;
    volume->under_way++;
    count_io(&store->counters, &xfer->io);
    volume->device->ops->submit(volume->device, &xfer->io);
}

static int transfer_sync(struct plx_store *store, enum plx_io_op op, enum plx_io_kind kind,
                         uint64_t addr, void *buffer, size_t bytes)
{
    struct iovec iov = {buffer, bytes};
    struct plx_join join = {0};
    struct plx_xfer xfer;

    plx_store_xfer(store, &xfer, op, kind, addr, 0, bytes, &iov, 1, &join);
    plx_store_run_until_zero(store, &join.pending);
    return join.error;
}

int plx_store_read_sync(struct plx_store *store, enum plx_io_kind kind, uint64_t addr, void *buffer,
                        size_t bytes)
{
    return transfer_sync(store, PLX_IO_READ, kind, addr, buffer, bytes);
}

int plx_store_write_sync(struct plx_store *store, enum plx_io_kind kind, uint64_t addr,
                         const void *buffer, size_t bytes)
{
    return transfer_sync(store, PLX_IO_WRITE, kind, addr, (void *)(uintptr_t)buffer, bytes);
}

/* ---- Flush ---- */

void plx_store_flush(struct plx_store *store, struct plx_task *task, uint64_t since)
{
    if (since == store->flush_failures) {
        plx_queue_push(&store->flush_joining, task);
        return;
    }
    task->error = store->flush_error;
    plx_task_ready(store, task);
}

static void flush_ended(struct plx_store *store, struct plx_queue *queue, int error)
{
    struct plx_task *task;

    while ((task = plx_queue_pop(queue)) != NULL) {
        task->error = error;
        plx_task_ready(store, task);
    }
}

static void flush_finished(struct plx_task *flush_task)
{
    struct plx_store *store = PLX_CONTAINER(flush_task, struct plx_store, flush_task);
    int error = store->flush_join.error;

    store->flushing = false;
    flush_ended(store, &store->flush_running, error);
    if (!error)
        return;
    store->flush_failures++;
    store->flush_error = error;
    flush_ended(store, &store->flush_joining, error); /* S2 */
}

static void flush_done(struct plx_io *io)
{
    struct plx_xfer *xfer = PLX_CONTAINER(io, struct plx_xfer, io);
    struct plx_volume *volume = &xfer->store->volumes[xfer->volume];

    volume->under_way--;
    if (io->result)
        volume->dirty = true; /* nothing is known to be durable: the next flush tries again */
    join_done(xfer->store, xfer->join, io->result);
}

static void flush_start(struct plx_store *store)
{
    if (store->flushing || !store->flush_joining.head)
        return;
    store->flushing = true;
    store->flush_running = store->flush_joining; /* S2 */
    store->flush_joining = (struct plx_queue){0};
    store->flush_join = (struct plx_join){.pending = 1, .task = &store->flush_task};
    for (unsigned i = 0; i < store->info.volumes; i++) {
        struct plx_volume *volume = &store->volumes[i];

        if (!volume->device->volatile_cache || !volume->dirty)
            continue;
        volume->dirty = false;
        volume->under_way++;
        store->flush_join.pending++;
        store->counters.device_flushes++;
        volume->flush.store = store;
        volume->flush.join = &store->flush_join;
        volume->flush.volume = i;
        volume->flush.io = (struct plx_io){.op = PLX_IO_FLUSH, .done = flush_done};
        volume->device->ops->submit(volume->device, &volume->flush.io);
    }
    join_done(store, &store->flush_join, 0);
}

void plx_waiter_step(struct plx_task *task)
{
    PLX_CONTAINER(task, struct plx_waiter, task)->woken = true;
}

int plx_waiter_wait(struct plx_store *store, struct plx_waiter *waiter)
{
    plx_store_run_until_true(store, &waiter->woken);
    waiter->woken = false;
    return waiter->task.error;
}

int plx_store_flush_sync(struct plx_store *store, uint64_t since)
{
    struct plx_waiter waiter = PLX_WAITER;

    plx_store_flush(store, &waiter.task, since);
    return plx_waiter_wait(store, &waiter);
}

int plx_store_flush_others(struct plx_store *store)
{
    for (unsigned i = 0; i < store->info.volumes; i++)
        store->volumes[i].dirty = true;
    return plx_store_flush_sync(store, store->flush_failures);
}

int plx_bitmap_sync_run(struct plx_store *store)
{
    struct plx_waiter waiter = PLX_WAITER;

    plx_bitmap_sync(store, &waiter.task);
    return plx_waiter_wait(store, &waiter);
}

/* ---- The loop ---- */

bool plx_store_tick(struct plx_store *store)
{
    unsigned rounds = 0;

    PLX_ASSERT(!store->in_tick); /* S3 */
    store->in_tick = true;
    if (store->env->tick)
        store->env->tick(store->env);
    for (unsigned i = 0; i < store->info.volumes; i++) {
        struct plx_device *device = store->volumes[i].device;

        if (store->volumes[i].under_way)
            device->ops->poll(device, false);
    }
    /* What a pump wakes may have more to pump: nothing may be left lying when the loop goes to
     * sleep, for no completion would come and wake it. */
    do {
        run_ready(store);
        for (struct plx_vdi *vdi = store->vdis; vdi; vdi = vdi->next)
            plx_vdi_pump(vdi);
        plx_alloc_foreign_pump(store);
    } while (store->ready.head && rounds++ < ROUNDS_MAX);
    flush_start(store);
    for (unsigned i = 0; i < store->info.volumes; i++) {
        struct plx_device *device = store->volumes[i].device;

        if (store->volumes[i].under_way)
            device->ops->kick(device);
    }
    store->in_tick = false;
    return store->ready.head != NULL || (store->flush_joining.head && !store->flushing);
}

void plx_store_wait(struct plx_store *store)
{
    for (unsigned i = 0; i < store->info.volumes; i++) {
        struct plx_volume *volume = &store->volumes[i];

        if (volume->under_way) {
            volume->device->ops->poll(volume->device, true);
            return;
        }
    }
    if (store->env->idle)
        store->env->idle(store->env);
}

void plx_store_run_until_zero(struct plx_store *store, const unsigned *pending)
{
    while (*pending)
        if (!plx_store_tick(store) && *pending)
            plx_store_wait(store);
}

void plx_store_run_until_true(struct plx_store *store, const bool *done)
{
    while (!*done)
        if (!plx_store_tick(store) && !*done)
            plx_store_wait(store);
}

unsigned plx_store_event_fds(struct plx_store *store, int *fds, unsigned max)
{
    unsigned count = 0;

    for (unsigned i = 0; i < store->info.volumes && count < max; i++) {
        struct plx_device *device = store->volumes[i].device;
        int fd = device->ops->event_fd(device);

        if (fd >= 0)
            fds[count++] = fd;
    }
    return count;
}

void plx_store_settle(struct plx_store *store)
{
    while (store->foreign.count || store->foreign.asked || store->wanted[PLX_EXTENT_DATA].asked ||
           store->wanted[PLX_EXTENT_META].asked)
        if (!plx_store_tick(store))
            plx_store_wait(store);
}

uint64_t plx_store_due_ns(const struct plx_store *store)
{
    uint64_t due_ns = UINT64_MAX;

    for (const struct plx_vdi *vdi = store->vdis; vdi; vdi = vdi->next)
        if (!vdi->snapshot)
            due_ns = plx_min_u64(due_ns, plx_protect_due_ns(vdi));
    return due_ns;
}

bool plx_store_busy(const struct plx_store *store)
{
    if (store->ready.head || store->flushing || store->flush_joining.head)
        return true;
    for (unsigned i = 0; i < store->info.volumes; i++)
        if (store->volumes[i].under_way)
            return true;
    return false;
}

void plx_store_event(struct plx_store *store, int code, const char *format, ...)
{
    char text[512];
    va_list args;

    if (!store->env->event)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    store->env->event(store->env, code, text);
}

/* ---- Opening ---- */

/* Device I/O before there is a store: one transfer, polled. */
struct plain_io {
    struct plx_io io;
    bool done;
};

static void plain_done(struct plx_io *io)
{
    PLX_CONTAINER(io, struct plain_io, io)->done = true;
}

static int device_io(struct plx_device *device, enum plx_io_op op, uint64_t offset, void *buffer,
                     size_t bytes)
{
    struct iovec iov = {buffer, bytes};
    struct plain_io plain = {.io = {.op = op,
                                    .kind = PLX_KIND_ADMIN,
                                    .offset = offset,
                                    .bytes = bytes,
                                    .iov = &iov,
                                    .iovcnt = op == PLX_IO_FLUSH ? 0 : 1,
                                    .done = plain_done}};

    device->ops->submit(device, &plain.io);
    device->ops->kick(device);
    while (!plain.done)
        device->ops->poll(device, true);
    return plain.io.result;
}

static int read_superblock(struct plx_device *device, struct plx_superblock *ret_super,
                           struct plx_fault *fault)
{
    uint8_t blocks[PLX_SUPERBLOCK_SLOTS][PLX_BLOCK_SIZE];
    struct plx_superblock best = {0}, super;
    struct plx_fault first = {0};
    bool found = false;
    int error;

    if (device->bytes < sizeof blocks)
        return plx_fault_set(fault, PLX_ERR_NOT_FOUND, "%s: too small for a store", device->name);
    error = device_io(device, PLX_IO_READ, 0, blocks, sizeof blocks);
    if (error)
        return plx_fault_set(fault, error, "%s: cannot read the superblock: %s", device->name,
                             plx_error_text(error));
    for (unsigned i = 0; i < PLX_SUPERBLOCK_SLOTS; i++) {
        struct plx_fault why;

        error = plx_format_superblock_decode(blocks[i], &super, &why);
        if (error == PLX_ERR_UNSUPPORTED) /* the newer slot decides, and we cannot read it */
            return plx_fault_set(fault, error, "%s: %s", device->name, why.text);
        if (error) {
            if (!first.code || first.code == PLX_ERR_NOT_FOUND)
                first = why;
        } else if (!found || super.generation > best.generation) {
            best = super;
            found = true;
        }
    }
    if (!found)
        return plx_fault_set(fault, first.code, "%s: %s", device->name, first.text);
    *ret_super = best;
    return 0;
}

/* One volume's place in the store being opened, checked against the others. */
static int place_volume(struct plx_store *store, struct plx_device *device, unsigned count,
                        struct plx_fault *fault)
{
    struct plx_superblock super;
    const struct plx_superblock *known = NULL;
    int error = read_superblock(device, &super, fault);

    if (error)
        return error;
    for (unsigned i = 0; i < count && !known; i++)
        if (store->volumes[i].device)
            known = &store->volumes[i].super;
    if (known && (!plx_uuid_equal(&known->store, &super.store) ||
                  known->extent_blocks != super.extent_blocks || known->volumes != super.volumes))
        return plx_fault_set(fault, PLX_ERR_INVALID, "%s: belongs to another store (%s)",
                             device->name, super.name);
    if (super.volumes != count)
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "%s: the store has %u volumes, %u were given; name them all",
                             device->name, super.volumes, count);
    if (store->volumes[super.volume_index].device)
        return plx_fault_set(fault, PLX_ERR_INVALID, "%s: volume %u was given twice", device->name,
                             super.volume_index);
    if (super.extents * super.extent_blocks > device->bytes >> PLX_BLOCK_SHIFT)
        return plx_fault_set(
            fault, PLX_ERR_CORRUPT,
            "%s: truncated: %llu bytes, the superblock says %llu; restore the "
            "missing part",
            device->name, (unsigned long long)device->bytes,
            (unsigned long long)(super.extents * super.extent_blocks << PLX_BLOCK_SHIFT));
    if (store->options.instance && device->read_only)
        return plx_fault_set(fault, PLX_ERR_READONLY, "%s: read-only", device->name);
    store->volumes[super.volume_index].device = device;
    store->volumes[super.volume_index].super = super;
    return 0;
}

static int check_geometry(const struct plx_store *store, unsigned count, struct plx_fault *fault)
{
    uint64_t extent = 0;

    for (unsigned i = 0; i < count; i++) {
        const struct plx_superblock *super = &store->volumes[i].super;

        if (super->first_extent != extent || super->volume_index != i)
            return plx_fault_set(fault, PLX_ERR_CORRUPT, "%s: its place in the store is wrong",
                                 store->volumes[i].device->name);
        extent += super->extents;
    }
    return 0;
}

static void fill_info(struct plx_store *store, unsigned count)
{
    const struct plx_superblock *first = &store->volumes[0].super;
    struct plx_store_info *info = &store->info;

    info->id = first->store;
    memcpy(info->name, first->name, sizeof info->name);
    info->block_size = PLX_BLOCK_SIZE;
    info->created_ns = first->created_ns;
    info->extent_blocks = first->extent_blocks;
    info->segment_blocks = first->segment_blocks;
    info->volumes = count;
    for (unsigned i = 0; i < count; i++) {
        const struct plx_superblock *super = &store->volumes[i].super;
        struct plx_volume_info *volume = &info->volume[i];

        volume->id = super->volume;
        snprintf(volume->name, sizeof volume->name, "%s", store->volumes[i].device->name);
        volume->first_extent = super->first_extent;
        volume->extents = super->extents;
        info->extents += super->extents;
        info->vdi_slots += super->vdi_slots;
    }
    store->addr_limit = info->extents * info->extent_blocks;
}

int plx_store_open(struct plx_device **devices, unsigned count,
                   const struct plx_store_options *options, struct plx_env *env,
                   struct plx_store **ret_store, struct plx_fault *fault)
{
    struct plx_store *store;
    int error = 0;

    if (count < 1 || count > PLX_VOLUMES_MAX)
        return plx_fault_set(fault, PLX_ERR_INVALID, "a store has 1 to %d volumes",
                             PLX_VOLUMES_MAX);
    store = calloc(1, sizeof *store);
    if (!store)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    store->env = env;
    store->options = *options;
    if (!store->options.cache_bytes)
        store->options.cache_bytes = CACHE_BYTES_DEFAULT;
    if (!store->options.keyframe_mappings)
        store->options.keyframe_mappings = KEYFRAME_MAPPINGS_DEFAULT;
    if (!store->options.keyframe_log_bytes)
        store->options.keyframe_log_bytes = KEYFRAME_LOG_BYTES_DEFAULT;
    if (!store->options.ops_per_vdi)
        store->options.ops_per_vdi = OPS_DEFAULT;
    for (unsigned i = 0; i < count && !error; i++)
        error = place_volume(store, devices[i], count, fault);
    if (!error)
        error = check_geometry(store, count, fault);
    if (error)
        goto fail;
    fill_info(store, count);
    store->flush_task.step = flush_finished;
    /* What a process before this one wrote may lie in the device's cache. */
    for (unsigned i = 0; i < count; i++)
        store->volumes[i].dirty = store->options.instance != 0;
    plx_bitmap_sync_init(store);
    store->cache = plx_cache_new(store, store->options.cache_bytes);
    store->bitmap_sync.buffer = malloc(PLX_BITMAP_ROUND * PLX_BLOCK_SIZE);
    if (!store->cache || !store->bitmap_sync.buffer) {
        error = plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
        plx_cache_free(store->cache);
        free(store->bitmap_sync.buffer);
        goto fail;
    }
    *ret_store = store;
    return 0;
fail:
    free(store);
    return error;
}

int plx_store_close(struct plx_store *store)
{
    int error = 0;

    PLX_ASSERT(!store->vdis);
    if (store->options.instance)
        error = plx_bitmap_sync_run(store);
    while (plx_store_busy(store))
        if (!plx_store_tick(store))
            plx_store_wait(store);
    plx_extent_free_all(store);
    free(store->foreign.addrs);
    plx_cache_free(store->cache);
    free(store->bitmap_sync.buffer);
    for (unsigned i = 0; i < store->info.volumes; i++)
        store->volumes[i].device->ops->close(store->volumes[i].device);
    free(store);
    return error;
}

void plx_store_get_info(const struct plx_store *store, struct plx_store_info *ret_info)
{
    *ret_info = store->info;
}

uint32_t plx_store_device_block(const struct plx_store *store)
{
    uint32_t size = 512;

    for (unsigned i = 0; i < store->info.volumes; i++)
        if (store->volumes[i].device->block_size > size)
            size = store->volumes[i].device->block_size;
    return size;
}

uint32_t plx_vdi_slot_count(const struct plx_store *store)
{
    return store->info.vdi_slots;
}

uint64_t plx_vdi_slot_addr(const struct plx_store *store, uint32_t slot)
{
    unsigned i = 0;

    for (; slot >= store->volumes[i].super.vdi_slots; i++)
        slot -= store->volumes[i].super.vdi_slots;
    return store->volumes[i].super.first_extent * store->info.extent_blocks + PLX_VDI_TABLE_BLOCK +
           2ull * slot;
}

void plx_store_counters(const struct plx_store *store, struct plx_counters *ret_counters)
{
    *ret_counters = store->counters;
    for (const struct plx_vdi *vdi = store->vdis; vdi; vdi = vdi->next)
        ret_counters->snapshot_rate += plx_protect_rate(vdi);
    ret_counters->data_free_blocks = plx_alloc_free_blocks(store, PLX_EXTENT_DATA);
    ret_counters->meta_free_blocks = plx_alloc_free_blocks(store, PLX_EXTENT_META);
}

/* ---- Formatting ---- */

#define SWEEP_BYTES (1u << 20)

static bool is_zero(const uint8_t *bytes, size_t count)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, count - 1) == 0;
}

/* Zeroes a range, writing only where it is not zero yet: sparse files stay sparse. */
static int zero_range(struct plx_device *device, uint64_t offset, uint64_t bytes, uint8_t *buffer)
{
    while (bytes) {
        size_t now = plx_min_u64(bytes, SWEEP_BYTES);
        int error = device_io(device, PLX_IO_READ, offset, buffer, now);

        if (!error && !is_zero(buffer, now)) {
            memset(buffer, 0, now);
            error = device_io(device, PLX_IO_WRITE, offset, buffer, now);
        }
        if (error)
            return error;
        offset += now;
        bytes -= now;
    }
    return 0;
}

/* Data anywhere in the first MiB or the last 64 KiB (partition tables, file systems, stores). */
static int holds_data(struct plx_device *device, uint8_t *buffer, bool *ret_holds)
{
    size_t head = plx_min_u64(device->bytes & ~4095ull, SWEEP_BYTES), tail = 64u << 10;
    int error = device_io(device, PLX_IO_READ, 0, buffer, head);

    *ret_holds = !error && !is_zero(buffer, head);
    if (error || *ret_holds || device->bytes < head + tail)
        return error;
    error = device_io(device, PLX_IO_READ, (device->bytes & ~4095ull) - tail, buffer, tail);
    *ret_holds = !error && !is_zero(buffer, tail);
    return error;
}

static uint64_t choose_extent_bytes(uint64_t bytes)
{
    uint64_t extent = 1ull << 20;

    while (extent < 2ull << 30 && extent < bytes / 256)
        extent <<= 1;
    return extent;
}

static int format_geometry(struct plx_device **devices, unsigned count,
                           const struct plx_format_options *options, struct plx_superblock *supers,
                           struct plx_fault *fault)
{
    uint64_t total = 0, extent_bytes, segment_bytes, extent = 0;

    for (unsigned i = 0; i < count; i++)
        total += devices[i]->bytes;
    extent_bytes = options->extent_bytes ? options->extent_bytes : choose_extent_bytes(total);
    segment_bytes =
        options->segment_bytes ? options->segment_bytes : plx_min_u64(1u << 20, extent_bytes / 8);
    if ((extent_bytes & (extent_bytes - 1)) || extent_bytes < 1u << 20 || extent_bytes > 2ull << 30)
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "extent size: a power of two from 1M to 2G is needed");
    for (unsigned i = 0; i < count; i++) {
        uint64_t extents = devices[i]->bytes / extent_bytes;
        uint64_t extent_blocks = extent_bytes >> PLX_BLOCK_SHIFT;

        if (extents < 4)
            return plx_fault_set(fault, PLX_ERR_INVALID,
                                 "%s: too small: a volume needs at least 4 extents of %llu bytes "
                                 "(give a larger --size or a smaller --extent-size)",
                                 devices[i]->name, (unsigned long long)extent_bytes);
        supers[i] = (struct plx_superblock){
            .volume_index = i,
            .volumes = count,
            .first_extent = extent,
            .extents = extents,
            .extent_blocks = extent_blocks,
            .segment_blocks = (uint32_t)(segment_bytes >> PLX_BLOCK_SHIFT),
            .vdi_slots =
                (uint32_t)plx_min_u64((extent_blocks - PLX_VDI_TABLE_BLOCK) / 2, PLX_VDI_SLOTS_MAX),
            .generation = 1,
        };
        extent += extents;
    }
    if (extent > PLX_ADDR_MAX / (extent_bytes >> PLX_BLOCK_SHIFT))
        return plx_fault_set(fault, PLX_ERR_INVALID, "a store holds at most 1 PiB");
    if (segment_bytes < 4 * PLX_BLOCK_SIZE || segment_bytes % PLX_BLOCK_SIZE ||
        supers[0].segment_blocks > PLX_SEGMENT_BLOCKS_MAX ||
        supers[0].segment_blocks > supers[0].extent_blocks / 4)
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "log segment size: a multiple of 4096 from 16K to 1M, at most a "
                             "quarter of an extent");
    return 0;
}

static int format_volume(struct plx_device *device, const struct plx_superblock *super,
                         uint8_t *buffer)
{
    uint64_t extent_bytes = super->extent_blocks << PLX_BLOCK_SHIFT;
    int error;

    /* An older superblock goes first, so that an interrupted format is no store at all. */
    error = zero_range(device, 0, PLX_VDI_TABLE_BLOCK * PLX_BLOCK_SIZE, buffer);
    if (!error)
        error = device_io(device, PLX_IO_FLUSH, 0, NULL, 0);
    if (!error)
        error = zero_range(device, PLX_VDI_TABLE_BLOCK * PLX_BLOCK_SIZE,
                           2ull * super->vdi_slots * PLX_BLOCK_SIZE, buffer);
    for (uint64_t i = 1; i < super->extents && !error; i++)
        error = zero_range(device, i * extent_bytes,
                           2ull * plx_extent_pages(super->extent_blocks) * PLX_BLOCK_SIZE, buffer);
    if (!error)
        error = device_io(device, PLX_IO_FLUSH, 0, NULL, 0);
    return error;
}

static int write_superblocks(struct plx_device *device, const struct plx_superblock *super,
                             uint8_t *buffer)
{
    int error;

    plx_format_superblock_encode(super, buffer);
    error = device_io(device, PLX_IO_WRITE, 0, buffer, PLX_BLOCK_SIZE);
    if (!error)
        error = device_io(device, PLX_IO_WRITE, PLX_BLOCK_SIZE, buffer, PLX_BLOCK_SIZE);
    return error ? error : device_io(device, PLX_IO_FLUSH, 0, NULL, 0);
}

static int format_checked(struct plx_device **devices, unsigned count,
                          const struct plx_format_options *options, struct plx_env *env,
                          struct plx_superblock *supers, uint8_t *buffer, struct plx_fault *fault)
{
    struct plx_uuid store_id;
    uint64_t now = env->now_ns(env);
    int error = format_geometry(devices, count, options, supers, fault);

    if (error)
        return error;
    for (unsigned i = 0; i < count; i++) {
        bool holds;

        if (devices[i]->read_only)
            return plx_fault_set(fault, PLX_ERR_READONLY, "%s: read-only", devices[i]->name);
        error = holds_data(devices[i], buffer, &holds);
        if (error)
            return plx_fault_set(fault, error, "%s: cannot read: %s", devices[i]->name,
                                 plx_error_text(error));
        if (holds && !options->force)
            return plx_fault_set(fault, PLX_ERR_EXISTS,
                                 "%s: holds data already; --force overwrites it", devices[i]->name);
    }
    env->random(env, store_id.b, sizeof store_id.b);
    for (unsigned i = 0; i < count && !error; i++) {
        supers[i].store = store_id;
        env->random(env, supers[i].volume.b, sizeof supers[i].volume.b);
        supers[i].created_ns = now;
        memcpy(supers[i].name, options->name, sizeof supers[i].name);
        error = format_volume(devices[i], &supers[i], buffer);
        if (error)
            plx_fault_set(fault, error, "%s: cannot format: %s", devices[i]->name,
                          plx_error_text(error));
    }
    for (unsigned i = 0; i < count && !error; i++) {
        error = write_superblocks(devices[i], &supers[i], buffer);
        if (error)
            plx_fault_set(fault, error, "%s: cannot write the superblock: %s", devices[i]->name,
                          plx_error_text(error));
    }
    return error;
}

int plx_store_format(struct plx_device **devices, unsigned count,
                     const struct plx_format_options *options, struct plx_env *env,
                     struct plx_store_info *ret_info, struct plx_fault *fault)
{
    struct plx_superblock supers[PLX_VOLUMES_MAX] = {0};
    struct plx_store *scratch;
    uint8_t *buffer;
    int error;

    if (count < 1 || count > PLX_VOLUMES_MAX || !options->name[0])
        return plx_fault_set(fault, PLX_ERR_INVALID, "a store has a name and 1 to %d volumes",
                             PLX_VOLUMES_MAX);
    buffer = malloc(SWEEP_BYTES);
    if (!buffer)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    error = format_checked(devices, count, options, env, supers, buffer, fault);
    free(buffer);
    if (error || !ret_info)
        return error;
    scratch = calloc(1, sizeof *scratch);
    if (!scratch)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    for (unsigned i = 0; i < count; i++) {
        scratch->volumes[i].device = devices[i];
        scratch->volumes[i].super = supers[i];
    }
    fill_info(scratch, count);
    *ret_info = scratch->info;
    free(scratch);
    return 0;
}
