/* credentials.c - see credentials.h.
 *
 * CREDENTIALS-1  No volume's name holds a password, so no list of processes, registry, list of
 *     stores or message does. Any part of a URL that could be read as a password counts as one.
 * CREDENTIALS-2  The file is used only if nobody but root or this user can write or read it. The
 *     check looks at the opened file and not at its name, which may mean another file a moment
 *     later.
 * CREDENTIALS-3  All lines are checked, not only the one that matches, so a mistake shows at once.
 *     A message names the file and the number of the line, and nothing of its contents.
 * CREDENTIALS-4  If several lines match, the most specific one counts: a target before HOST:PORT
 *     before HOST. Of equally specific ones the first counts.
 * CREDENTIALS-5  The contents of the file are wiped before their memory is freed. libiscsi keeps a
 *     copy as long as the session lasts, because it needs one to log in again.
 *
 * Threads: any; nothing is kept here.
 */
#include "device/credentials.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "device/small_file.h"

#define ISCSI "iscsi://"
#define DEFAULT_PORT "3260"
#define TARGET_PASSWORD "target_password=" /* an argument that libiscsi takes behind a '?' */
#define FILE_BYTES_MAX ((size_t)64 << 10)
#define FIELDS_MAX 5

struct word {
    const char *text;
    size_t bytes;
};

struct line {
    const char *path;
    unsigned number;
    struct word words[FIELDS_MAX];
    unsigned count;
};

const char *plx_credentials_path(void)
{
    const char *named = getenv(PLX_CREDENTIALS_VARIABLE);

    return named && *named ? named : PLX_CREDENTIALS_FILE;
}

void plx_credentials_wipe(struct plx_credentials *credentials)
{
    explicit_bzero(credentials, sizeof *credentials);
}

/* ---- Passwords in URLs ------------------------------------------------------------------- */

/* A password lies between the sign behind the user, '%' or ':' for libiscsi, and the last '@',
 * since a password may contain an '@'. */
static bool find_password(const char *url, size_t *ret_from, size_t *ret_to)
{
    const char *at = strrchr(url, '@'), *sign = strpbrk(url + strlen(ISCSI), "%:");

    if (!at || !sign || sign > at)
        return false;
    *ret_from = (size_t)(sign - url);
    *ret_to = (size_t)(at - url);
    return true;
}

/* CREDENTIALS-1 */
bool plx_url_has_password(const char *text)
{
    const char *url = strstr(text, ISCSI);
    size_t from, to;

    return url && (find_password(url, &from, &to) || strstr(url, TARGET_PASSWORD));
}

void plx_url_drop_password(char *url)
{
    size_t from, to;
    char *word;

    if (strncmp(url, ISCSI, strlen(ISCSI)) != 0)
        return;
    if (find_password(url, &from, &to))
        memmove(url + from, url + to, strlen(url + to) + 1);
    while ((word = strstr(url, TARGET_PASSWORD))) {
        const char *rest = word + strcspn(word, "&");

        memmove(word, rest, strlen(rest) + 1);
    }
}

int plx_url_refuse_password(const char *text, struct plx_fault *fault)
{
    if (!plx_url_has_password(text))
        return 0;
    return plx_fault_set(fault, PLX_ERR_INVALID,
                         "no password in a volume's name: every user of this machine can see it; "
                         "give iscsi://HOST/TARGET/LUN, and put a line 'TARGET USER PASSWORD' into "
                         "%.80s (mode 600)",
                         plx_credentials_path());
}

/* ---- The file ---------------------------------------------------------------------------- */

/* CREDENTIALS-2. *ret_text is NULL if the default file does not exist or cannot be read. */
static int read_file(const char *path, char **ret_text, size_t *ret_bytes, struct plx_fault *fault)
{
    bool is_default = strcmp(path, PLX_CREDENTIALS_FILE) == 0;
    struct plx_fault why;
    int error =
        plx_small_file_read(path, FILE_BYTES_MAX, PLX_FILE_SECRET, ret_text, ret_bytes, &why);

    if (!error)
        return 0;
    *ret_text = NULL;
    if (is_default && access(path, R_OK) != 0 && (errno == ENOENT || errno == EACCES))
        return 0;
    return plx_fault_set(fault, error, "the file of iSCSI credentials: %s", why.text);
}

/* ---- Lines ------------------------------------------------------------------------------- */

static int bad_line(const struct line *line, const char *what, struct plx_fault *fault)
{
    return plx_fault_set(fault, PLX_ERR_INVALID, "%.120s, line %u: %s", line->path, line->number,
                         what);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static int check_bytes(const struct line *line, struct word rest, struct plx_fault *fault)
{
    for (size_t i = 0; i < rest.bytes; i++) {
        unsigned char c = (unsigned char)rest.text[i];

        if (c == '\r')
            return bad_line(line, "it ends with a carriage return; save it with Unix line ends",
                            fault);
        if ((c < ' ' && c != '\t') || c == 0x7f)
            return bad_line(line, "there is a control character in it", fault);
    }
    return 0;
}

static int split(struct line *line, struct word rest, struct plx_fault *fault)
{
    static const char form[] =
        "it has not 3 or 5 fields; its form is MATCH USER PASSWORD [TARGET-USER TARGET-PASSWORD]";

    line->count = 0;
    for (;;) {
        struct word word = {rest.text, 0};

        while (word.bytes < rest.bytes && !is_blank(word.text[word.bytes]))
            word.bytes++;
        if (word.bytes > PLX_CREDENTIAL_MAX)
            return bad_line(line, "a field has more than 255 bytes", fault);
        if (word.bytes > 0 && line->count == FIELDS_MAX)
            return bad_line(line, form, fault);
        if (word.bytes > 0)
            line->words[line->count++] = word;
        if (word.bytes == rest.bytes)
            break;
        rest = (struct word){word.text + word.bytes + 1, rest.bytes - word.bytes - 1};
    }
    return line->count == 3 || line->count == 5 ? 0 : bad_line(line, form, fault);
}

/* Parses a line. Its count of words stays 0 for a comment or an empty line. */
static int parse(struct line *line, struct word rest, struct plx_fault *fault)
{
    int error;

    line->count = 0;
    while (rest.bytes && is_blank(*rest.text))
        rest = (struct word){rest.text + 1, rest.bytes - 1};
    if (!rest.bytes || *rest.text == '#')
        return 0;
    error = check_bytes(line, rest, fault);
    if (!error)
        error = split(line, rest, fault);
    if (!error && line->count == FIELDS_MAX && *line->words[3].text == '#')
        error = bad_line(line, "a comment has a line of its own", fault);
    return error;
}

/* ---- What matches ------------------------------------------------------------------------ */

static bool same_name(struct word one, struct word other)
{
    return one.bytes == other.bytes && strncasecmp(one.text, other.text, one.bytes) == 0;
}

static struct word word_of(const char *text)
{
    return (struct word){text, strlen(text)};
}

/* HOST, HOST:PORT, [ADDRESS], [ADDRESS]:PORT or ADDRESS, which has more than one colon. */
static struct word host_and_port(struct word portal, struct word *ret_port)
{
    const char *end = portal.text + portal.bytes, *colon = memrchr(portal.text, ':', portal.bytes);
    const char *first = memchr(portal.text, ':', portal.bytes);
    const char *bracket =
        *portal.text == '[' ? (const char *)memchr(portal.text, ']', portal.bytes) : NULL;

    *ret_port = (struct word){end, 0};
    if (bracket)
        colon = bracket + 1 < end && bracket[1] == ':' ? bracket + 1 : NULL;
    else if (colon != first)
        colon = NULL;
    if (colon)
        *ret_port = (struct word){colon + 1, (size_t)(end - colon - 1)};
    if (bracket)
        return (struct word){portal.text + 1, (size_t)(bracket - portal.text - 1)};
    return (struct word){portal.text, (size_t)((colon ? colon : end) - portal.text)};
}

/* How specific the line's match is (CREDENTIALS-4); 0: it does not match. */
static unsigned rank(const struct line *line, const struct plx_credentials_wanted *wanted)
{
    struct word port, wanted_port, host, wanted_host;

    if (*wanted->user && (line->words[1].bytes != strlen(wanted->user) ||
                          memcmp(line->words[1].text, wanted->user, line->words[1].bytes) != 0))
        return 0;
    if (same_name(line->words[0], word_of(wanted->target)))
        return 3;
    host = host_and_port(line->words[0], &port);
    wanted_host = host_and_port(word_of(wanted->portal), &wanted_port);
    if (!wanted_port.bytes)
        wanted_port = word_of(DEFAULT_PORT);
    if (!same_name(host, wanted_host))
        return 0;
    return !port.bytes ? 1 : same_name(port, wanted_port) ? 2 : 0;
}

static void copy_word(char to[PLX_CREDENTIAL_MAX + 1], struct word word)
{
    memcpy(to, word.text, word.bytes);
    to[word.bytes] = '\0';
}

static void copy_line(const struct line *line, struct plx_credentials *to)
{
    static const struct word nothing = {"", 0};
    bool mutual = line->count == FIELDS_MAX;

    copy_word(to->user, line->words[1]);
    copy_word(to->password, line->words[2]);
    copy_word(to->target_user, mutual ? line->words[3] : nothing);
    copy_word(to->target_password, mutual ? line->words[4] : nothing);
    to->line = line->number;
}

/* CREDENTIALS-3 */
static int search(const char *path, struct word text, const struct plx_credentials_wanted *wanted,
                  struct plx_credentials *ret_credentials, struct plx_fault *fault)
{
    struct line line = {.path = path}, best = {0};
    unsigned best_rank = 0;

    while (text.bytes) {
        const char *end = memchr(text.text, '\n', text.bytes);
        size_t bytes = end ? (size_t)(end - text.text) : text.bytes;
        int error;

        line.number++;
        error = parse(&line, (struct word){text.text, bytes}, fault);
        if (error)
            return error;
        if (line.count && rank(&line, wanted) > best_rank) {
            best_rank = rank(&line, wanted);
            best = line;
        }
        bytes += end != NULL;
        text = (struct word){text.text + bytes, text.bytes - bytes};
    }
    if (best_rank)
        copy_line(&best, ret_credentials);
    return 0;
}

int plx_credentials_find(const struct plx_credentials_wanted *wanted,
                         struct plx_credentials *ret_credentials, struct plx_fault *fault)
{
    const char *path = plx_credentials_path();
    size_t bytes = 0;
    char *text;
    int error;

    memset(ret_credentials, 0, sizeof *ret_credentials);
    error = read_file(path, &text, &bytes, fault);
    if (error || !text)
        return error;
    error = search(path, (struct word){text, bytes}, wanted, ret_credentials, fault);
    plx_small_file_done(text, bytes); /* CREDENTIALS-5 */
    return error;
}
