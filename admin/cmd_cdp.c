/* cmd_cdp.c - parallax cdp: on, off, status. The timeline is in cmd_timeline.c. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "output.h"
#include "registry/policy.h"

static const struct plx_column object_columns[] = {
    {"name", "Name", PLX_COLUMN_TEXT},
    {"protection", "Snapshots", PLX_COLUMN_TEXT},
    {"retention", "Kept", PLX_COLUMN_TEXT},
    {"open_by", "Open by", PLX_COLUMN_TEXT},
    {"newest", "Newest", PLX_COLUMN_TEXT},
    {"newest_seq", "Its number", PLX_COLUMN_NUMBER},
    {"oldest", "Oldest", PLX_COLUMN_TEXT},
    {"oldest_seq", "Its number", PLX_COLUMN_NUMBER},
    {"snapshots_per_second", "A second now", PLX_COLUMN_NUMBER},
    {"snapshots_skipped", "Left out", PLX_COLUMN_NUMBER},
    {NULL, NULL, 0},
};

static const struct plx_column list_columns[] = {
    {"name", "NAME", PLX_COLUMN_TEXT},
    {"protection", "SNAPSHOTS", PLX_COLUMN_TEXT},
    {"retention", "KEPT", PLX_COLUMN_TEXT},
    {"newest", "NEWEST", PLX_COLUMN_TEXT},
    {"oldest", "OLDEST", PLX_COLUMN_TEXT},
    {"snapshots_per_second", "A SECOND", PLX_COLUMN_NUMBER},
    {"snapshots_skipped", "LEFT OUT", PLX_COLUMN_NUMBER},
    {NULL, NULL, 0},
};

static const char *describe_mode(const struct plx_protection *protection, char *text, size_t size)
{
    char mode[PLX_MODE_TEXT];
    bool off = protection->mode == PLX_PROTECT_OFF;

    snprintf(text, size, "%s%s", off ? "" : "every ", plx_protection_mode_text(protection, mode));
    return text;
}

void plx_cmd_cdp_describe(json_t *object, const struct plx_protection *protection)
{
    char mode[PLX_MODE_TEXT + 8], tiers[PLX_TIERS_TEXT];

    json_object_set_new(object, "protection",
                        json_string(describe_mode(protection, mode, sizeof mode)));
    if (protection->interval_ns)
        json_object_set_new(object, "interval_ns",
                            json_integer((json_int_t)protection->interval_ns));
    if (protection->tiers)
        json_object_set_new(object, "retention",
                            json_string(plx_protection_tiers_text(protection, tiers)));
    else if (protection->mode != PLX_PROTECT_OFF)
        json_object_set_new(object, "retention", json_string("all"));
}

/* ---- on, off -----------------------------------------------------------------------------------
 */

static int mode_given(struct plx_cli *cli, struct plx_protection *protection)
{
    const char *every = plx_cli_get(cli, "every");
    bool batch = plx_cli_get(cli, "every-batch"), write = plx_cli_get(cli, "every-write");

    if ((every != NULL) + batch + write > 1)
        return plx_cli_usage(cli, "--every, --every-batch and --every-write exclude each other");
    if (every && (strspn(every, "0123456789") == 0 ||
                  plx_protection_parse_mode(every, protection, &cli->fault)))
        return plx_cli_usage(cli, "--every '%.40s': an interval from 1ms to 1d, such as 10ms",
                             every);
    if (every)
        return 0;
    return plx_protection_parse_mode(batch   ? "batch"
                                     : write ? "write"
                                             : "10ms",
                                     protection, &cli->fault);
}

/* Without --keep: what is kept already, or the default. */
static int tiers_given(struct plx_cli *cli, const struct plx_protection *now,
                       struct plx_protection *protection)
{
    const char *keep = plx_cli_get(cli, "keep");
    struct plx_fault why = {0};

    if (!keep && now && (now->tiers || now->mode != PLX_PROTECT_OFF)) {
        protection->tiers = now->tiers;
        memcpy(protection->tier, now->tier, sizeof now->tier);
        return 0;
    }
    keep = !keep ? PLX_TIERS_DEFAULT : strcmp(keep, "all") ? keep : "";
    if (plx_protection_parse_tiers(keep, protection, &why))
        return plx_cli_usage(cli, "--keep: %s", why.text);
    return 0;
}

static int current(struct plx_cli *cli, const struct plx_name *name, struct plx_vdi_info *ret_info)
{
    struct plx_registry_vdi row;
    int rc = plx_session_vdi_row(cli, name, &row);

    return rc ? rc : plx_vdi_read_info(plx_session_store(cli), row.slot, ret_info, &cli->fault);
}

static int print_one(struct plx_cli *cli, const struct plx_name *name);

/* What is wrong with the words is said before a store is opened. */
static int set_protection(struct plx_cli *cli, bool on)
{
    struct plx_protection protection = {0};
    static struct plx_vdi_info info;
    struct plx_name name;
    char mode[PLX_MODE_TEXT + 8], tiers[PLX_TIERS_TEXT];
    int rc;

    if ((rc = plx_cli_name(cli, 0, PLX_NAME_VDI, &name)) ||
        (on &&
         ((rc = mode_given(cli, &protection)) || (rc = tiers_given(cli, NULL, &protection)))) ||
        (rc = plx_session_open(cli, name.store, PLX_SESSION_WRITE)) ||
        (rc = current(cli, &name, &info)))
        return rc;
    if (!on) {
        protection = info.protection;
        protection.mode = PLX_PROTECT_OFF;
        protection.interval_ns = 0;
    } else if ((rc = tiers_given(cli, &info.protection, &protection))) {
        return rc;
    }
    if ((rc = plx_session_vdi_protect(cli, &name, &protection)))
        return rc;
    if (on)
        plx_out_note(cli, "%s/%s: a snapshot %s; kept: %s", name.store, name.vdi,
                     describe_mode(&protection, mode, sizeof mode),
                     protection.tiers ? plx_protection_tiers_text(&protection, tiers) : "all");
    else
        plx_out_note(cli, "%s/%s takes no snapshots by itself any more", name.store, name.vdi);
    return cli->json ? print_one(cli, &name) : 0;
}

int plx_cmd_cdp_on(struct plx_cli *cli)
{
    return set_protection(cli, true);
}

int plx_cmd_cdp_off(struct plx_cli *cli)
{
    return set_protection(cli, false);
}

/* ---- status ------------------------------------------------------------------------------------
 */

static bool take_first(void *context, const struct plx_snapshot_info *info)
{
    *(struct plx_snapshot_info *)context = *info;
    return false;
}

static bool take_last(void *context, const struct plx_snapshot_info *info)
{
    *(struct plx_snapshot_info *)context = *info;
    return !plx_interrupted;
}

static void put_instant(json_t *row, const char *key, const struct plx_snapshot_info *info)
{
    char number[24];

    if (!info->seq)
        return;
    plx_out_set_time(row, key, info->time_ns);
    snprintf(number, sizeof number, "%s_seq", key);
    json_object_set_new(row, number, json_integer((json_int_t)info->seq));
}

/* The ends of what can be opened. */
static int put_window(struct plx_cli *cli, const struct plx_vdi_info *info, json_t *row)
{
    struct plx_store *store = plx_session_store(cli);
    struct plx_snapshot_info oldest = {0}, newest = {0};
    int rc = plx_snapshot_list(store, info->slot, 1, take_first, &oldest, &cli->fault);

    /* From the newest key frame on: what came before it need not be read. */
    if (!rc && oldest.seq)
        rc = plx_snapshot_list(store, info->slot, plx_max_u64(info->snapshots, 1), take_last,
                               &newest, &cli->fault);
    put_instant(row, "newest", &newest);
    put_instant(row, "oldest", &oldest);
    return rc;
}

/* From whoever has it open; nothing when nobody has. */
static void put_counters(struct plx_cli *cli, const struct plx_name *name, json_t *row)
{
    static const struct {
        const char *counter, *key;
    } shown[] = {{"snapshot_rate", "snapshots_per_second"},
                 {"snapshots_automatic", "snapshots_taken"},
                 {"snapshots_skipped", "snapshots_skipped"}};
    struct plx_fault before = cli->fault;
    json_t *stats;

    if (plx_session_vdi_stats(cli, name, &stats)) {
        cli->fault = before;
        return;
    }
    for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++)
        json_object_set(row, shown[i].key, json_object_get(stats, shown[i].counter));
    json_object_set_new(row, "open_by", json_string("a handler of this host"));
    json_decref(stats);
}

static int status_of(struct plx_cli *cli, const struct plx_name *name,
                     const struct plx_vdi_info *info, json_t **ret_row)
{
    json_t *row = json_pack("{s:o}", "name", json_sprintf("%s/%s", name->store, name->vdi));
    int rc;

    plx_cmd_cdp_describe(row, &info->protection);
    json_object_set_new(row, "history_is_thinned", json_false());
    rc = put_window(cli, info, row);
    put_counters(cli, name, row);
    if (rc)
        json_decref(row);
    else
        *ret_row = row;
    return rc;
}

/* Until a collector thins them. */
static void note_unthinned(const struct plx_cli *cli, const struct plx_protection *protection)
{
    if (protection->tiers)
        plx_out_note(cli, "what is to be kept is recorded, but history is not yet thinned: every "
                          "snapshot is still there");
}

static int print_one(struct plx_cli *cli, const struct plx_name *name)
{
    static struct plx_vdi_info info;
    json_t *row;
    int rc;

    if ((rc = current(cli, name, &info)) || (rc = status_of(cli, name, &info, &row)))
        return rc;
    plx_out_object(cli, object_columns, row);
    note_unthinned(cli, &info.protection);
    return 0;
}

/* Those of one store that are protected. */
static int list_store(struct plx_cli *cli, const char *store, struct plx_table *table,
                      struct plx_protection *any)
{
    static struct plx_vdi_info info;
    struct plx_registry_store store_row;
    struct plx_registry_vdi *vdis = NULL;
    size_t count = 0;
    int rc = plx_session_open(cli, store, PLX_SESSION_READ);

    if (rc)
        return rc;
    if ((rc = plx_registry_store_get(cli->session.registry, store, &store_row)) ||
        (rc = plx_registry_vdi_list(cli->session.registry, store_row.id, false, NULL, 0, &vdis,
                                    &count)))
        rc = plx_session_registry_fault(cli, rc);
    for (size_t i = 0; i < count && !rc && !plx_interrupted; i++) {
        struct plx_name name = {0};
        json_t *row;

        snprintf(name.store, sizeof name.store, "%s", store);
        snprintf(name.vdi, sizeof name.vdi, "%s", vdis[i].name);
        if ((rc = plx_vdi_read_info(plx_session_store(cli), vdis[i].slot, &info, &cli->fault)) ||
            info.protection.mode == PLX_PROTECT_OFF || (rc = status_of(cli, &name, &info, &row)))
            continue;
        plx_table_row(table, row);
        if (info.protection.tiers)
            *any = info.protection;
    }
    free(vdis);
    return rc ? rc : plx_session_close(cli);
}

static int list_all(struct plx_cli *cli, struct plx_table *table, struct plx_protection *any)
{
    struct plx_registry_store *stores = NULL;
    struct plx_registry *registry;
    size_t count = 0;
    int rc = plx_session_registry(cli, &registry);

    if (rc)
        return rc;
    if ((rc = plx_registry_store_list(registry, &stores, &count)))
        rc = plx_session_registry_fault(cli, rc);
    else
        rc = plx_session_close(cli);
    for (size_t i = 0; i < count && !rc; i++)
        rc = list_store(cli, stores[i].name, table, any);
    free(stores);
    return rc;
}

int plx_cmd_cdp_status(struct plx_cli *cli)
{
    struct plx_protection any = {0};
    struct plx_table table;
    struct plx_name name;
    int rc;

    if (cli->count && strchr(cli->arguments[0], '/')) {
        if ((rc = plx_cli_name(cli, 0, PLX_NAME_VDI, &name)) ||
            (rc = plx_session_open(cli, name.store, PLX_SESSION_READ)))
            return rc;
        return print_one(cli, &name);
    }
    if (cli->count && (rc = plx_cli_name(cli, 0, PLX_NAME_STORE, &name)))
        return rc;
    plx_table_begin(&table, cli, list_columns);
    rc = cli->count ? list_store(cli, name.store, &table, &any) : list_all(cli, &table, &any);
    plx_table_end(&table);
    if (!rc)
        note_unthinned(cli, &any);
    return rc;
}
