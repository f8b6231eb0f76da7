/* replay.h - inside the engine: a disk's log, read: for recovery, to open a snapshot, to list
 * snapshots and labels.
 *
 * A reader walks a log batch by batch. It works from a copy of the disk's record, so the disk may
 * be open elsewhere meanwhile, as long as a snapshot keeps what is read. A reader never writes,
 * except that recovery writes again what it believes (REPLAY-4). All calls are synchronous.
 *
 * To replay a log from a key frame, which is how a disk is recovered:
 *
 *     plx_log_reader_open(store, record, &reader, fault);
 *     plx_replay(&reader, &record->keyframe, map, 0, true, &result, fault);
 *     plx_log_reader_close(&reader);
 *
 * To look at records, from a place of one's choice:
 *
 *     plx_log_reader_open(...); plx_log_reader_seek_snapshot(&reader, seq, fault);
 *     plx_log_each_record(&reader, visit, context, fault);
 *     plx_log_reader_close(&reader);
 *
 * `record` must stay where it is until the reader is closed. Errors are codes of error.def, with
 * the sentence in *fault; CORRUPT: the log is damaged, or, beside a live owner, it has moved on.
 */
#ifndef PLX_REPLAY_H
#define PLX_REPLAY_H

#include "engine/log/log.h"
#include "engine/map/map.h"

/* A segment in memory: its header, and the bytes from..to. The rest was not read and is zero. */
struct plx_log_copy {
    uint64_t segment; /* its number; UINT64_MAX: this copy is void */
    uint8_t *bytes;
    size_t from, to;
};

/* Segments that several readers of one log share in memory, so that each is read once, and no more
 * of it than they need (REPLAY-7). Only for positions before the applied end of the log, which do
 * not change any more. */
struct plx_log_shelf {
    struct plx_log_copy *copies;
    size_t count, limit; /* when the shelf is full, further segments are read as without one */
};

struct plx_log_reader {
    struct plx_store *store;
    const struct plx_vdi_record *record;
    uint64_t first_segment;
    uint64_t *segments; /* addresses from first_segment on; 0: that number has no segment */
    size_t count;
    uint64_t beyond;             /* address of the segment after the last one; 0: unknown */
    struct plx_log_shelf *shelf; /* may be NULL */
    struct plx_log_copy *copy;   /* the segment in memory, if the shelf has it; else NULL */
    /* The segment in memory. */
    uint8_t *own, *buffer; /* buffer: the copy's bytes, or `own` */
    uint64_t loaded;       /* its number, if its header is valid; UINT64_MAX: none */
    uint64_t in_buffer;    /* its number, even if its header is damaged; UINT64_MAX: none */
    struct plx_segment_header header;
    /* Where the next batch is expected. */
    struct plx_log_cursor cursor;
    uint64_t epoch; /* of the last batch read */
    const uint8_t *batch;
    struct plx_batch_header batch_header;
};

/* Finds a log's segments: by the record's index, then by the chain of headers behind it. */
int plx_log_reader_open(struct plx_store *store, const struct plx_vdi_record *record,
                        struct plx_log_reader *ret_reader, struct plx_fault *fault);
/* A reader of a disk that is open here. `segments` are the addresses from the record's first
 * segment on, and are copied. Only batches that were applied may be read. */
int plx_log_reader_of(struct plx_store *store, const struct plx_vdi_record *record,
                      const uint64_t *segments, size_t count, struct plx_log_reader *ret_reader,
                      struct plx_fault *fault);
void plx_log_reader_close(struct plx_log_reader *reader);
/* A shelf with room for `limit` segments, or NOMEM. To be freed after the readers that use it were
 * closed. */
int plx_log_shelf_init(struct plx_log_shelf *shelf, size_t limit);
void plx_log_shelf_free(struct plx_log_shelf *shelf);
/* Seeking says where plx_log_reader_next() goes on. Here: just behind a key frame. */
void plx_log_reader_seek(struct plx_log_reader *reader, const struct plx_keyframe *keyframe);
/* At the start of the last segment that begins before snapshot seq, or else of the first retained
 * one. NOT_FOUND: the log is empty. reader->header is that segment's. */
int plx_log_reader_seek_snapshot(struct plx_log_reader *reader, uint64_t seq,
                                 struct plx_fault *fault);
/* At the first batch of an existing segment. reader->header is that segment's. */
int plx_log_reader_seek_segment(struct plx_log_reader *reader, uint64_t segment,
                                struct plx_fault *fault);
/* Reads the header of an existing segment; the reader's position stays. */
int plx_log_reader_header(struct plx_log_reader *reader, uint64_t segment,
                          struct plx_segment_header *ret_header, struct plx_fault *fault);
/* At the start of the segment that holds the newest snapshot taken at or before a time; without any
 * such snapshot, of the first retained segment. NOT_FOUND: the log is empty. */
int plx_log_reader_seek_time(struct plx_log_reader *reader, uint64_t time_ns,
                             struct plx_fault *fault);
/* The next batch, in reader->batch and ->batch_header. NOT_FOUND: the log ends here. */
int plx_log_reader_next(struct plx_log_reader *reader, struct plx_fault *fault);

/* Calls visit with each record of the batch that was read last, until visit returns an error, which
 * is then returned. */
int plx_log_batch_records(const struct plx_log_reader *reader,
                          int (*visit)(void *context, const struct plx_record *record),
                          void *context, struct plx_fault *fault);
/* Calls visit with every record from the reader's position on, until visit returns false. The end
 * of the log is no error. */
int plx_log_each_record(struct plx_log_reader *reader,
                        bool (*visit)(void *context, const struct plx_record *record),
                        void *context, struct plx_fault *fault);

struct plx_replay_result {
    struct plx_log_cursor end;
    uint64_t size_bytes;
    uint64_t snapshot_ns; /* time of the last snapshot that was applied; 0: none */
    /* The last snapshots that were applied, those behind undated_after, have times that are a
     * nanosecond apart (WITNESS-9). */
    bool undated;
    uint64_t undated_after;
    uint64_t batches;   /* that were applied */
    uint64_t dropped;   /* batches from the first one that did not match its checksums */
    bool written_again; /* something was (REPLAY-4) */
};
/* Applies the log behind the key frame `from` to a fresh map.
 *
 *   until_seq  0: to the end of the log; data behind the durable mark is verified (REPLAY-2).
 *              Else: up to this snapshot, data unverified; NOT_FOUND: the log does not have it.
 *   recover    Marks the blocks as allocated, and writes again what it believes behind the mark.
 *              That is durable after the next flush, if no flush has failed since before the call.
 */
int plx_replay(struct plx_log_reader *reader, const struct plx_keyframe *from, struct plx_map *map,
               uint64_t until_seq, bool recover, struct plx_replay_result *ret_result,
               struct plx_fault *fault);

#endif
