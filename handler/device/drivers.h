/* drivers.h - the drivers that device.c picks from, and helpers for them. Private to this folder.
 *
 * A driver implements struct plx_device_ops (engine/base/device.h). Its open function fills in
 * struct plx_device but for `used`, the lock, which device.c takes and the driver's close() drops.
 */
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

/* Requests in the order of arrival, linked by io->next. */
struct plx_io_queue {
    struct plx_io *head, *tail;
};
void plx_io_queue_push(struct plx_io_queue *queue, struct plx_io *io);
struct plx_io *plx_io_queue_pop(struct plx_io_queue *queue); /* NULL when empty */

/* Sets the result and calls done. Returns 1, so that callers can add up completions. */
int plx_io_finish(struct plx_io *io, int result);

/* Asserts what device.h asks of a request (DEVICE-1). */
void plx_io_check(const struct plx_device *device, const struct plx_io *io);

/* Copy the pieces of a request's memory into one buffer, and back. */
void plx_iov_gather(void *to, const struct iovec *iov, int iovcnt);
void plx_iov_scatter(const struct iovec *iov, int iovcnt, const void *from);

#endif
