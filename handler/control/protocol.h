/* protocol.h - lines, messages and addresses, for both ends. Private to handler/control. */
#ifndef PLX_PROTOCOL_H
#define PLX_PROTOCOL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/un.h>

#include "control/control.h"

/* Bytes received and not yet used, or to be sent. Grows as needed, to PLX_CONTROL_LINE_MAX. */
struct plx_buffer {
    char *bytes;
    size_t used, room;
};

void plx_buffer_done(struct plx_buffer *buffer);
void plx_buffer_drop(struct plx_buffer *buffer, size_t count); /* from its start */

/* One recv() or send(), never blocking: 0 for progress or "would block", LOST when the peer is
 * gone, INVALID when more than a line's length is waiting for its newline. */
int plx_buffer_receive(struct plx_buffer *buffer, int fd);
int plx_buffer_send(struct plx_buffer *buffer, int fd);
/* The length of the first line with its newline, 0: there is no whole line. */
size_t plx_buffer_line(const struct plx_buffer *buffer);

/* Parses a line as a JSON object; NULL and why when it is none. */
json_t *plx_message_parse(const char *line, size_t length, char *why, size_t size);
/* Puts a message and a newline into an empty buffer: NOMEM, INVALID when it is too long. */
int plx_message_put(struct plx_buffer *buffer, const json_t *message);
/* Steals result (may be NULL). They return NULL only when memory is out. */
json_t *plx_message_result(json_t *result);
json_t *plx_message_error(int code, const char *text);
/* What a response says: 0 and a new reference, or its error. */
int plx_message_unpack(const json_t *response, json_t **ret_result, struct plx_fault *fault);

/* The address of a path of any length. *ret_fd is to be closed (if not -1) after bind or connect:
 * a long path is reached through its open directory. */
int plx_socket_address(const char *path, struct sockaddr_un *ret_address, int *ret_fd);

uint64_t plx_monotonic_ms(void);

#endif
