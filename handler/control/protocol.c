/* protocol.c - lines, messages and addresses, for both ends of the control socket.
 *
 * PROTOCOL-1  A buffer never holds more than PLX_CONTROL_LINE_MAX bytes, whatever the peer sends.
 *     So no peer can use up the memory.
 * PROTOCOL-2  Every byte from a peer passes plx_message_parse() before it is used, because peers
 *     are not trusted.
 *
 * Threads: any, each on its own objects.
 * Crash story: nothing here lasts.
 */
#include "control/protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/plain.h"

/* ---- Buffers ----------------------------------------------------------------------------- */

void plx_buffer_done(struct plx_buffer *buffer)
{
    free(buffer->bytes);
    *buffer = (struct plx_buffer){0};
}

void plx_buffer_drop(struct plx_buffer *buffer, size_t count)
{
    PLX_ASSERT(count <= buffer->used);
    buffer->used -= count;
    if (buffer->used)
        memmove(buffer->bytes, buffer->bytes + count, buffer->used);
}

static int reserve(struct plx_buffer *buffer)
{
    size_t room = buffer->room ? 2 * buffer->room : 4096;
    char *bytes;

    if (buffer->used < buffer->room)
        return 0;
    if (room > PLX_CONTROL_LINE_MAX) /* PROTOCOL-1 */
        return PLX_ERR_INVALID;
    bytes = realloc(buffer->bytes, room);
    if (!bytes)
        return PLX_ERR_NOMEM;
    buffer->bytes = bytes;
    buffer->room = room;
    return 0;
}

int plx_buffer_receive(struct plx_buffer *buffer, int fd)
{
    int code = reserve(buffer);
    ssize_t got;

    if (code)
        return code;
    got = recv(fd, buffer->bytes + buffer->used, buffer->room - buffer->used, MSG_DONTWAIT);
    if (got > 0)
        buffer->used += (size_t)got;
    else if (got == 0 || (errno != EAGAIN && errno != EINTR))
        return PLX_ERR_LOST;
    return 0;
}

int plx_buffer_send(struct plx_buffer *buffer, int fd)
{
    ssize_t put = send(fd, buffer->bytes, buffer->used, MSG_DONTWAIT | MSG_NOSIGNAL);

    if (put > 0)
        plx_buffer_drop(buffer, (size_t)put);
    else if (put < 0 && errno != EAGAIN && errno != EINTR)
        return PLX_ERR_LOST;
    return 0;
}

size_t plx_buffer_line(const struct plx_buffer *buffer)
{
    const char *end = buffer->used ? memchr(buffer->bytes, '\n', buffer->used) : NULL;

    return end ? (size_t)(end - buffer->bytes) + 1 : 0;
}

/* ---- Messages ---------------------------------------------------------------------------- */

/* PROTOCOL-2 */
json_t *plx_message_parse(const char *line, size_t length, char *why, size_t size)
{
    json_error_t error;
    json_t *message = json_loadb(line, length, JSON_REJECT_DUPLICATES, &error);

    if (!message) {
        snprintf(why, size, "not a JSON object: %s", error.text);
    } else if (!json_is_object(message)) {
        snprintf(why, size, "not a JSON object");
        json_decref(message);
        message = NULL;
    }
    return message;
}

int plx_message_put(struct plx_buffer *buffer, const json_t *message)
{
    char *text = json_dumps(message, JSON_COMPACT);
    size_t length;

    PLX_ASSERT(buffer->used == 0);
    if (!text)
        return PLX_ERR_NOMEM;
    length = strlen(text);
    if (length >= PLX_CONTROL_LINE_MAX) {
        free(text);
        return PLX_ERR_INVALID;
    }
    text[length++] = '\n'; /* replaces the terminating 0: a buffer has a length instead */
    free(buffer->bytes);
    *buffer = (struct plx_buffer){text, length, length};
    return 0;
}

json_t *plx_message_result(json_t *result)
{
    return json_pack("{s:b, s:o}", "ok", 1, "result", result ? result : json_null());
}

json_t *plx_message_error(int code, const char *text)
{
    char plain[4 * PLX_CONTROL_MESSAGE];
    json_t *message = json_string(text);

    if (!message) /* the text holds a name that is not UTF-8 */
        message = json_string(plx_plain(text, plain, sizeof plain));
    return json_pack("{s:b, s:{s:s, s:o}}", "ok", 0, "error", "code", plx_error_name(code),
                     "message", message);
}

int plx_message_unpack(const json_t *response, json_t **ret_result, struct plx_fault *fault)
{
    const json_t *ok = json_object_get(response, "ok");
    json_t *result = json_object_get(response, "result");
    const json_t *error = json_object_get(response, "error");
    const char *code = json_string_value(json_object_get(error, "code"));
    const char *message = json_string_value(json_object_get(error, "message"));

    if (json_is_true(ok) && result) {
        *ret_result = json_incref(result);
        return 0;
    }
    if (json_is_false(ok) && code && message)
        return plx_fault_set(fault, plx_error_code(code), "%s", message);
    return plx_fault_set(fault, PLX_ERR_LOST,
                         "the handler's answer was not understood; is it of "
                         "this version?");
}

/* ---- Addresses and time ------------------------------------------------------------------ */

int plx_socket_address(const char *path, struct sockaddr_un *ret_address, int *ret_fd)
{
    const char *slash = strrchr(path, '/');
    char directory[4096];
    int fd, length;

    memset(ret_address, 0, sizeof *ret_address);
    ret_address->sun_family = AF_UNIX;
    if (strlen(path) < sizeof ret_address->sun_path) {
        strcpy(ret_address->sun_path, path);
        *ret_fd = -1;
        return 0;
    }
    if (!slash || slash == path || (size_t)(slash - path) >= sizeof directory)
        return PLX_ERR_INVALID;
    memcpy(directory, path, (size_t)(slash - path));
    directory[slash - path] = 0;
    fd = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return PLX_ERR_NOT_FOUND;
    length = snprintf(ret_address->sun_path, sizeof ret_address->sun_path, "/proc/self/fd/%d/%s",
                      fd, slash + 1);
    if (length >= (int)sizeof ret_address->sun_path) {
        close(fd);
        return PLX_ERR_INVALID;
    }
    *ret_fd = fd;
    return 0;
}

uint64_t plx_monotonic_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}
