/* region.c - SQLite's file system in a part of a volume.
 *
 * REGION-1  All I/O is by whole blocks of 4 KiB. A page of the database is written at once, what
 *     goes to the journal is gathered until SQLite asks for its sync; both are read as they were
 *     written.
 * REGION-2  The last eight bytes of a page are its stamp: a CRC32C of the others and of the page's
 *     number, and a word that is zero. A page is stamped on its way out and checked on its way in.
 * REGION-3  Nothing is believed that was read without a lock: page 1 may be half written just then.
 * REGION-4  A database whose first page is zero is empty. Any other fills its space, as far as
 *     SQLite is told: its header says how many pages count, and a journal that is rolled back says
 *     how many counted. A size taken from the header would follow a header that is to be rolled
 *     back.
 * REGION-5  The journal exists while its first byte is not zero. To delete or truncate it makes
 *     that byte zero, and so does SQLite itself at a commit (journal_mode=PERSIST).
 * REGION-6  The journal's space holds a copy of each page that the database can have, in one piece.
 *     Its last block is never written and reads as zeros: SQLite looks there for the name of
 *     another journal, and would not roll back if it found one.
 * REGION-7  Nothing is written that may_write() did not allow since the lock was taken; once pages
 *     of the database were written, what completes or undoes that is not asked about any more.
 * REGION-8  A damaged page that is read all the same (salvage) carries a mark, also into the
 *     journal. It is as damaged as before when it is written with that mark.
 * REGION-9  All who have a lock have the same spans: they are looked up with each lock, and change
 *     only under EXCLUSIVE, which nobody gets while a journal is left to be rolled back. A span
 *     that comes makes both parts longer and moves nothing; what it holds is never read before it
 *     was written. Without a lock only the two first blocks matter, which stay where they are.
 * REGION-10  The journal of a transaction that fails is what its changes are undone from, in
 *     SQLite's memory, too: it reads as it was written even where the device refused it, until it
 *     is begun anew, ended or closed. What the same transaction adds behind that is refused.
 * REGION-11  A journal is begun only where the end of the one before is durable. That its first
 *     byte reads as zero does not say so: who ended it may have died before his flush, or that
 *     flush failed. A cut could leave his header there with records of ours, and SQLite, whose
 *     checksum tells them apart, would roll back his transaction up to the first of these: a half
 *     of it. So the end is marked once it is durable, in the same block, and where there is no mark
 *     it is made durable first.
 * Locks: SQLite's five states on three bytes, as its own unix VFS has them. PENDING lets a writer
 *   in when readers follow each other without end.
 * Threads: one at a time for each connection.
 * Crash story: SQLite's. A commit writes the journal, flushes, writes how many records count,
 *   flushes, writes the pages, flushes, makes the journal's header zero, flushes. A cut before the
 *   second flush's end leaves the old contents, one before the last one either.
 */
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/loop/volume.h"
#include "registry/region_inside.h"

/* ---- What SQLite sees -------------------------------------------------------------------- */

static int no_lock(sqlite3_file *file, int level)
{
    return SQLITE_OK;
}

static int no_reserved(sqlite3_file *file, int *ret_reserved)
{
    *ret_reserved = 0;
    return SQLITE_OK;
}

static int no_control(sqlite3_file *file, int what, void *argument)
{
    return SQLITE_NOTFOUND;
}

static int sector_size(sqlite3_file *file)
{
    return PAGE;
}

static int characteristics(sqlite3_file *file)
{
    return 0;
}

static const sqlite3_io_methods database_methods = {
    .iVersion = 1, /* no shared memory: neither WAL nor mapped pages */
    .xClose = plx_region_database_close,
    .xRead = plx_region_database_read,
    .xWrite = plx_region_database_write,
    .xTruncate = plx_region_database_truncate,
    .xSync = plx_region_database_sync,
    .xFileSize = plx_region_database_size,
    .xLock = plx_region_database_lock,
    .xUnlock = plx_region_database_unlock,
    .xCheckReservedLock = plx_region_database_reserved,
    .xFileControl = no_control,
    .xSectorSize = sector_size,
    .xDeviceCharacteristics = characteristics,
};

static const sqlite3_io_methods journal_methods = {
    .iVersion = 1,
    .xClose = plx_region_journal_close,
    .xRead = plx_region_journal_read,
    .xWrite = plx_region_journal_write,
    .xTruncate = plx_region_journal_truncate,
    .xSync = plx_region_journal_sync,
    .xFileSize = plx_region_journal_size,
    .xLock = no_lock,
    .xUnlock = no_lock,
    .xCheckReservedLock = no_reserved,
    .xFileControl = no_control,
    .xSectorSize = sector_size,
    .xDeviceCharacteristics = characteristics,
};

/* Database and journal, nothing else: temp_store=MEMORY keeps the rest, also what statements need
 * for undoing a part of a transaction, in memory. */
static int vfs_open(sqlite3_vfs *base, const char *name, sqlite3_file *file, int flags,
                    int *ret_flags)
{
    struct plx_region_file *opened = (struct plx_region_file *)file;

    opened->base.pMethods = NULL;
    opened->vfs = (struct plx_region_vfs *)base;
    if (flags & SQLITE_OPEN_MAIN_DB)
        opened->base.pMethods = &database_methods;
    else if (flags & SQLITE_OPEN_MAIN_JOURNAL)
        opened->base.pMethods = &journal_methods;
    else
        return SQLITE_CANTOPEN;
    if (ret_flags)
        *ret_flags = flags;
    return SQLITE_OK;
}

static int vfs_delete(sqlite3_vfs *base, const char *name, int sync)
{
    return strcmp(name, JOURNAL) == 0 ? plx_region_journal_end((struct plx_region_vfs *)base)
                                      : SQLITE_IOERR_DELETE_NOENT;
}

static int vfs_access(sqlite3_vfs *base, const char *name, int flags, int *ret_there)
{
    uint8_t block[PAGE];
    int result = SQLITE_OK;

    *ret_there = 0;
    if (strcmp(name, JOURNAL) == 0) {
        result = plx_region_read_block((struct plx_region_vfs *)base, PART_JOURNAL, 0, block);
        *ret_there = !result && block[0]; /* REGION-5 */
    }
    return result ? SQLITE_IOERR_ACCESS : SQLITE_OK;
}

static int vfs_full_name(sqlite3_vfs *base, const char *name, int size, char *ret_name)
{
    sqlite3_snprintf(size, ret_name, "%s", name);
    return SQLITE_OK;
}

static int vfs_randomness(sqlite3_vfs *base, int count, char *ret_bytes)
{
    sqlite3_vfs *system = ((struct plx_region_vfs *)base)->system;

    return system->xRandomness(system, count, ret_bytes);
}

static int vfs_sleep(sqlite3_vfs *base, int microseconds)
{
    sqlite3_vfs *system = ((struct plx_region_vfs *)base)->system;

    return system->xSleep(system, microseconds);
}

static int vfs_time(sqlite3_vfs *base, double *ret_days)
{
    sqlite3_vfs *system = ((struct plx_region_vfs *)base)->system;

    return system->xCurrentTime(system, ret_days);
}

static int vfs_last_error(sqlite3_vfs *base, int size, char *ret_text)
{
    return 0;
}

/* ---- Making one -------------------------------------------------------------------------- */

int plx_region_vfs_new(const struct plx_region *region, const char *volume,
                       struct plx_region_vfs **ret_vfs, struct plx_fault *fault)
{
    static atomic_ulong count;
    struct plx_region_vfs *vfs;
    int code = plx_region_check(region, volume, fault);

    if (code)
        return code;
    vfs = calloc(1, sizeof *vfs);
    if (!vfs)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory opening the registry");
    vfs->region = *region;
    vfs->system = sqlite3_vfs_find(NULL);
    vfs->space = plx_region_space(region);
    snprintf(vfs->volume, sizeof vfs->volume, "%s", volume);
    snprintf(vfs->name, sizeof vfs->name, "parallax-region-%lu", ++count);
    vfs->base = (sqlite3_vfs){
        .iVersion = 1,
        .szOsFile = sizeof(struct plx_region_file),
        .mxPathname = 64,
        .zName = vfs->name,
        .xOpen = vfs_open,
        .xDelete = vfs_delete,
        .xAccess = vfs_access,
        .xFullPathname = vfs_full_name,
        .xRandomness = vfs_randomness,
        .xSleep = vfs_sleep,
        .xCurrentTime = vfs_time,
        .xGetLastError = vfs_last_error,
    };
    if (sqlite3_vfs_register(&vfs->base, 0)) {
        free(vfs);
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory opening the registry");
    }
    *ret_vfs = vfs;
    return 0;
}

void plx_region_vfs_free(struct plx_region_vfs *vfs)
{
    if (!vfs)
        return;
    sqlite3_vfs_unregister(&vfs->base);
    free(vfs);
}

const char *plx_region_vfs_name(const struct plx_region_vfs *vfs)
{
    return vfs->name;
}

/* REGION-6: a header of one sector, and a record for each page. */
uint32_t plx_region_vfs_pages(const struct plx_region_vfs *vfs)
{
    uint64_t pages = (plx_region_journal_space(vfs) - PAGE) / RECORD_BYTES;

    return pages < UINT32_MAX ? (uint32_t)pages : UINT32_MAX;
}

struct plx_fault plx_region_vfs_fault(struct plx_region_vfs *vfs)
{
    struct plx_fault fault = vfs->fault;

    vfs->fault = (struct plx_fault){0};
    return fault;
}

void plx_region_vfs_salvage(struct plx_region_vfs *vfs, bool salvage)
{
    vfs->salvage = salvage;
}

/* The first page decides (REGION-4): as soon as it is zero, a journal that is left counts for
 * nothing. */
int plx_region_blank(const struct plx_region *region, struct plx_fault *fault)
{
    uint8_t zeros[PAGE] = {0};
    int code = plx_region_check(region, region->device->name, fault);

    for (unsigned half = 0; half < 2 && !code; half++) {
        uint64_t offset = region->span[0].offset + half * (region->span[0].bytes / 2);

        code = plx_volume_io(region->device, PLX_IO_WRITE, offset, zeros, PAGE);
        if (!code)
            code = plx_volume_io(region->device, PLX_IO_FLUSH, 0, NULL, 0);
        if (code)
            plx_fault_set(fault, code, "%.120s: cannot make an empty registry: %s",
                          region->device->name, plx_error_text(code));
    }
    return code;
}
