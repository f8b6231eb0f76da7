/* cmd_snap_delete.c - parallax snap delete: single snapshots and ranges.
 *
 * D1  Everything that is wrong with what was asked is said before anything is changed.
 * D2  A label goes because it was named, or because --force says so; never as one of many.
 * D3  What others need stays: single snapshots are refused then, ranges pass over them.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "output.h"
#include "registry/retention.h"

/* One argument: a snapshot, or all from first to last. */
struct target {
    const char *text;
    uint64_t first, last;
    bool single;
    const char *named[2]; /* the words it was given by; NULL: none */
};

struct deletion {
    struct plx_cli *cli;
    struct plx_name name; /* the disk */
    struct plx_registry_vdi row;
    bool force, dry_run, newest_stays;
    struct plx_snapshot_info oldest, newest;
    struct target targets[PLX_ARGUMENTS_MAX];
    unsigned count;
    struct plx_registry_label *labels; /* of the disk; those to go come first */
    size_t label_count, labels_going;
    struct plx_thinned sum;
};

/* ---- What was asked ----------------------------------------------------------------------------
 */

static bool is_number(const char *text)
{
    return *text && strspn(text, "0123456789") == strlen(text);
}

/* All of one disk. */
static int take_name(struct deletion *d, const struct plx_name *name)
{
    if (!*d->name.store)
        d->name = *name;
    if (strcmp(d->name.store, name->store) || strcmp(d->name.vdi, name->vdi))
        return plx_cli_usage(d->cli,
                             "%s/%.80s and %s/%.80s: snapshots of one virtual disk at a time",
                             d->name.store, d->name.vdi, name->store, name->vdi);
    *d->name.snapshot = 0;
    return 0;
}

/* The end of a range as text: STORE/VDI@END. Empty: open. */
static int take_end(struct deletion *d, const char *text, int name_length, const char *end,
                    int end_length, struct plx_name *ret_name)
{
    char word[sizeof(struct plx_name) + 4];

    snprintf(word, sizeof word, "%.*s%s%.*s", name_length, text, end_length ? "@" : "", end_length,
             end);
    if (plx_text_name_parse(word, end_length ? PLX_NAME_SNAPSHOT : PLX_NAME_VDI, ret_name,
                            &d->cli->fault))
        return d->cli->fault.code = PLX_ERR_USAGE;
    return take_name(d, ret_name);
}

/* What is wrong with the words is said before a store is opened. */
static int parse(struct deletion *d, unsigned i, struct plx_name *ret_first,
                 struct plx_name *ret_last)
{
    const char *text = d->cli->arguments[i], *at = strchr(text, '@');
    const char *dots = at ? strstr(at, "..") : NULL;
    int rc, length = (int)(at ? at - text : 0);

    d->targets[i] = (struct target){.text = text, .single = !dots};
    if (!dots)
        return (rc = plx_cli_name(d->cli, i, PLX_NAME_SNAPSHOT, ret_first))
                   ? rc
                   : take_name(d, ret_first);
    rc = take_end(d, text, length, at + 1, (int)(dots - at - 1), ret_first);
    return rc ? rc : take_end(d, text, length, dots + 2, (int)strlen(dots + 2), ret_last);
}

static int parse_all(struct deletion *d, struct plx_name *firsts, struct plx_name *lasts)
{
    int rc = 0;

    d->count = d->cli->count;
    for (unsigned i = 0; i < d->count && !rc; i++)
        rc = parse(d, i, &firsts[i], &lasts[i]);
    return rc;
}

/* ---- Which snapshots that is -------------------------------------------------------------------
 */

static const struct plx_registry_label *find_label(const struct deletion *d, const char *name)
{
    for (size_t i = 0; i < d->label_count; i++)
        if (strcmp(d->labels[i].name, name) == 0)
            return &d->labels[i];
    return NULL;
}

/* The first snapshot that a range from here has: of a time, the first that is not older. */
static int resolve_first(struct deletion *d, const struct plx_name *name, uint64_t *ret_seq)
{
    struct plx_snapshot_info found;
    uint64_t time_ns;
    int rc;

    if (!*name->snapshot || is_number(name->snapshot) || find_label(d, name->snapshot) ||
        !plx_time_parse(name->snapshot, &time_ns)) {
        *ret_seq = 1;
        return *name->snapshot
                   ? plx_attach_snapshot_resolve(d->cli->session.attach, name->vdi, name->snapshot,
                                                 ret_seq, &d->cli->fault)
                   : 0;
    }
    if (time_ns < d->oldest.time_ns) {
        *ret_seq = 1;
        return 0;
    }
    rc = plx_session_snapshot_resolve(d->cli, name, &found);
    if (!rc)
        *ret_seq = found.seq + (found.time_ns < time_ns);
    return rc;
}

static int resolve_range(struct deletion *d, struct target *target, const struct plx_name *first,
                         const struct plx_name *last)
{
    int rc = resolve_first(d, first, &target->first);

    target->last = d->newest.seq;
    if (!rc && *last->snapshot)
        rc = plx_attach_snapshot_resolve(d->cli->session.attach, last->vdi, last->snapshot,
                                         &target->last, &d->cli->fault);
    if (rc)
        return rc;
    if (target->last < target->first)
        return plx_cli_fail(d->cli, PLX_ERR_INVALID, "%s: the range is empty", target->text);
    d->newest_stays |= target->last >= d->newest.seq;
    target->first = plx_max_u64(target->first, 1);
    target->last = plx_min_u64(target->last, d->newest.seq - 1);
    target->named[0] = first->snapshot;
    target->named[1] = last->snapshot;
    return 0;
}

static int resolve_single(struct deletion *d, struct target *target, const struct plx_name *name)
{
    struct plx_snapshot_info found;
    int rc = plx_session_snapshot_resolve(d->cli, name, &found);

    if (rc)
        return rc;
    if (found.seq == d->newest.seq)
        return plx_cli_fail(d->cli, PLX_ERR_INVALID,
                            "%s is the newest snapshot, which always stays; take another one first "
                            "('parallax snap create'), or take its label away ('snap unlabel')",
                            target->text);
    target->first = target->last = found.seq;
    target->named[0] = name->snapshot;
    return 0;
}

static int resolve_all(struct deletion *d, const struct plx_name *firsts,
                       const struct plx_name *lasts)
{
    int rc = plx_session_window(d->cli, d->row.slot, &d->oldest, &d->newest);

    if (!rc && !d->newest.seq)
        rc = plx_cli_fail(d->cli, PLX_ERR_NOT_FOUND, "%s/%s has no snapshots", d->name.store,
                          d->name.vdi);
    for (unsigned i = 0; i < d->count && !rc; i++)
        rc = d->targets[i].single ? resolve_single(d, &d->targets[i], &firsts[i])
                                  : resolve_range(d, &d->targets[i], &firsts[i], &lasts[i]);
    return rc;
}

/* ---- What stands against it --------------------------------------------------------------------
 */

static const struct target *target_of(const struct deletion *d, uint64_t seq)
{
    for (unsigned i = 0; i < d->count; i++)
        if (seq >= d->targets[i].first && seq <= d->targets[i].last)
            return &d->targets[i];
    return NULL;
}

static bool is_named(const struct deletion *d, const char *label)
{
    for (unsigned i = 0; i < d->count; i++)
        for (unsigned end = 0; end < 2; end++)
            if (d->targets[i].named[end] && strcmp(d->targets[i].named[end], label) == 0)
                return true;
    return false;
}

/* D2. Brings the labels that go to the front. */
static int check_labels(struct deletion *d)
{
    for (size_t i = 0; i < d->label_count; i++) {
        struct plx_registry_label label = d->labels[i];
        const struct target *target = target_of(d, label.seq);

        if (!target)
            continue;
        if (!d->force && !is_named(d, label.name))
            return plx_cli_fail(d->cli, PLX_ERR_INVALID,
                                "%s has the label %s at snapshot %" PRIu64
                                "; give that label instead, or --force to delete labelled "
                                "snapshots, too",
                                target->text, label.name, label.seq);
        d->labels[i] = d->labels[d->labels_going];
        d->labels[d->labels_going++] = label;
    }
    return 0;
}

/* D3. Somebody needs this snapshot. */
static int refuse_or_note(struct deletion *d, uint64_t seq, const char *why)
{
    const struct target *target = target_of(d, seq);

    if (!target)
        return 0;
    if (target->single)
        return plx_cli_fail(d->cli, PLX_ERR_BUSY, "%s stays: %s", target->text, why);
    plx_out_note(d->cli, "%s/%s@%" PRIu64 " stays: %s", d->name.store, d->name.vdi, seq, why);
    return 0;
}

static int check_readers(struct deletion *d)
{
    struct plx_registry *registry = d->cli->session.registry;
    struct plx_registry_hold *holds = NULL;
    size_t count = 0;
    int rc = plx_registry_hold_list(registry, d->row.id, &holds, &count);

    if (rc)
        return plx_session_registry_fault(d->cli, rc);
    for (size_t i = 0; i < count && !rc; i++) {
        struct plx_registry_instance instance;
        char why[160];

        if (plx_registry_instance_get(registry, holds[i].instance, &instance))
            continue; /* it has just ended */
        snprintf(why, sizeof why, "it is being read by %s (pid %lld) on host %s", instance.role,
                 (long long)instance.pid, instance.host_name);
        rc = refuse_or_note(d, holds[i].seq, why);
    }
    free(holds);
    return rc;
}

static int check_clones(struct deletion *d)
{
    struct plx_registry_heir *heirs = NULL;
    size_t count = 0;
    int rc = plx_registry_heir_list(d->cli->session.registry, d->row.id, &heirs, &count);

    if (rc)
        return plx_session_registry_fault(d->cli, rc);
    for (size_t i = 0; i < count && !rc; i++) {
        char why[PLX_STORE_NAME_MAX + PLX_NAME_MAX + 32];

        snprintf(why, sizeof why, "%s/%s was cloned from it", d->name.store, heirs[i].name);
        rc = refuse_or_note(d, heirs[i].seq, why);
    }
    free(heirs);
    return rc;
}

/* ---- Deleting ----------------------------------------------------------------------------------
 */

static int remove_labels(struct deletion *d)
{
    int rc = 0;

    for (size_t i = 0; i < d->labels_going && !rc && !d->dry_run; i++)
        rc = plx_session_label_remove(d->cli, &d->name, d->labels[i].name);
    return rc;
}

/* For the audit; what the deletion did is done. */
static void write_event(struct deletion *d)
{
    char subject[sizeof(struct plx_name)], detail[400];
    size_t at;

    snprintf(subject, sizeof subject, "%s/%s", d->name.store, d->name.vdi);
    at = (size_t)snprintf(detail, sizeof detail, "%" PRIu64 " gone:", d->sum.snapshots);
    for (unsigned i = 0; i < d->count && at < sizeof detail; i++)
        at += (size_t)snprintf(detail + at, sizeof detail - at, " %s", d->targets[i].text);
    plx_registry_event_add(d->cli->session.registry, "snap delete", subject, detail);
}

/* The engine has a reason that the registry does not know: it keeps its labels. */
static int give_up(struct deletion *d, const struct target *target)
{
    int rc = 0;

    for (size_t i = 0; i < d->labels_going && !rc; i++)
        if (d->labels[i].seq == target->first)
            rc = plx_session_label_set(d->cli, &d->name, d->labels[i].name, target->first,
                                       d->labels[i].time_ns);
    return rc ? rc
              : plx_cli_fail(d->cli, PLX_ERR_BUSY,
                             "%s stays: the disk went back to it by a rewind, or from it, and it "
                             "goes with all others before that rewind; or somebody has just begun "
                             "to read it",
                             target->text);
}

static int delete_targets(struct deletion *d)
{
    struct plx_session_thinning thinning = {d->cli, &d->name};
    const struct plx_retention_work work = plx_session_thin_work(&thinning);
    int rc = remove_labels(d);

    for (unsigned i = 0; i < d->count && !rc; i++) {
        const struct target *target = &d->targets[i];
        struct plx_thin thin = {
            .after = target->first - 1, .upto = target->last, .dry_run = d->dry_run};
        struct plx_thinned sum;

        if (target->last < target->first) /* the newest one alone */
            continue;
        rc = plx_retention_thin(&work, &thin, &sum, &d->cli->fault);
        d->sum.snapshots += sum.snapshots;
        d->sum.blocks += sum.blocks;
        d->sum.meta_blocks += sum.meta_blocks;
        if (!rc && target->single && !sum.snapshots && !d->dry_run)
            rc = give_up(d, target);
    }
    if (d->sum.snapshots && !d->dry_run)
        write_event(d);
    return rc;
}

/* Those with a label are kept while only counting. */
static void count_labelled(struct deletion *d)
{
    for (size_t i = 0; i < d->labels_going && d->dry_run; i++) {
        bool counted = false;

        for (size_t before = 0; before < i; before++)
            counted |= d->labels[before].seq == d->labels[i].seq;
        d->sum.snapshots += !counted;
    }
}

static void print(struct deletion *d)
{
    static const struct plx_column columns[] = {
        {"name", "Name", PLX_COLUMN_TEXT},
        {"snapshots", "Snapshots that would go", PLX_COLUMN_NUMBER},
        {"labels", "Labels with them", PLX_COLUMN_TEXT},
        {"freed_bytes", "Space that would come back", PLX_COLUMN_SIZE},
        {NULL, NULL, 0},
    };
    uint64_t freed = (d->sum.blocks + d->sum.meta_blocks) * PLX_BLOCK_SIZE;
    bool exact = !d->dry_run || !d->labels_going; /* count_labelled() */
    char text[16];

    plx_out_note(d->cli, "%s/%s: %" PRIu64 " snapshot%s %s, %s %s", d->name.store, d->name.vdi,
                 d->sum.snapshots, d->sum.snapshots == 1 ? "" : "s",
                 d->dry_run ? "would go" : "gone", plx_text_size(freed, text),
                 d->dry_run ? "would come back" : "came back");
    if (d->newest_stays) /* D3 */
        plx_out_note(d->cli,
                     "%s/%s@%" PRIu64 " stays: it is the newest; 'parallax snap create' makes "
                     "a newer one",
                     d->name.store, d->name.vdi, d->newest.seq);
    if (!exact)
        plx_out_note(d->cli, "more would come back: what only labelled ones have is not in it");
    if (!d->dry_run && !d->cli->json)
        return;
    json_t *labels = json_array();
    for (size_t i = 0; i < d->labels_going; i++)
        json_array_append_new(labels, json_string(d->labels[i].name));
    plx_out_object(d->cli, columns,
                   json_pack("{s:o,s:I,s:o,s:I,s:b,s:b}", "name",
                             json_sprintf("%s/%s", d->name.store, d->name.vdi), "snapshots",
                             (json_int_t)d->sum.snapshots, "labels", labels, "freed_bytes",
                             (json_int_t)freed, "exact", exact, "dry_run", d->dry_run));
}

static int delete_snapshots(struct plx_cli *cli, bool force, bool dry_run)
{
    static struct plx_name firsts[PLX_ARGUMENTS_MAX], lasts[PLX_ARGUMENTS_MAX];
    static struct deletion d;
    int rc;

    d = (struct deletion){.cli = cli, .force = force, .dry_run = dry_run};
    if ((rc = parse_all(&d, firsts, lasts)) ||
        (rc = plx_session_open(cli, d.name.store, PLX_SESSION_WRITE)) ||
        (rc = plx_session_vdi_row(cli, &d.name, &d.row)))
        return rc;
    if ((rc = plx_registry_label_list(cli->session.registry, d.row.id, &d.labels, &d.label_count)))
        return plx_session_registry_fault(cli, rc);
    if (!(rc = resolve_all(&d, firsts, lasts)) && !(rc = check_labels(&d)) &&
        !(rc = check_readers(&d)) && !(rc = check_clones(&d)) && !(rc = delete_targets(&d))) {
        count_labelled(&d);
        print(&d);
    }
    free(d.labels);
    return rc;
}

int plx_cmd_snap_delete(struct plx_cli *cli)
{
    return delete_snapshots(cli, plx_cli_get(cli, "force"), plx_cli_get(cli, "dry-run"));
}

int plx_cmd_snap_weigh(struct plx_cli *cli)
{
    return delete_snapshots(cli, true, true);
}
