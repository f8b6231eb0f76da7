/* cmd_transfer.c - vdi import and vdi export: raw images in and out.
 *
 * CMD_TRANSFER-1  An import that does not finish deletes the disk that it created. If the disk was
 *     there before, the error says that it holds a part of the image. An export's file appears only
 *     when it is complete (TRANSFER-2).
 *     Before it writes to a disk it marks the disk as unfinished (UNFINISHED-1), and a disk with
 *     that mark that holds something is not imported into again without --force.
 * CMD_TRANSFER-2  Zeroes take no space: an import unmaps them, and an export to a regular file
 *     leaves holes.
 * CMD_TRANSFER-3  A block that cannot be read fails an export. With --skip-errors it is zero in the
 *     image, all such blocks are listed, and the exit status tells that there were some.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <linux/fs.h>

#include "cmd.h"
#include "output.h"
#include "stream.h"
#include "transfer.h"
#include "unfinished.h"

/* ---- Import -------------------------------------------------------------------------------- */

struct image_import {
    struct plx_cli *cli;
    const char *path;
    int fd;
    const struct plx_name *name;
    bool created, seekable, touched, marked;
    uint64_t file_bytes, vdi_bytes; /* file_bytes 0: not known */
    uint64_t copied;
    struct plx_transfer transfer;
    struct plx_progress progress;
    struct plx_import_mark mark;
};

static int open_image(struct image_import *import)
{
    struct stat st;
    int rc = plx_file_open_input(import->cli, import->path, &import->fd);

    if (rc)
        return rc;
    if (fstat(import->fd, &st))
        return plx_out_file_error(import->cli, import->path, "open");
    if (S_ISREG(st.st_mode)) {
        off_t at = lseek(import->fd, 0, SEEK_CUR); /* standard input may have been read from */

        import->file_bytes = (uint64_t)(st.st_size > at ? st.st_size - at : 0);
        import->seekable = at == 0;
        if (!import->file_bytes)
            return plx_cli_fail(import->cli, PLX_ERR_INVALID, "%.120s: the file is empty",
                                import->path);
    } else if (S_ISBLK(st.st_mode) && ioctl(import->fd, BLKGETSIZE64, &import->file_bytes)) {
        return plx_out_file_error(import->cli, import->path, "read its size");
    }
    return 0;
}

/* For an existing disk: size and sector size given must match the disk's. */
static int check_same(struct image_import *import, const struct plx_name *name,
                      const struct plx_registry_vdi *row)
{
    struct plx_cli *cli = import->cli;
    uint64_t size_bytes = row->size_bytes;
    unsigned sector_size = row->sector_size == 4096;
    int rc;

    if ((rc = plx_cli_size(cli, "size", &size_bytes)) ||
        (rc = plx_cli_choice(cli, "sector-size", plx_sector_sizes, &sector_size)))
        return rc;
    if (size_bytes != row->size_bytes || (sector_size ? 4096 : 512) != row->sector_size)
        return plx_cli_usage(cli,
                             "%s/%.100s exists already, with %" PRIu64 " bytes in sectors of %u; "
                             "--size and --sector-size are for one that is created ('parallax vdi "
                             "resize' makes one larger)",
                             name->store, name->vdi, row->size_bytes, row->sector_size);
    import->vdi_bytes = row->size_bytes;
    return 0;
}

static int create_or_check(struct image_import *import, const struct plx_name *name)
{
    struct plx_cli *cli = import->cli;
    struct plx_vdi_create_options options = {0};
    struct plx_registry_vdi row;
    unsigned sector_size = 0;
    int rc;

    if ((rc = plx_session_vdi_row(cli, name, &row)) == 0)
        return check_same(import, name, &row);
    if (rc != PLX_ERR_NOT_FOUND)
        return rc;
    if ((rc = plx_cli_choice(cli, "sector-size", plx_sector_sizes, &sector_size)))
        return rc;
    options.sector_size = sector_size ? 4096 : 512;
    options.size_bytes =
        plx_max_u64(plx_div_up(import->file_bytes, options.sector_size) * options.sector_size,
                    PLX_VDI_SIZE_MIN);
    if (!import->file_bytes && !plx_cli_get(cli, "size"))
        return plx_cli_usage(cli,
                             "%s/%s does not exist and the size of the image is not known; "
                             "give --size",
                             name->store, name->vdi);
    if ((rc = plx_cli_size(cli, "size", &options.size_bytes)) ||
        (rc = plx_cmd_check_size(cli, options.size_bytes, options.sector_size)))
        return rc;
    snprintf(options.name, sizeof options.name, "%s", name->vdi);
    if ((rc = plx_session_vdi_create(cli, &options, NULL)))
        return rc;
    import->created = true;
    import->vdi_bytes = options.size_bytes;
    return 0;
}

/* CMD_TRANSFER-1, UNFINISHED-1: before the first write. */
static int mark_unfinished(struct image_import *import)
{
    int rc = import->marked ? 0 : plx_unfinished_begin(import->cli, import->name);

    import->marked = !rc;
    return rc;
}

static int put_run(void *context, uint64_t offset, const uint8_t *bytes, uint64_t length)
{
    struct image_import *import = context;

    if (!bytes && import->created) /* CMD_TRANSFER-2: nothing is mapped in a new disk */
        return 0;
    int rc = mark_unfinished(import);
    if (rc)
        return rc;
    import->touched = true;
    return plx_transfer_put(&import->transfer, offset, bytes, length);
}

/* At a hole of the image: returns the next chunk that holds data, or the image's end. */
static uint64_t skip_hole(struct image_import *import, uint64_t offset)
{
    off_t data;

    if (!import->seekable || !import->created)
        return offset;
    data = lseek(import->fd, (off_t)offset, SEEK_DATA);
    if (data < 0)
        data = errno == ENXIO ? (off_t)import->file_bytes : (off_t)offset;
    uint64_t next = (uint64_t)data == import->file_bytes
                        ? import->file_bytes
                        : (uint64_t)data / PLX_TRANSFER_CHUNK * PLX_TRANSFER_CHUNK;
    lseek(import->fd, (off_t)next, SEEK_SET);
    return next;
}

/* Lets go of what lies behind the image's end. */
static int clear_rest(struct image_import *import, uint64_t offset)
{
    int rc = 0;

    if (import->created || offset >= import->vdi_bytes)
        return 0;
    if (!(rc = mark_unfinished(import)))
        rc = plx_transfer_clear(&import->transfer, offset, import->vdi_bytes - offset);
    return rc;
}

/* What begins like the image of a virtual machine, or like a backup, would become a disk that holds
 * nothing useful. */
static int refuse_other_formats(struct image_import *import, const uint8_t *bytes, size_t length)
{
    static const struct {
        const char *magic, *what, *advice;
    } formats[] = {
        {"QFI\xfb", "a qcow2 image", "'qemu-img convert -O raw' makes a raw one"},
        {"KDMV", "a VMDK image", "'qemu-img convert -O raw' makes a raw one"},
        {"# Disk DescriptorFile", "a VMDK descriptor", "'qemu-img convert -O raw' makes a raw one"},
        {"vhdxfile", "a VHDX image", "'qemu-img convert -O raw' makes a raw one"},
        {"conectix", "a VHD image", "'qemu-img convert -O raw' makes a raw one"},
        {PLX_STREAM_MAGIC, "a stream of export-diff", "'parallax vdi import-diff' takes it"},
        {"\x28\xb5\x2f\xfd", "compressed by zstd", "give what 'zstdcat' makes of it, and --size"},
        {"\x1f\x8b", "compressed by gzip", "give what 'zcat' makes of it, and --size"},
        {"\xfd\x37zXZ", "compressed by xz", "give what 'xzcat' makes of it, and --size"},
    };

    for (size_t i = 0; i < sizeof formats / sizeof *formats && !plx_cli_get(import->cli, "raw");
         i++)
        if (length >= strlen(formats[i].magic) &&
            memcmp(bytes, formats[i].magic, strlen(formats[i].magic)) == 0)
            return plx_cli_fail(import->cli, PLX_ERR_INVALID,
                                "%.120s: is %s, not a raw image; %s; --raw copies it as it is",
                                import->path, formats[i].what, formats[i].advice);
    return 0;
}

static int copy_in(struct image_import *import, uint8_t *chunk)
{
    struct plx_vdi_info info;
    uint64_t offset = 0;
    size_t length = 0;
    int rc;

    plx_vdi_get_info(import->cli->session.vdi, &info);
    for (;;) {
        offset = skip_hole(import, offset);
        if ((rc = plx_file_read(import->cli, import->path, import->fd, chunk, PLX_TRANSFER_CHUNK,
                                &length)) ||
            (!length && offset))
            break;
        if (!length)
            return plx_cli_fail(import->cli, PLX_ERR_INVALID,
                                "%.120s: nothing came; is what should write to it all right?",
                                import->path);
        if (!offset && (rc = refuse_other_formats(import, chunk, length)))
            return rc;
        size_t padded = plx_div_up(length, info.sector_size) * info.sector_size;
        memset(chunk + length, 0, padded - length);
        if (offset + length > import->vdi_bytes)
            return plx_cli_fail(import->cli, PLX_ERR_RANGE,
                                "%.100s: the image is larger than the virtual disk; resize that "
                                "first or give a larger --size",
                                import->path);
        if ((rc = plx_for_runs(offset, chunk, padded, put_run, import)))
            break;
        offset += padded;
        plx_progress_show(&import->progress, offset);
        if (length < PLX_TRANSFER_CHUNK)
            break;
    }
    import->copied = offset;
    if (!rc && import->seekable && offset < import->file_bytes)
        return plx_cli_fail(import->cli, PLX_ERR_INVALID,
                            "%.120s: became shorter while it was read", import->path);
    return rc ? rc : clear_rest(import, offset);
}

static int refuse_data(struct plx_cli *cli, const struct plx_name *name)
{
    struct plx_registry_vdi row;
    bool unfinished = false;
    int rc = plx_session_vdi_row(cli, name, &row);

    if (rc || (rc = plx_unfinished_look(cli, row.id, &unfinished)))
        return rc;
    return plx_cli_fail(cli, PLX_ERR_EXISTS,
                        unfinished ? "%s/%.100s holds a part of an import that did not finish; "
                                     "give --force to import again, or delete it"
                                   : "%s/%.100s holds data already; give --force to overwrite it, "
                                     "or another name",
                        name->store, name->vdi);
}

static int import_into(struct image_import *import, const struct plx_name *name)
{
    struct plx_cli *cli = import->cli;
    uint64_t bytes = 0;
    uint8_t *chunk;
    int rc;

    if (import->file_bytes > import->vdi_bytes)
        return plx_cli_fail(cli, PLX_ERR_RANGE,
                            "%.100s: the image has %" PRIu64
                            " bytes, the virtual disk only %" PRIu64 "; %s",
                            import->path, import->file_bytes, import->vdi_bytes,
                            import->created ? "give a larger --size" : "resize that first");
    if ((rc = plx_session_vdi_open(cli, name)) ||
        (rc = plx_import_mark(cli, name, &import->created, &import->mark)))
        return rc;
    if (!import->created && !plx_cli_get(cli, "force") &&
        (rc = plx_mapped_sum(cli, cli->session.vdi, false, &bytes)))
        return rc;
    if (bytes)
        return refuse_data(cli, name);
    import->name = name;
    if (import->created && (rc = mark_unfinished(import)))
        return rc;
    if (!(chunk = malloc(PLX_TRANSFER_CHUNK)))
        return plx_cli_fail(cli, PLX_ERR_NOMEM, "out of memory");
    if (!(rc = plx_transfer_init(&import->transfer, cli, cli->session.vdi))) {
        plx_progress_begin(&import->progress, cli, "import", import->file_bytes);
        rc = plx_transfer_done(&import->transfer, copy_in(import, chunk));
        plx_progress_end(&import->progress);
    }
    free(chunk);
    struct plx_request flush = {.op = PLX_FLUSH};
    if (!rc && (rc = plx_vdi_run(cli->session.vdi, &flush)))
        cli->fault = flush.fault;
    return rc ? rc : plx_unfinished_end(cli, name, UINT64_MAX, true);
}

/* What is in the disk beside the image. */
static void tell_rest(const struct image_import *import)
{
    struct plx_cli *cli = import->cli;
    const char *disk = cli->arguments[1];

    if (import->created && !plx_cli_get(cli, "size") && import->vdi_bytes > import->file_bytes)
        plx_out_note(cli,
                     "%s has %" PRIu64 " bytes, and the image has %" PRIu64
                     ": a virtual disk has whole sectors, and 4k at least",
                     disk, import->vdi_bytes, import->file_bytes);
    else if (import->copied < import->vdi_bytes)
        plx_out_note(cli,
                     "%.120s: the image ended %" PRIu64 " bytes before the virtual disk does; %s",
                     import->path, import->vdi_bytes - import->copied,
                     import->created ? "the rest of the disk is zero"
                                     : "the rest of the disk is zero now, whatever it held");
}

int plx_cmd_vdi_import(struct plx_cli *cli)
{
    struct image_import import = {.cli = cli, .path = cli->arguments[0], .fd = -1};
    struct plx_name name;
    char size[16];
    int rc;

    if ((rc = plx_cli_name(cli, 1, PLX_NAME_VDI, &name)) || (rc = open_image(&import)) ||
        (rc = plx_session_open(cli, name.store, PLX_SESSION_WRITE)))
        goto out;
    if ((rc = create_or_check(&import, &name)))
        goto out;
    rc = import_into(&import, &name);
    int closed = plx_session_vdi_close(cli);
    rc = rc ? rc : closed;
    if (rc) /* CMD_TRANSFER-1 */
        plx_import_undo(cli, &name, &import.mark, import.created, import.touched);
    if (!rc)
        plx_out_note(cli, "imported %s into %s/%s", plx_text_size(import.copied, size), name.store,
                     name.vdi);
    if (!rc)
        tell_rest(&import);
    if (!rc && cli->json)
        rc = plx_cmd_vdi_print(cli, &name);
out:
    if (import.fd > 0)
        close(import.fd);
    return rc;
}

/* ---- Export -------------------------------------------------------------------------------- */

struct image_export {
    struct plx_cli *cli;
    struct plx_output output;
    uint64_t given; /* up to where a stream has been written */
    struct plx_transfer transfer;
    struct plx_progress progress;
    /* CMD_TRANSFER-3 */
    bool skips;
    struct plx_table table;
    uint64_t lost_bytes, lost_ranges;
    uint64_t lost_at, lost_end; /* the last range, which may still grow; both 0: none */
};

/* CMD_TRANSFER-3: standard output may be the image. */
static void tell_lost(struct image_export *export)
{
    if (!export->lost_end)
        return;
    export->lost_ranges++;
    export->lost_bytes += export->lost_end - export->lost_at;
    if (export->output.fd == STDOUT_FILENO)
        fprintf(stderr, "lost: offset %" PRIu64 ", length %" PRIu64 "\n", export->lost_at,
                export->lost_end - export->lost_at);
    else
        plx_table_row(&export->table,
                      json_pack("{s:I,s:I}", "offset", (json_int_t) export->lost_at, "length",
                                (json_int_t)(export->lost_end - export->lost_at)));
    export->lost_at = export->lost_end = 0;
}

static void note_lost(void *context, uint64_t offset, uint64_t length)
{
    struct image_export *export = context;

    if (!export->lost_end || export->lost_end != offset) {
        plx_progress_clear(&export->progress);
        tell_lost(export);
        export->lost_at = offset;
    }
    export->lost_end = offset + length;
}

/* A stream gets its zeroes written. */
static int pad_to(struct image_export *export, uint64_t offset)
{
    static const uint8_t zeroes[65536];
    int rc = 0;

    while (!export->output.regular && export->given < offset && !rc) {
        size_t length = plx_min_u64(sizeof zeroes, offset - export->given);

        rc = plx_interrupted ? plx_cli_fail(export->cli, PLX_ERR_SYSTEM, "interrupted")
                             : plx_output_write(&export->output, zeroes, length, UINT64_MAX);
        export->given += length;
    }
    return rc;
}

static int write_run(void *context, uint64_t offset, const uint8_t *bytes, uint64_t length)
{
    struct image_export *export = context;

    return bytes ? plx_output_write(&export->output, bytes, length, offset) : 0;
}

static int give_chunk(void *context, uint64_t offset, const uint8_t *bytes, uint64_t length)
{
    struct image_export *export = context;
    int rc = pad_to(export, offset);

    if (!rc)
        rc = export->output.regular ? plx_for_runs(offset, bytes, length, write_run, export)
                                    : plx_output_write(&export->output, bytes, length, UINT64_MAX);
    export->given = offset + length;
    plx_progress_show(&export->progress, offset + length);
    return rc;
}

static int copy_out(struct image_export *export, uint64_t bytes)
{
    struct plx_cli *cli = export->cli;
    int rc;

    if ((rc = plx_output_fit(&export->output, bytes)) ||
        (rc = plx_transfer_init(&export->transfer, cli, cli->session.vdi)))
        return rc;
    export->transfer.give = give_chunk;
    export->transfer.context = export;
    export->transfer.lost = export->skips ? note_lost : NULL;
    plx_progress_begin(&export->progress, cli, "export", bytes);
    rc = plx_transfer_done(&export->transfer, export->skips
                                                  ? plx_copy_readable(&export->transfer)
                                                  : plx_copy_diff(&export->transfer, NULL));
    rc = rc ? rc : pad_to(export, bytes);
    plx_progress_end(&export->progress);
    return rc;
}

/* CMD_TRANSFER-3: the image is there, with what could be read. */
static int copy_readable(struct image_export *export, const struct plx_name *name, uint64_t bytes)
{
    static const struct plx_column columns[] = {
        {"offset", "LOST AT", PLX_COLUMN_NUMBER},
        {"length", "BYTES", PLX_COLUMN_NUMBER},
        {NULL, NULL, 0},
    };
    bool table = export->output.fd != STDOUT_FILENO;
    char text[16];
    int rc;

    if (table)
        plx_table_begin(&export->table, export->cli, columns);
    rc = copy_out(export, bytes);
    tell_lost(export);
    if (table)
        plx_table_end(&export->table);
    rc = plx_output_close(&export->output, rc);
    if (rc || !export->lost_ranges)
        return rc;
    return plx_cli_fail(export->cli, PLX_ERR_CORRUPT,
                        "%s/%.100s: %s in %" PRIu64 " range%s could not be read, and are zero in "
                        "the image",
                        name->store, name->vdi, plx_text_size(export->lost_bytes, text),
                        export->lost_ranges, plx_plural(export->lost_ranges));
}

/* What could not be read is a part of the image only. */
static int tell_skipping(struct plx_cli *cli, const struct plx_name *name)
{
    struct plx_fault damage = cli->fault;
    bool damaged = damage.code == PLX_ERR_CORRUPT;

    if (strchr(damage.text, ';')) /* it says what to do */
        return damage.code;
    return plx_cli_fail(
        cli, damage.code,
        "%.250s; 'parallax vdi export %.100s FILE --skip-errors' saves the rest%s%s%s", damage.text,
        cli->arguments[0], damaged ? ", and 'parallax store check " : "",
        damaged ? name->store : "", damaged ? " --data' finds what is damaged" : "");
}

int plx_cmd_vdi_export(struct plx_cli *cli)
{
    struct image_export export = {.cli = cli, .skips = plx_cli_get(cli, "skip-errors")};
    struct plx_vdi_info info;
    struct plx_name name;
    char size[16];
    int rc;

    if ((rc = plx_cli_name(cli, 0, PLX_NAME_VDI_OR_SNAPSHOT, &name)) ||
        (rc = plx_session_open(cli, name.store, PLX_SESSION_READ)) ||
        (rc = plx_session_settle_time(cli, &name)) ||
        (rc = plx_session_image_open(cli, &name, plx_cli_get(cli, "without-ring"))))
        return rc;
    plx_unfinished_tell(cli, &name);
    plx_vdi_get_info(cli->session.vdi, &info);
    rc = plx_output_open(&export.output, cli, cli->arguments[1], true);
    if (!rc && export.skips)
        return copy_readable(&export, &name, info.size_bytes);
    if (!rc)
        rc = copy_out(&export, info.size_bytes);
    rc = plx_session_name_moved(cli, cli->session.vdi, rc);
    if (plx_error_is_unreadable(rc))
        rc = tell_skipping(cli, &name);
    bool to_file = export.output.fd > STDOUT_FILENO;
    rc = plx_output_close(&export.output, rc);
    if (rc || !to_file)
        return rc;
    plx_out_note(cli, "exported %s to %s", plx_text_size(info.size_bytes, size), cli->arguments[1]);
    plx_out_done(cli, json_pack("{s:o,s:o,s:I}", "name",
                                json_sprintf("%s/%s%s%s", name.store, name.vdi,
                                             *name.snapshot ? "@" : "", name.snapshot),
                                "file", plx_out_string(cli->arguments[1]), "size_bytes",
                                (json_int_t)info.size_bytes));
    return 0;
}
