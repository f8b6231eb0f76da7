/* test_clustered.c - a superblock that names a cluster: the database in the store counts for
 * nothing, also to who has it open. Needs no nodes; what needs some is in test_cluster.sh. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attach/attach_inside.h"
#include "attach/founding.h"
#include "attach/known.h"
#include "ok.h"
#include "registry/embedded.h"
#include "registry/sql.h"
#include "suite.h"
#include "unit/lost_writes.h"

static const struct plx_cluster cluster = {.id = {{1, 2, 3}}, .line = 7}, none;

static void name_cluster(const struct plx_cluster *named)
{
    const struct plx_device_open_options open = {.beside = true};
    const struct plx_store_options options = {.instance = 1};
    struct plx_device *device;
    struct plx_superblock_info super;
    struct plx_store *store;
    struct plx_env env;

    plx_attach_init_env(&env);
    OK(plx_device_open(volume, &open, &device, &fault));
    OK(plx_store_open(&device, 1, &options, &env, &store, &fault));
    OK(plx_store_set_cluster(store, named, &fault));
    OK(plx_superblock_probe(plx_store_device(store, 0), &super, &fault));
    CU_ASSERT(memcmp(&super.cluster, named, sizeof *named) == 0);
    plx_store_close(store);
}

static int open_registry(bool in_store, struct plx_registry **ret_reg)
{
    const struct plx_embedded_options options = {
        .volume = volume, .who = "test", .in_store = in_store};

    return plx_embedded_open(&options, ret_reg, &fault);
}

static void refused(int error)
{
    CU_ASSERT_EQUAL(error, PLX_ERR_UNSUPPORTED);
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "belongs to cluster 01020300-"));
}

/* EMBEDDED-2: whoever opens it, to read, to write, to make it anew; and the attach. */
static void test_refused(void)
{
    const struct plx_embedded_options options = {.volume = volume, .who = "test"};
    const struct plx_attach_options attach_options = {
        .store = "s", .state_dir = folder, .role = "admin"};
    struct plx_registry *reg;

    create_two();
    name_cluster(&cluster);
    refused(open_registry(false, &reg));
    refused(plx_embedded_check(&options, &fault));
    refused(plx_attach_open(&attach_options, &attach, &fault));
    CU_ASSERT_EQUAL(plx_embedded_create(&options, &reg, &fault), PLX_ERR_EXISTS);
    name_cluster(&none);
    open_attach();
    CU_ASSERT(holds("one", 0, 1));
    close_attach();
}

/* EMBEDDED-2: whoever had it open before finds out before it reads or writes. */
static void test_open_before(void)
{
    struct plx_registry_store row;
    struct plx_registry *before, *anyway;

    OK(open_registry(false, &before));
    OK(open_registry(true, &anyway));
    OK(plx_registry_store_get(before, "s", &row));
    name_cluster(&cluster);
    CU_ASSERT_NOT_EQUAL(plx_registry_store_get(before, "s", &row), 0);
    CU_ASSERT_PTR_NOT_NULL(strstr(plx_registry_error(before), "has joined a cluster meanwhile"));
    CU_ASSERT_NOT_EQUAL(plx_registry_event_add(before, "test", "s", ""), 0);
    OK(plx_registry_store_get(anyway, "s", &row));
    name_cluster(&none);
    OK(plx_registry_store_get(before, "s", &row));
    plx_registry_close(before);
    plx_registry_close(anyway);
}

/* REBUILD-18 */
static void test_rebuild(void)
{
    const char *volumes[] = {volume};
    struct plx_rebuild_options options = {.state_dir = folder, .volumes = volumes, .count = 1};
    struct plx_rebuilt rebuilt;
    struct plx_known known;

    open_attach();
    create("three"); /* the database in the store is from before the store joined */
    close_attach();
    name_cluster(&cluster);
    CU_ASSERT_EQUAL(plx_rebuild(&options, &known, &rebuilt, &fault), PLX_ERR_UNCONFIRMED);
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "add --registry-lost"));
    options.registry_lost = true;
    OK(plx_rebuild(&options, &known, &rebuilt, &fault));
    plx_known_done(&known);
    CU_ASSERT(rebuilt.unknown);
    CU_ASSERT_EQUAL(rebuilt.disks, 3);
    open_attach(); /* in no cluster any more */
    CU_ASSERT(holds("one", 0, 1));
    close_attach();
}

static bool has_store;

static bool may_write(void *context, struct plx_fault *why)
{
    return has_store || !plx_fault_set(why, PLX_ERR_FENCED, "another host has it");
}

static size_t events(struct plx_registry *reg)
{
    struct plx_registry_event *list = NULL;
    size_t count = 0;

    OK(plx_registry_event_list(reg, 100, &list, &count));
    free(list);
    return count;
}

/* REGISTRY-3, of whatever driver: a file's is asked by nobody else. */
static void test_asked(void)
{
    struct plx_registry *reg;
    char path[160];

    snprintf(path, sizeof path, "%s/asked.db", folder);
    OK(plx_registry_open(path, "test", &reg, &fault));
    reg->may_write = may_write;
    has_store = true;
    OK(plx_registry_event_add(reg, "test", "one", ""));
    has_store = false;
    CU_ASSERT_EQUAL(plx_registry_event_add(reg, "test", "two", ""), PLX_ERR_FENCED);
    CU_ASSERT_STRING_EQUAL(plx_registry_error(reg), "another host has it");
    CU_ASSERT_EQUAL(events(reg), 1); /* reading goes on */
    has_store = reg->read_only = true;
    CU_ASSERT_EQUAL(plx_registry_event_add(reg, "test", "two", ""), PLX_ERR_READONLY);
    CU_ASSERT_EQUAL(events(reg), 1);
    plx_registry_close(reg);
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"the database in the store is not opened (EMBEDDED-2)", test_refused},
        {"a handle from before is refused (EMBEDDED-2)", test_open_before},
        {"a rebuild does not read it (REBUILD-18)", test_rebuild},
        {"a change is asked for (REGISTRY-3)", test_asked},
    };

    return SUITE_RUN_IN((&(struct suite_frame){make_store, drop_store, NULL, NULL}),
                        "a store of a cluster", tests);
}
