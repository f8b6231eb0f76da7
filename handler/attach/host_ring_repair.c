/* host_ring_repair.c - a ring of two members goes on with one of them, or gets another one.
 *
 * HOST_RING_REPAIR-1  Whether a missing member is lost for good only the operator can know: it may
 *     have writes that the other one lacks. Without that word nothing is written.
 * HOST_RING_REPAIR-2  The survivor has its new set, durably, before anything else (RING-2). From
 *     then on it can be opened without anybody's word, and the other member is set aside if it
 *     comes back.
 * HOST_RING_REPAIR-3  The lost member's path is dropped from the entry. The new member's path is
 *     entered when that one is a member, durably (resilver.c). Until then the ring goes on with the
 *     survivor alone.
 * HOST_RING_REPAIR-4  The members stay locked exclusively all along (RING_MEMBERS-1).
 * HOST_RING_REPAIR-5  If the store knows that a member lacks a disk's newest writes, that member
 *     does not go on alone, nor is it copied to another one: the other one may have these writes.
 *     The command refuses it, if the store can be asked (cmd_ring_repair.c).
 * HOST_RING_REPAIR-6  A file that was made for a new member, and that the ring did not take, is
 *     removed.
 * HOST_RING_REPAIR-7  A handler may have lost a member and gone on, so that the path of the member
 *     left behind is entered still. That same member may be given as the new one. Then its device
 *     is closed first, and opened again as the new member's.
 * HOST_RING_REPAIR-8  A damaged member that is in use is left behind first, and then copied to like
 *     one that was left. The other member lacks nothing that the damaged one has: the caller knows.
 *     So nobody's word is needed, and the ring has everything whenever that is cut off.
 * HOST_RING_REPAIR-9  A member that was left by somebody's word (RING-7) may have newer writes than
 *     the ring and the store. Then it is copied to only with --force, because it may have the only
 *     copy of what was acknowledged. The command looks (ring_check.c).
 * Threads: the caller's.
 * Crash story: at each point the ring lacks one of two members, or goes on with one alone, or is
 *   whole again. The same call goes on.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attach/attach_inside.h"
#include "attach/host_ring.h"
#include "attach/occupied.h"
#include "attach/volumes.h"

struct repair {
    const struct plx_paths *paths;
    struct plx_host_ring *ring;
    const struct plx_host_ring_repair *how;
    struct plx_env env;
    struct plx_ring *open;
    struct plx_ring_members with; /* the new member */
    char *path;                   /* its absolute one */
    bool replaces;                /* what is there was looked at, and may go */
    bool copies;                  /* the ring has taken the new member's device */
    struct plx_fault *fault;
};

static const struct plx_ring_member_seen *survivor(const struct repair *r)
{
    const struct plx_ring_member_seen *alone = plx_ring_members_alone(&r->ring->members);

    return alone ? alone : plx_ring_members_sound(&r->ring->members);
}

static int refuse_one(const struct repair *r)
{
    const char *store = r->ring->way.store;

    return plx_fault_set(r->fault, PLX_ERR_EXISTS,
                         "the ring was made with one member, and another one cannot be added to "
                         "it; for a mirror: 'parallax vdi set %s/VDI --ring off' for each virtual "
                         "disk that uses it, then 'parallax ring delete %s', then 'parallax ring "
                         "create %s PATH PATH'",
                         store, store, store);
}

static int refuse_gone(const struct repair *r)
{
    const struct plx_fault *problem = &r->ring->members.member[0].problem;
    char advice[PLX_HOST_RING_ADVICE];

    return plx_fault_set(r->fault, problem->code, "%.150s%s", problem->text,
                         plx_host_ring_advise(&r->ring->members, r->ring->way.store, advice));
}

/* Nobody has its device open any more. */
static void leave(struct plx_ring_member_seen *member)
{
    plx_device_close(member->device);
    member->device = NULL;
    plx_fault_set(&member->problem, PLX_ERR_MISSING, "%.150s: the ring went on without this member",
                  member->path);
}

/* HOST_RING_REPAIR-8 */
static void leave_damaged(struct repair *r)
{
    for (unsigned i = 0; i < r->ring->members.count && r->how->damaged; i++)
        if (plx_storage_compare(r->path, r->ring->members.member[i].path) == PLX_SAME)
            leave(&r->ring->members.member[i]);
}

static int open_survivors(struct repair *r)
{
    const struct plx_ring_options options = {
        .env = &r->env, .alone = r->how->alone, .complete = r->how->damaged};
    struct plx_ring_info info;
    int error;

    if (r->ring->away)
        return plx_fault_set(r->fault, r->ring->problem.code, "%s", r->ring->problem.text);
    if (!survivor(r))
        return refuse_gone(r);
    if (r->ring->ring) /* which only looks */
        plx_ring_close(r->ring->ring);
    r->ring->ring = NULL;
    leave_damaged(r);
    /* HOST_RING_REPAIR-2 */
    error = plx_ring_members_load(&r->ring->members, &options, &r->open, r->fault);
    if (error == PLX_ERR_MISSING) /* HOST_RING_REPAIR-1 */
        return plx_fault_set(r->fault, PLX_ERR_UNCONFIRMED,
                             "a member of the ring is missing, and may have writes that this one "
                             "lacks; if it is lost for good, add --i-checked-the-other-is-lost");
    if (error)
        return error;
    plx_ring_get_info(r->open, &info);
    if (info.super.members == 1)
        return refuse_one(r);
    return info.members == info.super.members
               ? plx_fault_set(r->fault, PLX_ERR_EXISTS, "the ring has all its members")
               : 0;
}

/* ---- The new member ---- */

/* Whose place the new member takes: that of the member which it replaces, or a further one. */
static unsigned place_of(const struct repair *r)
{
    unsigned place = 0;

    while (place < r->ring->way.members && &r->ring->members.member[place] == survivor(r))
        place++;
    return place;
}

/* Before it is opened: the survivor is open already. */
static int check_distinct(const struct repair *r)
{
    return plx_storage_compare(r->path, survivor(r)->path) < PLX_OVERLAPPING
               ? 0
               : plx_fault_set(r->fault, PLX_ERR_EXISTS,
                               "%.150s is the member that is left; the other one needs a device of "
                               "its own",
                               r->path);
}

/* The new member lies where the lost one did, or where no store or ring has a device. */
static int check_place(const struct repair *r, struct plx_device *device)
{
    const struct plx_known_ring *way = &r->ring->way;
    unsigned place = place_of(r);

    return place < way->members && plx_storage_compare(r->path, way->member[place]) == PLX_SAME
               ? 0
               : plx_occupied_refuse_place(r->paths, device, NULL, r->fault);
}

/* One that was left behind by this ring holds nothing that is needed: plx_ring_resilver() knows. */
static int check_new(struct repair *r, struct plx_ring_member_seen *member)
{
    char id[PLX_UUID_TEXT];
    int error;

    if (!member->device)
        return plx_fault_set(r->fault, member->problem.code, "%s", member->problem.text);
    error = check_place(r, member->device);
    plx_uuid_text(&member->super.ring, id);
    if (!error && (member->problem.code || strcmp(id, r->ring->way.ring) != 0))
        error = plx_host_ring_check_contents(r->paths, member->device, r->how->force, r->fault);
    r->replaces = member->problem.code || strcmp(id, r->ring->way.ring) != 0;
    return error ? error : plx_host_ring_allocate_file(member->device, r->fault);
}

static int copy(struct repair *r, struct plx_device *device)
{
    struct plx_ring_info info;
    int error = plx_ring_resilver(r->open, device, r->replaces, r->fault);

    if (error)
        return error;
    r->copies = true;
    do {
        if (!plx_ring_turn(r->open))
            plx_ring_wait(r->open);
        plx_ring_get_info(r->open, &info);
        if (r->how->progress)
            r->how->progress(r->how->context,
                             (info.segments - info.uncopied_segments) * info.segment_bytes,
                             info.segments * info.segment_bytes);
        if (r->how->interrupted && r->how->interrupted(r->how->context))
            return plx_fault_set(r->fault, PLX_ERR_BUSY,
                                 "the ring goes on with one member; the same command begins anew");
    } while (info.resilvering);
    return info.resilver_error ? plx_fault_set(r->fault, info.resilver_error, "%s: %s",
                                               device->name, plx_error_text(info.resilver_error))
                               : 0;
}

/* HOST_RING_REPAIR-3 */
static int drop_lost(struct repair *r)
{
    struct plx_known_ring *way = &r->ring->way;
    unsigned place = place_of(r);

    if (place == way->members)
        return 0;
    free(way->member[place]);
    r->ring->members.member[place].path = NULL;
    way->member[place] = way->member[--way->members];
    way->member[way->members] = NULL;
    return plx_known_ring_put(r->paths, way, r->how->patience, r->fault);
}

static int enter(struct repair *r)
{
    struct plx_known_ring *way = &r->ring->way;
    unsigned place = place_of(r);

    if (place == way->members)
        way->members++;
    free(way->member[place]);
    way->member[place] = r->path;
    r->ring->members.member[place].path = r->path; /* which was freed */
    r->path = NULL;
    return plx_known_ring_put(r->paths, way, r->how->patience, r->fault);
}

/* HOST_RING_REPAIR-7 */
static int let_go_of_left_behind(struct repair *r)
{
    unsigned place = place_of(r);
    struct plx_ring_member_seen *member = &r->ring->members.member[place];

    if (place == r->ring->way.members || !member->device ||
        plx_storage_compare(r->path, member->path) != PLX_SAME)
        return 0;
    plx_ring_close(r->open); /* which knows its device */
    r->open = NULL;
    leave(member);
    return plx_ring_members_load(&r->ring->members, &(struct plx_ring_options){.env = &r->env},
                                 &r->open, r->fault);
}

static int add_member(struct repair *r)
{
    int error = check_distinct(r);

    if (!error)
        error = let_go_of_left_behind(r);
    if (!error)
        error = plx_ring_members_open(&r->with, &r->path, 1, PLX_RING_ALONE, r->how->create_bytes,
                                      r->how->patience, r->fault);
    if (!error)
        error = check_new(r, &r->with.member[0]);
    if (!error)
        error = copy(r, r->with.member[0].device);
    return error;
}

/* HOST_RING_REPAIR-6 */
static void give_file_up(const struct repair *r)
{
    const struct plx_device *device = r->with.member[0].device;

    if (device && device->made && !r->copies)
        unlink(r->path);
}

int plx_host_ring_repair(const struct plx_paths *paths, struct plx_host_ring *ring,
                         const struct plx_host_ring_repair *how, struct plx_fault *fault)
{
    struct repair r = {.paths = paths, .ring = ring, .how = how, .fault = fault};
    int error = how->with ? plx_volumes_absolute(how->with, &r.path, fault) : 0;

    plx_attach_init_env(&r.env);
    if (!error)
        error = open_survivors(&r);
    if (!error && !how->with)
        error = drop_lost(&r);
    if (!error && how->with)
        error = add_member(&r);
    if (r.open)
        plx_ring_close(r.open);
    if (!error && how->with)
        error = enter(&r);
    if (error && how->with)
        give_file_up(&r);
    plx_ring_members_close(&r.with);
    free(r.path);
    return error;
}
