/* cmd_snap.c - parallax snap: create, list, label, unlabel. Deleting is in cmd_snap_delete.c.
 *
 * CMD_SNAP-1  A list keeps no snapshots in memory: it reads the history once to find its page and
 *     once to print it.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "output.h"
#include "unfinished.h"
#include "registry/clock.h"
#include "registry/names.h"
#include "attach/doors.h"

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

static int check_new_label(struct plx_cli *cli, const char *label)
{
    char why[200];

    if (plx_label_check(label, why, sizeof why)) /* NAMES-2 */
        return plx_cli_usage(cli, "%s", why);
    return 0;
}

int plx_cmd_snap_create(struct plx_cli *cli)
{
    const char *label = plx_cli_get(cli, "label");
    struct plx_name name, vdi;
    uint64_t seq, time_ns;
    int rc;

    if ((rc = plx_cli_name(cli, 0, PLX_NAME_VDI_OR_SNAPSHOT, &name)))
        return rc;
    if (*name.snapshot && label && strcmp(name.snapshot, label))
        return plx_cli_usage(cli, "two labels, '%s' and '%.80s'; add one later with 'snap label'",
                             name.snapshot, label);
    label = label ? label : name.snapshot;
    if ((*label && (rc = check_new_label(cli, label))) ||
        (rc = plx_session_open(cli, name.store, PLX_SESSION_WRITE)) ||
        (*label && (rc = plx_session_label_unused(cli, &name, label))) ||
        (rc = plx_session_snapshot_create(cli, &name, label, &seq, &time_ns)))
        return rc;
    vdi = name;
    vdi.snapshot[0] = 0; /* the label */
    plx_unfinished_tell(cli, &vdi);
    if (!cli->json) {
        printf("%s/%s@%" PRIu64 "\n", name.store, name.vdi, seq);
        return 0;
    }
    json_t *row = json_pack(
        "{s:o,s:I,s:o}", "name", json_sprintf("%s/%s@%" PRIu64, name.store, name.vdi, seq), "seq",
        (json_int_t)seq, "labels", *label ? json_pack("[s]", label) : json_array());
    plx_out_set_time(row, "time", time_ns);
    plx_out_json(row);
    return 0;
}

/* ---- list -------------------------------------------------------------------------------------
 *
 * The newest page, or one that begins where it is told to.
 */

#define PAGE 100u

struct snap_listing {
    struct plx_cli *cli;
    const struct plx_name *name;
    const struct plx_registry_vdi *row;
    struct plx_vdi_clock clock;
    struct plx_table table;
    struct plx_registry_label *labels; /* by sequence number */
    size_t label_count;
    uint64_t from;       /* the first that may be listed */
    uint64_t skip, left; /* rows to pass over, rows still wanted */
    uint64_t next;       /* the first one that was not wanted any more; 0: none */
};

static int by_seq(const void *a, const void *b)
{
    const struct plx_registry_label *x = a, *y = b;

    return x->seq != y->seq ? (x->seq > y->seq) - (x->seq < y->seq) : strcmp(x->name, y->name);
}

static json_t *labels_of(const struct snap_listing *listing, uint64_t seq)
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
    struct snap_listing *listing = context;

    if (listing->skip) {
        listing->skip--;
        return !plx_session_stopped();
    }
    if (!listing->left) {
        listing->next = info->seq;
        return false;
    }
    json_t *row = json_pack(
        "{s:o,s:I,s:I,s:o}", "name",
        json_sprintf("%s/%s@%" PRIu64, listing->name->store, listing->name->vdi, info->seq), "seq",
        (json_int_t)info->seq, "size_bytes", (json_int_t)info->size_bytes, "labels",
        labels_of(listing, info->seq));
    plx_out_set_time(row, "time", info->time_ns);
    plx_cmd_clock_mark(row, &listing->clock, info);
    plx_table_row(&listing->table, row);
    listing->left--;
    return !plx_session_stopped();
}

static bool count_one(void *context, const struct plx_snapshot_info *info)
{
    ++*(uint64_t *)context;
    return !plx_session_stopped();
}

/* CMD_SNAP-1: the reading that finds the newest page. Snapshots that were let go leave gaps in the
 * numbers, so the page may begin further back than its length says. */
static int find_newest_page(struct snap_listing *listing)
{
    struct plx_snapshot_info oldest, newest;
    uint64_t back = listing->left, count = 0;
    int rc = plx_session_window(listing->cli, listing->row, &oldest, &newest);

    if (rc || !newest.seq) /* there is none: a list from the beginning says so */
        return rc;
    listing->from = newest.seq + 1;
    while (!rc && listing->from > oldest.seq && count < listing->left && !plx_session_stopped()) {
        listing->from = newest.seq > back ? newest.seq - back + 1 : 1;
        listing->from = plx_max_u64(listing->from, oldest.seq);
        count = 0;
        rc = plx_snapshot_list(plx_session_store(listing->cli), listing->row->slot, listing->from,
                               count_one, &count, &listing->cli->fault);
        back = back < UINT64_MAX / 8 ? 8 * back : UINT64_MAX;
    }
    listing->skip = count > listing->left ? count - listing->left : 0;
    if (listing->skip || (count && listing->from > oldest.seq))
        plx_out_note(listing->cli, "the newest ones; there are older ones: --from 1 begins at the "
                                   "oldest, --all lists them all");
    return rc;
}

static int list_all(struct snap_listing *listing)
{
    return plx_snapshot_list(plx_session_store(listing->cli), listing->row->slot, listing->from,
                             on_snapshot, listing, &listing->cli->fault);
}

static bool on_first(void *context, const struct plx_snapshot_info *info)
{
    on_snapshot(context, info);
    return false;
}

/* The registry has their numbers: what lies between them is not read. */
static int list_labelled(struct snap_listing *listing)
{
    int rc = 0;

    for (size_t i = 0; i < listing->label_count && !rc && !plx_session_stopped(); i++) {
        uint64_t seq = listing->labels[i].seq;

        if (seq < listing->from || (i && listing->labels[i - 1].seq == seq))
            continue;
        rc = plx_snapshot_list(plx_session_store(listing->cli), listing->row->slot, seq, on_first,
                               listing, &listing->cli->fault);
        if (listing->next)
            break;
    }
    return rc;
}

/* --from: a number, or whatever names a snapshot. A time before the oldest one is the beginning. */
static int take_from(struct plx_cli *cli, const struct plx_name *name,
                     const struct plx_registry_vdi *row, uint64_t *ret_from)
{
    const char *text = plx_cli_get(cli, "from");
    struct plx_snapshot_info oldest, newest;
    struct plx_name instant = *name;
    uint64_t time_ns;
    int rc;

    if (!text || plx_text_number_parse(text, ret_from))
        return 0;
    if ((rc = plx_cli_snapshot(cli, "from", &instant)))
        return rc;
    if ((rc = plx_session_window(cli, row, &oldest, &newest)))
        return rc;
    if (plx_instant_parse(text, plx_clock_ns(CLOCK_REALTIME), &time_ns) && newest.seq &&
        time_ns < oldest.time_ns)
        return 0;
    return plx_attach_snapshot_resolve(cli->session.attach, name->vdi, text, ret_from, &cli->fault);
}

static void note_empty(const struct snap_listing *listing, bool labelled)
{
    const struct plx_name *name = listing->name;

    if (listing->from > 1)
        plx_out_note(listing->cli, "%s/%s has no%s snapshots from %" PRIu64 " on", name->store,
                     name->vdi, labelled ? " labelled" : "", listing->from);
    else if (labelled)
        plx_out_note(listing->cli,
                     "%s/%s has no labelled snapshots; 'parallax snap label' names one",
                     name->store, name->vdi);
    else
        plx_out_note(listing->cli, "%s/%s has no snapshots; 'parallax snap create %s/%s' takes one",
                     name->store, name->vdi, name->store, name->vdi);
}

int plx_cmd_snap_list(struct plx_cli *cli)
{
    struct plx_name name;
    bool all = plx_cli_get(cli, "all"), labelled = plx_cli_get(cli, "labels");
    struct plx_registry_vdi row;
    struct snap_listing listing = {.cli = cli,
                                   .name = &name,
                                   .row = &row,
                                   .from = 1,
                                   .left = all || labelled ? UINT64_MAX : PAGE};
    struct plx_vdi_info info;
    int rc;

    if ((rc = plx_cli_name(cli, 0, PLX_NAME_VDI, &name)) ||
        (rc = plx_cli_number(cli, "limit", 1, INT64_MAX, &listing.left)))
        return rc;
    if (all && plx_cli_get(cli, "limit"))
        return plx_cli_usage(cli, "--all has no --limit");
    if ((rc = plx_session_open(cli, name.store, PLX_SESSION_READ)) ||
        (rc = plx_session_vdi_row(cli, &name, &row)) ||
        (rc = take_from(cli, &name, &row, &listing.from)))
        return rc;
    if ((rc = plx_door_read(plx_session_store(cli), &row, &info, &cli->fault)) ||
        (rc = plx_session_clock(cli, &row, &listing.clock)))
        return rc;
    if (!all && !labelled && !plx_cli_get(cli, "from") && (rc = find_newest_page(&listing)))
        return rc;
    if ((rc = plx_registry_label_list(cli->session.registry, row.id, &listing.labels,
                                      &listing.label_count)))
        return plx_session_registry_fault(cli, rc);
    if (listing.label_count)
        qsort(listing.labels, listing.label_count, sizeof *listing.labels, by_seq);
    rc = plx_table_begin(&listing.table, cli, columns);
    if (!rc) {
        rc = labelled ? list_labelled(&listing) : list_all(&listing);
        plx_table_end(&listing.table);
    }
    if (!rc && !listing.table.rows)
        note_empty(&listing, labelled);
    plx_cmd_clock_note(cli, &name, &listing.clock);
    if (!listing.next)
        plx_session_tell_newer(cli, &name);
    if (listing.next)
        plx_out_note(cli, "there are more: --from %" PRIu64 " shows the next page", listing.next);
    free(listing.labels);
    return rc;
}

/* ---- labels ---- */

int plx_cmd_snap_label(struct plx_cli *cli)
{
    const char *label = cli->arguments[1];
    struct plx_name name;
    struct plx_snapshot_info info;
    int rc;

    if ((rc = plx_cli_name(cli, 0, PLX_NAME_SNAPSHOT, &name)) ||
        (rc = check_new_label(cli, label)) ||
        (rc = plx_session_open(cli, name.store, PLX_SESSION_WRITE)) ||
        (rc = plx_session_snapshot_resolve(cli, &name, &info)) ||
        (rc = plx_session_label_set(cli, &name, label, info.seq, info.time_ns)))
        return rc;
    plx_out_note(cli, "%s/%s@%" PRIu64 " is %s", name.store, name.vdi, info.seq, label);
    json_t *object = json_pack("{s:o,s:I,s:s}", "name",
                               json_sprintf("%s/%s@%" PRIu64, name.store, name.vdi, info.seq),
                               "seq", (json_int_t)info.seq, "label", label);
    plx_out_set_time(object, "time", info.time_ns);
    plx_out_done(cli, object);
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
    plx_out_done(cli, json_pack("{s:o,s:s}", "name", json_sprintf("%s/%s", name.store, name.vdi),
                                "unlabelled", name.snapshot));
    return 0;
}
