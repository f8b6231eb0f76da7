/* claims.c - what the engine asks an attach for: extents, which are claimed, given back and sealed
 * (ATTACH-1, ATTACH-7, ATTACH-10). Invariants, threads and crash story: attach.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "attach/attach_inside.h"
#include "attach/doors.h"
#include "attach/volumes.h"
#include "registry/clock.h"

/* ---- Extents that this attach owns ---- */

struct plx_owned_extent *plx_attach_pop(struct plx_attach *a, struct plx_owned_extent **list)
{
    struct plx_owned_extent *owned;

    pthread_mutex_lock(&a->claims_lock);
    owned = *list;
    if (owned)
        *list = owned->next;
    pthread_mutex_unlock(&a->claims_lock);
    return owned;
}

static void push(struct plx_attach *a, struct plx_owned_extent **list,
                 struct plx_owned_extent *owned)
{
    pthread_mutex_lock(&a->claims_lock);
    owned->next = *list;
    *list = owned;
    pthread_mutex_unlock(&a->claims_lock);
}

void plx_attach_remember_extent(struct plx_attach *a, const struct plx_registry_extent *row,
                                bool fresh)
{
    struct plx_owned_extent *owned = malloc(sizeof *owned);

    if (!owned)
        return; /* it stays ours in the registry and is taken over like a dead one's */
    owned->row = *row;
    owned->fresh = fresh;
    push(a, &a->extents, owned);
}

/* Removes the extent from the list of owned extents and returns it; NULL: not in the list. */
struct plx_owned_extent *plx_attach_forget_extent(struct plx_attach *a, uint64_t no)
{
    struct plx_owned_extent **link = &a->extents, *owned;

    pthread_mutex_lock(&a->claims_lock);
    while (*link && (*link)->row.no != no)
        link = &(*link)->next;
    owned = *link;
    if (owned)
        *link = owned->next;
    pthread_mutex_unlock(&a->claims_lock);
    return owned;
}

/* ATTACH-10 */
void plx_attach_never_believe(struct plx_registry_extent *row)
{
    row->sealed = true;
    row->free_blocks = 0;
    row->states = PLX_STATES_NEVER;
}

int plx_attach_tell_doubt(struct plx_attach *a, struct plx_registry *registry)
{
    char why[sizeof a->doubt];
    int error;

    pthread_mutex_lock(&a->claims_lock);
    memcpy(why, a->doubt, sizeof why);
    pthread_mutex_unlock(&a->claims_lock);
    error = why[0] ? plx_registry_doubt(registry, a->row.id, why) : 0;
    if (why[0] && !error) {
        pthread_mutex_lock(&a->claims_lock);
        a->doubt[0] = 0;
        pthread_mutex_unlock(&a->claims_lock);
    }
    return error;
}

bool plx_attach_found_doubt(struct plx_attach *a)
{
    bool found;

    pthread_mutex_lock(&a->claims_lock);
    found = a->found_doubt;
    pthread_mutex_unlock(&a->claims_lock);
    return found;
}

static int seal_refused(struct plx_attach *a)
{
    struct plx_owned_extent *owned;
    int error = plx_attach_tell_doubt(a, a->claims_registry);

    while (!error && (owned = plx_attach_pop(a, &a->refused))) {
        error = plx_registry_extent_release(a->claims_registry, a->row.id, &owned->row);
        if (error && error != PLX_ERR_FENCED && error != PLX_ERR_INVALID) {
            push(a, &a->refused, owned);
        } else {
            free(owned);
            error = 0;
        }
    }
    return error;
}

static int ask_registry(struct plx_attach *a, struct plx_claim *claim)
{
    uint64_t keep = claim->type == PLX_EXTENT_DATA ? plx_attach_reserve_extents(a) : 0; /* INV-8 */
    int error = claim->stranded ? 0 : seal_refused(a);

    if (claim->stranded || error)
        return error;
    if (claim->type == PLX_EXTENT_UNUSED)
        return plx_registry_extent_take(a->claims_registry, a->row.id, claim->number, 0,
                                        a->instance.row.id, &claim->row);
    return plx_registry_extent_claim(a->claims_registry, a->row.id, a->instance.row.id, claim->type,
                                     keep, &claim->row, &claim->fresh);
}

/* What the registry says of itself is no want of room, nor an error of the extent. */
static int claim_error(const struct plx_claim *claim, int error)
{
    enum plx_error_class class = plx_error_class(error);
    bool damaged = class == PLX_CLASS_CORRUPT || class == PLX_CLASS_INVALID;

    return damaged && claim->type != PLX_EXTENT_UNUSED ? PLX_ERR_REGISTRY : error;
}

static void strand(struct plx_attach *a, struct plx_claim *claim, int error, const char *text)
{
    claim->error = error;
    claim->stranded = true;
    plx_attach_env_event(&a->env, error, text);
}

/* Never with the loop: it may be waiting for the answer in a synchronous call. */
static void claim_extent(void *argument)
{
    struct plx_claim *claim = argument, answer;
    struct plx_attach *a = claim->attach;
    struct plx_fault fault = {0}, unclaimed = {0};
    int error;

    pthread_mutex_lock(&a->claims_lock);
    answer = *claim;
    pthread_mutex_unlock(&a->claims_lock);
    answer.error = claim_error(&answer, ask_registry(a, &answer));
    if (answer.error == PLX_ERR_REGISTRY || answer.error == PLX_ERR_TURN)
        plx_registry_fault(a->claims_registry, answer.error, &unclaimed);
    answer.device_count = 0;
    if (!answer.error && answer.row.no >= plx_attach_extents_known(a)) { /* ATTACH-7 */
        error = plx_attach_open_volumes(a, a->claims_registry, answer.devices, &answer.device_count,
                                        &fault);
        if (error)
            strand(a, &answer, error, fault.text);
    } else if (!answer.error) {
        answer.stranded = false;
        plx_attach_remember_extent(a, &answer.row, answer.fresh);
    }
    answer.answered = true;
    answer.busy = false;
    pthread_mutex_lock(&a->claims_lock);
    *claim = answer;
    if (unclaimed.code)
        a->unclaimed = unclaimed;
    a->damage_claiming |= a->claims_damaged;
    pthread_mutex_unlock(&a->claims_lock);
}

void plx_attach_name_unclaimed(struct plx_attach *a, int error, struct plx_fault *fault)
{
    const char *general = plx_error_text(error);
    struct plx_fault what = *fault, why = {0};
    const char *at =
        error == PLX_ERR_REGISTRY || error == PLX_ERR_TURN ? strstr(what.text, general) : NULL;

    if (!a || !at)
        return;
    pthread_mutex_lock(&a->claims_lock);
    why = a->unclaimed;
    pthread_mutex_unlock(&a->claims_lock);
    if (why.code)
        plx_fault_set(fault, error, "%.*s%.*s%.120s", (int)plx_min_u64(at - what.text, 160),
                      what.text, (int)plx_min_u64(strcspn(why.text, ";"), 200), why.text,
                      at + strlen(general));
}

/* ATTACH-7: the extent lies on a volume, or a part of one, that the store does not know yet. */
static void take_new_extent(struct plx_attach *a, struct plx_claim *answer)
{
    struct plx_fault fault = {0};
    int error = plx_attach_take_volumes(a, answer->devices, answer->device_count, &fault);

    answer->stranded = false;
    if (error)
        strand(a, answer, error, fault.text);
    else
        plx_attach_remember_extent(a, &answer->row, answer->fresh);
    pthread_mutex_lock(&a->claims_lock);
    a->claims[answer->type].stranded = answer->stranded;
    pthread_mutex_unlock(&a->claims_lock);
}

static void take_answers(struct plx_attach *a, struct plx_store *store)
{
    for (int type = 0; type <= PLX_EXTENT_META; type++) {
        struct plx_claim answer;

        pthread_mutex_lock(&a->claims_lock);
        answer = a->claims[type];
        a->claims[type].answered = false;
        pthread_mutex_unlock(&a->claims_lock);
        if (!answer.answered)
            continue;
        if (!answer.error && answer.device_count)
            take_new_extent(a, &answer);
        if (!answer.error)
            plx_store_set_collections(store, answer.row.collections);
        plx_store_extent_granted(store, answer.type, answer.error,
                                 &(struct plx_grant){.extent = answer.row.no,
                                                     .fresh = answer.fresh,
                                                     .states = answer.row.states});
    }
}

static void begin_claim(struct plx_attach *a, struct plx_store *store, struct plx_claim *claim)
{
    int error = 0;

    pthread_mutex_lock(&a->claims_lock);
    claim->busy = true;
    pthread_mutex_unlock(&a->claims_lock);
    if (!a->options.defer)
        claim_extent(claim); /* answered at the next tick */
    else
        error = a->options.defer(a->options.context, claim_extent, claim);
    if (!error)
        return;
    pthread_mutex_lock(&a->claims_lock);
    claim->busy = false;
    pthread_mutex_unlock(&a->claims_lock);
    plx_store_extent_granted(store, claim->type, PLX_ERR_BUSY, NULL);
}

/* Until no other thread works on a claim, seals, or tells of clocks. */
void plx_attach_wait_for_claims(struct plx_attach *a)
{
    for (;;) {
        bool busy;

        pthread_mutex_lock(&a->claims_lock);
        busy = a->sealing > 0 || a->telling;
        for (int type = 0; type <= PLX_EXTENT_META; type++)
            busy = busy || a->claims[type].busy;
        pthread_mutex_unlock(&a->claims_lock);
        if (!busy)
            return;
        usleep(1000);
    }
}

static void add_sealing(struct plx_attach *a, int jobs)
{
    pthread_mutex_lock(&a->claims_lock);
    a->sealing += (unsigned)jobs;
    pthread_mutex_unlock(&a->claims_lock);
}

static void seal_deferred(void *argument)
{
    struct plx_attach *a = argument;

    seal_refused(a);
    add_sealing(a, -1);
}

/* What fails here is done with the next claim, or when the attach is closed. */
static void begin_sealing(struct plx_attach *a)
{
    add_sealing(a, 1);
    if (!a->options.defer)
        seal_deferred(a);
    else if (a->options.defer(a->options.context, seal_deferred, a))
        add_sealing(a, -1);
}

/* ATTACH-10: as it was before it was claimed. */
static void stay_as_known(struct plx_owned_extent *owned)
{
    if (owned->fresh)
        owned->row.type = PLX_EXTENT_UNUSED;
    else
        owned->row.sealed = true;
}

/* ATTACH-10 */
static void env_extent_refused(struct plx_env *env, struct plx_store *store, uint64_t extent,
                               int error, const char *why)
{
    struct plx_attach *a = plx_attach_of(env);
    struct plx_owned_extent *owned = plx_attach_forget_extent(a, extent);
    struct plx_fault newer;

    if (error == PLX_ERR_REGISTRY) {
        plx_door_refuse_newer_extent(store, extent, &newer);
        pthread_mutex_lock(&a->claims_lock);
        snprintf(a->doubt, sizeof a->doubt, "%.*s", (int)sizeof a->doubt - 1, newer.text);
        a->found_doubt = true;
        pthread_mutex_unlock(&a->claims_lock);
    } else {
        pthread_mutex_lock(&a->claims_lock);
        plx_fault_set(&a->distrust, error, "on %.120s, %.200s", plx_volumes_name_of(store, extent),
                      why);
        pthread_mutex_unlock(&a->claims_lock);
    }
    if (owned) {
        if (error == PLX_ERR_REGISTRY)
            stay_as_known(owned);
        else
            plx_attach_never_believe(&owned->row);
        push(a, &a->refused, owned);
    }
    begin_sealing(a);
}

static void env_extent_wanted(struct plx_env *env, struct plx_store *store,
                              enum plx_extent_type type)
{
    struct plx_attach *a = plx_attach_of(env);

    begin_claim(a, store, &a->claims[type]);
}

static void env_extent_needed(struct plx_env *env, struct plx_store *store, uint64_t extent)
{
    struct plx_attach *a = plx_attach_of(env);

    a->claims[PLX_EXTENT_UNUSED].number = extent;
    begin_claim(a, store, &a->claims[PLX_EXTENT_UNUSED]);
}

static bool env_room_wanted(struct plx_env *env, struct plx_store *store)
{
    const struct plx_attach_options *options = &plx_attach_of(env)->options;

    return options->room_wanted && options->room_wanted(options->context);
}

/* ATTACH-8, ATTACH-22 */
static bool env_writes_wait(struct plx_env *env, uint64_t since_ns)
{
    struct plx_attach *a = plx_attach_of(env);

    return a->tenancy && plx_tenancy_waits(a->tenancy, since_ns);
}

static void env_tick(struct plx_env *env)
{
    struct plx_attach *a = plx_attach_of(env);

    if (a->tenancy && a->store && plx_tenancy_is_fenced(a->tenancy)) /* ATTACH-8 */
        plx_store_fence(a->store);
    if (a->options.tick)
        a->options.tick(a->options.context);
    if (a->store)
        take_answers(a, a->store);
    plx_attach_clocks_tick(a);
}

static void env_idle(struct plx_env *env)
{
    struct plx_attach *a = plx_attach_of(env);

    if (a->options.idle)
        a->options.idle(a->options.context);
    else
        usleep(1000);
}

void plx_attach_hook_env(struct plx_env *env)
{
    plx_attach_init_env(env);
    env->extent_wanted = env_extent_wanted;
    env->extent_needed = env_extent_needed;
    env->extent_refused = env_extent_refused;
    env->room_wanted = env_room_wanted;
    env->writes_wait = env_writes_wait;
    env->tick = env_tick;
    env->idle = env_idle;
    env->witness_changed = plx_attach_env_witness_changed;
    env->event = plx_attach_env_event;
}
