/* stage.c - see stage.h. By link-time wrapping (CMakeLists.txt) it stands between attach and
 * registry on one side, and the machine on the other:
 *
 *   plx_libaio_open         a volume's path leads to its simulated disk
 *   plx_paths_init          host and boot are those of the stage
 *   plx_home_rest, _boot_ns whoever watches a home page for seconds does so at once
 *   pthread_cond_timedwait  a tenancy's thread never looks by itself: all I/O is on one thread, and
 *                           the same each time
 *
 * STAGE-1  An entry of a known store is durable once it has its name (KNOWN-1), so a cut leaves
 *     those entries that are there at that moment. Nothing else in a host's folder outlives a cut.
 */
#include "crash/stage.h"

#include <dirent.h>
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/bytelock.h"
#include "device/drivers.h"
#include "folder.h"

#define VOLUMES 4u
#define ENTRIES 2u

struct stage_entries {
    unsigned count;
    struct {
        char name[32], text[608];
    } entry[ENTRIES];
};

enum stage_host stage_host;

static char folder[FOLDER_MAX], volume_path[VOLUMES][FOLDER_MAX + 16],
    state_path[STAGE_HOSTS][FOLDER_MAX + 16];
static struct plx_simpower power;
static unsigned boot;
static uint64_t seeds, rested_ns;

/* ---- What passes through here ---- */

int __wrap_plx_libaio_open(const char *path, const struct plx_device_open_options *options,
                           struct plx_device **ret_device, struct plx_fault *fault);
int __real_plx_paths_init(struct plx_paths *paths, const char *state_dir, struct plx_fault *fault);
int __wrap_plx_paths_init(struct plx_paths *paths, const char *state_dir, struct plx_fault *fault);
uint64_t __real_plx_home_boot_ns(void);
uint64_t __wrap_plx_home_boot_ns(void);
void __wrap_plx_home_rest(uint64_t ns);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock,
                                  const struct timespec *until);

static struct plx_device_ops disk_ops, opened_ops;

/* As a driver of the device layer does it: with the lock that device.c has taken. */
static void close_opened(struct plx_device *device)
{
    struct plx_bytelock *used = device->used;

    disk_ops.close(device);
    plx_bytelock_close(used);
}

int __wrap_plx_libaio_open(const char *path, const struct plx_device_open_options *options,
                           struct plx_device **ret_device, struct plx_fault *fault)
{
    bool made = false;
    unsigned number = 0;

    while (number < VOLUMES && strcmp(path, volume_path[number]) != 0)
        number++;
    if (number == power.count && number < VOLUMES && options->create_bytes) {
        stage_make_volume(number, options->create_bytes);
        made = true;
    }
    if (number >= power.count)
        return plx_fault_set(fault, PLX_ERR_NOT_FOUND, "%s: there is no such volume", path);
    *ret_device = plx_simdisk_attach(power.disks[number], path);
    disk_ops = *(*ret_device)->ops;
    opened_ops = disk_ops;
    opened_ops.close = close_opened;
    (*ret_device)->ops = &opened_ops;
    (*ret_device)->made = made;
    (*ret_device)->read_only = options->read_only;
    return 0;
}

int __wrap_plx_paths_init(struct plx_paths *paths, const char *state_dir, struct plx_fault *fault)
{
    int error = __real_plx_paths_init(paths, state_dir, fault);

    snprintf(paths->host, sizeof paths->host, "0000000%u-0000-4000-8000-000000000000",
             (unsigned)stage_host + 1);
    snprintf(paths->boot, sizeof paths->boot, "0000000%u-0000-4000-8000-%012u",
             (unsigned)stage_host + 1, boot + 1);
    snprintf(paths->host_name, sizeof paths->host_name, "%s", stage_name(stage_host));
    return error;
}

uint64_t __wrap_plx_home_boot_ns(void)
{
    return __real_plx_home_boot_ns() + rested_ns;
}

void __wrap_plx_home_rest(uint64_t ns)
{
    rested_ns += ns;
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock,
                                  const struct timespec *until)
{
    return pthread_cond_wait(cond, lock);
}

/* ---- Hosts ---- */

const char *stage_name(enum stage_host host)
{
    static const char *const names[] = {"alpha", "beta", "gamma"};

    return names[host];
}

const char *stage_state(void)
{
    return state_path[stage_host];
}

void stage_reboot(void)
{
    boot++;
}

void stage_forget(enum stage_host host)
{
    folder_remove(state_path[host]);
}

/* STAGE-1 */
static struct stage_entries *read_entries(enum stage_host host)
{
    struct stage_entries *entries = calloc(1, sizeof *entries);
    char path[2 * FOLDER_MAX + 256 + 16];
    struct dirent *next;
    DIR *list;

    snprintf(path, sizeof path, "%s/stores", state_path[host]);
    list = opendir(path);
    while (list && (next = readdir(list)) != NULL) {
        size_t length = strlen(next->d_name);
        FILE *file;

        if (next->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/stores/%s", state_path[host], next->d_name);
        file = fopen(path, "re");
        if (!file)
            continue;
        PLX_ASSERT(entries->count < ENTRIES && length < sizeof entries->entry[0].name);
        memcpy(entries->entry[entries->count].name, next->d_name, length);
        if (!fread(entries->entry[entries->count].text, 1, sizeof entries->entry[0].text - 1, file))
            entries->entry[entries->count].text[0] = '\0';
        entries->count++;
        fclose(file);
    }
    if (list)
        closedir(list);
    return entries;
}

static void write_entries(enum stage_host host, const struct stage_entries *entries)
{
    char path[2 * FOLDER_MAX + 256];

    stage_forget(host);
    if (!entries->count)
        return;
    snprintf(path, sizeof path, "%s/stores", state_path[host]);
    mkdir(state_path[host], 0700);
    mkdir(path, 0700);
    for (unsigned i = 0; i < entries->count; i++) {
        FILE *file;

        snprintf(path, sizeof path, "%s/stores/%s", state_path[host], entries->entry[i].name);
        file = fopen(path, "we");
        PLX_ASSERT(file);
        fputs(entries->entry[i].text, file);
        fclose(file);
    }
}

/* ---- Volumes ---- */

const char *stage_volume(unsigned number)
{
    return volume_path[number];
}

unsigned stage_volumes(void)
{
    return power.count;
}

struct plx_simpower *stage_power(void)
{
    return &power;
}

static void size_file(unsigned number, uint64_t bytes)
{
    FILE *file = fopen(volume_path[number], "ae");

    PLX_ASSERT(file && ftruncate(fileno(file), (off_t)bytes) == 0);
    fclose(file);
}

void stage_make_volume(unsigned number, uint64_t bytes)
{
    PLX_ASSERT(number == power.count && number < VOLUMES);
    size_file(number, bytes);
    plx_simdisk_new(&(struct plx_simdisk_options){.bytes = bytes,
                                                  .block_size = 512,
                                                  .volatile_cache = true,
                                                  .tear_bytes = 512,
                                                  .seed = ++seeds},
                    &power);
}

void stage_grow_volume(unsigned number, uint64_t bytes)
{
    size_file(number, bytes);
    plx_simdisk_resize(power.disks[number], bytes);
}

static void free_disks(struct plx_simpower *from)
{
    while (from->count)
        plx_simdisk_free(from->disks[0]);
}

/* ---- Moments ---- */

void stage_cut_now(const uint8_t *fates, uint64_t seed, struct stage_cut *ret_cut)
{
    unsigned count = plx_simpower_volatile(&power);
    uint8_t *kept = NULL;

    if (!fates) {
        kept = malloc(count + 1);
        memset(kept, PLX_FATE_KEPT, count);
    }
    plx_simpower_fork(&power, fates ? fates : kept, seed, &ret_cut->power);
    free(kept);
    for (unsigned host = 0; host < STAGE_HOSTS; host++)
        ret_cut->entries[host] = read_entries(host);
}

void stage_go_to(const struct stage_cut *cut)
{
    free_disks(&power);
    power = (struct plx_simpower){0};
    seeds = 0;
    for (unsigned i = 0; i < cut->power.count; i++) {
        uint64_t bytes = plx_simdisk_bytes(cut->power.disks[i]);

        stage_make_volume(i, bytes);
        plx_simdisk_copy(power.disks[i], cut->power.disks[i]);
    }
    for (unsigned i = power.count; i < VOLUMES; i++)
        unlink(volume_path[i]);
    for (unsigned host = 0; host < STAGE_HOSTS; host++)
        write_entries(host, cut->entries[host]);
    stage_host = STAGE_ALPHA;
    stage_reboot();
}

void stage_cut_free(struct stage_cut *cut)
{
    free_disks(&cut->power);
    for (unsigned host = 0; host < STAGE_HOSTS; host++)
        free(cut->entries[host]);
}

uint64_t stage_cut_hash(const struct stage_cut *cut)
{
    uint64_t sum = plx_simpower_hash(&cut->power) + cut->power.count;

    for (unsigned host = 0; host < STAGE_HOSTS; host++)
        for (size_t i = 0; i < sizeof *cut->entries[host]; i++)
            sum = (sum ^ ((const uint8_t *)cut->entries[host])[i]) * 0x100000001b3ull;
    return sum;
}

/* ---- The whole ---- */

bool stage_open(void)
{
    if (!folder_make("stage", folder))
        return false;
    for (unsigned i = 0; i < VOLUMES; i++)
        snprintf(volume_path[i], sizeof volume_path[i], "%s/volume%u", folder, i);
    for (unsigned host = 0; host < STAGE_HOSTS; host++)
        snprintf(state_path[host], sizeof state_path[host], "%s/%s", folder, stage_name(host));
    return true;
}

void stage_clear(uint64_t seed)
{
    free_disks(&power);
    power = (struct plx_simpower){0};
    seeds = seed << 32;
    boot = 0;
    stage_host = STAGE_ALPHA;
    for (unsigned i = 0; i < VOLUMES; i++)
        unlink(volume_path[i]);
    for (unsigned host = 0; host < STAGE_HOSTS; host++)
        stage_forget(host);
}

void stage_close(void)
{
    stage_clear(0);
    folder_remove(folder);
}
