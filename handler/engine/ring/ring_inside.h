/* ring_inside.h - what the files of this room share.
 *
 * ring.c opens rings and makes turns, member.c has the devices, superblocks and sets, chain.c what
 * is appended and released, scan.c what is found at opening.
 */
#ifndef PLX_RING_INSIDE_H
#define PLX_RING_INSIDE_H

#include <stdlib.h>
#include <string.h>

#include "engine/ring/ring.h"

#define PLX_RING_FLIGHTS 8u       /* batches under way, of all chains */
#define PLX_RING_CHAIN_FLIGHTS 4u /* of one */
#define PLX_RING_NOWHERE UINT32_MAX

/* ---- Transfers ---- */

/* Several transfers that somebody waits for. */
struct plx_ring_join {
    unsigned pending;
    unsigned failed; /* a bit for each member */
    int error;       /* of the first that failed */
};

struct plx_ring_xfer {
    struct plx_io io;
    struct iovec iov;
    struct plx_ring *ring;
    struct plx_ring_join *join;
    unsigned member;
};

struct plx_ring_member {
    struct plx_device *device;
    struct plx_ring_super super;
    unsigned slot; /* that holds super */
    bool mirrored; /* the other slot is its mirror copy */
    bool lost;     /* out of the set; still read where nobody else has it */
    unsigned under_way;
    struct plx_ring_xfer flush;
};

/* ---- Segments ---- */

enum plx_ring_use {
    PLX_RING_FREE,
    PLX_RING_UNKNOWN, /* a disk's, whose chain was not opened */
    PLX_RING_CHAINED, /* of an open chain */
    PLX_RING_ASIDE,   /* not claimed by the open chain of its disk */
    PLX_RING_BAD,     /* no member has a header that can be believed */
};

/* A segment. Its header may differ between members, because a crash came while it was written. */
struct plx_ring_part {
    struct plx_ring_segment head[PLX_RING_MEMBERS];
    bool whole[PLX_RING_MEMBERS];   /* the header can be believed */
    bool settled[PLX_RING_MEMBERS]; /* its disk's chain was opened and does not need it */
    enum plx_ring_use use;
    uint64_t last_seq; /* CHAINED: number of its last record */
    uint32_t next;     /* CHAINED: the chain's next segment, or NOWHERE */
};

/* ---- Batches and chains ---- */

enum plx_ring_flight_state {
    PLX_FLIGHT_IDLE,
    PLX_FLIGHT_WRITING,
    PLX_FLIGHT_WRITTEN,  /* by all members; waits for a flush that begins now */
    PLX_FLIGHT_FLUSHING, /* the flush that is under way covers it */
    PLX_FLIGHT_DURABLE,  /* batches before it are not */
    PLX_FLIGHT_DEAD,     /* the ring has stopped; its I/O is under way */
};

/* A batch under way. */
struct plx_ring_flight {
    enum plx_ring_flight_state state;
    struct plx_ring_chain *chain;
    struct plx_ring_flight *next; /* of the chain, in order */
    struct plx_ring_item *items, *last_item;
    uint64_t last_seq;
    uint8_t *buffer; /* a segment's header, then the batch */
    struct plx_ring_join join;
    struct plx_ring_xfer xfers[PLX_RING_MEMBERS];
};

struct plx_ring_chain {
    struct plx_ring *ring;
    struct plx_ring_chain *next;
    struct plx_uuid vdi;
    uint64_t epoch;
    uint64_t last_seq, formed_seq, durable_seq, done_seq, released_seq;
    uint64_t hash;           /* of the last batch */
    uint64_t set;            /* that the disk's mark names */
    uint32_t first, current; /* its segments; NOWHERE: none */
    uint32_t segments;
    bool begun;  /* `current` was taken in this epoch, so it may get more (CHAIN-2) */
    uint64_t at; /* where in it the next batch goes */
    bool full;
    struct plx_ring_item *waiting, *last_waiting;
    size_t waiting_bytes; /* of their blocks */
    struct plx_ring_flight *flights, *last_flight;
    struct plx_ring_item *durable, *last_durable; /* not done yet: CHAIN-4 */
};

/* ---- The ring ---- */

/* How far the new set of a survivor is (member.c). */
enum plx_ring_reset {
    PLX_RESET_NONE,
    PLX_RESET_BEGIN,
    PLX_RESET_WRITING,
    PLX_RESET_FLUSHING,
    PLX_RESET_MIRRORING,
};

struct plx_ring {
    struct plx_ring_options options;
    struct plx_ring_member members[PLX_RING_MEMBERS];
    unsigned count; /* members that it was opened with */
    struct plx_uuid id;
    uint64_t set;
    uint32_t segments;
    uint64_t segment_bytes;
    struct plx_ring_part *parts;
    uint32_t free_parts, cursor;
    struct plx_ring_chain *chains, *last_chain;
    struct plx_ring_flight flights[PLX_RING_FLIGHTS];
    uint8_t *memory;
    bool flushing;
    struct plx_ring_join flush_join;
    int sticky;
    enum plx_ring_reset reset;
    struct plx_ring_super next_super;
    struct plx_ring_join reset_join;
    struct plx_ring_xfer reset_xfer;
    uint8_t *reset_block;
    struct plx_ring_read *reads; /* completed, to be looked at */
    bool in_turn;
};

static inline uint64_t plx_ring_offset(const struct plx_ring *ring, uint32_t segment)
{
    return PLX_RING_SEGMENTS_AT + segment * ring->segment_bytes;
}

/* The largest batch. */
static inline size_t plx_ring_batch_limit(const struct plx_ring *ring)
{
    return (size_t)plx_min_u64(PLX_RING_BATCH_BYTES_MAX, ring->segment_bytes - PLX_BLOCK_SIZE);
}

/* ---- member.c ---- */

void plx_ring_submit(struct plx_ring *ring, struct plx_ring_xfer *xfer, unsigned member,
                     enum plx_io_op op, uint64_t offset, void *buffer, size_t bytes,
                     struct plx_ring_join *join);
/* Runs the ring until *pending is 0. */
void plx_ring_run_until_zero(struct plx_ring *ring, const unsigned *pending);
int plx_ring_transfer_sync(struct plx_ring *ring, unsigned member, enum plx_io_op op,
                           uint64_t offset, void *buffer, size_t bytes);
/* Flushes all members that are in the set. A failure of one of two is its loss (MEMBER-2). */
int plx_ring_flush_members(struct plx_ring *ring);
int plx_ring_flush_member(struct plx_ring *ring, unsigned member);
/* Reads both slots of a member. */
int plx_ring_super_read(struct plx_ring *ring, unsigned member, struct plx_fault *fault);
/* Makes it the member's superblock, in two slots, with the next generation. */
int plx_ring_super_write(struct plx_ring *ring, unsigned member,
                         const struct plx_ring_super *super);
/* A set of this member's own, which it has instead of the present one. */
void plx_ring_super_leave_set(struct plx_ring *ring, struct plx_ring_super *super);
/* A write or flush of this member has failed. */
void plx_ring_member_lost(struct plx_ring *ring, unsigned member, int error);
/* For each member whose transfer failed. */
void plx_ring_members_lost(struct plx_ring *ring, const struct plx_ring_join *join);
bool plx_ring_reset_step(struct plx_ring *ring); /* true: something has happened */
void plx_ring_event(struct plx_ring *ring, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- chain.c ---- */

bool plx_ring_chains_step(struct plx_ring *ring); /* true: something has happened */
/* Begins a flush if a batch waits for one. */
bool plx_ring_flush_begin(struct plx_ring *ring);
void plx_ring_part_free(struct plx_ring *ring, uint32_t segment);
/* Puts a segment at the end of a chain. */
void plx_ring_chain_add(struct plx_ring_chain *chain, uint32_t segment, uint64_t last_seq);

/* ---- parts.c ---- */

/* Reads the headers of all segments. */
int plx_ring_load_parts(struct plx_ring *ring, struct plx_fault *fault);
/* Whether a member's header says that the segment is this disk's. */
bool plx_ring_part_is_of(const struct plx_ring *ring, uint32_t segment, const struct plx_uuid *vdi);
/* The chain of this disk was scanned, and does not claim the segment: it is free, unless another
 * member's header says that it is another disk's. */
void plx_ring_part_settle(struct plx_ring *ring, uint32_t segment, const struct plx_uuid *vdi);

#endif
