/* test_registry_opening.c - opening a registry that is a file: migration, damage, replacement. */
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "registry/schema.h"
#include "suite.h"
#include "unit/fresh_registry.h"

static void sql(const char *path, const char *text)
{
    sqlite3 *db;

    CU_ASSERT_EQUAL_FATAL(sqlite3_open(path, &db), SQLITE_OK);
    CU_ASSERT_EQUAL(sqlite3_exec(db, text, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static char *slurp(const char *path, size_t *ret_size)
{
    FILE *file = fopen(path, "rb");
    char *bytes = malloc(1 << 22);

    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    *ret_size = fread(bytes, 1, 1 << 22, file);
    fclose(file);
    return bytes;
}

/* Opening fails with this code and text, and not a byte changes. */
static void refuse_open(const char *path, int code, const char *text)
{
    struct plx_registry *none = NULL;
    size_t before_size, after_size;
    char *before = slurp(path, &before_size), *after;

    CU_ASSERT_EQUAL(open_registry(path, "test", &none, &fault), code);
    CU_ASSERT_PTR_NULL(none);
    if (!strstr(fault.text, text))
        fprintf(stderr, "\n  '%s' lacks '%s'\n", fault.text, text);
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, text));
    after = slurp(path, &after_size);
    CU_ASSERT(before_size == after_size && !memcmp(before, after, before_size));
    free(before);
    free(after);
}

static void test_migration(void)
{
    struct plx_registry *none;
    char path[128], text[160];

    CU_ASSERT(plx_schema_count >= 1 && plx_schema[0].number == 1);
    FAILS(UNSUPPORTED, open_registry("http://localhost:4001", "test", &none, &fault));
    close_registry(reg);
    reg = NULL;
    open_here(); /* as it is: nothing to do */
    OK(plx_registry_store_get(reg, "demo", &store));
    close_registry(reg);
    reg = NULL;
    sql(registry_path, "CREATE TRIGGER t BEFORE INSERT ON instances BEGIN SELECT (WITH RECURSIVE"
                       " n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n);"
                       " END");
    refuse_open(registry_path, PLX_ERR_REGISTRY, "that Parallax has not made");
    sql(registry_path, "DROP TRIGGER t; CREATE VIEW v AS SELECT * FROM vdis");
    refuse_open(registry_path, PLX_ERR_REGISTRY, "that Parallax has not made");
    sql(registry_path, "DROP VIEW v");
    snprintf(text, sizeof text, "INSERT INTO migrations VALUES (%zu, 1)", plx_schema_count + 1);
    sql(registry_path, text);
    refuse_open(registry_path, PLX_ERR_UNSUPPORTED, "use a newer Parallax");
    snprintf(path, sizeof path, "%s/foreign.db", directory);
    sql(path, "CREATE TABLE bookmarks (id)");
    refuse_open(path, PLX_ERR_REGISTRY, "not a Parallax registry");
    snprintf(path, sizeof path, "%s/empty.db", directory);
    fclose(fopen(path, "w")); /* a crash while it was made */
    OK(open_registry(path, "test", &reg, &fault));
    close_registry(reg);
    snprintf(path, sizeof path, "%s/first.db", directory); /* of the first version */
    sql(path, plx_schema[0].sql);
    sql(path, "INSERT INTO migrations VALUES (1, 1)");
    OK(open_registry(path, "test", &reg, &fault));
    store = make_store("demo", 1, 8);
    test_holds();
}

/* Volumes of before they had ranges. */
static void test_migration_of_volumes(void)
{
    struct plx_registry_volume *volumes;
    struct plx_registry_range *ranges;
    char path[128];
    size_t count;

    close_registry(reg);
    snprintf(path, sizeof path, "%s/second.db", directory);
    sql(path, plx_schema[0].sql);
    sql(path, plx_schema[1].sql);
    sql(path, "INSERT INTO migrations VALUES (1, 1), (2, 2);"
              "INSERT INTO store VALUES (1, '12345678-1234-4234-8234-123456789abc', 'old', 256, 1);"
              "INSERT INTO volumes VALUES"
              " (1, 0, '12345678-1234-4234-8234-123456789abd', '/a', 0, 8, 2),"
              " (1, 1, '12345678-1234-4234-8234-123456789abe', '/b', 8, 4, 1)");
    OK(open_registry(path, "test", &reg, &fault));
    OK(plx_registry_volume_list(reg, 1, &volumes, &count));
    CU_ASSERT_EQUAL_FATAL(count, 2);
    CU_ASSERT(volumes[0].first_extent == 0 && volumes[0].extents == 8 && volumes[0].touched == 2);
    CU_ASSERT_STRING_EQUAL(volumes[1].path, "/b");
    free(volumes);
    OK(plx_registry_range_add(reg, 1, &(struct plx_registry_range){0, 12, 3}));
    OK(plx_registry_range_list(reg, 1, &ranges, &count));
    CU_ASSERT(count == 3 && ranges[1].volume == 1 && ranges[2].volume == 0);
    free(ranges);
}

static void test_damage(void)
{
    struct plx_registry_event *events;
    struct plx_registry_vdi vdi;
    char page[4096];
    size_t count;
    struct stat st;
    int fd, code;

    for (int i = 0; i < 200; i++)
        OK(plx_registry_event_add(reg, "filler", "some subject or other", "some more detail"));
    close_registry(reg);
    reg = NULL;

    /* Every page but the first is garbage: opens or not, but nothing is believed. */
    fd = open(registry_path, O_RDWR);
    CU_ASSERT_EQUAL_FATAL(fstat(fd, &st), 0);
    memset(page, 0xa5, sizeof page);
    for (off_t at = 4096; at < st.st_size; at += 4096)
        CU_ASSERT_EQUAL(pwrite(fd, page, sizeof page, at), 4096);
    code = open_registry(registry_path, "test", &reg, &fault);
    if (!code) {
        FAILS(REGISTRY, plx_registry_vdi_get(reg, store.id, "web", &vdi));
        CU_ASSERT_PTR_NOT_NULL(strstr(plx_registry_error(reg), "rebuild-registry"));
        FAILS(REGISTRY, plx_registry_event_list(reg, 10, &events, &count));
        FAILS(REGISTRY, plx_registry_event_add(reg, "x", "y", "z"));
        FAILS(REGISTRY, plx_registry_check(reg));
        close_registry(reg);
        reg = NULL;
    } else {
        CU_ASSERT_EQUAL(code, PLX_ERR_REGISTRY);
    }
    CU_ASSERT_EQUAL(pwrite(fd, page, sizeof page, 0), 4096); /* and now the header */
    close(fd);
    refuse_open(registry_path, PLX_ERR_REGISTRY, "is damaged");
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "rebuild-registry"));
    CU_ASSERT_EQUAL(truncate(registry_path, 1000), 0);
    refuse_open(registry_path, PLX_ERR_REGISTRY, "is damaged");
}

/* No room for a change: it fails as a whole, and the next one works when there is room again. */
static void test_no_room(void)
{
    struct plx_registry_event *events;
    struct rlimit limit, tight;
    struct stat st;
    char wal[PLX_PATH_MAX + 8];
    size_t before, after;
    int code = 0, done = 0;

    OK(plx_registry_event_list(reg, 100000, &events, &before));
    free(events);
    snprintf(wal, sizeof wal, "%s-wal", registry_path);
    CU_ASSERT_EQUAL_FATAL(stat(wal, &st), 0);
    getrlimit(RLIMIT_FSIZE, &limit);
    tight = limit;
    tight.rlim_cur = (rlim_t)st.st_size + 20000;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &tight);
    while (!code && done < 100000) {
        code = plx_registry_event_add(reg, "filler", "some subject", "some detail");
        done += code == 0;
    }
    setrlimit(RLIMIT_FSIZE, &limit);
    signal(SIGXFSZ, SIG_DFL);
    CU_ASSERT_EQUAL(code, PLX_ERR_REGISTRY);
    CU_ASSERT_PTR_NOT_NULL(strstr(plx_registry_error(reg), registry_path));
    OK(plx_registry_event_list(reg, 100000, &events, &after));
    free(events);
    CU_ASSERT_EQUAL(after, before + (size_t)done);
    OK(plx_registry_event_add(reg, "room again", "", ""));
    OK(plx_registry_check(reg));
}

/* The file is deleted under a running handler, then rebuilt by another process: no split. */
static void test_replaced(void)
{
    struct plx_registry *old = reg;
    struct plx_registry_store found;

    OK(plx_registry_event_add(old, "before", "", ""));
    CU_ASSERT_EQUAL(unlink(registry_path), 0); /* -wal and -shm stay behind, as people do it */
    FAILS(REGISTRY, plx_registry_store_get(old, "demo", &found));
    CU_ASSERT_PTR_NOT_NULL(strstr(plx_registry_error(old), "rebuild-registry"));
    reg = NULL;
    open_here();
    FAILS(NOT_FOUND, plx_registry_store_get(reg, "demo", &found));
    store = make_store("rebuilt", 1, 4);
    OK(plx_registry_store_get(old, "rebuilt", &found)); /* the old handle follows */
    OK(plx_registry_event_add(old, "after", "", ""));
    OK(plx_registry_check(reg));
    close_registry(old);
    OK(plx_registry_check(reg));

    /* The same with the deletion unnoticed by the old handle until the new file is there. */
    old = reg;
    CU_ASSERT_EQUAL(unlink(registry_path), 0);
    open_here();
    make_store("again", 1, 4);
    OK(plx_registry_event_add(old, "after", "", ""));
    OK(plx_registry_store_get(old, "again", &found));
    close_registry(old);
    OK(plx_registry_check(reg));
    OK(plx_registry_store_get(reg, "again", &found));
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"migration", test_migration},
        {"migration of volumes", test_migration_of_volumes},
        {"damage", test_damage},
        {"no room", test_no_room},
        {"deleted and rebuilt while open", test_replaced},
    };
    const struct suite_frame frame = {.before = setup, .after = teardown};

    return SUITE_RUN_IN(&frame, "registry in a file", tests);
}
