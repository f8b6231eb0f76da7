/* transfer.c - what commands share that move data. See transfer.h.
 *
 * TRANSFER-1  Up to PLX_TRANSFER_DEPTH chunks are in flight, so reading and writing overlap. Slots
 *     are taken and settled in turn, so chunks are given out in the order of their offsets.
 * TRANSFER-2  A regular file gets its name only when all of it is durable. A command that fails or
 *     is killed leaves the old file, or none. A file that replaces another one gets that one's
 *     owner and mode.
 * Crash story: a killed command leaves a file NAME.partial-XXXXXX, which nothing reads.
 */
#include "transfer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <linux/fs.h>

#include "output.h"
#include "overwrite.h"

#define UNMAP_MAX (1ull << 30) /* by one request */

#define CREATED_EPOCH 1u /* nobody has locked it but who created it */

/* ---- A ring of requests ------------------------------------------------------------------- */

int plx_transfer_init(struct plx_transfer *transfer, struct plx_cli *cli, struct plx_vdi *vdi)
{
    *transfer = (struct plx_transfer){.cli = cli, .vdi = vdi};
    if (posix_memalign((void **)&transfer->memory, 4096,
                       (size_t)PLX_TRANSFER_DEPTH * PLX_TRANSFER_CHUNK))
        return plx_cli_fail(cli, PLX_ERR_NOMEM, "out of memory");
    for (unsigned i = 0; i < PLX_TRANSFER_DEPTH; i++)
        transfer->slots[i].buffer = transfer->memory + (size_t)i * PLX_TRANSFER_CHUNK;
    return 0;
}

static void on_done(struct plx_request *request)
{
    ((struct plx_transfer_slot *)request->owner)->under_way = false;
}

/* What cannot be read of a chunk that could not be read in one piece is zero then. */
static int read_blocks(struct plx_transfer *transfer, struct plx_transfer_slot *slot)
{
    uint64_t offset = slot->request.offset, length, end = slot->request.length;
    int rc = 0;

    for (uint64_t at = 0; at < end && !rc; at += length) {
        struct plx_request one = {.op = PLX_READ, .offset = offset + at, .iovcnt = 1};
        struct iovec iov;

        length = plx_min_u64(PLX_BLOCK_SIZE - one.offset % PLX_BLOCK_SIZE, end - at);
        iov = (struct iovec){slot->buffer + at, length};
        one.length = length;
        one.iov = &iov;
        rc = plx_vdi_run(transfer->vdi, &one);
        if (rc && plx_error_is_unreadable(rc)) {
            memset(iov.iov_base, 0, length);
            transfer->lost(transfer->context, one.offset, length);
            rc = 0;
        } else if (rc) {
            transfer->cli->fault = one.fault;
        } else if (plx_interrupted) {
            rc = plx_cli_fail(transfer->cli, PLX_ERR_SYSTEM, "interrupted");
        }
    }
    slot->request.result = 0;
    return rc;
}

/* Waits for the slot, gives out what it holds; it is free then. */
static int settle_slot(struct plx_transfer *transfer, struct plx_transfer_slot *slot)
{
    struct plx_store *store = plx_session_store(transfer->cli);
    const struct plx_request *request = &slot->request;

    while (slot->under_way)
        if (!plx_store_tick(store) && slot->under_way)
            plx_store_wait(store);
    bool full = slot->full;
    slot->full = false;
    if (full && slot->lost) {
        slot->lost = false;
        transfer->lost(transfer->context, request->offset, request->length);
        return 0;
    }
    if (full && transfer->lost && plx_error_is_unreadable(request->result)) {
        int rc = read_blocks(transfer, slot);

        if (rc)
            return rc;
    }
    if (request->result) {
        transfer->cli->fault = request->fault;
        if (!*request->fault.text)
            plx_cli_fail(transfer->cli, request->result, "at byte %" PRIu64 ": %s", request->offset,
                         plx_error_text(request->result));
        return request->result;
    }
    return full ? transfer->give(transfer->context, request->offset,
                                 slot->zero ? NULL : slot->buffer, request->length)
                : 0;
}

int plx_transfer_take(struct plx_transfer *transfer, struct plx_transfer_slot **ret_slot)
{
    struct plx_transfer_slot *slot = &transfer->slots[transfer->next]; /* TRANSFER-1 */
    int rc = settle_slot(transfer, slot);

    if (!rc && plx_interrupted)
        rc = plx_cli_fail(transfer->cli, PLX_ERR_SYSTEM, "interrupted");
    if (rc)
        return rc;
    transfer->next = (transfer->next + 1) % PLX_TRANSFER_DEPTH;
    *ret_slot = slot;
    return 0;
}

void plx_transfer_submit(struct plx_transfer *transfer, struct plx_transfer_slot *slot,
                         enum plx_request_op op, uint64_t offset, uint64_t length)
{
    slot->iov = (struct iovec){slot->buffer, length};
    slot->request = (struct plx_request){.op = op,
                                         .offset = offset,
                                         .length = length,
                                         .iov = &slot->iov,
                                         .iovcnt = op == PLX_UNMAP ? 0 : 1,
                                         .done = on_done,
                                         .owner = slot};
    slot->under_way = true;
    slot->full = op == PLX_READ;
    slot->zero = false;
    plx_vdi_submit(transfer->vdi, &slot->request);
}

int plx_transfer_put(struct plx_transfer *transfer, uint64_t offset, const uint8_t *bytes,
                     uint64_t length)
{
    struct plx_transfer_slot *slot;
    int rc = plx_transfer_take(transfer, &slot);

    if (rc)
        return rc;
    if (bytes)
        memcpy(slot->buffer, bytes, length);
    plx_transfer_submit(transfer, slot, bytes ? PLX_WRITE : PLX_UNMAP, offset, length);
    return 0;
}

struct run {
    uint64_t offset, length;
};

static bool stop_at_mapped(void *context, uint64_t offset, uint64_t length, bool mapped)
{
    if (mapped)
        *(struct run *)context = (struct run){offset, length};
    return !mapped && !plx_interrupted;
}

int plx_transfer_clear(struct plx_transfer *transfer, uint64_t offset, uint64_t length)
{
    uint64_t end = offset + length;
    int rc = 0;

    while (offset < end && !rc) {
        struct run run = {end, 0};

        rc = plx_vdi_map_runs(transfer->vdi, offset, end - offset, stop_at_mapped, &run,
                              &transfer->cli->fault);
        if (!rc && plx_interrupted)
            rc = plx_cli_fail(transfer->cli, PLX_ERR_SYSTEM, "interrupted");
        for (uint64_t at = 0; at < run.length && !rc; at += UNMAP_MAX)
            rc = plx_transfer_put(transfer, run.offset + at, NULL,
                                  plx_min_u64(UNMAP_MAX, run.length - at));
        offset = run.offset + run.length;
    }
    return rc;
}

int plx_transfer_done(struct plx_transfer *transfer, int rc)
{
    for (unsigned i = 0; i < PLX_TRANSFER_DEPTH; i++) {
        struct plx_transfer_slot *slot =
            &transfer->slots[(transfer->next + i) % PLX_TRANSFER_DEPTH];

        slot->full &= !rc;
        if (rc) {
            struct plx_fault first = transfer->cli->fault;
            settle_slot(transfer, slot);
            transfer->cli->fault = first;
        } else {
            rc = settle_slot(transfer, slot);
        }
    }
    free(transfer->memory);
    return rc;
}

/* ---- What is mapped ---- */

struct mapped_sum {
    bool all;
    uint64_t bytes;
};

static bool add_mapped(void *context, uint64_t offset, uint64_t length, bool mapped)
{
    struct mapped_sum *sum = context;

    sum->bytes += mapped ? length : 0;
    return (sum->all || !mapped) && !plx_interrupted;
}

int plx_mapped_sum(struct plx_cli *cli, struct plx_vdi *vdi, bool all, uint64_t *ret_bytes)
{
    struct mapped_sum sum = {.all = all};
    struct plx_vdi_info info;
    int rc;

    plx_vdi_get_info(vdi, &info);
    rc = plx_vdi_map_runs(vdi, 0, info.size_bytes, add_mapped, &sum, &cli->fault);
    if (!rc && plx_interrupted)
        rc = plx_cli_fail(cli, PLX_ERR_SYSTEM, "interrupted");
    *ret_bytes = sum.bytes;
    return rc;
}

/* ---- Differences ---- */

static bool add_range(void *context, const struct plx_diff_range *range)
{
    struct plx_diff_sum *sum = context;

    sum->ranges++;
    *(range->data ? &sum->data_bytes : &sum->zero_bytes) += range->length;
    return !plx_interrupted;
}

int plx_diff_sum(struct plx_cli *cli, struct plx_vdi *from, struct plx_vdi *to,
                 struct plx_diff_sum *ret_sum)
{
    *ret_sum = (struct plx_diff_sum){0};
    int rc = plx_vdi_diff(from, to, add_range, ret_sum, &cli->fault);
    return !rc && plx_interrupted ? plx_cli_fail(cli, PLX_ERR_SYSTEM, "interrupted") : rc;
}

struct copy {
    struct plx_transfer *transfer;
    int rc;
};

/* Zeroes take their turn in the transfer, so that all comes out in order. */
static int pass_zeroes(struct plx_transfer *transfer, uint64_t offset, uint64_t length, bool lost)
{
    struct plx_transfer_slot *slot;
    int rc = plx_transfer_take(transfer, &slot);

    if (rc)
        return rc;
    slot->request = (struct plx_request){.offset = offset, .length = length};
    slot->full = slot->zero = true;
    slot->lost = lost;
    return 0;
}

static int read_range(struct plx_transfer *transfer, uint64_t offset, uint64_t bytes)
{
    uint64_t end = offset + bytes;
    int rc = 0;

    for (uint64_t at = offset, length; at < end && !rc; at += length) {
        struct plx_transfer_slot *slot;

        length = plx_min_u64(end - at, PLX_TRANSFER_CHUNK - at % PLX_TRANSFER_CHUNK);
        rc = plx_transfer_take(transfer, &slot);
        if (!rc)
            plx_transfer_submit(transfer, slot, PLX_READ, at, length);
    }
    return rc;
}

static bool copy_range(void *context, const struct plx_diff_range *range)
{
    struct copy *copy = context;

    copy->rc = range->data ? read_range(copy->transfer, range->offset, range->length)
                           : pass_zeroes(copy->transfer, range->offset, range->length, false);
    return !copy->rc;
}

int plx_copy_diff(struct plx_transfer *transfer, struct plx_vdi *from)
{
    struct copy copy = {.transfer = transfer};
    int rc = plx_vdi_diff(from, transfer->vdi, copy_range, &copy, &transfer->cli->fault);

    return rc ? rc : copy.rc;
}

static bool copy_run(void *context, uint64_t offset, uint64_t length, enum plx_map_run run)
{
    struct copy *copy = context;

    if (run == PLX_RUN_MAPPED)
        copy->rc = read_range(copy->transfer, offset, length);
    else if (run == PLX_RUN_UNREADABLE)
        copy->rc = pass_zeroes(copy->transfer, offset, length, true);
    return !copy->rc && !plx_interrupted;
}

int plx_copy_readable(struct plx_transfer *transfer)
{
    struct copy copy = {.transfer = transfer};
    struct plx_vdi_info info;
    int rc;

    plx_vdi_get_info(transfer->vdi, &info);
    rc = plx_vdi_readable_runs(transfer->vdi, 0, info.size_bytes, copy_run, &copy,
                               &transfer->cli->fault);
    if (!rc && !copy.rc && plx_interrupted)
        rc = plx_cli_fail(transfer->cli, PLX_ERR_SYSTEM, "interrupted");
    return rc ? rc : copy.rc;
}

static bool is_zero(const uint8_t *bytes, size_t length)
{
    return length == 0 || (bytes[0] == 0 && !memcmp(bytes, bytes + 1, length - 1));
}

int plx_for_runs(uint64_t offset, const uint8_t *bytes, size_t length,
                 int (*give)(void *context, uint64_t offset, const uint8_t *bytes, uint64_t length),
                 void *context)
{
    for (size_t at = 0, end; at < length; at = end) {
        bool zero = is_zero(bytes + at, plx_min_u64(PLX_BLOCK_SIZE, length - at));

        for (end = at; end < length; end += PLX_BLOCK_SIZE)
            if (is_zero(bytes + end, plx_min_u64(PLX_BLOCK_SIZE, length - end)) != zero)
                break;
        end = plx_min_u64(end, length);
        int rc = give(context, offset + at, zero ? NULL : bytes + at, end - at);
        if (rc)
            return rc;
    }
    return 0;
}

int plx_import_mark(struct plx_cli *cli, const struct plx_name *name, bool *created,
                    struct plx_import_mark *ret_mark)
{
    struct plx_registry_vdi row;
    int rc = plx_session_vdi_row(cli, name, &row);

    ret_mark->epoch = rc ? 0 : row.epoch;
    if (!rc && row.epoch != CREATED_EPOCH + 1)
        *created = false;
    return rc;
}

/* Under which nobody else has had it since it was created: that of the opening, failed or not, else
 * that of the creation. */
static uint64_t own_epoch(struct plx_cli *cli, const struct plx_name *name,
                          const struct plx_import_mark *mark)
{
    struct plx_registry_vdi row;
    uint64_t tried = 0;

    if (mark->epoch)
        return mark->epoch;
    if (!plx_session_vdi_row(cli, name, &row))
        tried = plx_attach_tried_epoch(cli->session.attach, row.id);
    return tried == CREATED_EPOCH + 1 ? tried : CREATED_EPOCH;
}

void plx_import_undo(struct plx_cli *cli, const struct plx_name *name,
                     const struct plx_import_mark *mark, bool created, bool touched)
{
    struct plx_fault why = cli->fault;
    int length = (int)strcspn(why.text, ";"); /* the rest is general advice */
    uint64_t epoch = created ? own_epoch(cli, name, mark) : 0;
    int rc = created ? plx_attach_vdi_delete_untouched(cli->session.attach, name->vdi, epoch,
                                                       &cli->fault)
                     : 0;
    bool deleted = created && !rc;

    cli->fault = why;
    if (rc == PLX_ERR_EXISTS)
        plx_cli_fail(cli, why.code,
                     "%.*s; %s/%.60s stays, for it was opened again and may hold what another "
                     "command wrote: 'parallax vdi delete %s/%.60s' deletes it",
                     length, why.text, name->store, name->vdi, name->store, name->vdi);
    else if (deleted && touched)
        plx_cli_fail(cli, why.code,
                     "%.*s; %s/%.60s was deleted again, and 'parallax gc %s' frees what it took",
                     length, why.text, name->store, name->vdi, name->store);
    else if (created && !deleted)
        plx_cli_fail(cli, why.code,
                     "%.*s; %s/%.60s, which holds a part of the image, could not be deleted again: "
                     "'parallax vdi delete %s/%.60s', then 'parallax gc %s'",
                     length, why.text, name->store, name->vdi, name->store, name->vdi, name->store);
    else if (touched && !created)
        plx_cli_fail(cli, why.code,
                     "%.*s; %s/%.60s holds a part of the image now: import again with --force, or "
                     "delete it",
                     length, why.text, name->store, name->vdi);
}

/* ---- Files ---- */

int plx_file_open_input(struct plx_cli *cli, const char *path, int *ret_fd)
{
    struct stat st;
    int fd = strcmp(path, "-") ? open(path, O_RDONLY | O_CLOEXEC) : STDIN_FILENO;

    if (fd < 0 || fstat(fd, &st))
        return plx_out_file_error(cli, path, "open");
    *ret_fd = fd;
    if (!S_ISDIR(st.st_mode))
        return 0;
    errno = EISDIR;
    return plx_out_file_error(cli, path, "read");
}

int plx_file_read(struct plx_cli *cli, const char *path, int fd, uint8_t *bytes, size_t length,
                  size_t *ret_got)
{
    size_t have = 0;

    while (have < length) {
        if (plx_interrupted)
            return plx_cli_fail(cli, PLX_ERR_SYSTEM, "interrupted");
        ssize_t got = read(fd, bytes + have, length - have);

        if (got == 0)
            break;
        if (got < 0 && errno != EINTR)
            return plx_out_file_error(cli, path, "read");
        have += got < 0 ? 0 : (size_t)got; /* a part of it, where a signal came */
    }
    *ret_got = have;
    return 0;
}

/* A shell opened it, and its name is not known: of a device it has kept what was there. */
static int check_stdout(struct plx_cli *cli)
{
    if (isatty(STDOUT_FILENO))
        return plx_cli_usage(cli, "this is not for a terminal; redirect the output");
    return plx_overwrite_refuse(cli, "/proc/self/fd/1");
}

/* Of what exists. */
static int check_target(struct plx_output *output, const struct stat *st, bool device_ok)
{
    struct plx_cli *cli = output->cli;

    if (S_ISBLK(st->st_mode) && !device_ok)
        return plx_cli_usage(cli, "%.120s is a block device; give the name of a file",
                             output->path);
    if (S_ISDIR(st->st_mode) || S_ISFIFO(st->st_mode)) {
        errno = EISDIR;
        return S_ISDIR(st->st_mode) ? plx_out_file_error(cli, output->path, "write") : 0;
    }
    errno = EEXIST;
    if (!plx_cli_get(cli, "force"))
        return plx_out_file_error(cli, output->path, "create");
    return plx_overwrite_refuse(cli, output->path);
}

/* TRANSFER-2. old: what it replaces; NULL: nothing. */
static int begin_partial(struct plx_output *output, const struct stat *old)
{
    struct plx_cli *cli = output->cli;

    output->target = old ? realpath(output->path, NULL) : strdup(output->path);
    if (!output->target)
        return plx_out_file_error(cli, output->path, "create");
    if (asprintf(&output->partial, "%s.partial-XXXXXX", output->target) < 0) {
        output->partial = NULL;
        return plx_cli_fail(cli, PLX_ERR_NOMEM, "out of memory");
    }
    output->fd = mkostemp(output->partial, O_CLOEXEC);
    if (output->fd < 0) {
        int rc = plx_out_file_error(cli, output->path, "create");

        free(output->partial);
        output->partial = NULL;
        return rc;
    }
    output->regular = true;
    if (old && (fchmod(output->fd, old->st_mode & 07777) ||
                (fchown(output->fd, old->st_uid, old->st_gid) && errno != EPERM)))
        return plx_out_file_error(cli, output->path, "set its owner and mode");
    return 0;
}

int plx_output_open(struct plx_output *output, struct plx_cli *cli, const char *path,
                    bool device_ok)
{
    struct stat st;
    int rc;

    *output = (struct plx_output){.cli = cli, .path = path, .fd = STDOUT_FILENO};
    if (!strcmp(path, "-"))
        return check_stdout(cli);
    output->fd = -1;
    if (stat(path, &st)) {
        if (errno != ENOENT)
            return plx_out_file_error(cli, path, "create");
        if (lstat(path, &st) == 0)
            return plx_cli_fail(cli, PLX_ERR_EXISTS,
                                "%.120s is a symbolic link to nothing; give the name of a file",
                                path);
        return begin_partial(output, NULL);
    }
    if ((rc = check_target(output, &st, device_ok)))
        return rc;
    if (S_ISREG(st.st_mode))
        return begin_partial(output, &st);
    /* Of a block device that is in use, mounted for one, the kernel refuses it. */
    output->fd = open(path, O_WRONLY | O_CLOEXEC | (S_ISBLK(st.st_mode) ? O_EXCL : 0));
    if (output->fd < 0 && errno == EBUSY)
        return plx_cli_fail(cli, PLX_ERR_BUSY,
                            "%.120s is in use: mounted, or part of a RAID, LVM or multipath device",
                            path);
    if (output->fd < 0)
        return plx_out_file_error(cli, path, "open");
    if (S_ISBLK(st.st_mode))
        plx_out_note(cli,
                     "%s is a block device: it is written directly, and what it held goes as "
                     "the copy goes on",
                     path);
    return 0;
}

/* A device keeps what lies behind the copy's end. Whoever reads all of it is not to take that for
 * the copy's. */
static int fit_device(struct plx_output *output, uint64_t bytes)
{
    struct plx_cli *cli = output->cli;
    uint64_t size;
    off_t at = lseek(output->fd, 0, SEEK_CUR); /* standard output may stand behind its beginning */

    if (at < 0 || ioctl(output->fd, BLKGETSIZE64, &size))
        return plx_out_file_error(cli, output->path, "read its size");
    uint64_t room = size - plx_min_u64((uint64_t)at, size);
    if (room < bytes)
        return plx_cli_fail(cli, PLX_ERR_NOSPACE,
                            "%.120s has room for %" PRIu64 " bytes, and the copy has %" PRIu64
                            "; nothing was written: choose a larger device",
                            output->path, room, bytes);
    if (room > bytes)
        plx_out_note(
            cli, "%s is larger than the copy: what it holds in its last %" PRIu64 " byte%s stays",
            output->path, room - bytes, plx_plural(room - bytes));
    return 0;
}

int plx_output_fit(struct plx_output *output, uint64_t bytes)
{
    struct stat st;

    if (output->regular && ftruncate(output->fd, (off_t)bytes))
        return plx_out_file_error(output->cli, output->path, "set its size");
    return fstat(output->fd, &st) == 0 && S_ISBLK(st.st_mode) ? fit_device(output, bytes) : 0;
}

int plx_output_write(struct plx_output *output, const uint8_t *bytes, size_t length,
                     uint64_t offset)
{
    bool stream = offset == UINT64_MAX;

    while (length) {
        if (plx_interrupted) /* also behind a part that was written when the signal came */
            return plx_cli_fail(output->cli, PLX_ERR_SYSTEM, "interrupted");
        ssize_t put = stream ? write(output->fd, bytes, length)
                             : pwrite(output->fd, bytes, length, (off_t)offset);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0 && output->fd == STDOUT_FILENO)
            plx_out_write_failed(errno);
        if (put < 0)
            return plx_out_file_error(output->cli, output->path, "write");
        bytes += put;
        length -= (size_t)put;
        offset += stream ? 0 : (uint64_t)put;
    }
    return 0;
}

/* TRANSFER-2. No file that came meanwhile is replaced without --force. */
static int give_name(struct plx_output *output)
{
    struct plx_cli *cli = output->cli;
    bool replaces = plx_cli_get(cli, "force");
    int failed, rc = replaces ? plx_overwrite_refuse(cli, output->target) : 0;

    if (rc) /* it became one meanwhile */
        return rc;
    failed = replaces
                 ? rename(output->partial, output->target)
                 : renameat2(AT_FDCWD, output->partial, AT_FDCWD, output->target, RENAME_NOREPLACE);

    if (failed && !replaces && errno == EINVAL) { /* a file system that cannot */
        failed = link(output->partial, output->target);
        if (!failed)
            unlink(output->partial);
    }
    return failed ? plx_out_file_error(cli, output->path, "create") : 0;
}

static int sync_folder(struct plx_output *output)
{
    char *slash = strrchr(output->target, '/');
    int fd, rc = 0;

    if (slash)
        slash[slash == output->target] = 0; /* the root's own name is a slash */
    fd = open(slash ? output->target : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || (fsync(fd) && errno != EINVAL))
        rc = plx_out_file_error(output->cli, output->path, "make the name durable");
    if (fd >= 0)
        close(fd);
    return rc;
}

int plx_output_close(struct plx_output *output, int rc)
{
    bool named = false;

    if (output->fd > STDOUT_FILENO) {
        if (!rc && fsync(output->fd) && errno != EINVAL)
            rc = plx_out_file_error(output->cli, output->path, "write");
        if (close(output->fd) && !rc)
            rc = plx_out_file_error(output->cli, output->path, "write");
    }
    rc = rc ? rc : plx_session_fenced(output->cli);
    if (!rc && output->partial) {
        rc = give_name(output);
        named = !rc;
        rc = rc ? rc : sync_folder(output);
    }
    if (output->partial && !named) /* TRANSFER-2 */
        unlink(output->partial);
    free(output->partial);
    free(output->target);
    output->partial = output->target = NULL;
    return rc;
}
