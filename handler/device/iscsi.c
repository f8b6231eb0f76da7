/* iscsi.c - a LUN reached through libiscsi, without a kernel initiator.
 *
 * The life of a request (ISCSI-1):
 *
 *  no  state      place                 moved on by
 *   1  waiting    queue `waiting`       iscsi_kick, when a transfer is free
 *   2  in flight  a transfer, `task`    on_answer: the next piece (ISCSI-3), 3, or 4
 *   3  repeated   a transfer, `again`   try_again, each second, TRIES_MAX times at most
 *   4  finished   queue `finished`      poll() calls done (ISCSI-2)
 *
 * When a command fails for want of the target:
 *
 *  what happens                                      after              result
 *  target answers BUSY, UNIT ATTENTION or the like   TRIES_MAX seconds  the error of that answer
 *  no answer on a connection that stands             COMMAND_TIMEOUT_S  LOST, that command
 *  connection breaks, libiscsi reconnects            -                  the command is sent again
 *  libiscsi gives up reconnecting                    about a minute     LOST, all commands
 *  libiscsi reconnects without end, still no answer  ANSWER_MAX_S       LOST, all commands
 *
 * ISCSI-1  A request is in exactly one of the places of the first table.
 * ISCSI-2  libiscsi's callbacks never call done, because they may run inside kick(). They move the
 *     request to `finished`, which poll() empties (device.h: done is called from poll() only).
 * ISCSI-3  A request longer than the target's transfer limit goes out in pieces, one after the
 *     other.
 * ISCSI-4  No request waits for ever; the second table has the limits. When all commands are lost,
 *     libiscsi's context and its socket are destroyed, and all later requests fail as LOST.
 * ISCSI-5  wait() waits only on an epoll descriptor, over the socket and a timer of one second, and
 *     touches nothing else of the device. Reconnecting, time limits, repeats and noticing a
 *     replaced socket go by the timer. The socket is left out while libiscsi expects nothing of it,
 *     or after it has ended, because it would be ready all the time.
 * ISCSI-6  User and password come from the file (credentials.h), or, if no line matches, from
 *     libiscsi's environment variables; the two are never mixed. No message holds a password, not
 *     even one about a wrong URL.
 *
 * Threads: none of its own. All calls except wait() and interrupt() come from one thread at a time.
 *   Only opening, closing and waiting block.
 */
#include "device/iscsi_inside.h"

#include <errno.h>
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* ---- Transfers ---------------------------------------------------------------------------- */

/* ISCSI-1: from a transfer to `finished`. */
static void transfer_finish(struct transfer *transfer, int result)
{
    struct iscsi_device *device = transfer->device;

    transfer->io->result = result;
    plx_io_queue_push(&device->finished, transfer->io);
    free(transfer->slice);
    transfer->slice = NULL;
    transfer->io = NULL;
    transfer->next = device->free;
    device->free = transfer;
    device->busy--;
}

/* The part of the request's memory that belongs to the piece; NULL: out of memory. */
static struct scsi_iovec *slice(struct transfer *transfer, int *ret_count)
{
    const struct plx_io *io = transfer->io;
    size_t skip = transfer->done, left = transfer->piece;
    int count = 0;

    if (transfer->piece == io->bytes) {
        *ret_count = io->iovcnt;
        return (struct scsi_iovec *)io->iov; /* libiscsi promises the same layout */
    }
    if (!transfer->slice) {
        transfer->slice = malloc((size_t)io->iovcnt * sizeof *transfer->slice);
        if (!transfer->slice)
            return NULL;
    }
    for (int i = 0; i < io->iovcnt && left > 0; i++) {
        size_t length = io->iov[i].iov_len;

        if (skip >= length) {
            skip -= length;
            continue;
        }
        length = length - skip < left ? length - skip : left;
        transfer->slice[count].iov_base = (char *)io->iov[i].iov_base + skip;
        transfer->slice[count++].iov_len = length;
        left -= length;
        skip = 0;
    }
    *ret_count = count;
    return transfer->slice;
}

static void on_answer(struct iscsi_context *iscsi, int status, void *command_data, void *context);

static void transfer_issue(struct transfer *transfer)
{
    struct iscsi_device *device = transfer->device;
    struct plx_io *io = transfer->io;
    int block = (int)device->base.block_size, count = 0;
    uint64_t lba = (io->offset + transfer->done) / device->base.block_size;
    struct scsi_iovec *iov = NULL;
    struct scsi_task *task = NULL;

    if (!device->iscsi) {
        transfer_finish(transfer, PLX_ERR_LOST);
        return;
    }
    if (io->op != PLX_IO_FLUSH) { /* ISCSI-3 */
        transfer->piece = io->bytes - transfer->done;
        if (transfer->piece > device->transfer_max)
            transfer->piece = device->transfer_max;
        iov = slice(transfer, &count);
        if (!iov) {
            transfer_finish(transfer, PLX_ERR_NOMEM);
            return;
        }
    }
    switch (io->op) {
    case PLX_IO_READ:
        task = iscsi_read16_iov_task(device->iscsi, device->lun, lba, (uint32_t)transfer->piece,
                                     block, 0, 0, 0, 0, 0, on_answer, transfer, iov, count);
        break;
    case PLX_IO_WRITE:
        task =
            iscsi_write16_iov_task(device->iscsi, device->lun, lba, NULL, (uint32_t)transfer->piece,
                                   block, 0, 0, 0, 0, 0, on_answer, transfer, iov, count);
        break;
    case PLX_IO_FLUSH:
        task = iscsi_synchronizecache16_task(device->iscsi, device->lun, 0, 0, 0, 0, on_answer,
                                             transfer);
        break;
    }
    transfer->task = task;
    transfer->seconds = 0;
    if (!task)
        transfer_finish(transfer, PLX_ERR_LOST);
}

static void transfer_try_again(struct transfer *transfer)
{
    transfer->next = transfer->device->again;
    transfer->device->again = transfer;
}

static int sense_error(const struct plx_io *io, const struct scsi_sense *sense)
{
    switch (sense->key) {
    case SCSI_SENSE_DATA_PROTECTION:
        return sense->ascq == 0x2707 ? PLX_ERR_VOLUME_FULL : PLX_ERR_READONLY;
    case SCSI_SENSE_NOT_READY:
    case SCSI_SENSE_HARDWARE_ERROR:
        return PLX_ERR_LOST;
    default:
        return io->op == PLX_IO_READ ? PLX_ERR_IO_READ : PLX_ERR_IO_WRITE;
    }
}

static bool worth_another_try(int status, const struct scsi_task *task)
{
    if (status == SCSI_STATUS_BUSY || status == SCSI_STATUS_TASK_SET_FULL)
        return true;
    return status == SCSI_STATUS_CHECK_CONDITION && task &&
           (task->sense.key == SCSI_SENSE_UNIT_ATTENTION ||
            task->sense.key == SCSI_SENSE_COMMAND_ABORTED ||
            task->sense.key == SCSI_SENSE_NOT_READY);
}

static int status_error(int status, const struct scsi_task *task, const struct plx_io *io)
{
    switch (status) {
    case SCSI_STATUS_RESERVATION_CONFLICT:
        return PLX_ERR_FENCED;
    case SCSI_STATUS_CHECK_CONDITION:
        return task ? sense_error(io, &task->sense) : PLX_ERR_LOST;
    case SCSI_STATUS_BUSY:
    case SCSI_STATUS_TASK_SET_FULL:
    case SCSI_STATUS_CANCELLED:
    case SCSI_STATUS_ERROR:
    case SCSI_STATUS_TIMEOUT:
        return PLX_ERR_LOST;
    default:
        return io->op == PLX_IO_READ ? PLX_ERR_IO_READ : PLX_ERR_IO_WRITE;
    }
}

/* ISCSI-2 */
static void on_answer(struct iscsi_context *iscsi, int status, void *command_data, void *context)
{
    struct transfer *transfer = context;
    struct scsi_task *task = command_data;
    struct plx_io *io = transfer->io;
    bool all_there = !task || task->residual_status == SCSI_RESIDUAL_NO_RESIDUAL;

    transfer->task = NULL;
    if (status == SCSI_STATUS_GOOD && io->op != PLX_IO_FLUSH && !all_there) {
        transfer_finish(transfer, io->op == PLX_IO_READ ? PLX_ERR_IO_READ : PLX_ERR_IO_WRITE);
    } else if (status == SCSI_STATUS_GOOD) {
        transfer->done += transfer->piece;
        if (io->op == PLX_IO_FLUSH || transfer->done == io->bytes)
            transfer_finish(transfer, 0);
        else
            transfer_issue(transfer);
    } else if (worth_another_try(status, task) && ++transfer->tries < TRIES_MAX) {
        transfer_try_again(transfer);
    } else {
        transfer_finish(transfer, status_error(status, task, io));
    }
    if (task)
        scsi_free_scsi_task(task);
}

/* ---- The connection ------------------------------------------------------------------------ */

/* ISCSI-5: the socket, and the events that libiscsi waits for; fd -1: none. */
static struct pollfd expected(const struct iscsi_device *device)
{
    struct pollfd fd = {.fd = -1};

    if (device->iscsi && !device->ended)
        fd.events = (short)iscsi_which_events(device->iscsi);
    if (fd.events)
        fd.fd = iscsi_get_fd(device->iscsi);
    return fd;
}

/* Tells epoll what libiscsi waits for. anew: even if nothing seems to have changed. That happens
 * once a second, because the socket may have been replaced by one of the same number. */
void plx_iscsi_watch(struct iscsi_device *device, bool anew)
{
    struct pollfd now = expected(device), before = device->watched;
    struct epoll_event event = {.events = (uint32_t)now.events};

    if (!anew && now.fd == before.fd && now.events == before.events)
        return;
    device->watched = now;
    if (before.fd >= 0 && before.fd != now.fd)
        epoll_ctl(device->epoll_fd, EPOLL_CTL_DEL, before.fd, NULL);
    if (now.fd >= 0 && epoll_ctl(device->epoll_fd, EPOLL_CTL_MOD, now.fd, &event) != 0 &&
        errno == ENOENT)
        epoll_ctl(device->epoll_fd, EPOLL_CTL_ADD, now.fd, &event);
}

/* ISCSI-4: gives the LUN up. Destroying the context calls back each command in flight, which then
 * fails as LOST. It does not do so after a logout that the target asked for; the loop below fails
 * the commands that are left. */
static void lose(struct iscsi_device *device)
{
    struct iscsi_context *iscsi = device->iscsi;

    device->iscsi = NULL;
    iscsi_destroy_context(iscsi);
    for (unsigned i = 0; i < device->depth; i++) {
        struct transfer *transfer = &device->transfers[i];

        if (!transfer->task)
            continue;
        scsi_free_scsi_task(transfer->task);
        transfer->task = NULL;
        transfer_finish(transfer, PLX_ERR_LOST);
    }
}

static void service(struct iscsi_device *device, int revents)
{
    if (device->iscsi && iscsi_service(device->iscsi, revents) != 0)
        lose(device);
}

/* Whether the socket has ended. libiscsi does not close such a socket while it waits for its next
 * try to connect. */
static bool has_ended(const struct iscsi_device *device)
{
    char byte;

    return device->iscsi &&
           recv(iscsi_get_fd(device->iscsi), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

static void try_again(struct iscsi_device *device)
{
    struct transfer *list = device->again;

    device->again = NULL;
    while (list) {
        struct transfer *transfer = list;

        list = transfer->next;
        transfer_issue(transfer);
    }
}

static void count_seconds(struct iscsi_device *device)
{
    bool hopeless = false;

    for (unsigned i = 0; i < device->depth; i++)
        if (device->transfers[i].task && ++device->transfers[i].seconds > ANSWER_MAX_S)
            hopeless = true;
    if (hopeless)
        lose(device);
}

static void every_second(struct iscsi_device *device)
{
    uint64_t expirations;

    if (read(device->timer_fd, &expirations, sizeof expirations) < 0)
        return;
    device->ended = false;
    service(device, 0);
    count_seconds(device);
    try_again(device);
    plx_iscsi_watch(device, true);
}

static void turn(struct iscsi_device *device, int timeout_ms)
{
    struct pollfd fds[] = {
        {.fd = device->timer_fd, .events = POLLIN},
        expected(device),
    };

    if (poll(fds, 2, timeout_ms) <= 0)
        return;
    if (fds[1].revents) {
        service(device, fds[1].revents);
        device->ended = !device->finished.head && has_ended(device);
    }
    if (fds[0].revents)
        every_second(device);
    plx_iscsi_watch(device, false);
}

static int call_finished(struct iscsi_device *device)
{
    struct plx_io_queue queue = device->finished;
    struct plx_io *io;
    int count = 0;

    device->finished.head = NULL;
    while ((io = plx_io_queue_pop(&queue)))
        count += plx_io_finish(io, io->result);
    return count;
}

/* ---- Operations ---------------------------------------------------------------------------- */

static void iscsi_submit(struct plx_device *base, struct plx_io *io)
{
    struct iscsi_device *device = lun(base);

    plx_io_check(base, io);
    if (base->read_only && io->op != PLX_IO_READ) {
        io->result = io->op == PLX_IO_FLUSH ? 0 : PLX_ERR_READONLY;
        plx_io_queue_push(&device->finished, io);
    } else {
        plx_io_queue_push(&device->waiting, io);
    }
}

static bool iscsi_kick(struct plx_device *base)
{
    struct iscsi_device *device = lun(base);
    bool issued = false;

    while (device->waiting.head && device->free) {
        struct transfer *transfer = device->free;

        device->free = transfer->next;
        device->busy++;
        transfer->io = plx_io_queue_pop(&device->waiting);
        transfer->done = transfer->piece = 0;
        transfer->tries = 0;
        transfer_issue(transfer);
        issued = true;
    }
    if (issued && device->iscsi) {
        service(device, POLLOUT & iscsi_which_events(device->iscsi));
        plx_iscsi_watch(device, false);
    }
    return device->finished.head != NULL;
}

static int iscsi_poll(struct plx_device *base, bool wait)
{
    struct iscsi_device *device = lun(base);
    int completed;

    iscsi_kick(base);
    turn(device, 0);
    completed = call_finished(device);
    if (wait && completed == 0 && (device->busy || device->waiting.head)) {
        iscsi_kick(base);
        turn(device, WAIT_MS);
        completed = call_finished(device);
    }
    if (device->waiting.head)
        iscsi_kick(base);
    return completed;
}

static void iscsi_wait(struct plx_device *base)
{
    struct pollfd fd = {.fd = lun(base)->epoll_fd, .events = POLLIN};

    poll(&fd, 1, WAIT_MS);
}

/* Makes the timer due at once, which ends wait(). */
static void iscsi_interrupt(struct plx_device *base)
{
    struct itimerspec now = {.it_interval = {.tv_sec = 1}, .it_value = {.tv_nsec = 1}};

    timerfd_settime(lun(base)->timer_fd, 0, &now, NULL);
}

void plx_iscsi_close(struct plx_device *base)
{
    struct iscsi_device *device = lun(base);

    PLX_ASSERT(device->busy == 0 && !device->waiting.head && !device->finished.head);
    plx_bytelock_close(base->used);
    if (device->iscsi) {
        if (iscsi_is_logged_in(device->iscsi))
            iscsi_logout_sync(device->iscsi);
        iscsi_destroy_context(device->iscsi);
    }
    if (device->epoll_fd >= 0)
        close(device->epoll_fd);
    if (device->timer_fd >= 0)
        close(device->timer_fd);
    free(device->transfers);
    free(device);
}

const struct plx_device_ops plx_iscsi_ops = {
    .submit = iscsi_submit,
    .kick = iscsi_kick,
    .poll = iscsi_poll,
    .wait = iscsi_wait,
    .interrupt = iscsi_interrupt,
    .close = plx_iscsi_close,
};
