/* grow.c - superblocks written: a new store, volumes that became larger, further volumes, features.
 *
 * G1  Before a superblock counts an extent, its header pages are zero, durably: never used
 *     (extent.c, E3), but for G8; likewise the VDI records of a volume that comes.
 * G2  A superblock changes by its other slot, and the slot it had becomes the mirror when the new
 *     one is durable (INV-2). What it says is what the store does only after that.
 * G3  A further volume is complete, its own superblock included, before volume 0 counts it; only
 *     then do the others. Volume 0's superblock is the moment at which the store has it.
 * G4  Extents are numbered on from the last one of the store. A volume that is not the last one
 *     gets a further range of them; where its last range ends the numbering, that gets longer.
 * G5  Who grows or adds is alone in doing so, and knows the store as it is now (the caller's duty:
 *     growth.c's right, and the lock PLX_BYTE_SUPER). Before each superblock both slots are read
 *     again: one that is not as it is remembered was written by somebody else, and stays.
 * G6  No disk is open here: a flush that fails beside the loop would be news for its log. Bitmaps
 *     are told of it (tick.c, S2).
 * G7  Spans of the registry are only added, behind those that there are: what lies in it keeps its
 *     place (region.c, F9). A new one is at least half as long as all before it, so that the list
 *     lasts for a store that grows by small steps.
 * G8  What a volume becomes larger by may have been the store's before: its superblock went back,
 *     and neither registry nor map knew (volume.c, U5). A header of this store there, of the number
 *     that the extent gets, is left as it is, for its blocks may be somebody's. Who gets the extent
 *     sees that it was used (extent.c, E5), and a rebuild of the registry finds all of it.
 * Loop: none; it stands still. Crash story: before the superblock that decides (G3; for a volume
 *   that became larger its own) is durable, the store is as it was: behind the volumes' ends lie
 *   zeroes, and perhaps a volume that says of itself what nobody else says. Repeating the call
 *   overwrites them. Afterwards the store has grown; the next call makes good what mirrors and
 *   other volumes do not say yet.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/loop/volume.h"

#define SWEEP_BYTES (1u << 20)
#define EXTENTS_MIN 4u /* of a volume */
#define REGISTRY_BYTES_MIN (4ull << 20)
#define REGISTRY_BYTES_EXTENT 512ull /* for each extent of the store */
#define REGISTRY_SHARE 16u           /* of volume 0, at most (twice as much by G7) */

static bool is_zero(const uint8_t *bytes, size_t count)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, count - 1) == 0;
}

/* Zeroes a range, writing only where it is not zero yet: sparse files stay sparse. */
static int zero_range(struct plx_device *device, uint64_t offset, uint64_t bytes, uint8_t *buffer)
{
    while (bytes) {
        size_t now = plx_min_u64(bytes, SWEEP_BYTES);
        int error = plx_volume_io(device, PLX_IO_READ, offset, buffer, now);

        if (!error && !is_zero(buffer, now)) {
            memset(buffer, 0, now);
            error = plx_volume_io(device, PLX_IO_WRITE, offset, buffer, now);
        }
        if (error)
            return error;
        offset += now;
        bytes -= now;
    }
    return 0;
}

/* Data anywhere in the first MiB or the last 64 KiB (partition tables, file systems, stores). The
 * device is large enough to be a volume. */
static int holds_data(struct plx_device *device, uint8_t *buffer, bool *ret_holds)
{
    size_t head = SWEEP_BYTES, tail = 64u << 10;
    int error = plx_volume_io(device, PLX_IO_READ, 0, buffer, head);

    *ret_holds = !error && !is_zero(buffer, head);
    if (error || *ret_holds)
        return error;
    error = plx_volume_io(device, PLX_IO_READ, (device->bytes & ~4095ull) - tail, buffer, tail);
    *ret_holds = !error && !is_zero(buffer, tail);
    return error;
}

/* ---- What a superblock is to count ---- */

/* G8 */
static int was_used(struct plx_device *device, const struct plx_superblock *super, uint64_t offset,
                    uint64_t number, uint8_t *buffer, bool *ret_used)
{
    uint32_t pages = plx_extent_pages(super->extent_blocks);
    int error = plx_volume_io(device, PLX_IO_READ, offset, buffer, 2 * PLX_BLOCK_SIZE);
    struct plx_extent_page page;

    *ret_used = false;
    for (unsigned slot = 0; slot < 2 && !error; slot++)
        *ret_used |= !plx_format_extent_page_decode(buffer + slot * PLX_BLOCK_SIZE, &super->store,
                                                    number, 0, pages, &page, NULL);
    return error;
}

/* G1: the headers of extents on a volume, from the at-th on. number: of the first one, if they may
 * have been the store's (G8); else 0. */
static int zero_headers(struct plx_device *device, const struct plx_superblock *super, uint64_t at,
                        uint64_t extents, uint64_t number, uint8_t *buffer)
{
    uint64_t extent_bytes = super->extent_blocks << PLX_BLOCK_SHIFT;
    uint64_t header_bytes = 2ull * plx_extent_pages(super->extent_blocks) * PLX_BLOCK_SIZE;
    bool used = false;
    int error = 0;

    for (uint64_t i = 0; i < extents && !error; i++) {
        uint64_t offset = (at + i) * extent_bytes;

        if (number)
            error = was_used(device, super, offset, number + i, buffer, &used);
        if (!error && !used)
            error = zero_range(device, offset, header_bytes, buffer);
    }
    return error ? error : plx_volume_io(device, PLX_IO_FLUSH, 0, NULL, 0);
}

/* G1: all of a volume that comes. */
static int zero_volume(struct plx_device *device, const struct plx_superblock *super,
                       uint8_t *buffer)
{
    /* An older superblock goes first, so that an interrupted format is no store at all. */
    int error = zero_range(device, 0, PLX_VDI_TABLE_BLOCK * PLX_BLOCK_SIZE, buffer);

    if (!error)
        error = plx_volume_io(device, PLX_IO_FLUSH, 0, NULL, 0);
    if (!error)
        error = zero_range(device, PLX_VDI_TABLE_BLOCK * PLX_BLOCK_SIZE,
                           2ull * super->vdi_slots * PLX_BLOCK_SIZE, buffer);
    return error ? error : zero_headers(device, super, 1, super->range[0].extents - 1, 0, buffer);
}

/* Of a volume that has none. */
static int write_first_superblock(struct plx_device *device, const struct plx_superblock *super,
                                  uint8_t *buffer)
{
    int error;

    plx_format_superblock_encode(super, buffer);
    error = plx_volume_io(device, PLX_IO_WRITE, 0, buffer, PLX_BLOCK_SIZE);
    if (!error)
        error = plx_volume_io(device, PLX_IO_WRITE, PLX_BLOCK_SIZE, buffer, PLX_BLOCK_SIZE);
    return error ? error : plx_volume_io(device, PLX_IO_FLUSH, 0, NULL, 0);
}

static uint32_t slots_of(uint64_t extent_blocks, const struct plx_format_options *options)
{
    uint64_t most = plx_min_u64((extent_blocks - PLX_VDI_TABLE_BLOCK) / 2, PLX_VDI_SLOTS_MAX);

    return (uint32_t)(options->vdi_slots ? plx_min_u64(options->vdi_slots, most) : most);
}

static int check_extents(const struct plx_device *device, uint64_t extent_bytes,
                         struct plx_fault *fault)
{
    if (device->bytes / extent_bytes >= EXTENTS_MIN)
        return 0;
    return plx_fault_set(fault, PLX_ERR_INVALID,
                         "%s: too small: a volume needs at least %u extents of %llu bytes "
                         "(give a larger --size%s)",
                         device->name, EXTENTS_MIN, (unsigned long long)extent_bytes,
                         extent_bytes > 1u << 20 ? " or a smaller --extent-size" : "");
}

static int refuse_data(struct plx_device *device, bool force, uint8_t *buffer,
                       struct plx_fault *fault)
{
    struct plx_superblock_info store;
    bool holds;
    int error;

    if (device->read_only)
        return plx_fault_set(fault, PLX_ERR_READONLY, "%s: read-only", device->name);
    error = holds_data(device, buffer, &holds);
    if (error)
        return plx_fault_set(fault, error, "%s: cannot read: %s", device->name,
                             plx_error_text(error));
    if (holds && !force && !plx_superblock_probe(device, &store, NULL))
        return plx_fault_set(fault, PLX_ERR_EXISTS,
                             "%s: holds store %s; 'parallax store import' makes it known here, "
                             "--force overwrites it with all its disks",
                             device->name, store.store_name);
    if (holds && !force)
        return plx_fault_set(fault, PLX_ERR_EXISTS, "%s: holds data already; --force overwrites it",
                             device->name);
    return 0;
}

/* ---- Formatting ---- */

static uint64_t choose_extent_bytes(uint64_t bytes)
{
    uint64_t extent = 1ull << 20;

    while (extent < 2ull << 30 && extent < bytes / 256)
        extent <<= 1;
    return extent;
}

/* How many extents of volume 0 the registry of a store with so many is to have: room for a row of
 * each extent several times over, and for disks and labels. */
static uint64_t registry_extents(const struct plx_superblock *super, uint64_t extents)
{
    uint64_t extent_bytes = super->extent_blocks << PLX_BLOCK_SHIFT;
    uint64_t bytes = plx_max_u64(REGISTRY_BYTES_MIN, extents * REGISTRY_BYTES_EXTENT);
    uint64_t most = plx_max_u64(1, plx_superblock_extents(super) / REGISTRY_SHARE);

    return plx_min_u64(plx_div_up(bytes, extent_bytes), most);
}

/* It gets those after extent 0. */
static void place_registry(struct plx_superblock *super, uint64_t extents)
{
    super->span[0] = (struct plx_superblock_span){
        .kind = PLX_SYSTEM_REGISTRY,
        .first = super->range[0].first + 1,
        .extents = registry_extents(super, extents),
    };
    super->spans = 1;
}

static int format_geometry(struct plx_device **devices, unsigned count,
                           const struct plx_format_options *options, struct plx_superblock *supers,
                           struct plx_fault *fault)
{
    uint64_t total = 0, extent_bytes, segment_bytes, extent = 0;

    for (unsigned i = 0; i < count; i++)
        total += devices[i]->bytes;
    extent_bytes = options->extent_bytes ? options->extent_bytes : choose_extent_bytes(total);
    segment_bytes =
        options->segment_bytes ? options->segment_bytes : plx_min_u64(1u << 20, extent_bytes / 8);
    if ((extent_bytes & (extent_bytes - 1)) || extent_bytes < 1u << 20 || extent_bytes > 2ull << 30)
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "extent size: a power of two from 1M to 2G is needed");
    for (unsigned i = 0; i < count; i++) {
        uint64_t extents = devices[i]->bytes / extent_bytes;
        uint64_t extent_blocks = extent_bytes >> PLX_BLOCK_SHIFT;

        if (check_extents(devices[i], extent_bytes, fault))
            return PLX_ERR_INVALID;
        supers[i] = (struct plx_superblock){
            .volume_index = i,
            .volumes = count,
            .range = {{extent, extents}},
            .ranges = 1,
            .extent_blocks = extent_blocks,
            .segment_blocks = (uint32_t)(segment_bytes >> PLX_BLOCK_SHIFT),
            .vdi_slots = slots_of(extent_blocks, options),
            .generation = 1,
        };
        extent += extents;
    }
    if (extent > PLX_BLOCK_MAX / (extent_bytes >> PLX_BLOCK_SHIFT))
        return plx_fault_set(fault, PLX_ERR_INVALID, "a store holds at most 512 TiB");
    if (options->registry)
        place_registry(&supers[0], extent);
    if (segment_bytes < 4 * PLX_BLOCK_SIZE || segment_bytes % PLX_BLOCK_SIZE ||
        supers[0].segment_blocks > PLX_SEGMENT_BLOCKS_MAX ||
        supers[0].segment_blocks > supers[0].extent_blocks / 4)
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "log segment size: a multiple of 4096 from 16K to 1M, at most a "
                             "quarter of an extent");
    return 0;
}

static int format_checked(struct plx_device **devices, unsigned count,
                          const struct plx_format_options *options, struct plx_env *env,
                          struct plx_superblock *supers, uint8_t *buffer, struct plx_fault *fault)
{
    struct plx_uuid store_id;
    uint64_t now = plx_env_now_ns(env);
    int error = format_geometry(devices, count, options, supers, fault);

    if (error)
        return error;
    for (unsigned i = 0; i < count; i++) {
        error = refuse_data(devices[i], options->force, buffer, fault);
        if (error)
            return error;
    }
    env->random(env, store_id.b, sizeof store_id.b);
    for (unsigned i = 0; i < count && !error; i++) {
        supers[i].store = supers[i].identity = store_id;
        env->random(env, supers[i].volume.b, sizeof supers[i].volume.b);
        supers[i].created_ns = now;
        memcpy(supers[i].name, options->name, sizeof supers[i].name);
        error = zero_volume(devices[i], &supers[i], buffer);
        if (error)
            plx_fault_set(fault, error, "%s: cannot format: %s", devices[i]->name,
                          plx_error_text(error));
    }
    for (unsigned i = 0; i < count && !error; i++) {
        error = write_first_superblock(devices[i], &supers[i], buffer);
        if (error)
            plx_fault_set(fault, error, "%s: cannot write the superblock: %s", devices[i]->name,
                          plx_error_text(error));
    }
    return error;
}

int plx_store_format(struct plx_device **devices, unsigned count,
                     const struct plx_format_options *options, struct plx_env *env,
                     struct plx_store_info *ret_info, struct plx_fault *fault)
{
    struct plx_superblock supers[PLX_VOLUMES_MAX] = {0};
    struct plx_extent_range *room;
    struct plx_store *scratch;
    uint8_t *buffer;
    int error;

    if (count < 1 || count > PLX_VOLUMES_MAX || !options->name[0])
        return plx_fault_set(fault, PLX_ERR_INVALID, "a store has a name and 1 to %d volumes",
                             PLX_VOLUMES_MAX);
    buffer = malloc(SWEEP_BYTES);
    if (!buffer)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    error = format_checked(devices, count, options, env, supers, buffer, fault);
    free(buffer);
    if (error || !ret_info)
        return error;
    scratch = calloc(1, sizeof *scratch);
    if (!scratch)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    for (unsigned i = 0; i < count; i++) {
        scratch->volumes[i].device = devices[i];
        scratch->volumes[i].super = supers[i];
    }
    error = plx_volumes_room(count, &room, fault);
    if (!error)
        error = plx_volumes_map(scratch, scratch->volumes, count, &room, fault);
    if (!error)
        *ret_info = scratch->info;
    free(room);
    free(scratch->ranges);
    free(scratch);
    return error;
}

/* ---- Growing ---- */

/* A call under way: the next state of the store is tried out here before it becomes the store's. */
struct growth {
    struct plx_store *store;
    const struct plx_grow *options;
    uint8_t *buffer;
    struct plx_extent_range *room; /* for the map, since what is durable must not fail any more */
    uint64_t extents;              /* of the store, with those that were added so far */
    struct plx_fault *fault;
};

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
    PLX_ASSERT(options->dry_run || (store->options.instance && !store->vdis)); /* G6 */
    if (!ret_growth->buffer)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
    return plx_volumes_room(store->info.volumes + 1, &ret_growth->room, fault);
}

static uint64_t extent_limit(const struct growth *g)
{
    return PLX_BLOCK_MAX / g->store->info.extent_blocks;
}

/* G6: what failed on a volume of the store may have been a flush. */
static int flush_failed(struct growth *g, int error)
{
    if (error) {
        g->store->flush_failures++;
        g->store->flush_error = error;
    }
    return error;
}

static int write_slot(struct growth *g, const struct plx_volume *volume, unsigned slot,
                      uint64_t generation, const struct plx_superblock *super)
{
    struct plx_superblock copy = *super;
    int error;

    copy.generation = generation;
    plx_format_superblock_encode(&copy, g->buffer);
    error = plx_volume_io(volume->device, PLX_IO_WRITE, (uint64_t)slot * PLX_BLOCK_SIZE, g->buffer,
                          PLX_BLOCK_SIZE);
    if (!error)
        error = plx_volume_io(volume->device, PLX_IO_FLUSH, 0, NULL, 0);
    return flush_failed(g, error);
}

/* G5 */
static int check_unchanged(struct growth *g, const struct plx_volume *volume)
{
    struct plx_volume now;
    int error = plx_superblock_read(volume->device, &now, g->fault);

    if (!error && now.super.generation != volume->super.generation &&
        now.super.generation != volume->attempted)
        error = plx_fault_set(g->fault, PLX_ERR_FENCED,
                              "%s: another process has written its superblock meanwhile; try again",
                              volume->device->name);
    return error;
}

/* G2 */
static int write_superblock(struct growth *g, struct plx_volume *volume,
                            const struct plx_superblock *super)
{
    uint64_t generation = plx_generation_next(volume->super.generation);
    int error = check_unchanged(g, volume);

    if (error)
        return error;
    if (generation > PLX_COUNTER_MAX) /* nobody would read it */
        return plx_fault_set(g->fault, PLX_ERR_CORRUPT,
                             "%s: its superblock has an impossible generation",
                             volume->device->name);
    volume->attempted = generation;
    error = write_slot(g, volume, volume->slot ^ 1, generation, super);
    if (error)
        return plx_fault_set(g->fault, error, "%s: cannot write the superblock: %s; try again",
                             volume->device->name, plx_error_text(error));
    volume->super = *super;
    volume->super.generation = generation;
    volume->behind = false;
    volume->slot ^= 1;
    volume->mirrored = write_slot(g, volume, volume->slot ^ 1, generation - 1, super) == 0;
    return 0;
}

/* What an interrupted call has left to do: mirrors (G2), and who does not say yet how many volumes
 * there are (G3). */
static int settle(struct growth *g)
{
    uint32_t count = g->store->info.volumes;
    int error = 0;

    for (unsigned i = 0; i < count && !error; i++) {
        struct plx_volume *volume = &g->store->volumes[i];
        struct plx_superblock super = volume->super;

        super.volumes = count;
        if (!volume->mirrored || volume->super.volumes != count)
            error = write_superblock(g, volume, &super);
    }
    return error;
}

/* G4 */
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
    error = flush_failed(
        g, zero_headers(volume->device, &super, extents, added, g->extents, g->buffer));
    if (error)
        return plx_fault_set(g->fault, error, "%s: cannot prepare what it became larger by: %s",
                             volume->device->name, plx_error_text(error));
    error = write_superblock(g, volume, &super);
    g->extents += error ? 0 : added;
    return error;
}

/* What is durable becomes the store's (G2). */
static int growth_end(struct growth *g, unsigned volumes, int error)
{
    struct plx_store *store = g->store;
    bool more = g->extents > store->info.extents && !g->options->dry_run;
    int mapped = more ? plx_volumes_map(store, store->volumes, volumes, &g->room, g->fault) : 0;

    if (more && !mapped) {
        struct plx_fault why;

        plx_alloc_grown(store);
        g->fault = &why;
        if (settle(g)) /* what counts is durable */
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
        error = settle(&g);
    for (unsigned i = 0; i < store->info.volumes && !error; i++) {
        error = grow_volume(&g, &store->volumes[i]);
        if (error == PLX_ERR_UNSUPPORTED) { /* it has no room for a range: others may go on */
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

int plx_store_allow_common(struct plx_store *store, struct plx_fault *fault)
{
    const struct plx_grow options = {.dry_run = false};
    struct plx_superblock super = store->volumes[0].super;
    struct growth g;
    int error = growth_begin(store, &options, fault, &g);

    if (!error)
        error = settle(&g);
    if (!error && !(super.incompatible & PLX_INCOMPATIBLE_COMMON)) {
        super.volumes = store->info.volumes;
        super.incompatible |= PLX_INCOMPATIBLE_COMMON;
        error = write_superblock(&g, &store->volumes[0], &super);
    }
    return growth_end(&g, store->info.volumes, error);
}

/* G3: volume 0 last, so the store has it when all of it has. */
int plx_store_set_identity(struct plx_store *store, const struct plx_uuid *identity,
                           struct plx_fault *fault)
{
    const struct plx_grow options = {.dry_run = false};
    struct growth g;
    int error = growth_begin(store, &options, fault, &g);

    if (!error)
        error = settle(&g);
    for (unsigned i = store->info.volumes; i-- > 0 && !error;) {
        struct plx_superblock super = store->volumes[i].super;

        super.identity = *identity;
        error = write_superblock(&g, &store->volumes[i], &super);
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
    uint64_t wanted = registry_extents(super, store->info.extents), has = registry_has(super);

    *ret_least = *ret_most = 0;
    if (has == 0 || has >= wanted || super->spans == PLX_SYSTEM_SPANS_MAX)
        return;
    *ret_least = plx_div_up(has, 2); /* G7 */
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

/* With a span more. What the numbers come from may be wrong, and the gate would let nobody read it.
 */
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
        error = settle(&g);
    super = store->volumes[0].super;
    if (!error)
        error = append_span(&g, first, extents, &super);
    if (!error)
        error = write_superblock(&g, &store->volumes[0], &super);
    return growth_end(&g, store->info.volumes, error);
}

/* ---- A further volume ---- */

enum standing {
    STANDING_STRANGER,
    STANDING_LEFTOVER, /* of an interrupted call */
    STANDING_MEMBER,
};

static enum standing standing_of(const struct plx_store *store, struct plx_device *device,
                                 unsigned *ret_index)
{
    struct plx_volume volume;
    const struct plx_superblock *super = &volume.super;

    *ret_index = store->info.volumes;
    if (plx_superblock_read(device, &volume, NULL) ||
        !plx_uuid_equal(&super->store, &store->info.id))
        return STANDING_STRANGER;
    for (unsigned i = 0; i < store->info.volumes; i++) {
        if (!plx_uuid_equal(&store->volumes[i].super.volume, &super->volume))
            continue;
        *ret_index = i;
        return STANDING_MEMBER;
    }
    return super->volume_index == store->info.volumes ? STANDING_LEFTOVER : STANDING_STRANGER;
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
    return check_extents(device, extent_bytes, g->fault);
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

/* G3 */
static int join(struct growth *g, struct plx_device *device, const struct plx_superblock *further)
{
    struct plx_store *store = g->store;
    struct plx_superblock first = store->volumes[0].super;
    int error = zero_volume(device, further, g->buffer);

    if (!error)
        error = write_first_superblock(device, further, g->buffer);
    if (error)
        return plx_fault_set(g->fault, error, "%s: cannot be prepared: %s", device->name,
                             plx_error_text(error));
    first.volumes = further->volumes;
    return write_superblock(g, &store->volumes[0], &first);
}

static int add_volume(struct growth *g, struct plx_device *device, struct plx_grown *ret_grown)
{
    struct plx_store *store = g->store;
    enum standing standing = standing_of(store, device, &ret_grown->volume);
    struct plx_superblock super;
    int error;

    if (standing == STANDING_MEMBER)
        return 0;
    error = check_further(g, device);
    if (!error)
        error = refuse_data(device, g->options->force || standing == STANDING_LEFTOVER, g->buffer,
                            g->fault);
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
        error = settle(&g);
    if (!error)
        error = add_volume(&g, device, &grown);
    error = growth_end(&g, store->info.volumes + (grown.added && !error), error);
    if (error)
        return error;
    grown.extents = g.extents;
    *ret_grown = grown;
    return 0;
}
