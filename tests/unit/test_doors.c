/* test_doors.c - a store that lost writes: records that went back, or are another disk's, are not
 * believed; a collection frees nothing beside one.
 *
 * The store is a file; blocks of its volume are put back as they were earlier, both copies of a
 * record at once, as a device would show them that lost what it had acknowledged.
 */
#include <CUnit/Basic.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/format/format.h"
#include "ok.h"
#include "attach/attach.h"
#include "attach/doors.h"
#include "registry/embedded.h"
#include "attach/founding.h"
#include "registry/lost.h"
#include "attach/rebuild.h"
#include "suite.h"

#define MIB (1ull << 20)
#define RECORD_BYTES (2 * PLX_BLOCK_SIZE)

static char folder[64], volume[96];
static struct plx_attach *attach;
static struct plx_fault fault;

static void open_attach(void)
{
    struct plx_attach_options options = {.store = "s", .state_dir = folder, .role = "admin"};

    OK(plx_attach_open(&options, &attach, &fault));
}

static void close_attach(void)
{
    OK(plx_attach_close(attach));
    attach = NULL;
}

static void create(const char *name)
{
    struct plx_vdi_create_options options = {.size_bytes = 4 * MIB, .sector_size = 512};
    struct plx_vdi_info info;

    snprintf(options.name, sizeof options.name, "%s", name);
    OK(plx_attach_vdi_create(attach, &options, NULL, NULL, &info, &fault));
}

static int open_disk(const char *name, struct plx_vdi **ret_vdi)
{
    struct plx_attach_vdi_options options = {.overwrite = -1};

    return plx_attach_vdi_open(attach, name, NULL, &options, ret_vdi, &fault);
}

/* Closed again if it is not refused: else whoever closes the attach would end all tests. */
static void refuse_disk(const char *name, int code)
{
    struct plx_vdi *vdi;
    int error = open_disk(name, &vdi);

    CU_ASSERT_EQUAL(error, code);
    if (!error)
        OK(plx_attach_vdi_close(attach, vdi));
}

static void write_disk(const char *name, uint8_t with)
{
    static uint8_t bytes[64 << 10];
    struct iovec iov = {bytes, sizeof bytes};
    struct plx_request request = {
        .op = PLX_WRITE, .length = sizeof bytes, .iov = &iov, .iovcnt = 1};
    struct plx_vdi *vdi;

    memset(bytes, with, sizeof bytes);
    OK(open_disk(name, &vdi));
    OK(plx_vdi_run(vdi, &request));
    OK(plx_attach_vdi_close(attach, vdi));
}

static void record(uint32_t slot, uint8_t bytes[RECORD_BYTES], bool put)
{
    off_t at = (off_t)((PLX_VDI_TABLE_BLOCK + 2ull * slot) * PLX_BLOCK_SIZE);
    int fd = open(volume, O_RDWR);

    CU_ASSERT_EQUAL_FATAL(put ? pwrite(fd, bytes, RECORD_BYTES, at)
                              : pread(fd, bytes, RECORD_BYTES, at),
                          RECORD_BYTES);
    CU_ASSERT_EQUAL(fsync(fd), 0);
    close(fd);
}

static uint64_t extent_bytes;

static int make_store_of(uint64_t extents, uint64_t bytes)
{
    struct plx_format_options options = {.name = "s", .extent_bytes = bytes};
    const char *path = volume;
    struct plx_store_info info;

    /* In memory if possible: a busy disk takes its time to flush, which nothing here needs. */
    strcpy(folder, "/dev/shm/plx-doors-XXXXXX");
    if (!mkdtemp(folder)) {
        strcpy(folder, "/tmp/plx-doors-XXXXXX");
        if (!mkdtemp(folder))
            return -1;
    }
    snprintf(volume, sizeof volume, "%s/volume", folder);
    extent_bytes = bytes;
    return plx_founding_format(folder, &path, 1, extents * bytes, &options, false, NULL, &info,
                               &fault);
}

static int make_store(void)
{
    return make_store_of(32, MIB);
}

static int drop_store(void)
{
    char command[128];

    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

#define PART 40u /* blocks: several find room in an extent */

static void fill(const char *name, unsigned from, uint8_t with);
static bool holds(const char *name, unsigned from, uint8_t with);

static int is_older(const char *name, struct plx_registry_vdi *ret_row, bool *ret_older)
{
    struct plx_registry_store store;

    plx_attach_row(attach, &store);
    OK(plx_registry_vdi_get(plx_attach_registry(attach), store.id, name, ret_row));
    return plx_door_is_older(plx_attach_store(attach), ret_row, ret_older, &fault);
}

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

static int try_older(const struct plx_registry_vdi *row)
{
    struct plx_older older;
    int error;

    OK(plx_attach_look_at_older(attach, row, &older, &fault));
    CU_ASSERT_TRUE(older.older);
    error = plx_attach_accept_older(attach, row, &older, &(struct plx_watch){0}, &fault);
    free(older.gone);
    return error;
}

static void accept_older(const struct plx_registry_vdi *row)
{
    OK(try_older(row));
}

/* And its state is what it was. */
static void refuse_older(const struct plx_registry_vdi *row, int error)
{
    struct plx_registry_vdi now;
    bool older;

    CU_ASSERT_EQUAL(try_older(row), error);
    OK(is_older(row->name, &now, &older));
    CU_ASSERT_TRUE(older);
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
        refuse_older(&row, PLX_ERR_CORRUPT);
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

static struct plx_rebuilt rebuild(bool dry_run)
{
    const char *const volumes[] = {volume};
    struct plx_rebuild_options options = {
        .state_dir = folder, .volumes = volumes, .count = 1, .dry_run = dry_run};
    struct plx_rebuilt rebuilt = {0};
    struct plx_known known;

    OK(plx_rebuild(&options, &known, &rebuilt, &fault));
    plx_known_done(&known);
    return rebuilt;
}

/* Nor is its registry made anew. */
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

/* ---- Extents ---- */

#define HEADER_BYTES ((size_t)2 * PLX_BLOCK_SIZE) /* of an extent of 1 MiB; else its first page */

/* Of this extent; 0: of the first that holds data. */
static struct plx_registry_extent row_of(uint64_t no)
{
    struct plx_registry_extent *list, found = {0};
    struct plx_registry_store store;
    size_t count;

    plx_attach_row(attach, &store);
    OK(plx_registry_extent_list(plx_attach_registry(attach), store.id, PLX_REGISTRY_ANY, &list,
                                &count));
    for (size_t i = 0; i < count && !found.no; i++)
        if (no ? list[i].no == no : list[i].type == PLX_EXTENT_DATA)
            found = list[i];
    free(list);
    CU_ASSERT_FATAL(found.no != 0);
    return found;
}

static void header(uint64_t extent, uint8_t bytes[HEADER_BYTES], bool put)
{
    int fd = open(volume, O_RDWR);

    CU_ASSERT_EQUAL_FATAL(put ? pwrite(fd, bytes, HEADER_BYTES, (off_t)(extent * extent_bytes))
                              : pread(fd, bytes, HEADER_BYTES, (off_t)(extent * extent_bytes)),
                          HEADER_BYTES);
    CU_ASSERT_EQUAL(fsync(fd), 0);
    close(fd);
}

/* What a disk holds, from block `from` on. */
static void transfer(const char *name, enum plx_request_op op, unsigned from, unsigned blocks,
                     uint8_t *bytes)
{
    struct iovec iov = {bytes, (size_t)blocks * PLX_BLOCK_SIZE};
    struct plx_request request = {
        .op = op,
        .offset = (uint64_t)from * PLX_BLOCK_SIZE,
        .length = iov.iov_len,
        .iov = &iov,
        .iovcnt = 1,
    };
    struct plx_vdi *vdi;

    OK(open_disk(name, &vdi));
    OK(plx_vdi_run(vdi, &request));
    OK(plx_attach_vdi_close(attach, vdi));
}

static void fill(const char *name, unsigned from, uint8_t with)
{
    static uint8_t bytes[PART * PLX_BLOCK_SIZE];

    memset(bytes, with, sizeof bytes);
    transfer(name, PLX_WRITE, from, PART, bytes);
}

static bool holds(const char *name, unsigned from, uint8_t with)
{
    static uint8_t bytes[PART * PLX_BLOCK_SIZE];

    transfer(name, PLX_READ, from, PART, bytes);
    for (size_t i = 0; i < sizeof bytes; i++)
        if (bytes[i] != with)
            return false;
    return true;
}

/* A disk with one part written, then another; and the header of its extent as it was between. */
static uint64_t make_disks(uint8_t ret_between[HEADER_BYTES])
{
    uint64_t extent;

    OK(make_store());
    open_attach();
    create("one");
    create("two");
    fill("one", 0, 1);
    close_attach();
    open_attach();
    extent = row_of(0).no;
    close_attach();
    header(extent, ret_between, false);
    open_attach();
    fill("one", PART, 2);
    close_attach();
    return extent;
}

static void rebuild_registry(void)
{
    rebuild(false);
}

/* Writes, and leaves it to its log. */
static void write_and_die(const char *name, uint8_t with)
{
    static uint8_t bytes[PART * PLX_BLOCK_SIZE];
    struct iovec iov = {bytes, sizeof bytes};
    struct plx_request request = {
        .op = PLX_WRITE, .length = sizeof bytes, .iov = &iov, .iovcnt = 1};
    pid_t child = fork();
    struct plx_vdi *vdi;
    int status = 0;

    CU_ASSERT_FATAL(child >= 0);
    if (!child) {
        memset(bytes, with, sizeof bytes);
        open_attach();
        if (open_disk(name, &vdi))
            _exit(1);
        for (; !status && request.offset < 4 * sizeof bytes; request.offset += sizeof bytes)
            status = plx_vdi_run(vdi, &request);
        _exit(status != 0);
    }
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    CU_ASSERT_EQUAL(status, 0);
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

/* The header of an extent of nobody is another one now: the first write of another disk finds room
 * elsewhere, nothing is lost, nothing is ever allocated there again. */
static void refuse_header(uint64_t extent, uint8_t bytes[HEADER_BYTES])
{
    struct plx_collected collected;

    header(extent, bytes, true);
    open_attach();
    fill("two", 0, 3);
    CU_ASSERT(holds("one", 0, 1) && holds("one", PART, 2) && holds("two", 0, 3));
    close_attach();
    open_attach();
    CU_ASSERT(row_of(extent).sealed && !row_of(extent).owner);
    OK(plx_attach_vdi_delete(attach, "two", false, &fault));
    plx_attach_collect(attach, &(struct plx_attach_work){0}, &collected, &fault);
    create("two");
    fill("two", PART, 4);
    CU_ASSERT(row_of(extent).sealed && !row_of(extent).owner);
    CU_ASSERT(holds("one", 0, 1) && holds("one", PART, 2) && holds("two", PART, 4));
    close_attach();
    rebuild_registry();
    open_attach();
    CU_ASSERT(row_of(extent).sealed && row_of(extent).states == PLX_STATES_NEVER);
    fill("two", 2 * PART, 5);
    CU_ASSERT(holds("one", 0, 1) && holds("one", PART, 2) && holds("two", 2 * PART, 5));
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

static void test_header_older(void)
{
    uint8_t between[HEADER_BYTES];
    uint64_t extent = make_disks(between);

    refuse_header(extent, between);
}

/* And who had the extent has died: it is not adopted. */
static void test_header_of_dead(void)
{
    uint8_t between[HEADER_BYTES];
    uint64_t extent = make_disks(between);

    write_and_die("two", 3);
    header(extent, between, true);
    open_attach();
    CU_ASSERT(row_of(extent).sealed && !row_of(extent).owner);
    for (unsigned part = 4; part < 20; part++)
        fill("two", part * PART, 4);
    CU_ASSERT(holds("one", 0, 1) && holds("one", PART, 2));
    for (unsigned part = 0; part < 20; part++)
        CU_ASSERT(holds("two", part * PART, part < 4 ? 3 : 4));
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

/* Whose extents were told of when one of his disks was closed, though he had them still. */
static void test_header_of_living(void)
{
    uint8_t between[HEADER_BYTES];
    uint64_t extent = make_disks(between);
    pid_t child = fork();
    int status = 0;

    CU_ASSERT_FATAL(child >= 0);
    if (!child) {
        open_attach();
        fill("two", 0, 3);
        header(extent, between, false);
        fill("two", PART, 4);
        header(extent, between, true);
        _exit(0);
    }
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    CU_ASSERT_EQUAL(status, 0);
    open_attach();
    CU_ASSERT(row_of(extent).sealed && !row_of(extent).owner);
    for (unsigned part = 2; part < 20; part++)
        fill("two", part * PART, 5);
    CU_ASSERT(holds("two", 0, 3) && holds("two", PART, 4));
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

static void test_header_damaged(void)
{
    uint8_t bytes[HEADER_BYTES];
    uint64_t extent = make_disks(bytes);

    memset(bytes, 0xa5, sizeof bytes);
    refuse_header(extent, bytes);
}

static void put_registry(const char *copy)
{
    struct plx_embedded_options options = {.volume = volume, .who = "test"};
    struct plx_registry *registry;

    OK(plx_embedded_open(&options, &registry, &fault));
    OK(plx_registry_put(registry, copy, &fault));
    plx_registry_close(registry);
}

/* As if it had never been used. */
static void test_header_zero(void)
{
    uint8_t bytes[HEADER_BYTES];
    uint64_t extent = make_disks(bytes);

    memset(bytes, 0, sizeof bytes);
    refuse_header(extent, bytes);
}

/* What is not read again before the registry is made anew is noticed then. */
static void test_header_rebuilt(void)
{
    uint8_t between[HEADER_BYTES];
    uint64_t extent = make_disks(between);

    header(extent, between, true);
    rebuild_registry();
    refuse_header(extent, between);
}

/* The registry itself went back: an extent that it takes for unused holds a disk's blocks. They
 * stay as they are, and nothing more is opened before the registry is made anew. */
static void test_older_registry(void)
{
    struct plx_registry_store store;
    char copy[sizeof volume + 8];

    OK(make_store());
    open_attach();
    create("one");
    create("two");
    close_attach();
    open_attach();
    snprintf(copy, sizeof copy, "%s/copy", folder);
    OK(plx_registry_get(plx_attach_registry(attach), copy, &fault));
    fill("one", 0, 1);
    close_attach();
    put_registry(copy);
    open_attach();
    refuse_disk("two", PLX_ERR_REGISTRY); /* it asks for room */
    close_attach();
    open_attach();
    refuse_disk("two", PLX_ERR_REGISTRY);
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "has lost writes"));
    close_attach();
    rebuild_registry();
    open_attach();
    plx_attach_row(attach, &store);
    CU_ASSERT_EQUAL(store.doubt[0], 0);
    CU_ASSERT(holds("one", 0, 1));
    fill("two", 0, 3);
    CU_ASSERT(holds("one", 0, 1) && holds("two", 0, 3));
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

/* Its pages are written again: `more` states later, as an extent of that owner. */
static void change_header(uint64_t extent, uint64_t more, uint64_t owner)
{
    struct plx_extent_page page[2];
    struct plx_store_info info;
    uint8_t bytes[HEADER_BYTES];
    uint64_t newest;

    plx_store_get_info(plx_attach_store(attach), &info);
    header(extent, bytes, false);
    for (unsigned slot = 0; slot < 2; slot++)
        OK(plx_format_extent_page_decode(bytes + slot * PLX_BLOCK_SIZE, &info.id, extent, 0, 1,
                                         &page[slot], &fault));
    newest = plx_max_u64(page[0].generation, page[1].generation);
    while (more--)
        newest = plx_generation_next(newest);
    for (unsigned slot = 0; slot < 2; slot++) {
        page[slot].generation = newest - slot; /* and its mirror */
        page[slot].owner = owner;
        plx_format_extent_page_encode(&info.id, &page[slot], bytes + slot * PLX_BLOCK_SIZE);
    }
    header(extent, bytes, true);
}

/* As after one more state that nobody told the registry of. */
static void advance_header(uint64_t extent)
{
    change_header(extent, 1, 0);
}

static void store_row(struct plx_registry_store *ret_store)
{
    plx_attach_row(attach, ret_store);
    OK(plx_registry_store_get(plx_attach_registry(attach), ret_store->uuid, ret_store));
}

static struct job {
    void (*function)(void *argument);
    void *argument;
} job;
static pthread_t worker;
static bool working;

static void *work(void *argument)
{
    job.function(job.argument);
    return NULL;
}

static void wait_for_worker(void)
{
    if (working)
        CU_ASSERT_EQUAL(pthread_join(worker, NULL), 0);
    working = false;
}

/* One after the other, as the handler's. */
static int defer(void *context, void (*function)(void *argument), void *argument)
{
    wait_for_worker();
    job = (struct job){function, argument};
    working = pthread_create(&worker, NULL, work, NULL) == 0;
    return working ? 0 : PLX_ERR_BUSY;
}

/* An extent is asked for to free a block in it, and no other one serves for that: what it shows is
 * in the registry at once, not with a next claim. */
static void tell_at_once(bool deferred)
{
    struct plx_attach_options options = {
        .store = "s", .state_dir = folder, .role = "admin", .defer = deferred ? defer : NULL};
    struct plx_request unmap = {.op = PLX_UNMAP, .length = PART * PLX_BLOCK_SIZE};
    struct plx_request keyframe = {.op = PLX_KEYFRAME};
    uint8_t bytes[HEADER_BYTES];
    struct plx_registry_store store;
    struct plx_vdi *vdi;
    uint64_t extent = make_disks(bytes);

    OK(plx_attach_open(&options, &attach, &fault));
    OK(open_disk("one", &vdi));
    CU_ASSERT_EQUAL(row_of(extent).owner, 0);
    advance_header(extent);
    OK(plx_vdi_run(vdi, &unmap));
    OK(plx_vdi_run(vdi, &keyframe));
    plx_store_settle(plx_attach_store(attach));
    wait_for_worker();
    store_row(&store);
    CU_ASSERT_PTR_NOT_NULL(strstr(store.doubt, "the registry lost a write"));
    CU_ASSERT(row_of(extent).sealed && row_of(extent).states == PLX_STATES_NEVER);
    OK(plx_attach_vdi_close(attach, vdi));
    close_attach();
    wait_for_worker();
    rebuild_registry();
    open_attach();
    CU_ASSERT(holds("one", PART, 2));
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

static void test_told_at_once(void)
{
    tell_at_once(false);
    tell_at_once(true);
}

/* Of the extents that a claim may get as unused, in that order; the ones that are never to be
 * believed again are counted. */
static size_t list_unused(uint64_t ret_unused[64], size_t *ret_never)
{
    struct plx_registry_extent *list;
    struct plx_registry_store store;
    struct plx_store_info info;
    size_t count, at = 0, unused = 0;

    plx_store_get_info(plx_attach_store(attach), &info);
    plx_attach_row(attach, &store);
    OK(plx_registry_extent_list(plx_attach_registry(attach), store.id, PLX_REGISTRY_ANY, &list,
                                &count));
    *ret_never = 0;
    for (uint64_t no = 0; no < info.extents; no++) {
        const struct plx_registry_extent *row =
            at < count && list[at].no == no ? &list[at++] : NULL;

        if (!row || row->type == PLX_EXTENT_UNUSED)
            ret_unused[unused++] = no;
        *ret_never += row && row->states == PLX_STATES_NEVER;
    }
    free(list);
    return unused;
}

static size_t count_never(void)
{
    uint64_t unused[64];
    size_t never;

    list_unused(unused, &never);
    return never;
}

/* The headers of all unused extents, over and over as the text says. */
static void damage_unused(const char *pattern)
{
    uint8_t damaged[HEADER_BYTES];
    uint64_t unused[64];
    size_t never, count = list_unused(unused, &never);

    CU_ASSERT_FATAL(count >= 12);
    memset(damaged, 0xa5, sizeof damaged);
    for (size_t i = 0; i < count; i++)
        if (pattern[i % strlen(pattern)] == 'x')
            header(unused[i], damaged, true);
}

/* How far writing a disk comes that nothing was written to, and the error in the end. */
static unsigned write_parts(struct plx_vdi *vdi, unsigned parts, int *ret_error)
{
    static uint8_t bytes[PART * PLX_BLOCK_SIZE];
    struct iovec iov = {bytes, sizeof bytes};
    struct plx_request write = {.op = PLX_WRITE, .length = sizeof bytes, .iov = &iov, .iovcnt = 1};
    unsigned done = 0;

    memset(bytes, 9, sizeof bytes);
    while (done < parts && !(*ret_error = plx_vdi_run(vdi, &write))) {
        write.offset += sizeof bytes;
        done++;
    }
    return done;
}

/* A request takes one extent after the other until a header is to be believed, but the third that
 * is not ends it. */
static void refuse_three(const char *pattern, unsigned parts, int code)
{
    struct plx_vdi *vdi;
    size_t never;
    int error;

    OK(make_store());
    open_attach();
    create("one");
    OK(open_disk("one", &vdi));
    damage_unused(pattern);
    CU_ASSERT_EQUAL(write_parts(vdi, 25, &error), parts);
    CU_ASSERT_EQUAL(error, code);
    plx_store_settle(plx_attach_store(attach));
    never = count_never();
    CU_ASSERT(code ? never == 3 : never > 3);
    OK(plx_attach_vdi_close(attach, vdi));
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

static void test_three_refused(void)
{
    refuse_three("x", 0, PLX_ERR_IO_WRITE);
    refuse_three("xx-", 25, 0);
}

/* The first unused extent gets a first bitmap page that the registry knows nothing of, and a disk
 * is written until it is claimed. Returns its number. */
static uint64_t use_unused(uint64_t owner, unsigned blocks)
{
    struct plx_extent_page page = {.type = PLX_EXTENT_DATA, .owner = owner};
    uint8_t bytes[HEADER_BYTES] = {0};
    struct plx_store_info info;
    uint64_t unused[64];
    size_t never;
    struct plx_vdi *vdi;
    int error;

    open_attach();
    create("one");
    OK(open_disk("one", &vdi));
    plx_store_get_info(plx_attach_store(attach), &info);
    list_unused(unused, &never);
    page.pages = plx_extent_pages(info.extent_blocks);
    page.extent = unused[0];
    for (unsigned slot = 0; slot < 2; slot++) {
        uint8_t *block = bytes + slot * PLX_BLOCK_SIZE;

        for (unsigned i = 0; i < 2 * page.pages + blocks; i++)
            plx_format_extent_bits(block)[i / 8] |= (uint8_t)(1u << i % 8);
        page.generation = plx_generation_next(0) - slot; /* and its mirror */
        plx_format_extent_page_encode(&info.id, &page, block);
    }
    header(page.extent, bytes, true);
    write_parts(vdi, 25, &error);
    CU_ASSERT_EQUAL(error, PLX_ERR_REGISTRY);
    plx_store_settle(plx_attach_store(attach));
    OK(plx_attach_vdi_close(attach, vdi));
    return page.extent;
}

/* As far as the registry knows it was never given out, and somebody's name is in it, or his blocks.
 */
static void doubt_unused(uint64_t extents, uint64_t bytes, uint64_t owner, unsigned blocks)
{
    struct plx_registry_store store;
    uint64_t extent;

    OK(make_store_of(extents, bytes));
    extent = use_unused(owner, blocks);
    store_row(&store);
    CU_ASSERT_PTR_NOT_NULL(strstr(store.doubt, "the registry lost a write"));
    CU_ASSERT(row_of(extent).sealed && !row_of(extent).owner);
    CU_ASSERT_EQUAL(row_of(extent).states, PLX_STATES_NEVER);
    close_attach();
    rebuild_registry();
    open_attach();
    fill("one", 0, 1);
    CU_ASSERT(holds("one", 0, 1));
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

static void test_unused_and_used(void)
{
    doubt_unused(32, MIB, 4711, 0);
    doubt_unused(32, MIB, 0, 1);
    doubt_unused(8, 128 * MIB, 0, 1); /* while its other page was never written */
}

/* Nobody owns it, and it names an owner: he may be at work. */
static void test_header_owned(void)
{
    uint8_t bytes[HEADER_BYTES];
    uint64_t extent = make_disks(bytes);

    open_attach();
    change_header(extent, 0, 4711);
    close_attach();
    header(extent, bytes, false);
    refuse_header(extent, bytes);
}

/* The registry went back behind a disk that was closed since: its record is newer. */
static void test_newer(void)
{
    struct plx_registry_store store;
    char copy[sizeof volume + 8];

    OK(make_store());
    open_attach();
    create("one");
    create("two");
    write_disk("one", 1);
    snprintf(copy, sizeof copy, "%s/copy", folder);
    OK(plx_registry_get(plx_attach_registry(attach), copy, &fault));
    write_disk("one", 2);
    close_attach();
    put_registry(copy);
    open_attach();
    refuse_disk("one", PLX_ERR_REGISTRY);
    store_row(&store);
    CU_ASSERT_PTR_NOT_NULL(strstr(store.doubt, "newer than the registry knows"));
    refuse_disk("two", PLX_ERR_REGISTRY);
    close_attach();
    rebuild_registry();
    open_attach();
    write_disk("one", 3);
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

/* Who comes when a store is in doubt reads instants, and what he reads is held. */
static void read_in_doubt(const char *name, uint64_t seq)
{
    struct plx_attach_vdi_options options = {.overwrite = -1};
    struct plx_attach *writer = attach;
    struct plx_registry_vdi row;
    struct plx_registry_hold *holds;
    struct plx_registry_store store;
    char snapshot[24];
    struct plx_vdi *vdi;
    size_t count;

    snprintf(snapshot, sizeof snapshot, "%llu", (unsigned long long)seq);
    open_attach();
    OK(plx_attach_vdi_open(attach, name, snapshot, &options, &vdi, &fault));
    plx_attach_row(attach, &store);
    OK(plx_registry_vdi_get(plx_attach_registry(attach), store.id, name, &row));
    OK(plx_registry_hold_list(plx_attach_registry(attach), row.id, &holds, &count));
    CU_ASSERT(count == 1 && holds[0].seq == seq);
    free(holds);
    OK(plx_attach_vdi_close(attach, vdi));
    close_attach();
    attach = writer;
}

/* What a store in doubt refuses to who has a disk open, which goes on in the room that it has. */
static void test_open_in_doubt(void)
{
    struct plx_vdi_create_options options = {
        .size_bytes = 4 * MIB, .sector_size = 512, .name = "new"};
    static uint8_t bytes[PART * PLX_BLOCK_SIZE];
    struct iovec iov = {bytes, sizeof bytes};
    struct plx_request write = {.op = PLX_WRITE, .length = sizeof bytes, .iov = &iov, .iovcnt = 1};
    struct plx_request snapshot = {.op = PLX_SNAPSHOT};
    struct plx_registry_store store;
    struct plx_vdi_info info;
    struct plx_vdi *vdi;
    int error = 0;

    memset(bytes, 1, sizeof bytes);
    OK(make_store());
    open_attach();
    create("one");
    OK(open_disk("one", &vdi));
    OK(plx_vdi_run(vdi, &write));
    store_row(&store);
    OK(plx_vdi_run(vdi, &snapshot));
    OK(plx_registry_doubt(plx_attach_registry(attach), store.id, "something was seen"));
    OK(plx_vdi_run(vdi, &write));
    read_in_doubt("one", snapshot.seq);
    CU_ASSERT_EQUAL(plx_attach_vdi_create(attach, &options, NULL, NULL, &info, &fault),
                    PLX_ERR_REGISTRY);
    for (; !error && write.offset < 4 * MIB - sizeof bytes; write.offset += sizeof bytes)
        error = plx_vdi_run(vdi, &write);
    CU_ASSERT_EQUAL(error, PLX_ERR_REGISTRY);
    write.op = PLX_READ;
    write.offset = 0;
    OK(plx_vdi_run(vdi, &write));
    OK(plx_attach_vdi_close(attach, vdi));
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

/* ---- What a rebuild does not forget ---- */

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
 * registry is made anew; once the store is restored it is there again. */
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
    refuse_older(&row, PLX_ERR_REGISTRY); /* what the lost one had is not known */
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

int main(void)
{
    static const struct suite_test tests[] = {
        {"a record that went back", test_older},
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
        {"a store that is open is not rebuilt", test_rebuild_beside},
        {"its holder is dead, and it is forgotten", test_dead_and_forgotten},
        {"its holder is dead, and it went back", test_dead_and_older},
        {"an extent's header that went back", test_header_older},
        {"an extent's header that went back, and its owner is dead", test_header_of_dead},
        {"an extent's header that went back, and its owner closed a disk", test_header_of_living},
        {"an extent's header that is damaged", test_header_damaged},
        {"an extent's header that is zero", test_header_zero},
        {"extents' headers that are damaged, one after the other", test_three_refused},
        {"an extent's header that names an owner", test_header_owned},
        {"an unused extent that was used", test_unused_and_used},
        {"an extent's header and a rebuild", test_header_rebuilt},
        {"a registry that went back", test_older_registry},
        {"a record that is newer", test_newer},
        {"a doubt is told at once", test_told_at_once},
        {"a doubt beside an open disk", test_open_in_doubt},
        {"a forgotten disk and a rebuild", test_forgotten_rebuilt},
        {"a record that went back and a rebuild", test_older_rebuilt},
        {"an extent of a deleted disk that is used again, and a rebuild", test_reused_and_rebuilt},
        {"a slot's earlier disk, and a rebuild", test_earlier},
        {"a slot's earlier disk, and a collection", test_earlier_collected},
        {"a slot's earlier disk, and a clone", test_earlier_cloned},
        {"a slot's earlier disk, and an instant", test_earlier_read},
        {"a slot's earlier disk, and the present one given up", test_earlier_given_up},
        {"a slot that another disk gets meanwhile", test_slot_taken},
    };

    return SUITE_RUN("doors", tests);
}
