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

#define PLX_RING_FLIGHTS 16u      /* batches under way, of all chains */
#define PLX_RING_CHAIN_FLIGHTS 8u /* of one */
#define PLX_RING_PIECES_MAX 16u   /* records of a batch that is written from their own memory */
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
    bool copied;                    /* to the member that is joining, as it is now */
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
};

/* A batch under way. */
struct plx_ring_flight {
    enum plx_ring_flight_state state;
    struct plx_ring_chain *chain;
    struct plx_ring_flight *next;            /* of the chain, in order */
    struct plx_ring_item *items, *last_item; /* none: it is a proof's header only */
    uint64_t last_seq;
    uint32_t segment;
    bool header;     /* the segment's goes along */
    uint8_t *buffer; /* segment's header, batch; without blocks in the items' memory (CHAIN-8) */
    /* What is written: of the buffer, then of the items' own memory (CHAIN-8). */
    struct iovec pieces[1 + PLX_RING_PIECES_MAX];
    unsigned piece_count;
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
    uint64_t proof;          /* written into each new segment; 0: it may take none yet */
    bool proving;            /* the proof's first segment waits to be taken */
    uint32_t first, current; /* its segments; NOWHERE: none */
    /* The newest segments whose durable headers have the proof that the record named at first, and
     * the chain's own; NOWHERE: none (CHAIN-7). */
    uint32_t named_part, proof_part;
    uint32_t segments;
    bool begun;  /* `current` was taken in this epoch, so it may get more (CHAIN-2) */
    uint64_t at; /* where in it the next batch goes */
    bool full;
    bool cancelled;
    uint64_t aside; /* plx_ring_chain_info */
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

/* How far the copy of a member is (resilver.c). */
enum plx_ring_resilvering {
    PLX_RESILVER_NONE,
    PLX_RESILVER_ERASING,
    PLX_RESILVER_ERASED,
    PLX_RESILVER_CHOOSING, /* the next segment */
    PLX_RESILVER_READING,
    PLX_RESILVER_WRITING,
    PLX_RESILVER_JOINING,
    PLX_RESILVER_JOINED,
    PLX_RESILVER_COMMITTING,
    PLX_RESILVER_COMMITTED,
    PLX_RESILVER_ADMITTING,
    PLX_RESILVER_ADMITTED,
    PLX_RESILVER_MIRRORING,
};

struct plx_ring_resilver {
    enum plx_ring_resilvering state;
    unsigned from, to; /* members */
    uint32_t segment;
    uint64_t at;   /* in the segment */
    size_t bytes;  /* that are being copied */
    uint32_t left; /* segments that are not copied as they are now */
    unsigned passes;
    bool paused; /* no batch is formed (RESILVER-4) */
    bool stop;   /* the ring is being closed */
    int error;   /* why the last one failed */
    uint8_t *buffer;
    struct plx_ring_join join;
    struct plx_ring_xfer xfers[PLX_RING_MEMBERS];
    struct plx_ring_super super[PLX_RING_MEMBERS]; /* to be written */
    uint8_t *blocks[PLX_RING_MEMBERS];             /* for them */
};

struct plx_ring {
    struct plx_ring_options options;
    /* plx_ring_turn(), for files that wait below it: a turn steps chains and the resilver, too.
     * NULL: the ring is not open, and there are transfers only. */
    bool (*turn)(struct plx_ring *ring);
    void (*wait)(void *context); /* plx_ring_set_wait(); NULL: none */
    void *wait_context;
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
    struct plx_ring_resilver resilver;
    unsigned scans; /* synchronous calls that read or change what members have */
    bool in_turn;
};

static inline uint64_t plx_ring_offset(const struct plx_ring *ring, uint32_t segment)
{
    return PLX_RING_SEGMENTS_AT + segment * ring->segment_bytes;
}

/* A ring of one device that is not open yet. */
static inline struct plx_ring plx_ring_of(struct plx_device *device)
{
    return (struct plx_ring){.members = {{.device = device}}, .count = 1};
}

/* The first member that is not lost; the first one if all are. */
static inline unsigned plx_ring_survivor(const struct plx_ring *ring)
{
    return ring->count > 1 && ring->members[0].lost;
}

static inline unsigned plx_ring_members_left(const struct plx_ring *ring)
{
    unsigned left = 0;

    for (unsigned m = 0; m < ring->count; m++)
        left += !ring->members[m].lost;
    return left;
}

/* A member was lost, and the survivor's new set is not durable yet. */
static inline bool plx_ring_set_is_changing(const struct plx_ring *ring)
{
    return ring->reset != PLX_RESET_NONE && ring->reset != PLX_RESET_MIRRORING;
}

/* The largest batch. */
static inline size_t plx_ring_batch_limit(const struct plx_ring *ring)
{
    return (size_t)plx_min_u64(PLX_RING_BATCH_BYTES_MAX, ring->segment_bytes - PLX_BLOCK_SIZE);
}

/* From this many waiting bytes on a batch of their own pays off (CHAIN-1): transferring them takes
 * longer than starting another I/O. */
static inline size_t plx_ring_batch_enough(const struct plx_ring *ring)
{
    return plx_ring_batch_limit(ring) / 4;
}

/* ---- member.c ---- */

void plx_ring_submit(struct plx_ring *ring, struct plx_ring_xfer *xfer, unsigned member,
                     enum plx_io_op op, uint64_t offset, void *buffer, size_t bytes,
                     struct plx_ring_join *join);
/* Writes these pieces, which stay as they are until the transfer has ended. */
void plx_ring_submit_pieces(struct plx_ring *ring, struct plx_ring_xfer *xfer, unsigned member,
                            uint64_t offset, const struct iovec *pieces, unsigned count,
                            struct plx_ring_join *join);
/* Takes what the devices have completed, without waiting. */
void plx_ring_poll(struct plx_ring *ring);
/* Hands to the devices what was submitted. True: something has completed. */
bool plx_ring_kick(struct plx_ring *ring);
/* Runs the ring, or waits for it, while a synchronous call does. */
void plx_ring_run(struct plx_ring *ring);
/* Until *pending is 0. */
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
/* The member's superblock as it is, but its generation begins anew (RING-6). */
int plx_ring_super_count_anew(struct plx_ring *ring, unsigned member);
/* A new set, with the present one as its ancestor. */
void plx_ring_super_leave_set(struct plx_ring *ring, struct plx_ring_super *super);
/* A write or flush of this member has failed. */
void plx_ring_member_lost(struct plx_ring *ring, unsigned member, int error);
/* For each member whose transfer failed. */
void plx_ring_members_lost(struct plx_ring *ring, const struct plx_ring_join *join);
bool plx_ring_reset_step(struct plx_ring *ring); /* true: something has happened */
/* Runs the ring until the survivor of a loss has its new set, durably (MEMBER-2). */
void plx_ring_settle_set(struct plx_ring *ring);
void plx_ring_event(struct plx_ring *ring, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- parts.c ---- */

/* Reads the headers of all segments. */
int plx_ring_load_parts(struct plx_ring *ring, struct plx_fault *fault);
void plx_ring_part_free(struct plx_ring *ring, uint32_t segment);
/* A write to the segment has ended: what was copied of it counts no more. */
void plx_ring_part_changed(struct plx_ring *ring, uint32_t segment);
/* Around what reads or changes more than one batch of the members, synchronously: no member is
 * added meanwhile. */
void plx_ring_scan_begin(struct plx_ring *ring);
void plx_ring_scan_end(struct plx_ring *ring);
/* The newest segment of the disk with this proof, by any member's header, which is given back;
 * NOWHERE: there is none. */
uint32_t plx_ring_part_of_proof(const struct plx_ring *ring, const struct plx_uuid *vdi,
                                uint64_t proof, struct plx_ring_segment *ret_head);
/* Whether a member's header says that the segment is this disk's. */
bool plx_ring_part_is_of(const struct plx_ring *ring, uint32_t segment, const struct plx_uuid *vdi);
/* Whether a new chain may go on in the position's epoch (RINGED-6): no segment header names the
 * disk, not even that of a free segment. */
bool plx_ring_goes_on(const struct plx_ring *ring, const struct plx_ring_chain_options *options);
/* The chain of this disk was scanned, and does not claim the segment: it is free, unless another
 * member's header says that it is another disk's. */
void plx_ring_part_settle(struct plx_ring *ring, uint32_t segment, const struct plx_uuid *vdi);

/* ---- chain.c ---- */

bool plx_ring_chains_step(struct plx_ring *ring); /* true: something has happened */
/* Begins a flush if a batch waits for one. */
bool plx_ring_flush_begin(struct plx_ring *ring);
/* Puts a segment at the end of a chain. */
void plx_ring_chain_add(struct plx_ring_chain *chain, uint32_t segment, uint64_t last_seq);

/* ---- resilver.c ---- */

bool plx_ring_resilver_step(struct plx_ring *ring); /* true: something has happened */
static inline bool plx_ring_resilver_is_running(const struct plx_ring *ring)
{
    return ring->resilver.state != PLX_RESILVER_NONE;
}

#endif
