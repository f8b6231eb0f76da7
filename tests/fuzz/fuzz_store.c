/* fuzz_store.c - a whole store, damaged in ways that pass its checksums, then used.
 *
 * One small store of two volumes is made once: snapshots, labels, key frames, a clone, a disk of
 * four levels; two of its disks are left by a crash. Its structures are found by their magic
 * numbers, and every word that vouches for something (an entry with its child's checksum, the hash
 * of an earlier batch) is noted. An input is a list of changes to structures; then, if its flags
 * say so, everything is sealed again from the bottom up, so that the changes are believed; then
 * batches of arbitrary records may be appended to logs. The store is checked, opened, recovered,
 * read, written and closed. Allowed are errors; not a crash, a hang, an assertion, a request
 * outside a device or a leak.
 *
 * Every run starts from the same image: pages that were changed are put back.
 */
#include "fuzz.h"
#include "engine/base/hash.h"
#include "engine/log/log.h"
#include "sim/simenv.h"

#define MIB (1ull << 20)
#define BLOCK PLX_BLOCK_SIZE
#define EXTENT_BYTES MIB
#define SEGMENT_BYTES (32u << 10)
#define VOLUMES 2
#define VOLUME_A (7 * MIB)
#define VOLUME_B (5 * MIB)
#define IMAGE_BYTES (VOLUME_A + VOLUME_B)
#define BLOCKS (IMAGE_BYTES / BLOCK)
#define VDIS 4
#define HUGE (600ull << 30)
#define CHANGES_MAX 12
#define IO_BYTES (256u << 10)

/* ---- Devices: two parts of one image in memory ---- */

struct memory {
    struct plx_device device; /* first */
    uint64_t base;            /* in the image */
    struct plx_io *head, *tail;
    bool dead;
};

static uint8_t image[IMAGE_BYTES], original[IMAGE_BYTES];
static bool changed[BLOCKS];
static uint64_t ios, ios_max;

static void memory_submit(struct plx_device *device, struct plx_io *io)
{
    struct memory *memory = (struct memory *)device;

    if (io->op != PLX_IO_FLUSH)
        FUZZ_CHECK(io->bytes && io->offset % 512 == 0 && io->bytes % 512 == 0 &&
                   io->offset < device->bytes && io->bytes <= device->bytes - io->offset);
    io->next = NULL;
    if (memory->tail)
        memory->tail->next = io;
    else
        memory->head = io;
    memory->tail = io;
}

static bool memory_kick(struct plx_device *device)
{
    return false;
}

static void move(struct memory *memory, struct plx_io *io)
{
    uint64_t at = memory->base + io->offset;

    for (int i = 0; i < io->iovcnt; at += io->iov[i].iov_len, i++) {
        if (io->op == PLX_IO_READ) {
            memcpy(io->iov[i].iov_base, image + at, io->iov[i].iov_len);
            continue;
        }
        memcpy(image + at, io->iov[i].iov_base, io->iov[i].iov_len);
        for (uint64_t b = at / BLOCK; b * BLOCK < at + io->iov[i].iov_len; b++)
            changed[b] = true;
    }
}

static int memory_poll(struct plx_device *device, bool wait)
{
    struct memory *memory = (struct memory *)device;
    struct plx_io *io = memory->head;
    int count = 0;

    memory->head = memory->tail = NULL;
    while (io) {
        struct plx_io *next = io->next;

        /* What goes on for ever with I/O is found, too. */
        FUZZ_CHECK(ios_max == 0 || ++ios < ios_max);
        io->result = memory->dead ? PLX_ERR_LOST : 0;
        if (!memory->dead && io->op != PLX_IO_FLUSH)
            move(memory, io);
        io->done(io);
        io = next;
        count++;
    }
    return count;
}

static void memory_close(struct plx_device *device)
{
    FUZZ_CHECK(!((struct memory *)device)->head);
    free(device);
}

static struct plx_device *memory_open(unsigned volume)
{
    static const struct plx_device_ops ops = {
        .submit = memory_submit, .kick = memory_kick, .poll = memory_poll, .close = memory_close};
    struct memory *memory = calloc(1, sizeof *memory);

    memory->device = (struct plx_device){
        .ops = &ops,
        .name = "memory",
        .bytes = volume ? VOLUME_B : VOLUME_A,
        .block_size = 512,
        .volatile_cache = true,
    };
    memory->base = volume ? VOLUME_A : 0;
    return &memory->device;
}

/* ---- A store in use ---- */

static struct plx_simenv env;
static struct plx_simregistry registry, registry_then;
static struct plx_store *store;
static struct memory *devices[VOLUMES];
static uint8_t buffer[IO_BYTES];

static int open_store(uint64_t instance)
{
    struct plx_store_options options = {
        .instance = instance, .cache_bytes = 1, .ops_per_vdi = 2, .keyframe_log_bytes = 64u << 10};
    struct plx_device *opened[VOLUMES] = {memory_open(0), memory_open(1)};
    struct plx_fault fault;
    int error = plx_store_open(opened, VOLUMES, &options, &env.env, &store, &fault);

    for (unsigned i = 0; i < VOLUMES; i++) {
        devices[i] = (struct memory *)opened[i];
        if (error)
            opened[i]->ops->close(opened[i]);
    }
    env.instance = instance;
    env.store = error ? NULL : store;
    if (error)
        store = NULL;
    return error;
}

static void close_store(void)
{
    plx_store_close(store);
    store = NULL;
}

static int run(struct plx_vdi *vdi, enum plx_request_op op, uint64_t offset, uint64_t length)
{
    struct iovec iov = {buffer, length};
    struct plx_request request = {
        .op = op, .offset = offset, .length = length, .iov = &iov, .iovcnt = 1};

    return plx_vdi_run(vdi, &request);
}

static int label(struct plx_vdi *vdi, uint64_t seq, const char *name, bool removed)
{
    struct plx_request request = {.op = PLX_LABEL, .seq = seq, .remove = removed};

    snprintf(request.label, sizeof request.label, "%s", name);
    return plx_vdi_run(vdi, &request);
}

/* ---- The original ---- */

#define MUST(call) FUZZ_CHECK((call) == 0)

static void put(struct plx_vdi *vdi, uint64_t block, unsigned blocks, unsigned seed)
{
    struct plx_simrng rng = {seed};

    for (size_t i = 0; i < blocks * BLOCK; i++)
        buffer[i] = (uint8_t)plx_simrng_next(&rng);
    MUST(run(vdi, PLX_WRITE, block * BLOCK, blocks * BLOCK));
}

static struct plx_vdi *make(uint32_t slot, uint64_t size, uint32_t sector, uint64_t parent_seq)
{
    struct plx_vdi_create_options options = {.size_bytes = size,
                                             .sector_size = sector,
                                             .slot = slot,
                                             .is_clone = parent_seq > 0,
                                             .parent_seq = parent_seq};
    struct plx_vdi_open_options opening = {.slot = slot, .epoch = 5, .overwrite = -1};
    struct plx_vdi *vdi;

    snprintf(options.name, sizeof options.name, "v%u", slot);
    MUST(plx_vdi_create(store, &options, NULL, NULL));
    MUST(plx_vdi_open(store, &opening, &vdi, NULL));
    return vdi;
}

static void fill_first(struct plx_vdi *vdi)
{
    for (unsigned i = 0; i < 12; i++)
        put(vdi, i * 700 % 3000, 3, i);
    MUST(run(vdi, PLX_SNAPSHOT, 0, 0));
    MUST(label(vdi, 1, "first", false));
    put(vdi, 0, 2, 20);
    put(vdi, 0, 2, 21); /* in place: voids */
    MUST(run(vdi, PLX_KEYFRAME, 0, 0));
    MUST(run(vdi, PLX_UNMAP, 700 * BLOCK, 600 * BLOCK));
    for (unsigned i = 0; i < 60; i++) { /* on to further segments */
        put(vdi, 10 + i, 1, 30 + i);
        if (i % 6 == 0)
            MUST(run(vdi, PLX_SNAPSHOT, 0, 0));
        if (i == 20)
            MUST(run(vdi, PLX_KEYFRAME, 0, 0));
    }
    MUST(label(vdi, 2, "second", false));
    MUST(label(vdi, 1, "first", true));
}

static void fill_last(struct plx_vdi *vdi)
{
    struct plx_request grow = {.op = PLX_RESIZE, .length = 16 * MIB};

    MUST(plx_vdi_run(vdi, &grow));
    put(vdi, 3500, 1, 100);
    put(vdi, 3500, 1, 101);
    for (unsigned i = 0; i < 20; i++)
        put(vdi, 100 + i, 1, 110 + i);
    MUST(run(vdi, PLX_SNAPSHOT, 0, 0));
    put(vdi, 100, 3, 130);
}

/* Two disks closed, two left by a crash of instance 1. */
static void make_original(void)
{
    struct plx_format_options options = {
        .name = "fuzz", .extent_bytes = EXTENT_BYTES, .segment_bytes = SEGMENT_BYTES};
    struct plx_device *opened[VOLUMES] = {memory_open(0), memory_open(1)};
    struct plx_store_info info;
    struct plx_vdi *vdis[VDIS];

    plx_simenv_init(&env, 1);
    MUST(plx_store_format(opened, VOLUMES, &options, &env.env, &info, NULL));
    for (unsigned i = 0; i < VOLUMES; i++)
        opened[i]->ops->close(opened[i]);
    plx_simregistry_init(&registry_then, &info);
    env.registry = &registry_then;
    MUST(open_store(1));
    vdis[0] = make(0, 14 * MIB, 512, 0);
    fill_first(vdis[0]);
    vdis[1] = make(1, 0, 512, 2);
    put(vdis[1], 0, 5, 200);
    MUST(run(vdis[1], PLX_SNAPSHOT, 0, 0));
    MUST(plx_vdi_close(vdis[1]));
    vdis[2] = make(2, HUGE, 4096, 0);
    put(vdis[2], 0, 1, 300);
    put(vdis[2], HUGE / BLOCK - 1, 1, 301);
    MUST(run(vdis[2], PLX_KEYFRAME, 0, 0));
    put(vdis[2], HUGE / BLOCK / 2, 2, 302);
    vdis[3] = make(3, 1 * MIB, 512, 0);
    put(vdis[3], 0, 60, 400);
    MUST(plx_vdi_close(vdis[3]));
    fill_last(vdis[0]);
    for (unsigned i = 0; i < VOLUMES; i++)
        devices[i]->dead = true;
    plx_vdi_abandon(vdis[0]);
    plx_vdi_abandon(vdis[2]);
    close_store();
    memcpy(original, image, sizeof original);
}

/* ---- Its structures ---- */

enum kind {
    SUPERBLOCK,
    PAGE,
    RECORD,
    SEGMENT,
    BATCH,
    NODE,
    DATA,
};

struct structure {
    enum kind kind;
    uint64_t at; /* in the image */
    uint32_t bytes;
};

/* A word that vouches: an entry for a block, or a batch's hash. */
struct voucher {
    uint64_t at, of;
};

#define STRUCTURES_MAX 4096
#define VOUCHERS_MAX 16384

static struct structure structures[STRUCTURES_MAX];
static unsigned structure_count, first_node;
static struct voucher entries[VOUCHERS_MAX], hashes[VOUCHERS_MAX];
static unsigned entry_count, hash_count;
static struct plx_uuid store_id;
static struct chain {
    struct plx_uuid id;
    uint64_t end; /* in the image, where the next batch would go */
    uint64_t seq, hash, epoch;
} chains[VDIS];

static void note(enum kind kind, uint64_t at, uint32_t bytes)
{
    FUZZ_CHECK(structure_count < STRUCTURES_MAX);
    structures[structure_count++] = (struct structure){kind, at, bytes};
}

static void note_segment(uint64_t at)
{
    struct plx_batch_header header;
    uint64_t offset = BLOCK;

    note(SEGMENT, at, BLOCK);
    while (offset < SEGMENT_BYTES &&
           plx_format_batch_decode(image + at + offset, SEGMENT_BYTES - offset, &header) == 0) {
        note(BATCH, at + offset, header.bytes);
        offset += header.bytes;
    }
}

static void find_headers(void)
{
    for (uint64_t b = 0; b < BLOCKS; b++) {
        const uint8_t *block = image + b * BLOCK;

        if (memcmp(block, "PLXSUPER", 8) == 0)
            note(SUPERBLOCK, b * BLOCK, BLOCK);
        else if (memcmp(block, "PLXEXTNT", 8) == 0)
            note(PAGE, b * BLOCK, BLOCK);
        else if (memcmp(block, "PLXVDREC", 8) == 0)
            note(RECORD, b * BLOCK, BLOCK);
        else if (memcmp(block, "PLXLOGSG", 8) == 0)
            note_segment(b * BLOCK);
    }
    memcpy(store_id.b, image + 40, sizeof store_id.b);
}

static bool is_node(uint64_t at)
{
    for (unsigned i = 0; i < entry_count; i++)
        if (entries[i].at >= at && entries[i].at < at + BLOCK)
            return true;
    return false;
}

/* By what vouches for it a block is known to be a node or data; no walk of a tree is needed. */
static void find_entries(void)
{
    static uint32_t checksums[BLOCKS];
    static bool seen[BLOCKS];

    for (uint64_t b = 0; b < BLOCKS; b++)
        checksums[b] = plx_checksum24(plx_crc32c(image + b * BLOCK, BLOCK));
    for (uint64_t at = 0; at < IMAGE_BYTES; at += 8) {
        uint64_t entry = fuzz_get(image + at, 8), addr = plx_entry_addr(entry);

        if (!addr || addr >= BLOCKS || checksums[addr] != plx_entry_checksum(entry))
            continue;
        FUZZ_CHECK(entry_count < VOUCHERS_MAX);
        entries[entry_count++] = (struct voucher){at, addr * BLOCK};
    }
    first_node = structure_count;
    for (unsigned pass = 0; pass < 2; pass++) /* nodes first */
        for (unsigned i = 0; i < entry_count; i++) {
            uint64_t at = entries[i].of;

            if (is_node(at) != (pass == 0) || seen[at / BLOCK])
                continue;
            seen[at / BLOCK] = true;
            note(pass == 0 ? NODE : DATA, at, BLOCK);
        }
}

static unsigned height(uint64_t at)
{
    unsigned most = 0;

    for (unsigned i = 0; i < entry_count; i++)
        if (entries[i].at >= at && entries[i].at < at + BLOCK)
            most = (unsigned)plx_max_u64(most, 1 + height(entries[i].of));
    return most;
}

/* Children before parents. */
static void sort_entries(void)
{
    static struct voucher sorted[VOUCHERS_MAX];
    static unsigned heights[VOUCHERS_MAX];
    unsigned n = 0;

    for (unsigned i = 0; i < entry_count; i++)
        heights[i] = height(entries[i].of);
    for (unsigned h = 0; n < entry_count; h++)
        for (unsigned i = 0; i < entry_count; i++)
            if (heights[i] == h)
                sorted[n++] = entries[i];
    memcpy(entries, sorted, n * sizeof *entries);
}

static int by_sequence(const void *a, const void *b)
{
    const struct structure *x = a, *y = b;
    uint64_t m = fuzz_get(image + x->at + 8, 8), n = fuzz_get(image + y->at + 8, 8);

    if ((x->kind == BATCH) != (y->kind == BATCH))
        return x->kind == BATCH ? 1 : -1;
    if (x->kind != BATCH)
        return x->at < y->at ? -1 : 1;
    return m < n ? -1 : m > n ? 1 : x->at < y->at ? -1 : 1;
}

static void find_hashes(void)
{
    qsort(structures, first_node, sizeof *structures, by_sequence);
    for (unsigned i = 0; i < first_node; i++) {
        uint64_t hash;

        if (structures[i].kind != BATCH)
            continue;
        hash = plx_hash64(image + structures[i].at, structures[i].bytes);
        for (unsigned j = 0; j < first_node; j++)
            for (uint32_t o = 0; o < structures[j].bytes; o += 8)
                if (fuzz_get(image + structures[j].at + o, 8) == hash) {
                    FUZZ_CHECK(hash_count < VOUCHERS_MAX);
                    hashes[hash_count++] = (struct voucher){structures[j].at + o, structures[i].at};
                }
    }
}

static void find_chains(void)
{
    for (unsigned v = 0; v < VDIS; v++) {
        struct chain *chain = &chains[v];
        uint64_t slot = (PLX_VDI_TABLE_BLOCK + 2 * v) * BLOCK, word;

        memcpy(chain->id.b, image + slot + 32, sizeof chain->id.b);
        word = plx_format_vdi_word(&chain->id);
        for (unsigned i = 0; i < first_node; i++)
            if (structures[i].kind == BATCH && fuzz_get(image + structures[i].at + 16, 8) == word)
                chain->end = structures[i].at; /* of the last one: they are sorted */
    }
}

PLX_FUZZ_EXPORT int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    make_original();
    find_headers();
    find_entries();
    sort_entries();
    find_hashes();
    find_chains();
    memset(changed, 0, sizeof changed);
    if (getenv("PLX_FUZZ_VERBOSE"))
        fprintf(stderr, "%u structures, %u of them nodes and data, %u entries, %u hashes\n",
                structure_count, structure_count - first_node, entry_count, hash_count);
    return 0;
}

/* ---- Changes ---- */

static void set(uint64_t at, unsigned bytes, uint64_t value)
{
    FUZZ_CHECK(at + bytes <= IMAGE_BYTES);
    fuzz_put(image + at, bytes, value);
    changed[at / BLOCK] = changed[(at + bytes - 1) / BLOCK] = true;
}

static uint64_t value(struct fuzz_input *input, uint64_t old)
{
    uint64_t choice = fuzz_take(input, 1);

    switch (choice % 9) {
    case 0:
        return fuzz_take(input, 8);
    case 1:
        return fuzz_take(input, 1);
    case 2:
        return UINT64_MAX >> (choice >> 4);
    case 3:
        return structures[fuzz_take(input, 2) % structure_count].at / BLOCK;
    case 4: /* around the end of the store */
        return BLOCKS + (uint64_t)(int8_t)fuzz_take(input, 1);
    case 5:
        return old + (uint64_t)(int8_t)fuzz_take(input, 1);
    case 6:
        return old ^ 1ull << (fuzz_take(input, 1) & 63);
    case 7: /* around the boundaries of extents and of the volumes */
        old = fuzz_take(input, 1) % (IMAGE_BYTES / EXTENT_BYTES) * (EXTENT_BYTES / BLOCK);
        return old + (uint64_t)(int8_t)fuzz_take(input, 1);
    default: /* around the boundaries of log segments */
        old = (old / SEGMENT_BYTES + fuzz_take(input, 1)) * SEGMENT_BYTES;
        return old + (uint64_t)(int8_t)fuzz_take(input, 1) * 256;
    }
}

/* Where numbers lie, and how wide: drawn in format.h. */
static const struct field {
    uint16_t at;
    uint8_t bytes;
} super_fields[] = {{16, 8}, {24, 8}, {32, 8}, {12, 4},  {72, 8},  {80, 4},
                    {84, 4}, {88, 8}, {96, 8}, {104, 8}, {112, 4}, {116, 4}},
  page_fields[] = {{12, 1}, {13, 1}, {14, 2}, {32, 8}, {40, 8}, {48, 8}, {72, 4}},
  record_fields[] = {{12, 1},  {13, 1},  {14, 1},  {48, 8},  {56, 8},  {64, 8},  {112, 8}, {120, 4},
                     {124, 4}, {384, 8}, {392, 4}, {400, 8}, {408, 8}, {416, 8}, {424, 8}, {432, 8},
                     {440, 8}, {464, 8}, {472, 8}, {480, 4}, {488, 8}, {496, 8}},
  segment_fields[] = {{48, 8},  {56, 8},  {64, 8},  {72, 8},  {80, 8},  {88, 8},  {96, 8},
                      {104, 8}, {112, 4}, {120, 8}, {128, 8}, {136, 8}, {144, 8}, {152, 8}},
  batch_fields[] = {{8, 8},  {16, 8}, {24, 8}, {32, 8}, {40, 8}, {48, 8},
                    {56, 4}, {60, 4}, {64, 8}, {72, 8}, {80, 8}, {88, 8}};

#define FIELDS(table)                                                                              \
    {                                                                                              \
        table, sizeof table / sizeof table[0]                                                      \
    }
static const struct {
    const struct field *fields;
    size_t count;
} tables[] = {[SUPERBLOCK] = FIELDS(super_fields), [PAGE] = FIELDS(page_fields),
              [RECORD] = FIELDS(record_fields),    [SEGMENT] = FIELDS(segment_fields),
              [BATCH] = FIELDS(batch_fields),      [DATA] = {NULL, 0}};

/* Around what counters and times may be, and from where on nothing more is written. */
static uint64_t limit(struct fuzz_input *input)
{
    static const uint64_t limits[] = {PLX_COUNTER_MAX, PLX_COUNTER_MAX / 2, PLX_TIME_MAX, INT64_MAX,
                                      UINT32_MAX};
    uint64_t choice = fuzz_take(input, 1);

    return limits[choice % 5] + (uint64_t)(int64_t)((int)(choice / 5 % 9) - 4);
}

/* Any word of it, small numbers and limits before all: tables forget what came later. */
static void change_word(struct fuzz_input *input, const struct structure *s)
{
    uint64_t at = fuzz_take(input, 2) % (s->bytes / 4) * 4, choice = fuzz_take(input, 1);
    unsigned bytes = choice & 1 && at % 8 == 0 ? 8 : 4;

    set(s->at + at, bytes,
        choice & 2   ? limit(input)
        : choice & 4 ? fuzz_take(input, 1)
                     : value(input, fuzz_get(image + s->at + at, bytes)));
}

static void change_field(struct fuzz_input *input, const struct structure *s)
{
    struct field field = {(uint16_t)(fuzz_take(input, 2) % PLX_NODE_ENTRIES * 8), 8};
    uint64_t old, new;

    if (tables[s->kind].count)
        field = tables[s->kind].fields[field.at / 8 % tables[s->kind].count];
    if (field.at + field.bytes > s->bytes)
        return;
    old = fuzz_get(image + s->at + field.at, field.bytes);
    new = value(input, s->kind == NODE ? plx_entry_addr(old) : old);
    if (s->kind == NODE) { /* the bits above the address are chosen apart from it */
        uint64_t bits = fuzz_take(input, 1);

        new &= PLX_ADDR_MAX;
        if (bits & 1)
            new |= PLX_ENTRY_READ_ONLY;
        if (bits & 2)
            new |= old & ~PLX_ADDR_MAX;
        if (bits & 4)
            new |= PLX_ENTRY_SUPERPAGE;
        if ((bits & 8) && new % (1ull << 38) < BLOCKS)
            new |= (uint64_t)plx_checksum24(plx_crc32c(image + plx_entry_addr(new) * BLOCK, BLOCK))
                   << PLX_ADDR_BITS;
    }
    set(s->at + field.at, field.bytes, new);
}

static const struct structure *choose(struct fuzz_input *input)
{
    unsigned kind = (unsigned)fuzz_take(input, 1) % (DATA + 1), n = 0, which;

    for (unsigned i = 0; i < structure_count; i++)
        n += structures[i].kind == kind;
    which = (unsigned)fuzz_take(input, 1) % n;
    for (unsigned i = 0;; i++)
        if (structures[i].kind == kind && which-- == 0)
            return &structures[i];
}

static void change(struct fuzz_input *input)
{
    const struct structure *s = choose(input), *from;
    uint64_t choice = fuzz_take(input, 1);

    switch (choice % 8) {
    default:
        if (choice >= 128)
            change_word(input, s);
        else
            change_field(input, s);
        return;
    case 5: { /* some bytes */
        uint64_t at = s->at + fuzz_take(input, 2) % s->bytes;

        for (uint64_t n = fuzz_take(input, 1) % 16; n-- && at < s->at + s->bytes; at++)
            set(at, 1, fuzz_take(input, 1));
        return;
    }
    case 6: { /* another one's contents */
        uint32_t bytes;

        from = choose(input);
        bytes = (uint32_t)plx_min_u64(from->bytes, s->bytes);
        memmove(image + s->at, image + from->at, bytes);
        set(s->at, 1, image[s->at]);
        set(s->at + bytes - 1, 1, image[s->at + bytes - 1]);
        return;
    }
    case 7: /* as if it had not been written, or only in part */
        for (uint64_t at = s->at / 512 * 512; at < s->at + s->bytes; at += 512)
            if (choice & 8 || fuzz_take(input, 1) & 1)
                for (unsigned i = 0; i < 512; i++)
                    set(at + i, 1, 0);
        return;
    }
}

/* ---- Sealing ---- */

static void seal_entries(void)
{
    for (unsigned i = 0; i < entry_count; i++) {
        uint64_t entry = fuzz_get(image + entries[i].at, 8), addr = plx_entry_addr(entry);

        if (addr * BLOCK != entries[i].of || !changed[addr] || !plx_entry_checksum(entry))
            continue;
        entry = plx_entry_void(entry) |
                (uint64_t)plx_checksum24(plx_crc32c(image + addr * BLOCK, BLOCK)) << PLX_ADDR_BITS;
        set(entries[i].at, 8, entry);
    }
}

static bool changed_range(uint64_t at, uint64_t bytes)
{
    for (uint64_t b = at / BLOCK; b * BLOCK < at + bytes; b++)
        if (changed[b])
            return true;
    return false;
}

static uint32_t batch_bytes(const struct structure *s)
{
    uint64_t bytes = fuzz_get(image + s->at + 56, 4);

    return bytes < PLX_BATCH_HEADER_BYTES || bytes > IMAGE_BYTES - s->at ||
                   bytes > PLX_BATCH_BYTES_MAX
               ? s->bytes
               : (uint32_t)bytes;
}

static void seal_batches(void)
{
    unsigned h = 0;

    for (unsigned i = 0; i < first_node; i++) {
        const struct structure *s = &structures[i];
        uint32_t bytes;
        uint64_t hash;

        if (s->kind != BATCH || !changed_range(s->at, s->bytes))
            continue;
        bytes = batch_bytes(s);
        fuzz_seal_batch(image + s->at, bytes);
        hash = plx_hash64(image + s->at, bytes);
        while (h < hash_count && hashes[h].of != s->at)
            h++;
        for (; h < hash_count && hashes[h].of == s->at; h++)
            set(hashes[h].at, 8, hash);
    }
}

static void seal(void)
{
    seal_entries();
    seal_batches();
    for (unsigned i = 0; i < first_node; i++)
        if (structures[i].kind <= SEGMENT && changed[structures[i].at / BLOCK])
            fuzz_seal_block(image + structures[i].at);
}

/* ---- Batches that continue a log ---- */

static size_t forge_record(struct fuzz_input *input, uint8_t *out)
{
    unsigned kind = (unsigned)fuzz_take(input, 1);
    uint64_t vblock = value(input, kind) & PLX_VBLOCK_MAX, count = fuzz_take(input, 1) + 1;
    uint64_t word = value(input, 2);
    uint32_t checksums[256];
    struct plx_keyframe keyframe;

    switch (kind % 8) {
    case 0:
    case 1:
        for (uint64_t i = 0; i < count; i++)
            checksums[i] = word + i < BLOCKS ? plx_crc32c(image + (word + i) * BLOCK, BLOCK) : 0;
        return plx_record_put_map(out, vblock, (uint32_t)count, word, checksums);
    case 2:
        return plx_record_put_unmap(out, vblock, kind & 8 ? count : word);
    case 3:
        return plx_record_put_void(out, vblock, (uint32_t)count);
    case 4:
        return plx_record_put_snapshot(out, word, fuzz_take(input, 8));
    case 5:
        return plx_record_put_label(out, word, "forged", kind & 8);
    case 6:
        return plx_record_put_resize(out, word);
    default:
        /* One by one: the order within an initializer is the compiler's choice. */
        keyframe = (struct plx_keyframe){.root = word, .levels = (uint32_t)count};
        keyframe.size_bytes = value(input, MIB);
        keyframe.pos = value(input, SEGMENT_BYTES);
        keyframe.batch_seq = value(input, count);
        keyframe.prev_hash = fuzz_take(input, 8);
        keyframe.snap_seq = value(input, count);
        return kind & 8 ? plx_record_put_rewind(out, vblock, &keyframe)
                        : plx_record_put_keyframe(out, &keyframe, false);
    }
}

static void forge(struct fuzz_input *input)
{
    struct chain *chain = &chains[fuzz_take(input, 1) % VDIS];
    struct plx_batch_header last, header;
    static uint8_t bytes[4096];
    size_t used = PLX_BATCH_HEADER_BYTES;
    uint64_t at, room, mark = fuzz_take(input, 1);
    unsigned records = (unsigned)fuzz_take(input, 1) % 8;

    if (!chain->end || plx_format_batch_decode(image + chain->end, SEGMENT_BYTES, &last))
        return;
    at = chain->end + last.bytes;
    room = SEGMENT_BYTES - at % SEGMENT_BYTES;
    header = (struct plx_batch_header){
        .seq = last.seq + 1,
        .vdi = last.vdi,
        .epoch = last.epoch,
        .time_ns = last.time_ns,
        .prev_hash = plx_hash64(image + chain->end, last.bytes),
        .durable_seq = mark & 1   ? last.seq + 1
                       : mark & 2 ? last.seq
                                  : last.durable_seq,
    };
    memset(bytes, 0, sizeof bytes);
    for (; header.records < records && used < 2048; header.records++)
        used += forge_record(input, bytes + used);
    header.bytes = (uint32_t)(used + 511) / 512 * 512;
    if (header.bytes >= room || header.bytes > sizeof bytes)
        return;
    plx_format_batch_encode(&header, bytes);
    memcpy(image + at, bytes, header.bytes);
    for (uint64_t o = 0; o < header.bytes; o += 512)
        set(at + o, 1, image[at + o]);
    chain->end = at;
}

/* ---- Using it ---- */

static void on_finding(void *context, const struct plx_finding *finding)
{
    FUZZ_CHECK(finding->text[0]);
    ++*(uint64_t *)context;
}

static void check_store(bool data)
{
    uint64_t findings = 0;
    struct plx_check_options options = {.data = data, .finding = on_finding, .context = &findings};
    struct plx_check_result result = {0};
    struct plx_fault fault;

    if (plx_store_check(store, &options, &result, &fault) == 0)
        FUZZ_CHECK(result.errors <= findings);
}

static bool on_run(void *context, uint64_t offset, uint64_t length, bool mapped)
{
    uint64_t *left = context;

    FUZZ_CHECK(length > 0);
    return --*left > 0;
}

/* The beginning, where most lies, then a look at every further MiB and at the end. */
static void read_some(struct plx_vdi *vdi)
{
    struct plx_vdi_info info;
    uint64_t size, left = 100;

    plx_vdi_get_info(vdi, &info);
    size = info.size_bytes;
    FUZZ_CHECK(size <= PLX_VDI_SIZE_MAX);
    run(vdi, PLX_READ, 0, plx_min_u64(IO_BYTES, size / BLOCK * BLOCK));
    for (uint64_t at = 0; at < plx_min_u64(size, 16 * MIB); at += MIB)
        run(vdi, PLX_READ, at, plx_min_u64(16u << 10, size - at) / BLOCK * BLOCK);
    run(vdi, PLX_READ, (size - plx_min_u64(size, BLOCK)) / BLOCK * BLOCK, BLOCK);
    run(vdi, PLX_READ, size / 2 / BLOCK * BLOCK, BLOCK);
    plx_vdi_map_runs(vdi, 0, plx_min_u64(size, 2 * MIB), on_run, &left, NULL);
    if (plx_vdi_is_snapshot(vdi))
        plx_vdi_map_runs(vdi, 0, plx_min_u64(size, 64 * MIB), on_run, &left, NULL);
}

static void write_some(struct plx_vdi *vdi)
{
    struct plx_vdi_info info;

    plx_vdi_get_info(vdi, &info);
    memset(buffer, 0x5a, sizeof buffer);
    run(vdi, PLX_WRITE, 0, 3 * BLOCK);
    run(vdi, PLX_WRITE, 11 * BLOCK, 2 * BLOCK);
    run(vdi, PLX_WRITE, (info.size_bytes / BLOCK - 1) * BLOCK, BLOCK);
    run(vdi, PLX_SNAPSHOT, 0, 0);
    run(vdi, PLX_WRITE, 512, 512);
    run(vdi, PLX_UNMAP, 12 * BLOCK, plx_min_u64(600 * BLOCK, info.size_bytes / 2 / BLOCK * BLOCK));
    label(vdi, 1, "again", false);
    run(vdi, PLX_KEYFRAME, 0, 0);
    run(vdi, PLX_WRITE, 0, IO_BYTES);
    run(vdi, PLX_FLUSH, 0, 0);
}

static bool on_snapshot(void *context, const struct plx_snapshot_info *info)
{
    uint64_t *seqs = context;

    seqs[seqs[7]++ % 4] = info->seq;
    return true;
}

static void on_label(void *context, const char *name, uint64_t seq, bool removed)
{
    FUZZ_CHECK(strlen(name) <= PLX_LABEL_MAX);
}

static void look_back(uint32_t slot)
{
    uint64_t seqs[8] = {0};

    plx_snapshot_list(store, slot, 0, on_snapshot, seqs, NULL);
    plx_snapshot_list(store, slot, 3, on_snapshot, seqs, NULL);
    plx_label_list(store, slot, 0, on_label, NULL, NULL);
    seqs[4] = 1;
    for (unsigned i = 0; i < 6; i++) { /* the newest, the first, and the newest state (0) */
        struct plx_vdi *vdi;

        if ((seqs[i] == 0 && i < 5) || plx_snapshot_open(store, slot, seqs[i], &vdi, NULL))
            continue;
        read_some(vdi);
        plx_vdi_close(vdi);
    }
}

/* As an instance does that finds another one dead (attach.c). */
static void adopt_all(void)
{
    bool damaged = false;
    struct plx_fault fault;

    for (uint64_t e = 0; e < registry.count; e++) {
        if (registry.extents[e].owner != 1)
            continue;
        if (plx_store_extent_adopt(store, e, &fault) == 0)
            registry.extents[e].owner = 2;
    }
    for (uint32_t slot = 0; slot < VDIS; slot++)
        damaged = plx_vdi_mark(store, slot, &fault) || damaged;
    if (damaged)
        plx_store_extents_seal(store);
    plx_store_extents_adopted(store, &fault);
}

static void use_vdi(uint32_t slot, unsigned flags)
{
    struct plx_vdi_open_options options = {.slot = slot, .take_over = true, .overwrite = -1};
    struct plx_vdi_info info;
    struct plx_vdi *vdi;

    if (plx_vdi_read_info(store, slot, &info, NULL))
        return;
    options.epoch = info.epoch + 1;
    if (plx_vdi_open(store, &options, &vdi, NULL))
        return;
    read_some(vdi);
    write_some(vdi);
    if (flags & 1)
        look_back(slot);
    if (flags & 2)
        plx_vdi_abandon(vdi);
    else
        plx_vdi_close(vdi);
}

static void copy_registry(void)
{
    size_t bytes = registry_then.count * sizeof *registry_then.extents;

    registry = registry_then;
    registry.extents = malloc(bytes);
    memcpy(registry.extents, registry_then.extents, bytes);
    env.registry = &registry;
}

static void clone_some(void)
{
    struct plx_vdi_create_options options = {
        .name = "clone", .sector_size = 512, .slot = VDIS, .is_clone = true, .parent_seq = 2};

    plx_vdi_create(store, &options, NULL, NULL);
    plx_vdi_delete(store, 3, true, NULL);
}

static void use(unsigned flags)
{
    if ((flags & 2) && open_store(0) == 0) {
        check_store(flags & 4);
        for (uint32_t slot = 0; slot < VDIS; slot++)
            look_back(slot);
        close_store();
    }
    if ((flags & 8) && open_store(2) == 0) {
        adopt_all();
        for (uint32_t slot = 0; slot < VDIS; slot++)
            use_vdi(slot, flags >> 4);
        if (flags & 64)
            clone_some();
        if (flags & 128)
            check_store(flags & 4);
        close_store();
    }
    if ((flags & 128) && open_store(3) == 0) { /* what that left must be usable, too */
        for (uint32_t slot = 0; slot < VDIS; slot++)
            use_vdi(slot, 0);
        close_store();
    }
}

PLX_FUZZ_EXPORT int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct fuzz_input input = {bytes, count};
    unsigned flags = (unsigned)fuzz_take(&input, 1);
    unsigned amounts = (unsigned)fuzz_take(&input, 1);
    uint64_t ends[VDIS];

    for (unsigned i = 0; i < (amounts & 15) % CHANGES_MAX; i++)
        change(&input);
    if (flags & 1)
        seal();
    for (unsigned v = 0; v < VDIS; v++)
        ends[v] = chains[v].end;
    for (unsigned i = 0; i < (amounts >> 4) % 6; i++)
        forge(&input);
    for (unsigned v = 0; v < VDIS; v++)
        chains[v].end = ends[v];
    plx_simenv_init(&env, 2);
    copy_registry();
    ios = 0;
    ios_max = 1u << 20;
    use(flags);
    plx_simregistry_done(&registry);
    for (uint64_t b = 0; b < BLOCKS; b++)
        if (changed[b])
            memcpy(image + b * BLOCK, original + b * BLOCK, BLOCK);
    memset(changed, 0, sizeof changed);
    return 0;
}
