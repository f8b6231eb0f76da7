/* cmd_clock.c - parallax cdp resume, and what other commands tell of the wall clock's doubt
 * (witness.h).
 *
 * CMD_CLOCK-1  Commands judge a doubt as the engine would, by what was kept of the disk and by this
 *     machine's clocks. The operator's word is taken only by the instance that has the disk open:
 *     another one, or this process itself.
 * CMD_CLOCK-2  What snapshots will go is told before the operator gives the word, counted as if the
 *     word had been given.
 * CMD_CLOCK-3  In doubt a time deletes nothing (deletion_clock.c). What reads a snapshot, clones it
 *     or goes back to it can be undone, so it may be chosen by such a time, with a warning.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "output.h"
#include "registry/retention.h"
#include "attach/doors.h"

static const struct plx_column columns[] = {
    {"name", "NAME", PLX_COLUMN_TEXT},
    {"doubt", "DOUBT", PLX_COLUMN_TEXT},
    {"snapshots", "GO BY TIME", PLX_COLUMN_NUMBER},
    {"freed_bytes", "FREE", PLX_COLUMN_SIZE},
    {NULL, NULL, 0},
};

/* ---- Telling ---- */

static void put_doubt(json_t *object, const struct plx_vdi_clock *clock)
{
    json_object_set_new(object, "doubt", json_string(plx_doubt_name(clock->witness.doubt)));
    if (clock->witness.doubt)
        json_object_set_new(object, "clock_off_ns",
                            json_integer((json_int_t)plx_witness_off_ns(
                                &clock->witness, &clock->now, &clock->ends)));
    plx_out_keys(object, "clock_off_ns", NULL);
}

static const char *text_of(const struct plx_vdi_clock *clock, char text[PLX_DOUBT_TEXT])
{
    return plx_witness_text(&clock->witness, &clock->now, &clock->ends, text);
}

static void put_undated(json_t *object, const struct plx_vdi_clock *clock)
{
    json_t *list = json_array();

    for (unsigned i = 0; i < clock->witness.undated_count; i++) {
        const struct plx_undated *undated = &clock->witness.undated[i];
        bool open = undated->upto == UINT64_MAX;
        json_t *one =
            json_pack("{s:I,s:I}", "first_seq", (json_int_t)(undated->after + 1), "last_seq",
                      (json_int_t)(open ? clock->ends.newest_seq : undated->upto));

        plx_out_set_time(one, "ended", open ? 0 : undated->ended_ns);
        json_array_append_new(list, one);
    }
    json_object_set_new(object, "undated", list);
}

void plx_cmd_clock_describe(json_t *object, const struct plx_vdi_clock *clock)
{
    const char *warning = json_string_value(json_object_get(object, "warning"));
    char why[PLX_DOUBT_TEXT];

    put_doubt(object, clock);
    put_undated(object, clock);
    if (clock->witness.doubt)
        json_object_set_new(object, "warning",
                            json_sprintf("%s%s%s; no snapshot expires until it is right or "
                                         "'parallax cdp resume' confirms it",
                                         warning ? warning : "", warning ? "; " : "",
                                         text_of(clock, why)));
}

void plx_cmd_clock_note(struct plx_cli *cli, const struct plx_name *name,
                        const struct plx_vdi_clock *clock)
{
    char why[PLX_DOUBT_TEXT];

    if (clock->witness.doubt)
        plx_out_note(cli, "%s/%s: %s; see 'parallax cdp status' and 'parallax cdp resume --help'",
                     name->store, name->vdi, text_of(clock, why));
    else if (clock->witness.undated_count)
        plx_out_note(cli,
                     "%s/%s: some of these were taken while the wall clock was in doubt: "
                     "later than their times say",
                     name->store, name->vdi);
}

void plx_cmd_clock_mark(json_t *row, const struct plx_vdi_clock *clock,
                        const struct plx_snapshot_info *snapshot)
{
    json_object_set_new(row, "undated",
                        json_boolean(plx_witness_is_undated(&clock->witness, snapshot->seq)));
    json_object_set_new(row, "future", json_boolean(snapshot->time_ns > clock->now.wall_ns));
}

/* ---- resume ---- */

/* CMD_CLOCK-2 */
static int resume_one(struct plx_cli *cli, const struct plx_name *name,
                      const struct plx_vdi_info *info, const struct plx_vdi_clock *clock,
                      struct plx_table *table)
{
    struct plx_session_thinning thinning = {.cli = cli, .name = name};
    const struct plx_retention_work work = plx_session_thin_work(&thinning);
    bool dry = plx_cli_get(cli, "dry-run");
    struct plx_thinned sum;
    char why[PLX_DOUBT_TEXT], size[16];
    uint64_t freed;
    int rc = plx_retention_preview(&info->protection, clock->now.wall_ns, &work, &sum, &cli->fault);

    if (!rc && !dry)
        rc = plx_session_vdi_resume(cli, name);
    if (rc)
        return rc;
    freed = (sum.blocks + sum.meta_blocks) * PLX_BLOCK_SIZE;
    plx_out_note(cli, "%s/%s: %s; %s: %" PRIu64 " snapshot%s (%s) %s expired now", name->store,
                 name->vdi, text_of(clock, why),
                 dry ? "if you say that the clock is right" : "you say that the clock is right",
                 sum.snapshots, plx_plural(sum.snapshots), plx_text_size(freed, size),
                 plx_is_or_are(sum.snapshots));
    json_t *row = json_pack(
        "{s:o,s:s,s:I,s:I,s:b}", "name", json_sprintf("%s/%s", name->store, name->vdi), "why", why,
        "snapshots", (json_int_t)sum.snapshots, "freed_bytes", (json_int_t)freed, "dry_run", dry);
    put_doubt(row, clock);
    plx_table_row(table, row);
    return 0;
}

static int resume_vdi(struct plx_cli *cli, const struct plx_name *name,
                      const struct plx_registry_vdi *vdi, struct plx_table *table, bool *ret_any)
{
    struct plx_vdi_info info = {0};
    struct plx_vdi_clock clock;
    int rc = plx_door_read(plx_session_store(cli), vdi, &info, &cli->fault);

    if (rc || (rc = plx_session_clock(cli, vdi, &clock)) || !clock.witness.doubt)
        return rc;
    *ret_any = true;
    rc = resume_one(cli, name, &info, &clock, table);
    return rc ? rc : plx_session_vdi_close(cli);
}

static int resume_store(struct plx_cli *cli, const struct plx_name *store, struct plx_table *table,
                        bool *ret_any)
{
    struct plx_registry_store row;
    struct plx_registry_vdi *vdis = NULL;
    size_t count = 0;
    int rc;

    plx_session_row(cli, &row);
    rc = plx_registry_vdi_list(cli->session.registry, row.id, false, NULL, 0, &vdis, &count);
    if (rc)
        rc = plx_session_registry_fault(cli, rc);
    for (size_t i = 0; i < count && !rc && !plx_interrupted; i++) {
        struct plx_name name = *store;

        snprintf(name.vdi, sizeof name.vdi, "%s", vdis[i].name);
        rc = resume_vdi(cli, &name, &vdis[i], table, ret_any);
    }
    free(vdis);
    return rc;
}

int plx_cmd_cdp_resume(struct plx_cli *cli)
{
    bool whole = !strchr(cli->arguments[0], '/'), any = false;
    struct plx_registry_vdi vdi;
    struct plx_table table;
    struct plx_name name;
    int rc;

    if ((rc = plx_cli_name(cli, 0, whole ? PLX_NAME_STORE : PLX_NAME_VDI, &name)) ||
        (rc = plx_session_open(cli, name.store, PLX_SESSION_WRITE)) ||
        (!whole && (rc = plx_session_vdi_row(cli, &name, &vdi))))
        return rc;
    cli->session.dry = plx_cli_get(cli, "dry-run");
    plx_table_begin(&table, cli, columns);
    table.changes = true;
    rc =
        whole ? resume_store(cli, &name, &table, &any) : resume_vdi(cli, &name, &vdi, &table, &any);
    plx_table_end(&table);
    if (!rc && !any)
        plx_out_note(cli, "%s: the wall clock is not in doubt", cli->arguments[0]);
    return rc;
}
