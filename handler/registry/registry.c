/* registry.c - the handle: opening, errors, running batches, audit events, policies.
 *
 * REGISTRY-1  A call writes its outputs only after its transaction was committed. So a caller never
 *     acts on an owner or epoch that a rollback took back.
 * REGISTRY-2  Every changing batch has an audit event as an element, so the event commits with the
 *     change. Exceptions: holds and intents (holds.c), the bookkeeping of collections
 *     (collections.c) and of growth, rows that are carried (carry.c), and a region that is nearly
 *     full (SQLITE-6).
 * REGISTRY-3  Before each change, whoever opened a handle on a cluster's nodes is asked whether
 *     this host still has the store. The answer may be out of date when the change is made: it only
 *     sees to it that a host which has lost the store stops soon. What makes a change safe is that
 *     its statements compare owner and epoch. A region asks by itself (REGION-7).
 * Threads: one at a time per handle.
 * Crash story: each call is one transaction (sqlite.c); there is no state in between.
 */
#include "registry/registry.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/bytelock.h"
#include "engine/base/list.h"
#include "registry/clock.h"
#include "registry/region.h"
#include "registry/sql.h"

const char plx_sql_event[] = "INSERT INTO events (time_ns, who, what, subject, detail)"
                             " VALUES (?1, ?2, ?3, ?4, ?5)";
const char plx_sql_event_vdi[] =
    "INSERT INTO events (time_ns, who, what, subject, detail)"
    " SELECT ?1, ?2, ?3, id, name || ': slot ' || slot || ', owner ' || coalesce(owner, 'none')"
    " || ', epoch ' || epoch || ', size ' || size_bytes || ', ' || state"
    " FROM vdis WHERE id = ?4";

/* ---- The handle -------------------------------------------------------------------------- */

static struct plx_registry *new_handle(const char *who, struct plx_fault *fault)
{
    struct plx_registry *reg = calloc(1, sizeof *reg);

    if (reg)
        snprintf(reg->who, sizeof reg->who, "%s", who);
    else
        plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory opening the registry");
    return reg;
}

static int finish_open(struct plx_registry *reg, int code, struct plx_registry **ret_reg)
{
    if (code)
        free(reg);
    else
        *ret_reg = reg;
    return code;
}

int plx_sql_handle(const char *who, const struct plx_registry_ops *ops, void *driver,
                   struct plx_registry **ret_reg, struct plx_fault *fault)
{
    struct plx_registry *reg = new_handle(who, fault);

    if (!reg) {
        ops->close(driver);
        return PLX_ERR_NOMEM;
    }
    reg->ops = ops;
    reg->driver = driver;
    *ret_reg = reg;
    return 0;
}

int plx_registry_open(const char *where, const char *who, struct plx_registry **ret_reg,
                      struct plx_fault *fault)
{
    struct plx_registry *reg;

    if (!strncmp(where, "http://", 7) || !strncmp(where, "https://", 8))
        return plx_fault_set(fault, PLX_ERR_UNSUPPORTED,
                             "registry '%s': this version keeps the registry in a file only",
                             where);
    reg = new_handle(who, fault);
    if (!reg)
        return PLX_ERR_NOMEM;
    return finish_open(reg, plx_sqlite_open(where, &reg->ops, &reg->driver, fault), ret_reg);
}

int plx_registry_open_region(const struct plx_region *region, const char *volume, const char *who,
                             struct plx_registry **ret_reg, struct plx_fault *fault)
{
    struct plx_registry *reg = new_handle(who, fault);

    if (!reg)
        return PLX_ERR_NOMEM;
    return finish_open(reg, plx_sqlite_open_region(region, volume, &reg->ops, &reg->driver, fault),
                       ret_reg);
}

void plx_registry_close(struct plx_registry *reg)
{
    if (!reg)
        return;
    if (reg->kept.seen)
        plx_registry_settle(reg);
    plx_sql_drop_kept(reg, reg->kept.count);
    reg->ops->close(reg->driver);
    plx_bytelock_close(reg->locks);
    plx_device_close(reg->device);
    free(reg);
}

void plx_registry_call_store(struct plx_registry *reg, const char *store)
{
    snprintf(reg->store, sizeof reg->store, "%s", store);
}

const char *plx_sql_named(struct plx_registry *reg, const char *vdi)
{
    if (reg->store[0])
        snprintf(reg->named, sizeof reg->named, "%s/%s", reg->store, vdi);
    else
        snprintf(reg->named, sizeof reg->named, "VDI '%s'", vdi);
    return reg->named;
}

const char *plx_registry_error(const struct plx_registry *reg)
{
    return reg->fault.text;
}

int plx_registry_fault(const struct plx_registry *reg, int code, struct plx_fault *fault)
{
    return plx_fault_set(fault, code, "%s", reg->fault.text);
}

static void read_text(void *item, const struct plx_sql_value *columns)
{
    plx_sql_copy(item, PLX_POLICY_VALUE_MAX + 1, &columns[0]);
}

static const struct plx_sql_shape text_shape = {PLX_POLICY_VALUE_MAX + 1, read_text};

int plx_registry_check(struct plx_registry *reg)
{
    static const char references[] = "SELECT count(*) FROM pragma_foreign_key_check";
    struct plx_fault fault = {0};
    char missing[PLX_POLICY_VALUE_MAX + 1];
    int code = reg->ops->check(reg->driver, &fault);

    if (code) {
        reg->fault = fault;
        return code;
    }
    code = plx_sql_get(reg, &(struct plx_sql){.text = references}, &text_shape, missing);
    if (!code && strcmp(missing, "0"))
        return plx_sql_fail(reg, PLX_ERR_REGISTRY,
                            "the registry has %s rows that refer to missing "
                            "ones; run 'parallax store rebuild-registry'",
                            missing);
    return code;
}

/* ---- As a whole -------------------------------------------------------------------------- */

int plx_registry_put(struct plx_registry *reg, const char *file, struct plx_fault *fault)
{
    if (!reg->ops->put)
        return plx_fault_set(fault, PLX_ERR_UNSUPPORTED,
                             "this registry is a file itself: replace the file");
    return reg->ops->put(reg->driver, file, fault);
}

int plx_registry_get(struct plx_registry *reg, const char *file, struct plx_fault *fault)
{
    return reg->ops->get(reg->driver, file, fault);
}

int plx_registry_room(struct plx_registry *reg, uint64_t *ret_used, uint64_t *ret_pages)
{
    struct plx_fault fault = {0};
    int code = reg->ops->room(reg->driver, ret_used, ret_pages, &fault);

    if (code)
        reg->fault = fault;
    return code;
}

int plx_registry_alone(struct plx_registry *reg,
                       int (*work)(void *context, struct plx_fault *fault), void *context,
                       struct plx_fault *fault)
{
    return reg->ops->alone
               ? reg->ops->alone(reg->driver, work, context, fault)
               : plx_fault_set(fault, PLX_ERR_UNSUPPORTED, "this registry does not lie in a store");
}

int plx_registry_has_room(struct plx_registry *reg)
{
    uint64_t used, pages;
    int code = plx_registry_room(reg, &used, &pages);

    if (!code && plx_sql_crowded(used, pages, PLX_SQL_LEAVES_NEW))
        code = plx_sql_fail(reg, PLX_ERR_NOSPACE,
                            "four fifths of the registry's space are in use, the rest is for "
                            "deleting: delete disks or labels that are not needed any "
                            "more" PLX_SQL_MORE_ROOM);
    return code;
}

bool plx_sql_left_out(struct plx_registry *reg, unsigned leaves)
{
    uint64_t used, pages;

    return plx_registry_room(reg, &used, &pages) == 0 && plx_sql_crowded(used, pages, leaves);
}

/* ---- Running batches --------------------------------------------------------------------- */

int plx_sql_fail(struct plx_registry *reg, int code, const char *format, ...)
{
    va_list args;

    reg->fault.code = code;
    va_start(args, format);
    vsnprintf(reg->fault.text, sizeof reg->fault.text, format, args);
    va_end(args);
    return code;
}

void plx_sql_copy(char *to, size_t size, const struct plx_sql_value *column)
{
    if (column->kind == PLX_SQL_INT)
        snprintf(to, size, "%lld", (long long)column->number);
    else
        snprintf(to, size, "%s", column->text);
}

uint64_t plx_sql_now(void)
{
    return plx_clock_ns(CLOCK_REALTIME);
}

struct sink {
    const struct plx_sql_shape *shape; /* NULL: drop the rows */
    size_t count, room;
    char *items;
    bool nomem;
};

static void take_row(void *context, const struct plx_sql_value *columns, size_t count)
{
    struct sink *sink = context;
    char *item;

    if (!sink->shape || sink->nomem)
        return;
    if (!plx_list_room(&sink->items, sink->count, &sink->room, 1, sink->shape->size)) {
        sink->nomem = true;
        return;
    }
    item = sink->items + sink->count++ * sink->shape->size;
    memset(item, 0, sink->shape->size);
    sink->shape->read(item, columns);
}

/* REGISTRY-3 */
static int may_change(struct plx_registry *reg, struct plx_fault *fault)
{
    if (reg->read_only)
        return plx_fault_set(fault, PLX_ERR_READONLY, "this registry was opened to read only");
    if (!reg->may_write || reg->may_write(reg->context, fault))
        return 0;
    return fault->code ? fault->code : plx_fault_set(fault, PLX_ERR_FENCED, "the store is lost");
}

static int run_alone(struct plx_registry *reg, bool change, const struct plx_sql *batch,
                     size_t count, struct sink *sink)
{
    struct plx_fault fault = {0};
    int code = change ? may_change(reg, &fault) : 0;

    if (!code)
        code = reg->ops->run(reg->driver, change, batch, count, take_row, sink, &fault);
    if (code < 0)
        reg->fault = fault;
    else if (code == 0 && sink->nomem)
        code = plx_sql_fail(reg, PLX_ERR_NOMEM, "out of memory reading the registry");
    return code;
}

static bool is_refusal(int code)
{
    return code > 0 || code == PLX_ERR_EXISTS || code == PLX_ERR_BUSY || code == PLX_ERR_INVALID;
}

/* KEPT-3: called when the changes that were put off were refused as one transaction. Makes each of
 * them alone, in order, and drops those that are refused. */
static int settle_each(struct plx_registry *reg)
{
    struct plx_sql_kept *kept = &reg->kept;
    bool refused = false;
    int code = 0;

    while (kept->count) {
        size_t count = plx_sql_next_kept(kept, 0);
        struct sink sink = {0};

        code = run_alone(reg, true, kept->batch, count, &sink);
        if (code && !is_refusal(code)) {
            kept->tried = plx_max_u64(kept->tried, count);
            break;
        }
        refused = refused || (code && !kept->tried);
        code = 0;
        plx_sql_drop_kept(reg, count);
    }
    if (!code && refused)
        code = plx_sql_fail(reg, PLX_ERR_FENCED, "a lock was not this process's any more");
    return code;
}

int plx_registry_settle(struct plx_registry *reg)
{
    struct sink sink = {0};
    int code = 0;

    if (reg->kept.count)
        code = run_alone(reg, true, reg->kept.batch, reg->kept.count, &sink);
    if (is_refusal(code))
        return settle_each(reg);
    if (code)
        reg->kept.tried = reg->kept.count;
    else
        plx_sql_drop_kept(reg, reg->kept.count);
    return code;
}

/* KEPT-1, KEPT-3: runs a change behind what was put off, as one transaction. */
static int run_together(struct plx_registry *reg, const struct plx_sql *batch, size_t count,
                        struct sink *sink)
{
    size_t kept = reg->kept.count;
    struct plx_sql *both = calloc(kept + count, sizeof *both);
    int code;

    if (!both)
        return plx_sql_fail(reg, PLX_ERR_NOMEM, "out of memory changing the registry");
    memcpy(both, reg->kept.batch, kept * sizeof *both);
    memcpy(both + kept, batch, count * sizeof *both);
    code = run_alone(reg, true, both, kept + count, sink);
    free(both);
    if (code > (int)kept) /* the new change itself was refused; what was put off waits on */
        return code - (int)kept;
    if (is_refusal(code)) {
        code = settle_each(reg);
        if (reg->kept.count)
            return code;
        sink->count = 0;
        return run_alone(reg, true, batch, count, sink);
    }
    if (code)
        reg->kept.tried = kept;
    else
        plx_sql_drop_kept(reg, kept);
    return code;
}

static int run(struct plx_registry *reg, bool change, const struct plx_sql *batch, size_t count,
               struct sink *sink)
{
    if (change && reg->kept.count)
        return run_together(reg, batch, count, sink);
    if (reg->kept.seen) /* KEPT-2 */
        plx_registry_settle(reg);
    return run_alone(reg, change, batch, count, sink);
}

int plx_sql_change(struct plx_registry *reg, const struct plx_sql *batch, size_t count,
                   const struct plx_sql_shape *shape, void *ret_item)
{
    /* Memory for the one row is taken before the batch runs: a committed change must not be
     * reported as failed for lack of it. */
    struct sink sink = {.shape = shape, .room = 1};
    bool kept = reg->next != PLX_NOW && !shape && plx_sql_keep(reg, batch, count);
    int code;

    reg->next = PLX_NOW;
    if (kept)
        return 0;
    if (shape && !(sink.items = malloc(shape->size)))
        return plx_sql_fail(reg, PLX_ERR_NOMEM, "out of memory changing the registry");
    code = run(reg, true, batch, count, &sink);
    if (code == 0 && sink.count > 1) /* the rows come from outside */
        code = plx_sql_fail(reg, PLX_ERR_REGISTRY, "the registry gave %zu rows instead of one",
                            sink.count);
    if (code == 0 && ret_item && sink.count) /* REGISTRY-1 */
        memcpy(ret_item, sink.items, shape->size);
    free(sink.items);
    return code;
}

static int run_list(struct plx_registry *reg, bool change, const struct plx_sql *batch,
                    size_t count, const struct plx_sql_shape *shape, void **ret_list,
                    size_t *ret_count)
{
    struct sink sink = {.shape = shape};
    int code = run(reg, change, batch, count, &sink);

    if (code) {
        free(sink.items);
        return code;
    }
    *ret_list = sink.items;
    *ret_count = sink.count;
    return 0;
}

int plx_sql_list(struct plx_registry *reg, const struct plx_sql *statement,
                 const struct plx_sql_shape *shape, void **ret_list, size_t *ret_count)
{
    return run_list(reg, false, statement, 1, shape, ret_list, ret_count);
}

int plx_sql_change_list(struct plx_registry *reg, const struct plx_sql *batch, size_t count,
                        const struct plx_sql_shape *shape, void **ret_list, size_t *ret_count)
{
    return run_list(reg, true, batch, count, shape, ret_list, ret_count);
}

int plx_sql_get(struct plx_registry *reg, const struct plx_sql *statement,
                const struct plx_sql_shape *shape, void *ret_item)
{
    void *list;
    size_t count;
    int code = plx_sql_list(reg, statement, shape, &list, &count);

    if (code)
        return code;
    if (count)
        memcpy(ret_item, list, shape->size);
    free(list);
    return count ? 0 : PLX_ERR_NOT_FOUND;
}

/* ---- Events and policies ----------------------------------------------------------------- */

int plx_registry_event_add(struct plx_registry *reg, const char *what, const char *subject,
                           const char *detail)
{
    struct plx_sql batch[] = {SQL_EVENT(reg, what, subject, detail)};

    return plx_sql_change(reg, batch, SQL_COUNT(batch), NULL, NULL);
}

static void read_event(void *item, const struct plx_sql_value *columns)
{
    struct plx_registry_event *event = item;

    event->id = (uint64_t)columns[0].number;
    event->time_ns = (uint64_t)columns[1].number;
    plx_sql_copy(event->who, sizeof event->who, &columns[2]);
    plx_sql_copy(event->what, sizeof event->what, &columns[3]);
    plx_sql_copy(event->subject, sizeof event->subject, &columns[4]);
    plx_sql_copy(event->detail, sizeof event->detail, &columns[5]);
}

static const struct plx_sql_shape event_shape = {sizeof(struct plx_registry_event), read_event};

int plx_registry_event_list(struct plx_registry *reg, size_t limit,
                            struct plx_registry_event **ret_list, size_t *ret_count)
{
    static const char newest[] =
        "SELECT * FROM (SELECT id, time_ns, who, what, subject, detail FROM events"
        " ORDER BY id DESC LIMIT ?1) ORDER BY id";
    struct plx_sql statement = SQL(newest, SQL_INT(limit));

    return plx_sql_list(reg, &statement, &event_shape, (void **)ret_list, ret_count);
}

int plx_registry_policy_set(struct plx_registry *reg, const char *vdi, const char *key,
                            const char *value)
{
    static const char set[] = "INSERT INTO policies (vdi, key, value) SELECT id, ?2, ?3 FROM vdis"
                              " WHERE id = ?1 AND state = 'live'"
                              " ON CONFLICT (vdi, key) DO UPDATE SET value = excluded.value"
                              " RETURNING value";
    static const char unset[] = "DELETE FROM policies WHERE vdi = ?1 AND key = ?2 RETURNING value";
    struct plx_sql batch[] = {
        SQL_MUST(value ? set : unset, SQL_TEXT(vdi), SQL_TEXT(key), SQL_TEXT(value ? value : "")),
        SQL_EVENT(reg, value ? "policy set" : "policy unset", vdi, key), /* REGISTRY-2 */
    };
    int code;

    if (!value)
        batch[0].count = 2;
    else if (strlen(value) > PLX_POLICY_VALUE_MAX)
        return plx_sql_fail(reg, PLX_ERR_INVALID, "the value of policy '%.40s' is too long", key);
    code = plx_sql_change(reg, batch, SQL_COUNT(batch), NULL, NULL);
    if (code > 0)
        code = plx_sql_fail(reg, PLX_ERR_NOT_FOUND,
                            value ? "there is no VDI %s" : "VDI %s has no such policy", vdi);
    return code;
}

int plx_registry_policy_get(struct plx_registry *reg, const char *vdi, const char *key,
                            char ret_value[PLX_POLICY_VALUE_MAX + 1])
{
    static const char get[] = "SELECT value FROM policies WHERE vdi = ?1 AND key = ?2";
    struct plx_sql statement = SQL(get, SQL_TEXT(vdi), SQL_TEXT(key));
    int code = plx_sql_get(reg, &statement, &text_shape, ret_value);

    if (code == PLX_ERR_NOT_FOUND)
        plx_sql_fail(reg, code, "VDI %s has no policy '%.40s'", vdi, key);
    return code;
}

int plx_registry_store_policy_set(struct plx_registry *reg, int64_t store, const char *key,
                                  const char *value)
{
    static const char set[] = "INSERT INTO store_policies (store, key, value)"
                              " SELECT id, ?2, ?3 FROM store WHERE id = ?1"
                              " ON CONFLICT (store, key) DO UPDATE SET value = excluded.value"
                              " RETURNING value";
    static const char unset[] = "DELETE FROM store_policies WHERE store = ?1 AND key = ?2"
                                " RETURNING value";
    static const char event[] = "INSERT INTO events (time_ns, who, what, subject, detail)"
                                " SELECT ?1, ?2, ?3, name, ?5 FROM store WHERE id = ?4";
    struct plx_sql batch[] = {
        SQL_MUST(value ? set : unset, SQL_INT(store), SQL_TEXT(key), SQL_TEXT(value ? value : "")),
        SQL_EXTRA(event, SQL_INT(plx_sql_now()), SQL_TEXT(reg->who),
                  SQL_TEXT(value ? "policy set" : "policy unset"), SQL_INT(store), SQL_TEXT(key)),
    };
    int code;

    if (!value)
        batch[0].count = 2;
    else if (strlen(value) > PLX_POLICY_VALUE_MAX)
        return plx_sql_fail(reg, PLX_ERR_INVALID, "the value of policy '%.40s' is too long", key);
    code = plx_sql_change(reg, batch, SQL_COUNT(batch), NULL, NULL);
    if (code > 0)
        code = plx_sql_fail(reg, PLX_ERR_NOT_FOUND,
                            value ? "there is no such store" : "the store has no such policy");
    return code;
}

int plx_registry_store_policy_get(struct plx_registry *reg, int64_t store, const char *key,
                                  char ret_value[PLX_POLICY_VALUE_MAX + 1])
{
    static const char get[] = "SELECT value FROM store_policies WHERE store = ?1 AND key = ?2";
    struct plx_sql statement = SQL(get, SQL_INT(store), SQL_TEXT(key));
    int code = plx_sql_get(reg, &statement, &text_shape, ret_value);

    if (code == PLX_ERR_NOT_FOUND)
        plx_sql_fail(reg, code, "the store has no policy '%.40s'", key);
    return code;
}
