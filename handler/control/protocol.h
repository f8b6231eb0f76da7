/* protocol.h - lines, messages and addresses, for both ends of the control socket. Private to
 * handler/control. */
#ifndef PLX_PROTOCOL_H
#define PLX_PROTOCOL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/un.h>

#include "control/control.h"

/* Bytes that were received and not used yet, or that are to be sent. Grows up to
 * PLX_CONTROL_LINE_MAX. */
struct plx_buffer {
    char *bytes;
    size_t used, room;
};

void plx_buffer_done(struct plx_buffer *buffer);
void plx_buffer_drop(struct plx_buffer *buffer, size_t count); /* removes bytes from its start */

/* One recv() or send(), which never blocks. Returns 0 for progress or "would block"; LOST: the peer
 * is gone; INVALID: the line that is being received is too long. */
int plx_buffer_receive(struct plx_buffer *buffer, int fd);
int plx_buffer_send(struct plx_buffer *buffer, int fd);
/* The length of the first line with its newline; 0: there is no whole line. */
size_t plx_buffer_line(const struct plx_buffer *buffer);

/* Parses a line as a JSON object. NULL: it is none, and `why` says why. */
json_t *plx_message_parse(const char *line, size_t length, char *why, size_t size);
/* Puts a message and a newline into an empty buffer. NOMEM; INVALID: it is too long. */
int plx_message_put(struct plx_buffer *buffer, const json_t *message);
/* Make a response. plx_message_result() takes over the reference to result, which may be NULL. Both
 * return NULL only if memory is out. */
json_t *plx_message_result(json_t *result);
json_t *plx_message_error(int code, const char *text);
/* Unpacks a response: returns 0 and a new reference to its result, or its error. */
int plx_message_unpack(const json_t *response, json_t **ret_result, struct plx_fault *fault);

/* The address of a socket whose path may be longer than an address can be: such a path is reached
 * through its open directory. The caller closes *ret_fd, unless it is -1, after bind or connect. */
int plx_socket_address(const char *path, struct sockaddr_un *ret_address, int *ret_fd);

uint64_t plx_monotonic_ms(void);

#endif
