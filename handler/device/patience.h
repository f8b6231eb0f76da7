/* patience.h - how long a call waits for something that another process has.
 *
 * A call that wants a lock, a disk or a volume of another process tries again and again. Between
 * two tries it asks the patience that its caller gave it. It has changed nothing by then. One
 * patience may serve many waits of one call:
 *
 *   since_ns = plx_patience_begin();
 *   do
 *       error = try();
 *   while (error == PLX_ERR_BUSY && plx_patience_waits(patience, since_ns, &why));
 *
 * Threads: the caller's.
 */
#ifndef PLX_PATIENCE_H
#define PLX_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/error.h"

struct plx_patience {
    /* Sleeps for a moment and returns true, or returns false: no longer, the call ends with BUSY.
     * waited_ms: how long the call has waited for this already. why: a sentence about who is in the
     * way. */
    bool (*wait)(void *context, uint64_t waited_ms, const struct plx_fault *why);
    void *context;
};

/* The time when a wait begins, on the monotonic clock. */
uint64_t plx_patience_begin(void);
/* Whether to try again, after a short sleep. patience NULL: no. */
bool plx_patience_waits(const struct plx_patience *patience, uint64_t since_ns,
                        const struct plx_fault *why);

/* The wait() of a patience with a fixed limit for each wait; context: an unsigned, milliseconds. */
bool plx_patience_fixed(void *context, uint64_t waited_ms, const struct plx_fault *why);

#endif
