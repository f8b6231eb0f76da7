/* test_registry.c - the registry: every call. Several at once are in test_registry_race.c,
 * migration and damage in test_registry_opening.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "attach/attach.h"
#include "registry/holds.h"
#include "registry/policy.h"
#include "registry/threshold.h"
#include "registry/sql.h"
#include "suite.h"
#include "unit/cluster.h"
#include "unit/fresh_registry.h"

static struct plx_instance racers;

/* ---- Names and paths --------------------------------------------------------------------- */

static void test_names(void)
{
    static const struct {
        const char *kind, *name;
        int code;
    } cases[] = {
        {"store", "demo", 0},
        {"store", "0.a_b-c", 0},
        {"store", "", PLX_ERR_INVALID},
        {"store", "-a", PLX_ERR_INVALID},
        {"store", "a/b", PLX_ERR_INVALID},
        {"store", "a b", PLX_ERR_INVALID},
        {"store", "a\xc3\xa4", PLX_ERR_INVALID},
        {"store", "12345678-1234-4234-8234-123456789abc", PLX_ERR_INVALID},
        {"vdi", "12345678-1234-4234-8234-123456789abc", 0},
        {"vdi", "a@b", PLX_ERR_INVALID},
        {"vdi", "..", PLX_ERR_INVALID},
        {"label", "before-upgrade", 0},
        {"label", "20261121T062000.010Z", PLX_ERR_INVALID},
        {"label", "17", PLX_ERR_INVALID},
        {"label", "a.b", 0},
        {"label", "a..b", PLX_ERR_INVALID},
        {"vdi", "a..b", 0},
    };
    char why[160], name[301];
    static const struct {
        const char *kind;
        size_t max;
    } lengths[] = {{"store", 63}, {"vdi", 255}, {"label", 127}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        why[0] = 0;
        CU_ASSERT_EQUAL(plx_name_check(cases[i].kind, cases[i].name, why, sizeof why),
                        cases[i].code);
        CU_ASSERT_EQUAL(why[0] != 0, cases[i].code != 0);
    }
    memset(name, 'x', sizeof name);
    for (size_t i = 0; i < 3; i++) {
        name[lengths[i].max] = 0;
        CU_ASSERT_EQUAL(plx_name_check(lengths[i].kind, name, why, sizeof why), 0);
        name[lengths[i].max] = 'x';
        name[lengths[i].max + 1] = 0;
        FAILS(INVALID, plx_name_check(lengths[i].kind, name, why, sizeof why));
        name[lengths[i].max + 1] = 'x';
    }
    CU_ASSERT(plx_uuid_parse(store.uuid, NULL));
    FAILS(INVALID, plx_label_check("import-unfinished", why, sizeof why)); /* NAMES-2 */
    FAILS(INVALID, plx_label_check("before-rewind-x", why, sizeof why));
    FAILS(INVALID, plx_label_check("17", why, sizeof why));
    OK(plx_label_check("imported", why, sizeof why));
}

static void test_paths(void)
{
    struct plx_paths again;
    char path[PLX_PATH_MAX + 32];
    struct stat st;
    FILE *file;

    OK(plx_paths_init(&again, directory, &fault));
    CU_ASSERT_STRING_EQUAL(again.host, paths.host);
    CU_ASSERT(stat(paths.run, &st) != 0); /* nothing is made for who only reads */
    OK(plx_paths_make_control(&again, &fault));
    CU_ASSERT_EQUAL(stat(paths.run, &st), 0);
    CU_ASSERT_EQUAL(st.st_mode & 0777, 0700);
    CU_ASSERT_EQUAL(stat(registry_path, &st), 0);
    CU_ASSERT_EQUAL(st.st_mode & 0777, 0600);
    setenv("PARALLAX_STATE_DIR", directory, 1);
    OK(plx_paths_init(&again, NULL, &fault));
    unsetenv("PARALLAX_STATE_DIR");
    CU_ASSERT_STRING_EQUAL(again.state, paths.state);
    FAILS(SYSTEM, plx_paths_init(&again, "/dev/null", &fault));
    OK(plx_paths_init(&again, "/nonexistent/below", &fault));
    CU_ASSERT_STRING_EQUAL(again.state, "/nonexistent/below");
    FAILS(SYSTEM, plx_paths_make_state(&again, &fault));
    FAILS(SYSTEM, plx_paths_make_control(&again, &fault));
    snprintf(path, sizeof path, "%s/host-id", paths.state);
    file = fopen(path, "w");
    fputs("garbage\n", file);
    fclose(file);
    FAILS(INVALID, plx_paths_init(&again, directory, &fault));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "host-id"));
    CU_ASSERT(truncate(path, 0) == 0);
    FAILS(INVALID, plx_paths_init(&again, directory, &fault));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "host-id"));
}

/* ---- Stores, volumes, instances ---------------------------------------------------------- */

static void test_stores(void)
{
    struct plx_registry_store found = store, *list;
    struct plx_registry_volume *volumes, volume;
    struct plx_instance instance;
    size_t count;

    OK(plx_registry_store_get(reg, "demo", &found));
    CU_ASSERT_EQUAL(found.id, store.id);
    OK(plx_registry_store_get(reg, store.uuid, &found));
    CU_ASSERT_STRING_EQUAL(found.name, "demo");
    FAILS(NOT_FOUND, plx_registry_store_get(reg, "nosuch", &found));
    FAILS(EXISTS,
          plx_registry_store_create(
              reg, &store,
              &(struct plx_registry_volume){
                  .uuid = "12345678-1234-4234-8234-123456789abc", .path = "/x", .extents = 4},
              1, NULL));
    OK(plx_registry_volume_list(reg, store.id, &volumes, &count));
    CU_ASSERT_EQUAL(count, 2);
    CU_ASSERT_STRING_EQUAL(volumes[1].path, "/dev/demo1");
    volume = volumes[1];
    free(volumes);
    FAILS(EXISTS, plx_registry_volume_add(reg, store.id, &volume));
    volume.index = 2;
    volume.first_extent = 16;
    FAILS(EXISTS, plx_registry_volume_add(reg, store.id, &volume));
    plx_uuid_random(volume.uuid);
    volume.first_extent = 17;
    FAILS(INVALID, plx_registry_volume_add(reg, store.id, &volume)); /* not where the others end */
    volume.first_extent = 16;
    OK(plx_registry_volume_add(reg, store.id, &volume));
    OK(plx_registry_volume_set_path(reg, store.id, 2, "iscsi://10.0.0.1/iqn.x/0"));
    FAILS(NOT_FOUND, plx_registry_volume_set_path(reg, store.id, 3, "/x"));
    OK(plx_registry_volume_list(reg, store.id, &volumes, &count));
    CU_ASSERT_EQUAL(count, 3);
    CU_ASSERT_STRING_EQUAL(volumes[2].path, "iscsi://10.0.0.1/iqn.x/0");
    CU_ASSERT_EQUAL(volumes[2].touched, 1);
    free(volumes);

    make_store("another", 1, 4);
    OK(plx_registry_store_list(reg, &list, &count));
    CU_ASSERT_EQUAL(count, 2);
    CU_ASSERT_STRING_EQUAL(list[0].name, "another");
    free(list);

    instance = new_instance();
    FAILS(EXISTS, plx_registry_instance_register(reg, &instance.row));
    plx_instance_close(&instance);
}

static void test_bad_input(void)
{
    struct plx_registry_store spec = {.name = "x", .extent_blocks = 1}, untouched = {.id = 77};
    struct plx_registry_volume volume = {.path = "/x", .extents = 4};
    struct plx_registry_vdi vdi = vdi_spec("a/b", 0), made = {.slot = 77};

    plx_uuid_random(volume.uuid);
    FAILS(INVALID, plx_registry_store_create(reg, &spec, &volume, 1, &untouched));
    plx_uuid_random(spec.uuid);
    FAILS(INVALID, plx_registry_store_create(reg, &spec, &volume, 0, &untouched));
    volume.first_extent = 1;
    FAILS(INVALID, plx_registry_store_create(reg, &spec, &volume, 1, &untouched));
    volume.first_extent = 0;
    spec.extent_blocks = UINT64_MAX; /* does not fit 63 bits */
    FAILS(INVALID, plx_registry_store_create(reg, &spec, &volume, 1, &untouched));
    strcpy(spec.name, "two words");
    FAILS(INVALID, plx_registry_store_create(reg, &spec, &volume, 1, &untouched));
    CU_ASSERT_EQUAL(untouched.id, 77);
    FAILS(NOT_FOUND, plx_registry_store_get(reg, "x", &untouched));

    FAILS(INVALID, plx_registry_vdi_create(reg, &vdi, 64, &made));
    vdi = vdi_spec("web", 0);
    vdi.size_bytes = 0;
    FAILS(INVALID, plx_registry_vdi_create(reg, &vdi, 64, &made));
    vdi.size_bytes = 300ull << 40;
    FAILS(INVALID, plx_registry_vdi_create(reg, &vdi, 64, &made));
    vdi = vdi_spec("web", 4711); /* no such instance */
    FAILS(NOT_FOUND, plx_registry_vdi_create(reg, &vdi, 64, &made));
    vdi = vdi_spec("web", 0);
    vdi.sector_size = 520;
    FAILS(INVALID, plx_registry_vdi_create(reg, &vdi, 64, &made));
    CU_ASSERT_EQUAL(made.slot, 77);
}

/* ---- Extents ----------------------------------------------------------------------------- */

static void expect_room(uint64_t keep_unused, uint64_t limit, uint64_t expected)
{
    uint64_t blocks = 0;

    OK(plx_registry_extent_room(reg, store.id, keep_unused, limit, &blocks));
    CU_ASSERT_EQUAL(blocks, expected);
}

static void test_extents(void)
{
    struct plx_instance a = new_instance(), b = new_instance();
    struct plx_registry_extent extent, other, *list;
    struct plx_registry_extent_counts counts;
    static const char back[] = "UPDATE volumes SET touched = touched - 1 WHERE idx = 0";
    const struct plx_sql older = {.text = back};
    uint64_t torn;
    size_t count;
    bool fresh;

    /* 16 extents, 0 and 8 the system's. A reserve of 13 leaves one for data. */
    OK(plx_registry_extent_claim(reg, store.id, a.row.id, PLX_EXTENT_DATA, 13, &extent, &fresh));
    CU_ASSERT(fresh && extent.no == 1 && extent.generation == 1 && extent.owner == a.row.id);
    FAILS(NOSPACE,
          plx_registry_extent_claim(reg, store.id, a.row.id, PLX_EXTENT_DATA, 13, &other, &fresh));
    OK(plx_registry_extent_claim(reg, store.id, b.row.id, PLX_EXTENT_META, 0, &other, &fresh));
    CU_ASSERT(fresh && other.no == 2 && other.type == PLX_EXTENT_META);
    FAILS(NOT_FOUND,
          plx_registry_extent_claim(reg, store.id, 4711, PLX_EXTENT_META, 0, &other, &fresh));

    /* An owner's extent is released by nobody else; then the next of its type gets it. */
    other = extent;
    other.owner = b.row.id;
    FAILS(FENCED, plx_registry_extent_release(reg, store.id, &other));
    FAILS(BUSY, plx_registry_instance_unregister(reg, a.row.id));
    FAILS(BUSY, plx_registry_extent_take(reg, store.id, 1, 0, b.row.id, &other));
    FAILS(INVALID, plx_registry_extent_take(reg, store.id, 0, 0, b.row.id, &other));
    FAILS(NOT_FOUND, plx_registry_extent_take(reg, store.id, 7, 0, b.row.id, &other));
    extent.free_blocks = 10;
    OK(plx_registry_extent_release(reg, store.id, &extent));
    FAILS(FENCED, plx_registry_extent_release(reg, store.id, &extent));
    /* Unused there are 12 now, of 1024 blocks. */
    expect_room(10, 5, 2 * 1024 + 10);
    expect_room(10, 1, 1024 + 10);
    expect_room(12, 5, 10);
    expect_room(13, 5, 10);
    OK(plx_registry_extent_claim(reg, store.id, b.row.id, PLX_EXTENT_DATA, 13, &other, &fresh));
    CU_ASSERT(!fresh && other.no == 1 && other.generation == 2 && other.free_blocks == 10);

    /* Sealed: not given out, but taken by number. */
    other.sealed = true;
    other.free_blocks = 0;
    OK(plx_registry_extent_release(reg, store.id, &other));
    OK(plx_registry_extent_count(reg, store.id, &counts));
    CU_ASSERT(counts.total == 16 && counts.unused == 12 && counts.system == 2);
    CU_ASSERT(counts.data == 1 && counts.meta == 1 && counts.owned == 1 && counts.sealed == 1);
    OK(plx_registry_extent_claim(reg, store.id, a.row.id, PLX_EXTENT_DATA, 0, &extent, &fresh));
    CU_ASSERT(fresh && extent.no == 3);
    OK(plx_registry_extent_take(reg, store.id, 1, 0, a.row.id, &other));
    CU_ASSERT(other.generation == 3 && !other.sealed && other.owner == a.row.id);
    OK(plx_registry_extent_take(reg, store.id, 1, a.row.id, b.row.id, &other)); /* a is dead */
    CU_ASSERT(other.generation == 4 && other.owner == b.row.id);

    /* Emptied: unused again, for any type, with its generation. */
    other.type = PLX_EXTENT_UNUSED;
    OK(plx_registry_extent_release(reg, store.id, &other));
    OK(plx_registry_extent_claim(reg, store.id, b.row.id, PLX_EXTENT_META, 0, &other, &fresh));
    CU_ASSERT(fresh && other.generation == 5);

    for (int i = 0; i < 11; i++) /* the rest, over the system extent of volume 1 */
        OK(plx_registry_extent_claim(reg, store.id, b.row.id, PLX_EXTENT_DATA, 0, &extent, &fresh));
    FAILS(NOSPACE,
          plx_registry_extent_claim(reg, store.id, b.row.id, PLX_EXTENT_META, 0, &extent, &fresh));
    OK(plx_registry_extent_list(reg, store.id, b.row.id, &list, &count));
    CU_ASSERT_EQUAL(count, 13);
    for (size_t i = 0; i < count; i++)
        CU_ASSERT(list[i].no != 0 && list[i].no != 8 && list[i].owner == b.row.id);
    free(list);
    OK(plx_registry_extent_list(reg, store.id, PLX_REGISTRY_ANY, &list, &count));
    CU_ASSERT_EQUAL(count, 16);
    free(list);
    OK(plx_registry_check(reg));

    /* The page of the table `volumes` is older than that of `extents`: whole for SQLite. */
    OK(plx_registry_extent_torn_ranges(reg, store.id, &torn));
    CU_ASSERT_EQUAL(torn, 0);
    OK(plx_sql_change(reg, &older, 1, NULL, NULL));
    OK(plx_registry_check(reg));
    OK(plx_registry_extent_torn_ranges(reg, store.id, &torn));
    CU_ASSERT_EQUAL(torn, 1);
    FAILS(REGISTRY,
          plx_registry_extent_claim(reg, store.id, b.row.id, PLX_EXTENT_META, 0, &extent, &fresh));
    plx_instance_close(&a);
    plx_instance_close(&b);
}

/* ---- Virtual disks ----------------------------------------------------------------------- */

static void test_vdis(void)
{
    struct plx_instance a = new_instance();
    struct plx_registry_vdi web = new_vdi("web", a.row.id), db = new_vdi("db", 0), found, *list;
    struct plx_registry_vdi spec = vdi_spec("web", 0);
    struct plx_registry_lock lock = {.instance = a.row.id, .epoch = 1};
    size_t count;

    strcpy(lock.vdi, web.id);
    CU_ASSERT(web.slot == 0 && web.epoch == 1 && web.owner == a.row.id);
    CU_ASSERT(db.slot == 1 && db.epoch == 0 && db.owner == 0);
    FAILS(EXISTS, plx_registry_vdi_create(reg, &spec, 64, &found));
    spec = vdi_spec("full", 0);
    FAILS(NOSPACE, plx_registry_vdi_create(reg, &spec, 2, &found));
    OK(plx_registry_vdi_get(reg, store.id, "web", &found));
    CU_ASSERT_STRING_EQUAL(found.id, web.id);
    FAILS(NOT_FOUND, plx_registry_vdi_get(reg, store.id, "nosuch", &found));
    OK(plx_registry_vdi_resize(reg, &lock, 2 << 20));
    FAILS(INVALID, plx_registry_vdi_resize(reg, &lock, 0));
    FAILS(EXISTS, plx_registry_vdi_rename(reg, &lock, "db"));
    FAILS(INVALID, plx_registry_vdi_rename(reg, &lock, "d/b"));
    OK(plx_registry_vdi_rename(reg, &lock, "www"));
    OK(plx_registry_vdi_get(reg, store.id, "www", &found));
    CU_ASSERT_EQUAL(found.size_bytes, 2 << 20);
    OK(plx_registry_vdi_list(reg, store.id, false, NULL, 1, &list, &count));
    CU_ASSERT(count == 1 && !strcmp(list[0].name, "db"));
    free(list);
    OK(plx_registry_vdi_list(reg, store.id, false, "db", 5, &list, &count));
    CU_ASSERT(count == 1 && !strcmp(list[0].name, "www"));
    free(list);

    /* Deleted: the name is free, the slot is not until the purge, which clones hold up. */
    FAILS(BUSY, plx_registry_vdi_purge(reg, web.id));
    OK(plx_registry_vdi_delete(reg, &lock));
    FAILS(NOT_FOUND, plx_registry_vdi_get(reg, store.id, "www", &found));
    FAILS(BUSY, plx_registry_vdi_purge(reg, web.id));
    OK(plx_registry_vdi_unlock(reg, &lock, NULL));
    FAILS(NOT_FOUND, plx_registry_vdi_lock(reg, web.id, a.row.id, &lock));
    spec = vdi_spec("www", 0);
    strcpy(spec.parent, web.id);
    spec.parent_seq = 3;
    OK(plx_registry_vdi_create(reg, &spec, 64, &found));
    CU_ASSERT(found.slot == 2 && found.parent_seq == 3 && !strcmp(found.parent, web.id));
    FAILS(BUSY, plx_registry_vdi_purge(reg, web.id));
    OK(plx_registry_vdi_list(reg, store.id, true, NULL, 0, &list, &count));
    CU_ASSERT(count == 1 && list[0].deleted);
    free(list);
    OK(plx_registry_vdi_lock(reg, found.id, a.row.id, &lock));
    OK(plx_registry_vdi_delete(reg, &lock));
    OK(plx_registry_vdi_unlock(reg, &lock, NULL));
    OK(plx_registry_vdi_purge(reg, found.id));
    OK(plx_registry_vdi_purge(reg, web.id));
    CU_ASSERT_EQUAL(new_vdi("next", 0).slot, 0);
    CU_ASSERT_EQUAL(new_vdi("last", 0).slot, 2);
    OK(plx_registry_instance_unregister(reg, a.row.id));
    FAILS(NOT_FOUND, plx_registry_instance_unregister(reg, a.row.id));
    plx_instance_close(&a);
}

/* kept.c: nobody sees what is put off, all see it with the change after it, and each gets its own
 * answer. */
static void test_put_off(void)
{
    struct plx_instance a = new_instance(), later;
    struct plx_registry_vdi web = new_vdi("web", 0), mail = new_vdi("mail", 0), row;
    struct plx_registry_lock lock, second;
    struct plx_registry_instance found;
    struct plx_registry *other;

    OK(open_registry(registry_path, "other", &other, &fault));
    OK(plx_instance_create(&paths, registry_path, "handler", &later, &fault));
    later.row.store = store.id;

    /* Unseen, and taken back. */
    plx_registry_put_off(reg, PLX_PUT_OFF_UNSEEN);
    OK(plx_registry_instance_register(reg, &later.row));
    FAILS(NOT_FOUND, plx_registry_instance_get(reg, later.row.id, &found));
    CU_ASSERT(plx_registry_take_back(reg) && !plx_registry_take_back(reg));
    OK(plx_registry_vdi_lock(reg, web.id, a.row.id, &lock));
    FAILS(NOT_FOUND, plx_registry_instance_get(reg, later.row.id, &found));

    /* With the next change, of which its own row comes back; a refusal of that leaves it waiting.
     */
    plx_registry_put_off(reg, PLX_PUT_OFF_UNSEEN);
    OK(plx_registry_instance_register(reg, &later.row));
    FAILS(BUSY, plx_registry_vdi_lock(reg, web.id, later.row.id, &second));
    OK(plx_registry_vdi_lock(reg, mail.id, later.row.id, &second));
    CU_ASSERT(second.epoch == 1 && !plx_registry_take_back(reg));
    OK(plx_registry_instance_get(other, later.row.id, &found));

    /* Who reads by the handle reads it made; others do from then on. */
    plx_registry_put_off(reg, PLX_PUT_OFF);
    OK(plx_registry_vdi_unlock(reg, &lock, NULL));
    OK(plx_registry_vdi_get_by_id(other, web.id, &row));
    CU_ASSERT_EQUAL(row.owner, a.row.id);
    OK(plx_registry_vdi_get_by_id(reg, web.id, &row));
    CU_ASSERT_EQUAL(row.owner, 0);
    OK(plx_registry_vdi_get_by_id(other, web.id, &row));
    CU_ASSERT_EQUAL(row.owner, 0);

    /* What is refused itself does not keep the next one from being made. */
    plx_registry_put_off(reg, PLX_PUT_OFF);
    OK(plx_registry_vdi_unlock(reg, &lock, NULL));
    OK(plx_registry_vdi_resize(reg, &second, 4096));
    OK(plx_registry_vdi_get_by_id(other, mail.id, &row));
    CU_ASSERT_EQUAL(row.size_bytes, 4096);

    /* Nor is one lost that is refused for the sake of the next: a name that is taken. */
    plx_registry_put_off(reg, PLX_PUT_OFF);
    OK(plx_registry_vdi_unlock(reg, &second, NULL));
    row = vdi_spec("mail", 0);
    FAILS(EXISTS, plx_registry_vdi_create(reg, &row, 64, &row));
    OK(plx_registry_vdi_get_by_id(other, mail.id, &row));
    CU_ASSERT_EQUAL(row.owner, 0);

    close_registry(other);
    plx_instance_close(&later);
    plx_instance_close(&a);
}

/* The driver, but for changes that fail. */
static const struct plx_registry_ops *real_ops;
static unsigned to_fail;
static bool made_nevertheless;

static int failing_run(void *driver, bool change, const struct plx_sql *batch, size_t count,
                       void (*row)(void *context, const struct plx_sql_value *columns,
                                   size_t columns_count),
                       void *context, struct plx_fault *ret_fault)
{
    if (!change || !to_fail)
        return real_ops->run(driver, change, batch, count, row, context, ret_fault);
    to_fail--;
    if (made_nevertheless)
        OK(real_ops->run(driver, change, batch, count, row, context, ret_fault));
    return plx_fault_set(ret_fault, PLX_ERR_REGISTRY, "a commit that nobody knows of");
}

static uint64_t owner_seen_by(struct plx_registry *by, const struct plx_registry_vdi *vdi)
{
    struct plx_registry_vdi row;

    OK(plx_registry_vdi_get_by_id(by, vdi->id, &row));
    return row.owner;
}

/* KEPT-3: of three disks that are closed together one was taken over, and commits fail. */
static void test_put_off_fails(void)
{
    struct plx_instance a = new_instance(), b = new_instance();
    struct plx_registry_vdi vdi[] = {new_vdi("web", 0), new_vdi("mail", 0), new_vdi("db", 0)};
    struct plx_registry_lock locks[3], taken;
    struct plx_registry_ops failing;
    struct plx_registry *other;

    OK(open_registry(registry_path, "other", &other, &fault));
    real_ops = reg->ops;
    failing = *real_ops;
    failing.run = failing_run;
    reg->ops = &failing;

    /* One that is refused takes no other one along. */
    for (unsigned i = 0; i < 3; i++)
        OK(plx_registry_vdi_lock(reg, vdi[i].id, a.row.id, &locks[i]));
    OK(plx_registry_vdi_takeover(other, &locks[1], b.row.id, &taken));
    for (unsigned i = 0; i < 3; i++) {
        plx_registry_put_off(reg, PLX_PUT_OFF);
        OK(plx_registry_vdi_unlock(reg, &locks[i], NULL));
    }
    FAILS(FENCED, plx_registry_settle(reg));
    CU_ASSERT_FALSE(plx_registry_is_behind(reg));
    CU_ASSERT_EQUAL(owner_seen_by(other, &vdi[0]), 0);
    CU_ASSERT_EQUAL(owner_seen_by(other, &vdi[1]), b.row.id);
    CU_ASSERT_EQUAL(owner_seen_by(other, &vdi[2]), 0);
    OK(plx_registry_vdi_unlock(other, &taken, NULL));

    /* What fails is tried again: before each read, by hand, and with the next change. */
    for (unsigned i = 0; i < 3; i++)
        OK(plx_registry_vdi_lock(reg, vdi[i].id, a.row.id, &locks[i]));
    for (unsigned i = 0; i < 2; i++) {
        plx_registry_put_off(reg, PLX_PUT_OFF);
        OK(plx_registry_vdi_unlock(reg, &locks[i], NULL));
    }
    to_fail = 2;
    FAILS(REGISTRY, plx_registry_settle(reg));
    CU_ASSERT_TRUE(plx_registry_is_behind(reg));
    CU_ASSERT_EQUAL(owner_seen_by(reg, &vdi[0]), a.row.id);
    CU_ASSERT_EQUAL(owner_seen_by(reg, &vdi[0]), 0);
    CU_ASSERT_EQUAL(owner_seen_by(other, &vdi[1]), 0);
    CU_ASSERT_FALSE(plx_registry_is_behind(reg));

    /* What was made nevertheless is refused then: it is no news, and keeps nothing else back. */
    plx_registry_put_off(reg, PLX_PUT_OFF);
    OK(plx_registry_vdi_unlock(reg, &locks[2], NULL));
    to_fail = 1;
    made_nevertheless = true;
    FAILS(REGISTRY, plx_registry_settle(reg));
    CU_ASSERT_EQUAL(owner_seen_by(other, &vdi[2]), 0);
    OK(plx_registry_settle(reg));
    CU_ASSERT_FALSE(plx_registry_is_behind(reg));
    OK(plx_registry_vdi_lock(reg, vdi[2].id, a.row.id, &locks[2]));
    plx_registry_put_off(reg, PLX_PUT_OFF);
    OK(plx_registry_vdi_unlock(reg, &locks[2], NULL));
    to_fail = 1;
    FAILS(REGISTRY, plx_registry_vdi_lock(reg, vdi[0].id, a.row.id, &locks[0]));
    OK(plx_registry_vdi_lock(reg, vdi[1].id, a.row.id, &locks[1]));
    CU_ASSERT_EQUAL(owner_seen_by(other, &vdi[2]), 0);
    CU_ASSERT_EQUAL(owner_seen_by(other, &vdi[1]), a.row.id);

    made_nevertheless = false;
    reg->ops = real_ops;
    close_registry(other);
    plx_instance_close(&b);
    plx_instance_close(&a);
}

static void test_locks(void)
{
    struct plx_instance a = new_instance(), b = new_instance();
    struct plx_registry_vdi vdi = new_vdi("web", 0), *list;
    struct plx_registry_lock lock, second, taken;
    size_t count;

    OK(plx_registry_vdi_lock(reg, vdi.id, a.row.id, &lock));
    CU_ASSERT(lock.epoch == 1 && lock.instance == a.row.id);
    FAILS(BUSY, plx_registry_vdi_lock(reg, vdi.id, b.row.id, &second));
    CU_ASSERT_PTR_NOT_NULL(strstr(plx_registry_error(reg), "in use by handler (pid"));
    FAILS(BUSY, plx_registry_vdi_lock(reg, vdi.id, a.row.id, &second)); /* not twice either */
    FAILS(NOT_FOUND, plx_registry_vdi_lock(reg, "nosuch", a.row.id, &second));
    OK(plx_registry_locks_of(reg, a.row.id, &list, &count));
    CU_ASSERT(count == 1 && !strcmp(list[0].id, vdi.id));
    free(list);
    FAILS(BUSY, plx_registry_instance_unregister(reg, a.row.id));

    /* INV-5: takeover names holder and epoch; the old holder's changes are refused from then on. */
    taken = lock;
    taken.epoch++;
    FAILS(FENCED, plx_registry_vdi_takeover(reg, &taken, b.row.id, &second));
    FAILS(NOT_FOUND, plx_registry_vdi_takeover(reg, &lock, 4711, &second));
    OK(plx_registry_vdi_takeover(reg, &lock, b.row.id, &second));
    CU_ASSERT(second.epoch == 2 && second.instance == b.row.id);
    FAILS(FENCED, plx_registry_vdi_takeover(reg, &lock, a.row.id, &taken));
    FAILS(FENCED, plx_registry_vdi_unlock(reg, &lock, NULL));
    FAILS(FENCED, plx_registry_vdi_resize(reg, &lock, 4096));
    FAILS(FENCED, plx_registry_vdi_delete(reg, &lock));
    FAILS(FENCED, plx_registry_label_set(reg, &lock, &(struct plx_registry_label){"gone", 1, 1}));
    OK(plx_registry_vdi_unlock(reg, &second, NULL));
    FAILS(FENCED, plx_registry_vdi_unlock(reg, &second, NULL));
    OK(plx_registry_vdi_lock(reg, vdi.id, a.row.id, &lock));
    CU_ASSERT_EQUAL(lock.epoch, 3);
    plx_instance_close(&a);
    plx_instance_close(&b);
}

static void test_labels(void)
{
    struct plx_protection protection, kept;
    struct plx_instance a = new_instance();
    struct plx_registry_vdi vdi = new_vdi("web", 0);
    struct plx_registry_label label = {"good", 7, 1000}, found, *list;
    struct plx_registry_event *events;
    struct plx_registry_lock lock;
    char value[PLX_POLICY_VALUE_MAX + 1];
    size_t count;

    OK(plx_registry_vdi_lock(reg, vdi.id, a.row.id, &lock));
    OK(plx_registry_label_set(reg, &lock, &label));
    FAILS(EXISTS, plx_registry_label_set(reg, &lock, &label));
    CU_ASSERT_PTR_NOT_NULL(strstr(plx_registry_error(reg), "snapshot 7"));
    label.seq = 3;
    strcpy(label.name, "better");
    OK(plx_registry_label_set(reg, &lock, &label));
    OK(plx_registry_label_list(reg, vdi.id, &list, &count));
    CU_ASSERT(count == 2 && list[0].seq == 3 && list[1].time_ns == 1000);
    free(list);
    OK(plx_registry_label_get(reg, vdi.id, "good", &found));
    CU_ASSERT_EQUAL(found.seq, 7);
    OK(plx_registry_label_remove(reg, &lock, "good"));
    FAILS(NOT_FOUND, plx_registry_label_remove(reg, &lock, "good"));
    FAILS(NOT_FOUND, plx_registry_label_get(reg, vdi.id, "good", &found));
    strcpy(label.name, "1st");
    FAILS(INVALID, plx_registry_label_set(reg, &lock, &label));

    OK(plx_registry_policy_set(reg, vdi.id, "retention", "10ms:1h"));
    OK(plx_registry_policy_set(reg, vdi.id, "retention", "1s:1d"));
    OK(plx_registry_policy_get(reg, vdi.id, "retention", value));
    CU_ASSERT_STRING_EQUAL(value, "1s:1d");
    OK(plx_registry_policy_set(reg, vdi.id, "retention", NULL));
    FAILS(NOT_FOUND, plx_registry_policy_get(reg, vdi.id, "retention", value));
    FAILS(NOT_FOUND, plx_registry_policy_set(reg, vdi.id, "retention", NULL));

    protection = (struct plx_protection){
        .mode = PLX_PROTECT_INTERVAL, .interval_ns = 10000000, .tiers = 1, .tier = {{0, 1000000}}};
    OK(plx_policy_keep(reg, vdi.id, &protection));
    OK(plx_policy_load(reg, vdi.id, &kept, &fault));
    CU_ASSERT(kept.mode == protection.mode && kept.interval_ns == protection.interval_ns);
    CU_ASSERT(kept.tiers == 1 && kept.tier[0].keep_ns == 1000000);
    OK(plx_policy_keep(reg, vdi.id, &(struct plx_protection){0}));
    FAILS(NOT_FOUND, plx_registry_policy_get(reg, vdi.id, PLX_POLICY_PROTECTION, value));
    OK(plx_policy_load(reg, vdi.id, &kept, &fault));
    CU_ASSERT(kept.mode == PLX_PROTECT_OFF && kept.tiers == 0);

    OK(plx_registry_event_add(reg, "fence", "host beta", "by the operator's word"));
    OK(plx_registry_event_list(reg, 1000, &events, &count));
    CU_ASSERT_FATAL(count > 5);
    CU_ASSERT_STRING_EQUAL(events[0].what, "store create");
    CU_ASSERT_STRING_EQUAL(events[count - 1].what, "fence");
    CU_ASSERT_STRING_EQUAL(events[count - 1].who, "test");
    for (size_t i = 0; i < count; i++) /* refused changes leave no event */
        CU_ASSERT(strcmp(events[i].what, "label set") || strcmp(events[i].detail, "1st"));
    free(events);
    plx_instance_close(&a);
}

/* ---- Protection as text ---- */

/* ---- Soft limits ---- */

static void test_threshold_text(void)
{
    static const char *const good[] = {"1%", "80%", "99%", "1", "85899345920"};
    static const char *const bad[] = {"",   "0",  "0%",   "100%", "%",
                                      "-1", "1G", "1.5%", "80%x", "12345678901234567890"};
    struct plx_threshold limit;
    char text[PLX_THRESHOLD_TEXT];

    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        CU_ASSERT(plx_threshold_parse(good[i], &limit));
        CU_ASSERT_STRING_EQUAL(plx_threshold_text(&limit, text), good[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CU_ASSERT_FALSE(plx_threshold_parse(bad[i], &limit));
}

static void test_threshold_crossing(void)
{
    const struct plx_threshold none = {0}, share = {.percent = 80}, size = {.bytes = 1000};

    CU_ASSERT_EQUAL(plx_threshold_at(&none, 5000), 0);
    CU_ASSERT_EQUAL(plx_threshold_at(&share, 5000), 4000);
    CU_ASSERT_EQUAL(plx_threshold_at(&share, 1ull << 50), 900719925474099);
    CU_ASSERT_EQUAL(plx_threshold_at(&size, 5000), 1000);
    CU_ASSERT_FALSE(plx_threshold_is_crossed(0, 5000, true));
    CU_ASSERT_FALSE(plx_threshold_is_crossed(1000, 999, false));
    CU_ASSERT(plx_threshold_is_crossed(1000, 1000, false));
    CU_ASSERT(plx_threshold_is_crossed(1000, 950, true));
    CU_ASSERT_FALSE(plx_threshold_is_crossed(1000, 949, true));
}

static void test_limits_kept(void)
{
    struct plx_registry_vdi vdi = new_vdi("web", 0);
    struct plx_threshold limit = {.percent = 80}, found = {.bytes = 1};
    char value[PLX_POLICY_VALUE_MAX + 1];

    OK(plx_threshold_load_store(reg, store.id, &found));
    CU_ASSERT(!found.percent && !found.bytes);
    OK(plx_threshold_keep_store(reg, store.id, &limit));
    OK(plx_threshold_load_store(reg, store.id, &found));
    CU_ASSERT_EQUAL(found.percent, 80);
    OK(plx_threshold_load_vdi(reg, vdi.id, &found));
    CU_ASSERT(!found.percent && !found.bytes);
    OK(plx_threshold_keep_vdi(reg, vdi.id, &(struct plx_threshold){.bytes = 4096}));
    OK(plx_threshold_load_vdi(reg, vdi.id, &found));
    CU_ASSERT_EQUAL(found.bytes, 4096);
    OK(plx_threshold_keep_store(reg, store.id, &(struct plx_threshold){0}));
    OK(plx_threshold_keep_store(reg, store.id, &(struct plx_threshold){0}));
    FAILS(NOT_FOUND, plx_registry_store_policy_get(reg, store.id, PLX_POLICY_WARN_AT, value));
    FAILS(NOT_FOUND, plx_threshold_keep_store(reg, store.id + 1, &limit));
    /* What cannot be understood is no limit. */
    OK(plx_registry_store_policy_set(reg, store.id, PLX_POLICY_WARN_AT, "soon"));
    OK(plx_threshold_load_store(reg, store.id, &found));
    CU_ASSERT(!found.percent && !found.bytes);
}

/* ---- Holds and intents ---- */

static int add_range(unsigned volume, uint64_t first, uint64_t extents)
{
    return plx_registry_range_add(reg, store.id,
                                  &(struct plx_registry_range){volume, first, extents});
}

static uint64_t claim_all(uint64_t instance)
{
    struct plx_registry_extent extent;
    uint64_t claimed = 0;
    bool fresh;

    while (plx_registry_extent_claim(reg, store.id, instance, PLX_EXTENT_META, 0, &extent,
                                     &fresh) == 0) {
        CU_ASSERT(fresh);
        claimed |= 1ull << extent.no;
    }
    return claimed;
}

/* Volumes of 8 extents each; what they become larger by goes on where all of them end. */
static void test_ranges(void)
{
    struct plx_registry_volume *volumes, volume = {.index = 2, .path = "/x", .extents = 4};
    struct plx_registry_extent_counts counts;
    struct plx_registry_range *list;
    struct plx_instance a = new_instance();
    uint64_t room;
    size_t count;

    CU_ASSERT_EQUAL(claim_all(a.row.id), 0xfefe);
    FAILS(INVALID, add_range(0, 17, 4));
    FAILS(INVALID, add_range(0, 15, 4));
    FAILS(INVALID, add_range(2, 16, 4)); /* there is none */
    FAILS(INVALID, add_range(0, 0, 9));  /* not the last */
    OK(add_range(0, 16, 4));
    OK(add_range(0, 16, 4)); /* again */
    OK(add_range(0, 16, 6)); /* it is the last now */
    CU_ASSERT_EQUAL(claim_all(a.row.id), 0x3full << 16);
    OK(add_range(1, 22, 4));
    FAILS(INVALID, add_range(0, 16, 7));
    plx_uuid_random(volume.uuid);
    volume.first_extent = 22;
    FAILS(INVALID, plx_registry_volume_add(reg, store.id, &volume));
    volume.first_extent = 26;
    OK(plx_registry_volume_add(reg, store.id, &volume));
    OK(plx_registry_range_list(reg, store.id, &list, &count));
    CU_ASSERT_EQUAL_FATAL(count, 5);
    for (size_t i = 0, first = 0; i < count; first += list[i++].extents)
        CU_ASSERT_EQUAL(list[i].first, first);
    CU_ASSERT(list[2].volume == 0 && list[3].volume == 1 && list[4].volume == 2);
    free(list);
    OK(plx_registry_volume_list(reg, store.id, &volumes, &count));
    CU_ASSERT_EQUAL_FATAL(count, 3);
    CU_ASSERT(volumes[0].extents == 14 && volumes[0].touched == 14);
    CU_ASSERT(volumes[1].extents == 12 && volumes[1].touched == 8);
    CU_ASSERT_STRING_EQUAL(volumes[1].path, "/dev/demo1");
    free(volumes);
    OK(plx_registry_extent_room(reg, store.id, 2, 100, &room));
    CU_ASSERT_EQUAL(room, 1024 * (4 + 3 - 2));
    OK(plx_registry_extent_count(reg, store.id, &counts));
    CU_ASSERT(counts.total == 30 && counts.system == 3 && counts.unused == 7);
    CU_ASSERT_EQUAL(claim_all(a.row.id), 0xfull << 22 | 0x7ull << 27);
    OK(plx_registry_check(reg));
    plx_instance_close(&a);
}

static void test_growth(void)
{
    struct plx_instance a = new_instance(), b = new_instance();
    char path[PLX_PATH_MAX];

    FAILS(NOT_FOUND, plx_registry_growth_begin(reg, store.id, 4711));
    OK(plx_registry_growth_begin(reg, store.id, a.row.id));
    OK(plx_registry_growth_begin(reg, store.id, a.row.id));
    FAILS(BUSY, plx_registry_growth_begin(reg, store.id, b.row.id));
    FAILS(NOT_FOUND, plx_registry_growth_path(reg, store.id, path));
    FAILS(FENCED, plx_registry_growth_join(reg, store.id, b.row.id, "/b"));
    OK(plx_registry_growth_join(reg, store.id, a.row.id, "/a"));
    OK(plx_registry_growth_end(reg, store.id, b.row.id)); /* not its own */
    OK(plx_registry_growth_path(reg, store.id, path));
    CU_ASSERT_STRING_EQUAL(path, "/a");
    OK(plx_registry_instance_unregister(reg, a.row.id)); /* it died */
    OK(plx_registry_growth_path(reg, store.id, path));
    OK(plx_registry_growth_begin(reg, store.id, b.row.id));
    OK(plx_registry_growth_path(reg, store.id, path));
    OK(plx_registry_growth_end(reg, store.id, b.row.id));
    FAILS(NOT_FOUND, plx_registry_growth_path(reg, store.id, path));
    OK(plx_registry_doubt(reg, store.id, "something newer was seen"));
    FAILS(REGISTRY, plx_registry_growth_begin(reg, store.id, b.row.id));
    CU_ASSERT_PTR_NOT_NULL(strstr(plx_registry_error(reg), "something newer was seen"));
    plx_instance_close(&a);
    plx_instance_close(&b);
}

/* HOLDS-3: an intent is worth what the lock is. */
static void test_intents(void)
{
    struct plx_instance writer = new_instance(), reader = new_instance();
    struct plx_registry_vdi vdi = new_vdi("web", 0);
    struct plx_registry_lock lock, next, false_lock;
    unsigned wait_ms = 40;
    const struct plx_patience patience = {plx_patience_fixed, &wait_ms};
    struct plx_bytelock *locks;
    uint64_t hold, *kept;
    size_t count;

    OK(plx_bytelock_open(registry_path, &locks, &fault));
    OK(plx_registry_vdi_lock(reg, vdi.id, writer.row.id, &lock));
    false_lock = lock;
    false_lock.epoch++;
    FAILS(FENCED, plx_registry_intent_begin(reg, &false_lock, NULL, 0, &kept, &count));
    expect_kept(&lock, NULL, 0);
    OK(plx_registry_vdi_unlock(reg, &lock, NULL));
    OK(plx_registry_hold(reg, vdi.id, 5, reader.row.id, &hold));
    OK(plx_registry_vdi_lock(reg, vdi.id, writer.row.id, &next)); /* the same, in a new epoch */
    OK(plx_registry_hold(reg, vdi.id, 6, reader.row.id, &hold));
    expect_kept(&next, (uint64_t[]){5, 6}, 2);
    FAILS(FENCED, plx_registry_intent_begin(reg, &lock, NULL, 0, &kept, &count));
    OK(plx_registry_intent_end(reg, &lock)); /* does not end the newer one */
    FAILS(BUSY, plx_registry_hold(reg, vdi.id, 5, reader.row.id, &hold));
    OK(plx_registry_vdi_takeover(reg, &next, reader.row.id, &lock));
    OK(plx_registry_hold(reg, vdi.id, 5, reader.row.id, &hold));

    /* The holder dies with its intent: a reader that can prove it does not wait. */
    expect_kept(&lock, (uint64_t[]){5, 6}, 2);
    FAILS(BUSY, plx_hold_wait(reg, &paths, locks, vdi.id, 7, writer.row.id, &patience, &hold));
    plx_instance_close(&reader);
    OK(plx_hold_wait(reg, &paths, locks, vdi.id, 7, writer.row.id, &patience, &hold));
    FAILS(NOT_FOUND, plx_registry_intent_get(reg, vdi.id, &next));
    OK(plx_registry_instance_unregister(reg, writer.row.id)); /* it never took anything */

    /* One's own is left over from a call whose end has failed. */
    expect_kept(&lock, (uint64_t[]){5, 6}, 2);
    OK(plx_hold_wait(reg, &paths, locks, vdi.id, 8, reader.row.id, &patience, &hold));
    plx_instance_close(&writer);
    plx_bytelock_close(locks);
}

static struct plx_registry_vdi new_clone(const char *name, const char *parent, uint64_t seq)
{
    struct plx_registry_vdi spec = vdi_spec(name, racers.row.id), made;

    memcpy(spec.parent, parent, sizeof spec.parent);
    spec.parent_seq = seq;
    OK(plx_registry_vdi_create(reg, &spec, 64, &made));
    return made;
}

static void delete_vdi(const struct plx_registry_vdi *vdi)
{
    struct plx_registry_lock lock = {.instance = racers.row.id, .epoch = vdi->epoch};

    memcpy(lock.vdi, vdi->id, sizeof lock.vdi);
    OK(plx_registry_vdi_delete(reg, &lock));
}

/* HOLDS-5 */
static void test_heirs(void)
{
    struct plx_registry_vdi web, child, other, grandchild;
    struct plx_registry_heir *heirs;
    struct plx_registry_lock lock;
    size_t count;

    racers = new_instance();
    web = new_vdi("web", 0);
    OK(plx_registry_vdi_lock(reg, web.id, racers.row.id, &lock));
    child = new_clone("child", web.id, 7);
    other = new_clone("other", web.id, 9);
    grandchild = new_clone("grandchild", child.id, 3);
    expect_kept(&lock, (uint64_t[]){7, 9}, 2);
    delete_vdi(&child);
    delete_vdi(&other);
    expect_kept(&lock, (uint64_t[]){7}, 1);
    OK(plx_registry_heir_list(reg, web.id, &heirs, &count));
    CU_ASSERT(count == 1 && heirs[0].seq == 7 && !strcmp(heirs[0].name, "grandchild"));
    free(heirs);
    delete_vdi(&grandchild);
    expect_kept(&lock, NULL, 0);
    OK(plx_registry_heir_list(reg, web.id, &heirs, &count));
    CU_ASSERT_EQUAL(count, 0);
    plx_instance_close(&racers);
}

static void test_policy_text(void)
{
    static const struct {
        const char *text;
        uint64_t ns;
    } good[] = {{"10ms", 10000000},    {"1s", 1000000000},        {"90s", 90000000000},
                {"2h", 7200000000000}, {"30d", 2592000000000000}, {"7d", 604800000000000},
                {"1m", 60000000000}};
    static const char *const bad[] = {"",    "10",  "ms",           "-1s", "1.5s", "10us",
                                      "1sm", "1 s", "99999999999y", "1s ", "0x1s"};
    static const char *const tiers[] = {"", "all:1h,1s:1d,1m:7d,1h:30d", "1s:1m", "all:90s"};
    static const char *const bad_tiers[] = {
        "all", "all:1h,", ",", "1s", "all:1h,all:2h", "0s:1h", "1h:1s", "1s:1d,1m:1h", "all:101y"};
    struct plx_protection p = {.mode = PLX_PROTECT_BATCH};
    char text[PLX_TIERS_TEXT];
    uint64_t ns;

    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        CU_ASSERT(plx_duration_parse(good[i].text, &ns) && ns == good[i].ns);
        CU_ASSERT_STRING_EQUAL(plx_duration_text(ns, text), i == 2 ? "90s" : good[i].text);
    }
    CU_ASSERT(plx_duration_parse("1w", &ns) && ns == 7 * 86400 * 1000000000ull);
    CU_ASSERT_STRING_EQUAL(plx_duration_text(ns, text), "7d");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CU_ASSERT_FALSE(plx_duration_parse(bad[i], &ns));
    for (size_t i = 0; i < sizeof tiers / sizeof tiers[0]; i++) {
        OK(plx_protection_parse_tiers(tiers[i], &p, &fault));
        CU_ASSERT_STRING_EQUAL(plx_protection_tiers_text(&p, text), tiers[i]);
        CU_ASSERT_EQUAL(p.mode, PLX_PROTECT_BATCH);
    }
    for (size_t i = 0; i < sizeof bad_tiers / sizeof bad_tiers[0]; i++)
        FAILS(INVALID, plx_protection_parse_tiers(bad_tiers[i], &p, &fault));
    OK(plx_protection_parse_mode("10ms", &p, &fault));
    CU_ASSERT(p.mode == PLX_PROTECT_INTERVAL && p.interval_ns == 10000000 && p.tiers == 1);
    OK(plx_protection_parse_mode("write", &p, &fault));
    CU_ASSERT(p.mode == PLX_PROTECT_WRITE && p.interval_ns == 0);
    FAILS(INVALID, plx_protection_parse_mode("0ms", &p, &fault));
    CU_ASSERT_EQUAL(p.mode, PLX_PROTECT_WRITE);
}

static void test_instants(void)
{
    static const uint64_t now = 1700000000000000000ull;
    uint64_t ns;

    CU_ASSERT(plx_instant_parse("-90s", now, &ns) && ns == now - 90000000000ull);
    CU_ASSERT(plx_instant_parse("-10ms", now, &ns) && ns == now - 10000000);
    CU_ASSERT(plx_instant_parse("2026-11-21T06:20:00Z", now, &ns) && ns > now);
    CU_ASSERT_FALSE(plx_instant_parse("-", now, &ns));
    CU_ASSERT_FALSE(plx_instant_parse("90s", now, &ns));
    CU_ASSERT_FALSE(plx_instant_parse("--90s", now, &ns));
    CU_ASSERT_FALSE(plx_instant_parse("-99y", now, &ns));
}

/* ---- Rebuilding -------------------------------------------------------------------------- */

static void test_import(void)
{
    struct plx_registry_instance unknown = {.id = 99, .store = store.id, .role = "rebuilt"};
    struct plx_registry_extent list[] = {
        {.no = 3, .type = PLX_EXTENT_DATA, .owner = 99, .generation = 8},
        {.no = 5, .type = PLX_EXTENT_META, .sealed = true, .generation = 2},
        {.no = 9, .type = PLX_EXTENT_DATA, .generation = 1, .free_blocks = 4},
    };
    struct plx_registry_extent bad = {.no = 16, .type = PLX_EXTENT_DATA}, *extents, extent;
    struct plx_registry_label label = {"good", 5, 6}, *labels;
    struct plx_registry_vdi vdi = vdi_spec("web", 99), found;
    struct plx_registry_extent_counts counts;
    struct plx_registry_volume *volumes;
    struct plx_registry_lock lock = {.instance = 99, .epoch = 12}, mine;
    struct plx_instance me = new_instance();
    size_t count;
    bool fresh;

    vdi.slot = 6;
    vdi.epoch = 12;
    FAILS(NOT_FOUND, plx_registry_import_vdis(reg, &vdi, 1));
    FAILS(NOT_FOUND, plx_registry_import_extents(reg, store.id, list, 1));
    OK(plx_registry_import_instances(reg, &unknown, 1));
    for (unsigned twice = 0; twice < 2; twice++) {
        OK(plx_registry_import_instances(reg, &unknown, 1));
        OK(plx_registry_import_extents(reg, store.id, list, 3));
        vdi.written = (struct plx_registry_written){12, 1 + twice};
        OK(plx_registry_import_vdis(reg, &vdi, 1));
        OK(plx_registry_import_labels(reg, vdi.id, &label, 1));
    }
    FAILS(INVALID, plx_registry_import_extents(reg, store.id, &bad, 1));
    OK(plx_registry_extent_count(reg, store.id, &counts));
    CU_ASSERT(counts.total == 16 && counts.unused == 11 && counts.data == 2 && counts.meta == 1);
    OK(plx_registry_volume_list(reg, store.id, &volumes, &count));
    CU_ASSERT(volumes[0].touched == 6 && volumes[1].touched == 2);
    free(volumes);
    OK(plx_registry_extent_list(reg, store.id, PLX_REGISTRY_ANY, &extents, &count));
    CU_ASSERT_EQUAL(count, 8);
    free(extents);
    OK(plx_registry_extent_claim(reg, store.id, me.row.id, PLX_EXTENT_DATA, 0, &extent, &fresh));
    CU_ASSERT(!fresh && extent.no == 9);
    for (int i = 0; i < 11; i++)
        OK(plx_registry_extent_claim(reg, store.id, me.row.id, PLX_EXTENT_DATA, 0, &extent,
                                     &fresh));
    FAILS(NOSPACE,
          plx_registry_extent_claim(reg, store.id, me.row.id, PLX_EXTENT_DATA, 0, &extent, &fresh));
    OK(plx_registry_vdi_get(reg, store.id, "web", &found));
    CU_ASSERT(found.slot == 6 && found.epoch == 12 && found.owner == 99);
    CU_ASSERT(found.written.epoch == 12 && found.written.state == 2);
    OK(plx_registry_label_list(reg, vdi.id, &labels, &count));
    CU_ASSERT_EQUAL(count, 1);
    free(labels);
    FAILS(BUSY, plx_registry_vdi_lock(reg, vdi.id, me.row.id, &mine));
    strcpy(lock.vdi, vdi.id);
    OK(plx_registry_vdi_takeover(reg, &lock, me.row.id, &mine));
    CU_ASSERT_EQUAL(mine.epoch, 13);
    plx_instance_close(&me);
}

/* ---- Figures ----------------------------------------------------------------------------- */

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* A hundred thousand extents and a thousand VDIs: no call may cost what the store has seen. */
static void test_large(void)
{
    enum { EXTENTS = 100000, VDIS = 1000, CLAIMS = 200 };
    const int extents = on_nodes ? EXTENTS / 10 : EXTENTS; /* there each is sent twice as text */
    struct plx_registry_extent *list = calloc(EXTENTS, sizeof *list), extent;
    struct plx_registry_lock lock;
    struct plx_registry_vdi vdi = {0};
    struct plx_instance me;
    double start, import, claim, locking, create;
    char name[32];
    bool fresh;

    store = make_store("huge", 2, (uint64_t)extents);
    me = new_instance();
    for (int i = 0; i < extents - 2; i++) {
        list[i].no = (uint64_t)i + 1;
        list[i].type = i % 2 ? PLX_EXTENT_UNUSED : PLX_EXTENT_DATA;
        list[i].sealed = i % 2 == 0;
    }
    start = now_ms();
    OK(plx_registry_import_extents(reg, store.id, list, (size_t)extents - 2));
    import = now_ms() - start;
    start = now_ms();
    for (int i = 0; i < CLAIMS; i++)
        OK(plx_registry_extent_claim(reg, store.id, me.row.id, PLX_EXTENT_DATA, 1000, &extent,
                                     &fresh));
    claim = (now_ms() - start) / CLAIMS;
    start = now_ms();
    for (int i = 0; i < VDIS; i++) {
        struct plx_registry_vdi spec;

        snprintf(name, sizeof name, "vdi-%04d", i);
        spec = vdi_spec(name, 0);
        OK(plx_registry_vdi_create(reg, &spec, 4096, &vdi));
    }
    create = (now_ms() - start) / VDIS;
    start = now_ms();
    for (int i = 0; i < CLAIMS; i++) {
        OK(plx_registry_vdi_lock(reg, vdi.id, me.row.id, &lock));
        OK(plx_registry_vdi_unlock(reg, &lock, NULL));
    }
    locking = (now_ms() - start) / CLAIMS;
    printf("\n    import of %d extents %.1f s, claim %.2f ms, vdi create %.2f ms, "
           "lock + unlock %.2f ms ",
           extents, import / 1e3, claim, create, locking);
    /* What they cost is the commit; reading through the store would show. */
    CU_ASSERT(claim < 3 * locking + 5 && create < 3 * locking + 5);
    free(list);
    plx_instance_close(&me);
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"names", test_names},
        {"paths", test_paths},
        {"stores and volumes", test_stores},
        {"bad input", test_bad_input},
        {"extents", test_extents},
        {"ranges of extents", test_ranges},
        {"who makes a store larger", test_growth},
        {"virtual disks", test_vdis},
        {"changes that are put off", test_put_off},
        {"changes that were put off and fail", test_put_off_fails},
        {"locks (INV-5)", test_locks},
        {"labels, policies, events", test_labels},
        {"soft limits as text", test_threshold_text},
        {"when a soft limit is crossed", test_threshold_crossing},
        {"soft limits of stores and disks", test_limits_kept},
        {"holds and intents", test_holds},
        {"an intent counts as long as the lock", test_intents},
        {"what clones began with", test_heirs},
        {"protection as text", test_policy_text},
        {"instants as text", test_instants},
        {"rebuilding (INV-6)", test_import},
        {"a large store", test_large},
    };
    const struct suite_frame frame = {.before = setup, .after = teardown};
    const struct suite_frame cluster = {start_nodes, stop_nodes, setup, teardown};

    on_nodes = cluster_wanted() > 0;
    if (on_nodes)
        return cluster_is_possible() ? SUITE_RUN_IN(&cluster, "registry on nodes", tests) : 77;

    int failed = SUITE_RUN_IN(&frame, "registry", tests);

    in_region = true;
    return failed | SUITE_RUN_IN(&frame, "registry in a region", tests);
}
