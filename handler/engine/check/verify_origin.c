/* verify_origin.c - which of its data a clone got with the tree that it began with (VERIFY-11).
 *
 * The walk of a clone's tree goes down that tree beside its own, so that each entry has a *twin*:
 * the entry at the same place there. If both lead to the same block, then everything below is the
 * same as well, and nothing is read for it. So this costs one node more for each node that the
 * clone has written, at most; some are kept in memory, since the nodes of many key frames have the
 * same twin.
 *
 * Loop: the store's. Crash story: this file only reads.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/check/verify.h"

#define CACHED 256u

struct plx_twin_cache {
    uint64_t entry[CACHED];
    uint8_t nodes[CACHED][PLX_BLOCK_SIZE];
};

bool plx_verify_quiet_node(struct plx_verify *v, uint64_t entry, uint8_t *node)
{
    uint32_t known = plx_entry_checksum(entry);

    return plx_entry_addr(entry) < v->store->addr_limit &&
           !plx_verify_read(v, PLX_KIND_NODE, plx_entry_addr(entry), node, PLX_BLOCK_SIZE) &&
           (!known || plx_checksum24(plx_crc32c(node, PLX_BLOCK_SIZE)) == known);
}

static bool load(struct plx_verify *v, uint64_t twin, uint8_t *node)
{
    uint32_t known = plx_entry_checksum(twin);
    size_t at = (size_t)(plx_entry_addr(twin) % CACHED);

    if (!v->cache)
        v->cache = calloc(1, sizeof *v->cache);
    if (!v->cache) {
        v->error = PLX_ERR_NOMEM;
        return false;
    }
    if (known && v->cache->entry[at] == twin) {
        memcpy(node, v->cache->nodes[at], PLX_BLOCK_SIZE);
        return true;
    }
    if (!plx_verify_quiet_node(v, twin, node))
        return false; /* the walk of the nodes alone has reported it */
    v->cache->entry[at] = twin;
    memcpy(v->cache->nodes[at], node, PLX_BLOCK_SIZE);
    return true;
}

void plx_verify_twin_load(struct plx_verify *v, unsigned level, uint64_t node, uint64_t twin)
{
    uint8_t *into = v->twins + (size_t)(level - 1) * PLX_BLOCK_SIZE;

    v->twin_known[level - 1] =
        plx_entry_addr(twin) && plx_entry_addr(twin) != plx_entry_addr(node) && load(v, twin, into);
}

uint64_t plx_verify_twin(struct plx_verify *v, unsigned level, uint64_t node, uint64_t twin,
                         uint64_t entry, uint64_t at)
{
    const struct plx_vdi_record *record = v->record;

    if (level - 1 == record->origin_levels) /* the disk may have grown since */
        return at ? 0 : record->origin_root;
    if (level > record->origin_levels || !plx_entry_addr(twin))
        return 0;
    if (plx_entry_addr(twin) == plx_entry_addr(node) || !v->twin_known[level - 1])
        return entry; /* or it cannot be read: nothing is said of it */
    return plx_node_entry(v->twins + (size_t)(level - 1) * PLX_BLOCK_SIZE,
                          (unsigned)(at & (PLX_NODE_ENTRIES - 1)));
}

void plx_verify_twin_done(struct plx_verify *v)
{
    free(v->cache);
}
