/* log.h - a VDI's redo log: group commit of records, in parallel with the data they name.
 *
 * An item is what one operation wants logged at once. Items are formed into batches, batches are
 * written while the items' data is still on its way, and an item is applied and its task woken,
 * in log order, when its batch, its data and everything before it are durable (INV-1).
 */
#ifndef PLX_LOG_H
#define PLX_LOG_H

#include "engine/format/format.h"
#include "engine/loop/store.h"
#include "engine/map/map.h"

#define PLX_BATCHES 8u

struct plx_vdi;
struct plx_log_item;

struct plx_log_item_ops {
    /* Writes the records, returns their bytes (at most item->bytes); counts them in *records. */
    size_t (*encode)(struct plx_log_item *item, uint8_t *out, uint32_t *records);
    void (*apply)(struct plx_log_item *item); /* to the map; runs in log order */
};

struct plx_log_item {
    struct plx_log_item *next;
    const struct plx_log_item_ops *ops;
    struct plx_task *task; /* ready when applied, or failed: task->error */
    size_t bytes;          /* of records, at most */
    size_t slots;          /* overlay slots that apply may need; see plx_log_reserve() */
    uint64_t flush_mark;   /* store->flush_failures before its first I/O */
    /* Data I/Os under way, or what a snapshot waits for; lowered through plx_log_data_done. */
    unsigned data_pending;
    int data_error;
    bool failed;        /* data_error took its records away; it keeps its place in the log */
    bool needs_durable; /* wait for the device's flush even in write-back mode */
    bool changes;       /* the disk's contents or size: an automatic snapshot may follow */
    bool snapshot;      /* is one itself */
    bool patient;       /* waits for others to share a batch with, until log->patience_ns */
    uint64_t snapshot_seq, snapshot_ns; /* the one that follows it in its batch; 0: none */
    struct plx_batch *batch;
};

/* Where the next batch goes. */
struct plx_log_cursor {
    uint64_t pos;       /* log position; offset 0: the segment is not begun */
    uint64_t addr;      /* of the segment holding pos, 0: none yet */
    uint64_t next_addr; /* of the one after it, 0: none yet */
    uint64_t seq;       /* of the next batch */
    uint64_t hash;      /* of the last batch */
    uint64_t snap_seq;  /* snapshots logged before */
};

struct plx_batch {
    struct plx_log *log;
    struct plx_task task;
    struct plx_join join; /* log I/O */
    struct plx_xfer header_xfer, xfer;
    struct iovec header_iov, iov;
    uint8_t *buffer, *header; /* header: of a segment that begins with this batch */
    struct plx_log_item *items, *last_item;
    struct plx_log_cursor before, after;
    unsigned unsettled;    /* the log I/O, and items whose data is under way */
    size_t snapshot_bytes; /* of the records that automatic snapshots have in it */
    uint64_t flush_mark;   /* the oldest of its items' */
    int state;
    bool needs_durable;
    bool held; /* its flush began when all before it were applied */
};

/* A log segment that was written anew elsewhere; addr 0: there is none of that number any more. */
struct plx_log_move {
    uint64_t segment, addr;
};

/* What the log asks of the disk whose log it is, and tells it. */
struct plx_log_disk {
    /* So many blocks of metadata may be taken: 0, PLX_WAIT (the task is queued; *waits: how often,
     * 0 at first), or why not. */
    int (*room)(struct plx_vdi *vdi, uint64_t blocks, struct plx_task *task, unsigned *waits);
    /* No snapshot may be logged before a key frame has been announced. */
    bool (*holds_snapshots)(const struct plx_vdi *vdi);
    /* What is patient is not to wait any longer. */
    bool (*hurries)(const struct plx_vdi *vdi);
    /* A snapshot that the log takes by itself: its time. changes: what waits may change something
     * behind it. Then it is dropped, or taken; durable: for certain. */
    uint64_t (*snapshot_ordered)(struct plx_vdi *vdi, uint64_t seq, bool changes);
    void (*snapshot_dropped)(struct plx_vdi *vdi, uint64_t seq, uint64_t time_ns);
    void (*snapshot_taken)(struct plx_vdi *vdi, uint64_t seq, uint64_t time_ns, bool durable);
};

struct plx_log {
    struct plx_vdi *vdi; /* only handed on to: */
    const struct plx_log_disk *disk;
    struct plx_map *map;
    const struct plx_vdi_record *record;
    struct plx_store *store;
    bool write_back; /* what is acknowledged need not be durable */
    struct plx_log_cursor cursor;
    uint64_t first_segment; /* retained */
    uint64_t *segments;     /* addresses of first_segment...; 0: none of that number any more */
    size_t segment_count, segment_capacity;
    size_t changing;     /* items that have slots reserved */
    uint64_t spare_addr; /* allocated ahead for next_addr */
    struct plx_task spare_task;
    bool spare_waiting;
    unsigned spare_waits;             /* plx_reserve_wait() */
    int spare_error;                  /* why there is no spare */
    struct plx_log_item *head, *tail; /* waiting to be formed */
    struct plx_batch batches[PLX_BATCHES];
    unsigned first_batch, batch_count; /* ring of those in flight */
    uint64_t durable_seq;              /* everything up to it is durable, data too */
    struct plx_log_cursor applied;     /* after the last applied batch */
    bool undurable;                    /* applied batches may lie in the device's cache */
    uint64_t flush_mark;               /* of the first of those */
    bool failing;
    unsigned retries;
    int sticky;                         /* set for good after the log could not be written */
    int cause;                          /* what kept it from being written; 0: not known */
    bool ended;                         /* for good: the disk is closed, and begins a new one */
    enum plx_protection_mode snapshots; /* BATCH or WRITE: they end batches, or follow writes */
    uint64_t snapshot_ns;               /* time of the last snapshot that was logged */
    uint64_t patience_ns;               /* monotonic: how long the patient item waits */
    uint64_t bytes_since_keyframe;
    uint64_t leave_at; /* from this position the log goes on in a new segment */
    uint8_t *memory;
};

/* of: whose log it is (vdi, disk, map, record, store), and where it goes on: cursor, from the
 * record or from replay; first_segment, segments, segment_count: the retained ones, taken over. */
int plx_log_init(struct plx_log *log, const struct plx_log *of);
void plx_log_done(struct plx_log *log);
/* Makes room in memory for what applying the item may need (item->slots): 0 or NOMEM. Before
 * anything of it is submitted; from then on nothing can fail for want of memory. */
int plx_log_reserve(struct plx_log *log, struct plx_log_item *item);
/* Queues an item; its task will become ready. plx_log_reserve() was called for it, or it needs no
 * slots and has its flush_mark. */
void plx_log_append(struct plx_log *log, struct plx_log_item *item);
/* The same, before all that waits. */
void plx_log_prepend(struct plx_log *log, struct plx_log_item *item);
/* One of the item's data I/Os has completed. */
void plx_log_data_done(struct plx_log *log, struct plx_log_item *item, int error);
/* Forms and submits batches from what waits. Called once a turn. */
void plx_log_pump(struct plx_log *log);
bool plx_log_idle(const struct plx_log *log);
/* Whether all that waits for a batch is a patient item. */
bool plx_log_has_patience(const struct plx_log *log);
/* When the patient item is logged if nothing comes; UINT64_MAX: not before something completes. */
uint64_t plx_log_due_ns(const struct plx_log *log);
/* Whether a further write may be logged: 0, a segment is there to go on in (or on its way); else
 * why there is none. */
int plx_log_room(struct plx_log *log);
/* Tries to have a spare segment at hand; waits for an extent in the background. */
void plx_log_want_spare(struct plx_log *log);
/* Makes sure that the current and the next segment exist, and a spare. Synchronous. */
int plx_log_ensure_segments(struct plx_log *log);
/* Stops the log for good: what waits fails with the error, and so does all that comes. cause: the
 * I/O error behind that, or 0; the first one is kept. */
void plx_log_stop(struct plx_log *log, int error, int cause);
/* Stops it because of an I/O error, and says so. */
void plx_log_fail(struct plx_log *log, int cause);
/* Gives up the segments before pos (exclusive of the one that holds it); the caller frees them
 * once that is durable. Appends their addresses to freed. */
struct plx_deaths;
void plx_log_trim(struct plx_log *log, uint64_t pos, struct plx_deaths *freed);
/* A segment was written anew elsewhere (addr 0: it is not needed any more). */
void plx_log_move(struct plx_log *log, uint64_t segment, uint64_t addr, struct plx_deaths *freed);
/* The next batch begins a new segment. */
void plx_log_leave_segment(struct plx_log *log);
uint64_t plx_log_segment_of(const struct plx_log *log, uint64_t pos);

#endif
