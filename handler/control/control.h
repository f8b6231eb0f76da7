/* control.h - the control socket, through which the admin command talks to a live engine.
 *
 * The protocol is JSON lines over a unix socket. A request is one line: a JSON object with a string
 * "command". The response is one line, too:
 *
 *   {"command": "snapshot", "vdi": "web"}
 *   {"ok": true, "result": {...}}
 *   {"ok": false, "error": {"code": "BUSY", "message": "VDI 'web' is ..."}}
 *
 * Codes are the names of error.def. Requests of one connection are answered in order. No line is
 * longer than PLX_CONTROL_LINE_MAX. Neither end trusts what it reads from the socket.
 *
 *   server   plx_control_start() with a function that answers requests ... plx_control_stop()
 *   client   plx_control_connect(), plx_control_call() any number of times,
 *            plx_control_disconnect()
 */
#ifndef PLX_CONTROL_H
#define PLX_CONTROL_H

#include <jansson.h>
#include <stddef.h>

#include "engine/base/error.h"

#define PLX_CONTROL_LINE_MAX (1u << 20) /* bytes, the newline included */
#define PLX_CONTROL_MESSAGE 512         /* bytes of an error message */

/* ---- The server: one thread of its own, many clients ------------------------------------- */

struct plx_control_server;

struct plx_control_options {
    const char *path; /* of the socket, which is made with mode 0600 */
    /* Answers one request, on the server's thread. Returns 0 with a new reference in *ret_result
     * (or NULL for none), or a negative code with a message. Other clients wait meanwhile. */
    int (*handle)(void *context, json_t *request, json_t **ret_result, char *message, size_t size);
    void *context;
    unsigned clients_max; /* 0: 32; beyond that the client that is idle longest gives way */
    unsigned timeout_ms;  /* for a client to send a whole request, or take a response; 0: 5000 */
};

/* Only root and the server's own user may connect. Replaces the socket file of a dead server. BUSY:
 * a live server answers there. */
int plx_control_start(const struct plx_control_options *options,
                      struct plx_control_server **ret_server, struct plx_fault *fault);
/* Ends the thread after the request that it answers, and removes the socket. NULL is allowed. Not
 * to be called from handle. */
void plx_control_stop(struct plx_control_server *server);

/* ---- The client: synchronous, one thread at a time ---------------------------------------- */

struct plx_control_client;

/* NOT_FOUND: no server listens at path. */
int plx_control_connect(const char *path, unsigned timeout_ms,
                        struct plx_control_client **ret_client, struct plx_fault *fault);
/* Sends the request and waits for the answer. Returns 0 with a new reference in *ret_result (JSON
 * null for none), or the server's error. LOST: the connection has failed, and every further call
 * fails as well. */
int plx_control_call(struct plx_control_client *client, json_t *request, unsigned timeout_ms,
                     json_t **ret_result, struct plx_fault *fault);
void plx_control_disconnect(struct plx_control_client *client); /* NULL is allowed */

#endif
