/* region_inside.h - what the files of a region share; the rules REGION-1 to REGION-11 are
 * region.c's.
 *
 * Private to region*.c. Functions that SQLite calls have its signatures and result codes. */
#ifndef PLX_REGION_INSIDE_H
#define PLX_REGION_INSIDE_H

#include <sqlite3.h>

#include "engine/format/format.h"
#include "registry/region.h"

#define PAGE PLX_BLOCK_SIZE
#define STAMP_AT (PAGE - PLX_REGION_STAMP)
#define RECORD_BYTES (PAGE + 8) /* a page in the journal */
#define GATHER_BYTES (64 * PAGE)
#define SPACE_MIN (64 * PAGE)
#define MARK 0x64616d61u  /* REGION-8 */
#define ENDED 0x64656e64u /* REGION-11, the last word of the journal's first block */
#define JOURNAL PLX_REGION_FILE "-journal"

enum part {
    PART_DATABASE,
    PART_JOURNAL,
};

enum lock_byte {
    BYTE_PENDING = PLX_BYTE_SQLITE,
    BYTE_RESERVED,
    BYTE_SHARED,
};

struct plx_region_vfs {
    sqlite3_vfs base;
    sqlite3_vfs *system; /* clock and randomness */
    char name[40], volume[256];
    struct plx_region region;
    uint64_t space; /* bytes of each part */
    struct plx_fault fault;
    int level;         /* SQLite's lock */
    bool written;      /* pages of the database, under this lock (REGION-7) */
    bool salvage;      /* REGION-8 */
    uint64_t from, to; /* of the journal: bytes that are in gathered and not on the device */
    bool refused;      /* they could not be written (REGION-10) */
    uint8_t gathered[GATHER_BYTES]; /* begins with the block that has from */
};

struct plx_region_file {
    sqlite3_file base;
    struct plx_region_vfs *vfs;
};

/* region_pages.c */
uint64_t plx_region_space(const struct plx_region *region);
int plx_region_check(const struct plx_region *region, const char *volume, struct plx_fault *fault);
int plx_region_note(struct plx_region_vfs *vfs, int result, int code, const char *what,
                    uint64_t page);
int plx_region_transfer(struct plx_region_vfs *vfs, enum part part, enum plx_io_op op,
                        uint64_t offset, void *buffer, size_t bytes);
int plx_region_read_block(struct plx_region_vfs *vfs, enum part part, uint64_t offset,
                          uint8_t ret_block[PAGE]);
int plx_region_write_blocks(struct plx_region_vfs *vfs, enum part part, uint64_t offset,
                            void *blocks, size_t bytes);
int plx_region_flush(struct plx_region_vfs *vfs);
int plx_region_may_write(struct plx_region_vfs *vfs, int result);
uint32_t plx_region_word_at(const uint8_t *at);
void plx_region_put_word(uint8_t *at, uint32_t word);
int plx_region_database_read(sqlite3_file *file, void *buffer, int amount, sqlite3_int64 offset);
int plx_region_database_write(sqlite3_file *file, const void *buffer, int amount,
                              sqlite3_int64 offset);
int plx_region_database_truncate(sqlite3_file *file, sqlite3_int64 bytes);
int plx_region_database_size(sqlite3_file *file, sqlite3_int64 *ret_bytes);
int plx_region_database_sync(sqlite3_file *file, int flags);

/* region_journal.c */
uint64_t plx_region_journal_space(const struct plx_region_vfs *vfs);
int plx_region_journal_read(sqlite3_file *file, void *buffer, int amount, sqlite3_int64 offset);
int plx_region_journal_write(sqlite3_file *file, const void *buffer, int amount,
                             sqlite3_int64 offset);
int plx_region_journal_end(struct plx_region_vfs *vfs);
int plx_region_journal_truncate(sqlite3_file *file, sqlite3_int64 bytes);
int plx_region_journal_size(sqlite3_file *file, sqlite3_int64 *ret_bytes);
int plx_region_journal_sync(sqlite3_file *file, int flags);
int plx_region_journal_close(sqlite3_file *file);

/* region_locks.c */
int plx_region_database_lock(sqlite3_file *file, int level);
int plx_region_database_unlock(sqlite3_file *file, int level);
int plx_region_database_reserved(sqlite3_file *file, int *ret_reserved);
int plx_region_database_close(sqlite3_file *file);

#endif
