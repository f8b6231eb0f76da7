/* audit.c - what becomes of a store with a history when bytes of it change behind the engine's
 * back.
 *
 * A store is made: disks, snapshots, labels, clones, blocks overwritten in place, some of which
 * have their checksums back, a deleted disk; it grows in the middle. There are four shapes of it:
 * with one volume or with two, with all disks closed or with one that a kill left open. On the way
 * its image is kept a few times, to take old bytes from. What every disk and snapshot holds is
 * known, block by block, and so is what the registry would have been told: extents by the fixture,
 * disks in `rows`, which go through the same doors as a handler's. Then, for each mutation, a
 * process of its own changes the image, has the checker read everything, reads every block of every
 * state through the engine, opens all disks, writes to them, closes them, and reads all again.
 *
 * AUDIT-1  No crash and no hang.
 * AUDIT-2  What is read is right or is an error, but for blocks that were not vouched for. Which
 *     these are follows from what was written here, and from nothing that the engine says: a write
 *     in place takes the checksums of all blocks of its leaf that were mapped since the last
 *     snapshot (VOID); they come back when the disk is quiet, and with new blocks. The engine and
 *     the checker may know more checksums, and not one less. A bounded share of the blocks is such.
 * AUDIT-3  A disk that has nothing of what was changed goes on as if nothing had happened. That
 *     includes structures of which both copies went back: of a record, its disk is refused; of an
 *     extent's page, nobody allocates there; of a superblock, all is read and nothing written, or
 *     the whole store is refused if one of two volumes does not know the other any more.
 * AUDIT-4  The checker finds nothing before anything was changed, and something if then a disk
 *     cannot be read. What went back in both copies only the registry tells (tests/audit/doors).
 * AUDIT-5  A disk that a kill left open, and that has a part in what was changed, may lose what was
 *     written since it was opened, block by block. Nothing is older than what it was opened with.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "attach/doors.h"
#include "engine/care/reach.h"
#include "engine/disk/vdi.h"
#include "engine/format/format.h"
#include "ok.h"
#include "suite.h"
#include "today.h"
#include "unit/fixture.h"

#define STORE_BYTES (20 * MIB)
#define STORE_BLOCKS (STORE_BYTES / BLOCK)
#define FIRST_BYTES (14 * MIB) /* before it grows */
#define DISKS 6u               /* the last one is deleted */
#define DISK_BLOCKS 600u
#define DISK_BYTES (DISK_BLOCKS * BLOCK)
#define STATES_MAX 64u
#define IMAGES_MAX 8u
#define QUIET_NS 1000000000ull
#define HANG_SECONDS 60u
#define NEW_BLOCK 7u /* where each disk is written after the mutation */
#define LEAF_BLOCKS 512u
#define LEAVES ((DISK_BLOCKS + LEAF_BLOCKS - 1) / LEAF_BLOCKS)
#define LATE_MAX 2048u
#define COPYING 2u         /* this disk is not overwritten in place */
#define KILLED 1u          /* this one is left open */
#define HISTORY_COUNT 250u /* mutations of one history of each shape */
#define EXEMPT_MAX 15u     /* per cent of the blocks */

static const struct shape {
    const char *name;
    bool two, left_open;
} shapes[] = {
    {"one volume, all disks closed", false, false},
    {"two volumes, all disks closed", true, false},
    {"one volume, a disk left open by a kill", false, true},
    {"two volumes, a disk left open by a kill", true, true},
};
#define SHAPES (sizeof shapes / sizeof shapes[0])
static const struct shape *shape;

/* ---- What is known ---- */

/* Of a block: the number that its bytes follow from; 0: zeroes. */
struct state {
    uint32_t slot;
    uint64_t seq; /* 0: the newest state */
    uint64_t ids[DISK_BLOCKS];
    bool unvouched[DISK_BLOCKS];
    bool fresh[DISK_BLOCKS]; /* of the newest state: mapped since the last snapshot */
    bool voided[LEAVES];     /* and overwritten in place since */
    bool late;               /* a snapshot taken by who was killed */
};

/* What a block may hold as well: it was written by who was killed, or failed to be written. */
struct late {
    uint32_t slot;
    uint64_t block, id;
};

static struct state *states; /* the newest ones first, by slot */
static unsigned state_count;
static struct late late[LATE_MAX];
static unsigned late_count;
static bool is_late;                      /* what is written now */
static uint64_t before_kill[DISK_BLOCKS]; /* what the disk held that was left open then */
static uint64_t next_id;
static uint8_t *images[IMAGES_MAX], *image; /* older ones, and the last */
static unsigned image_count;
static uint64_t first_bytes; /* of the first volume; behind it in an image is the second */
static struct plx_blockmap used[DISKS];
static struct plx_extent_range known[2];    /* what the registry knows of the extents, */
static struct plx_registry_vdi rows[DISKS]; /* and of the disks */
static uint64_t dead;                       /* the instance that was killed */

static uint64_t first_made; /* after this number follow those whose bytes were made already, */
static uint8_t *made;       /* one block each */
static uint64_t made_count;

static void make_bytes(uint8_t *bytes, uint64_t id)
{
    struct plx_simrng rng = {id};

    for (size_t i = 0; i < BLOCK; i += 8) {
        uint64_t word = plx_simrng_next(&rng);

        memcpy(bytes + i, &word, 8);
    }
}

static void fill(uint8_t *bytes, uint64_t id)
{
    if (!id)
        memset(bytes, 0, BLOCK);
    else if (id - first_made - 1 < made_count)
        memcpy(bytes, made + (id - first_made - 1) * BLOCK, BLOCK);
    else
        make_bytes(bytes, id);
}

/* They are compared with thousands of times. */
static void make_all_bytes(void)
{
    made = malloc((next_id - first_made) * BLOCK);
    for (uint64_t id = first_made + 1; id <= next_id; id++)
        make_bytes(made + (id - first_made - 1) * BLOCK, id);
    made_count = next_id - first_made;
}

static struct state *live(uint32_t slot)
{
    return &states[slot];
}

static void add_late(uint32_t slot, uint64_t block, uint64_t id)
{
    CU_ASSERT_FATAL(late_count < LATE_MAX);
    late[late_count++] = (struct late){slot, block, id};
}

/* AUDIT-2: what a write does to checksums. */
static void note_write(struct state *s, uint64_t block, unsigned count)
{
    bool copying = s->slot == COPYING;

    for (uint64_t b = block; b < block + count; b++)
        s->voided[b / LEAF_BLOCKS] |= s->fresh[b] && !copying;
    for (uint64_t b = block; b < block + count; b++)
        s->fresh[b] = true;
    for (uint64_t b = 0; b < DISK_BLOCKS; b++)
        if (b >= block && b < block + count)
            s->unvouched[b] = s->voided[b / LEAF_BLOCKS];
        else if (s->fresh[b])
            s->unvouched[b] |= s->voided[b / LEAF_BLOCKS];
}

static void put(struct plx_vdi *vdi, uint64_t block, unsigned count)
{
    struct state *s = live(vdi->record.slot);

    note_write(s, block, count);
    for (unsigned i = 0; i < count; i++) {
        s->ids[block + i] = ++next_id;
        if (is_late)
            add_late(s->slot, block + i, next_id);
        fill(buffer + (size_t)i * BLOCK, next_id);
    }
    OK(try_run(vdi, PLX_WRITE, block * BLOCK, (uint64_t)count * BLOCK, NULL));
}

static void drop(struct plx_vdi *vdi, uint64_t block, unsigned count)
{
    struct state *s = live(vdi->record.slot);

    memset(s->ids + block, 0, count * sizeof(uint64_t));
    memset(s->fresh + block, 0, count);
    memset(s->unvouched + block, 0, count);
    run(vdi, PLX_UNMAP, block * BLOCK, (uint64_t)count * BLOCK);
}

static void freeze(struct state *s)
{
    memset(s->fresh, 0, sizeof s->fresh);
    memset(s->voided, 0, sizeof s->voided);
}

static uint64_t snapshot(struct plx_vdi *vdi)
{
    struct state *s = &states[state_count++];

    CU_ASSERT_FATAL(state_count <= STATES_MAX);
    *s = *live(vdi->record.slot);
    s->late = is_late;
    s->seq = run(vdi, PLX_SNAPSHOT, 0, 0);
    freeze(live(s->slot));
    return s->seq;
}

/* ---- Volumes ---- */

/* *at: in an image, and then in the volume. */
static struct plx_simdisk *volume_at(uint64_t *at)
{
    if (*at < first_bytes || !second_disk)
        return disk;
    *at -= first_bytes;
    return second_disk;
}

static void peek_all(uint8_t *bytes)
{
    memset(bytes, 0, STORE_BYTES);
    plx_simdisk_peek(disk, 0, bytes, plx_simdisk_bytes(disk));
    if (second_disk)
        plx_simdisk_peek(second_disk, 0, bytes + first_bytes, plx_simdisk_bytes(second_disk));
}

static void keep_image(void)
{
    CU_ASSERT_FATAL(image_count < IMAGES_MAX);
    images[image_count] = malloc(STORE_BYTES);
    peek_all(images[image_count++]);
}

/* By a larger volume or by a second one. */
static void grow(void)
{
    struct plx_simdisk_options options = fixture.disk;
    uint64_t instance = env.instance, extents = STORE_BYTES / MIB;
    struct plx_grown grown;

    leave_store();
    if (!shape->two)
        plx_simdisk_resize(disk, STORE_BYTES);
    open_store(instance + 1);
    first_bytes = shape->two ? FIRST_BYTES : STORE_BYTES;
    options.bytes = STORE_BYTES - FIRST_BYTES;
    if (shape->two) {
        second_disk = plx_simdisk_new(&options, &power);
        OK(plx_store_add_volume(store, plx_simdisk_attach(second_disk, "second"),
                                &(struct plx_grow){0}, &grown, &fault));
    } else {
        OK(plx_store_grow(store, &(struct plx_grow){0}, &grown, &fault));
    }
    CU_ASSERT_EQUAL_FATAL(grown.extents, extents);
    registry.extents = realloc(registry.extents, extents * sizeof *registry.extents);
    memset(registry.extents + registry.count, 0,
           (extents - registry.count) * sizeof *registry.extents);
    registry.extents[FIRST_BYTES / MIB].system = shape->two;
    registry.count = extents;
    leave_store();
    known[0].extents = first_bytes / MIB;
    known[1] = (struct plx_extent_range){1, known[0].extents, extents - known[0].extents, 0};
    fixture.open.known = known;
    fixture.open.known_count = shape->two ? 2 : 1;
    open_store(instance + 2);
}

/* ---- The store ---- */

static bool is_fresh(const struct state *s, uint64_t block, unsigned count)
{
    bool fresh = false;

    for (unsigned i = 0; i < count; i++)
        fresh = fresh || s->fresh[block + i];
    return fresh;
}

/* To new blocks, for as long as these are easily found. */
static void write_some(struct plx_vdi *vdi, struct plx_simrng *rng, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        unsigned blocks = 1 + (unsigned)plx_simrng_below(rng, 6);
        uint64_t block = plx_simrng_below(rng, DISK_BLOCKS - blocks);

        for (unsigned tries = 0; tries < 100 && is_fresh(live(vdi->record.slot), block, blocks);
             tries++)
            block = plx_simrng_below(rng, DISK_BLOCKS - blocks);
        put(vdi, block, blocks);
    }
}

/* The disk is closed; the registry is told. */
static void note_closed(uint32_t slot)
{
    struct plx_registry_vdi *row = &rows[slot];
    struct plx_vdi_info info;

    OK(plx_vdi_read_info(store, slot, &info, &fault));
    *row = (struct plx_registry_vdi){
        .slot = slot,
        .size_bytes = info.size_bytes,
        .epoch = info.epoch,
        .written = {info.epoch, info.record_state},
    };
    snprintf(row->name, sizeof row->name, "%s", info.name);
    plx_uuid_text(&info.id, row->id);
}

static void fill_disk(uint32_t slot, struct plx_simrng *rng)
{
    struct plx_vdi *vdi = open_quiet(slot, 0);

    for (unsigned i = 0; i < 4; i++) {
        write_some(vdi, rng, 25);
        snapshot(vdi);
        if (i == 1) {
            struct plx_request label = {.op = PLX_LABEL, .seq = 1, .label = "kept"};

            OK(plx_vdi_run(vdi, &label));
            run(vdi, PLX_KEYFRAME, 0, 0);
        }
        drop(vdi, plx_simrng_below(rng, DISK_BLOCKS - 40), 40);
    }
    write_some(vdi, rng, 20);
    OK(plx_vdi_close(vdi));
}

static void clone_disk(uint32_t slot, uint32_t parent, uint64_t seq, struct plx_simrng *rng)
{
    struct plx_vdi *vdi;

    OK(clone_vdi(slot, parent, seq));
    for (unsigned i = 0; i < state_count; i++)
        if (states[i].slot == parent && states[i].seq == seq)
            *live(slot) = states[i];
    live(slot)->slot = slot;
    live(slot)->seq = 0;
    freeze(live(slot));
    vdi = open_quiet(slot, 0);
    write_some(vdi, rng, 15);
    snapshot(vdi);
    OK(plx_vdi_close(vdi));
}

/* Blocks without a checksum, half of which get them back, the other half not. */
static void heat(uint32_t slot, struct plx_simrng *rng, bool quiet)
{
    struct plx_vdi *vdi = open_quiet(slot, quiet ? QUIET_NS : 0);

    for (unsigned i = 0; i < 40; i++) {
        uint64_t block = plx_simrng_below(rng, DISK_BLOCKS);

        put(vdi, block, 1);
        put(vdi, block, 1);
    }
    if (quiet) {
        pass_time(4 * QUIET_NS);
        memset(live(slot)->unvouched, 0, DISK_BLOCKS);
        memset(live(slot)->voided, 0, sizeof live(slot)->voided);
    }
    snapshot(vdi);
    write_some(vdi, rng, 5);
    OK(plx_vdi_close(vdi));
}

/* Like any disk, but its process dies. */
static void leave_open(struct plx_simrng *rng)
{
    struct plx_vdi *vdi;

    leave_store();
    open_store(env.instance + 1);
    dead = env.instance;
    vdi = open_quiet(KILLED, 0);
    rows[KILLED].owner = dead;
    rows[KILLED].epoch = epoch;
    memcpy(before_kill, live(KILLED)->ids, sizeof before_kill);
    is_late = true;
    write_some(vdi, rng, 20);
    snapshot(vdi);
    write_some(vdi, rng, 10);
    run(vdi, PLX_KEYFRAME, 0, 0);
    drop(vdi, 100, 10);
    for (uint64_t b = 100; b < 110; b++)
        add_late(KILLED, b, 0);
    write_some(vdi, rng, 10);
    put(vdi, 300, 1);
    put(vdi, 300, 1);
    run(vdi, PLX_FLUSH, 0, 0);
    is_late = false;
    plx_vdi_abandon(vdi);
    plx_store_close(store);
    store = NULL;
    open_store(0);
}

static void note_used(void)
{
    bool *counts = calloc(store->info.extents, sizeof *counts);
    struct plx_turns turns = {0};

    memset(counts, 1, store->info.extents);
    for (uint32_t slot = 0; slot < DISKS; slot++) {
        struct plx_vdi_record record;
        struct plx_reach reach;
        uint8_t which;

        OK(plx_reach_init(&reach, store, counts, NULL, &turns, &fault));
        OK(plx_vdi_record_read(store, slot, &record, &which, &fault));
        OK(plx_reach_vdi(&reach, &record));
        CU_ASSERT_FATAL(
            plx_blockmap_init(&used[slot], store->info.extents, store->info.extent_blocks));
        CU_ASSERT_FATAL(plx_blockmap_add(&used[slot], &reach.used));
        plx_reach_done(&reach);
    }
    free(counts);
}

static bool is_deleted(const struct state *s)
{
    return s->slot == DISKS - 1;
}

static bool is_unvouched(struct plx_vdi *vdi, uint64_t block)
{
    struct plx_waiter waiter = PLX_WAITER;
    struct plx_walk walk = {0};
    struct plx_mapping mapping;

    while (plx_map_lookup(&vdi->map, block, &walk, &waiter.task, &mapping) == PLX_WAIT)
        if (plx_waiter_wait(store, &waiter))
            return false;
    return mapping.addr && !mapping.checksum;
}

/* In words, until it is called again. */
static const char *share(uint64_t part, uint64_t whole)
{
    static char text[16];

    snprintf(text, sizeof text, "%.1f %%", whole ? 100.0 * (double)part / (double)whole : 0.0);
    return text;
}

/* What was killed has a part in all that it wrote: nobody else did meanwhile. */
static void note_killed(void)
{
    const uint8_t *before = images[image_count - 1];

    for (uint64_t b = 0; shape->left_open && b < STORE_BLOCKS; b++)
        if (memcmp(before + b * BLOCK, image + b * BLOCK, BLOCK) != 0)
            CU_ASSERT_FATAL(plx_blockmap_set(&used[KILLED], b, 1));
}

static void print_wrong(void *context, const struct plx_finding *finding)
{
    if (finding->severity == PLX_FINDING_ERROR)
        printf("\n  check: %s\n", finding->text);
}

/* AUDIT-2: engine and checker know no checksum less than what was written says. AUDIT-4. */
static void compare_unvouched(uint64_t newest)
{
    struct plx_check_options options = {.data = true, .finding = print_wrong};
    struct plx_check_result result;

    OK(plx_store_check(store, &options, &result, &fault));
    CU_ASSERT_EQUAL_FATAL(result.errors, 0);
    if (!shape->left_open) /* its record does not count yet what its log has */
        CU_ASSERT_FATAL(result.mapped_blocks - result.vouched_blocks <= newest);
}

static void note_unvouched(void)
{
    uint64_t without = 0, with = 0, engines = 0, newest = 0;

    for (unsigned i = 0; i < state_count; i++) {
        struct state *s = &states[i];
        struct plx_vdi *vdi;

        if (is_deleted(s))
            continue;
        OK(plx_snapshot_open(store, s->slot, s->seq, &vdi, &fault));
        for (uint64_t b = 0; b < DISK_BLOCKS; b++) {
            bool unvouched = is_unvouched(vdi, b);

            if (unvouched && !s->unvouched[b])
                printf("disk %u@%llu block %llu has no checksum\n", s->slot,
                       (unsigned long long)s->seq, (unsigned long long)b);
            CU_ASSERT_FATAL(!unvouched || s->unvouched[b]);
            engines += unvouched;
            without += s->unvouched[b];
            newest += s->unvouched[b] && !s->seq;
            with += s->ids[b] && !s->unvouched[b];
        }
        OK(plx_vdi_close(vdi));
    }
    CU_ASSERT_FATAL(without && with);
    compare_unvouched(newest);
    printf("%s: %u states of %u disks: %llu blocks vouched for, %llu (%s) not; the engine has no "
           "checksum of %llu\n",
           shape->name, state_count, DISKS - 1, (unsigned long long)with,
           (unsigned long long)without, share(without, with + without),
           (unsigned long long)engines);
}

static int create_copying(uint32_t slot)
{
    return plx_vdi_create(store,
                          &(struct plx_vdi_create_options){.name = "copying",
                                                           .slot = slot,
                                                           .size_bytes = DISK_BYTES,
                                                           .sector_size = 512,
                                                           .overwrite = PLX_OVERWRITE_COPY},
                          NULL, &fault);
}

static void make_history(uint64_t seed)
{
    struct plx_simrng rng = {seed};

    states = calloc(STATES_MAX, sizeof *states);
    state_count = DISKS;
    late_count = image_count = 0;
    first_made = next_id;
    fixture.format.segment_bytes = 32u << 10;
    fixture.open.cache_bytes = 1;
    fixture.open.known_count = 0;
    make_store(FIRST_BYTES, MIB);
    first_bytes = FIRST_BYTES;
    for (uint32_t slot = 0; slot < 3; slot++)
        OK(slot == COPYING ? create_copying(slot) : create_vdi(slot, DISK_BYTES));
    for (uint32_t slot = 0; slot < DISKS; slot++)
        live(slot)->slot = slot;
    for (uint32_t slot = 0; slot < 3; slot++) {
        fill_disk(slot, &rng);
        keep_image();
    }
    grow();
    clone_disk(3, 0, 2, &rng);
    clone_disk(4, 3, 1, &rng);
    keep_image();
    heat(0, &rng, true);
    heat(1, &rng, false);
    keep_image();
    OK(create_vdi(DISKS - 1, DISK_BYTES));
    fill_disk(DISKS - 1, &rng);
    keep_image();
    OK(plx_vdi_delete(store, DISKS - 1, false, &fault));
    heat(3, &rng, false);
    heat(0, &rng, false);
    for (uint32_t slot = 0; slot < DISKS - 1; slot++)
        note_closed(slot);
    keep_image();
    if (shape->left_open)
        leave_open(&rng);
    note_used();
    note_unvouched();
    if (shape->left_open)
        close_store();
    else
        leave_store();
    image = malloc(STORE_BYTES);
    peek_all(image);
    note_killed();
    make_all_bytes();
}

static void end_history(void)
{
    end_store();
    for (unsigned i = 0; i < image_count; i++)
        free(images[i]);
    for (uint32_t slot = 0; slot < DISKS; slot++)
        plx_blockmap_done(&used[slot]);
    free(image);
    free(states);
    free(made);
    made_count = 0;
}

/* ---- Mutations ---- */

enum kind {
    BIT,
    SECTOR,
    SWAPPED,
    STALE,
    STALE_SECTOR,
    STALE_COPY, /* one copy of a record or an extent page */
    ZEROES,
    SHORTER,
    STALE_COPIES, /* both: needs the registry */
    STALE_SUPER,  /* one copy of a superblock */
    STALE_SUPERS, /* both, and sometimes the spare one, too */
    KINDS,
};

static const char *const kind_names[KINDS] = {
    [BIT] = "a bit flipped",
    [SECTOR] = "a sector of other bytes",
    [SWAPPED] = "two blocks swapped",
    [STALE] = "a block as it was before",
    [STALE_SECTOR] = "a sector as it was before",
    [STALE_COPY] = "a copy as it was before",
    [ZEROES] = "blocks of zeroes",
    [SHORTER] = "the volume cut off",
    [STALE_COPIES] = "record or page rolled back in both copies",
    [STALE_SUPER] = "a copy of a superblock as it was before",
    [STALE_SUPERS] = "superblock rolled back in both copies",
};

struct mutation {
    enum kind kind;
    uint64_t block, other, count;
    bool related[DISKS];
    bool page; /* an extent's */
};

static bool is_zero(const uint8_t *bytes)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, BLOCK - 1) == 0;
}

static uint64_t any_block(struct plx_simrng *rng)
{
    uint64_t block;

    do
        block = plx_simrng_below(rng, STORE_BLOCKS);
    while (is_zero(image + block * BLOCK));
    return block;
}

/* One that was something else then. */
static uint64_t any_changed(struct plx_simrng *rng, const uint8_t *older)
{
    uint64_t block;

    do
        block = any_block(rng);
    while (memcmp(older + block * BLOCK, image + block * BLOCK, BLOCK) == 0);
    return block;
}

/* Of a structure of two copies the first, which was another one in some older image. */
static uint64_t any_pair(struct plx_simrng *rng, const uint8_t *older)
{
    uint64_t pages = STORE_BYTES / MIB, block;

    for (unsigned tries = 0; tries < 1000; tries++) {
        bool record = plx_simrng_chance(rng, 50);
        const char *magic = record ? "PLXVDREC" : "PLXEXTNT";

        block = record ? PLX_VDI_TABLE_BLOCK + 2 * plx_simrng_below(rng, DISKS)
                       : (1 + plx_simrng_below(rng, pages - 1)) * (MIB / BLOCK);
        if (memcmp(older + block * BLOCK, magic, 8) == 0 &&
            memcmp(older + (block + 1) * BLOCK, magic, 8) == 0 &&
            memcmp(older + block * BLOCK, image + block * BLOCK, 2 * (size_t)BLOCK) != 0)
            return block;
    }
    CU_FAIL_FATAL("no record and no page has changed");
    return 0;
}

/* The first block of a volume whose superblock was another one in some older image. */
static uint64_t any_super(struct plx_simrng *rng, const uint8_t **older)
{
    for (unsigned tries = 0; tries < 1000; tries++) {
        uint64_t block = second_disk && plx_simrng_chance(rng, 50) ? first_bytes / BLOCK : 0;

        *older = images[plx_simrng_below(rng, image_count)];
        if (memcmp(*older + block * BLOCK, image + block * BLOCK, 2 * (size_t)BLOCK) != 0)
            return block;
    }
    CU_FAIL_FATAL("no superblock has changed");
    return 0;
}

/* Blocks of which a disk has a part; of pairs every copy by itself concerns nobody. */
static void relate(struct mutation *m, uint64_t block)
{
    for (uint32_t slot = 0; slot < DISKS; slot++)
        m->related[slot] = m->related[slot] || plx_blockmap_test(&used[slot], block);
}

static void replace(uint64_t at, const uint8_t *bytes, size_t count)
{
    struct plx_simdisk *volume = volume_at(&at);

    plx_simdisk_poke(volume, at, bytes, count);
}

static void put_back(const uint8_t *older, uint64_t block, uint64_t count)
{
    replace(block * BLOCK, older + block * BLOCK, count * BLOCK);
}

static void flip(struct plx_simrng *rng, uint64_t block)
{
    uint64_t at = block * BLOCK + plx_simrng_below(rng, BLOCK);
    struct plx_simdisk *volume = volume_at(&at);

    plx_simdisk_flip(volume, at, (uint8_t)(1u << plx_simrng_below(rng, 8)));
}

/* The last volume, at half of the store at least. */
static void cut_off(struct plx_simrng *rng, struct mutation *m)
{
    uint64_t least = plx_max_u64(second_disk ? first_bytes / BLOCK : 0, STORE_BLOCKS / 2), at;
    struct plx_simdisk *volume;

    m->block = least + plx_simrng_below(rng, STORE_BLOCKS - least);
    m->count = STORE_BLOCKS - m->block;
    at = m->block * BLOCK;
    volume = volume_at(&at);
    plx_simdisk_resize(volume, at);
    memset(m->related, 1, sizeof m->related); /* the store may be refused */
}

/* AUDIT-3: of a record, its disk. Of a page nobody, but for who died and did not give it up. */
static void relate_pair(struct mutation *m)
{
    m->page = m->block >= PLX_VDI_TABLE_BLOCK + 2 * DISKS;
    if (!m->page)
        m->related[(m->block - PLX_VDI_TABLE_BLOCK) / 2] = true;
    else if (shape->left_open && registry.extents[m->block * BLOCK / MIB].owner == dead)
        m->related[KILLED] = true;
}

static void mutate(struct plx_simrng *rng, struct mutation *m)
{
    const uint8_t *older = images[plx_simrng_below(rng, image_count)];
    static uint8_t bytes[BLOCK];
    uint64_t at;

    m->kind = (enum kind)plx_simrng_below(rng, KINDS);
    m->block = any_block(rng);
    m->count = 1;
    switch (m->kind) {
    case BIT:
        flip(rng, m->block);
        break;
    case SECTOR:
        fill(bytes, plx_simrng_chance(rng, 30) ? 0 : plx_simrng_next(rng));
        replace(m->block * BLOCK + plx_simrng_below(rng, 8) * 512, bytes, 512);
        break;
    case SWAPPED:
        m->other = any_block(rng);
        replace(m->block * BLOCK, image + m->other * BLOCK, BLOCK);
        replace(m->other * BLOCK, image + m->block * BLOCK, BLOCK);
        relate(m, m->other);
        break;
    case STALE:
        m->block = any_changed(rng, older);
        put_back(older, m->block, 1);
        break;
    case STALE_SECTOR:
        m->block = any_changed(rng, older);
        at = m->block * BLOCK + plx_simrng_below(rng, 8) * 512;
        replace(at, older + at, 512);
        break;
    case STALE_COPY:
        m->block = any_pair(rng, older) + plx_simrng_below(rng, 2);
        put_back(older, m->block, 1);
        break;
    case ZEROES: /* one of two copies at most */
        m->count = m->block % 256 < 2 || m->block < 256 ? 1 : 1 + plx_simrng_below(rng, 8);
        memset(bytes, 0, sizeof bytes);
        m->count = plx_min_u64(m->count, 256 - m->block % 256);
        for (uint64_t i = 0; i < m->count; i++)
            replace((m->block + i) * BLOCK, bytes, BLOCK);
        break;
    case SHORTER:
        cut_off(rng, m);
        break;
    case STALE_SUPER:
        m->block = any_super(rng, &older) + plx_simrng_below(rng, 2);
        put_back(older, m->block, 1);
        break;
    case STALE_SUPERS:
        m->block = any_super(rng, &older);
        put_back(older, m->block, 2);
        if (plx_simrng_chance(rng, 50))
            put_back(older, m->block + PLX_SUPERBLOCK_SPARE, 1);
        break;
    default:
        m->block = any_pair(rng, older);
        put_back(older, m->block, 2);
        relate_pair(m);
        break;
    }
    if (m->kind == STALE_COPIES || m->kind == STALE_SUPERS)
        return; /* nothing else lies there */
    for (uint64_t i = 0; i < m->count; i++)
        relate(m, m->block + i);
}

/* ---- Judging ---- */

/* In memory that the processes share. */
struct verdict {
    struct mutation mutation;
    uint64_t errors, silent, unvouched, unrelated; /* blocks or calls */
    uint64_t blocks, exempt;                       /* of data, read; nothing vouched for these */
    uint64_t found;                                /* by the checker */
    char first[600];                               /* what is wrong */
    bool written, ended;
};

static struct verdict *verdict;

static void wrong(uint64_t *counter, const struct state *s, uint64_t block, const char *what)
{
    if (!verdict->first[0])
        snprintf(verdict->first, sizeof verdict->first, "disk %u@%llu block %llu: %s", s->slot,
                 (unsigned long long)s->seq, (unsigned long long)block, what);
    ++*counter;
}

/* AUDIT-3: an error is for a disk that has something of what was changed. */
static void failed(const struct state *s, uint64_t block, const char *what)
{
    if (verdict->mutation.related[s->slot])
        verdict->errors++;
    else
        wrong(&verdict->unrelated, s, block, what);
}

static bool holds(uint64_t id)
{
    static uint8_t expected[BLOCK];

    fill(expected, id);
    return memcmp(buffer, expected, BLOCK) == 0;
}

/* AUDIT-5; and of a write that failed either may be there. */
static bool may_hold(const struct state *s, uint64_t block)
{
    bool may = false;

    if (!verdict->mutation.related[s->slot])
        return false;
    for (unsigned i = 0; i < late_count && !may; i++)
        may = late[i].slot == s->slot && late[i].block == block && holds(late[i].id);
    return may || (shape->left_open && s->slot == KILLED && !s->seq && holds(before_kill[block]));
}

/* AUDIT-2 */
static void judge(struct plx_vdi *vdi, const struct state *s, uint64_t block)
{
    if (try_run(vdi, PLX_READ, block * BLOCK, BLOCK, NULL)) {
        failed(s, block, fault.text);
        return;
    }
    if (holds(s->ids[block]) || (!s->seq && may_hold(s, block)))
        return;
    if (s->unvouched[block])
        verdict->unvouched++;
    else
        wrong(&verdict->silent, s, block, "other contents, and no error");
}

/* What a handler asks before it opens a disk. */
static int door(uint32_t slot)
{
    struct plx_vdi_info info;

    return rows[slot].owner ? plx_door_read(store, &rows[slot], &info, &fault)
                            : plx_door_read_closed(store, &rows[slot], &info, &fault);
}

/* A snapshot that may have gone with who was killed, and whose number another one may have. */
static bool may_be_gone(const struct state *s)
{
    return s->late && verdict->written && verdict->mutation.related[s->slot];
}

/* All of a disk at once, and block by block where that is not what was written. */
static void judge_all(struct plx_vdi *vdi, const struct state *s)
{
    static uint8_t expected[DISK_BYTES];

    for (uint64_t b = 0; b < DISK_BLOCKS; b++)
        fill(expected + b * BLOCK, s->ids[b]);
    if (try_run(vdi, PLX_READ, 0, DISK_BYTES, NULL) ||
        memcmp(buffer, expected, sizeof expected) != 0)
        for (uint64_t b = 0; b < DISK_BLOCKS; b++)
            judge(vdi, s, b);
}

static void read_state(const struct state *s)
{
    struct plx_vdi *vdi;

    if (may_be_gone(s))
        return;
    if (door(s->slot) || plx_snapshot_open(store, s->slot, s->seq, &vdi, &fault)) {
        failed(s, 0, fault.text);
        return;
    }
    for (uint64_t b = 0; b < DISK_BLOCKS; b++) {
        verdict->blocks += s->ids[b] != 0;
        verdict->exempt += s->ids[b] && s->unvouched[b];
    }
    if (vdi->size_bytes != DISK_BYTES)
        wrong(&verdict->silent, s, 0, "another size");
    else
        judge_all(vdi, s);
    plx_vdi_abandon(vdi);
}

static void read_all(void)
{
    for (unsigned i = 0; i < state_count; i++)
        if (!is_deleted(&states[i]))
            read_state(&states[i]);
}

static void count_finding(void *context, const struct plx_finding *finding)
{
    verdict->found += finding->severity == PLX_FINDING_ERROR;
}

/* What recovery.c does: of an extent that is not believed nobody allocates any more. */
static void adopt(uint64_t extent)
{
    struct plx_extent_info info;
    int error = plx_store_extent_read(store, extent, &info, &fault);

    if (!error && info.states < registry.extents[extent].states)
        error = PLX_ERR_CORRUPT;
    if (!error && info.type != PLX_EXTENT_UNUSED)
        error = plx_store_extent_adopt(store, extent, &fault);
    if (error)
        registry.extents[extent].system = true;
    registry.extents[extent].owner = error || info.type == PLX_EXTENT_UNUSED ? 0 : env.instance;
    registry.extents[extent].used = error || info.type != PLX_EXTENT_UNUSED;
}

static bool recover(void)
{
    for (uint64_t e = 0; e < registry.count; e++)
        if (registry.extents[e].owner == dead)
            adopt(e);
    if (door(KILLED) || plx_vdi_mark(store, KILLED, &fault)) {
        failed(live(KILLED), 0, fault.text);
        plx_store_extents_seal(store);
    }
    if (plx_store_extents_adopted(store, &fault) == 0)
        return true;
    failed(live(KILLED), 0, fault.text);
    return false;
}

/* *ret_vdi NULL: it is refused. */
static void open_to_write(struct state *s, struct plx_vdi **ret_vdi)
{
    struct plx_registry_vdi *row = &rows[s->slot];
    struct plx_vdi_info info;
    int error = row->owner ? plx_door_read_taken(store, row, &info, &fault)
                           : plx_door_read_closed(store, row, &info, &fault);

    *ret_vdi = NULL;
    if (!error) {
        epoch = plx_max_u64(epoch, info.epoch);
        error = try_open_vdi(s->slot, row->owner != 0, ret_vdi);
    }
    if (error) {
        failed(s, 0, fault.text);
        *ret_vdi = NULL;
    }
}

static bool write_anew(struct plx_vdi *vdi, struct state *s, uint64_t block)
{
    note_write(s, block, 1);
    fill(buffer, ++next_id);
    if (try_run(vdi, PLX_WRITE, block * BLOCK, BLOCK, NULL)) {
        add_late(s->slot, block, next_id);
        return false;
    }
    s->ids[block] = next_id;
    return true;
}

/* Whoever cannot be opened stays as he is. */
static void write_all(void)
{
    for (uint32_t slot = 0; slot < DISKS - 1; slot++) {
        struct state *s = live(slot);
        struct plx_vdi *vdi;
        bool good = true;

        open_to_write(s, &vdi);
        if (!vdi)
            continue;
        for (uint64_t b = NEW_BLOCK; b < DISK_BLOCKS && good; b += 97)
            good = write_anew(vdi, s, b);
        good = good && !try_run(vdi, PLX_SNAPSHOT, 0, 0, NULL) &&
               !try_run(vdi, PLX_KEYFRAME, 0, 0, NULL);
        if (!good)
            failed(s, NEW_BLOCK, fault.text);
        judge_all(vdi, s);
        if (plx_vdi_close(vdi)) {
            failed(s, 0, "it does not close");
            rows[slot].written = (struct plx_registry_written){0};
        } else {
            note_closed(slot);
        }
    }
}

/* Whether the store itself may be refused: without its end, and when one of two volumes does not
 * know that it belongs to the other. */
static bool may_refuse(void)
{
    enum kind kind = verdict->mutation.kind;

    return kind == SHORTER || (kind == STALE_SUPERS && shape->two);
}

static bool reopen(uint64_t instance)
{
    if (store)
        plx_store_close(store);
    store = NULL;
    if (try_open_store(instance) == 0)
        return true;
    if (may_refuse())
        verdict->errors++;
    else
        wrong(&verdict->unrelated, live(0), 0, fault.text);
    return false;
}

/* AUDIT-4. Of what went back in both copies only the registry can tell. */
static void check(void)
{
    struct plx_check_options options = {.data = true, .finding = count_finding};
    struct plx_check_result result;

    if (plx_store_check(store, &options, &result, &fault))
        wrong(&verdict->unrelated, live(0), 0, fault.text);
}

static void audit(struct plx_simrng *rng)
{
    mutate(rng, &verdict->mutation);
    if (!reopen(0))
        return;
    check();
    read_all();
    if (verdict->errors && !verdict->found && verdict->mutation.kind != STALE_COPIES &&
        verdict->mutation.kind != SHORTER)
        wrong(&verdict->unrelated, live(0), 0,
              "not everything is read, and the check finds nothing");
    if (!reopen(77) || plx_store_behind(store) || plx_store_ahead(store)) /* ATTACH-15 */
        return;
    verdict->written = true;
    if (shape->left_open && !recover())
        return;
    write_all();
    read_all();
    if (reopen(0)) {
        check();
        read_all();
    }
}

/* ---- Running ---- */

static struct {
    uint64_t seed, count, only;
    bool verbose;
} plan = {.count = 5000, .only = UINT64_MAX};

struct tally {
    uint64_t mutations, harmless, told, unvouched, silent, bad;
    uint64_t blocks, exempt;
};

/* AUDIT-1 */
static const char *judge_child(int status)
{
    static char text[64];

    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        return "it hangs";
    if (WIFSIGNALED(status)) {
        snprintf(text, sizeof text, "it dies of signal %d", WTERMSIG(status));
        return text;
    }
    return WEXITSTATUS(status) || !verdict->ended ? "it ends in error" : NULL;
}

static void run_one(uint64_t number, struct tally *tallies, struct tally *whole)
{
    struct plx_simrng rng = {plan.seed + number * 0x9e3779b97f4a7c15ull};
    const char *crash;
    struct tally *tally;
    int status = 0;
    bool bad;
    pid_t child;

    memset(verdict, 0, sizeof *verdict);
    fflush(NULL);
    child = fork();
    if (child == 0) {
        alarm(HANG_SECONDS);
        audit(&rng);
        verdict->ended = true;
        _exit(0);
    }
    CU_ASSERT_FATAL(child > 0 && waitpid(child, &status, 0) == child);
    crash = judge_child(status);
    tally = &tallies[verdict->mutation.kind];
    bad = crash || verdict->silent || verdict->unrelated;
    tally->mutations++;
    tally->bad += bad;
    tally->blocks += verdict->blocks;
    tally->exempt += verdict->exempt;
    tally->silent += verdict->silent > 0;
    tally->unvouched += verdict->unvouched > 0;
    tally->told += verdict->errors || verdict->found;
    tally->harmless +=
        !verdict->errors && !verdict->found && !verdict->silent && !verdict->unvouched;
    whole->mutations++;
    whole->bad += bad;
    whole->blocks += verdict->blocks;
    whole->exempt += verdict->exempt;
    if (bad || plan.verbose)
        printf("%s --seed %llu --only %llu: %s: %s, block %llu: %s%s%s\n", bad ? "BAD" : "   ",
               (unsigned long long)plan.seed, (unsigned long long)number, shape->name,
               kind_names[verdict->mutation.kind], (unsigned long long)verdict->mutation.block,
               crash ? crash : "", crash && verdict->first[0] ? "; " : "", verdict->first);
    CU_ASSERT(!bad);
}

/* What it says of one kind must not be taken for what all were judged by. */
static void show_judged(const struct tally *tallies, const struct tally *shaped)
{
    uint64_t cut = tallies[SHORTER].mutations, all = 0, blocks = 0, exempt = 0;

    for (unsigned i = 0; i < SHAPES; i++) {
        all += shaped[i].mutations;
        blocks += shaped[i].blocks;
        exempt += shaped[i].exempt;
        printf("%s: %llu mutations, %llu BAD\n", shapes[i].name,
               (unsigned long long)shaped[i].mutations, (unsigned long long)shaped[i].bad);
    }
    printf("judged by all rules: %llu of %llu (%s)\n", (unsigned long long)(all - cut),
           (unsigned long long)all, share(all - cut, all));
    printf("by all but AUDIT-3 and AUDIT-4: %llu (%s): of a volume that was cut off all disks may "
           "be refused\n",
           (unsigned long long)cut, share(cut, all));
    printf("blocks of data read: %llu; %llu (%s, at most %u %%) of them may have been anything: "
           "they were overwritten in place, or lie in a leaf with such, and nothing vouches for "
           "them\n",
           (unsigned long long)blocks, (unsigned long long)exempt, share(exempt, blocks),
           EXEMPT_MAX);
    CU_ASSERT(exempt * 100 <= blocks * EXEMPT_MAX);
}

static void show(const struct tally *tallies, const struct tally *shaped)
{
    printf("%-48s %9s %9s %9s %9s %9s %9s\n", "", "mutations", "harmless", "told", "unvouched",
           "silent", "BAD");
    for (unsigned k = 0; k < KINDS; k++)
        printf("%-48s %9llu %9llu %9llu %9llu %9llu %9llu\n", kind_names[k],
               (unsigned long long)tallies[k].mutations, (unsigned long long)tallies[k].harmless,
               (unsigned long long)tallies[k].told, (unsigned long long)tallies[k].unvouched,
               (unsigned long long)tallies[k].silent, (unsigned long long)tallies[k].bad);
    show_judged(tallies, shaped);
}

static bool is_wanted(uint64_t number)
{
    return number < plan.count && (plan.only == UINT64_MAX || plan.only == number);
}

/* A history of this shape, and every fourth of the mutations from this one on. */
static void run_history(uint64_t first, unsigned which, struct tally *tallies, struct tally *shaped)
{
    bool any = false;

    for (uint64_t i = first + which; i < first + HISTORY_COUNT; i += SHAPES)
        any = any || is_wanted(i);
    if (!any)
        return;
    shape = &shapes[which];
    make_history(plan.seed + first + which);
    for (uint64_t i = first + which; i < first + HISTORY_COUNT; i += SHAPES)
        if (is_wanted(i))
            run_one(i, tallies, &shaped[which]);
    end_history();
}

static void run_all(void)
{
    struct tally tallies[KINDS] = {0}, shaped[SHAPES] = {0};

    verdict =
        mmap(NULL, sizeof *verdict, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CU_ASSERT_FATAL(verdict != MAP_FAILED);
    printf("\nseed %llu\n", (unsigned long long)plan.seed);
    for (uint64_t first = 0; first < plan.count; first += HISTORY_COUNT)
        for (unsigned which = 0; which < SHAPES; which++)
            run_history(first, which, tallies, shaped);
    show(tallies, shaped);
    munmap(verdict, sizeof *verdict);
}

int main(int argc, char **argv)
{
    static const struct suite_test tests[] = {{"mutations", run_all}};

    plan.seed = (uint64_t)time(NULL);
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--verbose"))
            plan.verbose = true;
        else if (!strcmp(argv[i], "--today"))
            plan.seed = plx_today();
        else if (i + 1 < argc && !strcmp(argv[i], "--seed"))
            plan.seed = strtoull(argv[++i], NULL, 0);
        else if (i + 1 < argc && !strcmp(argv[i], "--count"))
            plan.count = strtoull(argv[++i], NULL, 0);
        else if (i + 1 < argc && !strcmp(argv[i], "--only"))
            plan.only = strtoull(argv[++i], NULL, 0);
        else {
            fprintf(stderr,
                    "usage: audit [--seed N | --today] [--count N] [--only NUMBER] [--verbose]\n");
            return 2;
        }
    }
    if (plan.only != UINT64_MAX && plan.count <= plan.only)
        plan.count = plan.only + 1;
    return SUITE_RUN("audit", tests);
}
