/* cmd_space.c - how full a store and its virtual disks are, and their soft limits: the space part
 * of parallax store info and vdi info; store set, vdi set. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "output.h"
#include "registry/threshold.h"

/* ---- How full a store is ----------------------------------------------------------------------
 */

struct space {
    uint64_t size, used, available; /* blocks; what is left is reserved */
};

/* Adds up what the touched extents' headers say; extents that were never touched are free. */
static int measure(struct plx_cli *cli, int64_t store, const struct plx_store_info *info,
                   struct space *ret_space)
{
    struct plx_registry_extent *list = NULL;
    size_t count = 0;
    struct space space = {.size = info->extents * info->extent_blocks};
    uint64_t unused = info->extents, reserve = plx_attach_reserve_extents(cli->session.attach);
    int rc =
        plx_registry_extent_list(cli->session.registry, store, PLX_REGISTRY_ANY, &list, &count);

    if (rc)
        return plx_session_registry_fault(cli, rc);
    for (size_t i = 0; i < count && !rc; i++) {
        struct plx_extent_info extent = {.used_blocks = info->extent_blocks};

        if (list[i].type == PLX_EXTENT_UNUSED)
            continue;
        unused--;
        if (list[i].type != PLX_EXTENT_SYSTEM)
            rc = plx_store_extent_read(plx_session_store(cli), list[i].no, &extent, &cli->fault);
        space.used += extent.used_blocks;
        if (list[i].type == PLX_EXTENT_DATA && !extent.sealed)
            space.available += info->extent_blocks - extent.used_blocks;
    }
    free(list);
    if (unused > reserve)
        space.available += (unused - reserve) * info->extent_blocks;
    *ret_space = space;
    return rc;
}

/* What only deleted virtual disks still have is known after a collection, and only then. */
static json_t *reclaimable(const struct plx_cli *cli)
{
    return cli->json ? json_null() : json_string("unknown");
}

static void put_blocks(json_t *object, const char *what, uint64_t blocks)
{
    char key[32];

    snprintf(key, sizeof key, "%s_bytes", what);
    json_object_set_new(object, key, json_integer((json_int_t)(blocks * PLX_BLOCK_SIZE)));
    snprintf(key, sizeof key, "%s_blocks", what);
    json_object_set_new(object, key, json_integer((json_int_t)blocks));
}

static void put_limit(json_t *object, const struct plx_threshold *limit, uint64_t size_bytes,
                      uint64_t used_bytes)
{
    uint64_t at_bytes = plx_threshold_at(limit, size_bytes);
    char text[PLX_THRESHOLD_TEXT], size[16];

    if (!at_bytes)
        return;
    json_object_set_new(object, "warn_at_bytes", json_integer((json_int_t)at_bytes));
    plx_text_size(at_bytes, size);
    json_object_set_new(object, "warn_at",
                        limit->percent
                            ? json_sprintf("%s (%s)", plx_threshold_text(limit, text), size)
                            : json_string(size));
    if (used_bytes >= at_bytes)
        json_object_set_new(object, "warning", json_string("the soft limit is crossed"));
}

int plx_cmd_space_of_store(struct plx_cli *cli, const struct plx_registry_store *store,
                           const struct plx_store_info *info, json_t *object)
{
    struct plx_threshold limit;
    struct space space;
    int rc = measure(cli, store->id, info, &space);

    if (rc)
        return rc;
    put_blocks(object, "size", space.size);
    put_blocks(object, "used", space.used);
    put_blocks(object, "free", space.size - space.used);
    put_blocks(object, "available", space.available);
    put_blocks(object, "reserved", space.size - space.used - space.available);
    json_object_set_new(object, "reclaimable_bytes", reclaimable(cli));
    if ((rc = plx_threshold_load_store(cli->session.registry, store->id, &limit)))
        return plx_session_registry_fault(cli, rc);
    put_limit(object, &limit, space.size * PLX_BLOCK_SIZE,
              (space.size - space.available) * PLX_BLOCK_SIZE);
    return 0;
}

/* ---- What history keeps of it ------------------------------------------------------------------
 */

static bool take_first(void *context, const struct plx_snapshot_info *info)
{
    *(struct plx_snapshot_info *)context = *info;
    return false;
}

/* The oldest snapshot of all, and for how long policies ask to go back. */
int plx_cmd_space_history(struct plx_cli *cli, const char *store,
                          const struct plx_registry_vdi *vdis, size_t count, json_t *object)
{
    uint64_t oldest_ns = UINT64_MAX, window_ns = 0;
    static struct plx_vdi_info info;
    char text[32];
    int rc = 0;

    for (size_t i = 0; i < count && !rc && !plx_interrupted; i++) {
        struct plx_snapshot_info first = {0};

        if ((rc = plx_vdi_read_info(plx_session_store(cli), vdis[i].slot, &info, &cli->fault)) ||
            (rc = plx_snapshot_list(plx_session_store(cli), vdis[i].slot, 1, take_first, &first,
                                    &cli->fault)))
            break;
        if (info.protection.mode != PLX_PROTECT_OFF)
            window_ns = plx_max_u64(window_ns, plx_retention_window_ns(&info.protection));
        if (!first.seq || first.time_ns >= oldest_ns)
            continue;
        oldest_ns = first.time_ns;
        json_object_set_new(object, "oldest_snapshot",
                            json_sprintf("%s/%s@%" PRIu64, store, vdis[i].name, first.seq));
        plx_out_set_time(object, "oldest", oldest_ns);
    }
    if (!window_ns)
        return rc;
    json_object_set_new(object, "policy_window_ns", json_integer((json_int_t)window_ns));
    json_object_set_new(object, "policy_window",
                        json_string(plx_text_duration(window_ns / 1000000000, text)));
    return rc;
}

/* ---- A virtual disk ---- */

int plx_cmd_space_of_vdi(struct plx_cli *cli, const char *vdi, const struct plx_vdi_info *info,
                         json_t *object)
{
    struct plx_threshold limit;
    bool known = info->mapped_blocks != PLX_MAPPED_UNKNOWN;
    int rc = plx_threshold_load_vdi(cli->session.registry, vdi, &limit);

    if (rc)
        return plx_session_registry_fault(cli, rc);
    if (known)
        put_blocks(object, "used", info->mapped_blocks);
    put_limit(object, &limit, info->size_bytes, known ? info->mapped_blocks * PLX_BLOCK_SIZE : 0);
    return 0;
}

/* ---- set ----------------------------------------------------------------------------------------
 */

static int limit_given(struct plx_cli *cli, struct plx_threshold *ret_limit)
{
    const char *text = plx_cli_get(cli, "warn-at");

    *ret_limit = (struct plx_threshold){0};
    if (!text)
        return plx_cli_usage(cli, "--warn-at is missing: a size, a percentage such as 80%%, or "
                                  "none");
    if (strcmp(text, "none") == 0)
        return 0;
    if (strchr(text, '%') ? plx_threshold_parse(text, ret_limit)
                          : plx_text_size_parse(text, &ret_limit->bytes) && ret_limit->bytes)
        return 0;
    return plx_cli_usage(cli,
                         "--warn-at '%.40s': a size such as 800G, a percentage from 1%% to "
                         "99%%, or none",
                         text);
}

static int check_limit(struct plx_cli *cli, const struct plx_threshold *limit, uint64_t size_bytes)
{
    char size[16];

    return limit->bytes <= size_bytes
               ? 0
               : plx_cli_usage(cli, "--warn-at %s is never reached: there are %s in all",
                               plx_cli_get(cli, "warn-at"), plx_text_size(size_bytes, size));
}

static void note_limit(struct plx_cli *cli, const char *name, const struct plx_threshold *limit,
                       uint64_t size_bytes)
{
    char size[16];

    if (plx_threshold_at(limit, size_bytes))
        plx_out_note(cli, "%s: a warning when %s are used", name,
                     plx_text_size(plx_threshold_at(limit, size_bytes), size));
    else
        plx_out_note(cli, "%s: no warning", name);
}

static int store_size(struct plx_cli *cli, const struct plx_registry_store *store,
                      uint64_t *ret_bytes)
{
    struct plx_registry_extent_counts extents;
    int rc = plx_registry_extent_count(cli->session.registry, store->id, &extents);

    if (rc)
        return plx_session_registry_fault(cli, rc);
    *ret_bytes = extents.total * store->extent_blocks * PLX_BLOCK_SIZE;
    return 0;
}

int plx_cmd_store_set(struct plx_cli *cli)
{
    struct plx_registry *registry;
    struct plx_registry_store store;
    struct plx_threshold limit;
    struct plx_name name;
    uint64_t bytes = 0;
    int rc;

    if ((rc = plx_cli_name(cli, 0, PLX_NAME_STORE, &name)) || (rc = limit_given(cli, &limit)) ||
        (rc = plx_session_registry(cli, &registry)))
        return rc;
    if ((rc = plx_registry_store_get(registry, name.store, &store)))
        return plx_session_registry_fault(cli, rc);
    if ((rc = store_size(cli, &store, &bytes)) || (rc = check_limit(cli, &limit, bytes)))
        return rc;
    if ((rc = plx_threshold_keep_store(registry, store.id, &limit)))
        return plx_session_registry_fault(cli, rc);
    note_limit(cli, store.name, &limit, bytes);
    return 0;
}

int plx_cmd_vdi_set(struct plx_cli *cli)
{
    struct plx_registry_vdi row;
    struct plx_threshold limit;
    struct plx_name name;
    int rc;

    if ((rc = plx_cli_name(cli, 0, PLX_NAME_VDI, &name)) || (rc = limit_given(cli, &limit)) ||
        (rc = plx_session_open(cli, name.store, PLX_SESSION_READ)) ||
        (rc = plx_session_vdi_row(cli, &name, &row)) ||
        (rc = check_limit(cli, &limit, row.size_bytes)))
        return rc;
    if ((rc = plx_threshold_keep_vdi(cli->session.registry, row.id, &limit)))
        return plx_session_registry_fault(cli, rc);
    note_limit(cli, cli->arguments[0], &limit, row.size_bytes);
    return cli->json ? plx_cmd_vdi_print(cli, &name) : 0;
}
