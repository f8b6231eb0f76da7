/* collect.c - the model of a collection: what the registry and attach_collect.c do, step by step,
 * while disks are at work, made, cloned and deleted.
 *
 * SIM_COLLECT-1  Nothing that is to be kept is freed: everything that is read back later says so.
 * SIM_COLLECT-2  At the end, when everybody has stopped, one collection leaves no block that nobody
 *     uses.
 */
#include <stdlib.h>
#include <string.h>

#include "sim/parts.h"

struct collecting {
    struct plx_world *w;
    struct plx_sim_host *host;
    void (*meanwhile)(struct plx_world *w); /* may be NULL */
    struct plx_simregistry before;          /* as it begins */
    uint8_t *classes;
    uint64_t *living;
    size_t living_count;
    uint64_t **garbage; /* of each extent; NULL: none */
};

static void pause_now(void *context)
{
    struct collecting *c = context;

    if (c->meanwhile && plx_sim_chance(c->w, 20) && !plx_sim_interrupted(c->w))
        c->meanwhile(c->w);
}

static bool stopped(const struct collecting *c)
{
    return plx_sim_interrupted(c->w) || c->host->dead || !c->host->store;
}

static bool is_ours(const struct collecting *c, uint64_t extent)
{
    uint64_t owner = c->before.extents[extent].owner;

    return !owner || owner == c->host->instance;
}

static void look_around(struct collecting *c)
{
    struct plx_world *w = c->w;
    uint64_t count = w->registry.count;

    c->before = w->registry;
    c->before.extents = malloc(count * sizeof *c->before.extents);
    memcpy(c->before.extents, w->registry.extents, count * sizeof *c->before.extents);
    c->classes = calloc(count, 1);
    c->garbage = calloc(count, sizeof *c->garbage);
    c->living = calloc(PLX_SIM_HOSTS, sizeof *c->living);
    for (unsigned i = 0; i < PLX_SIM_HOSTS; i++)
        if (w->hosts[i].store && !w->hosts[i].dead && &w->hosts[i] != c->host)
            c->living[c->living_count++] = w->hosts[i].instance;
    for (uint64_t e = 0; e < count; e++)
        if (c->before.extents[e].used)
            c->classes[e] = is_ours(c, e) ? PLX_COLLECT_LOOK : PLX_COLLECT_MOVING;
}

static void forget(struct collecting *c)
{
    for (uint64_t e = 0; e < c->before.count; e++)
        free(c->garbage[e]);
    free(c->garbage);
    free(c->before.extents);
    free(c->classes);
    free(c->living);
}

static bool unchanged(const struct collecting *c, uint64_t extent)
{
    return c->w->registry.extents[extent].generation == c->before.extents[extent].generation;
}

/* Whether another instance had an extent since, so that nodes in it may be other ones. */
static bool moved(const struct collecting *c)
{
    for (uint64_t e = 0; e < c->before.count; e++) {
        uint64_t generation = c->w->registry.extents[e].generation;

        if (!unchanged(c, e) && (c->w->registry.extents[e].owner != c->host->instance ||
                                 generation != c->before.extents[e].generation + 1))
            return true;
    }
    return false;
}

static int mark(struct collecting *c, struct plx_fault *fault)
{
    const struct plx_collect_options options = {.extents = c->classes,
                                                .extent_count = c->before.count,
                                                .living = c->living,
                                                .living_count = c->living_count,
                                                .pause = pause_now,
                                                .context = c};
    uint64_t words, count;
    struct plx_store_info info;
    struct plx_collect *collect;
    int error = plx_collect_begin(c->host->store, &options, &collect, fault);

    if (error)
        return error;
    plx_store_get_info(c->host->store, &info);
    words = info.extent_blocks / 64;
    error = plx_collect_mark(collect, fault);
    if (!error && moved(c))
        error = plx_fault_set(fault, PLX_ERR_BUSY, "extents moved");
    for (uint64_t e = 0; e < c->before.count && !error; e++) {
        if (c->classes[e] != PLX_COLLECT_LOOK)
            continue;
        c->garbage[e] = calloc(words, sizeof **c->garbage);
        error = plx_collect_garbage(collect, e, c->garbage[e], &count, fault);
        if (error == PLX_ERR_NOT_FOUND || !count || !unchanged(c, e)) {
            free(c->garbage[e]);
            c->garbage[e] = NULL;
            error = error == PLX_ERR_NOT_FOUND ? 0 : error;
        }
    }
    plx_collect_end(collect);
    return error;
}

static int sweep_extent(struct collecting *c, uint64_t e, uint64_t *ret_swept,
                        struct plx_fault *fault)
{
    struct plx_simregistry *registry = &c->w->registry;
    struct plx_extent_info info;
    bool nobodys = !registry->extents[e].owner;
    int error;

    if (!unchanged(c, e) || !is_ours(c, e))
        return 0;
    if (nobodys)
        plx_simregistry_own(registry, e, c->host->instance);
    error = plx_store_extent_sweep(c->host->store, e, c->garbage[e], &info, ret_swept, fault);
    if (nobodys && !stopped(c)) {
        registry->extents[e].owner = 0;
        registry->extents[e].states = error ? 0 : info.states;
        if (!error)
            registry->extents[e].type = info.type;
    }
    return error;
}

/* One of an instance that died is gone on with: from its beginning. */
static bool enter(struct collecting *c)
{
    struct plx_simregistry *registry = &c->w->registry;

    for (unsigned i = 0; i < PLX_SIM_HOSTS; i++)
        if (plx_sim_instance_lives(c->w, c->w->hosts[i].instance) && c->w->hosts[i].sharing)
            return false;
    if (registry->collections % 2 && plx_sim_instance_lives(c->w, registry->collector))
        return false;
    registry->collections += registry->collections % 2 == 0;
    registry->collector = c->host->instance;
    return true;
}

void plx_sim_collect(struct plx_world *w, struct plx_sim_host *host,
                     void (*meanwhile)(struct plx_world *w))
{
    struct collecting c = {.w = w, .host = host, .meanwhile = meanwhile};
    struct plx_fault fault = {0};
    uint64_t swept = 0;
    int error;

    if (!enter(&c))
        return;
    look_around(&c);
    error = mark(&c, &fault);
    for (uint64_t e = 0; e < c.before.count && !error && !stopped(&c); e++) {
        uint64_t blocks = 0;

        if (c.garbage[e])
            error = sweep_extent(&c, e, &blocks, &fault);
        swept += blocks;
        pause_now(&c);
    }
    w->result.collected += swept;
    PLX_SIM_TRACE(w, "collect on host %d: %s, %llu blocks%s%s", (int)(host - w->hosts),
                  plx_error_name(error), (unsigned long long)swept, error ? ": " : "",
                  error ? fault.text : "");
    forget(&c);
    if (stopped(&c))
        return;
    w->registry.collections++;
    if (error && error != PLX_ERR_BUSY && !plx_sim_excused(w, host, error))
        plx_sim_fail(w, "garbage cannot be collected: %s", fault.text);
}
