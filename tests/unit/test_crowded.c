/* test_crowded.c - what goes on when the registry of a store is nearly full: what was deleted comes
 * back, in several goes; extents that were never used wait for more room, which can still be made.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attach/attach.h"
#include "attach/founding.h"
#include "folder.h"
#include "registry/sql.h"
#include "ok.h"
#include "suite.h"

#define MIB (1ull << 20)
#define BLOCK 4096u
#define BLOCKS 10000u

static char folder[64], volume[96], further[96];
static struct plx_attach *attach;
static struct plx_fault fault;
static uint8_t bytes[BLOCK];

static void open_attach(void)
{
    struct plx_attach_options options = {.store = "s", .state_dir = folder, .role = "admin"};

    OK(plx_attach_open(&options, &attach, &fault));
}

static struct plx_vdi *open_disk(const char *name)
{
    struct plx_attach_vdi_options options = {.overwrite = -1, .write_back = true};
    struct plx_vdi *vdi = NULL;

    OK(plx_attach_vdi_open(attach, name, NULL, &options, &vdi, &fault));
    return vdi;
}

static struct plx_vdi *create_disk(const char *name, const char *from)
{
    struct plx_vdi_create_options options = {.size_bytes = 128 * MIB, .sector_size = 512};
    struct plx_vdi_info info;

    snprintf(options.name, sizeof options.name, "%s", name);
    OK(plx_attach_vdi_create(attach, &options, from, from ? "1" : NULL, &info, &fault));
    return open_disk(name);
}

static int write_block(struct plx_vdi *vdi, uint64_t block)
{
    struct iovec iov = {bytes, sizeof bytes};
    struct plx_request request = {
        .op = PLX_WRITE, .offset = block * BLOCK, .length = sizeof bytes, .iov = &iov, .iovcnt = 1};

    memset(bytes, 1 + (int)(block % 200), sizeof bytes);
    return plx_vdi_run(vdi, &request);
}

static void get_room(uint64_t *ret_used, uint64_t *ret_pages)
{
    OK(plx_registry_room(plx_attach_registry(attach), ret_used, ret_pages));
}

/* Until fewer than one in `part` of the registry's pages are free. */
static void crowd(unsigned part)
{
    static const char row[] =
        "INSERT INTO policies SELECT id, 'row' || random(), hex(zeroblob(300)) FROM vdis"
        " WHERE name <> 'goes'";
    const struct plx_sql batch[] = {{.text = row}};
    uint64_t used, pages;

    for (get_room(&used, &pages); (pages - used) * part >= pages; get_room(&used, &pages))
        OK(plx_sql_change(plx_attach_registry(attach), batch, 1, NULL, NULL));
}

/* A registry for a small store, in a large one. */
static void setup(void)
{
    const struct plx_attach_growth growth = {.path = further, .create_bytes = 160 * MIB};
    struct plx_grown grown;
    struct plx_format_options options = {.name = "s", .extent_bytes = MIB};
    const char *path = volume;
    struct plx_store_info info;

    CU_ASSERT_FATAL(folder_make("crowded", folder));
    snprintf(volume, sizeof volume, "%s/volume", folder);
    snprintf(further, sizeof further, "%s/further", folder);
    OK(plx_founding_format(folder, &path, 1, 16 * MIB, &options, false, NULL, &info, &fault));
    open_attach();
    OK(plx_attach_grow(attach, &growth, &grown, &fault));
}

static void teardown(void)
{
    char command[96];

    OK(plx_attach_close(attach));
    snprintf(command, sizeof command, "rm -r %s", folder);
    CU_ASSERT_EQUAL(system(command), 0);
}

/* ---- Tests ---- */

/* What an import that fails made, it deletes; not when somebody has opened it since. */
static void test_untouched(void)
{
    struct plx_registry_vdi row;
    struct plx_vdi *vdi;

    setup();
    vdi = create_disk("mine", NULL);
    OK(plx_registry_vdi_get(plx_attach_registry(attach), 1, "mine", &row));
    OK(plx_attach_vdi_close(attach, vdi));
    vdi = open_disk("mine");
    OK(plx_attach_vdi_close(attach, vdi));
    FAILS(EXISTS, plx_attach_vdi_delete_untouched(attach, "mine", row.epoch, &fault));
    OK(plx_registry_vdi_get(plx_attach_registry(attach), 1, "mine", &row));
    OK(plx_attach_vdi_delete_untouched(attach, "mine", row.epoch, &fault));
    FAILS(NOT_FOUND, plx_attach_vdi_delete_untouched(attach, "mine", row.epoch, &fault));
    teardown();
}

/* Its clone has taken every other block's place: what says which ones go is long. */
static void test_collect(void)
{
    struct plx_attach_work work = {.dry_run = false};
    struct plx_request snapshot = {.op = PLX_SNAPSHOT};
    struct plx_collected collected = {.missed = 1};
    struct plx_vdi *stays, *goes;
    uint64_t swept = 0, used, pages;
    unsigned goes_by = 0;

    setup();
    goes = create_disk("goes", NULL);
    for (unsigned i = 0; i < BLOCKS; i++)
        OK(write_block(goes, i));
    OK(plx_vdi_run(goes, &snapshot));
    OK(plx_attach_vdi_close(attach, goes));
    stays = create_disk("stays", "goes");
    for (unsigned i = 0; i < BLOCKS; i += 2)
        OK(write_block(stays, i));
    OK(plx_attach_vdi_close(attach, stays));
    crowd(12);
    OK(plx_attach_vdi_delete(attach, "goes", false, &fault));
    for (; collected.missed && goes_by < 50; goes_by++) {
        OK(plx_attach_collect(attach, &work, &collected, &fault));
        CU_ASSERT(collected.swept > 0);
        swept += collected.swept;
        get_room(&used, &pages);
        CU_ASSERT((pages - used) * 20 > pages);
    }
    CU_ASSERT(goes_by > 1 && goes_by < 50);
    CU_ASSERT(swept >= BLOCKS / 2);
    crowd(17); /* nothing at all can be entered */
    goes = open_disk("stays");
    OK(plx_attach_vdi_close(attach, goes));
    OK(plx_attach_vdi_delete(attach, "stays", false, &fault));
    FAILS(NOSPACE, plx_attach_collect(attach, &work, &collected, &fault));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "no room"));
    teardown();
}

/* Its rows would never go again: they stop where the registry could not grow any more. */
static void test_claim(void)
{
    const struct plx_attach_growth growth = {.how.dry_run = false};
    struct plx_grown grown;
    struct plx_vdi *vdi;
    uint64_t used, pages, more;
    unsigned written = 0, until;
    int error = 0;

    setup();
    vdi = create_disk("v", NULL);
    OK(write_block(vdi, 0));
    crowd(8);
    while (!error && written < 18 * MIB / BLOCK)
        error = write_block(vdi, ++written);
    CU_ASSERT_EQUAL(error, PLX_ERR_NOSPACE);
    CU_ASSERT(written < 8 * MIB / BLOCK); /* of extents that it had */
    OK(plx_attach_vdi_close(attach, vdi));
    crowd(12); /* what goes on used some more */
    get_room(&used, &pages);
    OK(truncate(volume, 400 * MIB));
    OK(plx_attach_grow(attach, &growth, &grown, &fault));
    CU_ASSERT_EQUAL(grown.registry_stays, PLX_REGISTRY_FITS);
    get_room(&used, &more);
    CU_ASSERT(more > 3 * pages);
    vdi = open_disk("v");
    for (until = written + 10 * MIB / BLOCK; written < until; written++)
        OK(write_block(vdi, written));
    OK(plx_attach_vdi_close(attach, vdi));
    teardown();
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"what was deleted comes back", test_collect},
        {"extents that were never used", test_claim},
        {"a disk that somebody has opened is not taken back", test_untouched},
    };

    return SUITE_RUN("crowded", tests);
}
