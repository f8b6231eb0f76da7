/* verify_marks.c - what the checker knows of each block, and the list of suspects. See verify.h.
 *
 * Loop: the store's. Crash story: this file only reads.
 */
#include <stdlib.h>

#include "engine/check/verify.h"

bool plx_marked(const struct plx_marks *marks, const struct plx_store *store, enum plx_mark mark,
                uint64_t addr)
{
    uint64_t blocks = store->info.extent_blocks;
    const uint64_t *bits;

    addr = plx_addr_block(addr);
    bits = addr / blocks < marks->count ? marks->extents[addr / blocks] : NULL;
    return bits && (bits[(mark * blocks + addr % blocks) / 64] >> addr % 64 & 1);
}

bool plx_mark_set(struct plx_marks *marks, const struct plx_store *store, enum plx_mark mark,
                  uint64_t addr)
{
    uint64_t blocks = store->info.extent_blocks;
    uint64_t **bits;

    addr = plx_addr_block(addr);
    if (addr / blocks >= marks->count)
        return true;
    bits = &marks->extents[addr / blocks];
    if (!*bits)
        *bits = calloc(marks->kinds * blocks / 64, sizeof **bits);
    if (*bits)
        (*bits)[(mark * blocks + addr % blocks) / 64] |= 1ull << addr % 64;
    return *bits != NULL;
}

bool plx_verify_has(const struct plx_verify *v, enum plx_mark mark, uint64_t addr)
{
    return plx_marked(&v->own, v->store, mark, addr) ||
           (v->mode != PLX_VERIFY_GATHER && plx_marked(&v->marks, v->store, mark, addr));
}

void plx_verify_mark(struct plx_verify *v, enum plx_mark mark, uint64_t addr)
{
    if (!plx_mark_set(&v->own, v->store, mark, addr))
        v->error = PLX_ERR_NOMEM;
}

/* ---- Nodes ---- */

#define TAG_PLACES 255u

/* Of what is known of a node: 24 bits of checksum, or 0, and in the others something of its place,
 * which is never 0. */
static uint32_t tag_of(const struct plx_block_claim *claim)
{
    return claim->checksum | (uint32_t)(1 + claim->place % TAG_PLACES) << 24;
}

static uint32_t checksum_in(uint32_t tag)
{
    return tag & 0xffffff;
}

static uint32_t *tag_at(const struct plx_verify *v, uint64_t addr)
{
    uint64_t blocks = v->store->info.extent_blocks;

    addr = plx_addr_block(addr);
    return addr / blocks < v->extents && v->tags[addr / blocks]
               ? &v->tags[addr / blocks][addr % blocks]
               : NULL;
}

bool plx_verify_tag_fits(const struct plx_verify *v, const struct plx_block_claim *claim)
{
    const uint32_t *known = tag_at(v, claim->addr);
    uint32_t tag = tag_of(claim);

    if (!known || !*known ||
        (!plx_verify_has(v, PLX_MARK_REACHED, claim->addr) &&
         !plx_verify_has(v, PLX_MARK_NAMED, claim->addr))) /* of a reading that does not count */
        return true;
    return *known >> 24 == tag >> 24 &&
           (!checksum_in(*known) || !checksum_in(tag) || checksum_in(*known) == checksum_in(tag));
}

void plx_verify_tag(struct plx_verify *v, const struct plx_block_claim *claim)
{
    uint64_t blocks = v->store->info.extent_blocks, extent = plx_addr_block(claim->addr) / blocks;
    uint32_t *tag;

    if (extent >= v->extents)
        return;
    if (!v->tags[extent])
        v->tags[extent] = calloc(blocks, sizeof **v->tags);
    tag = tag_at(v, claim->addr);
    if (!tag)
        v->error = PLX_ERR_NOMEM;
    else if (claim->checksum || !*tag || !plx_verify_tag_fits(v, claim))
        *tag = tag_of(claim);
}

/* ---- Suspects ---- */

void plx_verify_suspect(struct plx_verify *v, uint64_t addr, bool missing)
{
    struct plx_suspect *suspect = NULL;

    for (size_t i = v->suspect_count; i-- > 0 && !suspect;)
        if (v->suspects[i].addr == addr)
            suspect = &v->suspects[i];
    if (!suspect && v->suspect_count == PLX_VERIFY_SUSPECTS) {
        v->suspects_dropped++;
        return;
    }
    if (!suspect) {
        suspect = &v->suspects[v->suspect_count++];
        *suspect = (struct plx_suspect){.addr = addr};
    }
    suspect->missing = suspect->missing || missing;
    suspect->shared = suspect->shared || !missing;
}

void plx_verify_clear_marks(struct plx_verify *v, struct plx_marks *marks)
{
    for (uint64_t extent = 0; extent < v->extents; extent++) {
        free(marks->extents[extent]);
        marks->extents[extent] = NULL;
    }
}
