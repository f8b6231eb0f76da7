/* tick.c - the loop: tasks, device I/O in store addresses, flushing.
 *
 * One turn of the loop (plx_store_tick) does, in this order:
 *   1. env->tick: the environment submits requests and grants extents. Waiting writes go (TICK-6).
 *   2. Devices are polled: completed I/Os make tasks ready. Refused I/Os complete, too (TICK-5).
 *   3. Rounds: ready tasks run, then store->pump (store.c) starts what waits, until no task is
 *      ready or the turn is long enough (TICK-4).
 *   4. Parts that have joined the loop have their turn (struct plx_loop_part).
 *   5. One flush begins for all tasks that wait for one, if none is under way.
 *   6. Devices are kicked: what was submitted goes to the kernel or the network in one go.
 *
 * TICK-1  A task stands in at most one queue, because a task waits for one thing at a time and has
 *     one link.
 * TICK-2  A flush covers every write that completed before the flush began. So a task that asks for
 *     a flush while one is under way waits for the next one. A flush that fails may have lost all
 *     that was in the device's write-back cache, and a later flush that succeeds does not bring it
 *     back. So every task that wrote before the failure gets the error, even if it asks for a flush
 *     later (`since`).
 * TICK-3  plx_store_tick() never blocks and is never entered twice.
 * TICK-4  A turn ends, even with tasks ready, once it has computed the checksums of TURN_BYTES. A
 *     device may have completed all its I/Os at once. It would stand idle while the turn computed
 *     the checksums of all of them, because new I/Os reach it at the end of a turn.
 * TICK-5  After plx_store_fence() a device gets only reads from this store. Writes and flushes
 *     fail with FENCED in the next turn, because another host has taken the store over.
 * TICK-6  A write or flush goes to a device of the store only when env->writes_wait() lets it.
 *     Until then it waits: no device has it, each turn asks again, and a fence refuses it (TICK-5).
 *     Reads go on, and so does what a part does with devices of its own. A thread must not sleep on
 *     a device because of such a write: the device does not have it, so no completion would wake
 *     the thread. plx_store_wait() and plx_store_under_way() see to that. Writes that wait have no
 *     order among each other, as writes that are under way have none (GATHER-2), and a flush covers
 *     none of them (TICK-2).
 * TICK-7  A synchronous call that waits for a device keeps the loop. A request that comes meanwhile
 *     is taken in only when the loop turns again (loop.c in handler/tcmu). A part, such as the
 *     write-back ring, might serve that request without the device. So if a part has joined the
 *     loop, a call that has slept on a device for STALLED_NS (half a second) in vain stops sleeping
 *     on devices. It turns the loop every few milliseconds instead (env->idle), and each turn takes
 *     in new requests (step 1). It sleeps again once a volume completes something.
 * Loop: this is the loop.
 * Crash story: none; the callers decide what is written and when.
 */
#include "engine/loop/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/loop/volume.h"

#define ROUNDS_MAX 64u /* rounds of one turn; then other threads get theirs */
#define TURN_BYTES (256u << 10)
#define STALLED_NS 500000000u

/* The state of the loop. */
struct plx_tick {
    struct plx_store *store;
    struct plx_queue ready;
    struct plx_queue flush_joining, flush_running;
    struct plx_join flush_join;
    struct plx_task flush_task;
    bool flushing;
    struct plx_io *refused; /* TICK-5: by io->next; the next turn completes them */
    /* TICK-6: writes and flushes that wait, in the order in which they came. Of each,
     * device_private is the device, and device_word the time since when it waits. */
    struct plx_io *waiting, *waiting_last;
    bool stalled; /* TICK-7 */
    struct plx_loop_part *parts;
    size_t turn_bytes; /* bytes whose checksums this turn has computed */
    bool in_tick;
};

/* ---- Tasks ---- */

/* Not inlined. gcc would see that a synchronous call queues a task on its stack, but not that the
 * call waits until the task has left the queue, and would warn. */
static __attribute__((noinline)) void push(struct plx_queue *queue, struct plx_task *task)
{
    PLX_ASSERT(!task->queued); /* TICK-1 */
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
    task->error = 0; /* until what the task waits for sets it */
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
    push(&store->tick->ready, task);
}

void plx_queue_wake(struct plx_store *store, struct plx_queue *queue, int error)
{
    while (queue->head) {
        struct plx_task *task = plx_queue_pop(queue);

        task->error = error;
        plx_task_ready(store, task);
    }
}

/* TICK-4 */
static bool turn_ends(const struct plx_store *store)
{
    return store->tick->turn_bytes >= TURN_BYTES;
}

void plx_tick_computed(struct plx_store *store, size_t bytes)
{
    store->tick->turn_bytes += bytes;
}

static void run_ready(struct plx_store *store)
{
    struct plx_task *task;

    while (!turn_ends(store) && (task = plx_queue_pop(&store->tick->ready)) != NULL)
        task->step(task);
}

/* ---- I/O ---- */

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

void plx_store_prepare(struct plx_store *store, struct plx_xfer *xfer, enum plx_io_op op,
                       enum plx_io_kind kind, uint64_t addr, uint64_t offset, size_t bytes,
                       const struct iovec *iov, int iovcnt, struct plx_join *join)
{
    struct plx_place place;

    PLX_ASSERT(op != PLX_IO_WRITE || store->options.instance);
    PLX_ASSERT(plx_store_place(store, addr, &place));
    PLX_ASSERT(offset + bytes <= place.blocks << PLX_BLOCK_SHIFT);
    xfer->store = store;
    xfer->join = join;
    xfer->volume = place.volume;
    xfer->io = (struct plx_io){
        .op = op,
        .kind = kind,
        .offset = (place.block << PLX_BLOCK_SHIFT) + offset,
        .bytes = bytes,
        .iov = iov,
        .iovcnt = iovcnt,
        .done = xfer_done,
    };
    join->pending++;
    store->volumes[place.volume].under_way++;
}

/* TICK-5. Completed by the next turn: the submitter does not expect it to complete at once. */
static void refuse(struct plx_store *store, struct plx_io *io)
{
    io->next = store->tick->refused;
    store->tick->refused = io;
}

static void complete_refused(struct plx_store *store)
{
    struct plx_io *io = store->tick->refused;

    store->tick->refused = NULL;
    while (io) {
        struct plx_io *next = io->next;

        io->result = PLX_ERR_FENCED;
        io->done(io);
        io = next;
    }
}

void plx_store_fence(struct plx_store *store)
{
    store->fenced = true;
}

/* ---- Writes that wait (TICK-6) ---- */

static bool has_to_wait(struct plx_store *store, uint64_t since_ns)
{
    return !store->fenced && store->env->writes_wait(store->env, since_ns);
}

static void put_off(struct plx_store *store, unsigned volume, struct plx_io *io, uint64_t since_ns)
{
    struct plx_tick *tick = store->tick;
    io->device_private = store->volumes[volume].device;
    io->device_word = since_ns;
    io->next = NULL;
    if (tick->waiting)
        tick->waiting_last->next = io;
    else
        tick->waiting = io;
    tick->waiting_last = io;
}

static void hand_over(struct plx_store *store, struct plx_device *device, struct plx_io *io)
{
    if (store->fenced && io->op != PLX_IO_READ)
        refuse(store, io);
    else
        device->ops->submit(device, io);
}

static void let_waiting_go(struct plx_store *store)
{
    struct plx_tick *tick = store->tick;
    struct plx_io *io;

    while ((io = tick->waiting) != NULL && !has_to_wait(store, io->device_word)) {
        tick->waiting = io->next;
        hand_over(store, io->device_private, io);
    }
}

static void submit_io(struct plx_store *store, unsigned volume, struct plx_io *io)
{
    uint64_t now_ns;

    if (io->op != PLX_IO_READ && store->env->writes_wait) {
        now_ns = store->env->boot_ns(store->env);
        if (has_to_wait(store, now_ns)) {
            put_off(store, volume, io, now_ns);
            return;
        }
    }
    hand_over(store, store->volumes[volume].device, io);
}

void plx_store_submit(struct plx_store *store, unsigned volume, struct plx_io *io)
{
    count_io(&store->counters, io);
    submit_io(store, volume, io);
}

void plx_store_xfer(struct plx_store *store, struct plx_xfer *xfer, enum plx_io_op op,
                    enum plx_io_kind kind, uint64_t addr, uint64_t offset, size_t bytes,
                    const struct iovec *iov, int iovcnt, struct plx_join *join)
{
    plx_store_prepare(store, xfer, op, kind, addr, offset, bytes, iov, iovcnt, join);
    plx_store_submit(store, xfer->volume, &xfer->io);
}

static int transfer_sync(struct plx_store *store, enum plx_io_op op, enum plx_io_kind kind,
                         uint64_t addr, uint64_t offset, void *buffer, size_t bytes)
{
    struct iovec iov = {buffer, bytes};
    struct plx_join join = {0};
    struct plx_xfer xfer;

    plx_store_xfer(store, &xfer, op, kind, addr, offset, bytes, &iov, 1, &join);
    plx_store_run_until_zero(store, &join.pending);
    return join.error;
}

int plx_store_read_sync(struct plx_store *store, enum plx_io_kind kind, uint64_t addr, void *buffer,
                        size_t bytes)
{
    return transfer_sync(store, PLX_IO_READ, kind, addr, 0, buffer, bytes);
}

int plx_store_write_sync(struct plx_store *store, enum plx_io_kind kind, uint64_t addr,
                         const void *buffer, size_t bytes)
{
    return plx_store_write_at_sync(store, kind, addr, 0, buffer, bytes);
}

int plx_store_write_at_sync(struct plx_store *store, enum plx_io_kind kind, uint64_t addr,
                            uint64_t offset, const void *buffer, size_t bytes)
{
    return transfer_sync(store, PLX_IO_WRITE, kind, addr, offset, (void *)(uintptr_t)buffer, bytes);
}

/* ---- Flush ---- */

void plx_store_flush(struct plx_store *store, struct plx_task *task, struct plx_flush_mark since)
{
    if (!plx_flush_failed_since(store, since)) {
        plx_queue_push(&store->tick->flush_joining, task);
        return;
    }
    task->error = store->flush_error;
    plx_task_ready(store, task);
}

static void flush_finished(struct plx_task *flush_task)
{
    struct plx_tick *tick = PLX_CONTAINER(flush_task, struct plx_tick, flush_task);
    struct plx_store *store = tick->store;
    int error = tick->flush_join.error;

    tick->flushing = false;
    plx_queue_wake(store, &tick->flush_running, error);
    if (!error)
        return;
    store->flush_failures++;
    store->flush_error = error;
    plx_queue_wake(store, &tick->flush_joining,
                   error); /* TICK-2: may have lost their writes, too */
}

static void flush_done(struct plx_io *io)
{
    struct plx_xfer *xfer = PLX_CONTAINER(io, struct plx_xfer, io);
    struct plx_volume *volume = &xfer->store->volumes[xfer->volume];

    volume->under_way--;
    if (io->result)
        volume->dirty = true; /* nothing is known to be durable: the next flush asks again */
    join_done(xfer->store, xfer->join, io->result);
}

static void flush_start(struct plx_store *store)
{
    struct plx_tick *tick = store->tick;
    if (tick->flushing || !tick->flush_joining.head)
        return;
    tick->flushing = true;
    tick->flush_running = tick->flush_joining; /* TICK-2: later ones wait for the next */
    tick->flush_joining = (struct plx_queue){0};
    tick->flush_join = (struct plx_join){.pending = 1, .task = &tick->flush_task};
    for (unsigned i = 0; i < store->info.volumes; i++) {
        struct plx_volume *volume = &store->volumes[i];

        if (!volume->device->volatile_cache || !volume->dirty)
            continue;
        volume->dirty = false;
        volume->under_way++;
        tick->flush_join.pending++;
        store->counters.device_flushes++;
        volume->flush.store = store;
        volume->flush.join = &tick->flush_join;
        volume->flush.volume = i;
        volume->flush.io = (struct plx_io){.op = PLX_IO_FLUSH, .done = flush_done};
        submit_io(store, i, &volume->flush.io);
    }
    join_done(store, &tick->flush_join, 0);
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

int plx_store_flush_sync(struct plx_store *store, struct plx_flush_mark since)
{
    struct plx_waiter waiter = PLX_WAITER;

    plx_store_flush(store, &waiter.task, since);
    return plx_waiter_wait(store, &waiter);
}

int plx_store_flush_others(struct plx_store *store)
{
    for (unsigned i = 0; i < store->info.volumes; i++)
        store->volumes[i].dirty = true;
    return plx_store_flush_sync(store, plx_flush_mark(store));
}

/* ---- The loop ---- */

int plx_tick_init(struct plx_store *store)
{
    store->tick = calloc(1, sizeof *store->tick);
    if (!store->tick)
        return PLX_ERR_NOMEM;
    store->tick->store = store;
    store->tick->flush_task.step = flush_finished;
    return 0;
}

void plx_tick_free(struct plx_store *store)
{
    free(store->tick);
    store->tick = NULL;
}

bool plx_store_tick(struct plx_store *store)
{
    struct plx_tick *tick = store->tick;
    unsigned rounds = 0;
    bool more = false;

    PLX_ASSERT(!tick->in_tick); /* TICK-3 */
    tick->in_tick = true;
    if (store->env->tick)
        store->env->tick(store->env);
    let_waiting_go(store);
    tick->turn_bytes = 0;
    for (unsigned i = 0; i < store->info.volumes; i++) {
        struct plx_device *device = store->volumes[i].device;

        if (store->volumes[i].under_way && device->ops->poll(device, false) > 0)
            tick->stalled = false;
    }
    complete_refused(store);
    /* What a pump wakes may leave more to pump. All of it must be started before the loop sleeps,
     * because no completion would wake the loop for it. */
    do {
        run_ready(store);
        store->pump(store);
    } while (tick->ready.head && rounds++ < ROUNDS_MAX && !turn_ends(store));
    for (struct plx_loop_part *part = tick->parts; part; part = part->next)
        more = part->turn(part) || more;
    flush_start(store);
    for (unsigned i = 0; i < store->info.volumes; i++) {
        struct plx_device *device = store->volumes[i].device;

        if (store->volumes[i].under_way)
            more = device->ops->kick(device) || more;
    }
    tick->in_tick = false;
    return more || tick->ready.head != NULL || tick->refused;
}

/* Whether a volume has completed something. *ret_under_way: one had anything to complete. */
static bool wait_for_volumes(struct plx_store *store, bool sleep, bool *ret_under_way)
{
    *ret_under_way = false;
    for (unsigned i = 0; i < store->info.volumes; i++) {
        struct plx_volume *volume = &store->volumes[i];

        if (!volume->under_way)
            continue;
        *ret_under_way = true;
        /* The I/O that is under way may not complete soon: writes wait (gather.c, TICK-6), or
         * the device takes its time. */
        if (volume->device->ops->poll(volume->device, sleep) > 0) {
            store->tick->stalled = false;
            return true;
        }
    }
    return false;
}

void plx_store_wait(struct plx_store *store)
{
    struct plx_tick *tick = store->tick;
    struct plx_env *env = store->env;
    bool sleep = !tick->waiting && !tick->stalled, under_way;
    uint64_t begun_ns = 0;

    for (struct plx_loop_part *part = tick->parts; part; part = part->next)
        if (part->under_way(part)) {
            part->wait(part);
            return;
        }
    if (tick->parts)
        begun_ns = env->monotonic_ns(env);
    if (wait_for_volumes(store, sleep, &under_way))
        return;
    if (under_way && sleep)
        tick->stalled = tick->parts && env->monotonic_ns(env) - begun_ns >= STALLED_NS; /* TICK-7 */
    else if (env->idle)
        env->idle(env);
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

void plx_loop_join(struct plx_store *store, struct plx_loop_part *part)
{
    part->next = store->tick->parts;
    store->tick->parts = part;
}

void plx_loop_leave(struct plx_store *store, struct plx_loop_part *part)
{
    struct plx_loop_part **link = &store->tick->parts;

    while (*link != part)
        link = &(*link)->next;
    *link = part->next;
}

struct plx_device *plx_store_device(const struct plx_store *store, unsigned volume)
{
    return volume < store->info.volumes ? store->volumes[volume].device : NULL;
}

struct plx_device *plx_store_any_device(const struct plx_store *store, unsigned index)
{
    struct plx_device *device = plx_store_device(store, index);
    unsigned left = index - store->info.volumes;

    if (device)
        return device;
    for (const struct plx_loop_part *part = store->tick->parts; part; part = part->next)
        for (unsigned i = 0; (device = part->device(part, i)) != NULL; i++)
            if (!left--)
                return device;
    return NULL;
}

static bool too_fast(const struct plx_store *store, uint64_t begun_ns, uint64_t bytes,
                     uint64_t rate)
{
    return rate && (double)bytes / (double)rate * 1e9 >
                       (double)(store->env->monotonic_ns(store->env) - begun_ns);
}

/* With pause() the time passes there, so that other calls come in. A wait in here would keep them
 * out. */
bool plx_store_take_turns(struct plx_store *store, const struct plx_turns *turns, uint64_t begun_ns,
                          uint64_t bytes)
{
    do {
        if (turns->interrupted && turns->interrupted(turns->context))
            return false;
        if (turns->pause)
            turns->pause(turns->context);
        else if (too_fast(store, begun_ns, bytes, turns->rate) && !plx_store_tick(store))
            plx_store_wait(store);
    } while (too_fast(store, begun_ns, bytes, turns->rate));
    return true;
}

bool plx_store_busy(const struct plx_store *store)
{
    const struct plx_tick *tick = store->tick;

    return tick->ready.head || tick->flushing || tick->flush_joining.head || tick->waiting ||
           plx_store_under_way(store) > 0;
}

unsigned plx_store_under_way(const struct plx_store *store)
{
    unsigned count = 0;

    for (unsigned i = 0; i < store->info.volumes && !store->tick->waiting; i++)
        count += store->volumes[i].under_way;
    for (const struct plx_loop_part *part = store->tick->parts; part; part = part->next)
        count += part->under_way(part);
    return count;
}

void plx_store_event(struct plx_store *store, int code, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    store->env->event(store->env, code, text);
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

uint64_t plx_log_segment_bytes(const struct plx_store *store)
{
    return (uint64_t)store->info.segment_blocks << PLX_BLOCK_SHIFT;
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
    return store->info.volume[i].first_extent * store->info.extent_blocks + PLX_VDI_TABLE_BLOCK +
           2ull * slot;
}
