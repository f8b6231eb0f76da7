/* libaio.c - a regular file or block device, through Linux AIO.
 *
 * The life of a request (LIBAIO-1):
 *
 *  no  state      place              moved on by
 *   1  waiting    queue `waiting`    fill_slots, when a slot is free
 *   2  ready      a slot, `ready`    hand_over: io_submit
 *   3  in flight  a slot             the kernel's event; a short transfer returns to 2 (LIBAIO-4)
 *   4  done       none               poll() calls done (LIBAIO-2)
 *
 * Refused requests and synchronous flushes go from 1 or 2 to the queue `finished`, which poll()
 * empties.
 *
 * LIBAIO-1  A request is in exactly one of these places. The kernel never has more requests than
 *     there are slots, which is the size of its AIO context.
 * LIBAIO-2  done is called only from poll(), and after the request's slot is free again. So done
 *     may submit the next request.
 * LIBAIO-3  If the transport cannot take the request's memory (misaligned, or too many pieces), the
 *     data goes through a bounce buffer. The caller's memory is used only until done.
 * LIBAIO-4  A request is never reported as done if only a part of it was done. A short read is
 *     repeated whole. A short write goes on where it stopped, which shows the reason: a full file
 *     system first writes in part. After TRIES_MAX tries the request fails.
 * LIBAIO-5  At most one thread at a time waits in the kernel for events: that of wait(), or that of
 *     a poll() that may block. It leaves the events in `events`, and the next poll() takes them.
 *     Another thread that wants to wait meanwhile waits for that thread. Otherwise one thread could
 *     hold an event and not run yet, while another waited for that event in vain. A poll() that
 *     does not block also takes events directly from the kernel.
 * LIBAIO-6  A device that is not opened for wait() has no AIO context until more than AT_ONCE_MAX
 *     requests are handed over at once, or more than CALLS_MAX in all; with a queue of one it never
 *     has. Without one, the thread that hands requests over carries them out. To destroy a context
 *     waits for all processors (an RCU grace period, tens of milliseconds), which is longer than
 *     all I/O of most commands. Long ones go on while the device works.
 * LIBAIO-7  Flushes of a file fail if it has lost its name since it was opened, because it was
 *     deleted or replaced. Such a file disappears with its last descriptor, so nothing in it is
 *     durable.
 *
 * The file is opened with O_DIRECT wherever the file system allows it, and through the page cache
 * elsewhere (tmpfs, hostfs). Completed writes to a regular file, or through the page cache, are
 * durable only after a flush.
 *
 * Threads: none of its own. `lock` guards what wait() shares with the other calls, and is held only
 *   for a moment. io_submit() may block where the file system has no asynchronous path for O_DIRECT
 *   (an unallocated extent, or no direct I/O at all).
 */
#include "device/libaio_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <libaio.h>
#include <limits.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* ---- Errors ---------------------------------------------------------------------------- */

static int io_error(const struct plx_io *io, int error)
{
    switch (error) {
    case ENODEV:
    case ENXIO:
    case ENOLINK:
    case ENOTCONN:
    case ETIMEDOUT:
    case ESHUTDOWN:
        return PLX_ERR_LOST;
    case EBADE: /* SCSI reservation conflict */
        return PLX_ERR_FENCED;
    case ENOSPC:
    case EDQUOT:
        return PLX_ERR_VOLUME_FULL;
    case EFBIG:
        return PLX_ERR_FILE_LIMIT;
    case EROFS:
    case EPERM: /* a block device that was set read-only */
        return io->op == PLX_IO_READ ? PLX_ERR_IO_READ : PLX_ERR_READONLY;
    case ENOMEM:
        return PLX_ERR_NOMEM;
    default:
        return io->op == PLX_IO_READ ? PLX_ERR_IO_READ : PLX_ERR_IO_WRITE;
    }
}

/* ---- Slots ------------------------------------------------------------------------------ */

/* Whether the kernel can use the request's memory as it is (LIBAIO-3). */
static bool fits_transport(const struct aio_device *device, const struct plx_io *io)
{
    uint32_t align = device->direct ? device->base.block_size : 1;

    if (io->iovcnt > IOV_MAX)
        return false;
    for (int i = 0; i < io->iovcnt; i++)
        if ((uintptr_t)io->iov[i].iov_base % align || io->iov[i].iov_len % align)
            return false;
    return true;
}

/* LIBAIO-1: from `waiting` into a slot. */
static struct aio_slot *slot_take(struct aio_device *device, struct plx_io *io)
{
    struct aio_slot *slot = device->free_slots;

    device->free_slots = slot->next_free;
    slot->io = io;
    slot->bounce = NULL;
    slot->written = 0;
    slot->tries = 0;
    return slot;
}

void plx_aio_slot_release(struct aio_device *device, struct aio_slot *slot)
{
    free(slot->bounce);
    slot->bounce = NULL;
    slot->io = NULL;
    slot->next_free = device->free_slots;
    device->free_slots = slot;
}

static void prepare_direct(struct aio_device *device, struct aio_slot *slot)
{
    struct plx_io *io = slot->io;
    struct iovec *iov = (struct iovec *)io->iov; /* libaio lacks the const */

    if (io->op == PLX_IO_READ)
        io_prep_preadv(&slot->cb, device->fd, iov, io->iovcnt, (long long)io->offset);
    else
        io_prep_pwritev(&slot->cb, device->fd, iov, io->iovcnt, (long long)io->offset);
}

/* Prepares a transfer through the bounce buffer. false: out of memory. */
static bool prepare_copy(struct aio_device *device, struct aio_slot *slot)
{
    struct plx_io *io = slot->io;
    size_t done = slot->written;

    if (!slot->bounce) {
        slot->bounce =
            aligned_alloc(BUFFER_ALIGN, plx_div_up(io->bytes, BUFFER_ALIGN) * BUFFER_ALIGN);
        if (!slot->bounce)
            return false;
        if (io->op == PLX_IO_WRITE)
            plx_iov_gather(slot->bounce, io->iov, io->iovcnt);
    }
    if (io->op == PLX_IO_READ)
        io_prep_pread(&slot->cb, device->fd, slot->bounce, io->bytes, (long long)io->offset);
    else
        io_prep_pwrite(&slot->cb, device->fd, slot->bounce + done, io->bytes - done,
                       (long long)(io->offset + done));
    return true;
}

static bool slot_prepare(struct aio_device *device, struct aio_slot *slot)
{
    if (slot->io->op == PLX_IO_FLUSH)
        io_prep_fdsync(&slot->cb, device->fd);
    else if (slot->written == 0 && fits_transport(device, slot->io))
        prepare_direct(device, slot);
    else
        return prepare_copy(device, slot);
    return true;
}

static void finish_later(struct aio_device *device, struct plx_io *io, int result)
{
    io->result = result;
    plx_io_queue_push(&device->finished, io);
}

/* The result of a flush that the kernel has carried out (LIBAIO-7). */
static int flushed(const struct aio_device *device)
{
    struct stat st;

    return device->named && fstat(device->fd, &st) == 0 && st.st_nlink == 0 ? PLX_ERR_MISSING : 0;
}

static void flush_now(struct aio_device *device, struct plx_io *io)
{
    finish_later(device, io, fdatasync(device->fd) == 0 ? flushed(device) : io_error(io, errno));
}

/* ---- Operations ------------------------------------------------------------------------- */

static void aio_submit(struct plx_device *base, struct plx_io *io)
{
    struct aio_device *device = aio(base);

    plx_io_check(base, io);
    if (base->read_only && io->op != PLX_IO_READ)
        finish_later(device, io, io->op == PLX_IO_FLUSH ? 0 : PLX_ERR_READONLY);
    else
        plx_io_queue_push(&device->waiting, io);
}

static void fill_slots(struct aio_device *device)
{
    while (device->waiting.head && device->free_slots) {
        struct plx_io *io = plx_io_queue_pop(&device->waiting);
        struct aio_slot *slot;

        if (io->op == PLX_IO_FLUSH && device->sync_flush) {
            flush_now(device, io);
            continue;
        }
        slot = slot_take(device, io);
        if (slot_prepare(device, slot)) {
            device->ready[device->ready_count++] = &slot->cb;
        } else {
            plx_aio_slot_release(device, slot);
            finish_later(device, io, PLX_ERR_NOMEM);
        }
    }
}

/* The kernel has taken the first `count` ready requests. */
static void ready_drop(struct aio_device *device, unsigned count)
{
    device->ready_count -= count;
    memmove(device->ready, device->ready + count, device->ready_count * sizeof *device->ready);
}

/* The kernel refuses the first ready request. A refused flush is done synchronously from now on. */
static void ready_refused(struct aio_device *device, int error)
{
    struct aio_slot *slot = (struct aio_slot *)device->ready[0];
    struct plx_io *io = slot->io;

    ready_drop(device, 1);
    plx_aio_slot_release(device, slot);
    if (io->op == PLX_IO_FLUSH && (error == EINVAL || error == EOPNOTSUPP)) {
        device->sync_flush = true;
        flush_now(device, io);
    } else {
        finish_later(device, io, io_error(io, error));
    }
}

/* A transfer came back short (LIBAIO-4). Returns an error, or 0: it is ready to be submitted again.
 */
static int go_on(struct aio_device *device, struct aio_slot *slot, size_t transferred)
{
    struct plx_io *io = slot->io;

    if (io->op == PLX_IO_WRITE)
        slot->written += transferred - transferred % device->base.block_size;
    if (++slot->tries == TRIES_MAX)
        return io->op == PLX_IO_READ ? PLX_ERR_IO_READ : PLX_ERR_IO_WRITE;
    if (!slot_prepare(device, slot))
        return PLX_ERR_NOMEM;
    device->ready[device->ready_count++] = &slot->cb;
    return 0;
}

/* The kernel has ended a transfer; transferred: bytes, or -errno. Returns the request, whose slot
 * is free again (LIBAIO-2), or NULL: it is to be submitted again. */
static struct plx_io *settle(struct aio_device *device, struct aio_slot *slot, long transferred,
                             int *ret_result)
{
    struct plx_io *io = slot->io;
    int result = 0;

    if (transferred < 0) {
        result = io_error(io, (int)-transferred);
    } else if (io->op == PLX_IO_FLUSH) {
        result = flushed(device);
    } else if ((size_t)transferred != io->bytes - slot->written) {
        result = go_on(device, slot, (size_t)transferred);
        if (result == 0)
            return NULL;
    } else if (io->op == PLX_IO_READ && slot->bounce) {
        plx_iov_scatter(io->iov, io->iovcnt, slot->bounce);
    }
    plx_aio_slot_release(device, slot);
    *ret_result = result;
    return io;
}

/* Carries a request out by a system call that returns when it is done (LIBAIO-6). */
static ssize_t call_kernel(const struct iocb *cb)
{
    switch (cb->aio_lio_opcode) {
    case IO_CMD_PREAD:
        return pread(cb->aio_fildes, cb->u.c.buf, cb->u.c.nbytes, cb->u.c.offset);
    case IO_CMD_PREADV:
        return preadv(cb->aio_fildes, cb->u.c.buf, (int)cb->u.c.nbytes, cb->u.c.offset);
    case IO_CMD_PWRITE:
        return pwrite(cb->aio_fildes, cb->u.c.buf, cb->u.c.nbytes, cb->u.c.offset);
    case IO_CMD_PWRITEV:
        return pwritev(cb->aio_fildes, cb->u.c.buf, (int)cb->u.c.nbytes, cb->u.c.offset);
    default:
        return fdatasync(cb->aio_fildes);
    }
}

int plx_aio_set_up(struct aio_device *device)
{
    return io_setup((int)device->depth + 1, &device->context); /* one for the nudge */
}

/* LIBAIO-6 */
static void carry_out(struct aio_device *device)
{
    while (device->ready_count) {
        struct aio_slot *slot = (struct aio_slot *)device->ready[0];
        struct plx_io *io;
        ssize_t transferred;
        int result;

        ready_drop(device, 1);
        transferred = call_kernel(&slot->cb);
        device->calls++;
        if (transferred < 0 && errno == EINTR) {
            device->ready[device->ready_count++] = &slot->cb;
            continue;
        }
        io = settle(device, slot, transferred < 0 ? -errno : transferred, &result);
        if (io)
            finish_later(device, io, result);
        fill_slots(device);
    }
}

static bool wants_context(const struct aio_device *device)
{
    return device->depth > 1 && (device->ready_count > AT_ONCE_MAX || device->calls > CALLS_MAX);
}

/* Submits as much as the kernel takes. The rest follows when something completes. */
static void hand_over(struct aio_device *device)
{
    fill_slots(device);
    if (!device->context && (!wants_context(device) || plx_aio_set_up(device))) {
        carry_out(device);
        return;
    }
    while (device->ready_count) {
        int taken = io_submit(device->context, device->ready_count, device->ready);

        if (taken > 0) {
            device->in_kernel += (unsigned)taken;
            ready_drop(device, (unsigned)taken);
        } else if (taken == -EAGAIN && device->in_kernel > 0) {
            return;
        } else if (taken == -EAGAIN) {
            ready_refused(device, ENOMEM);
        } else if (taken != -EINTR) {
            ready_refused(device, -taken);
        }
        fill_slots(device);
    }
}

static bool aio_kick(struct plx_device *base)
{
    struct aio_device *device = aio(base);

    hand_over(device);
    return device->finished.head != NULL;
}

/* Takes one event and calls done, unless the request goes on. Returns the number of completions. */
static int take_event(struct aio_device *device, const struct io_event *event)
{
    struct plx_io *io;
    int result;

    if (event->obj == &device->nudge)
        return 0;
    device->in_kernel--;
    io = settle(device, (struct aio_slot *)event->obj, (long)event->res, &result);
    return io ? plx_io_finish(io, result) : 0;
}

static int call_finished(struct aio_device *device)
{
    struct plx_io_queue queue = device->finished;
    struct plx_io *io;
    int count = 0;

    device->finished.head = NULL;
    while ((io = plx_io_queue_pop(&queue)))
        count += plx_io_finish(io, io->result);
    return count;
}

/* LIBAIO-5: blocks until there are events, another thread has got some, or a second has passed. */
static void get_events(struct aio_device *device)
{
    struct timespec second = {.tv_sec = 1};
    int count;

    pthread_mutex_lock(&device->lock);
    if (device->getting) {
        pthread_cond_wait(&device->got, &device->lock);
    } else if (device->events_count == 0) {
        device->getting = true;
        pthread_mutex_unlock(&device->lock);
        count = io_getevents(device->context, 1, EVENTS_AT_ONCE, device->events, &second);
        pthread_mutex_lock(&device->lock);
        device->getting = false;
        device->events_count = count > 0 ? (unsigned)count : 0;
        pthread_cond_broadcast(&device->got);
    }
    pthread_mutex_unlock(&device->lock);
}

/* Takes the events that get_events() got. Returns how many. */
static unsigned take_over(struct aio_device *device, struct io_event *ret_events)
{
    unsigned count;

    if (device->events_count == 0)
        return 0;
    pthread_mutex_lock(&device->lock);
    count = device->events_count;
    memcpy(ret_events, device->events, count * sizeof *ret_events);
    device->events_count = 0;
    pthread_mutex_unlock(&device->lock);
    return count;
}

/* Takes all events there are, without waiting. Returns the number of completions. */
static int harvest(struct aio_device *device)
{
    struct timespec at_once = {0};
    struct io_event events[EVENTS_AT_ONCE];
    int completed = 0, got = (int)take_over(device, events);

    do {
        for (int i = 0; i < got; i++)
            completed += take_event(device, &events[i]);
        got = io_getevents(device->context, 0, EVENTS_AT_ONCE, events, &at_once);
        PLX_ASSERT(got >= 0 || got == -EINTR);
    } while (got != 0);
    return completed;
}

/* The same, and submits requests that have room now, or that came back short. */
static int harvest_all(struct aio_device *device)
{
    int completed = 0;

    if (device->in_kernel > 0 || device->events_count > 0)
        completed = harvest(device);
    if (device->waiting.head || device->ready_count)
        hand_over(device);
    return completed + call_finished(device);
}

static int aio_poll(struct plx_device *base, bool wait)
{
    struct aio_device *device = aio(base);
    int completed;

    hand_over(device);
    completed = call_finished(device);
    completed += harvest_all(device);
    if (wait && completed == 0 && device->in_kernel > 0) {
        get_events(device);
        completed = harvest_all(device);
    }
    return completed;
}

static void aio_wait(struct plx_device *base)
{
    PLX_ASSERT(aio(base)->context);
    get_events(aio(base));
}

/* Submits a read of nothing, whose event ends wait(). If the kernel does not take it, wait() ends
 * by itself within a second. */
static void aio_interrupt(struct plx_device *base)
{
    struct aio_device *device = aio(base);
    struct iocb *nudge = &device->nudge;

    PLX_ASSERT(device->context);
    io_prep_pread(nudge, device->fd, nudge, 0, 0);
    io_submit(device->context, 1, &nudge);
}

void plx_aio_close(struct plx_device *base)
{
    struct aio_device *device = aio(base);

    PLX_ASSERT(device->in_kernel == 0 && !device->waiting.head && !device->finished.head);
    plx_bytelock_close(base->used);
    if (device->context)
        io_destroy(device->context);
    if (device->fd >= 0)
        close(device->fd);
    pthread_cond_destroy(&device->got);
    pthread_mutex_destroy(&device->lock);
    free(device->slots);
    free(device->ready);
    free(device);
}

/* Measures the open descriptor, because another file may have the name by now. */
static int aio_measure(struct plx_device *base, struct plx_fault *fault)
{
    struct aio_device *device = aio(base);
    uint64_t bytes = 0;
    struct stat st;

    if (fstat(device->fd, &st) || (S_ISBLK(st.st_mode) && ioctl(device->fd, BLKGETSIZE64, &bytes)))
        return plx_aio_open_error(base->name, "measure", errno, fault);
    base->bytes = plx_max_u64(base->bytes, S_ISBLK(st.st_mode) ? bytes : (uint64_t)st.st_size);
    return 0;
}

const struct plx_device_ops plx_aio_ops = {
    .submit = aio_submit,
    .kick = aio_kick,
    .poll = aio_poll,
    .wait = aio_wait,
    .interrupt = aio_interrupt,
    .measure = aio_measure,
    .close = plx_aio_close,
};
