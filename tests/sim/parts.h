/* parts.h - the inside of a simulated world, shared by the files that make it up and by tests that
 * direct one step by step (tests/crash).
 *
 *   model.c     what each virtual disk is expected to hold
 *   world.c     disks, hosts, virtual disks: made, opened, closed
 *   ops.c       requests, and what their completions say
 *   readback.c  everything read and compared
 *   clocks.c    time that passes, and clocks that jump
 *   grow.c      the store becomes larger
 *   rings.c     the write-back ring of its host
 *   death.c     power cuts, kills, recovery; forks and their judgement
 *   swarm.c     a random run
 */
#ifndef PLX_PARTS_H
#define PLX_PARTS_H

#include <stdio.h>

#include "engine/engine.h"
#include "engine/ring/ringed.h"
#include "sim/oracle.h"
#include "sim/simdisk.h"
#include "sim/simenv.h"
#include "sim/world.h"

#define PLX_SIM_DISKS 4u
#define PLX_SIM_HOSTS 3u
#define PLX_SIM_VDIS 8u
#define PLX_SIM_SNAPSHOTS 800u
#define PLX_SIM_LABELS 64u
#define PLX_SIM_NUMBERS 16384u /* of snapshots */
#define PLX_SIM_OPS 64u
#define PLX_SIM_READERS 3u
#define PLX_SIM_RING_DEVICES 12u
#define PLX_SIM_IO_SECTORS 4096u

/* ---- model.c ---- */

struct plx_sim_snapshot {
    uint64_t seq; /* 0: in flight, or unknown after a death */
    uint64_t time_ns;
    uint64_t true_ns[PLX_SIM_HOSTS]; /* when it was ordered, by the clocks that are right */
    bool acked;
    uint64_t size_min, size_max; /* bytes */
    struct plx_view *view;
    /* An automatic one that is not through: its number if that is known, and what it holds exactly;
     * the view above also allows what was written since, for it may be taken later after all. */
    bool awaited;
    bool opening; /* ordered while its disk was being opened */
    uint64_t expected_seq;
    struct plx_view *exact;
    bool going;   /* it may have been let go */
    bool never;   /* it was not taken, for sure */
    bool dropped; /* it was said not to be taken */
};

struct plx_sim_label {
    char name[16];
    uint64_t seq;
    bool removed, acked;
};

enum plx_sim_state {
    PLX_SIM_ABSENT,
    PLX_SIM_CREATING, /* after a death: there or not */
    PLX_SIM_LIVE,
    PLX_SIM_DELETING, /* after a death: still there or not */
};

struct plx_sim_disk {
    enum plx_sim_state state;
    uint32_t slot;
    uint32_t parent; /* of a clone: its slot + 1, even after it was deleted */
    uint64_t parent_seq;
    uint64_t epoch;
    uint64_t size, resizing; /* bytes; resizing: 0 or the size in flight */
    uint32_t sector_size;
    struct plx_oracle *oracle;
    struct plx_sim_snapshot *snapshots; /* room for PLX_SIM_SNAPSHOTS, once one was taken */
    unsigned snapshot_count;
    struct plx_sim_label *labels; /* room for PLX_SIM_LABELS */
    unsigned label_count;
    /* History begins behind snapshot `forgotten`; letting go came as far as `thinned`, and `gone`
     * has a bit for each number that went. */
    uint64_t forgotten, thinned;
    uint64_t policy_upto; /* a level of a policy has come to this snapshot */
    uint64_t gone[PLX_SIM_NUMBERS / 64];
    uint64_t holder; /* the instance that has its lock; 0: nobody */
    struct plx_sim_host *host;
    struct plx_vdi *vdi;       /* NULL: not open */
    struct plx_ringed *ringed; /* NULL: without a ring */
    bool discarded;            /* what a ring had of it was, since it was last open */
    bool write_back;
    uint64_t mode_changes;
    unsigned in_flight, automatic; /* requests; automatic snapshots that are awaited */
    bool still;                    /* gets no requests: it is being read as a whole */
    /* A rewind under way, or one that nobody knows the end of: what it is to go to (NULL: none);
     * the snapshot of the state before, once it was taken; how many rewinds came before. */
    struct plx_view *rewinding;
    struct plx_snapshot_info rewound_from;
    unsigned rewinds;
    struct plx_witness witness; /* as the registry has it */
    bool witnessed;
};

void plx_sim_disk_forget(struct plx_sim_disk *disk);
/* What is expected after a power cut now; not open. */
void plx_sim_disk_fork(const struct plx_sim_disk *disk, struct plx_sim_disk *ret_fork);
/* Automatic snapshots under way will not be heard of any more: taken or not. */
void plx_sim_disk_doubt(struct plx_sim_disk *disk);
/* The power failed: all that may have survived is possible. */
void plx_sim_disk_crash(struct plx_sim_disk *disk);
/* Acknowledged, and not let go. */
bool plx_sim_snapshot_kept(const struct plx_sim_disk *disk,
                           const struct plx_sim_snapshot *snapshot);
/* It was taken, and this is its number. */
void plx_sim_snapshot_taken(const struct plx_sim_disk *disk, struct plx_sim_snapshot *snapshot,
                            uint64_t seq, uint64_t time_ns);
struct plx_sim_snapshot *plx_sim_snapshot_add(struct plx_sim_disk *disk);
/* One that is kept; NULL: none with this number. */
struct plx_sim_snapshot *plx_sim_snapshot_find(struct plx_sim_disk *disk, uint64_t seq);
struct plx_sim_label *plx_sim_label_add(struct plx_sim_disk *disk);

/* ---- world.c ---- */

struct plx_sim_host {
    struct plx_simenv env; /* first */
    struct plx_world *world;
    struct plx_store *store; /* NULL: not at work */
    struct plx_device *devices[PLX_SIM_DISKS];
    struct plx_device *ring_devices[PLX_SIM_RING_DEVICES]; /* open; none: it has no ring */
    unsigned ring_device_count;
    struct plx_device *ring_member[PLX_RING_MEMBERS]; /* each member's newest; or NULL */
    struct plx_ring *ring;
    struct plx_ringed_host *ringed;
    uint64_t lacks; /* blocks that were promised to what the ring has, and that are not there */
    uint64_t instance;
    bool dead;        /* killed or fenced; its store is still to be closed */
    unsigned sharing; /* requests under way, while it lives: nobody collects meanwhile */
    struct plx_vdi *zombies[PLX_SIM_VDIS]; /* what it had open when it died */
    unsigned zombie_count;
};

struct plx_sim_op {
    struct plx_request request;
    struct plx_world *world;
    struct plx_sim_disk *disk;
    struct plx_sim_host *host;
    bool busy;
    bool deaf;                                 /* its host is dead: what it says is not heard */
    bool durable;                              /* submitted in write-through mode */
    uint64_t mode_changes;                     /* when it was submitted */
    uint64_t token, first, count, flush_begun; /* sectors of 512 */
    uint64_t expected[PLX_COMPARE_MAX / PLX_SECTOR];
    struct plx_view *view;
    uint64_t frozen; /* the snapshot that is read; 0: the live disk */
    unsigned snapshot, label;
    struct plx_move move;
    struct plx_share share;
    struct plx_sim_disk *joins; /* which is to map the common block, too; or NULL */
    uint64_t joins_at;          /* its block */
    struct iovec iov[8];
    uint8_t *buffer;
};

struct plx_sim_reader {
    struct plx_vdi *vdi;
    struct plx_sim_disk *disk;
    struct plx_sim_host *host;
    uint64_t seq;
};

struct plx_sim_states; /* contents of disks already judged */

enum plx_sim_growing {
    PLX_SIM_GROWS_NOT,
    PLX_SIM_GROWS_VOLUME,
    PLX_SIM_GROWS_BY_ANOTHER,
};

struct plx_world {
    struct plx_world_options options;
    struct plx_world_result result;
    struct plx_simrng rng, fork_rng; /* forks do not change the run they are made from */
    struct plx_simpower power;
    struct plx_simregistry registry;
    struct plx_sim_host hosts[PLX_SIM_HOSTS];
    struct plx_sim_disk vdis[PLX_SIM_VDIS];
    struct plx_sim_op *ops; /* options.in_flight of them */
    struct plx_sim_reader readers[PLX_SIM_READERS];
    struct plx_sim_states *states;
    uint64_t instances, next_id;
    uint64_t acks;    /* completions heard: what is expected may have changed */
    uint64_t kill_at; /* a host dies with this event; 0: never */
    bool turning;     /* all hosts are being turned */
    unsigned
        meanwhile;  /* requests that disks may still get during the synchronous call under way */
    bool ended;     /* every host as it should */
    bool rings_off; /* disks that are closed leave nothing on the ring */
    /* Members of the ring: the first one's disk; which of them do not work; which may lack
     * something; whether one is being added; the only one that is there, plus 1; whether that was
     * refused. */
    unsigned ring_disk;
    bool ring_broken[PLX_RING_MEMBERS], ring_doubted[PLX_RING_MEMBERS], ring_adding, ring_set_aside;
    unsigned ring_only;
    bool ring_refused;
    bool ring_had_no_room;
    bool store_lost;      /* its power was cut; the host that had it open has not died yet */
    unsigned store_steps; /* since then */
    unsigned store_turns; /* of that host's loop in calls, since then */
    bool died_apart;
    unsigned deletions;         /* of disks */
    struct plx_sim_disk *fresh; /* its newest snapshot was acknowledged just now; or NULL */
    bool is_fork, forking, forks_on, forks_paused;
    /* What plx_sim_grow() does, or was doing when the power failed. */
    enum plx_sim_growing growing;
    uint64_t growing_to; /* extents */
    uint8_t *scratch;
    unsigned step;
};

#define PLX_SIM_TRACE(w, ...)                                                                      \
    do {                                                                                           \
        if ((w)->options.trace) {                                                                  \
            printf("%s[%u] ", (w)->is_fork ? "    " : "", (w)->step);                              \
            printf(__VA_ARGS__);                                                                   \
            printf("\n");                                                                          \
        }                                                                                          \
    } while (0)

/* A host's environment, but for its clock. */
void plx_sim_host_init(struct plx_world *w, struct plx_sim_host *host);
struct plx_world *plx_sim_new(const struct plx_world_options *options);
void plx_sim_free(struct plx_world *w, struct plx_world_result *ret_result);

void plx_sim_fail(struct plx_world *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Whether the run is over or its devices are gone: nothing more can be expected of it now. */
bool plx_sim_interrupted(const struct plx_world *w);
/* Whether requests may fail for what the disks do. */
bool plx_sim_faulty(const struct plx_world *w);
/* Some runs write so much between so many snapshots that every extent has been given out. */
bool plx_sim_used_up(const struct plx_world *w);
/* An error that the options, or a death, make legitimate. */
bool plx_sim_excused(struct plx_world *w, const struct plx_sim_host *host, int error);
/* The same, of an error of what begins with a snapshot (NULL: with none): it may have gone (
 * SIM_THIN-2). */
bool plx_sim_excused_from(struct plx_world *w, const struct plx_sim_host *host,
                          const struct plx_sim_snapshot *snapshot, int error);
uint64_t plx_sim_below(struct plx_world *w, uint64_t n);
bool plx_sim_chance(struct plx_world *w, unsigned percent);
void plx_sim_hash_in(struct plx_world *w, uint64_t value);

/* A host with a store open, not dead; NULL: none. */
struct plx_sim_host *plx_sim_live_host(struct plx_world *w);
struct plx_sim_host *plx_sim_random_host(struct plx_world *w);
bool plx_sim_instance_lives(const struct plx_world *w, uint64_t instance);
int plx_sim_host_start(struct plx_world *w, struct plx_sim_host *host, bool read_only);
/* Without a word to the store, as a death leaves it. */
void plx_sim_host_drop(struct plx_world *w, struct plx_sim_host *host);
/* One turn of every host's loop, dead ones included: a fenced host does not know yet. */
bool plx_sim_turn(struct plx_world *w);
/* Lets a device of each host complete something, if any has something to complete. */
void plx_sim_wait(struct plx_world *w);
/* Until no request of any disk, or of one, is under way. */
void plx_sim_drain(struct plx_world *w);
void plx_sim_drain_disk(struct plx_world *w, const struct plx_sim_disk *disk);

struct plx_sim_disk *plx_sim_absent(struct plx_world *w);
bool plx_sim_has_heirs(const struct plx_world *w, uint32_t slot);
/* parent NULL: not a clone. */
void plx_sim_create(struct plx_world *w, struct plx_sim_host *host, struct plx_sim_disk *disk,
                    struct plx_sim_disk *parent, const struct plx_sim_snapshot *snapshot);
/* A resize or creation is over: it has this size, which must be one of those expected. */
void plx_sim_settle_size(struct plx_world *w, struct plx_sim_disk *disk, uint64_t size);
void plx_sim_open(struct plx_world *w, struct plx_sim_host *host, struct plx_sim_disk *disk);
void plx_sim_close(struct plx_world *w, struct plx_sim_disk *disk);
void plx_sim_delete(struct plx_world *w, struct plx_sim_disk *disk);
void plx_sim_reader_open(struct plx_world *w, struct plx_sim_disk *disk);
void plx_sim_reader_close(struct plx_world *w, struct plx_sim_reader *reader);

/* A clean end: its disks closed, its extents given up; then another instance opens them again. */
/* Its contents become those of a snapshot of its own. */
void plx_sim_rewind(struct plx_world *w, struct plx_sim_disk *disk,
                    const struct plx_sim_snapshot *snapshot);
void plx_sim_restart(struct plx_world *w, struct plx_sim_host *host);
/* Every host ends as it should: whether nobody died or failed meanwhile. */
bool plx_sim_stop_all(struct plx_world *w);

/* ---- grow.c ---- */

/* All that w->growing says, once more if need be: the volumes became larger, or the last disk
 * becomes a volume. */
void plx_sim_grow(struct plx_world *w);
/* Like those that there are, empty, and no volume yet. */
struct plx_simdisk *plx_sim_new_disk(struct plx_world *w);
/* For who opens the store: how many volumes it has, all of them, and what extents there are. */
void plx_sim_count_volumes(struct plx_world *w);
unsigned plx_sim_attach_volumes(struct plx_world *w, struct plx_device **ret_devices);
void plx_sim_register_extents(struct plx_world *w, const struct plx_store *store);

/* ---- thin.c ---- */

/* Lets snapshots of a range go, but for what is labelled, cloned or read (filled in here). */
/* Returns how far it came; 0: it may not have come anywhere. */
uint64_t plx_sim_thin(struct plx_world *w, struct plx_sim_disk *disk, const struct plx_thin *range);
/* Writes that wait for history to give way get room, or hear that there is none. */
void plx_sim_make_room(struct plx_world *w);
/* What the list and the record say: of those up to `newest` what is not listed is gone; but for
 * certain only where they stay so (SIM_THIN-2). */
void plx_sim_settle_gone(struct plx_world *w, struct plx_sim_disk *disk, const uint64_t *listed,
                         unsigned count, uint64_t newest, uint64_t forgotten, bool stays);
bool plx_sim_number_gone(const struct plx_sim_disk *disk, uint64_t seq);

/* ---- clocks.c ---- */

/* Time passes, a clock jumps or is set right, or an operator gives his word. */
void plx_sim_clock_event(struct plx_world *w);
void plx_sim_keep_clock(struct plx_world *w, struct plx_sim_disk *disk);
void plx_sim_clock_not_behind(struct plx_world *w, struct plx_sim_host *host);
void plx_sim_clocks_restart(struct plx_world *w);
void plx_sim_note_time(const struct plx_world *w, struct plx_sim_snapshot *snapshot);
/* How old snapshots are in truth, before some go by time; then those that went are judged. */
struct plx_sim_ages {
    uint64_t oldest_kept_ns, every_ns;
    bool complete; /* no other is there */
    unsigned count;
    struct plx_sim_age {
        uint64_t seq, true_ns;
        bool going; /* perhaps it has gone before */
    } at[PLX_SIM_SNAPSHOTS];
};
void plx_sim_ages_before(const struct plx_world *w, const struct plx_sim_disk *disk,
                         const struct plx_thin *thin, struct plx_sim_ages *ret_ages);
void plx_sim_ages_after(struct plx_world *w, const struct plx_sim_disk *disk,
                        const struct plx_sim_ages *ages);

/* ---- rings.c ---- */

void plx_sim_ring_make(struct plx_world *w);
/* With a host's store, once it is open; before it is closed; when the host dies. */
void plx_sim_ring_start(struct plx_world *w, struct plx_sim_host *host);
void plx_sim_ring_end(struct plx_world *w, struct plx_sim_host *host);
void plx_sim_ring_stop(struct plx_sim_host *host);
/* plx_vdi_open() on a host that has its ring open. */
int plx_sim_ring_open(struct plx_world *w, struct plx_sim_disk *disk, struct plx_sim_host *host,
                      const struct plx_vdi_open_options *options, struct plx_vdi **ret_vdi,
                      struct plx_fault *fault);
/* Before the disk is closed or abandoned; what is on the ring stays. */
void plx_sim_ring_leave(struct plx_world *w, struct plx_sim_disk *disk);
/* False: it is not off, because of a fault or a death. */
bool plx_sim_ring_off(struct plx_world *w, struct plx_sim_disk *disk);
/* Before its automatic snapshots are looked at, if it takes any. Returns the last one that the
 * store has, or more. */
uint64_t plx_sim_ring_drain(struct plx_world *w, struct plx_sim_disk *disk);
/* A disk has passed several writes by its ring, and they are under way. */
bool plx_sim_ring_goes_along(const struct plx_world *w);
/* The last one that store and ring have. */
uint64_t plx_sim_ring_snapshots(const struct plx_sim_disk *disk, uint64_t on_store);
/* After a turn of all loops. */
void plx_sim_ring_turned(struct plx_world *w);
/* A ring is full, and the store too: whoever waits for requests makes room. */
void plx_sim_ring_unstick(struct plx_world *w);
/* Of a store that was full: it is not any more, and everything is opened again. */
void plx_sim_ring_make_room(struct plx_world *w);
/* The store or the host's machine loses power (SIM_RINGS-9). */
void plx_sim_ring_apart(struct plx_world *w, struct plx_sim_host *host);
/* While the store has none: the host dies when its time has come, or at_end at once. */
bool plx_sim_ring_without_store(struct plx_world *w, bool at_end);
/* Before each turn of a host's loop in a call, which may wait for the store. */
void plx_sim_ring_waits(struct plx_world *w);
/* Nobody is at work. A host without the ring opens the store, and disks that the ring may have
 * writes of, and goes. */
void plx_sim_ring_stranger(struct plx_world *w);
/* Opens it again if it has stopped. */
void plx_sim_ring_revive(struct plx_world *w);
/* Turns a disk's ring on or off. */
void plx_sim_ring_step(struct plx_world *w);
/* A member is lost, or added again. */
void plx_sim_ring_members_step(struct plx_world *w);

/* ---- collect.c ---- */

/* A whole collection on a host, or as much as comes of it; other things happen meanwhile. */
void plx_sim_collect(struct plx_world *w, struct plx_sim_host *host,
                     void (*meanwhile)(struct plx_world *w));

/* ---- ops.c ---- */

/* A free one for this disk, which is open; NULL: none. */
struct plx_sim_op *plx_sim_op_new(struct plx_world *w, struct plx_sim_disk *disk);
void plx_sim_op_submit(struct plx_world *w, struct plx_sim_op *op);
/* Each prepares and submits. Sectors of 512 bytes. */
void plx_sim_write(struct plx_world *w, struct plx_sim_disk *disk, uint64_t first, uint64_t count,
                   bool zeroes, bool fua);
void plx_sim_unmap(struct plx_world *w, struct plx_sim_disk *disk, uint64_t first, uint64_t count);
void plx_sim_compare(struct plx_world *w, struct plx_sim_disk *disk, uint64_t first,
                     uint64_t count);
void plx_sim_snapshot(struct plx_world *w, struct plx_sim_disk *disk);
void plx_sim_flush(struct plx_world *w, struct plx_sim_disk *disk);
void plx_sim_keyframe(struct plx_world *w, struct plx_sim_disk *disk);
/* Nothing of what can be read changes. */
void plx_sim_move(struct plx_world *w, struct plx_sim_disk *disk, uint64_t first_block,
                  uint64_t blocks);
void plx_sim_resize(struct plx_world *w, struct plx_sim_disk *disk, uint64_t bytes);
/* The same to both, if it fits. */
void plx_sim_write_both(struct plx_world *w, struct plx_sim_disk *disk, struct plx_sim_disk *other,
                        uint64_t first, uint64_t count);
/* Makes a block common; then another one, of a disk that is open on the same host, may join it. */
void plx_sim_share(struct plx_world *w, struct plx_sim_disk *disk, uint64_t block,
                   struct plx_sim_disk *joins, uint64_t joins_at);
void plx_sim_label(struct plx_world *w, struct plx_sim_disk *disk, bool remove);
/* Another mode of protection, or none. */
void plx_sim_protect(struct plx_world *w, struct plx_sim_disk *disk);
/* The engine's word on automatic snapshots. */
void plx_sim_on_automatic(struct plx_simenv *env, uint32_t slot, enum plx_automatic what,
                          uint64_t seq, uint64_t time_ns);
void plx_sim_set_write_back(struct plx_world *w, struct plx_sim_disk *disk, bool write_back);
/* Any of them, at random. */
void plx_sim_submit_random(struct plx_world *w);
void plx_sim_reader_submit(struct plx_world *w);

/* The host is dead: its requests are in doubt from now on. */
void plx_sim_disown(struct plx_world *w, const struct plx_sim_host *host);

/* ---- readback.c ---- */

/* Whether what is read now will be read ever after: not of what a flush may have dropped. */
bool plx_sim_sticks(const struct plx_world *w);
void plx_sim_check_sectors(struct plx_world *w, const struct plx_view *view, uint64_t first,
                           uint64_t count, const uint8_t *bytes, const char *what, uint32_t slot,
                           uint64_t seq);
/* All of an idle, open disk; what is read there sticks. */
void plx_sim_verify_live(struct plx_world *w, struct plx_sim_disk *disk, bool durable,
                         const char *what);
struct plx_sim_snapshot *plx_sim_snapshot_pick(struct plx_world *w, struct plx_sim_disk *disk);
/* The same, of what the store has: not from within a turn of the loop. */
struct plx_sim_snapshot *plx_sim_snapshot_pick_drained(struct plx_world *w,
                                                       struct plx_sim_disk *disk);
void plx_sim_verify_snapshot(struct plx_world *w, struct plx_sim_disk *disk,
                             struct plx_sim_snapshot *snapshot);
void plx_sim_verify_runs(struct plx_world *w, struct plx_sim_disk *disk,
                         struct plx_sim_snapshot *snapshot);
/* Snapshots and labels: all acknowledged ones are listed, and nothing that never was. */
void plx_sim_verify_lists(struct plx_world *w, struct plx_sim_disk *disk);
void plx_sim_check_store(struct plx_world *w);
/* Lists, some snapshots; closes everything; reads it all once more read-only, and checks. */
void plx_sim_finish(struct plx_world *w, unsigned snapshots);

/* ---- swarm.c ---- */

/* Faults end, and a disk that stopped (a log that could not be written) or did not open is opened
 * again. */
void plx_sim_revive(struct plx_world *w);

/* ---- death.c ---- */

/* False: a death came between, or a failure. */
bool plx_sim_adopt(struct plx_world *w, struct plx_sim_host *host);
/* Opens a disk that is not and reads it back: nothing is written to it before everything that was
 * in doubt is known. */
void plx_sim_recover_disk(struct plx_world *w, struct plx_sim_host *host,
                          struct plx_sim_disk *disk);
/* What happens with each event of the disks: a host's death, forks. */
void plx_sim_on_event(void *world);
/* The process is killed; or its reservation is preempted, and it does not know yet. */
void plx_sim_kill(struct plx_world *w, struct plx_sim_host *host, bool fenced);
/* After a power cut or with dead hosts: until everything is open and read back again. */
void plx_sim_recover(struct plx_world *w);
/* Forks now; while w->forks_on, that happens at every fork_every-th event. */
void plx_sim_fork_now(struct plx_world *w);
uint64_t plx_sim_states_count(const struct plx_sim_states *states);
struct plx_sim_states *plx_sim_states_new(void);
void plx_sim_states_free(struct plx_sim_states *states);

#endif
