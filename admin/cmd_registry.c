/* cmd_registry.c - parallax store: rebuild-registry, export-registry; vdi: accept-older, forget.
 * Registries rebuilt, and what is given up of what they had lost. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "attach/doors.h"
#include "attach/rebuild.h"
#include "cmd.h"
#include "output.h"
#include "registry/lost.h"
#include "transfer.h"

/* What a rebuild says of itself. */
struct telling {
    struct plx_progress *progress;
    json_t *unread, *undated;
};

static void note_undated(void *context, const char *vdi)
{
    struct telling *telling = context;

    json_array_append_new(telling->undated, plx_out_string(vdi));
}

static void note_unread(void *context, const char *what)
{
    struct telling *telling = context;

    json_array_append_new(telling->unread, plx_out_string(what));
}

static void print_lost(void *context, const char *text)
{
    const struct telling *telling = context;

    plx_progress_clear(telling->progress);
    plx_out_note(telling->progress->cli, "lost: %s", text);
}

static void show_reading(void *context, uint64_t done, uint64_t total)
{
    struct plx_progress *progress = context;

    plx_progress_part(progress, "reading the disks' metadata", total);
    plx_progress_show(progress, done);
}

static bool is_stopped(void *context)
{
    (void)context;
    return plx_session_stopped();
}

/* The volumes that are given, or those of a store that is known here. */
static int find_volumes(struct plx_cli *cli, struct plx_volumes_given *volumes,
                        struct plx_known *ret_store)
{
    struct plx_paths *paths;
    struct plx_name name;
    int rc = plx_cmd_store_or_volumes(cli, &name, volumes);

    if (rc || !cli->count)
        return rc;
    if ((rc = plx_session_paths(cli, &paths)) ||
        (rc = plx_known_get(paths, name.store, ret_store, &cli->fault)))
        return rc;
    snprintf(cli->store, sizeof cli->store, "%s", ret_store->name);
    volumes->count = ret_store->volumes;
    for (unsigned v = 0; v < ret_store->volumes; v++)
        volumes->path[v] = ret_store->volume[v];
    return 0;
}

/* A volume that is not there: exit status 6, as of all other commands. */
static int name_missing(struct plx_cli *cli, const struct plx_known *store,
                        const struct plx_volumes_given *volumes, int rc)
{
    struct plx_fault why = cli->fault;
    bool there = true;
    struct stat st;

    if (rc != PLX_ERR_NOT_FOUND)
        return rc;
    if (cli->count)
        return plx_known_missing(store, rc, &cli->fault);
    for (unsigned i = 0; i < volumes->count; i++)
        there = there && (!stat(volumes->path[i], &st) || errno != ENOENT);
    if (there) /* another file was meant */
        return rc;
    return plx_cli_fail(cli, PLX_ERR_MISSING,
                        "%s; connect or restore the volume, or give the path where it lies now: "
                        "'parallax store scan' shows those that are block devices, and 'parallax "
                        "store scan FILE...' what files are",
                        why.text);
}

#define NOT_YET                                                                                    \
    "put the newer one back first, for after the rebuild it is too late; when you have seen that " \
    "there is none, add --i-checked-there-is-no-newer-one"

/* Of a rebuild that has lost no record: what is older or damaged, if anything is. */
static int refuse_harm(struct plx_cli *cli, const struct plx_rebuilt *rebuilt, const char *store)
{
    if (rebuilt->older_records)
        return plx_cli_fail(cli, PLX_ERR_CORRUPT,
                            "store %s: %" PRIu64
                            " record%s %s older than what was written; each such "
                            "disk is refused until the store is restored, or 'parallax vdi "
                            "accept-older %s/VDI' accepts it, or 'parallax vdi delete %s/VDI "
                            "--lost' gives it up",
                            store, rebuilt->older_records, plx_plural(rebuilt->older_records),
                            plx_is_or_are(rebuilt->older_records), store, store);
    if (rebuilt->unread_disks)
        return plx_cli_fail(cli, PLX_ERR_CORRUPT,
                            "store %s: %" PRIu64
                            " virtual disk%s cannot be read as a whole; restore %s, or save the "
                            "rest by 'parallax vdi export %s/VDI FILE --skip-errors'",
                            store, rebuilt->unread_disks, plx_plural(rebuilt->unread_disks),
                            rebuilt->unread_disks == 1 ? "it" : "them", store);
    if (rebuilt->unknown_origins)
        return plx_cli_fail(cli, PLX_ERR_CORRUPT,
                            "store %s: the origin of %zu clone%s is not known any more, and whose "
                            "snapshots %s; no snapshot of another virtual disk goes meanwhile, "
                            "and all else works",
                            store, rebuilt->unknown_origins, plx_plural(rebuilt->unknown_origins),
                            rebuilt->unknown_origins == 1 ? "it needs" : "they need");
    if (rebuilt->sealed_extents)
        return plx_cli_fail(cli, PLX_ERR_CORRUPT,
                            "store %s: %" PRIu64
                            " extent%s %s damaged or went back to an older state; nothing is "
                            "allocated there any more; data that lay there may be damaged: "
                            "'parallax store check %s --data' names the virtual disks",
                            store, rebuilt->sealed_extents, plx_plural(rebuilt->sealed_extents),
                            plx_is_or_are(rebuilt->sealed_extents), store);
    if (rebuilt->unread)
        return plx_cli_fail(cli, PLX_ERR_CORRUPT,
                            "store %s: %" PRIu64
                            " part%s of the old registry could not be read, and what only it "
                            "knew there is gone: settings are to be set again; all else works",
                            store, rebuilt->unread, plx_plural(rebuilt->unread));
    if (rebuilt->unknown)
        return plx_cli_fail(cli, PLX_ERR_CORRUPT,
                            "store %s: the old registry could not be read, and what only it knew "
                            "is gone: --warn-at of the store, and of each virtual disk --warn-at, "
                            "--ring and --on-full, which are to be set again, and whether the "
                            "store has lost virtual disks or writes; all else works",
                            store);
    return 0;
}

/* What is lost or older, if anything is. */
static int refuse_loss(struct plx_cli *cli, const struct plx_rebuilt *rebuilt, const char *store,
                       bool dry_run)
{
    uint64_t lost = rebuilt->lost_records + rebuilt->lost_labels;

    if (rebuilt->further_back)
        return plx_cli_fail(
            cli, PLX_ERR_CORRUPT,
            "store %s: a further volume went back to an older state: what was written there since "
            "%s lost; %s; compare virtual disks with a backup",
            store, dry_run ? "would be" : "is",
            dry_run ? NOT_YET : "it is too late to put the newer one back");
    if (rebuilt->first_back && dry_run)
        return plx_cli_fail(cli, PLX_ERR_CORRUPT,
                            "store %s: its first volume went back to an older state, and others "
                            "did not: " NOT_YET,
                            store);
    if (rebuilt->newer_extents || rebuilt->first_back)
        return plx_cli_fail(
            cli, PLX_ERR_CORRUPT,
            "store %s: its first volume went back to an older state, and others did not: put the "
            "newer one back and rebuild again; until then no garbage is collected; only if there "
            "is none, compare virtual disks with a backup, and 'parallax vdi forget %s --lost' "
            "gives up what is gone",
            store, store);
    if (lost)
        return plx_cli_fail(
            cli, PLX_ERR_CORRUPT,
            "store %s: %" PRIu64 " record%s missing or unreadable, %" PRIu64
            " older than what was written, %" PRIu64
            " disk%s with labels that could not be read, and %" PRIu64
            " extent%s damaged or gone back; no garbage is collected and no snapshot deleted until "
            "the store is restored, or 'parallax vdi forget %s --lost' gives up what is "
            "lost",
            store, rebuilt->lost_records, plx_plural(rebuilt->lost_records), rebuilt->older_records,
            rebuilt->lost_labels, plx_plural(rebuilt->lost_labels), rebuilt->sealed_extents,
            plx_plural(rebuilt->sealed_extents), store);
    return refuse_harm(cli, rebuilt, store);
}

static void print_rebuilt(struct plx_cli *cli, const struct plx_known *known,
                          const struct plx_rebuilt *rebuilt, bool dry_run,
                          const struct telling *telling)
{
    if (rebuilt->unknown && !rebuilt->unread)
        json_array_append_new(telling->unread, json_string("the whole"));
    plx_out_note(cli,
                 "%s the registry of store %s: %" PRIu64 " virtual disk%s, %" PRIu64 " deleted",
                 dry_run ? "would rebuild" : "rebuilt", known->name, rebuilt->disks,
                 plx_plural(rebuilt->disks), rebuilt->deleted);
    if (rebuilt->undated)
        plx_out_note(
            cli,
            "store %s: what the old registry knew of the clock could not be read, or is older "
            "than the store: no snapshot of %" PRIu64 " virtual disk%s from before now is "
            "deleted by its time until now is as long ago as the last tier keeps "
            "snapshots",
            known->name, rebuilt->undated, plx_plural(rebuilt->undated));
    if (cli->json)
        plx_out_json(json_pack(
            "{s:s,s:s,s:b,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:b,s:O,s:O}", "name", known->name,
            "uuid", known->uuid, "dry_run", dry_run, "vdis", (json_int_t)rebuilt->disks, "deleted",
            (json_int_t)rebuilt->deleted, "lost_records", (json_int_t)rebuilt->lost_records,
            "older_records", (json_int_t)rebuilt->older_records, "unread_disks",
            (json_int_t)rebuilt->unread_disks, "unknown_origins",
            (json_int_t)rebuilt->unknown_origins, "lost_labels", (json_int_t)rebuilt->lost_labels,
            "sealed_extents", (json_int_t)rebuilt->sealed_extents, "newer_extents",
            (json_int_t)rebuilt->newer_extents, "older_volume",
            rebuilt->first_back || rebuilt->further_back, "unread", telling->unread, "undated_vdis",
            telling->undated));
}

int plx_cmd_store_rebuild(struct plx_cli *cli)
{
    struct plx_volumes_given volumes = {0};
    struct plx_known store = {0};
    struct plx_progress progress = {.cli = cli};
    struct telling telling = {&progress, NULL, NULL};
    struct plx_rebuild_options options = {.state_dir = cli->state_dir,
                                          .volumes = volumes.path,
                                          .dry_run = plx_cli_get(cli, "dry-run"),
                                          .no_newer =
                                              plx_cli_get(cli, "i-checked-there-is-no-newer-one"),
                                          .registry_lost = plx_cli_get(cli, "registry-lost"),
                                          .patience = plx_session_patience(cli),
                                          .lost = print_lost,
                                          .unread = note_unread,
                                          .undated = note_undated,
                                          .context = &telling,
                                          .watch = {show_reading, is_stopped, &progress}};
    struct plx_rebuilt rebuilt;
    struct plx_known known;
    int rc;

    if ((rc = find_volumes(cli, &volumes, &store)))
        return rc;
    options.count = volumes.count;
    telling.unread = json_array();
    telling.undated = json_array();
    rc = plx_rebuild(&options, &known, &rebuilt, &cli->fault);
    plx_progress_end(&progress);
    rc = name_missing(cli, &store, &volumes, rc);
    plx_known_done(&store);
    if (!rc) {
        print_rebuilt(cli, &known, &rebuilt, options.dry_run, &telling);
        rc = refuse_loss(cli, &rebuilt, known.name, options.dry_run);
        plx_known_done(&known);
    }
    json_decref(telling.unread);
    json_decref(telling.undated);
    return rc;
}

int plx_cmd_store_export_registry(struct plx_cli *cli)
{
    struct plx_registry_store row;
    struct plx_output output;
    struct plx_name name;
    int rc;

    if ((rc = plx_cli_name(cli, 0, PLX_NAME_STORE, &name)) ||
        (rc = plx_session_registry(cli, name.store, &row)))
        return rc;
    rc = plx_output_open(&output, cli, cli->arguments[1], false);
    if (!rc && !output.partial)
        rc = plx_cli_usage(cli, "%.120s is no regular file; give the name of one",
                           cli->arguments[1]);
    if (!rc) /* takes the partial file's place */
        rc = plx_registry_get(cli->session.registry, output.partial, &cli->fault);
    if ((rc = plx_output_close(&output, rc)))
        return rc;
    plx_out_note(cli,
                 "wrote the registry of store %s to %s, an SQLite file; changing it changes "
                 "nothing of the store",
                 name.store, cli->arguments[1]);
    plx_out_done(
        cli, json_pack("{s:s,s:o}", "name", name.store, "file", plx_out_string(cli->arguments[1])));
    return 0;
}

/* By --dry-run. done: the key of what was not done. */
static int print_only_told(struct plx_cli *cli, const struct plx_name *name, const char *done,
                           const char *text)
{
    plx_out_note(cli, "%s%s%.100s: %s; nothing was changed", name->store, *name->vdi ? "/" : "",
                 name->vdi, text);
    if (cli->json)
        plx_out_json(
            json_pack("{s:o,s:b,s:b}", "name",
                      json_sprintf("%s%s%s", name->store, *name->vdi ? "/" : "", name->vdi), done,
                      false, "dry_run", true));
    return 0;
}

#define LABELS_TOLD 20u

static void tell_older(struct plx_cli *cli, const struct plx_name *name,
                       const struct plx_older *older)
{
    plx_out_note(cli, "%s/%.100s goes back to after snapshot %" PRIu64, name->store, name->vdi,
                 older->newest);
    for (size_t i = 0; i < older->gone_count && i < LABELS_TOLD; i++)
        plx_out_note(cli, "the label %s goes: snapshot %" PRIu64 " is not there any more",
                     older->gone[i].name, older->gone[i].seq);
    if (older->gone_count > LABELS_TOLD)
        plx_out_note(cli, "so do %zu more", older->gone_count - LABELS_TOLD);
}

static void print_accepted(struct plx_cli *cli, const struct plx_name *name,
                           const struct plx_older *older)
{
    json_t *object = json_pack("{s:o,s:b}", "name", json_sprintf("%s/%s", name->store, name->vdi),
                               "accepted", older->older);
    json_t *labels = json_array();

    for (size_t i = 0; i < older->gone_count; i++)
        json_array_append_new(labels, json_string(older->gone[i].name));
    json_object_set_new(object, "labels_gone", labels);
    plx_out_json(object);
}

static int accept_older(struct plx_cli *cli, const struct plx_name *name,
                        const struct plx_registry_vdi *row, const struct plx_older *older)
{
    struct plx_progress progress = {.cli = cli};
    const struct plx_watch watch = {show_reading, is_stopped, &progress};
    int rc;

    if (older->older && (plx_cli_get(cli, "dry-run") || !plx_cli_get(cli, "yes")))
        tell_older(cli, name, older);
    if (older->older && plx_cli_get(cli, "dry-run"))
        return print_only_told(cli, name, "accepted",
                               "would give up what was written after the state that it is in");
    if (older->older && !plx_cli_get(cli, "yes"))
        return plx_cli_fail(cli, PLX_ERR_UNCONFIRMED,
                            "%s/%.100s is older than what was written last; nothing was changed: "
                            "with --yes, what was written after that state is given up",
                            name->store, name->vdi);
    if (older->older) {
        rc = plx_attach_accept_older(cli->session.attach, row, older, &watch, &cli->fault);
        plx_progress_end(&progress);
        if (rc)
            return rc;
        tell_older(cli, name, older); /* not before: it may be refused */
    }
    plx_out_note(cli,
                 older->older ? "%s/%.100s counts as it is now"
                              : "%s/%.100s is as it was written last; there is nothing to accept",
                 name->store, name->vdi);
    if (cli->json)
        print_accepted(cli, name, older);
    return 0;
}

int plx_cmd_vdi_accept(struct plx_cli *cli)
{
    struct plx_registry_vdi row;
    struct plx_older older = {0};
    struct plx_name name;
    int rc;

    if ((rc = plx_cli_name(cli, 0, PLX_NAME_VDI, &name)) ||
        (rc = plx_session_open(cli, name.store,
                               plx_cli_get(cli, "yes") ? PLX_SESSION_WRITE : PLX_SESSION_READ)) ||
        (rc = plx_session_vdi_row(cli, &name, &row)))
        return rc;
    rc = plx_attach_look_at_older(cli->session.attach, &row, &older, &cli->fault);
    older.also_damaged = plx_cli_get(cli, "also-damaged");
    if (!rc)
        rc = accept_older(cli, &name, &row, &older);
    free(older.gone);
    return rc;
}

/* Tells what is lost. *ret_labels: a log is damaged, which stays. */
static int list_lost(struct plx_cli *cli, size_t *ret_count, bool *ret_labels)
{
    struct plx_registry_lost *list = NULL;
    struct plx_registry_store row;
    int rc;

    plx_session_row(cli, &row);
    if ((rc = plx_registry_lost_list(cli->session.registry, row.id, &list, ret_count)))
        return plx_session_registry_fault(cli, rc);
    for (size_t i = 0; i < *ret_count; i++) {
        plx_out_note(cli, "%s: %s", list[i].labels ? "labels" : "a virtual disk, or a deleted one",
                     list[i].why);
        *ret_labels = *ret_labels || list[i].labels;
    }
    free(list);
    return 0;
}

int plx_cmd_vdi_forget(struct plx_cli *cli)
{
    struct plx_name name;
    bool labels = false;
    size_t count = 0;
    int rc;

    if ((rc = plx_cli_name(cli, 0, PLX_NAME_STORE, &name)))
        return rc;
    if (!plx_cli_get(cli, "lost"))
        return plx_cli_usage(cli, "--lost is missing: only what cannot be read is forgotten; "
                                  "'parallax vdi delete' deletes a virtual disk");
    if ((rc = plx_session_open(cli, name.store,
                               plx_cli_get(cli, "yes") ? PLX_SESSION_WRITE : PLX_SESSION_READ)) ||
        (rc = list_lost(cli, &count, &labels)))
        return rc;
    if (!count)
        plx_out_note(cli, "nothing of store %s is lost", name.store);
    else if (plx_cli_get(cli, "dry-run"))
        return print_only_told(cli, &name, "forgotten",
                               "would make garbage of what these disks used");
    else if (!plx_cli_get(cli, "yes"))
        return plx_cli_fail(
            cli, PLX_ERR_UNCONFIRMED,
            "nothing was changed; with --yes, what these disks used becomes garbage, "
            "which 'parallax gc' frees, and snapshots may go again");
    else if ((rc = plx_attach_forget_lost(cli->session.attach, &count, &cli->fault)))
        return rc;
    else
        plx_out_note(cli,
                     "gave up %zu; 'parallax gc %s --dry-run' counts what became garbage by that, "
                     "and without --dry-run frees it",
                     count, name.store);
    if (count && labels)
        plx_out_note(cli,
                     "a damaged log stays damaged, and nothing is collected before its virtual "
                     "disk is deleted: export what can be read of it, then 'parallax vdi "
                     "delete'");
    if (cli->json)
        plx_out_json(json_pack("{s:s,s:I}", "name", name.store, "forgotten", (json_int_t)count));
    return 0;
}
