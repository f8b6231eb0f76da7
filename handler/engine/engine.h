/* engine.h - the engine's public interface: stores and virtual disks. At its end it brings in what
 * concerns history (engine_history.h), checking (engine_check.h) and care (engine_care.h).
 *
 * Caveats first:
 * - One store object with all its open VDIs is one loop: all calls come from one thread at a time
 *   (the handler holds a mutex around them). Nothing here starts a thread.
 * - Two kinds of calls. Requests (plx_vdi_submit) are asynchronous: they return at once and
 *   complete from plx_store_tick(). All others are synchronous: they may take as long as their
 *   I/O takes, and run the loop while they wait, so that other VDIs go on. A synchronous call
 *   must never be made from a completion callback or an environment function.
 * - A store is opened by an instance (one process). Each instance allocates only in extents it
 *   owns, each VDI has one writing instance; who owns what is the registry's business
 *   (attach.h); the engine writes it down on the store as well, so that the registry can
 *   be rebuilt (INV-6).
 * - Errors are 0 or a negative code (error.def). `fault`, where a function takes one, receives a
 *   sentence for people; it may be NULL.
 * - Sizes are bytes, virtual disk offsets are bytes and multiples of the VDI's sector size.
 *
 * The algorithms: radix maps, copy-on-write and snapshots in the request stream are those of
 * "Parallax: Virtual Disks for Virtual Machines" (sections 3 to 5); snapshots as log records with
 * key frames, and data checksums in the entries, are ours (handler/README.md).
 */
#ifndef PLX_ENGINE_H
#define PLX_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "engine/base/device.h"
#include "engine/base/env.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/base/witness.h"

#define PLX_NAME_MAX 255 /* bytes of a VDI name */
#define PLX_STORE_NAME_MAX 63
#define PLX_LABEL_MAX 127
#define PLX_VOLUMES_MAX 64
#define PLX_REGISTRY_SPANS_MAX 16
#define PLX_VDI_SIZE_MAX (256ull << 40)
#define PLX_VDI_SIZE_MIN 4096ull
#define PLX_REWINDS_MAX 60u /* of one disk, that history has not moved past */

struct plx_uuid {
    uint8_t b[16];
};

/* ---- Stores ---------------------------------------------------------------------------- */

struct plx_format_options {
    char name[PLX_STORE_NAME_MAX + 1];
    uint64_t extent_bytes;  /* 0: chosen from the size; a power of two from 1 MiB to 2 GiB */
    uint64_t segment_bytes; /* log segment, 0: 1 MiB or less in small extents */
    uint32_t vdi_slots;     /* for so many disks a volume has room; 0: for all that fit */
    bool registry;          /* with room for the registry on volume 0 */
    bool force;             /* overwrite what the volume holds */
};

struct plx_volume_info {
    struct plx_uuid id;
    char name[256];          /* the device's name */
    uint64_t first_extent;   /* its system extent */
    uint64_t extents;        /* all of its */
    uint64_t system_extents; /* so many of the first hold the store's own structures */
};

/* Extents that lie one after the other on a volume. */
struct plx_extent_range {
    unsigned volume;
    uint64_t first, extents;
    uint64_t at; /* extents before them on the volume; 0: the first one is the system extent */
};

struct plx_store_info {
    struct plx_uuid id;       /* what the store's structures carry */
    struct plx_uuid identity; /* what people see */
    char name[PLX_STORE_NAME_MAX + 1];
    uint32_t format_version;
    uint32_t block_size; /* 4096 */
    uint64_t extent_blocks, segment_blocks;
    uint64_t extents;   /* all, system extents included */
    uint32_t vdi_slots; /* how many VDIs fit */
    uint64_t created_ns;
    unsigned volumes;
    struct plx_volume_info volume[PLX_VOLUMES_MAX];
};

/* Writes a new, empty store over the devices. Refuses (EXISTS) devices that hold data, unless
 * forced; nothing is changed then. ret_info may be NULL. */
int plx_store_format(struct plx_device **devices, unsigned count,
                     const struct plx_format_options *options, struct plx_env *env,
                     struct plx_store_info *ret_info, struct plx_fault *fault);

/* Reads one volume's superblock, to learn which store it belongs to. */
struct plx_superblock_info {
    struct plx_uuid store, volume, identity;
    char store_name[PLX_STORE_NAME_MAX + 1];
    unsigned volume_index, volumes;
    uint64_t volume_bytes;
    /* Of volume 0: where the registry lies, in bytes of the device. */
    struct plx_registry_span {
        uint64_t offset, bytes;
    } registry[PLX_REGISTRY_SPANS_MAX];
    unsigned registry_spans;
    uint64_t unknown; /* features that this program does not know: it may only read */
};
int plx_superblock_probe(struct plx_device *device, struct plx_superblock_info *ret_info,
                         struct plx_fault *fault);
/* Writes the superblocks of a volume again from the spare one; dry_run: only looks. The caller has
 * the device for itself, and the operator's word that nobody else uses it. EXISTS: they can be
 * read. NOT_FOUND: the spare one is lost, too. What it repeats may be older than what was lost, if
 * that was being written just then; whoever knows the registry sees that (VOLUME-5). */
int plx_superblock_restore(struct plx_device *device, bool dry_run,
                           struct plx_superblock_info *ret_info, struct plx_fault *fault);
/* UNSUPPORTED: there are such features. For everything that writes to the volume. */
int plx_superblock_check_known(const struct plx_device *device, uint64_t unknown,
                               struct plx_fault *fault);

struct plx_store_options {
    uint64_t instance; /* owner written into extents and VDI records; 0: read only */
    struct plx_uuid host;
    uint64_t cache_bytes;        /* node cache, 0: 64 MiB; at least 32 nodes */
    uint64_t keyframe_mappings;  /* a key frame is due after so many changed blocks; 0: 65536 */
    uint64_t keyframe_log_bytes; /* or so many bytes of log; 0: 64 MiB */
    unsigned ops_per_vdi;        /* requests in progress at once per VDI, 0: 128 */
    bool mixed; /* volumes of several identities: what plx_store_set_identity() left, cut off */
    /* Ranges of extents that the store is known to have had, by their numbers (VOLUME-5); their
     * `at` is not looked at. REGISTRY: they cannot be true. */
    const struct plx_extent_range *known;
    unsigned known_count;
};

/* Takes the devices over (closes them with the store) only on success. All volumes of the store
 * must be given, in any order. */
int plx_store_open(struct plx_device **devices, unsigned count,
                   const struct plx_store_options *options, struct plx_env *env,
                   struct plx_store **ret_store, struct plx_fault *fault);
/* Another has taken the store over: from now on every write and flush fails with FENCED, for good.
 */
void plx_store_fence(struct plx_store *store);
/* All VDIs are closed before. Writes the allocation bitmaps of owned extents. */
int plx_store_close(struct plx_store *store);

void plx_store_get_info(const struct plx_store *store, struct plx_store_info *ret_info);
/* Makes durable what others have written, too: an instance that died may have left it in a cache.
 */
int plx_store_flush_others(struct plx_store *store);
/* Whether the extent holds the store's own structures or its registry. */
bool plx_store_extent_is_system(const struct plx_store *store, uint64_t number);
/* The first volume whose superblock says less than is known: the device lost a write that it had
 * acknowledged. The next plx_store_grow() or the like writes it again. NULL: there is none. */
const char *plx_store_behind(const struct plx_store *store);
/* The index-th range of extents, by their numbers; false past the end. */
bool plx_store_range(const struct plx_store *store, unsigned index,
                     struct plx_extent_range *ret_range);

/* ---- Growing (grow.c) ---- */

struct plx_grow {
    bool dry_run; /* only tells what would be */
    bool force;   /* add: overwrite what the volume holds */
};

/* Whether the registry in a store has as much room as rows of all extents may need, and if not, why
 * it gets no more. */
enum plx_registry_stays {
    PLX_REGISTRY_FITS,
    PLX_REGISTRY_NO_EXTENTS, /* volume 0 is too small for it */
    PLX_REGISTRY_NO_SPANS,   /* it got longer as often as it can */
};

#define PLX_GROWN_SEALED_MAX 3

struct plx_grown {
    uint64_t extents;                       /* of the store, afterwards */
    uint64_t added;                         /* of them, by this call */
    unsigned volume;                        /* add: its index */
    enum plx_registry_stays registry_stays; /* attach.h: of its registry, afterwards */
    /* attach.h: extents that were to be its registry's, were never used, and have headers that
     * cannot be believed; nobody uses them from now on. Also after an error. */
    unsigned sealed_count;
    uint64_t sealed[PLX_GROWN_SEALED_MAX];
    bool restored; /* a superblock that was behind (plx_store_behind()) */
};

/* Takes into use what volumes have become larger by, in whole extents, and finishes what a crash
 * has left of an earlier call of these two. At most one process at a time does either, and has
 * opened the store since it was allowed to; others learn of it by plx_store_volumes_changed(). No
 * disk is open here; the loop stands still. */
int plx_store_grow(struct plx_store *store, const struct plx_grow *grow,
                   struct plx_grown *ret_grown, struct plx_fault *fault);
/* A further volume. Takes the device over only on success, and if something was added. EXISTS: it
 * holds data (not forced); what an interrupted call left is none. One that is a volume of this
 * store already is no error: nothing is added. */
int plx_store_add_volume(struct plx_store *store, struct plx_device *device,
                         const struct plx_grow *grow, struct plx_grown *ret_grown,
                         struct plx_fault *fault);
/* The store may have common blocks from now on, and is refused by those who do not know what they
 * are. Under the same conditions. */
int plx_store_allow_common(struct plx_store *store, struct plx_fault *fault);
/* What people tell the store by is to be another: for a copy of a store, which is used beside it.
 * The store is open for writing, none of its VDIs is, and nobody else has it. */
int plx_store_set_identity(struct plx_store *store, const struct plx_uuid *identity,
                           struct plx_fault *fault);
/* Whether it may, as far as this instance knows. */
bool plx_store_allows_common(const struct plx_store *store);
/* How many extents more the registry in the store should have for as many as the store has now: at
 * least and at most; both 0: none. */
void plx_store_registry_due(const struct plx_store *store, uint64_t *ret_least, uint64_t *ret_most);
/* After all that could be done about that was done. */
enum plx_registry_stays plx_store_registry_stays(const struct plx_store *store);
/* These extents, which follow each other on volume 0, are the registry's from now on, too, behind
 * those that it has. They were never used, and nobody can get them; nobody uses the registry
 * meanwhile (registry/spans.c). Else under the same conditions. */
int plx_store_add_registry_span(struct plx_store *store, uint64_t first, uint64_t extents,
                                struct plx_fault *fault);
/* Of what the two return: nothing was written. */
static inline bool plx_grow_refused(int error)
{
    return error == PLX_ERR_INVALID || error == PLX_ERR_UNSUPPORTED || error == PLX_ERR_EXISTS;
}
/* Another process has done one of the above. All volumes are given, opened anew, in any order, and
 * taken over whatever is returned. Never waits for the loop: may be called from inside a turn.
 * Writes that wait for room try again. */
int plx_store_volumes_changed(struct plx_store *store, struct plx_device **devices, unsigned count,
                              struct plx_fault *fault);

/* An extent that nobody owned, as who grants it knows it. */
struct plx_grant {
    uint64_t extent;
    bool fresh;      /* it holds nothing: its header is made anew */
    uint64_t states; /* plx_extent_info.states when it was given up last; 0: not known */
};
#define PLX_STATES_NEVER                                                                           \
    ((uint64_t)INT64_MAX) /* of an extent that is never to be believed again                       \
                           */
/* The answer to env->extent_wanted: an extent, or a negative error code (NOSPACE) and NULL. A
 * header that contradicts the grant is not believed: env->extent_refused. */
void plx_store_extent_granted(struct plx_store *store, enum plx_extent_type type, int error,
                              const struct plx_grant *grant);
/* Adopts an extent of a dead instance; synchronous. It is not allocated from before
 * plx_store_extents_adopted(), which is called when the logs of all VDIs that dead instances held
 * have been marked (plx_vdi_mark) and writes the adopted headers and bitmaps. */
int plx_store_extent_adopt(struct plx_store *store, uint64_t extent, struct plx_fault *fault);
int plx_store_extents_adopted(struct plx_store *store, struct plx_fault *fault);
/* The store's number of collections, as the registry had it when it gave an extent: odd while one
 * is under way in another instance. Before plx_store_extent_granted() and _adopt() of that extent;
 * up to the first call it counts as 0. */
void plx_store_set_collections(struct plx_store *store, uint64_t collections);
struct plx_extent_info {
    uint64_t number;
    enum plx_extent_type type;
    uint64_t owner; /* instance, 0: nobody */
    struct plx_uuid owner_host;
    uint64_t generation;
    uint64_t used_blocks, blocks;
    uint64_t header_blocks; /* always in use */
    bool sealed;            /* nothing may be allocated in it, however free */
    /* How many states its pages have had, in all, that are durable; a mirror counts as what it
     * mirrors. It never falls: one that did lost a write that was acknowledged. */
    uint64_t states;
    bool settled; /* all that was read of it is known to be durable */
};
/* Seals the extents adopted since the last plx_store_extents_adopted(): what a damaged log would
 * have named may lie in their free blocks. */
void plx_store_extents_seal(struct plx_store *store);
bool plx_store_extent_is_owned(const struct plx_store *store, uint64_t extent);
/* Owned extents of this instance: index from 0; NOT_FOUND past the end. */
int plx_store_extent_owned(struct plx_store *store, size_t index, struct plx_extent_info *ret_info);
/* Owned extents whose states have risen since they came, or since this call named them last. NULL,
 * to be freed else: none, or no memory. */
struct plx_extent_info *plx_store_extents_risen(struct plx_store *store, size_t *ret_count);
/* Before all of them are given up, one by one: they share a flush then. */
void plx_store_extents_leave(struct plx_store *store);
/* Gives up an owned extent; nothing may be allocated in it by this instance any more. */
int plx_store_extent_release(struct plx_store *store, uint64_t extent,
                             struct plx_extent_info *ret_info, struct plx_fault *fault);
/* Frees what a collection found in an extent: one bit a block. The extent is this instance's or was
 * given to it just for this; then it comes back in *ret_info as nobody's. Synchronous. */
int plx_store_extent_sweep(struct plx_store *store, uint64_t extent, const uint64_t *garbage,
                           struct plx_extent_info *ret_info, uint64_t *ret_swept,
                           struct plx_fault *fault);
/* Reads an extent's header from the store, whoever owns it. */
int plx_store_extent_read(struct plx_store *store, uint64_t extent,
                          struct plx_extent_info *ret_info, struct plx_fault *fault);

/* One turn of the loop: takes completions, runs what is ready, forms log batches, submits.
 * Never blocks. Returns true while a further turn has work at once. */
bool plx_store_tick(struct plx_store *store);
/* Blocks until a device has completed something, or returns at once when nothing is under way. */
void plx_store_wait(struct plx_store *store);
/* The device of a volume, to wait for its completions; NULL: the store has no such volume. It stays
 * until the store is closed. */
struct plx_device *plx_store_device(const struct plx_store *store, unsigned volume);
/* Waits until extents asked for have come and freed blocks have found theirs. Before the last
 * extents are released. */
void plx_store_settle(struct plx_store *store);
/* When a turn is to be made although nothing has happened: on the monotonic clock; UINT64_MAX:
 * never. */
uint64_t plx_store_due_ns(const struct plx_store *store);
/* Whether requests or background work are under way. */
bool plx_store_busy(const struct plx_store *store);
/* I/Os that have not completed. Each ends a wait() of its device, or a poll() takes it. */
unsigned plx_store_under_way(const struct plx_store *store);

/* ---- Virtual disks ---------------------------------------------------------------------- */

enum plx_overwrite {
    PLX_OVERWRITE_IN_PLACE,
    PLX_OVERWRITE_COPY,
};

struct plx_vdi_create_options {
    char name[PLX_NAME_MAX + 1];
    struct plx_uuid id;   /* all zero: made here */
    uint64_t size_bytes;  /* multiple of sector_size */
    uint32_t sector_size; /* 512 or 4096 */
    enum plx_overwrite overwrite;
    uint32_t slot;
    uint64_t created_ns; /* 0: now */
    /* A clone: the snapshot it starts from. */
    bool is_clone;
    uint32_t parent_slot;
    uint64_t parent_seq;
};

enum plx_vdi_state {
    PLX_VDI_FREE = 0, /* the slot was never used */
    PLX_VDI_LIVE = 1,
    PLX_VDI_DELETED = 2,
};

/* Continuous protection: the snapshots that an open disk takes by itself. In all modes nothing is
 * taken while nothing changes. */
enum plx_protection_mode {
    PLX_PROTECT_OFF,
    PLX_PROTECT_INTERVAL, /* when the interval has passed since the one before */
    PLX_PROTECT_BATCH,    /* after each batch of the log: what is acknowledged at once */
    PLX_PROTECT_WRITE,    /* after each write or unmap (of 1 MiB or 128 MiB at most) */
};

#define PLX_INTERVAL_MIN_NS 1000000ull
#define PLX_INTERVAL_MAX_NS (86400ull * 1000000000u)
#define PLX_TIERS_MAX 8
#define PLX_KEEP_MAX_NS (100ull * 365 * 86400 * 1000000000u)

/* What is kept of the snapshots: one every so often, for so long. */
struct plx_tier {
    uint64_t every_ns; /* 0: all of them; in the first tier only */
    uint64_t keep_ns;
};

struct plx_protection {
    enum plx_protection_mode mode;
    uint64_t interval_ns;                /* INTERVAL only, else 0 */
    uint32_t tiers;                      /* 0: everything is kept */
    struct plx_tier tier[PLX_TIERS_MAX]; /* each coarser and longer than the one before */
};

/* 0, or INVALID and why. */
int plx_protection_check(const struct plx_protection *protection, struct plx_fault *fault);

struct plx_vdi_info {
    struct plx_uuid id, parent;
    char name[PLX_NAME_MAX + 1];
    uint32_t slot;
    enum plx_vdi_state state;
    uint64_t size_bytes;
    uint32_t sector_size;
    enum plx_overwrite overwrite;
    uint64_t owner; /* instance, 0: nobody */
    struct plx_uuid owner_host;
    uint64_t epoch;
    uint64_t record_state; /* states its record has had; a mirror counts as what it mirrors */
    uint64_t created_ns;
    uint64_t parent_seq; /* 0: no parent */
    uint64_t snapshots;  /* newest snapshot's sequence number in the key frame */
    uint64_t forgotten;  /* snapshots up to this one are gone */
    uint64_t log_first_segment, log_segments; /* retained log, in segments */
    unsigned levels;
    struct plx_protection protection;
    unsigned rewinds; /* how often it went back to an older instant */
    /* What of these went to is held until all snapshots before are let go; at most so many. */
    unsigned rewinds_held;
    uint64_t rewound_to[PLX_REWINDS_MAX]; /* these snapshots */
    /* Blocks that hold data, as of the newest key frame, which is half a minute old at most while
     * the disk is open. PLX_MAPPED_UNKNOWN: it was never counted. */
    uint64_t mapped_blocks;
    /* Of these, those whose checksum is known: what is read of them is right or is an error. The
     * others were overwritten in place, and nothing says what they should hold. Of the same key
     * frame; PLX_MAPPED_UNKNOWN, too. And when all that was quiet had one last (vouch.c); 0: there
     * was no such pass. */
    uint64_t vouched_blocks, vouched_ns;
};

#define PLX_MAPPED_UNKNOWN UINT64_MAX

/* Writes the record of a new VDI into its slot (chosen by the registry). A clone shares every
 * block of the parent's snapshot; only a key frame at that instant is written. */
int plx_vdi_create(struct plx_store *store, const struct plx_vdi_create_options *options,
                   struct plx_vdi_info *ret_info, struct plx_fault *fault);
/* Reads a record. NOT_FOUND for a slot that was never used. */
int plx_vdi_read_info(struct plx_store *store, uint32_t slot, struct plx_vdi_info *ret_info,
                      struct plx_fault *fault);
/* Going over all slots: most were never used, and are read many at a time. Begin with a scan of
 * zeroes at slot 0. */
struct plx_slot_scan {
    uint32_t first, end; /* the slots that were looked at last */
    uint64_t used;       /* a bit each */
};
/* Goes on from *slot to the next that was used, or cannot be read. False: there are no more. */
bool plx_vdi_next_slot(struct plx_store *store, struct plx_slot_scan *scan, uint32_t *slot);
/* Marks a closed VDI deleted; its space comes back through garbage collection. owner_dead: the
 * instance that the record names is proven dead. */
int plx_vdi_delete(struct plx_store *store, uint32_t slot, bool owner_dead,
                   struct plx_fault *fault);
/* Makes a slot whose record is damaged one that was never used; what it named becomes garbage. One
 * without a live record stays as it is, and so does one beyond the table. EXISTS: it holds one that
 * can be read. */
int plx_vdi_give_up(struct plx_store *store, uint32_t slot, struct plx_fault *fault);

/* Marks the blocks that a VDI's log names as allocated in the owned extents. After a crash every
 * VDI that the dead instance held is marked before anything is allocated from its extents. */
int plx_vdi_mark(struct plx_store *store, uint32_t slot, struct plx_fault *fault);

struct plx_vdi;

struct plx_vdi_open_options {
    uint32_t slot;
    uint64_t epoch;  /* granted by the registry; greater than the record's */
    bool take_over;  /* the record's owner is proven dead: replace it */
    bool write_back; /* acknowledge before the device's cache is flushed */
    int overwrite;   /* enum plx_overwrite, or -1: the VDI's own property */
    /* What was not overwritten in place for so long gets its checksum back, while the disk has
     * nothing else to do (vouch.c). 0: never. */
    uint64_t quiet_ns;
    /* What was kept of plx_vdi_look_at_clock(); NULL: nothing. */
    const struct plx_witness *witness;
};

/* Opens for writing: replays the log from the last key frame (crash recovery included), then
 * takes ownership in the record. */
int plx_vdi_open(struct plx_store *store, const struct plx_vdi_open_options *options,
                 struct plx_vdi **ret_vdi, struct plx_fault *fault);
/* Opens an instant read-only. Needs no lock; the VDI may be open elsewhere. seq 0: the newest
 * state that is durable on the store. */
int plx_snapshot_open(struct plx_store *store, uint32_t slot, uint64_t seq,
                      struct plx_vdi **ret_vdi, struct plx_fault *fault);
/* Completes what is under way, writes a key frame, gives up ownership. The object is gone
 * afterwards, whatever is returned; on failure the record still names this instance and the next
 * open recovers. */
int plx_vdi_close(struct plx_vdi *vdi);
/* Begins that: plx_vdi_close() is all that may follow. Disks that are closed together share their
 * flushes when each has begun before the first one is waited for. Synchronous up to there. */
void plx_vdi_begin_close(struct plx_vdi *vdi);
/* Nobody uses it for a while (until plx_vdi_use): completes what is under way and makes durable
 * what was acknowledged. On failure it is to be closed. Synchronous. */
int plx_vdi_rest(struct plx_vdi *vdi);
/* Closes without writing anything, as a crash would. */
void plx_vdi_abandon(struct plx_vdi *vdi);

/* A snapshot of which is to be told whether it goes. Its label, if one is given, does not keep it
 * and goes with it: that is plx_attach_thin()'s affair. */
struct plx_thin_mark {
    uint64_t seq;
    const char *label; /* NULL: none */
    bool gone;         /* set, never cleared */
};

/* Which snapshots go. */
struct plx_thin {
    uint64_t after, upto; /* of those with after < seq <= upto, ... */
    uint64_t before_ns;   /* ... taken before this time (0: whenever), ... */
    uint64_t every_ns;    /* ... the first of each such period of the clock stays (0: none) ... */
    const uint64_t *kept; /* ... and these (labelled, cloned, read elsewhere); ascending */
    size_t kept_count;
    bool dry_run; /* only tells what would be; a key frame may be written for it */
    /* With dry_run: only what goes because a rewind is all that holds it, as if all else had gone.
     */
    bool rewinds_only;
    struct plx_thin_mark *marks;
    size_t mark_count;
    /* What would cost more than it is worth waits until more has gathered: some MiB of log. Else
     * all of them go that can. Key frames as far apart stay (0: as replaying asks for). */
    bool thrifty;
    uint64_t keyframes_ns;
};

struct plx_thinned {
    uint64_t upto;                /* how far it came: go on behind it until that does not grow */
    uint64_t snapshots;           /* gone */
    uint64_t blocks, meta_blocks; /* free: data; nodes and log, less what was written anew */
    uint64_t oldest;              /* snapshots up to this one are gone now */
    bool waits;                   /* thrifty: too little has gathered behind `upto` */
    bool through;                 /* thrifty: nothing more is to be found by asking again */
};

/* Lets snapshots go: what only they used is free afterwards. Does a slice of the log at a time.
 * With before_ns in whole stretches between key frames, so that some are left for the next time.
 * Where the log is too tight to be written anew without them they stay until it begins behind them.
 * What only snapshots from before a rewind have, which all go, is left to a collection.
 * The newest snapshot always stays, and so do instants that are open here. Synchronous, the disk
 * goes on meanwhile; it must not be closed. BUSY: some of them came into use, nothing changed.
 * CLOCK: with before_ns, while the wall clock is in doubt (witness.h). */
int plx_vdi_thin(struct plx_vdi *vdi, const struct plx_thin *thin, struct plx_thinned *ret_thinned,
                 struct plx_fault *fault);
/* Whether it would find nothing but that too little has gathered (thrifty). */
bool plx_vdi_thin_waits(const struct plx_vdi *vdi, const struct plx_thin *thin);
/* History has given way: writes that wait for room (env.h, room_wanted) try again. made false: no
 * more of it can go, they fail. */
void plx_store_room_made(struct plx_store *store, bool made);
void plx_vdi_get_info(const struct plx_vdi *vdi, struct plx_vdi_info *ret_info);
bool plx_vdi_is_snapshot(const struct plx_vdi *vdi);
void plx_vdi_set_write_back(struct plx_vdi *vdi, bool write_back);
/* As if it had been opened with these for how it is written: write_back, overwrite, quiet_ns. Of
 * one that rests, or was not used yet. false: it has to be closed and opened for that, because it
 * has stopped or goes by another quiet_ns. */
bool plx_vdi_use(struct plx_vdi *vdi, const struct plx_vdi_open_options *options);
/* Written into the record with a key frame: it holds until it is set again, wherever the disk is
 * open. Turning it on, or to another mode, takes a snapshot. Synchronous. */
int plx_vdi_set_protection(struct plx_vdi *vdi, const struct plx_protection *protection,
                           struct plx_fault *fault);
/* The same, but the record keeps what it has: who tries one, and dies, leaves nothing behind. It
 * ends with the next of either, which is to come before the disk is closed. */
int plx_vdi_try_protection(struct plx_vdi *vdi, const struct plx_protection *protection,
                           struct plx_fault *fault);
/* Looks at the clocks, and tells operators when that changes what is believed. The witness is to be
 * kept, so that the next who opens the disk knows what this one knew. */
struct plx_vdi_clock {
    struct plx_clocks now;
    struct plx_history_ends ends;
    struct plx_witness witness;
};
void plx_vdi_look_at_clock(struct plx_vdi *vdi, struct plx_vdi_clock *ret_clock);
/* The operator's word: the wall clock is right as it is now. */
void plx_vdi_resume(struct plx_vdi *vdi, struct plx_vdi_clock *ret_clock);
/* 0, or PLX_ERR_STICKY and why. */
int plx_vdi_health(const struct plx_vdi *vdi, struct plx_fault *ret_fault);

enum plx_request_op {
    PLX_READ,
    PLX_WRITE,
    PLX_UNMAP,
    PLX_FLUSH,
    PLX_COMPARE_WRITE, /* iov: the bytes to compare with, then as many to write */
    PLX_SNAPSHOT,      /* seq and time_ns come back */
    PLX_LABEL,         /* label and seq; remove: takes it away again */
    PLX_RESIZE,        /* length is the new size in bytes; growing only */
    PLX_KEYFRAME,      /* writes a key frame now */
    PLX_MOVE,          /* blocks that lie scattered are brought together (struct plx_move) */
    PLX_SHARE,         /* a block becomes common, or another name of one (struct plx_share) */
    PLX_VOUCH,         /* the engine's own (vouch.c) */
};

#define PLX_COMPARE_MAX (64u << 10) /* bytes of one COMPARE_WRITE */

/* A MOVE: offset and length are whole blocks, the only iovec is memory to work with. It goes by
 * aligned windows of PLX_MOVE_BUFFER bytes, or a quarter of an extent. Where the blocks of one lie
 * in enough runs that this is worth it (move.c), they get new, adjacent places, with the contents
 * that they have; writes to them wait meanwhile. Blocks that a snapshot or a clone sees stay where
 * they are. The old places are free after the next key frame. NOSPACE: there is no run of free
 * blocks long enough, or only such as should be left to writes. CORRUPT, IO_READ: a block could not
 * be read, and its window stays. Whatever is returned, all up to `upto` has been dealt with. */
#define PLX_MOVE_BUFFER (1u << 20)
struct plx_move {
    uint64_t windows; /* looks at so many at most, ... */
    uint64_t blocks;  /* and ends with the one in which so many have been moved; 0: any number */
    bool dry_run;     /* only counts, as if everything went well */
    uint64_t upto;    /* offset in bytes: where to go on */
    /* These grow. Runs are counted within windows. */
    uint64_t mapped, shared, moved; /* blocks */
    uint64_t runs_before, runs_after;
};

/* A SHARE: offset and length are one block, the only iovec is memory to work with. Without a common
 * block it makes one: a copy, which is mapped instead and may be mapped by others, too. With one,
 * the two are compared byte by byte, and if they are equal that one is mapped instead. Writes to
 * the block wait meanwhile; contents never change. It has happened durably when done says so.
 * Between plx_share_begin() and plx_share_end(). NOSPACE: there is no free block but such as should
 * be left to writes, or a write to this one waits for room. */
#define PLX_SHARE_BUFFER (2u * 4096)
enum plx_share_result {
    PLX_SHARE_ABSENT,  /* nothing is mapped there */
    PLX_SHARE_ALREADY, /* it is mapped to a common block, if one was given to that one */
    PLX_SHARE_MADE,
    PLX_SHARE_JOINED,
    PLX_SHARE_DIFFERS,
};
struct plx_share {
    uint64_t common; /* 0: make one; ALREADY, MADE: says which */
    enum plx_share_result result;
};

/* Owned by the caller; untouched between plx_vdi_submit and done. done is called exactly once,
 * from plx_store_tick() or from within plx_vdi_submit(). */
struct plx_request {
    enum plx_request_op op;
    bool fua; /* durable before done, even with write_back */
    uint64_t offset, length;
    struct iovec *iov; /* not changed */
    int iovcnt;
    uint64_t seq, time_ns;
    char label[PLX_LABEL_MAX + 1];
    bool remove;  /* LABEL */
    bool patient; /* SNAPSHOT: may share the I/O of what comes next; protection's own */
    int result;
    uint64_t miscompare_offset;
    struct plx_move *move;
    struct plx_share *share;
    struct plx_fault fault; /* where and what, when result says CORRUPT or IO */
    void (*done)(struct plx_request *request);
    void *owner;
    /* The engine's while submitted. */
    enum plx_urgency { PLX_IN_TURN, PLX_AHEAD, PLX_OWN } urgency;
    struct plx_request *next;
    uint64_t started_ns;
};

void plx_vdi_submit(struct plx_vdi *vdi, struct plx_request *request);
/* Ahead of those that wait for their turn: for who waits for it while others may need him, as
 * somebody who makes room does (REQUEST-1). */
void plx_vdi_submit_ahead(struct plx_vdi *vdi, struct plx_request *request);
/* Submits, ahead of requests that wait for their turn, and runs the loop until done. Returns the
 * result. */
int plx_vdi_run(struct plx_vdi *vdi, struct plx_request *request);
/* Addresses of common blocks hold from here to the end, in which no SHARE is under way any more: no
 * collection of the store is, here or, which is the caller's duty, in another instance. BUSY; or
 * UNSUPPORTED: plx_store_allow_common() comes first. */
int plx_share_begin(struct plx_store *store, struct plx_fault *fault);
void plx_share_end(struct plx_store *store);

/* ---- Counters -------------------------------------------------------------------------------- */

#define PLX_HISTOGRAM_BUCKETS 40 /* bucket i counts latencies in [2^i, 2^(i+1)) ns */

struct plx_counters {
    uint64_t device_reads[PLX_KINDS], device_writes[PLX_KINDS];
    uint64_t device_read_bytes[PLX_KINDS], device_write_bytes[PLX_KINDS];
    uint64_t device_flushes;
    uint64_t reads, writes, unmaps, flushes, snapshots;
    /* Of the snapshots those that protection took; when one was due, but the one before under way;
     * and how many were taken a second, lately. */
    uint64_t snapshots_automatic, snapshots_skipped, snapshot_rate;
    uint64_t snapshot_bytes; /* of the store's logs that would not be there without them */
    uint64_t read_bytes, write_bytes, unmap_bytes;
    uint64_t blocks_in_place, blocks_new, blocks_zero;
    uint64_t write_path_node_reads; /* metadata reads that a write waited for */
    uint64_t batches, batch_records, batch_bytes;
    uint64_t voids;
    uint64_t blocks_vouched; /* that got their checksums back */
    uint64_t keyframes, keyframe_nodes;
    uint64_t cache_hits, cache_misses;
    uint64_t blocks_freed, blocks_foreign; /* foreign: in others' extents, left for the collector */
    uint64_t blocks_collected;
    uint64_t registry_calls_on_data_path; /* writes that waited for one: every extent was full */
    uint64_t snapshot_latency[PLX_HISTOGRAM_BUCKETS];
    uint64_t read_latency[PLX_HISTOGRAM_BUCKETS], write_latency[PLX_HISTOGRAM_BUCKETS];
    uint64_t data_free_blocks, meta_free_blocks; /* in owned extents, now */
    uint64_t recovery_blocks; /* of meta_free_blocks: left to recovering what is open here */
};
void plx_store_counters(const struct plx_store *store, struct plx_counters *ret_counters);
void plx_vdi_counters(const struct plx_vdi *vdi, struct plx_counters *ret_counters);
/* name/value pairs for printing: index from 0, false past the end. Scalars only. disk: they are a
 * virtual disk's, so without those that only a store counts. */
bool plx_counter_at(const struct plx_counters *counters, unsigned index, bool disk,
                    const char **ret_name, uint64_t *ret_value);

/* ---- Helpers -------------------------------------------------------------------------------- */

void plx_uuid_text(const struct plx_uuid *id, char ret_text[37]);
bool plx_uuid_parse(const char *text, struct plx_uuid *ret_id);
bool plx_uuid_is_zero(const struct plx_uuid *id);
bool plx_uuid_equal(const struct plx_uuid *a, const struct plx_uuid *b);
/* What people tell a VDI of this store by: its id, or, in a copy that was given an identity of its
 * own (plx_store_set_identity), one made of both: no two disks that differ have the same. */
struct plx_uuid plx_uuid_shown(const struct plx_uuid *store, const struct plx_uuid *identity,
                               const struct plx_uuid *vdi);

#include "engine/engine_care.h"
#include "engine/engine_check.h"
#include "engine/engine_history.h"

#endif
