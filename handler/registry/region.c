/* region.c - SQLite's file system in a part of a volume.
 *
 * F1  All I/O is by whole blocks of 4 KiB. A page of the database is written at once, what goes to
 *     the journal is gathered until SQLite asks for its sync; both are read as they were written.
 * F2  The last eight bytes of a page are its stamp: a CRC32C of the others and of the page's
 *     number, and a word that is zero. A page is stamped on its way out and checked on its way in.
 * F3  Nothing is believed that was read without a lock: page 1 may be half written just then.
 * F4  A database whose first page is zero is empty. Any other fills its space, as far as SQLite is
 *     told: its header says how many pages count, and a journal that is rolled back says how many
 *     counted. A size taken from the header would follow a header that is to be rolled back.
 * F5  The journal exists while its first byte is not zero. To delete or truncate it makes that byte
 *     zero, and so does SQLite itself at a commit (journal_mode=PERSIST).
 * F6  The journal's space holds a copy of each page that the database can have, in one piece. Its
 *     last block is never written and reads as zeros: SQLite looks there for the name of another
 *     journal, and would not roll back if it found one.
 * F7  Nothing is written that may_write() did not allow since the lock was taken; once pages of the
 *     database were written, what completes or undoes that is not asked about any more.
 * F8  A damaged page that is read all the same (salvage) carries a mark, also into the journal. It
 *     is as damaged as before when it is written with that mark.
 * F9  All who have a lock have the same spans: they are looked up with each lock, and change only
 *     under EXCLUSIVE, which nobody gets while a journal is left to be rolled back. A span that
 *     comes makes both parts longer and moves nothing; what it holds is never read before it was
 *     written. Without a lock only the two first blocks matter, which stay where they are.
 * F10 The journal of a transaction that fails is what its changes are undone from, in SQLite's
 *     memory, too: it reads as it was written even where the device refused it, until it is begun
 *     anew, ended or closed. What the same transaction adds behind that is refused.
 * F11 A journal is begun only where the end of the one before is durable. That its first byte reads
 *     as zero does not say so: who ended it may have died before his flush, or that flush failed.
 *     A cut could leave his header there with records of ours, and SQLite, whose checksum tells
 *     them apart, would roll back his transaction up to the first of these: a half of it. So the
 *     end is marked once it is durable, in the same block, and where there is no mark it is made
 *     durable first.
 * Locks: SQLite's five states on three bytes, as its own unix VFS has them. PENDING lets a writer
 *   in when readers follow each other without end.
 * Threads: one at a time for each connection.
 * Crash story: SQLite's. A commit writes the journal, flushes, writes how many records count,
 *   flushes, writes the pages, flushes, makes the journal's header zero, flushes. A cut before the
 *   second flush's end leaves the old contents, one before the last one either.
 */
#include "registry/region.h"

#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/format/format.h"
#include "engine/loop/volume.h"

#define PAGE PLX_BLOCK_SIZE
#define STAMP_AT (PAGE - PLX_REGION_STAMP)
#define RECORD_BYTES (PAGE + 8) /* a page in the journal */
#define GATHER_BYTES (64 * PAGE)
#define SPACE_MIN (64 * PAGE)
#define MARK 0x64616d61u  /* F8 */
#define ENDED 0x64656e64u /* F11, the last word of the journal's first block */
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
    bool written;      /* pages of the database, under this lock (F7) */
    bool salvage;      /* F8 */
    uint64_t from, to; /* of the journal: bytes that are in gathered and not on the device */
    bool refused;      /* they could not be written (F10) */
    uint8_t gathered[GATHER_BYTES]; /* begins with the block that has from */
};

struct region_file {
    sqlite3_file base;
    struct plx_region_vfs *vfs;
};

/* ---- Where it lies ----------------------------------------------------------------------- */

static uint64_t space_of(const struct plx_region *region)
{
    uint64_t space = 0;

    for (unsigned i = 0; i < region->spans; i++)
        space += region->span[i].bytes / 2;
    return space;
}

static int check_region(const struct plx_region *region, const char *volume,
                        struct plx_fault *fault)
{
    const struct plx_device *device = region->device;

    PLX_ASSERT(region->spans >= 1 && region->spans <= PLX_REGION_SPANS);
    for (unsigned i = 0; i < region->spans; i++) {
        uint64_t offset = region->span[i].offset, bytes = region->span[i].bytes;

        if (!bytes || bytes % PLX_REGION_UNIT || offset % PAGE)
            return plx_fault_set(fault, PLX_ERR_CORRUPT,
                                 "%.120s: the place of the registry is not valid", volume);
        if (offset > device->bytes || bytes > device->bytes - offset)
            return plx_fault_set(fault, PLX_ERR_CORRUPT,
                                 "%.120s: truncated: the registry lies behind its end; restore "
                                 "the missing part",
                                 volume);
    }
    if (space_of(region) < SPACE_MIN)
        return plx_fault_set(fault, PLX_ERR_CORRUPT,
                             "%.120s: the place of the registry is too small", volume);
    return 0;
}

/* ---- Blocks ------------------------------------------------------------------------------ */

static int note(struct plx_region_vfs *vfs, int result, int code, const char *what, uint64_t page)
{
    if (code)
        plx_fault_set(&vfs->fault, code == PLX_ERR_NOMEM ? code : PLX_ERR_REGISTRY,
                      "cannot %s the registry in %.120s (%llu): %s", what, vfs->volume,
                      (unsigned long long)page, plx_error_text(code));
    return result;
}

/* Whole blocks of one part, wherever its spans lie. */
static int transfer(struct plx_region_vfs *vfs, enum part part, enum plx_io_op op, uint64_t offset,
                    void *buffer, size_t bytes)
{
    const struct plx_region *region = &vfs->region;
    uint64_t begin = 0;
    char *next = buffer;

    PLX_ASSERT(offset % PAGE == 0 && bytes % PAGE == 0 && offset + bytes <= vfs->space);
    for (unsigned i = 0; i < region->spans && bytes; i++) {
        uint64_t half = region->span[i].bytes / 2, here = offset - begin;
        size_t count;
        int code;

        begin += half;
        if (offset >= begin)
            continue;
        count = bytes < half - here ? bytes : half - here;
        code = plx_volume_io(region->device, op,
                             region->span[i].offset + (part == PART_JOURNAL ? half : 0) + here,
                             next, count);
        if (code)
            return code;
        offset += count;
        next += count;
        bytes -= count;
    }
    return 0;
}

static int read_block(struct plx_region_vfs *vfs, enum part part, uint64_t offset,
                      uint8_t ret_block[PAGE])
{
    int code = transfer(vfs, part, PLX_IO_READ, offset, ret_block, PAGE);

    return note(vfs, code ? SQLITE_IOERR_READ : SQLITE_OK, code, "read", offset / PAGE + 1);
}

static int write_blocks(struct plx_region_vfs *vfs, enum part part, uint64_t offset, void *blocks,
                        size_t bytes)
{
    int code;

    if (vfs->region.read_only)
        return SQLITE_READONLY;
    code = transfer(vfs, part, PLX_IO_WRITE, offset, blocks, bytes);
    return note(vfs, code ? SQLITE_IOERR_WRITE : SQLITE_OK, code, "write", offset / PAGE + 1);
}

static int flush(struct plx_region_vfs *vfs)
{
    int code = plx_volume_io(vfs->region.device, PLX_IO_FLUSH, 0, NULL, 0);

    return note(vfs, code ? SQLITE_IOERR_FSYNC : SQLITE_OK, code, "flush", 0);
}

static bool is_zero(const uint8_t block[PAGE])
{
    return !block[0] && !memcmp(block, block + 1, PAGE - 1);
}

static int may_write(struct plx_region_vfs *vfs, int result)
{
    const struct plx_region *region = &vfs->region;

    return !region->may_write || region->may_write(region->context, &vfs->fault) ? SQLITE_OK
                                                                                 : result;
}

/* ---- Pages of the database --------------------------------------------------------------- */

static uint32_t page_crc(const uint8_t page[PAGE], uint64_t number)
{
    uint8_t place[8];

    for (unsigned i = 0; i < 8; i++)
        place[i] = (uint8_t)(number >> (8 * i));
    return plx_crc32c_more(plx_crc32c(page, STAMP_AT), place, sizeof place);
}

static uint32_t word_at(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static void put_word(uint8_t *at, uint32_t word)
{
    for (unsigned i = 0; i < 4; i++)
        at[i] = (uint8_t)(word >> (8 * i));
}

static int check_page(struct plx_region_vfs *vfs, uint8_t page[PAGE], uint64_t number)
{
    if (word_at(page + STAMP_AT) == page_crc(page, number) && !word_at(page + STAMP_AT + 4))
        return SQLITE_OK;
    if (vfs->salvage && number > 1) {
        put_word(page + STAMP_AT + 4, MARK);
        return SQLITE_OK;
    }
    plx_fault_set(&vfs->fault, PLX_ERR_REGISTRY,
                  "the registry in %.120s is damaged (page %llu); run 'parallax store "
                  "rebuild-registry'",
                  vfs->volume, (unsigned long long)number);
    return SQLITE_IOERR_DATA;
}

static void stamp_page(uint8_t page[PAGE], uint64_t number)
{
    bool damaged = word_at(page + STAMP_AT + 4) == MARK; /* F8 */

    put_word(page + STAMP_AT, damaged ? ~page_crc(page, number) : page_crc(page, number));
    put_word(page + STAMP_AT + 4, damaged ? MARK : 0);
}

/* Pages of 4 KiB with eight reserved bytes: else stamps would overwrite what SQLite wrote. */
static bool has_our_layout(const uint8_t first[PAGE])
{
    return first[16] == PAGE >> 8 && first[17] == (PAGE & 0xff) && first[20] == PAGE - STAMP_AT;
}

static int database_read(sqlite3_file *file, void *buffer, int amount, sqlite3_int64 offset)
{
    struct plx_region_vfs *vfs = ((struct region_file *)file)->vfs;
    uint64_t number = (uint64_t)offset / PAGE + 1, inside = (uint64_t)offset % PAGE;
    uint8_t page[PAGE];
    int result;

    memset(buffer, 0, (size_t)amount);
    if (vfs->level == SQLITE_LOCK_NONE) /* F3 */
        return SQLITE_IOERR_SHORT_READ;
    if (number * PAGE > vfs->space || inside + (uint64_t)amount > PAGE)
        return SQLITE_IOERR_SHORT_READ;
    result = read_block(vfs, PART_DATABASE, (number - 1) * PAGE, page);
    if (!result && number == 1 && is_zero(page)) /* F4 */
        return SQLITE_IOERR_SHORT_READ;
    if (!result)
        result = check_page(vfs, page, number);
    if (!result)
        memcpy(buffer, page + inside, (size_t)amount);
    return result;
}

static int database_write(sqlite3_file *file, const void *buffer, int amount, sqlite3_int64 offset)
{
    struct plx_region_vfs *vfs = ((struct region_file *)file)->vfs;
    uint64_t number = (uint64_t)offset / PAGE + 1;
    uint8_t page[PAGE];

    if (number > plx_region_vfs_pages(vfs))
        return SQLITE_FULL;
    if (amount != PAGE || offset % PAGE) /* not a page: the layout is not ours */
        return SQLITE_IOERR_WRITE;
    memcpy(page, buffer, PAGE);
    if (number == 1 && !has_our_layout(page)) {
        plx_fault_set(&vfs->fault, PLX_ERR_REGISTRY,
                      "the registry in %.120s cannot have pages of another layout", vfs->volume);
        return SQLITE_IOERR_WRITE;
    }
    stamp_page(page, number);
    vfs->written = true;
    return write_blocks(vfs, PART_DATABASE, (uint64_t)offset, page, PAGE);
}

static int database_truncate(sqlite3_file *file, sqlite3_int64 bytes)
{
    uint8_t zeros[PAGE] = {0};

    if (bytes) /* F4 */
        return SQLITE_OK;
    return write_blocks(((struct region_file *)file)->vfs, PART_DATABASE, 0, zeros, PAGE);
}

static int database_size(sqlite3_file *file, sqlite3_int64 *ret_bytes)
{
    struct plx_region_vfs *vfs = ((struct region_file *)file)->vfs;
    uint8_t page[PAGE];
    int result = read_block(vfs, PART_DATABASE, 0, page);

    if (!result)
        *ret_bytes = is_zero(page) ? 0 : (sqlite3_int64)plx_region_vfs_pages(vfs) * PAGE; /* F4 */
    return result;
}

static int database_sync(sqlite3_file *file, int flags)
{
    return flush(((struct region_file *)file)->vfs);
}

/* ---- The journal ------------------------------------------------------------------------- */

static uint64_t block_of(uint64_t offset)
{
    return offset - offset % PAGE;
}

static uint64_t journal_space(const struct plx_region_vfs *vfs)
{
    return vfs->space - PAGE; /* F6 */
}

static void drop_gathered(struct plx_region_vfs *vfs)
{
    vfs->from = vfs->to = 0;
    vfs->refused = false;
}

/* F11. The mark itself may be lost: then there is a flush more the next time. */
static int flush_end(struct plx_region_vfs *vfs)
{
    uint8_t block[PAGE] = {0};
    int result = flush(vfs);

    put_word(block + PAGE - 4, ENDED);
    if (!result)
        transfer(vfs, PART_JOURNAL, PLX_IO_WRITE, 0, block, PAGE);
    return result;
}

/* F11. SQLite begins with a whole block, without the number that completes it, and ends with a part
 * of that block. */
static bool begins(const struct plx_region_vfs *vfs)
{
    return !vfs->from && vfs->to >= PAGE;
}

static bool ends(const struct plx_region_vfs *vfs)
{
    return !vfs->from && vfs->to && vfs->to < PAGE && !vfs->gathered[0];
}

/* F11, before a journal begins. */
static int settle_end(struct plx_region_vfs *vfs)
{
    uint8_t block[PAGE];
    int result = read_block(vfs, PART_JOURNAL, 0, block);

    if (result || block[0] || word_at(block + PAGE - 4) == ENDED)
        return result;
    result = write_blocks(vfs, PART_JOURNAL, 0, block, PAGE);
    return result ? result : flush(vfs);
}

/* Fills up the first and the last block with what the device has there, and writes them all. */
static int write_gathered(struct plx_region_vfs *vfs)
{
    uint64_t from = vfs->from, to = vfs->to, begin = block_of(from);
    uint64_t end = block_of(to + PAGE - 1);
    uint8_t block[PAGE];
    int result = SQLITE_OK;

    if (from == to)
        return SQLITE_OK;
    if (!vfs->written)
        result = may_write(vfs, SQLITE_IOERR_WRITE);
    if (!result && begins(vfs))
        result = settle_end(vfs);
    if (!result && from > begin) {
        result = read_block(vfs, PART_JOURNAL, begin, block);
        memcpy(vfs->gathered, block, from - begin);
    }
    if (!result && to < end) {
        result = read_block(vfs, PART_JOURNAL, end - PAGE, block);
        memcpy(vfs->gathered + (to - begin), block + to % PAGE, end - to);
    }
    if (!result)
        result = write_blocks(vfs, PART_JOURNAL, begin, vfs->gathered, end - begin);
    if (result)
        vfs->refused = true;
    else
        drop_gathered(vfs);
    return result;
}

static int journal_read(sqlite3_file *file, void *buffer, int amount, sqlite3_int64 offset)
{
    struct plx_region_vfs *vfs = ((struct region_file *)file)->vfs;
    uint64_t next = (uint64_t)offset, end = next + (uint64_t)amount;
    uint8_t block[PAGE], *to = buffer;

    memset(buffer, 0, (size_t)amount);
    while (next < end && next < journal_space(vfs)) {
        uint64_t inside = next % PAGE, count = PAGE - inside;
        int result = read_block(vfs, PART_JOURNAL, next - inside, block);

        if (result)
            return result;
        if (count > end - next)
            count = end - next;
        memcpy(to + (next - (uint64_t)offset), block + inside, count);
        next += count;
    }
    next = vfs->from > (uint64_t)offset ? vfs->from : (uint64_t)offset;
    if (end > vfs->to)
        end = vfs->to;
    if (next < end)
        memcpy(to + (next - (uint64_t)offset), vfs->gathered + (next - block_of(vfs->from)),
               end - next);
    return (uint64_t)offset + (uint64_t)amount <= vfs->space ? SQLITE_OK : SQLITE_IOERR_SHORT_READ;
}

static int journal_write(sqlite3_file *file, const void *buffer, int amount, sqlite3_int64 offset)
{
    struct plx_region_vfs *vfs = ((struct region_file *)file)->vfs;
    uint64_t next = (uint64_t)offset, end = next + (uint64_t)amount;
    const uint8_t *bytes = buffer;

    if (end > journal_space(vfs))
        return SQLITE_FULL;
    if (vfs->refused && offset)
        return SQLITE_IOERR_WRITE;
    if (vfs->refused) /* F10: begun anew */
        drop_gathered(vfs);
    while (next < end) {
        uint64_t count = end - next, room;

        if (vfs->from != vfs->to &&
            (next < vfs->from || next > vfs->to || next - block_of(vfs->from) == GATHER_BYTES)) {
            int result = write_gathered(vfs);

            if (result)
                return result;
        }
        if (vfs->from == vfs->to)
            vfs->from = vfs->to = next;
        room = GATHER_BYTES - (next - block_of(vfs->from));
        if (count > room)
            count = room;
        memcpy(vfs->gathered + (next - block_of(vfs->from)), bytes, count);
        bytes += count;
        next += count;
        if (next > vfs->to)
            vfs->to = next;
    }
    return SQLITE_OK;
}

/* F5. Durable whether SQLite asks for it or not. It does not when it deletes a journal that it has
 * rolled back; but then the next transaction writes over it in place, and a cut could leave this
 * header with records that are half the next one's. SQLite's checksum looks at every 200th byte of
 * a record only, and takes such a mixture for a page. */
static int journal_end(struct plx_region_vfs *vfs)
{
    uint8_t zeros[PAGE] = {0};
    int result;

    drop_gathered(vfs);
    result = write_blocks(vfs, PART_JOURNAL, 0, zeros, PAGE);
    return result ? result : flush_end(vfs);
}

static int journal_truncate(sqlite3_file *file, sqlite3_int64 bytes)
{
    return bytes ? SQLITE_OK : journal_end(((struct region_file *)file)->vfs);
}

static int journal_size(sqlite3_file *file, sqlite3_int64 *ret_bytes)
{
    *ret_bytes = (sqlite3_int64)((struct region_file *)file)->vfs->space;
    return SQLITE_OK;
}

static int journal_sync(sqlite3_file *file, int flags)
{
    struct plx_region_vfs *vfs = ((struct region_file *)file)->vfs;
    bool at_end = ends(vfs);
    int result = write_gathered(vfs);

    return result ? result : at_end ? flush_end(vfs) : flush(vfs);
}

/* What was not synced belongs to a transaction that failed. */
static int journal_close(sqlite3_file *file)
{
    drop_gathered(((struct region_file *)file)->vfs);
    return SQLITE_OK;
}

/* ---- Locks ------------------------------------------------------------------------------- */

static int set_byte(struct plx_region_vfs *vfs, enum lock_byte byte, enum plx_bytelock_mode mode)
{
    struct plx_bytelock *locks = vfs->region.locks;
    int code = locks->ops->set(locks, byte, mode);

    if (code == PLX_ERR_BUSY)
        return SQLITE_BUSY;
    return note(vfs, code ? SQLITE_IOERR_LOCK : SQLITE_OK, code, "lock", byte);
}

/* F9. Who added a span may have died before it was durable: what is made durable in it from now on
 * must not be more so than the superblock that names it. */
static int take_spans(struct plx_region_vfs *vfs, const struct plx_region *now)
{
    const struct plx_region *region = &vfs->region;
    bool same = now->spans >= region->spans;
    int code;

    for (unsigned i = 0; same && i < region->spans; i++)
        same = now->span[i].offset == region->span[i].offset &&
               now->span[i].bytes == region->span[i].bytes;
    if (!same) {
        plx_fault_set(&vfs->fault, PLX_ERR_CORRUPT,
                      "%.120s: the registry lies elsewhere than when it was opened", vfs->volume);
        return SQLITE_IOERR_LOCK;
    }
    if (now->spans == region->spans)
        return SQLITE_OK;
    code = check_region(now, vfs->volume, &vfs->fault);
    if (code || flush(vfs))
        return SQLITE_IOERR_LOCK;
    vfs->region = *now;
    vfs->space = space_of(now);
    return SQLITE_OK;
}

static int look(struct plx_region_vfs *vfs)
{
    struct plx_region now = vfs->region;

    if (!now.look)
        return SQLITE_OK;
    return now.look(&now, &vfs->fault) ? SQLITE_IOERR_LOCK : take_spans(vfs, &now);
}

static int lock_shared(struct plx_region_vfs *vfs)
{
    int result = set_byte(vfs, BYTE_PENDING, PLX_BYTE_SHARED);

    if (result)
        return result;
    result = set_byte(vfs, BYTE_SHARED, PLX_BYTE_SHARED);
    set_byte(vfs, BYTE_PENDING, PLX_BYTE_UNLOCKED);
    if (result)
        return result;
    result = look(vfs);
    if (result)
        set_byte(vfs, BYTE_SHARED, PLX_BYTE_UNLOCKED);
    else
        vfs->level = SQLITE_LOCK_SHARED;
    return result;
}

static int lock_exclusive(struct plx_region_vfs *vfs)
{
    int result = SQLITE_OK;

    if (vfs->level < SQLITE_LOCK_PENDING)
        result = set_byte(vfs, BYTE_PENDING, PLX_BYTE_EXCLUSIVE);
    if (result)
        return result;
    vfs->level = SQLITE_LOCK_PENDING; /* kept when readers are left: no new ones come */
    result = set_byte(vfs, BYTE_SHARED, PLX_BYTE_EXCLUSIVE);
    if (!result)
        vfs->level = SQLITE_LOCK_EXCLUSIVE;
    return result;
}

static int database_lock(sqlite3_file *file, int level)
{
    struct plx_region_vfs *vfs = ((struct region_file *)file)->vfs;
    int result = SQLITE_OK;

    if (level <= vfs->level)
        return SQLITE_OK;
    if (level == SQLITE_LOCK_SHARED)
        return lock_shared(vfs);
    if (vfs->region.read_only)
        return SQLITE_READONLY;
    if (vfs->level == SQLITE_LOCK_SHARED) /* F7; EXCLUSIVE at once is a roll-back of the dead's */
        result = may_write(vfs, SQLITE_IOERR_LOCK);
    if (result)
        return result;
    if (level == SQLITE_LOCK_EXCLUSIVE)
        return lock_exclusive(vfs);
    result = set_byte(vfs, BYTE_RESERVED, PLX_BYTE_EXCLUSIVE);
    if (!result)
        vfs->level = SQLITE_LOCK_RESERVED;
    return result;
}

static int database_unlock(sqlite3_file *file, int level)
{
    struct plx_region_vfs *vfs = ((struct region_file *)file)->vfs;
    int result = SQLITE_OK, other;

    if (level >= vfs->level)
        return SQLITE_OK;
    if (vfs->level > SQLITE_LOCK_SHARED) {
        result = set_byte(vfs, BYTE_SHARED, PLX_BYTE_SHARED);
        other = set_byte(vfs, BYTE_PENDING, PLX_BYTE_UNLOCKED);
        result = result ? result : other;
        other = set_byte(vfs, BYTE_RESERVED, PLX_BYTE_UNLOCKED);
        result = result ? result : other;
        vfs->written = false;
    }
    if (level == SQLITE_LOCK_NONE) {
        other = set_byte(vfs, BYTE_SHARED, PLX_BYTE_UNLOCKED);
        result = result ? result : other;
    }
    vfs->level = level;
    return result ? SQLITE_IOERR_UNLOCK : SQLITE_OK;
}

static int database_reserved(sqlite3_file *file, int *ret_reserved)
{
    struct plx_region_vfs *vfs = ((struct region_file *)file)->vfs;
    struct plx_bytelock *locks = vfs->region.locks;
    bool busy = vfs->level >= SQLITE_LOCK_RESERVED;
    int code = busy ? 0 : locks->ops->probe(locks, BYTE_RESERVED, &busy);

    if (code)
        return note(vfs, SQLITE_IOERR_CHECKRESERVEDLOCK, code, "lock", BYTE_RESERVED);
    *ret_reserved = busy;
    return SQLITE_OK;
}

static int database_close(sqlite3_file *file)
{
    return database_unlock(file, SQLITE_LOCK_NONE);
}

/* ---- What SQLite sees -------------------------------------------------------------------- */

static int no_lock(sqlite3_file *file, int level)
{
    return SQLITE_OK;
}

static int no_reserved(sqlite3_file *file, int *ret_reserved)
{
    *ret_reserved = 0;
    return SQLITE_OK;
}

static int no_control(sqlite3_file *file, int what, void *argument)
{
    return SQLITE_NOTFOUND;
}

static int sector_size(sqlite3_file *file)
{
    return PAGE;
}

static int characteristics(sqlite3_file *file)
{
    return 0;
}

static const sqlite3_io_methods database_methods = {
    .iVersion = 1, /* no shared memory: neither WAL nor mapped pages */
    .xClose = database_close,
    .xRead = database_read,
    .xWrite = database_write,
    .xTruncate = database_truncate,
    .xSync = database_sync,
    .xFileSize = database_size,
    .xLock = database_lock,
    .xUnlock = database_unlock,
    .xCheckReservedLock = database_reserved,
    .xFileControl = no_control,
    .xSectorSize = sector_size,
    .xDeviceCharacteristics = characteristics,
};

static const sqlite3_io_methods journal_methods = {
    .iVersion = 1,
    .xClose = journal_close,
    .xRead = journal_read,
    .xWrite = journal_write,
    .xTruncate = journal_truncate,
    .xSync = journal_sync,
    .xFileSize = journal_size,
    .xLock = no_lock,
    .xUnlock = no_lock,
    .xCheckReservedLock = no_reserved,
    .xFileControl = no_control,
    .xSectorSize = sector_size,
    .xDeviceCharacteristics = characteristics,
};

/* Database and journal, nothing else: temp_store=MEMORY keeps the rest, also what statements need
 * for undoing a part of a transaction, in memory. */
static int vfs_open(sqlite3_vfs *base, const char *name, sqlite3_file *file, int flags,
                    int *ret_flags)
{
    struct region_file *opened = (struct region_file *)file;

    opened->base.pMethods = NULL;
    opened->vfs = (struct plx_region_vfs *)base;
    if (flags & SQLITE_OPEN_MAIN_DB)
        opened->base.pMethods = &database_methods;
    else if (flags & SQLITE_OPEN_MAIN_JOURNAL)
        opened->base.pMethods = &journal_methods;
    else
        return SQLITE_CANTOPEN;
    if (ret_flags)
        *ret_flags = flags;
    return SQLITE_OK;
}

static int vfs_delete(sqlite3_vfs *base, const char *name, int sync)
{
    return strcmp(name, JOURNAL) == 0 ? journal_end((struct plx_region_vfs *)base)
                                      : SQLITE_IOERR_DELETE_NOENT;
}

static int vfs_access(sqlite3_vfs *base, const char *name, int flags, int *ret_there)
{
    uint8_t block[PAGE];
    int result = SQLITE_OK;

    *ret_there = 0;
    if (strcmp(name, JOURNAL) == 0) {
        result = read_block((struct plx_region_vfs *)base, PART_JOURNAL, 0, block);
        *ret_there = !result && block[0]; /* F5 */
    }
    return result ? SQLITE_IOERR_ACCESS : SQLITE_OK;
}

static int vfs_full_name(sqlite3_vfs *base, const char *name, int size, char *ret_name)
{
    sqlite3_snprintf(size, ret_name, "%s", name);
    return SQLITE_OK;
}

static int vfs_randomness(sqlite3_vfs *base, int count, char *ret_bytes)
{
    sqlite3_vfs *system = ((struct plx_region_vfs *)base)->system;

    return system->xRandomness(system, count, ret_bytes);
}

static int vfs_sleep(sqlite3_vfs *base, int microseconds)
{
    sqlite3_vfs *system = ((struct plx_region_vfs *)base)->system;

    return system->xSleep(system, microseconds);
}

static int vfs_time(sqlite3_vfs *base, double *ret_days)
{
    sqlite3_vfs *system = ((struct plx_region_vfs *)base)->system;

    return system->xCurrentTime(system, ret_days);
}

static int vfs_last_error(sqlite3_vfs *base, int size, char *ret_text)
{
    return 0;
}

/* ---- Making one -------------------------------------------------------------------------- */

int plx_region_vfs_new(const struct plx_region *region, const char *volume,
                       struct plx_region_vfs **ret_vfs, struct plx_fault *fault)
{
    static atomic_ulong count;
    struct plx_region_vfs *vfs;
    int code = check_region(region, volume, fault);

    if (code)
        return code;
    vfs = calloc(1, sizeof *vfs);
    if (!vfs)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory opening the registry");
    vfs->region = *region;
    vfs->system = sqlite3_vfs_find(NULL);
    vfs->space = space_of(region);
    snprintf(vfs->volume, sizeof vfs->volume, "%s", volume);
    snprintf(vfs->name, sizeof vfs->name, "parallax-region-%lu", ++count);
    vfs->base = (sqlite3_vfs){
        .iVersion = 1,
        .szOsFile = sizeof(struct region_file),
        .mxPathname = 64,
        .zName = vfs->name,
        .xOpen = vfs_open,
        .xDelete = vfs_delete,
        .xAccess = vfs_access,
        .xFullPathname = vfs_full_name,
        .xRandomness = vfs_randomness,
        .xSleep = vfs_sleep,
        .xCurrentTime = vfs_time,
        .xGetLastError = vfs_last_error,
    };
    if (sqlite3_vfs_register(&vfs->base, 0)) {
        free(vfs);
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory opening the registry");
    }
    *ret_vfs = vfs;
    return 0;
}

void plx_region_vfs_free(struct plx_region_vfs *vfs)
{
    if (!vfs)
        return;
    sqlite3_vfs_unregister(&vfs->base);
    free(vfs);
}

const char *plx_region_vfs_name(const struct plx_region_vfs *vfs)
{
    return vfs->name;
}

/* F6: a header of one sector, and a record for each page. */
uint32_t plx_region_vfs_pages(const struct plx_region_vfs *vfs)
{
    uint64_t pages = (journal_space(vfs) - PAGE) / RECORD_BYTES;

    return pages < UINT32_MAX ? (uint32_t)pages : UINT32_MAX;
}

struct plx_fault plx_region_vfs_fault(struct plx_region_vfs *vfs)
{
    struct plx_fault fault = vfs->fault;

    vfs->fault = (struct plx_fault){0};
    return fault;
}

void plx_region_vfs_salvage(struct plx_region_vfs *vfs, bool salvage)
{
    vfs->salvage = salvage;
}

/* The first page decides (F4): as soon as it is zero, a journal that is left counts for nothing. */
int plx_region_blank(const struct plx_region *region, struct plx_fault *fault)
{
    uint8_t zeros[PAGE] = {0};
    int code = check_region(region, region->device->name, fault);

    for (unsigned half = 0; half < 2 && !code; half++) {
        uint64_t offset = region->span[0].offset + half * (region->span[0].bytes / 2);

        code = plx_volume_io(region->device, PLX_IO_WRITE, offset, zeros, PAGE);
        if (!code)
            code = plx_volume_io(region->device, PLX_IO_FLUSH, 0, NULL, 0);
        if (code)
            plx_fault_set(fault, code, "%.120s: cannot make an empty registry: %s",
                          region->device->name, plx_error_text(code));
    }
    return code;
}
