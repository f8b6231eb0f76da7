/* format_ring.c - a ring's superblock, segment header, batch and record. Stateless; see
 * format_ring.h. */
#include "engine/format/format_ring.h"

#include "engine/base/hash.h"
#include "engine/format/format_inside.h"

#define RING_MAGIC "PLXRING."
#define RING_SEGMENT_MAGIC "PLXRSEG."
#define RING_BATCH_MAGIC 0x52584c50u /* "PLXR" */
#define ANCESTORS_AT 136u
#define HOST_NAME_AT 512u
#define HASHED_AT 16u
#define FLAG_ALONE 1u
#define FLAG_JOINING 2u
#define SECTOR_BYTES 512u /* what a device writes whole or not at all */

/* ---- Superblock ---- */

void plx_format_ring_super_encode(const struct plx_ring_super *s, void *block)
{
    uint8_t *b = block;

    memset(b, 0, PLX_BLOCK_SIZE);
    memcpy(b, RING_MAGIC, 8);
    put32(b + 12, PLX_RING_VERSION);
    put64(b + 16, s->compatible);
    put64(b + 24, s->read_compatible);
    put64(b + 32, s->incompatible);
    put_uuid(b + 40, &s->ring);
    put_uuid(b + 56, &s->store);
    put_uuid(b + 72, &s->host);
    put64(b + 88, s->generation);
    put32(b + 104, s->member);
    put32(b + 108, s->members);
    put32(b + 112, s->segments);
    put32(b + 116, s->segment_blocks);
    put64(b + 120, s->set);
    put32(b + 128, s->ancestors);
    put32(b + 132, (s->alone ? FLAG_ALONE : 0) | (s->joining ? FLAG_JOINING : 0));
    for (uint32_t i = 0; i < s->ancestors; i++)
        put64(b + ANCESTORS_AT + 8 * i, s->ancestor[i]);
    memcpy(b + HOST_NAME_AT, s->host_name, sizeof s->host_name - 1);
    plx_format_seal_block(b);
}

int plx_format_ring_super_decode(const void *block, struct plx_ring_super *ret_super,
                                 struct plx_fault *fault)
{
    const uint8_t *b = block;
    struct plx_ring_super s;
    int error;

    if (memcmp(b, RING_MAGIC, 8) != 0)
        return plx_fault_set(fault, PLX_ERR_NOT_FOUND, "there is no ring");
    error = plx_format_check_block(block, RING_MAGIC, "ring", fault);
    if (error)
        return error;
    s = (struct plx_ring_super){
        .compatible = get64(b + 16),
        .read_compatible = get64(b + 24),
        .incompatible = get64(b + 32),
        .ring = get_uuid(b + 40),
        .store = get_uuid(b + 56),
        .host = get_uuid(b + 72),
        .generation = get64(b + 88),
        .member = get32(b + 104),
        .members = get32(b + 108),
        .segments = get32(b + 112),
        .segment_blocks = get32(b + 116),
        .alone = (get32(b + 132) & FLAG_ALONE) != 0,
        .joining = (get32(b + 132) & FLAG_JOINING) != 0,
        .set = get64(b + 120),
        .ancestors = get32(b + 128),
    };
    if (get32(b + 12) < PLX_RING_VERSION)
        return plx_fault_set(fault, PLX_ERR_UNSUPPORTED,
                             "made by an older version of Parallax: with that one, 'vdi set "
                             "--ring off' and 'ring delete', then make it anew");
    if (get32(b + 12) != PLX_RING_VERSION || s.incompatible)
        return plx_fault_set(fault, PLX_ERR_UNSUPPORTED,
                             "the ring was made by a newer version of Parallax");
    if (s.members < 1 || s.members > 2 || s.member >= s.members || s.segments < 1 ||
        s.segments > PLX_RING_SEGMENTS_MAX || s.segment_blocks < PLX_RING_SEGMENT_BLOCKS_MIN ||
        s.segment_blocks > PLX_RING_SEGMENT_BLOCKS_MAX || s.generation > PLX_COUNTER_MAX ||
        !s.set || s.ancestors > PLX_RING_ANCESTORS_MAX || get32(b + 132) > FLAG_JOINING)
        return plx_fault_set(fault, PLX_ERR_CORRUPT, "ring: impossible contents");
    for (uint32_t i = 0; i < s.ancestors; i++)
        s.ancestor[i] = get64(b + ANCESTORS_AT + 8 * i);
    memcpy(s.host_name, b + HOST_NAME_AT, sizeof s.host_name - 1);
    *ret_super = s;
    return 0;
}

bool plx_ring_set_descends(const struct plx_ring_super *super, uint64_t marked)
{
    bool found = super->set == marked;

    for (uint32_t i = 0; i < super->ancestors && !found; i++)
        found = super->ancestor[i] == marked;
    return found;
}

/* ---- Segment header ---- */

static uint32_t sector_checksum(const uint8_t *b)
{
    static const uint8_t zero[4];
    uint32_t crc = plx_crc32c_more(plx_crc32c(b, CHECKSUM_AT), zero, sizeof zero);

    return plx_crc32c_more(crc, b + CHECKSUM_AT + 4, SECTOR_BYTES - CHECKSUM_AT - 4);
}

void plx_format_ring_segment_encode(const struct plx_uuid *ring,
                                    const struct plx_ring_segment *segment, void *block)
{
    uint8_t *b = block;

    memset(b, 0, PLX_BLOCK_SIZE);
    memcpy(b, RING_SEGMENT_MAGIC, 8);
    put_uuid(b + 16, ring);
    put_uuid(b + 32, &segment->vdi);
    put64(b + 48, segment->epoch);
    put64(b + 56, segment->first_seq);
    put64(b + 64, segment->prev_hash);
    put64(b + 72, segment->proof);
    put64(b + 80, segment->durable_seq);
    put32(b + CHECKSUM_AT, sector_checksum(b));
}

static bool segment_plausible(const struct plx_ring_segment *segment)
{
    if (plx_uuid_is_zero(&segment->vdi))
        return !segment->epoch && !segment->first_seq && !segment->prev_hash && !segment->proof &&
               !segment->durable_seq;
    return segment->epoch <= PLX_COUNTER_MAX && segment->first_seq &&
           segment->first_seq <= PLX_COUNTER_MAX && segment->proof &&
           segment->durable_seq < segment->first_seq;
}

int plx_format_ring_segment_decode(const void *block, const struct plx_uuid *ring,
                                   struct plx_ring_segment *ret_segment, struct plx_fault *fault)
{
    const uint8_t *b = block;
    struct plx_uuid owner = get_uuid(b + 16);
    struct plx_ring_segment segment = {
        .vdi = get_uuid(b + 32),
        .epoch = get64(b + 48),
        .first_seq = get64(b + 56),
        .prev_hash = get64(b + 64),
        .proof = get64(b + 72),
        .durable_seq = get64(b + 80),
    };

    if (memcmp(b, RING_SEGMENT_MAGIC, 8) != 0)
        return plx_fault_set(fault, PLX_ERR_CORRUPT, "ring segment: no magic number");
    if (get32(b + CHECKSUM_AT) != sector_checksum(b))
        return plx_fault_set(fault, PLX_ERR_CORRUPT, "ring segment: checksum mismatch");
    if (!plx_uuid_equal(&owner, ring))
        return plx_fault_set(fault, PLX_ERR_CORRUPT, "ring segment: another ring's");
    if (!segment_plausible(&segment))
        return plx_fault_set(fault, PLX_ERR_CORRUPT, "ring segment: impossible contents");
    *ret_segment = segment;
    return 0;
}

/* ---- Batches ---- */

static uint64_t seeded_hash(const struct plx_uuid *ring, const void *data, size_t bytes)
{
    return XXH3_64bits_withSeed(data, bytes, get64(ring->b));
}

uint64_t plx_ring_blocks_hash(const struct plx_uuid *ring, const void *blocks, size_t count,
                              uint64_t *ret_sums)
{
    uint8_t sums[PLX_RING_WRITE_MAX * 8];
    uint64_t sum = 0;

    for (size_t i = 0; i < count; i++) {
        sum = seeded_hash(ring, (const uint8_t *)blocks + (i << PLX_BLOCK_SHIFT), PLX_BLOCK_SIZE);
        put64(sums + i * 8, sum);
        if (ret_sums)
            ret_sums[i] = sum;
    }
    return count == 1 ? sum : seeded_hash(ring, sums, count * 8);
}

uint64_t plx_ring_heads_hash(const struct plx_uuid *ring, const void *batch, uint32_t records)
{
    return seeded_hash(ring, (const uint8_t *)batch + HASHED_AT,
                       plx_ring_batch_data_at(records) - HASHED_AT);
}

uint64_t plx_format_ring_batch_encode(const struct plx_uuid *ring,
                                      const struct plx_ring_batch *batch, void *buffer)
{
    uint8_t *b = buffer;
    uint64_t hash;

    put32(b, RING_BATCH_MAGIC);
    put32(b + 4, 0);
    put64(b + 16, batch->vdi);
    put32(b + 24, batch->bytes);
    put32(b + 28, batch->records);
    put64(b + 32, batch->epoch);
    put64(b + 40, batch->first_seq);
    put64(b + 48, batch->durable_seq);
    put64(b + 56, batch->prev_hash);
    put64(b + 64, batch->time_ns);
    put64(b + 72, batch->proof);
    memset(b + 80, 0, PLX_RING_BATCH_HEADER_BYTES - 80);
    hash = plx_ring_heads_hash(ring, b, batch->records);
    put64(b + 8, hash);
    return hash;
}

void plx_format_ring_record_encode(const struct plx_ring_record *record, uint32_t index,
                                   void *buffer)
{
    uint8_t *b =
        (uint8_t *)buffer + PLX_RING_BATCH_HEADER_BYTES + (size_t)index * PLX_RING_RECORD_BYTES;
    bool snapshot = record->type == PLX_RING_SNAPSHOT;

    put64(b, record->type);
    put64(b + 8, snapshot ? record->snapshot : record->block);
    put64(b + 16, snapshot ? record->time_ns : record->blocks);
    put64(b + 24, record->hash);
}

static bool record_plausible(const struct plx_ring_record *record, size_t left)
{
    switch (record->type) {
    case PLX_RING_WRITE:
        return record->blocks >= 1 && record->blocks <= PLX_RING_WRITE_MAX &&
               record->blocks * PLX_BLOCK_SIZE <= left &&
               record->block + record->blocks <= PLX_VBLOCK_MAX + 1;
    case PLX_RING_UNMAP:
        return record->blocks >= 1 && record->blocks <= PLX_RECORD_UNMAP_MAX &&
               record->block + record->blocks <= PLX_VBLOCK_MAX + 1;
    case PLX_RING_SNAPSHOT:
        return record->snapshot >= 1 && record->snapshot <= PLX_COUNTER_MAX &&
               record->time_ns <= PLX_TIME_MAX;
    }
    return false;
}

int plx_format_ring_record_decode(const void *buffer, const struct plx_ring_batch *batch,
                                  uint32_t index, size_t *data_at,
                                  struct plx_ring_record *ret_record)
{
    const uint8_t *b = (const uint8_t *)buffer + PLX_RING_BATCH_HEADER_BYTES +
                       (size_t)index * PLX_RING_RECORD_BYTES;
    uint64_t type = get64(b), first = get64(b + 8), second = get64(b + 16);
    struct plx_ring_record record = {.type = (enum plx_ring_record_type)type};

    if (type < PLX_RING_WRITE || type > PLX_RING_SNAPSHOT || *data_at > batch->bytes)
        return PLX_ERR_CORRUPT;
    record.hash = get64(b + 24);
    if (type == PLX_RING_SNAPSHOT)
        record.snapshot = first, record.time_ns = second;
    else if (first <= PLX_VBLOCK_MAX)
        record.block = first, record.blocks = second;
    if (!record_plausible(&record, batch->bytes - *data_at))
        return PLX_ERR_CORRUPT;
    if (type == PLX_RING_WRITE)
        *data_at += (size_t)record.blocks << PLX_BLOCK_SHIFT;
    *ret_record = record;
    return 0;
}

/* Whether all records can be, and the blocks are theirs. */
static bool records_whole(const uint8_t *b, const struct plx_uuid *ring,
                          const struct plx_ring_batch *batch)
{
    size_t data_at = plx_ring_batch_data_at(batch->records), before;
    struct plx_ring_record record;

    for (uint32_t i = 0; i < batch->records; i++) {
        before = data_at;
        if (plx_format_ring_record_decode(b, batch, i, &data_at, &record))
            return false;
        if (data_at != before &&
            plx_ring_blocks_hash(ring, b + before, record.blocks, NULL) != record.hash)
            return false;
    }
    return data_at == batch->bytes;
}

int plx_format_ring_batch_head(const void *buffer, size_t available,
                               struct plx_ring_batch *ret_batch)
{
    const uint8_t *b = buffer;
    struct plx_ring_batch batch;

    if (available < PLX_BLOCK_SIZE || get32(b) != RING_BATCH_MAGIC || get32(b + 4))
        return PLX_ERR_CORRUPT;
    batch = (struct plx_ring_batch){
        .vdi = get64(b + 16),
        .epoch = get64(b + 32),
        .first_seq = get64(b + 40),
        .durable_seq = get64(b + 48),
        .prev_hash = get64(b + 56),
        .proof = get64(b + 72),
        .time_ns = get64(b + 64),
        .bytes = get32(b + 24),
        .records = get32(b + 28),
    };
    if (batch.bytes % PLX_BLOCK_SIZE || batch.bytes > available ||
        batch.bytes > PLX_RING_BATCH_BYTES_MAX || !batch.records ||
        batch.records > PLX_RING_RECORDS_MAX ||
        plx_ring_batch_data_at(batch.records) > batch.bytes || !batch.first_seq ||
        batch.first_seq > PLX_COUNTER_MAX - batch.records || batch.durable_seq >= batch.first_seq ||
        batch.epoch > PLX_COUNTER_MAX || !batch.proof)
        return PLX_ERR_CORRUPT;
    *ret_batch = batch;
    return 0;
}

int plx_format_ring_batch_decode(const void *buffer, size_t available, const struct plx_uuid *ring,
                                 struct plx_ring_batch *ret_batch, uint64_t *ret_hash)
{
    struct plx_ring_batch batch;
    uint64_t hash;
    int error = plx_format_ring_batch_head(buffer, available, &batch);

    if (error)
        return error;
    hash = plx_ring_heads_hash(ring, buffer, batch.records);
    if (get64((const uint8_t *)buffer + 8) != hash || !records_whole(buffer, ring, &batch))
        return PLX_ERR_CORRUPT;
    *ret_batch = batch;
    *ret_hash = hash;
    return 0;
}
