/* identity.h - UUIDs, and by which names a disk's record knows a write-back ring. */
#ifndef PLX_IDENTITY_H
#define PLX_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

struct plx_uuid {
    uint8_t b[16];
};

/* A write-back ring (format_ring.h) may hold what the disk lacks: all records behind the disk's
 * position with this epoch or a later one. Only with that ring may the disk be used. set 0: there
 * is no mark, and all is zero. */
struct plx_ring_mark {
    struct plx_uuid ring;
    uint64_t set;   /* of the members that have it */
    uint64_t proof; /* a random number that the ring has of the disk, and older copies have not */
    uint64_t since; /* an epoch of the disk */
};

/* The last record of a ring that the store has of the disk, by its number and the epoch in which it
 * was appended, not the one in which it reached the store: scanning a ring relies on that (SCAN-2).
 * All zero: none yet. */
struct plx_ring_position {
    uint64_t epoch, seq;
};

/* A ring that the caller has open. A disk whose record is marked is opened only if this ring has
 * all that the mark names, if any ring is given at all. */
struct plx_fault;
struct plx_vdi_record;
struct plx_ring_at_hand {
    /* 0, or RING_AWAY and why. */
    int (*check)(const struct plx_ring_at_hand *at_hand, const struct plx_vdi_record *record,
                 struct plx_fault *fault);
};

static inline bool plx_ring_is_marked(const struct plx_ring_mark *mark)
{
    return mark->set != 0;
}

#endif
