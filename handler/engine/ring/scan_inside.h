/* scan_inside.h - a scan under way: scan.c follows the chain, scan_look.c reads what it looks at.
 */
#ifndef PLX_SCAN_INSIDE_H
#define PLX_SCAN_INSIDE_H

#include "engine/ring/ring_inside.h"

/* A batch of the chain. */
struct plx_scanned {
    uint32_t segment, at, bytes;
    unsigned have; /* a bit for each member that has it, and the header before it */
    uint64_t last_seq;
};

struct plx_scan {
    struct plx_ring *ring;
    const struct plx_ring_chain_options *options;
    struct plx_fault *fault;
    uint64_t word;
    uint64_t first_epoch, last_epoch; /* what is looked for behind the position */
    uint64_t next;                    /* number of the record that would continue */
    uint64_t epoch;                   /* of the last batch */
    uint64_t hash;
    bool hash_known;
    uint32_t segment, at; /* behind the last batch; NOWHERE: only a new segment continues it */
    uint32_t entered;     /* the segment where the position was looked for, or NOWHERE */
    uint64_t durable;
    int (*found)(void *context, const struct plx_ring_found *found);
    void *context;
    uint64_t bytes;
    struct plx_scanned *batches;
    size_t count, capacity;
    /* One segment, as each member has it. */
    uint32_t shelved;
    uint8_t *shelf[PLX_RING_MEMBERS];
    bool *unreadable[PLX_RING_MEMBERS]; /* for each block */
};

/* What is wanted at a place. */
struct plx_scan_wanted {
    uint64_t epoch, first_seq, prev_hash;
    bool hash_known;
};

enum plx_scan_presence {
    PLX_SCAN_ABSENT,
    PLX_SCAN_PRESENT,
    PLX_SCAN_UNREADABLE,
};

/* A batch that was found. */
struct plx_scan_sight {
    struct plx_ring_batch batch;
    uint64_t hash;
    const uint8_t *bytes;
    unsigned have;
};

static inline uint32_t plx_scan_blocks(const struct plx_scan *scan)
{
    return (uint32_t)(scan->ring->segment_bytes / PLX_BLOCK_SIZE);
}

static inline bool plx_scan_uses(const struct plx_scan *scan, unsigned m)
{
    return m < scan->ring->count && !scan->ring->members[m].lost;
}

int plx_scan_nomem(struct plx_fault *fault);
/* Reads a segment of all members to the shelf. */
int plx_scan_shelve(struct plx_scan *scan, uint32_t segment);
/* In the segment on the shelf, by whoever has it (SCAN-4). */
enum plx_scan_presence plx_scan_look(const struct plx_scan *scan, uint32_t at,
                                     const struct plx_scan_wanted *wanted,
                                     struct plx_scan_sight *ret_sight);
/* The newest record that a batch of the disk in the segment on the shelf calls durable, of this
 * epoch or a later one. */
uint64_t plx_scan_newest_durable(const struct plx_scan *scan, uint64_t epoch);

#endif
