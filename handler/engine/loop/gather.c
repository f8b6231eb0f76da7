/* gather.c - see gather.h.
 *
 * It works as Nagle's algorithm does for TCP. The first few small writes go to the device at once.
 * Writes that come while those are under way wait until one of them completes, or until
 * PLX_MANY_WRITES wait. So a shallow queue waits for nothing, and a deep one needs few
 * transfers.
 *
 * GATHER-1  A write waits only while carriers are under way. Each carrier that completes makes
 *     the loop turn, and each turn calls plx_gather_pump(). So every waiting write goes some day.
 * GATHER-2  No caller relies on an order among writes that are under way. So a large write, which
 *     gains nothing by joining others, goes at once and overtakes the waiting ones.
 * GATHER-3  If a transfer of several writes fails, each write is submitted again by itself. So a
 *     write fails only because of its own blocks.
 * Loop: the store's loop.
 * Crash story: none; a waiting write is not acknowledged.
 */
#include "engine/loop/gather.h"

#include <string.h>

#define ALONE_BYTES (64u << 10) /* a transfer this large gains nothing by joining others */
#define CARRIER_BYTES (256u << 10)

static struct plx_xfer *xfer_of(struct plx_io *io)
{
    return PLX_CONTAINER(io, struct plx_xfer, io);
}

void plx_gather_init(struct plx_gather *gather, struct plx_store *store)
{
    gather->store = store;
    for (unsigned i = 0; i < PLX_CARRIERS; i++)
        gather->carriers[i].gather = gather;
}

void plx_gather_write(struct plx_gather *gather, struct plx_xfer *xfer)
{
    struct plx_io *io = &xfer->io;

    PLX_ASSERT(io->op == PLX_IO_WRITE);
    if (io->bytes >= ALONE_BYTES || io->iovcnt > (int)PLX_CARRIER_IOVS) { /* GATHER-2 */
        plx_store_submit(gather->store, xfer->volume, io);
        return;
    }
    io->next = NULL;
    if (gather->head)
        gather->tail->next = io;
    else
        gather->head = io;
    gather->tail = io;
}

static void carrier_done(struct plx_io *carried)
{
    struct plx_carrier *carrier = PLX_CONTAINER(carried, struct plx_carrier, io);
    struct plx_io *io = carrier->first;
    bool repeat = carried->result && io->next; /* GATHER-3 */

    carrier->first = NULL;
    while (io) {
        struct plx_io *next = io->next;

        io->next = NULL;
        io->result = carried->result;
        if (repeat)
            plx_store_submit(carrier->gather->store, xfer_of(io)->volume, io);
        else
            io->done(io);
        io = next;
    }
}

/* Whether the carrier, which carries something already, can take this write as well. */
static bool fits(const struct plx_carrier *carrier, struct plx_io *io)
{
    return xfer_of(io)->volume == xfer_of(carrier->first)->volume &&
           io->offset == carrier->io.offset + carrier->io.bytes &&
           carrier->io.bytes + io->bytes <= CARRIER_BYTES &&
           carrier->io.iovcnt + io->iovcnt <= (int)PLX_CARRIER_IOVS;
}

/* Loads the carrier with the first waiting write and those that follow it without a gap, and
 * submits it. */
static void send(struct plx_gather *gather, struct plx_carrier *carrier)
{
    struct plx_io *last = NULL, *io = gather->head;

    carrier->first = io;
    carrier->io = (struct plx_io){
        .op = PLX_IO_WRITE,
        .kind = io->kind,
        .offset = io->offset,
        .iov = carrier->iovs,
        .done = carrier_done,
    };
    while (io && fits(carrier, io)) {
        memcpy(carrier->iovs + carrier->io.iovcnt, io->iov, (size_t)io->iovcnt * sizeof *io->iov);
        carrier->io.iovcnt += io->iovcnt;
        carrier->io.bytes += io->bytes;
        last = io;
        io = io->next;
    }
    last->next = NULL;
    gather->head = io;
    plx_store_submit(gather->store, xfer_of(carrier->first)->volume, &carrier->io);
}

static bool many_wait(const struct plx_gather *gather)
{
    unsigned count = 0;

    for (const struct plx_io *io = gather->head; io && count < PLX_MANY_WRITES; io = io->next)
        count++;
    return count == PLX_MANY_WRITES;
}

void plx_gather_pump(struct plx_gather *gather)
{
    unsigned under_way = 0;

    if (!gather->head)
        return;
    for (unsigned i = 0; i < PLX_CARRIERS; i++)
        under_way += gather->carriers[i].first != NULL;
    for (unsigned i = 0; i < PLX_CARRIERS && gather->head; i++) {
        if (gather->carriers[i].first)
            continue;
        if (under_way >= PLX_FEW_TRANSFERS && !many_wait(gather)) /* GATHER-1 */
            break;
        send(gather, &gather->carriers[i]);
        under_way++;
    }
}
