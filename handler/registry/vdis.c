/* vdis.c - virtual disks and their labels.
 *
 * VDIS-1  A slot belongs to one VDI, live or deleted, until the VDI is purged. Its record stays in
 *     use until then: clones and the freeing of blocks need it.
 * VDIS-2  A name belongs to at most one live VDI of a store. Deleted VDIs may share names.
 * VDIS-3  What a VDI's record or log says as well (size, name, state, labels) changes only for the
 *     holder of its lock. The statement compares owner and epoch, so registry and store cannot be
 *     changed by two processes.
 * VDIS-4  A slot whose record could not be read (lost.h) is given to no new VDI: that record must
 *     stay as it is until the operator gives it up.
 * VDIS-5  A disk whose snapshot is held keeps its name: the reader was given that name, and may
 *     look it up again.
 * Threads: as registry.c.
 * Crash story: the registry and the store change one after the other. A crash in between leaves the
 *   VDI locked by a dead instance. The instance that takes it over compares both.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "registry/lock.h"
#include "registry/sql.h"

#define VDI_COLUMNS                                                                                \
    "id, store, slot, name, size_bytes, sector_size, coalesce(owner, 0), epoch,"                   \
    " state = 'deleted', coalesce(parent, ''), parent_seq, created_ns, written_epoch, "            \
    "written_state"

static void read_vdi(void *item, const struct plx_sql_value *columns)
{
    struct plx_registry_vdi *vdi = item;

    plx_sql_copy(vdi->id, sizeof vdi->id, &columns[0]);
    vdi->store = columns[1].number;
    vdi->slot = columns[2].number >= 0 && columns[2].number < UINT32_MAX
                    ? (uint32_t)columns[2].number
                    : UINT32_MAX; /* no store has that */
    plx_sql_copy(vdi->name, sizeof vdi->name, &columns[3]);
    vdi->size_bytes = (uint64_t)columns[4].number;
    vdi->sector_size = (uint32_t)columns[5].number;
    vdi->owner = (uint64_t)columns[6].number;
    vdi->epoch = (uint64_t)columns[7].number;
    vdi->deleted = columns[8].number != 0;
    plx_sql_copy(vdi->parent, sizeof vdi->parent, &columns[9]);
    vdi->parent_seq = (uint64_t)columns[10].number;
    vdi->created_ns = (uint64_t)columns[11].number;
    vdi->written.epoch = (uint64_t)columns[12].number;
    vdi->written.state = (uint64_t)columns[13].number;
}

static const struct plx_sql_shape vdi_shape = {sizeof(struct plx_registry_vdi), read_vdi};

/* ---- Making ------------------------------------------------------------------------------ */

static int check_vdi(struct plx_registry *reg, const struct plx_registry_vdi *vdi)
{
    char why[160];
    int code = plx_name_check("vdi", vdi->name, why, sizeof why);

    if (code)
        return plx_sql_fail(reg, code, "%s", why);
    if (!plx_uuid_parse(vdi->id, NULL) || (vdi->parent[0] && !plx_uuid_parse(vdi->parent, NULL)))
        return plx_sql_fail(reg, PLX_ERR_INVALID,
                            "%s: its UUID or its parent's is not "
                            "valid",
                            plx_sql_named(reg, vdi->name));
    if (!vdi->size_bytes || vdi->size_bytes > PLX_VDI_SIZE_MAX)
        return plx_sql_fail(reg, PLX_ERR_INVALID,
                            "%s: its size must be between 1 byte "
                            "and 256 TiB",
                            plx_sql_named(reg, vdi->name));
    if (vdi->sector_size != 512 && vdi->sector_size != 4096)
        return plx_sql_fail(reg, PLX_ERR_INVALID,
                            "%s: its sector size must be 512 or "
                            "4096",
                            plx_sql_named(reg, vdi->name));
    return 0;
}

/* VDIS-4: the lowest free slot. It is 0, or follows a slot that a VDI or a lost record has. */
#define IS_FREE(slot)                                                                              \
    " NOT EXISTS (SELECT 1 FROM vdis WHERE store = ?2 AND vdis.slot = " slot ")"                   \
    " AND NOT EXISTS (SELECT 1 FROM lost WHERE store = ?2 AND lost.slot = " slot ")"
#define FREE_BEHIND(table)                                                                         \
    " UNION ALL SELECT slot FROM (SELECT p.slot + 1 AS slot FROM " table " p WHERE p.store = ?2"   \
    " AND" IS_FREE("p.slot + 1") " ORDER BY p.slot LIMIT 1)"
#define FREE_SLOT                                                                                  \
    "SELECT 0 AS slot WHERE" IS_FREE("0") FREE_BEHIND("vdis")                                      \
        FREE_BEHIND("lost") " ORDER BY slot LIMIT 1"

int plx_registry_vdi_create(struct plx_registry *reg, const struct plx_registry_vdi *vdi,
                            uint32_t slots, struct plx_registry_vdi *ret_vdi)
{
    static const char insert[] =
        "INSERT INTO vdis (id, store, slot, name, size_bytes, sector_size, owner, epoch, parent,"
        "  parent_seq, created_ns, request_id)"
        " SELECT ?1, ?2, slot, ?3, ?4, ?5, ?6, ?6 IS NOT NULL, ?7, ?8, ?9, ?10 FROM (" FREE_SLOT
        ") WHERE slot < ?11 RETURNING id";
    static const char created[] =
        "SELECT " VDI_COLUMNS " FROM vdis WHERE id = ?1 AND request_id = ?2";
    uint64_t request = plx_id_random();
    struct plx_sql batch[] = {
        SQL_MUST(insert, SQL_TEXT(vdi->id), SQL_INT(vdi->store), SQL_TEXT(vdi->name),
                 SQL_INT(vdi->size_bytes), SQL_INT(vdi->sector_size), SQL_ID(vdi->owner),
                 SQL_OPT(vdi->parent), SQL_INT(vdi->parent_seq),
                 SQL_INT(vdi->created_ns ? vdi->created_ns : plx_sql_now()), SQL_INT(request),
                 SQL_INT(slots)),
        SQL_EVENT_VDI(reg, "vdi create", vdi->id),
        SQL_MUST(created, SQL_TEXT(vdi->id), SQL_INT(request)),
    };
    int code = check_vdi(reg, vdi);

    if (!code)
        code = plx_registry_has_room(reg);
    if (code)
        return code;
    code = plx_sql_change(reg, batch, SQL_COUNT(batch), &vdi_shape, ret_vdi);
    if (code > 0)
        return plx_sql_fail(reg, PLX_ERR_NOSPACE,
                            "all %u places that the store has for virtual disks are taken; "
                            "'parallax gc' frees those of deleted ones, and 'parallax store "
                            "add-volume' brings more, which 'store grow' does not",
                            slots);
    if (code == PLX_ERR_EXISTS) /* VDIS-2: a unique index */
        return plx_sql_fail(reg, code, "%s exists already", plx_sql_named(reg, vdi->name));
    if (code == PLX_ERR_BUSY)
        return plx_sql_fail(reg, PLX_ERR_NOT_FOUND,
                            "%s: its store or the locking "
                            "instance is not in the registry (any more)",
                            plx_sql_named(reg, vdi->name));
    return code;
}

int plx_registry_import_vdis(struct plx_registry *reg, const struct plx_registry_vdi *list,
                             size_t count)
{
    static const char put[] =
        "INSERT INTO vdis (id, store, slot, name, size_bytes, sector_size, owner, epoch, parent,"
        "  parent_seq, created_ns, state, written_epoch, written_state)"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)"
        " ON CONFLICT (id) DO UPDATE SET slot = excluded.slot, name = excluded.name,"
        "  size_bytes = excluded.size_bytes, sector_size = excluded.sector_size,"
        "  owner = excluded.owner, epoch = max(epoch, excluded.epoch), parent = excluded.parent,"
        "  parent_seq = excluded.parent_seq, created_ns = excluded.created_ns,"
        "  state = excluded.state, written_epoch = excluded.written_epoch,"
        "  written_state = excluded.written_state";
    int code = 0;

    for (size_t i = 0; i < count && !code; i++) {
        const struct plx_registry_vdi *vdi = &list[i];
        struct plx_sql batch[] = {
            SQL(put, SQL_TEXT(vdi->id), SQL_INT(vdi->store), SQL_INT(vdi->slot),
                SQL_TEXT(vdi->name), SQL_INT(vdi->size_bytes), SQL_INT(vdi->sector_size),
                SQL_ID(vdi->owner), SQL_INT(vdi->epoch), SQL_OPT(vdi->parent),
                SQL_INT(vdi->parent_seq), SQL_INT(vdi->created_ns),
                SQL_TEXT(vdi->deleted ? "deleted" : "live"), SQL_INT(vdi->written.epoch),
                SQL_INT(vdi->written.state)),
            SQL_EVENT_VDI(reg, "vdi import", vdi->id),
        };

        code = check_vdi(reg, vdi);
        if (!code)
            code = plx_sql_change(reg, batch, SQL_COUNT(batch), NULL, NULL);
        if (code == PLX_ERR_EXISTS)
            plx_sql_fail(reg, code, "%s: its name or slot %u is taken",
                         plx_sql_named(reg, vdi->name), vdi->slot);
        else if (code == PLX_ERR_BUSY)
            code = plx_sql_fail(reg, PLX_ERR_NOT_FOUND,
                                "%s: its owner was not imported "
                                "before",
                                plx_sql_named(reg, vdi->name));
    }
    return code;
}

/* ---- Looking ----------------------------------------------------------------------------- */

static void read_doubt(void *item, const struct plx_sql_value *columns)
{
    struct plx_registry_store *store = item;

    plx_sql_copy(store->doubt, sizeof store->doubt, &columns[0]);
}

/* An older registry may lack a disk that the store has. */
static int fail_missing(struct plx_registry *reg, int64_t store, const char *name)
{
    static const char get[] = "SELECT doubt FROM store WHERE id = ?1 AND doubt IS NOT NULL";
    static const struct plx_sql_shape shape = {sizeof(struct plx_registry_store), read_doubt};
    struct plx_sql statement = SQL(get, SQL_INT(store));
    struct plx_registry_store row = {0};
    const char *kind = reg->store[0] ? "virtual disk " : "";

    if (!plx_sql_get(reg, &statement, &shape, &row))
        return plx_sql_fail(reg, PLX_ERR_NOT_FOUND,
                            "the registry has no %s%s, and the store is in doubt: %.300s%s", kind,
                            plx_sql_named(reg, name), row.doubt, plx_registry_doubt_advice(&row));
    return plx_sql_fail(reg, PLX_ERR_NOT_FOUND, "there is no %s%s; 'parallax vdi list' shows them",
                        kind, plx_sql_named(reg, name));
}

int plx_registry_vdi_get(struct plx_registry *reg, int64_t store, const char *name,
                         struct plx_registry_vdi *ret_vdi)
{
    static const char get[] = "SELECT " VDI_COLUMNS " FROM vdis"
                              " WHERE store = ?1 AND name = ?2 AND state = 'live'";
    struct plx_sql statement = SQL(get, SQL_INT(store), SQL_TEXT(name));
    int code = plx_sql_get(reg, &statement, &vdi_shape, ret_vdi);

    return code == PLX_ERR_NOT_FOUND ? fail_missing(reg, store, name) : code;
}

int plx_registry_vdi_get_by_id(struct plx_registry *reg, const char *id,
                               struct plx_registry_vdi *ret_vdi)
{
    static const char get[] = "SELECT " VDI_COLUMNS " FROM vdis WHERE id = ?1";
    struct plx_sql statement = SQL(get, SQL_TEXT(id));
    int code = plx_sql_get(reg, &statement, &vdi_shape, ret_vdi);

    if (code == PLX_ERR_NOT_FOUND)
        plx_sql_fail(reg, code, "there is no VDI %.40s", id);
    return code;
}

int plx_registry_vdi_list(struct plx_registry *reg, int64_t store, bool deleted, const char *after,
                          size_t limit, struct plx_registry_vdi **ret_list, size_t *ret_count)
{
    static const char live[] =
        "SELECT " VDI_COLUMNS " FROM vdis WHERE store = ?1 AND state = 'live' AND name > ?2"
        " ORDER BY name LIMIT ?3";
    /* Deleted VDIs may share a name (VDIS-2), and the next call begins behind a name. So a list
     * ends with the last row of a name, even where that exceeds the limit. */
    static const char dead[] =
        "SELECT " VDI_COLUMNS " FROM vdis WHERE store = ?1 AND state = 'deleted' AND name > ?2"
        " AND name <= coalesce((SELECT name FROM vdis WHERE store = ?1 AND state = 'deleted'"
        "  AND name > ?2 ORDER BY name LIMIT 1 OFFSET ?3 - 1), x'') ORDER BY name, slot";
    struct plx_sql statement =
        SQL(deleted ? dead : live, SQL_INT(store), SQL_TEXT(after ? after : ""),
            SQL_INT(limit && limit < INT64_MAX ? limit : INT64_MAX));

    return plx_sql_list(reg, &statement, &vdi_shape, (void **)ret_list, ret_count);
}

/* HOLDS-9. The trigger in schema/0008_origins.sql has the same condition. */
int plx_registry_vdi_strays(struct plx_registry *reg, int64_t store,
                            struct plx_registry_vdi **ret_list, size_t *ret_count)
{
    static const char list[] =
        "SELECT " VDI_COLUMNS " FROM vdis c WHERE store = ?1 AND parent IS NOT NULL"
        " AND NOT EXISTS (SELECT 1 FROM vdis o WHERE o.id = c.parent)"
        " AND (state = 'live' OR EXISTS (SELECT 1 FROM vdis d WHERE d.parent = c.id))"
        " ORDER BY name, slot";
    struct plx_sql statement = SQL(list, SQL_INT(store));

    return plx_sql_list(reg, &statement, &vdi_shape, (void **)ret_list, ret_count);
}

int plx_registry_locks_of(struct plx_registry *reg, uint64_t instance,
                          struct plx_registry_vdi **ret_list, size_t *ret_count)
{
    static const char list[] = "SELECT " VDI_COLUMNS " FROM vdis WHERE owner = ?1 ORDER BY slot";
    struct plx_sql statement = SQL(list, SQL_INT(instance));

    return plx_sql_list(reg, &statement, &vdi_shape, (void **)ret_list, ret_count);
}

int plx_registry_vdis_takeover(struct plx_registry *reg, uint64_t dead, uint64_t instance,
                               struct plx_registry_vdi **ret_list, size_t *ret_count)
{
    static const char take[] =
        "UPDATE vdis SET epoch = epoch + (owner = ?1), owner = ?2, request_id = ?3"
        " WHERE owner = ?1 OR (owner = ?2 AND request_id = ?3)";
    static const char taken[] =
        "SELECT " VDI_COLUMNS " FROM vdis WHERE owner = ?1 AND request_id = ?2";
    static const char event[] =
        "INSERT INTO events (time_ns, who, what, subject, detail)"
        " SELECT ?1, ?2, 'vdi takeover', id, name || ': slot ' || slot || ', owner ' || owner"
        " || ', epoch ' || epoch FROM vdis WHERE owner = ?3 AND request_id = ?4";
    uint64_t request = plx_id_random();
    struct plx_sql batch[] = {
        SQL(take, SQL_INT(dead), SQL_INT(instance), SQL_INT(request)),
        SQL_EXTRA(event, SQL_INT(plx_sql_now()), SQL_TEXT(reg->who), SQL_INT(instance),
                  SQL_INT(request)),
        SQL(taken, SQL_INT(instance), SQL_INT(request)),
    };
    int code =
        plx_sql_change_list(reg, batch, SQL_COUNT(batch), &vdi_shape, (void **)ret_list, ret_count);

    if (code == PLX_ERR_BUSY) /* foreign key: no such instance */
        return plx_sql_fail(reg, PLX_ERR_NOT_FOUND, "instance %llu is not registered",
                            (unsigned long long)instance);
    return code;
}

/* ---- Changing, under the lock (VDIS-3) ------------------------------------------------------- */

int plx_registry_vdi_resize(struct plx_registry *reg, const struct plx_registry_lock *lock,
                            uint64_t size_bytes)
{
    static const char resize[] = "UPDATE vdis SET size_bytes = ?4"
                                 " WHERE id = ?1 AND owner = ?2 AND epoch = ?3 RETURNING id";
    struct plx_sql batch[] = {
        SQL_MUST(resize, SQL_LOCK(lock), SQL_INT(size_bytes)),
        SQL_EVENT_VDI(reg, "vdi resize", lock->vdi),
    };

    if (!size_bytes || size_bytes > PLX_VDI_SIZE_MAX)
        return plx_sql_fail(reg, PLX_ERR_INVALID,
                            "the size of a VDI must be between 1 byte and "
                            "256 TiB");
    return plx_lock_change(reg, lock, PLX_ERR_REGISTRY, batch, SQL_COUNT(batch));
}

int plx_registry_vdi_rename(struct plx_registry *reg, const struct plx_registry_lock *lock,
                            const char *name)
{
    static const char event[] = "INSERT INTO events (time_ns, who, what, subject, detail)"
                                " SELECT ?1, ?2, 'vdi rename', id, name || ' becomes ' || ?4"
                                " FROM vdis WHERE id = ?3";
    static const char rename[] = /* VDIS-5 */
        "UPDATE vdis SET name = ?4 WHERE id = ?1 AND owner = ?2 AND epoch = ?3"
        " AND NOT EXISTS (SELECT 1 FROM holds WHERE vdi = ?1) RETURNING id";
    struct plx_sql batch[] = {
        SQL_EXTRA(event, SQL_INT(plx_sql_now()), SQL_TEXT(reg->who), SQL_TEXT(lock->vdi),
                  SQL_TEXT(name)),
        SQL_MUST(rename, SQL_LOCK(lock), SQL_TEXT(name)),
    };
    char why[160];
    int code = plx_name_check("vdi", name, why, sizeof why);

    if (code)
        return plx_sql_fail(reg, code, "%s", why);
    code = plx_lock_change(reg, lock, PLX_ERR_BUSY, batch, SQL_COUNT(batch));
    if (code == PLX_ERR_EXISTS) /* VDIS-2 */
        plx_sql_fail(reg, code, "%s exists already", plx_sql_named(reg, name));
    return code;
}

int plx_registry_vdi_delete(struct plx_registry *reg, const struct plx_registry_lock *lock)
{
    static const char delete[] = "UPDATE vdis SET state = 'deleted'"
                                 " WHERE id = ?1 AND owner = ?2 AND epoch = ?3 RETURNING id";
    struct plx_sql batch[] = {
        SQL_MUST(delete, SQL_LOCK(lock)),
        SQL_EVENT_VDI(reg, "vdi delete", lock->vdi),
    };

    return plx_lock_change(reg, lock, PLX_ERR_REGISTRY, batch, SQL_COUNT(batch));
}

int plx_registry_vdi_delete_in_doubt(struct plx_registry *reg, const char *id, uint64_t epoch)
{
    static const char delete[] =
        "UPDATE vdis SET state = 'deleted' WHERE id = ?1 AND owner IS NULL AND epoch = ?2"
        " AND EXISTS (SELECT 1 FROM store WHERE id = vdis.store AND doubt IS NOT NULL) RETURNING "
        "id";
    struct plx_sql batch[] = {
        SQL_MUST(delete, SQL_TEXT(id), SQL_INT(epoch)),
        SQL_EVENT_VDI(reg, "vdi delete", id),
    };
    int code = plx_sql_change(reg, batch, SQL_COUNT(batch), NULL, NULL);

    return code > 0 ? plx_sql_fail(reg, PLX_ERR_BUSY, "the virtual disk is in use, or gone") : code;
}

int plx_registry_vdi_purge(struct plx_registry *reg, const char *id)
{
    static const char purge[] = /* VDIS-1: frees the slot */
        "DELETE FROM vdis WHERE id = ?1 AND state = 'deleted' AND owner IS NULL"
        " AND NOT EXISTS (SELECT 1 FROM vdis c WHERE c.parent = ?1) RETURNING id";
    struct plx_sql batch[] = {
        SQL_EVENT_VDI(reg, "vdi purge", id),
        SQL_MUST(purge, SQL_TEXT(id)),
    };
    struct plx_registry_vdi vdi;
    int code = plx_sql_change(reg, batch, SQL_COUNT(batch), NULL, NULL);

    if (code <= 0)
        return code;
    code = plx_registry_vdi_get_by_id(reg, id, &vdi);
    if (code)
        return code;
    return plx_sql_fail(reg, PLX_ERR_BUSY, "%s is %s", plx_sql_named(reg, vdi.name),
                        !vdi.deleted ? "not deleted"
                        : vdi.owner  ? "locked"
                                     : "parent of clones");
}

/* ---- Labels ------------------------------------------------------------------------------ */

static void read_label(void *item, const struct plx_sql_value *columns)
{
    struct plx_registry_label *label = item;

    plx_sql_copy(label->name, sizeof label->name, &columns[0]);
    label->seq = (uint64_t)columns[1].number;
    label->time_ns = (uint64_t)columns[2].number;
}

static const struct plx_sql_shape label_shape = {sizeof(struct plx_registry_label), read_label};

static int check_label(struct plx_registry *reg, const struct plx_registry_label *label)
{
    char why[160];
    int code = plx_name_check("label", label->name, why, sizeof why);

    if (code)
        return plx_sql_fail(reg, code, "%s", why);
    if (!label->seq)
        return plx_sql_fail(reg, PLX_ERR_INVALID, "label '%s' names no snapshot", label->name);
    return 0;
}

int plx_registry_label_set(struct plx_registry *reg, const struct plx_registry_lock *lock,
                           const struct plx_registry_label *label)
{
    static const char set[] =
        "INSERT INTO labels (vdi, name, seq, time_ns, request_id) SELECT id, ?4, ?5, ?6, ?7"
        " FROM vdis WHERE id = ?1 AND owner = ?2 AND epoch = ?3"
        " ON CONFLICT (vdi, name) DO UPDATE SET seq = excluded.seq"
        "  WHERE request_id = excluded.request_id RETURNING name";
    struct plx_sql batch[] = {
        SQL_MUST(set, SQL_LOCK(lock), SQL_TEXT(label->name), SQL_INT(label->seq),
                 SQL_INT(label->time_ns), SQL_INT(plx_id_random())),
        SQL_EVENT(reg, "label set", lock->vdi, label->name),
    };
    struct plx_registry_label taken;
    int code = check_label(reg, label);

    if (!code)
        code = plx_lock_change(reg, lock, PLX_ERR_EXISTS, batch, SQL_COUNT(batch));
    if (code != PLX_ERR_EXISTS)
        return code;
    code = plx_registry_label_get(reg, lock->vdi, label->name, &taken);
    return code ? code
                : plx_sql_fail(reg, PLX_ERR_EXISTS, "label '%s' names snapshot %llu already",
                               taken.name, (unsigned long long)taken.seq);
}

int plx_registry_label_remove(struct plx_registry *reg, const struct plx_registry_lock *lock,
                              const char *name)
{
    static const char remove[] =
        "DELETE FROM labels WHERE vdi = ?1 AND name = ?4 AND EXISTS (SELECT 1 FROM vdis"
        " WHERE id = ?1 AND owner = ?2 AND epoch = ?3) RETURNING name";
    struct plx_sql batch[] = {
        SQL_MUST(remove, SQL_LOCK(lock), SQL_TEXT(name)),
        SQL_EVENT(reg, "label remove", lock->vdi, name),
    };
    int code = plx_lock_change(reg, lock, PLX_ERR_NOT_FOUND, batch, SQL_COUNT(batch));

    return code == PLX_ERR_NOT_FOUND
               ? plx_sql_fail(reg, PLX_ERR_NOT_FOUND, "there is no label '%.80s'", name)
               : code;
}

int plx_registry_label_get(struct plx_registry *reg, const char *vdi, const char *name,
                           struct plx_registry_label *ret_label)
{
    static const char get[] = "SELECT name, seq, time_ns FROM labels WHERE vdi = ?1 AND name = ?2";
    struct plx_sql statement = SQL(get, SQL_TEXT(vdi), SQL_TEXT(name));
    int code = plx_sql_get(reg, &statement, &label_shape, ret_label);

    if (code == PLX_ERR_NOT_FOUND)
        plx_sql_fail(reg, code, "there is no label '%.80s'", name);
    return code;
}

int plx_registry_label_list(struct plx_registry *reg, const char *vdi,
                            struct plx_registry_label **ret_list, size_t *ret_count)
{
    static const char list[] = "SELECT name, seq, time_ns FROM labels WHERE vdi = ?1"
                               " ORDER BY seq, name";
    struct plx_sql statement = SQL(list, SQL_TEXT(vdi));

    return plx_sql_list(reg, &statement, &label_shape, (void **)ret_list, ret_count);
}

int plx_registry_import_labels(struct plx_registry *reg, const char *vdi,
                               const struct plx_registry_label *list, size_t count)
{
    static const char put[] =
        "INSERT INTO labels (vdi, name, seq, time_ns) VALUES (?1, ?2, ?3, ?4)"
        " ON CONFLICT (vdi, name) DO UPDATE SET seq = excluded.seq, time_ns = excluded.time_ns";
    int code = 0;

    for (size_t i = 0; i < count && !code; i++) {
        struct plx_sql batch[] = {
            SQL(put, SQL_TEXT(vdi), SQL_TEXT(list[i].name), SQL_INT(list[i].seq),
                SQL_INT(list[i].time_ns)),
            SQL_EVENT(reg, "label import", vdi, list[i].name),
        };

        code = check_label(reg, &list[i]);
        if (!code)
            code = plx_sql_change(reg, batch, SQL_COUNT(batch), NULL, NULL);
        if (code == PLX_ERR_BUSY)
            code = plx_sql_fail(reg, PLX_ERR_NOT_FOUND, "there is no VDI %.40s", vdi);
    }
    return code;
}
