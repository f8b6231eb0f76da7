/* test_behind.c - a label that the registry could not be told of, and many snapshots since: what
 * holds its snapshot is known again before any goes (ATTACH-4), and by a rebuild (REBUILD-3).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "folder.h"
#include "ok.h"
#include "attach/attach.h"
#include "attach/founding.h"
#include "attach/rebuild.h"
#include "suite.h"

#define MIB (1ull << 20)
#define LATER 25000u /* snapshots: more than recovery looks back */

static char folder[64], volume[96];
static struct plx_attach *attach;
static struct plx_vdi *vdi;
static struct plx_fault fault;
static bool refused; /* the registry refuses labels */

int __real_plx_registry_label_set(struct plx_registry *registry,
                                  const struct plx_registry_lock *lock,
                                  const struct plx_registry_label *label);
int __wrap_plx_registry_label_set(struct plx_registry *registry,
                                  const struct plx_registry_lock *lock,
                                  const struct plx_registry_label *label);

int __wrap_plx_registry_label_set(struct plx_registry *registry,
                                  const struct plx_registry_lock *lock,
                                  const struct plx_registry_label *label)
{
    return refused ? PLX_ERR_REGISTRY : __real_plx_registry_label_set(registry, lock, label);
}

static void begin(void)
{
    struct plx_attach_options options = {.store = "s", .state_dir = folder, .role = "test"};
    struct plx_format_options format = {.name = "s"};
    struct plx_vdi_create_options disk = {.name = "a", .size_bytes = 4 * MIB, .sector_size = 512};
    struct plx_attach_vdi_options open = {.overwrite = -1, .write_back = true};
    const char *path = volume;
    struct plx_store_info store;
    struct plx_vdi_info info;

    CU_ASSERT_FATAL(folder_make("behind", folder));
    snprintf(volume, sizeof volume, "%s/volume", folder);
    OK(plx_founding_format(folder, &path, 1, 256 * MIB, &format, false, NULL, &store, &fault));
    OK(plx_attach_open(&options, &attach, &fault));
    OK(plx_attach_vdi_create(attach, &disk, NULL, NULL, &info, &fault));
    OK(plx_attach_vdi_open(attach, "a", NULL, &open, &vdi, &fault));
}

static void end(void)
{
    char command[96];

    OK(plx_attach_vdi_close(attach, vdi));
    OK(plx_attach_close(attach));
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    CU_ASSERT_EQUAL(system(command), 0);
}

static void write_block(unsigned n)
{
    static uint8_t block[4096] __attribute__((aligned(4096)));
    struct iovec iov = {block, sizeof block};
    struct plx_request request = {.op = PLX_WRITE,
                                  .offset = n % 16 * sizeof block,
                                  .length = sizeof block,
                                  .iov = &iov,
                                  .iovcnt = 1};

    memset(block, (int)n, sizeof block);
    OK(plx_vdi_run(vdi, &request));
}

static void test_long_ago(void)
{
    const struct plx_protection each = {.mode = PLX_PROTECT_WRITE};
    struct plx_request snapshot = {.op = PLX_SNAPSHOT};
    struct plx_thin thin = {.upto = 1000};
    struct plx_thinned thinned;
    struct plx_vdi *kept;

    begin();
    write_block(1);
    OK(plx_vdi_run(vdi, &snapshot));
    refused = true;
    FAILS(REGISTRY, plx_attach_label(attach, vdi, "long-ago", snapshot.seq, 1, &fault));
    refused = false;
    OK(plx_attach_protect(attach, vdi, &each, &fault));
    for (unsigned n = 0; n < LATER; n++)
        write_block(n);
    OK(plx_attach_thin(attach, vdi, &thin, &thinned, &fault));
    CU_ASSERT(thinned.snapshots > 900);
    OK(plx_attach_vdi_open(attach, "a", "long-ago", NULL, &kept, &fault));
    OK(plx_attach_vdi_close(attach, kept));
    end();
}

/* A registry that is made anew knows each label, however far back. */
static void test_rebuilt(void)
{
    const struct plx_protection each = {.mode = PLX_PROTECT_WRITE};
    const char *const volumes[] = {volume};
    struct plx_rebuild_options rebuild = {.state_dir = folder, .volumes = volumes, .count = 1};
    struct plx_attach_options options = {.store = "s", .state_dir = folder, .role = "test"};
    struct plx_request snapshot = {.op = PLX_SNAPSHOT};
    struct plx_rebuilt rebuilt;
    struct plx_known known;

    begin();
    write_block(1);
    OK(plx_vdi_run(vdi, &snapshot));
    OK(plx_attach_label(attach, vdi, "first", snapshot.seq, 1, &fault));
    OK(plx_attach_protect(attach, vdi, &each, &fault));
    for (unsigned n = 0; n < LATER; n++)
        write_block(n);
    OK(plx_attach_vdi_close(attach, vdi));
    OK(plx_attach_close(attach));
    OK(plx_rebuild(&rebuild, &known, &rebuilt, &fault));
    plx_known_done(&known);
    OK(plx_attach_open(&options, &attach, &fault));
    OK(plx_attach_vdi_open(attach, "a", "first", NULL, &vdi, &fault));
    end();
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"a label that was refused long ago", test_long_ago},
        {"a label of long ago, and a rebuild", test_rebuilt},
    };

    return SUITE_RUN("behind", tests);
}
