/* grow.c - a store that grows beside its hosts: by a process of its own, as an administrator's
 * command does it, then the hosts are told, then the registry gives the new extents out.
 */
#include <stdlib.h>
#include <string.h>

#include "sim/parts.h"

static uint64_t extents_of(const struct plx_store *store)
{
    static struct plx_store_info info;

    plx_store_get_info(store, &info);
    return info.extents;
}

/* A disk that a crashed call may have made a volume is one if volume 0 says so; the registry would
 * know its path from before that moment. */
void plx_sim_count_volumes(struct plx_world *w)
{
    struct plx_superblock_info info;
    struct plx_device *device;

    if (w->power.count == w->options.volumes)
        return;
    device = plx_simdisk_attach(w->power.disks[0], "sim0");
    if (plx_superblock_probe(device, &info, NULL) == 0)
        w->options.volumes = info.volumes;
    device->ops->close(device);
}

unsigned plx_sim_attach_volumes(struct plx_world *w, struct plx_device **ret_devices)
{
    for (unsigned i = 0; i < w->options.volumes; i++) {
        char name[16];

        snprintf(name, sizeof name, "sim%u", i);
        ret_devices[i] = plx_simdisk_attach(w->power.disks[i], name);
        if (w->store_lost)
            plx_simdisk_stop(ret_devices[i], PLX_ERR_LOST);
    }
    return w->options.volumes;
}

/* Extents that the registry does not know yet are unused. */
void plx_sim_register_extents(struct plx_world *w, const struct plx_store *store)
{
    struct plx_simregistry *registry = &w->registry, bigger;
    static struct plx_store_info info;

    plx_store_get_info(store, &info);
    if (info.extents <= registry->count)
        return;
    plx_simregistry_init(&bigger, &info);
    memcpy(bigger.extents, registry->extents, registry->count * sizeof *bigger.extents);
    bigger.limit = registry->limit;
    bigger.granted = registry->granted;
    plx_simregistry_done(registry);
    *registry = bigger;
}

static void tell(struct plx_world *w, struct plx_sim_host *host)
{
    struct plx_device *devices[PLX_SIM_DISKS];
    unsigned count = plx_sim_attach_volumes(w, devices);
    struct plx_fault fault = {0};
    struct plx_device *last = devices[count - 1];
    int error = plx_store_volumes_changed(host->store, devices, count, &fault);

    if (error && !plx_sim_interrupted(w) && !host->dead)
        plx_sim_fail(w, "host %d cannot take the change over: %s", (int)(host - w->hosts),
                     fault.text);
    if (!error && !host->devices[count - 1])
        host->devices[count - 1] = last;
}

static int grow(struct plx_world *w, struct plx_store *store, struct plx_grown *ret_grown,
                struct plx_fault *fault)
{
    const struct plx_grow options = {0};
    struct plx_device *device;
    int error;

    if (w->growing == PLX_SIM_GROWS_VOLUME)
        return plx_store_grow(store, &options, ret_grown, fault);
    device = plx_simdisk_attach(w->power.disks[w->power.count - 1], "further");
    error = plx_store_add_volume(store, device, &options, ret_grown, fault);
    if (error || !ret_grown->added)
        device->ops->close(device);
    else
        w->options.volumes++;
    return error;
}

void plx_sim_grow(struct plx_world *w)
{
    struct plx_store_options options = {.instance = ++w->instances, .cache_bytes = 1};
    struct plx_device *devices[PLX_SIM_DISKS];
    unsigned count = plx_sim_attach_volumes(w, devices);
    struct plx_fault fault = {0};
    struct plx_grown grown = {0};
    struct plx_simenv *env = calloc(1, sizeof *env);
    struct plx_store *store;
    int error;

    plx_simenv_init(env, plx_simrng_next(&w->rng));
    error = plx_store_open(devices, count, &options, &env->env, &store, &fault);
    if (error) {
        for (unsigned i = 0; i < count; i++)
            devices[i]->ops->close(devices[i]);
    } else {
        error = grow(w, store, &grown, &fault);
        if (!error && extents_of(store) != w->growing_to)
            plx_sim_fail(w, "the store has grown to %llu extents, not %llu",
                         (unsigned long long)extents_of(store), (unsigned long long)w->growing_to);
        for (unsigned i = 0; i < PLX_SIM_HOSTS && !error; i++)
            if (w->hosts[i].store && !w->hosts[i].dead)
                tell(w, &w->hosts[i]);
        if (!error)
            plx_sim_register_extents(w, store);
        plx_store_close(store);
    }
    if (error && !plx_sim_interrupted(w))
        plx_sim_fail(w, "growing: %s", fault.text);
    free(env);
}
