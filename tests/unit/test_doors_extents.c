/* test_doors_extents.c - a store that lost writes: headers of extents that went back, and
 * registries. */
#include <CUnit/Basic.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ok.h"
#include "registry/embedded.h"
#include "suite.h"
#include "unit/lost_writes.h"

static void header(uint64_t extent, uint8_t bytes[HEADER_BYTES], bool put)
{
    header_page(extent, 0, bytes, put);
}

/* A disk with one part written, then another; and the header of its extent as it was between. */
static uint64_t make_disks(uint8_t ret_between[HEADER_BYTES])
{
    uint64_t extent;

    OK(make_store());
    extent = create_two();
    header(extent, ret_between, false);
    open_attach();
    fill("one", PART, 2);
    close_attach();
    return extent;
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

/* Both disks are as they were written, "two" up to part 4 by the process that died. */
static void end_whole(void)
{
    CU_ASSERT(holds("one", 0, 1) && holds("one", PART, 2));
    for (unsigned part = 0; part < 20; part++)
        CU_ASSERT(holds("two", part * PART, part < 4 ? 3 : 4));
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
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
    end_whole();
}

static int open_as(bool read_only)
{
    struct plx_attach_options options = {
        .store = "s", .state_dir = folder, .role = "admin", .read_only = read_only};

    return plx_attach_open(&options, &attach, &fault);
}

/* Both copies of the header are a later state now, which names this owner. */
static void name_owner(uint64_t extent, uint64_t owner)
{
    struct plx_extent_page page;
    struct plx_store_info info;
    uint8_t bytes[HEADER_BYTES];

    header(extent, bytes, false);
    OK(open_as(true));
    plx_store_get_info(plx_attach_store(attach), &info);
    close_attach();
    for (unsigned slot = 0; slot < 2; slot++) {
        uint8_t *block = bytes + slot * PLX_BLOCK_SIZE;

        OK(plx_format_extent_page_decode(block, &info.id, extent, 0,
                                         plx_extent_pages(info.extent_blocks), &page, &fault));
        page.owner = owner;
        page.generation += 64;
        plx_format_extent_page_encode(&info.id, &page, block);
    }
    header(extent, bytes, true);
}

/* Who had claimed it died before it saw that the header is newer than the registry: the header
 * names somebody whom the registry has never heard of. */
static void test_header_of_stranger(void)
{
    uint8_t between[HEADER_BYTES], newest[HEADER_BYTES];
    uint64_t extent = make_disks(between);
    struct plx_registry_store store;

    write_and_die("two", 3);
    header(extent, newest, false);
    name_owner(extent, 4711);
    FAILS(REGISTRY, open_as(false));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "the registry lost a write"));
    OK(open_as(true));
    store_row(&store);
    CU_ASSERT_PTR_NOT_NULL(strstr(store.doubt, "the registry lost a write"));
    CU_ASSERT(!row_of(extent).owner && row_of(extent).sealed);
    CU_ASSERT(row_of(extent).states > 0 && row_of(extent).states != PLX_STATES_NEVER);
    close_attach();
    header(extent, newest, true);
    rebuild_registry();
    open_attach();
    CU_ASSERT(holds("one", 0, 1) && holds("one", PART, 2) && holds("two", 0, 3));
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

/* The header is newer and names nobody, as that of an extent does that the dead one gave back and
 * died before the registry was told. Its bitmap is the newest there is: nothing is lost. */
static void test_header_of_nobody(void)
{
    struct plx_collected collected;
    uint8_t between[HEADER_BYTES];
    uint64_t extent = make_disks(between);

    write_and_die("two", 3);
    name_owner(extent, 0);
    open_attach();
    CU_ASSERT(!row_of(extent).sealed && row_of(extent).owner);
    for (unsigned part = 4; part < 12; part++)
        fill("two", part * PART, 4);
    plx_attach_collect(attach, &(struct plx_attach_work){0}, &collected, &fault);
    for (unsigned part = 12; part < 20; part++)
        fill("two", part * PART, 4);
    end_whole();
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

/* What is not read again before the registry is rebuilt is noticed then. */
static void test_header_rebuilt(void)
{
    uint8_t between[HEADER_BYTES];
    uint64_t extent = make_disks(between);

    header(extent, between, true);
    rebuild_registry();
    refuse_header(extent, between);
}

/* The registry itself went back: an extent that it takes for unused holds a disk's blocks. They
 * stay as they are, and nothing more is opened before the registry is rebuilt. */
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
    CU_ASSERT(row_of(extent).sealed && row_of(extent).states != PLX_STATES_NEVER);
    OK(plx_attach_vdi_close(attach, vdi));
    close_attach();
    wait_for_worker();
    rebuild_registry();
    open_attach();
    CU_ASSERT_NOT_EQUAL(row_of(extent).states, PLX_STATES_NEVER); /* it is right */
    CU_ASSERT(holds("one", PART, 2));
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

static void test_told_at_once(void)
{
    tell_at_once(false);
    tell_at_once(true);
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
    uint64_t unused[64];
    size_t never;
    struct plx_vdi *vdi;
    int error;

    open_attach();
    create("one");
    OK(open_disk("one", &vdi));
    list_unused(unused, &never);
    make_page(unused[0], 0, owner, blocks);
    write_parts(vdi, 25, &error);
    CU_ASSERT_EQUAL(error, PLX_ERR_REGISTRY);
    plx_store_settle(plx_attach_store(attach));
    OK(plx_attach_vdi_close(attach, vdi));
    return unused[0];
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
    CU_ASSERT(row_of(extent).type == PLX_EXTENT_UNUSED && !row_of(extent).owner);
    CU_ASSERT_EQUAL(row_of(extent).states, 0); /* as it was */
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

/* Nobody lets snapshots go or collects meanwhile: what they would free may be in use. */
static void test_gone_in_doubt(void)
{
    static uint8_t bytes[PART * PLX_BLOCK_SIZE];
    struct iovec iov = {bytes, sizeof bytes};
    struct plx_request write = {.op = PLX_WRITE, .length = sizeof bytes, .iov = &iov, .iovcnt = 1};
    struct plx_request first = {.op = PLX_SNAPSHOT}, second = first;
    struct plx_thin all = {.upto = 1000};
    struct plx_thinned thinned = {0};
    struct plx_collected collected;
    struct plx_registry_store store;
    struct plx_vdi *vdi;

    OK(make_store());
    open_attach();
    create("one");
    OK(open_disk("one", &vdi));
    memset(bytes, 1, sizeof bytes);
    OK(plx_vdi_run(vdi, &write));
    OK(plx_vdi_run(vdi, &first));
    memset(bytes, 2, sizeof bytes);
    OK(plx_vdi_run(vdi, &write));
    OK(plx_vdi_run(vdi, &second));
    store_row(&store);
    OK(plx_registry_doubt(plx_attach_registry(attach), store.id, "something was seen"));
    CU_ASSERT_EQUAL(plx_attach_thin(attach, vdi, &all, &thinned, &fault), PLX_ERR_REGISTRY);
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "the registry has lost writes"));
    CU_ASSERT_EQUAL(plx_attach_collect(attach, &(struct plx_attach_work){0}, &collected, &fault),
                    PLX_ERR_REGISTRY);
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "the registry has lost writes"));
    read_in_doubt("one", first.seq);
    OK(plx_attach_vdi_close(attach, vdi));
    close_attach();
    rebuild_registry();
    open_attach();
    OK(open_disk("one", &vdi));
    OK(plx_attach_thin(attach, vdi, &all, &thinned, &fault));
    CU_ASSERT_EQUAL(thinned.snapshots, 1); /* the newest stays */
    OK(plx_attach_vdi_close(attach, vdi));
    OK(plx_attach_collect(attach, &(struct plx_attach_work){0}, &collected, &fault));
    close_attach();
    CU_ASSERT_EQUAL(drop_store(), 0);
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"an extent's header that went back", test_header_older},
        {"an extent's header names a stranger, and who claimed it is dead",
         test_header_of_stranger},
        {"an extent's header is newer and names nobody, and its owner is dead",
         test_header_of_nobody},
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
        {"a doubt, and what would go", test_gone_in_doubt},
    };

    return SUITE_RUN("doors: extents", tests);
}
