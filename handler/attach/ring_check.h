/* ring_check.h - this host's ring of a store against the store: the rings' part of 'store check'.
 * Reads only. Threads: the caller's. */
#ifndef PLX_RING_CHECK_H
#define PLX_RING_CHECK_H

#include "attach/attach.h"

struct plx_ring_checked {
    unsigned disks;          /* that the ring has something of */
    uint64_t records, bytes; /* that the store lacks */
    bool untold;             /* unknown how many records the ring has of a disk that needs it */
    bool in_use;             /* somebody writes to the ring, so nobody looked at what it has */
};

/* Calls found for what is wrong, or worth knowing: members, segments, and each virtual disk whose
 * record names a ring, or of which the ring has something. ERROR: an acknowledged write may be
 * lost, or cannot be found now. Every text says what to do. */
int plx_ring_check(struct plx_attach *attach,
                   void (*found)(void *context, const struct plx_finding *finding), void *context,
                   struct plx_ring_checked *ret_checked, struct plx_fault *fault);

#endif
