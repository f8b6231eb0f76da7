/* patience.c - see patience.h. Threads: the caller's; nothing is kept here. */
#include "device/patience.h"

#include <stddef.h>
#include <time.h>

#define PAUSE_NS 20000000

uint64_t plx_patience_begin(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

bool plx_patience_waits(const struct plx_patience *patience, uint64_t since_ns,
                        const struct plx_fault *why)
{
    uint64_t waited_ms = (plx_patience_begin() - since_ns) / 1000000;

    return patience && patience->wait(patience->context, waited_ms, why);
}

bool plx_patience_fixed(void *context, uint64_t waited_ms, const struct plx_fault *why)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};

    if (waited_ms >= *(const unsigned *)context)
        return false;
    nanosleep(&pause, NULL);
    return true;
}
