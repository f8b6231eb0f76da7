/* verify_tree.c - the checker's own walk of trees.
 *
 * VERIFY_TREE-1  Every node matches its checksum and lies in a metadata extent; every block that a
 *     leaf names lies in a data extent.
 * VERIFY_TREE-2  A block that a live disk may overwrite in place has one user. A common block has
 *     any number of users, and each of them calls it common. Claims that do not fit this make the
 *     block a suspect; verify_suspects.c looks again and reports its users.
 *
 * Below a read-only node everything is the same for all disks that share it. So such a node is
 * walked once, if all name it at the same place and with the same checksum (VERIFY-11). A different
 * checksum is that of another node, and one of the two disks has lost its own. The exception is a
 * node below which a snapshot does not see everything (PLX_MARK_PARTLY): another snapshot may see
 * more.
 *
 * Loop: the store's.
 * Crash story: this file only reads.
 */
#include "engine/check/verify.h"

/* VERIFY-9: further disks may have the block. The log's index is its disk's alone. */
static void damage(struct plx_verify *v, const struct plx_tree_walk *walk,
                   const struct plx_block_claim *claim, enum plx_damage damage)
{
    struct plx_block_claim damaged = *claim;

    damaged.damage = damage;
    plx_verify_damage(v, &damaged, walk->behind != NULL);
}

/* Returns false if the entry was not claimed, because this walk's snapshot does not see it. */
static bool leaf_entry(struct plx_verify *v, const struct plx_tree_walk *walk, uint64_t entry,
                       uint64_t at, bool read_only, uint64_t twin)
{
    uint64_t addr = plx_entry_addr(entry);
    bool common = plx_addr_is_common(addr), shared = read_only || walk->read_only || common;
    bool snapshot = walk->exclude != NULL, read;
    bool voided = !read_only && !common &&
                  plx_history_voided(snapshot ? walk->exclude : walk->behind, at >> PLX_NODE_SHIFT,
                                     walk->seq);
    const struct plx_block_claim claim = {.addr = addr,
                                          .vblock = at,
                                          .place = at,
                                          .checksum = voided ? 0 : plx_entry_checksum(entry),
                                          .what = "data",
                                          .writable = !shared,
                                          .inherited = shared && plx_entry_addr(twin) == addr,
                                          .snapshot = snapshot};

    if (walk->index) {
        if (at >= walk->first_segment && at < walk->last_segment)
            plx_verify_segment(v, addr, at, false);
        return true; /* older segments are given up; later ones the record names */
    }
    if (!walk->nodes_only && at >= walk->blocks) {
        damage(v, walk, &claim, PLX_DAMAGE_BEYOND);
        return true;
    }
    if (walk->nodes_only || (walk->exclude && plx_history_excludes(walk->exclude, at)))
        return false;
    if ((entry & PLX_ENTRY_SUPERPAGE) || !plx_verify_type_is(v, addr, PLX_EXTENT_DATA)) {
        damage(v, walk, &claim, PLX_DAMAGE_PLACE);
        return true;
    }
    if (walk->behind) {
        v->live.mapped++;
        v->live.vouched += plx_entry_checksum(entry) != 0;
    }
    read = shared &&
           (plx_marked(&v->own, v->store, PLX_MARK_REACHED, addr) ||
            (plx_verify_has(v, PLX_MARK_REACHED, addr) && plx_verify_fits_others(v, &claim)));
    plx_verify_claim(v, &claim);
    if (read || voided)
        return true; /* its contents were compared already, or its checksum no longer holds */
    plx_verify_data(v, addr, at, plx_entry_checksum(entry), walk->behind != NULL);
    return true;
}

static bool load_node(struct plx_verify *v, const struct plx_tree_walk *walk,
                      const struct plx_block_claim *claim, unsigned level, uint8_t *node)
{
    uint32_t known = claim->checksum;
    enum plx_damage wrong = PLX_DAMAGE_NONE;

    if (plx_verify_read(v, PLX_KIND_NODE, claim->addr, node, PLX_BLOCK_SIZE))
        wrong = PLX_DAMAGE_UNREADABLE;
    else if (known && plx_checksum24(plx_crc32c(node, PLX_BLOCK_SIZE)) != known) /* VERIFY_TREE-1 */
        wrong = PLX_DAMAGE_CHECKSUM;
    if (wrong && walk->index)
        plx_verify_find(
            v, PLX_FINDING_ERROR, "node", claim->addr, PLX_NO_VBLOCK,
            "virtual disk %s: node of level %u of the log's index %s", v->record->name, level,
            wrong == PLX_DAMAGE_CHECKSUM ? "does not match its checksum" : "cannot be read");
    else if (wrong)
        damage(v, walk, claim, wrong);
    return !wrong;
}

/* Returns whether the node may be read all the same. */
static bool misplaced_node(struct plx_verify *v, const struct plx_tree_walk *walk, uint64_t entry,
                           const struct plx_block_claim *claim)
{
    if (walk->index)
        plx_verify_find(v, PLX_FINDING_ERROR, "address", claim->addr, PLX_NO_VBLOCK,
                        "virtual disk %s: a node at block %llu of the store, which is in no "
                        "metadata extent; it leads to the log",
                        v->record->name, (unsigned long long)plx_addr_block(claim->addr));
    else
        damage(v, walk, claim, PLX_DAMAGE_PLACE);
    /* The extent's header may be an older state, because the device lost a write. If the node
     * matches its checksum, everything below it is the disk's all the same. */
    return !(entry & PLX_ENTRY_SUPERPAGE) && !plx_addr_is_common(claim->addr) &&
           plx_verify_is_unused(v, claim->addr) && claim->checksum;
}

/* Whether an earlier walk has claimed everything below a node. */
static bool walked(const struct plx_verify *v, const struct plx_tree_walk *walk,
                   const struct plx_block_claim *claim)
{
    uint64_t addr = claim->addr;

    if (!plx_verify_fits_others(v, claim)) /* VERIFY-11: it was another node */
        return false;
    /* A walk of nodes only leaves NAMED: data below was not claimed, but nodes were. */
    if (walk->nodes_only && plx_verify_has(v, PLX_MARK_NAMED, addr))
        return true;
    return !plx_verify_has(v, PLX_MARK_PARTLY, addr) &&
           ((!claim->writable && plx_verify_has(v, PLX_MARK_REACHED, addr)) ||
            plx_marked(&v->own, v->store, PLX_MARK_REACHED, addr));
}

/* Whether it matters which data a clone began with: the walk claims data. */
static bool has_twins(const struct plx_verify *v, const struct plx_tree_walk *walk)
{
    return !walk->index && !walk->nodes_only && v->mode != PLX_VERIFY_DELETED &&
           plx_entry_addr(v->record->origin_root);
}

static uint64_t place_of(const struct plx_tree_walk *walk, unsigned level, uint64_t index)
{
    return (index << 8 | level << 1 | walk->index) * 0x9e3779b97f4a7c15ull >> 16;
}

/* twin: see plx_verify_twin(). Returns whether everything below the node is claimed. */
static bool walk_node(struct plx_verify *v, const struct plx_tree_walk *walk, uint64_t entry,
                      unsigned level, uint64_t index, bool read_only, uint64_t twin)
{
    uint64_t addr = plx_entry_addr(entry);
    uint8_t *node =
        v->nodes + (size_t)(level - 1 + (walk->index ? PLX_LEVELS_MAX : 0)) * PLX_BLOCK_SIZE;
    bool shared = read_only || walk->read_only, known, all = true;
    const struct plx_block_claim claim = {.addr = addr,
                                          .vblock = PLX_NO_VBLOCK,
                                          .below = index << (level * PLX_NODE_SHIFT),
                                          .level = walk->index ? 0 : level,
                                          .place = place_of(walk, level, index),
                                          .checksum = plx_entry_checksum(entry),
                                          .content = PLX_CONTENT_NODE,
                                          .what = walk->index ? "node of the log's index" : "node",
                                          .writable = !shared,
                                          .named = walk->nodes_only,
                                          .snapshot = walk->exclude != NULL};

    if (v->error)
        return true;
    if (((entry & PLX_ENTRY_SUPERPAGE) || plx_addr_is_common(addr) ||
         !plx_verify_type_is(v, addr, PLX_EXTENT_META)) && /* VERIFY-2 */
        !misplaced_node(v, walk, entry, &claim))
        return true;
    known = walked(v, walk, &claim);
    plx_verify_claim(v, &claim);
    if (known || !load_node(v, walk, &claim, level, node)) {
        v->live.partly = v->live.partly || walk->behind;
        return true;
    }
    v->result.nodes += v->mode == PLX_VERIFY_LIVE;
    if (has_twins(v, walk))
        plx_verify_twin_load(v, level, entry, twin);
    for (unsigned i = 0; i < PLX_NODE_ENTRIES; i++) {
        uint64_t child = plx_node_entry(node, i), at = index << PLX_NODE_SHIFT | i;
        bool child_read_only = read_only || (child & PLX_ENTRY_READ_ONLY);
        uint64_t below;

        if (!plx_entry_addr(child))
            continue;
        below = has_twins(v, walk) ? plx_verify_twin(v, level, entry, twin, child, at) : 0;
        if (!(level > 1 ? walk_node(v, walk, child, level - 1, at, child_read_only, below)
                        : leaf_entry(v, walk, child, at, child_read_only, below)))
            all = false;
    }
    if (!all && !walk->nodes_only)
        plx_verify_mark(v, PLX_MARK_PARTLY, addr);
    return all;
}

void plx_verify_tree(struct plx_verify *v, const struct plx_tree_walk *walk, uint64_t root,
                     unsigned levels)
{
    uint64_t twin = has_twins(v, walk) ? plx_verify_twin(v, levels + 1, 0, 0, root, 0) : 0;

    if (plx_entry_addr(root))
        walk_node(v, walk, root, levels, 0, (root & PLX_ENTRY_READ_ONLY) != 0, twin);
}
