/* holds.c - an instant that somebody reads is not let go meanwhile.
 *
 * The holder of a VDI's lock lets snapshots go (the thinner). Anybody may read an instant, in
 * another process or on another host (the reader). They agree through two tables:
 *
 *   thinner                                   reader
 *   1 one transaction enters the intent and   1 one transaction enters the hold, unless there is an
 *     reads labels, clones and holds            intent that counts
 *   2 lets the other snapshots go             2 opens the instant
 *   3 removes labels, then the intent         3 closes the instant, then removes the hold
 *
 * What a crash leaves: a thinner's intent, until HOLDS-3 ends it; a reader's hold, until HOLDS-4
 * does. Both only keep more history, or turn readers away for a while.
 *
 * HOLDS-1  The two first transactions have an order, so nothing that is held is let go. If the hold
 *     is first, the thinner reads it together with entering the intent. If the intent is first, the
 *     reader is turned away until the intent has ended. A hold does not say that its snapshot
 *     exists: a reader that comes too late finds the snapshot gone in step 2.
 * HOLDS-2  An intent covers the whole history of its VDI, whatever range is to go. Log and key
 *     frames next to that range may be rewritten too, so nobody may begin to read there either.
 * HOLDS-3  An intent counts only under the lock of the VDI under which it was entered, by owner and
 *     epoch. A release, a takeover or a new lock ends it without touching its row. If the thinner
 *     dies, its intent counts until then, or until a reader proves the death and ends it: a dead
 *     process lets nothing more go. An intent of the reader's own instance is a leftover, too,
 *     since an instance does one of the two at a time. The reader ends it.
 * HOLDS-4  A hold ends when it is released or when its instance's row is removed. That happens when
 *     the instance leaves or is proven dead. There is no timer (INV-5).
 * HOLDS-5  The snapshot that a clone began with stays as long as a live VDI descends from it: the
 *     clone, or a clone of the clone that outlived it. The creator of a clone holds the snapshot
 *     until the clone's row exists, so there is no gap.
 * HOLDS-6  A call whose answer was lost may be repeated. A hold's id is the call's random number,
 *     an intent replaces the VDI's earlier intent, and removing what is gone is no error.
 * HOLDS-7  A reader that can read the volume but not write to it, for want of permission or of
 *     room, enters no hold. (A hold that failed half-way only keeps more.) It takes a shared lock
 *     on PLX_BYTE_READING for as long as it lives, and then looks for an intent. The thinner enters
 *     its intent and then looks for that lock. So at least one of the two sees the other, as in
 *     HOLDS-1. While the lock is held, nothing of any disk is let go. The lock is seen where
 *     instances prove each other dead (tenancy.h): through the same inode of the same machine. For
 *     any other reader the home page must stand still (ATTACH-16).
 * HOLDS-8  An intent's row is removed when what it announced is complete: the snapshots have gone,
 *     and so have their labels. In any other case the row stays, and only does not count any more.
 *     So whoever settles the VDI (ATTACH-4) looks for labels whose snapshots have gone only where
 *     there is such a row, and removes the row then.
 * HOLDS-9  A row may name an origin that has no row. Then nobody knows from which snapshots of
 *     which VDIs that clone descends, and no intent to let snapshots of any other VDI go is entered
 *     (schema/0008_origins.sql): whoever lets some go frees what died between them and their
 *     neighbours. All of a VDI may go. That frees nothing at once: a collection finds what no tree
 *     leads to any more, and the clone's own tree leads to all that the clone has. Only a rebuild
 *     makes such a row (REBUILD-13): otherwise the row of an origin stays as long as its clones'
 *     rows.
 * Threads: as registry.c. Holds and intents have no audit events: they say what is being done, not
 *   who owns what, and come by the minute.
 * Crash story: see the table. A registry that was rebuilt knows no holds, since it is rebuilt when
 *   nothing is open.
 */
#include "registry/holds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "registry/instance.h"
#include "registry/lock.h"

/* HOLDS-3: whether intent i of VDI v counts. */
#define COUNTS " i.vdi = v.id AND i.instance = v.owner AND i.epoch = v.epoch"

/* ---- The thinner ------------------------------------------------------------------------- */

static void read_seq(void *item, const struct plx_sql_value *columns)
{
    *(uint64_t *)item = (uint64_t)columns[0].number;
}

static const struct plx_sql_shape seq_shape = {sizeof(uint64_t), read_seq};

/* HOLDS-5: all VDIs that descend from VDI ?1, each with the snapshot of ?1 that its line of clones
 * began with. */
#define HEIRS                                                                                      \
    "WITH RECURSIVE heirs (seq, id, name, state) AS ("                                             \
    " SELECT parent_seq, id, name, state FROM vdis WHERE parent = ?1"                              \
    " UNION SELECT h.seq, v.id, v.name, v.state FROM heirs h JOIN vdis v ON v.parent = h.id) "

/* The labels that keep nothing, as one text ",NAME@SEQ,NAME@SEQ," in which the statement searches;
 * no name has a comma in it. */
static char *labels_text(const struct plx_thin_mark *marks, size_t count)
{
    size_t at = 1, size = 2;
    char *text;

    for (size_t i = 0; i < count; i++)
        size += marks[i].label ? strlen(marks[i].label) + 24 : 0;
    text = malloc(size);
    if (text)
        memcpy(text, ",", 2);
    for (size_t i = 0; text && i < count; i++)
        if (marks[i].label)
            at += (size_t)snprintf(text + at, size - at, "%s@%llu,", marks[i].label,
                                   (unsigned long long)marks[i].seq);
    return text;
}

static int begin(struct plx_registry *reg, const struct plx_registry_lock *lock, bool whole,
                 const struct plx_thin_mark *marks, size_t mark_count, uint64_t **ret_kept,
                 size_t *ret_count)
{
    /* HOLDS-1: both in one transaction. HOLDS-2: a row of the whole VDI. HOLDS-6: it replaces the
     * last. */
    static const char enter[] =
        "INSERT INTO intents (vdi, instance, epoch, whole)"
        " SELECT id, ?2, ?3, ?4 FROM vdis WHERE id = ?1 AND owner = ?2 AND epoch = ?3"
        " ON CONFLICT (vdi) DO UPDATE SET instance = excluded.instance, epoch = excluded.epoch,"
        " whole = excluded.whole RETURNING 0";
    static const char kept[] = HEIRS "SELECT seq FROM heirs WHERE state = 'live'"
                                     " UNION SELECT seq FROM labels WHERE vdi = ?1"
                                     " AND instr(?2, ',' || name || '@' || seq || ',') = 0"
                                     " UNION SELECT seq FROM holds WHERE vdi = ?1 ORDER BY seq";
    char *labels = labels_text(marks, mark_count);
    const struct plx_sql batch[] = {
        SQL_MUST(enter, SQL_LOCK(lock), SQL_INT(whole)),
        SQL(kept, SQL_TEXT(lock->vdi), SQL_TEXT(labels)),
    };
    uint64_t *list;
    size_t count;
    int code = PLX_ERR_NOMEM;

    if (labels)
        code =
            plx_sql_change_list(reg, batch, SQL_COUNT(batch), &seq_shape, (void **)&list, &count);
    else
        plx_sql_fail(reg, code, "out of memory");
    free(labels);
    if (code)
        return code > 0 ? plx_lock_explain(reg, lock, PLX_ERR_REGISTRY) : code;
    *ret_kept = list;
    *ret_count = count;
    return 0;
}

int plx_registry_intent_begin(struct plx_registry *reg, const struct plx_registry_lock *lock,
                              const struct plx_thin_mark *marks, size_t mark_count,
                              uint64_t **ret_kept, size_t *ret_count)
{
    return begin(reg, lock, false, marks, mark_count, ret_kept, ret_count);
}

int plx_registry_intent_begin_whole(struct plx_registry *reg, const struct plx_registry_lock *lock)
{
    uint64_t *kept = NULL;
    size_t count;
    int code = begin(reg, lock, true, NULL, 0, &kept, &count);

    free(kept);
    return code;
}

int plx_registry_intent_end(struct plx_registry *reg, const struct plx_registry_lock *lock)
{
    static const char end[] = "DELETE FROM intents WHERE vdi = ?1 AND instance = ?2 AND epoch = ?3";
    const struct plx_sql batch[] = {SQL(end, SQL_LOCK(lock))};

    return plx_sql_change(reg, batch, SQL_COUNT(batch), NULL, NULL);
}

/* HOLDS-8: no lock has epoch 0, so it does not count (HOLDS-3). */
int plx_registry_intent_leave(struct plx_registry *reg, const struct plx_registry_lock *lock)
{
    static const char leave[] =
        "UPDATE intents SET epoch = 0 WHERE vdi = ?1 AND instance = ?2 AND epoch = ?3";
    const struct plx_sql batch[] = {SQL(leave, SQL_LOCK(lock))};

    return plx_sql_change(reg, batch, SQL_COUNT(batch), NULL, NULL);
}

int plx_registry_intent_clear(struct plx_registry *reg, const struct plx_registry_lock *lock)
{
    static const char clear[] = "DELETE FROM intents WHERE vdi = ?1 AND EXISTS (SELECT 1 FROM vdis"
                                " WHERE id = ?1 AND owner = ?2 AND epoch = ?3)";
    const struct plx_sql batch[] = {SQL(clear, SQL_LOCK(lock))};

    return plx_sql_change(reg, batch, SQL_COUNT(batch), NULL, NULL);
}

int plx_registry_intent_is_left(struct plx_registry *reg, const char *vdi, bool *ret_left)
{
    static const char count[] = "SELECT count(*) FROM intents WHERE vdi = ?1";
    const struct plx_sql statement = SQL(count, SQL_TEXT(vdi));
    uint64_t rows = 0;
    int code = plx_sql_get(reg, &statement, &seq_shape, &rows);

    if (!code)
        *ret_left = rows != 0;
    return code;
}

static void read_intent(void *item, const struct plx_sql_value *columns)
{
    struct plx_registry_lock *lock = item;

    plx_sql_copy(lock->vdi, sizeof lock->vdi, &columns[0]);
    lock->instance = (uint64_t)columns[1].number;
    lock->epoch = (uint64_t)columns[2].number;
}

static const struct plx_sql_shape intent_shape = {sizeof(struct plx_registry_lock), read_intent};

int plx_registry_intent_get(struct plx_registry *reg, const char *vdi,
                            struct plx_registry_lock *ret_lock)
{
    static const char get[] = "SELECT i.vdi, i.instance, i.epoch FROM intents i, vdis v"
                              " WHERE v.id = ?1 AND" COUNTS;
    const struct plx_sql statement = SQL(get, SQL_TEXT(vdi));
    int code = plx_sql_get(reg, &statement, &intent_shape, ret_lock);

    if (code == PLX_ERR_NOT_FOUND)
        plx_sql_fail(reg, code, "nobody lets snapshots of VDI %.40s go", vdi);
    return code;
}

static void read_heir(void *item, const struct plx_sql_value *columns)
{
    struct plx_registry_heir *heir = item;

    plx_sql_copy(heir->name, sizeof heir->name, &columns[0]);
    heir->seq = (uint64_t)columns[1].number;
}

static const struct plx_sql_shape heir_shape = {sizeof(struct plx_registry_heir), read_heir};

int plx_registry_heir_list(struct plx_registry *reg, const char *vdi,
                           struct plx_registry_heir **ret_list, size_t *ret_count)
{
    static const char list[] = HEIRS "SELECT name, seq FROM heirs WHERE state = 'live'"
                                     " ORDER BY seq, name";
    const struct plx_sql statement = SQL(list, SQL_TEXT(vdi));

    return plx_sql_list(reg, &statement, &heir_shape, (void **)ret_list, ret_count);
}

/* ---- The reader -------------------------------------------------------------------------- */

/* Finds out, after the fact, why a hold was refused. */
static int explain(struct plx_registry *reg, const char *vdi)
{
    struct plx_registry_instance instance;
    struct plx_registry_lock intent;
    struct plx_registry_vdi row;
    int code = plx_registry_vdi_get_by_id(reg, vdi, &row);

    if (code)
        return code;
    if (plx_registry_intent_get(reg, vdi, &intent) ||
        plx_registry_instance_get(reg, intent.instance, &instance))
        return plx_sql_fail(reg, PLX_ERR_BUSY,
                            "snapshots of %s were being let go until now; try again",
                            plx_sql_named(reg, row.name));
    return plx_sql_fail(reg, PLX_ERR_BUSY,
                        "%s (pid %lld) on host %s is letting snapshots of %s go; try again",
                        plx_instance_kind(instance.role), (long long)instance.pid,
                        instance.host_name, plx_sql_named(reg, row.name));
}

int plx_registry_hold(struct plx_registry *reg, const char *vdi, uint64_t seq, uint64_t instance,
                      uint64_t *ret_hold)
{
    static const char enter[] = /* HOLDS-1 */
        "INSERT INTO holds (id, vdi, seq, instance, since_ns)"
        " SELECT ?1, v.id, ?3, ?4, ?5 FROM vdis v WHERE v.id = ?2"
        " AND (EXISTS (SELECT 1 FROM holds WHERE id = ?1) OR NOT EXISTS (SELECT 1 FROM intents i"
        "  WHERE" COUNTS "))"
        " ON CONFLICT (id) DO UPDATE SET seq = excluded.seq RETURNING id";
    uint64_t id = plx_id_random();
    const struct plx_sql batch[] = {
        SQL_MUST(enter, SQL_INT(id), SQL_TEXT(vdi), SQL_INT(seq), SQL_INT(instance),
                 SQL_INT(plx_sql_now())),
    };
    int code = plx_sql_change(reg, batch, SQL_COUNT(batch), NULL, NULL);

    if (code == PLX_ERR_BUSY) /* foreign key: no such instance */
        return plx_sql_fail(reg, PLX_ERR_NOT_FOUND, "instance %llu is not registered",
                            (unsigned long long)instance);
    if (code)
        return code > 0 ? explain(reg, vdi) : code;
    *ret_hold = id;
    return 0;
}

int plx_registry_release(struct plx_registry *reg, uint64_t hold)
{
    static const char release[] = "DELETE FROM holds WHERE id = ?1"; /* HOLDS-4 */
    const struct plx_sql batch[] = {SQL(release, SQL_INT(hold))};

    return plx_sql_change(reg, batch, SQL_COUNT(batch), NULL, NULL);
}

static void read_hold(void *item, const struct plx_sql_value *columns)
{
    struct plx_registry_hold *hold = item;

    hold->id = (uint64_t)columns[0].number;
    hold->seq = (uint64_t)columns[1].number;
    hold->instance = (uint64_t)columns[2].number;
    hold->since_ns = (uint64_t)columns[3].number;
}

static const struct plx_sql_shape hold_shape = {sizeof(struct plx_registry_hold), read_hold};

int plx_registry_hold_list(struct plx_registry *reg, const char *vdi,
                           struct plx_registry_hold **ret_list, size_t *ret_count)
{
    static const char list[] = "SELECT id, seq, instance, since_ns FROM holds WHERE vdi = ?1"
                               " ORDER BY seq, since_ns, id";
    const struct plx_sql statement = SQL(list, SQL_TEXT(vdi));

    return plx_sql_list(reg, &statement, &hold_shape, (void **)ret_list, ret_count);
}

bool plx_hold_is_shared(struct plx_bytelock *locks)
{
    bool busy = true;

    return locks->ops->probe(locks, PLX_BYTE_READING, &busy) != 0 || busy;
}

/* ---- Waiting ----------------------------------------------------------------------------- */

static bool is_dead(struct plx_registry *registry, const struct plx_paths *paths,
                    struct plx_bytelock *locks, uint64_t id)
{
    struct plx_registry_instance instance;

    return plx_registry_instance_get(registry, id, &instance) == 0 &&
           plx_instance_is_dead(paths, locks, &instance, NULL);
}

/* HOLDS-3. Returns true when the intent in the way was a leftover and counts no more. */
static bool end_stale_intent(struct plx_registry *registry, const struct plx_paths *paths,
                             struct plx_bytelock *locks, const char *vdi, uint64_t reader)
{
    struct plx_registry_lock intent;

    return plx_registry_intent_get(registry, vdi, &intent) == 0 &&
           (intent.instance == reader || is_dead(registry, paths, locks, intent.instance)) &&
           plx_registry_intent_leave(registry, &intent) == 0;
}

int plx_hold_wait(struct plx_registry *registry, const struct plx_paths *paths,
                  struct plx_bytelock *locks, const char *vdi, uint64_t seq, uint64_t instance,
                  const struct plx_patience *patience, uint64_t *ret_hold)
{
    uint64_t since_ns = plx_patience_begin();

    for (;;) {
        int code = plx_registry_hold(registry, vdi, seq, instance, ret_hold);
        struct plx_fault why;

        if (code != PLX_ERR_BUSY)
            return code;
        plx_registry_fault(registry, code, &why);
        if (!end_stale_intent(registry, paths, locks, vdi, instance) &&
            !plx_patience_waits(patience, since_ns, &why))
            return plx_sql_fail(registry, code, "%s", why.text);
    }
}

/* HOLDS-7 */
int plx_hold_share(struct plx_registry *registry, const struct plx_paths *paths,
                   struct plx_bytelock *locks, const char *vdi, const struct plx_patience *patience)
{
    uint64_t since_ns = plx_patience_begin();
    int code = locks->ops->set(locks, PLX_BYTE_READING, PLX_BYTE_SHARED);

    if (code)
        return plx_sql_fail(registry, code,
                            "a store that cannot be written to cannot be locked for reading "
                            "either");
    for (;;) {
        struct plx_registry_lock intent;
        struct plx_fault why;

        code = plx_registry_intent_get(registry, vdi, &intent);
        if (code)
            return code == PLX_ERR_NOT_FOUND ? 0 : code;
        if (is_dead(registry, paths, locks, intent.instance))
            return 0;
        plx_registry_fault(registry, explain(registry, vdi), &why);
        if (!plx_patience_waits(patience, since_ns, &why))
            return plx_sql_fail(registry, PLX_ERR_BUSY, "%s", why.text);
    }
}
