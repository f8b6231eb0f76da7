/* format.h - every structure on the store: layout, encode, decode, validate.
 *
 * This room is the only one that knows byte offsets. Everything on the store is little-endian.
 *
 * Gates. Whoever reads a structure passes the bytes through plx_format_*_decode(), and whoever
 * writes one makes the bytes with plx_format_*_encode(). A decode gate checks the magic number, the
 * checksum (CRC32C of the whole structure with the checksum field zero), the store's UUID where the
 * structure has it, and the bounds of every number. So the code behind a gate may use each number
 * as it is, whatever was on the medium (INV-7). A refusal is explained in *fault. All calls are
 * stateless and allocate nothing; any thread may make them.
 *
 *     error = plx_format_vdi_record_decode(block, &store->info.id, slot, limit, &record, fault);
 *     if (error)
 *         return error;       NOT_FOUND: the slot was never used; CORRUPT: *fault says why
 *     record.generation = plx_generation_next(record.generation);
 *     plx_format_vdi_record_encode(&store->info.id, &record, block);
 *
 * Where things lie. A volume is a row of extents. Extent 0 of each volume is a system extent:
 *
 *     block 0, 1      superblock, slots A and B
 *     block 2, 3      of volume 0: home page; of the others: number page; slots A and B
 *     block 15        spare superblock, for when a partition table was written over the others
 *     block 16...     VDI records, two blocks (slots A and B) each
 *
 * Volume 0 may have further system extents. Its superblock lists them as spans, each with its kind.
 * The registry, an SQLite database, lies in such spans (registry/region.c says how).
 *
 * Every other extent starts with its header pages, two blocks (slots A and B) each. Page 0 says
 * type and owner; every page carries 32,000 bits of the allocation bitmap. The usable blocks
 * follow.
 *
 * Two slots. Superblocks, header pages and VDI records are overwritten, so each has two slots. The
 * valid slot with the higher generation counts.
 *     1. A new state goes to the slot that does not count, with the next even generation.
 *        Crash or torn write: the old state is whole in the other slot, and counts.
 *     2. The writer flushes. Now the new state is durable.
 *     3. The writer puts a mirror copy over the old state, with the odd generation before.
 *        Crash or torn write: the new state counts.
 * So the only durable copy is never overwritten, and damage to one slot is made good by the other.
 * A mirror copy also proves to a reader that the state is durable, because it is written later.
 * Three structures are exceptions. Superblocks of a new store have generation 1 in both slots. The
 * slots of the home page are written for different reasons (registry/tenancy.c). A number page has
 * no mirror: its slots are written in turns. Nodes and log segments go to free blocks and
 * have one copy. So has data, which may be overwritten in place.
 *
 * A common block may be named by any number of leaf entries and MAP records (share.c). The top bit
 * of such an address is set, and the superblock of such a store has the feature bit COMMON.
 *
 * Ranges. A volume that became larger after other volumes had followed it has further ranges of
 * extent numbers. They lie behind its first range on the volume. Only the superblock of such a
 * volume has the feature bit RANGES.
 *
 * Which volumes belong to the store, volume 0 says. Another volume's superblock may still name
 * fewer volumes. A volume that only its own superblock counts was being added when a crash came
 * (grow.c).
 *
 * Room for later programs. A new structure of the whole store becomes a system span of a new kind.
 * What one disk needs goes into its record and its log: unused bytes are zero and pass the gates.
 * A new type of log record needs a bit in `incompatible`. Three masks of feature bits say what a
 * program may do with a store that has a bit the program does not know:
 *     incompatible      refuse the store
 *     read-compatible   only read it
 *     compatible        use it
 *
 * Superblock                          Extent page                    VDI record
 *   0 magic "PLXSUPER"                  0 magic "PLXEXTNT"             0 magic "PLXVDREC"
 *   8 checksum, 12 version              8 checksum                     8 checksum
 *  16 features: compatible             12 type, 13 sealed              12 state, 13 sector shift
 *  24   read-compatible                14 page number                  14 overwrite, 15 doubted
 *  32   incompatible                   16 store                        16 store
 *  40 store, 56 volume                 32 extent number                32 VDI
 *  72 generation                       40 owner (instance)             48 generation, 56 epoch
 *  80 volume index, 84 volumes         48 generation                   64 owner, 72 owner's host
 *  88 first extent, 96 extents         56 owner's host                 88 created
 * 104 extent blocks                    72 pages in this extent         96 parent, 112 parent seq
 * 112 segment blocks                   96 bitmap, 4,000 bytes         120 slot, 124 name length
 * 116 VDI slots per volume                                            128 name
 * 120 created, 128 name               Home page                       384 key frame (80 bytes)
 * 192 further ranges, from 256 on:      0 magic "PLXHOME."            464 log: first segment,
 *     first extent, 8 extents           8 checksum, 12 open           472 index root, 480 levels,
 *     (16 bytes each)                  16 store, 32 generation        488 address of its segment,
 * 196 system spans, from 2048 on:      40 host, 56 boot               496 and of the next one
 *     kind, 8 first extent,            72 device, 80 inode            512 protection: mode,
 *     16 extents (32 bytes each)       88 counter, 96 host name       513 tiers, 520 interval
 * 208 identity                        168 number                      528 tiers, 16 bytes each
 * 224 cluster, 240 its line                                          1024 oldest key frame
 *                                     Number page                    1104 origin: root, 1112 levels
 *                                       0 magic "PLXNUMBR"           1116 rewinds, from 2048 on
 *                                       8 checksum, 16 store            (32 bytes each)
 *                                      32 number                     1120 rewinds that history has
 *                                                                     moved past
 *                                                                    1128 newest pass (vouch.c)
 *                                                                    1136 ring's mark: ring,
 *                                                                    1152 member set, 1160 proof
 *                                                                    1168 since which epoch
 *                                                                    1176 ring's position: epoch,
 *                                                                    1184 record
 *
 * Key frame (80 bytes): 0 root, 8 levels, 16 disk's size, 24 position, 32 last batch, 40 its hash,
 * 48 snapshots, 56 time, 64 mapped blocks plus 1, 72 mapped blocks with a known checksum plus 1. In
 * the last two, 0 means not known.
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
 * 184 offset of its first batch                                          frame
 *                                                                     REWIND: seq; then key frame
 *                                                                     RING: record; then its epoch
 */
#ifndef PLX_FORMAT_H
#define PLX_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"

#define PLX_FORMAT_VERSION 2u
#define PLX_SUPERBLOCK_SLOTS 2
#define PLX_SUPERBLOCK_SPARE 15u /* a block: repeats the newest superblock, or zeroes */
#define PLX_VDI_TABLE_BLOCK 16u
#define PLX_EXTENT_PAGE_BITS 32000u
#define PLX_EXTENT_BLOCKS_MIN 256u
#define PLX_EXTENT_BLOCKS_MAX (512u << 10)
#define PLX_VDI_SLOTS_MAX 4096u
#define PLX_SEGMENT_BLOCKS_MAX 256u
#define PLX_SEGMENT_HEADER_BYTES PLX_BLOCK_SIZE
#define PLX_INDEX_LEVELS 3u /* of the tree that finds a log's segments */
/* The upper bound of generations, epochs, sequence numbers and log positions. No store lives long
 * enough to count this far, so a gate refuses a larger number as damage, and arithmetic on numbers
 * that passed a gate cannot overflow.
 *
 * A writer counts on from what it read, and the result must pass the gate again. So writing begins
 * only while a counter is in the lower half, for a lifetime of use does not add the upper half. A
 * store with a counter above that can still be read. */
#define PLX_COUNTER_MAX (1ull << 60)
static inline bool plx_counter_has_room(uint64_t counter)
{
    return counter <= PLX_COUNTER_MAX / 2;
}

/* ---- Checksums ---- */

uint32_t plx_crc32c(const void *bytes, size_t count);
uint32_t plx_crc32c_more(uint32_t crc, const void *bytes, size_t count);
/* The 24 bits of a checksum that a radix entry holds. Never 0, which means unknown. */
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

/* Whether the entry names a block, and that block is not common. */
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
/* Sets the read-only bit of every entry that names something: a snapshot sees it. */
void plx_node_set_read_only(void *node);
/* The gate of nodes. Each entry names a block of the store or nothing, and only a leaf (level 1)
 * names common blocks. */
bool plx_format_node_valid(const void *node, unsigned level, uint64_t addr_limit);

/* ---- Superblock ---- */

#define PLX_RANGES_MAX 64u                  /* ranges of one volume */
#define PLX_INCOMPATIBLE_RANGES (1ull << 0) /* this volume has more than one range */
#define PLX_INCOMPATIBLE_COMMON (1ull << 1) /* volume 0 only: the store may have common blocks */
#define PLX_INCOMPATIBLE_RING (1ull << 2)   /* volume 0 only: a ring may have what disks lack */
/* Volume 0 only: the registry is a cluster's (registry/clustered.h). What lies in the registry's
 * spans counts for nothing. */
#define PLX_INCOMPATIBLE_CLUSTER (1ull << 3)
#define PLX_READ_COMPATIBLE_KNOWN 0ull

struct plx_superblock_range {
    uint64_t first, extents;
};

/* System extents of volume 0 beside its extent 0. A program leaves spans of an unknown kind alone.
 * A kind that every program must know has a feature bit as well. */
#define PLX_SYSTEM_SPANS_MAX 16u
#define PLX_SYSTEM_REGISTRY 1u

struct plx_superblock_span {
    uint32_t kind;
    uint64_t first, extents; /* all in one range of the volume */
};

struct plx_superblock {
    uint64_t compatible, read_compatible, incompatible;
    struct plx_uuid store, volume; /* UUIDs that the gates compare */
    struct plx_uuid identity;      /* UUID for people; a copy of a store gets its own */
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
    struct plx_cluster cluster; /* zero without PLX_INCOMPATIBLE_CLUSTER */
};

void plx_format_superblock_encode(const struct plx_superblock *super, void *block);
int plx_format_superblock_decode(const void *block, struct plx_superblock *ret_super,
                                 struct plx_fault *fault);
/* Whether two valid superblocks are the same but for the generation, that is, each mirrors the
 * other. */
bool plx_format_superblock_same(const void *block, const void *other);
/* The extents of all ranges. */
uint64_t plx_superblock_extents(const struct plx_superblock *super);
/* Whether an extent of this volume belongs to the store itself: it holds no data or metadata of
 * disks. */
bool plx_superblock_is_system(const struct plx_superblock *super, uint64_t extent);

/* ---- Home page ---- */

#define PLX_HOME_BLOCK 2u /* slot A, a block of volume 0; slot B follows it */

/* Which host has the store, and through which inode that host reaches volume 0. registry/tenancy.c
 * has the rules. A zero host: nobody has the store. */
struct plx_home {
    uint64_t generation;
    struct plx_uuid host, boot;
    char host_name[65];     /* for people only */
    uint64_t device, inode; /* as stat() numbers them */
    uint64_t counter;       /* rises while somebody has the store open */
    bool open;              /* at the time of writing, somebody had it open to write */
    uint64_t number; /* of the store's openings and closings (attach/numbers.c); 0: unknown */
};

void plx_format_home_encode(const struct plx_uuid *store, const struct plx_home *home, void *block);
/* NOT_FOUND: the block is all zero, so it was never written. */
int plx_format_home_decode(const void *block, const struct plx_uuid *store,
                           struct plx_home *ret_home, struct plx_fault *fault);

/* ---- Number page ---- */

#define PLX_NUMBER_BLOCK 2u /* slot A, a block of each volume but volume 0; slot B follows it */

/* A volume's number: attach/numbers.c has the rules. An even one goes to slot A, an odd one to slot
 * B. 0 marks a slot whose number was lost: it is decoded as damage (NUMBERS-8). */
void plx_format_number_encode(const struct plx_uuid *store, uint64_t number, void *block);
/* NOT_FOUND: the block is all zero, or another store's. */
int plx_format_number_decode(const void *block, const struct plx_uuid *store, uint64_t *ret_number,
                             struct plx_fault *fault);

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

/* The generation of the state that follows this one. It is even; its mirror copy is the odd number
 * below it. */
static inline uint64_t plx_generation_next(uint64_t generation)
{
    return (generation | 1) + 1;
}

/* What a reader of two slots has found: the highest generation, which counts, and the other one. */
struct plx_newest {
    bool found;
    uint64_t generation, other;
};

/* A slot is whole and has this generation. true: it counts, of those so far. */
static inline bool plx_newest_take(struct plx_newest *newest, uint64_t generation)
{
    bool counts = !newest->found || generation > newest->generation;

    newest->other = counts ? newest->generation : generation;
    newest->generation = counts ? generation : newest->generation;
    newest->found = true;
    return counts;
}

/* Whether the other slot is the mirror copy of the one that counts. That proves the latter durable,
 * because the mirror copy is written only after a flush. */
static inline bool plx_newest_mirrored(const struct plx_newest *newest)
{
    return newest->generation % 2 == 0 && newest->other == newest->generation - 1;
}

static inline uint32_t plx_extent_pages(uint64_t extent_blocks)
{
    return (uint32_t)plx_div_up(extent_blocks, PLX_EXTENT_PAGE_BITS);
}

/* Where the bitmap lies inside the block of a page. plx_format_extent_page_encode() expects it
 * there. */
uint8_t *plx_format_extent_bits(void *block);
void plx_format_extent_page_encode(const struct plx_uuid *store, const struct plx_extent_page *page,
                                   void *block);
int plx_format_extent_page_decode(const void *block, const struct plx_uuid *store, uint64_t extent,
                                  uint32_t page, uint32_t pages, struct plx_extent_page *ret_page,
                                  struct plx_fault *fault);

/* ---- Key frame reference and VDI record ---- */

/* A key frame is the checkpoint of a disk's map: the whole map as a radix tree at a log position,
 * and the state of the log there. Replay starts at a key frame. */
struct plx_keyframe {
    uint64_t root; /* an entry; read-only bit: a snapshot sees the whole tree */
    uint32_t levels;
    uint64_t size_bytes;
    uint64_t pos;       /* where the log goes on after it */
    uint64_t batch_seq; /* the last batch that it includes */
    uint64_t prev_hash; /* that batch's hash */
    uint64_t snap_seq;  /* snapshots taken before it */
    /* No snapshot after it is older than this, none before it is newer. */
    uint64_t time_ns;
    /* Blocks that its tree maps, and those of them whose checksum is known. Either may be
     * PLX_MAPPED_UNKNOWN: key frames of older programs do not say. */
    uint64_t mapped;
    uint64_t vouched;
};

#define PLX_REWINDS_PAST_MAX (1u << 31) /* the count stops here */

/* A rewind: a key frame that gave the disk the contents of an older snapshot (rewind.c). That
 * snapshot and all its tree names are held until history begins at this key frame or later. */
struct plx_rewind {
    /* position of that key frame; the log before it led to other contents */
    uint64_t pos;
    uint64_t seq;  /* the snapshot whose contents came back */
    uint64_t root; /* an entry; read-only */
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
    /* The oldest key frame that is kept. History begins there: snapshots up to its snap_seq are
     * gone. */
    struct plx_keyframe oldest;
    /* Of a clone: entry of the tree that it began with. At least a part of that tree is its
     * parent's. */
    uint64_t origin_root;
    uint32_t origin_levels;
    struct plx_rewind rewind[PLX_REWINDS_MAX]; /* oldest first */
    uint32_t rewinds;
    /* rewinds that are no longer in the table, because history begins after them */
    uint32_t rewinds_past;
    uint64_t vouched_ns; /* when the newest vouch pass ended (vouch.c); 0: never */
    /* In-place writes may be readable without being durable (vouch.c). */
    bool doubted;
    /* The log. Retained segments have the numbers first_segment to keyframe.pos / segment size.
     * index_root is the tree of their addresses. The segment at keyframe.pos is at segment_addr; 0:
     * there is none yet. */
    uint64_t first_segment;
    uint64_t index_root; /* an entry */
    uint32_t index_levels;
    uint64_t segment_addr;
    uint64_t next_addr;               /* allocated for the segment after that one */
    struct plx_protection protection; /* all zero, as in records of older programs: off */
    struct plx_ring_mark mark;
    struct plx_ring_position position; /* as of the key frame */
};

void plx_format_vdi_record_encode(const struct plx_uuid *store, const struct plx_vdi_record *record,
                                  void *block);
/* NOT_FOUND: the block is all zero, so the slot was never used. */
int plx_format_vdi_record_decode(const void *block, const struct plx_uuid *store, uint32_t slot,
                                 uint64_t addr_limit, struct plx_vdi_record *ret_record,
                                 struct plx_fault *fault);

/* ---- Log ---- */

struct plx_segment_header {
    struct plx_uuid vdi;
    uint64_t epoch, segment, next_addr, first_batch, prev_hash, snap_seq, time_ns;
    struct plx_keyframe keyframe;
    uint32_t start; /* offset of the first batch; any batch before it is gone */
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
/* Completes the header and the checksum of the batch in the buffer. Returns the batch's hash. */
uint64_t plx_format_batch_encode(const struct plx_batch_header *header, void *buffer);
/* Checks all but the contents of the records. available: readable bytes at buffer. CORRUPT means
 * that there is no batch here, which is the normal end of a log. */
int plx_format_batch_decode(const void *buffer, size_t available, struct plx_batch_header *ret);

enum plx_record_type {
    PLX_RECORD_MAP = 1,
    PLX_RECORD_UNMAP = 2,
    PLX_RECORD_VOID = 3, /* vblock: number of the first leaf; count: leaves */
    PLX_RECORD_SNAPSHOT = 4,
    PLX_RECORD_LABEL = 5,
    PLX_RECORD_RESIZE = 6,
    PLX_RECORD_KEYFRAME = 7, /* announces a key frame; flag: none of its nodes was freed */
    PLX_RECORD_SKIP = 8,     /* alone in its batch: the log goes on at this key frame */
    PLX_RECORD_REWIND = 9,   /* announces a key frame that replaying the log does not lead to */
    PLX_RECORD_RING = 10,    /* the disk has all of a ring up to this position */
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
    struct plx_ring_position position; /* RING */
};

#define PLX_RECORD_MAP_MAX 1024u    /* blocks in one MAP record */
#define PLX_RECORD_UNMAP_MAX 32768u /* and in one UNMAP record: bounds what applying it costs */

size_t plx_record_bytes(enum plx_record_type type, uint64_t count);
/* Each encodes a record into out and returns the bytes used (plx_record_bytes()). */
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
size_t plx_record_put_ring(void *out, const struct plx_ring_position *position);
/* Whether the record announces a key frame. */
static inline bool plx_record_announces(const struct plx_record *record)
{
    return record->type == PLX_RECORD_KEYFRAME || record->type == PLX_RECORD_REWIND;
}
uint32_t plx_record_checksum(const struct plx_record *record, uint64_t index);
/* Decodes the record at *offset of a batch and moves *offset past it. What the record names lies
 * below addr_limit and within the largest disk. */
int plx_record_next(const void *batch, const struct plx_batch_header *header, size_t *offset,
                    uint64_t addr_limit, struct plx_record *ret_record);

#endif
