/* cmd_space.c - the soft limits of a store and of its virtual disks: store set, vdi set. */
#include <string.h>

#include "cmd.h"
#include "output.h"
#include "registry/threshold.h"
#include "space.h"

#define BARE_MIN (1u << 20) /* a smaller number without a unit was not meant to be bytes */

static int limit_given(struct plx_cli *cli, struct plx_threshold *ret_limit)
{
    const char *text = plx_cli_get(cli, "warn-at");
    uint64_t number;

    *ret_limit = (struct plx_threshold){0};
    if (!text)
        return plx_cli_usage(cli, "--warn-at is missing: a size, a percentage such as 80%%, or "
                                  "'none', which turns the limit off");
    if (strcmp(text, "none") == 0)
        return 0;
    if (plx_text_number_parse(text, &number) && number && number < BARE_MIN)
        return number < 100
                   ? plx_cli_usage(cli, "--warn-at '%.40s' has no unit; write %.40s%% or %.40sG",
                                   text, text, text)
                   : plx_cli_usage(cli, "--warn-at '%.40s' has no unit; write %.40sM or %.40sG",
                                   text, text, text);
    if (strchr(text, '%') ? plx_threshold_parse(text, ret_limit)
                          : plx_text_size_parse(text, &ret_limit->bytes) && ret_limit->bytes)
        return 0;
    return plx_cli_usage(cli,
                         "--warn-at '%.40s': a size such as 800G, a percentage from 1%% to "
                         "99%%, or 'none', which turns the limit off",
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
    struct plx_registry_store store;
    struct plx_threshold limit;
    struct plx_name name;
    uint64_t bytes = 0;
    int rc;

    if ((rc = plx_cli_name(cli, 0, PLX_NAME_STORE, &name)) || (rc = limit_given(cli, &limit)) ||
        (rc = plx_session_registry(cli, name.store, &store)))
        return rc;
    if ((rc = store_size(cli, &store, &bytes)) || (rc = check_limit(cli, &limit, bytes)))
        return rc;
    if ((rc = plx_threshold_keep_store(cli->session.registry, store.id, &limit)))
        return plx_session_registry_fault(cli, rc);
    note_limit(cli, name.store, &limit, bytes);
    json_t *object = json_pack("{s:s,s:I}", "name", name.store, "size_bytes", (json_int_t)bytes);
    plx_space_put_limit(object, &limit, bytes, 0);
    plx_out_done(cli, object);
    return 0;
}

static int set_vdi_limit(struct plx_cli *cli, const struct plx_registry_vdi *row,
                         const struct plx_threshold *limit)
{
    int rc = plx_threshold_keep_vdi(cli->session.registry, row->id, limit);

    if (rc)
        return plx_session_registry_fault(cli, rc);
    note_limit(cli, cli->arguments[0], limit, row->size_bytes);
    return 0;
}

int plx_cmd_vdi_set(struct plx_cli *cli)
{
    bool warn = plx_cli_get(cli, "warn-at"), ring = plx_cli_get(cli, "ring");
    struct plx_threshold limit;
    struct plx_registry_vdi row;
    struct plx_name name;
    unsigned use = PLX_RING_OFF;
    int rc;

    if ((rc = plx_cli_name(cli, 0, PLX_NAME_VDI, &name)))
        return rc;
    if (!warn && !ring)
        return plx_cli_usage(cli, "--warn-at or --ring is missing: what is to be set");
    if ((warn && (rc = limit_given(cli, &limit))) ||
        (rc = plx_cli_choice(cli, "ring", plx_ring_setting_words, &use)) ||
        (rc = plx_session_open(cli, name.store, ring ? PLX_SESSION_WRITE : PLX_SESSION_READ)) ||
        (rc = plx_session_vdi_row(cli, &name, &row)) ||
        (warn && (rc = check_limit(cli, &limit, row.size_bytes))) ||
        (ring && (rc = plx_cmd_vdi_check_ring(cli, &name, use))) ||
        (warn && (rc = set_vdi_limit(cli, &row, &limit))) ||
        (ring && (rc = plx_cmd_vdi_set_ring(cli, &name, &row, use))))
        return rc;
    return cli->json ? plx_cmd_vdi_print(cli, &name) : 0;
}
