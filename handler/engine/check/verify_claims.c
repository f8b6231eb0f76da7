/* verify_claims.c - a disk claims blocks: they are marked, and claims that do not fit make suspects
 * (VERIFY_TREE-2). See verify.h.
 *
 * Loop: the store's. Crash story: this file only reads.
 */
#include <stdlib.h>

#include "engine/base/list.h"
#include "engine/check/verify.h"

static bool is_suspect(const struct plx_verify *v, uint64_t addr)
{
    size_t low = 0, high = v->suspect_count; /* sorted by now */

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (v->suspects[middle].addr < addr)
            low = middle + 1;
        else
            high = middle;
    }
    return low < v->suspect_count && v->suspects[low].addr == addr;
}

void plx_verify_use(struct plx_verify *v, const struct plx_block_claim *claim)
{
    bool common = plx_addr_is_common(claim->addr);
    const struct plx_use use = {.addr = plx_addr_block(claim->addr),
                                .vblock = claim->vblock,
                                .place = claim->place,
                                .generation = v->record->generation,
                                .segment = claim->segment,
                                .below = claim->below,
                                .level = claim->level,
                                .damage = claim->damage,
                                .checksum = claim->checksum,
                                .content = claim->content,
                                .slot = v->record->slot,
                                .kin = v->self ? (size_t)(v->self - v->kin) : PLX_NO_KIN,
                                .what = claim->what,
                                .common = common,
                                .writable = claim->writable && !common,
                                .inherited = claim->inherited,
                                .named = claim->named,
                                .snapshot = claim->snapshot};

    if (!is_suspect(v, use.addr))
        return;
    if (!PLX_LIST_ROOM(v->uses, v->use_count, v->use_capacity, 64)) {
        v->error = PLX_ERR_NOMEM;
        return;
    }
    v->uses[v->use_count++] = use;
}

/* Whether the block was claimed before, as a common block (or as one that is not common). */
static bool claimed_as(const struct plx_verify *v, uint64_t addr, bool common)
{
    bool claimed =
        plx_verify_has(v, PLX_MARK_REACHED, addr) || plx_verify_has(v, PLX_MARK_NAMED, addr);

    return claimed && plx_verify_has(v, PLX_MARK_COMMON, addr) == common;
}

/* Whether recovery of the disk would not mark a block that its log names here, because the disk is
 * closed or its owner does not own the extent. */
static bool is_foreign(const struct plx_verify *v, uint64_t addr)
{
    uint64_t number = plx_addr_block(addr) / v->store->info.extent_blocks;

    return !v->record->owner || number >= v->extents || v->owners[number] != v->record->owner;
}

/* A disk's own block is nobody else's before; of disks of one family ancestors are read first. What
 * a clone inherited is its family's, and an ancestor's own at most. */
bool plx_verify_fits_others(const struct plx_verify *v, const struct plx_block_claim *claim)
{
    uint64_t addr = claim->addr;

    if (claim->content == PLX_CONTENT_NODE)
        return plx_verify_tag_fits(v, claim);
    if (plx_addr_is_common(addr) || !plx_marked(&v->marks, v->store, PLX_MARK_CLAIMED, addr))
        return true;
    if (!claim->inherited)
        return false;
    if (!v->self || v->self->strange)
        return true;
    return plx_marked(&v->family, v->store, PLX_MARK_CLAIMED, addr) &&
           (plx_verify_is_linked(v, v->self) ||
            !plx_marked(&v->marks, v->store, PLX_MARK_OWNED, addr));
}

static void mark_claimed(struct plx_verify *v, const struct plx_block_claim *claim)
{
    if (plx_addr_is_common(claim->addr))
        return;
    plx_verify_mark(v, PLX_MARK_CLAIMED, claim->addr);
    if (claim->content == PLX_CONTENT_NODE)
        plx_verify_tag(v, claim);
    else if (!claim->inherited)
        plx_verify_mark(v, PLX_MARK_OWNED, claim->addr);
}

void plx_verify_claim(struct plx_verify *v, const struct plx_block_claim *claim)
{
    uint64_t addr = claim->addr;
    bool read = plx_verify_has(v, PLX_MARK_REACHED, addr),
         written = plx_verify_has(v, PLX_MARK_WRITABLE, addr);
    bool common = plx_addr_is_common(addr), mixed = claimed_as(v, addr, !common);
    bool writable = claim->writable && !common;

    if (v->mode == PLX_VERIFY_GATHER) {
        plx_verify_use(v, claim);
        /* VERIFY_TREE-2, VERIFY-11 */
    } else if (v->mode == PLX_VERIFY_LIVE &&
               (written || (writable && read) || mixed || !plx_verify_fits_others(v, claim))) {
        plx_verify_suspect(v, plx_addr_block(addr), false);
    }
    mark_claimed(v, claim);
    if (!claim->named)
        plx_verify_mark(v, PLX_MARK_REACHED, addr);
    else
        plx_verify_mark(v, PLX_MARK_NAMED, addr);
    if (claim->named && is_foreign(v, addr))
        plx_verify_mark(v, PLX_MARK_FOREIGN, addr);
    if (writable)
        plx_verify_mark(v, PLX_MARK_WRITABLE, addr);
    if (common)
        plx_verify_mark(v, PLX_MARK_COMMON, addr);
}

void plx_verify_segment(struct plx_verify *v, uint64_t addr, uint64_t number, bool named)
{
    uint64_t blocks = v->store->info.segment_blocks;

    if (addr + blocks > v->store->addr_limit ||
        (!named && !plx_verify_type_is(v, addr, PLX_EXTENT_META))) {
        plx_verify_find(v, PLX_FINDING_ERROR, "address", addr, PLX_NO_VBLOCK,
                        "virtual disk %s: a log segment lies in no metadata extent",
                        v->record->name);
        return;
    }
    for (uint64_t i = 0; i < blocks; i++) {
        bool header = i == 0 && number != PLX_NOT_BEGUN;
        const struct plx_block_claim claim = {.addr = addr + i,
                                              .vblock = PLX_NO_VBLOCK,
                                              .place = PLX_NO_VBLOCK,
                                              .segment = number,
                                              .content =
                                                  header ? PLX_CONTENT_HEADER : PLX_CONTENT_OPEN,
                                              .what = "log segment",
                                              .writable = true,
                                              .named = named};

        plx_verify_claim(v, &claim);
    }
}
