/* gather.h - inside the engine: one virtual disk's writes of new blocks, joined on their way.
 *
 * New blocks follow each other on the store wherever they lie on the disk (issue.c's run), so
 * what a deep queue of small random writes becomes is a sequential stream. Log-structured systems
 * live from writing such a stream in few large transfers; so do we. Threads: the store's loop.
 */
#ifndef PLX_GATHER_H
#define PLX_GATHER_H

#include "engine/loop/store.h"

/* So many transfers may be under way with whatever is in them, another one only with so many
 * writes. The log's batches go by the same numbers (log.c). More of the former costs I/Os, fewer
 * cost time where a device is slow. */
#define PLX_FEW_TRANSFERS 4u
#define PLX_MANY_WRITES 16u
#define PLX_CARRIERS 8u
#define PLX_CARRIER_IOVS 64u

struct plx_carrier {
    struct plx_io io;
    struct plx_gather *gather;
    struct plx_io *first; /* what it carries, linked by next; NULL: it is free */
    struct iovec iovs[PLX_CARRIER_IOVS];
};

struct plx_gather {
    struct plx_store *store;
    struct plx_io *head, *tail; /* held: the io of prepared transfers, linked by next */
    struct plx_carrier carriers[PLX_CARRIERS];
};

void plx_gather_init(struct plx_gather *gather, struct plx_store *store);
/* Takes a prepared write (plx_store_prepare), whose done tells its result as ever. */
void plx_gather_write(struct plx_gather *gather, struct plx_xfer *xfer);
/* Submits what may be: to be called in every turn of the loop. */
void plx_gather_pump(struct plx_gather *gather);

#endif
