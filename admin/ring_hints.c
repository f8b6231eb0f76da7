/* ring_hints.c - see ring_hints.h.
 *
 * RING_HINTS-1  Nothing here is an error of the command: what cannot be found out is not said.
 * RING_HINTS-2  A command that is advised is never cut off. Where a text does not fit into a fault,
 *     paths are named in general first, then what is not the last step goes, then what the text
 *     says elsewhere.
 */
#include "ring_hints.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attach/attach_ring.h"
#include "attach/founding.h"
#include "attach/host_ring.h"
#include "attach/volumes.h"
#include "engine/base/plain.h"
#include "output.h"
#include "registry/host_word.h"

#define NAMED_MAX 3u       /* virtual disks that have a line of their own */
#define PATH_WORD_MAX 150u /* bytes of a path in a command */

/* ---- A member ---- */

/* The code of its superblock; 0, CORRUPT, UNSUPPORTED: a ring's. */
static int recognise(const char *path)
{
    struct plx_ring_members members;
    char *const paths[] = {(char *)path};
    int code;

    if (plx_ring_members_open(&members, paths, 1, PLX_RING_LOOK, 0, NULL, NULL))
        return PLX_ERR_NOT_FOUND;
    code = members.member[0].device ? members.member[0].problem.code : PLX_ERR_NOT_FOUND;
    plx_ring_members_close(&members);
    return code;
}

bool plx_ring_hint_holds(const char *path)
{
    int code = recognise(path);

    return !code || code == PLX_ERR_CORRUPT || code == PLX_ERR_UNSUPPORTED;
}

static bool is_empty(const struct plx_host_ring *ring)
{
    struct plx_ring_info info;

    if (!ring->ring)
        return false;
    plx_ring_get_info(ring->ring, &info);
    return info.free_segments == info.segments;
}

/* Behind the path of this one, where both have to be given. */
static const char *other_member(const struct plx_host_ring *ring)
{
    const struct plx_ring_member_seen *sound = plx_ring_members_sound(&ring->members);

    return sound->super.members > 1 && !sound->super.alone ? " OTHER-MEMBER" : "";
}

/* RING_HINTS-2 */
enum brevity { WHOLE, PATH_IN_GENERAL, LAST_STEP_ONLY, NOTHING_TWICE };

/* What is said of a member, before and behind the ';'. */
struct words {
    enum brevity brevity;
    char path[PLX_WORD_TEXT]; /* in a command */
    char lead[420], next[720];
};

/* What comes next. */
static void say_next(const struct plx_host_ring *ring, const struct plx_ring_hint *hint,
                     struct words *w)
{
    const struct plx_ring_member_seen *sound = plx_ring_members_sound(&ring->members);
    const char *store = hint->name[0] ? hint->name : "STORE", *other = other_member(ring);
    const char *known = hint->name[0] ? "" : "once that store is known here, ";
    char there[160] = "", host[PLX_HOST_WORD];

    if (w->brevity < LAST_STEP_ONLY)
        snprintf(there, sizeof there,
                 "'parallax ring create STORE PATH%s' on that host makes it known again there; ",
                 other);
    if (ring->known)
        snprintf(w->next, sizeof w->next, "this host knows it ('parallax ring info %s')", store);
    else if (ring->ours)
        snprintf(w->next, sizeof w->next, "%s'parallax ring create %s %s%s' makes it known again%s",
                 known, store, w->path, other,
                 !*other || w->brevity >= LAST_STEP_ONLY
                     ? ""
                     : "; if the other member is lost for good, give this one with "
                       "--i-checked-the-other-is-lost");
    else
        snprintf(w->next, sizeof w->next,
                 "%sif that host is off, or was this machine, %s'parallax ring create %s %s%s "
                 "--from %s --i-checked-it-is-off' makes it this host's",
                 there, known, store, w->path, other,
                 plx_host_word(ring->host_name, &sound->super.host, host));
}

/* The ring goes on without this member, or this state of it. */
static bool is_left_behind(const struct plx_host_ring *ring, const struct plx_host_ring *own)
{
    const struct plx_ring_member_seen *member = plx_ring_members_sound(&ring->members);
    struct plx_ring_info info;

    if (!own->ring || strcmp(own->way.ring, ring->way.ring) != 0)
        return false;
    plx_ring_get_info(own->ring, &info);
    return member->super.set != info.super.set &&
           (member->super.joining || plx_ring_set_descends(&info.super, member->super.set));
}

/* By somebody's word, so that nobody knows whether the ring has all that it holds (RING-7). */
static bool is_left_by_word(const struct plx_host_ring *ring, const struct plx_host_ring *own)
{
    struct plx_ring_info info;

    plx_ring_get_info(own->ring, &info);
    return (info.super.compatible & PLX_RING_LEFT_BY_WORD) &&
           !plx_ring_members_sound(&ring->members)->super.joining;
}

static void say_left_behind(const struct plx_host_ring *ring, const struct plx_host_ring *own,
                            const struct plx_ring_hint *hint, struct words *w)
{
    bool by_word = is_left_by_word(ring, own);

    snprintf(w->lead, sizeof w->lead,
             " holds no store: it was a member of this host's ring of store %s, which went on "
             "without it %s",
             hint->name,
             by_word ? "by the operator's word: nobody knows whether the ring has all that it "
                       "holds, so do not delete it before the data is known to be right"
                     : "and has all that it holds, so it may be deleted");
    w->next[0] = 0;
    if (plx_ring_members_alone(&own->members))
        snprintf(w->next, sizeof w->next,
                 "%s'parallax ring repair %s --with %s' makes it one again%s", by_word ? "" : "or ",
                 hint->name, w->path, by_word ? ", unless it has newer writes" : "");
}

/* Where this host has a ring of that store on other members: then 'ring create' is refused. */
static bool open_beside(const struct plx_paths *paths, const struct plx_host_ring *ring,
                        const struct plx_ring_hint *hint, struct plx_host_ring *ret_own)
{
    struct plx_known_ring entry;

    if (ring->known || !ring->ours || !hint->name[0] ||
        plx_known_ring_get(paths, hint->store, &entry, NULL))
        return false;
    plx_host_ring_look(paths, &entry, ret_own);
    if (ret_own->ring || strcmp(ret_own->way.ring, ring->way.ring) != 0)
        return true;
    plx_host_ring_close(ret_own); /* this may be it, moved */
    return false;
}

static void say_beside(const struct plx_host_ring *ring, const struct plx_host_ring *own,
                       const struct plx_ring_hint *hint, struct words *w)
{
    char members[PLX_KNOWN_RING_TEXT], on[100] = "";

    plx_known_ring_name_members(&own->way, members);
    if (w->brevity < LAST_STEP_ONLY)
        snprintf(on, sizeof on, " on %.80s", members);
    if (strcmp(own->way.ring, ring->way.ring) == 0)
        snprintf(w->next, sizeof w->next,
                 "this host has that ring%s, so this is a copy, or was used apart; to use it "
                 "instead, move that one away, then 'parallax ring create %s %s%s'",
                 on, hint->name, w->path, other_member(ring));
    else
        snprintf(w->next, sizeof w->next,
                 "this host has another ring of that store%s%s: 'parallax ring delete %s', then "
                 "'parallax ring create %s %s%s' makes this one known again",
                 *on ? "," : "", on, hint->name, hint->name, w->path, other_member(ring));
}

static void say_member(const struct plx_host_ring *ring, const struct plx_ring_hint *hint,
                       struct words *w)
{
    const struct plx_ring_member_seen *sound = plx_ring_members_sound(&ring->members);
    char host[80] = "", called[PLX_HOST_WORD];

    if (w->brevity < NOTHING_TWICE)
        snprintf(host, sizeof host, ", made on host %s",
                 plx_host_called(ring->host_name, &sound->super.host, called));
    snprintf(w->lead, sizeof w->lead,
             " holds no store: it is a member of a write-back ring of store %s%s%s",
             hint->name[0] ? hint->name : hint->store, host,
             is_empty(ring)                ? ", and is empty"
             : w->brevity < LAST_STEP_ONLY ? ", and may hold writes that were acknowledged and "
                                             "that the store lacks, so do not delete it"
                                           : ", and may hold writes that the store lacks, so do "
                                             "not delete it");
}

/* RING_HINTS-2. own: this host's ring of that store on other members; NULL: it has none. */
static void say(const struct plx_host_ring *ring, const struct plx_host_ring *own, const char *path,
                struct plx_ring_hint *hint)
{
    static const size_t least = 60, most = 110; /* bytes of the path, where it is no command */
    char text[1300];
    struct words w;

    for (enum brevity b = WHOLE; b <= NOTHING_TWICE; b++) {
        size_t shown = b == WHOLE ? most : least;

        w.brevity = b;
        plx_plain_word(path, w.path, sizeof w.path);
        if (b > WHOLE || strlen(w.path) > PATH_WORD_MAX)
            snprintf(w.path, sizeof w.path, "PATH");
        if (own && is_left_behind(ring, own)) {
            say_left_behind(ring, own, hint, &w);
        } else {
            say_member(ring, hint, &w);
            if (own)
                say_beside(ring, own, hint, &w);
            else
                say_next(ring, hint, &w);
        }
        snprintf(text, sizeof text, "%.*s%s%s%s", (int)shown, path, w.lead, w.next[0] ? "; " : "",
                 w.next);
        if (strlen(text) < sizeof hint->text)
            break;
    }
    snprintf(hint->text, sizeof hint->text, "%.*s", (int)sizeof hint->text - 1, text);
}

static void describe(const struct plx_paths *paths, const struct plx_host_ring *ring,
                     const char *path, struct plx_ring_hint *hint)
{
    const struct plx_ring_member_seen *sound = plx_ring_members_sound(&ring->members);
    struct plx_known known = {0};
    struct plx_host_ring own;

    hint->known = ring->known;
    snprintf(hint->ring, sizeof hint->ring, "%s", ring->way.ring);
    snprintf(hint->store, sizeof hint->store, "%s", ring->way.identity);
    snprintf(hint->host, sizeof hint->host, "%s", ring->host_name);
    if (sound)
        plx_uuid_text(&sound->super.host, hint->host_uuid);
    if (hint->store[0] && plx_known_get(paths, hint->store, &known, NULL) == 0)
        snprintf(hint->name, sizeof hint->name, "%s", known.name);
    plx_known_done(&known);
    if (!sound) {
        snprintf(hint->text, sizeof hint->text,
                 "%.300s; no store, but a member of a write-back ring, which may hold writes that "
                 "were acknowledged and that its store lacks",
                 plx_host_ring_problem(ring)->text);
    } else if (open_beside(paths, ring, hint, &own)) {
        say(ring, &own, path, hint);
        plx_host_ring_close(&own);
    } else {
        say(ring, NULL, path, hint);
    }
}

int plx_ring_hint_member(const struct plx_paths *paths, const char *path,
                         struct plx_ring_hint *ret_hint, struct plx_fault *fault)
{
    struct plx_host_ring ring;
    char *whole;
    int error = 0;

    *ret_hint = (struct plx_ring_hint){0};
    if (!plx_ring_hint_holds(path) || plx_volumes_absolute(path, &whole, NULL))
        return PLX_ERR_NOT_FOUND;
    error = plx_host_ring_open(paths, whole, PLX_RING_LOOK, NULL, &ring, fault);
    if (!error) {
        describe(paths, &ring, whole, ret_hint);
        plx_host_ring_close(&ring);
    }
    free(whole);
    return error;
}

/* ---- Disks that need a ring which is not here ---- */

struct needed {
    const struct plx_paths *paths;
    const struct plx_known *known;
    bool copied;
    const char *from; /* the host from which the store is taken; NULL: it is not */
    bool dry_run;
    json_t *names; /* or NULL */
};

/* The record has no host's name: the one that had the store may have got it with the mark. */
static void warn_taken(const struct needed *n, const char *vdi, const char *ring)
{
    bool any = strcmp(n->from, PLX_TENANCY_ANY) == 0;
    const char *store = n->known->name, *would = n->dry_run ? "would not be" : "is not";
    const char *after = n->dry_run ? " afterwards" : "";
    char back[200] = "start that host, and leave the store to it";

    if (!n->dry_run)
        snprintf(back, sizeof back,
                 "start that host and give the store back ('parallax store release %s' here, "
                 "'parallax store import' there)",
                 store);
    plx_out_warning("%s/%s: its newest writes may lie on write-back ring %s of %s%.64s, or of one "
                    "that had the store before, and it %s used without that ring: %s; or bring the "
                    "ring's device here, and 'parallax ring create %s PATH --from HOST "
                    "--i-checked-it-is-off' takes it over%s (HOST as 'parallax store scan PATH' "
                    "shows it; both paths of a mirror); or 'parallax ring discard %s/%s' gives "
                    "these writes up%s",
                    store, vdi, ring, any ? "the host that had the store" : "host ",
                    any ? "" : n->from, would, back, store, after, store, vdi, after);
}

static void warn(const struct needed *n, const char *vdi, const char *ring, bool has_other)
{
    const char *further = "(both paths of a mirror; with --from HOST "
                          "--i-checked-it-is-off, if it is another host's)";
    const char *store = n->known->name;

    if (n->from)
        warn_taken(n, vdi, ring);
    else if (n->copied)
        plx_out_warning("%s/%s: its newest writes may lie on write-back ring %s of the original, "
                        "and it is not used without that ring; 'parallax ring discard %s/%s' gives "
                        "these writes up in the copy",
                        store, vdi, ring, store, vdi);
    else if (has_other)
        plx_out_warning("%s/%s: its newest writes may lie on another ring than this host's, %s, "
                        "and it is not used without that one; if that lies here: 'parallax ring "
                        "delete %s', then 'parallax ring create %s PATH' with its own path makes "
                        "it known again %s",
                        store, vdi, ring, store, store, further);
    else
        plx_out_warning("%s/%s: its newest writes may lie on write-back ring %s, which this host "
                        "does not have, and it is not used without that ring; if it lies here, "
                        "'parallax ring create %s PATH' with its own path makes it known again %s",
                        store, vdi, ring, store, further);
}

/* Of a ring that is known here, and that another host has taken over since: a member; or NULL. */
static const struct plx_ring_super *find_taker(const struct needed *n,
                                               const struct plx_host_ring *own)
{
    for (unsigned i = 0; i < own->members.count; i++) {
        const struct plx_ring_member_seen *member = &own->members.member[i];

        if ((!member->problem.code || member->problem.code == PLX_ERR_RING_AWAY) &&
            !plx_ring_member_is_ours(member, n->paths))
            return &member->super;
    }
    return NULL;
}

static void warn_away(const struct needed *n, const char *vdi, const struct plx_known_ring *way,
                      const struct plx_ring_super *taker)
{
    char paths[2 * PLX_WORD_TEXT] = "", word[PLX_WORD_TEXT];
    char host[PLX_HOST_WORD], called[PLX_HOST_WORD];

    for (unsigned i = 0; i < way->members; i++) {
        size_t at = strlen(paths);

        plx_plain_word(way->member[i], word, sizeof word);
        snprintf(paths + at, sizeof paths - at, "%s%s", i ? " " : "",
                 strlen(word) <= PATH_WORD_MAX ? word : "PATH");
    }
    plx_out_warning("%s/%s: its newest writes may lie on the ring that this host had, which is "
                    "host %s's now, and it %s used without that ring; if that host is off, "
                    "'parallax ring create %s %s --from %s --i-checked-it-is-off' takes it over%s",
                    n->known->name, vdi, plx_host_called(taker->host_name, &taker->host, called),
                    n->dry_run ? "would not be" : "is not", n->known->name, paths,
                    plx_host_word(taker->host_name, &taker->host, host),
                    n->dry_run ? " afterwards" : "");
}

static void warn_of_needed(void *context, struct plx_store *store)
{
    const struct needed *n = context;
    struct plx_known_ring entry = {0};
    struct plx_host_ring own = {0};
    struct plx_slot_scan scan = {0};
    const struct plx_ring_super *taker;
    char id[PLX_UUID_TEXT];
    unsigned needing = 0;
    bool has = plx_known_ring_get(n->paths, n->known->identity, &entry, NULL) == 0;

    if (has)
        plx_host_ring_look(n->paths, &entry, &own);
    taker = find_taker(n, &own);
    for (uint32_t slot = 0; plx_vdi_next_slot(store, &scan, &slot); slot++) {
        struct plx_vdi_info info;
        bool same;

        if (plx_vdi_read_info(store, slot, &info, NULL) || info.state != PLX_VDI_LIVE ||
            !plx_ring_is_marked(&info.mark))
            continue;
        plx_uuid_text(&info.mark.ring, id);
        same = has && !strcmp(id, own.way.ring);
        if (same && !taker)
            continue;
        if (n->names)
            json_array_append_new(n->names, plx_out_string(info.name));
        if (needing++ >= NAMED_MAX)
            continue;
        if (same)
            warn_away(n, info.name, &own.way, taker);
        else
            warn(n, info.name, id, has);
    }
    if (needing > NAMED_MAX)
        plx_out_warning("%u further virtual disks of store %s need such a ring; 'parallax store "
                        "check %s' names them",
                        needing - NAMED_MAX, n->known->name, n->known->name);
    if (has)
        plx_host_ring_close(&own);
}

void plx_ring_hint_needed(const struct plx_paths *paths, const struct plx_known *known,
                          struct plx_store *store, bool copied)
{
    warn_of_needed(&(struct needed){.paths = paths, .known = known, .copied = copied}, store);
}

void plx_ring_hint_taken(struct plx_cli *cli, const struct plx_known *known, const char *from,
                         bool dry_run, json_t *ret_names)
{
    struct needed needed = {.known = known, .from = from, .dry_run = dry_run, .names = ret_names};
    struct plx_paths *paths;

    if (plx_session_paths(cli, &paths))
        return;
    needed.paths = paths;
    plx_founding_look(known, warn_of_needed, &needed, plx_session_patience(cli), NULL);
}

void plx_ring_hint_imported(struct plx_cli *cli, const struct plx_known *known, bool copied)
{
    const struct plx_attach_options options = {.store = known->name,
                                               .state_dir = cli->state_dir,
                                               .role = "admin",
                                               .read_only = true,
                                               .patience = plx_session_patience(cli)};
    struct plx_attach *attach;
    struct plx_paths *paths;
    struct plx_fault why; /* RING_HINTS-1 */

    if (plx_session_paths(cli, &paths) || plx_attach_open(&options, &attach, &why))
        return;
    plx_ring_hint_needed(paths, known, plx_attach_store(attach), copied);
    plx_attach_close_why(attach, &why);
}

void plx_ring_hint_stays(const struct plx_paths *paths, const char *store,
                         char ret_text[PLX_RING_HINT_STAYS])
{
    char members[PLX_KNOWN_RING_TEXT];
    struct plx_host_ring ring;

    ret_text[0] = 0;
    if (plx_host_ring_open(paths, store, PLX_RING_LOOK, NULL, &ring, NULL))
        return;
    plx_known_ring_name_members(&ring.way, members);
    if (!is_empty(&ring))
        snprintf(ret_text, PLX_RING_HINT_STAYS,
                 "; this host's ring of it on %.220s stays, and may have writes that it lacks",
                 members);
    plx_host_ring_close(&ring);
}

/* ---- Disks that use the ring ---- */

static void note_user(struct plx_cli *cli, const char *store, const char *vdi,
                      enum plx_ring_setting use, enum plx_ring_hint_what what)
{
    const char *word = plx_ring_setting_words[use];

    if (what == PLX_RING_HINT_MADE)
        plx_out_note(cli, "virtual disk %s/%s has --ring %s, and uses this ring from now on", store,
                     vdi, word);
    else
        plx_out_note(cli,
                     "virtual disk %s/%s has --ring %s, and %s without a ring; a new ring of the "
                     "store will be used by it",
                     store, vdi, word, what == PLX_RING_HINT_GOES ? "goes on" : "would go on");
}

void plx_ring_hint_users(struct plx_cli *cli, const char *store, enum plx_ring_hint_what what)
{
    struct plx_registry_vdi *list = NULL;
    struct plx_registry_store row;
    size_t count = 0;

    plx_session_row(cli, &row);
    if (plx_registry_vdi_list(cli->session.registry, row.id, false, NULL, 0, &list, &count))
        return;
    for (size_t i = 0; i < count; i++) {
        enum plx_ring_setting use;

        if (!plx_ring_setting_load(cli->session.registry, list[i].id, &use) && use != PLX_RING_OFF)
            note_user(cli, store, list[i].name, use, what);
    }
    free(list);
}

static void name_open(struct plx_cli *cli, const char *store, const struct plx_registry_vdi *vdi,
                      char *text, size_t bytes)
{
    struct plx_registry_instance owner;
    json_t *who = plx_registry_instance_get(cli->session.registry, vdi->owner, &owner)
                      ? NULL
                      : plx_session_instance_text(cli, &owner);

    snprintf(text, bytes, "%s/%.40s (%.50s)", store, vdi->name,
             who ? json_string_value(who) : "somebody");
    json_decref(who);
}

void plx_ring_hint_open(struct plx_cli *cli, const char *store, char ret_text[PLX_RING_HINT_OPEN])
{
    struct plx_registry_vdi *list = NULL;
    struct plx_registry_store row;
    size_t count = 0, at = 0, shown = 0, more = 0;

    ret_text[0] = 0;
    plx_session_row(cli, &row);
    if (plx_registry_vdi_list(cli->session.registry, row.id, false, NULL, 0, &list, &count))
        return;
    for (size_t i = 0; i < count; i++) {
        enum plx_ring_setting use;
        char one[128];

        if (!list[i].owner || plx_ring_setting_load(cli->session.registry, list[i].id, &use) ||
            use == PLX_RING_OFF)
            continue;
        name_open(cli, store, &list[i], one, sizeof one);
        if (shown && at + strlen(one) + 32 > PLX_RING_HINT_OPEN)
            more++;
        else
            at += (size_t)snprintf(ret_text + at, PLX_RING_HINT_OPEN - at, "%s%s",
                                   shown++ ? ", " : "", one);
    }
    if (more)
        snprintf(ret_text + at, PLX_RING_HINT_OPEN - at, " and %zu more", more);
    free(list);
}

void plx_ring_hint_busy(struct plx_cli *cli, const char *store)
{
    const struct plx_fault said = cli->fault;
    struct plx_registry_store row;
    char open[PLX_RING_HINT_OPEN] = "";

    if (plx_session_registry(cli, store, &row) == 0)
        plx_ring_hint_open(cli, row.name, open);
    cli->fault = said;
    if (open[0])
        plx_cli_fail(cli, said.code,
                     "the ring of store %s is in use by %s; 'parallax vdi set STORE/VDI --ring "
                     "off', given for each of these virtual disks, ends that",
                     row.name, open);
}
