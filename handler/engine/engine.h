/* engine.h - the engine's public interface: stores and virtual disks (VDIs). At its end it includes
 * engine_history.h (snapshots, but for plx_vdi_thin()), engine_check.h (the checker) and
 * engine_care.h (garbage, space).
 *
 * - Order of calls: plx_store_open(), plx_vdi_open(), plx_vdi_submit() and turns of the loop
 *   (plx_store_tick(), plx_store_wait()), plx_vdi_close(), the release of extents,
 *   plx_store_close().
 * - Threads: a store with all its open VDIs is one loop, and one thread at a time makes all calls
 *   of it (the handler holds a mutex). The engine starts no thread.
 * - Requests (plx_vdi_submit()) are asynchronous: they return at once and complete in a turn of the
 *   loop. All other calls are synchronous: they take as long as their I/O and run the loop
 *   meanwhile, so that other VDIs go on. Never make one from a completion callback or a function of
 *   env.h.
 * - Ownership: an instance is one opening of a store by a process. It allocates only in extents it
 *   owns, and each VDI has one writing instance. The registry decides who owns what (attach.h). The
 *   engine also writes it on the store, so that the registry can be rebuilt.
 * - Errors are 0 or a negative code (error.def). `fault` receives a sentence for people; it may be
 *   NULL.
 * - Sizes and offsets are in bytes; a VDI's offsets are multiples of its sector size.
 *
 * Radix maps, copy-on-write and snapshots in the request stream come from "Parallax: Virtual Disks
 * for Virtual Machines" (sections 3 to 5). A snapshot as a log record with key frames, which are
 * the checkpoints of a disk's map, and data checksums in the entries are ours (handler/README.md).
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
#include "engine/base/identity.h"
#include "engine/base/units.h"
#include "engine/base/witness.h"

#define PLX_NAME_MAX 255 /* bytes of a VDI name */
#define PLX_STORE_NAME_MAX 63
#define PLX_LABEL_MAX 127
#define PLX_VOLUMES_MAX 64
#define PLX_REGISTRY_SPANS_MAX 16
#define PLX_VDI_SIZE_MAX (256ull << 40)
#define PLX_VDI_SIZE_MIN 4096ull
#define PLX_REWINDS_MAX 60u /* rewinds of one disk that are still held */

/* ---- Stores ---------------------------------------------------------------------------- */

struct plx_format_options {
    char name[PLX_STORE_NAME_MAX + 1];
    uint64_t extent_bytes;  /* 0: chosen from the size; a power of two from 1 MiB to 2 GiB */
    uint64_t segment_bytes; /* of a log segment; 0: 1 MiB, less in small extents */
    uint32_t vdi_slots;     /* disks that each volume has room for; 0: all that fit */
    bool registry;          /* reserve room for the registry on volume 0 */
    bool force;             /* overwrite what the volumes hold */
};

struct plx_volume_info {
    struct plx_uuid id;
    char name[256];          /* of the device */
    uint64_t first_extent;   /* the system extent */
    uint64_t extents;        /* of all its ranges */
    uint64_t system_extents; /* how many of the first are the store's own */
};

/* Extents with consecutive numbers that lie side by side on a volume. */
struct plx_extent_range {
    unsigned volume;
    uint64_t first, extents;
    uint64_t at; /* extents before them on the volume; 0: begins with the system extent */
};

struct plx_store_info {
    struct plx_uuid id;       /* in the store's structures */
    struct plx_uuid identity; /* for people; a copy's differs from id */
    char name[PLX_STORE_NAME_MAX + 1];
    uint32_t format_version;
    uint32_t block_size; /* 4096 */
    uint64_t extent_blocks, segment_blocks;
    uint64_t extents;   /* all, system extents included */
    uint32_t vdi_slots; /* room for so many VDIs */
    uint64_t created_ns;
    unsigned volumes;
    struct plx_volume_info volume[PLX_VOLUMES_MAX];
};

/* Writes a new, empty store over the devices. EXISTS: a device holds data and `force` is not set;
 * nothing has changed then. ret_info may be NULL. */
int plx_store_format(struct plx_device **devices, unsigned count,
                     const struct plx_format_options *options, struct plx_env *env,
                     struct plx_store_info *ret_info, struct plx_fault *fault);

struct plx_cluster {    /* whose nodes have a store's registry */
    struct plx_uuid id; /* zero: none; the registry lies in the store */
    uint64_t line;      /* from 1 to INT64_MAX, new whenever the cluster's registry was restored */
};

/* From one volume's superblock: which store it belongs to. */
struct plx_superblock_info {
    struct plx_uuid store, volume, identity;
    char store_name[PLX_STORE_NAME_MAX + 1];
    unsigned volume_index, volumes;
    uint64_t volume_bytes;
    bool number_lost; /* by plx_superblock_restore() only (GROW-12) */
    /* Of volume 0: where the registry lies on the device, in bytes. */
    struct plx_registry_span {
        uint64_t offset, bytes;
    } registry[PLX_REGISTRY_SPANS_MAX];
    unsigned registry_spans;
    struct plx_cluster cluster; /* of volume 0 */
    uint64_t unknown;           /* features that this program does not know: read only */
};
int plx_superblock_probe(struct plx_device *device, struct plx_superblock_info *ret_info,
                         struct plx_fault *fault);
/* Whether an extent or a record of the volume was ever used (GROW-11). */
int plx_superblock_was_used(struct plx_device *device, bool *ret_used, struct plx_fault *fault);
/* Restores a volume's superblocks from the spare one; dry_run: only looks. The caller has the
 * device for itself, by the operator's word, and may repeat a call that was cut off. EXISTS: they
 * can be read. NOT_FOUND: the spare is lost, too. It may repeat an older state (VOLUME-5). */
int plx_superblock_restore(struct plx_device *device, bool dry_run,
                           struct plx_superblock_info *ret_info, struct plx_fault *fault);
/* UNSUPPORTED if there are unknown features. To be called before anything writes to the volume. */
int plx_superblock_check_known(const struct plx_device *device, uint64_t unknown,
                               struct plx_fault *fault);

struct plx_store_options {
    uint64_t instance; /* who owns new extents and VDIs; 0: read only */
    struct plx_uuid host;
    uint64_t cache_bytes;        /* node cache; 0: 64 MiB (8 with ASan); 32 nodes at least */
    uint64_t keyframe_mappings;  /* changed blocks before a key frame is due; 0: 65536 */
    uint64_t keyframe_log_bytes; /* bytes of log before one is due; 0: 64 MiB */
    unsigned ops_per_vdi;        /* requests in progress at once; 0: 128 */
    bool mixed; /* allow several identities: plx_store_set_identity() was cut off */
    /* Ranges of extents that the registry knows, sorted by number (VOLUME-5); `at` is not used.
     * plx_store_open() fails with REGISTRY if they cannot be true. */
    const struct plx_extent_range *known;
    unsigned known_count;
};

/* All volumes of the store must be given, in any order. On success the store owns the devices and
 * closes them. After an error they are still the caller's. */
int plx_store_open(struct plx_device **devices, unsigned count,
                   const struct plx_store_options *options, struct plx_env *env,
                   struct plx_store **ret_store, struct plx_fault *fault);
/* Another host has taken the store over: from now on every write and flush fails with FENCED. */
void plx_store_fence(struct plx_store *store);
/* Writes the bitmaps of owned extents. All VDIs must be closed. The store is gone afterwards. */
int plx_store_close(struct plx_store *store);

void plx_store_get_info(const struct plx_store *store, struct plx_store_info *ret_info);
/* Also makes durable what a dead instance may have left in the device's write-back cache. */
int plx_store_flush_others(struct plx_store *store);
/* Whether the extent holds the store's own structures or the registry. */
bool plx_store_extent_is_system(const struct plx_store *store, uint64_t number);
/* The name of the first volume whose superblock counts less than is known: the device lost a write.
 * The next plx_store_grow() or the like writes it again. NULL: there is none. */
const char *plx_store_behind(const struct plx_store *store);
/* The index of a volume whose superblock counts more volumes than the store has, so volume 0 went
 * back to an older state; 0: there is none (VOLUME-7). */
unsigned plx_store_ahead(const struct plx_store *store);
/* The range of extents with this index, sorted by extent number. False: past the end. */
bool plx_store_range(const struct plx_store *store, unsigned index,
                     struct plx_extent_range *ret_range);

/* ---- Growing (grow.c) ---- */

struct plx_grow {
    bool dry_run;    /* only tells what would happen */
    bool force;      /* add: overwrite what the device holds */
    uint64_t number; /* add: the volume's number; 0: none (attach/numbers.c) */
};

/* Whether the registry has room for rows of all extents, and if not, why it gets no more. */
enum plx_registry_stays {
    PLX_REGISTRY_FITS,
    PLX_REGISTRY_NO_EXTENTS, /* volume 0 is too small */
    PLX_REGISTRY_NO_SPANS,   /* its room was extended as often as it can be */
};

#define PLX_GROWN_SEALED_MAX 3

struct plx_grown {
    uint64_t extents;                       /* of the store, afterwards */
    uint64_t added;                         /* by this call */
    unsigned volume;                        /* add: its index */
    enum plx_registry_stays registry_stays; /* attach.h: afterwards */
    /* attach.h: unused extents meant for the registry whose headers cannot be believed. Nobody uses
     * them from now on. Set also after an error. */
    unsigned sealed_count;
    uint64_t sealed[PLX_GROWN_SEALED_MAX];
    bool restored; /* a superblock that was behind was written again */
};

/* Adds the space by which volumes have grown to the store, in whole extents. Also finishes what a
 * crash left of an earlier plx_store_grow() or plx_store_add_volume(). Conditions: only one process
 * at a time makes such calls, it has opened the store since it got the right to, and no disk is
 * open in this store object. Other instances call plx_store_volumes_changed() afterwards. */
int plx_store_grow(struct plx_store *store, const struct plx_grow *grow,
                   struct plx_grown *ret_grown, struct plx_fault *fault);
/* Adds a volume; the same conditions. Takes the device over only if something was added. EXISTS:
 * the device holds data, and `force` is not set; leftovers of an interrupted call do not count. If
 * it is a volume of this store already, nothing is added, and that is no error. */
int plx_store_add_volume(struct plx_store *store, struct plx_device *device,
                         const struct plx_grow *grow, struct plx_grown *ret_grown,
                         struct plx_fault *fault);
/* Allows common blocks from now on; programs that do not know them refuse the store. The same
 * conditions. */
int plx_store_allow_common(struct plx_store *store, struct plx_fault *fault);
/* Allows a ring (format_ring.h) to hold what disks of the store lack; programs that do not know
 * rings refuse the store. The same conditions. */
int plx_store_allow_ring(struct plx_store *store, struct plx_fault *fault);
bool plx_store_allows_ring(const struct plx_store *store);
/* Says in volume 0's superblock where the store's registry lies (CLUSTERED-1); a zero id: in the
 * store. The same conditions as plx_store_set_identity(). */
int plx_store_set_cluster(struct plx_store *store, const struct plx_cluster *cluster,
                          struct plx_fault *fault);
/* Gives the store another identity for people: for a copy that is used beside its original. The
 * store is open for writing, none of its VDIs is open, and nobody else has it. */
int plx_store_set_identity(struct plx_store *store, const struct plx_uuid *identity,
                           struct plx_fault *fault);
/* Whether the store allows common blocks, as far as this instance knows. */
bool plx_store_allows_common(const struct plx_store *store);
/* How many further extents the registry should get, at least and at most; both 0: none. */
void plx_store_registry_due(const struct plx_store *store, uint64_t *ret_least, uint64_t *ret_most);
/* Whether the registry has enough room after growing as far as possible; if not, the reason. */
enum plx_registry_stays plx_store_registry_stays(const struct plx_store *store);
/* Gives the registry these extents of volume 0, behind those that it has. They were never used,
 * nobody can be granted them, and nobody uses the registry meanwhile (registry/spans.c). Otherwise
 * the same conditions. */
int plx_store_add_registry_span(struct plx_store *store, uint64_t first, uint64_t extents,
                                struct plx_fault *fault);
/* Whether plx_store_grow() or plx_store_add_volume() has written nothing. */
static inline bool plx_grow_refused(int error)
{
    return error == PLX_ERR_INVALID || error == PLX_ERR_UNSUPPORTED || error == PLX_ERR_EXISTS;
}
/* Takes over what another process has changed by one of these calls. All volumes are given, opened
 * anew, in any order; the store owns these devices whatever is returned. May be called from inside
 * a turn: it never waits for the loop. Writes that wait for room try again. */
int plx_store_volumes_changed(struct plx_store *store, struct plx_device **devices, unsigned count,
                              struct plx_fault *fault);

/* An extent that nobody owned, as the registry knows it. */
struct plx_grant {
    uint64_t extent;
    bool fresh;      /* never used: its header is rebuilt */
    uint64_t states; /* plx_extent_info.states when its owner gave it up; 0: unknown */
};
#define PLX_STATES_NEVER                                                                           \
    ((uint64_t)INT64_MAX) /* of an extent that is never to be believed again                       \
                           */
/* The answer to env->extent_wanted(): an extent, or a negative error (NOSPACE) and NULL. If the
 * header contradicts the grant, env->extent_refused() follows. */
void plx_store_extent_granted(struct plx_store *store, enum plx_extent_type type, int error,
                              const struct plx_grant *grant);
/* Adopts an extent of a dead instance. Nothing is allocated from it before
 * plx_store_extents_adopted(), which writes the adopted headers. The caller calls that after it has
 * marked the logs of all VDIs that dead instances had (plx_vdi_mark()). */
int plx_store_extent_adopt(struct plx_store *store, uint64_t extent, struct plx_fault *fault);
int plx_store_extents_adopted(struct plx_store *store, struct plx_fault *fault);
/* The store's number of collections when the registry granted an extent; odd while another instance
 * collects. To be called before plx_store_extent_granted() and _adopt() of that extent. 0 until
 * then. */
void plx_store_set_collections(struct plx_store *store, uint64_t collections);
struct plx_extent_info {
    uint64_t number;
    enum plx_extent_type type;
    uint64_t owner; /* instance, 0: nobody */
    struct plx_uuid owner_host;
    uint64_t generation;
    uint64_t used_blocks, blocks;
    uint64_t header_blocks; /* of the used blocks */
    bool sealed;            /* nothing may be allocated in it, however free */
    /* How many durable states its pages have had, in all; a mirror copy counts as the state it
     * mirrors. It never falls, unless the device lost a write that it had acknowledged. */
    uint64_t states;
    bool settled; /* all that was read of it is known to be durable */
};
/* Seals the extents adopted since the last plx_store_extents_adopted(), because a log was damaged:
 * what the lost part named may lie in their free blocks. */
void plx_store_extents_seal(struct plx_store *store);
bool plx_store_extent_is_owned(const struct plx_store *store, uint64_t extent);
/* The owned extent with this index, from 0 on. NOT_FOUND: past the end. */
int plx_store_extent_owned(struct plx_store *store, size_t index, struct plx_extent_info *ret_info);
/* The owned extents whose states have risen since they came, or since this call last told them. The
 * caller frees the list. *ret_count 0: there are none, or memory is out and the list is NULL. */
struct plx_extent_info *plx_store_extents_risen(struct plx_store *store, size_t *ret_count);
/* To be called before all owned extents are released one by one, so that they share a flush. */
void plx_store_extents_leave(struct plx_store *store);
/* Gives up an owned extent. This instance must not use it afterwards. */
int plx_store_extent_release(struct plx_store *store, uint64_t extent,
                             struct plx_extent_info *ret_info, struct plx_fault *fault);
/* Frees garbage that a collection found in an extent: one bit per block. Either this instance owns
 * the extent, or the extent was given to it just for this. In the second case *ret_info says that
 * nobody owns it. */
int plx_store_extent_sweep(struct plx_store *store, uint64_t extent, const uint64_t *garbage,
                           struct plx_extent_info *ret_info, uint64_t *ret_swept,
                           struct plx_fault *fault);
/* Reads an extent's header from the store, whoever owns the extent. */
int plx_store_extent_read(struct plx_store *store, uint64_t extent,
                          struct plx_extent_info *ret_info, struct plx_fault *fault);

/* One turn of the loop: takes completions, runs what is ready, forms log batches, submits. Never
 * blocks. True: call it again at once, there is more to do. */
bool plx_store_tick(struct plx_store *store);
/* Blocks until a device has completed something. Returns at once if nothing is under way. */
void plx_store_wait(struct plx_store *store);
/* The device of a volume, to wait for its completions; the store's until it is closed. Or NULL. */
struct plx_device *plx_store_device(const struct plx_store *store, unsigned volume);
/* Also, behind them, the members of a ring that the loop drives. */
struct plx_device *plx_store_any_device(const struct plx_store *store, unsigned index);
/* Waits for extents that were asked for, and for freed blocks whose extents are awaited. To be
 * called before the last extents are released. */
void plx_store_settle(struct plx_store *store);
/* When to make a turn although nothing has happened, on the monotonic clock. UINT64_MAX: never. */
uint64_t plx_store_due_ns(const struct plx_store *store);
/* Whether requests or background work are under way. */
bool plx_store_busy(const struct plx_store *store);
/* I/Os whose completion ends a device's wait(). None of the volumes', while a write waits (TICK-6).
 */
unsigned plx_store_under_way(const struct plx_store *store);

/* ---- Virtual disks ---------------------------------------------------------------------- */

enum plx_overwrite {
    PLX_OVERWRITE_IN_PLACE,
    PLX_OVERWRITE_COPY,
};

struct plx_vdi_create_options {
    char name[PLX_NAME_MAX + 1];
    struct plx_uuid id;   /* all zero: the engine makes one */
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

/* Continuous protection: the snapshots that an open disk takes by itself. In every mode the disk
 * takes none while nothing changes. */
enum plx_protection_mode {
    PLX_PROTECT_OFF,
    PLX_PROTECT_INTERVAL, /* when the interval has passed since the last one */
    PLX_PROTECT_BATCH,    /* after each log batch, that is, what is acknowledged at once */
    PLX_PROTECT_WRITE,    /* after each write or unmap (1 MiB or 128 MiB at most) */
};

#define PLX_INTERVAL_MIN_NS 1000000ull
#define PLX_INTERVAL_MAX_NS (86400ull * 1000000000u)
#define PLX_TIERS_MAX 8
#define PLX_KEEP_MAX_NS (100ull * 365 * 86400 * 1000000000u)

/* Of the snapshots, one per period of every_ns is kept for keep_ns. */
struct plx_tier {
    uint64_t every_ns; /* 0: all are kept; first tier only */
    uint64_t keep_ns;
};

struct plx_protection {
    enum plx_protection_mode mode;
    uint64_t interval_ns;                /* INTERVAL only, else 0 */
    uint32_t tiers;                      /* 0: all snapshots are kept for ever */
    struct plx_tier tier[PLX_TIERS_MAX]; /* each coarser and longer than the last */
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
    uint64_t owner; /* an instance; 0: nobody */
    struct plx_uuid owner_host;
    uint64_t epoch;
    uint64_t record_state; /* states of its record so far; a mirror copy counts as its state */
    uint64_t created_ns;
    uint64_t parent_seq;                      /* 0: no parent */
    uint64_t snapshots;                       /* newest snapshot's number, as of the key frame */
    uint64_t forgotten;                       /* snapshots up to this one are gone */
    uint64_t log_first_segment, log_segments; /* retained log, in segments */
    unsigned levels;
    struct plx_protection protection;
    unsigned rewinds; /* how often it went back to an older instant */
    /* of these, those whose snapshot is held until all snapshots before the rewind are gone */
    unsigned rewinds_held;
    uint64_t rewound_to[PLX_REWINDS_MAX]; /* these snapshots */
    /* Blocks that hold data, as of the newest key frame. While the disk is open, that is at most
     * half a minute old. PLX_MAPPED_UNKNOWN: an older program did not count them. */
    uint64_t mapped_blocks;
    /* How many of these have a known checksum; damage to any other block goes unnoticed, because it
     * was overwritten in place. PLX_MAPPED_UNKNOWN as above. And when the newest vouch pass ended
     * (vouch.c), 0: never. */
    uint64_t vouched_blocks, vouched_ns;
    struct plx_ring_mark mark;
    struct plx_ring_position position; /* as of the newest key frame, or of an open disk's log */
};

#define PLX_MAPPED_UNKNOWN UINT64_MAX

/* Writes the record of a new VDI into its slot, which the registry chose. A clone shares all blocks
 * of the parent's snapshot; only the tree of a key frame at that instant is written. */
int plx_vdi_create(struct plx_store *store, const struct plx_vdi_create_options *options,
                   struct plx_vdi_info *ret_info, struct plx_fault *fault);
/* Reads a record. NOT_FOUND: the slot was never used. */
int plx_vdi_read_info(struct plx_store *store, uint32_t slot, struct plx_vdi_info *ret_info,
                      struct plx_fault *fault);
/* State of a loop over all slots, which reads many at a time. Begin with zeroes and slot 0. */
struct plx_slot_scan {
    uint32_t first, end; /* the slots that were read last */
    uint64_t used;       /* one bit per slot */
};
/* Moves *slot on to the next slot that was used or cannot be read. False: there is none. */
bool plx_vdi_next_slot(struct plx_store *store, struct plx_slot_scan *scan, uint32_t *slot);
/* Marks a closed VDI as deleted. A collection frees its space later. owner_dead: the instance that
 * the record names is proven dead. */
int plx_vdi_delete(struct plx_store *store, uint32_t slot, bool owner_dead,
                   struct plx_fault *fault);
/* Turns a slot whose record is damaged into one that was never used; what the record named becomes
 * garbage. Does nothing if the slot has no live record or is beyond the table. EXISTS: it has one
 * that can be read. */
int plx_vdi_give_up(struct plx_store *store, uint32_t slot, struct plx_fault *fault);

/* Marks the blocks that a VDI's log names as allocated in owned extents. After a crash, every VDI
 * that the dead instance had is marked before anything is allocated from its extents. */
int plx_vdi_mark(struct plx_store *store, uint32_t slot, struct plx_fault *fault);

struct plx_vdi;

struct plx_vdi_open_options {
    uint32_t slot;
    uint64_t epoch; /* from the registry; greater than the record's */
    /* The disk's name in the registry; the record gets it. NULL: the record's. */
    const char *name;
    bool take_over;  /* the record's owner is proven dead: replace it */
    bool write_back; /* acknowledge before the device is flushed */
    int overwrite;   /* enum plx_overwrite; -1: as the record says */
    /* Blocks not overwritten in place for so long get their checksums back while the disk is idle
     * (vouch.c). 0: never. */
    uint64_t quiet_ns;
    /* The witness of the last plx_vdi_look_at_clock(), as it was kept; NULL: none. */
    const struct plx_witness *witness;
    const struct plx_ring_at_hand *ring; /* NULL: the caller does not want what a ring has of it */
};

/* Opens for writing: replays the log behind the last key frame, crash recovery included, and then
 * writes the new owner into the record. */
int plx_vdi_open(struct plx_store *store, const struct plx_vdi_open_options *options,
                 struct plx_vdi **ret_vdi, struct plx_fault *fault);
/* Opens an instant to read. The VDI may be open elsewhere. seq 0: the newest durable state. */
int plx_snapshot_open(struct plx_store *store, uint32_t slot, uint64_t seq,
                      struct plx_vdi **ret_vdi, struct plx_fault *fault);
/* Completes what is under way, writes a key frame and gives up ownership. Frees the object even if
 * it returns an error. After an error the record still names this instance, and the next open
 * recovers. */
int plx_vdi_close(struct plx_vdi *vdi);
/* Begins a close; only plx_vdi_close() may follow. Disks share their flushes if all closes have
 * begun before the first plx_vdi_close(). */
void plx_vdi_begin_close(struct plx_vdi *vdi);
/* Completes what is under way and makes it durable: nobody uses the disk until plx_vdi_use(). After
 * an error the caller closes the disk. */
int plx_vdi_rest(struct plx_vdi *vdi);
/* Closes without writing anything, as a crash would. */
void plx_vdi_abandon(struct plx_vdi *vdi);

/* A snapshot of which the caller wants to know whether it goes. Its label does not keep it and goes
 * with it; plx_attach_thin() sees to that. */
struct plx_thin_mark {
    uint64_t seq;
    const char *label; /* NULL: none */
    bool gone;         /* set here, never cleared */
};

/* Selects the snapshots to delete; all conditions must hold. */
struct plx_thin {
    uint64_t after, upto; /* after < seq <= upto */
    uint64_t before_ns;   /* taken before this time; 0: at any time */
    uint64_t every_ns;    /* not the first of its period; 0: no such periods */
    const uint64_t *kept; /* none of these (labelled, cloned, read elsewhere); ascending */
    size_t kept_count;
    bool dry_run; /* only tells what would go; may write a key frame for it */
    /* With dry_run: only what a rewind alone holds, as if all else had gone. */
    bool rewinds_only;
    struct plx_thin_mark *marks;
    size_t mark_count;
    /* Lets snapshots wait until enough log has gathered to be worth the cost, some MiB. Key frames
     * stay this far apart; 0: as replay needs them. */
    bool thrifty;
    uint64_t keyframes_ns;
};

struct plx_thinned {
    uint64_t upto;                /* how far it came: call again behind it until it does not grow */
    uint64_t snapshots;           /* that went */
    uint64_t blocks, meta_blocks; /* freed: data; nodes and log, less what was rewritten */
    uint64_t oldest;              /* snapshots up to this one are gone now */
    bool waits;                   /* thrifty: too little log behind `upto` yet */
    bool through;                 /* thrifty: another call finds nothing */
};

/* Lets snapshots go and frees what only they used, one slice of the log per call. The disk goes on
 * meanwhile and must not be closed. The newest snapshot and instants that are open here always
 * stay.
 *
 * With before_ns it works on whole stretches between key frames, and leaves the rest for later. If
 * there is no room to rewrite the log, snapshots stay until history begins behind them. Blocks
 * that only snapshots from before a rewind have are left to a collection; all those snapshots go at
 * once. BUSY: one came into use; nothing has changed. CLOCK: with before_ns, while the clock is in
 * doubt (witness.h). */
int plx_vdi_thin(struct plx_vdi *vdi, const struct plx_thin *thin, struct plx_thinned *ret_thinned,
                 struct plx_fault *fault);
/* Whether plx_vdi_thin() would find only that too little has gathered (thrifty). */
bool plx_vdi_thin_waits(const struct plx_vdi *vdi, const struct plx_thin *thin);
/* History has given way: writes that wait for room try again (env.h, room_wanted). made false: no
 * more history can go, and those writes fail. */
void plx_store_room_made(struct plx_store *store, bool made);
void plx_vdi_get_info(const struct plx_vdi *vdi, struct plx_vdi_info *ret_info);
bool plx_vdi_is_snapshot(const struct plx_vdi *vdi);
void plx_vdi_set_write_back(struct plx_vdi *vdi, bool write_back);
/* Prepares a disk that rests or was not used yet as if it had been opened with these options:
 * write_back, overwrite, quiet_ns. False: the disk has stopped, lacks its ring or has another
 * quiet_ns, and has to be closed and opened again. */
bool plx_vdi_use(struct plx_vdi *vdi, const struct plx_vdi_open_options *options);
/* The record gets the name with the next key frame, at the latest when the disk is closed. */
void plx_vdi_rename(struct plx_vdi *vdi, const char *name);
/* Writes the settings into the record, with a key frame. They hold until they are set again,
 * wherever the disk is open. Turning protection on, or to another mode, takes a snapshot. */
int plx_vdi_set_protection(struct plx_vdi *vdi, const struct plx_protection *protection,
                           struct plx_fault *fault);
/* The same without changing the record, so that a caller that dies leaves nothing behind. Ends with
 * the next call of either, which must come before the disk is closed. */
int plx_vdi_try_protection(struct plx_vdi *vdi, const struct plx_protection *protection,
                           struct plx_fault *fault);
/* Looks at the clocks, and tells the operator if belief in them changes. The caller keeps the
 * witness for whoever opens the disk next. */
struct plx_vdi_clock {
    struct plx_clocks now;
    struct plx_history_ends ends;
    struct plx_witness witness;
};
void plx_vdi_look_at_clock(struct plx_vdi *vdi, struct plx_vdi_clock *ret_clock);
/* The operator's word: the wall clock is right now. */
void plx_vdi_resume(struct plx_vdi *vdi, struct plx_vdi_clock *ret_clock);
/* 0, or PLX_ERR_STICKY and the reason. */
int plx_vdi_health(const struct plx_vdi *vdi, struct plx_fault *ret_fault);

enum plx_request_op {
    PLX_READ,
    PLX_WRITE,
    PLX_UNMAP,
    PLX_FLUSH,
    PLX_COMPARE_WRITE, /* iov: bytes to compare with, then as many to write */
    PLX_SNAPSHOT,      /* seq and time_ns are the result */
    PLX_LABEL,         /* label and seq; remove: takes the label away */
    PLX_RESIZE,        /* length: the new size, which is larger */
    PLX_KEYFRAME,      /* writes one now */
    PLX_MOVE,          /* brings scattered blocks together (struct plx_move) */
    PLX_SHARE,         /* makes a block common (struct plx_share) */
    PLX_VOUCH,         /* the engine's own (vouch.c) */
};

#define PLX_COMPARE_MAX (64u << 10) /* bytes of one COMPARE_WRITE */

/* PLX_MOVE. offset and length are whole blocks; the only iovec is memory to work with,
 * PLX_MOVE_BUFFER bytes. A window is an aligned piece of that size, or of a quarter of an extent.
 * If its blocks lie in so many runs that moving is worth it (move.c), they get adjacent new places;
 * writes to them wait meanwhile. Blocks that a snapshot or a clone sees stay. The old places are
 * free after the next key frame. NOSPACE: no run of free blocks is long enough, or it is left to
 * writes. CORRUPT, IO_READ: a block cannot be read; its window stays. Everything before `upto` is
 * done, even if an error is returned. */
#define PLX_MOVE_BUFFER (1u << 20)
struct plx_move {
    uint64_t windows; /* the most windows to look at */
    uint64_t blocks;  /* ends after the window in which so many were moved; 0: any number */
    bool dry_run;     /* only counts, as if everything went well */
    uint64_t upto;    /* offset in bytes: where to go on */
    /* Added to. Runs are counted within windows. */
    uint64_t mapped, shared, moved; /* blocks */
    uint64_t runs_before, runs_after;
};

/* PLX_SHARE, between plx_share_begin() and plx_share_end(). offset and length are one block; the
 * only iovec is memory to work with. Without a common block it makes one: a copy, to which the
 * block is then mapped and others may be. With one, it compares the two byte by byte and maps the
 * block to the common one if they are equal. Writes to the block wait meanwhile; its contents never
 * change. When done is called it is durable. NOSPACE: free blocks are left to writes, or a write to
 * this block waits for room. */
#define PLX_SHARE_BUFFER (2u * 4096)
enum plx_share_result {
    PLX_SHARE_ABSENT,  /* nothing is mapped there */
    PLX_SHARE_ALREADY, /* it is mapped to a common block (to the given one, if one was given) */
    PLX_SHARE_MADE,
    PLX_SHARE_JOINED,
    PLX_SHARE_DIFFERS,
};
struct plx_share {
    uint64_t common; /* 0: make one; ALREADY, MADE: the result */
    enum plx_share_result result;
};

/* The caller owns it and leaves it alone between plx_vdi_submit() and done. done is called exactly
 * once, from plx_store_tick() or from within plx_vdi_submit(). */
struct plx_request {
    enum plx_request_op op;
    bool fua; /* durable before done, even with write_back */
    uint64_t offset, length;
    struct iovec *iov; /* not changed */
    int iovcnt;
    uint64_t seq, time_ns;
    char label[PLX_LABEL_MAX + 1];
    bool remove;  /* LABEL */
    bool patient; /* SNAPSHOT: may wait to share an I/O; for protection */
    int result;
    uint64_t miscompare_offset;
    struct plx_move *move;
    struct plx_share *share;
    struct plx_fault fault; /* the reason, if result is of class CORRUPT or IO */
    void (*done)(struct plx_request *request);
    void *owner;
    /* Of a carried request (disk/front.h); appended: all of it has its place in the log's order. */
    struct plx_ring_position carried; /* the record that it brings */
    bool promised;                    /* its blocks are (ALLOC-8) */
    void (*appended)(struct plx_request *request);
    /* The engine's while submitted. */
    const struct plx_op_kind *kind;
    enum plx_urgency { PLX_IN_TURN, PLX_AHEAD, PLX_OWN, PLX_CARRIED } urgency;
    struct plx_request *next;
    uint64_t started_ns;
};

void plx_vdi_submit(struct plx_vdi *vdi, struct plx_request *request);
/* Submits ahead of requests that wait for their turn, for callers that others may wait for, such as
 * one that makes room (REQUEST-1). */
void plx_vdi_submit_ahead(struct plx_vdi *vdi, struct plx_request *request);
/* Submits ahead of all that waits, and runs the loop until done. Returns the result. */
int plx_vdi_run(struct plx_vdi *vdi, struct plx_request *request);
/* From here to plx_share_end(), addresses of common blocks stay valid. BUSY: a collection is under
 * way here; the caller makes sure that none is in another instance. UNSUPPORTED:
 * plx_store_allow_common() comes first. No SHARE may be under way at the end. */
int plx_share_begin(struct plx_store *store, struct plx_fault *fault);
void plx_share_end(struct plx_store *store);

/* ---- Counters -------------------------------------------------------------------------------- */

#define PLX_HISTOGRAM_BUCKETS 40 /* bucket i counts latencies in [2^i, 2^(i+1)) ns */

struct plx_counters {
    uint64_t device_reads[PLX_KINDS], device_writes[PLX_KINDS];
    uint64_t device_read_bytes[PLX_KINDS], device_write_bytes[PLX_KINDS];
    uint64_t device_flushes;
    uint64_t reads, writes, unmaps, flushes, snapshots;
    /* Snapshots: taken by protection; left out, because the one before was under way; per second
     * lately. */
    uint64_t snapshots_automatic, snapshots_skipped, snapshot_rate;
    uint64_t snapshot_bytes; /* log bytes that only snapshots caused */
    uint64_t read_bytes, write_bytes, unmap_bytes;
    uint64_t blocks_in_place, blocks_new, blocks_zero;
    uint64_t write_path_node_reads; /* metadata reads that a write waited for */
    uint64_t batches, batch_records, batch_bytes;
    uint64_t voids;
    uint64_t blocks_vouched; /* that got their checksums back */
    uint64_t keyframes, keyframe_nodes;
    uint64_t cache_hits, cache_misses;
    uint64_t blocks_freed, blocks_foreign; /* foreign: left to a collection, in extents of others */
    uint64_t blocks_collected;
    uint64_t registry_calls_on_data_path; /* writes that waited for an extent: all were full */
    uint64_t snapshot_latency[PLX_HISTOGRAM_BUCKETS];
    uint64_t read_latency[PLX_HISTOGRAM_BUCKETS], write_latency[PLX_HISTOGRAM_BUCKETS];
    uint64_t data_free_blocks, meta_free_blocks; /* in owned extents, now */
    uint64_t recovery_blocks; /* of meta_free_blocks: kept for recovering open disks */
};
void plx_store_counters(const struct plx_store *store, struct plx_counters *ret_counters);
void plx_vdi_counters(const struct plx_vdi *vdi, struct plx_counters *ret_counters);
/* Name and value of each counter, for printing: index from 0; false past the end. disk: only those
 * that a disk counts, too. */
bool plx_counter_at(const struct plx_counters *counters, unsigned index, bool disk,
                    const char **ret_name, uint64_t *ret_value);

#include "engine/engine_care.h"
#include "engine/engine_check.h"
#include "engine/engine_history.h"

#endif
