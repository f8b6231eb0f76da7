/* settings.c - see settings.h.
 *
 * SETTINGS-1  What is not understood is refused: an unknown section or key, a key twice, a value
 * that is empty or too long. A key that was mistyped would else leave a protection out, unseen.
 * SETTINGS-2  Only the default file may be missing. A file that somebody named must be there.
 * SETTINGS-3  The file is used only if nobody but root or this user can write it: whoever writes it
 *     says which registry is believed, and so owns all disks.
 * SETTINGS-4  Paths are absolute, since handler and command have different current directories.
 * Threads: any; nothing is kept here.
 */
#include "registry/settings.h"

#include <ini.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/small_file.h"

#define FILE_BYTES_MAX ((size_t)64 << 10)
#define LINE_BYTES_MAX 190u /* inih keeps lines in 200 bytes */

struct reading {
    struct plx_settings *settings;
    char why[512]; /* of the first line that is wrong */
};

enum setting_kind {
    KIND_TEXT,
    KIND_PATH,  /* SETTINGS-4 */
    KIND_ANSWER /* yes or no */
};

static const struct entry {
    const char *section, *name;
    size_t at; /* in struct plx_settings */
    enum setting_kind kind;
    unsigned most; /* how often the key may stand there */
} entries[] = {
    {"paths", "state", offsetof(struct plx_settings, state), KIND_PATH, 1},
    {"registry", "node", offsetof(struct plx_settings, node), KIND_TEXT, PLX_SETTING_NODES},
    {"registry", "ca", offsetof(struct plx_settings, ca), KIND_PATH, 1},
    {"registry", "certificate", offsetof(struct plx_settings, certificate), KIND_PATH, 1},
    {"registry", "key", offsetof(struct plx_settings, key), KIND_PATH, 1},
    {"registry", "user", offsetof(struct plx_settings, user), KIND_TEXT, 1},
    {"registry", "password-file", offsetof(struct plx_settings, password_file), KIND_PATH, 1},
    {"registry", "plain", offsetof(struct plx_settings, plain), KIND_ANSWER, 1},
};

#define ENTRIES (sizeof entries / sizeof entries[0])

static const struct entry *find(const char *section, const char *name, bool *ret_section)
{
    *ret_section = false;
    for (size_t i = 0; i < ENTRIES; i++) {
        if (strcmp(entries[i].section, section) != 0)
            continue;
        *ret_section = true;
        if (strcmp(entries[i].name, name) == 0)
            return &entries[i];
    }
    return NULL;
}

/* Where the value goes; NULL: there is no place left. */
static char *find_place(const struct entry *entry, struct plx_settings *settings)
{
    char *at = (char *)settings + entry->at;

    for (unsigned i = 0; i < entry->most; i++, at += PLX_SETTING_MAX)
        if (!*at)
            return at;
    return NULL;
}

/* A pair of the file, for inih: 0 if it is wrong. */
static int take(void *user, const char *section, const char *name, const char *value)
{
    struct reading *r = user;
    bool known;
    const struct entry *entry = find(section, name, &known);
    char *to = entry ? find_place(entry, r->settings) : NULL;

    if (r->why[0])
        return 0;
    if (!entry && known)
        snprintf(r->why, sizeof r->why, "section [%.60s] has no key '%.60s'", section, name);
    else if (!entry && !*section)
        snprintf(r->why, sizeof r->why, "'%.60s' stands before any [SECTION]", name);
    else if (!entry)
        snprintf(r->why, sizeof r->why, "there is no section [%.60s]", section);
    else if (!*value)
        snprintf(r->why, sizeof r->why, "the value of '%s' is missing", name);
    else if (entry->kind == KIND_PATH && value[0] != '/')
        snprintf(r->why, sizeof r->why, "'%s' is no absolute path: %.200s", name, value);
    else if (entry->kind == KIND_ANSWER && strcmp(value, "yes") != 0 && strcmp(value, "no") != 0)
        snprintf(r->why, sizeof r->why, "'%s' is yes or no: %.200s", name, value);
    else if (!to && entry->most == 1)
        snprintf(r->why, sizeof r->why, "'%s' stands there twice", name);
    else if (!to)
        snprintf(r->why, sizeof r->why, "'%s' stands there more than %u times", name, entry->most);
    else
        snprintf(to, PLX_SETTING_MAX, "%s", value);
    return !r->why[0];
}

/* The number of the first line that is longer than inih reads in one go, or 0. It would take the
 * rest for a line of its own. */
static unsigned find_long(const char *text)
{
    for (unsigned line = 1; *text; line++) {
        size_t bytes = strcspn(text, "\n");

        if (bytes > LINE_BYTES_MAX)
            return line;
        text += bytes + (text[bytes] != 0);
    }
    return 0;
}

static int parse(struct plx_settings *settings, const char *text, struct plx_fault *fault)
{
    struct reading reading = {.settings = settings};
    unsigned too_long = find_long(text);
    int line = ini_parse_string(text, take, &reading);

    if (too_long)
        return plx_fault_set(fault, PLX_ERR_INVALID, "%.200s, line %u: it has more than %u bytes",
                             settings->file, too_long, LINE_BYTES_MAX);
    if (line < 0)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory reading %.200s", settings->file);
    if (line)
        return plx_fault_set(fault, PLX_ERR_INVALID, "%.200s, line %d: %s", settings->file, line,
                             reading.why[0] ? reading.why : "neither [SECTION] nor KEY = VALUE");
    return 0;
}

int plx_settings_read(struct plx_settings *settings, struct plx_fault *fault)
{
    const char *named = getenv(PLX_SETTINGS_VARIABLE), *path = PLX_SETTINGS_FILE;
    char *text = NULL;
    size_t bytes = 0;
    int error;

    *settings = (struct plx_settings){0};
    if (named && *named)
        path = named;
    error = plx_small_file_read(path, FILE_BYTES_MAX, PLX_FILE_OURS, &text, &bytes, fault);
    if (error == PLX_ERR_NOT_FOUND && path != named) /* SETTINGS-2 */
        return 0;
    if (error)
        return error;
    snprintf(settings->file, sizeof settings->file, "%s", path);
    if (strlen(text) != bytes)
        error =
            plx_fault_set(fault, PLX_ERR_INVALID, "%.200s is no text: it has a zero byte", path);
    else
        error = parse(settings, text, fault);
    plx_small_file_done(text, bytes);
    return error;
}

static const char *said(const char *value)
{
    return *value ? value : NULL;
}

void plx_settings_nodes(const struct plx_settings *settings, struct plx_settings_nodes *ret_nodes)
{
    *ret_nodes =
        (struct plx_settings_nodes){.nodes = {.ca = said(settings->ca),
                                              .certificate = said(settings->certificate),
                                              .key = said(settings->key),
                                              .user = said(settings->user),
                                              .password_file = said(settings->password_file),
                                              .plain = strcmp(settings->plain, "yes") == 0}};
    while (ret_nodes->nodes.count < PLX_SETTING_NODES &&
           settings->node[ret_nodes->nodes.count][0]) {
        ret_nodes->address[ret_nodes->nodes.count] = settings->node[ret_nodes->nodes.count];
        ret_nodes->nodes.count++;
    }
    ret_nodes->nodes.addresses = ret_nodes->address;
}
