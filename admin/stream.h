/* stream.h - the stream of an incremental backup: what differs between two instants, as a file.
 *
 * Little-endian. A header, then records in order of their offsets, then an end record. Ranges begin
 * at multiples of 4096 bytes and end at one or at the end of the disk; what no record names is the
 * same at both instants. Every checksum is a CRC32C that goes on from the one before, the header's
 * from 0: so no record can be damaged, missing, moved or come from another stream unnoticed. A
 * checksum covers its structure, with the checksum itself as zero, and the data.
 *
 * Header (384 bytes)                  Record (32 bytes)
 *   0 magic "PLXDIFF\n"                 0 type: 1 data, 2 zeroes, 3 end
 *   8 checksum, 12 version              4 checksum
 *  16 from: VDI, 32 seq, 40 time        8 offset    end: records before it
 *           48 size                    16 length    end: bytes of data
 *  56 to:   VDI, 72 seq, 80 time       24 zero      end: bytes of zeroes
 *           88 size                   data: `length` bytes, at most 1 MiB
 *  96 sector size, 100 zero
 * 104 bytes of all ranges             An instant is a VDI's identity, a snapshot's sequence number
 * 112 zero                            and time, and the size of the disk then. From nothing: all
 * 128 name of the VDI, 256 bytes      of `from` is zero.
 */
#ifndef PLX_ADMIN_STREAM_H
#define PLX_ADMIN_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"

#define PLX_STREAM_MAGIC "PLXDIFF\n"

#define PLX_STREAM_VERSION 1u
#define PLX_STREAM_HEADER_BYTES 384u
#define PLX_STREAM_RECORD_BYTES 32u
#define PLX_STREAM_DATA_MAX (1u << 20)

struct plx_stream_instant {
    struct plx_uuid vdi;
    uint64_t seq, time_ns, size_bytes;
};

struct plx_stream_header {
    struct plx_stream_instant from, to; /* from.seq 0: nothing was mapped */
    uint32_t sector_size;
    uint64_t changed_bytes;
    char name[PLX_NAME_MAX + 1]; /* of the virtual disk that `to` is of */
};

/* The label of a copy's snapshot that holds this instant. The time is in it because a number may be
 * given out again: a disk that lost writes has its newest snapshots no more (vdi accept-older). */
#define PLX_STREAM_LABEL 64
void plx_stream_label(const struct plx_stream_instant *instant, char ret_label[PLX_STREAM_LABEL]);

/* What was written or read so far, which is what the next checksum and the end depend on. */
struct plx_stream_state {
    uint32_t checksum;
    uint64_t records, data_bytes, zero_bytes;
    uint64_t end; /* of the last range */
};

/* ---- Writing: encode into out, go on from the state ---- */

void plx_stream_put_header(const struct plx_stream_header *header, struct plx_stream_state *state,
                           uint8_t out[PLX_STREAM_HEADER_BYTES]);
/* bytes NULL: zeroes. The data follows the record in the stream. */
void plx_stream_put_range(struct plx_stream_state *state, uint64_t offset, const uint8_t *bytes,
                          uint64_t length, uint8_t out[PLX_STREAM_RECORD_BYTES]);
void plx_stream_put_end(struct plx_stream_state *state, uint8_t out[PLX_STREAM_RECORD_BYTES]);

/* ---- Reading ---- */

struct plx_stream_reader {
    /* Fills bytes, less only at the end; 0 or an error code. */
    int (*read)(void *context, uint8_t *bytes, size_t length, size_t *ret_got);
    void *context;
    uint8_t *buffer; /* PLX_STREAM_DATA_MAX bytes, the caller's */
    struct plx_stream_header header;
    struct plx_stream_state state;
};

struct plx_stream_range {
    uint64_t offset, length;
    const uint8_t *bytes; /* in the buffer; NULL: zeroes */
};

/* Reads and checks the header. CORRUPT, UNSUPPORTED, or what read() returned. */
int plx_stream_open(struct plx_stream_reader *reader, struct plx_fault *fault);
/* The next range, checked. NOT_FOUND at the end, if all is there and nothing follows. */
int plx_stream_next(struct plx_stream_reader *reader, struct plx_stream_range *ret_range,
                    struct plx_fault *fault);

#endif
