/* ring_members.h - the devices of a write-back ring, opened to look at it, to make it, to use it or
 * to end it.
 *
 *     error = plx_ring_members_open(&members, paths, count, PLX_RING_LOOK, NULL, &fault);
 *     members.member[0].problem.code            not 0: why it is no member that can be used
 *     error = plx_ring_members_load(&members, &options, &ring, &fault);
 *     plx_ring_close(ring);
 *     plx_ring_members_close(&members);
 *
 * Whoever writes to a ring holds the lock on PLX_BYTE_RING of each member (RING_MEMBERS-1).
 * Threads: the caller's.
 */
#ifndef PLX_RING_MEMBERS_H
#define PLX_RING_MEMBERS_H

#include "device/patience.h"
#include "engine/ring/ring.h"

struct plx_paths;

enum plx_ring_hold {
    PLX_RING_LOOK,       /* reads, and locks nothing: also beside whoever has the ring open */
    PLX_RING_LOOK_ALONE, /* reads while nobody else has a member open */
    PLX_RING_ALONE,      /* nobody else has a member open, or opens one; may write */
    PLX_RING_SERVE,      /* likewise, and somebody will wait() for its devices (device.h) */
};

struct plx_ring_member_seen {
    const char *path;            /* the caller's */
    struct plx_device *device;   /* NULL: it cannot be opened */
    struct plx_ring_super super; /* if there is no problem */
    struct plx_fault problem;    /* why it cannot be opened, or has no superblock that counts */
};

struct plx_ring_members {
    struct plx_ring_member_seen member[PLX_RING_MEMBERS];
    unsigned count;
};

/* Opens what can be opened and reads the superblocks; what is in the way of that is the member's
 * problem, and no error. BUSY: somebody has a member open. INVALID: two of them are the same, or
 * overlap; not asked by who only looks. After an error none is open. create_bytes: of
 * files that do not exist, 0: they are not made. patience NULL: for some seconds. */
int plx_ring_members_open(struct plx_ring_members *members, char *const *paths, unsigned count,
                          enum plx_ring_hold hold, uint64_t create_bytes,
                          const struct plx_patience *patience, struct plx_fault *fault);
void plx_ring_members_close(struct plx_ring_members *members);
/* Closes them, and removes the files that were made. */
void plx_ring_members_abandon(struct plx_ring_members *members);
/* The first member without a problem, or NULL. */
const struct plx_ring_member_seen *plx_ring_members_sound(const struct plx_ring_members *members);
/* The one of two with which the ring goes on alone; NULL: it has all its members. */
const struct plx_ring_member_seen *plx_ring_members_alone(const struct plx_ring_members *members);
/* A member that holds another ring by now than the one with this UUID has a problem. */
void plx_ring_members_check(struct plx_ring_members *members, const char *ring);
/* A member that is another host's has a problem, RING_AWAY: only the operator can take its ring
 * over. The text says how; store: what it is called here. */
void plx_ring_members_check_host(struct plx_ring_members *members, const struct plx_paths *paths,
                                 const char *store);
bool plx_ring_member_is_ours(const struct plx_ring_member_seen *member,
                             const struct plx_paths *paths);
/* Opens the ring that lies on the members without a problem; one must be there. The members stay
 * open until it is closed. */
int plx_ring_members_load(const struct plx_ring_members *members,
                          const struct plx_ring_options *options, struct plx_ring **ret_ring,
                          struct plx_fault *fault);
/* Whether a process of this host has the ring open to write to it. */
bool plx_ring_members_in_use(const struct plx_ring_members *members);
/* EXISTS: the device is a ring's member that may hold what a store lacks; --force is not enough for
 * that. The text says whose it is and what to do. */
int plx_ring_members_refuse(struct plx_device *device, struct plx_fault *fault);

#endif
