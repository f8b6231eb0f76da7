/* rqlite_proxy.c - see rqlite_proxy.h. A process that accepts, and one for each connection. */
#include "rqlite_proxy.h"

#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cluster.h"

#define MESSAGE_MAX (8u << 20)

struct message {
    char *text;
    size_t size;
};

/* ---- HTTP -------------------------------------------------------------------------------- */

static bool send_all(int fd, const char *text, size_t size)
{
    while (size) {
        ssize_t sent = send(fd, text, size, MSG_NOSIGNAL);

        if (sent <= 0)
            return false;
        text += sent;
        size -= (size_t)sent;
    }
    return true;
}

/* Its whole length, once its headers are there; 0 before. */
static size_t length_of(const char *text, size_t size)
{
    const char *end = memmem(text, size, "\r\n\r\n", 4), *length;

    if (!end)
        return 0;
    length = strcasestr(text, "\r\nContent-Length:");
    return (size_t)(end + 4 - text) + (length && length < end ? strtoul(length + 17, NULL, 10) : 0);
}

/* Whether this is chunked, and its end is there. */
static bool is_chunked_whole(const struct message *message)
{
    return strcasestr(message->text, "\r\nTransfer-Encoding: chunked") && message->size >= 5 &&
           !memcmp(message->text + message->size - 5, "0\r\n\r\n", 5);
}

static bool receive(int fd, struct message *message)
{
    message->size = 0;
    for (;;) {
        ssize_t got = recv(fd, message->text + message->size, MESSAGE_MAX - message->size - 1, 0);
        size_t length;

        if (got <= 0)
            return false;
        message->size += (size_t)got;
        message->text[message->size] = '\0';
        length = length_of(message->text, message->size);
        if (strcasestr(message->text, "\r\nTransfer-Encoding: chunked")) {
            if (is_chunked_whole(message))
                return true;
        } else if (length && message->size >= length) {
            return true;
        }
    }
}

static int connect_to(unsigned port)
{
    struct sockaddr_in name = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)port),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (connect(fd, (struct sockaddr *)&name, sizeof name)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* ---- One request ------------------------------------------------------------------------- */

static enum proxy_fate fate_of(struct proxy *proxy, const char *request)
{
    const char *end = strstr(request, "\r\n"), *found = strstr(request, proxy->path);

    if (!found || found > end)
        return PROXY_PASS;
    __sync_fetch_and_add(&proxy->seen, 1);
    if (proxy->skip) {
        __sync_fetch_and_sub(&proxy->skip, 1);
        return PROXY_PASS;
    }
    if (!proxy->times)
        return PROXY_PASS;
    __sync_fetch_and_sub(&proxy->times, 1);
    __sync_fetch_and_add(&proxy->met, 1);
    return proxy->fate;
}

static bool ask_node(int node, const struct message *request, struct message *answer)
{
    return send_all(node, request->text, request->size) && receive(node, answer);
}

static void hold(struct proxy *proxy, int node, int client, const struct message *request,
                 struct message *answer)
{
    __sync_fetch_and_add(&proxy->held, 1);
    shutdown(client, SHUT_RDWR);
    close(client);
    while (!proxy->release)
        usleep(10000);
    ask_node(node, request, answer);
    __sync_fetch_and_add(&proxy->released, 1);
    _exit(0);
}

static void send_on_and_on(int client)
{
    static const char head[] = "HTTP/1.1 200 OK\r\n\r\n";
    static const char spaces[1 << 16] = {' '};

    send_all(client, head, strlen(head));
    while (send_all(client, spaces, sizeof spaces))
        ;
}

/* false: the connection is over. */
static bool serve(struct proxy *proxy, int client, int node, const struct message *request,
                  struct message *answer)
{
    enum proxy_fate fate = fate_of(proxy, request->text);

    if (fate == PROXY_ANSWER) {
        send_all(client, proxy->answer, strlen(proxy->answer));
        return false;
    }
    if (fate == PROXY_ENDLESS) {
        send_on_and_on(client);
        return false;
    }
    if (fate == PROXY_HOLD)
        hold(proxy, node, client, request, answer);
    if (fate == PROXY_TWICE && !ask_node(node, request, answer))
        return false;
    if (!ask_node(node, request, answer) || fate == PROXY_DROP)
        return false;
    if (fate == PROXY_STALL)
        sleep(6);
    if (fate == PROXY_CUT) {
        send_all(client, answer->text, answer->size - 20);
        return false;
    }
    return send_all(client, answer->text, answer->size);
}

static void serve_all(struct proxy *proxy, int client)
{
    struct message request = {.text = malloc(MESSAGE_MAX)}, answer = {.text = malloc(MESSAGE_MAX)};
    int node = connect_to(proxy->node);

    while (node >= 0 && receive(client, &request) && serve(proxy, client, node, &request, &answer))
        ;
    _exit(0);
}

/* ---- Bytes as they are ------------------------------------------------------------------- */

/* How many of these bytes pass before the fate comes; *ret_comes: it comes now. */
static size_t pass(struct proxy *proxy, size_t bytes, bool *ret_comes)
{
    long left = proxy->left;

    *ret_comes = left >= 0 && (size_t)left <= bytes;
    if (*ret_comes) {
        bytes = (size_t)left;
        proxy->left = proxy->then;
        proxy->then = -1;
        __sync_fetch_and_add(&proxy->met, 1);
    } else if (left >= 0) {
        proxy->left = left - (long)bytes;
    }
    return bytes;
}

/* Passes on what one side says; false: the connection is over. *drop: nothing of the node's. */
static bool relay_piece(struct proxy *proxy, int from, int to, bool of_node, bool *drop)
{
    char bytes[4096];
    ssize_t got = recv(from, bytes, sizeof bytes, 0);
    size_t first;
    bool comes;

    if (got <= 0 || (of_node && *drop))
        return false;
    if (!of_node)
        __sync_fetch_and_add(&proxy->asked, (unsigned)got);
    first = pass(proxy, (size_t)got, &comes);
    if (!comes)
        return send_all(to, bytes, first);
    if (proxy->fate == PROXY_MUTE)
        pause();
    if (proxy->fate == PROXY_DAMAGE && first < (size_t)got)
        bytes[first] ^= 1;
    *drop = proxy->fate == PROXY_DROP;
    if (proxy->fate == PROXY_CUT || (*drop && of_node)) {
        send_all(to, bytes, first);
        return false;
    }
    return send_all(to, bytes, (size_t)got);
}

static void relay_all(struct proxy *proxy, int client)
{
    int node = connect_to(proxy->node);
    struct pollfd ends[] = {{.fd = client, .events = POLLIN}, {.fd = node, .events = POLLIN}};
    bool drop = false, open = node >= 0;

    while (open && poll(ends, 2, -1) > 0) {
        if (ends[0].revents)
            open = relay_piece(proxy, client, node, false, &drop);
        if (open && ends[1].revents)
            open = relay_piece(proxy, node, client, true, &drop);
    }
    _exit(0);
}

/* ---- Its life ---------------------------------------------------------------------------- */

static void accept_all(struct proxy *proxy, int listener)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGCHLD, SIG_IGN);
    for (;;) {
        int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

        if (client >= 0 && fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            close(listener);
            if (proxy->relay)
                relay_all(proxy, client);
            serve_all(proxy, client);
        }
        close(client);
    }
}

struct proxy *proxy_start(unsigned node)
{
    struct proxy *proxy =
        mmap(NULL, sizeof *proxy, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof name;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pid_t child;

    if (proxy == MAP_FAILED || bind(listener, (struct sockaddr *)&name, size) ||
        listen(listener, 16) || getsockname(listener, (struct sockaddr *)&name, &size))
        return NULL;
    proxy->node = node;
    proxy->port = ntohs(name.sin_port);
    snprintf(proxy->address, sizeof proxy->address, "http://127.0.0.1:%u", proxy->port);
    fflush(NULL);
    child = fork();
    if (child == 0)
        accept_all(proxy, listener);
    proxy->pid = child; /* shared: the child must not write it */
    close(listener);
    return proxy;
}

void proxy_stop(struct proxy *proxy)
{
    if (proxy->pid <= 0)
        return;
    kill(proxy->pid, SIGKILL);
    waitpid(proxy->pid, NULL, 0);
    munmap(proxy, sizeof *proxy);
}

void proxy_plan(struct proxy *proxy, const char *path, enum proxy_fate fate, unsigned skip,
                unsigned times)
{
    proxy->times = 0;
    snprintf(proxy->path, sizeof proxy->path, "%s", path);
    proxy->fate = fate;
    proxy->skip = skip;
    proxy->seen = proxy->met = 0;
    proxy->release = false;
    proxy->times = times;
}

void proxy_relay(struct proxy *proxy, enum proxy_fate fate, unsigned bytes, unsigned then)
{
    proxy->left = -1;
    proxy->then = then ? (long)then : -1;
    proxy->relay = true;
    proxy->fate = fate;
    proxy->met = proxy->asked = 0;
    proxy->left = fate == PROXY_PASS ? -1 : (long)bytes;
}

void proxy_answer(struct proxy *proxy, const char *status, const char *body)
{
    snprintf(proxy->answer, sizeof proxy->answer,
             "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
             "Connection: close\r\n\r\n%s",
             status, strlen(body), body);
}

bool proxy_release(struct proxy *proxy)
{
    proxy->release = true;
    for (unsigned i = 0; i < 1000 && proxy->released < proxy->held; i++)
        usleep(10000);
    return proxy->released == proxy->held;
}
