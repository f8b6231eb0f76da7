/* fuzz_control.c - the control socket: any bytes as a message, to a server, and from a server.
 *
 * The first byte says which of the three. A server lives as long as the process and must answer
 * every whole line, whatever came before; what it answers is a message. The client's side is given
 * the rest of the input as the answer to a call.
 */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control/protocol.h"
#include "fuzz.h"

static char folder[] = "/tmp/plx-fuzz-control-XXXXXX", served[64], faked[64];
static struct plx_control_server *server;
static int listener = -1;

/* Some commands fail, some have results; messages are made of what was sent. */
static int handle(void *context, json_t *request, json_t **ret_result, char *message, size_t size)
{
    const char *command = json_string_value(json_object_get(request, "command"));

    FUZZ_CHECK(command);
    if (command[0] == 'f') {
        snprintf(message, size, "%s", command);
        return PLX_ERR_BUSY;
    }
    if (command[0] == 'e')
        *ret_result = json_incref(request);
    return 0;
}

static void clean_up(void)
{
    plx_control_stop(server);
    close(listener);
    unlink(faked);
    rmdir(folder);
}

static int listen_at(const char *path)
{
    struct sockaddr_un address;
    int extra, fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    FUZZ_CHECK(plx_socket_address(path, &address, &extra) == 0 && extra == -1);
    FUZZ_CHECK(bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 8) == 0);
    return fd;
}

PLX_FUZZ_EXPORT int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    struct plx_control_options options = {.path = served, .handle = handle};

    FUZZ_CHECK(mkdtemp(folder));
    snprintf(served, sizeof served, "%s/server", folder);
    snprintf(faked, sizeof faked, "%s/faked", folder);
    FUZZ_CHECK(plx_control_start(&options, &server, NULL) == 0);
    listener = listen_at(faked);
    atexit(clean_up);
    return 0;
}

static void message(const uint8_t *bytes, size_t count)
{
    char why[200] = "";
    struct plx_buffer buffer = {0};
    struct plx_fault fault;
    json_t *parsed = plx_message_parse((const char *)bytes, count, why, sizeof why);
    json_t *result = NULL, *again;

    if (!parsed) {
        FUZZ_CHECK(why[0]);
        return;
    }
    if (plx_message_unpack(parsed, &result, &fault) == 0)
        json_decref(result);
    if (plx_message_put(&buffer, parsed) == 0) {
        FUZZ_CHECK(plx_buffer_line(&buffer) == buffer.used);
        again = plx_message_parse(buffer.bytes, buffer.used, why, sizeof why);
        FUZZ_CHECK(again && json_equal(parsed, again));
        json_decref(again);
    }
    plx_buffer_done(&buffer);
    json_decref(parsed);
}

static void send_all(int fd, const uint8_t *bytes, size_t count)
{
    while (count) {
        ssize_t put = send(fd, bytes, count, MSG_NOSIGNAL);

        if (put <= 0)
            return; /* the server has had enough */
        bytes += put;
        count -= (size_t)put;
    }
}

/* Reads to the end; every line must be an answer. */
static void read_answers(int fd)
{
    struct plx_buffer buffer = {0};
    ssize_t got;
    size_t room = 1u << 20, length;

    buffer.bytes = malloc(room);
    while ((got = recv(fd, buffer.bytes + buffer.used, room - buffer.used, 0)) > 0) {
        buffer.used += (size_t)got;
        while ((length = plx_buffer_line(&buffer)) > 0) {
            char why[200];
            json_t *answer = plx_message_parse(buffer.bytes, length, why, sizeof why);

            FUZZ_CHECK(answer && json_is_boolean(json_object_get(answer, "ok")));
            json_decref(answer);
            plx_buffer_drop(&buffer, length);
        }
    }
    plx_buffer_done(&buffer);
}

static void to_server(struct fuzz_input *input)
{
    unsigned pieces = (unsigned)fuzz_take(input, 1) % 4;
    struct sockaddr_un address;
    int extra, fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    FUZZ_CHECK(plx_socket_address(served, &address, &extra) == 0);
    FUZZ_CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    for (; pieces && input->left; pieces--) {
        size_t now = fuzz_take(input, 1);

        now = plx_min_u64(now, input->left);
        send_all(fd, input->at, now);
        input->at += now;
        input->left -= now;
    }
    send_all(fd, input->at, input->left);
    shutdown(fd, SHUT_WR);
    read_answers(fd);
    close(fd);
}

static void from_server(const struct fuzz_input *input)
{
    struct plx_control_client *client;
    struct plx_fault fault;
    json_t *request = json_pack("{s:s}", "command", "info"), *result = NULL;
    int fd, error;

    FUZZ_CHECK(plx_control_connect(faked, 1000, &client, NULL) == 0);
    fd = accept(listener, NULL, NULL);
    FUZZ_CHECK(fd >= 0);
    send_all(fd, input->at, input->left);
    shutdown(fd, SHUT_WR);
    for (unsigned i = 0; i < 3; i++) {
        error = plx_control_call(client, request, 1000, &result, &fault);
        FUZZ_CHECK(error || result);
        if (!error)
            json_decref(result);
    }
    plx_control_disconnect(client);
    close(fd);
    json_decref(request);
}

PLX_FUZZ_EXPORT int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct fuzz_input input = {bytes, count};

    switch (fuzz_take(&input, 1) % 3) {
    case 0:
        message(input.at, input.left);
        break;
    case 1:
        to_server(&input);
        break;
    default:
        from_server(&input);
        break;
    }
    return 0;
}
