/* attach.h - a store by name: registry, volumes, instance, extents and locks brought together.
 *
 * An attach is one instance's opening of a store. Opening it for writing first recovers what dead
 * instances of this host had: it replays and closes their disks and takes their extents over. A
 * death is proven (instance.h), never assumed (INV-5).
 *
 * Order of calls: plx_attach_open(); for each disk plx_attach_vdi_open(), the engine's requests,
 * then plx_attach_vdi_close() or _leave(); at last plx_attach_close().
 *
 *     struct plx_attach_options options = {.store = "fast", .role = "admin", .brief = true};
 *     struct plx_attach_vdi_options how = {.overwrite = -1};
 *
 *     rc = plx_attach_open(&options, &attach, &fault);
 *     rc = plx_attach_vdi_open(attach, "web", NULL, &how, &vdi, &fault);
 *     ...
 *     rc = plx_attach_vdi_close(attach, vdi);
 *     rc = plx_attach_close(attach);
 *
 * Errors: a call returns 0 or a code of enum plx_error and fills the fault with a text for people.
 * BUSY: a disk that a command of this host has locked is waited for (options.patience) first. A
 * disk that a handler has locked is BUSY at once, since the handler keeps it as long as its LUN.
 *
 * Threads: one thread at a time makes calls on an attach; plx_attach_store() may be called by any.
 * Calls may block on registry and store. In a process that serves the store on a loop, the hooks
 * lock and unlock (the loop's mutex) bracket every engine call. Calls of the registry are made
 * without that mutex (INV-4). */
#ifndef PLX_ATTACH_H
#define PLX_ATTACH_H

#include "device/patience.h"
#include "engine/engine.h"
#include "registry/paths.h"
#include "registry/registry.h"

struct plx_attach;

struct plx_attach_options {
    const char *store;     /* name or uuid */
    const char *state_dir; /* NULL: environment, default */
    const char *role;      /* "handler", "admin" */
    bool read_only;        /* nothing is written to the store, no instance recovered */
    bool reopens;          /* disks of dead peers stay open: plx_attach_let_go() */
    bool brief;            /* the process ends soon: it unlocks with its last change (ATTACH-13),
                            * and its volumes are not opened for wait() (device.h) */
    bool rings;            /* disks use this host's write-back ring by their settings */
    bool grows;            /* a superblock that lost a write is no reason to refuse (ATTACH-15) */
    bool checks;           /* with read_only: a volume that went back is no reason to refuse
                            * (NUMBERS-1), but a finding of plx_attach_compare() */
    bool registry_only;    /* with read_only: of the volumes, only volume 0 is opened */
    uint64_t cache_bytes;  /* 0: the engine's default */
    void *context;         /* for the hooks; each may be NULL */
    void (*lock)(void *context);
    void (*unlock)(void *context);
    void (*tick)(void *context); /* see struct plx_env */
    void (*idle)(void *context);
    void (*wake)(void *context); /* from any thread: the loop has a turn soon */
    /* Runs the function on another thread, one at a time, then turns the loop. NULL: at once. */
    int (*defer)(void *context, void (*function)(void *argument), void *argument);
    void (*event)(void *context, int error_code, const char *text);
    /* On the loop: a write found no room. true: it waits until plx_store_room_made(). */
    bool (*room_wanted)(void *context);
    /* With the lock held: plx_store_any_device() names further devices. */
    void (*devices_changed)(void *context);
    /* Without it: plx_store_any_device() names fewer; the others are closed next. */
    void (*devices_gone)(void *context);
    /* Waiting for another process that ends soon: a command of this host, or a recovery. NULL:
     * calls do not wait, except for volumes and the home page (device.h, tenancy.h). */
    const struct plx_patience *patience;
    /* Without options.rings, with the lock held: a disk's writes are drained from this host's ring,
     * and so many bytes of them are not on the store yet. true ends that, now and at each later
     * call: then the disk is not opened (BUSY), or is closed with the rest on the ring. */
    bool (*draining)(void *context, uint64_t left);
    /* With the lock held, in plx_attach_rewind(), until the disk changes: true ends it (SYSTEM).
     * NULL: nothing does. */
    bool (*interrupted)(void *context);
};

int plx_attach_open(const struct plx_attach_options *options, struct plx_attach **ret_attach,
                    struct plx_fault *fault);
/* Call it with the error of a failed call. If a damaged registry is why the call failed, or extents
 * whose headers are damaged or older, it returns CORRUPT and the fault says what to do; otherwise
 * both stay. attach may be NULL. */
int plx_attach_name_damage(struct plx_attach *attach, int error, struct plx_fault *fault);
/* Call it with the error of a failed call. If the schema refused it because the store is in doubt,
 * it returns DOUBT and the fault says what was seen; otherwise both stay. plx_attach_open() has
 * done so. */
int plx_attach_name_doubt(struct plx_attach *attach, int error, struct plx_fault *fault);
/* Call it after plx_attach_name_damage(). If the operation failed because the registry granted no
 * extent, replaces the fault with the registry's reason, which the engine does not know. */
void plx_attach_name_unclaimed(struct plx_attach *attach, int error, struct plx_fault *fault);
/* The caller has closed all disks. Gives the extents back. The attach is freed, whatever is
 * returned; if an extent could not be given back, the next opening recovers it. */
int plx_attach_close(struct plx_attach *attach);
/* The same; if it fails, the fault says why: what the registry said, if it failed there. */
int plx_attach_close_why(struct plx_attach *attach, struct plx_fault *fault);

/* FENCED: another host was found to have taken the store; the fault names the host. Or snapshots
 * were read through a name of the volume whose locks nobody sees, and the store was opened
 * meanwhile (ATTACH-16): what was read may be wrong. BUSY: a disk whose newest state was to stand
 * still did not (ATTACH-26). Ask before the result gets its name, and before the disk is closed.
 * Other errors: nobody could find out. */
int plx_attach_fenced(struct plx_attach *attach, struct plx_fault *fault);
/* Who kept a process that only reads from taking the store when it opened: its registry cannot be
 * written to then. NULL: nobody. */
const struct plx_fault *plx_attach_in_the_way(const struct plx_attach *attach);
/* After its registry has answered READONLY: why this host may not write to the store, which another
 * one has, or nobody. 0: that is not why. */
int plx_attach_whose(struct plx_attach *attach, struct plx_fault *fault);
/* Whether an extent that was granted proved that the registry lost writes (ATTACH-10). */
bool plx_attach_found_doubt(struct plx_attach *attach);

/* With options.checks: which volume went back to an older state, and what to do. NULL: none. */
const char *plx_attach_went_back(const struct plx_attach *attach);

struct plx_store *plx_attach_store(struct plx_attach *attach); /* NULL: registry_only */
struct plx_registry *plx_attach_registry(struct plx_attach *attach);
/* The store's row. */
void plx_attach_row(const struct plx_attach *attach, struct plx_registry_store *ret_row);
/* plx_uuid_shown() of a VDI's id, as text. */
void plx_attach_shown_id(const struct plx_attach *attach, const char *vdi,
                         char ret_text[PLX_UUID_TEXT]);
/* Where this instance's control socket belongs; its folder is made. */
int plx_attach_control_path(const struct plx_attach *attach, char ret_path[PLX_PATH_MAX],
                            struct plx_fault *fault);

struct plx_attach_vdi_options {
    bool write_back;
    uint64_t quiet_ns;  /* engine.h */
    int overwrite;      /* enum plx_overwrite, -1: the VDI's property */
    bool discard_ring;  /* the operator's word: a ring's writes to the VDI are discarded */
    bool discard_aside; /* and also those on this host's ring that the VDI's mark does not claim */
    /* The disk is opened only to delete snapshots, so it may be opened although the store has no
     * room for the ring's records. */
    bool only_thins;
    /* Of the newest state, for who copies what the disk holds: BUSY while another process has the
     * disk open. plx_attach_fenced() is BUSY if it was changed before it is closed here. */
    bool stands;
};

/* snapshot NULL: opens the disk for writing, under its lock. Else a label, a sequence number or a
 * time: opens that snapshot, which is held until it is closed, so nobody lets it go meanwhile
 * (holds.c). BUSY: it is just being let go. "0" is the newest state on the store; nobody keeps that
 * for its readers (options.stands, plx_attach_vdi_stood_still). */
int plx_attach_vdi_open(struct plx_attach *attach, const char *name, const char *snapshot,
                        const struct plx_attach_vdi_options *options, struct plx_vdi **ret_vdi,
                        struct plx_fault *fault);
/* Of the newest state ("0"): BUSY if another process has the disk open, or has had since it was
 * opened here, or has deleted it; the text says which, and what to do. Then what is read of it may
 * look damaged, and blocks may be of another moment, or another disk's. */
int plx_attach_vdi_stood_still(struct plx_attach *attach, struct plx_vdi *vdi,
                               struct plx_fault *fault);
/* The epoch of the lock under which the disk with this id was last opened here, or was to be: a
 * failed opening raises the epoch, too. 0: it was not. Only of the last disk that was opened. */
uint64_t plx_attach_tried_epoch(const struct plx_attach *attach, const char *id);
int plx_attach_vdi_close(struct plx_attach *attach, struct plx_vdi *vdi);
/* With options.reopens the disk stays open, and opening it again costs nothing; until then it
 * counts as one that nobody has asked for. A snapshot, a disk that cannot go on, and any disk
 * without options.reopens are closed. */
int plx_attach_vdi_leave(struct plx_attach *attach, struct plx_vdi *vdi);
/* With options.reopens a recovery keeps open the disks that one dead instance of this role had
 * open, so that opening them again costs nothing (ATTACH-14). This call closes the disk of that
 * name if it is kept open and no LUN has opened it; NULL: all such disks. plx_attach_close() does
 * so too.
 */
void plx_attach_let_go(struct plx_attach *attach, const char *name);
/* How many disks are kept open that no LUN has opened yet. *ret_changes counts how often that
 * number has changed; it may be NULL. */
unsigned plx_attach_unasked(const struct plx_attach *attach, uint64_t *ret_changes);
/* Creates a disk, or a clone of a snapshot of `parent` (NULL: not a clone). The call fills in
 * options->slot and parent_slot itself. */
int plx_attach_vdi_create(struct plx_attach *attach, const struct plx_vdi_create_options *options,
                          const char *parent, const char *snapshot, struct plx_vdi_info *ret_info,
                          struct plx_fault *fault);
/* lost: deletes only a disk whose record is gone, damaged or older (plx_door_is_gone). */
int plx_attach_vdi_delete(struct plx_attach *attach, const char *name, bool lost,
                          struct plx_fault *fault);
/* Deletes the disk if nobody has locked it since its lock had this epoch. EXISTS: somebody has, and
 * the disk stays. */
int plx_attach_vdi_delete_untouched(struct plx_attach *attach, const char *name, uint64_t epoch,
                                    struct plx_fault *fault);
/* Gives the disk another name of the same store. EXISTS: another disk has it. BUSY: somebody has
 * the disk open or reads one of its snapshots. */
int plx_attach_vdi_rename(struct plx_attach *attach, const char *name, const char *new_name,
                          struct plx_fault *fault);
/* The operator gives up everything in `lost` (lost.h). Slots whose record could not be read become
 * free. EXISTS: one of the records can be read by now; nothing is given up. */
int plx_attach_forget_lost(struct plx_attach *attach, size_t *ret_count, struct plx_fault *fault);
/* What the operator loses by accepting a record that is older than what was written last (doors.h).
 */
struct plx_older {
    bool older;
    bool also_damaged;                   /* the operator's word (FORGET-7) */
    struct plx_registry_written written; /* the record as it is on the store */
    uint64_t newest;                     /* number of the newest snapshot that is left */
    struct plx_registry_label *gone;     /* labels of later snapshots; to be freed */
    size_t gone_count;
};
int plx_attach_look_at_older(struct plx_attach *attach, const struct plx_registry_vdi *vdi,
                             struct plx_older *ret_older, struct plx_fault *fault);
/* The operator accepts the older state that plx_attach_look_at_older() found. Reads the metadata of
 * all disks three times (FORGET-4). CORRUPT: another disk uses blocks of that state, or may,
 * because metadata that leads to its blocks is lost; or that state's own metadata is (FORGET-7).
 * DOUBT: a lost disk may use them (FORGET-8). BUSY: an instance holds an extent with blocks
 * of that state, or a collection runs. watch: as in struct plx_check_options. */
int plx_attach_accept_older(struct plx_attach *attach, const struct plx_registry_vdi *vdi,
                            const struct plx_older *older, const struct plx_watch *watch,
                            struct plx_fault *fault);
int plx_attach_snapshot_resolve(struct plx_attach *attach, const char *name, const char *snapshot,
                                uint64_t *ret_seq, struct plx_fault *fault);
/* After a snapshot was not found: says in the fault whether the disk has no such snapshot, or none
 * at all. seq: the number that was meant, 0: unknown. The fault of another error stays. Returns
 * NOT_FOUND. */
int plx_attach_explain_missing(struct plx_attach *attach, const struct plx_registry_vdi *vdi,
                               const char *snapshot, uint64_t seq, struct plx_fault *fault);

/* Changes of an open disk that both the store and the registry know. The store is changed first,
 * because it is the truth (ATTACH-4). seq 0 removes the label. */
int plx_attach_label(struct plx_attach *attach, struct plx_vdi *vdi, const char *label,
                     uint64_t seq, uint64_t time_ns, struct plx_fault *fault);
int plx_attach_resize(struct plx_attach *attach, struct plx_vdi *vdi, uint64_t size_bytes,
                      struct plx_fault *fault);
/* plx_vdi_set_protection() on the disk, then the registry's copy of it. */
int plx_attach_protect(struct plx_attach *attach, struct plx_vdi *vdi,
                       const struct plx_protection *protection, struct plx_fault *fault);

/* plx_vdi_rewind() to snapshot seq. The state before is kept as a snapshot with the label
 * before-rewind-TIME, in store and registry, and the registry gets an event. Another snapshot keeps
 * the state after the rewind. If the call fails after the first snapshot, *ret_before and the label
 * are valid too; before it, ret_before->seq is 0. */
#define PLX_REWIND_LABEL 40 /* with the terminating zero */
int plx_attach_rewind(struct plx_attach *attach, struct plx_vdi *vdi, uint64_t seq,
                      char ret_label[PLX_REWIND_LABEL], struct plx_snapshot_info *ret_before,
                      struct plx_fault *fault);
/* INVALID: the disk's record holds as many rewinds as it can; with the way out. */
int plx_attach_rewinds_refuse(const struct plx_attach *attach, const struct plx_vdi_info *vdi,
                              uint64_t seq, struct plx_fault *fault);

/* plx_vdi_thin() with one slice of history. It keeps snapshots that have labels or that others read
 * (thin->kept and kept_count are ignored). Labels that thin->marks name go with their snapshots,
 * and stay as long as these do, whatever happens. Call it again from ret_thinned->upto until that
 * does not grow. */
int plx_attach_thin(struct plx_attach *attach, struct plx_vdi *vdi, const struct plx_thin *thin,
                    struct plx_thinned *ret_thinned, struct plx_fault *fault);

/* The disk compares its clocks (witness.h). What it learns is kept for the next opening. */
void plx_attach_look_at_clock(struct plx_attach *attach, struct plx_vdi *vdi,
                              struct plx_vdi_clock *ret_clock);
/* plx_vdi_resume(), for this opening of the disk and all later ones. */
int plx_attach_resume(struct plx_attach *attach, struct plx_vdi *vdi, struct plx_fault *fault);

/* Options of a long operation. Each hook may be NULL. progress: `done` of `total` (0: unknown), in
 * the first part of the work or the second. pause: is called with neither lock held, should sleep
 * for a moment, and others may use the attach until it returns. interrupted: returning true ends
 * the work with BUSY. */
struct plx_attach_work {
    bool dry_run;    /* only finds */
    uint64_t memory; /* bytes, 0: 256 MiB */
    uint64_t rate;   /* bytes read a second at most, 0: no limit */
    void (*progress)(void *context, bool second, uint64_t done, uint64_t total);
    void (*pause)(void *context);
    bool (*interrupted)(void *context);
    void *context;
};

/* Finds and frees the blocks that no disk uses any more: those of deleted disks, and those that
 * crashes leaked (engine.h, collecting). It runs beside all I/O. A store whose bitmap of one bit a
 * block is larger than `memory` is done in slices. An interrupted collection is finished first.
 * Progress: bytes of metadata read, then blocks swept. BUSY: another process is collecting, or see
 * plx_collect_begin(). */
struct plx_collected {
    uint64_t found, swept;   /* blocks */
    uint64_t looked, missed; /* extents: missed, because they changed hands, or the
                              * registry had no room for what was found in them */
    uint64_t elsewhere;      /* extents of other processes, not looked at */
    uint64_t unreadable;     /* extents whose header is damaged, left as they are */
    uint64_t metadata_bytes, nanoseconds;
    unsigned slices;
    bool resumed; /* there was one to go on with */
};
int plx_attach_collect(struct plx_attach *attach, const struct plx_attach_work *work,
                       struct plx_collected *ret_collected, struct plx_fault *fault);

/* plx_store_dedup(), while no collection runs anywhere in the store. open: looks at all disks, and
 * opens those that are closed for the time of the call; else only at disks that are open for
 * writing here. BUSY: another process is collecting or deduplicating, or an interrupted collection
 * has to be finished first. */
struct plx_attach_deduped {
    struct plx_deduped what;
    unsigned elsewhere; /* disks that are open in other processes, or cannot be opened */
    uint64_t nanoseconds;
};
int plx_attach_dedup(struct plx_attach *attach, bool open, const struct plx_attach_work *work,
                     struct plx_attach_deduped *ret_deduped, struct plx_fault *fault);

/* How many blocks can still be written to new places; stops counting at `enough`. */
int plx_attach_data_room(struct plx_attach *attach, uint64_t enough, uint64_t *ret_blocks,
                         struct plx_fault *fault);

/* Below this much room, space is low: protected disks lose their oldest snapshots until there is
 * twice as much. */
uint64_t plx_attach_low_blocks(struct plx_attach *attach);

/* Makes the store larger (plx_store_grow, plx_store_add_volume), then updates the registry, and
 * enlarges the registry's own room if that is due (spans.h). Other changes of superblocks need the
 * same right, so they are made here too. BUSY: another process has the right. The caller tells
 * other instances afterwards. */
struct plx_attach_growth {
    const char *path;      /* a further volume; NULL: the present volumes became larger */
    uint64_t create_bytes; /* the further volume is a file to create of this size; 0: no */
    bool unused;           /* plx_occupied_refuse() */
    /* Nothing grows, only this is called: plx_store_allow_common() or plx_store_allow_ring(). */
    int (*allow)(struct plx_store *store, struct plx_fault *fault);
    struct plx_grow how;
};
int plx_attach_grow(struct plx_attach *attach, const struct plx_attach_growth *growth,
                    struct plx_grown *ret_grown, struct plx_fault *fault);
/* Another process has made the store larger: reads its superblocks again. Writes that wait for room
 * go on. */
int plx_attach_volumes_changed(struct plx_attach *attach, struct plx_fault *fault);

/* How many unused extents data blocks leave to metadata (INV-8). */
uint64_t plx_attach_reserve_extents(struct plx_attach *attach);
/* 0: blocks may be moved (PLX_MOVE). NOSPACE: what room is left is for writes. */
int plx_attach_move_room(struct plx_attach *attach, struct plx_fault *fault);

/* Reads a time: as plx_time_parse(), or as so long before now ("-90s"; units in policy.h). */
bool plx_instant_parse(const char *text, uint64_t now_ns, uint64_t *ret_time_ns);
/* RFC 3339 ("2026-11-21T06:20:00.010Z", "+01:00", a space for the T), or the basic form
 * 20261121T062000.010Z. false: it is neither. */
bool plx_time_parse(const char *text, uint64_t *ret_time_ns);

#endif
