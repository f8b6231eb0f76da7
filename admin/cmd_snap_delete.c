/* cmd_snap_delete.c - parallax snap delete: single snapshots and ranges.
 *
 * CMD_SNAP_DELETE-1  All errors in what was asked for are reported before anything is changed.
 * CMD_SNAP_DELETE-2  A label is deleted only if the command names it, or with --force; never just
 *     because its snapshot is one of many. It is deleted after its snapshot, so that a snapshot
 *     that stays keeps its labels.
 * CMD_SNAP_DELETE-3  A snapshot that somebody needs stays. Naming it alone is an error; a range
 *     passes over it. Only the engine decides what is needed, in a dry run too, and the reason is
 *     looked up afterwards. If nothing of a range goes because something in it is needed, that is
 *     the same error. The newest snapshot stays without a message: "all" means all but that.
 * CMD_SNAP_DELETE-4  A range of times without a snapshot deletes nothing, and is no error. A range
 *     that names a snapshot which does not exist is an error.
 * CMD_SNAP_DELETE-5  Of what a dry run says, data is exact and metadata an estimate: each opening
 *     of the disk begins a segment of the log, which then goes as well. A figure that has metadata
 *     in it is not called exact.
 * Crash story: a label may be left whose snapshot is gone. Deleting it again removes the label.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "deletion.h"
#include "output.h"
#include "registry/clock.h"
#include "registry/retention.h"

/* ---- What was asked ---- */

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

/* ---- Which snapshots that is ---- */

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

    if (!*name->snapshot || !plx_deletion_is_time(d, name->snapshot, &time_ns)) {
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

/* The end of a range: open, or a time, and not a snapshot that is named. none: what open means. */
static bool is_time(const struct deletion *d, const struct plx_name *end, uint64_t none,
                    uint64_t *ret_ns)
{
    *ret_ns = none;
    return !*end->snapshot || plx_deletion_is_time(d, end->snapshot, ret_ns);
}

/* CMD_SNAP_DELETE-4 */
static bool may_be_empty(const struct deletion *d, const struct plx_name *first,
                         const struct plx_name *last, uint64_t *ret_first_ns, uint64_t *ret_last_ns)
{
    return is_time(d, first, 0, ret_first_ns) && is_time(d, last, UINT64_MAX, ret_last_ns);
}

static int refuse_empty(struct deletion *d, const struct target *target)
{
    return plx_cli_usage(d->cli, "%s: the range ends before it begins", target->text);
}

static int leave_empty(struct deletion *d, struct target *target)
{
    target->first = 1;
    target->last = 0;
    plx_out_note(d->cli, "%s: there are no such snapshots, so there is nothing to do",
                 target->text);
    return 0;
}

static int resolve_range(struct deletion *d, struct target *target, const struct plx_name *first,
                         const struct plx_name *last)
{
    uint64_t first_ns, last_ns;
    bool empty_ok = may_be_empty(d, first, last, &first_ns, &last_ns);
    int rc;

    if (empty_ok && first_ns > last_ns)
        return refuse_empty(d, target);
    if (empty_ok && (!d->newest.seq || last_ns < d->oldest.time_ns))
        return leave_empty(d, target);
    rc = resolve_first(d, first, &target->first);
    target->last = d->newest.seq;
    if (!rc && *last->snapshot)
        rc = plx_attach_snapshot_resolve(d->cli->session.attach, last->vdi, last->snapshot,
                                         &target->last, &d->cli->fault);
    if (rc)
        return rc;
    if (target->last < target->first && empty_ok)
        return leave_empty(d, target);
    if (target->first > d->newest.seq && !is_time(d, first, 0, &first_ns)) /* CMD_SNAP_DELETE-4 */
        return plx_cli_fail(d->cli, PLX_ERR_NOT_FOUND,
                            "%s: there is no snapshot %" PRIu64 ": the newest is %" PRIu64,
                            target->text, target->first, d->newest.seq);
    if (target->last < target->first)
        return refuse_empty(d, target);
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
    const struct plx_registry_label *label = find_label(d, name->snapshot);
    int rc = plx_session_snapshot_resolve(d->cli, name, &found);

    if (rc == PLX_ERR_NOT_FOUND && label) { /* it had gone, and its label was left */
        found.seq = label->seq;
        rc = 0;
    }
    if (rc)
        return rc;
    if (found.seq == d->newest.seq)
        return plx_cli_fail(d->cli, PLX_ERR_BUSY,
                            "%s is the newest snapshot, which always stays; take another one first "
                            "('parallax snap create'), or take its label away ('snap unlabel')",
                            target->text);
    target->first = target->last = found.seq;
    target->named[0] = name->snapshot;
    target->found = found;
    return 0;
}

static int resolve_all(struct deletion *d, const struct plx_name *firsts,
                       const struct plx_name *lasts)
{
    int rc = plx_session_window(d->cli, &d->row, &d->oldest, &d->newest);
    uint64_t first_ns, last_ns;

    for (unsigned i = 0; i < d->count && !rc && !d->newest.seq; i++)
        if (d->targets[i].single || !may_be_empty(d, &firsts[i], &lasts[i], &first_ns, &last_ns))
            rc = plx_cli_fail(d->cli, PLX_ERR_NOT_FOUND,
                              "%s/%s has no snapshots; 'parallax snap create' takes one",
                              d->name.store, d->name.vdi);
    if (!rc)
        rc = plx_deletion_check_now(d, firsts, lasts);
    for (unsigned i = 0; i < d->count && !rc; i++)
        rc = d->targets[i].single ? resolve_single(d, &d->targets[i], &firsts[i])
                                  : resolve_range(d, &d->targets[i], &firsts[i], &lasts[i]);
    if (!rc)
        rc = plx_deletion_check_times(d, firsts, lasts);
    for (unsigned i = 0; i < d->count && !rc; i++)
        if (d->targets[i].single)
            plx_session_tell_chosen(d->cli, &firsts[i], &d->targets[i].found);
    return rc;
}

/* ---- What stands against it ---- */

static bool is_named(const struct deletion *d, const char *label)
{
    for (unsigned i = 0; i < d->count; i++)
        for (unsigned end = 0; end < 2; end++)
            if (d->targets[i].named[end] && strcmp(d->targets[i].named[end], label) == 0)
                return true;
    return false;
}

/* One that was given by itself: all its labels together delete it. */
static int refuse_labelled(struct deletion *d, const struct target *target,
                           const struct plx_registry_label *label)
{
    char all[280] = "";
    size_t used = 0;

    for (size_t i = 0; i < d->label_count && used < sizeof all; i++)
        if (d->labels[i].seq == label->seq)
            used += (size_t)snprintf(all + used, sizeof all - used, " %s/%s@%s", d->name.store,
                                     d->name.vdi, d->labels[i].name);
    if (used >= sizeof all)
        snprintf(all, sizeof all, " --force %.200s", target->text);
    return plx_cli_fail(d->cli, PLX_ERR_BUSY,
                        "%.80s has the label %.80s, too; 'parallax snap delete%s' deletes the "
                        "snapshot with all its labels",
                        target->text, label->name, all);
}

/* CMD_SNAP_DELETE-2 */
static int check_labels(struct deletion *d)
{
    for (size_t i = 0; i < d->label_count && !d->force; i++) {
        const struct plx_registry_label *label = &d->labels[i];
        const struct target *target = plx_deletion_target(d, label->seq);

        if (target && !is_named(d, label->name))
            return target->single ? refuse_labelled(d, target, label)
                                  : plx_cli_fail(d->cli, PLX_ERR_BUSY,
                                                 "%s has the label %s at snapshot %" PRIu64
                                                 "; --force deletes labelled snapshots, too",
                                                 target->text, label->name, label->seq);
    }
    return 0;
}

/* ---- Deleting ---- */

static int compare_ranges(const void *a, const void *b)
{
    const struct target *x = a, *y = b;

    return x->first < y->first ? -1 : x->first > y->first;
}

/* Joins adjacent ranges: snapshots from before a rewind can only be deleted all at once
 * (RECLAIM-9). */
static void join_ranges(struct deletion *d)
{
    for (unsigned i = 0; i < d->count; i++)
        if (d->targets[i].first <= d->targets[i].last) /* not the newest one alone */
            d->ranges[d->range_count++] = d->targets[i];
    qsort(d->ranges, d->range_count, sizeof *d->ranges, compare_ranges);
    unsigned kept = 0;
    for (unsigned i = 1; i < d->range_count; i++)
        if (d->ranges[i].first <= d->ranges[kept].last + 1)
            d->ranges[kept].last = plx_max_u64(d->ranges[kept].last, d->ranges[i].last);
        else
            d->ranges[++kept] = d->ranges[i];
    d->range_count = d->range_count ? kept + 1 : 0;
}

static int compare_marks(const void *a, const void *b)
{
    const struct plx_thin_mark *x = a, *y = b;

    return x->seq < y->seq ? -1 : x->seq > y->seq;
}

static int make_marks(struct deletion *d)
{
    d->marks = calloc(d->count + d->label_count + d->reason_count + 1, sizeof *d->marks);
    if (!d->marks)
        return plx_cli_fail(d->cli, PLX_ERR_NOMEM, "out of memory");
    for (unsigned i = 0; i < d->count; i++)
        if (d->targets[i].single)
            d->marks[d->mark_count++].seq = d->targets[i].first;
    for (size_t i = 0; i < d->reason_count; i++)
        d->marks[d->mark_count++].seq = d->reasons[i].seq;
    for (size_t i = 0; i < d->label_count; i++)
        if (plx_deletion_target(d, d->labels[i].seq))
            d->marks[d->mark_count++] =
                (struct plx_thin_mark){.seq = d->labels[i].seq, .label = d->labels[i].name};
    qsort(d->marks, d->mark_count, sizeof *d->marks, compare_marks);
    return 0;
}

/* Writes an audit event; an error here is ignored, because the snapshots are deleted. */
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

static int thin_ranges(struct deletion *d, bool dry_run)
{
    struct plx_progress progress;
    struct plx_session_thinning thinning = {.cli = d->cli, .name = &d->name, .progress = &progress};
    const struct plx_retention_work work = plx_session_thin_work(&thinning);
    uint64_t total = 0;
    int rc = 0;

    for (unsigned i = 0; i < d->range_count; i++)
        total += d->ranges[i].last - d->ranges[i].first + 1;
    plx_progress_begin(&progress, d->cli, dry_run ? "looking at snapshots" : "deleting snapshots",
                       total);
    progress.plain = true;
    plx_progress_show(&progress, 0);

    d->sum = (struct plx_thinned){0};
    for (size_t i = 0; i < d->mark_count; i++)
        d->marks[i].gone = false;
    for (unsigned i = 0; i < d->range_count && !rc; i++) {
        const struct plx_thin thin = {.after = d->ranges[i].first - 1,
                                      .upto = d->ranges[i].last,
                                      .dry_run = dry_run,
                                      .marks = d->marks,
                                      .mark_count = d->mark_count};
        struct plx_thinned sum;

        thinning.first = thin.after;
        rc = plx_retention_thin(&work, &thin, &sum, &d->cli->fault);
        thinning.before += thin.upto - thin.after;
        d->sum.snapshots += sum.snapshots;
        d->sum.blocks += sum.blocks;
        d->sum.meta_blocks += sum.meta_blocks;
    }
    plx_progress_end(&progress);
    if (d->sum.snapshots && !dry_run)
        write_event(d);
    return rc;
}

/* *ret_stays: the snapshot still exists. */
static int look_at_mark(struct deletion *d, const struct plx_thin_mark *mark, bool *ret_stays)
{
    struct plx_snapshot_info first = {0};
    int rc = mark->gone ? 0
                        : plx_snapshot_first(plx_session_store(d->cli), d->row.slot, mark->seq,
                                             &first, &d->cli->fault);

    *ret_stays = first.seq == mark->seq;
    return rc;
}

/* CMD_SNAP_DELETE-3. What was given by itself goes, or the command fails. */
static int check_singles(struct deletion *d)
{
    for (size_t i = 0; i < d->mark_count; i++) {
        const struct plx_thin_mark *mark = &d->marks[i];
        bool stays;
        int rc;

        for (unsigned t = 0; t < d->count; t++) {
            if (!d->targets[t].single || d->targets[t].first != mark->seq)
                continue;
            if ((rc = look_at_mark(d, mark, &stays)))
                return rc;
            if (stays)
                return plx_cli_fail(d->cli, PLX_ERR_BUSY, "%s stays: %s", d->targets[t].text,
                                    plx_deletion_why(d, mark->seq));
        }
    }
    return 0;
}

/* Counts the remaining snapshots other than `but` and the newest. */
static unsigned others_that_stay(const struct deletion *d, uint64_t but)
{
    unsigned count = 0;
    json_t *stay;
    size_t i;

    json_array_foreach(d->stays, i, stay)
    {
        uint64_t seq = (uint64_t)json_integer_value(json_object_get(stay, "seq"));

        count += seq != but && seq != d->newest.seq;
    }
    return count;
}

/* CMD_SNAP_DELETE-3. Nothing went: what is left of a range stands in the way. */
static int refuse_ranges(struct deletion *d)
{
    struct plx_snapshot_info first;
    char more[32] = "";
    int rc = 0;

    for (unsigned i = 0; i < d->range_count && !rc; i++) {
        const struct target *range = &d->ranges[i];

        rc = plx_snapshot_first(plx_session_store(d->cli), d->row.slot, range->first, &first,
                                &d->cli->fault);
        if (rc || !first.seq || first.seq > range->last)
            continue;
        unsigned others = others_that_stay(d, first.seq);
        if (others)
            snprintf(more, sizeof more, "; so are %u more", others);
        rc = plx_cli_fail(d->cli, PLX_ERR_BUSY,
                          "%.160s: nothing can be deleted: snapshot %" PRIu64 " is needed: %s%s",
                          range->text, first.seq, plx_deletion_why(d, first.seq), more);
    }
    return rc;
}

/* CMD_SNAP_DELETE-1. Where a single one may stay, a dry run tells before anything goes. */
static int delete_targets(struct deletion *d)
{
    int rc = 0;

    if (!d->dry_run && d->reason_count && !(rc = thin_ranges(d, true)))
        rc = check_singles(d);
    if (!rc && !(rc = thin_ranges(d, d->dry_run)))
        rc = check_singles(d);
    return rc;
}

static void add_stay(struct deletion *d, uint64_t seq, const char *why)
{
    json_array_append_new(
        d->stays, json_pack("{s:I,s:[],s:s}", "seq", (json_int_t)seq, "labels", "why", why));
}

/* Records the fate of one marked snapshot, and removes its label if the snapshot had been deleted
 * earlier. */
static int settle_mark(struct deletion *d, const struct plx_thin_mark *mark)
{
    json_t *last = json_array_get(d->stays, json_array_size(d->stays) - 1);
    bool stays;
    int rc = look_at_mark(d, mark, &stays);

    if (rc)
        return rc;
    if (!stays) {
        if (mark->label)
            json_array_append_new(d->labels_gone, json_string(mark->label));
        return mark->label && !mark->gone && !d->dry_run
                   ? plx_session_label_remove(d->cli, &d->name, mark->label)
                   : 0;
    }
    if (!last || json_integer_value(json_object_get(last, "seq")) != (json_int_t)mark->seq) {
        add_stay(d, mark->seq, plx_deletion_why(d, mark->seq));
        last = json_array_get(d->stays, json_array_size(d->stays) - 1);
    }
    if (mark->label)
        json_array_append_new(json_object_get(last, "labels"), json_string(mark->label));
    return 0;
}

static int settle_marks(struct deletion *d)
{
    int rc = 0;

    d->labels_gone = json_array();
    d->stays = json_array();
    for (size_t i = 0; i < d->mark_count && !rc; i++)
        rc = settle_mark(d, &d->marks[i]);
    if (d->newest_stays) /* CMD_SNAP_DELETE-3 */
        add_stay(d, d->newest.seq, "it is the newest; 'parallax snap create' makes a newer one");
    return rc;
}

/* CMD_SNAP_DELETE-5 */
static bool is_estimate(const struct deletion *d)
{
    return d->dry_run && d->sum.meta_blocks;
}

/* Space of snapshots from before a rewind is freed by a collection, so a dry run cannot count
 * it. */
static bool is_all(const struct deletion *d)
{
    for (size_t i = 0; d->dry_run && i < d->reason_count; i++)
        for (size_t m = 0; d->reasons[i].rewind && m < d->mark_count; m++)
            if (d->marks[m].seq == d->reasons[i].seq && d->marks[m].gone)
                return false;
    return true;
}

static void print_stays(const struct deletion *d)
{
    size_t i;
    json_t *stay;

    json_array_foreach(d->stays, i, stay)
    {
        const json_t *labels = json_object_get(stay, "labels");
        json_int_t seq = json_integer_value(json_object_get(stay, "seq"));
        const char *why = json_string_value(json_object_get(stay, "why"));

        if (json_array_size(labels))
            plx_out_note(d->cli, "%s/%s@%" PRIu64 " stays, with its label %s%s: %s", d->name.store,
                         d->name.vdi, (uint64_t)seq, json_string_value(json_array_get(labels, 0)),
                         json_array_size(labels) > 1 ? " and others" : "", why);
        else
            plx_out_note(d->cli, "%s/%s@%" PRIu64 " stays: %s", d->name.store, d->name.vdi,
                         (uint64_t)seq, why);
    }
}

static void print(const struct deletion *d)
{
    static const struct plx_column columns[] = {
        {"name", "Name", PLX_COLUMN_TEXT},
        {"snapshots", "Snapshots that would go", PLX_COLUMN_NUMBER},
        {"labels", "Labels with them", PLX_COLUMN_TEXT},
        {"freed_bytes", "Space that would come back", PLX_COLUMN_SIZE},
        {NULL, NULL, 0},
    };
    uint64_t freed = (d->sum.blocks + d->sum.meta_blocks) * PLX_BLOCK_SIZE;
    bool all = is_all(d), estimate = is_estimate(d);
    char text[16];

    plx_out_note(d->cli, "%s/%s: %" PRIu64 " snapshot%s %s, %s%s %s", d->name.store, d->name.vdi,
                 d->sum.snapshots, plx_plural(d->sum.snapshots), d->dry_run ? "would go" : "gone",
                 estimate ? "about " : "", plx_text_size(freed, text),
                 d->dry_run ? "would come back" : "came back");
    print_stays(d);
    if (!all)
        plx_out_note(d->cli,
                     "'parallax gc' would free more: blocks used only by snapshots from before "
                     "a rewind are not counted");
    if (d->dry_run || d->cli->json)
        plx_out_object(d->cli, columns,
                       json_pack("{s:o,s:I,s:O,s:I,s:I,s:b,s:b,s:O}", "name",
                                 json_sprintf("%s/%s", d->name.store, d->name.vdi), "snapshots",
                                 (json_int_t)d->sum.snapshots, "labels", d->labels_gone,
                                 "freed_bytes", (json_int_t)freed, "data_bytes",
                                 (json_int_t)(d->sum.blocks * PLX_BLOCK_SIZE), "exact",
                                 all && !estimate, "dry_run", d->dry_run, "stays", d->stays));
}

static bool nothing_went(const struct deletion *d)
{
    return !d->sum.snapshots && !json_array_size(d->labels_gone);
}

/* weigh: finding nothing to delete is not an error. */
static int delete_snapshots(struct plx_cli *cli, bool force, bool dry_run, bool weigh)
{
    struct plx_name firsts[PLX_ARGUMENTS_MAX] = {0}, lasts[PLX_ARGUMENTS_MAX] = {0};
    struct deletion d = {0};
    int rc;

    d = (struct deletion){.cli = cli, .force = force, .dry_run = dry_run};
    cli->session.dry = dry_run;
    if ((rc = parse_all(&d, firsts, lasts)) ||
        (rc = plx_session_open(cli, d.name.store, PLX_SESSION_WRITE)) ||
        (rc = plx_session_vdi_row(cli, &d.name, &d.row)))
        return rc;
    if ((rc = plx_registry_label_list(cli->session.registry, d.row.id, &d.labels, &d.label_count)))
        return plx_session_registry_fault(cli, rc);
    if (!(rc = resolve_all(&d, firsts, lasts)) && !(rc = check_labels(&d)) &&
        !(rc = plx_deletion_find_reasons(&d)) && !(rc = make_marks(&d))) {
        join_ranges(&d);
        if (!(rc = delete_targets(&d)) && !(rc = settle_marks(&d)) && !weigh && nothing_went(&d))
            rc = refuse_ranges(&d);
        if (!rc)
            print(&d);
    }
    json_decref(d.labels_gone);
    json_decref(d.stays);
    free(d.marks);
    free(d.reasons);
    free(d.labels);
    return rc;
}

int plx_cmd_snap_delete(struct plx_cli *cli)
{
    return delete_snapshots(cli, plx_cli_get(cli, "force"), plx_cli_get(cli, "dry-run"), false);
}

int plx_cmd_snap_weigh(struct plx_cli *cli)
{
    return delete_snapshots(cli, true, true, true);
}
