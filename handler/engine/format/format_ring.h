/* format_ring.h - the write-back ring's structures: layout, encode, decode, validate.
 *
 * A ring is a file or partition of one host, or two that mirror each other (members). It holds
 * writes that were acknowledged and are not on the store yet. The gates are as in format.h: what
 * passed one may be used as it is. All is little-endian, stateless, and for any thread.
 *
 * Where things lie on a member:
 *
 *     block 0, 1      superblock, slots A and B (two slots, as format.h says)
 *     from 1 MiB on   segments, 16 MiB each. Each has a header block; then follow batches
 *
 * A segment belongs to one disk, so a disk that cannot drain holds nobody else up. The records of a
 * disk are numbered 1, 2, 3 and so on, through all segments and epochs, without a gap. Batches form
 * a chain: each one names the hash of the batch before it. Hashes are seeded with the ring's UUID,
 * which is new with each ring that is created; so neither leftovers of an older ring nor a guest's
 * data is taken for a batch. A batch repeats the proof of its segment's header. Segments are used
 * again, and a store that was put back to an older state gives out epochs and numbers again: the
 * proof tells what another future has left from what belongs to the segment. The hash of a batch
 * covers its header and its record heads, and a record head has the hash of the hashes of its
 * blocks. So a record's blocks can be read back and checked alone, and whoever has kept the hashes
 * can read and check each block alone.
 *
 * What a segment's header says fits its first sector, which is written whole or not at all. Every
 * segment has one from the ring's creation on, so a header that cannot be believed is damage.
 *
 * Superblock                          Batch                          Record head (32 bytes)
 *   0 magic "PLXRING."                  0 magic "PLXR"                 0 type
 *   8 checksum, 12 version              8 hash of header and heads     8 block, or snapshot
 *  16 features: compatible             16 disk (first 8 bytes)        16 blocks, or time
 *  24   read-compatible                24 bytes, 28 records           24 hash of a WRITE's blocks
 *  32   incompatible                   32 epoch, 40 first record
 *  40 ring, 56 store, 72 host          48 durable record             Segment header
 *  88 generation, 96 reserved          56 hash of the batch before     0 magic "PLXRSEG."
 * 104 member, 108 members              64 time                         8 checksum of 512 bytes
 * 112 segments, 116 segment blocks     72 proof                       16 ring, 32 disk (0: free)
 * 120 member set                       80 reserved, to 96             48 epoch
 * 128 ancestors, 132 flags             96 record heads                56 first record
 * 136 their ids, 8 bytes each           from the next multiple of     64 hash of the batch before
 * 512 host's name, 64 bytes             4 KiB on: the blocks of       72 proof
 *                                       WRITE records, in order       80 durable record
 *
 * Flags: 1 alone, 2 joining. Features, compatible: 1 a member was left by somebody's word (RING-7).
 *
 * Bounds. Generations, epochs and numbers of records are at most PLX_COUNTER_MAX. What is counted
 * on from must leave room (format.h), too:
 *
 *     generation       begins anew where it leaves none, when the ring is opened (RING-6)
 *     record numbers   go on from the disk's position, which has room (VDI-4), without a gap: no
 *                      ring can hold as many as would be too many
 *     epoch            the disk's, which has room (VDI-4). No record that counts is of a later
 *                      one (SCAN_JUDGE-6)
 *     snapshots        go on from the disk's newest, which has room (VDI-4), without a gap
 *                      (RINGED-7). Times do not: at the end of time they are equal
 *     set, proof       random, not counted. Of more ancestors than fit the oldest goes
 *
 * A member set is a random number. When a member is lost, the other one gets a new set and notes
 * the old one as an ancestor. When a member is added, so do both. A disk's record on the store
 * names a set (format.h), and a member is believed for that disk only if the set is its own or an
 * ancestor.
 *
 * A proof is a random number, too. The disk's record names one, and a member is believed for that
 * disk only if a segment header of the disk has it. Each opening of a chain has a new one.
 *
 * Versions: 1 had no proof in batches and no durable record in segment headers, 2 had one hash over
 * all blocks of a record. They are refused, not read.
 */
#ifndef PLX_FORMAT_RING_H
#define PLX_FORMAT_RING_H

#include "engine/format/format.h"

#define PLX_RING_VERSION 3u
#define PLX_RING_SEGMENT_BYTES (16ull << 20) /* of a ring that a person makes; tests have less */
#define PLX_RING_SEGMENT_BLOCKS_MIN 8u
#define PLX_RING_SEGMENT_BLOCKS_MAX 65536u
#define PLX_RING_SEGMENTS_AT (1ull << 20) /* where the first segment begins */
#define PLX_RING_SEGMENTS_MAX (1u << 20)
#define PLX_RING_ANCESTORS_MAX 32u
#define PLX_RING_LEFT_BY_WORD 1u /* of plx_ring_super.compatible */

struct plx_ring_super {
    uint64_t compatible, read_compatible, incompatible;
    struct plx_uuid ring;  /* new with each ring that is created */
    struct plx_uuid store; /* as it is shown to people: a copy of a store has another */
    struct plx_uuid host;
    char host_name[65]; /* for people only */
    uint64_t generation;
    uint32_t member, members;
    uint32_t segments, segment_blocks;
    bool alone;   /* this member makes up its set by itself: the other one was lost */
    bool joining; /* it is a copy, which counts only if the other member has this set, too */
    uint64_t set;
    uint64_t ancestor[PLX_RING_ANCESTORS_MAX]; /* oldest first */
    uint32_t ancestors;
};

void plx_format_ring_super_encode(const struct plx_ring_super *super, void *block);
/* NOT_FOUND: no ring was ever there. UNSUPPORTED: of another version, *fault says what to do.
 * CORRUPT: *fault says why. */
int plx_format_ring_super_decode(const void *block, struct plx_ring_super *ret_super,
                                 struct plx_fault *fault);
/* Whether a member of this set may be believed for a disk whose record names the set `marked`. */
bool plx_ring_set_descends(const struct plx_ring_super *super, uint64_t marked);

struct plx_ring_segment {
    struct plx_uuid vdi;  /* zero: it is free, and so are the other fields */
    uint64_t epoch;       /* of all its records */
    uint64_t first_seq;   /* number of its first record */
    uint64_t prev_hash;   /* of the batch before it; 0: there was none */
    uint64_t proof;       /* not 0: as long as the disk's record names it, one such segment stays */
    uint64_t durable_seq; /* all up to it were durable when this header was formed */
};

void plx_format_ring_segment_encode(const struct plx_uuid *ring,
                                    const struct plx_ring_segment *segment, void *block);
/* CORRUPT: it was damaged, or is another ring's; *fault says why. */
int plx_format_ring_segment_decode(const void *block, const struct plx_uuid *ring,
                                   struct plx_ring_segment *ret_segment, struct plx_fault *fault);

#define PLX_RING_BATCH_HEADER_BYTES 96u
#define PLX_RING_RECORD_BYTES 32u
#define PLX_RING_HEADS_MAX (8u * PLX_BLOCK_SIZE) /* a batch's header and record heads, at most */
#define PLX_RING_WRITE_MAX 256u                  /* blocks in one WRITE record */
#define PLX_RING_BATCH_BYTES_MAX (PLX_RING_HEADS_MAX + PLX_RING_WRITE_MAX * PLX_BLOCK_SIZE)
#define PLX_RING_RECORDS_MAX                                                                       \
    ((PLX_RING_HEADS_MAX - PLX_RING_BATCH_HEADER_BYTES) / PLX_RING_RECORD_BYTES)

struct plx_ring_batch {
    uint64_t vdi; /* plx_format_vdi_word() */
    uint64_t epoch;
    uint64_t first_seq;   /* number of its first record */
    uint64_t durable_seq; /* all up to it were durable when this batch was formed */
    uint64_t prev_hash;
    uint64_t proof; /* its segment's */
    uint64_t time_ns;
    uint32_t bytes; /* whole batch, a multiple of 4 KiB */
    uint32_t records;
};

/* Where the blocks of a batch begin that has so many records. */
static inline size_t plx_ring_batch_data_at(uint32_t records)
{
    return (size_t)plx_div_up(PLX_RING_BATCH_HEADER_BYTES + records * PLX_RING_RECORD_BYTES,
                              PLX_BLOCK_SIZE) *
           PLX_BLOCK_SIZE;
}

/* Completes the batch in the buffer, whose record heads and blocks are in place. Returns its hash.
 */
uint64_t plx_format_ring_batch_encode(const struct plx_uuid *ring,
                                      const struct plx_ring_batch *batch, void *buffer);
/* What the header says; its hash is not compared, but its numbers are checked. */
int plx_format_ring_batch_head(const void *buffer, size_t available,
                               struct plx_ring_batch *ret_batch);
/* Checks everything, record heads and blocks as well. CORRUPT: there is no batch here, which is the
 * normal end. */
int plx_format_ring_batch_decode(const void *buffer, size_t available, const struct plx_uuid *ring,
                                 struct plx_ring_batch *ret_batch, uint64_t *ret_hash);

enum plx_ring_record_type {
    PLX_RING_WRITE = 1,
    PLX_RING_UNMAP = 2,
    PLX_RING_SNAPSHOT = 3,
};

struct plx_ring_record {
    enum plx_ring_record_type type;
    uint64_t block, blocks;     /* WRITE, UNMAP */
    uint64_t snapshot, time_ns; /* SNAPSHOT */
    uint64_t hash;              /* WRITE: of its blocks, plx_ring_blocks_hash() */
};

/* Of a WRITE record's blocks, at most PLX_RING_WRITE_MAX: of one block its hash, of several the
 * hash of their hashes. ret_sums: gets the blocks' hashes; or NULL. */
uint64_t plx_ring_blocks_hash(const struct plx_uuid *ring, const void *blocks, size_t count,
                              uint64_t *ret_sums);
/* Of a batch's header and record heads. */
uint64_t plx_ring_heads_hash(const struct plx_uuid *ring, const void *batch, uint32_t records);

void plx_format_ring_record_encode(const struct plx_ring_record *record, uint32_t index,
                                   void *buffer);
/* The record with this index. *data_at: where the blocks of the batch's WRITE records up to here
 * end; at first plx_ring_batch_data_at(). A WRITE's blocks begin where it stood before. CORRUPT: it
 * cannot be. */
int plx_format_ring_record_decode(const void *buffer, const struct plx_ring_batch *batch,
                                  uint32_t index, size_t *data_at,
                                  struct plx_ring_record *ret_record);

#endif
