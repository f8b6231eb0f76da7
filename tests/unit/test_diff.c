/* test_diff.c - differences between instants, and when a range changed, against a naive twin that
 * keeps every instant's content and what was touched since the one before.
 *
 * PLX_SEED=n replays one seed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/format/format.h"
#include "engine/disk/vdi.h"
#include "ok.h"
#include "suite.h"
#include "unit/fixture.h"

static uint64_t seed;

/* What each seed's disk begins with. */
static void make_disk(uint64_t store_bytes, uint64_t bytes)
{
    fixture.disk.seed = seed;
    make_store(store_bytes, MIB);
    OK(create_vdi(0, bytes));
}

/* With nothing in its cache. */
static void reopen_store(void)
{
    leave_store();
    open_store(env.instance + 1);
}

static void end_left(void)
{
    leave_store();
    end_store();
}

/* ---- The naive twin ---- */

/* Three parts of a large disk, some leaves each: the last needs a fourth level of the tree. */
#define PARTS 3u
#define PART_BLOCKS 2048u
#define BLOCKS (PARTS * PART_BLOCKS)
#define SMALL (512ull << 30)
#define LARGE (600ull << 30)
#define INSTANTS_MAX 128
#define DISKS 3

static const uint64_t part_at[PARTS] = {0, (SMALL >> 12) - PART_BLOCKS,
                                        (LARGE >> 12) - PART_BLOCKS};

struct twin {
    uint32_t content[BLOCKS]; /* 0: zeroes */
    bool touched[BLOCKS];     /* since the parent */
};

struct instant {
    struct twin twin;
    uint32_t slot;
    uint64_t seq, size_bytes; /* seq 0: the newest state */
    int parent;
    bool cloned, gone;
};

static struct {
    struct plx_simrng rng;
    struct instant instants[INSTANTS_MAX];
    int count;
    struct {
        struct plx_vdi *vdi; /* NULL: closed */
        bool exists;
        uint64_t size_bytes;
        struct twin now, began;
        int parent; /* the newest instant */
        uint64_t seq;
        bool thinned;
    } disks[DISKS];
    uint32_t writes;
    bool moves_back; /* there are rewinds, and snapshots go */
} world;

static unsigned index_of(uint64_t vblock)
{
    unsigned part = 0;

    while (part + 1 < PARTS && vblock >= part_at[part + 1])
        part++;
    return part * PART_BLOCKS + (unsigned)(vblock - part_at[part]);
}

static uint64_t vblock_of(unsigned index)
{
    return part_at[index / PART_BLOCKS] + index % PART_BLOCKS;
}

static void touch(struct twin *twin, unsigned first, unsigned count, uint32_t content)
{
    for (unsigned i = first; i < first + count; i++) {
        twin->content[i] = content;
        twin->touched[i] = true;
    }
}

/* A run of blocks inside a part that the disk has. */
static void choose_run(unsigned d, unsigned max, unsigned *ret_first, unsigned *ret_count)
{
    unsigned part = (unsigned)plx_simrng_below(
        &world.rng, world.disks[d].size_bytes == LARGE ? PARTS : PARTS - 1);
    unsigned count = 1 + (unsigned)plx_simrng_below(&world.rng, max);
    unsigned start = (unsigned)plx_simrng_below(&world.rng, PART_BLOCKS - count + 1);

    *ret_first = part * PART_BLOCKS + start;
    *ret_count = count;
}

static void do_write(unsigned d, bool zeroes)
{
    unsigned first, count;
    uint32_t id = zeroes ? 0 : ++world.writes;
    bool in_part = plx_simrng_chance(&world.rng, 10);

    choose_run(d, 40, &first, &count);
    memset(buffer, 0, count * BLOCK);
    for (unsigned i = 0; !zeroes && i < count; i++)
        memcpy(buffer + (size_t)i * BLOCK, &id, sizeof id);
    if (in_part && !zeroes) { /* one sector only */
        run(world.disks[d].vdi, PLX_WRITE, vblock_of(first) * BLOCK + 1024, 512);
        memset(buffer, 0x55, 512);
        run(world.disks[d].vdi, PLX_WRITE, vblock_of(first) * BLOCK + 2048, 512);
        count = 1;
    } else {
        run(world.disks[d].vdi, PLX_WRITE, vblock_of(first) * BLOCK, count * BLOCK);
    }
    touch(&world.disks[d].now, first, count, id);
}

static void do_unmap(unsigned d)
{
    unsigned first, count;

    choose_run(d, plx_simrng_chance(&world.rng, 20) ? PART_BLOCKS : 60, &first, &count);
    run(world.disks[d].vdi, PLX_UNMAP, vblock_of(first) * BLOCK, (uint64_t)count * BLOCK);
    touch(&world.disks[d].now, first, count, 0);
}

static int add_instant(unsigned d, uint64_t seq)
{
    struct instant *instant = &world.instants[world.count];

    CU_ASSERT_FATAL(world.count < INSTANTS_MAX);
    *instant = (struct instant){.twin = world.disks[d].now,
                                .slot = d,
                                .seq = seq,
                                .size_bytes = world.disks[d].size_bytes,
                                .parent = world.disks[d].parent};
    return world.count++;
}

static void note_snapshot(unsigned d, uint64_t seq)
{
    if (seq == world.disks[d].seq) /* nothing had changed */
        return;
    world.disks[d].seq = seq;
    world.disks[d].parent = add_instant(d, seq);
    memset(world.disks[d].now.touched, 0, sizeof world.disks[d].now.touched);
}

static void do_snapshot(unsigned d)
{
    note_snapshot(d, run(world.disks[d].vdi, PLX_SNAPSHOT, 0, 0));
}

/* A snapshot of the disk that there is; NULL: none. */
static struct instant *choose_instant(unsigned d)
{
    struct instant *chosen = NULL;
    uint64_t met = 0;

    for (int i = 0; i < world.count; i++)
        if (world.instants[i].slot == d && !world.instants[i].gone &&
            plx_simrng_below(&world.rng, ++met) == 0)
            chosen = &world.instants[i];
    return chosen;
}

static void do_rewind(unsigned d)
{
    const struct instant *to = choose_instant(d);
    struct twin *now = &world.disks[d].now;
    struct plx_snapshot_info before = {0};

    if (!to)
        return;
    OK(plx_vdi_rewind(world.disks[d].vdi, &(struct plx_rewind_options){.seq = to->seq}, &before,
                      &fault));
    note_snapshot(d, before.seq);
    for (unsigned i = 0; i < BLOCKS; i++)
        now->touched[i] = now->content[i] != to->twin.content[i];
    memcpy(now->content, to->twin.content, sizeof now->content);
}

static bool note_stays(void *context, const struct plx_snapshot_info *info)
{
    for (int i = 0; i < world.count; i++)
        if (world.instants[i].slot == *(unsigned *)context && world.instants[i].seq == info->seq)
            world.instants[i].gone = false;
    return true;
}

/* What goes of a range is for the engine to say. */
static void do_thin(unsigned d)
{
    const struct instant *from = choose_instant(d), *to = choose_instant(d);
    uint64_t kept[INSTANTS_MAX], upto = 0;
    struct plx_thinned thinned = {0};
    struct plx_thin thin = {.kept = kept};

    if (!from || from->seq > to->seq)
        return;
    thin.after = plx_simrng_chance(&world.rng, 30) ? 0 : from->seq - 1;
    thin.upto = to->seq;
    for (int i = 0; i < world.count; i++)
        if (world.instants[i].slot == d && world.instants[i].cloned)
            kept[thin.kept_count++] = world.instants[i].seq;
    do {
        thin.after = plx_max_u64(thin.after, upto);
        upto = thinned.upto;
        OK(plx_vdi_thin(world.disks[d].vdi, &thin, &thinned, &fault));
    } while (thinned.upto > upto);
    world.disks[d].thinned = true;
    for (int i = 0; i < world.count; i++)
        world.instants[i].gone |= world.instants[i].slot == d;
    OK(plx_snapshot_list(store, d, 1, note_stays, &d, &fault));
}

static void do_clone(void)
{
    struct plx_vdi_create_options options = {.sector_size = 512, .is_clone = true};
    unsigned d = 0;
    int from = (int)plx_simrng_below(&world.rng, (uint64_t)world.count);
    struct instant *parent = &world.instants[from];

    while (d < DISKS && world.disks[d].exists)
        d++;
    if (d == DISKS || parent->gone)
        return;
    parent->cloned = true;
    options.slot = d;
    options.parent_slot = parent->slot;
    options.parent_seq = parent->seq;
    snprintf(options.name, sizeof options.name, "v%u", d);
    OK(plx_vdi_create(store, &options, NULL, &fault));
    world.disks[d].exists = true;
    world.disks[d].size_bytes = parent->size_bytes;
    world.disks[d].now = world.disks[d].began = parent->twin;
    memset(world.disks[d].now.touched, 0, sizeof world.disks[d].now.touched);
    world.disks[d].parent = from;
    world.disks[d].seq = 0;
    world.disks[d].vdi = open_vdi(d);
}

static void do_grow(unsigned d)
{
    if (world.disks[d].size_bytes == LARGE)
        return;
    run(world.disks[d].vdi, PLX_RESIZE, 0, LARGE);
    world.disks[d].size_bytes = LARGE;
}

static void close_disks(void)
{
    for (unsigned d = 0; d < DISKS; d++) {
        if (world.disks[d].vdi)
            OK(plx_vdi_close(world.disks[d].vdi));
        world.disks[d].vdi = NULL;
    }
}

static void reopen(void)
{
    close_disks();
    reopen_store();
    for (unsigned d = 0; d < DISKS; d++)
        if (world.disks[d].exists)
            world.disks[d].vdi = open_vdi(d);
}

static void step(void)
{
    unsigned d = (unsigned)plx_simrng_below(&world.rng, DISKS);
    unsigned what = (unsigned)plx_simrng_below(&world.rng, 100);

    if (!world.disks[d].exists)
        d = 0;
    if (world.moves_back && plx_simrng_chance(&world.rng, 6))
        plx_simrng_chance(&world.rng, 50) ? do_rewind(d) : do_thin(d);
    else if (what < 60)
        do_write(d, plx_simrng_chance(&world.rng, 10));
    else if (what < 75)
        do_unmap(d);
    else if (what < 88)
        do_snapshot(d);
    else if (what < 94)
        run(world.disks[d].vdi, PLX_KEYFRAME, 0, 0);
    else if (what < 96 && world.count)
        do_clone();
    else if (what < 97)
        do_grow(d);
    else if (what < 98)
        reopen();
}

static void make_world(unsigned steps, bool moves_back)
{
    memset(&world, 0, sizeof world);
    world.moves_back = moves_back;
    world.rng.state = seed;
    make_disk(256 * MIB, SMALL);
    world.disks[0].exists = true;
    world.disks[0].size_bytes = SMALL;
    world.disks[0].parent = -1;
    world.disks[0].vdi = open_vdi(0);
    for (unsigned i = 0; i < steps && world.count < INSTANTS_MAX - DISKS - 1; i++)
        step();
}

/* ---- Comparing ---- */

/* What was touched on the way from one instant to the other, over their last common ancestor. */
static void touched_between(int a, int b, bool *ret_touched)
{
    memset(ret_touched, 0, BLOCKS * sizeof *ret_touched);
    while (a != b) {
        int *later = a > b ? &a : &b; /* parents come before their children */

        for (unsigned i = 0; i < BLOCKS; i++)
            ret_touched[i] |= world.instants[*later].twin.touched[i];
        *later = world.instants[*later].parent;
    }
}

struct told {
    bool changed[BLOCKS], data[BLOCKS];
    uint64_t end; /* of the last range */
    bool in_order;
};

static bool on_range(void *context, const struct plx_diff_range *range)
{
    struct told *told = context;

    told->in_order &= range->offset >= told->end && range->length;
    told->end = range->offset + range->length;
    for (uint64_t at = range->offset; at < told->end; at += BLOCK) {
        unsigned i = index_of(at / BLOCK);

        if (i >= BLOCKS) {
            told->in_order = false;
            return false;
        }
        told->changed[i] = true;
        told->data[i] = range->data;
    }
    return true;
}

static struct plx_vdi *open_instant(int i)
{
    struct plx_vdi *vdi = NULL;

    OK(plx_snapshot_open(store, world.instants[i].slot, world.instants[i].seq, &vdi, &fault));
    return vdi;
}

/* Instant -1: nothing was mapped. */
static void compare(int a, int b)
{
    static const struct twin nothing;
    static struct told told;
    static bool touched[BLOCKS];
    const struct twin *from = a < 0 ? &nothing : &world.instants[a].twin;
    const struct twin *to = &world.instants[b].twin;
    struct plx_vdi *x = a < 0 ? NULL : open_instant(a), *y = open_instant(b);
    uint64_t blocks = world.instants[b].size_bytes / BLOCK;
    unsigned missing = 0, beyond = 0, wrong = 0;

    memset(&told, 0, sizeof told);
    told.in_order = true;
    OK(plx_vdi_diff(x, y, on_range, &told, &fault));
    CU_ASSERT(told.in_order);
    touched_between(a, b, touched);
    for (unsigned i = 0; i < BLOCKS; i++) {
        bool there = vblock_of(i) < blocks;

        missing += there && from->content[i] != to->content[i] && !told.changed[i];
        beyond += told.changed[i] && (!touched[i] || !there);
        wrong += told.changed[i] && !told.data[i] && to->content[i];
        wrong += told.data[i] && a < 0 && !to->content[i]; /* zeroes are not kept */
    }
    if (missing || beyond || wrong)
        printf("\n  seed %llu: from instant %d to %d: %u missing, %u beyond, %u wrong\n",
               (unsigned long long)seed, a, b, missing, beyond, wrong);
    CU_ASSERT(!missing && !beyond && !wrong);
    if (x)
        OK(plx_vdi_close(x));
    OK(plx_vdi_close(y));
}

/* Some snapshots and every disk's newest state, each with each, and with nothing. */
static void compare_some(void)
{
    int chosen[12], count = 0;

    for (int i = 0; i < world.count; i++)
        if (i >= world.count - 6 || plx_simrng_chance(&world.rng, 10))
            if (count < 9)
                chosen[count++] = i;
    for (unsigned d = 0; d < DISKS; d++)
        if (world.disks[d].exists)
            chosen[count++] = add_instant(d, 0);
    for (int i = 0; i < count; i++) {
        compare(-1, chosen[i]);
        for (int j = 0; j < count; j++)
            compare(chosen[i], chosen[j]);
    }
}

static void end_world(void)
{
    close_disks();
    end_left();
}

/* A failure's seed is printed. */
static unsigned failures;

static void note_failures(void)
{
    failures = CU_get_number_of_failures();
}

static void print_seed(void)
{
    if (CU_get_number_of_failures() > failures)
        printf("\n  seed %llu\n", (unsigned long long)seed);
}

static void each_seed(unsigned count, void (*body)(void))
{
    const char *text = getenv("PLX_SEED");

    for (seed = text ? strtoull(text, NULL, 0) : 1; seed && count; seed++, count--) {
        body();
        if (text)
            break;
    }
}

static void random_body(void)
{
    make_world(150 + (unsigned)seed * 20, false);
    if (seed & 1)
        close_disks(); /* newest states in key frames; else as the open disks have them */
    compare_some();
    end_world();
}

static void test_random(void)
{
    each_seed(16, random_body);
}

/* ---- When a range changed ---- */

struct listed {
    struct plx_range_change changes[INSTANTS_MAX];
    unsigned count, limit;
};

static bool on_change(void *context, const struct plx_range_change *change)
{
    struct listed *listed = context;

    listed->changes[listed->count++] = *change;
    return listed->count < listed->limit;
}

static const struct plx_range_change *listed_to(const struct listed *listed, uint64_t seq)
{
    for (unsigned i = 0; i < listed->count; i++)
        if (listed->changes[i].to.seq == seq)
            return &listed->changes[i];
    return NULL;
}

/* The snapshots that there are, each with the one before: a change is told of those between which
 * the maps differ, and of no others. */
static void check_range(unsigned d, unsigned first, unsigned count)
{
    static struct listed listed;
    const struct twin *before = &world.disks[d].began;
    uint64_t before_seq = 0;
    unsigned met = 0;

    listed = (struct listed){.limit = UINT32_MAX};
    OK(plx_range_change_list(store, d, vblock_of(first), count, on_change, &listed, &fault));
    for (unsigned i = 1; i < listed.count; i++) /* newest first, and no interval twice */
        CU_ASSERT(listed.changes[i].to.seq &&
                  listed.changes[i].to.seq <= listed.changes[i - 1].from.seq);
    for (int i = 0; i < world.count; i++) {
        const struct instant *instant = &world.instants[i];
        const struct plx_range_change *told = listed_to(&listed, instant->seq);
        bool differs = false, unknown = told && told->unknown;

        if (instant->slot != d || instant->gone)
            continue;
        for (unsigned b = first; b < first + count; b++)
            differs |= instant->twin.content[b] != before->content[b];
        if ((told && !unknown) != differs)
            printf("\n  seed %llu: disk %u, blocks %u+%u: snapshot %llu: told %d\n",
                   (unsigned long long)seed, d, first, count, (unsigned long long)instant->seq,
                   told != NULL);
        CU_ASSERT_EQUAL(told && !unknown, differs);
        CU_ASSERT(!unknown || (world.disks[d].thinned && !before_seq));
        CU_ASSERT(!told || told->from.seq == before_seq);
        met += told != NULL;
        before = &instant->twin;
        before_seq = instant->seq;
    }
    CU_ASSERT_EQUAL(met, listed.count);
}

static void changes_body(void)
{
    make_world(600, seed % 3);
    for (unsigned d = 0; d < DISKS; d++) {
        if (!world.disks[d].exists)
            continue;
        add_instant(d, 0);
        for (unsigned i = 0; i < 40; i++) {
            unsigned first, count;

            choose_run(d, i < 20 ? 1 : 200, &first, &count);
            check_range(d, first, count);
        }
    }
    end_world();
}

static void test_changes(void)
{
    each_seed(9, changes_body);
}

static void test_changes_limit(void)
{
    static struct listed listed;
    struct plx_counters before, after;
    struct plx_vdi *vdi;

    seed = 1;
    make_disk(64 * MIB, MIB);
    listed = (struct listed){.limit = 3};
    OK(plx_range_change_list(store, 0, 0, 1, on_change, &listed, &fault));
    CU_ASSERT_EQUAL(listed.count, 0); /* an empty log */
    vdi = open_vdi(0);
    for (unsigned i = 1; i <= 2000; i++) { /* over many segments */
        memset(buffer, (int)i | 1, BLOCK);
        run(vdi, PLX_WRITE, i % 2 * BLOCK, BLOCK);
        CU_ASSERT_EQUAL(run(vdi, PLX_SNAPSHOT, 0, 0), i);
    }
    OK(plx_range_change_list(store, 0, 0, 1, on_change, &listed, &fault));
    CU_ASSERT_EQUAL(listed.count, 3);
    for (unsigned i = 0; i < 3; i++) {
        CU_ASSERT_EQUAL(listed.changes[i].to.seq, 2000 - 2 * i);
        CU_ASSERT_EQUAL(listed.changes[i].from.seq, 1999 - 2 * i);
        CU_ASSERT(listed.changes[i].from.time_ns < listed.changes[i].to.time_ns);
    }
    run(vdi, PLX_KEYFRAME, 0, 0);
    plx_store_counters(store, &before);
    listed.count = 0;
    OK(plx_range_change_list(store, 0, 0, 1, on_change, &listed, &fault));
    plx_store_counters(store, &after);
    /* Finding the segments' headers and the newest segment, not the whole log. */
    CU_ASSERT(after.device_read_bytes[PLX_KIND_LOG] - before.device_read_bytes[PLX_KIND_LOG] <
              256u << 10);
    OK(plx_vdi_close(vdi));
    end_left();
}

static void note_end(struct plx_request *request)
{
    OK(request->result);
    --*(unsigned *)request->owner;
}

#define CROWD 350u

/* A stretch of the log with more of them than there was room for at first. */
static void test_changes_crowded(void)
{
    static struct plx_request requests[2 * CROWD];
    static struct listed listed;
    const uint64_t segment_bytes = fixture.format.segment_bytes;
    unsigned pending = 2 * CROWD, told = 0;
    struct iovec iov = {buffer, BLOCK};
    struct plx_vdi *vdi;
    uint64_t last;

    seed = 1;
    fixture.format.segment_bytes = 256u << 10;
    make_disk(64 * MIB, 4 * MIB);
    fixture.format.segment_bytes = segment_bytes;
    vdi = open_vdi(0);
    for (unsigned i = 1; i <= 10; i++) {
        OK(write_byte(vdi, 0, BLOCK, (int)i));
        run(vdi, PLX_SNAPSHOT, 0, 0);
    }
    for (unsigned i = 0; i < 2 * CROWD; i++) { /* elsewhere: without changes there is none */
        requests[i] = (struct plx_request){.op = i % 2 ? PLX_SNAPSHOT : PLX_WRITE,
                                           .offset = i % 2 ? 0 : (1 + i / 2) * BLOCK,
                                           .length = i % 2 ? 0 : BLOCK,
                                           .iov = &iov,
                                           .iovcnt = 1,
                                           .done = note_end,
                                           .owner = &pending};
        plx_vdi_submit(vdi, &requests[i]);
    }
    plx_store_run_until_zero(store, &pending);
    OK(write_byte(vdi, 0, BLOCK, 11));
    last = run(vdi, PLX_SNAPSHOT, 0, 0);
    CU_ASSERT(last > CROWD);
    listed = (struct listed){.limit = UINT32_MAX};
    OK(plx_range_change_list(store, 0, 0, 1, on_change, &listed, &fault));
    CU_ASSERT_EQUAL_FATAL(listed.count, 11);
    CU_ASSERT(listed.changes[0].from.seq == last - 1 && listed.changes[0].to.seq == last);
    for (unsigned i = 1; i <= 10; i++)
        told += listed.changes[i].from.seq == 10 - i && listed.changes[i].to.seq == 11 - i;
    CU_ASSERT_EQUAL(told, 10);
    OK(plx_vdi_close(vdi));
    end_left();
}

/* Each read fails once; block 1 is one that only the map knows, so that it is asked, too. */
static void test_changes_unreadable(void)
{
    static struct listed listed;
    int error = PLX_ERR_IO_READ;
    struct plx_vdi *vdi;
    struct plx_thinned thinned;

    seed = 1;
    make_disk(64 * MIB, MIB);
    vdi = open_vdi(0);
    memset(buffer, 1, BLOCK);
    run(vdi, PLX_WRITE, BLOCK, BLOCK);
    for (unsigned i = 0; i < 3; i++) {
        run(vdi, PLX_WRITE, 0, BLOCK);
        run(vdi, PLX_SNAPSHOT, 0, 0);
        run(vdi, PLX_KEYFRAME, 0, 0);
    }
    OK(plx_vdi_thin(vdi, &(struct plx_thin){.upto = 1}, &thinned, &fault));
    CU_ASSERT_EQUAL(thinned.oldest, 1);
    OK(plx_vdi_close(vdi));
    for (uint64_t k = 1; error && k < 100; k++) {
        listed = (struct listed){.limit = 3};
        fault.text[0] = '\0';
        reopen_store();
        plx_simdisk_fail_io(disk, k, 1);
        error = plx_range_change_list(store, 0, 1, 1, on_change, &listed, &fault);
        plx_simdisk_heal(disk);
        CU_ASSERT(error == 0 || (error == PLX_ERR_IO_READ && fault.text[0]));
    }
    CU_ASSERT_EQUAL(error, 0);
    CU_ASSERT_EQUAL(listed.count, 1);
    CU_ASSERT_EQUAL(plx_range_change_list(store, 9, 0, 1, on_change, &listed, &fault),
                    PLX_ERR_NOT_FOUND);
    end_left();
}

/* ---- Cost ---- */

static bool count_bytes(void *context, const struct plx_diff_range *range)
{
    *(uint64_t *)context += range->length;
    return true;
}

/* Node reads of a diff with nothing in the cache. */
static uint64_t node_reads(uint64_t from, uint64_t to, uint64_t *ret_bytes)
{
    struct plx_counters before, after;
    struct plx_vdi *x, *y;

    reopen_store();
    OK(plx_snapshot_open(store, 0, from, &x, &fault));
    OK(plx_snapshot_open(store, 0, to, &y, &fault));
    *ret_bytes = 0;
    plx_store_counters(store, &before);
    OK(plx_vdi_diff(x, y, count_bytes, ret_bytes, &fault));
    plx_store_counters(store, &after);
    OK(plx_vdi_close(x));
    OK(plx_vdi_close(y));
    return after.device_reads[PLX_KIND_NODE] - before.device_reads[PLX_KIND_NODE];
}

/* A disk with 200 full leaves, of which three change. */
static void test_cost(void)
{
    struct plx_vdi *vdi;
    uint64_t bytes;

    seed = 1;
    make_disk(640 * MIB, 1024 * MIB);
    vdi = open_vdi(0);
    memset(buffer, 7, sizeof buffer);
    for (uint64_t i = 0; i < 400; i++)
        run(vdi, PLX_WRITE, i * MIB, MIB);
    run(vdi, PLX_KEYFRAME, 0, 0);
    run(vdi, PLX_SNAPSHOT, 0, 0);
    memset(buffer, 8, sizeof buffer);
    for (uint64_t i = 0; i < 3; i++)
        run(vdi, PLX_WRITE, i * 100 * MIB, 16 * BLOCK);
    run(vdi, PLX_SNAPSHOT, 0, 0);
    run(vdi, PLX_WRITE, 300 * MIB, BLOCK);
    run(vdi, PLX_SNAPSHOT, 0, 0);
    run(vdi, PLX_KEYFRAME, 0, 0);
    run(vdi, PLX_WRITE, 400 * MIB, BLOCK);
    run(vdi, PLX_SNAPSHOT, 0, 0);
    OK(plx_vdi_close(vdi));
    /* From one key frame: the way down and the leaf that changed. */
    CU_ASSERT_EQUAL(node_reads(2, 3, &bytes), 3);
    CU_ASSERT_EQUAL(bytes, BLOCK);
    CU_ASSERT_EQUAL(node_reads(2, 2, &bytes), 2);
    CU_ASSERT_EQUAL(bytes, 0);
    /* From two: both ways down, and both nodes of each leaf that changed since the older one; the
     * last leaf is in no tree yet. */
    CU_ASSERT_EQUAL(node_reads(1, 4, &bytes), 2 * (2 + 4));
    CU_ASSERT_EQUAL(bytes, 50 * BLOCK);
    CU_ASSERT_EQUAL(node_reads(3, 4, &bytes), 2 * (2 + 4));
    CU_ASSERT_EQUAL(bytes, BLOCK);
    end_left();
}

/* ---- Refusals and damage ---- */

static bool stop(void *context, const struct plx_diff_range *range)
{
    (*(unsigned *)context)++;
    return false;
}

static void test_odd(void)
{
    struct plx_vdi *vdi, *x, *later;
    unsigned count = 0;
    uint64_t bytes = 0;

    seed = 1;
    make_disk(64 * MIB, 3 * BLOCK + 512);
    vdi = open_vdi(0);
    memset(buffer, 1, sizeof buffer);
    run(vdi, PLX_WRITE, 0, BLOCK);
    run(vdi, PLX_WRITE, 3 * BLOCK, 512);
    run(vdi, PLX_SNAPSHOT, 0, 0);
    OK(plx_snapshot_open(store, 0, 1, &x, &fault));
    OK(plx_vdi_diff(NULL, x, count_bytes, &bytes, &fault));
    CU_ASSERT_EQUAL(bytes, BLOCK + 512); /* the last block is cut short */
    OK(plx_vdi_diff(NULL, x, stop, &count, &fault));
    CU_ASSERT_EQUAL(count, 1);
    run(vdi, PLX_RESIZE, 0, 8 * BLOCK);
    run(vdi, PLX_WRITE, 2 * BLOCK, 6 * BLOCK);
    run(vdi, PLX_SNAPSHOT, 0, 0);
    OK(plx_snapshot_open(store, 0, 2, &later, &fault));
    bytes = 0;
    OK(plx_vdi_diff(later, x, count_bytes, &bytes, &fault));
    CU_ASSERT_EQUAL(bytes, BLOCK + 512); /* what the earlier one has of it, in one leaf */
    OK(plx_vdi_close(later));
    OK(plx_vdi_close(x));
    OK(plx_vdi_close(vdi));
    end_left();
}

/* A node that cannot be read is an error, with its place, not a difference that is missing. */
static void test_damage(void)
{
    struct plx_vdi *vdi, *x;
    uint64_t bytes = 0;

    seed = 1;
    make_disk(64 * MIB, 16 * MIB);
    vdi = open_vdi(0);
    memset(buffer, 1, sizeof buffer);
    run(vdi, PLX_WRITE, 0, MIB);
    run(vdi, PLX_SNAPSHOT, 0, 0);
    OK(plx_vdi_close(vdi));
    reopen_store();
    OK(plx_snapshot_open(store, 0, 0, &x, &fault));
    plx_simdisk_fail_io(disk, 1, 1);
    CU_ASSERT_EQUAL(plx_vdi_diff(NULL, x, count_bytes, &bytes, &fault), PLX_ERR_IO_READ);
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "v0"));
    plx_simdisk_lie(disk, PLX_LIE_ROT);
    CU_ASSERT_EQUAL(plx_vdi_diff(NULL, x, count_bytes, &bytes, &fault), PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(bytes, 0);
    OK(plx_vdi_diff(NULL, x, count_bytes, &bytes, &fault));
    CU_ASSERT_EQUAL(bytes, MIB);
    OK(plx_vdi_close(x));
    end_left();
}

/* Where the nodes of a tree lie. */
static unsigned add_nodes(uint64_t entry, unsigned level, uint64_t *ret_addrs)
{
    uint8_t node[BLOCK];
    unsigned count = 1;

    ret_addrs[0] = plx_entry_addr(entry);
    plx_simdisk_peek(disk, ret_addrs[0] * BLOCK, node, BLOCK);
    for (unsigned i = 0; i < PLX_NODE_ENTRIES && level > 1; i++)
        if (plx_entry_addr(plx_node_entry(node, i)))
            count += add_nodes(plx_node_entry(node, i), level - 1, ret_addrs + count);
    return count;
}

/* One node of either tree that cannot be read: never a difference too few without an error. */
static void test_unreadable(void)
{
    struct plx_vdi *vdi, *instants[2];
    unsigned count = 1, failed = 0;
    uint64_t addrs[16], bytes;

    seed = 1;
    make_disk(64 * MIB, 16 * MIB);
    vdi = open_vdi(0);
    for (int byte = 1; byte <= 2; byte++) {
        OK(write_byte(vdi, 0, BLOCK, byte));
        OK(write_byte(vdi, 8 * MIB, BLOCK, byte));
        run(vdi, PLX_KEYFRAME, 0, 0);
        run(vdi, PLX_SNAPSHOT, 0, 0);
    }
    OK(plx_vdi_close(vdi));
    for (unsigned n = 0; n <= count; n++) {
        int error;

        reopen_store();
        count = 0;
        for (unsigned i = 0; i < 2; i++) {
            OK(plx_snapshot_open(store, 0, i + 1, &instants[i], &fault));
            count +=
                add_nodes(instants[i]->map.base.root, instants[i]->map.base.levels, addrs + count);
        }
        bytes = 0;
        fault.text[0] = '\0';
        if (n < count)
            plx_simdisk_fail_range(disk, addrs[n] * BLOCK, BLOCK, true, false);
        error = plx_vdi_diff(instants[0], instants[1], count_bytes, &bytes, &fault);
        plx_simdisk_heal(disk);
        failed += error == PLX_ERR_IO_READ && strstr(fault.text, "v0");
        CU_ASSERT(error || bytes == 2 * BLOCK);
        for (unsigned i = 0; i < 2; i++)
            OK(plx_vdi_close(instants[i]));
    }
    CU_ASSERT_EQUAL(count, 8); /* two leaves and the two nodes above them, of both */
    CU_ASSERT_EQUAL(failed, count);
    end_left();
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"every pair of instants of random histories", test_random},
        {"when a range changed", test_changes},
        {"newest changes first, and no more is read", test_changes_limit},
        {"changes beside very many snapshots", test_changes_crowded},
        {"changes that cannot be read", test_changes_unreadable},
        {"cost follows what changed", test_cost},
        {"odd sizes, stopping", test_odd},
        {"a damaged node", test_damage},
        {"nodes that cannot be read", test_unreadable},
    };

    fixture.format.segment_bytes = 16u << 10;
    fixture.open.cache_bytes = 1;
    fixture.open.keyframe_mappings = 1u << 20;
    return SUITE_RUN_IN((&(struct suite_frame){.before = note_failures, .after = print_seed}),
                        "diff", tests);
}
