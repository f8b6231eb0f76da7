/* host_ring.c - this host's ring of a store is looked at, and deleted.
 *
 * HOST_RING-1  A ring that a virtual disk's record names is never erased, whatever the operator
 *     says: it may hold writes of the disk that were acknowledged (RING_DISKS-1), and the disk
 *     cannot be used without it. Such a disk has to drain first, or its writes have to be
 *     discarded.
 * HOST_RING-2  If the store cannot be asked, or a record of it cannot be read, a ring that may hold
 *     anything goes only by the operator's word that nobody needs it. --force is not that word. It
 *     stands for three things that no record names: writes that were set aside, members that cannot
 *     be read, and a ring of another host.
 * HOST_RING-3  The members are locked exclusively before the store is asked. So no handler marks a
 *     disk with the ring in between.
 * HOST_RING-4  The ring is erased first, durably, and then dropped from the list. If a deletion was
 *     cut off, what is left is deleted by the same command: a member without the ring needs no
 *     erasing.
 * HOST_RING-5  A file that was a member gives its blocks back when the ring is deleted. So nothing
 *     of the ring is found in it, and the next ring is made in it without --force. A device keeps
 *     what the segments had.
 * HOST_RING-6  A ring that this host has entered, and that another host took over, is not called
 *     usable, and nothing of it is read. Every look at a ring asks plx_host_ring_check(), as
 *     opening one does (RING_MEMBERS-3). The only exception is a member that is looked at by its
 *     path.
 * HOST_RING-7  Such a ring is only forgotten if it is deleted by the name of its store, because the
 *     other host may use it. If a disk may need it, that takes --force, for this host may be the
 *     one to take it over. Erasing it takes the path of a member.
 * Threads: the caller's.
 * Crash story: HOST_RING-4.
 */
#include "attach/host_ring.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attach/attach_inside.h"
#include "attach/volumes.h"
#include "engine/base/plain.h"
#include "registry/host_word.h"

#define NAMES_SHOWN 3u

/* ---- Its members ---- */

const char *plx_host_ring_word(const char *path, char ret_text[PLX_HOST_RING_WORD])
{
    char word[PLX_WORD_TEXT];

    plx_plain_word(path, word, sizeof word);
    snprintf(ret_text, PLX_HOST_RING_WORD, "%.71s",
             strlen(word) < PLX_HOST_RING_WORD ? word : "PATH");
    return ret_text;
}

/* Of a long path the end: the beginnings of two members may be the same. */
static const char *end_of(const char *path)
{
    size_t length = strlen(path);

    return length < PLX_HOST_RING_WORD ? path : path + length + 4 - PLX_HOST_RING_WORD;
}

static bool is_away(const struct plx_ring_member_seen *member)
{
    return member->problem.code == PLX_ERR_RING_AWAY;
}

/* HOST_RING-6. With all members that are there: the one that is not asked for is not lost. */
static int refuse_away(const struct plx_ring_members *members,
                       const struct plx_ring_member_seen *away, const char *store,
                       struct plx_fault *fault)
{
    char paths[2 * PLX_HOST_RING_WORD + 2] = "", host[PLX_HOST_WORD];
    const char *path = end_of(away->path);
    unsigned there = 0;
    bool lost;

    for (unsigned i = 0; i < members->count; i++) {
        const struct plx_ring_member_seen *member = &members->member[i];
        size_t length = strlen(paths);
        char word[PLX_HOST_RING_WORD];

        if (member->problem.code && !is_away(member))
            continue;
        there++;
        snprintf(paths + length, sizeof paths - length, " %s",
                 plx_host_ring_word(member->path, word));
    }
    lost = there < away->super.members && !away->super.alone;
    return plx_fault_set(
        fault, PLX_ERR_RING_AWAY,
        "%s%s belongs to a ring of host %s; if that host is off, or was this "
        "machine, 'parallax ring create %s%s --from %.80s --i-checked-it-is-off%s' "
        "takes the ring over%s",
        path > away->path ? "..." : "", path, away->super.host_name, store, paths,
        plx_host_word(away->super.host_name, &away->super.host, host),
        lost ? " --i-checked-the-other-is-lost" : "",
        lost ? "; if the other member is not lost for good, give its "
               "path instead of the last word"
             : "");
}

int plx_host_ring_check(struct plx_ring_members *members, const struct plx_paths *paths,
                        const char *ring, const char *store, struct plx_fault *fault)
{
    plx_ring_members_check(members, ring);
    plx_ring_members_check_host(members, paths, store);
    if (plx_ring_members_alone(members)) /* which lacks nothing, whoever has the other one */
        return 0;
    for (unsigned i = 0; i < members->count; i++)
        if (is_away(&members->member[i]))
            return refuse_away(members, &members->member[i], store, fault);
    return 0;
}

const char *plx_host_ring_advise(const struct plx_ring_members *members, const char *store,
                                 char ret_text[PLX_HOST_RING_ADVICE])
{
    const struct plx_ring_member_seen *sound = plx_ring_members_sound(members);
    bool two = members->count > 1;

    if (sound && two)
        snprintf(ret_text, PLX_HOST_RING_ADVICE,
                 "; bring it back; if it lies elsewhere now: 'parallax ring create %s NEW OTHER'; "
                 "if it is lost for good: 'parallax ring repair %s --i-checked-the-other-is-lost' "
                 "goes on with the other one",
                 store, store);
    else
        snprintf(ret_text, PLX_HOST_RING_ADVICE,
                 "; %s; if %s elsewhere now: 'parallax ring create %s PATH%s'; if %s lost for "
                 "good: 'parallax ring discard %s/VDI' for each virtual disk that needs the ring, "
                 "then 'parallax ring delete %s --force'",
                 two ? "no member is left to go on with: bring them back" : "bring it back",
                 two ? "they lie" : "it lies", store, two ? " PATH" : "",
                 two ? "both are" : "it is", store, store);
    return ret_text;
}

/* ---- Looked at ---- */

const struct plx_fault *plx_host_ring_problem(const struct plx_host_ring *ring)
{
    if (ring->away)
        return &ring->problem;
    for (unsigned i = 0; i < ring->members.count; i++)
        if (ring->members.member[i].problem.code)
            return &ring->members.member[i].problem;
    return ring->problem.code ? &ring->problem : NULL;
}

static void load(struct plx_host_ring *ring)
{
    struct plx_env env;

    if (ring->away)
        return;
    if (!plx_ring_members_sound(&ring->members)) {
        ring->problem = ring->members.member[0].problem;
        return;
    }
    plx_attach_init_env(&env);
    if (plx_ring_members_load(&ring->members,
                              &(struct plx_ring_options){.env = &env, .read_only = true},
                              &ring->ring, &ring->problem) == 0)
        ring->problem.code = 0;
}

static void settle_host(const struct plx_paths *paths, struct plx_host_ring *ring)
{
    bool sound = false;

    ring->ours = true;
    for (unsigned i = 0; i < ring->members.count && ring->ours; i++) {
        const struct plx_ring_member_seen *member = &ring->members.member[i];

        if (member->problem.code)
            continue;
        sound = true;
        ring->ours = plx_ring_member_is_ours(member, paths);
        snprintf(ring->host_name, sizeof ring->host_name, "%s", member->super.host_name);
    }
    ring->ours &= sound || ring->known;
}

/* by_path: HOST_RING-6 */
static int open_known(const struct plx_paths *paths, enum plx_ring_hold hold, bool by_path,
                      const struct plx_patience *patience, struct plx_host_ring *ring,
                      struct plx_fault *fault)
{
    const struct plx_known_ring *way = &ring->way;
    int error;

    ring->known = true;
    error = plx_ring_members_open(&ring->members, ring->way.member, ring->way.members, hold, 0,
                                  patience, fault);
    if (error)
        return error;
    plx_ring_members_check(&ring->members, way->ring);
    settle_host(paths, ring);
    if (!by_path)
        ring->away =
            plx_host_ring_check(&ring->members, paths, way->ring, way->store, &ring->problem) != 0;
    load(ring);
    ring->in_use = hold == PLX_RING_LOOK && plx_ring_members_in_use(&ring->members);
    return 0;
}

void plx_host_ring_look(const struct plx_paths *paths, struct plx_known_ring *entry,
                        struct plx_host_ring *ret_ring)
{
    *ret_ring = (struct plx_host_ring){.way = *entry};
    entry->members = 0;
    open_known(paths, PLX_RING_LOOK, false, NULL, ret_ring, NULL); /* looking is never BUSY */
}

/* A ring that is not known here: all that is known of it lies on this member. */
static int open_unknown(const struct plx_paths *paths, enum plx_ring_hold hold,
                        const struct plx_patience *patience, struct plx_host_ring *ring,
                        struct plx_fault *fault)
{
    const struct plx_ring_member_seen *member = &ring->members.member[0];
    int error =
        plx_ring_members_open(&ring->members, ring->way.member, 1, hold, 0, patience, fault);

    if (error)
        return error;
    if (!member->device || member->problem.code == PLX_ERR_NOT_FOUND)
        return plx_fault_set(fault, member->problem.code, "%s", member->problem.text);
    if (!member->problem.code) {
        plx_uuid_text(&member->super.ring, ring->way.ring);
        plx_uuid_text(&member->super.store, ring->way.identity);
    }
    settle_host(paths, ring);
    load(ring);
    ring->in_use = hold == PLX_RING_LOOK && plx_ring_members_in_use(&ring->members);
    return 0;
}

/* The ring that is known here and has a member there, if there is one. */
static int find_by_member(const struct plx_paths *paths, const char *path,
                          struct plx_host_ring *ring, struct plx_fault *fault)
{
    const struct plx_known_ring *found;
    struct plx_known_ring *list;
    size_t count;
    int error = plx_known_ring_list(paths, &list, &count, fault);

    if (error)
        return error;
    error = plx_known_ring_at(list, count, path, PLX_SAME, &found, fault);
    if (!error && found) {
        ring->known = true;
        ring->way = *found;
        list[found - list].members = 0; /* they went along */
    }
    plx_known_ring_list_free(list, count);
    if (error || found)
        return error;
    error = plx_volumes_absolute(path, &ring->way.member[0], fault);
    ring->way.members = !error;
    return error;
}

int plx_host_ring_open(const struct plx_paths *paths, const char *what, enum plx_ring_hold hold,
                       const struct plx_patience *patience, struct plx_host_ring *ret_ring,
                       struct plx_fault *fault)
{
    bool by_path = strchr(what, '/') != NULL;
    struct plx_host_ring ring = {.known = !by_path};
    int error = by_path ? find_by_member(paths, what, &ring, fault)
                        : plx_known_ring_find(paths, what, &ring.way, fault);

    if (!error)
        error = ring.known ? open_known(paths, hold, by_path, patience, &ring, fault)
                           : open_unknown(paths, hold, patience, &ring, fault);
    if (error)
        plx_host_ring_close(&ring);
    else
        *ret_ring = ring;
    return error;
}

void plx_host_ring_close(struct plx_host_ring *ring)
{
    if (ring->ring)
        plx_ring_close(ring->ring);
    ring->ring = NULL;
    plx_ring_members_close(&ring->members);
    plx_known_ring_done(&ring->way);
}

/* ---- Deleted ---- */

/* "web, db and 4 more", for people: those that have the ring's mark, or those without. */
static void name_disks(const struct plx_ring_disks *disks, bool marked, char *ret_text, size_t size)
{
    size_t shown = 0, more = 0, at = 0;

    ret_text[0] = 0;
    for (size_t i = 0; i < disks->count; i++) {
        const struct plx_ring_disk *disk = &disks->disk[i];
        char id[PLX_UUID_TEXT];

        if (disk->marked != marked || (!marked && disk->looked && !disk->look.aside))
            continue;
        if (shown == NAMES_SHOWN) {
            more++;
            continue;
        }
        plx_uuid_text(&disk->id, id);
        at += (size_t)snprintf(ret_text + at, size - at, "%s%.60s", shown++ ? ", " : "",
                               disk->name[0] ? disk->name : id);
    }
    if (more)
        snprintf(ret_text + at, size - at, " and %zu more", more);
}

uint32_t plx_host_ring_held(const struct plx_ring_disks *disks, char ret_names[PLX_HOST_RING_NAMES])
{
    uint32_t segments = 0;

    name_disks(disks, false, ret_names, PLX_HOST_RING_NAMES);
    for (size_t i = 0; i < disks->count; i++)
        if (!disks->disk[i].looked || disks->disk[i].look.aside)
            segments += disks->disk[i].segments;
    return segments;
}

static bool holds_nothing(const struct plx_host_ring *ring)
{
    struct plx_ring_info info;

    if (!ring->ring)
        return false;
    plx_ring_get_info(ring->ring, &info);
    return info.free_segments == info.segments;
}

/* Whether the ring has records that no disk claims, or may have. */
static bool has_aside(const struct plx_host_ring *ring, const struct plx_ring_disks *disks)
{
    struct plx_ring_info info;

    if (!ring->ring) /* what cannot be read may; where no ring lies there is nothing */
        return plx_host_ring_problem(ring)->code != PLX_ERR_NOT_FOUND;
    plx_ring_get_info(ring->ring, &info);
    if (info.bad_segments)
        return true;
    for (size_t i = 0; i < disks->count; i++)
        if (!disks->disk[i].looked || disks->disk[i].look.aside)
            return true;
    return false;
}

/* A member that is not there, or cannot be read; NULL: there is none. One that holds no ring any
 * more needs no erasing. */
static const struct plx_fault *lost_member(const struct plx_host_ring *ring)
{
    for (unsigned i = 0; i < ring->members.count; i++) {
        const struct plx_ring_member_seen *member = &ring->members.member[i];

        if (member->problem.code && (!member->device || member->problem.code != PLX_ERR_NOT_FOUND))
            return &member->problem;
    }
    return NULL;
}

/* HOST_RING-2 */
static int refuse_harm(const struct plx_host_ring *ring, const struct plx_ring_disks *disks,
                       struct plx_fault *fault)
{
    const struct plx_fault *lost = lost_member(ring);
    char names[224];

    if (!ring->ours)
        return plx_fault_set(fault, PLX_ERR_BUSY,
                             "%.150s is a member of a ring of host %s; if that host does not use "
                             "it any more, add --force",
                             ring->way.member[0], ring->host_name);
    if (lost)
        return plx_fault_set(fault, PLX_ERR_BUSY,
                             "%.300s; with --force the ring is deleted all the same", lost->text);
    if (!has_aside(ring, disks))
        return 0;
    name_disks(disks, false, names, sizeof names);
    return plx_fault_set(fault, PLX_ERR_BUSY,
                         "the ring may hold writes%s%s that were set aside: " PLX_RING_WHY_ASIDE
                         "; with --force they are lost",
                         names[0] ? " to " : "", names);
}

/* HOST_RING-1. A member of two is missing, and no disk is used with the other one alone. */
static int refuse_lacking(const struct plx_host_ring *ring, const char *names,
                          struct plx_fault *fault)
{
    return plx_fault_set(fault, PLX_ERR_BUSY,
                         "the ring is needed, for it may hold the newest writes of %.100s, and a "
                         "member of it is missing: %.150s; bring it back, or, if it is lost for "
                         "good, 'parallax ring repair %s --i-checked-the-other-is-lost' goes on "
                         "with the other one",
                         names, plx_host_ring_problem(ring)->text,
                         ring->way.store[0] ? ring->way.store : "STORE");
}

/* HOST_RING-1, and nothing of the ring can be drained. */
static int refuse_lost(const struct plx_host_ring *ring, const char *names, struct plx_fault *fault)
{
    return plx_fault_set(fault, PLX_ERR_BUSY,
                         "the ring is needed, for it may hold the newest writes of %.100s, and it "
                         "cannot be read: %.150s; bring it back, or, if it is lost for good, give "
                         "these writes up with 'parallax ring discard STORE/VDI', then 'parallax "
                         "ring delete %s --force' forgets it",
                         names, plx_host_ring_problem(ring)->text,
                         ring->way.store[0] ? ring->way.store : "STORE");
}

/* HOST_RING-1, and it is looked at by its path: only its host can drain it. */
static int refuse_others(const struct plx_host_ring *ring, const char *names,
                         struct plx_fault *fault)
{
    return plx_fault_set(fault, PLX_ERR_BUSY,
                         "the ring belongs to host %s, and is needed, for it may hold the newest "
                         "writes of %.100s; if that host is off, or was this machine, 'parallax "
                         "ring create STORE PATH --from HOST --i-checked-it-is-off' takes it over "
                         "with them",
                         ring->host_name, names);
}

/* HOST_RING-7 */
static int may_forget(const struct plx_host_ring *ring, bool needed,
                      const struct plx_host_ring_word *word, struct plx_fault *fault)
{
    return !needed || word->force
               ? 0
               : plx_fault_set(fault, PLX_ERR_BUSY,
                               "a virtual disk may need the ring: %s; --force forgets the ring "
                               "here, and erases nothing",
                               ring->problem.text);
}

int plx_host_ring_may_go(const struct plx_host_ring *ring, const struct plx_ring_disks *disks,
                         const struct plx_fault *untold, const struct plx_host_ring_word *word,
                         struct plx_fault *fault)
{
    char names[224];

    if (ring->away)
        return may_forget(ring, disks->marked || disks->untold || untold, word, fault);
    if (disks->marked) { /* HOST_RING-1 */
        name_disks(disks, true, names, sizeof names);
        if (!ring->ring)
            return refuse_lost(ring, names, fault);
        if (lost_member(ring) && !plx_ring_members_alone(&ring->members))
            return refuse_lacking(ring, names, fault);
        if (!ring->ours)
            return refuse_others(ring, names, fault);
        return plx_fault_set(
            fault, PLX_ERR_BUSY,
            "the ring is needed, for it may hold the newest writes of %s; 'parallax "
            "vdi set STORE/VDI --ring off' brings them to the store",
            names);
    }
    if (!word->unneeded && !holds_nothing(ring) && (untold || disks->untold))
        return plx_fault_set(fault, PLX_ERR_UNCONFIRMED,
                             "%.340s, so nobody knows whether a virtual disk needs the ring, which "
                             "holds writes to %zu virtual disk%s; if none does, add "
                             "--i-checked-nobody-needs-it",
                             untold ? untold->text : "the record of a virtual disk cannot be read",
                             disks->count, disks->count == 1 ? "" : "s");
    return word->force || (untold && word->unneeded) ? 0 : refuse_harm(ring, disks, fault);
}

/* A member that cannot be read, or holds no ring or another one, is left as it is. */
static bool is_erased(const struct plx_ring_member_seen *member)
{
    int code = member->problem.code;

    return member->device && (!code || code == PLX_ERR_CORRUPT || code == PLX_ERR_UNSUPPORTED);
}

/* HOST_RING-5. The ring is gone already, so what fails is no error. */
static void empty_file(const struct plx_device *device)
{
    int fd = open(device->name, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    struct stat st;

    if (fd < 0)
        return;
    if (!fstat(fd, &st) && S_ISREG(st.st_mode))
        (void)!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, st.st_size);
    close(fd);
}

bool plx_host_ring_is_there(const struct plx_host_ring *ring)
{
    for (unsigned i = 0; i < ring->members.count && !ring->away; i++)
        if (is_erased(&ring->members.member[i]))
            return true;
    return false;
}

int plx_host_ring_delete(const struct plx_paths *paths, struct plx_host_ring *ring,
                         struct plx_fault *fault)
{
    int error = 0;

    if (ring->ring) /* which reads from the members */
        plx_ring_close(ring->ring);
    ring->ring = NULL;
    for (unsigned i = 0; i < ring->members.count && !error; i++) { /* HOST_RING-4 */
        if (ring->away || !is_erased(&ring->members.member[i]))    /* HOST_RING-7 */
            continue;
        error = plx_ring_erase(ring->members.member[i].device, fault);
        if (!error)
            empty_file(ring->members.member[i].device);
    }
    return error || !ring->known ? error : plx_known_ring_remove(paths, ring->way.identity, fault);
}
