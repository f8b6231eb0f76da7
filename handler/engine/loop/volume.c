/* volume.c - superblocks are read; where a store's extents lie on its volumes.
 *
 * VOLUME-1  Volume 0 says how many volumes the store has. The superblocks of other volumes may name
 *     fewer, because grow.c writes them later (GROW-3).
 * VOLUME-2  The ranges of all volumes, sorted by extent number, follow each other without gap or
 *     overlap. So each address below store->addr_limit lies on exactly one volume.
 * VOLUME-3  A volume's device is as large as the superblock says, or larger. A smaller one was
 *     truncated, and the store is refused.
 * VOLUME-4  The map from addresses to volumes only ever gets longer. What lies behind an address
 *     stays where it is, so disks can go on while the store grows.
 * VOLUME-5  If a superblock counts fewer extents than the caller knows of, the superblock is an
 *     older one that came back: the device lost a write. Then what the caller knows counts, because
 *     disks have blocks there. The caller knows it from a registry, which learns of an extent only
 *     after the superblock is durable. This knowledge only makes ranges longer or adds ranges, and
 *     only where the volume has room. grow.c writes the superblock again (GROW-2).
 * VOLUME-6  The spare superblock never counts by itself, because a device that was given to
 *     somebody else may still have it. The operator's word is needed before the slots are restored
 *     from it (plx_superblock_restore()). It is written after the slot that it repeats is durable.
 * VOLUME-7  No superblock counts more volumes than that of volume 0, which is written first
 *     (GROW-3), except on a volume that volume 0 does not count. If one does, volume 0 went back to
 *     an older state. The store can be read, as far as it goes, and is not opened for writing.
 * Loop: the store's loop.
 * Crash story: nothing is written here.
 */
#include "engine/loop/volume.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/plain.h"

/* ---- Device I/O beside the loop ---- */

struct plain_io {
    struct plx_io io;
    bool done;
};

static void plain_done(struct plx_io *io)
{
    PLX_CONTAINER(io, struct plain_io, io)->done = true;
}

int plx_volume_io(struct plx_device *device, enum plx_io_op op, uint64_t offset, void *buffer,
                  size_t bytes)
{
    struct iovec iov = {buffer, bytes};
    struct plain_io plain = {.io = {.op = op,
                                    .kind = PLX_KIND_ADMIN,
                                    .offset = offset,
                                    .bytes = bytes,
                                    .iov = &iov,
                                    .iovcnt = op == PLX_IO_FLUSH ? 0 : 1,
                                    .done = plain_done}};

    device->ops->submit(device, &plain.io);
    device->ops->kick(device);
    while (!plain.done)
        device->ops->poll(device, true);
    return plain.io.result;
}

/* ---- Superblocks ---- */

int plx_superblock_read_spare(struct plx_device *device, uint8_t ret_block[PLX_BLOCK_SIZE],
                              struct plx_superblock *ret_super, struct plx_fault *fault)
{
    struct plx_fault why;
    int error = plx_volume_io(device, PLX_IO_READ, PLX_SUPERBLOCK_SPARE * PLX_BLOCK_SIZE, ret_block,
                              PLX_BLOCK_SIZE);

    if (error)
        return plx_fault_set(fault, error, "%s: cannot read the spare superblock: %s", device->name,
                             plx_error_text(error));
    error = plx_format_superblock_decode(ret_block, ret_super, &why);
    return error ? plx_fault_set(fault, error, "%s: spare superblock: %s", device->name, why.text)
                 : 0;
}

/* VOLUME-6: whether the spare may be there beside the newest slot. If not, plx_grow_settle() writes
 * it. */
static bool spare_follows(const uint8_t newest[PLX_BLOCK_SIZE], const uint8_t spare[PLX_BLOCK_SIZE])
{
    bool is_zero = !spare[0] && !memcmp(spare, spare + 1, PLX_BLOCK_SIZE - 1);

    return is_zero || plx_format_superblock_same(newest, spare);
}

/* Whether somebody might restore the slots from a spare that could not be read with this error: a
 * newer Parallax, or this one when the device can be read again. */
static bool may_restore(int error)
{
    return error && error != PLX_ERR_NOT_FOUND && error != PLX_ERR_CORRUPT;
}

int plx_superblock_read(struct plx_device *device, struct plx_volume *ret_volume,
                        struct plx_fault *fault)
{
    char word[PLX_WORD_TEXT];
    uint8_t blocks[PLX_SUPERBLOCK_SLOTS][PLX_BLOCK_SIZE];
    uint8_t spare[PLX_BLOCK_SIZE] = {0xff}; /* no superblock, should the read fail */
    struct plx_superblock best = {0}, super;
    struct plx_fault first = {0}, lost = {0};
    unsigned found = 0, slot = 0;
    int error;

    if (device->bytes < (PLX_SUPERBLOCK_SPARE + 1) * PLX_BLOCK_SIZE)
        return plx_fault_set(fault, PLX_ERR_NOT_FOUND, "%s: too small for a store", device->name);
    error = plx_volume_io(device, PLX_IO_READ, 0, blocks, sizeof blocks);
    if (error)
        return plx_fault_set(fault, error, "%s: cannot read the superblock: %s", device->name,
                             plx_error_text(error));
    for (unsigned i = 0; i < PLX_SUPERBLOCK_SLOTS; i++) {
        struct plx_fault why;

        error = plx_format_superblock_decode(blocks[i], &super, &why);
        if (error == PLX_ERR_UNSUPPORTED) /* it may be the newer slot, which would count */
            return plx_fault_set(fault, error, "%s: %s", device->name, why.text);
        if (error) {
            if (!first.code || first.code == PLX_ERR_NOT_FOUND)
                first = why;
        } else if (!found++ || super.generation > best.generation) {
            best = super;
            slot = i;
        }
    }
    error = plx_superblock_read_spare(device, spare, &super, &lost);
    if (!found && first.code == PLX_ERR_NOT_FOUND && may_restore(error))
        return plx_fault_set(fault, error, "%s", lost.text);
    if (!found && !error)
        return plx_fault_set(fault, PLX_ERR_CORRUPT,
                             "%s: the superblocks of store %s were overwritten; when nothing else "
                             "uses this device now, 'parallax store restore-superblock %s' writes "
                             "them again",
                             device->name, super.name,
                             plx_plain_word(device->name, word, sizeof word));
    if (!found)
        return plx_fault_set(fault, first.code, "%s: %s%s", device->name, first.text,
                             first.code != PLX_ERR_CORRUPT ? ""
                             : may_restore(error)
                                 ? "; when the spare superblock can be read again, 'parallax store "
                                   "restore-superblock' rewrites these"
                                 : "; the spare superblock is damaged as well, so only a backup "
                                   "of the volume helps");
    ret_volume->super = best;
    ret_volume->slot = slot;
    ret_volume->mirrored = found == 2 && plx_format_superblock_same(blocks[0], blocks[1]) &&
                           spare_follows(blocks[slot], spare);
    return 0;
}

int plx_superblock_check_known(const struct plx_device *device, uint64_t unknown,
                               struct plx_fault *fault)
{
    return unknown ? plx_fault_set(fault, PLX_ERR_UNSUPPORTED,
                                   "%s: this Parallax may only read the store, which has features "
                                   "of a newer one (%#llx); upgrade this host to write",
                                   device->name, (unsigned long long)unknown)
                   : 0;
}

/* Where on its volume, in bytes, the extents of a span lie. */
static struct plx_registry_span registry_span(const struct plx_superblock *super,
                                              const struct plx_superblock_span *span)
{
    uint64_t extent_bytes = super->extent_blocks << PLX_BLOCK_SHIFT, at = 0;
    uint32_t r = 0;

    while (span->first >= super->range[r].first + super->range[r].extents)
        at += super->range[r++].extents;
    return (struct plx_registry_span){
        .offset = (at + span->first - super->range[r].first) * extent_bytes,
        .bytes = span->extents * extent_bytes,
    };
}

void plx_superblock_info(const struct plx_superblock *super, struct plx_superblock_info *ret_info)
{
    *ret_info = (struct plx_superblock_info){
        .store = super->store,
        .volume = super->volume,
        .identity = super->identity,
        .cluster = super->cluster,
        .volume_index = super->volume_index,
        .volumes = super->volumes,
        .unknown = super->read_compatible & ~PLX_READ_COMPATIBLE_KNOWN,
        .volume_bytes = plx_superblock_extents(super) * super->extent_blocks << PLX_BLOCK_SHIFT,
    };
    memcpy(ret_info->store_name, super->name, sizeof super->name);
    for (uint32_t i = 0; i < super->spans; i++)
        if (super->span[i].kind == PLX_SYSTEM_REGISTRY)
            ret_info->registry[ret_info->registry_spans++] = registry_span(super, &super->span[i]);
}

int plx_superblock_probe(struct plx_device *device, struct plx_superblock_info *ret_info,
                         struct plx_fault *fault)
{
    struct plx_volume volume;
    int error = plx_superblock_read(device, &volume, fault);

    if (!error)
        plx_superblock_info(&volume.super, ret_info);
    return error;
}

/* Both slots of a record or of an extent's first page. */
static int pair_is_used(struct plx_device *device, uint64_t offset, bool *ret_used,
                        struct plx_fault *fault)
{
    uint8_t pair[2 * PLX_BLOCK_SIZE];
    int error = plx_volume_io(device, PLX_IO_READ, offset, pair, sizeof pair);

    if (error)
        return plx_fault_set(fault, error, "%s: cannot be read: %s", device->name,
                             plx_error_text(error));
    *ret_used = pair[0] || memcmp(pair, pair + 1, sizeof pair - 1) != 0;
    return 0;
}

int plx_superblock_was_used(struct plx_device *device, bool *ret_used, struct plx_fault *fault)
{
    struct plx_volume volume;
    int error = plx_superblock_read(device, &volume, fault);
    uint64_t bytes = error ? 0 : volume.super.extent_blocks << PLX_BLOCK_SHIFT;

    *ret_used = false;
    for (uint64_t i = 1; !error && !*ret_used && i < volume.super.range[0].extents &&
                         (i + 1) * bytes <= device->bytes;
         i++)
        error = pair_is_used(device, i * bytes, ret_used, fault);
    for (uint64_t i = 0; !error && !*ret_used && i < volume.super.vdi_slots; i++)
        error =
            pair_is_used(device, (PLX_VDI_TABLE_BLOCK + 2 * i) * PLX_BLOCK_SIZE, ret_used, fault);
    return error;
}

/* Puts one volume into its place, and checks it against the first volume that was read. */
static int place_volume(struct plx_volume *volumes, struct plx_device *device, bool mixed,
                        const struct plx_superblock **known, struct plx_fault *fault)
{
    struct plx_volume volume = {.device = device};
    const struct plx_superblock *super = &volume.super;
    int error = plx_superblock_read(device, &volume, fault);
    uint64_t blocks;

    if (error)
        return error;
    blocks = plx_superblock_extents(super) * super->extent_blocks;
    if (*known && (!plx_uuid_equal(&(*known)->store, &super->store) ||
                   (*known)->extent_blocks != super->extent_blocks))
        return plx_fault_set(
            fault, PLX_ERR_INVALID,
            "%s: is a volume of store %s, but the other volumes named are of store "
            "%s",
            device->name, super->name, (*known)->name);
    if (*known && !mixed && !plx_uuid_equal(&(*known)->identity, &super->identity))
        return plx_fault_set(
            fault, PLX_ERR_INVALID,
            "%s: is of another copy of store %s than the other volumes; name those "
            "of one copy ('parallax store scan' shows what each is), or, when its "
            "import was cut off, do that again",
            device->name, super->name);
    if (volumes[super->volume_index].device)
        return plx_fault_set(fault, PLX_ERR_INVALID, "%s: volume %u was given twice", device->name,
                             super->volume_index);
    if (blocks > device->bytes >> PLX_BLOCK_SHIFT) /* VOLUME-3 */
        return plx_fault_set(fault, PLX_ERR_CORRUPT,
                             "%s: truncated: %llu bytes, the superblock says %llu; restore the "
                             "missing part, or make it that large again to read what is left "
                             "('truncate -s %llu', if it is a file)",
                             device->name, (unsigned long long)device->bytes,
                             (unsigned long long)(blocks << PLX_BLOCK_SHIFT),
                             (unsigned long long)(blocks << PLX_BLOCK_SHIFT));
    volumes[super->volume_index] = volume;
    *known = &volumes[super->volume_index].super;
    return 0;
}

/* Volume 0 counts fewer than were given. One that was used proves that volume 0 went back. */
static int too_many(const struct plx_volume *volumes, unsigned count, unsigned expected,
                    struct plx_fault *fault)
{
    const struct plx_device *first = volumes[0].device;

    for (unsigned i = 0; i < PLX_VOLUMES_MAX; i++) {
        bool used = false;

        if (i < expected || !volumes[i].device ||
            plx_superblock_was_used(volumes[i].device, &used, NULL) || !used)
            continue;
        return plx_fault_set(fault, PLX_ERR_CORRUPT,
                             "%s is in use as volume %u of store %s, but %s does not count it, so "
                             "that one went back to an older state: put the newer one back; "
                             "opening the store without volume %u loses the data on it",
                             volumes[i].device->name, i, volumes[0].super.name, first->name, i);
    }
    return plx_fault_set(fault, PLX_ERR_INVALID,
                         "%s counts %u volume%s of store %s, and %u were given: an earlier "
                         "add-volume was interrupted; leave out the volume that it did not finish",
                         first->name, expected, plx_plural(expected), volumes[0].super.name, count);
}

/* VOLUME-1 */
static int check_count(const struct plx_volume *volumes, unsigned count,
                       const struct plx_superblock *any, struct plx_fault *fault)
{
    unsigned expected = volumes[0].device ? volumes[0].super.volumes : any->volumes;

    if (volumes[0].device && expected < count)
        return too_many(volumes, count, expected, fault);
    if (expected != count)
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "%s: the store has %u volume%s, of which %u %s given; name them all",
                             any->name, expected, plx_plural(expected), count,
                             count == 1 ? "was" : "were");
    for (unsigned i = 0; i < count; i++)
        if (!volumes[i].device)
            return plx_fault_set(fault, PLX_ERR_INVALID,
                                 "%s: volume %u was not given, but one that is no part of the "
                                 "store (yet)",
                                 any->name, i);
    return 0;
}

/* VOLUME-5, for range number r of a volume. */
static bool know_range(struct plx_volume *volume, uint32_t r, const struct plx_extent_range *known)
{
    struct plx_superblock *super = &volume->super;
    struct plx_superblock_range *range = &super->range[r];

    if (r == PLX_RANGES_MAX || (r < super->ranges && range->first != known->first))
        return false;
    if (r == super->ranges) {
        *range = (struct plx_superblock_range){.first = known->first};
        super->incompatible |= PLX_INCOMPATIBLE_RANGES;
        super->ranges++;
    }
    if (range->extents < known->extents) {
        range->extents = known->extents;
        volume->behind = true;
    }
    return plx_superblock_extents(super) <=
           volume->device->bytes / (super->extent_blocks << PLX_BLOCK_SHIFT);
}

/* VOLUME-5. check_count() notices volumes that the registry knows and that were not given. */
static int know_ranges(struct plx_volume *volumes, const struct plx_store_options *options,
                       struct plx_fault *fault)
{
    uint32_t ranges[PLX_VOLUMES_MAX] = {0};

    for (unsigned i = 0; i < options->known_count; i++) {
        const struct plx_extent_range *known = &options->known[i];
        struct plx_volume *volume = &volumes[known->volume];

        if (volumes[0].device && known->volume >= volumes[0].super.volumes) {
            volumes[0].super.volumes = known->volume + 1;
            volumes[0].behind = true;
        }
        if (volume->device && !know_range(volume, ranges[known->volume]++, known))
            return plx_fault_set(fault, PLX_ERR_REGISTRY,
                                 "%s: the registry says that extents %llu to %llu lie there, where "
                                 "there is no room for them: it became smaller, or went back to an "
                                 "older state, or the registry is damaged; put the whole volume "
                                 "back first; only if there is none, 'parallax store "
                                 "rebuild-registry' takes over what the store says",
                                 volume->device->name, (unsigned long long)known->first,
                                 (unsigned long long)(known->first + known->extents - 1));
    }
    return 0;
}

/* VOLUME-7. Another process may have added a volume between the readings of volume 0 and of the
 * others; then volume 0 says so by now. */
static int read_first_again(struct plx_volume *volumes, struct plx_fault *fault)
{
    if (!volumes[0].device)
        return 0;
    for (unsigned i = 1; i < PLX_VOLUMES_MAX; i++)
        if (volumes[i].device && volumes[i].super.volumes > volumes[0].super.volumes)
            return plx_superblock_read(volumes[0].device, &volumes[0], fault);
    return 0;
}

int plx_volumes_read(struct plx_device **devices, unsigned count,
                     const struct plx_store_options *options, struct plx_volume *volumes,
                     struct plx_fault *fault)
{
    const struct plx_superblock *first = NULL;
    int error = 0;

    for (unsigned i = 0; i < count && !error; i++)
        error = place_volume(volumes, devices[i], options->mixed, &first, fault);
    if (!error)
        error = read_first_again(volumes, fault);
    if (!error)
        error = know_ranges(volumes, options, fault);
    for (unsigned i = 0; i < count && !error; i++)
        volumes[i].mirrored &= !volumes[i].behind;
    return error ? error : check_count(volumes, count, first, fault);
}

const char *plx_store_behind(const struct plx_store *store)
{
    for (unsigned i = 0; i < store->info.volumes; i++)
        if (store->volumes[i].behind)
            return store->volumes[i].device->name;
    return NULL;
}

/* VOLUME-7 */
unsigned plx_store_ahead(const struct plx_store *store)
{
    for (unsigned i = 1; i < store->info.volumes; i++)
        if (store->volumes[i].super.volumes > store->info.volumes)
            return i;
    return 0;
}

/* ---- The map ---- */

static int compare_ranges(const void *a, const void *b)
{
    return plx_compare_u64(&((const struct plx_extent_range *)a)->first,
                           &((const struct plx_extent_range *)b)->first);
}

static unsigned collect_ranges(const struct plx_volume *volumes, unsigned count,
                               struct plx_extent_range *ranges)
{
    unsigned found = 0;

    for (unsigned i = 0; i < count; i++) {
        const struct plx_superblock *super = &volumes[i].super;
        uint64_t at = 0;

        for (unsigned r = 0; r < super->ranges; r++) {
            ranges[found++] = (struct plx_extent_range){
                .volume = i,
                .first = super->range[r].first,
                .extents = super->range[r].extents,
                .at = at,
            };
            at += super->range[r].extents;
        }
    }
    qsort(ranges, found, sizeof *ranges, compare_ranges);
    return found;
}

/* VOLUME-2 */
static int check_ranges(const struct plx_volume *volumes, const struct plx_extent_range *ranges,
                        unsigned count, struct plx_fault *fault)
{
    uint64_t limit = PLX_BLOCK_MAX / volumes[0].super.extent_blocks, extent = 0;

    for (unsigned i = 0; i < count; i++) {
        if (ranges[i].first != extent || ranges[i].extents > limit - extent)
            return plx_fault_set(fault, PLX_ERR_CORRUPT, "%s: its place in the store is wrong",
                                 volumes[ranges[i].volume].device->name);
        extent += ranges[i].extents;
    }
    return 0;
}

static void fill_info(const struct plx_volume *volumes, unsigned count,
                      struct plx_store_info *ret_info)
{
    const struct plx_superblock *first = &volumes[0].super;

    *ret_info = (struct plx_store_info){
        .id = first->store,
        .identity = first->identity,
        .format_version = PLX_FORMAT_VERSION,
        .block_size = PLX_BLOCK_SIZE,
        .created_ns = first->created_ns,
        .extent_blocks = first->extent_blocks,
        .segment_blocks = first->segment_blocks,
        .volumes = count,
    };
    memcpy(ret_info->name, first->name, sizeof ret_info->name);
    for (unsigned i = 0; i < count; i++) {
        const struct plx_superblock *super = &volumes[i].super;
        struct plx_volume_info *volume = &ret_info->volume[i];

        volume->id = super->volume;
        snprintf(volume->name, sizeof volume->name, "%s", volumes[i].device->name);
        volume->first_extent = super->range[0].first;
        volume->extents = plx_superblock_extents(super);
        while (plx_superblock_is_system(super, volume->first_extent + volume->system_extents))
            volume->system_extents++;
        ret_info->extents += volume->extents;
        ret_info->vdi_slots += super->vdi_slots;
    }
}

int plx_volumes_room(unsigned count, struct plx_extent_range **ret_room, struct plx_fault *fault)
{
    *ret_room = calloc((size_t)count * PLX_RANGES_MAX, sizeof **ret_room);
    return *ret_room ? 0 : plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");
}

int plx_volumes_map(struct plx_store *store, const struct plx_volume *volumes, unsigned count,
                    struct plx_extent_range **room, struct plx_fault *fault)
{
    unsigned found = collect_ranges(volumes, count, *room);
    int error = check_ranges(volumes, *room, found, fault);

    if (error)
        return error;
    free(store->ranges);
    store->ranges = *room;
    store->range_count = found;
    *room = NULL;
    fill_info(volumes, count, &store->info);
    store->addr_limit = store->info.extents * store->info.extent_blocks;
    return 0;
}

bool plx_store_extent_is_system(const struct plx_store *store, uint64_t number)
{
    for (unsigned i = 0; i < store->info.volumes; i++)
        if (plx_superblock_is_system(&store->volumes[i].super, number))
            return true;
    return false;
}

bool plx_store_range(const struct plx_store *store, unsigned index,
                     struct plx_extent_range *ret_range)
{
    if (index >= store->range_count)
        return false;
    *ret_range = store->ranges[index];
    return true;
}

bool plx_store_place(const struct plx_store *store, uint64_t addr, struct plx_place *ret_place)
{
    uint64_t blocks = store->info.extent_blocks, extent;
    unsigned low = 0, high = store->range_count;
    const struct plx_extent_range *range;

    addr = plx_addr_block(addr);
    extent = addr / blocks;
    if (addr >= store->addr_limit)
        return false;
    while (high - low > 1) { /* VOLUME-2: the last range that begins at or before it */
        unsigned middle = low + (high - low) / 2;

        if (store->ranges[middle].first <= extent)
            low = middle;
        else
            high = middle;
    }
    range = &store->ranges[low];
    *ret_place = (struct plx_place){
        .volume = range->volume,
        .block = range->at * blocks + (addr - range->first * blocks),
        .blocks = (range->first + range->extents) * blocks - addr,
    };
    return true;
}
