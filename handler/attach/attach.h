/* attach.h - a store by name: registry, volumes, instance, extents and locks brought together.
 *
 * An attach is one instance's opening of a store. Opening it first recovers what dead instances of
 * this host held: their virtual disks are replayed and closed, their extents taken over (INV-5:
 * dead is proven by instance.h, never assumed).
 *
 * A disk that a command of this host has is waited for (struct plx_attach_options, patience); one
 * that a handler has is not, for that lasts as long as its LUN.
 *
 * Threads: calls may block on registry and store. In a process that serves the store on a loop,
 * the hooks lock and unlock bracket every engine call (the loop's mutex), and registry calls are
 * made without it (INV-4). Calls on one attach are made by one thread at a time, but for
 * plx_attach_store().
 */
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
    bool read_only;        /* nothing is written to the store, nobody recovered */
    bool reopens;          /* see plx_attach_let_go() */
    bool brief;            /* the process ends when it is done: locks are given up with its end */
    bool grows;            /* or writes superblocks again that the device has lost (ATTACH-15) */
    bool registry_only;    /* and read_only: the store's volumes are not opened, but for volume 0 */
    uint64_t cache_bytes;  /* 0: the engine's default */
    void *context;         /* for the hooks; each may be NULL */
    void (*lock)(void *context);
    void (*unlock)(void *context);
    void (*tick)(void *context); /* see struct plx_env */
    void (*idle)(void *context);
    /* Runs the function on another thread, then turns the loop. NULL: run at once. */
    int (*defer)(void *context, void (*function)(void *argument), void *argument);
    void (*event)(void *context, int error_code, const char *text);
    /* On the loop: a write found no room. true: it waits until plx_store_room_made(). */
    bool (*room_wanted)(void *context);
    /* With the lock held: the store has further devices. */
    void (*volumes_changed)(void *context);
    /* What is wanted is another's, who will be through soon: a command of this host, or one that
     * recovers. NULL: there is none, but for volumes and the home page (device.h, tenancy.h). */
    const struct plx_patience *patience;
};

int plx_attach_open(const struct plx_attach_options *options, struct plx_attach **ret_attach,
                    struct plx_fault *fault);
/* The error of a call, with its fault: CORRUPT, and what to do, where a damaged registry is why it
 * failed. attach may be NULL. */
int plx_attach_name_damage(struct plx_attach *attach, int error, struct plx_fault *fault);
/* All VDIs are closed before. Gives the extents back. The attach is gone, whatever is returned. */
int plx_attach_close(struct plx_attach *attach);

/* FENCED, and who has the store now, if another host was found to have taken it. */
int plx_attach_fenced(struct plx_attach *attach, struct plx_fault *fault);

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
    uint64_t quiet_ns; /* engine.h */
    int overwrite;     /* enum plx_overwrite, -1: the VDI's property */
};

/* snapshot NULL: for writing, under the VDI's lock. Else a label, a sequence number or a time, held
 * until it is closed: nobody lets it go meanwhile (holds.c). BUSY: it is just being let go. "0" is
 * the newest state on the store, which nobody keeps for its readers. */
int plx_attach_vdi_open(struct plx_attach *attach, const char *name, const char *snapshot,
                        const struct plx_attach_vdi_options *options, struct plx_vdi **ret_vdi,
                        struct plx_fault *fault);
int plx_attach_vdi_close(struct plx_attach *attach, struct plx_vdi *vdi);
/* With options.reopens: it is closed later, or opened again at no cost. Until then it counts as one
 * that nobody has asked for. An instant is closed, and so is a disk that cannot go on. */
int plx_attach_vdi_leave(struct plx_attach *attach, struct plx_vdi *vdi);
/* With options.reopens the disks that dead instances of this role had open are still open when they
 * have been recovered: opening one costs nothing then. Those that nobody asks for are closed by
 * this (name NULL: all of them, together), or with the attach. */
void plx_attach_let_go(struct plx_attach *attach, const char *name);
/* How many of them there are, and how often one came to them or left them; NULL is fine. */
unsigned plx_attach_unasked(const struct plx_attach *attach, uint64_t *ret_changes);
/* options->slot and parent_slot are filled in here. parent NULL: not a clone. */
int plx_attach_vdi_create(struct plx_attach *attach, const struct plx_vdi_create_options *options,
                          const char *parent, const char *snapshot, struct plx_vdi_info *ret_info,
                          struct plx_fault *fault);
/* lost: one whose record is gone, damaged or older (plx_door_is_gone), and only such a one. */
int plx_attach_vdi_delete(struct plx_attach *attach, const char *name, bool lost,
                          struct plx_fault *fault);
/* A disk that nobody has locked since its lock had this epoch; else EXISTS, and it stays. */
int plx_attach_vdi_delete_untouched(struct plx_attach *attach, const char *name, uint64_t epoch,
                                    struct plx_fault *fault);
/* The operator's word: what is in `lost` (lost.h) is given up, and slots whose record could not be
 * read are free again. EXISTS: one can be read by now. */
int plx_attach_forget_lost(struct plx_attach *attach, size_t *ret_count, struct plx_fault *fault);
/* What goes back with a disk whose record is older than what was written last (doors.h). */
struct plx_older {
    bool older;
    struct plx_registry_written written; /* of its record as it is */
    uint64_t newest;                     /* snapshot that there is */
    struct plx_registry_label *gone;     /* labels of snapshots behind it; to be freed */
    size_t gone_count;
};
int plx_attach_look_at_older(struct plx_attach *attach, const struct plx_registry_vdi *vdi,
                             struct plx_older *ret_older, struct plx_fault *fault);
/* The operator's word: the disk counts as it was looked at. Reads the metadata of all disks, three
 * times. CORRUPT: another disk has blocks of that state by now, or may have, for a part of what
 * leads to its blocks is lost. BUSY: an instance holds an extent with blocks of that state, or
 * collects. watch: as in struct plx_check_options. */
int plx_attach_accept_older(struct plx_attach *attach, const struct plx_registry_vdi *vdi,
                            const struct plx_older *older, const struct plx_watch *watch,
                            struct plx_fault *fault);
int plx_attach_snapshot_resolve(struct plx_attach *attach, const char *name, const char *snapshot,
                                uint64_t *ret_seq, struct plx_fault *fault);
/* A snapshot, as it was asked for, was not found: is there any at all? seq: the number that it
 * would have, 0: nobody knows. Another fault, or what was said already, stays. Returns NOT_FOUND.
 */
int plx_attach_explain_missing(struct plx_attach *attach, const struct plx_registry_vdi *vdi,
                               const char *snapshot, uint64_t seq, struct plx_fault *fault);

/* Changes of an open VDI that the store and the registry both know: the store first, which is the
 * truth. seq 0 removes the label. */
int plx_attach_label(struct plx_attach *attach, struct plx_vdi *vdi, const char *label,
                     uint64_t seq, uint64_t time_ns, struct plx_fault *fault);
int plx_attach_resize(struct plx_attach *attach, struct plx_vdi *vdi, uint64_t size_bytes,
                      struct plx_fault *fault);
/* plx_vdi_set_protection(), and the registry's copy. */
int plx_attach_protect(struct plx_attach *attach, struct plx_vdi *vdi,
                       const struct plx_protection *protection, struct plx_fault *fault);

/* plx_vdi_rewind() to snapshot seq; the state before is labelled before-rewind-TIME, in the store
 * and the registry, which also gets an event. A snapshot of the state behind the rewind follows.
 * *ret_before and the label come back also when it fails after that was taken (seq 0: it was not).
 */
#define PLX_REWIND_LABEL 40 /* with the terminating zero */
int plx_attach_rewind(struct plx_attach *attach, struct plx_vdi *vdi, uint64_t seq,
                      char ret_label[PLX_REWIND_LABEL], struct plx_snapshot_info *ret_before,
                      struct plx_fault *fault);

/* plx_vdi_thin() with one slice of history, keeping what labels name and what others read (kept and
 * kept_count are not looked at). The marks' labels go with their snapshots: each stays as long as
 * its snapshot does, whatever happens. Go on after ret_thinned->upto until it does not grow. */
int plx_attach_thin(struct plx_attach *attach, struct plx_vdi *vdi, const struct plx_thin *thin,
                    struct plx_thinned *ret_thinned, struct plx_fault *fault);

/* The disk looks at the clocks; what it knows of them is kept for the next who opens it. */
void plx_attach_look_at_clock(struct plx_attach *attach, struct plx_vdi *vdi,
                              struct plx_vdi_clock *ret_clock);
/* plx_vdi_resume(), for this and all later openings. */
int plx_attach_resume(struct plx_attach *attach, struct plx_vdi *vdi, struct plx_fault *fault);

/* How something long is done. The hooks may be NULL. progress: done of total (0: not known), in its
 * first part or its second. pause: with neither lock held: others may use the attach until it
 * returns; it should sleep for a moment. interrupted: true ends it with BUSY. */
struct plx_attach_work {
    bool dry_run;    /* only finds */
    uint64_t memory; /* bytes, 0: 256 MiB */
    uint64_t rate;   /* bytes read a second at most, 0: no limit */
    void (*progress)(void *context, bool second, uint64_t done, uint64_t total);
    void (*pause)(void *context);
    bool (*interrupted)(void *context);
    void *context;
};

/* Finds and frees the blocks that no disk uses any more: those of deleted disks, and what crashes
 * left (engine.h, collecting). Beside all I/O, and in slices when the map of one bit a block would
 * be larger than `memory`. What died with an instance that collected is gone on with first.
 * Progress: bytes of metadata, then blocks that are swept. BUSY: another process is collecting, or
 * see plx_collect_begin(). */
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

/* plx_store_dedup(), with collections kept out wherever the store is open. open: of all disks,
 * those that are not open yet are for as long; else of those that are open for writing here. Others
 * are told. BUSY: another process is collecting, or deduplicating; or a collection was broken off
 * and has to be gone on with first. */
struct plx_attach_deduped {
    struct plx_deduped what;
    unsigned elsewhere; /* disks that are open in other processes, or cannot be opened */
    uint64_t nanoseconds;
};
int plx_attach_dedup(struct plx_attach *attach, bool open, const struct plx_attach_work *work,
                     struct plx_attach_deduped *ret_deduped, struct plx_fault *fault);

/* Data blocks that can still be written to new places, as far as `enough` of them. */
int plx_attach_data_room(struct plx_attach *attach, uint64_t enough, uint64_t *ret_blocks,
                         struct plx_fault *fault);

/* With less room than this space is low: protected disks lose their oldest snapshots until there is
 * twice as much. */
uint64_t plx_attach_low_blocks(struct plx_attach *attach);

/* Makes the store larger (plx_store_grow, plx_store_add_volume), then what the registry knows of it
 * and, if it is due, the registry's own room (spans.h); or changes what else takes the same right.
 * BUSY: another process is doing so. Other instances are told afterwards by the caller. */
struct plx_attach_growth {
    const char *path;      /* of a further volume; NULL: those that there are became larger */
    uint64_t create_bytes; /* it is a file, to be made of this size; 0: it exists */
    bool unused;           /* plx_occupied_refuse() */
    bool common;           /* nothing grows: plx_store_allow_common() */
    struct plx_grow how;
};
int plx_attach_grow(struct plx_attach *attach, const struct plx_attach_growth *growth,
                    struct plx_grown *ret_grown, struct plx_fault *fault);
/* Another process has done so. Writes that wait for room go on. */
int plx_attach_volumes_changed(struct plx_attach *attach, struct plx_fault *fault);

/* Unused extents that data leaves to metadata (INV-8). */
uint64_t plx_attach_reserve_extents(struct plx_attach *attach);
/* 0, or NOSPACE: no blocks are to be moved now (PLX_MOVE), for what is left of the store is for
 * writes. */
int plx_attach_move_room(struct plx_attach *attach, struct plx_fault *fault);

/* Of an instant: as below, or so long before now ("-90s"; policy.h has the units). */
bool plx_instant_parse(const char *text, uint64_t now_ns, uint64_t *ret_time_ns);
/* RFC 3339 ("2026-11-21T06:20:00.010Z", "+01:00", a space for the T), or the basic form
 * 20261121T062000.010Z. false: it is neither. */
bool plx_time_parse(const char *text, uint64_t *ret_time_ns);

#endif
