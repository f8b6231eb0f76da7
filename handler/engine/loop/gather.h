/* gather.h - inside the engine: one virtual disk's writes of new blocks, joined on their way.
 *
 * New blocks follow each other on the store, wherever they lie on the disk (issue.c takes them from
 * a run). So a deep queue of small random writes becomes a sequential stream, which goes in few
 * large transfers, as in a log-structured system.
 *
 * Order of calls: plx_store_prepare() a write, then plx_gather_write() instead of
 * plx_store_submit(). plx_gather_pump() in every turn of the loop. The write's buffers stay the
 * caller's and valid until its done. Threads: the store's loop.
 */
#ifndef PLX_GATHER_H
#define PLX_GATHER_H

#include "engine/loop/store.h"

/* Up to PLX_FEW_TRANSFERS transfers are sent at any size. Beyond that, a transfer must carry at
 * least PLX_MANY_WRITES writes. The log's batches go by the same numbers (log.c). A larger first
 * number costs I/Os, a smaller one costs time on a slow device. */
#define PLX_FEW_TRANSFERS 4u
#define PLX_MANY_WRITES 16u
#define PLX_CARRIERS 8u
#define PLX_CARRIER_IOVS 64u

struct plx_carrier {
    struct plx_io io;
    struct plx_gather *gather;
    struct plx_io *first; /* carried writes, linked by next; NULL: the carrier is free */
    struct iovec iovs[PLX_CARRIER_IOVS];
};

struct plx_gather {
    struct plx_store *store;
    struct plx_io *head, *tail; /* waiting writes, linked by next */
    struct plx_carrier carriers[PLX_CARRIERS];
};

void plx_gather_init(struct plx_gather *gather, struct plx_store *store);
/* Takes a prepared write. Its done reports the result, as with plx_store_submit(). */
void plx_gather_write(struct plx_gather *gather, struct plx_xfer *xfer);
/* Submits what may go now. To be called in every turn of the loop. */
void plx_gather_pump(struct plx_gather *gather);

#endif
