/* drivers.h - what device.c picks from. Private to this folder. */
#ifndef PLX_DEVICE_DRIVERS_H
#define PLX_DEVICE_DRIVERS_H

#include "engine/base/device.h"

#define PLX_DEVICE_QUEUE_DEPTH 256

/* libaio.c: a regular file or block device. */
int plx_libaio_open(const char *path, const struct plx_device_open_options *options,
                    struct plx_device **ret_device, struct plx_fault *fault);
/* iscsi.c: iscsi://[user@]host[:port]/target-name/lun */
int plx_iscsi_open(const char *url, const struct plx_device_open_options *options,
                   struct plx_device **ret_device, struct plx_fault *fault);

/* A list of requests in order of arrival, linked by io->next. */
struct plx_io_queue {
    struct plx_io *head, *tail;
};
void plx_io_queue_push(struct plx_io_queue *queue, struct plx_io *io);
struct plx_io *plx_io_queue_pop(struct plx_io_queue *queue); /* NULL when empty */

/* Sets the result and calls done; always 1, so that callers can add up completions. */
int plx_io_finish(struct plx_io *io, int result);

/* The engine's contract (device.h), checked at the crossing. */
void plx_io_check(const struct plx_device *device, const struct plx_io *io);

void plx_iov_gather(void *to, const struct iovec *iov, int iovcnt);
void plx_iov_scatter(const struct iovec *iov, int iovcnt, const void *from);

#endif
