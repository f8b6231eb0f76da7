/* cmd_transfer.c - vdi import and vdi export: raw images in and out.
 *
 * T1  Reading and writing overlap: up to DEPTH chunks are under way, in a ring, so that they are
 *     taken and given in order.
 * T2  What an unfinished import created is deleted again, and so is an unfinished export's file.
 * T3  Zeroes are never copied: an import lets go of them, an export leaves holes.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <linux/fs.h>

#include "commands.h"
#include "output.h"

#define DEPTH 8
#define CHUNK (1u << 20)
#define WINDOW (256ull << 20) /* how much of the map is looked at ahead */

/* ---- A ring of requests ------------------------------------------------------------------- */

struct slot {
    struct plx_request request;
    struct iovec iov;
    uint8_t *buffer;
    bool under_way, full; /* full: read, not yet given out */
};

struct ring {
    struct plx_cli *cli;
    struct slot slots[DEPTH];
    unsigned next;
    uint8_t *memory;
    /* What to do with a chunk that was read, in order; NULL when importing. */
    int (*give)(void *context, uint64_t offset, const uint8_t *bytes, size_t length);
    void *context;
};

static int ring_init(struct ring *ring, struct plx_cli *cli)
{
    *ring = (struct ring){.cli = cli};
    if (posix_memalign((void **)&ring->memory, 4096, (size_t)DEPTH * CHUNK))
        return plx_cli_fail(cli, PLX_ERR_NOMEM, "out of memory");
    for (unsigned i = 0; i < DEPTH; i++)
        ring->slots[i].buffer = ring->memory + (size_t)i * CHUNK;
    return 0;
}

static void on_done(struct plx_request *request)
{
    ((struct slot *)request->owner)->under_way = false;
}

/* Waits for the slot, gives out what it holds; it is free then. */
static int ring_settle(struct ring *ring, struct slot *slot)
{
    struct plx_store *store = plx_session_store(ring->cli);
    const struct plx_request *request = &slot->request;

    while (slot->under_way)
        if (!plx_store_tick(store) && slot->under_way)
            plx_store_wait(store);
    bool full = slot->full;
    slot->full = false;
    if (request->result) {
        ring->cli->fault = request->fault;
        if (!*request->fault.text)
            plx_cli_fail(ring->cli, request->result, "at byte %" PRIu64 ": %s", request->offset,
                         plx_error_text(request->result));
        return request->result;
    }
    return full ? ring->give(ring->context, request->offset, slot->buffer, request->length) : 0;
}

/* The next slot in turn, free to be filled. */
static int ring_take(struct ring *ring, struct slot **ret_slot)
{
    struct slot *slot = &ring->slots[ring->next];
    int rc = ring_settle(ring, slot);

    if (!rc && plx_interrupted)
        rc = plx_cli_fail(ring->cli, PLX_ERR_SYSTEM, "interrupted");
    if (rc)
        return rc;
    ring->next = (ring->next + 1) % DEPTH;
    *ret_slot = slot;
    return 0;
}

static void ring_submit(struct ring *ring, struct slot *slot, enum plx_request_op op,
                        uint64_t offset, uint64_t length)
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
    plx_vdi_submit(ring->cli->session.vdi, &slot->request);
}

/* Settles all, oldest first, and frees the memory. Returns rc or the first failure. */
static int ring_done(struct ring *ring, int rc)
{
    for (unsigned i = 0; i < DEPTH; i++) {
        struct slot *slot = &ring->slots[(ring->next + i) % DEPTH];

        slot->full &= !rc;
        if (rc) {
            struct plx_fault first = ring->cli->fault;
            ring_settle(ring, slot);
            ring->cli->fault = first;
        } else {
            rc = ring_settle(ring, slot);
        }
    }
    free(ring->memory);
    return rc;
}

static bool is_zero(const uint8_t *bytes, size_t length)
{
    return length == 0 || (bytes[0] == 0 && !memcmp(bytes, bytes + 1, length - 1));
}

/* Calls visit with runs of zero and of other blocks. */
static int for_runs(const uint8_t *bytes, size_t length,
                    int (*visit)(void *context, size_t offset, size_t run, bool zero),
                    void *context)
{
    for (size_t at = 0, end; at < length; at = end) {
        bool zero = is_zero(bytes + at, plx_min_u64(PLX_BLOCK_SIZE, length - at));

        for (end = at; end < length; end += PLX_BLOCK_SIZE)
            if (is_zero(bytes + end, plx_min_u64(PLX_BLOCK_SIZE, length - end)) != zero)
                break;
        end = plx_min_u64(end, length);
        int rc = visit(context, at, end - at, zero);
        if (rc)
            return rc;
    }
    return 0;
}

static int file_error(struct plx_cli *cli, const char *path, const char *what)
{
    int code = errno == ENOENT                      ? PLX_ERR_NOT_FOUND
               : errno == ENOSPC || errno == EDQUOT ? PLX_ERR_NOSPACE
               : errno == EACCES || errno == EPERM  ? PLX_ERR_PERMISSION
               : errno == EEXIST                    ? PLX_ERR_EXISTS
                                                    : PLX_ERR_SYSTEM;

    return plx_cli_fail(cli, code, "%.120s: cannot %s: %s%s", path, what, strerror(errno),
                        code == PLX_ERR_NOSPACE      ? "; free some there or choose another place"
                        : code == PLX_ERR_EXISTS     ? "; give --force to overwrite it"
                        : code == PLX_ERR_PERMISSION ? "; check its permissions"
                                                     : "");
}

/* ---- Import -------------------------------------------------------------------------------- */

struct import {
    struct plx_cli *cli;
    const char *path;
    int fd;
    bool created, seekable;
    uint64_t file_bytes, vdi_bytes; /* file_bytes 0: not known */
    struct ring ring;
    struct plx_progress progress;
    /* The chunk being looked at. */
    const uint8_t *chunk;
    uint64_t chunk_offset;
};

static int open_image(struct import *import)
{
    struct stat st;

    import->fd = strcmp(import->path, "-") ? open(import->path, O_RDONLY | O_CLOEXEC) : 0;
    if (import->fd < 0 || fstat(import->fd, &st))
        return file_error(import->cli, import->path, "open");
    if (S_ISDIR(st.st_mode)) {
        errno = EISDIR;
        return file_error(import->cli, import->path, "read");
    }
    if (S_ISREG(st.st_mode)) {
        off_t at = lseek(import->fd, 0, SEEK_CUR); /* standard input may have been read from */

        import->file_bytes = (uint64_t)(st.st_size > at ? st.st_size - at : 0);
        import->seekable = at == 0;
        if (!import->file_bytes)
            return plx_cli_fail(import->cli, PLX_ERR_INVALID, "%.120s: the file is empty",
                                import->path);
    } else if (S_ISBLK(st.st_mode) && ioctl(import->fd, BLKGETSIZE64, &import->file_bytes)) {
        return file_error(import->cli, import->path, "read its size");
    }
    return 0;
}

static int create_or_check(struct import *import, const struct plx_name *name)
{
    struct plx_cli *cli = import->cli;
    struct plx_vdi_create_options options = {0};
    struct plx_registry_vdi row;
    unsigned sector_size = 0;
    int rc;

    if ((rc = plx_session_vdi_row(cli, name, &row)) == 0) {
        import->vdi_bytes = row.size_bytes;
        return 0;
    }
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

static int submit_run(void *context, size_t offset, size_t run, bool zero)
{
    struct import *import = context;
    struct slot *slot;

    if (zero && import->created)
        return 0;
    int rc = ring_take(&import->ring, &slot);
    if (rc)
        return rc;
    if (!zero)
        memcpy(slot->buffer, import->chunk + offset, run);
    ring_submit(&import->ring, slot, zero ? PLX_UNMAP : PLX_WRITE, import->chunk_offset + offset,
                run);
    return 0;
}

/* Fills the chunk from the image; *ret_length is shorter only at its end. */
static int read_chunk(struct import *import, uint8_t *chunk, size_t *ret_length)
{
    size_t have = 0;

    while (have < CHUNK) {
        ssize_t got = read(import->fd, chunk + have, CHUNK - have);

        if (got == 0)
            break;
        if (got < 0 && errno == EINTR && !plx_interrupted)
            continue;
        if (got < 0)
            return errno == EINTR ? plx_cli_fail(import->cli, PLX_ERR_SYSTEM, "interrupted")
                                  : file_error(import->cli, import->path, "read");
        have += (size_t)got;
    }
    *ret_length = have;
    return 0;
}

/* At a hole of the image: returns the next chunk that holds data, or the image's end. */
static uint64_t skip_hole(struct import *import, uint64_t offset)
{
    off_t data;

    if (!import->seekable || !import->created)
        return offset;
    data = lseek(import->fd, (off_t)offset, SEEK_DATA);
    if (data < 0)
        data = errno == ENXIO ? (off_t)import->file_bytes : (off_t)offset;
    uint64_t next =
        (uint64_t)data == import->file_bytes ? import->file_bytes : (uint64_t)data / CHUNK * CHUNK;
    lseek(import->fd, (off_t)next, SEEK_SET);
    return next;
}

/* Lets go of what lies behind the image's end. */
static int clear_rest(struct import *import, uint64_t offset)
{
    struct slot *slot;
    int rc = 0;

    while (!import->created && offset < import->vdi_bytes && !rc) {
        uint64_t length = plx_min_u64(1ull << 30, import->vdi_bytes - offset);

        if (!(rc = ring_take(&import->ring, &slot)))
            ring_submit(&import->ring, slot, PLX_UNMAP, offset, length);
        offset += length;
    }
    return rc;
}

static int copy_in(struct import *import, uint8_t *chunk)
{
    struct plx_vdi_info info;
    uint64_t offset = 0;
    size_t length = 0;
    int rc;

    plx_vdi_get_info(import->cli->session.vdi, &info);
    for (;;) {
        offset = skip_hole(import, offset);
        if ((rc = read_chunk(import, chunk, &length)) || !length)
            break;
        size_t padded = plx_div_up(length, info.sector_size) * info.sector_size;
        memset(chunk + length, 0, padded - length);
        if (offset + length > import->vdi_bytes)
            return plx_cli_fail(import->cli, PLX_ERR_RANGE,
                                "%.100s: the image is larger than the virtual disk; resize that "
                                "first or give a larger --size",
                                import->path);
        import->chunk = chunk;
        import->chunk_offset = offset;
        if ((rc = for_runs(chunk, padded, submit_run, import)))
            break;
        offset += padded;
        plx_progress_show(&import->progress, offset);
        if (length < CHUNK)
            break;
    }
    return rc ? rc : clear_rest(import, offset);
}

static bool stop_at_mapped(void *context, uint64_t offset, uint64_t length, bool mapped)
{
    *(bool *)context |= mapped;
    return !mapped;
}

static int import_into(struct import *import, const struct plx_name *name)
{
    struct plx_cli *cli = import->cli;
    bool holds_data = false;
    uint8_t *chunk;
    int rc;

    if (import->file_bytes > import->vdi_bytes)
        return plx_cli_fail(cli, PLX_ERR_RANGE,
                            "%.100s: the image has %" PRIu64
                            " bytes, the virtual disk only %" PRIu64
                            "; resize that first or give a larger --size",
                            import->path, import->file_bytes, import->vdi_bytes);
    if ((rc = plx_session_vdi_open(cli, name, true)))
        return rc;
    if (!import->created && !plx_cli_get(cli, "force") &&
        (rc = plx_vdi_map_runs(cli->session.vdi, 0, import->vdi_bytes, stop_at_mapped, &holds_data,
                               &cli->fault)))
        return rc;
    if (holds_data)
        return plx_cli_fail(cli, PLX_ERR_EXISTS,
                            "%s/%.100s holds data already; give --force to overwrite it, or "
                            "another name",
                            name->store, name->vdi);
    if (!(chunk = malloc(CHUNK)))
        return plx_cli_fail(cli, PLX_ERR_NOMEM, "out of memory");
    if (!(rc = ring_init(&import->ring, cli))) {
        plx_progress_begin(&import->progress, cli, "import", import->file_bytes);
        rc = ring_done(&import->ring, copy_in(import, chunk));
        plx_progress_end(&import->progress);
    }
    free(chunk);
    struct plx_request flush = {.op = PLX_FLUSH};
    if (!rc && (rc = plx_vdi_run(cli->session.vdi, &flush)))
        cli->fault = flush.fault;
    return rc;
}

int plx_cmd_vdi_import(struct plx_cli *cli)
{
    struct import import = {.cli = cli, .path = cli->arguments[0], .fd = -1};
    struct plx_name name;
    int rc;

    if ((rc = plx_cli_name(cli, 1, PLX_NAME_VDI, &name)) || (rc = open_image(&import)) ||
        (rc = plx_session_open(cli, name.store, PLX_SESSION_WRITE)))
        goto out;
    if ((rc = create_or_check(&import, &name)))
        goto out;
    rc = import_into(&import, &name);
    int closed = plx_session_vdi_close(cli);
    rc = rc ? rc : closed;
    if (rc && import.created) { /* T2 */
        struct plx_fault first = cli->fault;
        plx_session_vdi_delete(cli, &name);
        cli->fault = first;
    }
    if (!rc && cli->json)
        rc = plx_cmd_vdi_print(cli, &name);
out:
    if (import.fd > 0)
        close(import.fd);
    return rc;
}

/* ---- Export -------------------------------------------------------------------------------- */

struct run {
    uint64_t offset, length;
};

struct export
{
    struct plx_cli *cli;
    const char *path;
    int fd;
    bool created, sparse;  /* sparse: a regular file, holes may stay */
    uint64_t bytes, given; /* given: up to where a stream has been written */
    struct ring ring;
    struct plx_progress progress;
    struct run *runs; /* mapped ones of the window */
    size_t count, capacity;
    bool no_memory;
    const uint8_t *chunk;
    uint64_t chunk_offset;
};

static int write_all(struct export *export, const uint8_t *bytes, size_t length, uint64_t offset)
{
    while (length) {
        ssize_t put = export->sparse ? pwrite(export->fd, bytes, length, (off_t)offset)
                                     : write(export->fd, bytes, length);
        if (put < 0 && errno == EINTR && !plx_interrupted)
            continue;
        if (put < 0)
            return errno == EINTR ? plx_cli_fail(export->cli, PLX_ERR_SYSTEM, "interrupted")
                                  : file_error(export->cli, export->path, "write");
        bytes += put;
        length -= (size_t)put;
        offset += (uint64_t)put;
    }
    return 0;
}

/* A stream gets its zeroes written. */
static int pad_to(struct export *export, uint64_t offset)
{
    static const uint8_t zeroes[65536];
    int rc = 0;

    while (!export->sparse && export->given < offset && !rc) {
        size_t length = plx_min_u64(sizeof zeroes, offset - export->given);

        rc = write_all(export, zeroes, length, export->given);
        export->given += length;
    }
    return rc;
}

static int write_run(void *context, size_t offset, size_t run, bool zero)
{
    struct export *export = context;

    return zero ? 0 : write_all(export, export->chunk + offset, run, export->chunk_offset + offset);
}

static int give_chunk(void *context, uint64_t offset, const uint8_t *bytes, size_t length)
{
    struct export *export = context;
    int rc = pad_to(export, offset);

    export->chunk = bytes;
    export->chunk_offset = offset;
    if (!rc)
        rc = export->sparse ? for_runs(bytes, length, write_run, export)
                            : write_all(export, bytes, length, offset);
    export->given = offset + length;
    plx_progress_show(&export->progress, offset + length);
    return rc;
}

static bool keep_mapped(void *context, uint64_t offset, uint64_t length, bool mapped)
{
    struct export *export = context;

    if (!mapped)
        return true;
    if (export->count == export->capacity) {
        size_t capacity = export->capacity ? 2 * export->capacity : 64;
        struct run *grown = reallocarray(export->runs, capacity, sizeof *grown);

        export->no_memory = !grown;
        if (!grown)
            return false;
        export->runs = grown;
        export->capacity = capacity;
    }
    export->runs[export->count++] = (struct run){offset, length};
    return true;
}

static int copy_out(struct export *export)
{
    struct plx_cli *cli = export->cli;
    struct slot *slot;
    int rc;

    for (uint64_t at = 0; at < export->bytes; at += WINDOW) {
        export->count = 0;
        rc = plx_vdi_map_runs(cli->session.vdi, at, plx_min_u64(WINDOW, export->bytes - at),
                              keep_mapped, export, &cli->fault);
        if (rc || export->no_memory)
            return rc ? rc : plx_cli_fail(cli, PLX_ERR_NOMEM, "out of memory");
        for (size_t i = 0; i < export->count; i++) {
            struct run run = export->runs[i];

            while (run.length) {
                uint64_t length = plx_min_u64(run.length, CHUNK - run.offset % CHUNK);

                if ((rc = ring_take(&export->ring, &slot)))
                    return rc;
                ring_submit(&export->ring, slot, PLX_READ, run.offset, length);
                run.offset += length;
                run.length -= length;
            }
        }
        plx_progress_show(&export->progress, at);
        if (plx_interrupted)
            return plx_cli_fail(cli, PLX_ERR_SYSTEM, "interrupted");
    }
    return 0;
}

static int open_output(struct export *export)
{
    bool force = plx_cli_get(export->cli, "force");
    struct stat st;

    if (!strcmp(export->path, "-")) {
        export->fd = STDOUT_FILENO;
        if (isatty(export->fd))
            return plx_cli_usage(export->cli,
                                 "an image is not for a terminal; redirect the output");
        return 0;
    }
    export->fd = open(export->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    export->created = export->fd >= 0;
    if (export->fd < 0 && errno == EEXIST && force)
        export->fd = open(export->path, O_WRONLY | O_CLOEXEC);
    if (export->fd < 0 || fstat(export->fd, &st))
        return file_error(export->cli, export->path, "create");
    export->sparse = S_ISREG(st.st_mode);
    /* An old file's content goes; the new size is set at once so that a full file system or a
     * limit shows before anything is copied. */
    if (export->sparse &&
        (ftruncate(export->fd, 0) || ftruncate(export->fd, (off_t) export->bytes)))
        return file_error(export->cli, export->path, "set its size");
    return 0;
}

int plx_cmd_vdi_export(struct plx_cli *cli)
{
    struct export export = {.cli = cli, .path = cli->arguments[1], .fd = -1};
    struct plx_vdi_info info;
    struct plx_name name;
    int rc;

    if ((rc = plx_cli_name(cli, 0, PLX_NAME_VDI_OR_SNAPSHOT, &name)) ||
        (rc = plx_session_open(cli, name.store, PLX_SESSION_READ)) ||
        (rc = plx_session_vdi_open(cli, &name, false)))
        return rc;
    plx_vdi_get_info(cli->session.vdi, &info);
    export.bytes = info.size_bytes;
    if (!(rc = open_output(&export)) && !(rc = ring_init(&export.ring, cli))) {
        export.ring.give = give_chunk;
        export.ring.context = &export;
        plx_progress_begin(&export.progress, cli, "export", export.bytes);
        rc = ring_done(&export.ring, copy_out(&export));
        rc = rc ? rc : pad_to(&export, export.bytes);
        plx_progress_end(&export.progress);
    }
    if (export.fd > STDOUT_FILENO) {
        if (!rc && fsync(export.fd) && errno != EINVAL)
            rc = file_error(cli, export.path, "write");
        if (close(export.fd) && !rc)
            rc = file_error(cli, export.path, "write");
        if (rc && export.created) /* T2 */
            unlink(export.path);
    }
    free(export.runs);
    return rc;
}
