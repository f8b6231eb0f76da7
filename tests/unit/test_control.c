/* test_control.c - the control socket: requests, errors, hostile and slow clients. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "control/control.h"
#include "control/protocol.h"
#include "fault/alloc.h"
#include "suite.h"

#define TIMEOUT_MS 300
#define CLIENTS_MAX 8

static char directory[256], path[512];
static struct plx_control_server *server;
static struct plx_fault fault;
static sem_t awake;     /* ends a "sleep" */
static unsigned served; /* by the server's thread; read after a stop */

#define OK(call) CU_ASSERT_EQUAL_FATAL(call, 0)
#define FAILS(code, call) CU_ASSERT_EQUAL(call, PLX_ERR_##code)

static int handle(void *context, json_t *request, json_t **ret_result, char *message, size_t size)
{
    const char *command = json_string_value(json_object_get(request, "command"));
    unsigned *count = context;

    ++*count;
    if (!strcmp(command, "echo")) {
        *ret_result = json_incref(json_object_get(request, "value"));
        return 0;
    }
    if (!strcmp(command, "nothing"))
        return 0;
    if (!strcmp(command, "sleep"))
        return sem_wait(&awake);
    if (!strcmp(command, "huge")) {
        char *text = calloc(1, PLX_CONTROL_LINE_MAX + 1);

        memset(text, 'x', PLX_CONTROL_LINE_MAX);
        *ret_result = json_string(text);
        free(text);
        return 0;
    }
    if (!strcmp(command, "binary")) {
        snprintf(message, size, "VDI '\xff\xfe' is in use");
        return PLX_ERR_BUSY;
    }
    if (!strcmp(command, "silent"))
        return PLX_ERR_NOSPACE;
    snprintf(message, size, "there is no command '%s'", command);
    return PLX_ERR_UNSUPPORTED;
}

static void start_with(unsigned timeout_ms)
{
    struct plx_control_options options = {.path = path,
                                          .handle = handle,
                                          .context = &served,
                                          .clients_max = CLIENTS_MAX,
                                          .timeout_ms = timeout_ms};

    OK(plx_control_start(&options, &server, &fault));
}

static void start(void)
{
    start_with(TIMEOUT_MS);
}

static void setup(void)
{
    strcpy(directory, "/tmp/plx-control-XXXXXX");
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(directory));
    chmod(directory, 0755); /* for the stranger's test */
    snprintf(path, sizeof path, "%s/1.sock", directory);
    served = 0;
    sem_init(&awake, 0, 0);
    start();
}

static void teardown(void)
{
    plx_control_stop(server);
    server = NULL;
    CU_ASSERT(access(path, F_OK) != 0);
    CU_ASSERT_EQUAL(rmdir(directory), 0);
}

static struct plx_control_client *new_client(void)
{
    struct plx_control_client *client = NULL;

    OK(plx_control_connect(path, 1000, &client, &fault));
    return client;
}

static int call(struct plx_control_client *client, const char *command, const char *value,
                json_t **ret_result)
{
    json_t *request = json_pack("{s:s, s:s}", "command", command, "value", value);
    int code = plx_control_call(client, request, 2000, ret_result, &fault);

    json_decref(request);
    return code;
}

static bool echoes(struct plx_control_client *client)
{
    json_t *result = NULL;
    int code = call(client, "echo", "hello", &result);
    bool yes = !code && !strcmp(json_string_value(result), "hello");

    json_decref(result);
    return yes;
}

/* A server that still works, seen by a new client. Full for a moment is allowed. */
static void still_serves(void)
{
    bool yes = false;

    for (int i = 0; i < 50 && !yes; i++) {
        struct plx_control_client *client = new_client();

        yes = echoes(client);
        plx_control_disconnect(client);
        if (!yes)
            usleep(20000);
    }
    CU_ASSERT(yes);
}

/* ---- Raw clients ------------------------------------------------------------------------- */

static int raw(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof address.sun_path, "%.100s", path);
    CU_ASSERT_EQUAL_FATAL(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static void put(int fd, const char *bytes, size_t count)
{
    while (count) {
        ssize_t sent = send(fd, bytes, count, MSG_NOSIGNAL);

        if (sent <= 0)
            return;
        bytes += sent;
        count -= (size_t)sent;
    }
}

/* All that comes until the server closes, or nothing came for two seconds (then false). */
static bool drain(int fd, char *text, size_t size)
{
    size_t used = 0;

    text[0] = 0;
    for (;;) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        ssize_t got;

        if (poll(&poll_fd, 1, 2000) <= 0)
            return false;
        got = recv(fd, text + used, size - 1 - used, 0);
        if (got <= 0)
            return true;
        used += (size_t)got;
        text[used] = 0;
    }
}

/* ---- Tests ------------------------------------------------------------------------------- */

static void test_calls(void)
{
    struct plx_control_client *client = new_client();
    json_t *result = NULL;
    struct stat st;

    CU_ASSERT_EQUAL(stat(path, &st), 0);
    CU_ASSERT_EQUAL(st.st_mode & 0777, 0600);
    CU_ASSERT(echoes(client));
    OK(call(client, "nothing", "", &result));
    CU_ASSERT(json_is_null(result));
    json_decref(result);
    FAILS(UNSUPPORTED, call(client, "dance", "", &result));
    CU_ASSERT_STRING_EQUAL(fault.text, "there is no command 'dance'");
    FAILS(NOSPACE, call(client, "silent", "", &result));
    CU_ASSERT_STRING_EQUAL(fault.text, plx_error_text(PLX_ERR_NOSPACE));
    FAILS(BUSY, call(client, "binary", "", &result));
    CU_ASSERT_STRING_EQUAL(fault.text, "VDI '\\xff\\xfe' is in use");
    FAILS(INVALID, call(client, "huge", "", &result));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "too long"));
    CU_ASSERT(echoes(client)); /* errors do not cost the connection */
    plx_control_disconnect(client);
    plx_control_disconnect(NULL);
}

static void test_nobody(void)
{
    struct plx_control_client *client = NULL;
    char other[600];
    int fd;

    snprintf(other, sizeof other, "%s/2.sock", directory);
    FAILS(NOT_FOUND, plx_control_connect(other, 100, &client, &fault));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "is it running?"));
    fd = open(other, O_CREAT | O_WRONLY, 0600); /* no socket at all */
    close(fd);
    FAILS(NOT_FOUND, plx_control_connect(other, 100, &client, &fault));
    unlink(other);
    CU_ASSERT_PTR_NULL(client);
}

static void test_stale_socket(void)
{
    struct plx_control_options options = {.path = path, .handle = handle, .context = &served};
    struct plx_control_server *second = NULL;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    FAILS(BUSY, plx_control_start(&options, &second, &fault));
    still_serves();
    plx_control_stop(server);
    snprintf(address.sun_path, sizeof address.sun_path, "%.100s", path);
    CU_ASSERT_EQUAL(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    close(fd); /* as after a crash: the file stays, nobody listens */
    CU_ASSERT_EQUAL(access(path, F_OK), 0);
    start();
    still_serves();
}

static void test_long_path(void)
{
    struct plx_control_options options = {.handle = handle, .context = &served};
    struct plx_control_server *far = NULL;
    struct plx_control_client *client = NULL;
    char deep[400], far_path[420];

    snprintf(deep, sizeof deep, "%s/%0120d", directory, 7);
    OK(mkdir(deep, 0700));
    snprintf(far_path, sizeof far_path, "%s/9.sock", deep);
    options.path = far_path;
    OK(plx_control_start(&options, &far, &fault));
    OK(plx_control_connect(far_path, 1000, &client, &fault));
    CU_ASSERT(echoes(client));
    plx_control_disconnect(client);
    plx_control_stop(far);
    CU_ASSERT_EQUAL(rmdir(deep), 0);
}

static void test_garbage(void)
{
    static const char *const lines[] = {
        "\n",
        "hello\n",
        "[1, 2]\n",
        "{}\n",
        "{\"command\": 7}\n",
        "{\"command\": \"echo\", \"command\": \"echo\"}\n",
        "{\"command\": \"\xff\xfe\"}\n",
        "{\"command\": \"a\\u0000b\"}\n",
        "\x16\x03\x01\x02\n",
        "GET / HTTP/1.0\r\n\r\n",
    };
    char text[4096], nested[8192];
    unsigned state = 1;

    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        int fd = raw();

        put(fd, lines[i], strlen(lines[i]));
        CU_ASSERT(drain(fd, text, sizeof text)); /* told, then dropped */
        CU_ASSERT_PTR_NOT_NULL(strstr(text, "\"INVALID\""));
        close(fd);
    }
    memset(nested, '[', sizeof nested);
    nested[sizeof nested - 1] = '\n';
    for (int i = 0; i < 200; i++) {
        int fd = raw();

        if (i == 0)
            put(fd, nested, sizeof nested);
        for (int n = 0; n < 300; n++) {
            char byte = (char)((state = state * 1103515245u + 12345u) >> 16);

            put(fd, &byte, 1);
        }
        close(fd);
    }
    still_serves();
    plx_control_stop(server);
    CU_ASSERT_EQUAL(served, 1); /* none of it reached the handler */
    start();
}

static void test_oversize(void)
{
    char *bytes = malloc(PLX_CONTROL_LINE_MAX), text[4096];
    struct plx_control_client *client;
    json_t *result;
    int fd = raw();

    memset(bytes, ' ', PLX_CONTROL_LINE_MAX);
    put(fd, bytes, PLX_CONTROL_LINE_MAX);
    put(fd, bytes, PLX_CONTROL_LINE_MAX);
    CU_ASSERT(drain(fd, text, sizeof text));
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "too long"));
    close(fd);

    /* Just below the limit works, in both directions; above, the client refuses itself. */
    client = new_client();
    memset(bytes, 'x', PLX_CONTROL_LINE_MAX);
    bytes[PLX_CONTROL_LINE_MAX - 64] = 0;
    OK(call(client, "echo", bytes, &result));
    CU_ASSERT_EQUAL(json_string_length(result), PLX_CONTROL_LINE_MAX - 64);
    json_decref(result);
    bytes[PLX_CONTROL_LINE_MAX - 64] = 'x';
    bytes[PLX_CONTROL_LINE_MAX - 1] = 0;
    FAILS(INVALID, call(client, "echo", bytes, &result));
    CU_ASSERT(echoes(client));
    plx_control_disconnect(client);
    free(bytes);
}

/* Clients that send half a request, or take no answer, are dropped; others do not notice. */
static void test_slow(void)
{
    static const char half[] = "{\"command\": \"ec";
    struct plx_control_client *client = new_client();
    int partial = raw(), trickle = raw(), deaf = raw(), idle = raw();
    char text[4096], *bytes = malloc(PLX_CONTROL_LINE_MAX);
    static const char echo[] = "{\"command\": \"echo\", \"value\": \"x\"}\n";
    int size = 4096;

    put(partial, half, sizeof half - 1);
    setsockopt(deaf, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    memset(bytes, 'x', PLX_CONTROL_LINE_MAX);
    memcpy(bytes, "{\"command\":\"echo\",\"value\":\"", 27);
    memcpy(bytes + 900000, "\"}\n", 3);
    put(deaf, bytes, 900003);
    for (int i = 0; i < 15; i++) { /* one byte now and then does not keep it alive */
        put(trickle, " ", 1);
        usleep(40000);
        CU_ASSERT(echoes(client));
    }
    CU_ASSERT(drain(partial, text, sizeof text));
    CU_ASSERT(drain(trickle, text, sizeof text));
    CU_ASSERT(recv(deaf, bytes, 100, 0) > 0); /* what was under way, */
    while (recv(deaf, bytes, PLX_CONTROL_LINE_MAX, 0) > 0)
        CU_ASSERT_PTR_NULL(memchr(bytes, '\n', 1)); /* and then the end */
    put(idle, echo, sizeof echo - 1);               /* silence between requests is no crime */
    CU_ASSERT(recv(idle, text, sizeof text, 0) > 0);
    CU_ASSERT(echoes(client));
    close(partial);
    close(trickle);
    close(deaf);
    close(idle);
    plx_control_disconnect(client);
    free(bytes);
}

static void test_pipelined(void)
{
    static const char two[] = "{\"command\":\"echo\",\"value\":\"first\"}\n"
                              "{\"command\":\"echo\",\"value\":\"second\"}\n{\"comm";
    static const char rest[] = "and\":\"echo\",\"value\":\"third\"}\n";
    char text[4096] = "";
    size_t used = 0;
    int fd = raw();

    put(fd, two, sizeof two - 1);
    usleep(50000);
    put(fd, rest, sizeof rest - 1);
    while (!strstr(text, "third")) {
        ssize_t got = recv(fd, text + used, sizeof text - 1 - used, 0);

        CU_ASSERT_FATAL(got > 0);
        used += (size_t)got;
        text[used] = 0;
    }
    CU_ASSERT(strstr(text, "first") < strstr(text, "second"));
    CU_ASSERT(strstr(text, "second") < strstr(text, "third"));
    close(fd);
}

/* However many say nothing, or half of something, others are served: the former give way. */
static void crowd_of(const char *words)
{
    int fds[3 * CLIENTS_MAX];
    char text[4096];

    for (int i = 0; i < 3 * CLIENTS_MAX; i++) {
        fds[i] = raw();
        put(fds[i], words, strlen(words));
    }
    still_serves();
    /* The first ones had to go, and were told nothing that could be taken for an answer. */
    CU_ASSERT(drain(fds[0], text, sizeof text));
    CU_ASSERT_STRING_EQUAL(text, "");
    for (int i = 0; i < 3 * CLIENTS_MAX; i++)
        close(fds[i]);
    still_serves();
}

static void test_crowd(void)
{
    crowd_of("");
    crowd_of("{\"command\": \"ec");
}

/* Who asks now and then stays while there is room, and gives way before those that are amid a
 * request. */
static void test_gives_way(void)
{
    static const char half[] = "{\"command\": \"ec", rest[] = "ho\", \"value\": \"x\"}\n";
    struct plx_control_client *oldest, *idle, *newcomer;
    int amid[CLIENTS_MAX - 2];
    json_t *result = NULL;
    char text[4096];

    plx_control_stop(server);
    start_with(600000); /* nobody is dropped for being slow */
    oldest = new_client();
    idle = new_client();
    CU_ASSERT(echoes(oldest));
    CU_ASSERT(echoes(idle));
    for (int i = 0; i < CLIENTS_MAX - 2; i++) {
        amid[i] = raw();
        put(amid[i], half, sizeof half - 1);
    }
    CU_ASSERT(echoes(oldest));
    CU_ASSERT(echoes(idle));
    newcomer = new_client();
    CU_ASSERT(echoes(newcomer));
    FAILS(LOST, call(oldest, "nothing", "", &result));
    CU_ASSERT_PTR_NULL(result);
    CU_ASSERT(echoes(idle));
    for (int i = 0; i < CLIENTS_MAX - 2; i++) {
        put(amid[i], rest, sizeof rest - 1);
        CU_ASSERT(recv(amid[i], text, sizeof text, 0) > 0);
        close(amid[i]);
    }
    plx_control_disconnect(oldest);
    plx_control_disconnect(idle);
    plx_control_disconnect(newcomer);
}

static void *talk(void *failures)
{
    struct plx_control_client *client = NULL;
    int failed = plx_control_connect(path, 1000, &client, NULL) != 0;

    for (int i = 0; i < 300 && !failed; i++)
        failed = !echoes(client);
    plx_control_disconnect(client);
    return failed ? failures : NULL;
}

static void test_many(void)
{
    pthread_t threads[CLIENTS_MAX];
    void *failed;

    for (int i = 0; i < CLIENTS_MAX; i++)
        CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[i], NULL, talk, threads), 0);
    for (int i = 0; i < CLIENTS_MAX; i++) {
        pthread_join(threads[i], &failed);
        CU_ASSERT_PTR_NULL(failed);
    }
}

static void test_timeout(void)
{
    struct plx_control_client *client = new_client();
    json_t *request = json_pack("{s:s}", "command", "sleep"), *result = NULL;

    FAILS(LOST, plx_control_call(client, request, 50, &result, &fault));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "in time"));
    FAILS(LOST, plx_control_call(client, request, 1000, &result, &fault)); /* CLIENT-1 */
    CU_ASSERT_PTR_NULL(result);
    plx_control_disconnect(client);
    sem_post(&awake);
    still_serves();

    client = new_client();
    plx_control_stop(server);
    FAILS(LOST, plx_control_call(client, request, 1000, &result, &fault));
    plx_control_disconnect(client);
    json_decref(request);
    start();
}

/* ---- A server played by the test ---- */

static char fake_path[600];

static int fake_listen(int backlog)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(fake_path, sizeof fake_path, "%s/fake.sock", directory);
    snprintf(address.sun_path, sizeof address.sun_path, "%.100s", fake_path);
    CU_ASSERT_EQUAL_FATAL(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    CU_ASSERT_EQUAL_FATAL(listen(listener, backlog), 0);
    return listener;
}

static void fake_end(int listener)
{
    close(listener);
    unlink(fake_path);
}

/* A server that lies: the client reports it and does not crash. */
static void test_lying_server(void)
{
    static const char *const answers[] = {
        "\n",
        "nonsense\n",
        "[]\n",
        "{}\n",
        "{\"ok\":true}\n",
        "{\"ok\":false}\n",
        "{\"ok\":false,\"error\":{\"code\":7,\"message\":\"x\"}}\n",
        "{\"ok\":true",
    };
    json_t *request = json_pack("{s:s}", "command", "echo"), *result = NULL;
    int listener = fake_listen(4);
    char text[100];

    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        struct plx_control_client *client = NULL;
        int fd;

        OK(plx_control_connect(fake_path, 1000, &client, &fault));
        fd = accept(listener, NULL, NULL);
        put(fd, answers[i], strlen(answers[i]));
        shutdown(fd, SHUT_WR);
        FAILS(LOST, plx_control_call(client, request, 1000, &result, &fault));
        CU_ASSERT(recv(fd, text, sizeof text, MSG_DONTWAIT) >= -1);
        close(fd);
        plx_control_disconnect(client);
    }
    CU_ASSERT_PTR_NULL(result);
    fake_end(listener);
    json_decref(request);
}

static sem_t refusing, refused;

/* Reads nothing, and answers nevertheless. */
static void *refuse_unread(void *listener)
{
    static const char answer[] =
        "{\"ok\":false,\"error\":{\"code\":\"NEWER\",\"message\":\"no\"}}\n";
    int fd = accept(*(int *)listener, NULL, NULL);

    shutdown(fd, SHUT_RD);
    sem_post(&refusing);
    usleep(50000); /* the request fails first, mostly; both orders are right */
    put(fd, answer, sizeof answer - 1);
    sem_wait(&refused);
    close(fd);
    return NULL;
}

static void test_answer_before_request(void)
{
    int listener = fake_listen(4);
    struct plx_control_client *client = NULL;
    json_t *result = NULL;
    pthread_t thread;

    sem_init(&refusing, 0, 0);
    sem_init(&refused, 0, 0);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, refuse_unread, &listener), 0);
    OK(plx_control_connect(fake_path, 1000, &client, &fault));
    sem_wait(&refusing);
    FAILS(SYSTEM, call(client, "echo", "", &result)); /* a code that this version does not know */
    CU_ASSERT_STRING_EQUAL(fault.text, "no");
    FAILS(LOST, call(client, "echo", "", &result)); /* CLIENT-1, at once */
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "is gone"));
    plx_control_disconnect(client);
    sem_post(&refused);
    pthread_join(thread, NULL);
    fake_end(listener);
}

static void *answer_without_end(void *listener)
{
    static char bytes[1 << 16];
    int fd = accept(*(int *)listener, NULL, NULL);

    memset(bytes, ' ', sizeof bytes);
    for (size_t sent = 0; sent <= 2 * PLX_CONTROL_LINE_MAX; sent += sizeof bytes)
        put(fd, bytes, sizeof bytes);
    close(fd);
    return NULL;
}

static void test_answer_too_long(void)
{
    int listener = fake_listen(4);
    struct plx_control_client *client = NULL;
    json_t *result = NULL;
    pthread_t thread;

    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, answer_without_end, &listener), 0);
    OK(plx_control_connect(fake_path, 1000, &client, &fault));
    FAILS(LOST, call(client, "echo", "", &result));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "too long an answer"));
    plx_control_disconnect(client);
    pthread_join(thread, NULL);
    fake_end(listener);
}

static void *accept_soon(void *listener)
{
    usleep(50000);
    for (int i = 0; i < 2; i++)
        close(accept(*(int *)listener, NULL, NULL));
    return NULL;
}

/* A server that does not come to accept: waited for, not for ever. */
static void test_full_queue(void)
{
    int listener = fake_listen(0), first, second;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct plx_control_client *client = NULL;
    pthread_t thread;

    snprintf(address.sun_path, sizeof address.sun_path, "%.100s", fake_path);
    first = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    second = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    CU_ASSERT_EQUAL(connect(first, (struct sockaddr *)&address, sizeof address), 0);
    CU_ASSERT_EQUAL(connect(second, (struct sockaddr *)&address, sizeof address), -1);
    CU_ASSERT_EQUAL(errno, EAGAIN);
    FAILS(LOST, plx_control_connect(fake_path, 50, &client, &fault));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "did not take the connection within 50 ms"));
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, accept_soon, &listener), 0);
    OK(plx_control_connect(fake_path, 5000, &client, &fault));
    plx_control_disconnect(client);
    pthread_join(thread, NULL);
    close(first);
    close(second);
    fake_end(listener);
}

/* ---- What the server lacks ---- */

/* A client that goes away with its answer half sent. */
static void test_gone(void)
{
    char *bytes = malloc(PLX_CONTROL_LINE_MAX);

    memset(bytes, 'x', PLX_CONTROL_LINE_MAX);
    memcpy(bytes, "{\"command\":\"echo\",\"value\":\"", 27);
    memcpy(bytes + 900000, "\"}\n", 3);
    for (int i = 0; i < 5; i++) {
        int fd = raw();

        put(fd, bytes, 900003);
        usleep(20000);
        close(fd);
    }
    still_serves();
    free(bytes);
}

static void test_no_descriptors(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), lowest = dup(0);
    struct plx_control_client *client = NULL;
    struct rlimit limit, tight;

    close(lowest);
    getrlimit(RLIMIT_NOFILE, &limit);
    tight = limit;
    tight.rlim_cur = (rlim_t)lowest;
    snprintf(address.sun_path, sizeof address.sun_path, "%.100s", path);
    setrlimit(RLIMIT_NOFILE, &tight);
    CU_ASSERT_EQUAL(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    FAILS(LOST, plx_control_connect(path, 100, &client, &fault));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "Too many open files"));
    usleep(250000); /* it pauses, and tries again */
    setrlimit(RLIMIT_NOFILE, &limit);
    still_serves();
    close(fd);
}

static bool no_thread;

/* The linker sends calls of pthread_create here. */
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*run)(void *argument), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*run)(void *argument), void *argument);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*run)(void *argument), void *argument)
{
    return no_thread ? EAGAIN : __real_pthread_create(thread, attributes, run, argument);
}

static void cannot_start(const char *at, int code, const char *word)
{
    struct plx_control_options options = {.path = at, .handle = handle, .context = &served};
    struct plx_control_server *none = NULL;

    CU_ASSERT_EQUAL(plx_control_start(&options, &none, &fault), code);
    CU_ASSERT_PTR_NULL(none);
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, word));
}

static void test_cannot_start(void)
{
    char far[600], name[600];
    uint64_t failed = 1;

    snprintf(name, sizeof name, "%s/new.sock", directory);
    no_thread = true;
    cannot_start(name, PLX_ERR_SYSTEM, "cannot start the control thread");
    no_thread = false;
    CU_ASSERT_NOT_EQUAL(access(name, F_OK), 0);
    for (uint64_t k = 1; failed; k++) {
        struct plx_control_options options = {.path = name, .handle = handle, .context = &served};
        struct plx_control_server *started = NULL;
        int code;

        fault_alloc_arm(k, false);
        code = plx_control_start(&options, &started, &fault);
        fault_alloc_disarm(&failed);
        CU_ASSERT_EQUAL(code, failed ? PLX_ERR_NOMEM : 0);
        plx_control_stop(started);
        CU_ASSERT_NOT_EQUAL(access(name, F_OK), 0);
    }
    snprintf(name, sizeof name, "%s/nothing/1.sock", directory);
    cannot_start(name, PLX_ERR_SYSTEM, "No such file or directory");
    snprintf(far, sizeof far, "%s/%0120d/1.sock", directory, 7);
    cannot_start(far, PLX_ERR_NOT_FOUND, "no directory");
    snprintf(far, sizeof far, "%s/%0120d", directory, 7);
    cannot_start(far, PLX_ERR_INVALID, "its path is too long");
}

static void test_cannot_connect(void)
{
    struct plx_control_client *client = NULL;
    char far[600];
    uint64_t failed = 1;

    snprintf(far, sizeof far, "%s/%0120d/1.sock", directory, 7);
    FAILS(NOT_FOUND, plx_control_connect(far, 100, &client, &fault));
    snprintf(far, sizeof far, "%0120d", 7);
    FAILS(NOT_FOUND, plx_control_connect(far, 100, &client, &fault));
    for (uint64_t k = 1; failed; k++) {
        json_t *result = NULL;
        int code;

        client = NULL;
        fault_alloc_arm(k, false);
        code = plx_control_connect(path, 1000, &client, &fault);
        if (!code)
            code = call(client, "echo", "hello", &result);
        fault_alloc_disarm(&failed);
        CU_ASSERT_EQUAL(failed > 0, code != 0);
        CU_ASSERT(!code || strstr(fault.text, "memory"));
        plx_control_disconnect(client);
        json_decref(result);
    }
}

/* Another user is told no, even if the file's mode would let it in. */
static void test_stranger(void)
{
    int status;
    pid_t child;

    if (geteuid() != 0) {
        PART_SKIPPED("only root can play another user");
        return;
    }
    child = fork();
    if (child == 0) {
        struct plx_control_client *client;

        _exit(setresuid(65534, 65534, 65534) ||
              plx_control_connect(path, 100, &client, &fault) != PLX_ERR_PERMISSION ||
              !strstr(fault.text, "Permission denied"));
    }
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    CU_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    chmod(path, 0666);
    child = fork();
    if (child == 0) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        char text[512] = "";
        int fd;

        if (setresuid(65534, 65534, 65534))
            _exit(1);
        snprintf(address.sun_path, sizeof address.sun_path, "%.100s", path);
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (struct sockaddr *)&address, sizeof address))
            _exit(2);
        _exit(drain(fd, text, sizeof text) && strstr(text, "\"PERMISSION\"") ? 0 : 3);
    }
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    CU_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    still_serves();
}

static void test_start_stop(void)
{
    for (int i = 0; i < 100; i++) {
        int fd = raw();

        put(fd, "{\"command\"", 10);
        plx_control_stop(server);
        start();
        close(fd);
    }
    plx_control_stop(NULL);
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"calls", test_calls},
        {"nobody there", test_nobody},
        {"stale socket", test_stale_socket},
        {"long path", test_long_path},
        {"garbage", test_garbage},
        {"oversize", test_oversize},
        {"slow clients", test_slow},
        {"several requests at once", test_pipelined},
        {"too many clients", test_crowd},
        {"who gives way", test_gives_way},
        {"many clients at once", test_many},
        {"timeouts", test_timeout},
        {"a server that lies", test_lying_server},
        {"an answer before the request was read", test_answer_before_request},
        {"an answer that is too long", test_answer_too_long},
        {"a server that does not accept", test_full_queue},
        {"a client that is gone", test_gone},
        {"no descriptors", test_no_descriptors},
        {"servers that cannot start", test_cannot_start},
        {"clients that cannot connect", test_cannot_connect},
        {"a stranger", test_stranger},
        {"start and stop", test_start_stop},
    };
    const struct suite_frame frame = {.before = setup, .after = teardown};

    return SUITE_RUN_IN(&frame, "control", tests);
}
