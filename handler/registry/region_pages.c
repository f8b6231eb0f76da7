/* region_pages.c - blocks of a region, and the pages of its database (REGION-1 to REGION-4,
 * REGION-8).
 *
 * plx_region_note() turns an engine error into the fault that people read and passes SQLite's
 * result code on.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/loop/volume.h"
#include "registry/region_inside.h"

uint64_t plx_region_space(const struct plx_region *region)
{
    uint64_t space = 0;

    for (unsigned i = 0; i < region->spans; i++)
        space += region->span[i].bytes / 2;
    return space;
}

int plx_region_check(const struct plx_region *region, const char *volume, struct plx_fault *fault)
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
                                 "%.120s: truncated: %llu bytes, and a part of the registry ends "
                                 "at byte %llu; restore the missing part, or make it at least that "
                                 "large again to read what is left ('truncate -s %llu', if it is a "
                                 "file)",
                                 volume, (unsigned long long)device->bytes,
                                 (unsigned long long)(offset + bytes),
                                 (unsigned long long)(offset + bytes));
    }
    if (plx_region_space(region) < SPACE_MIN)
        return plx_fault_set(fault, PLX_ERR_CORRUPT,
                             "%.120s: the place of the registry is too small", volume);
    return 0;
}

/* ---- Blocks ------------------------------------------------------------------------------ */

int plx_region_note(struct plx_region_vfs *vfs, int result, int code, const char *what,
                    uint64_t page)
{
    if (code)
        plx_fault_set(&vfs->fault,
                      code == PLX_ERR_NOMEM || plx_error_is_full_below(code) ? code
                                                                             : PLX_ERR_REGISTRY,
                      "cannot %s the registry in %.120s (page %llu): %s", what, vfs->volume,
                      (unsigned long long)page, plx_error_text(code));
    return result;
}

/* Reads or writes whole blocks of one part. The transfer is split where the part goes from one span
 * to the next. */
int plx_region_transfer(struct plx_region_vfs *vfs, enum part part, enum plx_io_op op,
                        uint64_t offset, void *buffer, size_t bytes)
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

int plx_region_read_block(struct plx_region_vfs *vfs, enum part part, uint64_t offset,
                          uint8_t ret_block[PAGE])
{
    int code = plx_region_transfer(vfs, part, PLX_IO_READ, offset, ret_block, PAGE);

    return plx_region_note(vfs, code ? SQLITE_IOERR_READ : SQLITE_OK, code, "read",
                           offset / PAGE + 1);
}

int plx_region_write_blocks(struct plx_region_vfs *vfs, enum part part, uint64_t offset,
                            void *blocks, size_t bytes)
{
    int code;

    if (vfs->region.read_only)
        return SQLITE_READONLY;
    code = plx_region_transfer(vfs, part, PLX_IO_WRITE, offset, blocks, bytes);
    return plx_region_note(vfs, code ? SQLITE_IOERR_WRITE : SQLITE_OK, code, "write",
                           offset / PAGE + 1);
}

int plx_region_flush(struct plx_region_vfs *vfs)
{
    int code = plx_volume_io(vfs->region.device, PLX_IO_FLUSH, 0, NULL, 0);

    return plx_region_note(vfs, code ? SQLITE_IOERR_FSYNC : SQLITE_OK, code, "flush", 0);
}

uint64_t plx_region_journal_space(const struct plx_region_vfs *vfs)
{
    return vfs->space - PAGE; /* REGION-6 */
}

/* REGION-6: the journal holds a header of one block, then one record for each page. */
uint32_t plx_region_vfs_pages(const struct plx_region_vfs *vfs)
{
    uint64_t pages = (plx_region_journal_space(vfs) - PAGE) / RECORD_BYTES;

    return pages < UINT32_MAX ? (uint32_t)pages : UINT32_MAX;
}

static bool is_zero(const uint8_t block[PAGE])
{
    return !block[0] && !memcmp(block, block + 1, PAGE - 1);
}

int plx_region_may_write(struct plx_region_vfs *vfs, int result)
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

uint32_t plx_region_word_at(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

void plx_region_put_word(uint8_t *at, uint32_t word)
{
    for (unsigned i = 0; i < 4; i++)
        at[i] = (uint8_t)(word >> (8 * i));
}

static int check_page(struct plx_region_vfs *vfs, uint8_t page[PAGE], uint64_t number)
{
    if (plx_region_word_at(page + STAMP_AT) == page_crc(page, number) &&
        !plx_region_word_at(page + STAMP_AT + 4))
        return SQLITE_OK;
    if (vfs->salvage && number > 1) {
        plx_region_put_word(page + STAMP_AT + 4, MARK);
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
    bool damaged = plx_region_word_at(page + STAMP_AT + 4) == MARK; /* REGION-8 */

    plx_region_put_word(page + STAMP_AT,
                        damaged ? ~page_crc(page, number) : page_crc(page, number));
    plx_region_put_word(page + STAMP_AT + 4, damaged ? MARK : 0);
}

/* The database header in page 1 says: pages of 4 KiB, eight reserved bytes in each. With any other
 * layout stamps would overwrite SQLite's data. */
static bool has_our_layout(const uint8_t first[PAGE])
{
    return first[16] == PAGE >> 8 && first[17] == (PAGE & 0xff) && first[20] == PAGE - STAMP_AT;
}

int plx_region_database_read(sqlite3_file *file, void *buffer, int amount, sqlite3_int64 offset)
{
    struct plx_region_vfs *vfs = ((struct plx_region_file *)file)->vfs;
    uint64_t number = (uint64_t)offset / PAGE + 1, inside = (uint64_t)offset % PAGE;
    uint8_t page[PAGE];
    int result;

    memset(buffer, 0, (size_t)amount);
    if (vfs->level == SQLITE_LOCK_NONE) /* REGION-3 */
        return SQLITE_IOERR_SHORT_READ;
    if (number * PAGE > vfs->space || inside + (uint64_t)amount > PAGE)
        return SQLITE_IOERR_SHORT_READ;
    result = plx_region_read_block(vfs, PART_DATABASE, (number - 1) * PAGE, page);
    if (!result && number == 1 && is_zero(page)) /* REGION-4 */
        return SQLITE_IOERR_SHORT_READ;
    if (!result)
        result = check_page(vfs, page, number);
    if (!result)
        memcpy(buffer, page + inside, (size_t)amount);
    return result;
}

int plx_region_database_write(sqlite3_file *file, const void *buffer, int amount,
                              sqlite3_int64 offset)
{
    struct plx_region_vfs *vfs = ((struct plx_region_file *)file)->vfs;
    uint64_t number = (uint64_t)offset / PAGE + 1;
    uint8_t page[PAGE];

    if (number > plx_region_vfs_pages(vfs))
        return SQLITE_FULL;
    if (amount != PAGE || offset % PAGE) /* not one of our pages */
        return SQLITE_IOERR_WRITE;
    memcpy(page, buffer, PAGE);
    if (number == 1 && !has_our_layout(page)) {
        plx_fault_set(&vfs->fault, PLX_ERR_REGISTRY,
                      "the registry in %.120s cannot have pages of another layout", vfs->volume);
        return SQLITE_IOERR_WRITE;
    }
    stamp_page(page, number);
    vfs->written = true;
    return plx_region_write_blocks(vfs, PART_DATABASE, (uint64_t)offset, page, PAGE);
}

int plx_region_database_truncate(sqlite3_file *file, sqlite3_int64 bytes)
{
    uint8_t zeros[PAGE] = {0};

    if (bytes) /* REGION-4 */
        return SQLITE_OK;
    return plx_region_write_blocks(((struct plx_region_file *)file)->vfs, PART_DATABASE, 0, zeros,
                                   PAGE);
}

int plx_region_database_size(sqlite3_file *file, sqlite3_int64 *ret_bytes)
{
    struct plx_region_vfs *vfs = ((struct plx_region_file *)file)->vfs;
    uint8_t page[PAGE];
    int result = plx_region_read_block(vfs, PART_DATABASE, 0, page);

    if (!result)
        /* REGION-4 */
        *ret_bytes = is_zero(page) ? 0 : (sqlite3_int64)plx_region_vfs_pages(vfs) * PAGE;
    return result;
}

int plx_region_database_sync(sqlite3_file *file, int flags)
{
    return plx_region_flush(((struct plx_region_file *)file)->vfs);
}
