/* rqlite_access.c - which nodes are asked, who may answer as one of them, and as whom we ask
 * (RQLITE-11, RQLITE-12).
 *
 * Threads: one at a time.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/small_file.h"
#include "registry/rqlite_inside.h"

#define PASSWORD_BYTES 255u
#define FILE_BYTES ((size_t)1 << 20) /* of certificates and keys */

/* ---- Addresses --------------------------------------------------------------------------- */

/* What an address says. */
struct parsed {
    bool tls, local; /* local: this machine's loopback device */
};

static bool is_local(const char *host)
{
    struct in6_addr six;
    struct in_addr four;
    char bare[64];

    if (!strcmp(host, "localhost")) /* libcurl asks nobody where that is */
        return true;
    if (inet_pton(AF_INET, host, &four) == 1)
        return ntohl(four.s_addr) >> 24 == 127;
    snprintf(bare, sizeof bare, "%.*s", (int)strcspn(host + (*host == '['), "]"),
             host + (*host == '['));
    return inet_pton(AF_INET6, bare, &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

/* As libcurl will read it. */
static bool parse(const char *address, struct parsed *ret)
{
    char *scheme = NULL, *host = NULL, *path = NULL;
    CURLU *url = plx_libcurl.url();
    bool good = url && !plx_libcurl.url_set(url, CURLUPART_URL, address, 0) &&
                !plx_libcurl.url_get(url, CURLUPART_SCHEME, &scheme, 0) &&
                !plx_libcurl.url_get(url, CURLUPART_HOST, &host, 0) &&
                !plx_libcurl.url_get(url, CURLUPART_PATH, &path, 0);

    if (good) {
        ret->tls = !strcmp(scheme, "https");
        ret->local = is_local(host);
        good = (ret->tls || !strcmp(scheme, "http")) && !strcmp(path, "/");
    }
    plx_libcurl.free(scheme);
    plx_libcurl.free(host);
    plx_libcurl.free(path);
    plx_libcurl.url_cleanup(url);
    return good;
}

static int keep_address(struct plx_nodes *nodes, const char *address, struct parsed *ret,
                        struct plx_fault *fault)
{
    size_t length = strlen(address);

    if (strchr(address, '@')) /* RQLITE-12: it is not repeated */
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "an address of the registry's nodes has a user or a password in it, "
                             "which every message would show: give the user, and a file with the "
                             "password, apart from the addresses");
    if (strpbrk(address, "?# ") || length >= ADDRESS_BYTES || !parse(address, ret))
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "'%.60s' is no address of an rqlite node: https://HOST:PORT or "
                             "http://HOST:PORT",
                             address);
    while (address[length - 1] == '/')
        length--;
    snprintf(nodes->address[nodes->count++], ADDRESS_BYTES, "%.*s", (int)length, address);
    return 0;
}

static int keep_addresses(struct plx_nodes *nodes, const struct plx_registry_nodes *from,
                          struct plx_fault *fault)
{
    struct parsed parsed = {0};
    int code;

    if (!from->count || from->count > ADDRESSES)
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "%zu addresses of rqlite nodes: there must be 1 to %u", from->count,
                             ADDRESSES);
    for (size_t i = 0; i < from->count; i++) {
        code = keep_address(nodes, from->addresses[i], &parsed, fault);
        if (code)
            return code;
        if (i && parsed.tls != nodes->tls)
            return plx_fault_set(fault, PLX_ERR_INVALID,
                                 "some of the registry's nodes have https:// and some have "
                                 "http://; give all of them https://");
        nodes->tls = parsed.tls;
        if (!parsed.tls && !parsed.local && !from->plain)
            return plx_fault_set(fault, PLX_ERR_INVALID,
                                 "%.80s is another machine, and whoever reaches the registry owns "
                                 "all disks: use https://; or, on a network that nobody else "
                                 "reaches, allow 'plain'",
                                 nodes->address[i]);
    }
    return 0;
}

/* ---- Files ------------------------------------------------------------------------------- */

/* what: the file's part in it, for messages. */
static int named(int code, const struct plx_fault *why, const char *what, struct plx_fault *fault)
{
    return code ? plx_fault_set(fault, code, "%s: %s", what, why->text) : 0;
}

static int check_file(const char *path, const char *what, enum plx_small_file_trust trust,
                      struct plx_fault *fault)
{
    struct plx_fault why;
    int fd, code = plx_small_file_open(path, FILE_BYTES, trust, &fd, &why);

    if (!code)
        close(fd);
    return named(code, &why, what, fault);
}

int plx_nodes_check_files(const struct plx_nodes *nodes, struct plx_fault *fault)
{
    int code = 0;

    if (nodes->ca)
        code = check_file(nodes->ca, "the certificates of the registry's authority", PLX_FILE_OURS,
                          fault);
    if (!code && nodes->certificate)
        code = check_file(nodes->certificate, "our certificate for the registry", PLX_FILE_OURS,
                          fault);
    if (!code && nodes->key)
        code = check_file(nodes->key, "the key of our certificate for the registry",
                          PLX_FILE_SECRET, fault);
    return code;
}

/* RQLITE-12. The buffer has room for PASSWORD_BYTES and one more. */
static int read_password(const char *path, char *ret, struct plx_fault *fault)
{
    struct plx_fault why;
    size_t bytes = 0;
    char *text;
    int code = plx_small_file_read(path, PASSWORD_BYTES, PLX_FILE_SECRET, &text, &bytes, &why);

    if (code)
        return named(code, &why, "the file of the password for the registry", fault);
    memcpy(ret, text, bytes);
    plx_small_file_done(text, bytes);
    if (bytes && ret[bytes - 1] == '\n')
        bytes--;
    ret[bytes] = '\0';
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)ret[i] < ' ' || ret[i] == 0x7f)
            bytes = 0;
    if (!bytes)
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "%.150s should have a password in it: one line, without control "
                             "characters",
                             path);
    return 0;
}

/* ---- What goes together ------------------------------------------------------------------ */

static int check_together(const struct plx_registry_nodes *from, bool tls, struct plx_fault *fault)
{
    const char *what = NULL;

    if (tls && !from->ca)
        what = "the registry's nodes are given as https://, and the file with the certificates of "
               "their authority (ca) is missing: the system's authorities are not asked";
    else if (!tls && (from->ca || from->certificate || from->key))
        what = "certificates and keys are for https://, and the registry's nodes are given as "
               "http://";
    else if (!from->certificate != !from->key)
        what = "a certificate for the registry and its key go together, and one of them is "
               "missing";
    else if (!from->user != !from->password_file)
        what = "a user of the registry and the file of its password go together, and one of them "
               "is missing";
    else if (from->user && (!*from->user || strchr(from->user, ':')))
        what = "the name of a registry's user is empty or has a ':' in it";
    return what ? plx_fault_set(fault, PLX_ERR_INVALID, "%s", what) : 0;
}

static bool keep_text(const char *text, char **ret)
{
    *ret = text ? strdup(text) : NULL;
    return *ret || !text;
}

/* ---- How libcurl is to do it ------------------------------------------------------------- */

static bool set_up(struct plx_nodes *nodes)
{
    CURL *curl = nodes->curl;
    struct curl_slist *more;

    nodes->headers = plx_libcurl.slist_append(NULL, "Content-Type: application/json");
    if (!nodes->headers)
        return false;
    more = plx_libcurl.slist_append(nodes->headers, "Expect:"); /* no pause for a 100 Continue */
    return more && !plx_libcurl.easy_setopt(curl, CURLOPT_HTTPHEADER, nodes->headers) &&
           !plx_libcurl.easy_setopt(curl, CURLOPT_NOSIGNAL, 1L) &&
           !plx_libcurl.easy_setopt(curl, CURLOPT_ERRORBUFFER, nodes->said) &&
           !plx_libcurl.easy_setopt(curl, CURLOPT_PROTOCOLS_STR, nodes->tls ? "https" : "http") &&
           !plx_libcurl.easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L) &&
           !plx_libcurl.easy_setopt(curl, CURLOPT_PROXY, "") && /* whatever the environment says */
           !plx_libcurl.easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
}

/* RQLITE-11. Each connection reads the files, so those that were renewed count; and none resumes an
 * older one's session, whose certificates were checked long ago. */
static bool set_up_tls(struct plx_nodes *nodes)
{
    CURL *curl = nodes->curl;

    return !plx_libcurl.easy_setopt(curl, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2) &&
           !plx_libcurl.easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 1L) &&
           !plx_libcurl.easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 2L) &&
           !plx_libcurl.easy_setopt(curl, CURLOPT_CAINFO, nodes->ca) &&
           !plx_libcurl.easy_setopt(curl, CURLOPT_CAPATH, (char *)NULL) && /* the system's */
           !plx_libcurl.easy_setopt(curl, CURLOPT_CA_CACHE_TIMEOUT, 0L) &&
           !plx_libcurl.easy_setopt(curl, CURLOPT_SSL_SESSIONID_CACHE, 0L) &&
           !plx_libcurl.easy_setopt(curl, CURLOPT_SSLCERT, nodes->certificate) &&
           !plx_libcurl.easy_setopt(curl, CURLOPT_SSLKEY, nodes->key) &&
           /* OpenSSL asks at no terminal then. */
           !plx_libcurl.easy_setopt(curl, CURLOPT_KEYPASSWD, "");
}

static int set_up_user(struct plx_nodes *nodes, const char *password_file, struct plx_fault *fault)
{
    char password[PASSWORD_BYTES + 1];
    int code = read_password(password_file, password, fault);

    if (!code && (plx_libcurl.easy_setopt(nodes->curl, CURLOPT_HTTPAUTH, (long)CURLAUTH_BASIC) ||
                  plx_libcurl.easy_setopt(nodes->curl, CURLOPT_USERNAME, nodes->user) ||
                  plx_libcurl.easy_setopt(nodes->curl, CURLOPT_PASSWORD, password)))
        code = PLX_ERR_NOMEM;
    explicit_bzero(password, sizeof password);
    return code;
}

static int open_nodes(const struct plx_registry_nodes *from, struct plx_nodes *nodes,
                      struct plx_fault *fault)
{
    int code = keep_addresses(nodes, from, fault);

    if (!code)
        code = check_together(from, nodes->tls, fault);
    if (code)
        return code;
    if (!keep_text(from->ca, &nodes->ca) || !keep_text(from->certificate, &nodes->certificate) ||
        !keep_text(from->key, &nodes->key) || !keep_text(from->user, &nodes->user) ||
        !keep_text(from->password_file, &nodes->password_file))
        return PLX_ERR_NOMEM;
    code = plx_nodes_check_files(nodes, fault);
    if (code)
        return code;
    nodes->curl = plx_libcurl.easy_init();
    if (!nodes->curl || !set_up(nodes) || (nodes->tls && !set_up_tls(nodes)))
        return PLX_ERR_NOMEM;
    return from->user ? set_up_user(nodes, from->password_file, fault) : 0;
}

int plx_nodes_open(const struct plx_registry_nodes *from, struct plx_nodes *nodes,
                   struct plx_fault *fault)
{
    int code;

    *nodes = (struct plx_nodes){0};
    code = plx_libcurl_load(fault);
    if (!code)
        code = open_nodes(from, nodes, fault);
    if (code == PLX_ERR_NOMEM)
        plx_fault_set(fault, code, "out of memory opening the registry");
    if (code)
        plx_nodes_close(nodes);
    return code;
}

void plx_nodes_close(struct plx_nodes *nodes)
{
    if (nodes->curl)
        plx_libcurl.easy_cleanup(nodes->curl);
    if (nodes->headers)
        plx_libcurl.slist_free_all(nodes->headers);
    free(nodes->ca);
    free(nodes->certificate);
    free(nodes->key);
    free(nodes->user);
    free(nodes->password_file);
    *nodes = (struct plx_nodes){0};
}
