/* cmd_vdi.c - parallax vdi: create, list, info, rename, resize, delete, clone, stats. Import and
 * export are in cmd_transfer.c, bench in cmd_bench.c, set in cmd_space.c. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd.h"
#include "output.h"
#include "space.h"
#include "unfinished.h"
#include "attach/attach_ring.h"
#include "attach/doors.h"

const char *const plx_sector_sizes[] = {"512", "4096", NULL};

static const struct plx_column info_columns[] = {
    {"name", "Name", PLX_COLUMN_TEXT},
    {"uuid", "UUID", PLX_COLUMN_TEXT},
    {"size_bytes", "Size", PLX_COLUMN_SIZE},
    {"sector_size", "Sector size", PLX_COLUMN_NUMBER},
    {"used_bytes", "Used", PLX_COLUMN_SIZE},
    {"warn_at", "Warn at", PLX_COLUMN_TEXT},
    {"warning", "Warning", PLX_COLUMN_TEXT},
    {"overwrite", "Overwrite", PLX_COLUMN_TEXT},
    {"vouched", "With checksum", PLX_COLUMN_TEXT},
    {"parent", "Clone of", PLX_COLUMN_TEXT},
    {"protection", "Protection", PLX_COLUMN_TEXT},
    {"retention", "Kept", PLX_COLUMN_TEXT},
    {"ring", "Ring", PLX_COLUMN_TEXT},
    {"open_by", "Open by", PLX_COLUMN_TEXT},
    {"import", "Import", PLX_COLUMN_TEXT},
    {"labels", "Labels", PLX_COLUMN_TEXT},
    {"created", "Created", PLX_COLUMN_TEXT},
    {NULL, NULL, 0},
};

static const struct plx_column list_columns[] = {
    {"name", "NAME", PLX_COLUMN_TEXT},       {"size_bytes", "SIZE", PLX_COLUMN_SIZE},
    {"used_bytes", "USED", PLX_COLUMN_SIZE}, {"sector_size", "SECTOR", PLX_COLUMN_NUMBER},
    {"created", "CREATED", PLX_COLUMN_TEXT}, {"parent", "CLONE OF", PLX_COLUMN_TEXT},
    {"open_by", "OPEN BY", PLX_COLUMN_TEXT}, {"ring_setting", "RING", PLX_COLUMN_ASKED},
    {"uuid", "UUID", PLX_COLUMN_ASKED},      {NULL, NULL, 0},
};

int plx_cmd_check_size(struct plx_cli *cli, uint64_t bytes, uint32_t sector_size)
{
    char size[16];

    if (bytes < PLX_VDI_SIZE_MIN)
        return plx_cli_usage(cli, "a virtual disk has 4k to 256T, not %" PRIu64 " byte%s", bytes,
                             plx_plural(bytes));
    if (bytes > PLX_VDI_SIZE_MAX)
        return plx_cli_usage(cli, "a virtual disk has 4k to 256T, not %s (%" PRIu64 " bytes)",
                             plx_text_size(bytes, size), bytes);
    if (bytes % sector_size)
        return plx_cli_usage(cli, "%" PRIu64 " bytes are no multiple of the sector size %" PRIu32,
                             bytes, sector_size);
    return 0;
}

/* ---- What a virtual disk looks like ---- */

/* An import into it was killed, or runs. */
static void describe_import(struct plx_cli *cli, const char *store,
                            const struct plx_registry_vdi *vdi, json_t *row)
{
    struct plx_name name = {{0}, {0}, {0}};
    bool unfinished = false;

    if (plx_unfinished_look(cli, vdi->id, &unfinished) || !unfinished) {
        plx_out_keys(row, "import", NULL);
        return;
    }
    snprintf(name.store, sizeof name.store, "%s", store);
    snprintf(name.vdi, sizeof name.vdi, "%s", vdi->name);
    json_object_set_new(row, "import", json_string("unfinished"));
    plx_unfinished_note(cli, &name);
}

/* All that the registry knows. */
static json_t *describe(struct plx_cli *cli, const char *store, const struct plx_registry_vdi *vdi)
{
    struct plx_registry *registry = cli->session.registry;
    struct plx_registry_vdi parent;
    struct plx_registry_instance owner;
    char id[PLX_UUID_TEXT];
    json_t *row;

    plx_attach_shown_id(cli->session.attach, vdi->id, id);
    row = json_pack("{s:s,s:s,s:s,s:s,s:I,s:i}", "store", store, "vdi", vdi->name, "uuid", id,
                    "name", "", "size_bytes", (json_int_t)vdi->size_bytes, "sector_size",
                    (int)vdi->sector_size);

    json_object_set_new(row, "name", json_sprintf("%s/%s", store, vdi->name));
    json_object_set_new(row, "store_doubt", plx_session_doubt(cli));
    if (*vdi->parent) {
        bool known = plx_registry_vdi_get_by_id(registry, vdi->parent, &parent) == 0;
        bool gone = !known || parent.deleted; /* another disk may have the name by now */
        json_object_set_new(row, "parent",
                            json_sprintf("%s/%s@%" PRIu64 "%s", store,
                                         known ? parent.name : vdi->parent, vdi->parent_seq,
                                         gone && !cli->json ? " (deleted)" : ""));
        json_object_set_new(row, "parent_deleted", json_boolean(gone));
        plx_attach_shown_id(cli->session.attach, vdi->parent, id);
        json_object_set_new(row, "parent_uuid", json_string(id));
        json_object_set_new(row, "parent_seq", json_integer((json_int_t)vdi->parent_seq));
    }
    if (vdi->owner) {
        bool known = plx_registry_instance_get(registry, vdi->owner, &owner) == 0;
        json_object_set_new(row, "open_by",
                            known ? plx_session_instance_text(cli, &owner)
                                  : json_sprintf("instance %" PRIu64, vdi->owner));
    }
    plx_out_set_time(row, "created", vdi->created_ns);
    describe_import(cli, store, vdi, row);
    plx_out_keys(row, "parent", "parent_deleted", "parent_uuid", "parent_seq", "open_by", NULL);
    return row;
}

/* Which share of its blocks has a checksum, as of the newest key frame. */
static void describe_vouched(json_t *object, const struct plx_vdi_info *info)
{
    uint64_t mapped = info->mapped_blocks, vouched = info->vouched_blocks;
    double share = mapped ? 100.0 * (double)vouched / (double)mapped : 100;

    plx_out_set_time(object, "vouched_since", info->vouched_ns);
    if (vouched == PLX_MAPPED_UNKNOWN) {
        plx_out_keys(object, "mapped_blocks", "vouched_blocks", NULL);
        json_object_set_new(object, "vouched",
                            json_string("not known: its blocks were never "
                                        "counted"));
        return;
    }
    json_object_set_new(object, "mapped_blocks", json_integer((json_int_t)mapped));
    json_object_set_new(object, "vouched_blocks", json_integer((json_int_t)vouched));
    if (vouched < mapped && share > 99.9)
        share = 99.9;
    if (vouched < mapped && info->vouched_ns)
        json_object_set_new(
            object, "vouched",
            json_sprintf("%.1f%% of its blocks; all that was quiet by %s", share,
                         json_string_value(json_object_get(object, "vouched_since"))));
    else
        json_object_set_new(object, "vouched", json_sprintf("%.1f%% of its blocks", share));
}

int plx_cmd_vdi_print(struct plx_cli *cli, const struct plx_name *name)
{
    struct plx_vdi_info info = {0};
    struct plx_registry_label *labels = NULL;
    struct plx_registry_vdi row;
    size_t count = 0;
    int rc;

    if ((rc = plx_session_vdi_row(cli, name, &row)))
        return rc;
    json_t *object = describe(cli, name->store, &row);
    json_t *names = json_array();
    json_object_set_new(object, "labels", names);
    json_object_set_new(object, "epoch", json_integer((json_int_t)row.epoch));
    if ((rc = plx_registry_label_list(cli->session.registry, row.id, &labels, &count)))
        plx_session_registry_fault(cli, rc);
    for (size_t i = 0; i < count; i++)
        json_array_append_new(names, json_string(labels[i].name));
    free(labels);
    if (!rc && !(rc = plx_door_read(plx_session_store(cli), &row, &info, &cli->fault))) {
        json_object_set_new(
            object, "overwrite",
            json_string(info.overwrite == PLX_OVERWRITE_COPY ? "copy" : "in-place"));
        json_object_set_new(object, "levels", json_integer((json_int_t)info.levels));
        describe_vouched(object, &info);
        plx_cmd_cdp_describe(object, &info.protection);
        rc = plx_cmd_vdi_ring_describe(cli, name, &row, &info, object);
        if (!rc && !(rc = plx_space_of_vdi(cli, row.id, &info, object)))
            plx_out_object(cli, info_columns, json_incref(object));
    }
    json_decref(object);
    return rc;
}

/* ---- Commands ---- */

int plx_cmd_vdi_create(struct plx_cli *cli)
{
    static const char *const overwrites[] = {"in-place", "copy", NULL};
    struct plx_vdi_create_options options = {0};
    unsigned sector = 0, overwrite = 0;
    struct plx_name name;
    char size[16];
    int rc;

    if ((rc = plx_cli_name(cli, 0, PLX_NAME_VDI, &name)) ||
        (rc = plx_cli_size(cli, "size", &options.size_bytes)) ||
        (rc = plx_cli_choice(cli, "sector-size", plx_sector_sizes, &sector)) ||
        (rc = plx_cli_choice(cli, "overwrite", overwrites, &overwrite)))
        return rc;
    if (!plx_cli_get(cli, "size"))
        return plx_cli_usage(cli, "--size is missing: how large the virtual disk is to be");
    options.sector_size = sector ? 4096 : 512;
    options.overwrite = overwrite ? PLX_OVERWRITE_COPY : PLX_OVERWRITE_IN_PLACE;
    snprintf(options.name, sizeof options.name, "%s", name.vdi);
    if ((rc = plx_cmd_check_size(cli, options.size_bytes, options.sector_size)) ||
        (rc = plx_session_open(cli, name.store, PLX_SESSION_WRITE)) ||
        (rc = plx_session_vdi_create(cli, &options, NULL)))
        return rc;
    plx_out_note(cli, "created %s/%s, %s", name.store, name.vdi,
                 plx_text_size(options.size_bytes, size));
    plx_cmd_tell_lost_name(cli, &name);
    return cli->json ? plx_cmd_vdi_print(cli, &name) : 0;
}

/* STORE/VDI alone is what a newcomer gives: which snapshot of it? */
static int name_snapshot(struct plx_cli *cli, struct plx_name *ret_parent)
{
    const char *text = cli->arguments[0];
    struct plx_name vdi;

    if (!plx_text_name_parse(text, PLX_NAME_VDI, &vdi, NULL))
        return plx_cli_usage(cli,
                             "%.120s is a virtual disk, and a clone is made from one of its "
                             "snapshots: 'parallax snap list %.120s' shows them; take one first: "
                             "'parallax snap create %.120s@LABEL'",
                             text, text, text);
    return plx_cli_name(cli, 0, PLX_NAME_SNAPSHOT, ret_parent);
}

int plx_cmd_vdi_clone(struct plx_cli *cli)
{
    struct plx_vdi_create_options options = {0};
    struct plx_name parent, name;
    struct plx_registry_vdi row;
    int rc;

    if ((rc = name_snapshot(cli, &parent)) || (rc = plx_cli_name(cli, 1, PLX_NAME_VDI, &name)))
        return rc;
    if (strcmp(parent.store, name.store))
        return plx_cli_usage(cli,
                             "a clone shares its parent's blocks and lies in the same store: "
                             "%s",
                             parent.store);
    if ((rc = plx_session_open(cli, name.store, PLX_SESSION_WRITE)) ||
        (rc = plx_session_vdi_row(cli, &parent, &row)) ||
        (rc = plx_session_settle_time(cli, &parent)))
        return rc;
    options.is_clone = true;
    options.sector_size = row.sector_size;
    snprintf(options.name, sizeof options.name, "%s", name.vdi);
    if ((rc = plx_session_vdi_create(cli, &options, &parent)) ||
        (plx_unfinished_tell(cli, &parent) && (rc = plx_unfinished_clone(cli, &name))))
        return rc;
    plx_out_note(cli, "cloned %s/%s@%s to %s/%s", parent.store, parent.vdi, parent.snapshot,
                 name.store, name.vdi);
    plx_cmd_tell_lost_name(cli, &name);
    return cli->json ? plx_cmd_vdi_print(cli, &name) : 0;
}

/* The disks' records say what they use. A store that cannot be opened is listed by its registry. */
static int open_for_list(struct plx_cli *cli, const char *store, bool *ret_whole)
{
    struct plx_fault before = cli->fault;
    struct plx_registry_store row;

    *ret_whole = plx_session_open(cli, store, PLX_SESSION_READ) == 0;
    if (*ret_whole)
        return 0;
    cli->fault = before;
    return plx_session_registry(cli, store, &row);
}

/* Costs one block. One that is being created has no record yet, and that is no error. */
static int describe_used(struct plx_cli *cli, const struct plx_registry_vdi *vdi, json_t *row)
{
    struct plx_vdi_info info = {0};
    int rc = plx_door_read(plx_session_store(cli), vdi, &info, &cli->fault);

    json_object_set_new(row, "used_bytes",
                        rc || info.mapped_blocks == PLX_MAPPED_UNKNOWN
                            ? json_null()
                            : json_integer((json_int_t)(info.mapped_blocks * PLX_BLOCK_SIZE)));
    return rc == PLX_ERR_NOT_FOUND ? 0 : rc;
}

/* Another disk may have its slot by now. */
static bool went_meanwhile(struct plx_cli *cli, const struct plx_registry_vdi *vdi)
{
    struct plx_registry_vdi now = {0};
    int rc = plx_registry_vdi_get_by_id(cli->session.registry, vdi->id, &now);

    return rc == PLX_ERR_NOT_FOUND || (!rc && now.deleted);
}

static void describe_setting(struct plx_cli *cli, const struct plx_registry_vdi *vdi, json_t *row)
{
    enum plx_ring_setting use;

    json_object_set_new(row, "ring_setting",
                        plx_ring_setting_load(cli->session.registry, vdi->id, &use)
                            ? json_null()
                            : json_string(plx_ring_setting_words[use]));
}

/* Each disk is listed, whatever its record is like. *ret_first: what is wrong with the first record
 * that cannot be used; a note says how many more there are. */
static void list_vdis(struct plx_cli *cli, const char *store, const struct plx_registry_vdi *vdis,
                      size_t count, bool whole, struct plx_table *table,
                      struct plx_fault *ret_first)
{
    struct plx_fault before = cli->fault;
    size_t unusable = 0;

    *ret_first = (struct plx_fault){0};
    for (size_t v = 0; v < count; v++) {
        json_t *row = describe(cli, store, &vdis[v]);
        int rc = 0;

        describe_setting(cli, &vdis[v], row);
        if (whole)
            rc = describe_used(cli, &vdis[v], row);
        else
            json_object_set_new(row, "used_bytes", json_null());
        plx_table_row(table, row);
        if (rc && !went_meanwhile(cli, &vdis[v]) && !unusable++) {
            *ret_first = cli->fault;
            ret_first->code = rc;
        }
    }
    cli->fault = before;
    if (unusable > 1)
        plx_out_note(cli,
                     "store %s: %zu more virtual disk%s a record that cannot be used; 'parallax "
                     "store check %s' names all of them",
                     store, unusable - 1, unusable == 2 ? " has" : "s have", store);
}

static int list_store(struct plx_cli *cli, const struct plx_known *known, void *table)
{
    struct plx_fault first = {0};
    struct plx_registry_store store;
    struct plx_registry_vdi *vdis = NULL;
    size_t count = 0;
    bool whole;
    int rc = open_for_list(cli, known->name, &whole);

    if (rc)
        return rc;
    plx_session_row(cli, &store);
    plx_session_tell_doubt(cli);
    if ((rc =
             plx_registry_vdi_list(cli->session.registry, store.id, false, NULL, 0, &vdis, &count)))
        plx_session_registry_fault(cli, rc);
    list_vdis(cli, known->name, vdis, count, whole, table, &first);
    free(vdis);
    if (!rc)
        rc = plx_cmd_look_at_store(cli, known); /* it may say why records are not right */
    if (!rc && first.code) {
        cli->fault = first;
        rc = first.code;
    }
    return rc;
}

int plx_cmd_vdi_list(struct plx_cli *cli)
{
    struct plx_table table;
    struct plx_name name = {{0}, {0}, {0}};
    int rc;

    if (cli->count && (rc = plx_cli_name(cli, 0, PLX_NAME_STORE, &name)))
        return rc;
    if ((rc = plx_table_begin(&table, cli, list_columns)))
        return rc;
    rc = plx_session_each_store(cli, name.store, list_store, &table);
    plx_table_end(&table);
    if (!rc && !table.rows && !cli->session.no_stores)
        plx_out_note(cli, "there are no virtual disks; 'parallax vdi create' makes one");
    return rc;
}

int plx_cmd_vdi_info(struct plx_cli *cli)
{
    struct plx_name name;
    int rc;

    if ((rc = plx_cli_name(cli, 0, PLX_NAME_VDI, &name)) ||
        (rc = plx_session_open(cli, name.store, PLX_SESSION_READ)))
        return rc;
    return plx_cmd_vdi_print(cli, &name);
}

/* NEW, or STORE/NEW as clones are named. */
static int take_new_name(struct plx_cli *cli, const char *store, struct plx_name *ret_name)
{
    const char *text = cli->arguments[1];
    char whole[PLX_STORE_NAME_MAX + PLX_NAME_MAX + 8];
    int rc;

    if (strchr(text, '/')) {
        if ((rc = plx_cli_name(cli, 1, PLX_NAME_VDI, ret_name)))
            return rc;
        return strcmp(ret_name->store, store)
                   ? plx_cli_usage(cli, "a virtual disk stays in its store: %s", store)
                   : 0;
    }
    if (snprintf(whole, sizeof whole, "%s/%s", store, text) >= (int)sizeof whole)
        return plx_cli_usage(cli, "'%.40s...' is too long for a name", text);
    rc = plx_text_name_parse(whole, PLX_NAME_VDI, ret_name, &cli->fault);
    return rc ? PLX_ERR_USAGE : 0;
}

int plx_cmd_vdi_rename(struct plx_cli *cli)
{
    struct plx_registry_vdi row;
    struct plx_name name, now;
    int rc;

    if ((rc = plx_cli_name(cli, 0, PLX_NAME_VDI, &name)) ||
        (rc = take_new_name(cli, name.store, &now)) ||
        (rc = plx_session_open(cli, name.store, PLX_SESSION_WRITE)) ||
        (rc = plx_session_vdi_row(cli, &name, &row)))
        return rc;
    if (strcmp(name.vdi, now.vdi) == 0)
        return plx_cli_fail(cli, PLX_ERR_EXISTS, "%s/%.200s is called so already; give a new name",
                            name.store, name.vdi);
    if ((rc = plx_cmd_lun_check_none(cli, &name)) ||
        (rc = plx_session_vdi_rename(cli, &name, now.vdi)))
        return rc;
    plx_out_note(cli, "%s/%s is called %s/%s now", name.store, name.vdi, now.store, now.vdi);
    return cli->json ? plx_cmd_vdi_print(cli, &now) : 0;
}

int plx_cmd_vdi_resize(struct plx_cli *cli)
{
    struct plx_registry_vdi row;
    struct plx_name name;
    uint64_t bytes = 0;
    char old[16], new[16];
    int rc;

    if ((rc = plx_cli_name(cli, 0, PLX_NAME_VDI, &name)) ||
        (rc = plx_cli_size(cli, "size", &bytes)))
        return rc;
    if (!plx_cli_get(cli, "size"))
        return plx_cli_usage(cli, "--size is missing: the new size");
    if ((rc = plx_session_open(cli, name.store, PLX_SESSION_WRITE)) ||
        (rc = plx_session_vdi_row(cli, &name, &row)) ||
        (rc = plx_cmd_check_size(cli, bytes, row.sector_size)))
        return rc;
    if (bytes < row.size_bytes)
        return plx_cli_usage(cli,
                             "%s/%s has %s and cannot be made smaller; create a smaller one and "
                             "copy what is needed",
                             name.store, name.vdi, plx_text_size(row.size_bytes, old));
    if (bytes != row.size_bytes &&
        ((rc = plx_session_vdi_resize(cli, &name, bytes)) || (rc = plx_session_vdi_close(cli))))
        return rc;
    plx_cmd_lun_refresh(cli, &name);
    plx_out_note(cli, "%s/%s: %s, was %s", name.store, name.vdi, plx_text_size(bytes, new),
                 plx_text_size(row.size_bytes, old));
    return cli->json ? plx_cmd_vdi_print(cli, &name) : 0;
}

/* The disks that were cloned from one that goes: they stay. */
static int list_clones(struct plx_cli *cli, const struct plx_name *name,
                       const struct plx_registry_vdi *row, json_t *clones)
{
    struct plx_registry_store store;
    struct plx_registry_vdi *vdis = NULL;
    size_t count = 0;
    int rc;

    plx_session_row(cli, &store);
    rc = plx_registry_vdi_list(cli->session.registry, store.id, false, NULL, 0, &vdis, &count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(vdis[i].parent, row->id) == 0)
            json_array_append_new(clones, json_sprintf("%s/%s", name->store, vdis[i].name));
    free(vdis);
    return rc ? plx_session_registry_fault(cli, rc) : 0;
}

/* What goes, or would go. */
static int describe_deletion(struct plx_cli *cli, const struct plx_name *name,
                             const struct plx_registry_vdi *row, bool dry, json_t **ret_object)
{
    struct plx_registry_label *list = NULL;
    json_t *labels, *clones = json_array();
    size_t count = 0;
    int rc = list_clones(cli, name, row, clones);

    if (!rc && (rc = plx_registry_label_list(cli->session.registry, row->id, &list, &count)))
        plx_session_registry_fault(cli, rc);
    if (rc) {
        json_decref(clones);
        return rc;
    }
    labels = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(labels, json_string(list[i].name));
    free(list);
    *ret_object = json_pack(
        "{s:o,s:b,s:I,s:o,s:o}", "name", json_sprintf("%s/%s", name->store, name->vdi), "deleted",
        !dry, "size_bytes", (json_int_t)row->size_bytes, "labels", labels, "clones", clones);
    return 0;
}

#define CLONES_NAMED 3u

/* "; its clones A, B stay", or nothing. */
static const char *name_clones(const json_t *clones, char *text, size_t size)
{
    size_t count = json_array_size(clones), used;

    *text = 0;
    if (!count)
        return text;
    used = (size_t)snprintf(text, size, "; its clone%s", plx_plural(count));
    for (size_t i = 0; i < count && i < CLONES_NAMED; i++)
        used += (size_t)snprintf(text + used, size - used, "%s %.90s", i ? "," : "",
                                 json_string_value(json_array_get(clones, i)));
    if (count > CLONES_NAMED)
        used += (size_t)snprintf(text + used, size - used, " and %zu more", count - CLONES_NAMED);
    snprintf(text + used, size - used, " stay%s", count == 1 ? "s" : "");
    return text;
}

/* Of --dry-run. A disk that somebody has open is not deleted. */
static int say_what_goes(struct plx_cli *cli, const struct plx_name *name,
                         const struct plx_registry_vdi *row)
{
    json_t *user = plx_session_vdi_user(cli, row), *object = NULL;
    char size[16], clones[400];
    int rc;

    if (user) {
        rc = plx_cli_fail(cli, PLX_ERR_BUSY, "%s/%s is in use by %s, so it would not be deleted",
                          name->store, name->vdi, json_string_value(user));
    } else if ((rc = describe_deletion(cli, name, row, true, &object)) == 0) {
        plx_out_note(cli,
                     "%s/%s (%s) would be deleted with all its snapshots, %zu of them with a "
                     "label%s; nothing was changed",
                     name->store, name->vdi, plx_text_size(row->size_bytes, size),
                     json_array_size(json_object_get(object, "labels")),
                     name_clones(json_object_get(object, "clones"), clones, sizeof clones));
        plx_out_done(cli, object);
    }
    json_decref(user);
    return rc;
}

static int confirm_deletion(struct plx_cli *cli, const struct plx_name *name,
                            const struct plx_registry_vdi *row)
{
    char size[16];

    if (plx_cli_get(cli, "yes"))
        return 0;
    if (!isatty(STDIN_FILENO))
        return plx_cli_fail(cli, PLX_ERR_UNCONFIRMED,
                            "%s/%s and its snapshots would be lost for good; give --yes if "
                            "you mean it",
                            name->store, name->vdi);
    fprintf(stderr, "%s/%s (%s) and all its snapshots will be lost for good.\n", name->store,
            name->vdi, plx_text_size(row->size_bytes, size));
    return plx_out_confirm("Delete it?") ? 0
                                         : plx_cli_fail(cli, PLX_ERR_UNCONFIRMED,
                                                        "nothing was deleted; the answer was not "
                                                        "yes");
}

int plx_cmd_vdi_delete(struct plx_cli *cli)
{
    bool dry = plx_cli_get(cli, "dry-run") != NULL;
    struct plx_registry_vdi row;
    json_t *object = NULL;
    struct plx_name name;
    int rc;

    if (strchr(cli->arguments[0], '@'))
        return plx_cli_usage(cli, "%.200s is a snapshot; 'parallax snap delete' deletes those",
                             cli->arguments[0]);
    if ((rc = plx_cli_name(cli, 0, PLX_NAME_VDI, &name)) ||
        (rc = plx_session_open(cli, name.store, dry ? PLX_SESSION_READ : PLX_SESSION_WRITE)) ||
        (rc = plx_session_vdi_row(cli, &name, &row)))
        return rc;
    if (dry)
        return say_what_goes(cli, &name, &row);
    if ((rc = confirm_deletion(cli, &name, &row)) ||
        (rc = describe_deletion(cli, &name, &row, false, &object)))
        return rc;
    if ((rc = plx_session_vdi_delete(cli, &name, plx_cli_get(cli, "lost") != NULL))) {
        json_decref(object);
        return rc;
    }
    plx_out_note(cli,
                 "deleted %s/%s; its space comes back with 'parallax gc %s', or by itself while a "
                 "handler has the store open",
                 name.store, name.vdi, name.store);
    plx_out_done(cli, object);
    return 0;
}

int plx_cmd_vdi_stats(struct plx_cli *cli)
{
    struct plx_name name;
    json_t *stats;
    int rc;

    if ((rc = plx_cli_name(cli, 0, PLX_NAME_VDI, &name)) ||
        (rc = plx_session_open(cli, name.store, PLX_SESSION_READ)) ||
        (rc = plx_session_vdi_stats(cli, &name, &stats)))
        return rc;
    plx_out_counters(cli, stats);
    return 0;
}
