/* host_ring_create.c - this host's ring of a store is made, or taken up again.
 *
 * HOST_RING_CREATE-1  Order: it is tried whether the ring can be entered; the store allows rings,
 *     durably; the ring is made on its members; it is entered. Nothing uses a ring that is not
 *     entered, and a store that allows rings without having one lacks nothing.
 * HOST_RING_CREATE-2  The members stay locked exclusively all along (RING_MEMBERS-1). So no member
 *     becomes somebody else's volume or ring between the look at it and its superblock.
 * HOST_RING_CREATE-3  A ring is never made over a volume of a store, known here or not, nor over a
 *     ring that may hold what a store lacks, whatever --force says. Data of others takes --force.
 * HOST_RING_CREATE-4  The beginning of each member is erased, so that no other program finds what
 *     was there before.
 * HOST_RING_CREATE-5  A ring of this host and this store is taken up as it is, if all its members
 *     are given and no others: it may hold writes that the store lacks. A ring of another store is
 *     never taken up.
 * HOST_RING_CREATE-6  Files get all their blocks when the ring is made: a ring that finds its file
 *     system full could not keep what it is about to acknowledge.
 * HOST_RING_CREATE-7  What fails before the first write to a member has changed no member. What
 *     fails later leaves none that looks like a ring.
 * HOST_RING_CREATE-8  A ring that is entered already is taken up where it lies now, if a member
 *     that is entered does not hold it any more, and each that still does is given: it was moved,
 *     or its device has another name. Otherwise a copy would be taken for the ring. Nothing else is
 *     made of the members that are given then, and no file is created.
 * HOST_RING_CREATE-9  A member of two is taken up by itself if the ring goes on with it alone, or
 *     by the operator's word that the other one is lost, unless the store knows that this one lacks
 *     a disk's newest writes (as HOST_RING_REPAIR-1, -5). It has its new set, durably, before it is
 *     entered. By that word nothing is made.
 * HOST_RING_CREATE-10  A ring of another host that may hold anything becomes this host's by the
 *     operator's word, which names that host and says that it is off: its device was moved here, or
 *     this machine has another id than before. The store is this host's already, for it is open to
 *     write. The members name this host, durably, before the ring is entered (RING-8), so the other
 *     host does not use it any more (RING_MEMBERS-3). By that word nothing is made, either.
 * Threads: the caller's.
 * Crash story: what is left is nothing, a store that allows rings, a ring on the first member only,
 *   which is made again with --force, or one on all members, which is taken up.
 */
#include "attach/host_ring.h"

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
#include "engine/base/plain.h"
#include "engine/loop/volume.h"

#define HEAD_BYTES ((size_t)PLX_RING_SEGMENTS_AT) /* before the first segment */
#define TAIL_BYTES ((size_t)64 << 10)             /* where backups of partition tables lie */

struct creation {
    struct plx_attach *attach;
    const struct plx_host_ring_options *options;
    struct plx_known_ring known;
    struct plx_ring_members members;
    uint8_t *buffer;          /* of HEAD_BYTES, for erasing */
    bool written;             /* HOST_RING_CREATE-7 */
    bool takes_over;          /* HOST_RING_CREATE-10 */
    struct plx_fault refused; /* code not 0: the store's ring is entered already */
    struct plx_fault *fault;
};

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

/* ---- A ring that is there ---- */

static void fill_known(struct creation *c, const struct plx_ring_super *super)
{
    plx_uuid_text(&super->ring, c->known.ring);
}

/* HOST_RING_CREATE-9 */
static bool goes_alone(const struct creation *c, const struct plx_ring_super *super)
{
    return !super->joining && (super->alone || c->options->other_lost);
}

/* As a creation leaves it that was cut off. */
static bool is_empty(const struct creation *c)
{
    struct plx_ring_info info;
    struct plx_ring *ring;
    struct plx_env env;

    plx_attach_init_env(&env);
    if (plx_ring_members_load(
            &c->members, &(struct plx_ring_options){.env = &env, .read_only = true}, &ring, NULL))
        return false;
    plx_ring_get_info(ring, &info);
    plx_ring_close(ring);
    return info.free_segments == info.segments;
}

static int refuse_copies(struct creation *c)
{
    const struct plx_ring_member_seen *member = c->members.member;

    return plx_fault_set(c->fault, PLX_ERR_INVALID,
                         "%.150s and %.150s are copies of one member of this host's ring of store "
                         "%s; give one of them, and the other member",
                         member[0].path, member[1].path, c->known.store);
}

/* HOST_RING_CREATE-10. The member is another host's. */
static int ask_host(const struct creation *c, const struct plx_ring_super *super, const char *path)
{
    const char *from = c->options->from, *name = super->host_name;
    char id[PLX_UUID_TEXT], word[PLX_WORD_TEXT];

    plx_uuid_text(&super->host, id);
    if (!from)
        return plx_fault_set(c->fault, PLX_ERR_UNCONFIRMED,
                             "%.150s is a member of host %s's ring of store %s, and may hold "
                             "writes that the store lacks; if host %s is off, or was this machine, "
                             "add --from %s --i-checked-it-is-off: the ring becomes this host's, "
                             "with these writes",
                             path, name, c->known.store, name,
                             plx_plain_word(name, word, sizeof word));
    return strcmp(from, name) == 0 || strcmp(from, id) == 0
               ? 0
               : plx_fault_set(c->fault, PLX_ERR_INVALID,
                               "nothing was changed: %.150s is a member of host %s's ring of store "
                               "%s, not of %.64s's",
                               path, name, c->known.store, from);
}

/* Whether all members are this host's, or may become it. *ret_may: they are, or may. */
static int check_hosts(struct creation *c, bool *ret_may)
{
    bool others = false;
    int error = 0;

    for (unsigned i = 0; i < c->members.count; i++)
        others |= !c->members.member[i].problem.code &&
                  !plx_ring_member_is_ours(&c->members.member[i], &c->attach->paths);
    *ret_may = !others || c->options->from || !is_empty(c);
    for (unsigned i = 0; i < c->members.count && others && *ret_may && !error; i++) {
        const struct plx_ring_member_seen *member = &c->members.member[i];

        if (!member->problem.code && !plx_ring_member_is_ours(member, &c->attach->paths))
            error = ask_host(c, &member->super, member->path);
    }
    c->takes_over = others && !error;
    return error;
}

/* HOST_RING_CREATE-5. *ret_found: it is this host's ring of this store, or becomes it, and these
 * are its members. */
static int find_own(struct creation *c, bool *ret_found)
{
    const struct plx_ring_member_seen *sound = plx_ring_members_sound(&c->members);
    char store[PLX_UUID_TEXT];
    unsigned same = 0;
    bool may;
    int error;

    *ret_found = false;
    if (!sound)
        return 0;
    plx_uuid_text(&sound->super.store, store);
    if (strcmp(store, c->known.identity) != 0)
        return 0; /* check_member() has the words */
    error = check_hosts(c, &may);
    if (error || !may)
        return error; /* likewise */
    for (unsigned i = 0; i < c->members.count; i++)
        same += !c->members.member[i].problem.code &&
                plx_uuid_equal(&c->members.member[i].super.ring, &sound->super.ring);
    if (same > 1 && c->members.member[0].super.member == c->members.member[1].super.member)
        return refuse_copies(c);
    *ret_found =
        same == c->members.count && (same == sound->super.members || goes_alone(c, &sound->super));
    if (*ret_found || sound->super.members == 1 || (same < c->members.count && is_empty(c)))
        return 0; /* likewise */
    return plx_fault_set(c->fault, PLX_ERR_EXISTS,
                         "%.150s is one of two members of a ring of store %s; give both "
                         "to take the ring up again; if the other one is lost for good, give this "
                         "one only, and add --i-checked-the-other-is-lost; or end the ring by "
                         "'parallax ring delete %.150s'",
                         sound->path, c->known.store, sound->path);
}

/* HOST_RING_CREATE-8. A member that is where it was has to be given, too. */
static bool is_moved(const struct creation *c, const struct plx_known_ring *entered)
{
    struct plx_ring_members old;
    unsigned gone = 0, left = 0;

    if (plx_ring_members_open(&old, entered->member, entered->members, PLX_RING_LOOK, 0, NULL,
                              NULL))
        return false;
    plx_ring_members_check(&old, entered->ring);
    plx_ring_members_check_host(&old, &c->attach->paths, c->known.store);
    for (unsigned i = 0; i < old.count; i++) {
        bool given = false;

        for (unsigned j = 0; j < c->known.members; j++)
            given |= strcmp(entered->member[i], c->known.member[j]) == 0;
        gone += old.member[i].problem.code != 0;
        left += !old.member[i].problem.code && !given;
    }
    plx_ring_members_close(&old);
    return gone && !left;
}

/* The first member of the ring that is entered which does not hold it; NULL: all do. */
static const struct plx_ring_member_seen *missing_member(const struct plx_ring_members *old)
{
    for (unsigned i = 0; i < old->count; i++)
        if (old->member[i].problem.code)
            return &old->member[i];
    return NULL;
}

static bool is_entered(const struct creation *c, const struct plx_known_ring *entered)
{
    bool all = true;

    for (unsigned i = 0; i < c->known.members; i++)
        all &= !strcmp(c->known.member[i], entered->member[0]) ||
               (entered->members > 1 && !strcmp(c->known.member[i], entered->member[1]));
    return all;
}

/* The ring that is entered went on without this member of it, or was copied to another one. */
static bool is_left_behind(const struct plx_ring_super *super, const struct plx_ring_members *old)
{
    const struct plx_ring_member_seen *now = plx_ring_members_sound(old);

    return now && now->super.set != super->set &&
           (super->joining || plx_ring_set_descends(&now->super, super->set));
}

/* What is given is of the ring that is entered. */
static void refuse_same(struct creation *c, const struct plx_known_ring *entered,
                        const struct plx_ring_members *old)
{
    const struct plx_ring_member_seen *given = plx_ring_members_sound(&c->members);
    const char *store = c->known.store;
    char members[PLX_KNOWN_RING_TEXT];

    plx_known_ring_name_members(entered, members);
    if (is_entered(c, entered))
        plx_fault_set(c->fault, PLX_ERR_EXISTS,
                      "this host's ring of store %s on %s is known already; 'parallax ring info "
                      "%s' shows it",
                      store, members, store);
    else if (is_left_behind(&given->super, old))
        plx_fault_set(c->fault, PLX_ERR_EXISTS,
                      "%.150s was a member of this host's ring of store %s, which went on without "
                      "it on %s; 'parallax ring repair %s --with %.150s' makes it one again",
                      given->path, store, members, store, given->path);
    else if (!missing_member(old))
        plx_fault_set(c->fault, PLX_ERR_EXISTS,
                      "%.150s is a copy of this host's ring of store %s on %s, or was used apart; "
                      "to use it instead, move that one away and repeat this",
                      given->path, store, members);
    else if (given->super.members > c->known.members && !given->super.alone)
        plx_fault_set(c->fault, PLX_ERR_EXISTS,
                      "%.150s is one of two members of this host's ring of store %s, known on %s; "
                      "give both paths",
                      given->path, store, members);
}

/* HOST_RING_CREATE-8. The words of the refusal, by what has become of the ring that is entered. */
static void refuse_entered(struct creation *c, const struct plx_known_ring *entered, bool same)
{
    const struct plx_ring_member_seen *missing;
    const char *store = c->known.store;
    struct plx_ring_members old;

    plx_fault_set(c->fault, PLX_ERR_EXISTS, "%s", c->refused.text);
    if (plx_ring_members_open(&old, entered->member, entered->members, PLX_RING_LOOK, 0, NULL,
                              NULL))
        return;
    plx_ring_members_check(&old, entered->ring);
    plx_ring_members_check_host(&old, &c->attach->paths, c->known.store);
    missing = missing_member(&old);
    if (same)
        refuse_same(c, entered, &old);
    else if (missing && !plx_ring_members_alone(&old))
        plx_fault_set(c->fault, PLX_ERR_EXISTS,
                      "this host has a ring of store %s already, which is not where it was: "
                      "%.200s; if it was moved, give its new path; if it is lost for good: "
                      "'parallax ring discard %s/VDI' for each virtual disk that needs it, then "
                      "'parallax ring delete %s --force'",
                      store, missing->problem.text, store, store);
    plx_ring_members_close(&old);
}

/* HOST_RING_CREATE-8. found: what is given is a ring of this host and this store, whole. */
static int check_moved(struct creation *c, bool found)
{
    const struct plx_ring_member_seen *sound = plx_ring_members_sound(&c->members);
    struct plx_known_ring entered;
    bool same = false, moved;
    char ring[PLX_UUID_TEXT];
    int error = plx_known_ring_get(&c->attach->paths, c->known.identity, &entered, c->fault);

    if (error)
        return plx_fault_set(c->fault, c->refused.code, "%s", c->refused.text);
    if (sound) {
        plx_uuid_text(&sound->super.ring, ring);
        same = strcmp(ring, entered.ring) == 0;
    }
    moved = found && same && is_moved(c, &entered);
    if (!moved)
        refuse_entered(c, &entered, same);
    plx_known_ring_done(&entered);
    return moved ? 0 : PLX_ERR_EXISTS;
}

/* HOST_RING_CREATE-1. A store restored from an older backup may have lost its feature bit for
 * rings. */
static int allow_ring(struct creation *c)
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
    struct plx_env env;
    int error;

    plx_attach_init_env(&env);
    error = plx_ring_members_load(
        &c->members, &(struct plx_ring_options){.env = &env, .read_only = true}, &ring, c->fault);
    if (error)
        return error;
    error = refuse_older(c, ring);
    plx_ring_close(ring);
    return error;
}

/* HOST_RING_CREATE-9, HOST_RING_CREATE-10: what its superblocks are to say from now on. */
static int settle_supers(struct creation *c)
{
    const struct plx_ring_super *super = &plx_ring_members_sound(&c->members)->super;
    const struct plx_paths *paths = &c->attach->paths;
    bool alone = c->members.count < super->members && !super->alone;
    struct plx_ring_options options = {.alone = alone};
    struct plx_ring *ring;
    struct plx_env env;
    int error = alone ? check_alone(c) : 0;

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

static int take_up(struct creation *c)
{
    int error = allow_ring(c);

    if (!error)
        error = settle_supers(c);
    if (!error)
        fill_known(c, &plx_ring_members_sound(&c->members)->super);
    return error;
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
        fill_known(c, &c->members.member[0].super);
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
        error = allow_ring(c);
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
        error = find_own(&c, &found);
    if (c.refused.code && error != PLX_ERR_BUSY && error != PLX_ERR_INVALID &&
        error != PLX_ERR_UNCONFIRMED)
        error = check_moved(&c, !error && found);
    if (!error)
        error = found ? take_up(&c) : make_ring(&c);
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
