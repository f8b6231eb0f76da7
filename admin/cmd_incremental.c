/* cmd_incremental.c - parallax vdi import-diff: a copy goes on by a stream of what differs.
 *
 * A stream (stream.h) takes a copy of a virtual disk from one instant to another. An import ends
 * with a snapshot of the copy, whose label names the instant that the copy holds. The next stream
 * goes on from the snapshot with that label.
 *
 * CMD_INCREMENTAL-1  A record is checked before any of it is written to the copy. The label is set
 *     last, so a snapshot that has it is complete.
 * CMD_INCREMENTAL-2  A stream is applied to exactly the state that it goes on from. The import
 *     compares maps to find what has changed in the copy since that state:
 *         an unfinished import changed it   taken back, after a snapshot of it
 *         anything else, with --force       likewise
 *         anything else                     an error
 *     The label `import-unfinished` on the state before tells an unfinished import. (Where a stream
 *     goes on from nothing, that is an empty snapshot.) So an import can be interrupted anywhere
 *     and repeated.
 * CMD_INCREMENTAL-3  An import that does not finish deletes the disk that it created.
 * CMD_INCREMENTAL-4  A copy never shrinks. So it grows only when data has come that lies behind its
 *     end, or when the stream has ended well. A stream that can be read twice is checked to its end
 *     before anything is written. Zeroes behind the end need no growth.
 * CMD_INCREMENTAL-5  A process that was killed may have written the label to the store and not to
 *     the registry. The next opening of the copy for writing tells the registry. So after opening
 *     it, the import asks again whether the copy holds the instant.
 * CMD_INCREMENTAL-6  A copy that already holds the instant gets nothing from the stream. If its
 *     contents have changed since, for example by a later import, the import says so; with --force
 *     it takes them back as in CMD_INCREMENTAL-2. The label then moves to a new snapshot of the
 *     contents: blocks that were written back lie in new places, and the next stream would take
 *     them for changes. To move, the label is removed and then set again. After a kill in between,
 *     the stream is imported as any other. Another import may have begun while the stream was read.
 *     So the marks of an unfinished one go only after a second comparison, with the disk open here.
 * Crash story: `import-unfinished` is set before anything else changes, and removed after the label
 *   that names the instant is set. A kill leaves:
 *       before it is set          the state before
 *       between the two           changes that the next import takes back
 *       after the label is set    a complete copy; the next import removes `import-unfinished`
 *   A copy that the killed import created stays.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd.h"
#include "output.h"
#include "stream.h"
#include "transfer.h"
#include "unfinished.h"

static const struct plx_column columns[] = {
    {"name", "Name", PLX_COLUMN_TEXT},
    {"from", "From", PLX_COLUMN_TEXT},
    {"to", "To", PLX_COLUMN_TEXT},
    {"label", "Label", PLX_COLUMN_TEXT},
    {"size_bytes", "Size", PLX_COLUMN_SIZE},
    {"data_bytes", "Data", PLX_COLUMN_SIZE},
    {"zero_bytes", "Zeroes", PLX_COLUMN_SIZE},
    {"present", "Present already", PLX_COLUMN_TEXT},
    {"changed", "Changed since", PLX_COLUMN_TEXT},
    {"dry_run", "Dry run", PLX_COLUMN_TEXT},
    {NULL, NULL, 0},
};

struct diff_import {
    struct plx_cli *cli;
    struct plx_name name;
    int fd;
    off_t start; /* of the stream in the file; -1: it cannot be read twice */
    bool dry_run, present;
    bool created, touched; /* the copy */
    struct plx_import_mark mark;
    bool dirty;                  /* it was changed since the state that it is to be in (base) */
    bool unfinished;             /* by an import */
    bool changed;                /* it is present, and was changed since */
    bool since;                  /* another import brought a later state */
    uint64_t size_bytes, to_seq; /* to_seq: where it is present */
    /* what the stream goes on from, seq 0: nothing; or CMD_INCREMENTAL-6 */
    struct plx_snapshot_info base;
    char from_label[PLX_LABEL_MAX + 1], to_label[64];
    struct plx_stream_reader reader;
    struct plx_transfer transfer;
    struct plx_progress progress;
};

static int read_stream(void *context, uint8_t *bytes, size_t length, size_t *ret_got)
{
    struct diff_import *import = context;

    return plx_file_read(import->cli, import->cli->arguments[0], import->fd, bytes, length,
                         ret_got);
}

static int open_stream(struct diff_import *import)
{
    struct plx_cli *cli = import->cli;
    struct plx_stream_reader *reader = &import->reader;
    int rc = plx_file_open_input(cli, cli->arguments[0], &import->fd);

    if (rc)
        return rc;
    import->start = lseek(import->fd, 0, SEEK_CUR);
    reader->read = read_stream;
    reader->context = import;
    reader->buffer = malloc(PLX_STREAM_DATA_MAX);
    if (!reader->buffer)
        return plx_cli_fail(cli, PLX_ERR_NOMEM, "out of memory");
    if ((rc = plx_stream_open(reader, &cli->fault)))
        return rc;
    plx_stream_label(&reader->header.to, import->to_label);
    if (plx_cli_get(cli, "base"))
        snprintf(import->from_label, sizeof import->from_label, "%s", plx_cli_get(cli, "base"));
    else
        plx_stream_label(&reader->header.from, import->from_label);
    return 0;
}

/* ---- Does the stream fit? ---- */

static int check_sizes(struct diff_import *import, const struct plx_registry_vdi *row)
{
    const struct plx_stream_header *header = &import->reader.header;
    const struct plx_name *name = &import->name;

    if (row->size_bytes > header->to.size_bytes)
        return plx_cli_fail(import->cli, PLX_ERR_RANGE,
                            "%s/%.100s has %" PRIu64 " bytes, the stream's disk only %" PRIu64
                            "; a disk cannot be made smaller: import into another",
                            name->store, name->vdi, row->size_bytes, header->to.size_bytes);
    if (header->to.size_bytes % row->sector_size)
        return plx_cli_fail(import->cli, PLX_ERR_INVALID,
                            "%s/%.100s has sectors of %u bytes, and the stream's disk ends within "
                            "one; import into another with sectors of %u",
                            name->store, name->vdi, row->sector_size, header->sector_size);
    import->size_bytes = row->size_bytes;
    return 0;
}

/* There is no snapshot of the copy with the label: is there one of another instant with that
 * number?
 */
static int explain_base(struct diff_import *import)
{
    const struct plx_stream_header *header = &import->reader.header;
    const struct plx_name *name = &import->name;
    struct plx_registry *registry = import->cli->session.registry;
    size_t count = 0, same = strlen(import->from_label);
    struct plx_registry_label *list = NULL;
    struct plx_registry_vdi row;
    const char *other = NULL;
    int rc = 0;

    while (same && import->from_label[same - 1] != '-') /* without the time */
        same--;
    if (plx_cli_get(import->cli, "base") == NULL &&
        plx_session_vdi_row(import->cli, name, &row) == 0 &&
        plx_registry_label_list(registry, row.id, &list, &count) == 0)
        for (size_t i = 0; i < count && !other; i++)
            if (strncmp(list[i].name, import->from_label, same) == 0)
                other = list[i].name;
    if (other)
        rc = plx_cli_fail(import->cli, PLX_ERR_NOT_FOUND,
                          "%s/%.60s holds another snapshot %" PRIu64 " of %.60s (@%.60s): the "
                          "original has lost that one, and gave its number out again; make a new "
                          "copy, from nothing",
                          name->store, name->vdi, header->from.seq, header->name, other);
    else
        rc = plx_cli_fail(import->cli, PLX_ERR_NOT_FOUND,
                          "%s/%.60s has no snapshot %.60s, which the stream goes on from; import "
                          "the streams in their order, or name the snapshot that is the same "
                          "with --base",
                          name->store, name->vdi, import->from_label);
    free(list);
    return rc;
}

/* The snapshot of the copy that the stream goes on from. */
static int find_base(struct diff_import *import)
{
    const struct plx_stream_header *header = &import->reader.header;
    struct plx_name base = import->name;
    int rc;

    snprintf(base.snapshot, sizeof base.snapshot, "%s", import->from_label);
    rc = plx_session_snapshot_resolve(import->cli, &base, &import->base);
    if (rc == PLX_ERR_NOT_FOUND)
        return explain_base(import);
    if (!rc && import->base.size_bytes != header->from.size_bytes)
        rc = plx_cli_fail(import->cli, PLX_ERR_INVALID,
                          "%s/%.60s@%.60s has %" PRIu64 " bytes, the stream goes on from %" PRIu64
                          "; it is not the same instant",
                          base.store, base.vdi, base.snapshot, import->base.size_bytes,
                          header->from.size_bytes);
    return rc;
}

static bool stop_at_first(void *context, const struct plx_diff_range *range)
{
    *(bool *)context = true;
    return false;
}

static int open_base(struct diff_import *import, struct plx_vdi **ret_base)
{
    struct plx_name base = import->name;

    snprintf(base.snapshot, sizeof base.snapshot, "%" PRIu64, import->base.seq);
    return import->base.seq ? plx_session_instant_open(import->cli, &base, ret_base) : 0;
}

/* CMD_INCREMENTAL-2: of a stream from nothing, whether the state before was empty. */
static int is_empty(struct diff_import *import, uint64_t seq, bool *ret_empty)
{
    struct plx_name name = import->name;
    struct plx_vdi *instant;
    bool mapped = false;
    int rc;

    snprintf(name.snapshot, sizeof name.snapshot, "%" PRIu64, seq);
    if (!(rc = plx_session_instant_open(import->cli, &name, &instant))) {
        rc = plx_vdi_diff(NULL, instant, stop_at_first, &mapped, &import->cli->fault);
        plx_session_instant_close(import->cli, instant);
    }
    *ret_empty = !mapped;
    return rc;
}

/* CMD_INCREMENTAL-2: the mark is on the state that the stream goes on from. */
static int find_mark(struct diff_import *import, const struct plx_registry_vdi *row)
{
    struct plx_registry_label label;
    int rc = plx_registry_label_get(import->cli->session.registry, row->id, PLX_UNFINISHED_LABEL,
                                    &label);

    if (rc)
        return rc == PLX_ERR_NOT_FOUND ? 0 : plx_session_registry_fault(import->cli, rc);
    import->unfinished = label.seq == import->base.seq;
    return import->base.seq ? 0 : is_empty(import, label.seq, &import->unfinished);
}

/* CMD_INCREMENTAL-2 */
static int compare_with_base(struct diff_import *import)
{
    struct plx_cli *cli = import->cli;
    struct plx_vdi *base = NULL, *newest = NULL;
    int rc;

    if (!(rc = open_base(import, &base)) &&
        !(rc = plx_session_instant_open(cli, &import->name, &newest)))
        rc = plx_vdi_diff(base, newest, stop_at_first, &import->dirty, &cli->fault);
    rc = plx_session_name_moved(cli, newest, rc);
    plx_session_instant_close(cli, newest);
    plx_session_instant_close(cli, base);
    return rc;
}

/* CMD_INCREMENTAL-2 */
static int find_changes(struct diff_import *import, const struct plx_registry_vdi *row)
{
    struct plx_cli *cli = import->cli;
    int rc;

    if ((rc = compare_with_base(import)) || (rc = find_mark(import, row)))
        return rc;
    if (!import->dirty || import->unfinished || plx_cli_get(cli, "force"))
        return 0;
    return import->base.seq
               ? plx_cli_fail(cli, PLX_ERR_EXISTS,
                              "%s/%.60s was changed since @%.60s, which the stream goes on from; "
                              "give --force to take that back (a snapshot of it stays)",
                              import->name.store, import->name.vdi, import->from_label)
               : plx_cli_fail(
                     cli, PLX_ERR_EXISTS,
                     "%s/%.100s holds data already; give --force to replace it (a snapshot "
                     "of it stays), or another name",
                     import->name.store, import->name.vdi);
}

static int create_copy(struct diff_import *import)
{
    const struct plx_stream_header *header = &import->reader.header;
    struct plx_vdi_create_options options = {.size_bytes = header->to.size_bytes,
                                             .sector_size = header->sector_size};
    int rc;

    if (header->from.seq)
        return plx_cli_fail(
            import->cli, PLX_ERR_NOT_FOUND,
            "%s/%.100s does not exist, and the stream goes on from snapshot %" PRIu64
            " of %.60s; import one from nothing first",
            import->name.store, import->name.vdi, header->from.seq, header->name);
    import->size_bytes = options.size_bytes;
    if (import->dry_run)
        return 0;
    snprintf(options.name, sizeof options.name, "%s", import->name.vdi);
    rc = plx_session_vdi_create(import->cli, &options, NULL);
    import->created = !rc;
    return rc;
}

/* Whether a later state of the copy came by an import, too. */
static bool is_imported_since(const struct diff_import *import, const struct plx_registry_vdi *row)
{
    struct plx_registry_label *list = NULL;
    bool since = false;
    size_t count = 0;

    if (plx_registry_label_list(import->cli->session.registry, row->id, &list, &count))
        return false;
    for (size_t i = 0; i < count; i++)
        since |= list[i].seq > import->to_seq && strncmp(list[i].name, "import-", 7) == 0 &&
                 strcmp(list[i].name, PLX_UNFINISHED_LABEL) != 0;
    free(list);
    return since;
}

/* Whether the copy holds the instant already. */
static int find_present(struct diff_import *import, const struct plx_registry_vdi *row)
{
    struct plx_cli *cli = import->cli;
    struct plx_registry_label label;
    int rc = plx_registry_label_get(cli->session.registry, row->id, import->to_label, &label);

    import->present = !rc;
    import->to_seq = rc ? 0 : label.seq;
    import->since = !rc && is_imported_since(import, row);
    return rc && rc != PLX_ERR_NOT_FOUND ? plx_session_registry_fault(cli, rc) : 0;
}

static int compare_with_present(struct diff_import *import)
{
    struct plx_name present = import->name;
    int rc;

    snprintf(present.snapshot, sizeof present.snapshot, "%" PRIu64, import->to_seq);
    rc = plx_session_snapshot_resolve(import->cli, &present, &import->base);
    return rc ? rc : compare_with_base(import);
}

/* CMD_INCREMENTAL-6 */
static int look_at_present(struct diff_import *import)
{
    const struct plx_name present = import->name;
    struct plx_cli *cli = import->cli;
    bool force = plx_cli_get(cli, "force");
    int rc = compare_with_present(import);

    if (rc)
        return rc;
    import->changed = import->dirty;
    import->dirty = import->dirty && force && !import->dry_run;
    if (!import->changed)
        plx_out_note(cli,
                     "%s/%.60s has @%.60s already, which is what the stream brings: nothing %s",
                     present.store, present.vdi, import->to_label,
                     import->dry_run ? "would be written" : "is written");
    else if (!import->dirty && import->since && !force)
        plx_out_note(cli,
                     "%s/%.60s has @%.60s already, which is what the stream brings, and later ones "
                     "were imported since: nothing is written; --force goes back to that state (a "
                     "snapshot of the present one stays)",
                     present.store, present.vdi, import->to_label);
    else if (!import->dirty)
        plx_out_note(cli, "%s/%.60s was changed since @%.60s, which is what the stream brings; %s",
                     present.store, present.vdi, import->to_label,
                     force ? "the changes would be taken back"
                           : "it stays so, unless --force takes the changes back (a snapshot of "
                             "them stays)");
    return 0;
}

static int prepare(struct diff_import *import)
{
    struct plx_registry_vdi row;
    int rc = plx_session_vdi_row(import->cli, &import->name, &row);

    if (rc == PLX_ERR_NOT_FOUND)
        return create_copy(import);
    if (rc || (rc = check_sizes(import, &row)) || (rc = find_present(import, &row)))
        return rc;
    if (import->present)
        return look_at_present(import);
    if (import->reader.header.from.seq && (rc = find_base(import)))
        return rc;
    return find_changes(import, &row);
}

/* ---- Doing it ---- */

static int put_range(struct plx_transfer *transfer, uint64_t offset, const uint8_t *bytes,
                     uint64_t length)
{
    return bytes ? plx_transfer_put(transfer, offset, bytes, length)
                 : plx_transfer_clear(transfer, offset, length);
}

static int put_back(void *context, uint64_t offset, const uint8_t *bytes, uint64_t length)
{
    struct diff_import *import = context;

    return put_range(&import->transfer, offset, bytes, length);
}

/* Reads what the base has where the copy differs from it now, and writes it. */
static int copy_back(struct diff_import *import, uint64_t now)
{
    struct plx_name name = import->name;
    struct plx_vdi *base = NULL, *changed = NULL;
    struct plx_transfer from;
    int rc;

    if (!import->base.seq)
        return put_range(&import->transfer, 0, NULL, import->size_bytes);
    snprintf(name.snapshot, sizeof name.snapshot, "%" PRIu64, now);
    if (!(rc = open_base(import, &base)) &&
        !(rc = plx_session_instant_open(import->cli, &name, &changed)) &&
        !(rc = plx_transfer_init(&from, import->cli, base))) {
        from.give = put_back;
        from.context = import;
        rc = plx_transfer_done(&from, plx_copy_diff(&from, changed));
    }
    plx_session_instant_close(import->cli, changed);
    plx_session_instant_close(import->cli, base);
    return rc;
}

/* CMD_INCREMENTAL-2: back to the base. What lies beyond its end, if the disk has grown since, is
 * zero again. */
static int take_back(struct diff_import *import)
{
    struct plx_cli *cli = import->cli;
    uint64_t now, time_ns, end = import->base.size_bytes;
    int rc = plx_session_snapshot_create(cli, &import->name, "", &now, &time_ns);

    if (rc)
        return rc;
    plx_out_note(cli, "what was changed since is taken back; it stays as %s/%s@%" PRIu64,
                 import->name.store, import->name.vdi, now);
    if ((rc = plx_unfinished_begin(cli, &import->name))) /* UNFINISHED-1 */
        return rc;
    import->touched = true;
    if ((rc = plx_transfer_init(&import->transfer, cli, cli->session.vdi)))
        return rc;
    rc = copy_back(import, now);
    if (!rc && import->base.seq && import->size_bytes > end)
        rc = put_range(&import->transfer, end, NULL, import->size_bytes - end);
    return plx_transfer_done(&import->transfer, rc);
}

/* CMD_INCREMENTAL-5 */
static int open_copy(struct diff_import *import)
{
    struct plx_registry_vdi row;
    int rc = plx_session_vdi_open(import->cli, &import->name);

    if (rc || (rc = plx_import_mark(import->cli, &import->name, &import->created, &import->mark)) ||
        (rc = plx_session_vdi_row(import->cli, &import->name, &row)))
        return rc;
    /* The previous holder may have changed the disk, so it is examined only under the lock. */
    return import->created || import->present ? find_present(import, &row) : prepare(import);
}

/* The copy is as the stream expects it, and marked as unfinished. */
static int make_ready(struct diff_import *import)
{
    struct plx_cli *cli = import->cli;
    struct plx_snapshot_info before = import->base;
    int rc = 0;

    if ((import->dirty && (rc = take_back(import))) || import->unfinished)
        return rc;
    if ((rc = plx_unfinished_end(cli, &import->name, UINT64_MAX, false)) ||
        (!before.seq &&
         (rc = plx_session_snapshot_create(cli, &import->name, "", &before.seq, &before.time_ns))))
        return rc;
    import->touched = import->unfinished = true;
    return plx_session_label_set(cli, &import->name, PLX_UNFINISHED_LABEL, before.seq,
                                 before.time_ns);
}

/* CMD_INCREMENTAL-4 */
static int grow(struct diff_import *import)
{
    uint64_t bytes = import->reader.header.to.size_bytes;
    int rc =
        import->size_bytes < bytes ? plx_session_vdi_resize(import->cli, &import->name, bytes) : 0;

    if (!rc)
        import->size_bytes = bytes;
    return rc;
}

static int write_range_in(struct diff_import *import, const struct plx_stream_range *range)
{
    uint64_t length = range->length;
    int rc = range->bytes && range->offset + length > import->size_bytes ? grow(import) : 0;

    import->touched = true;
    if (rc || range->offset >= import->size_bytes)
        return rc;
    length = plx_min_u64(length, import->size_bytes - range->offset);
    return put_range(&import->transfer, range->offset, range->bytes, length);
}

/* To the end of the stream; where nothing is to be written, it is checked only. */
static int apply(struct diff_import *import, bool writes)
{
    struct plx_stream_reader *reader = &import->reader;
    struct plx_stream_range range;
    int rc;

    plx_progress_begin(&import->progress, import->cli, "import", reader->header.changed_bytes);
    while ((rc = plx_stream_next(reader, &range, &import->cli->fault)) == 0) {
        if (writes && (rc = write_range_in(import, &range)))
            break;
        plx_progress_show(&import->progress, reader->state.data_bytes + reader->state.zero_bytes);
        if (!plx_interrupted)
            continue;
        rc = plx_cli_fail(import->cli, PLX_ERR_SYSTEM, "interrupted");
        break;
    }
    plx_progress_end(&import->progress);
    if (rc != PLX_ERR_NOT_FOUND)
        return rc;
    return writes ? grow(import) : 0;
}

/* CMD_INCREMENTAL-4: before it grows. */
static int check_stream(struct diff_import *import)
{
    uint32_t header = import->reader.state.checksum;
    struct plx_cli *cli = import->cli;
    int rc;

    if (import->start < 0 || import->created ||
        import->size_bytes == import->reader.header.to.size_bytes)
        return 0;
    if ((rc = apply(import, false)))
        return rc;
    if (lseek(import->fd, import->start, SEEK_SET) < 0)
        return plx_out_file_error(cli, cli->arguments[0], "read");
    rc = plx_stream_open(&import->reader, &cli->fault);
    if (!rc && import->reader.state.checksum != header)
        rc = plx_cli_fail(cli, PLX_ERR_INVALID, "%.120s changes while it is read",
                          cli->arguments[0]);
    return rc;
}

/* CMD_INCREMENTAL-1: the last steps; CMD_INCREMENTAL-6: the label may be elsewhere. */
static int finish(struct diff_import *import)
{
    struct plx_cli *cli = import->cli;
    struct plx_request flush = {.op = PLX_FLUSH};
    uint64_t seq, time_ns;
    int rc = plx_vdi_run(cli->session.vdi, &flush);

    if (rc) {
        cli->fault = flush.fault;
        return rc;
    }
    if ((rc = plx_session_snapshot_create(cli, &import->name, "", &seq, &time_ns)) ||
        (import->present &&
         (rc = plx_session_label_remove(cli, &import->name, import->to_label))) ||
        (rc = plx_session_label_set(cli, &import->name, import->to_label, seq, time_ns)))
        return rc;
    return plx_unfinished_end(cli, &import->name, UINT64_MAX, true);
}

static int write_opened(struct diff_import *import)
{
    struct plx_cli *cli = import->cli;
    int rc = make_ready(import);

    if (!rc && !(rc = plx_transfer_init(&import->transfer, cli, cli->session.vdi)))
        rc = plx_transfer_done(&import->transfer, apply(import, true));
    return rc ? rc : finish(import);
}

/* CMD_INCREMENTAL-6. The stream was checked. */
static int restore_present(struct diff_import *import)
{
    int rc = take_back(import);

    return rc ? rc : finish(import);
}

static int write_copy(struct diff_import *import)
{
    bool was_present = import->present;
    int closed, rc = was_present ? apply(import, false) : check_stream(import);

    if (!rc)
        rc = open_copy(import);
    if (!rc && was_present)
        rc = restore_present(import);
    else if (!rc)
        rc = import->present ? apply(import, false) : write_opened(import);
    closed = plx_session_vdi_close(import->cli);
    return rc ? rc : closed;
}

/* CMD_INCREMENTAL-6: the marks of an unfinished import go, if the copy is whole. */
static int end_present(struct diff_import *import)
{
    struct plx_cli *cli = import->cli;
    struct plx_registry_vdi row;
    bool marked;
    int closed, rc = plx_session_vdi_row(cli, &import->name, &row);

    if (rc || (rc = plx_unfinished_look(cli, row.id, &marked)) || !marked)
        return rc;
    if (import->changed)
        return plx_unfinished_end(cli, &import->name, import->to_seq, false);
    if ((rc = plx_session_vdi_open(cli, &import->name)) == PLX_ERR_BUSY)
        return 0; /* who has it open may be importing */
    if (!rc && !(rc = compare_with_present(import)))
        rc = plx_unfinished_end(cli, &import->name, import->to_seq, !import->dirty);
    closed = plx_session_vdi_close(cli);
    return rc ? rc : closed;
}

/* What a failure leaves behind, and how to go on. */
static void explain(struct diff_import *import)
{
    struct plx_fault *fault = &import->cli->fault;
    struct plx_fault why = *fault;

    if (import->created) { /* CMD_INCREMENTAL-3 */
        plx_import_undo(import->cli, &import->name, &import->mark, true, import->touched);
    } else if (import->touched) {
        plx_fault_set(
            fault, why.code,
            "%.140s; %s/%.40s holds a part of the stream until the import is repeated%s%.60s",
            why.text, import->name.store, import->name.vdi,
            import->base.seq ? ", and is whole at @" : "",
            !import->base.seq ? ""
            : import->present ? import->to_label
                              : import->from_label);
    }
}

static void print_import(const struct diff_import *import)
{
    const struct plx_stream_header *header = &import->reader.header;
    json_t *object = json_pack("{s:o,s:o,s:s,s:I,s:I,s:I,s:b,s:b}", "name",
                               json_sprintf("%s/%s", import->name.store, import->name.vdi), "to",
                               json_sprintf("%s@%" PRIu64, header->name, header->to.seq), "label",
                               import->to_label, "size_bytes", (json_int_t)header->to.size_bytes,
                               "data_bytes", (json_int_t)import->reader.state.data_bytes,
                               "zero_bytes", (json_int_t)import->reader.state.zero_bytes, "present",
                               import->present, "dry_run", import->dry_run);

    plx_out_set_time(object, "to_time", header->to.time_ns);
    if (header->from.seq)
        json_object_set_new(object, "from", json_string(import->from_label));
    if (import->present)
        json_object_set_new(object, "changed", json_boolean(import->changed));
    plx_out_object(import->cli, columns, object);
}

int plx_cmd_vdi_import_diff(struct plx_cli *cli)
{
    struct diff_import import = {.cli = cli, .fd = -1, .dry_run = plx_cli_get(cli, "dry-run")};
    int rc;

    if ((rc = plx_cli_name(cli, 1, PLX_NAME_VDI, &import.name)) || (rc = open_stream(&import)) ||
        (rc = plx_session_open(cli, import.name.store,
                               import.dry_run ? PLX_SESSION_READ : PLX_SESSION_WRITE)) ||
        (rc = prepare(&import)))
        goto out;
    rc = import.dry_run || (import.present && !import.dirty) ? apply(&import, false)
                                                             : write_copy(&import);
    if (!rc && import.present && !import.dry_run)
        rc = end_present(&import);
    if (rc)
        explain(&import);
    else
        print_import(&import);
out:
    free(import.reader.buffer);
    if (import.fd > STDIN_FILENO)
        close(import.fd);
    return rc;
}
