/* attach_inside.h - what the parts of an attach share: attach.c with those that were taken out of
 * it.
 */
#ifndef PLX_ATTACH_INSIDE_H
#define PLX_ATTACH_INSIDE_H

#include <pthread.h>

#include "attach/attach.h"
#include "attach/known.h"
#include "attach/known_rings.h"
#include "attach/ring_members.h"
#include "engine/ring/ringed.h"
#include "registry/clocks.h"
#include "registry/instance.h"
#include "registry/tenancy.h"

struct plx_attach_inside {
    struct plx_registry *registry;
    struct plx_store *store;
    int64_t store_row;
    uint64_t instance;
    const struct plx_paths *paths;
};

/* The engine's environment where there is no attach: clocks and randomness. */
void plx_attach_init_env(struct plx_env *env);

void plx_attach_get_inside(struct plx_attach *attach, struct plx_attach_inside *ret_inside);
/* Around calls of the engine. */
void plx_attach_lock(struct plx_attach *attach);
void plx_attach_unlock(struct plx_attach *attach);
/* What instances of this host that are proven dead have left. */
int plx_attach_recover(struct plx_attach *attach, struct plx_fault *fault);
/* One process of a machine at a time recovers, or gives up what is lost: until the second call. */
int plx_attach_lock_recovery(struct plx_attach *attach, struct plx_fault *fault);
void plx_attach_unlock_recovery(struct plx_attach *attach);
/* Why a disk of a dead instance, ours since, could not be recovered: a volume is full below, which
 * no waiting mends. 0: there is none, or it was opened or deleted meanwhile. */
int plx_attach_unrecovered(struct plx_attach *attach, struct plx_fault *fault);
/* Whether to retry while another process holds what is needed (struct plx_attach_options,
 * patience). since_ns: when it was asked for first, by the monotonic clock. */
bool plx_attach_waits(struct plx_attach *attach, uint64_t since_ns, const struct plx_fault *why);
/* Whether an instance is another command of this host, or has just ended. */
bool plx_attach_ends_soon(struct plx_attach *attach, uint64_t instance);
/* Waits until no other instance has the store open. BUSY: one has, that is named. */
int plx_attach_alone(struct plx_attach *attach, struct plx_fault *fault);
/* Enters a collection, once nobody else's is under way; *ret_waited: that took a while, in which
 * others came and went. BUSY: it still is. */
struct plx_registry_collection;
int plx_attach_enter_collection(struct plx_attach *attach,
                                struct plx_registry_collection *ret_entered, bool *ret_waited,
                                struct plx_fault *fault);

struct plx_owned_extent {
    struct plx_registry_extent row;
    bool fresh; /* it was unused */
    struct plx_owned_extent *next;
};

struct plx_opened_vdi {
    struct plx_vdi *vdi;
    struct plx_ringed *ringed; /* ATTACH-20; NULL: it has no ring */
    bool unforgotten;          /* the ring may have something left of this opening (RINGED-6) */
    /* ATTACH-4: since this snapshot; 0: the registry has missed nothing */
    uint64_t behind;
    struct plx_registry_lock lock;  /* instance 0: a snapshot */
    uint64_t hold;                  /* ATTACH-5; 0: none */
    struct plx_newest_read *newest; /* ATTACH-26; NULL: not the newest state */
    /* ATTACH-23: of the clocks, as the registry has it; whether newer news waits for it */
    struct plx_witness kept, news;
    bool untold;
    struct plx_opened_vdi *next_clock;
    struct plx_opened_vdi *next;
};

/* One claim at a time per extent type; under UNUSED, of an extent by its number. */
struct plx_claim {
    struct plx_attach *attach;
    enum plx_extent_type type;
    uint64_t number;
    bool busy; /* deferred, and not through */
    bool answered;
    int error;
    struct plx_registry_extent row;
    bool fresh;
    bool stranded; /* the row is ours and the store could not be told: the next claim tries again */
    struct plx_device *devices[PLX_VOLUMES_MAX]; /* ATTACH-7: the store takes them over first */
    unsigned device_count;
};

/* This host's ring of the store, open while disks have it (ATTACH-20). */
struct plx_attach_ring {
    struct plx_known_ring known;
    struct plx_ring_members members;
    struct plx_ring *ring;
    struct plx_ringed_host *host; /* NULL: it is not open */
    unsigned disks;
};

struct plx_attach {
    struct plx_env env;
    struct plx_attach_options options;
    struct plx_paths paths;
    struct plx_known known;
    struct plx_tenancy *tenancy; /* NULL: nothing was written yet */
    struct plx_registry *registry, *claims_registry;
    bool damaged;        /* `registry`: a call failed because the registry is damaged */
    bool claims_damaged; /* the same of `claims_registry`; only who calls that reads it */
    struct plx_registry_store row;
    struct plx_instance instance;
    bool registered;
    bool unwritable;         /* ATTACH-16 */
    uint64_t unopened_since; /* ATTACH-16; 0: snapshots are protected otherwise */
    bool not_ours;           /* when a process that only reads opened it, another host had the
                              * store, or none, or nobody could tell */
    struct plx_store *store;
    bool numbered;               /* NUMBERS-4: opened for writing, and not refused */
    struct plx_fault in_the_way; /* of a process that only reads: its registry is read-only then */
    struct plx_fault went_back;  /* NUMBERS-1: of a volume; code 0: none did */
    pthread_mutex_t claims_lock; /* guards what follows, but for vdis */
    uint64_t extents_known;      /* ATTACH-7: others are not given to the store */
    uint64_t keep_unused;
    struct plx_claim claims[PLX_EXTENT_META + 1];
    struct plx_owned_extent *extents;
    struct plx_owned_extent *refused; /* given up next, and sealed then */
    char doubt[PLX_REGISTRY_DOUBT];   /* what one of them showed; empty: nothing, or it is told */
    bool found_doubt;                 /* one of them showed something */
    unsigned sealing;                 /* of these, deferred and not through */
    struct plx_fault distrust;        /* what was seen of the last one whose header is damaged or
                                       * older; code 0: nothing */
    struct plx_fault unclaimed;       /* why the registry did not answer last; code 0: it did */
    bool damage_claiming;             /* it did not, because it is damaged */
    struct plx_opened_vdi *clocks;    /* ATTACH-23: open disks, and what waits of them */
    uint64_t clocks_due_ns;      /* when a turn of the loop tells what waits; 0: nothing does */
    bool telling;                /* that is under way */
    pthread_mutex_t clocks_lock; /* opened_clock.c; before the loop's and claims_lock */
    bool looks;                  /* with the loop's lock: a look's finder keeps what it finds */
    struct plx_opened_vdi *vdis;
    struct plx_registry_lock tried; /* the newest one that was taken to open a disk */
    struct plx_attach_ring ring;
    bool keeps;                     /* ATTACH-14: just now */
    struct plx_opened_vdi *unasked; /* ATTACH-14 */
    uint64_t unasked_changes;       /* of that list */
    bool together;                  /* ATTACH-13: disks are being closed */
    /* ATTACH-25. half_recovered: a recovery has begun to take extents and has not ended step 3.
     * taken: the extents that it was to take and that were neither adopted by the store nor given
     * up since; only row.no counts. */
    bool half_recovered;
    struct plx_owned_extent *taken;
    struct plx_fault unrecovered; /* of this disk; code 0: of none */
    char unrecovered_vdi[PLX_UUID_TEXT];
};

/* attach_ground.c */
struct plx_attach *plx_attach_of(struct plx_env *env);
uint64_t plx_attach_env_now(struct plx_env *env);
void plx_attach_env_random(struct plx_env *env, void *bytes, unsigned count);
void plx_attach_env_event(struct plx_env *env, int code, const char *text);
int plx_attach_begin_tenancy(struct plx_attach *a, struct plx_fault *fault);
int plx_attach_register_instance(struct plx_attach *a, struct plx_fault *fault);
/* If the registry cannot be changed, the row stays while its byte lock is free, so the next attach
 * recovers it. */
void plx_attach_unregister_instance(struct plx_attach *a);
/* ATTACH-8. The registry calls this before each of its changes. */
bool plx_attach_may_write(void *context, struct plx_fault *fault);

/* attach.c */
/* A registry without the store's row. */
int plx_attach_empty_registry(const struct plx_known *known, struct plx_fault *fault);
/* As plx_attach_name_damage(), where a registry was found damaged. */
int plx_attach_known_damage(const struct plx_known *known, int error, struct plx_fault *fault);

/* founding.c. Opens the store on its volumes, without any attach; env lives as long as it. */
int plx_founding_open(const struct plx_known *known, const struct plx_device_open_options *open,
                      const struct plx_store_options *options, struct plx_env *env,
                      struct plx_store **ret_store, struct plx_fault *fault);

/* attach_volumes.c */
void plx_attach_note_size(struct plx_attach *a);
uint64_t plx_attach_extents_known(struct plx_attach *a);
int plx_attach_open_volumes(struct plx_attach *a, struct plx_registry *registry,
                            struct plx_device *ret_devices[PLX_VOLUMES_MAX], unsigned *ret_count,
                            struct plx_fault *fault);
/* On the loop. */
int plx_attach_take_volumes(struct plx_attach *a, struct plx_device **devices, unsigned count,
                            struct plx_fault *fault);
/* Locks on one volume prove nothing about another one, even if that is its copy. */
int plx_attach_open_store(struct plx_attach *a, struct plx_fault *fault);
/* The state directory's entry gets the volumes that it lacks. An opening finds them by the
 * registry; the entry keeps them from being overwritten, and is for who rebuilds the registry. */
void plx_attach_know_further(struct plx_attach *a);
/* What others have written from now on may lie in extents that came since this store was opened. */
int plx_attach_keep_up(struct plx_attach *a, struct plx_fault *fault);

/* claims.c */
struct plx_owned_extent *plx_attach_pop(struct plx_attach *a, struct plx_owned_extent **list);
void plx_attach_remember_extent(struct plx_attach *a, const struct plx_registry_extent *row,
                                bool fresh);
/* Removes the extent from the list of owned extents and returns it; NULL: not in the list. */
struct plx_owned_extent *plx_attach_forget_extent(struct plx_attach *a, uint64_t no);
/* ATTACH-10 */
void plx_attach_never_believe(struct plx_registry_extent *row);
int plx_attach_tell_doubt(struct plx_attach *a, struct plx_registry *registry);
/* Until no other thread works on a claim, seals, or tells of clocks. */
void plx_attach_wait_for_claims(struct plx_attach *a);
void plx_attach_hook_env(struct plx_env *env);

/* opened.c */
/* ATTACH-4 */
int plx_attach_settle(struct plx_attach *a, const struct plx_registry_lock *lock,
                      const struct plx_vdi_info *info, uint64_t from, struct plx_fault *fault);
/* Of a disk whose owner died. */
uint64_t plx_attach_settle_from(uint64_t newest);
uint64_t plx_attach_newest_of(struct plx_attach *a, const struct plx_vdi *vdi);
/* ATTACH-4. newest: the newest snapshot at the time of the change that was reported to the
 * registry. */
void plx_attach_note_told(struct plx_opened_vdi *opened, uint64_t newest, int error);
int plx_attach_finish_creation(struct plx_attach *a, const struct plx_registry_lock *lock,
                               struct plx_fault *fault);
/* ATTACH-13: when the registry is told of a disk that is closed. */
enum plx_put_off plx_attach_closings(const struct plx_attach *a);
/* Made before the disk is opened: what is open is always in the list. */
struct plx_opened_vdi *plx_attach_new_opened(struct plx_fault *fault);
/* ATTACH-14 */
void plx_attach_wait_to_be_asked(struct plx_attach *a, struct plx_opened_vdi *opened);
/* ATTACH-9: the lock of a disk that was closed. */
int plx_attach_unlock_closed(struct plx_attach *a, const struct plx_registry_lock *lock,
                             uint32_t slot, enum plx_put_off put_off);
/* ATTACH-9: what the door said of a disk that is ours, or that is there still. */
int plx_attach_in_doubt(struct plx_attach *a, int error, const struct plx_fault *fault);
bool plx_attach_is_open(const struct plx_attach *a, const char *id);
void plx_attach_enter_opened(struct plx_attach *a, struct plx_opened_vdi *opened,
                             struct plx_vdi *vdi);
struct plx_opened_vdi *plx_attach_opened(struct plx_attach *a, const struct plx_vdi *vdi);

/* opened_clock.c: ATTACH-23 */
/* From before a disk is opened until after it was closed, while it is locked. The witness to open
 * it with lives as long as `opened`. On failure nothing has begun. */
int plx_attach_clock_begin(struct plx_attach *a, struct plx_opened_vdi *opened,
                           const struct plx_witness **ret_witness, struct plx_fault *fault);
void plx_attach_clock_end(struct plx_attach *a, struct plx_opened_vdi *opened);
/* A look, whose news is kept (clocks.h); when the disk is closed also which snapshot was the last.
 * If it cannot be kept, then later. */
void plx_attach_clock_look(struct plx_attach *a, struct plx_opened_vdi *opened, bool closing,
                           struct plx_vdi_clock *ret_clock);
/* plx_vdi_resume(), kept. */
int plx_attach_clock_resume(struct plx_attach *a, struct plx_opened_vdi *opened,
                            struct plx_vdi_clock *ret_clock);
/* In each turn of the loop. */
void plx_attach_clocks_tick(struct plx_attach *a);
void plx_attach_env_witness_changed(struct plx_env *env, const struct plx_uuid *vdi,
                                    const struct plx_witness *witness);

/* named.c */
int plx_attach_row_of(struct plx_attach *a, const char *name, struct plx_registry_vdi *ret_row,
                      struct plx_fault *fault);
/* ATTACH-9. While its row is there no other disk gets the slot, whoever locks this one. */
int plx_attach_check_door(struct plx_attach *a, const struct plx_registry_vdi *row,
                          struct plx_fault *fault);

/* recovery.c */
/* INSTANCE-3: the row may be of one that has ended since it was read. */
bool plx_attach_is_dead(struct plx_attach *a, const struct plx_registry_instance *row);

/* newest.c: ATTACH-26 */
/* Before the newest state is opened. stands: it is to stand still (plx_attach_vdi_options). BUSY:
 * it does not. */
int plx_attach_newest_begin(struct plx_attach *a, const struct plx_registry_vdi *row, bool stands,
                            struct plx_newest_read **ret_newest, struct plx_fault *fault);
/* ATTACH-16: of a reader whose locks are not seen. BUSY: the store is open elsewhere. */
int plx_attach_check_stands_still(struct plx_attach *a, struct plx_fault *fault);
/* Whether anybody has opened the store since. FENCED: somebody has. */
int plx_attach_stood_still(struct plx_attach *a, struct plx_fault *fault);
/* Of all disks that are open so and were to stand still. */
int plx_attach_newest_stood_still(struct plx_attach *a, struct plx_fault *fault);

/* disks.c */
/* All of them, side by side. What the registry is told waits for its next change (ATTACH-13). */
void plx_attach_let_all_go(struct plx_attach *a);

/* history.c */
/* Enters the intent to delete history of the disk under `lock`; thin NULL: all of it. BUSY: a
 * reader is active that cannot enter holds (ATTACH-16). */
int plx_attach_begin_intent(struct plx_attach *a, const struct plx_registry_lock *lock,
                            const struct plx_thin *thin, uint64_t **ret_kept, size_t *ret_count,
                            struct plx_fault *fault);
/* Recovers dead instances if one of them holds a snapshot of the disk, which removes their
 * holds. */
int plx_attach_release_dead(struct plx_attach *a, const char *vdi, struct plx_fault *fault);
bool plx_attach_history_waits(struct plx_attach *a, const struct plx_vdi *vdi,
                              const struct plx_thin *thin);

/* disks.c */
int plx_attach_lock_vdi(struct plx_attach *a, const struct plx_registry_vdi *row,
                        struct plx_registry_lock *ret_lock, bool *ret_recover,
                        struct plx_fault *fault);
int plx_attach_hold_instant(struct plx_attach *a, const char *vdi, uint64_t seq, uint64_t *ret_hold,
                            struct plx_fault *fault);
void plx_attach_release_instant(struct plx_attach *a, uint64_t hold);
/* *ret_marked: the disk's record names a ring. */
int plx_attach_check_locked(struct plx_attach *a, const struct plx_registry_lock *lock,
                            bool recovers, bool *ret_marked, struct plx_fault *fault);

/* attach_ring.c */
/* plx_vdi_open(), with this host's ring if the disk's record names one (marked), or if the disk
 * is to use it: then opened->ringed is set. ret_without: why it is open without the ring; code 0:
 * it has it, or is not to have it. A disk with a mark must not be used without. */
int plx_attach_ring_vdi_open(struct plx_attach *a, const struct plx_registry_vdi *row,
                             struct plx_opened_vdi *opened, const struct plx_vdi_open_options *open,
                             bool marked, struct plx_vdi **ret_vdi, struct plx_fault *ret_without,
                             struct plx_fault *fault);
/* The same without the ring. The disk's records on it are discarded (ATTACH-21); aside: also those
 * that the mark does not claim. */
int plx_attach_ring_discard(struct plx_attach *a, const struct plx_vdi_open_options *open,
                            bool marked, bool aside, struct plx_vdi **ret_vdi,
                            struct plx_fault *fault);
/* A disk that is open and was asked for: turns the ring on, if it is to use it. */
void plx_attach_ring_begin(struct plx_attach *a, const struct plx_registry_vdi *row,
                           struct plx_opened_vdi *opened);
/* Without options.rings: brings what the ring has to the store, and lets go of the ring. */
int plx_attach_ring_settle(struct plx_attach *a, struct plx_opened_vdi *opened,
                           struct plx_fault *fault);
/* Before the disk is closed: the same, but what cannot be brought to the store stays there. */
void plx_attach_ring_end(struct plx_attach *a, struct plx_opened_vdi *opened);
/* The disk with this id is deleted: its record can name no ring any more. */
void plx_attach_ring_forget(struct plx_attach *a, const struct plx_uuid *id);
/* ATTACH-24: this host's ring proves that the device has lost the disk's record. granted: the
 * newest epoch that anybody wrote with. *ret_written: what the record was at least. */
bool plx_attach_ring_saw(struct plx_attach *a, const struct plx_registry_vdi *row, uint64_t granted,
                         struct plx_registry_written *ret_written);
/* Around what needs the whole disk on the store. Then the disk's setting counts again. */
int plx_attach_ring_pause(struct plx_attach *a, struct plx_opened_vdi *opened,
                          struct plx_fault *fault);
void plx_attach_ring_resume(struct plx_attach *a, struct plx_opened_vdi *opened);

#endif
