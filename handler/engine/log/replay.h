/* replay.h - reading a VDI's log: recovery, opening an instant, listing snapshots and labels.
 *
 * Synchronous. A reader works from a copy of the VDI record and never writes, but for recovery; the
 * VDI may be open elsewhere meanwhile, as long as what is read is kept by a snapshot.
 */
#ifndef PLX_REPLAY_H
#define PLX_REPLAY_H

#include "engine/log/log.h"
#include "engine/map/map.h"

/* A segment in memory, as far as it was read: its header, and these bytes. */
struct plx_log_copy {
    uint64_t segment; /* its number; UINT64_MAX: it did not count */
    uint8_t *bytes;
    size_t from, to;
};

/* What several readers of one log have read, so that it is read once, and no more of a segment than
 * they need. For positions before the applied end: what lies there does not change. */
struct plx_log_shelf {
    struct plx_log_copy *copies;
    size_t count, limit; /* what comes behind the limit is read as without a shelf */
};

struct plx_log_reader {
    struct plx_store *store;
    const struct plx_vdi_record *record;
    uint64_t first_segment;
    uint64_t *segments; /* addresses; segments[0] is first_segment */
    size_t count;
    uint64_t beyond;             /* where the segment behind the last one would be, 0: unknown */
    struct plx_log_shelf *shelf; /* may be NULL */
    struct plx_log_copy *copy;   /* of the shelf, that is at hand; NULL: none */
    /* The segment in memory. */
    uint8_t *own, *buffer; /* the copy's, or its own */
    uint64_t loaded;       /* its number, UINT64_MAX: none */
    uint64_t in_buffer;    /* the same, but its header may be damaged */
    struct plx_segment_header header;
    /* Where the next batch is expected. */
    struct plx_log_cursor cursor;
    uint64_t epoch; /* of the last batch read */
    const uint8_t *batch;
    struct plx_batch_header batch_header;
};

/* Loads the index and follows the chain of segments behind it. */
int plx_log_reader_open(struct plx_store *store, const struct plx_vdi_record *record,
                        struct plx_log_reader *ret_reader, struct plx_fault *fault);
/* For a disk that is open: its segments (copied), the first one the record's. Only what is applied
 * may be read. */
int plx_log_reader_of(struct plx_store *store, const struct plx_vdi_record *record,
                      const uint64_t *segments, size_t count, struct plx_log_reader *ret_reader,
                      struct plx_fault *fault);
void plx_log_reader_close(struct plx_log_reader *reader);
/* With room for so many segments, or NOMEM; after all readers that have it were closed. */
int plx_log_shelf_init(struct plx_log_shelf *shelf, size_t limit);
void plx_log_shelf_free(struct plx_log_shelf *shelf);
/* To just behind a key frame. */
void plx_log_reader_seek(struct plx_log_reader *reader, const struct plx_keyframe *keyframe);
/* To the start of the last segment that begins before snapshot seq (or the first retained);
 * NOT_FOUND when the log is empty. The reader's header is that segment's. */
int plx_log_reader_seek_snapshot(struct plx_log_reader *reader, uint64_t seq,
                                 struct plx_fault *fault);
/* To the first batch of a segment that there is. The reader's header is that segment's. */
int plx_log_reader_seek_segment(struct plx_log_reader *reader, uint64_t segment,
                                struct plx_fault *fault);
/* The header of a segment that there is; where the reader stands it goes on. */
int plx_log_reader_header(struct plx_log_reader *reader, uint64_t segment,
                          struct plx_segment_header *ret_header, struct plx_fault *fault);
/* To the start of the segment that holds the newest snapshot taken at or before a time, if there is
 * one (else to the first retained); NOT_FOUND as above. */
int plx_log_reader_seek_time(struct plx_log_reader *reader, uint64_t time_ns,
                             struct plx_fault *fault);
/* 0 and batch, batch_header; NOT_FOUND at the end of the log; other errors. */
int plx_log_reader_next(struct plx_log_reader *reader, struct plx_fault *fault);

/* Calls visit with every record from the reader's position on, until it returns false. */
int plx_log_each_record(struct plx_log_reader *reader,
                        bool (*visit)(void *context, const struct plx_record *record),
                        void *context, struct plx_fault *fault);

/* Replay into a fresh map. until_seq: stop at that snapshot (0: at the end of the log, and what
 * lies behind the durable mark is verified). recover: mark blocks as allocated, and write again
 * what lies behind the mark and is believed; it is durable after the next flush, if none has failed
 * since before the call. */
struct plx_replay_result {
    struct plx_log_cursor end;
    uint64_t size_bytes;
    uint64_t snapshot_ns; /* of the last snapshot seen, 0: none */
    uint64_t batches;
    uint64_t dropped; /* batches behind the first that could not be proven */
    bool written_again;
};
int plx_replay(struct plx_log_reader *reader, const struct plx_keyframe *from, struct plx_map *map,
               uint64_t until_seq, bool recover, struct plx_replay_result *ret_result,
               struct plx_fault *fault);

#endif
