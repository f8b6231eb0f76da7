/* transfer.c - what commands share that move data. See transfer.h.
 *
 * X1  Reading and writing overlap: up to PLX_RING_DEPTH chunks are under way, in a ring, so that
 *     they are taken and given in order.
 * X2  What did not end well leaves no new file behind.
 */
#include "transfer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- A ring of requests ------------------------------------------------------------------- */

int plx_ring_init(struct plx_ring *ring, struct plx_cli *cli, struct plx_vdi *vdi)
{
    *ring = (struct plx_ring){.cli = cli, .vdi = vdi};
    if (posix_memalign((void **)&ring->memory, 4096, (size_t)PLX_RING_DEPTH * PLX_RING_CHUNK))
        return plx_cli_fail(cli, PLX_ERR_NOMEM, "out of memory");
    for (unsigned i = 0; i < PLX_RING_DEPTH; i++)
        ring->slots[i].buffer = ring->memory + (size_t)i * PLX_RING_CHUNK;
    return 0;
}

static void on_done(struct plx_request *request)
{
    ((struct plx_slot *)request->owner)->under_way = false;
}

/* Waits for the slot, gives out what it holds; it is free then. */
static int ring_settle(struct plx_ring *ring, struct plx_slot *slot)
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
    return full ? ring->give(ring->context, request->offset, slot->zero ? NULL : slot->buffer,
                             request->length)
                : 0;
}

int plx_ring_take(struct plx_ring *ring, struct plx_slot **ret_slot)
{
    struct plx_slot *slot = &ring->slots[ring->next];
    int rc = ring_settle(ring, slot);

    if (!rc && plx_interrupted)
        rc = plx_cli_fail(ring->cli, PLX_ERR_SYSTEM, "interrupted");
    if (rc)
        return rc;
    ring->next = (ring->next + 1) % PLX_RING_DEPTH;
    *ret_slot = slot;
    return 0;
}

void plx_ring_submit(struct plx_ring *ring, struct plx_slot *slot, enum plx_request_op op,
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
    slot->zero = false;
    plx_vdi_submit(ring->vdi, &slot->request);
}

int plx_ring_put(struct plx_ring *ring, uint64_t offset, const uint8_t *bytes, uint64_t length)
{
    struct plx_slot *slot;
    int rc = plx_ring_take(ring, &slot);

    if (rc)
        return rc;
    if (bytes)
        memcpy(slot->buffer, bytes, length);
    plx_ring_submit(ring, slot, bytes ? PLX_WRITE : PLX_UNMAP, offset, length);
    return 0;
}

int plx_ring_done(struct plx_ring *ring, int rc)
{
    for (unsigned i = 0; i < PLX_RING_DEPTH; i++) {
        struct plx_slot *slot = &ring->slots[(ring->next + i) % PLX_RING_DEPTH];

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
    struct plx_ring *ring;
    int rc;
};

/* Zeroes take their turn in the ring, so that all comes out in order. */
static int pass_zeroes(struct plx_ring *ring, const struct plx_diff_range *range)
{
    struct plx_slot *slot;
    int rc = plx_ring_take(ring, &slot);

    if (rc)
        return rc;
    slot->request = (struct plx_request){.offset = range->offset, .length = range->length};
    slot->full = slot->zero = true;
    return 0;
}

static bool copy_range(void *context, const struct plx_diff_range *range)
{
    struct copy *copy = context;
    uint64_t end = range->offset + range->length;

    if (!range->data)
        copy->rc = pass_zeroes(copy->ring, range);
    for (uint64_t at = range->offset, length; range->data && at < end && !copy->rc; at += length) {
        struct plx_slot *slot;

        length = plx_min_u64(end - at, PLX_RING_CHUNK - at % PLX_RING_CHUNK);
        copy->rc = plx_ring_take(copy->ring, &slot);
        if (!copy->rc)
            plx_ring_submit(copy->ring, slot, PLX_READ, at, length);
    }
    return !copy->rc;
}

int plx_copy_diff(struct plx_ring *ring, struct plx_vdi *from)
{
    struct copy copy = {.ring = ring};
    int rc = plx_vdi_diff(from, ring->vdi, copy_range, &copy, &ring->cli->fault);

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

/* ---- Files ---- */

int plx_file_error(struct plx_cli *cli, const char *path, const char *what)
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

int plx_file_open_input(struct plx_cli *cli, const char *path, int *ret_fd)
{
    struct stat st;
    int fd = strcmp(path, "-") ? open(path, O_RDONLY | O_CLOEXEC) : STDIN_FILENO;

    if (fd < 0 || fstat(fd, &st))
        return plx_file_error(cli, path, "open");
    *ret_fd = fd;
    if (!S_ISDIR(st.st_mode))
        return 0;
    errno = EISDIR;
    return plx_file_error(cli, path, "read");
}

int plx_file_read(struct plx_cli *cli, const char *path, int fd, uint8_t *bytes, size_t length,
                  size_t *ret_got)
{
    size_t have = 0;

    while (have < length) {
        ssize_t got = read(fd, bytes + have, length - have);

        if (got == 0)
            break;
        if (got < 0 && errno == EINTR && !plx_interrupted)
            continue;
        if (got < 0)
            return errno == EINTR ? plx_cli_fail(cli, PLX_ERR_SYSTEM, "interrupted")
                                  : plx_file_error(cli, path, "read");
        have += (size_t)got;
    }
    *ret_got = have;
    return 0;
}

int plx_output_open(struct plx_output *output, struct plx_cli *cli, const char *path)
{
    struct stat st;

    *output = (struct plx_output){.cli = cli, .path = path, .fd = STDOUT_FILENO};
    if (!strcmp(path, "-"))
        return isatty(output->fd)
                   ? plx_cli_usage(cli, "this is not for a terminal; redirect the output")
                   : 0;
    output->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    output->created = output->fd >= 0;
    if (output->fd < 0 && errno == EEXIST && plx_cli_get(cli, "force"))
        output->fd = open(path, O_WRONLY | O_CLOEXEC);
    if (output->fd < 0 || fstat(output->fd, &st))
        return plx_file_error(cli, path, "create");
    output->regular = S_ISREG(st.st_mode);
    if (output->regular && ftruncate(output->fd, 0)) /* an old file's content goes */
        return plx_file_error(cli, path, "empty");
    return 0;
}

int plx_output_write(struct plx_output *output, const uint8_t *bytes, size_t length,
                     uint64_t offset)
{
    bool stream = offset == UINT64_MAX;

    while (length) {
        ssize_t put = stream ? write(output->fd, bytes, length)
                             : pwrite(output->fd, bytes, length, (off_t)offset);
        if (put < 0 && errno == EINTR && !plx_interrupted)
            continue;
        if (put < 0)
            return errno == EINTR ? plx_cli_fail(output->cli, PLX_ERR_SYSTEM, "interrupted")
                                  : plx_file_error(output->cli, output->path, "write");
        bytes += put;
        length -= (size_t)put;
        offset += stream ? 0 : (uint64_t)put;
    }
    return 0;
}

int plx_output_close(struct plx_output *output, int rc)
{
    if (output->fd <= STDOUT_FILENO)
        return rc;
    if (!rc && fsync(output->fd) && errno != EINVAL)
        rc = plx_file_error(output->cli, output->path, "write");
    if (close(output->fd) && !rc)
        rc = plx_file_error(output->cli, output->path, "write");
    if (rc && output->created) /* X2 */
        unlink(output->path);
    return rc;
}
