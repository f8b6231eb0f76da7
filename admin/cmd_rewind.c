/* cmd_rewind.c - parallax rewind: a virtual disk's contents become those of an instant.
 *
 * CMD_REWIND-1  A rewind is refused while an initiator is logged in, unless --live is given. The
 *     initiator knows nothing of the rewind, and would write its cached blocks over the result. If
 *     nobody can tell whether one is logged in, one counts as logged in.
 * CMD_REWIND-2  A signal ends a rewind at once while nothing has changed (REWIND-6). After that, or
 *     when a handler was asked, the rewind is finished, which is success and is said.
 * CMD_REWIND-3  A dry run refuses what the command would refuse, in the same order.
 */
#include <inttypes.h>
#include <string.h>

#include "cmd.h"
#include "output.h"
#include "transfer.h"
#include "unfinished.h"

static const struct plx_column columns[] = {
    {"name", "Name", PLX_COLUMN_TEXT},
    {"seq", "Contents of", PLX_COLUMN_NUMBER},
    {"time", "Taken", PLX_COLUMN_TEXT},
    {"before", "Before", PLX_COLUMN_TEXT},
    {"changed_bytes", "Differs", PLX_COLUMN_SIZE},
    {NULL, NULL, 0},
};

/* CMD_REWIND-1 */
static int check_logged_out(struct plx_cli *cli, const struct plx_name *name)
{
    char initiators[256];
    bool live;
    int rc = plx_session_vdi_is_live(cli, name, &live);

    if (rc || !live || plx_cli_get(cli, "live"))
        return rc;
    if (!plx_cmd_lun_initiators(cli, name, initiators, sizeof initiators))
        return plx_cli_fail(cli, PLX_ERR_BUSY,
                            "%s/%.120s is open in a handler, and who is logged in cannot be seen "
                            "from here; run this as root, or give --live",
                            name->store, name->vdi);
    if (*initiators)
        return plx_cli_fail(cli, PLX_ERR_BUSY,
                            "%s/%.120s: %s is logged in and would not notice; unmount and log out "
                            "there first, or give --live",
                            name->store, name->vdi, initiators);
    return 0;
}

static json_t *describe(const struct plx_name *name, const struct plx_snapshot_info *to)
{
    json_t *object = json_pack("{s:s,s:I}", "name", "", "seq", (json_int_t)to->seq);

    json_object_set_new(object, "name", json_sprintf("%s/%s", name->store, name->vdi));
    plx_out_set_time(object, "time", to->time_ns);
    plx_out_set_time(object, "before_time", 0); /* a dry run ends without it */
    plx_out_keys(object, "before_seq", NULL);
    return object;
}

/* What the real command would refuse by the disk's record. */
static int check_room(struct plx_cli *cli, const struct plx_name *name, uint64_t seq)
{
    struct plx_registry_vdi row;
    struct plx_vdi_info info;
    int rc = plx_session_vdi_row(cli, name, &row);

    if (!rc)
        rc = plx_vdi_read_info(plx_session_store(cli), row.slot, &info, &cli->fault);
    return rc ? rc : plx_attach_rewinds_refuse(cli->session.attach, &info, seq, &cli->fault);
}

/* Both ways the same differs; this one sees all of a disk that grew since. */
static int print_difference(struct plx_cli *cli, const struct plx_name *name,
                            const struct plx_snapshot_info *to)
{
    struct plx_name newest = *name, instant = *name;
    struct plx_vdi *from_vdi = NULL, *to_vdi = NULL;
    struct plx_diff_sum sum;
    int rc;

    newest.snapshot[0] = 0;
    snprintf(instant.snapshot, sizeof instant.snapshot, "%" PRIu64, to->seq);
    rc = plx_session_instant_open(cli, &instant, &from_vdi);
    if (!rc)
        rc = plx_session_instant_open(cli, &newest, &to_vdi);
    if (!rc)
        rc = plx_diff_sum(cli, from_vdi, to_vdi, &sum);
    rc = plx_session_name_moved(cli, to_vdi, rc);
    plx_session_instant_close(cli, from_vdi);
    plx_session_instant_close(cli, to_vdi);
    if (rc)
        return rc;
    json_t *object = describe(name, to);
    json_object_set_new(object, "changed_bytes",
                        json_integer((json_int_t)(sum.data_bytes + sum.zero_bytes)));
    plx_out_object(cli, columns, object);
    return 0;
}

/* UNFINISHED-1, UNFINISHED-2 */
static int rewind_marked(struct plx_cli *cli, const struct plx_name *name, uint64_t seq,
                         char ret_label[PLX_REWIND_LABEL], struct plx_snapshot_info *ret_before)
{
    struct plx_unfinished unfinished;
    struct plx_fault why;
    int marked, rc = plx_unfinished_rewinding(cli, name, seq, &unfinished);

    if (rc)
        return rc;
    rc = plx_session_vdi_rewind(cli, name, seq, ret_label, ret_before);
    why = cli->fault;
    marked = plx_unfinished_rewound(cli, name, seq, ret_before->seq, &unfinished);
    if (!rc)
        return marked;
    cli->fault = why;
    return rc;
}

static int rewind_it(struct plx_cli *cli, const struct plx_name *name,
                     const struct plx_snapshot_info *to)
{
    struct plx_snapshot_info before = {0};
    char label[PLX_REWIND_LABEL], time[48];
    bool paused;
    int rc;

    if ((rc = check_logged_out(cli, name)) ||
        (rc = plx_cmd_vdi_ring_pause(cli, name, "was not rewound", &paused)))
        return rc;
    rc = plx_session_stopped() ? plx_cli_fail(cli, PLX_ERR_INTERRUPTED,
                                              "interrupted; %s/%.120s was not rewound, and nothing "
                                              "has changed",
                                              name->store, name->vdi) /* CMD_REWIND-2 */
                               : rewind_marked(cli, name, to->seq, label, &before);
    if (paused)
        plx_cmd_vdi_ring_resume(cli, name);
    if (rc)
        return rc;
    if (plx_interrupted && plx_interrupted != SIGPIPE)
        plx_out_note(cli, "the signal came when the rewind was under way, so it was finished");
    plx_out_note(cli, "%s/%s is what it was at %s; the way back: parallax rewind %s/%s --to %s",
                 name->store, name->vdi, plx_text_time(to->time_ns, time), name->store, name->vdi,
                 label);
    json_t *object = describe(name, to);
    json_object_set_new(object, "before", json_string(label));
    json_object_set_new(object, "before_seq", json_integer((json_int_t)before.seq));
    plx_out_set_time(object, "before_time", before.time_ns);
    plx_out_object(cli, columns, object);
    return 0;
}

int plx_cmd_rewind(struct plx_cli *cli)
{
    const char *to = plx_cli_get(cli, "to");
    bool dry = plx_cli_get(cli, "dry-run") != NULL;
    struct plx_snapshot_info info;
    struct plx_name name;
    int rc;

    if ((rc = plx_cli_name(cli, 0, PLX_NAME_VDI, &name)))
        return rc;
    if (!to)
        return plx_cli_usage(cli, "--to is missing: the snapshot to go back to");
    if ((rc = plx_cli_snapshot(cli, "to", &name)) ||
        (rc = plx_session_open(cli, name.store, dry ? PLX_SESSION_READ : PLX_SESSION_WRITE)) ||
        (rc = plx_session_snapshot_resolve(cli, &name, &info)))
        return rc;
    plx_session_tell_chosen(cli, &name, &info);
    if (dry && ((rc = check_logged_out(cli, &name)) || /* CMD_REWIND-3 */
                (rc = check_room(cli, &name, info.seq))))
        return rc;
    return dry ? print_difference(cli, &name, &info) : rewind_it(cli, &name, &info);
}
