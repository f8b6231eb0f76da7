/* grow.c - superblocks change: volumes that became larger, further volumes, features, identity,
 * more room for the registry. superblock.c writes them, newstore.c makes a new store.
 *
 * GROW-1  Before a superblock counts an extent, the extent's header pages are zero on the medium,
 *     so that it is "never used" (EXTENT-3). The VDI records of a volume that comes are zeroed in
 *     the same way. GROW-8 is the exception.
 * GROW-2  A superblock is written to the slot that does not hold its present state. When that is
 *     durable, the other slot becomes its mirror copy, and the spare superblock repeats it
 *     (VOLUME-6). Only then does the store in memory follow, so that it never knows an extent that
 *     a crash would take away.
 * GROW-3  A further volume is complete, its own superblock included, before volume 0 counts it.
 *     Volume 0's superblock is the moment at which the store has the volume. The other volumes'
 *     superblocks follow later and may name fewer volumes until then.
 * GROW-4  New extents are numbered on from the last extent of the store, so that no extent changes
 *     its number. If the volume's last range ends there, that range becomes longer. Otherwise the
 *     volume gets a further range.
 * GROW-5  Only one process at a time changes superblocks, and it has read the store since it got
 *     the right to. Both are the caller's duty (growth.c, and the lock PLX_BYTE_SUPER). As a second
 *     guard, both slots are read again before each write. If they are not what is remembered,
 *     somebody else wrote them: they stay, and the call fails with FENCED.
 * GROW-6  No disk is open in this store object. A flush here bypasses the loop, and if it failed, a
 *     disk's log would have to learn of it. Bitmaps do learn of it: the failure counts in
 *     flush marks (TICK-2).
 * GROW-7  The registry's spans are only added to, behind the present ones, so that what lies in the
 *     registry keeps its place (REGION-9). A new span is at least half as long as all before it, so
 *     that PLX_SYSTEM_SPANS_MAX spans last even for a store that grows by small steps.
 * GROW-8  The room behind a volume's end may have been the store's before, if the superblock went
 *     back to an older state and neither registry nor map knew (VOLUME-5). So a header of this
 *     store with the number that the extent gets is left as it is: its blocks may be somebody's.
 *     Whoever is granted the extent sees that it was used (EXTENT-5), and a rebuild of the registry
 *     finds it.
 * GROW-9  A new volume gets its spare superblock last and an overwritten volume loses it first. So
 *     a crash here never leaves a spare superblock alone. Such a volume would look like one whose
 *     superblocks were ruined, and the next call would refuse to overwrite it.
 * GROW-10  Restoring superblocks from the spare can be repeated. If it was cut off, one slot
 *     repeats the spare and the other one is unreadable, and the next call goes on. Whatever else
 *     can be read is refused, because it may be newer than the spare.
 * GROW-11  What an interrupted call left of a further volume has no extent and no record that was
 *     ever used (GROW-1, GROW-3), and is overwritten without --force. A volume that has one was
 *     counted: volume 0 went back to an older state since, and nothing is overwritten. Whether
 *     there was such a call the caller knows (ATTACH-17).
 * GROW-12  What overwrote a further volume's superblocks may have left zeroes where its number was.
 *     A volume without a number counts as one that went back (NUMBERS-3). So before its superblocks
 *     are restored, each slot that holds no number is marked as one whose number was lost
 *     (NUMBERS-8). A number that is left stays: if the volume went back, that is still seen.
 * Loop: none; the loop stands still.
 * Crash story: one superblock decides: volume 0's for a further volume, the volume's own for one
 *   that became larger. Until that is durable, the store is as it was. Behind the volumes' ends lie
 *   zeroes, and perhaps a volume that only its own superblock counts; repeating the call overwrites
 *   both. Afterwards the store has grown, and the next call writes the mirror copies, spares and
 *   volume counts that are missing.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/space/allocator.h"
#include "engine/space/grow_inside.h"

static int growth_begin(struct plx_store *store, const struct plx_grow *options,
                        struct plx_fault *fault, struct growth *ret_growth)
{
    *ret_growth = (struct growth){
        .store = store,
        .options = options,
        .buffer = malloc(SWEEP_BYTES),
        .extents = store->info.extents,
        .fault = fault,
    };
    PLX_ASSERT(options->dry_run || (store->options.instance && !store->vdis)); /* GROW-6 */
    if (!ret_growth->buffer)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    return plx_volumes_room(store->info.volumes + 1, &ret_growth->room, fault);
}

static uint64_t extent_limit(const struct growth *g)
{
    return PLX_BLOCK_MAX / g->store->info.extent_blocks;
}

/* GROW-4. The present ranges stay as they are or become longer (VOLUME-4). */
static int append_range(struct growth *g, const struct plx_volume *volume, uint64_t extents,
                        struct plx_superblock *super)
{
    struct plx_superblock_range *last = &super->range[super->ranges - 1];

    if (last->first + last->extents == g->extents) {
        last->extents += extents;
        return 0;
    }
    if (super->ranges == PLX_RANGES_MAX)
        return plx_fault_set(g->fault, PLX_ERR_UNSUPPORTED,
                             "%s: became larger %u times after other volumes had, and that is as "
                             "often as it can; make the last volume larger, or add one",
                             volume->device->name, PLX_RANGES_MAX - 1);
    super->range[super->ranges++] = (struct plx_superblock_range){g->extents, extents};
    super->incompatible |= PLX_INCOMPATIBLE_RANGES;
    return 0;
}

static int grow_volume(struct growth *g, struct plx_volume *volume)
{
    struct plx_superblock super = volume->super;
    uint64_t extents = plx_superblock_extents(&super), added;
    uint64_t room = volume->device->bytes / (super.extent_blocks << PLX_BLOCK_SHIFT);
    int error;

    added = plx_min_u64(room - extents, extent_limit(g) - g->extents);
    if (!added)
        return 0;
    error = append_range(g, volume, added, &super);
    if (error || g->options->dry_run) {
        g->extents += error ? 0 : added;
        return error;
    }
    error = plx_grow_flush_failed(
        g, plx_grow_zero_headers(volume->device, &super, extents, added, g->extents, g->buffer));
    if (error)
        return plx_fault_set(g->fault, error, "%s: cannot prepare what it became larger by: %s",
                             volume->device->name, plx_error_text(error));
    error = plx_superblock_write(g, volume, &super);
    g->extents += error ? 0 : added;
    return error;
}

/* GROW-2: the store in memory follows what is durable. */
static int growth_end(struct growth *g, unsigned volumes, int error)
{
    struct plx_store *store = g->store;
    bool more = g->extents > store->info.extents && !g->options->dry_run;
    int mapped = more ? plx_volumes_map(store, store->volumes, volumes, &g->room, g->fault) : 0;

    if (more && !mapped) {
        struct plx_fault why;

        plx_alloc_grown(store);
        g->fault = &why;
        /* A failure is only reported: what decides is durable already. */
        if (plx_grow_settle(g))
            plx_store_event(store, why.code, "%s; 'parallax store grow' makes it good", why.text);
    }
    free(g->buffer);
    free(g->room);
    return error ? error : mapped;
}

int plx_store_grow(struct plx_store *store, const struct plx_grow *options,
                   struct plx_grown *ret_grown, struct plx_fault *fault)
{
    uint64_t before = store->info.extents;
    struct growth g;
    int error = growth_begin(store, options, fault, &g), refused = 0;

    if (!error && !options->dry_run)
        error = plx_grow_settle(&g);
    for (unsigned i = 0; i < store->info.volumes && !error; i++) {
        error = grow_volume(&g, &store->volumes[i]);
        if (error == PLX_ERR_UNSUPPORTED) { /* no room for a range: go on with others */
            refused = error;
            error = 0;
        }
    }
    if (!error && g.extents == before)
        error = refused;
    error = growth_end(&g, store->info.volumes, error);
    if (!error)
        *ret_grown = (struct plx_grown){.extents = g.extents, .added = g.extents - before};
    return error;
}

/* ---- Features ---- */

static int allow(struct plx_store *store, uint64_t feature, struct plx_fault *fault)
{
    const struct plx_grow options = {.dry_run = false};
    struct plx_superblock super = store->volumes[0].super;
    struct growth g;
    int error = growth_begin(store, &options, fault, &g);

    if (!error)
        error = plx_grow_settle(&g);
    if (!error && !(super.incompatible & feature)) {
        super.volumes = store->info.volumes;
        super.incompatible |= feature;
        error = plx_superblock_write(&g, &store->volumes[0], &super);
    }
    return growth_end(&g, store->info.volumes, error);
}

int plx_store_allow_common(struct plx_store *store, struct plx_fault *fault)
{
    return allow(store, PLX_INCOMPATIBLE_COMMON, fault);
}

int plx_store_allow_ring(struct plx_store *store, struct plx_fault *fault)
{
    return allow(store, PLX_INCOMPATIBLE_RING, fault);
}

bool plx_store_allows_ring(const struct plx_store *store)
{
    return store->volumes[0].super.incompatible & PLX_INCOMPATIBLE_RING;
}

static bool is_in(const struct plx_superblock *super, const struct plx_cluster *cluster)
{
    return plx_uuid_equal(&super->cluster.id, &cluster->id) && super->cluster.line == cluster->line;
}

int plx_store_set_cluster(struct plx_store *store, const struct plx_cluster *cluster,
                          struct plx_fault *fault)
{
    const struct plx_grow options = {.dry_run = false};
    struct plx_superblock super;
    struct growth g;
    int error = growth_begin(store, &options, fault, &g);

    if (!error)
        error = plx_grow_settle(&g);
    super = store->volumes[0].super;
    super.cluster = *cluster;
    super.incompatible &= ~PLX_INCOMPATIBLE_CLUSTER;
    if (!plx_uuid_is_zero(&cluster->id))
        super.incompatible |= PLX_INCOMPATIBLE_CLUSTER;
    if (!error && !is_in(&store->volumes[0].super, cluster))
        error = plx_superblock_write(&g, &store->volumes[0], &super);
    return growth_end(&g, store->info.volumes, error);
}

/* GROW-3: volume 0 comes last, so the store has the new identity when all its volumes have it. */
int plx_store_set_identity(struct plx_store *store, const struct plx_uuid *identity,
                           struct plx_fault *fault)
{
    const struct plx_grow options = {.dry_run = false};
    struct growth g;
    int error = growth_begin(store, &options, fault, &g);

    if (!error)
        error = plx_grow_settle(&g);
    for (unsigned i = store->info.volumes; i-- > 0 && !error;) {
        struct plx_superblock super = store->volumes[i].super;

        super.identity = *identity;
        error = plx_superblock_write(&g, &store->volumes[i], &super);
    }
    if (!error)
        store->info.identity = *identity;
    return growth_end(&g, store->info.volumes, error);
}

/* ---- The registry's place ---- */

static uint64_t registry_has(const struct plx_superblock *super)
{
    uint64_t has = 0;

    for (uint32_t i = 0; i < super->spans; i++)
        if (super->span[i].kind == PLX_SYSTEM_REGISTRY)
            has += super->span[i].extents;
    return has;
}

void plx_store_registry_due(const struct plx_store *store, uint64_t *ret_least, uint64_t *ret_most)
{
    const struct plx_superblock *super = &store->volumes[0].super;
    uint64_t wanted = plx_grow_registry_extents(super, store->info.extents),
             has = registry_has(super);

    *ret_least = *ret_most = 0;
    if (has == 0 || has >= wanted || super->spans == PLX_SYSTEM_SPANS_MAX)
        return;
    *ret_least = plx_div_up(has, 2); /* GROW-7 */
    *ret_most = plx_max_u64(wanted - has, has);
}

enum plx_registry_stays plx_store_registry_stays(const struct plx_store *store)
{
    const struct plx_superblock *super = &store->volumes[0].super;
    uint64_t has = registry_has(super), extent_bytes = super->extent_blocks << PLX_BLOCK_SHIFT;

    if (has == 0 || has >= plx_div_up(store->info.extents * REGISTRY_BYTES_EXTENT, extent_bytes))
        return PLX_REGISTRY_FITS;
    return super->spans == PLX_SYSTEM_SPANS_MAX ? PLX_REGISTRY_NO_SPANS : PLX_REGISTRY_NO_EXTENTS;
}

/* Adds a span. The numbers come from the registry and may be wrong. A superblock that the gate
 * refuses would make the store unreadable, so the result passes the gate here first. */
static int append_span(struct growth *g, uint64_t first, uint64_t extents,
                       struct plx_superblock *super)
{
    struct plx_superblock again;

    if (super->spans == PLX_SYSTEM_SPANS_MAX)
        return plx_fault_set(g->fault, PLX_ERR_UNSUPPORTED,
                             "the registry's space was made larger %u times, and that is as often "
                             "as it can be",
                             PLX_SYSTEM_SPANS_MAX - 1);
    super->span[super->spans++] = (struct plx_superblock_span){
        .kind = PLX_SYSTEM_REGISTRY, .first = first, .extents = extents};
    plx_format_superblock_encode(super, g->buffer);
    if (plx_format_superblock_decode(g->buffer, &again, NULL))
        return plx_fault_set(g->fault, PLX_ERR_INVALID,
                             "extents %llu and on of volume 0 cannot be the registry's",
                             (unsigned long long)first);
    return 0;
}

int plx_store_add_registry_span(struct plx_store *store, uint64_t first, uint64_t extents,
                                struct plx_fault *fault)
{
    const struct plx_grow options = {.dry_run = false};
    struct plx_superblock super;
    struct growth g;
    int error = growth_begin(store, &options, fault, &g);

    if (!error)
        error = plx_grow_settle(&g);
    super = store->volumes[0].super;
    if (!error)
        error = append_span(&g, first, extents, &super);
    if (!error)
        error = plx_superblock_write(&g, &store->volumes[0], &super);
    return growth_end(&g, store->info.volumes, error);
}

/* ---- A further volume ---- */

enum standing {
    STANDING_STRANGER,
    STANDING_LEFTOVER, /* left by an interrupted plx_store_add_volume() */
    STANDING_MEMBER,
};

/* A copy that was given an identity of its own is another store. */
static enum standing standing_of(const struct plx_store *store, struct plx_device *device,
                                 unsigned *ret_index, struct plx_superblock *super)
{
    struct plx_volume volume;

    *ret_index = store->info.volumes;
    if (plx_superblock_read(device, &volume, NULL))
        return STANDING_STRANGER;
    *super = volume.super;
    if (!plx_uuid_equal(&super->store, &store->info.id) ||
        !plx_uuid_equal(&super->identity, &store->info.identity))
        return STANDING_STRANGER;
    for (unsigned i = 0; i < store->info.volumes; i++) {
        if (!plx_uuid_equal(&store->volumes[i].super.volume, &super->volume))
            continue;
        *ret_index = i;
        return STANDING_MEMBER;
    }
    return super->volume_index == store->info.volumes ? STANDING_LEFTOVER : STANDING_STRANGER;
}

/* GROW-11 */
static int refuse_used(const struct growth *g, struct plx_device *device,
                       const struct plx_superblock *super)
{
    bool used;
    int error = plx_superblock_was_used(device, &used, g->fault);

    if (error || !used)
        return error;
    return plx_fault_set(
        g->fault, PLX_ERR_EXISTS,
        "%s: is in use as volume %u of store %s, but %s does not count it, so that "
        "one went back to an older state; put the newer one back (--force "
        "overwrites all that this volume holds)",
        device->name, super->volume_index, super->name, g->store->volumes[0].device->name);
}

static int check_further(struct growth *g, struct plx_device *device)
{
    const struct plx_store *store = g->store;
    uint64_t extent_bytes = store->info.extent_blocks << PLX_BLOCK_SHIFT;

    if (store->info.volumes == PLX_VOLUMES_MAX)
        return plx_fault_set(g->fault, PLX_ERR_UNSUPPORTED, "a store has at most %d volumes",
                             PLX_VOLUMES_MAX);
    if (device->block_size > plx_store_device_block(store))
        return plx_fault_set(g->fault, PLX_ERR_INVALID,
                             "%s: its logical blocks have %u bytes, those of the store's volumes "
                             "%u; a further volume's must not be larger",
                             device->name, device->block_size, plx_store_device_block(store));
    if (device->bytes / extent_bytes > extent_limit(g) - g->extents)
        return plx_fault_set(g->fault, PLX_ERR_INVALID, "a store holds at most 512 TiB");
    return plx_grow_check_extents(device, extent_bytes, "", g->fault);
}

static void further_superblock(struct growth *g, const struct plx_device *device,
                               struct plx_superblock *ret_super)
{
    const struct plx_superblock *first = &g->store->volumes[0].super;
    struct plx_env *env = g->store->env;

    *ret_super = (struct plx_superblock){
        .store = first->store,
        .identity = first->identity,
        .generation = 1,
        .volume_index = g->store->info.volumes,
        .volumes = g->store->info.volumes + 1,
        .range = {{g->extents, device->bytes / (first->extent_blocks << PLX_BLOCK_SHIFT)}},
        .ranges = 1,
        .extent_blocks = first->extent_blocks,
        .segment_blocks = first->segment_blocks,
        .vdi_slots = first->vdi_slots,
        .created_ns = first->created_ns,
    };
    memcpy(ret_super->name, first->name, sizeof ret_super->name);
    env->random(env, ret_super->volume.b, sizeof ret_super->volume.b);
}

/* GROW-3 */
static int join(struct growth *g, struct plx_device *device, const struct plx_superblock *further)
{
    struct plx_store *store = g->store;
    struct plx_superblock first = store->volumes[0].super;
    uint64_t number = g->options->number;
    int error = plx_grow_zero_volume(device, further, g->buffer);

    if (!error && number) {
        plx_format_number_encode(&further->store, number, g->buffer);
        error =
            plx_volume_io(device, PLX_IO_WRITE, (PLX_NUMBER_BLOCK + number % 2) * PLX_BLOCK_SIZE,
                          g->buffer, PLX_BLOCK_SIZE);
    }
    if (!error)
        error = plx_superblock_write_first(device, further, g->buffer);
    if (error)
        return plx_fault_set(g->fault, error, "%s: cannot be prepared: %s", device->name,
                             plx_error_text(error));
    first.volumes = further->volumes;
    return plx_superblock_write(g, &store->volumes[0], &first);
}

static int add_volume(struct growth *g, struct plx_device *device, struct plx_grown *ret_grown)
{
    struct plx_store *store = g->store;
    struct plx_superblock super = {0};
    enum standing standing = standing_of(store, device, &ret_grown->volume, &super);
    int error;

    if (standing == STANDING_MEMBER)
        return 0;
    error = check_further(g, device);
    if (!error && standing == STANDING_LEFTOVER && !g->options->force)
        error = refuse_used(g, device, &super);
    if (!error)
        error = plx_grow_refuse_data(device, g->options->force || standing == STANDING_LEFTOVER,
                                     g->buffer, g->fault);
    if (error)
        return error;
    further_superblock(g, device, &super);
    ret_grown->added = super.range[0].extents;
    if (!g->options->dry_run)
        error = join(g, device, &super);
    if (error)
        return error;
    g->extents += ret_grown->added;
    if (!g->options->dry_run)
        store->volumes[super.volume_index] =
            (struct plx_volume){.device = device, .super = super, .mirrored = true, .dirty = true};
    return 0;
}

int plx_store_add_volume(struct plx_store *store, struct plx_device *device,
                         const struct plx_grow *options, struct plx_grown *ret_grown,
                         struct plx_fault *fault)
{
    struct plx_grown grown = {0};
    struct growth g;
    int error = growth_begin(store, options, fault, &g);

    if (!error && !options->dry_run)
        error = plx_grow_settle(&g);
    if (!error)
        error = add_volume(&g, device, &grown);
    error = growth_end(&g, store->info.volumes + (grown.added && !error), error);
    if (error)
        return error;
    grown.extents = g.extents;
    *ret_grown = grown;
    return 0;
}
