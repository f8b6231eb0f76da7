/* test_rewind.c - a disk goes back to an instant, and forth again: contents, size, history, space,
 * what it costs, what is refused.
 */
#include <stdio.h>
#include <string.h>

#include "engine/disk/vdi.h" /* to see the barrier */
#include "ok.h"
#include "suite.h"
#include "unit/fixture.h"

#define REQUESTS 12u

/* ---- The store ---- */

/* Everything is closed. leaks: there may be some. */
static void end_checked(bool leaks)
{
    check_store(leaks);
    end_store();
}

/* A power cut; the next instance takes all over. */
static void crash(struct plx_vdi *vdi)
{
    plx_simpower_cut(&power);
    plx_vdi_abandon(vdi);
    plx_store_close(store);
    plx_simpower_restore(&power);
    open_store(env.instance + 1);
    for (uint64_t e = 0; e < registry.count; e++) {
        struct plx_extent_info info;

        if (!registry.extents[e].owner)
            continue;
        OK(plx_store_extent_read(store, e, &info, &fault));
        OK(plx_store_extent_adopt(store, e, &fault));
        registry.extents[e].owner = env.instance;
    }
    OK(plx_vdi_mark(store, 0, &fault));
    OK(plx_store_extents_adopted(store, &fault));
}

/* ---- The disk ---- */

static struct plx_vdi *make_vdi(uint64_t size_bytes)
{
    OK(create_vdi(0, size_bytes));
    return open_vdi(0);
}

static void fill(struct plx_vdi *vdi, uint64_t block, uint64_t blocks, int byte)
{
    OK(write_byte(vdi, block * BLOCK, blocks * BLOCK, byte));
}

static bool holds(struct plx_vdi *vdi, uint64_t block, uint64_t blocks, int byte)
{
    return reads_as(vdi, block * BLOCK, blocks * BLOCK, byte);
}

static uint64_t snapshot(struct plx_vdi *vdi)
{
    return run(vdi, PLX_SNAPSHOT, 0, 0);
}

static bool held(uint64_t seq, uint64_t block, uint64_t blocks, int byte)
{
    struct plx_vdi *instant = NULL;
    bool right;

    OK(plx_snapshot_open(store, 0, seq, &instant, &fault));
    right = holds(instant, block, blocks, byte);
    plx_vdi_abandon(instant);
    return right;
}

static int try_rewind(struct plx_vdi *vdi, uint64_t seq)
{
    struct plx_rewind_options options = {.seq = seq};
    struct plx_snapshot_info before;

    return plx_vdi_rewind(vdi, &options, &before, &fault);
}

/* Returns the snapshot of the state before. */
static uint64_t rewind_to(struct plx_vdi *vdi, uint64_t seq)
{
    struct plx_rewind_options options = {.seq = seq};
    struct plx_snapshot_info before = {0};

    OK(plx_vdi_rewind(vdi, &options, &before, &fault));
    return before.seq;
}

/* ---- Tests ---- */

static void test_forth_and_back(void)
{
    struct plx_vdi *vdi;
    uint64_t first, before, after, last;

    make_store(128 * MIB, MIB);
    vdi = make_vdi(16 * MIB);
    fill(vdi, 0, 100, 1);
    fill(vdi, 1000, 8, 1);
    first = snapshot(vdi);
    fill(vdi, 50, 100, 2);
    run(vdi, PLX_UNMAP, 0, 10 * BLOCK);
    before = rewind_to(vdi, first);
    CU_ASSERT(before > first);
    CU_ASSERT(holds(vdi, 0, 100, 1));
    CU_ASSERT(holds(vdi, 100, 50, 0));
    CU_ASSERT(holds(vdi, 1000, 8, 1));
    fill(vdi, 20, 40, 3);
    after = snapshot(vdi);
    fill(vdi, 20, 10, 4);
    last = rewind_to(vdi, before);
    CU_ASSERT(holds(vdi, 0, 10, 0));
    CU_ASSERT(holds(vdi, 10, 40, 1));
    CU_ASSERT(holds(vdi, 50, 100, 2));
    rewind_to(vdi, last);
    CU_ASSERT(holds(vdi, 0, 20, 1));
    CU_ASSERT(holds(vdi, 20, 10, 4));
    CU_ASSERT(holds(vdi, 30, 30, 3));
    CU_ASSERT(holds(vdi, 60, 40, 1));
    for (unsigned round = 0; round < 2; round++) { /* every instant is what it was */
        CU_ASSERT(held(first, 0, 100, 1));
        CU_ASSERT(held(first, 100, 50, 0));
        CU_ASSERT(held(before, 0, 10, 0));
        CU_ASSERT(held(before, 50, 100, 2));
        CU_ASSERT(held(after, 0, 20, 1));
        CU_ASSERT(held(after, 20, 40, 3));
        CU_ASSERT(held(last, 20, 10, 4));
        OK(plx_vdi_close(vdi));
        vdi = open_vdi(0);
    }
    CU_ASSERT(holds(vdi, 20, 10, 4));
    OK(plx_vdi_close(vdi));
    end_checked(false);
}

/* Before anything else was logged, and after. */
static void test_crash(void)
{
    struct plx_vdi *vdi;
    uint64_t first, before;

    make_store(128 * MIB, MIB);
    vdi = make_vdi(16 * MIB);
    fill(vdi, 0, 10, 1);
    first = snapshot(vdi);
    fill(vdi, 0, 10, 2);
    before = rewind_to(vdi, first);
    crash(vdi);
    OK(try_open_vdi(0, true, &vdi));
    CU_ASSERT(holds(vdi, 0, 10, 1));
    CU_ASSERT(held(before, 0, 10, 2));
    fill(vdi, 5, 5, 3);
    rewind_to(vdi, before);
    fill(vdi, 0, 2, 4);
    snapshot(vdi);
    crash(vdi);
    OK(try_open_vdi(0, true, &vdi));
    CU_ASSERT(holds(vdi, 0, 2, 4));
    CU_ASSERT(holds(vdi, 2, 8, 2));
    CU_ASSERT(held(before + 1, 5, 5, 3));
    CU_ASSERT(held(before + 2, 0, 2, 4));
    OK(plx_vdi_close(vdi));
    end_checked(true);
}

/* The state before becomes a disk of its own, and what is rewound goes on from there. */
static void test_clone(void)
{
    struct plx_vdi_create_options options = {
        .name = "clone", .sector_size = 512, .slot = 1, .is_clone = true};
    struct plx_vdi *vdi, *clone;
    uint64_t first;

    make_store(128 * MIB, MIB);
    vdi = make_vdi(16 * MIB);
    fill(vdi, 0, 10, 1);
    first = snapshot(vdi);
    fill(vdi, 0, 10, 2);
    options.parent_seq = rewind_to(vdi, first);
    OK(plx_vdi_create(store, &options, NULL, &fault));
    clone = open_vdi(1);
    fill(vdi, 0, 5, 3);
    fill(clone, 5, 5, 4);
    CU_ASSERT(holds(clone, 0, 5, 2));
    CU_ASSERT(holds(vdi, 5, 5, 1));
    OK(plx_vdi_close(clone));
    OK(plx_vdi_close(vdi));
    end_checked(false);
}

/* It keeps its size; what the instant did not have reads as zeroes, also where the tree is too low
 * for it. */
static void test_grown(void)
{
    uint64_t far = (600ull << 30) / BLOCK - 4;
    struct plx_request grow = {.op = PLX_RESIZE, .length = 600ull << 30};
    struct plx_vdi_info info;
    struct plx_vdi *vdi;
    uint64_t first, before;

    make_store(128 * MIB, MIB);
    vdi = make_vdi(16 * MIB);
    fill(vdi, 0, 10, 1);
    first = snapshot(vdi);
    OK(plx_vdi_run(vdi, &grow));
    fill(vdi, far, 4, 2);
    before = rewind_to(vdi, first);
    plx_vdi_get_info(vdi, &info);
    CU_ASSERT_EQUAL(info.size_bytes, 600ull << 30);
    CU_ASSERT(holds(vdi, 0, 10, 1));
    CU_ASSERT(holds(vdi, far, 4, 0));
    fill(vdi, far, 2, 3);
    rewind_to(vdi, before);
    CU_ASSERT(holds(vdi, far, 4, 2));
    OK(plx_vdi_close(vdi));
    vdi = open_vdi(0);
    CU_ASSERT(holds(vdi, far, 4, 2));
    CU_ASSERT(held(before + 1, far, 2, 3));
    OK(plx_vdi_close(vdi));
    end_checked(false);
}

/* To an instant at which nothing was mapped. */
static void test_empty(void)
{
    struct plx_vdi *vdi;
    uint64_t first, before;

    make_store(128 * MIB, MIB);
    vdi = make_vdi(16 * MIB);
    first = snapshot(vdi);
    fill(vdi, 0, 10, 1);
    before = rewind_to(vdi, first);
    CU_ASSERT(holds(vdi, 0, 10, 0));
    fill(vdi, 3, 1, 2);
    OK(plx_vdi_close(vdi));
    vdi = open_vdi(0);
    CU_ASSERT(holds(vdi, 3, 1, 2));
    CU_ASSERT(held(before, 0, 10, 1));
    OK(plx_vdi_close(vdi));
    end_checked(false);
}

static struct {
    struct plx_request request;
    struct iovec iov;
    uint8_t bytes[BLOCK];
    bool done;
} requests[REQUESTS];
static struct plx_vdi *requested;
static unsigned submitted, ended_behind_barrier;

static void request_done(struct plx_request *request)
{
    *(bool *)request->owner = true;
    ended_behind_barrier += requested->barrier;
}

/* A write, a read and a snapshot in turn. */
static void submit_one(unsigned i)
{
    static const enum plx_request_op ops[] = {PLX_WRITE, PLX_READ, PLX_SNAPSHOT};

    memset(requests[i].bytes, 3, BLOCK);
    requests[i].iov = (struct iovec){requests[i].bytes, BLOCK};
    requests[i].done = false;
    requests[i].request = (struct plx_request){.op = ops[i % 3],
                                               .offset = (uint64_t)i * BLOCK,
                                               .length = BLOCK,
                                               .iov = &requests[i].iov,
                                               .iovcnt = 1,
                                               .done = request_done,
                                               .owner = &requests[i].done};
    plx_vdi_submit(requested, &requests[i].request);
}

static void submit_behind_barrier(struct plx_simenv *e)
{
    if (requested->barrier && submitted < REQUESTS)
        submit_one(submitted++);
}

/* What comes while the disk changes over waits, and finds it as it is then. */
static void test_requests_wait(void)
{
    uint64_t first, before;

    make_store(128 * MIB, MIB);
    requested = make_vdi(16 * MIB);
    fill(requested, 0, REQUESTS, 1);
    first = snapshot(requested);
    fill(requested, 0, REQUESTS, 2);
    submitted = ended_behind_barrier = 0;
    env.on_tick = submit_behind_barrier;
    before = rewind_to(requested, first);
    env.on_tick = NULL;
    CU_ASSERT_EQUAL(submitted, REQUESTS);
    CU_ASSERT_EQUAL(ended_behind_barrier, 0);
    for (unsigned i = 0; i < REQUESTS; i++) {
        while (!requests[i].done)
            if (!plx_store_tick(store))
                plx_store_wait(store);
        CU_ASSERT_EQUAL(requests[i].request.result, 0);
        if (requests[i].request.op == PLX_SNAPSHOT)
            CU_ASSERT(requests[i].request.seq > before);
        if (requests[i].request.op == PLX_READ)
            CU_ASSERT_EQUAL(requests[i].bytes[0], 1);
        CU_ASSERT(holds(requested, i, 1, requests[i].request.op == PLX_WRITE ? 3 : 1));
    }
    CU_ASSERT(held(before, 0, REQUESTS, 2));
    OK(plx_vdi_close(requested));
    end_checked(false);
}

/* All that nothing holds; returns where history begins then. */
static uint64_t let_all_go(struct plx_vdi *vdi)
{
    struct plx_thin thin = {.upto = UINT64_MAX};
    struct plx_thinned thinned;

    do {
        OK(plx_vdi_thin(vdi, &thin, &thinned, &fault));
    } while (thinned.upto > thin.after && (thin.after = thinned.upto) < UINT64_MAX);
    return thinned.oldest;
}

static void test_refusals(void)
{
    struct plx_vdi *vdi, *instant;
    uint64_t first, forgotten;

    make_store(128 * MIB, MIB);
    vdi = make_vdi(16 * MIB);
    fill(vdi, 0, 1, 1);
    first = snapshot(vdi);
    FAILS(INVALID, try_rewind(vdi, 0));
    FAILS(NOT_FOUND, try_rewind(vdi, first + 1));
    OK(plx_snapshot_open(store, 0, first, &instant, &fault));
    FAILS(READONLY, try_rewind(instant, first));
    plx_vdi_abandon(instant);
    fill(vdi, 0, 1, 2);
    for (unsigned i = 0; i < PLX_REWINDS_MAX; i++) {
        uint64_t before = rewind_to(vdi, first);

        CU_ASSERT(holds(vdi, 0, 1, 1));
        fill(vdi, 0, 1, (int)(3 + i));
        CU_ASSERT(held(before, 0, 1, i ? (int)(2 + i) : 2));
    }
    FAILS(INVALID, try_rewind(vdi, first));
    CU_ASSERT(strstr(fault.text, "clone") != NULL);
    CU_ASSERT(holds(vdi, 0, 1, 2 + (int)PLX_REWINDS_MAX));
    OK(plx_snapshot_open(store, 0, first, &instant, &fault));
    forgotten = let_all_go(vdi);
    CU_ASSERT(forgotten < first);
    plx_vdi_abandon(instant);
    CU_ASSERT(held(first, 0, 1, 1));
    OK(plx_vdi_close(vdi));
    vdi = open_vdi(0);
    CU_ASSERT(holds(vdi, 0, 1, 2 + (int)PLX_REWINDS_MAX));
    OK(plx_vdi_close(vdi));
    end_checked(false);
}

/* ---- No room ---- */

static struct {
    uint64_t addr[8192];
    size_t count;
} taken;

/* All that is free for metadata and comes without asking; apart: but for every other block, where
 * no segment of the log fits. */
static void take_room(bool apart)
{
    size_t kept = 0;

    taken.count = 0;
    while (plx_alloc_free_blocks(store, PLX_EXTENT_META)) {
        uint64_t addr, count;

        OK(plx_alloc_run(store, PLX_EXTENT_META, 1, NULL, &addr, &count));
        CU_ASSERT_FATAL(count == 1 && taken.count < 8192);
        taken.addr[taken.count++] = addr;
    }
    for (size_t i = 0; i < taken.count; i++)
        if (apart && i % 2)
            plx_alloc_free(store, taken.addr[i], 1);
        else
            taken.addr[kept++] = taken.addr[i];
    taken.count = kept;
}

static void give_room(void)
{
    while (taken.count)
        plx_alloc_free(store, taken.addr[--taken.count], 1);
}

static struct plx_vdi *crowded;

/* Whoever else is there takes it while the disk is changed over, and the log has to go on in
 * another segment. */
static void crowd(struct plx_simenv *e)
{
    if (!crowded->barrier || taken.count || crowded->map.is_frozen || crowded->map.active.count)
        return;
    plx_log_leave_segment(&crowded->log);
    take_room(true);
}

/* Without room for the tree, or for the log to say so, the disk stays what it is. */
static void test_no_room(void)
{
    uint64_t first;

    make_store(16 * MIB, MIB);
    crowded = make_vdi(8 * MIB);
    fill(crowded, 0, 100, 1);
    first = snapshot(crowded);
    fill(crowded, 50, 100, 2);
    registry.limit = registry.granted;
    take_room(false);
    for (unsigned i = 0; i < 40; i++) /* which the tree has room in, but nothing is left then */
        plx_alloc_free(store, taken.addr[--taken.count], 1);
    FAILS(NOSPACE, try_rewind(crowded, first));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "nothing has changed"));
    CU_ASSERT_EQUAL(crowded->map.gen, first);
    give_room();
    env.on_tick = crowd;
    FAILS(NOSPACE, try_rewind(crowded, first));
    env.on_tick = NULL;
    CU_ASSERT(taken.count > 0);
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "nothing has changed"));
    CU_ASSERT_EQUAL(crowded->record.rewinds, 0);
    CU_ASSERT(holds(crowded, 0, 50, 1));
    CU_ASSERT(holds(crowded, 50, 100, 2));
    give_room();
    registry.limit = 0;
    env.ns += 1000000000; /* it may be asked again */
    rewind_to(crowded, first);
    CU_ASSERT(holds(crowded, 0, 100, 1));
    CU_ASSERT(holds(crowded, 100, 50, 0));
    OK(plx_vdi_close(crowded));
    end_checked(false);
}

/* ---- History begins with a rewind ---- */

static struct plx_vdi_info info_of(const struct plx_vdi *vdi)
{
    struct plx_vdi_info info;

    plx_vdi_get_info(vdi, &info);
    return info;
}

/* How many blocks came back. */
static uint64_t collect(void)
{
    uint64_t blocks = 0;

    OK(plx_simenv_collect(&env, &blocks, &fault));
    return blocks;
}

/* In as many rounds as it takes. */
static void let_go_after(struct plx_vdi *vdi, uint64_t after, uint64_t upto)
{
    const struct plx_thin thin = {.after = after, .upto = upto};
    struct plx_thinned thinned;

    do {
        OK(plx_vdi_thin(vdi, &thin, &thinned, &fault));
    } while (thinned.snapshots);
}

static void let_go(struct plx_vdi *vdi, uint64_t upto)
{
    let_go_after(vdi, 0, upto);
}

/* To the same instant again and again: as long as any of it is held, so is it; then all goes at
 * once, and what is left of the abandoned times is garbage. */
static void test_begin_with_rewind(void)
{
    struct plx_vdi *vdi, *instant;
    uint64_t first, before, after;

    make_store(128 * MIB, MIB);
    vdi = make_vdi(16 * MIB);
    fill(vdi, 0, 50, 1);
    first = snapshot(vdi);
    for (int i = 0; i < 5; i++) {
        fill(vdi, (uint64_t)i, 20, 2 + i);
        fill(vdi, (uint64_t)(100 + i), 1, 2 + i);
        before = rewind_to(vdi, first);
        fill(vdi, 200, 1, i);
    }
    let_go(vdi, UINT64_MAX); /* RECLAIM-7: the newest snapshot is the one before the last rewind */
    CU_ASSERT_EQUAL(info_of(vdi).rewinds_held, 5);
    fill(vdi, 0, 5, 50);
    after = snapshot(vdi);
    fill(vdi, 5, 5, 60);
    OK(plx_snapshot_open(store, 0, first, &instant, &fault));
    let_go(vdi, after);
    CU_ASSERT_EQUAL(info_of(vdi).rewinds_held, 5);
    CU_ASSERT(holds(instant, 0, 50, 1));
    plx_vdi_abandon(instant);
    let_go(vdi, before - 1);
    CU_ASSERT_EQUAL(info_of(vdi).rewinds_held, 5);
    let_go_after(vdi, first, before); /* not all is asked for */
    CU_ASSERT_EQUAL(info_of(vdi).rewinds_held, 5);
    let_go(vdi, before);
    CU_ASSERT_EQUAL(info_of(vdi).rewinds_held, 0);
    CU_ASSERT_EQUAL(info_of(vdi).rewinds, 5);
    CU_ASSERT_EQUAL(info_of(vdi).forgotten, before);
    CU_ASSERT_EQUAL(plx_snapshot_open(store, 0, first, &instant, &fault), PLX_ERR_NOT_FOUND);
    for (unsigned round = 0; round < 2; round++) {
        CU_ASSERT(collect() > 0 || round);
        fill(vdi, 300, 200, 9); /* into what came free */
        CU_ASSERT(holds(vdi, 0, 5, 50));
        CU_ASSERT(holds(vdi, 5, 5, 60));
        CU_ASSERT(holds(vdi, 10, 40, 1));
        CU_ASSERT(holds(vdi, 100, 5, 0));
        CU_ASSERT(held(after, 0, 5, 50));
        CU_ASSERT(held(after, 5, 45, 1));
        OK(plx_vdi_close(vdi));
        vdi = open_vdi(0);
    }
    snapshot(vdi);
    let_go(vdi, after); /* what only that one had of the tree comes back by itself */
    CU_ASSERT(holds(vdi, 5, 5, 60));
    CU_ASSERT(holds(vdi, 10, 40, 1));
    OK(plx_vdi_close(vdi));
    end_checked(false);
}

/* A later rewind went to an instant before: history cannot begin in between. */
static void test_begin_with_later_rewind(void)
{
    struct plx_vdi *vdi;
    uint64_t first, second, middle, back;

    make_store(128 * MIB, MIB);
    vdi = make_vdi(16 * MIB);
    fill(vdi, 0, 50, 1);
    first = snapshot(vdi);
    fill(vdi, 0, 10, 2);
    second = rewind_to(vdi, first);
    fill(vdi, 10, 10, 3);
    middle = snapshot(vdi);
    fill(vdi, 20, 10, 4);
    back = rewind_to(vdi, second);
    fill(vdi, 30, 10, 5);
    snapshot(vdi);
    let_go(vdi, middle - 1);
    CU_ASSERT_EQUAL(info_of(vdi).rewinds_held, 2);
    CU_ASSERT(held(middle, 10, 10, 3));
    CU_ASSERT(held(second, 0, 10, 2));
    let_go(vdi, back);
    CU_ASSERT_EQUAL(info_of(vdi).rewinds_held, 0);
    collect();
    fill(vdi, 300, 200, 9);
    CU_ASSERT(holds(vdi, 0, 10, 2));
    CU_ASSERT(holds(vdi, 10, 20, 1));
    CU_ASSERT(holds(vdi, 30, 10, 5));
    CU_ASSERT(holds(vdi, 40, 10, 1));
    run(vdi, PLX_KEYFRAME, 0, 0); /* the extents' headers are durable with it */
    crash(vdi);
    OK(try_open_vdi(0, true, &vdi));
    CU_ASSERT(holds(vdi, 0, 10, 2));
    OK(plx_vdi_close(vdi));
    end_checked(true);
}

/* What follows the rewind is let go as ever: with a key frame before the first snapshot, too. */
static void test_go_on_from_rewind(void)
{
    struct plx_vdi *vdi;
    uint64_t first, before, seqs[4];

    make_store(128 * MIB, MIB);
    vdi = make_vdi(16 * MIB);
    fill(vdi, 0, 50, 1);
    first = snapshot(vdi);
    fill(vdi, 0, 50, 2);
    before = rewind_to(vdi, first);
    fill(vdi, 0, 10, 3);
    run(vdi, PLX_KEYFRAME, 0, 0);
    for (int i = 0; i < 4; i++) {
        fill(vdi, (uint64_t)(10 * i), 15, 4 + i);
        seqs[i] = snapshot(vdi);
        if (i == 2)
            run(vdi, PLX_KEYFRAME, 0, 0);
    }
    let_go(vdi, before);
    CU_ASSERT_EQUAL(info_of(vdi).rewinds_held, 0);
    collect();
    let_go(vdi, seqs[0]);
    let_go(vdi, seqs[1]);
    fill(vdi, 300, 200, 9);
    for (unsigned round = 0; round < 2; round++) {
        CU_ASSERT(held(seqs[2], 0, 10, 4));
        CU_ASSERT(held(seqs[2], 10, 10, 5));
        CU_ASSERT(held(seqs[2], 20, 15, 6));
        CU_ASSERT(held(seqs[2], 35, 15, 1));
        CU_ASSERT(holds(vdi, 30, 15, 7));
        CU_ASSERT(holds(vdi, 45, 5, 1));
        run(vdi, PLX_KEYFRAME, 0, 0);
        if (round)
            OK(plx_vdi_close(vdi));
        else
            crash(vdi);
        OK(try_open_vdi(0, true, &vdi));
    }
    collect();
    OK(plx_vdi_close(vdi));
    collect();
    end_checked(false);
}

/* As often as one likes, if history is let go; and nothing is left when all is. */
static void test_many_rewinds(void)
{
    struct plx_vdi *vdi;

    make_store(128 * MIB, MIB);
    vdi = make_vdi(16 * MIB);
    for (unsigned i = 0; i < 3 * PLX_REWINDS_MAX; i++) {
        uint64_t seq;

        fill(vdi, i % 64, 30, (int)i % 200);
        seq = snapshot(vdi);
        fill(vdi, i % 64, 30, 255);
        rewind_to(vdi, seq);
        CU_ASSERT(holds(vdi, i % 64, 30, (int)i % 200));
        if (i % 16 == 15) {
            let_go(vdi, UINT64_MAX);
            CU_ASSERT_EQUAL(info_of(vdi).rewinds_held, 1);
        }
    }
    CU_ASSERT_EQUAL(info_of(vdi).rewinds, 3 * PLX_REWINDS_MAX);
    OK(plx_vdi_close(vdi));
    OK(plx_vdi_delete(store, 0, false, &fault));
    collect();
    OK(plx_simenv_release_all(&env, &fault));
    for (uint64_t extent = 1; extent < registry.count; extent++) {
        struct plx_extent_info info;

        if (!registry.extents[extent].used)
            continue;
        OK(plx_store_extent_read(store, extent, &info, &fault));
        CU_ASSERT_EQUAL(info.used_blocks, info.header_blocks);
    }
    end_checked(false);
}

/* Snapshots from before what was rewound to go; the key frame that it was read through stays. */
static void test_forget(void)
{
    struct plx_vdi *vdi;
    uint64_t seqs[6], before, forgotten = 0;

    make_store(128 * MIB, MIB);
    vdi = make_vdi(16 * MIB);
    for (int i = 0; i < 6; i++) {
        fill(vdi, 0, 20, 10 + i);
        fill(vdi, (uint64_t)(100 + i), 1, 1);
        seqs[i] = snapshot(vdi);
        run(vdi, PLX_KEYFRAME, 0, 0);
    }
    before = rewind_to(vdi, seqs[4]);
    fill(vdi, 0, 10, 99);
    snapshot(vdi);
    run(vdi, PLX_KEYFRAME, 0, 0);
    forgotten = let_all_go(vdi);
    CU_ASSERT(forgotten > 0 && forgotten < seqs[4]);
    fill(vdi, 200, 100, 5); /* into what came free */
    CU_ASSERT(holds(vdi, 0, 10, 99));
    CU_ASSERT(holds(vdi, 10, 10, 14));
    CU_ASSERT(held(seqs[4], 0, 20, 14));
    CU_ASSERT(held(before, 0, 20, 15));
    CU_ASSERT(held(before, 105, 1, 1));
    OK(plx_vdi_close(vdi));
    end_checked(true);
}

static uint64_t io_of(const struct plx_counters *c)
{
    uint64_t sum = 0;

    for (unsigned kind = 0; kind < PLX_KINDS; kind++)
        sum += c->device_reads[kind] + c->device_writes[kind];
    return sum;
}

/* Cost follows what changed, not what the disk or the instant holds. */
static void test_io_count(void)
{
    struct plx_counters a, b;
    struct plx_vdi *vdi;
    uint64_t first;

    make_store(128 * MIB, MIB);
    vdi = make_vdi(64 * MIB);
    for (uint64_t at = 0; at < 8192; at += 512)
        fill(vdi, at, 512, 1);
    run(vdi, PLX_KEYFRAME, 0, 0);
    first = snapshot(vdi);
    fill(vdi, 0, 4, 2);
    plx_store_counters(store, &a);
    rewind_to(vdi, first);
    plx_store_counters(store, &b);
    CU_ASSERT(io_of(&b) - io_of(&a) < 60);
    CU_ASSERT(b.device_reads[PLX_KIND_DATA] == a.device_reads[PLX_KIND_DATA]);
    CU_ASSERT(b.device_writes[PLX_KIND_DATA] == a.device_writes[PLX_KIND_DATA]);
    CU_ASSERT(b.device_writes[PLX_KIND_NODE] - a.device_writes[PLX_KIND_NODE] < 12);
    OK(plx_vdi_close(vdi));
    end_checked(false);
}

struct seen {
    unsigned count;
    uint64_t from, to, label_seq;
    bool unknown;
};

static bool count_range(void *context, const struct plx_diff_range *range)
{
    ((struct seen *)context)->count++;
    return true;
}

static bool note_change(void *context, const struct plx_range_change *change)
{
    struct seen *seen = context;

    seen->count++;
    seen->from = change->from.seq;
    seen->to = change->to.seq;
    return false;
}

static void note_label(void *context, const char *label, uint64_t seq, bool removed)
{
    struct seen *seen = context;

    if (!strcmp(label, "before-it") && !removed)
        seen->label_seq = seq;
}

/* Labels, differences and changes know of it. */
static void test_history(void)
{
    struct plx_rewind_options options = {.label = "before-it"};
    struct plx_snapshot_info before = {0};
    struct plx_vdi *vdi, *from, *to;
    struct plx_vdi_info info;
    struct seen seen = {0};
    uint64_t after;

    make_store(128 * MIB, MIB);
    vdi = make_vdi(16 * MIB);
    fill(vdi, 0, 10, 1);
    options.seq = snapshot(vdi);
    fill(vdi, 5, 10, 2);
    OK(plx_vdi_rewind(vdi, &options, &before, &fault));
    plx_vdi_get_info(vdi, &info);
    CU_ASSERT_EQUAL(info.rewinds, 1);
    after = snapshot(vdi); /* what changed is that it was rewound */
    CU_ASSERT_EQUAL(after, before.seq + 1);
    OK(plx_label_list(store, 0, 0, note_label, &seen, &fault));
    CU_ASSERT_EQUAL(seen.label_seq, before.seq);
    OK(plx_snapshot_open(store, 0, options.seq, &from, &fault));
    OK(plx_snapshot_open(store, 0, after, &to, &fault));
    OK(plx_vdi_diff(from, to, count_range, &seen, &fault));
    CU_ASSERT_EQUAL(seen.count, 0);
    plx_vdi_abandon(from);
    OK(plx_snapshot_open(store, 0, before.seq, &from, &fault));
    OK(plx_vdi_diff(from, to, count_range, &seen, &fault));
    CU_ASSERT(seen.count > 0);
    plx_vdi_abandon(from);
    plx_vdi_abandon(to);
    seen.count = 0;
    OK(plx_range_change_list(store, 0, 12, 1, note_change, &seen, &fault));
    CU_ASSERT_EQUAL(seen.count, 1);
    CU_ASSERT_EQUAL(seen.from, before.seq);
    CU_ASSERT_EQUAL(seen.to, after);
    OK(plx_vdi_close(vdi));
    end_checked(false);
}

/* Where every batch is an instant the rewound state is one, without a write. */
static void test_protected(void)
{
    struct plx_protection batch = {.mode = PLX_PROTECT_BATCH};
    struct plx_vdi_info info;
    struct plx_vdi *vdi;
    uint64_t first, before;

    make_store(128 * MIB, MIB);
    vdi = make_vdi(16 * MIB);
    OK(plx_vdi_set_protection(vdi, &batch, &fault));
    fill(vdi, 0, 10, 1);
    plx_vdi_get_info(vdi, &info);
    first = info.snapshots;
    fill(vdi, 0, 10, 2);
    before = rewind_to(vdi, first);
    plx_vdi_get_info(vdi, &info);
    CU_ASSERT_EQUAL(info.snapshots, before + 1);
    CU_ASSERT(held(before, 0, 10, 2));
    CU_ASSERT(held(before + 1, 0, 10, 1));
    OK(plx_vdi_close(vdi));
    end_checked(false);
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"forth and back", test_forth_and_back},
        {"crashes", test_crash},
        {"a clone of the state before", test_clone},
        {"a disk that grew", test_grown},
        {"an empty instant", test_empty},
        {"requests wait", test_requests_wait},
        {"refusals", test_refusals},
        {"no room", test_no_room},
        {"history begins with a rewind", test_begin_with_rewind},
        {"history begins with a later rewind", test_begin_with_later_rewind},
        {"history goes on from a rewind", test_go_on_from_rewind},
        {"many rewinds", test_many_rewinds},
        {"letting go", test_forget},
        {"device I/O", test_io_count},
        {"labels, differences, changes", test_history},
        {"protected", test_protected},
    };

    fixture.open.ops_per_vdi = 4;
    return SUITE_RUN("rewind", tests);
}
