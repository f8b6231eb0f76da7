/* diff.c - which ranges differ between two instants: plx_vdi_diff() of engine_history.h.
 *
 * An instant is a tree (the key frame that it is read through) and an overlay: the changes that
 * were replayed from the log behind it. The walk goes down both trees together. At each leaf, what
 * the overlays say replaces what the trees say.
 *
 * DIFF-1  Two instants that map a block to the same address hold the same bytes there. A block that
 *     a snapshot sees is neither overwritten in place (INV-3) nor freed. So this holds for two
 *     snapshots, of one disk or of a clone and its ancestors. It holds for a snapshot and a disk's
 *     newest state, because the disk overwrites in place only at addresses that no snapshot has.
 *     And the newest states of two disks share only addresses that a snapshot sees.
 * DIFF-2  A block at different addresses counts as different even if its bytes are equal, because
 *     24 bits of checksum are too few to call blocks equal. So the ranges hold everything that
 *     differs, and nothing that was neither written nor unmapped between the instants.
 * DIFF-3  Equal entries name equal subtrees. The walk does not read them, unless an overlay speaks
 *     of a block below. So the cost follows what changed, not the size of the disk. Leaves are
 *     compared in groups, so that their nodes are read at the same time.
 *
 * Loop: the store's; it runs while nodes are read. Instants never change.
 * Crash story: nothing is written.
 */
#include "engine/history/diff.h"

#include <stdlib.h>
#include <string.h>

#include "engine/disk/vdi.h"
#include "engine/loop/cache.h"

/* Stands for a node above the root of the lower tree; its first child leads to that root. */
#define IMPLIED UINT64_MAX

#define STOPPED 1 /* a result: the visitor wants no more */
#define GROUP 8   /* leaves, so 16 nodes: half of the smallest node cache */

/* What an overlay says of one leaf. */
struct said {
    bool known[PLX_NODE_ENTRIES];
    uint64_t addr[PLX_NODE_ENTRIES];
};

struct side {
    const struct plx_map *map; /* NULL: an instant at which nothing was mapped */
    const char *name;          /* of its disk */
    size_t at;                 /* the first slot of the overlay that the walk has not passed */
    uint8_t nodes[PLX_LEVELS_MAX][PLX_BLOCK_SIZE]; /* the nodes on the way down, by level - 1 */
};

/* A leaf that may differ: its entries and what the overlays say of it, for both sides. */
struct leaf {
    uint64_t index, entries[2];
    struct said said[2];
    bool needs_nodes; /* the overlays alone do not tell whether it differs */
};

struct diff {
    struct plx_store *store;
    struct side sides[2]; /* from, to */
    uint64_t first, end;  /* the blocks that are compared */
    uint64_t size_bytes;  /* of the later instant */
    bool (*visit)(void *context, const struct plx_diff_range *range);
    void *context;
    struct leaf group[GROUP];
    unsigned grouped;
    struct plx_diff_range range; /* the range that may still grow, in blocks; length 0: none */
    struct plx_fault *fault;
};

/* ---- Overlays ---- */

static const struct plx_slot *next_slot(const struct side *side)
{
    const struct plx_overlay *overlay = side->map ? &side->map->frozen : NULL;

    return overlay && side->at < overlay->count ? &overlay->sorted[side->at] : NULL;
}

/* Whether the overlay says anything of the leaves from first to last. Passes the slots before them,
 * and VOIDED slots, which say nothing about what is mapped. */
static bool speaks(struct side *side, uint64_t first, uint64_t last)
{
    const struct plx_slot *slot = next_slot(side);

    while (slot && (plx_slot_leaf(slot) < first || plx_slot_kind(slot) == PLX_OVERLAY_VOIDED)) {
        side->at++;
        slot = next_slot(side);
    }
    return slot && plx_slot_leaf(slot) <= last;
}

static void collect(struct side *side, uint64_t leaf, struct said *said)
{
    memset(said, 0, sizeof *said);
    while (speaks(side, leaf, leaf)) {
        const struct plx_slot *slot = next_slot(side);

        if (plx_slot_kind(slot) == PLX_OVERLAY_UNMAPPED) { /* comes before the leaf's blocks */
            memset(said->known, true, sizeof said->known);
        } else {
            unsigned i = plx_slot_index(slot) & (PLX_NODE_ENTRIES - 1);

            said->known[i] = true;
            said->addr[i] = plx_entry_addr(slot->value);
        }
        side->at++;
    }
}

/* ---- Nodes ---- */

static int load(struct diff *diff, struct side *side, unsigned level, uint64_t index,
                uint64_t entry)
{
    uint8_t *copy = side->nodes[level - 1];
    const void *node;
    int error;

    memset(copy, 0, PLX_BLOCK_SIZE);
    if (entry == IMPLIED && index == 0)
        plx_node_set_entry(copy, 0,
                           level - 1 == side->map->base.levels ? side->map->base.root : IMPLIED);
    if (entry == IMPLIED || !plx_entry_addr(entry))
        return 0;
    error = plx_cache_get_sync(diff->store->cache, entry, level, &node);
    if (error)
        return plx_fault_set(diff->fault, error,
                             "virtual disk %s, blocks from %llu on: node at block %llu: %s",
                             side->name, (unsigned long long)(index << level * PLX_NODE_SHIFT),
                             (unsigned long long)plx_entry_addr(entry), plx_error_text(error));
    memcpy(copy, node, PLX_BLOCK_SIZE);
    return 0;
}

/* ---- Ranges ---- */

static int tell(struct diff *diff)
{
    struct plx_diff_range range = diff->range;

    diff->range.length = 0;
    if (!range.length)
        return 0;
    range.offset <<= PLX_BLOCK_SHIFT; /* the last block may be cut short */
    range.length = plx_min_u64(range.length << PLX_BLOCK_SHIFT, diff->size_bytes - range.offset);
    return diff->visit(diff->context, &range) ? 0 : STOPPED;
}

static int add_block(struct diff *diff, uint64_t vblock, bool data)
{
    struct plx_diff_range *range = &diff->range;
    int rc = 0;

    if (vblock < diff->first || vblock >= diff->end)
        return 0;
    if (range->length && (range->data != data || range->offset + range->length != vblock))
        rc = tell(diff);
    if (!range->length)
        *range = (struct plx_diff_range){.offset = vblock, .data = data};
    range->length++;
    return rc;
}

/* ---- The walk ---- */

static bool same(uint64_t from, uint64_t to)
{
    return from != IMPLIED && to != IMPLIED && plx_entry_addr(from) == plx_entry_addr(to);
}

static bool needs_nodes(const struct leaf *leaf)
{
    const struct said *a = &leaf->said[0], *b = &leaf->said[1];
    bool differ = !same(leaf->entries[0], leaf->entries[1]);

    for (unsigned i = 0; i < PLX_NODE_ENTRIES; i++)
        if (a->known[i] != b->known[i] || (differ && !a->known[i]))
            return true;
    return false;
}

/* Reads the group's nodes into the cache at the same time. Errors show when load() asks again. */
static void read_ahead(struct diff *diff)
{
    struct plx_store *store = diff->store;
    struct plx_waiter waiters[GROUP][2];
    bool waits[GROUP][2] = {0};
    const void *node;

    for (unsigned i = 0; i < diff->grouped; i++) {
        const struct leaf *leaf = &diff->group[i];

        for (unsigned s = 0; s < 2 && leaf->needs_nodes; s++) {
            uint64_t entry = leaf->entries[s];

            waiters[i][s] = PLX_WAITER;
            waits[i][s] =
                entry != IMPLIED && plx_entry_addr(entry) &&
                plx_cache_get(store->cache, entry, 1, &waiters[i][s].task, &node) == PLX_WAIT;
        }
    }
    for (unsigned i = 0; i < diff->grouped; i++)
        for (unsigned s = 0; s < 2; s++)
            if (waits[i][s])
                plx_waiter_wait(store, &waiters[i][s]);
}

static uint64_t addr_at(const struct diff *diff, const struct leaf *leaf, unsigned s, unsigned i)
{
    return leaf->said[s].known[i] ? leaf->said[s].addr[i]
                                  : plx_entry_addr(plx_node_entry(diff->sides[s].nodes[0], i));
}

static int compare_leaf(struct diff *diff, const struct leaf *leaf)
{
    int rc = 0;

    for (unsigned s = 0; s < 2 && !rc; s++)
        rc = load(diff, &diff->sides[s], 1, leaf->index, leaf->needs_nodes ? leaf->entries[s] : 0);
    for (unsigned i = 0; i < PLX_NODE_ENTRIES && !rc; i++) {
        uint64_t addr = addr_at(diff, leaf, 1, i);

        if (addr != addr_at(diff, leaf, 0, i)) /* DIFF-1, DIFF-2 */
            rc = add_block(diff, leaf->index << PLX_NODE_SHIFT | i, addr != 0);
    }
    return rc;
}

static int compare_group(struct diff *diff)
{
    int rc = 0;

    read_ahead(diff);
    for (unsigned i = 0; i < diff->grouped && !rc; i++)
        rc = compare_leaf(diff, &diff->group[i]);
    diff->grouped = 0;
    return rc;
}

static int add_leaf(struct diff *diff, uint64_t index, uint64_t from, uint64_t to)
{
    struct leaf *leaf = &diff->group[diff->grouped++];

    leaf->index = index;
    leaf->entries[0] = from;
    leaf->entries[1] = to;
    collect(&diff->sides[0], index, &leaf->said[0]);
    collect(&diff->sides[1], index, &leaf->said[1]);
    leaf->needs_nodes = needs_nodes(leaf);
    return diff->grouped == GROUP ? compare_group(diff) : 0;
}

/* Compares the subtrees of one node in both trees. */
static int walk(struct diff *diff, unsigned level, uint64_t index, uint64_t from, uint64_t to)
{
    struct side *sides = diff->sides;
    unsigned shift = (level - 1) * PLX_NODE_SHIFT;
    uint64_t first = index << shift, last = first + (1ull << shift) - 1;
    bool said[2] = {speaks(&sides[0], first, last), speaks(&sides[1], first, last)};
    int rc;

    if (first << PLX_NODE_SHIFT >= diff->end || last < diff->first >> PLX_NODE_SHIFT ||
        (same(from, to) && !said[0] && !said[1])) /* DIFF-3 */
        return 0;
    if (level == 1)
        return add_leaf(diff, index, from, to);
    rc = load(diff, &sides[0], level, index, from);
    rc = rc ? rc : load(diff, &sides[1], level, index, to);
    for (unsigned i = 0; i < PLX_NODE_ENTRIES && !rc; i++)
        rc = walk(diff, level - 1, index << PLX_NODE_SHIFT | i,
                  plx_node_entry(sides[0].nodes[level - 1], i),
                  plx_node_entry(sides[1].nodes[level - 1], i));
    return rc;
}

static unsigned levels_of(const struct side *side)
{
    unsigned levels = 1;

    if (!side->map)
        return levels;
    if (side->map->frozen.count) { /* the disk may have grown: blocks beyond the tree's levels */
        const struct plx_overlay *overlay = &side->map->frozen;
        uint64_t leaf = plx_slot_leaf(&overlay->sorted[overlay->count - 1]);

        while (leaf >> (levels - 1) * PLX_NODE_SHIFT)
            levels++;
    }
    return (unsigned)plx_max_u64(levels, side->map->base.levels);
}

static uint64_t top_entry(const struct side *side, unsigned levels)
{
    if (!side->map)
        return 0;
    return side->map->base.levels == levels ? side->map->base.root : IMPLIED;
}

static int run_diff(struct diff *diff)
{
    unsigned levels = (unsigned)plx_max_u64(levels_of(&diff->sides[0]), levels_of(&diff->sides[1]));
    int rc = walk(diff, levels, 0, top_entry(&diff->sides[0], levels),
                  top_entry(&diff->sides[1], levels));

    rc = rc ? rc : compare_group(diff);
    rc = rc ? rc : tell(diff);
    return rc == STOPPED ? 0 : rc;
}

static struct diff *new_diff(const struct plx_map *from, struct plx_vdi *to,
                             struct plx_fault *fault)
{
    struct diff *diff = calloc(1, sizeof *diff);

    PLX_ASSERT(to->snapshot);
    if (!diff) {
        plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
        return NULL;
    }
    diff->store = to->store;
    diff->sides[0] = (struct side){.map = from, .name = to->record.name};
    diff->sides[1] = (struct side){.map = &to->map, .name = to->record.name};
    diff->end = plx_div_up(to->size_bytes, PLX_BLOCK_SIZE);
    diff->size_bytes = to->size_bytes;
    diff->fault = fault;
    return diff;
}

int plx_vdi_diff(struct plx_vdi *from, struct plx_vdi *to,
                 bool (*visit)(void *context, const struct plx_diff_range *range), void *context,
                 struct plx_fault *fault)
{
    struct diff *diff = new_diff(from ? &from->map : NULL, to, fault);
    int error;

    PLX_ASSERT(!from || (from->snapshot && from->store == to->store));
    if (!diff)
        return PLX_ERR_NOMEM;
    if (from)
        diff->sides[0].name = from->record.name;
    diff->visit = visit;
    diff->context = context;
    error = run_diff(diff);
    free(diff);
    return error;
}

static bool stop_at_first(void *context, const struct plx_diff_range *range)
{
    *(bool *)context = true;
    return false;
}

int plx_diff_any(const struct plx_map *from, struct plx_vdi *to, uint64_t first, uint64_t end,
                 bool *ret_differs, struct plx_fault *fault)
{
    struct diff *diff = new_diff(from, to, fault);
    int error;

    if (!diff)
        return PLX_ERR_NOMEM;
    diff->first = first;
    diff->end = plx_min_u64(diff->end, end);
    diff->visit = stop_at_first;
    diff->context = ret_differs;
    *ret_differs = false;
    error = run_diff(diff);
    free(diff);
    return error;
}
