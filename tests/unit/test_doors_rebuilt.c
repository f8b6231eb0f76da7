/* test_doors_rebuilt.c - a store that lost writes: what a rebuild of its registry does not forget.
 */
#include <CUnit/Basic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ok.h"
#include "engine/format/format.h"
#include "registry/lost.h"
#include "suite.h"
#include "unit/lost_writes.h"

static size_t lost_count(void)
{
    struct plx_registry_lost *list;
    struct plx_registry_store store;
    size_t count;

    plx_attach_row(attach, &store);
    OK(plx_registry_lost_list(plx_attach_registry(attach), store.id, &list, &count));
    free(list);
    return count;
}

/* A live disk whose record is gone: it is lost, and nothing is collected, however often the
 * registry is rebuilt; once the store is restored it is there again. */
static void test_forgotten_rebuilt(void)
{
    uint8_t kept[RECORD_BYTES], none[RECORD_BYTES] = {0};
    struct plx_collected collected;

    OK(make_store());
    open_attach();
    create("other");
    create("kept");
    fill("kept", 0, 5);
    close_attach();
    record(1, kept, false);
    record(1, none, true);
    CU_ASSERT_EQUAL(rebuild(true).lost_records, 1);
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL(rebuild(false).lost_records, 1);
        open_attach();
        CU_ASSERT_EQUAL(lost_count(), 1);
        CU_ASSERT(plx_attach_collect(attach, &(struct plx_attach_work){0}, &collected, &fault) !=
                  0);
        CU_ASSERT_EQUAL(collected.swept, 0);
        close_attach();
    }
    record(1, kept, true);
    CU_ASSERT_EQUAL(rebuild(false).lost_records, 0);
    open_attach();
    OK(plx_attach_collect(attach, &(struct plx_attach_work){0}, &collected, &fault));
    CU_ASSERT(holds("kept", 0, 5));
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

static void label_disk(const char *name, const char *label)
{
    struct plx_request snapshot = {.op = PLX_SNAPSHOT};
    struct plx_vdi *vdi;

    OK(open_disk(name, &vdi));
    OK(plx_vdi_run(vdi, &snapshot));
    OK(plx_attach_label(attach, vdi, label, snapshot.seq, 1, &fault));
    OK(plx_attach_vdi_close(attach, vdi));
}

/* A deleted disk's data lay where others have their metadata by now: that is no fault of theirs. */
static void test_reused_and_rebuilt(void)
{
    struct plx_request snapshot = {.op = PLX_SNAPSHOT};
    struct plx_collected collected;
    struct plx_vdi *vdi;
    uint64_t extent;
    char name[16];

    OK(make_store());
    open_attach();
    create("kept");
    write_disk("kept", 1);
    create("gone");
    for (unsigned part = 0; part < 20; part++)
        fill("gone", part * PART, 2);
    for (unsigned i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "other%u", i);
        create(name); /* before the slot is free */
    }
    close_attach();
    open_attach();
    extent = row_of(0).no + 1; /* the first one that it has for itself */
    CU_ASSERT_EQUAL(row_of(extent).type, PLX_EXTENT_DATA);
    OK(plx_attach_vdi_delete(attach, "gone", false, &fault));
    OK(plx_attach_collect(attach, &(struct plx_attach_work){0}, &collected, &fault));
    close_attach();
    open_attach();
    for (unsigned i = 0; i < 40; i++) { /* each takes a segment for its log */
        snprintf(name, sizeof name, "other%u", i);
        OK(open_disk(name, &vdi));
        OK(plx_vdi_run(vdi, &snapshot));
        OK(plx_attach_vdi_close(attach, vdi));
    }
    CU_ASSERT_EQUAL(row_of(extent).type, PLX_EXTENT_META);
    close_attach();
    CU_ASSERT_EQUAL(rebuild(false).sealed_extents, 0);
    open_attach();
    CU_ASSERT_NOT_EQUAL(row_of(extent).states, PLX_STATES_NEVER);
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

/* A record that went back stays refused, with what the registry knew of it, until that is
 * accepted. */
static void test_older_rebuilt(void)
{
    uint8_t before[RECORD_BYTES];
    struct plx_registry_label label;
    struct plx_registry_vdi row, now;
    struct plx_vdi *vdi;
    bool older;

    OK(make_store());
    open_attach();
    create("old");
    create("other");
    label_disk("old", "first");
    close_attach();
    record(0, before, false);
    open_attach();
    write_disk("old", 2);
    label_disk("old", "second");
    OK(is_older("old", &row, &older));
    CU_ASSERT_FALSE(older);
    close_attach();
    CU_ASSERT_EQUAL(rebuild(true).older_records, 0);
    record(0, before, true);
    CU_ASSERT_EQUAL(rebuild(true).older_records, 1);
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL(rebuild(false).older_records, 1);
        open_attach();
        refuse_disk("old", PLX_ERR_CORRUPT);
        OK(is_older("old", &now, &older));
        CU_ASSERT(older && now.epoch >= row.epoch);
        OK(plx_registry_label_get(plx_attach_registry(attach), now.id, "second", &label));
        CU_ASSERT_EQUAL(label.seq, 2);
        close_attach();
    }
    open_attach();
    accept_older(&now);
    OK(open_disk("old", &vdi));
    OK(plx_attach_vdi_close(attach, vdi));
    write_disk("other", 3);
    close_attach();
    CU_ASSERT_EQUAL(rebuild(false).older_records, 0);
    CU_ASSERT_EQUAL(drop_store(), 0);
}

/* Disk kept lies in a slot that is now that of disk gone, as it was before it was deleted. */
static void bring_earlier_back(void)
{
    uint8_t before[RECORD_BYTES], deleted[RECORD_BYTES];
    struct plx_collected collected;

    OK(make_store());
    open_attach();
    create("gone");
    close_attach();
    record(0, before, false);
    open_attach();
    OK(plx_attach_vdi_delete(attach, "gone", false, &fault));
    close_attach();
    record(0, deleted, false);
    record(0, before, true);
    CU_ASSERT_EQUAL(rebuild(true).older_records, 1); /* deleted, as far as is known */
    record(0, deleted, true);
    open_attach();
    OK(plx_attach_collect(attach, &(struct plx_attach_work){0}, &collected, &fault));
    create("kept");
    create("other");
    create("gone"); /* another one of that name */
    close_attach();
    record(0, before, true);
}

/* What is refused then, to any disk. */
static void check_doubt(void)
{
    struct plx_registry_store store;
    struct plx_collected collected;

    store_row(&store);
    CU_ASSERT_PTR_NOT_NULL(strstr(store.doubt, "slot 0 of the store holds another one (gone)"));
    refuse_disk("other", PLX_ERR_REGISTRY);
    CU_ASSERT_EQUAL(plx_attach_vdi_delete(attach, "other", false, &fault), PLX_ERR_REGISTRY);
    CU_ASSERT_EQUAL(plx_attach_collect(attach, &(struct plx_attach_work){0}, &collected, &fault),
                    PLX_ERR_REGISTRY);
    CU_ASSERT_EQUAL(collected.swept, 0);
}

/* The slot's earlier disk came back, or the registry does not know the present one: that is not to
 * be told, so nothing goes on. A rebuild refuses the one and counts the other as lost. */
static void test_earlier(void)
{
    struct plx_registry_vdi row;
    struct plx_rebuilt rebuilt;
    struct plx_vdi *vdi;
    size_t count;
    bool older;

    bring_earlier_back();
    open_attach();
    refuse_disk("kept", PLX_ERR_REGISTRY);
    check_doubt();
    close_attach();
    for (int i = 0; i < 2; i++) {
        rebuilt = rebuild(false);
        CU_ASSERT(rebuilt.lost_records == 1 && rebuilt.older_records == 1);
        open_attach();
        CU_ASSERT_EQUAL(lost_count(), 1);
        refuse_disk("gone-slot-0", PLX_ERR_CORRUPT);
        write_disk("gone", 2);
        write_disk("other", 3);
        close_attach();
    }
    open_attach();
    OK(is_older("gone-slot-0", &row, &older));
    refuse_older(&row, PLX_ERR_DOUBT); /* what the lost one had is not known */
    OK(plx_attach_forget_lost(attach, &count, &fault));
    accept_older(&row);
    close_attach();
    CU_ASSERT_EQUAL(rebuild(false).older_records, 0);
    open_attach();
    OK(open_disk("gone-slot-0", &vdi));
    OK(plx_attach_vdi_close(attach, vdi));
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

static void test_earlier_collected(void)
{
    struct plx_collected collected;

    bring_earlier_back();
    open_attach();
    CU_ASSERT_EQUAL(plx_attach_collect(attach, &(struct plx_attach_work){0}, &collected, &fault),
                    PLX_ERR_REGISTRY);
    check_doubt();
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

/* As bring_earlier_back(), with snapshots. */
static void bring_earlier_back_labelled(void)
{
    uint8_t before[RECORD_BYTES];
    struct plx_collected collected;

    OK(make_store());
    open_attach();
    create("gone");
    label_disk("gone", "first");
    close_attach();
    record(0, before, false);
    open_attach();
    OK(plx_attach_vdi_delete(attach, "gone", false, &fault));
    OK(plx_attach_collect(attach, &(struct plx_attach_work){0}, &collected, &fault));
    create("kept");
    create("other");
    label_disk("kept", "first");
    close_attach();
    record(0, before, true);
}

/* Nothing is cloned from what the slot's earlier disk had. */
static void test_earlier_cloned(void)
{
    struct plx_vdi_create_options options = {.name = "twin"};
    struct plx_registry_store store;
    struct plx_registry_vdi row;
    struct plx_vdi_info info;

    bring_earlier_back_labelled();
    open_attach();
    CU_ASSERT_EQUAL(plx_attach_vdi_create(attach, &options, "kept", "first", &info, &fault),
                    PLX_ERR_REGISTRY);
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "slot 0 of the store holds another one (gone)"));
    plx_attach_row(attach, &store);
    CU_ASSERT_EQUAL(plx_registry_vdi_get(plx_attach_registry(attach), store.id, "twin", &row),
                    PLX_ERR_NOT_FOUND);
    check_doubt();
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

/* Nor is an instant of it read, or looked for, and who does so notes that, though he only reads. */
static void read_earlier(const char *snapshot)
{
    struct plx_attach_options options = {
        .store = "s", .state_dir = folder, .role = "admin", .read_only = true};
    struct plx_attach_vdi_options none = {.overwrite = -1};
    struct plx_vdi *vdi;

    bring_earlier_back_labelled();
    OK(plx_attach_open(&options, &attach, &fault));
    CU_ASSERT_EQUAL(plx_attach_vdi_open(attach, "kept", snapshot, &none, &vdi, &fault),
                    PLX_ERR_REGISTRY);
    close_attach();
    open_attach();
    check_doubt();
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

static void test_earlier_read(void)
{
    read_earlier("first");
    read_earlier("0");
    read_earlier("-0s");
}

/* Nor is the present one taken for gone. */
static void test_earlier_given_up(void)
{
    bring_earlier_back();
    open_attach();
    CU_ASSERT_EQUAL(plx_attach_vdi_delete(attach, "kept", true, &fault), PLX_ERR_REGISTRY);
    check_doubt();
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

/* Between the registry's row and the slot: another process deletes the disk, and makes one there.
 */
static void take_slot(void *context)
{
    bool *taken = context;
    struct plx_attach *reader = attach;
    struct plx_collected collected;

    if (*taken)
        return;
    *taken = true;
    open_attach();
    OK(plx_attach_vdi_delete(attach, "gone", false, &fault));
    OK(plx_attach_collect(attach, &(struct plx_attach_work){0}, &collected, &fault));
    create("new");
    close_attach();
    attach = reader;
}

static void leave_slot(void *context)
{
}

/* That is no doubt. */
static void test_slot_taken(void)
{
    bool taken = true;
    struct plx_attach_options options = {.store = "s",
                                         .state_dir = folder,
                                         .role = "admin",
                                         .lock = take_slot,
                                         .unlock = leave_slot,
                                         .context = &taken};
    struct plx_vdi_create_options twin = {.name = "twin"};
    struct plx_registry_store store;
    struct plx_registry_vdi row;
    struct plx_vdi_info info;

    OK(make_store());
    open_attach();
    create("gone");
    label_disk("gone", "first");
    close_attach();
    OK(plx_attach_open(&options, &attach, &fault));
    taken = false;
    CU_ASSERT_EQUAL(plx_attach_vdi_create(attach, &twin, "gone", "first", &info, &fault),
                    PLX_ERR_NOT_FOUND);
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "/gone has just been deleted"));
    store_row(&store);
    CU_ASSERT_EQUAL(store.doubt[0], 0);
    OK(plx_registry_vdi_get(plx_attach_registry(attach), store.id, "new", &row));
    CU_ASSERT_EQUAL(row.slot, 0);
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

/* The name in a record becomes another one, in both slots. */
static void forge_name(uint32_t slot, const char *name)
{
    uint8_t bytes[RECORD_BYTES];
    struct plx_vdi_record disk;
    struct plx_uuid store;

    record(slot, bytes, false);
    memcpy(store.b, bytes + 16, sizeof store.b);
    for (size_t at = 0; at < RECORD_BYTES; at += PLX_BLOCK_SIZE) {
        OK(plx_format_vdi_record_decode(bytes + at, &store, slot, PLX_ADDR_MAX, &disk, &fault));
        snprintf(disk.name, sizeof disk.name, "%s", name);
        plx_format_vdi_record_encode(&store, &disk, bytes + at);
    }
    record(slot, bytes, true);
}

/* Then the records' names count in a rebuild (REBUILD-17). */
static void doubt_registry(void)
{
    struct plx_registry_store store;

    store_row(&store);
    OK(plx_registry_doubt(plx_attach_registry(attach), store.id, "it went back"));
}

/* Whatever names the records have, each disk can be reached behind a rebuild (REBUILD-10). */
static void test_names(void)
{
    struct plx_registry_vdi row;
    char name[256];
    bool older;

    OK(make_store());
    open_attach();
    create("zero");
    create("one");
    create("two");
    create("zero-slot-1-1");
    fill("zero", 0, 1);
    fill("one", 0, 2);
    fill("two", 0, 3);
    fill("zero-slot-1-1", 0, 4);
    OK(is_older("two", &row, &older));
    snprintf(name, sizeof name, "vdi-%s", row.id);
    doubt_registry();
    close_attach();
    forge_name(1, "zero");
    forge_name(2, "two\033; rm");
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL(rebuild(false).lost_records, 0);
        open_attach();
        CU_ASSERT(holds("zero", 0, 1));
        CU_ASSERT(holds("zero-slot-1-1-slot-1-2", 0, 2));
        CU_ASSERT(holds(name, 0, 3));
        CU_ASSERT(holds("zero-slot-1-1", 0, 4));
        if (i)
            doubt_registry();
        close_attach();
    }
    /* Two names of which only the end would tell them apart, and the end is cut. */
    memset(name, 'x', 200);
    snprintf(name + 200, sizeof name - 200, "-slot-1");
    forge_name(0, name);
    forge_name(1, name);
    CU_ASSERT_EQUAL(rebuild(false).lost_records, 0);
    CU_ASSERT_EQUAL(drop_store(), 0);
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"a forgotten disk and a rebuild", test_forgotten_rebuilt},
        {"a record that went back and a rebuild", test_older_rebuilt},
        {"an extent of a deleted disk that is used again, and a rebuild", test_reused_and_rebuilt},
        {"a slot's earlier disk, and a rebuild", test_earlier},
        {"a slot's earlier disk, and a collection", test_earlier_collected},
        {"a slot's earlier disk, and a clone", test_earlier_cloned},
        {"a slot's earlier disk, and an instant", test_earlier_read},
        {"a slot's earlier disk, and the present one given up", test_earlier_given_up},
        {"a slot that another disk gets meanwhile", test_slot_taken},
        {"names that the registry would not take", test_names},
    };

    return SUITE_RUN("doors: rebuilt", tests);
}
