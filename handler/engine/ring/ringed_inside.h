/* ringed_inside.h - what the files of a disk's front share. RINGED-1 to RINGED-11 are at the top of
 * ringed.c.
 *
 * A record is a change of the disk that was appended to its chain of the ring. It lives until the
 * store has it. An operation is a request in progress; most end when their records are durable.
 */
#ifndef PLX_RINGED_INSIDE_H
#define PLX_RINGED_INSIDE_H

#include <stdlib.h>
#include <string.h>

#include "engine/disk/vdi.h"
#include "engine/ring/ringed.h"
#include "engine/ring/ringed_index.h"

#define PLX_RINGED_MEMORY_DEFAULT (64ull << 20)
#define PLX_RINGED_LAST_BYTES (1ull << 20) /* that are drained while requests wait */
#define PLX_RINGED_AHEAD 16u               /* records that are read back before their turn */
#define PLX_RINGED_STALL_NS 250000000ull   /* without progress: the store does not drain now */

/* ---- Records ---- */

enum plx_ringed_record_state {
    PLX_RINGED_APPENDED,
    PLX_RINGED_DURABLE, /* on the ring */
    PLX_RINGED_CARRIED, /* on its way to the store */
    PLX_RINGED_DRAINED, /* the store has it, durably */
};

struct plx_ringed_record {
    struct plx_ringed *ringed;
    struct plx_ringed_record *next; /* the next one in order */
    enum plx_ringed_record_state state;
    enum plx_ring_record_type type;
    uint64_t block, blocks;     /* WRITE, UNMAP */
    uint64_t snapshot, time_ns; /* SNAPSHOT */
    uint64_t epoch, seq;
    uint64_t done_ns;                   /* when it became durable there, or was found */
    struct plx_ring_place place;        /* on the ring, once it is durable there */
    uint8_t *data;                      /* a WRITE's blocks; NULL: not in memory */
    uint64_t promised;                  /* blocks of the store, until it has them (ALLOC-8) */
    unsigned pins;                      /* users of `data`, which stays in memory for them */
    unsigned failures;                  /* of its data on the store */
    int lost;                           /* not 0: it cannot be read back, because of this error */
    struct plx_ringed_load *load;       /* it is being read back */
    struct plx_ringed_item *item;       /* until it is durable on the ring */
    struct plx_ringed_carrier *carrier; /* while it is carried */
    struct plx_request *answer;         /* requests completed when the store has the record */
    bool automatic;                     /* a snapshot of batch or write (protect.h) */
    bool ahead;                         /* pinned to be carried */
    uint64_t sums[];                    /* WRITE: the hash of each block */
};

struct plx_ringed_item {
    struct plx_ring_item item;
    struct iovec iov;
    struct plx_ringed_record *record;
    struct plx_ringed_op *op; /* waits for it; NULL: nobody does */
};

struct plx_ringed_load {
    struct plx_ring_read read;
    struct plx_ringed_record *record;
};

/* Some blocks of a record that is not in memory, read for one reader. */
struct plx_ringed_part {
    struct plx_ring_read read;
    struct plx_ringed_record *record; /* pinned until done */
    bool done, unwanted;
};

/* ---- Reads through the index ---- */

struct plx_ringed_piece {
    struct plx_ringed_record *record; /* pinned */
    uint64_t block, end;
    struct plx_ringed_part *part; /* if it is read alone */
};

struct plx_ringed_read {
    uint64_t offset, length; /* bytes of the disk */
    struct iovec *iov;
    int iovcnt;
    struct plx_ringed_piece *pieces;
    size_t piece_count, at; /* pieces before it are done */
    struct plx_request store;
    bool store_pending;
    int error; /* and store.fault, if the store's */
};

/* ---- Operations ---- */

enum plx_ringed_op_state {
    PLX_RINGED_LOCK, /* waits for earlier ones on its range, and then for room */
    PLX_RINGED_OLD,  /* reads old contents, or what it compares with */
    PLX_RINGED_READ, /* is a READ */
    PLX_RINGED_SENT, /* waits for its records, or a FLUSH for those before it */
};

struct plx_ringed_op {
    struct plx_ringed_op *next, *previous; /* in order of arrival; or the next free one */
    struct plx_ringed *ringed;
    struct plx_request *request;
    enum plx_ringed_op_state state;
    bool failed;                       /* the ring has not acknowledged one of its records */
    unsigned pending;                  /* records that are not durable on the ring yet */
    int error;                         /* why it ends before it has made all of its records */
    uint64_t flush_seq;                /* waits until all up to it are; 0: for none */
    struct plx_ringed_record *awaited; /* a snapshot's: answered when the store has it; pinned */
    uint64_t promised;   /* blocks of the store, to records that it has not made yet */
    bool compared;       /* a COMPARE_WRITE: all was equal, so it goes on as a write */
    uint64_t done_bytes; /* of the request, appended */
    /* The window that is being made. data: whole blocks, and becomes the record's. */
    uint64_t first_block, blocks, window_bytes;
    uint8_t *data;
    unsigned edges_done; /* the first and last block have been read, if they must be */
    struct plx_ringed_read read;
    struct iovec iov;
};

/* ---- The front ---- */

struct plx_ringed_carrier {
    struct plx_request request;
    struct iovec iov;
    struct plx_ringed *ringed;
    struct plx_ringed_record *record;
    struct plx_ringed_carrier *next; /* free ones */
};

struct plx_ringed_drain {
    struct plx_ringed_record *next; /* to be carried; NULL: none is left */
    struct plx_ringed_carrier *carriers, *free;
    unsigned flight;                   /* that are being carried */
    bool placing;                      /* the last one has not its place in the log's order yet */
    bool cut_short;                    /* the turn was: another one follows at once */
    bool failing;                      /* one failed: when all have ended, it begins anew */
    struct plx_ringed_record *failed;  /* the first that did */
    int error;                         /* why, the last time; 0: one was drained since */
    unsigned attempts;                 /* in vain, in a row */
    uint64_t wait_ns;                  /* between attempts */
    uint64_t resume_ns;                /* not before; 0: at once */
    uint64_t drained_seq;              /* the store has all up to it */
    uint64_t bytes;                    /* drained so far */
    uint64_t records_left, bytes_left; /* acknowledged, not drained */
    uint64_t drained_ns;               /* SCARCE: the last record, or when that began */
    /* When a key frame was asked for, to make room on the ring, and what was drained by then. */
    uint64_t asked_ns, asked_bytes;
    unsigned asked_in_vain;
};

enum plx_ringed_state {
    PLX_RINGED_OFF,
    PLX_RINGED_QUIET, /* on: changes that the disk was handed before end */
    PLX_RINGED_FLUSH, /* on: and become durable */
    PLX_RINGED_PROVE, /* on: the ring gets a proof */
    PLX_RINGED_MARK,  /* on: the record gets its mark, which names it */
    PLX_RINGED_ON,
    PLX_RINGED_SLOW,    /* off: drains, and takes less than it drains */
    PLX_RINGED_EMPTY,   /* off: drains all */
    PLX_RINGED_UNMARK,  /* off: the mark goes */
    PLX_RINGED_STOPPED, /* the disk has stopped: nothing is acknowledged any more */
};

/* ringed_auto.c */
struct plx_ringed_auto {
    bool on;
    uint64_t look_ns; /* the last look */
    /* Moving averages, taken while the ring was off: the age of the oldest change in progress, and
     * the number of changes in parts (RINGED_AUTO-2). */
    uint64_t usual_age_ns, usual_changes;
    unsigned learnt; /* samples in them, at most LEARN */
    /* The oldest change as it was at the last look, and how many there were; 0: none. */
    uint64_t oldest_ns, age_ns;
    unsigned changes;
    bool was_slow;
    uint64_t slow_since_ns, calm_since_ns; /* 0: it is not */
    uint64_t slow_ns;                      /* the last look that found it slow */
    uint64_t retry_ns;                     /* not turned on before */
};

struct plx_ringed {
    struct plx_front front;
    struct plx_ringed_host *host;
    struct plx_ringed *next; /* of the host */
    struct plx_vdi *vdi;
    struct plx_ring_chain *chain;
    enum plx_ringed_state state;
    bool wanted; /* on */
    struct plx_ringed_auto automatic;
    bool anew;    /* turned on again when it is off */
    bool closing; /* nothing is carried any more */
    struct plx_request flush;
    struct plx_task task; /* what the state waits for, but for the flush */
    bool waits;           /* for that, or for the flush; then it ended with this error */
    int error;
    int turn_error;      /* why it could not be turned on */
    uint64_t retry_ns;   /* when to write the mark again; 0: no retry is due */
    unsigned unmarkings; /* failures to remove the mark, in a row */
    struct plx_ring_mark mark;
    struct plx_task remark; /* the mark gets the ring's new set */
    bool remarking;
    uint64_t remark_ns;     /* tried again then; 0: at once */
    uint32_t window_blocks; /* of one WRITE record */
    bool full;              /* the ring is */
    bool scarce;            /* its room is (RINGED_REQUESTS-6) */
    unsigned items;         /* under way on the ring */

    struct plx_ringed_record *first, *last; /* in order */
    /* Numbers of records: the newest one, the last one that is durable on the ring, and the last
     * one that the ring may let go of. */
    uint64_t last_seq, done_seq, released_seq;
    struct plx_ringed_index index;
    uint64_t memory, memory_limit; /* bytes of records' blocks */
    uint8_t *spares;               /* each begins with the address of the next one */
    unsigned spare_count;
    unsigned loads;
    uint64_t oldest_ns; /* done_ns of the first that the store lacks, if there is one */

    struct plx_ringed_op *ops, *free_ops, *oldest, *newest;
    unsigned free_op_count;
    unsigned working; /* operations that are not SENT */
    bool stirred;     /* records have become durable or were drained: look at all operations */
    struct plx_request *waiting, *last_waiting; /* for an operation, or to be let in */
    struct plx_request *orders, *last_order;    /* LABELs */
    struct plx_request *direct;                 /* it is to go to the disk itself; NULL: none is */
    bool directing;        /* some are under way there, or have ended and nobody looked */
    bool directs_alone;    /* the one that is under way lets none go along */
    bool no_memory;        /* an operation waits for memory */
    uint64_t slow_bytes;   /* SLOW, or scarce: appended since that began */
    uint64_t slow_drained; /* drain.bytes then */
    bool batch_changed;    /* BATCH: something was appended since the last snapshot */
    struct plx_ringed_drain drain;
};

struct plx_ringed_host {
    struct plx_loop_part part;
    struct plx_store *store;
    struct plx_ring *ring;
    struct plx_ringed *disks;
    uint64_t spare_blocks; /* of the store, that are to be had at once */
    bool stirred;          /* something was done in this turn */
};

static inline uint64_t plx_ringed_now(const struct plx_ringed *ringed)
{
    return ringed->vdi->store->env->monotonic_ns(ringed->vdi->store->env);
}

static inline bool plx_ringed_is_marked(const struct plx_vdi *vdi)
{
    return plx_ring_is_marked(&vdi->mark) || plx_ring_is_marked(&vdi->record.mark);
}

static inline struct plx_ring_info plx_ringed_ring_info(const struct plx_ringed_host *host)
{
    struct plx_ring_info info;

    plx_ring_get_info(host->ring, &info);
    return info;
}

/* Of the records' blocks, with those that are read back before their turn. */
static inline uint64_t plx_ringed_memory_most(const struct plx_ringed *ringed)
{
    return ringed->memory_limit + PLX_RINGED_AHEAD * PLX_RING_WRITE_MAX * PLX_BLOCK_SIZE;
}

/* What is appended from now on is compared with what is drained from now on. */
static inline void plx_ringed_pace(struct plx_ringed *ringed)
{
    ringed->slow_bytes = 0;
    ringed->slow_drained = ringed->drain.bytes;
}

/* Until when writers wait for what is drained to make room (RINGED_REQUESTS-6). */
static inline uint64_t plx_ringed_stalled_ns(const struct plx_ringed *ringed)
{
    return ringed->drain.drained_ns + PLX_RINGED_STALL_NS;
}

/* Whether changes have to wait now. */
static inline bool plx_ringed_holds(const struct plx_ringed *ringed)
{
    return (ringed->state != PLX_RINGED_ON && ringed->state != PLX_RINGED_SLOW &&
            ringed->state != PLX_RINGED_STOPPED) ||
           ringed->direct || ringed->directing; /* RINGED_REQUESTS-3 */
}

/* ---- ringed_records.c ---- */

/* A record with memory for its blocks, if it is a WRITE and data is NULL; else it takes data over,
 * and can be put into the index. NULL: out of memory. */
struct plx_ringed_record *plx_ringed_record_new(struct plx_ringed *ringed,
                                                enum plx_ring_record_type type, uint64_t block,
                                                uint64_t blocks, uint8_t *data);
/* Memory for blocks, aligned to one; NULL: there is none. */
uint8_t *plx_ringed_blocks_get(struct plx_ringed *ringed, uint64_t blocks);
void plx_ringed_blocks_put(struct plx_ringed *ringed, uint8_t *memory, uint64_t blocks);
/* It is the newest one now. seq, epoch and the like are set. */
void plx_ringed_record_add(struct plx_ringed_record *record);
void plx_ringed_pin(struct plx_ringed_record *record);
void plx_ringed_unpin(struct plx_ringed_record *record);
/* 0: its blocks are in memory, and it is pinned by the caller. PLX_WAIT: they are being read; ask
 * again. Else why they cannot be had. */
int plx_ringed_load(struct plx_ringed_record *record);
/* Reads blocks of a record that is not in memory, and leaves the rest where it is. NULL: out of
 * memory. */
struct plx_ringed_part *plx_ringed_part_begin(struct plx_ringed_record *record, uint64_t block,
                                              uint64_t blocks);
void plx_ringed_part_end(struct plx_ringed_part *part); /* at any time; or NULL */
/* The store has it. */
void plx_ringed_record_drained(struct plx_ringed_record *record);
/* Frees records at the beginning that nobody needs; the ring may let go of what the disk's record
 * says that it has. */
void plx_ringed_records_sweep(struct plx_ringed *ringed);
void plx_ringed_records_free(struct plx_ringed *ringed); /* all */
/* Discards the records after this number, which will never be carried: they were not acknowledged
 * and the store has all earlier ones, or the disk is being closed. */
void plx_ringed_records_cut(struct plx_ringed *ringed, uint64_t after_seq);
uint64_t plx_ringed_record_bytes(const struct plx_ringed_record *record);

/* ---- ringed_read.c ---- */

/* Copies bytes between memory and iovecs; plain NULL: zeroes to the iovecs. */
void plx_ringed_to_iov(const struct iovec *iov, int iovcnt, uint64_t skip, const void *plain,
                       size_t bytes);
void plx_ringed_from_iov(const struct iovec *iov, int iovcnt, uint64_t skip, void *plain,
                         size_t bytes);
/* Whether the ring has any of these blocks. */
bool plx_ringed_overlaps(const struct plx_ringed *ringed, uint64_t offset, uint64_t length);
/* Begins a read whose offset, length, iov and iovcnt are set. 0 or NOMEM. */
int plx_ringed_read_begin(struct plx_ringed *ringed, struct plx_ringed_read *read);
/* True: it has ended, see read->error. */
bool plx_ringed_read_step(struct plx_ringed *ringed, struct plx_ringed_read *read);
/* Gives back what it holds. Nothing of it may be under way. */
void plx_ringed_read_end(struct plx_ringed_read *read);

/* ---- ringed_append.c ---- */

int plx_ringed_ops_init(struct plx_ringed *ringed);
void plx_ringed_ops_done(struct plx_ringed *ringed);
/* There is a free one. It is a change or a snapshot that has not begun yet, until it is said to be
 * something else: a read (0 or NOMEM), or a flush. promised: blocks that the store has promised to
 * it. */
struct plx_ringed_op *plx_ringed_op_begin(struct plx_ringed *ringed, struct plx_request *request,
                                          uint64_t promised);
int plx_ringed_op_begin_read(struct plx_ringed_op *op);
void plx_ringed_op_begin_flush(struct plx_ringed_op *op);
/* Takes steps until it waits or has ended. */
void plx_ringed_op_run(struct plx_ringed_op *op);
/* A SNAPSHOT: its record does not belong to it any more. */
void plx_ringed_op_leave_record(struct plx_ringed_op *op);
/* Returns its request, which the caller completes or hands on. */
struct plx_request *plx_ringed_op_end(struct plx_ringed_op *op);
/* A request has ended that went to the disk itself: the automatic snapshot behind it
 * (PLX_PROTECT_WRITE; the other one is told of it). False: out of memory; ask again. */
bool plx_ringed_direct_snapshot(struct plx_ringed *ringed);
/* The automatic snapshot behind what was appended in this turn (PLX_PROTECT_BATCH). */
void plx_ringed_batch_snapshot(struct plx_ringed *ringed);

/* ---- ringed_requests.c ---- */

/* The front's take(). */
bool plx_ringed_take(struct plx_front *front, struct plx_request *request);
/* Starts what waits, and moves on what works. */
void plx_ringed_requests_pump(struct plx_ringed *ringed);
/* Whether no request can still change the disk: each is acknowledged, waits, or has failed. */
bool plx_ringed_requests_rest(const struct plx_ringed *ringed);
/* Hands all that was not acknowledged to the disk, in order of arrival, as if it had come now. */
void plx_ringed_requests_pass(struct plx_ringed *ringed);
/* Completes the calls that wait while something waits for history (RINGED_REQUESTS-5). */
void plx_ringed_calls_fail(struct plx_ringed *ringed);
/* Completes all that was not acknowledged, or not answered, with this error. Nothing that they wait
 * for may be under way on the ring. */
void plx_ringed_requests_fail(struct plx_ringed *ringed, int error);

/* ---- ringed_drain.c ---- */

int plx_ringed_drain_init(struct plx_ringed *ringed);
void plx_ringed_drain_done(struct plx_ringed *ringed);
void plx_ringed_drain_pump(struct plx_ringed *ringed);
/* Completes what waits for the store to have the record. */
void plx_ringed_answer(struct plx_ringed_record *record, int error);
/* Fails all requests that wait for the store to have records. */
void plx_ringed_answers_fail(struct plx_ringed *ringed, int error);
/* Whether the store has all that was acknowledged, and nothing is on its way to ring or store. */
bool plx_ringed_is_drained(const struct plx_ringed *ringed);

/* ---- ringed.c ---- */

void plx_ringed_front_init(struct plx_ringed *ringed);
/* plx_ringed_turn(), and the setting stays automatic if it is. */
void plx_ringed_want(struct plx_ringed *ringed, bool on);
/* It waits for a proof, which the ring has now or has no room for. */
bool plx_ringed_is_proven(const struct plx_ringed *ringed);
/* One turn of the loop, for synchronous calls. */
void plx_ringed_run(struct plx_ringed *ringed);

/* ---- ringed_auto.c ---- */

void plx_ringed_auto_look(struct plx_ringed *ringed); /* once a turn */

#endif
