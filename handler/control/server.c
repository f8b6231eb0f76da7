/* server.c - the server's end: one thread, a bounded number of clients.
 *
 * The states of a client:
 *
 *  state       until                            at the timeout             may have to give way
 *  new         it sends something               gives way (SERVER-4)       after the timeout
 *  idle        it sends something               -                          at once
 *  requesting  the whole line has come          is dropped (SERVER-2)      no
 *  answering   it has taken the whole response  is dropped (SERVER-2)      no
 *  closing     it has taken the error message   is dropped                 no
 *
 * SERVER-1  A client costs at most two lines of memory and one descriptor, and the number of
 *     clients is bounded.
 * SERVER-2  A client that takes longer than the timeout to send a request or to take a response is
 *     dropped. A client that sends something else than a request is told so and then dropped. Other
 *     clients do not wait for it.
 * SERVER-3  A request is read only after the response to the one before was sent. So responses
 *     cannot pile up.
 * SERVER-4  Silent clients keep nobody out for longer than the timeout. If all places are taken, a
 *     newcomer waits in the socket's queue, and the client that has been idle longest gives way. A
 *     client is idle between its requests; a new client counts as idle after the timeout.
 *
 * Threads: the server's thread owns every field except `wake`, from start to join.
 * Crash story: a crash leaves the socket file. Connecting to it is refused, and the next server of
 *   that name replaces it.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control/protocol.h"
#include "engine/base/units.h"

struct client {
    int fd; /* -1: free */
    struct plx_buffer in, out;
    uint64_t deadline;  /* monotonic ms; 0: none, because it is new or idle */
    uint64_t yields_at; /* monotonic ms: from then on it may have to give way, if idle (SERVER-4) */
    bool closing;       /* is dropped once `out` is sent */
};

struct plx_control_server {
    struct plx_control_options options;
    char *path;
    int listener, wake;
    pthread_t thread;
    uint64_t deaf_until; /* accept() failed, as without descriptors: not tried again before */
    struct client *clients;
    struct pollfd *polls; /* wake, listener, then one per client */
};

/* ---- One client -------------------------------------------------------------------------- */

static void drop(struct client *client)
{
    close(client->fd);
    plx_buffer_done(&client->in);
    plx_buffer_done(&client->out);
    *client = (struct client){.fd = -1};
}

/* Queues a response and drops the reference to it. If it cannot be queued, queues an error instead;
 * false: there is no memory even for that. */
static bool answer(struct client *client, json_t *response)
{
    int code = response ? plx_message_put(&client->out, response) : PLX_ERR_NOMEM;

    json_decref(response);
    if (code) {
        response = plx_message_error(code, code == PLX_ERR_INVALID ? "the answer is too long"
                                                                   : plx_error_text(code));
        code = response ? plx_message_put(&client->out, response) : PLX_ERR_NOMEM;
        json_decref(response);
    }
    return code == 0;
}

static bool refuse(struct client *client, int code, const char *text)
{
    client->closing = true;
    return answer(client, plx_message_error(code, text));
}

static bool serve(struct plx_control_server *server, struct client *client, size_t length)
{
    char message[PLX_CONTROL_MESSAGE] = "";
    json_t *request, *result = NULL;
    int code;

    request = plx_message_parse(client->in.bytes, length, message, sizeof message);
    plx_buffer_drop(&client->in, length);
    if (!request)
        return refuse(client, PLX_ERR_INVALID, message);
    if (!json_is_string(json_object_get(request, "command"))) {
        json_decref(request);
        return refuse(client, PLX_ERR_INVALID, "the request has no \"command\"");
    }
    code =
        server->options.handle(server->options.context, request, &result, message, sizeof message);
    json_decref(request);
    if (!code)
        return answer(client, plx_message_result(result));
    json_decref(result);
    return answer(client, plx_message_error(code, message[0] ? message : plx_error_text(code)));
}

/* Does what can be done for a client without waiting, at most one request. false: drop the client.
 */
static bool advance(struct plx_control_server *server, struct client *client, short events)
{
    uint64_t now = plx_monotonic_ms();
    size_t length;

    if (client->out.used) {
        if ((events & (POLLOUT | POLLERR | POLLHUP)) && plx_buffer_send(&client->out, client->fd))
            return false;
    } else if (events & (POLLIN | POLLERR | POLLHUP)) {
        int code = plx_buffer_line(&client->in) ? 0 : plx_buffer_receive(&client->in, client->fd);

        if (code == PLX_ERR_INVALID) {
            if (!refuse(client, code, "the request is too long"))
                return false;
        } else if (code) {
            return false;
        }
    }
    /* SERVER-3 */
    length = client->out.used || client->closing ? 0 : plx_buffer_line(&client->in);
    if (length) {
        if (!serve(server, client, length) || plx_buffer_send(&client->out, client->fd))
            return false;
        now = plx_monotonic_ms();
        client->deadline = 0;
        client->yields_at = now;
    }
    if (client->closing && !client->out.used)
        return false;
    if (!client->out.used && !client->in.used)
        client->deadline = 0;
    else if (!client->deadline) /* SERVER-2 */
        client->deadline = now + server->options.timeout_ms;
    return !client->deadline || now < client->deadline;
}

/* ---- The thread -------------------------------------------------------------------------- */

static bool allowed(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof peer;

    return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) &&
           (peer.uid == 0 || peer.uid == geteuid());
}

/* A free place, or that of the client that gives way first (SERVER-4). NULL: all clients are in the
 * middle of something. */
static struct client *find_place(const struct plx_control_server *server)
{
    struct client *found = NULL;

    for (unsigned i = 0; i < server->options.clients_max; i++) {
        struct client *client = &server->clients[i];

        if (client->fd < 0)
            return client;
        if (!client->in.used && !client->out.used &&
            (!found || client->yields_at < found->yields_at))
            found = client;
    }
    return found;
}

/* When there is a place for a newcomer. */
static uint64_t place_free_at(const struct plx_control_server *server)
{
    const struct client *client = find_place(server);

    return !client ? UINT64_MAX : client->fd < 0 ? 0 : client->yields_at;
}

static void welcome(struct plx_control_server *server)
{
    struct client stranger, *client;
    int fd;

    if (place_free_at(server) > plx_monotonic_ms())
        return; /* the client that had to give way has just sent something */
    fd = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
            server->deaf_until = plx_monotonic_ms() + 100;
        return;
    }
    if (!allowed(fd)) {
        stranger = (struct client){.fd = fd};
        /* One try to send: the message fits into the empty socket buffer. */
        if (refuse(&stranger, PLX_ERR_PERMISSION,
                   "only root and the handler's own user may do that"))
            plx_buffer_send(&stranger.out, fd);
        drop(&stranger);
        return;
    }
    client = find_place(server);
    if (client->fd >= 0)
        drop(client);
    client->fd = fd;
    client->yields_at = plx_monotonic_ms() + server->options.timeout_ms;
}

/* Fills in the poll array; returns how long poll() may sleep, in milliseconds; -1: without limit.
 */
static int prepare(struct plx_control_server *server)
{
    uint64_t now = plx_monotonic_ms(), until = UINT64_MAX;
    uint64_t hears_at = plx_max_u64(server->deaf_until, place_free_at(server));
    bool deaf = now < hears_at;

    server->polls[0] = (struct pollfd){.fd = server->wake, .events = POLLIN};
    server->polls[1] = (struct pollfd){.fd = deaf ? -1 : server->listener, .events = POLLIN};
    if (deaf)
        until = hears_at;
    for (unsigned i = 0; i < server->options.clients_max; i++) {
        struct client *client = &server->clients[i];
        short events = client->out.used ? POLLOUT : POLLIN;

        server->polls[2 + i] = (struct pollfd){.fd = client->fd, .events = events};
        if (client->fd < 0)
            continue;
        if (client->deadline && client->deadline < until)
            until = client->deadline;
        if (!client->out.used && plx_buffer_line(&client->in))
            until = now; /* a further request of this client has been received already */
    }
    return until == UINT64_MAX ? -1 : until <= now ? 0 : (int)(until - now);
}

static void *run(void *argument)
{
    struct plx_control_server *server = argument;

    for (;;) {
        int timeout = prepare(server);

        if (poll(server->polls, 2 + server->options.clients_max, timeout) < 0)
            continue; /* EINTR, or a shortage that passes */
        if (server->polls[0].revents)
            return NULL;
        for (unsigned i = 0; i < server->options.clients_max; i++)
            if (server->clients[i].fd >= 0 &&
                !advance(server, &server->clients[i], server->polls[2 + i].revents))
                drop(&server->clients[i]);
        if (server->polls[1].revents)
            welcome(server);
    }
}

/* ---- Start and stop ---------------------------------------------------------------------- */

/* Whether a live server listens at this address. */
static bool answered(const struct sockaddr_un *address)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool yes = fd >= 0 &&
               (!connect(fd, (const struct sockaddr *)address, sizeof *address) || errno == EAGAIN);

    if (fd >= 0)
        close(fd);
    return yes;
}

static int listen_at(const char *path, int *ret_fd, struct plx_fault *fault)
{
    struct sockaddr_un address;
    int directory, fd, code = plx_socket_address(path, &address, &directory);

    if (code)
        return plx_fault_set(fault, code, "cannot make the control socket %.150s: %s", path,
                             code == PLX_ERR_INVALID ? "its path is too long" : "no directory");
    if (answered(&address)) {
        code = plx_fault_set(fault, PLX_ERR_BUSY, "another process listens on %.150s", path);
    } else {
        unlink(path);
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        /* Nobody can connect before listen(), so nobody meets a socket of a wrong mode. */
        if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) || chmod(path, 0600) ||
            listen(fd, 64)) {
            code =
                plx_fault_set(fault, errno == EACCES ? PLX_ERR_PERMISSION : PLX_ERR_SYSTEM,
                              "cannot make the control socket %.150s: %s", path, strerror(errno));
            if (fd >= 0)
                close(fd);
        } else {
            *ret_fd = fd;
        }
    }
    if (directory >= 0)
        close(directory);
    return code;
}

static void release(struct plx_control_server *server)
{
    for (unsigned i = 0; server->clients && i < server->options.clients_max; i++)
        if (server->clients[i].fd >= 0)
            drop(&server->clients[i]);
    if (server->listener >= 0) {
        close(server->listener);
        unlink(server->path);
    }
    if (server->wake >= 0)
        close(server->wake);
    free(server->clients);
    free(server->polls);
    free(server->path);
    free(server);
}

/* The thread blocks all signals: they are for the process that loaded the plugin. */
static int start_thread(struct plx_control_server *server, struct plx_fault *fault)
{
    sigset_t all, old;
    int error;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    error = pthread_create(&server->thread, NULL, run, server);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error == 0)
        return 0;
    return plx_fault_set(fault, PLX_ERR_SYSTEM, "cannot start the control thread: %s",
                         strerror(error));
}

int plx_control_start(const struct plx_control_options *options,
                      struct plx_control_server **ret_server, struct plx_fault *fault)
{
    struct plx_control_server *server = calloc(1, sizeof *server);
    int code;

    if (!server)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory for the control socket");
    server->options = *options;
    if (!server->options.clients_max)
        server->options.clients_max = 32;
    if (!server->options.timeout_ms)
        server->options.timeout_ms = 5000;
    server->listener = -1;
    server->path = strdup(options->path);
    server->clients = calloc(server->options.clients_max, sizeof *server->clients); /* SERVER-1 */
    server->polls = calloc(2 + server->options.clients_max, sizeof *server->polls);
    server->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    for (unsigned i = 0; server->clients && i < server->options.clients_max; i++)
        server->clients[i].fd = -1;
    if (!server->path || !server->clients || !server->polls || server->wake < 0)
        code =
            plx_fault_set(fault, PLX_ERR_NOMEM, "no memory or descriptor for the control socket");
    else
        code = listen_at(options->path, &server->listener, fault);
    if (!code)
        code = start_thread(server, fault);
    if (code) {
        release(server);
        return code;
    }
    *ret_server = server;
    return 0;
}

void plx_control_stop(struct plx_control_server *server)
{
    if (!server)
        return;
    PLX_ASSERT(eventfd_write(server->wake, 1) == 0);
    pthread_join(server->thread, NULL);
    release(server);
}
