/* fuzz_stream.c - the stream of an incremental backup, as somebody hands it to import-diff.
 *
 * The first byte says whether the stream gets its magic number, version and checksums put right
 * first. Properties: a range is handed out in order and within the disk; what is read to the end
 * holds what its header promises, and written again gives the same bytes.
 */
#include "../../admin/stream.h"
#include "fuzz.h"

static uint8_t buffer[PLX_STREAM_DATA_MAX];

/* Checksums of the header and of every record that is all there. */
static void seal(uint8_t *bytes, size_t count)
{
    uint32_t checksum;

    if (count < PLX_STREAM_HEADER_BYTES)
        return;
    memcpy(bytes, "PLXDIFF\n", 8);
    fuzz_put(bytes + 8, 4, 0);
    fuzz_put(bytes + 12, 4, PLX_STREAM_VERSION);
    checksum = plx_crc32c(bytes, PLX_STREAM_HEADER_BYTES);
    fuzz_put(bytes + 8, 4, checksum);
    for (size_t at = PLX_STREAM_HEADER_BYTES; count - at >= PLX_STREAM_RECORD_BYTES;) {
        size_t size = PLX_STREAM_RECORD_BYTES;

        if (fuzz_get(bytes + at, 4) == 1)
            size += plx_min_u64(fuzz_get(bytes + at + 16, 8), count - at - size);
        fuzz_put(bytes + at + 4, 4, 0);
        checksum = plx_crc32c_more(checksum, bytes + at, size);
        fuzz_put(bytes + at + 4, 4, checksum);
        at += size;
    }
}

static int read_input(void *context, uint8_t *bytes, size_t length, size_t *ret_got)
{
    struct fuzz_input *input = context;
    size_t got = length < input->left ? length : input->left;

    memcpy(bytes, input->at, got);
    input->at += got;
    input->left -= got;
    *ret_got = got;
    return 0;
}

static void check_range(const struct plx_stream_reader *reader,
                        const struct plx_stream_range *range, uint64_t end)
{
    uint64_t size = reader->header.to.size_bytes;

    FUZZ_CHECK(range->length && range->offset >= end && range->offset % PLX_BLOCK_SIZE == 0);
    FUZZ_CHECK(range->length <= size && range->offset <= size - range->length);
    FUZZ_CHECK(!range->bytes || range->length <= PLX_STREAM_DATA_MAX);
}

static void same(const uint8_t *input, size_t *at, const uint8_t *bytes, size_t count)
{
    FUZZ_CHECK(memcmp(input + *at, bytes, count) == 0);
    *at += count;
}

static void read_stream(const uint8_t *bytes, size_t count)
{
    struct fuzz_input input = {bytes, count};
    struct plx_stream_reader reader = {.read = read_input, .context = &input, .buffer = buffer};
    struct plx_stream_state state;
    struct plx_stream_range range;
    uint8_t out[PLX_STREAM_HEADER_BYTES];
    struct plx_fault fault = {0};
    uint64_t end = 0;
    size_t at = 0;
    int error = plx_stream_open(&reader, &fault);

    if (!error) {
        plx_stream_put_header(&reader.header, &state, out);
        same(bytes, &at, out, PLX_STREAM_HEADER_BYTES);
    }
    while (!error && (error = plx_stream_next(&reader, &range, &fault)) == 0) {
        check_range(&reader, &range, end);
        end = range.offset + range.length;
        plx_stream_put_range(&state, range.offset, range.bytes, range.length, out);
        same(bytes, &at, out, PLX_STREAM_RECORD_BYTES);
        if (range.bytes)
            same(bytes, &at, range.bytes, range.length);
    }
    if (error != PLX_ERR_NOT_FOUND) {
        FUZZ_CHECK(fault.text[0]);
        return;
    }
    plx_stream_put_end(&state, out);
    same(bytes, &at, out, PLX_STREAM_RECORD_BYTES);
    FUZZ_CHECK(at == count);
    FUZZ_CHECK(state.data_bytes + state.zero_bytes == reader.header.changed_bytes);
}

PLX_FUZZ_EXPORT int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct fuzz_input input = {bytes, count};
    bool sealed = fuzz_take(&input, 1) & 1;
    uint8_t *copy = malloc(input.left + 1);

    memcpy(copy, input.at, input.left);
    if (sealed)
        seal(copy, input.left);
    read_stream(copy, input.left);
    free(copy);
    return 0;
}
