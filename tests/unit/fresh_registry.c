/* fresh_registry.c - see fresh_registry.h. */
#include "folder.h"
#include "unit/fresh_registry.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cluster.h"
#include "place.h"

char directory[64];
struct plx_paths paths;
struct plx_registry *reg;
struct plx_registry_store store;
struct plx_fault fault;
bool in_region, on_nodes;
static struct cluster nodes;
char registry_path[160];

int say(int code)
{
    if (code)
        fprintf(stderr, "\n  %s: %s | %s\n", plx_error_name(code), plx_registry_error(reg),
                fault.text);
    return code;
}

int open_registry(const char *path, const char *who, struct plx_registry **ret_reg,
                  struct plx_fault *ret_fault)
{
    if (on_nodes)
        return cluster_open(&nodes, who, ret_reg, ret_fault);
    return in_region ? place_registry_open(path, who, ret_reg, ret_fault)
                     : plx_registry_open(path, who, ret_reg, ret_fault);
}

void close_registry(struct plx_registry *opened)
{
    if (in_region)
        place_registry_close(opened);
    else
        plx_registry_close(opened);
}

void open_here(void)
{
    OK(plx_paths_init(&paths, directory, &fault));
    snprintf(registry_path, sizeof registry_path, "%s/registry.db", directory);
    if (on_nodes) /* the file whose bytes instances lock */
        close(open(registry_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    OK(open_registry(registry_path, "test", &reg, &fault));
}

int start_nodes(void)
{
    return !cluster_start(&nodes, cluster_wanted(), true);
}

int stop_nodes(void)
{
    cluster_stop(&nodes);
    return 0;
}

void empty_nodes(void)
{
    CU_ASSERT_FATAL(cluster_wipe(&nodes));
}

struct plx_registry_store make_store(const char *name, unsigned volumes, uint64_t extents)
{
    struct plx_registry_store spec = {.extent_blocks = 1024}, made;
    static struct plx_registry_volume list[PLX_VOLUMES_MAX];

    snprintf(spec.name, sizeof spec.name, "%s", name);
    plx_uuid_random(spec.uuid);
    for (unsigned i = 0; i < volumes; i++) {
        list[i].index = i;
        list[i].first_extent = i * extents;
        list[i].extents = extents;
        plx_uuid_random(list[i].uuid);
        snprintf(list[i].path, sizeof list[i].path, "/dev/%s%u", name, i);
    }
    OK(plx_registry_store_create(reg, &spec, list, volumes, &made));
    CU_ASSERT_STRING_EQUAL(made.uuid, spec.uuid);
    return made;
}

void setup(void)
{
    CU_ASSERT_FATAL(folder_make("registry", directory));
    if (on_nodes)
        empty_nodes();
    open_here();
    store = make_store("demo", 2, 8);
}

void teardown(void)
{
    char command[128];

    close_registry(reg);
    reg = NULL;
    snprintf(command, sizeof command, "rm -rf '%s'", directory);
    CU_ASSERT_EQUAL(system(command), 0);
}

bool is_dead(const struct plx_registry_instance *row)
{
    struct plx_bytelock *locks;
    bool dead;

    OK(plx_bytelock_open(registry_path, &locks, &fault));
    dead = plx_instance_is_dead(&paths, locks, row, &fault);
    plx_bytelock_close(locks);
    return dead;
}

struct plx_instance new_instance(void)
{
    struct plx_instance instance;

    OK(plx_instance_create(&paths, registry_path, "handler", &instance, &fault));
    instance.row.store = store.id;
    OK(plx_registry_instance_register(reg, &instance.row));
    return instance;
}

struct plx_registry_vdi vdi_spec(const char *name, uint64_t owner)
{
    struct plx_registry_vdi vdi = {
        .store = store.id, .size_bytes = 1 << 20, .sector_size = 512, .owner = owner};

    plx_uuid_random(vdi.id);
    snprintf(vdi.name, sizeof vdi.name, "%s", name);
    return vdi;
}

struct plx_registry_vdi new_vdi(const char *name, uint64_t owner)
{
    struct plx_registry_vdi spec = vdi_spec(name, owner), made;

    OK(plx_registry_vdi_create(reg, &spec, 64, &made));
    return made;
}

static struct plx_registry_label label_of(const char *name, uint64_t seq)
{
    struct plx_registry_label label = {.seq = seq, .time_ns = 1};

    snprintf(label.name, sizeof label.name, "%s", name);
    return label;
}

void expect_kept(const struct plx_registry_lock *lock, const uint64_t *expected, size_t count)
{
    uint64_t *kept = NULL;
    size_t got = 0;

    OK(plx_registry_intent_begin(reg, lock, NULL, 0, &kept, &got));
    CU_ASSERT_EQUAL_FATAL(got, count);
    CU_ASSERT(!count || !memcmp(kept, expected, count * sizeof *kept));
    free(kept);
}

void test_holds(void)
{
    struct plx_instance writer = new_instance(), reader = new_instance();
    struct plx_registry_vdi vdi = new_vdi("web", 0), other = new_vdi("other", 0);
    struct plx_registry_label label = label_of("good", 20);
    struct plx_registry_lock lock, intent;
    struct plx_registry_hold *list;
    uint64_t first, second, third;
    size_t count;

    OK(plx_registry_vdi_lock(reg, vdi.id, writer.row.id, &lock));
    OK(plx_registry_label_set(reg, &lock, &label));
    /* The hold comes first: the intent reads it. */
    OK(plx_registry_hold(reg, vdi.id, 10, reader.row.id, &first));
    OK(plx_registry_hold(reg, vdi.id, 10, reader.row.id, &second));
    expect_kept(&lock, (uint64_t[]){10, 20}, 2);
    expect_kept(&lock, (uint64_t[]){10, 20}, 2);
    /* The intent does: the reader waits. On this disk, that is. */
    FAILS(BUSY, plx_registry_hold(reg, vdi.id, 20, reader.row.id, &third));
    CU_ASSERT_PTR_NOT_NULL(strstr(plx_registry_error(reg), "handler (pid"));
    CU_ASSERT_PTR_NOT_NULL(strstr(plx_registry_error(reg), "letting snapshots of VDI 'web' go"));
    OK(plx_registry_intent_get(reg, vdi.id, &intent));
    CU_ASSERT(intent.instance == lock.instance && intent.epoch == lock.epoch);
    FAILS(NOT_FOUND, plx_registry_intent_get(reg, other.id, &intent));
    OK(plx_registry_hold(reg, other.id, 4, reader.row.id, &third));
    OK(plx_registry_release(reg, third));
    OK(plx_registry_intent_end(reg, &lock));
    OK(plx_registry_intent_end(reg, &lock));
    OK(plx_registry_hold(reg, vdi.id, 21, reader.row.id, &third));
    OK(plx_registry_release(reg, first));
    OK(plx_registry_release(reg, first));
    OK(plx_registry_hold_list(reg, vdi.id, &list, &count));
    CU_ASSERT_FATAL(count == 2);
    CU_ASSERT(list[0].id == second && list[0].seq == 10 && list[1].id == third);
    CU_ASSERT(list[0].instance == reader.row.id && list[0].since_ns > 0);
    free(list);
    FAILS(NOT_FOUND, plx_registry_hold(reg, "nosuch", 1, reader.row.id, &first));
    FAILS(NOT_FOUND, plx_registry_hold(reg, vdi.id, 1, 4711, &first));
    FAILS(INVALID, plx_registry_hold(reg, vdi.id, 0, reader.row.id, &first));
    /* The instance goes, and what it held with it. */
    OK(plx_registry_instance_unregister(reg, reader.row.id));
    expect_kept(&lock, (uint64_t[]){20}, 1);
    plx_instance_close(&reader);
    plx_instance_close(&writer);
}
