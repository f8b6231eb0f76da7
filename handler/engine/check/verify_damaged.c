/* verify_damaged.c - damaged blocks of data and nodes of trees, and all who have them (VERIFY-9).
 *
 * A block that several disks or snapshots have is looked at once, by the walk that comes to it
 * first (verify_tree.c). Who else has it is found out at the end, in one more walk of all disks.
 * Damage that this walk no longer finds is reported as it was seen first. A clone keeps the nodes
 * of the tree that it began with, even those that it does not use, so that it frees nothing of its
 * origin's. Such a node leads the clone to no data: its damage is the origin's.
 *
 * Loop: the store's. Crash story: this file only reads.
 */
#include <stdlib.h>

#include "engine/check/verify.h"

/* Whether the disk's newest state has what the use is of. */
static bool is_newest(struct plx_verify *v, const struct plx_history *behind,
                      const struct plx_use *use)
{
    uint64_t vblock = use->level ? use->below : use->vblock, addr = 0, entry = 0;
    uint32_t checksum;

    if (!use->level && plx_history_tells(behind, vblock, &addr, &checksum))
        return plx_addr_block(addr) == use->addr;
    return plx_verify_look_up(v, v->record, vblock, use->level, &entry) == 0 &&
           plx_addr_block(plx_entry_addr(entry)) == use->addr;
}

static int by_addr(const void *a, const void *b)
{
    const struct plx_damaged *x = a, *y = b;
    int order = plx_compare_u64(&x->addr, &y->addr);

    return order ? order : (x->level > y->level) - (x->level < y->level);
}

/* Data first; its neighbours one after the other. */
static int by_disk(const void *a, const void *b)
{
    const struct plx_damaged *x = a, *y = b;
    uint64_t first = x->slot, second = y->slot;
    int order = plx_compare_u64(&first, &second);

    if (!order)
        order = (x->level > y->level) - (x->level < y->level);
    if (!order)
        order = plx_compare_u64(&x->vblock, &y->vblock);
    return order ? order : plx_compare_u64(&x->addr, &y->addr);
}

/* Makes each damaged block a suspect, once. What is left of the second look is not needed. */
static bool ask_for_users(struct plx_verify *v)
{
    struct plx_suspect *suspects = calloc(v->damaged_count, sizeof *suspects);

    if (!suspects) {
        v->error = PLX_ERR_NOMEM;
        return false;
    }
    free(v->suspects);
    v->suspects = suspects;
    v->suspect_count = 0;
    qsort(v->damaged, v->damaged_count, sizeof *v->damaged, by_addr);
    for (size_t i = 0; i < v->damaged_count; i++)
        if (!i || v->damaged[i].addr != v->damaged[i - 1].addr)
            v->suspects[v->suspect_count++].addr = v->damaged[i].addr;
    v->damaged_seen = v->damaged_count;
    return true;
}

/* Whether the use is of what was seen to be damaged there. A disk that went back leads to blocks
 * that are another's by now, and damaged for itself alone (VERIFY-11). */
static bool is_of(const struct plx_use *use, const struct plx_damaged *seen)
{
    if (seen->damage == PLX_DAMAGE_PLACE || seen->damage == PLX_DAMAGE_BEYOND)
        return use->damage == seen->damage;
    return use->damage == PLX_DAMAGE_NONE && (seen->damage == PLX_DAMAGE_UNREADABLE ||
                                              !use->checksum || use->checksum == seen->checksum);
}

/* What was seen first of the block that the use is of; NULL: it is another thing in that place. */
static const struct plx_damaged *seen_first(const struct plx_verify *v, const struct plx_use *use)
{
    const struct plx_damaged key = {.addr = use->addr, .level = use->level};
    const struct plx_damaged *end = v->damaged + v->damaged_seen;
    const struct plx_damaged *seen =
        bsearch(&key, v->damaged, v->damaged_seen, sizeof *v->damaged, by_addr);

    if (!seen || (use->level ? use->named : use->vblock == PLX_NO_VBLOCK))
        return NULL;
    while (seen > v->damaged && by_addr(seen - 1, &key) == 0)
        seen--;
    while (seen < end && by_addr(seen, &key) == 0 && !is_of(use, seen))
        seen++;
    return seen < end && by_addr(seen, &key) == 0 ? seen : NULL;
}

/* Behind the walk of a disk. A use counts as one of a snapshot's, unless the newest state has the
 * block. */
static void note_users(struct plx_verify *v, size_t from)
{
    struct plx_history behind = {0};

    v->mode = PLX_VERIFY_BEHIND;
    plx_verify_log(v, &behind);
    v->mode = PLX_VERIFY_GATHER;
    for (size_t i = from; i < v->use_count && !v->error; i++) {
        const struct plx_use *use = &v->uses[i];
        const struct plx_damaged *seen = seen_first(v, use);
        struct plx_damaged damaged;

        if (!seen)
            continue;
        damaged = *seen;
        damaged.vblock = use->level ? use->below : use->vblock;
        damaged.slot = use->slot;
        damaged.newest = is_newest(v, &behind, use);
        damaged.also = true;
        plx_verify_add_damaged(v, &damaged);
    }
    v->use_count = from; /* however many disks have the blocks: one disk's uses at a time */
    plx_history_free(&behind);
}

/* Each block of a disk once. */
static void drop_repeated(struct plx_verify *v)
{
    size_t kept = 0;

    qsort(v->damaged, v->damaged_count, sizeof *v->damaged, by_disk);
    for (size_t i = 0; i < v->damaged_count; i++)
        if (kept && by_disk(&v->damaged[i], &v->damaged[kept - 1]) == 0) {
            v->damaged[kept - 1].newest |= v->damaged[i].newest;
            v->damaged[kept - 1].also &= v->damaged[i].also;
        } else {
            v->damaged[kept++] = v->damaged[i];
        }
    v->damaged_count = kept;
}

static const char *what_is_wrong(enum plx_damage damage, bool one)
{
    switch (damage) {
    case PLX_DAMAGE_PLACE:
        return one ? "lies in no data extent" : "lie in no data extent";
    case PLX_DAMAGE_BEYOND:
        return one ? "is mapped beyond the end" : "are mapped beyond the end";
    case PLX_DAMAGE_CHECKSUM:
        return one ? "does not match its checksum" : "do not match their checksums";
    default:
        return "cannot be read";
    }
}

static void tell_blocks(struct plx_verify *v, const struct plx_damaged *first, uint64_t blocks)
{
    bool place = first->damage == PLX_DAMAGE_PLACE || first->damage == PLX_DAMAGE_BEYOND;
    const char *where = first->newest ? "" : "; only snapshots have ", *it = first->newest ? ""
                                                                             : blocks == 1 ? "it"
                                                                                           : "them";
    const char *wrong = what_is_wrong(first->damage, blocks == 1);
    unsigned long long from = first->vblock, last = first->vblock + blocks - 1;

    v->blocks = blocks;
    if (blocks == 1)
        plx_verify_find(v, PLX_FINDING_ERROR, place ? "address" : "data", first->addr,
                        first->vblock, "virtual disk %s: block %llu %s%s%s", v->record->name, from,
                        wrong, where, it);
    else
        plx_verify_find(v, PLX_FINDING_ERROR, place ? "address" : "data", first->addr,
                        first->vblock, "virtual disk %s: blocks %llu to %llu %s%s%s",
                        v->record->name, from, last, wrong, where, it);
    v->blocks = 0;
}

static void tell_node(struct plx_verify *v, const struct plx_damaged *node)
{
    uint64_t blocks = plx_div_up(v->record->keyframe.size_bytes, PLX_BLOCK_SIZE);
    uint64_t end = node->vblock + (1ull << (node->level * PLX_NODE_SHIFT));
    unsigned long long first = node->vblock,
                       last = plx_max_u64(plx_min_u64(end, blocks), first + 1);
    const char *where = node->newest ? "" : "; only snapshots need it";

    last--;
    if (node->damage == PLX_DAMAGE_PLACE)
        plx_verify_find(v, PLX_FINDING_ERROR, "address", node->addr, PLX_NO_VBLOCK,
                        "virtual disk %s: a node at block %llu of the store, which is in no "
                        "metadata extent; it leads to blocks %llu to %llu%s",
                        v->record->name, (unsigned long long)node->addr, first, last, where);
    else
        plx_verify_find(v, PLX_FINDING_ERROR, "node", node->addr, PLX_NO_VBLOCK,
                        "virtual disk %s: node of level %u, which leads to blocks %llu to %llu, "
                        "%s%s",
                        v->record->name, node->level, first, last,
                        what_is_wrong(node->damage, true), where);
}

static void tell(struct plx_verify *v, const struct plx_damaged *first, uint64_t blocks)
{
    struct plx_reading reading = {.store = v->store, .slot = first->slot};

    if (!plx_verify_begin(v, &reading))
        return; /* which is reported */
    v->also = first->also;
    if (first->level)
        tell_node(v, first);
    else
        tell_blocks(v, first, blocks);
    v->also = false;
    v->record = NULL;
}

static bool goes_on(const struct plx_verify *v, const struct plx_damaged *one,
                    const struct plx_damaged *next)
{
    return !one->level && !next->level && next->slot == one->slot &&
           next->vblock == one->vblock + 1 && next->addr == one->addr + 1 &&
           next->addr % v->store->info.extent_blocks && next->damage == one->damage &&
           next->newest == one->newest && next->also == one->also;
}

static void tell_each(struct plx_verify *v)
{
    size_t told = 0, end;

    for (size_t i = 0; i < v->damaged_count && !v->error; i = end) {
        for (end = i + 1;
             end < v->damaged_count && goes_on(v, &v->damaged[end - 1], &v->damaged[end]); end++)
            ;
        if (told++ < PLX_VERIFY_KEPT)
            tell(v, &v->damaged[i], end - i);
        else
            v->damaged_dropped += end - i;
    }
    if (v->damaged_dropped && !v->error)
        plx_verify_find(v, PLX_FINDING_ERROR, "more", 0, PLX_NO_VBLOCK,
                        "%llu further block%s of virtual disks %s damaged",
                        (unsigned long long)v->damaged_dropped, plx_plural(v->damaged_dropped),
                        plx_is_or_are(v->damaged_dropped));
}

void plx_verify_tell_damaged(struct plx_verify *v)
{
    if (!v->damaged_count || v->error || !ask_for_users(v))
        return;
    plx_verify_gather_uses(v, note_users);
    drop_repeated(v);
    tell_each(v);
}
