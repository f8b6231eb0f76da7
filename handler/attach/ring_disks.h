/* ring_disks.h - which virtual disks have to do with a ring, by its segments and by their records
 * on the store. Reads only. Threads: the caller's.
 */
#ifndef PLX_RING_DISKS_H
#define PLX_RING_DISKS_H

#include "engine/engine.h"
#include "engine/ring/ring.h"

struct plx_ring_disk {
    struct plx_uuid id;
    char name[PLX_NAME_MAX + 1]; /* empty: the store has no such disk, or was not asked */
    bool marked;                 /* its record names this ring, without which it cannot be used */
    uint32_t segments;           /* of this disk on the ring */
    /* What its chain holds; nothing is known of that without the store, or with a problem. */
    bool looked;
    struct plx_ring_look look;
    struct plx_ring_position position; /* of one with a name: what the store has */
    uint64_t newer;           /* of a marked one, even with a problem: records of a newer store */
    struct plx_fault problem; /* code not 0: why the chain could not be read */
};

struct plx_ring_disks {
    struct plx_ring_disk *disk; /* by name, those without one at the end */
    size_t count, capacity;
    size_t marked;
    unsigned untold; /* records on the store that cannot be read: any of them may name the ring */
};

/* ring: its UUID. loaded: the ring, open to look; NULL: no member of it can be read. store: open;
 * NULL: nobody knows what the records say. in_use: somebody is writing to the ring, so what lies on
 * it is not looked at. */
int plx_ring_disks_look(const struct plx_uuid *ring, struct plx_ring *loaded,
                        struct plx_store *store, bool in_use, struct plx_ring_disks *ret_disks,
                        struct plx_fault *fault);
void plx_ring_disks_done(struct plx_ring_disks *disks);

#endif
