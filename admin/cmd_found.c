/* cmd_found.c - parallax store: import, take-over, release, forget. Which stores there are, and
 * which host has one. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attach/founding.h"
#include "cmd.h"
#include "output.h"
#include "registry/embedded.h"
#include "registry/host_word.h"
#include "ring_hints.h"

/* ---- import, take-over, release, forget ---- */

/* The disks that have an owner, as far as the registry can be read without writing. */
static json_t *list_open(struct plx_cli *cli, const struct plx_known *known)
{
    const struct plx_embedded_options look = {.volume = known->volume[0],
                                              .uuid = known->uuid,
                                              .who = "parallax",
                                              .read_only = true,
                                              .patience = plx_session_patience(cli)};
    struct plx_registry_vdi *vdis = NULL;
    struct plx_registry_store row;
    struct plx_registry *registry;
    json_t *names = json_array();
    size_t count = 0;

    if (plx_embedded_open(&look, &registry, NULL)) {
        json_decref(names);
        return json_null();
    }
    if (plx_registry_store_get(registry, known->uuid, &row) == 0)
        plx_registry_vdi_list(registry, row.id, false, NULL, 0, &vdis, &count);
    for (size_t i = 0; i < count; i++)
        if (vdis[i].owner)
            json_array_append_new(names, plx_out_string(vdis[i].name));
    free(vdis);
    plx_registry_close(registry);
    return names;
}

/* False: nobody can tell. */
static bool read_tenant(struct plx_cli *cli, const struct plx_known *known,
                        struct plx_tenant *ret_tenant)
{
    const struct plx_embedded_options look = {.volume = known->volume[0],
                                              .uuid = known->uuid,
                                              .identity = known->identity,
                                              .beside = true};
    struct plx_paths *paths;

    return !plx_session_paths(cli, &paths) && !plx_embedded_tenant(&look, paths, ret_tenant, NULL);
}

enum had { HAD_ELSEWHERE, HAD_BY_NOBODY, HAD_HERE };

/* Who has the store before it is taken over. */
static enum had who_has(struct plx_cli *cli, const struct plx_known *known)
{
    struct plx_tenant tenant;

    if (!read_tenant(cli, known, &tenant))
        return HAD_ELSEWHERE;
    return tenant.ours ? HAD_HERE : plx_uuid_is_zero(&tenant.host) ? HAD_BY_NOBODY : HAD_ELSEWHERE;
}

/* What --from says is not judged where that host has nothing to lose, so it is told. */
static void note_taken(struct plx_cli *cli, const char *store, const char *from, bool dry_run,
                       enum had had)
{
    const char *unchanged = dry_run ? "; nothing was changed" : "";
    bool any = strcmp(from, PLX_TENANCY_ANY) == 0;

    if (had == HAD_HERE)
        plx_out_note(cli, "this host has store %s already, so nothing %s taken from %s%.64s%s",
                     store, dry_run ? "would be" : "was", any ? "another" : "host ",
                     any ? "" : from, unchanged);
    else if (had == HAD_BY_NOBODY)
        plx_out_note(cli, "no host %s store %s, so nothing %s taken from %s%.64s; this host %s%s",
                     dry_run ? "has" : "had", store, dry_run ? "would be" : "was",
                     any ? "another" : "host ", any ? "" : from,
                     dry_run ? "would have it" : "has it now", unchanged);
    else if (dry_run)
        plx_out_note(cli, "would take store %s from %s%.64s, which was not seen to run%s", store,
                     any ? "whichever host had it" : "host ", any ? "" : from, unchanged);
    else
        plx_out_note(cli,
                     "this host has store %s now; its disks are recovered when it is opened "
                     "next",
                     store);
}

static bool has(json_t *names, json_t *name)
{
    bool is = false;

    for (size_t i = 0; i < json_array_size(names); i++)
        is |= json_equal(json_array_get(names, i), name);
    return is;
}

static void print_would_take(struct plx_cli *cli, const char *store, const struct plx_known *known,
                             const char *from, enum had had)
{
    json_t *open = list_open(cli, known), *needing = json_array(), *name;
    size_t i;

    note_taken(cli, store, from, true, had);
    plx_ring_hint_taken(cli, known, from, true, needing);
    json_array_foreach(open, i, name) plx_out_note(
        cli, "%s/%s was open there: it would be recovered, with all that was acknowledged%s", store,
        json_string_value(name), has(needing, name) ? " and is not on that ring only" : "");
    if (cli->json)
        plx_out_json(json_pack("{s:s,s:s,s:b,s:b,s:O,s:O}", "name", store, "from", from, "dry_run",
                               true, "already", had == HAD_HERE, "open", open, "ring_needed",
                               needing));
    json_decref(needing);
    json_decref(open);
}

static void print_known(struct plx_cli *cli, const struct plx_known *known,
                        const struct plx_founding_import *options)
{
    plx_out_note(cli, "store %s is known here%s; 'parallax vdi list %s' shows its virtual disks",
                 known->name,
                 options->copy         ? ", by an identity of its own"
                 : !options->read_only ? ""
                 : who_has(cli, known) == HAD_HERE
                     ? ", and this host has it already: nothing was written to it"
                     : " and was not taken: it can only be read",
                 known->name);
    if (cli->json)
        plx_out_json(json_pack("{s:s,s:s}", "name", known->name, "uuid", known->identity));
    if (options->from)
        plx_ring_hint_taken(cli, known, options->from, false, NULL);
    else if (!options->read_only)
        plx_ring_hint_imported(cli, known, options->copy);
}

int plx_cmd_store_import(struct plx_cli *cli)
{
    struct plx_name name;
    struct plx_founding_import options = {.name = cli->count ? name.store : NULL,
                                          .copy = plx_cli_get(cli, "new-identity"),
                                          .is_copy = plx_cli_get(cli, "i-checked-it-is-a-copy"),
                                          .read_only = plx_cli_get(cli, "read-only"),
                                          .patience = plx_session_patience(cli)};
    struct plx_volumes_given volumes = {0};
    struct plx_known known;
    int rc = cli->count ? plx_cli_name(cli, 0, PLX_NAME_STORE, &name) : 0;

    if (rc)
        return rc;
    if (options.is_copy && !options.copy)
        return plx_cli_usage(cli, "--i-checked-it-is-a-copy goes with --new-identity");
    if (options.read_only && options.copy)
        return plx_cli_usage(cli, "--new-identity writes to the volumes, and --read-only does "
                                  "not: give one of them");
    if ((rc = plx_cmd_volumes_given(cli, &volumes)) ||
        (rc = plx_founding_import(cli->state_dir, volumes.path, volumes.count, &options, &known,
                                  &cli->fault)))
        return rc;
    print_known(cli, &known, &options);
    plx_known_done(&known);
    return 0;
}

/* The store that is to be taken over: by its name here, or by its volumes. */
static int find_taken(struct plx_cli *cli, struct plx_known *ret_known)
{
    struct plx_volumes_given volumes = {0};
    struct plx_paths *paths;
    struct plx_name name;
    int rc = plx_cmd_store_or_volumes(cli, &name, &volumes);

    if (rc || (rc = plx_session_paths(cli, &paths)))
        return rc;
    return cli->count ? plx_known_get(paths, name.store, ret_known, &cli->fault)
                      : plx_founding_identify(paths, volumes.path, volumes.count,
                                              plx_session_patience(cli), ret_known, &cli->fault);
}

/* from: NULL without the operator's word. */
static int take_over(struct plx_cli *cli, struct plx_known *known, const char *from, bool dry_run)
{
    struct plx_progress progress;
    int rc;

    const struct plx_patience *patience = plx_session_patience(cli);
    const struct plx_founding_import options = {
        .from = from, .dry_run = dry_run, .patience = patience};

    plx_progress_begin(&progress, cli, "watching for up to ten seconds whether a host is alive", 0);
    progress.plain = true;
    plx_progress_show(&progress, 0);
    rc = cli->count ? plx_founding_take_over(cli->state_dir, known->name, from, dry_run, patience,
                                             &cli->fault)
                    : plx_founding_import_known(cli->state_dir, known, &options, &cli->fault);
    plx_progress_end(&progress);
    return rc;
}

static void print_taken(struct plx_cli *cli, const struct plx_known *known, const char *from,
                        enum had had)
{
    note_taken(cli, known->name, from, false, had);
    if (cli->count)
        plx_out_done(cli, json_pack("{s:s,s:s,s:b,s:b}", "name", known->name, "from", from,
                                    "dry_run", false, "already", had == HAD_HERE));
    if (cli->count)
        plx_ring_hint_taken(cli, known, from, false, NULL);
    else
        print_known(cli, known, &(struct plx_founding_import){.from = from});
}

int plx_cmd_store_take_over(struct plx_cli *cli)
{
    const char *from = plx_cli_get(cli, "any") ? PLX_TENANCY_ANY : plx_cli_get(cli, "from");
    bool dry_run = plx_cli_get(cli, "dry-run"), word = plx_cli_get(cli, "i-checked-it-is-off");
    bool any = plx_cli_get(cli, "any");
    struct plx_known known;
    int rc;

    if (!from)
        return plx_cli_usage(cli, "--from is missing: the host that has the store, as 'parallax "
                                  "store scan' shows it");
    if ((rc = find_taken(cli, &known)))
        return rc;
    enum had had = who_has(cli, &known);
    if (!dry_run && !word && had != HAD_HERE) /* from which nothing is taken */
        rc = plx_cli_fail(cli, PLX_ERR_UNCONFIRMED,
                          "nothing was changed: if %s%.64s still runs, both would write and "
                          "destroy the store; when you have seen that it is off, add "
                          "--i-checked-it-is-off",
                          any ? "the host that has it" : "host ", any ? "" : from);
    if (!rc)
        rc = take_over(cli, &known, dry_run || word ? from : NULL, dry_run);
    if (!rc && dry_run)
        print_would_take(cli, known.name, &known, from, had);
    else if (!rc)
        print_taken(cli, &known, from, had);
    plx_known_done(&known);
    return rc;
}

/* As 'store import' takes them; and who has the store, if that is asked and can be told. */
static void name_volumes(struct plx_cli *cli, const char *store,
                         char ret_text[PLX_KNOWN_VOLUMES_TEXT], struct plx_tenant *ret_tenant)
{
    struct plx_known known = {0};
    struct plx_paths *paths;

    snprintf(ret_text, PLX_KNOWN_VOLUMES_TEXT, "--volume PATH");
    if (plx_session_paths(cli, &paths) || plx_known_get(paths, store, &known, NULL))
        return; /* whoever asked meets that, too */
    plx_known_name_volumes(&known, ret_text);
    if (ret_tenant && !read_tenant(cli, &known, ret_tenant))
        *ret_tenant = (struct plx_tenant){0};
    plx_known_done(&known);
}

int plx_cmd_store_release(struct plx_cli *cli)
{
    bool dry_run = plx_cli_get(cli, "dry-run");
    char volumes[PLX_KNOWN_VOLUMES_TEXT];
    struct plx_name name;
    int rc;

    if ((rc = plx_cli_name(cli, 0, PLX_NAME_STORE, &name)) ||
        (rc = plx_founding_release(cli->state_dir, name.store, dry_run, plx_session_patience(cli),
                                   &cli->fault)))
        return rc;
    name_volumes(cli, name.store, volumes, NULL);
    if (dry_run)
        plx_out_note(cli, "would give store %s up: nobody has it open; nothing was changed",
                     name.store);
    else
        plx_out_note(cli,
                     "no host has store %s now; 'parallax store import %s' takes it, here or "
                     "elsewhere",
                     name.store, volumes);
    plx_out_done(cli, json_pack("{s:s,s:b,s:b}", "name", name.store, "released", !dry_run,
                                "dry_run", dry_run));
    return 0;
}

int plx_cmd_store_forget(struct plx_cli *cli)
{
    char volumes[PLX_KNOWN_VOLUMES_TEXT], ring[PLX_RING_HINT_STAYS], called[PLX_HOST_WORD];
    struct plx_tenant tenant = {0};
    struct plx_paths *paths;
    struct plx_name name;
    int rc;

    if ((rc = plx_cli_name(cli, 0, PLX_NAME_STORE, &name)) || (rc = plx_session_paths(cli, &paths)))
        return rc;
    name_volumes(cli, name.store, volumes, &tenant);
    plx_ring_hint_stays(paths, name.store, ring);
    if ((rc = plx_founding_forget(cli->state_dir, name.store, plx_session_patience(cli),
                                  &cli->fault)))
        return rc;
    if (tenant.found && !tenant.ours && !plx_uuid_is_zero(&tenant.host))
        plx_out_note(cli,
                     "forgot %s; its volumes were not touched; host %s has it, so only 'parallax "
                     "store import --read-only %s' makes it known here again%s",
                     name.store, plx_host_called(tenant.host_name, &tenant.host, called), volumes,
                     ring);
    else
        plx_out_note(cli,
                     "forgot %s; its volumes were not touched: 'parallax store import %s' makes "
                     "it known again%s%s",
                     name.store, volumes, tenant.found ? "" : ", if no other host has it", ring);
    plx_out_done(cli, json_pack("{s:s,s:b}", "name", name.store, "forgotten", true));
    return 0;
}
