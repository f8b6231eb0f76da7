/* test_thin_beside.c - who reads, lists, labels, writes or comes while snapshots are let go. */
#include <stdio.h>
#include <string.h>

#include "ok.h"
#include "suite.h"
#include "unit/thinning.h"

/* ---- Readers in another process ---- */

static struct {
    struct plx_vdi *instant;
    uint64_t seq;
    unsigned turns, reads, openings;
    bool wrong;
} other;

static void read_beside(struct plx_simenv *e)
{
    unsigned place = other.turns % PLACES;
    struct plx_vdi *again;

    if (other.turns++ % 2 == 0) {
        other.reads++;
        other.wrong |= !place_is(other.instant, place, model.then[other.seq][place]);
    }
    if (other.turns % 11)
        return;
    other.openings++;
    if (plx_snapshot_open(reader, 0, other.seq, &again, &fault)) {
        printf("\n  opened beside: %s\n", fault.text);
        other.wrong = true;
        return;
    }
    other.wrong |= !place_is(again, place, model.then[other.seq][place]);
    plx_vdi_abandon(again);
}

/* What somebody else reads stays whole, and can be opened again, at every turn of the loop while
 * all around it goes and what came free is written over. */
static void test_reader_elsewhere(void)
{
    uint64_t between_all[20], upto;
    size_t count;

    make_disk();
    count = write_history(20, between_all);
    memset(&other, 0, sizeof other);
    other.seq = between_all[count / 2];
    OK(plx_snapshot_open(reader, 0, other.seq, &other.instant, &fault));
    env.on_tick = read_beside;
    for (upto = 4; upto <= model.newest; upto += 4) {
        let_go(0, upto, &other.seq, 1);
        write_places(20);
        keyframe();
    }
    env.on_tick = NULL;
    CU_ASSERT(other.reads > 500 && other.openings > 50);
    CU_ASSERT(!other.wrong);
    CU_ASSERT(holds(other.instant, model.then[other.seq]));
    plx_vdi_abandon(other.instant);
    expect_no_snapshot(other.seq - 1);
    expect_no_snapshot(other.seq + 1);
    end_disk(false);
}

/* ---- Somebody comes meanwhile (RECLAIM-5) ---- */

#define WANTED 5u /* by who comes; it was to go */

static struct plx_vdi *came;

static void label_meanwhile(void)
{
    struct plx_request request = {.op = PLX_LABEL, .seq = WANTED, .label = "kept"};

    OK(plx_vdi_run(vdi, &request));
}

static void open_meanwhile(void)
{
    OK(plx_snapshot_open(store, 0, WANTED, &came, &fault));
}

static void clone_meanwhile(void)
{
    OK(clone_vdi(1, 0, WANTED));
}

/* Snapshots of `thin` were to go, and one of them comes into use: it is not too late, none goes, no
 * matter how often it was tried where a stretch may end. Only what is open is seen to be so when
 * that begins again. When the caller knows, the others go. */
static void come_meanwhile(void (*act)(void), unsigned rounds, struct plx_thin thin)
{
    const uint64_t wanted = WANTED;
    struct plx_thinned thinned;
    uint64_t around[12];
    int error;

    make_disk();
    write_history(rounds, around);
    came = NULL;
    meanwhile.act = act;
    meanwhile.count = 1;
    error = plx_vdi_thin(vdi, &thin, &thinned, &fault);
    CU_ASSERT_PTR_NULL(meanwhile.act);
    CU_ASSERT(error == PLX_ERR_BUSY ? strstr(fault.text, "came into use") != NULL
                                    : !error && came && rounds < 12);
    write_places(50); /* over what came free */
    for (uint64_t seq = thin.after + 1; seq <= thin.upto && error; seq++)
        expect_snapshot(seq);
    expect_snapshot(WANTED);
    CU_ASSERT(error || let_go(thin.after, thin.upto, &wanted, 1) == 0);
    CU_ASSERT(!error || let_go(thin.after, thin.upto, &wanted, 1) > 0);
    write_places(50);
    expect_snapshot(WANTED);
    expect_no_snapshot(WANTED - 1);
    if (act == clone_meanwhile)
        came = open_vdi(1);
    if (came) {
        CU_ASSERT(holds(came, model.then[WANTED]));
        OK(plx_vdi_close(came));
    }
    end_disk(false);
}

/* Who is just opening an instant is in no list yet. */
static void thin_meanwhile(void)
{
    struct plx_thin thin = {.after = 2, .upto = 8};
    struct plx_thinned thinned;

    FAILS(BUSY, plx_vdi_thin(vdi, &thin, &thinned, &fault));
}

/* When history begins with a rewind, what that went to is held no longer (RECLAIM-9): unless it is
 * opened meanwhile. */
static void come_before_rewind(void)
{
    struct plx_rewind_options back = {.seq = WANTED};
    const uint64_t wanted = WANTED;
    struct plx_snapshot_info before;
    struct plx_thinned thinned;
    struct plx_thin thin;
    uint64_t around[4];
    int error = 0;

    make_disk();
    write_history(4, around);
    note_snapshot(model.newest + 1);
    OK(plx_vdi_rewind(vdi, &back, &before, &fault));
    CU_ASSERT_EQUAL(before.seq, model.newest);
    memcpy(model.now, model.then[WANTED], PLACES);
    for (unsigned i = 0; i < 4; i++) {
        write_places(5);
        snapshot();
        keyframe();
    }
    CU_ASSERT(let_go(0, before.seq, &wanted, 1) > 0);
    expect_snapshot(WANTED);
    thin = (struct plx_thin){.upto = before.seq};
    for (unsigned count = 1; !error; count++) { /* or it is seen to be open, and stays */
        came = NULL;
        meanwhile.act = open_meanwhile;
        meanwhile.count = count;
        error = plx_vdi_thin(vdi, &thin, &thinned, &fault);
        CU_ASSERT_PTR_NOT_NULL_FATAL(came);
        write_places(20);
        CU_ASSERT(holds(came, model.then[WANTED]));
        expect_snapshot(WANTED);
        OK(plx_vdi_close(came));
    }
    CU_ASSERT_EQUAL(error, PLX_ERR_BUSY);
    CU_ASSERT(let_go(0, before.seq, NULL, 0) > 0);
    expect_no_snapshot(WANTED);
    expect_snapshot(before.seq + 1);
    end_disk(true);
}

static void thin_beside_opening(void)
{
    uint64_t around[12];

    make_disk();
    write_history(12, around);
    meanwhile.act = thin_meanwhile;
    meanwhile.count = 1;
    open_meanwhile();
    CU_ASSERT_PTR_NULL(meanwhile.act);
    write_places(50);
    CU_ASSERT(holds(came, model.then[WANTED]));
    OK(plx_vdi_close(came));
    end_disk(false);
}

static void test_come_meanwhile(void)
{
    void (*const acts[])(void) = {label_meanwhile, open_meanwhile, clone_meanwhile};
    unsigned patience = fixture.disk.patience;

    fixture.disk.patience = 90; /* so that reading the log waits */
    for (unsigned i = 0; i < sizeof acts / sizeof acts[0]; i++)
        for (unsigned rounds = 4; rounds <= 12; rounds += 8) {
            come_meanwhile(acts[i], rounds, (struct plx_thin){.after = 2, .upto = 8});
            come_meanwhile(acts[i], rounds, (struct plx_thin){.upto = 8}); /* the beginning */
        }
    thin_beside_opening();
    come_before_rewind();
    fixture.disk.patience = patience;
}

static void note_done(struct plx_request *request)
{
    *(bool *)request->owner = true;
}

static void let_it_go_on(void)
{
    planned_ops->submit(opened, on_its_way.io);
}

/* Two segments that begin at the same time: the later one is there, the one before it is not when
 * the log is read. */
static void test_segments_on_their_way(void)
{
    struct plx_request writes[2];
    struct iovec iov = {buffer, BLOCK};
    bool done[2] = {false, false};

    make_disk();
    for (unsigned i = 0; i < 9; i++) {
        write_places(i ? 1 : 300); /* so that what is looked for is at the end */
        snapshot();
        keyframe();
    }
    memset(buffer, model.now[0] = 252, BLOCK);
    on_its_way.wanted = true;
    for (unsigned i = 0; i < 2; i++) {
        writes[i] = (struct plx_request){.op = PLX_WRITE,
                                         .offset = i * (uint64_t)BLOCK,
                                         .length = BLOCK,
                                         .iov = &iov,
                                         .iovcnt = 1,
                                         .done = note_done,
                                         .owner = &done[i]};
        plx_log_leave_segment(&vdi->log);
        plx_vdi_submit(vdi, &writes[i]);
        for (unsigned turn = 0; turn < 100; turn++)
            plx_store_tick(store);
    }
    CU_ASSERT_FATAL(on_its_way.io && vdi->log.batch_count == 2 && !done[0] && !done[1]);
    meanwhile.act = let_it_go_on;
    meanwhile.count = 500; /* writing the record waits for it */
    CU_ASSERT_EQUAL(let_go(7, 8, NULL, 0), 1);
    CU_ASSERT_PTR_NULL(meanwhile.act);
    while (!done[0] || !done[1])
        if (!plx_store_tick(store))
            plx_store_wait(store);
    OK(writes[0].result);
    OK(writes[1].result);
    expect_snapshot(7);
    expect_no_snapshot(8);
    expect_snapshot(9);
    CU_ASSERT(holds(vdi, model.now));
    end_disk(false);
}

/* Each to a block of its own: what is overwritten in place leaves nothing in the log. */
static void write_anywhere(unsigned count)
{
    static unsigned block;

    while (count--) {
        block += (block + 1) % APART ? 1 : 2;
        run(vdi, PLX_WRITE, block % (PLACES * APART) * (uint64_t)BLOCK, BLOCK);
    }
}

/* With no snapshot at all every key frame lets the log before it go, and it is used again. */
static void move_on(void)
{
    for (unsigned i = 0; i < 5; i++) {
        keyframe();
        write_anywhere(300);
    }
}

/* What is read then is somebody else's by now: that is no damage. */
static void test_history_moves_on(void)
{
    const struct plx_thin thin = {.upto = 10};
    unsigned moved = 0, patience = fixture.disk.patience;
    struct plx_thinned thinned;

    fixture.disk.patience = 90;
    make_disk();
    fixture.disk.patience = patience;
    write_places(PLACES);
    write_anywhere(300);
    for (unsigned i = 1; i < 6; i++) {
        int error;

        meanwhile.act = move_on;
        meanwhile.count = i;
        error = plx_vdi_thin(vdi, &thin, &thinned, &fault);
        CU_ASSERT_PTR_NULL(meanwhile.act);
        CU_ASSERT(!error || error == PLX_ERR_BUSY);
        moved += error && strstr(fault.text, "its history moved on");
    }
    CU_ASSERT(moved > 0);
    OK(plx_vdi_thin(vdi, &thin, &thinned, &fault));
    CU_ASSERT_EQUAL(plx_vdi_health(vdi, NULL), 0);
    CU_ASSERT(holds(vdi, model.now));
    end_disk(false);
}

/* Every leaf changes, so that a key frame writes all of the tree; not where the model looks. */
static void change_leaves(void)
{
    static unsigned block;

    block = block % (APART - 1) + 1;
    for (uint64_t place = 0; place < PLACES; place++)
        run(vdi, PLX_WRITE, (place * APART + block) * BLOCK, BLOCK);
}

/* No snapshot comes between these key frames: each lets the tree of the one before go. */
static void replace_end(void)
{
    change_leaves();
    keyframe();
}

static void replace_and_use(void)
{
    for (unsigned i = 0; i < 24; i++) /* until nodes come round */
        replace_end();
}

/* The key frame that the stretch ends with is replaced while it is read. What was to go is still
 * there, and goes the next time. */
static void end_moves_on(void (*act)(void), const char *words)
{
    unsigned patience = fixture.disk.patience;
    struct plx_thin thin = {.after = 2};
    struct plx_thinned thinned;
    uint64_t around[4];

    fixture.disk.patience = 90;
    make_disk();
    fixture.disk.patience = patience;
    write_history(4, around);
    change_leaves();
    keyframe();
    thin.upto = model.newest;
    meanwhile.act = act;
    meanwhile.count = 1;
    FAILS(BUSY, plx_vdi_thin(vdi, &thin, &thinned, &fault));
    CU_ASSERT_PTR_NULL(meanwhile.act);
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, words));
    for (uint64_t seq = thin.after; seq <= thin.upto; seq++)
        expect_snapshot(seq);
    OK(plx_vdi_thin(vdi, &thin, &thinned, &fault));
    CU_ASSERT_EQUAL(thinned.snapshots, model.newest - 3);
    expect_snapshot(2);
    expect_no_snapshot(3);
    expect_snapshot(model.newest);
    CU_ASSERT(holds(vdi, model.now));
    end_disk(false);
}

/* Whether its nodes are still as they were, or written over: that is no damage either. */
static void test_end_moves_on(void)
{
    end_moves_on(replace_end, "came into use");
    end_moves_on(replace_and_use, "its history moved on");
}

/* ---- Two key frames at one position (KEYFRAME-3) ---- */

static bool wanted_beside;

static void want_beside_batch(struct plx_simenv *e)
{
    if (!wanted_beside || !vdi->log.batch_count)
        return;
    plx_keyframe_request(vdi, NULL);
    wanted_beside = false;
}

static struct plx_keyframe named_by_header(uint64_t segment)
{
    struct plx_vdi_record record;
    struct plx_keyframe keyframe;
    struct plx_log_reader log;
    uint8_t which;

    OK(plx_vdi_record_read(reader, 0, &record, &which, &fault));
    OK(plx_log_reader_open(reader, &record, &log, &fault));
    OK(plx_log_reader_seek_segment(&log, segment, &fault));
    keyframe = log.header.keyframe;
    plx_log_reader_close(&log);
    return keyframe;
}

/* The log begins with a batch that only voids checksums; before it is applied the next key frame is
 * taken, at the position of the one that the segment's header names, and that one is gone. All that
 * reads the log begins with the one that is there, wherever it comes from. */
static void test_same_position(void)
{
    struct plx_keyframe gone, begins;
    unsigned patience = fixture.disk.patience;
    uint64_t blocks;

    fixture.disk.patience = 90;
    make_disk();
    fixture.disk.patience = patience;
    write_places(PLACES);
    OK(plx_vdi_close(vdi));
    vdi = open_vdi(0);
    gone = vdi->record.keyframe;
    wanted_beside = true;
    env.on_tick = want_beside_batch;
    write_places(1);
    env.on_tick = NULL;
    while (vdi->keyframe.running)
        if (!plx_store_tick(store))
            plx_store_wait(store);
    begins = vdi->record.keyframe;
    CU_ASSERT_EQUAL_FATAL(begins.pos, gone.pos);
    CU_ASSERT_NOT_EQUAL_FATAL(begins.root, gone.root);
    CU_ASSERT_EQUAL(vdi->record.oldest.root, begins.root);
    for (unsigned i = 0; i < 3; i++) {
        write_places(2);
        snapshot();
    }
    CU_ASSERT_EQUAL(named_by_header(begins.pos / SEGMENT).root, gone.root);
    for (unsigned i = 0; i < 6; i++) { /* over its nodes */
        keyframe();
        change_leaves();
        snapshot();
    }
    for (uint64_t seq = 1; seq <= 3; seq++)
        CU_ASSERT_EQUAL(root_of(seq), begins.root);
    OK(plx_simenv_collect(&env, &blocks, &fault));
    CU_ASSERT_EQUAL(blocks, 0);
    CU_ASSERT_EQUAL(let_go(1, 2, NULL, 0), 1); /* found from the segment's start on */
    expect_snapshot(1);
    expect_no_snapshot(2);
    expect_snapshot(3);
    CU_ASSERT_EQUAL(root_of(1), begins.root);
    CU_ASSERT_EQUAL(let_go(0, 1, NULL, 0), 1);
    CU_ASSERT(let_go(0, 7, NULL, 0) > 0);
    change_leaves();
    for (uint64_t seq = 8; seq <= model.newest; seq++)
        expect_snapshot(seq);
    CU_ASSERT(holds(vdi, model.now));
    end_disk(false);
}

/* ---- Listings beside it ---- */

static struct {
    unsigned at, visits; /* what goes, goes at this visit; 0: never */
    uint64_t kept[SNAPS], last;
    size_t kept_count;
    unsigned kept_seen;
    bool disorder;
} listing;

/* All but what is kept goes, and what came free is written over. */
static void let_most_go(void)
{
    let_go(0, model.newest - 1, listing.kept, listing.kept_count);
    for (unsigned i = 0; i < 6; i++) {
        write_places(60);
        keyframe();
    }
    write_over_free();
}

static bool visit_snapshot(void *context, const struct plx_snapshot_info *info)
{
    listing.disorder |= info->seq <= listing.last;
    listing.kept_seen += contains(listing.kept, listing.kept_count, info->seq);
    listing.last = info->seq;
    if (++listing.visits == listing.at)
        let_most_go();
    return true;
}

static void visit_label(void *context, const char *label, uint64_t seq, bool removed)
{
    listing.disorder |= removed;
    listing.last = seq;
    if (++listing.visits == listing.at)
        let_most_go();
}

static bool keep_first(void *context, const struct plx_snapshot_info *info)
{
    *(struct plx_snapshot_info *)context = *info;
    return false;
}

static void put_label(uint64_t seq)
{
    struct plx_request request = {.op = PLX_LABEL, .seq = seq, .label = "kept"};

    OK(plx_vdi_run(vdi, &request));
}

static void make_listed(unsigned at)
{
    uint64_t around[16];
    size_t count;

    make_disk();
    memset(&listing, 0, sizeof listing);
    listing.at = at;
    count = write_history(16, around);
    for (size_t i = 0; i < count; i += 3) {
        listing.kept[listing.kept_count++] = around[i];
        put_label(around[i]);
    }
}

/* Listed by another process while most of them go: what stays is listed, once and in order. */
static void test_list_beside(void)
{
    for (unsigned at = 1; at < 40; at += 3) {
        make_listed(at);
        OK(plx_snapshot_list(reader, 0, 1, visit_snapshot, NULL, &fault));
        CU_ASSERT(!listing.disorder);
        CU_ASSERT_EQUAL(listing.kept_seen, listing.kept_count);
        CU_ASSERT(listing.last >= 48);
        end_disk(false);
    }
    for (unsigned at = 1; at < 6; at++) {
        make_listed(at);
        OK(plx_label_list(reader, 0, 0, visit_label, NULL, &fault));
        CU_ASSERT_EQUAL(listing.last, listing.kept[listing.kept_count - 1]);
        CU_ASSERT(listing.visits >= listing.kept_count);
        end_disk(false);
    }
}

/* At the at-th turn of the reader's loop. */
static void go_at_tick(struct plx_simenv *e)
{
    if (++listing.visits == listing.at)
        let_most_go();
}

/* Found by another process, by number and by time, whenever the others go. */
static void test_find_beside(void)
{
    bool more = true;

    for (unsigned at = 1; more; at += 2) {
        struct plx_snapshot_info info = {0}, found = {0};
        struct plx_vdi *instant = NULL;
        uint64_t wanted;

        make_listed(at);
        wanted = listing.kept[listing.kept_count / 2];
        OK(plx_snapshot_list(reader, 0, wanted, keep_first, &info, &fault));
        reader_env.on_tick = go_at_tick;
        OK(plx_snapshot_at(reader, 0, info.time_ns, &found, &fault));
        CU_ASSERT_EQUAL(found.seq, wanted);
        OK(plx_snapshot_open(reader, 0, wanted, &instant, &fault));
        more = listing.visits >= at;
        reader_env.on_tick = NULL;
        CU_ASSERT(holds(instant, model.then[wanted]));
        plx_vdi_abandon(instant);
        end_disk(false);
    }
}

static struct {
    struct plx_range_change changes[2 * SNAPS];
    unsigned count;
} told;

static bool note_change(void *context, const struct plx_range_change *change)
{
    listing.disorder |= told.count && change->from.seq >= told.changes[told.count - 1].from.seq;
    told.changes[told.count++] = *change;
    return true;
}

/* Between two snapshots that stayed, if the place differs in them, and not otherwise. */
static void expect_told(unsigned place)
{
    for (size_t k = 1; k < listing.kept_count; k++) {
        uint64_t after = listing.kept[k - 1], by = listing.kept[k];
        bool between = false;

        for (unsigned i = 0; i < told.count; i++) {
            const struct plx_range_change *change = &told.changes[i];

            between |= change->from.seq >= after && change->to.seq && change->to.seq <= by;
        }
        CU_ASSERT_EQUAL(between, model.then[after][place] != model.then[by][place]);
    }
}

/* When a place changed, told by another process, whenever the snapshots between go (CHANGES-6). */
static void test_changes_beside(void)
{
    bool more = true;

    for (unsigned at = 1; more; at++) {
        unsigned place = at % PLACES;

        make_listed(at);
        told.count = 0;
        reader_env.on_tick = go_at_tick;
        OK(plx_range_change_list(reader, 0, (uint64_t)place * APART, 1, note_change, NULL, &fault));
        more = listing.visits >= at;
        reader_env.on_tick = NULL;
        CU_ASSERT(!listing.disorder);
        expect_told(place);
        end_disk(false);
    }
}

static void keyframe_at_tick(struct plx_simenv *e)
{
    write_places(1);
    keyframe();
}

/* Not at all, if the disk moves on at every turn, but that is no damage. */
static void test_changes_never_quiet(void)
{
    make_listed(0);
    told.count = 0;
    reader_env.on_tick = keyframe_at_tick;
    FAILS(BUSY, plx_range_change_list(reader, 0, 0, 1, note_change, NULL, &fault));
    reader_env.on_tick = NULL;
    CU_ASSERT_EQUAL(told.count, 0);
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "changes faster than it can be read"));
    OK(plx_range_change_list(reader, 0, 0, 1, note_change, NULL, &fault));
    expect_told(0);
    end_disk(false);
}

/* However little of it is listed, the first one's new blocks count from the one before. */
static bool note_new_blocks(void *context, const struct plx_snapshot_info *info)
{
    ((uint64_t *)context)[info->seq] = info->new_blocks;
    return true;
}

static void test_pages(void)
{
    static uint64_t all[SNAPS], page[SNAPS];

    make_listed(0);
    for (unsigned i = 0; i < 6; i++) { /* a segment begins between a key frame and a snapshot */
        write_places(5);
        keyframe();
        approach_end();
        write_places(3);
        snapshot();
    }
    OK(plx_snapshot_list(reader, 0, 1, note_new_blocks, all, &fault));
    for (uint64_t from = 1; from <= model.newest; from++) {
        memset(page, 0, sizeof page);
        OK(plx_snapshot_list(reader, 0, from, note_new_blocks, page, &fault));
        CU_ASSERT(!memcmp(all + from, page + from, (model.newest + 1 - from) * sizeof *all));
    }
    end_disk(false);
}

static void write_into_next_segment(void)
{
    write_anywhere(100);
}

/* The newest state is read up to where the log ended then. The owner goes on into a segment that
 * had not begun, with marks that cover what the reader did not see: that is no damage. */
static void test_newest_beside_writer(void)
{
    unsigned patience = fixture.disk.patience;
    bool more = true;

    fixture.disk.patience = 90; /* so that reading the log waits */
    for (unsigned at = 1; more; at++) {
        make_disk();
        write_anywhere(50);
        approach_end();
        meanwhile.act = write_into_next_segment;
        meanwhile.count = at;
        OK(plx_snapshot_open(store, 0, 0, &came, &fault));
        more = !meanwhile.act;
        meanwhile.act = NULL;
        plx_vdi_abandon(came);
        end_disk(false);
    }
    fixture.disk.patience = patience;
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"a reader elsewhere", test_reader_elsewhere},
        {"the newest state beside its writer", test_newest_beside_writer},
        {"somebody comes meanwhile", test_come_meanwhile},
        {"segments on their way", test_segments_on_their_way},
        {"history that moves on", test_history_moves_on},
        {"the end that moves on", test_end_moves_on},
        {"two key frames at one position", test_same_position},
        {"listing beside", test_list_beside},
        {"finding beside", test_find_beside},
        {"changes told beside", test_changes_beside},
        {"changes of a disk that is never quiet", test_changes_never_quiet},
        {"pages of a list", test_pages},
    };

    prepare_thinning();
    return SUITE_RUN("letting go, beside", tests);
}
