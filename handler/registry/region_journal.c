/* region_journal.c - the rollback journal of a region (REGION-5, REGION-6, REGION-10, REGION-11).
 *
 * Life of a journal, as SQLite drives it:
 *
 *   1 begun     SQLite writes a whole header block in which the magic number and the record count
 *               are still zero. settle_end() first makes the end of the previous journal durable.
 *   2 growing   records are appended to `gathered`; full buffers go to the device.
 *   3 synced    SQLite syncs the records, then writes the magic number with the count, and syncs
 *               again. From here on the journal exists (REGION-5).
 *   4 ended     SQLite overwrites the start of the header with zeros, or deletes the journal after
 *               a rollback. flush_end() makes that durable and adds the mark.
 *
 *   crash in   leaves
 *   1, 2       no journal
 *   3, 4       no journal, or one that the next connection rolls back
 */
#include <string.h>

#include "registry/region_inside.h"

static uint64_t block_of(uint64_t offset)
{
    return offset - offset % PAGE;
}

static void drop_gathered(struct plx_region_vfs *vfs)
{
    vfs->from = vfs->to = 0;
    vfs->refused = false;
}

/* REGION-11: makes the end durable, then marks it. The mark is not flushed and its write may fail:
 * without it settle_end() writes and flushes the end once more, which costs time and nothing
 * else. */
static int flush_end(struct plx_region_vfs *vfs)
{
    uint8_t block[PAGE] = {0};
    int result = plx_region_flush(vfs);

    plx_region_put_word(block + PAGE - 4, ENDED);
    if (!result)
        plx_region_transfer(vfs, PART_JOURNAL, PLX_IO_WRITE, 0, block, PAGE);
    return result;
}

/* REGION-11: SQLite makes three kinds of writes at byte 0 of the journal:
 *
 *   begin     the whole header block, first byte zero
 *   sync      a part of the block: magic number and record count, first byte not zero
 *   end       a part of the block, first byte zero
 */
static bool begins(const struct plx_region_vfs *vfs)
{
    return !vfs->from && vfs->to >= PAGE;
}

static bool ends(const struct plx_region_vfs *vfs)
{
    return !vfs->from && vfs->to && vfs->to < PAGE && !vfs->gathered[0];
}

/* REGION-11: called before a journal begins. Rewriting the block as it was read, and flushing it,
 * makes durable what so far may only be in the device's cache. */
static int settle_end(struct plx_region_vfs *vfs)
{
    uint8_t block[PAGE];
    int result = plx_region_read_block(vfs, PART_JOURNAL, 0, block);

    if (result || block[0] || plx_region_word_at(block + PAGE - 4) == ENDED)
        return result;
    result = plx_region_write_blocks(vfs, PART_JOURNAL, 0, block, PAGE);
    return result ? result : plx_region_flush(vfs);
}

/* Writes the gathered bytes as whole blocks (REGION-1). The rest of the first and the last block is
 * filled with what the device holds there. */
static int write_gathered(struct plx_region_vfs *vfs)
{
    uint64_t from = vfs->from, to = vfs->to, begin = block_of(from);
    uint64_t end = block_of(to + PAGE - 1);
    uint8_t block[PAGE];
    int result = SQLITE_OK;

    if (from == to)
        return SQLITE_OK;
    if (!vfs->written)
        result = plx_region_may_write(vfs, SQLITE_IOERR_WRITE);
    if (!result && begins(vfs))
        result = settle_end(vfs);
    if (!result && from > begin) {
        result = plx_region_read_block(vfs, PART_JOURNAL, begin, block);
        memcpy(vfs->gathered, block, from - begin);
    }
    if (!result && to < end) {
        result = plx_region_read_block(vfs, PART_JOURNAL, end - PAGE, block);
        memcpy(vfs->gathered + (to - begin), block + to % PAGE, end - to);
    }
    if (!result)
        result = plx_region_write_blocks(vfs, PART_JOURNAL, begin, vfs->gathered, end - begin);
    if (result)
        vfs->refused = true;
    else
        drop_gathered(vfs);
    return result;
}

int plx_region_journal_read(sqlite3_file *file, void *buffer, int amount, sqlite3_int64 offset)
{
    struct plx_region_vfs *vfs = ((struct plx_region_file *)file)->vfs;
    uint64_t next = (uint64_t)offset, end = next + (uint64_t)amount;
    uint8_t block[PAGE], *to = buffer;

    memset(buffer, 0, (size_t)amount);
    while (next < end && next < plx_region_journal_space(vfs)) {
        uint64_t inside = next % PAGE, count = PAGE - inside;
        int result = plx_region_read_block(vfs, PART_JOURNAL, next - inside, block);

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

int plx_region_journal_write(sqlite3_file *file, const void *buffer, int amount,
                             sqlite3_int64 offset)
{
    struct plx_region_vfs *vfs = ((struct plx_region_file *)file)->vfs;
    uint64_t next = (uint64_t)offset, end = next + (uint64_t)amount;
    const uint8_t *bytes = buffer;

    if (end > plx_region_journal_space(vfs))
        return SQLITE_FULL;
    if (vfs->refused && offset)
        return SQLITE_IOERR_WRITE;
    if (vfs->refused) /* REGION-10: begun again */
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

/* REGION-5. The end is made durable even when SQLite does not ask for a sync. SQLite does not ask
 * when it deletes a journal after a rollback. But the next transaction overwrites this journal in
 * place. A power cut could leave the old header with records that are half old and half new.
 * SQLite's journal checksum covers every 200th byte of a record only, so SQLite would take such a
 * mixture for a page. */
int plx_region_journal_end(struct plx_region_vfs *vfs)
{
    uint8_t zeros[PAGE] = {0};
    int result;

    drop_gathered(vfs);
    result = plx_region_write_blocks(vfs, PART_JOURNAL, 0, zeros, PAGE);
    return result ? result : flush_end(vfs);
}

int plx_region_journal_truncate(sqlite3_file *file, sqlite3_int64 bytes)
{
    return bytes ? SQLITE_OK : plx_region_journal_end(((struct plx_region_file *)file)->vfs);
}

int plx_region_journal_size(sqlite3_file *file, sqlite3_int64 *ret_bytes)
{
    *ret_bytes = (sqlite3_int64)((struct plx_region_file *)file)->vfs->space;
    return SQLITE_OK;
}

int plx_region_journal_sync(sqlite3_file *file, int flags)
{
    struct plx_region_vfs *vfs = ((struct plx_region_file *)file)->vfs;
    bool at_end = ends(vfs);
    int result = write_gathered(vfs);

    return result ? result : at_end ? flush_end(vfs) : plx_region_flush(vfs);
}

/* Bytes that were never synced belong to a failed transaction and are dropped. */
int plx_region_journal_close(sqlite3_file *file)
{
    drop_gathered(((struct plx_region_file *)file)->vfs);
    return SQLITE_OK;
}
