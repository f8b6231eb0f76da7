/* verify_tree.c - the checker's own walk of trees.
 *
 * VERIFY_TREE-1  Every node matches its checksum and lies in a metadata extent; every block that a
 *     leaf names lies in a data extent.
 * VERIFY_TREE-2  A block that a live disk may overwrite in place has one user. A common block has
 *     any number of users, and each of them calls it common. Claims that do not fit this make the
 *     block a suspect; verify_suspects.c looks again and reports its users.
 *
 * Below a read-only node everything is the same for all who share it, so such a node is walked
 * once. The exception is a node below which a snapshot does not see everything (PLX_MARK_PARTLY):
 * another snapshot may see more.
 *
 * Loop: the store's.
 * Crash story: this file only reads.
 */
#include "engine/check/verify.h"

static void bad_address(struct plx_verify *v, uint64_t addr, uint64_t vblock, const char *what,
                        const char *type)
{
    plx_verify_find(v, PLX_FINDING_ERROR, "address", addr, vblock,
                    "virtual disk %s: %s at block %llu of the store, which is in no %s extent",
                    v->record->name, what, (unsigned long long)plx_addr_block(addr), type);
}

/* Returns false if the entry was not claimed, because this walk's snapshot does not see it. */
static bool leaf_entry(struct plx_verify *v, const struct plx_tree_walk *walk, uint64_t entry,
                       uint64_t at, bool read_only)
{
    uint64_t addr = plx_entry_addr(entry);
    bool common = plx_addr_is_common(addr), shared = read_only || walk->read_only || common;
    bool snapshot = walk->exclude != NULL, known;
    bool voided = !read_only && !common &&
                  plx_history_voided(snapshot ? walk->exclude : walk->behind, at >> PLX_NODE_SHIFT,
                                     walk->seq);
    const struct plx_block_claim claim = {.addr = addr,
                                          .vblock = at,
                                          .checksum = voided ? 0 : plx_entry_checksum(entry),
                                          .what = "data",
                                          .writable = !shared,
                                          .snapshot = snapshot};

    if (walk->index) {
        if (at >= walk->first_segment && at < walk->last_segment)
            plx_verify_segment(v, addr, at, false);
        return true; /* older segments are given up; later ones the record names */
    }
    if (!walk->nodes_only && at >= walk->blocks) {
        plx_verify_find(v, PLX_FINDING_ERROR, "address", addr, at,
                        "virtual disk %s: block %llu is mapped beyond the end", v->record->name,
                        (unsigned long long)at);
        return true;
    }
    if (walk->nodes_only || (walk->exclude && plx_history_excludes(walk->exclude, at)))
        return false;
    if ((entry & PLX_ENTRY_SUPERPAGE) || !plx_verify_type_is(v, addr, PLX_EXTENT_DATA)) {
        bad_address(v, addr, at, "data", "data");
        return true;
    }
    if (walk->behind) {
        v->live.mapped++;
        v->live.vouched += plx_entry_checksum(entry) != 0;
    }
    known = shared && plx_verify_has(v, PLX_MARK_REACHED, addr);
    plx_verify_claim(v, &claim);
    if (known || voided)
        return true; /* its contents were compared already, or its checksum no longer holds */
    plx_verify_data(v, addr, at, plx_entry_checksum(entry), walk->behind != NULL);
    return true;
}

static bool load_node(struct plx_verify *v, uint64_t entry, unsigned level, uint8_t *node)
{
    uint64_t addr = plx_entry_addr(entry);
    uint32_t known = plx_entry_checksum(entry);
    const char *wrong = NULL;

    if (plx_verify_read(v, PLX_KIND_NODE, addr, node, PLX_BLOCK_SIZE))
        wrong = "cannot be read";
    else if (known && plx_checksum24(plx_crc32c(node, PLX_BLOCK_SIZE)) != known) /* VERIFY_TREE-1 */
        wrong = "does not match its checksum";
    if (wrong)
        plx_verify_find(v, PLX_FINDING_ERROR, "node", addr, PLX_NO_VBLOCK,
                        "virtual disk %s: node of level %u %s", v->record->name, level, wrong);
    return !wrong;
}

/* Whether an earlier walk has claimed everything below a node. */
static bool walked(const struct plx_verify *v, const struct plx_tree_walk *walk, uint64_t addr,
                   bool shared)
{
    /* A walk of nodes only leaves NAMED: data below was not claimed, but nodes were. */
    if (walk->nodes_only && plx_verify_has(v, PLX_MARK_NAMED, addr))
        return true;
    return !plx_verify_has(v, PLX_MARK_PARTLY, addr) &&
           ((shared && plx_verify_has(v, PLX_MARK_REACHED, addr)) ||
            plx_marked(&v->own, v->store, PLX_MARK_REACHED, addr));
}

/* Returns whether everything below the node is claimed. */
static bool walk_node(struct plx_verify *v, const struct plx_tree_walk *walk, uint64_t entry,
                      unsigned level, uint64_t index, bool read_only)
{
    uint64_t addr = plx_entry_addr(entry);
    uint8_t *node =
        v->nodes + (size_t)(level - 1 + (walk->index ? PLX_LEVELS_MAX : 0)) * PLX_BLOCK_SIZE;
    bool shared = read_only || walk->read_only, known, all = true;
    const struct plx_block_claim claim = {.addr = addr,
                                          .vblock = PLX_NO_VBLOCK,
                                          .checksum = plx_entry_checksum(entry),
                                          .content = PLX_CONTENT_NODE,
                                          .what = walk->index ? "node of the log's index" : "node",
                                          .writable = !shared,
                                          .named = walk->nodes_only,
                                          .snapshot = walk->exclude != NULL};

    if (v->error)
        return true;
    if ((entry & PLX_ENTRY_SUPERPAGE) || plx_addr_is_common(addr) ||
        !plx_verify_type_is(v, addr, PLX_EXTENT_META)) { /* VERIFY-2 */
        bad_address(v, addr, PLX_NO_VBLOCK, "a node", "metadata");
        if ((entry & PLX_ENTRY_SUPERPAGE) || plx_addr_is_common(addr) ||
            !plx_verify_is_unused(v, addr) || !plx_entry_checksum(entry))
            return true;
        /* The extent's header may be an older state, because the device lost a write. If the node
         * matches its checksum, everything below it is the disk's all the same. */
    }
    known = walked(v, walk, addr, shared);
    plx_verify_claim(v, &claim);
    if (known || !load_node(v, entry, level, node)) {
        v->live.partly = v->live.partly || walk->behind;
        return true;
    }
    v->result.nodes += v->mode == PLX_VERIFY_LIVE;
    for (unsigned i = 0; i < PLX_NODE_ENTRIES; i++) {
        uint64_t child = plx_node_entry(node, i), at = index << PLX_NODE_SHIFT | i;
        bool child_read_only = read_only || (child & PLX_ENTRY_READ_ONLY);

        if (!plx_entry_addr(child))
            continue;
        if (!(level > 1 ? walk_node(v, walk, child, level - 1, at, child_read_only)
                        : leaf_entry(v, walk, child, at, child_read_only)))
            all = false;
    }
    if (!all && !walk->nodes_only)
        plx_verify_mark(v, PLX_MARK_PARTLY, addr);
    return all;
}

void plx_verify_tree(struct plx_verify *v, const struct plx_tree_walk *walk, uint64_t root,
                     unsigned levels)
{
    if (plx_entry_addr(root))
        walk_node(v, walk, root, levels, 0, (root & PLX_ENTRY_READ_ONLY) != 0);
}
