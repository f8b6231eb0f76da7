/* faultdev.h - a device that passes everything on to another one, until it is told to fail. */
#ifndef PLX_FAULTDEV_H
#define PLX_FAULTDEV_H

#include "engine/base/device.h"
#include "sim/simdisk.h"

enum fault_io {
    FAULT_IO_NONE,
    FAULT_IO_ONCE,  /* the k-th I/O fails; a write changes nothing */
    FAULT_IO_TORN,  /* the same, but a write gets there all the same, wholly or in part */
    FAULT_IO_LOST,  /* from the k-th write on, writes and flushes fail */
    FAULT_IO_FLUSH, /* the k-th flush fails, and nothing else happens */
    FAULT_IO_DROP,  /* the k-th flush fails, and some of what it was to make durable is gone */
};

/* Outlives the devices made for it. */
struct fault_plan {
    enum fault_io kind;
    uint64_t k, counted, failed;
    struct plx_simrng rng;
};

/* A device on the disk; allocations of the simulator are not counted (alloc.h). */
struct plx_device *fault_device_attach(struct plx_simdisk *disk, struct fault_plan *plan);

void fault_plan_arm(struct fault_plan *plan, enum fault_io kind, uint64_t k);
/* From now on nothing fails. Returns whether anything did. */
bool fault_plan_heal(struct fault_plan *plan);

#endif
