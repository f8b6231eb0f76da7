/* region_pages.c - the pages of a region's database (REGION-2 to REGION-4, REGION-8, REGION-12). */
#include <string.h>

#include "registry/region_inside.h"

uint64_t plx_region_journal_space(const struct plx_region_vfs *vfs)
{
    return vfs->space - PAGE; /* REGION-6 */
}

/* REGION-6: the journal holds a header of one block, then one record for each page. REGION-12: the
 * database part ends with the table of stamps. */
uint32_t plx_region_vfs_pages(const struct plx_region_vfs *vfs)
{
    uint64_t records = (plx_region_journal_space(vfs) - PAGE) / RECORD_BYTES;
    uint64_t pages = plx_min_u64(records, plx_region_page_count(&vfs->region));

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

static int check_page(struct plx_region_vfs *vfs, uint8_t page[PAGE], uint64_t number)
{
    uint32_t stamp = plx_region_word_at(page + STAMP_AT), last = 0;
    bool whole = stamp == page_crc(page, number) && !plx_region_word_at(page + STAMP_AT + 4);
    int result = whole ? plx_region_stamp_get(vfs, number, &last) : SQLITE_OK;

    if (!result && whole && !last)
        plx_region_stamp_learn(vfs, number, stamp);
    if (result || (whole && (!last || last == stamp))) /* REGION-2, REGION-12 */
        return result;
    if (vfs->salvage && number > 1) {
        plx_region_put_word(page + STAMP_AT + 4, MARK);
        return SQLITE_OK;
    }
    plx_fault_set(&vfs->fault, PLX_ERR_REGISTRY,
                  "the registry in %.120s %s (page %llu); run 'parallax store rebuild-registry'",
                  vfs->volume,
                  whole ? "is not as it was written last: the device lost a write" : "is damaged",
                  (unsigned long long)number);
    return SQLITE_IOERR_DATA;
}

static void stamp_page(uint8_t page[PAGE], uint64_t number)
{
    bool damaged = plx_region_word_at(page + STAMP_AT + 4) == MARK; /* REGION-8 */

    plx_region_put_word(page + STAMP_AT,
                        damaged ? ~page_crc(page, number) : page_crc(page, number));
    plx_region_put_word(page + STAMP_AT + 4, damaged ? MARK : 0);
}

/* REGION-4. Page 1 is zero. */
static int find_empty(struct plx_region_vfs *vfs, int result)
{
    if (!vfs->region.made)
        return result;
    plx_fault_set(&vfs->fault, PLX_ERR_REGISTRY,
                  "the registry in %.120s is empty: it was overwritten, or its format or rebuild "
                  "was not finished; run 'parallax store rebuild-registry'",
                  vfs->volume);
    return SQLITE_IOERR_DATA;
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
    if (number > plx_region_page_count(&vfs->region) || inside + (uint64_t)amount > PAGE)
        return SQLITE_IOERR_SHORT_READ;
    result = plx_region_read_block(vfs, PART_DATABASE, plx_region_page_at(vfs, number), page);
    if (!result && number == 1 && is_zero(page)) /* REGION-4 */
        return find_empty(vfs, SQLITE_IOERR_SHORT_READ);
    if (!result && number == 1 && !vfs->stamps_current)
        plx_region_stamps_compare(vfs, page);
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
    int result;

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
    result = plx_region_stamp_set(vfs, number, plx_region_word_at(page + STAMP_AT));
    if (result)
        return result;
    vfs->written = true;
    return plx_region_write_blocks(vfs, PART_DATABASE, plx_region_page_at(vfs, number), page, PAGE);
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

    if (result)
        return result;
    *ret_bytes = is_zero(page) ? 0 : (sqlite3_int64)plx_region_vfs_pages(vfs) * PAGE; /* REGION-4 */
    return *ret_bytes ? SQLITE_OK : find_empty(vfs, SQLITE_OK);
}

int plx_region_database_sync(sqlite3_file *file, int flags)
{
    return plx_region_stamps_sync(((struct plx_region_file *)file)->vfs);
}
