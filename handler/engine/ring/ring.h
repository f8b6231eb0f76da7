/* ring.h - the write-back ring's device part: keeps records durable on a local device, or on two
 * that mirror each other, and gives them back in order.
 *
 * It knows nothing of disks but an id, and nothing of the store. Whoever owns a disk opens its
 * chain with what the store says about it, takes what is found there, and appends to it:
 *
 *     error = plx_ring_open(devices, 2, &options, &ring, &fault);
 *     error = plx_ring_chain_open(ring, &(struct plx_ring_chain_options){
 *                 .vdi = id, .epoch = epoch, .mark = mark, .position = position,
 *                 .found = take}, &chain, &fault);        take() gets each record that is claimed
 *     plx_ring_chain_prove(chain);                        plx_ring_chain_info's proof, when durable
 *     plx_ring_chain_marked(chain, &mark);                the disk's record names it
 *     item = (struct plx_ring_item){.record = {.type = PLX_RING_WRITE, .block = 7, .blocks = 1},
 *                                   .iov = &iov, .iovcnt = 1, .done = done};
 *     plx_ring_append(chain, &item);                      item.seq is known at once
 *     while (plx_ring_turn(ring)) ...;                    done(&item), when it is durable
 *     plx_ring_release(chain, seq);                       the store has all up to seq, durably
 *     plx_ring_chain_close(chain);
 *     plx_ring_close(ring);
 *
 * Records of a chain are done in the order in which they were appended. What was done is durable on
 * all members of the set, and is found again until it is released. What was not done may be found
 * or not; then all before it is found, too.
 *
 * Loop: one thread makes all calls of a ring, which must be opened exclusively: with the lock on
 * PLX_BYTE_RING (bytelock.h) of each device, but for those who only look. plx_ring_turn() never
 * blocks. Opening, closing and forgetting are synchronous: they run the ring while they wait, and
 * must not be called from done(), changed() or found(). done() may append and release.
 *
 * Errors are 0 or PLX_ERR_*. A ring none of whose members can be written any more stops for good:
 * what waits fails with the code of the I/O, what comes later with STICKY, until it is opened
 * again. What it acknowledged can still be read, as far as the device can.
 */
#ifndef PLX_RING_H
#define PLX_RING_H

#include "engine/base/device.h"
#include "engine/base/env.h"
#include "engine/format/format_ring.h"

#define PLX_RING_MEMBERS 2u

struct plx_ring;
struct plx_ring_chain;

/* ---- A ring as a whole ---- */

struct plx_ring_create_options {
    struct plx_env *env;
    struct plx_uuid store, host;
    char host_name[65];
    uint32_t segment_blocks; /* 0: PLX_RING_SEGMENT_BYTES */
    bool replace;            /* a ring that is there is lost */
};

/* Makes a ring of one or two devices, as large as the smaller one allows. EXISTS: there is one.
 * A crash leaves no ring on the last member, so plx_ring_open() refuses: make it again. */
int plx_ring_create(struct plx_device *const devices[], unsigned count,
                    const struct plx_ring_create_options *options, struct plx_fault *fault);
/* No program finds a ring on the device afterwards. */
int plx_ring_erase(struct plx_device *device, struct plx_fault *fault);
/* The superblock that counts on one device. NOT_FOUND: it has no ring. */
int plx_ring_recognise(struct plx_device *device, struct plx_ring_super *ret_super,
                       struct plx_fault *fault);

struct plx_ring_options {
    struct plx_env *env;
    bool read_only; /* looks: nothing is written, and chains can only be looked at */
    bool alone;     /* one of two members is enough: the operator's word that the other is lost */
    bool complete;  /* likewise, because it is known to have all that the other one has */
    /* Not zero: the ring becomes this host's, durably, before the opening succeeds (RING-8). */
    struct plx_uuid host;
    char host_name[65];
    /* A member was lost, and the survivor has a new set, durably. No record of an open chain is
     * done until plx_ring_chain_marked() says that its disk's mark has that set. May be NULL. */
    void (*changed)(void *context);
    void *context; /* of changed */
};

/* devices: in any order; they stay the caller's and must outlive the ring. NOT_FOUND: there is no
 * ring. MISSING: one of two members is not there, and may have what this one lacks. INVALID: the
 * devices are no members of one ring. CORRUPT: each was used without the other. A member that was
 * left behind, when the other one went on alone, is set aside with an event. */
int plx_ring_open(struct plx_device *const devices[], unsigned count,
                  const struct plx_ring_options *options, struct plx_ring **ret_ring,
                  struct plx_fault *fault);
/* What synchronous calls do while they wait, instead of waiting for the ring's devices alone: wait
 * runs plx_ring_turn() and whatever else is to go on, and should sleep until something has
 * completed. NULL: nothing else. */
void plx_ring_set_wait(struct plx_ring *ring, void (*wait)(void *context), void *context);
/* No chain may be open. */
void plx_ring_close(struct plx_ring *ring);

struct plx_ring_info {
    struct plx_ring_super super; /* of one member; ring, set and ancestors of all */
    unsigned members;            /* that are in use: as many as the set has */
    int sticky;                  /* not 0: it has stopped, because of this error */
    uint32_t segments, free_segments;
    uint32_t bad_segments; /* their headers are damaged: not used until the ring is rebuilt */
    /* Others whose headers are damaged on this member alone. In the order of plx_ring_device(). */
    uint32_t bad_headers[PLX_RING_MEMBERS];
    uint32_t unknown_segments; /* of disks whose chains were not opened */
    uint64_t segment_bytes;
    uint32_t write_blocks_max; /* of one WRITE record */
    bool resilvering;
    uint32_t uncopied_segments; /* segments still to be copied */
    int resilver_error;         /* of the last resilvering; 0: it succeeded, or there was none */
};
void plx_ring_get_info(const struct plx_ring *ring, struct plx_ring_info *ret_info);
int plx_ring_sticky(const struct plx_ring *ring); /* only its `sticky`; cheap */

/* Each disk that has segments, whether its chain is open or not. */
void plx_ring_each_disk(const struct plx_ring *ring,
                        void (*disk)(void *context, const struct plx_uuid *vdi, uint32_t segments),
                        void *context);
/* Lets go, durably, of all records of a disk that its open chain, if there is one, does not claim:
 * they were discarded, or the disk was deleted, or the store has everything. Without an open chain
 * nothing of the disk is found afterwards. */
int plx_ring_forget(struct plx_ring *ring, const struct plx_uuid *vdi, struct plx_fault *fault);

/* A ring of two that goes on with one gets another member: one that was left behind or set aside,
 * or any device that is large enough. What lies on it is lost. Returns once it has begun, and goes
 * on with the ring's turns, chains open or not: plx_ring_info says how far it is. Until it has
 * ended the ring is as it was. replace: the operator's word that no ring on the device is needed;
 * without it, EXISTS: there is another ring, or one that cannot be read, or a member that went on
 * without this one. INVALID: the ring has all its members, or the device is too small. BUSY: one
 * is being added, or the last loss is not over. STICKY. The device is locked as the others are. */
int plx_ring_resilver(struct plx_ring *ring, struct plx_device *device, bool replace,
                      struct plx_fault *fault);

/* One turn: takes completions, forms batches, submits. True: call it again at once. */
bool plx_ring_turn(struct plx_ring *ring);
/* Blocks until a device has completed something; returns at once if nothing is under way. */
void plx_ring_wait(struct plx_ring *ring);
/* I/Os that have not completed. Each ends a wait() of its device. */
unsigned plx_ring_under_way(const struct plx_ring *ring);
/* The device of a member, whether it is lost or not; NULL: there are no more. */
struct plx_device *plx_ring_device(const struct plx_ring *ring, unsigned index);

/* ---- A disk's chain ---- */

/* Where a WRITE record's blocks lie, on every member. */
struct plx_ring_place {
    uint64_t offset; /* bytes; 0: nowhere */
    uint32_t blocks;
    uint64_t hash;
};

struct plx_ring_found {
    struct plx_ring_record record;
    uint64_t epoch, seq, time_ns;
    struct plx_ring_place place;
    const void *data; /* a WRITE's blocks, until found() returns; else NULL */
};

struct plx_ring_chain_options {
    struct plx_uuid vdi;
    /* The epoch of new records: higher than that of every earlier record. It may equal the
     * position's epoch only if the ring holds nothing of this disk. */
    uint64_t epoch;
    struct plx_ring_mark mark; /* in the disk's record: which records are claimed; zero: none */
    struct plx_ring_position position;
    /* Gets each claimed record, in order, from position.seq + 1 on. It counts only if the opening
     * succeeds. An error ends that. May be NULL. */
    int (*found)(void *context, const struct plx_ring_found *found);
    void *context;
};

/* Whether the ring, as it is, can have all that a disk's mark names: 0, or RING_AWAY and why. */
int plx_ring_check_mark(const struct plx_ring *ring, const struct plx_uuid *vdi,
                        const struct plx_ring_mark *mark, struct plx_fault *fault);

/* Finds what is claimed, makes it durable on all members, and only then returns. RING_AWAY: this
 * is not the ring that the mark names, or an older copy. CORRUPT: records are missing that were
 * durable once. IO_READ: nobody can tell whether some are. Then nothing has changed. BUSY: the
 * chain is open. */
int plx_ring_chain_open(struct plx_ring *ring, const struct plx_ring_chain_options *options,
                        struct plx_ring_chain **ret_chain, struct plx_fault *fault);

/* For people: what may have become of records that are set aside. */
#define PLX_RING_WHY_ASIDE                                                                         \
    "they were given up, or a newer state of the store needs them (then put that one back)"

struct plx_ring_look {
    uint64_t first, last;                /* claimed; first > last: none */
    uint64_t aside;                      /* records behind the position that are not claimed */
    uint64_t aside_from_ns, aside_to_ns; /* when they were appended */
    uint64_t bytes;                      /* of the claimed ones' batches */
    /* Of each member, in the order of plx_ring_device(): records that only the other one can give.
     * Damaged: they were durable on both. Behind: nothing says so. Those were never acknowledged,
     * or their acknowledgement was the last thing that the ring did (SCAN_JUDGE-7). */
    uint64_t damaged[PLX_RING_MEMBERS], behind[PLX_RING_MEMBERS];
};
/* The same, but changes nothing; also for a ring that was opened to look. */
int plx_ring_chain_look(struct plx_ring *ring, const struct plx_ring_chain_options *options,
                        struct plx_ring_look *ret_look, struct plx_fault *fault);

/* Records of the disk that this store did not write, as far as its mark tells: behind those of the
 * proof that the mark names. Where the ring has no such proof: all behind the position. Changes
 * nothing. */
int plx_ring_count_newer(struct plx_ring *ring, const struct plx_ring_chain_options *options,
                         uint64_t *ret_records, struct plx_fault *fault);

/* The newest batch of the disk that lies whole in a segment of it, released or not: its epoch and
 * last record; zero: there is none. Changes nothing. */
int plx_ring_newest(struct plx_ring *ring, const struct plx_uuid *vdi,
                    struct plx_ring_position *ret_newest, struct plx_fault *fault);

/* By a segment of the disk, a later epoch went on with this record's number, or before it: whoever
 * began that did not find the record. */
bool plx_ring_went_on_without(const struct plx_ring *ring, const struct plx_uuid *vdi,
                              const struct plx_ring_position *record);

/* No item may be outstanding. What was not released stays on the ring. */
void plx_ring_chain_close(struct plx_ring_chain *chain);

struct plx_ring_item {
    struct plx_ring_record record; /* its hash is filled in */
    /* A WRITE's blocks; stays as it is until done. In one piece that is aligned to a block, it is
     * written without a copy. */
    const struct iovec *iov;
    int iovcnt;
    uint64_t *ret_sums; /* gets the hash of each of a WRITE's blocks; or NULL */
    void (*done)(struct plx_ring_item *item);
    void *owner;                 /* the submitter's */
    uint64_t seq;                /* given by plx_ring_append() */
    struct plx_ring_place place; /* known when done */
    int error;                   /* when done */
    struct plx_ring_item *next;  /* the ring's until done */
};

/* Begins to write a new proof to the ring. Does nothing if the chain has written one already since
 * it was opened, or since its disk lost the mark. plx_ring_chain_info tells when it is durable on
 * all members. */
void plx_ring_chain_prove(struct plx_ring_chain *chain);
/* The disk's mark on the store is this one, durably in both copies of its record; all zero: it has
 * none any more. */
void plx_ring_chain_marked(struct plx_ring_chain *chain, const struct plx_ring_mark *mark);

/* Requires that the disk's mark names the chain's proof. Reports errors only through done(), which
 * is never called from here. An item waits while the ring is full. */
void plx_ring_append(struct plx_ring_chain *chain, struct plx_ring_item *item);
/* Starts a batch of the waiting items if they are large enough to be worth one (CHAIN-1), so that
 * the devices work while the next item is prepared. Never calls done(); the ring's next turn
 * does. */
void plx_ring_hurry(struct plx_ring_chain *chain);
/* What waits to be written, or for plx_ring_chain_marked(), fails with this error: done() is called
 * from here. What is on its way to the devices stays so. What is appended behind it is never
 * written, and fails the next time. */
void plx_ring_cancel(struct plx_ring_chain *chain, int error);
/* The store has all records up to seq, durably, behind a position that says so: their segments may
 * be used again. */
void plx_ring_release(struct plx_ring_chain *chain, uint64_t seq);
struct plx_ring_chain_info {
    uint64_t last_seq;     /* given to the newest record */
    uint64_t durable_seq;  /* all up to it are durable on all members */
    uint64_t done_seq;     /* and done */
    uint64_t released_seq; /* all up to it were released */
    uint64_t proof;        /* durable on all members; 0: none is */
    uint64_t aside;        /* records of the disk that nothing claimed when the chain was opened */
    uint32_t segments;
    uint64_t ring_bytes, ring_free; /* of all segments, and of those that nobody has */
    bool full;                      /* what waits can go on only when segments are released */
    bool unmarked;                  /* waits for plx_ring_chain_marked() */
};
void plx_ring_chain_get_info(const struct plx_ring_chain *chain,
                             struct plx_ring_chain_info *ret_info);

/* Reads a record's blocks back and checks them; of two members, whichever has them. A part of a
 * record has a place of its own, and the hashes of its blocks. Until done, the record must not be
 * released. IO_READ, CORRUPT. */
struct plx_ring_read {
    struct plx_ring_place place;
    const uint64_t *sums; /* of each block; NULL: place.hash is of all */
    void *buffer;         /* place.blocks blocks */
    void (*done)(struct plx_ring_read *read);
    void *owner; /* the submitter's */
    int error;
    struct iovec iov; /* the ring's, and so are the rest */
    struct plx_io io;
    struct plx_ring *ring;
    unsigned member;
};
void plx_ring_read(struct plx_ring *ring, struct plx_ring_read *read);

#endif
