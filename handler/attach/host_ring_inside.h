/* host_ring_inside.h - what host_ring_create.c and host_ring_found.c share. The rules
 * HOST_RING_CREATE-1 to HOST_RING_CREATE-10 are in host_ring_create.c. */
#ifndef PLX_HOST_RING_INSIDE_H
#define PLX_HOST_RING_INSIDE_H

#include "attach/host_ring.h"

struct creation {
    struct plx_attach *attach;
    const struct plx_host_ring_options *options;
    struct plx_known_ring known;
    struct plx_ring_members members;
    uint8_t *buffer;          /* of HEAD_BYTES, for erasing */
    bool written;             /* HOST_RING_CREATE-7 */
    bool takes_over;          /* HOST_RING_CREATE-10 */
    struct plx_fault refused; /* code not 0: the store's ring is entered already */
    struct plx_fault *fault;
};

/* HOST_RING_CREATE-5. *ret_found: what is given is this host's ring of this store, or is to become
 * it, and all of its members. No error, and not found: a ring may be made of it. */
int plx_host_ring_find(struct creation *c, bool *ret_found);
/* HOST_RING_CREATE-8, where the store has a ring that is entered. error: of plx_host_ring_find().
 * 0: the ring that was found takes its place. */
int plx_host_ring_replace(struct creation *c, int error, bool found);
/* The ring that was found: its superblocks say what they are to say from now on. */
int plx_host_ring_take_up(struct creation *c);
/* HOST_RING_CREATE-1. */
int plx_host_ring_allow(struct creation *c);

#endif
