/* cmd_du.c - parallax du: what uses a store's space, and what deleting would free. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "output.h"

struct account {
    struct plx_cli *cli;
    struct plx_name name;
    struct plx_registry_vdi row; /* of the one disk that was asked for */
    struct plx_progress progress;
    struct plx_usage usage;
    const struct plx_usage_vdi **sorted; /* its disks, by name */
};

/* ---- Reading ---- */

static void on_progress(void *context, uint64_t done, uint64_t total)
{
    struct account *a = context;

    a->progress.total = total;
    plx_progress_show(&a->progress, done);
}

static bool on_interrupted(void *context)
{
    return plx_session_stopped();
}

static void add_kin(const struct plx_registry_vdi *rows, size_t count, struct plx_usage_kin *kin,
                    size_t *kin_count)
{
    for (size_t i = 0; i < count; i++) {
        struct plx_usage_kin pair;

        if (plx_uuid_parse(rows[i].id, &pair.vdi) && plx_uuid_parse(rows[i].parent, &pair.parent))
            kin[(*kin_count)++] = pair;
    }
}

/* Deleted disks, too: their records may be gone from the store. */
static int list_kin(struct account *a, struct plx_usage_kin **ret_kin, size_t *ret_count)
{
    struct plx_registry *registry = a->cli->session.registry;
    struct plx_registry_vdi *live = NULL, *gone = NULL;
    size_t live_count = 0, gone_count = 0;
    struct plx_registry_store store;
    int rc;

    plx_session_row(a->cli, &store);
    if ((rc = plx_registry_vdi_list(registry, store.id, false, NULL, 0, &live, &live_count)) ||
        (rc = plx_registry_vdi_list(registry, store.id, true, NULL, 0, &gone, &gone_count)))
        rc = plx_session_registry_fault(a->cli, rc);
    *ret_kin = rc ? NULL : calloc(live_count + gone_count + 1, sizeof **ret_kin);
    if (!rc && !*ret_kin)
        rc = plx_cli_fail(a->cli, PLX_ERR_NOMEM, "out of memory");
    if (!rc) {
        add_kin(live, live_count, *ret_kin, ret_count);
        add_kin(gone, gone_count, *ret_kin, ret_count);
    }
    free(live);
    free(gone);
    return rc;
}

static int take_account(struct account *a)
{
    struct plx_usage_options options = {
        .progress = on_progress, .interrupted = on_interrupted, .context = a};
    struct plx_usage_kin *kin = NULL;
    int rc = list_kin(a, &kin, &options.kin_count);

    if (rc)
        return rc;
    options.kin = kin;
    plx_progress_begin(&a->progress, a->cli, "reading metadata", 0);
    rc = plx_store_usage(plx_session_store(a->cli), &options, &a->usage, &a->cli->fault);
    plx_progress_end(&a->progress);
    free(kin);
    if (rc == PLX_ERR_BUSY) /* not a lock's: interrupted */
        rc = a->cli->fault.code = PLX_ERR_SYSTEM;
    return rc;
}

/* ---- Printing ---- */

static json_t *bytes(uint64_t blocks)
{
    return json_integer((json_int_t)(blocks * PLX_BLOCK_SIZE));
}

/* null: not known. */
static void set_space(json_t *object, const struct plx_space *space)
{
    json_object_set_new(object, "busy", json_boolean(space->busy));
    json_object_set_new(object, "referenced_bytes",
                        space->busy ? json_null() : bytes(space->referenced));
    json_object_set_new(object, "exclusive_bytes",
                        space->busy ? json_null() : bytes(space->exclusive));
    json_object_set_new(object, "shared_bytes",
                        space->busy ? json_null() : bytes(space->referenced - space->exclusive));
}

static json_t *full_name(const struct account *a, const struct plx_usage_vdi *vdi)
{
    return json_sprintf("%s/%s", a->name.store, vdi->name);
}

static bool is_asked_for(const struct account *a, const struct plx_usage_vdi *vdi)
{
    return !*a->name.vdi || vdi->slot == a->row.slot;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const struct plx_usage_vdi *const *)a)->name,
                  (*(const struct plx_usage_vdi *const *)b)->name);
}

/* As all lists have them; the account has them by families. */
static int sort_vdis(struct account *a)
{
    a->sorted = calloc(a->usage.vdi_count + 1, sizeof *a->sorted);
    if (!a->sorted)
        return plx_cli_fail(a->cli, PLX_ERR_NOMEM, "out of memory");
    for (uint32_t i = 0; i < a->usage.vdi_count; i++)
        a->sorted[i] = &a->usage.vdis[i];
    qsort(a->sorted, a->usage.vdi_count, sizeof *a->sorted, by_name);
    return 0;
}

static json_t *list_vdis(const struct account *a)
{
    json_t *vdis = json_array();

    for (uint32_t i = 0; i < a->usage.vdi_count; i++) {
        const struct plx_usage_vdi *vdi = a->sorted[i];
        json_t *object = json_pack("{s:o,s:s,s:b}", "name", full_name(a, vdi), "state",
                                   vdi->space.busy ? "busy"
                                   : vdi->open     ? "open"
                                                   : "closed",
                                   "open", vdi->open);

        set_space(object, &vdi->space);
        if (is_asked_for(a, vdi))
            json_array_append_new(vdis, json_incref(object));
        json_decref(object);
    }
    return vdis;
}

/* Not those of a single disk. */
static json_t *list_families(const struct account *a)
{
    const struct plx_usage_vdi *vdi = a->usage.vdis;
    json_t *families = json_array();

    for (uint32_t f = 0; f < a->usage.family_count; f++) {
        const struct plx_usage_family *family = &a->usage.families[f];
        json_t *names = json_array(), *object = json_pack("{s:O}", "vdis", names);
        bool wanted = false;

        for (uint32_t i = 0; i < family->vdis; i++, vdi++) {
            wanted |= is_asked_for(a, vdi);
            json_array_append_new(names, full_name(a, vdi));
        }
        set_space(object, &family->space);
        if (wanted && family->vdis > 1)
            json_array_append_new(families, json_incref(object));
        json_decref(names);
        json_decref(object);
    }
    return families;
}

static void print_table(const struct account *a, const struct plx_column *columns,
                        const json_t *rows)
{
    struct plx_table table;
    json_t *row;
    size_t i;

    if (!json_array_size(rows))
        return;
    plx_table_begin(&table, a->cli, columns);
    json_array_foreach(rows, i, row) plx_table_row(&table, json_incref(row));
    plx_table_end(&table);
}

static void print_text(const struct account *a, json_t *all)
{
    static const struct plx_column vdis[] = {
        {"name", "VDI", PLX_COLUMN_TEXT},
        {"referenced_bytes", "REFERENCED", PLX_COLUMN_SIZE},
        {"exclusive_bytes", "EXCLUSIVE", PLX_COLUMN_SIZE},
        {"shared_bytes", "SHARED", PLX_COLUMN_SIZE},
        {"state", "STATE", PLX_COLUMN_TEXT},
        {NULL, NULL, 0},
    };
    static const struct plx_column families[] = {
        {"vdis", "FAMILY", PLX_COLUMN_TEXT},
        {"referenced_bytes", "REFERENCED", PLX_COLUMN_SIZE},
        {"exclusive_bytes", "EXCLUSIVE", PLX_COLUMN_SIZE},
        {NULL, NULL, 0},
    };
    static const struct plx_column totals[] = {
        {"referenced_bytes", "Referenced", PLX_COLUMN_SIZE},
        {"shared_bytes", "  by several disks", PLX_COLUMN_SIZE},
        {"garbage_bytes", "Garbage", PLX_COLUMN_SIZE},
        {NULL, NULL, 0},
    };

    print_table(a, vdis, json_object_get(all, "vdis"));
    print_table(a, families, json_object_get(all, "families"));
    if (!*a->name.vdi)
        plx_out_object(a->cli, totals, json_incref(all));
}

static bool any_open(const struct plx_usage *usage)
{
    for (uint32_t i = 0; i < usage->vdi_count; i++)
        if (usage->vdis[i].open)
            return true;
    return false;
}

static void print(struct account *a)
{
    const struct plx_usage *usage = &a->usage;
    bool open = any_open(usage);
    json_t *all = json_pack("{s:s,s:o,s:o}", "store", a->name.store, "vdis", list_vdis(a),
                            "families", list_families(a));

    if (!*a->name.vdi)
        json_object_update_new(all, json_pack("{s:o,s:o,s:o,s:b}", "referenced_bytes",
                                              bytes(usage->referenced), "shared_bytes",
                                              bytes(usage->shared), "garbage_bytes",
                                              bytes(usage->garbage), "approximate", open));
    if (a->cli->json)
        plx_out_json(json_incref(all));
    else
        print_text(a, all);
    json_decref(all);
    if (open && !*a->name.vdi)
        plx_out_note(a->cli, "virtual disks are open: garbage includes what they have in reserve "
                             "or have just come to use");
}

/* A damaged record, if a rebuild knows which disk it was. */
static int name_lost(struct plx_cli *cli, const char *store)
{
    struct plx_fault found = cli->fault;
    int rc = plx_cmd_look_at_lost(cli, store, ": who uses what cannot be told");

    if (rc != PLX_ERR_CORRUPT)
        cli->fault = found;
    return PLX_ERR_CORRUPT;
}

int plx_cmd_du(struct plx_cli *cli)
{
    struct account a = {.cli = cli};
    const char *slash = strchr(cli->arguments[0], '/');
    int rc;

    if (slash && strchr(slash, '@'))
        return plx_cmd_snap_weigh(cli);
    if ((rc = plx_cli_name(cli, 0, slash ? PLX_NAME_VDI : PLX_NAME_STORE, &a.name)) ||
        (rc = plx_session_open(cli, a.name.store, PLX_SESSION_READ)) ||
        (slash && (rc = plx_session_vdi_row(cli, &a.name, &a.row))))
        return rc;
    if ((rc = take_account(&a)))
        return rc == PLX_ERR_CORRUPT ? name_lost(cli, a.name.store) : rc;
    if (!(rc = sort_vdis(&a)))
        print(&a);
    free(a.sorted);
    plx_usage_done(&a.usage);
    return slash || rc
               ? rc
               : plx_cmd_look_at_lost(cli, a.name.store,
                                      ": what they used counts as garbage here, and is kept");
}
