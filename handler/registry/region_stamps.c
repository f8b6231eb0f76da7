/* region_stamps.c - which stamp each page of the database has (REGION-12).
 *
 * A page's own stamp proves that the page is whole and in its place, and not that it is the one
 * that was written last: a device that loses one write leaves the page as it was before. SQLite
 * would read an index of yesterday beside the table of today, and find no clone of a snapshot. So
 * the stamps of all pages stand in a table as well.
 *
 * The table of a span lies behind the span's pages, at the end of its database half: blocks of
 * STAMPS stamps each, every block in two slots, A and B next to each other. Of two whole slots the
 * one with the higher generation counts. A stamp of 0 is not known, and any page is believed, whose
 * stamp is known from then on. Of a block with a slot that is damaged or cannot be read no stamp is
 * known: that slot may have been the newer one, and a table that rots must not take whole pages
 * with it. A slot that could not be read may be readable later, so the next write leaves none
 * behind that has a higher generation than the one written: it empties that slot, or replaces it.
 *
 *   slot (little-endian)   0 magic   8 generation   16 stamps   4080 CRC-32C of these and of the
 *                          block's number in the region
 *
 * Life of a block of the table in a transaction:
 *
 *   1 known     read when the first of its pages is read or written. For a reader it stays known
 *               while nobody has committed: a commit changes the database header, and so page 1's
 *               stamp. Whoever may write reads it again, because a rolled back transaction leaves
 *               page 1 as it was, and the table in another slot. Whoever has written forgets it:
 *               others may undo what he takes for committed, and end with the same page 1.
 *   2 dirty     pages were written, by a commit or by a rollback.
 *   3 written   when SQLite syncs the database: the block goes to the slot that is not the durable
 *               one, in front of the flush that makes the pages durable.
 *   4 known     the flush has succeeded: that slot is the durable one.
 *
 *   crash in   leaves
 *   1, 2       the durable slot, and a journal that is rolled back, if pages were written
 *   3          the durable slot, or both, and a journal that is rolled back. The rollback writes
 *              every page of which the table may say something else than the device has, except
 *              free ones, and those are written before they are read.
 *   4          the new slot
 *
 * The newer slot that a dead process left may be in the device's cache only, and the rollback of
 * its journal writes the other one. SQLite syncs such a journal before it plays it back, which
 * flushes the device, and so that slot.
 */
#include <stdlib.h>
#include <string.h>

#include "registry/region_inside.h"

#define STAMPS_MAGIC 0x31504d5453584c50ull /* "PLXSTMP1" */
#define CRC_AT 4080

struct plx_region_stamps {
    bool known, dirty;
    bool hidden;     /* neither slot is whole, and the durable one cannot be read */
    uint8_t durable; /* the slot */
    uint64_t generation;
    uint32_t stamp[STAMPS];
};

/* ---- Where things lie -------------------------------------------------------------------- */

/* A span's half: its pages, and behind them the table, which has as few blocks as hold a stamp of
 * each page. */
struct half {
    uint64_t begin; /* block of the database part */
    uint64_t pages;
    uint64_t blocks; /* of the table, each in two slots */
};

static struct half next_half(const struct plx_region *region, unsigned span,
                             const struct half *before)
{
    uint64_t all = region->span[span].bytes / 2 / PAGE;
    struct half half = {.blocks = (all + STAMPS + 1) / (STAMPS + 2)};

    if (before)
        half.begin = before->begin + before->pages + 2 * before->blocks;
    half.pages = all > 2 * half.blocks ? all - 2 * half.blocks : 0;
    if (!half.pages) { /* too short for any */
        half.begin += all;
        half.blocks = 0;
    }
    return half;
}

struct stamp_place {
    uint64_t page;  /* byte of the database part */
    uint64_t block; /* the table's block, by its number in the region */
    unsigned stamp; /* its place in that block */
};

/* Number: at most plx_region_page_count(), from 1 on. */
static struct stamp_place find(const struct plx_region *region, uint64_t number)
{
    struct stamp_place at = {0};
    struct half half;
    uint64_t index = number - 1;

    for (unsigned i = 0; i < region->spans; i++) {
        half = next_half(region, i, i ? &half : NULL);
        if (index < half.pages) {
            at.page = (half.begin + index) * PAGE;
            at.block += index / STAMPS;
            at.stamp = index % STAMPS;
            return at;
        }
        index -= half.pages;
        at.block += half.blocks;
    }
    PLX_ASSERT(!"a page of the region");
    return at;
}

uint64_t plx_region_page_at(const struct plx_region_vfs *vfs, uint64_t number)
{
    return find(&vfs->region, number).page;
}

/* Byte of the database part at which the block's slot A lies. */
static uint64_t slots_at(const struct plx_region *region, uint64_t block)
{
    struct half half = {0};

    for (unsigned i = 0; i < region->spans; i++) {
        half = next_half(region, i, i ? &half : NULL);
        if (block < half.blocks)
            break;
        block -= half.blocks;
    }
    return (half.begin + half.pages + 2 * block) * PAGE;
}

static void count(const struct plx_region *region, uint64_t *ret_pages, uint64_t *ret_blocks)
{
    struct half half = {0};

    *ret_pages = *ret_blocks = 0;
    for (unsigned i = 0; i < region->spans; i++) {
        half = next_half(region, i, i ? &half : NULL);
        *ret_pages += half.pages;
        *ret_blocks += half.blocks;
    }
}

uint64_t plx_region_page_count(const struct plx_region *region)
{
    uint64_t pages, blocks;

    count(region, &pages, &blocks);
    return pages;
}

/* ---- Slots ------------------------------------------------------------------------------- */

static uint64_t long_at(const uint8_t *at)
{
    return plx_region_word_at(at) | (uint64_t)plx_region_word_at(at + 4) << 32;
}

static void put_long(uint8_t *at, uint64_t value)
{
    plx_region_put_word(at, (uint32_t)value);
    plx_region_put_word(at + 4, (uint32_t)(value >> 32));
}

static uint32_t slot_crc(const uint8_t slot[PAGE], uint64_t block)
{
    uint8_t place[8];

    put_long(place, block);
    return plx_crc32c_more(plx_crc32c(slot, CRC_AT), place, sizeof place);
}

/* 0: there is none. */
static uint64_t generation_of(const uint8_t slot[PAGE], uint64_t block)
{
    return long_at(slot) == STAMPS_MAGIC &&
                   plx_region_word_at(slot + CRC_AT) == slot_crc(slot, block)
               ? long_at(slot + 8)
               : 0;
}

static bool is_blank(const uint8_t slot[PAGE])
{
    return !slot[0] && !memcmp(slot, slot + 1, PAGE - 1);
}

static int read_slot(struct plx_region_vfs *vfs, uint64_t at, uint8_t slot[PAGE], bool *ret_read)
{
    int code = plx_region_transfer(vfs, PART_DATABASE, PLX_IO_READ, at, slot, PAGE);

    *ret_read = !code;
    if (code == PLX_ERR_IO_READ)
        return SQLITE_OK;
    return plx_region_note(vfs, code ? SQLITE_IOERR_READ : SQLITE_OK, code, "read", at / PAGE + 1);
}

static int read_stamps(struct plx_region_vfs *vfs, uint64_t block)
{
    struct plx_region_stamps *stamps = &vfs->stamps[block];
    uint64_t at = slots_at(&vfs->region, block), generation[2];
    uint8_t slots[2][PAGE];
    bool read[2], damaged = false;
    int result = SQLITE_OK;

    for (unsigned i = 0; i < 2 && !result; i++) {
        result = read_slot(vfs, at + i * PAGE, slots[i], &read[i]);
        generation[i] = result || !read[i] ? 0 : generation_of(slots[i], block);
        damaged |= !result && (!read[i] || (!generation[i] && !is_blank(slots[i])));
    }
    if (result)
        return result;
    *stamps = (struct plx_region_stamps){.known = true, .durable = generation[1] > generation[0]};
    stamps->generation = generation[stamps->durable];
    stamps->hidden = !stamps->generation && !read[stamps->durable];
    for (unsigned i = 0; i < STAMPS && stamps->generation && !damaged; i++)
        stamps->stamp[i] = plx_region_word_at(slots[stamps->durable] + 16 + 4 * i);
    return SQLITE_OK;
}

static int write_slot(struct plx_region_vfs *vfs, uint64_t block, unsigned slot,
                      uint8_t contents[PAGE])
{
    return plx_region_write_blocks(vfs, PART_DATABASE, slots_at(&vfs->region, block) + slot * PAGE,
                                   contents, PAGE);
}

static int write_stamps(struct plx_region_vfs *vfs, uint64_t block)
{
    struct plx_region_stamps *stamps = &vfs->stamps[block];
    uint8_t slot[PAGE] = {0};
    int result = stamps->hidden ? write_slot(vfs, block, stamps->durable, slot) : SQLITE_OK;

    if (result)
        return result;
    stamps->hidden = false;
    put_long(slot, STAMPS_MAGIC);
    put_long(slot + 8, ++stamps->generation);
    for (unsigned i = 0; i < STAMPS; i++)
        plx_region_put_word(slot + 16 + 4 * i, stamps->stamp[i]);
    plx_region_put_word(slot + CRC_AT, slot_crc(slot, block));
    return write_slot(vfs, block, !stamps->durable, slot);
}

/* ---- In a transaction -------------------------------------------------------------------- */

void plx_region_stamps_forget(struct plx_region_vfs *vfs)
{
    for (uint64_t i = 0; i < vfs->stamp_blocks; i++)
        vfs->stamps[i].known = vfs->stamps[i].dirty = false;
    vfs->stamps_dirty = false;
    vfs->stamps_current = true; /* what is read from now on */
}

/* Whether anybody has committed since: then page 1 has another stamp. */
void plx_region_stamps_compare(struct plx_region_vfs *vfs, const uint8_t first[PAGE])
{
    if (!vfs->stamp_blocks || !vfs->stamps[0].known ||
        vfs->stamps[0].stamp[0] != plx_region_word_at(first + STAMP_AT))
        plx_region_stamps_forget(vfs);
    vfs->stamps_current = true;
}

static int make_room(struct plx_region_vfs *vfs)
{
    struct plx_region_stamps *more;
    uint64_t pages, blocks;

    count(&vfs->region, &pages, &blocks);
    if (blocks <= vfs->stamp_blocks)
        return SQLITE_OK;
    more = realloc(vfs->stamps, (size_t)blocks * sizeof *more);
    if (!more)
        return plx_region_note(vfs, SQLITE_IOERR_NOMEM, PLX_ERR_NOMEM, "read", 0);
    memset(more + vfs->stamp_blocks, 0, (size_t)(blocks - vfs->stamp_blocks) * sizeof *more);
    vfs->stamps = more;
    vfs->stamp_blocks = blocks;
    return SQLITE_OK;
}

/* Where the stamp of a page stands, in a block that is known then. */
static int know(struct plx_region_vfs *vfs, uint64_t number, struct stamp_place *ret_at)
{
    uint8_t first[PAGE];
    int result = make_room(vfs);

    *ret_at = find(&vfs->region, number);
    if (!result && !vfs->stamps_current) {
        result = plx_region_read_block(vfs, PART_DATABASE, 0, first);
        if (!result)
            plx_region_stamps_compare(vfs, first);
    }
    return result || vfs->stamps[ret_at->block].known ? result : read_stamps(vfs, ret_at->block);
}

int plx_region_stamp_get(struct plx_region_vfs *vfs, uint64_t number, uint32_t *ret_stamp)
{
    struct stamp_place at;
    int result = know(vfs, number, &at);

    if (!result)
        *ret_stamp = vfs->stamps[at.block].stamp[at.stamp];
    return result;
}

void plx_region_stamp_learn(struct plx_region_vfs *vfs, uint64_t number, uint32_t stamp)
{
    struct stamp_place at = find(&vfs->region, number);

    vfs->stamps[at.block].stamp[at.stamp] = stamp;
}

int plx_region_stamp_set(struct plx_region_vfs *vfs, uint64_t number, uint32_t stamp)
{
    struct stamp_place at;
    int result = know(vfs, number, &at);

    if (result)
        return result;
    vfs->stamps[at.block].stamp[at.stamp] = stamp;
    vfs->stamps[at.block].dirty = vfs->stamps_dirty = true;
    return SQLITE_OK;
}

int plx_region_stamps_sync(struct plx_region_vfs *vfs)
{
    int result = SQLITE_OK;

    for (uint64_t i = 0; i < vfs->stamp_blocks && !result; i++)
        if (vfs->stamps[i].dirty)
            result = write_stamps(vfs, i);
    if (!result)
        result = plx_region_flush(vfs);
    if (result)
        return result;
    for (uint64_t i = 0; i < vfs->stamp_blocks; i++)
        if (vfs->stamps[i].dirty) {
            vfs->stamps[i].durable = !vfs->stamps[i].durable;
            vfs->stamps[i].dirty = false;
        }
    vfs->stamps_dirty = false;
    return SQLITE_OK;
}
