/* format.c - encode, decode and validate what lies on the store. Stateless; see format.h. */
#include "engine/format/format.h"

#include <isa-l/crc.h>
#include <string.h>

#include "engine/base/hash.h"

#define SUPER_MAGIC "PLXSUPER"
#define EXTENT_MAGIC "PLXEXTNT"
#define VDI_MAGIC "PLXVDREC"
#define SEGMENT_MAGIC "PLXLOGSG"
#define HOME_MAGIC "PLXHOME."
#define BATCH_MAGIC 0x42584c50u /* "PLXB" */
#define CHECKSUM_AT 8
#define BITMAP_AT 96
#define KEYFRAME_BYTES 80u
#define RECORD_BYTES 16u
#define REWINDS_OFFSET 2048u
#define REWIND_BYTES 32u

#define RANGES_OFFSET 256u
#define RANGE_BYTES 16u
#define SPANS_OFFSET 2048u
#define SPAN_BYTES 32u

/* Bits set here are understood. */
#define KNOWN_INCOMPATIBLE (PLX_INCOMPATIBLE_RANGES | PLX_INCOMPATIBLE_COMMON)
#define KNOWN_READ_COMPATIBLE 0ull

/* ---- Little-endian access ---- */

static void put16(void *at, uint16_t v)
{
    uint8_t *p = at;

    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static void put32(void *at, uint32_t v)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap32(v);
#endif
    memcpy(at, &v, sizeof v);
}

static void put64(void *at, uint64_t v)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    memcpy(at, &v, sizeof v);
}

static uint16_t get16(const void *at)
{
    const uint8_t *p = at;

    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t get32(const void *at)
{
    uint32_t v;

    memcpy(&v, at, sizeof v);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap32(v);
#endif
    return v;
}

static uint64_t get64(const void *at)
{
    uint64_t v;

    memcpy(&v, at, sizeof v);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    return v;
}

static void put_uuid(void *at, const struct plx_uuid *id)
{
    memcpy(at, id->b, sizeof id->b);
}

static struct plx_uuid get_uuid(const void *at)
{
    struct plx_uuid id;

    memcpy(id.b, at, sizeof id.b);
    return id;
}

/* ---- Checksums ---- */

uint32_t plx_crc32c_more(uint32_t crc, const void *bytes, size_t count)
{
    /* ISA-L neither inverts before nor after; its buffer is const in all but name. */
    return ~crc32_iscsi((unsigned char *)(uintptr_t)bytes, (int)count, ~crc);
}

uint32_t plx_crc32c(const void *bytes, size_t count)
{
    return plx_crc32c_more(0, bytes, count);
}

uint32_t plx_checksum24(uint32_t crc32c)
{
    uint32_t low = crc32c & 0xffffff;

    return low ? low : 1;
}

static uint32_t block_checksum(const void *block)
{
    static const uint8_t zero[4];
    const uint8_t *bytes = block;
    uint32_t crc = plx_crc32c(bytes, CHECKSUM_AT);

    crc = plx_crc32c_more(crc, zero, sizeof zero);
    return plx_crc32c_more(crc, bytes + CHECKSUM_AT + 4, PLX_BLOCK_SIZE - CHECKSUM_AT - 4);
}

static void seal_block(void *block)
{
    put32((uint8_t *)block + CHECKSUM_AT, block_checksum(block));
}

static bool all_zero(const void *block)
{
    const uint8_t *bytes = block;

    return bytes[0] == 0 && memcmp(bytes, bytes + 1, PLX_BLOCK_SIZE - 1) == 0;
}

/* The gate's first half, the same for every one-block structure. */
static int check_block(const void *block, const char *magic, const char *what,
                       struct plx_fault *fault)
{
    const uint8_t *bytes = block;

    if (memcmp(bytes, magic, 8) != 0)
        return plx_fault_set(fault, PLX_ERR_CORRUPT, "%s: no magic number", what);
    if (get32(bytes + CHECKSUM_AT) != block_checksum(block))
        return plx_fault_set(fault, PLX_ERR_CORRUPT, "%s: checksum mismatch", what);
    return 0;
}

/* ---- Nodes ---- */

uint64_t plx_node_entry(const void *node, unsigned index)
{
    return get64((const uint8_t *)node + index * 8);
}

void plx_node_set_entry(void *node, unsigned index, uint64_t entry)
{
    put64((uint8_t *)node + index * 8, entry);
}

void plx_node_set_read_only(void *node)
{
    for (unsigned i = 0; i < PLX_NODE_ENTRIES; i++) {
        uint64_t entry = plx_node_entry(node, i);

        plx_node_set_entry(node, i, plx_entry_addr(entry) ? entry | PLX_ENTRY_READ_ONLY : entry);
    }
}

/* Block 0 is a superblock: nobody maps it, and an address of 0 is none. */
static bool data_addr_valid(uint64_t addr, uint64_t addr_limit)
{
    return plx_addr_block(addr) && plx_addr_block(addr) < addr_limit;
}

bool plx_format_node_valid(const void *node, unsigned level, uint64_t addr_limit)
{
    for (unsigned i = 0; i < PLX_NODE_ENTRIES; i++) {
        uint64_t entry = plx_node_entry(node, i), addr = plx_entry_addr(entry);
        bool valid = level == 1 && addr ? data_addr_valid(addr, addr_limit) : addr < addr_limit;

        if (!valid || (entry & PLX_ENTRY_SUPERPAGE))
            return false;
    }
    return true;
}

/* ---- Superblock ---- */

/* The first range has a place of its own, which was there before there were others. */
static void put_ranges(uint8_t *b, const struct plx_superblock *s)
{
    put64(b + 88, s->range[0].first);
    put64(b + 96, s->range[0].extents);
    put32(b + 192, s->ranges - 1);
    for (uint32_t i = 1; i < s->ranges; i++) {
        put64(b + RANGES_OFFSET + (size_t)(i - 1) * RANGE_BYTES, s->range[i].first);
        put64(b + RANGES_OFFSET + (size_t)(i - 1) * RANGE_BYTES + 8, s->range[i].extents);
    }
}

static bool get_ranges(const uint8_t *b, struct plx_superblock *s)
{
    uint32_t further = get32(b + 192);

    if (further >= PLX_RANGES_MAX || !further != !(s->incompatible & PLX_INCOMPATIBLE_RANGES))
        return false;
    s->range[0] = (struct plx_superblock_range){get64(b + 88), get64(b + 96)};
    for (uint32_t i = 1; i <= further; i++)
        s->range[i] = (struct plx_superblock_range){
            get64(b + RANGES_OFFSET + (size_t)(i - 1) * RANGE_BYTES),
            get64(b + RANGES_OFFSET + (size_t)(i - 1) * RANGE_BYTES + 8)};
    s->ranges = 1 + further;
    return true;
}

static void put_spans(uint8_t *b, const struct plx_superblock *s)
{
    put32(b + 196, s->spans);
    for (uint32_t i = 0; i < s->spans; i++) {
        uint8_t *at = b + SPANS_OFFSET + (size_t)i * SPAN_BYTES;

        put32(at, s->span[i].kind);
        put64(at + 8, s->span[i].first);
        put64(at + 16, s->span[i].extents);
    }
}

static bool get_spans(const uint8_t *b, struct plx_superblock *s)
{
    s->spans = get32(b + 196);
    if (s->spans > PLX_SYSTEM_SPANS_MAX)
        return false;
    for (uint32_t i = 0; i < s->spans; i++) {
        const uint8_t *at = b + SPANS_OFFSET + (size_t)i * SPAN_BYTES;

        s->span[i] = (struct plx_superblock_span){get32(at), get64(at + 8), get64(at + 16)};
    }
    return true;
}

void plx_format_superblock_encode(const struct plx_superblock *s, void *block)
{
    uint8_t *b = block;

    memset(b, 0, PLX_BLOCK_SIZE);
    memcpy(b, SUPER_MAGIC, 8);
    put32(b + 12, PLX_FORMAT_VERSION);
    put64(b + 16, s->compatible);
    put64(b + 24, s->read_compatible);
    put64(b + 32, s->incompatible);
    put_uuid(b + 40, &s->store);
    put_uuid(b + 56, &s->volume);
    put64(b + 72, s->generation);
    put32(b + 80, s->volume_index);
    put32(b + 84, s->volumes);
    put_ranges(b, s);
    put_spans(b, s);
    put_uuid(b + 208, &s->identity);
    put64(b + 104, s->extent_blocks);
    put32(b + 112, s->segment_blocks);
    put32(b + 116, s->vdi_slots);
    put64(b + 120, s->created_ns);
    memcpy(b + 128, s->name, sizeof s->name);
    seal_block(b);
}

static bool power_of_two(uint64_t v)
{
    return v && (v & (v - 1)) == 0;
}

/* Each further on than the one before, and not its continuation. */
static bool ranges_plausible(const struct plx_superblock *s)
{
    uint64_t limit = PLX_BLOCK_MAX / s->extent_blocks, from = 0;

    for (uint32_t i = 0; i < s->ranges; i++) {
        const struct plx_superblock_range *range = &s->range[i];

        if (range->extents < 1 || range->extents > limit || range->first < from ||
            range->first > limit - range->extents)
            return false;
        from = range->first + range->extents + 1;
    }
    return s->range[0].extents >= 3;
}

/* Whole extents of one range of this volume, behind its extent 0; no two have one in common. */
static bool spans_plausible(const struct plx_superblock *s)
{
    for (uint32_t i = 0; i < s->spans; i++) {
        const struct plx_superblock_span *span = &s->span[i];
        bool inside = false;

        for (uint32_t r = 0; r < s->ranges; r++) {
            const struct plx_superblock_range *range = &s->range[r];

            inside = inside || (span->extents >= 1 && span->first >= range->first + (r == 0) &&
                                span->first < range->first + range->extents &&
                                span->extents <= range->first + range->extents - span->first);
        }
        for (uint32_t other = 0; other < i; other++)
            inside = inside && (s->span[other].first + s->span[other].extents <= span->first ||
                                span->first + span->extents <= s->span[other].first);
        if (!inside)
            return false;
    }
    return s->spans == 0 || s->volume_index == 0;
}

static bool superblock_plausible(const struct plx_superblock *s)
{
    return power_of_two(s->extent_blocks) && s->extent_blocks >= PLX_EXTENT_BLOCKS_MIN &&
           s->extent_blocks <= PLX_EXTENT_BLOCKS_MAX && s->segment_blocks >= 4 &&
           s->segment_blocks <= PLX_SEGMENT_BLOCKS_MAX &&
           s->segment_blocks <= s->extent_blocks / 4 && s->volumes >= 1 &&
           s->volumes <= PLX_VOLUMES_MAX && s->volume_index < s->volumes && ranges_plausible(s) &&
           spans_plausible(s) && s->vdi_slots >= 1 && s->vdi_slots <= PLX_VDI_SLOTS_MAX &&
           PLX_VDI_TABLE_BLOCK + 2ull * s->vdi_slots <= s->extent_blocks &&
           s->generation <= PLX_COUNTER_MAX && s->created_ns <= PLX_TIME_MAX &&
           memchr(s->name, 0, sizeof s->name) && s->name[0];
}

int plx_format_superblock_decode(const void *block, struct plx_superblock *ret_super,
                                 struct plx_fault *fault)
{
    const uint8_t *b = block;
    struct plx_superblock s = {0};
    int error;

    if (memcmp(b, SUPER_MAGIC, 8) != 0)
        return plx_fault_set(fault, PLX_ERR_NOT_FOUND, "no Parallax superblock here");
    error = check_block(block, SUPER_MAGIC, "superblock", fault);
    if (error)
        return error;
    s.compatible = get64(b + 16);
    s.read_compatible = get64(b + 24);
    s.incompatible = get64(b + 32);
    if (get32(b + 12) == 1)
        return plx_fault_set(fault, PLX_ERR_UNSUPPORTED,
                             "the store has format version 1, which Parallax 0.1 was the last to "
                             "read; export its disks with that ('parallax vdi export') and import "
                             "them into a new store");
    if (get32(b + 12) != PLX_FORMAT_VERSION || (s.incompatible & ~KNOWN_INCOMPATIBLE))
        return plx_fault_set(fault, PLX_ERR_UNSUPPORTED,
                             "the store needs a newer Parallax (format version %u, incompatible "
                             "features %#llx); upgrade this host",
                             get32(b + 12), (unsigned long long)s.incompatible);
    s.store = get_uuid(b + 40);
    s.volume = get_uuid(b + 56);
    s.identity = get_uuid(b + 208);
    s.generation = get64(b + 72);
    s.volume_index = get32(b + 80);
    s.volumes = get32(b + 84);
    s.extent_blocks = get64(b + 104);
    s.segment_blocks = get32(b + 112);
    s.vdi_slots = get32(b + 116);
    s.created_ns = get64(b + 120);
    memcpy(s.name, b + 128, sizeof s.name);
    if (!get_ranges(b, &s) || !get_spans(b, &s) || !superblock_plausible(&s))
        return plx_fault_set(fault, PLX_ERR_CORRUPT, "superblock: impossible geometry");
    *ret_super = s;
    return 0;
}

bool plx_format_superblock_same(const void *block, const void *other)
{
    const uint8_t *a = block, *b = other;

    return memcmp(a, b, CHECKSUM_AT) == 0 && memcmp(a + 12, b + 12, 72 - 12) == 0 &&
           memcmp(a + 80, b + 80, PLX_BLOCK_SIZE - 80) == 0;
}

uint64_t plx_superblock_extents(const struct plx_superblock *super)
{
    uint64_t extents = 0;

    for (uint32_t i = 0; i < super->ranges; i++)
        extents += super->range[i].extents;
    return extents;
}

bool plx_superblock_is_system(const struct plx_superblock *super, uint64_t extent)
{
    bool system = extent == super->range[0].first;

    for (uint32_t i = 0; i < super->spans && !system; i++)
        system = extent >= super->span[i].first &&
                 extent - super->span[i].first < super->span[i].extents;
    return system;
}

/* ---- Home page ---- */

void plx_format_home_encode(const struct plx_uuid *store, const struct plx_home *home, void *block)
{
    uint8_t *b = block;

    memset(b, 0, PLX_BLOCK_SIZE);
    memcpy(b, HOME_MAGIC, 8);
    b[12] = home->open;
    put_uuid(b + 16, store);
    put64(b + 32, home->generation);
    put_uuid(b + 40, &home->host);
    put_uuid(b + 56, &home->boot);
    put64(b + 72, home->device);
    put64(b + 80, home->inode);
    put64(b + 88, home->counter);
    memcpy(b + 96, home->host_name, sizeof home->host_name);
    seal_block(b);
}

int plx_format_home_decode(const void *block, const struct plx_uuid *store,
                           struct plx_home *ret_home, struct plx_fault *fault)
{
    const uint8_t *b = block;
    struct plx_home home;
    struct plx_uuid id;
    int error;

    if (all_zero(block))
        return PLX_ERR_NOT_FOUND;
    error = check_block(block, HOME_MAGIC, "home page", fault);
    if (error)
        return error;
    id = get_uuid(b + 16);
    home = (struct plx_home){
        .generation = get64(b + 32),
        .host = get_uuid(b + 40),
        .boot = get_uuid(b + 56),
        .device = get64(b + 72),
        .inode = get64(b + 80),
        .counter = get64(b + 88),
        .open = b[12],
    };
    memcpy(home.host_name, b + 96, sizeof home.host_name);
    if (!plx_uuid_equal(&id, store) || b[12] > 1 || home.generation > PLX_COUNTER_MAX ||
        home.counter > PLX_COUNTER_MAX || !memchr(home.host_name, 0, sizeof home.host_name))
        return plx_fault_set(fault, PLX_ERR_CORRUPT, "home page: belongs to another store");
    *ret_home = home;
    return 0;
}

/* ---- Extent page ---- */

uint8_t *plx_format_extent_bits(void *block)
{
    return (uint8_t *)block + BITMAP_AT;
}

void plx_format_extent_page_encode(const struct plx_uuid *store, const struct plx_extent_page *p,
                                   void *block)
{
    uint8_t *b = block;

    memset(b, 0, BITMAP_AT);
    memcpy(b, EXTENT_MAGIC, 8);
    b[12] = (uint8_t)p->type;
    b[13] = p->sealed;
    put16(b + 14, p->page);
    put_uuid(b + 16, store);
    put64(b + 32, p->extent);
    put64(b + 40, p->owner);
    put64(b + 48, p->generation);
    put_uuid(b + 56, &p->owner_host);
    put32(b + 72, p->pages);
    seal_block(b);
}

int plx_format_extent_page_decode(const void *block, const struct plx_uuid *store, uint64_t extent,
                                  uint32_t page, uint32_t pages, struct plx_extent_page *ret_page,
                                  struct plx_fault *fault)
{
    const uint8_t *b = block;
    struct plx_uuid id = get_uuid(b + 16);
    int error = check_block(block, EXTENT_MAGIC, "extent page", fault);

    if (error)
        return error;
    if (!plx_uuid_equal(&id, store) || get64(b + 32) != extent || get16(b + 14) != page ||
        get32(b + 72) != pages || b[12] > PLX_EXTENT_META || b[13] > 1 ||
        get64(b + 48) > PLX_COUNTER_MAX)
        return plx_fault_set(fault, PLX_ERR_CORRUPT,
                             "extent page: belongs to another store or place");
    *ret_page = (struct plx_extent_page){
        .type = b[12],
        .sealed = b[13],
        .page = get16(b + 14),
        .pages = get32(b + 72),
        .extent = get64(b + 32),
        .owner = get64(b + 40),
        .owner_host = get_uuid(b + 56),
        .generation = get64(b + 48),
    };
    return 0;
}

/* ---- Key frame and VDI record ---- */

static void put_keyframe(uint8_t *b, const struct plx_keyframe *k)
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
    put64(b + 64, k->mapped + 1); /* 0: not known, as from before they were counted */
    put64(b + 72, k->vouched + 1);
}

static bool get_keyframe(const uint8_t *b, uint64_t addr_limit, struct plx_keyframe *ret)
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
    if (k.mapped > plx_div_up(k.size_bytes, PLX_BLOCK_SIZE)) /* no reason not to open the disk */
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

/* Into a record whose key frame is known. */
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
    put_keyframe(b + 384, &r->keyframe);
    put64(b + 464, r->first_segment);
    put64(b + 472, r->index_root);
    put32(b + 480, r->index_levels);
    put64(b + 488, r->segment_addr);
    put64(b + 496, r->next_addr);
    put_protection(b + 512, &r->protection);
    put_keyframe(b + 1024, &r->oldest);
    put64(b + 1104, r->origin_root);
    put32(b + 1112, r->origin_levels);
    put_rewinds(b, r);
    put64(b + 1128, r->vouched_ns);
    seal_block(b);
}

/* Walks count a tree's levels down: one that has a root has levels, as many as a disk's may. */
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

    if (all_zero(block))
        return plx_fault_set(fault, PLX_ERR_NOT_FOUND, "VDI slot %u was never used", slot);
    error = check_block(block, VDI_MAGIC, "VDI record", fault);
    if (error)
        return error;
    id = get_uuid(b + 16);
    name_bytes = get32(b + 124);
    if (!plx_uuid_equal(&id, store) || get32(b + 120) != slot || name_bytes < 1 ||
        name_bytes > PLX_NAME_MAX || memchr(b + 128, 0, name_bytes) ||
        (b[12] != PLX_VDI_LIVE && b[12] != PLX_VDI_DELETED) || (b[13] != 9 && b[13] != 12) ||
        b[14] > PLX_OVERWRITE_COPY || b[15] > 1 ||
        !get_keyframe(b + 384, addr_limit, &r.keyframe) ||
        !get_keyframe(b + 1024, addr_limit, &r.oldest))
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
    *ret_record = r;
    return 0;
}

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
    put_keyframe(b + 104, &h->keyframe);
    put32(b + 184, h->start);
    seal_block(b);
}

int plx_format_segment_decode(const void *block, const struct plx_uuid *store,
                              const struct plx_uuid *vdi, uint64_t segment, uint64_t addr_limit,
                              struct plx_segment_header *ret_header, struct plx_fault *fault)
{
    const uint8_t *b = block;
    struct plx_uuid store_id = get_uuid(b + 16), vdi_id = get_uuid(b + 32);
    struct plx_segment_header h;
    int error = check_block(block, SEGMENT_MAGIC, "log segment", fault);

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
    if (!h.start) /* of before there was any other */
        h.start = PLX_SEGMENT_HEADER_BYTES;
    if (!plx_uuid_equal(&store_id, store) || !plx_uuid_equal(&vdi_id, vdi) ||
        h.segment != segment || h.next_addr >= addr_limit || h.epoch > PLX_COUNTER_MAX ||
        h.first_batch > PLX_COUNTER_MAX || h.snap_seq > PLX_COUNTER_MAX ||
        h.start < PLX_SEGMENT_HEADER_BYTES || h.start % 512 != 0 ||
        h.start >= PLX_SEGMENT_BLOCKS_MAX * PLX_BLOCK_SIZE ||
        !get_keyframe(b + 104, addr_limit, &h.keyframe))
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

    put_keyframe((uint8_t *)out + RECORD_BYTES, keyframe);
    return bytes;
}

size_t plx_record_put_skip(void *out, const struct plx_keyframe *keyframe)
{
    size_t bytes = put_record(out, PLX_RECORD_SKIP, false, 0, 0, 0);

    put_keyframe((uint8_t *)out + RECORD_BYTES, keyframe);
    return bytes;
}

size_t plx_record_put_rewind(void *out, uint64_t seq, const struct plx_keyframe *keyframe)
{
    size_t bytes = put_record(out, PLX_RECORD_REWIND, false, 0, 0, seq);

    put_keyframe((uint8_t *)out + RECORD_BYTES, keyframe);
    return bytes;
}

uint32_t plx_record_checksum(const struct plx_record *record, uint64_t index)
{
    return get32(record->checksums + index * 4);
}

/* Type-specific half of plx_record_next: payload lies at `payload` and is wholly inside. */
static bool decode_payload(struct plx_record *r, uint64_t word, const uint8_t *payload,
                           uint64_t addr_limit)
{
    switch (r->type) {
    case PLX_RECORD_MAP:
        r->addr = word;
        r->checksums = payload;
        return r->count >= 1 && r->count <= PLX_RECORD_MAP_MAX &&
               data_addr_valid(word, addr_limit) && r->count <= addr_limit - plx_addr_block(word) &&
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
        return get_keyframe(payload, addr_limit, &r->keyframe);
    case PLX_RECORD_REWIND:
        break;
    }
    r->seq = word;
    return get_keyframe(payload, addr_limit, &r->keyframe) && word >= 1 &&
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
    if ((word & 0xff) < PLX_RECORD_MAP || (word & 0xff) > PLX_RECORD_REWIND)
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
