/* cmd_scan.c - parallax store scan: which volumes hold a store, and which host has it. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attach/known.h"
#include "attach/numbers.h"
#include "cmd.h"
#include "output.h"
#include "ring_hints.h"
#include "registry/embedded.h"

#define SHUT_NAMED 3u

struct scan {
    struct plx_cli *cli;
    struct plx_paths *paths;
    json_t *rows;
    struct plx_fault first; /* what could not be read, or went back; code 0: nothing */
    const json_t *first_row;
    unsigned shut; /* devices that this user may not open, and the first of them */
    char shut_names[100];
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
    char id[PLX_UUID_TEXT];

    if (plx_embedded_tenant(&look, scan->paths, &tenant, NULL) || !tenant.found)
        return; /* nobody knows */
    json_object_set_new(row, "host",
                        !plx_uuid_is_zero(&tenant.host) ? plx_out_string(tenant.host_name)
                        : scan->cli->json               ? json_null()
                                                        : json_string("(released)"));
    json_object_set_new(row, "ours", json_boolean(tenant.ours));
    if (plx_uuid_is_zero(&tenant.host))
        return;
    plx_uuid_text(&tenant.host, id);
    json_object_set_new(row, "host_uuid", json_string(id));
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

static bool lies_there(const struct plx_known *known, const char *path)
{
    struct plx_known_place place;

    return plx_known_at(known, 1, NULL, path, &place, NULL) == 0 && place.overlap == PLX_SAME;
}

static int probe(const char *path, struct plx_superblock_info *ret_info, uint64_t *ret_bytes,
                 bool *ret_opened, struct plx_fault *fault)
{
    struct plx_device_open_options options = {.read_only = true, .beside = true};
    struct plx_device *device;
    int rc = plx_device_open(path, &options, &device, fault);

    *ret_opened = !rc;
    if (rc)
        return rc;
    rc = plx_superblock_probe(device, ret_info, fault);
    *ret_bytes = device->bytes;
    plx_device_close(device);
    return rc;
}

/* Whether the volume has left the place where the known store has it. A place that cannot be read
 * may still hold it. */
static bool has_left(const struct plx_known *known, const json_t *row)
{
    size_t index = (size_t)json_integer_value(json_object_get(row, "index"));
    struct plx_superblock_info info;
    char identity[PLX_UUID_TEXT];
    uint64_t bytes;
    bool opened;
    int rc;

    if (index >= known->volumes)
        return false;
    rc = probe(known->volume[index], &info, &bytes, &opened, NULL);
    if (rc)
        return rc == PLX_ERR_NOT_FOUND;
    plx_uuid_text(&info.identity, identity);
    return info.volume_index != index || strcmp(identity, known->identity) != 0;
}

/* What this host calls it: a volume of a known store where that has it, or somewhere else; or one
 * of a number that the store, as it is known, does not have: then it is a copy of none. */
static void set_known(const struct plx_known *known, json_t *row)
{
    bool there = lies_there(known, json_string_value(json_object_get(row, "volume")));
    bool further = json_integer_value(json_object_get(row, "index")) >= known->volumes;
    bool moved = !there && has_left(known, row);
    const char *form = there     ? "%s"
                       : further ? "%s, not counted"
                       : moved   ? "%s, moved"
                                 : "copy of %s";
    const char *key = there ? "known" : further ? "uncounted" : moved ? "moved" : "copy_of";

    json_object_set_new(row, key, json_string(known->name));
    json_object_set_new(row, "known_as", json_sprintf(form, known->name));
}

/* Whose it is, once all volumes were seen: only volume 0 says so. */
static void set_tenant(struct scan *scan, json_t *row)
{
    const char *identity = json_string_value(json_object_get(row, "uuid")), *first;
    struct plx_known known = {0};

    if (!identity)
        return;
    if (plx_known_get(scan->paths, identity, &known, NULL) == 0)
        set_known(&known, row);
    first = first_volume(scan, row, &known);
    if (first)
        look_at_tenant(scan, first, row);
    plx_known_done(&known);
}

/* It is listed, and the others go on. */
static void keep_problem(struct scan *scan, json_t *row)
{
    const struct plx_fault *fault = &scan->cli->fault;

    if (!scan->first.code) {
        scan->first = *fault;
        scan->first_row = row;
    }
    json_object_set_new(row, "problem", plx_out_string(fault->text));
}

/* How many rows have this volume of the store, copies of a known one left out; *ret_row: one. */
static unsigned count_rows(const struct scan *scan, const json_t *store, json_int_t index,
                           json_t **ret_row)
{
    unsigned count = 0;
    json_t *row;
    size_t i;

    json_array_foreach(scan->rows, i, row)
    {
        if (json_is_string(json_object_get(row, "copy_of")) ||
            !json_equal(json_object_get(row, "uuid"), json_object_get(store, "uuid")) ||
            json_integer_value(json_object_get(row, "index")) != index)
            continue;
        *ret_row = row;
        count++;
    }
    return count;
}

/* The volume 0 that this further one belongs to; NULL: there are several of either, as when backups
 * are scanned, or none. *ret_row: its row, if it has one. */
static const char *find_first(const struct scan *scan, const json_t *row,
                              const struct plx_known *known, json_t **ret_row)
{
    unsigned firsts = count_rows(scan, row, 0, ret_row);
    json_int_t index = json_integer_value(json_object_get(row, "index"));
    json_t *self;

    if (json_is_string(json_object_get(row, "known"))) {
        if (firsts > 1)
            *ret_row = NULL;
        return known->volume[0];
    }
    if (firsts > 1 || count_rows(scan, row, index, &self) > 1)
        return NULL;
    return firsts           ? json_string_value(json_object_get(*ret_row, "volume"))
           : known->volumes ? known->volume[0]
                            : NULL;
}

static int compare_paths(struct scan *scan, const char *const *paths, const json_t *row,
                         const char *known_as, unsigned *ret_volume)
{
    struct plx_device_open_options options = {.read_only = true, .beside = true};
    struct plx_device *devices[2] = {NULL, NULL};
    struct plx_superblock_info info;
    struct plx_uuid store;
    int rc = 0;

    if (!plx_device_open(paths[0], &options, &devices[0], NULL) &&
        !plx_device_open(paths[1], &options, &devices[1], NULL) &&
        plx_uuid_parse(json_string_value(json_object_get(row, "store_uuid")), &store) &&
        !plx_superblock_probe(devices[0], &info, NULL) && info.volume_index == 0 &&
        plx_uuid_equal(&info.store, &store))
        rc = plx_numbers_look(devices, 2, &store, known_as ? known_as : info.store_name,
                              known_as ? known_as : "--volume PATH...", ret_volume,
                              &scan->cli->fault);
    plx_device_close(devices[0]);
    plx_device_close(devices[1]);
    return rc;
}

/* Once it is known which rows are copies. */
static void compare_numbers(struct scan *scan, json_t *row)
{
    const char *paths[2] = {NULL, json_string_value(json_object_get(row, "volume"))};
    const char *identity = json_string_value(json_object_get(row, "uuid"));
    struct plx_known known = {0};
    json_t *first = NULL;
    unsigned back;

    if (!identity || !json_integer_value(json_object_get(row, "index")) ||
        json_is_string(json_object_get(row, "copy_of")) ||
        json_is_string(json_object_get(row, "uncounted")) ||
        json_is_string(json_object_get(row, "problem")))
        return;
    plx_known_get(scan->paths, identity, &known, NULL);
    paths[0] = find_first(scan, row, &known, &first);
    if (paths[0] && compare_paths(scan, paths, row, known.volumes ? known.name : NULL, &back)) {
        row = back || !first ? row : first;
        if (!json_is_string(json_object_get(row, "problem")))
            keep_problem(scan, row);
    }
    plx_known_done(&known);
}

/* What holds no store may be a ring's member, which nobody is to delete for that. It is an error
 * only where a store was looked for. */
static bool scan_ring(struct scan *scan, const char *path, bool named)
{
    struct plx_ring_hint hint;
    struct plx_fault why;
    int error = plx_ring_hint_member(scan->paths, path, &hint, &why);
    json_t *row;

    if (error == PLX_ERR_NOT_FOUND)
        return false;
    row = json_pack("{s:o,s:o}", "volume", plx_out_string(path), "known_as",
                    json_sprintf("ring of %s", hint.name[0]    ? hint.name
                                               : hint.store[0] ? "a store"
                                                               : "nobody knows whom"));
    json_array_append_new(scan->rows, row);
    if (hint.host[0])
        json_object_set_new(row, "host", plx_out_string(hint.host));
    if (hint.host_uuid[0])
        json_object_set_new(row, "host_uuid", json_string(hint.host_uuid));
    if (hint.ring[0]) {
        json_object_set_new(row, "ring", json_string(hint.ring));
        json_object_set_new(row, "ring_store_uuid", json_string(hint.store));
    }
    if (named) {
        plx_cli_fail(scan->cli, error ? error : PLX_ERR_NOT_FOUND, "%s",
                     error ? why.text : hint.text);
        keep_problem(scan, row);
    } else if (!hint.known) {
        json_object_set_new(row, "note", plx_out_string(error ? why.text : hint.text));
    }
    return true;
}

static void add_shut(struct scan *scan, const char *path)
{
    size_t used = strlen(scan->shut_names);

    if (scan->shut++ < SHUT_NAMED && used + strlen(path) + 3 < sizeof scan->shut_names)
        snprintf(scan->shut_names + used, sizeof scan->shut_names - used, "%s%s", used ? ", " : "",
                 path);
}

/* named: by the user; else a device of this machine, which need not hold anything. */
static void scan_volume(struct scan *scan, const char *path, bool named)
{
    struct plx_superblock_info info;
    char store[PLX_UUID_TEXT], identity[PLX_UUID_TEXT];
    uint64_t bytes;
    bool opened;
    int rc = probe(path, &info, &bytes, &opened, &scan->cli->fault);
    json_t *row;

    if (rc == PLX_ERR_PERMISSION)
        add_shut(scan, path);
    if (opened && rc == PLX_ERR_NOT_FOUND && scan_ring(scan, path, named))
        return;
    if (rc && !named && (!opened || rc == PLX_ERR_NOT_FOUND))
        return;
    row = json_pack("{s:o}", "volume", plx_out_string(path));
    json_array_append_new(scan->rows, row);
    if (rc) {
        keep_problem(scan, row);
        return;
    }
    plx_uuid_text(&info.store, store);
    plx_uuid_text(&info.identity, identity);
    json_object_update_new(
        row,
        json_pack("{s:o,s:s,s:s,s:I,s:I,s:I}", "store", plx_out_string(info.store_name), "uuid",
                  identity, "store_uuid", store, "index", (json_int_t)info.volume_index, "volumes",
                  (json_int_t)info.volumes, "size_bytes", (json_int_t)info.volume_bytes));
    if (info.volume_bytes > bytes) {
        plx_cmd_volume_cut_off(scan->cli, path, bytes, info.volume_bytes);
        keep_problem(scan, row);
    }
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

static int print_scan(const struct scan *scan)
{
    static const struct plx_column columns[] = {
        {"volume", "VOLUME", PLX_COLUMN_TEXT},
        {"store", "STORE", PLX_COLUMN_TEXT},
        {"index", "NUMBER", PLX_COLUMN_NUMBER},
        {"volumes", "OF", PLX_COLUMN_NUMBER},
        {"size_bytes", "SIZE", PLX_COLUMN_SIZE},
        {"host", "HOST", PLX_COLUMN_TEXT},
        {"known_as", "KNOWN AS", PLX_COLUMN_TEXT},
        {"host_uuid", "HOST UUID", PLX_COLUMN_ASKED},
        {NULL, NULL, 0},
    };
    struct plx_cli *cli = scan->cli;
    struct plx_table table;
    json_t *row;
    size_t i;

    if (plx_table_begin(&table, cli, columns))
        return PLX_ERR_USAGE;
    json_array_foreach(scan->rows, i, row)
    {
        plx_out_keys(row, "uuid", "store_uuid", "host_uuid", "ours", "known", "moved", "copy_of",
                     "uncounted", "ring", "ring_store_uuid", "note", "problem", NULL);
        plx_table_row(&table, json_incref(row));
    }
    plx_table_end(&table);
    json_array_foreach(scan->rows, i, row)
    {
        const char *problem = json_string_value(json_object_get(row, "problem"));

        if (problem && row != scan->first_row) /* that one is the error */
            plx_out_note(cli, "%s", problem);
        if (json_is_string(json_object_get(row, "note")))
            plx_out_note(cli, "%s", json_string_value(json_object_get(row, "note")));
        if (json_is_string(json_object_get(row, "moved")))
            plx_out_note(cli,
                         "%s: store %s is known at another place, which does not hold it any more; "
                         "'parallax store import' with all its volumes makes this place known",
                         json_string_value(json_object_get(row, "volume")),
                         json_string_value(json_object_get(row, "moved")));
        if (json_is_string(json_object_get(row, "uncounted")))
            plx_out_note(cli,
                         "%s: volume %d of store %s, which is known here with fewer volumes: its "
                         "first volume went back to an older state, or an add-volume was cut off",
                         json_string_value(json_object_get(row, "volume")),
                         (int)json_integer_value(json_object_get(row, "index")),
                         json_string_value(json_object_get(row, "uncounted")));
    }
    if (!cli->count && !table.rows)
        plx_out_note(cli,
                     "no block device%s holds a store; 'parallax store scan PATH...' looks at "
                     "files and iscsi:// URLs",
                     scan->shut ? " that could be opened" : " of this machine");
    if (!cli->count && scan->shut)
        plx_out_note(cli, "%u block device%s could not be opened (%s%s); %s", scan->shut,
                     plx_plural(scan->shut), scan->shut_names,
                     scan->shut > SHUT_NAMED ? ", ..." : "",
                     geteuid() ? "look as root" : "'parallax store scan PATH' of one says why");
    return 0;
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
    json_array_foreach(scan.rows, i, row) compare_numbers(&scan, row);
    if (!rc)
        rc = print_scan(&scan);
    json_decref(scan.rows);
    if (rc || !scan.first.code)
        return rc;
    cli->fault = scan.first;
    return scan.first.code;
}
