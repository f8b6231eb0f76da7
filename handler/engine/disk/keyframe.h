/* keyframe.h - inside the engine: key frames, the checkpoints of a disk's map.
 *
 * Changes to a disk's map live in memory and in its redo log. A key frame writes the map out whole,
 * as a radix tree on the store, and the disk's record then names that tree and a log position.
 * Recovery starts at that position, so a key frame shortens recovery. It also lets the blocks that
 * died before it be freed, and snapshots are opened from a key frame and the log behind it.
 *
 * A key frame is one task on the loop, one at a time per disk, while requests go on. Its states are
 * numbered in keyframe_steps.c; in short: freeze the changes at the applied log position, merge
 * them into a new tree, index the log's segments, write the allocation bitmaps and flush, flip the
 * record (two slots), log that there is a new key frame, free what nobody needs any more.
 *
 * Order of calls: plx_keyframe_init() once the disk's log and map are there. plx_keyframe_pump()
 * once a turn starts a key frame when one is due or requested. plx_keyframe_done() at the end.
 */
#ifndef PLX_KEYFRAME_H
#define PLX_KEYFRAME_H

#include "engine/log/log.h"
#include "engine/map/tree.h"

struct plx_vdi;

/* A rewind's key frame (rewind.c): the tree that the next key frame names instead of the disk's own
 * map. The map must hold no changes beside its base then, and snapshots must see all of the base.
 * The key frame takes over the new nodes in `made`. */
struct plx_keyframe_detour {
    uint64_t seq;  /* the snapshot that the disk goes back to */
    uint64_t root; /* entry with the read-only bit */
    unsigned levels;
    uint64_t mapped, vouched;
    struct plx_deaths made;
    struct plx_flush_mark flush_mark; /* before these nodes were written */
};

/* History that is let go (reclaim.c) with a key frame. When the key frame's record is durable, the
 * snapshots are gone, the log's segments lie where `moves` says, and the blocks die. */
struct plx_history_drop {
    struct plx_keyframe oldest; /* where history begins; levels 0: where it began before */
    struct plx_deaths blocks;   /* data and nodes */
    struct plx_log_move *moves; /* ordered by segment number */
    size_t move_count;
    uint64_t *snapshots; /* ascending */
    size_t snapshot_count;
    struct plx_flush_mark flush_mark; /* before the history's first write */
};

struct plx_keyframe_op {
    struct plx_task task;
    struct plx_vdi *vdi;
    int state;
    bool running;
    bool wanted; /* a key frame (or another one) is to begin as soon as possible */
    bool quiet;  /* the disk is being closed: the key frame is not announced in the log */
    int error;   /* of the last key frame */
    uint64_t failed_at_ns, begun_ns;
    /* Tasks that wait for the key frame under way, and for one that begins from now on. */
    struct plx_queue waiters, next_waiters;
    struct plx_tree tree;
    struct plx_log_cursor at;   /* the key frame includes all of the log before this position */
    struct plx_keyframe target; /* the key frame that is being made */
    uint64_t old_snap_seq;      /* snapshots taken before the old key frame */
    struct plx_keyframe oldest; /* where history begins, by the new record */
    bool alone;                 /* history begins with `target`: no snapshot is kept (KEYFRAME-3) */
    bool old_begins;            /* history begins with the old key frame */
    bool marks;                 /* the new record has another mark of a ring (FRONT-2) */
    /* History that goes with this key frame and with the next one; reclaim.c owns and waits. */
    struct plx_history_drop *drop, *next_drop;
    struct plx_keyframe_detour *detour; /* a rewind's, for one key frame; rewind.c owns it, waits */
    struct plx_flush_mark flush_mark;   /* before its first write */
    uint64_t index_root;
    struct plx_deaths data_deaths, node_deaths, index_deaths, segment_deaths;
    struct plx_since since;
    struct plx_deaths made;       /* new nodes that no record names yet */
    uint64_t ticket;              /* operations begun before it may read what died (KEYFRAME-4) */
    struct plx_vdi_record record; /* the new one */
    uint8_t *block;               /* two blocks: both slots of a record */
    struct iovec iov;
    struct plx_xfer xfer;
    struct plx_join join;
    struct plx_log_item item;
};

int plx_keyframe_init(struct plx_vdi *vdi);
void plx_keyframe_done(struct plx_vdi *vdi);
/* Asks for a key frame that includes everything applied by now. The task becomes ready when that
 * key frame has ended, with its error. task may be NULL: then nobody waits. */
void plx_keyframe_request(struct plx_vdi *vdi, struct plx_task *task);
/* Asks for such a key frame and waits until it has ended; returns its error. Synchronous. */
int plx_keyframe_run(struct plx_vdi *vdi);
/* Starts a key frame when one is due or was asked for. Called once a turn. */
void plx_keyframe_pump(struct plx_vdi *vdi);
/* Whether a key frame that the log names is gone, because history begins with a later one. The two
 * may have the same position, if nothing but checksums has changed between them. */
bool plx_keyframe_is_past(const struct plx_vdi_record *record, const struct plx_keyframe *keyframe);
/* The rewind that the record's key frame stands for, whether the rewind itself wrote that key frame
 * or recovery did; NULL: it is an ordinary key frame. */
const struct plx_rewind *plx_keyframe_rewind(const struct plx_vdi_record *record);
/* Whether the log must hold snapshots back until it has announced the key frame under way
 * (KEYFRAME-3). */
bool plx_keyframe_goes_first(const struct plx_vdi *vdi);
/* Whether a key frame would leave recovery less to do: the disk has changes, and the last key frame
 * did not fail just now. */
bool plx_keyframe_would_help(const struct plx_vdi *vdi);
/* Whether the key frame under way is past its record: it only waits for the log (announcement) and
 * for operations to end. */
bool plx_keyframe_goes_on(const struct plx_vdi *vdi);
/* For a disk that was just opened: announces the record's key frame, so that snapshots in the
 * current segment are found through it. Runs as the key frame's task. false: not needed, for the
 * log is about to begin a segment, and the segment's header names the key frame. */
bool plx_keyframe_announce(struct plx_vdi *vdi);

#endif
