/* identity.h - UUIDs, as bytes and as text; by which names a disk's record knows a write-back ring.
 * No state, any thread. */
#ifndef PLX_IDENTITY_H
#define PLX_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

struct plx_uuid {
    uint8_t b[16];
};

#define PLX_UUID_TEXT 37 /* 36 characters and the 0 */

/* A UUID as text: groups of 8, 4, 4, 4 and 12 hexadecimal digits in lower case. Parsing accepts
 * this form only, and returns false otherwise. ret_id may be NULL. */
void plx_uuid_text(const struct plx_uuid *id, char ret_text[PLX_UUID_TEXT]);
bool plx_uuid_parse(const char *text, struct plx_uuid *ret_id);
bool plx_uuid_is_zero(const struct plx_uuid *id);
bool plx_uuid_equal(const struct plx_uuid *a, const struct plx_uuid *b);
/* The UUID of a VDI for people: its id. In a copy of a store with an identity of its own it is made
 * from identity and id, so that different disks never have the same. */
struct plx_uuid plx_uuid_shown(const struct plx_uuid *store, const struct plx_uuid *identity,
                               const struct plx_uuid *vdi);

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
