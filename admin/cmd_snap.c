/* cmd_snap.c - parallax snap: create, list, label, unlabel.
 *
 * N1  A list never holds more than a page of snapshots in memory, and --all streams.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "output.h"
#include "registry/names.h"

static const struct plx_column columns[] = {
    {"name", "NAME", PLX_COLUMN_TEXT},
    {"time", "TIME", PLX_COLUMN_TEXT},
    {"size_bytes", "SIZE", PLX_COLUMN_SIZE},
    {"labels", "LABELS", PLX_COLUMN_TEXT},
    {NULL, NULL, 0},
};

static int check_label(struct plx_cli *cli, const char *label)
{
    char why[200];

    if (plx_name_check("label", label, why, sizeof why))
        return plx_cli_usage(cli, "%s", why);
    return 0;
}

int plx_cmd_snap_create(struct plx_cli *cli)
{
    const char *label = plx_cli_get(cli, "label");
    struct plx_name name;
    uint64_t seq, time_ns;
    int rc;

    if ((rc = plx_cli_name(cli, 0, PLX_NAME_VDI_OR_SNAPSHOT, &name)))
        return rc;
    if (*name.snapshot && label && strcmp(name.snapshot, label))
        return plx_cli_usage(cli, "two labels, '%s' and '%.80s'; add one later with 'snap label'",
                             name.snapshot, label);
    label = label ? label : name.snapshot;
    if ((*label && (rc = check_label(cli, label))) ||
        (rc = plx_session_open(cli, name.store, PLX_SESSION_WRITE)) ||
        (rc = plx_session_snapshot_create(cli, &name, label, &seq, &time_ns)))
        return rc;
    if (!cli->json) {
        printf("%s/%s@%" PRIu64 "\n", name.store, name.vdi, seq);
        return 0;
    }
    json_t *row =
        json_pack("{s:o,s:I}", "name", json_sprintf("%s/%s@%" PRIu64, name.store, name.vdi, seq),
                  "seq", (json_int_t)seq);
    if (*label)
        json_object_set_new(row, "labels", json_pack("[s]", label));
    plx_out_set_time(row, "time", time_ns);
    plx_out_json(row);
    return 0;
}

/* ---- list -------------------------------------------------------------------------------------
 */

struct listing {
    struct plx_cli *cli;
    const struct plx_name *name;
    struct plx_table table;
    struct plx_registry_label *labels; /* by sequence number */
    size_t label_count;
    bool labelled_only, more;
    uint64_t left, last; /* rows still wanted, sequence number of the last one */
};

static int by_seq(const void *a, const void *b)
{
    const struct plx_registry_label *x = a, *y = b;

    return x->seq != y->seq ? (x->seq > y->seq) - (x->seq < y->seq) : strcmp(x->name, y->name);
}

static json_t *labels_of(const struct listing *listing, uint64_t seq)
{
    json_t *names = json_array();
    size_t low = 0, high = listing->label_count;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (listing->labels[middle].seq < seq)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < listing->label_count && listing->labels[low].seq == seq; low++)
        json_array_append_new(names, json_string(listing->labels[low].name));
    return names;
}

static bool on_snapshot(void *context, const struct plx_snapshot_info *info)
{
    struct listing *listing = context;
    json_t *names = labels_of(listing, info->seq);

    if (listing->labelled_only && !json_array_size(names)) {
        json_decref(names);
        return !plx_interrupted;
    }
    if (!listing->left) {
        listing->more = true;
        json_decref(names);
        return false;
    }
    json_t *row = json_pack(
        "{s:o,s:I,s:I,s:o}", "name",
        json_sprintf("%s/%s@%" PRIu64, listing->name->store, listing->name->vdi, info->seq), "seq",
        (json_int_t)info->seq, "size_bytes", (json_int_t)info->size_bytes, "labels", names);
    plx_out_set_time(row, "time", info->time_ns);
    plx_table_row(&listing->table, row);
    listing->last = info->seq;
    listing->left--;
    return !plx_interrupted;
}

int plx_cmd_snap_list(struct plx_cli *cli)
{
    struct plx_name name;
    struct listing listing = {.cli = cli,
                              .name = &name,
                              .left = plx_cli_get(cli, "all") ? UINT64_MAX : 100,
                              .labelled_only = plx_cli_get(cli, "labels")};
    struct plx_registry_vdi row;
    uint64_t after = 0;
    int rc;

    if ((rc = plx_cli_name(cli, 0, PLX_NAME_VDI, &name)) ||
        (rc = plx_cli_number(cli, "limit", 1, INT64_MAX, &listing.left)) ||
        (rc = plx_cli_number(cli, "after", 0, INT64_MAX, &after)) ||
        (rc = plx_session_open(cli, name.store, PLX_SESSION_READ)) ||
        (rc = plx_session_vdi_row(cli, &name, &row)))
        return rc;
    if ((rc = plx_registry_label_list(cli->session.registry, row.id, &listing.labels,
                                      &listing.label_count)))
        return plx_session_registry_fault(cli, rc);
    if (listing.label_count)
        qsort(listing.labels, listing.label_count, sizeof *listing.labels, by_seq);
    plx_table_begin(&listing.table, cli, columns);
    rc = plx_snapshot_list(plx_session_store(cli), row.slot, after + 1, on_snapshot, &listing,
                           &cli->fault);
    plx_table_end(&listing.table);
    if (listing.more)
        plx_out_note(cli, "there are more: --after %" PRIu64 " shows the next page", listing.last);
    free(listing.labels);
    return rc;
}

/* ---- labels ------------------------------------------------------------------------------------
 */

int plx_cmd_snap_label(struct plx_cli *cli)
{
    const char *label = cli->arguments[1];
    struct plx_name name;
    struct plx_snapshot_info info;
    int rc;

    if ((rc = plx_cli_name(cli, 0, PLX_NAME_SNAPSHOT, &name)) || (rc = check_label(cli, label)) ||
        (rc = plx_session_open(cli, name.store, PLX_SESSION_WRITE)) ||
        (rc = plx_session_snapshot_resolve(cli, &name, &info)) ||
        (rc = plx_session_label_set(cli, &name, label, info.seq, info.time_ns)))
        return rc;
    plx_out_note(cli, "%s/%s@%" PRIu64 " is %s", name.store, name.vdi, info.seq, label);
    return 0;
}

int plx_cmd_snap_unlabel(struct plx_cli *cli)
{
    struct plx_name name;
    int rc;

    if ((rc = plx_cli_name(cli, 0, PLX_NAME_SNAPSHOT, &name)) ||
        (rc = check_label(cli, name.snapshot)) ||
        (rc = plx_session_open(cli, name.store, PLX_SESSION_WRITE)) ||
        (rc = plx_session_label_remove(cli, &name, name.snapshot)))
        return rc;
    plx_out_note(cli, "%s/%s has no label %s any more", name.store, name.vdi, name.snapshot);
    return 0;
}
