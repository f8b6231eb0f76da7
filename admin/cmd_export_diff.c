/* cmd_export_diff.c - parallax vdi export-diff: what differs between two snapshots, as a stream.
 */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "cmd.h"
#include "instants.h"
#include "output.h"
#include "stream.h"
#include "transfer.h"
#include "unfinished.h"

static const struct plx_column columns[] = {
    {"from", "From", PLX_COLUMN_TEXT},
    {"to", "To", PLX_COLUMN_TEXT},
    {"label", "Label", PLX_COLUMN_TEXT},
    {"size_bytes", "Size", PLX_COLUMN_SIZE},
    {"data_bytes", "Data", PLX_COLUMN_SIZE},
    {"zero_bytes", "Zeroes", PLX_COLUMN_SIZE},
    {NULL, NULL, 0},
};

struct diff_export {
    struct plx_cli *cli;
    struct plx_output output;
    struct plx_transfer transfer;
    struct plx_progress progress;
    struct plx_stream_header header;
    struct plx_stream_state state;
};

static int write_range(void *context, uint64_t offset, const uint8_t *bytes, uint64_t length)
{
    struct diff_export *export = context;
    uint8_t record[PLX_STREAM_RECORD_BYTES];

    plx_stream_put_range(&export->state, offset, bytes, length, record);
    int rc = plx_output_write(&export->output, record, sizeof record, UINT64_MAX);
    if (!rc && bytes)
        rc = plx_output_write(&export->output, bytes, length, UINT64_MAX);
    plx_progress_show(&export->progress, export->state.data_bytes + export->state.zero_bytes);
    return rc;
}

static int give_range(void *context, uint64_t offset, const uint8_t *bytes, uint64_t length)
{
    return bytes ? plx_for_runs(offset, bytes, length, write_range, context)
                 : write_range(context, offset, NULL, length);
}

static int write_stream(struct diff_export *export, const struct plx_instants *instants)
{
    struct plx_cli *cli = export->cli;
    uint8_t bytes[PLX_STREAM_HEADER_BYTES];
    int rc;

    plx_stream_put_header(&export->header, &export->state, bytes);
    if ((rc = plx_output_write(&export->output, bytes, PLX_STREAM_HEADER_BYTES, UINT64_MAX)) ||
        (rc = plx_transfer_init(&export->transfer, cli, instants->to_vdi)))
        return rc;
    export->transfer.give = give_range;
    export->transfer.context = export;
    plx_progress_begin(&export->progress, cli, "export", export->header.changed_bytes);
    rc = plx_transfer_done(&export->transfer, plx_copy_diff(&export->transfer, instants->from_vdi));
    plx_progress_end(&export->progress);
    plx_stream_put_end(&export->state, bytes);
    return rc ? rc : plx_output_write(&export->output, bytes, PLX_STREAM_RECORD_BYTES, UINT64_MAX);
}

/* The name gets the sequence number, so that it goes on meaning the same snapshot. */
static int resolve(struct plx_cli *cli, struct plx_name *name, struct plx_stream_instant *ret)
{
    struct plx_snapshot_info info;
    int rc;

    if (!*name->snapshot)
        return plx_cli_usage(cli,
                             "a backup ends and begins at snapshots; 'parallax snap create %s/%s' "
                             "takes one",
                             name->store, name->vdi);
    if ((rc = plx_session_snapshot_resolve(cli, name, &info)))
        return rc;
    plx_session_tell_chosen(cli, name, &info);
    snprintf(name->snapshot, sizeof name->snapshot, "%" PRIu64, info.seq);
    ret->seq = info.seq;
    ret->time_ns = info.time_ns;
    return 0;
}

static int fill_header(struct plx_cli *cli, const struct plx_instants *instants,
                       struct plx_stream_header *header)
{
    struct plx_diff_sum sum;
    struct plx_vdi_info info;
    struct plx_store_info store;
    int rc = plx_diff_sum(cli, instants->from_vdi, instants->to_vdi, &sum);

    plx_store_get_info(plx_session_store(cli), &store);
    plx_vdi_get_info(instants->to_vdi, &info);
    header->to.vdi = plx_uuid_shown(&store.id, &store.identity, &info.id);
    header->to.size_bytes = info.size_bytes;
    header->sector_size = info.sector_size;
    header->changed_bytes = sum.data_bytes + sum.zero_bytes;
    memcpy(header->name, info.name, sizeof header->name);
    if (!instants->from_vdi)
        return rc;
    plx_vdi_get_info(instants->from_vdi, &info);
    header->from.vdi = plx_uuid_shown(&store.id, &store.identity, &info.id);
    header->from.size_bytes = info.size_bytes;
    return rc;
}

static int print_export(const struct diff_export *export, const struct plx_instants *instants)
{
    char from[sizeof(struct plx_name)], to[sizeof from], label[64];
    json_t *object;

    if (export->output.fd == STDOUT_FILENO)
        return 0;
    plx_stream_label(&export->header.to, label);
    object = json_pack(
        "{s:s,s:s,s:I,s:I,s:I}", "to", plx_instants_text(&instants->to, to, sizeof to), "label",
        label, "size_bytes", (json_int_t) export->header.to.size_bytes, "data_bytes",
        (json_int_t) export->state.data_bytes, "zero_bytes", (json_int_t) export->state.zero_bytes);
    if (!instants->from_nothing)
        json_object_set_new(object, "from",
                            json_string(plx_instants_text(&instants->from, from, sizeof from)));
    plx_out_object(export->cli, columns, object);
    return 0;
}

int plx_cmd_vdi_export_diff(struct plx_cli *cli)
{
    struct diff_export export = {.cli = cli};
    struct plx_instants instants;
    int rc;

    if ((rc = plx_instants_parse(cli, cli->count - 1, &instants)) ||
        (rc = plx_session_open(cli, instants.to.store, PLX_SESSION_READ)) ||
        (rc = resolve(cli, &instants.to, &export.header.to)) ||
        (!instants.from_nothing && (rc = resolve(cli, &instants.from, &export.header.from))))
        return rc;
    if (!(rc = plx_instants_open(cli, &instants)) &&
        !(rc = fill_header(cli, &instants, &export.header))) {
        plx_unfinished_tell(cli, &instants.to);
        rc = plx_output_open(&export.output, cli, cli->arguments[cli->count - 1], true);
        rc = rc ? rc : write_stream(&export, &instants);
        rc = plx_output_close(&export.output, rc);
    }
    rc = plx_instants_close(cli, &instants, rc);
    return rc ? rc : print_export(&export, &instants);
}
