/* test_log.c - the log at its edges: a device with larger blocks than the one it was begun on, a
 * flush that fails beside a write that waits for none, a segment that is begun in vain, a log that
 * ends with its disk, a key frame without blocks, a snapshot beside a key frame, a batch that is
 * full.
 */
#include <stdio.h>
#include <string.h>

#include "engine/disk/vdi.h" /* to see where the log stands, and to leave no room for it */
#include "engine/space/allocator_inside.h"
#include "fault/alloc.h"
#include "fault/faultdev.h"
#include "ok.h"
#include "suite.h"
#include "unit/fixture.h"

#define SEGMENT (16u << 10)

static struct fault_plan plan;

static struct plx_device *attach_planned(void)
{
    return fault_device_attach(disk, &plan);
}

/* ---- Larger blocks ---- */

static void move_to_blocks_of(uint32_t bytes)
{
    struct plx_simdisk_options options = fixture.disk;
    struct plx_simdisk *larger;

    options.block_size = bytes;
    larger = plx_simdisk_new(&options, &power);
    plx_simdisk_copy(larger, disk);
    plx_simdisk_free(disk);
    disk = larger;
}

/* Where the log goes on a batch cannot begin any more: it goes on in the next segment. */
static void test_larger_blocks(void)
{
    unsigned unaligned = 0;

    for (unsigned writes = 1; writes <= 9; writes++) {
        struct plx_vdi *vdi;
        uint64_t seq;

        vdi = make_with_vdi(32 * MIB, MIB, 16 * MIB);
        for (unsigned i = 0; i < writes; i++)
            OK(write_byte(vdi, (uint64_t)i * BLOCK, BLOCK, 1));
        run(vdi, PLX_SNAPSHOT, 0, 0); /* or the log would begin afresh */
        OK(plx_vdi_close(vdi));
        leave_store();
        move_to_blocks_of(4096);
        open_store(2);
        vdi = open_vdi(0);
        unaligned += vdi->record.keyframe.pos % 4096 != 0;
        OK(write_byte(vdi, 512, 512, 2));
        seq = run(vdi, PLX_SNAPSHOT, 0, 0);
        OK(write_byte(vdi, 0, BLOCK, 3));
        crash_store();
        OK(try_open_vdi(0, true, &vdi));
        CU_ASSERT(reads_as(vdi, 0, BLOCK, 3));
        CU_ASSERT_EQUAL(vdi->map.gen, seq);
        OK(plx_vdi_close(vdi));
        OK(plx_snapshot_open(store, 0, seq, &vdi, &fault));
        CU_ASSERT(reads_as(vdi, 512, 512, 2));
        CU_ASSERT(reads_as(vdi, 1024, (uint64_t)writes * BLOCK - 1024, 1));
        plx_vdi_abandon(vdi);
        check_store(true);
        end_store();
    }
    CU_ASSERT(unaligned > 0);
}

/* ---- A flush that fails ---- */

/* Requests to v0, each submitted in a turn of the loop of its own. */
struct planned {
    unsigned at; /* 0: never */
    enum plx_request_op op;
    uint64_t offset;
    bool fua, write_through; /* from now on */
};

static struct {
    struct plx_vdi *vdi, *neighbour;
    const struct planned *planned;
    unsigned turns, submitted;
    struct plx_request request[3];
    bool done[3], done_before_flush[3];
} beside;

static uint8_t sevens[BLOCK];

static void beside_done(struct plx_request *request)
{
    beside.done[request - beside.request] = true;
}

static void submit_beside(struct plx_simenv *e)
{
    static struct iovec iov = {sevens, BLOCK};

    beside.turns++;
    for (unsigned i = 0; i < 3; i++) {
        const struct planned *p = &beside.planned[i];

        if (p->at != beside.turns)
            continue;
        if (p->write_through)
            plx_vdi_set_write_back(beside.vdi, false);
        if (p->op == PLX_FLUSH)
            memcpy(beside.done_before_flush, beside.done, sizeof beside.done);
        beside.request[i] = (struct plx_request){.op = p->op,
                                                 .offset = p->offset,
                                                 .length = p->op == PLX_WRITE ? BLOCK : 0,
                                                 .iov = &iov,
                                                 .iovcnt = p->op == PLX_WRITE,
                                                 .fua = p->fua,
                                                 .done = beside_done};
        beside.submitted++;
        plx_vdi_submit(beside.vdi, &beside.request[i]);
    }
}

/* Two disks; v0 writes back, and what was written is flushed. From now on there is the plan. */
static void begin_beside(const struct planned *planned)
{
    memset(sevens, 7, BLOCK);
    make_store(32 * MIB, MIB);
    OK(create_vdi(0, 16 * MIB));
    OK(create_vdi(1, 16 * MIB));
    memset(&beside, 0, sizeof beside);
    beside.vdi = open_vdi(0);
    beside.neighbour = open_vdi(1);
    OK(write_byte(beside.neighbour, 0, BLOCK, 5));
    plx_vdi_set_write_back(beside.vdi, true);
    OK(write_byte(beside.vdi, 0, BLOCK, 6));
    run(beside.vdi, PLX_FLUSH, 0, 0);
    beside.planned = planned;
    env.on_tick = submit_beside;
}

static void wait_beside(void)
{
    for (unsigned i = 0; i < 3; i++)
        while (beside.request[i].done && !beside.done[i])
            if (!plx_store_tick(store))
                plx_store_wait(store);
    env.on_tick = NULL;
}

/* The neighbour's flush fails, and takes some of what was not durable with it. */
static void fail_flush(void)
{
    fault_plan_arm(&plan, FAULT_IO_DROP, 1);
    FAILS(STICKY, write_byte(beside.neighbour, MIB, BLOCK, 5));
    CU_ASSERT(fault_plan_heal(&plan));
}

/* Whether v0's flush says that all is durable; if not, it has stopped, and said so. */
static bool flushes(void)
{
    if (try_run(beside.vdi, PLX_FLUSH, 0, 0, NULL) == 0)
        return true;
    FAILS(STICKY, plx_vdi_health(beside.vdi, &fault));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "v0"));
    CU_ASSERT_EQUAL(plx_simenv_heard(&env, "v0: its log cannot be written"), 1);
    return false;
}

static void end_beside(const bool *promised)
{
    crash_store();
    OK(try_open_vdi(0, true, &beside.vdi));
    CU_ASSERT(reads_as(beside.vdi, 0, BLOCK, 6));
    for (unsigned i = 0; i < 3; i++)
        CU_ASSERT(!promised[i] || reads_as(beside.vdi, beside.planned[i].offset, BLOCK, 7));
    OK(plx_vdi_close(beside.vdi));
    end_store();
}

/* A disk that writes back learns of it before it builds on what may be gone: either its own flush
 * fails, too, or all that it wrote is there. */
static void test_flush_fails_beside(void)
{
    struct planned planned[3] = {{.op = PLX_WRITE, .offset = MIB}};
    unsigned stopped = 0;

    do {
        bool durable;

        planned[0].at++;
        begin_beside(planned);
        fail_flush();
        wait_beside();
        durable = flushes();
        stopped += !durable;
        end_beside(&(bool[3]){durable && beside.submitted}[0]);
    } while (beside.submitted);
    CU_ASSERT(stopped > 0);
}

/* It was told when it stopped: closing it says nothing more. */
static void test_stopped_closes(void)
{
    struct planned none[3] = {0};
    uint64_t told;

    begin_beside(none);
    wait_beside();
    fail_flush();
    CU_ASSERT_EQUAL(plx_simenv_heard(&env, "v1: its log cannot be written"), 1);
    told = env.event_count;
    FAILS(STICKY, plx_vdi_close(beside.neighbour));
    CU_ASSERT_EQUAL(env.event_count, told);
    end_beside(&(bool[3]){false}[0]);
}

/* It writes through from some moment on, while what it wrote back is under way: a write that has to
 * be durable, another one behind it, then the change and a flush. */
static void test_write_back_ends(void)
{
    struct planned planned[3] = {{.at = 1, .op = PLX_WRITE, .offset = MIB, .fua = true},
                                 {.op = PLX_WRITE, .offset = 2 * MIB},
                                 {.op = PLX_FLUSH, .write_through = true}};

    for (planned[1].at = 1; planned[1].at < 20; planned[1].at++)
        for (planned[2].at = planned[1].at; planned[2].at < 24; planned[2].at++) {
            bool promised[3] = {true};

            begin_beside(planned);
            while (beside.submitted < 3)
                plx_store_tick(store);
            wait_beside();
            for (unsigned i = 0; i < 3; i++)
                OK(beside.request[i].result);
            fail_flush();
            promised[1] = flushes() || beside.done_before_flush[1];
            end_beside(promised);
        }
}

static unsigned told[PLX_AUTOMATIC_DROPPED + 1];

static void count_told(struct plx_simenv *e, uint32_t slot, enum plx_automatic what, uint64_t seq,
                       uint64_t time_ns)
{
    told[what]++;
}

/* The snapshot of a write that waits for no flush is there, and nobody is told that it is durable:
 * but of the next one whose write waits for that. */
static void test_write_back_snapshots(void)
{
    struct plx_protection each = {.mode = PLX_PROTECT_WRITE};
    struct iovec iov = {buffer, BLOCK};
    struct plx_request durable = {
        .op = PLX_WRITE, .length = BLOCK, .iov = &iov, .iovcnt = 1, .fua = true};
    struct plx_vdi *vdi;

    vdi = make_with_vdi(32 * MIB, MIB, 16 * MIB);
    OK(plx_vdi_set_protection(vdi, &each, &fault));
    plx_vdi_set_write_back(vdi, true);
    memset(told, 0, sizeof told);
    env.on_automatic = count_told;
    OK(write_byte(vdi, 0, BLOCK, 1));
    CU_ASSERT_EQUAL(vdi->map.gen, 2); /* the first one was that of setting it */
    CU_ASSERT(told[PLX_AUTOMATIC_ORDERED] == 1 && told[PLX_AUTOMATIC_TAKEN] == 0);
    OK(plx_vdi_run(vdi, &durable));
    CU_ASSERT_EQUAL(vdi->map.gen, 3);
    CU_ASSERT(told[PLX_AUTOMATIC_ORDERED] == 2 && told[PLX_AUTOMATIC_TAKEN] == 1);
    OK(plx_vdi_close(vdi));
    check_store(false);
    end_store();
}

/* ---- A segment that is begun in vain ---- */

static void count_done(struct plx_request *request)
{
    ++*(unsigned *)request->owner;
}

/* Several labels that wait for the same segment: none of them is left behind. */
static void fail_together(struct plx_vdi *vdi, uint64_t seq)
{
    struct plx_request requests[3];
    unsigned done = 0;

    for (unsigned i = 0; i < 3; i++) {
        requests[i] = (struct plx_request){.op = PLX_LABEL, .seq = seq, .label = "together"};
        requests[i].done = count_done;
        requests[i].owner = &done;
        plx_vdi_submit(vdi, &requests[i]);
    }
    for (unsigned turns = 0; done < 3 && turns < 100; turns++)
        plx_store_tick(store);
    CU_ASSERT_EQUAL_FATAL(done, 3);
    for (unsigned i = 0; i < 3; i++)
        CU_ASSERT_EQUAL(requests[i].result, PLX_ERR_NOSPACE);
}

static int try_label(struct plx_vdi *vdi, uint64_t seq)
{
    struct plx_request request = {.op = PLX_LABEL, .seq = seq, .label = "here"};

    return plx_vdi_run(vdi, &request);
}

/* Returns where the log stands then. */
static uint64_t label(struct plx_vdi *vdi, uint64_t seq)
{
    OK(try_label(vdi, seq));
    return vdi->log.cursor.pos;
}

/* The batch that begins a segment fails when there is no further one: the segment is used again
 * (log.c, roll_back), by this log. */
static void test_begun_in_vain(void)
{
    uint64_t seq, segment;
    struct plx_vdi *vdi;

    vdi = make_with_vdi(32 * MIB, MIB, 16 * MIB);
    OK(write_byte(vdi, 0, BLOCK, 1));
    seq = run(vdi, PLX_SNAPSHOT, 0, 0);
    while (SEGMENT - label(vdi, seq) % SEGMENT > 512)
        ;
    segment = vdi->log.cursor.pos / SEGMENT;
    eat_segments();
    fault_plan_arm(&plan, FAULT_IO_ONCE, 1);
    label(vdi, seq); /* is written again */
    CU_ASSERT(fault_plan_heal(&plan));
    CU_ASSERT_EQUAL(vdi->log.cursor.pos / SEGMENT, segment + 1);
    while (SEGMENT - label(vdi, seq) % SEGMENT > 512)
        ;
    FAILS(NOSPACE, try_label(vdi, seq)); /* there was but that one */
    fail_together(vdi, seq);
    give_segments_back();
    label(vdi, seq);
    OK(write_byte(vdi, 0, BLOCK, 2));
    CU_ASSERT_EQUAL(run(vdi, PLX_SNAPSHOT, 0, 0), seq + 1);
    crash_store();
    OK(try_open_vdi(0, true, &vdi));
    CU_ASSERT(reads_as(vdi, 0, BLOCK, 2));
    OK(plx_vdi_close(vdi));
    OK(plx_snapshot_open(store, 0, seq, &vdi, &fault));
    CU_ASSERT(reads_as(vdi, 0, BLOCK, 1));
    plx_vdi_abandon(vdi);
    check_store(true);
    end_store();
}

/* There is no memory to note one more segment: what needs no log goes on, and what does later. */
static void test_no_memory_for_segments(void)
{
    struct plx_vdi_open_options copying = {.epoch = 1, .overwrite = PLX_OVERWRITE_COPY};
    struct plx_vdi *vdi;
    uint64_t failed;
    int error = 0;

    make_store(64 * MIB, MIB);
    OK(create_vdi(0, MIB));
    OK(plx_vdi_open(store, &copying, &vdi, &fault));
    OK(write_byte(vdi, 0, BLOCK, 1)); /* has what the map needs, too */
    for (unsigned i = 0; !error && i < 1000; i++) {
        fault_alloc_arm(1, false);
        error = write_byte(vdi, 0, BLOCK, 2);
        fault_alloc_disarm(&failed);
    }
    CU_ASSERT_EQUAL(error, PLX_ERR_NOMEM);
    CU_ASSERT_EQUAL(plx_vdi_health(vdi, NULL), 0);
    CU_ASSERT(reads_as(vdi, 0, BLOCK, 2));
    OK(write_byte(vdi, 0, BLOCK, 3));
    CU_ASSERT(reads_as(vdi, 0, BLOCK, 3));
    OK(plx_vdi_close(vdi));
    check_store(true); /* blocks that died when there was no memory */
    end_store();
}

/* ---- A log that ends with its disk ---- */

static struct {
    struct plx_vdi *vdi;
    struct plx_request grow;
    uint64_t generation; /* of the record before the last key frame */
    bool submitted, done;
} late;

static void late_done(struct plx_request *request)
{
    late.done = true;
}

static int try_grow(struct plx_vdi *vdi, struct plx_request *grow)
{
    *grow = (struct plx_request){.op = PLX_RESIZE, .length = late.grow.length + 512};
    return plx_vdi_run(vdi, grow);
}

/* As the last key frame begins somebody grows the disk. The log has no room for that before the
 * key frame is written; and when it is in the log the power fails. */
static void grow_late(struct plx_simenv *e)
{
    struct plx_vdi *vdi = late.vdi;

    if (late.done) {
        if (!power.off)
            plx_simpower_cut(&power);
        return;
    }
    if (!late.submitted && vdi->keyframe.quiet && vdi->keyframe.wanted) {
        late.submitted = true;
        late.generation = vdi->record.generation;
        late.grow.length += 512;
        late.grow.done = late_done;
        plx_vdi_submit(vdi, &late.grow);
    }
    if (vdi->record.generation == late.generation)
        e->delay[PLX_EXTENT_META] = 2;
}

/* keyframe.c, drop_log(): the log of a disk without snapshots goes with the last key frame, but not
 * while something waits to be logged. */
static void test_late_item(void)
{
    struct plx_vdi_info info;
    struct plx_vdi *vdi;

    memset(&late, 0, sizeof late);
    late.grow.length = 16 * MIB;
    vdi = late.vdi = make_with_vdi(32 * MIB, MIB, 16 * MIB);
    eat_segments();
    while (try_grow(vdi, &late.grow) == 0)
        ;
    CU_ASSERT_EQUAL(late.grow.result, PLX_ERR_NOSPACE);
    for (unsigned i = 0; i < 16; i++) /* for the key frame; no segment */
        plx_alloc_free(store, eaten[i], 1);
    registry.limit = 0;
    env.ns += 5000000000u;
    env.grant_later = true;
    env.on_tick = grow_late;
    CU_ASSERT_NOT_EQUAL(plx_vdi_close(vdi), 0);
    env.on_tick = NULL;
    env.grant_later = false;
    CU_ASSERT_FATAL(late.done);
    OK(late.grow.result);
    crash_store();
    OK(try_open_vdi(0, true, &vdi));
    plx_vdi_get_info(vdi, &info);
    CU_ASSERT_EQUAL(info.size_bytes, late.grow.length);
    OK(plx_vdi_close(vdi));
    check_store(true);
    end_store();
}

/* ---- A key frame that finds no blocks ---- */

/* Of the blocks for its nodes there are some, and then none: it fails, and what it had begun with
 * is neither lost nor used. Later it is written. */
static void test_keyframe_without_blocks(void)
{
    uint64_t count;
    struct plx_vdi *vdi;

    vdi = make_with_vdi(32 * MIB, MIB, 64 * MIB);
    for (unsigned i = 0; i < 16; i++)
        OK(write_byte(vdi, i * 2 * MIB, BLOCK, (int)i + 1));
    registry.limit = registry.granted;
    eaten_count = 0;
    while (plx_alloc_run(store, PLX_EXTENT_META, 1, NULL, &eaten[eaten_count], &count) == 0)
        eaten_count++;
    for (unsigned i = 0; i < 3; i++) { /* not next to each other */
        plx_alloc_free(store, eaten[2 * i], 1);
        eaten[2 * i] = eaten[--eaten_count];
    }
    FAILS(NOSPACE, try_run(vdi, PLX_KEYFRAME, 0, 0, NULL));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "v0"));
    CU_ASSERT_EQUAL(plx_vdi_health(vdi, NULL), 0);
    for (unsigned i = 0; i < 16; i++)
        CU_ASSERT(reads_as(vdi, i * 2 * MIB, BLOCK, (int)i + 1));
    registry.limit = 0;
    while (eaten_count)
        plx_alloc_free(store, eaten[--eaten_count], 1);
    env.ns += 5000000000u;
    run(vdi, PLX_KEYFRAME, 0, 0);
    OK(plx_vdi_close(vdi));
    check_store(false);
    end_store();
}

/* ---- A snapshot beside a key frame ---- */

#define LEAVES 16u

static void write_leaves(struct plx_vdi *vdi, unsigned block, int byte)
{
    for (unsigned i = 0; i < LEAVES; i++)
        OK(write_byte(vdi, i * 2 * MIB + block * BLOCK, BLOCK, byte));
}

static bool leaves_are(struct plx_vdi *vdi, unsigned block, int byte)
{
    for (unsigned i = 0; i < LEAVES; i++)
        if (!reads_as(vdi, i * 2 * MIB + block * BLOCK, BLOCK, byte))
            return false;
    return true;
}

/* As many key frames as it takes until blocks that were given back are used again, for there are
 * not many others, and what the cache has of them is gone. */
static void churn(struct plx_vdi *vdi)
{
    registry.limit = registry.granted;
    for (unsigned round = 0; round < 150; round++) {
        write_leaves(vdi, 2, (int)round + 1);
        run(vdi, PLX_KEYFRAME, 0, 0);
    }
}

static void snapshot_done(struct plx_request *request)
{
    *(bool *)request->owner = true;
}

/* KEYFRAME-3: the first snapshot of all, taken so many turns after a key frame has begun, and
 * opened as soon as it is there. Who has it open reads on whatever becomes of the key frame that it
 * was found through; it is found again. */
static void snapshot_beside(unsigned turns, enum plx_protection_mode mode)
{
    bool done = false;
    struct plx_request snapshot = {.op = PLX_SNAPSHOT, .done = snapshot_done, .owner = &done};
    struct plx_vdi *vdi, *instant, *again;

    vdi = make_with_vdi(64 * MIB, MIB, 64 * MIB);
    write_leaves(vdi, 0, 1);
    run(vdi, PLX_KEYFRAME, 0, 0);
    write_leaves(vdi, 1, 2);
    vdi->log.snapshots = mode;
    plx_keyframe_request(vdi, NULL);
    while (turns-- > 0)
        plx_store_tick(store);
    if (mode == PLX_PROTECT_OFF) {
        plx_vdi_submit(vdi, &snapshot);
        plx_store_run_until_true(store, &done);
        OK(snapshot.result);
    } else {
        OK(write_byte(vdi, 3 * BLOCK, BLOCK, 3)); /* and a snapshot with it */
        snapshot.seq = 1;
    }
    vdi->log.snapshots = PLX_PROTECT_OFF;
    OK(plx_snapshot_open(store, 0, snapshot.seq, &instant, &fault));
    while (vdi->keyframe.running)
        if (!plx_store_tick(store))
            plx_store_wait(store);
    churn(vdi);
    OK(plx_snapshot_open(store, 0, snapshot.seq, &again, &fault));
    CU_ASSERT(leaves_are(instant, 0, 1) && leaves_are(instant, 1, 2) && leaves_are(instant, 2, 0));
    CU_ASSERT(leaves_are(again, 0, 1) && leaves_are(again, 1, 2) && leaves_are(again, 2, 0));
    CU_ASSERT(mode == PLX_PROTECT_OFF || reads_as(instant, 3 * BLOCK, BLOCK, 3));
    OK(plx_vdi_close(instant));
    OK(plx_vdi_close(again));
    OK(plx_vdi_close(vdi));
    check_store(false);
    end_store();
}

static void test_snapshot_beside_keyframe(void)
{
    struct fixture before = fixture;

    fixture.open.cache_bytes = 64u << 10; /* what is not there any more is not read from it */
    fixture.disk.stalls = 30;
    for (unsigned i = 0; i < 20; i++) {
        fixture.disk.patience = 20 * (i % 5);
        fixture.disk.seed = i;
        snapshot_beside(i % 8, PLX_PROTECT_OFF);
        snapshot_beside(i % 8, PLX_PROTECT_WRITE);
    }
    fixture = before;
}

/* ---- A snapshot that is taken back ---- */

static struct plx_vdi *failing;
static struct plx_log_item *slow; /* of a write, one of whose transfers fails late */
static uint64_t flipped_from;     /* root of the key frame before */

static void fail_after_flip(struct plx_simenv *e)
{
    if (!slow || failing->record.keyframe.root == flipped_from)
        return;
    plx_log_data_done(&failing->log, slow, PLX_ERR_IO_WRITE);
    slow = NULL;
}

static bool is_allocated(uint64_t addr)
{
    const struct plx_extent *extent = plx_extent_find(store, addr / store->info.extent_blocks);

    return extent->bits[(addr - extent->base) / 64] >> (addr - extent->base) % 64 & 1;
}

/* A write fails whose batch has a snapshot, too: the snapshot is logged again, now behind the
 * announcement of a key frame whose record says that history begins before it. So it does. */
static void test_taken_back(void)
{
    static struct plx_request write, snapshot, keyframe;
    struct plx_thin thin = {.upto = 2};
    struct plx_thinned thinned;
    struct iovec iov = {buffer, BLOCK};
    unsigned done = 0;

    failing = make_with_vdi(64 * MIB, MIB, 64 * MIB);
    write_leaves(failing, 0, 1);
    run(failing, PLX_KEYFRAME, 0, 0);
    write_leaves(failing, 1, 2);
    flipped_from = failing->record.keyframe.root;
    memset(buffer, 3, BLOCK);
    write = (struct plx_request){.op = PLX_WRITE, .offset = 2 * BLOCK, .length = BLOCK};
    write.iov = &iov;
    write.iovcnt = 1;
    snapshot = (struct plx_request){.op = PLX_SNAPSHOT};
    keyframe = (struct plx_request){.op = PLX_KEYFRAME};
    write.done = snapshot.done = keyframe.done = count_done;
    write.owner = snapshot.owner = keyframe.owner = &done;
    env.on_tick = fail_after_flip;
    plx_vdi_submit(failing, &write);
    slow = failing->log.tail;
    slow->data_pending++;
    plx_vdi_submit(failing, &snapshot);
    plx_vdi_submit(failing, &keyframe);
    while (done < 3)
        if (!plx_store_tick(store))
            plx_store_wait(store);
    env.on_tick = NULL;
    CU_ASSERT_EQUAL(write.result, PLX_ERR_IO_WRITE);
    OK(snapshot.result);
    OK(keyframe.result);
    CU_ASSERT(failing->record.keyframe.root != flipped_from);
    CU_ASSERT(is_allocated(plx_entry_addr(failing->record.oldest.root)));
    for (unsigned i = 0; i < 3; i++) {
        write_leaves(failing, 3 + i, 4);
        run(failing, PLX_SNAPSHOT, 0, 0);
        run(failing, PLX_KEYFRAME, 0, 0);
    }
    OK(plx_vdi_thin(failing, &thin, &thinned, &fault));
    OK(plx_vdi_close(failing));
    check_store(true);
    end_store();
}

/* ---- A batch that is full ---- */

#define LABELS 200u

/* Behind the last change come as many records as fit, and then the batch's own snapshot. */
static void test_full_batch(void)
{
    static struct plx_request labels[LABELS];
    struct plx_vdi *vdi;

    vdi = make_with_vdi(32 * MIB, MIB, 16 * MIB);
    run(vdi, PLX_SNAPSHOT, 0, 0);
    vdi->log.snapshots = PLX_PROTECT_BATCH;
    for (unsigned round = 0; round < 32; round++) {
        struct iovec iov = {buffer, BLOCK};
        unsigned done = 0;
        struct plx_request write = {.op = PLX_WRITE,
                                    .offset = round * BLOCK,
                                    .length = BLOCK,
                                    .iov = &iov,
                                    .iovcnt = 1,
                                    .done = count_done,
                                    .owner = &done};

        memset(buffer, 1, BLOCK);
        plx_vdi_submit(vdi, &write);
        for (unsigned i = 0; i < LABELS; i++) {
            labels[i] =
                (struct plx_request){.op = PLX_LABEL, .seq = 1, .done = count_done, .owner = &done};
            snprintf(labels[i].label, sizeof labels[i].label, "%0*u", (int)(4 + (i + round) % 56),
                     i);
            plx_vdi_submit(vdi, &labels[i]);
        }
        while (done < LABELS + 1)
            if (!plx_store_tick(store))
                plx_store_wait(store);
        OK(write.result);
    }
    OK(plx_vdi_close(vdi));
    check_store(false);
    end_store();
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"a device of larger blocks", test_larger_blocks},
        {"a flush that fails beside", test_flush_fails_beside},
        {"a disk that has stopped is closed", test_stopped_closes},
        {"writing back ends", test_write_back_ends},
        {"snapshots that are written back", test_write_back_snapshots},
        {"a segment that is begun in vain", test_begun_in_vain},
        {"no memory to note a segment", test_no_memory_for_segments},
        {"an item behind the last key frame", test_late_item},
        {"a key frame that finds no blocks", test_keyframe_without_blocks},
        {"a snapshot beside a key frame", test_snapshot_beside_keyframe},
        {"a snapshot that is taken back", test_taken_back},
        {"a full batch", test_full_batch},
    };

    fixture.format.segment_bytes = SEGMENT;
    fixture.attach = attach_planned;
    return SUITE_RUN("log", tests);
}
