/* keyframe.h - writing a VDI's map out whole, in the background.
 *
 * One at a time per VDI, as a task on the loop: freeze the changes at the applied log position,
 * merge them into a new tree, index the log's segments, write the bitmaps, flush, flip the VDI
 * record, then log that there is a new key frame and free what is no longer needed. I/O goes on.
 */
#ifndef PLX_KEYFRAME_H
#define PLX_KEYFRAME_H

#include "engine/log/log.h"
#include "engine/map/tree.h"

struct plx_vdi;

/* What the next key frame is to name instead of the map, which must be empty but for its base, all
 * of it seen by snapshots (rewind.c). Its new nodes become the key frame's. */
struct plx_keyframe_detour {
    uint64_t seq;
    uint64_t root; /* read-only */
    unsigned levels;
    uint64_t mapped, vouched;
    struct plx_deaths made;
    uint64_t flush_mark; /* store->flush_failures before they were written */
};

/* Takes effect with a key frame's record: the snapshots are gone, the log lies where the moves say,
 * and the blocks (data and nodes) are free. */
struct plx_history_drop {
    struct plx_keyframe oldest; /* levels 0: history begins where it did */
    struct plx_deaths blocks;
    struct plx_log_move *moves; /* by number */
    size_t move_count;
    uint64_t *snapshots; /* ascending */
    size_t snapshot_count;
    uint64_t flush_mark; /* store->flush_failures before the first write */
};

struct plx_keyframe_op {
    struct plx_task task;
    struct plx_vdi *vdi;
    int state;
    bool running;
    bool wanted; /* start (again) as soon as possible */
    bool quiet;  /* closing: no record about it in the log */
    int error;   /* of the last one */
    uint64_t failed_at_ns, begun_ns;
    struct plx_queue waiters, next_waiters; /* for the one running; for one begun from now on */
    struct plx_tree tree;
    struct plx_log_cursor at; /* the log position that it includes everything before */
    struct plx_keyframe target;
    uint64_t old_snap_seq;      /* of the key frame before */
    struct plx_keyframe oldest; /* the next record's */
    bool alone;                 /* history begins with this one: no snapshot is kept (KEYFRAME-3) */
    bool old_begins;            /* it begins with the key frame before */
    /* What is let go with this key frame and with the next one; the owner waits for it. */
    struct plx_history_drop *drop, *next_drop;
    struct plx_keyframe_detour *detour; /* offered once; the owner waits for it */
    uint64_t flush_mark;                /* store->flush_failures before its first write */
    uint64_t index_root;
    struct plx_deaths data_deaths, node_deaths, index_deaths, segment_deaths;
    struct plx_since since;
    struct plx_deaths made; /* new nodes that no record names yet */
    uint64_t ticket;
    struct plx_vdi_record record;
    uint8_t *block; /* two of them */
    struct iovec iov;
    struct plx_xfer xfer;
    struct plx_join join;
    struct plx_log_item item;
};

int plx_keyframe_init(struct plx_vdi *vdi);
void plx_keyframe_done(struct plx_vdi *vdi);
/* Queues the task until a key frame that includes everything applied by now has ended; its error
 * is the key frame's. task may be NULL: in the background, nobody waits. */
void plx_keyframe_request(struct plx_vdi *vdi, struct plx_task *task);
/* The same, and waits for it. Synchronous. */
int plx_keyframe_run(struct plx_vdi *vdi);
/* Starts one when it is due. Called once a turn. */
void plx_keyframe_pump(struct plx_vdi *vdi);
/* One that the log names and that is gone: it stood before the one with which history begins,
 * perhaps at its very position, for two do so when between them only checksums were voided. */
bool plx_keyframe_is_past(const struct plx_vdi_record *record, const struct plx_keyframe *keyframe);
/* The rewind that the record's key frame is, by recovery's hand or not; NULL: it is none. */
const struct plx_rewind *plx_keyframe_rewind(const struct plx_vdi_record *record);
/* Whether no snapshot may be logged before the announcement of the one under way (KEYFRAME-3). */
bool plx_keyframe_goes_first(const struct plx_vdi *vdi);
/* Whether one would leave recovery less to do: there are changes, and the last one did not fail
 * just now. */
bool plx_keyframe_would_help(const struct plx_vdi *vdi);
/* Whether one under way has nothing left but what the disk's log and its operations have to do. */
bool plx_keyframe_goes_on(const struct plx_vdi *vdi);
/* Logs that the record's key frame exists; needed before a snapshot in a segment that began
 * earlier. The op's task. Returns false when it is not needed. */
bool plx_keyframe_announce(struct plx_vdi *vdi);

#endif
