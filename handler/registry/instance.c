/* instance.c - see instance.h.
 *
 * INSTANCE-1  An instance locks its byte before its number is registered. So the byte of a
 *     registered instance that is free belongs to a dead one, never to one that is just starting.
 * INSTANCE-2  Two numbers may share a byte, which has 48 bits of the number. A number whose byte is
 *     locked is not chosen. Conversely a locked byte keeps every number that shares it from being
 *     called dead: the error is on the safe side.
 * INSTANCE-3  An instance that ends removes its row before it releases its byte. A list that was
 *     read before the bytes were looked at is therefore stale: a free byte means dead only if the
 *     row is still there afterwards.
 * Threads: any, each on its own lock.
 * Crash story: a crash leaves the row in the registry and nothing else; the byte is free.
 */
#include "registry/instance.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TRIES 100
#define BYTE_BITS 48

static uint64_t byte_of(uint64_t id)
{
    return PLX_BYTE_INSTANCE + (id & ((1ull << BYTE_BITS) - 1));
}

int plx_instance_create(const struct plx_paths *paths, const char *volume, const char *role,
                        struct plx_instance *ret_instance, struct plx_fault *fault)
{
    struct plx_instance instance = {.row = {.pid = getpid()}};
    int error = plx_bytelock_open(volume, &instance.locks, fault);

    if (error)
        return error;
    error = PLX_ERR_BUSY;
    for (int i = 0; i < TRIES && error == PLX_ERR_BUSY; i++) { /* INSTANCE-1, INSTANCE-2 */
        instance.row.id = plx_id_random();
        error =
            instance.locks->ops->set(instance.locks, byte_of(instance.row.id), PLX_BYTE_EXCLUSIVE);
    }
    if (error) {
        plx_bytelock_close(instance.locks);
        return plx_fault_set(fault, error, "%.200s: cannot be locked for this process", volume);
    }
    memcpy(instance.row.host, paths->host, sizeof instance.row.host);
    memcpy(instance.row.host_name, paths->host_name, sizeof instance.row.host_name);
    memcpy(instance.row.boot, paths->boot, sizeof instance.row.boot);
    snprintf(instance.row.role, sizeof instance.row.role, "%s", role);
    *ret_instance = instance;
    return 0;
}

void plx_instance_close(struct plx_instance *instance)
{
    plx_bytelock_close(instance->locks);
    instance->locks = NULL;
}

bool plx_instance_is_dead(const struct plx_paths *paths, struct plx_bytelock *locks,
                          const struct plx_registry_instance *row, struct plx_fault *fault)
{
    bool busy;
    int error;

    if (paths->boot[0] && strcmp(row->boot, paths->boot) != 0)
        return true;
    error = locks->ops->probe(locks, byte_of(row->id), &busy);
    if (error)
        plx_fault_set(fault, error, "%s (pid %lld): its lock cannot be looked at",
                      plx_instance_kind(row->role), (long long)row->pid);
    else if (busy)
        plx_fault_set(fault, PLX_ERR_BUSY, "%s (pid %lld) is running", plx_instance_kind(row->role),
                      (long long)row->pid);
    return !error && !busy;
}

bool plx_instance_is_seen(struct plx_bytelock *locks, const struct plx_registry_instance *row)
{
    bool busy;

    return locks->ops->probe(locks, byte_of(row->id), &busy) == 0 && busy;
}

const char *plx_instance_kind(const char *role)
{
    return strcmp(role, "admin") == 0 ? "a parallax command" : role; /* nobody is called admin */
}

bool plx_instance_is_command(const struct plx_paths *paths, const struct plx_registry_instance *row)
{
    return strcmp(row->role, "admin") == 0 && strcmp(row->host, paths->host) == 0;
}
