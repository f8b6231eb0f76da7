/* test_volumes.c - stores on several volumes: how one is made, what is refused when a volume is
 * added or becomes larger, and what an instance that has the store open takes over.
 */
#include <stdio.h>
#include <string.h>

#include "engine/format/format.h"
#include "ok.h"
#include "suite.h"
#include "unit/fixture.h"

#define VOLUMES (PLX_VOLUMES_MAX + 1u)

static struct plx_simpower powers[VOLUMES]; /* each disk has its own */
static struct plx_simdisk *disks[VOLUMES];
static struct plx_device *devices[VOLUMES];

static void make_disks(unsigned count, uint64_t bytes)
{
    plx_simenv_init(&env, 7);
    for (unsigned i = 0; i < count; i++) {
        struct plx_simdisk_options options = fixture.disk;

        options.bytes = bytes;
        powers[i] = (struct plx_simpower){0};
        disks[i] = plx_simdisk_new(&options, &powers[i]);
    }
}

static void free_disks(unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        plx_simdisk_free(disks[i]);
}

static void attach(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        char name[16];

        snprintf(name, sizeof name, "sim%u", i);
        devices[i] = plx_simdisk_attach(disks[i], name);
    }
}

static void detach(unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        plx_device_close(devices[i]);
}

static int format(unsigned count, uint64_t extent_bytes)
{
    struct plx_format_options options = {.name = "test", .extent_bytes = extent_bytes};

    return plx_store_format(devices, count, &options, &env.env, NULL, &fault);
}

static int try_open(struct plx_device **which, unsigned count)
{
    struct plx_store_options options = {.instance = 1, .cache_bytes = 1u << 20};

    return plx_store_open(which, count, &options, &env.env, &store, &fault);
}

static void open_devices(unsigned count)
{
    OK(try_open(devices, count));
}

static void open_volumes(unsigned count)
{
    attach(count);
    open_devices(count);
}

static void make_volumes(unsigned count, uint64_t bytes)
{
    attach(count);
    OK(format(count, bytes / 8));
    open_devices(count);
}

static int add_volume(unsigned n, uint64_t *ret_added)
{
    struct plx_grown grown = {0};
    int error;

    devices[n] = plx_simdisk_attach(disks[n], "added");
    error = plx_store_add_volume(store, devices[n], &(struct plx_grow){0}, &grown, &fault);
    if (error)
        plx_device_close(devices[n]);
    if (ret_added)
        *ret_added = grown.added;
    return error;
}

/* ---- Formatting ---- */

static void expect_extent(uint64_t bytes, uint64_t extent_bytes)
{
    struct plx_store_info info;

    make_store(bytes, 0);
    plx_store_get_info(store, &info);
    CU_ASSERT_EQUAL(info.extent_blocks * BLOCK, extent_bytes);
    end_store();
}

/* Some 256 extents, but within limits. */
static void test_extent_size(void)
{
    expect_extent(16 * MIB, MIB);
    expect_extent(256 * MIB, MIB);
    expect_extent(1024 * MIB, 4 * MIB);
}

/* Nothing is written. */
static void refuse_geometry(uint64_t extent_bytes, uint64_t segment_bytes, const char *words)
{
    struct plx_format_options options = {
        .name = "test", .extent_bytes = extent_bytes, .segment_bytes = segment_bytes};
    uint64_t before = plx_simdisk_hash(disks[0]);

    FAILS(INVALID, plx_store_format(devices, 1, &options, &env.env, NULL, &fault));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, words));
    CU_ASSERT_EQUAL(plx_simdisk_hash(disks[0]), before);
}

static void test_format_refusals(void)
{
    make_disks(1, 16 * MIB);
    attach(1);
    refuse_geometry(MIB / 2, 0, "extent size");
    refuse_geometry(3 * MIB, 0, "extent size");
    refuse_geometry(4ull << 30, 0, "extent size");
    refuse_geometry(MIB, 2 * BLOCK, "log segment size");
    refuse_geometry(MIB, 5 * BLOCK + 512, "log segment size");
    refuse_geometry(MIB, MIB / 2, "log segment size");
    refuse_geometry(2 * MIB, 2 * MIB, "log segment size");
    FAILS(INVALID, format(0, MIB));
    FAILS(INVALID, plx_store_format(devices, 1, &(struct plx_format_options){.name = ""}, &env.env,
                                    NULL, &fault));
    devices[0]->read_only = true;
    FAILS(READONLY, format(1, MIB));
    devices[0]->read_only = false;
    devices[0]->bytes = (1ull << 50) + (2ull << 30);
    FAILS(INVALID, format(1, 2ull << 30));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "512 TiB"));
    FAILS(INVALID, format(1, 0)); /* extents of 2 GiB are chosen, not larger ones */
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "512 TiB"));
    detach(1);
    free_disks(1);
}

/* Without force nothing is written where anything is found, or cannot be looked for. */
static void test_format_data(void)
{
    uint64_t before;

    make_disks(1, 16 * MIB);
    plx_simdisk_flip(disks[0], 16 * MIB - BLOCK, 1); /* a copy of a partition table, say */
    before = plx_simdisk_hash(disks[0]);
    attach(1);
    FAILS(EXISTS, format(1, MIB));
    for (uint64_t k = 1; k <= 2; k++) {
        plx_simdisk_fail_io(disks[0], k, 1);
        FAILS(IO_READ, format(1, MIB));
        CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "sim0: cannot read"));
        plx_simdisk_heal(disks[0]);
    }
    CU_ASSERT_EQUAL(plx_simdisk_hash(disks[0]), before);
    plx_simdisk_flip(disks[0], 16 * MIB - BLOCK, 1);
    OK(format(1, MIB));
    detach(1);
    free_disks(1);
}

/* A volume that cannot be prepared ends it before any has a superblock: there is no store. */
static void test_format_unwritable(void)
{
    make_disks(3, 16 * MIB);
    attach(3);
    for (unsigned i = 0; i < 3; i++) /* to be overwritten, where nobody looks for data */
        plx_simdisk_flip(disks[i], 2 * MIB, 1);
    for (unsigned bad = 0; bad < 3; bad++) {
        char words[32];

        snprintf(words, sizeof words, "sim%u: cannot format", bad);
        plx_simdisk_fail_range(disks[bad], 0, 16 * MIB, false, true);
        FAILS(IO_WRITE, format(3, MIB));
        CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, words));
        plx_simdisk_heal(disks[bad]);
        for (unsigned i = 0; i < 3; i++)
            FAILS(NOT_FOUND,
                  plx_superblock_probe(devices[i], &(struct plx_superblock_info){0}, &fault));
    }
    OK(format(3, MIB)); /* nor is that data */
    detach(3);
    free_disks(3);
}

/* ---- Adding ---- */

static void test_add_refusals(void)
{
    struct plx_grown grown;
    uint64_t added;

    make_disks(3, 8 * MIB);
    make_volumes(1, 8 * MIB);
    devices[1] = plx_simdisk_attach(disks[1], "added");
    devices[1]->block_size = 4096;
    FAILS(INVALID, plx_store_add_volume(store, devices[1], &(struct plx_grow){0}, &grown, &fault));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "blocks"));
    devices[1]->block_size = 512;
    devices[1]->bytes = 1ull << 50; /* but for what volume 0 has */
    FAILS(INVALID, plx_store_add_volume(store, devices[1], &(struct plx_grow){0}, &grown, &fault));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "512 TiB"));
    plx_device_close(devices[1]);
    OK(add_volume(1, &added));
    CU_ASSERT_EQUAL(added, 8);
    close_store();
    free_disks(3);
}

/* Another store's volume holds data, whatever it says of itself, and is not taken without force.
 * What would be added can be asked without a write. */
static void test_add_strangers(void)
{
    struct plx_grown grown = {0};
    uint64_t before, added;

    make_disks(4, 8 * MIB);
    attach(2);
    OK(format(2, MIB)); /* so disk 1 is the second volume of that one */
    detach(2);
    plx_simdisk_copy(disks[0], disks[3]);
    make_volumes(1, 8 * MIB);
    plx_simdisk_copy(disks[3], disks[0]);
    before = plx_simdisk_hash(disks[1]);
    FAILS(EXISTS, add_volume(1, NULL));
    CU_ASSERT_EQUAL(plx_simdisk_hash(disks[1]), before);
    OK(add_volume(2, NULL));
    close_store();
    plx_simdisk_copy(disks[1], disks[2]); /* volume 1 of 2 */
    plx_simdisk_copy(disks[0], disks[3]); /* that knows of itself only */
    open_volumes(1);
    devices[1] = plx_simdisk_attach(disks[1], "asked");
    before = plx_simdisk_hash(disks[1]);
    OK(plx_store_add_volume(store, devices[1], &(struct plx_grow){.dry_run = true}, &grown,
                            &fault));
    CU_ASSERT_EQUAL(grown.added, 8);
    CU_ASSERT_EQUAL(plx_simdisk_hash(disks[1]), before);
    plx_device_close(devices[1]);
    OK(add_volume(1, &added));
    CU_ASSERT_EQUAL(added, 8);
    close_store();
    free_disks(4);
}

static void test_most_volumes(void)
{
    make_disks(VOLUMES, 8 * MIB);
    make_volumes(PLX_VOLUMES_MAX, 8 * MIB);
    FAILS(UNSUPPORTED, add_volume(PLX_VOLUMES_MAX, NULL));
    close_store();
    attach(VOLUMES);
    FAILS(INVALID, try_open(devices, VOLUMES));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "1 to 64 volumes"));
    FAILS(INVALID, format(VOLUMES, MIB));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "1 to 64 volumes"));
    detach(VOLUMES);
    free_disks(VOLUMES);
}

static int grow_by(unsigned n, uint64_t extents, uint64_t *sizes)
{
    struct plx_grown grown;
    int error;

    sizes[n] += extents * MIB;
    plx_simdisk_resize(disks[n], sizes[n]);
    open_volumes(2);
    error = plx_store_grow(store, &(struct plx_grow){0}, &grown, &fault);
    if (!error)
        CU_ASSERT_EQUAL(grown.added, extents);
    close_store();
    return error;
}

/* Each by turns, so that none goes on where it ended: until its superblock has no room. */
static void test_most_ranges(void)
{
    uint64_t sizes[2] = {8 * MIB, 8 * MIB};
    unsigned ranges = 1;
    int error = 0;

    make_disks(2, 8 * MIB);
    make_volumes(2, 8 * MIB);
    close_store();
    for (; !error && ranges < 100; ranges += !error) {
        error = grow_by(0, 1, sizes);
        if (!error)
            OK(grow_by(1, 1, sizes));
    }
    CU_ASSERT_EQUAL(error, PLX_ERR_UNSUPPORTED);
    CU_ASSERT_EQUAL(ranges, 64);
    OK(grow_by(1, 1, sizes)); /* the last volume's range goes on, whatever volume 0 has */
    free_disks(2);
}

/* One of a superblock's two slots is gone on both volumes. Whatever is to be done, it begins with
 * making that good, and when one cannot be written nothing comes after it. */
static void test_mirror_first(void)
{
    struct plx_grown grown;
    uint64_t before[3];

    make_disks(3, 8 * MIB);
    make_volumes(2, 8 * MIB);
    close_store();
    memset(buffer, 0, BLOCK);
    for (unsigned i = 0; i < 2; i++)
        plx_simdisk_poke(disks[i], BLOCK, buffer, BLOCK);
    plx_simdisk_resize(disks[0], 9 * MIB);
    for (unsigned i = 1; i < 3; i++)
        before[i] = plx_simdisk_hash(disks[i]);
    open_volumes(2);
    plx_simdisk_fail_range(disks[0], 0, MIB, false, true);
    FAILS(IO_WRITE, plx_store_allow_common(store, &fault));
    CU_ASSERT(!plx_store_allows_common(store));
    FAILS(IO_WRITE, plx_store_grow(store, &(struct plx_grow){0}, &grown, &fault));
    FAILS(IO_WRITE, add_volume(2, NULL));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "sim0: cannot write the superblock"));
    for (unsigned i = 1; i < 3; i++)
        CU_ASSERT_EQUAL(plx_simdisk_hash(disks[i]), before[i]);
    plx_simdisk_heal(disks[0]);
    plx_simdisk_fail_range(disks[1], 0, MIB, false, true);
    FAILS(IO_WRITE, plx_store_allow_common(store, &fault));
    CU_ASSERT(!plx_store_allows_common(store));
    plx_simdisk_heal(disks[1]);
    OK(plx_store_allow_common(store, &fault));
    CU_ASSERT(plx_store_allows_common(store));
    CU_ASSERT(!plx_store_allows_ring(store));
    OK(plx_store_allow_ring(store, &fault));
    CU_ASSERT(plx_store_allows_common(store) && plx_store_allows_ring(store));
    close_store();
    for (unsigned i = 0; i < 2; i++) /* now the other one may go */
        plx_simdisk_poke(disks[i], 0, buffer, BLOCK);
    open_volumes(2);
    CU_ASSERT(plx_store_allows_common(store) && plx_store_allows_ring(store));
    OK(plx_store_grow(store, &(struct plx_grow){0}, &grown, &fault));
    CU_ASSERT_EQUAL(grown.added, 1);
    close_store();
    free_disks(3);
}

/* ---- Opening ---- */

/* What an interrupted call has prepared is a volume when volume 0 counts it, and not before. */
static void test_leftover(void)
{
    uint64_t added;

    make_disks(4, 8 * MIB);
    make_volumes(2, 8 * MIB);
    close_store();
    plx_simdisk_copy(disks[3], disks[0]);
    open_volumes(2);
    OK(add_volume(2, NULL));
    close_store();
    plx_simdisk_copy(disks[0], disks[3]);
    attach(3);
    FAILS(INVALID, try_open((struct plx_device *[]){devices[0], devices[2]}, 2));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "volume 1 was not given"));
    detach(3);
    open_volumes(2);
    OK(add_volume(2, &added)); /* without force */
    CU_ASSERT_EQUAL(added, 8);
    close_store();
    free_disks(4);
}

/* Both slots of a superblock. */
static void edit_super(struct plx_simdisk *of, void (*edit)(struct plx_superblock *super))
{
    struct plx_superblock super;
    uint8_t block[BLOCK];

    plx_simdisk_peek(of, 0, block, sizeof block);
    OK(plx_format_superblock_decode(block, &super, &fault));
    edit(&super);
    plx_format_superblock_encode(&super, block);
    plx_simdisk_poke(of, 0, block, sizeof block);
    plx_simdisk_poke(of, BLOCK, block, sizeof block);
}

static void double_extents(struct plx_superblock *super)
{
    super->extent_blocks *= 2;
}

/* Not all of the volumes, or one whose extents are not those of the others. */
static void test_open_refusals(void)
{
    make_disks(2, 8 * MIB);
    make_volumes(2, 8 * MIB);
    close_store();
    attach(2);
    FAILS(INVALID, try_open(devices + 1, 1));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "has 2 volumes, of which 1 was given"));
    edit_super(disks[1], double_extents);
    FAILS(INVALID, try_open(devices, 2));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "sim1: is a volume of store "));
    detach(2);
    free_disks(2);
}

/* ---- What another process did to the volumes of an open store ---- */

static int change(unsigned count)
{
    return plx_store_volumes_changed(store, devices, count, &fault);
}

/* Volume `added` comes; 0: what volumes became larger by. */
static void change_elsewhere(unsigned count, unsigned added)
{
    struct plx_store *ours = store;
    struct plx_grown grown;

    open_volumes(count);
    OK(added ? add_volume(added, NULL)
             : plx_store_grow(store, &(struct plx_grow){0}, &grown, &fault));
    close_store();
    store = ours;
}

static void test_changed_more(void)
{
    struct plx_store_info info;

    make_disks(3, 8 * MIB);
    make_volumes(1, 8 * MIB);
    plx_simdisk_copy(disks[2], disks[0]);
    change_elsewhere(1, 1);
    attach(2);
    devices[1]->block_size = 4096;
    FAILS(INVALID, change(2));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "logical blocks"));
    attach(2);
    OK(change(2));
    plx_store_get_info(store, &info);
    CU_ASSERT_EQUAL(info.extents, 16);
    CU_ASSERT_EQUAL(info.volumes, 2);
    devices[0] = plx_simdisk_attach(disks[2], "older");
    FAILS(INVALID, change(1));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "had more than 1 volume"));
    close_store();
    free_disks(3);
}

static void add_extent(struct plx_superblock *super)
{
    super->range[0].extents++;
}

static void begin_later(struct plx_superblock *super)
{
    super->range[0].first++;
}

static void attach_older(void)
{
    devices[0] = plx_simdisk_attach(disks[2], "older0");
    devices[1] = plx_simdisk_attach(disks[3], "older1");
}

/* Volumes that make a store, but not the one that is open. */
static void test_changed_places(void)
{
    make_disks(4, 8 * MIB);
    make_volumes(2, 8 * MIB);
    plx_simdisk_copy(disks[2], disks[0]);
    plx_simdisk_copy(disks[3], disks[1]);
    plx_simdisk_resize(disks[0], 9 * MIB);
    change_elsewhere(2, 0);
    attach(2);
    OK(change(2));
    attach_older();
    FAILS(CORRUPT, change(2)); /* without the extent that has come */
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "older0: its extents lie elsewhere"));
    close_store();
    attach_older();
    open_devices(2);
    plx_simdisk_resize(disks[2], 9 * MIB);
    edit_super(disks[2], add_extent);
    edit_super(disks[3], begin_later);
    attach_older();
    FAILS(CORRUPT, change(2));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "older1: its extents lie elsewhere"));
    close_store();
    free_disks(4);
}

static void name_another_volume(struct plx_superblock *super)
{
    super->volume.b[0] ^= 1;
}

static void test_probe(void)
{
    struct plx_superblock_info info = {.volumes = 9};

    make_disks(1, 8 * MIB);
    attach(1);
    CU_ASSERT_NOT_EQUAL(plx_superblock_probe(devices[0], &info, &fault), 0);
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "sim0: no Parallax superblock"));
    CU_ASSERT_EQUAL(info.volumes, 9);
    detach(1);
    free_disks(1);
}

static void test_changed_refusals(void)
{
    struct plx_store_info info;

    make_disks(4, 8 * MIB);
    attach(3);
    OK(plx_store_format(devices + 2, 1,
                        &(struct plx_format_options){.name = "other", .extent_bytes = MIB},
                        &env.env, NULL, &fault));
    detach(3);
    make_volumes(1, 8 * MIB);
    plx_simdisk_copy(disks[3], disks[0]);
    devices[0] = plx_simdisk_attach(disks[2], "other");
    FAILS(INVALID, change(1));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "another store (other)"));
    plx_simdisk_resize(disks[0], 12 * MIB);
    change_elsewhere(1, 0);
    attach(1);
    OK(change(1));
    devices[0] = plx_simdisk_attach(disks[3], "older");
    FAILS(CORRUPT, change(1));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "lie elsewhere"));
    edit_super(disks[3], name_another_volume);
    devices[0] = plx_simdisk_attach(disks[3], "sim3");
    FAILS(INVALID, change(1));
    CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "sim3: another volume than sim0, which is open"));
    plx_store_get_info(store, &info);
    CU_ASSERT_EQUAL(info.extents, 12);
    close_store();
    free_disks(4);
}

/* ---- Superblocks that another process has written ---- */

static void raise_generation(struct plx_superblock *super)
{
    super->generation += 2;
}

/* They stay as they are. */
static void test_written_meanwhile(void)
{
    struct plx_grown grown;
    uint64_t before;

    make_disks(3, 8 * MIB);
    make_volumes(2, 8 * MIB);
    close_store();
    plx_simdisk_resize(disks[1], 12 * MIB);
    open_volumes(2);
    for (unsigned i = 2; i-- > 0;) {
        edit_super(disks[i], raise_generation);
        before = plx_simdisk_hash(disks[i]);
        FAILS(FENCED, i ? plx_store_grow(store, &(struct plx_grow){0}, &grown, &fault)
                        : plx_store_allow_common(store, &fault));
        CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "another process has written its superblock"));
        if (i == 0)
            FAILS(FENCED, add_volume(2, NULL));
        CU_ASSERT_EQUAL(plx_simdisk_hash(disks[i]), before);
    }
    attach(2);
    OK(change(2)); /* now they are known */
    OK(plx_store_grow(store, &(struct plx_grow){0}, &grown, &fault));
    CU_ASSERT_EQUAL(grown.added, 4);
    close_store();
    free_disks(3);
}

static void set_largest(struct plx_superblock *super)
{
    super->generation = PLX_COUNTER_MAX - 1;
}

/* A state whose generation no gate would let pass is not written; what is there stays usable. */
static void test_last_generation(void)
{
    struct plx_grown grown;
    uint64_t before;

    make_disks(1, 8 * MIB);
    make_volumes(1, 8 * MIB);
    close_store();
    edit_super(disks[0], set_largest);
    for (unsigned i = 0; i < 2; i++) {
        plx_simdisk_resize(disks[0], (9 + i) * MIB);
        open_volumes(1);
        before = plx_simdisk_hash(disks[0]);
        if (!i) {
            OK(plx_store_grow(store, &(struct plx_grow){0}, &grown, &fault));
        } else {
            FAILS(CORRUPT, plx_store_grow(store, &(struct plx_grow){0}, &grown, &fault));
            CU_ASSERT_PTR_NOT_NULL(strstr(fault.text, "impossible generation"));
            CU_ASSERT_EQUAL(plx_simdisk_hash(disks[0]), before);
        }
        close_store();
    }
    open_volumes(1);
    close_store();
    free_disks(1);
}

/* ---- The registry's place ---- */

static void expect_due(uint64_t least, uint64_t most)
{
    uint64_t is_least = 99, is_most = 99;

    plx_store_registry_due(store, &is_least, &is_most);
    CU_ASSERT_EQUAL(is_least, least);
    CU_ASSERT_EQUAL(is_most, most);
}

static void grow_to(uint64_t extents)
{
    struct plx_grown grown;

    close_store();
    plx_simdisk_resize(disks[0], extents * MIB);
    open_volumes(1);
    OK(plx_store_grow(store, &(struct plx_grow){0}, &grown, &fault));
}

/* It is as long as that of a new store of this size, and more than half as long again each time. */
static void test_registry_due(void)
{
    struct plx_format_options options = {.name = "test", .extent_bytes = MIB, .registry = true};
    struct plx_superblock_info info;

    make_disks(1, 16 * MIB);
    attach(1);
    OK(plx_store_format(devices, 1, &options, &env.env, NULL, &fault));
    open_devices(1);
    expect_due(0, 0);
    FAILS(INVALID, plx_store_add_registry_span(store, 1, 1, &fault)); /* it has this one */
    FAILS(INVALID, plx_store_add_registry_span(store, 0, 1, &fault));
    FAILS(INVALID, plx_store_add_registry_span(store, 15, 2, &fault));
    grow_to(40);
    expect_due(1, 1);
    OK(plx_store_add_registry_span(store, 20, 1, &fault));
    expect_due(0, 0);
    CU_ASSERT(plx_store_extent_is_system(store, 20) && !plx_store_extent_is_system(store, 21));
    grow_to(300);
    expect_due(1, 2);
    OK(plx_store_add_registry_span(store, 298, 2, &fault));
    expect_due(0, 0);
    close_store();
    attach(1);
    OK(plx_superblock_probe(devices[0], &info, &fault));
    CU_ASSERT_EQUAL_FATAL(info.registry_spans, 3);
    CU_ASSERT_EQUAL(info.registry[2].offset, 298 * MIB);
    CU_ASSERT_EQUAL(info.registry[2].bytes, 2 * MIB);
    detach(1);
    free_disks(1);
}

/* Too small: volume 0 has no more to give, or there is no place for a span any more. */
static void test_registry_stays(void)
{
    struct plx_format_options options = {.name = "test", .extent_bytes = MIB, .registry = true};

    make_disks(1, 20 * MIB);
    attach(1);
    OK(plx_store_format(devices, 1, &options, &env.env, NULL, &fault));
    open_devices(1);
    CU_ASSERT_EQUAL(plx_store_registry_stays(store), PLX_REGISTRY_FITS);
    for (uint64_t extent = 2; extent < 16; extent++)
        OK(plx_store_add_registry_span(store, extent, 1, &fault));
    CU_ASSERT_EQUAL(plx_store_registry_stays(store), PLX_REGISTRY_FITS);
    grow_to(15 * 2048);
    expect_due(0, 0);
    CU_ASSERT_EQUAL(plx_store_registry_stays(store), PLX_REGISTRY_FITS);
    grow_to(16 * 2048 + 1);
    CU_ASSERT_EQUAL(plx_store_registry_stays(store), PLX_REGISTRY_NO_EXTENTS);
    expect_due(8, 15);
    OK(plx_store_add_registry_span(store, 16, 1, &fault));
    CU_ASSERT_EQUAL(plx_store_registry_stays(store), PLX_REGISTRY_NO_SPANS);
    expect_due(0, 0);
    FAILS(UNSUPPORTED, plx_store_add_registry_span(store, 17, 1, &fault));
    close_store();
    free_disks(1);
}

/* ---- Clones ---- */

static unsigned flushes;
static const struct plx_device_ops *disk_ops;

static void count_flushes(struct plx_device *device, struct plx_io *io)
{
    flushes += io->op == PLX_IO_FLUSH;
    disk_ops->submit(device, io);
}

/* What a clone names may lie on any volume, and have been written there by another process, whose
 * flush has not come yet: it is durable before the clone is. */
static void test_clone_flushes(void)
{
    struct plx_device_ops ops;
    struct plx_store_info info;
    struct plx_vdi *vdi;
    uint64_t seq;

    make_disks(2, 32 * MIB);
    make_volumes(2, 8 * MIB);
    plx_store_get_info(store, &info);
    plx_simregistry_init(&registry, &info);
    env.registry = &registry;
    env.instance = 1;
    env.store = store;
    OK(create_vdi(0, MIB));
    vdi = open_vdi(0);
    OK(write_byte(vdi, 0, BLOCK, 1));
    seq = run(vdi, PLX_SNAPSHOT, 0, 0);
    OK(plx_vdi_close(vdi));
    OK(plx_store_flush_others(store));
    disk_ops = devices[1]->ops;
    ops = *disk_ops;
    ops.submit = count_flushes;
    devices[1]->ops = &ops;
    flushes = 0;
    OK(clone_vdi(1, 0, seq));
    CU_ASSERT(flushes > 0);
    devices[1]->ops = disk_ops;
    OK(plx_store_close(store));
    store = NULL;
    free_disks(2);
}

int main(void)
{
    static const struct suite_test tests[] = {
        {"the size of extents", test_extent_size},
        {"what cannot be formatted", test_format_refusals},
        {"what holds data", test_format_data},
        {"what cannot be written", test_format_unwritable},
        {"what cannot be added", test_add_refusals},
        {"volumes of somebody else", test_add_strangers},
        {"no more volumes", test_most_volumes},
        {"no more ranges", test_most_ranges},
        {"superblocks without a mirror", test_mirror_first},
        {"a volume that does not count yet", test_leftover},
        {"volumes that make no store", test_open_refusals},
        {"an open store gets a volume", test_changed_more},
        {"volumes that have changed places", test_changed_places},
        {"a disk without a superblock", test_probe},
        {"volumes that an open store does not take", test_changed_refusals},
        {"superblocks that another process has written", test_written_meanwhile},
        {"a superblock's last generation", test_last_generation},
        {"how much the registry is to have", test_registry_due},
        {"a registry that stays too small", test_registry_stays},
        {"a clone flushes all volumes", test_clone_flushes},
    };

    return SUITE_RUN("volumes", tests);
}
