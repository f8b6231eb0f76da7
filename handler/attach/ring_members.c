/* ring_members.c - see ring_members.h.
 *
 * RING_MEMBERS-1  A process that writes to a ring has the exclusive lock on PLX_BYTE_RING of each
 *     member. One that makes or ends a ring has the members for itself besides (device.h,
 *     exclusive). One that only looks takes neither, so that looking at a ring never stops a
 *     handler from opening it.
 * RING_MEMBERS-2  A ring all of whose segments are free holds nothing, and --force overwrites it.
 *     Any other ring may hold what its store lacks. Only the store's records tell (ring_disks.c),
 *     and they need not be at hand. So --force never overwrites such a ring.
 * RING_MEMBERS-3  A member is used only by the host that it names: locks do not reach from one host
 *     to another, and several hosts may see one device. It takes the operator's word
 *     (HOST_RING_CREATE-10) to use a member that this host has entered and another host took over,
 *     or one that names this machine by an earlier id. Looking at it takes none.
 * Threads: the caller's.
 * Crash story: nothing is written here, but files that the caller wants made.
 */
#include "attach/ring_members.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attach/attach_inside.h"
#include "attach/volumes.h"
#include "device/bytelock.h"
#include "registry/host_word.h"

void plx_ring_members_close(struct plx_ring_members *members)
{
    for (unsigned i = 0; i < members->count; i++)
        plx_device_close(members->member[i].device);
    members->count = 0;
}

void plx_ring_members_abandon(struct plx_ring_members *members)
{
    for (unsigned i = 0; i < members->count; i++)
        if (members->member[i].device && members->member[i].device->made)
            unlink(members->member[i].path);
    plx_ring_members_close(members);
}

static int in_use(const char *path, struct plx_fault *fault)
{
    return plx_fault_set(fault, PLX_ERR_BUSY,
                         "%s is in use: a handler, or another command, has the ring open; a "
                         "handler lets go of it when 'parallax vdi set STORE/VDI --ring off' was "
                         "given for each virtual disk that uses it",
                         path);
}

/* Whether somebody writes to the ring that lies there. */
static bool is_locked(const char *path)
{
    struct plx_bytelock *lock;
    bool busy;

    if (plx_bytelock_open(path, &lock, NULL))
        return false;
    if (lock->ops->probe(lock, PLX_BYTE_RING, &busy))
        busy = false;
    plx_bytelock_close(lock);
    return busy;
}

/* RING_MEMBERS-1 */
static int lock_member(struct plx_device *device, struct plx_fault *fault)
{
    int error = device->used->ops->set(device->used, PLX_BYTE_RING, PLX_BYTE_EXCLUSIVE);

    if (error == PLX_ERR_BUSY)
        return in_use(device->name, fault);
    return error ? plx_fault_set(fault, error, "%s: cannot be locked: %s", device->name,
                                 plx_error_text(error))
                 : 0;
}

static void open_member(struct plx_ring_member_seen *member, enum plx_ring_hold hold,
                        uint64_t create_bytes, const struct plx_patience *patience)
{
    const struct plx_device_open_options options = {
        .read_only = hold < PLX_RING_ALONE,
        .beside = hold == PLX_RING_LOOK,
        .exclusive = hold != PLX_RING_LOOK,
        .waits = hold == PLX_RING_SERVE,
        .create_bytes = create_bytes,
        .patience = patience,
    };
    int error = plx_device_open(member->path, &options, &member->device, &member->problem);

    if (error == PLX_ERR_BUSY && is_locked(member->path))
        in_use(member->path, &member->problem);
    if (!error && hold >= PLX_RING_ALONE)
        error = lock_member(member->device, &member->problem);
    if (!error)
        error = plx_ring_recognise(member->device, &member->super, &member->problem);
    if (!error)
        member->problem.code = 0;
}

/* A member twice would wait for itself. */
static int open_next(struct plx_ring_members *members, char *const *paths, enum plx_ring_hold hold,
                     uint64_t create_bytes, const struct plx_patience *patience,
                     struct plx_fault *fault)
{
    struct plx_ring_member_seen *member = &members->member[members->count];
    int error = hold == PLX_RING_LOOK ? 0
                                      : plx_volumes_check_distinct((const char *const *)paths,
                                                                   members->count + 1, fault);

    if (error)
        return error;
    member->path = paths[members->count++];
    open_member(member, hold, create_bytes, patience);
    return member->problem.code == PLX_ERR_BUSY
               ? plx_fault_set(fault, PLX_ERR_BUSY, "%s", member->problem.text)
               : 0;
}

int plx_ring_members_open(struct plx_ring_members *members, char *const *paths, unsigned count,
                          enum plx_ring_hold hold, uint64_t create_bytes,
                          const struct plx_patience *patience, struct plx_fault *fault)
{
    int error = 0;

    *members = (struct plx_ring_members){.count = 0};
    for (unsigned i = 0; i < count && !error; i++)
        error = open_next(members, paths, hold, create_bytes, patience, fault);
    if (error)
        plx_ring_members_abandon(members);
    return error;
}

const struct plx_ring_member_seen *plx_ring_members_sound(const struct plx_ring_members *members)
{
    for (unsigned i = 0; i < members->count; i++)
        if (!members->member[i].problem.code)
            return &members->member[i];
    return NULL;
}

const struct plx_ring_member_seen *plx_ring_members_alone(const struct plx_ring_members *members)
{
    for (unsigned i = 0; i < members->count; i++) {
        const struct plx_ring_member_seen *member = &members->member[i];

        if (!member->problem.code && member->super.members > 1 && member->super.alone)
            return member;
    }
    return NULL;
}

void plx_ring_members_check(struct plx_ring_members *members, const char *ring)
{
    char id[PLX_UUID_TEXT];

    for (unsigned i = 0; i < members->count; i++) {
        struct plx_ring_member_seen *member = &members->member[i];

        plx_uuid_text(&member->super.ring, id);
        if (!member->problem.code && strcmp(id, ring) != 0)
            plx_fault_set(&member->problem, PLX_ERR_NOT_FOUND,
                          "%.150s holds another ring, %s, of host %s", member->path, id,
                          member->super.host_name);
    }
}

bool plx_ring_member_is_ours(const struct plx_ring_member_seen *member,
                             const struct plx_paths *paths)
{
    char host[PLX_UUID_TEXT];

    plx_uuid_text(&member->super.host, host);
    return strcmp(host, paths->host) == 0;
}

void plx_ring_members_check_host(struct plx_ring_members *members, const struct plx_paths *paths,
                                 const char *store)
{
    for (unsigned i = 0; i < members->count; i++) {
        struct plx_ring_member_seen *member = &members->member[i];
        char word[PLX_HOST_WORD];

        if (!member->problem.code && !plx_ring_member_is_ours(member, paths)) /* RING_MEMBERS-3 */
            plx_fault_set(&member->problem, PLX_ERR_RING_AWAY,
                          "%.100s belongs to a ring of host %s; if that host is off, or was this "
                          "machine, 'parallax ring create %s PATH%s --from %.100s "
                          "--i-checked-it-is-off' takes the ring over",
                          member->path, member->super.host_name, store,
                          member->super.members > 1 && !member->super.alone ? " PATH" : "",
                          plx_host_word(member->super.host_name, &member->super.host, word));
    }
}

int plx_ring_members_load(const struct plx_ring_members *members,
                          const struct plx_ring_options *options, struct plx_ring **ret_ring,
                          struct plx_fault *fault)
{
    struct plx_device *devices[PLX_RING_MEMBERS];
    unsigned count = 0;

    for (unsigned i = 0; i < members->count; i++)
        if (!members->member[i].problem.code)
            devices[count++] = members->member[i].device;
    PLX_ASSERT(count);
    return plx_ring_open(devices, count, options, ret_ring, fault);
}

bool plx_ring_members_in_use(const struct plx_ring_members *members)
{
    for (unsigned i = 0; i < members->count; i++)
        if (members->member[i].device && is_locked(members->member[i].path))
            return true;
    return false;
}

/* By a path that is right from everywhere: a word without a '/' would be a store's name. */
static int refuse_needed(const struct plx_device *device, const char *what, struct plx_fault *fault)
{
    char *path = NULL;
    int error = plx_volumes_absolute(device->name, &path, NULL);

    plx_fault_set(fault, PLX_ERR_EXISTS, "%.250s; 'parallax ring info %.150s' shows them", what,
                  error ? device->name : path);
    free(path);
    return PLX_ERR_EXISTS;
}

/* RING_MEMBERS-2 */
static int refuse_contents(struct plx_device *device, const struct plx_ring_super *super,
                           struct plx_fault *fault)
{
    const struct plx_ring_members members = {
        .member = {{.path = device->name, .device = device, .super = *super}}, .count = 1};
    struct plx_ring_info info = {0};
    struct plx_ring *ring;
    struct plx_fault why;
    struct plx_env env;
    char what[256];
    int error;

    plx_attach_init_env(&env);
    error = plx_ring_members_load(
        &members, &(struct plx_ring_options){.env = &env, .read_only = true}, &ring, &why);
    if (!error) {
        plx_ring_get_info(ring, &info);
        plx_ring_close(ring);
    }
    if (error)
        return plx_fault_set(fault, PLX_ERR_EXISTS,
                             "%.100s is a member of a ring of host %s: %.200s", device->name,
                             super->host_name, why.text);
    if (info.free_segments == info.segments)
        return 0;
    snprintf(what, sizeof what,
             "%.100s is a member of a ring of host %s, and may hold writes that a store lacks",
             device->name, super->host_name);
    return refuse_needed(device, what, fault);
}

int plx_ring_members_refuse(struct plx_device *device, struct plx_fault *fault)
{
    struct plx_ring_super super;
    struct plx_fault why;
    char what[256];
    int error = plx_ring_recognise(device, &super, &why);

    switch (error) {
    case 0:
        return refuse_contents(device, &super, fault);
    case PLX_ERR_NOT_FOUND:
        return 0;
    case PLX_ERR_CORRUPT:
    case PLX_ERR_UNSUPPORTED:
        snprintf(what, sizeof what, "%.200s; it may hold writes that a store lacks", why.text);
        return refuse_needed(device, what, fault);
    default:
        return plx_fault_set(fault, error, "%s", why.text);
    }
}
