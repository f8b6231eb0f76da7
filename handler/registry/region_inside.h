/* region_inside.h - what the files of a region share. The rules REGION-1 to REGION-12 are in
 * region.c.
 *
 * Private to region*.c. Functions that SQLite calls have SQLite's signatures and return its result
 * codes. The codes tell SQLite what to do; vfs->fault tells people what happened. */
#ifndef PLX_REGION_INSIDE_H
#define PLX_REGION_INSIDE_H

#include <sqlite3.h>

#include "engine/format/format.h"
#include "registry/region.h"

#define PAGE PLX_BLOCK_SIZE
#define STAMP_AT (PAGE - PLX_REGION_STAMP)
#define STAMPS 1016             /* in a block of the table of stamps */
#define RECORD_BYTES (PAGE + 8) /* one page in SQLite's journal: number, page, checksum */
#define GATHER_BYTES (64 * PAGE)
#define SPACE_MIN (64 * PAGE)
#define MARK 0x64616d61u  /* REGION-8: second word of a damaged page's stamp */
#define ENDED 0x64656e64u /* REGION-11: last word of the journal's first block */
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
    sqlite3_vfs *system; /* SQLite's own file system: its clock and randomness are used */
    char name[40], volume[256];
    struct plx_region region;
    uint64_t space; /* bytes of the database part, and of the journal part */
    struct plx_fault fault;
    int level;                        /* SQLITE_LOCK_NONE to SQLITE_LOCK_EXCLUSIVE */
    bool written;                     /* database pages were written under this lock (REGION-7) */
    bool salvage;                     /* damaged pages may be read (REGION-8) */
    struct plx_region_stamps *stamps; /* REGION-12: the table's blocks, as far as they are known */
    uint64_t stamp_blocks;
    bool stamps_current; /* since the lock was taken, page 1 was compared with them */
    bool stamps_dirty;
    uint64_t from, to; /* journal bytes that are only in `gathered`, not on the device yet */
    bool refused;      /* the device refused those bytes (REGION-10) */
    uint8_t gathered[GATHER_BYTES]; /* starts at the block that contains byte `from` */
};

struct plx_region_file {
    sqlite3_file base;
    struct plx_region_vfs *vfs;
};

/* region_blocks.c */
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
uint32_t plx_region_word_at(const uint8_t *at);
void plx_region_put_word(uint8_t *at, uint32_t word);

/* region_pages.c */
int plx_region_may_write(struct plx_region_vfs *vfs, int result);
uint64_t plx_region_journal_space(const struct plx_region_vfs *vfs);
int plx_region_database_read(sqlite3_file *file, void *buffer, int amount, sqlite3_int64 offset);
int plx_region_database_write(sqlite3_file *file, const void *buffer, int amount,
                              sqlite3_int64 offset);
int plx_region_database_truncate(sqlite3_file *file, sqlite3_int64 bytes);
int plx_region_database_size(sqlite3_file *file, sqlite3_int64 *ret_bytes);
int plx_region_database_sync(sqlite3_file *file, int flags);

/* region_stamps.c. Pages are counted from 1 on, as SQLite does. */
uint64_t plx_region_page_at(const struct plx_region_vfs *vfs, uint64_t number);
uint64_t plx_region_page_count(const struct plx_region *region);
/* Which stamp the page has that was written last; 0: nobody knows. */
int plx_region_stamp_get(struct plx_region_vfs *vfs, uint64_t number, uint32_t *ret_stamp);
/* The page that was just read has this one, and plx_region_stamp_get() knew none. */
void plx_region_stamp_learn(struct plx_region_vfs *vfs, uint64_t number, uint32_t stamp);
int plx_region_stamp_set(struct plx_region_vfs *vfs, uint64_t number, uint32_t stamp);
/* After a lock was taken: what is known still counts if page 1 is the same. */
void plx_region_stamps_compare(struct plx_region_vfs *vfs, const uint8_t first[PAGE]);
void plx_region_stamps_forget(struct plx_region_vfs *vfs);
/* Writes what has changed in the table, and makes it and the pages durable. */
int plx_region_stamps_sync(struct plx_region_vfs *vfs);

/* region_journal.c */
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
