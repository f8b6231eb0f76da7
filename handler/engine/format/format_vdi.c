/* format_vdi.c - key frame and VDI record. Stateless; see format.h. */
#include "engine/format/format_inside.h"

/* ---- Key frame and VDI record ---- */

void plx_format_put_keyframe(uint8_t *b, const struct plx_keyframe *k)
{
    put64(b, k->root);
    put32(b + 8, k->levels);
    put32(b + 12, 0);
    put64(b + 16, k->size_bytes);
    put64(b + 24, k->pos);
    put64(b + 32, k->batch_seq);
    put64(b + 40, k->prev_hash);
    put64(b + 48, k->snap_seq);
    put64(b + 56, k->time_ns);
    put64(b + 64, k->mapped + 1); /* 0: not known, as older programs wrote it */
    put64(b + 72, k->vouched + 1);
}

bool plx_format_get_keyframe(const uint8_t *b, uint64_t addr_limit, struct plx_keyframe *ret)
{
    struct plx_keyframe k = {
        .root = get64(b),
        .levels = get32(b + 8),
        .size_bytes = get64(b + 16),
        .pos = get64(b + 24),
        .batch_seq = get64(b + 32),
        .prev_hash = get64(b + 40),
        .snap_seq = get64(b + 48),
        .time_ns = get64(b + 56),
        .mapped = get64(b + 64) - 1,
        .vouched = get64(b + 72) - 1,
    };

    if (k.levels < PLX_LEVELS_MIN || k.levels > PLX_LEVELS_MAX ||
        plx_entry_addr(k.root) >= addr_limit || (k.root & PLX_ENTRY_SUPERPAGE) ||
        k.size_bytes > PLX_VDI_SIZE_MAX || k.size_bytes % 512 || k.pos > PLX_COUNTER_MAX ||
        k.pos % 512 || k.batch_seq > PLX_COUNTER_MAX || k.snap_seq > PLX_COUNTER_MAX ||
        k.time_ns > PLX_TIME_MAX)
        return false;
    /* a wrong count is no reason to refuse the disk */
    if (k.mapped > plx_div_up(k.size_bytes, PLX_BLOCK_SIZE))
        k.mapped = PLX_MAPPED_UNKNOWN;
    if (k.mapped == PLX_MAPPED_UNKNOWN || k.vouched > k.mapped)
        k.vouched = PLX_MAPPED_UNKNOWN;
    *ret = k;
    return true;
}

static void put_protection(uint8_t *b, const struct plx_protection *p)
{
    b[0] = (uint8_t)p->mode;
    b[1] = (uint8_t)p->tiers;
    put64(b + 8, p->interval_ns);
    for (uint32_t i = 0; i < p->tiers; i++) {
        put64(b + 16 + 16 * i, p->tier[i].every_ns);
        put64(b + 24 + 16 * i, p->tier[i].keep_ns);
    }
}

static bool get_protection(const uint8_t *b, struct plx_protection *ret)
{
    struct plx_protection p = {.mode = b[0], .interval_ns = get64(b + 8), .tiers = b[1]};

    for (uint32_t i = 0; i < p.tiers && i < PLX_TIERS_MAX; i++)
        p.tier[i] = (struct plx_tier){get64(b + 16 + 16 * i), get64(b + 24 + 16 * i)};
    *ret = p;
    return plx_protection_check(&p, NULL) == 0;
}

static void put_rewinds(uint8_t *b, const struct plx_vdi_record *r)
{
    put32(b + 1116, r->rewinds);
    put32(b + 1120, r->rewinds_past);
    for (uint32_t i = 0; i < r->rewinds; i++) {
        uint8_t *at = b + REWINDS_OFFSET + (size_t)i * REWIND_BYTES;

        put64(at, r->rewind[i].pos);
        put64(at + 8, r->rewind[i].seq);
        put64(at + 16, r->rewind[i].root);
        put32(at + 24, r->rewind[i].levels);
    }
}

/* The record's key frame has been decoded already. */
static bool get_rewinds(const uint8_t *b, uint64_t addr_limit, struct plx_vdi_record *r)
{
    uint64_t pos = 0;

    r->rewinds = get32(b + 1116);
    r->rewinds_past = (uint32_t)plx_min_u64(get32(b + 1120), PLX_REWINDS_PAST_MAX);
    if (r->rewinds > PLX_REWINDS_MAX)
        return false;
    for (uint32_t i = 0; i < r->rewinds; i++) {
        const uint8_t *at = b + REWINDS_OFFSET + (size_t)i * REWIND_BYTES;
        struct plx_rewind *rewind = &r->rewind[i];

        *rewind = (struct plx_rewind){
            .pos = get64(at),
            .seq = get64(at + 8),
            .root = get64(at + 16),
            .levels = get32(at + 24),
        };
        if (rewind->pos < pos || rewind->pos > r->keyframe.pos || rewind->seq < 1 ||
            rewind->seq > r->keyframe.snap_seq || plx_entry_addr(rewind->root) >= addr_limit ||
            (rewind->root & PLX_ENTRY_SUPERPAGE) || rewind->levels < PLX_LEVELS_MIN ||
            rewind->levels > PLX_LEVELS_MAX)
            return false;
        pos = rewind->pos;
    }
    return true;
}

static void put_ring(uint8_t *b, const struct plx_vdi_record *r)
{
    put_uuid(b + 1136, &r->mark.ring);
    put64(b + 1152, r->mark.set);
    put64(b + 1160, r->mark.proof);
    put64(b + 1168, r->mark.since);
    put64(b + 1176, r->position.epoch);
    put64(b + 1184, r->position.seq);
}

/* The record's epoch has been decoded already. */
static bool get_ring(const uint8_t *b, struct plx_vdi_record *r)
{
    struct plx_ring_mark mark = {.ring = get_uuid(b + 1136),
                                 .set = get64(b + 1152),
                                 .proof = get64(b + 1160),
                                 .since = get64(b + 1168)};
    struct plx_ring_position position = {get64(b + 1176), get64(b + 1184)};

    r->mark = mark;
    r->position = position;
    if (!plx_format_ring_position_valid(&position) || position.epoch > r->epoch)
        return false;
    if (plx_uuid_is_zero(&mark.ring))
        return !mark.set && !mark.proof && !mark.since;
    return mark.set && mark.proof && mark.since && mark.since <= r->epoch;
}

void plx_format_vdi_record_encode(const struct plx_uuid *store, const struct plx_vdi_record *r,
                                  void *block)
{
    uint8_t *b = block;
    size_t name_bytes = strlen(r->name);

    memset(b, 0, PLX_BLOCK_SIZE);
    memcpy(b, VDI_MAGIC, 8);
    b[12] = (uint8_t)r->state;
    b[13] = r->sector_size == 4096 ? 12 : 9;
    b[14] = (uint8_t)r->overwrite;
    b[15] = r->doubted;
    put_uuid(b + 16, store);
    put_uuid(b + 32, &r->id);
    put64(b + 48, r->generation);
    put64(b + 56, r->epoch);
    put64(b + 64, r->owner);
    put_uuid(b + 72, &r->owner_host);
    put64(b + 88, r->created_ns);
    put_uuid(b + 96, &r->parent);
    put64(b + 112, r->parent_seq);
    put32(b + 120, r->slot);
    put32(b + 124, (uint32_t)name_bytes);
    memcpy(b + 128, r->name, name_bytes);
    plx_format_put_keyframe(b + 384, &r->keyframe);
    put64(b + 464, r->first_segment);
    put64(b + 472, r->index_root);
    put32(b + 480, r->index_levels);
    put64(b + 488, r->segment_addr);
    put64(b + 496, r->next_addr);
    put_protection(b + 512, &r->protection);
    plx_format_put_keyframe(b + 1024, &r->oldest);
    put64(b + 1104, r->origin_root);
    put32(b + 1112, r->origin_levels);
    put_rewinds(b, r);
    put64(b + 1128, r->vouched_ns);
    put_ring(b, r);
    plx_format_seal_block(b);
}

/* Code that walks a tree counts its levels down to 0. So a tree that has a root must have as many
 * levels as a disk's tree may have. */
static bool origin_plausible(const struct plx_vdi_record *r, uint64_t addr_limit)
{
    uint64_t addr = plx_entry_addr(r->origin_root);

    return addr < addr_limit && !(r->origin_root & PLX_ENTRY_SUPERPAGE) &&
           (!addr || r->origin_levels >= PLX_LEVELS_MIN) && r->origin_levels <= PLX_LEVELS_MAX;
}

int plx_format_vdi_record_decode(const void *block, const struct plx_uuid *store, uint32_t slot,
                                 uint64_t addr_limit, struct plx_vdi_record *ret_record,
                                 struct plx_fault *fault)
{
    const uint8_t *b = block;
    struct plx_vdi_record r = {0};
    struct plx_uuid id;
    uint32_t name_bytes;
    int error;

    if (plx_format_all_zero(block))
        return plx_fault_set(fault, PLX_ERR_NOT_FOUND, "VDI slot %u was never used", slot);
    error = plx_format_check_block(block, VDI_MAGIC, "VDI record", fault);
    if (error)
        return error;
    id = get_uuid(b + 16);
    name_bytes = get32(b + 124);
    if (!plx_uuid_equal(&id, store) || get32(b + 120) != slot || name_bytes < 1 ||
        name_bytes > PLX_NAME_MAX || memchr(b + 128, 0, name_bytes) ||
        (b[12] != PLX_VDI_LIVE && b[12] != PLX_VDI_DELETED) || (b[13] != 9 && b[13] != 12) ||
        b[14] > PLX_OVERWRITE_COPY || b[15] > 1 ||
        !plx_format_get_keyframe(b + 384, addr_limit, &r.keyframe) ||
        !plx_format_get_keyframe(b + 1024, addr_limit, &r.oldest))
        return plx_fault_set(fault, PLX_ERR_CORRUPT, "VDI record: impossible contents");
    r.state = b[12];
    r.sector_size = 1u << b[13];
    r.overwrite = b[14];
    r.doubted = b[15];
    r.id = get_uuid(b + 32);
    r.generation = get64(b + 48);
    r.epoch = get64(b + 56);
    r.owner = get64(b + 64);
    r.owner_host = get_uuid(b + 72);
    r.created_ns = get64(b + 88);
    r.parent = get_uuid(b + 96);
    r.parent_seq = get64(b + 112);
    r.slot = slot;
    memcpy(r.name, b + 128, name_bytes);
    r.first_segment = get64(b + 464);
    r.index_root = get64(b + 472);
    r.index_levels = get32(b + 480);
    r.segment_addr = get64(b + 488);
    r.next_addr = get64(b + 496);
    r.origin_root = get64(b + 1104);
    r.origin_levels = get32(b + 1112);
    r.vouched_ns = plx_min_u64(get64(b + 1128), PLX_TIME_MAX);
    if (plx_entry_addr(r.index_root) >= addr_limit || r.index_levels != PLX_INDEX_LEVELS ||
        r.segment_addr >= addr_limit || r.next_addr >= addr_limit ||
        r.keyframe.size_bytes < PLX_VDI_SIZE_MIN || r.keyframe.size_bytes % r.sector_size ||
        r.generation > PLX_COUNTER_MAX || r.epoch > PLX_COUNTER_MAX ||
        r.first_segment > r.keyframe.pos || r.oldest.pos > r.keyframe.pos ||
        r.oldest.snap_seq > r.keyframe.snap_seq || r.oldest.batch_seq > r.keyframe.batch_seq ||
        r.created_ns > PLX_TIME_MAX || r.parent_seq > PLX_COUNTER_MAX ||
        !origin_plausible(&r, addr_limit))
        return plx_fault_set(fault, PLX_ERR_CORRUPT, "VDI record: impossible log");
    if (!get_protection(b + 512, &r.protection))
        return plx_fault_set(fault, PLX_ERR_CORRUPT, "VDI record: impossible protection");
    if (!get_rewinds(b, addr_limit, &r))
        return plx_fault_set(fault, PLX_ERR_CORRUPT, "VDI record: impossible rewinds");
    if (!get_ring(b, &r))
        return plx_fault_set(fault, PLX_ERR_CORRUPT, "VDI record: impossible mark of a ring");
    *ret_record = r;
    return 0;
}
