/* host_ring.h - this host's ring of a store: made, taken up again, deleted.
 *
 * Threads: the caller's. Errors: the text names the device and the next step.
 */
#ifndef PLX_HOST_RING_H
#define PLX_HOST_RING_H

#include "attach/attach.h"
#include "attach/known_rings.h"
#include "attach/ring_disks.h"
#include "attach/ring_members.h"

/* ---- Made ---- */

/* A member's. */
#define PLX_HOST_RING_BYTES_MIN (PLX_RING_SEGMENTS_AT + 2 * PLX_RING_SEGMENT_BYTES)

struct plx_host_ring_options {
    const char *path[PLX_RING_MEMBERS];
    unsigned members;
    uint64_t create_bytes; /* size of files to be created; 0: all files must exist */
    bool force;            /* overwrite what the members hold */
    bool other_lost;       /* the operator's word: of a ring of two, one member is left */
    const char *from; /* likewise: the ring is of this host, by its name or id, and that is off; or
                         NULL */
};

struct plx_host_ring_made {
    struct plx_known_ring known; /* to be freed */
    struct plx_ring_super super; /* of its first member */
    bool alone;                  /* of two members it has one */
    bool taken_up;               /* it was there, and is known again */
    bool taken_over;             /* likewise, and was another host's */
};

/* Makes a ring of this host for the store, which is open for writing, and enters it. A ring of this
 * host and this store that lies on just these members is taken up again instead; so is one of two
 * that goes on with this one alone, or is to. With `from` a ring of that host becomes this host's
 * first. EXISTS: this host has a ring of the store, or a member holds data, a store or another
 * ring. UNCONFIRMED: it is a ring of another host, and `from` is NULL. NOT_FOUND: no such member is
 * left there. RING_AWAY: the other one has the newest writes of a disk. Afterwards the caller
 * notifies other instances, as after plx_attach_grow(). */
int plx_host_ring_create(struct plx_attach *attach, const struct plx_host_ring_options *options,
                         struct plx_host_ring_made *ret_made, struct plx_fault *fault);

/* INVALID: the device is too small for a member. EXISTS: it holds a volume of a store, or a ring
 * that may hold what a store lacks; or data, without force. */
int plx_host_ring_check_contents(const struct plx_paths *paths, struct plx_device *device,
                                 bool force, struct plx_fault *fault);
/* A file gets all its blocks. */
int plx_host_ring_allocate_file(struct plx_device *device, struct plx_fault *fault);

/* ---- Looked at, deleted ---- */

/* A ring by its store or by the path of a member. */
struct plx_host_ring {
    bool known;                /* in the list of this host's rings */
    struct plx_known_ring way; /* not known: what the member says, as far as it can be read */
    bool ours;                 /* of this host; all members say so */
    char host_name[65];        /* of the one that is not, if there is one; empty: unknown */
    bool away; /* by its store, and another host's by now (plx_host_ring_check()): not read here */
    struct plx_ring_members members;
    struct plx_ring *ring; /* NULL: `problem` says why it cannot be read */
    struct plx_fault problem;
    bool in_use;
};

/* what: a store as plx_known_ring_find() takes it, or, with a '/' in it, the path of a member.
 * Opens what can be opened; by the path also what is another host's. NOT_FOUND: no ring is known or
 * lies there. BUSY: somebody has a member open, unless it is only looked at. */
int plx_host_ring_open(const struct plx_paths *paths, const char *what, enum plx_ring_hold hold,
                       const struct plx_patience *patience, struct plx_host_ring *ret_ring,
                       struct plx_fault *fault);
/* The same of an entry of a list, to look at it; takes its members. */
void plx_host_ring_look(const struct plx_paths *paths, struct plx_known_ring *entry,
                        struct plx_host_ring *ret_ring);
void plx_host_ring_close(struct plx_host_ring *ring);
/* That the ring is away, or the first problem of a member, or of the ring; NULL: there is none. */
const struct plx_fault *plx_host_ring_problem(const struct plx_host_ring *ring);

/* Of a ring that this host has entered: a member that holds another ring by now, or is another
 * host's, has a problem. RING_AWAY: so this host may not use the ring; the text says what takes it
 * over with the members that are there. store: what it is called here. */
int plx_host_ring_check(struct plx_ring_members *members, const struct plx_paths *paths,
                        const char *ring, const char *store, struct plx_fault *fault);
/* What to do about members that are not there, behind the problem of one; or nothing. */
#define PLX_HOST_RING_ADVICE 400
const char *plx_host_ring_advise(const struct plx_ring_members *members, const char *store,
                                 char ret_text[PLX_HOST_RING_ADVICE]);
/* A path in a command that is advised: as a word, or PATH where it is too long for a text. */
#define PLX_HOST_RING_WORD 72
const char *plx_host_ring_word(const char *path, char ret_text[PLX_HOST_RING_WORD]);

struct plx_host_ring_word {
    bool force;    /* what was set aside, and members that cannot be read, may go */
    bool unneeded; /* nobody needs what the ring holds, where the store does not tell */
};

/* Whether the ring may go, by what its disks' records say: 0, or BUSY with what is in the way.
 * disks: of plx_ring_disks_look(). untold: why the store could not be asked; NULL: it was. */
int plx_host_ring_may_go(const struct plx_host_ring *ring, const struct plx_ring_disks *disks,
                         const struct plx_fault *untold, const struct plx_host_ring_word *word,
                         struct plx_fault *fault);
/* What goes with a ring that may go: the segments of disks whose records on it are not known to be
 * on their store, and the names of these disks. */
#define PLX_HOST_RING_NAMES 224
uint32_t plx_host_ring_held(const struct plx_ring_disks *disks,
                            char ret_names[PLX_HOST_RING_NAMES]);
/* Whether a member holds it, so that deleting it erases something. */
bool plx_host_ring_is_there(const struct plx_host_ring *ring);
/* Erases the ring from the members that hold it, unless it is away, then drops it from the list. It
 * was opened ALONE, and may go. */
int plx_host_ring_delete(const struct plx_paths *paths, struct plx_host_ring *ring,
                         struct plx_fault *fault);

/* ---- Repaired ---- */

struct plx_host_ring_repair {
    bool alone;            /* the operator's word: the member that is not there is lost */
    const char *with;      /* becomes the other member; NULL: none does */
    uint64_t create_bytes; /* size of a file to be created; 0: it must exist */
    bool force;            /* overwrite what it holds */
    bool damaged;          /* `with` is a member in use that lacks what the other one has, which
                              lacks nothing: it is copied to anew */
    const struct plx_patience *patience;
    void (*progress)(void *context, uint64_t done, uint64_t total); /* bytes */
    bool (*interrupted)(void *context); /* true ends the work: the ring is as it was */
    void *context;
};

/* A ring that was opened ALONE, by its store, and cannot be used, for a member is missing, goes on
 * with the other one; or it gets another member. Durable on return. UNCONFIRMED: the other member
 * is missing, and `alone` is not set. EXISTS: the ring has all its members. RING_AWAY: it is
 * another host's. BUSY: interrupted. */
int plx_host_ring_repair(const struct plx_paths *paths, struct plx_host_ring *ring,
                         const struct plx_host_ring_repair *how, struct plx_fault *fault);

#endif
