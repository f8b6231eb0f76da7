/* format_store.c - superblock, home page, number page and extent page. Stateless; see format.h. */
#include "engine/format/format_inside.h"

/* ---- Superblock ---- */

/* The first range has an offset of its own, because it was there before a volume could have
 * several. */
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

/* The bit and a cluster's id come together, and only volume 0 has them. */
static bool get_cluster(const uint8_t *b, struct plx_superblock *s)
{
    if (!(s->incompatible & PLX_INCOMPATIBLE_CLUSTER))
        return true;
    s->cluster = (struct plx_cluster){.id = get_uuid(b + 224), .line = get64(b + 240)};
    return s->volume_index == 0 && !plx_uuid_is_zero(&s->cluster.id) && s->cluster.line >= 1 &&
           s->cluster.line <= INT64_MAX;
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
    put_uuid(b + 224, &s->cluster.id);
    put64(b + 240, s->cluster.line);
    put64(b + 104, s->extent_blocks);
    put32(b + 112, s->segment_blocks);
    put32(b + 116, s->vdi_slots);
    put64(b + 120, s->created_ns);
    memcpy(b + 128, s->name, sizeof s->name);
    plx_format_seal_block(b);
}

static bool power_of_two(uint64_t v)
{
    return v && (v & (v - 1)) == 0;
}

/* Each range begins behind the one before it, with a gap: without a gap the two would be one range.
 */
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

/* Each span consists of whole extents of one range of this volume, without extent 0. Spans do not
 * overlap. */
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
    error = plx_format_check_block(block, SUPER_MAGIC, "superblock", fault);
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
    if (!get_ranges(b, &s) || !get_spans(b, &s) || !get_cluster(b, &s) || !superblock_plausible(&s))
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
    put64(b + 168, home->number);
    plx_format_seal_block(b);
}

int plx_format_home_decode(const void *block, const struct plx_uuid *store,
                           struct plx_home *ret_home, struct plx_fault *fault)
{
    const uint8_t *b = block;
    struct plx_home home;
    struct plx_uuid id;
    int error;

    if (plx_format_all_zero(block))
        return PLX_ERR_NOT_FOUND;
    error = plx_format_check_block(block, HOME_MAGIC, "home page", fault);
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
        .number = get64(b + 168),
    };
    memcpy(home.host_name, b + 96, sizeof home.host_name);
    if (!plx_uuid_equal(&id, store) || b[12] > 1 || home.generation > PLX_COUNTER_MAX ||
        home.counter > PLX_COUNTER_MAX || home.number > PLX_COUNTER_MAX ||
        !memchr(home.host_name, 0, sizeof home.host_name))
        return plx_fault_set(fault, PLX_ERR_CORRUPT, "home page: belongs to another store");
    *ret_home = home;
    return 0;
}

/* ---- Number page ---- */

void plx_format_number_encode(const struct plx_uuid *store, uint64_t number, void *block)
{
    uint8_t *b = block;

    memset(b, 0, PLX_BLOCK_SIZE);
    memcpy(b, NUMBER_MAGIC, 8);
    put_uuid(b + 16, store);
    put64(b + 32, number);
    plx_format_seal_block(b);
}

int plx_format_number_decode(const void *block, const struct plx_uuid *store, uint64_t *ret_number,
                             struct plx_fault *fault)
{
    const uint8_t *b = block;
    struct plx_uuid id;
    uint64_t number;
    int error;

    if (plx_format_all_zero(block))
        return PLX_ERR_NOT_FOUND;
    error = plx_format_check_block(block, NUMBER_MAGIC, "number page", fault);
    if (error)
        return error;
    id = get_uuid(b + 16);
    number = get64(b + 32);
    if (!plx_uuid_equal(&id, store))
        return PLX_ERR_NOT_FOUND;
    if (!number || number > PLX_COUNTER_MAX)
        return plx_fault_set(fault, PLX_ERR_CORRUPT, "number page: impossible number");
    *ret_number = number;
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
    plx_format_seal_block(b);
}

int plx_format_extent_page_decode(const void *block, const struct plx_uuid *store, uint64_t extent,
                                  uint32_t page, uint32_t pages, struct plx_extent_page *ret_page,
                                  struct plx_fault *fault)
{
    const uint8_t *b = block;
    struct plx_uuid id = get_uuid(b + 16);
    int error = plx_format_check_block(block, EXTENT_MAGIC, "extent page", fault);

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
