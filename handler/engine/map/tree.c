/* tree.c - see tree.h.
 *
 * The states of a builder, level by level from the leaves up:
 *   1. BUILD     Builds nodes of the level, up to PLX_TREE_BUFFER of them. Old nodes may have to be
 *                read first.
 *   2. ALLOC     Allocates blocks and submits the nodes. May wait for space.
 *   3. WRITTEN   The writes have completed. Back to BUILD: more nodes of this level, or the next
 *                level with the entries of the nodes just written, until the root is written.
 *
 * TREE-1  No node is overwritten: every changed node goes to a free block. So a crash cannot tear
 *     the old tree, which stays valid until the owner's record names the new one.
 * TREE-2  If a snapshot sees an entry's block, the entry is read-only in the new tree, or an entry
 *     above it is. So nobody overwrites the block in place.
 * TREE-3  A block or node is recorded as dead only if no snapshot saw it when it was replaced, and
 *     only once.
 * TREE-4  Each leaf that is built adds how many more blocks it maps than the old leaf, and of how
 *     many more it knows the checksum. A sum that is impossible becomes PLX_MAPPED_UNKNOWN: the
 *     base's count came from the store and may be damaged.
 * Loop: the store's loop.
 * Crash story: until the owner's record is written, nothing refers to the new nodes. A crash before
 *   leaves them unmarked, or marked and leaked.
 */
#include "engine/map/tree.h"

#include <stdlib.h>
#include <string.h>

enum {
    TREE_BUILD,
    TREE_ALLOC,
    TREE_WRITTEN,
};

static int tree_init(struct plx_tree *tree, size_t changes)
{
    tree->capacity = changes ? changes : 1;
    tree->in = malloc(tree->capacity * sizeof *tree->in);
    tree->out = malloc(tree->capacity * sizeof *tree->out);
    tree->buffer = aligned_alloc(PLX_BLOCK_SIZE, PLX_TREE_BUFFER * PLX_BLOCK_SIZE);
    tree->level = 1;
    tree->state = TREE_BUILD;
    if (tree->in && tree->out && tree->buffer)
        return 0;
    plx_tree_done(tree);
    return PLX_ERR_NOMEM;
}

int plx_tree_begin_map(struct plx_tree *tree, struct plx_map *map, unsigned new_levels,
                       struct plx_task *task, struct plx_deaths *data_deaths,
                       struct plx_deaths *node_deaths)
{
    size_t leaves = 0;
    uint64_t last = UINT64_MAX;

    for (size_t i = 0; i < map->frozen.count; i++) {
        uint64_t leaf = plx_slot_leaf(&map->frozen.sorted[i]);

        leaves += leaf != last;
        last = leaf;
    }
    *tree = (struct plx_tree){
        .store = map->store,
        .task = task,
        .root = map->base.root,
        .levels = map->base.levels,
        .shared = map->base.gen != map->active.first_gen,
        .map = map,
        .new_levels = (unsigned)plx_max_u64(new_levels, map->base.levels),
        .data_deaths = data_deaths,
        .node_deaths = node_deaths,
    };
    return tree_init(tree, leaves);
}

int plx_tree_begin_plain(struct plx_tree *tree, struct plx_store *store, uint64_t root,
                         unsigned levels, const struct plx_tree_change *changes, size_t count,
                         struct plx_task *task, struct plx_deaths *node_deaths)
{
    int error;

    *tree = (struct plx_tree){
        .store = store,
        .task = task,
        .root = root,
        .levels = levels,
        .new_levels = levels,
        .node_deaths = node_deaths,
    };
    error = tree_init(tree, count);
    if (error)
        return error;
    memcpy(tree->in, changes, count * sizeof *changes);
    tree->in_count = count;
    return 0;
}

static uint64_t count_after(uint64_t before, int64_t more, uint64_t most)
{
    uint64_t after = before + (uint64_t)more;

    return before == PLX_MAPPED_UNKNOWN || after > most ? PLX_MAPPED_UNKNOWN : after;
}

/* TREE-4 */
void plx_tree_count(const struct plx_tree *tree, uint64_t size_bytes, uint64_t *ret_mapped,
                    uint64_t *ret_vouched)
{
    const struct plx_base *base = &tree->map->base;
    uint64_t mapped =
        count_after(base->mapped, tree->mapped, plx_div_up(size_bytes, PLX_BLOCK_SIZE));

    *ret_mapped = mapped;
    *ret_vouched = mapped == PLX_MAPPED_UNKNOWN ? PLX_MAPPED_UNKNOWN
                                                : count_after(base->vouched, tree->vouched, mapped);
}

void plx_tree_done(struct plx_tree *tree)
{
    free(tree->in);
    free(tree->out);
    free(tree->buffer);
    plx_deaths_free(&tree->made);
    tree->in = tree->out = NULL;
    tree->buffer = NULL;
}

void plx_tree_abort(struct plx_tree *tree)
{
    plx_deaths_give_back(tree->store, &tree->made, NULL);
    plx_tree_done(tree);
}

static void died(struct plx_deaths *deaths, uint64_t addr)
{
    if (deaths && addr)
        plx_deaths_add(deaths, addr);
}

/* ---- The old tree ---- */

struct old_node {
    const void *node; /* NULL: there is no such node */
    uint64_t entry;   /* the entry that names it */
    bool read_only;   /* some entry on the way to it is read-only */
};

/* Finds the old node at (level, index). Above the old root there is none: see synthesize(). */
static int find_old(struct plx_tree *tree, unsigned level, uint64_t index, struct old_node *ret)
{
    struct old_node at = {.entry = tree->root,
                          .read_only = (tree->root & PLX_ENTRY_READ_ONLY) != 0};

    *ret = (struct old_node){.read_only = at.read_only};
    if (level > tree->levels || index >> ((tree->levels - level) * PLX_NODE_SHIFT))
        return 0;
    for (unsigned l = tree->levels;; l--) {
        int error;

        ret->read_only = at.read_only;
        if (!plx_entry_addr(at.entry))
            return 0;
        error = plx_cache_get(tree->store->cache, at.entry, l, tree->task, &at.node);
        if (error)
            return error;
        if (l == level)
            break;
        at.entry = plx_node_entry(at.node, index >> ((l - 1 - level) * PLX_NODE_SHIFT) &
                                               (PLX_NODE_ENTRIES - 1));
        at.read_only = at.read_only || (at.entry & PLX_ENTRY_READ_ONLY);
    }
    *ret = at;
    return 0;
}

/* The new node begins as a copy of the old one. */
static void copy_old(const struct plx_tree *tree, const struct old_node *old, uint8_t *node)
{
    if (!old->node) {
        memset(node, 0, PLX_BLOCK_SIZE);
        return;
    }
    memcpy(node, old->node, PLX_BLOCK_SIZE);
    if (old->read_only || tree->shared)
        plx_node_set_read_only(node); /* TREE-2 */
}

static bool node_is_empty(const uint8_t *node)
{
    for (unsigned i = 0; i < PLX_NODE_ENTRIES; i++)
        if (plx_entry_addr(plx_node_entry(node, i)))
            return false;
    return true;
}

/* ---- Leaves of a map ---- */

static size_t next_leaf(const struct plx_map *map, size_t at)
{
    uint64_t leaf = plx_slot_leaf(&map->frozen.sorted[at]);

    while (at < map->frozen.count && plx_slot_leaf(&map->frozen.sorted[at]) == leaf)
        at++;
    return at;
}

/* The changes of one leaf. Its BLOCK slots are those from `block` to before `end`. */
struct leaf_changes {
    const struct plx_slot *unmapped, *voided, *block, *end;
};

/* Markers come before blocks: plx_overlay_sort(). */
static struct leaf_changes collect_leaf(const struct plx_map *map, size_t at)
{
    const struct plx_slot *sorted = map->frozen.sorted;
    struct leaf_changes changes = {.block = &sorted[at], .end = &sorted[next_leaf(map, at)]};

    for (; changes.block < changes.end; changes.block++) {
        switch (plx_slot_kind(changes.block)) {
        case PLX_OVERLAY_UNMAPPED:
            changes.unmapped = changes.block;
            break;
        case PLX_OVERLAY_VOIDED:
            changes.voided = changes.block;
            break;
        case PLX_OVERLAY_BLOCK:
            return changes;
        }
    }
    return changes;
}

/* The new entry of a block. slot: its BLOCK slot; NULL: only the leaf's markers concern it. */
static uint64_t edit_entry(struct plx_tree *tree, const struct leaf_changes *changes,
                           const struct plx_slot *slot, uint64_t old, bool path_read_only)
{
    const struct plx_overlay *frozen = &tree->map->frozen;
    bool old_read_only = path_read_only || (old & PLX_ENTRY_READ_ONLY);
    bool inherited = old_read_only || tree->shared; /* TREE-2 */
    uint64_t entry;

    old &= ~PLX_ENTRY_READ_ONLY;
    if (slot && !(slot->value & PLX_SLOT_OLDER)) {
        if ((slot->value & PLX_SLOT_BASE_DEAD) && !old_read_only)
            died(tree->data_deaths, plx_entry_addr(old)); /* TREE-3 */
        entry = slot->value & ~(PLX_SLOT_OLDER | PLX_SLOT_BASE_DEAD);
        if (plx_entry_addr(entry) && plx_overlay_gen(frozen, slot) != tree->map->active.first_gen)
            entry |= PLX_ENTRY_READ_ONLY;
        return entry;
    }
    if (changes->unmapped) {
        if ((changes->unmapped->value & PLX_SLOT_BASE_DEAD) && !old_read_only)
            died(tree->data_deaths, plx_entry_addr(old));
        return 0;
    }
    if (!plx_entry_addr(old))
        return 0;
    if (slot)
        old = plx_entry_make(plx_entry_addr(old), plx_entry_checksum(slot->value));
    else if (changes->voided && !old_read_only && plx_entry_is_own(old) &&
             plx_overlay_gen(frozen, changes->voided) == tree->map->base.gen)
        old = plx_entry_void(old);
    return inherited ? old | PLX_ENTRY_READ_ONLY : old;
}

/* Begins to read the old leaf. False: a node above it had to be read first, which has begun. */
static bool leaf_ahead(struct plx_tree *tree, uint64_t leaf)
{
    uint64_t entry = tree->root;

    if (!tree->levels || leaf >> ((tree->levels - 1) * PLX_NODE_SHIFT))
        return true;
    for (unsigned level = tree->levels; plx_entry_addr(entry); level--) {
        const void *node = plx_cache_ahead(tree->store->cache, entry, level);

        if (level == 1)
            return true;
        if (!node)
            return false;
        entry =
            plx_node_entry(node, leaf >> ((level - 2) * PLX_NODE_SHIFT) & (PLX_NODE_ENTRIES - 1));
    }
    return true;
}

/* Gives the device many old leaves to read at once. Reading them one by one would cost a round trip
 * each. */
static void read_ahead(struct plx_tree *tree)
{
    const struct plx_overlay *frozen = &tree->map->frozen;
    unsigned most = plx_cache_ahead_max(tree->store->cache);

    PLX_ASSERT(tree->ahead >= tree->slot); /* a leaf that is built has been read */
    while (tree->ahead < frozen->count && tree->ahead_leaves < most &&
           leaf_ahead(tree, plx_slot_leaf(&frozen->sorted[tree->ahead]))) {
        tree->ahead = next_leaf(tree->map, tree->ahead);
        tree->ahead_leaves++;
    }
}

static void edit(struct plx_tree *tree, const struct leaf_changes *changes,
                 const struct plx_slot *slot, unsigned i, const struct old_node *old, uint8_t *node)
{
    uint64_t before = old->node ? plx_node_entry(old->node, i) : 0;
    uint64_t entry = edit_entry(tree, changes, slot, before, old->read_only);

    tree->mapped += (plx_entry_addr(entry) != 0) - (plx_entry_addr(before) != 0); /* TREE-4 */
    tree->vouched += (plx_entry_checksum(entry) != 0) - (plx_entry_checksum(before) != 0);
    plx_node_set_entry(node, i, entry);
}

static unsigned place_in_leaf(const struct plx_slot *slot)
{
    return plx_slot_index(slot) & (PLX_NODE_ENTRIES - 1);
}

static void edit_leaf(struct plx_tree *tree, const struct leaf_changes *changes,
                      const struct old_node *old, uint8_t *node)
{
    const struct plx_slot *slot = changes->block;

    if (!changes->unmapped && !changes->voided) {
        for (; slot < changes->end; slot++)
            edit(tree, changes, slot, place_in_leaf(slot), old, node);
        return;
    }
    for (unsigned i = 0; i < PLX_NODE_ENTRIES; i++) {
        bool named = slot < changes->end && place_in_leaf(slot) == i;

        edit(tree, changes, named ? slot : NULL, i, old, node);
        slot += named;
    }
}

static int build_leaf(struct plx_tree *tree, uint8_t *node, struct old_node *old,
                      uint64_t *ret_index)
{
    struct leaf_changes changes;
    uint64_t leaf = plx_slot_leaf(&tree->map->frozen.sorted[tree->slot]);
    int error;

    read_ahead(tree);
    error = find_old(tree, 1, leaf, old);
    if (error)
        return error;
    changes = collect_leaf(tree->map, tree->slot);
    tree->slot = (size_t)(changes.end - tree->map->frozen.sorted);
    tree->ahead_leaves -= tree->ahead_leaves > 0;
    copy_old(tree, old, node);
    edit_leaf(tree, &changes, old, node);
    *ret_index = leaf;
    return 0;
}

/* ---- Inner nodes, and leaves of a plain tree ---- */

/* Makes a node above the old root. The old root is child 0 of the lowest such node. */
static void synthesize(const struct plx_tree *tree, uint64_t index, uint8_t *node)
{
    memset(node, 0, PLX_BLOCK_SIZE);
    if (tree->level == tree->levels + 1 && index == 0)
        plx_node_set_entry(node, 0, tree->root);
    if (tree->shared)
        plx_node_set_read_only(node); /* TREE-2 */
}

static int build_inner(struct plx_tree *tree, uint8_t *node, struct old_node *old,
                       uint64_t *ret_index)
{
    uint64_t index = tree->in[tree->in_at].index >> PLX_NODE_SHIFT;
    int error = find_old(tree, tree->level, index, old);

    if (error)
        return error;
    if (tree->level > tree->levels)
        synthesize(tree, index, node);
    else
        copy_old(tree, old, node);
    for (; tree->in_at < tree->in_count && tree->in[tree->in_at].index >> PLX_NODE_SHIFT == index;
         tree->in_at++)
        plx_node_set_entry(node, tree->in[tree->in_at].index & (PLX_NODE_ENTRIES - 1),
                           tree->in[tree->in_at].entry);
    *ret_index = index;
    return 0;
}

/* ---- The machine ---- */

static bool level_has_more(const struct plx_tree *tree)
{
    if (tree->map && tree->level == 1)
        return tree->slot < tree->map->frozen.count;
    return tree->in_at < tree->in_count;
}

/* Builds nodes until the buffer is full or the level is done. */
static int build_some(struct plx_tree *tree)
{
    while (level_has_more(tree) && tree->buffered < PLX_TREE_BUFFER) {
        uint8_t *node = tree->buffer + (size_t)tree->buffered * PLX_BLOCK_SIZE;
        struct old_node old;
        uint64_t index;
        int error = tree->map && tree->level == 1 ? build_leaf(tree, node, &old, &index)
                                                  : build_inner(tree, node, &old, &index);

        if (error)
            return error;
        if (old.node && !old.read_only && !tree->shared)
            died(tree->node_deaths, plx_entry_addr(old.entry)); /* TREE-3 */
        tree->out[tree->out_count] = (struct plx_tree_change){.index = index};
        if (!node_is_empty(node))
            tree->owner[tree->buffered++] = tree->out_count;
        tree->out_count++;
    }
    return 0;
}

static int alloc_and_write(struct plx_tree *tree)
{
    while (tree->written < tree->buffered) {
        uint64_t addr, count;
        /* TREE-1 */
        int error = plx_alloc_run(tree->store, PLX_EXTENT_META, tree->buffered - tree->written,
                                  tree->task, &addr, &count);

        if (error)
            return error;
        tree->iovs[tree->xfer_count] = (struct iovec){
            tree->buffer + (size_t)tree->written * PLX_BLOCK_SIZE, count * PLX_BLOCK_SIZE};
        plx_store_xfer(tree->store, &tree->xfers[tree->xfer_count], PLX_IO_WRITE, PLX_KIND_NODE,
                       addr, 0, count * PLX_BLOCK_SIZE, &tree->iovs[tree->xfer_count], 1,
                       &tree->join);
        tree->xfer_count++;
        for (uint64_t i = 0; i < count; i++, tree->written++) {
            const uint8_t *node = tree->buffer + (size_t)tree->written * PLX_BLOCK_SIZE;
            uint64_t entry =
                plx_entry_make(addr + i, plx_checksum24(plx_crc32c(node, PLX_BLOCK_SIZE)));

            plx_deaths_add(&tree->made, addr + i);
            plx_cache_put(tree->store->cache, entry, tree->level, node);
            tree->out[tree->owner[tree->written]].entry = entry;
        }
        tree->store->counters.keyframe_nodes += count;
    }
    return 0;
}

static void next_level(struct plx_tree *tree)
{
    struct plx_tree_change *swap = tree->in;

    tree->in = tree->out;
    tree->in_count = tree->out_count;
    tree->in_at = 0;
    tree->out = swap;
    tree->out_count = 0;
    tree->level++;
}

int plx_tree_step(struct plx_tree *tree, uint64_t *ret_root)
{
    for (;;) {
        int error;

        switch (tree->state) {
        case TREE_BUILD:
            error = build_some(tree);
            if (error)
                return error;
            tree->state = TREE_ALLOC;
            tree->join = (struct plx_join){0};
            tree->written = tree->xfer_count = 0;
            break;
        case TREE_ALLOC:
            error = alloc_and_write(tree);
            if (error == PLX_WAIT)
                return error;
            if (error && !tree->join.pending)
                return error;
            tree->state = TREE_WRITTEN;
            if (error)
                tree->join.error = error;
            if (tree->join.pending) {
                tree->join.task = tree->task;
                return PLX_WAIT;
            }
            break;
        case TREE_WRITTEN:
            if (tree->join.error)
                return tree->join.error;
            tree->buffered = 0;
            tree->state = TREE_BUILD;
            if (level_has_more(tree))
                break;
            tree->result_levels = tree->new_levels;
            if (tree->level == 1 && !tree->out_count) { /* no change: the old tree stays */
                tree->result_levels = tree->levels;
                *ret_root = tree->root |
                            (tree->shared && plx_entry_addr(tree->root) ? PLX_ENTRY_READ_ONLY : 0);
                return 0;
            }
            if (tree->level == tree->new_levels) {
                PLX_ASSERT(tree->out_count == 1);
                *ret_root = tree->out[0].entry;
                return 0;
            }
            next_level(tree);
            break;
        }
    }
}
