/* rqlite_http.c - one attempt to reach one of several rqlite nodes (RQLITE-1, RQLITE-8).
 *
 * Whatever is no answer to the end counts as an attempt of which nobody knows what became: also a
 * connection that could not be made, for curl may have sent the request before on an older one.
 * Threads: one at a time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "registry/rqlite_inside.h"

struct body {
    char *text;
    size_t size, room;
    bool too_long, nomem;
};

/* RQLITE-8: called by curl with each piece of an answer. Taking less than it has ends the attempt.
 */
static size_t take(char *bytes, size_t one, size_t count, void *context)
{
    struct body *body = context;
    size_t needed = body->size + count + 1;
    char *longer = body->text;

    body->too_long = count > ANSWER_BYTES - body->size;
    if (body->too_long)
        return 0;
    if (needed > body->room) {
        longer = realloc(body->text, 2 * needed);
        body->nomem = !longer;
        if (!longer)
            return 0;
        body->text = longer;
        body->room = 2 * needed;
    }
    memcpy(longer + body->size, bytes, count);
    body->size += count;
    longer[body->size] = '\0';
    return count;
}

static CURLcode perform(struct plx_nodes *nodes, const char *path, const char *body,
                        uint64_t wait_ms, struct body *taken)
{
    const uint64_t connect_ms = nodes->tls ? CONNECT_TLS_MS : CONNECT_MS;
    char url[ADDRESS_BYTES + 128];
    CURL *curl = nodes->curl;
    CURLcode result;

    nodes->said[0] = '\0';
    snprintf(url, sizeof url, "%s%s", nodes->address[nodes->at], path);
    result = plx_libcurl.easy_setopt(curl, CURLOPT_URL, url);
    if (!result)
        result = plx_libcurl.easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)wait_ms);
    if (!result)
        result = plx_libcurl.easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS,
                                         (long)plx_min_u64(connect_ms, wait_ms));
    if (!result)
        result =
            plx_libcurl.easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(body));
    if (!result)
        result = plx_libcurl.easy_setopt(curl, CURLOPT_POSTFIELDS, body);
    if (!result)
        result = plx_libcurl.easy_setopt(curl, CURLOPT_WRITEFUNCTION, take);
    if (!result)
        result = plx_libcurl.easy_setopt(curl, CURLOPT_WRITEDATA, taken);
    return result ? result : plx_libcurl.easy_perform(curl);
}

enum plx_reply plx_nodes_post(struct plx_nodes *nodes, const char *path, const char *body,
                              uint64_t wait_ms, char **ret_text, size_t *ret_size, bool *ret_again,
                              struct plx_fault *fault)
{
    struct body taken = {0};
    long status = 0, connects = 0;
    enum plx_reply reply = PLX_REPLY_NONE;
    CURLcode result = perform(nodes, path, body, wait_ms, &taken);

    plx_libcurl.easy_getinfo(nodes->curl, CURLINFO_RESPONSE_CODE, &status);
    plx_libcurl.easy_getinfo(nodes->curl, CURLINFO_NUM_CONNECTS, &connects);
    /* When a connection that was open breaks before the first byte of an answer, curl connects anew
     * and sends the request once more. */
    *ret_again = nodes->warm && connects > 0;
    if (taken.too_long)
        plx_fault_set(fault, PLX_ERR_REGISTRY,
                      "the registry's node %.100s answers with more than %zu MiB",
                      plx_nodes_name(nodes), ANSWER_BYTES >> 20);
    else if (taken.nomem)
        plx_fault_set(fault, PLX_ERR_REGISTRY, "out of memory asking the registry's node %.100s",
                      plx_nodes_name(nodes));
    else if (!result || status >= 400) /* also if its words end early */
        reply = plx_nodes_judge(nodes, status, taken.text, fault);
    else
        reply = plx_nodes_failed(nodes, result, fault);
    nodes->warm = true;
    if (reply == PLX_REPLY) {
        *ret_text = taken.text;
        *ret_size = taken.size;
        return reply;
    }
    free(taken.text);
    return taken.too_long ? PLX_REPLY_STRANGE : reply;
}
