/* cmd_found.c - parallax store: scan, import, take-over, release, forget. Which stores there are,
 * and which host has one. */
#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attach/founding.h"
#include "cmd.h"
#include "output.h"
#include "registry/embedded.h"

/* ---- scan ------------------------------------------------------------------------------------ */

struct scan {
    struct plx_cli *cli;
    struct plx_paths *paths;
    json_t *rows;
    struct plx_fault first; /* what could not be read; code 0: nothing */
    unsigned shut;          /* devices that this user may not open */
};

/* What its volume 0, at this path, says of a store. */
static void look_at_tenant(struct scan *scan, const char *path, json_t *row)
{
    const struct plx_embedded_options look = {
        .volume = path,
        .uuid = json_string_value(json_object_get(row, "store_uuid")),
        .identity = json_string_value(json_object_get(row, "uuid")),
        .beside = true};
    struct plx_tenant tenant;

    if (plx_embedded_tenant(&look, scan->paths, &tenant, NULL))
        return;
    json_object_set_new(row, "host",
                        plx_uuid_is_zero(&tenant.host) ? json_null()
                                                       : plx_out_string(tenant.host_name));
    json_object_set_new(row, "ours", json_boolean(tenant.ours));
}

/* The path of the store's volume 0: its own, one that was found, or the one that is known here. */
static const char *first_volume(const struct scan *scan, const json_t *row,
                                const struct plx_known *known)
{
    const json_t *other;
    size_t i;

    if (json_integer_value(json_object_get(row, "index")) == 0)
        return json_string_value(json_object_get(row, "volume"));
    json_array_foreach(scan->rows, i, other)
    {
        if (json_equal(json_object_get(other, "uuid"), json_object_get(row, "uuid")) &&
            json_integer_value(json_object_get(other, "index")) == 0)
            return json_string_value(json_object_get(other, "volume"));
    }
    return known->volumes ? known->volume[0] : NULL;
}

/* Whose it is, once all volumes were seen: only volume 0 says so. */
static void set_tenant(struct scan *scan, json_t *row)
{
    const char *identity = json_string_value(json_object_get(row, "uuid")), *first;
    struct plx_known known = {0};
    bool is_known;

    if (!identity)
        return;
    is_known = plx_known_get(scan->paths, identity, &known, NULL) == 0;
    json_object_set_new(row, "known", is_known ? json_string(known.name) : json_null());
    first = first_volume(scan, row, &known);
    if (first)
        look_at_tenant(scan, first, row);
    plx_known_done(&known);
}

static int probe(struct scan *scan, const char *path, struct plx_superblock_info *ret_info,
                 bool *ret_opened)
{
    struct plx_device_open_options options = {.read_only = true, .queue_depth = 1, .beside = true};
    struct plx_device *device;
    int rc = plx_device_open(path, &options, &device, &scan->cli->fault);

    *ret_opened = !rc;
    if (rc)
        return rc;
    rc = plx_superblock_probe(device, ret_info, &scan->cli->fault);
    plx_device_close(device);
    return rc;
}

/* It is listed, and the others go on. */
static void keep_problem(struct scan *scan, const char *path)
{
    const struct plx_fault *fault = &scan->cli->fault;

    if (!scan->first.code)
        scan->first = *fault;
    json_array_append_new(scan->rows, json_pack("{s:o,s:o}", "volume", plx_out_string(path),
                                                "problem", plx_out_string(fault->text)));
}

/* named: by the user; else a device of this machine, which need not hold anything. */
static void scan_volume(struct scan *scan, const char *path, bool named)
{
    struct plx_superblock_info info;
    char store[PLX_UUID_TEXT], identity[PLX_UUID_TEXT];
    bool opened;
    int rc = probe(scan, path, &info, &opened);

    if (rc) {
        scan->shut += rc == PLX_ERR_PERMISSION;
        if (named || (opened && rc != PLX_ERR_NOT_FOUND))
            keep_problem(scan, path);
        return;
    }
    plx_uuid_text(&info.store, store);
    plx_uuid_text(&info.identity, identity);
    json_array_append_new(scan->rows,
                          json_pack("{s:o,s:o,s:s,s:s,s:I,s:I,s:I}", "volume", plx_out_string(path),
                                    "store", plx_out_string(info.store_name), "uuid", identity,
                                    "store_uuid", store, "index", (json_int_t)info.volume_index,
                                    "volumes", (json_int_t)info.volumes, "size_bytes",
                                    (json_int_t)info.volume_bytes));
}

/* Every block device of this machine. */
static void scan_devices(struct scan *scan)
{
    DIR *list = opendir("/sys/class/block");
    struct dirent *entry;

    while (list && (entry = readdir(list)) && !plx_session_stopped()) {
        char path[300];

        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "/dev/%s", entry->d_name);
        scan_volume(scan, path, false);
    }
    if (list)
        closedir(list);
}

static void print_scan(const struct scan *scan)
{
    static const struct plx_column columns[] = {
        {"volume", "VOLUME", PLX_COLUMN_TEXT},   {"store", "STORE", PLX_COLUMN_TEXT},
        {"index", "NUMBER", PLX_COLUMN_NUMBER},  {"volumes", "OF", PLX_COLUMN_NUMBER},
        {"size_bytes", "SIZE", PLX_COLUMN_SIZE}, {"host", "HOST", PLX_COLUMN_TEXT},
        {"known", "KNOWN AS", PLX_COLUMN_TEXT},  {NULL, NULL, 0},
    };
    struct plx_cli *cli = scan->cli;
    struct plx_table table;
    bool first = true; /* problem: that one is the error */
    json_t *row;
    size_t i;

    plx_table_begin(&table, cli, columns);
    json_array_foreach(scan->rows, i, row) plx_table_row(&table, json_incref(row));
    plx_table_end(&table);
    json_array_foreach(scan->rows, i, row)
    {
        const char *problem = json_string_value(json_object_get(row, "problem"));

        if (problem && !first)
            plx_out_note(cli, "%s", problem);
        first &= !problem;
    }
    if (!table.rows && !scan->shut)
        plx_out_note(cli, "no block device of this machine holds a store; files and iscsi:// URLs "
                          "are looked at when they are named");
    else if (!cli->count && scan->shut)
        plx_out_note(cli, "%u block device%s could not be opened; %s", scan->shut,
                     plx_plural(scan->shut),
                     geteuid() ? "look as root" : "'parallax store scan PATH' of one says why");
}

int plx_cmd_store_scan(struct plx_cli *cli)
{
    struct scan scan = {.cli = cli, .rows = json_array()};
    json_t *row;
    size_t i;
    int rc = plx_session_paths(cli, &scan.paths);

    for (unsigned n = 0; n < cli->count && !rc && !plx_session_stopped(); n++)
        scan_volume(&scan, cli->arguments[n], true);
    if (!rc && !cli->count)
        scan_devices(&scan);
    json_array_foreach(scan.rows, i, row) set_tenant(&scan, row);
    if (!rc)
        print_scan(&scan);
    json_decref(scan.rows);
    if (rc || !scan.first.code)
        return rc;
    cli->fault = scan.first;
    return scan.first.code;
}

/* ---- import, take-over, release, forget -------------------------------------------------------
 */

/* The disks that have an owner, as far as the registry can be read without writing. */
static json_t *list_open(const struct plx_known *known)
{
    const struct plx_embedded_options look = {
        .volume = known->volume[0], .uuid = known->uuid, .who = "parallax", .read_only = true};
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

enum had { HAD_ELSEWHERE, HAD_BY_NOBODY, HAD_HERE };

/* Who has the store before it is taken over. */
static enum had who_has(struct plx_cli *cli, const struct plx_known *known)
{
    const struct plx_embedded_options look = {.volume = known->volume[0],
                                              .uuid = known->uuid,
                                              .identity = known->identity,
                                              .beside = true};
    struct plx_tenant tenant;
    struct plx_paths *paths;

    if (plx_session_paths(cli, &paths) || plx_embedded_tenant(&look, paths, &tenant, NULL))
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
        plx_out_note(cli, "would take store %s from host %.64s, which was not seen to run%s", store,
                     from, unchanged);
    else
        plx_out_note(cli,
                     "this host has store %s now; its disks are recovered when it is opened "
                     "next",
                     store);
}

static void print_would_take(struct plx_cli *cli, const char *store, const struct plx_known *known,
                             const char *from, enum had had)
{
    json_t *open = list_open(known), *name;
    size_t i;

    note_taken(cli, store, from, true, had);
    json_array_foreach(open, i, name) plx_out_note(
        cli, "%s/%s was open there: it would be recovered, with all that was acknowledged", store,
        json_string_value(name));
    if (cli->json)
        plx_out_json(json_pack("{s:s,s:s,s:b,s:b,s:O}", "name", store, "from", from, "dry_run",
                               true, "already", had == HAD_HERE, "open", open));
    json_decref(open);
}

static void print_known(struct plx_cli *cli, const struct plx_known *known, bool copy)
{
    plx_out_note(cli, "store %s is known here%s; 'parallax vdi list %s' shows its virtual disks",
                 known->name, copy ? ", by an identity of its own" : "", known->name);
    if (cli->json)
        plx_out_json(json_pack("{s:s,s:s}", "name", known->name, "uuid", known->identity));
}

int plx_cmd_store_import(struct plx_cli *cli)
{
    struct plx_name name;
    struct plx_founding_import options = {.name = cli->count ? name.store : NULL,
                                          .from = plx_cli_get(cli, "from"),
                                          .copy = plx_cli_get(cli, "new-identity"),
                                          .patience = plx_session_patience(cli)};
    static struct plx_volumes_given volumes;
    struct plx_known known;
    int rc = cli->count ? plx_cli_name(cli, 0, PLX_NAME_STORE, &name) : 0;

    if (rc)
        return rc;
    if (options.from && !options.copy)
        return plx_cli_usage(cli, "--from goes with --new-identity; 'parallax store take-over' "
                                  "takes a store from a host that is off");
    if ((rc = plx_cmd_volumes_given(cli, &volumes)) ||
        (rc = plx_founding_import(cli->state_dir, volumes.path, volumes.count, &options, &known,
                                  &cli->fault)))
        return rc;
    print_known(cli, &known, options.copy);
    plx_known_done(&known);
    return 0;
}

/* The store that is to be taken over: by its name here, or by its volumes. */
static int find_taken(struct plx_cli *cli, struct plx_known *ret_known)
{
    static struct plx_volumes_given volumes;
    struct plx_paths *paths;
    struct plx_name name;
    int rc = cli->count ? plx_cli_name(cli, 0, PLX_NAME_STORE, &name)
                        : plx_cmd_volumes_given(cli, &volumes);

    if (rc || (rc = plx_session_paths(cli, &paths)))
        return rc;
    return cli->count ? plx_known_get(paths, name.store, ret_known, &cli->fault)
                      : plx_founding_identify(paths, volumes.path, volumes.count,
                                              plx_session_patience(cli), ret_known, &cli->fault);
}

/* from: NULL without the operator's word. */
static int take_over(struct plx_cli *cli, struct plx_known *known, const char *from, bool dry_run)
{
    const struct plx_patience *patience = plx_session_patience(cli);
    const struct plx_founding_import options = {
        .from = from, .dry_run = dry_run, .patience = patience};

    return cli->count ? plx_founding_take_over(cli->state_dir, known->name, from, dry_run, patience,
                                               &cli->fault)
                      : plx_founding_import_known(cli->state_dir, known, &options, &cli->fault);
}

static void print_taken(struct plx_cli *cli, const struct plx_known *known, const char *from,
                        enum had had)
{
    note_taken(cli, known->name, from, false, had);
    if (cli->count)
        plx_out_done(cli, json_pack("{s:s,s:s,s:b,s:b}", "name", known->name, "from", from,
                                    "dry_run", false, "already", had == HAD_HERE));
    else
        print_known(cli, known, false);
}

int plx_cmd_store_take_over(struct plx_cli *cli)
{
    const char *from = plx_cli_get(cli, "any") ? PLX_TENANCY_ANY : plx_cli_get(cli, "from");
    bool dry_run = plx_cli_get(cli, "dry-run"), word = plx_cli_get(cli, "i-checked-it-is-off");
    struct plx_known known;
    int rc;

    if (!from)
        return plx_cli_usage(cli, "--from is missing: the host that has the store, as 'parallax "
                                  "store scan' shows it");
    if ((rc = find_taken(cli, &known)))
        return rc;
    enum had had = who_has(cli, &known);
    if (!dry_run && !word && had != HAD_HERE) /* from which nothing is taken */
        rc = plx_cli_fail(cli, PLX_ERR_BUSY,
                          "nothing was changed: if host %.64s still runs, both would write and "
                          "destroy the store; when you have seen that it is off, add "
                          "--i-checked-it-is-off",
                          from);
    if (!rc)
        rc = take_over(cli, &known, dry_run || word ? from : NULL, dry_run);
    if (!rc && dry_run)
        print_would_take(cli, known.name, &known, from, had);
    else if (!rc)
        print_taken(cli, &known, from, had);
    plx_known_done(&known);
    return rc;
}

/* As 'store import' takes them. */
static void name_volumes(struct plx_cli *cli, const char *store,
                         char ret_text[PLX_KNOWN_VOLUMES_TEXT])
{
    struct plx_known known = {0};
    struct plx_paths *paths;

    snprintf(ret_text, PLX_KNOWN_VOLUMES_TEXT, "--volume PATH");
    if (plx_session_paths(cli, &paths) || plx_known_get(paths, store, &known, NULL))
        return; /* whoever asked meets that, too */
    plx_known_name_volumes(&known, ret_text);
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
    name_volumes(cli, name.store, volumes);
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
    char volumes[PLX_KNOWN_VOLUMES_TEXT];
    struct plx_name name;
    int rc;

    if ((rc = plx_cli_name(cli, 0, PLX_NAME_STORE, &name)))
        return rc;
    name_volumes(cli, name.store, volumes);
    if ((rc = plx_founding_forget(cli->state_dir, name.store, plx_session_patience(cli),
                                  &cli->fault)))
        return rc;
    plx_out_note(cli,
                 "forgot %s; its volumes were not touched: 'parallax store import %s' makes "
                 "it known again",
                 name.store, volumes);
    plx_out_done(cli, json_pack("{s:s,s:b}", "name", name.store, "forgotten", true));
    return 0;
}
