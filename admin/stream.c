/* stream.c - see stream.h.
 *
 * STREAM-1  The reader hands out a range only after its checksum has been verified and the range
 *     lies within the disk. So a caller gets a range whole and right, or not at all.
 */
#include "stream.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/format/format.h"
#include "registry/names.h"

static const uint8_t magic[8] = PLX_STREAM_MAGIC;

enum {
    RECORD_DATA = 1,
    RECORD_ZERO = 2,
    RECORD_END = 3,
};

static void put(uint8_t *at, unsigned bytes, uint64_t value)
{
    for (unsigned i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> 8 * i);
}

static uint64_t get(const uint8_t *at, unsigned bytes)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}

static bool all_zero(const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i])
            return false;
    return true;
}

void plx_stream_label(const struct plx_stream_instant *instant, char ret_label[PLX_STREAM_LABEL])
{
    uint64_t word = 0;

    for (unsigned i = 0; i < 8; i++)
        word = word << 8 | instant->vdi.b[i];
    snprintf(ret_label, PLX_STREAM_LABEL, "import-%016" PRIx64 "-%" PRIu64 "-%" PRIx64, word,
             instant->seq, instant->time_ns);
}

/* ---- Writing ---- */

static void put_instant(uint8_t *at, const struct plx_stream_instant *instant)
{
    memcpy(at, instant->vdi.b, sizeof instant->vdi.b);
    put(at + 16, 8, instant->seq);
    put(at + 24, 8, instant->time_ns);
    put(at + 32, 8, instant->size_bytes);
}

void plx_stream_put_header(const struct plx_stream_header *header, struct plx_stream_state *state,
                           uint8_t out[PLX_STREAM_HEADER_BYTES])
{
    memset(out, 0, PLX_STREAM_HEADER_BYTES);
    memcpy(out, magic, sizeof magic);
    put(out + 12, 4, PLX_STREAM_VERSION);
    put_instant(out + 16, &header->from);
    put_instant(out + 56, &header->to);
    put(out + 96, 4, header->sector_size);
    put(out + 104, 8, header->changed_bytes);
    memcpy(out + 128, header->name, strlen(header->name));
    *state = (struct plx_stream_state){.checksum = plx_crc32c(out, PLX_STREAM_HEADER_BYTES)};
    put(out + 8, 4, state->checksum);
}

static void put_record(struct plx_stream_state *state, unsigned type, const uint64_t words[3],
                       const uint8_t *bytes, uint8_t out[PLX_STREAM_RECORD_BYTES])
{
    memset(out, 0, PLX_STREAM_RECORD_BYTES);
    put(out, 4, type);
    for (unsigned i = 0; i < 3; i++)
        put(out + 8 + 8 * (size_t)i, 8, words[i]);
    state->checksum = plx_crc32c_more(state->checksum, out, PLX_STREAM_RECORD_BYTES);
    if (bytes)
        state->checksum = plx_crc32c_more(state->checksum, bytes, words[1]);
    put(out + 4, 4, state->checksum);
}

static void count(struct plx_stream_state *state, uint64_t offset, uint64_t length, bool data)
{
    state->records++;
    *(data ? &state->data_bytes : &state->zero_bytes) += length;
    state->end = offset + length;
}

void plx_stream_put_range(struct plx_stream_state *state, uint64_t offset, const uint8_t *bytes,
                          uint64_t length, uint8_t out[PLX_STREAM_RECORD_BYTES])
{
    put_record(state, bytes ? RECORD_DATA : RECORD_ZERO, (uint64_t[]){offset, length, 0}, bytes,
               out);
    count(state, offset, length, bytes != NULL);
}

void plx_stream_put_end(struct plx_stream_state *state, uint8_t out[PLX_STREAM_RECORD_BYTES])
{
    put_record(state, RECORD_END,
               (uint64_t[]){state->records, state->data_bytes, state->zero_bytes}, NULL, out);
}

/* ---- Reading ---- */

static int damaged(struct plx_fault *fault, const char *what)
{
    return plx_fault_set(fault, PLX_ERR_CORRUPT,
                         "the stream %s; make another one with 'vdi export-diff'", what);
}

/* What should have written it has failed, and nothing is damaged. */
static int empty(struct plx_fault *fault)
{
    return plx_fault_set(fault, PLX_ERR_INVALID,
                         "the stream is empty; did the 'vdi export-diff' that should write it "
                         "fail?");
}

static int read_exactly(struct plx_stream_reader *reader, uint8_t *bytes, size_t length,
                        struct plx_fault *fault)
{
    size_t got = 0;
    int error = reader->read(reader->context, bytes, length, &got);

    return error ? error : got == length ? 0 : damaged(fault, "ends too early");
}

static bool size_valid(uint64_t bytes, uint32_t sector_size)
{
    return bytes >= PLX_VDI_SIZE_MIN && bytes <= PLX_VDI_SIZE_MAX && bytes % sector_size == 0;
}

static void get_instant(const uint8_t *at, struct plx_stream_instant *ret)
{
    memcpy(ret->vdi.b, at, sizeof ret->vdi.b);
    ret->seq = get(at + 16, 8);
    ret->time_ns = get(at + 24, 8);
    ret->size_bytes = get(at + 32, 8);
}

static bool header_plausible(const uint8_t *bytes, const struct plx_stream_header *header)
{
    char why[300];

    return (header->sector_size == 512 || header->sector_size == 4096) && header->to.seq &&
           header->to.seq <= PLX_COUNTER_MAX && header->from.seq <= PLX_COUNTER_MAX &&
           size_valid(header->to.size_bytes, header->sector_size) &&
           header->changed_bytes <= header->to.size_bytes &&
           (header->from.seq ? size_valid(header->from.size_bytes, header->sector_size)
                             : all_zero(bytes + 16, 40)) &&
           all_zero(bytes + 100, 4) && all_zero(bytes + 112, 16) &&
           all_zero(bytes + 128 + strlen(header->name), 256 - strlen(header->name)) &&
           plx_name_check("vdi", header->name, why, sizeof why) == 0;
}

int plx_stream_open(struct plx_stream_reader *reader, struct plx_fault *fault)
{
    struct plx_stream_header *header = &reader->header;
    uint8_t bytes[PLX_STREAM_HEADER_BYTES];
    uint32_t checksum;
    size_t got = 0;
    int error = reader->read(reader->context, bytes, sizeof bytes, &got);

    if (error || got < sizeof bytes)
        return error ? error : got ? damaged(fault, "ends too early") : empty(fault);
    if (memcmp(bytes, magic, sizeof magic))
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "this is no stream of differences; 'vdi export-diff' makes one, and "
                             "'vdi import' takes raw images");
    if (get(bytes + 12, 4) != PLX_STREAM_VERSION)
        return plx_fault_set(
            fault, PLX_ERR_UNSUPPORTED,
            "the stream has version %u, this program reads version %u; use a newer "
            "one",
            (unsigned)get(bytes + 12, 4), PLX_STREAM_VERSION);
    checksum = (uint32_t)get(bytes + 8, 4);
    put(bytes + 8, 4, 0);
    reader->state = (struct plx_stream_state){.checksum = plx_crc32c(bytes, sizeof bytes)};
    if (checksum != reader->state.checksum)
        return damaged(fault, "has a damaged header");
    get_instant(bytes + 16, &header->from);
    get_instant(bytes + 56, &header->to);
    header->sector_size = (uint32_t)get(bytes + 96, 4);
    header->changed_bytes = get(bytes + 104, 8);
    memcpy(header->name, bytes + 128, sizeof header->name);
    header->name[sizeof header->name - 1] = 0;
    return header_plausible(bytes, header) ? 0 : damaged(fault, "has an impossible header");
}

static bool range_plausible(const struct plx_stream_reader *reader, unsigned type, uint64_t offset,
                            uint64_t length, uint64_t rest)
{
    uint64_t size = reader->header.to.size_bytes;

    return (type == RECORD_DATA || type == RECORD_ZERO) && !rest && length &&
           offset >= reader->state.end && offset % PLX_BLOCK_SIZE == 0 && offset < size &&
           length <= size - offset && (length % PLX_BLOCK_SIZE == 0 || offset + length == size) &&
           (type == RECORD_ZERO || length <= PLX_STREAM_DATA_MAX);
}

static bool end_fits(const struct plx_stream_reader *reader, const uint64_t words[3])
{
    const struct plx_stream_state *state = &reader->state;

    return words[0] == state->records && words[1] == state->data_bytes &&
           words[2] == state->zero_bytes && words[1] + words[2] == reader->header.changed_bytes;
}

/* The end record was read and is right: nothing may follow. */
static int at_end(struct plx_stream_reader *reader, struct plx_fault *fault)
{
    uint8_t more;
    size_t got = 0;
    int error = reader->read(reader->context, &more, 1, &got);

    return error ? error : got ? damaged(fault, "goes on behind its end") : PLX_ERR_NOT_FOUND;
}

int plx_stream_next(struct plx_stream_reader *reader, struct plx_stream_range *ret_range,
                    struct plx_fault *fault)
{
    uint8_t bytes[PLX_STREAM_RECORD_BYTES];
    uint64_t words[3];
    uint32_t checksum;
    unsigned type;
    int error = read_exactly(reader, bytes, sizeof bytes, fault);

    if (error)
        return error;
    type = (unsigned)get(bytes, 4);
    checksum = (uint32_t)get(bytes + 4, 4);
    for (unsigned i = 0; i < 3; i++)
        words[i] = get(bytes + 8 + 8 * (size_t)i, 8);
    if (type != RECORD_END && !range_plausible(reader, type, words[0], words[1], words[2]))
        return damaged(fault, "has a damaged record");
    put(bytes + 4, 4, 0);
    reader->state.checksum = plx_crc32c_more(reader->state.checksum, bytes, sizeof bytes);
    if (type == RECORD_DATA) {
        error = read_exactly(reader, reader->buffer, words[1], fault);
        if (error)
            return error;
        reader->state.checksum = plx_crc32c_more(reader->state.checksum, reader->buffer, words[1]);
    }
    if (checksum != reader->state.checksum) /* STREAM-1 */
        return damaged(fault, "has a damaged record");
    if (type == RECORD_END)
        return end_fits(reader, words) ? at_end(reader, fault)
                                       : damaged(fault, "does not hold all that it should");
    count(&reader->state, words[0], words[1], type == RECORD_DATA);
    *ret_range = (struct plx_stream_range){.offset = words[0],
                                           .length = words[1],
                                           .bytes = type == RECORD_DATA ? reader->buffer : NULL};
    return 0;
}
