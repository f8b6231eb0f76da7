/* region_locks.c - SQLite's five lock states as locks on bytes of the volume (REGION-7, REGION-9).
 *
 *   state        who may have it               bytes held by its holder
 *   NONE         anybody                       -
 *   SHARED       any number of readers         SHARED shared (PENDING shared while taking it)
 *   RESERVED     one writer, beside readers    and RESERVED exclusive
 *   PENDING      that writer, no new readers   and PENDING exclusive
 *   EXCLUSIVE    that writer alone             and SHARED exclusive
 *
 * A rollback of a dead process's journal goes from SHARED straight to EXCLUSIVE, without RESERVED.
 */
#include "registry/region_inside.h"

static int set_byte(struct plx_region_vfs *vfs, enum lock_byte byte, enum plx_bytelock_mode mode)
{
    struct plx_bytelock *locks = vfs->region.locks;
    int code = locks->ops->set(locks, byte, mode);

    if (code == PLX_ERR_BUSY)
        return SQLITE_BUSY;
    return plx_region_note(vfs, code ? SQLITE_IOERR_LOCK : SQLITE_OK, code, "lock", byte);
}

/* REGION-9. The process that added a span may have died before the superblock that names the span
 * was durable. Flush the superblock now: data that becomes durable in the span later must not
 * outlive its description. */
static int take_spans(struct plx_region_vfs *vfs, const struct plx_region *now)
{
    const struct plx_region *region = &vfs->region;
    bool same = now->spans >= region->spans;
    int code;

    for (unsigned i = 0; same && i < region->spans; i++)
        same = now->span[i].offset == region->span[i].offset &&
               now->span[i].bytes == region->span[i].bytes;
    if (!same) {
        plx_fault_set(&vfs->fault, PLX_ERR_CORRUPT,
                      "%.120s: the registry lies elsewhere than when it was opened", vfs->volume);
        return SQLITE_IOERR_LOCK;
    }
    if (now->spans == region->spans)
        return SQLITE_OK;
    code = plx_region_check(now, vfs->volume, &vfs->fault);
    if (code || plx_region_flush(vfs))
        return SQLITE_IOERR_LOCK;
    vfs->region = *now;
    vfs->space = plx_region_space(now);
    return SQLITE_OK;
}

static int look(struct plx_region_vfs *vfs)
{
    struct plx_region now = vfs->region;

    if (!now.look)
        return SQLITE_OK;
    return now.look(&now, &vfs->fault) ? SQLITE_IOERR_LOCK : take_spans(vfs, &now);
}

static int lock_shared(struct plx_region_vfs *vfs)
{
    int result = set_byte(vfs, BYTE_PENDING, PLX_BYTE_SHARED);

    if (result)
        return result;
    result = set_byte(vfs, BYTE_SHARED, PLX_BYTE_SHARED);
    set_byte(vfs, BYTE_PENDING, PLX_BYTE_UNLOCKED);
    if (result)
        return result;
    result = look(vfs);
    if (result)
        set_byte(vfs, BYTE_SHARED, PLX_BYTE_UNLOCKED);
    else
        vfs->level = SQLITE_LOCK_SHARED;
    vfs->stamps_current = false;
    return result;
}

static int lock_exclusive(struct plx_region_vfs *vfs)
{
    int result = SQLITE_OK;

    if (vfs->level < SQLITE_LOCK_PENDING)
        result = set_byte(vfs, BYTE_PENDING, PLX_BYTE_EXCLUSIVE);
    if (result)
        return result;
    vfs->level = SQLITE_LOCK_PENDING; /* kept if readers are left, so that no new ones come in */
    result = set_byte(vfs, BYTE_SHARED, PLX_BYTE_EXCLUSIVE);
    if (!result)
        vfs->level = SQLITE_LOCK_EXCLUSIVE;
    return result;
}

int plx_region_database_lock(sqlite3_file *file, int level)
{
    struct plx_region_vfs *vfs = ((struct plx_region_file *)file)->vfs;
    int result = SQLITE_OK;

    if (level <= vfs->level)
        return SQLITE_OK;
    if (level == SQLITE_LOCK_SHARED)
        return lock_shared(vfs);
    if (vfs->region.read_only)
        return SQLITE_READONLY;
    /* REGION-7. Both RESERVED (a change) and EXCLUSIVE at once (the rollback of a dead process's
     * journal) come from SHARED. */
    if (vfs->level == SQLITE_LOCK_SHARED) {
        result = plx_region_may_write(vfs, SQLITE_IOERR_LOCK);
        plx_region_stamps_forget(vfs); /* REGION-12: somebody may have rolled back */
    }
    if (result)
        return result;
    if (level == SQLITE_LOCK_EXCLUSIVE)
        return lock_exclusive(vfs);
    result = set_byte(vfs, BYTE_RESERVED, PLX_BYTE_EXCLUSIVE);
    if (!result)
        vfs->level = SQLITE_LOCK_RESERVED;
    return result;
}

int plx_region_database_unlock(sqlite3_file *file, int level)
{
    struct plx_region_vfs *vfs = ((struct plx_region_file *)file)->vfs;
    int result = SQLITE_OK, other;

    if (level >= vfs->level)
        return SQLITE_OK;
    if (vfs->level > SQLITE_LOCK_SHARED) {
        result = set_byte(vfs, BYTE_SHARED, PLX_BYTE_SHARED);
        other = set_byte(vfs, BYTE_PENDING, PLX_BYTE_UNLOCKED);
        result = result ? result : other;
        other = set_byte(vfs, BYTE_RESERVED, PLX_BYTE_UNLOCKED);
        result = result ? result : other;
        vfs->written = false;
        plx_region_stamps_forget(vfs);
    }
    if (level == SQLITE_LOCK_NONE) {
        other = set_byte(vfs, BYTE_SHARED, PLX_BYTE_UNLOCKED);
        result = result ? result : other;
    }
    vfs->level = level;
    return result ? SQLITE_IOERR_UNLOCK : SQLITE_OK;
}

int plx_region_database_reserved(sqlite3_file *file, int *ret_reserved)
{
    struct plx_region_vfs *vfs = ((struct plx_region_file *)file)->vfs;
    struct plx_bytelock *locks = vfs->region.locks;
    bool busy = vfs->level >= SQLITE_LOCK_RESERVED;
    int code = busy ? 0 : locks->ops->probe(locks, BYTE_RESERVED, &busy);

    if (code)
        return plx_region_note(vfs, SQLITE_IOERR_CHECKRESERVEDLOCK, code, "lock", BYTE_RESERVED);
    *ret_reserved = busy;
    return SQLITE_OK;
}

int plx_region_database_close(sqlite3_file *file)
{
    return plx_region_database_unlock(file, SQLITE_LOCK_NONE);
}
