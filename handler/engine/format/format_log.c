/* format_log.c - log segment, batch and record. Stateless; see format.h. */
#include "engine/base/hash.h"
#include "engine/format/format_inside.h"

/* ---- Log segment ---- */

void plx_format_segment_encode(const struct plx_uuid *store, const struct plx_segment_header *h,
                               void *block)
{
    uint8_t *b = block;

    memset(b, 0, PLX_BLOCK_SIZE);
    memcpy(b, SEGMENT_MAGIC, 8);
    put_uuid(b + 16, store);
    put_uuid(b + 32, &h->vdi);
    put64(b + 48, h->epoch);
    put64(b + 56, h->segment);
    put64(b + 64, h->next_addr);
    put64(b + 72, h->first_batch);
    put64(b + 80, h->prev_hash);
    put64(b + 88, h->snap_seq);
    put64(b + 96, h->time_ns);
    plx_format_put_keyframe(b + 104, &h->keyframe);
    put32(b + 184, h->start);
    plx_format_seal_block(b);
}

int plx_format_segment_decode(const void *block, const struct plx_uuid *store,
                              const struct plx_uuid *vdi, uint64_t segment, uint64_t addr_limit,
                              struct plx_segment_header *ret_header, struct plx_fault *fault)
{
    const uint8_t *b = block;
    struct plx_uuid store_id = get_uuid(b + 16), vdi_id = get_uuid(b + 32);
    struct plx_segment_header h;
    int error = plx_format_check_block(block, SEGMENT_MAGIC, "log segment", fault);

    if (error)
        return error;
    h = (struct plx_segment_header){
        .vdi = vdi_id,
        .epoch = get64(b + 48),
        .segment = get64(b + 56),
        .next_addr = get64(b + 64),
        .first_batch = get64(b + 72),
        .prev_hash = get64(b + 80),
        .snap_seq = get64(b + 88),
        .time_ns = get64(b + 96),
        .start = get32(b + 184),
    };
    if (!h.start) /* an older program wrote it: batches began there always */
        h.start = PLX_SEGMENT_HEADER_BYTES;
    if (!plx_uuid_equal(&store_id, store) || !plx_uuid_equal(&vdi_id, vdi) ||
        h.segment != segment || h.next_addr >= addr_limit || h.epoch > PLX_COUNTER_MAX ||
        h.first_batch > PLX_COUNTER_MAX || h.snap_seq > PLX_COUNTER_MAX ||
        h.start < PLX_SEGMENT_HEADER_BYTES || h.start % 512 != 0 ||
        h.start >= PLX_SEGMENT_BLOCKS_MAX * PLX_BLOCK_SIZE ||
        !plx_format_get_keyframe(b + 104, addr_limit, &h.keyframe))
        return plx_fault_set(fault, PLX_ERR_CORRUPT,
                             "log segment: belongs to another disk or place");
    *ret_header = h;
    return 0;
}

/* ---- Batches ---- */

uint64_t plx_format_vdi_word(const struct plx_uuid *vdi)
{
    return get64(vdi->b);
}

static uint32_t batch_checksum(const uint8_t *b, size_t bytes)
{
    static const uint8_t zero[4];
    uint32_t crc = plx_crc32c(b, 4);

    crc = plx_crc32c_more(crc, zero, sizeof zero);
    return plx_crc32c_more(crc, b + 8, bytes - 8);
}

uint64_t plx_format_batch_encode(const struct plx_batch_header *h, void *buffer)
{
    uint8_t *b = buffer;

    put32(b, BATCH_MAGIC);
    put64(b + 8, h->seq);
    put64(b + 16, h->vdi);
    put64(b + 24, h->epoch);
    put64(b + 32, h->time_ns);
    put64(b + 40, h->prev_hash);
    put64(b + 48, h->durable_seq);
    put32(b + 56, h->bytes);
    put32(b + 60, h->records);
    put32(b + 4, batch_checksum(b, h->bytes));
    return plx_hash64(b, h->bytes);
}

int plx_format_batch_decode(const void *buffer, size_t available, struct plx_batch_header *ret)
{
    const uint8_t *b = buffer;
    struct plx_batch_header h;

    if (available < PLX_BATCH_HEADER_BYTES || get32(b) != BATCH_MAGIC)
        return PLX_ERR_CORRUPT;
    h = (struct plx_batch_header){
        .seq = get64(b + 8),
        .vdi = get64(b + 16),
        .epoch = get64(b + 24),
        .time_ns = get64(b + 32),
        .prev_hash = get64(b + 40),
        .durable_seq = get64(b + 48),
        .bytes = get32(b + 56),
        .records = get32(b + 60),
    };
    if (h.bytes < PLX_BATCH_HEADER_BYTES || h.bytes > available || h.bytes > PLX_BATCH_BYTES_MAX ||
        h.bytes % 512 != 0 || h.durable_seq > h.seq || h.seq > PLX_COUNTER_MAX ||
        h.epoch > PLX_COUNTER_MAX ||
        h.records > (h.bytes - PLX_BATCH_HEADER_BYTES) / RECORD_BYTES ||
        get32(b + 4) != batch_checksum(b, h.bytes))
        return PLX_ERR_CORRUPT;
    *ret = h;
    return 0;
}

/* ---- Records ---- */

static size_t round8(size_t bytes)
{
    return (bytes + 7) & ~(size_t)7;
}

size_t plx_record_bytes(enum plx_record_type type, uint64_t count)
{
    switch (type) {
    case PLX_RECORD_MAP:
        return RECORD_BYTES + round8(count * 4);
    case PLX_RECORD_SNAPSHOT:
    case PLX_RECORD_RING:
        return RECORD_BYTES + 8;
    case PLX_RECORD_LABEL:
        return RECORD_BYTES + round8(count);
    case PLX_RECORD_KEYFRAME:
    case PLX_RECORD_SKIP:
    case PLX_RECORD_REWIND:
        return RECORD_BYTES + KEYFRAME_BYTES;
    case PLX_RECORD_UNMAP:
    case PLX_RECORD_VOID:
    case PLX_RECORD_RESIZE:
        break;
    }
    return RECORD_BYTES;
}

static size_t put_record(void *out, enum plx_record_type type, bool flag, uint64_t vblock,
                         uint64_t count, uint64_t word)
{
    size_t bytes = plx_record_bytes(type, count);

    memset(out, 0, bytes);
    put64(out, (uint64_t)type | (uint64_t)flag << 8 | vblock << 12 | count << 48);
    put64((uint8_t *)out + 8, word);
    return bytes;
}

size_t plx_record_put_map(void *out, uint64_t vblock, uint32_t count, uint64_t addr,
                          const uint32_t *checksums)
{
    size_t bytes = put_record(out, PLX_RECORD_MAP, false, vblock, count, addr);

    for (uint32_t i = 0; i < count; i++)
        put32((uint8_t *)out + RECORD_BYTES + i * 4, checksums[i]);
    return bytes;
}

size_t plx_record_put_unmap(void *out, uint64_t vblock, uint64_t count)
{
    return put_record(out, PLX_RECORD_UNMAP, false, vblock, 0, count);
}

size_t plx_record_put_void(void *out, uint64_t leaf, uint32_t count)
{
    return put_record(out, PLX_RECORD_VOID, false, leaf, count, 0);
}

size_t plx_record_put_snapshot(void *out, uint64_t seq, uint64_t time_ns)
{
    size_t bytes = put_record(out, PLX_RECORD_SNAPSHOT, false, 0, 0, seq);

    put64((uint8_t *)out + RECORD_BYTES, time_ns);
    return bytes;
}

size_t plx_record_put_label(void *out, uint64_t seq, const char *label, bool removed)
{
    size_t length = strlen(label);
    size_t bytes = put_record(out, PLX_RECORD_LABEL, removed, 0, length, seq);

    memcpy((uint8_t *)out + RECORD_BYTES, label, length);
    return bytes;
}

size_t plx_record_put_resize(void *out, uint64_t size_bytes)
{
    return put_record(out, PLX_RECORD_RESIZE, false, 0, 0, size_bytes);
}

size_t plx_record_put_keyframe(void *out, const struct plx_keyframe *keyframe, bool whole)
{
    size_t bytes = put_record(out, PLX_RECORD_KEYFRAME, whole, 0, 0, 0);

    plx_format_put_keyframe((uint8_t *)out + RECORD_BYTES, keyframe);
    return bytes;
}

size_t plx_record_put_skip(void *out, const struct plx_keyframe *keyframe)
{
    size_t bytes = put_record(out, PLX_RECORD_SKIP, false, 0, 0, 0);

    plx_format_put_keyframe((uint8_t *)out + RECORD_BYTES, keyframe);
    return bytes;
}

size_t plx_record_put_rewind(void *out, uint64_t seq, const struct plx_keyframe *keyframe)
{
    size_t bytes = put_record(out, PLX_RECORD_REWIND, false, 0, 0, seq);

    plx_format_put_keyframe((uint8_t *)out + RECORD_BYTES, keyframe);
    return bytes;
}

size_t plx_record_put_ring(void *out, const struct plx_ring_position *position)
{
    size_t bytes = put_record(out, PLX_RECORD_RING, false, 0, 0, position->seq);

    put64((uint8_t *)out + RECORD_BYTES, position->epoch);
    return bytes;
}

uint32_t plx_record_checksum(const struct plx_record *record, uint64_t index)
{
    return get32(record->checksums + index * 4);
}

/* The part of plx_record_next() that depends on the type. The payload lies wholly inside the batch.
 */
static bool decode_payload(struct plx_record *r, uint64_t word, const uint8_t *payload,
                           uint64_t addr_limit)
{
    switch (r->type) {
    case PLX_RECORD_MAP:
        r->addr = word;
        r->checksums = payload;
        return r->count >= 1 && r->count <= PLX_RECORD_MAP_MAX &&
               plx_format_data_addr_valid(word, addr_limit) &&
               r->count <= addr_limit - plx_addr_block(word) &&
               r->vblock + r->count <= PLX_VBLOCK_MAX + 1;
    case PLX_RECORD_UNMAP:
        r->count = word;
        return word >= 1 && word <= PLX_RECORD_UNMAP_MAX &&
               r->vblock + r->count <= PLX_VBLOCK_MAX + 1;
    case PLX_RECORD_VOID:
        return r->count >= 1 && r->vblock + r->count <= (PLX_VBLOCK_MAX + 1) >> PLX_NODE_SHIFT;
    case PLX_RECORD_SNAPSHOT:
        r->seq = word;
        r->time_ns = get64(payload);
        return word != 0 && word <= PLX_COUNTER_MAX && r->time_ns <= PLX_TIME_MAX;
    case PLX_RECORD_LABEL:
        r->seq = word;
        if (r->count < 1 || r->count > PLX_LABEL_MAX || memchr(payload, 0, r->count))
            return false;
        memcpy(r->label, payload, r->count);
        r->label[r->count] = 0;
        return word != 0 && word <= PLX_COUNTER_MAX;
    case PLX_RECORD_RESIZE:
        r->size_bytes = word;
        return word >= PLX_VDI_SIZE_MIN && word <= PLX_VDI_SIZE_MAX && word % 512 == 0;
    case PLX_RECORD_KEYFRAME:
    case PLX_RECORD_SKIP:
        return plx_format_get_keyframe(payload, addr_limit, &r->keyframe);
    case PLX_RECORD_RING:
        r->position = (struct plx_ring_position){get64(payload), word};
        return word && plx_format_ring_position_valid(&r->position);
    case PLX_RECORD_REWIND:
        break;
    }
    r->seq = word;
    return plx_format_get_keyframe(payload, addr_limit, &r->keyframe) && word >= 1 &&
           word <= r->keyframe.snap_seq;
}

int plx_record_next(const void *batch, const struct plx_batch_header *header, size_t *offset,
                    uint64_t addr_limit, struct plx_record *ret_record)
{
    const uint8_t *at = (const uint8_t *)batch + *offset;
    size_t left = header->bytes - *offset, bytes;
    struct plx_record r = {0};
    uint64_t word;

    if (left < RECORD_BYTES)
        return PLX_ERR_CORRUPT;
    word = get64(at);
    if ((word & 0xff) < PLX_RECORD_MAP || (word & 0xff) > PLX_RECORD_RING)
        return PLX_ERR_CORRUPT;
    r.type = (enum plx_record_type)(word & 0xff);
    r.flag = word >> 8 & 1;
    r.vblock = word >> 12 & PLX_VBLOCK_MAX;
    r.count = word >> 48;
    bytes = plx_record_bytes(r.type, r.count);
    if (bytes > left || !decode_payload(&r, get64(at + 8), at + RECORD_BYTES, addr_limit))
        return PLX_ERR_CORRUPT;
    *offset += bytes;
    *ret_record = r;
    return 0;
}
