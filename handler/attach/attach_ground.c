/* attach_ground.c - what the parts of an attach stand on: the loop's lock, patience, the engine's
 * environment, the tenancy and the row of this instance (ATTACH-8, ATTACH-12). Invariants, threads
 * and crash story: attach.c. */
#include <stdlib.h>
#include <sys/random.h>

#include "attach/attach_inside.h"
#include "attach/volumes.h"
#include "registry/clock.h"
#include "registry/embedded.h"

/* ---- The loop's lock, and waiting for others (ATTACH-12) ---- */

void plx_attach_lock(struct plx_attach *a)
{
    if (a->options.lock)
        a->options.lock(a->options.context);
}

void plx_attach_unlock(struct plx_attach *a)
{
    if (a->options.unlock)
        a->options.unlock(a->options.context);
}

bool plx_attach_waits(struct plx_attach *a, uint64_t since_ns, const struct plx_fault *why)
{
    return plx_patience_waits(a->options.patience, since_ns, why);
}

bool plx_attach_ends_soon(struct plx_attach *a, uint64_t instance)
{
    struct plx_registry_instance row;
    int error = plx_registry_instance_get(a->registry, instance, &row);

    return error == PLX_ERR_NOT_FOUND ||
           (!error && instance != a->instance.row.id && plx_instance_is_command(&a->paths, &row));
}

/* ---- The environment of the engine ---- */

struct plx_attach *plx_attach_of(struct plx_env *env)
{
    return (struct plx_attach *)(void *)((char *)env - offsetof(struct plx_attach, env));
}

uint64_t plx_attach_env_now(struct plx_env *env)
{
    return plx_clock_ns(CLOCK_REALTIME);
}

static uint64_t env_monotonic(struct plx_env *env)
{
    return plx_clock_ns(CLOCK_MONOTONIC);
}

static uint64_t env_boot(struct plx_env *env)
{
    return plx_clock_ns(CLOCK_BOOTTIME);
}

static bool env_disciplined(struct plx_env *env)
{
    return plx_clocks_disciplined();
}

void plx_attach_env_random(struct plx_env *env, void *bytes, unsigned count)
{
    PLX_ASSERT(getrandom(bytes, count, 0) == (ssize_t)count);
}

void plx_attach_env_event(struct plx_env *env, int code, const char *text)
{
    const struct plx_attach_options *options = &plx_attach_of(env)->options;

    if (options->event)
        options->event(options->context, code, text);
}

/* For environments without an event hook: their calls return all errors that matter. */
static void env_unheard(struct plx_env *env, int code, const char *text)
{
}

void plx_attach_init_env(struct plx_env *env)
{
    *env = (struct plx_env){
        .now_ns = plx_attach_env_now,
        .monotonic_ns = env_monotonic,
        .boot_ns = env_boot,
        .boot_id = 1, /* until the paths are known (plx_attach_open) */
        .disciplined = env_disciplined,
        .random = plx_attach_env_random,
        .event = env_unheard,
    };
}

/* ---- This instance ---- */

static void on_fenced(void *context, const char *why)
{
    struct plx_attach *a = context;

    plx_attach_env_event(&a->env, PLX_ERR_FENCED, why);
}

static void on_looked(void *context)
{
    struct plx_attach *a = context;

    if (a->options.wake)
        a->options.wake(a->options.context);
}

int plx_attach_begin_tenancy(struct plx_attach *a, struct plx_fault *fault)
{
    char volumes[PLX_KNOWN_VOLUMES_TEXT];
    struct plx_tenancy_options options = {
        .paths = &a->paths,
        .volume = a->known.volume[0],
        .which = a->known.name,
        .volumes = volumes,
        .fenced = on_fenced,
        .looked = on_looked,
        .context = a,
        .alone = plx_volumes_alone,
        .volumes_known = &a->known,
        .patience = a->options.patience,
    };

    plx_known_name_volumes(&a->known, volumes);
    plx_uuid_parse(a->known.uuid, &options.store);
    return plx_tenancy_begin(&options, &a->tenancy, fault);
}

/* ATTACH-8. The registry calls this before each of its changes. */
bool plx_attach_may_write(void *context, struct plx_fault *fault)
{
    struct plx_attach *a = context;

    if (!a->tenancy && plx_attach_begin_tenancy(a, fault))
        return false;
    return plx_tenancy_look(a->tenancy, fault) == 0;
}

int plx_attach_register_instance(struct plx_attach *a, struct plx_fault *fault)
{
    int error;

    if (!a->tenancy && (error = plx_attach_begin_tenancy(a, fault)))
        return error;
    error =
        plx_instance_create(&a->paths, a->known.volume[0], a->options.role, &a->instance, fault);

    if (error)
        return error;
    a->instance.row.store = a->row.id;
    plx_registry_put_off(a->registry, PLX_PUT_OFF_UNSEEN); /* ATTACH-13 */
    error = plx_registry_instance_register(a->registry, &a->instance.row);
    plx_registry_put_off(a->registry, PLX_NOW);
    if (error) {
        plx_registry_fault(a->registry, error, fault);
        plx_instance_close(&a->instance);
        return error;
    }
    a->registered = true;
    return 0;
}

/* If the registry cannot be changed, the row stays while its byte lock is free, so the next attach
 * recovers it. */
void plx_attach_unregister_instance(struct plx_attach *a)
{
    if (!a->registered)
        return;
    if (!plx_registry_take_back(a->registry))
        plx_registry_instance_unregister(a->registry, a->instance.row.id);
    plx_instance_close(&a->instance);
    a->registered = false;
}
