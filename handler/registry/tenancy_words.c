/* tenancy_words.c - the words by which a tenancy is refused, and which command helps.
 *
 * TENANCY_WORDS-1  A command is printed whole or in general words, never cut off: what is left of
 *     one may name another path or host.
 * Threads: the caller's.
 */
#include "registry/tenancy_inside.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/plain.h"
#include "registry/host_word.h"

#define PATH_SHOWN 120 /* bytes of the volume's path, where all of it leaves no room */

/* How a text names the volume and the store. */
struct named {
    int shown;                       /* bytes of the volume's path */
    char which[PLX_WORD_TEXT + 200]; /* behind 'parallax store take-over', or import */
};

/* TENANCY_WORDS-1. brief: the whole names did not fit. */
static void name_it(const struct plx_tenancy *t, const char *given, bool brief,
                    struct named *ret_named)
{
    char word[PLX_WORD_TEXT];

    ret_named->shown = brief ? PATH_SHOWN : (int)sizeof ret_named->which;
    if (brief && (!given || *given == '-'))
        snprintf(ret_named->which, sizeof ret_named->which, "--volume PATH...");
    else
        snprintf(ret_named->which, sizeof ret_named->which, "%s%s", given ? "" : "--volume ",
                 given ? given : plx_plain_word(t->device->name, word, sizeof word));
}

static bool fits(const struct plx_fault *fault)
{
    return !fault || strlen(fault->text) + 1 < sizeof fault->text;
}

int plx_tenancy_refuse_other(const struct plx_tenancy *t, const struct plx_home *home,
                             struct plx_fault *fault)
{
    char called[PLX_HOST_WORD], word[PLX_HOST_WORD];
    struct named named;

    for (bool brief = false;; brief = true) {
        name_it(t, t->options.which, brief, &named);
        plx_fault_set(fault, PLX_ERR_BUSY,
                      "%.*s: the store belongs to host %s, which used it last; give it up there "
                      "('parallax store release'), or, if that host is off: 'parallax store "
                      "take-over %s --from %s --i-checked-it-is-off'",
                      named.shown, t->device->name,
                      plx_host_called(home->host_name, &home->host, called), named.which,
                      plx_host_word(home->host_name, &home->host, word));
        if (brief || fits(fault))
            return PLX_ERR_BUSY;
    }
}

int plx_tenancy_refuse_released(const struct plx_tenancy *t, struct plx_fault *fault)
{
    struct named named;

    for (bool brief = false;; brief = true) {
        name_it(t, t->options.volumes, brief, &named);
        plx_fault_set(fault, PLX_ERR_BUSY,
                      "%.*s: no host has the store: it was released; 'parallax store import %s' "
                      "takes it",
                      named.shown, t->device->name, named.which);
        if (brief || fits(fault))
            return PLX_ERR_BUSY;
    }
}

int plx_tenancy_refuse_page(const struct plx_tenancy *t, const char *why, struct plx_fault *fault)
{
    struct named named;

    for (bool brief = false;; brief = true) {
        name_it(t, t->options.which, brief, &named);
        plx_fault_set(fault, PLX_ERR_CORRUPT,
                      "%.*s: the home page %s; when no other host has the store, 'parallax store "
                      "take-over %s --any --i-checked-it-is-off' rewrites it",
                      named.shown, t->device->name, why, named.which);
        if (brief || fits(fault))
            return PLX_ERR_CORRUPT;
    }
}

int plx_tenancy_refuse_lost(const struct plx_tenancy *t, struct plx_fault *fault)
{
    return plx_tenancy_refuse_page(t, "is lost, so nobody knows which host has the store", fault);
}

int plx_tenancy_refuse_any(const struct plx_tenancy *t, const struct plx_home *home,
                           struct plx_fault *fault)
{
    char text[PLX_HOST_WORD], word[PLX_HOST_WORD];
    const char *called = plx_host_called(home->host_name, &home->host, text);

    return plx_fault_set(fault, PLX_ERR_BUSY,
                         "%.150s: nothing was changed: the store belongs to host %s, and --any is "
                         "for one that cannot tell; if host %s is off, say --from %s",
                         t->device->name, called, called,
                         plx_host_word(home->host_name, &home->host, word));
}

int plx_tenancy_refuse_from(const struct plx_tenancy *t, const struct plx_home *home,
                            struct plx_fault *fault)
{
    char text[PLX_HOST_WORD], word[PLX_HOST_WORD];
    const char *called = plx_host_called(home->host_name, &home->host, text);

    return plx_fault_set(fault, PLX_ERR_BUSY,
                         "%.150s: nothing was changed: the store belongs to host %s, not to "
                         "%.64s; if host %s is off, say --from %s",
                         t->device->name, called, t->options.from, called,
                         plx_host_word(home->host_name, &home->host, word));
}
