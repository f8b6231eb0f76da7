/* verify_space.c - passes 1, 2 and 5 of verify.c: superblocks, extents, bitmaps (VERIFY-1,
 * VERIFY-6). */
#include <stdlib.h>
#include <string.h>

#include "engine/check/verify.h"

/* ---- Superblocks and extents ---- */

static bool is_zero(const uint8_t *bytes, size_t count)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, count - 1) == 0;
}

/* The spare superblock must be whole, but need not be new. Zeroes are fine as well: stores made
 * before there was a spare one have none until their superblock changes. A write that failed or was
 * cut off leaves an older one until the next write. */
static void check_spare(struct plx_verify *v, unsigned volume, uint64_t addr)
{
    const struct plx_superblock *known = &v->store->volumes[volume].super;
    struct plx_superblock super;
    struct plx_fault why;
    bool unread = plx_verify_read(v, PLX_KIND_ADMIN, addr, v->block, PLX_BLOCK_SIZE);

    if (!unread && is_zero(v->block, PLX_BLOCK_SIZE))
        return;
    if (unread || plx_format_superblock_decode(v->block, &super, &why) ||
        !plx_uuid_equal(&super.volume, &known->volume))
        plx_verify_find(v, PLX_FINDING_ERROR, "superblock", addr, PLX_NO_VBLOCK,
                        "volume %u: the spare superblock is damaged; 'parallax store grow' writes "
                        "it again",
                        volume);
}

void plx_verify_superblocks(struct plx_verify *v)
{
    const struct plx_superblock *first = &v->store->volumes[0].super;

    for (uint32_t i = 0; i < first->spans; i++)
        memset(v->types + first->span[i].first, PLX_EXTENT_SYSTEM, first->span[i].extents);
    for (unsigned i = 0; i < v->store->info.volumes; i++) {
        uint64_t extent = v->store->info.volume[i].first_extent;
        uint64_t base = extent * v->store->info.extent_blocks;

        v->types[extent] = PLX_EXTENT_SYSTEM;
        for (unsigned slot = 0; slot < PLX_SUPERBLOCK_SLOTS; slot++) {
            struct plx_superblock super;
            struct plx_fault why;

            if (plx_verify_read(v, PLX_KIND_ADMIN, base + slot, v->block, PLX_BLOCK_SIZE) ||
                plx_format_superblock_decode(v->block, &super, &why)) /* VERIFY-1 */
                plx_verify_find(v, PLX_FINDING_ERROR, "superblock", base + slot, PLX_NO_VBLOCK,
                                "volume %u: copy %u of the superblock is damaged; 'parallax store "
                                "grow' writes it again",
                                i, slot);
            else if (!plx_uuid_equal(&super.store, &v->store->info.id))
                plx_verify_find(
                    v, PLX_FINDING_ERROR, "superblock", base + slot, PLX_NO_VBLOCK,
                    "volume %u: copy %u of the superblock is another store's; 'parallax "
                    "store grow' writes it again",
                    i, slot);
        }
        check_spare(v, i, base + PLX_SUPERBLOCK_SPARE);
    }
}

/* Reads the newer whole copy of a bitmap page. */
enum plx_page_state plx_verify_read_page(struct plx_verify *v, uint64_t number, uint32_t p,
                                         struct plx_extent_page *ret_page, const uint8_t **ret_bits)
{
    uint32_t pages = plx_extent_pages(v->store->info.extent_blocks);
    uint64_t base = number * v->store->info.extent_blocks;
    enum plx_page_state state = PLX_PAGE_BAD;
    struct plx_extent_page page;

    if (plx_verify_read(v, PLX_KIND_ADMIN, base + 2 * p, v->pages, 2 * PLX_BLOCK_SIZE))
        return PLX_PAGE_BAD;
    for (int slot = 0; slot < 2; slot++) {
        uint8_t *block = v->pages + slot * PLX_BLOCK_SIZE;

        if (plx_format_extent_page_decode(block, &v->store->info.id, number, p, pages, &page,
                                          NULL) ||
            (state == PLX_PAGE_GOOD && page.generation <= ret_page->generation))
            continue;
        *ret_page = page;
        *ret_bits = plx_format_extent_bits(block);
        state = PLX_PAGE_GOOD;
    }
    /* The extent's claim died after writing slot B, or a part of it (EXTENT-3): it is not in use.
     */
    if (is_zero(v->pages, PLX_BLOCK_SIZE) &&
        (state == PLX_PAGE_BAD || ret_page->generation <= plx_generation_next(0)))
        return PLX_PAGE_NONE;
    return state;
}

/* Calls visit with the bits of each page; without visit, notes the extent's type and owner and
 * reports damaged pages. false: the extent is not in use. */
bool plx_verify_read_extent(struct plx_verify *v, uint64_t number,
                            void (*visit)(struct plx_verify *v, uint64_t number, uint64_t first,
                                          uint64_t count, const uint8_t *bits))
{
    uint64_t blocks = v->store->info.extent_blocks;
    uint32_t pages = plx_extent_pages(blocks);

    for (uint32_t p = 0; p < pages && !v->error; p++) {
        uint64_t first = (uint64_t)p * PLX_EXTENT_PAGE_BITS;
        struct plx_extent_page page;
        const uint8_t *bits;

        switch (plx_verify_read_page(v, number, p, &page, &bits)) {
        case PLX_PAGE_NONE:
            return false;
        case PLX_PAGE_BAD: /* VERIFY-1; the call without visit reports it */
            if (visit)
                continue;
            plx_verify_find(v, PLX_FINDING_ERROR, "bitmap", number * blocks + 2 * p, PLX_NO_VBLOCK,
                            "extent %llu: both copies of bitmap page %u are damaged",
                            (unsigned long long)number, p);
            if (p == 0)
                v->types[number] = TYPE_DAMAGED;
            continue;
        case PLX_PAGE_GOOD:
            break;
        }
        if (p == 0 && (!visit || v->types[number] != TYPE_DAMAGED)) {
            v->types[number] = (uint8_t)page.type;
            v->owners[number] = page.owner;
        }
        if (visit)
            visit(v, number, first, plx_min_u64(PLX_EXTENT_PAGE_BITS, blocks - first), bits);
        else
            for (unsigned i = 0; i < PLX_EXTENT_PAGE_BITS / 8; i++)
                if (page.type == PLX_EXTENT_META || v->options->data)
                    v->allocated_bytes += (uint64_t)__builtin_popcount(bits[i]) << PLX_BLOCK_SHIFT;
    }
    return true;
}

/* Whether the block lies in the store and behind the header pages of its extent. */
static bool may_be_a_disks(const struct plx_verify *v, uint64_t addr)
{
    uint64_t blocks = v->store->info.extent_blocks;

    addr = plx_addr_block(addr);
    return addr < v->store->addr_limit && addr % blocks >= 2ull * plx_extent_pages(blocks);
}

bool plx_verify_type_is(struct plx_verify *v, uint64_t addr, enum plx_extent_type type)
{
    uint64_t number = plx_addr_block(addr) / v->store->info.extent_blocks;
    struct plx_extent_page page;
    const uint8_t *bits;
    bool is;

    if (!may_be_a_disks(v, addr))
        return false;
    if (number >= v->extents)
        return true;
    /* The extent may have come into use since pass 2: looks again. */
    if (v->types[number] != type && v->types[number] != PLX_EXTENT_SYSTEM &&
        v->types[number] != TYPE_DAMAGED &&
        plx_verify_read_page(v, number, 0, &page, &bits) == PLX_PAGE_GOOD)
        v->types[number] = (uint8_t)page.type;
    is = v->types[number] == type || v->types[number] == TYPE_DAMAGED;
    if (v->mode == PLX_VERIFY_LIVE) /* an extent of a deleted disk may be another's by now */
        v->unguarded[number] = v->unguarded[number] || !is;
    return is;
}

bool plx_verify_is_unused(const struct plx_verify *v, uint64_t addr)
{
    uint64_t number = plx_addr_block(addr) / v->store->info.extent_blocks;

    return may_be_a_disks(v, addr) && number < v->extents && v->types[number] == PLX_EXTENT_UNUSED;
}

/* ---- Bitmaps against marks ---- */

/* VERIFY-6 */
static void compare_page(struct plx_verify *v, uint64_t number, uint64_t first, uint64_t count,
                         const uint8_t *bits)
{
    uint64_t base = number * v->store->info.extent_blocks;
    uint64_t header = 2ull * plx_extent_pages(v->store->info.extent_blocks);

    for (uint64_t i = 0; i < count; i++) {
        uint64_t addr = base + first + i;
        bool set = bits[i / 8] >> i % 8 & 1;
        bool reached = plx_marked(&v->marks, v->store, PLX_MARK_REACHED, addr);
        bool named = plx_marked(&v->marks, v->store, PLX_MARK_NAMED, addr);

        v->result.used_blocks += set || first + i < header;
        v->result.free_blocks += !set && first + i >= header;
        if (!set && (reached || plx_marked(&v->marks, v->store, PLX_MARK_FOREIGN, addr)))
            v->unguarded[number] = true;
        if (first + i < header || (reached || named) == set || named)
            continue;
        if (set) {
            if (plx_marked(&v->deleted, v->store, PLX_MARK_REACHED, addr) ||
                plx_marked(&v->deleted, v->store, PLX_MARK_NAMED, addr))
                v->leak.deleted++;
            else
                v->leak.other++;
        } else {
            plx_verify_suspect(v, addr, true);
        }
    }
}

/* Finds blocks in use in an extent whose header says that it is not in use. */
static void compare_unused(struct plx_verify *v, uint64_t number)
{
    uint64_t blocks = v->store->info.extent_blocks;

    v->result.free_blocks += blocks;
    v->unguarded[number] = v->unguarded[number] || v->marks.extents[number];
    for (uint64_t i = 0; v->marks.extents[number] && i < blocks; i++)
        if (plx_marked(&v->marks, v->store, PLX_MARK_REACHED, number * blocks + i))
            plx_verify_suspect(v, number * blocks + i, true);
}

void plx_verify_tell_leaks(struct plx_verify *v)
{
    uint64_t owned = v->leaks_owned, stuck = v->leaks_stuck;
    uint64_t left = v->result.leaked_blocks - v->result.deleted_blocks - owned - stuck;

    if (v->result.deleted_blocks)
        plx_verify_find(v, PLX_FINDING_INFO, "leak", 0, PLX_NO_VBLOCK,
                        "%llu block%s of deleted disks: to be collected",
                        (unsigned long long)v->result.deleted_blocks,
                        plx_plural(v->result.deleted_blocks));
    if (owned)
        plx_verify_find(v, PLX_FINDING_INFO, "leak", 0, PLX_NO_VBLOCK,
                        "%llu block%s %s allocated but unused in extents that an instance holds: "
                        "its reserves, what it left when it died, or common blocks that nobody "
                        "maps any more",
                        (unsigned long long)owned, plx_plural(owned), plx_is_or_are(owned));
    if (stuck)
        plx_verify_find(v, PLX_FINDING_INFO, "leak", 0, PLX_NO_VBLOCK,
                        "%llu block%s %s allocated but unused in extents that were damaged or went "
                        "back to an older state: never freed",
                        (unsigned long long)stuck, plx_plural(stuck), plx_is_or_are(stuck));
    if (left)
        plx_verify_find(v, PLX_FINDING_INFO, "leak", 0, PLX_NO_VBLOCK,
                        "%llu block%s %s allocated but unused in extents that nobody holds: left "
                        "by a crash, common and mapped by nobody any more, or of a disk that the "
                        "store does not hold any more",
                        (unsigned long long)left, plx_plural(left), plx_is_or_are(left));
}

static void count_leaks(struct plx_verify *v, uint64_t number)
{
    uint64_t leaks = v->leak.deleted + v->leak.other;

    v->result.leaked_blocks += leaks;
    if (leaks && v->options->disbelieved && v->options->disbelieved(v->options->context, number)) {
        v->leaks_stuck += leaks;
        return;
    }
    v->result.deleted_blocks += v->leak.deleted;
    v->leaks_owned += v->leak.owner ? v->leak.other : 0;
}

void plx_verify_bitmaps(struct plx_verify *v)
{
    for (uint64_t number = 0; number < v->extents && !v->error; number++) {
        if (v->types[number] == PLX_EXTENT_SYSTEM)
            continue;
        v->leak = (struct plx_leak){.extent = number};
        if (!plx_verify_read_extent(v, number, compare_page))
            compare_unused(v, number);
        v->leak.type = (enum plx_extent_type)v->types[number];
        v->leak.owner = v->owners[number];
        count_leaks(v, number);
        if (v->options->leak && v->leak.deleted + v->leak.other)
            v->options->leak(v->options->context, &v->leak);
        if (v->options->unguarded &&
            (v->unguarded[number] ||
             (v->options->owned && v->owners[number] && v->marks.extents[number])))
            v->options->unguarded(v->options->context, number);
    }
}
