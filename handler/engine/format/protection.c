/* protection.c - the limits of a disk's protection settings, for its record and the registry. */
#include "engine/engine.h"

static int check_tier(const struct plx_tier *tier, const struct plx_tier *finer,
                      struct plx_fault *fault)
{
    if (tier->keep_ns == 0 || tier->keep_ns > PLX_KEEP_MAX_NS || tier->every_ns > tier->keep_ns)
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "a tier keeps one snapshot every so often for longer than that, and "
                             "at most 100 years");
    if (finer && (tier->every_ns <= finer->every_ns || tier->keep_ns <= finer->keep_ns))
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "each tier is coarser and kept longer than the one before it");
    return 0;
}

int plx_protection_check(const struct plx_protection *p, struct plx_fault *fault)
{
    bool interval = p->mode == PLX_PROTECT_INTERVAL;

    if ((unsigned)p->mode > PLX_PROTECT_WRITE || (!interval && p->interval_ns))
        return plx_fault_set(fault, PLX_ERR_INVALID, "there is no such mode of protection");
    if (interval && (p->interval_ns < PLX_INTERVAL_MIN_NS || p->interval_ns > PLX_INTERVAL_MAX_NS))
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "the interval between snapshots is 1 ms to 1 day");
    if (p->tiers > PLX_TIERS_MAX)
        return plx_fault_set(fault, PLX_ERR_INVALID, "at most %d tiers", PLX_TIERS_MAX);
    for (uint32_t i = 0; i < p->tiers; i++) {
        int error = check_tier(&p->tier[i], i ? &p->tier[i - 1] : NULL, fault);

        if (error)
            return error;
    }
    return 0;
}
