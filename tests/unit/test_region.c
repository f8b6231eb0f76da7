/* test_region.c - a registry in a region of a volume: locks, damage, room, whole registries.
 *
 * The calls of a registry in a region are tested in test_registry.c, power cuts in
 * ../crash/test_registry_cuts.c. */
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/format/format.h"
#include "folder.h"
#include "place.h"
#include "registry/sql.h"
#include "suite.h"

static char directory[64], path[96];
static struct plx_fault fault;
static struct plx_registry *reg;

#define OK(call) CU_ASSERT_EQUAL_FATAL(say(call), 0)
#define FAILS(code, call) CU_ASSERT_EQUAL(call, PLX_ERR_##code)
#define SAYS(text, what) CU_ASSERT_PTR_NOT_NULL(strstr(text, what))

static int say(int code)
{
    if (code)
        fprintf(stderr, "\n  %s: %s | %s\n", plx_error_name(code),
                reg ? plx_registry_error(reg) : "", fault.text);
    return code;
}

static void setup(void)
{
    CU_ASSERT_FATAL(folder_make("region", directory));
    snprintf(path, sizeof path, "%s/volume", directory);
    OK(place_registry_open(path, "test", &reg, &fault));
}

static void teardown(void)
{
    char command[128];

    place_registry_close(reg);
    reg = NULL;
    snprintf(command, sizeof command, "rm -rf '%s'", directory);
    CU_ASSERT_EQUAL(system(command), 0);
}

static void reopen(void)
{
    place_registry_close(reg);
    reg = NULL;
    OK(place_registry_open(path, "test", &reg, &fault));
}

static void close_here(void)
{
    place_registry_close(reg);
    reg = NULL;
}

static struct plx_registry_store make_store(struct plx_registry *in, const char *name)
{
    struct plx_registry_store spec = {.extent_blocks = 1024}, made = {0};
    struct plx_registry_volume volume = {.path = "/dev/x", .extents = 64};

    snprintf(spec.name, sizeof spec.name, "%s", name);
    plx_uuid_random(spec.uuid);
    plx_uuid_random(volume.uuid);
    OK(plx_registry_store_create(in, &spec, &volume, 1, &made));
    return made;
}

static int make_disk(struct plx_registry *in, int64_t store, const char *name)
{
    struct plx_registry_vdi spec = {.store = store, .size_bytes = 1 << 20, .sector_size = 512};
    struct plx_registry_vdi made;

    plx_uuid_random(spec.id);
    snprintf(spec.name, sizeof spec.name, "%s", name);
    return plx_registry_vdi_create(in, &spec, 4096, &made);
}

static int change(struct plx_registry *in, const char *text)
{
    struct plx_sql statement = {.text = text};

    return plx_sql_change(in, &statement, 1, NULL, NULL);
}

static void read_number(void *item, const struct plx_sql_value *columns)
{
    *(int64_t *)item = columns[0].number;
}

static int64_t number(struct plx_registry *in, const char *text)
{
    static const struct plx_sql_shape shape = {sizeof(int64_t), read_number};
    struct plx_sql statement = {.text = text};
    int64_t found = -1;

    CU_ASSERT_EQUAL(plx_sql_get(in, &statement, &shape, &found), 0);
    return found;
}

/* ---- Locks on bytes ---------------------------------------------------------------------- */

static void expect_probe(struct plx_bytelock *lock, uint64_t byte, bool expected)
{
    bool busy = !expected;

    OK(lock->ops->probe(lock, byte, &busy));
    CU_ASSERT_EQUAL(busy, expected);
}

static void check_two(struct plx_bytelock *a, struct plx_bytelock *b)
{
    const uint64_t byte = PLX_BYTE_INSTANCE | 0xffffffffffff;

    OK(a->ops->set(a, byte, PLX_BYTE_SHARED));
    OK(b->ops->set(b, byte, PLX_BYTE_SHARED));
    expect_probe(a, byte, true);
    expect_probe(a, byte - 1, false);
    FAILS(BUSY, a->ops->set(a, byte, PLX_BYTE_EXCLUSIVE));
    FAILS(BUSY, b->ops->set(b, byte, PLX_BYTE_EXCLUSIVE)); /* a has kept what it had */
    OK(b->ops->set(b, byte, PLX_BYTE_UNLOCKED));
    OK(a->ops->set(a, byte, PLX_BYTE_EXCLUSIVE));
    expect_probe(a, byte, false);
    expect_probe(b, byte, true);
    FAILS(BUSY, b->ops->set(b, byte, PLX_BYTE_SHARED));
    OK(a->ops->set(a, byte, PLX_BYTE_SHARED));
    OK(b->ops->set(b, byte, PLX_BYTE_SHARED));
    OK(b->ops->set(b, PLX_BYTE_SUPER, PLX_BYTE_EXCLUSIVE));
}

static void test_bytes(void)
{
    struct plx_bytelock *a, *b;
    struct stat st;

    OK(plx_bytelock_open(path, &a, &fault));
    OK(plx_bytelock_open(path, &b, &fault));
    CU_ASSERT_EQUAL(stat(path, &st), 0);
    CU_ASSERT(a->device == st.st_dev && a->inode == st.st_ino);
    check_two(a, b);
    close(open(path, O_RDWR)); /* would drop a POSIX lock */
    FAILS(BUSY, a->ops->set(a, PLX_BYTE_SUPER, PLX_BYTE_SHARED));
    plx_bytelock_close(b);
    OK(a->ops->set(a, PLX_BYTE_SUPER, PLX_BYTE_SHARED));
    plx_bytelock_close(a);
    plx_bytelock_close(NULL);
    snprintf(path, sizeof path, "%s/missing", directory);
    FAILS(NOT_FOUND, plx_bytelock_open(path, &a, &fault));
    SAYS(fault.text, "missing");
}

static void test_bytes_of_the_dead(void)
{
    struct plx_bytelock *lock;
    int ready[2];
    char byte;
    pid_t child;

    CU_ASSERT_EQUAL_FATAL(pipe(ready), 0);
    child = fork();
    if (child == 0) {
        if (!plx_bytelock_open(path, &lock, NULL) &&
            !lock->ops->set(lock, PLX_BYTE_HOME, PLX_BYTE_EXCLUSIVE) && write(ready[1], "x", 1))
            pause();
        _exit(1);
    }
    CU_ASSERT_EQUAL_FATAL(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    OK(plx_bytelock_open(path, &lock, &fault));
    expect_probe(lock, PLX_BYTE_HOME, true);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    expect_probe(lock, PLX_BYTE_HOME, false);
    OK(lock->ops->set(lock, PLX_BYTE_HOME, PLX_BYTE_EXCLUSIVE));
    plx_bytelock_close(lock);
}

/* Two names of one LUN are one lock; the secret is in no name. */
static void test_bytes_of_luns(void)
{
    static const char *const bad[] = {"iscsi://host", "iscsi://host/iqn.x", "iscsi://host?/a/b"};
    struct plx_bytelock *a, *b, *other;
    char command[160];

    setenv("XDG_RUNTIME_DIR", directory, 1);
    OK(plx_bytelock_open("iscsi://me%secret@Host.Example/iqn.2026-01.x:Y/1", &a, &fault));
    OK(plx_bytelock_open("iscsi://host.example:3260/iqn.2026-01.x:y/1?header_digest=crc32c", &b,
                         &fault));
    OK(plx_bytelock_open("iscsi://host.example:3261/iqn.2026-01.x:y/1", &other, &fault));
    CU_ASSERT(a->inode == b->inode && a->device == b->device && a->inode != other->inode);
    check_two(a, b);
    expect_probe(other, PLX_BYTE_SUPER, false);
    plx_bytelock_close(a);
    plx_bytelock_close(b);
    plx_bytelock_close(other);
    snprintf(command, sizeof command, "! ls -R /run/parallax %s 2>/dev/null | grep -q secret",
             directory);
    CU_ASSERT_EQUAL(system(command), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        FAILS(INVALID, plx_bytelock_open(bad[i], &a, &fault));
    unsetenv("XDG_RUNTIME_DIR");
}

/* ---- Connections ------------------------------------------------------------------------- */

static void test_two_connections(void)
{
    struct plx_registry *other, *own = reg;
    struct plx_registry_store store = make_store(reg, "demo"), found;

    OK(place_registry_open(path, "other", &other, &fault));
    for (int i = 0; i < 20; i++) {
        char name[16];

        snprintf(name, sizeof name, "disk-%d", i);
        OK(make_disk(i % 2 ? own : other, store.id, name));
        CU_ASSERT_EQUAL(number(i % 2 ? other : own, "SELECT count(*) FROM vdis"), i + 1);
    }
    OK(plx_registry_store_get(other, "demo", &found));
    OK(plx_registry_check(other));
    place_registry_close(other);
    OK(plx_registry_check(reg));
}

/* A device node of a kind that knows no more than reading. */
static void test_reading_only(void)
{
    struct plx_region region = place_spans();
    struct plx_registry *reader = NULL;
    uint8_t block[PLX_BLOCK_SIZE] = {1};

    make_store(reg, "demo");
    close_here();
    OK(place_open(path, true, &region, &fault));
    OK(plx_registry_open_region(&region, "volume", "reader", &reader, &fault));
    CU_ASSERT_EQUAL(number(reader, "SELECT count(*) FROM store"), 1);
    FAILS(READONLY, change(reader, "DELETE FROM store"));
    SAYS(plx_registry_error(reader), "for reading only");
    plx_registry_close(reader);
    place_close(&region);

    /* A journal that looks like one left by the dead: nothing may be written to undo it. */
    {
        int fd = open(path, O_RDWR);

        memcpy(block, "\xd9\xd5\x05\xf9\x20\xa1\x63\xd7", 8);
        CU_ASSERT_EQUAL(pwrite(fd, block, sizeof block, (1 << 20) + (16 << 20)), sizeof block);
        close(fd);
    }
    region = place_spans();
    OK(place_open(path, true, &region, &fault));
    FAILS(REGISTRY, plx_registry_open_region(&region, "volume", "reader", &reader, &fault));
    SAYS(fault.text, "open the store once for writing");
    place_close(&region);
    reopen();
    CU_ASSERT_EQUAL(number(reg, "SELECT count(*) FROM store"), 1);
}

static void test_empty_for_reading(void)
{
    struct plx_region region = place_spans();
    struct plx_registry *reader = NULL;

    close_here();
    snprintf(path, sizeof path, "%s/empty", directory);
    CU_ASSERT(place_make(path));
    OK(place_open(path, true, &region, &fault));
    FAILS(REGISTRY, plx_registry_open_region(&region, "volume", "reader", &reader, &fault));
    SAYS(fault.text, "is empty");
    place_close(&region);
}

static bool may(void *context, struct plx_fault *why)
{
    int *left = context;

    if ((*left)-- > 0)
        return true;
    plx_fault_set(why, PLX_ERR_FENCED, "another host has the store");
    return false;
}

/* Asked before the lock, before the journal and before it counts: refused then, nothing was
 * changed. */
static void test_may_write(void)
{
    struct plx_region region = place_spans();
    struct plx_registry *own = NULL;
    int left = 1000;

    make_store(reg, "demo");
    OK(place_open(path, false, &region, &fault));
    region.may_write = may;
    region.context = &left;
    OK(plx_registry_open_region(&region, "volume", "own", &own, &fault));
    for (int allowed = 0; allowed < 3; allowed++) {
        left = allowed;
        FAILS(FENCED, change(own, "UPDATE store SET name = 'other'"));
        SAYS(plx_registry_error(own), "another host has the store");
        CU_ASSERT(left < 0);
        CU_ASSERT_EQUAL(number(reg, "SELECT count(*) FROM store WHERE name = 'demo'"), 1);
    }
    left = 3;
    OK(change(own, "UPDATE store SET name = 'other'"));
    CU_ASSERT_EQUAL(left, 0);
    CU_ASSERT_EQUAL(number(reg, "SELECT count(*) FROM store WHERE name = 'other'"), 1);
    plx_registry_close(own);
    place_close(&region);
}

/* ---- Damage ------------------------------------------------------------------------------ */

static off_t page_at(unsigned page)
{
    return (1 << 20) + (off_t)(page - 1) * PLX_BLOCK_SIZE;
}

static void test_damaged_page(void)
{
    uint8_t page[PLX_BLOCK_SIZE], other[PLX_BLOCK_SIZE];
    int fd = open(path, O_RDWR);
    unsigned root =
        (unsigned)number(reg, "SELECT rootpage FROM sqlite_schema WHERE name = 'store'");
    char text[48];

    make_store(reg, "demo");
    close_here();
    CU_ASSERT_EQUAL(pread(fd, page, sizeof page, page_at(root)), sizeof page);
    memcpy(other, page, sizeof page);
    other[2000] ^= 1;
    CU_ASSERT_EQUAL(pwrite(fd, other, sizeof page, page_at(root)), sizeof page);
    OK(place_registry_open(path, "test", &reg, &fault));
    FAILS(REGISTRY, change(reg, "UPDATE store SET name = 'x'"));
    snprintf(text, sizeof text, "is damaged (page %u); run", root);
    SAYS(plx_registry_error(reg), text);
    SAYS(plx_registry_error(reg), "rebuild-registry");
    SAYS(plx_registry_error(reg), path);
    FAILS(REGISTRY, plx_registry_check(reg));

    /* A sound page that belongs elsewhere. */
    CU_ASSERT_EQUAL(pread(fd, other, sizeof page, page_at(root + 1)), sizeof page);
    CU_ASSERT_EQUAL(pwrite(fd, other, sizeof page, page_at(root)), sizeof page);
    reopen();
    FAILS(REGISTRY, change(reg, "UPDATE store SET name = 'x'"));
    SAYS(plx_registry_error(reg), text);
    CU_ASSERT_EQUAL(pwrite(fd, page, sizeof page, page_at(root)), sizeof page);
    reopen();
    OK(plx_registry_check(reg));

    /* The first one: not even opened, and not taken for an empty region. */
    close_here();
    CU_ASSERT_EQUAL(pwrite(fd, "x", 1, page_at(1) + 3000), 1);
    FAILS(REGISTRY, place_registry_open(path, "test", &reg, &fault));
    SAYS(fault.text, "is damaged (page 1); run");
    close(fd);
}

/* An old copy of a page vouches for itself; the table knows that it is not the last one
 * (REGION-12). */
static void test_stale_page(void)
{
    static const char by_name[] = "SELECT count(*) FROM vdis WHERE store = 1 AND name = 'web'"
                                  " AND state = 'live'";
    static const struct plx_sql_shape shape = {sizeof(int64_t), read_number};
    const struct plx_sql query = {.text = by_name};
    uint8_t older[PLX_BLOCK_SIZE], page[PLX_BLOCK_SIZE];
    int fd = open(path, O_RDWR);
    int64_t found = -1;
    unsigned root;

    root = (unsigned)number(reg, "SELECT rootpage FROM sqlite_schema WHERE name = 'vdis_name'");
    CU_ASSERT_EQUAL(pread(fd, older, sizeof older, page_at(root)), sizeof older);
    OK(make_disk(reg, make_store(reg, "demo").id, "web"));
    CU_ASSERT_EQUAL(number(reg, by_name), 1);
    CU_ASSERT_EQUAL(pread(fd, page, sizeof page, page_at(root)), sizeof page);
    CU_ASSERT_EQUAL(pwrite(fd, older, sizeof older, page_at(root)), sizeof older);
    reopen();
    FAILS(REGISTRY, plx_sql_get(reg, &query, &shape, &found)); /* and not: there is none */
    SAYS(plx_registry_error(reg), "the device lost a write");
    SAYS(plx_registry_error(reg), "rebuild-registry");
    FAILS(REGISTRY, make_disk(reg, 1, "mail"));
    FAILS(REGISTRY, plx_registry_check(reg));
    CU_ASSERT_EQUAL(pwrite(fd, page, sizeof page, page_at(root)), sizeof page);
    close(fd);
    reopen();
    OK(plx_registry_check(reg));
    OK(make_disk(reg, 1, "mail"));
    CU_ASSERT_EQUAL(number(reg, by_name), 1);
}

static void refuse_empty(struct plx_region region)
{
    struct plx_registry *own = NULL;
    bool damaged = false;

    region.damaged = &damaged;
    FAILS(REGISTRY, plx_registry_open_region(&region, path, "test", &own, &fault));
    SAYS(fault.text, "is empty: it was overwritten");
    SAYS(fault.text, "rebuild-registry");
    CU_ASSERT(damaged);
}

/* Page 1 is of zeros where a registry was made: nothing is written over what is left of it, and a
 * journal stays that is to be rolled back. While it is open, too. (REGION-4) */
static void test_no_first_page(void)
{
    static const uint8_t zeros[PLX_BLOCK_SIZE];
    struct plx_region region = place_spans();
    struct plx_registry *own = NULL;
    uint8_t first[PLX_BLOCK_SIZE], journal[PLX_BLOCK_SIZE] = {0};
    const off_t journal_at = page_at(1) + (16 << 20);
    int fd = open(path, O_RDWR);

    OK(make_disk(reg, make_store(reg, "demo").id, "web"));
    close_here();
    CU_ASSERT_EQUAL(pread(fd, first, sizeof first, page_at(1)), sizeof first);
    OK(place_open(path, false, &region, &fault));
    region.made = true;
    OK(plx_registry_open_region(&region, path, "test", &own, &fault));
    CU_ASSERT_EQUAL(pwrite(fd, zeros, sizeof zeros, page_at(1)), sizeof zeros);
    FAILS(REGISTRY, change(own, "UPDATE vdis SET name = 'other'"));
    SAYS(plx_registry_error(own), "is empty: it was overwritten");
    FAILS(REGISTRY, plx_registry_check(own));
    plx_registry_close(own);
    refuse_empty(region);
    memcpy(journal, "\xd9\xd5\x05\xf9\x20\xa1\x63\xd7", 8);
    CU_ASSERT_EQUAL(pwrite(fd, journal, sizeof journal, journal_at), sizeof journal);
    refuse_empty(region);
    CU_ASSERT_EQUAL(pread(fd, journal, sizeof journal, journal_at), sizeof journal);
    CU_ASSERT(journal[0] == 0xd9);
    CU_ASSERT_EQUAL(pwrite(fd, zeros, sizeof zeros, journal_at), sizeof zeros);
    region.read_only = true;
    refuse_empty(region);
    place_close(&region);
    CU_ASSERT_EQUAL(pwrite(fd, first, sizeof first, page_at(1)), sizeof first);
    close(fd);
    OK(place_registry_open(path, "test", &reg, &fault));
    CU_ASSERT_EQUAL(number(reg, "SELECT count(*) FROM vdis WHERE name = 'web'"), 1);
    OK(plx_registry_check(reg));
}

/* Behind the pages of the first span. */
static off_t table_at(void)
{
    return page_at(4087);
}

#define SPAN_HALF (16u << 20) /* of the first span: place.c */

static void read_half(uint8_t *half)
{
    int fd = open(path, O_RDONLY);

    CU_ASSERT_EQUAL(pread(fd, half, SPAN_HALF, page_at(1)), SPAN_HALF);
    close(fd);
}

static void write_half(const uint8_t *half)
{
    int fd = open(path, O_RDWR);

    CU_ASSERT_EQUAL(pwrite(fd, half, SPAN_HALF, page_at(1)), SPAN_HALF);
    close(fd);
}

/* Each write of a commit lost, pages and the table: it is told. */
static void test_lost_write(void)
{
    uint8_t *before = malloc(SPAN_HALF), *after = malloc(SPAN_HALF), *lost = malloc(SPAN_HALF);
    unsigned pages = 0, slots = 0;
    int64_t store = make_store(reg, "demo").id;

    OK(make_disk(reg, store, "web"));
    read_half(before);
    OK(make_disk(reg, store, "mail"));
    read_half(after);
    close_here();
    for (size_t at = 0; at < SPAN_HALF; at += PLX_BLOCK_SIZE) {
        if (memcmp(before + at, after + at, PLX_BLOCK_SIZE) == 0)
            continue;
        memcpy(lost, after, SPAN_HALF);
        memcpy(lost + at, before + at, PLX_BLOCK_SIZE);
        write_half(lost);
        if (place_registry_open(path, "test", &reg, &fault) == 0)
            FAILS(REGISTRY, plx_registry_check(reg));
        close_here();
        *(at < SPAN_HALF / 2 ? &pages : &slots) += 1;
    }
    CU_ASSERT(pages >= 5);
    CU_ASSERT_EQUAL(slots, 1);

    /* The table rots, and the pages are whole. */
    for (unsigned i = 0; i < 2; i++) {
        memcpy(lost, after, SPAN_HALF);
        lost[(size_t)(table_at() - page_at(1)) + i * PLX_BLOCK_SIZE + 700] ^= 4;
        write_half(lost);
        OK(place_registry_open(path, "test", &reg, &fault));
        OK(plx_registry_check(reg));
        close_here();
    }

    /* Without a table nothing is told from it; what is written then is in it again. */
    memcpy(lost, after, SPAN_HALF);
    memset(lost + SPAN_HALF / 2, 0, SPAN_HALF / 2);
    write_half(lost);
    OK(place_registry_open(path, "test", &reg, &fault));
    OK(plx_registry_check(reg));
    OK(make_disk(reg, store, "more"));
    read_half(after);
    close_here();
    memcpy(after, before, PLX_BLOCK_SIZE);
    write_half(after);
    FAILS(REGISTRY, place_registry_open(path, "test", &reg, &fault));
    SAYS(fault.text, "the device lost a write (page 1)");
    free(before);
    free(after);
    free(lost);
}

/* Others roll back twice in between: page 1 is as before, and so is the table, in a slot with a
 * higher generation (region_stamps.c). */
static void test_rolled_back_beside(void)
{
    const off_t table = table_at();
    uint8_t slot[2][PLX_BLOCK_SIZE], number_of_block[8] = {0};
    int64_t store = make_store(reg, "demo").id;
    int fd = open(path, O_RDWR), newest;
    uint32_t crc;

    CU_ASSERT_EQUAL(number(reg, "SELECT count(*) FROM vdis"), 0); /* knows the table from now on */
    for (int i = 0; i < 2; i++)
        CU_ASSERT_EQUAL(pread(fd, slot[i], PLX_BLOCK_SIZE, table + i * PLX_BLOCK_SIZE),
                        PLX_BLOCK_SIZE);
    newest = slot[1][8] > slot[0][8];
    CU_ASSERT(slot[newest][8] < 250);
    slot[newest][8] += 2;
    crc = plx_crc32c_more(plx_crc32c(slot[newest], 4080), number_of_block, 8);
    for (int i = 0; i < 4; i++)
        slot[newest][4080 + i] = (uint8_t)(crc >> 8 * i);
    CU_ASSERT_EQUAL(pwrite(fd, slot[newest], PLX_BLOCK_SIZE, table + newest * PLX_BLOCK_SIZE),
                    PLX_BLOCK_SIZE);
    close(fd);
    OK(make_disk(reg, store, "web"));
    reopen();
    OK(plx_registry_check(reg));
    CU_ASSERT_EQUAL(number(reg, "SELECT count(*) FROM vdis"), 1);
}

static void test_truncated(void)
{
    close_here();
    CU_ASSERT_EQUAL(truncate(path, 45 << 20), 0);
    FAILS(CORRUPT, place_registry_open(path, "test", &reg, &fault));
    SAYS(fault.text, "truncated");
    SAYS(fault.text, path);
}

static void test_bad_spans(void)
{
    struct plx_region region = place_spans(), bad;
    struct plx_registry *none = NULL;

    OK(place_open(path, false, &region, &fault));
    bad = region;
    bad.span[1].bytes = 4096;
    FAILS(CORRUPT, plx_registry_open_region(&bad, "volume", "x", &none, &fault));
    bad = region;
    bad.span[0].offset = 512;
    FAILS(CORRUPT, plx_registry_open_region(&bad, "volume", "x", &none, &fault));
    bad = region;
    bad.span[0].offset = UINT64_MAX - 4095;
    FAILS(CORRUPT, plx_registry_open_region(&bad, "volume", "x", &none, &fault));
    bad = region;
    bad.spans = 1;
    bad.span[0].bytes = 8192;
    FAILS(CORRUPT, plx_registry_open_region(&bad, "volume", "x", &none, &fault));
    SAYS(fault.text, "too small");
    place_close(&region);
}

/* ---- Room -------------------------------------------------------------------------------- */

static void test_full(void)
{
    struct plx_region region = {.spans = 1, .span = {{34 << 20, 2 << 20}}};
    struct plx_registry_store store;
    struct plx_registry *small = NULL;
    uint64_t used, pages, before;
    int made = 0, code = 0;
    char name[200];

    OK(place_open(path, false, &region, &fault));
    OK(plx_registry_open_region(&region, "volume", "small", &small, &fault));
    store = make_store(small, "demo");
    OK(plx_registry_room(small, &used, &pages));
    CU_ASSERT(pages > 250 && pages < 256 && used < pages / 2);
    while (!code) {
        snprintf(name, sizeof name, "%0180d", made);
        code = make_disk(small, store.id, name);
        made += !code;
    }
    CU_ASSERT_EQUAL(code, PLX_ERR_NOSPACE);
    SAYS(plx_registry_error(small), "four fifths");
    OK(plx_registry_room(small, &used, &pages));
    CU_ASSERT(used * 5 > pages * 4 && used * 6 < pages * 5);
    FAILS(NOSPACE, plx_registry_has_room(small));

    /* What frees goes on, without events. */
    before = (uint64_t)number(small, "SELECT count(*) FROM events");
    OK(plx_registry_event_add(small, "x", "y", "z"));
    OK(plx_registry_store_policy_set(small, store.id, "key", "value"));
    CU_ASSERT_EQUAL(number(small, "SELECT count(*) FROM events"), before);

    /* The rest can be used up: a change that does not fit fails as a whole. */
    for (code = 0; !code;)
        code = change(small, "INSERT INTO policies SELECT id, 'k' || random(), hex(zeroblob(9000))"
                             " FROM vdis LIMIT 1");
    CU_ASSERT_EQUAL(code, PLX_ERR_NOSPACE);
    SAYS(plx_registry_error(small), "is full");
    OK(plx_registry_check(small));
    OK(change(small, "DELETE FROM vdis"));
    OK(plx_registry_has_room(small));
    OK(make_disk(small, store.id, "again"));
    plx_registry_close(small);
    place_close(&region);
}

/* Events take an eighth of the space, and what is counted is what is there. */
static void test_events_bounded(void)
{
    static const char bytes[] =
        "SELECT sum(32 + length(who) + length(what) + length(subject) + length(detail))"
        " - (SELECT event_bytes FROM room) FROM events";
    static const char many[] =
        "INSERT INTO events (time_ns, who, what, subject, detail) WITH RECURSIVE n(i) AS (SELECT 1"
        " UNION ALL SELECT i + 1 FROM n WHERE i < 3000) SELECT i, 'w', 'x', 'y',"
        " hex(zeroblob(900 + i % 50)) FROM n";
    uint64_t used, pages;
    int64_t limit = number(reg, "SELECT event_limit FROM room");

    OK(plx_registry_room(reg, &used, &pages));
    CU_ASSERT_EQUAL(limit, (int64_t)pages * PLX_BLOCK_SIZE / 8);
    CU_ASSERT_EQUAL(number(reg, bytes), 0);
    OK(change(reg, many));
    CU_ASSERT_EQUAL(number(reg, bytes), 0);
    CU_ASSERT(number(reg, "SELECT event_bytes <= event_limit + 4000 FROM room"));
    CU_ASSERT(number(reg, "SELECT event_bytes * 10 > event_limit * 9 FROM room"));
    CU_ASSERT_EQUAL(number(reg, "SELECT max(time_ns) FROM events"), 3000);
    OK(plx_registry_room(reg, &used, &pages));
    CU_ASSERT(used < pages / 5);
}

/* One span more: what was there stays, and there is more room. */
static void test_grown(void)
{
    struct plx_region region = place_spans();
    uint64_t used, pages, more;
    struct plx_registry *longer = NULL;

    make_store(reg, "demo");
    OK(plx_registry_room(reg, &used, &pages));
    close_here();
    region.spans = 3;
    region.span[2].offset = 48 << 20;
    region.span[2].bytes = 4 << 20;
    OK(place_open(path, false, &region, &fault));
    OK(plx_registry_open_region(&region, "volume", "test", &longer, &fault));
    OK(plx_registry_room(longer, &used, &more));
    CU_ASSERT(more > pages + 500);
    CU_ASSERT_EQUAL(number(longer, "SELECT count(*) FROM store"), 1);
    OK(make_disk(longer, 1, "web"));
    plx_registry_close(longer);
    place_close(&region);
}

/* ---- A region that gets longer while it is open ------------------------------------------ */

static unsigned spans_now; /* as the superblock has it */

static int look(struct plx_region *region, struct plx_fault *why)
{
    static const struct plx_region all = {
        .span = {{1 << 20, 1 << 20}, {4 << 20, 512 << 10}, {8 << 20, 6 << 20}}};

    if (!spans_now)
        return plx_fault_set(why, PLX_ERR_IO_READ, "the superblock cannot be read");
    memcpy(region->span, all.span, sizeof region->span);
    region->spans = spans_now;
    return 0;
}

static void open_short(struct plx_region *region, struct plx_registry **ret_reg)
{
    *region = (struct plx_region){.look = look};
    look(region, &fault);
    OK(place_open(path, false, region, &fault));
    OK(plx_registry_open_region(region, "volume", "test", ret_reg, &fault));
}

static int add_span(void *context, struct plx_fault *why)
{
    struct plx_region *other = context;
    bool busy = false;

    CU_ASSERT_EQUAL(other->locks->ops->probe(other->locks, PLX_BYTE_SQLITE + 2, &busy), 0);
    CU_ASSERT_EQUAL(other->locks->ops->set(other->locks, PLX_BYTE_SQLITE + 2, PLX_BYTE_SHARED),
                    PLX_ERR_BUSY);
    CU_ASSERT(busy);
    spans_now = 3;
    return 0;
}

/* More than two spans hold, in one transaction. */
static const char fill[] =
    "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300)"
    " INSERT INTO policies SELECT id, 'k' || i, hex(zeroblob(1800)) FROM n, vdis";
static const char filled[] =
    "SELECT count(*) FROM policies WHERE key LIKE 'k%' AND value = hex(zeroblob(1800))";

/* All who have it open find the new span with their next lock, and with it room. */
static void test_grown_while_open(void)
{
    struct plx_region here, there;
    struct plx_registry *a = NULL, *b = NULL;
    uint64_t used, pages, more;
    int64_t limit;

    close_here();
    spans_now = 2;
    open_short(&here, &a);
    open_short(&there, &b);
    make_store(a, "demo");
    OK(make_disk(b, 1, "web"));
    limit = number(b, "SELECT event_limit FROM room");
    OK(plx_registry_room(b, &used, &pages));
    CU_ASSERT(pages < 200);
    FAILS(NOSPACE, change(b, fill));
    SAYS(plx_registry_error(b), "store grow");
    OK(plx_registry_alone(a, add_span, &there, &fault));
    OK(change(a, fill));
    OK(plx_registry_room(b, &used, &more));
    CU_ASSERT(used > pages + 100 && more > pages + 700);
    CU_ASSERT_EQUAL(number(b, filled), 300);
    OK(plx_registry_check(b));
    OK(change(b, "UPDATE policies SET value = 'small'"));
    CU_ASSERT_EQUAL(number(a, filled), 0);
    OK(change(b, "DELETE FROM policies"));
    OK(change(b, fill)); /* its limits have followed, too */
    CU_ASSERT(number(b, "SELECT event_limit FROM room") > 4 * limit);
    OK(plx_registry_check(a));

    spans_now = 2;
    FAILS(CORRUPT, plx_registry_room(b, &used, &more));
    SAYS(plx_registry_error(b), "elsewhere");
    spans_now = 0;
    FAILS(IO_READ, plx_registry_room(a, &used, &more));
    spans_now = 3;
    OK(plx_registry_check(a));
    OK(plx_registry_check(b));
    plx_registry_close(a);
    plx_registry_close(b);
    place_close(&here);
    place_close(&there);
}

static const struct plx_device_ops *driver;
static unsigned pages_left;

/* Dies when so many pages of the database were written. */
static void dying_submit(struct plx_device *device, struct plx_io *io)
{
    struct plx_region all = {.spans = 0};

    look(&all, &fault);
    for (unsigned i = 0; i < all.spans; i++)
        if (io->op == PLX_IO_WRITE && io->offset >= all.span[i].offset &&
            io->offset < all.span[i].offset + all.span[i].bytes / 2 && !pages_left--)
            raise(SIGKILL);
    driver->submit(device, io);
}

static _Noreturn void change_and_die(void)
{
    struct plx_region region;
    struct plx_registry *own;
    struct plx_device_ops dying;

    open_short(&region, &own);
    driver = region.device->ops;
    dying = *driver;
    dying.submit = dying_submit;
    region.device->ops = &dying;
    pages_left = 250;
    change(own, "UPDATE policies SET value = 'small'");
    _exit(1);
}

/* What is to be rolled back lies behind what the one who does it knew of. */
static void test_journal_of_a_longer_one(void)
{
    struct plx_region here, there;
    struct plx_registry *a = NULL, *b = NULL;
    pid_t child;
    int status;

    close_here();
    spans_now = 2;
    open_short(&here, &a);
    open_short(&there, &b);
    make_store(a, "demo");
    OK(make_disk(a, 1, "web"));
    CU_ASSERT_EQUAL(number(b, filled), 0);
    OK(plx_registry_alone(a, add_span, &there, &fault));
    OK(change(a, fill));
    plx_registry_close(a);
    place_close(&here);
    fflush(NULL);
    child = fork();
    if (!child)
        change_and_die();
    CU_ASSERT_EQUAL_FATAL(waitpid(child, &status, 0), child);
    CU_ASSERT(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    CU_ASSERT_EQUAL(number(b, filled), 300);
    OK(plx_registry_check(b));
    plx_registry_close(b);
    place_close(&there);
}

/* ---- A journal that cannot be written ---------------------------------------------------- */

static unsigned headers_left;

/* Refuses one write of the journal's first block. */
static void refusing_submit(struct plx_device *device, struct plx_io *io)
{
    const struct plx_region region = place_spans();
    bool header =
        io->op == PLX_IO_WRITE && io->offset == region.span[0].offset + region.span[0].bytes / 2;

    device->read_only = header && !headers_left--;
    driver->submit(device, io);
    device->read_only = false;
}

/* Whichever write of a journal fails, who made the change sees what all others see. */
static void test_journal_refused(void)
{
    static const char changed[] = "SELECT count(*) FROM vdis WHERE name = 'changed'";
    struct plx_region region = place_spans();
    struct plx_registry *own = NULL;
    struct plx_device_ops refusing;
    int code = -1;

    make_store(reg, "demo");
    OK(make_disk(reg, 1, "web"));
    OK(place_open(path, false, &region, &fault));
    OK(plx_registry_open_region(&region, path, "test", &own, &fault));
    driver = region.device->ops;
    refusing = *driver;
    refusing.submit = refusing_submit;
    region.device->ops = &refusing;
    for (unsigned k = 0; code; k++) {
        headers_left = k;
        code = change(own, "UPDATE vdis SET name = 'changed'");
        CU_ASSERT_EQUAL(number(own, changed), number(reg, changed));
        CU_ASSERT_EQUAL(number(own, changed), !code);
        CU_ASSERT_EQUAL(!code, k == 3); /* begun, complete, ended */
    }
    OK(plx_registry_check(own));
    plx_registry_close(own);
    place_close(&region);
}

static void read_page(unsigned page, uint8_t *contents)
{
    int fd = open(path, O_RDONLY);

    CU_ASSERT_EQUAL(pread(fd, contents, PLX_BLOCK_SIZE, page_at(page)), PLX_BLOCK_SIZE);
    close(fd);
}

/* The end of a journal cannot be written: others undo the commit, and make one of their own that
 * ends with the same page 1. Who had made the first one blames no device (region_stamps.c). */
static void test_undone_by_another(void)
{
    struct plx_region region = place_spans();
    uint8_t own_first[PLX_BLOCK_SIZE], other_first[PLX_BLOCK_SIZE];
    struct plx_registry *own = NULL;
    struct plx_device_ops refusing;

    make_store(reg, "demo");
    OK(make_disk(reg, 1, "web"));
    OK(place_open(path, false, &region, &fault));
    OK(plx_registry_open_region(&region, path, "test", &own, &fault));
    driver = region.device->ops;
    refusing = *driver;
    refusing.submit = refusing_submit;
    region.device->ops = &refusing;
    headers_left = 2; /* begun, complete */
    CU_ASSERT_NOT_EQUAL(change(own, "UPDATE vdis SET name = 'mine'"), 0);
    read_page(1, own_first);
    OK(change(reg, "UPDATE vdis SET name = 'hers'"));
    read_page(1, other_first);
    CU_ASSERT(memcmp(own_first, other_first, PLX_BLOCK_SIZE) == 0);
    CU_ASSERT_EQUAL(number(own, "SELECT count(*) FROM vdis WHERE name = 'hers'"), 1);
    OK(plx_registry_check(own));
    OK(change(own, "UPDATE vdis SET name = 'mine'"));
    CU_ASSERT_EQUAL(number(reg, "SELECT count(*) FROM vdis WHERE name = 'mine'"), 1);
    OK(plx_registry_check(reg));
    plx_registry_close(own);
    place_close(&region);
}

/* ---- Slots of the table that cannot be read ---------------------------------------------- */

static unsigned unread; /* bit 0: slot A, bit 1: slot B */

static void unreadable_submit(struct plx_device *device, struct plx_io *io)
{
    off_t at = (off_t)io->offset - table_at();

    if (io->op == PLX_IO_READ && at >= 0 && at < 2 * PLX_BLOCK_SIZE &&
        (unread & 1 << at / PLX_BLOCK_SIZE)) {
        io->result = PLX_ERR_IO_READ;
        io->done(io);
    } else {
        driver->submit(device, io);
    }
}

/* Commits while some slots cannot be read, and again when they can be: `unread` is a bad sector at
 * one time, or a device that fails for a while. */
static void change_unread(const struct plx_region *region, unsigned slots, const char *name)
{
    struct plx_registry *own = NULL;
    char text[96];

    unread = slots;
    OK(plx_registry_open_region(region, path, "test", &own, &fault));
    OK(plx_registry_check(own));
    snprintf(text, sizeof text, "UPDATE vdis SET name = '%s'", name);
    OK(change(own, text));
    OK(plx_registry_check(own));
    plx_registry_close(own);
    OK(place_registry_open(path, "test", &own, &fault));
    OK(plx_registry_check(own));
    snprintf(text, sizeof text, "SELECT count(*) FROM vdis WHERE name = '%s'", name);
    CU_ASSERT_EQUAL(number(own, text), 1);
    place_registry_close(own);
}

/* No page is refused because of that, nor later by a slot that was hidden and is older. */
static void test_unreadable_slots(void)
{
    struct plx_region region = place_spans();
    struct plx_device_ops unreadable;
    uint8_t slot[PLX_BLOCK_SIZE] = {7};
    char name[16];
    int fd;

    OK(make_disk(reg, make_store(reg, "demo").id, "web"));
    close_here();
    OK(place_open(path, false, &region, &fault));
    driver = region.device->ops;
    unreadable = *driver;
    unreadable.submit = unreadable_submit;
    region.device->ops = &unreadable;
    for (unsigned i = 0; i < 12; i++) { /* whichever slot is the newer one */
        snprintf(name, sizeof name, "disk-%u", i);
        change_unread(&region, 1 + (i + i / 3) % 3, name);
    }
    fd = open(path, O_RDWR);
    for (unsigned i = 0; i < 4; i++) { /* the other one is damaged */
        snprintf(name, sizeof name, "other-%u", i);
        CU_ASSERT_EQUAL(pwrite(fd, slot, sizeof slot, table_at() + (off_t)(i % 2) * PLX_BLOCK_SIZE),
                        sizeof slot);
        change_unread(&region, 2 >> i % 2, name);
    }
    close(fd);
    place_close(&region);
}

/* ---- Whole registries -------------------------------------------------------------------- */

static void plain_sql(const char *file, const char *text)
{
    sqlite3 *db;

    CU_ASSERT_EQUAL_FATAL(sqlite3_open(file, &db), SQLITE_OK);
    CU_ASSERT_EQUAL(sqlite3_exec(db, text, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

/* Out, changed in any way that SQLite can, and in again, beside a connection that stays open. */
static void test_out_and_in(void)
{
    struct plx_registry *other, *own = NULL;
    char file[PLX_PATH_MAX];
    struct stat st;

    make_store(reg, "first");
    snprintf(file, sizeof file, "%s/a ?%%20#b.db", directory);
    OK(plx_registry_get(reg, file, &fault));
    CU_ASSERT_EQUAL(stat(file, &st), 0);
    CU_ASSERT_EQUAL(st.st_mode & 0777, 0600);
    OK(plx_registry_open(file, "file", &own, &fault)); /* an ordinary registry, in WAL now */
    make_store(own, "second");
    FAILS(UNSUPPORTED, plx_registry_put(own, file, &fault));
    plx_registry_close(own);
    plain_sql(file, "PRAGMA journal_mode = DELETE; PRAGMA page_size = 1024; VACUUM;"
                    "PRAGMA journal_mode = WAL; UPDATE store SET extent_blocks = 7");
    OK(place_registry_open(path, "other", &other, &fault));
    CU_ASSERT_EQUAL(number(other, "SELECT count(*) FROM store"), 1);
    OK(plx_registry_put(reg, file, &fault));
    CU_ASSERT_EQUAL(number(other, "SELECT count(*) FROM store WHERE extent_blocks = 7"), 2);
    CU_ASSERT_EQUAL(number(reg, "SELECT count(*) FROM store"), 2);
    make_store(other, "third");
    OK(plx_registry_check(reg));
    place_registry_close(other);
    reopen();
    CU_ASSERT_EQUAL(number(reg, "SELECT count(*) FROM store"), 3);
    CU_ASSERT_NOT_EQUAL(number(reg, "SELECT event_limit FROM room"), 8 << 20);
}

static void refuse_put(const char *file, int code, const char *why)
{
    CU_ASSERT_EQUAL(plx_registry_put(reg, file, &fault), code);
    if (!strstr(fault.text, why))
        fprintf(stderr, "\n  '%s' lacks '%s'\n", fault.text, why);
    SAYS(fault.text, why);
    CU_ASSERT_EQUAL(number(reg, "SELECT count(*) FROM store WHERE name = 'kept'"), 1);
    OK(plx_registry_check(reg));
}

static void test_bad_files(void)
{
    char file[PLX_PATH_MAX];
    uint8_t page[PLX_BLOCK_SIZE];
    int fd;

    make_store(reg, "kept");
    snprintf(file, sizeof file, "%s/file.db", directory);
    refuse_put(file, PLX_ERR_REGISTRY, "file.db");
    plain_sql(file, "CREATE TABLE bookmarks (id)");
    refuse_put(file, PLX_ERR_REGISTRY, "not a Parallax registry");
    CU_ASSERT_EQUAL(unlink(file), 0);
    plain_sql(file, "VACUUM");
    refuse_put(file, PLX_ERR_REGISTRY, "is empty");
    OK(plx_registry_get(reg, file, &fault));
    plain_sql(file, "INSERT INTO migrations VALUES (1000, 1)");
    refuse_put(file, PLX_ERR_UNSUPPORTED, "use a newer Parallax");
    OK(plx_registry_get(reg, file, &fault));
    plain_sql(file, "INSERT INTO labels VALUES ('12345678-1234-4234-8234-123456789abc', 'x', 1, 1,"
                    " NULL)");
    refuse_put(file, PLX_ERR_REGISTRY, "refer to missing ones");
    OK(plx_registry_get(reg, file, &fault));
    plain_sql(file, "INSERT INTO store_policies SELECT 1, 'k' || i, hex(zeroblob(4000000)) FROM"
                    " (SELECT 1 AS i UNION ALL SELECT 2 UNION ALL SELECT 3)");
    refuse_put(file, PLX_ERR_NOSPACE, "pages");
    OK(plx_registry_get(reg, file, &fault));
    fd = open(file, O_RDWR);
    memset(page, 0xa5, sizeof page);
    for (unsigned i = 2; i < 6; i++)
        CU_ASSERT_EQUAL(pwrite(fd, page, sizeof page, i * (off_t)sizeof page), sizeof page);
    close(fd);
    refuse_put(file, PLX_ERR_REGISTRY, "damaged");
    FAILS(SYSTEM, plx_registry_get(reg, "/nonexistent/file.db", &fault));
    SAYS(fault.text, "/nonexistent/file.db");
}

/* Damaged pages that opening does not need are mended by putting another registry in; if that does
 * not come to its end they stay damaged. */
static void test_put_over_damage(void)
{
    static const char *const tables[] = {"'vdis'", "'labels'", "'extents'", "'vdis_name'"};
    struct plx_region region = place_spans();
    struct plx_registry *own = NULL;
    char file[PLX_PATH_MAX], text[96];
    uint8_t page[PLX_BLOCK_SIZE];
    unsigned roots[4];
    int fd = open(path, O_RDWR), left = 1000;

    make_store(reg, "demo");
    snprintf(file, sizeof file, "%s/file.db", directory);
    OK(plx_registry_get(reg, file, &fault));
    memset(page, 0xa5, sizeof page);
    for (unsigned i = 0; i < 4; i++) {
        snprintf(text, sizeof text, "SELECT rootpage FROM sqlite_schema WHERE name = %s",
                 tables[i]);
        roots[i] = (unsigned)number(reg, text);
    }
    close_here();
    for (unsigned i = 0; i < 4; i++)
        CU_ASSERT_EQUAL(pwrite(fd, page, sizeof page, page_at(roots[i])), sizeof page);
    OK(place_open(path, false, &region, &fault));
    region.may_write = may;
    region.context = &left;
    OK(plx_registry_open_region(&region, path, "test", &own, &fault));
    FAILS(REGISTRY, plx_registry_check(own));
    left = 2; /* it comes as far as a journal that could be rolled back */
    FAILS(FENCED, plx_registry_put(own, file, &fault));
    left = 1000;
    FAILS(REGISTRY, plx_registry_check(own));
    OK(plx_registry_put(own, file, &fault));
    OK(plx_registry_check(own));
    plx_registry_close(own);
    place_close(&region);
    close(fd);
}

static void test_blank(void)
{
    struct plx_region region = place_spans();

    make_store(reg, "demo");
    close_here();
    OK(place_open(path, false, &region, &fault));
    OK(plx_region_blank(&region, &fault));
    place_close(&region);
    OK(place_registry_open(path, "test", &reg, &fault));
    CU_ASSERT_EQUAL(number(reg, "SELECT count(*) FROM store"), 0);
    make_store(reg, "demo");
    OK(plx_registry_check(reg));
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"locks on bytes", test_bytes},
        {"locks of the dead", test_bytes_of_the_dead},
        {"locks of LUNs", test_bytes_of_luns},
        {"two connections", test_two_connections},
        {"opened for reading only", test_reading_only},
        {"nothing to read", test_empty_for_reading},
        {"a host that may not write", test_may_write},
        {"a damaged page", test_damaged_page},
        {"no first page", test_no_first_page},
        {"a stale page", test_stale_page},
        {"each write of a commit lost", test_lost_write},
        {"rolled back beside", test_rolled_back_beside},
        {"a truncated volume", test_truncated},
        {"spans that cannot be", test_bad_spans},
        {"a full region", test_full},
        {"events are bounded", test_events_bounded},
        {"a longer region", test_grown},
        {"a longer region while it is open", test_grown_while_open},
        {"a journal of a longer region", test_journal_of_a_longer_one},
        {"a journal that cannot be written", test_journal_refused},
        {"a commit undone by another", test_undone_by_another},
        {"slots that cannot be read", test_unreadable_slots},
        {"taken out and put in", test_out_and_in},
        {"files that are not put in", test_bad_files},
        {"put in over damage", test_put_over_damage},
        {"made empty", test_blank},
    };
    const struct suite_frame frame = {.before = setup, .after = teardown};

    return SUITE_RUN_IN(&frame, "region", tests);
}
