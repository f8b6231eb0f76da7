/* test_collect.c - no owner frees what was swept meanwhile and is used again (ALLOC-6): two
 * instances, A with a disk that frees, B that collects and uses what came free.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/disk/vdi.h" /* to see where a key frame stands, and to free as one does */
#include "sim/simdisk.h"
#include "sim/simenv.h"
#include "ok.h"
#include "suite.h"

#define MIB (1ull << 20)
#define BLOCK 4096u
#define BLOCKS 64u /* of each disk's data */
#define SOMEBODY 3u

struct instance {
    struct plx_simenv env;
    struct plx_store *store;
};

static struct plx_simpower power;
static struct plx_simdisk *disk;
static struct plx_simregistry registry;
static struct instance a, b;
static struct plx_fault fault;
static uint64_t epoch, extent; /* the one that it is about */
static uint8_t buffer[BLOCKS * BLOCK];

/* ---- Two instances ---- */

static void begin_instance(struct instance *instance, uint64_t number)
{
    struct plx_store_options options = {.instance = number, .cache_bytes = 1u << 20};
    struct plx_device *device = plx_simdisk_attach(disk, "sim");

    plx_simenv_init(&instance->env, number);
    instance->env.registry = &registry;
    instance->env.instance = number;
    OK(plx_store_open(&device, 1, &options, &instance->env.env, &instance->store, &fault));
    instance->env.store = instance->store;
}

/* Its disks are closed. */
static void end_instance(struct instance *instance)
{
    OK(plx_simenv_release_all(&instance->env, &fault));
    OK(plx_store_close(instance->store));
}

static struct plx_vdi *open_vdi(const struct instance *instance, uint32_t slot)
{
    struct plx_vdi_open_options options = {
        .slot = slot, .epoch = ++epoch, .overwrite = PLX_OVERWRITE_COPY};
    struct plx_vdi *vdi = NULL;

    OK(plx_vdi_open(instance->store, &options, &vdi, &fault));
    return vdi;
}

static void run(struct plx_vdi *vdi, enum plx_request_op op)
{
    struct iovec iov = {buffer, sizeof buffer};
    struct plx_request request = {.op = op, .iov = &iov, .iovcnt = 1};

    if (op == PLX_WRITE || op == PLX_READ)
        request.length = sizeof buffer;
    OK(plx_vdi_run(vdi, &request));
}

static void fill(struct plx_vdi *vdi, int byte)
{
    memset(buffer, byte, sizeof buffer);
    run(vdi, PLX_WRITE);
}

static bool holds(struct plx_vdi *vdi, int byte)
{
    run(vdi, PLX_READ);
    for (size_t i = 0; i < sizeof buffer; i++)
        if (buffer[i] != byte)
            return false;
    return true;
}

static uint64_t used_blocks(void)
{
    struct plx_extent_info info;

    OK(plx_store_extent_read(b.store, extent, &info, &fault));
    return info.used_blocks;
}

/* ---- The scene ---- */

static void make_disk(struct instance *instance, uint32_t slot, const char *name)
{
    struct plx_vdi_create_options options = {.size_bytes = MIB, .sector_size = 512, .slot = slot};

    memcpy(options.name, name, strlen(name));
    OK(plx_vdi_create(instance->store, &options, NULL, &fault));
}

static uint64_t data_extent(void)
{
    for (uint64_t e = 0; e < registry.count; e++)
        if (registry.extents[e].used && registry.extents[e].type == PLX_EXTENT_DATA)
            return e;
    CU_FAIL_FATAL("no extent with data");
    return 0;
}

/* Disk 0's data lies in an extent of nobody; A has the disk open and gets other extents, for of
 * this one the registry says at first that somebody else has it. */
static void set_the_scene(void)
{
    struct plx_simdisk_options options = {.bytes = 32 * MIB, .block_size = 512, .seed = 42};
    struct plx_format_options format = {.name = "test", .extent_bytes = MIB};
    struct plx_store_info info;
    struct plx_device *device;
    struct plx_vdi *vdi;

    memset(&power, 0, sizeof power);
    disk = plx_simdisk_new(&options, &power);
    plx_simenv_init(&a.env, 1);
    device = plx_simdisk_attach(disk, "sim");
    OK(plx_store_format(&device, 1, &format, &a.env.env, &info, &fault));
    plx_device_close(device);
    plx_simregistry_init(&registry, &info);
    epoch = 0;
    begin_instance(&a, 1);
    make_disk(&a, 0, "frees");
    make_disk(&a, 1, "uses");
    vdi = open_vdi(&a, 0);
    fill(vdi, 1);
    OK(plx_vdi_close(vdi));
    end_instance(&a);
    extent = data_extent();
    begin_instance(&a, 1);
    begin_instance(&b, 2);
    registry.extents[extent].owner = SOMEBODY;
}

static void end_scene(void)
{
    struct plx_check_options options = {.data = true};
    struct plx_check_result result;

    OK(plx_store_check(b.store, &options, &result, &fault));
    CU_ASSERT_EQUAL(result.errors, 0);
    OK(plx_store_close(b.store));
    plx_simdisk_free(disk);
    plx_simregistry_done(&registry);
}

/* B gets the extent, and disk 1 all of its data in it. */
static void use_extent(void)
{
    struct plx_vdi *vdi;

    registry.extents[extent].owner = 0;
    vdi = open_vdi(&b, 1);
    fill(vdi, 9);
    CU_ASSERT(plx_store_extent_is_owned(b.store, extent));
    OK(plx_vdi_close(vdi));
    OK(plx_simenv_release_all(&b.env, &fault));
}

static bool collects; /* or not: then what died is its owner's to free */

static void collect_and_use(void)
{
    uint64_t before, swept = 0;

    registry.extents[extent].owner = 0;
    before = used_blocks();
    if (collects) {
        OK(plx_simenv_collect(&b.env, &swept, &fault));
        CU_ASSERT_EQUAL(used_blocks(), before - BLOCKS);
    }
    use_extent();
    CU_ASSERT_EQUAL(used_blocks(), before + (collects ? 0 : BLOCKS));
}

/* Disk 1 has what B wrote, also when A had the extent and wrote to what is free in it. */
static void expect_intact(struct plx_vdi *vdi)
{
    struct plx_vdi *uses;

    CU_ASSERT_EQUAL(a.store->counters.blocks_freed >= BLOCKS, !collects);
    for (int byte = 10; byte < 16; byte++) {
        fill(vdi, byte);
        CU_ASSERT(holds(vdi, byte));
    }
    OK(plx_vdi_close(vdi));
    end_instance(&a);
    uses = open_vdi(&b, 1);
    CU_ASSERT(holds(uses, 9));
    OK(plx_vdi_close(uses));
    OK(plx_simenv_release_all(&b.env, &fault));
    end_scene();
}

/* ---- Tests ---- */

static struct plx_vdi *keyframing; /* its record has not flipped yet; NULL: it has */
static uint64_t batch_before;

/* The record says that the blocks are dead; they are still to be freed. */
static void when_the_record_is_written(struct plx_simenv *env)
{
    struct plx_vdi *vdi = keyframing;

    if (!vdi || vdi->record.keyframe.batch_seq == batch_before)
        return;
    keyframing = NULL;
    CU_ASSERT(vdi->keyframe.running && vdi->keyframe.data_deaths.count >= BLOCKS);
    collect_and_use();
}

/* The owner asks for the extent, to free in it, and hears with it that there was a collection. */
static void free_by_key_frame(bool collection)
{
    struct plx_vdi *vdi;

    set_the_scene();
    collects = collection;
    vdi = open_vdi(&a, 0);
    fill(vdi, 2);
    batch_before = vdi->record.keyframe.batch_seq;
    keyframing = vdi;
    a.env.on_tick = when_the_record_is_written;
    run(vdi, PLX_KEYFRAME);
    a.env.on_tick = NULL;
    CU_ASSERT_PTR_NULL(keyframing);
    plx_store_settle(a.store);
    CU_ASSERT(plx_store_extent_is_owned(a.store, extent));
    expect_intact(vdi);
}

/* The extent is the owner's again before it frees what had died before. */
static void free_late(bool collection)
{
    struct plx_since since;
    struct plx_vdi *vdi;
    struct plx_extent_info info;

    set_the_scene();
    collects = collection;
    vdi = open_vdi(&a, 0);
    fill(vdi, 2);
    since = plx_store_since(a.store);
    run(vdi, PLX_KEYFRAME);
    plx_store_settle(a.store); /* the extent is not to be had: left to a collection */
    collect_and_use();
    plx_alloc_spare(a.store, PLX_EXTENT_DATA, UINT64_MAX);
    plx_store_settle(a.store);
    CU_ASSERT(plx_store_extent_is_owned(a.store, extent));
    OK(plx_store_extent_read(b.store, extent, &info, &fault));
    for (uint64_t i = 0; i < BLOCKS; i++)
        plx_alloc_free_dead(a.store, extent * info.blocks + info.header_blocks + i, &since);
    expect_intact(vdi);
}

static void test_asked_for(void)
{
    free_by_key_frame(false);
    free_by_key_frame(true);
}

static void test_granted(void)
{
    free_late(false);
    free_late(true);
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"an extent that is asked for to free in it", test_asked_for},
        {"an extent that is the owner's again by then", test_granted},
    };

    return SUITE_RUN("collect", tests);
}
