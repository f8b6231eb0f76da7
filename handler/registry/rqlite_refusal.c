/* rqlite_refusal.c - why a node did not answer or would not: what that means for the next attempt,
 * and the words for it (RQLITE-13).
 *
 * libcurl says that a certificate is not good, and OpenSSL's number of the reason why; if it is
 * good and for another name, no number. What else went wrong in TLS is OpenSSL's last error, whose
 * number libcurl has in its text: in the low twelve bits, 1000 and the number of an alert (RFC
 * 8446, 6.2) when the node has sent one. Threads: any. No state.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "registry/rqlite_inside.h"

#define SAID_BYTES 100

/* ---- The node's certificate -------------------------------------------------------------- */

/* By OpenSSL's numbers (X509_V_ERR_...). */
static bool is_of_another_authority(long number)
{
    return number == 2 ||                  /* UNABLE_TO_GET_ISSUER_CERT */
           number == 7 ||                  /* CERT_SIGNATURE_FAILURE: one of the same name */
           (number >= 18 && number <= 21); /* self-signed, or of nobody who is known here */
}

static const char *certificate_wrong(long number)
{
    switch (number) {
    case 10: /* CERT_HAS_EXPIRED */
        return "shows a certificate that has expired, or its authority's has: renew it, or set "
               "this host's clock";
    case 9: /* CERT_NOT_YET_VALID */
        return "shows a certificate that is not valid yet: set this host's clock, or that of the "
               "machine that made it";
    case 26: /* INVALID_PURPOSE */
        return "shows a certificate that is not for servers (extendedKeyUsage)";
    case 0:
    case 1: /* libcurl itself compares the names */
        return "shows a certificate for other names: address it by one of them, or have one made "
               "for this name (subjectAltName)";
    default:
        return NULL;
    }
}

static enum plx_reply refuse_certificate(const struct plx_nodes *nodes, struct plx_fault *fault)
{
    const char *name = plx_nodes_name(nodes), *wrong;
    char plain[SAID_BYTES];
    long number = 0;

    plx_libcurl.easy_getinfo(nodes->curl, CURLINFO_SSL_VERIFYRESULT, &number);
    wrong = certificate_wrong(number);
    plx_answer_plain(nodes->said, plain, sizeof plain);
    if (is_of_another_authority(number))
        plx_fault_set(fault, PLX_ERR_REGISTRY,
                      "the registry's node %.100s shows a certificate of an authority that is not "
                      "in %.120s: it is another machine, or this is the wrong file",
                      name, nodes->ca);
    else if (wrong)
        plx_fault_set(fault, PLX_ERR_REGISTRY, "the registry's node %.100s %s", name, wrong);
    else
        plx_fault_set(fault, PLX_ERR_REGISTRY,
                      "the registry's node %.100s shows a certificate that is not good: %s", name,
                      plain);
    return PLX_REPLY_STRANGE;
}

/* ---- Our own ----------------------------------------------------------------------------- */

static enum plx_reply own_files(const struct plx_nodes *nodes, CURLcode result,
                                struct plx_fault *fault)
{
    const char *why = strstr(nodes->said, "error:");
    struct plx_fault file = {0};
    char plain[SAID_BYTES];

    plx_answer_plain(why ? why : "", plain, sizeof plain);
    if (plx_nodes_check_files(nodes, &file))
        plx_fault_set(fault, PLX_ERR_REGISTRY, "%s", file.text);
    else if (result == CURLE_SSL_CACERT_BADFILE)
        plx_fault_set(fault, PLX_ERR_REGISTRY,
                      "%.150s has no certificates of an authority in PEM form", nodes->ca);
    else if (!strncmp(nodes->said, "could not load", 14))
        plx_fault_set(fault, PLX_ERR_REGISTRY,
                      "%.150s has no certificate in PEM form that OpenSSL takes: %s",
                      nodes->certificate, plain);
    else
        plx_fault_set(fault, PLX_ERR_REGISTRY,
                      "the key in %.120s is not that of the certificate in %.120s; or it has a "
                      "passphrase, or not PEM's form",
                      nodes->key, nodes->certificate);
    return PLX_REPLY_STRANGE;
}

/* ---- What TLS says ----------------------------------------------------------------------- */

/* 0: it says nothing that is known here. */
static unsigned reason_of(const char *said)
{
    const char *at = strstr(said, ":SSL routines:") ? strstr(said, "error:") : NULL;

    while (at && !isxdigit((unsigned char)at[strlen("error:")]))
        at = strstr(at + 1, "error:");
    return at ? (unsigned)strtoul(at + strlen("error:"), NULL, 16) & 0xfff : 0;
}

#define ALERT 1000u

/* What a node finds wrong in our certificate. */
static const char *certificate_refused(unsigned alert)
{
    switch (alert) {
    case 42: /* bad_certificate */
    case 43: /* unsupported_certificate */
    case 44: /* certificate_revoked */
    case 46: /* certificate_unknown */
    case 49: /* access_denied */
        return "it may be of another authority than the node's (-http-ca-cert), or not for clients "
               "(extendedKeyUsage)";
    case 45: /* certificate_expired */
        return "it has expired: renew it, or set the node's clock";
    case 48: /* unknown_ca */
        return "it is not of the authority that the node was started with (-http-ca-cert)";
    default:
        return NULL;
    }
}

/* Damaged bytes lead to the same numbers later on, but then there was TLS before. NULL: that is not
 * why. */
static const char *no_common_tls(const struct plx_nodes *nodes, unsigned reason)
{
    switch (reason) {
    case 156: /* HTTP_REQUEST: this is how OpenSSL reads what HTTP answers */
    case 267: /* WRONG_VERSION_NUMBER */
        return "does not speak TLS: start it with -http-cert and -http-key, or address all nodes "
               "by http://";
    case ALERT + 40: /* handshake_failure */
    case ALERT + 70: /* protocol_version */
    case ALERT + 71: /* insufficient_security */
        return nodes->certificate
                   ? "and this host have no version or cipher of TLS in common"
                   : "and this host have no version or cipher of TLS in common, or it asks for a "
                     "certificate, and none is given";
    default:
        return NULL;
    }
}

/* false, and no words: that is not why. */
static bool refused_by_tls(const struct plx_nodes *nodes, CURLcode result, struct plx_fault *fault)
{
    const char *name = plx_nodes_name(nodes), *what = NULL;
    unsigned reason = reason_of(nodes->said);
    const char *why = reason > ALERT ? certificate_refused(reason - ALERT) : NULL;

    if (why && nodes->certificate) {
        plx_fault_set(fault, PLX_ERR_REGISTRY,
                      "the registry's node %.100s refuses the certificate in %.120s: %s", name,
                      nodes->certificate, why);
        return true;
    }
    if (why || reason == ALERT + 116) /* certificate_required */
        what = "asks for a certificate, and none is given: name one and its key";
    else if (result == CURLE_SSL_CONNECT_ERROR) /* in the handshake */
        what = no_common_tls(nodes, reason);
    if (what)
        plx_fault_set(fault, PLX_ERR_REGISTRY, "the registry's node %.100s %s", name, what);
    return what;
}

enum plx_reply plx_nodes_failed(const struct plx_nodes *nodes, CURLcode result,
                                struct plx_fault *fault)
{
    if (nodes->tls && result == CURLE_PEER_FAILED_VERIFICATION)
        return refuse_certificate(nodes, fault);
    if (nodes->tls && (result == CURLE_SSL_CERTPROBLEM || result == CURLE_SSL_CACERT_BADFILE))
        return own_files(nodes, result, fault);
    if (nodes->tls && refused_by_tls(nodes, result, fault))
        return PLX_REPLY_STRANGE;
    plx_fault_set(fault, PLX_ERR_REGISTRY, "the registry's node %.100s does not answer: %.100s",
                  plx_nodes_name(nodes), plx_libcurl.easy_strerror(result));
    return PLX_REPLY_NONE;
}

/* ---- Answers with a status --------------------------------------------------------------- */

enum plx_reply plx_nodes_judge(const struct plx_nodes *nodes, long status, const char *text,
                               struct plx_fault *fault)
{
    char plain[SAID_BYTES];

    if (status == 200)
        return PLX_REPLY;
    plx_answer_plain(text ? text : "", plain, sizeof plain);
    if (status == 401 && nodes->user)
        plx_fault_set(fault, PLX_ERR_REGISTRY,
                      "the registry's node %.100s refuses user '%.60s': the password in %.120s is "
                      "not the user's, or the user may not query and execute (rqlited -auth)",
                      plx_nodes_name(nodes), nodes->user, nodes->password_file);
    else if (status == 401)
        plx_fault_set(
            fault, PLX_ERR_REGISTRY,
            "the registry's node %.100s asks for a user and a password, and none is given",
            plx_nodes_name(nodes));
    else if (status == 400 && !nodes->tls && strstr(plain, "HTTPS"))
        plx_fault_set(fault, PLX_ERR_REGISTRY,
                      "the registry's node %.100s speaks TLS: address all nodes by https://",
                      plx_nodes_name(nodes));
    else
        plx_fault_set(fault, PLX_ERR_REGISTRY, "the registry's node %.100s answers %ld: %s",
                      plx_nodes_name(nodes), status, plain);
    return status >= 500 ? PLX_REPLY_NONE : PLX_REPLY_STRANGE;
}
