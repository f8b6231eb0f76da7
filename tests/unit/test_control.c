/* test_control.c - the control socket: requests, errors, hostile and slow clients. */
#include <CUnit/Basic.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "control/control.h"
#include "control/protocol.h"

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

static void start(void)
{
    struct plx_control_options options = {.path = path,
                                          .handle = handle,
                                          .context = &served,
                                          .clients_max = CLIENTS_MAX,
                                          .timeout_ms = TIMEOUT_MS};

    OK(plx_control_start(&options, &server, &fault));
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

static void test_crowd(void)
{
    int fds[CLIENTS_MAX], extra;
    char text[4096];

    for (int i = 0; i < CLIENTS_MAX; i++)
        fds[i] = raw();
    extra = raw();
    CU_ASSERT(drain(extra, text, sizeof text));
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "\"BUSY\""));
    close(extra);
    for (int i = 0; i < CLIENTS_MAX; i++)
        close(fds[i]);
    still_serves();
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
    FAILS(LOST, plx_control_call(client, request, 1000, &result, &fault)); /* K1 */
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
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    json_t *request = json_pack("{s:s}", "command", "echo"), *result = NULL;
    char lie[600], text[100];
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(lie, sizeof lie, "%s/lie.sock", directory);
    snprintf(address.sun_path, sizeof address.sun_path, "%.100s", lie);
    CU_ASSERT_EQUAL_FATAL(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    CU_ASSERT_EQUAL_FATAL(listen(listener, 4), 0);
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        struct plx_control_client *client = NULL;
        int fd;

        OK(plx_control_connect(lie, 1000, &client, &fault));
        fd = accept(listener, NULL, NULL);
        put(fd, answers[i], strlen(answers[i]));
        shutdown(fd, SHUT_WR);
        FAILS(LOST, plx_control_call(client, request, 1000, &result, &fault));
        CU_ASSERT(recv(fd, text, sizeof text, MSG_DONTWAIT) >= -1);
        close(fd);
        plx_control_disconnect(client);
    }
    CU_ASSERT_PTR_NULL(result);
    close(listener);
    unlink(lie);
    json_decref(request);
}

/* Another user is told no, even if the file's mode would let it in. */
static void test_stranger(void)
{
    int status;
    pid_t child;

    if (geteuid() != 0) {
        CU_PASS("only root can play another user");
        return;
    }
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
    static const struct {
        const char *name;
        void (*test)(void);
    } tests[] = {
        {"calls", test_calls},
        {"nobody there", test_nobody},
        {"stale socket", test_stale_socket},
        {"long path", test_long_path},
        {"garbage", test_garbage},
        {"oversize", test_oversize},
        {"slow clients", test_slow},
        {"several requests at once", test_pipelined},
        {"too many clients", test_crowd},
        {"many clients at once", test_many},
        {"timeouts", test_timeout},
        {"a server that lies", test_lying_server},
        {"a stranger", test_stranger},
        {"start and stop", test_start_stop},
    };
    CU_pSuite suite;
    unsigned failures;

    if (CU_initialize_registry() != CUE_SUCCESS)
        return 1;
    suite = CU_add_suite_with_setup_and_teardown("control", NULL, NULL, setup, teardown);
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
        CU_add_test(suite, tests[i].name, tests[i].test);
    CU_basic_set_mode(CU_BRM_VERBOSE);
    CU_basic_run_tests();
    failures = CU_get_number_of_failures();
    CU_cleanup_registry();
    return failures ? 1 : 0;
}
