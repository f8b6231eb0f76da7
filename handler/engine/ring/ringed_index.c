/* ringed_index.c - which record of a ring has a block's newest contents. See ringed_index.h.
 *
 * A treap: a search tree by block that is a heap by rank. Ranks are spread evenly, so that the tree
 * is about as deep as a balanced one.
 *
 * RINGED_INDEX-1  No two ranges overlap, so a block has one record at most: the newest one that was
 *     put there.
 * RINGED_INDEX-2  Putting a range never fails. It needs two new ranges at most: its own, and the
 *     rest of an older range in whose midst it lies.
 * Loop: the disk's; never blocks.
 * Crash story: memory only.
 */
#include "engine/ring/ringed_index.h"

#include <stdlib.h>

#include "engine/base/error.h"

#define SPARES_KEPT 64u

static void spare(struct plx_ringed_index *index, struct plx_ringed_range *range)
{
    if (index->spares >= SPARES_KEPT) {
        free(range);
        return;
    }
    range->left = index->spare;
    index->spare = range;
    index->spares++;
}

bool plx_ringed_index_room(struct plx_ringed_index *index)
{
    while (index->spares < 2) { /* RINGED_INDEX-2 */
        struct plx_ringed_range *range = malloc(sizeof *range);

        if (!range)
            return false;
        spare(index, range);
    }
    return true;
}

/* The same number each time for the n-th range, and evenly spread (splitmix64). */
static uint64_t rank_of(uint64_t n)
{
    n += 0x9e3779b97f4a7c15ull;
    n = (n ^ n >> 30) * 0xbf58476d1ce4e5b9ull;
    n = (n ^ n >> 27) * 0x94d049bb133111ebull;
    return n ^ n >> 31;
}

static struct plx_ringed_range *take(struct plx_ringed_index *index, uint64_t block, uint64_t end,
                                     struct plx_ringed_record *record)
{
    struct plx_ringed_range *range = index->spare;

    PLX_ASSERT(range && block < end);
    index->spare = range->left;
    index->spares--;
    *range = (struct plx_ringed_range){
        .block = block, .end = end, .record = record, .rank = rank_of(index->made++)};
    return range;
}

/* Ranges that begin before `block`, and the others. */
static void split(struct plx_ringed_range *tree, uint64_t block, struct plx_ringed_range **ret_less,
                  struct plx_ringed_range **ret_rest)
{
    while (tree) {
        if (tree->block < block) {
            *ret_less = tree;
            ret_less = &tree->right;
            tree = tree->right;
        } else {
            *ret_rest = tree;
            ret_rest = &tree->left;
            tree = tree->left;
        }
    }
    *ret_less = *ret_rest = NULL;
}

/* All of `less` lies before all of `rest`. */
static struct plx_ringed_range *merge(struct plx_ringed_range *less, struct plx_ringed_range *rest)
{
    struct plx_ringed_range *tree = NULL, **link = &tree;

    while (less && rest) {
        if (less->rank > rest->rank) {
            *link = less;
            link = &less->right;
            less = less->right;
        } else {
            *link = rest;
            link = &rest->left;
            rest = rest->left;
        }
    }
    *link = less ? less : rest;
    return tree;
}

static struct plx_ringed_range *last_of(struct plx_ringed_range *tree)
{
    while (tree && tree->right)
        tree = tree->right;
    return tree;
}

/* Takes the ranges of one record out of a tree; NULL: all ranges. What is left of it. */
static struct plx_ringed_range *without(struct plx_ringed_index *index,
                                        struct plx_ringed_range *tree,
                                        const struct plx_ringed_record *record)
{
    struct plx_ringed_range *rest;

    if (!tree)
        return NULL;
    tree->left = without(index, tree->left, record);
    tree->right = without(index, tree->right, record);
    if (record && tree->record != record)
        return tree;
    rest = merge(tree->left, tree->right);
    spare(index, tree);
    return rest;
}

void plx_ringed_index_put(struct plx_ringed_index *index, uint64_t block, uint64_t end,
                          struct plx_ringed_record *record)
{
    struct plx_ringed_range *before, *within, *behind, *over, *rest = NULL;

    PLX_ASSERT(index->spares >= 2);
    split(index->root, block, &before, &within);
    split(within, end, &within, &behind);
    over = last_of(within);
    if (over && over->end > end) /* reaches beyond: its rest stays */
        rest = take(index, end, over->end, over->record);
    over = last_of(before);
    if (over && over->end > end) /* RINGED_INDEX-2: all lies in its midst, so there is no other */
        rest = take(index, end, over->end, over->record);
    if (over && over->end > block)
        over->end = block;
    without(index, within, NULL); /* RINGED_INDEX-1 */
    before = merge(before, take(index, block, end, record));
    index->root = merge(merge(before, rest), behind);
}

void plx_ringed_index_drop(struct plx_ringed_index *index, uint64_t block, uint64_t end,
                           const struct plx_ringed_record *record)
{
    struct plx_ringed_range *before, *within, *behind;

    PLX_ASSERT(record);
    split(index->root, block, &before, &within);
    split(within, end, &within, &behind);
    within = without(index, within, record);
    index->root = merge(merge(before, within), behind);
}

const struct plx_ringed_range *plx_ringed_index_find(const struct plx_ringed_index *index,
                                                     uint64_t block)
{
    const struct plx_ringed_range *tree = index->root, *found = NULL;

    while (tree) {
        if (tree->end > block) {
            found = tree;
            tree = tree->left;
        } else {
            tree = tree->right;
        }
    }
    return found;
}

void plx_ringed_index_free(struct plx_ringed_index *index)
{
    without(index, index->root, NULL);
    while (index->spare) {
        struct plx_ringed_range *range = index->spare;

        index->spare = range->left;
        free(range);
    }
    *index = (struct plx_ringed_index){0};
}
