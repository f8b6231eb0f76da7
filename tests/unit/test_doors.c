/* test_doors.c - a store that lost writes: records that went back, or are another disk's, are not
 * believed; a collection frees nothing beside one. Headers of extents, and registries, are in
 * test_doors_extents.c, what a rebuild makes of records in test_doors_rebuilt.c.
 */
#include <CUnit/Basic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ok.h"
#include "attach/attach_inside.h"
#include "attach/founding.h"
#include "registry/embedded.h"
#include "suite.h"
#include "unit/lost_writes.h"

/* A free slot that is damaged keeps a disk from being created there, and no row is left of that. */
static void test_damaged_slot(void)
{
    struct plx_vdi_create_options options = {
        .size_bytes = 4 * MIB, .sector_size = 512, .name = "new"};
    uint8_t before[RECORD_BYTES], damaged[RECORD_BYTES];
    struct plx_registry_store store;
    struct plx_registry_vdi row;
    struct plx_vdi_info info;

    OK(make_store());
    memset(damaged, 0xa5, sizeof damaged);
    record(0, before, false);
    record(0, damaged, true);
    open_attach();
    CU_ASSERT_EQUAL(plx_attach_vdi_create(attach, &options, NULL, NULL, &info, &fault),
                    PLX_ERR_CORRUPT);
    plx_attach_row(attach, &store);
    CU_ASSERT_EQUAL(plx_registry_vdi_get(plx_attach_registry(attach), store.id, "new", &row),
                    PLX_ERR_NOT_FOUND);
    record(0, before, true);
    create("new");
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

/* A disk back at an older state is refused, and only it, until the operator accepts that. */
static void older_and_others(bool taken)
{
    struct plx_collected collected;
    uint8_t before[RECORD_BYTES];
    struct plx_registry_vdi row;
    struct plx_vdi *vdi;
    bool older;

    OK(make_store());
    open_attach();
    create("old");
    create("other");
    write_disk("old", 1);
    close_attach();
    record(0, before, false);
    open_attach();
    write_disk("old", 2);
    close_attach();
    record(0, before, true);
    open_attach();
    refuse_disk("old", PLX_ERR_CORRUPT);
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "older than what was written last"));
    CU_ASSERT_EQUAL(plx_attach_vdi_delete(attach, "old", false, &fault), PLX_ERR_CORRUPT);
    if (taken) /* what the older state has again */
        write_disk("other", 3);
    OK(is_older("other", &row, &older));
    CU_ASSERT_FALSE(older);
    OK(is_older("old", &row, &older));
    CU_ASSERT_TRUE(older);
    if (taken) {
        refuse_older(&row, PLX_ERR_CORRUPT); /* for this, whatever else is wrong with it */
        CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "are in use by others"));
        refuse_disk("old", PLX_ERR_CORRUPT);
        OK(plx_attach_vdi_delete(attach, "old", true, &fault));
        OK(plx_attach_collect(attach, &(struct plx_attach_work){0}, &collected, &fault));
        CU_ASSERT_EQUAL(plx_attach_vdi_delete(attach, "other", true, &fault), PLX_ERR_EXISTS);
        write_disk("other", 4);
    } else {
        accept_older(&row);
        OK(open_disk("old", &vdi));
        OK(plx_attach_vdi_close(attach, vdi));
    }
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

/* The newest state of a record, whose slots are a block each: its epoch and number. */
static struct plx_registry_written written_in(const uint8_t bytes[RECORD_BYTES])
{
    struct plx_registry_written newest = {0};

    for (size_t at = 0; at < RECORD_BYTES; at += PLX_BLOCK_SIZE) {
        struct plx_vdi_record disk;
        struct plx_uuid store;

        memcpy(store.b, bytes + at + 16, sizeof store.b);
        OK(plx_format_vdi_record_decode(bytes + at, &store, 0, PLX_ADDR_MAX, &disk, &fault));
        if ((disk.generation + 1) / 2 >= newest.state)
            newest = (struct plx_registry_written){disk.epoch, (disk.generation + 1) / 2};
    }
    return newest;
}

/* The least that a device can lose: the last state, which closing wrote, in both slots. */
static void test_older_by_one(void)
{
    uint8_t before[RECORD_BYTES], closed[RECORD_BYTES];
    struct plx_vdi *vdi;

    OK(make_store());
    open_attach();
    create("old");
    OK(open_disk("old", &vdi));
    record(0, before, false);
    OK(plx_attach_vdi_close(attach, vdi));
    close_attach();
    record(0, closed, false);
    CU_ASSERT_EQUAL(written_in(closed).epoch, written_in(before).epoch);
    CU_ASSERT_EQUAL(written_in(closed).state, written_in(before).state + 1);
    record(0, before, true);
    open_attach();
    refuse_disk("old", PLX_ERR_CORRUPT);
    close_attach();
    record(0, closed, true);
    open_attach();
    write_disk("old", 1);
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

/* Nobody knows what a disk has whose record cannot be read just now. */
static void test_older_beside_damage(void)
{
    uint8_t before[RECORD_BYTES], others[RECORD_BYTES], damaged[RECORD_BYTES];
    struct plx_registry_vdi row;
    bool older;

    OK(make_store());
    open_attach();
    create("old");
    create("other");
    write_disk("old", 1);
    write_disk("other", 1);
    close_attach();
    record(0, before, false);
    open_attach();
    write_disk("old", 2);
    close_attach();
    record(0, before, true);
    record(1, others, false);
    memset(damaged, 0xa5, sizeof damaged);
    record(1, damaged, true);
    open_attach();
    OK(is_older("old", &row, &older));
    CU_ASSERT_TRUE(older);
    refuse_older(&row, PLX_ERR_CORRUPT);
    record(1, others, true);
    accept_older(&row);
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

/* Blocks that a living instance has freed since are free in its memory first, and its next write's
 * then: the bitmap that the store has does not tell. */
static void test_older_beside_living(void)
{
    struct plx_request unmap = {.op = PLX_UNMAP, .length = 4ull * PART * PLX_BLOCK_SIZE};
    struct plx_attach *holder;
    uint8_t before[RECORD_BYTES];
    struct plx_registry_vdi row;
    struct plx_vdi *vdi;
    bool older;

    OK(make_store());
    open_attach();
    create("old");
    create("other");
    for (unsigned part = 0; part < 4; part++)
        fill("old", part * PART, 1);
    close_attach();
    record(0, before, false);
    open_attach();
    fill("other", 0, 2); /* which has the extent claimed */
    OK(open_disk("old", &vdi));
    OK(plx_vdi_run(vdi, &unmap));
    OK(plx_attach_vdi_close(attach, vdi));
    holder = attach;
    record(0, before, true);
    open_attach();
    OK(is_older("old", &row, &older));
    CU_ASSERT_TRUE(older);
    refuse_older(&row, PLX_ERR_BUSY);
    close_attach();
    attach = holder;
    for (unsigned part = 1; part < 8; part++)
        fill("other", part * PART, 3);
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

static bool has_found(void *context)
{
    return ((const struct plx_collected *)context)->found >= 4ull * PART;
}

/* What a collection that was broken off has found may be the older state's, and is not swept. */
static void test_older_and_found(void)
{
    struct plx_request unmap = {.op = PLX_UNMAP, .length = 4ull * PART * PLX_BLOCK_SIZE};
    struct plx_attach *holder;
    struct plx_collected collected;
    const struct plx_attach_work stopped = {.interrupted = has_found, .context = &collected};
    uint8_t before[RECORD_BYTES];
    struct plx_registry_vdi row;
    struct plx_vdi *vdi;
    bool older;

    OK(make_store());
    open_attach();
    create("old");
    create("other");
    for (unsigned part = 0; part < 4; part++)
        fill("old", part * PART, 1);
    close_attach();
    record(0, before, false);
    open_attach();
    fill("other", 0, 2); /* which has the extent claimed: another one frees nothing there */
    holder = attach;
    open_attach();
    OK(open_disk("old", &vdi));
    OK(plx_vdi_run(vdi, &unmap));
    OK(plx_attach_vdi_close(attach, vdi));
    close_attach();
    attach = holder;
    close_attach();
    open_attach();
    CU_ASSERT_EQUAL(plx_attach_collect(attach, &stopped, &collected, &fault), PLX_ERR_BUSY);
    CU_ASSERT(collected.found >= 4ull * PART && collected.swept == 0);
    close_attach();
    record(0, before, true);
    open_attach();
    OK(is_older("old", &row, &older));
    CU_ASSERT_TRUE(older);
    accept_older(&row);
    OK(plx_attach_collect(attach, &(struct plx_attach_work){0}, &collected, &fault));
    close_attach();
    open_attach();
    for (unsigned part = 1; part < 8; part++)
        fill("other", part * PART, 3);
    for (unsigned part = 0; part < 4; part++)
        CU_ASSERT(holds("old", part * PART, 1));
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

static void test_older(void)
{
    older_and_others(false);
}

/* Accepted, it would overwrite and free blocks of the other one. */
static void test_older_and_others(void)
{
    older_and_others(true);
}

/* Another disk's record in a slot: nothing of it is opened, deleted or undone. */
static void test_another(void)
{
    uint8_t mine[RECORD_BYTES], others[RECORD_BYTES];
    struct plx_registry_vdi row;
    struct plx_vdi *vdi;
    bool older;

    OK(make_store());
    open_attach();
    create("mine");
    create("others");
    close_attach();
    record(0, mine, false);
    record(1, others, false);
    record(0, others, true);
    open_attach();
    refuse_disk("mine", PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(plx_attach_vdi_delete(attach, "mine", false, &fault), PLX_ERR_CORRUPT);
    CU_ASSERT_EQUAL(is_older("mine", &row, &older), PLX_ERR_CORRUPT); /* nothing to accept */
    write_disk("others", 4);
    close_attach();
    record(0, mine, true);
    open_attach();
    OK(open_disk("mine", &vdi));
    OK(plx_attach_vdi_close(attach, vdi));
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

static void forget(uint32_t slot)
{
    uint8_t none[RECORD_BYTES] = {0};

    record(slot, none, true);
}

/* Nothing is collected, and the disk is not taken for one that was never made. */
static void refuse_to_collect(const char *name)
{
    const struct plx_attach_work work = {0};
    struct plx_registry_store store;
    struct plx_registry_vdi row;
    struct plx_collected collected;

    CU_ASSERT_EQUAL(plx_attach_collect(attach, &work, &collected, &fault), PLX_ERR_CORRUPT);
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "is not on the store any more"));
    CU_ASSERT_EQUAL(collected.swept, 0);
    plx_attach_row(attach, &store);
    OK(plx_registry_vdi_get(plx_attach_registry(attach), store.id, name, &row));
    CU_ASSERT_FALSE(row.deleted);
}

/* A live disk that the store has forgotten stops collections. */
static void test_forgotten(void)
{
    const struct plx_attach_work work = {0};
    uint8_t kept[RECORD_BYTES];
    struct plx_collected collected;
    struct plx_vdi *vdi;

    OK(make_store());
    open_attach();
    create("kept");
    write_disk("kept", 5);
    close_attach();
    record(0, kept, false);
    forget(0);
    open_attach();
    refuse_to_collect("kept");
    CU_ASSERT(open_disk("kept", &vdi) != 0);
    close_attach();
    record(0, kept, true);
    open_attach();
    OK(plx_attach_collect(attach, &work, &collected, &fault));
    OK(open_disk("kept", &vdi));
    OK(plx_attach_vdi_close(attach, vdi));
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

static void forget_on_the_way(void *context, bool sweeping, uint64_t done, uint64_t total)
{
    CU_ASSERT_FALSE(sweeping);
    forget(1);
}

/* It was there when the collection began. */
static void test_forgotten_meanwhile(void)
{
    const struct plx_attach_work work = {.progress = forget_on_the_way};
    struct plx_collected collected;

    OK(make_store());
    open_attach();
    create("read");
    create("kept");
    write_disk("read", 5);
    write_disk("kept", 5);
    CU_ASSERT_EQUAL(plx_attach_collect(attach, &work, &collected, &fault), PLX_ERR_CORRUPT);
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "is not on the store any more"));
    CU_ASSERT_EQUAL(collected.swept, 0);
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

/* As that, while another process has it open. */
static void test_open_and_forgotten(void)
{
    struct plx_attach *holder;
    uint8_t kept[RECORD_BYTES];
    struct plx_vdi *vdi;

    OK(make_store());
    open_attach();
    create("kept");
    write_disk("kept", 5);
    OK(open_disk("kept", &vdi));
    holder = attach;
    record(0, kept, false);
    forget(0);
    open_attach();
    refuse_to_collect("kept");
    close_attach();
    record(0, kept, true);
    attach = holder;
    OK(plx_attach_vdi_close(attach, vdi));
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

static struct plx_thinned thinned;
static struct plx_thin_mark marks[] = {{.seq = 2, .label = "amid"}, {.seq = 2, .label = "late"}};
static const struct plx_thin amid = {.after = 1, .upto = 2, .marks = marks, .mark_count = 2};

/* What is called before the disk is asked anything: dies when the snapshot has gone. */
static void die_when_thinned(void *context)
{
    if (thinned.snapshots)
        _exit(CU_get_number_of_failures() != 0);
}

/* Snapshot 2 of 3 goes, and its process dies before the log or the registry hears of its labels. */
static void die_before_labels(void)
{
    struct plx_attach_options options = {
        .store = "s", .state_dir = folder, .role = "admin", .lock = die_when_thinned};
    struct plx_vdi *vdi;

    OK(plx_attach_open(&options, &attach, &fault));
    OK(open_disk("one", &vdi));
    OK(plx_attach_thin(attach, vdi, &amid, &thinned, &fault));
    _exit(2);
}

/* It goes, and so do its labels in the log. One is still in the registry when its process dies. */
static void die_before_label(void)
{
    struct plx_registry_label row = {.name = "amid", .seq = 2};
    const struct plx_registry_lock *lock;
    struct plx_vdi *vdi;
    uint64_t *kept;
    size_t count;

    open_attach();
    OK(open_disk("one", &vdi));
    OK(plx_attach_thin(attach, vdi, &amid, &thinned, &fault));
    CU_ASSERT_EQUAL(thinned.snapshots, 1);
    lock = &plx_attach_opened(attach, vdi)->lock;
    OK(plx_registry_label_set(plx_attach_registry(attach), lock, &row));
    OK(plx_registry_intent_begin(plx_attach_registry(attach), lock, NULL, 0, &kept, &count));
    _exit(CU_get_number_of_failures() != 0);
}

static void take_labelled(struct plx_vdi *vdi, unsigned number, const char *label)
{
    struct plx_request unmap = {.op = PLX_UNMAP, .length = number * PLX_BLOCK_SIZE};
    struct plx_request snapshot = {.op = PLX_SNAPSHOT};

    OK(plx_vdi_run(vdi, &unmap));
    OK(plx_vdi_run(vdi, &snapshot));
    OK(plx_attach_label(attach, vdi, label, number, 1, &fault));
}

/* "late" is set behind further key frames and snapshots: what is rewritten when snapshot 2 goes
 * ends before it. */
static void make_labelled(void)
{
    static const char *const names[] = {"first", "amid", "last"};
    struct plx_vdi *vdi;

    thinned = (struct plx_thinned){0};
    OK(open_disk("one", &vdi));
    for (unsigned n = 1; n <= 3; n++)
        take_labelled(vdi, n, names[n - 1]);
    for (unsigned n = 4; n <= 6; n++) {
        OK(plx_attach_vdi_close(attach, vdi));
        OK(open_disk("one", &vdi));
        take_labelled(vdi, n, n == 4 ? "fourth" : n == 5 ? "fifth" : "sixth");
    }
    OK(plx_attach_label(attach, vdi, "late", 2, 1, &fault));
    OK(plx_attach_vdi_close(attach, vdi));
}

/* All but those of snapshot 2. */
static void check_labels_left(void)
{
    struct plx_registry_label *list;
    struct plx_registry_store store;
    struct plx_registry_vdi row;
    size_t count;
    bool left = true;

    open_attach();
    store_row(&store);
    OK(plx_registry_vdi_get(plx_attach_registry(attach), store.id, "one", &row));
    OK(plx_registry_label_list(plx_attach_registry(attach), row.id, &list, &count));
    CU_ASSERT_EQUAL(count, 5);
    for (size_t i = 0; i < count; i++)
        CU_ASSERT_NOT_EQUAL(list[i].seq, 2);
    free(list);
    OK(plx_registry_intent_is_left(plx_attach_registry(attach), row.id, &left));
    CU_ASSERT_FALSE(left);
    close_attach();
}

/* They go then; labels of snapshots that are there stay (ATTACH-4), also in a rebuild. */
static void label_left(void (*die)(void))
{
    pid_t child;
    int status;

    OK(make_store());
    open_attach();
    create("one");
    fill("one", 0, 1);
    make_labelled();
    close_attach();
    fflush(NULL);
    child = fork();
    if (!child)
        die();
    CU_ASSERT_EQUAL_FATAL(waitpid(child, &status, 0), child);
    CU_ASSERT_EQUAL(status, 0);
    open_attach();
    fill("one", PART, 2);
    close_attach();
    check_labels_left();
    rebuild_registry(); /* LABELS-3 */
    check_labels_left();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

static void test_label_left(void)
{
    label_left(die_before_label);
}

static void test_labels_left(void)
{
    label_left(die_before_labels);
}

/* Nobody forgets a store, or says that he could give it up, while somebody has it open. */
static void test_forget_store(void)
{
    OK(make_store());
    open_attach();
    CU_ASSERT_EQUAL(plx_founding_forget(folder, "s", NULL, &fault), PLX_ERR_BUSY);
    CU_ASSERT_EQUAL(plx_founding_release(folder, "s", true, NULL, &fault), PLX_ERR_BUSY);
    CU_ASSERT_EQUAL(plx_founding_release(folder, "s", false, NULL, &fault), PLX_ERR_BUSY);
    close_attach();
    OK(plx_founding_release(folder, "s", true, NULL, &fault));
    OK(plx_founding_forget(folder, "s", NULL, &fault));
    CU_ASSERT_EQUAL(drop_store(), 0);
}

/* Who was listed and has ended since is not taken for dead, though nobody has its byte any more:
 * what it had is in order, and nobody recovers it or fails for that. */
static void test_ended(void)
{
    struct plx_registry_instance *list;
    struct plx_registry_store store;
    struct plx_attach *first;
    struct plx_vdi *vdi;
    size_t count, others = 0;

    OK(make_store());
    open_attach();
    create("one");
    OK(open_disk("one", &vdi)); /* an instance registers with its first change */
    first = attach;
    open_attach();
    create("two");
    store_row(&store);
    OK(plx_registry_instance_list(plx_attach_registry(first), store.id, &list, &count));
    close_attach();
    attach = first;
    CU_ASSERT_EQUAL(count, 2);
    for (size_t i = 0; i < count; i++) {
        if (list[i].id == attach->instance.row.id)
            continue;
        others++;
        CU_ASSERT(plx_instance_is_dead(&attach->paths, plx_registry_locks(attach->registry),
                                       &list[i], NULL)); /* as far as its byte says */
        CU_ASSERT(!plx_attach_is_dead(attach, &list[i]));
    }
    CU_ASSERT_EQUAL(others, 1);
    free(list);
    OK(plx_attach_vdi_close(attach, vdi));
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

/* Nor is its registry rebuilt. */
static void test_rebuild_beside(void)
{
    const char *const volumes[] = {volume};
    struct plx_rebuild_options options = {.state_dir = folder, .volumes = volumes, .count = 1};
    struct plx_rebuilt rebuilt;
    struct plx_known known;
    int error;

    OK(make_store());
    open_attach();
    error = plx_rebuild(&options, &known, &rebuilt, &fault);
    CU_ASSERT_EQUAL(error, PLX_ERR_BUSY);
    if (!error)
        plx_known_done(&known);
    close_attach();
    rebuild(false);
    CU_ASSERT_EQUAL(drop_store(), 0);
}

/* A disk that the store has forgotten, and who had it open has died: what recovers him does not
 * undo its creation, and nothing is written where its log may lie; also when the registry was made
 * anew meanwhile. */
static void forget_of_dead(bool rebuilt)
{
    uint8_t kept[RECORD_BYTES];

    OK(make_store());
    open_attach();
    create("kept");
    create("other");
    close_attach();
    write_and_die("kept", 6);
    if (rebuilt)
        rebuild_registry();
    record(0, kept, false);
    forget(0);
    open_attach();
    refuse_to_collect("kept");
    for (unsigned part = 0; part < 20; part++)
        fill("other", part * PART, 7);
    close_attach();
    record(0, kept, true);
    open_attach();
    for (unsigned part = 0; part < 4; part++)
        CU_ASSERT(holds("kept", part * PART, 6));
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

static void test_dead_and_forgotten(void)
{
    forget_of_dead(false);
    forget_of_dead(true);
}

/* A disk that went back behind its last closing, and its last holder has died: it can be accepted,
 * too. */
static void test_dead_and_older(void)
{
    uint8_t before[RECORD_BYTES];
    struct plx_registry_vdi row;
    struct plx_vdi *vdi;
    bool older;

    OK(make_store());
    open_attach();
    create("old");
    write_disk("old", 1);
    close_attach();
    record(0, before, false);
    open_attach();
    write_disk("old", 2);
    close_attach();
    write_and_die("old", 3);
    record(0, before, true);
    open_attach();
    refuse_disk("old", PLX_ERR_CORRUPT);
    OK(is_older("old", &row, &older));
    CU_ASSERT_TRUE(older);
    refuse_older(&row, PLX_ERR_BUSY); /* what the dead one left is ours until we end */
    close_attach();
    open_attach();
    accept_older(&row);
    OK(is_older("old", &row, &older));
    CU_ASSERT_FALSE(older);
    CU_ASSERT(row.written.state != 0); /* it is none that was never made */
    OK(open_disk("old", &vdi));
    OK(plx_attach_vdi_close(attach, vdi));
    close_attach();
    open_attach();
    write_disk("old", 4);
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"a record that went back", test_older},
        {"a record that went back by one state", test_older_by_one},
        {"a record that went back, to blocks that are another's by now", test_older_and_others},
        {"a record that went back, beside a living instance", test_older_beside_living},
        {"a record that went back, beside one that is damaged", test_older_beside_damage},
        {"a record that went back, and what was found since", test_older_and_found},
        {"another disk's record", test_another},
        {"a free slot that is damaged", test_damaged_slot},
        {"a disk that the store has forgotten", test_forgotten},
        {"a disk that is forgotten while disks are read", test_forgotten_meanwhile},
        {"open, and forgotten", test_open_and_forgotten},
        {"a store that is open is not forgotten", test_forget_store},
        {"a label whose snapshot went before it", test_label_left},
        {"labels that the log has of it", test_labels_left},
        {"an instance that has ended since it was listed", test_ended},
        {"a store that is open is not rebuilt", test_rebuild_beside},
        {"its holder is dead, and it is forgotten", test_dead_and_forgotten},
        {"its holder is dead, and it went back", test_dead_and_older},
    };

    return SUITE_RUN("doors", tests);
}
