/* registry.h - who owns what: stores, volumes, instances, extents, disks, labels, holds.
 *
 * The registry is an SQLite database with one row for each owner, in the store itself (embedded.h)
 * or in a file. A process's usual order of calls:
 *
 *   plx_embedded_open() or plx_registry_open()        a handle
 *   plx_registry_store_get()                          the store's row; its id goes into most calls
 *   plx_registry_instance_register()                  from here on this process can own things
 *   plx_registry_vdi_lock(), _extent_claim(), ...     what it works with
 *   plx_registry_vdi_unlock(), plx_registry_instance_leave(), plx_registry_close()
 *
 * Rules for callers:
 * - Never call it on the data path (INV-4). A change costs four flushes of the device. Any call may
 *   wait 30 seconds while other processes keep the registry busy.
 * - Use a handle on one thread at a time and not across fork(). Any number of handles, in any
 *   number of processes, may have the same registry open.
 * - Every change is one transaction that states the owner and epoch it expects. It happens wholly
 *   or not at all. Only after PLX_ERR_REGISTRY is it unknown which: look again.
 * - Locks and extents belong to instances, and have no timer (INV-5). They end by release or by
 *   takeover. This file never judges who is dead: registry/instance.h does, for this host.
 * - Nothing here is the only copy. The registry can be rebuilt from the store (INV-6) with the
 *   import calls at the end of this file.
 *
 * Calls return 0 or a negative code; plx_registry_error() then has a sentence for people. Codes
 * that several calls return:
 *   INVALID    a name or number is out of bounds
 *   NOT_FOUND  no such store, VDI, ...        EXISTS  the name or id is taken
 *   BUSY       somebody else owns it; the text says who
 *   FENCED     the caller's lock or extent is not the caller's (any more)
 *   NOSPACE    no slot or extent left         REGISTRY  unreachable, damaged, too new
 *
 * UUIDs are 36-character lower-case text. Lists are malloc()ed arrays that the caller frees; an
 * empty list may be NULL. Times are nanoseconds since 1970, UTC. Numbers fit 63 bits.
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
#define PLX_REGISTRY_DOUBT 400 /* why a store is in doubt, with the end */

struct plx_registry;

/* Opens a registry in an SQLite file. where: its path; the file is made when missing. who: written
 * into the audit events, such as "handler 4711 on alpha". Brings an older schema up to date and
 * refuses a newer one. */
int plx_registry_open(const char *where, const char *who, struct plx_registry **ret_reg,
                      struct plx_fault *fault);
/* The rqlite nodes that keep a registry, and how they and this host know each other (RQLITE-11).
 * The texts are copied; the files of certificates and key are read at each new connection, so
 * renewed ones count without opening the registry again. */
struct plx_registry_nodes {
    /* 1 to 9, https://HOST:PORT each, or all of them http://HOST:PORT. They are asked in turn, any
     * of them will do. No user or password may be in them. */
    const char *const *addresses;
    size_t count;
    /* PEM files, for https:// only. ca: the certificates of the authority whose word for a node
     * counts, and nobody else's does; required. certificate, key: what this host shows to nodes
     * that ask for it (mutual TLS), or NULL both. The key's file has mode 0600, and no passphrase.
     */
    const char *ca, *certificate, *key;
    /* For nodes that ask for a user and a password (rqlited -auth), or NULL both. All of the file,
     * but for a newline at its end, is the password. It has mode 0600. */
    const char *user, *password_file;
    /* http:// may lead to other machines. Without TLS, whoever reaches a node's port or a cable on
     * the way can take each lock and so write over each disk. So http:// is for nodes on this
     * machine's loopback device alone, unless somebody says that nobody else is on that network. */
    bool plain;
    bool look;        /* nothing is written. NOT_FOUND: there is no registry yet */
    unsigned wait_ms; /* how long a call may take; 0: 20 seconds */
};
/* Opens a registry on a cluster of rqlite nodes (rqlite.c). An empty database gets the schema.
 * INVALID: the nodes are not named as above. NOT_FOUND, PERMISSION: a file is not there, or may be
 * read by nobody or by too many. UNSUPPORTED: libcurl is missing. */
int plx_registry_open_rqlite(const struct plx_registry_nodes *nodes, const char *who,
                             struct plx_registry **ret_reg, struct plx_fault *fault);
/* Deletes a registry's file and SQLite's files beside it. Nobody may have it open. */
void plx_registry_remove(const char *where);
struct plx_region; /* region.h */
/* Opens a registry in a region of a volume; the volume's name is for messages. An empty region gets
 * the schema. The caller keeps the region's device and locks and closes them after the handle. */
int plx_registry_open_region(const struct plx_region *region, const char *volume, const char *who,
                             struct plx_registry **ret_reg, struct plx_fault *fault);
void plx_registry_close(struct plx_registry *reg); /* NULL is allowed */
/* Tells the handle the store's name, so that messages name virtual disks as STORE/VDI. */
void plx_registry_call_store(struct plx_registry *reg, const char *store);
/* Text of this handle's last failure. Valid until the next call. */
const char *plx_registry_error(const struct plx_registry *reg);
/* Copies that text into *fault, with this code. Returns the code. */
int plx_registry_fault(const struct plx_registry *reg, int code, struct plx_fault *fault);
/* Reads the whole registry and checks its structure. REGISTRY: it is damaged. Another code: it
 * could not be read. */
int plx_registry_check(struct plx_registry *reg);
/* Replaces the whole contents of a region by those of an SQLite file, which is checked first. This
 * is one transaction: a failure other than REGISTRY has changed nothing. UNSUPPORTED for a registry
 * that is a file. */
int plx_registry_put(struct plx_registry *reg, const char *file, struct plx_fault *fault);
/* Writes the contents to an SQLite file. An old file of that name is replaced once the new one is
 * whole and durable. */
int plx_registry_get(struct plx_registry *reg, const char *file, struct plx_fault *fault);

/* Putting changes off (kept.c). A commit costs four flushes, so a change that can wait joins the
 * transaction of the next change, ahead of it. plx_registry_put_off() concerns the next changing
 * call of this handle, which must be one that returns no row. That call then succeeds at once. A
 * crash loses a change that was put off. If it fails later, the next change reports REGISTRY. */
enum plx_put_off {
    PLX_NOW,
    PLX_PUT_OFF,        /* made before the next change, and before the next read */
    PLX_PUT_OFF_UNSEEN, /* made before the next change; reads do not see it */
};
void plx_registry_put_off(struct plx_registry *reg, enum plx_put_off how);
/* Makes now what was put off. FENCED while this handle is not behind: some changes were refused and
 * dropped, the others were made. After any other failure the changes wait and are tried again. */
int plx_registry_settle(struct plx_registry *reg);
/* Whether a change that was put off has failed and waits to be tried again. */
bool plx_registry_is_behind(const struct plx_registry *reg);
/* Drops what was put off as unseen. false: nothing was dropped, because nothing is waiting (it may
 * have been made), or something that waits must be seen by reads. */
bool plx_registry_take_back(struct plx_registry *reg);
/* Pages in use, and how many pages a region has; *ret_pages is 0 for a file. */
int plx_registry_room(struct plx_registry *reg, uint64_t *ret_used, uint64_t *ret_pages);
/* NOSPACE when more than four fifths of a region are in use: no new disks and labels then, and
 * audit events are silently left out. plx_registry_vdi_create() asks by itself. A caller that sets
 * a label asks before it writes the label to the log (attach.c). */
int plx_registry_has_room(struct plx_registry *reg);
/* Runs work() while no other process reads or changes the registry. work() must not use it either.
 * Returns work()'s result. UNSUPPORTED for a registry that is a file. */
int plx_registry_alone(struct plx_registry *reg,
                       int (*work)(void *context, struct plx_fault *fault), void *context,
                       struct plx_fault *fault);

/* ---- Stores and volumes ------------------------------------------------------------------ */

/* Of a store's row (clusters.h). */
enum plx_registry_state {
    PLX_STORE_NORMAL,
    PLX_STORE_ARRIVING, /* its rows are being carried here, or do not count yet */
    PLX_STORE_LEAVING,  /* they are being carried away, or do not count any more */
    PLX_STORE_UNKNOWN,  /* returned: a damaged registry's; to be treated as neither */
};

struct plx_registry_store {
    int64_t id; /* the row's number in this registry; parameter `store` of the calls below */
    char uuid[PLX_UUID_TEXT];
    char name[PLX_STORE_NAME_MAX + 1];
    uint64_t extent_blocks;
    uint64_t created_ns; /* 0 at create: now */
    /* Returned: why the registry is not to be believed (plx_registry_doubt); empty: it is. */
    char doubt[PLX_REGISTRY_DOUBT];
    /* Returned: of which copy of the store the rows are; empty: not said, in a store's own. */
    char identity[PLX_UUID_TEXT];
    enum plx_registry_state state; /* returned */
    char host[PLX_UUID_TEXT];      /* returned: CLUSTERS-4; empty: none */
};

struct plx_registry_volume {
    unsigned index;
    char uuid[PLX_UUID_TEXT];
    char path[PLX_PATH_MAX];        /* a file, a device or an iscsi:// URL */
    uint64_t first_extent, extents; /* number of its first extent; count in all its ranges */
    uint64_t touched;               /* returned: how many of them were ever used */
    uint64_t system_extents;        /* given: how many of the first are system extents; 0: 1 */
};

/* Extents with consecutive numbers on one volume. */
struct plx_registry_range {
    unsigned volume;
    uint64_t first, extents;
};

/* Enters a store and its volumes, and the first extents of each volume as system extents. Volume
 * indices count from 0 and the volumes' extent numbers follow each other. Ignores store->id;
 * ret_store may be NULL. */
int plx_registry_store_create(struct plx_registry *reg, const struct plx_registry_store *store,
                              const struct plx_registry_volume *volumes, unsigned count,
                              struct plx_registry_store *ret_store);
int plx_registry_store_get(struct plx_registry *reg, const char *name_or_uuid,
                           struct plx_registry_store *ret_store);
int plx_registry_store_list(struct plx_registry *reg, struct plx_registry_store **ret_list,
                            size_t *ret_count);
/* Puts the store in doubt: something seen on the store proves that the registry lost writes, so
 * whatever the registry says may be wrong. The doubt stays until a rebuild, and the first reason
 * given is kept. What a doubt changes:
 *
 *   refused (REGISTRY)   creating or locking a disk, claiming or taking an extent, letting
 *                        snapshots go, collecting garbage, growing the store
 *   as before            disks that are open, giving up locks and extents, registering instances,
 *                        entering holds
 *
 * Instances and holds are harmless: with them a process only reads. The registry does not give out
 * instance numbers either. Each process chooses its own and locks its byte (INSTANCE-1), so a live
 * process whose row was lost keeps its number to itself. */
int plx_registry_doubt(struct plx_registry *reg, int64_t store, const char *why);
/* Advice to print after a store's doubt; empty if the doubt's own text has some. */
const char *plx_registry_doubt_advice(const struct plx_registry_store *store);

int plx_registry_volume_add(struct plx_registry *reg, int64_t store,
                            const struct plx_registry_volume *volume);
int plx_registry_volume_list(struct plx_registry *reg, int64_t store,
                             struct plx_registry_volume **ret_list, size_t *ret_count);
int plx_registry_volume_set_path(struct plx_registry *reg, int64_t store, unsigned index,
                                 const char *path);
/* All ranges of the store, ordered by extent number. */
int plx_registry_range_list(struct plx_registry *reg, int64_t store,
                            struct plx_registry_range **ret_list, size_t *ret_count);
/* Enters that a volume became larger. Either a new range begins where all ranges of the store end,
 * or the store's last range, which begins at range->first, has this length now. Entering the same
 * again changes nothing. */
int plx_registry_range_add(struct plx_registry *reg, int64_t store,
                           const struct plx_registry_range *range);

/* Growing a store (growth.c): begin, join for a further volume, then the store itself grows, then
 * range_add or volume_add, then end.
 *
 * Gives the instance the right to make the store larger, until plx_registry_growth_end() or until
 * the instance is gone. BUSY: another instance has it. REGISTRY: the store is in doubt. */
int plx_registry_growth_begin(struct plx_registry *reg, int64_t store, uint64_t instance);
/* Names the volume that the store is about to count. The registry remembers the path even if the
 * instance dies, so that the next opener finds the volume. */
int plx_registry_growth_join(struct plx_registry *reg, int64_t store, uint64_t instance,
                             const char *path);
/* That path. NOT_FOUND: no volume was being added. */
int plx_registry_growth_path(struct plx_registry *reg, int64_t store, char ret_path[PLX_PATH_MAX]);
int plx_registry_growth_end(struct plx_registry *reg, int64_t store, uint64_t instance);

/* ---- Instances --------------------------------------------------------------------------- */

struct plx_registry_instance {
    uint64_t id; /* random: plx_instance_create() */
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
    uint64_t free_blocks; /* a hint, as of its last release */
    /* How many states its header pages had (plx_extent_info.states), as the registry was told last;
     * 0: not known. PLX_STATES_NEVER: the header is never to be believed again; such an extent is
     * sealed and cannot be taken. */
    uint64_t states;
    /* Returned: the store's collection number (collections.h), for ALLOC-6. A collection that the
     * owner itself has under way is not counted: the owner knows what dies in its own disks. */
    uint64_t collections;
};

/* How many ranges have other rows than those of the extents that were ever used (EXTENTS-2): 0,
 * unless a page of the registry is older than the others. */
int plx_registry_extent_torn_ranges(struct plx_registry *reg, int64_t store, uint64_t *ret_count);

struct plx_registry_extent_counts {
    uint64_t total, unused, system, data, meta; /* extents */
    uint64_t owned, sealed;                     /* among data and meta */
    uint64_t disbelieved;                       /* of the sealed ones: PLX_STATES_NEVER */
};

/* Gives the instance an extent of this type (DATA or META). The registry prefers an unsealed extent
 * of this type that nobody owns and that has free blocks. Otherwise it takes an unused one and sets
 * *ret_fresh: the extent holds nothing. NOSPACE when that would leave fewer than keep_unused unused
 * extents, the reserve for metadata. */
int plx_registry_extent_claim(struct plx_registry *reg, int64_t store, uint64_t instance,
                              enum plx_extent_type type, uint64_t keep_unused,
                              struct plx_registry_extent *ret_extent, bool *ret_fresh);
/* Turns consecutive, never used extents of volume 0 into system extents: as many as one range
 * offers, from `least` to `most`. NOT_FOUND: no range of volume 0 has `least` of them. */
int plx_registry_extent_reserve(struct plx_registry *reg, int64_t store, uint64_t least,
                                uint64_t most, struct plx_registry_range *ret_run);
/* All system extents, ordered by number. */
int plx_registry_extent_system(struct plx_registry *reg, int64_t store,
                               struct plx_registry_extent **ret_list, size_t *ret_count);
/* Seals an extent for good, because its header cannot be believed. It must have no owner (BUSY). It
 * may be a system extent, if no superblock names it. */
int plx_registry_extent_seal(struct plx_registry *reg, int64_t store, uint64_t no);
/* Gives the instance this very extent and unseals it: to free blocks in it, or to adopt it from a
 * dead instance. owner: whom the caller expects to own it, 0: nobody. BUSY when somebody else
 * owns it, or when its header is never to be believed. */
int plx_registry_extent_take(struct plx_registry *reg, int64_t store, uint64_t no, uint64_t owner,
                             uint64_t instance, struct plx_registry_extent *ret_extent);
/* Releases an extent. The caller sets extent->no, its owner and generation as granted, the new
 * sealed, free_blocks and states, and its type, which is UNUSED when it is empty. FENCED when the
 * extent is not this owner's in this generation. */
int plx_registry_extent_release(struct plx_registry *reg, int64_t store,
                                const struct plx_registry_extent *extent);
/* Releases these extents as above and unregisters their owner, in one transaction. */
int plx_registry_instance_leave(struct plx_registry *reg, int64_t store, uint64_t instance,
                                const struct plx_registry_extent *list, size_t count);
/* owner: an instance; 0: extents that nobody owns; PLX_REGISTRY_ANY: all that were ever used. */
int plx_registry_extent_list(struct plx_registry *reg, int64_t store, uint64_t owner,
                             struct plx_registry_extent **ret_list, size_t *ret_count);
int plx_registry_extent_count(struct plx_registry *reg, int64_t store,
                              struct plx_registry_extent_counts *ret_counts);

/* Counts the free blocks in extents that an instance could still claim for data while keep_unused
 * unused extents stay. At most `limit` unused and `limit` used extents are counted. */
int plx_registry_extent_room(struct plx_registry *reg, int64_t store, uint64_t keep_unused,
                             uint64_t limit, uint64_t *ret_blocks);

/* ---- Virtual disks ----------------------------------------------------------------------- */

/* What was made durable last of a VDI's record in the store. */
struct plx_registry_written {
    uint64_t epoch;
    uint64_t state; /* how many states the record had (plx_vdi_info.record_state); 0: not known */
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
    struct plx_registry_written written; /* up to date only while nobody holds the lock */
};

/* A held lock is the proof of the right to change a VDI. Every change compares it with the row. */
struct plx_registry_lock {
    char vdi[PLX_UUID_TEXT];
    uint64_t instance;
    uint64_t epoch;
};

/* Enters a VDI in the lowest free slot below `slots`. If vdi->owner is not 0, the VDI is locked by
 * that instance in epoch 1: if the creator crashes, a takeover finds the unfinished disk. Ignores
 * slot, epoch and deleted; created_ns 0 is now. EXISTS: the name is taken. NOSPACE: no slot. */
int plx_registry_vdi_create(struct plx_registry *reg, const struct plx_registry_vdi *vdi,
                            uint32_t slots, struct plx_registry_vdi *ret_vdi);
/* Live VDIs only. */
int plx_registry_vdi_get(struct plx_registry *reg, int64_t store, const char *name,
                         struct plx_registry_vdi *ret_vdi);
/* Deleted ones, too. */
int plx_registry_vdi_get_by_id(struct plx_registry *reg, const char *id,
                               struct plx_registry_vdi *ret_vdi);
/* VDIs ordered by name, those after the name `after` (NULL: from the start), at most `limit` (0:
 * all). Deleted VDIs may share a name; a list of them ends with the last one of a name, and so may
 * be longer than `limit`. */
int plx_registry_vdi_list(struct plx_registry *reg, int64_t store, bool deleted, const char *after,
                          size_t limit, struct plx_registry_vdi **ret_list, size_t *ret_count);
/* Clones whose origin has no row: live ones, and deleted ones that have clones (HOLDS-9). */
int plx_registry_vdi_strays(struct plx_registry *reg, int64_t store,
                            struct plx_registry_vdi **ret_list, size_t *ret_count);

int plx_registry_vdi_lock(struct plx_registry *reg, const char *id, uint64_t instance,
                          struct plx_registry_lock *ret_lock);
/* written: what closing the disk made durable; NULL: what the registry knows of that stays. */
int plx_registry_vdi_unlock(struct plx_registry *reg, const struct plx_registry_lock *lock,
                            const struct plx_registry_written *written);
/* The same, and notes the states of extents that the holder keeps, which closing the disk also made
 * durable. Only no and states of `extents` are used. */
int plx_registry_vdi_closed(struct plx_registry *reg, const struct plx_registry_lock *lock,
                            const struct plx_registry_written *written,
                            const struct plx_registry_extent *extents, size_t count);
/* The operator accepts an older state of the disk (forget.c): `written` becomes what the registry
 * expects of the VDI's record. Labels of snapshots after `newest` go, since those snapshots are
 * lost. The store's garbage list goes too, since its blocks may be in use again. BUSY: another
 * instance than this one has the VDI locked. */
int plx_registry_vdi_accept(struct plx_registry *reg, const char *id, uint64_t instance,
                            const struct plx_registry_written *written, uint64_t newest);
/* Moves the lock `held` to `instance`, with a raised epoch. The caller has proven that the present
 * holder cannot write any more. FENCED when the lock is not held like that any more. Works on
 * deleted VDIs, too. */
int plx_registry_vdi_takeover(struct plx_registry *reg, const struct plx_registry_lock *held,
                              uint64_t instance, struct plx_registry_lock *ret_lock);
/* The same for all locks of a dead instance, in one transaction. The list has the changed rows. */
int plx_registry_vdis_takeover(struct plx_registry *reg, uint64_t dead, uint64_t instance,
                               struct plx_registry_vdi **ret_list, size_t *ret_count);
/* The VDIs that an instance has locked. */
int plx_registry_locks_of(struct plx_registry *reg, uint64_t instance,
                          struct plx_registry_vdi **ret_list, size_t *ret_count);

int plx_registry_vdi_resize(struct plx_registry *reg, const struct plx_registry_lock *lock,
                            uint64_t size_bytes);
/* EXISTS: another VDI has the name. BUSY: a snapshot is held (plx_registry_hold()). */
int plx_registry_vdi_rename(struct plx_registry *reg, const struct plx_registry_lock *lock,
                            const char *name);
/* Life of a VDI's row: created - live - deleted - purged. Deleting frees the name; the slot stays
 * taken and the lock held, so unlock it as usual. */
int plx_registry_vdi_delete(struct plx_registry *reg, const struct plx_registry_lock *lock);
/* Deletes a VDI that nobody has had since this epoch, in a store in doubt: there nobody can get the
 * lock, neither the caller. BUSY: somebody had it, or the store is not in doubt. */
int plx_registry_vdi_delete_in_doubt(struct plx_registry *reg, const char *id, uint64_t epoch);
/* Removes the row of a deleted VDI and frees its slot, once the store has freed the disk's blocks.
 * BUSY while the VDI is locked or has clones. */
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

/* Adds an audit event for what happens outside this file; the calls above write their own. */
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

/* Enters a hold, which keeps snapshot seq of the VDI with this id from being let go. The hold does
 * not say that the snapshot exists; opening it does. BUSY: some of the VDI's snapshots are being
 * let go just now. */
int plx_registry_hold(struct plx_registry *reg, const char *vdi, uint64_t seq, uint64_t instance,
                      uint64_t *ret_hold);
int plx_registry_release(struct plx_registry *reg, uint64_t hold); /* gone already: no error */
/* By sequence number. */
int plx_registry_hold_list(struct plx_registry *reg, const char *vdi,
                           struct plx_registry_hold **ret_list, size_t *ret_count);

/* A live VDI that descends from another one: a clone, or a clone of a clone. */
struct plx_registry_heir {
    char name[PLX_NAME_MAX + 1];
    uint64_t seq; /* the snapshot of the ancestor that the line of clones began with */
};
int plx_registry_heir_list(struct plx_registry *reg, const char *vdi,
                           struct plx_registry_heir **ret_list, size_t *ret_count);

/* Enters the intent to let snapshots of the VDI go. Returns, ascending, the snapshots that must
 * stay: those that labels name, that clones began with, and that somebody holds. A label in `marks`
 * does not count, since it is to go with its snapshot. Until the intent or the lock ends, nobody
 * else can enter a hold. After a failure the intent may exist: end it. */
int plx_registry_intent_begin(struct plx_registry *reg, const struct plx_registry_lock *lock,
                              const struct plx_thin_mark *marks, size_t mark_count,
                              uint64_t **ret_kept, size_t *ret_count);
/* The same for a VDI that is to be deleted. */
int plx_registry_intent_begin_whole(struct plx_registry *reg, const struct plx_registry_lock *lock);
/* Ends the intent. Called by its holder, when what it began is complete. */
int plx_registry_intent_end(struct plx_registry *reg, const struct plx_registry_lock *lock);
/* The same, but its row stays as a leftover (HOLDS-8). Called by its holder when something is left
 * undone, or by anybody who has proven the holder dead. */
int plx_registry_intent_leave(struct plx_registry *reg, const struct plx_registry_lock *lock);
/* Whether the VDI has a row of an intent, whichever; and removes it, whichever (HOLDS-8). */
int plx_registry_intent_is_left(struct plx_registry *reg, const char *vdi, bool *ret_left);
int plx_registry_intent_clear(struct plx_registry *reg, const struct plx_registry_lock *lock);
/* The lock under which somebody lets snapshots of the VDI go; NOT_FOUND when nobody does. */
int plx_registry_intent_get(struct plx_registry *reg, const char *vdi,
                            struct plx_registry_lock *ret_lock);

/* ---- Rebuilding from a store ------------------------------------------------------------- */

/* Order: plx_registry_store_create(), then instances (known ones are left alone), extents, VDIs,
 * labels. Rows that exist already are replaced. An extent that is not listed, but has a lower
 * number than a listed one of its range, becomes unused. A call that fails may have imported a
 * part: repeat it. */
int plx_registry_import_instances(struct plx_registry *reg,
                                  const struct plx_registry_instance *list, size_t count);
int plx_registry_import_extents(struct plx_registry *reg, int64_t store,
                                const struct plx_registry_extent *list, size_t count);
int plx_registry_import_vdis(struct plx_registry *reg, const struct plx_registry_vdi *list,
                             size_t count);
int plx_registry_import_labels(struct plx_registry *reg, const char *vdi,
                               const struct plx_registry_label *list, size_t count);

#endif
