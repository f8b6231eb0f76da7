/* lost_writes.c - see lost_writes.h. */
#include "folder.h"
#include "unit/lost_writes.h"

#include <CUnit/Basic.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ok.h"
#include "attach/doors.h"
#include "attach/founding.h"

char folder[64], volume[96];
struct plx_attach *attach;
struct plx_fault fault;
uint64_t extent_bytes;

void open_attach(void)
{
    struct plx_attach_options options = {.store = "s", .state_dir = folder, .role = "admin"};

    OK(plx_attach_open(&options, &attach, &fault));
}

void close_attach(void)
{
    OK(plx_attach_close(attach));
    attach = NULL;
}

void create(const char *name)
{
    struct plx_vdi_create_options options = {.size_bytes = 4 * MIB, .sector_size = 512};
    struct plx_vdi_info info;

    snprintf(options.name, sizeof options.name, "%s", name);
    OK(plx_attach_vdi_create(attach, &options, NULL, NULL, &info, &fault));
}

int open_disk(const char *name, struct plx_vdi **ret_vdi)
{
    struct plx_attach_vdi_options options = {.overwrite = -1};

    return plx_attach_vdi_open(attach, name, NULL, &options, ret_vdi, &fault);
}

void refuse_disk(const char *name, int code)
{
    struct plx_vdi *vdi;
    int error = open_disk(name, &vdi);

    CU_ASSERT_EQUAL(error, code);
    if (!error)
        OK(plx_attach_vdi_close(attach, vdi));
}

void write_disk(const char *name, uint8_t with)
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

void volume_bytes(uint64_t at, uint8_t *bytes, size_t count, bool put)
{
    int fd = open(volume, O_RDWR);

    CU_ASSERT_EQUAL_FATAL(put ? pwrite(fd, bytes, count, (off_t)at)
                              : pread(fd, bytes, count, (off_t)at),
                          (ssize_t)count);
    CU_ASSERT_EQUAL(fsync(fd), 0);
    close(fd);
}

void record(uint32_t slot, uint8_t bytes[RECORD_BYTES], bool put)
{
    volume_bytes((PLX_VDI_TABLE_BLOCK + 2ull * slot) * PLX_BLOCK_SIZE, bytes, RECORD_BYTES, put);
}

void header_page(uint64_t extent, unsigned page, uint8_t bytes[HEADER_BYTES], bool put)
{
    volume_bytes(extent * extent_bytes + page * HEADER_BYTES, bytes, HEADER_BYTES, put);
}

uint64_t page_states(uint64_t extent, unsigned page)
{
    uint32_t pages = plx_extent_pages(extent_bytes / PLX_BLOCK_SIZE);
    struct plx_extent_page newest = {0}, slot;
    struct plx_store_info info;
    uint8_t bytes[HEADER_BYTES];

    plx_store_get_info(plx_attach_store(attach), &info);
    header_page(extent, page, bytes, false);
    for (size_t at = 0; at < sizeof bytes; at += PLX_BLOCK_SIZE) {
        OK(plx_format_extent_page_decode(bytes + at, &info.id, extent, page, pages, &slot, &fault));
        if (slot.generation > newest.generation)
            newest = slot;
    }
    return (newest.generation + 1) / 2;
}

void make_page(uint64_t extent, unsigned page, uint64_t owner, unsigned blocks)
{
    struct plx_extent_page first = {
        .type = PLX_EXTENT_DATA, .extent = extent, .page = (uint16_t)page, .owner = owner};
    uint8_t bytes[HEADER_BYTES] = {0};
    struct plx_store_info info;

    plx_store_get_info(plx_attach_store(attach), &info);
    first.pages = plx_extent_pages(info.extent_blocks);
    for (unsigned slot = 0; slot < 2; slot++) {
        uint8_t *block = bytes + slot * PLX_BLOCK_SIZE;

        for (unsigned i = 0; i < (page ? 0 : 2 * first.pages) + blocks; i++)
            plx_format_extent_bits(block)[i / 8] |= (uint8_t)(1u << i % 8);
        first.generation = plx_generation_next(0) - slot; /* and its mirror */
        plx_format_extent_page_encode(&info.id, &first, block);
    }
    header_page(extent, page, bytes, true);
}

int make_store_of(uint64_t extents, uint64_t bytes)
{
    struct plx_format_options options = {.name = "s", .extent_bytes = bytes};
    const char *path = volume;
    struct plx_store_info info;

    if (!folder_make("doors", folder))
        return -1;
    snprintf(volume, sizeof volume, "%s/volume", folder);
    extent_bytes = bytes;
    return plx_founding_format(folder, &path, 1, extents * bytes, &options, false, NULL, &info,
                               &fault);
}

int make_store(void)
{
    return make_store_of(32, MIB);
}

int drop_store(void)
{
    char command[128];

    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
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

void fill(const char *name, unsigned from, uint8_t with)
{
    static uint8_t bytes[PART * PLX_BLOCK_SIZE];

    memset(bytes, with, sizeof bytes);
    transfer(name, PLX_WRITE, from, PART, bytes);
}

bool holds(const char *name, unsigned from, uint8_t with)
{
    static uint8_t bytes[PART * PLX_BLOCK_SIZE];

    transfer(name, PLX_READ, from, PART, bytes);
    for (size_t i = 0; i < sizeof bytes; i++)
        if (bytes[i] != with)
            return false;
    return true;
}

uint64_t create_two(void)
{
    uint64_t extent;

    open_attach();
    create("one");
    create("two");
    fill("one", 0, 1);
    close_attach();
    open_attach();
    extent = row_of(0).no;
    close_attach();
    return extent;
}

void rebuild_registry(void)
{
    rebuild(false);
}

void write_and_die(const char *name, uint8_t with)
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

int is_older(const char *name, struct plx_registry_vdi *ret_row, bool *ret_older)
{
    struct plx_registry_store store;

    plx_attach_row(attach, &store);
    OK(plx_registry_vdi_get(plx_attach_registry(attach), store.id, name, ret_row));
    return plx_door_is_older(plx_attach_store(attach), ret_row, ret_older, &fault);
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

void accept_older(const struct plx_registry_vdi *row)
{
    OK(try_older(row));
}

void refuse_older(const struct plx_registry_vdi *row, int error)
{
    struct plx_registry_vdi now;
    bool older;

    CU_ASSERT_EQUAL(try_older(row), error);
    OK(is_older(row->name, &now, &older));
    CU_ASSERT_TRUE(older);
}

struct plx_rebuilt rebuild(bool dry_run)
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

struct plx_registry_extent row_of(uint64_t no)
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

size_t list_unused(uint64_t ret_unused[64], size_t *ret_never)
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

void store_row(struct plx_registry_store *ret_store)
{
    plx_attach_row(attach, ret_store);
    OK(plx_registry_store_get(plx_attach_registry(attach), ret_store->uuid, ret_store));
}
