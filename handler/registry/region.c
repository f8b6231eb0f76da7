/* region.c - SQLite's file system in a part of a volume.
 *
 * REGION-1  All I/O is in whole blocks of 4 KiB. A database page is written at once. Journal bytes
 *     are gathered in memory until SQLite syncs the journal, or until the buffer is full. Reads
 *     return what was written last, gathered bytes included.
 * REGION-2  The last eight bytes of a page are its stamp: a CRC32C of the rest of the page and of
 *     the page's number, and a word that is zero. Every write computes the stamp and every read
 *     checks it, so neither a damaged page nor a page at the wrong place is believed.
 * REGION-3  Without a lock no page contents are returned. A writer may be in the middle of writing
 *     page 1, and SQLite would believe the half it sees.
 * REGION-4  A database whose first page is zero is empty. Only who makes one may find it so
 *     (`made`): to everybody else it is damage, and neither written over nor its journal deleted.
 *     For any other database SQLite is told that the file fills the whole space. SQLite finds the
 *     number of pages that count in the database header, and the number before a transaction in
 *     its journal. A file size taken from the header would be wrong while that header is itself to
 *     be rolled back.
 * REGION-5  The journal exists while its first byte is not zero. Deleting or truncating the journal
 *     makes that byte zero. So does SQLite at each commit (journal_mode=PERSIST).
 * REGION-6  The journal has room for a copy of every page that the database can have, so no
 *     transaction outgrows it. The last block of the journal is never written and reads as zeros:
 *     SQLite looks there for the name of a super-journal, and would not roll back if it found one.
 * REGION-7  may_write() is asked under each write lock before anything is written. Once database
 *     pages were written, it is not asked again until the lock ends: the writes that complete or
 *     undo the transaction must not be refused half way.
 * REGION-8  While `salvage` is set, a damaged page can be read, and its stamp carries a mark. The
 *     mark travels with the page into the journal. When a marked page is written back, by a
 *     rollback, it gets a wrong checksum again. So salvage never makes a damaged page look sound.
 * REGION-9  All connections that hold a lock see the same spans. Each looks the spans up after it
 *     takes SHARED. Spans change only under EXCLUSIVE, and no connection gets EXCLUSIVE for that
 *     while a journal is left to be rolled back. A new span makes both parts longer and moves
 *     nothing, and nothing in it is read before it was written. A connection without a lock reads
 *     only the first block of each part, and those never move.
 * REGION-10  While a transaction is open, the journal reads as SQLite wrote it, even where the
 *     device refused the write. SQLite undoes a failed transaction from the journal, including the
 *     pages in its own cache. Once a write was refused, further writes of that transaction fail,
 *     until SQLite begins, ends or closes the journal.
 * REGION-11  A new journal begins only when the end of the previous one is durable. A first byte
 *     that reads as zero is no proof: the process that ended the journal may have died before its
 *     flush, or the flush may have failed. After a power cut the old header could then come back in
 *     front of records of the new journal. SQLite would roll back with the old records that are
 *     left, and stop at the first new one, whose checksum does not fit the old header: half of a
 *     transaction would be undone. Therefore the end is marked (word ENDED in the journal's first
 *     block) once it is durable. Where the mark is missing, the next writer makes the end durable
 *     before it begins.
 * REGION-12  A page whose stamp is not that of the page that was written last is not believed,
 *     however whole it is: the device has lost a write. The stamps of all pages stand in a table
 *     behind the pages (region_stamps.c), which each commit and each rollback makes durable
 *     together with the pages. A rollback does not compare pages with the table, so a wrong table
 *     cannot stop it. It writes the stamps of the pages that it restores. A page whose stamp is not
 *     known is believed. What is not noticed are a lost write of the journal, and a page that was
 *     lost together with its block of the table.
 * Locks: SQLite's five lock states on three bytes of the volume, as in SQLite's unix VFS. PENDING
 *   stops new readers, so that a writer gets in although readers follow each other without end.
 * Threads: one at a time for each connection.
 * Crash story: SQLite's rollback journal. What a power cut leaves depends on the step it falls in:
 *
 *   step of a commit                                     a cut before its flush is done leaves
 *   1 the journal's records are written and flushed      the old contents
 *   2 the magic and the record count, flushed            the old contents
 *   3 the database pages and the table of their stamps
 *     are written and flushed                            the old contents, by rollback
 *   4 the journal's header is made zero and flushed      the old contents, or the new ones
 *   5 the mark of REGION-11 is written, not flushed      the new contents
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

/* SQLite opens the database and its journal here and nothing else (SQLITE-5). temp_store=MEMORY
 * keeps temporary tables and statement journals in memory. */
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

static atomic_ulong vfs_count; /* so many had a name */

int plx_region_vfs_new(const struct plx_region *region, const char *volume,
                       struct plx_region_vfs **ret_vfs, struct plx_fault *fault)
{
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
    snprintf(vfs->name, sizeof vfs->name, "parallax-region-%lu", ++vfs_count);
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
    free(vfs->stamps);
    free(vfs);
}

const char *plx_region_vfs_name(const struct plx_region_vfs *vfs)
{
    return vfs->name;
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

/* The first page decides (REGION-4). As soon as it is durably zero, SQLite ignores and deletes a
 * leftover journal: so the database goes first and the journal second. */
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
