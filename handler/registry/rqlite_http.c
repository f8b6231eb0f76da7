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

static int keep_address(struct plx_nodes *nodes, const char *address, struct plx_fault *fault)
{
    size_t length = strlen(address);
    bool web = !strncmp(address, "http://", 7) || !strncmp(address, "https://", 8);

    while (length && address[length - 1] == '/')
        length--;
    if (!web || strpbrk(address, "?# ") || length >= ADDRESS_BYTES || length <= strlen("https://"))
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "'%.60s' is no address of an rqlite node: http://HOST:PORT or "
                             "https://HOST:PORT",
                             strchr(address, '@') ? "..." : address);
    snprintf(nodes->address[nodes->count++], ADDRESS_BYTES, "%.*s", (int)length, address);
    return 0;
}

static bool set_up(struct plx_nodes *nodes)
{
    CURL *curl = nodes->curl;
    struct curl_slist *more;

    nodes->headers = curl_slist_append(NULL, "Content-Type: application/json");
    if (!nodes->headers)
        return false;
    more = curl_slist_append(nodes->headers, "Expect:"); /* no pause for a 100 Continue */
    return more && !curl_easy_setopt(curl, CURLOPT_HTTPHEADER, nodes->headers) &&
           !curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L) &&
           !curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https") &&
           !curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L) &&
           !curl_easy_setopt(curl, CURLOPT_PROXY, "") && /* whatever the environment says */
           !curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1) &&
           !curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take);
}

int plx_nodes_open(const char *const *addresses, size_t count, struct plx_nodes *nodes,
                   struct plx_fault *fault)
{
    int code = 0;

    *nodes = (struct plx_nodes){0};
    if (!count || count > ADDRESSES)
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "%zu addresses of rqlite nodes: there must be 1 to %u", count,
                             ADDRESSES);
    for (size_t i = 0; i < count && !code; i++)
        code = keep_address(nodes, addresses[i], fault);
    if (code)
        return code;
    nodes->curl = curl_easy_init();
    if (!nodes->curl || !set_up(nodes)) {
        plx_nodes_close(nodes);
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory opening the registry");
    }
    return 0;
}

void plx_nodes_close(struct plx_nodes *nodes)
{
    curl_easy_cleanup(nodes->curl);
    curl_slist_free_all(nodes->headers);
    *nodes = (struct plx_nodes){0};
}

const char *plx_nodes_name(const struct plx_nodes *nodes)
{
    const char *address = nodes->address[nodes->at], *behind = strrchr(address, '@');

    return behind ? behind + 1 : address;
}

static CURLcode perform(struct plx_nodes *nodes, const char *path, const char *body,
                        uint64_t wait_ms, struct body *taken)
{
    char url[ADDRESS_BYTES + 128];
    CURL *curl = nodes->curl;
    CURLcode result;

    snprintf(url, sizeof url, "%s%s", nodes->address[nodes->at], path);
    result = curl_easy_setopt(curl, CURLOPT_URL, url);
    if (!result)
        result = curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)wait_ms);
    if (!result)
        result = curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS,
                                  (long)plx_min_u64(CONNECT_MS, wait_ms));
    if (!result)
        result = curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(body));
    if (!result)
        result = curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
    if (!result)
        result = curl_easy_setopt(curl, CURLOPT_WRITEDATA, taken);
    return result ? result : curl_easy_perform(curl);
}

/* What an answer's status says; its body is a text for people then. */
static enum plx_reply judge(const struct plx_nodes *nodes, long status, const char *text,
                            struct plx_fault *fault)
{
    char plain[100];

    if (status == 200)
        return PLX_REPLY;
    plx_answer_plain(text ? text : "", plain, sizeof plain);
    plx_fault_set(fault, PLX_ERR_REGISTRY, "the registry's node %.100s answers %ld: %s",
                  plx_nodes_name(nodes), status, plain);
    return status >= 500 ? PLX_REPLY_NONE : PLX_REPLY_STRANGE;
}

enum plx_reply plx_nodes_post(struct plx_nodes *nodes, const char *path, const char *body,
                              uint64_t wait_ms, char **ret_text, size_t *ret_size, bool *ret_again,
                              struct plx_fault *fault)
{
    struct body taken = {0};
    long status = 0, connects = 0;
    enum plx_reply reply = PLX_REPLY_NONE;
    CURLcode result = perform(nodes, path, body, wait_ms, &taken);

    curl_easy_getinfo(nodes->curl, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(nodes->curl, CURLINFO_NUM_CONNECTS, &connects);
    /* When a connection that was open breaks before the first byte of an answer, curl connects anew
     * and sends the request once more. */
    *ret_again = nodes->warm && connects > 0;
    if (!result)
        reply = judge(nodes, status, taken.text, fault);
    else if (taken.too_long)
        plx_fault_set(fault, PLX_ERR_REGISTRY,
                      "the registry's node %.100s answers with more than %zu MiB",
                      plx_nodes_name(nodes), ANSWER_BYTES >> 20);
    else
        plx_fault_set(fault, PLX_ERR_REGISTRY, "the registry's node %.100s does not answer: %.100s",
                      plx_nodes_name(nodes),
                      taken.nomem ? "out of memory" : curl_easy_strerror(result));
    nodes->warm = true;
    if (reply == PLX_REPLY) {
        *ret_text = taken.text;
        *ret_size = taken.size;
        return reply;
    }
    free(taken.text);
    return taken.too_long ? PLX_REPLY_STRANGE : reply;
}
