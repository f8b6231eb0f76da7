/* lock.c - the right to write a VDI: acquired, released, taken over.
 *
 * Life of a lock (columns owner and epoch of a row of vdis):
 *
 *   1 free     owner NULL. plx_registry_vdi_lock() moves it on and raises the epoch
 *   2 locked   owner is an instance. plx_registry_vdi_closed() and _unlock() lead back to 1
 *   3 left     the holder has died: the row looks as in 2. plx_registry_vdi_takeover() gives it to
 *              another instance and raises the epoch: 2 again
 *
 * LOCK-1  A VDI has at most one holder, an instance, and every new holder raises the epoch (INV-5).
 *     So owner and epoch together name one period of holding, and an old holder's statements match
 *     no row.
 * LOCK-2  A lock ends when its holder releases it, or by a takeover that names holder and epoch.
 *     Nothing here knows time or liveness: the caller proves that the holder is dead (instance.c)
 *     or fenced.
 * LOCK-3  A call whose answer was lost may be repeated: a statement accepts a row that its own
 *     request_id has changed already, and changes it no further.
 * Threads: as registry.c.
 * Crash story: each call is one transaction. A holder's crash leaves the lock in place.
 */
#include "registry/lock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "registry/instance.h"

static void read_epoch(void *item, const struct plx_sql_value *columns)
{
    *(uint64_t *)item = (uint64_t)columns[0].number;
}

static const struct plx_sql_shape epoch_shape = {sizeof(uint64_t), read_epoch};

struct holder {
    char name[81], role[16], host[PLX_HOST_NAME_MAX + 1];
    int64_t pid;
    bool deleted;
    uint64_t owner, epoch;
};

static void read_holder(void *item, const struct plx_sql_value *columns)
{
    struct holder *holder = item;

    plx_sql_copy(holder->name, sizeof holder->name, &columns[0]);
    holder->deleted = columns[1].number != 0;
    holder->owner = (uint64_t)columns[2].number;
    holder->epoch = (uint64_t)columns[3].number;
    plx_sql_copy(holder->role, sizeof holder->role, &columns[4]);
    holder->pid = columns[5].number;
    plx_sql_copy(holder->host, sizeof holder->host, &columns[6]);
}

static const struct plx_sql_shape holder_shape = {sizeof(struct holder), read_holder};

static int get_holder(struct plx_registry *reg, const char *vdi, struct holder *ret_holder)
{
    static const char get[] =
        "SELECT v.name, v.state = 'deleted', coalesce(v.owner, 0), v.epoch, coalesce(i.role, ''),"
        " coalesce(i.pid, 0), coalesce(h.name, 'unknown') FROM vdis v"
        " LEFT JOIN instances i ON i.id = v.owner LEFT JOIN hosts h ON h.uuid = i.host"
        " WHERE v.id = ?1";
    struct plx_sql statement = SQL(get, SQL_TEXT(vdi));
    int code = plx_sql_get(reg, &statement, &holder_shape, ret_holder);

    if (code == PLX_ERR_NOT_FOUND)
        plx_sql_fail(reg, code, "there is no VDI %.40s", vdi);
    return code;
}

int plx_lock_explain(struct plx_registry *reg, const struct plx_registry_lock *lock, int refused)
{
    struct holder holder;
    int code = get_holder(reg, lock->vdi, &holder);

    if (code)
        return code;
    if (holder.owner == lock->instance && holder.epoch == lock->epoch)
        return plx_sql_fail(reg, refused, "%s: the registry refused the change",
                            plx_sql_named(reg, holder.name));
    if (!holder.owner)
        return plx_sql_fail(reg, PLX_ERR_FENCED, "the lock of %s was given up (epoch %llu)",
                            plx_sql_named(reg, holder.name), (unsigned long long)holder.epoch);
    return plx_sql_fail(reg, PLX_ERR_FENCED,
                        "%s now belongs to %s (pid %lld) on host %s, "
                        "epoch %llu",
                        plx_sql_named(reg, holder.name), plx_instance_kind(holder.role),
                        (long long)holder.pid, holder.host, (unsigned long long)holder.epoch);
}

int plx_lock_change(struct plx_registry *reg, const struct plx_registry_lock *lock, int refused,
                    const struct plx_sql *batch, size_t count)
{
    int code = plx_sql_change(reg, batch, count, NULL, NULL);

    return code > 0 ? plx_lock_explain(reg, lock, refused) : code;
}

/* The epoch of a lock that a call got, which its request_id proves. */
static const char locked[] =
    "SELECT epoch FROM vdis WHERE id = ?1 AND owner = ?2 AND request_id = ?3";

int plx_registry_vdi_lock(struct plx_registry *reg, const char *id, uint64_t instance,
                          struct plx_registry_lock *ret_lock)
{
    static const char lock[] = /* LOCK-1, LOCK-3 */
        "UPDATE vdis SET owner = ?2, epoch = epoch + (owner IS NULL), request_id = ?3"
        " WHERE id = ?1 AND state = 'live'"
        " AND (owner IS NULL OR (owner = ?2 AND request_id = ?3)) RETURNING epoch";
    uint64_t request = plx_id_random();
    struct plx_sql batch[] = {
        SQL_MUST(lock, SQL_TEXT(id), SQL_INT(instance), SQL_INT(request)),
        SQL_EVENT_VDI(reg, "vdi lock", id),
        SQL_MUST(locked, SQL_TEXT(id), SQL_INT(instance), SQL_INT(request)),
    };
    struct holder holder;
    uint64_t epoch;
    int code = plx_sql_change(reg, batch, SQL_COUNT(batch), &epoch_shape, &epoch);

    if (!code) {
        snprintf(ret_lock->vdi, sizeof ret_lock->vdi, "%s", id);
        ret_lock->instance = instance;
        ret_lock->epoch = epoch;
        return 0;
    }
    if (code == PLX_ERR_BUSY) /* foreign key: no such instance */
        return plx_sql_fail(reg, PLX_ERR_NOT_FOUND, "instance %llu is not registered",
                            (unsigned long long)instance);
    if (code > 0)
        code = get_holder(reg, id, &holder);
    if (code)
        return code;
    if (holder.deleted)
        return plx_sql_fail(reg, PLX_ERR_NOT_FOUND, "%s was deleted",
                            plx_sql_named(reg, holder.name));
    if (!holder.owner)
        return plx_sql_fail(reg, PLX_ERR_BUSY, "%s was in use until now; try again",
                            plx_sql_named(reg, holder.name));
    return plx_sql_fail(reg, PLX_ERR_BUSY, "%s is in use by %s (pid %lld) on host %s",
                        plx_sql_named(reg, holder.name), plx_instance_kind(holder.role),
                        (long long)holder.pid, holder.host);
}

int plx_registry_vdi_closed(struct plx_registry *reg, const struct plx_registry_lock *lock,
                            const struct plx_registry_written *written,
                            const struct plx_registry_extent *extents, size_t count)
{
    static const char unlock[] =
        "UPDATE vdis SET owner = NULL, written_epoch = iif(?5, ?4, written_epoch),"
        " written_state = iif(?5, ?5, written_state)"
        " WHERE id = ?1 AND owner = ?2 AND epoch = ?3 RETURNING id";
    static const char states[] =
        "UPDATE extents SET states = ?4 WHERE no = ?3 AND owner = ?2 AND states < ?4"
        " AND store = (SELECT store FROM vdis WHERE id = ?1)";
    const struct plx_sql begin[] = {
        SQL_MUST(unlock, SQL_LOCK(lock), SQL_INT(written ? written->epoch : 0),
                 SQL_INT(written ? written->state : 0)),
        SQL_EVENT_VDI(reg, "vdi unlock", lock->vdi),
    };
    struct plx_sql_value(*args)[4] = calloc(count + 1, sizeof *args);
    struct plx_sql *batch = calloc(count + SQL_COUNT(begin), sizeof *batch);
    int code = PLX_ERR_NOMEM;

    if (args && batch) {
        memcpy(batch, begin, sizeof begin);
        for (size_t i = 0; i < count; i++) {
            const struct plx_sql_value row[] = {SQL_TEXT(lock->vdi), SQL_INT(lock->instance),
                                                SQL_INT(extents[i].no), SQL_INT(extents[i].states)};

            memcpy(args[i], row, sizeof row);
            batch[SQL_COUNT(begin) + i] =
                (struct plx_sql){.text = states, .count = 4, .args = args[i]};
        }
        code = plx_lock_change(reg, lock, PLX_ERR_REGISTRY, batch, count + SQL_COUNT(begin));
    } else {
        plx_sql_fail(reg, code, "out of memory changing the registry");
    }
    free(args);
    free(batch);
    return code;
}

int plx_registry_vdi_unlock(struct plx_registry *reg, const struct plx_registry_lock *lock,
                            const struct plx_registry_written *written)
{
    return plx_registry_vdi_closed(reg, lock, written, NULL, 0);
}

int plx_registry_vdi_accept(struct plx_registry *reg, const char *id, uint64_t instance,
                            const struct plx_registry_written *written, uint64_t newest)
{
    static const char accept[] = "UPDATE vdis SET written_epoch = ?3, written_state = ?4"
                                 " WHERE id = ?1 AND (owner IS NULL OR owner = ?2) RETURNING id";
    static const char drop[] = "DELETE FROM labels WHERE vdi = ?1 AND seq > ?2";
    static const char keep[] =
        "DELETE FROM garbage WHERE store = (SELECT store FROM vdis WHERE id = ?1)";
    struct plx_sql batch[] = {
        SQL_MUST(accept, SQL_TEXT(id), SQL_INT(instance), SQL_INT(written->epoch),
                 SQL_INT(written->state)),
        SQL(drop, SQL_TEXT(id), SQL_INT(newest)),
        SQL(keep, SQL_TEXT(id)),
        SQL_EVENT_VDI(reg, "vdi accept", id),
    };
    int code = plx_sql_change(reg, batch, SQL_COUNT(batch), NULL, NULL);

    return code > 0 ? plx_sql_fail(reg, PLX_ERR_BUSY, "the virtual disk is in use, or gone") : code;
}

int plx_registry_vdi_takeover(struct plx_registry *reg, const struct plx_registry_lock *held,
                              uint64_t instance, struct plx_registry_lock *ret_lock)
{
    static const char take[] = /* LOCK-2 */
        "UPDATE vdis SET owner = ?4, epoch = ?3 + 1, request_id = ?5 WHERE id = ?1"
        " AND ((owner = ?2 AND epoch = ?3) OR (owner = ?4 AND request_id = ?5)) RETURNING epoch";
    uint64_t request = plx_id_random();
    struct plx_sql batch[] = {
        SQL_MUST(take, SQL_LOCK(held), SQL_INT(instance), SQL_INT(request)),
        SQL_EVENT_VDI(reg, "vdi takeover", held->vdi),
        SQL_MUST(locked, SQL_TEXT(held->vdi), SQL_INT(instance), SQL_INT(request)),
    };
    uint64_t epoch;
    int code = plx_sql_change(reg, batch, SQL_COUNT(batch), &epoch_shape, &epoch);

    if (code == PLX_ERR_BUSY) /* foreign key: no such instance */
        return plx_sql_fail(reg, PLX_ERR_NOT_FOUND, "instance %llu is not registered",
                            (unsigned long long)instance);
    if (code > 0)
        code = plx_lock_explain(reg, held, PLX_ERR_REGISTRY);
    if (code)
        return code;
    snprintf(ret_lock->vdi, sizeof ret_lock->vdi, "%s", held->vdi);
    ret_lock->instance = instance;
    ret_lock->epoch = epoch;
    return 0;
}
