/* device_io.c - requests and their memory, as drivers share it (DEVICE-1). */
#include <string.h>

#include "device/drivers.h"

void plx_io_queue_push(struct plx_io_queue *queue, struct plx_io *io)
{
    io->next = NULL;
    if (queue->head)
        queue->tail->next = io;
    else
        queue->head = io;
    queue->tail = io;
}

struct plx_io *plx_io_queue_pop(struct plx_io_queue *queue)
{
    struct plx_io *io = queue->head;

    if (io) {
        queue->head = io->next;
        io->next = NULL;
    }
    return io;
}

int plx_io_finish(struct plx_io *io, int result)
{
    io->result = result;
    io->done(io);
    return 1;
}

/* DEVICE-1 */
void plx_io_check(const struct plx_device *device, const struct plx_io *io)
{
    size_t sum = 0;

    PLX_ASSERT(io->done);
    if (io->op == PLX_IO_FLUSH)
        return;
    PLX_ASSERT(io->bytes > 0);
    PLX_ASSERT(io->offset % device->block_size == 0 && io->bytes % device->block_size == 0);
    PLX_ASSERT(io->offset <= device->bytes && io->bytes <= device->bytes - io->offset);
    for (int i = 0; i < io->iovcnt; i++)
        sum += io->iov[i].iov_len;
    PLX_ASSERT(sum == io->bytes);
}

void plx_iov_gather(void *to, const struct iovec *iov, int iovcnt)
{
    char *next = to;

    for (int i = 0; i < iovcnt; i++) {
        memcpy(next, iov[i].iov_base, iov[i].iov_len);
        next += iov[i].iov_len;
    }
}

void plx_iov_scatter(const struct iovec *iov, int iovcnt, const void *from)
{
    const char *next = from;

    for (int i = 0; i < iovcnt; i++) {
        memcpy(iov[i].iov_base, next, iov[i].iov_len);
        next += iov[i].iov_len;
    }
}
