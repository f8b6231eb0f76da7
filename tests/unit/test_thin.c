/* test_thin.c - letting snapshots go, seen closely: the order of snapshots and key frames in the
 * log, stretches that fit badly, marks, random histories. Who comes meanwhile is in
 * test_thin_beside.c, what fails in test_thin_failing.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ok.h"
#include "suite.h"
#include "unit/thinning.h"

#define HISTORIES 8u

/* What is labelled or cloned is always read through the key frame that it was read through at
 * first: nothing in the log that is rewritten announces one too early. In stretches that end
 * with the key frame around it, that begin with it, then in long ones, again and again. */
static void test_order(void)
{
    struct plx_vdi_create_options clone = {
        .name = "clone", .slot = 1, .sector_size = 512, .is_clone = true};
    uint64_t around[40], held[40], kept[SNAPS];
    size_t count, held_count = 0;
    struct order before, now;
    struct plx_vdi *child;

    make_disk();
    count = write_history(40, around);
    read_order(&before);
    for (size_t i = 2; i < count - 2; i += 3)
        held[held_count++] = around[i];
    clone.parent_seq = held[held_count / 2];
    OK(plx_vdi_create(store, &clone, NULL, &fault));
    for (size_t i = 0; i < held_count; i++) {
        CU_ASSERT_EQUAL(let_go(held[i] - 2, held[i] - 1, held, held_count), 1);
        expect_order(&before, held, held_count);
        CU_ASSERT_EQUAL(let_go(held[i] + 1, held[i] + 2, held, held_count), 1);
        expect_order(&before, held, held_count);
    }
    for (uint64_t step = 2; step <= 16; step *= 2) {
        uint64_t upto = model.newest - 5;
        size_t kept_count = 0;

        for (uint64_t seq = 1; seq <= upto; seq++)
            if (seq % step == 1 || contains(held, held_count, seq))
                kept[kept_count++] = seq;
        CU_ASSERT(let_go(0, upto, kept, kept_count) > 0);
        read_order(&now);
        CU_ASSERT(now.skips > 0);
        expect_order(&before, held, held_count);
        for (uint64_t seq = 1; seq <= model.newest; seq++)
            if (now.root[seq])
                expect_snapshot(seq);
        write_history(2, around);
    }
    CU_ASSERT(let_go(0, model.newest, held, held_count) > 0);
    expect_order(&before, held, held_count);
    for (size_t i = 0; i < held_count; i++)
        expect_snapshot(held[i]);
    child = open_vdi(1);
    CU_ASSERT(holds(child, model.then[clone.parent_seq]));
    OK(plx_vdi_close(child));
    CU_ASSERT(holds(vdi, model.now));
    end_disk(false);
}

/* ---- Refusals ---- */

static int refused[2];
static bool lets_go;

static void ask_again(struct plx_simenv *e)
{
    struct plx_rewind_options options = {.seq = 1};
    struct plx_thin thin = {.upto = 1};
    struct plx_snapshot_info before;
    struct plx_thinned thinned;

    lets_go |= vdi->keyframe.drop && plx_vdi_lets_go(store, 0, 5) && !plx_vdi_lets_go(store, 0, 4);
    if (plx_vdi_history_changes(vdi) && !refused[0]) {
        refused[0] = plx_vdi_thin(vdi, &thin, &thinned, &fault);
        refused[1] = plx_vdi_rewind(vdi, &options, &before, &fault);
    }
}

static void want_keyframe(struct plx_simenv *e)
{
    plx_keyframe_request(vdi, NULL);
}

static void test_refusals(void)
{
    struct plx_rewind_options options = {.seq = 4};
    struct plx_thin thin = {.after = 4, .upto = 8};
    struct plx_snapshot_info before;
    struct plx_thinned thinned;
    struct plx_vdi *instant;
    uint64_t around[4];

    make_disk();
    OK(plx_vdi_thin(vdi, &thin, &thinned, &fault)); /* its log is empty */
    CU_ASSERT_EQUAL(thinned.snapshots, 0);
    write_history(4, around);
    OK(plx_snapshot_open(store, 0, 1, &instant, &fault));
    FAILS(READONLY, plx_vdi_thin(instant, &thin, &thinned, &fault));
    plx_vdi_abandon(instant);
    env.on_tick = want_keyframe; /* one after the other: there is never a moment for it */
    FAILS(BUSY, plx_vdi_thin(vdi, &thin, &thinned, &fault));
    memset(refused, 0, sizeof refused);
    env.on_tick = ask_again;
    OK(plx_vdi_thin(vdi, &thin, &thinned, &fault));
    CU_ASSERT(thinned.snapshots > 0 && lets_go);
    CU_ASSERT(refused[0] == PLX_ERR_BUSY && refused[1] == PLX_ERR_BUSY);
    memset(refused, 0, sizeof refused);
    OK(plx_vdi_rewind(vdi, &options, &before, &fault));
    env.on_tick = NULL;
    CU_ASSERT(refused[0] == PLX_ERR_BUSY && refused[1] == PLX_ERR_BUSY);
    end_disk(false);
}

/* ---- Stretches that fit badly ---- */

static struct {
    struct plx_request request;
    struct iovec iov;
    bool done;
} together[3];

static void together_done(struct plx_request *request)
{
    *(bool *)request->owner = true;
}

/* A write of so many blocks and two snapshots, in one batch of the log. */
static void one_batch(unsigned blocks)
{
    uint64_t batches = store->counters.batches;

    memset(buffer, 5, (size_t)blocks * BLOCK);
    for (unsigned i = 0; i < 3; i++) {
        together[i].done = false;
        together[i].iov = (struct iovec){buffer, (size_t)blocks * BLOCK};
        together[i].request = (struct plx_request){.op = i ? PLX_SNAPSHOT : PLX_WRITE,
                                                   .offset = BLOCK,
                                                   .length = i ? 0 : together[i].iov.iov_len,
                                                   .iov = &together[i].iov,
                                                   .iovcnt = i ? 0 : 1,
                                                   .done = together_done,
                                                   .owner = &together[i].done};
        plx_vdi_submit(vdi, &together[i].request);
    }
    for (unsigned i = 0; i < 3; i++) {
        while (!together[i].done)
            if (!plx_store_tick(store))
                plx_store_wait(store);
        OK(together[i].request.result);
        if (i)
            note_snapshot(together[i].request.seq);
    }
    CU_ASSERT_EQUAL(store->counters.batches, batches + 1);
}

/* Between two key frames that lie close together what stays may need more room than all of it had,
 * since the record that ends it stands alone. Then the stretch ends with a later key frame. */
static void test_tight(void)
{
    for (unsigned blocks = 1; blocks < 120; blocks++) {
        struct plx_thinned thinned;
        struct plx_thin thin;

        make_disk();
        write_places(3);
        snapshot();
        keyframe();
        one_batch(blocks);
        thin = (struct plx_thin){.after = model.newest - 1, .upto = model.newest};
        keyframe();
        for (unsigned i = 0; i < 3; i++) {
            write_places(5);
            snapshot();
            keyframe();
            write_places(1);
            snapshot();
        }
        OK(plx_vdi_thin(vdi, &thin, &thinned, &fault));
        CU_ASSERT_EQUAL(thinned.snapshots, 1);

        expect_snapshot(thin.after);
        expect_no_snapshot(thin.upto);
        expect_snapshot(thin.upto + 1);
        end_disk(false);
    }
}

static int run_at(enum plx_request_op op, unsigned block, unsigned blocks)
{
    struct iovec iov = {buffer, (size_t)blocks * BLOCK};
    struct plx_request request = {.op = op,
                                  .offset = (uint64_t)block * BLOCK,
                                  .length = (uint64_t)blocks * BLOCK,
                                  .iov = &iov,
                                  .iovcnt = 1};

    return plx_vdi_run(vdi, &request);
}

/* Every other one of so many blocks, but for the places. */
static void write_holes(unsigned blocks)
{
    for (unsigned block = 2; block < blocks; block += 2)
        if (block % APART)
            OK(run_at(PLX_WRITE, block, 1));
}

/* One record can unmap what it takes many to tell of anew: every other block was mapped. They stay
 * where there is no room for that, and what comes behind has its turn. Where the records that tell
 * of it end a batch, whatever comes next finds no room: a record of many mappings, a snapshot, the
 * announcement of the key frame around it, the end. Returns whether they stayed. */
static bool fits_badly(unsigned blocks, unsigned mapped, bool around)
{
    bool stayed;
    struct plx_thinned thinned;
    struct plx_thin thin;

    make_disk();
    write_holes(blocks);
    snapshot();
    keyframe();
    write_places(1);
    snapshot();
    for (unsigned place = 1; place * APART < blocks; place++)
        model.now[place] = 0;
    if (around) {
        unmap_between = blocks - 1;
        keyframe_around_snapshot();
        unmap_between = 0;
        write_places(1);
        snapshot();
    } else {
        OK(run_at(PLX_UNMAP, 1, blocks - 1));
    }
    if (mapped)
        OK(run_at(PLX_WRITE, 7 * APART + 1, mapped));
    write_places(1);
    thin = (struct plx_thin){.after = model.newest, .upto = snapshot()};
    keyframe_around_snapshot();
    for (unsigned i = 0; i < 6; i++) {
        write_places(1);
        snapshot();
        keyframe();
    }
    OK(plx_vdi_thin(vdi, &thin, &thinned, &fault));
    CU_ASSERT(thinned.upto >= thin.upto);
    stayed = thinned.snapshots == 0;
    if (stayed)
        expect_snapshot(thin.upto);
    for (unsigned i = 0; i < 20; i++) { /* now there will be room, further on */
        write_places(4);
        snapshot();
        keyframe();
    }
    if (stayed)
        OK(plx_vdi_thin(vdi, &thin, &thinned, &fault));
    CU_ASSERT_EQUAL(thinned.snapshots, 1);
    expect_snapshot(thin.after);
    expect_no_snapshot(thin.upto);
    expect_snapshot(thin.upto + 1);
    end_disk(false);
    return stayed;
}

static void test_never_fits(void)
{
    fits_badly(512, 0, false);
    for (unsigned holes = 716; holes < 734; holes++) {
        fits_badly(2 * holes, 0, false);
        fits_badly(2 * holes, 0, true);
    }
    fits_badly(2 * 700, 256, false);
    CU_ASSERT(fits_badly(6 * APART, 0, false));
}

/* What the stretch began with had fewer levels than the disk has now. */
static void test_grown(void)
{
    struct plx_request grow = {.op = PLX_RESIZE, .length = 600ull << 30};
    struct plx_request far = {.op = PLX_WRITE,
                              .offset = (600ull << 30) - BLOCK,
                              .length = BLOCK,
                              .iov = &(struct iovec){buffer, BLOCK},
                              .iovcnt = 1};
    uint64_t first, second;

    make_disk();
    write_places(5);
    first = snapshot();
    OK(plx_vdi_run(vdi, &grow));
    OK(plx_vdi_run(vdi, &far));
    second = snapshot();
    keyframe();
    write_places(5);
    snapshot();
    CU_ASSERT_EQUAL(let_go(0, first, NULL, 0), 1);
    expect_no_snapshot(first);
    expect_snapshot(second);
    end_disk(false);
}

/* A tree goes, and the next one is higher and has nothing. */
static void test_grown_empty(void)
{
    struct plx_request grow = {.op = PLX_RESIZE, .length = 600ull << 30};
    uint64_t used;

    make_disk();
    used = data_used();
    for (unsigned i = 0; i < 2; i++) {
        write_places(5);
        snapshot();
        keyframe();
    }
    OK(plx_vdi_run(vdi, &grow));
    OK(run_at(PLX_UNMAP, 0, PLACES * APART));
    memset(model.now, 0, sizeof model.now);
    keyframe();
    CU_ASSERT_EQUAL(vdi->record.keyframe.root, 0);
    CU_ASSERT_EQUAL(vdi->record.keyframe.levels, vdi->record.oldest.levels + 1);
    snapshot();
    CU_ASSERT_EQUAL(let_go(0, 2, NULL, 0), 2);
    CU_ASSERT_EQUAL(data_used() - vdi->run.count, used);
    expect_no_snapshot(2);
    expect_snapshot(3);
    end_disk(false);
}

/* ---- From one stretch to the next (RECLAIM-10) ---- */

#define ROUNDS 60u

static struct plx_thinned by_policy(uint64_t after, uint64_t upto, uint64_t age_ns,
                                    const uint64_t *kept, size_t kept_count)
{
    struct plx_thin thin = {.after = after,
                            .upto = upto,
                            .before_ns = plx_env_now_ns(&env.env) - age_ns,
                            .kept = kept,
                            .kept_count = kept_count,
                            .thrifty = true};
    struct plx_thinned thinned = {0};

    OK(plx_vdi_thin(vdi, &thin, &thinned, &fault));
    return thinned;
}

/* It goes on at a mark, behind a snapshot that was not asked for then, and is now: what is held
 * before that one stays. */
static void test_mark_passed(void)
{
    const uint64_t held = 2;
    struct plx_thinned thinned;
    uint64_t last = 10;

    make_disk();
    while (model.newest < 60) {
        write_places(20);
        snapshot();
        if (model.newest % 4 == 0)
            keyframe();
    }
    thinned = by_policy(last, last, 0, &held, 1);
    CU_ASSERT_EQUAL(thinned.snapshots, 0);
    CU_ASSERT_EQUAL(thinned.upto, last);
    thinned = by_policy(0, model.newest - 1, 0, &held, 1);
    CU_ASSERT(thinned.snapshots > 0);
    CU_ASSERT(thinned.upto > last);
    expect_snapshot(held);
    expect_snapshot(last);
    expect_no_snapshot(last + 1);
    end_disk(false);
}

/* Of a stretch that ends with a key frame snapshots behind its position, but before its
 * announcement, are read through the one before: that one stays where such a snapshot is held, and
 * so do the nodes that a clone has in common with it (RECLAIM-6). */
static void hold_every(unsigned period, unsigned first)
{
    struct plx_vdi_create_options clone = {.sector_size = 512, .is_clone = true};
    uint64_t around[ROUNDS], held[ROUNDS], gone = 0, after = 0;
    size_t held_count = 0;
    struct order order;

    make_disk();
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct plx_thinned thinned;

        env.ns += SECOND_NS;
        write_history(1, around + round);
        if (round % period == first) {
            held[held_count++] = clone.parent_seq = around[round];
            clone.slot = (uint32_t)held_count;
            snprintf(clone.name, sizeof clone.name, "clone%zu", held_count);
            OK(plx_vdi_create(store, &clone, NULL, &fault));
        }
        read_order(&order);
        thinned = by_policy(after, model.newest - 1, 8 * SECOND_NS, held, held_count);
        after = thinned.upto;
        gone += thinned.snapshots;
        expect_order(&order, held, held_count);
    }
    CU_ASSERT(gone > ROUNDS);
    CU_ASSERT(let_go(0, model.newest - 1, held, held_count) > 0);
    expect_order(&order, held, held_count);
    end_disk(false);
}

static void test_mark_order(void)
{
    for (unsigned period = 3; period <= 5; period++)
        for (unsigned first = 0; first < period; first++)
            hold_every(period, first);
}

/* ---- Random histories ---- */

#define CLONES 24u /* in slots from 1 on */
#define LABELS 40u
#define POLICY_LEVELS 3u

/* A disk whose snapshots are cloned, labelled, rewound to and let go in every way, again and again:
 * what is held is always read through the same key frame, and of all that there is no node and no
 * block is free. PLX_SEED=n replays one history. */
static struct {
    struct plx_simrng rng;
    struct {
        uint64_t seq; /* 0: there is none */
        uint8_t then[PLACES];
    } clones[CLONES + 1];
    uint64_t labels[LABELS];
    unsigned label_count, clone_count; /* clones that there ever were */
    uint64_t held[CLONES + LABELS];    /* ascending */
    size_t held_count;
    uint64_t after[POLICY_LEVELS];
    struct order order; /* before what is looked at */
} tale;

static uint64_t below(uint64_t n)
{
    return plx_simrng_below(&tale.rng, n);
}

static bool chance(unsigned percent)
{
    return plx_simrng_chance(&tale.rng, percent);
}

static void expect_nodes_allocated(uint64_t entry, unsigned level)
{
    uint8_t copy[BLOCK];
    const void *node;

    if (!plx_entry_addr(entry))
        return;
    CU_ASSERT_FATAL(allocated(plx_entry_addr(entry), 1));
    if (level == 1)
        return;
    OK(plx_cache_get_sync(reader->cache, entry, level, &node));
    memcpy(copy, node, BLOCK);
    for (unsigned i = 0; i < PLX_NODE_ENTRIES; i++)
        expect_nodes_allocated(plx_node_entry(copy, i), level - 1);
}

static void expect_block_allocated(void *context, uint64_t vblock,
                                   const struct plx_mapping *mapping)
{
    CU_ASSERT_FATAL(allocated(plx_addr_block(mapping->addr), 1));
}

/* A snapshot, or with seq 0 a clone as it is. */
static void expect_whole(uint32_t slot, uint64_t seq, const uint8_t *places)
{
    struct plx_vdi *instant = NULL;
    uint64_t vblock = 0;

    OK(plx_snapshot_open(reader, slot, seq, &instant, &fault));
    expect_nodes_allocated(instant->map.base.root, instant->map.base.levels);
    while (vblock != UINT64_MAX)
        OK(plx_vdi_each_mapping(instant, 1000, &vblock, expect_block_allocated, NULL, &fault));
    CU_ASSERT_FATAL(holds(instant, places));
    plx_vdi_abandon(instant);
}

static void look_at_all(void)
{
    expect_order(&tale.order, tale.held, tale.held_count);
    read_order(&tale.order);
    for (uint64_t seq = 1; seq <= model.newest; seq++)
        if (tale.order.root[seq] &&
            (contains(tale.held, tale.held_count, seq) || seq % 5 == tale.order.root[seq] % 5))
            expect_whole(0, seq, model.then[seq]);
    for (uint32_t slot = 1; slot <= CLONES; slot++)
        if (tale.clones[slot].seq)
            expect_whole(slot, 0, tale.clones[slot].then);
    CU_ASSERT_FATAL(holds(vdi, model.now));
}

static void hold(uint64_t seq)
{
    size_t at = tale.held_count;

    if (contains(tale.held, tale.held_count, seq))
        return;
    for (; at && tale.held[at - 1] > seq; at--)
        tale.held[at] = tale.held[at - 1];
    tale.held[at] = seq;
    tale.held_count++;
}

static void find_held(void)
{
    tale.held_count = 0;
    for (unsigned i = 0; i < tale.label_count; i++)
        hold(tale.labels[i]);
    for (uint32_t slot = 1; slot <= CLONES; slot++)
        if (tale.clones[slot].seq)
            hold(tale.clones[slot].seq);
    read_order(&tale.order);
}

/* One that there is, rather a new one; 0: there is none. */
static uint64_t any_snapshot(void)
{
    uint64_t newest = model.newest, seq;

    for (unsigned tries = 0; tries < 20 && newest; tries++) {
        seq = chance(60) ? newest - below(plx_min_u64(newest, 5)) : 1 + below(newest);
        if (tale.order.root[seq])
            return seq;
    }
    return 0;
}

static void write_any(unsigned keyframes)
{
    env.ns += SECOND_NS;
    for (uint64_t n = 1 + below(4); n; n--) {
        write_places(1 + (unsigned)below(12));
        if (chance(80))
            snapshot();
        if (chance(25))
            approach_end();
        if (chance(10))
            plx_log_leave_segment(&vdi->log);
        if (!chance(keyframes))
            continue;
        if (chance(50))
            keyframe();
        else
            keyframe_around_snapshot();
    }
}

static void clone_any(void)
{
    struct plx_vdi_create_options clone = {.sector_size = 512, .is_clone = true};

    clone.parent_seq = any_snapshot();
    if (!clone.parent_seq || tale.clone_count == CLONES)
        return;
    clone.slot = ++tale.clone_count;
    snprintf(clone.name, sizeof clone.name, "clone%u", tale.clone_count);
    OK(plx_vdi_create(store, &clone, NULL, &fault));
    tale.clones[clone.slot].seq = clone.parent_seq;
    memcpy(tale.clones[clone.slot].then, model.then[clone.parent_seq], PLACES);
}

static void delete_any(void)
{
    uint32_t slot = 1 + (uint32_t)below(CLONES);

    if (!tale.clones[slot].seq)
        return;
    OK(plx_vdi_delete(store, slot, false, &fault));
    tale.clones[slot].seq = 0;
}

static void label_any(uint64_t seq)
{
    if (seq && tale.label_count < LABELS)
        tale.labels[tale.label_count++] = seq;
}

static void unlabel_any(void)
{
    if (tale.label_count)
        tale.labels[below(tale.label_count)] = tale.labels[tale.label_count - 1];
    tale.label_count -= tale.label_count > 0;
}

static void rewind_any(void)
{
    struct plx_rewind_options options = {.seq = any_snapshot()};
    struct plx_snapshot_info before;

    if (!options.seq || vdi->record.rewinds == 5)
        return;
    OK(plx_vdi_rewind(vdi, &options, &before, &fault));
    note_snapshot(before.seq);
    memcpy(model.now, model.then[options.seq], PLACES);
    if (chance(60))
        label_any(before.seq);
}

static void reopen_any(bool killed)
{
    if (!killed) {
        OK(plx_vdi_close(vdi));
        vdi = open_vdi(0);
        return;
    }
    kill_store();
    OK(try_open_vdi(0, true, &vdi));
}

/* What was asked for, once more or by a policy of three levels. */
static void let_any_go(bool exactly)
{
    static const struct {
        uint64_t every_ns, age_ns;
    } levels[POLICY_LEVELS] = {
        {0, 14 * SECOND_NS}, {3 * SECOND_NS, 4 * SECOND_NS}, {7 * SECOND_NS, 8 * SECOND_NS}};

    if (exactly) {
        uint64_t from = below(model.newest + 1);

        let_go(from, plx_min_u64(model.newest, from + 1 + below(20)), tale.held, tale.held_count);
        look_at_all();
    }
    for (unsigned i = 0; i < 3 * POLICY_LEVELS; i++) {
        unsigned level = i % POLICY_LEVELS;
        struct plx_thin thin = {.after = tale.after[level],
                                .upto = UINT64_MAX,
                                .every_ns = levels[level].every_ns,
                                .before_ns = plx_env_now_ns(&env.env) - levels[level].age_ns,
                                .kept = tale.held,
                                .kept_count = tale.held_count,
                                .thrifty = true};
        struct plx_thinned thinned;

        OK(plx_vdi_thin(vdi, &thin, &thinned, &fault));
        tale.after[level] = level ? thinned.upto : 0;
        if (thinned.snapshots)
            look_at_all();
    }
}

static void tell(uint64_t seed)
{
    unsigned clones, rewinds, exactly, reopened, keyframes;

    memset(&tale, 0, sizeof tale);
    tale.rng.state = fixture.disk.seed = seed;
    clones = (unsigned)below(25);
    rewinds = chance(40) ? (unsigned)below(12) : 0;
    exactly = chance(50) ? (unsigned)below(25) : 0;
    reopened = chance(30) ? (unsigned)below(12) : 0;
    keyframes = 20 + (unsigned)below(80);
    make_disk();
    for (unsigned step = 0; step < 60 && model.newest + 12 < SNAPS; step++) {
        write_any(keyframes);
        read_order(&tale.order);
        if (chance(clones))
            clone_any();
        if (chance(8))
            label_any(any_snapshot());
        if (chance(5))
            unlabel_any();
        if (chance(5))
            delete_any();
        if (chance(rewinds))
            rewind_any();
        if (chance(reopened))
            reopen_any(chance(50));
        find_held();
        let_any_go(chance(exactly));
    }
    look_at_all();
    end_disk(true);
}

static void test_random(void)
{
    const struct plx_simdisk_options usual = fixture.disk;
    const char *one = getenv("PLX_SEED");
    uint64_t first = one ? strtoull(one, NULL, 0) : (uint64_t)time(NULL);

    printf("\n  seeds from %llu on\n", (unsigned long long)first);
    for (uint64_t seed = first; seed < first + (one ? 1 : HISTORIES); seed++) {
        printf("  seed %llu\r", (unsigned long long)seed);
        fflush(stdout);
        tell(seed);
    }
    fixture.disk = usual;
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"the order of the log", test_order},
        {"refusals", test_refusals},
        {"a stretch that fits badly", test_tight},
        {"a stretch that never fits", test_never_fits},
        {"a disk that has grown", test_grown},
        {"a disk that has grown and is empty", test_grown_empty},
        {"what a mark has passed", test_mark_passed},
        {"the order behind a mark", test_mark_order},
        {"random histories", test_random},
    };

    prepare_thinning();
    return SUITE_RUN("letting go", tests);
}
