/* simenv.c - see simenv.h. Deterministic: nothing here asks the machine. */
#include "sim/simenv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct plx_simenv *sim_of(struct plx_env *env)
{
    return (struct plx_simenv *)env;
}

static uint64_t sim_monotonic(struct plx_env *env)
{
    struct plx_simenv *sim = sim_of(env);

    sim->ns += sim->step_ns ? sim->step_ns : 100;
    return sim->ns + 1;
}

uint64_t plx_simenv_wall_ns(const struct plx_simenv *sim)
{
    return 1700000000000000000ull + sim->ns + (uint64_t)sim->off_ns;
}

static uint64_t sim_now(struct plx_env *env)
{
    sim_monotonic(env);
    return plx_simenv_wall_ns(sim_of(env));
}

static uint64_t sim_boot(struct plx_env *env)
{
    return sim_of(env)->ns + 1;
}

static bool sim_disciplined(struct plx_env *env)
{
    return sim_of(env)->disciplined && !sim_of(env)->off_ns;
}

static void sim_random(struct plx_env *env, void *bytes, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        ((uint8_t *)bytes)[i] = (uint8_t)plx_simrng_next(&sim_of(env)->rng);
}

void plx_simregistry_own(struct plx_simregistry *registry, uint64_t extent, uint64_t instance)
{
    registry->extents[extent].owner = instance;
    registry->extents[extent].generation++;
}

/* As it is told with an extent: without one's own collection. */
void plx_simenv_tell_collections(const struct plx_simenv *sim)
{
    const struct plx_simregistry *registry = sim->registry;
    bool own = registry->collections % 2 && registry->collector == sim->instance;

    plx_store_set_collections(sim->store, registry->collections - own);
}

static bool grant(struct plx_simenv *sim, enum plx_extent_type type, bool fresh)
{
    struct plx_simregistry *registry = sim->registry;

    for (uint64_t i = 0; i < registry->count; i++) {
        if (registry->extents[i].system || registry->extents[i].owner ||
            registry->extents[i].used == fresh || (!fresh && registry->extents[i].type != type))
            continue;
        plx_simregistry_own(registry, i, sim->instance);
        registry->extents[i].used = true;
        registry->granted += fresh;
        plx_simenv_tell_collections(sim);
        plx_store_extent_granted(sim->store, type, 0,
                                 &(struct plx_grant){.extent = i,
                                                     .fresh = fresh,
                                                     .states = registry->extents[i].states});
        return true;
    }
    return false;
}

static uint64_t count_unused(const struct plx_simregistry *registry)
{
    uint64_t unused = 0;

    for (uint64_t i = 0; i < registry->count; i++)
        unused += !registry->extents[i].system && !registry->extents[i].used;
    return unused;
}

static bool may_begin(const struct plx_simregistry *registry, enum plx_extent_type type)
{
    if (registry->limit && registry->granted >= registry->limit)
        return false;
    return type != PLX_EXTENT_DATA || count_unused(registry) > registry->reserve;
}

static void answer(struct plx_simenv *sim, enum plx_extent_type type)
{
    struct plx_simregistry *registry = sim->registry;

    if (registry &&
        (grant(sim, type, false) || (may_begin(registry, type) && grant(sim, type, true))))
        return;
    plx_store_extent_granted(sim->store, type, PLX_ERR_NOSPACE, NULL);
}

static void answer_needed(struct plx_simenv *sim)
{
    struct plx_simregistry *registry = sim->registry;
    uint64_t extent = sim->needed_extent;

    if (registry->extents[extent].owner || !registry->extents[extent].used) {
        plx_store_extent_granted(sim->store, PLX_EXTENT_UNUSED, PLX_ERR_BUSY, NULL);
        return;
    }
    plx_simregistry_own(registry, extent, sim->instance);
    plx_simenv_tell_collections(sim);
    plx_store_extent_granted(
        sim->store, PLX_EXTENT_UNUSED, 0,
        &(struct plx_grant){.extent = extent, .states = registry->extents[extent].states});
}

static void sim_extent_needed(struct plx_env *env, struct plx_store *store, uint64_t extent)
{
    struct plx_simenv *sim = sim_of(env);

    sim->needed_calls++;
    sim->store = store;
    sim->needed_extent = extent;
    if (sim->grant_later)
        sim->needed = true;
    else
        answer_needed(sim);
}

static void sim_extent_wanted(struct plx_env *env, struct plx_store *store,
                              enum plx_extent_type type)
{
    struct plx_simenv *sim = sim_of(env);

    sim->extent_calls++;
    sim->store = store;
    if (!sim->grant_later) {
        answer(sim, type);
        return;
    }
    sim->asked[type] = true;
    sim->delay[type] = (unsigned)plx_simrng_below(&sim->rng, 20);
}

static void sim_tick(struct plx_env *env)
{
    struct plx_simenv *sim = sim_of(env);

    sim->ns += 1000;
    for (unsigned type = 0; type <= PLX_EXTENT_META; type++) {
        if (!sim->asked[type] || sim->delay[type]--)
            continue;
        sim->asked[type] = false;
        answer(sim, (enum plx_extent_type)type);
    }
    if (sim->needed && plx_simrng_chance(&sim->rng, 20)) {
        sim->needed = false;
        answer_needed(sim);
    }
    if (sim->on_tick)
        sim->on_tick(sim);
}

static bool sim_room_wanted(struct plx_env *env, struct plx_store *store)
{
    struct plx_simenv *sim = sim_of(env);

    sim->room_wanted = sim->gives_way;
    return sim->gives_way;
}

static void sim_idle(struct plx_env *env)
{
    sim_of(env)->ns += 1000000;
}

static void sim_automatic(struct plx_env *env, uint32_t slot, enum plx_automatic what, uint64_t seq,
                          uint64_t time_ns)
{
    struct plx_simenv *sim = sim_of(env);

    if (sim->on_automatic)
        sim->on_automatic(sim, slot, what, seq, time_ns);
}

static void sim_event(struct plx_env *env, int error_code, const char *text)
{
    struct plx_simenv *sim = sim_of(env);
    unsigned at = sim->event_count++ % PLX_SIMENV_EVENTS;

    snprintf(sim->events[at], sizeof sim->events[at], "%s", text);
    sim->event_codes[at] = error_code;
    if (sim->loud)
        printf("  event: %s: %s\n", plx_error_name(error_code), text);
}

void plx_simenv_init(struct plx_simenv *env, uint64_t seed)
{
    *env = (struct plx_simenv){
        .env = {.now_ns = sim_now,
                .monotonic_ns = sim_monotonic,
                .boot_ns = sim_boot,
                .boot_id = 1,
                .disciplined = sim_disciplined,
                .random = sim_random,
                .extent_wanted = sim_extent_wanted,
                .extent_needed = sim_extent_needed,
                .tick = sim_tick,
                .idle = sim_idle,
                .room_wanted = sim_room_wanted,
                .automatic = sim_automatic,
                .event = sim_event},
        .rng = {seed},
        .instance = 1,
    };
}

void plx_simregistry_init(struct plx_simregistry *registry, const struct plx_store_info *info)
{
    *registry = (struct plx_simregistry){.count = info->extents};
    registry->extents = calloc(info->extents, sizeof *registry->extents);
    for (unsigned v = 0; v < info->volumes; v++)
        registry->extents[info->volume[v].first_extent].system = true;
}

void plx_simregistry_done(struct plx_simregistry *registry)
{
    free(registry->extents);
    *registry = (struct plx_simregistry){0};
}

int plx_simenv_release_all(struct plx_simenv *env, struct plx_fault *fault)
{
    struct plx_extent_info info;

    plx_store_settle(env->store); /* what is on its way cannot be given up yet */
    plx_store_extents_leave(env->store);
    while (plx_store_extent_owned(env->store, 0, &info) == 0) {
        int error = plx_store_extent_release(env->store, info.number, &info, fault);

        if (error)
            return error;
        env->registry->extents[info.number].owner = 0;
        env->registry->extents[info.number].type = info.type;
        env->registry->extents[info.number].states = info.states;
    }
    return 0;
}

/* ---- Collecting ---- */

static int sweep(struct plx_simenv *sim, struct plx_collect *collect, uint64_t extent,
                 uint64_t *bits, uint64_t *ret_blocks, struct plx_fault *fault)
{
    struct plx_simregistry *registry = sim->registry;
    bool nobodys = !registry->extents[extent].owner;
    struct plx_extent_info info;
    uint64_t count = 0;
    int error = plx_collect_garbage(collect, extent, bits, &count, fault);

    if (error || !count)
        return error == PLX_ERR_NOT_FOUND ? 0 : error;
    if (nobodys)
        plx_simregistry_own(registry, extent, sim->instance);
    error = plx_store_extent_sweep(sim->store, extent, bits, &info, ret_blocks, fault);
    if (nobodys)
        registry->extents[extent].owner = 0;
    if (nobodys && !error)
        registry->extents[extent].type = info.type;
    if (nobodys)
        registry->extents[extent].states = error ? 0 : info.states;
    return error;
}

/* What the registry knows of the extents, and who else has some. */
static size_t look_around(const struct plx_simenv *sim, uint8_t *ret_classes, uint64_t *ret_living)
{
    const struct plx_simregistry *registry = sim->registry;
    size_t others = 0;

    for (uint64_t extent = 0; extent < registry->count; extent++) {
        uint64_t owner = registry->extents[extent].owner;

        if (!registry->extents[extent].used)
            continue;
        ret_classes[extent] =
            !owner || owner == sim->instance ? PLX_COLLECT_LOOK : PLX_COLLECT_MOVING;
        if (ret_classes[extent] == PLX_COLLECT_MOVING)
            ret_living[others++] = owner;
    }
    return others;
}

static int collect(struct plx_simenv *sim, uint8_t *classes, uint64_t *living, uint64_t *bits,
                   uint64_t *ret_blocks, struct plx_fault *fault)
{
    const struct plx_simregistry *registry = sim->registry;
    const struct plx_collect_options options = {.extents = classes,
                                                .extent_count = registry->count,
                                                .living = living,
                                                .living_count = look_around(sim, classes, living)};
    struct plx_collect *collect = NULL;
    int error = plx_collect_begin(sim->store, &options, &collect, fault);

    if (!error)
        error = plx_collect_mark(collect, fault);
    for (uint64_t extent = 0; extent < registry->count && !error; extent++) {
        uint64_t blocks = 0;

        if (classes[extent] == PLX_COLLECT_LOOK)
            error = sweep(sim, collect, extent, bits, &blocks, fault);
        *ret_blocks += blocks;
    }
    plx_collect_end(collect);
    return error;
}

int plx_simenv_collect(struct plx_simenv *sim, uint64_t *ret_blocks, struct plx_fault *fault)
{
    struct plx_simregistry *registry = sim->registry;
    struct plx_store_info info;
    uint8_t *classes = calloc(registry->count, 1);
    uint64_t *living = calloc(registry->count, sizeof *living), *bits;
    int error = PLX_ERR_NOMEM;

    plx_store_get_info(sim->store, &info);
    bits = calloc(info.extent_blocks / 64, sizeof *bits);
    *ret_blocks = 0;
    registry->collections++;
    registry->collector = sim->instance;
    if (classes && living && bits)
        error = collect(sim, classes, living, bits, ret_blocks, fault);
    else
        plx_fault_set(fault, error, "out of memory");
    registry->collections++;
    free(classes);
    free(living);
    free(bits);
    return error;
}

unsigned plx_simenv_heard(const struct plx_simenv *env, const char *word)
{
    unsigned heard = 0;
    uint64_t held = env->event_count < PLX_SIMENV_EVENTS ? env->event_count : PLX_SIMENV_EVENTS;

    for (uint64_t i = 0; i < held; i++)
        heard += strstr(env->events[i], word) != NULL;
    return heard;
}
