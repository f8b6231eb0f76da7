/* cmd_store.c - parallax store: format, list, info, stats. Check is in cmd_check.c, space and set
 * are in cmd_space.c, what concerns the store's host in cmd_found.c, its registry in
 * cmd_registry.c. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd.h"
#include "output.h"
#include "space.h"
#include "attach/founding.h"
#include "attach/numbers.h"
#include "attach/volumes.h"
#include "registry/clusters.h"

/* ---- format ---------------------------------------------------------------------------------- */

/* Where a store lies is kept as JSON (known.h), which has no other bytes than text. */
static int check_path(struct plx_cli *cli, const char *path)
{
    json_t *text = json_string(path);
    bool good = text != NULL;

    json_decref(text);
    return good ? 0
                : plx_cli_usage(cli, "volume '%.150s': its path is no UTF-8; give it another name",
                                path);
}

int plx_cmd_volumes_given(struct plx_cli *cli, struct plx_volumes_given *volumes)
{
    volumes->count = plx_cli_all(cli, "volume", volumes->path, PLX_VOLUMES_MAX + 1);
    if (!volumes->count)
        return plx_cli_usage(cli, "--volume is missing: the file, block device or iscsi:// URL");
    if (volumes->count > PLX_VOLUMES_MAX)
        return plx_cli_usage(cli, "more than %d volumes", PLX_VOLUMES_MAX);
    int rc = 0;
    for (unsigned i = 0; i < volumes->count && !rc; i++) {
        rc = check_path(cli, volumes->path[i]);
        for (unsigned j = 0; j < i; j++)
            if (!strcmp(volumes->path[i], volumes->path[j]))
                return plx_cli_usage(cli, "volume %.150s is given twice", volumes->path[i]);
    }
    return rc;
}

int plx_cmd_store_or_volumes(struct plx_cli *cli, struct plx_name *ret_name,
                             struct plx_volumes_given *ret_volumes)
{
    if (cli->count && plx_cli_get(cli, "volume"))
        return plx_cli_usage(cli, "give STORE if it is known here, or --volume for each of its "
                                  "volumes, not both");
    if (cli->count)
        return plx_cli_name(cli, 0, PLX_NAME_STORE, ret_name);
    if (!plx_cli_get(cli, "volume"))
        return plx_cli_usage(cli, "which store? Give its name, or --volume for each of its "
                                  "volumes if it is not known here");
    return plx_cmd_volumes_given(cli, ret_volumes);
}

/* Whether a file may have to be made beside a volume that exists, which --size would not fit. */
static bool has_several(const struct plx_cli *cli)
{
    const char *two[2];

    return plx_cli_has(cli, "volume") && plx_cli_all(cli, "volume", two, 2) == 2;
}

int plx_cmd_volume_look(struct plx_cli *cli, const char *path, uint64_t size, bool *ret_made)
{
    struct stat st;

    *ret_made = false;
    if (plx_cli_get(cli, "size") && !size)
        return plx_cli_usage(cli, "--size is 0");
    if (size % PLX_BLOCK_SIZE)
        return plx_cli_usage(cli,
                             "--size '%.40s' is %" PRIu64 " byte%s, and must be a multiple of %u; "
                             "write it as 64M, 1G or 2T",
                             plx_cli_get(cli, "size"), size, plx_plural(size), PLX_BLOCK_SIZE);
    int rc = check_path(cli, path);
    if (rc || !strncmp(path, "iscsi://", 8))
        return rc;
    if (stat(path, &st) && errno != ENOENT)
        return plx_cli_fail(cli, PLX_ERR_SYSTEM, "%.150s: %s; check the path", path,
                            strerror(errno));
    *ret_made = access(path, F_OK) != 0;
    if (*ret_made && !size)
        return plx_cli_fail(cli, PLX_ERR_NOT_FOUND,
                            "%.150s does not exist; give --size to make a file of that size%s",
                            path,
                            has_several(cli) ? ", or make it beforehand ('truncate -s SIZE PATH') "
                                               "and leave --size out"
                                             : "");
    if (!*ret_made && S_ISREG(st.st_mode) && !st.st_size)
        return plx_cli_fail(cli, PLX_ERR_EXISTS,
                            "%.150s is empty; delete it, and --size makes a file of that size",
                            path);
    if (!*ret_made && S_ISREG(st.st_mode) && size && (uint64_t)st.st_size != size)
        return plx_cli_fail(cli, PLX_ERR_EXISTS,
                            "%.150s exists with %" PRIu64 " byte%s, and --size is for a file that "
                            "is created; leave it out%s",
                            path, (uint64_t)st.st_size, plx_plural((uint64_t)st.st_size),
                            has_several(cli)
                                ? ", and the others have to be made beforehand ('truncate "
                                  "-s SIZE PATH')"
                                : "");
    return 0;
}

int plx_cmd_volume_whole(struct plx_cli *cli, const char *path)
{
    struct stat st;

    if (!plx_cli_get(cli, "size") || (stat(path, &st) == 0 && !S_ISBLK(st.st_mode)))
        return 0;
    return plx_cli_usage(cli,
                         "--size is for a file that is created, and %.150s is used whole: leave "
                         "it out",
                         path);
}

/* Before anything is made. A device may stand beside files that are. */
static int look_at_volumes(struct plx_cli *cli, struct plx_volumes_given *volumes, uint64_t size)
{
    bool made, any = false;
    int rc = 0;

    for (unsigned i = 0; i < volumes->count && !rc; i++) {
        rc = plx_cmd_volume_look(cli, volumes->path[i], size, &made);
        any |= made;
    }
    for (unsigned i = 0; i < volumes->count && !rc && !any; i++)
        rc = plx_cmd_volume_whole(cli, volumes->path[i]);
    return rc;
}

int plx_cmd_store_format(struct plx_cli *cli)
{
    struct plx_format_options options = {.force = plx_cli_get(cli, "force")};
    struct plx_store_info info = {0};
    struct plx_volumes_given volumes = {0};
    struct plx_name name;
    uint64_t size = 0;
    char text[16];
    int rc;

    if ((rc = plx_cli_name(cli, 0, PLX_NAME_STORE, &name)) ||
        (rc = plx_cmd_volumes_given(cli, &volumes)) || (rc = plx_cli_size(cli, "size", &size)) ||
        (rc = plx_cli_size(cli, "extent-size", &options.extent_bytes)))
        return rc;
    if (plx_cli_get(cli, "extent-size") &&
        (options.extent_bytes < (1u << 20) || options.extent_bytes > (2ull << 30) ||
         (options.extent_bytes & (options.extent_bytes - 1))))
        return plx_cli_usage(cli, "--extent-size is a power of two from 1M to 2G");
    if ((rc = look_at_volumes(cli, &volumes, size)))
        return rc;
    strcpy(options.name, name.store);
    rc = plx_founding_format(cli->state_dir, volumes.path, volumes.count, size, &options,
                             plx_cli_get(cli, "i-checked-nobody-uses-it"),
                             plx_session_patience(cli), &info, &cli->fault);
    if (rc)
        return rc;
    plx_out_note(cli, "formatted %s: %s on %u volume%s", info.name,
                 plx_text_size(info.extents * info.extent_blocks * info.block_size, text),
                 info.volumes, plx_plural(info.volumes));
    if (!cli->json)
        return 0;
    char id[PLX_UUID_TEXT];
    plx_uuid_text(&info.identity, id);
    plx_out_json(json_pack("{s:s,s:s,s:I,s:I}", "name", info.name, "uuid", id, "size_bytes",
                           (json_int_t)(info.extents * info.extent_blocks * info.block_size),
                           "extent_bytes", (json_int_t)(info.extent_blocks * info.block_size)));
    return 0;
}

/* ---- list, info ---- */

static void add_volumes(json_t *row, const struct plx_known *known)
{
    json_t *paths = json_array();

    for (unsigned v = 0; v < known->volumes; v++)
        json_array_append_new(paths, json_string(known->volume[v]));
    json_object_set_new(row, "volumes", paths);
}

int plx_cmd_volume_cut_off(struct plx_cli *cli, const char *path, uint64_t bytes,
                           uint64_t store_bytes)
{
    return plx_cli_fail(cli, PLX_ERR_CORRUPT,
                        "%.150s has %" PRIu64 " bytes, and the store uses %" PRIu64
                        " of it: it was cut off; restore the missing part, or make it that "
                        "large again to read what is left ('truncate -s %" PRIu64
                        "', if it is a file)",
                        path, bytes, store_bytes, store_bytes);
}

/* *counted: the volumes that volume 0 counts. */
static int look_at_volume(struct plx_cli *cli, const struct plx_known *known, unsigned v,
                          unsigned *counted, struct plx_device **ret_device)
{
    struct plx_device_open_options options = {.read_only = true, .beside = true};
    const char *path = known->volume[v];
    struct plx_superblock_info info;
    struct plx_device *device;
    char identity[PLX_UUID_TEXT], volumes[PLX_KNOWN_VOLUMES_TEXT];
    int rc = plx_device_open(path, &options, &device, &cli->fault);

    plx_known_count_volumes(known, volumes);
    if (rc)
        return plx_known_missing(known, rc, &cli->fault);
    *ret_device = device;
    rc = plx_known_missing(known, plx_superblock_probe(device, &info, &cli->fault), &cli->fault);
    if (rc)
        return rc;
    plx_uuid_text(&info.identity, identity);
    if (strcmp(identity, known->identity) != 0 || info.volume_index != v)
        rc = plx_cli_fail(cli, PLX_ERR_INVALID,
                          "%.150s is not volume %u of this store any more; 'parallax store "
                          "import %s' tells where its volumes are",
                          path, v, volumes);
    else if (info.volume_bytes > device->bytes)
        rc = plx_cmd_volume_cut_off(cli, path, device->bytes, info.volume_bytes);
    else if (v && info.volumes > *counted)
        rc = plx_cli_fail(cli, PLX_ERR_CORRUPT,
                          "%.150s counts %u volumes, and %.150s %u: that one is older than the "
                          "store; 'parallax store check %s' says what to do",
                          path, info.volumes, known->volume[0], *counted, known->name);
    *counted = v ? *counted : info.volumes;
    return rc;
}

int plx_cmd_look_at_volumes(struct plx_cli *cli, const struct plx_known *known)
{
    struct plx_device *devices[PLX_VOLUMES_MAX] = {NULL};
    unsigned counted = 0, back;
    struct plx_uuid store;
    int rc = 0;

    for (unsigned v = 0; v < known->volumes && !rc; v++)
        rc = look_at_volume(cli, known, v, &counted, &devices[v]);
    if (!rc && plx_uuid_parse(known->uuid, &store))
        rc = plx_numbers_look(devices, known->volumes, &store, known->name, known->name, &back,
                              &cli->fault);
    for (unsigned v = 0; v < known->volumes; v++)
        plx_device_close(devices[v]);
    return rc;
}

int plx_cmd_look_at_store(struct plx_cli *cli, const struct plx_known *known)
{
    int rc = plx_cmd_look_at_volumes(cli, known);

    return rc ? rc : plx_cmd_look_at_lost(cli, known->name, "");
}

struct store_listing {
    struct plx_table table;
    json_t *notes; /* of stores that can only be read here: behind the table */
};

/* The store can be read, so it is no error. */
static void set_problem(struct store_listing *listing, json_t *row, const char *word, json_t *text)
{
    json_object_set_new(row, "problem", text);
    json_object_set_new(row, "problem_code", json_string(word));
    json_array_append(listing->notes, text);
}

static void set_not_ours(struct plx_cli *cli, const struct plx_known *known,
                         struct store_listing *listing, json_t *row)
{
    char text[PLX_SESSION_TENANT_TEXT];
    const char *word = plx_session_not_ours(cli, known, text);

    if (word)
        set_problem(listing, row, word, plx_out_string(text));
}

static void set_doubt(struct plx_cli *cli, struct store_listing *listing, json_t *row)
{
    json_t *doubt = plx_session_doubt(cli);

    if (!json_is_null(doubt))
        set_problem(listing, row, "DOUBT",
                    json_sprintf("store %s is in doubt, so nothing new is opened for writing: %s",
                                 json_string_value(json_object_get(row, "name")),
                                 json_string_value(doubt)));
    json_decref(doubt);
}

/* What its registry says, which lies on volume 0. */
static void describe_store(json_t *row, const struct plx_registry_store *store,
                           const struct plx_registry_extent_counts *extents, size_t vdis)
{
    uint64_t bytes = extents->total * store->extent_blocks * PLX_BLOCK_SIZE;

    json_object_set_new(row, "size_bytes", json_integer((json_int_t)bytes));
    json_object_set_new(row, "vdis", json_integer((json_int_t)vdis));
    plx_out_set_time(row, "created", store->created_ns);
}

/* All that a store's registry says of it, which need not be whole. */
static int read_registry(struct plx_cli *cli, const struct plx_known *known, json_t *row)
{
    struct plx_registry_extent_counts extents;
    struct plx_registry_store store;
    struct plx_registry_vdi *vdis = NULL;
    size_t count = 0;
    int rc = plx_session_registry(cli, known->name, &store);

    if (rc)
        return rc;
    if ((rc = plx_registry_extent_count(cli->session.registry, store.id, &extents)) ||
        (rc =
             plx_registry_vdi_list(cli->session.registry, store.id, false, NULL, 0, &vdis, &count)))
        plx_session_registry_fault(cli, rc);
    else
        describe_store(row, &store, &extents, count);
    free(vdis);
    return rc;
}

/* A store whose entry or volume is missing or damaged is listed all the same. */
static int list_store(struct plx_cli *cli, const struct plx_known *known, void *context)
{
    struct store_listing *listing = context;
    json_t *row = json_pack("{s:s}", "name", known->name);
    const char *word = NULL;
    int rc = read_registry(cli, known, row);

    if (known->volumes) { /* its entry could be read */
        json_object_set_new(row, "uuid", json_string(known->identity));
        add_volumes(row, known);
    }
    if (!rc) {
        set_doubt(cli, listing, row);
        set_not_ours(cli, known, listing, row);
        rc = plx_cmd_look_at_volumes(cli, known);
        if (!rc && (rc = plx_cmd_look_at_lost(cli, known->name, "")))
            word = rc == PLX_ERR_CORRUPT ? "LOST" : NULL;
    }
    if (rc) {
        plx_session_name_advice(cli);
        json_object_set_new(row, "problem", plx_out_string(cli->fault.text));
        json_object_set_new(row, "problem_code", json_string(word ? word : plx_error_name(rc)));
    }
    plx_out_keys(row, "uuid", "created_ns", "problem", NULL);
    plx_table_row(&listing->table, row);
    return rc;
}

int plx_cmd_store_list(struct plx_cli *cli)
{
    static const struct plx_column columns[] = {
        {"name", "NAME", PLX_COLUMN_TEXT},
        {"size_bytes", "SIZE", PLX_COLUMN_SIZE},
        {"vdis", "VDIS", PLX_COLUMN_NUMBER},
        {"volumes", "VOLUMES", PLX_COLUMN_TEXT},
        {"created", "CREATED", PLX_COLUMN_TEXT},
        {"problem_code", "PROBLEM", PLX_COLUMN_TEXT},
        {NULL, NULL, 0},
    };
    struct store_listing listing;
    json_t *note;
    size_t i;
    int rc;

    if ((rc = plx_table_begin(&listing.table, cli, columns)))
        return rc;
    listing.notes = json_array();
    rc = plx_session_each_store(cli, "", list_store, &listing);
    plx_table_end(&listing.table);
    json_array_foreach(listing.notes, i, note) plx_out_note(cli, "%s", json_string_value(note));
    json_decref(listing.notes);
    return rc;
}

static const struct plx_column info_columns[] = {
    {"name", "Name", PLX_COLUMN_TEXT},
    {"uuid", "UUID", PLX_COLUMN_TEXT},
    {"volumes", "Volumes", PLX_COLUMN_TEXT},
    {"host", "Host", PLX_COLUMN_TEXT},
    {"size_bytes", "Size", PLX_COLUMN_SIZE},
    {"used_bytes", "Used", PLX_COLUMN_SIZE},
    {"system_bytes", "  by the store itself", PLX_COLUMN_SIZE},
    {"free_bytes", "Free", PLX_COLUMN_SIZE},
    {"available_bytes", "  for data", PLX_COLUMN_SIZE},
    {"reserved_bytes", "  reserved", PLX_COLUMN_SIZE},
    {"recovery_bytes", "    for recovery", PLX_COLUMN_SIZE},
    {"reclaimable_bytes", "Reclaimable", PLX_COLUMN_SIZE},
    {"warn_at", "Warn at", PLX_COLUMN_TEXT},
    {"warning", "Warning", PLX_COLUMN_TEXT},
    {"doubt", "In doubt", PLX_COLUMN_TEXT},
    {"oldest", "Oldest instant", PLX_COLUMN_TEXT},
    {"oldest_snapshot", "  which is", PLX_COLUMN_TEXT},
    {"policy_window", "Policies keep", PLX_COLUMN_TEXT},
    {"format_version", "Format version", PLX_COLUMN_NUMBER},
    {"block_size", "Block size", PLX_COLUMN_SIZE},
    {"extent_bytes", "Extent size", PLX_COLUMN_SIZE},
    {"extents", "Extents", PLX_COLUMN_NUMBER},
    {"unused_extents", "  unused", PLX_COLUMN_NUMBER},
    {"data_extents", "  data", PLX_COLUMN_NUMBER},
    {"metadata_extents", "  metadata", PLX_COLUMN_NUMBER},
    {"system_extents", "  of the store itself", PLX_COLUMN_NUMBER},
    {"sealed_extents", "  damaged or gone back", PLX_COLUMN_NUMBER},
    {"cluster", "Cluster", PLX_COLUMN_TEXT},
    {"registry_bytes", "Registry", PLX_COLUMN_SIZE},
    {"registry_used_bytes", "  used", PLX_COLUMN_SIZE},
    {"vdis", "Virtual disks", PLX_COLUMN_NUMBER},
    {"vdi_slots", "  at most", PLX_COLUMN_NUMBER},
    {"open_by", "Open by", PLX_COLUMN_TEXT},
    {"created", "Created", PLX_COLUMN_TEXT},
    {NULL, NULL, 0},
};

/* Of a store that cannot be opened: what this host knows of it, and its registry. The error, which
 * stays as it is, comes behind. */
static void print_known_part(struct plx_cli *cli, const char *store)
{
    struct plx_fault said = cli->fault;
    struct plx_known known = {0};
    struct plx_paths *paths;
    json_t *object;

    if (plx_session_paths(cli, &paths) == 0 && plx_known_get(paths, store, &known, NULL) == 0) {
        object = json_pack("{s:s,s:s}", "name", known.name, "uuid", known.identity);
        add_volumes(object, &known);
        if (read_registry(cli, &known, object) == 0) {
            json_object_set_new(object, "doubt", plx_session_doubt(cli));
            plx_session_tell_host(cli, store, object);
        }
        plx_out_keys(object, "ours", "size_blocks", "used_blocks", "system_blocks", "free_blocks",
                     "available_blocks", "reserved_blocks", "recovery_blocks", "warn_at_bytes",
                     "oldest_ns", "policy_window_ns", "created_ns", NULL);
        plx_out_object(cli, info_columns, object);
    }
    plx_known_done(&known);
    cli->fault = said;
}

/* Where the registry lies: on a cluster's nodes, or in the store, where its space is bounded. */
static void place_registry(struct plx_registry *registry, json_t *object)
{
    struct plx_registry_cluster cluster;
    uint64_t used, pages;

    if (plx_registry_cluster_get(registry, &cluster) == 0)
        json_object_set_new(object, "cluster", json_string(cluster.uuid));
    if (plx_registry_room(registry, &used, &pages) == 0 && pages)
        json_object_update_new(
            object, json_pack("{s:I,s:I}", "registry_bytes", (json_int_t)(pages * PLX_BLOCK_SIZE),
                              "registry_used_bytes", (json_int_t)(used * PLX_BLOCK_SIZE)));
}

int plx_cmd_store_info(struct plx_cli *cli)
{
    struct plx_store_info info = {0};
    struct plx_registry_extent_counts extents;
    struct plx_registry_store store;
    struct plx_registry_vdi *vdis = NULL;
    struct plx_registry_instance *instances = NULL;
    size_t vdi_count = 0, instance_count = 0;
    struct plx_name name;
    char id[PLX_UUID_TEXT];
    int rc;

    if ((rc = plx_cli_name(cli, 0, PLX_NAME_STORE, &name)))
        return rc;
    if ((rc = plx_session_open(cli, name.store, PLX_SESSION_READ))) {
        print_known_part(cli, name.store);
        return rc;
    }
    struct plx_registry *registry = cli->session.registry;
    plx_store_get_info(plx_session_store(cli), &info);
    plx_session_row(cli, &store);
    if ((rc = plx_registry_extent_count(registry, store.id, &extents)) ||
        (rc = plx_registry_vdi_list(registry, store.id, false, NULL, 0, &vdis, &vdi_count)) ||
        (rc = plx_registry_instance_list(registry, store.id, &instances, &instance_count)))
        plx_session_registry_fault(cli, rc);
    if (rc)
        goto out;

    uint64_t block = info.block_size;
    json_t *volumes = json_array(), *open_by = json_array();
    for (unsigned i = 0; i < info.volumes; i++)
        json_array_append_new(volumes, plx_out_string(info.volume[i].name));
    for (size_t i = 0; i < instance_count; i++)
        json_array_append_new(open_by, plx_session_instance_text(cli, &instances[i]));
    plx_uuid_text(&info.identity, id);
    json_t *object = json_pack("{s:s,s:s,s:o,s:I,s:I}", "name", name.store, "uuid", id, "volumes",
                               volumes, "format_version", (json_int_t)info.format_version,
                               "block_size", (json_int_t)block);
    json_object_update_new(
        object,
        json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:o}", "extent_bytes",
                  (json_int_t)(info.extent_blocks * block), "extents", (json_int_t)info.extents,
                  "unused_extents", (json_int_t)extents.unused, "data_extents",
                  (json_int_t)extents.data, "metadata_extents", (json_int_t)extents.meta,
                  "system_extents", (json_int_t)extents.system, "sealed_extents",
                  (json_int_t)extents.disbelieved, "vdis", (json_int_t)vdi_count, "vdi_slots",
                  (json_int_t)info.vdi_slots, "open_by", open_by));
    place_registry(registry, object);
    plx_out_set_time(object, "created", store.created_ns);
    json_object_set_new(object, "doubt", plx_session_doubt(cli));
    plx_session_tell_host(cli, name.store, object);
    if (!(rc = plx_space_of_store(cli, &store, object)))
        rc = plx_space_history(cli, name.store, vdis, vdi_count, object);
    plx_out_object(cli, info_columns, object); /* what is known of it, with an error behind */
    if (!rc && plx_store_ahead(plx_session_store(cli)))
        rc = plx_volumes_tell_ahead(plx_session_store(cli), &cli->fault);
    if (!rc)
        rc = plx_cmd_look_at_lost(cli, name.store, "");
out:
    free(vdis);
    free(instances);
    return rc;
}

int plx_cmd_store_stats(struct plx_cli *cli)
{
    struct plx_name name;
    json_t *stats;
    int rc;

    if ((rc = plx_cli_name(cli, 0, PLX_NAME_STORE, &name)) ||
        (rc = plx_session_store_stats(cli, name.store, &stats)))
        return rc;
    plx_out_counters(cli, stats);
    return 0;
}
