/* fuzz_format.c - every decoder of format.c on arbitrary bytes.
 *
 * The first byte says which decoder, the second whether the bytes get a right magic number and
 * checksum first: without that hardly an input would come past the checksums. Properties: nothing
 * is read outside the bytes given; what decodes and is encoded again decodes to the same; what was
 * decoded is within the bounds that the rest of the engine relies on.
 */
#include "fuzz.h"

#define LIMIT (1ull << 20) /* blocks of the imaginary store */

enum {
    SUPERBLOCK,
    EXTENT_PAGE,
    VDI_RECORD,
    SEGMENT,
    BATCH,
    NODE,
    UUID,
    DECODERS,
};

static uint8_t again[PLX_BLOCK_SIZE], thrice[PLX_BLOCK_SIZE];

static struct plx_uuid uuid_at(const uint8_t *at)
{
    struct plx_uuid id;

    memcpy(id.b, at, sizeof id.b);
    return id;
}

static void superblock(const uint8_t *block)
{
    struct plx_superblock s;
    struct plx_fault fault;

    if (plx_format_superblock_decode(block, &s, &fault))
        return;
    FUZZ_CHECK(s.volume_index < s.volumes && s.volumes <= PLX_VOLUMES_MAX);
    FUZZ_CHECK(s.ranges >= 1 && s.ranges <= PLX_RANGES_MAX);
    for (uint32_t i = 0; i < s.ranges; i++)
        FUZZ_CHECK((s.range[i].first + s.range[i].extents) * s.extent_blocks <= PLX_ADDR_MAX + 1);
    FUZZ_CHECK(strnlen(s.name, sizeof s.name) < sizeof s.name);
    plx_format_superblock_encode(&s, again);
    FUZZ_CHECK(plx_format_superblock_decode(again, &s, &fault) == 0);
    plx_format_superblock_encode(&s, thrice);
    FUZZ_CHECK(memcmp(again, thrice, sizeof again) == 0);
}

static void extent_page(const uint8_t *block)
{
    struct plx_uuid store = uuid_at(block + 16);
    uint64_t extent = fuzz_get(block + 32, 8);
    uint32_t page_number = (uint32_t)fuzz_get(block + 14, 2);
    uint32_t pages = (uint32_t)fuzz_get(block + 72, 4);
    struct plx_extent_page page;
    struct plx_fault fault;

    if (plx_format_extent_page_decode(block, &store, extent, page_number, pages, &page, &fault))
        return;
    FUZZ_CHECK(page.extent == extent && page.page == page_number && page.pages == pages);
    FUZZ_CHECK(page.type <= PLX_EXTENT_META);
    memcpy(again, block, sizeof again);
    plx_format_extent_page_encode(&store, &page, again);
    FUZZ_CHECK(plx_format_extent_page_decode(again, &store, extent, page_number, pages, &page,
                                             &fault) == 0);
    memcpy(thrice, again, sizeof thrice);
    plx_format_extent_page_encode(&store, &page, thrice);
    FUZZ_CHECK(memcmp(again, thrice, sizeof again) == 0);
}

static void check_keyframe(const struct plx_keyframe *keyframe)
{
    FUZZ_CHECK(keyframe->levels >= 1 && keyframe->levels <= PLX_LEVELS_MAX);
    FUZZ_CHECK(plx_entry_addr(keyframe->root) < LIMIT);
    FUZZ_CHECK(keyframe->size_bytes <= PLX_VDI_SIZE_MAX);
}

static void vdi_record(const uint8_t *block)
{
    struct plx_uuid store = uuid_at(block + 16);
    uint32_t slot = (uint32_t)fuzz_get(block + 120, 4);
    struct plx_vdi_record record;
    struct plx_fault fault;

    if (plx_format_vdi_record_decode(block, &store, slot, LIMIT, &record, &fault))
        return;
    check_keyframe(&record.keyframe);
    FUZZ_CHECK(record.segment_addr < LIMIT && record.next_addr < LIMIT);
    FUZZ_CHECK(record.rewinds <= PLX_REWINDS_MAX);
    for (uint32_t i = 0; i < record.rewinds; i++)
        FUZZ_CHECK(plx_entry_addr(record.rewind[i].root) < LIMIT &&
                   record.rewind[i].levels <= PLX_LEVELS_MAX);
    FUZZ_CHECK(record.mark.since <= record.epoch && record.position.epoch <= record.epoch);
    FUZZ_CHECK(strnlen(record.name, sizeof record.name) < sizeof record.name);
    plx_format_vdi_record_encode(&store, &record, again);
    FUZZ_CHECK(plx_format_vdi_record_decode(again, &store, slot, LIMIT, &record, &fault) == 0);
    plx_format_vdi_record_encode(&store, &record, thrice);
    FUZZ_CHECK(memcmp(again, thrice, sizeof again) == 0);
}

static void segment(const uint8_t *block)
{
    struct plx_uuid store = uuid_at(block + 16), vdi = uuid_at(block + 32);
    uint64_t number = fuzz_get(block + 56, 8);
    struct plx_segment_header header;
    struct plx_fault fault;

    if (plx_format_segment_decode(block, &store, &vdi, number, LIMIT, &header, &fault))
        return;
    check_keyframe(&header.keyframe);
    FUZZ_CHECK(header.next_addr < LIMIT && header.segment == number);
    plx_format_segment_encode(&store, &header, again);
    FUZZ_CHECK(plx_format_segment_decode(again, &store, &vdi, number, LIMIT, &header, &fault) == 0);
    plx_format_segment_encode(&store, &header, thrice);
    FUZZ_CHECK(memcmp(again, thrice, sizeof again) == 0);
}

/* ---- Batches ---- */

static size_t put_again(const struct plx_record *r, uint8_t *out)
{
    uint32_t checksums[UINT16_MAX];

    switch (r->type) {
    case PLX_RECORD_MAP:
        for (uint64_t i = 0; i < r->count; i++)
            checksums[i] = plx_record_checksum(r, i);
        return plx_record_put_map(out, r->vblock, (uint32_t)r->count, r->addr, checksums);
    case PLX_RECORD_UNMAP:
        return plx_record_put_unmap(out, r->vblock, r->count);
    case PLX_RECORD_VOID:
        return plx_record_put_void(out, r->vblock, (uint32_t)r->count);
    case PLX_RECORD_SNAPSHOT:
        return plx_record_put_snapshot(out, r->seq, r->time_ns);
    case PLX_RECORD_LABEL:
        return plx_record_put_label(out, r->seq, r->label, r->flag);
    case PLX_RECORD_RESIZE:
        return plx_record_put_resize(out, r->size_bytes);
    case PLX_RECORD_KEYFRAME:
        return plx_record_put_keyframe(out, &r->keyframe, r->flag);
    case PLX_RECORD_SKIP:
        return plx_record_put_skip(out, &r->keyframe);
    case PLX_RECORD_REWIND:
        return plx_record_put_rewind(out, r->seq, &r->keyframe);
    case PLX_RECORD_RING:
        return plx_record_put_ring(out, &r->position);
    }
    FUZZ_CHECK(!"a record of no known type");
    return 0;
}

static void check_record(const struct plx_record *r)
{
    static uint8_t first[PLX_BATCH_BYTES_MAX], second[PLX_BATCH_BYTES_MAX];
    struct plx_batch_header header = {.records = 1};
    struct plx_record back;
    size_t bytes, offset = 0;

    if (r->type == PLX_RECORD_MAP)
        FUZZ_CHECK(plx_addr_block(r->addr) && plx_addr_block(r->addr) + r->count <= LIMIT);
    if (r->type == PLX_RECORD_MAP || r->type == PLX_RECORD_UNMAP)
        FUZZ_CHECK(r->count && r->vblock + r->count <= PLX_VBLOCK_MAX + 1);
    if (plx_record_announces(r))
        check_keyframe(&r->keyframe);
    bytes = put_again(r, first);
    header.bytes = (uint32_t)bytes;
    FUZZ_CHECK(plx_record_next(first, &header, &offset, LIMIT, &back) == 0 && offset == bytes);
    FUZZ_CHECK(put_again(&back, second) == bytes && memcmp(first, second, bytes) == 0);
}

static void batch(const struct fuzz_input *input, bool seal)
{
    size_t room = input->left;
    uint8_t *bytes = malloc(room ? room : 1), *copy;
    struct plx_batch_header header, now;
    size_t offset = PLX_BATCH_HEADER_BYTES;

    memcpy(bytes, input->at, room);
    if (seal && room >= PLX_BATCH_HEADER_BYTES) {
        size_t length = fuzz_get(bytes + 56, 4);

        memcpy(bytes, "PLXB", 4);
        if (length < PLX_BATCH_HEADER_BYTES || length > room)
            fuzz_put(bytes + 56, 4, length = room / 512 * 512);
        if (length)
            fuzz_seal_batch(bytes, length);
    }
    if (plx_format_batch_decode(bytes, room, &header)) {
        free(bytes);
        return;
    }
    FUZZ_CHECK(header.bytes <= room && header.durable_seq <= header.seq);
    copy = malloc(header.bytes);
    memcpy(copy, bytes, header.bytes);
    plx_format_batch_encode(&header, copy);
    FUZZ_CHECK(plx_format_batch_decode(copy, header.bytes, &now) == 0);
    FUZZ_CHECK(memcmp(bytes, copy, header.bytes) == 0);
    free(bytes);
    /* The records may be read to the end of the batch and no further: copy is as long as it. */
    for (uint32_t i = 0; i < header.records; i++) {
        struct plx_record record;
        size_t before = offset;

        if (plx_record_next(copy, &header, &offset, LIMIT, &record))
            break;
        FUZZ_CHECK(offset > before && offset <= header.bytes);
        check_record(&record);
    }
    free(copy);
}

/* ---- The rest ---- */

static void node(uint8_t *block)
{
    memset(again, 0, sizeof again);
    for (unsigned i = 0; i < PLX_NODE_ENTRIES; i++) {
        uint64_t entry = plx_node_entry(block, i);

        FUZZ_CHECK(plx_entry_checksum(plx_entry_void(entry)) == 0);
        FUZZ_CHECK(plx_entry_addr(plx_entry_void(entry)) == plx_entry_addr(entry));
        plx_node_set_entry(again, i, entry);
    }
    FUZZ_CHECK(memcmp(again, block, sizeof again) == 0);
}

static void uuid(const uint8_t *block)
{
    char text[128], back[PLX_UUID_TEXT];
    struct plx_uuid id, second;

    memcpy(text, block, sizeof text);
    text[sizeof text - 1] = 0;
    if (plx_uuid_parse(text, &id)) {
        plx_uuid_text(&id, back);
        FUZZ_CHECK(plx_uuid_parse(back, &second) && plx_uuid_equal(&id, &second));
    }
}

PLX_FUZZ_EXPORT int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static const char *const magics[] = {"PLXSUPER", "PLXEXTNT", "PLXVDREC", "PLXLOGSG"};
    struct fuzz_input input = {bytes, count};
    unsigned which = (unsigned)(fuzz_take(&input, 1) % DECODERS);
    bool seal = fuzz_take(&input, 1) & 1;
    uint8_t *block;

    if (which == BATCH) {
        batch(&input, seal);
        return 0;
    }
    block = calloc(1, PLX_BLOCK_SIZE); /* not static: reads behind it are found */
    memcpy(block, input.at, plx_min_u64(input.left, PLX_BLOCK_SIZE));
    if (seal && which <= SEGMENT) {
        memcpy(block, magics[which], 8);
        fuzz_seal_block(block);
    }
    switch (which) {
    case SUPERBLOCK:
        superblock(block);
        break;
    case EXTENT_PAGE:
        extent_page(block);
        break;
    case VDI_RECORD:
        vdi_record(block);
        break;
    case SEGMENT:
        segment(block);
        break;
    case NODE:
        node(block);
        break;
    case UUID:
        uuid(block);
        break;
    default:
        break;
    }
    free(block);
    return 0;
}
