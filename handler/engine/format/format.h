/* format.h - every structure on the store: layout, encode, decode, validate.
 *
 * This is the only module that knows offsets. Everything on the store is little-endian. Each kind
 * passes one gate, plx_format_*_decode(), on every read; encode() is the gate before every write.
 * A gate checks magic, checksum (CRC32C of the whole structure with the checksum field zero),
 * the store's identity where it is recorded, and the bounds of every number; it never trusts what
 * it reads (INV-7) and explains a refusal in *fault.
 *
 * Where things lie. A volume is a row of extents. Extent 0 of each volume is a system extent:
 *
 *     block 0, 1      superblock, slots A and B
 *     block 2, 3      of volume 0: home page, slots A and B
 *     block 15        spare superblock, for when a partition table lies over the others
 *     block 16...     VDI records, two blocks (slots A and B) each
 *
 * Volume 0 may have further system extents, which its superblock lists by what they are for: the
 * registry, an SQLite database, lies in such ones (registry/region.c says how).
 *
 * Every other extent starts with its pages, two blocks (slots A and B) each: page 0 says type and
 * owner, every page carries 32,000 bits of the allocation bitmap. Then come the blocks.
 * A leaf's entry or a MAP record whose address has its top bit set names a common block, which any
 * number of them may name (share.c); a superblock of such a store has the feature bit COMMON.
 * A volume that became larger after others had followed it has further ranges of extents, which lie
 * behind the first one on the volume; only such a superblock has the feature bit RANGES. Which
 * volumes there are volume 0 says; another one may still name fewer of them, and a volume that is
 * named by none but itself was being added when that was interrupted (grow.c).
 * Of two slots the valid one with the higher generation counts. A new state goes to the other slot
 * with the next even generation; when that is durable, the slot it replaced becomes its mirror: the
 * same with the generation before (INV-2). So a torn write costs nothing, what is overwritten is
 * never the only durable copy, and damage to one slot is made good by the other.
 *
 * Room for what comes. Structures of the whole store (pages of hosts, rings, places) are system
 * spans of kinds of their own. What a disk alone needs goes into its record and its log: unused
 * bytes are zero and pass the gates, and a new type of log record needs a bit in `incompatible`.
 * The three masks say who may use a store that has something new: a program that does not know a
 * bit of `incompatible` refuses it, one of `read_compatible` only reads, of `compatible` goes on.
 *
 * Superblock                          Extent page                    VDI record
 *   0 magic "PLXSUPER"                  0 magic "PLXEXTNT"             0 magic "PLXVDREC"
 *   8 checksum, 12 version              8 checksum                     8 checksum
 *  16 features: compatible             12 type, 13 sealed              12 state, 13 sector shift
 *  24   read-compatible                14 page number                  14 overwrite
 *  32   incompatible                   16 store                        16 store
 *  40 store, 56 volume                 32 extent number                32 VDI
 *  72 generation                       40 owner (instance)             48 generation, 56 epoch
 *  80 volume index, 84 volumes         48 generation                   64 owner, 72 owner's host
 *  88 first extent, 96 extents         56 owner's host                 88 created
 * 104 extent blocks                    72 pages in this extent         96 parent, 112 parent seq
 * 112 segment blocks                   96 bitmap, 4,000 bytes         120 slot, 124 name length
 * 116 VDI slots per volume                                            128 name
 * 120 created, 128 name                                               384 key frame (80 bytes)
 * 192 further ranges, 256 each:                                       464 log (48 bytes)
 *     first extent, extents                                           512 protection: mode,
 * 196 system spans, 2048 each:                                        513 tiers, 520 interval
 *     kind (4 bytes), 8 first extent, 16 extents, 32 bytes in all     528 tiers, 16 bytes each
 * 208 identity
 *                                                                    1024 oldest key frame
 *                                                                    1104 origin: root, 1112 levels
 *                                                                    1116 rewinds, from 2048 on:
 *                                                                     32 bytes each
 *                                                                    1120 rewinds that history has
 *                                                                     moved past
 *                                                                    1128 newest pass (vouch.c)
 *
 * Key frame (80 bytes): 0 root, 8 levels, 16 disk's size, 24 position, 32 last batch, 40 its hash,
 * 48 snapshots, 56 time, 64 blocks mapped and one more (0: not known), 72 of these those whose
 * checksum is known, and one more (the same).
 *
 * Log segment header (one block)      Batch                          Record (16 bytes and more)
 *   0 magic "PLXLOGSG"                  0 magic "PLXB", 4 checksum     word 0: bits 0..7 type
 *   8 checksum                          8 sequence                       8 flag, 12..47 vblock,
 *  16 store, 32 VDI                    16 VDI (first 8 bytes)            48..63 count
 *  48 epoch, 56 segment number         24 epoch, 32 time               word 1: by type
 *  64 next segment's address           40 hash of the previous batch   MAP: address; then count
 *  72 first batch sequence             48 durable mark                   32-bit checksums
 *  80 hash of the previous batch       56 bytes, 60 records            SNAPSHOT: seq; then time
 *  88 snapshots before it              64 records, zeroes to the       LABEL: seq; then the name
 *  96 time, 104 key frame in effect       device's block size          KEYFRAME, SKIP: then key
 * 184 where its batches begin                                            frame
 *                                                                     REWIND: seq; then key frame
 */
#ifndef PLX_FORMAT_H
#define PLX_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"

#define PLX_FORMAT_VERSION 2u
#define PLX_SUPERBLOCK_SLOTS 2
#define PLX_SUPERBLOCK_SPARE 15u /* this block: what the newest slot says, or zeroes */
#define PLX_VDI_TABLE_BLOCK 16u
#define PLX_EXTENT_PAGE_BITS 32000u
#define PLX_EXTENT_BLOCKS_MIN 256u
#define PLX_EXTENT_BLOCKS_MAX (512u << 10)
#define PLX_VDI_SLOTS_MAX 4096u
#define PLX_SEGMENT_BLOCKS_MAX 256u
#define PLX_SEGMENT_HEADER_BYTES PLX_BLOCK_SIZE
#define PLX_INDEX_LEVELS 3u /* of the tree of a log's segments */
/* Generations, epochs, sequence numbers and log positions: no store lives to count further, so
 * whatever says more is damage, and arithmetic on what passed a gate does not wrap around. Who
 * writes goes on from what was read, and that must pass the gate again: writing begins only where
 * a counter has room for all that a life of use adds to it, the upper half. Above that the store
 * can still be read. */
#define PLX_COUNTER_MAX (1ull << 60)
static inline bool plx_counter_has_room(uint64_t counter)
{
    return counter <= PLX_COUNTER_MAX / 2;
}

/* ---- Checksums ---- */

uint32_t plx_crc32c(const void *bytes, size_t count);
uint32_t plx_crc32c_more(uint32_t crc, const void *bytes, size_t count);
/* The 24 bits that an entry holds; never 0, which means unknown. */
uint32_t plx_checksum24(uint32_t crc32c);

/* ---- Entries of a radix node (Parallax 3.1) ---- */

#define PLX_ENTRY_READ_ONLY (1ull << 63)
#define PLX_ENTRY_SUPERPAGE (1ull << 62)

static inline uint64_t plx_entry_make(uint64_t addr, uint32_t checksum24)
{
    return addr | (uint64_t)checksum24 << PLX_ADDR_BITS;
}

static inline uint64_t plx_entry_addr(uint64_t entry)
{
    return entry & PLX_ADDR_MAX;
}

/* Whether it names a block that is not common. */
static inline bool plx_entry_is_own(uint64_t entry)
{
    return plx_entry_addr(entry) && !plx_addr_is_common(plx_entry_addr(entry));
}

static inline uint32_t plx_entry_checksum(uint64_t entry)
{
    return (uint32_t)(entry >> PLX_ADDR_BITS) & 0xffffff;
}

static inline uint64_t plx_entry_void(uint64_t entry)
{
    return entry & ~(0xffffffull << PLX_ADDR_BITS);
}

uint64_t plx_node_entry(const void *node, unsigned index);
void plx_node_set_entry(void *node, unsigned index, uint64_t entry);
/* Every entry that names something. */
void plx_node_set_read_only(void *node);
/* The gate: whether every entry names a block of the store, or none. Only leaves name common ones.
 */
bool plx_format_node_valid(const void *node, unsigned level, uint64_t addr_limit);

/* ---- Superblock ---- */

#define PLX_RANGES_MAX 64u                  /* of one volume */
#define PLX_INCOMPATIBLE_RANGES (1ull << 0) /* the volume has more than one */
#define PLX_INCOMPATIBLE_COMMON (1ull << 1) /* of volume 0: the store may have common blocks */
#define PLX_READ_COMPATIBLE_KNOWN 0ull

struct plx_superblock_range {
    uint64_t first, extents;
};

/* System extents of volume 0 beside its extent 0. Kinds that are not known here are left alone; one
 * that must be known has a feature bit, too. */
#define PLX_SYSTEM_SPANS_MAX 16u
#define PLX_SYSTEM_REGISTRY 1u

struct plx_superblock_span {
    uint32_t kind;
    uint64_t first, extents; /* in the first range of the volume, or one of its further ones */
};

struct plx_superblock {
    uint64_t compatible, read_compatible, incompatible;
    struct plx_uuid store, volume; /* what all gates compare */
    struct plx_uuid identity;      /* what people see; a copy may be given one of its own */
    uint64_t generation;
    uint32_t volume_index, volumes;
    struct plx_superblock_range range[PLX_RANGES_MAX]; /* in their order on the volume */
    uint32_t ranges;
    struct plx_superblock_span span[PLX_SYSTEM_SPANS_MAX];
    uint32_t spans;
    uint64_t extent_blocks;
    uint32_t segment_blocks, vdi_slots;
    uint64_t created_ns;
    char name[PLX_STORE_NAME_MAX + 1];
};

void plx_format_superblock_encode(const struct plx_superblock *super, void *block);
int plx_format_superblock_decode(const void *block, struct plx_superblock *ret_super,
                                 struct plx_fault *fault);
/* Whether two whole ones say the same, in whatever generation: each is the other's mirror. */
bool plx_format_superblock_same(const void *block, const void *other);
/* Of all its ranges. */
uint64_t plx_superblock_extents(const struct plx_superblock *super);
/* Whether an extent of this volume holds neither data nor metadata of disks. */
bool plx_superblock_is_system(const struct plx_superblock *super, uint64_t extent);

/* ---- Home page ---- */

#define PLX_HOME_BLOCK 2u /* and the one after it, of volume 0 */

/* Which host has the store, and through which inode it reaches volume 0 (the rules are in
 * registry/tenancy.c). host zero: nobody has it. */
struct plx_home {
    uint64_t generation;
    struct plx_uuid host, boot;
    char host_name[65];     /* for people only */
    uint64_t device, inode; /* as stat() numbers them */
    uint64_t counter;       /* raised again and again while somebody has the store open */
    bool open;              /* somebody had it open for writing, when this was written */
};

void plx_format_home_encode(const struct plx_uuid *store, const struct plx_home *home, void *block);
/* NOT_FOUND when the block is all zero: never written. */
int plx_format_home_decode(const void *block, const struct plx_uuid *store,
                           struct plx_home *ret_home, struct plx_fault *fault);

/* ---- Extent page ---- */

struct plx_extent_page {
    enum plx_extent_type type;
    bool sealed;
    uint16_t page;
    uint32_t pages;
    uint64_t extent;
    uint64_t owner;
    struct plx_uuid owner_host;
    uint64_t generation;
};

/* Of what has two slots: the state after this one. Even: it was made durable before its mirror,
 * which is odd, was written over the state before. */
static inline uint64_t plx_generation_next(uint64_t generation)
{
    return (generation | 1) + 1;
}

/* Whether the one slot holds the mirror of what the other, newer one holds: that is durable then.
 */
static inline bool plx_generation_mirrored(uint64_t newer, uint64_t other)
{
    return newer % 2 == 0 && other == newer - 1;
}

static inline uint32_t plx_extent_pages(uint64_t extent_blocks)
{
    return (uint32_t)plx_div_up(extent_blocks, PLX_EXTENT_PAGE_BITS);
}

/* The bitmap lies inside the block, at plx_format_extent_bits(). */
uint8_t *plx_format_extent_bits(void *block);
void plx_format_extent_page_encode(const struct plx_uuid *store, const struct plx_extent_page *page,
                                   void *block);
int plx_format_extent_page_decode(const void *block, const struct plx_uuid *store, uint64_t extent,
                                  uint32_t page, uint32_t pages, struct plx_extent_page *ret_page,
                                  struct plx_fault *fault);

/* ---- Key frame reference and VDI record ---- */

/* A map written out whole at a log position, and the state of the log there. */
struct plx_keyframe {
    uint64_t root; /* entry; read-only bit: a snapshot sees all of it */
    uint32_t levels;
    uint64_t size_bytes;
    uint64_t pos;       /* log position: where the log goes on after it */
    uint64_t batch_seq; /* the last batch it includes */
    uint64_t prev_hash; /* that batch's hash */
    uint64_t snap_seq;  /* snapshots taken before it */
    uint64_t time_ns;   /* none behind it was taken earlier, none before it later */
    uint64_t mapped;    /* blocks that its tree maps; PLX_MAPPED_UNKNOWN in those of old */
    uint64_t vouched;   /* of these, those whose checksum it knows; the same */
};

#define PLX_REWINDS_PAST_MAX (1u << 31) /* further ones are not counted */

/* A key frame by which the disk's contents became those of an older snapshot (rewind.c), which is
 * held, and so is all that its tree names, until history begins with that key frame or later. */
struct plx_rewind {
    uint64_t pos;  /* the key frame's: the log before it led somewhere else */
    uint64_t seq;  /* the snapshot that it went to */
    uint64_t root; /* entry; read-only */
    uint32_t levels;
};

struct plx_vdi_record {
    enum plx_vdi_state state;
    uint32_t sector_size;
    enum plx_overwrite overwrite;
    struct plx_uuid id;
    uint64_t generation, epoch;
    uint64_t owner;
    struct plx_uuid owner_host;
    uint64_t created_ns;
    struct plx_uuid parent;
    uint64_t parent_seq;
    uint32_t slot;
    char name[PLX_NAME_MAX + 1];
    struct plx_keyframe keyframe;
    /* The oldest one that is kept: history begins there, snapshots up to its snap_seq are gone. */
    struct plx_keyframe oldest;
    uint64_t origin_root; /* entry; of a clone: the tree that it began with, its parent's in part */
    uint32_t origin_levels;
    struct plx_rewind rewind[PLX_REWINDS_MAX]; /* oldest first */
    uint32_t rewinds;
    uint32_t rewinds_past; /* further ones, which history has moved past */
    uint64_t vouched_ns;   /* when quiet blocks had their checksums last (vouch.c), 0: never */
    bool doubted;          /* what was written in place may be readable and not durable (vouch.c) */
    /* The log: retained segments are first_segment..(keyframe.pos / segment size), found through
     * a radix tree of their addresses; the segment that holds keyframe.pos is segment_addr
     * (0: none yet). */
    uint64_t first_segment;
    uint64_t index_root; /* entry */
    uint32_t index_levels;
    uint64_t segment_addr;
    uint64_t next_addr;               /* allocated for the segment after it */
    struct plx_protection protection; /* all zero in records from before there was any: off */
};

void plx_format_vdi_record_encode(const struct plx_uuid *store, const struct plx_vdi_record *record,
                                  void *block);
/* NOT_FOUND when the block is all zero: never used. */
int plx_format_vdi_record_decode(const void *block, const struct plx_uuid *store, uint32_t slot,
                                 uint64_t addr_limit, struct plx_vdi_record *ret_record,
                                 struct plx_fault *fault);

/* ---- Log ---- */

struct plx_segment_header {
    struct plx_uuid vdi;
    uint64_t epoch, segment, next_addr, first_batch, prev_hash, snap_seq, time_ns;
    struct plx_keyframe keyframe;
    uint32_t start; /* offset of the first batch; what lies before it is gone */
};

void plx_format_segment_encode(const struct plx_uuid *store,
                               const struct plx_segment_header *header, void *block);
int plx_format_segment_decode(const void *block, const struct plx_uuid *store,
                              const struct plx_uuid *vdi, uint64_t segment, uint64_t addr_limit,
                              struct plx_segment_header *ret_header, struct plx_fault *fault);

#define PLX_BATCH_HEADER_BYTES 64u
#define PLX_BATCH_BYTES_MAX (64u << 10)

struct plx_batch_header {
    uint64_t seq;
    uint64_t vdi; /* first 8 bytes of the VDI's id */
    uint64_t epoch, time_ns, prev_hash, durable_seq;
    uint32_t bytes; /* whole batch with padding */
    uint32_t records;
};

uint64_t plx_format_vdi_word(const struct plx_uuid *vdi);
/* Completes header and checksum of the batch in buffer; returns its hash. */
uint64_t plx_format_batch_encode(const struct plx_batch_header *header, void *buffer);
/* available: bytes readable at buffer. Checks everything but the records' contents. CORRUPT means
 * "no batch here", the normal end of a log. */
int plx_format_batch_decode(const void *buffer, size_t available, struct plx_batch_header *ret);

enum plx_record_type {
    PLX_RECORD_MAP = 1,
    PLX_RECORD_UNMAP = 2,
    PLX_RECORD_VOID = 3, /* vblock: leaf number, count: leaves */
    PLX_RECORD_SNAPSHOT = 4,
    PLX_RECORD_LABEL = 5,
    PLX_RECORD_RESIZE = 6,
    PLX_RECORD_KEYFRAME = 7, /* flag: all its nodes are kept */
    PLX_RECORD_SKIP = 8,     /* alone in its batch: the log goes on where this key frame lies */
    PLX_RECORD_REWIND = 9,   /* a key frame that the log before it does not lead to */
};

struct plx_record {
    enum plx_record_type type;
    bool flag; /* LABEL: removed; KEYFRAME: whole */
    uint64_t vblock;
    uint64_t count; /* blocks or leaves */
    uint64_t addr;  /* MAP */
    uint64_t seq;   /* SNAPSHOT, LABEL; REWIND: the snapshot that it went to */
    uint64_t time_ns;
    uint64_t size_bytes;      /* RESIZE */
    const uint8_t *checksums; /* MAP: little-endian u32 each, inside the batch */
    char label[PLX_LABEL_MAX + 1];
    struct plx_keyframe keyframe;
};

#define PLX_RECORD_MAP_MAX 1024u    /* blocks in one MAP record */
#define PLX_RECORD_UNMAP_MAX 32768u /* and in one UNMAP record: what it may cost to apply */

size_t plx_record_bytes(enum plx_record_type type, uint64_t count);
/* Encode into out, return the bytes used (plx_record_bytes). */
size_t plx_record_put_map(void *out, uint64_t vblock, uint32_t count, uint64_t addr,
                          const uint32_t *checksums);
size_t plx_record_put_unmap(void *out, uint64_t vblock, uint64_t count);
size_t plx_record_put_void(void *out, uint64_t leaf, uint32_t count);
size_t plx_record_put_snapshot(void *out, uint64_t seq, uint64_t time_ns);
size_t plx_record_put_label(void *out, uint64_t seq, const char *label, bool removed);
size_t plx_record_put_resize(void *out, uint64_t size_bytes);
size_t plx_record_put_keyframe(void *out, const struct plx_keyframe *keyframe, bool whole);
size_t plx_record_put_skip(void *out, const struct plx_keyframe *keyframe);
size_t plx_record_put_rewind(void *out, uint64_t seq, const struct plx_keyframe *keyframe);
/* Whether it says that there is a key frame. */
static inline bool plx_record_announces(const struct plx_record *record)
{
    return record->type == PLX_RECORD_KEYFRAME || record->type == PLX_RECORD_REWIND;
}
uint32_t plx_record_checksum(const struct plx_record *record, uint64_t index);
/* Decodes the record at *offset of a batch and moves *offset past it. addr_limit and vblock_limit
 * bound what it may name. */
int plx_record_next(const void *batch, const struct plx_batch_header *header, size_t *offset,
                    uint64_t addr_limit, struct plx_record *ret_record);

#endif
