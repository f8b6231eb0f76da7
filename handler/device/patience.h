/* patience.h - whether to wait on for what another process has.
 *
 * Who wants a lock, a disk or a volume that another has asks its caller's patience again and again,
 * before anything was changed. One patience may serve many waits of one call.
 * Threads: the caller's.
 */
#ifndef PLX_PATIENCE_H
#define PLX_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/error.h"

struct plx_patience {
    /* Sleeps for a moment; false: not any longer, that is BUSY. waited_ms: so long already, for
     * this. why: who is in the way. */
    bool (*wait)(void *context, uint64_t waited_ms, const struct plx_fault *why);
    void *context;
};

uint64_t plx_patience_begin(void);
/* since_ns: when what is wanted was asked for first. NULL has no patience. */
bool plx_patience_waits(const struct plx_patience *patience, uint64_t since_ns,
                        const struct plx_fault *why);

/* wait() of a patience that lasts as long for each wait; context: an unsigned, milliseconds. */
bool plx_patience_fixed(void *context, uint64_t waited_ms, const struct plx_fault *why);

#endif
