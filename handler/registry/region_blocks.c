/* region_blocks.c - the blocks of a region: where it lies, and reading and writing them (REGION-1).
 *
 * plx_region_note() turns an engine error into the fault that people read and passes SQLite's
 * result code on.
 */
#include "engine/loop/volume.h"
#include "registry/region_inside.h"

uint64_t plx_region_space(const struct plx_region *region)
{
    uint64_t space = 0;

    for (unsigned i = 0; i < region->spans; i++)
        space += region->span[i].bytes / 2;
    return space;
}

int plx_region_check(const struct plx_region *region, const char *volume, struct plx_fault *fault)
{
    const struct plx_device *device = region->device;

    PLX_ASSERT(region->spans >= 1 && region->spans <= PLX_REGION_SPANS);
    for (unsigned i = 0; i < region->spans; i++) {
        uint64_t offset = region->span[i].offset, bytes = region->span[i].bytes;

        if (!bytes || bytes % PLX_REGION_UNIT || offset % PAGE)
            return plx_fault_set(fault, PLX_ERR_CORRUPT,
                                 "%.120s: the place of the registry is not valid", volume);
        if (offset > device->bytes || bytes > device->bytes - offset)
            return plx_fault_set(fault, PLX_ERR_CORRUPT,
                                 "%.120s: truncated: %llu bytes, and a part of the registry ends "
                                 "at byte %llu; restore the missing part, or make it at least that "
                                 "large again to read what is left ('truncate -s %llu', if it is a "
                                 "file)",
                                 volume, (unsigned long long)device->bytes,
                                 (unsigned long long)(offset + bytes),
                                 (unsigned long long)(offset + bytes));
    }
    if (plx_region_space(region) < SPACE_MIN)
        return plx_fault_set(fault, PLX_ERR_CORRUPT,
                             "%.120s: the place of the registry is too small", volume);
    return 0;
}

/* ---- Blocks ------------------------------------------------------------------------------ */

int plx_region_note(struct plx_region_vfs *vfs, int result, int code, const char *what,
                    uint64_t page)
{
    if (code)
        plx_fault_set(&vfs->fault,
                      code == PLX_ERR_NOMEM || plx_error_is_full_below(code) ? code
                                                                             : PLX_ERR_REGISTRY,
                      "cannot %s the registry in %.120s (page %llu): %s", what, vfs->volume,
                      (unsigned long long)page, plx_error_text(code));
    return result;
}

/* Reads or writes whole blocks of one part. The transfer is split where the part goes from one span
 * to the next. */
int plx_region_transfer(struct plx_region_vfs *vfs, enum part part, enum plx_io_op op,
                        uint64_t offset, void *buffer, size_t bytes)
{
    const struct plx_region *region = &vfs->region;
    uint64_t begin = 0;
    char *next = buffer;

    PLX_ASSERT(offset % PAGE == 0 && bytes % PAGE == 0 && offset + bytes <= vfs->space);
    for (unsigned i = 0; i < region->spans && bytes; i++) {
        uint64_t half = region->span[i].bytes / 2, here = offset - begin;
        size_t count;
        int code;

        begin += half;
        if (offset >= begin)
            continue;
        count = bytes < half - here ? bytes : half - here;
        code = plx_volume_io(region->device, op,
                             region->span[i].offset + (part == PART_JOURNAL ? half : 0) + here,
                             next, count);
        if (code)
            return code;
        offset += count;
        next += count;
        bytes -= count;
    }
    return 0;
}

int plx_region_read_block(struct plx_region_vfs *vfs, enum part part, uint64_t offset,
                          uint8_t ret_block[PAGE])
{
    int code = plx_region_transfer(vfs, part, PLX_IO_READ, offset, ret_block, PAGE);

    return plx_region_note(vfs, code ? SQLITE_IOERR_READ : SQLITE_OK, code, "read",
                           offset / PAGE + 1);
}

int plx_region_write_blocks(struct plx_region_vfs *vfs, enum part part, uint64_t offset,
                            void *blocks, size_t bytes)
{
    int code;

    if (vfs->region.read_only)
        return SQLITE_READONLY;
    code = plx_region_transfer(vfs, part, PLX_IO_WRITE, offset, blocks, bytes);
    return plx_region_note(vfs, code ? SQLITE_IOERR_WRITE : SQLITE_OK, code, "write",
                           offset / PAGE + 1);
}

int plx_region_flush(struct plx_region_vfs *vfs)
{
    int code = plx_volume_io(vfs->region.device, PLX_IO_FLUSH, 0, NULL, 0);

    return plx_region_note(vfs, code ? SQLITE_IOERR_FSYNC : SQLITE_OK, code, "flush", 0);
}

uint32_t plx_region_word_at(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

void plx_region_put_word(uint8_t *at, uint32_t word)
{
    for (unsigned i = 0; i < 4; i++)
        at[i] = (uint8_t)(word >> (8 * i));
}
