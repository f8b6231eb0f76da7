/* names.c - see names.h.
 *
 * NAMES-1  A valid name needs no quoting in a path, a cfgstring, a shell or SQL. It cannot be taken
 *     for another form of the same argument: a UUID, a sequence number, a time or a range.
 * NAMES-2  Labels by which the program knows a state again are given by the program only:
 *     import-...          what import-diff has brought, or where an unfinished import began
 *     before-rewind-...   the state before a rewind
 *     One that somebody has given to another snapshot would be believed. Those that a disk has
 *     already can be used and removed like any other.
 * Threads: any. No state, no crash story.
 */
#include "registry/names.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "engine/engine.h"

static const struct kind {
    const char *name, *word;
    size_t max;
    bool letter_first, not_uuid, not_range; /* NAMES-1 */
} kinds[] = {
    {"store", "store name", PLX_STORE_NAME_MAX, false, true, false},
    {"vdi", "VDI name", PLX_NAME_MAX, false, false, false},
    {"label", "label", PLX_LABEL_MAX, true, false, true},
};

static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
static const char first[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
static const char rest[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

int plx_name_check(const char *kind_name, const char *name, char *why, size_t size)
{
    const struct kind *kind = kinds;
    size_t length = strlen(name);

    while (strcmp(kind->name, kind_name)) {
        kind++;
        PLX_ASSERT(kind < kinds + sizeof kinds / sizeof kinds[0]);
    }
    if (length == 0)
        snprintf(why, size, "the %s is empty", kind->word);
    else if (length > kind->max)
        snprintf(why, size, "the %s has %zu characters; at most %zu are allowed", kind->word,
                 length, kind->max);
    else if (!strchr(kind->letter_first ? letters : first, name[0]))
        snprintf(why, size, "the %s '%.80s' must start with a letter%s", kind->word, name,
                 kind->letter_first ? "" : " or a digit");
    else if (strspn(name, rest) != length)
        snprintf(why, size, "the %s '%.80s' may hold letters, digits, '.', '_' and '-' only",
                 kind->word, name);
    else if (kind->not_uuid && plx_uuid_parse(name, NULL))
        snprintf(why, size, "the %s '%s' looks like a UUID; choose another", kind->word, name);
    else if (kind->not_range && strstr(name, ".."))
        snprintf(why, size, "the %s '%.80s' looks like a range, A..B; choose another", kind->word,
                 name);
    else
        return 0;
    return PLX_ERR_INVALID;
}

int plx_label_check(const char *label, char *why, size_t size)
{
    static const struct {
        const char *prefix, *whose;
    } reserved[] = {{"import-", "import-diff"}, {"before-rewind-", "rewind"}}; /* NAMES-2 */
    int error = plx_name_check("label", label, why, size);

    for (size_t i = 0; i < sizeof reserved / sizeof reserved[0] && !error; i++) {
        if (strncmp(label, reserved[i].prefix, strlen(reserved[i].prefix)) != 0)
            continue;
        snprintf(why, size,
                 "the label '%.80s' is reserved: %s gives those that begin with '%s'; "
                 "choose another",
                 label, reserved[i].whose, reserved[i].prefix);
        error = PLX_ERR_INVALID;
    }
    return error;
}

const char *plx_name_plain(const char *name, char *ret_text, size_t size)
{
    snprintf(ret_text, size, "%s", name);
    for (char *c = ret_text; *c; c++)
        *c = strchr(rest, *c) ? *c : '?';
    return ret_text;
}

static void random_bytes(void *bytes, size_t count)
{
    /* Once its pool is ready, the kernel gives up to 256 bytes at once and never fails. */
    while (getrandom(bytes, count, 0) != (ssize_t)count)
        ;
}

void plx_uuid_random(char ret_text[PLX_UUID_TEXT])
{
    struct plx_uuid id;

    random_bytes(id.b, sizeof id.b);
    id.b[6] = (id.b[6] & 0x0f) | 0x40;
    id.b[8] = (id.b[8] & 0x3f) | 0x80;
    plx_uuid_text(&id, ret_text);
}

uint64_t plx_id_random(void)
{
    uint64_t id;

    do {
        random_bytes(&id, sizeof id);
        id &= INT64_MAX;
    } while (id == 0);
    return id;
}
