/* host_ring_create.c - this host's ring of a store is made, or taken up again.
 *
 * HOST_RING_CREATE-1  The order of steps:
 *     1. It is tried whether the ring can be entered in the list.
 *     2. The store allows rings, durably.
 *     3. The ring is made on its members.
 *     4. It is entered.
 *     Nothing uses a ring that is not entered, and a store that allows rings without having one
 *     lacks nothing.
 * HOST_RING_CREATE-2  The members stay locked exclusively all along (RING_MEMBERS-1). So no member
 *     becomes somebody else's volume or ring between the look at it and its superblock.
 * HOST_RING_CREATE-3  A ring is never made over a volume of a store, known here or not, nor over a
 *     ring that may hold what a store lacks, whatever --force says. Over other data it is made with
 *     --force.
 * HOST_RING_CREATE-4  The beginning of each member is erased, so that no other program finds what
 *     was there before.
 * HOST_RING_CREATE-5  A ring of this host and this store is taken up as it is, if all its members
 *     are given and no other paths: it may hold writes that the store lacks. A member that the ring
 *     went on without does not count as one. A ring of another store is never taken up.
 * HOST_RING_CREATE-6  Files get all their blocks when the ring is made: a ring that finds its file
 *     system full could not keep what it is about to acknowledge.
 * HOST_RING_CREATE-7  A call that fails before the first write to a member has changed no member.
 *     One that fails later leaves no member that looks like a ring.
 * HOST_RING_CREATE-8  The list may have a ring for this store already, at other paths. It is taken
 *     up at the paths that are given now if one of the entered members is not there any more, and
 *     each that is still there is given: the ring was moved, or its device has another name.
 *     Otherwise a copy would be taken for the ring. A member that was used apart takes the place of
 *     the entered one by the operator's word that the other one is lost (HOST_RING_CREATE-9). In
 *     all these cases no ring is made, and no file is created.
 * HOST_RING_CREATE-9  One member of two is taken up by itself if the ring goes on with it alone, or
 *     by the operator's word that the other one is lost. It is refused if the store knows that this
 *     one lacks a disk's newest writes (as HOST_RING_REPAIR-1, -5). It has its new set, durably,
 *     before it is entered. By that word no ring is made.
 * HOST_RING_CREATE-10  A ring of another host that may hold anything becomes this host's by the
 *     operator's word, which names that host and says that it is off. The device was moved here, or
 *     this machine has another id than before. If an earlier taking-over was cut off, the ring
 *     names two hosts, and either name will do. The store is this host's already, for it is open to
 *     write. The members name this host, durably, before the ring is entered (RING-8), so the other
 *     host does not use it any more (RING_MEMBERS-3). By that word no ring is made, either.
 * Threads: the caller's.
 * Crash story: a crash leaves nothing; or a store that allows rings; or a ring on the first member
 *   only, which is made again with --force; or a ring on all members, which is taken up.
 */
#include "attach/host_ring_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attach/attach_inside.h"
#include "attach/occupied.h"
#include "attach/volumes.h"
#include "engine/loop/volume.h"

#define HEAD_BYTES ((size_t)PLX_RING_SEGMENTS_AT) /* before the first segment */
#define TAIL_BYTES ((size_t)64 << 10)             /* where backups of partition tables lie */

/* ---- Whether the members may be a ring's ---- */

static bool is_zero(const uint8_t *bytes, size_t size)
{
    return !bytes[0] && !memcmp(bytes, bytes + 1, size - 1);
}

static int refuse_data_at(struct plx_device *device, uint64_t at, void *buffer, size_t bytes,
                          struct plx_fault *fault)
{
    int error = plx_volume_io(device, PLX_IO_READ, at, buffer, bytes);

    if (error)
        return plx_fault_set(fault, error, "%s: cannot read: %s", device->name,
                             plx_error_text(error));
    return is_zero(buffer, bytes)
               ? 0
               : plx_fault_set(fault, PLX_ERR_EXISTS,
                               "%s: holds data already; --force overwrites it", device->name);
}

static int refuse_data(const struct plx_paths *paths, struct plx_device *device,
                       struct plx_fault *fault)
{
    uint64_t end = device->bytes & ~(uint64_t)(PLX_BLOCK_SIZE - 1);
    uint8_t *buffer = aligned_alloc(PLX_BLOCK_SIZE, HEAD_BYTES);
    int error = buffer ? plx_occupied_refuse_data(paths, device, fault)
                       : plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory");

    if (!error)
        error = refuse_data_at(device, 0, buffer, HEAD_BYTES, fault);
    if (!error)
        error = refuse_data_at(device, end - TAIL_BYTES, buffer, TAIL_BYTES, fault);
    free(buffer);
    return error;
}

/* HOST_RING_CREATE-3 */
static int refuse_volume(struct plx_device *device, struct plx_fault *fault)
{
    struct plx_superblock_info store;
    int error = plx_superblock_probe(device, &store, NULL);

    if (error && error != PLX_ERR_CORRUPT && error != PLX_ERR_UNSUPPORTED)
        return 0;
    return plx_fault_set(fault, PLX_ERR_EXISTS,
                         "%s is a volume of a store, or a copy of one: no ring is made over it, "
                         "with --force neither; choose another device",
                         device->name);
}

int plx_host_ring_check_contents(const struct plx_paths *paths, struct plx_device *device,
                                 bool force, struct plx_fault *fault)
{
    int error;

    if (device->bytes < PLX_HOST_RING_BYTES_MIN)
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "%s: too small: %llu bytes; a ring's member needs at least %llu MiB",
                             device->name, (unsigned long long)device->bytes,
                             (unsigned long long)(PLX_HOST_RING_BYTES_MIN >> 20));
    error = refuse_volume(device, fault);
    if (error)
        return error;
    error = plx_ring_members_refuse(device, fault);
    return error || force ? error : refuse_data(paths, device, fault);
}

static int check_member(struct creation *c, struct plx_device *device)
{
    int error = plx_occupied_refuse_place(&c->attach->paths, device, NULL, c->fault);

    return error ? error
                 : plx_host_ring_check_contents(&c->attach->paths, device, c->options->force,
                                                c->fault);
}

/* ---- Making one ---- */

/* HOST_RING_CREATE-6 */
int plx_host_ring_allocate_file(struct plx_device *device, struct plx_fault *fault)
{
    int fd = open(device->name, O_RDWR | O_CLOEXEC | O_NONBLOCK), number, code;
    struct stat st;

    number = fd < 0 || fstat(fd, &st) ? errno : 0;
    if (!number && S_ISREG(st.st_mode))
        number = posix_fallocate(fd, 0, (off_t)device->bytes);
    if (!number && S_ISREG(st.st_mode) && fsync(fd))
        number = errno;
    if (fd >= 0)
        close(fd);
    if (!number)
        return 0;
    code = plx_paths_error(number);
    return plx_fault_set(fault, code, "%s: cannot get all blocks of the file: %s%s", device->name,
                         strerror(number),
                         code == PLX_ERR_NOSPACE ? "; a ring lies on this host's own file system: "
                                                   "free some there, choose another place, or give "
                                                   "a smaller --size"
                                                 : "");
}

/* HOST_RING_CREATE-4 */
static int erase_head(struct creation *c, struct plx_device *device)
{
    int error;

    memset(c->buffer, 0, HEAD_BYTES);
    error = plx_volume_io(device, PLX_IO_WRITE, 0, c->buffer, HEAD_BYTES);
    if (!error && device->volatile_cache)
        error = plx_volume_io(device, PLX_IO_FLUSH, 0, NULL, 0);
    return error ? plx_fault_set(c->fault, error, "%s: %s", device->name, plx_error_text(error))
                 : 0;
}

static int write_ring(struct creation *c)
{
    struct plx_ring_create_options options = {
        .replace = true}; /* HOST_RING_CREATE-2, HOST_RING_CREATE-3 */
    struct plx_device *devices[PLX_RING_MEMBERS];
    struct plx_env env;
    int error = 0;

    c->written = true;
    plx_attach_init_env(&env);
    options.env = &env;
    plx_uuid_parse(c->known.identity, &options.store);
    plx_uuid_parse(c->attach->paths.host, &options.host);
    snprintf(options.host_name, sizeof options.host_name, "%s", c->attach->paths.host_name);
    for (unsigned i = 0; i < c->members.count && !error; i++) {
        devices[i] = c->members.member[i].device;
        error = erase_head(c, devices[i]);
    }
    if (!error)
        error = plx_ring_create(devices, c->members.count, &options, c->fault);
    if (!error)
        error = plx_ring_recognise(devices[0], &c->members.member[0].super, c->fault);
    if (!error)
        plx_uuid_text(&c->members.member[0].super.ring, c->known.ring);
    return error;
}

static int make_ring(struct creation *c)
{
    int error = 0;

    if (c->options->from) /* HOST_RING_CREATE-10 */
        return plx_fault_set(c->fault, PLX_ERR_NOT_FOUND,
                             "%.150s is no member of a ring of store %s, so there is none to take "
                             "over",
                             c->known.member[0], c->known.store);
    if (c->options->other_lost) /* HOST_RING_CREATE-9 */
        return plx_fault_set(c->fault, PLX_ERR_NOT_FOUND,
                             "%.150s is no member of this host's ring of store %s, so there is "
                             "none to go on with",
                             c->known.member[0], c->known.store);
    for (unsigned i = 0; i < c->members.count && !error; i++)
        error = check_member(c, c->members.member[i].device);
    for (unsigned i = 0; i < c->members.count && !error; i++)
        error = plx_host_ring_allocate_file(c->members.member[i].device, c->fault);
    if (!error)
        error = plx_host_ring_allow(c);
    return error ? error : write_ring(c);
}

/* ---- All of it ---- */

static int begin(struct creation *c)
{
    const struct plx_host_ring_options *options = c->options;
    int error = 0;

    if (!c->attach->paths.host[0])
        return plx_fault_set(c->fault, PLX_ERR_PERMISSION,
                             "this host has no id, for its state directory cannot be written");
    snprintf(c->known.identity, sizeof c->known.identity, "%s", c->attach->known.identity);
    snprintf(c->known.store, sizeof c->known.store, "%s", c->attach->known.name);
    plx_uuid_random(c->known.ring); /* until it has its own */
    for (unsigned i = 0; i < options->members && !error; i++) {
        error = plx_volumes_absolute(options->path[i], &c->known.member[i], c->fault);
        c->known.members += !error;
    }
    if (error)
        return error;
    error = plx_known_ring_try(&c->attach->paths, &c->known, c->attach->options.patience, c->fault);
    if (error == PLX_ERR_EXISTS) { /* HOST_RING_CREATE-8 */
        c->refused = *c->fault;
        error = 0;
    }
    c->buffer = error ? NULL : aligned_alloc(PLX_BLOCK_SIZE, HEAD_BYTES);
    return error || c->buffer ? error : plx_fault_set(c->fault, PLX_ERR_NOMEM, "out of memory");
}

/* Whether it is a volume of the ring's own store, which this command has open. */
static bool is_own_volume(const struct creation *c, struct plx_device *device)
{
    struct plx_superblock_info store;
    char identity[PLX_UUID_TEXT];

    if (plx_superblock_probe(device, &store, NULL))
        return false;
    plx_uuid_text(&store.identity, identity);
    return strcmp(identity, c->known.identity) == 0;
}

/* A volume of a known store is refused before anybody waits for whoever has it open. */
static int refuse_volumes(struct creation *c)
{
    struct plx_ring_members members;
    int error = plx_ring_members_open(&members, c->known.member, c->known.members, PLX_RING_LOOK, 0,
                                      NULL, c->fault);

    if (error)
        return error;
    for (unsigned i = 0; i < members.count && error != PLX_ERR_EXISTS; i++) {
        struct plx_device *device = members.member[i].device;

        if (device)
            error = is_own_volume(c, device) ? refuse_volume(device, c->fault)
                    : c->refused.code
                        ? 0 /* no ring is made of it */
                        : plx_occupied_refuse_place(&c->attach->paths, device, NULL, c->fault);
    }
    plx_ring_members_close(&members);
    return error == PLX_ERR_EXISTS ? error : 0; /* what else is in the way shows later */
}

static int open_members(struct creation *c)
{
    bool makes = !c->refused.code && !c->options->other_lost && !c->options->from;
    uint64_t create_bytes = makes ? c->options->create_bytes : 0;
    int error =
        plx_ring_members_open(&c->members, c->known.member, c->known.members, PLX_RING_ALONE,
                              create_bytes, c->attach->options.patience, c->fault);

    for (unsigned i = 0; i < c->members.count && !error; i++)
        if (!c->members.member[i].device)
            error = plx_fault_set(c->fault, c->members.member[i].problem.code, "%s",
                                  c->members.member[i].problem.text);
    return error;
}

/* HOST_RING_CREATE-7. What was made a member, of a ring that is not entered, is none any more. */
static void give_up(struct creation *c)
{
    for (unsigned i = 0; i < c->members.count && c->written; i++)
        plx_ring_erase(c->members.member[i].device, NULL);
    plx_ring_members_abandon(&c->members);
}

int plx_host_ring_create(struct plx_attach *a, const struct plx_host_ring_options *options,
                         struct plx_host_ring_made *ret_made, struct plx_fault *fault)
{
    struct creation c = {.attach = a, .options = options, .fault = fault};
    bool found = false;
    int error = begin(&c);

    if (!error)
        error = refuse_volumes(&c);
    if (!error)
        error = open_members(&c);
    if (!error)
        error = plx_host_ring_find(&c, &found);
    if (c.refused.code)
        error = plx_host_ring_replace(&c, error, found);
    if (!error)
        error = found ? plx_host_ring_take_up(&c) : make_ring(&c);
    if (!error)
        error = plx_known_ring_put(&a->paths, &c.known, a->options.patience, fault);
    if (error) {
        give_up(&c);
        plx_known_ring_done(&c.known);
    } else {
        *ret_made = (struct plx_host_ring_made){
            .known = c.known,
            .super = c.members.member[0].super,
            .alone = c.members.count < c.members.member[0].super.members,
            .taken_up = found,
            .taken_over = c.takes_over,
        };
    }
    plx_ring_members_close(&c.members);
    free(c.buffer);
    return error;
}
