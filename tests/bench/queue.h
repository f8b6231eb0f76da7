/* queue.h - requests under way, of a benchmark that turns the store's loop itself.
 *
 * The first request that fails ends the program: a figure of it would be worth nothing.
 */
#ifndef PLX_BENCH_QUEUE_H
#define PLX_BENCH_QUEUE_H

#include "engine/engine.h"

#define BENCH_DEPTH 32u

/* Waits until fewer than BENCH_DEPTH are under way. data NULL: there is none to transfer; else it
 * stays as it is until the request is done. */
void bench_submit(struct plx_store *store, struct plx_vdi *vdi, enum plx_request_op op,
                  uint64_t offset, uint64_t length, void *data);
/* Until none is under way. */
void bench_drain(struct plx_store *store);

#endif
