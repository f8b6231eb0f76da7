/* libaio_inside.h - an open file or block device, shared by libaio.c and libaio_open.c; libaio.c
 * has the rules. */
#ifndef PLX_LIBAIO_INSIDE_H
#define PLX_LIBAIO_INSIDE_H

#include "device/bytelock.h"
#include "device/drivers.h"
#include "engine/base/units.h"

#include <libaio.h>
#include <pthread.h>
#include <stdatomic.h>

#define TRIES_MAX 4
#define AT_ONCE_MAX 4 /* LIBAIO-6 */
#define CALLS_MAX 250
#define EVENTS_AT_ONCE 64
#define BUFFER_ALIGN 4096
#define CLAIM_TRIES 20
#define CLAIM_DELAY_US 10000

/* The place of one request that is with the kernel or about to be. */
struct aio_slot {
    struct iocb cb; /* first, because the kernel gives its address back */
    struct aio_slot *next_free;
    struct plx_io *io;
    char *bounce;   /* a copy of the request's memory (LIBAIO-3); NULL: none */
    size_t written; /* bytes that earlier tries wrote; the rest is written from the copy */
    unsigned tries;
};

struct aio_device {
    struct plx_device base;
    int fd;
    io_context_t context;
    bool direct;
    bool named;      /* LIBAIO-7: a file that had a name when it was opened */
    bool sync_flush; /* the file system refuses asynchronous flushes */
    struct plx_io_queue waiting;
    struct plx_io_queue finished; /* done without AIO: synchronous flushes, refused requests */
    struct aio_slot *slots, *free_slots;
    unsigned depth, in_kernel, ready_count;
    unsigned calls;      /* requests that were carried out without a context */
    struct iocb **ready; /* slots that are filled and not yet taken by the kernel */

    pthread_mutex_t lock; /* guards what follows (LIBAIO-5) */
    pthread_cond_t got;
    bool getting;
    atomic_uint events_count;
    struct io_event events[EVENTS_AT_ONCE];
    struct iocb nudge; /* interrupt()'s own request, which only makes an event */
};

static inline struct aio_device *aio(struct plx_device *device)
{
    return (struct aio_device *)device;
}

/* libaio_error.c */
int plx_aio_open_error(const char *path, const char *doing, int error, struct plx_fault *fault);

/* libaio.c */
int plx_aio_set_up(struct aio_device *device); /* -errno */
void plx_aio_slot_release(struct aio_device *device, struct aio_slot *slot);
void plx_aio_close(struct plx_device *base);

extern const struct plx_device_ops plx_aio_ops;

#endif
