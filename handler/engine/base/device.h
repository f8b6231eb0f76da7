/* device.h - the seam between the engine and a block device or file.
 *
 * A request (struct plx_io) is asynchronous:
 *
 *     io = (struct plx_io){.op = PLX_IO_WRITE, .offset = offset, .bytes = bytes,
 *                          .iov = iov, .iovcnt = 1, .done = done};
 *     device->ops->submit(device, &io);     never fails; the device owns io until done
 *     device->ops->kick(device);            hands all that was submitted to the kernel or network
 *     device->ops->poll(device, true);      calls done(&io), with io.result
 *
 * done is called from poll() and from nowhere else. A read or write lies within the device; its
 * offset and length are multiples of block_size, in bytes. Buffers may have any alignment: the
 * device copies where its transport needs more.
 *
 * A completed write is durable only after a flush that was submitted after the write's completion
 * has completed. If volatile_cache is false, a completed write is durable at once.
 *
 * Threads: one thread at a time makes the calls of a device, except wait() and interrupt().
 */
#ifndef PLX_DEVICE_H
#define PLX_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "engine/base/error.h"

enum plx_io_op {
    PLX_IO_READ,
    PLX_IO_WRITE,
    PLX_IO_FLUSH,
};

/* What a transfer is for. It is only counted. */
enum plx_io_kind {
    PLX_KIND_DATA,
    PLX_KIND_LOG,
    PLX_KIND_NODE,
    PLX_KIND_ADMIN, /* superblocks, extent pages, VDI records */
    PLX_KINDS,
};

struct plx_io {
    enum plx_io_op op;
    enum plx_io_kind kind;
    uint64_t offset; /* bytes from the start of the device */
    size_t bytes;
    const struct iovec *iov; /* its lengths sum up to bytes; valid until done */
    int iovcnt;
    int result; /* 0 or PLX_ERR_*, when done is called */
    void (*done)(struct plx_io *io);
    void *owner;          /* the submitter's */
    struct plx_io *next;  /* the device's while submitted */
    void *device_private; /* the device's while submitted */
    uint64_t device_word; /* the device's while submitted */
};

struct plx_device;
struct plx_patience;

struct plx_device_ops {
    void (*submit)(struct plx_device *device, struct plx_io *io);
    /* True: something was done without the kernel, so poll() has work that wait() would not see. */
    bool (*kick)(struct plx_device *device);
    /* Calls done for what has completed, and returns how many completed. If `wait` is set and
     * something is under way, blocks until something has completed, but only for about a second:
     * the caller may really be waiting for another device. */
    int (*poll)(struct plx_device *device, bool wait);
    /* Blocks until poll() has work, for about a second at most; may return without. One thread at a
     * time, which need not be the thread of the other calls and may run beside them. */
    void (*wait)(struct plx_device *device);
    /* Makes the present or the next wait() return soon. If a poll() comes in between, that wait()
     * may go on to its own end instead. Any thread, one at a time. */
    void (*interrupt)(struct plx_device *device);
    /* Finds out the present size; a larger one goes to device->bytes. Nothing may be under way.
     * NULL: the device must be opened again to learn it. */
    int (*measure)(struct plx_device *device, struct plx_fault *fault);
    void (*close)(struct plx_device *device); /* nothing may be under way */
};

struct plx_device {
    const struct plx_device_ops *ops;
    char name[256]; /* path or URL, for messages; has no secret in it */
    uint64_t bytes;
    uint32_t block_size; /* logical block: 512 or 4096 */
    bool volatile_cache; /* completed writes need a flush to be durable */
    bool read_only;
    bool made;                 /* this opening made the file */
    struct plx_bytelock *used; /* the driver's lock of this opening; NULL: none */
};

/* Opens a file, a block device (device/libaio.c) or an iscsi:// URL (device/iscsi.c); the name
 * decides. INVALID: the URL has a password, which belongs elsewhere (device/credentials.h). */
struct plx_device_open_options {
    bool read_only;
    uint64_t create_bytes; /* above 0: makes a missing file of this size */
    unsigned queue_depth;  /* 0: 256. 1: for small transfers that the caller waits for one by one */
    /* wait() and interrupt() are called, and kick() never blocks on a device that need not. Without
     * it kick() may block while few requests are handed over at once. Not with a queue of one. */
    bool waits;
    /* An opening shares a lock on its volume with the other openings on this machine. Two kinds
     * differ. An exclusive opening waits until nobody else has the volume open, and keeps others
     * out (BUSY). An opening `beside` another one of this process takes no lock. A volume that can
     * only be read cannot be locked exclusively: an exclusive, read_only opening of it sees earlier
     * openings, but does not keep out later ones. */
    bool exclusive, beside;
    const struct plx_patience *patience; /* NULL: waits up to five seconds */
};
int plx_device_open(const char *name, const struct plx_device_open_options *options,
                    struct plx_device **ret_device, struct plx_fault *fault);
void plx_device_close(struct plx_device *device); /* NULL is allowed */
/* Makes an exclusive opening a shared one: openings that waited for it go on. */
int plx_device_share(struct plx_device *device, struct plx_fault *fault);
/* Whether others have the volume open, as far as this machine sees their locks. */
bool plx_device_others(struct plx_device *device);

#endif
