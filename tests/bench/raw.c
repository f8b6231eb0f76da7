/* raw.c - a file or device without anything in between, by libaio (builtin.h).
 *
 * As in Parallax, who brings a request hands it to the kernel and takes what is complete, and a
 * thread waits for the rest.
 */
#include "builtin.h"
#include "engine/base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <libaio.h>
#include <stdio.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MAX 256
#define EVENTS_AT_ONCE 64
#define CLOSING_NOTICED_NS 20000000
#define PIECE (1u << 20)

struct raw {
    struct tcmu_device *device;
    int fd;
    int64_t *map; /* where each piece of the disk starts in the file; NULL: it is the file */
    size_t pieces;
    bool hash;
    atomic_ullong hashed; /* so that the sums are not left out */
    io_context_t context;
    pthread_t reaper;
    atomic_bool closing;
};

struct transfer {
    struct iocb cb; /* first: the kernel gives its address back */
    struct tcmur_cmd *cmd;
    size_t length;
};

static void reap(struct raw *raw, long at_least, long patience_ns)
{
    struct timespec patience = {0, patience_ns};
    struct io_event events[EVENTS_AT_ONCE];
    int count = io_getevents(raw->context, at_least, EVENTS_AT_ONCE, events, &patience);

    for (int i = 0; i < count; i++) {
        struct transfer *transfer = (struct transfer *)events[i].obj;
        bool whole = events[i].res == transfer->length;

        tcmur_cmd_complete(raw->device, transfer->cmd, whole ? TCMU_STS_OK : TCMU_STS_HW_ERR);
        free(transfer);
    }
}

static void *reap_until_closed(void *argument)
{
    struct raw *raw = argument;

    while (!atomic_load(&raw->closing))
        reap(raw, 1, CLOSING_NOTICED_NS);
    return NULL;
}

static int read_map(struct raw *raw, const char *path)
{
    FILE *file = fopen(path, "re");
    struct stat st;

    if (!file || fstat(fileno(file), &st) != 0)
        return -errno;
    raw->pieces = (size_t)st.st_size / sizeof *raw->map;
    raw->map = calloc(raw->pieces + 1, sizeof *raw->map);
    if (!raw->map || fread(raw->map, sizeof *raw->map, raw->pieces, file) != raw->pieces)
        return -EIO;
    fclose(file);
    return 0;
}

/* raw/PATH[;map=FILE][;dsync][;hash]; hash: the checksum of what is written is computed. */
static int open_file(struct raw *raw, const char *cfgstring)
{
    char text[PATH_MAX];
    char *rest = text, *path;
    int flags = O_RDWR | O_DIRECT | O_CLOEXEC, error = 0;

    snprintf(text, sizeof text, "%s", strchr(cfgstring, '/') + 1);
    path = strsep(&rest, ";");
    for (const char *option; error == 0 && (option = strsep(&rest, ";"));)
        if (strcmp(option, "dsync") == 0)
            flags |= O_DSYNC;
        else if (strcmp(option, "hash") == 0)
            raw->hash = true;
        else
            error = strncmp(option, "map=", 4) == 0 ? read_map(raw, option + 4) : -EINVAL;
    if (error == 0)
        raw->fd = open(path, flags);
    return error || raw->fd >= 0 ? error : -errno;
}

/* Where a transfer goes in the file; -1: nowhere, or to two places. */
static off_t place(const struct raw *raw, off_t offset, size_t length)
{
    size_t piece = (size_t)offset / PIECE, within = (size_t)offset % PIECE;

    if (!raw->map)
        return offset;
    return piece < raw->pieces && length <= PIECE - within ? raw->map[piece] + (off_t)within : -1;
}

static int raw_open(struct tcmu_device *device, bool reopen)
{
    struct raw *raw = calloc(1, sizeof *raw);
    int error;

    if (!raw)
        return -ENOMEM;
    raw->device = device;
    raw->fd = -1;
    error = open_file(raw, tcmu_dev_get_cfgstring(device));
    if (error == 0)
        error = io_setup(DEPTH_MAX, &raw->context);
    if (error == 0)
        error = -pthread_create(&raw->reaper, NULL, reap_until_closed, raw);
    if (error == 0) {
        tcmur_dev_set_private(device, raw);
        return 0;
    }
    if (raw->fd >= 0)
        close(raw->fd);
    free(raw->map);
    free(raw);
    return error;
}

static void raw_close(struct tcmu_device *device)
{
    struct raw *raw = tcmur_dev_get_private(device);

    atomic_store(&raw->closing, true);
    pthread_join(raw->reaper, NULL);
    io_destroy(raw->context);
    close(raw->fd);
    free(raw->map);
    free(raw);
}

static int transfer(struct tcmu_device *device, struct tcmur_cmd *cmd, short opcode,
                    struct iovec *iov, size_t iovcnt, size_t length, off_t offset)
{
    struct transfer *transfer = malloc(sizeof *transfer);
    struct raw *raw = tcmur_dev_get_private(device);
    struct iocb *cb = &transfer->cb;

    if (!transfer)
        return TCMU_STS_NO_RESOURCE;
    io_prep_preadv(cb, raw->fd, iov, (int)iovcnt, place(raw, offset, length));
    cb->aio_lio_opcode = opcode;
    transfer->cmd = cmd;
    transfer->length = length;
    if (io_submit(raw->context, 1, &cb) == 1) {
        reap(raw, 0, 0); /* no system call when there is nothing */
        return TCMU_STS_OK;
    }
    free(transfer);
    return TCMU_STS_HW_ERR;
}

static int raw_read(struct tcmu_device *device, struct tcmur_cmd *cmd, struct iovec *iov,
                    size_t iovcnt, size_t length, off_t offset)
{
    return transfer(device, cmd, IO_CMD_PREADV, iov, iovcnt, length, offset);
}

static int raw_write(struct tcmu_device *device, struct tcmur_cmd *cmd, struct iovec *iov,
                     size_t iovcnt, size_t length, off_t offset)
{
    struct raw *raw = tcmur_dev_get_private(device);

    for (size_t i = 0; i < iovcnt && raw->hash; i++)
        raw->hashed ^= plx_hash64(iov[i].iov_base, iov[i].iov_len);
    return transfer(device, cmd, IO_CMD_PWRITEV, iov, iovcnt, length, offset);
}

static int raw_flush(struct tcmu_device *device, struct tcmur_cmd *cmd)
{
    struct raw *raw = tcmur_dev_get_private(device);

    if (fdatasync(raw->fd) != 0)
        return TCMU_STS_HW_ERR;
    tcmur_cmd_complete(device, cmd, TCMU_STS_OK);
    return TCMU_STS_OK;
}

struct tcmur_handler raw_handler = {
    .name = "raw",
    .subtype = "raw",
    .open = raw_open,
    .close = raw_close,
    .read = raw_read,
    .write = raw_write,
    .flush = raw_flush,
};
