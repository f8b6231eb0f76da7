/* fixture.c - see fixture.h. */
#include "unit/fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/disk/vdi.h" /* to know which disks are open */
#include "ok.h"

struct fixture fixture = {
    .disk = {.block_size = 512, .volatile_cache = true, .patience = 20, .seed = 42},
    .format = {.name = "test"},
    .open = {.cache_bytes = 1u << 20},
};

struct plx_simpower power;
struct plx_simdisk *disk, *second_disk;
struct plx_simenv env;
struct plx_simregistry registry;
struct plx_store *store;
struct plx_device *opened;
struct plx_fault fault;
uint64_t epoch;
uint8_t buffer[4 * MIB];

/* ---- The store ---- */

int try_open_store(uint64_t instance)
{
    struct plx_device *devices[] = {
        fixture.attach ? fixture.attach() : plx_simdisk_attach(disk, "sim"),
        second_disk ? plx_simdisk_attach(second_disk, "second") : NULL,
    };
    int error;

    opened = devices[0];
    fixture.open.instance = instance;
    error = plx_store_open(devices, second_disk ? 2 : 1, &fixture.open, &env.env, &store, &fault);
    if (error) {
        plx_device_close(devices[0]);
        plx_device_close(devices[1]);
        store = NULL;
    }
    env.instance = instance;
    env.store = store;
    return error;
}

void open_store(uint64_t instance)
{
    OK(try_open_store(instance));
}

void make_store(uint64_t bytes, uint64_t extent_bytes)
{
    struct plx_store_info info = {0};
    struct plx_device *device;

    memset(&power, 0, sizeof power);
    fixture.disk.bytes = bytes;
    fixture.format.extent_bytes = extent_bytes;
    disk = plx_simdisk_new(&fixture.disk, &power);
    plx_simenv_init(&env, fixture.disk.seed);
    device = plx_simdisk_attach(disk, "sim");
    OK(plx_store_format(&device, 1, &fixture.format, &env.env, &info, &fault));
    plx_device_close(device);
    plx_simregistry_init(&registry, &info);
    env.registry = &registry;
    epoch = 0;
    open_store(1);
}

void close_store(void)
{
    OK(plx_store_close(store));
    store = NULL;
}

void leave_store(void)
{
    OK(plx_simenv_release_all(&env, &fault));
    close_store();
}

static void forget_store(void)
{
    while (store->vdis)
        plx_vdi_abandon(store->vdis);
    plx_store_close(store);
}

void lose_power(void)
{
    plx_simpower_cut(&power);
    forget_store();
    plx_simpower_restore(&power);
    open_store(env.instance + 1);
}

void adopt_extents(void)
{
    for (uint64_t e = 0; e < registry.count; e++) {
        struct plx_extent_info info;

        if (!registry.extents[e].owner || registry.extents[e].owner == env.instance)
            continue;
        OK(plx_store_extent_read(store, e, &info, &fault));
        registry.extents[e].used = info.type != PLX_EXTENT_UNUSED; /* or it never came into use */
        registry.extents[e].owner = registry.extents[e].used ? env.instance : 0;
        if (registry.extents[e].used)
            OK(plx_store_extent_adopt(store, e, &fault));
    }
}

static void take_all_over(void)
{
    adopt_extents();
    for (uint32_t slot = 0; slot < store->info.vdi_slots; slot++)
        OK(plx_vdi_mark(store, slot, &fault));
    OK(plx_store_extents_adopted(store, &fault));
}

void crash_store(void)
{
    lose_power();
    take_all_over();
}

void kill_store(void)
{
    forget_store();
    open_store(env.instance + 1);
    take_all_over();
}

void print_finding(void *context, const struct plx_finding *finding)
{
    if (finding->severity == PLX_FINDING_ERROR)
        printf("\n  check: %s\n", finding->text);
    CU_ASSERT(
        !strstr(finding->text, "its record says that")); /* it miscounts: harmless, and a bug */
}

void check_store(bool leaks)
{
    struct plx_check_options options = {.data = true, .finding = print_finding};
    struct plx_check_result result = {0};

    OK(plx_simenv_release_all(&env, &fault)); /* writes the bitmaps */
    OK(plx_store_check(store, &options, &result, &fault));
    CU_ASSERT_EQUAL(result.errors, 0);
    CU_ASSERT(leaks || result.leaked_blocks == 0);
}

void end_store(void)
{
    if (store)
        close_store();
    plx_simdisk_free(disk);
    if (second_disk)
        plx_simdisk_free(second_disk);
    second_disk = NULL;
    plx_simregistry_done(&registry);
}

uint64_t collect_closed(void)
{
    uint64_t blocks = 0;

    open_store(1);
    OK(plx_simenv_collect(&env, &blocks, &fault));
    leave_store();
    return blocks;
}

struct plx_counters counters(void)
{
    struct plx_counters c;

    plx_store_counters(store, &c);
    return c;
}

uint64_t data_used(void)
{
    struct plx_extent_info info;
    uint64_t used = 0;

    for (size_t i = 0; plx_store_extent_owned(store, i, &info) == 0; i++)
        used += info.type == PLX_EXTENT_DATA ? info.used_blocks - info.header_blocks : 0;
    return used;
}

void grow_elsewhere(uint64_t extents)
{
    struct plx_store_options options = {.instance = 9, .cache_bytes = 1u << 20};
    struct plx_device *device = plx_simdisk_attach(disk, "sim");
    struct plx_simenv *theirs = malloc(sizeof *theirs);
    struct plx_grown grown;
    struct plx_store *same;

    plx_simenv_init(theirs, 8);
    OK(plx_store_open(&device, 1, &options, &theirs->env, &same, &fault));
    OK(plx_store_grow(same, &(struct plx_grow){.dry_run = true}, &grown, &fault));
    CU_ASSERT_EQUAL(grown.extents, extents);
    CU_ASSERT_EQUAL(grown.added, extents - registry.count);
    OK(plx_store_grow(same, &(struct plx_grow){0}, &grown, &fault));
    CU_ASSERT_EQUAL(grown.added, extents - registry.count);
    OK(plx_store_grow(same, &(struct plx_grow){0}, &grown, &fault));
    CU_ASSERT_EQUAL(grown.added, 0);
    OK(plx_store_close(same));
    free(theirs);
    device = plx_simdisk_attach(disk, "sim");
    OK(plx_store_volumes_changed(store, &device, 1, &fault));
    registry.extents = realloc(registry.extents, extents * sizeof *registry.extents);
    memset(registry.extents + registry.count, 0,
           (extents - registry.count) * sizeof *registry.extents);
    registry.count = extents;
}

uint64_t eaten[4096];
size_t eaten_count;

void eat_segments(void)
{
    registry.limit = registry.granted;
    eaten_count = 0;
    while (plx_alloc_segment(store, NULL, &eaten[eaten_count]) == 0)
        eaten_count++;
}

void give_segments_back(void)
{
    registry.limit = 0;
    while (eaten_count)
        plx_alloc_free(store, eaten[--eaten_count], store->info.segment_blocks);
    env.ns += 5000000000u; /* what was refused is asked for again after a while */
}

/* ---- Virtual disks ---- */

static int create(struct plx_vdi_create_options *options)
{
    options->sector_size = 512;
    snprintf(options->name, sizeof options->name, "v%u", options->slot);
    return plx_vdi_create(store, options, NULL, &fault);
}

int create_vdi(uint32_t slot, uint64_t bytes)
{
    return create(&(struct plx_vdi_create_options){.slot = slot, .size_bytes = bytes});
}

int clone_vdi(uint32_t slot, uint32_t parent, uint64_t seq)
{
    return create(&(struct plx_vdi_create_options){
        .slot = slot, .is_clone = true, .parent_slot = parent, .parent_seq = seq});
}

int try_open_vdi(uint32_t slot, bool take_over, struct plx_vdi **ret_vdi)
{
    struct plx_vdi_open_options options = {
        .slot = slot, .epoch = ++epoch, .take_over = take_over, .overwrite = -1};

    return plx_vdi_open(store, &options, ret_vdi, &fault);
}

struct plx_vdi *open_vdi(uint32_t slot)
{
    struct plx_vdi *vdi = NULL;

    OK(try_open_vdi(slot, false, &vdi));
    return vdi;
}

struct plx_vdi *make_with_vdi(uint64_t bytes, uint64_t extent_bytes, uint64_t vdi_bytes)
{
    make_store(bytes, extent_bytes);
    OK(create_vdi(0, vdi_bytes));
    return open_vdi(0);
}

struct plx_vdi *open_quiet(uint32_t slot, uint64_t quiet_ns)
{
    struct plx_vdi_open_options options = {
        .slot = slot, .epoch = ++epoch, .overwrite = -1, .quiet_ns = quiet_ns};
    struct plx_vdi *vdi = NULL;

    OK(plx_vdi_open(store, &options, &vdi, &fault));
    return vdi;
}

static void settle_down(void)
{
    while (plx_store_tick(store) || plx_store_under_way(store))
        if (plx_store_under_way(store))
            plx_store_wait(store);
}

void pass_time(uint64_t ns)
{
    uint64_t end = env.ns + ns;

    while (env.ns < end) {
        uint64_t due = plx_store_due_ns(store);

        settle_down();
        env.ns = plx_min_u64(end, due == UINT64_MAX ? end : plx_max_u64(due, env.ns + 1000));
    }
    settle_down();
}

/* ---- Requests ---- */

int try_run(struct plx_vdi *vdi, enum plx_request_op op, uint64_t offset, uint64_t length,
            uint64_t *ret_seq)
{
    struct iovec iov = {buffer, length};
    struct plx_request request = {
        .op = op, .offset = offset, .length = length, .iov = &iov, .iovcnt = 1};
    int error = plx_vdi_run(vdi, &request);

    if (error)
        fault = request.fault;
    if (ret_seq)
        *ret_seq = request.seq;
    return error;
}

uint64_t run(struct plx_vdi *vdi, enum plx_request_op op, uint64_t offset, uint64_t length)
{
    uint64_t seq;

    OK(try_run(vdi, op, offset, length, &seq));
    return seq;
}

int write_byte(struct plx_vdi *vdi, uint64_t offset, uint64_t length, int byte)
{
    memset(buffer, byte, length);
    return try_run(vdi, PLX_WRITE, offset, length, NULL);
}

bool reads_as(struct plx_vdi *vdi, uint64_t offset, uint64_t length, int byte)
{
    memset(buffer, ~byte, length);
    return try_run(vdi, PLX_READ, offset, length, NULL) == 0 && buffer[0] == (uint8_t)byte &&
           memcmp(buffer, buffer + 1, length - 1) == 0;
}

int try_share(struct plx_vdi *vdi, uint64_t block, struct plx_share *share)
{
    struct iovec iov = {buffer, PLX_SHARE_BUFFER};
    struct plx_request request = {.op = PLX_SHARE,
                                  .offset = block * BLOCK,
                                  .length = BLOCK,
                                  .iov = &iov,
                                  .iovcnt = 1,
                                  .share = share};
    int error = plx_vdi_run(vdi, &request);

    if (error)
        fault = request.fault;
    return error;
}
