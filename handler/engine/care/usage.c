/* usage.c - the accounting of space: how many blocks each disk and each family of clones uses, and
 * how many of them nobody else uses (exclusive).
 *
 * USAGE-1  A disk uses the blocks that its record leads to (reach.c). Its exclusive blocks are
 *     those that no other disk's record leads to: a garbage collection would free exactly these if
 *     the disk were deleted.
 * USAGE-2  All disks are read twice: the first reading finds which blocks more than one unit uses,
 *     the second one counts. A unit is a disk; and, counted by itself, a family. A block counts
 *     once in a unit, however often the unit maps it.
 * USAGE-3  No block is called exclusive that another unit uses. Families are connected by the
 *     parents that records of live and deleted disks name, and by what else the caller knows. If a
 *     relation is lost, there are two families that share blocks, and these are exclusive to
 *     neither.
 * USAGE-4  A disk's blocks are counted only if its record is unchanged after they were read;
 *     otherwise the disk is read again (RECORD-2). A disk that stays busy is shown as busy. What
 *     the last reading reached still counts as used when the others are counted.
 *
 * Memory: four bits for each block in use, two more for each block of the disk being read and one
 *   for each block of its family.
 * Loop: the store's. The call is synchronous and runs it while it reads.
 * Crash story: this file only reads.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/list.h"
#include "engine/care/reach.h"
#include "engine/disk/vdi.h"

/* The blocks that at least one unit uses, and those that more than one uses (USAGE-2). */
struct sharing {
    struct plx_blockmap one, more;
};

struct census {
    struct plx_store *store;
    const struct plx_usage_options *options;
    struct plx_fault *fault;
    struct plx_usage usage;
    size_t vdi_capacity; /* of its disks */
    struct plx_turns turns;
    struct plx_reach reach;
    bool *counts;         /* for reach.c: all extents count */
    bool counting;        /* this is the second reading */
    uint64_t first_bytes; /* how much the first reading read */
    struct sharing vdis, families;
    struct plx_blockmap family; /* what the family being read uses */
};

static int no_memory(const struct census *c)
{
    return plx_fault_set(c->fault, PLX_ERR_NOMEM, "out of memory");
}

/* ---- Families (USAGE-3) ---- */

struct relative {
    struct plx_uuid id;
    size_t head; /* index of a relative nearer to the family's head; the head names itself */
};

struct kinship {
    struct plx_usage_kin *pairs;
    size_t count, capacity;
    struct relative *relatives; /* by id */
    size_t relative_count;
};

static bool add_pair(struct kinship *k, const struct plx_uuid *vdi, const struct plx_uuid *parent)
{
    if (!PLX_LIST_ROOM(k->pairs, k->count, k->capacity, 64))
        return false;
    k->pairs[k->count++] = (struct plx_usage_kin){*vdi, plx_uuid_is_zero(parent) ? *vdi : *parent};
    return true;
}

static int by_id(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct plx_uuid)); /* the id is the first member of both */
}

static size_t head_of(struct kinship *k, const struct plx_uuid *id)
{
    const struct relative *found =
        bsearch(id, k->relatives, k->relative_count, sizeof *found, by_id);
    size_t at = (size_t)(found - k->relatives);

    while (k->relatives[at].head != at)
        at = k->relatives[at].head = k->relatives[k->relatives[at].head].head;
    return at;
}

static bool connect(struct kinship *k)
{
    struct relative *r = calloc(2 * k->count + 1, sizeof *r);
    size_t kept = 0;

    k->relatives = r;
    if (!r)
        return false;
    for (size_t i = 0; i < k->count; i++) {
        r[2 * i].id = k->pairs[i].vdi;
        r[2 * i + 1].id = k->pairs[i].parent;
    }
    qsort(r, 2 * k->count, sizeof *r, by_id);
    for (size_t i = 0; i < 2 * k->count; i++)
        if (!kept || !plx_uuid_equal(&r[i].id, &r[kept - 1].id)) {
            r[kept] = (struct relative){r[i].id, kept};
            kept++;
        }
    k->relative_count = kept;
    for (size_t i = 0; i < k->count; i++)
        r[head_of(k, &k->pairs[i].vdi)].head = head_of(k, &k->pairs[i].parent);
    return true;
}

static bool add_vdi(struct census *c, const struct plx_vdi_record *record)
{
    struct plx_usage *usage = &c->usage;
    struct plx_usage_vdi *vdi;

    if (!PLX_LIST_ROOM(usage->vdis, usage->vdi_count, c->vdi_capacity, 16))
        return false;
    vdi = &usage->vdis[usage->vdi_count++];
    *vdi =
        (struct plx_usage_vdi){.slot = record->slot, .id = record->id, .open = record->owner != 0};
    snprintf(vdi->name, sizeof vdi->name, "%s", record->name);
    return true;
}

static int list_vdis(struct census *c, struct kinship *k)
{
    struct plx_slot_scan scan = {0};
    bool ready = true;

    for (size_t i = 0; i < c->options->kin_count && ready; i++)
        ready = add_pair(k, &c->options->kin[i].vdi, &c->options->kin[i].parent);
    for (uint32_t slot = 0; ready && plx_vdi_next_slot(c->store, &scan, &slot); slot++) {
        struct plx_vdi_record record;
        uint8_t which;
        int error = plx_vdi_record_read(c->store, slot, &record, &which, c->fault);

        if (error == PLX_ERR_NOT_FOUND)
            continue;
        if (error)
            return error;
        ready = add_pair(k, &record.id, &record.parent) &&
                (record.state != PLX_VDI_LIVE || add_vdi(c, &record));
    }
    return ready ? 0 : no_memory(c);
}

static int by_family(const void *a, const void *b)
{
    const struct plx_usage_vdi *x = a, *y = b;

    return x->family != y->family ? (x->family > y->family) - (x->family < y->family)
                                  : (x->slot > y->slot) - (x->slot < y->slot);
}

/* Orders the disks by family, and numbers the families. */
static bool group(struct plx_usage *usage, struct kinship *k)
{
    uint32_t head = UINT32_MAX;

    if (!connect(k))
        return false;
    for (uint32_t i = 0; i < usage->vdi_count; i++)
        usage->vdis[i].family = (uint32_t)head_of(k, &usage->vdis[i].id);
    qsort(usage->vdis, usage->vdi_count, sizeof *usage->vdis, by_family);
    usage->families = calloc((size_t)usage->vdi_count + 1, sizeof *usage->families);
    if (!usage->families)
        return false;
    for (uint32_t i = 0; i < usage->vdi_count; i++) {
        usage->family_count += usage->vdis[i].family != head;
        head = usage->vdis[i].family;
        usage->vdis[i].family = usage->family_count - 1;
        usage->families[usage->family_count - 1].vdis++;
    }
    return true;
}

static int find_families(struct census *c)
{
    struct kinship k = {0};
    int error = list_vdis(c, &k);

    if (!error && c->usage.vdi_count && !group(&c->usage, &k))
        error = no_memory(c);
    free(k.pairs);
    free(k.relatives);
    return error;
}

/* ---- Reading a disk (USAGE-4) ---- */

static uint64_t bytes_read(const struct census *c)
{
    return (c->reach.nodes << PLX_BLOCK_SHIFT) + c->reach.log_bytes;
}

/* Between two batches of nodes: reports progress; true: the call is interrupted. */
static bool show_and_ask(void *context)
{
    struct census *c = context;
    const struct plx_usage_options *options = c->options;
    uint64_t total = c->counting ? plx_max_u64(2 * c->first_bytes, bytes_read(c)) : 0;

    if (options->progress)
        options->progress(options->context, bytes_read(c), total);
    return options->interrupted && options->interrupted(options->context);
}

/* Reads a disk into reach.used, which stays empty if the disk is gone. */
static int read_vdi(struct census *c, struct plx_usage_vdi *vdi)
{
    struct plx_reading reading = {.store = c->store, .slot = vdi->slot};
    const struct plx_vdi_record *record = &reading.record;

    while (plx_reading_begin(&reading, c->fault)) {
        int error;

        plx_blockmap_clear(&c->reach.used);
        if (record->state != PLX_VDI_LIVE || !plx_uuid_equal(&record->id, &vdi->id))
            return 0;
        error = plx_reach_vdi(&c->reach, record);
        plx_reach_believe(&c->reach, false);
        plx_reading_end(&reading, error);
    }
    if (reading.error == PLX_ERR_NOT_FOUND)
        plx_blockmap_clear(&c->reach.used);
    vdi->space.busy |= !reading.settled;
    return reading.settled && reading.error != PLX_ERR_NOT_FOUND ? reading.error : 0;
}

/* ---- Counting (USAGE-2) ---- */

static bool note(struct sharing *sharing, const struct plx_blockmap *unit)
{
    return plx_blockmap_add_common(&sharing->more, &sharing->one, unit) &&
           plx_blockmap_add(&sharing->one, unit);
}

static void count(const struct sharing *sharing, const struct plx_blockmap *unit,
                  struct plx_space *space)
{
    if (space->busy)
        return;
    space->referenced = plx_blockmap_total(unit); /* USAGE-1 */
    space->exclusive = space->referenced - plx_blockmap_total_common(unit, &sharing->more);
}

static bool enter(struct census *c, struct sharing *sharing, const struct plx_blockmap *unit,
                  struct plx_space *space)
{
    if (!c->counting)
        return note(sharing, unit);
    count(sharing, unit, space);
    return true;
}

static int read_family(struct census *c, uint32_t first, struct plx_usage_family *family)
{
    int error = 0;

    for (uint32_t i = 0; i < family->vdis && !error; i++) {
        struct plx_usage_vdi *vdi = &c->usage.vdis[first + i];

        error = read_vdi(c, vdi);
        family->space.busy |= vdi->space.busy;
        if (!error && (!enter(c, &c->vdis, &c->reach.used, &vdi->space) ||
                       !plx_blockmap_add(&c->family, &c->reach.used)))
            error = no_memory(c);
    }
    if (!error && !enter(c, &c->families, &c->family, &family->space))
        error = no_memory(c);
    plx_blockmap_clear(&c->family);
    return error;
}

static int read_all(struct census *c, bool counting)
{
    uint32_t first = 0;
    int error = 0;

    c->counting = counting;
    for (uint32_t i = 0; i < c->usage.family_count && !error; i++) {
        error = read_family(c, first, &c->usage.families[i]);
        first += c->usage.families[i].vdis;
    }
    return error;
}

/* ---- Garbage ---- */

static int count_garbage(struct census *c)
{
    const struct plx_store_info *info = &c->store->info;
    uint64_t words = info->extent_blocks / 64, *bits = malloc(words * sizeof *bits);
    int error = bits ? 0 : no_memory(c);

    /* Leaves out extents that were added since: what disks use of them was not noted. */
    for (uint64_t extent = 0; extent < c->vdis.one.extents && !error; extent++) {
        const uint64_t *used = c->vdis.one.bits[extent];

        if (plx_store_extent_is_system(c->store, extent))
            continue;
        error = plx_extent_read_bits(c->store, extent, bits, c->fault);
        for (uint64_t i = 0; i < words && !error; i++)
            c->usage.garbage += (unsigned)__builtin_popcountll(bits[i] & (used ? ~used[i] : ~0ull));
        if (error != PLX_ERR_NOMEM)
            error = 0; /* passes over an extent whose bitmap cannot be read */
    }
    free(bits);
    return error;
}

/* ---- All of it ---- */

static int census_init(struct census *c)
{
    uint64_t extents = c->store->info.extents, blocks = c->store->info.extent_blocks;
    struct plx_blockmap *maps[] = {&c->vdis.one, &c->vdis.more, &c->families.one, &c->families.more,
                                   &c->family};
    bool ready = true;
    int error = plx_reach_init(&c->reach, c->store, NULL, NULL, &c->turns, c->fault);

    if (error)
        return error;
    c->reach.believe = false; /* each disk's blocks are needed, also those that others share */
    c->counts = malloc(extents * sizeof *c->counts);
    if (c->counts)
        memset(c->counts, true, extents * sizeof *c->counts);
    c->reach.counts = c->counts;
    for (size_t i = 0; i < sizeof maps / sizeof maps[0]; i++)
        ready = plx_blockmap_init(maps[i], extents, blocks) && ready;
    return ready && c->counts ? 0 : no_memory(c);
}

static void census_done(struct census *c)
{
    plx_reach_done(&c->reach);
    plx_blockmap_done(&c->vdis.one);
    plx_blockmap_done(&c->vdis.more);
    plx_blockmap_done(&c->families.one);
    plx_blockmap_done(&c->families.more);
    plx_blockmap_done(&c->family);
    free(c->counts);
}

static int take_census(struct census *c)
{
    int error = find_families(c);

    if (!error)
        error = read_all(c, false);
    c->first_bytes = bytes_read(c);
    if (!error)
        error = read_all(c, true);
    if (!error)
        error = count_garbage(c);
    c->usage.referenced = plx_blockmap_total(&c->vdis.one);
    c->usage.shared = plx_blockmap_total(&c->vdis.more);
    c->usage.bytes = bytes_read(c);
    return error;
}

int plx_store_usage(struct plx_store *store, const struct plx_usage_options *options,
                    struct plx_usage *ret_usage, struct plx_fault *fault)
{
    struct census c = {.store = store, .options = options, .fault = fault};
    int error;

    c.turns = (struct plx_turns){.interrupted = show_and_ask, .context = &c};
    error = census_init(&c);
    if (!error)
        error = take_census(&c);
    census_done(&c);
    if (error)
        plx_usage_done(&c.usage);
    else
        *ret_usage = c.usage;
    return error;
}

void plx_usage_done(struct plx_usage *usage)
{
    free(usage->vdis);
    free(usage->families);
    *usage = (struct plx_usage){0};
}
