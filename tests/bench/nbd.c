/* nbd.c - a client of an NBD server on this machine (builtin.h): how qemu-storage-daemon is driven.
 *
 * Fixed newstyle negotiation, simple replies. Requests carry one piece of memory. A server that
 * does not keep to the protocol, or goes away, ends the benchmark.
 */
#include "builtin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tcmu/bytes.h"

#define EXPORT_NAME "disk"
#define REQUEST_MAGIC 0x25609513
#define REPLY_MAGIC 0x67446698
#define OPTION_MAGIC 0x49484156454f5054 /* "IHAVEOPT" */

enum { NBD_READ, NBD_WRITE, NBD_FLUSH = 3 };

struct nbd {
    struct tcmu_device *device;
    int fd;
    pthread_t receiver;
};

struct call {
    struct tcmur_cmd *cmd;
    struct iovec answer; /* of a read */
};

static bool receive(int fd, void *to, size_t bytes)
{
    return bytes == 0 || recv(fd, to, bytes, MSG_WAITALL) == (ssize_t)bytes;
}

static void *receive_replies(void *argument)
{
    struct nbd *nbd = argument;
    uint8_t reply[16];

    while (receive(nbd->fd, reply, sizeof reply)) {
        struct call *call;
        bool good = plx_get_be(reply + 4, 4) == 0;

        memcpy(&call, reply + 8, sizeof call);
        if (plx_get_be(reply, 4) != REPLY_MAGIC ||
            (good && !receive(nbd->fd, call->answer.iov_base, call->answer.iov_len))) {
            fprintf(stderr, "nbd: the server does not keep to the protocol\n");
            exit(2);
        }
        tcmur_cmd_complete(nbd->device, call->cmd, good ? TCMU_STS_OK : TCMU_STS_HW_ERR);
        free(call);
    }
    return NULL;
}

static bool negotiate(int fd)
{
    uint8_t greeting[18], choice[20] = {0}, answer[10];

    if (!receive(fd, greeting, sizeof greeting) || plx_get_be(greeting + 8, 8) != OPTION_MAGIC)
        return false;
    plx_put_be(choice, 4, 3); /* fixed newstyle, no zeroes */
    plx_put_be(choice + 4, 8, OPTION_MAGIC);
    plx_put_be(choice + 12, 4, 1); /* by export name */
    plx_put_be(choice + 16, 4, strlen(EXPORT_NAME));
    return send(fd, choice, sizeof choice, MSG_NOSIGNAL) == sizeof choice &&
           send(fd, EXPORT_NAME, strlen(EXPORT_NAME), MSG_NOSIGNAL) == strlen(EXPORT_NAME) &&
           receive(fd, answer, sizeof answer);
}

static int nbd_open(struct tcmu_device *device, bool reopen)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct nbd *nbd = calloc(1, sizeof *nbd);

    if (!nbd)
        return -ENOMEM;
    snprintf(address.sun_path, sizeof address.sun_path, "%s",
             strchr(tcmu_dev_get_cfgstring(device), '/') + 1);
    nbd->device = device;
    nbd->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (nbd->fd < 0 || connect(nbd->fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        !negotiate(nbd->fd) || pthread_create(&nbd->receiver, NULL, receive_replies, nbd) != 0) {
        close(nbd->fd);
        free(nbd);
        return -ECONNREFUSED;
    }
    tcmur_dev_set_private(device, nbd);
    return 0;
}

static void nbd_close(struct tcmu_device *device)
{
    struct nbd *nbd = tcmur_dev_get_private(device);

    shutdown(nbd->fd, SHUT_RDWR);
    pthread_join(nbd->receiver, NULL);
    close(nbd->fd);
    free(nbd);
}

/* Only the device's command thread sends. */
static int request(struct tcmu_device *device, struct tcmur_cmd *cmd, uint8_t type, off_t offset,
                   struct iovec data)
{
    struct nbd *nbd = tcmur_dev_get_private(device);
    struct call *call = calloc(1, sizeof *call);
    uint8_t header[28] = {0};
    struct iovec iov[2] = {{header, sizeof header}, data};
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = type == NBD_WRITE ? 2 : 1};
    size_t bytes = sizeof header + (type == NBD_WRITE ? data.iov_len : 0);

    if (!call)
        return TCMU_STS_NO_RESOURCE;
    call->cmd = cmd;
    if (type == NBD_READ)
        call->answer = data;
    plx_put_be(header, 4, REQUEST_MAGIC);
    header[7] = type;
    memcpy(header + 8, &call, sizeof call);
    plx_put_be(header + 16, 8, (uint64_t)offset);
    plx_put_be(header + 24, 4, data.iov_len);
    /* A blocking stream socket takes all of it, or is broken; then nothing more is answered. */
    if (sendmsg(nbd->fd, &message, MSG_NOSIGNAL) == (ssize_t)bytes)
        return TCMU_STS_OK;
    fprintf(stderr, "nbd: the server is gone\n");
    exit(2);
}

static int nbd_read(struct tcmu_device *device, struct tcmur_cmd *cmd, struct iovec *iov,
                    size_t iovcnt, size_t length, off_t offset)
{
    return iovcnt == 1 ? request(device, cmd, NBD_READ, offset, *iov) : TCMU_STS_INVALID_CDB;
}

static int nbd_write(struct tcmu_device *device, struct tcmur_cmd *cmd, struct iovec *iov,
                     size_t iovcnt, size_t length, off_t offset)
{
    return iovcnt == 1 ? request(device, cmd, NBD_WRITE, offset, *iov) : TCMU_STS_INVALID_CDB;
}

static int nbd_flush(struct tcmu_device *device, struct tcmur_cmd *cmd)
{
    return request(device, cmd, NBD_FLUSH, 0, (struct iovec){NULL, 0});
}

struct tcmur_handler nbd_handler = {
    .name = "NBD",
    .subtype = "nbd",
    .open = nbd_open,
    .close = nbd_close,
    .read = nbd_read,
    .write = nbd_write,
    .flush = nbd_flush,
};
