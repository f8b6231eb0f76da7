/* scan_inside.h - a scan under way: scan.c follows the chain, scan_judge.c tells whether that is
 * all, scan_look.c reads what they look at.
 */
#ifndef PLX_SCAN_INSIDE_H
#define PLX_SCAN_INSIDE_H

#include "engine/ring/ring_inside.h"

/* A batch of the chain. */
struct plx_scanned {
    uint32_t segment, at, bytes;
    unsigned have; /* a bit for each member that has it, and the header before it */
    uint64_t last_seq;
    uint64_t hash;
};

struct plx_scan {
    struct plx_ring *ring;
    const struct plx_ring_chain_options *options;
    struct plx_fault *fault;
    uint64_t word;
    bool unknown; /* a segment cannot be read from its beginning on, and may be the disk's */
    uint64_t first_epoch, last_epoch; /* what is looked for behind the position */
    uint64_t next;                    /* number of the record that would continue */
    uint64_t epoch, proof;            /* of the last batch */
    uint64_t hash;
    bool hash_known;
    uint32_t segment, at;   /* behind the last batch; NOWHERE: only a new segment continues it */
    uint64_t entered;       /* the position was looked for in segments that begin so; 0: in none */
    bool has_position;      /* its record was found there, or what follows it */
    unsigned position_have; /* a bit for each member that has that batch */
    uint64_t durable;
    uint32_t proof_part; /* has the proof that the mark names; NOWHERE: there is no mark */
    struct plx_ring_segment proof_head; /* of the newest one */
    uint64_t proof_first;     /* the lowest number with which a segment that has the proof begins */
    uint64_t proof_prev_hash; /* of the batch before that */
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

/* The batch that is expected at a block: what must match. */
struct plx_scan_wanted {
    uint64_t epoch, first_seq, prev_hash, proof;
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
/* Looks for the expected batch at block `at` of the segment on the shelf, on any member
 * (SCAN-4). */
enum plx_scan_presence plx_scan_look(const struct plx_scan *scan, uint32_t at,
                                     const struct plx_scan_wanted *wanted,
                                     struct plx_scan_sight *ret_sight);
/* Segments whose headers cannot be believed count as the disk's while it is scanned, if they begin
 * with a batch of it. */
int plx_scan_adopt(struct plx_scan *scan);
void plx_scan_disown(struct plx_scan *scan);
/* Whether a header of the segment, on any member, has this proof for the disk. */
bool plx_scan_has_proof(const struct plx_scan *scan, uint32_t segment, uint64_t proof);

/* ---- scan_judge.c ---- */

/* Where the proof lies that the mark names. */
int plx_scan_find_proof(struct plx_scan *scan);
/* Of a disk with a mark, when its chain was followed: nothing is missing, and nothing is newer than
 * the mark. */
int plx_scan_judge(struct plx_scan *scan);
/* The newest batch of the disk in all its segments. */
int plx_scan_find_newest(struct plx_scan *scan, struct plx_ring_position *newest);
/* What one member has of the chain, and another one lacks. */
void plx_scan_compare(const struct plx_scan *scan, struct plx_ring_look *look);
/* Adds the records that are newer than those of the mark's proof; without a mark: than the
 * position, in any segment, because the chain that leads to them may be gone (RINGED-10). */
int plx_scan_count_newer(struct plx_scan *scan, uint64_t *ret_records);

#endif
