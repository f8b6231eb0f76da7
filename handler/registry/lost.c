/* lost.c - see lost.h.
 *
 * What is forbidden meanwhile is enforced elsewhere: triggers of schema/0007_trust.sql refuse
 * collections and intents, and plx_registry_vdi_create() passes over the slots (VDIS-4).
 *
 * Threads and crash story: as registry.c.
 */
#include "registry/lost.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "registry/sql.h"

static void read_lost(void *item, const struct plx_sql_value *columns)
{
    struct plx_registry_lost *lost = item;

    lost->slot = (uint32_t)columns[0].number;
    lost->labels = columns[1].number != 0;
    plx_sql_copy(lost->vdi, sizeof lost->vdi, &columns[2]);
    plx_sql_copy(lost->why, sizeof lost->why, &columns[3]);
}

static const struct plx_sql_shape lost_shape = {sizeof(struct plx_registry_lost), read_lost};

int plx_registry_lost_add(struct plx_registry *reg, int64_t store,
                          const struct plx_registry_lost *lost)
{
    static const char insert[] = "INSERT INTO lost (store, slot, what, vdi, why)"
                                 " VALUES (?1, ?2, ?3, ?4, ?5)";
    struct plx_sql batch[] = {
        SQL(insert, SQL_INT(store), SQL_INT(lost->slot),
            SQL_TEXT(lost->labels ? "labels" : "record"), SQL_OPT(lost->vdi), SQL_TEXT(lost->why)),
        SQL_EVENT(reg, "lost", lost->labels ? lost->vdi : "a virtual disk's record", lost->why),
    };

    return plx_sql_change(reg, batch, SQL_COUNT(batch), NULL, NULL);
}

int plx_registry_lost_list(struct plx_registry *reg, int64_t store,
                           struct plx_registry_lost **ret_list, size_t *ret_count)
{
    static const char list[] = "SELECT slot, what = 'labels', coalesce(vdi, ''), why FROM lost"
                               " WHERE store = ?1 ORDER BY slot, what";
    const struct plx_sql statement = SQL(list, SQL_INT(store));

    return plx_sql_list(reg, &statement, &lost_shape, (void **)ret_list, ret_count);
}

#define LOST_TOLD 3u
#define LOST_WHY 90u

/* How much of it is told: without what comes in parentheses, where it is too long. */
static int told_of(const char *why, bool *ret_cut)
{
    size_t length = strlen(why), short_of;

    *ret_cut = false;
    if (length <= LOST_WHY)
        return (int)length;
    short_of = strcspn(why, "(");
    *ret_cut = short_of > LOST_WHY;
    return *ret_cut ? (int)LOST_WHY : (int)short_of - (short_of && why[short_of - 1] == ' ');
}

size_t plx_registry_lost_text(const struct plx_registry_lost *list, size_t count,
                              char ret_text[PLX_LOST_TEXT])
{
    size_t records = 0, at = 0;
    bool cut;

    *ret_text = '\0';
    for (size_t i = 0; i < count; i++) {
        if (list[i].labels || records++ >= LOST_TOLD)
            continue;
        int told = told_of(list[i].why, &cut);
        at += (size_t)snprintf(ret_text + at, PLX_LOST_TEXT - at, "%s%.*s%s", at ? "; " : "", told,
                               list[i].why, cut ? "..." : "");
    }
    if (records > LOST_TOLD)
        snprintf(ret_text + at, PLX_LOST_TEXT - at, " and %zu more", records - LOST_TOLD);
    return records;
}

int plx_registry_lost_forget(struct plx_registry *reg, int64_t store, size_t *ret_count)
{
    /* Read while they are there. Asked again after a lost answer (sql.h) this finds no row, and the
     * call says that it does not know. */
    static const char known[] =
        "SELECT slot, what = 'labels', coalesce(vdi, ''), why FROM lost WHERE store = ?1";
    static const char forget[] = "DELETE FROM lost WHERE store = ?1";
    struct plx_sql batch[] = {
        SQL_MUST(known, SQL_INT(store)),
        SQL(forget, SQL_INT(store)),
        SQL_EVENT(reg, "lost forget", "store", "what a rebuild could not read is given up"),
    };
    void *list;
    size_t count;
    int code = plx_sql_change_list(reg, batch, SQL_COUNT(batch), &lost_shape, &list, &count);

    if (code < 0)
        return code;
    if (code) /* nothing was lost, or is any more */
        count = 0;
    else
        free(list);
    *ret_count = count;
    return 0;
}
