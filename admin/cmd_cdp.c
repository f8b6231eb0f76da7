/* cmd_cdp.c - parallax cdp: on, off, status, apply. The timeline is in cmd_timeline.c. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "output.h"
#include "unfinished.h"
#include "registry/clock.h"
#include "registry/collections.h"
#include "registry/instance.h"
#include "registry/policy.h"
#include "registry/retention.h"
#include "attach/doors.h"

static const struct plx_column object_columns[] = {
    {"name", "Name", PLX_COLUMN_TEXT},
    {"protection", "Protection", PLX_COLUMN_TEXT},
    {"retention", "Kept", PLX_COLUMN_TEXT},
    {"on_full", "When full", PLX_COLUMN_TEXT},
    {"open_by", "Open by", PLX_COLUMN_TEXT},
    {"ring", "Ring", PLX_COLUMN_TEXT},
    {"newest", "Newest", PLX_COLUMN_TEXT},
    {"newest_seq", "Its number", PLX_COLUMN_NUMBER},
    {"oldest", "Oldest", PLX_COLUMN_TEXT},
    {"oldest_seq", "Its number", PLX_COLUMN_NUMBER},
    {"window", "Window", PLX_COLUMN_TEXT},
    {"held", "Held", PLX_COLUMN_TEXT},
    {"snapshots_per_second", "A second now", PLX_COLUMN_NUMBER},
    {"snapshots_taken", "Taken", PLX_COLUMN_NUMBER},
    {"snapshots_skipped", "Left out", PLX_COLUMN_NUMBER},
    {"warning", "Warning", PLX_COLUMN_TEXT},
    {NULL, NULL, 0},
};

static const struct plx_column list_columns[] = {
    {"name", "NAME", PLX_COLUMN_TEXT},
    {"protection", "PROTECTION", PLX_COLUMN_TEXT},
    {"retention", "KEPT", PLX_COLUMN_TEXT},
    {"newest", "NEWEST", PLX_COLUMN_TEXT},
    {"oldest", "OLDEST", PLX_COLUMN_TEXT},
    {"window", "WINDOW", PLX_COLUMN_TEXT},
    {"snapshots_per_second", "A SECOND", PLX_COLUMN_NUMBER},
    {"snapshots_skipped", "LEFT OUT", PLX_COLUMN_NUMBER},
    {"ring", "RING", PLX_COLUMN_TEXT},
    {"warning", "WARNING", PLX_COLUMN_TEXT},
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
    plx_out_keys(object, "interval_ns", "retention", NULL);
}

/* ---- on, off ---- */

/* Without any of them: how snapshots are taken already, or the default. */
static int mode_given(struct plx_cli *cli, const struct plx_protection *now,
                      struct plx_protection *protection)
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
    if (!batch && !write && now && now->mode != PLX_PROTECT_OFF) {
        protection->mode = now->mode;
        protection->interval_ns = now->interval_ns;
        return 0;
    }
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

    return rc ? rc : plx_door_read(plx_session_store(cli), &row, ret_info, &cli->fault);
}

static const char *const on_full_words[] = {"shorten", "keep", NULL};

/* A policy of the registry's alone, no row for the default. */
static int set_on_full(struct plx_cli *cli, const struct plx_name *name)
{
    struct plx_registry_vdi row;
    unsigned word = 0;
    int rc;

    if (!plx_cli_get(cli, "on-full"))
        return 0;
    if ((rc = plx_cli_choice(cli, "on-full", on_full_words, &word)) ||
        (rc = plx_session_vdi_row(cli, name, &row)))
        return rc;
    rc = plx_registry_policy_set(cli->session.registry, row.id, PLX_POLICY_ON_FULL,
                                 word ? on_full_words[word] : NULL);
    return rc && (word || rc != PLX_ERR_NOT_FOUND) ? plx_session_registry_fault(cli, rc) : 0;
}

static int print_one(struct plx_cli *cli, const struct plx_name *name);

/* What is wrong with the words is said before a store is opened. */
static int set_protection(struct plx_cli *cli, bool on)
{
    struct plx_protection protection = {0};
    struct plx_vdi_info info = {0};
    struct plx_name name;
    char mode[PLX_MODE_TEXT + 8], tiers[PLX_TIERS_TEXT];
    unsigned word = 0;
    int rc;

    if ((rc = plx_cli_name(cli, 0, PLX_NAME_VDI, &name)) ||
        (on &&
         ((rc = mode_given(cli, NULL, &protection)) || (rc = tiers_given(cli, NULL, &protection)) ||
          (rc = plx_cli_choice(cli, "on-full", on_full_words, &word)))) ||
        (rc = plx_session_open(cli, name.store, PLX_SESSION_WRITE)) ||
        (rc = current(cli, &name, &info)))
        return rc;
    if (!on) {
        protection = info.protection;
        protection.mode = PLX_PROTECT_OFF;
        protection.interval_ns = 0;
    } else if ((rc = mode_given(cli, &info.protection, &protection)) ||
               (rc = tiers_given(cli, &info.protection, &protection))) {
        return rc;
    }
    if ((rc = plx_session_vdi_protect(cli, &name, &protection)) ||
        (on && (rc = set_on_full(cli, &name))))
        return rc;
    if (on)
        plx_unfinished_tell(cli, &name);
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

/* ---- status ---- */

static void put_instant(json_t *row, const char *key, const struct plx_snapshot_info *info)
{
    char number[24];

    if (!info->seq)
        return;
    plx_out_set_time(row, key, info->time_ns);
    snprintf(number, sizeof number, "%s_seq", key);
    json_object_set_new(row, number, json_integer((json_int_t)info->seq));
}

#define SECOND_NS 1000000000ull

/* The service had to let snapshots go before their time, and that still shows. */
static void warn_shortened(struct plx_cli *cli, const char *vdi, uint64_t oldest_wanted_ns,
                           json_t *row)
{
    char text[PLX_POLICY_VALUE_MAX + 1], when[48];
    uint64_t at_ns, begin_ns;

    if (plx_registry_policy_get(cli->session.registry, vdi, PLX_POLICY_SHORTENED, text) ||
        sscanf(text, "%" SCNu64 " %" SCNu64, &at_ns, &begin_ns) != 2 ||
        begin_ns <= oldest_wanted_ns)
        return;
    json_object_set_new(row, "warning",
                        json_sprintf("window shortened at %s: the store was nearly full",
                                     plx_text_time(at_ns, when)));
    plx_out_set_time(row, "shortened", at_ns);
}

/* How far back it goes, against how far it is to. */
static void put_window(struct plx_cli *cli, const struct plx_registry_vdi *vdi,
                       const struct plx_protection *policy, uint64_t oldest_ns, json_t *row)
{
    uint64_t now = plx_clock_ns(CLOCK_REALTIME), asked_ns = plx_retention_window_ns(policy);
    uint64_t is_ns = oldest_ns && now > oldest_ns ? now - oldest_ns : 0;
    char is[32], asked[32];

    if (!oldest_ns)
        return;
    json_object_set_new(row, "window_ns", json_integer((json_int_t)is_ns));
    plx_text_duration(is_ns / SECOND_NS, is);
    if (!asked_ns || policy->mode == PLX_PROTECT_OFF) {
        json_object_set_new(row, "window", json_string(is));
        return;
    }
    json_object_set_new(row, "window_asked_ns", json_integer((json_int_t)asked_ns));
    json_object_set_new(row, "window",
                        json_sprintf(is_ns > asked_ns ? "%s, asked for %s" : "%s of %s", is,
                                     plx_text_duration(asked_ns / SECOND_NS, asked)));
    warn_shortened(cli, vdi->id, now > asked_ns ? now - asked_ns : 0, row);
}

/* The ends of what can be opened. */
static int put_ends(struct plx_cli *cli, const struct plx_registry_vdi *vdi,
                    const struct plx_protection *policy, json_t *row)
{
    struct plx_snapshot_info oldest, newest;
    int rc = plx_session_window(cli, vdi, &oldest, &newest);

    put_instant(row, "newest", &newest);
    put_instant(row, "oldest", &oldest);
    put_window(cli, vdi, policy, oldest.time_ns, row);
    return rc;
}

/* Who reads which snapshot. */
static int put_holds(struct plx_cli *cli, const char *vdi, json_t *row)
{
    struct plx_registry *registry = cli->session.registry;
    struct plx_registry_hold *holds = NULL;
    size_t count = 0;
    int rc = plx_registry_hold_list(registry, vdi, &holds, &count);
    json_t *list = json_array(), *texts = json_array();

    for (size_t i = 0; i < count && !rc; i++) {
        struct plx_registry_instance who;
        json_t *hold;

        if (plx_registry_instance_get(registry, holds[i].instance, &who))
            continue; /* it has just ended */
        hold = json_pack("{s:I,s:s,s:I,s:s}", "seq", (json_int_t)holds[i].seq, "by", who.role,
                         "pid", (json_int_t)who.pid, "host", who.host_name);
        plx_out_set_time(hold, "since", holds[i].since_ns);
        json_array_append_new(list, hold);
        json_array_append_new(texts,
                              json_sprintf("%" PRIu64 " by %s (pid %lld) on %s", holds[i].seq,
                                           cli->json ? who.role : plx_instance_kind(who.role),
                                           (long long)who.pid, who.host_name));
    }
    free(holds);
    json_object_set(row, "held", texts);
    json_object_set(row, "holds", list);
    json_decref(list);
    json_decref(texts);
    return rc ? plx_session_registry_fault(cli, rc) : 0;
}

static int put_on_full(struct plx_cli *cli, const char *vdi, json_t *row)
{
    char text[PLX_POLICY_VALUE_MAX + 1];
    int rc = plx_registry_policy_get(cli->session.registry, vdi, PLX_POLICY_ON_FULL, text);

    if (rc && rc != PLX_ERR_NOT_FOUND)
        return plx_session_registry_fault(cli, rc);
    json_object_set_new(row, "on_full", json_string(rc ? on_full_words[0] : text));
    return 0;
}

/* Counters of the instance that has the disk open, since it opened the disk; none if it is
 * closed. */
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

/* HOLDS-9: then nothing of this disk goes, whatever is to be kept. */
static int warn_kept(struct plx_cli *cli, const struct plx_registry_vdi *vdi, json_t *row)
{
    struct plx_registry_vdi *strays = NULL;
    size_t count = 0, i = 0;
    int rc = plx_registry_vdi_strays(cli->session.registry, vdi->store, &strays, &count);

    if (rc)
        return plx_session_registry_fault(cli, rc);
    while (i < count && strcmp(strays[i].id, vdi->id) == 0)
        i++;
    if (i < count)
        json_object_set_new(
            row, "warning",
            json_sprintf("no snapshot goes: nobody knows the origin of clone %s", strays[i].name));
    free(strays);
    return 0;
}

static int status_of(struct plx_cli *cli, const struct plx_name *name,
                     const struct plx_registry_vdi *vdi, const struct plx_vdi_info *info,
                     json_t **ret_row)
{
    json_t *row = json_pack("{s:o}", "name", json_sprintf("%s/%s", name->store, name->vdi));
    struct plx_vdi_clock clock;
    int rc;

    json_object_set_new(row, "store_doubt", plx_session_doubt(cli));
    plx_cmd_cdp_describe(row, &info->protection);
    if ((rc = plx_session_clock(cli, vdi, &clock)) ||
        (rc = put_ends(cli, vdi, &info->protection, row)) || (rc = put_holds(cli, vdi->id, row)) ||
        (info->protection.tiers && (rc = put_on_full(cli, vdi->id, row))) ||
        (rc = warn_kept(cli, vdi, row))) {
        json_decref(row);
        return rc;
    }
    plx_cmd_clock_describe(row, &clock);
    put_counters(cli, name, row);
    if ((rc = plx_cmd_vdi_ring_describe(cli, name, vdi, info, row))) {
        json_decref(row);
        return rc;
    }
    plx_out_keys(row, "newest", "newest_ns", "newest_seq", "oldest", "oldest_ns", "oldest_seq",
                 "window", "window_ns", "window_asked_ns", "warning", "shortened", "shortened_ns",
                 "on_full", "snapshots_per_second", "snapshots_taken", "snapshots_skipped",
                 "open_by", NULL);
    *ret_row = row;
    return 0;
}

static int print_one(struct plx_cli *cli, const struct plx_name *name)
{
    struct plx_registry_vdi vdi;
    struct plx_vdi_info info;
    json_t *row;
    int rc;

    plx_session_tell_doubt(cli);
    if ((rc = plx_session_vdi_row(cli, name, &vdi)) ||
        (rc = plx_door_read(plx_session_store(cli), &vdi, &info, &cli->fault)) ||
        (rc = status_of(cli, name, &vdi, &info, &row)))
        return rc;
    plx_out_object(cli, object_columns, row);
    return 0;
}

/* Those of one store that are protected. One that cannot be read does not hide the others: its
 * error comes after them. */
static int list_store(struct plx_cli *cli, const char *store, struct plx_table *table)
{
    struct plx_fault first = {0};
    struct plx_vdi_info info = {0};
    struct plx_registry_store store_row;
    struct plx_registry_vdi *vdis = NULL;
    size_t count = 0;
    int rc = plx_session_open(cli, store, PLX_SESSION_READ);

    if (rc)
        return rc;
    plx_session_row(cli, &store_row);
    plx_session_tell_doubt(cli);
    if ((rc = plx_registry_vdi_list(cli->session.registry, store_row.id, false, NULL, 0, &vdis,
                                    &count)))
        return plx_session_registry_fault(cli, rc);
    for (size_t i = 0; i < count && !plx_session_stopped(); i++) {
        struct plx_name name = {0};
        json_t *row;

        snprintf(name.store, sizeof name.store, "%s", store);
        snprintf(name.vdi, sizeof name.vdi, "%s", vdis[i].name);
        rc = plx_door_read(plx_session_store(cli), &vdis[i], &info, &cli->fault);
        if (rc == PLX_ERR_NOT_FOUND)
            continue;
        if (!rc && info.protection.mode != PLX_PROTECT_OFF &&
            !(rc = status_of(cli, &name, &vdis[i], &info, &row)))
            plx_table_row(table, row);
        if (rc && !first.code) {
            first = cli->fault;
            first.code = rc;
        }
    }
    free(vdis);
    if (first.code)
        cli->fault = first;
    return first.code;
}

static int visit_store(struct plx_cli *cli, const struct plx_known *known, void *table)
{
    int rc = list_store(cli, known->name, table);

    return rc ? rc : plx_cmd_look_at_lost(cli, known->name, "");
}

int plx_cmd_cdp_status(struct plx_cli *cli)
{
    struct plx_table table;
    struct plx_name name;
    int rc;

    if (cli->count && strchr(cli->arguments[0], '/')) {
        if ((rc = plx_table_only(cli, "the status of one disk")) ||
            (rc = plx_cli_name(cli, 0, PLX_NAME_VDI, &name)) ||
            (rc = plx_session_open(cli, name.store, PLX_SESSION_READ)))
            return rc;
        return print_one(cli, &name);
    }
    if (cli->count && (rc = plx_cli_name(cli, 0, PLX_NAME_STORE, &name)))
        return rc;
    if ((rc = plx_table_begin(&table, cli, list_columns)))
        return rc;
    rc = plx_session_each_store(cli, cli->count ? name.store : "", visit_store, &table);
    plx_table_end(&table);
    if (!rc && !table.rows && !cli->session.no_stores)
        plx_out_note(cli, "no virtual disk takes snapshots by itself; 'parallax cdp on' makes one");
    return rc;
}

/* ---- apply ---- */

/* Of what a policy lets go, and of what goes for want of space. */
struct applied {
    struct plx_thinned aged, early;
    bool is_low;        /* afterwards */
    bool dry_run;       /* nothing went; is_low: some would go early */
    bool collect_first; /* nothing goes early before a collection */
};

/* All of it is counted: what is asked for less is found in as few extents, and these may be nearly
 * full ones. */
static int room_below(struct plx_cli *cli, uint64_t enough, bool *ret_below)
{
    struct plx_store_info info = {0};
    uint64_t room = 0;
    int rc;

    plx_store_get_info(plx_session_store(cli), &info);
    rc = plx_attach_data_room(cli->session.attach, info.extents * info.extent_blocks, &room,
                              &cli->fault);
    *ret_below = !rc && room < enough;
    return rc;
}

/* What the handler's service does when it finds space low (tcmu/SERVICE-4), for this disk. */
static int shorten(struct plx_cli *cli, const struct plx_registry_vdi *row,
                   const struct plx_retention_work *work, struct applied *applied)
{
    uint64_t low = plx_attach_low_blocks(cli->session.attach);
    struct plx_snapshot_info oldest, newest;
    struct plx_thinned *sum = &applied->early, step = {.snapshots = 1};
    int rc = room_below(cli, low, &applied->is_low);

    for (bool more = applied->is_low; more && !rc && step.snapshots;) {
        if (!(rc = plx_session_window(cli, row, &oldest, &newest)))
            rc = plx_retention_shorten(work, oldest.seq, newest.seq, &step, &cli->fault);
        sum->snapshots += step.snapshots;
        sum->blocks += step.blocks;
        sum->meta_blocks += step.meta_blocks;
        rc = rc ? rc : room_below(cli, 2 * low, &more);
    }
    rc = rc ? rc : room_below(cli, low, &applied->is_low);
    if (sum->snapshots && !rc && !(rc = plx_session_window(cli, row, &oldest, &newest)) &&
        (rc = plx_retention_tell_shortened(cli->session.registry, row->id, oldest.time_ns)))
        plx_session_registry_fault(cli, rc);
    return rc;
}

/* While space is low, for a disk that is protected now, and not before what is garbage already has
 * come back: that may be room enough. A handler that has it open does so itself,
 * and what room it has cannot be seen from here. */
static int make_room(struct plx_cli *cli, const struct plx_name *name,
                     const struct plx_protection *protection, const struct plx_retention_work *work,
                     struct applied *applied)
{
    char on_full[PLX_POLICY_VALUE_MAX + 1];
    struct plx_registry_collection last;
    struct plx_registry_vdi row;
    bool live;
    int rc;

    if (protection->mode == PLX_PROTECT_OFF)
        return 0;
    if ((rc = plx_session_vdi_row(cli, name, &row)) ||
        (rc = plx_session_vdi_is_live(cli, name, &live)) || live)
        return rc;
    rc = plx_registry_policy_get(cli->session.registry, row.id, PLX_POLICY_ON_FULL, on_full);
    if (rc && rc != PLX_ERR_NOT_FOUND)
        return plx_session_registry_fault(cli, rc);
    if (!rc && strcmp(on_full, "keep") == 0)
        return 0;
    if ((rc = room_below(cli, plx_attach_low_blocks(cli->session.attach), &applied->is_low)) ||
        !applied->is_low)
        return rc;
    applied->collect_first =
        plx_registry_collection_is_due(cli->session.registry, row.store, &last);
    return applied->dry_run || applied->collect_first ? 0 : shorten(cli, &row, work, applied);
}

/* What the policy lets go. In doubt a dry run ends as the real one does (CMD_CLOCK-1). */
static int apply_policy(struct plx_cli *cli, const struct plx_name *name,
                        const struct plx_protection *protection,
                        const struct plx_retention_work *work, struct applied *applied)
{
    uint64_t now_ns = plx_clock_ns(CLOCK_REALTIME);
    struct plx_retention retention = {0};
    struct plx_registry_vdi row;
    struct plx_vdi_clock clock;
    char why[PLX_DOUBT_TEXT];
    int rc;

    if (!applied->dry_run) {
        plx_retention_set(&retention, protection);
        return plx_retention_apply(&retention, now_ns, work, &applied->aged, &cli->fault);
    }
    if ((rc = plx_session_vdi_row(cli, name, &row)) || (rc = plx_session_clock(cli, &row, &clock)))
        return rc;
    if (clock.witness.doubt)
        return plx_cli_fail(cli, PLX_ERR_CLOCK,
                            "%s/%.100s: no snapshot would go by time: %s; 'parallax cdp resume "
                            "--dry-run' counts what would go if the clock is right",
                            name->store, name->vdi,
                            plx_witness_text(&clock.witness, &clock.now, &clock.ends, why));
    return plx_retention_preview(protection, now_ns, work, &applied->aged, &cli->fault);
}

static void print_applied(struct plx_cli *cli, const struct plx_name *name,
                          const struct applied *applied)
{
    const struct plx_thinned *aged = &applied->aged, *early = &applied->early;
    uint64_t gone = aged->snapshots + early->snapshots;
    uint64_t freed =
        (aged->blocks + aged->meta_blocks + early->blocks + early->meta_blocks) * PLX_BLOCK_SIZE;
    char size[16];

    plx_out_note(cli, "%s/%s: %" PRIu64 " snapshot%s %s, %s %s", name->store, name->vdi, gone,
                 plx_plural(gone), applied->dry_run ? "would go" : "gone",
                 plx_text_size(freed, size), applied->dry_run ? "would come back" : "came back");
    if (applied->collect_first)
        plx_out_note(cli,
                     "the store is nearly full, and what was deleted has not come back: 'parallax "
                     "gc %s' first; no snapshot goes before its time until then",
                     name->store);
    else if (applied->dry_run && applied->is_low)
        plx_out_note(cli, "the store is nearly full: if that is not enough, the oldest would go "
                          "before their time as well; how many is known only when they go");
    else if (early->snapshots)
        plx_out_note(cli, "the store was nearly full: %" PRIu64 " of them went before their time",
                     early->snapshots);
    if (!applied->dry_run && !applied->collect_first && applied->is_low)
        plx_out_note(cli, "the store is still nearly full, and no more of %s/%s can go",
                     name->store, name->vdi);
    if (cli->json)
        plx_out_json(json_pack("{s:o,s:I,s:I,s:I,s:b}", "name",
                               json_sprintf("%s/%s", name->store, name->vdi), "snapshots",
                               (json_int_t)gone, "early", (json_int_t)early->snapshots,
                               "freed_bytes", (json_int_t)freed, "dry_run", applied->dry_run));
}

/* However full the store is. */
static int refuse_keeping_all(struct plx_cli *cli, const struct plx_name *name)
{
    return plx_cli_fail(cli, PLX_ERR_BUSY,
                        "%s/%.80s keeps all its snapshots, even if the store is full; 'parallax "
                        "snap delete %s/%.80s@..-1d' deletes those that are older than a day, "
                        "'parallax cdp on %s/%.80s --keep all:1d' keeps them that long from now on",
                        name->store, name->vdi, name->store, name->vdi, name->store, name->vdi);
}

int plx_cmd_cdp_apply(struct plx_cli *cli)
{
    struct plx_name name;
    struct plx_session_thinning thinning = {.cli = cli, .name = &name};
    const struct plx_retention_work work = plx_session_thin_work(&thinning);
    struct applied applied = {.dry_run = plx_cli_get(cli, "dry-run")};
    struct plx_vdi_info info;
    struct plx_fault doubt;
    int rc, aged;

    cli->session.dry = applied.dry_run;
    if ((rc = plx_cli_name(cli, 0, PLX_NAME_VDI, &name)) ||
        (rc = plx_session_open(cli, name.store, PLX_SESSION_WRITE)) ||
        (rc = current(cli, &name, &info)))
        return rc;
    if (!info.protection.tiers)
        return refuse_keeping_all(cli, &name);
    aged = apply_policy(cli, &name, &info.protection, &work, &applied);
    if (aged && aged != PLX_ERR_CLOCK) /* by number they go all the same */
        return aged;
    doubt = cli->fault;
    if ((rc = make_room(cli, &name, &info.protection, &work, &applied)))
        return rc;
    cli->fault = doubt;
    if (!aged || applied.early.snapshots)
        print_applied(cli, &name, &applied);
    return aged;
}
