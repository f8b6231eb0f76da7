/* superblock.c - writes superblocks, and zeroes what they are about to count (GROW-1, GROW-2,
 * GROW-5, GROW-6, GROW-8 to GROW-10, GROW-12).
 *
 * A superblock changes in these steps (plx_superblock_write):
 *   1. Both slots are read again and compared with what is remembered (GROW-5).
 *   2. The new state, of the next even generation, goes to the slot that does not count; a flush.
 *      A crash before this is durable leaves the old state, a crash after it the new one.
 *   3. The other slot gets the mirror copy, of the generation before; the spare superblock gets the
 *      new state; a flush. If this fails, plx_grow_settle() repeats all steps in the next call. */
#include <stdlib.h>
#include <string.h>

#include "engine/space/grow_inside.h"

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

/* Whether there is data in the first MiB or the last 64 KiB, as partition tables, file systems and
 * stores have it. The device is large enough to be a volume. */
int plx_grow_holds_data(struct plx_device *device, uint8_t *buffer, bool *ret_holds)
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

/* GROW-8 */
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

/* GROW-1: zeroes the headers of `extents` extents of a volume, beginning with the volume's extent
 * `at`. number: the store's number of the first one if they may have been the store's before
 * (GROW-8), else 0. */
int plx_grow_zero_headers(struct plx_device *device, const struct plx_superblock *super,
                          uint64_t at, uint64_t extents, uint64_t number, uint8_t *buffer)
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

/* GROW-1: zeroes all structures of a volume that is about to join a store. An older superblock goes
 * first, so that an interrupted format leaves no store; its spare goes even before it (GROW-9). */
int plx_grow_zero_volume(struct plx_device *device, const struct plx_superblock *super,
                         uint8_t *buffer)
{
    int error = zero_range(device, PLX_SUPERBLOCK_SPARE * PLX_BLOCK_SIZE, PLX_BLOCK_SIZE, buffer);

    if (!error)
        error = plx_volume_io(device, PLX_IO_FLUSH, 0, NULL, 0);
    if (!error)
        error = zero_range(device, 0, PLX_VDI_TABLE_BLOCK * PLX_BLOCK_SIZE, buffer);
    if (!error)
        error = plx_volume_io(device, PLX_IO_FLUSH, 0, NULL, 0);
    if (!error)
        error = zero_range(device, PLX_VDI_TABLE_BLOCK * PLX_BLOCK_SIZE,
                           2ull * super->vdi_slots * PLX_BLOCK_SIZE, buffer);
    return error ? error
                 : plx_grow_zero_headers(device, super, 1, super->range[0].extents - 1, 0, buffer);
}

static int write_durably(struct plx_device *device, unsigned block, uint8_t *buffer,
                         unsigned copies)
{
    int error = 0;

    for (unsigned i = 0; i < copies && !error; i++)
        error = plx_volume_io(device, PLX_IO_WRITE, (uint64_t)(block + i) * PLX_BLOCK_SIZE, buffer,
                              PLX_BLOCK_SIZE);
    return error ? error : plx_volume_io(device, PLX_IO_FLUSH, 0, NULL, 0);
}

/* GROW-9: the first superblock of a volume. Both slots first, the spare last. */
int plx_superblock_write_first(struct plx_device *device, const struct plx_superblock *super,
                               uint8_t *buffer)
{
    int error;

    plx_format_superblock_encode(super, buffer);
    error = write_durably(device, 0, buffer, PLX_SUPERBLOCK_SLOTS);
    return error ? error : write_durably(device, PLX_SUPERBLOCK_SPARE, buffer, 1);
}

/* Whether a restoring was cut off: one slot says what the spare says, and the other one nothing. */
static bool is_half_restored(struct plx_device *device, const struct plx_volume *volume)
{
    uint8_t block[PLX_BLOCK_SIZE], spare[PLX_BLOCK_SIZE];
    struct plx_superblock super;

    return !volume->mirrored &&
           !plx_volume_io(device, PLX_IO_READ, volume->slot * PLX_BLOCK_SIZE, block,
                          sizeof block) &&
           !plx_superblock_read_spare(device, spare, &super, NULL) &&
           plx_format_superblock_same(block, spare);
}

/* GROW-10: that there is something to restore. */
static int check_lost(struct plx_device *device, struct plx_fault *fault)
{
    struct plx_volume volume;
    int error = plx_superblock_read(device, &volume, fault);

    if (error == PLX_ERR_CORRUPT || (!error && is_half_restored(device, &volume)))
        return 0;
    return error
               ? error
               : plx_fault_set(fault, PLX_ERR_EXISTS,
                               "%s: its superblock can be read: it is volume %u of store %s%s%s%s",
                               device->name, volume.super.volume_index, volume.super.name,
                               volume.mirrored ? "" : "; 'parallax store grow ",
                               volume.mirrored ? "" : volume.super.name,
                               volume.mirrored ? "" : "' writes the copies that are not whole");
}

static int find_lost(struct plx_device *device, uint8_t block[PLX_BLOCK_SIZE],
                     struct plx_superblock *ret_super, struct plx_fault *fault)
{
    uint64_t bytes;
    int error = check_lost(device, fault);

    if (!error)
        error = plx_superblock_read_spare(device, block, ret_super, fault);
    if (error)
        return error;
    bytes = plx_superblock_extents(ret_super) * ret_super->extent_blocks << PLX_BLOCK_SHIFT;
    if (bytes > device->bytes)
        return plx_fault_set(fault, PLX_ERR_CORRUPT,
                             "%s: truncated: %llu bytes, the spare superblock says %llu; restore "
                             "the missing part first, or make it that large again to read what is "
                             "left ('truncate -s %llu', if it is a file)",
                             device->name, (unsigned long long)device->bytes,
                             (unsigned long long)bytes, (unsigned long long)bytes);
    return 0;
}

/* GROW-12. Damage stays: it is no evidence as it is (NUMBERS-5). */
static int mark_number(struct plx_device *device, const struct plx_superblock *super, bool dry_run,
                       bool *ret_lost)
{
    uint8_t block[PLX_BLOCK_SIZE];
    uint64_t number;
    int error = 0;

    *ret_lost = false;
    for (unsigned slot = 0; slot < 2 && super->volume_index && !error; slot++) {
        unsigned at = PLX_NUMBER_BLOCK + slot;

        error =
            plx_volume_io(device, PLX_IO_READ, (uint64_t)at * PLX_BLOCK_SIZE, block, sizeof block);
        if (!error)
            error = plx_format_number_decode(block, &super->store, &number, NULL);
        *ret_lost = *ret_lost || error;
        if (error == PLX_ERR_NOT_FOUND && !dry_run) {
            plx_format_number_encode(&super->store, 0, block);
            error = write_durably(device, at, block, 1);
        } else {
            error = 0;
        }
    }
    return error;
}

int plx_superblock_restore(struct plx_device *device, bool dry_run,
                           struct plx_superblock_info *ret_info, struct plx_fault *fault)
{
    uint8_t block[PLX_BLOCK_SIZE];
    struct plx_superblock super;
    int error = find_lost(device, block, &super, fault);

    if (error)
        return error;
    plx_superblock_info(&super, ret_info);
    error = mark_number(device, &super, dry_run, &ret_info->number_lost);
    for (unsigned slot = 0; slot < PLX_SUPERBLOCK_SLOTS && !dry_run && !error; slot++)
        error = write_durably(device, slot, block, 1);
    return error ? plx_fault_set(fault, error, "%s: cannot write the superblock: %s; try again",
                                 device->name, plx_error_text(error))
                 : 0;
}

/* GROW-6: whatever failed here may have been a flush. */
int plx_grow_flush_failed(struct growth *g, int error)
{
    if (error) {
        g->store->flush_failures++;
        g->store->flush_error = error;
    }
    return error;
}

static int write_block(struct growth *g, const struct plx_volume *volume, unsigned block,
                       uint64_t generation, const struct plx_superblock *super)
{
    struct plx_superblock copy = *super;

    copy.generation = generation;
    plx_format_superblock_encode(&copy, g->buffer);
    return plx_volume_io(volume->device, PLX_IO_WRITE, (uint64_t)block * PLX_BLOCK_SIZE, g->buffer,
                         PLX_BLOCK_SIZE);
}

static int write_slot(struct growth *g, const struct plx_volume *volume, uint64_t generation,
                      const struct plx_superblock *super)
{
    int error = write_block(g, volume, volume->slot ^ 1, generation, super);

    if (!error)
        error = plx_volume_io(volume->device, PLX_IO_FLUSH, 0, NULL, 0);
    return plx_grow_flush_failed(g, error);
}

/* Writes the mirror copy of the slot that counts, and the spare superblock. */
static int write_copies(struct growth *g, const struct plx_volume *volume)
{
    const struct plx_superblock *super = &volume->super;
    int error = write_block(g, volume, volume->slot ^ 1, super->generation - 1, super);

    if (!error)
        error = write_block(g, volume, PLX_SUPERBLOCK_SPARE, super->generation, super);
    if (!error)
        error = plx_volume_io(volume->device, PLX_IO_FLUSH, 0, NULL, 0);
    return plx_grow_flush_failed(g, error);
}

/* GROW-5 */
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

/* GROW-2 */
int plx_superblock_write(struct growth *g, struct plx_volume *volume,
                         const struct plx_superblock *super)
{
    uint64_t generation = plx_generation_next(volume->super.generation);
    int error = check_unchanged(g, volume);

    if (error)
        return error;
    if (generation > PLX_COUNTER_MAX) /* no program would read it */
        return plx_fault_set(g->fault, PLX_ERR_CORRUPT,
                             "%s: its superblock has an impossible generation",
                             volume->device->name);
    volume->attempted = generation;
    error = write_slot(g, volume, generation, super);
    if (error)
        return plx_fault_set(g->fault, error, "%s: cannot write the superblock: %s; try again",
                             volume->device->name, plx_error_text(error));
    volume->super = *super;
    volume->super.generation = generation;
    volume->behind = false;
    volume->slot ^= 1;
    volume->mirrored = write_copies(g, volume) == 0;
    return 0;
}

/* Finishes what an interrupted call left: mirror copies and spares (GROW-2), and volume counts that
 * are too low (GROW-3). */
int plx_grow_settle(struct growth *g)
{
    uint32_t count = g->store->info.volumes;
    int error = 0;

    for (unsigned i = 0; i < count && !error; i++) {
        struct plx_volume *volume = &g->store->volumes[i];
        struct plx_superblock super = volume->super;

        super.volumes = count;
        if (!volume->mirrored || volume->super.volumes != count)
            error = plx_superblock_write(g, volume, &super);
    }
    return error;
}
