/* libaio.c - a regular file or block device, through Linux AIO.
 *
 * A1  A request is in exactly one place: waiting (no slot yet), in a slot (handed to the kernel, or
 *     ready to be), or done. Slots bound what the kernel sees to the context's size.
 * A2  done is called from poll() only, after the slot is free again, so done may submit.
 * A3  Memory the transport cannot take (misaligned, too many pieces) is copied through a buffer of
 *     the request's own; the caller's memory is touched only until done.
 * A4  A read that comes back short is repeated whole, a write goes on where it stopped (so that the
 *     reason shows: a full file system first writes in part), a few times; then the request fails.
 *     Nothing is ever reported as done that was done in part.
 * A5  At most one thread waits in the kernel: wait()'s, or that of a poll() that may block. What it
 *     got lies in `events` until a poll() takes it; who wants to wait meanwhile waits for that one.
 *     So no event is with a thread that has yet to run while another one waits for it in vain.
 *     A poll() that does not block takes what the kernel has beside them.
 * A6  A queue of one has no context: the thread that hands a request over carries it out. The end
 *     of a context waits until every processor has passed by (tens of milliseconds), which is more
 *     than all I/O of opening a store takes.
 * A7  A file that was deleted while it is open, or replaced by another one of its name, is gone
 * with its last descriptor: nothing in it is durable, and its flushes fail.
 *
 * O_DIRECT wherever the file system has it. Without (tmpfs, hostfs) the page cache is used; then,
 * and for every regular file, completed writes are durable only after a flush.
 *
 * Threads: none of its own. What wait() shares with the other calls is under `lock`, which is held
 * for a moment only. io_submit may block where the file system has
 * no asynchronous path for O_DIRECT (an unallocated extent, no direct I/O at all).
 */
#include "device/bytelock.h"
#include "device/drivers.h"
#include "engine/base/units.h"

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

#define TRIES_MAX 4
#define EVENTS_AT_ONCE 64
#define BUFFER_ALIGN 4096
#define CLAIM_TRIES 20
#define CLAIM_DELAY_US 10000

struct slot {
    struct iocb cb; /* first: the kernel gives its address back */
    struct slot *next_free;
    struct plx_io *io;
    char *bounce;
    size_t written; /* by earlier tries; then the rest comes from the copy */
    unsigned tries;
};

struct aio_device {
    struct plx_device base;
    int fd;
    io_context_t context;
    bool direct;
    bool named;      /* A7: a file that has a name, as far as the file system tells */
    bool sync_flush; /* the file system refused an asynchronous one */
    struct plx_io_queue waiting;
    struct plx_io_queue finished; /* done without the kernel: flushes the slow way, refusals */
    struct slot *slots, *free_slots;
    unsigned depth, in_kernel, ready_count;
    struct iocb **ready; /* slots filled but not yet taken by the kernel */

    pthread_mutex_t lock; /* A5 */
    pthread_cond_t got;
    bool getting;
    atomic_uint events_count;
    struct io_event events[EVENTS_AT_ONCE];
    struct iocb nudge; /* of interrupt(): an event that is nobody's */
};

static struct aio_device *aio(struct plx_device *device)
{
    return (struct aio_device *)device;
}

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
    case EROFS:
    case EPERM: /* a block device that was set read-only */
        return io->op == PLX_IO_READ ? PLX_ERR_IO_READ : PLX_ERR_READONLY;
    case ENOMEM:
        return PLX_ERR_NOMEM;
    default:
        return io->op == PLX_IO_READ ? PLX_ERR_IO_READ : PLX_ERR_IO_WRITE;
    }
}

static int open_error(const char *path, const char *doing, int error, struct plx_fault *fault)
{
    int code = PLX_ERR_SYSTEM;

    switch (error) {
    case ENOENT:
    case ENOTDIR:
        code = PLX_ERR_NOT_FOUND;
        break;
    case EACCES:
    case EPERM:
        code = PLX_ERR_PERMISSION;
        break;
    case EROFS:
        code = PLX_ERR_READONLY;
        break;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        code = PLX_ERR_NOSPACE;
        break;
    case EEXIST:
        code = PLX_ERR_EXISTS;
        break;
    case ENODEV:
    case ENXIO:
    case EIO:
        code = PLX_ERR_LOST;
        break;
    case ENOMEM:
        code = PLX_ERR_NOMEM;
        break;
    }
    return plx_fault_set(fault, code, "cannot %s %s: %s", doing, path, strerror(error));
}

/* ---- Slots ------------------------------------------------------------------------------ */

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

static struct slot *slot_take(struct aio_device *device, struct plx_io *io)
{
    struct slot *slot = device->free_slots;

    device->free_slots = slot->next_free;
    slot->io = io;
    slot->bounce = NULL;
    slot->written = 0;
    slot->tries = 0;
    return slot;
}

static void slot_release(struct aio_device *device, struct slot *slot)
{
    free(slot->bounce);
    slot->bounce = NULL;
    slot->io = NULL;
    slot->next_free = device->free_slots;
    device->free_slots = slot;
}

static void prepare_direct(struct aio_device *device, struct slot *slot)
{
    struct plx_io *io = slot->io;
    struct iovec *iov = (struct iovec *)io->iov; /* libaio lacks the const */

    if (io->op == PLX_IO_READ)
        io_prep_preadv(&slot->cb, device->fd, iov, io->iovcnt, (long long)io->offset);
    else
        io_prep_pwritev(&slot->cb, device->fd, iov, io->iovcnt, (long long)io->offset);
}

/* False when memory for the copy is lacking. */
static bool prepare_copy(struct aio_device *device, struct slot *slot)
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

static bool slot_prepare(struct aio_device *device, struct slot *slot)
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

/* A7 */
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
        struct slot *slot;

        if (io->op == PLX_IO_FLUSH && device->sync_flush) {
            flush_now(device, io);
            continue;
        }
        slot = slot_take(device, io);
        if (slot_prepare(device, slot)) {
            device->ready[device->ready_count++] = &slot->cb;
        } else {
            slot_release(device, slot);
            finish_later(device, io, PLX_ERR_NOMEM);
        }
    }
}

/* The kernel took the first `count` of the ready ones. */
static void ready_drop(struct aio_device *device, unsigned count)
{
    device->ready_count -= count;
    memmove(device->ready, device->ready + count, device->ready_count * sizeof *device->ready);
}

/* The first ready request cannot be submitted at all. */
static void ready_refused(struct aio_device *device, int error)
{
    struct slot *slot = (struct slot *)device->ready[0];
    struct plx_io *io = slot->io;

    ready_drop(device, 1);
    slot_release(device, slot);
    if (io->op == PLX_IO_FLUSH && (error == EINVAL || error == EOPNOTSUPP)) {
        device->sync_flush = true;
        flush_now(device, io);
    } else {
        finish_later(device, io, io_error(io, error));
    }
}

/* A transfer came back short. Returns an error, or 0: it is ready to be submitted again. */
static int go_on(struct aio_device *device, struct slot *slot, size_t transferred)
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

/* What the kernel says of a slot's request: bytes, or -errno. Returns the request, whose slot is
 * free again, or NULL: there is more to do. */
static struct plx_io *settle(struct aio_device *device, struct slot *slot, long transferred,
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
    slot_release(device, slot);
    *ret_result = result;
    return io;
}

/* What the kernel would do with it, by calls that end when it is done. */
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

/* A6 */
static void carry_out(struct aio_device *device)
{
    while (device->ready_count) {
        struct slot *slot = (struct slot *)device->ready[0];
        struct plx_io *io;
        ssize_t transferred;
        int result;

        ready_drop(device, 1);
        transferred = call_kernel(&slot->cb);
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

/* Hands over what the kernel takes; the rest goes once something completes. */
static void hand_over(struct aio_device *device)
{
    fill_slots(device);
    if (!device->context) {
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

/* One event: calls done, unless there is more to do. Returns completions. */
static int take_event(struct aio_device *device, const struct io_event *event)
{
    struct plx_io *io;
    int result;

    if (event->obj == &device->nudge)
        return 0;
    device->in_kernel--;
    io = settle(device, (struct slot *)event->obj, (long)event->res, &result);
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

/* A5: blocks until there are some, somebody else was told of some, or a second has passed. */
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

/* Copies what get_events() got. Returns how many. */
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

/* Takes what is there, without waiting. Returns completions. */
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

/* And hands over what now has room, or came back short. */
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

/* Nothing is read. Should the kernel not take it, wait() ends within a second. */
static void aio_interrupt(struct plx_device *base)
{
    struct aio_device *device = aio(base);
    struct iocb *nudge = &device->nudge;

    PLX_ASSERT(device->context);
    io_prep_pread(nudge, device->fd, nudge, 0, 0);
    io_submit(device->context, 1, &nudge);
}

static void aio_close(struct plx_device *base)
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

/* By the descriptor: another file may have this one's name by now. */
static int aio_measure(struct plx_device *base, struct plx_fault *fault)
{
    struct aio_device *device = aio(base);
    uint64_t bytes = 0;
    struct stat st;

    if (fstat(device->fd, &st) || (S_ISBLK(st.st_mode) && ioctl(device->fd, BLKGETSIZE64, &bytes)))
        return open_error(base->name, "measure", errno, fault);
    base->bytes = plx_max_u64(base->bytes, S_ISBLK(st.st_mode) ? bytes : (uint64_t)st.st_size);
    return 0;
}

static const struct plx_device_ops aio_ops = {
    .submit = aio_submit,
    .kick = aio_kick,
    .poll = aio_poll,
    .wait = aio_wait,
    .interrupt = aio_interrupt,
    .measure = aio_measure,
    .close = aio_close,
};

/* ---- Opening ---------------------------------------------------------------------------- */

/* Makes the file durable: its size, and its name in the folder. */
static int sync_new_file(const char *path, int fd)
{
    char folder[PATH_MAX];
    char *slash;
    int folder_fd, failed;

    snprintf(folder, sizeof folder, "%s", path);
    slash = strrchr(folder, '/');
    if (!slash)
        strcpy(folder, ".");
    else
        slash[slash == folder] = '\0';
    folder_fd = fsync(fd) == 0 ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (folder_fd < 0)
        return -1;
    failed = fsync(folder_fd);
    close(folder_fd);
    return failed;
}

static int create_file(const char *path, uint64_t bytes, struct plx_fault *fault)
{
    int fd, error = 0;

    if (bytes % 4096 || bytes > INT64_MAX)
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "cannot create %s: its size must be a multiple of 4096", path);
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && errno == ENOENT)
        return plx_fault_set(fault, PLX_ERR_NOT_FOUND,
                             "cannot create %s: its folder does not exist", path);
    if (fd < 0)
        return open_error(path, "create", errno, fault);
    if (ftruncate(fd, (off_t)bytes) != 0 || sync_new_file(path, fd) != 0)
        error = errno;
    close(fd);
    if (error == 0)
        return 0;
    unlink(path);
    return open_error(path, "create", error, fault);
}

/* A disk that is mounted or belongs to RAID or LVM is claimed by the kernel; we hold no claim
 * ourselves (a store is shared), so only a short one of a neighbour can be in the way. */
static int check_unclaimed(const char *path, struct plx_fault *fault)
{
    for (int i = 0; i < CLAIM_TRIES; i++) {
        int fd = open(path, O_RDWR | O_EXCL | O_CLOEXEC);

        if (fd >= 0) {
            close(fd);
            return 0;
        }
        if (errno != EBUSY)
            return 0; /* the open that follows says what is wrong */
        usleep(CLAIM_DELAY_US);
    }
    return plx_fault_set(fault, PLX_ERR_BUSY,
                         "%s is in use: mounted, or part of a RAID, LVM or multipath device", path);
}

static bool direct_works(int fd, size_t block)
{
    _Alignas(BUFFER_ALIGN) char buffer[2 * BUFFER_ALIGN];

    /* An address that is aligned to the block and to nothing larger. */
    return pread(fd, buffer + block % BUFFER_ALIGN, block, 0) >= 0;
}

static bool write_cache_is_volatile(dev_t number)
{
    char path[128], text[32] = "";
    FILE *file;

    /* A partition has no queue of its own. */
    snprintf(path, sizeof path, "/sys/dev/block/%u:%u/queue/write_cache", major(number),
             minor(number));
    file = fopen(path, "re");
    if (!file) {
        snprintf(path, sizeof path, "/sys/dev/block/%u:%u/../queue/write_cache", major(number),
                 minor(number));
        file = fopen(path, "re");
    }
    if (!file)
        return true;
    if (!fgets(text, sizeof text, file))
        text[0] = '\0';
    fclose(file);
    return strncmp(text, "write through", 13) != 0;
}

static int measure_block_device(struct aio_device *device, const struct stat *st,
                                struct plx_fault *fault)
{
    const char *path = device->base.name;
    uint64_t bytes;
    int block, read_only = 0;

    if (!device->base.read_only && ioctl(device->fd, BLKROGET, &read_only) == 0 && read_only)
        return open_error(path, "open for writing", EROFS, fault); /* blockdev --setro */
    if (ioctl(device->fd, BLKGETSIZE64, &bytes) != 0 || ioctl(device->fd, BLKSSZGET, &block) != 0)
        return open_error(path, "measure", errno, fault);
    if (block != 512 && block != 4096)
        return plx_fault_set(fault, PLX_ERR_UNSUPPORTED,
                             "%s has logical blocks of %d bytes; 512 and 4096 are supported", path,
                             block);
    device->base.bytes = bytes;
    device->base.block_size = (uint32_t)block;
    device->base.volatile_cache = !device->direct || write_cache_is_volatile(st->st_rdev);
    return 0;
}

static void measure_file(struct aio_device *device, const struct stat *st)
{
    if (device->direct && direct_works(device->fd, 512)) {
        device->base.block_size = 512;
    } else {
        device->base.block_size = 4096;
        if (device->direct && !direct_works(device->fd, 4096)) {
            fcntl(device->fd, F_SETFL, fcntl(device->fd, F_GETFL) & ~O_DIRECT);
            device->direct = false;
        }
    }
    device->base.bytes = (uint64_t)st->st_size;
    device->base.volatile_cache = true;
}

static int open_path(struct aio_device *device, struct plx_fault *fault)
{
    const char *path = device->base.name;
    int flags = (device->base.read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC;
    struct stat st;
    int result = 0;

    device->direct = true;
    device->fd = open(path, flags | O_DIRECT);
    if (device->fd < 0 && errno == EINVAL) {
        device->direct = false;
        device->fd = open(path, flags);
    }
    if (device->fd < 0)
        return open_error(path, device->base.read_only ? "open" : "open for writing", errno, fault);
    if (fstat(device->fd, &st) != 0)
        return open_error(path, "examine", errno, fault);
    device->named = S_ISREG(st.st_mode) && st.st_nlink > 0;
    if (S_ISBLK(st.st_mode))
        result = measure_block_device(device, &st, fault);
    else
        measure_file(device, &st);
    if (result < 0)
        return result;
    device->base.bytes -= device->base.bytes % device->base.block_size;
    if (device->base.bytes == 0)
        return plx_fault_set(fault, PLX_ERR_NOT_FOUND, "%s is empty", path);
    return 0;
}

static int set_up_queue(struct aio_device *device, struct plx_fault *fault)
{
    int error = 0;

    device->slots = calloc(device->depth, sizeof *device->slots);
    device->ready = calloc(device->depth, sizeof *device->ready);
    if (!device->slots || !device->ready)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory opening %s", device->base.name);
    for (unsigned i = device->depth; i-- > 0;)
        slot_release(device, &device->slots[i]);
    if (device->depth > 1)                                           /* A6 */
        error = -io_setup((int)device->depth + 1, &device->context); /* and the nudge */
    if (error == EAGAIN)
        return plx_fault_set(fault, PLX_ERR_SYSTEM,
                             "cannot open %s: no AIO contexts left; raise the sysctl fs.aio-max-nr",
                             device->base.name);
    return error ? open_error(device->base.name, "set up AIO for", error, fault) : 0;
}

/* Before it is opened: opening a pipe would hang, and some devices act on being opened. */
static int check_kind(const char *path, const struct plx_device_open_options *options,
                      struct plx_fault *fault)
{
    struct stat st;

    if (stat(path, &st) != 0)
        return open_error(path, "open", errno, fault);
    if (S_ISDIR(st.st_mode))
        return plx_fault_set(fault, PLX_ERR_INVALID, "%s is a folder, not a file or block device",
                             path);
    if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
        return plx_fault_set(fault, PLX_ERR_INVALID, "%s is neither a file nor a block device",
                             path);
    if (S_ISBLK(st.st_mode) && !options->read_only)
        return check_unclaimed(path, fault);
    return 0;
}

int plx_libaio_open(const char *path, const struct plx_device_open_options *options,
                    struct plx_device **ret_device, struct plx_fault *fault)
{
    struct aio_device *device = calloc(1, sizeof *device);
    struct stat st;
    bool absent = options->create_bytes > 0 && stat(path, &st) != 0 && errno == ENOENT;
    int result;

    if (!device)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory opening %s", path);
    device->base.ops = &aio_ops;
    device->base.read_only = options->read_only;
    device->depth = options->queue_depth ? options->queue_depth : PLX_DEVICE_QUEUE_DEPTH;
    device->fd = -1;
    pthread_mutex_init(&device->lock, NULL);
    pthread_cond_init(&device->got, NULL);
    snprintf(device->base.name, sizeof device->base.name, "%s", path);
    if (absent)
        result = create_file(path, options->create_bytes, fault);
    else
        result = check_kind(path, options, fault);
    device->base.made = absent && result == 0;
    if (result == 0)
        result = open_path(device, fault);
    if (result == 0)
        result = set_up_queue(device, fault);
    if (result < 0) {
        if (device->base.made)
            unlink(path);
        aio_close(&device->base);
        return result;
    }
    *ret_device = &device->base;
    return 0;
}
