/* registry.h - who owns what: stores, volumes, instances, extents, VDIs, labels, holds.
 *
 * Caveats first:
 * - Never called on the data path (INV-4): a change takes four flushes of the device, and a call up
 *   to ten seconds when other processes keep the registry busy.
 * - A handle is used by one thread at a time and not across fork(). Any number of handles, in any
 *   number of processes, may have the same registry open.
 * - Every change is one transaction that states the owner and epoch it expects; it happened
 *   wholly or not at all. PLX_ERR_REGISTRY alone leaves open whether it did: look again.
 * - Locks and extents belong to instances and are persistent (INV-5): they end by release or by
 *   takeover. This file never judges who is dead; registry/instance.h does, for this host.
 * - Nothing here is the only copy: the registry can be rebuilt from the store (INV-6) with the
 *   import calls at the end.
 *
 * Calls return 0 or a negative code; plx_registry_error() then has a sentence for people. What
 * several calls return:
 *   INVALID    a name or number is out of bounds
 *   NOT_FOUND  no such store, VDI, ...        EXISTS  the name or id is taken
 *   BUSY       somebody else owns it; the text says who
 *   FENCED     the caller's lock or extent is not its own (any more)
 *   NOSPACE    no slot or extent left         REGISTRY  unreachable, damaged, too new
 *
 * UUIDs are 36-character lower-case text. Lists are malloc()ed arrays, to be free()d; an empty
 * list may be NULL. Times are nanoseconds since 1970, UTC. Numbers fit 63 bits.
 */
#ifndef PLX_REGISTRY_H
#define PLX_REGISTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"
#include "registry/names.h"

#define PLX_PATH_MAX 4096
#define PLX_HOST_NAME_MAX 64

struct plx_registry;

/* where: the path of an SQLite file, made when missing. who: written into the audit events, such
 * as "handler 4711 on alpha". Brings an older schema up to date; refuses a newer one. */
int plx_registry_open(const char *where, const char *who, struct plx_registry **ret_reg,
                      struct plx_fault *fault);
/* A file that nobody has open, with all that lies beside it. */
void plx_registry_remove(const char *where);
struct plx_region; /* region.h */
/* The same in a region of a volume (whose name is for messages); an empty one is filled. Neither
 * the region's device nor its locks are closed with it. */
int plx_registry_open_region(const struct plx_region *region, const char *volume, const char *who,
                             struct plx_registry **ret_reg, struct plx_fault *fault);
void plx_registry_close(struct plx_registry *reg); /* NULL is allowed */
/* From then on messages name virtual disks as STORE/VDI. */
void plx_registry_call_store(struct plx_registry *reg, const char *store);
/* Text of this handle's last failure. Valid until the next call. */
const char *plx_registry_error(const struct plx_registry *reg);
/* As plx_fault_set(), with that text. Returns the code. */
int plx_registry_fault(const struct plx_registry *reg, int code, struct plx_fault *fault);
/* Reads the whole registry and checks its structure: REGISTRY when that is damaged, another code
 * when it could not be read. */
int plx_registry_check(struct plx_registry *reg);
/* Replaces the whole contents of a region by those of an SQLite file with our schema, which is
 * checked first: one transaction, so a failure, REGISTRY apart, has changed nothing. UNSUPPORTED
 * for a registry that is a file. */
int plx_registry_put(struct plx_registry *reg, const char *file, struct plx_fault *fault);
/* Writes the contents to an SQLite file; one that is there already is replaced when it is whole. */
int plx_registry_get(struct plx_registry *reg, const char *file, struct plx_fault *fault);
/* A commit costs four flushes, so what can wait is made with the change that comes next, in one
 * transaction and before it. This puts the next change of this handle off, which then succeeds at
 * once; for calls that return no row. PLX_PUT_OFF: it is made before anything is read, too. A crash
 * loses it; REGISTRY from the next change may be for its sake. */
enum plx_put_off {
    PLX_NOW,
    PLX_PUT_OFF,
    PLX_PUT_OFF_UNSEEN,
};
void plx_registry_put_off(struct plx_registry *reg, enum plx_put_off how);
/* Makes what was put off now. FENCED, and this handle is not behind: some of it was refused, and
 * dropped; the rest was made. After any other failure what was not made is tried again (kept.c). */
int plx_registry_settle(struct plx_registry *reg);
/* Whether something that was put off failed, and waits to be tried again. */
bool plx_registry_is_behind(const struct plx_registry *reg);
/* Drops what was put off as unseen; false: there is nothing, or it was made. */
bool plx_registry_take_back(struct plx_registry *reg);
/* Pages in use, and how many a region has; 0 for a file. */
int plx_registry_room(struct plx_registry *reg, uint64_t *ret_used, uint64_t *ret_pages);
/* NOSPACE when four fifths of a region are in use: no new disks and labels then. Creating a disk
 * looks itself; who sets a label asks before the log hears of it (attach.c). Events are left out
 * then, without a word. */
int plx_registry_has_room(struct plx_registry *reg);
/* Runs work() while nobody else reads or changes the registry; nor does work(). Returns what it
 * does. UNSUPPORTED for a registry that does not lie in a store. */
int plx_registry_alone(struct plx_registry *reg,
                       int (*work)(void *context, struct plx_fault *fault), void *context,
                       struct plx_fault *fault);

/* ---- Stores and volumes ------------------------------------------------------------------ */

struct plx_registry_store {
    int64_t id; /* this registry's; store below */
    char uuid[PLX_UUID_TEXT];
    char name[PLX_STORE_NAME_MAX + 1];
    uint64_t extent_blocks;
    uint64_t created_ns; /* 0 at create: now */
    /* Returned: what the registry cannot have known (plx_registry_doubt); empty: nothing. */
    char doubt[256];
};

struct plx_registry_volume {
    unsigned index;
    char uuid[PLX_UUID_TEXT];
    char path[PLX_PATH_MAX];        /* a file, a device or an iscsi:// URL */
    uint64_t first_extent, extents; /* where it begins, and how many in all its ranges */
    uint64_t touched;               /* returned: so many of them were used at some time */
    uint64_t system_extents;        /* given: so many of the first are the system's, 0: 1 */
};

/* Extents that lie one after the other on a volume. */
struct plx_registry_range {
    unsigned volume;
    uint64_t first, extents;
};

/* Enters a store and its volumes; the first extents of each are entered as system extents. Indices
 * count from 0, and the volumes' extents follow each other. Ignores store->id; ret_store may be
 * NULL. */
int plx_registry_store_create(struct plx_registry *reg, const struct plx_registry_store *store,
                              const struct plx_registry_volume *volumes, unsigned count,
                              struct plx_registry_store *ret_store);
int plx_registry_store_get(struct plx_registry *reg, const char *name_or_uuid,
                           struct plx_registry_store *ret_store);
int plx_registry_store_list(struct plx_registry *reg, struct plx_registry_store **ret_list,
                            size_t *ret_count);
/* Something was seen on the store that shows that the registry lost writes: it stands until a
 * rebuild. Meanwhile nothing is created, claimed, taken, locked, let go of or collected, nor does
 * the store grow (REGISTRY); what is open goes on. Instances and holds are entered as ever: with
 * these one only reads, and an instance's number is not the registry's (INSTANCE-1), so that
 * none of a process whose row was lost is given out again. The first word stays. */
int plx_registry_doubt(struct plx_registry *reg, int64_t store, const char *why);
/* What to do about a store's doubt, where that does not say so itself: behind its text. */
const char *plx_registry_doubt_advice(const struct plx_registry_store *store);

int plx_registry_volume_add(struct plx_registry *reg, int64_t store,
                            const struct plx_registry_volume *volume);
int plx_registry_volume_list(struct plx_registry *reg, int64_t store,
                             struct plx_registry_volume **ret_list, size_t *ret_count);
int plx_registry_volume_set_path(struct plx_registry *reg, int64_t store, unsigned index,
                                 const char *path);
/* By the extents' numbers. */
int plx_registry_range_list(struct plx_registry *reg, int64_t store,
                            struct plx_registry_range **ret_list, size_t *ret_count);
/* A volume became larger: by a range where all the others end, or by its last range, with that
 * number, being this long now. Entering it again changes nothing. */
int plx_registry_range_add(struct plx_registry *reg, int64_t store,
                           const struct plx_registry_range *range);

/* The right to make a store larger, until plx_registry_growth_end() or the instance's end. BUSY:
 * another has it. REGISTRY: the store is in doubt. */
int plx_registry_growth_begin(struct plx_registry *reg, int64_t store, uint64_t instance);
/* The volume that the store may count from now on; it is remembered when the instance dies. */
int plx_registry_growth_join(struct plx_registry *reg, int64_t store, uint64_t instance,
                             const char *path);
/* NOT_FOUND: none was being added. */
int plx_registry_growth_path(struct plx_registry *reg, int64_t store, char ret_path[PLX_PATH_MAX]);
int plx_registry_growth_end(struct plx_registry *reg, int64_t store, uint64_t instance);

/* ---- Instances --------------------------------------------------------------------------- */

struct plx_registry_instance {
    uint64_t id; /* random, from plx_instance_create() */
    int64_t store;
    char host[PLX_UUID_TEXT]; /* empty: unknown */
    char host_name[PLX_HOST_NAME_MAX + 1];
    char boot[PLX_UUID_TEXT]; /* the kernel's boot id */
    int64_t pid;
    char role[16];       /* "handler", "admin" */
    uint64_t started_ns; /* 0 at register: now */
};

int plx_registry_instance_register(struct plx_registry *reg,
                                   const struct plx_registry_instance *instance);
/* BUSY while it owns a lock or an extent. */
int plx_registry_instance_unregister(struct plx_registry *reg, uint64_t id);
int plx_registry_instance_get(struct plx_registry *reg, uint64_t id,
                              struct plx_registry_instance *ret_instance);
int plx_registry_instance_list(struct plx_registry *reg, int64_t store,
                               struct plx_registry_instance **ret_list, size_t *ret_count);

/* ---- Extents ----------------------------------------------------------------------------- */

#define PLX_REGISTRY_ANY UINT64_MAX

struct plx_registry_extent {
    uint64_t no;
    enum plx_extent_type type;
    uint64_t owner; /* instance, 0: nobody */
    bool sealed;
    uint64_t generation;  /* raised whenever the extent gets an owner */
    uint64_t free_blocks; /* a hint, from its last release */
    /* plx_extent_info.states, as was told last; 0: not known. PLX_STATES_NEVER: its header is not
     * to be believed, for good; such a one is sealed, and cannot be taken. */
    uint64_t states;
    /* Returned: the number of the store's collections (collections.h), without one that the owner
     * itself has under way: what dies in its own disks it knows. */
    uint64_t collections;
};

struct plx_registry_extent_counts {
    uint64_t total, unused, system, data, meta; /* extents */
    uint64_t owned, sealed;                     /* of data and meta */
};

/* Gives the instance an extent of this type (DATA or META): an ownerless, unsealed one with free
 * blocks, else an unused one, ret_fresh then being true: it held nothing. NOSPACE when that would
 * leave fewer than keep_unused unused extents (the reserve for metadata). */
int plx_registry_extent_claim(struct plx_registry *reg, int64_t store, uint64_t instance,
                              enum plx_extent_type type, uint64_t keep_unused,
                              struct plx_registry_extent *ret_extent, bool *ret_fresh);
/* Makes extents of volume 0 the system's that follow each other and were never used: as many as
 * there are in one place, within these bounds. NOT_FOUND: there are not even so few. */
int plx_registry_extent_reserve(struct plx_registry *reg, int64_t store, uint64_t least,
                                uint64_t most, struct plx_registry_range *ret_run);
/* Those that are the system's, by their numbers; to be freed. */
int plx_registry_extent_system(struct plx_registry *reg, int64_t store,
                               struct plx_registry_extent **ret_list, size_t *ret_count);
/* An extent that no instance has, the system's if no superblock names it: its header is not to be
 * believed, and from now on it is sealed and nobody's. BUSY: an instance has it. */
int plx_registry_extent_seal(struct plx_registry *reg, int64_t store, uint64_t no);
/* Gives the instance this very extent, sealed or not: to free blocks in it, or from a dead
 * instance (owner, 0: from nobody). BUSY when it has another owner. Unseals it. */
int plx_registry_extent_take(struct plx_registry *reg, int64_t store, uint64_t no, uint64_t owner,
                             uint64_t instance, struct plx_registry_extent *ret_extent);
/* Gives an extent up: extent->no with its owner and generation as granted, and its new sealed and
 * free_blocks; type UNUSED when it is empty. FENCED when it is not the owner's. */
int plx_registry_extent_release(struct plx_registry *reg, int64_t store,
                                const struct plx_registry_extent *extent);
/* Gives these up, as above, and unregisters their owner: all of it in one transaction. */
int plx_registry_instance_leave(struct plx_registry *reg, int64_t store, uint64_t instance,
                                const struct plx_registry_extent *list, size_t count);
/* owner: an instance, 0: extents of nobody, PLX_REGISTRY_ANY: all that were ever touched. */
int plx_registry_extent_list(struct plx_registry *reg, int64_t store, uint64_t owner,
                             struct plx_registry_extent **ret_list, size_t *ret_count);
int plx_registry_extent_count(struct plx_registry *reg, int64_t store,
                              struct plx_registry_extent_counts *ret_counts);

/* Free blocks in extents that an instance could claim for data beyond keep_unused unused ones; at
 * most `limit` unused and `limit` used extents are counted. */
int plx_registry_extent_room(struct plx_registry *reg, int64_t store, uint64_t keep_unused,
                             uint64_t limit, uint64_t *ret_blocks);

/* ---- Virtual disks ----------------------------------------------------------------------- */

/* What is durable of a VDI's record. */
struct plx_registry_written {
    uint64_t epoch;
    uint64_t state; /* how many states it has had (plx_vdi_info.record_state); 0: not known */
};

struct plx_registry_vdi {
    char id[PLX_UUID_TEXT];
    int64_t store;
    uint32_t slot; /* of its record in the store */
    char name[PLX_NAME_MAX + 1];
    uint64_t size_bytes;
    uint32_t sector_size;
    uint64_t owner; /* instance that holds the lock, 0: nobody */
    uint64_t epoch;
    bool deleted;
    char parent[PLX_UUID_TEXT]; /* empty: not a clone */
    uint64_t parent_seq;
    uint64_t created_ns;
    struct plx_registry_written written; /* last; only then, while nobody has the lock */
};

/* A held lock: proof of the right to change a VDI. Every change compares it. */
struct plx_registry_lock {
    char vdi[PLX_UUID_TEXT];
    uint64_t instance;
    uint64_t epoch;
};

/* Enters a VDI in the lowest free slot below slots, locked by vdi->owner in epoch 1 (so that a
 * creator's crash is found by takeover), or unlocked when that is 0. Ignores slot, epoch, deleted;
 * created_ns 0 is now. EXISTS: the name is taken. NOSPACE: no slot. */
int plx_registry_vdi_create(struct plx_registry *reg, const struct plx_registry_vdi *vdi,
                            uint32_t slots, struct plx_registry_vdi *ret_vdi);
/* Live VDIs only. */
int plx_registry_vdi_get(struct plx_registry *reg, int64_t store, const char *name,
                         struct plx_registry_vdi *ret_vdi);
/* Deleted ones, too. */
int plx_registry_vdi_get_by_id(struct plx_registry *reg, const char *id,
                               struct plx_registry_vdi *ret_vdi);
/* By name, those after `after` (NULL: from the start), at most limit (0: all). */
int plx_registry_vdi_list(struct plx_registry *reg, int64_t store, bool deleted, const char *after,
                          size_t limit, struct plx_registry_vdi **ret_list, size_t *ret_count);

int plx_registry_vdi_lock(struct plx_registry *reg, const char *id, uint64_t instance,
                          struct plx_registry_lock *ret_lock);
/* written NULL: what the registry knows of it stays. */
int plx_registry_vdi_unlock(struct plx_registry *reg, const struct plx_registry_lock *lock,
                            const struct plx_registry_written *written);
/* Likewise, with what else closing it has made durable: the states of extents that its holder owns
 * (no and states count). */
int plx_registry_vdi_closed(struct plx_registry *reg, const struct plx_registry_lock *lock,
                            const struct plx_registry_written *written,
                            const struct plx_registry_extent *extents, size_t count);
/* The operator's word: what is written of the VDI's record is this, and labels of snapshots behind
 * the newest one go; so does what a collection has found, which may be in use again. BUSY: it is in
 * use, by another than the instance. */
int plx_registry_vdi_accept(struct plx_registry *reg, const char *id, uint64_t instance,
                            const struct plx_registry_written *written, uint64_t newest);
/* Moves the lock `held`, whose instance the caller has proven unable to write, to instance, with
 * a raised epoch. FENCED when it is not held like that any more. Works on deleted VDIs, too. */
int plx_registry_vdi_takeover(struct plx_registry *reg, const struct plx_registry_lock *held,
                              uint64_t instance, struct plx_registry_lock *ret_lock);
/* The same of all locks of an instance, in one transaction; the list has the rows as they are now.
 */
int plx_registry_vdis_takeover(struct plx_registry *reg, uint64_t dead, uint64_t instance,
                               struct plx_registry_vdi **ret_list, size_t *ret_count);
/* The VDIs that an instance has locked. */
int plx_registry_locks_of(struct plx_registry *reg, uint64_t instance,
                          struct plx_registry_vdi **ret_list, size_t *ret_count);

int plx_registry_vdi_resize(struct plx_registry *reg, const struct plx_registry_lock *lock,
                            uint64_t size_bytes);
int plx_registry_vdi_rename(struct plx_registry *reg, const struct plx_registry_lock *lock,
                            const char *name);
/* Frees the name; the slot stays taken and the lock held (unlock it as usual). */
int plx_registry_vdi_delete(struct plx_registry *reg, const struct plx_registry_lock *lock);
/* Removes a deleted VDI, once the store has let go of its blocks. BUSY while it is locked or has
 * clones. */
int plx_registry_vdi_purge(struct plx_registry *reg, const char *id);

/* ---- Labels, policies, events ------------------------------------------------------------ */

struct plx_registry_label {
    char name[PLX_LABEL_MAX + 1];
    uint64_t seq;
    uint64_t time_ns; /* of the snapshot */
};

int plx_registry_label_set(struct plx_registry *reg, const struct plx_registry_lock *lock,
                           const struct plx_registry_label *label);
int plx_registry_label_remove(struct plx_registry *reg, const struct plx_registry_lock *lock,
                              const char *name);
int plx_registry_label_get(struct plx_registry *reg, const char *vdi, const char *name,
                           struct plx_registry_label *ret_label);
int plx_registry_label_list(struct plx_registry *reg, const char *vdi,
                            struct plx_registry_label **ret_list, size_t *ret_count);

#define PLX_POLICY_VALUE_MAX 1023

/* value NULL removes. */
int plx_registry_policy_set(struct plx_registry *reg, const char *vdi, const char *key,
                            const char *value);
int plx_registry_policy_get(struct plx_registry *reg, const char *vdi, const char *key,
                            char ret_value[PLX_POLICY_VALUE_MAX + 1]);
/* The same of a store. */
int plx_registry_store_policy_set(struct plx_registry *reg, int64_t store, const char *key,
                                  const char *value);
int plx_registry_store_policy_get(struct plx_registry *reg, int64_t store, const char *key,
                                  char ret_value[PLX_POLICY_VALUE_MAX + 1]);

struct plx_registry_event {
    uint64_t id, time_ns;
    char who[128], what[32], subject[PLX_NAME_MAX + 1], detail[512];
};

/* The calls above write their own events; this is for what happens elsewhere. */
int plx_registry_event_add(struct plx_registry *reg, const char *what, const char *subject,
                           const char *detail);
/* The newest `limit` events, oldest first. */
int plx_registry_event_list(struct plx_registry *reg, size_t limit,
                            struct plx_registry_event **ret_list, size_t *ret_count);

/* ---- Holds and intents (holds.c) --------------------------------------------------------- */

/* One opening of an instant. */
struct plx_registry_hold {
    uint64_t id;
    uint64_t seq;
    uint64_t instance; /* who reads */
    uint64_t since_ns;
};

/* Keeps snapshot seq of a VDI, by its id, from being let go; whether it exists is seen when it is
 * opened. BUSY: some of the VDI's snapshots are being let go just now. */
int plx_registry_hold(struct plx_registry *reg, const char *vdi, uint64_t seq, uint64_t instance,
                      uint64_t *ret_hold);
int plx_registry_release(struct plx_registry *reg, uint64_t hold); /* gone already: no error */
/* By sequence number. */
int plx_registry_hold_list(struct plx_registry *reg, const char *vdi,
                           struct plx_registry_hold **ret_list, size_t *ret_count);

/* What clones began with, and the live VDI that comes from it: a clone, or the clone of one. */
struct plx_registry_heir {
    char name[PLX_NAME_MAX + 1];
    uint64_t seq;
};
int plx_registry_heir_list(struct plx_registry *reg, const char *vdi,
                           struct plx_registry_heir **ret_list, size_t *ret_count);

/* Snapshots of the VDI are about to be let go, but for those that come back: what labels name (the
 * marks' do not count), clones began with and others hold, ascending. Until its end, or that of the
 * lock, nobody else can hold one. After a failure it may be there: end it. */
int plx_registry_intent_begin(struct plx_registry *reg, const struct plx_registry_lock *lock,
                              const struct plx_thin_mark *marks, size_t mark_count,
                              uint64_t **ret_kept, size_t *ret_count);
/* By its holder, or by anybody who has proven the holder dead. */
int plx_registry_intent_end(struct plx_registry *reg, const struct plx_registry_lock *lock);
/* The lock under which somebody lets snapshots go; NOT_FOUND when nobody does. */
int plx_registry_intent_get(struct plx_registry *reg, const char *vdi,
                            struct plx_registry_lock *ret_lock);

/* ---- Rebuilding from a store ------------------------------------------------------------- */

/* After plx_registry_store_create(): instances first (known ones are left alone), then extents,
 * VDIs, labels; what is there already is replaced. Extents that are not named and lie below a
 * named one of their volume are unused. A call that fails may have imported a part: repeat it. */
int plx_registry_import_instances(struct plx_registry *reg,
                                  const struct plx_registry_instance *list, size_t count);
int plx_registry_import_extents(struct plx_registry *reg, int64_t store,
                                const struct plx_registry_extent *list, size_t count);
int plx_registry_import_vdis(struct plx_registry *reg, const struct plx_registry_vdi *list,
                             size_t count);
int plx_registry_import_labels(struct plx_registry *reg, const char *vdi,
                               const struct plx_registry_label *list, size_t count);

#endif
