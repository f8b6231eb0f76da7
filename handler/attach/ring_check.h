/* ring_check.h - this host's ring of a store against the store: the rings' part of 'store check'.
 * Reads only. Threads: the caller's. */
#ifndef PLX_RING_CHECK_H
#define PLX_RING_CHECK_H

#include "attach/attach.h"
#include "attach/host_ring.h"

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

/* ---- A member of a mirror by itself ---- */

struct plx_ring_member_state {
    uint64_t records; /* that the disks need, on the ring */
    uint64_t damaged; /* of these: only the other member can give them, and both had them once */
    uint64_t behind;  /* likewise, but nothing says that this one ever had them */
    uint32_t headers; /* of segments, that only the other member can give */
};

/* disks: of plx_ring_disks_look(), with the store. All zero where there is no other member. */
void plx_ring_member_weigh(const struct plx_host_ring *ring, const struct plx_ring_disks *disks,
                           const struct plx_ring_member_seen *member,
                           struct plx_ring_member_state *ret_state);
/* CORRUPT, with what is damaged there; the text leaves the next step to the caller. Or 0. */
int plx_ring_member_damage(const struct plx_ring_member_state *state, const char *path,
                           struct plx_fault *fault);
/* The same with the next step; other: the state of the other member. */
int plx_ring_member_explain(const struct plx_ring_member_state *state,
                            const struct plx_ring_member_state *other, const char *path,
                            const char *store, struct plx_fault *fault);

/* A member that the ring has left by the operator's word (RING-7) lies at that path, and has newer
 * writes of a disk than the ring and the store, which may be NULL: EXISTS, and of which disk. 0: it
 * has none, or no such member lies there. */
int plx_ring_check_left(const struct plx_host_ring *ring, struct plx_store *store, const char *path,
                        struct plx_fault *fault);

#endif
