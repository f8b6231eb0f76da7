/* log.h - inside the engine: a disk's redo log, with group commit.
 *
 * The log makes changes durable. It is a chain of segments on the store; each holds batches of
 * records (format.h draws them). An item is what one operation wants logged at once. The log forms
 * waiting items into a batch and writes the batch while the items' data is still in flight. It
 * applies an item to the map and wakes its task, in log order, once the batch, its data and
 * everything before it are durable (LOG-1, INV-1).
 *
 * Order of calls for one item:
 *
 *     item = (struct plx_log_item){.ops = ..., .task = ..., .bytes = ..., .slots = ...};
 *     error = plx_log_reserve(log, &item);     NOMEM: nothing has happened
 *     item.data_pending = ...                  then submit that many data I/Os
 *     plx_log_append(log, &item);
 *     plx_log_data_done(log, &item, error);    for each data I/O that completes
 *                                              the task becomes ready; task->error says how it went
 *
 * The item belongs to its operation and must stay where it is until its task is ready.
 * plx_log_pump() forms the batches, once a turn. A log that cannot be written stops for good
 * (`sticky`): all waiting items fail, and so do later ones, until the disk is opened again.
 *
 * A position is a segment's number times the segment size, plus the offset in that segment. The
 * numbers only grow, and so do positions.
 */
#ifndef PLX_LOG_H
#define PLX_LOG_H

#include "engine/format/format.h"
#include "engine/space/allocator.h"
#include "engine/map/map.h"

#define PLX_BATCHES 8u

struct plx_vdi;
struct plx_log_item;

struct plx_log_item_ops {
    /* Writes the item's records to out and returns their bytes (at most item->bytes); adds their
     * number to *records. Called again when the batch is rewritten (LOG-4). */
    size_t (*encode)(struct plx_log_item *item, uint8_t *out, uint32_t *records);
    void (*apply)(struct plx_log_item *item); /* applies them to the map; runs in log order */
};

struct plx_log_item {
    struct plx_log_item *next;
    const struct plx_log_item_ops *ops;
    struct plx_task *task; /* ready when the item was applied or has failed: task->error */
    size_t bytes;          /* of its records, at most */
    size_t slots;          /* overlay slots that apply may need; see plx_log_reserve() */
    struct plx_flush_mark flush_mark; /* before the item's first I/O */
    /* Data I/Os in flight (of a snapshot: the writes in place that it waits for, LONE-1). Lowered
     * by plx_log_data_done(). */
    unsigned data_pending;
    int data_error;
    bool failed;        /* its data failed: it has no records any more, but keeps its place */
    bool needs_durable; /* is flushed even in write-back mode */
    bool changes;       /* changes the disk's contents or size: an automatic snapshot may follow */
    bool snapshot;      /* is a requested snapshot itself */
    bool patient;       /* waits until log->patience_ns for others to share a batch with */
    /* The ring record that this item carries (LOG-6); seq 0: none. whole: this item completes the
     * record. */
    struct plx_ring_position carried;
    bool whole;
    uint64_t snapshot_seq, snapshot_ns; /* automatic snapshot that follows it; seq 0: none */
    struct plx_batch *batch;            /* NULL: it waits to be formed */
};

/* Where the next batch goes. */
struct plx_log_cursor {
    uint64_t pos;       /* position; at offset 0 of a segment: the segment is not begun */
    uint64_t addr;      /* of the segment that holds pos; 0: none yet */
    uint64_t next_addr; /* of the segment after it; 0: none yet */
    uint64_t seq;       /* the next batch's sequence number */
    uint64_t hash;      /* of the last batch */
    uint64_t snap_seq;  /* number of the last snapshot logged */
    struct plx_ring_position ring; /* of the last carried item logged */
};

struct plx_batch {
    struct plx_log *log;
    struct plx_task task;
    struct plx_join join; /* the batch's own I/O */
    struct plx_xfer header_xfer, xfer;
    struct iovec header_iov, iov;
    uint8_t *buffer, *header; /* header: of the segment that begins with this batch, if one does */
    struct plx_log_item *items, *last_item;
    struct plx_log_cursor before, after;
    unsigned unsettled;    /* 1 for its own I/O, plus the items whose data is in flight */
    size_t snapshot_bytes; /* of the records of automatic snapshots in it */
    struct plx_flush_mark flush_mark; /* the oldest of its items' */
    int state;
    bool needs_durable;
    bool covers; /* its flush began after all batches before it were applied */
};

/* A segment that was rewritten at addr (rewrite.c); addr 0: that number has no segment now. */
struct plx_log_move {
    uint64_t segment, addr;
};

/* Calls from the log to its disk (logged.c). */
struct plx_log_disk {
    /* May the log take this many blocks of metadata? 0: yes. PLX_WAIT: the task is queued; *waits
     * counts how often it was, and is 0 at first. Else why not. */
    int (*room)(struct plx_vdi *vdi, uint64_t blocks, struct plx_task *task, unsigned *waits);
    /* Whether no snapshot may be logged before a key frame has been announced (KEYFRAME-3). */
    bool (*holds_snapshots)(const struct plx_vdi *vdi);
    /* Whether a patient item must not wait any longer. */
    bool (*hurries)(const struct plx_vdi *vdi);
    /* The log takes an automatic snapshot: returns its time. changes: items still wait, which may
     * change something behind the snapshot. Afterwards exactly one of the two calls below follows:
     * it was dropped (its batch was rolled back), or it was taken. durable: the snapshot is known
     * to be durable. */
    uint64_t (*snapshot_ordered)(struct plx_vdi *vdi, uint64_t seq, bool changes);
    void (*snapshot_dropped)(struct plx_vdi *vdi, uint64_t seq, uint64_t time_ns);
    void (*snapshot_taken)(struct plx_vdi *vdi, uint64_t seq, uint64_t time_ns, bool durable);
};

struct plx_log {
    struct plx_vdi *vdi; /* never looked into, only handed on to `disk` */
    const struct plx_log_disk *disk;
    struct plx_map *map;
    const struct plx_vdi_record *record;
    struct plx_store *store;
    bool write_back; /* batches may be acknowledged while the device's write-back cache has them */
    struct plx_log_cursor cursor;
    uint64_t first_segment; /* number of the first retained segment */
    uint64_t *segments;     /* addresses from there on; 0: that number has no segment any more */
    size_t segment_count, segment_capacity;
    size_t changing;     /* items that have slots reserved */
    uint64_t spare_addr; /* a segment allocated ahead, to become next_addr; 0: none */
    struct plx_task spare_task;
    bool spare_waiting;
    unsigned spare_waits;             /* see plx_reserve_wait() */
    int spare_error;                  /* why there is no spare segment */
    struct plx_log_item *head, *tail; /* items that wait to be formed */
    struct plx_batch batches[PLX_BATCHES];
    unsigned first_batch, batch_count; /* a ring: the batches in flight */
    uint64_t durable_seq;              /* all batches up to it are durable, and their data */
    struct plx_log_cursor applied;     /* behind the last applied batch */
    bool undurable;                    /* applied batches may be in the device's cache only */
    struct plx_flush_mark flush_mark;  /* of the first of these */
    bool failing;                      /* a batch failed; roll_back() follows (LOG-4) */
    unsigned retries;
    int sticky;                         /* not 0: the log has stopped for good, with this error */
    int cause;                          /* the I/O error behind that; 0: not known */
    bool ended;                         /* the disk is being closed: nothing is logged any more */
    enum plx_protection_mode snapshots; /* BATCH, WRITE: each batch or write gets a snapshot */
    uint64_t snapshot_ns;               /* time of the last snapshot that was logged */
    uint64_t patience_ns;               /* monotonic: until when the patient item waits */
    uint64_t bytes_since_keyframe;
    uint64_t leave_at; /* at this position the log goes on in a new segment */
    uint8_t *memory;
};

/* Makes a log of what `of` says: whose it is (vdi, disk, map, record, store), and where it goes on
 * (cursor, from the record or from replay). The log takes over of->segments, the retained ones. */
int plx_log_init(struct plx_log *log, const struct plx_log *of);
void plx_log_done(struct plx_log *log);
/* Reserves memory for applying the item (item->slots): 0 or NOMEM. To be called before anything of
 * the item is submitted; afterwards nothing can fail for want of memory (LOG-5). */
int plx_log_reserve(struct plx_log *log, struct plx_log_item *item);
/* Queues an item; its task will become ready. Either plx_log_reserve() was called for the item, or
 * it needs no slots and the caller has set its flush_mark. */
void plx_log_append(struct plx_log *log, struct plx_log_item *item);
/* Queues an item in front of all that wait. */
void plx_log_prepend(struct plx_log *log, struct plx_log_item *item);
/* One of the item's data I/Os has completed. */
void plx_log_data_done(struct plx_log *log, struct plx_log_item *item, int error);
/* Forms batches of the waiting items and submits them. Called once a turn. */
void plx_log_pump(struct plx_log *log);
/* Whether no item waits and no batch is in flight. */
bool plx_log_idle(const struct plx_log *log);
/* Whether nothing but a patient item waits for a batch. */
bool plx_log_has_patience(const struct plx_log *log);
/* When the patient item is logged if no other comes; UINT64_MAX: not before an I/O completes. */
uint64_t plx_log_due_ns(const struct plx_log *log);
/* Whether a further write may be logged. 0: there is a spare segment, or it is being allocated.
 * Else why there is none. */
int plx_log_room(struct plx_log *log);
/* Allocates a spare segment if there is none; waits for an extent in the background. */
void plx_log_want_spare(struct plx_log *log);
/* Allocates the current and the next segment where they are missing, and a spare. Synchronous. */
int plx_log_ensure_segments(struct plx_log *log);
/* Stops the log for good: waiting items fail with the error, and so do all that come. cause: the
 * I/O error behind that, or 0. The first call's error and cause are kept. */
void plx_log_stop(struct plx_log *log, int error, int cause);
/* Stops the log because of an I/O error, and reports that as an event. */
void plx_log_fail(struct plx_log *log, int cause);
/* Gives up the segments before the one that holds pos, and appends their blocks to freed. The
 * caller frees these once a record is durable that does not need the segments. */
struct plx_deaths;
void plx_log_trim(struct plx_log *log, uint64_t pos, struct plx_deaths *freed);
/* A segment now lies at addr (0: it is gone). Appends the blocks where it lay before to freed. */
void plx_log_move(struct plx_log *log, uint64_t segment, uint64_t addr, struct plx_deaths *freed);
/* Makes the next batch begin a new segment. */
void plx_log_leave_segment(struct plx_log *log);
/* The number of the segment that holds a position. */
uint64_t plx_log_segment_of(const struct plx_log *log, uint64_t pos);

#endif
