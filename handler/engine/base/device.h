/* device.h - the seam between the engine and a block device or file.
 *
 * Requests are asynchronous. submit() takes a request and never fails: the result comes through
 * io->done, which the device calls from poll() and from nowhere else. kick() hands what was
 * submitted to the kernel (or network) in one go. All calls of one device come from one thread at
 * a time, wait() and interrupt() apart. A read or write is within the device and a multiple of
 * block_size (offset and length); buffers may have any alignment, the device copies where its
 * transport needs more.
 *
 * A completed write survives a power cut only after a flush submitted after its completion has
 * completed, unless volatile_cache is false.
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

/* What a transfer is for; only counted. */
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
    const struct iovec *iov; /* sums up to bytes; stays valid until done */
    int iovcnt;
    int result; /* 0 or PLX_ERR_*; valid in done */
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
    /* Returns true when poll() has work that wait() does not know of: what was done without the
     * kernel. */
    bool (*kick)(struct plx_device *device);
    /* Calls done for what has completed. With wait it blocks until something has, if anything is
     * under way: a second or so at most, for another device may have what the caller waits for.
     * Returns the number of completions. */
    int (*poll)(struct plx_device *device, bool wait);
    /* Blocks until poll() has work, for about a second at most; may return without. From one
     * thread that is not bound to that of the other calls, while they go on. */
    void (*wait)(struct plx_device *device);
    /* Makes a wait() that goes on, or the next one, return: soon, unless a poll() comes between;
     * it ends by itself then. From any thread, one at a time. */
    void (*interrupt)(struct plx_device *device);
    /* The size that it has now, which becomes device->bytes if that was smaller. Nothing is under
     * way. NULL: the device cannot tell without being opened anew. */
    int (*measure)(struct plx_device *device, struct plx_fault *fault);
    void (*close)(struct plx_device *device); /* nothing is under way */
};

struct plx_device {
    const struct plx_device_ops *ops;
    char name[256];      /* path or URL, for messages; no secret is in it */
    uint64_t bytes;      /* size */
    uint32_t block_size; /* logical block: 512 or 4096 */
    bool volatile_cache; /* completed writes need a flush to be durable */
    bool read_only;
    bool made;                 /* a file that was not there before this opening */
    struct plx_bytelock *used; /* the drivers', of this opening; NULL: none */
};

/* device/libaio.c: a regular file or block device. device/iscsi.c: an iscsi:// URL, without a
 * password (device/credentials.h: INVALID with one). plx_device_open picks by the name. With
 * create_bytes > 0 a missing file is made of that size. */
struct plx_device_open_options {
    bool read_only;
    uint64_t create_bytes;
    /* 0: 256. 1 is for small transfers that are waited for one by one: cheap to open and to close,
     * without wait() and interrupt(); kick() may block until what was submitted is done. */
    unsigned queue_depth;
    /* Every opening of a volume shares it with the others of this machine, by a lock. Two kinds do
     * not: an exclusive one waits until nobody else has it open, and keeps others out (BUSY); one
     * beside another of this process takes no part. One that is exclusive and read_only, where
     * nothing can be written, does not keep out who comes later. */
    bool exclusive, beside;
    const struct plx_patience *patience; /* NULL: waits up to five seconds */
};
int plx_device_open(const char *name, const struct plx_device_open_options *options,
                    struct plx_device **ret_device, struct plx_fault *fault);
void plx_device_close(struct plx_device *device); /* NULL is fine */
/* An exclusive opening is shared from now on: others that only waited for it go on. */
int plx_device_share(struct plx_device *device, struct plx_fault *fault);
/* Whether others have the volume open, as far as their locks are seen here. */
bool plx_device_others(struct plx_device *device);

#endif
