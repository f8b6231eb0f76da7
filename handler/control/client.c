/* client.c - the client's end: one request, one answer, with a time limit.
 *
 * CLIENT-1  A connection that failed during a call is closed and never used again. Otherwise a late
 *     answer could be taken for the answer to the next request.
 *
 * Threads: one at a time per client.
 * Crash story: nothing here lasts.
 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "control/protocol.h"

struct plx_control_client {
    int fd;    /* -1: dead */
    bool deaf; /* the server takes no more requests, but its answer may still come */
    struct plx_buffer in, out;
    char path[256]; /* for messages */
};

/* ---- Connecting -------------------------------------------------------------------------- */

static int try_connect(int fd, const char *path, unsigned timeout_ms)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    uint64_t deadline = plx_monotonic_ms() + timeout_ms;
    struct sockaddr_un address;
    int directory, error = 0;

    if (plx_socket_address(path, &address, &directory))
        return ENOENT;
    /* A unix socket connects at once, or fails with EAGAIN while the server's queue is full. */
    while (connect(fd, (struct sockaddr *)&address, sizeof address)) {
        error = errno;
        if ((error != EAGAIN && error != EINTR) || plx_monotonic_ms() >= deadline)
            break;
        nanosleep(&pause, NULL);
        error = 0;
    }
    if (directory >= 0)
        close(directory);
    return error;
}

int plx_control_connect(const char *path, unsigned timeout_ms,
                        struct plx_control_client **ret_client, struct plx_fault *fault)
{
    struct plx_control_client *client = calloc(1, sizeof *client);
    int error, code;

    if (!client)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory connecting to the handler");
    snprintf(client->path, sizeof client->path, "%s", path);
    client->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    error = client->fd < 0 ? errno : try_connect(client->fd, path, timeout_ms);
    if (!error) {
        *ret_client = client;
        return 0;
    }
    if (error == ENOENT || error == ECONNREFUSED)
        code = plx_fault_set(fault, PLX_ERR_NOT_FOUND,
                             "no handler listens on %.150s; is it "
                             "running?",
                             path);
    else if (error == EAGAIN)
        code = plx_fault_set(fault, PLX_ERR_LOST,
                             "the handler at %.150s did not take the "
                             "connection within %u ms",
                             path, timeout_ms);
    else
        code = plx_fault_set(fault, error == EACCES ? PLX_ERR_PERMISSION : PLX_ERR_LOST,
                             "cannot connect to %.150s: %s", path, strerror(error));
    plx_control_disconnect(client);
    return code;
}

void plx_control_disconnect(struct plx_control_client *client)
{
    if (!client)
        return;
    if (client->fd >= 0)
        close(client->fd);
    plx_buffer_done(&client->in);
    plx_buffer_done(&client->out);
    free(client);
}

/* ---- Calling ----------------------------------------------------------------------------- */

static const char *why_not_received(int code)
{
    switch (code) {
    case PLX_ERR_INVALID:
        return "gave too long an answer";
    case PLX_ERR_NOMEM:
        return "gave an answer for which there is no memory";
    default:
        return "closed the connection";
    }
}

/* Sends what is in `out`, then receives one line. Returns NULL, or what went wrong, in words. */
static const char *exchange(struct plx_control_client *client, unsigned timeout_ms)
{
    uint64_t deadline = plx_monotonic_ms() + timeout_ms, now;

    while (client->out.used || !plx_buffer_line(&client->in)) {
        /* Reads while it sends: a server that refuses a request may answer and close the connection
         * before it has read all of the request. */
        struct pollfd poll_fd = {.fd = client->fd,
                                 .events = client->out.used ? POLLOUT | POLLIN : POLLIN};
        int code = 0;

        now = plx_monotonic_ms();
        if (now >= deadline)
            return "did not answer in time";
        if (poll(&poll_fd, 1, deadline - now > INT_MAX ? INT_MAX : (int)(deadline - now)) <= 0)
            continue;
        if (poll_fd.revents & ~POLLOUT)
            code = plx_buffer_receive(&client->in, client->fd);
        if (code)
            return why_not_received(code);
        if (plx_buffer_line(&client->in))
            break;
        if ((poll_fd.revents & POLLOUT) && plx_buffer_send(&client->out, client->fd)) {
            client->deaf = true;
            client->out.used = 0;
        }
    }
    return NULL;
}

int plx_control_call(struct plx_control_client *client, json_t *request, unsigned timeout_ms,
                     json_t **ret_result, struct plx_fault *fault)
{
    const char *failure;
    json_t *response;
    size_t length;
    char why[160];
    int code;

    if (client->fd < 0)
        return plx_fault_set(fault, PLX_ERR_LOST, "the connection to %.150s is gone", client->path);
    code = plx_message_put(&client->out, request);
    if (code)
        return plx_fault_set(fault, code, "cannot send the request: %s",
                             code == PLX_ERR_INVALID ? "it is too long" : plx_error_text(code));
    failure = exchange(client, timeout_ms);
    if (failure) {
        close(client->fd);
        client->fd = -1;
        return plx_fault_set(fault, PLX_ERR_LOST, "the handler at %.150s %s", client->path,
                             failure);
    }
    length = plx_buffer_line(&client->in);
    response = plx_message_parse(client->in.bytes, length, why, sizeof why);
    plx_buffer_drop(&client->in, length);
    if (!response || client->deaf || client->out.used || client->in.used) { /* CLIENT-1 */
        close(client->fd);
        client->fd = -1;
    }
    if (!response)
        return plx_fault_set(fault, PLX_ERR_LOST, "the handler's answer is %s", why);
    code = plx_message_unpack(response, ret_result, fault);
    json_decref(response);
    return code;
}
