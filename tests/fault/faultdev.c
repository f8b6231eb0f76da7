/* faultdev.c - see faultdev.h.
 *
 * FAULTDEV-1  A write is remembered, with what it replaced, until a flush submitted after its
 *     completion has ended; a flush that drops the cache succeeds on the disk beneath, and then
 *     takes some of those back, newest first, unless something newer lies over them.
 * FAULTDEV-2  A torn write is passed on cut short, so that the disk beneath knows of nothing else.
 */
#include "fault/faultdev.h"

#include <stdlib.h>
#include <string.h>

#include "fault/alloc.h"

struct under_way {
    struct under_way *next;
    struct plx_io *io, inner; /* inner: what the other device gets */
    struct fault_device *device;
    int error;    /* instead of the result */
    bool refused; /* never passed on */
    uint64_t completed_before;
    uint64_t number; /* of completion; 0: not yet */
    bool dropped;    /* the flush drops what is in the cache */
    uint8_t *old;    /* what a write replaces */
    uint8_t *torn;   /* its beginning, which is all that gets there */
    struct iovec iov;
    uint64_t offset;
    size_t bytes;
};

struct fault_device {
    struct plx_device device; /* first */
    struct plx_device *inner;
    struct plx_simdisk *disk;
    struct fault_plan *plan;
    struct under_way *pending, *cached; /* cached: newest first (FAULTDEV-1) */
    uint64_t completions;
};

static struct fault_device *device_of(struct plx_device *device)
{
    return (struct fault_device *)device;
}

static void under_way_free(struct under_way *u)
{
    free(u->old);
    free(u->torn);
    free(u);
}

static void forget(struct fault_device *f, uint64_t up_to)
{
    struct under_way **link = &f->cached;

    while (*link) {
        struct under_way *u = *link;

        if (u->number > up_to) {
            link = &u->next;
            continue;
        }
        *link = u->next;
        under_way_free(u);
    }
}

static bool overlap(const struct under_way *a, const struct under_way *b)
{
    return a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

static bool covered(const struct fault_device *f, const struct under_way *write)
{
    for (const struct under_way *u = f->cached; u; u = u->next)
        if (u->number > write->number && overlap(u, write))
            return true;
    for (const struct under_way *u = f->pending; u; u = u->next)
        if (u->io->op == PLX_IO_WRITE && overlap(u, write))
            return true;
    return false;
}

static void drop_cache(struct fault_device *f, uint64_t up_to)
{
    for (struct under_way *u = f->cached; u; u = u->next)
        if (u->number <= up_to && !covered(f, u) && plx_simrng_chance(&f->plan->rng, 50)) {
            plx_simdisk_poke(f->disk, u->offset, u->old, u->bytes);
            u->bytes = 0; /* covers nothing older any more */
        }
}

/* FAULTDEV-2 */
static void tear(struct fault_device *f, struct under_way *u)
{
    size_t block = f->device.block_size, bytes = u->bytes, at = 0;

    if (plx_simrng_chance(&f->plan->rng, 50))
        bytes = plx_simrng_below(&f->plan->rng, u->bytes / block + 1) * block;
    u->refused = bytes == 0;
    if (u->refused)
        return;
    u->torn = malloc(u->bytes);
    for (int i = 0; i < u->io->iovcnt; i++) {
        memcpy(u->torn + at, u->io->iov[i].iov_base, u->io->iov[i].iov_len);
        at += u->io->iov[i].iov_len;
    }
    u->bytes = bytes;
    u->iov = (struct iovec){u->torn, bytes};
    u->inner.bytes = bytes;
    u->inner.iov = &u->iov;
    u->inner.iovcnt = 1;
}

static void decide(struct fault_device *f, struct under_way *u)
{
    struct fault_plan *plan = f->plan;
    enum plx_io_op op = u->io->op;
    bool counts = plan->kind == FAULT_IO_LOST ? op == PLX_IO_WRITE
                  : plan->kind == FAULT_IO_FLUSH || plan->kind == FAULT_IO_DROP
                      ? op == PLX_IO_FLUSH
                      : plan->kind != FAULT_IO_NONE;

    plan->counted += counts;
    if (plan->kind == FAULT_IO_LOST) {
        if (plan->counted < plan->k || op == PLX_IO_READ)
            return;
        u->error = PLX_ERR_LOST;
    } else {
        if (!counts || plan->counted != plan->k)
            return;
        u->error = op == PLX_IO_READ ? PLX_ERR_IO_READ : PLX_ERR_IO_WRITE;
    }
    plan->failed++;
    u->dropped = plan->kind == FAULT_IO_DROP;
    u->refused = plan->kind != FAULT_IO_DROP;
    if (plan->kind == FAULT_IO_TORN && op == PLX_IO_WRITE)
        tear(f, u);
}

static void finish(struct under_way *u)
{
    struct fault_device *f = u->device;
    struct under_way **link = &f->pending;
    struct plx_io *io = u->io;
    bool keep = !u->refused && io->op == PLX_IO_WRITE;

    while (*link != u)
        link = &(*link)->next;
    *link = u->next;
    io->result = u->error ? u->error : u->inner.result;
    if (u->dropped)
        drop_cache(f, u->completed_before);
    if (io->op == PLX_IO_FLUSH && !u->refused)
        forget(f, u->completed_before);
    if (keep) {
        u->number = ++f->completions;
        u->next = f->cached;
        f->cached = u;
    } else {
        under_way_free(u);
    }
    fault_alloc_resume();
    io->done(io);
    fault_alloc_suspend();
}

static void inner_done(struct plx_io *inner)
{
    finish(inner->owner);
}

static void fault_submit(struct plx_device *device, struct plx_io *io)
{
    struct fault_device *f = device_of(device);
    struct under_way *u;

    fault_alloc_suspend();
    u = calloc(1, sizeof *u);
    u->io = io;
    u->inner = *io;
    u->inner.done = inner_done;
    u->inner.owner = u;
    u->device = f;
    u->offset = io->offset;
    u->bytes = io->bytes;
    u->completed_before = f->completions;
    if (io->op == PLX_IO_WRITE) {
        u->old = malloc(io->bytes);
        plx_simdisk_peek(f->disk, io->offset, u->old, io->bytes);
    }
    u->next = f->pending;
    f->pending = u;
    decide(f, u);
    if (!u->refused)
        f->inner->ops->submit(f->inner, &u->inner);
    fault_alloc_resume();
}

static bool fault_kick(struct plx_device *device)
{
    struct fault_device *f = device_of(device);

    return f->inner->ops->kick(f->inner);
}

static int fault_poll(struct plx_device *device, bool wait)
{
    struct fault_device *f = device_of(device);
    int completed = 0;

    fault_alloc_suspend();
    for (bool found = true; found;) { /* a completion may change the list */
        found = false;
        for (struct under_way *u = f->pending; u && !found; u = u->next) {
            if (!u->refused)
                continue;
            finish(u);
            completed++;
            found = true;
        }
    }
    completed += f->inner->ops->poll(f->inner, wait && !completed);
    fault_alloc_resume();
    return completed;
}

static void fault_close(struct plx_device *device)
{
    struct fault_device *f = device_of(device);

    PLX_ASSERT(!f->pending);
    forget(f, UINT64_MAX);
    f->inner->ops->close(f->inner);
    free(f);
}

struct plx_device *fault_device_attach(struct plx_simdisk *disk, struct fault_plan *plan)
{
    static const struct plx_device_ops ops = {
        .submit = fault_submit, .kick = fault_kick, .poll = fault_poll, .close = fault_close};
    struct fault_device *f = calloc(1, sizeof *f);

    f->inner = plx_simdisk_attach(disk, "disk");
    f->device = *f->inner;
    f->device.ops = &ops;
    f->disk = disk;
    f->plan = plan;
    return &f->device;
}

void fault_plan_arm(struct fault_plan *plan, enum fault_io kind, uint64_t k)
{
    *plan = (struct fault_plan){.kind = kind, .k = k, .rng = {k * 7 + (uint64_t)kind}};
}

bool fault_plan_heal(struct fault_plan *plan)
{
    plan->kind = FAULT_IO_NONE;
    return plan->failed > 0;
}
