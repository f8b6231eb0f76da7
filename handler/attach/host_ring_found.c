/* host_ring_found.c - a ring that lies on the members that are given is taken up, or taken over
 * from another host, or refused, with what to do instead. The rules are in host_ring_create.c.
 *
 * Threads: the caller's.
 * Crash story: HOST_RING_CREATE-10.
 */
#include "attach/host_ring_inside.h"

#include <stdio.h>
#include <string.h>

#include "attach/attach_inside.h"
#include "registry/host_word.h"

/* ---- What is given ---- */

/* HOST_RING_CREATE-9 */
static bool goes_alone(const struct creation *c, const struct plx_ring_super *super)
{
    return !super->joining && (super->alone || c->options->other_lost);
}

static int load_to_look(const struct creation *c, struct plx_ring **ret_ring,
                        struct plx_fault *fault)
{
    struct plx_env env;

    plx_attach_init_env(&env);
    return plx_ring_members_load(
        &c->members, &(struct plx_ring_options){.env = &env, .read_only = true}, ret_ring, fault);
}

/* As a creation leaves it that was cut off. */
static bool is_empty(const struct creation *c)
{
    struct plx_ring_info info;
    struct plx_ring *ring;

    if (load_to_look(c, &ring, NULL))
        return false;
    plx_ring_get_info(ring, &info);
    plx_ring_close(ring);
    return info.free_segments == info.segments;
}

static int refuse_copies(struct creation *c)
{
    const struct plx_ring_member_seen *member = c->members.member;

    return plx_fault_set(c->fault, PLX_ERR_INVALID,
                         "%.150s and %.150s are copies of one member of a ring of store %s; give "
                         "one of them, and the other member",
                         member[0].path, member[1].path, c->known.store);
}

static const struct plx_ring_member_seen *other_given(const struct creation *c,
                                                      const struct plx_ring_member_seen *member)
{
    return c->members.count < 2 ? NULL : &c->members.member[member == c->members.member];
}

/* Two members of one ring are given that are not its members together. */
static int refuse_pair(struct creation *c, const struct plx_fault *why)
{
    const struct plx_ring_member_seen *member = c->members.member;
    bool first = plx_ring_set_descends(&member[0].super, member[1].super.set);
    const struct plx_ring_member_seen *now = first ? &member[0] : &member[1];

    if (why->code)
        return plx_fault_set(c->fault, PLX_ERR_UNCONFIRMED,
                             "%.300s; give one of them only, with --i-checked-the-other-is-lost",
                             why->text);
    return plx_fault_set(c->fault, PLX_ERR_UNCONFIRMED,
                         "the ring of store %s went on without %.150s; give %.150s only, or with "
                         "the member that took the other's place, if there is one",
                         c->known.store, other_given(c, now)->path, now->path);
}

/* HOST_RING_CREATE-5 */
static int check_pair(struct creation *c)
{
    struct plx_ring_info info = {0};
    struct plx_fault why = {0};
    struct plx_ring *ring;
    int error = load_to_look(c, &ring, &why);

    if (!error) {
        why.code = 0;
        plx_ring_get_info(ring, &info);
        plx_ring_close(ring);
    }
    return info.members == c->members.count ? 0 : refuse_pair(c, &why);
}

/* HOST_RING_CREATE-9. One of two members is there. */
static int refuse_one(struct creation *c, const struct plx_ring_member_seen *one)
{
    const struct plx_ring_member_seen *other = other_given(c, one);
    const char *store = c->known.store;

    if (one->super.joining)
        return plx_fault_set(c->fault, PLX_ERR_EXISTS,
                             "%.150s: the ring of store %s was being copied to it when that was "
                             "cut off, so it lacks writes; give the other member, by itself",
                             one->path, store);
    if (other)
        return plx_fault_set(c->fault, PLX_ERR_EXISTS,
                             "%.100s is one of two members of a ring of store %s, and the other "
                             "path is not its other one%s%.130s; if that is lost for good, give "
                             "this one only, and add --i-checked-the-other-is-lost",
                             one->path, store, other->problem.code ? ": " : "",
                             other->problem.code ? other->problem.text : "");
    return plx_fault_set(c->fault, PLX_ERR_EXISTS,
                         "%.150s is one of two members of a ring of store %s; give both to take "
                         "the ring up again; if the other one is lost for good, give this one "
                         "only, and add --i-checked-the-other-is-lost; or end the ring by "
                         "'parallax ring delete %.150s'",
                         one->path, store, one->path);
}

/* ---- Whose it is ---- */

static bool is_named(const char *from, const struct plx_ring_super *super)
{
    char id[PLX_UUID_TEXT];

    plx_uuid_text(&super->host, id);
    return strcmp(from, super->host_name) == 0 || strcmp(from, id) == 0;
}

/* HOST_RING_CREATE-10. The member is another host's. */
static int refuse_other(struct creation *c, const struct plx_ring_member_seen *member)
{
    const char *name = member->super.host_name;
    char word[PLX_HOST_WORD];

    if (!c->options->from)
        return plx_fault_set(c->fault, PLX_ERR_UNCONFIRMED,
                             "if host %s is off, or was this machine, add --from %.100s "
                             "--i-checked-it-is-off: %.100s is a member of its ring of store %s, "
                             "and may hold writes that the store lacks; the ring becomes this "
                             "host's, with these writes",
                             name,
                             plx_host_word(member->super.host_name, &member->super.host, word),
                             member->path, c->known.store);
    return plx_fault_set(c->fault, PLX_ERR_INVALID,
                         "nothing was changed: %.150s is a member of host %s's ring of store %s, "
                         "not of %.64s's",
                         member->path, name, c->known.store, c->options->from);
}

/* Whether all members are this host's, or are to become it. A taking-over that was cut off leaves a
 * ring that names two hosts: either name is good enough. *ret_theirs: some are another host's. */
static int check_hosts(struct creation *c, bool *ret_theirs)
{
    const struct plx_ring_member_seen *theirs = NULL;
    bool named = false;

    for (unsigned i = 0; i < c->members.count; i++) {
        const struct plx_ring_member_seen *member = &c->members.member[i];

        if (member->problem.code || plx_ring_member_is_ours(member, &c->attach->paths))
            continue;
        theirs = member;
        named |= c->options->from && is_named(c->options->from, &member->super);
    }
    *ret_theirs = theirs != NULL;
    return !theirs || named ? 0 : refuse_other(c, theirs);
}

/* ---- Found ---- */

int plx_host_ring_find(struct creation *c, bool *ret_found)
{
    const struct plx_ring_member_seen *sound = plx_ring_members_sound(&c->members);
    char store[PLX_UUID_TEXT];
    unsigned same = 0;
    bool theirs;
    int error;

    *ret_found = false;
    if (!sound)
        return 0;
    plx_uuid_text(&sound->super.store, store);
    if (strcmp(store, c->known.identity) != 0)
        return 0; /* what is made of it is refused, with whose it is */
    error = check_hosts(c, &theirs);
    if (error == PLX_ERR_UNCONFIRMED && !c->refused.code && is_empty(c))
        return 0; /* likewise, but with --force */
    if (error)
        return error;
    for (unsigned i = 0; i < c->members.count; i++)
        same += !c->members.member[i].problem.code &&
                plx_uuid_equal(&c->members.member[i].super.ring, &sound->super.ring);
    if (same > 1 && c->members.member[0].super.member == c->members.member[1].super.member)
        return refuse_copies(c);
    if (same > 1 && (error = check_pair(c)) != 0)
        return error;
    *ret_found =
        same == c->members.count && (same == sound->super.members || goes_alone(c, &sound->super));
    c->takes_over = *ret_found && theirs;
    if (*ret_found || sound->super.members == 1 || (same < c->members.count && is_empty(c)))
        return 0; /* likewise */
    return refuse_one(c, sound);
}

/* ---- Beside a ring that is entered ---- */

struct entered {
    struct plx_known_ring entry;
    struct plx_ring_members members;
    bool same; /* what is given is of that ring */
};

static bool is_given(const struct creation *c, const char *path)
{
    for (unsigned i = 0; i < c->known.members; i++)
        if (strcmp(path, c->known.member[i]) == 0)
            return true;
    return false;
}

/* HOST_RING_CREATE-8. A member that is where it was has to be given, too; or it is not to be used
 * any more, by the operator's word. */
static bool is_moved(const struct creation *c, const struct entered *e)
{
    unsigned gone = 0, left = 0;

    for (unsigned i = 0; i < e->members.count; i++) {
        const struct plx_ring_member_seen *member = &e->members.member[i];

        gone += member->problem.code != 0;
        left += !member->problem.code && !is_given(c, member->path);
    }
    return left ? c->options->other_lost : gone > 0;
}

/* The first member of the ring that is entered which does not hold it; NULL: all do. */
static const struct plx_ring_member_seen *missing_member(const struct entered *e)
{
    for (unsigned i = 0; i < e->members.count; i++)
        if (e->members.member[i].problem.code)
            return &e->members.member[i];
    return NULL;
}

/* One of its members that was not given is there. */
static bool has_other(const struct creation *c, const struct entered *e)
{
    for (unsigned i = 0; i < e->members.count; i++) {
        const struct plx_ring_member_seen *member = &e->members.member[i];

        if (!is_given(c, member->path) &&
            (!member->problem.code || member->problem.code == PLX_ERR_RING_AWAY))
            return true;
    }
    return false;
}

static bool is_entered(const struct creation *c, const struct entered *e)
{
    unsigned given = 0;

    for (unsigned i = 0; i < e->entry.members; i++)
        given += is_given(c, e->entry.member[i]);
    return given == c->known.members;
}

/* The ring that is entered went on without this member of it, or was copied to another one. */
static bool is_left_behind(const struct plx_ring_super *super, const struct entered *e)
{
    const struct plx_ring_member_seen *now = plx_ring_members_sound(&e->members);

    return now && now->super.set != super->set &&
           (super->joining || plx_ring_set_descends(&now->super, super->set));
}

/* What is given is of the ring that is entered. */
static void refuse_same(struct creation *c, const struct entered *e)
{
    const struct plx_ring_member_seen *given = plx_ring_members_sound(&c->members);
    const char *store = c->known.store;
    char members[PLX_KNOWN_RING_TEXT];

    plx_known_ring_name_members(&e->entry, members);
    if (is_entered(c, e) && plx_ring_members_sound(&e->members))
        plx_fault_set(c->fault, PLX_ERR_EXISTS,
                      "this host's ring of store %s on %s is known already; 'parallax ring info "
                      "%s' shows it",
                      store, members, store);
    else if (is_left_behind(&given->super, e))
        plx_fault_set(c->fault, PLX_ERR_EXISTS,
                      "%.150s was a member of this host's ring of store %s, which went on without "
                      "it on %s; 'parallax ring repair %s --with %.150s' makes it one again",
                      given->path, store, members, store, given->path);
    else if (!missing_member(e))
        plx_fault_set(c->fault, PLX_ERR_EXISTS,
                      "%.150s is a copy of this host's ring of store %s on %s, or was used apart; "
                      "to use it instead, move that one away and repeat this%s",
                      given->path, store, members,
                      given->super.members > 1
                          ? ", or give it by itself with --i-checked-the-other-is-lost"
                          : "");
    else if (has_other(c, e) && given->super.members > c->known.members && !given->super.alone)
        plx_fault_set(c->fault, PLX_ERR_EXISTS,
                      "%.150s is one of two members of this host's ring of store %s, known on %s; "
                      "give both paths",
                      given->path, store, members);
}

/* HOST_RING_CREATE-8. The words of the refusal, by what has become of the ring that is entered. */
static void refuse_entered(struct creation *c, const struct entered *e)
{
    const struct plx_ring_member_seen *missing = missing_member(e);
    const char *store = c->known.store;

    if (e->same)
        refuse_same(c, e);
    else if (missing && !plx_ring_members_alone(&e->members))
        plx_fault_set(c->fault, PLX_ERR_EXISTS,
                      "this host has a ring of store %s already, which is not where it was: "
                      "%.200s; if it was moved, give its new path; if it is lost for good: "
                      "'parallax ring discard %s/VDI' for each virtual disk that needs it, then "
                      "'parallax ring delete %s --force'",
                      store, missing->problem.text, store, store);
}

/* error: what stands against the members that are given. It says more than that there is a ring. */
static int check_entered(struct creation *c, struct entered *e, int error, bool found)
{
    const struct plx_ring_member_seen *sound = plx_ring_members_sound(&c->members);
    char ring[PLX_UUID_TEXT];

    if (sound) {
        plx_uuid_text(&sound->super.ring, ring);
        e->same = strcmp(ring, e->entry.ring) == 0;
    }
    if (plx_ring_members_open(&e->members, e->entry.member, e->entry.members, PLX_RING_LOOK, 0,
                              NULL, NULL))
        return PLX_ERR_EXISTS;
    plx_ring_members_check(&e->members, e->entry.ring);
    plx_ring_members_check_host(&e->members, &c->attach->paths, c->known.store);
    error = !error && found && e->same && is_moved(c, e) ? 0 : PLX_ERR_EXISTS;
    if (error)
        refuse_entered(c, e);
    plx_ring_members_close(&e->members);
    return error;
}

int plx_host_ring_replace(struct creation *c, int error, bool found)
{
    struct entered e = {.same = false};

    if (error == PLX_ERR_BUSY || error == PLX_ERR_INVALID || error == PLX_ERR_UNCONFIRMED)
        return error;
    if (error != PLX_ERR_EXISTS)
        plx_fault_set(c->fault, PLX_ERR_EXISTS, "%s", c->refused.text);
    if (plx_known_ring_get(&c->attach->paths, c->known.identity, &e.entry, NULL))
        return plx_fault_set(c->fault, c->refused.code, "%s", c->refused.text);
    error = check_entered(c, &e, error, found);
    plx_known_ring_done(&e.entry);
    return error;
}

/* ---- Taken up ---- */

/* HOST_RING_CREATE-1. A store restored from an older backup may have lost its feature bit for
 * rings. */
int plx_host_ring_allow(struct creation *c)
{
    const struct plx_attach_growth growth = {.allow = plx_store_allow_ring};
    struct plx_grown grown = {0};

    return plx_store_allows_ring(c->attach->store)
               ? 0
               : plx_attach_grow(c->attach, &growth, &grown, c->fault);
}

static int refuse_older(struct creation *c, struct plx_ring *ring)
{
    const struct plx_ring_member_seen *sound = plx_ring_members_sound(&c->members);
    const char *store = c->known.store;
    struct plx_ring_disks disks = {0};
    int error =
        plx_ring_disks_look(&sound->super.ring, ring, c->attach->store, false, &disks, c->fault);

    for (size_t i = 0; i < disks.count && !error; i++)
        if (disks.disk[i].marked && disks.disk[i].problem.code == PLX_ERR_RING_AWAY)
            error = plx_fault_set(c->fault, PLX_ERR_RING_AWAY,
                                  "%.150s lacks the newest writes of %.120s: bring the other "
                                  "member back, or give these writes up first with 'parallax ring "
                                  "discard %s/%.120s'",
                                  sound->path, disks.disk[i].name, store, disks.disk[i].name);
    plx_ring_disks_done(&disks);
    return error;
}

/* HOST_RING_CREATE-9 */
static int check_alone(struct creation *c)
{
    struct plx_ring *ring;
    int error = load_to_look(c, &ring, c->fault);

    if (error)
        return error;
    error = refuse_older(c, ring);
    plx_ring_close(ring);
    return error;
}

/* HOST_RING_CREATE-9, HOST_RING_CREATE-10 */
static int settle_supers(struct creation *c)
{
    const struct plx_ring_super *super = &plx_ring_members_sound(&c->members)->super;
    const struct plx_paths *paths = &c->attach->paths;
    bool alone = c->members.count < super->members && !super->alone;
    struct plx_ring_options options = {.alone = alone};
    struct plx_ring *ring;
    struct plx_env env;
    int error = c->options->other_lost || alone ? check_alone(c) : 0;

    if (error || (!alone && !c->takes_over))
        return error;
    plx_attach_init_env(&env);
    options.env = &env;
    if (c->takes_over) {
        plx_uuid_parse(paths->host, &options.host);
        snprintf(options.host_name, sizeof options.host_name, "%s", paths->host_name);
    }
    error = plx_ring_members_load(&c->members, &options, &ring, c->fault);
    if (!error)
        plx_ring_close(ring);
    return error;
}

int plx_host_ring_take_up(struct creation *c)
{
    int error = plx_host_ring_allow(c);

    if (!error)
        error = settle_supers(c);
    if (!error)
        plx_uuid_text(&plx_ring_members_sound(&c->members)->super.ring, c->known.ring);
    return error;
}
