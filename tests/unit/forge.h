/* forge.h - a store with something of everything, its check, and forging: structures are written
 * again with right checksums and wrong contents, so that only what the checker knows of the whole
 * can tell.
 */
#ifndef PLX_UNIT_FORGE_H
#define PLX_UNIT_FORGE_H

#include "engine/format/format.h"
#include "unit/fixture.h"

#define EXTENT_BLOCKS (MIB / BLOCK)
#define SEGMENT (MIB / 8)

extern struct plx_uuid store_id;

void make_of(uint64_t bytes, uint64_t extent_bytes);
void make(uint64_t bytes);
/* Blocks that differ. */
void fill(struct plx_vdi *vdi, uint64_t offset, uint64_t length, int byte);
/* v0: two snapshots and later writes; v1: a clone of the first, written; v2: deleted. */
void fill_store(void);
void make_history(void);
/* v0 is left as a crash would leave it, with so many writes behind its key frame. */
void make_crashed(unsigned writes);

/* What a check says. */
struct heard {
    unsigned errors, infos, busy;
    char kinds[400];
    char text[200000];
    struct plx_finding first;
    char vdi[64], volume[64];
    uint64_t deleted, other;
    bool stop;
};
extern struct heard heard;
extern struct plx_check_result checked; /* the last check's */
/* Something happens beside the check, when it reads for the at-th time, or at each such read. */
struct beside {
    unsigned reads, at;
    bool again;
    void (*happens)(void);
};
extern struct beside beside;

void on_found(void *context, const struct plx_finding *finding);
int check_at(uint64_t rate);
void expect_clean(int line);
/* The check finds this kind, and the text holds this. */
void expect(const char *kind, const char *words, int line);
#define CLEAN() expect_clean(__LINE__)
#define EXPECT(kind, words) expect(kind, words, __LINE__)
/* What a disk has cannot be told either, for the accounting or the collector. */
void expect_unaccounted(const char *words, int line);
#define UNACCOUNTED(words) expect_unaccounted(words, __LINE__)

void peek(uint64_t addr, void *block);
void poke(uint64_t addr, const void *block);
void flip(uint64_t addr, unsigned offset);
uint64_t record_addr(uint32_t slot);
struct plx_vdi_record get_record(uint32_t slot);
void put_record(struct plx_vdi_record *record);
/* Loads the leaf of vblock 0; ret_path: node addresses from the root down. */
unsigned load_leaf(const struct plx_vdi_record *record, uint64_t *ret_path, uint8_t *leaf);
uint64_t entry_of(uint32_t slot, unsigned index);
/* Sets one entry of that leaf; what vouched for it on the way does not know a checksum any more. */
void forge_entry(uint32_t slot, unsigned index, uint64_t entry);
/* Sets or clears a block's bit in both copies of its bitmap page. */
void forge_bit(uint64_t addr, bool set);
/* The first extent of a type. */
uint64_t find_extent(enum plx_extent_type type);
/* Batches of v0's log: forged with right checksums. */
uint64_t find_batch(uint64_t seq, struct plx_batch_header *ret_header);
/* Returns the hash that the next batch must have of it. */
uint64_t forge_batch(uint64_t at, const struct plx_batch_header *header, unsigned offset,
                     uint8_t mask);

/* Where an open disk or instant has a block. */
uint64_t addr_of(struct plx_vdi *vdi, uint64_t vblock);
void let_snapshots_go(struct plx_vdi *vdi, uint64_t after, uint64_t upto);

#endif
