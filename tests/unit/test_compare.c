/* test_compare.c - the registry against the store: each way in which they can differ is told, once
 * and with what to do about it; what is under way, or passes, is not.
 *
 * Two stores: of one nobody is alive that holds anything, the other has a disk open in a process
 * that was killed. The store is never changed; statements change the registry beneath a reader.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/format/format.h"
#include "engine/disk/vdi.h"
#include "attach/compare.h"
#include "attach/founding.h"
#include "folder.h"
#include "unit/registry_edit.h"
#include "ok.h"
#include "suite.h"

#define MIB (1ull << 20)
#define EXTENT_BLOCKS (MIB / PLX_BLOCK_SIZE)
#define FOLDERS 2
#define HEARD_MAX 8

enum folder { QUIET, KILLED };

static char folders[FOLDERS][64], folder[64];
static struct plx_attach *attach;
static struct plx_fault fault;

static const char *path_of(const char *name)
{
    static char path[128];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static bool shell(const char *command)
{
    char words[512];

    snprintf(words, sizeof words, "cd %s && %s", folder, command);
    return system(words) == 0;
}

static int open_attach(bool read_only)
{
    struct plx_attach_options options = {
        .store = "s", .state_dir = folder, .role = "admin", .read_only = read_only};

    return plx_attach_open(&options, &attach, &fault);
}

/* ---- The stores: made by processes of their own, since one of them is to die ---- */

static int run(struct plx_vdi *vdi, enum plx_request_op op, uint64_t *ret_seq)
{
    static uint8_t bytes[64 << 10];
    struct iovec iov = {bytes, sizeof bytes};
    struct plx_request request = {.op = op, .length = sizeof bytes, .iov = &iov, .iovcnt = 1};
    int error;

    memset(bytes, 7, sizeof bytes);
    error = plx_vdi_run(vdi, &request);
    if (ret_seq)
        *ret_seq = request.seq;
    return error;
}

static int open_disk(const char *name, struct plx_vdi **ret_vdi)
{
    struct plx_attach_vdi_options options = {.overwrite = -1};

    return plx_attach_vdi_open(attach, name, NULL, &options, ret_vdi, &fault);
}

static int create(const char *name)
{
    struct plx_vdi_create_options options = {.size_bytes = 4 * MIB, .sector_size = 512};
    struct plx_vdi_info info;

    snprintf(options.name, sizeof options.name, "%s", name);
    return plx_attach_vdi_create(attach, &options, NULL, NULL, &info, &fault);
}

static int fill_disk(struct plx_vdi *vdi)
{
    struct plx_protection protection = {.mode = PLX_PROTECT_INTERVAL,
                                        .interval_ns = PLX_INTERVAL_MAX_NS};
    uint64_t seq;
    int error = run(vdi, PLX_WRITE, NULL);

    if (!error)
        error = plx_attach_protect(attach, vdi, &protection, &fault);
    if (!error)
        error = run(vdi, PLX_SNAPSHOT, &seq);
    return error ? error : plx_attach_label(attach, vdi, "kept", seq, 1, &fault);
}

/* A disk v with a label, a disk w that is deleted. */
static int make_store(void)
{
    struct plx_format_options options = {.name = "s", .extent_bytes = MIB};
    const char *volume = path_of("volume");
    struct plx_store_info info;
    struct plx_vdi *vdi;
    int error =
        plx_founding_format(folder, &volume, 1, 16 * MIB, &options, false, NULL, &info, &fault);

    if (!error)
        error = open_attach(false);
    if (error)
        return error;
    error = create("v");
    if (!error)
        error = create("w");
    if (!error)
        error = plx_attach_vdi_delete(attach, "w", false, &fault);
    if (!error)
        error = open_disk("v", &vdi);
    if (!error)
        error = fill_disk(vdi);
    if (!error)
        error = plx_attach_vdi_close(attach, vdi);
    return error ? error : plx_attach_close(attach);
}

static int die_with_disk(void)
{
    struct plx_vdi *vdi;
    int error = open_attach(false);

    if (!error)
        error = open_disk("v", &vdi);
    return error ? error : run(vdi, PLX_WRITE, NULL);
}

static bool in_child(int (*work)(void))
{
    int status;
    pid_t child;

    fflush(NULL);
    child = fork();
    if (child == 0) {
        int error = work();

        if (error)
            printf("%s: %s\n", plx_error_name(error), fault.text);
        fflush(NULL);
        _exit(error != 0);
    }
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static int make_stores(void)
{
    for (int i = 0; i < FOLDERS; i++) {
        if (!folder_make("compare", folders[i]))
            return -1;
        strcpy(folder, folders[i]);
        if (!in_child(make_store) || (i == KILLED && !in_child(die_with_disk)) ||
            !shell("cp volume volume-kept && cp stores/s.json s.json-kept"))
            return -1;
    }
    return 0;
}

static int remove_stores(void)
{
    for (int i = 0; i < FOLDERS; i++) {
        strcpy(folder, folders[i]);
        if (!shell("rm -r $PWD"))
            return -1;
    }
    return 0;
}

/* ---- Comparing ---- */

static struct {
    unsigned count;
    enum plx_finding_severity severity[HEARD_MAX];
    char text[HEARD_MAX][768];
} heard;

static void on_found(void *context, const struct plx_finding *finding)
{
    CU_ASSERT_STRING_EQUAL(finding->kind, "registry");
    CU_ASSERT_FATAL(heard.count < HEARD_MAX);
    heard.severity[heard.count] = finding->severity;
    snprintf(heard.text[heard.count++], sizeof heard.text[0], "%s", finding->text);
}

static void sql(const char *statement)
{
    int changes = 0;

    OK(plx_registry_edit(path_of("volume"), statement, &changes, &fault));
    CU_ASSERT(changes > 0);
}

static void restore(enum folder which)
{
    strcpy(folder, folders[which]);
    CU_ASSERT_FATAL(shell("cp volume-kept volume"));
}

/* change, unless it is NULL, happens after the store was opened. */
static int compare(enum folder which, void (*change)(const char *text), const char *text)
{
    int error;

    restore(which);
    OK(open_attach(true));
    if (change)
        change(text);
    memset(&heard, 0, sizeof heard);
    memset(&fault, 0, sizeof fault);
    error = plx_attach_compare(attach, on_found, NULL, &fault);
    OK(plx_attach_close(attach));
    return error;
}

static void show(void)
{
    for (unsigned i = 0; i < heard.count; i++)
        printf("\n  %s", heard.text[i]);
}

struct difference {
    const char *statement;
    enum plx_finding_severity severity;
    const char *text; /* NULL: nothing is told */
    const char *more; /* a second one, if any */
};

static void check(enum folder which, const struct difference *d)
{
    unsigned wanted = d->text ? 1 + (d->more != NULL) : 0;
    bool right;

    OK(compare(which, sql, d->statement));
    right = heard.count == wanted;
    for (unsigned i = 0; right && i < wanted; i++)
        right = heard.severity[i] == d->severity &&
                strstr(heard.text[i], i ? d->more : d->text) != NULL;
    CU_ASSERT(right);
    if (right)
        return;
    printf("\n  after %s:", d->statement);
    show();
}

#define ERROR PLX_FINDING_ERROR
#define INFO PLX_FINDING_INFO

/* ---- Tests ---- */

/* The store, by somebody else, to as many MiB as the text says. */
static void grow(const char *mib)
{
    const struct plx_attach_growth growth = {.how.dry_run = false};
    struct plx_attach *reader = attach;
    struct plx_grown grown;
    char command[64];

    snprintf(command, sizeof command, "truncate -s %sM volume", mib);
    CU_ASSERT_FATAL(shell(command));
    OK(open_attach(false));
    OK(plx_attach_grow(attach, &growth, &grown, &fault));
    CU_ASSERT(grown.added > 0 && !grown.registry_stays);
    OK(plx_attach_close(attach));
    attach = reader;
}

/* It became larger, and its registry, too, since the one that compares opened it. */
static void test_grown(void)
{
    OK(compare(QUIET, grow, "256"));
    CU_ASSERT_EQUAL(heard.count, 0);
    show();
}

/* What is kept for the registry, and holds data. */
static void test_kept(void)
{
    static const struct difference empty = {
        "INSERT INTO extents (store, no, type) SELECT store, touched, 'system' FROM volumes;"
        " UPDATE volumes SET touched = touched + 1",
        INFO, "is kept for the registry", NULL};

    check(QUIET, &empty);
    OK(compare(QUIET, sql, "UPDATE extents SET type = 'system' WHERE type = 'data'"));
    CU_ASSERT_EQUAL_FATAL(heard.count, 2);
    CU_ASSERT_EQUAL(heard.severity[1], PLX_FINDING_ERROR);
    CU_ASSERT_PTR_NOT_NULL(strstr(heard.text[1], "which would be overwritten"));
}

/* A further volume, whose adding is broken off before the registry knows of its extents: its first
 * one holds a superblock, and nobody is given it. */
static void add_volume(const char *statement)
{
    const struct plx_attach_growth growth = {.path = path_of("further"), .create_bytes = 8 * MIB};
    struct plx_attach *reader = attach;
    struct plx_grown grown;

    OK(open_attach(false));
    OK(plx_attach_grow(attach, &growth, &grown, &fault));
    OK(plx_attach_close(attach));
    attach = reader;
    sql(statement);
}

static void test_not_yet_registered(void)
{
    OK(compare(QUIET, add_volume,
               "DELETE FROM extents WHERE no >= 16;"
               "INSERT INTO growth (store, path) SELECT store, path FROM volumes WHERE idx = 1;"
               "DELETE FROM volumes WHERE idx = 1"));
    CU_ASSERT_EQUAL_FATAL(heard.count, 1);
    CU_ASSERT_EQUAL(heard.severity[0], INFO);
    CU_ASSERT_PTR_NOT_NULL(strstr(heard.text[0], "the registry does not know yet"));
    CU_ASSERT(shell("rm further && rm stores/s.json && cp s.json-kept stores/s.json"));
}

static void test_no_difference(void)
{
    for (enum folder which = QUIET; which <= KILLED; which++) {
        OK(compare(which, NULL, NULL));
        CU_ASSERT_EQUAL(heard.count, 0);
        show();
    }
}

static void test_disks(void)
{
    static const struct difference differences[] = {
        {"UPDATE vdis SET name = 'other' WHERE name = 'v'", ERROR,
         "disk other is called v by its record; opening it for writing sets it right", NULL},
        {"UPDATE vdis SET slot = 50 WHERE name = 'v'", ERROR,
         "has slot 0 on the store and 50 in the registry", "slot 50 of the store does not hold it"},
        {"UPDATE vdis SET sector_size = 4096 WHERE name = 'v'", ERROR, "sector size or parent",
         NULL},
        {"UPDATE vdis SET parent_seq = 3 WHERE name = 'v'", ERROR, "sector size or parent", NULL},
        {"UPDATE vdis SET parent = id WHERE name = 'v'", ERROR, "sector size or parent", NULL},
        {"UPDATE vdis SET size_bytes = 4096 WHERE name = 'v'", ERROR,
         "has 4194304 bytes on the store and 4096 in the registry", NULL},
        {"UPDATE vdis SET epoch = 0 WHERE name = 'v'", ERROR, "it cannot be opened", NULL},
        {"UPDATE vdis SET state = 'deleted' WHERE name = 'v'", ERROR,
         "is deleted in the registry and alive on the store", NULL},
        {"UPDATE vdis SET state = 'live' WHERE name = 'w'", ERROR,
         "disk w is deleted on the store and alive in the registry", NULL},
        {"DELETE FROM vdis WHERE name = 'v'", ERROR, "disk v (slot 0) is not in the registry",
         NULL},
        {"DELETE FROM vdis WHERE name = 'w'", ERROR, NULL, NULL}, /* nothing is lost with it */
        {"INSERT INTO vdis SELECT 'ghost-ghost-ghost-ghost-ghost-ghost-', store, 60, 'ghost',"
         " 4096, 512, NULL, 0, 'live', NULL, 0, 1, NULL, 0, 0 FROM vdis WHERE name = 'v'",
         ERROR, "until then nothing of it is freed", NULL},
        /* Of a disk that went back, what only the registry knows is no mistake. */
        {"UPDATE vdis SET written_epoch = 9, size_bytes = 4096 WHERE name = 'v';"
         "INSERT INTO labels SELECT vdi, 'later', seq + 1, 1, NULL FROM labels",
         ERROR, "disk v: its record is older than what was written last", NULL},
    };

    for (size_t i = 0; i < sizeof differences / sizeof differences[0]; i++)
        check(QUIET, &differences[i]);
}

/* What is told of the store as a whole, and of what a rebuild lost. */
static void test_doubt(void)
{
    static const struct difference differences[] = {
        {"UPDATE store SET doubt = 'something newer was seen'", ERROR,
         "in doubt, so nothing new is opened for writing: something newer was seen", NULL},
        {"INSERT INTO lost SELECT id, 7, 'record', NULL, 'slot 7 is gone' FROM store", ERROR,
         "lost: slot 7 is gone; restore the store", NULL},
    };

    for (size_t i = 0; i < sizeof differences / sizeof differences[0]; i++)
        check(QUIET, &differences[i]);
}

static void test_labels_and_protection(void)
{
    static const struct difference differences[] = {
        {"DELETE FROM labels", ERROR, "label kept names snapshot", NULL},
        {"UPDATE labels SET seq = seq + 100", ERROR, "on the store and another in the registry",
         NULL},
        {"INSERT INTO labels SELECT vdi, 'forged', seq, 1, NULL FROM labels", ERROR,
         "label forged is only in the registry; 'parallax snap unlabel' removes it", NULL},
        {"UPDATE policies SET value = '5s'", INFO,
         "protection is 1d (keeps '') on the store and 5s ('') in the registry", NULL},
        {"DELETE FROM policies", INFO, "on the store and off ('') in the registry", NULL},
        {"UPDATE policies SET value = 'often'", INFO, "the registry's copy is none", NULL},
        {"INSERT INTO policies SELECT id, 'retention', 'for ever' FROM vdis WHERE name = 'v'", INFO,
         "the registry's copy is none", NULL},
    };

    for (size_t i = 0; i < sizeof differences / sizeof differences[0]; i++)
        check(QUIET, &differences[i]);
}

static void test_extents(void)
{
    static const struct difference differences[] = {
        {"UPDATE extents SET type = 'unused', sealed = 0 WHERE type = 'data'", ERROR,
         "which would be overwritten", NULL},
        {"UPDATE extents SET type = 'meta' WHERE type = 'data'", ERROR,
         "is a metadata extent in the registry and a data extent on the store", NULL},
        {"UPDATE extents SET type = 'data', sealed = 1, states = 9223372036854775807"
         " WHERE type = 'meta'",
         INFO, "1 of its extents was damaged or went back", NULL}, /* COMPARE-9 */
        {"UPDATE extents SET states = states + 1 WHERE type = 'data'", ERROR,
         "its header is older than what was written last",
         "1 of its extents is older than what was written there last"},
        {"UPDATE extents SET states = states - 1 WHERE type = 'data'", ERROR, /* COMPARE-10 */
         "saw it last: the registry lost a write", NULL},
        {"INSERT INTO extents (store, no, type) SELECT id, 15, 'data' FROM store", ERROR,
         "contradicts itself on which extents were ever used", /* COMPARE-7 */
         "extent 15 is a data extent in the registry and never came into use on the store"},
        {"UPDATE volumes SET touched = touched - 1", ERROR,
         "contradicts itself on which extents were ever used", NULL},
        {"UPDATE volumes SET touched = touched + 1", ERROR,
         "contradicts itself on which extents were ever used", NULL},
        {"INSERT INTO extents (store, no, type) SELECT id, 16, 'data' FROM store", ERROR,
         "has extent 16, beyond the end of the store, which has 16", NULL},
        {"UPDATE volumes SET uuid = 'second-second-second-second-second-s'", ERROR,
         "another identity", NULL},
        {"UPDATE volumes SET extents = extents - 1", INFO, "does not know yet", NULL},
        {"UPDATE volumes SET extents = extents + 1", ERROR, "another place for extents 0 to 15",
         NULL},
        {"INSERT INTO volumes SELECT store, 1, 0, 'second-second-second-second-second-s', path, 16,"
         " 4, 0 FROM volumes",
         ERROR, "the registry knows 2 volumes, the store has 1", "knows extents from 16 on"},
    };

    for (size_t i = 0; i < sizeof differences / sizeof differences[0]; i++)
        check(QUIET, &differences[i]);
}

/* Of what the dead process held, and what it was about to do (COMPARE-2). */
static void test_owners(void)
{
    unsigned unknown = 0;
    static const struct difference differences[] = {
        {"UPDATE extents SET owner = NULL WHERE type = 'meta'", ERROR,
         "saw it last: the registry lost a write", NULL}, /* COMPARE-10 */
        {"UPDATE vdis SET owner = NULL WHERE name = 'v'", ERROR, "by nobody in the registry", NULL},
        {"INSERT INTO instances (id, store, role, started_ns) SELECT 99, id, 'x', 1 FROM store;"
         "UPDATE extents SET owner = 99 WHERE type = 'meta'",
         INFO, "belongs to instance 99 in the registry and still to", NULL},
        {"INSERT INTO instances (id, store, role, started_ns) SELECT 99, id, 'x', 1 FROM store;"
         "UPDATE vdis SET owner = 99 WHERE name = 'v'",
         INFO, "disk v belongs to instance 99 in the registry and still to", NULL},
        {"UPDATE vdis SET size_bytes = 4096 WHERE name = 'v'", ERROR, NULL, NULL},
        {"DELETE FROM labels", INFO,
         "none in the registry; the next opening of the store for writing sets it right", NULL},
        {"INSERT INTO labels SELECT vdi, 'gone', seq, 1, NULL FROM labels", INFO,
         "label gone is only in the registry; the next opening of the store for writing", NULL},
        {"INSERT INTO vdis SELECT 'ghost-ghost-ghost-ghost-ghost-ghost-', store, 60, 'ghost',"
         " 4096, 512, owner, 1, 'live', NULL, 0, 1, NULL, 0, 0 FROM vdis WHERE name = 'v'",
         ERROR, NULL, NULL},
    };

    for (size_t i = 0; i < sizeof differences / sizeof differences[0]; i++)
        check(KILLED, &differences[i]);
    OK(compare(KILLED, sql,
               "UPDATE extents SET owner = NULL; UPDATE vdis SET owner = NULL;"
               "DELETE FROM instances"));
    for (unsigned i = 0; i < heard.count; i++)
        unknown += strstr(heard.text[i], "which the registry does not know") != NULL;
    CU_ASSERT(unknown >= 3); /* a disk, extents of data and of metadata */
}

/* ---- Of the store itself ---- */

/* Both copies of a block of the volume. */
static void change_copies(uint64_t block, void (*change)(void *copy))
{
    int fd = open(path_of("volume"), O_RDWR);
    uint8_t copy[PLX_BLOCK_SIZE];

    for (uint64_t i = block; i < block + 2; i++) {
        CU_ASSERT_EQUAL(pread(fd, copy, sizeof copy, (off_t)(i * sizeof copy)), sizeof copy);
        change(copy);
        CU_ASSERT_EQUAL(pwrite(fd, copy, sizeof copy, (off_t)(i * sizeof copy)), sizeof copy);
    }
    close(fd);
}

static struct plx_uuid store_id;
static uint64_t number; /* of the extent */

/* The first extent of data. */
static void find_extent(void)
{
    struct plx_store *store = plx_attach_store(attach);
    struct plx_extent_info extent = {0};
    struct plx_store_info info;

    plx_store_get_info(store, &info);
    store_id = info.id;
    for (number = 1; extent.type != PLX_EXTENT_DATA; number++)
        if (!plx_store_extent_is_system(store, number))
            OK(plx_store_extent_read(store, number, &extent, &fault));
    number--;
}

static void seal(void *copy)
{
    struct plx_extent_page page;

    OK(plx_format_extent_page_decode(copy, &store_id, number, 0, 1, &page, &fault));
    page.sealed = true;
    plx_format_extent_page_encode(&store_id, &page, copy);
}

static void spoil(void *copy)
{
    memset(copy, 0xa5, 512);
}

static void seal_extent(const char *text)
{
    find_extent();
    change_copies(number * EXTENT_BLOCKS, seal);
}

static void spoil_extent(const char *text)
{
    find_extent();
    change_copies(number * EXTENT_BLOCKS, spoil);
}

/* The beginning of the log. */
static void spoil_log(const char *text)
{
    struct plx_vdi_record record;
    uint8_t block[PLX_BLOCK_SIZE] = {0}, which;
    int fd = open(path_of("volume"), O_RDWR);

    OK(plx_vdi_record_read(plx_attach_store(attach), 0, &record, &which, &fault));
    CU_ASSERT_EQUAL(
        pwrite(fd, block, sizeof block,
               (off_t)(record.segment_addr * PLX_BLOCK_SIZE + PLX_SEGMENT_HEADER_BYTES)),
        sizeof block);
    close(fd);
}

static void truncate_volume(const char *text)
{
    CU_ASSERT_EQUAL(truncate(path_of("volume"), (off_t)strtoul(text, NULL, 0)), 0);
}

static void test_store(void)
{
    OK(compare(QUIET, seal_extent, NULL));
    CU_ASSERT_EQUAL(heard.count, 1);
    CU_ASSERT(heard.severity[0] == INFO);
    CU_ASSERT_PTR_NOT_NULL(strstr(heard.text[0], "is sealed on the store and not in the registry"));
    /* Damage is told by the store's own check, and the comparison goes on. */
    OK(compare(QUIET, spoil_extent, NULL));
    CU_ASSERT_EQUAL(heard.count, 0);
    OK(compare(QUIET, spoil_log, NULL));
    CU_ASSERT_EQUAL(heard.count, 0);
    show();
}

/* What cannot be read is no difference: the comparison fails, and says where. */
static void test_unreadable(void)
{
    CU_ASSERT_EQUAL(compare(QUIET, truncate_volume, "2097152"), PLX_ERR_IO_READ);
    CU_ASSERT_STRING_EQUAL(fault.text, "extent 2: read error on the store");
    CU_ASSERT_EQUAL(heard.count, 0);
}

static void test_store_forgotten(void)
{
    CU_ASSERT_EQUAL(compare(QUIET, sql, "DELETE FROM store"), PLX_ERR_NOT_FOUND);
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "store"));
}

/* ---- COMPARE-1 ---- */

static void *put_right(void *statement)
{
    usleep(50000);
    sql(statement);
    return NULL;
}

static pthread_t other;

static void differ_for_a_moment(const char *text)
{
    static char statement[] = "UPDATE vdis SET name = 'v' WHERE name = 'other'";

    sql(text);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&other, NULL, put_right, statement), 0);
}

static void test_passing_difference(void)
{
    OK(compare(QUIET, differ_for_a_moment, "UPDATE vdis SET name = 'other' WHERE name = 'v'"));
    pthread_join(other, NULL);
    CU_ASSERT_EQUAL(heard.count, 0);
    show();
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"no difference", test_no_difference},
        {"a volume that is not registered yet", test_not_yet_registered},
        {"virtual disks", test_disks},
        {"doubt, and what is lost", test_doubt},
        {"labels and protection", test_labels_and_protection},
        {"extents and volumes", test_extents},
        {"a store that grows meanwhile", test_grown},
        {"extents that are kept", test_kept},
        {"owners", test_owners},
        {"seals and damage", test_store},
        {"a volume that cannot be read", test_unreadable},
        {"a store that is forgotten meanwhile", test_store_forgotten},
        {"a difference that passes (COMPARE-1)", test_passing_difference},
    };
    const struct suite_frame stores = {.init = make_stores, .clean = remove_stores};

    return SUITE_RUN_IN(&stores, "compare", tests);
}
